"""Standard input, output and error, exit codes."""
import hashlib
import os
import subprocess
import time

import pytest

from host import agent_of, children, one_line, python, run, sh, wait_for


def test_stdout_and_stderr_stay_apart():
    r = sh("echo out; echo err >&2; echo out2")
    assert (r.code, r.out, r.err) == (0, b"out\nout2\n", b"err\n"), r


def test_every_byte_passes_unchanged_in_both_directions():
    data = bytes(range(256)) * 40
    r = run("--", "cat", input=data)
    assert r.code == 0 and r.out == data, r


def test_ten_megabytes_of_stdin_come_back_unchanged():
    data = os.urandom(10 << 20)
    r = run("--output-limit", "0", "--", "cat", input=data)
    assert r.code == 0 and r.err == b""
    assert hashlib.sha256(r.out).digest() == hashlib.sha256(data).digest()


def test_stdin_ends_when_ours_ends():
    assert sh("cat; echo end", input=b"x\n").out == b"x\nend\n"
    assert sh("cat; echo end", stdin=subprocess.DEVNULL).out == b"end\n"


def test_a_closed_stdin_is_an_empty_one():
    r = sh("cat; echo $?", input=None, stdin=None, preexec_fn=lambda: os.close(0))
    assert (r.code, r.out) == (0, b"0\n"), r


def test_a_stdin_that_can_not_be_read_is_told():
    folder = os.open("/", os.O_RDONLY)
    r = run("--", "cat", stdin=folder)
    os.close(folder)
    assert r.code == 0 and r.out == b"" and b"stdin: Is a directory" in r.err, r


def test_closed_stdout_and_stderr_do_no_harm():
    r = sh("echo x; echo y >&2; exit 3", stdout=None, stderr=None, preexec_fn=lambda: (os.close(1), os.close(2)))
    assert r.code == 3


def test_a_command_that_reads_nothing_ends_though_stdin_stays_open(popen):
    p = popen("--", "true")
    assert p.wait(5) == 0


def test_a_reader_that_goes_away_does_not_hang_the_run():
    start = time.monotonic()
    p = subprocess.run(["sh", "-c", '"$0" run --output-limit 0 -- yes | head -c 10', str(__import__("host").CLOCHE)],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert p.stdout == b"y\ny\ny\ny\ny\n"
    assert time.monotonic() - start < 5


def test_stdin_larger_than_the_command_wants_is_dropped():
    r = run("--", "head", "-c", "3", input=b"x" * (4 << 20))
    assert (r.code, r.out) == (0, b"xxx"), r


@pytest.mark.parametrize("code", [0, 1, 2, 42, 124, 125, 126, 127, 200, 255])
def test_the_exit_code_is_the_command_s(code):
    r = sh(f"exit {code}")
    assert r.code == code and r.err == b"", r


@pytest.mark.parametrize("signal", [1, 2, 3, 6, 9, 11, 13, 15])
def test_a_command_that_kills_itself_gives_128_and_the_signal(signal):
    r = sh(f"kill -{signal} $$")
    assert r.code == 128 + signal, r


def test_a_command_that_is_not_there_is_127():
    assert "no-such-command" in one_line(run("--", "no-such-command"), 127)
    assert "/nowhere/at/all" in one_line(run("--", "/nowhere/at/all"), 127)
    one_line(run("--", "/etc/passwd/x"), 127)


def test_a_command_that_cannot_be_executed_is_126():
    assert "/etc/passwd" in one_line(run("--", "/etc/passwd"), 126)
    one_line(run("--", "/tmp"), 126)


def test_arguments_arrive_as_they_are():
    args = ["", " ", "a b", "'\"$x`", "\n", "é", "-n", "--", "x" * 5000]
    r = run("--", "/usr/bin/python3", "-c", "import sys,json; print(json.dumps(sys.argv[1:]))", *args)
    assert r.json == args, r


def test_options_end_at_the_command_even_without_dashes():
    assert run("echo", "--json", "-t").out == b"--json -t\n"


def test_stdio_inside_are_pipes_and_nothing_else_is_open():
    r = python("import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1],"
               " [os.isatty(i) for i in range(3)])")
    assert r.out == b"[0, 1, 2] [False, False, False]\n", r


def test_our_own_descriptors_do_not_get_in(tmp_path):
    f = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(f, True)
    try:
        r = sh("ls /proc/self/fd", pass_fds=[f])
        assert r.out.split() == [b"0", b"1", b"2", b"3"], r
    finally:
        os.close(f)


def test_a_background_process_that_keeps_stdout_open_does_not_hang_the_run():
    r = sh("setsid sleep 100 & echo started")
    assert (r.code, r.out) == (0, b"started\n") and r.wall < 2, r


def test_a_background_process_that_keeps_writing_does_not_hang_the_run():
    r = sh("(setsid yes &) ; sleep 0.1; exit 5")
    assert r.code == 5 and r.wall < 3, r


def test_help_goes_to_stdout():
    r = run("--help")
    assert r.code == 0 and r.err == b"" and b"--memory" in r.out, r


@pytest.mark.parametrize("left_behind", [False, True])
def test_time_runs_while_nobody_reads_our_output(popen, left_behind):
    script = "head -c 900000 /dev/zero; exec sleep 60"
    p = popen("--timeout", "1s", "--", "sh", "-c", f"({script}) & sleep 0.2" if left_behind else script)
    agent = wait_for(lambda: agent_of(p.pid))
    wait_for(lambda: children(agent))
    wait_for(lambda: not children(agent), 4, "the end of the command")
    out, err = p.communicate(timeout=20)
    assert 0 < len(out) <= 900000
    if not left_behind:
        assert p.returncode == 124 and b"--timeout" in err


def test_a_slow_reader_gets_everything(popen):
    p = popen("--", "sh", "-c", "head -c 700000 /dev/zero; exit 3")
    time.sleep(0.5)
    out, err = p.communicate(timeout=20)
    assert (len(out), p.returncode, err) == (700000, 3, b"")


@pytest.mark.parametrize("user", ["user", "root", "1234"])
def test_stdio_can_be_opened_by_name(user):
    r = run("--user", user, "--", "sh", "-c", "read x < /dev/stdin; echo out $x > /dev/stdout; echo err > /dev/stderr", input=b"in\n")
    assert (r.code, r.out, r.err) == (0, b"out in\n", b"err\n"), r


def test_a_umask_that_keeps_others_out_keeps_nobody_out_of_the_sandbox():
    for mask in (0o077, 0o777):
        r = sh("umask; stat -c %a /; touch x && stat -c %a . x", "--workdir", "/new/folder", preexec_fn=lambda: os.umask(mask))
        assert (r.code, r.out) == (0, b"0022\n755\n755\n644\n"), r
