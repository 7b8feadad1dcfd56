#!/usr/bin/env python3
"""Analyses a CSV file of this machine in a sandbox with pandas, and brings the summary back.

    examples/analyse_csv.py sales.csv GROUP VALUE
"""
import sys

from cloche import Cloche

ANALYSIS = """
import pandas as pd
table = pd.read_csv("data.csv")
summary = table.groupby(GROUP)[VALUE].agg(["count", "sum", "mean"]).sort_values("sum", ascending=False).reset_index()
summary.to_csv("summary.csv", index=False)
print(f"{len(table)} rows, {table[VALUE].isna().sum()} without a value")
summary
"""

if len(sys.argv) != 4:
    sys.exit(__doc__)
file, group, value = sys.argv[1:]
with Cloche() as client, client.sandboxes.create(memory="1G", timeout="1h") as sandbox:
    sandbox.files.upload(file, "data.csv")
    done = sandbox.run_code(f"GROUP, VALUE = {group!r}, {value!r}\n{ANALYSIS}", timeout="2m")
    if done.error:
        sys.exit(f"{done.error.name}: {done.error.value}")
    print(done.stdout, end="")
    columns = done.result.data  # a table also comes as {column: [values]}
    for row in zip(*columns.values()):
        print("  ", dict(zip(columns, row)))
    sandbox.files.download("summary.csv", ".")
