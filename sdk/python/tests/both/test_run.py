"""Code that is run once, in a sandbox of its own."""
import pytest
from cloche import AsyncCloche, CodeOutput, InvalidError, NotFoundError, RunResult


@pytest.mark.each_python
async def test_code_is_run_and_gives_its_results_and_files(client):
    assert isinstance(client, AsyncCloche)
    x = await client.run("print(open('in.bin', 'rb').read())\nopen('out.txt', 'w').write('made')\n6 * 7", files={"in.bin": b"\xff"}, artifacts=True)
    assert isinstance(x, RunResult)
    assert (x.ok, x.text, x.stdout, x.context) == (True, "42", "b'\\xff'\n", "")
    assert [(a.path, a.size, a.mime, a.data) for a in x.artifacts] == [("out.txt", 4, "text/plain", b"made")]
    assert x.artifact("out.txt") == b"made" and x.artifact("none") is None and x.artifacts_dropped == 0
    failed = await client.run("false", language="bash", limits={"memory": "128M"})
    assert failed.error.name == "ExitStatus" and failed.artifacts == []
    with pytest.raises(InvalidError):
        await client.run(5)
    with pytest.raises(NotFoundError):
        await client.run("1", image="none-such")


async def test_its_output_comes_while_it_runs(client):
    seen = []
    x = await client.run("print('a')\n[1]", on_stdout=seen.append, on_result=lambda r: seen.append(r.json))
    assert seen == ["a\n", [1]] and x.text == "[1]" and isinstance(x, RunResult)
    async with client.run_stream("print('a')\nopen('b', 'w').write('c')", artifacts=["b"]) as events:
        assert [e.text async for e in events if isinstance(e, CodeOutput)] == ["a\n"]
    assert events.execution.artifact("b") == b"c"
