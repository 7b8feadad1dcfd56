"""What a host does for its first machines: whether KVM works is found out by booting, and told; waiting is shown, shared, and ends
when it is told to. Each test has a cache of its own, where nothing is remembered."""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest

import host
from daemon import Daemon
from host import BUILD, wait_for
from small_image import machine_image
from test_vm import BOOT, descendants

QEMU = f"usr/bin/qemu-system-{os.uname().machine}"
# As found in the jail: with KVM it hangs as long as /usr/hangs is there, runs (emulated, in truth) with /usr/works, and else gives
# up. Without it is the real one.
BROKEN = """#!/usr/bin/busybox sh
case " $* " in
*" -accel kvm "*)
	if [ -e /usr/hangs ]; then exec /usr/bin/busybox sleep 1000; fi
	if [ -e /usr/works ]; then
		for a; do
			shift
			case $a in
			kvm) a=tcg,tb-size=32 ;;
			host,*) a=%s ;;
			esac
			set -- "$@" "$a"
		done
		exec /usr/bin/real-qemu "$@"
	fi
	echo "this QEMU has no luck with KVM" >&2
	exit 1 ;;
esac
exec /usr/bin/real-qemu "$@"
""" % {"x86_64": "Nehalem-v1,+arat", "aarch64": "cortex-a57"}[os.uname().machine]


@pytest.fixture(scope="module")
def image():
    return machine_image()


def small_usr(folder):
    """This host's /usr as far as a machine and its making need it: all of it would be a large disk image."""
    arch = {"x86_64": "x86_64", "aarch64": "aarch64"}[os.uname().machine]
    programs = [f"/usr/bin/qemu-system-{arch}", "/usr/sbin/mke2fs", "/usr/bin/mkfs.erofs", shutil.which("busybox", path="/usr/bin:/bin")]
    files = set(programs)
    for p in programs:
        ldd = subprocess.run(["ldd", p], capture_output=True, text=True)
        files.update(re.findall(r"(?:=> )?(/\S+) \(0x", ldd.stdout) if ldd.returncode == 0 else [])
    for f in files:
        real = pathlib.Path(os.path.realpath(os.path.dirname(f))) / os.path.basename(f)
        to = folder / real.relative_to("/usr")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(f, to)
    for d in ("share/qemu", "share/seabios", f"lib/{arch}-linux-gnu/qemu"):
        if os.path.isdir(f"/usr/{d}"):
            shutil.copytree(f"/usr/{d}", folder / d, symlinks=True)
    for name in ("sh", "cat", "id", "touch", "stat", "true"):
        (folder / "bin" / name).symlink_to("busybox")


class Host:
    """This host, but for its /usr and its cache: in a mount namespace of each command's own."""

    def __init__(self, folder):
        self.usr, self.cache = folder / "usr", folder / "cache"
        self.env = {**os.environ, "CLOCHE_CACHE": str(self.cache)}
        self.cache.mkdir()
        small_usr(self.usr)
        qemu = folder / QEMU
        qemu.rename(qemu.with_name("real-qemu"))
        qemu.write_text(BROKEN)
        qemu.chmod(0o755)

    def __call__(self, *argv):
        p = subprocess.run(["unshare", "-m", "sh", "-c", 'mount --bind "$0" /usr && exec "$@"', self.usr, *argv], capture_output=True,
                           timeout=BOOT, env=self.env)
        assert p.returncode == 0, p
        return p

    def doctor(self):
        return json.loads(self(BUILD / "cloche", "doctor", "--json").stdout)["vm"]

    def run(self, script):
        """A machine of image `host`, as root. -> (its output, how it ran)"""
        said = json.loads(self(*host.command("--json", "--isolation", "vm", "--user", "root", "--", "sh", "-c", script)).stdout)
        return said["stdout"], said["enforced"]["machine"]


@pytest.fixture(scope="module")
def here(image, tmp_path_factory):
    return Host(tmp_path_factory.mktemp("host"))


def test_image_host_is_this_machines_own(here):
    (here.usr / "hangs").touch()
    (here.usr / "word").write_text("of this host\n")
    out, how = here.run("cat /usr/word; id -u; echo changed > /usr/word; cat /usr/word; stat -c %u /etc /home/user; touch /home/user/x")
    assert out.split() == "of this host 0 changed 0 1000".split(), out
    assert (here.usr / "word").read_text() == "of this host\n"
    assert "without hardware acceleration" in how


def test_kvm_that_boots_nothing_is_found_out_once_and_machines_are_emulated(here):
    (here.usr / "hangs").touch()
    here.doctor()
    start = time.monotonic()
    said = here.doctor()
    assert said["accelerator"] == "tcg" and said["ready"] and said["why"], said
    if said["kvm"] not in ("works", "nested"):
        assert said["try_again"] is None, said
        return
    # That took a while; it is remembered, and told how to forget it.
    assert time.monotonic() - start < 8 and "KVM" in said["why"], said
    verdict = pathlib.Path(said["try_again"].removeprefix("rm "))
    tcg = verdict.read_text()
    assert verdict.parent == here.cache / "vm" and f"tcg\n{said['why']}\n" in tcg, tcg
    (here.usr / "hangs").unlink()

    # Who was wrong about KVM finds out by the first machine's boot, which goes on without.
    verdict.write_text(tcg.replace("\ntcg\n", "\nkvm\n"))
    assert here.doctor()["accelerator"] == "kvm"
    assert "without hardware acceleration" in here.run("true")[1]
    assert "no luck with KVM" in verdict.read_text() and "\ntcg\n" in verdict.read_text()

    # What is torn, of another boot, or anybody could have written is not believed: it is tried again, and fails again.
    kvm = tcg.replace("\ntcg\n", "\nkvm\n")
    for text, mode in ((kvm[:-1], 0o600), (kvm + "x", 0o600), ("", 0o600), (kvm.replace(verdict.name, "kvm-0-0"), 0o600), (kvm, 0o622), (None, 0)):
        verdict.unlink()
        if text is None:
            target = here.cache / "elsewhere"
            target.write_text(kvm)
            verdict.symlink_to(target)
        else:
            verdict.write_text(text)
            verdict.chmod(mode)
        said = here.doctor()
        assert said["accelerator"] == "tcg" and ("no luck" in said["why"] or said["kvm"] == "works"), (text, said)


def test_kvm_that_boots_is_used(here):
    (here.usr / "hangs").unlink(missing_ok=True)
    (here.usr / "works").touch()
    said = here.doctor()
    if said["kvm"] not in ("works", "nested"):
        assert said["accelerator"] == "tcg" and said["try_again"] is None, said
        return
    # On a busy host it may take too long at first, since it is emulated: as who has it tried again.
    for _ in range(6):
        if said["accelerator"] == "kvm":
            break
        os.unlink(said["try_again"].removeprefix("rm "))
        said = here.doctor()
    assert said["accelerator"] == "kvm", said
    out, how = here.run("echo up")
    assert out == "up\n" and "QEMU with KVM" in how, how
    (here.usr / "works").unlink()


def booting(pids):
    """Machines that boot a kernel, below these."""
    found = set()
    for pid in pids:
        for p in descendants(pid):
            try:
                if b"-kernel" in pathlib.Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0"):
                    found.add(p)
            except OSError:
                pass
    return found


def remember_no_kvm(cache):
    """So that no test but the one above waits for a trial."""
    subprocess.run([BUILD / "cloche", "doctor", "--json"], check=True, capture_output=True, timeout=BOOT)
    (cache / "vm").mkdir(parents=True, mode=0o700)
    for known in pathlib.Path("/var/cache/cloche/vm").glob("kvm-*"):
        (cache / "vm" / known.name).write_bytes(known.read_bytes())
    return {**os.environ, "CLOCHE_CACHE": str(cache)}


def test_of_two_first_machines_one_boots_and_both_say_what_they_wait_for(image, popen, tmp_path):
    env = remember_no_kvm(tmp_path / "cache")
    master, slave = pty.openpty()
    args = ("--isolation", "vm", "--image", image, "--", "uname", "-r")
    both = [popen(*args, env=env, stderr=slave) for _ in range(2)]
    os.close(slave)
    os.set_blocking(master, False)
    booted, told = set(), b""
    while True:
        ended = all(p.poll() is not None for p in both)
        booted |= booting([p.pid for p in both])
        try:
            told += os.read(master, 65536)
        except OSError:  # nothing yet, or nobody is left
            if ended:
                break
        time.sleep(0.02)
    assert [p.wait() for p in both] == [0, 0]
    assert all("cloud" in p.stdout.read().decode() for p in both)
    # A template that boots, and one alone: the clones have no kernel of their own.
    assert len(booted) == 1, booted
    told = told.decode()
    os.close(master)
    assert "booting the first virtual machine of this kind" in told and "another process is booting" in told, told
    assert told.endswith("\r\x1b[K"), told
    quiet = host.run(*args, env=env)
    assert quiet.code == 0 and quiet.err == b"", quiet


@pytest.mark.parametrize("what, image_of, seen", [("a disk image", lambda i: "host", "*.erofs.part"), ("a boot", str, "t-*.part")])
def test_a_machine_in_the_making_ends_at_a_signal(image, popen, tmp_path, what, image_of, seen):
    env = remember_no_kvm(tmp_path / "cache")
    p = popen("--isolation", "vm", "--image", image_of(image), "--", "true", env=env)
    wait_for(lambda: list((tmp_path / "cache/vm").glob(seen)), BOOT, f"{what} in the making")
    start = time.monotonic()
    p.send_signal(signal.SIGTERM)
    _, err = p.communicate(timeout=BOOT)
    assert p.returncode == 128 + signal.SIGTERM and b"ended by signal 15" in err, (p.returncode, err)
    # It took as long as the making, once: half a minute.
    assert time.monotonic() - start < 10
    left = [f.name for f in (tmp_path / "cache/vm").iterdir()]
    assert not [f for f in left if f.endswith(".part")], left


def process_of(name, parent):
    for pid in host.children(parent):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == name + "\n":
                return pid
        except OSError:
            pass
    return None


def test_what_makes_images_may_do_only_that_and_when_it_is_killed_nothing_stays(popen, tmp_path):
    env = remember_no_kvm(tmp_path / "cache")
    p = popen("--isolation", "vm", "--", "true", env=env)
    wait_for(lambda: list((tmp_path / "cache/vm").glob("*.erofs.part")), BOOT, "a disk image in the making")
    maker = process_of("cloche-vm-files", p.pid)
    mkfs = process_of("mkfs.erofs", maker)
    for pid in (maker, mkfs):
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        assert {int(status[x], 16) for x in ("CapPrm", "CapEff")} == {1 << 2}, status  # DAC_READ_SEARCH
        assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0, status
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    os.kill(maker, signal.SIGKILL)
    _, err = p.communicate(timeout=BOOT)
    assert p.returncode == 125 and b"cloche-vm-files ended without an answer" in err, (p.returncode, err)
    wait_for(lambda: not pathlib.Path(f"/proc/{mkfs}/exe").exists(), 20, "the end of mkfs.erofs")
    left = [f.name for f in (tmp_path / "cache/vm").iterdir()]
    assert not [f for f in left if f.endswith(".part")], left


def test_a_shell_that_never_ends_is_in_no_clone(image, tmp_path):
    """A template runs /bin/sh once before it is saved: whatever that is, it is gone then."""
    strange = tmp_path / "strange"
    shutil.copytree(image, strange, symlinks=True)
    (strange / "bin/sh").unlink()
    (strange / "bin/sh").write_text("#!/bin/busybox ash\ntrap '' TERM HUP\nwhile :; do sleep 1234; done\n")
    (strange / "bin/sh").chmod(0o755)
    r = host.run("--isolation", "vm", "--image", strange, "--user", "root", "--", "ps", timeout=BOOT)
    assert r.code == 0 and "ps" in r.text and "1234" not in r.text and "ash" not in r.text, r


def test_a_daemons_first_machine_is_waited_for_with_a_word(image):
    with Daemon(None, "--images", image.parent) as d:
        master, slave = pty.openpty()
        start = time.monotonic()
        p = subprocess.Popen([BUILD / "cloche", "create", "--isolation", "vm", "--image", image.name], env=d.environment(), stdout=subprocess.PIPE,
                             stderr=slave)
        os.close(slave)
        told = b""
        try:
            while data := os.read(master, 65536):
                told += data
        except OSError:  # nobody is left
            os.close(master)
        box = p.communicate()[0].decode().strip()
        assert p.returncode == 0 and box, told
        # With KVM that may be a moment.
        assert time.monotonic() - start < 4 or (b"waiting for the sandbox" in told and told.endswith(b"\r\x1b[K")), told
        assert "booting the first virtual machine of a kind" in d.output, d.output
        assert d.delete(f"/v1/sandboxes/{box}").status == 204
