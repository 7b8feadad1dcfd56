import os
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
pytest.register_assert_rewrite("tier_suite")
import host  # noqa: E402

# Whoever started us may have told us to ignore these (nohup, a shell's background job), and cloche would obey, too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


private = []


def pytest_configure(config):
    if os.geteuid() != 0:
        raise pytest.UsageError("the functional tests need root (those without root drop it themselves)")
    if not host.CLOCHE.exists():
        raise pytest.UsageError(f"{host.CLOCHE} is missing: run make")
    host.become_subreaper()
    private.extend([host.PrivateTmp(), host.PrivateCgroups()])


def pytest_unconfigure(config):
    for one in reversed(private):
        one.done()


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    watch = host.Watch()
    yield
    left = watch.left()
    assert not left, "left behind:\n" + "\n".join(sorted(left))


@pytest.fixture
def popen():
    """cloche run in the background; whatever happens, it is gone when the test ends."""
    started = []

    def popen(*args, **kw):
        started.append(host.start(*args, **kw))
        return started[-1]

    yield popen
    for p in started:
        host.end(p)


@pytest.fixture
def shared(tmp_path):
    """A folder of the host to mount: of uid 1234, as a user's would be."""
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, 1234, 1234)
    return folder
