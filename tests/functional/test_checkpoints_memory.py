"""Checkpoints with memory over the API: running execs go on in new sandboxes, and in place."""
import time

import pytest

from api import d, error, eventually, nothing_is_left_behind, parallel  # noqa: F401


@pytest.fixture
def clean(d):
    yield
    for b in d.get("/v1/sandboxes?limit=1000&tenant=*").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")
    for c in d.get("/v1/checkpoints?limit=1000&tenant=*").json["checkpoints"]:
        d.delete(f"/v1/checkpoints/{c['id']}")


COUNT = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done"


def background(d, box, script, **fields):
    r = d.post(f"/v1/sandboxes/{box['id']}/execs", {"shell": script, "background": True, **fields})
    assert r.status == 201, r
    return r.json["id"]


def output(d, box, x):
    r = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output")
    assert r.status == 200, r
    return r.body.decode().split()


def counts_on(d, box, x):
    """Numbers that follow each other, and more of them come."""
    eventually(lambda: len(output(d, box, x)) > 3)
    numbers = [int(n) for n in output(d, box, x)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
    return numbers[0]


def test_a_running_exec_goes_on_in_three_new_ones(d, clean):
    b = d.create()
    x = background(d, b, COUNT)
    eventually(lambda: len(output(d, b, x)) > 5)
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"] is True and r.json["memory_size"] > 0 and r.json["memory_refused"] is None, r
    seen = len(output(d, b, x))
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore", {"count": 3})
    assert r.status == 201, r
    for n in r.json["sandboxes"]:
        assert n["restored"]["memory"] is True and len(n["restored"]["execs"]) == 1
        own, = n["restored"]["execs"]
        assert counts_on(d, n, own) > 3
        assert d.get(f"/v1/sandboxes/{n['id']}/execs/{x}").json["state"] == "running"
        listed = d.get(f"/v1/sandboxes/{n['id']}/execs").json["execs"]
        assert [e["state"] for e in listed] == ["running"] and listed[0]["background"] is True
        assert d.exec(n["id"], "echo", "hi")["stdout"] == "hi\n"
        ended = d.request("DELETE", f"/v1/sandboxes/{n['id']}/execs/{own}").json
        assert ended["state"] == "ended" and ended["verdict"]["cause"] == "killed", ended
    eventually(lambda: len(output(d, b, x)) > seen)


def test_in_place_it_is_the_same_exec_again(d, clean):
    b = d.create()
    x = background(d, b, COUNT)
    eventually(lambda: len(output(d, b, x)) > 3)
    c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True, "name": "c"})
    assert c.status == 201, c
    for _ in range(3):
        time.sleep(0.3)
        r = d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": "c"})
        assert r.status == 200 and len(r.json["restored"]["execs"]) == 1, r
        assert 3 < counts_on(d, b, x) < 30 and counts_on(d, b, r.json["restored"]["execs"][0]) > 3
    assert d.post(f"/v1/sandboxes/{b['id']}/execs/{x}/signal", {"signal": "KILL"}).status == 204
    eventually(lambda: d.get(f"/v1/sandboxes/{b['id']}/execs/{x}").json["state"] == "ended")


def test_a_fork_takes_memory_along_when_it_can(d, clean):
    b = d.create()
    x = background(d, b, COUNT)
    eventually(lambda: len(output(d, b, x)) > 3)
    kids = d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": 2}).json["sandboxes"]
    for k in kids:
        assert k["restored"]["memory"] is True and k["restored"]["checkpoint"] is None
        counts_on(d, k, x)
    again = d.post(f"/v1/sandboxes/{kids[0]['id']}/fork").json["sandboxes"][0]
    assert again["restored"]["memory"] is True
    counts_on(d, again, again["restored"]["execs"][0])
    files = d.post(f"/v1/sandboxes/{b['id']}/fork", {"memory": False}).json["sandboxes"][0]
    assert files["restored"]["memory"] is False and d.get(f"/v1/sandboxes/{files['id']}/execs").json["execs"] == []


def test_what_can_not_be_carried_is_told(d, clean):
    b = d.create()
    background(d, b, "python3 -c 'import socket,time; a=socket.socket(); a.bind((\"127.0.0.1\",0)); a.listen(); c=socket.create_connection(a.getsockname()); c.send(b\"x\"); print(1, flush=True); time.sleep(1000)'")
    time.sleep(1)
    e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}), 422, "refused")
    assert "python3" in e["message"] and e["remedy"], e
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": "auto"})
    assert r.status == 201 and r.json["memory"] is False and "python3" in r.json["memory_refused"], r
    assert d.get(f"/v1/sandboxes/{b['id']}").json["state"] == "running"
    n, = d.post(f"/v1/checkpoints/{r.json['id']}/restore").json["sandboxes"]
    assert n["restored"]["memory"] is False
    n, = d.post(f"/v1/sandboxes/{b['id']}/fork").json["sandboxes"]
    assert n["restored"]["memory"] is False and ["python3" in x["why"] for x in n["restored"]["not_done"] if x["what"] == "memory"] == [True], n


def test_where_nothing_runs_there_are_the_files(d, clean):
    b = d.create()
    for memory in (True, "auto"):
        r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": memory})
        assert r.status == 201 and r.json["memory"] is False and r.json["memory_refused"] is None, r


def test_it_goes_on_through_many_generations(d, clean):
    """Above the maximal number of layers and of memory images that can be based on each other."""
    b = d.create(memory="128M", disk="64M")
    x = background(d, b, "i=0; while :; do i=$((i+1)); echo $i; echo $i >> log; sleep 0.02; done")
    seen = 0
    for i in range(30):
        eventually(lambda: len(output(d, b, x)) > 1)
        r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
        assert r.status == 201 and r.json["memory"] is True and r.json["depth"] <= 12, r
        r = d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": r.json["id"]})
        assert r.status == 200 and len(r.json["restored"]["execs"]) == 1, r
        first = counts_on(d, b, x)
        assert first > seen, (first, seen)
        seen = first
    numbers = d.exec(b["id"], "cat", "log")["stdout"].split()
    assert numbers[:seen] == [str(n) for n in range(1, seen + 1)]


def test_files_that_were_just_written_do_not_hold_it_up(d, clean):
    b = d.create()
    background(d, b, "sleep 1000")
    for _ in range(3):
        assert d.request("PUT", f"/v1/sandboxes/{b['id']}/files?path=f", b"x").status == 200
        begun = time.monotonic()
        r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
        assert r.status == 201 and time.monotonic() - begun < 0.9, r


def test_a_read_only_root_and_what_is_open_where_it_can_be_written(d, clean):
    b = d.create(read_only=True)
    x = background(d, b, "exec 3>>/tmp/log 4>>work; i=0; while :; do i=$((i+1)); echo $i >&3; echo $i >&4; echo $i; sleep 0.05; done")
    counts_on(d, b, x)
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"], r
    n, = d.post(f"/v1/checkpoints/{r.json['id']}/restore").json["sandboxes"]
    y, = n["restored"]["execs"]
    counts_on(d, n, y)
    told = d.exec(n["id"], "sh", "-c", "head -n 4 work; tail -n +5 /tmp/log")["stdout"].split()
    assert told == [str(i + 1) for i in range(len(told))] and len(told) > 3, told
