"""`packages` of a run: installed by pip and npm through the egress policy, once for each list."""
import os
import signal
import time

import pytest

from api import Raw, d, error, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from net_world import World

CODE = "import cloche_sample as s; s.__name__"
NETWORK = {"allow": ["web.test"]}


@pytest.fixture(scope="module")
def world():
    with World() as one:
        yield one


def env(world):
    return {"PIP_INDEX_URL": "http://web.test/simple/", "PIP_TRUSTED_HOST": "web.test", "NPM_CONFIG_REGISTRY": "http://web.test/"}


def run(d, world, **fields):
    return d.post("/v1/run", {"code": CODE, "packages": ["cloche-sample"], "env": env(world), **fields})


def value(r):
    assert r.status == 200 and r.json["error"] is None, r
    return r.json["results"][0]["mime"]["text/plain"]


def test_a_list_is_installed_once_and_then_needs_no_network(world):
    with Daemon(None, "--config", world.config()) as d:
        e = error(run(d, world), 403, "denied")
        assert "no network" in e["message"] and "network_set" in e["remedy"]
        e = error(run(d, world, network={"allow": ["other.test"]}), 422, "refused")
        assert "cannot be installed" in e["message"] and "`network`" in e["remedy"]
        assert value(run(d, world, network=NETWORK)) == "'cloche_sample'"
        assert value(run(d, world)) == "'cloche_sample'"
        assert value(run(d, world, artifacts=True)) == "'cloche_sample'"
        # The network of the installation is not the code's.
        code = "import urllib.request as u\ntry:\n  u.urlopen('http://web.test/hello', timeout=5); r = 'reached'\nexcept OSError: r = 'not'\nr"
        assert value(run(d, world, code=code)) == "'not'"
        assert value(run(d, world, code=code, network=NETWORK)) == "'reached'"
        assert d.get("/v1/sandboxes").json["sandboxes"] == [] and d.get("/v1/checkpoints").json["checkpoints"] == []


def test_npm_installs_as_well(world):
    with Daemon(None, "--config", world.config()) as d:
        r = run(d, world, language="js", code="require('cloche-sample') + 0", network=NETWORK)
        assert value(r) == "42"


def test_an_administrator_may_allow_installations(world):
    with Daemon(None, "--config", world.config("network_set = packages: web.test")) as d:
        assert value(run(d, world)) == "'cloche_sample'"


def test_what_is_no_list_of_packages(d):
    for packages in ("numpy", [1], [""], ["--target=/"], ["x"] * 65):
        error(d.post("/v1/run", {"code": "1", "packages": packages}), 400, "invalid")
    error(d.post("/v1/run", {"code": "1", "language": "bash", "packages": ["x"]}), 400, "invalid")
    assert d.post("/v1/run", {"code": "1", "packages": []}).status == 200


def test_a_list_that_is_about_to_be_used_is_not_removed(world):
    """Eight lists of a tenant are kept. A ninth in the same moment as a run with the only finished one removed that before its use."""
    with Daemon(None, "--config", world.config()) as d:
        assert value(run(d, world, network=NETWORK)) == "'cloche_sample'"
        body = {"code": CODE, "env": env(world), "network": NETWORK}
        others = [Raw(d, "POST", "/v1/run", {**body, "packages": [f"none-{i}"]}, timeout=60) for i in range(7)]
        api = d.children()["api"]
        time.sleep(0.1)
        os.kill(api, signal.SIGSTOP)
        last = [Raw(d, "POST", "/v1/run", {**body, "packages": [name]}, timeout=60) for name in ("cloche-sample", "none")]
        os.kill(api, signal.SIGCONT)
        assert [x.head()[0] for x in last] == [200, 422] and {x.head()[0] for x in others} == {422}
        for x in last + others:
            x.close()
        assert d.children()["api"] == api
