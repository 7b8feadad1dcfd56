"""The check after every test can fail: each kind of leftover is seen."""
import os
import subprocess
import time

import pytest

import host


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(host, "PATIENCE", 0.2)


def test_nothing_is_seen_where_nothing_is_left(hasty):
    watch = host.Watch()
    host.run("--", "true")
    assert watch.left() == set()


def test_a_process_is_seen_even_when_its_parent_is_gone(hasty):
    watch = host.Watch()
    out = subprocess.run(["sh", "-c", "setsid sleep 50 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True).stdout
    left = watch.left()
    os.kill(int(out), 9)
    assert len(left) == 1 and left.pop().startswith(f"process {int(out)}:")


def test_a_sandbox_that_runs_is_seen(hasty, popen):
    watch = host.Watch()
    p = popen("--", "sleep", "50")
    host.wait_for(lambda: host.agent_of(p.pid))
    time.sleep(0.1)
    left = watch.left()
    for kind in ("process ", "cgroup ", "network namespace "):
        assert any(x.startswith(kind) for x in left), (kind, left)


def test_a_cgroup_is_seen(hasty):
    watch = host.Watch()
    host.run("--", "true")
    folder = next(g / "cloche" for g, _ in host.own_groups() if (g / "cloche").is_dir()) / "left-by-a-test"
    folder.mkdir()
    left = watch.left()
    folder.rmdir()
    assert left == {f"cgroup {folder}"}


def test_a_mount_and_a_file_are_seen(hasty):
    watch = host.Watch()
    os.mkdir("/tmp/left-by-a-test")
    subprocess.run(["mount", "-t", "tmpfs", "none", "/tmp/left-by-a-test"], check=True)
    left = watch.left()
    subprocess.run(["umount", "/tmp/left-by-a-test"], check=True)
    os.rmdir("/tmp/left-by-a-test")
    assert sorted(x.split()[0] for x in left) == ["file", "mount"], left


def test_a_loop_device_is_seen(hasty, tmp_path):
    image = tmp_path / "cloche-loop"
    image.write_bytes(bytes(1 << 20))
    watch = host.Watch()
    device = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, check=True, text=True).stdout.strip()
    left = watch.left()
    subprocess.run(["losetup", "-d", device], check=True)
    assert any(x.startswith("loop device") for x in left), left
