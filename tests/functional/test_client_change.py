"""Commands that change or end what is there: kill, extend, rename, port, tenant; and what help and errors say on the way."""
import json
import os
import re

import pytest

import host
from cli import box, daemon, nothing_is_left_behind, ok  # noqa: F401


def test_kill_ends_an_exec_with_all_its_processes(daemon, box, ok):
    x = ok("exec", "-d", "--timeout", "0", box, "--", "sh", "-c", "sleep 998 & sleep 999")
    assert ok("kill", box, x) == x
    assert daemon.get(f"/v1/sandboxes/{box}/execs/{x}").json["signal"] == 9
    # The sandbox stays, and nothing of the exec runs in it.
    assert ok("exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 99' || true") == "0"


def test_kill_sends_a_signal_by_name_or_number(daemon, box, ok):
    for signal in ("USR1", "10"):
        x = ok("exec", "-d", "--timeout", "0", box, "--", "sh", "-c", "trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done")
        host.wait_for(lambda: daemon.get(f"/v1/sandboxes/{box}/execs/{x}/output?stream=stdout").body == b"ready\n", 30)
        assert ok("kill", "-s", signal, box, x) == x
        assert daemon.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=30").json["exit_code"] == 7


def test_kill_without_an_exec_says_what_to_do(daemon, box):
    line = host.one_line(daemon.cli("kill", box))
    assert f"cloche logs --list {box}" in line and f"cloche rm {box}" in line
    assert "no exec" in host.one_line(daemon.cli("kill", box, "nothing"))


def test_exec_in_the_background_says_when_it_ends(daemon, box):
    r = daemon.cli("exec", "-d", "--timeout", "2h", box, "--", "sleep", "999")
    x = r.text.strip()
    at = daemon.get(f"/v1/sandboxes/{box}/execs/{x}").json["ends_at"]
    told = re.search(r"it ends at (\S+);", r.err.decode()).group(1)
    assert r.code == 0 and told[:15] == at[:15] and "--timeout 0" in r.err.decode(), (r, at)
    daemon.post(f"/v1/sandboxes/{box}/pause")
    assert daemon.get(f"/v1/sandboxes/{box}/execs/{x}").json["ends_at"] is None
    daemon.post(f"/v1/sandboxes/{box}/resume")
    r = daemon.cli("exec", "-d", "--timeout", "0", box, "--", "sleep", "999")
    assert r.code == 0 and r.err == b"", r
    assert daemon.get(f"/v1/sandboxes/{box}/execs/{r.text.strip()}").json["ends_at"] is None


def test_extend_and_rename(daemon, box, ok):
    assert ok("extend", box, "2h") == daemon.get(f"/v1/sandboxes/{box}").json["expires_at"]
    assert ok("extend", box, "0") == "never" and daemon.get(f"/v1/sandboxes/{box}").json["expires_at"] is None
    assert ok("rename", box, "other-name") == "other-name"
    assert json.loads(ok("inspect", "other-name"))["id"] == box
    assert "later" in host.one_line(daemon.cli("extend", box, "later"))
    for args in (("extend", box), ("rename", box), ("rename", box, "-", "x"), ("rename", box, "../x"), ("extend", "nobody", "1h")):
        host.one_line(daemon.cli(*args))


def test_update_changes_limits(daemon, box, ok):
    assert ok("update", "--memory", "300M", "--pids", "99", box) == box
    assert (daemon.get(f"/v1/sandboxes/{box}").json["memory"], daemon.get(f"/v1/sandboxes/{box}").json["pids"]) == (300 << 20, 99)
    assert "hibernate" in host.one_line(daemon.cli("update", "--disk", "2G", box))
    for args in ((box,), ("--memory", "1G"), ("--memory", "0", box), ("--image", "host", box)):
        host.one_line(daemon.cli("update", *args))


def test_ports(daemon, box, ok):
    assert ok("port", "ls", box).split() == ["PORT", "PUBLIC", "TOKEN", "PATH", "HOST"]
    path, token = ok("port", "set", "--public", "--new-token", box, "8000").split()
    assert path == f"/v1/sandboxes/{box}/ports/8000/" and len(token) > 20
    assert ok("port", "ls", box).splitlines()[1].split()[:3] == ["8000", "yes", "yes"]
    assert ok("port", "set", "--private", "--no-token", box, "8000") == path
    assert ok("port", "rm", box, "8000") == "8000"
    for args in (("port", "set", box, "8000"), ("port", "set", "--public", box), ("port", "set", "--public", box, "x"), ("port", "rm", box)):
        host.one_line(daemon.cli(*args))


def test_tenants(daemon, ok):
    assert ok("tenant", "create", "--sandboxes", "3", "--memory", "1G", "--cpus", "1.5", "--rate", "100/1s/10s", "acme") == "acme"
    shown = json.loads(ok("tenant", "inspect", "acme"))
    assert shown["quotas"]["sandboxes"] == 3 and shown["quotas"]["memory"] == 1 << 30 and shown["quotas"]["cpus"] == 1.5
    assert shown["rate"] == {"points": 100, "window": 1, "block": 10}
    assert ok("tenant", "set", "--memory", "2G", "--rate", "0", "acme") == "acme"
    shown = json.loads(ok("tenant", "inspect", "acme"))
    assert shown["quotas"]["sandboxes"] == 3 and shown["quotas"]["memory"] == 2 << 30 and shown["rate"] is None
    assert any(line.split()[:4] == ["acme", "0", "of", "3"] for line in ok("tenant", "ls").splitlines())
    assert ok("tenant", "rm", "acme") == "acme" and ok("tenant", "rm", "-f", "acme") == ""
    for args in (("tenant", "set", "default"), ("tenant", "create", "--rate", "100", "x"), ("tenant", "create", "--memory", "much", "x"), ("tenant",)):
        host.one_line(daemon.cli(*args))


def test_more_cpus_than_the_host_has_are_noted(daemon, ok):
    have = len(os.sched_getaffinity(0))
    r = daemon.cli("create", "--cpus", str(have + 6))
    assert r.code == 0 and f"this host has {have}" in r.err.decode(), r
    ok("rm", r.text.strip())
    assert daemon.cli("create", "--cpus", str(have), "--name", "fits").err == b"" and ok("rm", "fits")
    r = host.run("--cpus", str(have + 6), "--", "true")
    assert r.code == 0 and f"this host has {have}" in r.err.decode(), r


def test_help_of_a_command_is_its_own(daemon):
    for words in (["run"], ["serve"], ["create"], ["checkpoint"], ["checkpoint", "export"], ["tenant", "set"]):
        told, own = daemon.cli("help", *words), daemon.cli(*words, "--help")
        assert told.code == 0 and told.out == own.out, told
    assert "usage: cloche COMMAND" in daemon.cli("help").text
    assert "nonsense" in host.one_line(daemon.cli("help", "nonsense"))


@pytest.mark.parametrize("body, near", [({"ttl": 5}, "timeout"), ({"memroy": "1G"}, "memory"), ({"cpu": 1}, "cpus"), ({"labels": {}}, "metadata"), ({"nonsense": 1}, None)])
def test_an_unknown_field_names_the_near_one(daemon, body, near):
    r = daemon.post("/v1/sandboxes", body)
    assert r.status == 400 and r.json["error"]["message"] == f"'{list(body)[0]}': unknown field"
    assert r.json["error"]["remedy"] == (f"did you mean '{near}'?" if near else None)


def test_an_unknown_option_names_the_near_one(daemon):
    assert "did you mean --memory?" in host.one_line(daemon.cli("create", "--memroy", "1G"))


def test_notes_of_a_template_are_for_those_who_ask(daemon, ok):
    """What could not be renewed for its warm process is the same for each sandbox."""
    ok("template", "set", "--warm", "echo ready; exec sleep 999", "--ready", "ready", "noted")
    try:
        plain, asked, answer = (daemon.cli("create", "--template", "noted", *more) for more in ((), ("-v",), ("--json",)))
        assert [r.code for r in (plain, asked, answer)] == [0, 0, 0], (plain, asked, answer)
        assert answer.json["restored"]["memory"] and answer.json["restored"]["not_done"]
        assert plain.err == b"" and b"note: " in asked.err and answer.err == b"", (plain, asked, answer)
    finally:
        daemon.cli("rm", "--all")
        ok("template", "rm", "noted")
