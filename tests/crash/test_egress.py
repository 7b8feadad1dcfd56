"""Egress, or the process that gives it the policies, dies: the network is closed at once, never open, and works again later."""
import contextlib
import json
import os
import signal
import sys

import pytest

import host
from crash import Crashing

sys.path.insert(0, str(host.ROOT / "tests/functional"))
from net_world import World  # noqa: E402

STREAM = ("import socket,sys,time\ns=socket.create_connection(('echo.test',7)); s.sendall(b'\\0'); s.recv(1); print('up', flush=True)\n"
          "while True:\n"
          " try:\n  s.sendall(b'\\0'); r=s.recv(1)\n"
          " except ConnectionResetError: print('reset', flush=True); break\n"
          " if not r: print('clean end', flush=True); break\n"
          " print('.', end='', flush=True); time.sleep(0.02)\n")
GET = "import sys,urllib.request as u\nprint(u.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture(scope="module")
def w():
    with World() as one:
        yield one


@pytest.fixture
def d(w):
    with Crashing(None, "--config", w.config()) as one:
        yield one


@pytest.fixture
def nothing_is_left_behind():
    """The world stays for all tests of this module."""


def get(d, box, url="http://web.test/hello"):
    r = d.exec(box, "python3", "-c", GET, url)
    return json.loads(r["stdout"])["site"] if r["exit_code"] == 0 else None


def look(d, box):
    return d.get(f"/v1/sandboxes/{box}/network").json


def in_force(d, *boxes):
    for box in boxes:
        host.wait_for(lambda b=box: look(d, b)["state"] == "in force", 15, "a network again")


def records(d, box, kind="network.stream"):
    return d.get(f"/v1/audit?sandbox={box}&kind={kind}&limit=10000").json["records"]


@contextlib.contextmanager
def stopped(d, part):
    pid = d.children()[part]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_egress_dies_closed_and_comes_back_with_policies_and_counts(d):
    boxes = [d.create(network={"allow": ["web.test", "echo.test:7"]})["id"] for _ in range(3)]
    shut = d.create(network={"allow": []})["id"]
    late = d.create()["id"]
    assert d.put(f"/v1/sandboxes/{late}/network", {"allow": ["web.test"]}).status == 200
    streams = [d.background(b, f'exec python3 -c "{STREAM}"') for b in boxes]
    for b, x in zip(boxes, streams):
        host.wait_for(lambda b=b, x=x: b"." in d.output_of(b, x), 10, "the stream")
        assert get(d, b) == "web.test"
    host.wait_for(lambda: look(d, boxes[0])["counts"]["connections"] == 2, 10, "the counts")
    d.crash("egress")
    for b, x in zip(boxes, streams):
        d.end_of(b, x)
        assert d.output_of(b, x).endswith(b"reset\n"), d.output_of(b, x)
    in_force(d, *boxes, shut, late)
    for b in (*boxes, late):
        assert get(d, b) == "web.test" and get(d, b, "http://other.test/") is None
    assert get(d, shut) is None
    host.wait_for(lambda: look(d, boxes[0])["counts"]["connections"] == 3, 10, "the counts to go on")


def test_without_egress_everything_is_refused_at_once(d):
    box = d.create(network="open")["id"]
    assert get(d, box) == "web.test"
    script = ("import socket,time\nt=time.monotonic()\ns=socket.socket(); s.settimeout(20)\n"
              "try: s.connect(('192.0.2.1',443)); print('open' if s.recv(1) else 'closed')\nexcept OSError as e: print(type(e).__name__, time.monotonic()-t < 5)")
    for _ in range(3):
        host.wait_for(lambda: d.children().get("egress"), 10, "egress")
        d.kill9("egress")
        said = d.exec(box, "python3", "-c", script)["stdout"].split()
        assert said[0] != "open", said
    in_force(d, box)
    assert get(d, box) == "web.test"


def test_the_api_dies_and_streams_go_on(d):
    box = d.create(network={"allow": ["echo.test:7", "web.test"]})["id"]
    x = d.background(box, f'exec python3 -c "{STREAM}"')
    host.wait_for(lambda: b"." in d.output_of(box, x), 10, "the stream")
    for part in ("api", "warden", "api"):
        n = len(d.output_of(box, x))
        d.crash(part)
        host.wait_for(lambda n=n: len(d.output_of(box, x)) > n + 5, 10, "the stream to go on")
        in_force(d, box)
        assert get(d, box) == "web.test"
    assert not [r for r in records(d, box) if r["name"] == "echo.test"]
    assert d.put(f"/v1/sandboxes/{box}/network", {"allow": ["web.test"]}).status == 200
    d.end_of(box, x)
    host.wait_for(lambda: [r for r in records(d, box) if r["name"] == "echo.test"], 10, "its record")


def test_what_happened_while_the_api_was_away_is_told_later(d):
    box = d.create(network={"allow": ["web.test"]})["id"]
    assert get(d, box) == "web.test"
    before = len(host.wait_for(lambda: records(d, box), 10, "its record"))  # else it would be counted with those that follow
    script = "import time,urllib.request as u\ntime.sleep(0.5)\nfor _ in range(5): u.urlopen('http://web.test/hello', timeout=10).read()\n"
    x = d.background(box, f'exec python3 -c "{script}"')
    d.crash("api")
    d.end_of(box, x)
    host.wait_for(lambda: len(records(d, box)) == before + 5, 15, "all records")
    host.wait_for(lambda: look(d, box)["counts"]["connections"] == before + 5, 10, "all counts")


@pytest.mark.parametrize("part", ["supervisor", "all", "term"])
def test_the_daemon_dies_and_the_next_one_gives_the_network_back(d, part):
    policy = {"mode": "allow", "allow": ["web.test"], "budget": {"connections": 3}}
    box = d.create(network=policy)["id"]
    assert get(d, box) == "web.test"
    host.wait_for(lambda: look(d, box)["counts"]["connections"] == 1, 10, "the counts")
    host.wait_for(lambda: d.get(f"/v1/sandboxes/{box}/stats").status == 200, 10, "a turn")
    d.restart() if part == "term" else d.crash(part)
    in_force(d, box)
    assert look(d, box)["policy"] == policy
    assert get(d, box) == "web.test" and get(d, box, "http://other.test/") is None


def test_a_policy_that_is_changed_without_egress_is_in_force_when_it_is_back(d):
    box = d.create(network={"allow": ["web.test"]})["id"]
    assert get(d, box) == "web.test"
    with stopped(d, "egress") as pid:
        r = d.put(f"/v1/sandboxes/{box}/network", {"allow": ["other.test"]})
        assert r.status == 502 and r.json["error"]["code"] == "lost" and "not in effect" in r.json["error"]["message"], r
        os.kill(pid, signal.SIGKILL)
    in_force(d, box)
    assert look(d, box)["policy"] == {"mode": "allow", "allow": ["other.test"]}
    assert get(d, box, "http://other.test/hello") == "other.test" and get(d, box) is None


def test_egress_and_api_die_together_again_and_again(d):
    boxes = [d.create(network={"allow": ["web.test"]})["id"] for _ in range(5)]
    for i in range(4):
        parts = d.children()
        os.kill(parts["egress"], signal.SIGKILL)
        os.kill(parts["api"], signal.SIGKILL)
        if i % 2:
            os.kill(parts["warden"], signal.SIGKILL)
        host.wait_for(lambda p=parts: len(c := d.children()) == 3 and c["api"] != p["api"] and c["egress"] != p["egress"], 15, "all of them")
        in_force(d, *boxes)
        for b in boxes:
            assert get(d, b) == "web.test"
