#!/usr/bin/python3
"""The Python SDK beside a raw HTTP client: sandbox.exec(["true"]) and the same request by http.client, in turn.

    CLOCHE_BUILD=build tests/bench/sdk.py [--quick] [--json FILE]

Runs itself again in an environment with the SDK (sdk/python/.venv-…, made by sdk/python/scripts/run_tests.py).
"""
import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "functional"), str(ROOT / "tests" / "bench"), str(ROOT / "sdk" / "python" / "scripts")]
BOUND = 1.5


def again():
    """In the environment of the newest Python."""
    import run_tests

    version, path = max(run_tests.pythons().items())
    python = run_tests.install(version, path)[0][0]
    return subprocess.run([python, __file__, *sys.argv[1:]], check=False, env={**os.environ, "CLOCHE_BENCH_SDK": "1"}).returncode


def middle(values):
    return sorted(values)[len(values) // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    if os.environ.get("CLOCHE_BENCH_SDK") != "1":
        return again()

    import cloche
    from daemon import Daemon
    from keep import Keep

    loop = asyncio.new_event_loop()
    with Daemon(None, "--stop-sandboxes") as d, cloche.Cloche(d.url, d.token) as client, client.sandboxes.create() as box:
        raw = Keep(d)
        other = loop.run_until_complete(make(cloche, d))
        ways = {
            "http.client": lambda: raw("POST", f"/v1/sandboxes/{box.id}/execs", {"cmd": ["true"]}),
            "sdk": lambda: box.exec(["true"]),
            "sdk, asyncio": lambda: loop.run_until_complete(other.exec(["true"])),
        }
        wall, cpu = {name: [] for name in ways}, {name: [] for name in ways}
        for i in range(30 if args.quick else 1000):
            for name, way in ways.items():
                begin, used = time.perf_counter(), time.process_time()
                way()
                if i >= 10:
                    wall[name].append(time.perf_counter() - begin)
                    cpu[name].append(time.process_time() - used)
        loop.run_until_complete(other._transport.aclose())
    rows = {}
    for name in ways:
        rows[name] = {"ms": middle(wall[name]) * 1e3, "cpu_ms": middle(cpu[name]) * 1e3}
        ratio = rows[name]["ratio"] = rows[name]["ms"] / rows["http.client"]["ms"]
        missed = "  MISSED" if ratio > BOUND else ""
        print(f"exec by {name:12}  {rows[name]['ms']:7.3f} ms  {rows[name]['cpu_ms']:6.3f} ms of CPU  {ratio:5.2f} of http.client (bound {BOUND}){missed}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows))
    return 0


async def make(cloche, daemon):
    client = cloche.AsyncCloche(daemon.url, daemon.token)
    return await client.sandboxes.create()


if __name__ == "__main__":
    sys.exit(main())
