"""What every tier promises: one suite. test_tiers.py and test_vm_suite.py import it, each with a `tier` of its own."""
import base64
import hashlib
import io
import json
import os
import re
import signal
import struct
import tarfile
import time
import urllib.parse

import pytest

from api import WebSocket, error, events, eventually

LONG = 60  # seconds: emulated, on a busy machine
COUNT = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"


class Tier:
    """A daemon, and what its sandboxes are to be."""

    def __init__(self, name, daemon, **fields):
        self.name, self.d = name, daemon
        self.fields = {"isolation": name, "image": "small", "memory": "128M", "disk": "64M", **fields}

    def create(self, **fields):
        r = self.d.post("/v1/sandboxes", {**self.fields, **fields}, timeout=150)
        assert r.status in (200, 201), r
        return r.json

    def call(self, method, box, path, body=None, status=200, **kw):
        r = self.d.request(method, f"/v1/sandboxes/{box['id']}{path}", body, **{"timeout": 150, **kw})
        assert r.status == status, r
        return r

    def sh(self, box, script, **fields):
        return self.call("POST", box, "/execs", {"shell": script, **fields}).json

    def start(self, box, script, **fields):
        return self.call("POST", box, "/execs", {"shell": script, "background": True, **fields}, 201).json["id"]

    def output(self, box, x):
        return self.call("GET", box, f"/execs/{x}/output").body.decode().split()

    def state(self, box):
        return self.call("GET", box, "").json["state"]

    def checkpoint(self, box, **fields):
        return self.call("POST", box, "/checkpoints", fields, 201).json

    def restore(self, checkpoint, **fields):
        r = self.d.post(f"/v1/checkpoints/{checkpoint['id']}/restore", fields, timeout=150)
        assert r.status == 201, r
        return r.json["sandboxes"]

    def delete(self, *boxes):
        for b in boxes:
            self.d.delete(f"/v1/sandboxes/{b['id']}")

    def clean(self):
        for b in self.d.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
            self.delete(b)
        for c in self.d.get("/v1/checkpoints?limit=1000").json["checkpoints"]:
            self.d.delete(f"/v1/checkpoints/{c['id']}")


@pytest.fixture
def clean(tier):
    yield
    tier.clean()


@pytest.fixture(scope="module")
def box(tier):
    """One that tests share which change nothing that others see."""
    b = tier.create(pids=40, env={"WORD": "from the sandbox"}, metadata={"kept": "yes"})
    yield b
    tier.delete(b)


# --- execs ---

def test_a_sandbox_says_what_it_is(tier, box):
    assert box["isolation"] == tier.name and box["state"] == "running" and box["image"] == "small"
    assert box["enforced"]["isolation"] == tier.name and ("machine" in box["enforced"]) == (tier.name == "vm")
    listed = tier.d.get("/v1/sandboxes?metadata.kept=yes").json["sandboxes"]
    assert [(b["id"], b["isolation"]) for b in listed] == [(box["id"], tier.name)]
    info = tier.d.get("/v1/info").json
    assert tier.name in info["isolation"]
    if tier.name == "vm":  # one was made: so it is known how
        how = info["machines"]
        assert (how["accelerator"] == "kvm") == info["features"]["kvm"] == ("with KVM" in box["enforced"]["machine"]), (how, box)
        assert how["why"] and "not known" not in how["why"], how


def test_an_exec_has_all_that_was_asked_for(tier, box):
    raw = bytes(range(256))
    r = tier.sh(box, 'cat; echo "$A|$WORD|$(pwd)|$(id -u):$(id -g)|$(ulimit -n)" >&2; exit 7', env={"A": "ü"}, cwd="/tmp", user="12:13", nofile=55,
                stdin_base64=base64.b64encode(raw).decode(), encoding="base64")
    assert (r["exit_code"], r["signal"], r["verdict"]["cause"]) == (7, None, "exited"), r
    assert base64.b64decode(r["stdout_base64"]) == raw
    assert base64.b64decode(r["stderr_base64"]).decode() == "ü|from the sandbox|/tmp|12:13|55\n"
    assert tier.sh(box, "ulimit -n", nofile=9000)["stdout"] == "9000\n"  # more than a small machine's kernel begins with
    r = tier.sh(box, "kill -SEGV $$")
    assert (r["exit_code"], r["signal"], r["verdict"]["cause"]) == (139, 11, "signaled")
    error(tier.call("POST", box, "/execs", {"cmd": ["/no/such/program"]}, 422), 422, "refused")


STREAMS = "echo 1 > /dev/stdout; echo 2 > /dev/stderr; cat /dev/stdin"


def streams_have_names(tier, box):
    for user in "user", "root":
        r = tier.sh(box, STREAMS, user=user)
        assert (r["exit_code"], r["stdout"], r["stderr"]) == (0, "1\n", "2\n"), r
        assert tier.sh(box, STREAMS, user=user, stdin="in\n")["stdout"] == "1\nin\n"
        x = tier.start(box, STREAMS, user=user)
        assert tier.call("GET", box, f"/execs/{x}/wait?timeout={LONG}").json["exit_code"] == 0
        assert [tier.call("GET", box, f"/execs/{x}/output?stream={name}").body for name in ("stdout", "stderr")] == [b"1\n", b"2\n"]
        with WebSocket(tier.d, f"/v1/sandboxes/{box['id']}/execs/attach", LONG) as w:
            w.send(json.dumps({"shell": "read x < /dev/stdin; echo $x > /dev/stdout; echo 2 > /dev/stderr", "user": user, "tty": {"rows": 24, "cols": 80}}))
            w.send(b"\x03in\n")
            out, _, texts = w.all()
            assert out.replace(b"\r", b"") == b"in\nin\n2\n" and texts[-1]["exit_code"] == 0, (out, texts)


def test_streams_can_be_opened_by_their_names(tier, box):
    streams_have_names(tier, box)


def test_much_output_is_cut_in_the_answer_and_whole_in_the_spool(tier, box):
    r = tier.sh(box, "seq 1 300000", output_limit="64K")
    want = "".join(f"{i}\n" for i in range(1, 300001)).encode()
    assert r["truncated"]["stdout"] and len(r["stdout"]) <= 64 * 1024 + 200
    assert hashlib.sha256(tier.call("GET", box, f"/execs/{r['id']}/output").body).digest() == hashlib.sha256(want).digest()


def test_a_timeout_ends_the_whole_tree_and_nothing_else(tier, box):
    x = tier.start(box, "sleep 1000")
    r = tier.sh(box, "(setsid sleep 777 &) ; trap '' TERM; sleep 777", timeout=2)
    assert (r["exit_code"], r["verdict"]["cause"]) == (124, "timeout"), r
    assert eventually(lambda: "sleep 777" not in tier.sh(box, "ps -o args")["stdout"], LONG)
    assert tier.call("GET", box, f"/execs/{x}").json["state"] == "running"
    ended = tier.call("DELETE", box, f"/execs/{x}").json
    assert ended["verdict"]["cause"] == "killed" and ended["signal"] == signal.SIGKILL, ended


def test_one_in_the_background_is_signalled_written_to_and_waited_for(tier, box):
    x = tier.start(box, "trap 'echo got it; exit 3' USR1; read line; echo said $line; while :; do sleep 0.1; done", stdin_open=True)
    tier.call("POST", box, f"/execs/{x}/stdin", b"hello\n", 204)
    eventually(lambda: tier.output(box, x) == ["said", "hello"], LONG)
    tier.call("POST", box, f"/execs/{x}/signal", {"signal": "USR1"}, 204)
    r = tier.call("GET", box, f"/execs/{x}/wait?timeout={LONG}").json
    assert r["state"] == "ended" and r["exit_code"] == 3 and r["stdout"].split() == ["said", "hello", "got", "it"], r
    assert x in [e["id"] for e in tier.call("GET", box, "/execs").json["execs"]]


def test_events_come_as_they_happen(tier, box):
    said = list(events(tier.d, f"/v1/sandboxes/{box['id']}/execs", {"shell": "echo one; sleep 0.3; echo two >&2; exit 4"}))
    kinds = [k for k, _ in said]
    assert kinds[0] == "started" and kinds[-1] == "result" and {"stdout", "stderr"} <= set(kinds), said
    assert said[-1][1]["exit_code"] == 4
    assert "".join(v["data"] for k, v in said if k == "stdout") == "one\n"


def test_a_terminal_has_its_size_and_hears_of_another(tier, box):
    with WebSocket(tier.d, f"/v1/sandboxes/{box['id']}/execs/attach", LONG) as w:
        w.send(json.dumps({"cmd": ["sh", "-c", "stty size; trap 'stty size; exit 5' WINCH; echo now; while :; do sleep 0.1; done"],
                           "tty": {"rows": 33, "cols": 99}}))
        out, _, _ = w.until(lambda o, e, t: b"now" in o)
        assert b"33 99" in out
        w.send(b"\x04" + struct.pack(">HH", 40, 111))
        out, _, texts = w.all()
        assert b"40 111" in out and texts[-1]["type"] == "result" and texts[-1]["exit_code"] == 5, (out, texts)


# --- files ---

def test_files_go_in_and_out(tier, box):
    def at(path, **query):
        return "/files?" + urllib.parse.urlencode({"path": path, **query})

    data = os.urandom(700_000)
    put = tier.call("PUT", box, at("/home/user/in/blob", mode="0640", mkdirs=1), data).json
    assert put["size"] == len(data) and put["mode"] == "0640" and put["uid"] == 1000
    assert tier.sh(box, "sha256sum < in/blob")["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
    assert tier.call("GET", box, at("in/blob")).body == data
    assert tier.call("GET", box, at("in/blob"), status=206, headers={"Range": "bytes=100-199"}).body == data[100:200]
    tier.call("POST", box, at("in/blob", op="move"), {"to": "/home/user/in/moved"})
    names = [os.path.basename(e["path"]) for e in tier.call("GET", box, at("in", op="list")).json["entries"]]
    assert names == ["moved"]
    packed = tier.call("GET", box, at("in", op="archive", format="tar")).body
    assert any(m.size == len(data) for m in tarfile.open(fileobj=io.BytesIO(packed)).getmembers())
    assert tier.call("POST", box, at("/tmp/out", op="extract"), packed).json["files"] >= 1
    assert tier.sh(box, "cat $(find /tmp/out -type f) | sha256sum")["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
    tier.call("DELETE", box, at("in", recursive=1), status=204)
    error(tier.call("GET", box, at("in/moved"), status=404), 404, "not_found")


# --- limits ---

@pytest.mark.parametrize("cause, script", [
    ("oom", "x=a; while :; do x=$x$x; done"),
    ("disk", "dd if=/dev/zero of=big bs=1M"),
    ("pids", "i=0; while [ $i -lt 80 ]; do sleep 10 & i=$((i+1)); done; exit 1"),
    ("cpu", "while :; do :; done"),
])
def test_what_is_beyond_a_limit_is_told(tier, box, cause, script):
    r = tier.sh(box, script, timeout=LONG, **({"cpu_time": 1} if cause == "cpu" else {}))
    assert r["exit_code"] != 0 and r["verdict"]["cause"].startswith(cause), r
    eventually(lambda: tier.sh(box, "rm -f big; echo on")["stdout"] == "on\n", LONG)
    stats = tier.call("GET", box, "/stats").json
    assert stats["memory"] > 0 and stats["cpu_ms"] > 0 and (cause != "oom" or stats["oom_kills"] >= 1), stats


def test_a_paused_one_stands_still(tier, box):
    x = tier.start(box, COUNT)
    eventually(lambda: len(tier.output(box, x)) > 2, LONG)
    assert tier.call("POST", box, "/pause").json["state"] == "paused"
    error(tier.call("POST", box, "/execs", {"cmd": ["true"]}, 409), 409, "conflict")
    seen = len(tier.output(box, x))
    time.sleep(0.5)
    assert len(tier.output(box, x)) - seen <= 2  # what was on its way
    assert tier.call("POST", box, "/resume").json["state"] == "running"
    eventually(lambda: len(tier.output(box, x)) > seen + 3, LONG)
    tier.call("DELETE", box, f"/execs/{x}")


# --- states ---

def numbers(tier, box, x, more=3):
    """Those that `COUNT` said: each follows the one before, and more come."""
    have = len(tier.output(box, x))
    eventually(lambda: len(tier.output(box, x)) > have + more, LONG)
    said = [int(n) for n in tier.output(box, x)]
    assert said == list(range(said[0], said[0] + len(said))), said
    return said


def identity(tier, box):
    r = tier.sh(box, "head -c 24 /dev/urandom | base64; cat /etc/machine-id; cat /run/cloche/generation; hostname; date +%s")
    rand, machine, generation, name, now = r["stdout"].split()
    assert abs(int(now) - time.time()) < 30, r
    return rand, machine, generation, name


def test_streams_can_be_opened_by_their_names_in_copies(tier, clean):
    b = tier.create()
    tier.start(b, "exec sleep 999")
    fork, = tier.call("POST", b, "/fork", {"memory": True}, 201).json["sandboxes"]
    streams_have_names(tier, fork)
    tier.delete(fork)
    tier.call("POST", b, "/hibernate")
    streams_have_names(tier, b)


def test_a_checkpoint_with_memory_goes_on_in_new_ones_and_in_place(tier, clean):
    b = tier.create(name="origin", hostname="origin-host")
    x = tier.start(b, COUNT)
    tier.sh(b, "echo before > word")
    numbers(tier, b, x)
    c = tier.checkpoint(b, name="c", memory=True)
    assert c["memory"] is True and c["isolation"] == tier.name and c["memory_size"] > 0 and c["pause_ms"] > 0, c
    tier.sh(b, "echo after > word")
    went = numbers(tier, b, x)
    assert went[0] == 1
    two = tier.restore(c, count=2)
    for n in two:
        assert n["isolation"] == tier.name and n["restored"]["memory"] is True, n
        own, = n["restored"]["execs"]
        assert numbers(tier, n, own)[0] > 3
        assert tier.sh(n, "cat word")["stdout"] == "before\n"
    ids = [identity(tier, n) for n in two]
    assert all(len({i[k] for i in ids}) == 2 for k in range(3)), ids  # random numbers, machine-id, generation
    for _ in range(2):
        r = tier.call("POST", b, "/restore", {"checkpoint": "c"}).json
        assert r["id"] == b["id"] and len(r["restored"]["execs"]) == 1
        assert tier.sh(b, "cat word; rm word; hostname")["stdout"] == "before\norigin-host\n"
        assert numbers(tier, b, x)[0] > 3


def test_a_checkpoint_without_memory_has_the_files_alone(tier, clean):
    b = tier.create()
    tier.sh(b, "echo kept > word")
    for _ in range(6):  # the last ones have hardly begun: they must not begin in the other one
        x = tier.start(b, "exec sleep 54321")
    c = tier.checkpoint(b)
    assert c["memory"] is False and tier.call("GET", b, f"/execs/{x}").json["state"] == "running"
    n, = tier.restore(c)
    assert n["restored"]["memory"] is False and n["restored"]["execs"] == []
    assert tier.sh(n, "cat word; ps -o args | grep -c '[s]leep 54321'")["stdout"] == "kept\n0\n"
    # One on top of the other, each with what was before it.
    tier.sh(n, "echo more >> word")
    second, = tier.restore(tier.checkpoint(n, memory=True))
    tier.sh(second, "echo last >> word")
    third, = tier.restore(tier.checkpoint(second))
    assert tier.sh(third, "cat word")["stdout"] == "kept\nmore\nlast\n"


def test_a_copy_has_the_secrets_of_now(tier, clean):
    try:
        tier.d.put("/v1/secrets/WORD", {"value": "open sesame"})
        b = tier.create(secrets=[{"name": "WORD", "as": "file", "path": "/home/user/word"}, {"name": "WORD", "as": "env"}])
        look = "stat -c '%a %u %s' -L word; ls -A /run/secrets; echo ${#WORD}; cat word"
        assert tier.sh(b, look)["stdout"] == "400 1000 11\nWORD\n11\n***"
        c = tier.checkpoint(b, memory=True)
        tier.d.put("/v1/secrets/WORD", {"value": "open barley!"})
        eventually(lambda: tier.sh(b, look)["stdout"] == "400 1000 12\nWORD\n12\n***", LONG)
        fork, = tier.call("POST", b, "/fork", {}, 201).json["sandboxes"]
        for n in (*tier.restore(c), fork, b):
            if n is b:
                tier.call("POST", b, "/hibernate")
            assert tier.sh(n, look)["stdout"] == "400 1000 12\nWORD\n12\n***"
        n, = tier.restore(c, secrets="drop")
        assert tier.sh(n, "cat word; ls -A /run/secrets; echo $WORD")["stdout"] == "\n"
        # Where there was no place for them before: in memory, too.
        n, = tier.restore(tier.checkpoint(tier.create()), secrets=[{"name": "WORD", "as": "file"}])
        assert tier.sh(n, "cat /run/secrets/WORD; echo; stat -f -c %T /run/secrets")["stdout"] == "***\ntmpfs\n"
    finally:
        tier.clean()
        tier.d.delete("/v1/secrets/WORD")


def test_a_fork_is_many_at_once(tier, clean):
    b = tier.create()
    x = tier.start(b, COUNT)
    numbers(tier, b, x)
    r = tier.call("POST", b, "/fork", {"count": 2}, 201).json
    assert len(r["sandboxes"]) == 2 and r["checkpoint"] is None
    for n in r["sandboxes"]:
        assert numbers(tier, n, n["restored"]["execs"][0])[0] > 3
    assert numbers(tier, b, x)[0] == 1


def diff(tier, what, frm="image", **query):
    """How each path differs."""
    kind = "sandboxes" if "hostname" in what else "checkpoints"
    r = tier.d.get(f"/v1/{kind}/{what['id']}/diff?" + urllib.parse.urlencode({"from": frm, **query}), timeout=150)
    assert r.status == 200, r
    return {e["path"]: e for e in r.json["entries"]}


def changes(*args):
    return {p: e["change"] for p, e in diff(*args).items()}


def test_any_two_states_are_compared(tier, clean):
    b = tier.create(user="root", workdir="/w")
    tier.sh(b, "printf 'one\\ntwo\\n' > a; ln a b; ln -s a l; mkdir d; echo x > d/x; rm /etc/passwd; echo gone > g")
    new = {"/w": "added", **{f"/w/{n}": "added" for n in ("a", "b", "l", "d", "d/x", "g")}, "/etc/passwd": "removed"}
    assert changes(tier, b) == new
    c = tier.checkpoint(b)
    at = f"checkpoint:{c['id']}"
    tier.sh(b, "printf 'one\\n2\\n' > a.new; mv a.new a; rm -r d g; chmod 600 b; echo n > d")
    want = {"/w/a": "changed", "/w/b": "changed", "/w/d": "changed", "/w/d/x": "removed", "/w/g": "removed"}
    e = diff(tier, b, at, text=1)
    assert {p: x["change"] for p, x in e.items()} == want
    assert e["/w/a"]["text"] == "--- a/w/a\n+++ b/w/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n" and e["/w/b"]["mode"] == "0600"
    assert changes(tier, c, f"sandbox:{b['id']}") == {**want, "/w/d/x": "added", "/w/g": "added"}
    assert changes(tier, c) == new
    tier.call("POST", b, "/pause")
    assert changes(tier, b, at) == want and tier.state(b) == "paused"
    tier.call("POST", b, "/resume")
    assert tier.sh(b, "cat d")["stdout"] == "n\n"
    other = tier.create(image="host") if tier.name == "container" else None  # a machine of that takes a minute to make
    if other:
        error(tier.d.get(f"/v1/sandboxes/{other['id']}/diff?from={at}"), 422, "refused")


def test_what_a_fork_did_is_brought_back(tier, clean):
    b = tier.create(user="root", workdir="/w")
    tier.sh(b, "echo 1 > both; echo 1 > gone; echo 1 > ours")
    f, = tier.call("POST", b, "/fork", {}, 201).json["sandboxes"]
    tier.sh(f, "echo fork > both; rm gone; mkdir -m 750 d; echo new > d/n; ln d/n m; ln -s d l")
    tier.sh(b, "echo parent > both; echo 2 > ours")
    r = tier.call("POST", b, "/promote", {"from": f["id"]}, 409).json
    assert r["conflicts"] == ["/w/both"]
    r = tier.call("POST", b, "/promote", {"from": f["id"], "force": True}).json
    assert (r["added"], r["changed"], r["removed"], r["conflicts"]) == (4, 1, 1, ["/w/both"]), r
    said = tier.sh(b, "cat both ours d/n m l/n; stat -c %a d; stat -c %h m; ls")["stdout"].split()
    assert said == ["fork", "2", "new", "new", "new", "750", "2", "both", "d", "l", "m", "ours"]
    assert changes(tier, f, f"sandbox:{b['id']}") == {"/w/ours": "changed"}
    error(tier.call("POST", f, "/promote", {"from": b["id"]}, 409), 409, "conflict")


def test_what_was_exported_is_a_checkpoint_elsewhere(tier, clean):
    b = tier.create(user="root", workdir="/w", env={"WORD": "kept"}, pids=33, metadata={"a": "b"})
    tier.sh(b, "echo hello > a; chown 12:13 a; chmod 4750 a; ln a b; ln -s /nowhere l; mkfifo p; rm /etc/passwd;"
               "dd if=/dev/zero of=hole bs=1 count=1 seek=3000000; mkdir -m 700 d; touch -d '2020-02-03 04:05:06' d/old")
    look = "stat -c '%n %a %u %g %h %s %Y %F' a b l p hole d/old; stat -c '%a %Y' d; sha256sum a hole; readlink l; ls /etc"
    had = tier.sh(b, look)["stdout"]
    c = tier.checkpoint(b, name="carried", memory=True)
    packed = tier.d.get(f"/v1/checkpoints/{c['id']}/export", timeout=150)
    assert packed.status == 200
    tier.clean()
    error(tier.d.post("/v1/checkpoints/import", packed.body[:-1], timeout=150), 422, "refused")
    assert tier.d.get("/v1/checkpoints").json["checkpoints"] == []
    r = tier.d.post("/v1/checkpoints/import?name=again", packed.body, timeout=150)
    assert r.status == 201 and r.json["name"] == "again" and r.json["isolation"] == tier.name and r.json["memory"] is False, r
    n, = tier.restore(r.json)
    assert tier.sh(n, look)["stdout"] == had
    assert tier.sh(n, "echo $WORD")["stdout"] == "kept\n" and n["pids"] == 33 and n["metadata"] == {"a": "b"}
    assert tier.sh(n, "pwd; echo more >> a; cat a")["stdout"] == "/w\nhello\nmore\n"


def test_it_sleeps_and_the_next_call_wakes_it(tier, clean):
    b = tier.create()
    x = tier.start(b, COUNT)
    numbers(tier, b, x)
    used = tier.d.get("/v1/tenants/default").json["used"]["memory"]
    assert used >= 128 << 20
    # Where there is room for just what it had, it does not sleep for ever.
    assert tier.d.request("PATCH", "/v1/tenants/default", {"quotas": {"memory": used}}).status == 200
    try:
        assert tier.call("POST", b, "/hibernate").json["state"] == "hibernated"
        assert tier.call("GET", b, "/stats").json["memory"] == 0
        assert tier.sh(b, "echo awake")["stdout"] == "awake\n" and tier.state(b) == "running"
    finally:
        tier.d.request("PATCH", "/v1/tenants/default", {"quotas": {"memory": 0}})
    assert numbers(tier, b, x)[0] == 1


def test_a_template_and_its_pool_give_a_ready_one(tier, clean):
    r = tier.d.put("/v1/templates/t", {**tier.fields, "env": {"FROM": "template"}})
    assert r.status == 201, r
    assert tier.d.put("/v1/pools/p", {"template": "t", "min": 1}).status == 201
    try:
        eventually(lambda: tier.d.get("/v1/pools/p").json["ready"] == 1, 120)
        r = tier.d.post("/v1/sandboxes", {"template": "t"}, timeout=150)
        assert r.status == 201 and r.json["pooled"] is True and r.json["isolation"] == tier.name, r
        assert tier.sh(r.json, "echo $FROM")["stdout"] == "template\n"
    finally:
        tier.d.delete("/v1/pools/p")
        tier.d.delete("/v1/templates/t")


# --- what dies ---

@pytest.mark.parametrize("which", ["api", "warden", "supervisor"])
def test_what_runs_outlives_the_daemon(tier, clean, which):
    b = tier.create()
    x = tier.start(b, COUNT)
    numbers(tier, b, x)
    if which == "supervisor":
        tier.d.kill9("all")
        tier.d.start()
    else:
        tier.d.kill9(which)
        eventually(lambda: which in tier.d.children(), LONG)

    def answers():
        try:
            return tier.d.get(f"/v1/sandboxes/{b['id']}").json["state"] == "running"
        except OSError:
            return False

    eventually(answers, LONG)
    assert numbers(tier, b, x)[0] == 1
    assert tier.sh(b, "echo here")["stdout"] == "here\n"
    c = tier.checkpoint(b, memory=True)
    n, = tier.restore(c)
    assert numbers(tier, n, n["restored"]["execs"][0])[0] > 3
    assert re.fullmatch(r"\d+", str(tier.call("GET", b, "/stats").json["cpu_ms"]))
