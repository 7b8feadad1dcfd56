"""The number that opens the filter's doors (clone3, ptrace, mounts) is in no memory of a sandbox, once anything runs in it."""
import ctypes
import os
import pathlib
import platform
import re
import struct
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
from daemon import Daemon  # noqa: E402

ATTACH, DETACH, GET_FILTER, WALL = 16, 17, 0x420C, 0x40000000
SIXTH = (56, 60)  # where struct seccomp_data has the halves of the sixth argument
MARK = "31415926"


@pytest.fixture(scope="module")
def d():
    with Daemon() as one:
        yield one


def processes(mark):
    """All processes of a pid namespace in which one has @mark among its arguments."""
    spaces = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            spaces[int(p)] = (os.readlink(f"/proc/{p}/ns/pid"), pathlib.Path(f"/proc/{p}/cmdline").read_bytes())
        except OSError:
            pass
    inside = {space for space, cmd in spaces.values() if mark.encode() in cmd and space != os.readlink("/proc/self/ns/pid")}
    return [p for p, (space, _) in spaces.items() if space in inside]


def secret(pid):
    """From the filter itself: a process that may look at that needs no other hole."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
    libc.ptrace.restype = ctypes.c_long
    room = ctypes.create_string_buffer(8 * 8192)
    assert libc.ptrace(ATTACH, pid, None, None) == 0
    os.waitpid(pid, WALL)
    n = libc.ptrace(GET_FILTER, pid, 1, room)  # the first one is the warden's, which has no such number
    libc.ptrace(DETACH, pid, None, None)
    assert n > 0, os.strerror(ctypes.get_errno())
    code = [struct.unpack_from("<HBBI", room.raw, 8 * i) for i in range(n)]
    halves = [{code[i + 1][3] for i in range(n - 1) if code[i][0] == 0x20 and code[i][3] == at} for at in SIXTH]
    assert all(len(h) == 1 for h in halves), halves
    return struct.pack("<II", *(h.pop() for h in halves))


def holds(pid, text):
    with open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end = (int(x, 16) for x in re.match(r"(\w+)-(\w+)", line).groups())
            try:
                mem.seek(start)
                if "[v" not in line and text in mem.read(end - start):
                    return line
            except (OSError, ValueError, OverflowError):
                pass
    return None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is looked at as this CPU's")
def test_nobody_has_it(d):
    script = "import threading, time\nfor i in range(3): threading.Thread(target=time.sleep, args=(1000,)).start()\nprint('up', flush=True)"
    b = d.create(user="root")["id"]
    x = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["python3", "-c", script, MARK], "background": True}).json["id"]
    while b"up" not in d.get(f"/v1/sandboxes/{b}/execs/{x}/output").body:
        time.sleep(0.05)
    r = d.post(f"/v1/sandboxes/{b}/fork", {"memory": True})
    assert r.status == 201, r
    found = processes(MARK)
    assert len(found) >= 4, found  # two agents, two programs
    secrets = {p: secret(p) for p in found}
    assert len(set(secrets.values())) == 2, secrets  # each sandbox has its own
    assert {p: at for p, s in secrets.items() if (at := holds(p, s))} == {}
