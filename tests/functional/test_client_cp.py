"""`cloche cp`, against a real daemon."""
import os
import pty
import select
import stat
import subprocess
import tarfile
import time

import host
from cli import Terminal, box, daemon, nothing_is_left_behind  # noqa: F401


def test_cp_files_both_ways_with_their_modes(daemon, box, tmp_path):
    src = tmp_path / "tool"
    src.write_bytes(os.urandom(3 << 20))
    src.chmod(0o750)
    assert daemon.cli("cp", src, f"{box}:/tmp/renamed").code == 0
    assert daemon.cli("cp", src, f"{box}:/tmp").code == 0
    r = daemon.cli("exec", box, "--", "sh", "-c", "stat -c %a /tmp/renamed /tmp/tool; cksum < /tmp/tool")
    assert r.text.splitlines()[:2] == ["750", "750"], r
    back = tmp_path / "back"
    assert daemon.cli("cp", f"{box}:/tmp/tool", back).code == 0
    assert back.read_bytes() == src.read_bytes() and stat.S_IMODE(back.stat().st_mode) == 0o750
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "tool"]  # nothing half-made beside it
    folder = tmp_path / "into"
    folder.mkdir()
    assert daemon.cli("cp", f"{box}:/tmp/tool", folder).code == 0
    assert (folder / "tool").read_bytes() == src.read_bytes()


def test_cp_stdin_and_stdout(daemon, box):
    data = os.urandom(1 << 20)
    assert daemon.cli("cp", "-", f"{box}:/tmp/deep/er/x", input=data).code == 0
    assert daemon.cli("cp", f"{box}:/tmp/deep/er/x", "-").out == data


def make_tree(top):
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/file").write_text("hello")
    (top / "a/b/file").chmod(0o640)
    (top / "run").write_text("#!/bin/sh\necho ran\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("a/b/file")
    (top / "größe").write_bytes(b"x" * 100000)


def test_cp_folders_both_ways(daemon, box, tmp_path):
    src = tmp_path / "src"
    make_tree(src)
    os.mkfifo(src / "fifo")
    r = daemon.cli("cp", src, f"{box}:/tmp/new")
    assert r.code == 0, r
    assert daemon.cli("exec", box, "--", "sh", "-c", "/tmp/new/run; cat /tmp/new/link; stat -c %a /tmp/new/a/b/file").text == "ran\nhello640\n"
    assert daemon.cli("cp", src, f"{box}:/tmp/new").code == 0  # there already: below it
    assert daemon.cli("exec", box, "--", "cat", "/tmp/new/src/a/b/file").text == "hello"
    assert daemon.cli("cp", f"{src}/.", f"{box}:/tmp/content").code == 0
    assert daemon.cli("exec", box, "--", "cat", "/tmp/content/a/b/file").text == "hello"
    back = tmp_path / "back"
    r = daemon.cli("cp", f"{box}:/tmp/content", back)
    assert r.code == 0, r
    assert (back / "a/b/file").read_text() == "hello" and stat.S_IMODE((back / "a/b/file").stat().st_mode) == 0o640
    assert os.readlink(back / "link") == "a/b/file" and (back / "größe").stat().st_size == 100000
    assert daemon.cli("cp", f"{box}:/tmp/content", back).code == 0
    assert (back / "content/run").exists()


def test_cp_a_folder_to_stdout_is_a_tar(daemon, box, tmp_path):
    make_tree(tmp_path / "src")
    assert daemon.cli("cp", tmp_path / "src", f"{box}:/tmp/t").code == 0
    r = daemon.cli("cp", f"{box}:/tmp/t", "-")
    (tmp_path / "t.tar").write_bytes(r.out)
    with tarfile.open(tmp_path / "t.tar") as t:
        assert any(n.endswith("a/b/file") for n in t.getnames())


def test_cp_never_writes_outside_its_destination(daemon, box, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    daemon.exec(box, "sh", "-c", f"mkdir -p /tmp/evil && cd /tmp/evil && ln -s {tmp_path} out && echo evil > x && ln -s /etc abs")
    dst = tmp_path / "dst"
    dst.mkdir()
    (dst / "sub").symlink_to(tmp_path)  # an earlier copy may have left a link
    daemon.exec(box, "sh", "-c", "mkdir -p /tmp/evil/sub && echo evil > /tmp/evil/sub/victim")
    daemon.cli("cp", f"{box}:/tmp/evil/.", dst)
    assert victim.read_text() == "mine"
    assert (dst / "x").read_text() == "evil\n" and not (tmp_path / "x").exists()


def test_cp_of_a_large_folder_is_quick_and_small(daemon, box, tmp_path):
    daemon.exec(box, "sh", "-c", "mkdir /tmp/d; head -c 60000000 /dev/urandom > /tmp/d/big; cksum < /tmp/d/big")
    r = daemon.cli("cp", f"{box}:/tmp/d", tmp_path / "d")
    assert r.code == 0 and r.wall < 10, r
    assert (tmp_path / "d/big").stat().st_size == 60000000


def test_cp_that_is_killed_leaves_what_was_there(daemon, box, tmp_path):
    daemon.exec(box, "sh", "-c", "mkfifo /tmp/p; head -c 100000000 /dev/zero > /tmp/big")
    (tmp_path / "f").write_text("old")
    p = subprocess.Popen([str(host.CLOCHE), "cp", f"{box}:/tmp/big", str(tmp_path / "f")], env=daemon.environment())
    time.sleep(0.08)
    p.kill()
    p.wait()
    assert (tmp_path / "f").read_bytes()[:3] in (b"old", b"\0\0\0") and [x.name for x in tmp_path.iterdir()] == ["f"]


def test_cp_into_a_full_sandbox_says_so(daemon, tmp_path):
    daemon.create(name="full", disk="4M")
    (tmp_path / "big").write_bytes(b"x" * 20000000)
    try:
        assert "No space" in host.one_line(daemon.cli("cp", tmp_path / "big", "full:/tmp/big"))
    finally:
        daemon.cli("rm", "full")


def test_cp_of_several_goes_into_a_folder_or_not_at_all(daemon, box, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    several = (tmp_path / "a", tmp_path / "b")
    assert "not a folder inside" in host.one_line(daemon.cli("cp", *several, f"{box}:both"))
    assert daemon.cli("cp", "-r", *several, f"{box}:both/").code == 0 and daemon.cli("cp", *several, f"{box}:both").code == 0
    inside = (f"{box}:both/a", f"{box}:both/b")
    assert "not a folder here" in host.one_line(daemon.cli("cp", *inside, tmp_path / "out")) and not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    assert daemon.cli("cp", *inside, tmp_path / "out").code == 0
    assert [(tmp_path / "out" / name).read_text() for name in "ab"] == ["a", "b"]


def test_cp_says_what_is_missing(daemon, box, tmp_path):
    assert "no/such" in host.one_line(daemon.cli("cp", f"{box}:/no/such", tmp_path))
    assert "no-such" in host.one_line(daemon.cli("cp", tmp_path / "no-such", f"{box}:/tmp"))
    (tmp_path / "f").write_text("x")
    host.one_line(daemon.cli("cp", tmp_path / "f", f"{box}:/proc/nowhere"))


def test_cp_shows_progress_on_a_terminal_only(daemon, box, tmp_path):
    # A FIFO that is slow keeps the copy from ending within half a second.
    with Terminal(daemon, "exec", "-t", box, "--", "true") as t:
        t.wait()
    script = f"(head -c 100000 /dev/zero; sleep 1; head -c 100000 /dev/zero; sleep 0.5) | '{host.CLOCHE}' cp - {box}:/tmp/slow"
    master, slave = pty.openpty()
    p = subprocess.Popen(["sh", "-c", script], stderr=slave, stdin=subprocess.DEVNULL, env=daemon.environment())
    try:
        assert p.wait(20) == 0
        assert select.select([master], [], [], 0)[0]
        assert b"stdin" in os.read(master, 65536)
    finally:
        host.end(p)
        os.close(slave)
        os.close(master)
    r = daemon.cli("cp", "-", f"{box}:/tmp/slow2", input=b"x" * 1000000)
    assert (r.code, r.err) == (0, b"")
