"""Inspect's own conformance tests of sandboxes, all in one sandbox."""
import pytest
import pytest_asyncio
from cloche_inspect import ClocheConfig, ClocheSandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment(environ):
    made = await ClocheSandboxEnvironment.sample_init("self-check", ClocheConfig(memory="1G"), {})
    yield made["default"]
    await ClocheSandboxEnvironment.sample_cleanup("self-check", None, made, False)


@pytest.fixture
def sandbox_env(environment):
    return environment
