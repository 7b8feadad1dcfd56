"""The audit log: one record per change, a chain that verifies, hostile text that stays text."""
import hashlib
import json
import os
import urllib.parse

import pytest

from api import HASH, as_tenant, d, error, nothing_is_left_behind, token  # noqa: F401
from daemon import Daemon

EVIL = "a\nb\r\x1b[31m\x00\u202e\u009b\x7f\"}".replace("\x00", "")


def records(d, query=""):
    found, after = [], 0
    while after is not None:
        page = d.get(f"/v1/audit?after={after}{query}").json
        found += page["records"]
        after = page["next"]
    return found


def test_every_change_has_exactly_one_record_with_its_request(d):
    calls = []

    def call(kind, method, path, body=None, **kw):
        request = f"audit-{len(calls)}"
        r = d.request(method, path, body, headers={"X-Request-Id": request, **kw.pop("headers", {})}, **kw)
        assert r.status < 300, r
        assert r.headers["X-Request-Id"] == request
        assert HASH.match(r.headers["X-Cloche-Audit"]), (kind, dict(r.headers))
        calls.append((request, kind, r.headers["X-Cloche-Audit"]))
        return r.json if r.body else None

    at = "/v1/sandboxes/" + call("sandbox.create", "POST", "/v1/sandboxes", {})["id"]
    call("sandbox.update", "PATCH", at, {"name": "audited"})
    call("sandbox.update", "POST", at + "/extend", {"timeout": 100})
    call("exec.end", "POST", at + "/execs", {"cmd": ["true"]})
    x = call("exec.start", "POST", at + "/execs", {"cmd": ["sleep", "60"], "background": True})["id"]
    call("exec.signal", "POST", f"{at}/execs/{x}/signal", {"signal": "CONT"})
    call("exec.signal", "DELETE", f"{at}/execs/{x}")
    assert "X-Cloche-Audit" not in d.get(f"{at}/execs/{x}/wait").headers
    call("file.write", "PUT", at + "/files?path=/tmp/a", b"x")
    call("file.mkdir", "POST", at + "/files?path=/tmp/b&op=mkdir", {})
    call("file.move", "POST", at + "/files?path=/tmp/a&op=move", {"to": "/tmp/b/c"})
    call("file.remove", "DELETE", at + "/files?path=/tmp/b&recursive=1")
    call("sandbox.pause", "POST", at + "/pause")
    call("sandbox.resume", "POST", at + "/resume")
    call("sandbox.delete", "DELETE", at)
    call("tenant.create", "POST", "/v1/tenants", {"id": "audited"})
    call("tenant.update", "PATCH", "/v1/tenants/audited", {"quotas": {"execs": 3}})
    k = call("token.create", "POST", "/v1/tokens", {"tenant": "audited"})["id"]
    call("token.rotate", "POST", f"/v1/tokens/{k}/rotate", {})
    call("token.revoke", "DELETE", f"/v1/tokens/{k}")
    call("token.create", "POST", "/v1/tokens", {"tenant": "audited"})
    call("tenant.delete", "DELETE", "/v1/tenants/audited")
    all_records = records(d)
    by_seq = {r["seq"]: r for r in all_records}
    for request, kind, head in calls:
        own = [r for r in all_records if r.get("request_id") == request]
        assert [r["kind"] for r in own] == [kind], (request, kind, own)
        seq, digest = head.split(":")
        assert by_seq[int(seq)]["hash"] == digest and own[0]["seq"] <= int(seq)


def test_reading_changes_nothing(d):
    before = d.get("/v1/audit?limit=1").json["head"]
    for path in ("/v1/sandboxes", "/v1/tokens", "/v1/tenants", "/v1/info", "/metrics", "/v1/audit/verify"):
        r = d.get(path)
        assert r.status == 200 and "X-Cloche-Audit" not in r.headers, r
    assert d.get("/v1/audit?limit=1").json["head"] == before


def check_chain(lines):
    prev = "0" * 64
    for number, line in enumerate(lines, 1):
        r = json.loads(line)
        body, end = line.rsplit(b',"hash":"', 1)
        assert end == r["hash"].encode() + b'"}'
        assert r["seq"] == number and r["prev"] == prev, r
        prev = hashlib.sha256(body).hexdigest()
        assert r["hash"] == prev, r
    return prev


def test_the_chain_verifies_by_us_and_by_anybody(d):
    d.delete("/v1/sandboxes/" + d.create()["id"])
    lines = (d.data / "audit.log").read_bytes().splitlines()
    head = check_chain(lines)
    v = d.get("/v1/audit/verify").json
    assert v == {"ok": True, "records": len(lines), "head": {"seq": len(lines), "hash": head}, "error": None}
    stream = d.get("/v1/audit", headers={"Accept": "application/x-ndjson"})
    assert stream.headers["Content-Type"] == "application/x-ndjson" and stream.body.splitlines() == lines
    page = d.get("/v1/audit?after=1&limit=2").json
    assert [r["seq"] for r in page["records"]] == [2, 3] and page["next"] == 3 and page["head"]["hash"] == head
    assert d.get("/v1/audit?limit=2", headers={"Accept": "application/x-ndjson"}).body.splitlines() == lines[:2]
    last = d.get(f"/v1/audit?after={len(lines)}").json
    assert last["records"] == [] and last["next"] is None
    assert {r["kind"] for r in records(d, "&kind=sandbox.create")} == {"sandbox.create"}
    for bad in ("limit=0", "limit=10001", "after=x", "limit=-1"):
        error(d.get("/v1/audit?" + bad), 400, "invalid")


def test_filters_find_what_is_asked_for(d):
    a = as_tenant(d, "filtered")
    box = a.create()["id"]
    a.delete(f"/v1/sandboxes/{box}")
    assert [r["kind"] for r in records(d, f"&sandbox={box}")] == ["sandbox.create", "sandbox.delete"]
    assert {r["tenant"] for r in records(d, "&tenant=filtered")} == {"filtered"}
    assert records(d, f"&sandbox={box}&kind=exec.end") == []


def test_long_logs_are_read_page_by_page_and_as_lines(d):
    box = d.create()["id"]
    for i in range(300):
        assert d.request("PATCH", f"/v1/sandboxes/{box}", {"metadata": {"x": "y" * 4000}}).status == 200
    pages, after = 0, 0
    while after is not None:
        page = d.get(f"/v1/audit?after={after}&limit=100").json
        pages, after = pages + 1, page["next"]
    assert pages >= 3
    d.delete(f"/v1/sandboxes/{box}")
    lines = d.get("/v1/audit", headers={"Accept": "application/x-ndjson"}).body.splitlines()
    check_chain(lines)


def test_hostile_text_is_never_raw(d):
    box = d.create(metadata={EVIL: EVIL}, key=EVIL)["id"]
    d.exec(box, "/bin/echo", EVIL, "\n{\"seq\":1}")
    d.request("PUT", f"/v1/sandboxes/{box}/files?path=" + urllib.parse.quote("/tmp/\u202e\u2066x"), b"")
    error(d.post("/v1/tokens", {"name": EVIL}), 400, "invalid")
    d.get("/v1/whoami", token=None, headers={"Authorization": "Bearer \x1b[31mx"})
    token(d, name="name \u202e with a turn")
    d.delete(f"/v1/sandboxes/{box}")
    raw = (d.data / "audit.log").read_bytes()
    for bad in (b"\x1b", b"\r", b"\x7f", "\u202e".encode(), "\u2066".encode(), "\u009b".encode(), b"\x00"):
        assert bad not in raw, bad
    lines = raw.splitlines()
    check_chain(lines)
    assert any(EVIL in json.loads(x).get("cmd", []) for x in lines), "and nothing is lost"
    for answer in (d.get("/v1/audit?limit=10000"), d.get("/v1/tokens")):
        assert "\u202e".encode() not in answer.body and b"\x1b" not in answer.body


def test_a_flipped_byte_is_told_and_stops_the_start():
    with Daemon() as d:
        d.delete("/v1/sandboxes/" + d.create()["id"])
        d.stop()
        log = d.data / "audit.log"
        data = log.read_bytes()
        place = data.index(b"sandbox.create") + 3
        log.write_bytes(data[:place] + b"X" + data[place + 1:])
        with pytest.raises(AssertionError) as told:
            d.start(seconds=5)
        d.stop()
        assert "audit" in str(told.value) and "record" in str(told.value), told.value
        log.write_bytes(data)
        d.start()
        assert d.get("/v1/audit/verify").json["ok"]
        # While it runs: behind its back.
        data = log.read_bytes()
        log_fd = os.open(log, os.O_WRONLY)
        os.pwrite(log_fd, b"X", place)
        v = d.get("/v1/audit/verify").json
        assert not v["ok"] and "record" in v["error"], v
        os.pwrite(log_fd, data[place:place + 1], place)
        os.close(log_fd)
        assert d.get("/v1/audit/verify").json["ok"]


def test_a_torn_tail_is_cut_and_noted():
    with Daemon() as d:
        d.stop()
        log = d.data / "audit.log"
        with log.open("ab") as f:
            f.write(b'{"seq":9999,"time":"20')
        d.start()
        assert "audit.cut" in [r["kind"] for r in records(d)]
        assert d.get("/v1/audit/verify").json["ok"]
        check_chain(log.read_bytes().splitlines())
