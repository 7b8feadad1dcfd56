"""`cloche completion`: what bash, zsh and fish offer."""
import os
import re
import subprocess

import host
from cli import COMMANDS, Terminal, daemon, nothing_is_left_behind  # noqa: F401


def complete(daemon, *words):
    """What bash offers for the last of these words."""
    script = ('source <(cloche completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; '
              '_cloche; printf "%s\\n" "${COMPREPLY[@]}"')
    env = {**daemon.environment(), "PATH": f"{host.BUILD}:{os.environ['PATH']}"}
    r = subprocess.run(["bash", "--norc", "-c", script, "bash", *words], env=env, capture_output=True, timeout=20)
    assert r.returncode == 0 and r.stderr == b"", r
    return set(r.stdout.decode().split())


def test_bash_completes_commands_options_and_names(daemon):
    daemon.create(name="tab-one")
    daemon.create(name="tab-two")
    try:
        assert complete(daemon, "cloche", "in") == {"inspect"}
        assert set(COMMANDS) | {"run", "serve", "doctor"} <= complete(daemon, "cloche", "")
        assert complete(daemon, "cloche", "exec", "--back") == {"--background"}
        assert complete(daemon, "cloche", "exec", "tab-") == {"tab-one", "tab-two"}
        assert complete(daemon, "cloche", "cp", "tab-o") == {"tab-one:"}
        assert complete(daemon, "cloche", "token", "r") == {"rotate", "rm"}
        assert complete(daemon, "cloche", "checkpoint", "i") == {"inspect", "import"}
        assert complete(daemon, "cloche", "checkpoint", "tab-o") == {"tab-one"}
        assert complete(daemon, "cloche", "checkpoint", "create", "tab-o") == {"tab-one"}
        assert complete(daemon, "cloche", "checkpoint", "create", "--lab") == {"--label"}
        assert complete(daemon, "cloche", "pool", "set", "--te") == {"--template"}
        assert complete(daemon, "cloche", "template", "") == {"set", "ls", "inspect", "rm"}
        assert complete(daemon, "cloche", "exec", "tab-one", "--", "") == set()
    finally:
        daemon.cli("rm", "tab-one", "tab-two")


def test_bash_completes_names_of_every_kind(daemon):
    daemon.create(name="tab-box")
    ident = daemon.post("/v1/sandboxes/tab-box/checkpoints", {"name": "kept"}).json["id"]
    assert daemon.request("PUT", "/v1/templates/tab-template", {}).status == 201
    assert daemon.request("PUT", "/v1/pools/tab-pool", {"template": "tab-template", "min": 0}).status == 201
    try:
        assert complete(daemon, "cloche", "restore", "") == {"tab-box", ident}
        assert complete(daemon, "cloche", "checkpoint", "rm", "") == {ident}
        assert complete(daemon, "cloche", "create", "--checkpoint", "") == {ident}
        assert complete(daemon, "cloche", "create", "--template", "") == {"tab-template"}
        assert complete(daemon, "cloche", "pool", "set", "--template", "") == {"tab-template"}
        assert complete(daemon, "cloche", "template", "rm", "tab") == {"tab-template"}
        assert complete(daemon, "cloche", "pool", "inspect", "") == {"tab-pool"}
        assert complete(daemon, "cloche", "checkpoint", "ls", "--sandbox", "") == {"tab-box"}
    finally:
        for path in ("pools/tab-pool", "templates/tab-template", f"checkpoints/{ident}", "sandboxes/tab-box"):
            assert daemon.delete(f"/v1/{path}").status == 204


def test_completion_is_quick_and_silent_without_a_daemon(daemon):
    r = daemon.cli("completion", "names", env={"CLOCHE_URL": "http://127.0.0.1:1"})
    assert (r.code, r.out, r.err) == (0, b"", b"") and r.wall < 2


def test_completion_knows_the_options_of_the_other_programs(daemon):
    script = daemon.cli("completion", "bash").text
    for command in ("run", "serve", "doctor"):
        known = set(re.search(rf"^\t{command}\) options='([^']*)'", script, re.M).group(1).split())
        told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", daemon.cli(command, "--help").text))
        assert told <= known, f"{command}: {told - known}"


def with_path(daemon):
    return {**daemon.environment(), "PATH": f"{host.BUILD}:{os.environ['PATH']}", "TERM": "dumb"}


def test_fish_completes(daemon, tmp_path):
    daemon.create(name="tab-one")
    (tmp_path / "cloche.fish").write_text(daemon.cli("completion", "fish").text)

    def offered(line):
        r = subprocess.run(["fish", "--no-config", "-c", f"source {tmp_path}/cloche.fish; complete -C '{line}'"], env=with_path(daemon),
                           capture_output=True, timeout=20)
        assert r.returncode == 0 and r.stderr == b"", r
        return {x.split("\t")[0] for x in r.stdout.decode().splitlines()}

    try:
        assert offered("cloche insp") == {"inspect"}
        assert set(COMMANDS) <= offered("cloche ")
        assert offered("cloche exec --backg") == {"--background"}
        assert offered("cloche exec tab-") == {"tab-one"}
        assert offered("cloche token ro") == {"rotate"}
        assert offered("cloche checkpoint exp") == {"export"}
        assert offered("cloche checkpoint create tab-") == {"tab-one"}
        assert offered("cloche checkpoint create --lab") == {"--label"}
        assert offered("cloche checkpoint create --hostn") == set()  # the other create's
    finally:
        daemon.cli("rm", "tab-one")


def test_zsh_completes(daemon):
    daemon.create(name="tab-one")
    try:
        with Terminal(daemon, program=["zsh", "-f", "-i"], env=with_path(daemon)) as t:
            t.type("PS1='%# '; autoload -U compinit; compinit -u -D; source <(cloche completion zsh); echo go''ing\r")
            t.expect("going", 20)
            for line, more in (("cloche insp", "ect "), ("cloche exec --backg", "round "), ("cloche exec tab-", "one "), ("cloche token ro", "tate "),
                               ("cloche checkpoint exp", "ort "), ("cloche checkpoint create tab-", "one "), ("cloche pool set --templ", "ate ")):
                t.type("\x15" + line + "\t")
                t.expect(re.escape(line + more), 20)
    finally:
        daemon.cli("rm", "tab-one")
