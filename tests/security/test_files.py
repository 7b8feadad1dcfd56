"""The file side against a sandbox and a caller who want a file of the host: nothing outside is read or changed.

Where ../shared/security (or CLOCHE_PROBES) has a set of probes written apart from this code, it is run as well.
"""
import io
import os
import pathlib
import sys
import tarfile
import tempfile
import time
import urllib.parse
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crash"))
import host  # noqa: E402
from crash import ByCommands  # noqa: E402
from daemon import Daemon  # noqa: E402

OTHERS = pathlib.Path(os.environ.get("CLOCHE_PROBES") or host.ROOT.parent / "shared/security")
SECRET = "CANARY" + uuid.uuid4().hex


@pytest.fixture(scope="module")
def daemon():
    host.become_subreaper()
    with Daemon() as d:
        yield d


@pytest.fixture(scope="module")
def box(daemon):
    return daemon.create(memory="128M", disk="64M")["id"]


@pytest.fixture(scope="module")
def canary():
    path = pathlib.Path("/root") / f".cloche-canary-{uuid.uuid4().hex[:8]}"
    path.write_text(SECRET)
    yield str(path)
    assert path.read_text() == SECRET and not path.is_symlink()
    path.unlink()


def place(box, path, **query):
    return f"/v1/sandboxes/{box}/files?" + urllib.parse.urlencode({"path": path, **query}, errors="surrogateescape")


WAYS = ["{c}", "/.." * 20 + "{c}", "/tmp/" + "../" * 20 + "{c}", "/proc/1/root{c}", "/proc/self/root{c}", "/proc/1/cwd{c}",
        "/proc/self/cwd/../..{c}", "/tmp/%2e%2e/%2e%2e{c}", "/dev/fd/0", "/proc/self/fd/3", "{c}\0.txt", "/tmp/link", "/tmp/top{c}",
        "/tmp/first{c}"]


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("way", WAYS)
def test_no_path_leads_out(daemon, box, canary, way, user):
    made = daemon.exec(box, "sh", "-c", f"ln -sfn {canary} /tmp/link; ln -sfn / /tmp/top; ln -sfn /proc/1/root /tmp/first")
    assert made["exit_code"] == 0
    path = way.format(c=canary)
    r = daemon.get(place(box, path, user=user), timeout=10)
    assert SECRET.encode() not in r.body
    r = daemon.request("PUT", place(box, path, user=user), b"OVERWRITTEN", timeout=10)
    assert r.status < 500
    assert pathlib.Path(canary).read_text() == SECRET


def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, kind, link, data in members:
            m = tarfile.TarInfo(name)
            m.type, m.linkname, m.size, m.mode = kind, link, len(data), 0o6755
            t.addfile(m, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("user", ["user", "root"])
def test_no_archive_leads_out(daemon, box, canary, user):
    folder, name = os.path.split(canary)
    archives = [
        tar((canary, tarfile.REGTYPE, "", b"X")),
        tar(("../" * 20 + canary[1:], tarfile.REGTYPE, "", b"X")),
        tar(("s", tarfile.SYMTYPE, folder, b""), ("s/" + name, tarfile.REGTYPE, "", b"X")),
        tar(("h", tarfile.LNKTYPE, canary, b""), ("h", tarfile.REGTYPE, "", b"X")),
        tar(("b", tarfile.BLKTYPE, "", b"")),
        tar(("c", tarfile.CHRTYPE, "", b"")),
        tar(("p", tarfile.FIFOTYPE, "", b"")),
        tar(("set", tarfile.REGTYPE, "", b"#!/bin/sh\nid\n")),
        b"\x28\xb5\x2f\xfd" + os.urandom(2000),
        os.urandom(5000),
    ]
    for archive in archives:
        r = daemon.request("POST", place(box, "/tmp/in-" + user, op="extract", user=user), archive, timeout=20)
        assert r.status < 500, r
        assert pathlib.Path(canary).read_text() == SECRET
    odd = daemon.exec(box, "sh", "-c", f"find /tmp/in-{user} -xdev \\( -type b -o -type c -o -type p -o -perm /6000 \\)", user="root")
    assert odd["stdout"] == ""


@pytest.mark.parametrize("make, path", [("mkfifo /tmp/fifo", "/tmp/fifo"), ("true", "/dev/zero"), ("true", "/dev/tty"),
                                        ("true", "/proc/kmsg")])
def test_what_never_ends_is_not_read(daemon, box, make, path):
    daemon.exec(box, "sh", "-c", f"test -e {path} || {make}")
    begun = time.monotonic()
    r = daemon.get(place(box, path), timeout=10)
    assert r.status in (403, 404, 422) and time.monotonic() - begun < 5, r


def test_a_bomb_stops_at_the_disks_limit(daemon):
    small = daemon.create(memory="128M", disk="16M")["id"]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        m = tarfile.TarInfo("zeros")
        m.size = 48 << 20
        t.addfile(m, io.BytesIO(bytes(48 << 20)))
    r = daemon.request("POST", place(small, "/tmp/x", op="extract"), out.getvalue(), timeout=30)
    assert 400 <= r.status < 500 or r.json["skipped"], r
    assert daemon.exec(small, "true")["exit_code"] == 0
    assert daemon.delete(f"/v1/sandboxes/{small}").status == 204


if (OTHERS / "files_p.py").exists():
    def test_the_probes_written_apart_from_this_code_are_closed():
        with tempfile.TemporaryDirectory(prefix="cloche-test-", dir="/var/tmp") as folder:
            by = ByCommands(pathlib.Path(folder))
            assert by("start").returncode == 0
            try:
                code, text = by.run(OTHERS / "files_p.py", timeout=120)
                assert code == 0 and "SUMMARY open 0" in text and text.count("CLOSED") >= 21, text
            finally:
                by.done()
