import importlib.util
import os
import pathlib
import sys

import pytest

FUNCTIONAL = pathlib.Path(__file__).resolve().parents[2] / "functional"
sys.path[:0] = [str(FUNCTIONAL), str(pathlib.Path(__file__).parent)]


def _functional():
    """The functional tests' own conftest: a private /tmp and private cgroups, so that leftovers are noticed for
    certain."""
    spec = importlib.util.spec_from_file_location("functional_conftest", FUNCTIONAL / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_shared = _functional()
pytest_configure, pytest_unconfigure = _shared.pytest_configure, _shared.pytest_unconfigure

import host  # noqa: E402
from client import Noid  # noqa: E402
from daemon import Daemon  # noqa: E402

TOKEN = "noid_tok_" + "0123456789abcdef" * 4


def _ours(left):
    """Without the wardens' folders of daemons others have on this machine meanwhile."""
    return getattr(Daemon, "ours", lambda x: x)(left)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind():
    watch = host.Watch()
    yield
    left = _ours(watch.left())
    assert not left, "left behind:\n" + "\n".join(sorted(left))


def noid_daemon(*args):
    """A daemon whose first token has Noid's form, as for users who come from Noid."""
    d = Daemon(None, *args)
    d.token_file.write_text(TOKEN + "\n")
    os.chmod(d.token_file, 0o600)
    return d


@pytest.fixture
def make_daemon():
    made = []

    def make(*args):
        made.append(noid_daemon(*args))
        return made[-1].start()

    yield make
    for d in made:
        d.done()


@pytest.fixture(scope="module")
def d(nothing_is_left_behind):
    with noid_daemon() as one:
        yield one


@pytest.fixture(scope="module")
def noid(d):
    return Noid(d.url, TOKEN)


@pytest.fixture
def vm(noid, request):
    """A VM of the test's own, gone afterwards."""
    name = request.node.originalname
    noid.create(name)
    yield name
    noid.call("DELETE", f"/v1/vms/{name}")
