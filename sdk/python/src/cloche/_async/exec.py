"""An exec that was started: its output, its stdin, its end."""

from __future__ import annotations

import math
import weakref
from datetime import datetime
from types import TracebackType
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple, Type, Union

from .._collect import Collector
from .._wire import dump, segment, time_from_wire
from ..errors import ClocheError, InvalidError, NotFoundError, RequestTimeoutError
from ..models import ExecInfo, Gap, Output, OutputChunk, Result
from ..options import Command, Data, SignalScope, Source, StreamName, Terminal, exec_body
from .channel import AsyncChannel, AsyncEventChannel, AsyncSocketChannel, Decoders
from .runtime import body_of, current, join, now, spawn
from .stream import AsyncStream
from .transport import AsyncAnswer, AsyncTransport, Call, new_key

# Asked in rounds, since a connection that is silent for hours is cut by what is in between.
WAIT_SECONDS = 30
HTTP_STDIN_PIECE = 1024 * 1024
# The server's default. A text like "4M" is the server's to read, so here it is the default, too.
COLLECT = 1024 * 1024
MAX_OUTPUT = 1024**3


class AsyncStdin:
    """The stdin of a command, or the keyboard of a terminal. Writing waits until the server takes more."""

    def __init__(self, owner: AsyncExec, usable: bool) -> None:
        self._exec, self._usable = owner, usable

    def _check(self) -> None:
        if not self._usable:
            raise InvalidError("this exec has no stdin", code="invalid", remedy="start it with stdin=True")

    async def write(self, data: Data) -> None:
        self._check()
        await self._exec._write(memoryview(data.encode() if isinstance(data, str) else data).cast("B"))

    async def close(self) -> None:
        """The command finds the end of its input."""
        self._check()
        await self._exec._close_stdin()


class AsyncExec:
    """Iterate over it for its output as it comes; the end of the loop is the end of the command.

    A loop that is left may be continued by another. `wait()` reads what is left. Leaving a `with` block kills a command that
    still runs. A reader that is slow slows the command down: output is never kept without a bound.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        execs_path: str,
        exec_id: str,
        *,
        tty: bool,
        started_at: Any = None,
        channel: Optional[AsyncChannel] = None,
        stdin: bool = True,
        collect: Optional[int] = None,
    ) -> None:
        self.id = exec_id
        self.tty = tty
        self.started_at: Optional[datetime] = time_from_wire(started_at) if started_at else None
        self.stdin = AsyncStdin(self, stdin)
        self._transport = transport
        self._path = f"{execs_path}/{segment(exec_id)}"
        self._channel = channel
        # Only the channel carries the output: what is not read there is read nowhere. So many bytes are kept.
        self._collect = collect
        self._kept: Optional[Tuple[Collector, Collector]] = None
        self._iterated = False
        self._reader: object = None
        self._result: Optional[Result] = None
        if channel is not None:
            weakref.finalize(self, channel.abandon)

    def __repr__(self) -> str:
        state = f"exit code {self._result.exit_code}" if self._result else "not known to have ended"
        return f"<{type(self).__name__} {self.id} {state}>"

    @property
    def result(self) -> Optional[Result]:
        """How it ended, once that is known."""
        return self._result

    @property
    def offset(self) -> int:
        """Up to which byte of stdout (or of the terminal) pieces were taken: attach() continues from here."""
        return self._channel.offset if self._channel else 0

    # --- its output ---

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        return self

    async def __anext__(self) -> OutputChunk:
        self._iterated = True
        chunk = await self._next(None)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _next(self, deadline: Optional[float]) -> Optional[OutputChunk]:
        self._reader = current()
        if self._channel is None:
            self._channel = await open_attach(self._transport, self._path, self.tty, 0)
            weakref.finalize(self, self._channel.abandon)
        chunk = await self._channel.next(deadline)
        if chunk is None and self._channel.result is not None:
            self._finish(self._channel.result)
        return chunk

    async def wait(self, timeout: Optional[float] = None) -> Result:
        """Its end. If no output was read, the result has it, within the output limit; otherwise the rest is dropped.

        After `timeout` seconds it is a RequestTimeoutError, and the command continues. With transport="sse" the time is looked
        at when a piece comes.
        """
        deadline = None if timeout is None else now() + timeout
        if self._result is not None:
            return self._result
        if self._channel is not None and self._channel.open:
            if self._reader not in (None, current()):
                await self._channel.ended(deadline)
                if self._channel.result is not None:
                    return self._finish(self._channel.result)
            elif self._collect is not None or self._iterated:
                return await self._drain(deadline)
        elif self._channel is not None and self._collect is not None and not self._iterated:
            return await self._drain(deadline)  # it has ended, and its output is here
        await self.detach()
        return self._finish(await wait_for(self._transport, self._path, timeout))

    async def _drain(self, deadline: Optional[float]) -> Result:
        if self._kept is None:
            self._kept = Collector(self._collect or 0), Collector(self._collect or 0)
        out, err = self._kept
        keep = self._collect is not None and not self._iterated
        while True:
            chunk = await self._next(deadline)
            if chunk is None:
                break
            if keep:
                (err if chunk.stream == "stderr" else out).add(chunk.data)
        if self._result is None:
            return self._finish(await wait_for(self._transport, self._path, None))
        r = self._result
        if keep:
            r.stdout_bytes, r.stderr_bytes = out.bytes(), err.bytes()
            r.stdout, r.stderr = r.stdout_bytes.decode("utf-8", "replace"), r.stderr_bytes.decode("utf-8", "replace")
            t = r.truncated
            t.stdout, t.stderr = out.dropped > 0, err.dropped > 0
            t.stdout_dropped, t.stderr_dropped = out.dropped, err.dropped
        return r

    async def communicate(self, data: Source = b"") -> Result:
        """Writes all of stdin, closes it, and waits for the end. Reads meanwhile, so that neither side waits for the other."""

        async def feed() -> None:
            body = body_of(data)
            try:
                if isinstance(body, bytes):
                    await self.stdin.write(body)
                else:
                    async for piece in body:
                        await self.stdin.write(piece)
                await self.stdin.close()
            except ClocheError as e:
                if isinstance(e, InvalidError):
                    failures.append(e)
                # Otherwise the command has ended or does not read: its result says more.
            except Exception as e:  # pylint: disable=broad-except
                failures.append(e)
                await self.kill()

        failures: List[Exception] = []
        self.stdin._check()
        writer = spawn(feed)
        try:
            return await self.wait()
        finally:
            await join(writer)
            if failures:
                raise failures[0]

    async def status(self) -> Union[Result, ExecInfo]:
        """What the server knows now: the result if it has ended."""
        wire = await self._transport.json(Call("GET", self._path))
        return self._finish(Result.from_wire(wire)) if wire.get("state") == "ended" else ExecInfo.from_wire(wire)

    async def output(self, stream: Optional[StreamName] = None, *, offset: int = 0, limit: Optional[int] = None) -> Output:
        """Output from the spool, which is kept for a while after the end."""
        parts: List[bytes] = []
        gaps: List[Gap] = []
        size = 0
        async with self.output_stream(stream, offset=offset, limit=limit) as chunks:
            async for chunk in chunks:
                if chunk.gap is not None:
                    gaps.append(chunk.gap)
                size += len(chunk.data)
                if size > MAX_OUTPUT:
                    raise InvalidError(f"more than {MAX_OUTPUT} bytes of output", code="invalid", remedy="use output_stream()")
                parts.append(chunk.data)
        return Output(b"".join(parts), gaps)

    def output_stream(
        self, stream: Optional[StreamName] = None, *, offset: int = 0, limit: Optional[int] = None, follow: bool = False
    ) -> AsyncStream[OutputChunk]:
        """The same piece by piece; `follow` continues until the command ends."""
        which: StreamName = stream or ("tty" if self.tty else "stdout")
        return AsyncStream(self._spool(which, offset, None if limit is None else offset + limit, follow))

    async def _ask(self, stream: StreamName, at: int, end: Optional[int], follow: bool) -> AsyncAnswer:
        query = {"stream": stream, "offset": at, "limit": None if end is None else max(0, end - at), "follow": follow or None}
        headers = {"accept": "application/octet-stream"}
        return await self._transport.stream(
            Call("GET", f"{self._path}/output", query=query, headers=headers, timeout=0 if follow else None)
        )

    async def _spool(self, stream: StreamName, at: int, end: Optional[int], follow: bool) -> AsyncIterator[OutputChunk]:
        decoders = Decoders()
        answer = await self._ask(stream, at, end, follow)
        while True:
            begin = at
            lost = int(answer.headers.get("x-cloche-lost", 0))
            at = int(answer.headers.get("x-cloche-offset", at))
            try:
                if lost > 0:
                    yield decoders.gap(stream, Gap(at, lost))
                async for data in answer.pieces():
                    at += len(data)
                    yield decoders.chunk(stream, data)
            finally:
                await answer.aclose()
            total = int(answer.headers.get("x-cloche-total", 0))
            if (end is not None and at >= end) or (not follow and (at >= total or at == begin)):
                return
            if follow and at >= total and answer.headers.get("x-cloche-state") != "running":
                return
            # An answer ends where bytes are missing: the next one begins behind them.
            try:
                answer = await self._ask(stream, at, end, follow)
            except NotFoundError:
                if follow and at >= total:
                    return  # it was removed meanwhile, so it had ended
                raise

    # --- what is done to it ---

    async def kill(self) -> Result:
        """Ends its whole process tree and waits for that."""
        if self._result is not None:
            return self._result
        result = Result.from_wire(await self._transport.json(Call("DELETE", self._path)))
        if not self._iterated:
            await self.detach()
        return self._finish(result)

    async def signal(self, signal: Union[str, int], *, scope: Optional[SignalScope] = None) -> None:
        """Sends a signal ("TERM", 15, signal.SIGTERM) to the whole tree, unless `scope` says less."""
        body: Dict[str, Any] = {"signal": signal if isinstance(signal, str) else int(signal)}
        if scope is not None:
            body["scope"] = scope
        await self._transport.json(Call("POST", f"{self._path}/signal", json=body))

    async def resize(self, rows: int, cols: int) -> None:
        """The size of its terminal."""
        if self._channel is not None and self._channel.can_write and self._channel.open:
            try:
                return await self._channel.resize(rows, cols)
            except ClocheError:
                pass  # the connection has gone; the command may be there
        await self._transport.json(Call("POST", f"{self._path}/resize", json={"rows": rows, "cols": cols}, repeatable=True))

    async def detach(self) -> None:
        """No longer follows it. The command continues, and attach() finds it."""
        if self._channel is not None:
            await self._channel.aclose()

    async def _write(self, data: memoryview) -> None:
        if self._channel is not None and self._channel.can_write and self._channel.open:
            return await self._channel.write(data)
        for at in range(0, len(data), HTTP_STDIN_PIECE):
            piece = bytes(data[at : at + HTTP_STDIN_PIECE])
            await self._transport.json(Call("POST", f"{self._path}/stdin", body=piece, timeout=0))
        return None

    async def _close_stdin(self) -> None:
        if self._result is not None:
            return
        if self._channel is not None and self._channel.can_write and self._channel.open:
            return await self._channel.close_stdin()
        await self._transport.json(Call("POST", f"{self._path}/stdin", query={"close": True}, body=b""))

    def _finish(self, result: Result) -> Result:
        if self._result is None:
            self._result = result
        return self._result

    async def __aenter__(self) -> AsyncExec:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            if self._result is None:
                await self.kill()
        except NotFoundError:
            pass  # its sandbox has gone, and it with it
        except ClocheError:
            if value is None:
                raise
            # Otherwise what has ended the block is what the caller should see.
        finally:
            await self.detach()


async def wait_for(transport: AsyncTransport, path: str, timeout: Optional[float]) -> Result:
    end = None if timeout is None else now() + timeout
    while True:
        left = WAIT_SECONDS if end is None else max(0, min(WAIT_SECONDS, math.ceil(end - now())))
        call = Call("GET", f"{path}/wait", query={"timeout": left}, timeout=left + (transport.timeout or 30))
        wire = await transport.json(call)
        if wire.get("state") == "ended":
            return Result.from_wire(wire)
        if end is not None and now() >= end:
            raise RequestTimeoutError(f"the command still runs after {timeout} s", code="timeout", remedy="wait again, or kill() it")


async def open_attach(transport: AsyncTransport, path: str, tty: bool, offset: int) -> AsyncSocketChannel:
    response, stream = await transport.upgrade(Call("GET", f"{path}/attach", query={"offset": offset or None}))
    return AsyncSocketChannel(transport, response, stream, tty, offset)


async def start_exec(
    transport: AsyncTransport,
    execs_path: str,
    cmd: Command,
    options: Mapping[str, Any],
    *,
    stdin: Union[bool, Data],
    tty: Union[bool, Terminal],
    sse: bool,
) -> AsyncExec:
    """Starts one and follows it."""
    body = exec_body(cmd, options, stdin=stdin, tty=tty)
    limit = options.get("output_limit")
    collect = None if tty else limit if isinstance(limit, int) else COLLECT
    usable = bool(tty) or stdin is True
    if sse:
        headers = {"accept": "text/event-stream"}
        # How long a command is silent is not a matter of the timeout.
        answer = await transport.stream(Call("POST", execs_path, headers=headers, json=body, timeout=0))
        events = AsyncEventChannel(transport, answer)
        try:
            await events.begin()
        except BaseException:
            await events.aclose()
            raise
        return AsyncExec(
            transport, execs_path, events.id, tty=False, started_at=events.started_at, channel=events, stdin=usable, collect=collect
        )
    text = dump(body)
    response, stream = await transport.upgrade(Call("GET", f"{execs_path}/attach"))
    channel = AsyncSocketChannel(transport, response, stream, bool(tty))
    try:
        await channel.begin(text, now() + transport.timeout if transport.timeout else None)
    except BaseException:
        await channel.aclose()
        raise
    return AsyncExec(
        transport, execs_path, channel.id, tty=bool(tty), started_at=channel.started_at, channel=channel, stdin=usable, collect=collect
    )


async def start_background(
    transport: AsyncTransport,
    execs_path: str,
    cmd: Command,
    options: Mapping[str, Any],
    *,
    stdin: Union[bool, Data] = False,
    tty: Union[bool, Terminal] = False,
    restart: Optional[str] = None,
    binary: bool = False,
    key: Optional[str] = None,
) -> AsyncExec:
    """Starts one that needs no listener."""
    more: Dict[str, Any] = {"background": True}
    if restart is not None:
        more["restart"] = restart
    if binary:
        more["encoding"] = "base64"
    body = exec_body(cmd, options, stdin=stdin, tty=tty, more=more)
    call = Call("POST", execs_path, headers={"idempotency-key": key or new_key()}, json=body, repeatable=True)
    wire = await transport.json(call)
    return AsyncExec(
        transport, execs_path, wire["id"], tty=bool(tty), started_at=wire.get("started_at"), stdin=bool(tty) or stdin is True
    )
