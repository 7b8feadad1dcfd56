"""The same rules as for the functional tests: a /tmp and cgroups of our own, and nothing may be left behind."""
import importlib.util
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "functional"))
sys.path.insert(0, str(HERE))
_spec = importlib.util.spec_from_file_location("functional_conftest", HERE.parent / "functional/conftest.py")
_functional = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_functional)
pytest_configure = _functional.pytest_configure
pytest_unconfigure = _functional.pytest_unconfigure
host = _functional.host


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    watch = host.Watch()
    yield
    # Other daemons of this machine have their folders there, too; ours is looked at below.
    left = {x for x in watch.left() if not x.startswith("file /run/cloche/w-")}
    assert not left, "left behind:\n" + "\n".join(sorted(left))


@pytest.fixture
def daemon(nothing_is_left_behind):
    from crash import Crashing
    with Crashing() as d:
        state = d.state_folder()
        assert state.is_dir()
        yield d
    assert not state.exists(), "the warden's records are left behind"
    log = "\n".join(d.log)
    assert "AddressSanitizer" not in log and "runtime error" not in log and "Assertion" not in log, log[-8000:]
