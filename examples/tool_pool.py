#!/usr/bin/env python3
"""A pool of ready sandboxes for tool calls. Each call finds a clean one: it is reset after use.

A reset goes back to a checkpoint, in place: files, processes and names of before are gone.
"""
import queue
from concurrent.futures import ThreadPoolExecutor

from cloche import Cloche

SIZE = 3


class ToolPool:
    """Hands out sandboxes, and takes them back clean."""

    def __init__(self, client, size):
        self.client, self.free, self.all = client, queue.Queue(), []
        first = client.sandboxes.create(memory="256M", timeout="1h")
        self.all.append(first)
        first.files.write("tool.py", "import sys\nprint(sum(map(int, sys.argv[1:])))\n")
        self.clean = first.checkpoint("clean")
        self.all += client.checkpoints.restore_many(self.clean, size - 1)
        for sandbox in self.all:
            self.free.put(sandbox)

    def call(self, command):
        sandbox = self.free.get()
        try:
            return sandbox.exec(command, timeout="30s").stdout.strip()
        finally:
            sandbox.restore(self.clean)
            self.free.put(sandbox)

    def close(self):
        for sandbox in self.all:
            sandbox.delete()
        self.client.checkpoints.delete(self.clean)


with Cloche() as client:
    pool = ToolPool(client, SIZE)
    try:
        calls = [f"python3 tool.py {n} {n}; touch left-$RANDOM.{n}; ls" for n in range(12)]
        with ThreadPoolExecutor(SIZE * 2) as threads:
            for n, said in enumerate(threads.map(pool.call, calls)):
                total, *files = said.split()
                print(n, total, "files:", len(files))  # the tool and this call's own file, never that of another
    finally:
        pool.close()
