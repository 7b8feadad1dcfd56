"""A fork is answered before its layer is safe on the disk: what happens in between is noticed, and nothing is lost."""
import os
import pathlib
import shutil
import struct
import tempfile

import pytest

import host
from api import error, eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon

UNSETTLED = 0x80000000
LONG = 60


@pytest.fixture(scope="module")
def slow(nothing_is_left_behind):  # noqa: F811 pylint: disable=redefined-outer-name,unused-argument
    """Its warden settles layers an hour after they were answered."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cloche-test-", dir="/var/tmp"))
    os.chmod(folder, 0o755)
    for p in host.BUILD.iterdir():
        if p.name.startswith("cloche") and p.is_file():
            shutil.copy2(p, folder / p.name)
    shutil.copy2(host.BUILD / "faulty" / "cloche-warden", folder / "cloche-warden")
    real = host.CLOCHE
    host.CLOCHE = folder / "cloche"
    try:
        with Daemon(env={"CLOCHE_SETTLE_SECONDS": "3600"}) as one:
            yield one
    finally:
        host.CLOCHE = real
        shutil.rmtree(folder)


def settled(d, layer):
    version, = struct.unpack_from("<I", (d.data / "layers" / layer / "manifest").read_bytes(), 8)
    return not version & UNSETTLED


def fork(d):
    """A source that counts, one copy of it, and its layer."""
    b = d.create(memory="64M", disk="16M")
    r = d.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done", "background": True})
    assert r.status == 201, r
    before = d.layers()
    r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": 1, "memory": True})
    assert r.status == 201, r
    copy, = r.json["sandboxes"]
    layer, = {x for x in d.layers() - before if "." not in x}
    return b, copy, layer


def goes_on(d, box):
    x, = box["restored"]["execs"]
    path = f"/v1/sandboxes/{box['id']}/execs/{x}/output"
    had = len(d.get(path).body)
    eventually(lambda: len(d.get(path).body) > had, LONG)


def ends(d, *boxes):
    for b in boxes:
        assert d.delete(f"/v1/sandboxes/{b['id']}").status == 204


def healthy(d):
    try:
        return d.get("/healthz", timeout=5).status == 200 and "warden" in d.children()
    except OSError:
        return False


def test_what_has_to_last_settles_what_it_stands_on(slow):
    d = slow
    b, copy, layer = fork(d)
    assert not settled(d, layer)
    goes_on(d, copy)
    r = d.post(f"/v1/sandboxes/{copy['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and settled(d, layer) and settled(d, r.json["id"]), r
    made = d.post("/v1/sandboxes", {"checkpoint": r.json["id"]})
    assert made.status == 201, made
    goes_on(d, made.json)
    ends(d, b, copy, made.json)
    assert d.delete(f"/v1/checkpoints/{r.json['id']}").status == 204
    eventually(lambda: layer not in d.layers(), LONG)


@pytest.mark.parametrize("part", ["meta", "pages"])
def test_an_image_that_is_altered_behind_the_answer_is_noticed(slow, part):
    d = slow
    b, copy, layer = fork(d)
    assert not settled(d, layer)
    with open(d.data / "layers" / layer / "mem" / part, "r+b") as f:
        f.seek(-1, 2)
        last = f.read(1)
        f.seek(-1, 2)
        f.write(bytes([last[0] ^ 1]))
    e = error(d.post(f"/v1/sandboxes/{copy['id']}/checkpoints", {"memory": True}), 422, "refused")
    assert "damaged" in e["message"] + str(e["cause"]), e
    assert not settled(d, layer)
    ends(d, b, copy)
    eventually(lambda: layer not in d.layers(), LONG)


def test_kill_9_between_answer_and_settled(slow):
    d = slow
    b, copy, layer = fork(d)
    assert not settled(d, layer)
    d.kill9("warden")
    eventually(lambda: healthy(d) and settled(d, layer), LONG)  # by the next one, at its start
    goes_on(d, copy)
    eventually(lambda: d.post(f"/v1/sandboxes/{copy['id']}/fork", {"count": 1, "memory": True}).status == 201, LONG)
    ends(d, *d.get("/v1/sandboxes?limit=1000").json["sandboxes"])
    assert b
    eventually(lambda: layer not in d.layers(), LONG)


def test_kill_9_of_everything_between_answer_and_settled(slow):
    d = slow
    b, copy, layer = fork(d)
    assert not settled(d, layer)
    d.kill9("all")
    d.start(60)
    eventually(lambda: healthy(d) and settled(d, layer), LONG)
    goes_on(d, copy)
    ends(d, b, copy)
    eventually(lambda: layer not in d.layers(), LONG)


def test_an_image_that_is_altered_while_no_warden_runs_is_not_accepted(slow):
    d = slow
    b, copy, layer = fork(d)
    assert not settled(d, layer)
    d.stop()
    with open(d.data / "layers" / layer / "mem" / "pages", "r+b") as f:
        f.write(b"altered")
    d.start(60)
    e = error(d.post(f"/v1/sandboxes/{copy['id']}/checkpoints", {"memory": True}), 422, "refused")
    assert e["message"] and not settled(d, layer), e
    ends(d, b, copy)
    eventually(lambda: layer not in d.layers(), LONG)


def test_a_warden_ends_in_order_with_a_layer_that_is_not_settled(slow):
    d = slow
    other = d.create(memory="64M", disk="16M")
    b, copy, layer = fork(d)
    for x in (copy, other):
        assert d.post(f"/v1/sandboxes/{x['id']}/execs", {"shell": "head -c 4M /dev/urandom > f"}).json["exit_code"] == 0
    r = d.post(f"/v1/sandboxes/{copy['id']}/fork", {"count": 1, "memory": True})
    assert r.status == 201, r
    made = d.post(f"/v1/sandboxes/{other['id']}/checkpoints", {})  # leaves its memory and threads for the next one
    assert made.status == 201, made
    d.restart()
    assert not any("while ending" in line for line in d.log), d.log
    ends(d, other, b, copy, *r.json["sandboxes"])
    assert d.delete(f"/v1/checkpoints/{made.json['id']}").status == 204
    eventually(lambda: layer not in d.layers(), LONG)
