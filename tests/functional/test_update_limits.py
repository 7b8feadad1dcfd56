"""PATCH and `cloche update`: other limits for a sandbox that is there, in force at once or when it runs again."""
import concurrent.futures
import datetime
import time

import pytest

import host
from api import as_tenant, d, error, nothing_is_left_behind  # noqa: F401

PATH = "/v1/sandboxes"
MB = 1 << 20
FILL = "exec python3 -c 'print(len(b\"x\" * (100 << 20)))'"
MANY = "exec python3 -c 'import subprocess; p = [subprocess.Popen([\"sleep\", \"9\"]) for _ in range(60)]; print(len(p)); [x.kill() for x in p]'"


@pytest.fixture
def box(d):
    made = d.create(memory="64M", pids=32, cpus=1, disk="64M")["id"]
    yield made
    d.delete(f"{PATH}/{made}")


def patch(d, box, **limits):
    return d.request("PATCH", f"{PATH}/{box}", limits)


def run(d, box, text):
    r = d.post(f"{PATH}/{box}/execs", {"shell": text})
    assert r.status == 200, r
    return r.json


def test_memory_changes_while_it_runs(d, box):
    x = d.post(f"{PATH}/{box}/execs", {"shell": "echo up; exec sleep 999", "background": True, "timeout": 0}).json["id"]
    assert run(d, box, FILL)["verdict"]["cause"] == "oom"
    r = patch(d, box, memory="256M")
    assert r.status == 200 and r.json["memory"] == 256 * MB and r.json["enforced"]["memory"].startswith(str(256 * MB)), r
    assert run(d, box, FILL)["stdout"].strip() == str(100 * MB)
    assert d.get(f"{PATH}/{box}/stats").json["memory_limit"] == 256 * MB
    assert run(d, box, "grep MemTotal /proc/meminfo")["stdout"].split()[1] == str(256 * 1024)
    assert patch(d, box, memory="64M").json["memory"] == 64 * MB
    assert run(d, box, FILL)["verdict"]["cause"] == "oom"
    assert d.get(f"{PATH}/{box}/execs/{x}").json["state"] == "running"


def test_memory_below_what_is_in_use_is_refused(d, box):
    assert patch(d, box, memory="256M").status == 200
    assert run(d, box, "head -c 50M /dev/zero > /tmp/full")["exit_code"] == 0
    assert "in use" in error(patch(d, box, memory="32M"), 409, "conflict")["message"]
    assert d.get(f"{PATH}/{box}").json["memory"] == 256 * MB
    assert run(d, box, FILL)["stdout"].strip() == str(100 * MB)


def test_pids_and_cpus(d, box):
    assert run(d, box, MANY)["exit_code"] == 1
    assert patch(d, box, pids=128).json["pids"] == 128
    assert run(d, box, MANY)["stdout"].strip() == "60"
    assert run(d, box, "cat /sys/fs/cgroup/cpu.max")["stdout"] == "100000 100000\n"
    assert patch(d, box, cpus=0.5).json["enforced"]["cpus"] == "0.500 cores"
    assert run(d, box, "cat /sys/fs/cgroup/cpu.max")["stdout"] == "50000 100000\n"


def test_the_daemon_and_the_warden_know_it_after_they_died(d, box):
    assert patch(d, box, memory="256M", pids=64).status == 200
    for part in ("warden", "api"):
        d.kill9(part)
        assert d.get(f"{PATH}/{box}").json["memory"] == 256 * MB
        assert run(d, box, FILL)["stdout"].strip() == str(100 * MB)


def test_one_that_sleeps_wakes_with_them(d, box):
    assert "hibernate" in error(patch(d, box, disk="128M"), 501, "unsupported")["remedy"]
    assert d.post(f"{PATH}/{box}/hibernate").status == 200
    r = patch(d, box, disk="128M", memory="256M")
    assert r.status == 200 and r.json["state"] == "hibernated", r
    assert run(d, box, "head -c 100M /dev/zero > big; stat -c %s big")["stdout"].strip() == str(100 * MB)


def test_one_that_is_stopped_starts_with_them_and_is_not_charged_before(d):
    k = as_tenant(d, "still")
    used = lambda: d.get("/v1/tenants/still").json["used"]  # noqa: E731
    box = k.create(storage="disk", disk="64M", memory="128M", cpus=1)["id"]
    path = f"{PATH}/{box}"
    try:
        assert used()["memory"] == 128 * MB
        assert k.post(f"{path}/stop").json["state"] == "stopped" and used()["memory"] == 0
        for memory, cpus in ((64, 0.5), (256, 2), (192, 1)):
            r = k.request("PATCH", path, {"memory": f"{memory}M", "cpus": cpus})
            assert r.status == 200 and r.json["memory"] == memory * MB and r.json["state"] == "stopped", r
            assert used()["memory"] == 0 and used()["cpus"] == 0
        # Its files are open from here on: what has them is what is started.
        host.wait_for(lambda: k.get(f"{path}/files?path=/etc/passwd").status == 200, 30)
        assert used()["memory"] == 192 * MB
        assert k.request("PATCH", path, {"memory": "96M"}).status == 200 and used()["memory"] == 96 * MB
        assert k.request("PATCH", path, {"memory": "256M"}).status == 200 and used()["memory"] == 256 * MB
        assert k.post(f"{path}/start").json["state"] == "running" and used()["memory"] == 256 * MB
        assert k.get(f"{path}/stats").json["memory_limit"] == 256 * MB
        assert run(k, box, FILL)["stdout"].strip() == str(100 * MB)
    finally:
        assert k.delete(path).status == 204
    assert used()["memory"] == 0 and used()["cpus"] == 0 and used()["disk"] == 0
    d.delete("/v1/tenants/still")
    assert d.get(PATH).status == 200


def test_two_at_once_come_one_after_the_other(d):
    k = as_tenant(d, "twice")
    box = k.create(memory="64M")["id"]
    path = f"{PATH}/{box}"
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for _ in range(10):
                asked = [128, 256]
                answers = list(pool.map(lambda m: k.request("PATCH", path, {"memory": f"{m}M"}), asked))
                assert [(r.status, r.json["memory"]) for r in answers] == [(200, m * MB) for m in asked], answers
                now = k.get(path).json["memory"]
                assert now in (128 * MB, 256 * MB) and k.get(f"{path}/stats").json["memory_limit"] == now
                assert d.get("/v1/tenants/twice").json["used"]["memory"] == now
                assert k.request("PATCH", path, {"memory": "64M"}).status == 200
    finally:
        assert k.delete(path).status == 204
    assert d.get("/v1/tenants/twice").json["used"]["memory"] == 0
    d.delete("/v1/tenants/twice")


def test_quotas_bounds_and_nonsense(d):
    d.post("/v1/tenants", {"id": "small", "quotas": {"memory": "128M"}})
    k = d.post("/v1/tokens", {"tenant": "small", "scope": "sandbox"}).json
    box = d.post(PATH, {"memory": "64M"}, token=k["token"]).json["id"]
    used = lambda: d.get("/v1/tenants/small").json["used"]["memory"]  # noqa: E731
    try:
        error(d.request("PATCH", f"{PATH}/{box}", {"memory": "256M"}, token=k["token"]), 429, "quota")
        assert used() == 64 * MB
        assert d.request("PATCH", f"{PATH}/{box}", {"memory": "100M"}, token=k["token"]).status == 200 and used() == 100 * MB
        assert d.request("PATCH", f"{PATH}/{box}", {"memory": "64M"}, token=k["token"]).status == 200 and used() == 64 * MB
        for bad in ({"memory": 0}, {"memory": "1M"}, {"pids": 1}, {"memory": "64M", "name": "x"}, {"cpus": "x"}):
            error(patch(d, box, **bad), 400, "invalid")
    finally:
        d.delete(f"{PATH}/{box}")
        d.delete("/v1/tenants/small")


@pytest.mark.parametrize("halt, state", [("pause", "paused"), ("hibernate", "hibernated")])
def test_a_command_pays_for_no_pause_however_often_its_row_is_written(d, box, halt, state):
    path = f"{PATH}/{box}"
    x = d.post(f"{path}/execs", {"cmd": ["sleep", "999"], "background": True, "timeout": 60}).json["id"]
    ends = lambda: d.get(f"{path}/execs/{x}").json["ends_at"]  # noqa: E731
    assert ends()
    assert d.post(f"{path}/{halt}").status == 200
    assert ends() is None and d.get(path).json["state"] == state
    time.sleep(6)
    assert patch(d, box, pids=64).status == 200
    d.kill9("api")
    assert ends() is None
    assert d.post(f"{path}/resume").status == 200
    left = datetime.datetime.fromisoformat(ends().replace("Z", "+00:00")) - datetime.datetime.now(datetime.timezone.utc)
    assert 55 < left.total_seconds() <= 60
