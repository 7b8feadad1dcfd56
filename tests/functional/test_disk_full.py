"""A data folder whose disk is full to the last block, also those that the file system keeps for root: what runs goes on, what
is there can be read and deleted, what needs room is refused with the reason, and no process ends."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import host

from api import error, eventually, tenant
from daemon import Daemon

SECONDS = 60
MANY = 120  # deletes: more than the database's log has room for


def mount_ext4(place):
    image = place.parent / (place.name + ".img")
    with open(image, "wb") as f:
        f.truncate(96 << 20)
    # A tenth of it is root's.
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "10", "-J", "size=4", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)


def mount_tmpfs(place):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "none", place], check=True)


@pytest.fixture(params=[mount_ext4, mount_tmpfs], ids=["ext4", "tmpfs"])
def disk(request):
    own = pathlib.Path(tempfile.mkdtemp(prefix="cloche-test-", dir="/var/tmp"))
    own.chmod(0o755)
    place = own / "disk"
    place.mkdir()
    request.param(place)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        shutil.rmtree(own)


def fill(path):
    """As root, to the last block: what a larger piece does not fit into, a smaller one takes."""
    with open(path, "ab", buffering=0) as f:
        for size in (1 << 20, 1 << 16, 4096, 512, 1):
            try:
                while f.write(b"x" * size):
                    pass
            except OSError:
                pass
        os.fsync(f.fileno())


def fill_all(place):
    """Also what comes free a moment later."""
    def full():
        before = os.stat(place / "fill").st_blocks if (place / "fill").exists() else -1
        fill(place / "fill")
        return os.stat(place / "fill").st_blocks == before and not os.statvfs(place).f_bavail
    eventually(full, SECONDS)


def pids(d):
    return {**d.children(), "supervisor": d.pid}


def records(d):
    r = d.cli("audit", "verify", "--data", d.data)
    assert r.code == 0, r
    return [json.loads(line) for line in (d.data / "audit.log").read_text().splitlines()]


def refused(answer):
    e = error(answer, 503, "exhausted")
    assert "disk" in e["message"] and "full" in e["message"] and e["remedy"], e
    assert answer.headers["Retry-After"]


def test_on_a_full_disk_reads_and_deletes_go_on_and_nothing_ends(disk):
    with Daemon(disk / "data") as d:
        tenant(d, "other")
        kept, other, third = (d.create(name=n)["id"] for n in ("kept", "other", "third"))
        path = f"/v1/sandboxes/{kept}"
        assert d.put(f"{path}/files?path=/tmp/note", b"words").status in (200, 201, 204)
        checkpoints = [d.post(f"{path}/checkpoints", {}).json["id"] for _ in range(2)]
        asleep = d.post(f"{path}/execs", {"shell": "echo begun; read x; echo $x > /tmp/heard; exec sleep 1000", "background": True,
                                          "stdin_open": True}).json["id"]
        eventually(lambda: b"begun" in d.get(f"{path}/execs/{asleep}/output").body, SECONDS)
        assert d.put("/v1/secrets/word", {"value": "hush"}).status in (200, 201)
        token, *tokens = (d.post("/v1/tokens", {"name": f"x{n}", "scope": "read"}).json["id"] for n in range(MANY))
        before, told = pids(d), len(records(d))

        fill_all(disk)
        eventually(lambda: d.post(f"{path}/execs", {"cmd": ["true"]}).status == 503, SECONDS)
        fill_all(disk)

        # What is there can be looked at,
        assert {b["id"] for b in d.get("/v1/sandboxes").json["sandboxes"]} == {kept, other, third}
        assert d.get(path).json["state"] == "running"
        assert {c["id"] for c in d.get("/v1/checkpoints").json["checkpoints"]} == set(checkpoints)
        assert d.get(f"{path}/files?path=/tmp/note").body == b"words"
        for what in ("/v1/info", "/metrics", "/v1/secrets", "/v1/tokens", "/v1/tenants", "/v1/audit?limit=5", f"{path}/stats",
                     f"{path}/execs/{asleep}"):
            assert d.get(what).status == 200, what
        # what runs is heard and talked to,
        assert d.post(f"{path}/execs/{asleep}/stdin", b"this\n").status in (200, 204)
        eventually(lambda: d.get(f"{path}/files?path=/tmp/heard").body == b"this\n", SECONDS)
        # what needs room is refused,
        for method, what, body in (("POST", "/v1/sandboxes", {}), ("POST", f"{path}/execs", {"cmd": ["true"]}),
                                   ("POST", f"{path}/checkpoints", {}), ("POST", f"{path}/fork", {}), ("POST", f"{path}/pause", {}),
                                   ("POST", f"{path}/hibernate", {}), ("POST", f"{path}/restore", {"checkpoint": checkpoints[0]}),
                                   ("POST", f"/v1/checkpoints/{checkpoints[0]}/restore", {}), ("PATCH", path, {"name": "new"}),
                                   ("PUT", f"{path}/files?path=/tmp/more", b"x"), ("PUT", "/v1/secrets/word", {"value": "loud"}),
                                   ("PUT", "/v1/templates/t", {}), ("POST", "/v1/tokens", {"name": "y", "scope": "read"}),
                                   ("POST", "/v1/tenants", {"id": "more"})):
            refused(d.request(method, what, body))
        assert d.get(path).json["name"] == "kept" and d.get("/v1/tenants").json["tenants"][-1]["id"] == "other"
        # and what is there can be ended and deleted, all of it noted.
        assert d.post(f"{path}/execs/{asleep}/signal", {"signal": "KILL"}).status in (200, 202, 204)
        eventually(lambda: d.get(f"{path}/execs/{asleep}").json["state"] == "ended", SECONDS)
        for what in (f"/v1/checkpoints/{checkpoints[0]}", f"/v1/sandboxes/{other}", "/v1/secrets/word", f"/v1/tokens/{token}",
                     "/v1/tenants/other"):
            assert d.delete(what).status in (200, 204), what
            assert d.get(what).status == 404, what
            fill(disk / "fill")
        for one in tokens:
            assert d.delete(f"/v1/tokens/{one}").status == 204
        assert pids(d) == before
        gone = {r.get("checkpoint") or r.get("sandbox") or r.get("secret") or r["kind"] for r in records(d)[told:]}
        assert {checkpoints[0], other} <= gone, gone
        assert sum(r["kind"] == "token.revoke" for r in records(d)) == MANY

        (disk / "fill").unlink()
        eventually(lambda: d.post(f"{path}/execs", {"cmd": ["true"]}).status == 200, SECONDS)
        assert d.post("/v1/sandboxes", {"name": "new"}).status == 201
        assert d.post(f"{path}/checkpoints", {}).status == 201
        assert pids(d) == before
        assert d.get("/v1/audit/verify").json["ok"]

        # What was answered is there for the next one, too.
        d.restart()
        assert {b["name"] for b in d.get("/v1/sandboxes").json["sandboxes"]} == {"kept", "third", "new"}
        assert checkpoints[0] not in {c["id"] for c in d.get("/v1/checkpoints").json["checkpoints"]}
        assert d.get(f"/v1/tokens/{token}").status == 404
        assert d.exec(kept, "cat", "/tmp/note")["stdout"] == "words"
        assert d.get("/v1/audit/verify").json["ok"]


@pytest.mark.parametrize("disk", [mount_tmpfs], ids=["tmpfs"], indirect=True)
def test_a_note_that_is_missing_keeps_nobody_from_starting(disk):
    with Daemon(disk / "data") as d:
        box = d.create()["id"]
        d.stop()
        note, = (d.data / "notes").glob("boxes-*")
        note.unlink()
        fill_all(disk)
        d.start()
        assert [b["id"] for b in d.get("/v1/sandboxes").json["sandboxes"]] == [box]
        (disk / "fill").unlink()
        eventually(lambda: d.delete(f"/v1/sandboxes/{box}").status == 204, SECONDS)
