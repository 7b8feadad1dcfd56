"""Streams opened by their names: /dev/stdin, /dev/stdout, /dev/stderr, in every way in, as every user, in copies.

Virtual machines are in tier_suite.py and test_vm.py.
"""
import json

import pytest

import host
from api import WebSocket, d, events, eventually, nothing_is_left_behind  # noqa: F401
from memory_lives import live_on
from small_image import small_image

# With each name once as a shell does it, once as a program does.
SCRIPT = "echo 1 > /dev/stdout; echo 2 >> /dev/stderr; echo 3 | tee /dev/stderr; cat /dev/stdin; cp /dev/stdin /dev/stdout; " \
         "python3 -c 'print(open(\"/dev/stdin\").read(), file=open(\"/dev/stdout\", \"w\"), end=\"\")'"
OUT, ERR = "1\n3\n", "2\n3\n"


@pytest.mark.parametrize("user", ["user", "root", "1234:99"])
def test_run(user):
    r = host.run("--user", user, "--", "sh", "-c", SCRIPT, input=b"")
    assert (r.code, r.out.decode(), r.err.decode()) == (0, OUT, ERR)
    r = host.run("--user", user, "--", "cat", "/dev/stdin", input=b"in\n")
    assert (r.code, r.out) == (0, b"in\n"), r


@pytest.mark.parametrize("user", ["user", "root", "1234:99"])
def test_the_api(d, user):
    b = d.create()
    at = f"/v1/sandboxes/{b['id']}/execs"
    r = d.post(at, {"shell": SCRIPT, "user": user}).json
    assert (r["exit_code"], r["stdout"], r["stderr"]) == (0, OUT, ERR)
    r = d.post(at, {"cmd": ["cat", "/dev/stdin"], "stdin": "in\n", "user": user}).json
    assert (r["exit_code"], r["stdout"], r["stderr"]) == (0, "in\n", "")
    r = d.post(at, {"shell": SCRIPT, "user": user, "background": True}).json
    r = d.get(f"{at}/{r['id']}/wait?timeout=60", timeout=90).json
    assert r["exit_code"] == 0, r


@pytest.mark.parametrize("user", ["user", "root"])
def test_the_command_line(d, user):
    b = d.create()["id"]
    for options, given in (((), b""), (("-i",), b""), (("-i",), b"in\n")):
        r = d.cli("exec", "--user", user, *options, b, "--", "sh", "-c", "cat /dev/stdin; " + SCRIPT, input=given)
        assert (r.code, r.out, r.err) == (0, given + OUT.encode(), ERR.encode()), r
    r = d.cli("exec", "--user", user, "-t", b, "--", "sh", "-c", "echo 1 > /dev/stdout; echo 2 > /dev/stderr; readlink /dev/stdin", input=b"")
    assert r.code == 0 and b"1\r\n2\r\n" in r.out, r


SHORT = "echo 1 > /dev/stdout; echo 2 > /dev/stderr; cat /dev/stdin"


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("options", [("--storage", "disk"), ("--read-only",), ("--network", "none", "--cpus", "0.5"), ("--image", "small"), ("--json",)],
                         ids=lambda o: o[0])
def test_run_with_options(user, options):
    options = [small_image() if o == "small" else o for o in options]
    for given in b"", b"in\n":
        r = host.run(*options, "--user", user, "--", "sh", "-c", SHORT, input=given)
        if "--json" in options:
            r.out, r.err = (r.json[k].encode() for k in ("stdout", "stderr"))
        assert (r.code, r.out, r.err) == (0, b"1\n" + given, b"2\n"), r


def each_way(d, box, user):
    """Every way to start a command: {way: (exit code, stdout, stderr)}. On a terminal both are one."""
    at, told = f"/v1/sandboxes/{box}/execs", {}
    body = {"shell": SHORT, "user": user}
    for way, more in (("answer", {}), ("answer with stdin", {"stdin": "in\n"}), ("answer with an empty stdin", {"stdin": ""})):
        r = d.post(at, {**body, **more})
        assert r.status == 200, (way, r)
        told[way] = r.json["exit_code"], r.json["stdout"], r.json["stderr"]
    seen = list(events(d, at, body))
    told["events"] = seen[-1][1]["exit_code"], *("".join(v["data"] for k, v in seen if k == name) for name in ("stdout", "stderr"))
    for way, more in (("background", {}), ("background with stdin", {"stdin_open": True})):
        r = d.post(at, {**body, **more, "background": True})
        assert r.status == 201, (way, r)
        x = r.json["id"]
        if more:
            assert d.post(f"{at}/{x}/stdin?close=1", b"in\n").status == 204
        code = d.get(f"{at}/{x}/wait?timeout=60", timeout=90).json["exit_code"]
        told[way] = code, *(d.get(f"{at}/{x}/output?stream={name}").body.decode() for name in ("stdout", "stderr"))
    with WebSocket(d, f"{at}/attach") as ws:
        ws.send(json.dumps(body))
        out, err, texts = ws.all()
        told["websocket"] = texts[-1]["exit_code"], out.decode(), err.decode()
    for way, options, given in (("cli", (), b""), ("cli -i", ("-i",), b"in\n")):
        r = d.cli("exec", "--user", user, *options, box, "--", "sh", "-c", SHORT, input=given)
        told[way] = r.code, r.out.decode(), r.err.decode()
    x = d.cli("exec", "-d", "--user", user, box, "--", "sh", "-c", SHORT).text.strip()
    eventually(lambda: d.get(f"{at}/{x}").json["state"] == "ended", 60)
    r = d.cli("logs", box, x)
    told["cli -d"] = r.code, r.out.decode(), r.err.decode()
    r = d.cli("exec", "-t", "--user", user, box, "--", "sh", "-c", "echo 1 > /dev/stdout; echo 2 > /dev/stderr; : < /dev/stdin", input=b"")
    told["cli -t"] = r.code, "".join(c for c in r.text if c in "12"), ""
    with WebSocket(d, f"{at}/attach") as ws:
        ws.send(json.dumps({"cmd": ["sh", "-c", "read x < /dev/stdin; echo $x > /dev/stdout; echo 2 > /dev/stderr"], "user": user, "tty": {"rows": 24, "cols": 80}}))
        ws.send(b"\x03in\n")
        out, err, texts = ws.all()
        told["websocket on a terminal"] = texts[-1]["exit_code"], out.decode().replace("\r", ""), err.decode()
    return told


GIVEN = "answer with stdin", "background with stdin", "cli -i"
EXPECTED = {**{way: (0, "1\nin\n" if way in GIVEN else "1\n", "2\n") for way in (
    "answer", "answer with an empty stdin", "events", "background", "websocket", "cli", "cli -d", *GIVEN)},
    "cli -t": (0, "12", ""), "websocket on a terminal": (0, "in\nin\n2\n", "")}


def template(d, **more):
    assert d.put("/v1/templates/streams", {"memory": "128M", **more}).status in (200, 201)
    return d.create(template="streams")


def pooled(d):
    assert d.put("/v1/templates/streams", {"memory": "128M"}).status in (200, 201)
    assert d.put("/v1/pools/streams", {"template": "streams", "min": 1}).status == 201
    eventually(lambda: d.get("/v1/pools/streams").json["ready"] == 1, 60)
    box = d.create(template="streams")
    assert box["pooled"] is True
    return box


def called(d, box, path, body=None):
    r = d.post(f"/v1/sandboxes/{box['id']}/{path}", body, timeout=90)
    assert r.status in (200, 201), r
    return r.json


def lived(d, **fields):
    """A sandbox in which a process runs and commands of both users have ended."""
    box = d.create(**fields)
    called(d, box, "execs", {"shell": "exec sleep 999", "background": True, "timeout": 0})
    for user in "user", "root":
        assert called(d, box, "execs", {"shell": SHORT, "user": user})["exit_code"] == 0
    return box


def restored(d, memory):
    c = called(d, lived(d), "checkpoints", {"memory": memory})
    r = d.post(f"/v1/checkpoints/{c['id']}/restore", timeout=90)
    assert r.status == 201, r
    return r.json["sandboxes"][0]


def started_again(d):
    box = lived(d, storage="disk")
    called(d, box, "stop")
    called(d, box, "start")
    return box


def woken(d):
    box = lived(d)
    called(d, box, "hibernate")
    return box


def reset(d):
    box = lived(d)
    called(d, box, "restore", {"checkpoint": called(d, box, "checkpoints", {"memory": True, "name": "c"})["name"]})
    return box


ORIGINS = {
    "created": lambda d: d.create(), "on disk": lambda d: d.create(storage="disk"), "read-only": lambda d: d.create(read_only=True),
    "of a template": template, "of a warm template": lambda d: template(d, warm={"python": "import json"}), "of a pool": pooled,
    "woken": woken, "restored with memory": lambda d: restored(d, True), "restored without": lambda d: restored(d, False), "restored in place": reset,
    "forked": lambda d: called(d, lived(d), "fork", {"memory": True})["sandboxes"][0],
    "forked from a fork": lambda d: called(d, called(d, lived(d), "fork", {"memory": True})["sandboxes"][0], "fork", {"memory": True})["sandboxes"][0],
    "started again": started_again,
}


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("origin", ORIGINS)
def test_every_way_into_a_sandbox_of_every_origin(d, origin, user):
    box = ORIGINS[origin](d)
    try:
        assert each_way(d, box["id"], user) == EXPECTED
    finally:
        d.cli("rm", "--all")
        d.delete("/v1/pools/streams")
        d.delete("/v1/templates/streams")


PROGRAM = """
r, w = os.pipe()
was = os.fstat(r)
gate()
for n, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY), (r, os.O_RDONLY), (w, os.O_WRONLY)):
    os.close(os.open(f"/proc/self/fd/{n}", mode))
now = os.fstat(w)
print((now.st_uid, now.st_gid, now.st_mode) == (was.st_uid, was.st_gid, was.st_mode))
"""


@pytest.mark.parametrize("user", ["user", "root"])
def test_in_copies(d, user):
    """Also the names of a program's own pipes, which bash gives to other programs (/dev/fd/63)."""
    live_on(d, {"pipes": (PROGRAM, "True")}, user=user)
