"""The tools that models are given: definitions, calls, and mistakes that models make."""
import pytest
from cloche import AsyncCloche, AsyncTools, InvalidError, LostError, NotFoundError

NAMES = ["run_command", "run_python", "read_file", "write_file", "edit_file", "list_files"]


def test_definitions_have_the_shapes_of_the_apis(sandbox):
    tools = AsyncTools(sandbox)
    assert [d.name for d in tools.definitions] == NAMES
    assert [t["input_schema"]["type"] for t in tools.anthropic()] == ["object"] * len(NAMES)
    assert [t["function"]["name"] for t in tools.openai_chat()] == [t["name"] for t in tools.openai()] == NAMES
    assert [d.name for d in AsyncTools(sandbox, only=["read_file", "run_command"]).definitions] == ["run_command", "read_file"]
    with pytest.raises(InvalidError, match="no tool 'fly'"):
        AsyncTools(sandbox, only=["fly"])


async def test_commands_and_code_answer_with_what_a_model_needs(sandbox):
    tools = AsyncTools(sandbox, timeout=20, max_text=2000)
    assert str(await tools.call("run_command", {"command": "echo out; echo err >&2; exit 3"})) == "out\n[stderr]\nerr\n[exit code 3]"
    assert str(await tools.call("run_command", '{"command": "true"}')) == "[no output]"
    assert (await tools.call("run_python", {"code": "print(6 * 7)", "timeout": None})).text == "42"
    late = await tools.call("run_command", {"command": "echo begun; sleep 60", "timeout": 1})
    assert late.text.startswith("begun\n[") and not late.is_error
    failed = await tools.call("run_python", {"code": "1/0"})
    assert "ZeroDivisionError" in failed.text and failed.text.endswith("[exit code 1]")
    long = await tools.call("run_command", {"command": "seq 100000"})
    assert len(long.text) < 2200 and "left out" in long.text and long.text.startswith("1\n2\n") and long.text.endswith("100000")


async def test_files_are_written_edited_read_by_lines_and_listed(sandbox):
    tools = AsyncTools(sandbox)
    lines = "".join(f"line {i}\n" for i in range(1, 11))
    assert not (await tools.call("write_file", {"path": "d/a.txt", "content": lines})).is_error
    shown = await tools.call("read_file", {"path": "d/a.txt", "offset": 9})
    assert shown.text == "     9\tline 9\n    10\tline 10"
    assert (await tools.call("read_file", {"path": "d/a.txt", "limit": 1})).text == "     1\tline 1\n[lines 2 to 10 follow]"
    twice = await tools.call("edit_file", {"path": "d/a.txt", "old": "line 1", "new": "x"})
    assert twice.is_error and "2 times" in twice.text
    assert (await tools.call("edit_file", {"path": "d/a.txt", "old": "line 1\n", "new": "\u00e9\n"})).text == "d/a.txt: 1 replaced"
    assert (await tools.call("edit_file", {"path": "d/a.txt", "old": "line", "new": "row", "replace_all": True})).text.endswith("9 replaced")
    assert (await sandbox.files.read_text("d/a.txt")).startswith("\u00e9\nrow 2\n")
    await sandbox.files.write("d/bin", b"\xff\0")
    await sandbox.files.write("d/none", b"")
    assert "not UTF-8" in (await tools.call("read_file", {"path": "d/bin"})).text
    assert (await tools.call("read_file", {"path": "d/none"})).text == "[the file is empty]"
    listed = (await tools.call("list_files", {"path": "d"})).text.split("\n")
    assert listed == ["d/a.txt 58", "d/bin 2", "d/none 0"]
    assert "./d/" in (await tools.call("list_files", {"path": "."})).text.split("\n")


async def test_mistakes_of_a_model_are_answers_that_say_what_is_wrong(sandbox):
    tools = AsyncTools(sandbox, only=["read_file", "run_command"])
    for name, arguments, word in (
        ("fly", {}, "one of: run_command, read_file"),
        ("write_file", {"path": "a", "content": ""}, "one of: run_command, read_file"),
        ("read_file", "{", "not JSON"),
        ("read_file", "[]", "must be an object"),
        ("read_file", {"file": "a"}, "no argument 'file'; one of: path, offset, limit"),
        ("read_file", {"path": 7}, "path must be string, got 7"),
        ("read_file", {"path": "a", "limit": 0}, "integer of at least 1, got 0"),
        ("read_file", {"path": "a", "limit": True}, "integer of at least 1, got True"),
        ("run_command", {}, "needs 'command'"),
        ("read_file", {"path": "/no/such"}, "/no/such"),
        ("read_file", {"path": "/etc"}, "/etc"),
    ):
        answer = await tools.call(name, arguments)
        assert answer.is_error and answer.text.startswith("error: ") and word in answer.text, answer


async def test_a_sandbox_that_is_gone_is_an_exception(client):
    assert isinstance(client, AsyncCloche)
    gone = await client.sandboxes.create()
    await gone.delete()
    with pytest.raises((NotFoundError, LostError)):
        await AsyncTools(gone).call("run_command", {"command": "true"})
