"""Where the network benchmark takes place: two network namespaces with a cable between them, and other programs that
bring a namespace without any interface to the outside, as references.

    the bench, a daemon, pasta, slirp4netns    ─ veth ─    the server
                203.0.113.1                                203.0.113.2
"""
import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import time

import host

CLONE_NEWNET = 0x40000000
HERE, THERE, PORT, NET = "203.0.113.1", "203.0.113.2", 7000, "203.0.113.0/24"
HERE6, THERE6 = "2001:db8:1::1", "2001:db8:1::2"
LOAD = host.BUILD / "cloche-net-load"


def leave():
    """This process, and all it starts from now on, has a network of its own."""
    if host.libc.unshare(CLONE_NEWNET) < 0:
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))


def ip(*args, inside=None):
    """`inside`: the pid of a process, in whose namespace it is done."""
    subprocess.run([*(("nsenter", "-t", str(inside), "-n") if inside else ()), "ip", *args], check=True)


class Process:
    """Ends with the block, by its pid."""

    def __init__(self, argv, **kw):
        self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **kw)
        self.pid = self.p.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()
        if self.p.stdout:
            self.p.stdout.close()


class Empty(Process):
    """A namespace with nothing in it."""

    def __init__(self):
        super().__init__(["sleep", "infinity"], preexec_fn=leave)


class Field:
    def __enter__(self):
        with contextlib.ExitStack() as stack:
            leave()
            for name, value in (("ip_local_port_range", "1024 65535"), ("tcp_tw_reuse", "1")):
                pathlib.Path("/proc/sys/net/ipv4", name).write_text(value, encoding="ascii")
            there = stack.enter_context(Empty()).pid
            ip("link", "set", "lo", "up")
            ip("link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(there))
            for name, at, at6, inside in (("here", HERE, HERE6, None), ("there", THERE, THERE6, there)):
                ip("address", "add", at + "/24", "dev", name, inside=inside)
                ip("address", "add", at6 + "/64", "dev", name, "nodad", inside=inside)
                ip("link", "set", name, "up", inside=inside)
            ip("link", "set", "lo", "up", inside=there)
            # Nobody is there; but pasta wants one, and takes it for the host itself.
            ip("route", "add", "default", "via", "203.0.113.254")
            ip("-6", "route", "add", "default", "via", "2001:db8:1::fe")
            for address in (THERE, THERE6):
                server = stack.enter_context(Process(["nsenter", "-t", str(there), "-n", str(LOAD), "serve", address, str(PORT)],
                                                     stdout=subprocess.PIPE))
                if server.p.stdout.readline() != b"ready\n":
                    raise RuntimeError("the server did not start")
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()


def numbers(text):
    return [int(x) for x in text.split()]


class Direct:
    """No relay at all."""
    name, pid = "direct", None

    def load(self, verb, *args, address=THERE, port=PORT):
        return numbers(subprocess.run([str(LOAD), verb, address, str(port), *map(str, args)], check=True, stdout=subprocess.PIPE).stdout)


class Peer:
    """A namespace that another program connects: `pid` is the relay's, `inside` that of a process in there."""

    def __init__(self, stack):
        self.start(stack)
        end = time.monotonic() + 10
        while not self.up():
            if time.monotonic() > end:
                raise RuntimeError("it did not get ready")
            time.sleep(0.02)

    def up(self):
        inside = self.look()
        if not inside:
            return False
        self.inside = inside
        out = subprocess.run(["nsenter", "-t", str(inside), "-n", "ip", "route", "get", THERE], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, check=False)
        return out.returncode == 0

    def load(self, verb, *args, address=THERE, port=PORT):
        out = subprocess.run(["nsenter", "-t", str(self.inside), "-n", str(LOAD), verb, address, str(port), *map(str, args)],
                             check=True, stdout=subprocess.PIPE, timeout=120).stdout
        return numbers(out)


def become_nobody():
    """With a tun device that everybody may open, in a mount namespace of its own."""
    if host.libc.unshare(host.CLONE_NEWNS) < 0 or host.libc.mount(b"none", b"/", None, host.MS_REC | host.MS_PRIVATE, None) < 0 or \
            host.libc.mount(b"none", b"/dev/net", b"tmpfs", 0, None) < 0:
        raise OSError("a /dev/net of its own")
    os.mknod("/dev/net/tun", 0o600 | stat.S_IFCHR, os.makedev(10, 200))
    os.chmod("/dev/net/tun", 0o666)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


class Pasta(Peer):
    """Started as root it becomes nobody and cannot write its own uid map: so it is nobody from the start."""
    name = "pasta"

    def start(self, stack):
        self.pid = stack.enter_context(Process(["pasta", "--config-net", "-f", "-q", "-t", "none", "-u", "none", "-T", "none", "-U", "none",
                                                "--", "sleep", "infinity"], preexec_fn=become_nobody, stderr=subprocess.DEVNULL)).pid
        stack.callback(self.end)

    def look(self):
        """Its command is a child of a child of it, once it runs."""
        found = host.children(self.pid)
        for pid in found:
            found += host.children(pid)
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that has just ended
                if pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == "sleep":
                    return pid
        return None

    def end(self):
        """Its children would go on: it does not tell them that it was killed."""
        found = host.children(self.pid)
        for pid in found:
            found += host.children(pid)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Slirp(Peer):
    name = "slirp4netns"

    def start(self, stack):
        self.empty = stack.enter_context(Empty())
        self.pid = stack.enter_context(Process(["slirp4netns", "--configure", "--mtu=65520", str(self.empty.pid), "tap0"],
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)).pid

    def look(self):
        return self.empty.pid


def peers(stack):
    """Those that this machine has and that work."""
    found = []
    for kind in (Pasta, Slirp):
        if not shutil.which(kind.name):
            print(f"{kind.name} is not installed", flush=True)
            continue
        try:
            peer = kind(stack)
            peer.load("echo", 10)
            found.append(peer)
        except (RuntimeError, subprocess.CalledProcessError) as e:
            print(f"{kind.name} does not work here: {e}", flush=True)
    return found


def cpu(pid):
    """Seconds that all threads of a process have had."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


def private(pid):
    """Bytes that no other process has."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_")) * 1024
