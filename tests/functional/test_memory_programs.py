"""Real programs, taken down in the middle of what they do and going on in another sandbox, and from there in a third."""
import shutil

import pytest

from api import d, eventually, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints_memory import background, clean, counts_on, output  # noqa: F401

SHELL = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done"
JOBS = "exec bash -c 'set -m; i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done & wait'"
PIPELINE = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done | stdbuf -oL cat | while read x; do echo $x; done"
NODE = r"""exec node -e 'let i=0; setInterval(()=>process.stdout.write(`${++i}\n`),50)'"""
THREADS = """exec python3 -u -c '
import os, subprocess, threading, time
a = bytearray(range(256)) * 65536
def beside():
    while True: time.sleep(0.01)
threading.Thread(target=beside, daemon=True).start()
p = subprocess.Popen(["sh", "-c", "while :; do sleep 0.1; done"])
r, w = os.pipe()
n = 0
while True:
    n += 1
    os.write(w, b"x"); os.read(r, 1)
    assert a[n * 4096 % len(a) + 77] == 77 and p.poll() is None
    print(n); time.sleep(0.05)
'"""
ASYNCIO = """exec python3 -u -c '
import asyncio, socket
async def main():
    s = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 8123)
    a, b = socket.socketpair()
    n = 0
    while True:
        n += 1
        a.send(b"x"); b.recv(1); print(n)
        await asyncio.sleep(0.05)
asyncio.run(main())
'"""
PROCESSES = """exec python3 -u -c '
import multiprocessing as m, time
def f(q, v):
    while True:
        v.value += 1; q.put(v.value); time.sleep(0.05)
q = m.Queue(); v = m.Value("i", 0)
p = m.Process(target=f, args=(q, v)); p.start()
while True: print(q.get())
'"""
UNLINKED = """exec python3 -u -c '
import tempfile, time
f = tempfile.TemporaryFile()
n = 0
while True:
    n += 1
    f.write(n.to_bytes(4, "little")); f.flush(); f.seek(-4, 1)
    print(int.from_bytes(f.read(4), "little")); time.sleep(0.05)
'"""
LARGE = """exec python3 -u -c '
import time
a = bytearray(b"0123456789abcdef") * (8 << 20)
n = 0
while True:
    n += 1
    for i in range(0, len(a), 1 << 20): a[i] = n % 256
    assert a[5] == 53 and a[-1] == 102
    print(n); time.sleep(0.05)
'"""


def again(d, box, x):
    r = d.post(f"/v1/sandboxes/{box['id']}/checkpoints", {"memory": True})
    assert r.status == 201, r
    made = r.json
    r = d.post(f"/v1/checkpoints/{made['id']}/restore", {"count": 1})
    assert r.status == 201, r
    box = r.json["sandboxes"][0]
    x, = box["restored"]["execs"]
    counts_on(d, box, x)
    return box, x, made


PROGRAMS = {"shell": SHELL, "jobs": JOBS, "pipeline": PIPELINE, "threads": THREADS, "asyncio": ASYNCIO, "processes": PROCESSES,
            "unlinked": UNLINKED, "large": LARGE}
if shutil.which("node", path="/usr/bin:/usr/local/bin"):
    PROGRAMS["node"] = NODE


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_goes_on_twice(d, clean, name, tty):
    b = d.create()
    x = background(d, b, PROGRAMS[name], tty=tty)
    eventually(lambda: len(output(d, b, x)) > 3)
    counts_on(d, b, x)
    for _ in range(2):
        b, x, _made = again(d, b, x)


def test_a_long_chain_is_flattened_and_goes_on(d, clean):
    b = d.create()
    x = background(d, b, THREADS)
    eventually(lambda: len(output(d, b, x)) > 3)
    sizes = []
    for _ in range(10):
        b, x, made = again(d, b, x)
        sizes.append(made["memory_size"])
    assert sizes[0] > 16 << 20 and max(sizes[1:8]) < 4 << 20 and max(sizes[8:]) > 16 << 20, sizes
