"""What the code of a context gives: output, results in formats, an error, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Optional, Union

from ._display import Bundle, code_result_bundle, execution_bundle
from ._wire import Model


@dataclass(eq=False)
class CodeOutput:
    """A piece of what the code wrote. One `print` is one piece, unless there are very many."""

    #: stdout or stderr.
    stream: str
    text: str


@dataclass(eq=False)
class CodeResult(Model):
    """A value that was shown. In a notebook it shows itself, HTML in a frame without scripts; `trusted()` shows it as it is."""

    #: By format: text/plain, text/html, image/png (base64), application/json (the value itself), …
    mime: Dict[str, Any]
    #: The value of the last expression; False: it was displayed.
    is_main: bool = False
    metadata: Optional[Dict[str, Any]] = None
    #: Of a table: its values by column.
    data: Optional[Dict[str, List[Any]]] = None
    #: Of a figure of matplotlib: what it shows, as numbers.
    chart: Optional[Dict[str, Any]] = None
    display_id: Optional[str] = None
    #: It replaces the one with this `display_id`.
    update: bool = False
    #: Formats that were too large, or have only their beginning: what they would have had, in bytes.
    truncated: Optional[Dict[str, int]] = None
    truncated_data: Optional[bool] = None

    def _format(self, name: str) -> Optional[str]:
        value = self.mime.get(name)
        return value if isinstance(value, str) else None

    @property
    def text(self) -> Optional[str]:
        return self._format("text/plain")

    @property
    def html(self) -> Optional[str]:
        return self._format("text/html")

    @property
    def markdown(self) -> Optional[str]:
        return self._format("text/markdown")

    @property
    def latex(self) -> Optional[str]:
        return self._format("text/latex")

    @property
    def svg(self) -> Optional[str]:
        return self._format("image/svg+xml")

    @property
    def json(self) -> Any:
        return self.mime.get("application/json")

    @property
    def png(self) -> Optional[bytes]:
        return self._bytes("image/png")

    @property
    def jpeg(self) -> Optional[bytes]:
        return self._bytes("image/jpeg")

    def _bytes(self, name: str) -> Optional[bytes]:
        from ._wire import base64_bytes

        value = self._format(name)
        return None if value is None else base64_bytes("".join(value.split()))

    def trusted(self) -> TrustedResult:
        """For a notebook: all formats as the sandbox gave them. Scripts in them run in the notebook, with its rights."""
        return TrustedResult(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return code_result_bundle(self)


class TrustedResult:
    def __init__(self, result: CodeResult) -> None:
        self.result = result

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return dict(self.result.mime)


@dataclass(eq=False)
class CodeError(Model):
    """An error that ended the code. `line` and `column` are those of a syntax error."""

    name: str
    value: str
    traceback: str
    line: Optional[int] = None
    column: Optional[int] = None


@dataclass(eq=False)
class CodeCleared(Model):
    """The code asks to remove what it has shown so far; with `wait`, when something new comes."""

    wait: bool = False


CodeEvent = Union[CodeOutput, CodeResult, CodeError, CodeCleared]


@dataclass(eq=False)
class CodeVerdict(Model):
    """How an execution ended."""

    #: ok, error, interrupted, timeout, restarted, deleted, protocol, or what ended the process: exited, signaled, oom, …
    cause: str
    detail: str
    #: kept or lost: whether the variables are still there.
    state: str
    limit: Optional[int] = None
    peak: Optional[int] = None
    #: How many processes the memory limit killed while code ran that ended with an error.
    oom_kills: Optional[int] = None


@dataclass(eq=False)
class CodeTruncation(Model):
    #: Bytes of output beyond the limit.
    output_dropped: int = 0
    results_dropped: int = 0


@dataclass(eq=False)
class CodeUsage(Model):
    wall_ms: int
    cpu_ms: Optional[int] = None
    memory_peak: Optional[int] = None


@dataclass(eq=False)
class Execution(Model):
    """What code gave, and how it ended. It shows itself in notebooks: output, results, error."""

    context: str
    results: List[CodeResult]
    stdout: str
    stderr: str
    error: Optional[CodeError]
    execution_count: Optional[int]
    verdict: CodeVerdict
    truncated: CodeTruncation
    usage: CodeUsage

    @property
    def ok(self) -> bool:
        return self.verdict.cause == "ok"

    @property
    def result(self) -> Optional[CodeResult]:
        """The value of the last expression, if it has one."""
        for r in reversed(self.results or ()):
            if r.is_main:
                return r
        return None

    @property
    def text(self) -> Optional[str]:
        """The same as text."""
        r = self.result
        return r.text if r else None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return execution_bundle(self)


@dataclass(eq=False)
class RunArtifact(Model):
    """A file that the code has made or changed."""

    #: Relative to the working folder.
    path: str
    size: int
    #: By the ending of its name.
    mime: str
    #: base64; None: it was too large.
    content: Optional[str] = None

    @property
    def data(self) -> Optional[bytes]:
        from ._wire import base64_bytes

        return None if self.content is None else base64_bytes(self.content)


@dataclass(eq=False)
class RunResult(Execution):
    """What code gave that was run in a sandbox of its own."""

    artifacts: List[RunArtifact] = field(default_factory=list)
    #: How many more there were.
    artifacts_dropped: int = 0

    def _take(self, wire: Any) -> None:
        # Its context has ended with its sandbox.
        super()._take({"context": "", **wire} if isinstance(wire, dict) else wire)

    def artifact(self, path: str) -> Optional[bytes]:
        """The content of one, if it is there."""
        for a in self.artifacts:
            if a.path == path:
                return a.data
        return None


@dataclass(eq=False)
class ContextInfo(Model):
    """A context as the server described it last."""

    id: str
    language: str
    cwd: Optional[str]
    #: It is the one that its language has in each sandbox, made when it is used first.
    default: bool
    #: idle, busy, starting or stopped.
    state: str
    output_limit: int
    result_limit: int
    created_at: Optional[datetime] = None


@dataclass(eq=False)
class Completions(Model):
    """What may replace the code from `start` to `end`, in characters."""

    matches: List[str]
    start: int
    end: int


@dataclass(eq=False)
class Completeness(Model):
    #: complete, incomplete or invalid.
    status: str
    #: With what the next line should begin.
    indent: Optional[str] = None


@dataclass(eq=False)
class Inspected(Model):
    """What a name is, by format."""

    found: bool
    mime: Dict[str, Any] = field(default_factory=dict)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return {"text/plain": str(self.mime.get("text/plain", ""))}


@dataclass(eq=False)
class PastCell(Model):
    execution_count: int
    code: str
