"""The wall clock is set while the daemon runs: what has a time left has it still, and nothing waits for longer.

Only the API process sees it (clock_shift.c); the machine's clock is not touched. The warden waits by the monotonic clock.
"""
import datetime
import struct
import subprocess

import pytest

import host
from api import eventually
from daemon import Daemon

HOUR = 3600


@pytest.fixture
def shifted(tmp_path):
    """A daemon, and a function that puts its clock ahead by some seconds."""
    tmp_path.chmod(0o755)
    preload, place = tmp_path / "clock_shift.so", tmp_path / "ahead"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", preload, host.ROOT / "tests/functional/clock_shift.c"], check=True)
    place.write_bytes(bytes(4096))

    def shift(seconds):
        with open(place, "r+b") as f:
            f.write(struct.pack("q", seconds))

    daemon = Daemon(env={"LD_PRELOAD": str(preload), "CLOCHE_TEST_CLOCK": str(place)})
    with daemon:
        yield daemon, shift


def now(d):
    """As the daemon has it: the creation of a sandbox says so."""
    box = d.create()
    assert d.delete(f"/v1/sandboxes/{box['id']}").status == 204
    return box["created_at"]


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def left(d, box):
    return seconds(d.get(f"/v1/sandboxes/{box}").json["expires_at"]) - seconds(now(d))


def a_short_one_ends(d):
    """The look at what is due has been since the clock was set."""
    short = d.create(timeout="1s")["id"]
    eventually(lambda: d.get(f"/v1/sandboxes/{short}").status == 404, 60)


def test_a_clock_that_is_set_ends_nothing_early_and_nothing_late(shifted):
    d, shift = shifted
    before = seconds(now(d))
    limited = d.create(timeout="20m")["id"]
    idle = d.create(idle={"delete": "20m"})["id"]
    r = d.post(f"/v1/sandboxes/{limited}/execs", {"cmd": ["sleep", "1000"], "background": True, "timeout": "20m"})
    assert r.status in (200, 201, 202), r
    ran = d.post(f"/v1/sandboxes/{limited}/execs", {"cmd": ["echo", "kept"], "background": True}).json["id"]
    eventually(lambda: d.get(f"/v1/sandboxes/{limited}/execs/{ran}/output").body == b"kept\n", 60)
    running = r.json["id"]
    for ahead in HOUR, -HOUR:
        shift(ahead)
        assert ahead - 60 < seconds(now(d)) - before < ahead + 600  # the clock that was set is the one that it has
        a_short_one_ends(d)
        assert 300 < left(d, limited) <= 1200
        assert d.get(f"/v1/sandboxes/{idle}").json["state"] == "running"
        assert d.get(f"/v1/sandboxes/{limited}/execs/{running}").json["state"] == "running"
        assert d.get(f"/v1/sandboxes/{limited}/execs/{ran}/output").body == b"kept\n"
    # What was noted is right, too: a new process goes by it.
    shift(HOUR)
    a_short_one_ends(d)
    was = d.children()["api"]
    d.kill9("api")
    eventually(lambda: d.children().get("api") not in (None, was), 60)
    eventually(lambda: d.get(f"/v1/sandboxes/{limited}/execs/{running}").json["state"] == "running", 60)
    a_short_one_ends(d)
    assert 300 < left(d, limited) <= 1200
    assert d.get(f"/v1/sandboxes/{idle}").json["state"] == "running"
    assert d.get(f"/v1/sandboxes/{limited}/execs/{running}").json["state"] == "running"
