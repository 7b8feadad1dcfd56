"""Pools: sandboxes of a template kept ready, given out once."""
import concurrent.futures
import datetime
import os
import pathlib
import signal
import time

import pytest

import host
from api import HASH, as_tenant, d, error, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from test_templates import checkpoints, clean, golden, put, sh  # noqa: F401


def pool(d, name="p", template="t", **fields):
    r = d.put(f"/v1/pools/{name}", {"template": template, **fields})
    assert r.status in (200, 201), r
    return r.json


def look(d, name="p"):
    return d.get(f"/v1/pools/{name}").json


def filled(d, n, name="p"):
    return host.wait_for(lambda: look(d, name)["ready"] == n and look(d, name), 10, f"{n} ready ones")


def test_a_create_that_fits_gets_a_ready_one(d):
    put(d, "t", memory="64M", env={"A": "1"})
    p = pool(d, min=2)
    assert (p["min"], p["max"], p["template"], p["served"], p["missed"], p["last_error"]) == (2, 0, "t", 0, 0, None)
    filled(d, 2)
    before = time.time()
    b = d.create(template="t", name="mine", metadata={"k": "v"}, timeout=500, idle=400, key="kk")
    assert b["pooled"] and b["name"] == "mine" and b["metadata"] == {"k": "v"} and b["timeout"] == 500 and b["idle"] == 400 and b["key"] == "kk"
    assert datetime.datetime.fromisoformat(b["created_at"].replace("Z", "+00:00")).timestamp() >= before - 0.1
    assert d.get("/v1/sandboxes/mine").json["id"] == b["id"] and d.create(template="t", key="kk")["id"] == b["id"]
    assert sh(d, b, "echo $A") == "1\n"
    p = filled(d, 2)
    assert p["served"] == 1 and p["missed"] == 0 and p["alive"] == 3
    error(d.post("/v1/sandboxes", {"template": "t", "name": "mine"}), 409, "conflict")
    assert look(d)["served"] == 1
    d.restart()
    b2 = d.get("/v1/sandboxes/mine").json
    assert b2["pooled"] and b2["key"] == "kk" and b2["created_at"] == b["created_at"] and b2["expires_at"] == b["expires_at"]


@pytest.mark.parametrize("differs", [{"memory": "80M"}, {"env": {"B": "2"}}, {"user": "root"}, {"hostname": "other"}, {"cpus": 0.5}, {"exec_timeout": 7}, {"tmpfs": [{"path": "/s"}]},
                                     {"read_only": True}, {"output_limit": 7}, {"workdir": "/x"}])
def test_what_a_ready_one_does_not_have_is_made(d, differs):
    put(d, "t", memory="64M", env={"A": "1"})
    pool(d, min=1)
    filled(d, 1)
    b = d.create(template="t", **differs)
    assert not b["pooled"] and b["template"] == "t"
    p = look(d)
    assert p["served"] == 0 and p["missed"] == 0 and p["alive"] == 1
    assert d.create(template="t", memory="64M", env={"A": "1"})["pooled"]  # says the same in its own words


def test_ready_ones_are_in_no_list_and_can_not_be_reached(d):
    put(d, "t", start={"cmd": ["sleep", "1000"]})
    pool(d, min=3)
    filled(d, 3)
    assert d.get("/v1/sandboxes?tenant=*").json["sandboxes"] == [] and d.get("/v1/vms").json == []
    ids = [x["sandbox"] for x in d.get("/v1/audit?kind=pool.fill").json["records"]][-3:]
    assert len(set(ids)) == 3
    for i in ids:
        at = f"/v1/sandboxes/{i}"
        assert [d.get(at).status, d.delete(at).status, d.post(at + "/execs", {"cmd": ["true"]}).status, d.post(at + "/pause").status, d.get(at + "/files?path=/").status,
                d.get(at + "/execs").status, d.get(f"/v1/vms/{i}").status] == [404] * 7
    assert d.delete(f"/v1/vms/{ids[0]}").status == 204  # Noid: what is not there is gone
    assert look(d)["ready"] == 3
    b = d.create(template="t")
    assert b["pooled"] and b["id"] in ids


def test_start_has_run_before_it_is_asked_for(d):
    put(d, "t", start={"shell": "echo ready > /tmp/ready; exec sleep 1000"})
    pool(d, min=1)
    filled(d, 1)
    time.sleep(0.3)
    b = d.create(template="t")
    assert b["pooled"] and sh(d, b, "cat /tmp/ready") == "ready\n"
    assert [x["state"] for x in d.get(f"/v1/sandboxes/{b['id']}/execs").json["execs"] if x["background"]] == ["running"]


def test_none_is_given_out_twice_and_none_was_used(d):
    put(d, "t", memory="64M")
    pool(d, min=8)
    filled(d, 8)

    def one(i):
        b = d.create(template="t")
        seen = sh(d, b, "cat /tmp/mark 2>/dev/null; ls /tmp | wc -l; echo used > /tmp/mark")
        if i % 2:
            d.delete(f"/v1/sandboxes/{b['id']}")
        return b["id"], b["pooled"], seen

    with concurrent.futures.ThreadPoolExecutor(8) as many:
        got = list(many.map(one, range(60)))
    assert len({i for i, _, _ in got}) == 60 and {s for _, _, s in got} == {"0\n"}
    assert sum(p for _, p, _ in got) >= 8
    p = filled(d, 8)
    assert p["served"] + p["missed"] == 60 and p["served"] == sum(x for _, x, _ in got) and p["failed"] == 0 and p["alive"] == 8 + 30


def test_one_that_died_is_not_given_out(d):
    put(d, "t", start={"cmd": ["sleep", "7654321"]})
    pool(d, min=2)
    filled(d, 2)
    host.wait_for(lambda: len(sleepers("7654321")) == 2, 5, "the starts")
    for pid in sleepers("7654321"):
        first = parent(pid)
        os.kill(first, signal.SIGKILL)
        host.wait_for(lambda p=first: not alive(p), 5, "its death")
    b = d.create(template="t")
    assert sh(d, b, "echo lives") == "lives\n" and d.get(f"/v1/sandboxes/{b['id']}").json["state"] == "running"
    filled(d, 2)
    assert [x["state"] for x in d.get("/v1/sandboxes").json["sandboxes"]] == ["running"]
    assert d.get("/v1/audit?kind=pool.drop").json["records"][-1]["why"]


def sleepers(mark):
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            if pathlib.Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", mark.encode()]:
                found.append(int(p))
        except OSError:
            pass
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def parent(pid):
    """Of a command: the sandbox's first process."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_a_changed_template_replaces_what_is_ready(d):
    put(d, "t", env={"V": "old"})
    pool(d, min=3)
    filled(d, 3)
    old = {x["sandbox"] for x in d.get("/v1/audit?kind=pool.fill").json["records"]}
    put(d, "t", 200, env={"V": "new"})
    b = d.create(template="t")
    assert b["id"] not in old and sh(d, b, "echo $V") == "new\n"
    filled(d, 3)
    b = d.create(template="t")
    assert b["pooled"] and b["id"] not in old and sh(d, b, "echo $V") == "new\n"
    # Saying the same again changes nothing.
    filled(d, 3)
    served = look(d)["served"]
    put(d, "t", 200, env={"V": "new"}, description="told")
    assert look(d)["ready"] == 3 and d.create(template="t")["pooled"] and look(d)["served"] == served + 1


def test_min_and_max_can_change(d):
    put(d, "t", memory="64M")
    r = d.put("/v1/pools/p", {"template": "t", "min": 4})
    assert r.status == 201 and HASH.match(r.headers["X-Cloche-Audit"])
    filled(d, 4)
    r = d.put("/v1/pools/p", {"template": "t", "min": 1, "max": 2})
    assert r.status == 200 and r.json["ready"] == 1
    a = d.create(template="t")
    host.wait_for(lambda: look(d)["ready"] == 1, 5, "one more")
    b = d.create(template="t")
    assert a["pooled"] and b["pooled"]
    e = error(d.post("/v1/sandboxes", {"template": "t"}), 429, "quota")
    assert "pool 'p'" in e["message"] and "max" in e["remedy"]
    assert not d.create(template="t", memory="80M")["pooled"]  # none of the pool's
    p = look(d)
    assert p["ready"] == 0 and p["alive"] == 2
    d.delete(f"/v1/sandboxes/{a['id']}")
    filled(d, 1)
    assert d.create(template="t")["pooled"]
    put(d, "u", memory="96M")
    pool(d, template="u", min=1, max=0)
    filled(d, 1)
    assert d.create(template="u")["pooled"] and not d.create(template="t")["pooled"]


@pytest.mark.parametrize("body,status,code", [
    ({}, 400, "invalid"), ({"template": "t"}, 400, "invalid"), ({"template": "t", "min": -1}, 400, "invalid"), ({"template": "t", "min": 257}, 400, "invalid"),
    ({"template": "t", "min": 2, "max": 1}, 400, "invalid"), ({"template": "t", "min": 2, "max": 1025}, 400, "invalid"), ({"template": "t", "min": 1, "more": 1}, 400, "invalid"),
    ({"template": "none", "min": 1}, 404, "not_found"), ({"template": 7, "min": 1}, 400, "invalid"), ({"template": "t", "min": "2"}, 400, "invalid"),
])
def test_what_makes_no_sense_is_refused(d, body, status, code):
    put(d, "t")
    error(d.put("/v1/pools/bad", body), status, code)
    assert d.get("/v1/pools").json["pools"] == []


def test_deleting_one_ends_what_is_ready_and_nothing_else(d):
    put(d, "t", start={"cmd": ["sleep", "8765432"]})
    pool(d, min=3)
    filled(d, 3)
    b = d.create(template="t")
    filled(d, 3)
    host.wait_for(lambda: len(sleepers("8765432")) == 4, 5, "four starts")
    error(d.delete("/v1/templates/t"), 409, "conflict")
    assert d.delete("/v1/pools/p").status == 204
    host.wait_for(lambda: len(sleepers("8765432")) == 1, 5, "the end of those that were ready")
    error(d.get("/v1/pools/p"), 404, "not_found")
    assert sh(d, b, "echo lives") == "lives\n" and not d.create(template="t")["pooled"]
    assert d.delete("/v1/templates/t").status == 204
    # One of the same name is another one: what the first has given out is not counted.
    put(d, "t")
    assert pool(d, min=1, max=1)["alive"] == 0
    filled(d, 1)


def test_tenants_have_their_own(d):
    put(d, "t", env={"WHO": "default"})
    pool(d, min=1)
    other = as_tenant(d, "pool-o")
    assert other.put("/v1/templates/t", {"env": {"WHO": "other"}}).status == 201
    error(other.get("/v1/pools/p"), 404, "not_found")
    error(other.delete("/v1/pools/p"), 404, "not_found")
    filled(d, 1)
    b = other.create(template="t")
    assert not b["pooled"] and look(d)["ready"] == 1
    assert other.put("/v1/pools/p", {"template": "t", "min": 1}).status == 201
    host.wait_for(lambda: other.get("/v1/pools/p").json["ready"] == 1, 5, "the other's")
    b = other.create(template="t")
    assert b["pooled"] and b["tenant"] == "pool-o" and b["env"] == {"WHO": "other"}
    assert [p["tenant"] for p in d.get("/v1/pools?tenant=*").json["pools"]] == ["default", "pool-o"]
    assert [p["tenant"] for p in other.get("/v1/pools").json["pools"]] == ["pool-o"]


def test_ready_ones_count_but_give_way(d):
    other = as_tenant(d, "way-t", quotas={"sandboxes": 4, "memory": "256M"})
    assert other.put("/v1/templates/t", {"memory": "64M"}).status == 201
    assert other.put("/v1/pools/p", {"template": "t", "min": 8}).status == 201
    host.wait_for(lambda: other.get("/v1/pools/p").json["ready"] == 4, 5, "as many as the quota allows")
    p = host.wait_for(lambda: (q := other.get("/v1/pools/p").json)["last_error"] and q, 5, "the reason")
    assert "quota" in p["last_error"] and p["failed"] >= 1
    assert d.get("/v1/tenants/way-t").json["used"]["sandboxes"] == 4
    own = [other.create(memory="64M") for _ in range(3)]
    assert other.get("/v1/pools/p").json["ready"] == 1
    assert other.create(template="t")["pooled"]
    error(other.post("/v1/sandboxes", {"memory": "64M"}), 429, "quota")
    error(other.post("/v1/sandboxes", {"template": "t"}), 429, "quota")
    big = d.get("/v1/tenants/way-t").json["used"]
    assert big["sandboxes"] == 4 and big["memory"] == 256 << 20
    for b in own:
        other.delete(f"/v1/sandboxes/{b['id']}")
    host.wait_for(lambda: other.get("/v1/pools/p").json["ready"] == 3, 10, "room to be used again")
    # It is not in the way of the tenant's end either.
    for b in other.get("/v1/sandboxes").json["sandboxes"]:
        other.delete(f"/v1/sandboxes/{b['id']}")
    host.wait_for(lambda: d.delete("/v1/tenants/way-t").status == 204, 5, "the tenant's end")
    assert [p for p in d.get("/v1/pools?tenant=*").json["pools"] if p["tenant"] == "way-t"] == []


def test_what_fails_is_tried_again_but_not_at_once(d, tmp_path):
    other = as_tenant(d, "fail-t", quotas={"execs": 1})
    assert other.put("/v1/templates/t", {"start": {"cmd": ["sleep", "1000"]}}).status == 201
    assert other.put("/v1/pools/p", {"template": "t", "min": 2}).status == 201
    time.sleep(1.5)
    p = other.get("/v1/pools/p").json
    assert p["ready"] == 1 and 2 <= p["failed"] <= 4 and "execs" in p["last_error"]
    assert d.request("PATCH", "/v1/tenants/fail-t", {"quotas": {"execs": 10}}).status == 200
    p = host.wait_for(lambda: (q := other.get("/v1/pools/p").json)["ready"] == 2 and q, 10, "the second")
    assert p["last_error"] is None


def test_no_network_stays_no_network(d):
    put(d, "t", network="none")
    pool(d, min=1)
    filled(d, 1)
    b = d.create(template="t", network={"mode": "none"})
    assert b["pooled"] and b["network"] == {"mode": "none"} and b["enforced"]["network"]
    made = d.create(network="none")
    assert b["enforced"] == made["enforced"] or {k for k in b["enforced"]} == {k for k in made["enforced"]}
    assert sh(d, b, "ls /sys/class/net 2>/dev/null || cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '") == "lo\n"
    assert d.exec(b["id"], "sh", "-c", "exec 3<>/dev/tcp/1.1.1.1/80")["exit_code"] != 0
    other = d.create(template="t", network={"allow": ["a.example"]})
    assert not other["pooled"] and other["network"] == {"mode": "allow", "allow": ["a.example"]}
    assert look(d)["ready"] >= 0


def test_idle_and_timeout_begin_when_it_is_taken(d):
    put(d, "t", timeout=1, idle=0.6)
    pool(d, min=1)
    filled(d, 1)
    time.sleep(1.6)
    assert look(d)["ready"] == 1 and len(d.get("/v1/audit?kind=sandbox.expire").json["records"]) == 0
    b = d.create(template="t", idle=0)
    assert b["pooled"] and d.get(f"/v1/sandboxes/{b['id']}").status == 200
    host.wait_for(lambda: d.get(f"/v1/sandboxes/{b['id']}").status == 404, 5, "its end")


def test_one_create_is_one_record_and_one_event(d):
    put(d, "t", start={"cmd": ["sleep", "1000"]})
    pool(d, min=1)
    filled(d, 1)
    r = d.post("/v1/sandboxes", {"template": "t"}, headers={"X-Request-Id": "take-1"})
    assert r.status == 201 and HASH.match(r.headers["X-Cloche-Audit"])
    mine = [x for x in d.get("/v1/audit?limit=10000").json["records"] if x.get("request_id") == "take-1"]
    assert [(x["kind"], x["sandbox"], x["template"], x["pool"], x["pooled"]) for x in mine] == [("sandbox.create", r.json["id"], "t", "p", True)]
    r2 = d.post("/v1/sandboxes", {"template": "t", "memory": "64M"}, headers={"X-Request-Id": "make-1"})
    mine = [x for x in d.get("/v1/audit?limit=10000").json["records"] if x.get("request_id") == "make-1"]
    assert r2.status == 201 and [x["kind"] for x in mine] == ["sandbox.create"]


def test_a_tenant_has_only_so_many_pools(d):
    other = as_tenant(d, "pools-m")
    assert other.put("/v1/templates/t", {}).status == 201
    for i in range(64):
        assert other.put(f"/v1/pools/p{i}", {"template": "t", "min": 0}).status == 201
    error(other.put("/v1/pools/more", {"template": "t", "min": 0}), 429, "quota")
    assert not other.create(template="t")["pooled"]
    assert other.get("/v1/pools/p0").json["missed"] == 1


def test_taking_does_not_take_much_longer_than_making(d):
    """A plain sandbox is made in a millisecond, and the pool makes the next one beside what is measured here. `make bench` has figures."""
    put(d, "t", memory="64M")
    put(d, "plain", memory="64M")
    pool(d, min=40)
    filled(d, 40)

    def times(template, pooled):
        took = []
        for _ in range(30):
            start = time.perf_counter()
            b = d.create(template=template)
            took.append(time.perf_counter() - start)
            assert b["pooled"] == pooled
            d.delete(f"/v1/sandboxes/{b['id']}")
        return sorted(took)[15]

    ratios = []
    for _ in range(3):
        made = times("plain", False)
        filled(d, 40)
        taken = times("t", True)
        ratios.append(taken / made)
        print(f"made {made * 1e3:.2f} ms, taken {taken * 1e3:.2f} ms")
    assert min(ratios) < 3, ratios


def test_ready_ones_stand_on_the_templates_checkpoint(d, checkpoints):
    c = golden(d)
    put(d, "t", checkpoint=c["id"], memory="64M")
    pool(d, min=3)
    filled(d, 3)
    for _ in range(5):
        b = d.create(template="t")
        assert b["checkpoint"] == c["id"] and b["restored"]["checkpoint"] == c["id"]
        assert sh(d, b, "cat ~/tool; echo spoilt > ~/tool") == "golden\n"
    assert look(d)["served"] >= 3
    d.restart()
    filled(d, 3)
    assert sh(d, d.create(template="t"), "cat ~/tool") == "golden\n"
    newer = golden(d, "newer")
    put(d, "t", 200, checkpoint=newer["id"], memory="64M")
    filled(d, 3)
    b = d.create(template="t")
    assert b["pooled"] and sh(d, b, "cat ~/tool") == "newer\n"


def test_a_sandbox_that_is_restored_in_place_stays_its_pools(d, checkpoints):
    put(d, "t", memory="64M")
    pool(d, min=1, max=2)
    filled(d, 1)
    b = d.create(template="t")
    c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"name": "clean"}).json
    sh(d, b, "echo x > ~/x")
    r = d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": c["id"]})
    assert r.status == 200 and r.json["template"] == "t" and r.json["pooled"], r
    assert sh(d, b, "ls ~") == ""
    filled(d, 1)
    assert look(d)["alive"] == 2
    d.restart()
    assert filled(d, 1)["alive"] == 2 and d.get(f"/v1/sandboxes/{b['id']}").json["template"] == "t"


def test_noids_tool_pool(d, checkpoints):
    """A pool of tool sandboxes that are reset between calls: by a checkpoint each, or by taking a fresh one each time."""
    base = d.post("/v1/vms", {"name": "tool-base"})
    assert base.status == 201, base
    assert d.post("/v1/vms/tool-base/exec", {"command": ["sh", "-c", "echo 'print(6*7)' > /root/tool.py; echo clean > /root/state"]}).json["exit_code"] == 0
    c = d.post("/v1/sandboxes/tool-base/checkpoints", {"name": "ready"}).json
    assert d.delete("/v1/vms/tool-base").status == 204  # what is made from it must not need it
    put(d, "tool", checkpoint=c["id"])
    pool(d, template="tool", min=3, max=8)
    filled(d, 3)

    # Shape 1: a few that are kept and reset in place after each call.
    workers = [d.create(template="tool", name=f"tool-{i}")["name"] for i in range(3)]
    assert {v["name"] for v in d.get("/v1/vms").json} == set(workers)

    def call(worker):
        r = d.post(f"/v1/vms/{worker}/exec", {"command": ["sh", "-c", "cat /root/state; python3 /root/tool.py; echo dirty > /root/state"]}).json
        assert (r["exit_code"], r["stdout"]) == (0, "clean\n42\n"), r
        reset = d.post(f"/v1/sandboxes/{worker}/restore", {"checkpoint": c["id"]})
        assert reset.status == 200, reset

    with concurrent.futures.ThreadPoolExecutor(3) as many:
        for _ in range(4):
            list(many.map(call, workers))
    for w in workers:
        assert d.delete(f"/v1/vms/{w}").status == 204

    # Shape 2: a fresh one for each call, thrown away behind it.
    def fresh(i):
        b = d.create(template="tool", metadata={"call": str(i)})
        r = d.post(f"/v1/vms/{b['name']}/exec", {"command": ["sh", "-c", "cat /root/state; python3 /root/tool.py; echo dirty > /root/state"]}).json
        assert d.delete(f"/v1/vms/{b['name']}").status == 204
        return r["exit_code"], r["stdout"]

    with concurrent.futures.ThreadPoolExecutor(3) as many:
        assert set(many.map(fresh, range(12))) == {(0, "clean\n42\n")}
    p = filled(d, 3)
    assert p["failed"] == 0 and p["alive"] == 3


def test_ready_ones_give_way_when_the_host_is_full(nothing_is_left_behind, tmp_path):  # noqa: F811
    conf = tmp_path / "few.conf"
    conf.write_text("sandboxes_max = 5\n")
    with Daemon(None, "--config", conf) as few:
        put(few, "t", memory="64M")
        pool(few, min=8)
        host.wait_for(lambda: look(few)["ready"] == 5 and look(few)["last_error"], 10, "as many as the host may have")
        assert "sandboxes" in look(few)["last_error"]
        own = [few.create(memory="64M") for _ in range(4)]
        assert look(few)["ready"] == 1 and few.create(template="t")["pooled"]
        error(few.post("/v1/sandboxes", {}), 503, "exhausted")
        assert sh(few, own[0], "echo on") == "on\n"
