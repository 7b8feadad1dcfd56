"""`cloche template` and `cloche pool`, against a real daemon."""
import json

import pytest

import host
from cli import Terminal, daemon, nothing_is_left_behind, ok  # noqa: F401


@pytest.fixture(autouse=True)
def clean(daemon):
    yield
    for noun in ("pool", "template"):
        for one in json.loads(daemon.cli(noun, "ls", "--json").text):
            daemon.cli(noun, "rm", one["name"])
    daemon.cli("rm", "--all")
    for c in json.loads(daemon.cli("checkpoint", "ls", "--json").text):
        daemon.cli("checkpoint", "rm", c["id"])


def test_a_template_says_what_a_create_gets(daemon, ok):
    assert ok("template", "set", "--memory", "64M", "--cpus", "0.5", "-e", "COLOUR=red", "--meta", "team=x", "--idle", "1h", "--description", "a tool", "tool") == ""
    shown = json.loads(ok("template", "inspect", "tool"))
    assert shown["description"] == "a tool" and shown["config"]["memory"] == 64 << 20 and shown["version"] == 1 and shown["warm"] is None
    ok("create", "--template", "tool", "--name", "t1", "-e", "SIZE=big")
    info = json.loads(ok("inspect", "t1"))
    assert info["memory"] == 64 << 20 and info["cpus"] == 0.5 and info["metadata"] == {"team": "x"} and info["template"] == "tool"
    assert ok("exec", "t1", "--", "sh", "-c", "echo $COLOUR $SIZE") == "red big"
    assert json.loads(ok("template", "set", "--json", "--memory", "96M", "tool"))["version"] == 2
    lines = ok("template", "ls").splitlines()
    assert lines[0].split() == ["NAME", "VERSION", "IMAGE", "ISOLATION", "CHECKPOINT", "WARM", "UPDATED", "DESCRIPTION"] and lines[1].split()[:4] == ["tool", "2", "host", "container"]
    assert ok("template", "rm", "tool") == "tool"
    assert "tool" in host.one_line(daemon.cli("template", "rm", "tool"))
    assert ok("template", "rm", "-f", "tool") == "" and ok("exec", "t1", "--", "echo", "alive") == "alive"
    host.one_line(daemon.cli("create", "--template", "tool"))


def test_one_that_begins_with_a_checkpoint_and_starts_something(daemon, ok):
    ok("create", "--name", "base")
    ok("exec", "base", "--", "sh", "-c", "echo one > data")
    ident = ok("checkpoint", "base", "golden")
    ok("template", "set", "--checkpoint", "base:golden", "--start", "echo begun > /tmp/begun", "worker")
    assert json.loads(ok("template", "inspect", "worker"))["checkpoint"] == ident
    ok("create", "--template", "worker", "--name", "w")
    assert ok("exec", "w", "--", "sh", "-c", "cat data; until cat /tmp/begun 2>/dev/null; do sleep 0.01; done") == "one\nbegun"
    assert "worker" in host.one_line(daemon.cli("checkpoint", "rm", ident))


def test_a_pool_serves_ready_ones(daemon, ok):
    ok("template", "set", "--memory", "64M", "small")
    assert json.loads(ok("pool", "set", "--json", "--template", "small", "--min", "2", "--max", "9", "ready"))["min"] == 2
    host.wait_for(lambda: json.loads(ok("pool", "inspect", "ready"))["ready"] == 2, 20, "ready ones")
    taken = json.loads(ok("create", "--json", "--template", "small", "--name", "mine"))
    assert taken["pooled"] is True and taken["name"] == "mine"
    assert json.loads(ok("create", "--json", "--template", "small", "--memory", "96M"))["pooled"] is False
    lines = ok("pool", "ls").splitlines()
    assert lines[0].split()[:9] == ["NAME", "TEMPLATE", "MIN", "MAX", "READY", "ALIVE", "SERVED", "MISSED", "FAILED"]
    assert lines[1].split()[:4] == ["ready", "small", "2", "9"] and lines[1].split()[6] == "1"
    assert "ready" in host.one_line(daemon.cli("template", "rm", "small"))
    assert ok("pool", "rm", "ready") == "ready" and ok("exec", "mine", "--", "echo", "alive") == "alive"
    for args in (("pool", "set", "--template", "nothing", "--min", "1", "p"), ("pool", "set", "--template", "small", "--min", "300", "p"), ("pool", "inspect", "p")):
        host.one_line(daemon.cli(*args))


def test_warm_code_that_takes_long_is_waited_for_with_a_word(daemon, ok):
    with Terminal(daemon, "template", "set", "--warm-python", "while True: pass", "--warm-timeout", "4s", "slow") as t:
        t.expect("waiting until the warm code is ready")
        t.expect("did not become ready in time")
        assert t.wait() == 125


def test_code_runs_in_a_warm_python(daemon, ok, tmp_path):
    (tmp_path / "warm.py").write_text("import json, decimal\n")
    ok("template", "set", "--warm-python", f"@{tmp_path}/warm.py", "--warm-timeout", "30s", "warm")
    assert json.loads(ok("template", "inspect", "warm"))["warm"]["ready"] is True
    assert ok("template", "ls").splitlines()[1].split()[5] == "ready"
    ok("create", "--template", "warm", "--name", "w")
    assert ok("exec", "--code", "w", "import sys; print('decimal' in sys.modules)") == "True"
    assert ok("exec", "--code", "w", "-", input=b"for i in range(3):\n    print(i)\n") == "0\n1\n2"
    r = daemon.cli("exec", "--code", "-e", "X=1", "w", "import os, sys; print(os.environ['X'], file=sys.stderr); sys.exit(3)")
    assert (r.code, r.out, r.err) == (3, b"", b"1\n"), r
    assert ok("exec", "--code", "-i", "w", "print(input())", input=b"said\n") == "said"
    assert json.loads(ok("exec", "--json", "--code", "w", "print(1)"))["stdout"] == "1\n"
    assert "nothing_of_the_sort" in host.one_line(daemon.cli("template", "set", "--warm-python", "import nothing_of_the_sort", "broken"))
    ok("create", "--name", "cold")
    assert "warm" in host.one_line(daemon.cli("exec", "--code", "cold", "print(1)"))
    ok("template", "set", "--warm", "echo listening; exec sleep 1000", "--ready", "listening", "server")
    ok("create", "--template", "server", "--name", "s")
    assert ok("exec", "s", "--", "pgrep", "-c", "sleep") == "1"
