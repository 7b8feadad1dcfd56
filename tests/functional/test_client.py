"""The client commands of `cloche`, against a real daemon."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import tarfile
import termios
import time

import pytest

import host
from daemon import Daemon

COMMANDS = ("create exec shell cp ls inspect rm checkpoint restore fork diff promote pause resume hibernate wake template pool logs stats top "
            "events audit token completion").split()
VERBS = ["checkpoint create", "checkpoint ls", "checkpoint inspect", "checkpoint rm", "checkpoint export", "checkpoint import",
         "template set", "template ls", "template inspect", "template rm", "pool set", "pool ls", "pool inspect", "pool rm"]


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
        os.write(self.master, text.encode())

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


# --- finding the daemon ---

def test_without_a_daemon_the_error_says_what_to_do(daemon):
    r = daemon.cli("ls", env={"CLOCHE_URL": "http://127.0.0.1:1"})
    assert "cloche serve" in host.one_line(r)


def test_a_bad_token_is_one_line(daemon):
    line = host.one_line(daemon.cli("ls", env={"CLOCHE_TOKEN": "cloche_" + "x" * 43}))
    assert "token" in line.lower()


def test_options_say_where_and_who(daemon):
    r = daemon.cli("ls", "--url", daemon.url, "--token", daemon.token, env={"CLOCHE_URL": "http://127.0.0.1:1", "CLOCHE_TOKEN": "no"})
    assert r.code == 0, r


def test_the_file_says_where_and_who_unless_others_can_read_it(daemon, tmp_path):
    folder = tmp_path / ".config/cloche"
    folder.mkdir(parents=True)
    (folder / "config").write_text(f"# mine\nurl = {daemon.url}\ntoken = {daemon.token}\n")
    env = {"HOME": str(tmp_path), "CLOCHE_URL": "", "CLOCHE_TOKEN": ""}
    (folder / "config").chmod(0o600)
    assert daemon.cli("ls", env=env).code == 0
    (folder / "config").chmod(0o644)
    assert "chmod 600" in host.one_line(daemon.cli("ls", env=env))


def test_the_unix_socket_needs_no_token(daemon):
    r = daemon.cli("ls", "--json", env={"CLOCHE_URL": f"unix:{daemon.data}/cloche.sock", "CLOCHE_TOKEN": ""})
    assert r.code == 0 and isinstance(r.json, list), r


@pytest.fixture(scope="module")
def secure(nothing_is_left_behind, tmp_path_factory):
    """A daemon that speaks HTTPS with a certificate nobody knows."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=cloche", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem",
                    "-out", folder / "cert.pem"], check=True, capture_output=True)
    with Daemon(None, "--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem") as d:
        d.cert = str(folder / "cert.pem")
        yield d


def test_an_unknown_certificate_is_refused(secure):
    assert "CLOCHE_CACERT" in host.one_line(secure.cli("ls"))
    assert "CLOCHE_CACERT" in host.one_line(secure.cli("exec", "x", "true"))


def test_everything_works_over_tls(secure):
    env = {"CLOCHE_CACERT": secure.cert}
    box = secure.cli("create", env=env).text.strip()
    data = os.urandom(2 << 20)
    r = secure.cli("exec", "-i", box, "cat", input=data, env=env)
    assert r.code == 0 and r.out == data, (r.code, r.err)
    with Terminal(secure, "shell", box, env={**secure.environment(), **env, "TERM": "xterm"}) as t:
        t.expect(r"\$ ")
        t.type("exit 6\r")
        assert t.wait() == 6
    assert secure.cli("rm", box, env=env).code == 0


# --- all commands ---

@pytest.mark.parametrize("command", COMMANDS + VERBS)
def test_help_names_every_option(daemon, command):
    r = daemon.cli(*command.split(), "--help")
    assert r.code == 0 and r.text.startswith(f"usage: cloche {command}".replace("checkpoint create", "checkpoint [create]")), r
    script = daemon.cli("completion", "bash").text
    options = re.search(rf"^\t'?{command}'?\) options='([^']*)'", script, re.M).group(1).split()
    later = {"--allow", "--secret", "--seccomp", "--cpu-time", "--help"}
    for option in set(options) - later:
        assert option in r.text, f"{command} --help does not name {option}"
    assert max(map(len, r.text.splitlines())) <= 120


@pytest.mark.parametrize("command", COMMANDS + VERBS)
def test_an_unknown_option_is_one_line(daemon, command):
    assert "--nonsense" in host.one_line(daemon.cli(*command.split(), "--nonsense"))


@pytest.mark.parametrize("args", [("inspect",), ("exec",), ("exec", "x"), ("rm",), ("cp", "a"), ("cp", "a", "b"), ("pause",), ("stats",),
                                  ("token",), ("token", "eat"), ("completion", "tcsh"), ("ls", "more"), ("create", "word"),
                                  ("create", "--memory", "lots"), ("create", "--meta", "x"), ("exec", "--timeout", "x", "b", "--", "true"),
                                  ("shell", "--detach-keys", "hyper-x", "b"), ("logs", "--stream", "x", "b"), ("cp", "a:/b", "c:/d"),
                                  ("checkpoint",), ("checkpoint", "a", "b", "c"), ("checkpoint", "--name", "x", "a", "b"), ("checkpoint", "--memory=some", "a"),
                                  ("checkpoint", "export", "a"), ("checkpoint", "import"), ("checkpoint", "import", "/no/such"), ("checkpoint", "rm"),
                                  ("restore",), ("restore", "--memory", "1G", "a", "b"), ("restore", "--count", "0", "a"), ("fork",), ("fork", "-n", "257", "a"),
                                  ("diff",), ("diff", "a", "b", "c"), ("promote", "a"), ("hibernate",), ("hibernate", "--memory", "x", "a"), ("wake",),
                                  ("template",), ("template", "eat"), ("template", "set"), ("template", "set", "--warm", "x", "a"),
                                  ("template", "set", "--warm-python", "@/no/such", "a"), ("template", "set", "--warm-python", "1", "--warm", "x", "a"),
                                  ("pool",), ("pool", "set", "a"), ("pool", "set", "--template", "t", "--min", "many", "a"),
                                  ("exec", "--code", "a", "1", "2"), ("exec", "--code", "--shell", "a", "1"), ("exec", "--code", "-i", "a", "-")])
def test_what_makes_no_sense_is_one_line(daemon, args):
    host.one_line(daemon.cli(*args))


@pytest.mark.parametrize("args", [("inspect", "nobody"), ("exec", "nobody", "--", "true"), ("rm", "nobody"), ("pause", "nobody"),
                                  ("logs", "nobody"), ("stats", "nobody"), ("events", "nobody"), ("cp", "nobody:/etc/passwd", "-"),
                                  ("cp", "/etc/passwd", "nobody:/x"), ("inspect", "../../info")])
def test_a_sandbox_that_is_not_there_is_one_line(daemon, args):
    host.one_line(daemon.cli(*args))


# --- create, ls, inspect, rm, pause, resume ---

def test_create_prints_the_id_and_rm_removes(daemon):
    r = daemon.cli("create", "--name", "c1", "--memory", "64M", "--cpus", "0.5", "--pids", "50", "--meta", "a=b", "--meta", "c=d", "--ttl", "1h",
                   "--idle", "30m", "-e", "X=1", "--workdir", "/work", "--timeout", "90s", "--tmpfs", "/scratch:size=1M")
    assert r.code == 0, r
    name = r.text.strip()
    info = daemon.cli("inspect", "c1").json
    assert info["id"] == name and info["memory"] == 64 << 20 and info["cpus"] == 0.5 and info["pids"] == 50
    assert info["metadata"] == {"a": "b", "c": "d"} and info["timeout"] == 3600 and info["idle"] == 1800
    assert info["env"] == {"X": "1"} and info["workdir"] == "/work" and info["exec_timeout"] == 90
    assert info["tmpfs"] == [{"path": "/scratch", "size": 1 << 20}]
    r = daemon.cli("rm", "c1")
    assert r.code == 0 and r.text == "c1\n", r
    assert daemon.cli("rm", "-f", "c1").code == 0
    assert "c1" in host.one_line(daemon.cli("rm", "c1"))


def test_create_json_is_the_whole_answer_and_key_gets_it_again(daemon):
    first = daemon.cli("create", "--json", "--key", "mine").json
    second = daemon.cli("create", "--json", "--key", "mine").json
    assert first["id"] == second["id"] and first["enforced"] and first["state"] == "running"
    assert daemon.cli("rm", first["id"]).code == 0


def test_ls_filters_and_escapes(daemon):
    a = daemon.create(name="ls-a", metadata={"team": "red", "evil": "\x1b[31mred\x1b[0m\u202e"})["id"]
    b = daemon.create(name="ls-b", metadata={"team": "blue"})["id"]
    try:
        r = daemon.cli("ls", "--meta", "team=red", "-q")
        assert r.text.split() == [a], r
        table = daemon.cli("ls", env={"LC_ALL": "C.UTF-8"})
        assert b"\x1b" not in table.out and b"\t" not in table.out and "\u202e" not in table.text
        assert "\\x1b[31mred" in table.text
        lines = table.text.splitlines()
        assert lines[0].split()[:4] == ["ID", "NAME", "STATE", "IMAGE"]
        assert any(line.startswith(a) and "ls-a" in line and "running" in line for line in lines)
        assert {x["id"] for x in daemon.cli("ls", "--json").json} >= {a, b}
        assert daemon.cli("pause", "ls-b").code == 0
        assert daemon.cli("ls", "--state", "paused", "-q").text.split() == [b]
        assert daemon.cli("resume", "ls-b").code == 0
        assert daemon.cli("ls", "--state", "paused", "-q").text == ""
        assert [x["id"] for x in daemon.cli("ls", "--all", "--json", "--meta", "team=blue").json] == [b]
    finally:
        assert daemon.cli("rm", "ls-a", "ls-b").code == 0


def test_a_table_is_cut_to_the_terminal(daemon, box):
    with Terminal(daemon, "ls", rows=10, columns=50) as t:
        assert t.wait() == 0
        lines = t.seen.decode().split("\r\n")
        assert len(lines) >= 2 and all(len(line) <= 50 for line in lines) and lines[0].startswith("ID")


def test_rm_all_removes_all(daemon):
    made = {daemon.create()["id"] for _ in range(3)}
    r = daemon.cli("rm", "--all", "--json")
    assert r.code == 0 and set(r.json) >= made, r
    assert daemon.cli("ls", "-q").text == ""


# --- exec ---

def test_exec_keeps_streams_apart_and_passes_the_exit_code(daemon, box):
    r = daemon.cli("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (r.code, r.out, r.err) == (7, b"out\n", b"err\n"), r


def test_exec_is_binary_safe_both_ways(daemon, box):
    data = bytes(range(256)) * 4096
    r = daemon.cli("exec", "-i", box, "cat", input=data)
    assert r.code == 0 and r.out == data, r


def test_exec_without_i_leaves_our_stdin_alone(daemon, box):
    r = daemon.cli("exec", box, "--", "cat", input=b"not for you")
    assert (r.code, r.out) == (0, b""), r


def test_exec_streams_as_it_comes(daemon, box):
    p = subprocess.Popen([str(host.CLOCHE), "exec", "-i", box, "--", "sh", "-c", "echo first; read x; echo got $x"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, env=daemon.environment())
    try:
        assert p.stdout.readline() == b"first\n"
        p.stdin.write(b"word\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"got word\n"
        p.stdin.close()
        assert p.wait(10) == 0
    finally:
        host.end(p)


def test_exec_options(daemon, box):
    r = daemon.cli("exec", "-e", "A=b c", "--cwd", "/tmp", "--user", "root", box, "--", "sh", "-c", "echo $A; pwd; id -u", env={"TAKEN": "ours"})
    assert r.text.split("\n") == ["b c", "/tmp", "0", ""], r
    assert daemon.cli("exec", "-e", "TAKEN", box, "--", "sh", "-c", "echo $TAKEN", env={"TAKEN": "ours"}).text == "ours\n"
    assert daemon.cli("exec", "--shell", box, "echo $((6 * 7)) | tr 4 5").text == "52\n"


@pytest.mark.parametrize("command,code", [(["/no/such"], 127), (["/etc/passwd"], 126), (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "exit 255"], 255)])
def test_exec_exit_codes(daemon, box, command, code):
    assert daemon.cli("exec", box, "--", *command).code == code


def test_exec_timeout_is_124_and_says_so(daemon, box):
    r = daemon.cli("exec", "--timeout", "300ms", box, "--", "sleep", "30")
    assert r.code == 124 and r.err.startswith(b"cloche: timeout"), r
    assert r.wall < 5


def test_exec_out_of_memory_is_137_and_says_so(daemon):
    daemon.create(name="small", memory="32M")
    try:
        r = daemon.cli("exec", "small", "--", "python3", "-c", "x = bytearray(200 << 20)")
        assert r.code == 137 and b"cloche: oom" in r.err, r
    finally:
        daemon.cli("rm", "small")


def test_exec_json_is_the_result(daemon, box):
    r = daemon.cli("exec", "--json", "-i", box, "--", "sh", "-c", "cat; echo e >&2; exit 3", input=b"in\n")
    assert r.code == 3 and r.json["stdout"] == "in\n" and r.json["stderr"] == "e\n" and r.json["verdict"]["cause"] == "exited", r


def test_exec_background_then_logs(daemon, box):
    x = daemon.cli("exec", "-d", box, "--", "sh", "-c", "echo one; echo err >&2; sleep 0.5; echo two").text.strip()
    r = daemon.cli("logs", "-f", box, x)
    assert (r.code, r.out, r.err) == (0, b"one\ntwo\n", b"err\n"), r
    r = daemon.cli("logs", box)
    assert (r.code, r.out, r.err) == (0, b"one\ntwo\n", b"err\n"), r
    assert daemon.cli("logs", "--stream", "stderr", box, x).out == b"err\n"
    table = daemon.cli("logs", "--list", box).text
    assert x in table and "ended" in table and "echo one" in table


def test_a_signal_goes_inside(daemon, box):
    p = subprocess.Popen([str(host.CLOCHE), "exec", box, "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done"],
                         stdout=subprocess.PIPE, env=daemon.environment())
    try:
        assert p.stdout.readline() == b"ready\n"
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 9
        assert p.stdout.read() == b"caught\n"
    finally:
        host.end(p)


def test_three_interrupts_leave_it_running(daemon, box):
    p = subprocess.Popen([str(host.CLOCHE), "exec", box, "--", "sh", "-c", "trap '' INT; echo ready; sleep 30"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=daemon.environment())
    try:
        assert p.stdout.readline() == b"ready\n"
        for _ in range(3):
            p.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert p.wait(10) == 130
        assert b"cloche logs -f " + box.encode() in p.stderr.read()
    finally:
        host.end(p)


def test_a_reader_that_leaves_ends_the_command(daemon, box):
    p = subprocess.Popen(f"'{host.CLOCHE}' exec {box} -- yes | head -n 1; exit ${{PIPESTATUS[0]}}", shell=True, executable="/bin/bash",
                         stdout=subprocess.PIPE, env=daemon.environment())
    try:
        assert p.communicate(timeout=20)[0] == b"y\n"
        assert p.returncode == 141
    finally:
        host.end(p)


def test_a_slow_reader_gets_everything(daemon, box):
    p = subprocess.Popen([str(host.CLOCHE), "exec", box, "--", "sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' x; echo end >&2"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=daemon.environment())
    try:
        time.sleep(0.5)
        rss = int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{p.pid}/status").read_text()).group(1))
        out = p.stdout.read()
        assert out == b"x" * 8000000
        assert p.stderr.read() == b"end\n" and p.wait(10) == 0
        assert rss < 60 << 10, f"{rss} kB"
    finally:
        host.end(p)


def test_exec_survives_a_crash_of_the_daemon(daemon, box):
    script = "i=0; while [ $i -lt 40 ]; do echo out $i; echo err $i >&2; i=$((i+1)); sleep 0.05; done; exit 11"
    p = subprocess.Popen([str(host.CLOCHE), "exec", box, "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=daemon.environment())
    try:
        time.sleep(0.6)
        daemon.kill9("api")
        out, err = p.communicate(timeout=30)
        assert p.returncode == 11, (out, err)
        assert out.decode().splitlines() == [f"out {i}" for i in range(40)]
        assert [x for x in err.decode().splitlines() if x.startswith("err")] == [f"err {i}" for i in range(40)]
    finally:
        host.end(p)


# --- shell ---

def shell(daemon, box, *args, **kw):
    return Terminal(daemon, "shell", *args, box, **kw)


def test_shell_is_a_terminal(daemon, box):
    with shell(daemon, box, rows=33, columns=101) as t:
        t.expect(r"\$ ")
        t.type("stty size; tty; echo $TERM\r")
        t.expect("33 101")
        t.expect("/dev/pts/")
        t.expect("xterm")
        t.resize(40, 120)
        time.sleep(0.3)
        t.type("stty size\r")
        t.expect("40 120")
        t.type("exit 5\r")
        assert t.wait() == 5 and t.restored


def test_shell_passes_ctrl_c_inside(daemon, box):
    with shell(daemon, box) as t:
        t.expect(r"\$ ")
        t.type("sleep 60\r")
        time.sleep(0.5)
        t.type("\x03")
        t.expect(r"\$ ")
        t.type("echo status $?\r")
        t.expect("status 130")
        t.type("\x04")
        t.wait()
        assert t.restored


def test_shell_detaches_and_comes_back_to_the_same(daemon, box):
    with shell(daemon, box) as t:
        t.expect(r"\$ ")
        t.type("state=kept; echo set\r")
        t.expect("set\r")
        t.type("\x10\x11")
        assert t.wait() == 0 and t.restored
        exec_id = re.search(rf"cloche shell {box} --attach (\w+)", t.seen.decode()).group(1)
    with shell(daemon, box, "--attach", exec_id, rows=30, columns=90) as t:
        t.expect("state=kept")  # the screen as it was left
        t.type("echo it is $state; stty size\r")
        t.expect("it is kept")
        t.expect("30 90")
        t.type("exit\r")
        assert t.wait() == 0 and t.restored


def test_shell_runs_a_command_and_other_keys(daemon, box):
    with shell(daemon, box, "--detach-keys", "ctrl-x") as t:
        t.expect(r"\$ ")
        t.type("\x18")
        assert t.wait() == 0 and t.restored
    with Terminal(daemon, "shell", box, "--", "sh", "-c", "test -t 0 && echo yes; exit 3") as t:
        t.expect("yes")
        assert t.wait() == 3


def test_shell_without_a_terminal_says_what_to_use(daemon, box):
    assert "exec -i" in host.one_line(daemon.cli("shell", box))


def test_the_terminal_is_restored_when_we_are_ended(daemon, box):
    with shell(daemon, box) as t:
        t.expect(r"\$ ")
        assert not t.restored
        t.p.send_signal(signal.SIGTERM)
        assert t.wait() == 143 and t.restored
        assert b"--attach" in t.seen


def test_shell_survives_a_crash_of_the_daemon(daemon, box):
    with shell(daemon, box) as t:
        t.expect(r"\$ ")
        t.type("state=kept\r")
        t.expect(r"\$ ")
        daemon.kill9("api")
        t.expect("connected again", 20)
        t.type("echo it is $state\r")
        t.expect("it is kept", 20)
        t.type("exit\r")
        assert t.wait() == 0 and t.restored


def test_exec_loses_nothing_to_a_restart(daemon, box):
    """Its output went straight to us, so the new daemon does not know how much of it we have."""
    script = 'i=0; while [ $((i += 1)) -le 40 ]; do echo "line $i"; sleep 0.1; done; exit 3'
    with subprocess.Popen([str(host.CLOCHE), "exec", box, "--", "sh", "-c", script], stdout=subprocess.PIPE,
                          env=daemon.environment()) as p:
        seen = [p.stdout.readline() for _ in range(10)]
        daemon.restart()
        seen += p.stdout.readlines()
        assert p.wait(20) == 3
    assert seen == [b"line %d\n" % i for i in range(1, 41)]


def test_an_old_oom_kill_is_not_the_end_of_a_later_exec(daemon):
    daemon.cli("create", "--name", "small", "--memory", "64M")
    eat = ["python3", "-c", "x = 'a' * (1 << 30)"]
    assert daemon.cli("exec", "small", "--", *eat).code == 137
    daemon.restart()
    r = daemon.cli("exec", "small", "--", "sh", "-c", "exit 3")
    assert (r.code, r.err) == (3, b""), r
    daemon.cli("rm", "small")


def test_exec_with_a_terminal(daemon, box):
    with Terminal(daemon, "exec", "-t", box, "--", "sh", "-c", "stty size; exit 4", rows=20, columns=70) as t:
        t.expect("20 70")
        assert t.wait() == 4 and t.restored


# --- cp ---

def test_cp_files_both_ways_with_their_modes(daemon, box, tmp_path):
    src = tmp_path / "tool"
    src.write_bytes(os.urandom(3 << 20))
    src.chmod(0o750)
    assert daemon.cli("cp", src, f"{box}:/tmp/renamed").code == 0
    assert daemon.cli("cp", src, f"{box}:/tmp").code == 0
    r = daemon.cli("exec", box, "--", "sh", "-c", "stat -c %a /tmp/renamed /tmp/tool; cksum < /tmp/tool")
    assert r.text.splitlines()[:2] == ["750", "750"], r
    back = tmp_path / "back"
    assert daemon.cli("cp", f"{box}:/tmp/tool", back).code == 0
    assert back.read_bytes() == src.read_bytes() and stat.S_IMODE(back.stat().st_mode) == 0o750
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "tool"]  # nothing half-made beside it
    folder = tmp_path / "into"
    folder.mkdir()
    assert daemon.cli("cp", f"{box}:/tmp/tool", folder).code == 0
    assert (folder / "tool").read_bytes() == src.read_bytes()


def test_cp_stdin_and_stdout(daemon, box):
    data = os.urandom(1 << 20)
    assert daemon.cli("cp", "-", f"{box}:/tmp/deep/er/x", input=data).code == 0
    assert daemon.cli("cp", f"{box}:/tmp/deep/er/x", "-").out == data


def make_tree(top):
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/file").write_text("hello")
    (top / "a/b/file").chmod(0o640)
    (top / "run").write_text("#!/bin/sh\necho ran\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("a/b/file")
    (top / "größe").write_bytes(b"x" * 100000)


def test_cp_folders_both_ways(daemon, box, tmp_path):
    src = tmp_path / "src"
    make_tree(src)
    os.mkfifo(src / "fifo")
    r = daemon.cli("cp", src, f"{box}:/tmp/new")
    assert r.code == 0, r
    assert daemon.cli("exec", box, "--", "sh", "-c", "/tmp/new/run; cat /tmp/new/link; stat -c %a /tmp/new/a/b/file").text == "ran\nhello640\n"
    assert daemon.cli("cp", src, f"{box}:/tmp/new").code == 0  # there already: below it
    assert daemon.cli("exec", box, "--", "cat", "/tmp/new/src/a/b/file").text == "hello"
    assert daemon.cli("cp", f"{src}/.", f"{box}:/tmp/content").code == 0
    assert daemon.cli("exec", box, "--", "cat", "/tmp/content/a/b/file").text == "hello"
    back = tmp_path / "back"
    r = daemon.cli("cp", f"{box}:/tmp/content", back)
    assert r.code == 0, r
    assert (back / "a/b/file").read_text() == "hello" and stat.S_IMODE((back / "a/b/file").stat().st_mode) == 0o640
    assert os.readlink(back / "link") == "a/b/file" and (back / "größe").stat().st_size == 100000
    assert daemon.cli("cp", f"{box}:/tmp/content", back).code == 0
    assert (back / "content/run").exists()


def test_cp_a_folder_to_stdout_is_a_tar(daemon, box, tmp_path):
    make_tree(tmp_path / "src")
    assert daemon.cli("cp", tmp_path / "src", f"{box}:/tmp/t").code == 0
    r = daemon.cli("cp", f"{box}:/tmp/t", "-")
    (tmp_path / "t.tar").write_bytes(r.out)
    with tarfile.open(tmp_path / "t.tar") as t:
        assert any(n.endswith("a/b/file") for n in t.getnames())


def test_cp_never_writes_outside_its_destination(daemon, box, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    daemon.exec(box, "sh", "-c", f"mkdir -p /tmp/evil && cd /tmp/evil && ln -s {tmp_path} out && echo evil > x && ln -s /etc abs")
    dst = tmp_path / "dst"
    dst.mkdir()
    (dst / "sub").symlink_to(tmp_path)  # an earlier copy may have left a link
    daemon.exec(box, "sh", "-c", "mkdir -p /tmp/evil/sub && echo evil > /tmp/evil/sub/victim")
    daemon.cli("cp", f"{box}:/tmp/evil/.", dst)
    assert victim.read_text() == "mine"
    assert (dst / "x").read_text() == "evil\n" and not (tmp_path / "x").exists()


def test_cp_of_a_large_folder_is_quick_and_small(daemon, box, tmp_path):
    daemon.exec(box, "sh", "-c", "mkdir /tmp/d; head -c 60000000 /dev/urandom > /tmp/d/big; cksum < /tmp/d/big")
    r = daemon.cli("cp", f"{box}:/tmp/d", tmp_path / "d")
    assert r.code == 0 and r.wall < 10, r
    assert (tmp_path / "d/big").stat().st_size == 60000000


def test_cp_that_is_killed_leaves_what_was_there(daemon, box, tmp_path):
    daemon.exec(box, "sh", "-c", "mkfifo /tmp/p; head -c 100000000 /dev/zero > /tmp/big")
    (tmp_path / "f").write_text("old")
    p = subprocess.Popen([str(host.CLOCHE), "cp", f"{box}:/tmp/big", str(tmp_path / "f")], env=daemon.environment())
    time.sleep(0.08)
    p.kill()
    p.wait()
    assert (tmp_path / "f").read_bytes()[:3] in (b"old", b"\0\0\0") and [x.name for x in tmp_path.iterdir()] == ["f"]


def test_cp_into_a_full_sandbox_says_so(daemon, tmp_path):
    daemon.create(name="full", disk="4M")
    (tmp_path / "big").write_bytes(b"x" * 20000000)
    try:
        assert "No space" in host.one_line(daemon.cli("cp", tmp_path / "big", "full:/tmp/big"))
    finally:
        daemon.cli("rm", "full")


def test_cp_says_what_is_missing(daemon, box, tmp_path):
    assert "no/such" in host.one_line(daemon.cli("cp", f"{box}:/no/such", tmp_path))
    assert "no-such" in host.one_line(daemon.cli("cp", tmp_path / "no-such", f"{box}:/tmp"))
    (tmp_path / "f").write_text("x")
    host.one_line(daemon.cli("cp", tmp_path / "f", f"{box}:/proc/nowhere"))


def test_cp_shows_progress_on_a_terminal_only(daemon, box, tmp_path):
    # A FIFO that is slow keeps the copy from ending within half a second.
    with Terminal(daemon, "exec", "-t", box, "--", "true") as t:
        t.wait()
    script = f"(head -c 100000 /dev/zero; sleep 1; head -c 100000 /dev/zero; sleep 0.5) | '{host.CLOCHE}' cp - {box}:/tmp/slow"
    master, slave = pty.openpty()
    p = subprocess.Popen(["sh", "-c", script], stderr=slave, stdin=subprocess.DEVNULL, env=daemon.environment())
    try:
        assert p.wait(20) == 0
        assert select.select([master], [], [], 0)[0]
        assert b"stdin" in os.read(master, 65536)
    finally:
        host.end(p)
        os.close(slave)
        os.close(master)
    r = daemon.cli("cp", "-", f"{box}:/tmp/slow2", input=b"x" * 1000000)
    assert (r.code, r.err) == (0, b"")


# --- stats, top, events, audit, token ---

def test_stats_and_top(daemon, box):
    daemon.exec(box, "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    r = daemon.cli("stats", box)
    assert r.code == 0 and {line.split()[0] for line in r.text.splitlines()} >= {"cpu", "memory", "processes", "disk"}, r
    assert daemon.cli("stats", "--json", box).json["cpu_ms"] > 0
    table = daemon.cli("top", "--once").text.splitlines()
    assert table[0].split()[:4] == ["SANDBOX", "STATE", "CPU%", "MEMORY"] and any(line.startswith(box) for line in table)
    found = daemon.cli("top", "--json").json
    assert box in {x["id"] for x in found}


def test_top_is_live_and_q_quits(daemon, box):
    x = daemon.post(f"/v1/sandboxes/{box}/execs", {"shell": "while :; do :; done", "background": True}).json["id"]
    with Terminal(daemon, "top", "--interval", "300ms", rows=12, columns=90) as t:
        t.expect("SANDBOX +STATE +CPU%")
        busy = t.expect(rf"{box} +running +(\d\d+\.\d)", 15)
        assert busy
        t.type("q")
        assert t.wait() == 0 and t.restored
        assert b"\x1b[?1049l" in t.seen
    daemon.delete(f"/v1/sandboxes/{box}/execs/{x}")


def test_events_tell_what_happened(daemon):
    name = daemon.create(name="ev")["id"]
    daemon.exec("ev", "true")
    r = daemon.cli("events", "ev")
    assert r.code == 0 and "sandbox.created" in r.text and "exec.ended" in r.text, r
    p = subprocess.Popen([str(host.CLOCHE), "events", "-f", "--json"], stdout=subprocess.PIPE, env=daemon.environment())
    try:
        time.sleep(0.5)
        daemon.delete("/v1/sandboxes/ev")
        end = time.monotonic() + 10
        while True:
            v = json.loads(p.stdout.readline())
            if v["sandbox"] == name and (v.get("kind") or v.get("event")) == "sandbox.deleted":
                break
            assert time.monotonic() < end
    finally:
        host.end(p)


def test_audit_shows_and_verifies(daemon, box):
    daemon.exec(box, "true")
    r = daemon.cli("audit", "--sandbox", box)
    assert r.code == 0 and "sandbox.create" in r.text and "exec.end" in r.text, r
    records = [json.loads(line) for line in daemon.cli("audit", "--json", "--kind", "exec.end").text.splitlines()]
    assert records and all(x["kind"] == "exec.end" for x in records)
    assert daemon.cli("audit", "verify", "--online").code == 0


def test_audit_verify_needs_no_daemon(daemon, box):
    r = daemon.cli("audit", "verify", "--data", daemon.data, env={"CLOCHE_URL": "http://127.0.0.1:1"})
    assert r.code == 0 and r.text.startswith("ok: ") and r.text.count("\n") == 1, r


def test_audit_verify_finds_a_changed_byte(daemon, box, tmp_path):
    log = bytearray((daemon.data / "audit.log").read_bytes())
    log[len(log) // 2] ^= 1
    (tmp_path / "audit.log").write_bytes(log)
    r = daemon.cli("audit", "verify", tmp_path / "audit.log")
    assert r.code == 1 and r.text.startswith("BROKEN: ") and r.text.count("\n") == 1, r
    assert daemon.cli("audit", "verify", "--json", tmp_path / "audit.log").json["ok"] is False
    host.one_line(daemon.cli("audit", "verify", tmp_path / "none"))


def test_tokens_come_and_go(daemon):
    token = daemon.cli("token", "create", "--name", "ci", "--scope", "read", "--expires", "1h").text.strip()
    assert token.startswith("cloche_")
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": token}).code == 0
    assert "scope" in host.one_line(daemon.cli("create", env={"CLOCHE_TOKEN": token}))
    mine = [t for t in daemon.cli("token", "ls", "--json").json if t["name"] == "ci"]
    assert len(mine) == 1 and token not in json.dumps(mine)
    assert "ci" in daemon.cli("token", "ls").text
    new = daemon.cli("token", "rotate", mine[0]["id"]).text.strip()
    assert new != token
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": token}).code == 125
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": new}).code == 0
    ident = [t for t in daemon.cli("token", "ls", "--json").json if t["name"] == "ci"][0]["id"]
    assert daemon.cli("token", "rm", ident).code == 0
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": new}).code == 125


# --- completion ---

def complete(daemon, *words):
    """What bash offers for the last of these words."""
    script = ('source <(cloche completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; '
              '_cloche; printf "%s\\n" "${COMPREPLY[@]}"')
    env = {**daemon.environment(), "PATH": f"{host.BUILD}:{os.environ['PATH']}"}
    r = subprocess.run(["bash", "--norc", "-c", script, "bash", *words], env=env, capture_output=True, timeout=20)
    assert r.returncode == 0 and r.stderr == b"", r
    return set(r.stdout.decode().split())


def test_bash_completes_commands_options_and_names(daemon):
    daemon.create(name="tab-one")
    daemon.create(name="tab-two")
    try:
        assert complete(daemon, "cloche", "in") == {"inspect"}
        assert set(COMMANDS) | {"run", "serve", "doctor"} <= complete(daemon, "cloche", "")
        assert complete(daemon, "cloche", "exec", "--back") == {"--background"}
        assert complete(daemon, "cloche", "exec", "tab-") == {"tab-one", "tab-two"}
        assert complete(daemon, "cloche", "cp", "tab-o") == {"tab-one:"}
        assert complete(daemon, "cloche", "token", "r") == {"rotate", "rm"}
        assert complete(daemon, "cloche", "checkpoint", "i") == {"inspect", "import"}
        assert complete(daemon, "cloche", "checkpoint", "tab-o") == {"tab-one"}
        assert complete(daemon, "cloche", "checkpoint", "create", "tab-o") == {"tab-one"}
        assert complete(daemon, "cloche", "checkpoint", "create", "--lab") == {"--label"}
        assert complete(daemon, "cloche", "pool", "set", "--te") == {"--template"}
        assert complete(daemon, "cloche", "template", "") == {"set", "ls", "inspect", "rm"}
        assert complete(daemon, "cloche", "exec", "tab-one", "--", "") == set()
    finally:
        daemon.cli("rm", "tab-one", "tab-two")


def test_completion_is_quick_and_silent_without_a_daemon(daemon):
    r = daemon.cli("completion", "names", env={"CLOCHE_URL": "http://127.0.0.1:1"})
    assert (r.code, r.out, r.err) == (0, b"", b"") and r.wall < 2


def test_completion_knows_the_options_of_the_other_programs(daemon):
    script = daemon.cli("completion", "bash").text
    for command in ("run", "serve", "doctor"):
        known = set(re.search(rf"^\t{command}\) options='([^']*)'", script, re.M).group(1).split())
        told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", daemon.cli(command, "--help").text))
        assert told <= known, f"{command}: {told - known}"


def with_path(daemon):
    return {**daemon.environment(), "PATH": f"{host.BUILD}:{os.environ['PATH']}", "TERM": "dumb"}


def test_fish_completes(daemon, tmp_path):
    daemon.create(name="tab-one")
    (tmp_path / "cloche.fish").write_text(daemon.cli("completion", "fish").text)

    def offered(line):
        r = subprocess.run(["fish", "--no-config", "-c", f"source {tmp_path}/cloche.fish; complete -C '{line}'"], env=with_path(daemon),
                           capture_output=True, timeout=20)
        assert r.returncode == 0 and r.stderr == b"", r
        return {x.split("\t")[0] for x in r.stdout.decode().splitlines()}

    try:
        assert offered("cloche insp") == {"inspect"}
        assert set(COMMANDS) <= offered("cloche ")
        assert offered("cloche exec --backg") == {"--background"}
        assert offered("cloche exec tab-") == {"tab-one"}
        assert offered("cloche token ro") == {"rotate"}
        assert offered("cloche checkpoint exp") == {"export"}
        assert offered("cloche checkpoint create tab-") == {"tab-one"}
        assert offered("cloche checkpoint create --lab") == {"--label"}
        assert offered("cloche checkpoint create --hostn") == set()  # the other create's
    finally:
        daemon.cli("rm", "tab-one")


def test_zsh_completes(daemon):
    daemon.create(name="tab-one")
    try:
        with Terminal(daemon, program=["zsh", "-f", "-i"], env=with_path(daemon)) as t:
            t.type("PS1='%# '; autoload -U compinit; compinit -u -D; source <(cloche completion zsh); echo go''ing\r")
            t.expect("going", 20)
            for line, more in (("cloche insp", "ect "), ("cloche exec --backg", "round "), ("cloche exec tab-", "one "), ("cloche token ro", "tate "),
                               ("cloche checkpoint exp", "ort "), ("cloche checkpoint create tab-", "one "), ("cloche pool set --templ", "ate ")):
                t.type("\x15" + line + "\t")
                t.expect(re.escape(line + more), 20)
    finally:
        daemon.cli("rm", "tab-one")
