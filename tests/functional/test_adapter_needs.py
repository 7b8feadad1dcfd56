"""What adapters of evaluation frameworks need to tell apart, as Inspect's self check asks it of a provider: errors of files by kind and with the
name, programs that cannot be started, users by name, large stdin and files, and that a timeout ends the whole tree."""
import urllib.parse

import pytest

from api import d, error, nothing_is_left_behind  # noqa: F401

MIB = 1 << 20


@pytest.fixture(scope="module")
def at(d):  # noqa: F811
    box = d.create(memory="512M")["id"]
    yield f"/v1/sandboxes/{box}"
    d.delete(f"/v1/sandboxes/{box}")


def file(at, path):
    return f"{at}/files?" + urllib.parse.urlencode({"path": path, "mkdirs": 1})


def run(d, at, *cmd, **more):
    return d.post(f"{at}/execs", {"cmd": list(cmd), **more})


def test_files_fail_by_kind_and_with_their_name(d, at):
    assert run(d, at, "sh", "-c", "echo x > closed; chmod 0 closed; echo y > fixed; chmod 444 fixed; mkdir folder").json["exit_code"] == 0
    for name in "nonexistent", "https:/en.wikipedia.org/wiki/Bart%C5%82omiej_Kasprzykowski":
        assert name in error(d.get(file(at, name)), 404, "not_found")["message"]
    assert "closed" in error(d.get(file(at, "closed")), 403, "denied")["message"]
    assert "fixed" in error(d.put(file(at, "fixed"), b"new"), 403, "denied")["message"]
    assert d.get(file(at, "fixed")).body == b"y\n"
    for r in d.get(file(at, "folder")), d.put(file(at, "folder"), b"new"):
        assert "directory" in error(r, 422, "refused")["message"]


def test_programs_that_cannot_be_started_are_told_apart(d, at):
    assert "Permission denied" in error(run(d, at, "/etc/passwd"), 422, "refused")["message"]
    assert "No such file" in error(run(d, at, "no-such-program"), 422, "refused")["message"]
    assert "nonexistent" in error(run(d, at, "whoami", user="nonexistent"), 422, "refused")["message"]
    r = run(d, at, "sh", "-c", "kill -TERM $$", timeout="30s").json
    assert (r["exit_code"], r["verdict"]["cause"]) == (143, "signaled"), r


def test_a_user_made_by_adduser_runs_commands(d, at):
    r = run(d, at, "adduser", "--comment", "made here", "--disabled-password", "inspect-ai-test-exec-as-user", user="root", timeout="30s").json
    assert r["exit_code"] == 0, r
    assert run(d, at, "whoami", user="inspect-ai-test-exec-as-user").json["stdout"] == "inspect-ai-test-exec-as-user\n"
    assert run(d, at, "userdel", "-r", "inspect-ai-test-exec-as-user", user="root").json["exit_code"] == 0


def test_fifty_mebibytes_of_stdin_and_of_a_file(d, at):
    data = b"\xc3" * (50 * MIB)
    assert d.put(file(at, "large/file"), data).status in (200, 201)
    assert d.get(file(at, "large/file")).body == data
    assert run(d, at, "rm", "large/file").json["exit_code"] == 0
    x = run(d, at, "wc", "-c", background=True, stdin_open=True).json["id"]
    for start in range(0, len(data), 4 * MIB - 4096):
        assert d.post(f"{at}/execs/{x}/stdin", data[start:start + 4 * MIB - 4096]).status == 204
    assert d.post(f"{at}/execs/{x}/stdin?close=1", b"").status == 204
    assert d.get(f"{at}/execs/{x}/wait?timeout=60", timeout=90).json["stdout"].split() == [str(len(data))]


def test_a_timeout_leaves_nothing_of_the_tree(d, at):
    r = run(d, at, "sh", "-c", "sleep 30 # child & sleep 30; : parent-mark", timeout="1s").json
    assert r["verdict"]["cause"] == "timeout", r
    assert "-mark" not in run(d, at, "ps", "-eo", "args").json["stdout"] and run(d, at, "pgrep", "-c", "sleep").json["stdout"] == "0\n"
