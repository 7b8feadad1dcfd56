"""Checkpoints as one file: carried to another daemon, and what is refused when the file is not what was exported."""
import hashlib
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import tarfile
import time

import pytest

from api import Raw, as_tenant, d, error, eventually, nothing_is_left_behind, parallel, rss  # noqa: F401
from daemon import Daemon
from test_checkpoints import checkpoint, clean, layers, restore, sh  # noqa: F401

MAKE = r"""set -e; cd /root
echo hello > a; chmod 640 a; chown 1000:5 a; ln a b; ln -s /nowhere l; mkdir -p d/e; mkfifo -m 620 p; touch -d '2001-02-03 04:05:06' d/e/old
truncate -s 24M sparse; printf end | dd of=sparse bs=1 seek=12M conv=notrunc status=none
printf odd > "$(printf 'x\ny \303')"; printf odd > "$(printf 'b\377d')"
python3 -c "import os; os.setxattr('a', 'user.k', b'v\0w')"
cp /bin/true cap; chmod 4755 cap; mkdir s; chmod 3777 s; chown 7:8 d
rm /etc/hostname; echo more >> /etc/hosts; rm -rf /etc/init.d; mkdir /etc/init.d; echo only > /etc/init.d/one
rm -r /home/user; echo file > /home/user; touch -d '2002-01-01' d
"""
LOOK = r"""cd /root; find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run/cloche -o -path /usr \) -prune -o -type d -printf '%P|d|%m|%U|%G\n' -o -printf '%P|%y|%m|%U|%G|%s|%l|%n\n' | grep -v machine-id | sort
cat a l b 2>&1; stat -c '%Y %n' a d d/e/old; stat -c %i a b | uniq | wc -l; du -k sparse | cut -f1; tail -c 12582912 sparse | head -c 3; ls /etc/init.d; cat /home/user
python3 -c "import os; print(os.getxattr('a', 'user.k'), sorted(os.listdir(b'.')))"; sha256sum cap"""


SIGNATURE = 121  # bytes, behind the sum


def export(d, c, **kw):
    r = d.get(f"/v1/checkpoints/{c['id']}/export", **kw)
    assert r.status == 200 and r.headers["Content-Type"] == "application/zstd", r
    return r.body


def bring(d, data, query="", **kw):
    return d.request("POST", "/v1/checkpoints/import" + query, data, **kw)


def entries(data):
    raw = subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return tarfile.open(fileobj=io.BytesIO(raw))


def pack(members, manifest=None):
    """A file as cloche would make it, of whatever is wanted: [(TarInfo, bytes)]."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for info, data in ([] if manifest is None else [(named("manifest.json"), json.dumps(manifest).encode())]) + members:
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return seal(subprocess.run(["zstd", "-c", "-q"], input=out.getvalue(), stdout=subprocess.PIPE, check=True).stdout)


def seal(packed):
    return packed + struct.pack("<II", 0x184D2A5C, 48) + b"cloche-sha256-1\n" + hashlib.sha256(packed).digest()


def named(name, kind=tarfile.REGTYPE, **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    for k, v in fields.items():
        setattr(info, k, v)
    return info


@pytest.fixture(scope="module")
def golden(d):
    b = d.create(user="root", env={"A": "1"}, name="golden-box", memory="256M", metadata={"m": "1"})
    sh(d, b, "mkdir /srv/first; echo 1 > /srv/first/f; echo 1 > /srv/gone")
    first = checkpoint(d, b)
    b, = restore(d, first, **{"as": "golden-two"})
    sh(d, b, MAKE + "rm /srv/gone; echo 2 >> /srv/first/f")
    c = checkpoint(d, b, name="gold", label="of the first kind", metadata={"k": "v"})
    return c, sh(d, b, LOOK), export(d, c)


def test_a_checkpoint_is_carried_to_another_machine(d, golden):
    c, look, data = golden
    with Daemon() as other:
        r = bring(other, data)
        assert r.status == 201, r
        n = r.json
        assert n["name"] == "gold" and n["label"] == "of the first kind" and n["metadata"] == {"k": "v"} and n["state"] == "made" and n["depth"] == 1 and not n["memory"]
        assert n["sandbox_name"] == "golden-two" and n["config"]["env"] == {"A": "1"} and n["config"]["memory"] == 256 << 20 and n["config"]["storage"] == "memory"
        assert r.headers["X-Cloche-Audit"]
        assert other.get("/v1/sandboxes").json["sandboxes"] == []  # nobody sees the one it was made in
        b, = restore(other, n)
        assert sh(other, b, LOOK) == look
        assert sh(other, b, "echo $A; test -e /srv/gone || echo gone") == "1\ngone"
        # The same changes, seen from the image, and the same file again but for its manifest.
        mine, theirs = (x.get(f"/v1/checkpoints/{y['id']}/diff").json for x, y in ((d, c), (other, n)))
        assert mine["entries"] == theirs["entries"]
        again = [(m.name, m.type, m.mode, m.uid, m.gid, m.size, m.linkname, m.mtime, m.pax_headers) for m in entries(export(other, n)) if m.name != "manifest.json"]
        assert again == [(m.name, m.type, m.mode, m.uid, m.gid, m.size, m.linkname, m.mtime, m.pax_headers) for m in entries(data) if m.name != "manifest.json"]
        # Names may be given, and the same file can come twice.
        assert bring(other, data, "?name=twice&label=x").json["name"] == "twice"
        for x in other.get("/v1/checkpoints").json["checkpoints"]:
            assert other.delete(f"/v1/checkpoints/{x['id']}").status == 204


def test_the_file_is_what_the_document_says(golden):
    c, _, data = golden
    t = entries(data)
    names = t.getnames()
    assert names[0] == "manifest.json" and all(n.startswith("fs/") for n in names[1:])
    m = json.load(t.extractfile("manifest.json"))
    assert m["format"] == "cloche-checkpoint" and m["version"] == 1 and m["id"] == c["id"] and m["config"] == c["config"] and len(m["layers"]) == 2
    gone = t.getmember("fs/etc/hostname")
    assert gone.ischr() and (gone.devmajor, gone.devminor) == (0, 0)
    assert t.getmember("fs/root/b").islnk() and t.getmember("fs/root/cap").mode == 0o4755
    bare, signature = data[:-SIGNATURE], data[-SIGNATURE:]
    assert bare[-56:] == seal(bare[:-56])[-56:]
    assert signature[:25] == struct.pack("<II", 0x184D2A5C, SIGNATURE - 8) + b"cloche-ed25519-1\n"
    assert len(data) < 200000  # 24 MB of holes are not in it


def test_what_was_altered_or_cut_is_refused(d, golden):
    """Hundreds of them: every byte counts."""
    data = golden[2]
    before, rng = layers(d), random.Random(5)
    had = {c["id"] for c in d.get("/v1/checkpoints?limit=1000").json["checkpoints"]}
    spots = [0, 1, 4, 5, len(data) - 1, len(data) - 33, len(data) - 40, len(data) - 50, len(data) - 56, len(data) - 57] + [rng.randrange(len(data)) for _ in range(150)]
    bad = [data[:i] + bytes([data[i] ^ (1 << rng.randrange(8))]) + data[i + 1:] for i in spots]
    bad += [data[:i] for i in [0, 1, 56, len(data) - 1, len(data) - 56, len(data) - 57] + [i for i in (rng.randrange(len(data)) for _ in range(50)) if i != len(data) - SIGNATURE]]
    bad += [data + b"x", data + data, data + b"\0" * 4096, data[:1000] + data[1001:], b"x" * 100, b"\0" * 100000, seal(b""), seal(b"hello")]

    def one(i):
        return [bring(d, x) for x in bad[i::4]]

    for answers in parallel(4, one):
        for r in answers:
            error(r, 422, "refused")
    assert {c["id"] for c in d.get("/v1/checkpoints?limit=1000").json["checkpoints"]} == had
    assert d.get("/v1/sandboxes?state=making").status in (200, 400)
    for _ in range(100):
        if layers(d) <= before:
            break
        time.sleep(0.1)
    assert layers(d) <= before
    r = bring(d, data)  # and the right one still is
    assert r.status == 201
    d.delete(f"/v1/checkpoints/{r.json['id']}")


GOOD = {"format": "cloche-checkpoint", "version": 1, "name": "n", "config": {"image": "host"}}


def test_a_file_that_others_have_made(d, clean):
    folder = named("fs/root/x", tarfile.DIRTYPE, mode=0o700)
    had = len(d.get("/v1/checkpoints").json["checkpoints"])
    r = bring(d, pack([(folder, b""), (named("fs/root/x/f", mode=0o600, uid=3), b"abc"), (named("fs/etc/hosts", tarfile.CHRTYPE), b"")], GOOD))
    assert r.status == 201, r
    b, = restore(d, r.json)
    assert sh(d, b, "cat /root/x/f; stat -c %u:%a /root/x/f; ls /etc/hosts 2>&1 | grep -c No", user="root") == "abc3:600\n1"
    assert bring(d, pack([], GOOD)).status == 201  # nothing changed at all
    for what, bad in {
        "no manifest": pack([(folder, b"")]),
        "manifest last": pack([(folder, b""), (named("manifest.json"), json.dumps(GOOD).encode())]),
        "not JSON": pack([(named("manifest.json"), b"{")]),
        "another format": pack([], {**GOOD, "format": "x"}),
        "another version": pack([], {**GOOD, "version": 2}),
        "another image": pack([], {**GOOD, "config": {"image": "nowhere-at-all"}}),
        "unknown settings": pack([], {**GOOD, "config": {"image": "host", "nome": 1}}),
        "no settings": pack([], {k: v for k, v in GOOD.items() if k != "config"}),
        "outside": pack([(named("etc/passwd"), b"x")], GOOD),
        "absolute": pack([(named("/etc/passwd"), b"x")], GOOD),
        "dots": pack([(named("fs/../../etc/passwd"), b"x")], GOOD),
        "dots in the middle": pack([(named("fs/root/../../etc/passwd"), b"x")], GOOD),
        "a device": pack([(named("fs/root/null", tarfile.CHRTYPE, devmajor=1, devminor=3), b"")], GOOD),
        "a block device": pack([(named("fs/root/disk", tarfile.BLKTYPE, devmajor=8), b"")], GOOD),
        "a link to outside": pack([(named("fs/root/l", tarfile.LNKTYPE, linkname="etc/passwd"), b"")], GOOD),
        "a link through dots": pack([(named("fs/root/l", tarfile.LNKTYPE, linkname="fs/../../etc/shadow"), b"")], GOOD),
        "a link to nothing": pack([(named("fs/root/l", tarfile.LNKTYPE, linkname="fs/root/none"), b"")], GOOD),
        "through a link": pack([(named("fs/root/l", tarfile.SYMTYPE, linkname="/proc/1"), b""), (named("fs/root/l/f"), b"x")], GOOD),
        "an owner": pack([(named("fs/root/f", uid=100000), b"x")], GOOD),
        "into what cannot be written": pack([(named("fs/etc/f"), b"x")], {**GOOD, "config": {"image": "host", "read_only": True}}),
        "into /proc": pack([(named("fs/proc/sys/kernel/hostname"), b"x")], GOOD),
        "a second manifest": pack([(named("manifest.json"), b"{}")], GOOD),
        "not packed": seal(b"manifest.json" + b"\0" * 2000),
        "twice packed": seal(subprocess.run(["zstd", "-c", "-q"], input=pack([], GOOD)[:-56], stdout=subprocess.PIPE, check=True).stdout),
        "no sum": pack([], GOOD)[:-56],
    }.items():
        r = bring(d, bad)
        assert r.status == 422, (what, r)
        error(r, 422, "refused")
    error(bring(d, pack([], GOOD), "?name=/"), 400, "invalid")
    error(bring(d, pack([], GOOD), "?label=" + "x" * 300), 400, "invalid")
    assert len(d.get("/v1/checkpoints").json["checkpoints"]) == had + 2


def test_bombs_end_at_a_limit(d, clean):
    free = os.statvfs(d.data).f_bavail * os.statvfs(d.data).f_frsize
    # 700 MB of bytes that are not zeros, packed into a few ten kilobytes.
    out = subprocess.Popen(["zstd", "-c", "-q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    import threading
    got = []
    t = threading.Thread(target=lambda: got.append(out.stdout.read()))
    t.start()
    with tarfile.open(fileobj=out.stdin, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        text = json.dumps({**GOOD, "size": 1 << 20, "config": {"image": "host", "disk": "64M"}}).encode()
        info = named("manifest.json", size=len(text))
        tar.addfile(info, io.BytesIO(text))

        class Endless:
            def read(self, n):
                return b"\1" * n

        tar.addfile(named("fs/root/bomb", size=700 << 20), Endless())
    out.stdin.close()
    t.join()
    start = time.monotonic()
    error(bring(d, seal(got[0])), 422, "refused")
    assert time.monotonic() - start < 20
    assert d.get("/v1/checkpoints").json["checkpoints"] == []
    assert os.statvfs(d.data).f_bavail * os.statvfs(d.data).f_frsize > free - (300 << 20)


def test_files_that_end_with_a_hole_and_sockets_in_the_way(d, clean):
    """Whatever reads archives may forget the last hole; and what a socket took the place of is gone, though the socket is not carried."""
    b = d.create(user="root", workdir="/w")
    sh(d, b, r"""truncate -s 7M hole; truncate -s 4194305 odd; for i in 0 5 9; do yes | head -c 100000 | dd of=ends bs=1M seek=$i conv=notrunc status=none; done; truncate -s 20971525 ends
                 rm /etc/shells; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('/etc/shells')" """)
    look = "sha256sum hole odd ends; stat -c %s hole odd ends; test -f /etc/shells || echo gone"
    r = bring(d, export(d, checkpoint(d, b)))
    assert r.status == 201, r
    n, = restore(d, r.json)
    assert sh(d, n, look) == sh(d, b, look)
    # The same by an archive of a folder.
    tar = d.get(f"/v1/sandboxes/{b['id']}/files?path=/w&op=archive&format=tar").body
    assert tarfile.open(fileobj=io.BytesIO(tar)).getmember("hole").size == 7 << 20
    sh(d, b, "tar --sparse -cf /tmp/s.tar *")
    sparse = d.get(f"/v1/sandboxes/{b['id']}/files?path=/tmp/s.tar").body
    assert len(sparse) < 1 << 20
    r = d.request("POST", f"/v1/sandboxes/{n['id']}/files?path=/x&op=extract", sparse)
    assert r.status == 200 and not r.json["skipped"], r
    assert sh(d, n, "cd /x; " + look) == sh(d, b, look)


def test_fixed_roots_are_carried_too(d, clean):
    b = d.create(read_only=True, user="root", workdir="/work/there")
    sh(d, b, "echo 1 > a; echo 2 > /tmp/b")
    r = bring(d, export(d, checkpoint(d, b)))
    assert r.status == 201, r
    n, = restore(d, r.json)
    assert sh(d, n, "cat a /tmp/b; touch /etc/x 2>/dev/null || echo fixed") == "1\n2\nfixed"


def test_what_is_damaged_is_not_carried_on():
    with Daemon() as own:
        b = own.create(user="root")
        sh(own, b, "echo right > /root/f")
        c = checkpoint(own, b)
        own.delete(f"/v1/sandboxes/{b['id']}")
        own.stop()
        f = own.data / "layers" / c["id"] / "fs/u/root/f"
        f.write_text("wrong\n")
        own.start()
        error(own.get(f"/v1/checkpoints/{c['id']}/export"), 422, "refused")
        error(own.get(f"/v1/checkpoints/{c['id']}/diff"), 422, "refused")
        assert own.get(f"/v1/checkpoints/{c['id']}").json["state"] == "damaged"
        own.delete(f"/v1/checkpoints/{c['id']}")


def test_settings_of_a_file_are_no_way_around_the_limits(d, clean):
    t = as_tenant(d, "small")
    error(bring(t, pack([], {**GOOD, "config": {"image": "host", "memory": 0}})), 422, "refused")
    r = bring(t, pack([], GOOD))
    assert r.status == 201 and r.json["tenant"] == "small"
    error(d.get(f"/v1/checkpoints/{r.json['id']}/export", token=as_tenant(d, "stranger").token), 404, "not_found")
    t.delete(f"/v1/checkpoints/{r.json['id']}")


def test_a_files_network_is_had_only_by_who_asks_for_it(d, clean, tmp_path):
    data = pack([], {**GOOD, "config": {"image": "host", "network": {"allow": ["a.test", "@nobody-has-it"]}}})
    c = bring(d, data)
    assert c.status == 201 and c.json["config"].get("network", {"mode": "none"}) == {"mode": "none"}, c
    b, = restore(d, c.json)
    assert b["network"] == {"mode": "none"}
    b, = restore(d, c.json, network={"allow": ["b.test"]})
    assert b["network"]["allow"] == ["b.test"]
    kept = bring(d, data, "?network=keep").json
    e = error(d.post(f"/v1/checkpoints/{kept['id']}/restore", {}), 404, "not_found")
    assert "nobody-has-it" in e["message"]
    error(bring(d, data, "?network=open"), 400, "invalid")
    (tmp_path / "f").write_bytes(pack([], {**GOOD, "config": {"image": "host", "network": {"allow": ["a.test"]}}}))
    r = d.cli("checkpoint", "import", "--keep-network", "--json", str(tmp_path / "f"))
    assert r.code == 0 and json.loads(r.text)["config"]["network"]["allow"] == ["a.test"], r


def test_a_files_mounts_are_had_only_by_who_asks_for_them(d, clean):
    mounts = [{"source": "/nowhere-at-all", "target": "/mnt", "read_only": True}]
    data = pack([], {**GOOD, "config": {"image": "host", "mounts": mounts}})
    c = bring(d, data)
    assert c.status == 201 and not c.json["config"].get("mounts"), c
    b, = restore(d, c.json)
    assert not b.get("mounts"), b
    kept = bring(d, data, "?mounts=keep").json
    assert kept["config"]["mounts"] == mounts, kept
    error(d.post(f"/v1/checkpoints/{kept['id']}/restore", {}), 403, "denied")
    error(bring(d, data, "?mounts=all"), 400, "invalid")


def test_a_signature_is_verified_when_asked_and_one_that_does_not_fit_is_refused(d, golden, clean, tmp_path):
    data = golden[2]
    key = d.get("/v1/info").json["export_key"]
    assert key.startswith("ed25519:") and len(key) == 52
    assert bring(d, data, "?verify=true").status == 201
    assert bring(d, data[:-SIGNATURE]).status == 201
    assert "not signed" in error(bring(d, data[:-SIGNATURE], "?verify=true"), 422, "refused")["message"]
    # Another file behind the same signature, whole in itself.
    other = pack([(named("fs/root/x"), b"evil")], GOOD) + data[-SIGNATURE:]
    for query in ("", "?verify=true"):
        assert "signature does not match" in error(bring(d, other, query), 422, "refused")["message"]
    error(bring(d, data, "?verify=yes"), 400, "invalid")
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "conf").write_text(f"export_trust = {key}\n")
    with Daemon(None, "--config", tmp_path / "conf") as there:
        assert bring(there, data, "?verify=true").status == 201
        assert there.cli("checkpoint", "import", "--verify", str(tmp_path / "f")).code == 0
        c = checkpoint(there, there.create(user="root"))
        stranger = export(there, c)
    assert bring(d, stranger).status == 201
    assert "untrusted key" in error(bring(d, stranger, "?verify=true"), 422, "refused")["message"]


def test_a_slow_reader_and_one_that_goes_away(d, golden):
    b = d.create(user="root")
    sh(d, b, "head -c 60000000 /dev/urandom > /root/r")
    c = checkpoint(d, b)
    pid = d.children()["api"]
    before = rss(pid)
    slow = Raw(d, "GET", f"/v1/checkpoints/{c['id']}/export")
    assert slow.head()[0] == 200
    time.sleep(1)
    assert rss(pid) - before < 30 << 20
    assert d.get(f"/v1/sandboxes/{b['id']}/diff").status == 200  # others are served
    slow.s.close()
    # Nothing stays of half a file that somebody began to send.
    data = export(d, c)
    assert len(data) > 60000000
    half = Raw(d, "POST", "/v1/checkpoints/import", data[:len(data) // 2], {"Content-Length": str(len(data))})
    time.sleep(0.3)
    half.s.close()
    for _ in range(100):
        if not [p for p in pathlib.Path("/proc").glob("[0-9]*/comm") if _comm(p) == "cloche-tar" and _parent(p) == pid]:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("cloche-tar stays")
    d.delete(f"/v1/sandboxes/{b['id']}")
    d.delete(f"/v1/checkpoints/{c['id']}")


def test_one_that_goes_away_when_all_is_packed(d, clean):
    """The rest of the file waits in the daemon then, and nothing else will ever happen to it: it is let go at once."""
    b = d.create(user="root")
    sh(d, b, "head -c 1000000 /dev/urandom > /root/r")
    for _ in range(50):
        sh(d, b, "head -c 150000 /dev/urandom >> /root/r")
        c = checkpoint(d, b)
        slow = Raw(d, "GET", f"/v1/checkpoints/{c['id']}/export")
        assert slow.head()[0] == 200
        time.sleep(0.15)
        slow.close()
        assert d.delete(f"/v1/checkpoints/{c['id']}").status == 204
    d.delete(f"/v1/sandboxes/{b['id']}")
    eventually(lambda: not layers(d), 20)  # those of a checkpoint that somebody holds stay


def _comm(p):
    try:
        return p.read_text().strip()
    except OSError:
        return ""


def _parent(p):
    try:
        return int(p.with_name("stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def test_the_death_of_the_daemon_in_the_middle_leaves_nothing(golden):
    data = golden[2]
    with Daemon() as own:
        for which in ("api", "warden", "api"):
            s = Raw(own, "POST", "/v1/checkpoints/import", data[:-1000], {"Content-Length": str(len(data))})
            time.sleep(0.2)
            own.kill9(which)
            s.s.close()
            for _ in range(100):
                try:
                    if own.get("/v1/checkpoints").json["checkpoints"] == [] and own.get("/v1/sandboxes").json["sandboxes"] == []:
                        break
                except OSError:
                    pass
                time.sleep(0.1)
        for _ in range(100):
            if not layers(own):
                break
            time.sleep(0.1)
        assert layers(own) == set()
        assert bring(own, data).status == 201
        for x in own.get("/v1/checkpoints").json["checkpoints"]:
            own.delete(f"/v1/checkpoints/{x['id']}")


def test_an_image_of_ones_own():
    """A small image: busybox, and a big file that is never read."""
    root = pathlib.Path("/var/tmp") / f"cloche-test-images-{os.getpid()}"
    image = root / "tiny"
    for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "root", "home/user", "usr", "var", "run", "data"):
        (image / folder).mkdir(parents=True)
    subprocess.run(["cp", "/bin/busybox", str(image / "bin/busybox")], check=True)
    for name in ("sh", "cat", "rm", "ls", "mkdir", "echo", "seq"):
        (image / "bin" / name).symlink_to("busybox")
    (image / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
    (image / "etc/old").write_text("old\n")
    (image / "etc/group").write_text("user:x:1000:\n")
    (image / "etc/hosts").write_text("127.0.0.1 localhost sandbox\n")
    for i in range(3000):
        (image / "data" / f"f{i}").write_text(str(i))
    with open(image / "data/big", "wb") as f:
        f.truncate(1 << 30)
    try:
        with Daemon(None, "--images", str(root)) as own:
            b = own.create(image="tiny", user="root")
            assert own.get(f"/v1/sandboxes/{b['id']}/diff").json["entries"] == []
            sh(own, b, "echo new > /root/n; rm /etc/old; echo 1 > /data/f1x; rm -r /data/f7")
            best = 1
            for _ in range(5):
                start = time.monotonic()
                changed = {e["path"]: e["change"] for e in own.get(f"/v1/sandboxes/{b['id']}/diff").json["entries"]}
                best = min(best, time.monotonic() - start)
            assert changed == {"/root/n": "added", "/etc/old": "removed", "/data/f1x": "added", "/data/f7": "removed"}
            assert best < 0.05, best
            c = checkpoint(own, b)
            r = bring(own, export(own, c))
            assert r.status == 201 and r.json["image"] == "tiny", r
            n, = restore(own, r.json)
            assert sh(own, n, "cat /root/n /data/f1x; ls /etc/old /data/f7 2>/dev/null; echo .") == "new\n1\n."
            assert own.get(f"/v1/sandboxes/{n['id']}/diff?from=checkpoint:{c['id']}").json["entries"] == []
            # Of another image: neither compared with nor made from.
            other = own.create()
            error(own.get(f"/v1/sandboxes/{other['id']}/diff?from=checkpoint:{c['id']}"), 422, "refused")
            data = export(own, c)
            with Daemon() as without:
                error(bring(without, data), 422, "refused")
            for x in own.get("/v1/checkpoints").json["checkpoints"]:
                own.delete(f"/v1/checkpoints/{x['id']}")
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)
