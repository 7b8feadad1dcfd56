"""Noid's WebSockets: streamed commands and the console; and a day in the life of noid-js."""
import json
import struct
import time

import pytest

from client import BINARY, PING, PONG, RESIZE, STDERR, STDOUT, TEXT, Refused, Socket


def ended(code):
    return [{"exit_code": code, "timed_out": False, "truncated": False}]


def running(d, vm):
    return [x for x in d.get(f"/v1/sandboxes/{vm}/execs").json["execs"] if x["state"] == "running"]


def eventually(what, seconds=5):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_output_comes_as_it_is_said(noid, vm):
    s = noid.spawn(vm, "sh", "-c", "echo one; sleep 1; echo two; echo bad >&2; exit 5")
    start = time.monotonic()
    assert s.next() == (BINARY, b"\x01one\n")
    assert time.monotonic() - start < 0.9
    assert s.rest() == {STDOUT: b"two\n", STDERR: b"bad\n", "texts": ended(5), "code": 1000}


def test_environment(noid, vm):
    assert noid.spawn(vm, "sh", "-c", "echo $A$B", env=["A=1", "B=2"]).rest()[STDOUT] == b"12\n"


def test_a_lot_of_output(noid, vm):
    got = noid.spawn(vm, "head", "-c", "20000000", "/dev/zero").rest()
    assert len(got[STDOUT]) == 20000000 and got["texts"] == ended(0)


def test_stdin_sent_at_once_is_not_lost(noid, vm):
    for _ in range(5):
        s = noid.spawn(vm, "cat")
        for part in (b"a\n", b"b" * 70000, b"\nc"):
            s.stdin(part)
        s.text('{"type":"stdin_close"}')
        got = s.rest()
        assert got[STDOUT] == b"a\n" + b"b" * 70000 + b"\nc" and got["texts"] == ended(0)


def test_nonsense_is_passed_over(noid, vm):
    s = noid.spawn(vm, "cat")
    for data in (b"", b"\x00", b"\x09abc", b"\x04", b"\x04{", b'\x04{"rows":-1}', b"\x01out", b"\x04\x00\x10\x00\x20"):
        s.frame(BINARY, data)
    for data in ("", "{", "[]", '{"type":"none"}', "hello"):
        s.text(data)
    s.stdin(b"x")
    s.text('{"type":"stdin_close"}')
    assert s.rest() == {STDOUT: b"x", STDERR: b"", "texts": ended(0), "code": 1000}


def test_a_terminal_and_its_size(noid, vm):
    s = noid.spawn(vm, "sh", "-c", "stty size; read x; stty size; read x; stty size; echo err >&2", tty=True)
    s.until(b"24 80\r\n")
    s.frame(BINARY, bytes([RESIZE]) + json.dumps({"cols": 120, "rows": 40}).encode())
    s.stdin(b"\r")
    s.until(b"40 120\r\n")
    s.frame(BINARY, bytes([RESIZE]) + struct.pack(">HH", 50, 132))
    s.stdin(b"\r")
    got = s.rest()
    assert got[STDOUT].endswith(b"50 132\r\nerr\r\n") and got[STDERR] == b"" and got["texts"] == ended(0)


def test_what_can_not_be_run(noid, vm):
    got = noid.spawn(vm, "no-such-program").rest()
    assert b"no-such-program" in got[STDERR] and got["texts"] == ended(127)


@pytest.mark.parametrize("first", ["{", "[]", "", '{"command":[]}', '{"command":"ls"}',
                                   '{"command":["ls"],"env":["A"]}'])
def test_requests_that_make_no_sense(noid, vm, first):
    s = Socket(noid, f"/v1/vms/{vm}/exec")
    s.text(first)
    got = s.rest()
    assert len(got["texts"]) == 1 and list(got["texts"][0]) == ["error"] and isinstance(got["texts"][0]["error"], str)
    assert got["code"] == 1008


def test_pings_are_answered(noid, vm):
    s = noid.spawn(vm, "sleep", "1")
    s.frame(PING, b"are you there")
    assert s.next() == (PONG, b"are you there")
    assert s.rest()["texts"] == ended(0)


def test_refusals_come_before_the_upgrade(noid, vm):
    wrong = "noid_tok_" + "0" * 64
    for path, token, status in [("/v1/vms/none/exec", "", 404), ("/v1/vms/none/console", "", 404),
                                (f"/v1/vms/{vm}/exec", wrong, 401), (f"/v1/vms/{vm}/console", wrong, 401)]:
        with pytest.raises(Refused) as e:
            Socket(noid, path, token=token)
        assert e.value.status == status and list(json.loads(e.value.body)) == ["error"]


def test_who_hangs_up_leaves_no_command_waiting(d, noid, vm):
    s = noid.spawn(vm, "cat")
    eventually(lambda: len(running(d, vm)) == 1)
    s.close()
    eventually(lambda: not running(d, vm))
    s = noid.spawn(vm, "sh", "-c", "echo up; cat", tty=True)
    s.until(b"up")
    s.close()
    eventually(lambda: not running(d, vm))
    # One that needs nobody goes on to its end.
    s = noid.spawn(vm, "sh", "-c", "echo up; sleep 1; echo done > /root/done")
    s.until(b"up")
    s.close()
    eventually(lambda: noid.exec(vm, "cat", "/root/done")["stdout"] == "done\n")


def test_destroying_a_vm_ends_its_sockets(noid):
    noid.create("doomed")
    s, c = noid.spawn("doomed", "sh", "-c", "echo up; sleep 50"), noid.console("doomed")
    s.until(b"up")
    assert noid.call("DELETE", "/v1/vms/doomed").status == 204
    assert s.rest()["texts"][0]["exit_code"] == 137
    assert c.rest()["code"] == 1000


# --- the console ---

def test_the_console_is_a_login_shell_of_root(noid, vm):
    with noid.console(vm) as c:
        c.stdin(b"shopt -q login_shell && echo yes-$(id -u)-$PWD-$TERM; tty\r")
        c.until(b"yes-0-/root-xterm-256color\r\n/dev/pts/")


def test_one_comes_back_to_it(d, noid, vm):
    c = noid.console(vm)
    # As noid-js hands its environment over: typed right after connecting.
    c.stdin(b" export SECRET='it'\\''s'\r")
    c.stdin(b" echo __SYNC_$((40 + 2))__\r")
    c.until(b"__SYNC_42__")
    c.stdin(b"cd /var/log; sleep 1; echo la''ter > /root/later\r")
    c.bye()
    assert len(running(d, vm)) == 1
    with noid.console(vm) as c:
        c.until(b"__SYNC_42__")  # what was on the screen
        c.stdin(b"echo [$SECRET] $PWD $(cat /root/later)\r")
        c.until(b"[it's] /var/log later")
    assert len(running(d, vm)) == 1


def test_two_look_at_the_same_one(d, noid, vm):
    with noid.console(vm) as a, noid.console(vm) as b:
        a.stdin(b"echo from-$((1 + 0))\r")
        b.until(b"from-1\r\n")
        b.stdin(b"echo from-$((1 + 1))\r")
        a.until(b"from-2\r\n")
        b.frame(BINARY, bytes([RESIZE]) + b'{"cols":99,"rows":33}')
        b.stdin(b"stty size\r")
        a.until(b"33 99\r\n")
        assert len(running(d, vm)) == 1


def test_after_its_end_there_is_a_new_one(noid, vm):
    c = noid.console(vm)
    c.stdin(b"OLD=1; exit\r")
    got = c.rest()
    assert got["texts"] == [] and got["code"] == 1000
    with noid.console(vm) as c:
        c.stdin(b"echo new-[$OLD]\r")
        c.until(b"new-[]\r\n")


def test_the_console_has_no_end_by_itself(d, noid):
    d.create(name="timed", user="root", exec_timeout=1)
    with noid.console("timed") as c:
        c.stdin(b"sleep 2; echo still-$((1))\r")
        c.until(b"still-1\r\n")
    noid.call("DELETE", "/v1/vms/timed")


# --- all of it ---

def test_what_the_readme_does(noid):
    """Create, exec, spawn with streaming, console with an environment, destroy."""
    assert noid.create("my-vm", cpus=2, mem_mib=4096)["cpus"] == 2
    assert noid.exec("my-vm", "echo", "Hello from Noid!")["stdout"] == "Hello from Noid!\n"
    r = noid.exec("my-vm", "sh", "-c", 'echo "Hello from $MY_APP on $(hostname)"', env=["MY_APP=sdk", "STAGE=one"])
    assert r["stdout"].startswith("Hello from sdk on ") and r["exit_code"] == 0
    s = noid.spawn("my-vm", "python3", "-uc", "import time; [print(i) or time.sleep(0.2) for i in range(5)]")
    times, said = [], b""
    while (f := s.next())[0] != TEXT:
        times.append(time.monotonic())
        said += f[1][1:]
    assert said == b"0\n1\n2\n3\n4\n" and len(times) >= 4 and times[-1] - times[0] > 0.5
    assert json.loads(f[1])["exit_code"] == 0
    s.close()
    with noid.console("my-vm") as c:
        c.stdin(b" export CONSOLE_SESSION='true'\r echo __MARK__\r")
        c.until(b"__MARK__")
        c.stdin(b'echo "Hello, CONSOLE_SESSION=$CONSOLE_SESSION"\r')
        c.until(b"Hello, CONSOLE_SESSION=true")
    assert noid.exec("my-vm", "false")["exit_code"] == 1
    assert noid.call("DELETE", "/v1/vms/my-vm").status == 204
    assert noid.call("POST", "/v1/vms/my-vm/exec", {"command": ["true"]}).status == 404
