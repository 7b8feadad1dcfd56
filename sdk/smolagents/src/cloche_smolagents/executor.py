"""The executor: each piece of code is a cell of one context of the sandbox's code interpreter."""

from __future__ import annotations

import io
import uuid
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type

import PIL.Image
from cloche import Cloche, Execution, Sandbox
from cloche.options import Duration
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.tools import Tool
from smolagents.utils import AgentError

LONG = 60_000  # characters of an error's value, which has at most 64 KiB
# A requirement with a version is for pip to look at. The distribution's Python may be marked as managed by the distribution;
# this is about the user's own packages in a sandbox.
MISSING = """
import sys
from importlib import metadata
for name in sys.argv[1:]:
    try:
        metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        print(name)
"""
INSTALL = """
import os, subprocess, sys
environment = {**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1"}
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet", *sys.argv[1:]], env=environment))
"""


class ClocheExecutor(RemotePythonExecutor):
    """Runs code in `sandbox`, or in one of its own, which it makes with the other options and deletes in `cleanup`.

    `timeout` ends each piece of code; variables stay. Packages (`additional_imports`, requirements of tools) are installed by
    pip in the sandbox, whose network must allow that.
    """

    def __init__(
        self,
        additional_imports: Sequence[str] = (),
        logger: Optional[AgentLogger] = None,
        allow_pickle: bool = False,
        *,
        sandbox: Optional[Sandbox] = None,
        timeout: Duration = "5m",
        **create: Any,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR), allow_pickle)
        if sandbox is not None and create:
            raise ValueError(f"the sandbox is made already: {', '.join(create)} cannot be set")
        self._timeout = timeout
        self._sent: Dict[str, Any] = {"tools": {}, "variables": {}}
        self._state_lost = False
        self._client = None if sandbox is not None else Cloche()
        self._sandbox = sandbox
        if self._client is not None:
            self._sandbox = self._client.sandboxes.create(**create)
        try:
            self.installed_packages = self.install_packages(self.additional_imports)
        except BaseException:
            self.cleanup()
            raise

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the executor is closed")
        return self._sandbox

    def send_tools(self, tools: Dict[str, Tool]) -> None:
        super().send_tools(tools)
        self._sent["tools"] = tools

    def send_variables(self, variables: Dict[str, Any]) -> None:
        super().send_variables(variables)
        self._sent["variables"] = {**self._sent["variables"], **variables}

    def install_packages(self, additional_imports: List[str]) -> List[str]:
        """Installs those that the image lacks."""
        if additional_imports:
            missing = self._python(MISSING, *additional_imports).split()
            if missing:
                self.logger.log(self._python(INSTALL, *missing))
        return additional_imports

    def _python(self, program: str, *arguments: str) -> str:
        r = self.sandbox.exec(["python3", "-c", program, *arguments], timeout=self._timeout)
        if not r.ok:
            raise AgentError(f"packages for {' '.join(arguments)}: {r.stderr or r.verdict.detail}", self.logger)
        return r.stdout

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        if self._state_lost:
            # The interpreter has ended in the code before. The new one has no variables: it gets at least what was sent.
            self._state_lost = False
            super().send_variables(self._sent["variables"])
            super().send_tools(self._sent["tools"])
        done = self.sandbox.run_code(code, timeout=self._timeout)
        self._state_lost = done.verdict.state == "lost"
        logs = done.stdout + done.stderr
        if done.error is not None and done.error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(self._whole(done.error.value), self.allow_pickle)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        if not done.ok:
            raise AgentError(f"{logs}\n{_failure(done)}".lstrip("\n"), self.logger)
        return CodeOutput(output=_value(done), logs=logs, is_final_answer=False)

    def _whole(self, value: str) -> str:
        """The text of the final answer: an error's value has a bound, so a long one comes as a file."""
        if len(value) < LONG:
            return value
        path = f"/tmp/.final-answer-{uuid.uuid4().hex}"
        saved = self.sandbox.run_code(f"open({path!r}, 'w').write(__import__('sys').last_value.value);", timeout=self._timeout)
        if not saved.ok:
            raise AgentError(f"the final answer cannot be read:\n{_failure(saved)}", self.logger)
        try:
            return self.sandbox.files.read_text(path)
        finally:
            self.sandbox.files.remove(path)

    def _patch_final_answer_with_exception(self, final_answer_tool: Tool) -> None:
        if not hasattr(final_answer_tool, "_forward"):  # a second run of an agent comes with the tool that the first has patched
            super()._patch_final_answer_with_exception(final_answer_tool)

    def cleanup(self) -> None:
        """Deletes the sandbox if this executor has made it."""
        sandbox, client = self._sandbox, self._client
        self._sandbox = self._client = None
        if client is not None:
            try:
                if sandbox is not None:
                    sandbox.delete()
            finally:
                client.close()

    delete = cleanup

    def __enter__(self) -> ClocheExecutor:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.cleanup()


def _failure(done: Execution) -> str:
    """What the model reads about code that failed."""
    text = done.error.traceback or f"{done.error.name}: {done.error.value}" if done.error else ""
    if done.verdict.cause != "error":  # timeout, oom, …: not of the code's own doing
        text += f"\n{done.verdict.cause}: {done.verdict.detail}"
    if done.verdict.state == "lost":
        text += "\nThe interpreter ended: variables and imports of earlier code are lost."
    return text.strip("\n")


def _value(done: Execution) -> Any:
    """The value of the last expression: an image as an image, others as their text."""
    result = done.result
    if result is None:
        return None
    picture = result.png or result.jpeg
    return PIL.Image.open(io.BytesIO(picture)) if picture else result.text
