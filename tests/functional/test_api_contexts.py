"""Contexts over the API: code that keeps its state, its results and events, interrupts, restarts, and how it ends."""
import collections
import json
import time

import pytest

from api import As, WebSocket, as_tenant, d, error, events, nothing_is_left_behind, token  # noqa: F401


@pytest.fixture(scope="module")
def box(d):
    b = d.create(memory="512M", disk="128M", pids=200)["id"]
    yield b
    d.delete(f"/v1/sandboxes/{b}")


def path(box, context="", call=""):
    return f"/v1/sandboxes/{box}/contexts" + (f"/{context}" if context else "") + (f"/{call}" if call else "")


def make(d, box, **fields):
    r = d.post(path(box), fields)
    assert r.status == 201 and r.json["state"] == "idle", r
    return r.json["id"]


def run(d, box, context, code, **fields):
    r = d.post(path(box, context, "execute"), {"code": code, **fields})
    assert r.status == 200 and r.headers["X-Cloche-Audit"], r
    return r.json


def text(execution):
    return [r["mime"]["text/plain"] for r in execution["results"]]


class Stream:
    """An execution as server-sent events."""

    def __init__(self, d, box, context, code, **fields):
        self.events = events(d, path(box, context, "execute"), {"code": code, **fields})

    def next(self):
        return next(self.events)

    def all(self):
        return list(self.events)

    def close(self):
        self.events.close()


def test_python_keeps_its_state_and_shows_its_results(d, box):
    c = make(d, box, language="python")
    r = run(d, box, c, "x = 40\nimport sys\nprint('out'); print('err', file=sys.stderr)")
    assert r == {
        "context": c, "results": [], "stdout": "out\n", "stderr": "err\n", "error": None, "execution_count": 1,
        "verdict": {"cause": "ok", "detail": "it ran to its end", "state": "kept", "limit": None, "peak": None},
        "truncated": {"output_dropped": 0, "results_dropped": 0}, "usage": r["usage"]}
    assert r["usage"]["wall_ms"] >= 0 and r["usage"]["cpu_ms"] >= 0 and r["usage"]["memory_peak"] > 1 << 20
    r = run(d, box, c, "x + 2")
    assert r["results"] == [{"mime": {"text/plain": "42"}, "is_main": True}] and r["execution_count"] == 2
    assert run(d, box, c, "{'a': [1, 2]}")["results"][0]["mime"]["application/json"] == {"a": [1, 2]}
    r = run(d, box, c, "1 / 0")
    assert r["error"]["name"] == "ZeroDivisionError" and "division" in r["error"]["traceback"]
    assert r["verdict"]["cause"] == "error" and r["verdict"]["state"] == "kept"
    assert run(d, box, c, "await __import__('asyncio').sleep(0, 'done')")["results"][0]["mime"]["text/plain"] == "'done'"
    assert d.delete(path(box, c)).status == 204
    error(d.get(path(box, c)), 404, "not_found")
    error(d.post(path(box, c, "execute"), {"code": "1"}), 404, "not_found")


def test_the_other_languages(d, box):
    c = make(d, box, language="JS")
    assert text(run(d, box, c, "const a = await Promise.resolve(20); a * 2 + 2")) == ["42"]
    assert text(run(d, box, c, "a")) == ["20"]
    c = make(d, box, language="bash", cwd="/tmp", env={"COLOR": "red"})
    assert run(d, box, c, "v=5; f() { echo f$v; }; cd /usr")["verdict"]["cause"] == "ok"
    r = run(d, box, c, "f; pwd; echo $COLOR; false")
    assert r["stdout"] == "f5\n/usr\nred\n" and r["error"]["name"] == "ExitStatus" and r["error"]["value"] == "1"
    assert run(d, box, c, "ls -A /tmp | grep cloche")["stdout"] == ""


def test_default_contexts_are_there_and_start_by_use(d):
    b = d.create()["id"]
    found = d.get(path(b)).json["contexts"]
    assert [(c["id"], c["language"], c["state"], c["default"]) for c in found] == [
        ("python", "python", "stopped", True), ("javascript", "javascript", "stopped", True)]
    own = make(d, b, language="python", cwd="/tmp")
    assert run(d, b, "python", "y = 1")["execution_count"] == 1
    assert text(run(d, b, "python", "y")) == ["1"]
    assert text(run(d, b, "js", "1 + 1")) == ["2"] and text(run(d, b, "javascript", "2 + 2")) == ["4"]
    assert run(d, b, "sh", "echo $0")["error"] is None
    assert [(c["id"], c["state"]) for c in d.get(path(b)).json["contexts"]] == [
        ("python", "idle"), ("javascript", "idle"), (own, "idle"), ("shell", "idle")]
    assert d.get(path(b, own)).json["cwd"] == "/tmp"
    assert d.delete(path(b, "python")).status == 204
    assert run(d, b, "python", "y")["error"]["name"] == "NameError"
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_events_come_as_the_code_runs(d, box):
    found = Stream(d, box, "python", "print('a')\ndisplay(1)\nprint('b')\n2").all()
    assert [name for name, _ in found] == ["stdout", "result", "stdout", "result", "end"]
    assert found[0][1] == {"text": "a\n"} and found[1][1]["is_main"] is False and found[3][1]["is_main"] is True
    assert found[4][1]["verdict"]["cause"] == "ok" and found[4][1]["context"] == "python"
    s = Stream(d, box, "python", "import time\nprint('first', flush=True)\ntime.sleep(300)")
    assert s.next() == ("stdout", {"text": "first\n"})  # long before its end
    s.close()


Caller = collections.namedtuple("Caller", "url token")


class Session(WebSocket):
    """Executions over one WebSocket."""

    def __init__(self, d, box, context):
        super().__init__(d, path(box, context, "attach"), timeout=60)
        assert self.status == 101, self.status

    def ask(self, **fields):
        self.send(json.dumps({"type": "execute", **fields}))

    def all(self):
        found = [self.receive()]
        while found[-1]["type"] not in ("end", "refused"):
            found.append(self.receive())
        return found


def test_a_websocket_runs_code_many_times(d, box):
    c = make(d, box)
    with Session(d, box, c) as s:
        s.ask(code="x = 41\nprint('a')\ndisplay(1)\nx + 1", env={"A": "b"}, timeout="1m")
        found = s.all()
        assert [m["type"] for m in found] == ["stdout", "result", "result", "end"] and found[0]["text"] == "a\n"
        assert found[2]["mime"]["text/plain"] == "42" and found[3]["execution_count"] == 1 and found[3]["context"] == c
        s.ask(code="1 / 0")
        assert [m.get("name") for m in s.all()] == ["ZeroDivisionError", None]
        for wrong in ({"code": 5}, {}, {"code": "1", "nonsense": 1}, {"type": "nonsense"}):
            s.ask(**wrong)
            m, = s.all()
            assert (m["type"], m["error"]["code"]) == ("refused", "invalid") and m["error"]["request_id"]
        s.send(b"binary")
        assert s.receive()["error"]["code"] == "invalid"
        s.send(json.dumps({"type": "interrupt"}))  # nothing runs: no answer
        s.ask(code="print('begun')\nimport time; time.sleep(300)")
        assert s.receive()["text"] == "begun\n"
        s.ask(code="2")
        assert s.receive()["error"]["code"] == "conflict"
        s.send(json.dumps({"type": "interrupt"}))
        found = s.all()
        assert found[0]["name"] == "KeyboardInterrupt" and found[-1]["verdict"]["cause"] == "interrupted"
        s.ask(code="a" * (1 << 20) + " = x\nx")
        assert s.all()[0]["mime"]["text/plain"] == "41"
        s.ask(code="for i in range(3000): print('y' * 4000)")  # more than is queued for a client that does not read
        text = "".join(m["text"] for m in s.all() if m["type"] == "stdout")
        assert len(text) == 4 << 20, len(text)
        assert d.get(path(box, c)).json["state"] == "idle"
        s.ask(code="print('begun'); time.sleep(300)")
        s.receive()
    assert text_of(d, box, c, "x") == "41"  # it went away in the middle
    with Session(d, box, c) as s:
        s.ask(code="x")
        s.all()
        assert d.delete(path(box, c)).status == 204
        s.ask(code="x")
        assert s.receive()["error"]["code"] == "not_found"
    r = d.get(path(box, "python", "attach"))
    error(r, 400, "invalid")


def test_a_websocket_is_charged_and_ends_with_its_token(d, box):
    c = make(d, box)
    t = token(d, scope="exec", rate={"points": 3, "window": "10m"})
    with Session(Caller(d.url, t["token"]), box, c) as s:
        s.ask(code="1")
        s.all()
        s.ask(code="1")
        s.all()
        s.ask(code="1")
        assert s.receive()["error"]["code"] == "rate"
        assert d.delete(f"/v1/tokens/{t['id']}").status == 204
        assert s.receive() is None and s.closed == 1008
    with WebSocket(Caller(d.url, token(d, scope="read")["token"]), path(box, c, "attach")) as s:
        assert s.status == 403


def text_of(d, box, context, code):
    found = run(d, box, context, code)
    assert found["results"], found
    return text(found)[0]


def test_a_client_that_hangs_up_leaves_its_context_usable(d, box):
    c = make(d, box, language="python")
    run(d, box, c, "kept = 7")
    s = Stream(d, box, c, "import time\nprint('begun')\ntime.sleep(300)")
    s.next()
    s.close()
    began = time.monotonic()
    assert text(run(d, box, c, "kept")) == ["7"]
    assert time.monotonic() - began < 30
    s = Stream(d, box, c, "print('begun')\nwhile True: print('x' * 1000)")
    s.next()
    s.close()
    assert text(run(d, box, c, "kept")) == ["7"]


def test_a_timeout_interrupts_and_then_restarts(d, box):
    c = make(d, box, language="python")
    run(d, box, c, "kept = 7")
    r = run(d, box, c, "import time\nprint('a')\ntime.sleep(300)", timeout=0.5)
    assert r["stdout"] == "a\n" and r["error"]["name"] == "KeyboardInterrupt" and text(run(d, box, c, "kept")) == ["7"]
    v = r["verdict"]
    assert (v["cause"], v["state"], v["limit"]) == ("timeout", "kept", 500) and 500 <= v["peak"]
    r = run(d, box, c, "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout="500ms")
    assert (r["verdict"]["cause"], r["verdict"]["state"]) == ("timeout", "lost"), r
    r = run(d, box, c, "kept")
    assert r["error"]["name"] == "NameError" and r["execution_count"] == 1


def test_interrupt_and_restart(d, box):
    c = make(d, box, language="python", cwd="/tmp")
    run(d, box, c, "kept = 7")
    assert d.post(path(box, c, "interrupt")).json == {"interrupted": False}
    s = Stream(d, box, c, "import time\nprint('begun')\ntime.sleep(300)")
    s.next()
    assert d.get(path(box, c)).json["state"] == "busy"
    assert d.post(path(box, c, "interrupt")).json == {"interrupted": True}
    found = s.all()
    assert [name for name, _ in found] == ["error", "end"] and found[1][1]["verdict"]["cause"] == "interrupted"
    assert text(run(d, box, c, "kept")) == ["7"]
    s = Stream(d, box, c, "import time\nprint('begun')\ntime.sleep(300)")
    s.next()
    r = d.post(path(box, c, "restart"))
    assert r.status == 200 and r.json["id"] == c and r.json["state"] == "idle"
    assert s.all()[-1][1]["verdict"]["cause"] == "restarted"
    r = run(d, box, c, "import os; os.getcwd(), 'kept' in dir()")
    assert text(r) == ["('/tmp', False)"] and r["execution_count"] == 1


def test_env_holds_for_one_execution(d, box):
    c = make(d, box, env={"BASE": "1"})
    show = "import os; [os.environ.get(k) for k in ('BASE', 'MORE')]"
    assert text(run(d, box, c, show, env={"BASE": "2", "MORE": "3"})) == ["['2', '3']"]
    assert text(run(d, box, c, show, env={"BASE": None})) == ["[None, None]"]
    assert text(run(d, box, c, show)) == ["['1', None]"]


def test_questions_about_code(d, box):
    c = make(d, box)
    run(d, box, c, "value_of_mine = 1")
    r = d.post(path(box, c, "complete"), {"code": "value_of"}).json
    assert r["matches"] == ["value_of_mine"] and (r["start"], r["end"]) == (0, 8)
    assert d.post(path(box, c, "is_complete"), {"code": "for x in y:"}).json["status"] == "incomplete"
    assert d.post(path(box, c, "inspect"), {"code": "len"}).json["found"] is True
    assert d.get(path(box, c, "history")).json == {"cells": [{"execution_count": 1, "code": "value_of_mine = 1"}]}
    assert d.get(path(box, c, "history?last=0")).json == {"cells": []}
    error(d.post(path(box, c, "complete"), {"code": 5}), 400, "invalid")


def test_wrong_requests_are_refused_by_name(d, box):
    for fields in ({"language": "cobol"}, {"language": 5}, {"cwd": 5}, {"env": {"A=": "x"}}, {"env": {"A": 5}}, {"nonsense": 1},
                   {"restrict": {"nonsense": []}}, {"restrict": {"imports": "os"}}, {"language": "js", "restrict": {"imports": ["fs"]}},
                   {"output_limit": "17M"}, {"result_limit": "11M"}, {"result_limit": 5}):
        error(d.post(path(box), fields), 400, "invalid")
    for fields in ({}, {"code": 5}, {"code": {"a": 1}}, {"code": None}, {"code": "1", "timeout": -1}, {"code": "1", "x": 1}):
        error(d.post(path(box, "python", "execute"), fields), 400, "invalid")
    r = d.post(path(box), {"cwd": "/no/such/folder"})
    error(r, 422, "refused")
    assert "/no/such/folder" in r.json["error"]["message"]
    error(d.get(path(box, "nonsense")), 404, "not_found")


def test_an_image_without_the_interpreter_says_so(d, box):
    r = d.post(path(box), {"language": "python", "env": {"PATH": "/nowhere"}})
    assert r.status == 201  # its own environment does not change where the interpreter is looked for
    b = d.create(env={"PATH": "/nowhere"})["id"]
    r = d.post(path(b), {"language": "python"})
    error(r, 422, "refused")
    assert "python3" in r.json["error"]["message"] and [c["id"] for c in d.get(path(b)).json["contexts"]] == ["python", "javascript"]
    error(d.post(path(b, "javascript", "execute"), {"code": "1"}), 422, "refused")
    d.delete(f"/v1/sandboxes/{b}")
    b = d.create(env={"PATH": "/tmp/bin"})["id"]
    d.exec(b, "/bin/sh", "-c", "/bin/mkdir /tmp/bin; /bin/ln -s /bin/head /bin/chmod /bin/rm /tmp/bin")
    r = d.post(path(b, "r", "execute"), {"code": "1"})
    error(r, 422, "refused")
    assert "there is no R" in r.json["error"]["message"] and "r-base-core" in r.json["error"]["remedy"], r
    d.delete(f"/v1/sandboxes/{b}")


def test_r_where_the_image_has_it(d, box):
    """Debian's r-base-core, which the tests install."""
    r = run(d, box, "r", "kept <- 5; data.frame(a = 1:2)")
    assert r["verdict"]["cause"] == "ok" and r["results"][0]["data"] == {"a": [1, 2]} and r["results"][0]["is_main"], r
    r = run(d, box, "R", "plot(kept)")
    assert r["results"][0]["mime"]["image/png"].startswith("iVBOR") and r["error"] is None
    assert d.get(path(box, "r")).json["language"] == "r"
    r = run(d, box, "r", "Sys.sleep(60)", timeout=1)
    assert (r["verdict"]["cause"], r["verdict"]["state"], text(run(d, box, "r", "kept"))) == ("timeout", "kept", ["[1] 5"])
    r = run(d, box, "r", "tools::pskill(Sys.getpid(), 9)")
    assert (r["verdict"]["cause"], r["verdict"]["state"]) == ("signaled", "lost")
    assert run(d, box, "r", "kept")["error"]["value"] == "object 'kept' not found"
    r = d.post("/v1/run", {"language": "r", "code": "write.csv(data.frame(a = 1), 'a.csv'); 6 * 7", "artifacts": True}, timeout=60)
    assert text(r.json) == ["[1] 42"] and [a["path"] for a in r.json["artifacts"]] == ["a.csv"], r
    error(d.post("/v1/run", {"language": "r", "code": "1", "packages": ["x"]}), 400, "invalid")
    error(d.post(path(box), {"language": "julia"}), 400, "invalid")


def test_restricted_python(d, box):
    c = make(d, box, restrict={"builtins": ["open"], "imports": ["subprocess"]})
    assert run(d, box, c, "open('/etc/passwd')")["error"]["name"] == "Restricted"
    assert run(d, box, c, "import subprocess")["error"]["name"] == "ImportError"
    assert text(run(d, box, c, "1 + 1")) == ["2"]


def test_rights_audit_and_events(d, box):
    c = make(d, box)
    run(d, box, c, "secret_word = 1")
    records = [json.loads(line) for line in open(d.data / "audit.log") if c in line]
    assert [r["kind"] for r in records if r["kind"].startswith("context.")] == ["context.create", "context.execute"]
    assert records[-1]["code"] == "secret_word = 1" and records[-1]["verdict"]["cause"] == "ok"
    other = as_tenant(d, "contexts-other")
    for call in (other.get(path(box, c)), other.post(path(box, c, "execute"), {"code": "1"}), other.delete(path(box, c))):
        error(call, 404, "not_found")
    reader = As(d, token(d, scope="read")["token"])
    assert reader.get(path(box, c)).status == 200
    for call in (reader.post(path(box, c, "execute"), {"code": "1"}), reader.post(path(box)), reader.get(path(box, c, "history"))):
        error(call, 403, "denied")


def test_contexts_end_with_their_sandbox(d):
    b = d.create()["id"]
    c = make(d, b)
    s = Stream(d, b, c, "import time\nprint('begun')\ntime.sleep(300)")
    s.next()
    assert d.delete(f"/v1/sandboxes/{b}").status == 204
    end = s.all()[-1]
    assert end[0] == "end" and end[1]["verdict"]["cause"] == "deleted" and end[1]["verdict"]["state"] == "lost"
    error(d.get(path(b, c)), 404, "not_found")
