"""Contexts of the code interpreter: each keeps variables, imports and the work folder between executions."""

from __future__ import annotations

from types import TracebackType
from typing import Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, Sequence, Type

from .._wire import listed, load, models, segment
from ..errors import ClocheError, ConnectionFailedError, InvalidError, NotFoundError
from ..executions import (
    CodeCleared,
    CodeError,
    CodeEvent,
    CodeOutput,
    CodeResult,
    Completeness,
    Completions,
    ContextInfo,
    Execution,
    Inspected,
    PastCell,
)
from ..options import Duration, Language, Restrict, Size
from .events import read_events
from .runtime import tell
from .stream import AsyncStream
from .transport import AsyncTransport, Call

# One result has up to 10 MiB before its bytes are written as base64 or escapes.
MAX_EVENT = 64 * 1024 * 1024
Env = Mapping[str, Optional[str]]
OnText = Callable[[str], Any]
OnResult = Callable[[CodeResult], Any]
OnError = Callable[[CodeError], Any]


def _body(code: str, timeout: Optional[Duration], env: Optional[Env]) -> Dict[str, Any]:
    if not isinstance(code, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidError(f"code must be str, not {type(code).__name__}", code="invalid")
    body: Dict[str, Any] = {"code": code}
    if timeout is not None:
        body["timeout"] = timeout
    if env is not None:
        body["env"] = dict(env)
    return body


class AsyncCodeStream(AsyncStream[CodeEvent]):
    """What code does, as it does it. After the loop, `execution` has all of it, and how it ended.

    The code begins with the first piece that is asked for. To leave the stream before its end interrupts the code.
    """

    def __init__(self, transport: AsyncTransport, path: str, body: Dict[str, Any], model: Type[Execution] = Execution) -> None:
        super().__init__(self._events(transport, path, body))
        self.execution: Optional[Execution] = None
        self._model = model
        self._text: Dict[str, List[str]] = {"stdout": [], "stderr": []}
        self._results: List[Any] = []
        self._failed: Any = None

    async def __aenter__(self) -> AsyncCodeStream:
        return self

    def _event(self, name: str, wire: Any) -> Optional[CodeEvent]:
        if name in self._text:
            text = str(wire.get("text", ""))
            self._text[name].append(text)
            return CodeOutput(name, text)
        if name == "result":
            self._results.append(wire)
            return CodeResult.from_wire(wire)
        if name == "error":
            self._failed = wire
            return CodeError.from_wire(wire)
        return CodeCleared.from_wire(wire) if name == "clear" else None

    async def _events(self, transport: AsyncTransport, path: str, body: Dict[str, Any]) -> AsyncIterator[CodeEvent]:
        # How long the code is silent is not a matter of the timeout.
        answer = await transport.stream(Call("POST", path, headers={"accept": "text/event-stream"}, json=body, timeout=0))
        try:
            async for e in read_events(answer, MAX_EVENT):
                wire = load(e.data, "an event")
                if e.event == "end":
                    texts = {name: "".join(parts) for name, parts in self._text.items()}
                    self.execution = self._model.from_wire({**wire, **texts, "results": self._results, "error": self._failed})
                    return
                event = self._event(e.event, wire)
                if event is not None:
                    yield event
        finally:
            await answer.aclose()
        raise ConnectionFailedError("the stream ended before the code did", code="connection", remedy="the context continues")


async def follow(
    events: AsyncCodeStream,
    on_stdout: Optional[OnText],
    on_stderr: Optional[OnText],
    on_result: Optional[OnResult],
    on_error: Optional[OnError],
) -> Execution:
    """Calls back for each event, up to the end."""
    calls = {"stdout": on_stdout, "stderr": on_stderr}
    async for event in events:
        if isinstance(event, CodeOutput):
            await tell(calls[event.stream], event.text)
        elif isinstance(event, CodeResult):
            await tell(on_result, event)
        elif isinstance(event, CodeError):
            await tell(on_error, event)
    assert events.execution is not None
    return events.execution


class AsyncContext(ContextInfo):
    """One context. Its fields are what the server said last. Leaving a `with` block deletes it."""

    def __init__(self, transport: AsyncTransport, sandbox: str, wire: Any) -> None:
        self._transport = transport
        self._take(wire)
        self._path = f"{sandbox}/contexts/{segment(self.id)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.language} {self.state}>"

    async def __aenter__(self) -> AsyncContext:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.delete()
        except NotFoundError:
            pass  # its sandbox has gone, and it with it
        except ClocheError:
            if value is None:
                raise
            # Otherwise what has ended the block is what the caller should see.

    async def refresh(self) -> None:
        """Asks the server how it is now."""
        self._take(await self._transport.json(Call("GET", self._path)))

    async def execute(
        self,
        code: str,
        *,
        timeout: Optional[Duration] = None,
        env: Optional[Env] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[OnResult] = None,
        on_error: Optional[OnError] = None,
    ) -> Execution:
        """Runs code and gives what it gave, also if it failed. `env` holds for this execution; None removes a variable.

        Callbacks get it as it comes. If this call is cancelled, the code is interrupted, and the variables stay.
        """
        if not (on_stdout or on_stderr or on_result or on_error):
            body = _body(code, timeout, env)
            # How long code may run is the server's clock to say.
            return Execution.from_wire(await self._transport.json(Call("POST", f"{self._path}/execute", json=body, timeout=0)))
        async with self.stream(code, timeout=timeout, env=env) as events:
            return await follow(events, on_stdout, on_stderr, on_result, on_error)

    def stream(self, code: str, *, timeout: Optional[Duration] = None, env: Optional[Env] = None) -> AsyncCodeStream:
        """The same piece by piece: iterate over it, with a `with` block around if the loop may be left."""
        return AsyncCodeStream(self._transport, f"{self._path}/execute", _body(code, timeout, env))

    async def interrupt(self) -> bool:
        """As Ctrl-C: variables stay. Whether something ran."""
        return bool((await self._transport.json(Call("POST", f"{self._path}/interrupt")))["interrupted"])

    async def restart(self) -> None:
        """A new interpreter with the same settings: variables go."""
        self._take(await self._transport.json(Call("POST", f"{self._path}/restart", timeout=0)))

    async def delete(self) -> None:
        await self._transport.json(Call("DELETE", self._path, gone_is_done=True))

    async def _ask(self, what: str, code: str, **more: Optional[int]) -> Any:
        body = {"code": code, **{k: v for k, v in more.items() if v is not None}}
        return await self._transport.json(Call("POST", f"{self._path}/{what}", json=body, repeatable=True))

    async def complete(self, code: str, cursor: Optional[int] = None) -> Completions:
        """What can be written at the cursor, in characters; by default at the end."""
        return Completions.from_wire(await self._ask("complete", code, cursor=cursor))

    async def is_complete(self, code: str) -> Completeness:
        """Whether it can run, or a terminal should ask for another line."""
        return Completeness.from_wire(await self._ask("is_complete", code))

    async def inspect(self, code: str, cursor: Optional[int] = None, *, detail: Optional[int] = None) -> Inspected:
        """What the name at the cursor is; its source with `detail=1`."""
        return Inspected.from_wire(await self._ask("inspect", code, cursor=cursor, detail=detail))

    async def history(self, last: Optional[int] = None) -> List[PastCell]:
        """Code that was run."""
        return models(PastCell, (await self._transport.json(Call("GET", f"{self._path}/history", query={"last": last})))["cells"])


class AsyncContexts:
    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self._path = f"{sandbox}/contexts"

    async def create(
        self,
        language: Language = "python",
        *,
        cwd: Optional[str] = None,
        env: Optional[Env] = None,
        restrict: Optional[Restrict] = None,
        output_limit: Optional[Size] = None,
        result_limit: Optional[Size] = None,
    ) -> AsyncContext:
        """Makes one; it is ready when this returns."""
        body: Dict[str, Any] = {"language": language, "cwd": cwd, "env": env, "restrict": restrict}
        body.update(output_limit=output_limit, result_limit=result_limit)
        body = {k: v for k, v in body.items() if v is not None}
        return AsyncContext(self._transport, self._sandbox, await self._transport.json(Call("POST", self._path, json=body, timeout=0)))

    async def list(self) -> Sequence[AsyncContext]:
        """All of them, first the default ones of Python and JavaScript."""
        wire = await self._transport.json(Call("GET", self._path))
        return [AsyncContext(self._transport, self._sandbox, x) for x in listed(wire["contexts"], "contexts")]

    async def get(self, context: str) -> AsyncContext:
        """By its id. The default one of a language has its name, and is there when it was used."""
        wire = await self._transport.json(Call("GET", f"{self._path}/{segment(context)}"))
        return AsyncContext(self._transport, self._sandbox, wire)


def context_named(transport: AsyncTransport, sandbox: str, name: str) -> AsyncContext:
    """For calls on it, without asking the server first."""
    return AsyncContext(transport, sandbox, {"id": name, "language": name, "default": True, "state": "stopped"})
