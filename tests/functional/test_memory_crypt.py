"""Memory images on the disk, encrypted (encrypt_memory): what is in processes is not in the blocks, and goes on all the same."""
import os
import pathlib
import subprocess
import tempfile

import pytest

from api import eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon

# A word that is in the process's memory alone: made of two halves, which stand apart in its program's text.
HOLD = "import time\nword = ('marker-of-' + 'the-process-') * 64\nprint(len(word), flush=True)\nwhile True: time.sleep(0.05); print(len(word), flush=True)"
WORD = b"marker-of-the-process-" * 4


@pytest.fixture
def disk(nothing_is_left_behind):
    """A file system with encryption: its folder, and its blocks."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="cloche-crypt-", dir="/var/tmp"))
    os.chmod(top, 0o755)
    image, place = top / "image", top / "place"
    place.mkdir()
    with open(image, "wb") as f:
        f.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-O", "encrypt", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    place.chmod(0o755)
    try:
        yield place, image
    finally:
        subprocess.run(["umount", place], check=True)
        subprocess.run(["rm", "-rf", top], check=True)


def config(place, text):
    path = place.parent / "conf"
    path.write_text(text)
    return Daemon(place / "data", "--config", path)


def held(d):
    b = d.create()
    r = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/usr/bin/python3", "-c", HOLD], "background": True})
    assert r.status == 201, r
    eventually(lambda: d.get(f"/v1/sandboxes/{b['id']}/execs/{r.json['id']}/output").body)
    return b


def saved(d, box):
    r = d.post(f"/v1/sandboxes/{box['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"] is True, r
    return r.json


def goes_on(d, c):
    r = d.post(f"/v1/checkpoints/{c['id']}/restore", {"count": 2})
    assert r.status == 201, r
    for n in r.json["sandboxes"]:
        own, = n["restored"]["execs"]
        eventually(lambda n=n, own=own: d.get(f"/v1/sandboxes/{n['id']}/execs/{own}/output").body.count(b"1408") > 2)
    return r.json["sandboxes"][0]


def blocks_have(image, word):
    os.sync()
    with open(image, "rb") as f:
        had = b""
        while piece := f.read(8 << 20):
            if word in had + piece:
                return True
            had = piece[-len(word):]
    return False


@pytest.mark.skipif(not os.path.exists("/sys/fs/ext4/features/encryption"), reason="this kernel's ext4 has no encryption")
@pytest.mark.parametrize("on", ["yes", "no"])
def test_what_processes_hold_is_not_in_the_blocks(disk, on):
    place, image = disk
    with config(place, f"encrypt_memory = {on}\n") as d:
        b = held(d)
        c = saved(d, b)
        second = saved(d, goes_on(d, c))  # only what differs from the first
        goes_on(d, second)
        assert d.post(f"/v1/sandboxes/{b['id']}/hibernate", {}).status == 200
        assert d.exec(b["id"], "echo", "awake")["stdout"] == "awake\n"
        for one in d.get("/v1/sandboxes").json["sandboxes"]:
            d.delete(f"/v1/sandboxes/{one['id']}")
        assert blocks_have(image, WORD) == (on == "no")
    # The key comes with the option, and goes with the daemon. Without it nothing can be read, and nothing is made of it.
    with config(place, "encrypt_memory = no\n") as d:
        r = d.post(f"/v1/checkpoints/{c['id']}/restore", {})
        assert (r.status == 201) == (on == "no"), r
        assert d.create()["state"] == "running"
    with config(place, "encrypt_memory = yes\n") as d:
        goes_on(d, second)
        for one in (second, c):
            assert d.delete(f"/v1/checkpoints/{one['id']}").status == 204


def test_where_it_cannot_be_the_daemon_does_not_start():
    place = pathlib.Path(tempfile.mkdtemp(prefix="cloche-crypt-", dir="/dev/shm"))
    try:
        place.chmod(0o755)
        (place / "disk").mkdir()
        with pytest.raises(AssertionError) as no:
            config(place / "disk", "encrypt_memory = yes\n").start()
        assert "has no encryption" in str(no.value), no.value
    finally:
        subprocess.run(["rm", "-rf", place], check=True)
