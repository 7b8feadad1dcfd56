"""Output that was not kept: every reader learns how much is missing and where, and offsets count all bytes ever written."""
import json

import pytest

from api import WebSocket
from cli import nothing_is_left_behind  # noqa: F401
from daemon import Daemon

HALF = 512 * 1024
ALL = b"".join(b"%d\n" % i for i in range(1, 400001))
LOST = len(ALL) - 2 * HALF


@pytest.fixture(scope="module")
def d(nothing_is_left_behind, tmp_path_factory):
    conf = tmp_path_factory.mktemp("gaps") / "conf"
    conf.write_text("spool_max = 1M\n")
    with Daemon(None, "--config", conf) as made:
        yield made


@pytest.fixture(scope="module")
def flood(d):
    """(path of the sandbox, id of an exec in it that said more than is kept)"""
    box = "/v1/sandboxes/" + d.create()["id"]
    x = d.post(box + "/execs", {"shell": "seq 1 400000; echo end >&2", "background": True, "timeout": 0}).json["id"]
    assert d.get(f"{box}/execs/{x}/wait?timeout=60").json["exit_code"] == 0
    return box, x


def lost(r):
    return int(r.headers["X-Cloche-Offset"]), int(r.headers["X-Cloche-Lost"])


@pytest.mark.parametrize("follow", ["", "&follow=1"])
def test_a_body_is_one_piece_and_the_next_says_what_is_missing(d, flood, follow):
    at = f"{flood[0]}/execs/{flood[1]}/output?stream=stdout{follow}"
    head = d.get(at)
    assert head.body == ALL[:HALF] and lost(head) == (0, 0) and int(head.headers["X-Cloche-Total"]) == len(ALL)
    tail = d.get(f"{at}&offset={HALF}")
    assert tail.body == ALL[-HALF:] and lost(tail) == (len(ALL) - HALF, LOST)
    assert lost(d.get(f"{at}&offset={HALF + 100}&limit=5")) == (len(ALL) - HALF, LOST - 100)
    assert lost(d.get(f"{at}&offset={len(ALL) - 7}")) == (len(ALL) - 7, 0)


@pytest.mark.parametrize("start", [0, HALF + 1000])
def test_a_websocket_tells_a_gap_before_the_next_bytes(d, flood, start):
    with WebSocket(d, f"{flood[0]}/execs/{flood[1]}/attach?offset={start}") as ws:
        out, err, texts = ws.all()
    gaps = [t for t in texts if t["type"] == "gap"]
    assert gaps == [{"type": "gap", "stream": "stdout", "offset": len(ALL) - HALF, "lost": LOST - max(0, start - HALF)}], gaps
    assert out == ALL[start:HALF] + ALL[-HALF:] and err == b"end\n" and texts[-1]["type"] == "result"


def test_logs_say_it_on_stderr(d, flood):
    for more in ((), ("-f",)):
        r = d.cli("logs", *more, flood[0].rsplit("/", 1)[1], flood[1])
        told = f"cloche: note: {LOST} bytes of stdout were not kept (the output continues at byte {len(ALL) - HALF})\n"
        assert r.code == 0 and r.out == ALL[:HALF] + ALL[-HALF:], (r.code, len(r.out))
        assert sorted(r.err.decode().splitlines(True)) == [told, "end\n"], r.err


def test_one_that_is_followed_while_it_runs_has_no_silent_hole(d, flood):
    """Whatever was kept when it was read: what came and what is said to be missing are all of it, in order."""
    box = flood[0]
    x = d.post(box + "/execs", {"shell": "seq 1 400000", "background": True, "timeout": 0}).json["id"]
    with WebSocket(d, f"{box}/execs/{x}/attach?offset=0") as ws:
        at = 0
        while (m := ws.receive()) is not None:
            if isinstance(m, dict):
                if m["type"] == "gap":
                    assert m["offset"] - m["lost"] == at, (m, at)
                    at = m["offset"]
            else:
                assert m[1:] == ALL[at:at + len(m) - 1], at
                at += len(m) - 1
    assert at == len(ALL)


def test_what_only_its_first_reader_got_is_a_gap_for_others(d, flood):
    with WebSocket(d, flood[0] + "/execs/attach") as ws:
        ws.send(json.dumps({"shell": "echo gone"}))
        out, _, texts = ws.all()
    assert out == b"gone\n" and not [t for t in texts if t["type"] == "gap"]
    got = d.get(f"{flood[0]}/execs/{texts[-1]['id']}/output")
    assert got.body == b"" and lost(got) == (5, 5)
    with WebSocket(d, f"{flood[0]}/execs/{texts[-1]['id']}/attach?offset=2") as ws:
        assert ws.receive() == {"type": "started", "id": texts[-1]["id"], "sandbox": flood[0].rsplit("/", 1)[1]}
        assert ws.receive() == {"type": "gap", "stream": "stdout", "offset": 5, "lost": 3}
