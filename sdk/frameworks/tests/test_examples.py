"""The programs in examples/, each run against a real daemon. No example may leave a sandbox or checkpoint behind."""
import ast
import os
import pathlib
import subprocess
import sys

import net_site
import pytest
from daemon import Daemon
from net_world import World
from scripted_model import ScriptedModel

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def run(environ, client, tmp_path):
    def run(name, *args, code=0, **env):
        done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, args)], cwd=tmp_path, env={**os.environ, **env},
                              capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert not list(client.sandboxes.list()) and not list(client.checkpoints.list())
        return done.stdout

    return run


def test_every_example_is_short_and_has_a_test_and_a_line_in_the_readme():
    programs = [p.name for p in EXAMPLES.glob("*.py")]
    tests = ast.dump(ast.parse(pathlib.Path(__file__).read_text(encoding="utf-8")))
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for name in programs:
        assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 80, name
        assert f"'{name}'" in tests and f"]({name})" in readme, name


@pytest.mark.parametrize("name", ["analyse_csv.py", "anthropic_agent.py", "openai_agent.py", "scrape.py"])
def test_without_its_arguments_a_program_says_how_it_is_called(name):
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and f"examples/{name} " in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_repository_without_tests_is_said(run, tmp_path):
    run("evaluate_repository.py", tmp_path, code=1)


CALLS = (
    [("write_file", {"path": "count.py", "content": "print(sum(1 for n in range(2, 100) if all(n % d for d in range(2, n))))\n"})],
    [("run_command", {"command": "python3 count.py"}), ("read_file", {"path": "/no/such"})],
    "There are 25.",
)


def test_a_model_of_anthropic(run):
    with ScriptedModel(*CALLS) as model:
        assert run("anthropic_agent.py", "Primes below 100?", ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="k") == "There are 25.\n"
    path, headers, body = model.asked[-1]
    assert path == "/v1/messages" and {k.lower(): v for k, v in headers.items()}["authorization"] == "Bearer k"
    assert {t["name"] for t in body["tools"]} >= {"run_command", "write_file"}
    results = body["messages"][-1]["content"]
    assert [(r["tool_use_id"], r["content"], r["is_error"]) for r in results[:1]] == [("toolu_2_0", "25", False)]
    assert results[1]["is_error"] and "/no/such" in results[1]["content"]


def test_a_model_of_openai(run):
    with ScriptedModel(*CALLS) as model:
        assert run("openai_agent.py", "Primes below 100?", OPENAI_BASE_URL=model.url + "/v1", OPENAI_API_KEY="k") == "There are 25.\n"
    body = model.asked[-1][2]
    assert {t["type"] for t in body["tools"]} == {"function"}
    assert [(i["call_id"], i["output"]) for i in body["input"] if i.get("type") == "function_call_output"][1] == ("call_2_0", "25")


def test_code_interpreter(run, tmp_path):
    said = run("code_interpreter.py", tmp_path)
    assert "100" in said and "NameError" in said and "A damped wave" in said
    (figure,) = tmp_path.glob("*.png")
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_analyse_csv(run, tmp_path):
    (tmp_path / "sales.csv").write_text("region,amount\nnorth,10\nsouth,5\nnorth,20\nsouth,\n", encoding="utf-8")
    said = run("analyse_csv.py", tmp_path / "sales.csv", "region", "amount")
    assert "4 rows, 1 without a value" in said and "'region': 'north'" in said
    assert (tmp_path / "summary.csv").read_text(encoding="utf-8").splitlines()[1] == "north,2,30.0,15.0"


def test_agent_team(run):
    said = run("agent_team.py")
    assert "{'hasty': 1, 'broken': 0, 'careful': 3} best: careful" in said and said.endswith("MMXXVI\n")


def test_tool_pool(run):
    lines = run("tool_pool.py").splitlines()
    assert lines == [f"{n} {2 * n} files: 2" for n in range(12)]


def page(self, where):
    """The site's first page leads to a second one, and to another site."""
    links = '<a href="http://web.test/page/2">2</a> <a href="http://other.test/page/3">3</a>' if where.path == "/page/1" else ""
    self.give(200, f"<html><title>Page {where.path[-1]}</title>{links}</html>".encode(), "text/html")


def test_scrape(tmp_path, monkeypatch):
    monkeypatch.setattr(net_site.Handler, "at_page", page, raising=False)
    with World() as world, Daemon(None, "--config", world.config()) as d:
        env = {**os.environ, "CLOCHE_URL": d.url, "CLOCHE_TOKEN": d.token}
        done = subprocess.run([sys.executable, EXAMPLES / "scrape.py", "http://web.test/page/1"], cwd=tmp_path, env=env,
                              capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert not d.get("/v1/sandboxes").json["sandboxes"]
    lines = done.stdout.splitlines()
    assert lines[:2] == ["http://web.test/page/1 - Page 1", "http://web.test/page/2 - Page 2"] or "Page 2" in done.stdout
    assert any("refused: other.test" in line for line in lines)


def test_evaluate_repository(run, tmp_path):
    repository = tmp_path / "repository"
    (repository / "tests").mkdir(parents=True)
    (repository / "lib.py").write_text("def double(n):\n    return 2 * n\n", encoding="utf-8")
    head = "import socket, unittest\nfrom lib import double\n\nclass T(unittest.TestCase):\n    def test(self):\n        "
    for name, body in {
        "good": "self.assertEqual(double(2), 4)",
        "wrong": "self.assertEqual(double(2), 5)",
        "greedy": "x = bytearray(2 << 30)",
        "online": "socket.create_connection(('192.0.2.1', 80), 5)",
        "vandal": "import shutil; shutil.rmtree('.', True); print('x' * 1000)",
    }.items():
        (repository / "tests" / f"test_{name}.py").write_text(head + body + "\n", encoding="utf-8")
    said = run("evaluate_repository.py", repository, code=1)
    found = dict(line.split(": ", 1) for line in said.splitlines() if line.startswith("tests/"))
    assert found["tests/test_good.py"] == found["tests/test_vandal.py"] == "passed"
    assert found["tests/test_wrong.py"] == found["tests/test_online.py"] == "failed"
    assert found["tests/test_greedy.py"].startswith("oom")
