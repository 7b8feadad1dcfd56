"""Streams opened by their names: /dev/stdin, /dev/stdout, /dev/stderr, in every way in, as every user, in copies."""
import pytest

import host
from api import d, nothing_is_left_behind  # noqa: F401
from memory_lives import live_on

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
