"""`cloche run --isolation vm`: the same promises as a container's, kept by a machine. Each test boots one, emulated."""
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

import host
from host import BUILD, children, one_line, run, wait_for
from small_image import machine_image

BOOT = 120  # seconds: emulated, on a busy machine


@pytest.fixture(scope="module")
def image():
    return machine_image()


def vm(image, *args, **kw):
    return run("--isolation", "vm", "--image", image, *args, timeout=BOOT, **kw)


def descendants(pid):
    for child in children(pid):
        yield child
        yield from descendants(child)


def machine_of(pid):
    """The host's pid of QEMU below cloche process `pid`."""
    for p in descendants(pid):
        try:
            if os.readlink(f"/proc/{p}/exe").startswith("/usr/bin/qemu-system-"):
                return p
        except OSError:
            pass
    return None


def status(task):
    return dict(line.split(":\t", 1) for line in task.read_text().splitlines() if ":\t" in line)


def booted(popen, image, *args, script="echo up; cat"):
    """A machine in which the command runs. -> (process, pid of QEMU)"""
    p = popen("--isolation", "vm", "--image", image, "--timeout", "60s", *args, "--", "sh", "-c", script)
    assert p.stdout.readline() == b"up\n"
    qemu = machine_of(p.pid)
    assert qemu
    return p, qemu


def test_streams_exit_code_user_and_size_are_as_asked(image):
    script = "cat; echo oops >&2; id -u; pwd; hostname; echo $X; nproc; head -1 /proc/meminfo; df -k / | tail -1; uname -r; exit 7"
    r = vm(image, "--json", "--cpus", "2", "--memory", "200M", "--disk", "64M", "--hostname", "box", "-e", "X=y z", "--", "sh", "-c",
           script, input=b"in\n")
    assert r.code == 7 and r.cause == "exited", r
    lines = r.json["stdout"].splitlines()
    assert lines[:6] == ["in", "1000", "/home/user", "box", "y z", "2"], r
    assert 100 * 1024 < int(lines[6].split()[1]) <= 200 * 1024, r
    assert 40 * 1024 < int(lines[7].split()[1]) <= 64 * 1024, r
    assert "cloud" in lines[8] and lines[8] != os.uname().release, r
    assert r.json["stderr"] == "oops\n"
    assert r.json["enforced"]["isolation"] == "vm" and "no network card" in r.json["enforced"]["machine"], r


def test_streams_can_be_opened_by_their_names(image):
    script = "echo 1 > /dev/stdout; echo 2 > /dev/stderr; cat /dev/stdin; whoami"
    for user, given in (("user", b"in\n"), ("root", b"")):
        r = vm(image, "--user", user, "--", "sh", "-c", script, input=given)
        assert (r.code, r.out, r.err) == (0, b"1\n" + given + user.encode() + b"\n", b"2\n"), r


def test_large_streams_arrive_whole_both_ways(image):
    data = os.urandom(1 << 20) * 2
    r = vm(image, "--output-limit", "16M", "--", "sh", "-c", "tee /tmp/x; md5sum < /tmp/x >&2", input=data)
    assert r.code == 0 and r.out == data, (r.code, len(r.out), r.err[-300:])
    assert r.err.split()[0].decode() == hashlib.md5(data).hexdigest()


def test_a_signal_reaches_the_command(image, popen):
    p, _ = booted(popen, image, script="trap 'echo got it; exit 3' TERM; echo up; while :; do sleep 0.1; done")
    p.send_signal(signal.SIGTERM)
    out, _ = p.communicate(timeout=BOOT)
    assert out == b"got it\n" and p.returncode == 3


def test_time_is_up_however_busy_it_is(image):
    r = vm(image, "--json", "--timeout", "1s", "--", "sh", "-c", "trap '' TERM INT; while :; do :; done")
    assert r.code == 124 and r.cause == "timeout", r


def test_too_much_memory_is_oom(image):
    r = vm(image, "--json", "--memory", "128M", "--", "sh", "-c", "x=a; while :; do x=$x$x; done")
    assert r.code == 137 and r.cause == "oom", r


def test_who_fills_the_memory_slowly_is_oom_and_not_for_minutes_in_circles(image):
    """Pages of the programs that run are taken back and read again: the guest's kernel alone would do that for minutes."""
    r = vm(image, "--json", "--memory", "128M", "--timeout", "50s", "--", "awk", 'BEGIN { for (i = 0; ; i++) a[i] = sprintf("%30000s", i) }')
    assert r.code == 137 and r.cause == "oom", r


def test_all_memory_that_a_machine_shows_can_be_used(image):
    """Each page that a clone is the first to write is a page of its template's memory, too: its jail has room for both."""
    r = vm(image, "--json", "--memory", "448M", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=335M", "count=1")
    assert r.code == 0 and r.json["usage"]["memory_peak"] > 335 << 20, r


def test_a_full_disk_is_told_and_so_are_too_many_processes(image):
    r = vm(image, "--json", "--disk", "24M", "--pids", "16", "--", "sh", "-c",
           "(for i in $(seq 40); do sleep 5 & done) 2>/dev/null; dd if=/dev/zero of=big bs=1M 2>/dev/null")
    assert r.code != 0 and r.cause in ("disk", "pids"), r
    assert r.json["usage"]["disk_used"] > 10 << 20 and r.json["usage"]["pids_peak"] <= 16, r


def test_a_terminal_has_its_size_and_hears_of_another(image):
    master, slave = pty.openpty()

    def size(rows, columns):
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    size(30, 99)
    p = subprocess.Popen(host.command("--isolation", "vm", "--image", image, "-t", "--", "sh", "-c",
                                      "stty size; trap 'stty size; exit 4' WINCH; echo now; while :; do sleep 0.1; done"),
                         stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                         preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    seen = b""

    def read_until(what):
        nonlocal seen
        while what not in seen:
            seen += os.read(master, 1000)

    watchdog = threading.Timer(BOOT, p.kill)
    watchdog.start()
    try:
        read_until(b"now")
        assert b"30 99" in seen, seen
        size(41, 77)
        read_until(b"41 77")
        assert p.wait(BOOT) == 4, seen
    finally:
        watchdog.cancel()
        p.kill()
        p.wait()
        os.close(master)


def test_the_machine_is_jailed_and_when_it_is_killed_all_is_lost(image, popen):
    """V01 of the threat model."""
    p, qemu = booted(popen, image, "--memory", "128M")
    proc = pathlib.Path(f"/proc/{qemu}")
    tasks = list(proc.glob("task/*/status"))
    assert len(tasks) >= 2
    for task in map(status, tasks):
        assert int(task["Uid"].split()[0]) >= host.UID_BASE and len(set(task["Uid"].split())) == 1, task
        assert int(task["Gid"].split()[0]) >= host.UID_BASE and task["Groups"].strip() == "", task
        for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(task[caps], 16) == 0, task
        assert task["NoNewPrivs"] == "1" and task["Seccomp"] == "2" and int(task["Seccomp_filters"]) >= 2, task
    for ns in ("mnt", "pid", "net", "ipc", "uts", "user"):
        assert os.readlink(proc / "ns" / ns) != os.readlink(f"/proc/self/ns/{ns}"), ns
    args = (proc / "cmdline").read_bytes().decode().split("\0")
    for wanted in ("-nodefaults", "-no-user-config", "-sandbox"):
        assert wanted in args
    for forbidden in ("-netdev", "-nic", "-net", "-fsdev", "-virtfs", "-usb", "-qmp", "-monitor", "-vnc"):
        assert forbidden not in args
    # All of its files came as descriptors: a clone does not even need the kernel.
    assert [a for a in args if a.startswith("/") and "/proc/self/fd/" not in a] == [args[0]]
    # No network to speak of, and nothing of the host's to be seen.
    assert re.findall(r"^ *(\w+):", (proc / "net/dev").read_text(), re.M) == ["lo"]
    assert not (proc / "root/work").exists() and not (proc / "root/var/lib/cloche").exists()
    groups = (proc / "cgroup").read_text()
    assert "/cloche/" in groups, groups
    os.kill(qemu, signal.SIGKILL)
    out, err = p.communicate(timeout=BOOT)
    assert p.returncode == 125 and err.startswith(b"cloche: lost:"), (out, err)


def test_killed_from_outside_nothing_stays(image, popen):
    p, qemu = booted(popen, image)
    p.kill()
    p.wait()
    wait_for(lambda: not os.path.exists(f"/proc/{qemu}") or status(pathlib.Path(f"/proc/{qemu}/status"))["State"][0] in "ZX",
             30, "the machine's end")


def test_two_machines_have_nothing_in_common(image):
    both = [vm(image, "--", "sh", "-c", "head -c 16 /dev/urandom | md5sum; cat /proc/sys/kernel/random/boot_id; date +%s") for _ in range(2)]
    a, b = (r.text.split() for r in both)
    assert a[0] != b[0] and a[2] != b[2], both
    assert abs(int(b[-1]) - time.time()) < 60, both


@pytest.mark.parametrize("args, word", [
    (["--memory", "32M"], "memory"),
    (["--mount", "/usr:/mnt:ro"], "mount"),
    (["--disk", "4M"], "disk"),
    (["--cpus", "64"], "request at most"),
    (["--memory", "100T"], "larger than this host"),
])
def test_what_a_machine_can_not_do_is_refused(image, args, word):
    assert word in one_line(vm(image, *args, "--", "true"))


def test_without_a_kernel_it_says_how_to_get_one(image, tmp_path):
    for name in ("cloche", "cloche-agent"):
        shutil.copy(BUILD / name, tmp_path / name)
    p = subprocess.run([tmp_path / "cloche", "run", "--isolation", "vm", "--image", image, "--", "true"], capture_output=True, timeout=BOOT)
    assert p.returncode == 125 and b"make vm-kernel" in p.stderr, p


def test_the_command_that_fetches_a_kernel_explains_itself():
    said = [subprocess.run([BUILD / "cloche", "image", "vm-kernel", word], capture_output=True, timeout=BOOT) for word in ("--help", "more")]
    assert said[0].returncode == 0 and said[0].stdout.startswith(b"usage: cloche image vm-kernel"), said
    assert said[1].returncode == 125 and b"not 'more'" in said[1].stderr, said


def test_the_doctor_says_whether_machines_can_be_made(image, tmp_path):
    p = subprocess.run([BUILD / "cloche", "doctor", "--json"], capture_output=True, timeout=BOOT)
    said = json.loads(p.stdout)["vm"]
    kvm, why = said.pop("kvm"), said.pop("why")
    assert kvm in ("works", "nested", "absent", "denied", "fails") and why, p
    how, again = said.pop("accelerator"), said.pop("try_again")
    assert said == {"ready": True, "error": None, "remedy": None} and how in ("kvm", "tcg"), p
    # Where instructions run, a boot has decided, and that is remembered; where none do it is plain.
    assert os.path.exists(again.removeprefix("rm ")) if kvm == "nested" else how == "kvm" or kvm != "works" or again, p
    p = subprocess.run([BUILD / "cloche", "doctor"], capture_output=True, timeout=BOOT)
    assert f"available; {'with KVM' if how == 'kvm' else 'emulated (TCG)'}: {why}." in p.stdout.decode(), p
    shutil.copy(BUILD / "cloche", tmp_path / "cloche")
    p = subprocess.run([tmp_path / "cloche", "doctor"], capture_output=True, timeout=BOOT)
    assert b"make vm-kernel" in p.stdout, p


def test_a_changed_image_is_seen(image):
    (image / "etc/word").write_text("one")
    assert vm(image, "--", "cat", "/etc/word").text == "one"
    (image / "etc/word").write_text("two")
    assert vm(image, "--", "cat", "/etc/word").text == "two"
