"""Files in checkpoints with memory: a short program for each kind of state that an open file can have."""
import pytest

from api import d, eventually, nothing_is_left_behind  # noqa: F401
from memory_lives import live_on, refused
from test_checkpoints_memory import clean  # noqa: F401
from test_memory_objects import said, start

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

# Open and removed: mode, owner, times, attributes, holes; every open file of it is one of the same file.
GONE = ("""
f = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600)
g = os.open("gone", os.O_RDONLY); h = os.open("gone", os.O_WRONLY | os.O_APPEND)
os.pwrite(f, b"first", 0); os.pwrite(f, b"last", 10_000_000)
os.setxattr("gone", "user.kept", b"value\\0"); os.utime("gone", ns=(111_222_333_444, 555_666_777_888)); os.fchmod(f, 0o4420)
os.lseek(g, 2, 0); os.unlink("gone")
with open("gone", "w") as other: other.write("another")
gate()
st = os.fstat(f)
print(oct(st.st_mode), st.st_uid, st.st_gid, st.st_size, st.st_nlink, st.st_mtime_ns, st.st_blocks < 100, os.getxattr(f, "user.kept"))
print(os.read(g, 3), fails(os.write, g, b"x"), os.write(h, b"more"), os.pread(f, 9, 10_000_000), os.fstat(g).st_ino == st.st_ino, open("gone").read())
""", "0o104420 1000 1000 10000004 0 555666777888 True b'value\\x00'\nb'rst' EBADF 4 b'lastmore' True another")

# Made without a name: it can still be given one.
TMPFILE = ("""
f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o644)
g = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o644)
os.write(f, b"linked later")
gate()
check(libc.linkat(-100, b"/proc/self/fd/%d" % f, -100, b"linked", 0x400))
print(open("linked").read(), oct(os.stat("linked").st_mode), os.fstat(f).st_nlink)
""", "linked later 0o100644 1")

# Shared mappings of removed files, private ones too; the file stays what they are mappings of.
GONE_MAPPED = ("""
f = os.open("mapped", os.O_RDWR | os.O_CREAT, 0o600); os.write(f, b"-" * 8192)
both, own = mmap.mmap(f, 8192), mmap.mmap(f, 8192, mmap.MAP_PRIVATE)
seen = mmap.mmap(f, 8192, mmap.MAP_SHARED, mmap.PROT_READ)
own[0:3] = b"own"; both[100:104] = b"both"
os.unlink("mapped")
p = child()
gate()
both[4096:4099] = b"new"
print(own[0:4], own[100:104], own[4096:4099], seen[4096:4100], os.pread(f, 4, 100), os.pread(f, 3, 4096))
end(p)
""", "b'own-' b'----' b'new' b'new-' b'both' b'new'")

MAY_WRITE = ("""
f = os.open("rw", os.O_RDWR | os.O_CREAT, 0o600); os.write(f, b"x" * 4096)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, 4096, 1, 1, f, 0)
os.close(f)
gate()
print(libc.mprotect(ctypes.c_void_p(at), 4096, 3))
ctypes.memset(at, 65, 3); print(open("rw").read(5))
""", "0\nAAAxx")

FOLDER_GONE = ("""
os.makedirs("gone/inner"); os.chdir("gone/inner"); os.chmod(".", 0o711)
f = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
os.rmdir("../inner")
was = os.stat("..").st_mtime_ns
gate()
print(fails(os.getcwd), os.listdir("."), os.listdir(f), fails(open, "new", "w"), oct(os.fstat(f).st_mode), os.fstat(f).st_nlink, os.path.samefile(f"/proc/self/fd/{f}", "."))
print(os.listdir(".."), os.stat("..").st_mtime_ns == was, os.readlink("/proc/self/cwd").endswith("gone/inner (deleted)"))
""", "ENOENT [] [] ENOENT 0o40711 0 True\n[] True True")

PROGRAM_GONE = ("""
import shutil, subprocess
shutil.copy("/bin/sleep", "program")
p = subprocess.Popen(["./program", "1000"])
asleep(p.pid); os.unlink("program")
gate()
print(os.readlink(f"/proc/{p.pid}/exe").endswith("/program (deleted)"), open(f"/proc/{p.pid}/comm").read().strip(), p.poll())
p.kill(); print(p.wait())
""", "True program None\n-9")

FIFO_GONE = ("""
os.mkfifo("f", 0o640)
r, w = os.open("f", os.O_RDONLY | os.O_NONBLOCK), os.open("f", os.O_WRONLY)
os.unlink("f"); os.write(w, b"kept")
gate()
st = os.fstat(r)
print(oct(st.st_mode), st.st_nlink, os.fstat(w).st_ino == st.st_ino, os.read(r, 9), fails(os.read, r, 1), os.write(w, b"x"), os.read(r, 9))
""", "0o10640 0 True b'kept' EAGAIN 1 b'x'")

# A reader that no writer has come to yet is not told that they are gone.
FIFO_READER = ("""
os.mkfifo("f"); r = os.open("f", os.O_RDONLY | os.O_NONBLOCK); q = os.open("f", os.O_RDONLY | os.O_NONBLOCK)
os.mkfifo("g"); g = os.open("g", os.O_RDONLY | os.O_NONBLOCK); os.close(os.open("g", os.O_WRONLY))
def poll(f): p = select.poll(); p.register(f, 1); return [e for _, e in p.poll(0)]
gate()
print(poll(r), poll(q), poll(g))
w = os.open("f", os.O_WRONLY); os.write(w, b"x"); print(poll(r), os.read(q, 9)); os.close(w); print(poll(r))
""", "[] [] [16]\n[1] b'x'\n[16]")

MEMFD = ("""
m = os.memfd_create("kept name", os.MFD_ALLOW_SEALING)
os.write(m, b"0123456789"); os.fchmod(m, 0o642)
ro = os.open(f"/proc/self/fd/{m}", os.O_RDONLY); os.lseek(ro, 4, 0)
both, own = mmap.mmap(m, 10), mmap.mmap(m, 10, mmap.MAP_PRIVATE); own[0] = 65
fcntl.fcntl(m, 1033, 2 | 4)
plain = os.memfd_create("plain", 0)
sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING); os.write(sealed, b"fixed"); fcntl.fcntl(sealed, 1033, 15)
view = mmap.mmap(sealed, 5, mmap.MAP_SHARED, mmap.PROT_READ)
gate()
both[9] = 66
print(oct(os.fstat(m).st_mode), os.read(ro, 99), fails(os.write, ro, b"x"), own[:], os.readlink(f"/proc/self/fd/{ro}"), os.fstat(ro).st_ino == os.fstat(m).st_ino)
print([fcntl.fcntl(x, 1034) for x in (m, plain, sealed)], fails(os.ftruncate, m, 99), fails(os.write, sealed, b"x"), view[:], fails(fcntl.fcntl, plain, 1033, 2))
""", "0o100642 b'45678B' EBADF b'A123456789' /memfd:kept name (deleted) True\n[6, 1, 15] EPERM EPERM b'fixed' EPERM")

# /dev/shm: what is there by name, open, mapped, linked twice; POSIX semaphores are files in there.
SHM = ("""
import multiprocessing.shared_memory
os.makedirs("/dev/shm/d/e", 0o750)
f = os.open("/dev/shm/d/f", os.O_RDWR | os.O_CREAT, 0o604); os.write(f, b"content"); os.link("/dev/shm/d/f", "/dev/shm/d/twice"); os.symlink("f", "/dev/shm/d/l")
os.mkfifo("/dev/shm/d/pipe", 0o620)
big = os.open("/dev/shm/big", os.O_RDWR | os.O_CREAT, 0o600); os.pwrite(big, b"end", 3_000_000)
m = mmap.mmap(big, 4096); m[0:5] = b"start"
gone = os.open("/dev/shm/gone", os.O_RDWR | os.O_CREAT, 0o600); os.write(gone, b"nameless"); os.unlink("/dev/shm/gone")
os.utime("/dev/shm/d/f", ns=(5, 7)); os.utime("/dev/shm/d", ns=(11, 13))
libc.sem_open.restype = ctypes.c_void_p
s = libc.sem_open(b"/counted", os.O_CREAT, 0o600, 3); assert s
def value():
    n = ctypes.c_int(); check(libc.sem_getvalue(ctypes.c_void_p(s), ctypes.byref(n))); return n.value
libc.sem_wait(ctypes.c_void_p(s))
gate()
st = os.stat("/dev/shm/d/f")
print(oct(st.st_mode), st.st_uid, st.st_nlink, st.st_mtime_ns, os.path.samefile("/dev/shm/d/f", "/dev/shm/d/twice"), os.fstat(f).st_ino == st.st_ino, os.readlink("/dev/shm/d/l"))
print(oct(os.stat("/dev/shm/d/e").st_mode), os.stat("/dev/shm/d").st_mtime_ns, oct(os.stat("/dev/shm/d/pipe").st_mode), os.pread(f, 99, 0))
m[0] = 83; print(os.pread(big, 5, 0), os.pread(big, 9, 3_000_000), os.stat("/dev/shm/big").st_blocks < 100, os.pread(gone, 9, 0), os.path.exists("/dev/shm/gone"))
print(value(), libc.sem_wait(ctypes.c_void_p(s)), value(), sorted(os.listdir("/dev/shm")))
""", "0o100604 1000 2 7 True True f\n0o40750 13 0o10600 b'content'\nb'Start' b'end' True b'nameless' False\n2 0 1 ['big', 'd', 'sem.counted']")

# How it was opened: what may be done with it, and what it was opened by.
OPENED = ("""
open("f", "w").write("0123456789"); os.chmod("f", 0o600)
where = os.open("f", os.O_PATH); fold = os.open(".", os.O_PATH)
sync = os.open("f", os.O_RDWR | os.O_SYNC | os.O_NOATIME)
proc = os.open(f"/proc/{os.getpid()}/status", os.O_RDONLY); by = os.open(f"/proc/self/fd/{sync}", os.O_RDONLY)
os.lseek(proc, 5, 0); os.lseek(by, 7, 0)
nodes = [os.open("/dev/" + n, os.O_RDWR) for n in ("null", "zero", "full", "urandom")]
gate()
fl = lambda f: fcntl.fcntl(f, fcntl.F_GETFL)
print(fails(os.read, where, 1), os.fstat(where).st_size, fl(where) & os.O_PATH == os.O_PATH, os.open("f", os.O_RDONLY, dir_fd=fold) > 0)
print(fl(sync) & os.O_SYNC == os.O_SYNC, bool(fl(sync) & os.O_NOATIME), os.read(by, 9), os.lseek(proc, 0, 1), b"python3" in os.pread(proc, 99, 0))
print(os.read(nodes[0], 1), os.read(nodes[1], 2), fails(os.write, nodes[2], b"x"), len(os.read(nodes[3], 7)))
""", "EBADF 10 True True\nTrue True b'789' 5 True\nb'' b'\\x00\\x00' ENOSPC 7")

GROUPS = {
    "removed": {"file": GONE, "tmpfile": TMPFILE, "mapped": GONE_MAPPED, "folder": FOLDER_GONE, "program": PROGRAM_GONE, "fifo": FIFO_GONE, "reader": FIFO_READER, "may-write": MAY_WRITE},
    "kept": {"memfd": MEMFD, "shm": SHM, "opened": OPENED},
    "locks": {"flock": FLOCK, "posix": POSIX, "ofd": OFD, "lease": LEASE, "waiters": WAITERS, "ghost": LOCKED_GHOST},
}


@pytest.mark.parametrize("group", GROUPS)
def test_files_are_as_they_were(d, clean, group):
    live_on(d, GROUPS[group])


REFUSED = {
    "a lease that is being broken by who could not write": ("""
open("lease", "w").close(); f = os.open("lease", os.O_RDONLY); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
signal.signal(signal.SIGIO, signal.SIG_IGN); assert fails(os.open, "lease", os.O_WRONLY | os.O_NONBLOCK) == "EAGAIN"
os.chmod("lease", 0o400)
""", "a lease of .*lease that another process is breaking"),
}


def test_what_files_can_not_carry_is_refused(d, clean):
    b = d.create()
    for text, reason in REFUSED.values():
        refused(d, text, reason, b)


# In a copy, the first who opens such a file for writing copies it from its layer, and the kernel lets the others wait, as calls that a
# stop ends with EINTR. Python would repeat those by itself.
OPENS = """
for n in range(40):
    with open("big%d" % n, "wb") as f: f.write(os.urandom(1 << 16) * 64)
gate()
print("opening")
r, w = os.pipe()
def opens():
    found = [ctypes.get_errno() for n in range(40) if libc.open(b"big%d" % n, os.O_RDWR) < 0]
    os.write(w, repr(found).encode())
all = [child(after=opens) for _ in range(4)]
for p in all: os.waitpid(p, 0)
print(os.read(r, 999).decode())
"""


def test_a_file_is_opened_by_many_while_it_is_copied(d, clean):
    b = d.create(memory="1G")
    x = start(d, b, OPENS)
    r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"memory": True})
    assert r.status == 201 and r.json["sandboxes"][0]["restored"]["memory"] is True, r
    boxes = [r.json["sandboxes"][0]["id"]]
    assert d.post(f"/v1/sandboxes/{boxes[0]}/execs/{x}/stdin", b"\n").status in (200, 204)
    eventually(lambda: "opening" in said(d, {"id": boxes[0]}, x), 20)
    while len(boxes) < 4 and "[" not in said(d, {"id": boxes[0]}, x):
        r = d.post(f"/v1/sandboxes/{boxes[0]}/fork", {"memory": True})
        assert r.status == 201, r
        boxes += [made["id"] for made in r.json["sandboxes"] if made["restored"]["memory"]]
    assert len(boxes) > 1
    for box in boxes:
        eventually(lambda: "[" in said(d, {"id": box}, x), 60)  # noqa: B023
        assert said(d, {"id": box}, x).endswith("[][][][]\n"), (box, said(d, {"id": box}, x))
