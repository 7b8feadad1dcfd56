# Made from ../_async/client.py by scripts/unasync.py: change that one.
"""A connection to a Cloche server."""

from __future__ import annotations

import os
import re
import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Dict, Mapping, Optional, Type, Union

import httpx

from .._wire import listed, segment
from ..errors import invalid
from ..executions import RunResult
from ..models import Event, ServerInfo, Version, Whoami
from ..options import SandboxState
from .access import Audit, Tenants, Tokens
from .checkpoints import Checkpoints
from .contexts import CodeStream, OnError, OnResult, OnText, follow
from .events import follow_events
from .images import Images
from .named import Pools, Secrets, Templates
from .run import run_body, run_once, stream_once
from .sandbox import Sandbox
from .stream import Stream
from .transport import Transport, Call, once

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import CreateOptions, RunOptions

DEFAULT_URL = "http://127.0.0.1:7070"
MAX_METRICS = 64 * 1024 * 1024


class Sandboxes:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, *, idempotency_key: Optional[str] = None, **options: Unpack[CreateOptions]) -> Sandbox:
        """Makes a sandbox, or with `key` finds it. Safe to be repeated: the call has an Idempotency-Key."""
        call = once(Call("POST", "/v1/sandboxes", json=dict(options)), idempotency_key)
        # A virtual machine may boot, a template may be warmed again.
        call.timeout = 0 if options.get("isolation") == "vm" or "template" in options else None
        return Sandbox(self._transport, self._transport.json(call))

    def get(self, sandbox_id: str) -> Sandbox:
        """By id or name."""
        return Sandbox(self._transport, self._transport.json(Call("GET", f"/v1/sandboxes/{segment(sandbox_id)}")))

    def list(
        self,
        *,
        state: Optional[SandboxState] = None,
        name: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        tenant: Optional[str] = None,
        page_size: Optional[int] = None,
    ) -> Iterator[Sandbox]:
        """Newest first, page by page as the loop continues."""
        query: Dict[str, Any] = {"state": state, "name": name, "tenant": tenant, "limit": page_size}
        query.update({f"metadata.{k}": v for k, v in (metadata or {}).items()})
        while True:
            page = self._transport.json(Call("GET", "/v1/sandboxes", query=query))
            for wire in listed(page["sandboxes"], "sandboxes"):
                yield Sandbox(self._transport, wire)
            query["cursor"] = page.get("next")
            if query["cursor"] is None:
                return

    def delete(self, sandbox_id: str) -> None:
        """By id or name."""
        self._transport.json(Call("DELETE", f"/v1/sandboxes/{segment(sandbox_id)}", gone_is_done=True))


class Cloche:
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
        transport: Optional[httpx.BaseTransport] = None,
    ) -> None:
        url = url if url is not None else os.environ.get("CLOCHE_URL") or DEFAULT_URL
        token = token if token is not None else os.environ.get("CLOCHE_TOKEN")
        if token is not None and not re.fullmatch(r"[\x21-\x7e]*", token):
            invalid("the token has characters that no token has", "is there a line break at its end?")
        self._transport = Transport(url, token, timeout, retries, retry_delay, verify, transport)
        self.sandboxes = Sandboxes(self._transport)
        self.checkpoints = Checkpoints(self._transport)
        self.images = Images(self._transport)
        self.templates = Templates(self._transport)
        self.pools = Pools(self._transport)
        self.secrets = Secrets(self._transport)
        self.tokens = Tokens(self._transport)
        self.tenants = Tenants(self._transport)
        self.audit = Audit(self._transport)

    def __repr__(self) -> str:
        where = f"unix:{self._transport.uds}" if self._transport.uds else self._transport.base_text
        return f"<{type(self).__name__} {where}>"

    def run(
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
            return run_once(self._transport, body)
        with stream_once(self._transport, body) as events:
            ended = follow(events, on_stdout, on_stderr, on_result, on_error)
        assert isinstance(ended, RunResult)
        return ended

    def run_stream(self, code: str, **options: Unpack[RunOptions]) -> CodeStream:
        """The same piece by piece. To leave the loop before its end ends the sandbox."""
        return stream_once(self._transport, run_body(code, options))

    def info(self) -> ServerInfo:
        """What this server is and can do."""
        return ServerInfo.from_wire(self._transport.json(Call("GET", "/v1/info")))

    def whoami(self) -> Whoami:
        return Whoami.from_wire(self._transport.json(Call("GET", "/v1/whoami")))

    def health(self) -> bool:
        """The server answers and is well."""
        return bool((self._transport.json(Call("GET", "/healthz"))).get("status") == "ok")

    def version(self) -> Version:
        return Version.from_wire(self._transport.json(Call("GET", "/version")))

    def metrics(self) -> str:
        """Text for Prometheus."""
        answer = self._transport.stream(Call("GET", "/metrics", headers={"accept": "text/plain"}))
        return (answer.collect(MAX_METRICS)).decode("utf-8", "replace")

    def events(self, *, last_event_id: Optional[str] = None) -> Stream[Event]:
        """What happens to the tenant's sandboxes, templates and pools, as it happens."""
        return follow_events(self._transport, "/v1/events", last_event_id)

    def close(self) -> None:
        """Closes all connections. Commands and sandboxes continue."""
        self._transport.close()

    def __enter__(self) -> Cloche:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()
