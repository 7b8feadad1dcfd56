"""Execs whose daemon dies: nothing they say is missing, nothing about their end is wrong."""
import http.client
import json
import threading
import time

import pytest

import host
from api import WebSocket, events
from crash import PARTS, Crashing, running

ALL = PARTS + ["term"]
LINES = "i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); [ $((i %% 20)) = 0 ] && sleep 0.02; done; exit 7"


@pytest.mark.parametrize("part", ALL)
def test_output_has_no_gap_and_no_double(daemon, part):
    box = daemon.create()["id"]
    x = daemon.background(box, LINES % 2000)
    for _ in range(3):
        time.sleep(0.3)
        daemon.crash(part)
    end = daemon.end_of(box, x)
    assert end["exit_code"] == 7 and end["verdict"]["cause"] == "exited"
    assert daemon.output_of(box, x).decode().split("\n") == [f"line {i}" for i in range(2000)] + [""]


@pytest.mark.parametrize("part", ["api", "all"])
def test_a_flood_has_no_gap_either(daemon, part):
    box = daemon.create()["id"]
    x = daemon.background(box, "seq 1 1500000; echo end >&2; exit 3", timeout=60)
    for _ in range(5):
        time.sleep(0.03)
        daemon.crash(part)
    assert daemon.end_of(box, x)["exit_code"] == 3
    assert daemon.output_of(box, x) == b"".join(b"%d\n" % i for i in range(1, 1500001))
    assert daemon.output_of(box, x, "stderr") == b"end\n"


def test_beyond_what_is_kept_places_in_the_stream_stay_true(nothing_is_left_behind, tmp_path):
    conf = tmp_path / "conf"
    conf.write_text("spool_max = 1M\n")
    with Crashing(None, "--config", conf) as d:
        box = d.create()["id"]
        x = d.background(box, "seq 1 600000; while [ ! -e go ]; do sleep 0.01; done; seq 600001 700000", timeout=60)
        place, all_ = f"/v1/sandboxes/{box}/execs/{x}/output", b"".join(b"%d\n" % i for i in range(1, 700001))
        first = all_.index(b"600001\n")
        host.wait_for(lambda: int(d.get(place + f"?offset={first}").headers["X-Cloche-Total"]) == first, 20, "the first part")
        d.crash("api")
        assert d.sh(box, "touch go")["exit_code"] == d.end_of(box, x)["exit_code"] == 0
        half = 512 * 1024
        r = d.get(place)
        assert int(r.headers["X-Cloche-Total"]) == len(all_) and r.body == all_[:half]
        r = d.get(place + f"?offset={half}")
        assert int(r.headers["X-Cloche-Lost"]) == len(all_) - 2 * half and int(r.headers["X-Cloche-Offset"]) == len(all_) - half and r.body == all_[-half:]
        assert (d.data / "spool" / f"{x}.1").stat().st_blocks * 512 < 4 << 20


@pytest.mark.parametrize("way", ["events", "socket"])
def test_a_stream_that_was_told_its_id_is_found_again(daemon, way):
    """However soon after that."""
    box = daemon.create()["id"]
    body = {"cmd": ["sh", "-c", "cat; exit 8"], "stdin_open": True}
    if way == "events":
        _, started = next(stream := events(daemon, f"/v1/sandboxes/{box}/execs", body))
    else:
        stream = WebSocket(daemon, f"/v1/sandboxes/{box}/execs/attach")
        stream.send(json.dumps(body))
        started = stream.receive()
    daemon.crash("api")
    stream.close()
    assert daemon.post(f"/v1/sandboxes/{box}/execs/{started['id']}/stdin?close=1", b"late\n").status == 204
    end = daemon.end_of(box, started["id"])
    assert end["exit_code"] == 8 and end["stdout"] == "late\n"


@pytest.mark.parametrize("part", ALL)
def test_the_end_of_one_whose_caller_is_gone_is_noted_once(daemon, part):
    box = daemon.create()["id"]
    answers = []

    def call():
        try:
            answers.append(daemon.sh(box, "sleep 1.5; echo out; exit 9"))
        except (OSError, http.client.HTTPException):
            pass

    caller = threading.Thread(target=call)
    caller.start()
    time.sleep(0.7)
    daemon.crash(part)
    caller.join(20)
    host.wait_for(lambda: [r for r, _ in daemon.records() if r["kind"] == "exec.end"], 10, "the exec's end")
    time.sleep(0.3)
    ends = [r for r, _ in daemon.records() if r["kind"] == "exec.end"]
    assert [(r["sandbox"], r["exit_code"]) for r in ends] == [(box, 9)]
    if part in ("warden", "term"):  # who serves the call has not died
        assert [a["exit_code"] for a in answers] == [9] and answers[0]["stdout"] == "out\n"


@pytest.mark.parametrize("part", ["api", "supervisor", "all", "term"])
def test_one_that_ended_while_nobody_listened(daemon, part):
    box = daemon.create()["id"]
    x = daemon.background(box, "sleep 0.5; echo out; echo err >&2; exit 5")
    time.sleep(0.3)
    if part == "api":
        daemon.crash(part)
    elif part == "term":
        daemon.stop()
        time.sleep(1)
        daemon.start()
    else:
        daemon.kill9(part)
        time.sleep(1)
        daemon.start()
    end = daemon.end_of(box, x)
    assert end["exit_code"] == 5 and end["stdout"] == "out\n" and end["stderr"] == "err\n"
    ends = [r for r, _ in daemon.records() if r["kind"] == "exec.end" and r["exec"] == x]
    assert len(ends) == 1 and ends[0]["exit_code"] == 5


@pytest.mark.parametrize("part", ALL)
def test_a_shell_in_a_terminal_goes_on(daemon, part):
    box = daemon.create()["id"]
    r = daemon.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sh"], "background": True, "tty": {"rows": 24, "cols": 80}})
    assert r.status == 201, r
    shell = f"/v1/sandboxes/{box}/execs/{r.json['id']}"

    def says(text):
        return text in daemon.get(shell + "/output?stream=tty").body

    assert daemon.post(shell + "/stdin", b"X=41; echo mar''ker\n").status == 204
    host.wait_for(lambda: says(b"marker"), 10, "the shell's answer")
    daemon.crash(part)
    assert daemon.post(shell + "/stdin", b"echo $((X+1))is; stty size\n").status == 204
    host.wait_for(lambda: says(b"42is") and says(b"24 80"), 10, "the answer afterwards")
    assert daemon.post(shell + "/resize", {"rows": 30, "cols": 90}).status == 204
    assert daemon.post(shell + "/stdin", b"stty size; exit 4\n").status == 204
    assert daemon.end_of(box, r.json["id"])["exit_code"] == 4
    assert says(b"30 90") and says(b"marker")


@pytest.mark.parametrize("part", ALL)
def test_stdin_stays_open(daemon, part):
    box = daemon.create()["id"]
    x = daemon.background(box, "cat; exit 6", stdin_open=True)
    place = f"/v1/sandboxes/{box}/execs/{x}/stdin"
    assert daemon.post(place, b"before\n").status == 204
    host.wait_for(lambda: daemon.output_of(box, x) == b"before\n", 5, "cat's answer")
    daemon.crash(part)
    assert daemon.post(place + "?close=1", b"after\n").status == 204
    assert daemon.end_of(box, x)["exit_code"] == 6
    assert daemon.output_of(box, x) == b"before\nafter\n"


@pytest.mark.parametrize("part", ALL)
def test_a_timeout_still_comes_and_takes_the_whole_tree(daemon, part):
    box = daemon.create()["id"]
    x = daemon.background(box, "setsid sh -c 'sleep 1000 & echo $! > /tmp/away; wait' & sleep 1000", timeout=2)
    begun = time.monotonic()
    time.sleep(0.6)
    daemon.crash(part)
    end = daemon.end_of(box, x)
    assert end["verdict"]["cause"] == "timeout" and end["exit_code"] == 124, end
    assert time.monotonic() - begun < 6
    assert daemon.sh(box, "! kill -0 $(cat /tmp/away) 2>/dev/null", user="root")["exit_code"] == 0


@pytest.mark.parametrize("part", ALL)
def test_what_an_ended_exec_left_running_lives_and_is_not_held_up(daemon, part):
    box = daemon.create()["id"]
    left = "(n=0; while :; do head -c 8192 /dev/zero; n=$((n+1)); echo $n > /tmp/beat; sleep 0.02; done) & echo $! > /tmp/pid"
    assert daemon.sh(box, left)["exit_code"] == 0
    daemon.crash(part)
    beat = int(daemon.sh(box, "cat /tmp/beat")["stdout"])
    # More than a pipe holds: somebody reads it.
    host.wait_for(lambda: int(daemon.sh(box, "cat /tmp/beat")["stdout"] or 0) > beat + 40, 10, "it to go on")
    assert daemon.sh(box, "kill -0 $(cat /tmp/pid)")["exit_code"] == 0
    assert daemon.sh(box, "kill $(cat /tmp/pid)")["exit_code"] == 0


@pytest.mark.parametrize("part", ALL)
def test_a_paused_sandbox_stays_paused_and_its_time_stands_still(daemon, part):
    box = daemon.create()["id"]
    place = f"/v1/sandboxes/{box}"
    x = daemon.background(box, "n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done", timeout=3)
    time.sleep(0.5)
    assert daemon.post(place + "/pause").status == 200
    time.sleep(0.2)
    before = daemon.output_of(box, x)
    daemon.crash(part)
    assert daemon.get(place).json["state"] == "paused"
    assert daemon.post(place + "/execs", {"cmd": ["true"]}).status == 409
    time.sleep(3)
    assert daemon.output_of(box, x) == before
    assert daemon.post(place + "/resume").status == 200
    host.wait_for(lambda: len(daemon.output_of(box, x)) > len(before) + 20, 5, "it to go on")
    assert daemon.sh(box, "echo ok")["stdout"] == "ok\n"
    end = daemon.end_of(box, x)
    assert end["verdict"]["cause"] == "timeout"
    lines = daemon.output_of(box, x).decode().split()
    assert lines == [str(i + 1) for i in range(len(lines))] and len(lines) > 20


def test_many_execs_at_once_end_right(daemon):
    box = daemon.create(pids=512)["id"]
    execs = {daemon.background(box, f"sleep 1.{i:02d}; echo {i}; exit {i}"): i for i in range(40)}
    for part in ("api", "warden", "api"):
        time.sleep(0.2)
        daemon.crash(part)
    for x, i in execs.items():
        end = daemon.end_of(box, x)
        assert (end["exit_code"], end["stdout"]) == (i, f"{i}\n")


def test_an_exec_killed_after_a_restart_is_dead(daemon):
    box = daemon.create()["id"]
    x = daemon.background(box, "exec sleep 1000")
    pid = host.wait_for(lambda: [p for p in all_below(daemon) if sleeping(p)], 5, "the sleep")[0]
    daemon.crash("api")
    r = daemon.delete(f"/v1/sandboxes/{box}/execs/{x}")
    assert r.status == 200 and r.json["verdict"]["cause"] == "killed", r
    assert not running(pid)


def all_below(daemon):
    found, todo = [], [daemon.pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += host.children(pid)
    return found


def sleeping(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read() == b"sleep\x001000\x00"
    except OSError:
        return False
