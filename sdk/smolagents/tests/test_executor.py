"""The executor, by smolagents' own cases and by an agent whose model only pretends."""
import io
import pathlib
import subprocess
import sys
import tarfile
from importlib.metadata import version

import pytest
from cloche_smolagents import ClocheExecutor
from rich.console import Console
from smolagents import CodeAgent, Tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.utils import AgentError


def logger():
    return AgentLogger(LogLevel.INFO, Console(force_terminal=False, file=io.StringIO()))


def cases(folder):
    """smolagents' test module out of its source. It lacks a module of helpers, for which a stub is enough."""
    source = f"smolagents-{version('smolagents')}"
    package = folder / "smolagents_cases"
    if not (package / "test_remote_executors.py").exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder,
             source.replace("-", "==")], check=True)
        package.mkdir(exist_ok=True)
        with tarfile.open(folder / f"{source}.tar.gz") as archive:
            text = archive.extractfile(f"{source}/tests/test_remote_executors.py").read()
        (package / "utils").mkdir(exist_ok=True)
        (package / "utils" / "__init__.py").touch()
        (package / "utils" / "markers.py").write_text("def require_run_all(case):\n    return case\n")
        (package / "__init__.py").touch()
        (package / "test_remote_executors.py").write_bytes(text)
    sys.path.insert(0, str(folder))
    import smolagents_cases.test_remote_executors as module

    return module


class TestCases(cases(pathlib.Path(sys.prefix)).CommonDockerExecutorIntegration):
    @pytest.fixture
    def custom_executor(self, environ):
        with ClocheExecutor([], logger(), memory="1G") as executor:
            yield executor


class Scripted(Model):
    def __init__(self, *cells):
        super().__init__()
        self.cells, self.seen = list(cells), []

    def generate(self, messages, **_):
        self.seen.append(messages)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.cells.pop(0)}\n</code>")


class Triple(Tool):
    name, description, output_type = "triple", "Three times a number.", "integer"
    inputs = {"number": {"type": "integer", "description": "The number."}}

    def forward(self, number: int) -> int:
        return 3 * number


def said(model):
    return str(model.seen[-1])


def test_an_agent_keeps_its_variables_and_sees_what_failed(sandbox):
    model = Scripted("x = triple(14)\nprint('x is', x)", "x / 0", "final_answer({'answer': x, 'given': given})")
    agent = CodeAgent(tools=[Triple()], model=model, executor=ClocheExecutor(sandbox=sandbox), verbosity_level=0)
    assert agent.run("Triple 14.", additional_args={"given": (1, 2)}) == {"answer": 42, "given": (1, 2)}
    assert "x is 42" in said(model) and "ZeroDivisionError" in said(model)
    model.cells = ["final_answer(triple(x))"]
    assert agent.run("Again.") == 126
    agent.cleanup()
    sandbox.refresh()  # it was not the executor's to delete


def test_tools_are_there_again_after_the_interpreter_ended(environ, client):
    model = Scripted("import os; os._exit(3)", "final_answer(triple(2))")
    with ClocheExecutor(memory="512M") as executor:
        agent = CodeAgent(tools=[Triple()], model=model, executor=executor, verbosity_level=0)
        assert agent.run("?") == 6
        assert "variables and imports of earlier code are lost" in said(model)
    assert not list(client.sandboxes.list())


def test_values_timeouts_and_large_answers(sandbox):
    executor = ClocheExecutor([], logger(), sandbox=sandbox, timeout=1)
    assert executor("[1, 2]").output == "[1, 2]"
    assert executor("import PIL.Image\nPIL.Image.new('RGB', (3, 2))").output.size == (3, 2)
    with pytest.raises(AgentError, match="timeout"):
        executor("kept = 5\nwhile True: pass")
    assert executor("kept").output == "5"
    from smolagents import FinalAnswerTool

    executor.send_tools({"final_answer": FinalAnswerTool()})
    done = executor("final_answer('x' * 3_000_000)")
    assert done.is_final_answer and done.output == "x" * 3_000_000
    with pytest.raises(ValueError, match="memory"):
        ClocheExecutor(sandbox=sandbox, memory="1G")
