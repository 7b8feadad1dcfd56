#!/usr/bin/python3
"""Virtual machines: clones beside cold boots, checkpoints, memory of many. See README.md here.

    tests/bench/run --vm [--quick]
"""
import argparse
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
from daemon import Daemon  # noqa: E402
from keep import Keep  # noqa: E402
from plain_vm import Plain  # noqa: E402
from small_image import machine_image  # noqa: E402
from table import Table, p50, timed  # noqa: E402

MIB = 1 << 20
SIZE = 256


def below(pid):
    todo = [pid]
    while todo:
        for child in host.children(todo.pop()):
            todo.append(child)
            yield child


def machines(pid):
    """The QEMUs below it."""
    found = []
    for child in below(pid):
        try:
            if os.path.basename(os.readlink(f"/proc/{child}/exe")).startswith("qemu-system-"):
                found.append(child)
        except OSError:
            pass
    return found


def private_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def cpu_ms(pid):
    """Processor time of all below it, in the kernel's ticks."""
    total = 0
    for child in below(pid):
        try:
            stat = pathlib.Path(f"/proc/{child}/stat").read_text(encoding="utf-8")
        except OSError:
            continue
        total += sum(map(int, stat[stat.rindex(")") + 2:].split()[11:13]))
    return total * 1e3 / os.sysconf("SC_CLK_TCK")


def whole(checkpoint):
    """MiB of its disk and memory."""
    return (checkpoint["size"] + checkpoint["memory_size"]) / MIB


class Bench:
    def __init__(self, table, daemon, n):
        self.table, self.d, self.n, self.call = table, daemon, n, Keep(daemon)
        self.boot = None  # seconds: ours, cold, to its first exec

    def create(self, **fields):
        return self.call("POST", "/v1/sandboxes", {"isolation": "vm", "image": "small", "memory": SIZE * MIB, "disk": 256 * MIB, **fields})["id"]

    def sh(self, box, script):
        r = self.call("POST", f"/v1/sandboxes/{box}/execs", {"shell": script})
        if r["exit_code"] != 0:
            raise RuntimeError(f"{script}: {r}")
        return r["stdout"]

    def delete(self, box):
        self.call("DELETE", f"/v1/sandboxes/{box}")

    def first_exec(self, **fields):
        took, box = timed(lambda: self.to_first_exec(**fields))
        return took, box

    def to_first_exec(self, **fields):
        box = self.create(**fields)
        if self.sh(box, "echo here") != "here\n":
            raise RuntimeError("it does not answer")
        return box

    def first_execs(self, n):
        """Of as many machines, one after the other."""
        took = []
        for _ in range(n):
            t, box = self.first_exec()
            took.append(t)
            self.delete(box)
        return took

    def boots(self, plain, other):
        """Cold boots and clones take turns: whatever else the machine does hits both."""
        first, box = self.first_exec()  # the template is made
        self.delete(box)
        bare, cold, clone, pooled = [], [], [], []
        for _ in range(self.n):
            bare.append(plain.boot())
            cold += other.first_execs(1)
            took, box = self.first_exec()  # one is ready since the last
            pooled.append(took)
            took, second = self.first_exec()  # nobody is ready for it
            clone.append(took)
            self.delete(box)
            self.delete(second)
        self.boot = p50(cold)
        add = self.table.add
        add("plain QEMU, same kernel: cold boot → first program", p50(bare) * 1e3)
        add("cold boot → first exec", self.boot * 1e3, ratio=self.boot / p50(bare), of="plain QEMU")
        add("first create of a shape → first exec (boots its template)", first * 1e3, ratio=first / self.boot, of="cold boot")
        add("clone → first exec", p50(clone) * 1e3, ratio=p50(clone) / self.boot, of="cold boot", bound=0.2)
        add("  the same beside plain QEMU", p50(clone) * 1e3, ratio=p50(clone) / p50(bare), of="plain QEMU")
        add("ready clone → first exec", p50(pooled) * 1e3, ratio=p50(pooled) / self.boot, of="cold boot")

    def checkpoints(self):
        """Pause, and size by what was written."""
        box = self.create()
        pauses, sizes = [], {}
        self.sh(box, "mkdir m; true")
        base = self.call("POST", f"/v1/sandboxes/{box}/checkpoints", {"memory": True})
        pauses.append(base["pause_ms"])
        for mib in (8, 32):
            other = self.create()
            x = self.call("POST", f"/v1/sandboxes/{other}/execs",
                          {"shell": f"head -c {mib * MIB} /dev/urandom > /tmp/x; echo done; cat", "stdin_open": True, "background": True})["id"]
            while b"done" not in self.d.get(f"/v1/sandboxes/{other}/execs/{x}/output").body:
                time.sleep(0.1)
            c = self.call("POST", f"/v1/sandboxes/{other}/checkpoints", {"memory": True})
            pauses.append(c["pause_ms"])
            sizes[mib] = whole(c)
            self.delete(other)
        for _ in range(self.n):
            pauses.append(self.call("POST", f"/v1/sandboxes/{box}/checkpoints", {"memory": True})["pause_ms"])
        self.table.add("checkpoint with memory: pause", p50(pauses), ratio=p50(pauses) / 1e3 / self.boot, of="cold boot", bound=0.05)
        self.table.add("checkpoint of one that did nothing", whole(base), unit="MiB")
        for mib, size in sizes.items():
            self.table.add(f"checkpoint of one that wrote {mib} MiB", size, unit="MiB")
        # Each MiB written is in it once in the file's pages and once on its disk, if that was flushed: never more.
        self.table.add("  more for each MiB more", (sizes[32] - sizes[8]) / 24, unit="MiB", bound=2.5)
        restored, boxes = [], []
        for _ in range(self.n):
            took, made = timed(lambda: self.call("POST", f"/v1/checkpoints/{base['id']}/restore", {}))
            restored.append(took)
            boxes += [b["id"] for b in made["sandboxes"]]
        self.table.add("restore as new", p50(restored) * 1e3, ratio=p50(restored) / self.boot, of="cold boot")
        for b in (box, *boxes):
            self.delete(b)

    def memory(self, count):
        before = set(machines(self.d.pid))
        boxes = [self.create() for _ in range(count)]
        for b in boxes:
            self.sh(b, "echo here")
        mine = [p for p in machines(self.d.pid) if p not in before]
        sums = [private_mib(p) for p in mine]
        self.table.add(f"private memory of each of {count} clones of {SIZE} MiB", sum(sums) / len(sums), unit="MiB", bound=35)
        for b in boxes:
            self.delete(b)

    def upload(self):
        box = self.create()
        data = os.urandom(8 * MIB)
        rates, costs = [], []
        for _ in range(self.n):
            before = cpu_ms(self.d.pid)
            took, r = timed(lambda: self.d.put(f"/v1/sandboxes/{box}/files?path=/tmp/blob", data))
            if r.status != 200:
                raise RuntimeError(f"upload: {r}")
            rates.append(len(data) / took / 1e6)
            costs.append((cpu_ms(self.d.pid) - before) / (len(data) / 1e6))
        self.table.add("file upload, 8 MiB", p50(rates), unit="MB/s", bound=20, least=True)
        self.table.add("  processor time for each MB of it", p50(costs))
        self.delete(box)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--quick", action="store_true", help="a few rounds only")
    a.add_argument("--only", choices=["boot", "checkpoint", "memory", "upload"], action="append")
    a.add_argument("--json", help="also write the rows to this file")
    o = a.parse_args()
    only = set(o.only or ["boot", "checkpoint", "memory", "upload"])
    n = 2 if o.quick else 5
    host.become_subreaper()
    table = Table()
    image = machine_image()
    plain = Plain(host.BUILD, SIZE)
    try:
        with Daemon(None, "--images", image.parent) as d, Daemon(None, "--images", image.parent, env={"CLOCHE_VM_COLD": "1"}) as alone:
            b, other = Bench(table, d, n), Bench(table, alone, n)
            if "boot" in only:
                b.boots(plain, other)
            elif "checkpoint" in only:
                b.boot = p50(other.first_execs(n))
            if "checkpoint" in only:
                b.checkpoints()
            if "memory" in only:
                b.memory(3 if o.quick else 10)
            if "upload" in only:
                b.upload()
    finally:
        plain.done()
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(table.rows, indent=1), encoding="utf-8")


main()
