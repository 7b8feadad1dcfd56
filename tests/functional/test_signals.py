"""Signals to cloche run reach the command; terminals."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import host
from host import command, sh, wait_for


def ready(p, word=b"ready\n"):
    assert p.stdout.readline() == word


@pytest.mark.parametrize("name", ["TERM", "INT", "USR1", "USR2", "QUIT"])
def test_a_signal_reaches_a_command_that_traps_it(popen, name):
    p = popen("--", "sh", "-c", f"trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.01; done")
    ready(p)
    p.send_signal(getattr(signal, "SIG" + name))
    out, _ = p.communicate(timeout=5)
    assert (p.returncode, out) == (7, f"got {name}\n".encode())


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_command_without_a_trap_ends_by_the_signal(popen, name):
    p = popen("--", "sh", "-c", "echo ready; exec sleep 100")
    ready(p)
    number = getattr(signal, "SIG" + name)
    p.send_signal(number)
    out, err = p.communicate(timeout=5)
    assert (p.returncode, err) == (128 + number, b"")


def test_the_whole_process_group_of_the_command_gets_the_signal(popen):
    p = popen("--", "sh", "-c", "trap 'echo parent' TERM;"
                                "sh -c 'trap \"echo child; exit\" TERM; echo ready; while :; do sleep 0.01; done'; exit 3")
    ready(p)
    p.send_signal(signal.SIGTERM)
    out, _ = p.communicate(timeout=5)
    assert (p.returncode, sorted(out.split())) == (3, [b"child", b"parent"])


def test_who_ignores_terminate_three_times_is_killed(popen):
    p = popen("--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    ready(p)
    for _ in range(2):
        p.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert p.poll() is None
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=5)
    assert p.returncode == 137
    assert err.startswith(b"cloche: killed: ") and err.count(b"\n") == 1


def test_a_hang_up_ends_the_sandbox_at_once(popen):
    p = popen("--json", "--", "sh", "-c", "trap '' HUP; setsid sleep 100 & echo some output; while :; do sleep 0.01; done")
    time.sleep(0.3)
    p.send_signal(signal.SIGHUP)
    out, _ = p.communicate(timeout=5)
    result = host.Result([], p.returncode, out, b"", 0)
    assert result.code == 137 and result.cause == "killed"
    assert result.json["stdout"] == "some output\n"


def test_a_stopped_and_continued_run_goes_on(popen):
    p = popen("--", "sh", "-c", "echo ready; sleep 0.2; echo done")
    ready(p)
    p.send_signal(signal.SIGSTOP)
    time.sleep(0.4)
    p.send_signal(signal.SIGCONT)
    out, _ = p.communicate(timeout=5)
    assert (p.returncode, out) == (0, b"done\n")


def test_signals_are_as_new_for_the_command():
    """What we ignore or block, the command neither ignores nor blocks."""
    def ignore():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGALRM])

    r = sh("grep -E '^Sig(Blk|Ign)' /proc/self/status", preexec_fn=ignore)
    assert [int(x.split()[1], 16) for x in r.out.decode().splitlines()] == [0, 0], r


def test_a_signal_that_we_are_told_to_ignore_is_ignored(popen):
    """As nohup does."""
    p = popen("--", "sh", "-c", "echo ready; sleep 0.3; echo done",
              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    ready(p)
    p.send_signal(signal.SIGHUP)
    out, _ = p.communicate(timeout=5)
    assert (p.returncode, out) == (0, b"done\n")


# --- terminals ---

class Terminal:
    """cloche run with a terminal of ours as its stdin, stdout and stderr."""

    def __init__(self, *args, rows=24, cols=80, env=None):
        self.master, slave = pty.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(slave)
        self.p = subprocess.Popen(command(*args), stdin=slave, stdout=slave, stderr=slave, env=env,
                                  start_new_session=True,
                                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.slave = slave
        self.seen = b""

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def write(self, data):
        os.write(self.master, data)

    def until(self, text, seconds=5.0):
        end = time.monotonic() + seconds
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self.master, 65536)
        head, self.seen = self.seen.split(text, 1)
        return head

    def wait(self):
        """The exit code, and what came since."""
        end = time.monotonic() + 5
        while self.p.poll() is None:
            assert time.monotonic() < end, self.seen
            if select.select([self.master], [], [], 0.02)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.p.returncode, self.seen


@pytest.fixture
def terminal():
    made = []

    def terminal(*args, **kw):
        made.append(Terminal(*args, **kw))
        return made[-1]

    yield terminal
    for t in made:
        host.end(t.p)
        os.close(t.master)
        os.close(t.slave)


def test_a_terminal_outside_is_one_inside(terminal):
    t = terminal("--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && tty && exit 9")
    code, seen = t.wait()
    assert code == 9 and seen.startswith(b"/dev/pts/"), seen


def test_term_is_ours_and_only_set_on_a_terminal(terminal):
    code, seen = terminal("--", "sh", "-c", "echo [$TERM]", env={"TERM": "screen-256color"}).wait()
    assert seen == b"[screen-256color]\r\n"
    code, seen = terminal("--no-tty", "--", "sh", "-c", "echo [$TERM]", env={"TERM": "screen"}).wait()
    assert seen.replace(b"\r", b"") == b"[]\n"
    assert sh("echo [$TERM]", env={"TERM": "screen"}).out == b"[]\n"


def test_no_tty_gives_pipes(terminal):
    code, seen = terminal("--no-tty", "--", "sh", "-c", "test -t 0 || test -t 1 || test -t 2 || exit 4").wait()
    assert code == 4, seen


def test_the_window_size_is_ours_and_follows_it(terminal):
    t = terminal("--", "sh", "-c", "stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done",
                 rows=33, cols=101)
    assert b"33 101" in t.until(b"ready")
    t.resize(44, 132)
    t.p.send_signal(signal.SIGWINCH)
    assert b"44 132" in t.wait()[1]


def test_control_c_interrupts_the_command_not_us(terminal):
    t = terminal("--", "sh", "-c", "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.01; done")
    t.until(b"ready")
    t.write(b"\x03")
    code, seen = t.wait()
    assert code == 5 and b"interrupted" in seen


def test_control_d_ends_the_input(terminal):
    t = terminal("--", "sh", "-c", "echo ready; cat; exit 6")
    t.until(b"ready")
    t.write(b"line\n\x04")
    assert t.wait()[0] == 6


def test_a_shell_has_job_control_on_its_terminal(terminal):
    t = terminal("--", "bash", "--norc", "-i")
    t.until(b"$ ")
    t.write(b"sleep 50\r")
    time.sleep(0.3)
    t.write(b"\x1a")
    t.until(b"Stopped")
    t.write(b"kill -9 %1; fg; exit 3\r")
    code, seen = t.wait()
    assert code == 3 and b"no job control" not in seen


def test_our_terminal_is_as_before_when_the_run_ends(terminal):
    t = terminal("--", "sh", "-c", "stty raw; exit 0")
    assert t.wait()[0] == 0
    assert termios.tcgetattr(t.slave) == t.before


def test_a_terminal_can_be_asked_for_without_one(popen):
    p = popen("--tty", "--", "sh", "-c", "test -t 0 && test -t 1 && echo yes; exit 8", stdin=subprocess.DEVNULL)
    out, err = p.communicate(timeout=5)
    assert (p.returncode, out) == (8, b"yes\r\n"), err


def test_the_command_cannot_type_into_our_terminal(terminal):
    t = terminal("--", "/usr/bin/python3", "-c",
                 "import fcntl, termios\ntry: fcntl.ioctl(0, termios.TIOCSTI, b'x'); print('typed')\n"
                 "except OSError as e: print('refused')")
    code, seen = t.wait()
    assert b"refused" in seen and b"typed" not in seen


def test_output_on_a_terminal_is_not_limited(terminal):
    t = terminal("--output-limit", "1K", "--", "sh", "-c", "seq 1 2000; echo end")
    code, seen = t.wait()
    assert code == 0 and b"1000\r\n" in seen and seen.endswith(b"end\r\n")
