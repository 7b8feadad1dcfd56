"""The real binaries, and an eye on what they leave on the machine.

Others may use sandboxes on the same machine meanwhile. So the tests have /tmp, /run/cloche and (cgroup version 1) cgroups of
their own, and every process stays below this one, whoever dies in between (we are a "subreaper"): what is left is told for
sure.
"""
import ctypes
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CLOCHE_BUILD") or ROOT / "build").resolve()
CLOCHE = BUILD / "cloche"
SLOTS = "/run/cloche/slots"
UID_BASE = 100000000
PATIENCE = 3.0  # seconds; what is there for longer was left behind

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE, MS_SHARED = 0x20000, 0x1000, 0x4000, 1 << 18, 1 << 19, 1 << 20
MNT_DETACH = 2
PR_SET_CHILD_SUBREAPER = 36


def _check(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def lines(path):
    return pathlib.Path(path).read_text(encoding="utf-8").splitlines()


def become_subreaper():
    _check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    threading.Thread(target=_reap_guards, daemon=True).start()


def _reap_guards():
    """As a machine's first process would: cloche-dump has a process inside of the sandbox, which cannot end before that one is
    waited for. When cloche-dump is killed, it becomes our child."""
    while True:
        for task in pathlib.Path("/proc/self/task").glob("*/children"):
            try:
                for pid in task.read_text().split():
                    if re.match(r"\d+ \(cloche-dump\) Z", pathlib.Path(f"/proc/{pid}/stat").read_text()):
                        os.waitpid(int(pid), os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.1)


def _closed_above(place):
    """The topmost folder above `place` that others than root cannot enter: programs there are out of their reach."""
    for folder in reversed(place.parents):
        if not folder.stat().st_mode & 1:
            return folder
    return None


class PrivateTmp:
    """A mount namespace with an empty /tmp, /var/tmp and /run/cloche, so that whatever turns up there is ours.

    "/" is shared, as systemd has it: a mount that escapes a sandbox's namespace would show up here.
    """

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="cloche-functional-", dir="/var/tmp")
        _check(libc.unshare(CLONE_NEWNS), "unshare")
        _check(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "make / a slave")
        self.outside = os.open("/var/tmp", os.O_PATH)
        self._private_run()
        needed = {place: os.open(place, os.O_PATH) for place in (ROOT, BUILD)}
        self.opened = sorted(set(filter(None, map(_closed_above, needed))))  # such as /root
        for n, closed in enumerate(self.opened):
            place = os.path.join(self.folder, f"open-{n}")
            os.mkdir(place, 0o755)
            _check(libc.mount(place.encode(), os.fsencode(closed), None, MS_BIND, None), "bind")
        for name in ("tmp", "var/tmp"):
            place = os.path.join(self.folder, name.replace("/", "-"))
            os.mkdir(place)
            os.chmod(place, 0o1777)
            _check(libc.mount(place.encode(), b"/" + name.encode(), None, MS_BIND, None), "bind")
        for place, fd in needed.items():
            if not place.exists():  # it is below one of them
                place.mkdir(parents=True)
                _check(libc.mount(b"/proc/self/fd/%d" % fd, os.fsencode(place), None, MS_BIND | MS_REC, None), "bind")
            os.close(fd)
        os.chdir(os.getcwd())  # the same, seen from here
        _check(libc.mount(b"none", b"/", None, MS_REC | MS_SHARED, None), "share /")

    def _private_run(self):
        """Daemons note there what they have, in folders named after their data's path. The slots stay everybody's."""
        os.makedirs("/run/cloche", 0o755, exist_ok=True)
        os.close(os.open(SLOTS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        place = os.path.join(self.folder, "run")
        os.mkdir(place)
        os.chmod(place, 0o755)
        slots = os.path.join(place, "slots")
        os.close(os.open(slots, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        _check(libc.mount(SLOTS.encode(), slots.encode(), None, MS_BIND, None), "bind")
        _check(libc.mount(place.encode(), b"/run/cloche", None, MS_BIND | MS_REC, None), "bind")

    def done(self):
        # The last one is below what /var/tmp hides.
        for place in (*map(os.fsencode, self.opened), b"/run/cloche", b"/var/tmp", b"/tmp", os.path.join(self.folder, "run/slots").encode()):
            libc.umount2(place, MNT_DETACH)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.outside)


class PrivateCgroups:
    """Version 1: groups of our own, below which cloche makes its own. Version 2 does not let us: see own_groups()."""

    USED = {"memory", "pids", "cpu", "cpuacct", "freezer", "blkio"}

    def __init__(self):
        self.moved = []
        for group, controllers in own_groups():
            mine = group / f"cloche-test-{os.getpid()}"
            if self.USED & set(controllers):
                mine.mkdir()
                (mine / "cgroup.procs").write_text("0")
                self.moved.append((group, mine))

    def done(self):
        for group, mine in self.moved:
            (group / "cgroup.procs").write_text("0")
            for folder, _, _ in os.walk(mine, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError as e:  # a leak, which the test that made it has told
                    print(f"{folder}: {e.strerror}")


def own_groups():
    """(folder, controllers) of every cgroup that this process is in and cloche may use."""
    mounts = {}
    for line in lines("/proc/self/mountinfo"):
        left, right = line.split(" - ")
        fields, kind = left.split(), right.split()
        if kind[0] == "cgroup2":
            mounts[""] = (fields[3], fields[4])
        elif kind[0] == "cgroup":
            for controller in kind[2].split(","):
                mounts[controller] = (fields[3], fields[4])
    found = []
    for line in lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if names[0] in mounts:
            top, place = mounts[names[0]]
            found.append((pathlib.Path(place) / os.path.relpath(path, top), names))
    return found


class Result:
    def __init__(self, args, code, out, err, wall):
        self.args, self.code, self.out, self.err, self.wall = args, code, out, err, wall

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def cause(self):
        return self.json["verdict"]["cause"]

    def __repr__(self):
        return (f"cloche {' '.join(map(str, self.args))[:300]}\n  exit {self.code} after {self.wall:.2f} s\n"
                f"  stdout {self.out[-1500:]!r}\n  stderr {self.err[-1500:]!r}")


def command(*args):
    return [str(CLOCHE), "run", *map(str, args)]


def run(*args, input=b"", timeout=60, **kw):
    """cloche run ARGS; stdin is `input` unless given."""
    if "stdin" not in kw:
        kw["input"] = input
    start = time.monotonic()
    p = subprocess.run(command(*args), stdout=kw.pop("stdout", subprocess.PIPE), stderr=kw.pop("stderr", subprocess.PIPE),
                       timeout=timeout, **kw)
    return Result(args, p.returncode, p.stdout, p.stderr, time.monotonic() - start)


def start(*args, **kw):
    for name in ("stdin", "stdout", "stderr"):
        kw.setdefault(name, subprocess.PIPE)
    return subprocess.Popen(command(*args), **kw)


def sh(script, *options, **kw):
    return run(*options, "--", "sh", "-c", script, **kw)


def python(script, *options, **kw):
    return run(*options, "--", "/usr/bin/python3", "-c", script, **kw)


def one_line(r, code=125):
    """A refusal: nothing on stdout, exactly one line on stderr, no crash."""
    assert r.code == code, r
    assert r.out == b"", r
    assert r.err.startswith(b"cloche: ") and r.err.endswith(b"\n") and r.err.count(b"\n") == 1, r
    return r.err.decode()


def wait_for(condition, seconds=5.0, what="it"):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come about within {seconds} s"
        time.sleep(0.005)


def children(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
                found += map(int, f.read().split())
    except OSError:
        pass
    return found


def agent_of(pid):
    """The host's pid of the first process of the sandbox that cloche process `pid` made."""
    for child in children(pid):
        try:
            if "cloche-agent" in os.readlink(f"/proc/{child}/exe"):
                return child
        except OSError:
            pass
    return None


# --- what is on the machine ---

def slot_is_held(slot):
    """Whether a live process has locked this slot's byte."""
    try:
        fd = os.open(SLOTS, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)
        return struct.unpack("hhqqi4x", fcntl.fcntl(fd, 36, ask))[0] != fcntl.F_UNLCK  # 36: F_OFD_GETLK
    finally:
        os.close(fd)


def _cgroups():
    """On version 1 all below ours; on version 2, where all sandboxes of a machine may share a folder, the orphans."""
    found = set()
    for group, controllers in own_groups():
        folders = [group / "cloche"] if controllers != [""] else [p / "cloche" for p in (group, *group.parents)]
        for folder in folders:
            for place in folder.iterdir() if folder.is_dir() else ():
                name = place.name
                alien = controllers == [""] and name[:1] == "s" and name[1:].isdigit() and slot_is_held(int(name[1:]))
                if place.is_dir() and name != "_key" and not alien:
                    found.add(f"cgroup {place}")
    return found


def _processes():
    """Processes that this one or its descendants started, and that have not ended: orphans become its children."""
    while True:  # orphans that came to us and are dead already
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
    found, todo = set(), children(os.getpid())
    while todo:
        pid = todo.pop()
        todo += children(pid)
        found.add(f"process {pid}")
        try:
            found.add("network namespace " + os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:
            pass
    return found - {"network namespace " + os.readlink("/proc/self/ns/net")}


def _net_namespaces():
    """Those held by a mount; those held by a process are seen with it."""
    return {"network namespace " + x for x in lines("/proc/self/mountinfo") if " nsfs " in x and "net:[" in x}


def _mounts():
    return {"mount " + line for line in lines("/proc/self/mountinfo")}


def _files():
    found = set()
    for folder in ("/tmp", "/var/tmp", "/run/cloche"):
        if os.path.isdir(folder):
            found |= {f"file {folder}/{name}" for name in os.listdir(folder)}
    return {f for f in found if not f.startswith(("file /tmp/pytest-of-", "file /tmp/cloche-test-"))}


def _loops():
    found = set()
    for dev in pathlib.Path("/sys/block").glob("loop*"):
        backing = dev / "loop/backing_file"
        try:
            found.add(f"loop device {dev.name}: {backing.read_text().strip()}")
        except OSError:
            pass
    return {x for x in found if "cloche" in x or "deleted" in x}


def _describe(what):
    if not what.startswith("process "):
        return what
    try:
        return what + f": {pathlib.Path('/proc', what.split()[1], 'cmdline').read_bytes()[:120]!r}"
    except OSError:
        return what


class Watch:
    """What there is now; later says what was added and stays."""

    SEEN = (_cgroups, _processes, _net_namespaces, _mounts, _files, _loops)

    def __init__(self):
        self.before = self._look()

    def _look(self):
        return set().union(*(seen() for seen in self.SEEN))

    def left(self):
        """What was added and is still there after a while; what vanishes meanwhile does not count."""
        start = time.monotonic()
        suspects = None
        while True:
            now = self._look() - self.before
            suspects = now if suspects is None else suspects & now
            # A loop device does not say whose it is; others' are gone after a while.
            only_loops = all(x.startswith("loop device") for x in suspects)
            if not suspects or time.monotonic() > start + PATIENCE * (10 if only_loops else 1):
                return {_describe(x) for x in suspects}
            time.sleep(0.05)


def end(p):
    """Ends a Popen that a failed test may have left running."""
    if p.poll() is None:
        p.send_signal(signal.SIGKILL)
    for f in (p.stdin, p.stdout, p.stderr):
        if f:
            f.close()
    p.wait()
