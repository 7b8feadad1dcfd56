#!/usr/bin/python3
"""Many clients for a long time: does anything in the daemon grow?

    make soak [ARGS='--minutes 30 --clients 64']

Each client has a connection of its own and does, in turn, what users do: sandboxes with commands, files, background commands,
checkpoints and forks, all of which it removes again. Every five seconds the resident memory of the API process and the warden is
printed. After the first sixth of the time and at the end all clients pause, until no sandbox is left: then memory, descriptors, threads
and the size of the data folder are noted, which under load follow the number of sandboxes and calls under way. At the end they may
be at most a tenth larger. The audit log is not counted: it is a record of all that was done, and nothing removes records. How much it grows by
is printed. Exits with 1 when something grew, or when a call was answered in a way that it must not be.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import statistics
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
from daemon import Daemon  # noqa: E402

EVERY = 5.0
PARTS = "api", "warden"
SLACK = {"rss": 512 << 10, "fds": 64, "threads": 4, "store": 2 << 20}  # so much is no growth, whatever the ratio: a pool that is being filled
LOG_MAX = 66 << 20  # of the database's log, which starts over from time to time (LOG_LARGE in src/store/db.c)


class Client:
    """One client: a connection that stays, and calls in turn. What it made is gone at the end of each round."""

    def __init__(self, d, number):
        self.place, self.token = urllib.parse.urlsplit(d.url), d.token
        self.random = random.Random(number)
        self.c = None
        self.calls, self.busy, self.resting = 0, 0, False

    def call(self, method, path, body=None, good=(200, 201, 202, 204)):
        while True:
            if not self.c:
                self.c = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=300)
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            self.c.request(method, path, data, {"Authorization": f"Bearer {self.token}"})
            r = self.c.getresponse()
            text = r.read()
            self.calls += 1
            if r.status in (429, 503):  # a full host says so; the client waits
                self.busy += 1
                time.sleep(self.random.uniform(0.05, 0.5))
                continue
            if r.status not in good:
                raise AssertionError(f"{method} {path}: {r.status} {text[:300]!r}")
            return json.loads(text) if r.headers.get("Content-Type", "").startswith("application/json") else text

    def round(self):
        made = []
        box = self.call("POST", "/v1/sandboxes", {"memory": "64M", "timeout": "10m"})["id"]
        made.append(f"/v1/sandboxes/{box}")
        try:
            at = f"/v1/sandboxes/{box}"
            for i in range(self.random.randrange(1, 4)):
                x = self.call("POST", f"{at}/execs", {"cmd": ["sh", "-c", f"echo {i}; head -c 20000 /dev/zero"]})
                assert x["exit_code"] == 0, x
            self.call("PUT", f"{at}/files?path=/home/user/f", os.urandom(30000))
            assert len(self.call("GET", f"{at}/files?path=/home/user/f")) == 30000
            kind = self.random.random()
            if kind < 0.3:
                x = self.call("POST", f"{at}/execs", {"cmd": ["sh", "-c", "seq 2000"], "background": True})["id"]
                self.call("GET", f"{at}/execs/{x}/output?follow=1")
            elif kind < 0.4:
                layer = self.call("POST", f"{at}/checkpoints", {})["id"]
                made.append(f"/v1/checkpoints/{layer}")
                for one in self.call("POST", f"/v1/checkpoints/{layer}/restore", {"count": 1})["sandboxes"]:
                    made.append(f"/v1/sandboxes/{one['id']}")
            elif kind < 0.45:
                for one in self.call("POST", f"{at}/fork", {"count": 1, "memory": self.random.random() < 0.5})["sandboxes"]:
                    made.append(f"/v1/sandboxes/{one['id']}")
            elif kind < 0.5:
                self.call("POST", f"{at}/execs", {"cmd": ["no-such-program"]}, good=(200, 400, 404, 422))
                self.call("GET", "/v1/sandboxes?limit=50")
        finally:
            for path in reversed(made):
                self.call("DELETE", path, good=(204, 200, 404))


class Clients:
    def __init__(self, d, count):
        self.failed, self.stop, self.go = [], threading.Event(), threading.Event()
        self.go.set()
        self.all = [Client(d, i) for i in range(count)]
        self.threads = [threading.Thread(target=self.run, args=(c,)) for c in self.all]

    def run(self, client):
        while not self.stop.is_set():
            client.resting = not self.go.is_set()
            if client.resting:
                time.sleep(0.1)
                continue
            try:
                client.round()
            except Exception as e:  # pylint: disable=broad-exception-caught
                self.failed.append(f"{type(e).__name__}: {e}")
                client.c = None
                if len(self.failed) > 20:
                    self.stop.set()


def size(folder):
    """Of all but the audit log and the database's log, which has a bound of its own."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(at, name)).st_blocks * 512 if name not in ("audit.log", "state.db-wal") else 0
            except OSError:
                pass
    return total


def look(d):
    """{(part, what): number}"""
    found = {("data", "store"): size(d.data), ("data", "log"): (d.data / "state.db-wal").stat().st_blocks * 512}
    for part, pid in d.children().items():
        if part in PARTS:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            found[part, "rss"] = int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) * 1024
            found[part, "threads"] = int(re.search(r"Threads:\s+(\d+)", status).group(1))
            found[part, "fds"] = len(os.listdir(f"/proc/{pid}/fd"))
    return found


def quiet(d, clients):
    """What is there when no client calls and no sandbox is left: the least that was seen within some seconds."""
    clients.go.clear()
    end = time.monotonic() + 120
    while not all(c.resting for c in clients.all) or d.get("/v1/sandboxes?limit=1").json["sandboxes"]:
        assert time.monotonic() < end, "the clients do not come to rest"
        time.sleep(0.2)
    least = look(d)
    for _ in range(15):
        time.sleep(1)
        least = {k: min(v, least[k]) for k, v in look(d).items()}
    clients.go.set()
    return least


def show(key, value):
    return f"{value / (1 << 20):.2f}M" if key[1] in ("rss", "store", "log") else f"{value:.0f}"


def judge(samples, before, after):
    """Prints a row for each; those that grew."""
    grew = []
    sixth = max(1, len(samples) // 6)
    print(f"{'':22} {'first':>10} {'then':>10} {'end':>10} {'most':>10}")
    for name, keys in (("load", [k for k in samples[0] if k[1] == "rss"]), ("quiet", list(before))):
        for key in keys:
            values = [s[key] for s in samples if key in s]
            then, end = (statistics.median(values[sixth:2 * sixth]), statistics.median(values[-sixth:])) if name == "load" else (before[key], after[key])
            bad = name == "quiet" and (max(values) > LOG_MAX if key[1] == "log" else end > then * 1.1 and end > then + SLACK[key[1]])
            print(f"{name:6} {' '.join(key):15} " + " ".join(f"{show(key, x):>10}" for x in (values[0], then, end, max(values))) + ("  GREW" if bad else ""))
            if bad:
                grew.append(key)
    return grew


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--minutes", type=float, default=30)
    args.add_argument("--clients", type=int, default=64)
    args.add_argument("--json", help="all samples")
    o = args.parse_args()
    samples = []
    with Daemon() as d:
        clients = Clients(d, o.clients)
        begin = time.monotonic()
        before = after = None
        for t in clients.threads:
            t.start()
        try:
            while time.monotonic() < begin + o.minutes * 60 and not clients.stop.is_set():
                time.sleep(EVERY)
                if not before and time.monotonic() > begin + o.minutes * 10:
                    before, calls = quiet(d, clients), sum(c.calls for c in clients.all)
                    audit = (d.data / "audit.log").stat().st_size
                    continue
                samples.append(look(d))
                if len(samples) % 12 == 0:
                    print(f"{(time.monotonic() - begin) / 60:5.1f} min, {sum(c.calls for c in clients.all)} calls:",
                          ", ".join(f"{' '.join(k)} {show(k, v)}" for k, v in samples[-1].items()), flush=True)
            after = quiet(d, clients)
            audit = (d.data / "audit.log").stat().st_size - audit
            calls = sum(c.calls for c in clients.all) - calls
        finally:
            clients.stop.set()
            clients.go.set()
            for t in clients.threads:
                t.join(120)
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps([{" ".join(k): v for k, v in s.items()} for s in samples]))
    grew = judge(samples, before, after)
    print(f"{o.clients} clients, {(time.monotonic() - begin) / 60:.1f} minutes, {sum(c.calls for c in clients.all)} calls, "
          f"{sum(c.busy for c in clients.all)} of them answered with 429 or 503; audit log: {audit / calls:.0f} bytes a call")
    for text in clients.failed[:5]:
        print("failed:", text)
    return 1 if grew or clients.failed else 0


if __name__ == "__main__":
    sys.exit(main())
