"""Checkpoints, forks, templates, pools, secrets, network, ports."""
import time

import pytest
from cloche import AsyncCloche, ConflictError, InvalidError, NotFoundError, RefusedError, UnauthorizedError


async def test_back_in_place_any_number_of_times(sandbox):
    await sandbox.exec("echo one > data")
    c = await sandbox.checkpoint("clean", label="one file", metadata={"user_id": "7"})
    assert (c.name, c.label, c.sandbox, c.memory, c.state, c.metadata) == ("clean", "one file", sandbox.id, False, "made", {"user_id": "7"})
    assert not c.extra
    for target in ("clean", c, c.id):
        await sandbox.exec("rm data; touch dirt")
        await sandbox.restore(target)
        assert (await sandbox.exec("cat data; ls")).stdout == "one\ndata\n"
    assert sandbox.restored.checkpoint == c.id
    with pytest.raises(ConflictError):
        await sandbox.checkpoint("clean")
    with pytest.raises(NotFoundError):
        await sandbox.restore("never")


async def test_new_ones_with_what_should_differ(client, sandbox):
    await sandbox.exec("echo one > data")
    c = await sandbox.checkpoint("base")
    made = [await sandbox.restore_as(c, "copy-py")]
    made.append(await client.checkpoints.restore({"sandbox": sandbox.id, "name": "base"}, name="other-py", cpus=0.5, env={"A": "b"}))
    assert (made[1].cpus, (await made[1].exec("cat data; echo $A")).stdout) == (0.5, "one\nb\n")
    made += await client.checkpoints.restore_many(c, 3, timeout=600)
    made += await client.checkpoints.restore_many(c, names=["n1-py", "n2-py"])
    assert [s.name for s in made[-2:]] == ["n1-py", "n2-py"] and made[0].name == "copy-py"
    made.append(await client.sandboxes.create(checkpoint=c.id, memory="64M"))
    assert made[-1].memory == 64 << 20 and made[-1].from_checkpoint == c.id
    for s in made:
        assert (await s.exec("cat data")).stdout == "one\n"
        await s.delete()


async def test_checkpoints_are_found_changed_and_deleted(client, sandbox):
    made = [await sandbox.checkpoint(f"c{i}", metadata={"odd": str(i % 2)}) for i in (1, 2, 3)]
    a, b, c = [m.id for m in made]
    assert [x.id async for x in client.checkpoints.list(sandbox=sandbox.id, page_size=2)] == [c, b, a]
    assert [x.id async for x in client.checkpoints.list(sandbox=sandbox.id, metadata={"odd": "1"})] == [c, a]
    assert [x.id for x in await sandbox.checkpoints()] == [c, b, a]
    changed = await client.checkpoints.update(a, name="first", label="the first")
    assert (changed.name, changed.label) == ("first", "the first")
    assert (await client.checkpoints.get({"sandbox": sandbox.id, "name": "first"})).id == a
    await client.checkpoints.delete(b)
    with pytest.raises(NotFoundError):
        await client.checkpoints.get(b)
    await client.checkpoints.delete(made[2])


async def test_forks_are_independent_and_bring_back_their_work(client, sandbox):
    await sandbox.exec("echo one > data; echo old > gone")
    (fork,) = await sandbox.fork()
    named = (await sandbox.fork(names=["fork-py"], memory=False))[0]
    assert named.name == "fork-py"
    await fork.exec("echo two > data; rm gone; echo new > more")
    done = await sandbox.promote(fork)
    assert (done.added, done.changed, done.removed, done.conflicts) == (1, 1, 1, [])
    assert (await sandbox.exec("cat data more; ls")).stdout == "two\nnew\ndata\nmore\n"
    await named.exec("echo theirs > data")
    with pytest.raises(ConflictError) as e:
        await sandbox.promote(named)
    assert len(e.value.details["conflicts"]) == 1
    assert (await sandbox.promote(named.id, force=True)).conflicts == e.value.details["conflicts"]
    assert (await sandbox.exec("cat data")).stdout == "theirs\n"
    await fork.delete()
    await named.delete()


async def test_changes_are_listed_and_shown(client, sandbox):
    await sandbox.exec("echo one > data; echo kept > kept")
    c = await sandbox.checkpoint()
    await sandbox.exec("echo two > data; rm kept; mkdir new; touch $(printf 'b\\377')")
    d = await sandbox.diff({"checkpoint": c.id}, text=True)
    assert (d.added, d.changed, d.removed, d.truncated) == (2, 1, 1, False)
    found = {e.path.rsplit("/", 1)[1]: e for e in d.entries}
    assert "-one\n+two" in found["data"].text and found["kept"].change == "removed"
    assert found["b\ufffd"].path_bytes.endswith(b"/b\xff")
    bundle = d._repr_mimebundle_()
    assert "+two" in bundle["text/plain"] and "+two" in bundle["text/html"]
    assert (await client.checkpoints.diff(c)).added > 0
    assert (await client.checkpoints.diff(c, {"sandbox": sandbox.id})).removed == 2


async def test_a_checkpoint_is_carried_as_one_file(client, sandbox):
    await sandbox.exec("head -c 300000 /dev/urandom > data; sha256sum data > sum")
    c = await sandbox.checkpoint("golden", label="to go")
    data = await (await client.checkpoints.export(c)).read_all()
    piped = await client.checkpoints.import_file(await client.checkpoints.export(c), name="piped")
    whole = await client.checkpoints.import_file(data, name="whole", label="here")
    assert (piped.label, whole.label) == ("to go", "here")
    copy = await client.checkpoints.restore(whole)
    assert (await copy.exec("sha256sum --status -c sum")).ok
    await copy.delete()
    for bad in (data[: len(data) // 2], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]):
        with pytest.raises(RefusedError):
            await client.checkpoints.import_file(bad)
    for x in (piped, whole):
        await client.checkpoints.delete(x)


async def test_a_template_says_what_a_create_gets(client):
    t = await client.templates.set(
        "tool", memory="64M", env={"COLOUR": "red"}, start={"shell": "echo begun > /tmp/begun"}, description="a tool"
    )
    assert (t.name, t.version, t.description, t.warm) == ("tool", 1, "a tool", None) and not t.extra
    async with await client.sandboxes.create(template="tool", env={"SIZE": "big"}) as s:
        assert (s.memory, s.template, s.pooled) == (64 << 20, "tool", False)
        r = await s.exec("echo $COLOUR $SIZE; until cat /tmp/begun 2>/dev/null; do sleep 0.01; done")
        assert r.stdout == "red big\nbegun\n"
    assert (await client.templates.set("tool", memory="96M")).version == 2
    assert "tool" in [x.name for x in await client.templates.list()] and (await client.templates.get("tool")).version == 2
    pool = await client.pools.set("ready", template="tool", min=1, max=4)
    assert (pool.template, pool.min, pool.max) == ("tool", 1, 4)
    end = time.monotonic() + 20
    while (await client.pools.get("ready")).ready < 1:
        assert time.monotonic() < end, await client.pools.list()
    async with await client.sandboxes.create(template="tool") as s:
        assert s.pooled
    with pytest.raises(ConflictError):
        await client.templates.delete("tool")
    await client.pools.delete("ready")
    await client.templates.delete("tool")
    with pytest.raises(NotFoundError):
        await client.sandboxes.create(template="tool")


async def test_warm_code_has_run_before_the_sandbox_exists(client):
    t = await client.templates.set("warm", warm={"python": "import json, decimal"})
    assert t.warm["ready"] is True
    async with await client.sandboxes.create(template="warm") as s:
        r = await s.exec({"code": 'import sys\nprint("decimal" in sys.modules)\nprint("oops", file=sys.stderr)\nsys.exit(3)'})
        assert (r.stdout, r.stderr, r.exit_code) == ("True\n", "oops\n", 3)
        assert (await (await s.start({"code": "for i in range(3): print(i)"})).wait()).stdout == "0\n1\n2\n"
    with pytest.raises(RefusedError, match="nothing_of_the_sort"):
        await client.templates.set("broken", warm={"python": "import nothing_of_the_sort"})
    await client.templates.delete("warm")


async def test_a_secret_is_given_and_never_read(client):
    s = await client.secrets.set("KEY", "not-to-be-seen", description="a key")
    assert (s.name, s.version, s.size, s.description) == ("KEY", 1, 14, "a key") and not s.extra
    async with await client.sandboxes.create(
        secrets=[{"name": "KEY", "as": "env", "env": "MY_KEY"}, {"name": "KEY", "as": "file"}]
    ) as box:
        assert (await box.exec("echo $MY_KEY; cat /run/secrets/KEY; echo ${#MY_KEY}")).stdout == "***\n***14\n"
        (fork,) = await box.fork(memory=False, secrets="drop")
        assert (await fork.exec('echo "<$MY_KEY>"')).stdout == "<>\n"
        await fork.delete()
    assert (await client.secrets.set("KEY", b"\0\1\2\3\xff")).version == 2
    assert ("KEY", 5) in [(x.name, x.size) for x in await client.secrets.list()]
    assert (await client.secrets.get("KEY")).description == "a key"
    await client.secrets.delete("KEY")
    with pytest.raises(NotFoundError):
        await client.secrets.get("KEY")
    with pytest.raises(InvalidError):
        await client.secrets.set("KEY", "abc")


def connect(host, port):
    code = f"import socket\ntry:\n  socket.create_connection(('{host}', {port}), timeout=10)\n  print('connected')\nexcept OSError as e:\n  print(e)"
    return ["python3", "-c", code]


async def test_a_network_policy_is_given_changed_and_explained(client):
    async with await client.sandboxes.create(network={"allow": ["a.test"], "budget": {"bytes_out": "10M"}}) as s:
        assert (s.network["mode"], s.network["allow"]) == ("allow", ["a.test"])
        assert (await s.get_network()).policy["budget"]["bytes_out"] == 10 << 20
        assert "connected" not in (await s.exec(connect("b.test", 443))).stdout
        assert "connected" not in (await s.exec(connect("192.0.2.1", 443))).stdout
        why = await s.why()
        assert [r.rule for r in why if r.to == "b.test"] == ["b.test"]
        assert any(r.to == "192.0.2.1" and r.port == 443 and r.fix for r in why)
        now = await s.set_network({"allow": ["a.test", "b.test:443"]})
        assert now.state == "in force" and s.network["allow"] == ["a.test", "b.test:443"]
        assert (await s.set_network("none")).policy["mode"] == "none"
        with pytest.raises(InvalidError):
            await s.set_network({"allow": ["no name"]})


async def test_servers_inside_are_reached(sandbox, daemon):
    await sandbox.exec("echo hello > index.html")
    await sandbox.background(["python3", "-m", "http.server", "8000"])
    end = time.monotonic() + 20
    page = await sandbox.ports.fetch(8000)
    while page.status_code == 502:
        assert time.monotonic() < end
        page = await sandbox.ports.fetch(8000)
    assert (page.status_code, page.text) == (200, "hello\n")
    assert (await sandbox.ports.fetch(8000, "missing")).status_code == 404
    assert (await sandbox.ports.fetch(8000, method="POST", content="x")).status_code == 501
    assert sandbox.ports.url(8000, "x").startswith(daemon.url)
    mine = {"authorization": "Bearer none"}
    assert (await sandbox.ports.fetch(8000, headers=mine)).status_code == 401
    token = (await sandbox.ports.set(8000, token=True)).token
    assert (await sandbox.ports.fetch(8000, headers={**mine, "x-cloche-port-token": token})).status_code in (200, 401)
    assert (await sandbox.ports.set(8000, public=True)).public
    assert (await sandbox.ports.fetch(8000, headers=mine)).status_code == 200
    assert [p.port for p in await sandbox.ports.list()] == [8000]
    await sandbox.ports.remove(8000)
    assert not (await sandbox.ports.get(8000)).public and await sandbox.ports.list() == []


assert AsyncCloche and UnauthorizedError
