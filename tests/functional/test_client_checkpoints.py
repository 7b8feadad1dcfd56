"""`cloche checkpoint`, `restore`, `fork`, `diff`, `promote`, `hibernate` and `wake`, against a real daemon."""
import json
import os
import subprocess

import pytest

import host
from cli import daemon, nothing_is_left_behind  # noqa: F401


@pytest.fixture
def ok(daemon):
    """`cloche` that must succeed, and its output without the last line feed."""
    def call(*args, **kw):
        r = daemon.cli(*args, **kw)
        assert r.code == 0, r
        return r.text.strip()
    return call


@pytest.fixture
def box(daemon, ok):
    """One with a file in it, by a name of its own; what came from it is gone afterwards, too."""
    name = f"box{os.urandom(4).hex()}"
    ok("create", "--name", name, "-e", "COLOUR=red", "--memory", "128M")
    ok("exec", name, "--", "sh", "-c", "echo one > data; mkdir -p dir; echo kept > dir/kept")
    yield name
    daemon.cli("rm", "--all")
    for c in json.loads(daemon.cli("checkpoint", "ls", "--json").text):
        daemon.cli("checkpoint", "rm", c["id"])


def test_back_in_place_as_often_as_wanted(daemon, ok, box):
    before = json.loads(ok("inspect", box))
    ident = ok("checkpoint", box, "clean")
    for i in range(3):
        ok("exec", box, "--", "sh", "-c", "rm data; echo dirt > dirt")
        assert ok("restore", box, "clean") == ""
        assert ok("exec", box, "--", "sh", "-c", "cat data; ls") == "one\ndata\ndir"
    after = json.loads(ok("inspect", box))
    assert {k: before[k] for k in ("id", "name", "env", "memory")} == {k: after[k] for k in ("id", "name", "env", "memory")}
    assert json.loads(ok("restore", "--json", box, ident))["restored"]["checkpoint"] == ident


def test_a_checkpoint_is_listed_shown_and_removed(daemon, ok, box):
    first = ok("checkpoint", "create", "--label", "two words", "--meta", "team=red", box, "first")
    second = ok("checkpoint", "--name", "second", box)
    assert [c["id"] for c in json.loads(ok("checkpoint", "ls", "--json"))] == [second, first]
    assert ok("checkpoint", "ls", "-q", "--meta", "team=red") == first
    assert ok("checkpoint", "ls", "-q", "--label", "two words") == first
    assert ok("checkpoint", "ls", "-q", "--sandbox", box, "--name", "second") == second
    assert ok("checkpoint", "ls", "-q", "--sandbox", "nobody") == ""
    lines = ok("checkpoint", "ls").splitlines()
    assert lines[0].split()[:4] == ["ID", "NAME", "SANDBOX", "IMAGE"]
    assert any(x.startswith(first) and "first" in x and box in x and x.endswith("two words") for x in lines), lines
    shown = json.loads(ok("checkpoint", "inspect", f"{box}:first"))
    assert shown["id"] == first and shown["label"] == "two words" and shown["metadata"] == {"team": "red"} and shown["state"] == "made"
    assert shown["files"] > 0 and shown["config"]["env"] == {"COLOUR": "red"} and shown["memory"] is False
    assert len(json.loads(ok("checkpoint", "inspect", first, second))) == 2
    assert ok("checkpoint", "rm", f"{box}:first", second) == f"{box}:first\n{second}"
    assert first in host.one_line(daemon.cli("checkpoint", "rm", first))
    assert ok("checkpoint", "rm", "-f", first) == ""
    host.one_line(daemon.cli("checkpoint", "inspect", f"{box}:first"))


def test_names_are_taken_once(daemon, ok, box):
    ok("checkpoint", box, "same")
    assert "same" in host.one_line(daemon.cli("checkpoint", box, "same"))
    error = daemon.cli("checkpoint", "--json", box, "same")
    assert error.code == 125 and json.loads(error.text)["error"]["code"] == "conflict"


def test_new_ones_from_it(daemon, ok, box):
    ident = ok("checkpoint", box, "base")
    ok("exec", box, "--", "sh", "-c", "echo other > data")
    one = ok("restore", "--as", "copy", box, "base")
    assert ok("exec", "copy", "--", "sh", "-c", "cat data; echo $COLOUR") == "one\nred"
    assert json.loads(ok("inspect", "copy"))["id"] == one
    many = ok("restore", "--count", "3", "-e", "COLOUR=blue", "--memory", "64M", "--ttl", "1h", f"{box}:base").split()
    assert len(set(many)) == 3
    for m in many:
        info = json.loads(ok("inspect", m))
        assert info["memory"] == 64 << 20 and info["timeout"] == 3600
        assert ok("exec", m, "--", "sh", "-c", f"cat data; echo {m} > data; echo $COLOUR") == "one\nblue"
    assert [ok("exec", m, "--", "cat", "data") for m in many] == many
    named = json.loads(ok("restore", "--json", "--as", "x1", "--as", "x2", ident))["sandboxes"]
    assert [s["name"] for s in named] == ["x1", "x2"]
    assert json.loads(ok("create", "--json", "--checkpoint", f"{box}:base", "--name", "x3", "--cpus", "0.5"))["cpus"] == 0.5
    assert ok("exec", "x3", "--", "cat", "data") == "one"
    assert ok("exec", box, "--", "cat", "data") == "other"


def test_deleting_breaks_nothing(daemon, ok, box):
    ident = ok("checkpoint", box, "base")
    ok("restore", "--as", "heir", box, "base")
    ok("rm", box)
    assert ok("restore", "--as", "late", ident)
    ok("checkpoint", "rm", ident)
    for name in ("heir", "late"):
        assert ok("exec", name, "--", "cat", "data") == "one"
    deeper = ok("checkpoint", "heir")
    ok("rm", "heir", "late")
    ok("restore", "--as", "third", deeper)
    assert ok("exec", "third", "--", "cat", "dir/kept") == "kept"


def test_forks_go_their_own_way(daemon, ok, box):
    a, b = ok("fork", "--memory=no", "--name", "fa", "--name", "fb", box).split()
    assert [json.loads(ok("inspect", x))["id"] for x in ("fa", "fb")] == [a, b]
    ok("exec", "fa", "--", "sh", "-c", "echo a > data")
    assert [ok("exec", x, "--", "cat", "data") for x in ("fa", "fb", box)] == ["a", "one", "one"]
    assert len(ok("fork", "-n", "3", box).split()) == 3
    answer = json.loads(ok("fork", "--json", box))
    assert len(answer["sandboxes"]) == 1


def test_what_is_not_there_is_one_line(daemon, ok, box):
    for args in (("checkpoint", "nobody"), ("restore", box, "never"), ("restore", "--as", "x", box, "never"), ("restore", "nobody", "x"), ("restore", "nothing"),
                 ("fork", "nobody"), ("checkpoint", "inspect", "nobody:x"), ("checkpoint", "export", "nothing", "-"), ("create", "--checkpoint", "nothing"),
                 ("create", "--checkpoint", f"{box}:never"), ("diff", "nobody"), ("promote", "nobody", box), ("hibernate", "nobody"), ("wake", "nobody")):
        host.one_line(daemon.cli(*args, stdout=subprocess.PIPE))
