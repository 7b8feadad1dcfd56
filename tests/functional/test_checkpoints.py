"""Checkpoints, restores and forks over the API: what comes along, what stays apart, what is refused."""
import json
import os
import pathlib
import threading
import time

import pytest

from api import as_tenant, d, error, eventually, events, nothing_is_left_behind, parallel  # noqa: F401


@pytest.fixture
def clean(d):
    """Ends all sandboxes that a test has made, of every tenant."""
    yield
    for b in d.get("/v1/sandboxes?limit=1000&tenant=*").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")
    for c in d.get("/v1/checkpoints?limit=1000&tenant=*").json["checkpoints"]:
        d.delete(f"/v1/checkpoints/{c['id']}")


def sh(d, box, script, **fields):
    r = d.exec(box["id"] if isinstance(box, dict) else box, "/bin/sh", "-c", script, **fields)
    return r["stdout"].strip()


def checkpoint(d, box, **fields):
    r = d.post(f"/v1/sandboxes/{box['id']}/checkpoints", fields)
    assert r.status == 201, r
    return r.json


def restore(d, c, **fields):
    r = d.post(f"/v1/checkpoints/{c['id']}/restore", fields)
    assert r.status == 201, r
    return r.json["sandboxes"]


def layers(d):
    return d.layers()


def test_a_checkpoint_holds_what_was_changed(d, clean):
    b = d.create(env={"A": "1"}, name="source")
    sh(d, b, "echo one > f; rm -f /etc/motd; mkdir -p deep/er; ln -s f l; echo $A > a")
    c = checkpoint(d, b, name="first", label="golden", metadata={"k": "v"})
    assert c["name"] == "first" and c["label"] == "golden" and c["metadata"] == {"k": "v"} and c["state"] == "made"
    assert c["sandbox"] == b["id"] and c["sandbox_name"] == "source" and c["parent"] is None and c["depth"] == 1
    assert c["files"] >= 2 and c["size"] > 0 and c["memory"] is False and c["pause_ms"] > 0 and c["image"] == "host"
    assert c["config"]["env"] == {"A": "1"} and "name" not in c["config"]
    sh(d, b, "echo two > f; rm a")
    n, = restore(d, c, **{"as": "again"})
    assert n["name"] == "again" and n["id"] != b["id"] and n["checkpoint"] == c["id"]
    assert n["restored"]["checkpoint"] == c["id"] and n["restored"]["memory"] is False
    assert sh(d, n, "cat f a l; ls -d deep/er") == "one\n1\none\ndeep/er"
    assert sh(d, b, "cat f") == "two"
    sh(d, n, "echo three > f")
    m, = restore(d, c)
    assert sh(d, m, "cat f") == "one"


def test_settings_come_along_and_can_be_changed(d, clean):
    b = d.create(cpus=0.5, memory="64M", disk="32M", pids=50, nofile=77, env={"A": "b", "C": "d"}, metadata={"m": "1"}, user="root", workdir="/work/x",
                 hostname="there", exec_timeout=3, timeout=3600, tmpfs=[{"path": "/scratch", "size": "1M"}])
    c = checkpoint(d, b)
    same = d.post("/v1/sandboxes", {"checkpoint": c["id"]})
    assert same.status == 201
    for key in ("cpus", "memory", "disk", "pids", "nofile", "env", "metadata", "user", "workdir", "hostname", "exec_timeout", "timeout", "tmpfs", "image", "storage"):
        assert same.json[key] == b[key], key
    assert same.json["expires_at"] and same.json["key"] is None
    assert sh(d, same.json, "echo $A; id -u; pwd; hostname") == "b\n0\n/work/x\nthere"
    other = d.post("/v1/sandboxes", {"checkpoint": c["id"], "name": "other", "env": {"A": "z"}, "memory": "128M", "timeout": 0, "metadata": {}})
    assert other.status == 201 and other.json["memory"] == 128 << 20 and other.json["env"] == {"A": "z"} and other.json["expires_at"] is None
    assert sh(d, other.json, 'echo "$A|$C"') == "z|"
    error(d.post("/v1/sandboxes", {"checkpoint": c["id"], "read_only": True}), 400, "invalid")
    error(d.post("/v1/sandboxes", {"checkpoint": c["id"], "nome": 1}), 400, "invalid")
    error(d.post("/v1/sandboxes", {"checkpoint": 7}), 400, "invalid")
    error(d.post("/v1/sandboxes", {"checkpoint": "0000aaaaaaaaaaaaaaaaaaaa"}), 404, "not_found")


def test_a_name_is_found_when_its_sandbox_is_gone(d, clean):
    b = d.create(name="base")
    c = checkpoint(d, b, name="golden")
    d.delete("/v1/sandboxes/base")
    r = d.get("/v1/checkpoints/golden?sandbox=base")
    assert r.status == 200 and r.json["id"] == c["id"], r
    t = as_tenant(d, "nosy")
    assert t.get("/v1/checkpoints/golden?sandbox=base").status == 404
    b = d.create(name="base")  # a second of that name: which one is meant cannot be told
    checkpoint(d, b, name="golden")
    d.delete("/v1/sandboxes/base")
    assert d.get("/v1/checkpoints/golden?sandbox=base").status == 404


def test_in_place_as_often_as_wanted(d, clean):
    b = d.create(name="here", key="the-key", metadata={"a": "b"})
    sh(d, b, "echo good > f")
    c = checkpoint(d, b, name="good")
    for i in range(5):
        sh(d, b, f"echo bad{i} > f; touch extra; mkdir -p d/{i}")
        x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": "sleep 100", "background": True})
        assert x.status == 201
        r = d.post("/v1/sandboxes/here/restore", {"checkpoint": "good"})
        assert r.status == 200, r
        assert (r.json["id"], r.json["name"], r.json["key"], r.json["metadata"]) == (b["id"], "here", "the-key", {"a": "b"})
        assert r.json["state"] == "running" and r.json["restored"]["checkpoint"] == c["id"]
        ended = d.get(f"/v1/sandboxes/{b['id']}/execs/{x.json['id']}").json
        assert ended["state"] == "ended" and ended["verdict"]["cause"] == "killed", ended
        assert sh(d, b, "cat f; ls; ps -e 2>/dev/null | grep -c sleep") .startswith("good\nf")
        assert d.request("PUT", f"/v1/sandboxes/here/files?path=up{i}", b"x").status == 200
    assert d.post("/v1/sandboxes", {"key": "the-key"}).json["id"] == b["id"]
    assert d.post("/v1/sandboxes/here/pause").status == 200
    assert d.post("/v1/sandboxes/here/restore", {"checkpoint": c["id"]}).json["state"] == "running"
    assert sh(d, b, "cat f; ls") == "good\nf"
    error(d.post("/v1/sandboxes/here/restore", {"checkpoint": "bad"}), 404, "not_found")
    error(d.post("/v1/sandboxes/here/restore", {}), 400, "invalid")
    r = d.post("/v1/sandboxes/here/restore", {"checkpoint": "good", "as": "there"})
    assert r.status == 201 and r.json["name"] == "there" and sh(d, r.json, "cat f") == "good"
    assert d.get("/v1/tenants/default").json["used"]["sandboxes"] == 2


def test_after_in_place_everything_works(d, clean):
    b = d.create()
    c = checkpoint(d, b)
    assert d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": c["id"]}).status == 200
    assert parallel(8, lambda i: sh(d, b, f"echo {i}")) == [str(i) for i in range(8)]
    assert d.post(f"/v1/sandboxes/{b['id']}/pause").json["state"] == "paused"
    error(d.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": "true"}), 409, "conflict")
    assert d.post(f"/v1/sandboxes/{b['id']}/resume").json["state"] == "running"
    assert d.get(f"/v1/sandboxes/{b['id']}/stats").json["memory_limit"] == 512 << 20
    assert sh(d, b, "echo y") == "y"
    assert d.delete(f"/v1/sandboxes/{b['id']}").status == 204


def test_many_at_once_or_none(d, clean):
    b = d.create(memory="32M", disk="16M")
    sh(d, b, "echo shared > f")
    c = checkpoint(d, b)
    many = restore(d, c, count=100)
    assert len({m["id"] for m in many}) == 100
    assert set(parallel(8, lambda i: sh(d, many[i * 12], f"cat f; echo {i} > f; cat f")[:6])) == {"shared"}
    named = restore(d, c, count=3, names=["a1", "a2"])
    assert [m["name"] for m in named[:2]] == ["a1", "a2"] and named[2]["name"] == named[2]["id"]
    before = d.get("/v1/tenants/default").json["used"]
    error(d.post(f"/v1/checkpoints/{c['id']}/restore", {"names": ["b1", "b2", "a1"]}), 409, "conflict")
    assert d.get("/v1/tenants/default").json["used"] == before
    error(d.get("/v1/sandboxes/b1"), 404, "not_found")
    for bad in ({"count": 0}, {"count": 257}, {"count": 2, "name": "x"}, {"count": 2, "as": "x"}, {"count": 1, "names": ["x", "y"]}, {"names": [1]},
                {"names": ["../x"]}, {"bogus": 1}, {"memory": "1X"}):
        error(d.post(f"/v1/checkpoints/{c['id']}/restore", bad), 400, "invalid")


def test_a_fork_is_its_own(d, clean):
    b = d.create(env={"X": "y"}, name="parent", metadata={"team": "1"})
    sh(d, b, "echo base > f")
    r = d.post("/v1/sandboxes/parent/fork", {"count": 3, "names": ["k1", "k2", "k3"]})
    assert r.status == 201 and r.json["checkpoint"] is None, r
    kids = r.json["sandboxes"]
    assert [k["name"] for k in kids] == ["k1", "k2", "k3"] and all(k["metadata"] == {"team": "1"} for k in kids)
    for i, k in enumerate(kids):
        sh(d, k, f"echo {i} > f")
    assert [sh(d, k, "cat f; echo $X") for k in kids] == [f"{i}\ny" for i in range(3)] and sh(d, b, "cat f") == "base"
    assert d.get("/v1/checkpoints").json["checkpoints"] == []
    again = d.post("/v1/sandboxes/k2/fork").json["sandboxes"][0]
    d.delete("/v1/sandboxes/k2")
    d.delete("/v1/sandboxes/parent")
    assert sh(d, again, "cat f") == "1"
    error(d.post(f"/v1/sandboxes/{again['id']}/fork", {"count": 1, "memory": "yes"}), 400, "invalid")
    error(d.post(f"/v1/sandboxes/{again['id']}/fork", {"count": 1000}), 400, "invalid")


def test_names_are_one_sandboxes_own(d, clean):
    a, b = d.create(name="a"), d.create(name="b")
    ca, cb = checkpoint(d, a, name="same"), checkpoint(d, b, name="same")
    error(d.post("/v1/sandboxes/a/checkpoints", {"name": "same"}), 409, "conflict")
    assert d.get("/v1/checkpoints/same?sandbox=a").json["id"] == ca["id"] and d.get("/v1/checkpoints/same?sandbox=b").json["id"] == cb["id"]
    error(d.get("/v1/checkpoints/same"), 404, "not_found")
    r = d.request("PATCH", f"/v1/checkpoints/{ca['id']}", {"name": "new", "label": "L", "metadata": {"x": "1"}})
    assert r.status == 200 and (r.json["name"], r.json["label"], r.json["metadata"]) == ("new", "L", {"x": "1"})
    assert d.get("/v1/checkpoints/new?sandbox=a").json == r.json
    other = checkpoint(d, a, name="same")
    error(d.request("PATCH", f"/v1/checkpoints/{other['id']}", {"name": "new"}), 409, "conflict")
    error(d.request("PATCH", f"/v1/checkpoints/{other['id']}", {"name": "../x"}), 400, "invalid")
    d.delete("/v1/sandboxes/a")
    listed = d.get(f"/v1/sandboxes/{a['id']}/checkpoints").json["checkpoints"]
    assert {c["id"] for c in listed} == {ca["id"], other["id"]}
    assert d.get(f"/v1/checkpoints/new?sandbox={a['id']}").json["id"] == ca["id"]
    error(d.get("/v1/sandboxes/0000bbbbbbbbbbbbbbbbbbbb/checkpoints"), 404, "not_found")


def test_they_are_listed_page_by_page(d, clean):
    b, other = d.create(name="many"), d.create()
    made = [checkpoint(d, b, name=f"c{i}", label="odd" if i % 2 else "even", metadata={"i": str(i), "all": "1"})["id"] for i in range(7)]
    checkpoint(d, other)
    get = lambda query: d.get("/v1/checkpoints?" + query).json  # noqa: E731
    ids = lambda query: [c["id"] for c in get(query)["checkpoints"]]  # noqa: E731
    assert len(ids("")) == 8 and ids("sandbox=many") == made[::-1] and ids(f"sandbox={b['id']}&label=odd") == [made[5], made[3], made[1]]
    assert ids("metadata.i=3") == [made[3]] and ids("metadata.i=3&metadata.all=2") == [] and ids("name=c4") == [made[4]]
    seen, cursor = [], ""
    while cursor is not None:
        page = get(f"sandbox=many&limit=3{cursor and '&cursor=' + cursor}")
        seen += [c["id"] for c in page["checkpoints"]]
        cursor = page["next"]
    assert seen == made[::-1]
    for bad in ("limit=0", "limit=1001", "cursor=zzz"):
        error(d.get("/v1/checkpoints?" + bad), 400, "invalid")


def test_they_are_a_tenants_own(d, clean):
    a, b = as_tenant(d, "cp-a"), as_tenant(d, "cp-b")
    box = a.create(name="x")
    c = a.post("/v1/sandboxes/x/checkpoints", {"name": "n"}).json
    assert c["tenant"] == "cp-a"
    for r in (b.get(f"/v1/checkpoints/{c['id']}"), b.delete(f"/v1/checkpoints/{c['id']}"), b.post(f"/v1/checkpoints/{c['id']}/restore"),
              b.post("/v1/sandboxes", {"checkpoint": c["id"]}), b.get(f"/v1/sandboxes/{box['id']}/checkpoints"),
              b.request("PATCH", f"/v1/checkpoints/{c['id']}", {"label": "x"}), b.post(f"/v1/sandboxes/{box['id']}/fork")):
        error(r, 404, "not_found")
    assert b.get("/v1/checkpoints").json["checkpoints"] == []
    own = b.create()
    error(b.post(f"/v1/sandboxes/{own['id']}/restore", {"checkpoint": c["id"]}), 404, "not_found")
    new = d.post("/v1/sandboxes", {"checkpoint": c["id"]})  # an admin: it stays its tenant's
    assert new.status == 201 and new.json["tenant"] == "cp-a"
    assert d.post(f"/v1/checkpoints/{c['id']}/restore").json["sandboxes"][0]["tenant"] == "cp-a"
    reader = d.post("/v1/tokens", {"tenant": "cp-a", "scope": "exec"}).json["token"]
    for method, path in (("POST", f"/v1/checkpoints/{c['id']}/restore"), ("DELETE", f"/v1/checkpoints/{c['id']}"), ("POST", "/v1/sandboxes/x/checkpoints"),
                         ("POST", "/v1/sandboxes/x/fork"), ("POST", "/v1/sandboxes/x/restore")):
        error(d.request(method, path, {}, token=reader), 403, "denied")
    assert d.request("GET", f"/v1/checkpoints/{c['id']}", token=reader).status == 200
    for s in a.get("/v1/sandboxes").json["sandboxes"]:
        a.delete(f"/v1/sandboxes/{s['id']}")
    error(d.delete("/v1/tenants/cp-a"), 409, "conflict")
    assert a.delete(f"/v1/checkpoints/{c['id']}").status == 204
    assert d.delete("/v1/tenants/cp-a").status == 204


def test_quotas_count_them(d, clean):
    a = as_tenant(d, "cp-quota", quotas={"checkpoints": 2, "checkpoint_bytes": "1M", "sandboxes": 5})
    b = a.create()
    c = [a.post(f"/v1/sandboxes/{b['id']}/checkpoints").json for _ in range(2)]
    error(a.post(f"/v1/sandboxes/{b['id']}/checkpoints"), 429, "quota")
    used = d.get("/v1/tenants/cp-quota").json["used"]
    assert used["checkpoints"] == 2 and used["checkpoint_bytes"] == sum(x["size"] for x in c)
    error(a.post(f"/v1/checkpoints/{c[0]['id']}/restore", {"count": 5}), 429, "quota")
    assert d.get("/v1/tenants/cp-quota").json["used"]["sandboxes"] == 1
    assert a.delete(f"/v1/checkpoints/{c[0]['id']}").status == 204
    a.d.exec(b["id"], "/bin/sh", "-c", "head -c 2000000 /dev/urandom > f")
    error(a.post(f"/v1/sandboxes/{b['id']}/checkpoints"), 429, "quota")
    used = d.get("/v1/tenants/cp-quota").json["used"]
    assert used["checkpoints"] == 1 and used["checkpoint_bytes"] == c[1]["size"]


def test_the_same_key_makes_one(d, clean):
    b = d.create()
    key = {"Idempotency-Key": "cp-1"}
    first = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"label": "x"}, headers=key)
    again = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"label": "x"}, headers=key)
    assert first.status == again.status == 201 and first.json == again.json and again.headers["Idempotent-Replay"] == "true"
    error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"label": "y"}, headers=key), 409, "conflict")
    path = f"/v1/checkpoints/{first.json['id']}/restore"
    key = {"Idempotency-Key": "cp-2"}
    ids = lambda r: [s["id"] for s in r.json["sandboxes"]]  # noqa: E731
    one, two = (d.post(path, {"count": 3}, headers=key) for _ in range(2))
    assert one.status == two.status == 201 and ids(one) == ids(two)
    key = {"Idempotency-Key": "cp-3"}
    one, two = (d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": 2}, headers=key) for _ in range(2))
    assert one.status == two.status == 201 and ids(one) == ids(two)
    d.delete(f"/v1/sandboxes/{ids(one)[0]}")
    error(d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": 2}, headers=key), 409, "conflict")


def test_it_is_told_and_noted(d, clean):
    b = d.create()
    heard = []
    listener = threading.Thread(target=lambda: [heard.append(e) for e in iter_until(d, b)], daemon=True)
    listener.start()
    time.sleep(0.3)
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"name": "n"}, headers={"X-Request-Id": "req-cp"})
    c = r.json
    seq = int(r.headers["X-Cloche-Audit"].split(":")[0])
    assert d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": "n"}).status == 200
    f = d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": 2}, headers={"X-Request-Id": "req-fork"})
    assert d.delete(f"/v1/checkpoints/{c['id']}").status == 204
    eventually(lambda: [e[0] for e in heard] == ["checkpoint.created", "sandbox.restored", "sandbox.forked", "checkpoint.deleted"])
    assert heard[0][1]["checkpoint"] == c["id"] and set(heard[2][1]["sandboxes"]) == {s["id"] for s in f.json["sandboxes"]}
    records = d.get(f"/v1/audit?after={seq - 1}").json["records"]
    kinds = [x["kind"] for x in records]
    assert kinds[0] == "checkpoint.create" and records[0]["checkpoint"] == c["id"] and records[0]["request_id"] == "req-cp" and len(records[0]["sum"]) == 64
    assert [k for k in kinds if k.startswith(("checkpoint.", "sandbox."))] == ["checkpoint.create", "sandbox.restore", "sandbox.create", "sandbox.create", "sandbox.fork",
                                                                            "checkpoint.delete"], kinds
    assert [x["kind"] for x in records if x.get("request_id") == "req-fork"] == ["sandbox.fork"]
    d.delete(f"/v1/sandboxes/{b['id']}")
    listener.join(5)


def iter_until(d, box):
    for kind, data in events(d, f"/v1/sandboxes/{box['id']}/events", method="GET"):
        if kind == "sandbox.deleted":
            return
        if kind.startswith(("checkpoint.", "sandbox.")):
            yield kind, data


def test_deleting_breaks_nothing_and_leaves_nothing(d, clean):
    eventually(lambda: not layers(d))
    b = d.create()
    sh(d, b, "echo 1 > f")
    c1 = checkpoint(d, b)
    n1, = restore(d, c1)
    sh(d, n1, "echo 2 >> f")
    c2 = checkpoint(d, n1)
    assert c2["parent"] == c1["id"] and c2["depth"] == 2
    n2, = restore(d, c2)
    for path in (f"/v1/checkpoints/{c1['id']}", f"/v1/sandboxes/{b['id']}", f"/v1/sandboxes/{n1['id']}", f"/v1/checkpoints/{c2['id']}"):
        assert d.delete(path).status == 204
    time.sleep(1.5)
    assert sh(d, n2, "cat f") == "1\n2" and layers(d) == {c1["id"], c2["id"]}
    error(d.post(f"/v1/checkpoints/{c2['id']}/restore"), 404, "not_found")
    k, = d.post(f"/v1/sandboxes/{n2['id']}/fork").json["sandboxes"]
    d.delete(f"/v1/sandboxes/{n2['id']}")
    assert sh(d, k, "cat f") == "1\n2"
    d.delete(f"/v1/sandboxes/{k['id']}")
    eventually(lambda: not layers(d), 20)


def test_a_damaged_one_is_refused(d, clean):
    b = d.create()
    sh(d, b, "echo original > f; head -c 100000 /dev/urandom > big")
    good, bad, gone = checkpoint(d, b), checkpoint(d, b), checkpoint(d, b)
    on_bad, = restore(d, bad)
    above = checkpoint(d, on_bad)
    folder = pathlib.Path(d.data) / "layers" / bad["id"]
    big = next(folder.rglob("big"))
    times = big.stat()
    with open(big, "r+b") as f:
        f.seek(50000)
        byte = f.read(1)
        f.seek(50000)
        f.write(bytes([byte[0] ^ 1]))  # one bit, in a daemon that has made the checkpoint itself
    os.utime(big, ns=(times.st_atime_ns, times.st_mtime_ns))
    for r in (d.post(f"/v1/checkpoints/{bad['id']}/restore"), d.post("/v1/sandboxes", {"checkpoint": bad["id"]}),
              d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": bad["id"]}), d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": bad["id"], "as": "n"})):
        assert "damaged" in error(r, 422, "refused")["message"]
    assert d.get(f"/v1/checkpoints/{bad['id']}").json["state"] == "damaged" and d.get(f"/v1/checkpoints/{good['id']}").json["state"] == "made"
    eventually(lambda: d.get(f"/v1/checkpoints/{above['id']}").json["state"] == "damaged")
    error(d.post(f"/v1/checkpoints/{above['id']}/restore"), 422, "refused")
    assert sh(d, b, "cat f") == "original" and sh(d, restore(d, good)[0], "cat f") == "original"
    assert d.get(f"/v1/tenants/default").json["used"]["sandboxes"] == 3
    assert d.delete(f"/v1/checkpoints/{bad['id']}").status == 204
    assert d.get(f"/v1/checkpoints/{gone['id']}").json["state"] == "made"


def test_what_can_not_be_is_refused(d, clean):
    b = d.create(name="plain")
    for body in ({"name": "a/b"}, {"name": 1}, {"label": "x" * 257}, {"metadata": {"a": 1}}, {"memory": "maybe"}, {"memory": 1}, {"what": 1}):
        error(d.post("/v1/sandboxes/plain/checkpoints", body), 400, "invalid")
    error(d.post("/v1/sandboxes/none/checkpoints"), 404, "not_found")
    for method, path in (("GET", "x"), ("DELETE", "x"), ("PATCH", "x"), ("POST", "x/restore")):
        error(d.request(method, f"/v1/checkpoints/{path}", {} if method != "GET" else None), 404, "not_found")
    assert d.get(f"/v1/sandboxes/{b['id']}").json["state"] == "running"


def test_attributes_that_the_store_cannot_hold_are_refused_by_the_name_of_their_file(d, clean):
    """ext4 keeps all extended attributes of a file in one block; files in memory may have more."""
    b = d.create()
    for place, told in (("many/f", "/home/user/many/f"), ("many", "/home/user/many")):
        sh(d, b, f"mkdir -p many; touch many/f; python3 -c \"import os; [os.setxattr('{place}', 'user.%d' % i, b'v' * 1000) for i in range(9)]\"")
        for path, body in (("checkpoints", {}), ("hibernate", {}), ("hibernate", {"memory": "auto"})):
            r = d.post(f"/v1/sandboxes/{b['id']}/{path}", body)
            error(r, 422, "refused")
            assert told + " has more extended attributes" in r.json["error"]["message"], r
        assert d.get(f"/v1/sandboxes/{b['id']}").json["state"] == "running" and sh(d, b, "echo on") == "on"
        sh(d, b, f"python3 -c \"import os; [os.removexattr('{place}', 'user.%d' % i) for i in range(7)]\"")
    n, = restore(d, checkpoint(d, b))
    assert sh(d, n, "python3 -c \"import os; print(len(os.listxattr('many/f')), len(os.listxattr('many')))\"") == "2 2"


def test_a_paused_one_stays_paused(d, clean):
    b = d.create()
    sh(d, b, "echo p > f")
    assert d.post(f"/v1/sandboxes/{b['id']}/pause").status == 200
    c = checkpoint(d, b)
    assert c["pause_ms"] == 0
    kid, = d.post(f"/v1/sandboxes/{b['id']}/fork").json["sandboxes"]
    assert d.get(f"/v1/sandboxes/{b['id']}").json["state"] == "paused" and kid["state"] == "running"
    assert sh(d, kid, "cat f") == "p"
    assert d.post(f"/v1/sandboxes/{b['id']}/resume").status == 200 and sh(d, b, "cat f") == "p"


def test_several_at_once_wait_for_each_other(d, clean):
    b = d.create()
    sh(d, b, "head -c 20000000 /dev/urandom > f; sha256sum f > s")
    made = parallel(6, lambda i: checkpoint(d, b, name=f"p{i}"))
    assert len({c["id"] for c in made}) == 6
    assert sh(d, restore(d, made[3])[0], "sha256sum -c s") == "f: OK"


def test_a_hundred_generations(d, clean):
    """Checkpointed and restored in a row: it works, and costs no more at the end."""
    b = d.create(memory="64M", disk="64M")
    sh(d, b, "echo 0 > f; head -c 1000000 /dev/urandom > ballast; sha256sum ballast > s; mkdir keep; echo gone > goes")
    took = []
    for i in range(1, 101):
        started = time.monotonic()
        c = checkpoint(d, b, name=f"g{i}")
        assert d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": c["id"]}).status == 200
        took.append(time.monotonic() - started)
        sh(d, b, f"echo {i} >> f; touch keep/{i}; rm -f goes keep/{i - 3}")
        if i > 3:
            d.delete(f"/v1/sandboxes/{b['id']}/none")
            old = d.get(f"/v1/checkpoints/g{i - 3}?sandbox={b['id']}").json
            assert d.delete(f"/v1/checkpoints/{old['id']}").status == 204
    assert sh(d, b, "wc -l < f; tail -1 f; ls keep; sha256sum -c s; ls goes 2>/dev/null") == "101\n100\n100\n98\n99\nballast: OK"
    first, last = sorted(took[:20]), sorted(took[-20:])
    assert last[10] < 3 * first[10] + 0.05, (first[10], last[10])
    eventually(lambda: len(layers(d)) <= 20, 20)


def test_a_mode_that_was_changed_back_stays_so(d, clean):
    """In the second one nothing of /usr is left but that: it must not be the first one's again."""
    b = d.create(user="root")
    sh(d, b, "chmod 700 /usr && touch /usr/new && rm /usr/new")
    n, = restore(d, checkpoint(d, b))
    assert sh(d, n, "stat -c %a /usr; chmod 755 /usr") == "700"
    m, = restore(d, checkpoint(d, n))
    assert sh(d, m, "stat -c %a /usr") == "755"
