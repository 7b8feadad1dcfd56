"""A connection to a Cloche server."""

from __future__ import annotations

import os
import re
import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Mapping, Optional, Type, Union

import httpx

from .._wire import listed, segment
from ..errors import invalid
from ..executions import RunResult
from ..models import Event, ServerInfo, Version, Whoami
from ..options import SandboxState
from .access import AsyncAudit, AsyncTenants, AsyncTokens
from .checkpoints import AsyncCheckpoints
from .contexts import AsyncCodeStream, OnError, OnResult, OnText, follow
from .events import follow_events
from .images import AsyncImages
from .named import AsyncPools, AsyncSecrets, AsyncTemplates
from .run import run_body, run_once, stream_once
from .sandbox import AsyncSandbox
from .stream import AsyncStream
from .transport import AsyncTransport, Call, once

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import CreateOptions, RunOptions

DEFAULT_URL = "http://127.0.0.1:7070"
MAX_METRICS = 64 * 1024 * 1024


class AsyncSandboxes:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, *, idempotency_key: Optional[str] = None, **options: Unpack[CreateOptions]) -> AsyncSandbox:
        """Makes a sandbox, or with `key` finds it. Safe to be repeated: the call has an Idempotency-Key."""
        call = once(Call("POST", "/v1/sandboxes", json=dict(options)), idempotency_key)
        # A virtual machine may boot, a template may be warmed again.
        call.timeout = 0 if options.get("isolation") == "vm" or "template" in options else None
        return AsyncSandbox(self._transport, await self._transport.json(call))

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        """By id or name."""
        return AsyncSandbox(self._transport, await self._transport.json(Call("GET", f"/v1/sandboxes/{segment(sandbox_id)}")))

    async def list(
        self,
        *,
        state: Optional[SandboxState] = None,
        name: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        tenant: Optional[str] = None,
        page_size: Optional[int] = None,
    ) -> AsyncIterator[AsyncSandbox]:
        """Newest first, page by page as the loop continues."""
        query: Dict[str, Any] = {"state": state, "name": name, "tenant": tenant, "limit": page_size}
        query.update({f"metadata.{k}": v for k, v in (metadata or {}).items()})
        while True:
            page = await self._transport.json(Call("GET", "/v1/sandboxes", query=query))
            for wire in listed(page["sandboxes"], "sandboxes"):
                yield AsyncSandbox(self._transport, wire)
            query["cursor"] = page.get("next")
            if query["cursor"] is None:
                return

    async def delete(self, sandbox_id: str) -> None:
        """By id or name."""
        await self._transport.json(Call("DELETE", f"/v1/sandboxes/{segment(sandbox_id)}", gone_is_done=True))


class AsyncCloche:
    """The client.

    url: by default CLOCHE_URL, else http://127.0.0.1:7070. unix:/PATH is a unix socket.
    token: by default CLOCHE_TOKEN. On the unix socket root and the daemon's own user need none.
    timeout: seconds that the client waits for an answer; 0 = for ever. Commands and event streams have no such limit.
    retries, retry_delay: how often, and after how many seconds at first, a call is repeated that is refused for now (429,
        503) or whose connection broke.
    verify: False, the file of a certificate, or an ssl.SSLContext, for https.
    transport: an httpx transport in place of our own, for a proxy say.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        retry_delay: float = 0.25,
        verify: Union[bool, str, ssl.SSLContext] = True,
        transport: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        url = url if url is not None else os.environ.get("CLOCHE_URL") or DEFAULT_URL
        token = token if token is not None else os.environ.get("CLOCHE_TOKEN")
        if token is not None and not re.fullmatch(r"[\x21-\x7e]*", token):
            invalid("the token has characters that no token has", "is there a line break at its end?")
        self._transport = AsyncTransport(url, token, timeout, retries, retry_delay, verify, transport)
        self.sandboxes = AsyncSandboxes(self._transport)
        self.checkpoints = AsyncCheckpoints(self._transport)
        self.images = AsyncImages(self._transport)
        self.templates = AsyncTemplates(self._transport)
        self.pools = AsyncPools(self._transport)
        self.secrets = AsyncSecrets(self._transport)
        self.tokens = AsyncTokens(self._transport)
        self.tenants = AsyncTenants(self._transport)
        self.audit = AsyncAudit(self._transport)

    def __repr__(self) -> str:
        where = f"unix:{self._transport.uds}" if self._transport.uds else self._transport.base_text
        return f"<{type(self).__name__} {where}>"

    async def run(
        self,
        code: str,
        *,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[OnResult] = None,
        on_error: Optional[OnError] = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Runs code in a sandbox of its own, which ends with it. With `artifacts` it also gives the files that the code has made.

        Code that fails is no exception: see `error` and `verdict`. Callbacks get output and results as they come.
        """
        body = run_body(code, options)
        if not (on_stdout or on_stderr or on_result or on_error):
            return await run_once(self._transport, body)
        async with stream_once(self._transport, body) as events:
            ended = await follow(events, on_stdout, on_stderr, on_result, on_error)
        assert isinstance(ended, RunResult)
        return ended

    def run_stream(self, code: str, **options: Unpack[RunOptions]) -> AsyncCodeStream:
        """The same piece by piece. To leave the loop before its end ends the sandbox."""
        return stream_once(self._transport, run_body(code, options))

    async def info(self) -> ServerInfo:
        """What this server is and can do."""
        return ServerInfo.from_wire(await self._transport.json(Call("GET", "/v1/info")))

    async def whoami(self) -> Whoami:
        return Whoami.from_wire(await self._transport.json(Call("GET", "/v1/whoami")))

    async def health(self) -> bool:
        """The server answers and is well."""
        return bool((await self._transport.json(Call("GET", "/healthz"))).get("status") == "ok")

    async def version(self) -> Version:
        return Version.from_wire(await self._transport.json(Call("GET", "/version")))

    async def metrics(self) -> str:
        """Text for Prometheus."""
        answer = await self._transport.stream(Call("GET", "/metrics", headers={"accept": "text/plain"}))
        return (await answer.collect(MAX_METRICS)).decode("utf-8", "replace")

    def events(self, *, last_event_id: Optional[str] = None) -> AsyncStream[Event]:
        """What happens to the tenant's sandboxes, templates and pools, as it happens."""
        return follow_events(self._transport, "/v1/events", last_event_id)

    async def aclose(self) -> None:
        """Closes all connections. Commands and sandboxes continue."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncCloche:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()
