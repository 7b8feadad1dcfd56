"""The probes in a sandbox of a pulled image, whose root filesystem is nothing but layers: as the image's user and as root."""
import pytest

from test_warm_probes import bring, clean, closed, probe, shared  # noqa: F401
import host  # in the folder that test_warm_probes has added
import image_archive as ia
from daemon import Daemon
from image_registry import Image, Registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with Registry(tmp_path_factory.mktemp("probes")) as r:
        yield r


@pytest.fixture(scope="module")
def d(shared, registry):  # noqa: F811
    host.become_subreaper()
    with Daemon(None, "--config", registry.conf(), "--allow-mount", shared) as one:
        yield one


@pytest.fixture(scope="module")
def image(d, registry):
    upper = ia.layer(ia.folder("home/user", uid=1000, gid=1000), ia.entry("bin/helper", b"#!/bin/sh\n", mode=0o6755), ia.entry("disk", type=b"4", devmajor=8, devminor=0))
    registry.push(Image().layer(ia.rootfs()).layer(upper).config(User="1000:1000"), "team/probes:1")
    r = d.post("/v1/images/pull", {"name": f"{registry.host}/team/probes:1"})
    assert r.status == 201, r
    yield r.json["name"]
    assert d.delete("/v1/images/" + r.json["full_name"].replace("/", "+")).status == 204


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("user", [None, "root"])
def test_every_probe_is_closed_in_a_pulled_image(d, shared, probe, image, user, storage):  # noqa: F811
    fields = {"user": user} if user else {}
    b = d.create(image=image, memory="128M", pids=64, output_limit="4M", workdir="/home/user", storage=storage,
                 mounts=[{"source": str(shared), "target": "/ro", "read_only": True}], **fields)
    assert b["user"] == (user or "1000:1000")
    bring(d, b["id"])
    closed(d.exec(b["id"], *probe)["stdout"])
    # And in what comes out of it.
    c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {}).json
    r = d.post(f"/v1/checkpoints/{c['id']}/restore", {"count": 1}).json["sandboxes"][0]
    closed(d.exec(r["id"], *probe)["stdout"])
    assert d.delete(f"/v1/checkpoints/{c['id']}").status == 204
