"""What a tenant makes the host keep counts, whether it has a name or not."""
import pytest

from api import As, as_tenant, d, error, eventually, nothing_is_left_behind, token  # noqa: F401  pylint: disable=unused-import

MB = 1000000


@pytest.fixture
def t(d, request):  # noqa: F811  pylint: disable=redefined-outer-name
    name = "q-" + request.node.name[5:30].replace("_", "-").strip("-")
    a = as_tenant(d, name, quotas={"checkpoint_bytes": 5 * MB, "sandboxes": 3})
    a.used = lambda: d.get(f"/v1/tenants/{name}").json["used"]["checkpoint_bytes"]
    yield a
    for b in a.get("/v1/sandboxes").json["sandboxes"]:
        a.delete(f"/v1/sandboxes/{b['id']}")
    for c in a.get("/v1/checkpoints").json["checkpoints"]:
        a.delete(f"/v1/checkpoints/{c['id']}")
    # Nothing stands on anything any more.
    assert eventually(lambda: a.used() == 0, 15), a.used()


def write(t, box, name):  # pylint: disable=redefined-outer-name
    r = t.post(f"/v1/sandboxes/{box}/execs", {"shell": f"head -c {2 * MB} /dev/urandom > {name}"})
    assert r.status == 200 and r.json["exit_code"] == 0, r


def test_what_forks_stand_on(t):  # pylint: disable=redefined-outer-name
    box = t.create()["id"]
    for i in range(2):
        write(t, box, f"f{i}")
        r = t.post(f"/v1/sandboxes/{box}/fork", {"memory": False})
        assert r.status == 201, r
        assert t.used() >= 2 * MB * (i + 1)
        assert t.delete(f"/v1/sandboxes/{box}").status == 204
        box = r.json["sandboxes"][0]["id"]
    assert eventually(lambda: 4 * MB <= t.used() < 5 * MB, 10), t.used()
    write(t, box, "f2")
    error(t.post(f"/v1/sandboxes/{box}/fork", {"memory": False}), 429, "quota")
    error(t.post(f"/v1/sandboxes/{box}/hibernate"), 429, "quota")
    r = t.post(f"/v1/sandboxes/{box}/execs", {"shell": "ls f0 f1 f2"})
    assert r.status == 200 and r.json["exit_code"] == 0, r


def test_what_is_left_of_a_deleted_one(t):  # pylint: disable=redefined-outer-name
    box = t.create()["id"]
    write(t, box, "f")
    c = t.post(f"/v1/sandboxes/{box}/checkpoints").json["id"]
    n = t.post(f"/v1/checkpoints/{c}/restore").json["sandboxes"][0]["id"]
    assert t.used() == 2 * MB
    assert t.delete(f"/v1/checkpoints/{c}").status == 204
    assert eventually(lambda: t.used() == 2 * MB, 10), t.used()
    t.delete(f"/v1/sandboxes/{n}")
    assert eventually(lambda: t.used() == 0, 15), t.used()


def test_one_that_sleeps(t):  # pylint: disable=redefined-outer-name
    box = t.create()["id"]
    write(t, box, "f")
    assert t.post(f"/v1/sandboxes/{box}/hibernate").status == 200
    assert t.used() >= 2 * MB
    assert t.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["true"]}).status == 200
    assert eventually(lambda: t.used() >= 2 * MB, 10), t.used()


def test_an_import_is_not_unpacked_beyond_it(d, t):  # noqa: F811  pylint: disable=redefined-outer-name
    big = d.create(storage="disk")["id"]
    d.exec(big, "sh", "-c", "head -c 200000000 /dev/zero > big")
    c = d.post(f"/v1/sandboxes/{big}/checkpoints").json["id"]
    file = d.get(f"/v1/checkpoints/{c}/export").body
    r = t.request("POST", "/v1/checkpoints/import", file)
    assert r.status in (422, 429) and t.get("/v1/checkpoints").json["checkpoints"] == [], r
    assert d.delete(f"/v1/sandboxes/{big}").status == 204 and d.delete(f"/v1/checkpoints/{c}").status == 204
