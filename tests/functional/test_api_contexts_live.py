"""Contexts keep their variables through all that a sandbox survives: memory checkpoints, forks, hibernation, crashes of the daemon."""
import time

import pytest

from api import WebSocket, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from test_api_contexts import Stream, path, run, text

BOTH = ("python", "javascript")
SET = {"python": "import json\nkept = {'n': 41}\ndef f(x): return x + kept['n']", "javascript": "const kept = { n: 41 }; function f(x) { return x + kept.n }"}


@pytest.fixture(scope="module")
def d(nothing_is_left_behind):
    with Daemon(None, "--stop-sandboxes") as daemon:
        yield daemon


@pytest.fixture
def box(d):
    b = d.create(memory="512M")["id"]
    for language in BOTH:
        run(d, b, language, SET[language])
    made = d.post(path(b), {"language": "python", "cwd": "/tmp"}).json["id"]
    run(d, b, made, "own = 'mine'")
    yield b, made
    d.delete(f"/v1/sandboxes/{b}")


def holds(d, b, own, *counts):
    """All of it is there, and works."""
    for language, count in zip(BOTH, counts or (2, 2)):
        r = run(d, b, language, "f(1)")
        assert text(r) == ["42"] and r["execution_count"] == count and r["verdict"]["cause"] == "ok", (language, r)
    assert text(run(d, b, own, "import os; own, os.getcwd()")) == ["('mine', '/tmp')"]


def test_memory_checkpoints_and_forks(d, box):
    b, own = box
    c = d.post(f"/v1/sandboxes/{b}/checkpoints", {"memory": True})
    assert c.status == 201 and c.json["memory"], c
    run(d, b, "python", "kept['n'] = 0")
    made = d.post(f"/v1/sandboxes/{b}/restore", {"checkpoint": c.json["id"], "as": "again"})
    assert made.status == 201, made
    holds(d, made.json["id"], own)
    forks = d.post(f"/v1/sandboxes/{made.json['id']}/fork", {"count": 2, "memory": True})
    assert forks.status == 201, forks
    for f in forks.json["sandboxes"]:
        holds(d, f["id"], own, 3, 3)
        d.delete(f"/v1/sandboxes/{f['id']}")
    r = d.post(f"/v1/sandboxes/{b}/restore", {"checkpoint": c.json["id"]})  # in place
    assert r.status == 200, r
    holds(d, b, own)
    d.delete(f"/v1/sandboxes/{made.json['id']}")
    d.delete(f"/v1/checkpoints/{c.json['id']}")


def test_hibernation_and_pauses(d, box):
    b, own = box
    r = d.post(f"/v1/sandboxes/{b}/hibernate", {"memory": True})
    assert r.status == 200 and r.json["state"] == "hibernated", r
    holds(d, b, own)  # the call wakes it
    s = Stream(d, b, "python", "import time\nprint('begun')\nfor i in range(10): time.sleep(0.1)\n'slept'", timeout=5)
    s.next()
    assert d.post(f"/v1/sandboxes/{b}/pause").status == 200
    time.sleep(0.5)
    assert d.post(f"/v1/sandboxes/{b}/resume").status == 200
    found = s.all()
    assert found[0][1]["mime"]["text/plain"] == "'slept'" and found[-1][1]["verdict"]["cause"] == "ok"


def test_code_that_runs_is_interrupted_in_a_copy_and_continues_here(d, box):
    b, own = box
    code = {"python": "import time\nprint('begun')\ntime.sleep(3)\n'done'", "javascript": "console.log('begun'); await new Promise(r => setTimeout(r, 3000)); 'done'"}
    streams = [Stream(d, b, language, code[language]) for language in BOTH]
    for s in streams:
        s.next()
    f = d.post(f"/v1/sandboxes/{b}/fork", {"memory": True})
    assert f.status == 201, f
    copy = f.json["sandboxes"][0]["id"]
    began = time.monotonic()
    holds(d, copy, own, 3, 3)
    assert time.monotonic() - began < 20
    for s in streams:
        assert s.all()[-1][1]["verdict"]["cause"] == "ok"
    holds(d, b, own, 3, 3)
    d.delete(f"/v1/sandboxes/{copy}")


@pytest.mark.parametrize("which", ("api", "warden", "all"))
def test_kill_9_of_the_daemon(d, box, which):
    b, own = box
    with WebSocket(d, path(b, "python", "attach")) as w:
        w.send('{"type": "execute", "code": "import time; print(1); time.sleep(300)"}')
        assert w.receive()["text"] == "1\n"
        d.kill9(which)
        if which == "all":
            d.start()
    end = time.monotonic() + 30
    while True:
        assert time.monotonic() < end
        try:
            if d.get(path(b)).status == 200:
                break
        except OSError:
            time.sleep(0.1)  # it is being started again
    holds(d, b, own, 3, 2)


def test_a_client_that_hangs_up(d, box):
    b, own = box
    code = {"python": "import time\nprint('begun')\ntime.sleep(300)", "javascript": "console.log('begun'); await new Promise(() => setInterval(() => {}, 1000))"}
    for language in BOTH:
        s = Stream(d, b, language, code[language])
        s.next()
        s.close()
        began = time.monotonic()
        assert text(run(d, b, language, "f(1)")) == ["42"]
        assert time.monotonic() - began < 5 + 10  # 5 s on a machine that is not busy
    s = Stream(d, b, "javascript", "console.log('begun'); while (true) {}")
    s.next()
    s.close()
    assert text(run(d, b, "javascript", "f(1)")) == ["42"]
