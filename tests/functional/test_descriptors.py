"""How many descriptors the warden keeps for a sandbox, and what happens when there are none left."""
import os
import resource
import time

import pytest

from daemon import Daemon

SECONDS = 60


@pytest.fixture
def daemon():
    with Daemon(None, "--pool", "1") as d:  # what stands ready has descriptors, too
        yield d


def held(d):
    return {int(name) for name in os.listdir(f"/proc/{d.children()['warden']}/fd")}


def make(d):
    return d.post("/v1/sandboxes", {"memory": "64M"})


def test_the_warden_keeps_at_most_six_descriptors_for_a_sandbox(daemon):
    boxes = []
    for _ in range(20):  # the newest ones keep all they were made with
        boxes.append(make(daemon).json["id"])
    before = len(held(daemon))
    for _ in range(60):
        answer = make(daemon)
        assert answer.status == 201, answer
        boxes.append(answer.json["id"])
    end = time.monotonic() + SECONDS
    while (each := (len(held(daemon)) - before) / 60) > 6 and time.monotonic() < end:
        time.sleep(0.05)
    assert each <= 6
    # What was closed is opened again when it is needed.
    old = f"/v1/sandboxes/{boxes[0]}"
    assert daemon.exec(boxes[0], "true")["exit_code"] == 0
    assert daemon.post(f"{old}/pause").status == 200
    assert daemon.post(f"{old}/resume").status == 200
    assert daemon.get(f"{old}/stats").json["pids"] >= 1
    checkpoint = daemon.post(f"{old}/checkpoints", {"name": "c"})
    assert checkpoint.status == 201, checkpoint
    assert daemon.exec(boxes[0], "id", "-u", user="root")["stdout"].strip() == "0"
    # After the warden's death, too.
    daemon.kill9("warden")
    assert daemon.exec(boxes[0], "true")["exit_code"] == 0
    assert daemon.delete(old).status in (200, 204)


def test_without_descriptors_a_create_is_503_with_the_reason_until_some_are_deleted(daemon):
    first = make(daemon).json["id"]
    warden = daemon.children()["warden"]
    was = resource.prlimit(warden, resource.RLIMIT_NOFILE)
    resource.prlimit(warden, resource.RLIMIT_NOFILE, (max(held(daemon)) + 60, was[1]))
    boxes, refused = [], None
    for _ in range(200):
        answer = make(daemon)
        if answer.status != 201:
            refused = answer
            break
        boxes.append(answer.json["id"])
    assert refused and refused.status == 503, refused
    assert refused.json["error"]["code"] == "exhausted"
    assert "open files" in refused.json["error"]["message"].lower(), refused
    assert daemon.get(f"/v1/sandboxes/{first}").json["state"] == "running"
    for one in boxes:
        assert daemon.delete(f"/v1/sandboxes/{one}").status in (200, 204)
    end = time.monotonic() + SECONDS
    while (answer := make(daemon)).status == 503 and time.monotonic() < end:
        time.sleep(0.1)
    assert answer.status == 201, answer
