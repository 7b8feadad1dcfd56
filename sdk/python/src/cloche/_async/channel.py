"""Where the output of an exec comes from, piece by piece: a WebSocket, or Server-Sent Events.

The WebSocket is read by a task of its own, ahead of whoever takes the pieces, up to HIGH_WATER; then it is not read, and the
command waits. So a caller that writes to stdin does not wait for itself: output that comes meanwhile is kept, up to MAX_AHEAD.
"""

from __future__ import annotations

import codecs
import struct
from collections import deque
from typing import Any, AsyncIterator, Deque, Dict, Optional

import httpcore
import httpx

from .._sse import ServerEvent
from .._wire import base64_bytes, load
from .._ws import BINARY, CLOSE, PING, PONG, TEXT, FrameParser, frame
from ..errors import ClocheError, ConnectionFailedError, DetachedError, ProtocolError, RequestTimeoutError, error_from_wire
from ..models import Gap, OutputChunk, Result
from ..options import StreamName
from .events import read_events
from .runtime import READ_TIMEOUT, AsyncCondition, AsyncLock, cut, now, spawn, wait_on
from .transport import NETWORK_ERRORS, AsyncAnswer, AsyncTransport

HIGH_WATER = 1024 * 1024
MAX_AHEAD = 64 * 1024 * 1024
STDIN_PIECE = 64 * 1024


class Decoders:
    """Text of each stream, in which a character that two pieces share is in the second."""

    def __init__(self) -> None:
        self._by: Dict[str, codecs.IncrementalDecoder] = {}

    def chunk(self, stream: StreamName, data: bytes) -> OutputChunk:
        decoder = self._by.get(stream)
        if decoder is None:
            decoder = self._by[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        return OutputChunk(stream, data, decoder.decode(data))

    def gap(self, stream: StreamName, gap: Gap) -> OutputChunk:
        decoder = self._by.pop(stream, None)
        return OutputChunk(stream, b"", decoder.decode(b"", True) if decoder else "", gap)


def detached() -> ClocheError:
    return DetachedError("the output is no longer followed", code="detached", remedy="attach() follows it again")


class AsyncChannel:
    """What both kinds have. next() gives None after the last piece; then there is `result`."""

    def __init__(self, offset: int = 0) -> None:
        self.result: Optional[Result] = None
        #: Up to which byte of stdout, or of the terminal, pieces were taken. What is read ahead does not count.
        self.offset = offset
        self.id = ""
        self.started_at: Any = None
        self.can_write = False

    @property
    def open(self) -> bool:
        return False

    def _count(self, chunk: OutputChunk) -> OutputChunk:
        if chunk.stream != "stderr":
            self.offset = chunk.gap.offset if chunk.gap else self.offset + len(chunk.data)
        return chunk

    async def next(self, deadline: Optional[float] = None) -> Optional[OutputChunk]:
        raise NotImplementedError

    async def write(self, data: memoryview) -> None:
        raise NotImplementedError

    async def close_stdin(self) -> None:
        raise NotImplementedError

    async def resize(self, rows: int, cols: int) -> None:
        raise NotImplementedError

    async def ended(self, deadline: Optional[float]) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        raise NotImplementedError


def still_runs() -> ClocheError:
    return RequestTimeoutError("the command still runs", code="timeout", remedy="wait again, or kill() it")


class AsyncSocketChannel(AsyncChannel):
    def __init__(self, transport: AsyncTransport, response: httpx.Response, stream: Any, tty: bool, offset: int = 0) -> None:
        super().__init__(offset)
        self.can_write = True
        self._response, self._stream, self._tty = response, stream, tty
        self._condition = AsyncCondition()
        self._sending = AsyncLock()
        self._queue: Deque[OutputChunk] = deque()
        self._bytes = 0
        self._writing = 0
        self._ping = b""
        self._ponger: Any = None
        self._taken = False
        self._over = False
        self._started = False
        self._error: Optional[ClocheError] = None
        self._decoders = Decoders()
        self._parser = FrameParser()
        transport.open.add(self)
        self._reader = spawn(self._read)

    @property
    def open(self) -> bool:
        return not self._over

    # --- what comes ---

    async def _read(self) -> None:
        error: Optional[ClocheError] = None
        try:
            while await self._room():
                try:
                    data = await self._stream.read(4 * STDIN_PIECE, READ_TIMEOUT)
                except httpcore.ReadTimeout:
                    continue  # a command may be silent for hours
                if not data:
                    raise EOFError("the server closed the connection")
                for kind, body in self._parser.feed(data):
                    await self._message(kind, body)
        except ClocheError as e:
            error = e
        except (*NETWORK_ERRORS, EOFError) as e:
            error = ConnectionFailedError(
                "the connection broke", code="connection", cause=str(e), remedy="the command continues: attach() to it again"
            )
            error.__cause__ = e
        finally:
            await self._end(error)

    async def _room(self) -> bool:
        """Waits until more may be read; False: it is over."""
        async with self._condition:
            while not self._over:
                unread = self._writing > 0 and not self._taken
                if unread and self._bytes > MAX_AHEAD:
                    raise ClocheError(
                        f"more than {MAX_AHEAD} bytes of output are not read while stdin is written",
                        code="unread",
                        remedy="use communicate(), or read in another thread or task",
                    )
                if unread or self._bytes <= HIGH_WATER:
                    return True
                await self._condition.wait()
            return False

    async def _end(self, error: Optional[ClocheError]) -> None:
        async with self._condition:
            if not self._over:
                self._over = True
                if self.result is None and self._error is None:
                    self._error = error or detached()
            self._condition.notify_all()
        cut(self._stream)
        try:
            await self._response.aclose()
        except NETWORK_ERRORS:
            pass  # it is closed either way

    async def _message(self, kind: int, body: bytes) -> None:
        if kind == PING:
            # Not by the reader: it would wait for whoever writes to a server that does not read before its output is read.
            self._ping = body
            self._ponger = spawn(self._pong)
        elif kind == CLOSE:
            raise EOFError(f"closed with code {int.from_bytes(body[:2], 'big')} {body[2:].decode('utf-8', 'replace')}".rstrip())
        elif kind == TEXT:
            await self._control(load(body, "a text frame"))
        elif kind == BINARY and body and body[0] in (1, 2):  # others are of later versions
            data = body[1:]
            stream: StreamName = "stderr" if body[0] == 2 else "tty" if self._tty else "stdout"
            await self._put(self._decoders.chunk(stream, data))

    async def _put(self, chunk: OutputChunk) -> None:
        async with self._condition:
            self._queue.append(chunk)
            self._bytes += len(chunk.data)
            self._condition.notify_all()

    async def _control(self, m: Any) -> None:
        kind = m.get("type")
        if kind == "started":
            await self._start(m)
        elif kind == "gap":
            try:
                gap = Gap(int(m["offset"]), int(m["lost"]))
            except (TypeError, ValueError) as e:
                raise ProtocolError("the server sent a gap without numbers", code="protocol") from e
            stream: StreamName = m.get("stream", "stdout")
            await self._put(self._decoders.gap(stream, gap))
        elif kind == "result":
            m.pop("type")
            self.result = Result.from_wire(m)
            await self._start(m)
            await self._end(None)
        elif kind == "error":
            raise error_from_wire(m.get("error"))

    async def _start(self, m: Dict[str, Any]) -> None:
        async with self._condition:
            self.id, self._started = str(m.get("id")), True
            self.started_at = m.get("started_at")
            self._condition.notify_all()

    # --- who takes it ---

    async def started(self, deadline: Optional[float]) -> None:
        async with self._condition:
            while not self._started:
                if self._error is not None:
                    raise self._error
                left = None if deadline is None else deadline - now()
                if left is not None and left <= 0:
                    raise RequestTimeoutError("the server does not say that the command runs", code="timeout")
                await wait_on(self._condition, left)

    async def next(self, deadline: Optional[float] = None) -> Optional[OutputChunk]:
        async with self._condition:
            self._taken = True
            while not self._queue:
                if self._error is not None:
                    raise self._error
                if self._over:
                    return None
                left = None if deadline is None else deadline - now()
                if left is not None and left <= 0:
                    raise still_runs()
                await wait_on(self._condition, left)
            chunk = self._queue.popleft()
            self._bytes -= len(chunk.data)
            if self._bytes <= HIGH_WATER:
                self._condition.notify_all()
            return self._count(chunk)

    async def ended(self, deadline: Optional[float]) -> None:
        """Waits until another thread or task has read to the end."""
        async with self._condition:
            while not self._over or self._queue:
                left = None if deadline is None else deadline - now()
                if left is not None and left <= 0:
                    raise still_runs()
                await wait_on(self._condition, 1.0 if left is None else min(left, 1.0))

    # --- what goes ---

    async def _send(self, kind: int, data: bytes) -> None:
        async with self._sending:
            if self._over:
                raise self._error or detached()
            try:
                await self._stream.write(frame(kind, data), READ_TIMEOUT)
            except NETWORK_ERRORS as e:
                raise self._error or ConnectionFailedError("the connection broke", code="connection", cause=str(e)) from e

    async def _pong(self) -> None:
        try:
            await self._send(PONG, self._ping)
        except ClocheError:
            pass  # the reader finds the same

    async def _text(self, text: bytes) -> None:
        await self._send(TEXT, text)

    async def begin(self, body: bytes, deadline: Optional[float]) -> None:
        """Starts the command that `body` describes, and waits until it runs."""
        await self._text(body)
        await self.started(deadline)

    async def _count_writer(self, by: int) -> None:
        async with self._condition:
            self._writing += by
            self._condition.notify_all()

    async def write(self, data: memoryview) -> None:
        await self._count_writer(1)
        try:
            for at in range(0, len(data), STDIN_PIECE):
                await self._send(BINARY, b"\3" + data[at : at + STDIN_PIECE])
        finally:
            await self._count_writer(-1)

    async def close_stdin(self) -> None:
        await self._text(b'{"type":"stdin_close"}')

    async def resize(self, rows: int, cols: int) -> None:
        await self._send(BINARY, struct.pack("!BHH", 4, rows, cols))

    async def aclose(self) -> None:
        """Without a close frame, which would have to wait for a server that does not read: an end is an end to it."""
        await self._end(None)

    def abandon(self) -> None:
        """The exec that this is for is no longer used: what reads from the connection finds its end."""
        cut(self._stream)


class AsyncEventChannel(AsyncChannel):
    def __init__(self, transport: AsyncTransport, answer: AsyncAnswer) -> None:
        super().__init__()
        self._answer = answer
        self._events: AsyncIterator[ServerEvent] = read_events(answer)
        self._decoders = Decoders()
        self._error: Optional[ClocheError] = None
        transport.open.add(self)

    @property
    def open(self) -> bool:
        return self._error is None and self.result is None

    async def _event(self) -> ServerEvent:
        if self._error is not None:
            raise self._error
        try:
            e = await self._events.__anext__()
        except StopAsyncIteration:
            raise ConnectionFailedError("the stream ended before the command did", code="connection") from None
        if e.event == "error":
            wire = load(e.data, "an event")
            raise error_from_wire(wire.get("error", wire))
        return e

    async def begin(self) -> None:
        e = await self._event()
        if e.event != "started":
            raise ProtocolError(f"{e.event!r} came before 'started'", code="protocol")
        wire = load(e.data, "an event")
        self.id, self.started_at = str(wire.get("id")), wire.get("started_at")

    async def next(self, deadline: Optional[float] = None) -> Optional[OutputChunk]:
        if deadline is not None and now() >= deadline and self.open:
            raise still_runs()
        try:
            return await self._next()
        except ClocheError as e:
            self._error = e
            raise

    async def _next(self) -> Optional[OutputChunk]:
        while self.result is None:
            e = await self._event()
            wire = load(e.data, "an event")
            if e.event == "result":
                self.result = Result.from_wire(wire)
                await self._answer.aclose()
            elif e.event == "stdout" or e.event == "stderr":
                stream: StreamName = "stdout" if e.event == "stdout" else "stderr"
                coded = wire.get("base64")
                data = wire.get("data", "").encode() if coded is None else base64_bytes(coded)
                return self._count(self._decoders.chunk(stream, data))
        return None

    async def aclose(self) -> None:
        if self.result is None and self._error is None:
            self._error = detached()
        await self._answer.aclose()

    def abandon(self) -> None:
        """Its answer is closed when it is collected."""
