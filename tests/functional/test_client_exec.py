"""`cloche exec` and `cloche shell`, against a real daemon."""
import pathlib
import re
import signal
import subprocess
import time

import pytest

import host
from cli import Terminal, box, daemon, nothing_is_left_behind  # noqa: F401


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


def test_what_was_not_a_mistake_of_the_kernel_is_told_without_its_words(daemon, box):
    daemon.cli("pause", box)
    line = host.one_line(daemon.cli("exec", box, "--", "true"))
    daemon.cli("resume", box)
    assert "is paused; resume" in line, line
    assert "template" in host.one_line(daemon.cli("exec", "--code", box, "1")).split("; ")[1]


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
    shown = daemon.cli("exec", box, "--", "echo", "shown")  # has had its reader: the newest one that is kept is still the other
    assert shown.out == b"shown\n" and daemon.cli("logs", box).out == r.out
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
        t.expect("reconnected", 20)
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
