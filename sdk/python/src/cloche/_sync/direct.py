# Made from ../_async/direct.py by scripts/unasync.py: change that one.
"""Calls over plain HTTP/1.1, without the layers of httpx and httpcore, which take as long as a call itself: bodies that fit into
one write, answers of any kind. What else there is (TLS, upgrades, bodies in pieces) goes through httpcore's pool."""

from __future__ import annotations

from collections import deque
from typing import Any, Iterator, Deque, Mapping, Optional, Tuple

import httpcore

from .._http1 import BodyParser, Head, Headers, Times, request_bytes, take_head
from .runtime import Backend, cut, now

BODY_MAX = 256 * 1024
READ_SIZE = 64 * 1024
IDLE_MAX = 64


class DirectResponse:
    """With the members of a response of httpx that this package uses."""

    def __init__(self, pool: DirectPool, stream: Any, head: Head, data: bytearray, timeout: Optional[float]) -> None:
        self.status_code = head.status
        self.headers: Headers = head.headers
        self._pool, self._stream, self._data, self._timeout = pool, stream, data, timeout
        self._keep, self._body = head.keep, BodyParser(head)

    def iter_raw(self) -> Iterator[bytes]:
        try:
            while True:
                for piece in self._body.feed(self._data):
                    yield piece
                if self._body.over:
                    break
                stream = self._stream
                if stream is None:
                    raise httpcore.ReadError("the answer was closed")
                data = stream.read(READ_SIZE, self._timeout)
                if data:
                    self._data += data
                else:
                    self._body.end()
        finally:
            self.close()

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._keep and self._body.over and not self._data:
            self._pool.give(stream)
        else:
            cut(stream)  # another thread or task may read from it
            stream.close()


class DirectPool:
    def __init__(self, host: str, port: int, uds: Optional[str], host_header: str, idle: float, options: Any) -> None:
        self._host, self._port, self._uds, self._header = host, port, uds, host_header
        self._idle_s, self._options = idle, options
        self._backend = Backend()
        self._idle: Deque[Tuple[Any, float]] = deque()
        self._closed = False

    def _take(self, timeout: Optional[float]) -> Any:
        while True:
            try:
                stream, since = self._idle.pop()  # the one that was used last is the one that is there most probably
            except IndexError:
                break
            if now() - since < self._idle_s and not stream.get_extra_info("is_readable"):
                return stream
            stream.close()
        if self._uds is not None:
            return self._backend.connect_unix_socket(self._uds, timeout=timeout)
        return self._backend.connect_tcp(self._host, self._port, timeout=timeout, socket_options=self._options)

    def give(self, stream: Any) -> None:
        """Back from an answer that was read to its end."""
        self._idle.append((stream, now()))
        while self._idle and (self._closed or len(self._idle) > IDLE_MAX or now() - self._idle[0][1] > self._idle_s):
            try:
                old, _ = self._idle.popleft()
            except IndexError:
                return  # another thread was faster
            old.close()

    def send(self, method: str, target: str, headers: Mapping[str, str], body: Optional[bytes], times: Times) -> DirectResponse:
        """Sends a request and reads the head of its answer. `times`: to connect, and for each piece."""
        connect, each = times
        sent = request_bytes(method, target, self._header, headers, body)
        stream = self._take(connect)
        try:
            try:
                stream.write(sent, each)
            except httpcore.WriteError:
                pass  # the answer may be there, and says why
            data = bytearray()
            while True:
                head = take_head(data)
                if head is not None:
                    if head.status >= 200:
                        break
                    if head.status == 101:
                        raise httpcore.RemoteProtocolError("the server changes a protocol that nothing has asked it to change")
                    continue
                more = stream.read(READ_SIZE, each)
                if not more:
                    raise httpcore.RemoteProtocolError("the server closed the connection without an answer")
                data += more
            return DirectResponse(self, stream, head, data, each)
        except BaseException:
            stream.close()
            raise

    def close(self) -> None:
        self._closed = True
        while self._idle:
            stream, _ = self._idle.popleft()
            stream.close()
