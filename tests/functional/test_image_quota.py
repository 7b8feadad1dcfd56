"""Bytes of images: what counts for a tenant, what is refused, and that all of it is given back."""
import os

import pytest

import image_archive as ia
from api import as_tenant, d, error, eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from image_registry import Image, Registry
from test_image_build import build, built
from test_image_store import no_images  # noqa: F401

MB = 1 << 20
BASE = ia.rootfs()
names = iter(f"quota{n}" for n in range(1000))


def filled(size):
    """A layer with a file that does not compress."""
    return ia.layer(ia.entry("fill", os.urandom(size)))


@pytest.fixture
def tenant(d):  # noqa: F811
    made = []

    def make(quota):
        a = as_tenant(d, next(names), quotas={"image_bytes": quota})
        a.name = d.get("/v1/whoami", token=a.token).json["tenant"]
        a.use = lambda: d.get("/v1/images/usage", token=a.token).json["tenants"][0]
        made.append(a)
        return a

    yield make
    for a in made:
        for i in a.get("/v1/images").json["images"]:
            a.delete("/v1/images/" + i["full_name"].replace("/", "+"))
        a.delete("/v1/images/build/cache")
        eventually(lambda: a.use()["used"] == 0)  # noqa: B023
        assert d.delete(f"/v1/tenants/{a.name}").status == 204


def bring(a, layers, name):
    return a.request("POST", f"/v1/images/import?name={name}", ia.docker(layers))


def full(r):
    error(r, 429, "quota")
    e = r.json["error"]
    assert "image_bytes" in e["message"] and "cloche image rm" in e["remedy"], e


def test_a_layer_counts_once_for_each_tenant_that_needs_it(d, tenant):  # noqa: F811
    a, b = tenant("500M"), tenant(0)
    shared = filled(2 * MB)
    for who, name in ((a, "one:1"), (a, "two:1"), (b, "one:1")):
        assert bring(who, [BASE, shared], name).status == 201
    one = a.use()
    assert one["images"] == 2 and one["layers"] == 2 and one["bytes"] == one["used"] > 2 * MB and one["build_bytes"] == one["pending_bytes"] == 0, one
    assert one["quota"] == 500 * MB and b.use()["used"] == one["used"]
    everyone = d.get("/v1/images/usage?tenant=*").json
    assert everyone["disk"] == {"layers": 2, "bytes": one["used"]} and {a.name, b.name} <= {t["tenant"] for t in everyone["tenants"]}, everyone
    # Others are not shown, nor the disk.
    assert a.get("/v1/images/usage").json["disk"] is None and len(a.get("/v1/images/usage").json["tenants"]) == 1
    assert a.get("/v1/images/usage?tenant=*").status in (403, 404)
    # One more layer is all that a third image adds.
    assert bring(a, [BASE, shared, filled(MB)], "three:1").status == 201
    assert MB <= a.use()["used"] - one["used"] < 2 * MB
    assert a.delete("/v1/images/one:1").status == 204 and a.delete("/v1/images/three:1").status == 204
    assert a.use()["used"] == one["used"] and d.get(f"/v1/tenants/{a.name}").json["used"]["image_bytes"] == one["used"]
    assert a.delete("/v1/images/two:1").status == 204
    assert a.use()["used"] == 0 and b.use()["used"] == one["used"]
    table = d.cli("image", "df", "--all-tenants").text.splitlines()
    assert table[0].split() == ["TENANT", "IMAGES", "LAYERS", "SIZE", "BUILDS", "PENDING", "USED", "QUOTA"] and "2 layers, " in table[-1], table
    assert [x for x in table if x.startswith(a.name)][0].split()[-1] == "500M", table


def test_an_import_beyond_the_quota_is_refused_and_leaves_nothing(d, tenant):  # noqa: F811
    a = tenant("20M")
    assert bring(a, [BASE], "base:1").status == 201
    used = a.use()["used"]
    full(bring(a, [BASE, filled(30 * MB)], "big:1"))  # the archive itself does not fit
    full(a.request("POST", "/v1/images/import?name=many:1", ia.compress(ia.docker([ia.layer(ia.entry("zeros", os.urandom(100) * (300 * MB // 100)))]), "zstd")))
    assert a.use()["used"] == used and a.use()["images"] == 1 and os.listdir(d.data / "spool") == []
    assert bring(a, [BASE, filled(MB)], "base:2").status == 201
    assert bring(a, [BASE, filled(MB)], "base:2").status == 201  # in place of the first
    assert a.use()["used"] < used + 2 * MB
    # A smaller quota takes nothing away, and nothing can be added.
    assert d.request("PATCH", f"/v1/tenants/{a.name}", {"quotas": {"image_bytes": "1M"}}).status == 200
    full(bring(a, [filled(MB)], "more:1"))
    assert a.get("/v1/images/base:2").status == 200 and a.post("/v1/images/base:2/tag", {"name": "base:3"}).status == 201


def test_a_public_image_counts_for_those_that_keep_it(d, tenant):  # noqa: F811
    a = tenant("1M")
    assert d.request("POST", "/v1/images/import?name=shared:1", ia.docker([BASE])).status == 201
    assert d.request("PATCH", "/v1/images/shared:1", {"public": True}).status == 200
    s = a.post("/v1/sandboxes", {"image": "shared:1"})
    assert s.status == 201 and a.use()["used"] == 0
    assert a.delete("/v1/sandboxes/" + s.json["id"]).status == 204
    full(a.post("/v1/images/shared:1/tag", {"name": "mine:1"}))
    assert a.use()["used"] == 0


def test_steps_of_builds_count_until_they_are_forgotten(d, tenant):  # noqa: F811
    a = tenant("30M")
    assert bring(a, [BASE], "base:1").status == 201
    used = a.use()["used"]
    built(a, "FROM base:1\nRUN head -c 3000000 /dev/urandom > /x\nRUN rm /x\n", tags=["t:1"])
    now = a.use()
    assert 3_000_000 <= now["used"] - used < 4_000_000 and now["images"] == 2, now
    assert a.delete("/v1/images/t:1").status == 204
    assert a.use()["build_bytes"] == now["used"] - used, a.use()
    last = build(a, "FROM base:1\nRUN head -c 40000000 /dev/urandom > /x\n", tags=["t:2"])[-1]
    assert last["type"] == "error", last
    last = build(a, "FROM base:1\nCOPY x /x\n", {"x": os.urandom(40 * MB)}, tags=["t:2"])[-1]
    assert last["error"]["code"] == "quota" and "image_bytes" in last["error"]["message"], last
    assert a.use()["used"] == now["used"], a.use()
    assert a.delete("/v1/images/build/cache").json["bytes"] >= 3_000_000
    assert a.use()["used"] == used


def test_layers_of_a_removed_image_count_while_a_sandbox_or_a_checkpoint_needs_them(d, tenant):  # noqa: F811
    a = tenant("15M")
    assert bring(a, [BASE, filled(4 * MB)], "base:1").status == 201
    was = a.use()["used"]
    first, second = a.create(image="base:1"), a.create(image="base:1")
    saved = a.post(f"/v1/sandboxes/{first['id']}/checkpoints", {}).json
    assert a.use()["used"] == was  # they need what is there anyway
    assert a.delete("/v1/images/base:1").status == 204
    left = a.use()
    assert left["used"] == left["build_bytes"] == was and left["images"] == left["bytes"] == 0, left
    full(bring(a, [BASE, filled(14 * MB)], "other:1"))  # so the quota cannot be passed by image after image
    d.kill9("api")
    eventually(lambda: d.get("/v1/images").status == 200)
    assert a.use() == left
    assert a.delete(f"/v1/sandboxes/{first['id']}").status == 204 and a.delete(f"/v1/sandboxes/{second['id']}").status == 204
    assert a.use()["used"] == was
    third = a.post(f"/v1/checkpoints/{saved['id']}/restore", {"count": 1}).json["sandboxes"][0]
    assert a.delete(f"/v1/checkpoints/{saved['id']}").status == 204
    assert a.use()["used"] == was and a.post(f"/v1/sandboxes/{third['id']}/execs", {"cmd": ["cat", "/etc/passwd"]}).json["exit_code"] == 0
    assert a.delete(f"/v1/sandboxes/{third['id']}").status == 204
    assert a.use()["used"] == 0
    assert bring(a, [BASE, filled(4 * MB)], "other:1").status == 201


def test_what_counts_is_the_same_after_a_restart(d, tenant):  # noqa: F811
    a = tenant(0)
    assert bring(a, [BASE, filled(MB)], "base:1").status == 201
    built(a, "FROM base:1\nRUN head -c 2000000 /dev/urandom > /x\n", tags=["t:1"])
    assert a.delete("/v1/images/t:1").status == 204
    was = d.get("/v1/images/usage?tenant=*").json
    d.kill9("api")
    eventually(lambda: d.get("/v1/images").status == 200)
    assert d.get("/v1/images/usage?tenant=*").json == was


def test_a_pull_that_does_not_fit_fetches_no_layer(tmp_path):
    small, big = Image().layer({"a": os.urandom(MB)}), Image().layer({"b": os.urandom(5 * MB)})
    with Registry(tmp_path) as r:
        r.push(small, "team/small:1")
        r.push(big, "team/big:1")
        with Daemon(None, "--config", r.conf()) as d:  # noqa: F811
            a = as_tenant(d, "puller", quotas={"image_bytes": "4M"})
            full(a.post("/v1/images/pull", {"name": f"{r.host}/team/big:1"}))
            assert a.get("/v1/images/usage").json["tenants"][0]["used"] == 0
            assert a.post("/v1/images/pull", {"name": f"{r.host}/team/small:1"}).status == 201
            use = a.get("/v1/images/usage").json["tenants"][0]
            assert MB <= use["used"] == use["bytes"] < 2 * MB and use["pending_bytes"] == 0, use
            assert os.listdir(d.data / "blobs") == []
