"""A sandbox that runs out of inotify instances: whoever asks for one is told, nothing hangs, and others have theirs.

A host without processes or control groups is test_faults.py's (`clone3` with EAGAIN, `mkdirat` with ENOSPC).
"""
from api import Raw, eventually
from daemon import Daemon

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
