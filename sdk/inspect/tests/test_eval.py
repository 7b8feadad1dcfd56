"""Evaluations by Inspect itself, with a model that only pretends."""
import json
import stat

import pytest
from cloche_inspect import ClocheConfig, ClocheSandboxEnvironment
from inspect_ai import Task, eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import bash, python
from inspect_ai.util import SandboxEnvironmentSpec, SandboxUnavailableError, sandbox


@scorer(metrics=[accuracy()])
def file_is_right():
    async def score(state, target):
        return Score(value=await sandbox().read_file("answer") == target.text)

    return score


@pytest.fixture
def run(environ, tmp_path):
    def run(task, *outputs, **options):
        for output in outputs:
            output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it is counted, with a table from the internet
        model = get_model("mockllm/model", custom_outputs=list(outputs))
        return evaluate(task, model=model, log_dir=str(tmp_path), display="none", **options)[0]

    return run


def call(tool, **arguments):
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


def test_an_evaluation_with_tools_files_and_setup(run, client):
    sample = Sample(
        input="Sum up the numbers.", target="5050", files={"numbers": "\n".join(map(str, range(101)))}, setup="echo ready > /tmp/setup"
    )
    task = Task(dataset=[sample], solver=[use_tools(bash(), python()), generate()], scorer=file_is_right(), sandbox="cloche")
    log = run(
        task,
        call("bash", command="cat /tmp/setup; wc -l < numbers"),
        call("python", code="print(sum(int(line) for line in open('numbers')), end='', file=open('answer', 'w'))"),
        ModelOutput.from_content("mockllm/model", "Done."),
    )
    assert log.status == "success", (log.error and log.error.traceback)
    assert log.results.scores[0].metrics["accuracy"].value == 1
    answers = [m.text.split() for m in log.samples[0].messages if m.role == "tool"]
    assert answers[0] == ["ready", "100"]
    assert not list(client.sandboxes.list())


def test_several_sandboxes_of_a_file_and_what_is_kept_is_cleaned_up(run, client, tmp_path):
    @solver
    def look():
        async def solve(state, generate):
            where = [await sandbox(name).exec(["sh", "-c", "echo $ROLE; pwd; ulimit -n"]) for name in ("default", "other")]
            state.metadata["said"] = [r.stdout.split() for r in where]
            state.metadata["connection"] = (await sandbox().connection(user="root")).command
            return state

        return solve

    config = tmp_path / "sandbox.json"
    config.write_text(json.dumps({"env": {"ROLE": "main"}, "others": {"other": {"env": {"ROLE": "second"}, "workdir": "/tmp/w"}}}))
    task = Task(dataset=[Sample(input="?")], solver=look(), sandbox=("cloche", str(config)))
    log = run(task, sandbox_cleanup=False)
    assert log.status == "success", (log.error and log.error.traceback)
    seen = log.samples[0].metadata
    assert [s[0] for s in seen["said"]] == ["main", "second"] and seen["said"][1][1] == "/tmp/w"
    kept = list(client.sandboxes.list(metadata={"made-by": "cloche-inspect"}))
    assert len(kept) == 2 and seen["connection"] in [f"cloche shell --user root {s.id}" for s in kept]
    import asyncio

    asyncio.run(ClocheSandboxEnvironment.cli_cleanup(None))
    assert not list(client.sandboxes.list())


def test_a_command_ends_with_its_sample_and_a_lost_sandbox_is_unavailable(run, client):
    @solver
    def hang():
        async def solve(state, generate):
            try:
                await sandbox().exec(["sh", "-c", "echo begun; exec sleep 1000"])
            finally:
                state.metadata["ended"] = True
            return state

        return solve

    @solver
    def lose():
        async def solve(state, generate):
            client.sandboxes.delete(sandbox().as_type(ClocheSandboxEnvironment).sandbox.id)
            with pytest.raises(SandboxUnavailableError):
                await sandbox().exec(["true"])
            with pytest.raises(SandboxUnavailableError):
                await sandbox().read_file("file")
            return state

        return solve

    log = run(Task(dataset=[Sample(input="?")], solver=hang(), sandbox="cloche", time_limit=1))
    assert log.status == "success" and log.samples[0].limit.type == "time"
    log = run(Task(dataset=[Sample(input="?")], solver=lose(), sandbox="cloche"))
    assert log.status == "success", (log.error and log.error.traceback)
    assert not list(client.sandboxes.list())


@pytest.mark.asyncio
async def test_files_keep_their_mode_and_commands_say_why_they_ended(environ):
    config = SandboxEnvironmentSpec("cloche", ClocheConfig(memory="256M")).config
    made = await ClocheSandboxEnvironment.sample_init("t", config, {})
    try:
        box = made["default"].as_type(ClocheSandboxEnvironment)
        await box.write_file("run", "#!/bin/sh\necho old\n")
        await box.exec(["chmod", "755", "run"])
        await box.write_file("run", "#!/bin/sh\necho new\n")
        assert (await box.exec(["./run"])).stdout == "new\n"
        assert stat.S_IMODE(int((await box.sandbox.files.stat("run")).mode, 8)) == 0o755
        eaten = await box.exec(["python3", "-c", "x = bytearray(600 << 20)"])
        assert (eaten.success, eaten.returncode) == (False, 137) and "memory" in eaten.stderr
        assert (await box.exec(["no-such-program"])).returncode == 127
    finally:
        await ClocheSandboxEnvironment.sample_cleanup("t", config, made, True)
