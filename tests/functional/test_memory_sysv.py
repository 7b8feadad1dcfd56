"""System V shared memory, semaphores and message queues in memory checkpoints. Each program sets some up; the source, a fork of a copy
and a copy that was hibernated and woken tell the same of them: ids, keys, owners, content, who waits. What cannot be made again is
refused by name."""
import re

import pytest

from api import d, error, nothing_is_left_behind  # noqa: F401
from test_checkpoints_memory import clean  # noqa: F401
from test_memory_objects import start, tells
from test_memory_procs import everywhere

# Helpers beside those of test_memory_objects.PRELUDE and test_memory_procs.MORE.
IPC = """
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msgrcv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long, ctypes.c_int]
RMID, SET, STAT, RDONLY, NOWAIT, UNDO = 0, 1, 2, 0o10000, 0o4000, 0x1000
GETPID, GETVAL, GETNCNT, SETVAL = 11, 12, 14, 16
SAME = "key shmid semid msqid perms size nattch nsems cbytes qnum uid gid cuid cgid".split()
def rows(kind, *ids):
    head, *lines = [l.split() for l in open("/proc/sysvipc/" + kind)]
    return sorted([n + "=" + v for n, v in zip(head, l) if n in SAME] for l in lines if int(l[1]) in ids)
def attachments(): return [l.split()[:5] for l in open("/proc/self/maps") if "/SYSV" in l]
def ok(r):
    assert r is not None and r != -1 and r != 2 ** 64 - 1, os.strerror(ctypes.get_errno())
    return r
def attach(id, at=0, flags=0): return ok(libc.shmat(id, at, flags))
def semop(id, *ops):
    b = struct.pack("HhH" * len(ops), *[x for o in ops for x in (o + (0,))[:3]])
    return libc.semop(id, b, len(ops))
def put(at, data): ctypes.memmove(at, data, len(data))
def send(q, kind, text, flags=0): return ok(libc.msgsnd(q, struct.pack("l", kind) + text, ctypes.c_size_t(len(text)), flags))
def receive(q, kind, flags=NOWAIT):
    b = ctypes.create_string_buffer(8200)
    n = libc.msgrcv(q, b, 8192, kind, flags)
    return (struct.unpack_from("l", b)[0], b.raw[8:8 + n].decode()) if n >= 0 else os.strerror(ctypes.get_errno())
def ask(call, id, *more):
    b = ctypes.create_string_buffer(256)
    ok(call(id, *more, STAT, b))
    return b
"""

MEMORY = ("""
a = ok(libc.shmget(0x4201, 10000, 0o1640))
p = attach(a, 0x200000000000); put(p, b"first"); put(p + 9995, b"last.")
q = attach(a, 0, RDONLY)
ok(libc.mprotect(p + 4096, 4096, mmap.PROT_READ))
e = ok(libc.shmget(0, 4096, 0o1600)); x = attach(e); ok(libc.mprotect(x, 4096, 7)); put(x, b"may run")
b = ok(libc.shmget(0x4202, 4096, 0o1600)); g = attach(b); put(g, b"goes with its last"); ok(libc.shmctl(b, RMID, None))
c = ok(libc.shmget(0x4203, 1 << 20, 0o1600)); z = attach(c); put(z + 700000, b"of nobody"); ok(libc.shmdt(z))
h = ok(libc.shmget(0, 1 << 30, 0o1600)) # nearly all of it is a hole
gone = ok(libc.shmget(0, 4096, 0o1600)); n = ok(libc.shmget(0, 4096, 0o1600)); ok(libc.shmctl(gone, RMID, None))
r, w = os.pipe()
def serve(): os.read(r, 1); put(p + 100, b"from the child"); os._exit(0)
pid = child(after=serve)
ids = a, b, c, e, h, n
was = rows("shm", *ids), attachments(), ask(libc.shmctl, b).raw[18:22]
gate()
now = rows("shm", *ids), attachments(), ask(libc.shmctl, b).raw[18:22]
if now != was: print(was, now)
os.write(w, b"x"); os.waitpid(pid, 0)
print(ctypes.string_at(q, 5), ctypes.string_at(q + 9995, 5), ctypes.string_at(q + 100, 14), ctypes.string_at(x, 7), ctypes.string_at(g))
put(p + 20, b"written"); print(ctypes.string_at(q + 20), libc.shmget(0x4201, 1, 0) == a, libc.shmget(0x4202, 1, 0))
z = attach(c); print(ctypes.string_at(z + 700000), len(rows("shm", b)), libc.shmdt(g), len(rows("shm", b)))
m = ok(libc.shmget(0, 4096, 0o1600)); print(m in (a, c, e, h, n), libc.shmdt(p), libc.shmdt(q), libc.shmctl(a, RMID, None), rows("shm", a))
for i in (c, e, h, n, m): libc.shmctl(i, RMID, None)
""", """b'first' b'last.' b'from the child' b'may run' b'goes with its last'
b'written' True -1
b'of nobody' 1 0 0
False 0 0 0 []""")

SEMAPHORES = ("""
s = ok(libc.semget(0x4211, 5, 0o1640)); t = ok(libc.semget(0, 2, 0o1600)); u = ok(libc.semget(0, 1, 0o1600))
for n, v in enumerate((3, 0, 32767, 1)): ok(libc.semctl(s, n, SETVAL, v))
ok(libc.semctl(u, 0, SETVAL, 7))
ok(semop(s, (0, 2), (2, -1), (2, 1)))
def changes(): ok(semop(s, (3, 4)))
c = child(changes)
e = child(after=lambda: os._exit(20 + semop(t, (0, -1), (1, -1))))
until(lambda: libc.semctl(t, 0, GETNCNT) == 1)
def look(): return [[libc.semctl(i, k, what) for k in range(n) for what in (GETVAL, GETPID)] for i, n in ((s, 5), (t, 2), (u, 1))][:2], libc.semctl(u, 0, GETVAL)
def used(): return [any(ask(libc.semctl, i, 0).raw[48:56]) for i in (s, t, u)]
was = rows("sem", s, t, u), look(), used()
gate()
now = rows("sem", s, t, u), look(), used()
if now != was: print(was, now)
until(lambda: libc.semctl(t, 0, GETNCNT) == 1)
print([libc.semctl(s, k, GETVAL) for k in range(5)], libc.semctl(s, 3, GETPID) == c, libc.semctl(s, 0, GETPID) == os.getpid(), used(), libc.semget(0x4211, 0, 0) == s)
print(semop(t, (0, 1), (1, 1)), os.waitstatus_to_exitcode(os.waitpid(e, 0)[1]), [libc.semctl(t, k, GETVAL) for k in range(2)])
end(c)
for i in (s, t, u): libc.semctl(i, 0, RMID)
""", """[5, 0, 32767, 5, 0] True True [True, False, False] True
0 20 [0, 0]""")

MESSAGES = ("""
q = ok(libc.msgget(0x4221, 0o1640)); w = ok(libc.msgget(0, 0o1600)); f = ok(libc.msgget(0, 0o1600))
for k, text in ((3, b"three"), (1, b""), (2, b"x" * 8192), (3, b"three again"), (7, b"seven")): send(q, k, text)
ds = ask(libc.msgctl, q); struct.pack_into("l", ds, 88, 8300); ok(libc.msgctl(q, SET, ds))
while libc.msgsnd(f, struct.pack("l", 5) + b"y" * 1000, ctypes.c_size_t(1000), NOWAIT) == 0: pass
def waits(): os._exit(20 + (receive(w, 9, 0) == (9, "at last")))
e = child(after=waits)
g = child(after=lambda: os._exit(20 + libc.msgsnd(f, struct.pack("l", 6) + b"z" * 1000, ctypes.c_size_t(1000), 0)))
def blocked(p): return open(f"/proc/{p}/wchan").read() not in ("", "0") or stat(p)[0] == "S"
until(lambda: blocked(e) and blocked(g))
was = rows("msg", q, w, f), struct.unpack_from("l", ask(libc.msgctl, q), 88)
gate()
now = rows("msg", q, w, f), struct.unpack_from("l", ask(libc.msgctl, q), 88)
if now != was: print(was, now)
print(libc.msgget(0x4221, 0) == q, receive(q, 7), receive(q, 3), receive(q, 0), [x[:3] for x in (receive(q, -2)[1],)], receive(q, 0), receive(q, 0))
send(w, 8, b"not for it"); send(w, 9, b"at last"); print(os.waitstatus_to_exitcode(os.waitpid(e, 0)[1]), receive(w, 0))
n = 0
while n < 17:
    m = receive(f, 0, 0); n += 1
    if m[0] == 6: break
print(n, m[1][:3], os.waitstatus_to_exitcode(os.waitpid(g, 0)[1]), receive(f, 0))
for i in (q, w, f): libc.msgctl(i, RMID, None)
""", """True (7, 'seven') (3, 'three') (1, '') ['xxx'] (3, 'three again') No message of desired type
21 (8, 'not for it')
17 zzz 20 No message of desired type""")

# What is added when a process ends. Threads make a list of it, though they have nothing on it.
UNDOS = ("""
s = ok(libc.semget(0, 40, 0o1600)); t = ok(libc.semget(0, 1, 0o1600))
for n, v in ((0, 10), (1, 32767), (2, 0), (3, 20000), (39, 5)): ok(libc.semctl(s, n, SETVAL, v))
def work():
    ok(semop(s, (0, -3, UNDO), (1, -1, UNDO), (2, 7, UNDO), (39, 1, UNDO), (39, -1, UNDO)))
    ok(semop(s, (3, -20000, UNDO), (3, 12000)))
    ok(semop(s, (3, -12000, UNDO), (3, 32000))); ok(semop(s, (5, 32767, UNDO), (5, -32767)))
c = child(work)
def other(): ok(semop(s, (0, 2, UNDO), (38, 1, UNDO)))
e = child(other)
def threads():
    threading.Thread(target=signal.pause, daemon=True).start(); ok(libc.semctl(t, 0, SETVAL, 4)); ok(semop(t, (0, -1, UNDO)))
f = child(threads)
def look(): return {k: libc.semctl(s, k, GETVAL) for k in range(40) if libc.semctl(s, k, GETVAL)}, [libc.semctl(s, k, GETPID) for k in (0, 1, 3, 38)], libc.semctl(t, 0, GETVAL)
was = look(), [c, e]
gate()
if (look(), [c, e]) != was: print(was, look())
print(look()[0], look()[2], [p == e for p in look()[1]])
end(e); print(look()[0]); ok(semop(s, (3, -32000), (5, 1))); end(c); print(look()[0]); end(f); print(look()[2])
for i in (s, t): libc.semctl(i, 0, RMID)
""", """{0: 9, 1: 32766, 2: 7, 3: 32000, 38: 1, 39: 5} 3 [True, False, False, True]
{0: 7, 1: 32766, 2: 7, 3: 32000, 39: 5}
{0: 10, 1: 32767, 3: 32000, 39: 5}
4""")

# Whose they are, and what a process has that it could not get again.
OWNERS = ("""
a = ok(libc.shmget(0x4231, 4096, 0o1600)); p = attach(a); put(p, b"root's")
s = ok(libc.semget(0x4232, 1, 0o1000)); q = ok(libc.msgget(0x4233, 0o1600)); send(q, 1, b"kept")
def gives(call, id, *more):
    ds = ask(call, id, *more); struct.pack_into("II", ds, 4, 1000, 1001); struct.pack_into("I", ds, 20, 0o604); ok(call(id, *more, SET, ds))
gives(libc.shmctl, a); gives(libc.msgctl, q)
k = ok(libc.shmget(0, 4096, 0o1600)); x = attach(k); ok(libc.shmctl(k, 11, None))
r, w = os.pipe(); rr, ww = os.pipe()
def becomes(): os.setresgid(1005, 1005, 1005); os.setresuid(1005, 1005, 1005)
def serve(): os.read(r, 1); os.write(ww, ctypes.string_at(x, 5) + b"%d" % libc.shmctl(k, STAT, ctypes.create_string_buffer(256))); os._exit(0)
c = child(becomes, serve)
was = rows("shm", a, k), rows("sem", s), rows("msg", q)
gate()
now = rows("shm", a, k), rows("sem", s), rows("msg", q)
if now != was: print(was, now)
put(x, b"still"); os.write(w, b"x"); print(os.read(rr, 99), ctypes.string_at(p), receive(q, 0), [l[2] for l in now[0]], [l[2] for l in now[2]])
os.waitpid(c, 0)
libc.shmctl(a, RMID, None); libc.shmctl(k, RMID, None); libc.semctl(s, 0, RMID); libc.msgctl(q, RMID, None)
""", """b'still-1' b"root's" (1, 'kept') ['perms=2600', 'perms=604'] ['perms=604']""")


def made(program):
    return IPC + program[0], program[1]


def test_the_source_a_fork_and_a_woken_copy_have_the_same_objects(d, clean):
    everywhere(d, [("memory", made(MEMORY)), ("semaphores", made(SEMAPHORES)), ("messages", made(MESSAGES)), ("undos", made(UNDOS))])


def test_owners_and_modes_are_as_they_were(d, clean):
    everywhere(d, [("owners", made(OWNERS))], user="root")


REFUSED = {
    "a part of an attachment": ("a = ok(libc.shmget(0, 12288, 0o1600)); p = attach(a); ok(libc.munmap(p + 4096, 4096)); ok(libc.shmctl(a, RMID, None))",
                                r"process \d+ \(.*\): has attached only a part of System V shared memory \(id \d+\)"),
}


def test_what_cannot_be_made_again_is_refused_and_runs_on(d, clean):
    b = d.create()
    for name, (text, reason) in REFUSED.items():
        x = start(d, b, IPC + text + "\ngate()\nprint('on'); sys.stdout.flush(); os._exit(0)\n")
        e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}), 422, "refused")
        assert re.search(reason, e["message"]), (name, e)
        assert tells(d, b, x) == ("on", 0, ""), name
