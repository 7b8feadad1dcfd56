"""Fixtures: a kernel of each language for the tests of one file."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from kernel import Kernel  # noqa: E402


@pytest.fixture(scope='module')
def shared():
    """One Python kernel for tests that leave it usable."""
    with Kernel() as k:
        yield k


@pytest.fixture
def fresh():
    with Kernel() as k:
        yield k
