"""Sandboxes whose files are on a disk: they outlive a reboot, their first process, and every process that is killed meanwhile."""
import os
import pathlib
import shutil
import signal
import subprocess
import uuid

import pytest

import host

from api import agent_of, error, eventually
from daemon import Daemon

SECONDS = 60
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@pytest.fixture
def daemon():
    with Daemon() as d:
        yield d


def disks(d):
    return set(os.listdir(d.data / "disks"))


@pytest.fixture
def reboot(daemon):
    """Everything dies at once, nothing in memory is left, and the kernel is another. Then the daemon is started."""
    boot = daemon.data.parent / "boot_id"

    def reboot():
        boxes = daemon.get("/v1/sandboxes?state=running").json["sandboxes"]
        agents = [agent_of(daemon, b["id"]) for b in boxes]
        daemon.kill9("all")
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(alive(pid) for pid in agents), SECONDS)
        for state in [s for s in Daemon.states if os.path.isdir(s)]:
            shutil.rmtree(state, ignore_errors=True)
        bound = boot.exists()
        boot.write_text(f"{uuid.uuid4()}\n")
        boot.chmod(0o444)
        if not bound:
            subprocess.run(["mount", "--bind", boot, BOOT_ID], check=True)
        daemon.start(SECONDS)

    yield reboot
    if boot.exists():
        subprocess.run(["umount", BOOT_ID], check=True)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def sh(d, box, line, **kw):
    r = d.exec(box, "sh", "-c", line, **kw)
    assert r["exit_code"] == 0, r
    return r["stdout"]


WRITE = ("echo kept > note; mkdir -p deep/er; echo x > deep/er/x; ln -s note link; chmod 4755 deep/er/x; "
         "sync; cat note")
READ = "cat note link; stat -c '%a %u %g' note deep/er/x; ls /dev/shm | wc -l"


def test_after_a_reboot_its_files_are_there_and_it_can_be_started(daemon, reboot):
    box = daemon.create(storage="disk", disk="64M", name="keeper", key="keeper")["id"]
    memory = daemon.create(name="forgetful")["id"]
    sh(daemon, box, "touch /dev/shm/gone; " + WRITE)
    sh(daemon, box, "touch /etc/of-root; chown 7:8 /etc/of-root", user="root")
    before = sh(daemon, box, "cat note link; stat -c '%a %u %g' note deep/er/x; echo 0")
    reboot()
    assert daemon.get("/v1/sandboxes/keeper").json["state"] == "stopped"
    assert daemon.get("/v1/sandboxes?state=stopped").json["sandboxes"][0]["id"] == box
    assert "stopped" in error(daemon.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["true"]}), 409, "conflict")["message"]
    lost = daemon.get(f"/v1/sandboxes/{memory}").json
    assert lost["state"] == "lost"
    assert "in memory" in error(daemon.get(f"/v1/sandboxes/{memory}/files?path=/etc/hostname"), 502, "lost")["message"]
    assert daemon.cli("start", "keeper").code == 0
    assert daemon.get(f"/v1/sandboxes/{box}").json["state"] == "running"
    assert sh(daemon, box, READ) == before
    assert sh(daemon, box, "stat -c '%u %g' /etc/of-root").strip() == "7 8"
    assert daemon.post(f"/v1/sandboxes/{box}/start").status == 200, "twice is fine"
    sh(daemon, box, "echo more >> note")
    reboot()
    found = daemon.post("/v1/sandboxes", {"key": "keeper"})
    assert found.status == 200 and found.json["id"] == box and found.json["state"] == "running", found
    assert sh(daemon, box, "cat note") == "kept\nmore\n"
    assert daemon.delete(f"/v1/sandboxes/{box}").status == 204
    eventually(lambda: not disks(daemon), SECONDS)


def test_with_restart_its_command_runs_again(daemon, reboot):
    box = daemon.create(storage="disk", disk="32M")["id"]
    path = f"/v1/sandboxes/{box}/execs"
    body = {"shell": "echo $WORD >> log; exec sleep 1000", "env": {"WORD": "up"}, "background": True, "restart": "always"}
    assert daemon.post(path, body).status == 201
    over = daemon.post(path, {**body, "shell": "echo once >> log"}).json["id"]
    assert daemon.get(f"{path}/{over}/wait?timeout=60").status == 200
    error(daemon.post(path, {"cmd": ["true"], "restart": "always"}), 400, "invalid")
    other = daemon.create()["id"]
    error(daemon.post(f"/v1/sandboxes/{other}/execs", body), 400, "invalid")
    eventually(lambda: "up" in sh(daemon, box, "sync; cat log"), SECONDS)
    for n in (2, 3):
        reboot()
        eventually(lambda: daemon.get(f"/v1/sandboxes/{box}").json["state"] == "running", SECONDS)
        eventually(lambda n=n: sh(daemon, box, "sync; cat log").split().count("up") == n, SECONDS)
    assert sh(daemon, box, "cat log").split().count("once") == 1


def test_files_of_a_lost_one_are_there_until_it_is_deleted(daemon):
    box = daemon.create(storage="disk", disk="32M")["id"]
    path = f"/v1/sandboxes/{box}"
    sh(daemon, box, WRITE)
    os.kill(agent_of(daemon, box), signal.SIGKILL)
    eventually(lambda: daemon.get(path).json["state"] == "lost", SECONDS)
    answer = daemon.get(f"{path}/files?path=/home/user/note")
    assert answer.status == 200 and answer.body == b"kept\n", answer
    assert daemon.get(path).json["state"] == "lost"
    assert "its files are kept" in error(daemon.post(f"{path}/execs", {"cmd": ["true"]}), 502, "lost")["message"]
    made = daemon.post(f"{path}/checkpoints", {"name": "saved"})
    assert made.status == 201, made
    daemon.kill9("warden")  # whatever has its files open
    answer = daemon.get(f"{path}/files?path=/home/user/deep/er/x")
    assert answer.status == 200 and answer.body == b"x\n", answer
    daemon.kill9("api")
    eventually(lambda: daemon.get(path).status == 200, SECONDS)
    assert daemon.get(path).json["state"] == "lost"
    assert daemon.get(f"{path}/files?path=/home/user/note").body == b"kept\n"
    assert daemon.post(f"{path}/start").status == 200
    assert sh(daemon, box, "cat note") == "kept\n"
    assert daemon.delete(path).status == 204
    copy = daemon.create(checkpoint=made.json["id"])["id"]
    assert sh(daemon, copy, "cat note") == "kept\n"
    daemon.delete(f"/v1/sandboxes/{copy}")
    eventually(lambda: not disks(daemon), SECONDS)


def test_a_stopped_one_keeps_its_files_and_is_started_again(daemon):
    box = daemon.create(storage="disk", disk="32M", name="keeper")["id"]
    path = f"/v1/sandboxes/{box}"
    x = daemon.post(f"{path}/execs", {"shell": "echo up >> log; exec sleep 1000", "background": True, "restart": "always"}).json["id"]
    sh(daemon, box, WRITE.replace("sync; ", ""))  # what nobody has synced
    eventually(lambda: sh(daemon, box, "cat log") == "up\n", SECONDS)
    agent = agent_of(daemon, box)
    stopped = daemon.post(f"{path}/stop")
    assert stopped.status == 200 and stopped.json["state"] == "stopped", stopped
    eventually(lambda: not alive(agent), SECONDS)
    assert daemon.cli("stop", "keeper").code == 0, "twice is fine"
    assert daemon.get(f"{path}/execs/{x}").json["state"] != "running"
    error(daemon.post(f"{path}/execs", {"cmd": ["true"]}), 409, "conflict")
    assert daemon.get(f"{path}/files?path=/home/user/note").body == b"kept\n"
    assert daemon.get(path).json["state"] == "stopped"
    assert daemon.post(f"{path}/start").json["state"] == "running"
    assert sh(daemon, box, "cat note deep/er/x") == "kept\nx\n"
    eventually(lambda: sh(daemon, box, "cat log") == "up\nup\n", SECONDS)
    assert daemon.post(f"{path}/pause").status == 200
    assert daemon.post(f"{path}/stop").json["state"] == "stopped"
    memory = daemon.create()["id"]
    assert "in memory" in error(daemon.post(f"/v1/sandboxes/{memory}/stop"), 409, "conflict")["message"]
    assert daemon.delete(path).status == 204
    eventually(lambda: not disks(daemon), SECONDS)


def test_whoever_dies_while_it_starts_its_files_are_there(daemon, reboot):
    box = daemon.create(storage="disk", disk="32M")["id"]
    sh(daemon, box, WRITE)
    reboot()
    for part in ("warden", "api", "all"):
        started = subprocess.Popen([str(host.CLOCHE), "start", box], env=daemon.environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        daemon.kill9(part)
        if part == "all":
            daemon.start(SECONDS)
        started.wait(SECONDS)
        eventually(lambda: daemon.post(f"/v1/sandboxes/{box}/start").status == 200, SECONDS)
        assert sh(daemon, box, "cat note deep/er/x") == "kept\nx\n"
        os.kill(agent_of(daemon, box), signal.SIGKILL)
        eventually(lambda: daemon.get(f"/v1/sandboxes/{box}").json["state"] in ("lost", "stopped"), SECONDS)
    assert len(disks(daemon)) == 1
