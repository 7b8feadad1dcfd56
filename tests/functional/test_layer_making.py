"""cloche-layers, which makes layers for the warden: what it may do, and what holds when it dies (docs/design/0017-root.md)."""
import os
import pathlib
import signal
import time

import pytest

import host
from api import as_tenant
from daemon import Daemon

# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SYS_ADMIN, MKNOD, SETFCAP
CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 21 | 1 << 27 | 1 << 31


@pytest.fixture(autouse=True)
def d(nothing_is_left_behind):  # pylint: disable=unused-argument
    with Daemon() as one:
        yield one


def makers_of(d):
    found = []
    for pid in host.children(d.children()["warden"]):
        try:
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == b"cloche-layers\0make\0":
                found.append(pid)
        except OSError:
            pass
    return found


def maker_of(d):
    """The one that is kept for the next seal, when it has made the folder of that: what it did before is over."""
    store = pathlib.Path(d.data) / "layers"
    host.wait_for(lambda: len(makers_of(d)) == 1 and any(x.name.startswith("ready-") for x in store.iterdir()), 10, "a kept process")
    time.sleep(0.2)  # the folder may be there before it is synced
    return makers_of(d)[0]


def checkpoint(d, box, memory=False):
    return d.post(f"/v1/sandboxes/{box}/checkpoints", {"memory": memory}, timeout=60)


def test_it_has_the_layers_and_nothing_else(d):
    box = d.create(memory="64M")["id"]
    assert checkpoint(d, box).status == 201
    pid = maker_of(d)
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        assert {int(status[x], 16) for x in ("CapPrm", "CapEff")} == {CAPABILITIES}, status
        assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0, status
        assert status["Groups"].strip() == "" and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
        assert status.get("Seccomp_filters", "2") == "2", status  # the warden's, and its own list
    assert os.listdir(f"/proc/{pid}/root") == [] == os.listdir(f"/proc/{pid}/cwd")
    mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    assert len(mounts) == 1 and " - tmpfs " in mounts[0] and mounts[0].split()[5].split(",")[0] == "ro", mounts
    # Open are its socket, and what is in the store's mount, which is attached nowhere: ".." of that is itself.
    store = os.stat(pathlib.Path(d.data) / "layers").st_dev
    for n in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{n}"
        link = os.readlink(path)
        if link.startswith("/") and link != "/dev/null":
            assert os.stat(path).st_dev == store, (n, link)
            if os.path.isdir(path):
                top = os.open(path + "/../../../../..", os.O_PATH)
                here, layers = os.fstat(top), os.stat(pathlib.Path(d.data) / "layers")
                os.close(top)
                assert (here.st_dev, here.st_ino) == (layers.st_dev, layers.st_ino), (n, link)
        else:
            assert link == "/dev/null" or link.startswith("socket:") or int(n) < 3, (n, link)


def test_one_that_is_killed_is_replaced(d):
    box = d.create(memory="64M")["id"]
    assert d.exec(box, "sh", "-c", "echo kept > f")["exit_code"] == 0
    killed = set()
    for memory in (False, True, False):
        pid = maker_of(d)
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        c = checkpoint(d, box, memory)
        assert c.status == 201, (c, d.output)
        new, = d.post(f"/v1/checkpoints/{c.json['id']}/restore").json["sandboxes"]
        assert d.exec(new["id"], "cat", "f")["stdout"] == "kept\n"
        assert d.delete(f"/v1/sandboxes/{new['id']}").status == 204
        assert d.delete(f"/v1/checkpoints/{c.json['id']}").status == 204
    assert len(killed) == 3
    host.wait_for(lambda: not d.layers(), 20, "an empty store")
    assert sum(x.name.startswith("ready-") for x in (pathlib.Path(d.data) / "layers").iterdir()) <= 1


def test_another_tenant_gets_another(d):
    pids = []
    for tenant in (as_tenant(d, "one"), as_tenant(d, "two")):
        box = tenant.post("/v1/sandboxes", {"memory": "64M"}).json["id"]
        for _ in range(2):
            maker_of(d)
            r = tenant.post(f"/v1/sandboxes/{box}/checkpoints", {}, timeout=60)
            assert r.status == 201, (r, d.output)
            pids.append(maker_of(d))
    assert not {*pids[:2]} & {*pids[2:]}, pids
