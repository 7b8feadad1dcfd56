"""Files in checkpoints with memory: a short program for each kind of state that an open file can have."""
import pytest

from api import d, nothing_is_left_behind  # noqa: F401
from memory_lives import live_on, refused
from test_checkpoints_memory import clean  # noqa: F401

# Who is asked from outside: another process, by another open file.
ASK = """
def asked(fn):
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(w, repr(fails(fn)).encode()); os._exit(0)
    os.waitpid(pid, 0)
    return eval(os.read(r, 999))
def getlk(path, cmd=5, start=0, len=0):
    with open(path, "r+b") as f:
        got = fcntl.fcntl(f, cmd, struct.pack("hhqqi4x", 1, 0, start, len, 0))
    kind, _, at, n, pid = struct.unpack("hhqqi4x", got)
    return (kind, at, n, pid)
"""

FLOCK = (ASK + """
a, b, c = (open(n, "w") for n in ("flock-a", "flock-b", "flock-c"))
fcntl.flock(a, fcntl.LOCK_EX); fcntl.flock(b, fcntl.LOCK_SH); fcntl.flock(c, fcntl.LOCK_EX); fcntl.flock(c, fcntl.LOCK_UN)
p = child()
def take(name, how): fcntl.flock(open(name, "w"), how | fcntl.LOCK_NB); return "got"
def all(): return [asked(lambda: take("flock-" + n, how)) for n in "abc" for how in (fcntl.LOCK_SH, fcntl.LOCK_EX)]
gate()
first = all()
a.close()
print(first, all()[:2])
end(p)
print(all()[:2])
""", "['EAGAIN', 'EAGAIN', 'got', 'EAGAIN', 'got', 'got'] ['EAGAIN', 'EAGAIN']\n['got', 'got']")

# Each process has its own; closing any descriptor of the file ends them.
POSIX = (ASK + """
f = open("posix", "w+b"); f.truncate(100)
other = os.open("posix", os.O_RDWR)
def lock(kind, start, n): fcntl.fcntl(f, 6, struct.pack("hhqqi4x", kind, 0, start, n, 0))
lock(1, 0, 10); lock(0, 50, 0)
p = child(lambda: lock(1, 20, 5))
me = os.getpid()
def who(at, n):
    kind, start, length, pid = asked(lambda: getlk("posix", start=at, len=n))
    return kind, start, length, {me: "me", p: "child"}.get(pid, pid)
gate()
print(who(0, 1), who(9, 3), who(22, 1), who(60, 1), who(11, 2)[0])
os.close(other)
print(who(0, 1)[0], who(22, 1))
end(p)
print(who(22, 1)[0])
""", "(1, 0, 10, 'me') (1, 0, 10, 'me') (1, 20, 5, 'child') (0, 50, 0, 'me') 2\n2 (1, 20, 5, 'child')\n2")

OFD = (ASK + """
f = open("ofd", "w+b"); g = open("ofd", "r+b"); f.truncate(100)
def lock(x, kind, start, n): fcntl.fcntl(x, 37, struct.pack("hhqqi4x", kind, 0, start, n, 0))
lock(f, 1, 10, 5); lock(g, 0, 20, 0)
p = child()
def conflict(x, kind, start): return fails(lambda: lock(x, kind, start, 1))
gate()
print(asked(lambda: getlk("ofd", 36, 12, 1)), asked(lambda: getlk("ofd", 36, 30, 1)), conflict(g, 1, 12), conflict(f, 1, 25), conflict(f, 1, 12))
f.close()
print(asked(lambda: getlk("ofd", 36, 12, 1))[0])
end(p)
print(asked(lambda: getlk("ofd", 36, 12, 1))[0])
""", "(1, 10, 5, -1) (0, 20, 0, -1) EAGAIN EAGAIN None\n1\n2")

LEASE = (ASK + """
open("lease", "w").close()
f = os.open("lease", os.O_RDONLY)
fcntl.fcntl(f, fcntl.F_SETSIG, signal.SIGRTMIN + 3); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 3])
gate()
has = fcntl.fcntl(f, fcntl.F_GETLEASE)
again = asked(lambda: os.close(os.open("lease", os.O_RDONLY)))
broken = asked(lambda: os.open("lease", os.O_WRONLY | os.O_NONBLOCK))
print(has == fcntl.F_RDLCK, again, broken, signal.sigtimedwait([signal.SIGRTMIN + 3], 30).si_signo == signal.SIGRTMIN + 3)
""", "True None EAGAIN True")

# A call that waits for a lock goes on waiting.
WAITERS = ("""
f = open("waited", "w+b"); g = open("waited2", "w")
fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(g, fcntl.LOCK_EX)
r, w = os.pipe()
def wait(n, fn): fn(); os.write(w, n); os._exit(0)
p = child(after=lambda: wait(b"p", lambda: fcntl.lockf(open("waited", "r+b"), fcntl.LOCK_EX)))
q = child(after=lambda: wait(b"q", lambda: fcntl.flock(open("waited2"), fcntl.LOCK_EX)))
asleep(p); asleep(q)
gate()
early = select.select([r], [], [], 0.05)[0]
fcntl.lockf(f, fcntl.LOCK_UN); first = os.read(r, 1)
fcntl.flock(g, fcntl.LOCK_UN)
print(early, first, os.read(r, 1), os.waitpid(p, 0)[1], os.waitpid(q, 0)[1])
""", "[] b'p' b'q' 0 0")

# What it is called and who owns it does not matter for a lock.
LOCKED_GHOST = (ASK + """
f = open("ghost", "w+b"); os.unlink("ghost")
fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX, 7, 3)
def again(): return open(f"/proc/self/fd/{f.fileno()}", "r+b")
def take(): fcntl.flock(again(), fcntl.LOCK_SH | fcntl.LOCK_NB)
def ask(): return struct.unpack("hhqqi4x", fcntl.fcntl(again(), 5, struct.pack("hhqqi4x", 1, 0, 0, 0, 0)))[:4]
gate()
print(asked(take), asked(ask))
""", "EAGAIN (1, 0, 3, 7)")

GROUPS = {
    "locks": {"flock": FLOCK, "posix": POSIX, "ofd": OFD, "lease": LEASE, "waiters": WAITERS, "ghost": LOCKED_GHOST},
}


@pytest.mark.parametrize("group", GROUPS)
def test_files_are_as_they_were(d, clean, group):
    live_on(d, GROUPS[group])


REFUSED = {
    "a lease that is being broken": ("""
open("lease", "w").close(); f = os.open("lease", os.O_RDONLY); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
signal.signal(signal.SIGIO, signal.SIG_IGN); assert fails(os.open, "lease", os.O_WRONLY | os.O_NONBLOCK) == "EAGAIN"
""", "a lease of .*lease that somebody is about to break"),
}


def test_what_files_can_not_carry_is_refused(d, clean):
    b = d.create()
    for text, reason in REFUSED.values():
        refused(d, text, reason, b)
