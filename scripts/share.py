"""A pytest plugin: several pytest processes share the tests of one folder.

    CLOCHE_SHARE=FOLDER PYTHONPATH=scripts pytest -p share tests/functional     (as often as wanted, at once)

All of them collect all tests, then each takes the next piece that nobody has taken yet, by making a file in FOLDER. A
piece is what has to stay together: the tests of a file that share a fixture. Tests that share none are taken a few at a
time. How many tests there are is noted in FOLDER, so that whoever started the processes can see that none was lost.

After each piece a line "cpu SECONDS FILE" says what it took, with all processes that it started and waited for.
"""
import hashlib
import itertools
import os

import pytest

FEW = 6


def shares_a_fixture(item):
    found = getattr(item, '_fixtureinfo', None)
    return found is None or any(d.scope != 'function' for name, defs in found.name2fixturedefs.items()
                                for d in defs[-1:] if name not in BUILT_IN)


# pytest's own, which cost nothing to have more than once
BUILT_IN = {'request', 'tmp_path_factory', 'pytestconfig', 'record_testsuite_property'}


def pieces(items):
    for _, group in itertools.groupby(items, lambda item: item.nodeid.split('::')[0]):
        group = list(group)
        size = len(group) if any(map(shares_a_fixture, group)) else FEW
        for at in range(0, len(group), size):
            yield group[at:at + size]


def take(folder, name):
    """Whether nobody did so before."""
    try:
        os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def ours(folder, items):
    for piece in pieces(items):
        if take(folder, hashlib.sha256(piece[0].nodeid.encode()).hexdigest()):
            yield from piece


def used():
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    folder = os.environ.get('CLOCHE_SHARE')
    if not folder or session.testsfailed or session.config.option.collectonly:
        return None  # as ever; what could not be collected is told there
    take(folder, f'{len(session.items)}.collected')
    waiting = ours(folder, session.items)
    item, before = next(waiting, None), used()
    while item:
        after = next(waiting, None)  # known before this one ends: it may need the same fixtures
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.shouldfail or session.shouldstop:
            raise session.Interrupted(session.shouldfail or session.shouldstop)
        if not after or after.nodeid.split('::')[0] != item.nodeid.split('::')[0]:
            terminal = item.config.pluginmanager.get_plugin('terminalreporter')
            terminal.ensure_newline()
            terminal.write_line(f'cpu {used() - before:.1f} {item.nodeid.split("::")[0]}')
            before = used()
        item = after
    return True
