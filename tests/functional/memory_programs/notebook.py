"""A Jupyter kernel and its client: five TCP connections with both ends in this sandbox, and its history, a database of SQLite."""
import os
import sqlite3
import time

os.environ["IPYTHONDIR"] = "/tmp/p/ipython"
from jupyter_client.manager import start_new_kernel  # noqa: E402

from serve import serve  # noqa: E402

manager, client = start_new_kernel(kernel_name="python3", startup_timeout=120)


def run(code):
    said = []

    def output(message):
        if message["msg_type"] == "stream":
            said.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=60, output_hook=output)
    assert reply["content"]["status"] == "ok", reply
    return "".join(said).strip()


def remembered():
    with sqlite3.connect("file:/tmp/p/ipython/profile_default/history.sqlite?mode=ro", uri=True) as base:
        return base.execute("SELECT count(*) FROM history WHERE source LIKE 'x += 1%'").fetchone()[0]


run("x = 0; data = list(range(100000))")


def step(n):
    said = run("x += 1; data.append(data[-1] + 1); print(x, sum(data) - sum(range(100000)))")
    for _ in range(300):
        if remembered() == n:
            return said
        time.sleep(0.1)
    return f"failed: {remembered()} of {n} commands are in the history"


serve(step)
