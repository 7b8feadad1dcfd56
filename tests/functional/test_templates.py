"""Templates: what a create asks, under a name."""
import threading
import time

import pytest

import host
from api import HASH, as_tenant, d, error, events, nothing_is_left_behind, token, As  # noqa: F401


@pytest.fixture(autouse=True)
def clean(d):
    """Ends all sandboxes that a test has made, of every tenant."""
    yield
    for p in d.get("/v1/pools?tenant=*").json["pools"]:
        d.delete(f"/v1/pools/{p['name']}?tenant={p['tenant']}")
    for b in d.get("/v1/sandboxes?limit=1000&tenant=*").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")
    for t in d.get("/v1/templates?tenant=*").json["templates"]:
        d.delete(f"/v1/templates/{t['name']}?tenant={t['tenant']}")


def put(d, name, status=201, **fields):
    r = d.put(f"/v1/templates/{name}", fields)
    assert r.status == status, r
    return r.json


def sh(d, box, script, **fields):
    return d.exec(box["id"], "/bin/sh", "-c", script, **fields)["stdout"]


def test_what_it_says_is_what_a_create_from_it_gets(d):
    t = put(d, "small", memory="64M", cpus=0.5, env={"A": "1", "B": "2"}, metadata={"team": "x"}, user="root", hostname="tool", timeout=600, description="a tool")
    assert t["version"] == 1 and t["description"] == "a tool" and t["tenant"] == "default" and t["start"] is None and t["warm"] is None
    assert t["config"]["memory"] == 64 << 20 and t["config"]["env"] == {"A": "1", "B": "2"} and "name" not in t["config"]
    b = d.create(template="small")
    assert (b["memory"], b["cpus"], b["user"], b["hostname"], b["timeout"]) == (64 << 20, 0.5, "root", "tool", 600)
    assert b["template"] == "small" and b["pooled"] is False and b["metadata"] == {"team": "x"} and b["expires_at"]
    assert sh(d, b, "echo $A$B $(id -u) $(hostname)") == "12 0 tool\n"
    assert d.get("/v1/templates/small").json == t
    assert d.create()["template"] is None


def test_the_body_counts_where_both_say_something(d):
    put(d, "t", memory="64M", env={"A": "1", "B": "2"}, metadata={"m": "1"}, pids=50, tmpfs=[{"path": "/scratch"}], workdir="/work")
    b = d.create(template="t", memory="96M", env={"B": "two", "C": "3"}, metadata={"n": "2"}, pids=None, tmpfs=[], name="own")
    assert b["memory"] == 96 << 20 and b["env"] == {"A": "1", "B": "two", "C": "3"} and b["metadata"] == {"m": "1", "n": "2"}
    assert b["pids"] == 256 and b["tmpfs"] == [] and b["workdir"] == "/work" and b["name"] == "own"
    assert sh(d, b, "echo $A $B $C; pwd") == "1 two 3\n/work\n"
    assert d.create(template="t")["pids"] == 50
    error(d.post("/v1/sandboxes", {"template": "t", "nonsense": 1}), 400, "invalid")
    error(d.post("/v1/sandboxes", {"template": 7}), 400, "invalid")
    error(d.post("/v1/sandboxes", {"template": "no"}), 404, "not_found")
    assert d.create(template=None)["template"] is None


@pytest.mark.parametrize("body,status,code", [
    ({"name": "x"}, 400, "invalid"), ({"key": "x"}, 400, "invalid"), ({"template": "t"}, 400, "invalid"), ({"memory": "1X"}, 400, "invalid"), ({"what": 1}, 400, "invalid"),
    ({"network": "some"}, 400, "invalid"), ({"isolation": "wasm"}, 501, "unsupported"), ({"image": "none-such"}, 404, "not_found"),
    ({"start": {}}, 400, "invalid"), ({"start": "ls"}, 400, "invalid"), ({"start": {"cmd": ["a"], "shell": "b"}}, 400, "invalid"), ({"start": {"cmd": ["a"], "what": 1}}, 400, "invalid"),
    ({"description": 7}, 400, "invalid"), ({"description": "x" * 1025}, 400, "invalid"), ({"env": {"A=": ""}}, 400, "invalid"),
    ({"env": {str(i): "x" * 4000 for i in range(80)}}, 413, "too_large"),
])
def test_what_no_create_would_take_is_refused(d, body, status, code):
    error(d.put("/v1/templates/bad", body), status, code)
    assert d.get("/v1/templates/bad").status == 404


@pytest.mark.parametrize("name", [".a", "a..b", "-a", "x" * 65, "a%20b", "a%2Fb"])
def test_names_are_as_those_of_sandboxes(d, name):
    assert d.put(f"/v1/templates/{name}", {}).status in (400, 404)
    assert d.get("/v1/templates").json["templates"] == []


def test_a_put_replaces_and_the_version_tells_whether_sandboxes_differ(d):
    first = put(d, "t", memory="64M", env={"A": "1"})
    assert put(d, "t", 200, env={"A": "1"}, memory="64M")["version"] == 1
    told = put(d, "t", 200, env={"A": "1"}, memory="64M", description="said")
    assert told["version"] == 1 and told["description"] == "said"
    other = put(d, "t", 200, memory="80M")
    assert other["version"] == 2 and other["config"]["env"] == {} and other["description"] is None
    assert other["created_at"] == first["created_at"] and other["updated_at"] > first["updated_at"]
    assert put(d, "t", 200, memory="80M", start={"cmd": ["true"]})["version"] == 3
    assert d.create(template="t")["memory"] == 80 << 20


def test_lists_are_by_name_and_of_the_tenant(d):
    other = as_tenant(d, "list-t")
    for n in ("b", "a", "c"):
        put(d, n)
    assert other.put("/v1/templates/z", {"memory": "64M"}).status == 201
    assert [t["name"] for t in d.get("/v1/templates").json["templates"]] == ["a", "b", "c"]
    assert [t["name"] for t in other.get("/v1/templates").json["templates"]] == ["z"]
    assert [t["name"] for t in d.get("/v1/templates?tenant=list-t").json["templates"]] == ["z"]
    assert {t["name"] for t in d.get("/v1/templates?tenant=*").json["templates"]} == {"a", "b", "c", "z"}
    for r in (other.get("/v1/templates/a"), other.delete("/v1/templates/a"), other.post("/v1/sandboxes", {"template": "a"})):
        error(r, 404, "not_found")
    assert d.put("/v1/templates/z2?tenant=list-t", {}).status == 201
    assert [t["name"] for t in other.get("/v1/templates").json["templates"]] == ["z", "z2"]
    assert d.delete("/v1/templates/z2?tenant=list-t").status == 204


def test_deleting_one_leaves_its_sandboxes_alone(d):
    put(d, "t", env={"A": "1"})
    b = d.create(template="t")
    r = d.delete("/v1/templates/t")
    assert r.status == 204 and HASH.match(r.headers["X-Cloche-Audit"])
    error(d.get("/v1/templates/t"), 404, "not_found")
    error(d.delete("/v1/templates/t"), 404, "not_found")
    assert sh(d, b, "echo $A") == "1\n" and d.get(f"/v1/sandboxes/{b['id']}").json["template"] == "t"


def test_start_runs_in_every_new_sandbox(d):
    put(d, "t", env={"A": "1"}, start={"shell": "echo $A$B > /tmp/said; exec sleep 1000", "env": {"B": "2"}, "user": "root"}, exec_timeout=1)
    for _ in range(2):
        b = d.create(template="t")
        host.wait_for(lambda b=b: sh(d, b, "cat /tmp/said; stat -c %u /tmp/said") == "12\n0\n", 5, "what start says")
        runs = [x for x in d.get(f"/v1/sandboxes/{b['id']}/execs").json["execs"] if x["background"]]
        assert len(runs) == 1 and runs[0]["state"] == "running" and runs[0]["user"] == "root"
    time.sleep(1.2)  # exec_timeout is not for servers
    assert d.get(f"/v1/sandboxes/{b['id']}/execs/{runs[0]['id']}").json["state"] == "running"


def test_start_does_not_keep_it_from_being_idle(d):
    put(d, "t", start={"cmd": ["sleep", "1000"]}, idle=0.7)
    b = d.create(template="t")
    d.restart()
    host.wait_for(lambda: d.get("/v1/sandboxes").json["sandboxes"] == [], 5, "its end")
    assert b["id"] in [x["sandbox"] for x in d.get("/v1/audit?kind=sandbox.expire").json["records"]]


def test_a_start_that_can_not_begin_fails_the_create_and_leaves_nothing(d):
    put(d, "t", start={"cmd": ["/no/such/program"]})
    b = d.create(template="t")  # it began: that it failed is its result
    x = host.wait_for(lambda: [x for x in d.get(f"/v1/sandboxes/{b['id']}/execs").json["execs"] if x["state"] == "ended"], 5, "its end")
    assert x[0]["background"]
    other = as_tenant(d, "start-t", quotas={"execs": 1})
    assert other.put("/v1/templates/t", {"start": {"cmd": ["sleep", "1000"]}}).status == 201
    first = other.create(template="t")
    error(other.post("/v1/sandboxes", {"template": "t"}, headers={"Idempotency-Key": "again"}), 429, "quota")
    assert [b["id"] for b in other.get("/v1/sandboxes").json["sandboxes"]] == [first["id"]]
    assert d.get("/v1/tenants/start-t").json["used"]["sandboxes"] == 1
    assert other.delete(f"/v1/sandboxes/{first['id']}").status == 204
    assert other.post("/v1/sandboxes", {"template": "t"}, headers={"Idempotency-Key": "again"}).status == 201


def test_keys_and_idempotency_work_with_templates(d):
    put(d, "t", memory="64M")
    a = d.create(template="t", key="k")
    assert d.create(template="t", key="k")["id"] == a["id"]
    one = d.post("/v1/sandboxes", {"template": "t"}, headers={"Idempotency-Key": "tk"})
    two = d.post("/v1/sandboxes", {"template": "t"}, headers={"Idempotency-Key": "tk"})
    assert one.status == two.status == 201 and one.json["id"] == two.json["id"] and two.headers["Idempotent-Replay"] == "true"


def test_nothing_gets_in_by_a_template(d):
    """Options for admins only are refused to others, also when they are in a template."""
    other = as_tenant(d, "lift-t")
    error(other.put("/v1/templates/free", {"memory": 0}), 400, "invalid")
    assert d.put("/v1/templates/free?tenant=lift-t", {"memory": 0}).status == 201
    e = error(other.post("/v1/sandboxes", {"template": "free"}), 400, "invalid")
    assert "admin" in e["message"]
    assert other.create(template="free", memory="64M")["memory"] == 64 << 20


def test_scopes(d):
    put(d, "t")
    look, run, make = (As(d, token(d, scope=s)["token"]) for s in ("read", "exec", "sandbox"))
    assert look.get("/v1/templates/t").status == look.get("/v1/templates").status == 200
    for who in (look, run):
        error(who.put("/v1/templates/u", {}), 403, "denied")
        error(who.delete("/v1/templates/t"), 403, "denied")
    assert make.put("/v1/templates/u", {}).status == 201 and make.delete("/v1/templates/u").status == 204


def test_changes_are_noted_and_told(d):
    start = d.get("/v1/audit?limit=1").json["head"]["seq"]
    seen, stream = [], events(d, "/v1/events", method="GET")
    got = threading.Event()

    def listen():
        for kind, data in stream:
            seen.append((kind, data))
            if kind == "template.deleted":
                got.set()
                return

    t = threading.Thread(target=listen, daemon=True)
    t.start()
    time.sleep(0.2)
    r = d.put("/v1/templates/t", {"memory": "64M"}, headers={"X-Request-Id": "put-1"})
    assert r.status == 201 and HASH.match(r.headers["X-Cloche-Audit"])
    put(d, "t", 200, memory="80M")
    d.delete("/v1/templates/t")
    assert got.wait(5)
    assert [k for k, _ in seen] == ["template.created", "template.updated", "template.deleted"]
    assert seen[1][1]["template"] == "t" and seen[1][1]["version"] == 2
    noted = [x for x in d.get(f"/v1/audit?after={start}").json["records"] if x["kind"].startswith("template.")]
    assert [x["kind"] for x in noted] == ["template.create", "template.update", "template.delete"]
    assert noted[0]["request_id"] == "put-1" and noted[0]["template"] == "t" and noted[0]["tenant"] == "default"


def test_they_are_there_after_a_restart(d):
    t = put(d, "kept", memory="64M", env={"A": "1"}, start={"cmd": ["sleep", "1000"]}, description="kept")
    d.restart()
    assert d.get("/v1/templates/kept").json == t
    b = d.create(template="kept")
    assert b["memory"] == 64 << 20 and len(d.get(f"/v1/sandboxes/{b['id']}/execs").json["execs"]) == 1


def test_a_tenant_has_only_so_many(d):
    other = as_tenant(d, "many-t")
    for i in range(256):
        assert other.put(f"/v1/templates/t{i}", {}).status == 201
    error(other.put("/v1/templates/more", {}), 429, "quota")
    assert other.put("/v1/templates/t7", {"memory": "64M"}).status == 200
    assert d.delete("/v1/tenants/many-t").status == 204
    assert [t for t in d.get("/v1/templates?tenant=*").json["templates"] if t["tenant"] == "many-t"] == []
    again = as_tenant(d, "many-t")
    assert again.get("/v1/templates").json["templates"] == []


def golden(d, text="golden", **fields):
    """A sandbox in which something was set up, as a checkpoint; the sandbox is gone."""
    b = d.create(memory="64M", env={"FROM": "checkpoint", "BOTH": "checkpoint"}, **fields)
    sh(d, b, f"echo {text} > ~/tool; mkdir -p ~/dir; ln -s tool ~/link")
    c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"name": "golden"})
    assert c.status == 201, c
    d.delete(f"/v1/sandboxes/{b['id']}")
    return c.json


@pytest.fixture
def checkpoints(d):
    yield
    for t in d.get("/v1/templates?tenant=*").json["templates"]:
        d.delete(f"/v1/templates/{t['name']}?tenant={t['tenant']}")
    for c in d.get("/v1/checkpoints?limit=1000").json["checkpoints"]:
        d.delete(f"/v1/checkpoints/{c['id']}")


def test_one_that_stands_on_a_checkpoint(d, checkpoints):
    c = golden(d)
    t = put(d, "gold", checkpoint=c["id"], env={"BOTH": "template"}, memory="80M", start={"shell": "cat ~/tool > ~/started"})
    assert t["checkpoint"] == c["id"] and t["config"]["memory"] == 80 << 20 and t["config"]["env"] == {"BOTH": "template"}
    b = d.create(template="gold", name="a")
    assert b["checkpoint"] == c["id"] and b["template"] == "gold" and b["restored"]["checkpoint"] == c["id"] and b["memory"] == 80 << 20
    assert sh(d, b, "cat ~/link; echo $BOTH") == "golden\ntemplate\n"
    host.wait_for(lambda: sh(d, b, "cat ~/started 2>/dev/null") == "golden\n", 5, "its start")
    sh(d, b, "echo spoilt > ~/tool")
    other = d.create(template="gold", env={"BOTH": "body"}, memory="96M")
    assert sh(d, other, "cat ~/tool; echo $BOTH") == "golden\nbody\n" and other["memory"] == 96 << 20
    d.restart()
    assert d.get("/v1/templates/gold").json == t
    assert sh(d, d.create(template="gold"), "cat ~/tool") == "golden\n"
    plain = d.create(template="gold", checkpoint=None)
    assert plain["checkpoint"] is None and sh(d, plain, "ls ~").split() in ([], ["started"])


def test_a_checkpoint_stays_while_a_template_stands_on_it(d, checkpoints):
    c = golden(d)
    put(d, "gold", checkpoint=c["id"])
    e = error(d.delete(f"/v1/checkpoints/{c['id']}"), 409, "conflict")
    assert "'gold'" in e["message"] and e["remedy"]
    b = d.create(template="gold")
    put(d, "gold", 200, memory="64M")  # stands on nothing now
    assert d.delete(f"/v1/checkpoints/{c['id']}").status == 204
    assert sh(d, b, "cat ~/tool") == "golden\n"  # what came from it stays
    error(d.put("/v1/templates/gold", {"checkpoint": c["id"]}), 404, "not_found")
    error(d.put("/v1/templates/gold", {"checkpoint": 7}), 400, "invalid")


def test_only_the_tenants_own_checkpoints_will_do(d, checkpoints):
    other = as_tenant(d, "gold-t")
    c = golden(d)
    error(other.put("/v1/templates/mine", {"checkpoint": c["id"]}), 404, "not_found")
    error(d.put("/v1/templates/mine?tenant=gold-t", {"checkpoint": c["id"]}), 404, "not_found")
    error(d.put("/v1/templates/mine", {"checkpoint": c["id"], "image": "other"}), 400, "invalid")
    error(d.put("/v1/templates/mine", {"checkpoint": c["id"], "read_only": True}), 400, "invalid")
