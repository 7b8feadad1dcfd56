"""Checkpoints of one machine without an end: disks are joined, nothing is lost, not even if a process is killed meanwhile."""
import os
import pathlib
import signal
import threading
import time

import pytest

from api import eventually, nothing_is_left_behind  # noqa: F401
from test_vm_proofs import check_disk, programs, tier  # noqa: F401
from tier_suite import LONG, clean  # noqa: F401

MANY = int(os.environ.get("CLOCHE_CHAIN", "40"))  # disks are joined when there are twelve

# Files that come, change and go; some stay from one step to a far later one.
STEP = """
mkdir -p kept; for n in $STEPS; do
  echo $n >> log; head -c 50000 /dev/urandom > new; mv new now; rm -f kept/$((n - 3)); [ $((n % 2)) = 0 ] || cp now kept/$n
  [ $((n % 7)) = 0 ] && sync
done; sha256sum now kept/* > sums; cat log | md5sum"""
CHECK = "sha256sum -c sums > said 2>&1 && wc -l < log || cat said"


def step(tier, box, *numbers):
    r = tier.sh(box, STEP, env={"STEPS": " ".join(map(str, numbers))})
    assert r["exit_code"] == 0, r


def disks(tier, c=None):
    """Those of a checkpoint's layer, or of all machines that live."""
    data = pathlib.Path(tier.d.data)
    return sorted((data / "layers" / c["id"]).rglob("disk.*")) if c else sorted((data / "vm").glob("d-*"), key=lambda p: int(p.suffix[1:]))


def is_as_it_was(tier, c, n):
    b, = tier.restore(c)
    assert tier.sh(b, CHECK)["stdout"] == f"{n}\n", (n, tier.sh(b, "cat said log")["stdout"])
    return b


def test_many_in_a_row_and_more_on_top_of_the_last(tier, clean, tmp_path):  # noqa: F811
    b = tier.create()
    made = {}
    for n in range(1, MANY + 1):
        step(tier, b, n)
        made[n] = tier.checkpoint(b)
        assert len(disks(tier)) < 13 and len(disks(tier, made[n])) < 13
    # What did not change is not written again: it is one file of several layers.
    assert any(d.stat().st_nlink > 5 for d in disks(tier, made[MANY]))
    for n in (2, 14, 17, MANY - 1):  # those beside, and where disks were joined
        tier.d.delete(f"/v1/checkpoints/{made[n]['id']}")
    for n in (16, 15):
        tier.delete(is_as_it_was(tier, made[n], n))
    tier.delete(b)
    tier.delete(is_as_it_was(tier, made[1], 1))
    check_disk(tier, made[MANY], tmp_path)
    # Now each stands on the one before, which is deleted: layers are joined, too, and their memory.
    last, pid = made[MANY], None
    for n in range(MANY + 1, MANY + 5):
        b = is_as_it_was(tier, last, n - 1)
        step(tier, b, n)
        if pid is None:
            pid = tier.start(b, "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.1; done")
        last = tier.checkpoint(b, memory=True)
        assert len(disks(tier, last)) < 13
        tier.delete(b)
    for c in tier.d.get("/v1/checkpoints?limit=1000").json["checkpoints"]:
        if c["id"] != last["id"]:
            tier.d.delete(f"/v1/checkpoints/{c['id']}")
    b = is_as_it_was(tier, last, MANY + 4)
    before = len(tier.output(b, pid))
    eventually(lambda: len(tier.output(b, pid)) > before, LONG)
    assert [int(x) for x in tier.output(b, pid)] == sorted(int(x) for x in tier.output(b, pid))


@pytest.mark.parametrize("who", ["warden", "cloche-vmm", "qemu-system-"])
def test_who_dies_while_disks_are_joined_takes_nothing_along(tier, clean, who):  # noqa: F811
    b = tier.create()
    tier.sh(b, "head -c 25000000 /dev/urandom > much; sync")
    n, before = 0, None
    while True:
        n += 1
        step(tier, b, n)
        if len(disks(tier)) == 11:
            break
        before = tier.checkpoint(b)
    top = disks(tier)[-1]
    size = top.stat().st_blocks
    seal = threading.Thread(target=lambda: tier.d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {}, timeout=150))
    seal.start()
    eventually(lambda: not seal.is_alive() or top.stat().st_blocks > size + 8000, LONG)
    if who == "warden":
        tier.d.kill9("warden")
    else:
        for p in programs(tier.d.pid, who):
            os.kill(p, signal.SIGKILL)
    seal.join(150)
    if who == "warden":  # the machine never noticed, and can have another
        assert tier.sh(b, CHECK)["stdout"] == f"{n}\n"
        step(tier, b, n + 1)
        tier.delete(is_as_it_was(tier, tier.checkpoint(b), n + 1))
    else:
        eventually(lambda: tier.state(b) == "lost", LONG)
    tier.delete(b)
    eventually(lambda: disks(tier) == [], LONG)
    tier.delete(is_as_it_was(tier, before, n - 1))


def test_a_paused_machine_is_sealed_without_an_end_and_stays_paused(tier, clean):  # noqa: F811
    """With a throttle, which is above its disks."""
    b = tier.create(io_bps="50M")
    step(tier, b, 1)
    x = tier.start(b, "i=0; while :; do i=$((i+1)); echo $i > ticks; done")
    eventually(lambda: int(tier.sh(b, "cat ticks")["stdout"] or 0) > 9, LONG)
    tier.call("POST", b, "/pause", {})
    paused, first, most = time.time(), tier.checkpoint(b), 0
    for _ in range(14):
        c = tier.checkpoint(b)
        most = max(most, len(disks(tier)))
    assert tier.state(b) == "paused" and most >= 13 > len(disks(tier))  # of one that ended a moment ago there may be another
    # Nothing of it has run since it stood still for the first one.
    clones = (*tier.restore(first), *tier.restore(c))
    ticks = [tier.sh(n, "cat ticks")["stdout"] for n in clones]
    tier.delete(*clones)
    assert ticks[0] == ticks[1], ticks
    if time.time() - paused < 3:
        time.sleep(3 - (time.time() - paused))  # for its clock to be late
    tier.call("POST", b, "/resume", {})
    resumed = time.time()
    assert int(tier.sh(b, "date +%s")["stdout"]) > resumed - 2
    eventually(lambda: int(tier.sh(b, "cat ticks")["stdout"] or 0) > int(ticks[0] or 0), LONG)
    tier.call("DELETE", b, f"/execs/{x}")
    step(tier, b, 2)
    tier.delete(is_as_it_was(tier, c, 1))
    tier.delete(is_as_it_was(tier, tier.checkpoint(b), 2))
