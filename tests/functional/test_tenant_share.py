"""Pools of the kernel that the whole host shares: all sandboxes of one tenant together have a share of each.

The share is 1 % here, so that a test takes little of the host. Two sandboxes of a tenant take two thirds of it each: what runs in one of
them is ended, the other one and another tenant's go on.
"""
import os
import pathlib

import pytest

import host
from api import as_tenant, nothing_is_left_behind  # noqa: F401
from daemon import Daemon

PATIENCE = 60


def setting(name, at=0):
    return int(pathlib.Path("/proc/sys", name).read_text().split()[at])


SHARE = {
    "tenant_tasks": min(setting("kernel/pid_max"), setting("kernel/threads-max")) // 100,
    "tenant_files": setting("fs/file-max") // 100,
    "tenant_ptys": (setting("kernel/pty/max") - setting("kernel/pty/reserve")) // 100,
    "tenant_tcp": setting("net/ipv4/tcp_mem", 2) * os.sysconf("SC_PAGE_SIZE") // 100,
    "tenant_orphans": setting("net/ipv4/tcp_max_orphans") // 100,
}
MOST = {"tenant_tasks": 3000, "tenant_files": 100000, "tenant_ptys": 90, "tenant_tcp": 100 << 20, "tenant_orphans": 4000, "tenant_filters": 600}
if os.environ.get("CLOCHE_LONG"):  # what the host has more of is what bounds the estimate: others that give some back hide it
    SHARE["tenant_filters"] = setting("net/core/bpf_jit_limit") // 100 // (128 << 10)  # as large as one is at most

# What takes @n and keeps it, in a process that may open 1,024 files.
TAKE = {
    "tenant_tasks": """
import threading
def take(n):
    for i in range(n): threading.Thread(target=threading.Event().wait, daemon=True).start()
""",
    "tenant_files": """
def take(n): kept.extend(os.open("/dev/null", os.O_RDONLY) for i in range(n))
""",
    "tenant_ptys": """
def take(n): kept.extend(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY) for i in range(n))
""",
    "tenant_tcp": """
def take(n):
    l = socket.create_server(("127.0.0.1", 0))
    while n > 0:
        c = socket.create_connection(l.getsockname())
        kept.extend((c, l.accept()[0]))
        c.setblocking(False)
        try:
            while n > 0: n -= c.send(bytes(1 << 16))
        except BlockingIOError: pass
""",
    "tenant_orphans": """
def take(n):
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    l.bind(("127.0.0.1", 0)); l.listen(16)
    for i in range(n):
        c = socket.create_connection(l.getsockname())
        kept.append(l.accept()[0])
        c.setblocking(False)
        try: c.send(bytes(4096))
        except BlockingIOError: pass
        c.close()
""",
    "tenant_filters": """
import ctypes, struct
def take(n):
    code = b"".join([struct.pack("HBBI", 0x34, 0, 0, 7)] * 4094 + [struct.pack("HBBI", 6, 0, 0, 0x7fff0000)])
    program = struct.pack("HxxxxxxQ", 4095, ctypes.cast(ctypes.c_char_p(code), ctypes.c_void_p).value)
    for i in range(n): assert ctypes.CDLL(None).syscall(317 if os.uname().machine == "x86_64" else 277, 1, 0, program) == 0
""",
}
MANY = {"tenant_files": 500, "tenant_orphans": 500, "tenant_filters": 7}  # in one process
PROGRAM = """
import os, socket, time
kept = []
%s
for i in range(0, %d, %d):
    r, w = os.pipe()
    if os.fork() == 0:
        take(min(%d - i, %d))
        os.write(w, b"x")
        time.sleep(1000)
    assert os.read(r, 1)
open("/tmp/taken", "w").close()
while True:
    sum(range(20000))
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def d(nothing_is_left_behind, tmp_path_factory):  # noqa: F811  pylint: disable=redefined-outer-name,unused-argument
    conf = tmp_path_factory.mktemp("share") / "serve.conf"
    conf.write_text("tenant_share = 1\n")
    with Daemon(None, "--config", conf) as one:
        yield one


def test_the_receipt_says_the_share(d):
    box = d.create()
    assert box["enforced"]["tenant_share"].startswith("1 % of the host's pools"), box["enforced"]
    assert d.delete(f"/v1/sandboxes/{box['id']}").status == 204


def take(who, kind, n):
    """A sandbox of the tenant's, and an exec in it that takes so much."""
    box = who.create(memory="512M", pids=n + 64 if kind == "tenant_tasks" else 256)["id"]
    many = MANY.get(kind, n)
    x = who.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["/usr/bin/python3", "-c", PROGRAM % (TAKE[kind], n, many, n, many)], "background": True, "timeout": 1000})
    assert x.status in (200, 201, 202), x
    return box, x.json["id"]


def look(who, taken):
    return who.get(f"/v1/sandboxes/{taken[0]}/execs/{taken[1]}").json


def took_all(who, taken):
    return who.get(f"/v1/sandboxes/{taken[0]}/files?path=/tmp/taken").status == 200


@pytest.mark.parametrize("kind", list(SHARE))
def test_all_sandboxes_of_a_tenant_have_a_share_of_the_hosts_pools(d, kind):
    share = SHARE[kind]
    if share > MOST[kind]:
        pytest.skip(f"1 % of this pool are {share} here: too many to try")
    one, other = as_tenant(d, f"{kind}-a".replace("_", "-")), as_tenant(d, f"{kind}-b".replace("_", "-"))
    n = share * 2 // 3
    all_taken = [(one, take(one, kind, n))]
    if kind in ("tenant_tasks", "tenant_ptys"):
        all_taken.append((other, take(other, kind, n)))
    for who, taken in all_taken:
        host.wait_for(lambda who=who, taken=taken: took_all(who, taken) or look(who, taken)["state"] != "running", PATIENCE, "what is within the share")
        assert look(who, taken)["state"] == "running", look(who, taken)
    all_taken.append((one, take(one, kind, n)))
    ended = host.wait_for(lambda: [x for x in (look(*t) for t in all_taken) if x["state"] == "ended"], PATIENCE, "the end of one")
    assert [(x["verdict"]["cause"], x["verdict"]["oom_kind"]) for x in ended] == [("oom", kind)], ended
    assert ended[0]["sandbox"] in (all_taken[0][1][0], all_taken[-1][1][0])
    for who, taken in all_taken:
        assert who.delete(f"/v1/sandboxes/{taken[0]}").status == 204
