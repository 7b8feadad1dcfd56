"""Agents of the SDK, with its own scripted model."""
import asyncio
import itertools
import json

import pytest
from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from cloche import AsyncCloche, ClocheError
from cloche_openai_agents import sandbox_tools

NUMBERS = itertools.count()
QUIET = RunConfig(tracing_disabled=True)


def call(name, **arguments):
    return [function_call(name, json.dumps(arguments), call_id=f"{name}-{next(NUMBERS)}")]


def outputs(result):
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


def test_an_agent_writes_runs_and_is_told_its_mistakes(sandbox):
    model = ScriptedModel([
        call("write_file", path="a.py", content="print(6 * 7)"),
        call("run_command", command="python3 a.py"),
        call("run_command", cmd="ls"),
        [assistant_message("42")],
    ])
    agent = Agent(name="coder", model=model, tools=sandbox_tools(sandbox))
    result = Runner.run_sync(agent, "Compute it.", run_config=QUIET)
    assert result.final_output == "42"
    assert outputs(result)[1] == "42" and "no argument 'cmd'" in outputs(result)[2]


def test_an_asynchronous_sandbox_and_its_end(daemon):
    async def run():
        async with AsyncCloche(daemon.url, daemon.token) as client:
            sandbox = await client.sandboxes.create()
            tools = sandbox_tools(sandbox, only=["run_python"])
            steps = [call("run_python", code="print(1)"), [assistant_message("done")]]
            result = await Runner.run(Agent(name="a", model=ScriptedModel(steps), tools=tools), "?", run_config=QUIET)
            await sandbox.delete()
            gone = Agent(name="a", model=ScriptedModel([call("run_python", code="print(1)")]), tools=tools)
            with pytest.raises(Exception) as raised:
                await Runner.run(gone, "?", run_config=QUIET)
            return [t.name for t in tools], outputs(result), raised.value

    names, said, error = asyncio.run(run())
    assert (names, said) == (["run_python"], ["1"])
    assert isinstance(error, ClocheError) or isinstance(error.__cause__, ClocheError)
