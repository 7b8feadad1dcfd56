#!/usr/bin/python3
"""Calls on small files: what they cost beside bwrap's tmpfs. See README.md here.

    tests/bench/run --files [--quick]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
from table import Table  # noqa: E402

CALLS = "create", "rename", "stat", "unlink", "mkdir"
BOUND = 1.3
DEPTHS = 3, 300


def ways(folder):
    """{name: (command, folder to work in, whether the bound is for it)}"""
    ours = [str(host.CLOCHE), "run", "--inodes", "100000", "--mount", f"{folder}:/mnt:ro"]
    return {
        "bwrap": (["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", str(folder), "/mnt"], "/tmp", False),
        "/tmp": ([*ours, "--"], "/tmp", True),
        "home": ([*ours, "--"], "/home/user", True),
        "--tmpfs /tmp": ([*ours, "--tmpfs", "/tmp:size=64M", "--"], "/tmp", True),
    }


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--quick", action="store_true", help="one round only")
    a.add_argument("--json", help="also write the rows to this file")
    o = a.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="cloche-bench-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        subprocess.run(["cc", "-O2", "-static", "-o", f"{folder}/file_calls", pathlib.Path(__file__).with_name("file_calls.c")], check=True)
        for depth in DEPTHS:
            least = {}
            for _ in range(1 if o.quick else 7):  # in turn: whatever else the machine does hits all alike
                for name, (command, at, _) in ways(folder).items():
                    out = subprocess.run([*command, "/mnt/file_calls", at, "300" if o.quick else "3000", str(depth)], stdout=subprocess.PIPE, check=True)
                    took = list(map(int, out.stdout.split()))
                    least[name] = list(map(min, took, least.get(name, took)))
            for name, (_, _, judged) in ways(folder).items():
                for call, ns, base in zip(CALLS, least[name], least["bwrap"]):
                    more = {"ratio": ns / base, "of": "bwrap's tmpfs", "bound": BOUND if depth < 100 else None} if judged else {}
                    table.add(f"{call}, {depth} folders deep, {name}", ns / 1000, "us", **more)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(table.rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
