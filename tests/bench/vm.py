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


def machines(pid):
    """The QEMUs below it."""
    found, todo = [], [pid]
    while todo:
        for child in host.children(todo.pop()):
            todo.append(child)
            try:
                if os.path.basename(os.readlink(f"/proc/{child}/exe")).startswith("qemu-system-"):
                    found.append(child)
            except OSError:
                pass
    return found


def private_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def whole(checkpoint):
    """MiB of its disk and memory."""
    return (checkpoint["size"] + checkpoint["memory_size"]) / MIB


class Bench:
    def __init__(self, table, daemon, n):
        self.table, self.d, self.n, self.call = table, daemon, n, Keep(daemon)

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

    def boots(self, plain):
        """Cold boots and clones take turns: whatever else the machine does hits both."""
        first, box = self.first_exec()  # the template is made
        self.delete(box)
        cold, clone, pooled, shape = [], [], [], []
        for i in range(self.n):
            cold.append(plain.boot())
            time.sleep(1)  # until one is ready again
            took, box = self.first_exec()
            pooled.append(took)
            took, other = self.first_exec()  # nobody is ready for it
            clone.append(took)
            self.delete(box)
            self.delete(other)
            if i < self.n // 2:
                took, box = self.first_exec(memory=(SIZE + 8 + 8 * i) * MIB)
                shape.append(took)
                self.delete(box)
        self.cold = p50(cold)
        add = self.table.add
        add("plain QEMU, same kernel: cold boot → first program", self.cold * 1e3)
        add("first create of a shape → first exec (boots its template)", p50([first, *shape]) * 1e3)
        add("clone → first exec", p50(clone) * 1e3, ratio=p50(clone) / self.cold, of="cold boot", bound=0.2)
        add("ready clone → first exec", p50(pooled) * 1e3, ratio=p50(pooled) / self.cold, of="cold boot")

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
        self.table.add("checkpoint with memory: pause", p50(pauses), ratio=p50(pauses) / 1e3 / self.cold, of="cold boot", bound=0.05)
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
        self.table.add("restore as new", p50(restored) * 1e3, ratio=p50(restored) / self.cold, of="cold boot")
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
        rates = []
        for _ in range(self.n):
            took, r = timed(lambda: self.d.put(f"/v1/sandboxes/{box}/files?path=/tmp/blob", data))
            if r.status != 200:
                raise RuntimeError(f"upload: {r}")
            rates.append(len(data) / took / 1e6)
        self.table.add("file upload, 8 MiB", p50(rates), unit="MB/s", bound=20, least=True)
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
        with Daemon(None, "--images", image.parent) as d:
            b = Bench(table, d, n)
            if "boot" in only:
                b.boots(plain)
            else:
                b.cold = p50([plain.boot() for _ in range(n)])
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
