"""Many sandboxes from one memory image: they share unchanged pages, and programs cannot notice that."""
import os
import pathlib
import signal
import threading
import time

import pytest

import host
from api import d, eventually, nothing_is_left_behind  # noqa: F401

SIZE = 40 << 20
# Waits for commands: a file, then a signal. Nothing else moves, so that its memory can be compared.
PROGRAM = f"""
import ctypes, mmap, os, signal, sys, threading
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
libc = ctypes.CDLL(None, use_errno=True)
def at(m):
    return ctypes.addressof(ctypes.c_char.from_buffer(m))
big = mmap.mmap(-1, {SIZE}, flags=PRIVATE)
for i in range(0, {SIZE}, 4096):
    big[i:i + 8] = i.to_bytes(8, 'little')
readable = mmap.mmap(-1, 1 << 20, flags=PRIVATE)
readable.write(b'r' * (1 << 20))
assert libc.mprotect(ctypes.c_void_p(at(readable)), 1 << 19, mmap.PROT_READ) == 0
closed = mmap.mmap(-1, 1 << 20, flags=PRIVATE)
closed.write(b'c' * (1 << 20))
assert libc.mprotect(ctypes.c_void_p(at(closed)), 1 << 20, 0) == 0
wiped = mmap.mmap(-1, 65536, flags=PRIVATE)
wiped.write(b'w' * 65536)
assert libc.madvise(ctypes.c_void_p(at(wiped)), 65536, 18) == 0
locked = mmap.mmap(-1, 65536, flags=PRIVATE)
locked.write(b'l' * 65536)
assert libc.mlock(ctypes.c_void_p(at(locked)), 65536) == 0
def total():
    return sum(int.from_bytes(big[i:i + 8], 'little') for i in range(0, {SIZE}, 4096))
def drop(a, n):
    assert libc.madvise(ctypes.c_void_p(at(big) + a), n, mmap.MADV_DONTNEED) == 0
    return any(big[a:a + n])
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1, signal.SIGUSR2}})
threading.Thread(target=signal.sigwait, args=([signal.SIGUSR2],), daemon=True).start()
open('/home/user/pid', 'w').write(str(os.getpid()))
n = 0
while True:
    print('ready', flush=True)
    signal.sigwait([signal.SIGUSR1])
    n += 1
    answer = repr(eval(open('/home/user/ask').read()))
    with open('/home/user/new', 'w') as f:
        f.write(answer)
    os.rename('/home/user/new', f'/home/user/answer{{n}}')
"""


class Copy:
    """A sandbox in which the program continues."""

    def __init__(self, d, box):
        self.d, self.id, self.asked = d, box["id"], 0
        self.sh(f"echo {self.id} > /home/user/me")
        self.inside = int(self.sh("cat /home/user/pid"))

    def sh(self, script):
        r = self.d.exec(self.id, "/bin/sh", "-c", script)
        assert r["exit_code"] == 0, r
        return r["stdout"]

    def ask(self, expression):
        self.asked += 1
        self.sh(f"cat > /home/user/ask <<'END'\n{expression}\nEND\nkill -USR1 {self.inside}")
        path = f"/home/user/answer{self.asked}"
        eventually(lambda: self.sh(f"test -e {path} && echo yes || echo no") == "yes\n", 60)
        return eval(self.sh(f"cat {path}"))

    def pid(self):
        """As the host numbers it."""
        for p in pathlib.Path("/proc").iterdir():
            try:
                if p.name.isdigit() and (p / "status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1] == str(self.inside) \
                        and (p / "root/home/user/me").read_text().strip() == self.id:
                    return int(p.name)
            except (OSError, IndexError):
                continue
        raise AssertionError(f"{self.id}: no process {self.inside}")

    def private(self):
        """KiB that no other process has."""
        text = pathlib.Path(f"/proc/{self.pid()}/smaps_rollup").read_text()
        return sum(int(x.split()[1]) for x in text.splitlines() if x.startswith("Private_Dirty"))

    def charged(self):
        return self.d.get(f"/v1/sandboxes/{self.id}/stats").json["memory"]


def maps(pid):
    return [x.split(None, 5) for x in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]


def memory(pid):
    """Every private mapping that has pages of its own, by address."""
    found = {}
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
        for fields in maps(pid):
            start, end = (int(x, 16) for x in fields[0].split("-"))
            if fields[1].endswith("s") or (len(fields) > 5 and fields[5].startswith("[v")):
                continue
            try:
                f.seek(start)
                data = f.read(end - start)
                while len(data) < end - start:
                    data += f.read(end - start - len(data))
            except OSError:
                continue  # behind the end of its file
            found[start] = data
    return found


def differing(a, b):
    return sum(x != y for i in range(0, len(a), 4096) if a[i:i + 4096] != b[i:i + 4096]
               for x, y in zip(a[i:i + 4096], b[i:i + 4096]))


def holders(d):
    """Processes that hold images, of this daemon."""
    found = []
    for p in host.children(d.process.pid):
        for q in host.children(p):
            try:
                if pathlib.Path(f"/proc/{q}/comm").read_text() == "cloche-stash\n" and not ended(q):
                    found.append(q)
            except OSError:
                continue
    return found


def ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture(scope="module")
def source(d):
    """A checkpoint of the program, and one copy that shares nothing: the request was for a single one."""
    box = d.post("/v1/sandboxes", {}).json
    r = d.post(f"/v1/sandboxes/{box['id']}/execs", {"cmd": ["/usr/bin/python3", "-c", PROGRAM], "background": True})
    assert r.status == 201, r
    x = r.json["id"]
    eventually(lambda: b"ready" in d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output").body, 60)
    time.sleep(0.2)
    c = d.post(f"/v1/sandboxes/{box['id']}/checkpoints", {"memory": True})
    assert c.status == 201 and c.json["memory"] is True, c
    assert d.delete(f"/v1/sandboxes/{box['id']}").status == 204
    return c.json["id"]


@pytest.fixture(scope="module")
def alone(d, source):
    return copies(d, source, 1)[0]


def copies(d, source, n):
    r = d.post(f"/v1/checkpoints/{source}/restore", {"count": n})
    assert r.status == 201, r
    assert all(b["restored"]["memory"] is True for b in r.json["sandboxes"]), r
    return [Copy(d, b) for b in r.json["sandboxes"]]


def remove(d, some):
    for c in some:
        assert d.delete(f"/v1/sandboxes/{c.id}").status == 204


TOTAL = sum(range(0, SIZE, 4096))


def test_copies_are_equal_whether_they_share_or_not(d, source, alone):
    assert alone.private() > SIZE / 1024, "nobody had asked for many"
    many = copies(d, source, 8)
    assert len(holders(d)) == 1
    assert [c for c in many if c.private() > 2048] == [], [c.private() for c in many]
    assert alone.private() > SIZE / 1024
    was, own = maps(alone.pid()), memory(alone.pid())
    assert sum(map(len, own.values())) > SIZE
    for c in many[:3]:
        assert maps(c.pid()) == was
        is_ = memory(c.pid())
        assert is_.keys() == own.keys()
        # The kernel's words for restartable sequences tell which processor a thread was on.
        assert sum(differing(own[a], is_[a]) for a in own) <= 128
    remove(d, many)


def test_what_one_copy_does_no_other_sees(d, source, alone):
    one, other, third, _ = many = copies(d, source, 4)
    assert [c.private() < 2048 for c in many] == [True] * 4
    before = [c.charged() for c in (one, other)]
    assert one.ask("drop(1 << 20, 1 << 20)") is False  # zeros, as in the original
    assert one.ask("[big.__setitem__(slice(i, i + 4), b'mine') for i in range(8 << 20, 12 << 20, 4096)] and 1") == 1
    after = [c.charged() for c in (one, other)]
    assert 4 << 20 <= after[0] - before[0] <= 12 << 20 and after[1] - before[1] < 2 << 20, (before, after)
    assert one.ask("total()") != TOTAL
    assert one.ask("(readable[:3], wiped[:3], locked[:3], bytes(big[8 << 20:(8 << 20) + 4]))") == (b"rrr", b"www", b"lll", b"mine")
    for c in (other, third, *copies(d, source, 1)):
        assert c.ask("total()") == TOTAL
        if c not in many:
            many.append(c)
    # A copy of a copy has what that one had.
    f = d.post(f"/v1/sandboxes/{one.id}/fork", {"count": 4, "memory": True})
    assert f.status == 201, f
    for b in f.json["sandboxes"]:
        c = Copy(d, b)
        c.asked = one.asked
        assert c.ask("bytes(big[8 << 20:(8 << 20) + 4]), any(big[1 << 20:2 << 20])") == (b"mine", False)
        many.append(c)
    remove(d, many)


def test_a_holder_that_is_killed_leaves_its_copies_alone(d, source):
    first = copies(d, source, 4)
    made, stop = [], threading.Event()

    def kill():
        while not stop.is_set():
            for p in holders(d):
                os.kill(p, signal.SIGKILL)
            stop.wait(0.05)

    t = threading.Thread(target=kill)
    t.start()
    try:
        made = copies(d, source, 10)
    finally:
        stop.set()
        t.join()
    for c in first + made:
        assert c.ask("total()") == TOTAL
    again = copies(d, source, 4)
    assert again[0].ask("total()") == TOTAL
    remove(d, first + made + again)


def test_a_killed_warden_takes_its_holders_along(d, source):
    first = copies(d, source, 4)
    if not holders(d):  # the last test's were killed, and it takes a moment until it is tried again
        time.sleep(1.5)
        first += copies(d, source, 4)
    was = holders(d)
    assert was
    d.kill9("warden")
    host.wait_for(lambda: all(map(ended, was)), 60, "the holders' end")
    eventually(lambda: d.get(f"/v1/sandboxes/{first[0].id}").json["state"] == "running", 60)
    assert first[0].ask("total()") == TOTAL
    again = copies(d, source, 4)
    assert [c.private() < 2048 for c in again] == [True] * 4
    remove(d, first + again)


def test_a_holder_goes_with_its_layer(d, source, alone):
    remove(d, copies(d, source, 4) + [alone])
    assert holders(d)
    assert d.delete(f"/v1/checkpoints/{source}").status == 204
    host.wait_for(lambda: not holders(d), 60, "the holder's end")
