"""Checkpoints over Noid's wire. Where Noid fails its users (a second reset is a 404, a deleted VM takes all along) we do not."""
import concurrent.futures
import os

import pytest


@pytest.fixture
def vm(noid, d):
    name = f"ck-{os.urandom(4).hex()}"
    noid.create(name, mem_mib=256)
    yield name
    for box in d.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{box['id']}")
    for c in d.get("/v1/checkpoints?limit=1000").json["checkpoints"]:
        d.delete(f"/v1/checkpoints/{c['id']}")


def keep(noid, vm, **body):
    r = noid.call("POST", f"/v1/vms/{vm}/checkpoints", body)
    assert r.status == 201, r
    return r.json


def back(noid, vm, ident, **body):
    r = noid.call("POST", f"/v1/vms/{vm}/restore", {"checkpoint_id": ident, **body})
    assert r.status == 200, r
    return r.json


def test_a_vm_is_reset_again_and_again(noid, vm):
    noid.exec(vm, "sh", "-c", "echo clean > /root/state")
    made = keep(noid, vm, label="before")
    assert made["vm_name"] == vm and made["label"] == "before" and made["created_at"].endswith("Z")
    for _ in range(3):
        noid.exec(vm, "sh", "-c", "echo dirt > /root/state; touch /root/more")
        assert back(noid, vm, made["id"])["name"] == vm
        assert noid.exec(vm, "sh", "-c", "cat /root/state; ls /root; id -u")["stdout"] == "clean\nstate\n0\n"
    assert [c["id"] for c in noid.call("GET", f"/v1/vms/{vm}/checkpoints").json] == [made["id"]]


def test_labels_are_null_and_bodies_empty(noid, vm):
    assert keep(noid, vm)["label"] is None
    r = noid.call("POST", f"/v1/vms/{vm}/checkpoints")
    assert r.status == 201 and r.json["label"] is None, r
    listed = noid.call("GET", f"/v1/vms/{vm}/checkpoints").json
    assert len(listed) == 2 and listed[1]["id"] == r.json["id"] and {"id", "vm_name", "label", "created_at"} <= set(listed[0])


def test_one_checkpoint_becomes_many_vms_at_once(noid, vm):
    noid.exec(vm, "sh", "-c", "echo shared > /root/context")
    ident = keep(noid, vm)["id"]
    names = [f"{vm}-{i}" for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: back(noid, vm, ident, new_name=n), names))
        assert [m["name"] for m in made] == names and all(m["mem_mib"] == 256 and m["state"] == "running" for m in made)
        out = list(pool.map(lambda n: noid.exec(n, "sh", "-c", f"echo {n} > /root/me; cat /root/context /root/me")["stdout"], names))
    assert out == [f"shared\n{n}\n" for n in names]
    assert noid.call("POST", f"/v1/vms/{vm}/restore", {"checkpoint_id": ident, "new_name": names[0]}).status == 409
    assert noid.exec(vm, "ls", "/root")["stdout"] == "context\n"


def test_what_was_kept_outlives_its_vm(noid, vm):
    noid.exec(vm, "sh", "-c", "echo data > /root/file")
    made = keep(noid, vm, label="golden")
    back(noid, vm, made["id"], new_name=f"{vm}-heir")
    assert noid.call("DELETE", f"/v1/vms/{vm}").status == 204
    assert noid.exec(f"{vm}-heir", "cat", "/root/file")["stdout"] == "data\n"
    assert [c["id"] for c in noid.call("GET", f"/v1/vms/{vm}/checkpoints").json] == [made["id"]]
    back(noid, vm, made["id"], new_name=f"{vm}-late")
    assert noid.exec(f"{vm}-late", "cat", "/root/file")["stdout"] == "data\n"
    # The VM itself comes back under its name, and sees what an earlier one of that name had kept.
    assert back(noid, vm, made["id"])["name"] == vm
    assert noid.exec(vm, "cat", "/root/file")["stdout"] == "data\n"
    assert [c["id"] for c in noid.call("GET", f"/v1/vms/{vm}/checkpoints").json] == [made["id"]]
    noid.exec(vm, "rm", "/root/file")
    back(noid, vm, made["id"])
    assert noid.exec(vm, "cat", "/root/file")["stdout"] == "data\n"


def test_both_dialects_see_the_same(noid, d, vm):
    noid.exec(vm, "sh", "-c", "echo one > /root/file")
    ours = d.post(f"/v1/sandboxes/{vm}/checkpoints", {"name": "ours", "label": "x"}).json
    theirs = keep(noid, vm, name="theirs")
    assert [(c["id"], c["label"]) for c in noid.call("GET", f"/v1/vms/{vm}/checkpoints").json] == [(ours["id"], "x"), (theirs["id"], None)]
    noid.exec(vm, "sh", "-c", "echo two > /root/file")
    back(noid, vm, "ours")  # a name does as well
    assert noid.exec(vm, "cat", "/root/file")["stdout"] == "one\n"
    assert d.get(f"/v1/checkpoints/theirs?sandbox={vm}").json["id"] == theirs["id"]


def test_another_tenant_sees_nothing(noid, d, vm):
    ident = keep(noid, vm)["id"]
    d.post("/v1/tenants", {"id": "stranger"})
    token = d.post("/v1/tokens", {"tenant": "stranger", "scope": "sandbox"}).json["token"]
    for method, path, body in (("GET", f"/v1/vms/{vm}/checkpoints", None), ("POST", f"/v1/vms/{vm}/checkpoints", {}),
                               ("POST", f"/v1/vms/{vm}/restore", {"checkpoint_id": ident, "new_name": "stolen"})):
        assert noid.call(method, path, body, token=token).status == 404
    assert noid.call("POST", "/v1/vms", {"name": vm}, token=token).status == 201
    assert noid.call("POST", f"/v1/vms/{vm}/restore", {"checkpoint_id": ident, "new_name": "stolen"}, token=token).status == 404
    assert noid.call("GET", f"/v1/vms/{vm}/checkpoints", token=token).json == []
    assert noid.call("DELETE", f"/v1/vms/{vm}", token=token).status == 204
    read = d.post("/v1/tokens", {"scope": "exec"}).json["token"]
    assert noid.call("POST", f"/v1/vms/{vm}/checkpoints", {}, token=read).status == 403
    assert noid.call("GET", f"/v1/vms/{vm}/checkpoints", token=read).status == 200
