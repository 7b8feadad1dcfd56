"""Errors have one shape and the status docs/api.md says, wherever they come from."""
import socket

import pytest

from api import Raw, d, error, nothing_is_left_behind, place  # noqa: F401


def send(d, data):
    with socket.create_connection(place(d), timeout=10) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: s.recv(65536), b""))


def test_what_is_not_there(d):
    for path in ("/", "/v1", "/v2/sandboxes", "/v1/sandboxes/a/b/c/d/e", "/v1/sandboxes/none", "/v1/tenants/none", "/v1/tokens/none", "/v1/sandboxes/none/execs/none"):
        error(d.get(path), 404, "not_found")


def test_the_wrong_method_names_the_right_ones(d):
    for method, path, allow in [("PUT", "/v1/sandboxes", "GET, HEAD, POST"), ("POST", "/v1/sandboxes/x", "GET, HEAD, PATCH, DELETE"), ("DELETE", "/healthz", "GET, HEAD"),
                                ("POST", "/v1/audit", "GET, HEAD"), ("PATCH", "/v1/tokens/x", "GET, HEAD, DELETE"), ("GET", "/v1/tokens/x/rotate", "POST"),
                                ("QUERY", "/v1/sandboxes", "GET, HEAD, POST"), ("OPTIONS", "/version", "GET, HEAD")]:
        r = d.request(method, path)
        error(r, 405, "method")
        assert r.headers["Allow"] == allow, (method, path, r.headers["Allow"])


@pytest.mark.parametrize("body", [
    b"{", b"[]", b"1", b'"x"', b"null", b"{}x", b'{"name":"a","name":"b"}', b'{"name":"\xff"}', b'{"name":"\\ud800"}', b'{"memory":NaN}', b'{"memory":01}', b'{"memory":1e999}',
    b'{"name":"a\\u0000b"}', b"{'name':'a'}", b'{"env":' * 33 + b"1" + b"}" * 33, b'{"a":' * 5000, b"\xef\xbb\xbf{}", b'{"memory":1,}',
])
def test_json_is_strict(d, body):
    error(d.post("/v1/sandboxes", body), 400, "invalid")


@pytest.mark.parametrize("body, says", [
    ({"cpus": 0.0001}, "'cpus' must be at least 0.001, or 0 (got 0.0001)"), ({"memory": -1}, "'memory' must be a whole number between 0 and 9e15 (got -1)"),
    ({"pids": 1.5}, "'pids' must be a whole number between 0 and 9e15 (got 1.5)"),
])
def test_a_wrong_number_is_named_with_its_value(d, body, says):
    assert error(d.post("/v1/sandboxes", body), 400, "invalid")["message"] == says


@pytest.mark.parametrize("body, says, near", [
    ({"command": ["true"]}, "'command': unknown field", "did you mean 'cmd'?"), ({"cmd": ["true"], "shell": "true"}, "'cmd' only one of `cmd`, `shell` and `code` may be given", None),
    ({"cmd": []}, "'cmd' must have at least one string, the program", None), ({}, "'cmd' one of `cmd` (an array of strings), `shell` and `code` (strings) is required", None),
])
def test_an_exec_without_one_command_says_what_is_wrong(d, body, says, near):
    box = d.post("/v1/sandboxes", {}).json["id"]
    e = error(d.post(f"/v1/sandboxes/{box}/execs", body), 400, "invalid")
    assert (e["message"].replace("'cmd':", "'cmd'"), e["remedy"]) == (says, near)
    assert d.delete(f"/v1/sandboxes/{box}").status == 204


@pytest.mark.parametrize("path, says, near", [
    ("/v1/sandboxes?status=running", "'status': unknown parameter", "did you mean 'state'?"), ("/v1/sandboxes?sate=running", "'sate': unknown parameter", "did you mean 'state'?"),
    ("/v1/sandboxes?sandbox=a", "'sandbox': unknown parameter", None), ("/v1/checkpoints?nam=a", "'nam': unknown parameter", "did you mean 'name'?"),
])
def test_a_list_does_not_ignore_a_filter_that_it_does_not_have(d, path, says, near):
    e = error(d.get(path), 400, "invalid")
    assert (e["message"], e["remedy"], e["reason"]) == (says, near, "unknown_field")


def test_the_filters_of_lists(d):
    for path in ("/v1/sandboxes?state=running&name=a&metadata.k=v&limit=1&tenant=*", "/v1/checkpoints?sandbox=a&name=b&label=c&metadata.k=v&limit=1"):
        assert d.get(path).status == 200


def test_limits_of_a_run_are_in_limits(d):
    e = error(d.post("/v1/run", {"code": "1", "memory": "1G"}), 400, "invalid")
    assert (e["message"], e["remedy"]) == ("'memory': unknown field", "did you mean 'limits'?")


def test_what_to_do_instead(d):
    box = d.post("/v1/sandboxes", {}).json["id"]
    assert error(d.post(f"/v1/sandboxes/{box}/files?path=x", b"y"), 400, "invalid")["remedy"] == "PUT writes a file"
    assert d.post(f"/v1/sandboxes/{box}/checkpoints", {"name": "a"}).status == 201
    e = error(d.post(f"/v1/sandboxes/{box}/checkpoints", {"name": "a"}), 409, "conflict")
    assert e["remedy"] == "use another name, or delete that checkpoint first"
    assert d.delete(f"/v1/checkpoints/a?sandbox={box}").status == 204 == d.delete(f"/v1/sandboxes/{box}").status


def test_what_is_too_large(d):
    error(d.post("/v1/sandboxes", b" " * (4 << 20) + b"{}"), 413, "too_large")
    error(d.get("/v1/sandboxes/" + "x" * 9000), 414, "too_large")
    error(d.get("/v1/whoami", headers={"X-Long": "x" * 70000}), 431, "too_large")
    error(d.get("/v1/whoami", headers={f"X-{i}": "x" for i in range(150)}), 431, "too_large")


def test_paths_that_try_something(d):
    for path in ("/v1/sandboxes/..%2f..", "/v1/../v1/info", "/v1//info", "/v1/sandboxes/%00", "/v1/sandboxes/%zz", "/v1/sandboxes/a%0ab", "/v1/info?a=%ff", "/v1/info?a=%00"):
        error(d.get(path), 400, "invalid")


@pytest.mark.parametrize("head", [
    b"GET /v1/info HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    b"GET /v1/info HTTP/1.1\r\nHost : x\r\n\r\n", b"GET /v1/info HTTP/9.9\r\nHost: x\r\n\r\n", b"\x00\x01\x02\r\n\r\n", b"GET /v1/info\r\n\r\n", b"GET /v1/info HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
])
def test_requests_that_are_none_are_answered_once_and_closed(d, head):
    answer = send(d, head + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4") or answer.startswith(b"HTTP/1.1 5"), answer
    assert answer.count(b"HTTP/1.1 ") == 1 and b'"code":"' in answer and b'"request_id":"' in answer, answer


def test_the_request_id_is_the_clients_when_it_is_fit(d):
    assert d.get("/healthz", headers={"X-Request-Id": "My.id_-9"}).headers["X-Request-Id"] == "My.id_-9"
    for bad in ("", "a b", "x" * 65, "a\u00fc", "<script>"):
        r = d.get("/v1/nothing", headers={"X-Request-Id": bad.encode().decode("latin-1")})
        assert error(r, 404, "not_found")["request_id"] != bad
    ids = {d.get("/healthz").headers["X-Request-Id"] for _ in range(50)}
    assert len(ids) == 50


def test_the_sandbox_says_no(d):
    b = d.create(memory="64M", disk="1M")["id"]
    at = f"/v1/sandboxes/{b}"
    error(d.get(at + "/files?path=/no/such"), 404, "not_found")
    error(d.get(at + "/files?path=/etc"), 422, "refused")
    error(d.get(at + "/files?path=/dev/null"), 422, "refused")
    error(d.get(at + "/files?path=/etc&op=bogus"), 400, "invalid")
    error(d.request("PUT", at + "/files?path=/tmp/a&op=extract", b"x"), 400, "invalid")
    error(d.delete(at + "/files?path=/tmp&op=stat"), 400, "invalid")
    error(d.get(at + "/files"), 400, "invalid")
    r = d.get(at + "/files?path=/etc/hostname", headers={"Range": "bytes=100000-"})
    error(r, 416, "invalid")
    assert r.headers["Content-Range"].startswith("bytes */"), r.headers
    error(d.request("PUT", at + "/files?path=/tmp/big", b"x" * (3 << 20)), 422, "refused")
    error(d.post(at + "/execs", {"cmd": ["/no"]}), 422, "refused")
    error(d.get(at + "/execs/none"), 404, "not_found")
    error(d.post("/v1/sandboxes", {"isolation": "wasm"}), 501, "unsupported")
    assert d.delete(at).status == 204


def test_no_process_more_than_allowed_is_the_sandboxs_no(d):
    at = f"/v1/sandboxes/{d.create(pids=4)['id']}"
    for _ in range(3):
        assert d.post(at + "/execs", {"cmd": ["sleep", "60"], "background": True}).status == 201
    assert "pids" in error(d.post(at + "/execs", {"cmd": ["true"]}), 422, "refused")["remedy"]
    assert d.delete(at).status == 204


def test_messages_hold_no_control_characters(d):
    for path, body in (("/v1/sandboxes", {"image": "a\x1b[31m\n\u202e"}), ("/v1/sandboxes", {"a\x1b\u202e": 1}), ("/v1/tenants", {"id": "\x1b\u202e"}), ("/v1/tokens", {"scope": "\x1b\u202e"})):
        r = d.post(path, body)
        assert r.status in (400, 404), r
        assert b"\x1b" not in r.body and "\u202e".encode() not in r.body, r


def test_a_head_has_no_body(d):
    r = d.request("HEAD", "/v1/sandboxes")
    assert r.status == 200 and r.body == b"" and int(r.headers["Content-Length"]) > 0
    with Raw(d, "HEAD", "/v1/nothing") as raw:
        assert raw.head()[0] == 404
