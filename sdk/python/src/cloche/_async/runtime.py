"""What differs between the two forms of this package, here for asyncio. _sync/runtime.py has the same names, for threads.

All other files in _sync are made from those in _async by scripts/unasync.py.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import socket
import ssl
import time
from typing import Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, List, Optional, Tuple, TypeVar, Union, cast

import httpcore
import httpx

T = TypeVar("T")
Closer = Callable[[], Awaitable[None]]
now = time.monotonic
AsyncCondition = asyncio.Condition
AsyncLock = asyncio.Lock
#: Ends this call from outside; what was begun for it must be ended, too.
Cancelled = asyncio.CancelledError
#: None: for ever.
READ_TIMEOUT = None
PIECE = 64 * 1024
WITH_BODY = (b"POST ", b"PUT ", b"PATCH ")


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def in_thread(fn: Callable[..., T], *args: Any) -> T:
    """Runs what blocks (files on this machine) without holding up others."""
    return await asyncio.get_running_loop().run_in_executor(None, functools.partial(fn, *args))


def spawn(fn: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(fn())


async def shielded(make: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Cleans up after a cancellation: for so long at most, to its end although the task is cancelled, and without a word
    about what fails, since the cancellation is what the caller sees."""

    async def run() -> None:
        try:
            await asyncio.wait_for(make(), seconds)
        except Exception:  # pylint: disable=broad-except
            pass

    task = asyncio.ensure_future(run())
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return


def current() -> object:
    """Who runs this: two of them may follow one command."""
    return asyncio.current_task()


async def tell(fn: Optional[Callable[[Any], Any]], value: object) -> None:
    """Calls back; what gives something to be awaited is awaited."""
    if fn is not None:
        said = fn(value)
        if inspect.isawaitable(said):
            await said


async def wait_on(condition: asyncio.Condition, seconds: Optional[float]) -> None:
    """Waits for a word, or for so long."""
    if seconds is None:
        await condition.wait()
        return
    try:
        await asyncio.wait_for(condition.wait(), seconds)
    except asyncio.TimeoutError:
        pass


async def join(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])


def cut(stream: httpcore.AsyncNetworkStream) -> None:
    """Ends a connection from outside, at once; whoever reads from it finds its end."""
    sock = stream.get_extra_info("socket")
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass  # it is closed already


Source = Union[str, bytes, bytearray, memoryview, Any]


def body_of(source: Source) -> Union[bytes, AsyncIterator[bytes]]:
    """A body that httpx sends as it is: at once, or piece by piece."""
    if isinstance(source, str):
        return source.encode()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "read"):
        return _file(source)
    if hasattr(source, "__aiter__"):
        return _checked(source)
    if hasattr(source, "__iter__"):
        return _iterable(source)
    raise TypeError(f"{type(source).__name__} is no body: pass bytes, str, a file opened with 'rb', or pieces of bytes")


def piece_of(data: object) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        raise TypeError("a piece is str, not bytes: open the file with 'rb'")
    raise TypeError(f"a piece is {type(data).__name__}, not bytes")


async def _file(file: Any) -> AsyncIterator[bytes]:
    if isinstance(file, io.TextIOBase):
        raise TypeError("the file is open as text: open it with 'rb'")
    while True:
        data = await in_thread(file.read, 4 * PIECE)
        if hasattr(data, "__await__"):
            data = await data
        if not data:
            return
        yield piece_of(data)


async def _checked(source: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for data in source:
        if data:
            yield piece_of(data)


async def _iterable(source: Iterable[bytes]) -> AsyncIterator[bytes]:
    it = iter(source)
    end = object()
    while True:
        data = await in_thread(next, it, end)
        if data is end:
            return
        if data:
            yield piece_of(cast(bytes, data))


class OneWrite(httpcore.AsyncNetworkStream):
    """A connection on which the head of a request goes out together with the first piece of its body.

    httpcore writes them one after the other, and the server would be woken for the head alone.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._held = b""

    async def write(self, buffer: bytes, timeout: Optional[float] = None) -> None:
        held, self._held = self._held, b""
        if not held and buffer.startswith(WITH_BODY) and buffer.endswith(b"\r\n\r\n"):
            self._held = buffer
        elif held or buffer:
            await self._stream.write(held + buffer, timeout)

    async def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        if self._held:
            await self.write(b"", timeout)
        return await self._stream.read(max_bytes, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: Optional[str] = None, timeout: Optional[float] = None
    ) -> httpcore.AsyncNetworkStream:
        return OneWrite(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Backend(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._below = cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())

    async def connect_tcp(self, *args: Any, **more: Any) -> httpcore.AsyncNetworkStream:
        return OneWrite(await self._below.connect_tcp(*args, **more))

    async def connect_unix_socket(self, *args: Any, **more: Any) -> httpcore.AsyncNetworkStream:
        return OneWrite(await self._below.connect_unix_socket(*args, **more))

    async def sleep(self, seconds: float) -> None:
        await self._below.sleep(seconds)


class Body(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return cast("AsyncIterator[bytes]", self._stream.__aiter__())

    async def aclose(self) -> None:
        await self._stream.aclose()


class AsyncPoolTransport(httpx.AsyncBaseTransport):
    """httpx's own transport does not let its connections be chosen: this is one of httpcore's pools, with ours."""

    def __init__(
        self, verify: Union[bool, ssl.SSLContext], uds: Optional[str], idle: float, options: Optional[List[Tuple[int, int, int]]]
    ) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify=verify),
            max_connections=None,
            max_keepalive_connections=64,
            keepalive_expiry=idle,
            uds=uds,
            network_backend=Backend(),
            socket_options=options,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        sent = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        answer = await self._pool.handle_async_request(sent)
        return httpx.Response(answer.status, headers=answer.headers, stream=Body(answer.stream), extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._pool.aclose()
