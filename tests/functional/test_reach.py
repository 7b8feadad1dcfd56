"""What a taken-over API process could reach, seen on the real one: its descriptors, its privileges, whom the kernel ends first."""
import ctypes
import os
import pathlib
import re
import subprocess
import time

import pytest

import host
from api import d, nothing_is_left_behind  # noqa: F401

libc = ctypes.CDLL(None, use_errno=True)
GETFD, PIDFD_OPEN = 438, 434
SANDBOX, DAEMON = 500, -900
CAP_SYS_RESOURCE = 24


def status(pid, key):
    return re.search(rf"^{key}:\s*(\S+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1)


def score(pid):
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())


def links(pid):
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            pass
    return found


@pytest.fixture
def stranger():
    """A process of the host, of no sandbox."""
    p = subprocess.Popen(["sleep", "1000"])
    yield p
    p.kill()
    p.wait()


def as_api(uid, gid, fn):
    """What fn returns in a process of the API's user: a small number."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            code = fn()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_the_api_process_holds_moves_no_process_of_the_host(d, stranger):
    b = d.create()
    x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["sleep", "1000"], "background": True}).json
    d.create()  # with its first group at hand
    api = d.children()["api"]
    pidfd = libc.syscall(PIDFD_OPEN, api, 0)
    groups = {fd: to for fd, to in links(api).items() if re.search(r"/(tasks|cgroup\.procs|cgroup\.threads|cgroup\.kill|freezer\.state|cgroup\.freeze)$", to)}
    assert groups, "the exec group of a new sandbox is at hand"
    taken = [libc.syscall(GETFD, pidfd, fd, 0) for fd in groups]
    assert all(fd >= 0 for fd in taken)
    before = pathlib.Path(f"/proc/{stranger.pid}/cgroup").read_text()

    def attack():
        moved = 0
        for fd in taken:
            for pid in (stranger.pid, d.pid, d.children_of_it["warden"], os.getppid(), 0):
                try:
                    os.write(fd, str(pid).encode())
                    moved += 1
                except OSError:
                    pass
        return moved

    d.children_of_it = d.children()
    assert as_api(int(status(api, "Uid")), int(status(api, "Gid")), attack) == 0
    assert pathlib.Path(f"/proc/{stranger.pid}/cgroup").read_text() == before
    d.delete(f"/v1/sandboxes/{b['id']}/execs/{x['id']}")
    for fd in [*taken, pidfd]:
        os.close(fd)
    assert stranger.poll() is None


def test_the_api_process_holds_descriptors_of_known_kinds_only(d):
    b = d.create()
    d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["sleep", "1000"], "background": True})
    d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["sleep", "1000"], "background": True, "tty": True})
    d.put(f"/v1/sandboxes/{b['id']}/files?path=/home/user/a", b"x")
    known = re.compile(rf"(socket|pipe):\[|anon_inode:|/memfd:|/dev/null$|/dev/(pts/)?ptmx$|{re.escape(str(d.data))}/|/.*/x\d+/(tasks|cgroup\.procs)$|/proc/{d.children()['api']}/|{re.escape(str(host.BUILD))}/cloche-(tar|shell-kernel|devices)$|/etc/ssl/")
    for fd, to in links(d.children()["api"]).items():
        assert fd < 3 or known.match(to), (fd, to)


def test_the_daemons_processes_have_given_up_what_they_do_not_need(d):
    parts = d.children()
    for name in ("api", "egress"):
        for task in os.listdir(f"/proc/{parts[name]}/task"):
            at = f"{parts[name]}/task/{task}"
            assert {status(at, f"Cap{s}") for s in ("Bnd", "Eff", "Prm", "Inh", "Amb")} == {"0" * 16}, name
            assert status(at, "NoNewPrivs") == "1" and status(at, "Seccomp") == "2", name
    for task in os.listdir(f"/proc/{parts['warden']}/task"):
        assert status(f"{parts['warden']}/task/{task}", "Seccomp") == "2"


def test_sandboxes_are_ended_before_the_daemon_when_memory_runs_out(d):
    may = bool(int(status("self", "CapBnd"), 16) >> CAP_SYS_RESOURCE & 1)
    now = score("self")
    for pid in (d.pid, *d.children().values()):
        assert score(pid) == (DAEMON if may else now)
    tell = "cat /proc/self/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj'"
    b = d.create()
    say = lambda box: d.exec(box, "sh", "-c", tell)["stdout"]  # noqa: E731
    assert say(b["id"]) == f"{SANDBOX}\n" * 2
    assert d.exec(b["id"], "sh", "-c", tell, user="root")["stdout"] == f"{SANDBOX}\n" * 2
    # Nobody sets it back, where the warden may say so.
    r = d.exec(b["id"], "sh", "-c", "echo -900 >/proc/self/oom_score_adj || echo 0 >/proc/self/oom_score_adj; exec cat /proc/self/oom_score_adj", user="root")
    assert int(r["stdout"]) == (SANDBOX if may else max(now, 0)), r
    d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["sh", "-c", "while :; do cat /proc/self/oom_score_adj >/tmp/a; mv /tmp/a /tmp/b; sleep 0.05; done"], "background": True})
    fork = d.post(f"/v1/sandboxes/{b['id']}/fork", {}).json
    fork = fork.get("sandboxes", [fork])[0]
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status in (200, 204)
    for box in (fork["id"], b["id"]):
        assert say(box) == f"{SANDBOX}\n" * 2
        end = time.monotonic() + 30
        d.exec(box, "rm", "-f", "/tmp/b")
        # One that was met in the middle may have left an empty file; the next does not.
        while not (r := d.exec(box, "cat", "/tmp/b"))["stdout"] and time.monotonic() < end:
            time.sleep(0.05)
        assert r["stdout"] == f"{SANDBOX}\n", "its process goes on, with the same"
