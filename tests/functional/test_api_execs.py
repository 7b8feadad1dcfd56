"""Execs over the API: results, verdicts, streams, WebSockets, and what happens when output is not read."""
import base64
import json
import os
import pathlib
import signal
import struct
import time

import pytest

import host
from api import Raw, WebSocket, d, error, events, eventually, nothing_is_left_behind, rss  # noqa: F401

MB = 1 << 20


@pytest.fixture(scope="module")
def box(d):
    b = d.create(memory="256M", disk="64M", pids=60)["id"]
    yield b
    d.delete(f"/v1/sandboxes/{b}")


def start(d, box, script, **fields):
    r = d.post(f"/v1/sandboxes/{box}/execs", {"shell": script, "background": True, **fields})
    assert r.status == 201 and r.json["state"] == "running", r
    return r.json["id"]


def run(d, box, script, **fields):
    r = d.post(f"/v1/sandboxes/{box}/execs", {"shell": script, **fields})
    assert r.status == 200 and r.headers["X-Cloche-Audit"], r
    return r.json


def wait(d, box, x, seconds=30):
    r = d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout={seconds}")
    assert r.status == 200 and r.json["state"] == "ended", r
    return r.json


def kill(d, box, x):
    return d.delete(f"/v1/sandboxes/{box}/execs/{x}")


def test_both_streams_and_the_code_come_back(d, box):
    r = run(d, box, "echo out; echo err >&2; exit 7")
    assert (r["stdout"], r["stderr"], r["exit_code"], r["signal"]) == ("out\n", "err\n", 7, None)
    assert r["verdict"] == {"cause": "exited", "detail": r["verdict"]["detail"], "limit": None, "peak": None}
    assert r["state"] == "ended" and r["sandbox"] == box and r["truncated"]["full_url"] is None
    again = d.get(f"/v1/sandboxes/{box}/execs/{r['id']}").json
    assert again.pop("cmd") == ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"] and again == r
    killed = run(d, box, "kill -SEGV $$")
    assert (killed["exit_code"], killed["signal"], killed["verdict"]["cause"]) == (139, 11, "signaled")


def test_what_can_not_be_run_is_no_result(d, box):
    for cmd in (["/no/such/program"], ["no-such-program"], ["/etc/passwd"], ["/tmp"]):
        error(d.post(f"/v1/sandboxes/{box}/execs", {"cmd": cmd}), 422, "refused")
    error(d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["true"], "cwd": "/no/such/folder"}), 422, "refused")


@pytest.mark.parametrize("body", [
    {}, {"cmd": []}, {"cmd": "true"}, {"cmd": ["a", 1]}, {"cmd": ["a"], "shell": "b"}, {"cmd": ["a"], "tty": True}, {"cmd": ["a"], "stdin_open": True},
    {"cmd": ["a"], "stdin": "x", "stdin_base64": "eA=="}, {"cmd": ["a"], "stdin_base64": "!"}, {"cmd": ["a"], "user": "1:2:3"}, {"cmd": ["a"], "timeout": "soon"},
    {"cmd": ["a"], "encoding": "latin1"}, {"cmd": ["a"], "env": {"A": None}}, {"cmd": ["a"], "output_limit": "65M"}, {"cmd": ["a"], "background": 1},
    {"cmd": ["a"], "tty": {"rows": 0}, "background": True}, {"cmd": ["a\u0000b"]},
])
def test_what_makes_no_sense_is_refused(d, box, body):
    error(d.post(f"/v1/sandboxes/{box}/execs", body), 400, "invalid")


def test_each_option_has_its_effect(d, box):
    r = run(d, box, 'echo "$A|$(pwd)|$(id -u):$(id -g)|$(ulimit -n)"', env={"A": "ü\n2"}, cwd="/tmp", user="12:13", nofile=55)
    assert r["stdout"] == "ü\n2|/tmp|12:13|55\n", r
    assert run(d, box, "cat", stdin="text ü\n")["stdout"] == "text ü\n"
    raw = bytes(range(256))
    r = run(d, box, "cat; cat >&2 /dev/null", stdin_base64=base64.b64encode(raw).decode(), encoding="base64")
    assert base64.b64decode(r["stdout_base64"]) == raw and r["stderr_base64"] == "" and "stdout" not in r
    assert "�" in run(d, box, r"printf '\377x'")["stdout"]


@pytest.mark.parametrize("cause,code,script,fields", [
    ("timeout", 124, "sleep 30", {"timeout": 0.3}),
    ("cpu", 137, "while :; do :; done", {"cpu_time": 1}),
    ("oom", 137, "head -c 400M /dev/zero | tail -c 400M | wc -c; exit 9", {}),
    ("killed", 137, None, {}),
])
def test_every_verdict_says_why(d, box, cause, code, script, fields):
    if script:
        r = run(d, box, script, **fields)
    else:
        x = start(d, box, "sleep 60")
        r = kill(d, box, x).json
    assert r["verdict"]["cause"] == cause, r
    assert r["exit_code"] == code or cause == "oom", r
    if cause in ("timeout", "oom", "cpu"):
        assert r["verdict"]["limit"] and r["verdict"]["peak"], r


def test_memory_that_no_process_holds_is_still_the_memory_limits_verdict(d):
    """Nothing is left for the kernel to end but the sandbox's first process."""
    full = d.create(memory="32M")["id"]
    keep = "python3 -c \"import ctypes as c; l = c.CDLL(None); l.shmat.restype = c.c_void_p\nwhile 1: c.memset(l.shmat(l.shmget(0, 1 << 16, 0o1600), None, 0), 1, 1 << 16)\""
    path, seen = f"/v1/sandboxes/{full}", []
    for script in [keep] * 3 + ["head -c 30M /dev/zero > /tmp/a$$ || exit 1"] * 40:
        r = d.post(f"{path}/execs", {"shell": script})
        if r.status != 200:
            assert "memory was full" in error(r, 502, "lost")["message"], r
            break
        seen.append(r.json["verdict"]["cause"])
    assert d.get(path).json["state"] == "lost" and set(seen) <= {"oom", "disk"} and seen[-1] == "oom", seen
    d.delete(path)


def test_the_verdicts_of_pids_disk_and_output(d, box):
    full = d.create(pids=60)["id"]
    r = run(d, full, "i=0; while [ $i -lt 100 ]; do sleep 4 & i=$((i+1)); done; wait")
    assert r["verdict"]["cause"] == "pids" and r["verdict"]["limit"] == 60, r
    eventually(lambda: d.get(f"/v1/sandboxes/{full}/stats").json["pids"] < 50, 60)
    assert run(d, full, "exit 3")["verdict"]["cause"] == "exited", "the next is not blamed"
    d.delete(f"/v1/sandboxes/{full}")
    r = run(d, box, "head -c 100M /dev/zero > /tmp/full")
    assert r["verdict"]["cause"] == "disk", r
    run(d, box, "rm -f /tmp/full")
    r = run(d, box, "seq 1 100000", output_limit=1000)
    assert r["verdict"]["cause"] == "output" and r["verdict"]["limit"] == 1000 and r["truncated"]["stdout"] and not r["truncated"]["stderr"], r
    out = r["stdout"]
    assert out.startswith("1\n2\n") and out.endswith("99999\n100000\n") and len(out) < 1200, out
    whole = d.get(r["truncated"]["full_url"]).body
    assert whole == "".join(f"{i}\n" for i in range(1, 100001)).encode()
    assert r["truncated"]["stdout_dropped"] == len(whole) - 1000


def first_process(d):
    """The host's pid of a sandbox's first process, by what runs below it."""
    for pid in host.children(d.children()["warden"]):
        for child in host.children(pid):
            if b"4321.5" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                return pid
    return None


def test_a_sandbox_that_dies_loses_its_execs(d):
    b = d.create()["id"]
    x = start(d, b, "exec sleep 4321.5")
    os.kill(eventually(lambda: first_process(d)), signal.SIGKILL)
    r = wait(d, b, x)
    assert r["verdict"]["cause"] == "lost", r
    assert eventually(lambda: d.get(f"/v1/sandboxes/{b}").json["state"] == "lost")
    error(d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["true"]}), 502, "lost")
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_in_the_background_output_is_read_by_offset_and_followed(d, box):
    x = start(d, box, "for i in 1 2 3; do echo line $i; echo e$i >&2; sleep 0.2; done")
    at = f"/v1/sandboxes/{box}/execs/{x}"
    with Raw(d, "GET", at + "/output?follow=1") as raw:
        status, head = raw.head()
        assert status == 200 and head["x-cloche-state"] == "running" and head["x-cloche-offset"] == "0"
        assert b"".join(raw.chunks()) == b"line 1\nline 2\nline 3\n"
    assert wait(d, box, x)["stdout"] == "line 1\nline 2\nline 3\n"
    r = d.get(at + "/output?offset=7&limit=6")
    assert r.body == b"line 2" and r.headers["X-Cloche-Offset"] == "7" and r.headers["X-Cloche-Total"] == "21" and r.headers["X-Cloche-State"] == "ended"
    assert d.get(at + "/output?stream=stderr").body == b"e1\ne2\ne3\n"
    assert d.get(at + "/output?offset=1000").body == b""
    assert d.get(at + "/output?offset=14&limit=18446744073709551615").body == b"line 3\n"
    assert d.get(at + "/output?follow=1&limit=4", timeout=5).body == b"line"
    for bad in ("stream=x", "offset=-1", "limit=z"):
        error(d.get(f"{at}/output?{bad}"), 400, "invalid")
    assert any(e["id"] == x and e["background"] and "stdout" not in e for e in d.get(f"/v1/sandboxes/{box}/execs").json["execs"])


def test_waiting_ends_with_the_time(d, box):
    x = start(d, box, "echo 123456789; sleep 20")
    assert d.get(f"/v1/sandboxes/{box}/execs/{x}/output?follow=1&limit=4", timeout=5).body == b"1234", "follows as far as was asked"
    r = d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=0.2")
    assert r.status == 200 and r.json["state"] == "running"
    error(d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=x"), 400, "invalid")
    assert kill(d, box, x).json["state"] == "ended"
    assert kill(d, box, x).json["state"] == "ended", "twice is fine"


def test_one_that_ran_for_long_is_remembered_when_it_ends(d):
    """Behind more than 256 newer ones, which have ended already."""
    b = d.create()["id"]
    long = start(d, b, "until [ -e go ]; do sleep 0.05; done; echo done")
    first = run(d, b, "true")["id"]
    for _ in range(257):
        run(d, b, "true")
    assert d.get(f"/v1/sandboxes/{b}/execs/{first}").status == 404
    run(d, b, "touch go")
    eventually(lambda: d.get(f"/v1/sandboxes/{b}/execs/{long}").json["state"] == "ended", 60)
    assert d.get(f"/v1/sandboxes/{b}/execs/{long}").json["stdout"] == "done\n"
    eventually(lambda: len(d.get(f"/v1/sandboxes/{b}/execs").json["execs"]) == 256, 60)
    d.delete(f"/v1/sandboxes/{b}")


def test_a_stream_of_events(d, box):
    seen = list(events(d, f"/v1/sandboxes/{box}/execs", {"shell": r"printf 'a\303'; sleep 0.1; printf '\274\n'; printf '\377' >&2; exit 3"}))
    kinds = [k for k, _ in seen]
    assert kinds[0] == "started" and kinds[-1] == "result", seen
    assert "".join(v["data"] for k, v in seen if k == "stdout") == "aü\n", seen
    assert [v for k, v in seen if k == "stderr"] == [{"base64": "/w=="}], seen
    result = seen[-1][1]
    assert result["exit_code"] == 3 and "stdout" not in result and result["id"] == seen[0][1]["id"]
    seen = list(events(d, f"/v1/sandboxes/{box}/execs", {"cmd": ["/no/such"]}))
    assert seen[-1][0] == "error" and seen[-1][1]["code"] == "refused", seen


def test_stdin_is_written_and_closed(d, box):
    x = start(d, box, "cat; echo end", stdin_open=True)
    at = f"/v1/sandboxes/{box}/execs/{x}"
    assert d.post(at + "/stdin", b"one\n").status == 204
    big = b"x" * (3 * MB) + b"\n"
    assert d.post(at + "/stdin", big).status == 204
    assert d.post(at + "/stdin?close=1", b"two\n").status == 204
    wait(d, box, x)
    assert d.get(at + "/output").body == b"one\n" + big + b"two\nend\n"
    error(d.post(at + "/stdin", b"late"), 409, "conflict")
    x = start(d, box, "sleep 10")
    error(d.post(f"/v1/sandboxes/{box}/execs/{x}/stdin", b"no stdin"), 409, "conflict")
    kill(d, box, x)


def test_signals(d, box):
    x = start(d, box, "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
    at = f"/v1/sandboxes/{box}/execs/{x}"
    assert eventually(lambda: d.get(at + "/output").body)
    for bad in ({"signal": "NOPE"}, {"signal": 0}, {"signal": 99}, {"scope": "all"}, {"signal": {}}, {"signal": [1]}, {"sig": 1}):
        error(d.post(at + "/signal", bad), 400, "invalid")
    assert d.post(at + "/signal", {"signal": "USR1", "scope": "process"}).status == 204
    r = wait(d, box, x)
    assert r["exit_code"] == 5 and r["stdout"] == "ready\ngot\n", r
    error(d.post(at + "/signal", {"signal": 15}), 409, "conflict")
    error(d.post(at + "/resize", {"rows": 1, "cols": 1}), 409, "conflict")


def test_a_websocket_starts_a_command_and_carries_all(d, box):
    with WebSocket(d, f"/v1/sandboxes/{box}/execs/attach") as w:
        assert w.status == 101
        w.send(json.dumps({"shell": "echo hi; echo oh >&2; cat; exit 4", "stdin_open": True}))
        w.until(lambda o, e, t: o and e)
        w.send(b"\x03abc" + b"z" * 100000)
        w.send(json.dumps({"type": "bogus"}))
        w.send('{"type":"stdin_close"}')
        out, _, texts = w.all()
        assert out == b"abc" + b"z" * 100000, len(out)
        assert [t["type"] for t in texts] == ["error", "result"] and texts[-1]["exit_code"] == 4, texts
        assert w.closed == 1000
    with WebSocket(d, f"/v1/sandboxes/{box}/execs/attach") as w:
        w.send(json.dumps({"shell": "trap 'echo bye; exit 6' INT; echo up; while :; do sleep 0.05; done"}))
        w.until(lambda o, e, t: b"up" in o)
        w.send('{"type":"signal","signal":"INT"}')
        out, _, texts = w.all()
        assert b"bye" in out and texts[-1]["exit_code"] == 6, (out, texts)
    for bad in ("{", "{}", '{"cmd":[]}', '{"cmd":["/no/such"]}'):
        with WebSocket(d, f"/v1/sandboxes/{box}/execs/attach") as w:
            w.send(bad)
            _, _, texts = w.all()
            assert texts[-1]["type"] == "error" and texts[-1]["error"]["code"] in ("invalid", "refused"), texts
    error(d.get(f"/v1/sandboxes/{box}/execs/attach"), 400, "invalid")


def test_what_comes_right_behind_the_start_counts(d, box):
    at = f"/v1/sandboxes/{box}/execs/attach"
    for _ in range(8):  # the command itself is sent when it has a group: what comes earlier waits for it
        with WebSocket(d, at) as w:
            w.send(json.dumps({"cmd": ["sort"], "stdin_open": True}))
            w.send(b"\x03b\na\n")
            w.send('{"type":"stdin_close"}')
            out, _, texts = w.all()
            assert out == b"a\nb\n" and texts[-1]["exit_code"] == 0, (out, texts)
        with WebSocket(d, at) as w:
            w.send(json.dumps({"cmd": ["sleep", "300"]}))
            w.send('{"type":"signal","signal":"KILL"}')
            _, _, texts = w.all()
            assert texts[-1]["verdict"]["cause"] == "killed", texts
    with WebSocket(d, at) as w:
        w.send(json.dumps({"shell": "read x; stty size; echo $x", "tty": True, "timeout": 20}))
        w.send('{"type":"resize","rows":51,"cols":133}')
        w.send(b"\x03typed\n")
        out, _, texts = w.all()
        assert b"51 133" in out and out.count(b"typed") == 2, (out, texts)


def test_a_terminal_takes_what_its_program_reads_late(d, box):
    typed = b"x" * (300 << 10)
    want = f"head -c {len(typed)} | wc -c"
    with WebSocket(d, f"/v1/sandboxes/{box}/execs/attach") as w:
        w.send(json.dumps({"shell": f"stty raw -echo; echo now; sleep 1; {want}", "tty": True, "timeout": 20}))
        w.until(lambda o, e, t: b"now" in o)
        w.send(b"\x03" + typed)
        out, _, texts = w.all()
    assert out.split()[-1] == str(len(typed)).encode() and texts[-1]["exit_code"] == 0, (out, texts)


def test_a_large_message_to_stdin_comes_whole(d, box):
    size = 3 * MB
    with WebSocket(d, f"/v1/sandboxes/{box}/execs/attach") as w:
        w.send(json.dumps({"shell": "sleep 0.5; wc -c", "stdin_open": True, "timeout": 20}))
        w.send(b"\x03" + b"y" * size)
        w.send('{"type":"stdin_close"}')
        out, _, texts = w.all()
    assert out.split() == [str(size).encode()] and texts[-1]["exit_code"] == 0, (out, texts)


def test_half_a_character_at_the_end_of_a_stream_is_sent_too(d, box):
    got = list(events(d, f"/v1/sandboxes/{box}/execs", {"shell": r"head -c 4000000 /dev/zero | tr '\0' a; printf '\303'"}))
    said = b"".join(base64.b64decode(x["base64"]) if "base64" in x else x["data"].encode() for k, x in got if k == "stdout")
    assert said == b"a" * 4000000 + b"\xc3" and got[-1][0] == "result", (len(said), said[-9:], got[-1])


def test_a_terminal_is_left_and_found_again(d, box):
    x = start(d, box, "exec /bin/sh", tty={"rows": 30, "cols": 90}, stdin_open=True, env={"PS1": "> "})
    at = f"/v1/sandboxes/{box}/execs/{x}/attach"
    with WebSocket(d, at) as w:
        w.send(b"\x03stty size\n")
        out, err, _ = w.until(lambda o, e, t: b"30 90" in o)
        assert err == b""
        w.send(b"\x04" + struct.pack(">HH", 40, 100))
        w.send(b"\x03stty size\n")
        more, _, _ = w.until(lambda o, e, t: b"40 100" in o)
        seen = len(out) + len(more)
    # Hanging up ends nothing.
    assert d.get(f"/v1/sandboxes/{box}/execs/{x}").json["state"] == "running"
    assert d.post(f"/v1/sandboxes/{box}/execs/{x}/resize", {"rows": 50, "cols": 120}).status == 204
    with WebSocket(d, f"{at}?offset={seen}") as w:
        w.send(b"\x03stty size; echo a''b\n")
        out, _, _ = w.until(lambda o, e, t: b"ab\r\n" in o)
        assert b"50 120" in out and b"30 90" not in out and b"40 100" not in out, out
    with WebSocket(d, at) as w:
        out, _, _ = w.until(lambda o, e, t: b"ab\r\n" in o)
        assert b"30 90" in out, "without an offset it begins early"
        w.send(b"\x03exit 3\n")
        _, _, texts = w.all()
        assert texts[-1]["type"] == "result" and texts[-1]["exit_code"] == 3
    assert b"50 120" in d.get(f"/v1/sandboxes/{box}/execs/{x}/output?stream=tty").body


def test_output_nobody_reads_stays_out_of_memory(d, box):
    api = d.children()["api"]
    before = rss(api)
    x = start(d, box, "head -c 512M /dev/zero", timeout=60)
    peak = before
    while d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=0.1").json["state"] == "running":
        peak = max(peak, rss(api))
    r = wait(d, box, x)
    peak = max(peak, rss(api))
    assert int(d.get(f"/v1/sandboxes/{box}/execs/{x}/output?limit=0").headers["X-Cloche-Total"]) == 512 * MB, r
    assert peak - before < 64 * MB, (before, peak)


@pytest.mark.parametrize("kind", ["events", "websocket", "follow"])
def test_a_reader_that_does_not_read_costs_no_memory(d, box, kind):
    api = d.children()["api"]
    before = rss(api)
    at = f"/v1/sandboxes/{box}/execs"
    script = {"shell": "head -c 512M /dev/zero", "timeout": 8}
    if kind == "events":
        reader = Raw(d, "POST", at, script, {"Accept": "text/event-stream"})
    elif kind == "websocket":
        reader = WebSocket(d, at + "/attach")
        reader.send(json.dumps(script))
    else:
        x = start(d, box, "head -c 64M /dev/zero; sleep 1")
        reader = Raw(d, "GET", f"{at}/{x}/output?follow=1")
    peak, end = before, time.monotonic() + 1.5
    while time.monotonic() < end:
        peak = max(peak, rss(api))
        time.sleep(0.05)
    running = [e for e in d.get(at).json["execs"] if e["state"] == "running"]
    reader.close()
    assert peak - before < 64 * MB, (before, peak)
    if kind != "follow":
        assert len(running) == 1, "it waits for its reader"
    for e in running:
        kill(d, box, e["id"])


def test_a_client_that_hangs_up_ends_nothing_but_its_own(d, box):
    at = f"/v1/sandboxes/{box}/execs"
    before = {e["id"] for e in d.get(at).json["execs"]}
    script = "echo a; sleep 0.5; echo b > /tmp/hung-$N"
    plain = Raw(d, "POST", at, {"shell": script, "env": {"N": "1"}})
    stream = Raw(d, "POST", at, {"shell": script, "env": {"N": "2"}}, {"Accept": "text/event-stream"})
    ws = WebSocket(d, at + "/attach")
    ws.send(json.dumps({"shell": script, "env": {"N": "3"}}))
    x = start(d, box, script, env={"N": "4"})
    follow, waiting = Raw(d, "GET", f"{at}/{x}/output?follow=1"), Raw(d, "GET", f"{at}/{x}/wait")
    attached = WebSocket(d, f"{at}/{x}/attach")
    time.sleep(0.2)
    for one in (plain, stream, ws, follow, waiting, attached):
        one.close()
    new = lambda: [e for e in d.get(at).json["execs"] if e["id"] not in before]  # noqa: E731
    assert len(new()) == 4
    assert eventually(lambda: all(e["state"] == "ended" for e in new()), 5)
    assert all(e["exit_code"] == 0 for e in new()), new()
    assert run(d, box, "cat /tmp/hung-*; rm /tmp/hung-*")["stdout"] == "b\n" * 4
    assert d.get(f"{at}/{x}/output").body == b"a\n"
    # A body that never comes, an upload cut in the middle.
    for head in ({"Content-Length": "100"}, {"Transfer-Encoding": "chunked", "Content-Length": None}):
        Raw(d, "POST", at, None, head).close()
    y = start(d, box, "cat | wc -c", stdin_open=True)
    cut = Raw(d, "POST", f"{at}/{y}/stdin?close=1", None, {"Content-Length": "1000"})
    cut.s.sendall(b"x" * 10)
    time.sleep(0.1)
    cut.close()
    assert d.get(f"{at}/{y}").json["state"] == "running"
    kill(d, box, y)
    assert d.get("/healthz").status == 200
