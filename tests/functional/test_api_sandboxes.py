"""Sandboxes over the API: what each option does, finding them again, their life and end."""
import datetime
import os
import signal
import time

import pytest

from api import agent_of, as_tenant, d, error, eventually, events, nothing_is_left_behind, parallel  # noqa: F401


@pytest.fixture
def boxes(d):
    """Ends all sandboxes that a test has made, of every tenant."""
    yield
    for b in d.get("/v1/sandboxes?limit=1000&tenant=*").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")


def sh(d, box, script, **fields):
    return d.exec(box["id"], "/bin/sh", "-c", script, **fields)


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_without_a_word_the_defaults_are_told(d, boxes):
    r = d.request("POST", "/v1/sandboxes", b"")
    assert r.status == 201, r
    b = r.json
    assert b["name"] == b["id"] and b["key"] is None and b["state"] == "running" and b["tenant"] == "default"
    assert (b["cpus"], b["memory"], b["disk"], b["pids"], b["nofile"]) == (1, 512 << 20, 1 << 30, 256, 1024)
    assert b["network"] == {"mode": "none"} and b["expires_at"] is None and b["env"] == {} and b["metadata"] == {}
    assert b["enforced"]["memory"] and b["enforced"]["nofile"] == "1024 per process"
    assert abs(when(b["created_at"]) - time.time()) < 10


def test_each_option_has_its_effect(d, boxes):
    b = d.create(cpus=0.5, memory="64M", disk="32M", pids=50, nofile=77, env={"A": "b c", "EMPTY": ""}, metadata={"k": "v"}, user="1234:1235",
                 workdir="/work/here", tmpfs=[{"path": "/scratch", "size": "1M"}], hostname="elsewhere", output_limit=100, exec_timeout=0.5)
    assert b["cpus"] == 0.5 and b["memory"] == 64 << 20 and b["tmpfs"] == [{"path": "/scratch", "size": 1 << 20}]
    r = sh(d, b, 'echo "$A|$EMPTY|$(id -u):$(id -g)|$(pwd)|$(hostname)|$(ulimit -n)"; touch x && df -k /scratch | tail -1 | tr -s " " | cut -d" " -f2')
    assert r["stdout"].splitlines() == ["b c||1234:1235|/work/here|elsewhere|77", "1024"], r
    assert sh(d, b, "sleep 5")["verdict"]["cause"] == "timeout"
    long = sh(d, b, "seq 1000; exit 3")
    assert long["truncated"]["stdout"] and long["verdict"]["cause"] == "output", long
    ro = d.create(read_only=True, storage="memory")
    assert sh(d, ro, "touch /usr/x /home/user/x 2>/dev/null; echo $?")["stdout"].strip() != "0"
    root = d.create(user="root")
    assert sh(d, root, "id -u; pwd")["stdout"].split() == ["0", "/root"]


@pytest.mark.parametrize("body,status,code", [
    ({"nome": "x"}, 400, "invalid"), ({"name": ""}, 400, "invalid"), ({"name": "a/b"}, 400, "invalid"), ({"name": "a..b"}, 400, "invalid"),
    ({"name": "x" * 65}, 400, "invalid"), ({"name": 7}, 400, "invalid"), ({"key": ""}, 400, "invalid"), ({"key": "x" * 129}, 400, "invalid"),
    ({"memory": -1}, 400, "invalid"), ({"memory": "1X"}, 400, "invalid"), ({"memory": "1M"}, 400, "invalid"), ({"cpus": -0.5}, 400, "invalid"), ({"cpus": 1e300}, 400, "invalid"),
    ({"timeout": -1}, 400, "invalid"), ({"timeout": 1e18}, 400, "invalid"), ({"env": {"A": 1}}, 400, "invalid"), ({"env": {"A=B": "x"}}, 400, "invalid"),
    ({"env": []}, 400, "invalid"), ({"metadata": {str(i): "" for i in range(65)}}, 400, "invalid"), ({"user": "nobody"}, 400, "invalid"), ({"user": "70000"}, 400, "invalid"),
    ({"workdir": "relative"}, 400, "invalid"), ({"workdir": "/a/../b"}, 400, "invalid"), ({"tmpfs": [{"path": "rel"}]}, 400, "invalid"), ({"tmpfs": [{}]}, 400, "invalid"),
    ({"tmpfs": [{"path": "/a", "more": 1}]}, 400, "invalid"), ({"hostname": "a b"}, 400, "invalid"), ({"hostname": "x" * 100}, 400, "invalid"),
    ({"storage": "tape"}, 400, "invalid"), ({"image": "no-such"}, 404, "not_found"), ({"image": "../etc"}, 400, "invalid"),
    ({"isolation": "wasm"}, 501, "unsupported"), ({"isolation": "magic"}, 400, "invalid"), ({"network": "some"}, 400, "invalid"),
    ({"network": {"mode": "none", "x": 1}}, 400, "invalid"),
])
def test_what_makes_no_sense_or_can_not_be_is_refused(d, body, status, code):
    error(d.post("/v1/sandboxes", body), status, code)


def test_mounts_are_only_what_is_allowed(d):
    error(d.post("/v1/sandboxes", {"mounts": [{"source": "/etc", "target": "/mnt", "read_only": True}]}), 403, "denied")


def test_only_an_admin_may_lift_a_limit(d, boxes):
    a = as_tenant(d, "lift")
    for key in ("memory", "cpus", "pids", "disk"):
        error(a.post("/v1/sandboxes", {key: 0}), 400, "invalid")
    assert d.post("/v1/sandboxes", {"pids": 0}).status == 201


def test_they_are_listed_newest_first_page_by_page(d, boxes):
    a = as_tenant(d, "lister")
    made = [a.create(name=f"n{i}", metadata={"odd": str(i % 2), "all": "1"})["id"] for i in range(7)]
    assert [b["id"] for b in a.get("/v1/sandboxes").json["sandboxes"]] == made[::-1]
    seen, cursor = [], ""
    while cursor is not None:
        page = a.get(f"/v1/sandboxes?limit=3{cursor and '&cursor=' + cursor}").json
        assert len(page["sandboxes"]) <= 3
        seen += [b["id"] for b in page["sandboxes"]]
        cursor = page["next"]
    assert seen == made[::-1]
    names = lambda query: {b["name"] for b in a.get("/v1/sandboxes?" + query).json["sandboxes"]}  # noqa: E731
    assert names("metadata.odd=1") == {"n1", "n3", "n5"}
    assert names("metadata.odd=1&metadata.all=2") == set()
    assert names("name=n4") == {"n4"}
    assert a.post(f"/v1/sandboxes/{made[2]}/pause").status == 200
    assert names("state=paused") == {"n2"} and len(names("state=running")) == 6
    for bad in ("limit=0", "limit=1001", "limit=x", "cursor=zzz"):
        error(a.get("/v1/sandboxes?" + bad), 400, "invalid")
    assert {b["tenant"] for b in d.get("/v1/sandboxes?tenant=lister").json["sandboxes"]} == {"lister"}
    error(d.get("/v1/sandboxes?tenant=nobody"), 404, "not_found")
    error(a.get("/v1/sandboxes?tenant=*"), 403, "denied")


def test_a_name_is_the_tenants_own(d, boxes):
    a, b = as_tenant(d, "name-a"), as_tenant(d, "name-b")
    first = a.create(name="same")
    error(a.post("/v1/sandboxes", {"name": "same"}), 409, "conflict")
    second = b.create(name="same")
    assert a.get("/v1/sandboxes/same").json["id"] == first["id"] != second["id"] == b.get("/v1/sandboxes/same").json["id"]
    assert a.request("PATCH", "/v1/sandboxes/same", {"name": "other"}).json["name"] == "other"
    error(a.get("/v1/sandboxes/same"), 404, "not_found")
    third = a.create(name="same")
    error(a.request("PATCH", "/v1/sandboxes/other", {"name": "same"}), 409, "conflict")
    assert a.delete("/v1/sandboxes/same").status == 204
    error(a.get(f"/v1/sandboxes/{third['id']}"), 404, "not_found")
    assert a.create(name="same")["id"] != third["id"]


def test_a_key_always_reaches_the_same_one(d, boxes):
    answers = parallel(20, lambda i: d.post("/v1/sandboxes", {"key": "the key", "metadata": {"i": str(i)}}))
    assert sorted(r.status for r in answers) == [200] * 19 + [201], answers
    ids = {r.json["id"] for r in answers}
    assert len(ids) == 1
    a = as_tenant(d, "keyed")
    other = a.post("/v1/sandboxes", {"key": "the key"})
    assert other.status == 201 and other.json["id"] not in ids
    assert d.delete(f"/v1/sandboxes/{ids.pop()}").status == 204
    assert d.post("/v1/sandboxes", {"key": "the key"}).status == 201


def test_a_key_never_reaches_a_dead_one(d, boxes):
    first = d.post("/v1/sandboxes", {"key": "mortal", "name": "mortal"}).json["id"]
    os.kill(agent_of(d, first), signal.SIGKILL)
    eventually(lambda: d.get(f"/v1/sandboxes/{first}").json["state"] == "lost", 60)
    answers = parallel(5, lambda _: d.post("/v1/sandboxes", {"key": "mortal", "name": "mortal"}))
    assert sorted(r.status for r in answers) == [200] * 4 + [201], answers
    second = {r.json["id"] for r in answers}
    assert len(second) == 1 and first not in second
    dead = d.get(f"/v1/sandboxes/{first}").json
    assert dead["state"] == "lost" and dead["key"] is None and dead["name"] == first, dead
    assert d.get("/v1/sandboxes/mortal").json["id"] in second
    short = d.post("/v1/sandboxes", {"key": "short", "timeout": 1}).json["id"]
    eventually(lambda: d.post("/v1/sandboxes", {"key": "short", "timeout": 1}).json["id"] != short, 60)


def test_another_tenant_neither_sees_nor_reaches_it(d, boxes):
    a, b = as_tenant(d, "mine"), as_tenant(d, "theirs")
    box = a.create(name="hidden", key="k")
    x = a.post(f"/v1/sandboxes/{box['id']}/execs", {"cmd": ["sleep", "60"], "background": True}).json["id"]
    assert b.get("/v1/sandboxes").json["sandboxes"] == []
    own = b.create()["id"]
    for name in (box["id"], "hidden"):
        at = f"/v1/sandboxes/{name}"
        for method, path, body in [
                ("GET", at, None), ("PATCH", at, {"name": "x"}), ("DELETE", at, None), ("POST", at + "/pause", {}), ("POST", at + "/resume", {}),
                ("POST", at + "/extend", {"timeout": 1}), ("GET", at + "/stats", None), ("GET", at + "/events", None),
                ("POST", at + "/execs", {"cmd": ["true"]}), ("GET", at + "/execs", None), ("GET", at + f"/execs/{x}", None), ("DELETE", at + f"/execs/{x}", None),
                ("GET", at + f"/execs/{x}/output", None), ("POST", at + f"/execs/{x}/signal", {}), ("GET", at + f"/execs/{x}/attach", None), ("GET", at + "/execs/attach", None),
                ("GET", at + "/files?path=/etc/passwd", None), ("PUT", at + "/files?path=/tmp/x", b"x"), ("POST", at + "/files?path=/tmp/y&op=mkdir", {}),
                ("DELETE", at + "/files?path=/tmp/x", None)]:
            error(b.request(method, path, body), 404, "not_found")
    # An exec is found in its own sandbox only.
    error(b.get(f"/v1/sandboxes/{own}/execs/{x}"), 404, "not_found")
    assert b.post("/v1/sandboxes", {"key": "k"}).json["id"] != box["id"]
    assert d.get(f"/v1/sandboxes/{box['id']}").status == 200, "an admin reaches all by id"
    assert a.get(f"/v1/sandboxes/{box['id']}/execs/{x}").json["state"] == "running"


def test_patch_and_extend(d, boxes):
    b = d.create(timeout=100, metadata={"a": "1"})
    assert abs(when(b["expires_at"]) - time.time() - 100) < 5
    r = d.request("PATCH", f"/v1/sandboxes/{b['id']}", {"timeout": "1h", "metadata": {"b": "2"}, "idle": 0})
    assert r.status == 200 and r.headers["X-Cloche-Audit"] and r.json["metadata"] == {"b": "2"}, r
    assert abs(when(r.json["expires_at"]) - time.time() - 3600) < 5
    assert d.request("PATCH", f"/v1/sandboxes/{b['id']}", {"timeout": 0}).json["expires_at"] is None
    r = d.post(f"/v1/sandboxes/{b['id']}/extend", {"timeout": 50})
    assert r.status == 200 and abs(when(r.json["expires_at"]) - time.time() - 50) < 5, r
    for method, path, body in [("PATCH", "", {"memory": 1}), ("PATCH", "", {"name": "a b"}), ("POST", "/extend", {}), ("POST", "/extend", {"timeout": 1, "idle": 2}),
                               ("PATCH", "", {"metadata": {"a": 1}}), ("PATCH", "", b"[]"), ("PATCH", "", b'{"timeout":1,"timeout":2}')]:
        error(d.request(method, f"/v1/sandboxes/{b['id']}{path}", body), 400, "invalid")


def gone(d, box):
    return d.get(f"/v1/sandboxes/{box['id']}").status == 404


def test_they_end_in_time(d, boxes):
    ttl = d.create(timeout=0.5)
    shortened = d.create()
    assert d.request("PATCH", f"/v1/sandboxes/{shortened['id']}", {"timeout": 0.5}).status == 200
    idle, busy = d.create(idle=0.7), d.create(idle=0.7)
    assert d.exec(busy["id"], "sleep", "2")["exit_code"] == 0, "who works is not idle"
    listed = lambda: {b["id"] for b in d.get("/v1/sandboxes").json["sandboxes"]}  # noqa: E731
    assert eventually(lambda: not listed() & {ttl["id"], shortened["id"], idle["id"]}, 4)
    assert gone(d, ttl) and gone(d, idle)
    assert eventually(lambda: busy["id"] not in listed(), 5)
    kinds = [r["kind"] for r in d.get(f"/v1/audit?sandbox={ttl['id']}").json["records"]]
    assert kinds == ["sandbox.create", "sandbox.expire"], kinds


def test_pause_stops_and_resume_goes_on(d, boxes):
    b = d.create()
    at = f"/v1/sandboxes/{b['id']}"
    x = d.post(at + "/execs", {"shell": "while :; do echo x; sleep 0.02; done", "background": True}).json["id"]
    total = lambda: int(d.get(f"{at}/execs/{x}/output?limit=0").headers["X-Cloche-Total"])  # noqa: E731
    assert eventually(total)
    r = d.post(at + "/pause")
    assert r.status == 200 and r.json["state"] == "paused" and r.headers["X-Cloche-Audit"], r
    assert d.post(at + "/pause").json["state"] == "paused"
    time.sleep(0.1)
    before = total()
    time.sleep(0.3)
    assert total() == before
    error(d.post(at + "/execs", {"cmd": ["true"]}), 409, "conflict")
    assert d.get(at + "/stats").status == 200
    assert d.post(at + "/resume").json["state"] == "running"
    assert d.post(at + "/resume").json["state"] == "running"
    assert eventually(lambda: total() > before)
    assert d.exec(b["id"], "true")["exit_code"] == 0
    assert d.post(at + "/pause").status == 200
    assert d.delete(at).status == 204, "a paused one can be deleted"


def test_stats_tell_what_is_used(d, boxes):
    b = d.create(memory="128M", disk="64M")
    sh(d, b, "head -c 20M /dev/zero > /tmp/f; head -c 30M /dev/zero | tail -c 30M > /dev/null")
    s = d.get(f"/v1/sandboxes/{b['id']}/stats").json
    assert s["memory_limit"] == 128 << 20 and s["memory_peak"] > 20 << 20 and s["disk"] >= 20 << 20 and s["disk_limit"] >= 64 << 20, s
    assert s["cpu_ms"] > 0 and s["pids"] >= 1 and s["pids_peak"] >= 2 and s["execs"] == 0, s


def test_deleted_means_gone(d, boxes):
    b = d.create(name="short")
    x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["sleep", "100"], "background": True}).json["id"]
    r = d.delete("/v1/sandboxes/short")
    assert r.status == 204 and r.headers["X-Cloche-Audit"] and r.body == b""
    error(d.delete(f"/v1/sandboxes/{b['id']}"), 404, "not_found")
    error(d.get(f"/v1/sandboxes/{b['id']}/execs/{x}"), 404, "not_found")
    b = d.create()
    statuses = sorted(r.status for r in parallel(5, lambda _: d.delete(f"/v1/sandboxes/{b['id']}")))
    assert statuses[0] == 204 and set(statuses) <= {204, 404, 409}, statuses


def test_an_idempotency_key_gives_the_first_answer_again(d, boxes):
    key = {"Idempotency-Key": "key-1 !~"}
    first = d.post("/v1/sandboxes", {"metadata": {"a": "1"}}, headers=key)
    again = d.post("/v1/sandboxes", {"metadata": {"a": "1"}}, headers=key)
    assert first.status == again.status == 201 and first.json["id"] == again.json["id"]
    assert again.headers["Idempotent-Replay"] == "true" and "Idempotent-Replay" not in first.headers
    error(d.post("/v1/sandboxes", {"metadata": {"a": "2"}}, headers=key), 409, "conflict")
    a = as_tenant(d, "idem")
    assert a.post("/v1/sandboxes", {"metadata": {"a": "1"}}, headers=key).json["id"] != first.json["id"]
    error(d.post("/v1/sandboxes", {"name": "a b"}, headers={"Idempotency-Key": "failed"}), 400, "invalid")
    assert d.post("/v1/sandboxes", {"name": "ab"}, headers={"Idempotency-Key": "failed"}).status == 201, "what failed may be tried again"
    for bad in ("", "x" * 129, "\u00fc"):
        error(d.post("/v1/sandboxes", {}, headers={"Idempotency-Key": bad}), 400, "invalid")


def test_idempotency_keys_hold_in_parallel_and_over_a_crash(d, boxes):
    key = {"Idempotency-Key": "parallel"}
    answers = parallel(10, lambda _: d.post("/v1/sandboxes", {}, headers=key))
    assert {r.status for r in answers} <= {201, 409}, answers
    ids = {r.json["id"] for r in answers if r.status == 201}
    assert len(ids) == 1 and len(d.get("/v1/sandboxes").json["sandboxes"]) == 1
    box = ids.pop()
    run = {"cmd": ["sleep", "60"], "background": True}
    x = d.post(f"/v1/sandboxes/{box}/execs", run, headers={"Idempotency-Key": "run"}).json["id"]
    d.kill9("api")
    again = d.post("/v1/sandboxes", {}, headers=key)
    assert again.status == 201 and again.json["id"] == box and again.headers["Idempotent-Replay"] == "true", again
    rerun = d.post(f"/v1/sandboxes/{box}/execs", run, headers={"Idempotency-Key": "run"})
    assert rerun.status == 201 and rerun.json["id"] == x and rerun.headers["Idempotent-Replay"] == "true", rerun
    assert len(d.get(f"/v1/sandboxes/{box}/execs").json["execs"]) == 1


def test_events_tell_its_life(d, boxes):
    b = d.create(name="told")
    at = f"/v1/sandboxes/{b['id']}"
    stream = events(d, "/v1/events", method="GET", headers={"Last-Event-ID": "0"})
    d.post(at + "/pause")
    d.post(at + "/resume")
    d.exec(b["id"], "true")
    d.delete(at)
    seen = []
    for kind, data in stream:
        if data["sandbox"] == b["id"]:
            seen.append(kind)
        if seen and seen[-1] == "sandbox.deleted":
            break
    stream.close()
    assert seen == ["sandbox.created", "sandbox.paused", "sandbox.resumed", "exec.started", "exec.ended", "sandbox.deleted"], seen
