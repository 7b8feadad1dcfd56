"""Files below /proc/N that are open at a checkpoint: what a restored process may open again is carried, the rest is refused by name."""
from api import d, eventually, nothing_is_left_behind  # noqa: F401
from test_checkpoints_memory import clean  # noqa: F401

# `self`, `child` or `thread` is whose; then what of it, and how.
PROGRAM = """
import os, subprocess, sys, threading, time
who, name, mode = sys.argv[1:]
pid = own = os.getpid()
if who == "child":
    pid = subprocess.Popen(["sleep", "1000"]).pid
if who == "thread":
    t = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
    t.start()
    name = f"task/{t.native_id}/{name}"
fd = os.open(f"/proc/{pid}/{name}", {"r": os.O_RDONLY, "w": os.O_WRONLY, "path": os.O_PATH}[mode])
print("open", flush=True)
while not os.path.exists("/tmp/go"): time.sleep(0.02)
was = os.fstat(fd), os.readlink(f"/proc/self/fd/{fd}")
assert was[1] == f"/proc/{pid}/{name}", was
if mode == "r": assert os.read(fd, 1 << 16) if not os.path.isdir(was[1]) else os.listdir(fd)
if mode == "path":
    try: os.read(fd, 1)
    except OSError: pass
    else: sys.exit("it can be read")
print("same")
"""
REFUSED = [("self", "fdinfo/0", "r"), ("thread", "status", "r")]
CARRIED = [("self", "maps", "r"), ("self", "status", "r"), ("self", "fd", "r"), ("self", "environ", "path"), ("child", "stat", "r"),
           ("child", "comm", "r"), ("self", "environ", "r"), ("self", "comm", "w"), ("child", "maps", "r"), ("child", "fd", "r")]


def opened(d, box, *args):
    r = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", PROGRAM, *args], "background": True})
    assert r.status == 201, r
    x = r.json["id"]
    eventually(lambda: d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body == b"open\n", 60)
    return x


def test_what_could_not_be_opened_again_is_refused(d, clean):
    box = d.create()["id"]
    for who, name, mode in REFUSED:
        x = opened(d, box, who, name, mode)
        r = d.post(f"/v1/sandboxes/{box}/checkpoints", {"memory": True})
        assert r.status == 422 and name in r.json["error"]["message"] and "/proc/" in r.json["error"]["message"], (who, name, r)
        assert d.request("DELETE", f"/v1/sandboxes/{box}/execs/{x}").json["state"] == "ended"


def test_what_can_be_opened_again_is_open(d, clean):
    box = d.create()["id"]
    execs = {args: opened(d, box, *args) for args in CARRIED}
    r = d.post(f"/v1/sandboxes/{box}/fork", {"memory": True})
    assert r.status == 201, r
    copy, = r.json["sandboxes"]
    assert d.exec(copy["id"], "touch", "/tmp/go")["exit_code"] == 0
    for args, x in execs.items():
        r = d.get(f"/v1/sandboxes/{copy['id']}/execs/{x}/wait?timeout=60", timeout=70).json
        assert r["state"] == "ended" and r["exit_code"] == 0 and r["stdout"] == "same\n", (args, r)
