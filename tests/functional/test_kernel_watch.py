"""cloche-watch, which looks at kernel memory for the warden: what it may do, and what holds when it dies (docs/design/0013-kernel-memory.md)."""
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import host
from api import eventually
from daemon import Daemon

LIMITS = pathlib.Path(__file__).resolve().parents[1] / "limits"
CAPABILITIES = 1 << 2 | 1 << 19 | 1 << 23  # DAC_READ_SEARCH, SYS_PTRACE, SYS_NICE


@pytest.fixture(autouse=True)
def d(nothing_is_left_behind):  # pylint: disable=unused-argument
    with Daemon() as one:
        yield one


@pytest.fixture(scope="module")
def fillers(tmp_path_factory):
    found = {}
    for name in ("fill_sockets", "fill_objects"):
        found[name] = tmp_path_factory.mktemp("fillers") / name
        subprocess.run(["gcc", "-O1", "-w", "-static", "-pthread", "-o", found[name], LIMITS / f"{name}.c"], check=True)
    return found


def watch_of(d):
    for pid in host.children(d.children()["warden"]):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "cloche-watch\n":
                return pid
        except OSError:
            pass
    return None


def another(d, before, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = watch_of(d)
        if now and now != before:
            return now
        time.sleep(0.01)
    raise AssertionError(f"no other cloche-watch within {seconds} s:\n{d.output}")


def test_it_may_look_and_nothing_else(d):
    d.create(memory="64M")
    pid = watch_of(d)
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        assert {int(status[x], 16) for x in ("CapPrm", "CapEff")} == {CAPABILITIES}, status
        assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0, status
        assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4, status
        assert status["Groups"].strip() == "" and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
        assert status.get("Seccomp_filters", "2") == "2", status  # the warden's, and its own list
    kinds = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
    assert not [k for k in kinds if "cloche.sock" in k or "state" in k.split("/")], kinds
    for n in os.listdir(f"/proc/{pid}/fdinfo"):
        flags = int(pathlib.Path(f"/proc/{pid}/fdinfo/{n}").read_text().split("flags:\t")[1].split()[0], 8)
        link = os.readlink(f"/proc/{pid}/fd/{n}")
        if link.startswith("/") and link != "/dev/null" and not link.startswith("/proc/"):
            shown = link.split("/")[-1] in ("meminfo", "loadavg") and not os.path.exists(link)  # of a sandbox
            assert flags & os.O_PATH or int(n) < 3 or shown or link.startswith("/sys/fs/cgroup/") and not flags & 3, (n, link, flags)


@pytest.mark.parametrize("filler, kind, told", [("fill_sockets", "accept", "sockets"), ("fill_objects", "locksmapshm", "locks")])
def test_limits_hold_while_it_is_killed_again_and_again(d, fillers, filler, kind, told):
    other, box = d.create(memory="64M")["id"], d.create(memory="64M")["id"]
    assert d.put(f"/v1/sandboxes/{box}/files?path=/tmp/fill&mode=0755", fillers[filler].read_bytes()).status in (200, 201)
    kept = d.post(f"/v1/sandboxes/{other}/execs", {"cmd": ["sleep", "1000"], "background": True}).json["id"]
    over, killed = threading.Event(), []

    def kill():
        while not over.wait(0.7):  # fewer than are taken for one that cannot run
            pid = watch_of(d)
            if pid:
                os.kill(pid, signal.SIGKILL)
                killed.append(another(d, pid))

    killer = threading.Thread(target=kill)
    os.kill(watch_of(d), signal.SIGKILL)
    killer.start()
    try:
        x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["/tmp/fill", kind, "8", "60"]}, timeout=120).json
    finally:
        over.set()
        killer.join()
    assert (x["verdict"]["cause"], x["verdict"].get("oom_kind")) == ("oom", told), (x, killed)
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sh", "-c", "true | true && echo alive"]}).json
    assert x["stdout"] == "alive\n" and x["verdict"]["cause"] == "exited", x
    x = d.get(f"/v1/sandboxes/{other}/execs/{kept}").json
    assert x["state"] == "running", x
    stats = d.get(f"/v1/sandboxes/{box}/stats").json
    assert stats["oom_kills"] >= 1 and told in stats["kernel_memory"], stats


HOLD = """
import socket, sys, time
s = socket.create_server(("127.0.0.1", 0))
kept = []
for _ in range(40): # nobody accepts them: what waits in them is not counted by the group
    c = socket.create_connection(s.getsockname())
    c.setblocking(False)
    try:
        while True:
            c.send(bytes(65536))
    except BlockingIOError:
        kept.append(c)
print("filled", flush=True)
while True:
    time.sleep(0.001)
"""


def test_figures_are_the_same_after_it_was_started_again(d):
    box = d.create(memory="256M")["id"]
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["/usr/bin/python3", "-c", HOLD], "background": True}).json["id"]

    def sockets():
        return d.get(f"/v1/sandboxes/{box}/stats").json["kernel_memory"].get("sockets", 0)

    end = time.monotonic() + 20
    while sockets() < 4 << 20 and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1)
    before, pid = sockets(), watch_of(d)
    assert before >= 4 << 20
    os.kill(pid, signal.SIGKILL)
    assert sockets() == before  # until it has looked
    another(d, pid)
    time.sleep(1)
    assert abs(sockets() - before) < before / 4, (before, sockets())
    assert d.get(f"/v1/sandboxes/{box}/execs/{x}").json["state"] == "running"


def test_what_does_not_look_is_replaced(d):
    box = d.create(memory="64M")["id"]
    pid = watch_of(d)
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    another(d, pid, 30)
    assert time.monotonic() - start >= 5
    assert not pathlib.Path(f"/proc/{pid}").exists()
    assert d.exec(box, "echo", "alive")["stdout"] == "alive\n"


def test_where_none_can_look_nothing_runs(d):
    box = d.create(memory="64M")["id"]
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sleep", "1000"], "background": True}).json["id"]
    pid, end = None, time.monotonic() + 30
    state = "running"
    while state == "running" and time.monotonic() < end:
        pid = watch_of(d) or pid
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        time.sleep(0.02)
        state = d.get(f"/v1/sandboxes/{box}/execs/{x}").json["state"]
    assert state != "running"
    assert d.get(f"/v1/sandboxes/{box}").json["state"] != "running"
    end = time.monotonic() + 30
    while time.monotonic() < end:  # and again, when one can
        r = d.post("/v1/sandboxes", {"memory": "64M"})
        if r.status == 201 and d.post(f"/v1/sandboxes/{r.json['id']}/execs", {"cmd": ["echo", "alive"]}).json.get("stdout") == "alive\n":
            return
        time.sleep(0.5)
    raise AssertionError(r)


def ready_agents(d):
    found = []
    for pid in host.children(d.children()["warden"]):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "init\n":
                found.append(pid)
        except OSError:
            pass
    return found


def test_a_create_is_answered_when_its_agent_is_ended_before_it_has_read_anything(d):
    """Nothing is watched, so the warden ends each new sandbox. Each process is stopped while it would be too early, as on a busy machine."""
    over, said = threading.Event(), []
    warden, api = d.children()["warden"], d.children()["api"]

    def kill():
        while not over.wait(0.01):
            pid = watch_of(d)
            if pid:
                os.kill(pid, signal.SIGKILL)

    def create():
        r = d.post("/v1/sandboxes", {"memory": "64M"}, timeout=60)
        said.append("created" if r.status == 201 else r.json["error"]["message"])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        eventually(lambda: "sandboxes are not watched" in d.output, 30)
        for n in range(3):
            creator = threading.Thread(target=create)
            eventually(lambda: ready_agents(d), 30)
            time.sleep(0.3)
            os.kill(warden, signal.SIGSTOP)
            for pid in ready_agents(d):
                os.kill(pid, signal.SIGSTOP)
            creator.start()
            time.sleep(0.3)  # the request is sent
            os.kill(api, signal.SIGSTOP)
            os.kill(warden, signal.SIGCONT)
            time.sleep(0.3)  # the agent is dead
            os.kill(api, signal.SIGCONT)
            creator.join()
            assert len(said) == n + 1, f"no answer:\n{d.output}"
        assert any("before the sandbox was ready" in x for x in said), said
    finally:
        over.set()
        killer.join()
        for pid in warden, api:
            os.kill(pid, signal.SIGCONT)
