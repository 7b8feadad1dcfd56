"""Programs that tell of kernel objects: each sets one up, says ready, and tells what it finds when it is let go on. The same text has to
come from the source after it was hibernated and woken, from a copy of it, and from a fork of that copy."""
import re

from api import error, eventually, parallel

PRELUDE = """
import contextlib, ctypes, errno, fcntl, mmap, os, select, signal, socket, struct, sys, tempfile, termios, threading, time
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(tempfile.mkdtemp(dir="."))  # others have the same names
def gate():
    print("ready"); sys.stdin.readline()
def child(work=lambda: None, after=signal.pause):
    "A process that has done `work` when this returns, and then does `after`."
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        work(); os.write(w, b"x"); os.close(r); os.close(w)
        after(); os._exit(0)
    os.close(w); assert os.read(r, 1) == b"x"; os.close(r)
    return pid
def end(*pids):
    for p in pids:
        os.kill(p, 9); os.waitpid(p, 0)
def fails(fn, *args, **kw):
    try:
        return fn(*args, **kw)
    except OSError as e:
        return errno.errorcode[e.errno]
def check(n):
    if n < 0: raise OSError(ctypes.get_errno(), "failed")
    return n
def asleep(pid):
    "Until it waits in the kernel."
    while open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "S": time.sleep(0.01)
    return pid
"""


def start(d, box, text):
    r = d.post(f"/v1/sandboxes/{box['id']}/execs", {"cmd": ["python3", "-u", "-c", PRELUDE + text], "background": True, "stdin_open": True})
    assert r.status == 201, r
    x = r.json["id"]

    def ready():
        out = said(d, box, x)
        if out != "ready\n":
            assert d.get(f"/v1/sandboxes/{box['id']}/execs/{x}").json["state"] == "running", out + said(d, box, x, "stderr")
        return out == "ready\n"
    eventually(ready, 60)
    return x


def said(d, box, x, stream="stdout"):
    r = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output?stream={stream}")
    assert r.status == 200, r
    return r.body.decode()


def tells(d, box, x):
    """Lets it go on: what it says until it ends, and by what it ended."""
    assert d.post(f"/v1/sandboxes/{box['id']}/execs/{x}/stdin", b"\n").status in (200, 204)
    end = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/wait?timeout=60", timeout=90).json
    return said(d, box, x).removeprefix("ready\n").strip(), end.get("exit_code"), said(d, box, x, "stderr")


def live_on(d, programs, **fields):
    """Runs {name: (text, expected)}: all in one sandbox, and in those that are made from it."""
    b = d.create(**fields)
    names = list(programs)
    xs = parallel(len(names), lambda i: start(d, b, programs[names[i]][0]))
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}, timeout=120)
    assert r.status == 201 and r.json["memory"] is True, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore", timeout=120)
    assert r.status == 201, r
    copy, = r.json["sandboxes"]
    r = d.post(f"/v1/sandboxes/{copy['id']}/fork", timeout=120)
    assert r.status == 201 and r.json["sandboxes"][0]["restored"]["memory"] is True, r
    fork, = r.json["sandboxes"]
    r = d.post(f"/v1/sandboxes/{b['id']}/hibernate", timeout=120)
    assert r.status == 200 and r.json["state"] == "hibernated", r
    r = d.post(f"/v1/sandboxes/{b['id']}/resume", timeout=120)
    assert r.status == 200 and r.json["state"] == "running", r
    boxes = {"woken": b, "copy": copy, "fork": fork}
    found = parallel(3, lambda i: [tells(d, list(boxes.values())[i], x) for x in xs])
    told = {name: {where: f[i] for where, f in zip(boxes, found)} for i, name in enumerate(names)}
    wrong = [(name, where, t, "expected:", programs[name][1]) for name in names for where, t in told[name].items() if t != (programs[name][1], 0, "")]
    assert not wrong, "\n".join(map(str, wrong))


def refused(d, text, reason, box=None, **fields):
    """The program gets the reason, and runs on."""
    b = box or d.create(**fields)
    x = start(d, b, text + "\ngate()\nprint('on')\n")
    e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}, timeout=120), 422, "refused")
    assert re.search(rf"process \d+ \(python3\).*({reason})", e["message"]), (text, e)
    assert tells(d, b, x) == ("on", 0, ""), text
