"""Sandboxes, events, tokens, tenants, audit."""
import datetime
import time
import uuid

import pytest
from cloche import AsyncCloche, ConflictError, InvalidError, NotFoundError, RateLimitError, UnauthorizedError


async def test_a_sandbox_is_made_found_changed_and_deleted(client):
    s = await client.sandboxes.create(
        name="first", cpus=1, memory="256M", pids=64, env={"GREETING": "hello"}, metadata={"user_id": "7"}, timeout=600
    )
    assert (s.name, s.state, s.memory, s.metadata) == ("first", "running", 256 << 20, {"user_id": "7"})
    assert s.enforced and s.expires_at > datetime.datetime.now(datetime.timezone.utc) and not s.extra
    assert (await client.sandboxes.get("first")).id == s.id
    assert (await s.exec("echo $GREETING")).stdout == "hello\n"
    before = s.expires_at
    await s.extend(3600)
    assert s.expires_at > before
    await s.update(name="second", metadata={"user_id": "8"})
    assert s.name == "second"
    await s.update(memory="300M")
    assert s.memory == 300 << 20
    with pytest.raises(NotFoundError):
        await client.sandboxes.get("first")
    assert [x.id async for x in client.sandboxes.list(metadata={"user_id": "8"})] == [s.id]
    await s.delete()
    with pytest.raises(NotFoundError) as e:
        await s.refresh()
    assert e.value.code == "not_found" and e.value.request_id


async def test_a_list_continues_over_its_pages(client):
    made = [await client.sandboxes.create(metadata={"page": "yes"}) for _ in range(5)]
    seen = [s.id async for s in client.sandboxes.list(metadata={"page": "yes"}, page_size=2)]
    assert seen == [s.id for s in reversed(made)]
    for s in made:
        await client.sandboxes.delete(s.id)


async def test_a_key_reaches_the_same_sandbox(client):
    key = str(uuid.uuid4())
    a, b = await client.sandboxes.create(key="user-1"), await client.sandboxes.create(key="user-1")
    c, d = await client.sandboxes.create(idempotency_key=key), await client.sandboxes.create(idempotency_key=key)
    assert a.id == b.id and c.id == d.id != a.id
    with pytest.raises(ConflictError):
        await client.sandboxes.create(idempotency_key=key, cpus=0.5)
    await a.delete()
    await c.delete()



async def test_pause_freezes_and_resume_thaws(sandbox):
    await sandbox.pause()
    assert sandbox.state == "paused"
    with pytest.raises(ConflictError):
        await sandbox.exec("true")
    await sandbox.resume()
    assert (await sandbox.exec("echo back")).stdout == "back\n"
    stats = await sandbox.stats()
    assert stats.memory > 0 and stats.disk_limit > 0 and stats.network.connections == 0 and not stats.extra


async def test_a_hibernated_sandbox_wakes(sandbox):
    await sandbox.exec("echo here > data")
    await sandbox.hibernate()
    assert sandbox.state == "hibernated"
    assert (await sandbox.exec("cat data")).stdout == "here\n"
    await sandbox.hibernate(memory="auto")
    await sandbox.wake()
    assert sandbox.state == "running"


async def test_a_disk_stays_over_a_stop(client):
    async with await client.sandboxes.create(storage="disk", disk="64M") as s:
        await s.exec("echo kept > data")
        await s.stop()
        assert s.state == "stopped"
        await s.start_again()
        assert (await s.exec("cat data")).stdout == "kept\n"


async def test_leaving_the_block_deletes_it(client):
    async with await client.sandboxes.create() as s:
        assert (await s.exec("true")).ok
    with pytest.raises(NotFoundError):
        await client.sandboxes.get(s.id)
    async with await client.sandboxes.create() as gone:
        await gone.delete()
    with pytest.raises(RuntimeError, match="its own"):
        async with await client.sandboxes.create() as s:
            raise RuntimeError("its own")
    with pytest.raises(NotFoundError):
        await s.refresh()


@pytest.mark.each_python
async def test_errors_are_typed_and_say_what_they_know(client, daemon):
    for bad in ({"cpus": -1}, {"name": "../x"}, {"nonsense": 1}, {"memory": float("nan")}):
        with pytest.raises(InvalidError) as e:
            await client.sandboxes.create(**bad)
        assert e.value.code == "invalid" and isinstance(e.value, ValueError)
    async with AsyncCloche(daemon.url, "wrong") as other:
        with pytest.raises(UnauthorizedError) as e:
            await other.info()
    assert e.value.status == 401 and "unauthorized" in str(e.value) and e.value.request_id in str(e.value)
    async with await client.sandboxes.create(name="taken"):
        with pytest.raises(ConflictError) as e:
            await client.sandboxes.create(name="taken")
        assert e.value.status == 409
    for name in ("", ".", "..", "a\udcff"):
        with pytest.raises(InvalidError):
            await client.sandboxes.get(name)
    with pytest.raises((NotFoundError, InvalidError)):
        await client.sandboxes.get("a/b?c=d#e")


async def test_events_say_what_happened(client, sandbox):
    # From the first event that the daemon still has: nothing is missed between two calls.
    await sandbox.exec("true")
    async with sandbox.events(last_event_id="1") as events:
        seen = []
        async for e in events:
            seen.append(e.type)
            assert e.id and e.data["sandbox"] == sandbox.id
            if e.type == "exec.ended":
                break
    assert seen[0] == "sandbox.created" and "exec.started" in seen
    async with client.events(last_event_id=e.id) as events:
        await sandbox.pause()
        async for e in events:
            if e.data.get("sandbox") == sandbox.id:
                break
    assert e.type == "sandbox.paused"
    await sandbox.resume()


async def test_the_server_describes_itself(client):
    assert await client.health()
    assert (await client.version()).api_version == 1
    assert (await client.whoami()).tenant == "default"
    info = await client.info()
    assert "container" in info.isolation and info.features["checkpoints"] and not info.extra
    assert "# HELP cloche_" in await client.metrics()


async def test_tokens_tenants_and_audit(client, daemon):
    tenant = await client.tenants.create("acme", quotas={"sandboxes": 1})
    assert (tenant.id, tenant.quotas["sandboxes"]) == ("acme", 1)
    token = await client.tokens.create(tenant="acme", name="agent", scope="sandbox")
    assert token.token.startswith("cloche_") and token.token not in repr(token)
    async with AsyncCloche(daemon.url, token.token) as theirs:
        s = await theirs.sandboxes.create()
        with pytest.raises(RateLimitError) as e:
            await theirs.sandboxes.create()
        assert e.value.code == "quota"
        kinds = [r.kind async for r in client.audit.list(sandbox=s.id, page_size=1)]
        assert "sandbox.create" in kinds
        assert (await client.audit.verify()).ok
        await s.delete()
        new = await client.tokens.rotate(token.id, grace=0)
        assert new.token != token.token
        with pytest.raises(UnauthorizedError):
            await theirs.whoami()
    assert (await client.tenants.update("acme", quotas={"sandboxes": 2})).quotas["sandboxes"] == 2
    assert "acme" in [t.id for t in await client.tenants.list()] and (await client.tenants.get("acme")).used["sandboxes"] == 0
    assert (await client.tokens.get(token.id)).name == "agent"
    await client.tokens.revoke(token.id)
    assert token.id not in [t.id for t in await client.tokens.list()]
    await client.tenants.delete("acme")


async def test_a_rate_limit_is_waited_for(client, daemon):
    token = await client.tokens.create(rate={"points": 3, "window": 1, "block": 1})
    async with AsyncCloche(daemon.url, token.token, retry_delay=0.001) as slow:
        begin = time.monotonic()
        for _ in range(5):
            await slow.whoami()
        assert time.monotonic() - begin >= 0.5
    async with AsyncCloche(daemon.url, token.token, retries=0) as hasty:
        with pytest.raises(RateLimitError) as e:
            for _ in range(5):
                await hasty.whoami()
        assert e.value.code == "rate" and e.value.retry_after > 0


@pytest.mark.each_python
async def test_the_unix_socket_needs_no_token_and_carries_websockets(daemon):
    async with AsyncCloche(f"unix:{daemon.data}/cloche.sock", "") as local:
        async with await local.sandboxes.create() as s:
            async with await s.start(["cat"], stdin=True) as x:
                assert (await x.communicate("by socket")).stdout == "by socket"
            await s.background(["python3", "-m", "http.server", "8000"])
            page = await s.ports.fetch(8000)
            while page.status_code == 502:
                page = await s.ports.fetch(8000)
            assert page.status_code == 200


async def test_settings_come_from_the_environment(daemon, monkeypatch):
    monkeypatch.setenv("CLOCHE_URL", daemon.url + "/")
    monkeypatch.setenv("CLOCHE_TOKEN", daemon.token)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which is not for this client
    async with AsyncCloche() as c:
        assert (await c.whoami()).scope == "admin"
