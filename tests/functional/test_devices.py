"""Devices: specifications of the Container Device Interface, with nodes and files that do no harm. On a machine with a GPU,
`make test-gpu` uses the real one."""
import json
import os
import pathlib
import queue
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time

import pytest

import host
from api import nothing_is_left_behind  # noqa: F401
from daemon import Daemon

ZERO, FULL, NULL = (1, 5), (1, 7), (1, 3)


def error(answer):
    assert set(answer.json) == {"error"}, answer
    return answer.json["error"]


@pytest.fixture
def world():
    """A folder that everyone can search: nodes, files, and specifications in cdi/."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cloche-devices-", dir="/var/tmp"))
    folder.chmod(0o755)
    w = World(folder)
    yield w
    shutil.rmtree(folder)


class World:
    def __init__(self, folder):
        self.folder, self.cdi = folder, folder / "cdi"
        self.cdi.mkdir(mode=0o755)

    def node(self, name, device, mode=0o660, kind=stat.S_IFCHR):
        path = self.folder / name
        os.mknod(path, kind | mode, os.makedev(*device))
        path.chmod(mode)
        return str(path)

    def file(self, name, text="driver\n"):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o644)
        return str(path)

    def spec(self, text, name="vendor.yaml"):
        path = self.cdi / name
        path.write_text(text)
        path.chmod(0o644)
        return path

    def run(self, *args, **kw):
        return host.run("--cdi-dir", self.cdi, *args, **kw)

    def gpus(self):
        """Two, as nvidia-ctk would describe them."""
        self.node("gpu0", ZERO), self.node("gpu1", FULL), self.node("ctl", NULL)
        self.file("libfake.so.1.0")
        devices = "".join(f"- name: \"{i}\"\n  containerEdits:\n    deviceNodes:\n    - {{path: /dev/nvidia{i}, hostPath: {self.folder}/gpu{i}}}\n" for i in (0, 1))
        both = "".join(f"    - {{path: /dev/nvidia{i}, hostPath: {self.folder}/gpu{i}}}\n" for i in (0, 1))
        self.spec(f"""---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
{devices}- name: all
  containerEdits:
    deviceNodes:
{both}containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  deviceNodes:
  - path: /dev/nvidiactl
    hostPath: {self.folder}/ctl
  mounts:
  - hostPath: {self.folder}/libfake.so.1.0
    containerPath: /opt/driver/libfake.so.1.0
    options: [ro, nosuid, nodev, rbind, rprivate]
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, create-symlinks, --link, libfake.so.1.0::/opt/driver/libfake.so]
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /opt/driver]
""", "nvidia.yaml")


def fine(r):
    assert r.code == 0, r
    return r.out.decode()


def test_a_device_its_files_and_variables_are_inside_and_work(world):
    world.gpus()
    r = world.run("--gpu", "0", "--", "sh", "-c", """
        head -c 3 /dev/nvidia0 | od -An -tx1; ls -l /dev/nvidia0 /dev/nvidiactl | cut -c1-10; ls /dev | grep -c nvidia
        echo x > /dev/nvidiactl && cat /opt/driver/libfake.so && echo $NVIDIA_VISIBLE_DEVICES; id -u""")
    assert fine(r).split("\n") == [" 00 00 00", "crw-rw----", "crw-rw----", "2", "driver", "void", "1000", ""]


def test_nothing_else_can_be_opened_or_changed(world):
    world.gpus()
    r = world.run("--gpu", "0", "--user", "root", "--", "sh", "-c", """
        test -e /dev/nvidia1 && echo there; mknod /tmp/full c 1 7 2>&1 | grep -o 'not permitted'; chmod 666 /dev/nvidia0 2>&1 | grep -o 'Read-only'
        touch /dev/more 2>&1 | grep -o 'Read-only'; (echo x > /opt/driver/libfake.so.1.0) 2>&1 | grep -o Read-only; cat /opt/driver/libfake.so.1.0; head -c1 /dev/nvidia0 | od -An -tx1""")
    assert fine(r).split("\n") == ["not permitted", "Read-only", "Read-only", "Read-only", "driver", " 00", ""]


def test_all_several_and_ids_of_gpus(world):
    world.gpus()
    assert fine(world.run("--gpu", "all", "--", "sh", "-c", "ls /dev | grep 'nvidia[0-9]'")) == "nvidia0\nnvidia1\n"
    assert fine(world.run("--gpu", "1", "--", "sh", "-c", "ls /dev | grep 'nvidia[0-9]'")) == "nvidia1\n"
    assert fine(world.run("--gpu", "0,1", "--", "sh", "-c", "ls /dev | grep -c 'nvidia[0-9]'")) == "2\n"
    assert fine(world.run("--device", "nvidia.com/gpu=1", "--", "ls", "/dev/nvidia1")) == "/dev/nvidia1\n"
    for wrong, text in (("7", "none of that name"), ("GPU-4f1f8d2e-0000-0000-0000-000000000000", "none of that name"), ("", "not a name of a device")):
        r = world.run("--gpu", wrong, "--", "true")
        assert r.code == 125 and text in r.err.decode(), r


def test_read_only_devices_cannot_be_written_not_even_by_root(world):
    world.node("zero", ZERO, 0o666)
    world.spec(f"""{{"cdiVersion": "0.5.0", "kind": "vendor.com/x", "devices": [{{"name": "r", "containerEdits":
        {{"deviceNodes": [{{"path": "/dev/sub/folder/x", "hostPath": "{world.folder}/zero", "permissions": "r"}}]}}}}]}}""", "vendor.json")
    for user in ("root", "user", "4321"):
        r = world.run("--device", "vendor.com/x=r", "--user", user, "--", "sh", "-c",
                      "head -c1 /dev/sub/folder/x | od -An -tx1; (echo > /dev/sub/folder/x) 2>&1 | grep -o denied; true")
        assert fine(r) == " 00\ndenied\n"


def test_owners_and_modes_of_a_specification_are_those_inside(world):
    world.node("zero", ZERO, 0o600)
    world.spec(f"""
cdiVersion: 0.5.0
kind: vendor.com/x
devices:
- name: mine
  containerEdits:
    deviceNodes: [{{path: /dev/x, hostPath: {world.folder}/zero, uid: 7, gid: 44, fileMode: 0640}}]
""")
    assert fine(world.run("--device", "vendor.com/x=mine", "--user", "root", "--", "stat", "-c", "%u:%g %a", "/dev/x")) == "7:44 640\n"


def test_a_node_by_its_path(world):
    path = world.node("zero", ZERO, 0o600)
    r = world.run("--device", path, "--", "true")
    assert r.code == 125 and "must be below /dev" in r.err.decode()
    fuse = "/dev/fuse"
    if not os.path.exists(fuse):
        fuse = "/dev/net/tun"
    assert os.path.exists(fuse), "this machine has neither /dev/fuse nor /dev/net/tun"
    assert fine(world.run("--device", fuse, "--", "sh", "-c", f"exec 3<>{fuse} && echo open")) == "open\n"
    # without being asked for, it is not there
    assert world.run("--", "ls", fuse).code != 0


@pytest.mark.parametrize("edits, text", [
    ("deviceNodes: [{path: /dev/x, hostPath: FOLDER/none}]", "No such file"),
    ("deviceNodes: [{path: /dev/x, hostPath: FOLDER/zero, minor: 9}]", "not what its specification says"),
    ("deviceNodes: [{path: /dev/../etc/x, hostPath: FOLDER/zero}]", "'..' is not allowed"),
    ("deviceNodes: [{path: /dev/null, hostPath: FOLDER/zero}]", "none that every sandbox has"),
    ("deviceNodes: [{path: /dev/mem, hostPath: FOLDER/mem}]", "memory of the kernel"),
    ("deviceNodes: [{path: /dev/disk, hostPath: FOLDER/disk}]", "a disk"),
    ("mounts: [{hostPath: /etc/hostname, containerPath: /proc/version}]", "reserved"),
    ("mounts: [{hostPath: /etc/hostname, containerPath: /opt/x, options: [rw]}]", "option 'rw'"),
    ("hooks: [{hookName: createContainer, path: /bin/vendor-hook, args: [vendor-hook, --now]}]", "hook vendor-hook --now: not one that Cloche knows"),
    ("intelRdt: {closID: x}", "intelRdt"),
    ("netDevices: [{hostInterfaceName: eth0, name: eth0}]", "netDevices"),
    ("envs: [A=b]", "unknown field 'envs'"),
    ("env: &a [*a]", "anchors"),
])
def test_a_specification_that_cannot_be_done_is_refused_with_the_reason(world, edits, text):
    world.node("zero", ZERO), world.node("mem", (1, 1)), world.node("disk", (7, 0), kind=stat.S_IFBLK)
    world.spec(f"cdiVersion: 1.1.0\nkind: vendor.com/x\ndevices:\n- name: a\n  containerEdits:\n    env: [A=b]\n- name: b\n  containerEdits:\n    {edits}\n".replace("FOLDER", str(world.folder)))
    r = world.run("--device", "vendor.com/x=b", "--", "true")
    host.one_line(r)
    assert text in r.err.decode(), r
    # what is wrong in the device alone does not concern the others of the file
    assert ("field" in text or "anchors" in text) == (world.run("--device", "vendor.com/x=a", "--", "true").code != 0)


def test_files_that_others_can_write_are_not_read(world):
    world.gpus()
    os.chmod(world.cdi / "nvidia.yaml", 0o666)
    r = world.run("--gpu", "0", "--", "true")
    assert r.code == 125 and "could change it" in r.err.decode() or "no GPU" in r.err.decode(), r


def test_two_files_with_one_name_conflict(world):
    world.gpus()
    shutil.copy(world.cdi / "nvidia.yaml", world.cdi / "other.yaml")
    r = world.run("--gpu", "0", "--", "true")
    assert r.code == 125 and "nvidia.yaml" in r.err.decode() and "other.yaml" in r.err.decode(), r


def test_virtual_machines_have_no_devices(world):
    r = world.run("--isolation", "vm", "--device", "/dev/fuse", "--", "true")
    assert r.code == 125 and "only a container can have them" in r.err.decode(), r


def test_without_a_specification_gpus_are_found(world):
    """As a driver leaves them: nodes, /proc/driver/nvidia, libraries in no standard folder."""
    root = world.folder / "root"
    for folder in ("dev", "proc/driver/nvidia/gpus/0000:01:00.0", "proc/driver/nvidia/gpus/0000:02:00.0", "usr/local/nvidia/lib64", "usr/local/nvidia/bin"):
        (root / folder).mkdir(parents=True)
    for name, device in (("nvidia0", ZERO), ("nvidia1", FULL), ("nvidiactl", NULL), ("nvidia-uvm", NULL)):
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(*device))
    for bus, minor, uuid in (("01", 1, "GPU-11111111-aaaa"), ("02", 0, "GPU-22222222-bbbb")):
        (root / f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information").write_text(f"Model: \t\t X\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    libraries = root / "usr/local/nvidia/lib64"
    shutil.copy(os.path.realpath("/lib/x86_64-linux-gnu/libc.so.6" if os.path.exists("/lib/x86_64-linux-gnu/libc.so.6") else "/lib/aarch64-linux-gnu/libc.so.6"), libraries / "libcuda.so.570.1")
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.570.1")
    shutil.copy(os.path.realpath("/bin/true"), root / "usr/local/nvidia/bin/nvidia-smi")
    # a script that leads there is not taken in its place
    (root / "usr/bin").mkdir()
    (root / "usr/bin/nvidia-smi").write_text("#!/bin/sh\nexec /usr/local/nvidia/bin/nvidia-smi\n")
    (root / "usr/local/nvidia/bin/nvidia-debugdump").write_text("#!/bin/sh\n")
    p = subprocess.run([host.BUILD / "cloche-devices", "--root", root, "list"], stdout=subprocess.PIPE, check=True)
    found = {d["name"]: d for d in json.loads(p.stdout)["devices"]}
    assert set(found) == {"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all", "nvidia.com/gpu=GPU-11111111-aaaa", "nvidia.com/gpu=GPU-22222222-bbbb"}
    assert not any("problem" in d for d in found.values()), found
    # in the order of their buses, whatever the nodes are called
    assert found["nvidia.com/gpu=0"]["unit"] == found["nvidia.com/gpu=GPU-11111111-aaaa"]["unit"] == ["c1:7"]
    assert found["nvidia.com/gpu=all"]["unit"] == ["c1:7", "c1:5"]
    text = subprocess.run([host.BUILD / "cloche-devices", "--root", root, "text"], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert "nvidia.com/gpu=0" in text and "3 nodes, 3 files" in text  # the library, by its own name as well, and nvidia-smi


# --- the daemon ---


@pytest.fixture
def served(world):
    world.gpus()
    with Daemon(None, "--allow-device", "gpu", "--allow-device", "team-a:/dev/fuse", "--config", world.file("cloche.conf", f"cdi_folders = {world.cdi}\n")) as d:
        yield d


def test_a_sandbox_of_the_daemon_has_its_gpu_alone(served, world):
    d = served
    a = d.post("/v1/sandboxes", {"name": "a", "gpus": "any"})
    assert a.status == 201, a
    assert a.json["gpus"] == "any" and a.json["devices"] == [] and "shared" in a.json["enforced"]["gpus"]
    assert a.json["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    r = d.cli("exec", "a", "--", "sh", "-c", "ls /dev | grep 'nvidia[0-9]'; head -c1 /dev/nvidia0 | od -An -tx1; cat /opt/driver/libfake.so")
    assert r.out == b"nvidia0\n 00\ndriver\n", r
    # the other one
    b = d.post("/v1/sandboxes", {"name": "b", "gpus": "any"})
    assert b.status == 201 and d.cli("exec", "b", "--", "ls", "/dev/nvidia1").code == 0
    for more in ({"gpus": "any"}, {"gpus": "0"}, {"gpus": "all"}, {"devices": ["nvidia.com/gpu=1"]}, {"gpus": "0", "gpus_shared": True}):
        c = d.post("/v1/sandboxes", more)
        assert c.status == 503 and error(c)["reason"] == "device_taken", c
    # a restart of the API process forgets nothing
    d.kill9("api")
    assert error(d.post("/v1/sandboxes", {"gpus": "any"}))["reason"] == "device_taken"
    assert d.delete("/v1/sandboxes/b").status in (200, 204)
    assert d.post("/v1/sandboxes", {"name": "c", "gpus": "any"}).status == 201


def test_a_gpu_can_be_shared_by_those_that_say_so(served):
    d = served
    for name in "ab":
        assert d.post("/v1/sandboxes", {"name": name, "gpus": "0", "gpus_shared": True}).status == 201
    assert error(d.post("/v1/sandboxes", {"gpus": "0"}))["reason"] == "device_taken"


def test_a_gpu_is_taken_whatever_it_is_called(served, world):
    d = served
    # specifications need no `all`, and a node of a GPU can be had by its path
    text = (world.cdi / "nvidia.yaml").read_text()
    start, end = text.index("- name: all"), text.index("containerEdits:\n  env")
    world.spec(text[:start] + "- name: \"7\"\n  containerEdits:\n    deviceNodes: [{path: /dev/nvidia7, hostPath: /dev/fuse}]\n" + text[end:], "nvidia.yaml")
    token = d.post("/v1/tokens", {"tenant": d.post("/v1/tenants", {"id": "team-a"}).json["id"], "scope": "sandbox"}).json["token"]
    for first, others in (({"devices": ["nvidia.com/gpu=all"]}, ({"gpus": "0"}, {"gpus": "any"}, {"devices": ["/dev/fuse"]})),
                          ({"devices": ["/dev/fuse"]}, ({"gpus": "7"}, {"gpus": "all"}, {"devices": ["nvidia.com/gpu=all"]}))):
        a = d.request("POST", "/v1/sandboxes", {**first, "name": "a"}, token=token)
        assert a.status == 201, a
        for more in others:
            r = d.request("POST", "/v1/sandboxes", more, token=token)
            assert r.status == 503 and error(r)["reason"] == "device_taken", (first, more, r)
        assert d.request("DELETE", "/v1/sandboxes/a", token=token).status in (200, 204)


def test_a_gpu_by_its_path_counts_for_the_quota(served, world):
    d = served
    text = (world.cdi / "nvidia.yaml").read_text()
    at = text.index("- name: all")
    world.spec(text[:at] + "- name: \"7\"\n  containerEdits:\n    deviceNodes: [{path: /dev/nvidia7, hostPath: /dev/fuse}]\n" + text[at:], "nvidia.yaml")
    tenant = d.post("/v1/tenants", {"id": "team-a", "quotas": {"gpus": 1}}).json["id"]
    token = d.post("/v1/tokens", {"tenant": tenant, "scope": "sandbox"}).json["token"]
    # two names of one GPU are one
    for devices in (["/dev/fuse"], ["/dev/fuse", "nvidia.com/gpu=7"]):
        a = d.request("POST", "/v1/sandboxes", {"name": "a", "devices": devices}, token=token)
        assert a.status == 201, a
        for _ in range(2):
            r = d.request("POST", "/v1/sandboxes", {"gpus": "0"}, token=token)
            assert r.status == 429 and error(r)["reason"] == "quota" and "gpus" in error(r)["message"], r
            d.kill9("api")
        assert d.request("DELETE", "/v1/sandboxes/a", token=token).status in (200, 204)
    assert d.request("POST", "/v1/sandboxes", {"gpus": "0"}, token=token).status == 201


def held_helper(d, seconds=30):
    """Stops the next cloche-devices of the API process; its pid."""
    api, end = d.children()["api"], time.monotonic() + seconds
    while time.monotonic() < end:
        for task in pathlib.Path(f"/proc/{api}/task").iterdir():
            try:
                for pid in (task / "children").read_text().split():
                    os.kill(int(pid), signal.SIGSTOP)
                    if pathlib.Path(f"/proc/{pid}/exe").resolve().name == "cloche-devices":
                        return int(pid)
                    os.kill(int(pid), signal.SIGCONT)
            except (FileNotFoundError, ProcessLookupError):
                continue
    raise AssertionError("cloche-devices was not asked")


def test_others_are_answered_while_devices_are_looked_for(served, world):
    d = served
    d.post("/v1/sandboxes", {"name": "other"})
    # it has to read for long enough to be found
    for i in range(40):
        world.spec("#" * 79 + "\n" + ("# " + "x" * 77 + "\n") * 9000 + f"cdiVersion: 0.5.0\nkind: long.org/x{i}\ndevices: []\n", f"long{i}.yaml")
    answers = queue.Queue()
    threads = [threading.Thread(target=lambda n=n: answers.put((n, d.post("/v1/sandboxes", {"name": n, "gpus": "any"})))) for n in ("a", "b", "c")]
    threads[0].start()
    pid = held_helper(d)
    try:
        for t in threads[1:]:
            t.start()
        for _ in range(10):
            assert d.get("/v1/sandboxes/other").status == 200
            assert d.cli("exec", "other", "--", "echo", "hi").out == b"hi\n"
        assert d.post("/v1/sandboxes", {"name": "plain"}).status == 201
        assert answers.empty()
    finally:
        os.kill(pid, signal.SIGCONT)
    for t in threads:
        t.join(60)
    got = dict(answers.get(timeout=1) for _ in threads)
    # two GPUs for three, who were looked at one after the other
    assert got["a"].status == 201 and sorted(x.status for x in got.values()) == [201, 201, 503], got


def test_nothing_is_read_for_those_who_may_have_no_device(world):
    world.gpus()
    conf = world.file("cloche.conf", f"cdi_folders = {world.cdi}\n")
    with Daemon(None, "--allow-device", "team-a:gpu", "--config", conf) as d:
        for body in ({"gpus": "any"}, {"gpus": "99"}, {"devices": ["nvidia.com/gpu=99"]}, {"devices": ["/dev/fuse", "no.such/thing=1"]}):
            r = d.post("/v1/sandboxes", body)
            assert r.status == 403 and error(r)["reason"] == "host_forbids", (body, r)


def test_tenants_have_what_they_were_allowed(served):
    d = served
    d.post("/v1/tenants", {"id": "team-a", "quotas": {"gpus": 1}})
    token = d.post("/v1/tokens", {"tenant": "team-a", "scope": "sandbox"})
    assert token.status == 201, token
    t = token.json["token"]
    a = d.request("POST", "/v1/sandboxes", {"gpus": "all"}, token=t)
    assert a.status == 429 and error(a)["reason"] == "quota" and "gpus" in error(a)["message"], a
    assert d.request("POST", "/v1/sandboxes", {"gpus": "any"}, token=t).status == 201
    assert d.request("POST", "/v1/sandboxes", {"devices": ["/dev/fuse"]}, token=t).status == 201
    no = d.post("/v1/sandboxes", {"devices": ["/dev/fuse"]})
    assert no.status == 403 and error(no)["reason"] == "host_forbids" and "allow_device" in error(no)["remedy"], no
    assert error(d.post("/v1/sandboxes", {"devices": ["/dev/kmsg"]}))["reason"] == "host_forbids"


def test_files_are_saved_and_memory_is_refused_with_the_reason(served):
    d = served
    d.post("/v1/sandboxes", {"name": "a", "gpus": "0"})
    d.cli("exec", "a", "--", "sh", "-c", "echo kept > file")
    for path, body in (("checkpoints", {"memory": True}), ("fork", {"memory": True})):
        r = d.post(f"/v1/sandboxes/a/{path}", body)
        assert r.status == 422 and error(r)["reason"] == "cannot_carry" and "nvidia.com/gpu=0" in error(r)["message"], r
    c = d.post("/v1/sandboxes/a/checkpoints", {})
    assert c.status == 201, c
    # its own GPU is not taken by another when it is restored in place
    d.cli("exec", "a", "--", "rm", "file")
    r = d.post("/v1/sandboxes/a/restore", {"checkpoint": c.json["id"]})
    assert r.status == 200 and d.cli("exec", "a", "--", "sh", "-c", "cat file; ls /dev/nvidia0").out == b"kept\n/dev/nvidia0\n", r
    assert error(d.post("/v1/sandboxes", {"gpus": "0"}))["reason"] == "device_taken"
    h = d.post("/v1/sandboxes/a/hibernate", {"memory": "auto"})
    assert h.status == 200, h
    # while it sleeps, its GPU is free; it takes it again when it wakes
    assert d.post("/v1/sandboxes", {"name": "b", "gpus": "0"}).status == 201
    assert error(d.post("/v1/sandboxes/a/resume", {}))["reason"] == "device_taken"
    d.delete("/v1/sandboxes/b")
    assert d.cli("exec", "a", "--", "sh", "-c", "cat file; ls /dev/nvidia0").out == b"kept\n/dev/nvidia0\n"


def test_wrong_requests(served):
    d = served
    for body, reason in (({"gpus": "x y"}, "bad_field"), ({"gpus": ""}, "bad_field"), ({"gpus": "any:0"}, "bad_field"), ({"gpus": "9"}, "device_missing"),
                         ({"gpus": "any:9"}, "device_missing"), ({"devices": ["fuse"]}, "bad_field"), ({"devices": [3]}, "bad_field"),
                         ({"devices": ["nvidia.com/gpu=9"]}, "device_missing"), ({"gpus": "0", "isolation": "vm"}, "unsupported")):
        r = d.post("/v1/sandboxes", body)
        assert error(r)["reason"] == reason, (body, r)
    assert d.post("/v1/sandboxes", {"name": "still", "gpus": "0"}).status == 201
