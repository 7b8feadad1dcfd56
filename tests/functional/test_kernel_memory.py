"""Kernel memory that no control group counts (docs/design/0013-kernel-memory.md), kinds that are not sockets.

What is refused is tried by name. What is watched is filled until the sandbox is ended. How much the host lost meanwhile is measured
by tests/limits/measure.py: with CLOCHE_LONG=1 here, on a machine that does nothing else, and in tests/v2.
"""
import os
import subprocess

import pytest

from api import d, nothing_is_left_behind  # noqa: F401
from host import ROOT, python, run, start

LIMITS = ROOT / "tests/limits"

REFUSED = r"""
import ctypes, errno, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def told(fn, *a):
    try:
        fn(*a)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
def acl(n):
    e = [(1, 7, 0xffffffff)] + [(2, 7, 1000 + i) for i in range(n - 4)] + [(4, 7, 0xffffffff), (16, 7, 0xffffffff), (32, 5, 0xffffffff)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *x) for x in e)
for top in ("/tmp", "/dev/shm"):
    f = top + "/f"
    os.mkdir(f)
    for n in (5, 13, 14, 128, 8190):
        print(n, told(os.setxattr, f, "system.posix_acl_access", acl(n)), told(os.setxattr, f, "system.posix_acl_default", acl(n)))
    for n in (100, 1024, 4096, 65536):
        print(n, told(os.setxattr, f, "user.x", b"v" * n))
m = libc.mmap
m.restype = ctypes.c_void_p
page = ctypes.c_void_p(m(None, 4096, 3, 0x22, -1, 0))
for nr, args in ((MBIND, (page, 4096, 2, ctypes.byref(ctypes.c_ulong(1)), 8, 0)), (450, (page, 4096, 0, 0))):
    print(nr == 450, libc.syscall(nr, *args), errno.errorcode[ctypes.get_errno()])
code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 9))
prog = struct.pack("HxxxxxxQ", 1, ctypes.addressof(code))
for family, kind in ((socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_STREAM)):
    s = socket.socket(family, kind)
    print([told(s.setsockopt, socket.SOL_SOCKET, o, prog) for o in (26, 50, 51, 52)])
t = socket.socket()
print([told(t.setsockopt, socket.IPPROTO_TCP, o, bytes(216)) for o in (14, 32, 38)])
print(told(t.getsockopt, socket.IPPROTO_TCP, 35, 64), told(t.getsockopt, socket.IPPROTO_TCP, 11, 64),
      told(socket.socket(socket.AF_INET6).setsockopt, socket.IPPROTO_IPV6, 32, bytes(15) + b"\1" + bytes(4) + b"\0\1\1" + bytes(9)))
print(libc.syscall(463, -1, b"", 0, b"user.x", None, 0), errno.errorcode[ctypes.get_errno()])
""".replace("MBIND", "235" if os.uname().machine == "aarch64" else "237")

FOLDER = "5 ok ok\n13 ok ok\n14 E2BIG E2BIG\n128 E2BIG E2BIG\n8190 E2BIG E2BIG\n100 ok\n1024 ok\n4096 ok\n65536 ok\n"
EXPECTED = FOLDER * 2 + "False -1 EPERM\nTrue -1 EPERM\n" + "['ENOPROTOOPT', 'ENOPROTOOPT', 'EPERM', 'ENOPROTOOPT']\n" * 2 + \
    "['ENOPROTOOPT', 'ENOPROTOOPT', 'ENOPROTOOPT']\nENOPROTOOPT ok ENOPROTOOPT\n-1 ENOSYS\n"


@pytest.mark.parametrize("user", ["user", "root"])
def test_what_the_kernel_would_keep_uncounted_is_refused(user):
    r = python(REFUSED, "--user", user)
    assert r.text == EXPECTED, r


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    prog = tmp_path_factory.mktemp("filler") / "fill_objects"
    subprocess.run(["gcc", "-O1", "-w", "-static", "-pthread", "-o", prog, LIMITS / "fill_objects.c"], check=True)
    return prog.read_bytes()


START = 'cat >/tmp/filler && chmod 755 /tmp/filler && exec /tmp/filler "$@"'


def fill(filler, kind, *options, processes=8, seconds=90):
    return run("--json", "--pids", "64", "--timeout", "120s", *options, "--", "sh", "-c", START, "sh", kind, str(processes), str(seconds),
               input=filler, timeout=150)


@pytest.mark.parametrize("kind, user, told", [("listingetc", "root", "listings"), ("locks", "user", "locks"),
                                              ("locksmemfd", "root", "locks"), ("locksthr", "user", "locks"),
                                              ("locksmapped", "user", "locks"), ("lockssentshm", "user", "locks"),
                                              ("pipesheld", "user", "descriptors"), ("pipessent", "root", "descriptors")])
def test_what_is_watched_ends_the_sandbox_and_is_named(filler, kind, user, told):
    r = fill(filler, kind, "--memory", "24M", "--user", user)
    v = r.json["verdict"]
    assert (v["cause"], v["oom_kind"]) == ("oom", told), r


def test_the_daemon_ends_the_exec_whose_locks_no_descriptor_shows_and_not_the_next(filler, d):
    b = d.create(memory="64M")["id"]
    assert d.put(f"/v1/sandboxes/{b}/files?path=/tmp/fill&mode=0755", filler).status in (200, 201)
    x = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["/tmp/fill", "locksmapshm", "8", "90"]}).json
    assert (x["verdict"]["cause"], x["verdict"].get("oom_kind")) == ("oom", "locks"), x
    x = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["sh", "-c", "true | true && echo alive"]}).json
    assert x["stdout"] == "alive\n" and x["verdict"]["cause"] == "exited", x
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


WRITABLE = ("/tmp", "/var/tmp", "/run/lock")


@pytest.mark.parametrize("options", [(), ("--user", "root"), ("--storage", "disk"), ("--workdir", "/srv", "--user", "root")])
def test_folders_where_programs_write_are_not_merged(options):
    """So no listings of them are kept. Overlay reports 1 as the link count of a merged folder, and merges one when it
    is first written to."""
    r = run(*options, "--", "sh", "-c", 'for f; do touch "$f/x" && rm "$f/x"; done 2>/dev/null; stat -c "%h %a %u %g" "$@"', "sh", *WRITABLE,
            "/root" if "root" in options else "/home/user", ".")
    home = "2 700 0 0\n" if "root" in options else "2 755 1000 1000\n"
    assert r.text == "2 1777 0 0\n" * 3 + home + ("2 755 0 0\n" if "/srv" in options else home), r
    moved = run(*options, "--", "sh", "-c", "mkdir /tmp/d && echo x >/tmp/d/f && mv /tmp/d ~/e && ln ~/e/f /var/tmp/g && rmdir /tmp/* ; "
                "cat /var/tmp/g && stat -c %h ~/e/f && ls -A /tmp && grep -c /tmp /proc/self/mounts")
    assert moved.text == "x\n2\n0\n", moved


def test_a_pool_of_the_host_that_one_sandbox_has_used_up_is_there_for_others():
    """Inotify instances and queued signals are counted by owner, and every sandbox has one of its own."""
    take = ("most = 1 << 20\nimport ctypes, os, signal, sys\nlibc = ctypes.CDLL(None)\nn = 0\nwhile libc.inotify_init() >= 0: n += 1\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [50]); s = 0\nwhile s < most and libc.sigqueue(os.getpid(), 50, None) == 0: s += 1\n"
            "print(n > 8, s > 100, flush=True)\n")
    hold = start("--", "/usr/bin/python3", "-c", take + "sys.stdin.read()", text=True)
    try:
        assert hold.stdout.readline() == "True True\n"
        assert python(take.replace("1 << 20", "1000")).text == "True True\n"
    finally:
        hold.communicate(timeout=60)
    assert hold.returncode == 0
