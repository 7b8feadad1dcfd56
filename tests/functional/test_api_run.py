"""POST /v1/run: code in a sandbox of its own, with files, artifacts and limits; nothing of it stays."""
import base64
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import time

import pytest

from api import As, Raw, as_tenant, d, error, events, eventually, nothing_is_left_behind, token  # noqa: F401
from daemon import Daemon


def run(d, code, **fields):
    r = d.post("/v1/run", {"code": code, **fields})
    assert r.status == 200 and r.headers["X-Cloche-Audit"], r
    return r.json


def gone(d, timeout=20):
    """Waits until no sandbox is there, seen or hidden."""
    end = time.monotonic() + timeout
    while used(d) and time.monotonic() < end:
        time.sleep(0.05)
    return used(d)


def used(d):
    return d.get("/v1/tenants/default").json["used"]["sandboxes"]


def content(run_, path):
    return base64.b64decode({a["path"]: a["content"] for a in run_["artifacts"]}[path])


def test_code_is_run_and_answered_with_its_results_and_files(d):
    r = run(d, "print(open('in.txt').read(), 'a b')\nopen('out.csv', 'w').write('x,y\\n')\n6 * 7",
            files={"in.txt": "given", "sub/raw.bin": {"base64": base64.b64encode(b"\0\xff").decode()}}, artifacts=True)
    assert r == {
        "results": [{"mime": {"text/plain": "42"}, "is_main": True}], "stdout": "given a b\n", "stderr": "", "error": None, "execution_count": 1,
        "verdict": {"cause": "ok", "detail": "it ran to its end", "state": "kept", "limit": None, "peak": None},
        "truncated": {"output_dropped": 0, "results_dropped": 0}, "usage": r["usage"], "artifacts_dropped": 0,
        "artifacts": [{"path": "out.csv", "size": 4, "mime": "text/csv", "content": base64.b64encode(b"x,y\n").decode()}]}
    r = run(d, "raise ValueError('no')")
    assert r["error"]["name"] == "ValueError" and r["verdict"]["cause"] == "error" and r["artifacts"] == []
    assert gone(d) == 0 and d.get("/v1/sandboxes").json["sandboxes"] == []


def test_other_languages_their_env_and_limits(d):
    assert run(d, "echo $COLOR; ulimit -n", language="bash", env={"COLOR": "red"}, limits={"nofile": 777})["stdout"] == "red\n777\n"
    assert run(d, "await Promise.resolve(41 + 1)", language="js")["results"][0]["mime"]["text/plain"] == "42"
    r = run(d, "x = bytearray(1 << 30)", limits={"memory": "96M"})
    assert r["verdict"]["cause"] == "oom" or r["error"]["name"] == "MemoryError", r
    r = run(d, "while True: pass", timeout=0.5)
    assert r["verdict"]["cause"] == "timeout" and r["error"]["name"] == "KeyboardInterrupt"


def test_artifacts_are_what_is_new_and_fits_the_patterns(d):
    code = """
import os
os.makedirs('plots/deep', exist_ok=True)
for name in ('a.png', 'plots/b.png', 'plots/deep/c.txt', '.hidden', 'old.txt'):
    open(name, 'w').write(name)
open('large.bin', 'wb').truncate(20 << 20)
os.symlink('/etc/passwd', 'link')
os.mkfifo('pipe')
"""
    files = {"old.txt": "x", "same.txt": "y"}
    r = run(d, code, files=files, artifacts=True)
    assert [a["path"] for a in r["artifacts"]] == ["a.png", "large.bin", "old.txt", "plots/b.png", "plots/deep/c.txt"]
    assert r["artifacts"][1] == {"path": "large.bin", "size": 20 << 20, "mime": "application/octet-stream", "content": None}
    assert content(r, "plots/b.png") == b"plots/b.png" and r["artifacts"][0]["mime"] == "image/png"
    r = run(d, code, files=files, artifacts=["*.png", ".hidden"])
    assert [a["path"] for a in r["artifacts"]] == [".hidden", "a.png", "plots/b.png"]
    r = run(d, "for i in range(130): open(f'{i:03}', 'w')", artifacts=True)
    assert len(r["artifacts"]) == 100 and r["artifacts_dropped"] == 30


def test_files_of_many_bytes_arrive(d):
    files = {"text": "é" * (5 << 20), "empty": "", "bytes": {"base64": base64.b64encode(bytes(range(256)) * 12000).decode()}}
    r = run(d, "import hashlib\nfor n in ('text', 'empty', 'bytes'): print(hashlib.sha256(open(n, 'rb').read()).hexdigest())", files=files)
    contents = ("é".encode() * (5 << 20), b"", bytes(range(256)) * 12000)
    assert r["stdout"].split() == [hashlib.sha256(x).hexdigest() for x in contents], r


def test_files_and_artifacts_of_a_tenant_take_a_bounded_part_of_the_daemons_memory(d):
    """Runs that wait for their packages have their files in memory. pip tries to reach its registry for half a minute."""
    own = as_tenant(d, "large-files")
    wait = {"code": "1", "packages": ["nothing"], "network": {"allow": ["nowhere.test"]}, "env": {"PIP_RETRIES": "7"}}
    full = json.dumps({**wait, "files": {"a": "x" * (62 << 20)}}).encode()
    waiting, answer, end = [], None, time.monotonic() + 60
    try:
        for _ in range(4):
            waiting.append(Raw(d, "POST", "/v1/run", full, {"Authorization": f"Bearer {own.token}"}))
        while not answer and time.monotonic() < end:
            try:
                answer = own.post("/v1/run", {**wait, "files": {"a": "x" * (9 << 20)}}, timeout=3)
            except TimeoutError:  # it waits as well: the others have not come yet
                pass
        assert "256 MiB" in error(answer, 503, "exhausted")["message"]
        code = "for n in 'ab': open(n, 'w').write('x' * (11 << 20))"
        r = own.post("/v1/run", {"code": code, "artifacts": True, "limits": {"memory": "256M"}}).json
        assert [(a["path"], a["content"]) for a in r["artifacts"]] == [("a", None), ("b", None)]
    finally:
        for one in waiting:
            one.close()


def test_patterns_that_take_long_to_match_hold_nobody_up(d):
    """Folders and patterns are the caller's: sets that fit everywhere but at the end once took minutes, and the daemon served nobody."""
    folder = "/".join(["a" * 250] * 12)
    code = f"import os\nos.makedirs({folder!r})\nfor i in range(100): open({folder!r} + '/' + 'a' * 240 + str(i), 'w')"
    begin = time.monotonic()
    r = run(d, code, artifacts=["*" + "[a/]" * 250 + "b"] * 32)
    assert r["artifacts"] == [] and r["artifacts_dropped"] > 0 and time.monotonic() - begin < 20


def test_events_come_as_the_code_runs(d):
    seen = list(events(d, "/v1/run", {"code": "print('a')\ndisplay(1)\nopen('f', 'w').write('z')", "artifacts": ["f"]}))
    assert [name for name, _ in seen] == ["stdout", "result", "result", "end"]
    assert seen[0][1] == {"text": "a\n"} and content(seen[-1][1], "f") == b"z" and seen[-1][1]["verdict"]["cause"] == "ok"


def test_what_cannot_be_run_is_refused(d):
    for body, code in (({}, "invalid"), ({"code": 1}, "invalid"), ({"code": "1", "language": "cobol"}, "invalid"),
                       ({"code": "1", "limits": {"color": 1}}, "invalid"), ({"code": "1", "limits": {"memory": "1"}}, "invalid"),
                       ({"code": "1", "files": {"a": 1}}, "invalid"), ({"code": "1", "files": {"a": {"base64": "!"}}}, "invalid"),
                       ({"code": "1", "artifacts": "x"}, "invalid"), ({"code": "1", "artifacts": ["/tmp/x"]}, "invalid"),
                       ({"code": "1", "name": "n"}, "invalid")):
        error(d.post("/v1/run", body), 400, code)
    error(d.post("/v1/run", {"code": "1", "image": "none-such"}), 404, "not_found")
    error(d.post("/v1/run", {"code": "1", "files": {"/proc/none": "x"}}), 404, "not_found")
    assert gone(d) == 0


def test_quota_counts_and_tokens_need_their_scope(d):
    own = as_tenant(d, "runner", quotas={"sandboxes": 1})
    assert own.post("/v1/run", {"code": "1"}).status == 200
    b = own.create()["id"]
    error(own.post("/v1/run", {"code": "1"}), 429, "quota")
    own.delete(f"/v1/sandboxes/{b}")
    reader = As(d, token(d, tenant="runner", scope="exec")["token"])
    error(reader.post("/v1/run", {"code": "1"}), 403, "denied")


@pytest.mark.parametrize("when", ["early", "late", "unseen"])
def test_a_client_that_hangs_up_leaves_nothing(d, when):
    accept = {"Accept": "application/json" if when == "unseen" else "text/event-stream"}
    with Raw(d, "POST", "/v1/run", {"code": "while True: pass"}, accept) as raw:
        if when == "late":
            assert raw.head()[0] == 200
        while not used(d):
            time.sleep(0.02)
    assert gone(d) == 0


@pytest.fixture(scope="module")
def warm(d):
    """Runs after the first of their kind continue from a memory image."""
    end = time.monotonic() + 60
    while not ready(d) and time.monotonic() < end:
        time.sleep(0.05)
    return d


def ready(d):
    return run(d, "import sys; 'numpy' in sys.modules")["results"][0]["mime"]["text/plain"] == "True"


def test_a_warm_context_has_its_own_random_numbers_and_nothing_of_others(warm):
    code = "import random, numpy, tempfile, os\n(random.random(), numpy.random.rand(), tempfile.mktemp(), os.path.exists('left'), open('left', 'w').name)"
    shown = [run(warm, code) for _ in range(4)]
    values = [r["results"][0]["mime"]["text/plain"].strip("()").split(", ") for r in shown]
    assert all(len({v[i] for v in values}) == 4 for i in range(3)), values
    assert all(v[3] == "False" for v in values) and all(r["execution_count"] == 1 for r in shown)
    assert run(warm, "import os; os.environ['COLOR']", env={"COLOR": "red"})["results"][0]["mime"]["text/plain"] == "'red'"
    assert gone(warm) == 0  # those that wait count for nobody


def test_the_interrupt_that_wakes_a_warm_context_hits_no_code(warm):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for r in pool.map(lambda i: run(warm, f"import time\ntime.sleep(0.1)\nprint({i})"), range(32)):
            assert r["error"] is None, r


def test_a_template_with_a_warm_context(d):
    made = d.put("/v1/templates/notebook", {"warm": {"context": "python"}, "env": {"A": "b"}})
    assert made.status == 201 and made.json["warm"]["ready"] is True, made
    code = "import sys, os, random\n('numpy' in sys.modules, os.environ['A'], os.environ.get('B'), random.random())"
    seen = []
    for fields in ({}, {"env": {"B": "c"}}):
        b = d.create(template="notebook", **fields)["id"]
        r = d.post(f"/v1/sandboxes/{b}/contexts/python/execute", {"code": code}).json
        assert r["error"] is None and r["execution_count"] == 1, r
        seen.append(r["results"][0]["mime"]["text/plain"].strip("()").split(", "))
        d.delete(f"/v1/sandboxes/{b}")
    assert [s[:3] for s in seen] == [["True", "'b'", "None"], ["True", "'b'", "'c'"]] and seen[0][3] != seen[1][3], seen
    assert d.put("/v1/secrets/key", {"value": "v4lue-of-it"}).status in (200, 201)
    b = d.create(template="notebook", secrets=[{"name": "key", "as": "env", "env": "KEY"}])["id"]
    r = d.post(f"/v1/sandboxes/{b}/contexts/python/execute", {"code": "import os; len(os.environ['KEY'])"}).json
    assert r["results"][0]["mime"]["text/plain"] == "11", r
    d.delete(f"/v1/sandboxes/{b}")
    error(d.put("/v1/templates/notebook", {"warm": {"context": "cobol"}}), 400, "invalid")
    assert d.delete("/v1/templates/notebook").status == 204


def test_a_plot_in_a_warm_context(warm):
    r = run(warm, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('a.png')\nplt.show()", artifacts=True)
    assert [x["mime"].get("image/png", "")[:5] for x in r["results"]] == ["iVBOR"] and content(r, "a.png")[:4] == b"\x89PNG"


def python_image(folder, word):
    """The host's Python, its libraries, and a file that tells images apart."""
    real = os.path.realpath("/usr/bin/python3")
    libraries = [w for w in subprocess.run(["ldd", real], capture_output=True, text=True, check=True).stdout.split() if w.startswith("/")]
    for path in (real, *libraries):
        to = folder / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    (folder / "usr/bin").mkdir(parents=True, exist_ok=True)
    os.symlink(real, folder / "usr/bin/python3")
    library = "usr/lib/" + os.path.basename(real)
    shutil.copytree("/" + library, folder / library, symlinks=True, ignore=shutil.ignore_patterns("test", "__pycache__", "config-*", "lib2to3"))
    (folder / "word").write_text(word)


def test_a_name_that_means_another_image_now_is_not_served_by_the_old_one(warm, tmp_path):
    code = "import sys; open('/word').read(), type(sys).__name__"
    for word in ("old", "new"):
        python_image(tmp_path / word, word)
        r = warm.cli("image", "import", str(tmp_path / word), "word:1", timeout=60)
        assert r.code == 0, r
        for _ in range(4):  # cold, then from a warm context
            assert run(warm, code, image="word:1")["results"][0]["mime"]["text/plain"] == f"('{word}', 'module')"
            time.sleep(0.3)
    assert warm.cli("image", "rm", "word:1").code == 0
    assert error(warm.post("/v1/run", {"code": code, "image": "word:1"}), 404, "not_found")


def test_less_memory_than_a_warm_context_has_is_a_cold_start(warm):
    assert run(warm, "import sys; 'numpy' in sys.modules", limits={"memory": "48M"})["results"][0]["mime"]["text/plain"] == "False"
    assert run(warm, "import sys; 'numpy' in sys.modules", limits={"memory": "700M"})["results"][0]["mime"]["text/plain"] == "True"


def test_a_tenant_with_a_warm_context_can_be_removed(d):
    own = as_tenant(d, "brief")
    assert own.post("/v1/run", {"code": "1"}).status == 200
    assert d.delete("/v1/tenants/brief").status == 204


def test_without_warm_contexts_every_run_is_cold(tmp_path):
    (tmp_path / "conf").write_text("warm_contexts = 0\n")
    with Daemon(None, "--config", tmp_path / "conf") as cold:
        assert not ready(cold) and not ready(cold)


def runs(*argv):
    """Whether a process with these arguments is somewhere on this machine."""
    line = "\0".join(argv).encode() + b"\0"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if f.read() == line:
                    return True
        except OSError:
            pass  # it has ended
    return False


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_daemon_that_stops_ends_its_runs(accept):
    with Daemon() as d:
        code = "print('x', flush=True)\nimport subprocess; subprocess.run(['sleep', '98765'])"
        with Raw(d, "POST", "/v1/run", {"code": code}, {"Accept": accept}) as raw:
            if accept == "text/event-stream":
                assert raw.head()[0] == 200
            eventually(lambda: runs("sleep", "98765"), seconds=60)
            d.stop()
            if accept == "application/json":  # not 503: the client would run it again
                status, headers = raw.head()[:2]
                assert status == 502 and "retry-after" not in {k.lower() for k in headers}, (status, headers)


def test_after_kill_9_nothing_is_left():
    with Daemon() as d:
        with Raw(d, "POST", "/v1/run", {"code": "print('x', flush=True)\nwhile True: pass"}, {"Accept": "text/event-stream"}) as raw:
            assert raw.head()[0] == 200
            next(raw.chunks())
            d.kill9("api")
        assert gone(d) == 0
