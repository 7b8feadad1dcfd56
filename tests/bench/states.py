#!/usr/bin/python3
"""Checkpoints, forks, warm starts: what they cost beside CRIU, a cold start and cp. See README.md here.

    tests/bench/run --states [--quick]
"""
import argparse
import contextlib
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import criu  # noqa: E402
import host  # noqa: E402
from daemon import Daemon  # noqa: E402
from keep import Keep  # noqa: E402
from table import Table, p50, timed  # noqa: E402

PYTHON = "/usr/bin/python3"
ENV = {"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
WARM = "import numpy\na = numpy.arange(100000)\n"
SOURCE = WARM + "import sys, time\nprint('r', flush=True)\nsys.stdout.close()\ntime.sleep(1e6)\n"


def available():
    """MiB, once the kernel has taken back what lies about."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("MemAvailable"))


class Reference:
    """Cold starts and CRIU. Taken again between what is measured against them: a machine is not as fast at all times."""

    def __init__(self, build, stack):
        command = criu.find(build)
        self.start("import numpy, pandas")
        if not command:
            print("criu: neither Debian's nor the next release's works on this kernel", flush=True)
        self.process = stack.enter_context(criu.Process(command, [PYTHON, "-c", SOURCE], ENV)) if command else None
        self.begin()

    @staticmethod
    def start(code):
        return timed(lambda: subprocess.run([PYTHON, "-c", code], env=ENV, check=True))[0]

    def begin(self):
        """Of the next part of the table."""
        self.taken = {"cold": [], "pandas": [], "dump": [], "restore": []}

    def cold(self):
        self.taken["cold"].append(self.start("import numpy"))
        self.taken["pandas"].append(self.start("import numpy, pandas"))

    def criu(self):
        if self.process:
            self.taken["dump"].append(self.process.dump())
            self.process.end()
            self.taken["restore"].append(self.process.restore())

    def __getitem__(self, name):
        return p50(self.taken[name]) if self.taken[name] else None

    def best(self, name):
        return min(self.taken[name]) if self.taken[name] else None

    def show(self, table):
        for name, what in (("cold", "cold python3 -c 'import numpy'"), ("pandas", "cold python3 -c 'import numpy, pandas'"),
                           ("dump", "criu dump (python + numpy, tmpfs)"), ("restore", "criu restore")):
            if self.taken[name]:
                table.add(what, self[name] * 1e3)


def versus(table, what, seconds, reference, of, bound):
    ratio = seconds / reference if reference else None
    table.add(what, seconds * 1e3, ratio=ratio, of=of if ratio is not None else None, bound=bound if ratio is not None else None)


def warm(table, ref, n, daemon):
    call = Keep(daemon)
    call("PUT", "/v1/templates/numpy", {"warm": {"python": WARM}, "env": {"OPENBLAS_NUM_THREADS": "1"}})
    call("PUT", "/v1/templates/pandas", {"warm": {"python": "import numpy, pandas\n"}, "env": {"OPENBLAS_NUM_THREADS": "1"}})

    def first_line(template):
        """Until the code's first line, by its own clock, and until the code's end was told."""
        state = "len(a)" if template == "numpy" else "pandas.__name__"
        begun = time.time()
        box = call("POST", "/v1/sandboxes", {"template": template})["id"]
        out = call.code(box, f"import time; print(time.time(), {state})")
        told = time.time() - begun
        at, found = out.split()
        if found != ("100000" if template == "numpy" else "pandas"):
            raise RuntimeError(f"the warm state is not there: {out!r}")
        call("DELETE", f"/v1/sandboxes/{box}")
        time.sleep(0.02)
        return float(at) - begun, told

    first_line("numpy"), first_line("pandas")
    on_demand, big, ready, big_ready = [], [], [], []
    ref.begin()
    for i in range(n):
        ref.criu()
        on_demand.append(first_line("numpy"))
        if i % 3 == 0:
            ref.cold()
        big.append(first_line("pandas"))
    for template, taken in (("numpy", ready), ("pandas", big_ready)):
        pool = f"/v1/pools/{template}"
        call("PUT", pool, {"template": template, "min": 8})
        for i in range(n):
            ref.criu()
            if i % 3 == 0:
                ref.cold()
            while call("GET", pool)["ready"] < 8:
                time.sleep(0.02)
            time.sleep(0.05)
            taken.append(first_line(template))
        while call("GET", pool)["ready"] < 8:
            time.sleep(0.02)
        call("DELETE", pool)
    ref.show(table)
    for what, taken, of, bound in (("warm template → first line, on demand", on_demand, "restore", 0.2),
                                   ("warm template → first line, from ready clones", ready, "restore", 0.06),
                                   ("warm template with pandas → first line, on demand", big, "pandas", 0.015),
                                   ("warm template with pandas → first line, from ready clones", big_ready, "pandas", 0.015)):
        name = "criu restore" if of == "restore" else "cold import"
        versus(table, what, p50([line for line, _ in taken]), ref[of], name, bound)
        versus(table, "  ... → its end was told", p50([told for _, told in taken]), ref[of], name, None)


def private(pid):
    """KiB of one process that no other process has."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Private_Clean", "Private_Dirty")))


def below(pid):
    found = [pid]
    for p in found:
        found += host.children(p)
    return found


def running(table, ref, n, daemon):
    """A running sandbox: memory checkpoint, restore, deltas, a hundred forks."""
    call = Keep(daemon)
    box = call("POST", "/v1/sandboxes", {"name": "source", "env": {"OPENBLAS_NUM_THREADS": "1"}})["id"]
    call("POST", f"/v1/sandboxes/{box}/execs", {"cmd": ["/usr/bin/python3", "-c", SOURCE], "background": True})
    time.sleep(2)
    c = call("POST", f"/v1/sandboxes/{box}/checkpoints", {"memory": True})
    full = c["pause_ms"] / 1e3
    times, pauses = [], []
    ref.begin()
    for _ in range(n):
        ref.criu()
        took, b = timed(lambda: call("POST", "/v1/sandboxes", {"checkpoint": c["id"]}))
        times.append(took)
        time.sleep(0.05)
        d = call("POST", f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
        pauses.append(d["pause_ms"] / 1e3)
        call("DELETE", f"/v1/sandboxes/{b['id']}")
        call("DELETE", f"/v1/checkpoints/{d['id']}")
        time.sleep(0.02)
    ref.show(table)
    versus(table, "memory restore as a new sandbox", p50(times), ref["restore"], "criu restore", 0.3)
    versus(table, "pause of a full memory checkpoint", full, ref["dump"], "criu dump", None)
    versus(table, "pause of a delta checkpoint", p50(pauses), ref["dump"], "criu dump", 0.4)

    before = available()
    took, made = timed(lambda: call("POST", f"/v1/sandboxes/{box}/fork", {"count": 100, "memory": True}))
    time.sleep(1)
    versus(table, "100 forks of a numpy sandbox", took, ref["restore"], "criu restore", 40)
    table.add("100 forks: memory in all (the machine's, others' too)", before - available(), "MiB", bound=150)
    ids = [b["id"] for b in made["sandboxes"]]
    stats = [call("GET", f"/v1/sandboxes/{i}/stats")["memory"] / (1 << 20) for i in ids[1:]]
    table.add("100 forks: what the cgroups of all but one are charged", sum(stats), "MiB", bound=150)
    table.add("an idle clone: what its cgroup is charged", p50(stats), "MiB", bound=1)
    for i in ids:
        call("DELETE", f"/v1/sandboxes/{i}")
    call("DELETE", f"/v1/sandboxes/{box}")
    call("DELETE", f"/v1/checkpoints/{c['id']}")


PLAIN = "import sys, time\nprint('r', flush=True)\nsys.stdout.close()\ntime.sleep(1e6)\n"


def answers(table, ref, n, daemon):
    """Until the caller has an answer, of the same Python that CRIU dumps and restores; and of forks, of a bare Python.

    The least of all rounds, ours and theirs: answers wait for a disk and for processors that others use, too.
    """
    call = Keep(daemon)
    taken = {what: [] for what in ("checkpoint", "pause", "fork", "fork pause", "ten", "hibernate", "wake")}
    box = call("POST", "/v1/sandboxes", {"env": {"OPENBLAS_NUM_THREADS": "1"}})["id"]
    bare = call("POST", "/v1/sandboxes", {})["id"]
    for b, code in ((box, SOURCE), (bare, PLAIN)):
        call("POST", f"/v1/sandboxes/{b}/execs", {"cmd": ["/usr/bin/python3", "-c", code], "background": True})
    time.sleep(2)

    def fork(count):
        took, made = timed(lambda: call("POST", f"/v1/sandboxes/{bare}/fork", {"count": count, "memory": True}))
        for b in made["sandboxes"]:
            call("DELETE", f"/v1/sandboxes/{b['id']}")
        time.sleep(0.1)  # what is done behind the answers
        return took

    ref.begin()
    for _ in range(n):
        ref.criu()
        took, c = timed(lambda: call("POST", f"/v1/sandboxes/{box}/checkpoints", {"memory": True}))
        taken["checkpoint"].append(took)
        taken["pause"].append(c["pause_ms"] / 1e3)
        time.sleep(0.05)
        call("DELETE", f"/v1/checkpoints/{c['id']}")
        # A fork does not say how long its source stood still: a checkpoint of the same one does.
        c = call("POST", f"/v1/sandboxes/{bare}/checkpoints", {"memory": True})
        taken["fork pause"].append(c["pause_ms"] / 1e3)
        call("DELETE", f"/v1/checkpoints/{c['id']}")
        time.sleep(0.1)
        taken["fork"].append(fork(1))
        taken["ten"].append(fork(10))
        copy = call("POST", f"/v1/sandboxes/{box}/fork", {"count": 1, "memory": True})["sandboxes"][0]["id"]
        time.sleep(0.2)
        taken["hibernate"].append(timed(lambda: call("POST", f"/v1/sandboxes/{copy}/hibernate", {}))[0])
        time.sleep(0.05)
        taken["wake"].append(timed(lambda: call("POST", f"/v1/sandboxes/{copy}/resume"))[0])
        call("DELETE", f"/v1/sandboxes/{copy}")
        time.sleep(0.05)
    ref.show(table)
    best = {what: min(values) for what, values in taken.items()}
    versus(table, "checkpoint with memory → answered", best["checkpoint"], ref.best("dump"), "criu dump", 0.5)
    versus(table, "  ... of which the sandbox stood still", best["pause"], ref.best("dump"), "criu dump", None)
    versus(table, "fork(1) of a bare Python → answered", best["fork"], best["fork pause"], "its pause", 2.5)
    versus(table, "fork(10) → answered", best["ten"], best["fork"], "fork(1)", 2)
    versus(table, "hibernate → answered", best["hibernate"], ref.best("dump"), "criu dump", 0.6)
    versus(table, "wake → answered", best["wake"], ref.best("restore"), "criu restore", 0.3)
    call("DELETE", f"/v1/sandboxes/{box}")
    call("DELETE", f"/v1/sandboxes/{bare}")


def write_through(path, data):
    """What the disk itself takes: past the cache, as fast as it can be given, until it is there for good."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        for at in range(0, len(data), 1 << 20):
            os.pwrite(fd, data[at:at + (1 << 20)], at)
        os.fsync(fd)
    finally:
        os.close(fd)


CHANGE = "import os\nfor i in range(%d):\n open(f'/home/user/f{i}','wb').write(os.urandom(%d))\n"


def files(table, n, daemon, scratch):
    """10 MB changed on the machine's own system, which is larger than 1 GB."""
    call = Keep(daemon)
    for name, count, size in (("one file", 1, 10_000_000), ("10 files", 10, 1_000_000), ("100 files", 100, 100_000),
                              ("1,000 files", 1000, 10_000)):
        ours, copy, create, restore, disk = [], [], [], [], []
        block = mmap.mmap(-1, -(-count * size // 4096) * 4096)  # it begins where such a write wants it to
        block.write(os.urandom(len(block)))
        source = scratch / "change"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for i in range(count):
            (source / f"f{i}").write_bytes(os.urandom(size))
        box = call("POST", "/v1/sandboxes", {})["id"]
        call("POST", f"/v1/sandboxes/{box}/execs", {"cmd": ["/usr/bin/python3", "-c", CHANGE % (count, size)]})
        for _ in range(n):
            took, c = timed(lambda: call("POST", f"/v1/sandboxes/{box}/checkpoints", {}))
            ours.append(took)
            to = scratch / "copy"
            time.sleep(0.03)  # what is done behind the answer is not to be on the copy's time
            copy.append(timed(lambda: subprocess.run(["cp", "-a", str(source), str(to)], check=True))[0])
            shutil.rmtree(to)
            if count == 1:
                disk.append(timed(lambda: write_through(scratch / "through", memoryview(block)))[0])
                (scratch / "through").unlink()  # not while it is timed: a disk that discards takes longer for this
            time.sleep(0.02)  # as before a create
            took, b = timed(lambda: call("POST", "/v1/sandboxes", {"checkpoint": c["id"]}))
            restore.append(took)
            call("DELETE", f"/v1/sandboxes/{b['id']}")
            time.sleep(0.02)
            took, b = timed(lambda: call("POST", "/v1/sandboxes", {}))
            create.append(took)
            call("DELETE", f"/v1/sandboxes/{b['id']}")
            call("DELETE", f"/v1/checkpoints/{c['id']}")
            time.sleep(0.02)
        table.add(f"checkpoint of 10 MB, {name}", p50(ours) * 1e3, ratio=p50(ours) / p50(copy), of="cp -a", bound=1.5)
        if disk:
            table.add("  ... only writing as much to the disk (no sums, no names)", p50(disk) * 1e3, ratio=p50(disk) / p50(copy), of="cp -a")
        table.add("restore as new", p50(restore) * 1e3, ratio=p50(restore) / p50(create), of="create", bound=2)
        call("DELETE", f"/v1/sandboxes/{box}")


def many(table, daemon, counts):
    """What the n-th checkpoint of one sandbox and the four after it cost, each restored in place before the next."""
    call = Keep(daemon)
    box = call("POST", "/v1/sandboxes", {})["id"]
    took, back = [], []
    for i in range(1, max(counts) + 5):
        call("POST", f"/v1/sandboxes/{box}/execs", {"shell": f"head -c 100000 /dev/urandom > /home/user/f{i % 7}"})
        t, c = timed(lambda: call("POST", f"/v1/sandboxes/{box}/checkpoints", {"name": f"c{i}"}))
        took.append(t)
        back.append(timed(lambda: call("POST", f"/v1/sandboxes/{box}/restore", {"checkpoint": c["id"]}))[0])
    for i in counts:
        for what, all_ in (("checkpoint number", took), ("restore in place from number", back)):
            t = p50(all_[i - 1:i + 4])
            table.add(f"{what} {i}", t * 1e3, ratio=t / p50(all_[:5]), of="the first")
    table.add("checkpoint: the mean of all, with those that join layers", statistics.mean(took) * 1e3)
    call("DELETE", f"/v1/sandboxes/{box}")


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--quick", action="store_true", help="a few rounds only")
    a.add_argument("--only", choices=["warm", "running", "answers", "files", "many"], action="append")
    a.add_argument("--json", help="also write the rows to this file")
    o = a.parse_args()
    n = 3 if o.quick else 15
    only = o.only or ["warm", "running", "answers", "files", "many"]
    host.become_subreaper()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="cloche-bench-", dir="/var/tmp") as scratch:
        scratch = pathlib.Path(scratch)
        os.chmod(scratch, 0o755)
        with contextlib.ExitStack() as stack, Daemon() as daemon:
            ref = Reference(host.BUILD, stack) if {"warm", "running", "answers"} & set(only) else None
            if "warm" in only:
                warm(table, ref, n, daemon)
            if "running" in only:
                running(table, ref, n, daemon)
            if "answers" in only:
                answers(table, ref, max(n, 6), daemon)
            if "files" in only:
                files(table, n, daemon, scratch)
            if "many" in only:
                many(table, daemon, (1, 10) if o.quick else (1, 10, 100))
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(table.rows, indent=1), encoding="utf-8")


main()
