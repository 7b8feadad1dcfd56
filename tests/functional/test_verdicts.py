"""Each way a run can end, told by its verdict."""
import datetime
import json
import os
import re
import signal
import subprocess
import time

import pytest

import host
from host import agent_of, python, run, sh, wait_for

MIB = 1 << 20
KEYS = ["id", "exit_code", "signal", "verdict", "stdout", "stderr", "truncated", "usage", "started_at", "enforced"]
USAGE = ["wall_ms", "cpu_ms", "memory_peak", "pids_peak", "disk_used", "io_bytes", "net_bytes"]


def judged(r, cause, code, limit=None):
    """The verdict, after a look at what all have in common."""
    j = r.json
    assert list(j) == KEYS and list(j["usage"]) == USAGE, r
    v = j["verdict"]
    assert (v["cause"], j["exit_code"], r.code) == (cause, code, code), r
    kind = ["oom_kind"] if cause == "oom" else []
    kills = [k for k in ("oom_kills", "warning") if k in v]
    assert list(v) == ["cause", "detail", *kind, *kills, "limit", "peak"] and v["detail"], r
    assert v["limit"] == limit, r
    assert (v["peak"] is None) == (limit is None), r
    assert r.err == b"", r
    return v


def test_json_holds_the_whole_result():
    before = datetime.datetime.now(datetime.timezone.utc)
    r = sh("printf 'é\\n'; echo e >&2; sleep 0.05; exit 3", "--json")
    judged(r, "exited", 3)
    j = r.json
    assert (j["stdout"], j["stderr"], j["signal"]) == ("é\n", "e\n", None)
    assert j["truncated"] == {"stdout": False, "stderr": False, "stdout_dropped": 0, "stderr_dropped": 0,
                              "full_url": None}
    assert re.fullmatch("[a-z0-9]{20,40}", j["id"])
    started = datetime.datetime.fromisoformat(j["started_at"].replace("Z", "+00:00"))
    assert abs((started - before).total_seconds()) < 5
    u = j["usage"]
    assert 50 <= u["wall_ms"] < 2000 and u["cpu_ms"] < 1000 and 100000 < u["memory_peak"] < 64 * MIB
    assert 2 <= u["pids_peak"] < 10 and u["net_bytes"] == 0
    assert r.out.endswith(b"}\n") and r.out.count(b"\n") == 1


def test_two_results_have_two_ids():
    assert run("--json", "--", "true").json["id"] != run("--json", "--", "true").json["id"]


def test_json_stays_json_whatever_the_output_is():
    data = bytes(range(256)) + b"\xed\xa0\x80\xf8\x88\xc0\xaf\xe2\x82"
    r = run("--json", "--", "cat", input=data)
    text = r.json["stdout"]
    assert text.startswith("".join(map(chr, range(128)))) and r.out.decode("utf-8")
    assert "\ud800" not in text


def test_enforced_lists_every_mechanism():
    e = run("--json", "--", "true").json["enforced"]
    assert {"isolation", "namespaces", "user", "root", "layers", "proc", "network", "capabilities", "no_new_privs",
            "seccomp", "cgroups", "memory", "pids", "cpus", "disk", "inodes"} <= set(e)
    for ns in "user pid mount net ipc uts cgroup".split():
        assert ns in e["namespaces"]
    assert e["capabilities"] == "none" and e["network"] == "none"
    assert str(512 * MIB) in e["memory"] and "256" in e["pids"]
    if host.libc.syscall(444, None, 0, 1) > 0:  # landlock_create_ruleset: the version
        assert "landlock" in e


def test_enforced_says_what_namespaces_there_really_are(popen):
    p = popen("--", "sh", "-c", "echo ready; cat")
    assert p.stdout.readline() == b"ready\n"
    agent = wait_for(lambda: agent_of(p.pid))
    for ns in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"):
        name = "pid_for_children" if ns == "pid" else ns
        assert os.readlink(f"/proc/{agent}/ns/{ns}") != os.readlink(f"/proc/self/ns/{name}"), ns
    command = host.children(agent)[0]
    assert os.readlink(f"/proc/{command}/ns/time") == os.readlink(f"/proc/{agent}/ns/time_for_children")
    p.communicate(b"", timeout=5)


def test_enforced_leaves_out_a_limit_that_was_lifted():
    e = run("--json", "--pids", "0", "--cpus", "0", "--memory", "0", "--", "true").json["enforced"]
    assert not {"pids", "cpus", "memory"} & set(e)


def test_signaled_a_command_that_crashes():
    r = sh("kill -SEGV $$", "--json")
    judged(r, "signaled", 139)
    assert r.json["signal"] == 11


def test_timeout_the_wall_time_is_over():
    r = sh("echo before; sleep 100", "--json", "--timeout", "300ms")
    v = judged(r, "timeout", 124, 300)
    assert 300 <= v["peak"] < 1500 and r.wall < 2
    assert r.json["stdout"] == "before\n" and r.json["signal"] == 9


def test_timeout_is_told_on_stderr_in_one_line():
    r = sh("echo before; sleep 100", "--timeout", "200ms")
    assert (r.code, r.out) == (124, b"before\n")
    assert re.fullmatch(rb"cloche: timeout: .*0\.2 s.*\n", r.err), r


def test_timeout_kills_daemons_that_left_the_session(tmp_path):
    """Double-forked, own session, signals ignored, stdio closed: no heartbeat may follow."""
    beat = tmp_path / "beat"
    beat.write_text("")
    os.chown(beat, 1000, 1000)
    script = ("import os, signal, sys, time\n"
              "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
              "  for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"
              "  for f in range(3): os.close(f)\n"
              "  while True: open('/beat', 'a').write('x'); time.sleep(0.02)\n"
              " os._exit(0)\n"
              "time.sleep(100)")
    r = run("--json", "--timeout", "500ms", "--mount", f"{beat}:/beat", "--", "/usr/bin/python3", "-c", script)
    judged(r, "timeout", 124, 500)
    size = beat.stat().st_size
    assert size > 3
    time.sleep(0.2)
    assert beat.stat().st_size == size


def test_daemons_are_gone_when_the_command_ends_by_itself(tmp_path):
    beat = tmp_path / "beat"
    beat.write_text("")
    os.chown(beat, 1000, 1000)
    r = sh("(setsid sh -c 'while :; do echo x >> /beat; sleep 0.02; done' </dev/null >/dev/null 2>&1 &); sleep 0.2",
           "--mount", f"{beat}:/beat")
    size = beat.stat().st_size
    assert r.code == 0 and size > 3
    time.sleep(0.2)
    assert beat.stat().st_size == size


def test_timeout_counts_even_when_the_command_is_stopped():
    r = sh("kill -STOP $$", "--json", "--timeout", "300ms")
    judged(r, "timeout", 124, 300)


def test_no_timeout_when_it_is_lifted():
    assert sh("sleep 0.2", "--timeout", "0").code == 0


def test_cpu_time_of_all_processes_together_is_limited():
    r = sh("(while :; do :; done) & (while :; do :; done) & wait", "--json", "--cpu-time", "400ms", "--cpus", "2",
           "--timeout", "20s")
    v = judged(r, "cpu", 137, 400)
    assert 400 <= v["peak"] < 1200 and r.wall < 5


def test_cpu_time_is_not_wall_time():
    assert sh("sleep 0.5; echo ok", "--cpu-time", "300ms").out == b"ok\n"


def test_oom_the_memory_limit_is_reached():
    r = python("x = bytearray(200 << 20)", "--json", "--memory", "64M")
    v = judged(r, "oom", 137, 64 * MIB)
    assert 56 * MIB < v["peak"] <= 64 * MIB and r.json["signal"] == 9


def test_oom_is_told_when_only_a_child_dies_and_the_command_fails():
    r = sh("/usr/bin/python3 -c 'bytearray(200 << 20)'; exit 9", "--json", "--memory", "64M")
    v = judged(r, "oom", 9, 64 * MIB)


def test_a_command_that_survives_its_child_s_oom_exited():
    r = sh("/usr/bin/python3 -c 'bytearray(200 << 20)'; exit 0", "--json", "--memory", "64M")
    judged(r, "exited", 0)
    v = r.json["verdict"]
    assert "memory" in v["detail"] and v["oom_kills"] == 1 and v["warning"] == "1 process was killed by the memory limit of 64M (--memory)", r
    r = sh("/usr/bin/python3 -c 'bytearray(200 << 20)' 2>/dev/null; exit 0", "--memory", "64M")
    assert r.code == 0 and r.err.endswith(b"cloche: warning: 1 process was killed by the memory limit of 64M (--memory)\n"), r


def test_files_in_memory_count_as_memory():
    r = python("f = open('/tmp/x', 'wb')\nx = bytearray(100 << 20)\nfor i in range(100): f.write(x[:1 << 20])\n"
               "y = bytearray(100 << 20)", "--json", "--memory", "128M")
    assert r.cause in ("oom", "disk") and r.code != 0, r


def test_pids_a_fork_bomb_is_stopped():
    r = python("import os, time\nfor i in range(100):\n  if os.fork() == 0: time.sleep(30); os._exit(0)",
               "--json", "--pids", "20")
    v = judged(r, "pids", 1, 20)
    assert 18 <= v["peak"] <= 20 and r.wall < 3
    assert "BlockingIOError" in r.json["stderr"]


def test_pids_threads_count_too():
    r = python("import threading, time\nfor i in range(100): threading.Thread(target=time.sleep, args=(30,), "
               "daemon=True).start()", "--json", "--pids", "20")
    judged(r, "pids", 1, 20)


def test_a_real_fork_bomb_ends_with_the_timeout():
    r = run("--json", "--timeout", "1s", "--pids", "64", "--", "bash", "-c", "b(){ b|b& };b; sleep 50")
    assert r.cause in ("timeout", "pids") and r.wall < 5, r


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_disk_all_bytes_are_written(storage):
    r = sh("head -c 100M /dev/zero > x", "--json", "--disk", "8M", "--storage", storage)
    v = judged(r, "disk", 1, r.json["verdict"]["limit"])
    assert 6 * MIB < v["limit"] <= 8 * MIB and v["peak"] <= v["limit"], v
    assert v["peak"] > 0.9 * v["limit"] and "disk" in v["detail"] and ("--memory" in v["detail"]) == (storage == "memory"), v
    assert "No space left" in r.json["stderr"]


def test_disk_a_write_that_is_larger_than_what_is_left():
    r = sh("dd if=/dev/zero of=x bs=4M count=9", "--json", "--disk", "24M", "--storage", "disk")
    judged(r, "disk", 1, r.json["verdict"]["limit"])


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_disk_all_inodes_are_used(storage):
    r = sh("i=0; while [ $i -lt 2000 ]; do : > f$i || exit 1; i=$((i+1)); done", "--json", "--inodes", "200",
           "--storage", storage)
    v = judged(r, "disk", 2, r.json["verdict"]["limit"])
    assert 100 < v["limit"] <= 512 and "inodes" in v["detail"], v


def test_a_full_disk_that_does_not_fail_the_command_is_no_verdict():
    judged(sh("head -c 100M /dev/zero > x; exit 0", "--json", "--disk", "8M"), "exited", 0)


def test_output_head_and_tail_are_kept_and_the_middle_is_counted():
    r = sh("echo begin; seq 1 20000; echo end", "--json", "--output-limit", "10K")
    total = len("begin\n" + "".join(f"{i}\n" for i in range(1, 20001)) + "end\n")
    v = judged(r, "output", 0, 10240)
    assert v["peak"] == total
    j = r.json
    out = j["stdout"]
    assert out.startswith("begin\n1\n2\n") and out.endswith("\n20000\nend\n")
    assert j["truncated"] == {"stdout": True, "stderr": False, "stdout_dropped": total - 10240, "stderr_dropped": 0,
                              "full_url": None}
    assert f"{total - 10240} bytes left out" in out
    assert len(out) <= 10240 + 100


def test_output_limits_hold_for_each_stream():
    r = sh("head -c 3000 /dev/zero | tr '\\0' a; head -c 5000 /dev/zero | tr '\\0' b >&2", "--json", "--output-limit", "4K")
    j = r.json
    assert r.cause == "output" and (j["truncated"]["stdout"], j["truncated"]["stderr"]) == (False, True)
    assert (j["truncated"]["stdout_dropped"], j["truncated"]["stderr_dropped"]) == (0, 5000 - 4096)
    assert j["stdout"] == "a" * 3000 and j["stderr"].count("b") >= 4096


def test_streamed_output_keeps_head_and_tail_too():
    r = sh("echo begin; seq 1 20000; echo end", "--output-limit", "10K")
    assert r.code == 0 and r.out.startswith(b"begin\n1\n") and r.out.endswith(b"\n20000\nend\n"), r
    total = len(b"begin\n" + b"".join(b"%d\n" % i for i in range(1, 20001)) + b"end\n")
    assert len(r.out) <= 10240 + 100
    assert re.search(rb"cloche: output: .*%d bytes left out" % (total - 10240), r.err), r


def test_output_of_exactly_the_limit_is_whole():
    r = sh("head -c 4096 /dev/zero | tr '\\0' x", "--json", "--output-limit", "4K")
    judged(r, "exited", 0)
    assert r.json["stdout"] == "x" * 4096
    r = sh("head -c 4096 /dev/zero | tr '\\0' x", "--output-limit", "4K")
    assert (r.out, r.err) == (b"x" * 4096, b"")


def test_the_output_limit_can_be_lifted():
    r = sh("head -c 5M /dev/zero", "--output-limit", "0")
    assert len(r.out) == 5 * MIB and r.err == b""
    assert len(sh("head -c 3M /dev/zero | tr '\\0' x", "--json", "--output-limit", "0").json["stdout"]) == 3 * MIB


def test_endless_output_takes_no_memory_of_ours(popen):
    p = popen("--json", "--timeout", "1s", "--", "yes", stdin=subprocess.DEVNULL)
    peak = 0
    while p.poll() is None:
        try:
            status = open(f"/proc/{p.pid}/status", encoding="ascii").read()
            peak = max(peak, int((re.search(r"VmHWM:\s*(\d+)", status) or [0, 0])[1]))
        except OSError:
            break
        # The result is written at the end: it has to be read for the program to end.
        if p.stdout in __import__("select").select([p.stdout], [], [], 0.05)[0]:
            break
    out, _ = p.communicate(timeout=5)
    j = json.loads(out)
    assert j["verdict"]["cause"] == "timeout" and j["truncated"]["stdout_dropped"] > 10 * MIB
    assert 0 < peak < 32 * 1024, peak


def test_seccomp_a_32_bit_call_kills(tmp_path):
    """int 0x80 would be checked against the wrong table."""
    if os.uname().machine != "x86_64":
        script = "import os; os.kill(os.getpid(), 31)"
    else:
        script = ("import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\n"
                  "m.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"  # getpid
                  "print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))())")
    r = python(script, "--json")
    judged(r, "seccomp", 128 + 31)
    assert r.json["signal"] == 31 and r.json["stdout"] == ""


def test_seccomp_a_profile_can_kill(tmp_path):
    profile = tmp_path / "kill.json"
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_KILL_PROCESS"}]}))
    r = run("--json", "--seccomp", profile, "--", "mkdir", "/tmp/x")
    judged(r, "seccomp", 128 + 31)


def test_killed_on_request(popen):
    p = popen("--json", "--", "sh", "-c", "echo so far; sleep 100")
    time.sleep(0.2)
    p.send_signal(signal.SIGHUP)
    out, err = p.communicate(timeout=5)
    r = host.Result([], p.returncode, out, err, 0)
    judged(r, "killed", 137)
    assert r.json["stdout"] == "so far\n"


def test_lost_the_agent_dies(popen):
    p = popen("--json", "--", "sh", "-c", "echo so far; sleep 100")
    time.sleep(0.2)
    os.kill(wait_for(lambda: agent_of(p.pid)), signal.SIGKILL)
    out, err = p.communicate(timeout=5)
    r = host.Result([], p.returncode, out, err, 0)
    judged(r, "lost", 125)
    assert r.json["stdout"] == "so far\n"


def test_every_limit_is_told_on_stderr_in_one_line():
    for options, script, name in ((["--memory", "64M"], "/usr/bin/python3 -c 'bytearray(200 << 20)'; exit 1", b"oom"),
                                  (["--disk", "1M"], "head -c 4M /dev/zero > x 2>/dev/null", b"disk"),
                                  (["--output-limit", "1K"], "seq 1 1000", b"output")):
        r = sh(script + (" 2>/dev/null" if name == b"oom" else ""), *options)
        lines = [x for x in r.err.splitlines() if x.startswith(b"cloche: ")]
        assert len(lines) == 1 and lines[0].startswith(b"cloche: " + name + b": "), r
