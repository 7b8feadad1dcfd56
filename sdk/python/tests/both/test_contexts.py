"""Code in contexts: its results and output, streams, callbacks, interrupts, what editors ask."""
import base64

import pytest
from cloche import (
    AsyncCloche,
    AsyncSandbox,
    CodeError,
    CodeOutput,
    CodeResult,
    ConflictError,
    InvalidError,
    NotFoundError,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOWN = f"""
class Shown:
    def _repr_html_(self): return "<b onclick=alert(1)>x</b><script>bad()</script>"
    def _repr_png_(self): return __import__("base64").b64decode("{PIXEL}")
    def __repr__(self): return "Shown()"
Shown()
"""


@pytest.mark.each_python
async def test_code_keeps_its_variables_and_gives_its_results(sandbox):
    x = await sandbox.run_code("n = 40\nprint('out')\n[1, n]")
    assert (x.ok, x.text, x.stdout, x.error, x.execution_count) == (True, "[1, 40]", "out\n", None, 1)
    assert x.result.json == [1, 40] and x.result.is_main and x.context == "python" and x.usage.wall_ms >= 0
    failed = await sandbox.run_code("n + 2\n1 / 0")
    assert not failed.ok and failed.error.name == "ZeroDivisionError" and failed.verdict.cause == "error" and failed.text is None
    wrong = await sandbox.run_code("n = = 1")
    assert wrong.error.name == "SyntaxError" and (wrong.error.line, wrong.error.column) == (1, 5)
    assert (await sandbox.run_code("n + 2")).text == "42"
    assert (await sandbox.run_code("const a = await Promise.resolve(3); a", language="js")).text == "3"
    assert (await sandbox.run_code("cd /usr && pwd", language="bash", env={"X": "1"})).stdout == "/usr\n"
    names = [c.id for c in await sandbox.contexts.list()]
    assert names == ["python", "javascript", "shell"]
    with pytest.raises(InvalidError):
        await sandbox.run_code({"code": "1"})
    with pytest.raises(NotFoundError):
        await sandbox.run_code("1", language="cobol")


async def test_results_show_themselves_without_scripts(sandbox):
    x = await sandbox.run_code(SHOWN)
    r = x.result
    assert r.png == base64.b64decode(PIXEL) and "<script>" in r.html and r.text == "Shown()"
    bundle = r._repr_mimebundle_()
    assert bundle["image/png"].strip() == PIXEL and 'sandbox=""' in bundle["text/html"] and "<script" not in bundle["text/html"]
    assert r.trusted()._repr_mimebundle_()["text/html"] == r.html
    whole = x._repr_mimebundle_()
    assert "<script" not in whole["text/html"] and whole["text/plain"] == "Shown()"
    drawn = await sandbox.run_code("display({'image/svg+xml': '<svg onload=\"x()\"/>', 'text/markdown': '<i>'}, raw=True)")
    bundle = drawn.results[0]._repr_mimebundle_()
    assert "onload" not in bundle["text/html"] and "text/markdown" not in bundle and "image/svg+xml" not in bundle


@pytest.mark.each_python
async def test_events_and_callbacks_come_while_it_runs(sandbox):
    async with await sandbox.contexts.create(cwd="/tmp", env={"A": "1"}) as context:
        seen = []
        async with context.stream("import os\nprint(os.environ['A'])\ndisplay(1)\nos.getcwd()") as events:
            async for event in events:
                seen.append(event)
        assert [type(e) for e in seen] == [CodeOutput, CodeResult, CodeResult] and seen[0].text == "1\n"
        assert events.execution.text == "'/tmp'" and events.execution.stdout == "1\n" and len(events.execution.results) == 2
        said = []
        x = await context.execute(
            "import sys\nprint('o'); print('e', file=sys.stderr); 5\n1/0",
            on_stdout=said.append,
            on_stderr=said.append,
            on_error=lambda e: said.append(e.name),
        )
        assert sorted(said) == ["ZeroDivisionError", "e\n", "o\n"] and isinstance(x.error, CodeError)
        # One that is left is interrupted, and leaves the context as it was.
        async with context.stream("kept = 7\nprint('begun')\nimport time; time.sleep(300)") as events:
            async for event in events:
                break
        assert (await context.execute("kept")).text == "7"
    with pytest.raises(NotFoundError):
        await context.execute("kept")


async def test_time_interrupts_restarts_and_questions(sandbox):
    context = await sandbox.contexts.create("python")
    late = await context.execute("import time\nname_of_mine = 1\ntime.sleep(60)", timeout=0.5)
    assert (late.verdict.cause, late.verdict.state, late.error.name) == ("timeout", "kept", "KeyboardInterrupt")
    assert "timeout" in late._repr_mimebundle_()["text/plain"]
    assert await context.interrupt() is False
    done = await context.complete("name_of")
    assert (done.matches, done.start, done.end) == (["name_of_mine"], 0, 7)
    assert (await context.is_complete("for x in y:")).status == "incomplete"
    assert (await context.inspect("len")).found and not (await context.inspect("nothing_of_it")).found
    assert [c.code for c in await context.history(last=1)] == ["import time\nname_of_mine = 1\ntime.sleep(60)"]
    await context.restart()
    assert (await context.execute("name_of_mine")).error.name == "NameError"
    await context.refresh()
    assert (context.state, context.default, context.language) == ("idle", False, "python")
    assert (await sandbox.contexts.get(context.id)).id == context.id
    await context.delete()
    limited = await sandbox.contexts.create(restrict={"imports": ["subprocess"]}, output_limit="1K")
    assert (await limited.execute("import subprocess")).error.name == "ImportError"
    much = await limited.execute("print('x' * 100000)")
    assert len(much.stdout) == 1024 and much.truncated.output_dropped > 90000


async def test_large_results_come_in_events(sandbox):
    context = await sandbox.contexts.create()
    async with context.stream("display({'text/html': 'x' * 9_000_000, 'text/plain': 'y' * 2_000_000}, raw=True)") as events:
        async for event in events:
            assert isinstance(event, CodeResult) and len(event.html) == 9_000_000
            assert len(event.text) == 1 << 20 and event.truncated == {"text/plain": 2_000_000}


assert AsyncCloche and AsyncSandbox and ConflictError
