#!/usr/bin/env python3
"""Runs the tests of an untrusted repository: without network, with limits, each test file on a fork of its own.

    examples/evaluate_repository.py FOLDER [--setup COMMAND]

Prints one line per test file, and exits with 1 if any has not passed.
"""
import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from cloche import Cloche

LIMITS = {"memory": "512M", "cpus": 1, "pids": 64, "disk": "512M", "network": "none", "timeout": "1h"}


def evaluate(fork_and_file):
    """(file, what happened, the end of its output)"""
    fork, file = fork_and_file
    with fork:
        done = fork.exec(["python3", "-m", "unittest", file], cwd="repository", timeout="60s", cpu_time="60s", output_limit="64K")
    if done.verdict.cause != "exited":  # timeout, oom, pids, …: what the sandbox had to end
        return file, f"{done.verdict.cause}: {done.verdict.detail}", done.stderr
    return file, "passed" if done.exit_code == 0 else "failed", done.stderr


arguments = argparse.ArgumentParser()
arguments.add_argument("folder")
arguments.add_argument("--setup")
options = arguments.parse_args()
with Cloche() as client, client.sandboxes.create(**LIMITS) as base:
    base.files.upload(options.folder, "repository")
    if options.setup:
        base.exec(options.setup, cwd="repository", timeout="10m")
    listed = base.exec("find . -name 'test_*.py' | sed 's|^./||' | sort", cwd="repository")
    files = listed.stdout.split()
    if not files:
        sys.exit(f"no file test_*.py in {options.folder}")
    ready = base.checkpoint("ready")
    failed = 0
    try:
        # A test that changes files, fills the disk or leaves processes behind does that to its own copy.
        forks = client.checkpoints.restore_many(ready, len(files))
        with ThreadPoolExecutor(4) as pool:
            for file, verdict, output in pool.map(evaluate, zip(forks, files)):
                failed += verdict != "passed"
                print(f"{file}: {verdict}")
                if verdict == "failed":
                    print("    " + output.strip().splitlines()[-1])
    finally:
        client.checkpoints.delete(ready)
sys.exit(1 if failed else 0)
