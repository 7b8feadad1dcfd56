"""Images out again: as archives that other programs read, and sandboxes that become images. Archives of others, in."""
import json
import os
import shutil
import subprocess
import tarfile
import tempfile

import pytest

import image_archive as ia
from api import d, error, eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from image_registry import Registry
from test_checkpoints import sh  # noqa: F401
from test_image_store import UPPER, bring, brought, no_images  # noqa: F401

@pytest.fixture(scope="module")
def base():
    return ia.rootfs()


@pytest.fixture
def short():
    """A folder with a name of less than 50 characters, which podman asks for."""
    folder = tempfile.mkdtemp(prefix="cl-", dir="/var/tmp")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def tree(root, links=True):
    """{path: facts} of a folder on this host, without what every sandbox has of its own."""
    found = {}
    for top, folders, files in os.walk(root):
        for n in folders + files:
            p = os.path.join(top, n)
            rel = os.path.relpath(p, root)
            if rel.split("/")[0] in ("proc", "sys", "dev"):
                continue
            st = os.lstat(p)
            kind = {0o040000: "d", 0o100000: "f", 0o120000: "l", 0o010000: "p"}.get(st.st_mode & 0o170000, "?")
            content = os.readlink(p) if kind == "l" else open(p, "rb").read() if kind == "f" else None
            attrs = {x: os.getxattr(p, x, follow_symlinks=False) for x in os.listxattr(p, follow_symlinks=False) if not x.startswith("trusted.")} if kind != "l" else {}
            found[rel] = (kind, st.st_mode & 0o7777 if kind != "l" else 0, st.st_uid, st.st_gid, st.st_nlink if kind == "f" and links else 0, int(st.st_mtime) if kind != "d" else 0, content, attrs)
    return found


def run(*args, **kw):
    return subprocess.run([str(a) for a in args], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw).stdout


def unpack(data, tmp_path, name="x"):
    """The root filesystem of an archive, as umoci unpacks it."""
    (tmp_path / f"{name}.tar").write_bytes(data)
    run("skopeo", "copy", "--insecure-policy", f"oci-archive:{tmp_path}/{name}.tar", f"oci:{tmp_path}/{name}-layout:l")
    run("umoci", "unpack", "--image", f"{tmp_path}/{name}-layout:l", tmp_path / f"{name}-bundle")
    return tmp_path / f"{name}-bundle" / "rootfs", json.loads(run("skopeo", "inspect", "--config", f"oci:{tmp_path}/{name}-layout:l"))


MORE = ia.layer(ia.entry("cap", b"#!", pax_headers={"SCHILY.xattr.user.k": "v"}), ia.entry("bin/su", b"x", mode=0o4755, uid=33, gid=34), ia.folder("sticky", mode=0o3777),
                ia.hard("bin/su2", "bin/su"), ia.link("etc/link", "/nowhere"), ia.entry("etc/.wh.group"), ia.folder("var"), ia.entry("var/.wh..wh..opq"), ia.entry("var/x", b"1"),
                ia.entry("pipe", type=tarfile.FIFOTYPE, mode=0o622))


@pytest.mark.parametrize("how", ["gzip", "zstd", ""])
def test_an_image_comes_out_as_others_unpack_it(d, base, tmp_path, how):  # noqa: F811
    data = ia.oci([base, UPPER, MORE], how, Env=["A=1"], User="www", Cmd=["x"], Labels={"k": "v"})
    brought(d, data)
    # umoci knows no zstd.
    theirs, config = unpack(data if how != "zstd" else ia.oci([base, UPPER, MORE], "gzip", Env=["A=1"], User="www", Cmd=["x"], Labels={"k": "v"}), tmp_path, "theirs")
    back = d.get("/v1/images/test:1/export")
    assert back.status == 200 and int(back.headers["Content-Length"]) == len(back.body), back
    out, again = unpack(back.body, tmp_path, "ours")
    a, b = tree(theirs), tree(out)
    assert {k: (a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)} == {}
    assert again["config"] == config["config"] and len(again["rootfs"]["diff_ids"]) == 3 and again["history"] == config["history"]


def test_exports_are_read_by_docker_like_programs(d, base, tmp_path, short):  # noqa: F811
    brought(d, ia.docker([base, UPPER], "my/app:2", Cmd=["x"]))
    (tmp_path / "a.tar").write_bytes(d.get("/v1/images/my+app:2/export").body)
    storage = ["--root", tmp_path / "storage", "--runroot", short, "--storage-driver", "vfs"]
    out = run("podman", *storage, "load", "-i", tmp_path / "a.tar").decode()
    assert "my/app:2" in out, out
    root = run("podman", *storage, "image", "mount", out.split()[-1]).decode().strip()
    assert open(root + "/srv/page").read() == "hello" and not os.path.exists(root + "/etc/hosts")
    run("podman", *storage, "image", "umount", "-a")
    run("skopeo", "inspect", f"docker-archive:{tmp_path}/a.tar")
    # And what those write is read here.
    run("podman", *storage, "save", "-o", tmp_path / "b.tar", "my/app:2")
    i = brought(d, (tmp_path / "b.tar").read_bytes(), "?name=back:1")
    assert sh(d, d.create(image="back:1"), "cat /srv/page") == "hello" and i["config"]["cmd"] == ["x"]
    shutil.rmtree(tmp_path / "storage", ignore_errors=True)


def test_what_buildah_and_umoci_make_is_imported_as_they_unpack_it(d, base, tmp_path, short):  # noqa: F811
    (tmp_path / "base.tar").write_bytes(base)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nADD base.tar /\nCOPY --chown=33:34 Dockerfile /srv/\nUSER www\nENV A=1\nCMD [\"sh\"]\n")
    storage = ["--root", tmp_path / "storage", "--runroot", short, "--storage-driver", "vfs"]
    run("buildah", *storage, "bud", "--isolation", "chroot", "--layers", "-t", "built", tmp_path)
    run("buildah", *storage, "push", "built", f"oci:{tmp_path}/made:l")
    # umoci adds a layer with a whiteout.
    run("umoci", "unpack", "--image", f"{tmp_path}/made:l", tmp_path / "bundle")
    (tmp_path / "bundle/rootfs/etc/hosts").unlink()
    (tmp_path / "bundle/rootfs/etc/new").write_text("new")
    run("umoci", "repack", "--image", f"{tmp_path}/made:l", tmp_path / "bundle")
    data = run("tar", "-C", tmp_path / "made", "-cf", "-", ".")
    i = brought(d, data, "?name=theirs&ref=l")
    assert i["user"] == "33:34" and i["config"]["env"][-1] == "A=1", i
    theirs, _ = unpack(run("tar", "-C", tmp_path / "made", "-cf", "-", "."), tmp_path, "theirs")
    out, _ = unpack(d.get("/v1/images/theirs/export").body, tmp_path, "ours")
    a, b = tree(theirs), tree(out)
    assert {k: (a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)} == {}
    # And from a registry.
    with Registry(tmp_path) as r, Daemon(None, "--config", r.conf()) as puller:
        run("skopeo", "copy", "--dest-tls-verify=false", f"oci:{tmp_path}/made:l", f"docker://{r.host}/team/made:1")
        answer = puller.post("/v1/images/pull", {"name": f"{r.host}/team/made:1"})
        assert answer.status == 201 and answer.json["layers"] == i["layers"], answer
    shutil.rmtree(tmp_path / "storage", ignore_errors=True)


def test_a_sandbox_becomes_an_image(d, base, tmp_path):  # noqa: F811
    brought(d, ia.docker([base, UPPER], Env=["A=1"], Cmd=["cat", "/srv/page"], User="root"))
    s = d.create(image="test:1")
    sh(d, s, "echo new > /srv/new; rm /srv/other; chmod 700 /srv; mkdir /etc/made; chown 33:34 /etc/made; rm -r /home; echo file > /home")
    r = d.post(f"/v1/sandboxes/{s['id']}/commit", {"name": "mine:1", "comment": "by hand"})
    assert r.status == 201, r
    i = r.json
    assert len(i["layers"]) == 3 and i["config"]["env"] == ["A=1"] and i["history"][-1]["comment"] == "by hand" and i["source"] == {"kind": "commit"}, i
    other = d.create(image="mine:1")
    assert sh(d, other, "cat /srv/new; ls /srv; stat -c '%a %u:%g' /srv /etc/made; cat /home; ls /run") == "new\nnew\npage\n700 33:34\n755 33:34\nfile\ncloche"
    c = d.post(f"/v1/sandboxes/{other['id']}/checkpoints", {}).json
    r = d.post(f"/v1/checkpoints/{c['id']}/commit", {"name": "mine:2"})
    assert r.status == 201 and d.delete(f"/v1/checkpoints/{c['id']}").status == 204, r
    assert sh(d, d.create(image="mine:2"), "cat /srv/new") == "new"
    assert d.cli("image", "commit", other["id"], "mine:3").text == "mine:3\n"
    assert d.cli("image", "export", "mine:3", tmp_path / "out.tar").code == 0
    assert brought(d, (tmp_path / "out.tar").read_bytes())["name"] == "mine:3"
    host = d.create()
    error(d.post(f"/v1/sandboxes/{host['id']}/commit", {"name": "mine:4"}), 501, "unsupported")
    error(d.post(f"/v1/sandboxes/{other['id']}/commit", {}), 400, "invalid")
    error(d.post(f"/v1/sandboxes/{other['id']}/commit", {"name": "NO"}), 400, "invalid")


def test_a_commit_without_the_images_configuration_is_refused(d, base):  # noqa: F811
    """The configuration goes with the last name of an image, and an image without it would run nothing."""
    archive = ia.docker([base, UPPER], Env=["A=1"], Cmd=["cat", "/srv/page"])
    brought(d, archive)
    s = d.create(image="test:1")
    sh(d, s, "echo new > /srv/new")
    c = d.post(f"/v1/sandboxes/{s['id']}/checkpoints", {}).json
    brought(d, ia.docker([base], Cmd=["other"]))  # the name is another image's now
    for source in f"sandboxes/{s['id']}", f"checkpoints/{c['id']}":
        r = d.post(f"/v1/{source}/commit", {"name": "mine:1"})
        error(r, 404, "not_found")
        assert "'test:1'" in r.json["error"]["message"] and "pull, import or build" in r.json["error"]["remedy"], r
    assert [i["name"] for i in d.get("/v1/images").json["images"]] == ["test:1"]
    brought(d, archive, "?name=again:7")
    for source in f"sandboxes/{s['id']}", f"checkpoints/{c['id']}":
        r = d.post(f"/v1/{source}/commit", {"name": "mine:1"})
        assert r.status == 201 and r.json["config"]["cmd"] == ["cat", "/srv/page"] and len(r.json["layers"]) == 3, r
    assert d.delete(f"/v1/checkpoints/{c['id']}").status == 204


def test_exports_at_once_are_bounded(d, base):  # noqa: F811
    """The files of an export are in no quota, and stay for as long as its client reads them."""
    import socket
    import api
    brought(d, ia.docker([base, ia.layer(ia.entry("big", os.urandom(20 << 20)))]))
    slow = []
    for _ in range(2):
        slow.append(socket.create_connection(api.place(d)))
        slow[-1].sendall(b"GET /v1/images/test:1/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % d.token.encode())
        assert slow[-1].recv(1000)
    error(d.get("/v1/images/test:1/export"), 503, "exhausted")
    for s in slow:
        s.close()
    eventually(lambda: d.get("/v1/images/test:1/export").status == 200, seconds=30)


def test_a_client_that_leaves_an_export_leaves_nothing(d, base):  # noqa: F811
    import socket
    import api
    brought(d, ia.docker([base, ia.layer(ia.entry("big", os.urandom(20 << 20)))]))
    for wait in 0, 0.3:
        s = socket.create_connection(api.place(d))
        s.sendall(b"GET /v1/images/test:1/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % d.token.encode())
        if wait:
            assert s.recv(10000)
        s.close()
    assert d.delete("/v1/images/test:1").status == 204
    eventually(lambda: not d.layers(), seconds=60)
