"""The same status has many causes: each refusal says which, in a word for programs (docs/errors.md)."""
import json

from api import d, error, nothing_is_left_behind  # noqa: F401


def why(answer, status, code, reason):
    e = error(answer, status, code)
    assert e["reason"] == reason, e
    return e


def sse(answer):
    return [(kind.split(": ", 1)[1], json.loads(data.split(": ", 1)[1]))
            for kind, data in (event.split("\n")[:2] for event in answer.body.decode().strip().split("\n\n") if event.startswith("event:"))]


def test_of_commands(d):
    b = d.create()["id"]
    run = f"/v1/sandboxes/{b}/execs"
    made = d.post(run, {"shell": "mkdir shut && chmod 0 shut && echo hi > plain && printf '\\1\\2' > odd && chmod +x odd && "
                                 "printf '#!/no/such\\n' > script && chmod +x script"}).json
    assert made["exit_code"] == 0, made
    for body, reason in [
            ({"cmd": ["/no/such/program"]}, "program_missing"), ({"cmd": ["nosuch"]}, "program_missing"), ({"cmd": ["./script"]}, "program_missing"),
            ({"cmd": ["./plain/x"]}, "program_missing"), ({"cmd": ["./plain"]}, "not_executable"), ({"cmd": ["/usr"]}, "not_executable"),
            ({"cmd": ["./odd"]}, "not_a_program"), ({"cmd": ["true"], "cwd": "/no/such"}, "folder_missing"),
            ({"cmd": ["true"], "cwd": "plain"}, "not_a_folder"), ({"cmd": ["true"], "cwd": "shut/x"}, "folder_permission"),
            ({"cmd": ["true"], "user": "nobody2"}, "user_unknown"), ({"cmd": ["true"], "user": "user:nobody2"}, "group_unknown")]:
        why(d.post(run, body), 422, "refused", reason)
        events = sse(d.post(run, body, headers={"Accept": "text/event-stream"}))
        assert [e[0] for e in events][-1:] == ["error"] and events[-1][1]["reason"] == reason, events
    why(d.post(run, {"cmd": ["echo", "x" * (1 << 17)]}), 413, "too_large", "argument_too_long")
    why(d.post(run, {"cmd": ["echo", 1]}), 400, "invalid", "bad_field")
    why(d.post(run, {"command": ["echo"]}), 400, "invalid", "unknown_field")
    why(d.post(run, b"{"), 400, "invalid", "bad_json")
    x = d.post(run, {"cmd": ["true"], "background": True}).json["id"]
    assert d.get(f"{run}/{x}/wait").json["state"] == "ended"
    why(d.post(f"{run}/{x}/signal", {"signal": "TERM"}), 409, "conflict", "ended")
    why(d.get(f"{run}/nosuch"), 404, "not_found", "exec_missing")
    r = d.cli("exec", b, "--", "/no/such/program")
    assert r.code == 127 and b"/no/such/program" in r.err, r
    assert d.post(f"/v1/sandboxes/{b}/pause").status == 200
    why(d.post(run, {"cmd": ["true"]}), 409, "conflict", "sandbox_paused")
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_of_files(d):
    b = d.create(disk="16M")["id"]
    files = f"/v1/sandboxes/{b}/files"
    d.post(f"/v1/sandboxes/{b}/execs", {"shell": "mkdir -p full/x && mkfifo pipe && ln -s loop loop && echo > f && mkdir /work/shut; "
                                                 "echo > secret && chmod 0 secret"})
    for method, query, status, code, reason in [
            ("GET", "path=none", 404, "not_found", "file_missing"), ("GET", "path=full", 422, "refused", "is_a_folder"),
            ("GET", "path=f/x", 422, "refused", "not_a_folder"), ("GET", "path=pipe", 422, "refused", "not_a_file"),
            ("GET", "path=loop", 422, "refused", "link_loop"), ("GET", "path=secret", 403, "denied", "permission"),
            ("GET", "path=" + "x" * 300, 422, "refused", "name_too_long"), ("DELETE", "path=full", 409, "conflict", "folder_not_empty"),
            ("PUT", "path=full", 422, "refused", "is_a_folder"), ("PUT", "path=/etc/x", 403, "denied", "permission"),
            ("PUT", "path=/proc/x", 422, "refused", None)]:
        r = d.request(method, f"{files}?{query}", b"x" if method == "PUT" else None)
        if reason:
            why(r, status, code, reason)
        else:
            assert r.status >= 400, r
    why(d.request("PUT", f"{files}?path=big", b"x" * (17 << 20)), 422, "refused", "disk_full")
    r = d.request("GET", f"{files}?path=f", headers={"Range": "bytes=100-"})
    why(r, 416, "invalid", "bad_range")
    why(d.post(f"{files}?path=t&op=extract", b"no archive at all"), 400, "invalid", "bad_request")
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_of_the_rest(d):
    b = d.create(name="reasons")["id"]
    why(d.post("/v1/sandboxes", {"name": "reasons"}), 409, "conflict", "name_taken")
    why(d.post("/v1/sandboxes", {"image": "nosuch/image"}), 404, "not_found", "image_missing")
    why(d.post("/v1/sandboxes", {"template": "nosuch"}), 404, "not_found", "template_missing")
    why(d.post("/v1/sandboxes", {"network": {"allow": ["@nosuch"]}}), 404, "not_found", "network_set_missing")
    why(d.get("/v1/sandboxes/nosuch"), 404, "not_found", "sandbox_missing")
    why(d.get("/v1/checkpoints/nosuch"), 404, "not_found", "checkpoint_missing")
    why(d.get("/v1/pools/nosuch"), 404, "not_found", "pool_missing")
    why(d.get("/v1/secrets/nosuch"), 404, "not_found", "secret_missing")
    why(d.get("/v1/operations/nosuch"), 404, "not_found", "operation_missing")
    why(d.get("/v1/tenants/nosuch"), 404, "not_found", "tenant_missing")
    why(d.get("/v1/nosuch"), 404, "not_found", "path_unknown")
    why(d.post(f"/v1/sandboxes/{b}/stop"), 409, "conflict", "files_in_memory")
    why(d.request("GET", "/v1/sandboxes", token="cloche_" + "x" * 43), 401, "unauthorized", "token_invalid")
    why(d.request("PUT", "/v1/sandboxes"), 405, "method", "method")
    one = d.post("/v1/tenants", {"id": "small", "quotas": {"sandboxes": 1}})
    assert one.status == 201, one
    token = d.post("/v1/tokens", {"tenant": "small", "scope": "sandbox"}).json["token"]
    assert d.request("POST", "/v1/sandboxes", {"name": "only"}, token=token).status == 201
    why(d.request("POST", "/v1/sandboxes", {}, token=token), 429, "quota", "quota")
    why(d.request("GET", "/v1/tenants", token=token), 403, "denied", "scope_too_small")
    why(d.get("/v1/sandboxes/reasons/ports/99999"), 400, "invalid", "bad_request")
    why(d.request("GET", f"/v1/sandboxes/{b}/ports/4999/"), 502, "lost", "port_closed")
    assert d.delete(f"/v1/sandboxes/{b}").status == 204
