"""Every command of docs/checkpoints.md, in order, as a reader would type them."""
import pathlib
import re
import subprocess

import pytest

import host
from cli import daemon, nothing_is_left_behind  # noqa: F401

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md"
# What a reader has that a test has not: a second machine, and modules that take long to import.
OTHERS = {"CLOCHE_URL=https://other:7070 ": "", "import numpy, pandas": "import json, decimal", "import pandas; print(pandas.__version__)": "import decimal; print(decimal.__name__)"}


def blocks():
    title = ""
    for heading, script in re.findall(r"^## ([^\n]*)$|^```sh\n(.*?)^```$", GUIDE.read_text(), re.M | re.S):
        if heading:
            title = heading
        else:
            yield title, script


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("guide")


def test_the_guide_runs_from_its_beginning_to_its_end(daemon, folder):
    env = {**daemon.environment(), "PATH": f"{host.BUILD}:/usr/bin:/bin"}
    ran = 0
    for title, script in blocks():
        for theirs, ours in OTHERS.items():
            script = script.replace(theirs, ours)
        r = subprocess.run(["bash", "-ec", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, f"{title}:\n{script}\n{r.stdout}{r.stderr}"
        ran += 1
    assert ran >= 9
    assert (folder / "clean.cloche").stat().st_size > 0
    for what in ("pool rm science-pool", "template rm science worker"):
        assert daemon.cli(*what.split()).code == 0


def test_the_page_about_images_runs_from_its_beginning_to_its_end(daemon, tmp_path):
    env = {**daemon.environment(), "PATH": f"{host.BUILD}:/usr/bin:/bin"}
    scripts = re.findall(r"^```sh\n(.*?)^```$", (host.ROOT / "docs/images.md").read_text(), re.M | re.S)
    assert len(scripts) >= 3
    for script in scripts:
        r = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, f"{script}\n{r.stdout}{r.stderr}"


def help_of(*words):
    r = subprocess.run([host.CLOCHE, *words], capture_output=True, text=True, timeout=60)
    return r.stdout + r.stderr


def test_every_command_and_option_is_in_the_documentation():
    cli = (host.ROOT / "docs/cli.md").read_text()
    serve = (host.ROOT / "docs/config.md").read_text()
    commands = re.findall(r"^  (\S+)  +\S", help_of("help"), re.M)
    assert len(commands) >= 35
    left = [c for c in commands if f"`{c}" not in cli and f"`cloche {c}`" not in cli]
    for command in commands:
        text = help_of("help", command)
        # "cloche checkpoint import [options] FILE": its own options are in the help of both words.
        verbs = set(re.findall(rf"^(?:usage:|      ) cloche {command} \[?([a-z]+)\b", text, re.M))
        for verb in sorted(verbs):
            text += help_of(command, verb, "--help")
        where = cli + serve if command == "serve" else cli
        left += [(command, o) for o in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))) if o not in where]
    assert not left
