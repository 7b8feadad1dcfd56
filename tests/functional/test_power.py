"""audit_sync = always: what was answered is there after a power cut, and what was deleted stays away.

The data folder is on an ext4 of its own, in a file behind a loop device. What a cut leaves is what has been written to the
device so far: the file is copied while the daemon's processes stand still. What only the kernel's memory has (a file
that nobody has synced) is not in it; the file system commits by itself only every ten minutes here. Each copy is then
mounted, and a daemon is started on it as after a reboot.

CLOCHE_POWER=N makes N cuts at random moments instead of the few of each run.
"""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid

import pytest

from api import eventually
from daemon import Daemon

SECONDS = 60
BOOT_ID = "/proc/sys/kernel/random/boot_id"
CUTS = int(os.environ.get("CLOCHE_POWER", "3"))


@contextlib.contextmanager
def mounted(image, place, *options):
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", ",".join(("loop", *options)), image, place], check=True)
    try:
        yield place
    finally:
        # A sandbox's disk lies there, too, until its last process is gone.
        eventually(lambda: subprocess.run(["umount", place], check=False, stderr=subprocess.DEVNULL).returncode == 0, SECONDS)


def idle(image):
    """The loop device has nothing to do."""
    for dev in pathlib.Path("/sys/block").glob("loop*"):
        with contextlib.suppress(OSError):
            if (dev / "loop/backing_file").read_text().strip() == str(image):
                return (dev / "inflight").read_text().split() == ["0", "0"]
    return False


class World:
    """What was answered: of each thing whether it is "there" or "gone"; None while a call about it is under way."""

    def __init__(self, own):
        self.own, self.image = own, own / "disk.img"
        self.things, self.lock, self.cuts = {}, threading.Lock(), []
        self.head = None
        with open(self.image, "wb") as f:
            f.truncate(96 << 20)
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-J", "size=4", self.image], check=True)

    @contextlib.contextmanager
    def change(self, *things, to):
        for t in things:
            self.things[t] = None
        yield
        for t in things:
            self.things[t] = to

    def call(self, d, method, path, body=None):
        r = d.request(method, path, body)
        assert r.status < 300, r
        self.head = r.headers["X-Cloche-Audit"] or self.head
        return r.json if r.body else None

    def cut(self, d):
        with self.lock:
            head, before = self.head, dict(self.things)
            pids = [d.pid, *d.children().values()]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                copy = self.own / f"cut{len(self.cuts)}.img"
                eventually(lambda: idle(self.image), SECONDS)
                subprocess.run(["cp", "--sparse=always", "--reflink=auto", self.image, copy], check=True)
            finally:
                for pid in reversed(pids):
                    os.kill(pid, signal.SIGCONT)
            # What was begun or answered meanwhile may be either way.
            self.cuts.append((copy, head, {t: v for t, v in before.items() if v and self.things.get(t) == v}))


def check(d, thing, want):
    kind, name, *more = thing
    if kind == "token":
        assert (d.get("/v1/whoami", token=more[0]).status == 200) == (want == "there"), thing
        return
    path = {"secret": "/v1/secrets/", "checkpoint": "/v1/checkpoints/", "tenant": "/v1/tenants/", "template": "/v1/templates/"}.get(kind, "/v1/sandboxes/") + name
    r = d.get(path)
    assert r.status == (200 if want == "there" else 404), (thing, want, r)
    if want == "gone":
        return
    if kind == "checkpoint":
        box = d.post(f"{path}/restore", {})
        assert box.status == 201, (thing, box)
        box = box.json["sandboxes"][0]["id"]
        assert d.exec(box, "cat", "/tmp/word")["stdout"] == more[0], thing
        assert d.delete(f"/v1/sandboxes/{box}").status == 204
    elif kind == "disk":
        assert r.json["state"] == "stopped", r
        assert d.post(f"{path}/start").status == 200
        assert d.exec(name, "cat", "/kept")["stdout"] == more[0], thing
    elif kind == "asleep":
        assert r.json["state"] == "hibernated", r
        assert d.exec(name, "cat", "/tmp/word")["stdout"] == more[0], thing
    else:
        assert kind != "sandbox" or r.json["state"] == "lost", r


def look(world, copy, head, things):
    """After the reboot."""
    boot = world.own / "boot_id"
    boot.write_text(f"{uuid.uuid4()}\n")
    with mounted(copy, world.own / "after") as place:
        d = Daemon(place / "data", "--config", world.own / "config")
        d.before = ["unshare", "-m", "sh", "-c", f'mount --bind {boot} {BOOT_ID} && exec "$@"', "sh"]
        with d:
            for thing, want in things.items():
                check(d, thing, want)
            assert not d.get("/v1/checkpoints?limit=100").json.get("next")
            listed = {c["id"] for c in d.get("/v1/checkpoints?limit=100").json["checkpoints"]}
            assert not listed & {t[1] for t, want in things.items() if t[0] == "checkpoint" and want == "gone"}
            verify = d.cli("audit", "verify", "--data", d.data, *(("--head", head) if head else ()))
            assert verify.code == 0, verify
    copy.unlink()


def live(world, d, rounds):
    """The calls of each round; a cut may come at any time."""
    call, change = world.call, world.change
    for n in range(rounds):
        box = call(d, "POST", "/v1/sandboxes", {"name": f"box{n}"})["id"]
        world.things["sandbox", box] = "there"
        d.exec(box, "sh", "-c", f"echo w{n} > /tmp/word")
        old, new = (call(d, "POST", f"/v1/sandboxes/{box}/checkpoints", {})["id"] for _ in range(2))
        for c in (old, new):
            world.things["checkpoint", c, f"w{n}\n"] = "there"
        token = call(d, "POST", "/v1/tokens", {"name": f"t{n}", "scope": "read"})
        world.things["token", token["id"], token["token"]] = "there"
        with change(("secret", f"s{n}"), to="there"):
            call(d, "PUT", f"/v1/secrets/s{n}", {"value": "hush"})
        yield "made"
        with change(("checkpoint", old, f"w{n}\n"), to="gone"):
            call(d, "DELETE", f"/v1/checkpoints/{old}")
        yield "checkpoint deleted"
        copy = call(d, "POST", f"/v1/checkpoints/{new}/restore", {"name": f"copy{n}"})["sandboxes"][0]["id"]
        world.things["sandbox", copy] = "there"
        for one in call(d, "POST", f"/v1/sandboxes/{box}/fork", {})["sandboxes"]:
            world.things["sandbox", one["id"]] = "there"
        with change(("token", token["id"], token["token"]), to="gone"):
            call(d, "DELETE", f"/v1/tokens/{token['id']}")
        with change(("secret", f"s{n}"), to="gone"):
            call(d, "DELETE", f"/v1/secrets/s{n}")
        disk = call(d, "POST", "/v1/sandboxes", {"name": f"disk{n}", "storage": "disk", "disk": "8M"})["id"]
        d.exec(disk, "sh", "-c", f"echo d{n} > /kept; sync", user="root")
        world.things["disk", disk, f"d{n}\n"] = "there"
        yield "disk made"
        del world.things["sandbox", box]
        call(d, "POST", f"/v1/sandboxes/{box}/hibernate")
        world.things["asleep", box, f"w{n}\n"] = "there"
        with change(("sandbox", copy), to="gone"):
            call(d, "DELETE", f"/v1/sandboxes/{copy}")
        with change(("disk", disk, f"d{n}\n"), to="gone"):
            call(d, "DELETE", f"/v1/sandboxes/{disk}")
        yield "asleep, and deleted"


@pytest.fixture
def world():
    own = pathlib.Path(tempfile.mkdtemp(prefix="cloche-test-", dir="/var/tmp"))
    own.chmod(0o755)
    (own / "config").write_text("audit_sync = always\n")
    try:
        yield World(own)
    finally:
        shutil.rmtree(own)


def test_after_a_cut_what_was_answered_is_there_and_what_was_deleted_is_not(world):
    with mounted(world.image, world.own / "disk", "commit=600") as place, Daemon(place / "data", "--config", world.own / "config") as d:
        world.cut(d)
        for _ in live(world, d, 1):
            world.cut(d)
    assert len(world.cuts) == 5
    for one in world.cuts:
        look(world, *one)


def test_a_cut_in_the_middle_of_anything_is_no_obstacle_to_a_start(world):
    stop = threading.Event()

    def cutting(d):
        while len(world.cuts) < CUTS and not stop.wait(random.uniform(0, 0.4)):
            world.cut(d)

    with mounted(world.image, world.own / "disk", "commit=600") as place, Daemon(place / "data", "--config", world.own / "config") as d:
        cutter = threading.Thread(target=cutting, args=(d,))
        cutter.start()
        try:
            for _ in live(world, d, max(1, CUTS // 8)):
                time.sleep(0)
        finally:
            stop.set()
            cutter.join()
        world.cut(d)
    for one in world.cuts:
        look(world, *one)
