"""A call that waits for some time at most, in a program that sleeps and wakes up more often than that: it ends all the same."""
import platform
import time

from api import d, nothing_is_left_behind  # noqa: F401
from test_checkpoints_memory import clean  # noqa: F401

# Each counts its time itself, as a program must after EINTR. Python has a handler for SIGINT.
WAITS = {
    "poll": "select.poll().poll(2000)",
    "select": "select.select([], [], [], 2)",
    "epoll": "select.epoll().poll(2)",
    "sleep": "time.sleep(2)",
    "condition": "c = threading.Condition(); c.acquire(); c.wait(2)",
    "socket": "a, b = socket.socketpair(); a.settimeout(2)\ntry: a.recv(1)\nexcept TimeoutError: pass",
}
# The kernel tells what is left of these two to nobody. On aarch64 it does not even tell that there was such a call.
if platform.machine() == "x86_64":
    WAITS["futex"] = """libc = ctypes.CDLL(None); word = ctypes.c_int(0); end = time.monotonic() + 2
while (left := end - time.monotonic()) > 0:
    libc.syscall(202, ctypes.byref(word), 0, 0, (ctypes.c_long * 2)(int(left), int(left % 1 * 1e9)), None, 0)"""
else:
    del WAITS["poll"]


def test_it_is_over_when_its_time_is(d, clean):
    box = d.create()["id"]
    execs = {}
    for name, code in WAITS.items():
        script = f"import ctypes, select, socket, threading, time\nprint('begun', flush=True)\n{code}\nprint('over')"
        execs[name] = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", script], "background": True}).json["id"]
    end, times = time.monotonic() + 120, 0
    while execs:
        for name, x in list(execs.items()):
            seen = d.get(f"/v1/sandboxes/{box}/execs/{x}").json
            if seen["state"] == "ended":
                assert seen["exit_code"] == 0 and seen["stdout"] == "begun\nover\n", (name, seen)
                del execs[name]
        assert time.monotonic() < end, (sorted(execs), times)
        for verb in ("hibernate", "resume"):
            r = d.post(f"/v1/sandboxes/{box}/{verb}")
            assert r.status == 200, r
        times += 1
    assert times > 1


def test_an_exec_that_begins_or_ends_meanwhile_is_not_lost(d, clean):
    """It has the status that it ended with and all of its output, whatever the moment."""
    for _ in range(3):
        box = d.create()["id"]
        execs = [d.post(f"/v1/sandboxes/{box}/execs", {"shell": f"sleep 0.{i}; echo {i}; exit {i}", "background": True}).json["id"] for i in range(7)]
        for verb in ("hibernate", "resume") * 3:
            r = d.post(f"/v1/sandboxes/{box}/{verb}")
            assert r.status == 200, r
        for i, x in enumerate(execs):
            r = d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=60", timeout=70).json
            assert r["state"] == "ended" and (r["exit_code"], r["stdout"]) == (i, f"{i}\n"), (i, r)
        assert d.delete(f"/v1/sandboxes/{box}").status == 204


# Twenty that each wait for three alarms. Some come while the copy is made ready: pause() is over then, it does not begin anew.
ALARMS = """
import os, signal
signal.signal(signal.SIGALRM, lambda *_: None)
for i in range(20):
    if not os.fork():
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 1 + i / 100)
            signal.pause()
        os._exit(0)
for _ in range(20): assert os.wait()[1] == 0
print("over")
"""


def test_a_signal_that_comes_while_a_copy_is_made_ends_a_call(d, clean):
    box = d.create()["id"]
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", ALARMS], "background": True}).json["id"]
    end = time.monotonic() + 120
    while (seen := d.get(f"/v1/sandboxes/{box}/execs/{x}").json)["state"] != "ended":
        assert time.monotonic() < end, "it does not end"
        for verb in ("hibernate", "resume"):
            r = d.post(f"/v1/sandboxes/{box}/{verb}")
            assert r.status == 200, r
        time.sleep(0.2)
    assert seen["exit_code"] == 0 and seen["stdout"] == "over\n", seen
