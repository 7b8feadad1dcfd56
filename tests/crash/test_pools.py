"""Pools whose daemon dies: a ready sandbox stays ready, is given out once, and none is leaked."""
import http.client
import os
import random
import threading
import time

import pytest

import host
from crash import PARTS, end_agent

ALL = PARTS + ["term"]


def put(daemon, path, body):
    r = daemon.put(path, body)
    assert r.status in (200, 201), r
    return r.json


def ready(daemon, n, name="p", seconds=15):
    return host.wait_for(lambda: (p := daemon.get(f"/v1/pools/{name}").json)["ready"] == n and p, seconds, f"{n} ready ones")


def fills(daemon):
    return {r["sandbox"] for r, _ in daemon.records() if r["kind"] == "pool.fill"}


@pytest.mark.parametrize("part", ALL)
def test_ready_ones_are_found_again(daemon, part):
    put(daemon, "/v1/templates/t", {"memory": "64M", "start": {"shell": "echo $$ > /tmp/x; exec sleep 1000"}})
    put(daemon, "/v1/pools/p", {"template": "t", "min": 5, "max": 9})
    ready(daemon, 5)
    before = fills(daemon)
    given = daemon.create(template="t", name="given")
    ready(daemon, 5)
    daemon.crash(part)
    p = ready(daemon, 5)
    assert p["alive"] == 6 and p["max"] == 9 and daemon.states() == {given["id"]: "running"}
    taken = [daemon.create(template="t") for _ in range(3)]
    assert all(b["pooled"] for b in taken) and len({b["id"] for b in taken} | {given["id"]}) == 4
    assert fills(daemon) >= before and {b["id"] for b in taken} <= fills(daemon)
    for b in taken:
        r = daemon.sh(b["id"], "cat /proc/$(cat /tmp/x)/comm")
        assert r["stdout"] == "sleep\n", r
        assert [x["state"] for x in daemon.get(f"/v1/sandboxes/{b['id']}/execs").json["execs"] if x["background"]] == ["running"]
    ready(daemon, 5)
    assert daemon.post("/v1/sandboxes", {"template": "t"}).status == 429 or daemon.get("/v1/pools/p").json["alive"] <= 9


def test_one_that_died_with_the_daemon_is_replaced(daemon):
    put(daemon, "/v1/templates/t", {"start": {"cmd": ["sleep", "4444444"]}})
    put(daemon, "/v1/pools/p", {"template": "t", "min": 3})
    ready(daemon, 3)
    mine = host.wait_for(lambda: (s := [p for p in filter(str.isdigit, os.listdir("/proc")) if command(p)[:2] == [b"sleep", b"4444444"]]) and len(s) == 3 and s, 5,
                         "the starts")
    daemon.kill9("all")
    for pid in mine[:2]:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            end_agent(int(f.read().rsplit(")", 1)[1].split()[1]))
    daemon.start()
    ready(daemon, 3)
    for _ in range(3):
        b = daemon.create(template="t")
        assert b["pooled"] and daemon.sh(b["id"], "echo lives")["stdout"] == "lives\n"


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().split(b"\0")
    except OSError:
        return []


@pytest.mark.parametrize("part", ["api", "all"])
def test_what_changed_while_nobody_looked_is_not_given_out(daemon, part):
    """The configuration's own defaults are part of what a ready one is."""
    put(daemon, "/v1/templates/t", {})
    put(daemon, "/v1/pools/p", {"template": "t", "min": 2})
    ready(daemon, 2)
    old = fills(daemon)
    if part == "all":
        daemon.kill9("all")
        conf = daemon.data.parent / "more.conf"
        conf.write_text("memory = 96M\n")
        daemon.args += ["--config", str(conf)]
        daemon.start()
    else:
        daemon.crash(part)
    ready(daemon, 2)
    b = daemon.create(template="t")
    assert b["pooled"] and (b["id"] in old) == (part == "api") and b["memory"] == (96 << 20 if part == "all" else 512 << 20)


@pytest.mark.parametrize("part", ALL)
def test_filling_and_taking_while_it_dies(daemon, part):
    put(daemon, "/v1/templates/t", {"memory": "64M", "disk": "16M", "start": {"shell": "echo on > /tmp/on; exec sleep 1000"}})
    put(daemon, "/v1/pools/p", {"template": "t", "min": 6})
    got, doubt, stop = [], [], threading.Event()

    def caller():
        while not stop.is_set():
            try:
                r = daemon.post("/v1/sandboxes", {"template": "t"}, timeout=20)
                if r.status != 201:
                    doubt.append(r)
                    continue
                got.append((r.json["id"], r.json["pooled"]))
                seen = daemon.sh(r.json["id"], "cat /tmp/mark 2>/dev/null; echo used > /tmp/mark")["stdout"]
                assert seen == "", (r, seen)
                if random.random() < 0.7:
                    daemon.delete(f"/v1/sandboxes/{r.json['id']}")
            except (OSError, http.client.HTTPException, AssertionError) as problem:
                doubt.append(problem)

    threads = [threading.Thread(target=caller) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(4):
        time.sleep(random.uniform(0.05, 0.4))
        daemon.crash(part)
    time.sleep(0.3)
    stop.set()
    for t in threads:
        t.join(30)
    assert len({i for i, _ in got}) == len(got), "one was given out twice"
    assert not [x for x in doubt if isinstance(x, AssertionError) and "used" in str(x)], doubt
    assert any(p for _, p in got)
    ready(daemon, 6)
    states = daemon.states()
    assert set(states.values()) <= {"running"}, states
    assert daemon.get("/v1/pools/p").json["alive"] == 6 + len(states)
    for box in states:
        assert daemon.delete(f"/v1/sandboxes/{box}").status == 204
    for _ in range(6):  # those that were found again have their command
        b = daemon.create(template="t")
        host.wait_for(lambda b=b: daemon.sh(b["id"], "cat /tmp/on 2>/dev/null")["stdout"] == "on\n", 5, "the start command")
    daemon.verify()


@pytest.mark.parametrize("part", ["api", "all"])
def test_a_pool_that_is_deleted_stays_so(daemon, part):
    for i in range(4):
        put(daemon, "/v1/templates/t", {"memory": "64M", "env": {"I": str(i)}})
        put(daemon, "/v1/pools/p", {"template": "t", "min": 8})
        time.sleep(random.uniform(0, 0.05))

        def remove():
            try:
                daemon.delete("/v1/pools/p", timeout=10)
            except (OSError, http.client.HTTPException):
                pass

        t = threading.Thread(target=remove)
        t.start()
        time.sleep(random.uniform(0, 0.01))
        daemon.crash(part)
        t.join(20)
        daemon.delete("/v1/pools/p")
        assert daemon.get("/v1/pools").json["pools"] == [] and daemon.states() == {}
