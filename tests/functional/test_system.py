"""/usr of image `host`: a plain mount for those who may not change it, laid over for the first one who may."""
import os
import resource
import time

from api import d, eventually, nothing_is_left_behind, parallel  # noqa: F401
from daemon import Daemon
from test_checkpoints_memory import background, clean, counts_on, output, COUNT  # noqa: F401


def sh(d, b, script, user="user"):
    r = d.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": script, "user": user})
    assert r.status == 200 and r.json["exit_code"] == 0, r
    return r.json["stdout"].strip()


def kind(d, b, user="user"):
    return sh(d, b, "grep ' /usr ' /proc/mounts | tail -1 | cut -d' ' -f3; grep -c ' /var/lib/dpkg ' /proc/mounts", user).split()


def test_it_is_laid_over_for_the_first_who_may_change_it(d, clean):
    b = d.create()
    assert kind(d, b)[0] != "overlay"
    assert sh(d, b, "touch /usr/x 2>/dev/null || echo no; dpkg -s coreutils | grep -c '^Status: install ok'") == "no\n1"
    # Many at once: it happens once, and none of them is too early.
    assert parallel(8, lambda i: sh(d, b, f"echo {i} > /usr/local/f{i}; grep -c ' /usr ' /proc/mounts", "root")) == ["2"] * 8
    assert kind(d, b) == ["overlay", "2"]
    assert sh(d, b, "cat /usr/local/f3; test -w /usr/local/f3 || echo no") == "3\nno"
    # So does a group of the system's, and a file put there by root.
    b = d.create()
    assert kind(d, b, "1000:50")[0] == "overlay"
    b = d.create()
    r = d.put(f"/v1/sandboxes/{b['id']}/files?path=/usr/local/put&user=root", b"put")
    assert r.status in (200, 201, 204), r
    assert sh(d, b, "cat /usr/local/put") == "put"


def test_it_is_carried_by_checkpoints_and_not_by_those_who_never_had_it(d, clean):
    b = d.create()
    sh(d, b, "echo mine > /home/user/f")
    plain = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {}).json
    sh(d, b, "echo r > /usr/local/r; rm /usr/bin/yes", "root")
    after = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {}).json
    n, = d.post(f"/v1/checkpoints/{plain['id']}/restore", {"count": 1}).json["sandboxes"]
    assert kind(d, n)[0] != "overlay" and sh(d, n, "cat /home/user/f; test -e /usr/local/r || echo none") == "mine\nnone"
    assert sh(d, n, "echo other > /usr/local/r; cat /usr/local/r", "root") == "other"
    n, = d.post(f"/v1/checkpoints/{after['id']}/restore", {"count": 1}).json["sandboxes"]
    assert kind(d, n)[0] == "overlay" and sh(d, n, "cat /usr/local/r /home/user/f; test -e /usr/bin/yes || echo none") == "r\nmine\nnone"


def test_who_stands_below_usr_is_carried_as_long_as_root_leaves_that_folder_alone(d, clean):
    b = d.create()
    at = f"/v1/sandboxes/{b['id']}"
    d.post(f"{at}/execs", {"shell": "cd /usr/lib; sleep 1000", "background": True})
    sh(d, b, "until readlink /proc/[0-9]*/cwd | grep -q /usr/lib; do :; done")
    sh(d, b, "echo r > /usr/local/r", "root")
    n, = d.post(f"{at}/fork", {"memory": True}).json["sandboxes"]
    assert sh(d, n, "readlink /proc/[0-9]*/cwd | grep -c /usr/lib") == "2"  # sh and sleep
    sh(d, b, "echo r > /usr/lib/r", "root")
    told = d.cli("fork", b["id"])
    assert told.code == 0 and b"files only: process" in told.err and b"working folder" in told.err, told


def test_a_full_disk_neither_keeps_root_out_nor_usr_from_being_writable(d, clean):
    for fields, fill in (({"inodes": 100}, "i=0; while [ $i -lt 200 ] && mkdir /tmp/f$i; do i=$((i+1)); done"),
                         ({"disk": "32M", "storage": "disk"}, "cat /dev/zero > /tmp/f; mkdir /tmp/f0; head -c 9999 /dev/zero > /tmp/f1")):
        b = d.create(**fields)
        assert "No space left" in d.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": fill}).json["stderr"]
        assert sh(d, b, "rm -r /tmp/f*; echo r > /usr/local/r; echo r > /var/lib/dpkg/r; cat /usr/local/r", "root") == "r"


def test_whatever_it_failed_of_it_is_tried_again(d, clean):
    """A warden without a free descriptor, with one, with two …: none of it is in the way of the next one."""
    b, warden = d.create(), d.children()["warden"]
    limits = resource.prlimit(warden, resource.RLIMIT_NOFILE)
    refused = 0
    for n in range(64):
        used = {int(x) for x in os.listdir(f"/proc/{warden}/fd")}
        resource.prlimit(warden, resource.RLIMIT_NOFILE, ([x for x in range(1 << 16) if x not in used][n], limits[1]))
        r = d.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": "echo r > /usr/local/r", "user": "root"})
        resource.prlimit(warden, resource.RLIMIT_NOFILE, limits)
        if r.status == 200:
            break
        refused += 1
    assert refused and sh(d, b, "cat /usr/local/r; echo r > /var/lib/dpkg/r; grep -c ' /usr ' /proc/mounts", "root") == "r\n2", r


def test_what_ran_before_is_carried_too(d, clean):
    """Its program and libraries lie below what was laid over them."""
    b = d.create()
    x = background(d, b, COUNT)
    eventually(lambda: len(output(d, b, x)) > 3)
    sh(d, b, "echo r > /usr/local/r", "root")
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"] is True, r
    n, = d.post(f"/v1/checkpoints/{r.json['id']}/restore", {"count": 1}).json["sandboxes"]
    x, = [e["id"] for e in d.get(f"/v1/sandboxes/{n['id']}/execs").json["execs"]]
    counts_on(d, n, x)
    assert sh(d, n, "cat /usr/local/r", "root") == "r"


def test_it_outlives_the_warden_and_the_daemon(nothing_is_left_behind):
    with Daemon() as d:
        had, late = d.create(), d.create()
        sh(d, had, "echo 1 > /usr/local/f", "root")
        for which in ("warden", "api"):
            d.kill9(which)
            time.sleep(0.2)
            assert sh(d, had, "cat /usr/local/f; grep -c ' /usr ' /proc/mounts", "root") == "1\n2"
        assert kind(d, late)[0] != "overlay"
        assert sh(d, late, "echo 2 > /usr/local/f; grep -c ' /usr ' /proc/mounts", "root") == "2"
