"""A database of SQLite in WAL mode: one connection always has a transaction open, which holds its locks."""
import sqlite3

from serve import serve

writer = sqlite3.connect("/tmp/p/base.db", isolation_level=None)
writer.execute("PRAGMA journal_mode=WAL")
writer.execute("CREATE TABLE t (n INTEGER)")
writer.execute("BEGIN IMMEDIATE")
writer.execute("INSERT INTO t VALUES (0)")


def step(n):
    other = sqlite3.connect("/tmp/p/base.db", timeout=0, isolation_level=None)
    seen = other.execute("SELECT count(*) FROM t").fetchone()[0]
    assert seen == n - 1, f"{seen} rows before commit {n}"
    try:
        other.execute("BEGIN IMMEDIATE")
        return "failed: a second writer got the lock"
    except sqlite3.OperationalError:
        pass
    writer.execute("COMMIT")
    assert other.execute("SELECT count(*) FROM t").fetchone()[0] == n
    assert other.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    other.close()
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO t VALUES (?)", (n,))
    return f"{n} rows"


serve(step)
