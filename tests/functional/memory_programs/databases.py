"""Programs that compare a file they have open with what its name leads to."""
import dbm
import fcntl
import logging
import logging.handlers
import os
import sqlite3
import subprocess
import sys
import time

from serve import serve

ROOM = "/tmp/p/room"
os.makedirs(ROOM)
os.chdir(ROOM)
MODES = "DELETE", "TRUNCATE", "PERSIST", "WAL"
OTHER = """
import sqlite3, sys
for name in sys.argv[1:]:
    db = sqlite3.connect(name, timeout=0)
    print(db.execute("PRAGMA integrity_check").fetchone()[0], db.execute("SELECT count(*) FROM t").fetchone()[0])
"""


def begin(mode):
    db = sqlite3.connect(f"{mode}.db", isolation_level=None)
    assert db.execute(f"PRAGMA journal_mode={mode}").fetchone()[0].upper() == mode
    db.execute("CREATE TABLE t (n INTEGER)")
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO t VALUES (0)")
    return db


def git(*args):
    return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *args], check=True, stdout=subprocess.PIPE, text=True,
                          cwd=f"{ROOM}/tree", env={**os.environ, "HOME": ROOM, "GIT_CONFIG_NOSYSTEM": "1"}).stdout


def text(name):
    with open(f"{ROOM}/{name}", encoding="ascii") as f:
        return f.read()


bases = {mode: begin(mode) for mode in MODES}
log = logging.getLogger("watched")
log.addHandler(logging.handlers.WatchedFileHandler(f"{ROOM}/watched.log"))
table = dbm.open(f"{ROOM}/table", "c")
os.close(os.open("lock.tmp", os.O_CREAT | os.O_RDWR, 0o600))
os.link("lock.tmp", "mailbox.lock")
os.unlink("lock.tmp")
lock = os.open("mailbox.lock", os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
# It compares device numbers, too, when the file was quiet for five seconds, and those are the copy's own (docs/checkpoints.md).
followed = open("followed.log", "a", buffering=1, encoding="ascii")
tail = subprocess.Popen(["tail", "-n", "+1", "-F", "--max-unchanged-stats=100000", "followed.log"], stdout=open("tail.out", "w", encoding="ascii"))
os.mkdir("tree")
git("init", "-q")
with open("tree/file", "w", encoding="ascii") as f:
    f.write("content\n")
git("add", "file")
git("commit", "-qm", "first")


def step(n):
    for mode, db in bases.items():
        try:
            db.execute("COMMIT")
        except sqlite3.Error as e:
            return f"{mode}: {e}"
    said = subprocess.run([sys.executable, "-c", OTHER] + [f"{mode}.db" for mode in MODES], stdout=subprocess.PIPE, text=True, check=True)
    if said.stdout != f"ok {n}\n" * len(MODES):
        return f"databases: {said.stdout}"
    for db in bases.values():
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (?)", (n,))
    log.warning("line %d", n)
    if text("watched.log") != "".join(f"line {i}\n" for i in range(1, n + 1)):
        return f"watched: {text('watched.log')}"
    table[str(n)] = str(n)
    if sorted(int(k) for k in table.keys()) != list(range(1, n + 1)):
        return f"dbm: {list(table.keys())}"
    if os.fstat(lock).st_ino != os.stat("mailbox.lock").st_ino or os.fstat(lock).st_nlink != 1:
        return "the lock file is another one"
    if git("status", "--porcelain"):
        return f"git: {git('status')}"
    followed.write(f"line {n}\n")
    want = "".join(f"line {i}\n" for i in range(1, n + 1))
    for _ in range(300):
        if len(text("tail.out")) >= len(want):
            break
        time.sleep(0.1)
    if text("tail.out") != want or tail.poll() is not None:
        return f"tail: {text('tail.out')}"
    return f"{n} right"


serve(step)
