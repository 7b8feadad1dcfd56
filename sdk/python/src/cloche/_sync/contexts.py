# Made from ../_async/contexts.py by scripts/unasync.py: change that one.
"""Contexts of the code interpreter: each keeps variables, imports and the work folder between executions."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Iterator, Callable, Dict, List, Mapping, Optional, Sequence, Type

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
from .stream import Stream
from .transport import Transport, Call

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


class CodeStream(Stream[CodeEvent]):
    """What code does, as it does it. After the loop, `execution` has all of it, and how it ended.

    The code begins with the first piece that is asked for. To leave the stream before its end interrupts the code.
    """

    def __init__(self, transport: Transport, path: str, body: Dict[str, Any], model: Type[Execution] = Execution) -> None:
        super().__init__(self._events(transport, path, body))
        self.execution: Optional[Execution] = None
        self._model = model
        self._text: Dict[str, List[str]] = {"stdout": [], "stderr": []}
        self._results: List[Any] = []
        self._failed: Any = None

    def __enter__(self) -> CodeStream:
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

    def _events(self, transport: Transport, path: str, body: Dict[str, Any]) -> Iterator[CodeEvent]:
        # How long the code is silent is not a matter of the timeout.
        answer = transport.stream(Call("POST", path, headers={"accept": "text/event-stream"}, json=body, timeout=0))
        try:
            for e in read_events(answer, MAX_EVENT):
                wire = load(e.data, "an event")
                if e.event == "end":
                    texts = {name: "".join(parts) for name, parts in self._text.items()}
                    self.execution = self._model.from_wire({**wire, **texts, "results": self._results, "error": self._failed})
                    return
                event = self._event(e.event, wire)
                if event is not None:
                    yield event
        finally:
            answer.close()
        raise ConnectionFailedError("the stream ended before the code did", code="connection", remedy="the context continues")


def follow(
    events: CodeStream,
    on_stdout: Optional[OnText],
    on_stderr: Optional[OnText],
    on_result: Optional[OnResult],
    on_error: Optional[OnError],
) -> Execution:
    """Calls back for each event, up to the end."""
    calls = {"stdout": on_stdout, "stderr": on_stderr}
    for event in events:
        if isinstance(event, CodeOutput):
            tell(calls[event.stream], event.text)
        elif isinstance(event, CodeResult):
            tell(on_result, event)
        elif isinstance(event, CodeError):
            tell(on_error, event)
    assert events.execution is not None
    return events.execution


class Context(ContextInfo):
    """One context. Its fields are what the server said last. Leaving a `with` block deletes it."""

    def __init__(self, transport: Transport, sandbox: str, wire: Any) -> None:
        self._transport = transport
        self._take(wire)
        self._path = f"{sandbox}/contexts/{segment(self.id)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.language} {self.state}>"

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.delete()
        except NotFoundError:
            pass  # its sandbox has gone, and it with it
        except ClocheError:
            if value is None:
                raise
            # Otherwise what has ended the block is what the caller should see.

    def refresh(self) -> None:
        """Asks the server how it is now."""
        self._take(self._transport.json(Call("GET", self._path)))

    def execute(
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
            return Execution.from_wire(self._transport.json(Call("POST", f"{self._path}/execute", json=body, timeout=0)))
        with self.stream(code, timeout=timeout, env=env) as events:
            return follow(events, on_stdout, on_stderr, on_result, on_error)

    def stream(self, code: str, *, timeout: Optional[Duration] = None, env: Optional[Env] = None) -> CodeStream:
        """The same piece by piece: iterate over it, with a `with` block around if the loop may be left."""
        return CodeStream(self._transport, f"{self._path}/execute", _body(code, timeout, env))

    def interrupt(self) -> bool:
        """As Ctrl-C: variables stay. Whether something ran."""
        return bool((self._transport.json(Call("POST", f"{self._path}/interrupt")))["interrupted"])

    def restart(self) -> None:
        """A new interpreter with the same settings: variables go."""
        self._take(self._transport.json(Call("POST", f"{self._path}/restart", timeout=0)))

    def delete(self) -> None:
        self._transport.json(Call("DELETE", self._path, gone_is_done=True))

    def _ask(self, what: str, code: str, **more: Optional[int]) -> Any:
        body = {"code": code, **{k: v for k, v in more.items() if v is not None}}
        return self._transport.json(Call("POST", f"{self._path}/{what}", json=body, repeatable=True))

    def complete(self, code: str, cursor: Optional[int] = None) -> Completions:
        """What can be written at the cursor, in characters; by default at the end."""
        return Completions.from_wire(self._ask("complete", code, cursor=cursor))

    def is_complete(self, code: str) -> Completeness:
        """Whether it can run, or a terminal should ask for another line."""
        return Completeness.from_wire(self._ask("is_complete", code))

    def inspect(self, code: str, cursor: Optional[int] = None, *, detail: Optional[int] = None) -> Inspected:
        """What the name at the cursor is; its source with `detail=1`."""
        return Inspected.from_wire(self._ask("inspect", code, cursor=cursor, detail=detail))

    def history(self, last: Optional[int] = None) -> List[PastCell]:
        """Code that was run."""
        return models(PastCell, (self._transport.json(Call("GET", f"{self._path}/history", query={"last": last})))["cells"])


class Contexts:
    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self._path = f"{sandbox}/contexts"

    def create(
        self,
        language: Language = "python",
        *,
        cwd: Optional[str] = None,
        env: Optional[Env] = None,
        restrict: Optional[Restrict] = None,
        output_limit: Optional[Size] = None,
        result_limit: Optional[Size] = None,
    ) -> Context:
        """Makes one; it is ready when this returns."""
        body: Dict[str, Any] = {"language": language, "cwd": cwd, "env": env, "restrict": restrict}
        body.update(output_limit=output_limit, result_limit=result_limit)
        body = {k: v for k, v in body.items() if v is not None}
        return Context(self._transport, self._sandbox, self._transport.json(Call("POST", self._path, json=body, timeout=0)))

    def list(self) -> Sequence[Context]:
        """All of them, first the default ones of Python and JavaScript."""
        wire = self._transport.json(Call("GET", self._path))
        return [Context(self._transport, self._sandbox, x) for x in listed(wire["contexts"], "contexts")]

    def get(self, context: str) -> Context:
        """By its id. The default one of a language has its name, and is there when it was used."""
        wire = self._transport.json(Call("GET", f"{self._path}/{segment(context)}"))
        return Context(self._transport, self._sandbox, wire)


def context_named(transport: Transport, sandbox: str, name: str) -> Context:
    """For calls on it, without asking the server first."""
    return Context(transport, sandbox, {"id": name, "language": name, "default": True, "state": "stopped"})
