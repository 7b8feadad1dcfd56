"""`cloche checkpoint`, `restore`, `fork`, `diff`, `promote`, `hibernate` and `wake`, against a real daemon."""
import json
import os
import pty
import subprocess

import host
from cli import daemon, nothing_is_left_behind, ok, started_box as box  # noqa: F401


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
    for args in ((box, "name"), (box,)):
        assert "--memory=auto" in host.one_line(daemon.cli("checkpoint", "--memory", "auto", *args))
    assert "print(" in host.one_line(daemon.cli("exec", "--code", box))


def test_diff_shows_what_was_changed(daemon, ok, box):
    ok("checkpoint", box, "base")
    ok("exec", box, "--", "sh", "-c", "echo two > data; rm dir/kept; mkdir new; printf 'a\\tb\\033[31m\\n' > new/file")
    home = ok("exec", box, "--", "pwd")
    assert ok("diff", f"{box}:base", box).splitlines() == [f"M {home}/data  (4, was 4)", f"D {home}/dir/kept  (5)", f"A {home}/new/", f"A {home}/new/file  (9)"]
    text = ok("diff", "--text", f"{box}:base", box)
    assert "-one\n+two\n" in text and "\x1b" not in text and "+a\tb\\x1b[31m" in text
    assert ok("diff", box) == ok("diff", "image", box) and f"A {home}/data" in ok("diff", box)
    whole = json.loads(ok("diff", "--json", f"{box}:base", box))
    assert (whole["added"], whole["changed"], whole["removed"]) == (2, 1, 1)
    ok("exec", box, "--", "chmod", "700", "data")
    assert ok("diff", f"{box}:base", box).splitlines()[0] == f"M {home}/data  (4, was 4, mode 0700, was 0644)"
    assert daemon.cli("diff", "--exit-code", f"{box}:base", box).code == 1
    assert daemon.cli("diff", "--exit-code", box, box).code == 0
    ident = json.loads(ok("checkpoint", "inspect", f"{box}:base"))["id"]
    assert ok("diff", ident, box) == ok("diff", f"{box}:base", box)
    assert f"A {home}/dir/kept" in ok("diff", "image", ident)


def test_carried_as_one_file(daemon, ok, box, tmp_path):
    ident = ok("checkpoint", "--label", "to go", box, "base")
    path = tmp_path / "base.cloche"
    assert ok("checkpoint", "export", f"{box}:base", path) == ""
    assert path.stat().st_mode & 0o777 == 0o600
    told = json.loads(ok("checkpoint", "export", "--json", ident, tmp_path / "again"))
    assert told["bytes"] == (tmp_path / "again").stat().st_size
    with open(tmp_path / "piped", "wb") as f:
        assert daemon.cli("checkpoint", "export", ident, "-", stdout=f).code == 0
    assert (tmp_path / "piped").stat().st_size > 0
    ok("rm", box)
    ok("checkpoint", "rm", ident)
    new = ok("checkpoint", "import", "--name", "there", path)
    shown = json.loads(ok("checkpoint", "inspect", new))
    assert shown["name"] == "there" and shown["label"] == "to go"
    ok("restore", "--as", "arrived", new)
    assert ok("exec", "arrived", "--", "sh", "-c", "cat data dir/kept; echo $COLOUR") == "one\nkept\nred"
    with open(tmp_path / "piped", "rb") as f:
        assert ok("checkpoint", "import", "-", stdin=f)


def test_a_bad_file_is_refused_and_what_was_there_stays(daemon, ok, box, tmp_path):
    ident = ok("checkpoint", box, "base")
    path = tmp_path / "base"
    ok("checkpoint", "export", ident, path)
    whole = path.read_bytes()
    count = len(json.loads(ok("checkpoint", "ls", "--json")))
    for bad in (whole[:len(whole) // 2], whole[:-20], b"", b"no archive", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        (tmp_path / "bad").write_bytes(bad)
        host.one_line(daemon.cli("checkpoint", "import", tmp_path / "bad"))
    assert len(json.loads(ok("checkpoint", "ls", "--json"))) == count
    path.write_text("mine")
    host.one_line(daemon.cli("checkpoint", "export", "nothing", path))
    assert path.read_text() == "mine" and sorted(os.listdir(tmp_path)) == ["bad", "base"]


def test_carrying_shows_progress_on_a_terminal_only(daemon, ok, box):
    ok("exec", box, "--", "sh", "-c", "head -c 30000000 /dev/urandom > big")
    ok("checkpoint", box, "base")
    # Whoever reads slowly keeps it from ending within half a second; so does who writes slowly.
    slow = f"'{host.CLOCHE}' checkpoint export {box}:base - | (sleep 1; cat) | (head -c 1000000; sleep 1; cat) | '{host.CLOCHE}' checkpoint import --name slow -"
    master, slave = pty.openpty()
    p = subprocess.Popen(["sh", "-c", slow], stderr=slave, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=daemon.environment())
    try:
        ident = p.communicate(timeout=60)[0].decode().strip()
        assert p.returncode == 0
        seen = os.read(master, 65536)
        assert f"{box}:base".encode() in seen and b"/s  stdin" in seen, seen
    finally:
        host.end(p)
        os.close(slave)
        os.close(master)
    assert json.loads(ok("checkpoint", "inspect", ident))["name"] == "slow"
    r = daemon.cli("checkpoint", "export", ident, "/dev/null")
    assert (r.code, r.out, r.err) == (0, b"", b""), r


def test_one_that_is_cut_on_the_way_is_no_file(daemon, ok, box, tmp_path):
    ok("exec", box, "--", "sh", "-c", "head -c 30000000 /dev/urandom > big")
    ident = ok("checkpoint", box, "base")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    p = subprocess.Popen([str(host.CLOCHE), "checkpoint", "export", ident, str(fifo)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=daemon.environment())
    try:
        with open(fifo, "rb") as f:
            head = f.read(100000)
            daemon.kill9("api")
            f.read()
        out, err = p.communicate(timeout=30)
    finally:
        host.end(p)
    assert p.returncode == 125 and out == b"" and err.count(b"\n") == 1, (p.returncode, out, err)
    host.wait_for(lambda: daemon.get("/healthz").status == 200, 20, "the daemon")
    count = len(json.loads(ok("checkpoint", "ls", "--json")))
    (tmp_path / "cut").write_bytes(head)
    host.one_line(daemon.cli("checkpoint", "import", tmp_path / "cut"))
    assert len(json.loads(ok("checkpoint", "ls", "--json"))) == count
    assert ok("restore", "--as", "whole", ident)


def test_promote_brings_a_fork_back(daemon, ok, box):
    ok("fork", "--name", "trial", box)
    ok("exec", "trial", "--", "sh", "-c", "echo better > data; echo new > more; rm dir/kept")
    assert ok("promote", "trial", box) == "1 added, 1 changed, 1 removed"
    assert ok("exec", box, "--", "sh", "-c", "cat data more; ls dir") == "better\nnew"
    ok("fork", "--name", "other", box)
    ok("exec", "other", "--", "sh", "-c", "echo theirs > data")
    ok("exec", box, "--", "sh", "-c", "echo mine > data")
    told = host.one_line(daemon.cli("promote", "other", box))
    assert "data" in told and "--force" in told
    assert ok("exec", box, "--", "cat", "data") == "mine"
    assert daemon.cli("promote", "--force", "other", box).code == 0
    assert ok("exec", box, "--", "cat", "data") == "theirs"
