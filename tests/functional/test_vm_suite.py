"""The suite of all tiers, for machines: a daemon for the module, so that one template serves nearly all of it."""
import pytest

from api import nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from small_image import machine_image
from tier_suite import *  # noqa: F401,F403 pylint: disable=wildcard-import,unused-wildcard-import
from tier_suite import Tier


@pytest.fixture(scope="module")
def tier(nothing_is_left_behind):  # noqa: F811
    with Daemon(None, "--images", machine_image().parent) as d:
        yield Tier("vm", d)
