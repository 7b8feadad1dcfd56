#!/usr/bin/python3
"""The way out of a sandbox: what it costs beside passt (pasta), slirp4netns and no relay at all. See README.md here.

    tests/bench/run --network [--quick]
"""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
import net_field  # noqa: E402
from daemon import Daemon  # noqa: E402
from keep import Keep  # noqa: E402
from net_field import LOAD, NET, PORT, THERE  # noqa: E402
from table import Table, p50, timed  # noqa: E402

NAME = "bench.test"
NETWORK = {"allow": [f"{NAME}:{PORT}"]}
PARTS = ("create", "stream", "connect", "flood", "many")
PROGRAM = "/load/cloche-net-load"
BOX = {"cpus": 0, "memory": "64M", "mounts": [{"source": str(LOAD.parent), "target": "/load", "read_only": True}]}


class Ours:
    """A sandbox whose way out is cloche-egress."""
    name = "cloche"

    def __init__(self, daemon, network=None):
        self.daemon, self.call = daemon, Keep(daemon)
        self.pid = daemon.children()["egress"]
        self.box = self.call("POST", "/v1/sandboxes", {"network": network or NETWORK, **BOX})["id"]

    def load(self, verb, *args, address=NAME, port=PORT, call=None):
        r = (call or self.call)("POST", f"/v1/sandboxes/{self.box}/execs", {"cmd": [PROGRAM, verb, address, str(port), *map(str, args)]})
        if r["exit_code"] != 0:
            raise RuntimeError(f"{verb}: {r}")
        return net_field.numbers(r["stdout"])

    def end(self):
        self.call("DELETE", f"/v1/sandboxes/{self.box}")


def create(table, _, daemon, n):
    """From the ready pool, in turn; a pause lets the pool fill again."""
    call = Keep(daemon)
    took = {"none": [], "allow": []}
    networks = {"none": "none", "allow": NETWORK}
    for i in range(n + 4):
        for name in (("none", "allow") if i % 2 else ("allow", "none")):
            took_now, box = timed(lambda name=name: call("POST", "/v1/sandboxes", {"network": networks[name]}))
            call("DELETE", f"/v1/sandboxes/{box['id']}")
            time.sleep(0.03)
            if i >= 4:  # the pool makes ready what was asked for last
                took[name].append(took_now)
    table.add("create, no network", p50(took["none"]) * 1e3)
    table.add("create, allow", p50(took["allow"]) * 1e3, ratio=p50(took["allow"]) / p50(took["none"]), of="none", bound=1.1)


def stream(table, ways, _, n):
    """One stream, all in turn; the relay's own time on the processors beside it."""
    rate = {w.name: {"down": [], "up": []} for w in ways}
    cost = {w.name: {"down": [], "up": []} for w in ways}
    for _ in range(n):
        for way in ways:
            for verb in ("down", "up"):
                before = net_field.cpu(way.pid) if way.pid else 0
                size, nsec = way.load(verb, 1000)
                # It also relays what is not counted, before the measuring begins: about a tenth.
                used = (net_field.cpu(way.pid) - before) / 1.1 if way.pid else 0
                rate[way.name][verb].append(size * 8 / nsec)
                cost[way.name][verb].append(used / size * 1e9)
    for verb in ("down", "up"):
        got = {name: p50(x[verb]) for name, x in rate.items()}
        cpu = {name: p50(x[verb]) for name, x in cost.items()}
        others = [name for name in got if name not in ("direct", "cloche")]
        for name in ("direct", *others):
            table.add(f"one stream {verb}, {name}", got[name], "Gb/s")
        table.add(f"one stream {verb}, cloche", got["cloche"], "Gb/s", ratio=got["cloche"] / got["direct"], of="direct", bound=0.5, least=True)
        if others:
            best = max(others, key=got.get)
            table.add(f"one stream {verb}, cloche", got["cloche"], "Gb/s", ratio=got["cloche"] / got[best], of=best,
                      bound=2 if verb == "down" else None, least=True)
            best = min(others, key=cpu.get)
            for name in others:
                table.add(f"relay's processor time, {verb}, {name}", cpu[name], "s/GB")
            table.add(f"relay's processor time, {verb}, cloche", cpu["cloche"], "s/GB", ratio=cpu["cloche"] / cpu[best], of=best, bound=0.5)


def connect(table, ways, daemon, n):
    got = {w.name: {"connect": [], "echo": []} for w in ways}
    for _ in range(n):
        for way in ways:
            for verb in ("connect", "echo"):
                got[way.name][verb].append(way.load(verb, 500)[0] / 1e6)
    others = [w.name for w in ways if w.name not in ("direct", "cloche")]
    for verb, what in (("connect", "connect"), ("echo", "connect and 1 byte there and back")):
        for name in ("direct", *others):
            table.add(f"{what}, {name}", p50(got[name][verb]))
        mine = p50(got["cloche"][verb])
        if others:
            best = min(others, key=lambda name, verb=verb: p50(got[name][verb]))
            table.add(f"{what}, cloche", mine, ratio=mine / p50(got[best][verb]), of=best, bound=1 if verb == "echo" else None)
        else:
            table.add(f"{what}, cloche", mine)
    ours = next(w for w in ways if w.name == "cloche")
    for what, address in (("an address", THERE), ("a metadata service", "169.254.169.254")):
        refused = [ours.load("denied", 500, address=address, port=PORT + 1)[0] / 1e6 for _ in range(n)]
        table.add(f"connect to {what} that is refused, cloche", p50(refused), bound=0.1)


def flood(table, ways, daemon, n):
    """A neighbour's connects, before and while another sandbox makes as many as it can."""
    ours, wild = next(w for w in ways if w.name == "cloche"), Ours(daemon)
    try:
        quiet, loud, made = [], [], []
        time.sleep(3)  # what was refused a moment ago counts towards a sandbox's connections a second
        for _ in range(n):
            quiet.append(ours.load("echo", 300)[0] / 1e6)
            call, got = Keep(daemon), []
            t = threading.Thread(target=lambda call=call, got=got: got.append(wild.load("flood", 1500, call=call)))
            t.start()
            time.sleep(0.2)  # it has begun: neither exact nor needed to be
            loud.append(ours.load("echo", 300)[0] / 1e6)
            t.join()
            made += got
        table.add("flood: connections a second it made", p50([m[0] for m in made]) / 1.5, "/s")
        table.add("flood: a neighbour's connect and echo, before", p50(quiet))
        table.add("flood: a neighbour's connect and echo, meanwhile", p50(loud), ratio=p50(loud) / p50(quiet), of="before", bound=2)
    finally:
        wild.end()


def many(table, _, daemon, boxes):
    """All sandboxes begin at the same moment; then every stream is still there."""
    each = 20
    pid = daemon.children()["egress"]
    time.sleep(0.5)
    before = net_field.private(pid)
    made = [Ours(daemon) for _ in range(boxes)]
    try:
        time.sleep(1)
        idle = net_field.private(pid)
        table.add("egress: memory of an idle sandbox", (idle - before) / boxes / 1e3, "kB", bound=5)
        start = time.time_ns() + (2 + boxes // 25) * 10**9
        results, memory = [None] * boxes, None

        def one(i):
            results[i] = made[i].load("hold", each, start, start + 3 * 10**9)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(boxes)]
        for t in threads:
            t.start()
        while time.time_ns() < start + 2 * 10**9:
            time.sleep(0.05)
        memory = net_field.private(pid)
        for t in threads:
            t.join()
        if None in results:
            raise RuntimeError("a sandbox told nothing")
        table.add(f"{boxes * each} streams of {boxes} sandboxes: all up after", max(r[0] for r in results) / 1e6, bound=500)
        table.add(f"{boxes * each} streams of {boxes} sandboxes: errors", sum(r[1] for r in results), "", bound=0)
        table.add("egress: memory of an idle stream", (memory - idle) / (boxes * each) / 1e3, "kB", bound=1)
    finally:
        for one in made:
            one.end()


def config(folder):
    path = folder / "serve.conf"
    path.write_text(f"network_hosts = {NAME} {THERE}\nnetwork_private = {NET}:*\nallow_mount = {LOAD.parent}\n", encoding="ascii")
    return path


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--quick", action="store_true", help="a few rounds only")
    a.add_argument("--only", choices=PARTS, action="append")
    a.add_argument("--json", help="also write the rows to this file")
    o = a.parse_args()
    only = o.only or PARTS
    rounds = {"create": 20 if o.quick else 200, "stream": 1 if o.quick else 5, "connect": 2 if o.quick else 9, "flood": 1 if o.quick else 5,
              "many": 10 if o.quick else 100}
    host.become_subreaper()
    table = Table()
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cloche-bench-", dir="/var/tmp")))
        os.chmod(scratch, 0o755)
        stack.enter_context(net_field.Field())
        daemon = stack.enter_context(Daemon(None, "--config", config(scratch)))
        ways = []
        if {"stream", "connect", "flood"} & set(only):
            ways = [net_field.Direct(), Ours(daemon), *net_field.peers(stack)]
        for part in PARTS:
            if part in only:
                globals()[part](table, ways, daemon, rounds[part])
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(table.rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
