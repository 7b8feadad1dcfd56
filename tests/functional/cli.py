"""What the tests of the client share: a daemon for a whole file, a sandbox, a terminal."""
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

import host
from daemon import Daemon

COMMANDS = ("create exec shell cp ls inspect rm kill extend rename update checkpoint restore fork diff promote pause resume hibernate wake template pool logs stats top "
            "events audit token port tenant completion").split()
VERBS = ["checkpoint create", "checkpoint ls", "checkpoint inspect", "checkpoint rm", "checkpoint export", "checkpoint import",
         "template set", "template ls", "template inspect", "template rm", "pool set", "pool ls", "pool inspect", "pool rm",
         "port ls", "port set", "port rm", "tenant ls", "tenant create", "tenant set", "tenant inspect", "tenant rm"]


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind():
    """Instead of after each test: the daemon, and what it keeps ready, stays for all of them."""
    watch = host.Watch()
    yield
    left = Daemon.ours(watch.left())
    assert not left, "left behind:\n" + "\n".join(sorted(left))


@pytest.fixture(scope="module")
def daemon(nothing_is_left_behind):
    with Daemon() as d:
        yield d


@pytest.fixture
def box(daemon):
    made = daemon.create(metadata={"by": "test"})
    yield made["id"]
    daemon.delete(f"/v1/sandboxes/{made['id']}")


@pytest.fixture
def ok(daemon):
    """`cloche` that must succeed, and its output without the last line feed."""
    def call(*args, **kw):
        r = daemon.cli(*args, **kw)
        assert r.code == 0, r
        return r.text.strip()
    return call


@pytest.fixture
def started_box(daemon, ok):
    """One with a file in it, by a name of its own; what came from it is gone afterwards, too."""
    name = f"box{os.urandom(4).hex()}"
    ok("create", "--name", name, "-e", "COLOUR=red", "--memory", "128M")
    ok("exec", name, "--", "sh", "-c", "echo one > data; mkdir -p dir; echo kept > dir/kept")
    yield name
    daemon.cli("rm", "--all")
    for c in json.loads(daemon.cli("checkpoint", "ls", "--json").text):
        daemon.cli("checkpoint", "rm", c["id"])


class Terminal:
    """cloche on a terminal of its own, as a user has it."""

    def __init__(self, daemon, *args, rows=24, columns=80, program=None, env=None):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.seen = b""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.p = subprocess.Popen(program or [str(host.CLOCHE), *map(str, args)], stdin=slave, stdout=slave, stderr=slave,
                                  env=env or {**daemon.environment(), "TERM": "xterm"}, preexec_fn=own_terminal)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        self.send(text.encode())

    def send(self, data):
        """Reads meanwhile: a program that echoes what it is sent waits for that."""
        while data:
            readable, writable, _ = select.select([self.master], [self.master], [], 10)
            assert readable or writable, "the program takes no more keys"
            if readable:
                self.read(0)
            if writable:
                data = data[os.write(self.master, data[:512]):]

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                return False
            return True
        return False

    def expect(self, pattern, seconds=10):
        """Everything up to and with the pattern, which is then no longer there."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern.encode(), self.seen)
            if found:
                head, self.seen = self.seen[:found.end()], self.seen[found.end():]
                return head
            assert time.monotonic() < end, f"no {pattern!r} in {self.seen!r}"
            self.read(0.05)

    def wait(self, seconds=10):
        end = time.monotonic() + seconds
        while self.p.poll() is None:
            assert time.monotonic() < end, f"still runs; {self.seen!r}"
            self.read(0.05)
        while self.read(0):
            pass
        return self.p.returncode

    @property
    def restored(self):
        return termios.tcgetattr(self.slave)[:4] == self.before[:4]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        os.close(self.slave)
        os.close(self.master)
