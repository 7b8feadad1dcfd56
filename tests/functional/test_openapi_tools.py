"""What others make of docs/openapi.json: linters, generators of clients, and schemathesis against a daemon.

The tools come from npm and PyPI into BUILD/openapi-tools, once. CLOCHE_LONG=1 lets schemathesis try more.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import host
from api import nothing_is_left_behind, tenant, token  # noqa: F401
from daemon import Daemon

PATH = host.ROOT / "docs/openapi.json"
DOC = json.loads(PATH.read_text())
OPERATIONS = {op["operationId"]: op for item in DOC["paths"].values() for op in item.values()}
TOOLS = host.BUILD / "openapi-tools"
NPM = ["@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3", "openapi-typescript@7.13.0", "typescript@5.9.3"]
PYPI = ["schemathesis==4.32.5", "openapi-python-client==0.29.1"]
OWN = pathlib.Path(__file__).parent / "openapi"
LONG = os.environ.get("CLOCHE_LONG") == "1"
PHASES = ["--phases", "examples,coverage,fuzzing", "--max-examples", "60"] if LONG else ["--phases", "examples,coverage"]
# Linters want a 2xx of every operation. These have 101.
UPGRADES = [(path, method) for path, item in DOC["paths"].items() for method, op in item.items() if "101" in op["responses"]]


def run(*argv, **kw):
    p = subprocess.run(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=kw.pop("stderr", subprocess.STDOUT),
                       text=True, check=False, timeout=kw.pop("timeout", 300), **kw)
    return p.returncode, p.stdout


@pytest.fixture(scope="module")
def tools():
    """Installed as their versions say; a change of those installs anew."""
    TOOLS.mkdir(exist_ok=True)
    wanted, note = "\n".join([sys.version, *NPM, *PYPI]), TOOLS / "installed"
    with open(TOOLS / "lock", "w") as lock:  # pylint: disable=unspecified-encoding
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists() or note.read_text() != wanted:
            for name in ("py", "node_modules"):
                shutil.rmtree(TOOLS / name, ignore_errors=True)
            for argv in ([sys.executable, "-m", "venv", TOOLS / "py"], [TOOLS / "py/bin/pip", "install", "-q", *PYPI],
                         ["npm", "install", "--prefix", TOOLS, "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", *NPM]):
                code, out = run(*argv, timeout=600)
                assert code == 0, out[-3000:]
            note.write_text(wanted)
    return TOOLS


def npx(tools, name, *args, **kw):  # pylint: disable=redefined-outer-name
    return run(tools / "node_modules/.bin" / name, *args, cwd=tools, env={**os.environ, "REDOCLY_TELEMETRY": "off"}, **kw)


def test_redocly_has_no_warning(tools):
    _, out = npx(tools, "redocly", "lint", PATH, "--extends", "recommended", "--format", "json", stderr=subprocess.DEVNULL)
    said = json.loads(out[out.index("{"):])["problems"]
    expected = {"#/paths/" + path.replace("/", "~1") + f"/{method}/responses" for path, method in UPGRADES}
    left = [p for p in said if p["ruleId"] != "operation-2xx-response" or p["location"][0]["pointer"] not in expected]
    assert not left, left
    assert len(said) == len(UPGRADES)


def test_spectral_has_no_warning(tools, tmp_path):
    (tmp_path / "rules.yaml").write_text('extends: ["spectral:oas"]\n')
    _, out = npx(tools, "spectral", "lint", "-r", tmp_path / "rules.yaml", "-f", "json", PATH, stderr=subprocess.DEVNULL)
    said = json.loads(out[out.index("["):out.rindex("]") + 1])
    expected = [["paths", path, method, "responses"] for path, method in UPGRADES]
    left = [p for p in said if p["code"] != "operation-success-response" or p["path"] not in expected]
    assert not left, left
    assert len(said) == len(UPGRADES)


def test_openapi_typescript_has_every_operation(tools, tmp_path):
    code, out = npx(tools, "openapi-typescript", PATH, "-o", tmp_path / "api.ts")
    assert code == 0 and not re.search("warn|error", out, re.I), out
    text = (tmp_path / "api.ts").read_text()
    for name in OPERATIONS:
        assert re.search(rf"^    {name}: {{$", text, re.M), name
    (tmp_path / "use.ts").write_text(
        'import type { components, operations } from "./api";\n'
        'type Create = components["schemas"]["SandboxCreate"];\n'
        'export const create: Create = { memory: "1G", network: { allow: ["packages.example"] }, tmpfs: [{ path: "/t", size: 1 }] };\n'
        'export const exec: components["schemas"]["ExecCreate"] = { shell: "true" };\n'
        'export const id: operations["getSandbox"]["parameters"]["path"]["id"] = "a";\n')
    code, out = npx(tools, "tsc", "--strict", "--noEmit", tmp_path / "use.ts")
    assert code == 0, out


def snake(name):
    return re.sub("([A-Z])", r"_\1", name).lower()


def test_openapi_python_client_has_every_operation(tools, tmp_path):
    (tmp_path / "config.yml").write_text("post_hooks: []\n")
    code, out = run(tools / "py/bin/openapi-python-client", "generate", "--path", PATH, "--output-path", tmp_path / "client", "--config", tmp_path / "config.yml")
    assert code == 0 and out.strip().startswith("Generating") and len(out.splitlines()) == 1, out
    made = {f.stem for f in (tmp_path / "client").glob("*/api/*/*.py")}
    missing = {name for name in OPERATIONS if snake(name) not in made}
    assert not missing, missing
    code, out = run(tools / "py/bin/python", "-W", "error", "-m", "compileall", "-q", tmp_path / "client")
    assert code == 0, out


class Fuzzed:
    """A daemon without virtual machines, which take minutes where they are emulated."""

    def __init__(self, tools, folder):  # pylint: disable=redefined-outer-name
        self.tools, self.folder = tools, folder
        (folder / "vm").mkdir(mode=0o700)
        (folder / "conf").write_text(f"vm = {folder}/vm\n")
        self.d = Daemon(None, "--config", folder / "conf")

    def __call__(self, secret, *args):
        """What schemathesis printed; it must have found nothing, and not have taken its own token away."""
        code, out = run(self.tools / "py/bin/schemathesis", "--config-file", OWN / "schemathesis.toml", "run", PATH, "--url", self.d.url, "--header", f"Authorization: Bearer {secret}",
                        "--generation-database", "none", "--seed", "1", *args, cwd=self.folder, env={**os.environ, "SCHEMATHESIS_HOOKS": str(OWN / "hooks.py"), "NO_COLOR": "1"},
                        timeout=3000 if LONG else 900)
        assert code == 0, out[-12000:]
        assert self.d.get("/v1/whoami", token=secret).status == 200
        return out


@pytest.fixture(scope="module")
def fuzzed(tools, tmp_path_factory):  # pylint: disable=redefined-outer-name
    folder = tmp_path_factory.mktemp("fuzzed")
    os.chmod(folder, 0o755)
    f = Fuzzed(tools, folder)
    with f.d:
        yield f


def test_schemathesis_finds_nothing_as_a_tenant(fuzzed):
    tenant(fuzzed.d, "fuzz", quotas={"sandboxes": 40, "execs": 200, "checkpoints": 40, "secrets": 40})
    secret = token(fuzzed.d, tenant="fuzz", scope="sandbox")["token"]
    out = fuzzed(secret, *PHASES)
    assert len(OPERATIONS) == int(re.search(r"Tested: +(\d+)", out).group(1)), out
    for box in fuzzed.d.get("/v1/sandboxes?tenant=fuzz&limit=1000").json["sandboxes"]:  # their quota is for the next run
        fuzzed.d.delete(f"/v1/sandboxes/{box['id']}")
    out = fuzzed(secret, "--phases", "stateful", "--max-examples", "300" if LONG else "10")
    assert int(re.search(r"(\d+) covered", out).group(1)) >= 5, out


def test_schemathesis_finds_nothing_as_an_admin(fuzzed):
    secret = token(fuzzed.d, scope="admin")["token"]
    fuzzed(secret, *PHASES, "--include-tag", "access", "--include-tag", "audit", "--include-tag", "info")
