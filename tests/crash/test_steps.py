"""Each step of checkpoint, fork, hibernate and wake is a place to die at, for each process that can: what comes afterwards is whole.

The programs of build/faulty wait at the step that a file names (src/base/step.h), until whoever is to die there is dead.
CLOCHE_STEPS=all kills each part at each step; otherwise each step sees one of them.
"""
import http.client
import os
import pathlib
import shutil
import threading
import time

import pytest

import host
from crash import Crashing, end_agent, running

SEAL = ["checkpoint.begun", "seal.begun", "seal.frozen", "seal.seized", "seal.held", "seal.ready", "seal.frozen_again", "seal.copied",
        "seal.written", "seal.named", "checkpoint.sealed", "checkpoint.stored"]
RESTORE = ["restore.told", "restore.done"]
STEPS = {
    "checkpoint": SEAL,
    "fork": SEAL[1:10] + RESTORE + ["fork.stored"],
    "hibernate": ["hibernate.frozen"] + SEAL + ["hibernate.sealed", "hibernate.noted", "hibernate.stored"],
    "wake": RESTORE + ["wake.made", "wake.noted", "wake.stored"],
}
PARTS = ["supervisor", "warden", "api", "agent", "dump", "layers"]
DUMP = {"seal.seized", "seal.held", "seal.ready", "seal.frozen_again", "seal.copied"}  # then there is one
LAYERS = {"seal.begun", "seal.frozen", "seal.seized", "seal.held", "seal.ready", "seal.frozen_again", "seal.copied", "seal.written", "seal.named"}


def cases(kind):
    all_of_them = os.environ.get("CLOCHE_STEPS") == "all"
    for n, step in enumerate(STEPS[kind]):
        parts = [p for p in PARTS if step in {"dump": DUMP, "layers": LAYERS}.get(p, STEPS[kind])]
        # A wake has no agent of before; a fork's and a checkpoint's source may die as well.
        if kind == "wake":
            parts.remove("agent")
        few = [["warden", "api"][n % 2]] + {"seal.held": ["supervisor", "dump"], "wake.made": ["supervisor"], "seal.frozen": ["layers"], "seal.copied": ["layers"], "seal.written": ["layers"]}.get(step, [])
        yield from ((step, part) for part in (parts if all_of_them else few))


class Stepping(Crashing):
    def __init__(self):
        super().__init__(env={"CLOCHE_STEP": ""})
        # A folder that the API's user may rename in.
        self.step = pathlib.Path(self.own) / "steps" / "step"
        self.step.parent.mkdir()
        os.chmod(self.step.parent, 0o777)
        self.at = self.step.with_name("step.at")
        self.env["CLOCHE_STEP"] = str(self.step)

    def stop_at(self, step):
        new = self.step.with_name("new")
        new.write_text(step)
        os.chmod(new, 0o666)
        new.rename(self.step)

    def go_on(self):
        for path in (self.step, self.at):
            path.unlink(missing_ok=True)

    def kill(self, part, agent):
        """Kills by kill -9, and waits until all processes run again. Processes that wait at the step continue, unless
        they were killed."""
        warden = self.children()["warden"]
        if part == "agent":
            # In a frozen group it dies when that is thawed, which is the warden's to do.
            os.kill(agent, 9)
            self.go_on()
            end_agent(agent) if running(agent) else None
        elif part in ("dump", "layers"):
            for pid in host.children(warden):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith(f"cloche-{part}"):
                    os.kill(pid, 9)
            self.go_on()
        elif part == "supervisor":
            # The next one is started at once, while the warden of before may be at work still.
            self.kill9("supervisor")
            later = threading.Timer(0.5, self.go_on)
            later.start()
            self.start(40)
            later.join()
        else:
            before = self.children()[part]
            self.kill9(part)
            self.go_on()
            host.wait_for(lambda: self.children().get(part) not in (None, before), 30, f"a new {part}")
        self.go_on()
        host.wait_for(lambda: self.get("/healthz", timeout=30).status == 200, 30, "an answer")


@pytest.fixture
def daemon(nothing_is_left_behind, tmp_path_factory, monkeypatch):
    programs = tmp_path_factory.mktemp("programs")
    os.chmod(programs, 0o755)
    for name in ("cloche", "cloche-agent", "cloche-dump", "cloche-files", "cloche-layers", "cloche-watch", "cloche-egress", "cloche-tar", "cloche-client", "cloche-seccomp"):
        shutil.copy2(host.BUILD / name, programs)
    for name in ("cloche-warden", "cloche-serve"):
        shutil.copy2(host.BUILD / "faulty" / name, programs)
    monkeypatch.setattr(host, "CLOCHE", programs / "cloche")
    with Stepping() as d:
        state = d.state_folder()
        yield d
    assert not state.exists(), "the warden's records are left behind"


def agent_of(daemon, box):
    """The sandbox's first process: what its exec says its pid namespace is, seen from here."""
    inside = daemon.exec(box, "readlink", "/proc/self/ns/pid")["stdout"].strip()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == inside and "\t1\n" in [
                    line.rsplit("NSpid:", 1)[1][-3:] for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines(True)
                    if line.startswith("NSpid:")]:
                return pid
        except (OSError, IndexError):
            pass
    raise AssertionError("no agent")


def ask(daemon, kind, box, answers):
    path = {"checkpoint": "checkpoints", "fork": "fork", "hibernate": "hibernate", "wake": "execs"}[kind]
    body = {"checkpoint": {"memory": True}, "fork": {"memory": True}, "hibernate": {}, "wake": {"cmd": ["cat", "f"]}}[kind]
    try:
        answers.append(daemon.post(f"/v1/sandboxes/{box}/{path}", body, timeout=60))
    except (OSError, http.client.HTTPException):
        answers.append(None)


def settled(daemon, box):
    """Within seconds it answers, or it is truthfully gone."""
    state = daemon.get(f"/v1/sandboxes/{box}").json["state"]
    if state == "lost":
        return state
    assert state in ("running", "hibernated"), state
    r = daemon.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["cat", "f"]}, timeout=30)
    ended = r.status == 502 or r.status == 200 and r.json["verdict"]["cause"] != "exited"  # its agent died before, or meanwhile
    if ended and daemon.get(f"/v1/sandboxes/{box}").json["state"] == "lost":
        return "lost"
    assert r.status == 200 and r.json["stdout"] == "kept\n", (r, daemon.output)
    return "running"


def new_box(daemon):
    box = daemon.create(memory="128M")["id"]
    assert daemon.sh(box, "echo kept > f")["exit_code"] == 0
    x = daemon.background(box, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done")
    host.wait_for(lambda: len(daemon.output_of(box, x)) > 10, 30, "its first words")
    return box, x


def odd_of(daemon, box, x):
    """Where what it says is not one more than before."""
    numbers = [0] + [int(i) for i in daemon.output_of(box, x).split(b"\n")[:-1]]
    return [(a, b) for a, b in zip(numbers, numbers[1:]) if b != a + 1]


@pytest.mark.parametrize("kind", STEPS)
def test_whoever_dies_at_a_step_leaves_it_whole(daemon, kind):
    box = x = None
    for step, part in cases(kind):
        if box is None:
            box, x = new_box(daemon)
        agent = agent_of(daemon, box) if part == "agent" else None
        if kind == "wake":
            assert daemon.post(f"/v1/sandboxes/{box}/hibernate", {}, timeout=60).status == 200
        answers = []
        daemon.stop_at(step)
        t = threading.Thread(target=ask, args=(daemon, kind, box, answers))
        t.start()
        end = time.monotonic() + 60
        while not daemon.at.exists():
            assert t.is_alive(), (step, part, answers, daemon.output)
            assert time.monotonic() < end, (step, part, daemon.output)
            time.sleep(0.005)
        daemon.kill(part, agent)
        t.join(60)
        assert not t.is_alive(), (step, part, daemon.output)
        state = settled(daemon, box)
        assert (state == "lost") <= (part == "agent"), (step, part, daemon.output)
        for c in daemon.get("/v1/checkpoints").json["checkpoints"]:
            new, = daemon.post(f"/v1/checkpoints/{c['id']}/restore").json["sandboxes"]
            assert daemon.exec(new["id"], "cat", "f")["stdout"] == "kept\n", (step, part)
            assert daemon.delete(f"/v1/checkpoints/{c['id']}").status == 204
        for other in set(daemon.states()) - {box}:
            assert settled(daemon, other) == "running", (step, part)
            assert daemon.delete(f"/v1/sandboxes/{other}").status == 204
        if state == "lost":
            assert daemon.delete(f"/v1/sandboxes/{box}").status == 204
            box = None
            continue
        assert daemon.get(f"/v1/sandboxes/{box}/execs/{x}").json["state"] == "running", (step, part)
        before = len(daemon.output_of(box, x))
        host.wait_for(lambda b=before: len(daemon.output_of(box, x)) > b, 30, f"it goes on after {step}, {part}")
        assert not odd_of(daemon, box, x), (step, part, odd_of(daemon, box, x))
    if box:
        assert daemon.delete(f"/v1/sandboxes/{box}").status == 204
    host.wait_for(lambda: not daemon.layers(), 60, "an empty store")


def test_output_that_a_worker_is_at_comes_once(daemon):
    """A worker that takes output out of a pipe is slow, and the sandbox is hibernated meanwhile."""
    box, x = new_box(daemon)
    answers = []
    for _ in range(2):
        daemon.stop_at("spool.pull")
        host.wait_for(daemon.at.exists, 30, "a worker at its output")
        t = threading.Thread(target=ask, args=(daemon, "hibernate", box, answers))
        t.start()
        t.join(1.5)  # one that does not wait for the worker is over by then, and has a copy of the pipe
        daemon.go_on()
        t.join(60)
        assert answers.pop().status == 200, daemon.output
        assert settled(daemon, box) == "running"
        before = len(daemon.output_of(box, x))
        host.wait_for(lambda b=before: len(daemon.output_of(box, x)) > b, 30, "it goes on")
        assert not odd_of(daemon, box, x), odd_of(daemon, box, x)
    assert daemon.delete(f"/v1/sandboxes/{box}").status == 204


def test_a_change_of_limits_that_was_not_stored_is_undone(daemon):
    box = daemon.create(memory="128M", pids=50)["id"]
    answers = []
    daemon.stop_at("limits.set")
    t = threading.Thread(target=lambda: answers.append(ask_patch(daemon, box)))
    t.start()
    host.wait_for(daemon.at.exists, 30, "new limits that are in force")
    daemon.kill("api", None)
    t.join(60)
    limits = daemon.get(f"/v1/sandboxes/{box}").json
    assert (limits["memory"], limits["pids"]) == (128 << 20, 50), (limits, answers)
    host.wait_for(lambda: daemon.exec(box, "cat", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max")["stdout"].split()
                  == [str(128 << 20), "50"], 30, "the limits that are stored")
    assert daemon.delete(f"/v1/sandboxes/{box}").status == 204


def ask_patch(daemon, box):
    try:
        return daemon.request("PATCH", f"/v1/sandboxes/{box}", {"memory": "256M", "pids": 90})
    except (OSError, http.client.HTTPException):
        return None
