"""What programs expect of a machine, as seen from inside: message queues, names, limits, processors, packages, folders."""
import os
import resource
import subprocess

import pytest

from api import d, error, nothing_is_left_behind  # noqa: F401
from host import ROOT, python, sh
from test_checkpoints_memory import clean  # noqa: F401
from test_memory_objects import start, tells

QUEUE = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def opened(name, flags=os.O_RDWR | os.O_CREAT): return libc.mq_open(name, flags, 0o600, None)
"""
USE = QUEUE + """
print(os.listdir("/dev/mqueue"))
q = opened(b"/jobs")
assert q >= 0, os.strerror(ctypes.get_errno())
for text, priority in (b"low", 1), (b"high", 9), (b"low too", 1): assert libc.mq_send(q, text, len(text), priority) == 0
b, p = ctypes.create_string_buffer(8192), ctypes.c_uint()
for i in range(3):
    n = libc.mq_receive(q, b, 8192, ctypes.byref(p))
    print(p.value, b.raw[:n].decode())
print(os.listdir("/dev/mqueue"), opened(b"/none", os.O_RDWR), errno.errorcode[ctypes.get_errno()])
"""
USED = "[]\n9 high\n1 low\n1 low too\n['jobs'] -1 ENOENT\n"


@pytest.mark.parametrize("user", ["user", "root"])
def test_message_queues_work_and_are_the_sandboxs_own(user):
    for _ in range(2):
        r = python(USE, "--user", user)
        assert r.text == USED, r


def test_message_queues_are_bounded():
    r = python(QUEUE + "n = 0\nwhile opened(b'/q%d' % n) >= 0: n += 1\nprint(n, errno.errorcode[ctypes.get_errno()])")
    n, why = r.text.split()
    assert 1 <= int(n) <= 256 and why in ("EMFILE", "ENOSPC"), r
    assert int(python("import resource; print(resource.getrlimit(12)[1])").text) <= 819200


def test_sandboxes_of_the_daemon_start_without_queues(d, clean):
    """Also those that are made of what an earlier one of the tenant has used."""
    for _ in range(3):
        b = d.create()["id"]
        x = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["python3", "-c", USE]}).json
        assert x["stdout"] == USED, x
        assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_a_memory_checkpoint_refuses_message_queues_by_name(d, clean):
    b = d.create()
    path = f"/v1/sandboxes/{b['id']}"
    x = start(d, b, QUEUE + "q = opened(b'/kept'); gate(); assert libc.mq_unlink(b'/kept') == 0; gate(); os.close(q); gate(); print('on')")
    e = error(d.post(f"{path}/checkpoints", {"memory": True}), 422, "refused")
    assert "POSIX message queue" in e["message"] and "/kept" in e["message"], e
    assert d.post(f"{path}/execs/{x}/stdin", b"\n").status in (200, 204)
    assert d.post(f"{path}/execs", {"shell": "while [ -e /dev/mqueue/kept ]; do sleep 0.05; done"}).json["exit_code"] == 0
    e = error(d.post(f"{path}/checkpoints", {"memory": True}), 422, "refused")
    assert "python3" in e["message"] and "POSIX message queue" in e["message"], e
    assert d.post(f"{path}/execs/{x}/stdin", b"\n").status in (200, 204)
    assert tells(d, b, x)[1] == 0
    r = d.post(f"{path}/checkpoints", {"memory": True})
    assert r.status == 201, r


def hard():
    """A program can raise its limit so far, unless this machine itself has less to give."""
    top = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return {65536, max(1024, min(65536, top - top // 4))}


def test_a_program_can_raise_its_limit_of_open_files():
    r = sh("ulimit -n; ulimit -Hn; ulimit -n $(ulimit -Hn); ulimit -n")
    soft, top, raised = map(int, r.text.split())
    assert soft == 1024 and top == raised and top in hard(), r
    assert sh("ulimit -Sn; ulimit -Hn", "--nofile", "500").text == "500\n500\n"  # chosen to bound
    assert sh("ulimit -Sn; ulimit -Hn", "--nofile", "2000").text == "2000\n2000\n"


HIGH = """
top = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (top, top))
fds = [os.open("/dev/null", os.O_RDONLY) for i in range(1500)]
os.dup2(fds[0], top - 1)
gate()
print(max(fds) > 1024, resource.getrlimit(resource.RLIMIT_NOFILE) == (top, top), os.fstat(top - 1).st_rdev == os.stat("/dev/null").st_rdev)
"""


def test_descriptors_above_1024_are_in_memory_checkpoints(d, clean):
    b = d.create()
    x = start(d, b, HIGH)
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore")
    assert r.status == 201, r
    for box in (b, r.json["sandboxes"][0]):
        assert tells(d, box, x) == ("True True True", 0, "")


def test_names_of_the_machine_and_its_first_process():
    r = sh("cat /proc/1/comm; hostname -f; hostname -i; getent hosts localhost >/dev/null && echo found; readlink /etc/mtab /var/run /var/lock")
    assert r.text == "init\nsandbox\n127.0.0.1\nfound\n../proc/self/mounts\n/run\n/run/lock\n", r


def test_a_host_name_of_its_own_is_found(tmp_path):
    assert sh("hostname -f; grep -c . /etc/hosts", "--hostname", "box-1").text == "box-1\n4\n"
    assert sh("hostname -f", "--hostname", "box-1", "--read-only", "--user", "root").text == "box-1\n"
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    sh("true", "--hostname", "box-1", "--mount", f"{hosts}:/etc/hosts")
    assert hosts.read_text() == "127.0.0.1 localhost\n"  # the host's own file stays as it is


@pytest.mark.skipif(not os.path.exists("/var/lib/dpkg/status"), reason="the host has no dpkg")
def test_the_packages_of_image_host_are_listed():
    here = subprocess.run(["dpkg-query", "-W"], capture_output=True, text=True, check=True).stdout
    for user in ("user", "root"):
        assert sh("dpkg-query -W", "--user", user, "--output-limit", "16M").text == here
    assert sh("cd /etc/apt/trusted.gpg.d && ls").text == "".join(f"{n}\n" for n in sorted(os.listdir("/etc/apt/trusted.gpg.d")))


def test_processors_and_network_devices_are_below_sys():
    r = sh("cd /sys/devices/system/cpu; ls -d cpu[0-9]*; cat online cpu0/topology/core_siblings_list; ls /sys/class/net; cat /sys/class/net/lo/mtu; "
           "lscpu | sed -n 's/^\\(Thread\\|Core\\|Socket\\).*: *//p'; ! touch /sys/x 2>/dev/null && echo fixed")
    assert r.text.split() == ["cpu0", "0", "0", "lo", "65536", "1", "1", "1", "fixed"], r
    if len(os.sched_getaffinity(0)) > 1:
        r = sh("lscpu -p=CPU,CORE,SOCKET | grep -v '#'; cat /sys/devices/system/cpu/cpu1/topology/thread_siblings", "--cpus", "2")
        assert r.text.split() == ["0,0,0", "1,1,0", "2"], r


def test_caches_are_those_of_the_host():
    place = "/sys/devices/system/cpu/cpu0/cache"
    indexes = sorted(i for i in os.listdir(place) if i.startswith("index")) if os.path.isdir(place) else []  # some machines have none
    had = [open(f"{place}/{i}/{f}").read() for i in indexes for f in ("level", "type", "size")]
    r = sh(f"cd {place} && for i in $(ls); do cat $i/level $i/type $i/size; cat $i/shared_cpu_list >&2; done")
    assert r.text == "".join(had) and set(r.err.split()) == ({b"0"} if had else set()), (r, had)


@pytest.mark.parametrize("user", ["user", "root"])
def test_the_table_of_files_and_limits(user):
    """What docs/differences.md says of /proc/pressure, terminals, message queues and core files."""
    r = python("""
import os, resource
print(os.listdir("/proc/pressure"))
fds = []
try:
    while True: fds += os.openpty()
except OSError as e:
    print(len(fds) // 2, e.strerror)
print(resource.getrlimit(resource.RLIMIT_CORE), sorted(n for n in os.listdir("/dev") if n not in ("fd", "stdin", "stdout", "stderr")))
try:
    os.mknod("/tmp/null", 0o20666, os.makedev(1, 3))
except OSError as e:
    print(e.strerror)
""", "--user", user)
    assert r.text == ("[]\n64 No space left on device\n(0, 0) ['full', 'mqueue', 'null', 'ptmx', 'pts', 'random', 'shm', 'tty', 'urandom', 'zero']\n"
                      "Operation not permitted\n"), r


def test_a_relative_cwd_begins_at_the_work_folder(d):
    b = d.create(workdir="/home/user/project")["id"]
    path = f"/v1/sandboxes/{b}/execs"
    assert d.post(path, {"shell": "mkdir -p a/b"}).json["exit_code"] == 0
    assert [d.post(path, {"shell": "pwd", "cwd": c}).json["stdout"] for c in ("a/b", "./a", "..", "/tmp", "")] == [
        f"{f}\n" for f in ("/home/user/project/a/b", "/home/user/project/a", "/home/user", "/tmp", "/home/user/project")]
    e = error(d.post(path, {"cmd": ["true"], "cwd": "none/here"}), 422, "refused")
    assert "/home/user/project/none/here" in e["message"], e
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_a_mount_below_a_closed_folder_can_be_reached(tmp_path):
    (tmp_path / "f").write_text("found\n")
    where = f"{tmp_path}:/root/deep/mnt:ro"
    r = sh("cat /root/deep/mnt/f; ls /root 2>/dev/null || echo closed; stat -c %a /root", "--mount", where)
    assert r.text == "found\nclosed\n701\n", r
    assert sh("cat /root/deep/mnt/f; stat -c %a /root", "--mount", where, "--user", "root").text == "found\n700\n"
    assert sh("stat -c %a /root").text == "700\n"


# Each row of the table below Calls in docs/differences.md: how it is tried. One error for all calls of a row.
TRIED = {
    "UDP-Lite": "sock(2, 2, 136)", "MPTCP": "sock(2, 1, 262)", "SCTP": "sock(2, 1, 132)", "`ping`": "sock(2, 2, 1)", "raw sockets": "sock(2, 3, 1)",
    "sockets of packets": "sock(17, 3, 0), sock(40, 1, 0), sock(38, 5, 0)", "sock_diag": "sock(16, 3, 4)",
    "generic netlink": "sock(16, 3, 16), sock(16, 3, 9), sock(16, 3, 15)", "AIO": "call('io_setup', 8, byref(c_ulong()))",
    "`io_uring_setup`": "call('io_uring_setup', 4, room())", "`memfd_secret`": "call('memfd_secret', 0)",
    "keys": "call('keyctl', 0, -3, 1), call('add_key', b'user', b'x', b'y', 1, -3)",
    "`userfaultfd`": "call('userfaultfd', 1), call('bpf', 0, room(), 128), call('perf_event_open', room(), 0, -1, -1, 0), call('fanotify_init', 0, 0)",
    "`kcmp`": "call('kcmp', os.getpid(), os.getpid(), 0, 0, 1), call('name_to_handle_at', -100, b'/tmp', room(), room(), 0)",
    "NUMA policies": "call('mbind', page(), 4096, 0, None, 0, 0)", "namespaces": "call('unshare', 0x10000000), call('unshare', 0x20000)",
    "`mount`": "call('mount', b'none', b'/mnt', b'tmpfs', 0, None)", "`chroot`": "tries(os.chroot, '/usr')",
    "`mknod`": "tries(os.mknod, '/tmp/null', 0o20666, os.makedev(1, 3))",
    "ports below 1024": "tries(socket.create_server, ('127.0.0.1', 80))",
    "real-time": "tries(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))",
    "socket filters": "tries(socket.socket(2, 2).setsockopt, 1, 26, struct.pack('HxxxxxxP', 1, page()))",
    "`personality`": "call('personality', 0x40000)", "huge pages": "call('shmget', 0, 2 << 20, 0o5600)",
}
NUMBERS = {  # x86_64, aarch64
    "io_setup": (206, 0), "io_uring_setup": (425, 425), "memfd_secret": (447, 447), "keyctl": (250, 219), "add_key": (248, 217), "userfaultfd": (323, 282),
    "bpf": (321, 280), "perf_event_open": (298, 241), "fanotify_init": (300, 262), "kcmp": (312, 272), "name_to_handle_at": (303, 264), "mbind": (237, 235),
    "unshare": (272, 97), "mount": (165, 40), "personality": (135, 92), "shmget": (29, 194),
}
TRYING = """
import ctypes, errno, os, platform, socket, struct, sys
from ctypes import byref, c_ulong
libc = ctypes.CDLL(None, use_errno=True)
numbers, tried = %r, %r
def room(): return ctypes.create_string_buffer(bytes([128]) + bytes(255))
def page(): # below 4 GiB: an argument is an int unless it says otherwise
    libc.mmap.restype = ctypes.c_void_p
    return ctypes.c_void_p(libc.mmap(ctypes.c_void_p(0x10000000), 4096, 3, 0x22, -1, 0)).value
def call(name, *args):
    ctypes.set_errno(0)
    n = numbers[name][platform.machine() != "x86_64"]
    return "works" if libc.syscall(n, *args) >= 0 else errno.errorcode[ctypes.get_errno()]
def tries(fn, *args):
    try:
        fn(*args)
        return "works"
    except OSError as e:
        return errno.errorcode[e.errno]
def sock(*args): return tries(lambda: socket.socket(*args).close())
for name, how in tried.items():
    said = eval(how)
    print(name, *sorted({said} if isinstance(said, str) else set(said)))
"""


@pytest.mark.parametrize("user", ["user", "root"])
def test_calls_are_as_different_from_docker_as_documented(user):
    r = python(TRYING % (NUMBERS, TRIED), "--user", user)
    said = dict(line.rsplit(" ", 1) for line in r.text.splitlines())
    rows = {}
    with open(ROOT / "docs/differences.md", encoding="utf-8") as f:
        for line in f.read().partition("## Calls")[2].partition("## ")[0].partition("|---")[2].splitlines()[1:]:
            if line.startswith("|"):
                rows[line.split("|")[1].strip()] = line.split("|")[2].strip(" `")
    assert len(rows) == len(TRIED) == len(said), (rows.keys(), r)
    assert {name: said[next(k for k in said if name.startswith(k))] for name in rows} == rows
