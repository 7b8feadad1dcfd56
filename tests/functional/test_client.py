"""The client of `cloche` against a real daemon: finding it, options and errors of all commands, and sandboxes."""
import os
import re
import subprocess

import pytest

import host
from cli import COMMANDS, VERBS, Terminal, box, daemon, nothing_is_left_behind  # noqa: F401
from daemon import Daemon


# --- finding the daemon ---

def test_without_a_daemon_the_error_says_what_to_do(daemon):
    r = daemon.cli("ls", env={"CLOCHE_URL": "http://127.0.0.1:1"})
    assert "cloche serve" in host.one_line(r)


def test_tls_where_there_is_none_is_told(daemon):
    assert "http://" in host.one_line(daemon.cli("ls", env={"CLOCHE_URL": daemon.url.replace("http:", "https:")})).split(";")[1]


def test_what_others_call_it_is_told(daemon):
    for name, ours in ("ps", "ls"), ("delete", "rm"), ("snapshot", "checkpoint"), ("secrets", "secret"), ("nonsense", "--help"):
        assert f"`cloche {ours}`" in host.one_line(daemon.cli(name))


def test_create_takes_no_image_and_no_command(daemon):
    for args in (("ubuntu",), ("--", "sleep", "1")):
        said = host.one_line(daemon.cli("create", *args))
        assert "an image is given with --image; `cloche exec SANDBOX -- COMMAND` runs a command" in said, said
    assert "--mount SRC:DST" in host.one_line(daemon.cli("create", "-v", "/tmp:/x"))
    assert "did you mean --memory?" in host.one_line(daemon.cli("create", "ubuntu", "--memroy", "1G"))


def test_a_relative_source_of_a_mount_is_below_the_callers_folder(daemon, tmp_path):
    (tmp_path / "project").mkdir()
    for source in ("project", "./project"):
        said = host.one_line(daemon.cli("create", "--mount", f"{source}:/work", cwd=tmp_path))
        assert f"mount source '{tmp_path}/project': not below a folder that tenant" in said, said
    assert "source './none': No such file" in host.one_line(daemon.cli("create", "--mount", "./none:/work", cwd=tmp_path))


def test_diff_says_where_names_are_listed(daemon):
    assert "`cloche checkpoint ls` checkpoints" in host.one_line(daemon.cli("diff", "none"))


def test_a_value_on_the_command_line_is_not_repeated(daemon):
    line = host.one_line(daemon.cli("secret", "set", "KEY", "hunter2-hunter2"))
    assert "stdin" in line and "hunter2" not in line, line


def test_a_bad_token_is_one_line(daemon):
    line = host.one_line(daemon.cli("ls", env={"CLOCHE_TOKEN": "cloche_" + "x" * 43}))
    assert "token" in line.lower()


def test_options_say_where_and_who(daemon):
    r = daemon.cli("ls", "--url", daemon.url, "--token", daemon.token, env={"CLOCHE_URL": "http://127.0.0.1:1", "CLOCHE_TOKEN": "no"})
    assert r.code == 0, r


def test_the_file_says_where_and_who_unless_others_can_read_it(daemon, tmp_path):
    folder = tmp_path / ".config/cloche"
    folder.mkdir(parents=True)
    (folder / "config").write_text(f"# mine\nurl = {daemon.url}\ntoken = {daemon.token}\n")
    env = {"HOME": str(tmp_path), "CLOCHE_URL": "", "CLOCHE_TOKEN": ""}
    (folder / "config").chmod(0o600)
    assert daemon.cli("ls", env=env).code == 0
    (folder / "config").chmod(0o644)
    assert "chmod 600" in host.one_line(daemon.cli("ls", env=env))


def test_the_unix_socket_needs_no_token(daemon):
    r = daemon.cli("ls", "--json", env={"CLOCHE_URL": f"unix:{daemon.data}/cloche.sock", "CLOCHE_TOKEN": ""})
    assert r.code == 0 and isinstance(r.json, list), r


def test_a_socket_that_only_root_reaches_is_told_as_that(daemon):
    p = subprocess.run([host.CLOCHE, "ls"], env={**daemon.environment(), "CLOCHE_URL": f"unix:{daemon.data}/cloche.sock", "CLOCHE_TOKEN": ""},
                       user=64321, group=64321, extra_groups=[], capture_output=True, text=True)
    assert p.returncode == 125 and "may not enter its folder" in p.stderr, p


@pytest.fixture(scope="module")
def secure(nothing_is_left_behind, tmp_path_factory):
    """A daemon that speaks HTTPS with a certificate of an unknown CA."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=cloche", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem",
                    "-out", folder / "cert.pem"], check=True, capture_output=True)
    with Daemon(None, "--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem") as d:
        d.cert = str(folder / "cert.pem")
        yield d


def test_an_unknown_certificate_is_refused(secure):
    assert "CLOCHE_CACERT" in host.one_line(secure.cli("ls"))
    assert "CLOCHE_CACERT" in host.one_line(secure.cli("exec", "x", "true"))


def test_plain_http_on_the_port_of_tls_gets_an_answer(secure):
    line = host.one_line(secure.cli("ls", env={"CLOCHE_URL": secure.url.replace("https:", "http:")}))
    assert "this port speaks HTTPS: use https://" in line, line


def test_everything_works_over_tls(secure):
    env = {"CLOCHE_CACERT": secure.cert}
    box = secure.cli("create", env=env).text.strip()
    data = os.urandom(2 << 20)
    r = secure.cli("exec", "-i", box, "cat", input=data, env=env)
    assert r.code == 0 and r.out == data, (r.code, r.err)
    with Terminal(secure, "shell", box, env={**secure.environment(), **env, "TERM": "xterm"}) as t:
        t.expect(r"\$ ")
        t.type("exit 6\r")
        assert t.wait() == 6
    assert secure.cli("rm", box, env=env).code == 0


# --- all commands ---

@pytest.mark.parametrize("command", COMMANDS + VERBS)
def test_help_names_every_option(daemon, command):
    r = daemon.cli(*command.split(), "--help")
    assert r.code == 0 and r.text.startswith(f"usage: cloche {command}".replace("checkpoint create", "checkpoint [create]")), r
    script = daemon.cli("completion", "bash").text
    options = re.search(rf"^\t'?{command}'?\) options='([^']*)'", script, re.M).group(1).split()
    later = {"--allow", "--secret", "--seccomp", "--cpu-time", "--help"}
    for option in set(options) - later:
        assert option in r.text, f"{command} --help does not name {option}"
    assert max(map(len, r.text.splitlines())) <= 120


@pytest.mark.parametrize("command", COMMANDS + VERBS)
def test_an_unknown_option_is_one_line(daemon, command):
    assert "--nonsense" in host.one_line(daemon.cli(*command.split(), "--nonsense"))


def test_an_option_that_only_run_has_says_so(daemon):
    assert "cloche run" in host.one_line(daemon.cli("create", "--seccomp", "/dev/null"))


@pytest.mark.parametrize("args", [("inspect",), ("exec",), ("exec", "x"), ("rm",), ("cp", "a"), ("cp", "a", "b"), ("pause",), ("stats",),
                                  ("token",), ("token", "eat"), ("completion", "tcsh"), ("ls", "more"), ("create", "word"),
                                  ("create", "--memory", "lots"), ("create", "--meta", "x"), ("exec", "--timeout", "x", "b", "--", "true"),
                                  ("shell", "--detach-keys", "hyper-x", "b"), ("logs", "--stream", "x", "b"), ("cp", "a:/b", "c:/d"),
                                  ("checkpoint",), ("checkpoint", "a", "b", "c"), ("checkpoint", "--name", "x", "a", "b"), ("checkpoint", "--memory=some", "a"),
                                  ("checkpoint", "export", "a"), ("checkpoint", "import"), ("checkpoint", "import", "/no/such"), ("checkpoint", "rm"),
                                  ("restore",), ("restore", "--memory", "1G", "a", "b"), ("restore", "--count", "0", "a"), ("fork",), ("fork", "-n", "257", "a"),
                                  ("diff",), ("diff", "a", "b", "c"), ("promote", "a"), ("hibernate",), ("hibernate", "--memory", "x", "a"), ("wake",),
                                  ("template",), ("template", "eat"), ("template", "set"), ("template", "set", "--warm", "x", "a"),
                                  ("template", "set", "--warm-python", "@/no/such", "a"), ("template", "set", "--warm-python", "1", "--warm", "x", "a"),
                                  ("pool",), ("pool", "set", "a"), ("pool", "set", "--template", "t", "--min", "many", "a"),
                                  ("exec", "--code", "a", "1", "2"), ("exec", "--code", "--shell", "a", "1"), ("exec", "--code", "-i", "a", "-")])
def test_what_makes_no_sense_is_one_line(daemon, args):
    host.one_line(daemon.cli(*args))


@pytest.mark.parametrize("args", [("inspect", "nobody"), ("exec", "nobody", "--", "true"), ("rm", "nobody"), ("pause", "nobody"),
                                  ("logs", "nobody"), ("stats", "nobody"), ("events", "nobody"), ("cp", "nobody:/etc/passwd", "-"),
                                  ("cp", "/etc/passwd", "nobody:/x"), ("inspect", "../../info")])
def test_a_sandbox_that_is_not_there_is_one_line(daemon, args):
    host.one_line(daemon.cli(*args))


# --- create, ls, inspect, rm, pause, resume ---

def test_create_prints_the_id_and_rm_removes(daemon):
    r = daemon.cli("create", "--name", "c1", "--memory", "64M", "--cpus", "0.5", "--pids", "50", "--meta", "a=b", "--meta", "c=d", "--ttl", "1h",
                   "--idle", "30m", "-e", "X=1", "--workdir", "/work", "--timeout", "90s", "--tmpfs", "/scratch:size=1M")
    assert r.code == 0, r
    name = r.text.strip()
    info = daemon.cli("inspect", "c1").json
    assert info["id"] == name and info["memory"] == 64 << 20 and info["cpus"] == 0.5 and info["pids"] == 50
    assert info["metadata"] == {"a": "b", "c": "d"} and info["timeout"] == 3600 and info["idle"] == 1800
    assert info["env"] == {"X": "1"} and info["workdir"] == "/work" and info["exec_timeout"] == 90
    assert info["tmpfs"] == [{"path": "/scratch", "size": 1 << 20}]
    r = daemon.cli("rm", "c1")
    assert r.code == 0 and r.text == "c1\n", r
    assert daemon.cli("rm", "-f", "c1").code == 0
    assert "c1" in host.one_line(daemon.cli("rm", "c1"))


def test_create_json_is_the_whole_answer_and_key_gets_it_again(daemon):
    first = daemon.cli("create", "--json", "--key", "mine").json
    second = daemon.cli("create", "--json", "--key", "mine").json
    assert first["id"] == second["id"] and first["enforced"] and first["state"] == "running"
    assert daemon.cli("rm", first["id"]).code == 0


def test_ls_filters_and_escapes(daemon):
    a = daemon.create(name="ls-a", metadata={"team": "red", "evil": "\x1b[31mred\x1b[0m\u202e"})["id"]
    b = daemon.create(name="ls-b", metadata={"team": "blue"})["id"]
    try:
        r = daemon.cli("ls", "--meta", "team=red", "-q")
        assert r.text.split() == [a], r
        table = daemon.cli("ls", env={"LC_ALL": "C.UTF-8"})
        assert b"\x1b" not in table.out and b"\t" not in table.out and "\u202e" not in table.text
        assert "\\x1b[31mred" in table.text
        lines = table.text.splitlines()
        assert lines[0].split()[:5] == ["ID", "NAME", "STATE", "IMAGE", "ISOLATION"]
        assert any(line.split()[:5] == [a, "ls-a", "running", "host", "container"] for line in lines)
        assert {x["id"] for x in daemon.cli("ls", "--json").json} >= {a, b}
        assert daemon.cli("pause", "ls-b").code == 0
        assert daemon.cli("ls", "--state", "paused", "-q").text.split() == [b]
        assert daemon.cli("resume", "ls-b").code == 0
        assert daemon.cli("ls", "--state", "paused", "-q").text == ""
        assert [x["id"] for x in daemon.cli("ls", "--all", "--json", "--meta", "team=blue").json] == [b]
    finally:
        assert daemon.cli("rm", "ls-a", "ls-b").code == 0


def test_a_table_is_cut_to_the_terminal(daemon, box):
    with Terminal(daemon, "ls", rows=10, columns=50) as t:
        assert t.wait() == 0
        lines = t.seen.decode().split("\r\n")
        assert len(lines) >= 2 and all(len(line) <= 50 for line in lines) and lines[0].startswith("ID")


def test_rm_all_removes_all(daemon):
    made = {daemon.create()["id"] for _ in range(3)}
    r = daemon.cli("rm", "--all", "--json")
    assert r.code == 0 and set(r.json) >= made, r
    assert daemon.cli("ls", "-q").text == ""
