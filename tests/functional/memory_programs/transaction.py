"""A database of SQLite in WAL mode: one connection always has a transaction open, which holds its locks."""
import sqlite3
import subprocess
import sys

from serve import serve

writer = sqlite3.connect("/tmp/p/base.db", isolation_level=None)
writer.execute("PRAGMA journal_mode=WAL")
writer.execute("CREATE TABLE t (n INTEGER)")
writer.execute("BEGIN IMMEDIATE")
writer.execute("INSERT INTO t VALUES (0)")


# In a process of its own: within one, SQLite tells connections to the same file by its device, which is another one in a copy.
OTHER = """
import sqlite3
other = sqlite3.connect("/tmp/p/base.db", timeout=0, isolation_level=None)
print(other.execute("PRAGMA integrity_check").fetchone()[0], other.execute("SELECT count(*) FROM t").fetchone()[0], end=" ")
try:
    other.execute("BEGIN IMMEDIATE")
    print("free")
except sqlite3.OperationalError:
    print("locked")
"""


def other():
    return subprocess.run([sys.executable, "-c", OTHER], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def step(n):
    before = other()
    writer.execute("COMMIT")
    after = other()
    if (before, after) != (f"ok {n - 1} locked", f"ok {n} free"):
        return f"failed: {before}, {after}"
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO t VALUES (?)", (n,))
    return f"{n} rows"


serve(step)
