"""Stored images in virtual machines: what a container has of an image, a machine has too."""
import os
import pathlib
import subprocess

import pytest

import image_archive as ia
from api import error, eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from small_image import machine_image
from test_image_store import bring, brought
from tier_suite import LONG, Tier

LIST = ("cd /; find bin etc srv var opt odd | sort | tr '\\n' '\\0' | xargs -0 stat -c '%n %F %a %u %g'; find srv opt odd ! -type d | sort | tr '\\n' '\\0' | "
        "xargs -0 stat -c '%n %h %s'; find srv opt -type f | sort | tr '\\n' '\\0' | xargs -0 md5sum; readlink opt/link")


@pytest.fixture(scope="module")
def tier(nothing_is_left_behind):  # noqa: F811
    machine_image()
    with Daemon(None) as d:
        yield Tier("vm", d, image="test:1", memory="128M", disk="64M")


@pytest.fixture(autouse=True)
def clean(tier):
    yield
    tier.clean()
    for i in tier.d.get("/v1/images?tenant=*").json["images"]:
        tier.d.delete(f"/v1/images/{i['full_name'].replace('/', '+')}")
    eventually(lambda: not tier.d.layers(), seconds=LONG)
    assert not set(stacks(tier)) - {"l-empty.erofs"}


def stacks(tier):
    """The disk images of layers: {name: inode}."""
    folder = pathlib.Path(tier.d.data) / "vm"
    return {n: os.stat(folder / n).st_ino for n in os.listdir(folder) if n.startswith("l-")} if folder.exists() else {}


def three_layers():
    """Files that the layers above hide, replace, and link to."""
    low = ia.layer(ia.folder("srv", uid=33, gid=34), ia.entry("srv/page", b"hello", uid=33, mode=0o4755), ia.entry("srv/gone", b"x"),
                   ia.folder("opt"), ia.folder("opt/full"), ia.entry("opt/full/a", b"a"), ia.entry("opt/full/b", b"b"), ia.entry("opt/replaced", b"old" * 9000),
                   ia.entry("opt/cap", b"caps", mode=0o755, pax_headers={"SCHILY.xattr.user.mark": "low"}), ia.folder("odd", mode=0o1777))
    high = ia.layer(ia.entry("srv/.wh.gone"), ia.hard("srv/other", "srv/page"), ia.folder("opt/full", mode=0o750, uid=7), ia.entry("opt/full/.wh..wh..opq"),
                    ia.entry("opt/full/c", b"c"), ia.folder("opt/replaced"), ia.entry("opt/replaced/now a folder", b"1"),
                    ia.link("opt/link", "/srv/page"), ia.entry("odd/" + "n" * 200, b"long", mode=0o600, uid=65535, gid=65535))
    return [ia.rootfs(), low, high]


def test_a_machine_has_the_files_and_the_configuration_of_its_image(tier):
    d = tier.d
    brought(d, ia.oci(three_layers(), Env=["PATH=/bin", "A=1"], User="www:web", WorkingDir="/srv", Entrypoint=["cat"], Cmd=["page"]))
    c = tier.create(isolation="container")
    m = tier.create(env={"B": "2"})
    assert m["isolation"] == "vm" and m["image"] == "test:1" and m["user"] == "33:77" and m["workdir"] == "/srv", m
    assert tier.sh(m, "id -u; id -g; pwd; cat page; echo $A$B; ls; grep -c localhost /etc/hosts; grep user: /etc/passwd")["stdout"] == \
        "33\n77\n/srv\nhello12\nother\npage\n2\n"
    files = tier.sh(c, LIST, user="root")["stdout"]
    assert "opt/full/c" in files and "opt/full/a" not in files and "srv/gone" not in files and "srv/page 2 5\n" in files, files
    assert tier.sh(m, LIST, user="root")["stdout"] == files
    # One disk image serves all of them, and what is in it is what the layers say.
    (name, inode), = stacks(tier).items()
    mnt = pathlib.Path(d.data) / "mnt"
    mnt.mkdir()
    subprocess.run(["mount", "-t", "erofs", "-o", "loop,ro", pathlib.Path(d.data) / "vm" / name, mnt], check=True)
    try:
        assert os.getxattr(mnt / "opt/cap", "user.mark") == b"low" and os.path.samefile(mnt / "srv/page", mnt / "srv/other")
        assert not [x for x in os.listxattr(mnt / "opt/full") if "overlay" in x]
    finally:
        subprocess.run(["umount", mnt], check=True)
        mnt.rmdir()
    other = tier.create(memory="160M", user="root")
    assert tier.sh(other, "pwd; cat page")["stdout"] == "/srv\nhello"
    assert stacks(tier) == {name: inode}
    # What is based on the machine has the image as well, also when no name is left.
    tier.sh(m, "echo mine > /tmp/mine; rm -f other; echo kept > page", user="root")
    job = tier.start(m, "i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.1; done")
    point = tier.checkpoint(m, memory=True)
    changed = tier.call("GET", m, "/diff").body
    assert b"/srv/page" in changed and b"/srv/other" in changed and b"busybox" not in changed, changed
    packed = d.get(f"/v1/checkpoints/{point['id']}/export", timeout=150)
    made = d.post(f"/v1/sandboxes/{m['id']}/commit", {"name": "two:1"}, timeout=150)
    assert made.status == 201, made
    tier.delete(c, m, other)
    for name in "test:1", "two:1":
        c = tier.create(isolation="container", image=name, read_only=True, workdir="/var")
        want = {"test:1": "hello/srv/other\n/srv/page\nno\n", "two:1": "kept\n/srv/page\nno\n"}[name]
        assert tier.sh(c, "cat /srv/page; ls -d /srv/*; touch /x || echo no")["stdout"] == want
        tier.delete(c)
        assert d.delete("/v1/images/" + name).status == 204
    for isolation in "container", "vm":
        r = d.post(f"/v1/checkpoints/import?isolation={isolation}", packed.body, timeout=150)
        assert r.status == 201, r
        b, = tier.restore(r.json)
        assert tier.sh(b, "cat page /tmp/mine; ls; ls /bin/busybox")["stdout"] == "kept\nmine\npage\n/bin/busybox\n"
    again, = tier.restore(point)
    assert again["image"] == "test:1" and tier.sh(again, "cat page /tmp/mine; ls")["stdout"] == "kept\nmine\npage\n"
    assert tier.call("GET", again, f"/execs/{job}").json["state"] == "running"
    fork, = tier.call("POST", again, "/fork", {}, 201).json["sandboxes"]
    assert tier.sh(fork, "cat page; ls /bin/busybox")["stdout"] == "kept\n/bin/busybox\n"
    changed = tier.call("GET", fork, "/diff").body
    assert b"/srv/page" in changed and b"busybox" not in changed, changed
    again = d.get(f"/v1/checkpoints/{point['id']}/export", timeout=150)
    assert again.status == 200 and len(again.body) * 2 > len(packed.body)


def test_machines_of_many_layers_are_sealed_again_and_again_and_outlive_the_warden(tier):
    """As many layers as an image keeps apart, and checkpoints above them: a machine's disks cannot be joined with folders."""
    d = tier.d
    many = [ia.layer(ia.entry(f"opt-{n}", str(n).encode())) for n in range(20)]
    brought(d, ia.oci([ia.rootfs(), *many]))
    assert d.put("/v1/templates/deep", tier.fields).status == 201
    b = d.post("/v1/sandboxes", {"template": "deep"}, timeout=150).json
    points = []
    for n in range(4):
        tier.sh(b, f"echo {n} > /tmp/n; echo {n} >> /all")
        points.append(tier.checkpoint(b))
        if n == 1:
            d.kill9("warden")
            eventually(lambda: tier.state(b) == "running", LONG)
    assert tier.sh(b, "cat /opt-* | wc -c; cat /all")["stdout"] == "30\n0\n1\n2\n3\n"
    b, = tier.restore(points[-1])
    for n in range(4, 7):
        tier.sh(b, f"echo {n} >> /all")
        b, = tier.restore(tier.checkpoint(b))
    assert tier.sh(b, "cat /opt-* | wc -c; cat /all")["stdout"] == "30\n0\n1\n2\n3\n4\n5\n6\n"
    assert d.delete("/v1/templates/deep").status == 204


def test_an_image_without_files_is_a_machine_and_disk_images_of_no_layer_are_removed(tier):
    d = tier.d
    brought(d, ia.docker([], "empty:1"))
    b = tier.create(image="empty:1", workdir="/")
    assert d.request("PUT", f"/v1/sandboxes/{b['id']}/files?path=/a", b"own").status == 200 and tier.call("GET", b, "/files?path=/a").body == b"own"
    stray = pathlib.Path(d.data) / "vm" / ("l-" + "0" * 24 + ".erofs")
    stray.touch()
    d.restart()
    eventually(lambda: not stray.exists(), LONG)
