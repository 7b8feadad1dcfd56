"""Warm templates: what takes long is done once, ahead, and every sandbox goes on from there."""
import pytest

from api import as_tenant, d, error, nothing_is_left_behind  # noqa: F401
from test_templates import clean, put, sh  # noqa: F401


def used(d, tenant="default"):
    return d.get(f"/v1/tenants/{tenant}").json["used"]


@pytest.mark.parametrize("warm,status,says", [
    ({}, 400, "{python} or {cmd, ready}"), ({"cmd": ["true"]}, 400, "{python} or {cmd, ready}"), ({"ready": "x"}, 400, "{python} or {cmd, ready}"),
    ({"python": "1", "cmd": ["a"], "ready": "b"}, 400, "{python} or {cmd, ready}"), ({"cmd": [], "ready": "x"}, 400, "cmd"), ({"cmd": [1], "ready": "x"}, 400, "cmd"),
    ({"cmd": ["true"], "ready": ""}, 400, "{python} or {cmd, ready}"), ({"python": "1", "timeout": 0}, 400, "timeout"), ({"python": "1", "timeout": 601}, 400, "timeout"),
    ({"python": "1", "more": 1}, 400, "more"), ({"python": "x" * 65537}, 400, "python"), ("python", 400, "warm"),
    ({"cmd": ["/no/such"], "ready": "x"}, 422, "/no/such"), ({"cmd": ["sh", "-c", "echo out; echo why not >&2; exit 3"], "ready": "ready"}, 422, "ended with 3 before it was ready: why not"),
    ({"cmd": ["sh", "-c", "echo alone"], "ready": "ready"}, 422, "alone"), ({"cmd": ["sleep", "1000"], "ready": "x", "timeout": 0.3}, 422, "in time"),
    ({"cmd": ["sh", "-c", "kill -9 $$"], "ready": "x"}, 422, "ended with 137"),
    ({"python": "import nothing_of_the_sort"}, 422, "ModuleNotFoundError: No module named 'nothing_of_the_sort'"), ({"python": "1 +"}, 422, "SyntaxError"),
    ({"python": "raise SystemExit(4)"}, 422, "ended with 4"), ({"python": "import time; time.sleep(100)", "timeout": 0.5}, 422, "in time"),
])
def test_what_does_not_become_warm_is_told_why_and_leaves_nothing(d, warm, status, says):
    before = used(d)
    e = error(d.put("/v1/templates/w", {"warm": warm}), status, "invalid" if status == 400 else "refused")
    assert says in e["message"], e
    error(d.get("/v1/templates/w"), 404, "not_found")
    assert used(d) == before and d.get("/v1/sandboxes?tenant=*").json["sandboxes"] == [] and d.get("/v1/checkpoints").json["checkpoints"] == []


def test_a_template_that_can_not_be_made_warm_stays_what_it_was(d):
    t = put(d, "w", memory="64M")
    error(d.put("/v1/templates/w", {"warm": {"cmd": ["false"], "ready": "x"}}), 422, "refused")
    assert d.get("/v1/templates/w").json == t and d.create(template="w")["memory"] == 64 << 20


def test_quotas_hold_for_it(d):
    other = as_tenant(d, "warm-q", quotas={"memory": "64M"})
    error(other.put("/v1/templates/w", {"memory": "80M", "warm": {"python": "1"}}), 429, "quota")
    assert used(d, "warm-q")["sandboxes"] == 0


def test_code_needs_a_warm_python(d):
    b = d.create()
    e = error(d.post(f"/v1/sandboxes/{b['id']}/execs", {"code": "print(1)"}), 409, "conflict")
    assert "warm" in e["message"] and "cmd" in e["remedy"]
    for bad in ({"code": "1", "cmd": ["a"]}, {"code": "1", "shell": "a"}, {"code": 1}):
        error(d.post(f"/v1/sandboxes/{b['id']}/execs", bad), 400, "invalid")
    assert sh(d, b, "echo on") == "on\n"
