"""Kernel objects that are a descriptor, in checkpoints with memory: a short program for each."""
import pytest

from api import d, nothing_is_left_behind  # noqa: F401
from memory_lives import live_on, refused
from test_checkpoints_memory import clean  # noqa: F401

# The same number thrice, two of them of files that live on under others; and one file under two numbers.
EPOLL_NUMBERS = ("""
e, keep = select.epoll(), []
fresh = []
for i in range(3):
    r, w = os.pipe()
    os.dup2(r, 90); os.close(r); e.register(90, select.EPOLLIN); keep.append(os.dup(90)); fresh.append(w)
    if i < 2: os.close(90)
os.dup2(keep[2], 91); e.register(91, select.EPOLLIN | select.EPOLLPRI)
def told(): return sorted(e.poll(0))
gate()
seen = []
for i, w in enumerate(fresh):
    os.write(w, b"x"); seen.append(told())
    os.read(keep[i], 1)
print(seen, told())
os.dup2(keep[0], 90); e.unregister(90)
os.write(fresh[0], b"x"); os.write(fresh[1], b"x")
print(told(), fails(e.unregister, 90))
""", "[[(90, 1)], [(90, 1)], [(90, 1), (91, 1)]] []\n[(90, 1)] ENOENT")

EPOLL_DATA = ("""
class Event(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]
e = libc.epoll_create1(0)
r, w = os.pipe()
check(libc.epoll_ctl(e, 1, r, ctypes.byref(Event(1 | 1 << 28, 0xfedcba9876543210))))
def info(): return [l.split()[:6] for l in open(f"/proc/self/fdinfo/{e}") if l.startswith("tfd")]
fcntl.fcntl(e, fcntl.F_SETFL, os.O_NONBLOCK)
was = info()
gate()
os.write(w, b"x")
got = Event()
print(libc.epoll_wait(e, ctypes.byref(got), 1, 0), hex(got.data), got.events, info() == was, os.get_blocking(e))
""", "1 0xfedcba9876543210 1 True False")

# What was told of a change is not told again, and what was told once is not armed.
EPOLL_TOLD = ("""
e = select.epoll()
pairs = [os.pipe() for _ in range(4)]
for (r, w), how in zip(pairs, (select.EPOLLET, select.EPOLLET, select.EPOLLONESHOT, select.EPOLLONESHOT)): e.register(r, select.EPOLLIN | how)
(a, aw), (b, bw), (c, cw), (f, fw) = pairs
os.write(aw, b"x"); os.write(cw, b"x")
first = sorted(e.poll(0)) == sorted([(a, 1), (c, 1)])
gate()
print(first, e.poll(0))
os.write(aw, b"y"); os.write(bw, b"y"); os.write(cw, b"y"); os.write(fw, b"y")
print(sorted(e.poll(0)) == sorted([(a, 1), (b, 1), (f, 1)]), e.poll(0))
os.close(cw)
print(e.poll(0))
e.modify(c, select.EPOLLIN | select.EPOLLONESHOT)
print(e.poll(0) == [(c, 17)], e.poll(0))
""", "True []\nTrue []\n[]\nTrue []")

# What was not told yet is.
EPOLL_NEWS = ("""
e, inner = select.epoll(), select.epoll()
r, w = os.pipe(); s, v = os.pipe()
e.register(r, select.EPOLLIN | select.EPOLLET)
inner.register(s, select.EPOLLIN); e.register(inner, select.EPOLLIN)
os.write(w, b"x"); os.write(v, b"x")
gate()
print(sorted(e.poll(0)) == sorted([(r, 1), (inner.fileno(), 1)]), inner.poll(0) == [(s, 1)])
os.read(s, 1)
print(e.poll(0))
""", "True True\n[]")

# Two processes with one epoll, one of whose files only the other has.
EPOLL_SHARED = ("""
e = select.epoll()
r, w = os.pipe(); s, v = os.pipe()
e.register(r, select.EPOLLIN)
def mine():
    os.close(r); e.register(s, select.EPOLLIN)
p = child(mine, lambda: (os.write(v, b"x"), signal.pause()) if os.read(q[0], 1) else 0) if (q := os.pipe()) else 0
os.close(s); os.close(v)
gate()
os.write(w, b"x")
mine = e.poll(0) == [(r, 1)]
os.write(q[1], b"x")
os.read(r, 1)
print(mine, e.poll(30) == [(s, 1)], e.poll(0) == [(s, 1)])
end(p)
""", "True True True")

# A stop ends epoll_wait() with EINTR, which Python would not show.
EPOLL_WAITS = ("""
e, (r, w), (told, tell) = select.epoll(), os.pipe(), os.pipe()
e.register(r, select.EPOLLIN)
def waits(call, *more):
    def work():
        n = getattr(libc, call)(e.fileno(), room, 1, *more)
        os.write(tell, b"%s %d %d;" % (call.encode(), n, ctypes.get_errno() if n < 0 else 0))
    return work
room = ctypes.create_string_buffer(12)
all = [asleep(child(after=waits("epoll_wait", -1))), asleep(child(after=waits("epoll_pwait", -1, None)))]
gate()
os.write(w, b"x")
for p in all: os.waitpid(p, 0)
print(sorted(os.read(told, 99).split(b";")))
""", "[b'', b'epoll_pwait 1 0', b'epoll_wait 1 0']")

EPOLL_PIDFD = ("""
p = child()
f = os.pidfd_open(p)
e = select.epoll(); e.register(f, select.EPOLLIN)
gate()
alive = e.poll(0)
os.kill(p, 9)
print(alive, e.poll(30) == [(f, 1)], os.waitid(os.P_PIDFD, f, os.WEXITED).si_pid == p)
""", "[] True True")

# Signals when it can be read: who gets which, by group, process and thread.
OWNERS = ("""
sigs = [signal.SIGRTMIN + i for i in range(1, 4)]
signal.pthread_sigmask(signal.SIG_BLOCK, [*sigs, signal.SIGIO])
pipes = [os.pipe() for _ in sigs]
for (r, w), sig, (kind, pid) in zip(pipes, sigs, ((1, os.getpid()), (2, os.getpgrp()), (0, threading.get_native_id()))):
    fcntl.fcntl(r, 15, struct.pack("ii", kind, pid)); fcntl.fcntl(r, fcntl.F_SETSIG, sig)
    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
def own(r): return struct.unpack("ii", fcntl.fcntl(r, 16, bytes(8)))[0], fcntl.fcntl(r, fcntl.F_GETSIG), bool(fcntl.fcntl(r, fcntl.F_GETFL) & os.O_ASYNC)
gate()
print([own(r)[0] for r, w in pipes], [own(r)[1] - signal.SIGRTMIN for r, w in pipes], [own(r)[2] for r, w in pipes])
for r, w in pipes: os.write(w, b"x")
got = sorted([signal.sigtimedwait(sigs, 30) for _ in sigs], key=lambda g: g.si_signo)
print([g.si_signo - signal.SIGRTMIN for g in got], [g.si_band & 1 for g in got])
""", "[1, 2, 0] [1, 2, 3] [True, True, True]\n[1, 2, 3] [1, 1, 1]")

# Numbers and masks of watches, also where one is missing; nobody is told of what restoring does.
INOTIFY = ("""
os.makedirs("d/deep"); open("d/f", "w").close(); held = open("d/f"); os.link("d/f", "other")
i = libc.inotify_init1(os.O_NONBLOCK)
def watch(path, mask): return check(libc.inotify_add_watch(i, path, mask))
a, gone, b, c = watch(b"d", 0xfff), watch(b"d/deep", 2), watch(b"d/f", 0x4 | 0x80000000), watch(b"/dev/shm", 0x100)
libc.inotify_rm_watch(i, gone)
def news():
    out = []
    with contextlib.suppress(BlockingIOError):
        data = os.read(i, 65536)
        while data:
            wd, mask, _, n = struct.unpack("iIII", data[:16]); out.append((wd, hex(mask), data[16:16 + n].rstrip(b"\\0").decode())); data = data[16 + n:]
    return out
news()
gate()
first = news()
open("d/new", "w").close(); os.chmod("other", 0o600); open("/dev/shm/made", "w").close()
print(first, (a, b, c), news())
os.chmod("other", 0o644); print(news(), watch(b"d/deep", 2) > c)
""", "[] (1, 3, 4) [(1, '0x100', 'new'), (1, '0x20', 'new'), (1, '0x8', 'new'), (3, '0x4', ''), (3, '0x8000', ''), (4, '0x100', 'made')]\n[] True")

TIMER_DAY = ("""
t = libc.timerfd_create(0, 0)
check(libc.timerfd_settime(t, 3, struct.pack("4q", 7, 0, int(time.time()) + 100_000, 0), None))
def info(): return [l.split(":", 1)[1].strip() for l in open(f"/proc/self/fdinfo/{t}") if l.startswith(("clockid", "settime", "it_interval"))]
was = info()
gate()
left = ctypes.create_string_buffer(32); libc.timerfd_gettime(t, left)
print(info() == was, was[1], 90_000 < struct.unpack("4q", left)[2] <= 100_000)
""", "True 03 True")

INOTIFY_MANY = ("""
i = libc.inotify_init1(os.O_NONBLOCK)
for n in range(64): os.mkdir(f"d{n}"); check(libc.inotify_add_watch(i, b"d%d" % n, 0x100))
gate()
os.mkdir("d33/new")
print(len([l for l in open(f"/proc/self/fdinfo/{i}") if l.startswith("inotify")]), struct.unpack("iI", os.read(i, 99)[:8]))
""", "64 (34, 1073742080)")

GROUPS = {
    "timers": {"day": TIMER_DAY},
    "inotify": {"inotify": INOTIFY, "many": INOTIFY_MANY},
    "epoll": {"numbers": EPOLL_NUMBERS, "data": EPOLL_DATA, "told": EPOLL_TOLD, "news": EPOLL_NEWS, "shared": EPOLL_SHARED, "pidfd": EPOLL_PIDFD, "waits": EPOLL_WAITS},
    "signals": {"owners": OWNERS},
}


@pytest.mark.parametrize("group", GROUPS)
def test_descriptors_are_as_they_were(d, clean, group):
    live_on(d, GROUPS[group])


REFUSED = {
    "unread news": ("i = libc.inotify_init(); libc.inotify_add_watch(i, b'.', 0x100); open('new', 'w').close()", "has unread inotify events"),
    "not armed": ("""
e = select.epoll(); r, w = os.pipe(); e.register(r, select.EPOLLIN | select.EPOLLONESHOT)
os.write(w, b"x"); assert e.poll(0); os.read(r, 1)
""", "waits .epoll, once. for descriptor"),
    "open nowhere": ("""
e = select.epoll(); r, w = os.pipe(); e.register(r, select.EPOLLIN)
a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [r]); os.close(r)
""", "waits .epoll. for descriptor|descriptors on their way"),
    "a file of /proc": ("f = open('/proc/self/status'); p = child()", "a file of /proc that another process also has open"),
}


def test_what_descriptors_can_not_carry_is_refused(d, clean):
    b = d.create()
    for text, reason in REFUSED.values():
        refused(d, text, reason, b)
