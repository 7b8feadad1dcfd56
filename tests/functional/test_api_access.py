"""Tenants, tokens, scopes, rates, quotas over the API."""
import json
import subprocess
import time

import pytest

from api import As, Raw, WebSocket, as_tenant, d, error, eventually, nothing_is_left_behind, tenant, token  # noqa: F401


SCOPES = ["read", "exec", "sandbox", "admin"]
# Method, path, body, the least scope; the sandbox is not there, which is told only to who may ask.
ROUTES = [
    ("GET", "/v1/whoami", None, "read"), ("GET", "/v1/info", None, "read"), ("GET", "/metrics", None, "admin"),
    ("GET", "/v1/sandboxes", None, "read"), ("GET", "/v1/sandboxes/none", None, "read"), ("GET", "/v1/sandboxes/none/stats", None, "read"),
    ("GET", "/v1/sandboxes/none/execs", None, "read"), ("GET", "/v1/sandboxes/none/execs/x", None, "read"),
    ("GET", "/v1/sandboxes/none/execs/x/wait", None, "read"), ("GET", "/v1/sandboxes/none/execs/x/output", None, "read"),
    ("GET", "/v1/sandboxes/none/events", None, "read"),
    ("POST", "/v1/sandboxes/none/execs", {"cmd": ["true"]}, "exec"), ("DELETE", "/v1/sandboxes/none/execs/x", None, "exec"),
    ("POST", "/v1/sandboxes/none/execs/x/signal", {}, "exec"), ("POST", "/v1/sandboxes/none/execs/x/stdin", b"", "exec"),
    ("POST", "/v1/images/build", {"dockerfile": 1}, "sandbox"), ("POST", "/v1/images/pull", {}, "sandbox"), ("DELETE", "/v1/images/none", None, "sandbox"),
    ("POST", "/v1/run", {"code": 1}, "sandbox"), ("POST", "/v1/sandboxes/none/contexts", {}, "exec"), ("GET", "/v1/sandboxes/none/contexts", None, "read"),
    ("POST", "/v1/sandboxes/none/contexts/python/execute", {"code": ""}, "exec"), ("DELETE", "/v1/sandboxes/none/contexts/x", None, "exec"),
    ("GET", "/v1/sandboxes/none/contexts/x/attach", None, "exec"),
    ("POST", "/v1/sandboxes/none/execs/x/resize", {}, "exec"), ("GET", "/v1/sandboxes/none/execs/x/attach", None, "exec"),
    ("GET", "/v1/sandboxes/none/files?path=/", None, "exec"), ("PUT", "/v1/sandboxes/none/files?path=/a", b"", "exec"),
    ("POST", "/v1/sandboxes/none/files?path=/a&op=mkdir", None, "exec"), ("DELETE", "/v1/sandboxes/none/files?path=/a", None, "exec"),
    ("POST", "/v1/sandboxes", {"memory": True}, "sandbox"), ("PATCH", "/v1/sandboxes/none", {}, "sandbox"),
    ("DELETE", "/v1/sandboxes/none", None, "sandbox"), ("POST", "/v1/sandboxes/none/pause", None, "sandbox"),
    ("POST", "/v1/sandboxes/none/resume", None, "sandbox"), ("POST", "/v1/sandboxes/none/extend", {}, "sandbox"),
    ("GET", "/v1/tokens", None, "sandbox"), ("GET", "/v1/tokens/none", None, "sandbox"),
    ("POST", "/v1/tokens", {"scope": "none"}, "admin"), ("POST", "/v1/tokens/none/rotate", {}, "admin"), ("DELETE", "/v1/tokens/none", None, "admin"),
    ("GET", "/v1/tenants", None, "admin"), ("POST", "/v1/tenants", {"id": ""}, "admin"), ("GET", "/v1/tenants/none", None, "admin"),
    ("PATCH", "/v1/tenants/none", {}, "admin"), ("DELETE", "/v1/tenants/none", None, "admin"),
    ("GET", "/v1/audit?limit=1", None, "admin"), ("GET", "/v1/audit/verify", None, "admin"),
]


def test_every_route_asks_for_its_scope_and_no_more(d):
    tenant(d, "scoped")
    of = {s: As(d, token(d, tenant="scoped", scope=s)["token"]) for s in SCOPES}
    for method, path, body, least in ROUTES:
        for scope in SCOPES:
            r = of[scope].request(method, path, body)
            if SCOPES.index(scope) < SCOPES.index(least):
                error(r, 403, "denied")
            else:
                assert r.status in (200, 400, 404), (scope, method, path, r)
        error(d.request(method, path, body, token=None), 401, "unauthorized")


def test_who_has_no_good_token_stays_outside(d):
    for header in (None, "Bearer", "Bearer ", "Bearer cloche_" + "A" * 43, "Basic abc", d.token, "Bearer " + "x" * 5000):
        r = d.get("/v1/whoami", token=None, headers={"Authorization": header} if header else {})
        error(r, 401, "unauthorized")
        assert r.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/healthz", "/version", "/v1/openapi.json"):
        assert d.get(path, token=None).status == 200


def test_the_unix_socket_knows_root(d):
    me = d.get("/v1/whoami", unix=True)
    assert me.status == 200 and me.json["scope"] == "admin" and me.json["tenant"] == "default", me


def test_a_tenant_is_made_changed_and_removed(d):
    made = d.post("/v1/tenants", {"id": "life", "quotas": {"memory": "1G", "cpus": 1.5}})
    assert made.status == 201 and made.headers["X-Cloche-Audit"], made
    t = made.json
    assert t["quotas"] == {"sandboxes": 0, "cpus": 1.5, "memory": 1 << 30, "disk": 0, "execs": 0, "checkpoints": 0, "checkpoint_bytes": 0, "secrets": 0, "image_bytes": 0, "gpus": 0} and t["rate"] is None
    assert t["used"] == {"sandboxes": 0, "cpus": 0, "memory": 0, "disk": 0, "execs": 0, "checkpoints": 0, "checkpoint_bytes": 0, "secrets": 0, "image_bytes": 0, "gpus": 0}
    error(d.post("/v1/tenants", {"id": "life"}), 409, "conflict")
    changed = d.request("PATCH", "/v1/tenants/life", {"quotas": {"disk": "2G"}, "rate": {"points": 5, "window": "1m", "block": 0.5}})
    assert changed.status == 200, changed
    assert changed.json["quotas"] == {**t["quotas"], "disk": 2 << 30}
    assert changed.json["rate"] == {"points": 5, "window": 60, "block": 0.5}
    assert d.get("/v1/tenants/life").json == changed.json
    assert changed.json in d.get("/v1/tenants").json["tenants"]
    k = token(d, tenant="life")
    gone = d.delete("/v1/tenants/life")
    assert gone.status == 204 and gone.headers["X-Cloche-Audit"]
    error(d.get("/v1/tenants/life"), 404, "not_found")
    error(d.delete("/v1/tenants/life"), 404, "not_found")
    error(d.get("/v1/whoami", token=k["token"]), 401, "unauthorized")
    error(d.get(f"/v1/tokens/{k['id']}"), 404, "not_found")
    error(d.delete("/v1/tenants/default"), 409, "conflict")


@pytest.mark.parametrize("body", [
    {}, {"id": ""}, {"id": "A"}, {"id": "-a"}, {"id": "a" * 33}, {"id": "a/b"}, {"id": 7}, {"id": "a\u202e"}, {"id": "ok", "more": 1}, {"id": "ok", "quotas": 1},
    {"id": "ok", "quotas": {"memory": -1}}, {"id": "ok", "quotas": {"memory": "1Q"}}, {"id": "ok", "quotas": {"ram": 1}}, {"id": "ok", "quotas": {"sandboxes": 1.5}},
    {"id": "ok", "rate": {"points": 1}}, {"id": "ok", "rate": {"points": 1, "window": "1y"}}, {"id": "ok", "rate": []},
])
def test_a_tenant_that_makes_no_sense_is_refused(d, body):
    error(d.post("/v1/tenants", body), 400, "invalid")


@pytest.mark.parametrize("body", [
    {"scope": "root"}, {"scope": 1}, {"name": "x" * 65}, {"name": "a\nb"}, {"expires_in": 0}, {"expires_in": -1}, {"expires_in": "never"}, {"expires_in": 1e12},
    {"rate": {"points": 1}}, {"rate": {"points": 1, "window": 0}}, {"token": "mine"},
])
def test_a_token_that_makes_no_sense_is_refused(d, body):
    error(d.post("/v1/tokens", body), 400, "invalid")
    error(d.post("/v1/tokens", {"tenant": "nobody"}), 404, "not_found")


def test_a_token_is_shown_once(d):
    k = token(d, name="once", scope="read", expires_in="1h")
    assert k["token"].startswith("cloche_") and len(k["token"]) == 50
    seen = d.get(f"/v1/tokens/{k['id']}").json
    assert "token" not in seen and seen == {x: v for x, v in k.items() if x != "token"}
    assert seen in d.get("/v1/tokens").json["tokens"]
    assert d.get("/v1/whoami", token=k["token"]).json["token"] == {"id": k["id"], "name": "once"}
    gone = d.delete(f"/v1/tokens/{k['id']}")
    assert gone.status == 204 and gone.headers["X-Cloche-Audit"]
    error(d.get("/v1/whoami", token=k["token"]), 401, "unauthorized")
    error(d.delete(f"/v1/tokens/{k['id']}"), 404, "not_found")


def test_others_see_their_tenants_tokens_only(d):
    a, b = as_tenant(d, "see-a"), as_tenant(d, "see-b")
    mine = a.get("/v1/tokens").json["tokens"]
    assert [k["tenant"] for k in mine] == ["see-a"] and "token" not in mine[0]
    other = b.get("/v1/tokens").json["tokens"][0]["id"]
    error(a.get(f"/v1/tokens/{other}"), 404, "not_found")
    error(a.get("/v1/tokens?tenant=see-b"), 403, "denied")
    error(a.get("/v1/tokens?tenant=*"), 403, "denied")
    assert {k["tenant"] for k in d.get("/v1/tokens?tenant=see-b").json["tokens"]} == {"see-b"}


def test_a_token_expires(d):
    k = token(d, expires_in=0.4)
    assert k["expires_at"]
    assert d.get("/v1/whoami", token=k["token"]).status == 200
    time.sleep(0.5)
    assert "expired" in error(d.get("/v1/whoami", token=k["token"]), 401, "unauthorized")["message"]


def test_rotation_gives_the_old_one_a_grace(d):
    k = token(d)
    r = d.post(f"/v1/tokens/{k['id']}/rotate", {"grace": 0.6})
    assert r.status == 200 and r.json["id"] == k["id"] and r.json["old_until"], r
    new = r.json["token"]
    assert new != k["token"]
    assert d.get("/v1/whoami", token=new).status == d.get("/v1/whoami", token=k["token"]).status == 200
    time.sleep(0.7)
    error(d.get("/v1/whoami", token=k["token"]), 401, "unauthorized")
    last = d.post(f"/v1/tokens/{k['id']}/rotate").json["token"]
    error(d.get("/v1/whoami", token=new), 401, "unauthorized")
    assert d.get("/v1/whoami", token=last).status == 200
    error(d.post(f"/v1/tokens/{k['id']}/rotate", {"grace": "100d"}), 400, "invalid")
    error(d.post(f"/v1/tokens/{k['id']}/rotate", {"graze": 1}), 400, "invalid")


@pytest.mark.parametrize("how", ["revoke", "rotate", "expire"])
def test_a_token_that_is_no_longer_good_ends_what_goes_on(d, how):
    k = token(d, **({"expires_in": 1.5} if how == "expire" else {}))
    box, seen = d.create()["id"], As(d, k["token"])
    seen.url = d.url
    kept = token(d)
    kept["seen"] = As(d, kept["token"])
    kept["seen"].url = d.url
    with WebSocket(seen, f"/v1/sandboxes/{box}/execs/attach") as shell, WebSocket(kept["seen"], f"/v1/sandboxes/{box}/execs/attach") as other, \
            Raw(seen, "GET", "/v1/events") as told, Raw(seen, "POST", f"/v1/sandboxes/{box}/execs", {"cmd": ["cat"], "stdin_open": True},
                                                       {"Accept": "text/event-stream"}) as stream:
        for ws in (shell, other):
            ws.send(json.dumps({"cmd": ["sh"], "tty": True}))
            ws.send(b"\3echo al''ive\n")
            ws.until(lambda out, *_: b"alive" in out)
        assert told.head()[0] == stream.head()[0] == 200
        if how == "revoke":
            assert d.delete(f"/v1/tokens/{k['id']}").status == 204
        elif how == "rotate":
            assert d.post(f"/v1/tokens/{k['id']}/rotate").status == 200
        shell.all()
        assert shell.closed == 1008
        for raw in (told, stream):
            try:
                assert not list(raw.chunks())[99:]
            except ValueError:
                pass  # cut between two pieces
        # Neither what they ran nor anybody else is concerned.
        other.send(b"\3echo go''on\n")
        other.until(lambda out, *_: b"goon" in out)
        assert [x["state"] for x in d.get(f"/v1/sandboxes/{box}/execs").json["execs"]] == ["running"] * 3
    assert d.delete(f"/v1/sandboxes/{box}").status == 204


def test_a_rate_blocks_and_says_for_how_long(d):
    k = token(d, rate={"points": 3, "window": 60, "block": 2})["token"]
    assert [d.get("/v1/whoami", token=k).status for _ in range(3)] == [200] * 3
    r = d.get("/v1/whoami", token=k)
    error(r, 429, "rate")
    assert 1 <= int(r.headers["Retry-After"]) <= 20
    # A point is back every 20 s, which is longer than the block.
    quick = token(d, rate={"points": 2, "window": 0.2, "block": 0.6})["token"]
    while d.get("/v1/whoami", token=quick).status == 200:
        pass
    error(d.get("/v1/whoami", token=quick), 429, "rate")
    start = time.monotonic()
    assert eventually(lambda: d.get("/v1/whoami", token=quick).status == 200, 3)
    assert time.monotonic() - start > 0.3
    assert d.get("/v1/whoami").status == 200, "others are not concerned"


def test_a_tenants_rate_is_that_of_its_tokens(d):
    a = as_tenant(d, "rated", rate={"points": 2, "window": 60})
    assert [a.get("/v1/whoami").status for _ in range(3)] == [200, 200, 429]
    d.request("PATCH", "/v1/tenants/rated", {"rate": {"points": 0}})
    assert a.get("/v1/whoami").status == 200


@pytest.mark.parametrize("kind,quota,fields", [
    ("sandboxes", 1, {}), ("cpus", 1.5, {"cpus": 1}), ("memory", "100M", {"memory": "64M"}), ("disk", "100M", {"disk": "64M"}),
])
def test_a_quota_holds(d, kind, quota, fields):
    a = as_tenant(d, f"quota-{kind}", quotas={kind: quota})
    first = a.create(**fields)
    e = error(a.post("/v1/sandboxes", fields), 429, "quota")
    assert kind in e["message"] or (kind == "cpus" and "cpu" in e["message"]), e
    error(d.delete(f"/v1/tenants/quota-{kind}"), 409, "conflict")
    assert d.get(f"/v1/tenants/quota-{kind}").json["used"]["sandboxes"] == 1
    assert a.delete(f"/v1/sandboxes/{first['id']}").status == 204
    second = a.create(**fields)
    a.delete(f"/v1/sandboxes/{second['id']}")
    assert d.get(f"/v1/tenants/quota-{kind}").json["used"]["sandboxes"] == 0
    assert d.delete(f"/v1/tenants/quota-{kind}").status == 204


def test_a_quota_of_execs_holds(d):
    a = as_tenant(d, "quota-execs", quotas={"execs": 1})
    box = a.create()["id"]
    x = a.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sleep", "30"], "background": True})
    assert x.status == 201, x
    error(a.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["true"]}), 429, "quota")
    assert a.delete(f"/v1/sandboxes/{box}/execs/{x.json['id']}").status == 200
    assert a.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["true"]}).json["exit_code"] == 0
    a.delete(f"/v1/sandboxes/{box}")


def test_a_tenant_that_goes_while_a_request_comes_in_is_no_longer_served(d):
    """The body of a create arrives when its tenant is gone."""
    a = as_tenant(d, "leaving")
    raw = Raw(d, "POST", "/v1/sandboxes", None, {"Authorization": f"Bearer {a.token}", "Content-Length": "2"})
    time.sleep(0.1)
    assert d.delete("/v1/tenants/leaving").status == 204
    raw.s.sendall(b"{}")
    status, _ = raw.head()
    raw.close()
    assert status == 401
    assert d.get("/healthz").status == 200 and "api" in d.children()


def test_no_token_is_at_rest_anywhere(d):
    k = token(d, name="at-rest")
    rotated = d.post(f"/v1/tokens/{k['id']}/rotate", {"grace": 60}).json["token"]
    files = [p for p in d.data.rglob("*") if p.is_file()]
    assert {"state.db", "audit.log"} <= {p.name for p in files}
    for secret in (k["token"], rotated, d.token):
        for p in files:
            assert secret.encode() not in p.read_bytes(), p
        found = subprocess.run(["sqlite3", str(d.data / "state.db"), "select count(*) from tokens"], capture_output=True, check=False)
        assert found.returncode != 0 or int(found.stdout) > 0


def test_what_was_made_is_there_after_a_crash(d):
    a = as_tenant(d, "kept", quotas={"sandboxes": 7}, rate={"points": 1000, "window": 1, "block": 0})
    before = d.get("/v1/tenants/kept").json
    d.kill9("api")
    assert eventually(lambda: d.children().get("api"))
    assert a.get("/v1/whoami").json["tenant"] == "kept"
    assert d.get("/v1/tenants/kept").json == before
