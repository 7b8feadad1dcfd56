"""docs/openapi.json is a proper document, is what the daemon serves, and says what its answers look like."""
import json
import re
import shutil
import subprocess

import jsonschema
import pytest

import host
import image_archive as ia
from api import WebSocket, d, nothing_is_left_behind, token  # noqa: F401

DOC = json.loads((host.ROOT / "docs/openapi.json").read_text())
METHODS = {"get", "put", "post", "patch", "delete"}
OPERATIONS = [(path, method, op) for path, item in DOC["paths"].items() for method, op in item.items()]


def find(ref):
    assert ref.startswith("#/"), ref
    at = DOC
    for part in ref[2:].split("/"):
        at = at[part]
    return at


def follow(thing):
    return find(thing["$ref"]) if "$ref" in thing else thing


def walk(thing):
    yield thing
    for child in thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ():
        yield from walk(child)


def generate(tmp_path, change=None):
    """(exit code, stderr) of scripts/openapi.py on a copy of its input, and where the document is."""
    routes, folder, out = tmp_path / "routes.c", tmp_path / "openapi", tmp_path / "out.json"
    shutil.copy(host.ROOT / "src/api/native/routes.c", routes)
    shutil.copytree(host.ROOT / "src/api/native/openapi", folder)
    if change:
        change(routes, folder)
    p = subprocess.run([host.ROOT / "scripts/openapi.py", routes, folder, out], stderr=subprocess.PIPE, text=True, check=False)
    return p.returncode, p.stderr, out


def test_this_document_is_what_the_table_of_routes_yields(tmp_path):
    code, why, out = generate(tmp_path)
    assert code == 0, why
    assert out.read_text() == (host.ROOT / "docs/openapi.json").read_text(), "run scripts/openapi.py"


def edit(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new))


ONE = '\tROUTE(GET, "/v1/pools/{name}", READ, get_pool, 0),\n'


@pytest.mark.parametrize("change, says", [
    (lambda routes, _: edit(routes, ONE, ONE + '\tROUTE(POST, "/v1/pools/{name}", READ, post_pool, 0),\n'), "routes without a description: POST /v1/pools/{name} (post_pool)"),
    (lambda routes, _: edit(routes, ONE, ""), "descriptions without a route: get_pool"),
    (lambda routes, _: edit(routes, ONE, ONE.replace('"/v1', 'PREFIX "/v1')), "routes, of which"),
    (lambda routes, _: edit(routes, ONE, ONE.replace("{name}", "{pool}")), 'no parameter "pool" or "pools_pool" describes {pool}'),
    (lambda routes, _: edit(routes, ONE, ONE.replace(", 0)", ", ROUTE_STREAMS)")), "GET /v1/pools/{name}: the route says ROUTE_STREAMS, the description differs"),
    (lambda _, folder: edit(folder / "pools.json", '"Pool": {', '"Puddle": {'), "#/components/schemas/Pool leads nowhere"),
    (lambda _, folder: edit(folder / "pools.json", '"get_pool": {', '"get_pool": {}, "get_pool": {'), '"get_pool" is there twice'),
])
def test_what_does_not_fit_together_fails_the_build(tmp_path, change, says):
    code, why, out = generate(tmp_path, change)
    assert code == 1 and says in why and not out.exists(), why


def test_the_daemon_serves_this_document(d):
    r = d.get("/v1/openapi.json", token=None)
    assert r.status == 200 and r.headers["Content-Type"] == "application/vnd.oai.openapi+json;version=3.1"
    assert r.json == DOC


def test_every_reference_leads_somewhere_and_nothing_is_unused():
    refs = {x["$ref"] for x in walk(DOC) if isinstance(x, dict) and isinstance(x.get("$ref"), str)}
    for ref in refs:
        find(ref)
    for kind in ("schemas", "responses", "parameters", "headers", "links"):
        for name in DOC["components"][kind]:
            assert f"#/components/{kind}/{name}" in refs, f"{kind}/{name} is not used"


def test_the_document_has_the_shape_of_openapi_3_1():
    assert re.match(r"3\.1\.\d+$", DOC["openapi"]) and DOC["info"]["title"] and DOC["info"]["version"]
    assert set(DOC) <= {"openapi", "info", "servers", "tags", "security", "paths", "components"}
    tags = {t["name"] for t in DOC["tags"]}
    ids = [op["operationId"] for _, _, op in OPERATIONS]
    assert len(ids) == len(set(ids))
    for path, method, op in OPERATIONS:
        assert method in METHODS and path.startswith("/"), (path, method)
        assert set(op) <= {"operationId", "tags", "summary", "description", "parameters", "requestBody", "responses", "security", "x-scope"}, (path, method)
        assert op["responses"] and all(re.match(r"[1-5]\d\d$", s) for s in op["responses"]), (path, method)
        assert set(op["tags"]) <= tags
        given = [follow(p) for p in op.get("parameters", [])]
        for p in given:
            assert p["in"] in ("path", "query", "header") and p["name"] and "schema" in p, (path, method, p)
        assert {p["name"] for p in given if p["in"] == "path"} == set(re.findall(r"{(\w+)}", path)), (path, method)
        assert len({(p["in"], p["name"]) for p in given}) == len(given)
        for scheme in op["security"]:
            assert set(scheme) <= set(DOC["components"]["securitySchemes"])
        for r in map(follow, op["responses"].values()):
            assert r["description"], (path, method)


def test_every_schema_is_one():
    for name, schema in DOC["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert name
    for x in walk(DOC["paths"]):
        if isinstance(x, dict) and isinstance(x.get("schema"), dict):
            jsonschema.Draft202012Validator.check_schema(x["schema"])


def fit(schema, value):
    jsonschema.Draft202012Validator({**schema, "components": DOC["components"]}).validate(value)


class Checked:
    """Calls the daemon and holds question and answer against the document."""

    def __init__(self, d):
        self.d, self.seen = d, set()

    def __call__(self, method, path, of, body=None, want=None, question=True, **kw):
        op = DOC["paths"][of][method]
        if question and body is not None and not isinstance(body, bytes):
            fit(follow(op["requestBody"])["content"]["application/json"]["schema"], body)
        r = self.d.request(method.upper(), path, body, **kw)
        assert str(r.status) in op["responses"], (method, path, r)
        assert want is None or r.status == want, r
        answer = follow(op["responses"][str(r.status)])
        kind = (r.headers["Content-Type"] or "").split(";")[0]
        for name in answer.get("headers", {}):
            if name == "X-Cloche-Audit":
                assert r.headers[name], (method, path, "no " + name)
        if r.body:
            types = {t.split(";")[0] for t in answer["content"]}
            assert kind in types, (method, path, kind)
            if kind == "application/json":
                fit(answer["content"][kind]["schema"], r.json)
        self.seen.add((of, method, r.status))
        return r


@pytest.fixture(scope="module")
def call(d):
    return Checked(d)


SB, EX = "/v1/sandboxes/{id}", "/v1/sandboxes/{id}/execs/{x}"


def test_answers_about_sandboxes_fit(d, call):
    b = call("post", "/v1/sandboxes", "/v1/sandboxes", {"name": "doc", "memory": "64M", "cpus": "0.5", "timeout": "1h", "idle": 100.5, "env": {"A": "b"}, "metadata": {"k": "v"},
             "tmpfs": [{"path": "/t", "size": "1M"}], "network": {"mode": "none"}, "key": "doc"}, 201).json
    call("post", "/v1/sandboxes", "/v1/sandboxes", {"key": "doc"}, 200)
    call("post", "/v1/sandboxes", "/v1/sandboxes", {"name": "doc"}, 409)
    call("post", "/v1/sandboxes", "/v1/sandboxes", {"bad": 1}, 400, question=False)
    call("post", "/v1/sandboxes", "/v1/sandboxes", {"isolation": "wasm"}, 501, question=False)
    call("post", "/v1/sandboxes", "/v1/sandboxes", {}, 401, token="cloche_nothing")
    at = f"/v1/sandboxes/{b['id']}"
    call("get", "/v1/sandboxes?limit=1", "/v1/sandboxes", want=200)
    call("get", "/v1/sandboxes?limit=0", "/v1/sandboxes", want=400)
    call("get", at, SB, want=200)
    call("get", at + "/network", SB + "/network", want=200)
    call("get", at + "/network?why", SB + "/network", want=200)
    call("put", at + "/network", SB + "/network", {"mode": "none", "budget": {"bytes_out": "10M"}}, 200)
    call("put", at + "/network", SB + "/network", {"allow": ["no name"]}, 400, question=False)
    call("patch", at, SB, {"name": "doc2", "timeout": 50}, 200)
    call("post", at + "/extend", SB + "/extend", {"timeout": "1m"}, 200)
    call("post", at + "/pause", SB + "/pause", want=200)
    call("post", at + "/execs", SB + "/execs", {"cmd": ["true"]}, 409)
    call("post", at + "/resume", SB + "/resume", want=200)
    call("post", at + "/start", SB + "/start", want=200)
    call("post", at + "/stop", SB + "/stop", want=409)
    call("get", at + "/stats", SB + "/stats", want=200)
    call("post", at + "/hibernate", SB + "/hibernate", {"memory": "auto"}, 200)
    call("get", at + "/stats", SB + "/stats", want=200)
    call("patch", at, SB, {"idle": {"pause": 10, "hibernate": "1h"}}, 200)
    call("post", at + "/hibernate", SB + "/hibernate", {"memory": False}, 400, question=False)
    call("delete", at, SB, want=204)
    call("get", at, SB, want=404)


def test_answers_about_execs_and_files_fit(d, call):
    b = d.create()["id"]
    at = f"/v1/sandboxes/{b}"
    call("post", at + "/execs", SB + "/execs", {"shell": "echo a; exit 2", "timeout": 5, "user": "root"}, 200)
    call("post", at + "/execs", SB + "/execs", {"cmd": ["sleep", "9"], "timeout": 0.2, "encoding": "base64"}, 200)
    call("post", at + "/execs", SB + "/execs", {"cmd": ["/no"]}, 422)
    call("post", at + "/execs", SB + "/execs", {"cmd": ["a"], "shell": "b"}, 400, question=False)
    x = call("post", at + "/execs", SB + "/execs", {"cmd": ["cat"], "background": True, "stdin_open": True}, 201).json["id"]
    run = f"{at}/execs/{x}"
    call("get", run, EX, want=200)
    call("get", run + "/wait?timeout=0.05", EX + "/wait", want=200)
    call("post", run + "/stdin", EX + "/stdin", b"hi", 204)
    call("get", run + "/output", EX + "/output", want=200)
    call("post", run + "/signal", EX + "/signal", {"signal": "CONT", "scope": "process"}, 204)
    call("post", run + "/resize", EX + "/resize", {"rows": 1, "cols": 1}, 409)
    call("delete", run, EX, want=200)
    call("get", at + "/execs", SB + "/execs", want=200)
    call("get", run + "/attach", EX + "/attach", want=400)
    call("get", at + "/execs/attach", SB + "/execs/attach", want=400)
    with WebSocket(d, at + "/execs/attach") as w:
        assert str(w.status) in DOC["paths"][SB + "/execs/attach"]["get"]["responses"]
    files = SB + "/files"
    call("put", at + "/files?path=/tmp/a&mode=0600", files, b"text", 200)
    call("get", at + "/files?path=/tmp/a", files, want=200)
    call("get", at + "/files?path=/tmp/a", files, want=206, headers={"Range": "bytes=0-1"})
    call("get", at + "/files?path=/tmp/a&op=stat", files, want=200)
    call("get", at + "/files?path=/tmp&op=list", files, want=200)
    tar = call("get", at + "/files?path=/tmp&op=archive", files, want=200).body
    call("post", at + "/files?path=/tmp/c&op=extract", files, tar, 200)
    call("post", at + "/files?path=/tmp/b&op=mkdir", files, want=200)
    call("post", at + "/files?path=/tmp/a&op=move", files, {"to": "/tmp/b/a"}, 200)
    call("delete", at + "/files?path=/tmp/b&recursive=1", files, want=204)
    call("get", at + "/files?path=/no", files, want=404)
    d.delete(at)


def test_answers_about_contexts_fit(d, call):
    b = d.create()["id"]
    at, every = f"/v1/sandboxes/{b}/contexts", SB + "/contexts"
    of = every + "/{context}"
    c = call("post", at, every, {"language": "python", "cwd": "/tmp", "env": {"A": "b", "C": None}, "restrict": {"imports": ["os"]}, "output_limit": "1M"}, 201).json["id"]
    call("post", at, every, {"language": "cobol"}, 400, question=False)
    call("get", at, every, want=200)
    call("get", f"{at}/{c}", of, want=200)
    call("get", f"{at}/none", of, want=404)
    call("post", f"{at}/{c}/execute", of + "/execute", {"code": "print(1)\n[1]", "timeout": 60, "env": {"A": None}}, 200)
    call("post", f"{at}/{c}/execute", of + "/execute", {"code": "1 +"}, 200)
    call("post", f"{at}/shell/execute", of + "/execute", {"code": "echo a"}, 200)
    call("post", f"{at}/{c}/execute", of + "/execute", {}, 400, question=False)
    call("post", f"{at}/{c}/complete", of + "/complete", {"code": "pri", "cursor": 3}, 200)
    call("post", f"{at}/{c}/is_complete", of + "/is_complete", {"code": "if 1:"}, 200)
    call("post", f"{at}/{c}/inspect", of + "/inspect", {"code": "print", "detail": 1}, 200)
    call("get", f"{at}/{c}/history?last=1", of + "/history", want=200)
    call("post", f"{at}/{c}/interrupt", of + "/interrupt", want=200)
    call("post", f"{at}/{c}/restart", of + "/restart", want=200)
    call("delete", f"{at}/{c}", of, want=204)
    d.delete(f"/v1/sandboxes/{b}")


def test_answers_of_a_run_fit(d, call):
    at = "/v1/run"
    call("post", at, at, {"code": "open('a.png', 'w').write(X)\n[1]", "files": {"b/c": "d", "e": {"base64": "AAAA"}}, "artifacts": ["*.png"],
                          "env": {"X": "y", "Z": None}, "limits": {"memory": "256M", "cpus": 1}, "timeout": "30s", "network": "none"}, 200)
    call("post", at, at, {"language": "bash", "code": "exit 3", "artifacts": True}, 200)
    call("post", at, at, {"language": "cobol", "code": ""}, 400, question=False)
    call("post", at, at, {"code": "1", "image": "none-such"}, 404)
    call("post", at, at, {"code": "1", "packages": ["cloche-sample>=1"]}, 403)


def test_answers_about_templates_and_pools_fit(d, call):
    one, every = "/v1/templates/{name}", "/v1/templates"
    call("put", "/v1/templates/doc", one, {"memory": "64M", "env": {"A": "b"}, "start": {"shell": "sleep 100"}, "description": "x", "network": "none"}, 201)
    call("put", "/v1/templates/doc", one, {"memory": "80M"}, 200)
    call("put", "/v1/templates/doc-context", one, {"warm": {"context": "python", "timeout": 90}}, 201)
    call("delete", "/v1/templates/doc-context", one, want=204)
    call("put", "/v1/templates/doc", one, {"name": "no"}, 400, question=False)
    call("put", "/v1/templates/doc", one, {"image": "none-such"}, 404)
    call("get", "/v1/templates/doc", one, want=200)
    call("get", every, every, want=200)
    pool, pools = "/v1/pools/{name}", "/v1/pools"
    call("put", "/v1/pools/doc", pool, {"template": "doc", "min": 1, "max": 4}, 201)
    call("put", "/v1/pools/doc", pool, {"template": "doc", "min": 2}, 200)
    call("put", "/v1/pools/doc", pool, {"template": "none", "min": 2}, 404)
    call("put", "/v1/pools/doc", pool, {"template": "doc", "min": 300}, 400, question=False)
    call("get", "/v1/pools/doc", pool, want=200)
    call("get", pools, pools, want=200)
    b = call("post", "/v1/sandboxes", "/v1/sandboxes", {"template": "doc"}, 201).json
    call("get", "/v1/pools/no", pool, want=404)
    call("delete", "/v1/templates/doc", one, want=409)
    call("delete", "/v1/pools/doc", pool, want=204)
    call("delete", "/v1/templates/doc", one, want=204)
    call("get", "/v1/templates/doc", one, want=404)
    d.delete(f"/v1/sandboxes/{b['id']}")


def test_answers_about_checkpoints_fit(d, call):
    b = d.create(name="cp")["id"]
    at, of = f"/v1/sandboxes/{b}", "/v1/checkpoints/{c}"
    c = call("post", at + "/checkpoints", SB + "/checkpoints", {"name": "n", "label": "l", "metadata": {"a": "b"}, "memory": False}, 201).json["id"]
    call("post", at + "/checkpoints", SB + "/checkpoints", {"name": "n"}, 409)
    call("post", at + "/checkpoints", SB + "/checkpoints", {"name": "/"}, 400, question=False)
    call("get", at + "/checkpoints", SB + "/checkpoints", want=200)
    call("get", "/v1/checkpoints?sandbox=cp&limit=5", "/v1/checkpoints", want=200)
    call("get", f"/v1/checkpoints/{c}", of, want=200)
    call("patch", "/v1/checkpoints/n?sandbox=cp", of, {"label": "x"}, 200)
    call("post", f"/v1/checkpoints/{c}/restore", of + "/restore", {"count": 2, "env": {"A": "b"}}, 201)
    d.request("PUT", f"{at}/files?path=f", b"text")
    call("get", f"{at}/diff?text=1", SB + "/diff", want=200)
    call("get", f"{at}/diff?from=nothing", SB + "/diff", want=400)
    call("get", f"/v1/checkpoints/{c}/diff?from=sandbox:{b}", of + "/diff", want=200)
    f = d.post(f"{at}/fork", {"memory": False}).json["sandboxes"][0]["id"]
    call("post", f"{at}/promote", SB + "/promote", {"from": f, "force": False}, 200)
    call("post", f"{at}/promote", SB + "/promote", {"from": b}, 409)
    d.delete(f"/v1/sandboxes/{f}")
    data = call("get", f"/v1/checkpoints/{c}/export", of + "/export", want=200).body
    call("post", "/v1/checkpoints/import?name=again", "/v1/checkpoints/import", data, 201)
    call("post", "/v1/checkpoints/import", "/v1/checkpoints/import", data[:-1], 422)
    call("post", f"/v1/checkpoints/{c}/restore", of + "/restore", {"count": 0}, 400, question=False)
    call("post", at + "/restore", SB + "/restore", {"checkpoint": "n"}, 200)
    call("post", at + "/restore", SB + "/restore", {"checkpoint": c, "as": "cp2"}, 201)
    call("post", at + "/fork", SB + "/fork", {"count": 2, "memory": False}, 201)
    call("post", "/v1/sandboxes", "/v1/sandboxes", {"checkpoint": c}, 201)
    call("delete", f"/v1/checkpoints/{c}", of, want=204)
    call("get", f"/v1/checkpoints/{c}", of, want=404)
    for x in d.get("/v1/sandboxes").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{x['id']}")


def test_answers_about_secrets_fit(d, call):
    one, every = "/v1/secrets/{name}", "/v1/secrets"
    call("put", "/v1/secrets/DOC", one, {"value": "a value", "description": "x"}, 201)
    call("put", "/v1/secrets/DOC", one, {"value_base64": "YW5vdGhlcg=="}, 200)
    call("put", "/v1/secrets/DOC", one, {"value": "no"}, 400, question=False)
    call("get", "/v1/secrets/DOC", one, want=200)
    call("get", every, every, want=200)
    box = call("post", "/v1/sandboxes", "/v1/sandboxes", {"secrets": [{"name": "DOC", "as": "file"}, {"name": "DOC", "as": "env", "env": "D"}]}, 201).json["id"]
    call("post", f"/v1/sandboxes/{box}/fork", SB + "/fork", {"memory": False, "secrets": "drop"}, 201)
    call("delete", "/v1/secrets/DOC", one, want=204)
    call("get", "/v1/secrets/DOC", one, want=404)
    call("post", "/v1/sandboxes", "/v1/sandboxes", {"secrets": [{"name": "DOC", "as": "file"}]}, 404)
    for x in d.get("/v1/sandboxes").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{x['id']}")


def test_answers_about_access_audit_and_the_daemon_fit(d, call):
    call("post", "/v1/tenants", "/v1/tenants", {"id": "doc", "quotas": {"memory": "1G", "cpus": 2.5}, "rate": {"points": 100, "window": "1m", "block": 0.5}}, 201)
    call("post", "/v1/tenants", "/v1/tenants", {"id": "doc"}, 409)
    call("get", "/v1/tenants", "/v1/tenants", want=200)
    call("get", "/v1/tenants/doc", "/v1/tenants/{t}", want=200)
    call("patch", "/v1/tenants/doc", "/v1/tenants/{t}", {"rate": {"points": 0}}, 200)
    k = call("post", "/v1/tokens", "/v1/tokens", {"tenant": "doc", "scope": "read", "expires_in": "1d", "rate": {"points": 1, "window": 60}}, 201).json
    call("get", "/v1/whoami", "/v1/whoami", want=200, token=k["token"])
    call("get", "/v1/whoami", "/v1/whoami", want=429, token=k["token"])
    call("get", "/v1/tokens", "/v1/tokens", want=200)
    call("get", f"/v1/tokens/{k['id']}", "/v1/tokens/{k}", want=200)
    call("post", f"/v1/tokens/{k['id']}/rotate", "/v1/tokens/{k}/rotate", {"grace": 10}, 200)
    call("delete", f"/v1/tokens/{k['id']}", "/v1/tokens/{k}", want=204)
    call("get", "/v1/tenants", "/v1/tenants", want=403, token=token(d, scope="sandbox")["token"])
    call("delete", "/v1/tenants/doc", "/v1/tenants/{t}", want=204)
    call("delete", "/v1/tenants/default", "/v1/tenants/{t}", want=409)
    call("get", "/v1/audit?limit=10", "/v1/audit", want=200)
    lines = call("get", "/v1/audit", "/v1/audit", want=200, headers={"Accept": "application/x-ndjson"}).body.splitlines()
    for line in lines:
        fit({"$ref": "#/components/schemas/AuditRecord"}, json.loads(line))
    call("get", "/v1/audit/verify", "/v1/audit/verify", want=200)
    for path in ("/healthz", "/version", "/v1/openapi.json", "/v1/whoami", "/v1/info", "/metrics"):
        call("get", path, path, want=200)


def test_answers_about_ports_fit(d, call):
    b = d.create()["id"]
    at, of = f"/v1/sandboxes/{b}/ports", SB + "/ports"
    call("put", at + "/8000", of + "/{port}", {"public": True, "token": True}, 200)
    call("put", at + "/8000", of + "/{port}", {"public": 1}, 400, question=False)
    call("put", at + "/0", of + "/{port}", {}, 400)
    call("get", at + "/8000", of + "/{port}", want=200)
    call("get", at + "/8001", of + "/{port}", want=200)
    call("get", at, of, want=200)
    call("get", f"/v1/sandboxes/{b}/tunnels/8000", SB + "/tunnels/{port}", want=400)
    call("delete", at + "/8000", of + "/{port}", want=204)
    d.delete(f"/v1/sandboxes/{b}")


def test_answers_about_images_and_operations_fit(d, call):
    every, one = "/v1/images", "/v1/images/{image}"
    octets = {"Content-Type": "application/octet-stream"}
    made = call("post", "/v1/images/import?name=doc:1", "/v1/images/import", ia.docker([ia.rootfs()]), 201, headers=octets)
    operation = made.headers["X-Cloche-Operation"]
    call("post", "/v1/images/import?name=doc:2", "/v1/images/import", b"no archive", 422, headers=octets)
    call("get", every, every, want=200)
    call("get", "/v1/images/doc:1", one, want=200)
    call("get", "/v1/images/none:1", one, want=404)
    call("patch", "/v1/images/doc:1", one, {"public": True}, 200)
    call("post", "/v1/images/doc:1/tag", one + "/tag", {"name": "doc:3"}, 201)
    call("get", "/v1/images/doc:1/export", one + "/export", want=200)
    call("get", "/v1/images/doc:1/outdated", one + "/outdated")
    call("post", "/v1/images/doc:1/outdated", one + "/outdated", {"username": "anna", "password": "hush"})
    call("post", "/v1/images/pull", "/v1/images/pull", {"name": "registry.invalid/doc:1", "background": True}, 202)
    call("post", "/v1/images/pull", "/v1/images/pull", {"name": "Doc"}, 400, question=False)
    head = json.dumps({"dockerfile": "FROM doc:1\nENV A=1\n", "context": False, "tags": ["doc:4"]}).encode() + b"\n"
    call("post", "/v1/images/build", "/v1/images/build", head, 200)
    call("delete", "/v1/images/build/cache", "/v1/images/build/cache", want=200)
    box = call("post", "/v1/sandboxes", "/v1/sandboxes", {"image": "doc:1"}, 201).json["id"]
    call("post", f"/v1/sandboxes/{box}/commit", SB + "/commit", {"name": "doc:5"}, 201)
    saved = d.post(f"/v1/sandboxes/{box}/checkpoints", {}).json["id"]
    call("post", f"/v1/checkpoints/{saved}/commit", "/v1/checkpoints/{c}/commit", {"name": "doc:6"}, 201)
    d.delete(f"/v1/checkpoints/{saved}")
    d.delete(f"/v1/sandboxes/{box}")
    call("get", "/v1/operations", "/v1/operations", want=200)
    call("get", f"/v1/operations/{operation}", "/v1/operations/{o}", want=200)
    call("get", f"/v1/operations/{operation}/events", "/v1/operations/{o}/events", want=200)
    call("delete", f"/v1/operations/{operation}", "/v1/operations/{o}", want=409)
    for x in d.get(every).json["images"]:
        call("delete", "/v1/images/" + x["name"].replace("/", "+"), one, want=204)
    call("post", "/v1/images/prune", "/v1/images/prune", want=200)
    call("get", "/v1/images/usage?tenant=*", "/v1/images/usage", want=200)


def test_nearly_every_operation_was_tried(call):
    """Streams of events without an end are test_api_sandboxes.py's and test_watch.py's, the WebSocket of contexts has its own tests."""
    missing = {(p, m) for p, m, _ in OPERATIONS} - {(p, m) for p, m, _ in call.seen}
    assert missing == {("/v1/events", "get"), (SB + "/events", "get"), (SB + "/contexts/{context}/attach", "get")}, missing
