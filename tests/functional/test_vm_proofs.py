"""What a machine promises beyond any sandbox: what is around it, that clones differ, disks that stay whole, guests that are hostile."""
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest

import host
from api import as_tenant, error, eventually, nothing_is_left_behind, place  # noqa: F401
from daemon import Daemon
from small_image import machine_image
from tier_suite import COUNT, LONG, Tier, clean, numbers  # noqa: F401

PROGRAMS = ["cloche", "cloche-agent", "cloche-client", "cloche-dump", "cloche-egress", "cloche-files", "cloche-guest", "cloche-layers", "cloche-serve", "cloche-tar", "cloche-vm-files", "cloche-vmm",
            "cloche-warden", "cloche-watch"]


@pytest.fixture(scope="module")
def tier(nothing_is_left_behind, tmp_path_factory):  # noqa: F811
    conf = tmp_path_factory.mktemp("conf") / "conf"
    conf.write_text("vm_ready = 0\n")
    with Daemon(None, "--images", machine_image().parent, "--config", conf) as d:
        yield Tier("vm", d)


def below(pid):
    for child in host.children(pid):
        yield child
        yield from below(child)


def programs(pid, name):
    """Those below a process that run it."""
    found = []
    for p in below(pid):
        try:
            if os.path.basename(os.readlink(f"/proc/{p}/exe")).startswith(name):
                found.append(p)
        except OSError:
            pass
    return found


def with_machine(tier):
    """A sandbox and its QEMU: none is kept ready here, so that it is the one that was not there before."""
    before = programs(tier.d.pid, "qemu-system-")
    box = tier.create()
    qemu, = (p for p in programs(tier.d.pid, "qemu-system-") if p not in before)
    return box, qemu


def status(task):
    return dict(line.split(":\t", 1) for line in task.read_text().splitlines() if ":\t" in line)


def test_what_is_around_a_machine(tier, clean):
    """V01 and V02 of the threat model, of every task of QEMU and cloche-vmm that the daemon has."""
    b = tier.create()
    qemu, vmm = programs(tier.d.pid, "qemu-system-"), programs(tier.d.pid, "cloche-vmm")
    assert len(qemu) == len(vmm) == 1
    for pid in qemu + vmm:
        proc = pathlib.Path(f"/proc/{pid}")
        for task in map(status, proc.glob("task/*/status")):
            assert int(task["Uid"].split()[0]) >= host.UID_BASE and len(set(task["Uid"].split())) == 1, task
            for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert int(task[caps], 16) == 0, task
            assert task["NoNewPrivs"] == "1" and task["Seccomp"] == "2", task
        for ns in ("mnt", "pid", "net", "ipc", "uts", "user"):
            assert os.readlink(proc / "ns" / ns) != os.readlink(f"/proc/self/ns/{ns}"), ns
        # None of its files can become larger than the machine's memory or disk, and a little.
        size = [line.split()[3:5] for line in (proc / "limits").read_text().splitlines() if line.startswith("Max file size")][0]
        assert size[0] == size[1] != "unlimited", size
        # What it has open is nameless, or its own: no file of the host's by which it could reach others.
        for fd in (proc / "fd").iterdir():
            try:
                to = os.readlink(fd)
            except OSError:
                continue
            assert not to.startswith(("/home", "/root", "/etc", str(tier.d.data) + "/state", str(tier.d.data) + "/audit")), (pid, to)
    for pid in qemu:
        args = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        assert {"-nodefaults", "-no-user-config", "-sandbox"} <= set(args)
        assert not {"-netdev", "-nic", "-net", "-fsdev", "-virtfs", "-usb", "-monitor", "-vnc"} & set(args), args
        assert not [a for a in args if "vsock" in a or "vhost" in a], args
    assert tier.sh(b, "ls /dev/vsock /dev/vhost-vsock; grep -i vsock /proc/net/protocols; echo none")["stdout"] == "none\n"


def test_clones_have_nothing_in_common_but_what_they_were(tier, clean):
    script = "head -c 32 /dev/urandom | base64; cat /etc/machine-id; date +%s; hostname"
    said = [tier.sh(tier.create(hostname=f"host-{i}"), script)["stdout"].split() for i in range(3)]
    for i, (_, _, now, name) in enumerate(said):
        assert name == f"host-{i}" and abs(int(now) - time.time()) < 30, said
    assert len({s[0] for s in said}) == 3 and len({s[1] for s in said}) == 3, said


WRITE = """
mkdir $N; cd $N; i=0
while :; do
  i=$((i+1)); echo $i >> log
  head -c 30000 /dev/urandom > new; mkdir -p d$((i%5)); rm -f d$((i%5))/*; mv new d$((i%5))/$(md5sum < new | cut -c1-32)
  [ $((i%7)) = 0 ] && sync
done
"""
CHECK = """
bad=0
for n in a b; do
  awk 'NR != $1 { exit 1 }' $n/log || bad=1
  [ $(wc -l < $n/log) -gt 8 ] || bad=2
  for f in $n/d?/*; do [ "$(md5sum < $f | cut -c1-32)" = "${f##*/}" ] || [ ! -e $f ] || bad=3; done
done
echo $bad
"""


def test_a_checkpoint_in_the_middle_of_writes_is_whole_six_times(tier, clean, tmp_path):
    """Two processors, two writers; what went on is as if nothing had happened, and the disk as of one moment."""
    b = tier.create(cpus=2)
    writers = [tier.start(b, WRITE, env={"N": n}) for n in "ab"]
    eventually(lambda: tier.sh(b, CHECK)["stdout"] == "0\n", LONG)
    c = tier.checkpoint(b, memory=True)
    tier.delete(b)
    for i in range(6):
        n, = tier.restore(c)
        assert len(n["restored"]["execs"]) == len(writers), n
        before = int(tier.sh(n, "cat a/log b/log | wc -l")["stdout"])
        eventually(lambda: int(tier.sh(n, "cat a/log b/log | wc -l")["stdout"]) > before + 2, LONG)  # pylint: disable=cell-var-from-loop
        assert tier.sh(n, CHECK)["stdout"] == "0\n", i
        tier.delete(n)
    check_disk(tier, c, tmp_path)


def check_disk(tier, checkpoint, scratch):
    """e2fsck on a copy of the checkpoint's disk: its journal is played back, and nothing else is to be mended."""
    layer = pathlib.Path(tier.d.data) / "layers" / checkpoint["id"]
    below, kind = max((pathlib.Path(tier.d.data) / "vm").glob("t-*/disk"), key=os.path.getmtime), "raw"  # of two processors: the newest
    disks = sorted(layer.rglob("disk.*"))
    assert disks
    for disk in disks:
        top = shutil.copy(disk, scratch / disk.name)
        subprocess.run(["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", kind, "-b", below, top], check=True, capture_output=True)
        below, kind = top, "qcow2"
    raw = scratch / "raw"
    subprocess.run(["qemu-img", "convert", "-f", kind, "-O", "raw", below, raw], check=True, capture_output=True)
    first = subprocess.run(["e2fsck", "-fy", "-E", "journal_only", raw], capture_output=True, text=True)
    assert first.returncode in (0, 1), first
    second = subprocess.run(["e2fsck", "-fn", raw], capture_output=True, text=True)
    assert second.returncode == 0, second


@pytest.mark.parametrize("who", ["qemu-system-", "cloche-vmm"])
def test_one_that_is_killed_is_lost_and_its_neighbour_is_not(tier, clean, who):
    neighbour = tier.create()
    b, qemu = with_machine(tier)
    x = tier.start(b, COUNT)
    numbers(tier, b, x)
    victim = qemu if who.startswith("qemu") else int(pathlib.Path(f"/proc/{qemu}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: tier.state(b) == "lost", LONG)
    r = tier.call("GET", b, f"/execs/{x}").json
    assert r["state"] == "ended" and r["verdict"]["cause"] == "lost", r
    assert tier.sh(neighbour, "echo well")["stdout"] == "well\n"
    error(tier.call("POST", b, "/execs", {"cmd": ["true"]}, 502), 502, "lost")


def test_a_state_of_another_machine_is_refused(tier, clean):
    """The manifest says what made it: with another QEMU it is not even tried."""
    b = tier.create()
    c = tier.checkpoint(b, memory=True)
    meta, = (pathlib.Path(tier.d.data) / "layers" / c["id"]).rglob("meta")
    data = bytearray(meta.read_bytes())
    data[48:48 + 5] = b"99.9\0"
    meta.write_bytes(data)
    r = tier.d.post(f"/v1/checkpoints/{c['id']}/restore", {}, timeout=150)
    assert r.status == 422 and r.json["error"]["message"], r
    assert tier.sh(b, "echo on")["stdout"] == "on\n"


@pytest.mark.parametrize("body, status, word", [
    ({"mounts": [{"source": "/usr", "target": "/mnt"}]}, 501, "mount"),
    ({"memory": "64M"}, 400, "memory"),
    ({"disk": "4M"}, 400, "disk"),
    ({"storage": "memory"}, 400, "storage"),
    ({"disk": "4000000T"}, 422, "disk"),
])
def test_what_a_machine_can_not_be_is_refused(tier, body, status, word):
    r = tier.d.post("/v1/sandboxes", {**tier.fields, **body})
    assert r.status == status and word in r.json["error"]["message"], r


def test_what_can_not_be_done_with_its_files_says_what_can(tier, clean):
    b = tier.create()
    c = tier.checkpoint(b)
    assert error(tier.d.post("/v1/sandboxes", {**tier.fields, "image": "no-such"}), 404, "not_found")["remedy"]
    # Its disk and its limits inside are what they were: a restore that says otherwise would only be counted otherwise.
    for field, value in (("disk", "32M"), ("pids", 7), ("inodes", 5000)):
        r = error(tier.d.post(f"/v1/checkpoints/{c['id']}/restore", {field: value}), 400, "invalid")
        assert f"'{field}'" in r["message"], r


def test_without_a_network_nothing_goes_out_and_servers_inside_are_reached(tier, clean):
    b = tier.create()
    r = tier.sh(b, "nc -w 5 9.9.9.9 80 < /dev/null || nc -w 5 198.18.0.1 53 < /dev/null || echo none; tail -n +3 /proc/net/dev | cut -d: -f1; httpd -p 8001 -h /bin")
    assert r["stdout"].split() == ["none", "lo"], r
    assert tier.d.get(f"/v1/sandboxes/{b['id']}/ports/8001/busybox", timeout=150).body == pathlib.Path(shutil.which("busybox", path="/usr/bin:/bin")).read_bytes()
    assert tier.call("GET", b, "/network").json["state"] == "off"
    assert tier.call("PUT", b, "/network", {"allow": ["web.test"]}).json["state"] == "in force"


# --- guests in somebody else's hands ---

@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The programs of this build, in a folder of their own."""
    machine_image()
    folder = tmp_path_factory.mktemp("build")
    for p in (folder, *folder.parents[:2]):
        os.chmod(p, 0o755)
    for name in PROGRAMS:
        shutil.copy(host.BUILD / name, folder / name)
    return folder


class Copied(Daemon):
    """A daemon of another build folder."""

    def __init__(self, folder, *args):
        super().__init__(None, *args)
        self.folder = folder

    def start(self, seconds=20):
        real, host.CLOCHE = host.CLOCHE, self.folder / "cloche"
        try:
            return super().start(seconds)
        finally:
            host.CLOCHE = real


def test_without_a_kernel_it_says_how_to_get_one(copy):
    with Copied(copy, "--images", machine_image().parent) as d:
        r = error(d.post("/v1/sandboxes", {"isolation": "vm", "image": "small"}), 501, "unsupported")
        assert "vm-kernel" in r["remedy"], r
        assert d.get("/v1/info").json["isolation"] == ["container"]


@pytest.fixture(scope="module")
def evil(nothing_is_left_behind, copy):  # noqa: F811
    """Its guests obey the names of processes: see evil_guest.c."""
    (copy / "vm").mkdir()
    for name in ("kernel", "modules.cpio"):
        shutil.copy(host.BUILD / "vm" / name, copy / "vm" / name)
    shutil.copy(host.BUILD / "faulty" / "cloche-vmm", copy / "cloche-vmm")  # waits a third as long for a word
    real = (host.BUILD / "faulty" / "cloche-guest").read_bytes()  # what it tells of its files is what a file says
    subprocess.run(["cc", "-O1", "-static", "-o", copy / "cloche-guest", host.ROOT / "tests/functional/evil_guest.c"], check=True)
    with open(copy / "cloche-guest", "ab") as f:
        f.write(real + struct.pack("<Q", len(real)))
    with Copied(copy, "--images", machine_image().parent) as d:
        yield Tier("vm", d)


def obey(evil, deed):
    """A machine whose guest does it, and the exec that told it to."""
    b = evil.create()
    return b, evil.start(b, f"printf '#!/bin/sh\\nsleep 1000\\n' > /tmp/evil-{deed}; chmod 755 /tmp/evil-{deed}; exec /tmp/evil-{deed}")


def ends(evil, b, x, seconds):
    eventually(lambda: evil.state(b) == "lost", seconds)
    r = evil.call("GET", b, f"/execs/{x}").json
    assert r["state"] == "ended" and r["verdict"]["cause"] == "lost", r
    evil.delete(b)


@pytest.fixture(scope="module")
def deaf(evil):
    """Started first, since its end takes time, but no processor."""
    return *obey(evil, "deaf"), time.monotonic()


@pytest.mark.parametrize("deed", ["poweroff", "panic", "noise"])
def test_a_hostile_guest_is_the_end_of_itself_alone(evil, deaf, deed):  # pylint: disable=unused-argument
    b, x = obey(evil, deed)
    ends(evil, b, x, 20)  # sooner than by its silence
    assert json.loads(evil.d.get("/healthz").body)["status"] == "ok"


def test_a_guest_that_hangs_is_lost_when_it_was_silent_for_long(evil, deaf):
    b, x, since = deaf
    ends(evil, b, x, LONG)
    assert time.monotonic() - since > 15, "it was not silence that ended it"
    eventually(lambda: len(programs(evil.d.pid, "cloche-vmm")) <= 1, LONG)  # one may be kept ready


# --- what a guest tells of its files ---

def frame(kind, payload):
    return struct.pack("<BBHI", 1, kind, 0, len(payload)) + payload


def text(s):
    return struct.pack("<I", len(s)) + s + b"\0"


def entry(path, mode=0o100644, size=0, target=b"", what=1, flags=2):
    return frame(1, struct.pack("<BBIIIIIQQqQQ", what, flags, mode, 0, 0, 0, 1, size, 0, 0, 0, 1) + text(path) + text(target)
                 + struct.pack("<II", 0, 0))


END = frame(4, struct.pack("<IIBQQQ", 0, 0, 0, 1, 0, 0) + text(b""))


def test_whatever_a_guest_tells_of_its_files_is_met_with_a_refusal(evil):
    """
    Its faulty cloche-guest tells what a file says: against the image that goes to the daemon, else into a mirror. There are more of
    those than may be at once, so that one that stayed would be noticed.
    """
    b, other = evil.create(user="root"), evil.create()
    image, mirror = "?from=image", f"?from=sandbox:{other['id']}"

    def told(stream, query):
        evil.call("PUT", b, "/files?path=/tmp/what-differs", stream)
        return evil.d.get(f"/v1/sandboxes/{b['id']}/diff{query}", timeout=150)

    good = entry(b"/good") + END
    assert [e["path"] for e in told(good, image).json["entries"]] == ["/good"]
    assert [e["path"] for e in told(good, mirror).json["entries"]] == ["/good"]  # what the other's guest tells is the truth
    up, much = entry(b"/../up") + END, entry(b"/big", size=9) + frame(3, struct.pack("<Q", 5) + b"more than it has") + END
    for bad, query in ((b"x" * 3000, image), (b"", image), (entry(b"/cut"), image), (entry(b"/cut"), mirror), (up, image), (up, mirror),
                       (frame(3, struct.pack("<Q", 0) + b"data of nothing") + END, image), (entry(b"/x", what=9) + END, image),
                       (struct.pack("<BBHI", 1, 1, 0, 1 << 30), mirror), (much, mirror)):
        r = told(bad, query)
        assert r.status == 502 and r.json["error"]["code"] == "lost", (bad[:60], query, r)
    for bad in (entry(b"/device", 0o020644), entry(b"/link", 0o120777), entry(b"/out", 0o120777, target=b"/") + entry(b"/out/x")):
        r = told(bad + END, mirror)
        assert r.status == 422 and r.json["error"]["code"] == "refused", (bad, r)
    evil.sh(b, "rm /tmp/what-differs")
    assert evil.d.get(f"/v1/sandboxes/{b['id']}/diff", timeout=150).json["entries"] == []
    evil.delete(b, other)
    assert json.loads(evil.d.get("/healthz").body)["status"] == "ok"


def unread(d, who, path):
    """A client that has seen the beginning of the answer, and reads no more."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(place(d))
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {who.token}\r\n\r\n".encode())
    s.settimeout(150)
    assert s.recv(12) == b"HTTP/1.1 200"
    return s


def test_machines_that_nobody_sees_are_in_a_quota_when_there_are_several(tier, clean):
    """One clone that tells what differs is nobody's expense; for more, and for what an import says it needs, there has to be room."""
    who = as_tenant(tier.d, "unseen", quotas={"memory": "200M"})
    b = who.post("/v1/sandboxes", tier.fields, timeout=150).json

    def seal():
        made = who.post(f"/v1/sandboxes/{b['id']}/checkpoints", {}, timeout=150)
        return f"/v1/checkpoints/{made.json['id']}"

    little = seal()
    packed = who.get(little + "/export", timeout=150).body
    error(who.post("/v1/checkpoints/import", packed, timeout=150), 429, "quota")
    who.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": "head -c 16000000 /dev/urandom > much"}, timeout=150)
    much = seal()
    with unread(tier.d, who, much + "/export"):
        error(who.get(little + "/export", timeout=150), 429, "quota")
        assert tier.d.get("/v1/tenants/unseen").json["used"]["memory"] == 128 << 20
    eventually(lambda: who.get(little + "/export", timeout=150).status == 200, LONG)
    who.delete(f"/v1/sandboxes/{b['id']}")
    again = who.post("/v1/checkpoints/import", packed, timeout=150)
    assert again.status == 201, again
    for path in (much, little, f"/v1/checkpoints/{again.json['id']}"):
        who.delete(path)
    eventually(lambda: tier.d.get("/v1/tenants/unseen").json["used"]["memory"] == 0, LONG)
