"""Nothing survives its owner, and many do not get in each other's way."""
import os
import random
import signal
import subprocess
import threading
import time

import pytest

import host
from host import Watch, agent_of, command, run, start, wait_for


def marked_processes(mark):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    if mark.encode() in f.read():
                        found.append(int(name))
            except OSError:
                pass
    return found


def test_kill_9_at_any_moment_of_the_start_leaves_nothing():
    """Every delay up to where the command runs for sure; all gone within two seconds each time."""
    random.seed(7)
    for i in range(40):
        watch = Watch()
        p = start("--", "sh", "-c", "sleep 100 & sleep 100", stdin=subprocess.DEVNULL)
        time.sleep(random.uniform(0, 0.03))
        p.kill()
        host.end(p)
        begin = time.monotonic()
        left = watch.left()
        assert not left, f"round {i}: left behind: {left}"
        assert time.monotonic() - begin < 2, f"round {i}"


@pytest.mark.parametrize("options", [[], ["--storage", "disk"], ["--json"], ["--user", "root"], ["--read-only"]],
                         ids=["plain", "disk", "json", "root", "read-only"])
def test_kill_9_while_a_command_runs_leaves_nothing(popen, options):
    mark = f"mark-{random.getrandbits(64):x}"
    p = popen(*options, "--", "sh", "-c", f": {mark}; trap '' TERM HUP INT; (setsid sh -c ': {mark}; sleep 100' &); "
                                          "head -c 5M /dev/zero > ~/f; while :; do sleep 0.05; done")
    wait_for(lambda: len(marked_processes(mark)) >= 3)
    time.sleep(0.1)
    p.kill()
    wait_for(lambda: not marked_processes(mark), 2, "their end")


def test_kill_9_of_the_agent_ends_all_it_ran(popen):
    mark = f"mark-{random.getrandbits(64):x}"
    p = popen("--", "sh", "-c", f": {mark}; (setsid sh -c ': {mark}; sleep 100' &); sleep 100")
    wait_for(lambda: len(marked_processes(mark)) >= 3)
    os.kill(wait_for(lambda: agent_of(p.pid)), signal.SIGKILL)
    assert p.wait(3) == 125
    wait_for(lambda: not marked_processes(mark), 2, "their end")


def test_kill_9_of_every_child_of_ours_is_told(popen):
    """Agent and guard alike: whatever dies, the run ends, and says why."""
    p = popen("--", "sleep", "100")
    wait_for(lambda: agent_of(p.pid))
    time.sleep(0.1)
    for child in host.children(p.pid):
        os.kill(child, signal.SIGKILL)
    out, err = p.communicate(timeout=5)
    assert p.returncode == 125 and err.count(b"\n") == 1, err


def test_a_guard_that_is_killed_first_does_not_save_the_sandbox(popen):
    """Without its guard the sandbox ends with us still: by the socket."""
    p = popen("--", "sleep", "100")
    agent = wait_for(lambda: agent_of(p.pid))
    time.sleep(0.1)
    for child in host.children(p.pid):
        if child != agent:
            os.kill(child, signal.SIGKILL)
    p.terminate()
    assert p.wait(5) == 143


def test_the_end_of_a_whole_session_leaves_nothing():
    """As when a terminal or a service is torn down: everybody gets the signal at once."""
    for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        p = start("--", "sh", "-c", "sleep 100 & sleep 100", stdin=subprocess.DEVNULL, start_new_session=True)
        wait_for(lambda: agent_of(p.pid))
        os.killpg(p.pid, sig)
        p.wait(5)
        host.end(p)


def test_twenty_at_once_all_succeed():
    procs = [start("--", "sh", "-c", f"echo {i} > ~/f; sleep 0.1; cat ~/f; ls /tmp; hostname; exit {i}") for i in range(20)]
    try:
        for i, p in enumerate(procs):
            out, err = p.communicate(timeout=30)
            assert (p.returncode, out, err) == (i, f"{i}\nsandbox\n".encode(), b"")
    finally:
        for p in procs:
            host.end(p)


def test_two_sandboxes_have_nothing_in_common(popen):
    a, b = (popen("--", "sh", "-c", "echo ready; cat") for _ in range(2))
    for p in (a, b):
        assert p.stdout.readline() == b"ready\n"
    pids = [wait_for(lambda: agent_of(p.pid)) for p in (a, b)]
    for ns in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup"):
        assert len({os.readlink(f"/proc/{pid}/ns/{ns}") for pid in pids}) == 2, ns
    maps = [open(f"/proc/{pid}/uid_map", encoding="ascii").read().split() for pid in pids]
    assert maps[0][1] != maps[1][1] and all(int(m[1]) >= host.UID_BASE and int(m[2]) == 65536 for m in maps)


def test_two_hundred_in_a_row_leak_nothing():
    def fds():
        return len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        run("--", "true")
    watch, before = Watch(), fds()
    nets = net_namespaces()
    for i in range(200):
        assert subprocess.run(command("--", "true"), stdin=subprocess.DEVNULL).returncode == 0, i
    assert not watch.left()
    assert fds() == before
    # Network namespaces are freed by the kernel in the background, and others may use some: a leak would be 200.
    wait_for(lambda: net_namespaces() < nets + 100, 10, "the end of the network namespaces")


def net_namespaces():
    """How many the kernel counts, seen or not."""
    for line in open("/proc/slabinfo", encoding="ascii"):
        if line.startswith("net_namespace "):
            return int(line.split()[1])
    return 0


def test_fifty_that_fail_leak_nothing():
    watch = Watch()
    for i in range(50):
        assert subprocess.run(command("--workdir", "/etc/passwd", "--", "true"), stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 125
    assert not watch.left()


def test_the_cache_is_made_by_many_at_once(tmp_path):
    """The skeleton of image host is missing, and ten need it now."""
    env = dict(os.environ, CLOCHE_CACHE=str(tmp_path / "cache"))
    results = []

    def one():
        results.append(subprocess.run(command("--", "cat", "/etc/hostname"), capture_output=True, env=env,
                                      stdin=subprocess.DEVNULL))

    threads = [threading.Thread(target=one) for _ in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [(r.returncode, r.stdout, r.stderr) for r in results] == [(0, b"sandbox\n", b"")] * 10
    assert len(os.listdir(tmp_path / "cache")) == 1


def test_a_half_made_cache_is_not_used(tmp_path):
    """Killed while it makes the skeleton; the next one makes it whole."""
    env = dict(os.environ, CLOCHE_CACHE=str(tmp_path / "cache"))
    for delay in (0.001, 0.002, 0.004, 0.008, 0.016):
        p = subprocess.Popen(command("--", "true"), env=env, stdin=subprocess.DEVNULL)
        time.sleep(delay)
        p.kill()
        p.wait()
    r = run("--", "sh", "-c", "ls /etc/passwd /etc/ld.so.cache /dev/null && id -un", env=env)
    assert r.code == 0 and r.text.endswith("user\n"), r


def test_sandboxes_inside_a_low_process_limit_of_ours_fail_cleanly():
    import resource
    r = run("--", "echo", "ok", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 20, 3 << 20)))
    assert r.code == 0 or r.err.count(b"\n") == 1, r
