"""The suite of all tiers, for machines: a daemon for the module, so that one template serves nearly all of it."""
import pytest

from api import error, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from small_image import machine_image
from tier_suite import *  # noqa: F401,F403 pylint: disable=wildcard-import,unused-wildcard-import
from tier_suite import Tier, clean  # noqa: F401


@pytest.fixture(scope="module")
def tier(nothing_is_left_behind):  # noqa: F811
    with Daemon(None, "--images", machine_image().parent) as d:
        yield Tier("vm", d)


def test_files_of_a_container_become_those_of_a_machine_and_back(tier, clean):  # noqa: F811
    b = tier.create(isolation="container", storage="memory", user="root", workdir="/w", env={"WORD": "kept"})
    tier.sh(b, "echo from a container > a; rm /etc/passwd")
    m = tier.create()
    r = tier.d.get(f"/v1/sandboxes/{m['id']}/diff?from=sandbox:{b['id']}")
    assert "different isolation" in error(r, 422, "refused")["message"]
    f, = tier.call("POST", b, "/fork", {}, 201).json["sandboxes"]
    assert "not a fork of" in error(tier.call("POST", m, "/promote", {"from": f["id"]}, 409), 409, "conflict")["message"]
    tier.delete(m, f)
    for isolation in ("vm", "container"):
        packed = tier.d.get(f"/v1/checkpoints/{tier.checkpoint(b)['id']}/export", timeout=150)
        r = tier.d.post(f"/v1/checkpoints/import?isolation={isolation}", packed.body, timeout=150)
        assert packed.status == 200 and r.status == 201 and r.json["isolation"] == isolation, r
        b, = tier.restore(r.json)
        assert b["isolation"] == isolation and ("machine" in b["enforced"]) == (isolation == "vm")
        assert tier.sh(b, "cat a; echo $WORD; test -e /etc/passwd || echo gone")["stdout"] == "from a container\nkept\ngone\n"
    error(tier.d.post("/v1/checkpoints/import?isolation=wasm", b"", timeout=150), 501, "unsupported")
