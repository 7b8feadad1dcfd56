"""kill -9 at any moment of checkpoint, restore, fork and delete: what was answered is there, nothing half-made is to be seen."""
import http.client
import os
import random
import signal
import threading
import time
import uuid

import pytest

import host

ROUNDS, WORKERS = 3, 6


class Storm:
    """Callers that note what was answered, and only that."""

    def __init__(self, d, memory=False):
        self.memory = memory
        self.d, self.stop, self.lock = d, threading.Event(), threading.Lock()
        self.boxes, self.checkpoints = {}, {}  # id → what its file says
        self.deleted, self.doubt = set(), set()
        self.acked = {}

    def call(self, method, path, body=None):
        op = uuid.uuid4().hex
        r = self.d.request(method, path, body, headers={"X-Request-Id": op}, timeout=40)
        if r.status not in (200, 201, 204):
            return None
        self.acked[op] = (method, path)
        return r.json if r.body else {}

    def note(self, of, what, content):
        with self.lock:
            of[what["id"]] = content

    def one(self):
        text = uuid.uuid4().hex
        box = self.call("POST", "/v1/sandboxes", {"memory": "64M", "disk": "16M"})
        if not box or self.call("PUT", f"/v1/sandboxes/{box['id']}/files?path=/tmp/f", text.encode()) is None:
            return
        self.note(self.boxes, box, text)
        place = f"/v1/sandboxes/{box['id']}"
        if self.memory:
            self.call("POST", place + "/execs", {"cmd": ["sleep", "1000"], "background": True})
        c = self.call("POST", place + "/checkpoints", {"name": "c", "memory": "auto" if self.memory else False})
        if not c:
            return
        self.note(self.checkpoints, c, text)
        for made in (self.call("POST", f"/v1/checkpoints/{c['id']}/restore", {"count": 2}), self.call("POST", place + "/fork", {"count": 2, "memory": "auto" if self.memory else False})):
            for b in (made or {}).get("sandboxes", []):
                self.note(self.boxes, b, text)
        # Until it is answered the file is the old one or the new one.
        self.note(self.boxes, box, None)
        other = uuid.uuid4().hex
        if self.call("PUT", place + "/files?path=/tmp/f", other.encode()) is not None:
            self.note(self.boxes, box, {text, other})
            if self.call("POST", place + "/restore", {"checkpoint": "c"}):
                self.note(self.boxes, box, text)
        if random.random() < 0.5:
            self.doubt.add(c["id"])
            if self.call("DELETE", f"/v1/checkpoints/{c['id']}") is not None:
                self.deleted.add(c["id"])

    def work(self):
        while not self.stop.is_set():
            try:
                self.one()
            except (OSError, ValueError, http.client.HTTPException):
                time.sleep(0.05)

    def blow(self, seconds, then):
        self.stop.clear()
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(WORKERS)]
        for t in threads:
            t.start()
        time.sleep(seconds)
        then()
        self.stop.set()
        for t in threads:
            t.join(60)
            assert not t.is_alive(), "a call is not answered"

    def file_of(self, box):
        r = self.d.get(f"/v1/sandboxes/{box}/files?path=/tmp/f")
        return r.body.decode() if r.status == 200 else r

    def listed(self):
        found, cursor = {}, ""
        while cursor is not None:
            page = self.d.get("/v1/checkpoints?limit=1000" + (f"&cursor={cursor}" if cursor else "")).json
            found.update({c["id"]: c for c in page["checkpoints"]})
            cursor = page["next"]
        return found

    def check(self):
        states, listed, noted = self.d.states(), self.listed(), self.d.requests()
        twice = {op: what for op, what in self.acked.items() if noted.get(op) != 1}
        assert not twice, twice
        lost = {b: states.get(b) for b in self.boxes if states.get(b) != "running"}
        assert not lost, f"{lost}\n" + "\n".join(self.d.log[-30:])
        assert not self.deleted & set(listed) and not set(self.checkpoints) - set(listed) - self.doubt
        assert all(c["state"] == "made" for c in listed.values())
        for box, text in self.boxes.items():
            if text is not None:
                is_ = self.file_of(box)
                assert is_ in text if isinstance(text, set) else is_ == text, (box, is_, text)
        for c, text in random.sample(sorted(self.checkpoints.items()), min(10, len(self.checkpoints))):
            if c in listed:
                new, = self.d.post(f"/v1/checkpoints/{c}/restore").json["sandboxes"]
                assert self.file_of(new["id"]) == text
                assert self.d.delete(f"/v1/sandboxes/{new['id']}").status == 204
        self.d.verify()

    def clear(self):
        """Everything goes, and then nothing of it is left on the disk."""
        for box in self.d.states():
            self.d.delete(f"/v1/sandboxes/{box}")
        for c in self.listed():
            assert self.d.delete(f"/v1/checkpoints/{c}").status == 204
        host.wait_for(lambda: not self.d.layers(), 30, "an empty store")


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("part", ["api", "warden", "supervisor", "all"])
def test_what_was_answered_is_there(daemon, part, memory):
    storm, rounds, until = Storm(daemon, memory), 0, time.monotonic() + 120
    # On a busy machine more rounds are needed before enough was answered.
    while rounds < ROUNDS or (len(storm.checkpoints) <= 5 and time.monotonic() < until):
        rounds += 1
        storm.blow(random.uniform(0.2, 1.5), lambda: daemon.kill9(part))
        if part in ("supervisor", "all"):
            daemon.start()
        assert daemon.get("/healthz", timeout=10).status == 200
        storm.check()
    assert len(storm.checkpoints) > 5
    storm.clear()


@pytest.mark.parametrize("part", ["api", "warden", "all"])
def test_the_source_runs_on_and_nothing_half_made_stays(daemon, part):
    box = daemon.create(memory="256M")["id"]
    daemon.sh(box, "head -c 60000000 /dev/urandom > f; sha256sum f > s")
    x = daemon.background(box, "while :; do date +%s%N; sleep 0.02; done")
    for _ in range(4):
        def ask():
            try:
                daemon.post(f"/v1/sandboxes/{box}/checkpoints", {}, timeout=30)
            except (OSError, http.client.HTTPException):
                pass
        t = threading.Thread(target=ask)
        t.start()
        time.sleep(random.uniform(0.01, 0.25))
        daemon.crash(part)
        t.join(40)
        assert not t.is_alive()
        assert daemon.get(f"/v1/sandboxes/{box}").json["state"] == "running"
        before = len(daemon.output_of(box, x))
        host.wait_for(lambda: len(daemon.output_of(box, x)) > before, 5, "it runs on")
        assert daemon.sh(box, "sha256sum -c s")["stdout"] == "f: OK\n"
        for c in daemon.get("/v1/checkpoints").json["checkpoints"]:
            new, = daemon.post(f"/v1/checkpoints/{c['id']}/restore").json["sandboxes"]
            assert daemon.sh(new["id"], "sha256sum -c s")["stdout"] == "f: OK\n"
            assert daemon.delete(f"/v1/sandboxes/{new['id']}").status == 204
            assert daemon.delete(f"/v1/checkpoints/{c['id']}").status == 204
    daemon.delete(f"/v1/sandboxes/{box}")
    host.wait_for(lambda: not daemon.layers(), 30, "an empty store")


@pytest.mark.parametrize("part", ["api", "warden", "all"])
def test_it_sleeps_and_wakes_whatever_dies(daemon, part):
    """Killed at some moment of falling asleep or waking up: it is the one or the other, with all it had, and nothing is said twice."""
    box = daemon.create(memory="128M")["id"]
    daemon.sh(box, "echo kept > f")
    x = daemon.background(box, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done")
    host.wait_for(lambda: len(daemon.output_of(box, x)) > 10, 10, "its first words")
    for n in range(8):
        def ask(turn=n):
            try:
                if turn % 2:
                    daemon.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["cat", "f"]}, timeout=30)
                else:
                    daemon.post(f"/v1/sandboxes/{box}/hibernate", {}, timeout=30)
            except (OSError, http.client.HTTPException):
                pass
        t = threading.Thread(target=ask)
        t.start()
        time.sleep(random.uniform(0, 0.15))
        daemon.crash(part)
        t.join(40)
        assert not t.is_alive()
        state = daemon.get(f"/v1/sandboxes/{box}").json["state"]
        assert state in ("running", "hibernated"), (state, "\n".join(daemon.log[-20:]))
    assert daemon.sh(box, "cat f")["stdout"] == "kept\n"
    assert daemon.get(f"/v1/sandboxes/{box}/execs/{x}").json["state"] == "running"
    before = len(daemon.output_of(box, x))
    host.wait_for(lambda: len(daemon.output_of(box, x)) > before + 20, 10, "it goes on")
    numbers = [int(i) for i in daemon.output_of(box, x).split(b"\n")[:-1]]
    assert numbers == list(range(1, len(numbers) + 1)), numbers
    daemon.delete(f"/v1/sandboxes/{box}")
    host.wait_for(lambda: not daemon.layers(), 30, "an empty store")


def test_a_warden_that_hangs_and_dies_does_not_keep_garbage(daemon):
    """The sweep of the store waits for a layer in use; that must not make later sweeps rare."""
    box = daemon.create()["id"]
    first, second = (daemon.post(f"/v1/sandboxes/{box}/checkpoints", {}).json["id"] for _ in range(2))
    warden = daemon.children()["warden"]
    os.kill(warden, signal.SIGSTOP)
    assert daemon.delete(f"/v1/checkpoints/{first}").status == 204
    time.sleep(2.5)
    os.kill(warden, signal.SIGKILL)
    host.wait_for(lambda: not (daemon.data / "layers" / first).exists(), 20, "the end of the first")
    assert daemon.delete(f"/v1/checkpoints/{second}").status == 204
    host.wait_for(lambda: not (daemon.data / "layers" / second).exists(), 12, "the end of the second")
