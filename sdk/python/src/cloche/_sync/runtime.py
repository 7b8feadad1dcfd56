"""What differs between the two forms of this package, here for threads: see _async/runtime.py."""

from __future__ import annotations

import io
import selectors
import socket
import ssl
import threading
import time
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Type, TypeVar, Union

import httpcore
import httpx

T = TypeVar("T")
Closer = Callable[[], None]
now = time.monotonic
Condition = threading.Condition
Lock = threading.Lock
#: Ends this call from outside; what was begun for it must be ended, too.
Cancelled = KeyboardInterrupt
#: Never None: a wait with a bound ends even where the system does not report a lost connection. A reader tries again.
READ_TIMEOUT = 3600.0
#: Seconds that every system can count.
LONGEST_WAIT = 3600.0
#: poll() takes descriptors of any number; not every system has it.
WAITER: Type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
PIECE = 64 * 1024
WITH_BODY = (b"POST ", b"PUT ", b"PATCH ")


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def in_thread(fn: Callable[..., T], *args: Any) -> T:
    return fn(*args)


def spawn(fn: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=fn, name="cloche-reader", daemon=True)
    thread.start()
    return thread


def shielded(make: Callable[[], object], seconds: float) -> None:
    """Cleans up after Ctrl-C, without a word about what fails, since the interrupt is what the caller sees."""
    try:
        make()
    except Exception:  # pylint: disable=broad-except
        pass


def current() -> object:
    """Who runs this: two of them may follow one command."""
    return threading.get_ident()


def tell(fn: Optional[Callable[[Any], Any]], value: object) -> None:
    """Calls back."""
    if fn is not None:
        fn(value)


def wait_on(condition: threading.Condition, seconds: Optional[float]) -> None:
    """Waits for a word, or for so long."""
    condition.wait(seconds)


def join(thread: threading.Thread) -> None:
    thread.join()


def cut(stream: httpcore.NetworkStream) -> None:
    """Ends a connection from outside, at once: closing alone does not wake a thread that reads from it."""
    sock = stream.get_extra_info("socket")
    if sock is not None:
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already


Source = Union[str, bytes, bytearray, memoryview, Any]


def body_of(source: Source) -> Union[bytes, Iterator[bytes]]:
    """A body that httpx sends as it is: at once, or piece by piece."""
    if isinstance(source, str):
        return source.encode()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "read"):
        return _file(source)
    if hasattr(source, "__iter__"):
        return _checked(source)
    raise TypeError(f"{type(source).__name__} is no body: pass bytes, str, a file opened with 'rb', or pieces of bytes")


def piece_of(data: object) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        raise TypeError("a piece is str, not bytes: open the file with 'rb'")
    raise TypeError(f"a piece is {type(data).__name__}, not bytes")


def _file(file: Any) -> Iterator[bytes]:
    if isinstance(file, io.TextIOBase):
        raise TypeError("the file is open as text: open it with 'rb'")
    while True:
        data = file.read(4 * PIECE)
        if not data:
            return
        yield piece_of(data)


def _checked(source: Iterable[bytes]) -> Iterator[bytes]:
    for data in source:
        if data:
            yield piece_of(data)


class SharedTls(httpcore.NetworkStream):
    """A TLS connection that one thread reads while another one writes, as a WebSocket does.

    OpenSSL allows one call at a time on a connection: with two, a read that found no data yet can be reported as a broken
    connection. So each call holds a lock and does not block; the waits for the socket are outside of it.
    """

    def __init__(self, stream: httpcore.NetworkStream, sock: ssl.SSLSocket) -> None:
        self._stream, self._sock = stream, sock
        self._lock = threading.Lock()
        sock.settimeout(0)

    def _try(self, call: Callable[[], T], timeout: Optional[float], late: Type[Exception], broken: Type[Exception]) -> T:
        end = None if timeout is None else now() + timeout
        try:
            while True:
                try:
                    with self._lock:
                        return call()
                except ssl.SSLWantReadError:
                    event = selectors.EVENT_READ
                except ssl.SSLWantWriteError:
                    event = selectors.EVENT_WRITE
                left = LONGEST_WAIT if end is None else min(LONGEST_WAIT, end - now())
                if left <= 0:
                    raise late("timed out")
                with WAITER() as waiter:
                    waiter.register(self._sock, event)
                    waiter.select(left)
        except (OSError, ValueError) as e:  # ValueError: it was closed meanwhile
            raise broken(str(e)) from e

    def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        return self._try(lambda: self._sock.recv(max_bytes), timeout, httpcore.ReadTimeout, httpcore.ReadError)

    def write(self, buffer: bytes, timeout: Optional[float] = None) -> None:
        view = memoryview(buffer)
        while view:
            piece = view
            view = view[self._try(lambda: self._sock.send(piece), timeout, httpcore.WriteTimeout, httpcore.WriteError) :]

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class OneWrite(httpcore.NetworkStream):
    """A connection on which the head of a request goes out together with the first piece of its body.

    httpcore writes them one after the other, and the server would be woken for the head alone.
    """

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._held = b""

    def write(self, buffer: bytes, timeout: Optional[float] = None) -> None:
        held, self._held = self._held, b""
        if not held and buffer.startswith(WITH_BODY) and buffer.endswith(b"\r\n\r\n"):
            self._held = buffer
        elif held or buffer:
            self._stream.write(held + buffer, timeout)

    def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        if self._held:
            self.write(b"", timeout)
        return self._stream.read(max_bytes, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: Optional[str] = None, timeout: Optional[float] = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        sock = stream.get_extra_info("socket")
        return OneWrite(SharedTls(stream, sock) if isinstance(sock, ssl.SSLSocket) else stream)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Backend(httpcore.SyncBackend):
    def connect_tcp(self, *args: Any, **more: Any) -> httpcore.NetworkStream:
        return OneWrite(super().connect_tcp(*args, **more))

    def connect_unix_socket(self, *args: Any, **more: Any) -> httpcore.NetworkStream:
        return OneWrite(super().connect_unix_socket(*args, **more))


class Body(httpx.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        self._stream.close()


class PoolTransport(httpx.BaseTransport):
    """httpx's own transport does not let its connections be chosen: this is one of httpcore's pools, with ours."""

    def __init__(
        self, verify: Union[bool, ssl.SSLContext], uds: Optional[str], idle: float, options: Optional[List[Tuple[int, int, int]]]
    ) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify=verify),
            max_connections=None,
            max_keepalive_connections=64,
            keepalive_expiry=idle,
            uds=uds,
            network_backend=Backend(),
            socket_options=options,
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        sent = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        answer = self._pool.handle_request(sent)
        return httpx.Response(answer.status, headers=answer.headers, stream=Body(answer.stream), extensions=answer.extensions)

    def close(self) -> None:
        self._pool.close()
