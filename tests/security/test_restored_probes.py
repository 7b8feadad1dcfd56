"""The probes in sandboxes that come out of a memory image: restored, forked, woken. Each says there what it says in a fresh one."""
import pytest

from test_warm_probes import WAITS, bring, clean, closed, d, probe, shared  # noqa: F401


def restored(d, box):
    c = d.post(f"/v1/sandboxes/{box}/checkpoints", {"memory": True})
    assert c.status == 201, c
    r = d.post(f"/v1/checkpoints/{c.json['id']}/restore", {"count": 1})
    assert r.status == 201, r
    return r.json["sandboxes"][0]


def forked(d, box):
    """Two at once: the agents of both are copies of one process, which holds the memory that they share."""
    r = d.post(f"/v1/sandboxes/{box}/fork", {"memory": True, "count": 2})
    assert r.status == 201, r
    return r.json["sandboxes"][1]


def woken(d, box):
    assert d.post(f"/v1/sandboxes/{box}/hibernate").status == 200
    r = d.post(f"/v1/sandboxes/{box}/resume")
    assert r.status == 200, r
    return r.json


def source(d, shared, user):
    """A sandbox with a process that becomes the probe on request."""
    b = d.create(user=user, memory="128M", pids=64, output_limit="4M", workdir="/home/user",
                 mounts=[{"source": str(shared), "target": "/ro", "read_only": True}])["id"]
    bring(d, b)
    r = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["sh", "-c", WAITS], "background": True})
    assert r.status == 201, r
    return b, r.json["id"]


def verdicts(text):
    closed(text)
    return {x[0]: x[1] for x in (line.split("\t") for line in text.splitlines())}


def as_new_command(d, box, probe):
    return verdicts(d.exec(box, *probe)["stdout"])


def as_old_process(d, box, x, probe):
    assert d.put(f"/v1/sandboxes/{box}/files?path=/home/user/go", " ".join(probe).encode()).status == 200
    r = d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=100", timeout=120).json
    assert r["state"] == "ended", r
    return verdicts(d.get(f"/v1/sandboxes/{box}/files?path=/home/user/said").body.decode())


@pytest.mark.parametrize("user", ["user", "root"])
def test_they_say_what_they_say_in_a_fresh_one(d, shared, probe, user):
    b, x = source(d, shared, user)
    fresh = as_new_command(d, b, probe)
    for happens in (restored, forked, woken):  # the last one is the source itself
        box = happens(d, b)
        own = x if happens is woken else box["restored"]["execs"][0]
        assert as_new_command(d, box["id"], probe) == fresh, happens
        assert as_old_process(d, box["id"], own, probe) == fresh, happens
