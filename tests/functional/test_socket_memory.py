"""What sockets hold in the kernel counts as a sandbox's memory, although its memory group does not count it."""
import pathlib
import subprocess

import pytest

from api import d, nothing_is_left_behind  # noqa: F401
from host import python, run

LIMITS = pathlib.Path(__file__).resolve().parents[1] / "limits"
SECONDS = "120"  # far more than it takes: they are ended before


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    prog = tmp_path_factory.mktemp("fillers") / "fill_sockets"
    subprocess.run(["gcc", "-O1", "-w", "-static", "-o", prog, LIMITS / "fill_sockets.c"], check=True)
    return prog


@pytest.mark.parametrize("kind", ["accept", "accept-reset", "cork", "stamps-hidden"])
@pytest.mark.parametrize("user", ["user", "root"])
def test_run_ends_what_fills_sockets(filler, kind, user):
    r = run("--json", "--memory", "64M", "--user", user, "--mount", f"{filler.parent}:/fill:ro", "--", "/fill/fill_sockets", kind, "16", SECONDS)
    assert r.json["verdict"]["cause"] == "oom" and r.json["verdict"]["oom_kind"] == "sockets", r
    assert "sockets" in r.json["enforced"]["kernel_memory"]


def test_a_full_memory_is_named_as_such():
    r = python("x = bytearray(200 << 20)", "--json", "--memory", "64M")
    assert r.json["verdict"]["cause"] == "oom" and r.json["verdict"]["oom_kind"] == "memory", r


def test_a_thousand_connections_are_no_reason():
    server = ("import asyncio\nasync def serve(r, w):\n  while (line := await r.readline()):\n    w.write(line)\n  w.close()\n"
              "async def main():\n  s = await asyncio.start_server(serve, '127.0.0.1', 0)\n  port = s.sockets[0].getsockname()[1]\n"
              "  all = await asyncio.gather(*[asyncio.open_connection('127.0.0.1', port) for _ in range(1000)])\n"
              "  for r, w in all: w.write(b'x' * 4000 + b'\\n')\n"
              "  got = await asyncio.gather(*[r.readline() for r, w in all])\n  print(sum(len(g) for g in got))\nasyncio.run(main())")
    r = python(server, "--json", "--memory", "512M", "--nofile", "4096")
    assert r.json["stdout"].strip() == str(1000 * 4001), r


def test_many_unix_sockets_are_no_reason():
    many = ("import resource, socket, time\nn = 14000\nresource.setrlimit(resource.RLIMIT_NOFILE, (n + 100, n + 100))\n"
            "kept = [socket.socketpair() for _ in range(n // 2)]\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\nprint(len(kept))")
    r = python(many, "--json", "--memory", "512M")
    assert r.json["stdout"].strip() == "7000", r


def test_the_daemon_ends_the_exec_and_not_the_sandbox(filler, d):
    b = d.create(memory="64M")["id"]
    r = d.put(f"/v1/sandboxes/{b}/files?path=/tmp/fill&mode=0755", filler.read_bytes())
    assert r.status in (200, 201), r
    x = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["/tmp/fill", "accept", "16", SECONDS]}).json
    assert x["verdict"]["cause"] == "oom" and x["verdict"]["oom_kind"] == "sockets", x
    stats = d.get(f"/v1/sandboxes/{b}/stats").json
    assert stats["oom_kills"] == 1 and "sockets" in stats["kernel_memory"], stats
    # It forks: the group that was at hand for it takes processes.
    x = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["sh", "-c", "true | true && echo alive"]}).json
    assert x["stdout"] == "alive\n" and x["verdict"]["cause"] == "exited", x
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_a_copy_that_fills_sockets_as_soon_as_it_runs_is_ended(filler, d):
    b = d.create(memory="64M")["id"]
    assert d.put(f"/v1/sandboxes/{b}/files?path=/tmp/fill&mode=0755", filler.read_bytes()).status in (200, 201)
    x = d.post(f"/v1/sandboxes/{b}/execs", {"shell": "until [ -e /tmp/go ]; do sleep 0.01; done; exec /tmp/fill accept 16 " + SECONDS,
                                            "background": True}).json["id"]
    r = d.post(f"/v1/sandboxes/{b}/fork", {"memory": True})
    assert r.status == 201, r
    copy = r.json["sandboxes"][0]["id"]
    assert d.exec(copy, "touch", "/tmp/go")["exit_code"] == 0
    x = d.get(f"/v1/sandboxes/{copy}/execs/{x}/wait?timeout=100", timeout=120).json
    assert x["verdict"]["cause"] == "oom" and x["verdict"]["oom_kind"] == "sockets", x
    for i in (b, copy):
        assert d.delete(f"/v1/sandboxes/{i}").status == 204


SOCKETS = """
import errno, socket, sys
def all():
    s = []
    try:
        while len(s) < 1000: s.append(socket.socket(socket.AF_INET6 if len(s) % 2 else socket.AF_INET, socket.SOCK_DGRAM if len(s) % 3 else socket.SOCK_STREAM))
    except OSError as e:
        return len(s), errno.errorcode[e.errno]
    return len(s), None
l = socket.create_server(('127.0.0.1', 0))
for i in range(50): # what was accepted was not counted, and its end is not either
    c = socket.create_connection(l.getsockname())
    l.accept()[0].close()
    c.close()
l.close()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
sizes = [s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)]
for option in socket.SO_RCVBUF, socket.SO_SNDBUF: # longer than what a program is shown of it
    s.setsockopt(socket.SOL_SOCKET, option, (8 << 20).to_bytes(4, sys.byteorder) + bytes(8188))
    sizes.append(s.getsockopt(socket.SOL_SOCKET, option))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
sizes.append(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, b"\\1\\0\\0\\1" + bytes(8188)) # others go through, however long
s.close()
print(*all(), *all(), *sizes)
"""


def test_the_kernel_bounds_the_sockets_of_a_sandbox_of_the_daemon(d):
    b = d.create(memory="64M")
    if "sockets" not in b["enforced"]:
        pytest.skip("BPF cannot be used here: the watch alone holds")
    assert b["enforced"]["sockets"].startswith("157 to the internet"), b["enforced"]
    x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/usr/bin/python3", "-c", SOCKETS]}).json
    assert x["stdout"].split() == ["157", "EPERM", "157", "EPERM", "212992", "212992", "212992", "16384"], x
    d.delete(f"/v1/sandboxes/{b['id']}")
