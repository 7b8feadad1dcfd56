"""The warm process for Python: runs the warm-up code once, then one fork per request. Started as `python3 -c THIS CODE`
with the agent's socket as descriptor 3 (src/proto/warm.h). What it forks is the agent's child and behaves as if started by
`python3 -c`. It trusts nobody but itself: who runs here is one user in a sandbox of its own, and the agent believes
nothing it says but what the kernel vouches for."""
import atexit
import ctypes
import fcntl
import gc
import io
import os
import random
import resource
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
import types

MAGIC = 0x4D524157
REQUEST = struct.Struct("<IIIIQQII")
ANSWER = struct.Struct("<IIIi")
TTY, GROUP, PREPARE, WAKE, SEEDED = 1, 2, 4, 8, 16
AHEAD_MAX = 8  # children in a row that ended before anything was asked of them
AHEAD_NS = 3000000  # after a request: what was asked for has the processor first
BURST_MS = 2  # and if nobody comes for so long
REHEARSALS = 4  # before an image is taken: what Python notes when code runs for the first times is part of it
PIDFD_OPEN = 434
STDIO, RLIMIT, CWD, GROUP_STAGE, CLONE = 20, 21, 23, 28, 18  # enum frame_stage
CLONE_PARENT, CHILD_CLEARTID, CHILD_SETTID = 0x8000, 0x200000, 0x1000000
SYS = {"x86_64": (56, 274, 273), "aarch64": (220, 100, 99)}.get(os.uname().machine)  # clone, get_ and set_robust_list
TIOCSCTTY = 0x540E
NOFILE_USUAL, NOFILE_HARD = 1024, 65536
_libc = ctypes.CDLL(None)
_timer, _timer_old = (ctypes.c_long * 4)(), (ctypes.c_long * 4)()  # struct itimerspec


def _cloner():
    """A fork() whose child has our parent. As the C library does it, which only knows its own flags."""
    libc = ctypes.PyDLL(None, use_errno=True)
    call, api, word = libc.syscall, ctypes.pythonapi, ctypes.c_ulong
    call.restype = ctypes.c_long
    tid, head, size = word(), word(), word()
    if libc.prctl(40, ctypes.byref(tid), word(0), word(0), word(0)) != 0:  # PR_GET_TID_ADDRESS
        return _twice
    call(word(SYS[1]), word(0), ctypes.byref(head), ctypes.byref(size))
    flags = word(CLONE_PARENT | CHILD_CLEARTID | CHILD_SETTID | signal.SIGCHLD)
    args = (word(SYS[0]), flags, word(0), word(0)) + ((tid, word(0)) if SYS[0] == 56 else (word(0), tid))
    robust = (word(SYS[2]), head, size)

    def fork():
        api.PyOS_BeforeFork()
        pid = call(*args)
        if pid == 0:
            call(*robust)
            api.PyOS_AfterFork_Child()
            return 0
        error = ctypes.get_errno()
        api.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(error, os.strerror(error))
        return pid

    return fork


def _twice():
    """The same with what every Python has: an orphan is the agent's. For other C libraries, and when there are threads,
    whose libraries want to be asked before a fork."""
    who, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        os.waitpid(pid, 0)
        said = os.read(who, 8)
        os.close(who)
        if len(said) != 8:
            raise OSError(11, "no second fork")
        return struct.unpack("<q", said)[0]
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os.write(tell, struct.pack("<q", pid))
        os._exit(0)
    os.close(who)
    os.close(tell)
    while os.getppid() != 1:
        time.sleep(0.0002)
    return 0


def _glibc():
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION")) and SYS is not None
    except (ValueError, OSError):
        return False


def _alone():
    return len(os.listdir("/proc/self/task")) == 1


def _reseed():
    random.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(int.from_bytes(os.urandom(4), "little"))
    temp = sys.modules.get("tempfile")
    if temp is not None:
        temp._name_sequence = None


def _stream(fd, mode, like, errors):
    raw = os.environ.get("PYTHONUNBUFFERED", "") != "" and mode == "wb"
    f = io.open(fd, mode, 0 if raw else -1, closefd=False)
    tty = os.isatty(fd)
    name = "<stdin>" if fd == 0 else "<stdout>" if fd == 1 else "<stderr>"
    text = io.TextIOWrapper(f, like.encoding if like else "utf-8", errors, newline="\n" if mode == "wb" else None,
                            line_buffering=fd == 2 or tty, write_through=raw)
    try:
        (f if raw else f.raw).name = name
    except AttributeError:
        pass
    text.mode = mode[0]
    return text


def _streams(like):
    return (_stream(0, "rb", like[0], "strict"),
            _stream(1, "wb", like[1], like[1].errors if like[1] else "strict"),
            _stream(2, "wb", like[2], "backslashreplace"))


def _stdio(ready):
    """Streams made ahead will do for pipes and terminals: those have no position, and all that is kept is the number."""
    modes = [os.fstat(i).st_mode for i in range(3)]
    if any(stat.S_ISREG(m) for m in modes) or os.environ.get("PYTHONUNBUFFERED"):
        ready = _streams(ready)
    elif stat.S_ISCHR(modes[1]) and os.isatty(1):
        ready[1].reconfigure(line_buffering=True)
    sys.stdin = sys.__stdin__ = ready[0]
    sys.stdout = sys.__stdout__ = ready[1]
    sys.stderr = sys.__stderr__ = ready[2]


def _module():
    """The module that the warm-up code and, in a fork, what comes later run in: as one program, cut in two. Ours is out of
    their sight."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    main.__dict__["__annotations__"] = {}
    sys.modules["__main__"] = main
    return main


def _exec(main, code, args):
    """As `python3 -c` does it, until the code is through: the exit status."""
    sys.argv = ["-c"] + args
    sys.orig_argv = [sys.executable, "-c", code] + args
    try:
        exec(compile(code, "<string>", "exec"), main.__dict__)
    except SystemExit as e:
        return _status(e.code)
    except BaseException as e:
        return _report(e)
    return 0


def _main(main, code, args):
    status = _exec(main, code, args)
    try:
        threading._shutdown()
    except BaseException as e:
        _report(e)
    atexit._run_exitfuncs()
    return _end(status)


def _end(status):
    status = _flush(status)
    _libc.fflush(None)  # what C code has printed
    return status


def _status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        print(code, file=sys.stderr)
    except Exception:
        pass
    return 1


def _report(e):
    tb = e.__traceback__.tb_next if e.__traceback__ is not None else None  # ours is none of theirs
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except Exception:
        pass
    try:
        sys.last_type, sys.last_value, sys.last_traceback = type(e), e, tb
        sys.excepthook(type(e), e.with_traceback(tb), tb)
    except SystemExit as other:
        return _status(other.code)
    except BaseException:
        sys.__excepthook__(type(e), e, tb)
    if isinstance(e, KeyboardInterrupt):
        _flush(0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def _flush(status):
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except Exception as e:
        try:
            print("Exception ignored in: <stdout>\n%s: %s" % (type(e).__name__, e), file=sys.stderr)
        except Exception:
            pass
        status = status or 120
    try:
        if sys.stderr is not None and not sys.stderr.closed:
            sys.stderr.flush()
    except Exception:
        status = status or 120
    return status


def _settle(request, fds, streams, seeded=False):
    """In the child: becomes what was asked for. The stage and the error that it failed by, or what to run. @seeded: since it
    was woken up, which counts if the agent says that it was the one to do that. In a copy made since then it is another."""
    _, _, flags, length, nofile, cpu, argc, envc = request
    stage = GROUP_STAGE
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        if flags & GROUP:
            os.write(fds[5], b"0")
        stage = STDIO
        text = b""
        while len(text) < length:
            part = os.pread(fds[0], length - len(text), len(text))
            if not part:
                raise OSError(5, "cut off")
            text += part
        words = [os.fsdecode(w) for w in text.split(b"\0")]
        if len(words) != argc + envc + 2:
            raise OSError(74, "not as many words as it says")
        for i in range(3):
            os.dup2(fds[2 + i], i)
        if flags & TTY:
            fcntl.ioctl(0, TIOCSCTTY, 0)
        for fd in fds[:1] + fds[2:]:
            os.close(fd)
        stage = RLIMIT
        if nofile:
            # As proto/nofile.h has it.
            hard = min(NOFILE_HARD, resource.getrlimit(resource.RLIMIT_NOFILE)[1]) if nofile == NOFILE_USUAL else nofile
            resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, max(hard, nofile)))
        if cpu:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu + 1, cpu + 2))
        stage = CWD
        os.chdir(words[0])
        os.umask(0o022)
        for pair in words[1 + argc:-1]:
            key, sep, value = pair.partition("=")
            if key and sep:
                os.environ[key] = value
        _stdio(streams)
        if not (seeded and flags & SEEDED):
            _reseed()
        return 0, 0, words[1:1 + argc]
    except OSError as e:
        return stage, e.errno or 5, None
    except Exception:
        return stage, 5, None


def _child(sock, request, fds, streams, main, seeded=False):
    stage, error, argv = _settle(request, fds, streams, seeded)
    sock.send(ANSWER.pack(MAGIC, request[1], stage, error))
    if error or os.read(fds[1], 1) != b"g":
        os._exit(127)
    os.close(fds[1])
    sock.close()
    gc.enable()
    status = _main(main, argv[1], argv[2:])
    os._exit(status)


def _hear(sock):
    """What is asked for and its descriptors, or None; False at the end of all."""
    data, ancillary, _, _ = sock.recvmsg(256, socket.CMSG_SPACE(8 * 4), 0x40000000)  # MSG_CMSG_CLOEXEC
    fds = []
    for level, kind, raw in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += struct.unpack("<%di" % (len(raw) // 4), raw[:len(raw) // 4 * 4])
    if not data:
        return False, fds
    try:
        request = REQUEST.unpack(data)
    except struct.error:
        return None, fds
    if request[0] != MAGIC or len(fds) != (0 if request[2] & (PREPARE | WAKE) else 6 if request[2] & GROUP else 5):
        return None, fds
    return request, fds


def _serve(sock, fork, streams, main, clock=None):
    request, fds = _hear(sock)
    try:
        if request is False:
            os._exit(0)
        if request is None or request[2] & (PREPARE | WAKE):
            return
        try:
            pid = fork()
        except OSError as e:
            sock.send(ANSWER.pack(MAGIC, request[1], CLONE, e.errno or 11))
            return
        if pid == 0:
            if clock is not None:
                os.close(clock)
            _child(sock, request, fds, streams, main)
    finally:
        for fd in fds:
            os.close(fd)


def _rehearse(streams):
    """Goes through all that a request takes, with nothing: its memory is this process's own after that."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words, null = os.memfd_create("words"), os.open("/dev/null", os.O_RDWR)
    wait, go = os.pipe()
    code = "import time; print(time.time(), 1)"
    env = ["REHEARSAL_%d=%s" % (i, "/usr/local/bin:" * (i % 3 + 1)) for i in range(10)]
    text = b"".join(os.fsencode(w) + b"\0" for w in ["/", "python", code] + env)
    os.write(words, text)
    os.write(go, b"g")
    ours.sendmsg([REQUEST.pack(MAGIC, 1, 0, len(text), 0, 0, 2, len(env))],
                 [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("<5i", words, wait, null, null, null))])
    for fd in (words, null, wait, go):
        os.close(fd)
    request, fds = _hear(theirs)
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    stage, error, argv = _settle(request, fds, streams)
    if argv is not None:
        theirs.send(ANSWER.pack(MAGIC, request[1], stage, error))
        os.read(fds[1], 1)
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = __builtins__
        gc.enable()
        _end(_exec(module, argv[1], argv[2:]))
        gc.disable()
    os.close(fds[1])
    ours.close()
    theirs.close()
    os.environ.clear()
    gc.freeze()  # or the first collection would look at what is left of this


def _alarm(clock, ns):
    """Sets it, and returns what was left of it before."""
    _timer[3] = ns
    _libc.timerfd_settime(clock, 0, _timer, _timer_old)
    return _timer_old[2] or _timer_old[3]


def _spare(sock, clock, first, streams, main):
    """A child that waits for the request itself: what a fork costs, and touching memory after it, is over by then. The
    first is part of the image, so that sandboxes that go on from there have it for nothing; it reseeds when it is used."""
    os.setsid()
    _reseed()
    exec(compile("x = 1", "<string>", "exec"), {})
    if first:
        try:
            for _ in range(REHEARSALS):
                _alarm(clock, 0)
                _rehearse(streams)
        except Exception:  # then the first request is a little slower
            os.environ.clear()
            gc.disable()
        sock.send(ANSWER.pack(MAGIC, 0, 0, 0))
    seeded = False
    while True:
        request, fds = _hear(sock)
        if request is False:
            os._exit(0)
        if request is not None and not request[2] & (PREPARE | WAKE):
            break
        for fd in fds:
            os.close(fd)
        if request is not None and request[2] & WAKE:
            _reseed()
            seeded = True
        elif request is not None:
            _alarm(clock, 0)
            _rehearse(streams)
    _alarm(clock, AHEAD_NS)
    os.close(clock)
    _child(sock, request, fds, streams, main, seeded)


def _used(clock, pid):
    """Waits until that child was used, for a while already, or is over. It wakes nobody when it is: who wakes up on the
    processor it needs is in its way for longer than its own work takes."""
    watch = _libc.syscall(ctypes.c_long(PIDFD_OPEN), ctypes.c_long(pid), ctypes.c_long(0))
    if watch < 0:
        return False
    wait = select.poll()
    wait.register(clock, select.POLLIN)
    wait.register(watch, select.POLLIN)
    ready = wait.poll()
    os.close(watch)
    return bool(_alarm(clock, 0)) or any(fd == clock for fd, _ in ready)


def _ahead(sock, fork, streams, main):
    """Keeps one such child. Back when that does not work any more."""
    lost, first = 0, True
    clock = _libc.timerfd_create(1, 0o2000000)  # CLOCK_MONOTONIC, TFD_CLOEXEC
    while clock >= 0 and lost < AHEAD_MAX:
        try:
            pid = fork()
        except OSError:
            break
        if pid == 0:
            _spare(sock, clock, first, streams, main)
        first = False
        lost = 0 if _used(clock, pid) else lost + 1
        wait = select.poll()
        wait.register(sock, select.POLLIN)
        while wait.poll(BURST_MS):  # who came meanwhile, and those behind, are served at once; so is the end
            _serve(sock, fork, streams, main, clock)
    if clock >= 0:
        os.close(clock)
    return first


def _run():
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # a fork takes no threads along
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, 3)
    sock.set_inheritable(False)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    code = sys.argv[1] if len(sys.argv) > 1 else ""
    main = _module()
    exec(compile(code, "<warm-up>", "exec"), main.__dict__)
    for f in (sys.stdout, sys.stderr):
        if f is not None:
            f.flush()
    sys.path[:1] = [""] if sys.path[:1] != [""] else sys.path[:1]
    fork = _cloner() if _glibc() and _alone() else _twice
    gc.collect()
    gc.disable()
    gc.freeze()
    os.environ.clear()  # whoever comes brings its own
    streams = _streams(streams)
    if _ahead(sock, fork, streams, main):  # there is no room for one
        sock.send(ANSWER.pack(MAGIC, 0, 0, 0))
    while True:
        _serve(sock, fork, streams, main)


_run()
