"""Sandboxes that sleep: they cost nothing, and go on where they were with the next call."""
import pathlib
import time

import pytest

import host
from api import as_tenant, d, error, eventually, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints_memory import COUNT, background, output


@pytest.fixture
def clean(d):
    yield
    for b in d.get("/v1/sandboxes?limit=1000&tenant=*").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")
    eventually(lambda: not d.layers(), 20)


# A connection that nothing has accepted.
UNCARRIED = ("exec python3 -c 'import socket,time; a=socket.socket(); a.bind((\"127.0.0.1\",0)); a.listen(); "
             "c=socket.create_connection(a.getsockname()); c.send(b\"x\"); print(1, flush=True); time.sleep(1000)'")


def state(d, b):
    return d.get(f"/v1/sandboxes/{b['id']}").json["state"]


def processes(marker):
    """How many processes of this machine have it in their command line."""
    n = 0
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            n += marker.encode() in p.read_bytes()
        except OSError:
            pass
    return n


def follows(numbers):
    numbers = [int(n) for n in numbers]
    return numbers == list(range(1, len(numbers) + 1))


def test_it_sleeps_and_the_next_call_wakes_it(d, clean):
    b = d.create(env={"A": "b"}, name="sleeper")
    d.exec(b["id"], "sh", "-c", "echo kept > f; echo shm > /dev/shm/x")
    x = background(d, b, COUNT + " # marker-7f3a")
    eventually(lambda: len(output(d, b, x)) > 5)
    r = d.post("/v1/sandboxes/sleeper/hibernate")
    assert r.status == 200 and r.json["state"] == "hibernated", r
    eventually(lambda: processes("marker-7f3a") == 0)
    said = len(output(d, b, x))
    assert d.get(f"/v1/sandboxes/sleeper/execs/{x}").json["state"] == "running"
    assert d.get("/v1/sandboxes/sleeper/stats").json["memory"] == 0 and state(d, b) == "hibernated"
    assert d.post("/v1/sandboxes/sleeper/hibernate").json["state"] == "hibernated"
    time.sleep(0.5)
    assert len(output(d, b, x)) == said
    assert d.exec(b["id"], "sh", "-c", "cat f; echo $A")["stdout"] == "kept\nb\n"
    assert state(d, b) == "running"
    eventually(lambda: len(output(d, b, x)) > said + 3)
    assert follows(output(d, b, x)), output(d, b, x)
    for _ in range(3):
        assert d.post("/v1/sandboxes/sleeper/hibernate").status == 200
        assert d.post("/v1/sandboxes/sleeper/resume").json["state"] == "running"
    said = len(output(d, b, x))
    eventually(lambda: len(output(d, b, x)) > said)
    assert follows(output(d, b, x)), output(d, b, x)
    ended = d.request("DELETE", f"/v1/sandboxes/sleeper/execs/{x}").json
    assert ended["verdict"]["cause"] == "killed"


def test_it_can_be_woken_with_its_files_only(d, clean):
    b = d.create()
    d.exec(b["id"], "sh", "-c", "echo kept > f")
    x = background(d, b, COUNT)
    eventually(lambda: len(output(d, b, x)) > 2)
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").json["state"] == "hibernated"
    r = d.post(f"/v1/sandboxes/{b['id']}/resume?memory=0")
    assert r.status == 200 and r.json["state"] == "running", r
    assert d.get(f"/v1/sandboxes/{b['id']}/execs/{x}").json["state"] == "ended"
    assert d.exec(b["id"], "cat", "f")["stdout"] == "kept\n"


def test_all_that_come_at_once_are_served(d, clean):
    b = d.create()
    d.exec(b["id"], "sh", "-c", "echo 1 > f")
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    said = parallel(8, lambda i: d.exec(b["id"], "sh", "-c", f"cat f; echo {i}")["stdout"])
    assert said == [f"1\n{i}\n" for i in range(8)]
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    assert d.get(f"/v1/sandboxes/{b['id']}/files?path=f").body == b"1\n"
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    assert d.post(f"/v1/sandboxes/{b['id']}/checkpoints").status == 201
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    kid = d.post(f"/v1/sandboxes/{b['id']}/fork").json["sandboxes"][0]
    assert d.exec(kid["id"], "cat", "f")["stdout"] == "1\n"
    c = d.get(f"/v1/sandboxes/{b['id']}/checkpoints").json["checkpoints"][0]
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    assert d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": c["id"]}).json["state"] == "running"
    d.delete(f"/v1/checkpoints/{c['id']}")


def test_a_second_one_that_a_call_names_is_not_woken(d, clean):
    b = d.create()
    kid = d.post(f"/v1/sandboxes/{b['id']}/fork").json["sandboxes"][0]
    d.exec(kid["id"], "sh", "-c", "echo 1 > f")
    assert d.post(f"/v1/sandboxes/{kid['id']}/hibernate").status == 200
    for r in (d.post(f"/v1/sandboxes/{b['id']}/promote", {"from": kid["id"]}), d.get(f"/v1/sandboxes/{b['id']}/diff?from=sandbox:{kid['id']}")):
        assert "resume" in error(r, 409, "conflict")["remedy"], r
    assert d.post(f"/v1/sandboxes/{kid['id']}/resume").json["state"] == "running"
    assert d.post(f"/v1/sandboxes/{b['id']}/promote", {"from": kid["id"]}).json["added"] == 1
    assert d.exec(b["id"], "cat", "f")["stdout"] == "1\n"


def test_quotas_count_it_as_a_sandbox_only(d, clean):
    a = as_tenant(d, "sleepy", quotas={"memory": "512M", "cpus": 1, "sandboxes": 3})
    one = a.create(memory="512M")
    assert a.post(f"/v1/sandboxes/{one['id']}/hibernate").status == 200
    used = d.get("/v1/tenants/sleepy").json["used"]
    assert (used["sandboxes"], used["memory"], used["cpus"]) == (1, 0, 0)
    two = a.create(memory="512M")
    error(a.post(f"/v1/sandboxes/{one['id']}/execs", {"shell": "true"}), 429, "quota")
    assert state(d, one) == "hibernated"
    a.delete(f"/v1/sandboxes/{two['id']}")
    assert a.post(f"/v1/sandboxes/{one['id']}/execs", {"shell": "true"}).json["exit_code"] == 0


def test_what_can_not_be_carried(d, clean):
    b = d.create()
    x = background(d, b, UNCARRIED)
    eventually(lambda: output(d, b, x) == ["1"])
    error(d.post(f"/v1/sandboxes/{b['id']}/hibernate"), 422, "refused")
    assert state(d, b) == "running" and d.exec(b["id"], "echo", "y")["stdout"] == "y\n"
    assert d.get(f"/v1/sandboxes/{b['id']}/execs/{x}").json["state"] == "running"
    r = d.post(f"/v1/sandboxes/{b['id']}/hibernate", {"memory": "auto"})
    assert r.status == 200 and r.json["state"] == "hibernated" and "python3" in r.json["memory_refused"], r
    assert d.get(f"/v1/sandboxes/{b['id']}/execs/{x}").json["verdict"]["cause"] == "killed"
    assert d.exec(b["id"], "echo", "y")["stdout"] == "y\n"
    assert "memory_refused" not in d.post(f"/v1/sandboxes/{b['id']}/pause").json  # that was told, and is over


def test_a_paused_one_that_can_not_goes_on_when_it_is_resumed(d, clean):
    b = d.create()
    x = background(d, b, "python3 -c 'import socket,time; a=socket.socket(); a.bind((\"127.0.0.1\",0)); a.listen(); c=socket.create_connection(a.getsockname()); c.send(b\"x\")\n"
                         "i=0\nwhile 1: i+=1; print(i, flush=True); time.sleep(0.05)'")
    eventually(lambda: len(output(d, b, x)) > 3)
    assert d.post(f"/v1/sandboxes/{b['id']}/pause").status == 200
    start = time.monotonic()
    error(d.post(f"/v1/sandboxes/{b['id']}/hibernate"), 422, "refused")
    assert time.monotonic() - start < 9  # tried again for a while: it may be accepted yet
    assert state(d, b) == "paused"
    said = len(output(d, b, x))
    assert d.post(f"/v1/sandboxes/{b['id']}/resume").status == 200
    eventually(lambda: len(output(d, b, x)) > said + 3)
    assert follows(output(d, b, x)), output(d, b, x)
    assert d.exec(b["id"], "echo", "y")["stdout"] == "y\n"


def test_a_paused_one_sleeps_and_wakes_running(d, clean):
    b = d.create()
    x = background(d, b, COUNT)
    eventually(lambda: len(output(d, b, x)) > 3)
    assert d.post(f"/v1/sandboxes/{b['id']}/pause").status == 200
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").json["state"] == "hibernated"
    assert d.post(f"/v1/sandboxes/{b['id']}/resume").json["state"] == "running"
    said = len(output(d, b, x))
    eventually(lambda: len(output(d, b, x)) > said + 3)
    assert follows(output(d, b, x)), output(d, b, x)


def test_one_with_much_memory_sleeps_too(d, clean):
    """What is copied behind the pause of a checkpoint is copied at once where nothing runs anyway."""
    b = d.create(memory="1G")
    x = background(d, b, """exec python3 -u -c '
import time
a = bytearray(b"0123456789abcdef") * (6 << 20)
n = 0
while True:
    n += 1; print(n); time.sleep(0.05)
    assert a[5] == 53 and a[-1] == 102
'""")
    eventually(lambda: len(output(d, b, x)) > 3, 30)
    for _ in range(2):
        assert d.post(f"/v1/sandboxes/{b['id']}/pause").status == 200
        c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
        assert c.status == 201, c
        assert d.delete(f"/v1/checkpoints/{c.json['id']}").status == 204
        assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
        assert d.post(f"/v1/sandboxes/{b['id']}/resume").json["state"] == "running"
        said = len(output(d, b, x))
        eventually(lambda: len(output(d, b, x)) > said + 3, 30)  # pylint: disable=cell-var-from-loop
    assert follows(output(d, b, x)), output(d, b, x)


def test_idle_does_it_by_itself(d, clean):
    b = d.create(idle={"pause": 0.5, "hibernate": 2, "delete": 60})
    assert b["idle"] == {"pause": 0.5, "hibernate": 2, "delete": 60}
    seen = []
    end = time.monotonic() + 8
    while time.monotonic() < end and "hibernated" not in seen:
        # Looking at it makes it no later idle.
        seen.append(d.get(f"/v1/sandboxes/{b['id']}").json["state"])
        assert d.get(f"/v1/vms/{b['id']}").status == d.get(f"/v1/sandboxes/{b['id']}/execs").status == 200
        time.sleep(0.1)
    assert list(dict.fromkeys(seen)) == ["running", "paused", "hibernated"], seen
    assert d.exec(b["id"], "echo", "a")["stdout"] == "a\n"
    eventually(lambda: next(s["state"] for s in d.get("/v1/sandboxes").json["sandboxes"] if s["id"] == b["id"]) == "paused")
    assert d.exec(b["id"], "echo", "b")["stdout"] == "b\n"
    r = d.request("PATCH", f"/v1/sandboxes/{b['id']}", {"idle": {"delete": 0.5}})
    assert r.json["idle"] == 0.5
    eventually(lambda: d.get("/v1/sandboxes").json["sandboxes"] == [])
    error(d.post("/v1/sandboxes", {"idle": {"sleep": 1}}), 400, "invalid")


def test_idle_hibernates_it_again_after_each_wake(d, clean):
    b = d.create(idle={"hibernate": 0.5})
    for _ in range(3):
        eventually(lambda: state(d, b) == "hibernated", 20)
        assert d.exec(b["id"], "echo", "a")["stdout"] == "a\n"


def test_the_log_says_why_an_idle_sandbox_is_not_hibernated(d, clean):
    b = d.create()
    x = background(d, b, UNCARRIED)
    eventually(lambda: output(d, b, x) == ["1"], 60)
    assert d.request("PATCH", f"/v1/sandboxes/{b['id']}", {"idle": {"hibernate": 0.5}}).status == 200
    said = f"sandbox '{b['id']}': it is idle, but was not hibernated: "
    eventually(lambda: any(said in line and "python3" in line for line in d.log), 90)
    assert state(d, b) == "running"


def test_it_sleeps_through_a_restart(d, clean):
    b = d.create()
    d.exec(b["id"], "sh", "-c", "echo kept > f")
    x = background(d, b, COUNT)
    eventually(lambda: len(output(d, b, x)) > 3)
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    d.restart()
    assert state(d, b) == "hibernated"
    said = len(output(d, b, x))
    assert d.exec(b["id"], "cat", "f")["stdout"] == "kept\n"
    eventually(lambda: len(output(d, b, x)) > said)
    assert follows(output(d, b, x)), output(d, b, x)
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    assert d.delete(f"/v1/sandboxes/{b['id']}").status == 204
