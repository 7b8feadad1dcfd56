"""The toolkit, by the calls that agents make, and with a model that only pretends."""
import asyncio

import pytest
from cloche import AsyncCloche
from cloche_langchain import ClocheToolkit
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

CALL = {"type": "tool_call", "id": "1"}


def by_name(toolkit):
    return {t.name: t for t in toolkit.get_tools()}


def test_tools_answer_and_report_mistakes_as_tool_messages(sandbox):
    tools = by_name(ClocheToolkit(sandbox=sandbox))
    assert list(tools) == ["run_command", "run_python", "read_file", "write_file", "edit_file", "list_files"]
    assert convert_to_openai_tool(tools["run_command"])["function"]["parameters"]["required"] == ["command"]
    done = tools["run_command"].invoke({**CALL, "name": "run_command", "args": {"command": "echo $((6*7))"}})
    assert isinstance(done, ToolMessage) and (done.content, done.status) == ("42", "success")
    bad = tools["read_file"].invoke({**CALL, "name": "read_file", "args": {"path": "/no/such"}})
    assert bad.status == "error" and "/no/such" in bad.content
    wrong = tools["read_file"].invoke({**CALL, "name": "read_file", "args": {"path": 7}})
    assert wrong.status == "error" and "must be string" in wrong.content
    assert asyncio.run(tools["run_python"].ainvoke({"code": "print(1)"})) == "1"


def test_an_asynchronous_sandbox_has_asynchronous_tools(daemon):
    async def run():
        async with AsyncCloche(daemon.url, daemon.token) as client, await client.sandboxes.create() as sandbox:
            tools = by_name(ClocheToolkit(sandbox=sandbox, only=["write_file", "run_command"]))
            await tools["write_file"].ainvoke({"path": "a", "content": "hello"})
            with pytest.raises(NotImplementedError):
                tools["run_command"].invoke({"command": "true"})
            return list(tools), await tools["run_command"].ainvoke({"command": "cat a"})

    assert asyncio.run(run()) == (["run_command", "write_file"], "hello")


def test_a_loop_around_a_chat_model(sandbox):
    """The calls and results that langchain-core itself makes of a model's answer."""
    tools = by_name(ClocheToolkit(sandbox=sandbox))
    script = iter([
        AIMessage("", tool_calls=[{**CALL, "name": "write_file", "args": {"path": "sum.py", "content": "print(sum(range(101)))"}}]),
        AIMessage("", tool_calls=[{**CALL, "id": "2", "name": "run_command", "args": {"command": "python3 sum.py"}}]),
        AIMessage("It is 5050."),
    ])
    model, messages = GenericFakeChatModel(messages=script), [HumanMessage("Sum up 1 to 100.")]
    while True:
        messages.append(model.invoke(messages))
        if not messages[-1].tool_calls:
            break
        messages += [tools[call["name"]].invoke(call) for call in messages[-1].tool_calls]
    assert [m.content for m in messages if isinstance(m, ToolMessage)][-1] == "5050"
    assert messages[-1].content == "It is 5050."
