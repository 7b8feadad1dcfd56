"""One call over HTTP: where it goes, how long it may take, when it is repeated, which exception it becomes.

An answer 503, or 429 that says when to come back, means that nothing was done, so any call is repeated. A broken connection
says nothing, so only calls that may happen twice are: GET, HEAD, PUT, DELETE, and what carries an Idempotency-Key. A connection
that was never made was never a call: always repeated. A body that comes in pieces can be sent once only.
"""

from __future__ import annotations

import random
import socket
import ssl
import uuid
import weakref
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from datetime import datetime, timezone
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple, Union

import httpcore
import httpx

from .._wire import Query, WireObject, dump, load, query_string
from .._ws import Handshake
from ..errors import ClocheError, ConnectionFailedError, ProtocolError, RequestTimeoutError, UnsupportedError, error_from_wire, invalid
from .direct import BODY_MAX, AsyncDirectPool
from .runtime import AsyncPoolTransport, body_of, sleep

MAX_JSON = 256 * 1024 * 1024
MAX_ERROR = 8 * 1024 * 1024
# A server that asks for more patience than this gets none: the caller decides.
MAX_RETRY_AFTER = 60.0
IDLE_CONNECTION = 10.0
NO_TIMEOUT = 0.0

NETWORK_ERRORS = (httpx.TransportError, httpx.StreamError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError)
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpcore.ConnectError, httpcore.ConnectTimeout)
TIMEOUTS = (httpx.TimeoutException, httpcore.TimeoutException)


@dataclass
class Call:
    method: str
    path: str
    query: Optional[Query] = None
    headers: Dict[str, str] = field(default_factory=dict)
    #: Sent as JSON.
    json: Any = None
    #: Sent as it is.
    body: Any = None
    #: Seconds; None: the client's; 0: no limit.
    timeout: Optional[float] = None
    #: May be repeated although it is a POST or PATCH.
    repeatable: Optional[bool] = None
    #: 404 is fine if an earlier try of this call may have done it.
    gone_is_done: bool = False


def new_key() -> str:
    return str(uuid.uuid4())


def once(call: Call, key: Optional[str] = None) -> Call:
    """A call that makes something, safe to be repeated: the server answers a key that it knows with what it made."""
    call.headers["idempotency-key"] = key or new_key()
    call.repeatable = True
    return call


def failure(e: BaseException, url: httpx.URL) -> ClocheError:
    """The exception of this package for one of httpx."""
    text = str(e) or type(e).__name__
    if isinstance(e, TIMEOUTS) and not isinstance(e, NEVER_SENT):
        return RequestTimeoutError("no answer in time", code="timeout", cause=text if text != type(e).__name__ else None)
    remedy = None
    if isinstance(e, NEVER_SENT):
        remedy = "is `cloche serve` running, and is the URL right?"
        if "SSL" in text or "TLS" in text:
            remedy = "a server without TLS has an http:// URL; a certificate of your own goes into verify="
    where = f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
    return ConnectionFailedError(f"no connection to {where}", code="connection", cause=text, remedy=remedy)


def seconds_until(value: Optional[str]) -> Optional[float]:
    """Retry-After: seconds or a date, as seconds from now."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds())
    except (TypeError, ValueError):
        return None


class AsyncAnswer:
    """An answer whose body the caller reads. Closing it, or leaving its `with` block, ends the connection if there is more."""

    def __init__(self, response: Any, url: httpx.URL) -> None:
        self._response = response
        self._url = url
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.aiter_raw():
                yield piece
        except NETWORK_ERRORS as e:
            raise failure(e, self._url) from e
        finally:
            await self.aclose()

    async def collect(self, limit: int) -> bytes:
        parts: List[bytes] = []
        size = 0
        try:
            async for piece in self._response.aiter_raw():
                size += len(piece)
                if size > limit:
                    raise ProtocolError(f"an answer of more than {limit} bytes", code="protocol")
                parts.append(piece)
        except NETWORK_ERRORS as e:
            raise failure(e, self._url) from e
        finally:
            await self.aclose()
        return b"".join(parts)

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        except NETWORK_ERRORS:
            pass  # what was wanted from it is here, or its absence has been reported


def _keepalive() -> List[Tuple[int, int, int]]:
    """A command may be silent for hours; a server that has vanished must still be noticed."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


class AsyncTransport:
    def __init__(
        self,
        url: str,
        token: Optional[str],
        timeout: float,
        retries: int,
        retry_delay: float,
        verify: Union[bool, str, ssl.SSLContext],
        transport: Optional[httpx.AsyncBaseTransport],
    ) -> None:
        self.uds: Optional[str] = None
        if url.startswith("unix:"):
            self.uds = url[5:]
            if self.uds.startswith("//"):
                self.uds = self.uds[2:]
            if not self.uds.startswith("/"):
                invalid(f"{url!r} is not the URL of a unix socket", "write unix:/PATH")
            url = "http://localhost"
        try:
            self.base = httpx.URL(url.rstrip("/"))
        except (httpx.InvalidURL, TypeError) as e:
            invalid(f"{url!r} is not a URL: {e}")
        if self.base.scheme not in ("http", "https") or not self.base.host:
            invalid(f"{url!r} is not the URL of a server", "write http://HOST:PORT, https://HOST:PORT or unix:/PATH")
        self.base_text = str(self.base).rstrip("/")
        self.timeout, self.retries, self.retry_delay = timeout, retries, retry_delay
        self.headers = {"accept": "application/json", "user-agent": "cloche-python"}
        if token:
            self.headers["authorization"] = f"Bearer {token}"
        if isinstance(verify, str):
            verify = ssl.create_default_context(cafile=verify)
        # A transport alone: a client of httpx would add cookies, redirects and proxies, and take as long again for each call.
        self._http = transport or AsyncPoolTransport(
            verify if self.base.scheme == "https" else False, self.uds, IDLE_CONNECTION, None if self.uds else _keepalive()
        )
        self._direct: Optional[AsyncDirectPool] = None
        if transport is None and self.base.scheme == "http":
            host, port = self.base.raw_host.decode("ascii").strip("[]"), self.base.port or 80
            netloc = self.base.netloc.decode("ascii")
            self._direct = AsyncDirectPool(host, port, self.uds, netloc, IDLE_CONNECTION, None if self.uds else _keepalive())
        self._base_path = self.base.raw_path.decode("ascii").rstrip("/")
        self._closed = False
        #: Connections that are followed, to be closed with the client.
        self.open: "weakref.WeakSet[Any]" = weakref.WeakSet()

    async def aclose(self) -> None:
        for x in list(self.open):
            await x.aclose()
        self._closed = True
        await self._http.aclose()
        if self._direct is not None:
            await self._direct.aclose()

    async def json(self, call: Call) -> Any:
        """The whole answer, an object; it is empty if there is no body."""
        answer = await self._try(call, whole=True)
        if answer is None:
            return WireObject()
        status, body = answer
        return load(body, f"the answer (status {status})") if body and status != 204 else WireObject()

    async def stream(self, call: Call) -> AsyncAnswer:
        """An answer whose body is the caller's to read; the timeout is that of the head, and of each pause for a body."""
        answer = await self._try(call, whole=False)
        assert isinstance(answer, AsyncAnswer)
        return answer

    async def _try(self, call: Call, whole: bool) -> Any:
        one_shot = call.body is not None and not isinstance(call.body, (str, bytes, bytearray, memoryview))
        repeatable = call.repeatable if call.repeatable is not None else call.method in ("GET", "HEAD", "PUT", "DELETE")
        content = dump(call.json) if call.json is not None else None
        headers = {**self.headers, "x-request-id": new_key(), **call.headers}
        unsure = False
        attempt = 0
        while True:
            try:
                return await self._once(call, headers, content, whole)
            except ClocheError as e:
                if e.request_id is None:
                    e.request_id = headers["x-request-id"]
                if call.gone_is_done and unsure and e.status == 404:
                    return None
                delay = None if one_shot else self._retry_delay(e, attempt, repeatable)
                if delay is None:
                    raise
                unsure = unsure or isinstance(e, ConnectionFailedError)
            attempt += 1
            await sleep(delay)

    def _retry_delay(self, e: ClocheError, attempt: int, repeatable: bool) -> Optional[float]:
        """Seconds until the next try; None: there is none."""
        if attempt >= self.retries:
            return None
        backoff: float = self.retry_delay * 2**attempt * (0.5 + random.random() / 2)
        if e.status == 429 and e.retry_after is None:
            return None  # a quota does not free itself
        if e.status in (429, 503):
            if (e.retry_after or 0) > MAX_RETRY_AFTER:
                return None
            return max(e.retry_after or 0, backoff)
        if isinstance(e, ConnectionFailedError) and (repeatable or isinstance(e.__cause__, NEVER_SENT)):
            return backoff
        return None

    def limits(self, timeout: Optional[float]) -> httpx.Timeout:
        own = self.timeout or None
        given = own if timeout is None else (timeout or None)
        return httpx.Timeout(given, connect=own if own is not None else given, pool=None)

    def target(self, call: Call) -> str:
        return self.base_text + call.path + query_string(call.query)

    async def _send(self, request: httpx.Request) -> httpx.Response:
        self._check_open()
        try:
            return await self._http.handle_async_request(request)
        except NETWORK_ERRORS as e:
            raise failure(e, self.base) from e

    async def _respond(self, call: Call, headers: Dict[str, str], body: Any) -> Any:
        """The answer of httpx's kind, by the shortest way there is."""
        small = body is None or (isinstance(body, bytes) and len(body) <= BODY_MAX)
        if self._direct is None or not small or call.method == "HEAD":
            timeout = self.limits(call.timeout).as_dict()
            request = httpx.Request(call.method, self.target(call), headers=headers, content=body, extensions={"timeout": timeout})
            return await self._send(request)
        self._check_open()
        own = self.timeout or None
        given = own if call.timeout is None else (call.timeout or None)
        target = self._base_path + call.path + query_string(call.query)
        try:
            return await self._direct.send(call.method, target, headers, body, (own if own is not None else given, given))
        except NETWORK_ERRORS as e:
            raise failure(e, self.base) from e

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionFailedError("this client is closed", code="connection", remedy="make a new one")

    async def _once(self, call: Call, headers: Dict[str, str], content: Optional[bytes], whole: bool) -> Any:
        body: Any = content
        if content is not None:
            headers["content-type"] = "application/json"
        elif call.body is not None:
            headers.setdefault("content-type", "application/octet-stream")
            body = body_of(call.body)
        elif call.method not in ("GET", "HEAD"):
            body = b""
        response = await self._respond(call, headers, body)
        if response.status_code >= 400:
            raise await self._error(response)
        answer = AsyncAnswer(response, self.base)
        if not whole:
            return answer
        return response.status_code, await answer.collect(MAX_JSON)

    async def _error(self, response: Any) -> ClocheError:
        wire: Any = None
        details: Dict[str, Any] = {}
        try:
            body = load(await AsyncAnswer(response, self.base).collect(MAX_ERROR))
            wire = body.pop("error", None)
            details = body
            if isinstance(wire, str):
                wire = {"message": wire}
        except ProtocolError:
            pass  # the status says enough
        return error_from_wire(
            wire,
            response.status_code,
            request_id=response.headers.get("x-request-id"),
            retry_after=seconds_until(response.headers.get("retry-after")),
            details=details,
        )

    async def upgrade(self, call: Call) -> Tuple[httpx.Response, Any]:
        """Opens a WebSocket: the response to be closed in the end, and its bytes. Tried again as any GET."""
        attempt = 0
        while True:
            try:
                return await self._upgrade_once(call)
            except ClocheError as e:
                delay = self._retry_delay(e, attempt, True)
                if delay is None:
                    raise
            attempt += 1
            await sleep(delay)

    async def _upgrade_once(self, call: Call) -> Tuple[httpx.Response, Any]:
        shake = Handshake()
        request = httpx.Request(
            "GET",
            self.target(call),
            headers={**self.headers, "x-request-id": new_key(), **shake.headers},
            extensions={"timeout": self.limits(call.timeout).as_dict()},
        )
        response = await self._send(request)
        if response.status_code >= 400:
            raise await self._error(response)
        stream = response.extensions.get("network_stream")
        if response.status_code == 101 and stream is not None and shake.accepts(response.headers):
            return response, stream
        await response.aclose()
        raise UnsupportedError(
            "the way to the server lets no WebSocket through",
            code="unsupported",
            status=response.status_code,
            remedy='use transport="sse", or leave out what is in between',
        )

    async def fetch(self, method: str, url: str, headers: Optional[Mapping[str, str]], content: Any, timeout: Optional[float]) -> httpx.Response:
        """A call to a server in a sandbox, with its whole answer, whatever its status."""
        sent = httpx.Headers(headers or {})
        if "authorization" not in sent and "authorization" in self.headers:
            sent["authorization"] = self.headers["authorization"]
        body = body_of(content) if content is not None else None
        request = httpx.Request(
            method, url, headers=sent, content=body, extensions={"timeout": self.limits(timeout).as_dict()}
        )
        response = await self._send(request)
        try:
            response.request = request
            await response.aread()
        except NETWORK_ERRORS as e:
            raise failure(e, self.base) from e
        return response
