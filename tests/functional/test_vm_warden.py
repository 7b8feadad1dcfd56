"""What the warden keeps of machines: templates, disks, machines made ready; and what is left when any of it dies."""
import os
import pathlib
import re
import signal
import threading

import pytest

from api import error, eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from host import children
from small_image import machine_image
from tier_suite import LONG, Tier


@pytest.fixture(scope="module")
def tier(nothing_is_left_behind):  # noqa: F811
    with Daemon(None, "--images", machine_image().parent) as d:
        yield Tier("vm", d)


def store(tier):
    """What is in the folder of templates: {template: inode of its memory}, disks, half-made ones."""
    folder = pathlib.Path(tier.d.data) / "vm"
    names = os.listdir(folder) if folder.exists() else []
    whole = {n: os.stat(folder / n / "ram").st_ino for n in names if re.fullmatch(r"t-[0-9a-f]{32}", n)}
    return whole, sorted(n for n in names if n.startswith("d-")), [n for n in names if n.endswith(".part")]


def machines(tier):
    """QEMU's processes below the warden."""
    found, look = [], [tier.d.children()["warden"]]
    while look:
        for p in children(look.pop()):
            look.append(p)
            try:
                if os.readlink(f"/proc/{p}/exe").startswith("/usr/bin/qemu-system-"):
                    found.append(p)
            except OSError:
                pass
    return found


def test_a_warden_that_dies_while_a_template_boots_leaves_nothing_and_the_create_goes_on(tier):
    made = []
    maker = threading.Thread(target=lambda: made.append(tier.create()))
    maker.start()
    eventually(lambda: store(tier)[2] and machines(tier), LONG)
    tier.d.kill9("warden")
    maker.join(150)
    assert made and tier.sh(made[0], "echo here")["stdout"] == "here\n"
    whole, _, parts = store(tier)
    assert len(whole) == 1 and parts == []
    tier.delete(made[0])


def test_one_template_serves_all_of_its_kind_also_after_a_restart(tier):
    before = store(tier)[0]
    assert len(before) == 1
    a = tier.create(hostname="a")
    eventually(lambda: len(machines(tier)) == 2, LONG)  # and one is kept ready
    b = tier.create(hostname="b", io_bps="50M")
    assert [tier.sh(x, "hostname")["stdout"] for x in (a, b)] == ["a\n", "b\n"]
    tier.d.restart()  # each is found again, with its disk
    assert [tier.sh(x, "hostname")["stdout"] for x in (a, b)] == ["a\n", "b\n"] and len(store(tier)[1]) == 2
    assert tier.checkpoint(b)["isolation"] == "vm"
    tier.delete(a, b)
    tier.delete(tier.create())
    assert store(tier)[0] == before
    # Another size is another kind.
    other = tier.create(memory="136M")
    assert len(store(tier)[0]) == 2
    tier.delete(other)


def test_a_machine_of_another_version_is_lost_and_the_log_says_why(tier):
    b = tier.create()
    words = pathlib.Path(f"/proc/{tier.d.children()['warden']}/cmdline").read_bytes().split(b"\0")
    records = pathlib.Path(words[words.index(b"--state") + 1].decode()) / "boxes"
    tier.d.stop()
    data = bytearray(records.read_bytes())
    for at in range(0, len(data), 1024):  # where struct record has vm_side
        if any(data[at:at + 1024]):
            data[at + 928:at + 932] = (99).to_bytes(4, "little")
    records.write_bytes(data)
    tier.d.start()
    eventually(lambda: tier.state(b) == "lost", LONG)
    assert "to a newer version of cloche" in tier.d.output, tier.d.output
    eventually(lambda: len(machines(tier)) == 0 and store(tier)[1] == [], LONG)
    tier.delete(b)


def test_a_machine_that_is_killed_is_lost_and_leaves_no_disk(tier):
    b = tier.create()

    def kill_all():  # those that are kept ready, too, whenever they come
        for p in machines(tier):
            os.kill(p, signal.SIGKILL)
        return machines(tier) == []

    eventually(lambda: kill_all() and tier.state(b) == "lost", LONG)
    tier.delete(b)
    eventually(lambda: kill_all() and store(tier)[1] == [], LONG)
    assert tier.sh(tier.create(), "echo again")["stdout"] == "again\n"


def test_a_checkpoint_goes_with_its_template_or_not_at_all(tier):
    b = tier.create()
    tier.sh(b, "echo word > word")
    c = tier.checkpoint(b, memory=True)
    folder = pathlib.Path(tier.d.data) / "vm"
    tier.delete(b)
    tier.d.stop()  # nobody has it open then
    for name in store(tier)[0]:
        (folder / name).rename(folder / ("away-" + name))
    tier.d.start()
    error(tier.d.post(f"/v1/checkpoints/{c['id']}/restore", {}, timeout=150), 422, "refused")
    for name in folder.glob("away-*"):
        name.rename(folder / name.name[5:])
    n, = tier.restore(c)
    assert tier.sh(n, "cat word")["stdout"] == "word\n"
    tier.clean()


def test_a_warden_that_dies_in_a_checkpoint_leaves_a_machine_that_can_have_another(tier):
    b = tier.create()
    tier.sh(b, "head -c 30000000 /dev/urandom > much; sha256sum much > sum; sync")
    folder = pathlib.Path(tier.d.data) / "vm"
    path = f"/v1/sandboxes/{b['id']}/checkpoints"
    first = threading.Thread(target=lambda: tier.d.post(path, {}, timeout=150))
    first.start()
    eventually(lambda: any(f.stat().st_size for f in folder.glob("d-*.2")), LONG)  # QEMU writes there from now on
    tier.d.kill9("warden")
    first.join(150)
    tier.sh(b, "echo later > later")
    n, = tier.restore(tier.checkpoint(b))
    assert tier.sh(n, "sha256sum -c sum && cat later")["stdout"] == "much: OK\nlater\n"
    tier.clean()
