"""A tenant's client that tries to fill the daemon's memory and disk. Short here; with CLOCHE_LONG=1 for ten minutes."""
import json
import os
import pathlib
import re
import socket
import threading
import time
import urllib.parse

import pytest

from api import as_tenant, d, nothing_is_left_behind  # noqa: F401

LONG = bool(os.environ.get("CLOCHE_LONG"))
MIB = 1 << 20
BIG = 1_800_000  # bytes of a command
PENDING, HISTORY, UNSENT = 64 * MIB, 16 * MIB, 64 * MIB  # docs/api.md, "What is kept"
BASE = 48 * MIB  # the daemon itself, with its allocator's slack


@pytest.fixture
def mean(d):
    """A tenant without quotas of its own, and its token."""
    name = f"mean-{time.monotonic_ns()}"
    m = as_tenant(d, name)
    yield m
    for b in m.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
        m.delete(f"/v1/sandboxes/{b['id']}")


def rss(d):
    text = pathlib.Path(f"/proc/{d.children()['api']}/status").read_text()
    return sum(int(re.search(rf"^{k}:\s*(\d+)", text, re.M).group(1)) << 10 for k in ("RssAnon", "RssShmem"))


def state(d):
    return sum(p.stat().st_size for p in d.data.glob("state.db"))


class Peak:
    """The most that the API process had while it was watched."""

    def __init__(self, d):
        self.d, self.most, self.over = d, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.wait(0.05):
            self.most = max(self.most, rss(self.d))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.1)


def command(n):
    """A command of about n bytes: no argument may have more than 128 KiB."""
    return ["true", *["x" * 100_000] * (n // 100_000)]


def flood(m, box, count):
    """So many commands in the background; how many were taken."""
    taken = 0
    body = json.dumps({"cmd": command(BIG), "background": True}).encode()
    for _ in range(count):
        r = m.post(f"/v1/sandboxes/{box}/execs", body, headers={"Content-Type": "application/json"})
        assert r.status in (201, 429, 503), r
        taken += r.status == 201
    return taken


def test_a_long_command_is_kept_by_its_beginning_and_size(d, mean):
    b = mean.create()
    whole = command(200_000)
    r = mean.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["sh", "-c", "echo $#", *whole], "echo": True}).json
    assert r["stdout"] == "2\n", "it runs with all of it"
    assert r["cmd"][:3] == ["sh", "-c", "echo $#"] and 900 < sum(map(len, r["cmd"])) <= 1024
    assert r["cmd_bytes"] == sum(len(a) + 1 for a in ["sh", "-c", "echo $#", *whole])
    short = mean.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["echo", "é" * 200], "background": True, "echo": True}).json
    assert short["cmd"] == ["echo", "é" * 200] and "cmd_bytes" not in short
    x = mean.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["echo", "é" * 2000], "background": True, "echo": True}).json
    assert x["cmd"][1] == "é" * (len(x["cmd"][1])) and x["cmd_bytes"] == 5 + 4001
    d.kill9("api")
    until(lambda: "api" in d.children() and _answers(mean))
    after = mean.get(f"/v1/sandboxes/{b['id']}/execs/{x['id']}").json
    assert after["cmd"] == x["cmd"] and after["cmd_bytes"] == x["cmd_bytes"]


def _answers(m):
    try:
        return m.get("/v1/sandboxes").status == 200
    except OSError:
        return False


def test_large_commands_leave_nothing_of_their_size(d, mean):
    boxes = [mean.create()["id"] for _ in range(2)]
    before = state(d)
    with Peak(d) as p:
        taken = sum(flood(mean, b, 12) for b in boxes)
    assert taken > 12
    assert p.most < PENDING + HISTORY + BASE
    assert state(d) - before < 8 * MIB, "the database has the first KiB of each"
    until(lambda: rss(d) < 2 * BASE)


def test_what_a_tenant_has_waiting_is_bounded_over_all_its_sandboxes(d, mean):
    boxes = [mean.create()["id"] for _ in range(3)]
    refused, done = [], []

    def one(box):
        r = mean.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sleep", "1000"], "stdin": "y" * 3_500_000, "background": True})
        (done if r.status == 201 else refused).append(r)

    for i in range(20):
        one(boxes[i % 3])
    assert refused and all(r.status == 429 and r.json["error"]["code"] == "quota" for r in refused)
    assert len(done) * 3_500_000 <= PENDING
    # Another tenant is not refused for it, and this one is not, when its commands are gone.
    assert d.post("/v1/sandboxes", {}).status == 201
    mean.delete(f"/v1/sandboxes/{boxes[0]}")
    until(lambda: mean.post(f"/v1/sandboxes/{boxes[1]}/execs", {"cmd": ["true"], "stdin": "y" * 3_000_000}).status == 200)


def test_answers_that_nobody_reads_stay_within_what_is_said(d, mean):
    b = mean.create(exec_timeout=60)["id"]
    place = urllib.parse.urlsplit(d.url)
    body = json.dumps({"shell": "head -c 16000000 /dev/zero | tr '\\0' x", "output_limit": 16 * MIB}).encode()
    head = (f"POST /v1/sandboxes/{b}/execs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {mean.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    socks = []
    with Peak(d) as p:
        for _ in range(12 if not LONG else 40):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect((place.hostname, place.port))
            s.sendall(head + body)
            socks.append(s)
        for s in socks:  # each is answered, with its output or a refusal
            s.settimeout(60)
            assert s.recv(12, socket.MSG_WAITALL) in (b"HTTP/1.1 200", b"HTTP/1.1 429", b"HTTP/1.1 503")
    for s in socks:
        s.close()
    # One answer is put together beside those that wait, in a buffer that grows.
    assert p.most < UNSENT + 48 * MIB + BASE, p.most / MIB
    until(lambda: rss(d) < 2 * BASE)


def test_the_history_of_a_tenant_is_bounded_over_all_its_sandboxes(d, mean):
    boxes = [mean.create()["id"] for _ in range(2 if not LONG else 40)]
    body = {"cmd": ["true", "z" * 1000], "background": True}
    for i in range(60 if not LONG else 8000):
        r = mean.post(f"/v1/sandboxes/{boxes[i % len(boxes)]}/execs", body)
        assert r.status in (201, 429, 503), r
    n = sum(len(mean.get(f"/v1/sandboxes/{b}/execs").json["execs"]) for b in boxes)
    assert n <= HISTORY // 2048 and (LONG or n == 60)


if LONG:
    def test_a_hostile_client_for_ten_minutes(d, mean):
        end = time.monotonic() + 600
        first, rounds = state(d), 0
        with Peak(d) as p:
            while time.monotonic() < end:
                boxes = [mean.create()["id"] for _ in range(4)]
                threads = [threading.Thread(target=flood, args=(mean, b, 60)) for b in boxes]
                for t in threads:
                    t.start()
                while any(t.is_alive() for t in threads):
                    assert d.post("/v1/sandboxes", {}, timeout=60).status in (201, 503)
                    time.sleep(0.5)
                    for other in d.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
                        d.delete(f"/v1/sandboxes/{other['id']}")
                for b in boxes:
                    mean.delete(f"/v1/sandboxes/{b}")
                rounds += 1
                print(f"round {rounds}: peak {p.most / MIB:.0f} MiB, now {rss(d) / MIB:.0f}, state.db {state(d) / MIB:.1f}", flush=True)
        assert p.most < PENDING + HISTORY + 2 * BASE
        until(lambda: rss(d) < 2 * BASE)
        assert state(d) - first < 16 * MIB


def test_json_of_many_values_is_refused_before_they_are_made(d, mean):
    before = rss(d)
    for body in (b'{"code":[' + b"1," * (20 * MIB) + b"1]}", b'{"code":"","files":{' + b'"":[],' * MIB + b'"":0}}'):
        with Peak(d) as p:
            r = mean.post("/v1/run", body, headers={"Content-Type": "application/json"})
        assert r.status == 400 and r.json["error"]["reason"] == "bad_json" and "65536 values" in r.json["error"]["message"], r
        assert p.most < before + 192 * MIB  # the text itself, and a copy while it grows
