"""Kernel objects that few programs have, in memory checkpoints: a short program for each. The source, a copy, a fork and a woken sandbox
tell the same of it."""
import pytest

from api import d, nothing_is_left_behind  # noqa: F401
from memory_lives import live_on
from test_checkpoints_memory import clean  # noqa: F401

# One table of descriptors, and one of folders, for two processes: what one changes the other sees. A third has copies.
SHARED_TABLES = ("""
def clone(flags, work):
    p = libc.syscall(56 if os.uname().machine == "x86_64" else 220, flags | 17, 0, 0, 0, 0)
    if not p: work(); os._exit(0)
    return p
ask, told, own = os.pipe(), os.pipe(), os.pipe()
keep = os.open("/etc/passwd", os.O_RDONLY); os.lseek(keep, 7, 0)
def obey():
    while True:
        what = os.read(ask[0], 1)
        if what == b"o": os.dup2(keep, 77)
        if what == b"d": os.chdir("/usr"); os.umask(0o125)
        os.write(told[1], what)
def say(what): os.write(ask[1], what); return os.read(told[0], 1)
both = clone(0x600, obey) # CLONE_FILES | CLONE_FS
other = child()
os.chdir("/tmp"); os.umask(0o22)
gate()
print(say(b"o"), os.lseek(77, 0, 1), os.path.exists(f"/proc/{both}/fd/77"), os.path.exists(f"/proc/{other}/fd/77"))
print(say(b"d"), os.getcwd(), oct(os.umask(0)), os.readlink(f"/proc/{other}/cwd") == "/usr")
os.close(keep)
print(os.path.exists(f"/proc/{both}/fd/{keep}"), os.path.exists(f"/proc/{other}/fd/{keep}"))
print(sorted(os.listdir("/proc/self/fd"), key=int)[-2:] == sorted(os.listdir(f"/proc/{both}/fd"), key=int)[-2:])
end(both, other)
""", "b'o' 7 True False\nb'd' /usr 0o125 False\nFalse True\nTrue")

# A symbolic link itself, open; one that was removed, and one whose folder was, too.
LINKS = ("""
os.makedirs("links/in")
names = ["links/kept", "links/gone", "links/in/gone"]
for n in names: os.symlink("/no/where/" + n, n)
fds = [os.open(n, os.O_PATH | os.O_NOFOLLOW) for n in names]
os.unlink(names[1]); os.unlink(names[2]); os.rmdir("links/in")
ino = os.lstat(names[0]).st_ino == os.fstat(fds[0]).st_ino
gate()
print([os.readlink("", dir_fd=f) for f in fds], [os.fstat(f).st_nlink for f in fds], ino, os.lstat(names[0]).st_ino == os.fstat(fds[0]).st_ino)
print(os.listdir("links"), all(fcntl.fcntl(f, fcntl.F_GETFL) & os.O_NOFOLLOW for f in fds))
""", "['/no/where/links/kept', '/no/where/links/gone', '/no/where/links/in/gone'] [1, 0, 0] True True\n['kept'] True")

# Descriptors of processes that have ended and were waited for: two of one process, one of another.
ENDED = ("""
def ended(n, count):
    p = child()
    fds = [os.pidfd_open(p) for _ in range(count)]
    os.kill(p, n); os.waitpid(p, 0)
    return fds
a, b, (c,) = *ended(9, 2), ended(15, 1)
def ready(fd): return select.select([fd], [], [], 0)[0] == [fd]
def look(): return [os.fstat(a).st_ino == os.fstat(b).st_ino, os.fstat(a).st_ino == os.fstat(c).st_ino]
was = look()
gate()
print([ready(f) for f in (a, b, c)], [fails(signal.pidfd_send_signal, f, 0) for f in (a, b, c)], look() == was)
""", "[True, True, True] ['ESRCH', 'ESRCH', 'ESRCH'] True")

# A controlling terminal that no process has open; its master is.
TERMINAL = ("""
m, s = os.openpty(); number = os.fstat(s).st_rdev
def leads():
    os.setsid(); fcntl.ioctl(s, termios.TIOCSCTTY, 0); os.close(s); os.close(m)
    signal.signal(signal.SIGHUP, lambda *a: os._exit(7))
    def tell(*a):
        t = os.open("/dev/tty", os.O_RDWR); os.write(t, b"<%s>" % open("/proc/self/stat", "rb").read().split()[6])
    signal.signal(signal.SIGUSR1, tell)
def stay():
    while True: signal.pause()
p = child(leads, stay)
os.close(s)
gate()
os.kill(p, signal.SIGUSR1)
def said():
    try: return os.read(m, 99)
    except OSError: return b"" # as long as nobody has it open
got, end_at = b"", time.monotonic() + 60
while not got.endswith(b">") and time.monotonic() < end_at: got += said() or (time.sleep(0.005) or b"")
print(got.decode() == f"<{number}>")
os.close(m)
print(os.WEXITSTATUS(os.waitpid(p, 0)[1]))
""", "True\n7")

# Leases that their holders were told to give up, and have not yet. Nobody is told again; whoever wants the file still has to wait.
LEASES = ("""
sig = signal.SIGRTMIN + 5
signal.pthread_sigmask(signal.SIG_BLOCK, [sig, signal.SIGIO])
def broken(name, how, kind, by):
    open(name, "w").close()
    f = os.open(name, how)
    fcntl.fcntl(f, fcntl.F_SETSIG, sig); fcntl.fcntl(f, fcntl.F_SETLEASE, kind)
    assert fails(os.open, name, by | os.O_NONBLOCK) == "EAGAIN"
    assert signal.sigtimedwait([sig], 30).si_signo == sig
    return f
R, W, N = os.O_RDONLY, os.O_WRONLY, os.O_NONBLOCK
fds = [broken("lease-a", R, fcntl.F_RDLCK, W), broken("lease-b", W, fcntl.F_WRLCK, R), broken("lease-c", W, fcntl.F_WRLCK, W),
       broken("lease-d", R, fcntl.F_WRLCK, W)]
def told(f): return [l.split()[3:5] for l in open(f"/proc/self/fdinfo/{f}") if l.startswith("lock:")]
was = [told(f) for f in fds] # the kernel takes them away when somebody asks for the file, 45 s later
gate()
print([told(f) for f in fds] == was, was, signal.sigpending())
print([fcntl.fcntl(f, fcntl.F_GETLEASE) for f in fds] == [fcntl.F_UNLCK, fcntl.F_RDLCK, fcntl.F_UNLCK, fcntl.F_UNLCK])
for f in fds: fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)
print([fails(lambda: os.close(os.open("lease-" + n, how | N))) for n in "abcd" for how in (R, W)] == [None] * 8)
""", "True [[['BREAKING', 'UNLCK']], [['BREAKING', 'READ']], [['BREAKING', 'UNLCK']], [['BREAKING', 'UNLCK']]] set()\nTrue\nTrue")

# A datagram socket whose other end was closed, with what that had sent.
CLOSED_END = ("""
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
r, w = os.pipe()
b.send(b"one"); socket.send_fds(b, [b"two"], [w]); b.close(); os.close(w)
gate()
print(a.recv(9), end=" ")
data, fds, _, _ = socket.recv_fds(a, 9, 1)
os.write(fds[0], b"x")
a.setblocking(False)
print(data, os.read(r, 1), fails(a.recv, 9), fails(a.send, b"x"))
""", "b'one' b'two' b'x' EAGAIN ECONNREFUSED")

# Pages that kill whoever touches them (MADV_GUARD_INSTALL), where the kernel has them.
GUARDS = ("""
import resource
at = mmap.mmap(-1, 64 * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); base = ctypes.addressof(ctypes.c_char.from_buffer(at))
for i in range(64): at[i * 4096] = i
def madvise(page, n, what): return libc.madvise(ctypes.c_void_p(base + page * 4096), n * 4096, what)
can = madvise(3, 2, 102) == 0
if can: assert madvise(9, 1, 102) == madvise(20, 4, 102) == madvise(21, 1, 103) == 0
def touch(page):
    p = os.fork()
    if not p:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(base + page * 4096, 1); os._exit(0)
    return os.waitpid(p, 0)[1] & 127
gate()
if can: print([p for p in range(64) if p in (2, 3, 4, 5, 8, 9, 10, 19, 20, 21, 22, 23, 24) and touch(p)], at[2 * 4096], at[21 * 4096], at[63 * 4096])
else: print([3, 4, 9, 20, 22, 23], 2, 0, 63)
""", "[3, 4, 9, 20, 22, 23] 2 0 63")

# Threads that have given up different capabilities.
CAPABILITIES = ("""
def caps(*give):
    head = struct.pack("Ii", 0x20080522, 0); data = ctypes.create_string_buffer(24)
    assert libc.capget(head, data) == 0
    words = list(struct.unpack("6I", data))
    for kind, bit in give: words[kind] &= ~(1 << bit)
    assert libc.capset(head, struct.pack("6I", *words)) == 0
def look(tid): return [l for l in open(f"/proc/self/task/{tid}/status") if l.startswith("Cap")]
here, go = threading.Barrier(3), threading.Event()
def run(*give): caps(*give); here.wait(); go.wait()
all = [threading.Thread(target=run, args=g) for g in ([(0, 0), (1, 0)], [(0, 7)])]
for t in all: t.start()
here.wait(); caps((0, 3), (1, 3))
was = [look(t) for t in os.listdir("/proc/self/task")]
gate()
print([look(t) for t in os.listdir("/proc/self/task")] == was, len({str(w) for w in was}))
go.set()
""", "True 3")

# Files of processes below /proc, which only their user may open: its own, and a child's.
OWN_FILES = ("""
p = child()
files = [open(f"/proc/{who}/environ", "rb", 0) for who in (os.getpid(), p)] + [open("/proc/self/auxv", "rb", 0), open(f"/proc/{p}/mem", "rb", 0)]
was = [f.read(64) for f in files[:3]]
own, cell = open("/proc/self/mem", "r+b", 0), ctypes.create_string_buffer(b"before")
own.seek(ctypes.addressof(cell))
gate()
print(own.tell() == ctypes.addressof(cell), own.read(6), os.pwrite(own.fileno(), b"after!", ctypes.addressof(cell)), cell.value)
for f in files[:3]: f.seek(0)
print([f.read(64) for f in files[:3]] == was, os.pread(files[3].fileno(), 4, ctypes.addressof(ctypes.c_int.in_dll(ctypes.pythonapi, "Py_IgnoreEnvironmentFlag"))))
end(p)
""", "True b'before' 6 b'after!'\nTrue b'\\x00\\x00\\x00\\x00'")

# Memory that can be run and not read: the kernel may take a protection key for it.
RUN_ONLY = ("""
at = mmap.mmap(-1, 8192, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); base = ctypes.addressof(ctypes.c_char.from_buffer(at))
code = b"\\xb8\\x2a\\0\\0\\0\\xc3" if os.uname().machine == "x86_64" else b"\\x40\\x05\\x80\\x52\\xc0\\x03\\x5f\\xd6" # returns 42
at[:len(code)] = code
assert libc.mprotect(ctypes.c_void_p(base), 4096, 4) == 0
call = ctypes.CFUNCTYPE(ctypes.c_int)(base)
def reads():
    p = os.fork()
    if not p:
        ctypes.string_at(base, 1); os._exit(0)
    return os.waitpid(p, 0)[1]
was = call(), reads()
gate()
print(was[0], call(), reads() == was[1])
""", "42 42 True")

# Namespaces of the sandbox, open.
NAMESPACES = ("""
fds = {n: os.open("/proc/self/ns/" + n, os.O_RDONLY) for n in ("net", "mnt", "pid", "user", "uts", "ipc")}
gate()
print(all(os.readlink(f"/proc/self/fd/{f}") == os.readlink("/proc/self/ns/" + n) for n, f in fds.items()))
""", "True")

# A terminal whose master was closed: it was hung up, and has its number until the last descriptor is closed.
HUNG_UP = ("""
m, s = os.openpty(); other = os.open(os.ttyname(s), os.O_RDONLY | os.O_NOCTTY)
number = os.fstat(s).st_rdev
os.close(m)
p = select.poll(); p.register(s)
def look(): return [os.fstat(s).st_rdev == number == os.fstat(other).st_rdev, fails(os.write, s, b"x"), os.read(other, 9), fails(termios.tcgetattr, s), p.poll(0)[0][1]]
def fails(fn, *args):
    try: return fn(*args)
    except (OSError, termios.error) as e: return errno.errorcode[e.args[0]]
was = look()
gate()
print(look() == was, was[:4])
""", "True [True, 'EIO', b'', 'EIO']")

# A watch of a file that was removed, and is still open.
WATCHED = ("""
f = os.open("watched", os.O_RDWR | os.O_CREAT)
i = check(libc.inotify_init1(os.O_NONBLOCK))
w = check(libc.inotify_add_watch(i, b"watched", 0x40a)) # MODIFY, CLOSE_WRITE, DELETE_SELF
os.unlink("watched")
gate()
os.write(f, b"x"); os.close(f)
news = os.read(i, 999)
print(fails(os.read, i, 9), [hex(struct.unpack_from("iI", news, at)[1]) for at in range(0, len(news), 16)], struct.unpack_from("i", news)[0] == w)
""", "EAGAIN ['0x2', '0x8', '0x400', '0x8000'] True")

# Numbers of processes that have ended are not used again at once.
NUMBERS = ("""
for _ in range(50): end(child())
last = child()
gate()
new = [child() for _ in range(3)]
print(all(p > last for p in new), len(set(new)))
end(last, *new)
""", "True 3")

GROUPS = {
    "descriptors": {"links": LINKS, "ended processes": ENDED, "leases": LEASES, "closed end": CLOSED_END, "namespaces": NAMESPACES,
                    "hung up": HUNG_UP, "watched": WATCHED},
    "processes": {"shared tables": SHARED_TABLES, "terminal": TERMINAL, "guards": GUARDS, "own files": OWN_FILES, "numbers": NUMBERS, "run only": RUN_ONLY},
}


@pytest.mark.parametrize("group", GROUPS)
def test_the_source_and_its_copies_tell_the_same(d, clean, group):
    live_on(d, GROUPS[group])


def test_threads_with_capabilities_of_their_own(d, clean):
    live_on(d, {"capabilities": CAPABILITIES}, user="root")
