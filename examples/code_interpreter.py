#!/usr/bin/env python3
"""A code interpreter: cells that keep their variables, and a plot. Saves each figure as a file.

    examples/code_interpreter.py [FOLDER]
"""
import pathlib
import sys

from cloche import Cloche

CELLS = [
    "import math\nxs = [x / 10 for x in range(100)]\nys = [math.sin(x) * math.exp(-x / 5) for x in xs]\nlen(ys)",
    "max(ys), min(ys)",
    "import matplotlib.pyplot as plt\nplt.plot(xs, ys)\nplt.title('A damped wave')\nplt.xlabel('t')",
    "print(undefined_name)",
]

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
with Cloche() as client, client.sandboxes.create(memory="1G", timeout="1h") as sandbox:
    for number, code in enumerate(CELLS, 1):
        done = sandbox.run_code(code, timeout="60s")  # one context: each cell sees what those before it have defined
        print(f"[{number}]", done.stdout.rstrip())
        if done.error:
            print(f"    {done.error.name}: {done.error.value}")
        for figure, result in enumerate(done.results):
            if result.png:
                path = folder / f"cell-{number}-{figure}.png"
                path.write_bytes(result.png)
                print(f"    {path.name}: {result.chart['title'] if result.chart else 'an image'}")
            else:
                print(f"    {result.text}")
