"""Sandboxes whose daemon dies: none is lost, none comes back, none stays half-made."""
import os
import random
import signal
import socket
import sqlite3
import threading
import time

import pytest

import host
from crash import PARTS, end_agent, running
from test_kill9 import Storm

SOAK = float(os.environ.get("CLOCHE_SOAK", "15"))


def test_the_warden_dies_while_the_new_daemon_asks_it(daemon):
    boxes = {daemon.create(name=f"b{i}")["id"] for i in range(25)}
    for i in range(8):
        parts = daemon.children()
        os.kill(parts["api"], signal.SIGKILL)
        time.sleep(0.004 * i)
        os.kill(parts["warden"], signal.SIGKILL)
        host.wait_for(lambda p=parts: len(now := daemon.children()) == 3 and now["api"] != p["api"] and now["warden"] != p["warden"], 10,
                      "both to come back")
        assert daemon.states() == {b: "running" for b in boxes}
    for box in boxes:
        assert daemon.sh(box, "echo $$")["exit_code"] == 0


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_create_leaves_one_or_none(daemon, part):
    def create(i):
        try:
            daemon.post("/v1/sandboxes", {"name": f"n{i}"}, timeout=20)
        except OSError:
            pass

    for k in range(4):
        threads = [threading.Thread(target=create, args=(k * 10 + i,)) for i in range(10)]
        for t in threads:
            t.start()
        time.sleep(random.uniform(0, 0.03))
        daemon.crash(part)
        for t in threads:
            t.join(30)
    states = daemon.states()
    assert set(states.values()) <= {"running"}
    for box in states:
        assert daemon.sh(box, "true")["exit_code"] == 0
    # As many agents as sandboxes, and what is kept ready: the rest is seen when all are deleted.
    for box in states:
        assert daemon.delete(f"/v1/sandboxes/{box}").status == 204
    assert daemon.states() == {}


def test_one_whose_agent_dies_is_lost_and_the_others_are_not(daemon):
    one, other = daemon.create()["id"], daemon.create()["id"]
    x = daemon.background(one, "exec sleep 1000")
    agent = host.wait_for(lambda: agents(daemon, b"1000"), 5, "the sleep")[0]
    os.kill(agent, signal.SIGKILL)
    assert daemon.end_of(one, x)["verdict"]["cause"] == "lost"
    assert daemon.states() == {one: "lost", other: "running"}
    daemon.crash("all")
    assert daemon.states() == {one: "lost", other: "running"}
    assert daemon.post(f"/v1/sandboxes/{one}/execs", {"cmd": ["true"]}).status == 502
    assert daemon.delete(f"/v1/sandboxes/{one}").status == 204


def test_an_agent_that_died_with_everybody_else_is_noted_as_lost(daemon):
    one, other = daemon.create()["id"], daemon.create()["id"]
    x = daemon.background(one, "exec sleep 1000")
    agent = host.wait_for(lambda: agents(daemon, b"1000"), 5, "the sleep")[0]
    daemon.kill9("all")
    end_agent(agent)
    daemon.start()
    assert daemon.states() == {one: "lost", other: "running"}
    assert daemon.end_of(one, x)["verdict"]["cause"] == "lost"
    assert [r["kind"] for r, _ in daemon.records()].count("sandbox.lost") == 1


def test_a_row_that_can_not_be_read_costs_nobody_a_sandbox(daemon):
    one, other = daemon.create()["id"], daemon.create()["id"]
    assert daemon.sh(one, "echo kept > /tmp/f")["exit_code"] == 0
    daemon.stop()
    with sqlite3.connect(daemon.data / "state.db") as db:
        spec = db.execute("SELECT spec FROM boxes WHERE id = ?", (one,)).fetchone()[0]
        db.execute("UPDATE boxes SET spec = '{' WHERE id = ?", (one,))
    db.close()
    daemon.start()
    assert daemon.states() == {other: "running"}
    daemon.crash("warden")
    assert daemon.sh(other, "true")["exit_code"] == 0
    daemon.stop()
    with sqlite3.connect(daemon.data / "state.db") as db:
        db.execute("UPDATE boxes SET spec = ? WHERE id = ?", (spec, one))
    db.close()
    daemon.start()
    assert daemon.sh(one, "cat /tmp/f")["stdout"] == "kept\n"


@pytest.mark.parametrize("part", PARTS)
def test_quotas_count_what_was_there_before(daemon, part):
    r = daemon.post("/v1/tenants", {"id": "few", "quotas": {"sandboxes": 2}})
    assert r.status == 201, r
    r = daemon.post("/v1/tokens", {"tenant": "few", "scope": "sandbox"})
    token = r.json["token"]
    boxes = [daemon.post("/v1/sandboxes", {}, token=token).json["id"] for _ in range(2)]
    daemon.crash(part)
    assert daemon.post("/v1/sandboxes", {}, token=token).status == 429
    assert daemon.delete(f"/v1/sandboxes/{boxes[0]}", token=token).status == 204
    assert daemon.post("/v1/sandboxes", {}, token=token).status == 201
    assert daemon.post("/v1/sandboxes", {}, token=token).status == 429


@pytest.mark.parametrize("part", PARTS)
def test_a_deadline_that_passes_while_all_are_dead_is_kept(daemon, part):
    box = daemon.create(timeout=1)["id"]
    kept = daemon.create(timeout=1000)["id"]
    daemon.crash(part)
    host.wait_for(lambda: daemon.states() == {kept: "running"}, 5, f"the end of {box}")


def test_spools_of_what_is_gone_are_gone(daemon):
    box = daemon.create()["id"]
    x = daemon.background(box, "echo out")
    daemon.end_of(box, x)
    spool = daemon.data / "spool"
    assert any(f.name.startswith(x) for f in spool.iterdir())
    stray = spool / "0000aaaaaaaaaaaaaaaaaaaa.1"
    stray.write_bytes(b"of nobody")
    daemon.crash("api")
    assert not stray.exists() and daemon.output_of(box, x) == b"out\n"
    assert daemon.delete(f"/v1/sandboxes/{box}").status == 204
    host.wait_for(lambda: not list(spool.iterdir()), 5, "an empty folder")


def test_a_link_to_an_agent_that_breaks_is_made_again(daemon):
    box = daemon.create()["id"]
    x = daemon.background(box, "sleep 1; echo out; sleep 1; exit 8 # 1000", timeout=60)
    daemon.background(box, "exec sleep 1000")
    agent = host.wait_for(lambda: agents(daemon, b"1000"), 5, "the sleep")[0]
    for _ in range(4):
        with taken(agent, 3) as control:
            control.shutdown(socket.SHUT_RDWR)
        host.wait_for(lambda: daemon.exec(box, "echo", "hi")["stdout"] == "hi\n", 5, "an exec")
    end = daemon.end_of(box, x)
    assert end["exit_code"] == 8 and end["stdout"] == "out\n"
    assert daemon.states() == {box: "running"}


@pytest.mark.parametrize("part", ["api", "all"])
def test_a_paused_sandbox_that_nobody_can_reach_is_not_lost(daemon, part):
    """Every daemon that comes back leaves a socket at its door, and there is room for only so many."""
    box = daemon.create()["id"]
    x = daemon.background(box, "exec sleep 1000", timeout=600)
    agent = host.wait_for(lambda: agents(daemon, b"1000"), 5, "the sleep")[0]
    assert daemon.post(f"/v1/sandboxes/{box}/pause").status == 200
    ends, left = socket.socketpair(), 100000
    with taken(agent, 6) as door:
        door.setblocking(False)
        while left:
            try:
                socket.send_fds(door, [b"a"], [ends[0].fileno()])
                left -= 1
            except (BlockingIOError, OSError):
                break
    for s in ends:
        s.close()
    assert left
    daemon.crash(part)
    assert daemon.states() == {box: "paused"}
    assert daemon.post(f"/v1/sandboxes/{box}/resume").status == 200
    assert daemon.sh(box, "echo here")["stdout"] == "here\n"
    assert daemon.get(f"/v1/sandboxes/{box}/execs/{x}").json["state"] == "running"


def test_random_deaths(daemon):
    """Everything at once for a while."""
    paused, talker = daemon.create(name="paused")["id"], daemon.create(name="talker")["id"]
    assert daemon.sh(paused, "echo kept > /tmp/f")["exit_code"] == 0
    assert daemon.post(f"/v1/sandboxes/{paused}/pause").status == 200
    x = daemon.background(talker, "n=0; until [ -e /tmp/stop ]; do n=$((n+1)); echo $n; sleep 0.005; done; exit 11", timeout=600)
    storm, end = Storm(daemon), time.monotonic() + SOAK

    def die():
        while time.monotonic() < end:
            time.sleep(random.uniform(0, 0.5))
            daemon.crash(random.choice(["api", "api", "warden", "warden", "supervisor", "all"]))

    storm.blow(0, die)
    storm.check()
    assert daemon.states()[paused] == "paused"
    assert daemon.post(f"/v1/sandboxes/{paused}/resume").status == 200
    assert daemon.sh(paused, "cat /tmp/f")["stdout"] == "kept\n"
    assert daemon.sh(talker, "touch /tmp/stop")["exit_code"] == 0
    assert daemon.end_of(talker, x)["exit_code"] == 11
    lines = daemon.output_of(talker, x).decode().split()
    assert lines == [str(i + 1) for i in range(len(lines))]


def taken(pid, number):
    """A copy of a socket of another process."""
    pidfd = os.pidfd_open(pid)
    try:
        fd = host.libc.syscall(438, pidfd, number, 0)  # pidfd_getfd
        host._check(fd, "pidfd_getfd")
        return socket.socket(fileno=fd)
    finally:
        os.close(pidfd)


def agents(daemon, seconds):
    """First processes of sandboxes in which a sleep of so many seconds runs."""
    found = []
    for pid in host.children(os.getpid()) + [c for p in [daemon.pid, *daemon.children().values()] for c in host.children(p)]:
        for child in host.children(pid):
            try:
                with open(f"/proc/{child}/cmdline", "rb") as f:
                    if f.read() == b"sleep\0" + seconds + b"\0" and running(pid):
                        found.append(pid)
            except OSError:
                pass
    return found
