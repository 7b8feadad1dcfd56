"""What differs between the two forms of this package, here for asyncio. _sync/runtime.py has the same names, for threads.

All other files in _sync are made from those in _async by scripts/unasync.py.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import select
import socket
import ssl
import time
from typing import Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, List, Optional, Tuple, Type, TypeVar, Union, cast

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


#: What comes is read ahead up to here; then the connection is not read.
READ_AHEAD = 256 * 1024


class Bytes(asyncio.Protocol):
    """What asyncio says of a connection, kept until it is asked for. One task reads, one writes."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: Any = None
        self.data = bytearray()
        self.over = False
        self.error: Optional[BaseException] = None
        self._reader: Optional["asyncio.Future[None]"] = None
        self._writer: Optional["asyncio.Future[None]"] = None
        self._full = self._paused = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > READ_AHEAD and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake(self._reader)

    def eof_received(self) -> bool:
        self.over = True
        self._wake(self._reader)
        return False

    def connection_lost(self, exc: Optional[BaseException]) -> None:
        self.over, self._full = True, False
        self.error = exc
        self._wake(self._reader)
        self._wake(self._writer)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake(self._writer)

    @staticmethod
    def _wake(waiter: Optional["asyncio.Future[None]"]) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _until(self, waiter: "asyncio.Future[None]", timeout: Optional[float], late: Type[Exception]) -> None:
        """asyncio.wait_for() makes a task on the older versions of Python; a timer is enough here."""
        timer = None if timeout is None else self.loop.call_later(max(timeout, 0), self._wake_with, waiter, late("timed out"))
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()

    @staticmethod
    def _wake_with(waiter: "asyncio.Future[None]", error: Exception) -> None:
        if not waiter.done():
            waiter.set_exception(error)

    async def read(self, max_bytes: int, timeout: Optional[float]) -> bytes:
        while not self.data:
            if self.over:
                if self.error is not None:
                    raise httpcore.ReadError(str(self.error) or type(self.error).__name__) from self.error
                return b""
            self._reader = self.loop.create_future()
            try:
                await self._until(self._reader, timeout, httpcore.ReadTimeout)
            finally:
                self._reader = None
        data = bytes(self.data) if len(self.data) <= max_bytes else bytes(memoryview(self.data)[:max_bytes])
        del self.data[: len(data)]
        if self._paused and len(self.data) <= READ_AHEAD // 2 and not self.over:
            self._paused = False
            self.transport.resume_reading()
        return data

    async def write(self, data: bytes, timeout: Optional[float]) -> None:
        if self.error is not None or self.transport.is_closing():
            raise httpcore.WriteError(str(self.error or "the connection is closed"))
        self.transport.write(data)
        while self._full:
            self._writer = self.loop.create_future()
            try:
                await self._until(self._writer, timeout, httpcore.WriteTimeout)
            finally:
                self._writer = None
        if self.error is not None:
            raise httpcore.WriteError(str(self.error) or type(self.error).__name__) from self.error


def has_news(sock: Any) -> bool:
    """Whether a connection that should be silent has something to say, which is its end as a rule."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock.fileno()], [], [], 0)[0])
    except (OSError, ValueError):
        return True  # it is closed


class Connection(httpcore.AsyncNetworkStream):
    """A connection of asyncio's own. That of anyio, which httpcore would take, costs as much again in each call.

    The head of a request goes out together with the first piece of its body: httpcore writes them one after the other, and
    the server would be woken for the head alone.
    """

    def __init__(self, bytes_: Bytes) -> None:
        self._bytes = bytes_
        self._socket = bytes_.transport.get_extra_info("socket")  # that of TLS forgets it when it is closed
        self._held = b""

    async def write(self, buffer: bytes, timeout: Optional[float] = None) -> None:
        held, self._held = self._held, b""
        if not held and buffer.startswith(WITH_BODY) and buffer.endswith(b"\r\n\r\n"):
            self._held = buffer
        elif held or buffer:
            await self._bytes.write(held + buffer, timeout)

    async def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        if self._held:
            await self.write(b"", timeout)
        return await self._bytes.read(max_bytes, timeout)

    async def aclose(self) -> None:
        transport, loop = self._bytes.transport, self._bytes.loop
        try:
            if loop is not asyncio.get_running_loop():
                loop.call_soon_threadsafe(transport.abort)
                return
            transport.close()
            await asyncio.sleep(0)
            transport.abort()  # close() would wait for a server that does not read
        except RuntimeError:
            pass  # its event loop has been closed, and it with it

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: Optional[str] = None, timeout: Optional[float] = None
    ) -> httpcore.AsyncNetworkStream:
        over = Bytes()
        begun = self._bytes.loop.start_tls(self._bytes.transport, over, ssl_context, server_hostname=server_hostname)
        try:
            over.transport = await asyncio.wait_for(begun, timeout)
        except asyncio.TimeoutError as e:
            raise httpcore.ConnectTimeout("the TLS handshake takes too long") from e
        except (OSError, EOFError) as e:
            raise httpcore.ConnectError(str(e)) from e
        if over.transport is None:
            raise httpcore.ConnectError("the connection was closed during the TLS handshake")
        return Connection(over)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # One of another event loop (asyncio.run() makes a new one each time) would never answer: it counts as over.
            b = self._bytes
            return bool(b.data) or b.over or b.loop is not asyncio.get_running_loop() or has_news(self._socket)
        if info == "socket":
            return self._socket
        return self._bytes.transport.get_extra_info(INFO.get(info, info))


INFO = {"client_addr": "sockname", "server_addr": "peername"}


class Backend(httpcore.AsyncNetworkBackend):
    async def _connected(self, made: Awaitable[Tuple[Any, Any]], timeout: Optional[float]) -> Connection:
        try:
            _, bytes_ = await asyncio.wait_for(made, timeout)
        except asyncio.TimeoutError as e:
            raise httpcore.ConnectTimeout("timed out") from e
        except OSError as e:
            raise httpcore.ConnectError(str(e)) from e
        return Connection(bytes_)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: Optional[float] = None,
        local_address: Optional[str] = None,
        socket_options: Optional[Iterable[Any]] = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        local = None if local_address is None else (local_address, 0)
        made = loop.create_connection(Bytes, host, port, local_addr=local, happy_eyeballs_delay=0.25)
        connection = await self._connected(made, timeout)
        sock = connection.get_extra_info("socket")
        for option in socket_options or ():
            sock.setsockopt(*option)
        return connection

    async def connect_unix_socket(
        self, path: str, timeout: Optional[float] = None, socket_options: Optional[Iterable[Any]] = None
    ) -> httpcore.AsyncNetworkStream:
        return await self._connected(asyncio.get_running_loop().create_unix_connection(Bytes, path), timeout)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


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
