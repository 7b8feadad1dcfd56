"""What the tests of all adapters have: a real daemon, a client, a sandbox. scripts/frameworks.py passes this file with -p."""
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "functional"))
from daemon import Daemon  # noqa: E402

import cloche  # noqa: E402


def pytest_configure(config):
    if os.geteuid() != 0:
        raise pytest.UsageError("the daemon makes sandboxes as root: run the tests as root")


@pytest.fixture(scope="session")
def daemon():
    with Daemon(None, "--stop-sandboxes") as d:
        yield d


@pytest.fixture(scope="session")
def environ(daemon):
    """CLOCHE_URL and CLOCHE_TOKEN are those of the daemon."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("CLOCHE_URL", daemon.url)
        m.setenv("CLOCHE_TOKEN", daemon.token)
        yield


@pytest.fixture(scope="session")
def client(daemon):
    with cloche.Cloche(daemon.url, daemon.token) as c:
        yield c


@pytest.fixture
def sandbox(client):
    with client.sandboxes.create(memory="512M") as s:
        yield s
