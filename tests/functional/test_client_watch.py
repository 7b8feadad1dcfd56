"""`cloche stats`, `top`, `events`, `audit` and `token`, against a real daemon."""
import json
import subprocess
import time

import host
from cli import Terminal, box, daemon, nothing_is_left_behind  # noqa: F401


def test_stats_and_top(daemon, box):
    daemon.exec(box, "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    r = daemon.cli("stats", box)
    assert r.code == 0 and {line.split()[0] for line in r.text.splitlines()} >= {"cpu", "memory", "processes", "disk"}, r
    assert daemon.cli("stats", "--json", box).json["cpu_ms"] > 0
    table = daemon.cli("top", "--once").text.splitlines()
    assert table[0].split()[:4] == ["SANDBOX", "STATE", "CPU%", "MEMORY"] and any(line.startswith(box) for line in table)
    found = daemon.cli("top", "--json").json
    assert box in {x["id"] for x in found}


def test_top_is_live_and_q_quits(daemon, box):
    x = daemon.post(f"/v1/sandboxes/{box}/execs", {"shell": "while :; do :; done", "background": True}).json["id"]
    with Terminal(daemon, "top", "--interval", "300ms", rows=12, columns=90) as t:
        t.expect("SANDBOX +STATE +CPU%")
        busy = t.expect(rf"{box} +running +(\d\d+\.\d)", 15)
        assert busy
        t.type("q")
        assert t.wait() == 0 and t.restored
        assert b"\x1b[?1049l" in t.seen
    daemon.delete(f"/v1/sandboxes/{box}/execs/{x}")


def test_events_tell_what_happened(daemon):
    name = daemon.create(name="ev")["id"]
    daemon.exec("ev", "true")
    r = daemon.cli("events", "ev")
    assert r.code == 0 and "sandbox.created" in r.text and "exec.ended" in r.text, r
    p = subprocess.Popen([str(host.CLOCHE), "events", "-f", "--json"], stdout=subprocess.PIPE, env=daemon.environment())
    try:
        time.sleep(0.5)
        daemon.delete("/v1/sandboxes/ev")
        end = time.monotonic() + 10
        while True:
            v = json.loads(p.stdout.readline())
            if v["sandbox"] == name and (v.get("kind") or v.get("event")) == "sandbox.deleted":
                break
            assert time.monotonic() < end
    finally:
        host.end(p)


def test_a_reader_that_has_seen_enough_hears_no_complaint(daemon, box):
    with subprocess.Popen(f"'{host.CLOCHE}' events {box} | head -n 1", shell=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=daemon.environment()) as p:
        host.wait_for(lambda: daemon.exec(box, "true") and p.poll() is not None, 20, "the end of it")
        assert b"sandbox.created" in p.stdout.read() and p.stderr.read() == b""


def test_audit_shows_and_verifies(daemon, box):
    daemon.exec(box, "true")
    r = daemon.cli("audit", "--sandbox", box)
    assert r.code == 0 and "sandbox.create" in r.text and "exec.end" in r.text, r
    records = [json.loads(line) for line in daemon.cli("audit", "--json", "--kind", "exec.end").text.splitlines()]
    assert records and all(x["kind"] == "exec.end" for x in records)
    assert daemon.cli("audit", "verify", "--online").code == 0


def test_audit_verify_needs_no_daemon(daemon, box):
    r = daemon.cli("audit", "verify", "--data", daemon.data, env={"CLOCHE_URL": "http://127.0.0.1:1"})
    assert r.code == 0 and r.text.startswith("ok: ") and r.text.count("\n") == 1, r


def test_audit_verify_finds_a_changed_byte(daemon, box, tmp_path):
    log = bytearray((daemon.data / "audit.log").read_bytes())
    log[len(log) // 2] ^= 1
    (tmp_path / "audit.log").write_bytes(log)
    r = daemon.cli("audit", "verify", tmp_path / "audit.log")
    assert r.code == 1 and r.text.startswith("BROKEN: ") and r.text.count("\n") == 1, r
    assert daemon.cli("audit", "verify", "--json", tmp_path / "audit.log").json["ok"] is False
    host.one_line(daemon.cli("audit", "verify", tmp_path / "none"))


def test_audit_verify_finds_a_missing_end_by_a_head_that_was_kept(daemon, box, tmp_path):
    head = daemon.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["true"]}).headers["X-Cloche-Audit"]
    log = tmp_path / "audit.log"
    log.write_bytes((daemon.data / "audit.log").read_bytes())
    assert daemon.cli("audit", "verify", "--head", head, log).code == 0
    r = daemon.cli("audit", "verify", "--head", head[:-1] + ("0" if head[-1] != "0" else "1"), log)
    assert r.code == 1 and "is not the one" in r.text, r
    lines = log.read_bytes().splitlines(True)
    seq = int(head.split(":")[0])
    log.write_bytes(b"".join(lines[:seq - 1]))
    assert daemon.cli("audit", "verify", log).code == 0
    r = daemon.cli("audit", "verify", "--head", head, log)
    assert r.code == 1 and r.text.startswith("BROKEN: ") and "but once contained" in r.text, r
    host.one_line(daemon.cli("audit", "verify", "--head", "1:2", log))


def test_tokens_come_and_go(daemon):
    token = daemon.cli("token", "create", "--name", "ci", "--scope", "read", "--expires", "1h").text.strip()
    assert token.startswith("cloche_")
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": token}).code == 0
    assert "scope" in host.one_line(daemon.cli("create", env={"CLOCHE_TOKEN": token}))
    mine = [t for t in daemon.cli("token", "ls", "--json").json if t["name"] == "ci"]
    assert len(mine) == 1 and token not in json.dumps(mine)
    assert "ci" in daemon.cli("token", "ls").text
    new = daemon.cli("token", "rotate", mine[0]["id"]).text.strip()
    assert new != token
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": token}).code == 125
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": new}).code == 0
    ident = [t for t in daemon.cli("token", "ls", "--json").json if t["name"] == "ci"][0]["id"]
    assert daemon.cli("token", "rm", "--json", ident).json == [ident]
    assert daemon.cli("ls", env={"CLOCHE_TOKEN": new}).code == 125
