"""A real daemon for the tests, and a loop for those that are written for asyncio.

tests/both holds tests of both clients: pytest runs them as they are, and test_sync.py what scripts/unasync.py makes of them.
"""
import asyncio
import inspect
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "functional"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from daemon import Daemon  # noqa: E402
from image_registry import Registry, free_port  # noqa: E402

import cloche  # noqa: E402

REGISTRY = free_port()
CONFIG = f"spool_max = 1M\nnetwork_private = 127.0.0.1:{REGISTRY}\n"
loop = asyncio.new_event_loop()


def pytest_unconfigure(config):
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def pytest_configure(config):
    if os.geteuid() != 0:
        raise pytest.UsageError("the daemon makes sandboxes as root: run the tests as root")


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    config = tmp_path_factory.mktemp("cloche") / "config"
    config.write_text(CONFIG)
    with Daemon(None, "--stop-sandboxes", "--config", config) as d:
        yield d


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    r = Registry(tmp_path_factory.mktemp("registry"))
    r.port, r.host = REGISTRY, f"127.0.0.1:{REGISTRY}"
    with r:
        yield r


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs a coroutine to its end, and refuses what it leaves behind."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    args = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    problems = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    loop.run_until_complete(asyncio.wait_for(pyfuncitem.obj(**args), 120))
    loop.set_exception_handler(None)
    assert not problems, problems
    return True


@pytest.fixture
def client(request, daemon):
    """The client that the module of the test is written for."""
    kind = getattr(request.module, "AsyncCloche", None)
    if kind is None:
        with cloche.Cloche(daemon.url, daemon.token) as c:
            yield c
        return

    async def make():
        return kind(daemon.url, daemon.token)

    c = loop.run_until_complete(make())
    yield c
    loop.run_until_complete(c.aclose())


@pytest.fixture
def sandbox(request, client):
    if isinstance(client, cloche.Cloche):
        with client.sandboxes.create(memory="256M") as s:
            yield s
        return
    s = loop.run_until_complete(client.sandboxes.create(memory="256M"))
    yield s
    loop.run_until_complete(s.__aexit__(None, None, None))
