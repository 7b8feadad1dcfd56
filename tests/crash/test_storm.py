"""Everything at once while processes die at random: nothing that was answered is lost, nothing stays frozen, nothing is left.

CLOCHE_STORM_ROUNDS says how often somebody dies.
"""
import http.client
import os
import pathlib
import random
import threading
import time

import host
from crash import running

ROUNDS = int(os.environ.get("CLOCHE_STORM_ROUNDS", "3"))
WORKERS = 3
BOXES_MAX = 8


class Storm:
    def __init__(self, daemon):
        self.d, self.lock, self.stop = daemon, threading.Lock(), threading.Event()
        self.boxes = {}  # id: what is in its file
        self.talkers = {}  # id: a background exec that counts
        self.checkpoints = {}  # id: what is in its file
        self.doubt = set()  # whose end was asked for, without an answer
        self.busy = set()  # somebody does something that changes what it is
        self.done = {}
        self.wrong = []  # what a worker found

    def call(self, method, path, body=None):
        try:
            r = self.d.request(method, path, {} if body is None and method == "POST" else body, timeout=60)
        except (OSError, http.client.HTTPException):
            return None
        return r if r.status < 300 else None

    def count(self, what):
        with self.lock:
            self.done[what] = self.done.get(what, 0) + 1

    def take(self):
        with self.lock:
            free = sorted(set(self.boxes) - self.busy)
            if not free:
                return None
            box = random.choice(free)
            self.busy.add(box)
            return box

    def create(self):
        text = os.urandom(8).hex()
        r = self.call("POST", "/v1/sandboxes", {"memory": "96M", "disk": "16M"})
        if not r:
            return
        box = r.json["id"]
        ok = self.call("POST", f"/v1/sandboxes/{box}/execs", {"cmd": ["sh", "-c", f"echo {text} > f.new && mv f.new f"]})
        script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done"
        x = self.call("POST", f"/v1/sandboxes/{box}/execs", {"cmd": ["sh", "-c", script], "background": True})
        with self.lock:
            self.boxes[box] = text if ok else None
            if x:
                self.talkers[box] = x.json["id"]
        self.count("create")

    def checkpoint(self, box):
        r = self.call("POST", f"/v1/sandboxes/{box}/checkpoints", {"memory": random.choice([True, "auto", False])})
        if r:
            with self.lock:
                self.checkpoints[r.json["id"]] = self.boxes[box]
            self.count("checkpoint")

    def fork(self, box):
        r = self.call("POST", f"/v1/sandboxes/{box}/fork", {"memory": random.choice([True, "auto"])})
        if r:
            with self.lock:
                for new in r.json["sandboxes"]:
                    self.boxes[new["id"]] = self.boxes[box]
            self.count("fork")

    def hibernate(self, box):
        if self.call("POST", f"/v1/sandboxes/{box}/hibernate"):
            self.count("hibernate")

    def look(self, box):
        r = self.call("POST", f"/v1/sandboxes/{box}/execs", {"cmd": ["cat", "f"]})
        if r and self.boxes[box]:
            assert r.json["stdout"].strip() == self.boxes[box], (box, r)
            self.count("exec")

    def delete(self, box):
        with self.lock:
            self.doubt.add(box)
        if self.call("DELETE", f"/v1/sandboxes/{box}"):
            with self.lock:
                del self.boxes[box]
                self.talkers.pop(box, None)
            self.count("delete")

    def work(self):
        while not self.stop.is_set():
            if len(self.boxes) < 3:
                self.create()  # raises nothing
                continue
            box = self.take()
            if not box:
                time.sleep(0.01)
                continue
            what = [self.checkpoint, self.fork, self.hibernate, self.hibernate, self.look, self.look, self.delete]
            try:
                (self.delete if len(self.boxes) > BOXES_MAX else random.choice(what))(box)
            except BaseException as e:  # pylint: disable=broad-except  # an exception ends a thread, not the test
                self.wrong.append(e)
                return
            finally:
                with self.lock:
                    self.busy.discard(box)

    def each_once(self):
        """Whatever did not succeed in the storm does when all is calm: a request that never works would go unseen."""
        if "create" not in self.done:
            self.create()
        for name, what in {"checkpoint": self.checkpoint, "fork": self.fork, "hibernate": self.hibernate, "exec": self.look, "delete": self.delete}.items():
            if name not in self.done:
                if not any(self.boxes.values()):
                    self.create()
                what(next(box for box, text in self.boxes.items() if text))
            assert name in self.done, (name, self.done, self.d.output)

    def die(self):
        part = random.choice(["api", "warden", "supervisor", "all", "dump"])
        d = self.d
        if part == "dump":
            for pid in host.children(d.children().get("warden", 0)):
                try:
                    if pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").startswith("cloche-dump"):
                        os.kill(pid, 9)
                except OSError:
                    pass
            return part
        before = host.wait_for(lambda: len(d.children()) == 3 and d.children(), 30, "all children")
        d.kill9(part)
        if part in ("supervisor", "all"):
            # A warden that is at work may take longer to end on a busy machine than the next one waits for it.
            host.wait_for(lambda: not running(before["warden"]), 60, "the end of the warden")
            d.start(60)
        return part

    def blow(self):
        self.stop.clear()
        threads = [threading.Thread(target=self.work) for _ in range(WORKERS)]
        for t in threads:
            t.start()
        time.sleep(random.uniform(0.1, 1.0))
        part = self.die()
        time.sleep(random.uniform(0, 0.3))
        self.stop.set()
        for t in threads:
            t.join(120)
            assert not t.is_alive(), (part, self.d.output)
        for e in self.wrong:
            raise AssertionError((part, self.d.output)) from e
        return part

    def check(self, part):
        d = self.d
        host.wait_for(lambda: d.get("/healthz", timeout=30).status == 200, 30, "an answer")
        states = d.states()
        for box in set(self.boxes) & self.doubt:
            if box not in states:
                del self.boxes[box]
                self.talkers.pop(box, None)
        self.doubt.clear()
        assert set(self.boxes) <= set(states), (part, set(self.boxes) - set(states), d.output)
        for box in states:  # also those whose answer was lost
            assert states[box] in ("running", "hibernated"), (part, box, states[box], d.output)
            r = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sh", "-c", "cat f 2>/dev/null; true"]}, timeout=60)
            assert r.status == 200, (part, box, r, d.output)
            assert self.boxes.get(box) in (None, r.json["stdout"].strip()), (part, box, r)
            self.boxes.setdefault(box, None)
        for box, x in self.talkers.items():
            numbers = [int(i) for i in d.output_of(box, x).split(b"\n")[:-1]]
            assert numbers == list(range(1, len(numbers) + 1)), (part, box, numbers)
            assert d.get(f"/v1/sandboxes/{box}/execs/{x}").json["state"] == "running", (part, box, d.output)
        listed = {c["id"]: c["state"] for c in d.get("/v1/checkpoints?limit=1000").json["checkpoints"]}
        assert set(self.checkpoints) <= set(listed) and set(listed.values()) <= {"made"}, (part, listed, d.output)
        for c in random.sample(sorted(self.checkpoints), min(1, len(self.checkpoints))):
            new, = d.post(f"/v1/checkpoints/{c}/restore").json["sandboxes"]
            got = d.exec(new["id"], "cat", "f")["stdout"].strip() if self.checkpoints[c] else None
            assert got == self.checkpoints[c], (part, c)
            assert d.delete(f"/v1/sandboxes/{new['id']}").status == 204
        for c in list(listed)[5:]:
            assert d.delete(f"/v1/checkpoints/{c}").status == 204
            self.checkpoints.pop(c, None)


def test_nothing_is_lost_and_nothing_is_frozen(daemon):
    storm = Storm(daemon)
    for _ in range(ROUNDS):
        storm.check(storm.blow())
    storm.each_once()
    print(storm.done)
    for box in daemon.states():
        assert daemon.delete(f"/v1/sandboxes/{box}").status == 204
    for c in daemon.get("/v1/checkpoints?limit=1000").json["checkpoints"]:
        assert daemon.delete(f"/v1/checkpoints/{c['id']}").status == 204
    try:
        host.wait_for(lambda: not daemon.layers(), 60, "an empty store")
    except AssertionError as e:
        raise AssertionError((sorted(daemon.layers()), daemon.output)) from e
    daemon.verify()
