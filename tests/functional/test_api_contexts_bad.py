"""Code in contexts that misbehaves: a clear verdict, a daemon of bounded memory, the sandbox and other contexts unharmed."""
import json
import os
import select
import threading
import time

import pytest

from api import REASONS, Raw, WebSocket, as_tenant, d, error, nothing_is_left_behind, rss  # noqa: F401
from test_api_contexts import Stream, make, path, run, text

MIB = 1 << 20


@pytest.fixture(scope="module")
def box(d):
    b = d.create(memory="512M", disk="128M", pids=200)["id"]
    yield b
    d.delete(f"/v1/sandboxes/{b}")


@pytest.fixture(scope="module")
def other(d, box):
    """A context beside, which nothing of this may touch."""
    c = make(d, box)
    run(d, box, c, "kept = 'other'")
    yield c
    assert text(run(d, box, c, "kept")) == ["'other'"]


@pytest.fixture
def c(d, box, other):
    made = make(d, box)
    run(d, box, made, "kept = 7")
    yield made
    d.delete(path(box, made))
    assert state(d, box, other) == "'other'"


def state(d, box, c):
    """What of its variables is there."""
    r = run(d, box, c, "kept")
    return text(r)[0] if r["results"] else r["error"]["name"]


def test_nuls_and_half_characters(d, box, c):
    r = run(d, box, c, "a = 'x\0y'; print(a); a")
    assert r["error"]["name"] in ("SyntaxError", "ValueError") and "null" in r["error"]["value"] and state(d, box, c) == "7"
    r = run(d, box, c, "print('a\\0b', end=''); '\\0'")
    assert r["stdout"] == "a\0b" and text(r) == ["'\\x00'"]
    assert run(d, box, c, "import sys; sys.stdout.buffer.write(b'\\xff\\xc3'); print('\\ud800')")["stdout"].count("\ufffd") >= 2
    error(d.post(path(box, "shell", "execute"), {"code": "echo a\0b"}), 400, "invalid")
    assert run(d, box, "js", "'\0'.length + '\\0'.length")["results"][0]["mime"]["text/plain"] == "2"
    error(d.post(path(box, c, "execute"), b'{"code": "\xff"}'), 400, "invalid")


def test_10_mb_of_code(d, box, c):
    r = run(d, box, c, "x = 1\n" + "#" * (10 * MIB) + "\nx + 1")
    assert text(r) == ["2"]
    assert text(run(d, box, c, f"len('{'y' * 2_000_000}')")) == ["2000000"]
    error(d.post(path(box, c, "execute"), {"code": "#" * (33 * MIB)}), 413, "too_large")
    assert state(d, box, c) == "7"


def test_a_syntax_error_has_its_position(d, box, c):
    e = run(d, box, c, "y = 1\nfor x in range(3)\n    pass")["error"]
    assert (e["name"], e["line"]) == ("SyntaxError", 2) and e["column"] > 1 and state(d, box, c) == "7"
    e = run(d, box, "js", "let a = 1;\nlet b = = 2;")["error"]
    assert e["name"] == "SyntaxError" and e["line"] == 2 and e["column"] == 9


@pytest.mark.parametrize("code, cause, word", (
    ("import os; os._exit(3)", "exited", "3"),
    ("import ctypes; ctypes.string_at(0)", "signaled", "11"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signaled", "9"),
    ("import os\nfor fd in range(3, 260):\n    try: os.write(fd, b'nonsense' * 100)\n    except OSError: pass", "protocol", "descriptors"),
))
def test_the_end_of_the_process_is_told(d, box, c, code, cause, word):
    r = run(d, box, c, "print('before', flush=True)\n" + code + "\nimport time; time.sleep(5)")
    assert (r["verdict"]["cause"], r["verdict"]["state"]) == (cause, "lost") and word in r["verdict"]["detail"], r
    assert r["stdout"] == "before\n" and state(d, box, c) == "NameError"


def test_exits_of_languages_keep_the_context(d, box, c):
    r = run(d, box, c, "import sys; sys.exit(3)")
    assert (r["error"]["name"], r["verdict"]["state"]) == ("SystemExit", "kept") and state(d, box, c) == "7"
    r = run(d, box, "js", "globalThis.kept = 7; process.exit(3)")
    assert (r["error"]["name"], r["verdict"]["state"]) == ("ProcessExit", "kept") and text(run(d, box, "js", "kept")) == ["7"]
    r = run(d, box, "js", "process.kill(process.pid, 'SIGKILL')")
    assert (r["verdict"]["cause"], r["verdict"]["state"]) == ("signaled", "lost")


def test_output_without_end_is_cut_and_ends_with_its_time(d, box, c):
    before = rss(d.children()["api"])
    r = run(d, box, c, "while True: print('x' * 1000)", timeout=1)
    assert (r["verdict"]["cause"], r["verdict"]["state"]) == ("timeout", "kept") and len(r["stdout"]) == 4 * MIB
    assert r["truncated"]["output_dropped"] > 0 and state(d, box, c) == "7"
    r = run(d, box, "js", "while (true) console.log('y'.repeat(1000))", timeout=2)
    assert r["verdict"]["cause"] == "timeout" and len(r["stdout"]) == 4 * MIB
    r = run(d, box, "sh", "yes", timeout=3)
    assert r["verdict"]["cause"] == "timeout" and len(r["stdout"]) == 4 * MIB
    s = Stream(d, box, c, "while True: print('x' * 1000)")  # nobody reads
    s.next()
    s.close()
    assert state(d, box, c) == "7" and rss(d.children()["api"]) < before + 160 * MIB


def test_results_beyond_their_limit(d, box, c):
    before = rss(d.children()["api"])
    r = run(d, box, c, "class R:\n def _repr_html_(self): return 'h' * 150_000_000\n def __repr__(self): return 'r' * 30_000_000\nR()")
    found = r["results"][0]
    assert len(found["mime"]["text/plain"]) == MIB and "text/html" not in found["mime"]
    assert found["truncated"] == {"text/plain": 30_000_000, "text/html": 150_000_000}
    r = run(d, box, c, "for i in range(100): display({'text/html': 'h' * 9_000_000}, raw=True)")
    assert 1 <= len(r["results"]) < 10 and r["error"]["name"] == "TooManyResults"
    assert rss(d.children()["api"]) < before + 200 * MIB


def test_a_context_that_its_memory_limit_kills(d):
    b = d.create(memory="256M")["id"]
    one, beside = make(d, b), make(d, b)
    for code in ("'g' * (1 << 30)", "x = bytearray(400 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"):
        r = run(d, b, one, "print('a', flush=True)\n" + code)
        assert r["stdout"] == "a\n"
        if not r["error"] or r["error"]["name"] != "MemoryError":
            assert (r["verdict"]["cause"], r["verdict"]["state"], r["verdict"]["limit"]) == ("oom", "lost", 256 << 20), r
        assert text(run(d, b, one, "1 + 1")) == ["2"]
    assert text(run(d, b, beside, "2 + 2")) == ["4"]
    d.delete(f"/v1/sandboxes/{b}")


def test_a_cell_that_ends_its_shell_loses_the_variables(d):
    b = d.create()["id"]
    c = make(d, b, language="bash")
    for code, state in (("kept=1; false", "kept"), ("exit 3", "lost"), ("kill -9 $$", "lost"), ("true", "kept")):
        r = run(d, b, c, code)
        assert r["verdict"]["state"] == state and ("lost" in r["verdict"]["detail"]) == (state == "lost"), (code, r)
    d.delete(f"/v1/sandboxes/{b}")


def test_a_command_of_a_shell_that_the_memory_limit_kills_is_named(d):
    b = d.create(memory="96M")["id"]
    c = make(d, b, language="sh")
    run(d, b, c, "kept=1")
    hog = "exec python3 -c 'x = []\nwhile True: x.append(bytes(4 << 20).replace(b\"\\0\", b\"1\"))'"
    for _ in range(2):
        r = run(d, b, c, f"({hog})")
        assert (r["error"]["name"], r["error"]["value"]) == ("ExitStatus", "137"), r
        v = r["verdict"]
        assert (v["cause"], v["state"], v["oom_kills"]) == ("error", "kept", 1) and "memory limit of 96M" in v["detail"], r
    r = run(d, b, c, "echo $kept; sh -c 'kill -9 $$'")  # 137 for another reason, after a kill by the limit
    assert r["stdout"] == "1\n" and r["error"]["value"] == "137" and "oom_kills" not in r["verdict"], r
    r = run(d, b, "python", f"import subprocess\nsubprocess.run({hog!r}, shell=True, check=True)")
    assert r["error"]["name"] == "CalledProcessError" and r["verdict"]["oom_kills"] == 1 and r["verdict"]["state"] == "kept", r
    d.delete(f"/v1/sandboxes/{b}")


def test_the_context_that_takes_the_memory_is_the_one_that_ends(d):
    """The others stay, even one that has more."""
    b = d.create(memory="512M", disk="64M")["id"]
    keeper = make(d, b)
    held = {keeper: "x = bytearray(230 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nkept = len(x)", "js": "let kept = 5; kept", "sh": "kept=6"}
    asked = {keeper: ("kept", str(230 << 20)), "js": ("kept", "5"), "sh": ("echo $kept", "6")}
    for c, code in held.items():
        assert run(d, b, c, code)["verdict"]["cause"] == "ok"
    hogs = (("python", "x = []\nwhile True: x.append(b'1' * (4 << 20))"), ("ts", "const a = []; for (;;) a.push(Buffer.alloc(4 << 20, 1))"),
            ("bash", "kept=6; tail /dev/zero"))
    for language, code in hogs * 2:
        hog = make(d, b, language=language)
        r = run(d, b, hog, code)
        if language == "bash":  # its largest command, so that the shell stays
            assert r["error"]["value"] == "137" and run(d, b, hog, "echo $kept")["stdout"] == "6\n", r
        else:
            assert (r["verdict"]["cause"], r["verdict"]["state"], r["verdict"]["limit"]) == ("oom", "lost", 512 << 20), r
        for c, (ask, want) in asked.items():
            r = run(d, b, c, ask)
            assert (text(r) or [r["stdout"].strip()]) == [want], (language, c, r)
        d.delete(path(b, hog))
    d.delete(f"/v1/sandboxes/{b}")


@pytest.mark.parametrize("nofile", (256, 210, 120, 48))
def test_few_descriptors_are_enough_for_a_context(d, nofile):
    b = d.create(nofile=nofile)
    for language, code in (("python", "import resource\nresource.getrlimit(resource.RLIMIT_NOFILE)[0]"), ("shell", "ulimit -n")):
        r = d.post(f"/v1/sandboxes/{b['id']}/contexts/{language}/execute", {"code": code}, timeout=60)
        assert r.status == 200 and r.json["verdict"]["cause"] == "ok", r
        assert (r.json["stdout"] or r.json["results"][0]["mime"]["text/plain"]).strip() == str(nofile)
    assert d.post(f"/v1/sandboxes/{b['id']}/contexts/python/execute", {"code": "!echo child"}).json["stdout"] == "child\n"
    d.delete(f"/v1/sandboxes/{b['id']}")


def test_values_that_refer_to_themselves_or_raise(d, box, c):
    r = run(d, box, c, "a = []; a.append(a); b = {}; b['b'] = b\ndisplay(a); display(b)\nclass E:\n def __repr__(self): return repr(self)\nE()")
    assert text(r)[:2] == ["[[...]]", "{'b': {...}}"] and "RecursionError" in r["stderr"] + str(r["error"])
    r = run(d, box, c, "deep = []\nfor i in range(100000): deep = [deep]\ndeep")
    assert r["verdict"]["state"] == "kept" and state(d, box, c) == "7"
    assert "[Circular" in text(run(d, box, "js", "const o = {}; o.o = o; o"))[0]
    assert run(d, box, "js", "({ get a() { throw new Error('x') }, toJSON() { throw new Error('y') } })")["verdict"]["cause"] in ("ok", "error")


def test_plots_of_100_megapixels(d, box, c):
    r = run(d, box, c, "import matplotlib\nmatplotlib.use('Agg')")
    if r["error"]:
        code = "class P:\n def _repr_png_(self): return b'\\x89PNG' + bytes(40_000_000)\nP()"
    else:
        code = "import matplotlib.pyplot as plt\nplt.figure(figsize=(100, 100), dpi=100)\nplt.plot([1, 2])\nplt.show()"
    r = run(d, box, c, code)
    assert r["verdict"]["cause"] in ("ok", "error", "oom"), r["verdict"]
    assert all(len(x["mime"].get("image/png", "")) < 15 * MIB for x in r["results"])


def test_forks_and_threads_do_not_confuse_the_context(d, box, c):
    r = run(d, box, c, "import os\nif os.fork() == 0:\n    print('child', flush=True)\n    raise ValueError('of the child')\nos.wait()\nprint('parent')\n5")
    assert text(r) == ["5"] and "parent\n" in r["stdout"] and r["error"] is None, r
    r = run(d, box, c, "pid = os.fork()\nif pid: os.waitpid(pid, 0)\npid > 0")  # a child that comes to the end of the cell
    assert text(r) == ["True"] and state(d, box, c) == "7"
    run(d, box, c, "import threading, time\ngo = threading.Event()\ndef late():\n    go.wait(20)\n    print('late')\n    1/0\n"
        "t = threading.Thread(target=late); t.start()")
    r = run(d, box, c, "go.set(); t.join(); print('mine'); 6")
    assert text(r) == ["6"] and "mine\n" in r["stdout"] and state(d, box, c) == "7"
    r = run(d, box, c, "import subprocess\nsubprocess.Popen('sleep 0.2; echo orphan', shell=True)\nprint('now')")
    assert r["stdout"].startswith("now\n") and state(d, box, c) == "7"


def test_many_calls_at_once_and_many_contexts(d, box, c):
    out = []
    calls = [threading.Thread(target=lambda i=i: out.append(run(d, box, c, f"seen = globals().get('seen', 0) + 1; {i}"))) for i in range(30)]
    for t in calls:
        t.start()
    for t in calls:
        t.join()
    assert sorted(int(text(r)[0]) for r in out) == list(range(30)) and text(run(d, box, c, "seen")) == ["30"]
    with WebSocket(d, path(box, c, "attach")) as w:
        w.send("[" * 100000)
        assert w.receive()["error"]["code"] == "invalid"
    for kind in ('{"code": 1e999}', '{"code": "1", "code": "2"}', "null", '"x"'):
        error(d.post(path(box, c, "execute"), kind.encode()), 400, "invalid")


def many(d, n, code, **fields):
    """Runs code in n contexts of a tenant at once, with the request's connections."""
    u = as_tenant(d, f"many{n}")
    boxes = [u.create()["id"] for _ in range(3)]
    raws = []
    for i in range(n):
        at = f"/v1/sandboxes/{boxes[i % 3]}/contexts"
        r = u.post(at, {"language": "python", **fields}, timeout=60)
        assert r.status == 201, r
        raws.append(Raw(d, "POST", f"{at}/{r.json['id']}/execute", {"code": code}, {"Authorization": f"Bearer {u.token}"}, timeout=60))
    return u, boxes[0], raws


def answer(raw):
    status, head = raw.head()
    return status, json.loads(raw.f.read(int(head["content-length"])))


def test_events_without_an_end_take_a_bounded_part_of_the_daemons_memory(d):
    code = ("import os, struct, time\nn = 46 << 20\nos.set_blocking(201, True)\nos.write(201, struct.pack('<I', n) + b'{\"x\":\"')\n"
            "z = b'a' * 65536\nw = 0\nwhile w < n - 70000: w += os.write(201, z)\ntime.sleep(600)")
    api = d.children()["api"]
    before = rss(api)
    u, box, raws = many(d, 14, code)
    ended, end = [], time.monotonic() + 60
    while not ended and time.monotonic() < end:
        ended = [x for x in raws if select.select([x.s], [], [], 0.1)[0]]
    assert ended and rss(api) - before < 700 << 20
    status, body = answer(ended[0])
    assert status == 200 and body["verdict"]["cause"] == "protocol" and "512 MiB" in body["verdict"]["detail"], body
    for x in raws:
        x.close()
    assert u.post(f"/v1/sandboxes/{box}/contexts/js/execute", {"code": "6 * 7"}, timeout=60).status == 200


def test_output_of_many_calls_takes_a_bounded_part_of_the_daemons_memory(d):
    """Each control character of 16 MiB is six bytes of the answer. Forged events, since those are sent faster."""
    api = d.children()["api"]
    before, top = rss(api), 0
    code = ("import os, struct, time\nos.set_blocking(201, True)\n"
            "e = b'{\"type\":\"stdout\",\"id\":3,\"text\":\"' + b'\\\\u0001' * (1 << 20) + b'\"}'\nf = memoryview(struct.pack('<I', len(e)) + e)\n"
            "for _ in range(16):\n  w = 0\n  while w < len(f): w += os.write(201, f[w:w + 65536])\n"
            f"time.sleep(max(0, {time.time() + 25} - time.time()))")
    u, box, left = many(d, 5, code, output_limit="16M")
    end, dropped = time.monotonic() + 120, 0
    while left and time.monotonic() < end:
        for x in [x for x in left if select.select([x.s], [], [], 0.05)[0]]:
            status, head = x.head()
            body = x.f.read(int(head["content-length"]))
            assert status in (200, 429), body[:1000]
            dropped += b"output was dropped" in body[:1000]
            left.remove(x)
            x.close()
        top = max(top, rss(api))
    assert not left and dropped and top - before < 700 << 20, (len(left), dropped, top)
    assert u.post(f"/v1/sandboxes/{box}/contexts/js/execute", {"code": "6 * 7"}, timeout=60).status == 200


if os.environ.get("CLOCHE_LONG"):  # half a gigabyte of code: a minute of processor time
    def test_code_that_waits_takes_a_bounded_part_of_the_daemons_memory(d):
        """A frame stays until its call is over; what was freed before it is not always given back (2.4 times as much was seen)."""
        u = as_tenant(d, "waits")
        box = u.create()["id"]
        code, api = "#" * (31 << 20), d.children()["api"]
        u.post(f"/v1/sandboxes/{box}/contexts/python/execute", {"code": "1"}, timeout=60)
        with Raw(d, "POST", f"/v1/sandboxes/{box}/contexts/python/execute", {"code": "import time; time.sleep(600)"},
                 {"Authorization": f"Bearer {u.token}"}, timeout=60):
            before, raws, refused = rss(api), [], None
            while not refused and len(raws) < 24:
                raws.append(Raw(d, "POST", f"/v1/sandboxes/{box}/contexts/python/execute", {"code": code},
                                {"Authorization": f"Bearer {u.token}"}, timeout=60))
                refused = select.select([raws[-1].s], [], [], 5 if len(raws) > 15 else 0)[0]
            assert refused and len(raws) > 12 and rss(api) - before < 1500 << 20, (len(raws), rss(api) - before)
            status, body = answer(raws[-1])
            assert status == 503 and body["error"]["code"] == "exhausted" and "512 MiB" in body["error"]["message"], body
            for x in raws:
                x.close()
        assert u.post(f"/v1/sandboxes/{box}/contexts/js/execute", {"code": "6 * 7"}, timeout=60).status == 200


def test_a_context_that_is_deleted_while_its_code_comes_gets_no_kernel(d, box, other):
    gone = make(d, box)
    body = json.dumps({"code": "import time; time.sleep(600)"}).encode()
    with Raw(d, "POST", f"{path(box, gone)}/execute", b"", {"Content-Length": str(len(body))}) as raw:
        assert state(d, box, other) == "'other'"  # the head was read before this
        d.delete(path(box, gone))
        raw.s.sendall(body)
        assert raw.head()[0] == REASONS["context_ended"].status


FORGED = """
import json, os, struct, time
for n in range(1, 100):
    for o in ({'type': 'reply', 'id': n, 'matches': []}, {'type': 'refused', 'id': n, 'message': 'not run'}):
        text = json.dumps(o).encode()
        os.write(201, struct.pack('<I', len(text)) + text)
time.sleep(1)
"""


@pytest.mark.parametrize("stream", (False, True), ids=("object", "events"))
def test_code_that_has_itself_refused_is_in_the_audit_log(d, box, c, stream):
    if stream:
        end = Stream(d, box, c, FORGED).all()[-1]
        assert end[0] == "end" and end[1]["verdict"]["cause"] == "error" and "not run" in end[1]["verdict"]["detail"], end
    else:
        error(d.post(path(box, c, "execute"), {"code": FORGED}), 400, "invalid")
    records = [json.loads(line) for line in open(d.data / "audit.log") if c in line]
    assert [r["code"] for r in records if r["kind"] == "context.execute"] == ["kept = 7", FORGED]
    assert records[-1]["verdict"]["cause"] == "error" and state(d, box, c) == "7"
