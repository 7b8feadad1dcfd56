#!/usr/bin/python3
"""The code interpreter beside what people use without it: a local Jupyter kernel, and a python3 that starts.

    CLOCHE_BUILD=build tests/bench/interpreter.py [--rounds N] [--json FILE]

In turn, in each round: an execution of 1+1 in a context and in a real ipykernel (by jupyter_client); POST /v1/run of print(1) and
`python3 -c 'print(1)'`; a run that imports matplotlib and plots, and a python3 that does. Each sees the same Python.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "functional"), str(ROOT / "tests" / "bench")]

from daemon import Daemon  # noqa: E402
from keep import Keep  # noqa: E402
from table import Table, p50, timed  # noqa: E402

PYTHON = "/usr/bin/python3"
PLOT = "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.savefig('/tmp/plot.png')\n"
SETTLE_S = 0.3  # between rounds: what is made ahead is made, as between the calls of a model


class Jupyter:
    """A kernel on this host, as a notebook has one."""

    def __init__(self):
        from jupyter_client.manager import KernelManager
        self.manager = KernelManager()
        self.manager.kernel_cmd = [PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager.start_kernel(stderr=subprocess.DEVNULL)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def execute(self, code):
        said = self.client.execute_interactive(code, timeout=60, output_hook=lambda message: None)
        assert said["content"]["status"] == "ok", said

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def host(code):
    subprocess.run([PYTHON, "-c", code], stdout=subprocess.DEVNULL, check=True)


class Bench:
    def __init__(self, d):
        self.call = Keep(d)
        self.box = d.create()["id"]

    def execute(self):
        r = self.call("POST", f"/v1/sandboxes/{self.box}/contexts/python/execute", {"code": "1+1"})
        assert r["results"][0]["mime"]["text/plain"] == "2", r

    def run(self, code):
        r = self.call("POST", "/v1/run", {"code": code})
        assert r["verdict"]["cause"] == "ok", r
        return r

    def warm(self):
        """Until runs continue from the memory image, with all that it imports."""
        end = time.monotonic() + 120
        while self.run("import sys; 'matplotlib.pyplot' in sys.modules")["results"][0]["mime"]["text/plain"] != "True":
            assert time.monotonic() < end, "no warm context was made"
            time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json")
    args = parser.parse_args()
    table, took = Table(), {}
    with Daemon(None, "--stop-sandboxes") as d:
        bench, jupyter = Bench(d), Jupyter()
        ways = {
            "execute": bench.execute, "jupyter": lambda: jupyter.execute("1+1"),
            "run": lambda: bench.run("print(1)"), "python3": lambda: host("print(1)"),
            "plot": lambda: bench.run(PLOT), "python3 plot": lambda: host(PLOT),
        }
        try:
            bench.warm()
            for i in range(args.rounds + 2):
                for name, way in ways.items():
                    if name in ("run", "plot"):
                        time.sleep(SETTLE_S)
                    seconds, _ = timed(way)
                    if i >= 2:
                        took.setdefault(name, []).append(seconds * 1e3)
        finally:
            jupyter.close()
    for ours, theirs, what, of, bound in (("execute", "jupyter", "execute 1+1 in a context", "jupyter_client", 0.25),
                                          ("run", "python3", "POST /v1/run print(1), warm", "python3 -c 'print(1)'", 0.5),
                                          ("plot", "python3 plot", "first plot in a fresh sandbox, warm", "python3, import and plot", 0.15)):
        table.add(what, p50(took[ours]), ratio=p50(took[ours]) / p50(took[theirs]), of=of, bound=bound)
        table.add(f"  {of}", p50(took[theirs]))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(table.rows))
    return 0 if all(row["met"] is not False for row in table.rows) or os.environ.get("CLOCHE_BENCH_REPORT") else 1


if __name__ == "__main__":
    sys.exit(main())
