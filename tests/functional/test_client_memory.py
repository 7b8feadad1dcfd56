"""Checkpoints with what runs in a sandbox, by the client."""
import json

import host
from cli import daemon, nothing_is_left_behind, ok, started_box as box  # noqa: F401

COUNTER = "import time\nn = 0\nwhile True:\n    n += 1\n    open('count', 'w').write(str(n))\n    print(n, flush=True)\n    time.sleep(0.02)\n"


def count(ok, name):
    return int(ok("exec", name, "--", "cat", "count") or 0)


def test_what_runs_goes_on_in_every_copy(daemon, ok, box):
    exec_id = ok("exec", "-d", box, "--", "python3", "-c", COUNTER)
    host.wait_for(lambda: daemon.cli("exec", box, "--", "cat", "count").text.strip().isdigit(), 10, "it counts")
    ident = ok("checkpoint", "--memory", box, "running")
    shown = json.loads(ok("checkpoint", "inspect", ident))
    assert shown["memory"] is True and shown["memory_size"] > 0 and shown["memory_refused"] is None
    at = count(ok, box)
    copies = ok("restore", "--count", "3", f"{box}:running").split()
    for c in copies:
        host.wait_for(lambda: count(ok, c) > at + 5, 10, "the copy counts on")
        assert len([x for x in json.loads(ok("logs", "--list", "--json", c)) if x["state"] == "running"]) == 1
        assert int(ok("logs", c, exec_id).splitlines()[-1]) > 5  # found by the id it had
    # Ending it in one is felt in no other.
    stopped = copies[0]
    ok("exec", stopped, "--", "pkill", "python3")
    before = [count(ok, c) for c in copies]
    host.wait_for(lambda: all(count(ok, c) > n for c, n in zip(copies[1:], before[1:])), 10, "the others count")
    assert count(ok, stopped) <= before[0] + 1
    # In place, too.
    ok("restore", box, "running")
    host.wait_for(lambda: count(ok, box) > 5, 10, "it counts again")


def test_hibernated_ones_wake_at_the_next_call(daemon, ok, box):
    ok("exec", "-d", box, "--", "python3", "-c", COUNTER)
    host.wait_for(lambda: daemon.cli("exec", box, "--", "cat", "count").text.strip().isdigit(), 10, "it counts")
    assert json.loads(ok("hibernate", "--json", box))["state"] == "hibernated"
    assert json.loads(ok("inspect", box))["state"] == "hibernated"
    assert box in ok("ls", "--state", "hibernated")
    at = count(ok, box)
    assert json.loads(ok("inspect", box))["state"] == "running"
    host.wait_for(lambda: count(ok, box) > at, 10, "it counts on")
    ok("hibernate", box)
    assert ok("wake", box) == "" and json.loads(ok("inspect", box))["state"] == "running"
    told = ok("events", box).split()
    assert told.count("sandbox.hibernated") == told.count("sandbox.woken") == 2, told
