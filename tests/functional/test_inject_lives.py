"""Egress continues to inject secrets after restarts, forks, hibernation and restores, with the CA the
sandbox knows, until the secret ends."""
import pytest

import host
from api import error, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from net_world import World

VALUE = "s3cret-that-goes-on"
USES = [{"name": "KEY", "as": "header", "to": "web.test"}]


@pytest.fixture(scope="module")
def w():
    with World() as one:
        yield one


@pytest.fixture
def d(nothing_is_left_behind, w):  # pylint: disable=redefined-outer-name,unused-argument
    with Daemon(None, "--config", w.config()) as one:
        assert one.put("/v1/secrets/KEY", {"value": VALUE}).status == 201
        yield one
        for b in one.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
            one.delete(f"/v1/sandboxes/{b['id']}")
        for c in one.get("/v1/checkpoints?limit=1000").json["checkpoints"]:
            one.delete(f"/v1/checkpoints/{c['id']}")


def healthy(d):
    try:
        return d.get("/healthz", timeout=5).status == 200
    except OSError:
        return False


def asks(d, w, box, want=VALUE):
    """One request; gives the sandbox's own authority, as its last lines."""
    w.web.heads.clear()

    def get():
        r = d.exec(box, "/bin/sh", "-c", "curl -sS -m 20 https://web.test/hello >/dev/null && tail -4 $SSL_CERT_FILE")
        return r["exit_code"] == 0 and r["stdout"]

    ca = host.wait_for(get, 30, "an answer") # egress may have to come back first
    seen = [v for k, v in w.web.heads[-1] if k.lower() == "authorization"]
    assert seen == (["Bearer " + want] if want else []), seen
    return ca


def test_it_goes_on_through_everything(d, w):
    box = d.create(network={"allow": ["web.test"]}, secrets=USES)["id"]
    at = f"/v1/sandboxes/{box}"
    ca = asks(d, w, box)
    d.kill9("api")
    host.wait_for(lambda: healthy(d), 20, "the API")
    assert asks(d, w, box) == ca
    d.restart()
    assert asks(d, w, box) == ca
    d.kill9("egress")
    assert asks(d, w, box) == ca
    fork = d.post(at + "/fork", {}).json["sandboxes"][0]["id"]
    assert asks(d, w, fork) != ca
    assert d.post(at + "/hibernate", {"memory": "auto"}).status == 200
    assert d.put("/v1/secrets/KEY", {"value": VALUE + "-2"}).status == 200
    assert asks(d, w, box, VALUE + "-2") == ca
    c = d.post(at + "/checkpoints", {}).json["id"]
    assert d.post(at + "/restore", {"checkpoint": c}).status == 200
    assert asks(d, w, box, VALUE + "-2") == ca
    assert d.post(at + "/pause").status == 200 and d.post(at + "/resume").status == 200
    asks(d, w, box, VALUE + "-2")
    # A policy that lets it through no more keeps nobody from waking up, nor from forking.
    assert d.put(at + "/network", {"mode": "none"}).status == 200
    assert d.post(at + "/hibernate", {"memory": "auto"}).status == 200
    assert d.exec(box, "/bin/sh", "-c", "curl -sS -m 20 https://web.test/hello")["exit_code"] != 0
    assert d.post(at + "/fork", {}).status == 201
    assert d.put(at + "/network", {"allow": ["web.test"]}).status == 200
    asks(d, w, box, VALUE + "-2")
    assert d.delete("/v1/secrets/KEY").status == 204
    asks(d, w, box, None)
    asks(d, w, fork, None)


def test_the_policy_has_to_let_it_through(d):
    for network in ("none", {"allow": ["other.test"]}, {"allow": ["web.test:80"]}):
        e = error(d.post("/v1/sandboxes", {"network": network, "secrets": USES}), 400, "invalid")
        assert "web.test:443" in e["message"] and "web.test:443" in e["remedy"]
    assert d.put("/v1/templates/t", {"secrets": USES}).status == 400
    assert d.put("/v1/templates/t", {"secrets": USES, "network": {"allow": ["*.test"]}}).status == 201
    assert d.delete("/v1/templates/t").status == 204
