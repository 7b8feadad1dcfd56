"""Sessions of the SDK in real sandboxes: workspace, users, snapshots, and an agent of its own kind."""
import io
import json
import pathlib

import pytest
from agents import RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.sandbox.manifest import Manifest
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.testing import ScriptedModel, assistant_message, function_call
from cloche import AsyncCloche
from cloche_openai_agents import ClocheSandboxClient, ClocheSandboxOptions

MANIFEST = Manifest(entries={"notes/a.txt": File(content=b"from the manifest")})


@pytest.fixture
async def sandboxes(daemon):
    async with AsyncCloche(daemon.url, daemon.token) as client:
        yield ClocheSandboxClient(client)
        assert not [s async for s in client.sandboxes.list()]


async def test_commands_and_files_of_a_workspace(sandboxes):
    options = ClocheSandboxOptions(create={"memory": "256M"})
    async with await sandboxes.create(manifest=MANIFEST, options=options) as session:
        assert await session.running()
        assert (await session.exec("cat notes/a.txt; pwd")).stdout == b"from the manifest/workspace\n"
        assert (await session.exec("id -un", user="root")).stdout == b"root\n"
        assert (await session.exec("no-such-program", shell=False)).exit_code == 127
        assert (await session.exec("head -c 3 /dev/zero; exit 3")).stdout == bytes(3)
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60", timeout=0.5)
        await session.write(pathlib.Path("new/b"), io.BytesIO(b"\0\xff"))
        assert (await session.read(pathlib.Path("new/b"))).read() == b"\0\xff"
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(pathlib.Path("none"))
        await session.exec("ln -s /etc/passwd out")
        with pytest.raises(Exception, match="out"):
            await session.read(pathlib.Path("out"))
        assert {pathlib.PurePath(f.path).name for f in await session.ls(".")} >= {"notes", "new"}


async def test_a_session_resumes_from_its_snapshot(sandboxes, tmp_path):
    session = await sandboxes.create(manifest=MANIFEST, snapshot=LocalSnapshotSpec(base_path=tmp_path), options=ClocheSandboxOptions())
    async with session:
        await session.exec("echo kept > kept; chmod 750 kept; ln -s kept link")
        saved = json.dumps(sandboxes.serialize_session_state(session.state))
    async with await sandboxes.resume(sandboxes.deserialize_session_state(json.loads(saved))) as again:
        assert (await again.exec("cat link notes/a.txt; stat -c %a kept")).stdout == b"kept\nfrom the manifest750\n"


async def test_a_session_whose_sandbox_is_there_goes_on_in_it(sandboxes):
    session = await sandboxes.create(options=ClocheSandboxOptions())
    await session.start()
    await session.exec("echo here > here")
    saved = sandboxes.serialize_session_state(session.state)
    async with await sandboxes.resume(sandboxes.deserialize_session_state(saved)) as again:
        assert (await again.exec("cat here")).stdout == b"here\n"


async def test_a_sandbox_agent_works_in_it(sandboxes):
    model = ScriptedModel([
        [function_call("exec_command", json.dumps({"cmd": "cat notes/a.txt"}), call_id="1")],
        [assistant_message("It says: from the manifest")],
    ])
    agent = SandboxAgent(name="reader", model=model, default_manifest=MANIFEST)
    config = RunConfig(tracing_disabled=True, sandbox=SandboxRunConfig(client=sandboxes, options=ClocheSandboxOptions()))
    result = await Runner.run(agent, "Read the notes.", run_config=config)
    answers = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert "from the manifest" in str(answers[0]) and result.final_output.endswith("from the manifest")
