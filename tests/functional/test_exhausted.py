"""The host runs out of processes, a sandbox out of inotify instances: whoever asks is told, nothing hangs, and all is well once there is room.

Control groups that cannot be made are test_faults.py's (`mkdirat`, ENOSPC).
"""
import os
import pathlib

import pytest

import host
from api import Raw, eventually
from daemon import Daemon

GROUPS = pathlib.Path("/sys/fs/cgroup")


@pytest.fixture
def group():
    """A control group whose number of processes can be bounded, with the daemon and all its sandboxes in it."""
    top = GROUPS / "pids" if (GROUPS / "pids").is_dir() else GROUPS
    at = top / f"cloche-exhausted-{os.getpid()}"
    at.mkdir()
    if not (at / "pids.max").exists():
        (top / "cgroup.subtree_control").write_text("+pids")
    yield at

    def gone():
        for folder in sorted((p for p in at.rglob("*") if p.is_dir()), reverse=True):
            folder.rmdir()
        at.rmdir()
        return True

    def tried():
        try:
            return gone()
        except OSError:
            return False

    host.wait_for(tried, 30, "the group to be empty")


def test_no_more_processes_on_the_host(group):
    daemon = Daemon(None, "--pool", "1")
    daemon.before = ["/bin/sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "sh"]
    with daemon as d:
        box = d.create()["id"]
        assert d.exec(box, "true")["exit_code"] == 0
        (group / "pids.max").write_text("1")  # less than there are: every fork in it fails
        answers = [d.post("/v1/sandboxes", {}, timeout=120) for _ in range(4)]  # one or two may be ready
        x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["true"]}, timeout=120)
        (group / "pids.max").write_text("max")
        assert answers[-1].status == 503 and answers[-1].json["error"]["code"] == "exhausted", answers
        assert x.status == 422 and "start a process" in x.json["error"]["message"], x
        eventually(lambda: d.post("/v1/sandboxes", {}).status == 201, 60)
        assert d.exec(box, "true")["exit_code"] == 0


TAKE = """
import ctypes
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0: pass
print("all", flush=True)
import time
time.sleep(1000)
"""


def test_no_more_inotify_in_a_sandbox():
    with Daemon(None, "--pool", "1") as d:
        box = d.create(nofile=4096)["id"]
        x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["/usr/bin/python3", "-c", TAKE], "background": True}).json["id"]
        eventually(lambda: d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body == b"all\n", 60)
        with Raw(d, "GET", f"/v1/sandboxes/{box}/files?path=/tmp&op=watch", timeout=60) as r:
            status, headers = r.head()
            assert status == 422, status
            assert b"too many" in r.f.read(int(headers["content-length"])).lower()
        other = d.create()["id"]
        assert d.exec(other, "/usr/bin/python3", "-c", "import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)")["stdout"] == "True\n"
