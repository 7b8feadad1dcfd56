"""A small program for each kernel object: it sets it up, is checkpointed, and goes on in two copies; the source and both
tell the same of it. What cannot be carried is refused, with the process and the reason, and the source runs on."""
import platform
import re

import pytest

from api import d, error, eventually, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints_memory import clean  # noqa: F401

# Whatever a program prints is what it tells: `gate` stands between setting up and looking.
PRELUDE = """
import ctypes, fcntl, mmap, os, pty, resource, select, signal, socket, struct, sys, termios, threading, time, tty
libc = ctypes.CDLL(None, use_errno=True)
def gate():
    print("ready"); sys.stdin.readline()
def child(work=lambda: None, after=signal.pause):
    "A process that has done `work` when this returns, and then does `after`."
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        work(); os.write(w, b"x"); os.close(r); os.close(w)
        after(); os._exit(0)
    os.close(w); assert os.read(r, 1) == b"x"; os.close(r)
    return pid
def end(*pids):
    for p in pids:
        os.kill(p, 9); os.waitpid(p, 0)
def fails(fn, *args):
    try:
        return fn(*args)
    except OSError as e:
        return e.__class__.__name__
def takes(fd, n):
    "Just so many bytes: a terminal may give them in pieces."
    got = b""
    while len(got) < n: got += os.read(fd, n - len(got)) or b"(end)"
    return got
def counts_down(left):
    a = left(); time.sleep(0.01); b = left()
    return 900 < b < a < 1000
"""

TREE = ("""
r, w = os.pipe()
def leader():
    os.setsid()
    if not os.fork():
        os.setpgid(0, 0); os.write(w, b"%d" % os.getpid()); signal.pause()
a = child(leader)
b = int(os.read(r, 9))
c = child(lambda: os.setpgid(0, 0))
def parent(p): return int(open(f"/proc/{p}/stat").read().split()[3])
me = os.getpid()
gate()
print([os.getsid(a) == a, os.getsid(b) == a, os.getsid(c) == os.getsid(me) == me, os.getpgid(a) == a, os.getpgid(b) == b, os.getpgid(c) == c,
       parent(a) == me, parent(b) == a, parent(c) == me, me == os.getpid()].count(True), "of 10")
os.kill(b, 9); end(a, c)
""", "10 of 10")

ORPHAN = ("""
ask, answer = os.pipe(), os.pipe()
def left():
    while os.getppid() != 1: time.sleep(0.01)
    os.write(answer[1], b"%d" % os.getpid())
    os.read(ask[0], 1)
    os.write(answer[1], b"%d %d" % (os.getpid(), os.getppid()))
def parent():
    if not os.fork():
        left(); os._exit(0)
os.waitpid(child(parent, lambda: None), 0)
pid = os.read(answer[0], 9).decode()
gate()
os.write(ask[1], b"x")
got, ppid = os.read(answer[0], 20).decode().split()
print("same", got == pid, "parent", ppid, fails(os.waitpid, int(pid), 0))
""", "same True parent 1 ChildProcessError")

ZOMBIE = ("""
a, b = child(after=lambda: os._exit(7)), child()
os.kill(b, signal.SIGTERM)
for p in (a, b): os.waitid(os.P_PID, p, os.WEXITED | os.WNOWAIT)
gate()
print([open(f"/proc/{p}/stat").read().split()[2] for p in (a, b)], os.WEXITSTATUS(os.waitpid(a, 0)[1]), os.WTERMSIG(os.waitpid(b, 0)[1]))
""", "['Z', 'Z'] 7 15")

STOPPED = ("""
p, q = child(), child()
for x in (p, q): os.kill(x, signal.SIGSTOP)
assert os.WIFSTOPPED(os.waitpid(p, os.WUNTRACED)[1]) and os.waitid(os.P_PID, q, os.WSTOPPED | os.WNOWAIT)
gate()
news = os.WSTOPSIG(os.waitpid(q, os.WUNTRACED)[1])
told = os.waitpid(p, os.WUNTRACED | os.WNOHANG)
state = open(f"/proc/{p}/stat").read().split()[2]
os.kill(p, signal.SIGCONT)
print(state, told, os.WIFCONTINUED(os.waitpid(p, os.WCONTINUED)[1]), news)
end(p, q)
""", "T (0, 0) True 19")

THREADS = ("""
go, here, said = threading.Event(), threading.Barrier(4), {}
own = threading.local()
def run(n):
    own.value, tid = n * 111, threading.get_native_id()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + n])
    here.wait(); go.wait()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    said[n] = own.value, tid == threading.get_native_id(), [s - signal.SIGRTMIN for s in mask if s >= signal.SIGRTMIN]
all = [threading.Thread(target=run, args=(n,)) for n in range(1, 4)]
for t in all: t.start()
here.wait()
gate()
n = len(os.listdir("/proc/self/task"))
go.set()
for t in all: t.join()
print(n, sorted(said.items()))
""", "4 [(1, (111, True, [1])), (2, (222, True, [2])), (3, (333, True, [3]))]")

PIPE = ("""
r, w = os.pipe2(os.O_NONBLOCK)
fcntl.fcntl(w, 1031, 1 << 17)
data = bytes(range(256)) * 300
os.write(w, data)
gate()
waiting = struct.unpack("i", fcntl.ioctl(r, termios.FIONREAD, bytes(4)))[0]
print(fcntl.fcntl(r, 1032), waiting, os.read(r, 1 << 20) == data, fails(os.read, r, 1))
""", "131072 76800 True BlockingIOError")

FIFO = ("""
os.mkfifo("fifo", 0o640)
r = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
w = os.open("fifo", os.O_WRONLY)
os.write(w, b"queued")
gate()
with open("fifo", "wb", buffering=0) as other:
    other.write(b", by name")
print(os.read(r, 99), fails(os.read, r, 1), oct(os.stat("fifo").st_mode))
os.close(w)
print(os.read(r, 1))
""", "b'queued, by name' BlockingIOError 0o10640\nb''")

STREAM = ("""
a, b = socket.socketpair()
a.sendall(b"to b" * 5000); b.sendall(b"to a")
b.shutdown(socket.SHUT_WR)
gate()
left = b""
while len(left) < 20000: left += b.recv(20000)
a.send(b"!")
print(left == b"to b" * 5000, a.recv(99), a.recv(99), b.recv(99), fails(b.send, b"x"))
""", "True b'to a' b'' b'!' BrokenPipeError")

DGRAM = ("""
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.setblocking(False)
gate()
a.send(b"one"); a.send(b""); a.send(b"three"); b.send(b"back")
print(b.recv(99), b.recv(99), b.recv(99), a.recv(99), fails(a.recv, 1))
""", "b'one' b'' b'three' b'back' BlockingIOError")

SEQPACKET = ("""
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
a.send(b"a message")
gate()
a.send(b"another")
print(b.recv(99), b.recv(99))
""", "b'a message' b'another'")

EVENTFD = ("""
a = os.eventfd(5, os.EFD_NONBLOCK)
gate()
os.eventfd_write(a, 2)
print(os.eventfd_read(a), fails(os.eventfd_read, a))
""", "7 BlockingIOError")

SEMAPHORE = ("""
a = os.eventfd(2, os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
gate()
print(os.eventfd_read(a), os.eventfd_read(a), fails(os.eventfd_read, a))
""", "1 1 BlockingIOError")

EPOLL_LEVEL = ("""
full, empty = os.pipe(), os.pipe()
os.write(full[1], b"x")
e = select.epoll()
for p in (full, empty): e.register(p[0], select.EPOLLIN)
gate()
first, second = e.poll(0), e.poll(0)
os.read(full[0], 1); os.write(empty[1], b"x")
print(first == second == [(full[0], select.EPOLLIN)], e.poll(0) == [(empty[0], select.EPOLLIN)])
""", "True True")

EPOLL_EDGE = ("""
p, once = os.pipe(), os.pipe()
e = select.epoll()
e.register(p[0], select.EPOLLIN | select.EPOLLET)
e.register(once[0], select.EPOLLIN | select.EPOLLONESHOT)
os.write(p[1], b"x"); os.write(once[1], b"x")
assert len(e.poll(0)) == 2
os.read(p[0], 1)
gate()
quiet = e.poll(0)
os.write(p[1], b"x")
edge = e.poll(0) == [(p[0], select.EPOLLIN)]
print(quiet, edge, e.poll(0))
e.modify(once[0], select.EPOLLIN | select.EPOLLONESHOT)
print(e.poll(0) == [(once[0], select.EPOLLIN)], e.poll(0))
""", "[] True []\nTrue []")

TIMERFD = ("""
def make(clock, *spec):
    fd = libc.timerfd_create(clock, os.O_NONBLOCK)
    assert fd >= 0 and libc.timerfd_settime(fd, 0, struct.pack("4q", *spec), None) == 0
    return fd
def get(fd):
    spec = ctypes.create_string_buffer(32)
    assert libc.timerfd_gettime(fd, spec) == 0
    return struct.unpack("4q", spec)
armed, over, off, again = make(1, 7, 500, 1000, 0), make(0, 0, 0, 0, 1), make(1, 0, 0, 0, 0), make(1, 0, 20000000, 0, 1)
for fd in (over, again): select.select([fd], [], [])
gate()
print(counts_down(lambda: get(armed)[2] + get(armed)[3] / 1e9), get(armed)[:2], fails(os.read, armed, 8))
print(os.read(over, 8)[0], fails(os.read, over, 8), get(off))
print([select.select([again], [], [], 10)[0] == [again] and len(os.read(again, 8)) for _ in range(3)])
""", "True (7, 500) BlockingIOError\n1 BlockingIOError (0, 0, 0, 0)\n[8, 8, 8]")

SIGNALFD = ("""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
s = libc.signalfd(-1, struct.pack("Q", 1 << signal.SIGUSR1 - 1 | 1 << signal.SIGUSR2 - 1), os.O_NONBLOCK)
assert s >= 0
os.kill(os.getpid(), signal.SIGUSR1)
gate()
def taken():
    m = os.read(s, 128)
    return struct.unpack("I", m[:4])[0], struct.unpack("I", m[12:16])[0] == os.getpid()
first = taken()
os.kill(os.getpid(), signal.SIGUSR2)
print(first, taken(), fails(os.read, s, 128))
""", "(10, True) (12, True) BlockingIOError")

PTY = ("""
m, s = os.openpty()
tty.setraw(s)
a = termios.tcgetattr(s)
a[3] |= termios.ECHO; a[6][termios.VMIN] = 3
termios.tcsetattr(s, termios.TCSANOW, a)
fcntl.ioctl(s, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
before, name = termios.tcgetattr(s), os.ttyname(s)
gate()
print(before == termios.tcgetattr(s), name == os.ttyname(s), struct.unpack("4H", fcntl.ioctl(m, termios.TIOCGWINSZ, bytes(8)))[:2])
os.write(m, b"abc"); read = takes(s, 3)
os.write(s, b"out\\n")
print(read, takes(m, 7))
""", "True True (33, 77)\nb'abc' b'abcout\\n'")

TERMINAL = ("""
pid, m = pty.fork()
if not pid:
    tty.setraw(0)
    os.write(1, b"here")
    os.read(0, 1)
    os.write(1, b"%s %s %s" % (*(str(x == os.getpid()).encode() for x in (os.tcgetpgrp(0), os.getsid(0))), open("/dev/tty").name.encode()))
    os.read(0, 1)
    os._exit(3)
assert takes(m, 4) == b"here"
gate()
os.write(m, b"x"); said = takes(m, 18)
os.write(m, b"x")
print(said, os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
""", "b'True True /dev/tty' 3")

FILES = ("""
f = os.open("appended", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
g = os.open("appended", os.O_RDONLY)
os.write(f, b"0123456789"); os.lseek(f, 4, 0); os.lseek(g, 8, 0)
gate()
flags = fcntl.fcntl(f, fcntl.F_GETFL)
print(bool(flags & os.O_APPEND), flags & os.O_ACCMODE == os.O_RDWR, os.read(f, 2), os.read(g, 9), os.write(f, b"end"), os.lseek(f, 0, 1), open("appended").read())
print(fails(os.write, g, b"x"), os.get_inheritable(f))
""", "True True b'45' b'89' 3 13 0123456789end\nOSError False")

UNLINKED = ("""
f = os.open("unlinked", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"0123456789" * 1000); os.lseek(f, 5005, 0)
os.unlink("unlinked")
gate()
print(os.fstat(f).st_nlink, os.fstat(f).st_size, os.lseek(f, 0, 1), os.read(f, 3), os.path.exists("unlinked"))
""", "0 10000 5005 b'567' False")

MEMFD = ("""
m = os.memfd_create("kept", os.MFD_ALLOW_SEALING)
os.write(m, b"0123456789" * 1000); os.lseek(m, 5005, 0)
fcntl.fcntl(m, 1033, 2 | 4)
gate()
print(fcntl.fcntl(m, 1034), os.lseek(m, 0, 1), os.read(m, 3), os.fstat(m).st_size, fails(os.truncate, m, 1), os.readlink(f"/proc/self/fd/{m}"))
""", "6 5005 b'567' 10000 PermissionError /memfd:kept (deleted)")

SHARED = ("""
m = mmap.mmap(-1, 8192)
ask, answer = os.pipe(), os.pipe()
def add():
    for _ in range(2):
        os.read(ask[0], 1); m[5000] += 1; os.write(answer[1], b"x")
m[5000] = 40
p = child(after=add)
os.write(ask[1], b"x"); os.read(answer[0], 1)
m[0] = 7
gate()
before = m[0], m[5000]
os.write(ask[1], b"x"); os.read(answer[0], 1)
print(before, m[5000], os.waitpid(p, 0)[1])
""", "(7, 41) 42 0")

MAPPED = ("""
f = os.open("mapped", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"-" * 8192)
both, own = mmap.mmap(f, 8192), mmap.mmap(f, 8192, mmap.MAP_PRIVATE)
own[5000:5003] = b"own"; both[0:4] = b"both"
gate()
both[4096:4099] = b"new"
text = open("mapped").read()
print(own[5000:5003], own[0:4], text[:5], text[4096:4100], text[5000:5003])
""", "b'own' b'both' both- new- ---")

PENDING = ("""
class value(ctypes.Union): _fields_ = [("n", ctypes.c_int), ("p", ctypes.c_void_p)]
rt = signal.SIGRTMIN + 1
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, rt])
os.kill(os.getpid(), signal.SIGUSR1)
for n in (11, 22): assert libc.sigqueue(os.getpid(), rt, value(n)) == 0
gate()
print(sorted(int(s) for s in signal.sigpending()) == sorted([signal.SIGUSR1, rt]))
def taken():
    info = ctypes.create_string_buffer(128)
    got = libc.sigtimedwait(struct.pack("16Q", 1 << signal.SIGUSR1 - 1 | 1 << rt - 1, *[0] * 15), info, bytes(16))
    return got if got < 0 else (got, struct.unpack("i", info.raw[24:28])[0] if got == rt else struct.unpack("i", info.raw[16:20])[0] == os.getpid())
print(taken(), taken(), taken(), taken())
""", "True\n(10, True) (35, 11) (35, 22) -1")

HANDLERS = ("""
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append("called"))
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.siginterrupt(signal.SIGHUP, False)
p = child(lambda: signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGTERM]))
gate()
os.kill(os.getpid(), signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR2)
print(got, signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN, [l.split()[1] for l in open(f"/proc/{p}/status") if l.startswith("SigBlk")])
end(p)
""", "['called'] True ['0000000000004000']")

ITIMER = ("""
signal.setitimer(signal.ITIMER_REAL, 1000, 7)
gate()
print(counts_down(lambda: signal.getitimer(signal.ITIMER_REAL)[0]), signal.getitimer(signal.ITIMER_REAL)[1])
""", "True 7.0")

# Its signal is pending when it is looked at: the kernel sets it again only when that is taken.
TICKS = ("""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
while not signal.sigpending(): time.sleep(0.01)
gate()
print([signal.sigwait([signal.SIGALRM]) == signal.SIGALRM for _ in range(4)], signal.getitimer(signal.ITIMER_REAL)[1])
""", "[True, True, True, True] 0.02")

POSIX_TIMER = ("""
rt = signal.SIGRTMIN + 2
signal.pthread_sigmask(signal.SIG_BLOCK, [rt])
timers = []
for n in range(2):
    timers.append(ctypes.c_void_p())
    assert libc.timer_create(1, struct.pack("Qii48x", 70 + n, rt, 0), ctypes.byref(timers[n])) == 0
assert libc.timer_settime(timers[1], 0, struct.pack("4q", 7, 500, 1000, 0), None) == 0
def get(t):
    spec = ctypes.create_string_buffer(32)
    assert libc.timer_gettime(t, spec) == 0
    return struct.unpack("4q", spec)
gate()
print(get(timers[0]), counts_down(lambda: get(timers[1])[2] + get(timers[1])[3] / 1e9), get(timers[1])[:2])
assert libc.timer_settime(timers[0], 0, struct.pack("4q", 0, 0, 0, 1000), None) == 0
info = ctypes.create_string_buffer(128)
print(libc.sigwaitinfo(struct.pack("16Q", 1 << rt - 1, *[0] * 15), info) == rt, struct.unpack("i", info.raw[24:28])[0])
""", "(0, 0, 0, 0) True (7, 500)\nTrue 70")

FUTEX = ("""
m, a, got = ctypes.create_string_buffer(64), ctypes.create_string_buffer(16), []
libc.pthread_mutexattr_init(a); libc.pthread_mutexattr_settype(a, 2)
assert libc.pthread_mutex_init(m, a) == 0 and libc.pthread_mutex_lock(m) == 0
def wait():
    got.append(libc.pthread_mutex_lock(m)); got.append(libc.pthread_mutex_unlock(m))
t = threading.Thread(target=wait)
t.start()
while open(f"/proc/self/task/{t.native_id}/stat").read().split()[2] != "S": time.sleep(0.01)
time.sleep(0.1)
gate()
held = list(got)
twice = libc.pthread_mutex_lock(m)
print(held, twice, libc.pthread_mutex_unlock(m))
t.join()
print(got, libc.pthread_mutex_trylock(m))
""", "[] 35 0\n[0, 0] 0")

ROBUST = ("""
m, a = mmap.mmap(-1, 4096), ctypes.create_string_buffer(16)
lock = (ctypes.c_char * 64).from_buffer(m)
libc.pthread_mutexattr_init(a); libc.pthread_mutexattr_setpshared(a, 1); libc.pthread_mutexattr_setrobust(a, 1)
assert libc.pthread_mutex_init(lock, a) == 0
p = child(lambda: libc.pthread_mutex_lock(lock))
gate()
busy = libc.pthread_mutex_trylock(lock)
end(p)
print(busy, libc.pthread_mutex_lock(lock))
""", "16 130")

PIDFD = ("""
p = child()
f = os.pidfd_open(p)
gate()
alive = select.select([f], [], [], 0)[0]
signal.pidfd_send_signal(f, signal.SIGTERM)
over = select.select([f], [], [], 10)[0] == [f]
info = os.waitid(os.P_PIDFD, f, os.WEXITED)
print(alive, over, info.si_pid == p, info.si_status)
""", "[] True True 15")

FOLDER = ("""
os.makedirs("deep/er/still"); os.chdir("deep/er/still")
f = os.open("..", os.O_RDONLY | os.O_DIRECTORY)
where = os.getcwd()
gate()
open("here", "w").write("x")
print(os.getcwd() == where, where.endswith("deep/er/still"), os.listdir(f), os.listdir(where))
""", "True True ['still'] ['here']")

LIMITS = ("""
os.umask(0o027); os.setpriority(os.PRIO_PROCESS, 0, 5)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200)); resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 22))
libc.prctl(15, b"another name")
gate()
limits = [resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)]
print(oct(os.umask(0)), os.nice(0), limits, open("/proc/self/comm").read().strip())
""", "0o27 5 [(100, 200), (0, 0), (1048576, 4194304)] another name")

LISTENING = """
s = socket.socket(socket.%s)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(%s); s.listen(5)
where = s.getsockname()
gate()
c = socket.socket(s.family)
c.connect(where)
a, _ = s.accept()
c.sendall(b"hello"); a.shutdown(socket.SHUT_WR)
print(where == s.getsockname(), s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR), a.recv(99), c.recv(99))
"""
LISTENED = "True 1 1 b'hello' b''"

SERVER = ("""
s = socket.socket(socket.AF_UNIX)
s.bind(os.path.abspath("private")); os.chmod("private", 0o600); s.listen(5); s.setblocking(False)
t = socket.socket(socket.AF_UNIX)
t.bind(os.path.abspath("hidden")); os.unlink("hidden"); t.listen(5)
gate()
print(fails(s.accept), os.get_blocking(s.fileno()), os.get_blocking(t.fileno()), oct(os.stat("private").st_mode), os.path.exists("hidden"))
""", "BlockingIOError False True 0o140600 False")

UDP = ("""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
where = s.getsockname()
gate()
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
c.sendto(b"hello", where)
print(where == s.getsockname(), s.recv(99))
""", "True b'hello'")

DUPLICATES = ("""
f = os.open("twice", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"0123456789")
g, h = os.dup(f), os.open("twice", os.O_RDONLY)
os.dup2(f, 77)
ask, answer = os.pipe(), os.pipe()
def move():
    os.read(ask[0], 1); os.lseek(77, 6, 0); os.write(answer[1], b"x")
p = child(after=move)
os.lseek(g, 3, 0)
gate()
before = [os.lseek(x, 0, 1) for x in (f, g, 77, h)]
os.write(ask[1], b"x"); os.read(answer[0], 1)
print(before, [os.lseek(x, 0, 1) for x in (f, g, 77, h)], os.get_inheritable(77), os.get_inheritable(g), os.waitpid(p, 0)[1])
""", "[3, 3, 3, 0] [6, 6, 6, 0] True False 0")

# What one has open, and could not open: as git makes its files.
MODES = ("""
f = os.open('only-read', os.O_CREAT | os.O_RDWR, 0o444); os.write(f, b'ab')
g = open('nothing', 'w+'); g.write('c'); g.flush(); os.chmod('nothing', 0)
m = mmap.mmap(f, 2)
gate()
m[0] = 65
print(os.write(f, b'd'), os.pread(f, 9, 0), g.seek(0), g.read(), [oct(os.stat(x).st_mode & 0o7777) for x in ('only-read', 'nothing')])
""", "1 b'Abd' 0 c ['0o444', '0o0']")

OPTIONS = ("""
a, b = socket.socketpair()
a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300000)); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 7, 0))
b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
gate()
def waits(s): return [struct.unpack("ll", s.getsockopt(socket.SOL_SOCKET, o, 16)) for o in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)]
print(waits(a), waits(b), a.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED), fails(a.recv, 1))
a.send(b"x"); print(struct.unpack("iii", b.recvmsg(1, 100)[1][0][2])[0] == os.getpid())
""", "[(0, 300000), (7, 0)] [(0, 0), (0, 0)] 0 BlockingIOError\nTrue")

# membarrier(): who is not registered is refused, and runtimes that are do not expect that.
BARRIER = ("""
def calls(*cmds): return [libc.syscall(%d, c, 0, 0) for c in cmds]
p = child()
assert calls(16, 64) == [0, 0]
gate()
print(calls(8, 32, 128)); end(p)
""" % (324 if platform.machine() == "x86_64" else 283), "[0, 0, -1]")

# What generators of random numbers know a fork by; also where it can only be read, and where it is long.
WIPED = ("""
libc.mmap.restype = ctypes.c_void_p
def memory(n, prot, advice):
    at = libc.mmap(None, n * 4096, 3, 0x22, -1, 0)
    ctypes.memset(at, 7, n * 4096)
    assert libc.madvise(ctypes.c_void_p(at), n * 4096, advice) == 0 and libc.mprotect(ctypes.c_void_p(at), n * 4096, prot) == 0
    return at, n
all = [memory(n, prot, 18) for n in (1, 300) for prot in (1, 3)]
kept = memory(2, 3, 10)
def look(): return [{x for i in range(n) for x in ctypes.string_at(at + i * 4096, 1)} for at, n in all]
gate()
r, w = os.pipe()
if not os.fork(): os.write(w, repr(look()).encode()); ctypes.string_at(kept[0], 1)
print(look(), os.read(r, 999).decode(), os.wait()[1])
""", "[{7}, {7}, {7}, {7}] [{0}, {0}, {0}, {0}] 11")

GROUPS = {
    "processes": {"tree": TREE, "orphan": ORPHAN, "zombie": ZOMBIE, "stopped": STOPPED, "threads": THREADS, "futex": FUTEX, "robust": ROBUST,
                  "pidfd": PIDFD, "folder": FOLDER, "limits": LIMITS, "shared": SHARED, "wiped": WIPED, "barrier": BARRIER},
    "streams": {"pipe": PIPE, "fifo": FIFO, "stream": STREAM, "options": OPTIONS, "dgram": DGRAM, "seqpacket": SEQPACKET, "pty": PTY, "terminal": TERMINAL, "udp": UDP,
                "unix": (LISTENING % ("AF_UNIX", "os.path.abspath('socket')"), LISTENED), "abstract": (LISTENING % ("AF_UNIX", "'\\0name'"), LISTENED),
                "tcp": (LISTENING % ("AF_INET", "('127.0.0.1', 0)"), LISTENED),
                "server": SERVER},
    "files": {"files": FILES, "modes": MODES, "unlinked": UNLINKED, "memfd": MEMFD, "mapped": MAPPED, "duplicates": DUPLICATES, "eventfd": EVENTFD,
              "semaphore": SEMAPHORE},
    "events": {"epoll-level": EPOLL_LEVEL, "epoll-edge": EPOLL_EDGE, "timerfd": TIMERFD, "signalfd": SIGNALFD, "pending": PENDING,
               "handlers": HANDLERS, "itimer": ITIMER, "ticks": TICKS, "posix-timer": POSIX_TIMER},
}


def start(d, box, text):
    r = d.post(f"/v1/sandboxes/{box['id']}/execs", {"cmd": ["python3", "-u", "-c", PRELUDE + text], "background": True, "stdin_open": True})
    assert r.status == 201, r
    x = r.json["id"]
    eventually(lambda: said(d, box, x) == "ready\n", 20)
    return x


def said(d, box, x, stream="stdout"):
    r = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output?stream={stream}")
    assert r.status == 200, r
    return r.body.decode()


def tells(d, box, x):
    """Lets it go on: what it says until it ends, and by what it ended."""
    assert d.post(f"/v1/sandboxes/{box['id']}/execs/{x}/stdin", b"\n").status in (200, 204)
    end = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/wait?timeout=20").json
    return said(d, box, x).removeprefix("ready\n").strip(), end.get("exit_code"), said(d, box, x, "stderr")


@pytest.mark.parametrize("group", GROUPS)
def test_the_source_and_two_copies_tell_the_same(d, clean, group):
    programs = list(GROUPS[group].items())
    b = d.create()
    xs = parallel(len(programs), lambda i: start(d, b, programs[i][1][0]))
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"] is True, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore", {"count": 2})
    assert r.status == 201 and len(r.json["sandboxes"]) == 2, r
    boxes = [b, *r.json["sandboxes"]]
    for copy in boxes[1:]:
        assert copy["restored"]["memory"] is True and len(copy["restored"]["execs"]) == len(programs), copy
    found = parallel(len(boxes), lambda i: [tells(d, boxes[i], x) for x in xs])
    told = {name: [f[i] for f in found] for i, (name, _) in enumerate(programs)}
    assert told == {name: [(want, 0, "")] * 3 for name, (_, want) in programs}


REFUSED = {
    "packets in a pipe": ("r, w = os.pipe2(os.O_DIRECT)", "a pipe in packet mode"),
    "cpu timer": ("t = ctypes.c_void_p(); assert libc.timer_create(2, None, ctypes.byref(t)) == 0", "timer of a kind"),
}


LEFT_BEHIND = {
    "f = open('/root/secret', 'w'); os.chmod('/root/secret', 0o600)": "has /root/secret open, which it cannot open again",
    "os.makedirs('/root/d/e'); os.chmod('/root/d', 0o700); f = open('/root/d/e/open', 'w'); os.chmod('/root/d/e/open', 0o666)": "has /root/d/e/open open, which",
    "os.makedirs('/root/d/e', exist_ok=True); os.chmod('/root/d', 0o700); os.chdir('/root/d/e')": "cannot reach its working folder again",
    "os.mkfifo('/srv/f', 0o600); f = os.open('/srv/f', os.O_RDWR)": "has /srv/f open, which it cannot open again",
    "s = socket.socket(socket.AF_UNIX); s.bind('/srv/s'); s.listen()": "the unix socket /srv/s, which it cannot recreate",
}


def test_what_one_has_from_when_he_was_root(d, clean):
    """A file or folder that could not be opened again is refused, but not the working folder (su)."""
    b = d.create(user="root")
    drop = "; os.setgroups([]); os.setgid(1000); os.setuid(1000)\ngate()\nprint(os.getuid(), os.getcwd())\n"
    for text, reason in LEFT_BEHIND.items():
        x = start(d, b, text + drop)
        e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}), 422, "refused")
        assert f"python3): {reason}" in e["message"].replace("has the", "the"), e
        assert tells(d, b, x)[1] == 0
    x = start(d, b, "os.chmod('/root', 0o700); os.chdir('/root')" + drop)
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore")
    assert r.status == 201, r
    assert tells(d, r.json["sandboxes"][0], x) == ("1000 /root", 0, "")


def test_what_can_not_be_carried_is_refused_and_runs_on(d, clean):
    b = d.create()
    for name, (text, reason) in REFUSED.items():
        x = start(d, b, text + "\ngate()\nprint('on')\n")
        e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}), 422, "refused")
        assert re.search(rf"process \d+ \(python3\).*({reason})", e["message"]), (name, e)
        assert tells(d, b, x) == ("on", 0, ""), name
    assert d.get("/v1/checkpoints").json["checkpoints"] == []
