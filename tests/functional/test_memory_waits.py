"""A call that waits for some time at most, in a program that sleeps and wakes up more often than that: it ends all the same."""
import platform
import time

import pytest

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


# Each has one alarm, or one timer, and takes its signal once. Many of them are due while everything stands still.
ONCE = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
held = bytearray(os.urandom(1 << 20))
signals = [signal.SIGALRM, signal.SIGUSR1]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
def timer(seconds):
    event, made = (ctypes.c_long * 8)(), ctypes.c_int()
    event[1] = signal.SIGUSR1  # and SIGEV_SIGNAL, which is 0
    assert libc.syscall(NR, 1, event, ctypes.byref(made)) == 0
    left = (ctypes.c_long * 4)(0, 0, 0, int(seconds * 1e9))
    assert libc.syscall(NR + SET, made.value, 0, left, None) == 0
for i in range(24):
    if not os.fork():
        held[0] = i
        at = 0.05 + i * 0.03
        timer(at) if i % 2 else signal.setitimer(signal.ITIMER_REAL, at)
        assert signal.sigwait(signals) == signals[i % 2]
        end = time.monotonic() + 1
        while time.monotonic() < end:
            time.sleep(0.05)
        os._exit(len(signal.sigpending()))
print("begun", flush=True)
wrong = [s for s in (os.wait()[1] for _ in range(24)) if s]
print("over", wrong)
"""
TIMER_CREATE = {"x86_64": (222, 1), "aarch64": (107, 3)}[platform.machine()]


def test_a_timer_that_is_due_while_a_copy_is_made_fires_once(d, clean):
    box = d.create(memory="512M")["id"]
    script = ONCE.replace("NR", str(TIMER_CREATE[0])).replace("SET", str(TIMER_CREATE[1]))
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", script], "background": True}).json["id"]
    end = time.monotonic() + 120
    while d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body != b"begun\n":
        assert time.monotonic() < end
    while (seen := d.get(f"/v1/sandboxes/{box}/execs/{x}").json)["state"] != "ended":
        assert time.monotonic() < end, seen
        for verb in ("hibernate", "resume"):
            r = d.post(f"/v1/sandboxes/{box}/{verb}")
            assert r.status == 200, r
    assert seen["exit_code"] == 0 and seen["stdout"] == "begun\nover []\n", seen


# Without a handler nothing but the signal ends it. On aarch64 the kernel does not tell what was waited for.
SIGNAL_WAIT = """
import ctypes, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("begun", flush=True)
print(ctypes.CDLL(None).syscall(128, ctypes.byref(ctypes.c_long(1 << 9)), None, None, 8))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernel does not tell")
def test_a_wait_for_a_signal_goes_on(d, clean):
    box = d.create()["id"]
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", SIGNAL_WAIT], "background": True}).json["id"]
    end = time.monotonic() + 60
    while not any(line.startswith("128 ") for line in d.exec(box, "sh", "-c", "cat /proc/[0-9]*/syscall")["stdout"].splitlines()):
        assert time.monotonic() < end
    for verb in ("hibernate", "resume") * 2:
        r = d.post(f"/v1/sandboxes/{box}/{verb}")
        assert r.status == 200, r
    assert d.exec(box, "pkill", "-USR1", "python3")["exit_code"] == 0
    r = d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=60", timeout=70).json
    assert r["stdout"] == "begun\n10\n", r
