"""What programs see of their sandbox's size and use: /proc/meminfo, /proc/loadavg, /sys/fs/cgroup; and that no OOM is silent."""
import os
import re
import shutil

import pytest

from api import d, eventually, nothing_is_left_behind  # noqa: F401
from host import python, sh
from test_checkpoints_memory import clean  # noqa: F401

MIB = 1 << 20
GROUP = "/sys/fs/cgroup/"
MEMINFO = r"""
import re, time
def info(): return {k: int(v) for k, v in re.findall(r"^(\S+): +(\d+) kB$", open("/proc/meminfo").read(), re.M)}
def until(f):
    end = time.monotonic() + 60
    while not f(info()):
        assert time.monotonic() < end, info()
        time.sleep(0.02)
"""


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_meminfo_tells_what_is_used_now(storage):
    r = python(MEMINFO + """
until(lambda m: m["MemTotal"] - m["MemFree"] > 1000)
x = bytearray(100 << 20)
until(lambda m: m["AnonPages"] > 100 << 10 and m["MemAvailable"] < 156 << 10)
del x
until(lambda m: m["MemAvailable"] > 200 << 10)
print(info()["MemTotal"], len(open("/proc/meminfo").read()))
""", "--memory", "256M", "--storage", storage)
    assert r.code == 0 and r.text.split()[0] == str(256 << 10), r


def test_the_own_control_group_is_shown_and_cannot_be_changed():
    r = sh("cd /sys/fs/cgroup && cat memory.max cpu.max pids.max && for f in memory.current memory.peak pids.current; do "
           "test $(cat $f) -gt 0 || echo bad $f; done; grep -x 'oom_kill 0' memory.events; grep -ow memory cgroup.controllers; "
           "for f in memory.max memory/memory.limit_in_bytes pids.max cpu.max cgroup.procs; do (echo 1 > $f) 2>/dev/null && echo wrote $f; done; "
           "mkdir x 2>/dev/null && echo made; ls -A /sys/fs/cgroup/cpuset 2>/dev/null", "--memory", "128M", "--pids", "64", "--cpus", "0.5", "--user", "root")
    assert r.text == f"{128 * MIB}\n50000 100000\n64\noom_kill 0\nmemory\n", r


@pytest.mark.skipif(not os.path.exists("/usr/bin/java"), reason="no Java here")
def test_java_takes_its_heap_from_the_limit():
    r = sh("java -XX:+PrintFlagsFinal -version 2>/dev/null", "--memory", "1G")
    assert re.search(r"MaxHeapSize += 268435456 ", r.text), r


@pytest.mark.skipif(not shutil.which("node"), reason="no Node here")
def test_node_sizes_itself_by_the_limit():
    r = sh("""node -p 'const os = require("os"); [os.totalmem(), os.freemem() <= os.totalmem(), process.constrainedMemory?.(), os.cpus().length,
        require("v8").getHeapStatistics().heap_size_limit <= os.totalmem()].join()'""", "--memory", "512M", "--cpus", "1")
    assert re.fullmatch(rf"{512 * MIB},true,(|{512 * MIB}),1,true\n", r.text), r


def test_sort_spills_to_disk_before_the_limit_kills_it():
    """GNU sort asks sysinfo(2), which reports the host's memory, and the limit RLIMIT_RSS, which is only a hint."""
    r = sh("ulimit -Sm; ulimit -Hm; seq 3000000 > /tmp/n && LC_ALL=C sort -r -o /tmp/o /tmp/n && tail -n 1 /tmp/o", "--memory", "48M", "--storage", "disk", "--disk", "500M")
    assert (r.code, r.text) == (0, f"{36 << 10}\nunlimited\n1\n"), r


def test_the_size_hint_is_that_of_the_memory_now(d, clean):
    box = d.create(memory="128M")["id"]
    assert d.exec(box, "sh", "-c", "ulimit -Sm")["stdout"] == f"{96 << 10}\n"
    assert d.request("PATCH", f"/v1/sandboxes/{box}", {"memory": "256M"}).status == 200
    assert d.exec(box, "sh", "-c", "ulimit -Sm")["stdout"] == f"{192 << 10}\n"


SEEN = r"""
for f in memory.max pids.max cpu.max; do cat /sys/fs/cgroup/$f; done; ls -A /sys/fs/cgroup/cpuset 2>/dev/null
(echo 1 > /sys/fs/cgroup/memory.max) 2>/dev/null && echo wrote; mkdir /sys/fs/cgroup/memory/x 2>/dev/null && echo made
grep ' /sys/fs/cgroup' /proc/self/mountinfo | grep -v ' ro,nosuid,nodev,noexec,'
"""


def test_each_sandbox_of_a_slot_sees_its_own_groups(d, clean):
    for memory, pids in ((96, 40), (64, 50), (80, 60)):  # they end: what one leaves serves the next
        box = d.create(memory=f"{memory}M", pids=pids, cpus=0.5)["id"]
        x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sh", "-c", SEEN], "user": "root"}).json
        assert x["stdout"] == f"{memory * MIB}\n{pids}\n50000 100000\n", x
        kinds = d.exec(box, "sh", "-c", "grep -o ' - cgroup.*' /proc/self/mountinfo")["stdout"].split()
        if os.path.isdir(GROUP + "memory"):  # Java looks for these
            assert {"rw,cpuset", "rw,memory"} <= set(kinds), kinds
        assert d.delete(f"/v1/sandboxes/{box}").status == 204


def test_an_oom_of_a_child_is_told(d, clean):
    box = d.create(memory="64M")["id"]
    kill = "/usr/bin/python3 -c 'bytearray(200 << 20)' 2>/dev/null; "
    v = d.exec(box, "sh", "-c", kill + "true")["verdict"]
    assert (v["cause"], v["oom_kills"]) == ("exited", 1) and "memory limit of 64M" in v["warning"], v
    x = d.exec(box, "sh", "-c", "exit 3")
    assert x["verdict"]["cause"] == "exited" and "oom_kills" not in x["verdict"], x
    x = d.exec(box, "sh", "-c", kill + kill + "exit 4")
    assert (x["verdict"]["cause"], x["verdict"]["oom_kills"], x["exit_code"]) == ("oom", 2, 4) and "warning" not in x["verdict"], x
    assert d.get(f"/v1/sandboxes/{box}/stats").json["oom_kills"] == 3
    c = d.cli("exec", box, "--", "sh", "-c", kill + "true")
    assert c.code == 0 and c.err.count(b"warning: 1 process was killed by the memory limit of 64M") == 1, c
    assert re.search(rb"^oom kills +4 ", d.cli("stats", box).out, re.M)


HOLD = """
import os, time
held = {n: open(n) for n in ("/proc/meminfo", "/proc/loadavg", os.path.realpath("/sys/fs/cgroup/memory.current"))}
was = held["/proc/meminfo"].readline()
print("open", flush=True)
while not os.path.exists("/tmp/go"): time.sleep(0.02)
for n, f in held.items():
    assert os.readlink(f"/proc/self/fd/{f.fileno()}") == n
    f.seek(0)
    assert f.read(), n
held["/proc/meminfo"].seek(0)
assert held["/proc/meminfo"].readline() == was
print(open("/sys/fs/cgroup/memory.max").read())
"""


def test_open_files_go_with_a_fork(d, clean):
    box = d.create(memory="128M")["id"]
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", HOLD], "background": True}).json["id"]
    eventually(lambda: d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body == b"open\n", 60)
    r = d.post(f"/v1/sandboxes/{box}/fork", {"memory": True})
    assert r.status == 201, r
    copy = r.json["sandboxes"][0]["id"]
    assert d.exec(copy, "touch", "/tmp/go")["exit_code"] == 0
    r = d.get(f"/v1/sandboxes/{copy}/execs/{x}/wait?timeout=60", timeout=70).json
    assert r["exit_code"] == 0 and r["stdout"] == f"{128 * MIB}\n\n", r
