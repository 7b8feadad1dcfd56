"""Suites that others wrote, while the sandbox they run in sleeps and wakes up, or is forked and they go on in the copy, again and again:
they must not notice. A selection runs by default; CLOCHE_LONG=1 runs more of each."""
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from api import d, nothing_is_left_behind  # noqa: F401
from test_checkpoints_memory import background, clean  # noqa: F401
from test_memory_real import PATH, REDIS

LONG = os.environ.get("CLOCHE_LONG") == "1"
PAUSE = 2.0 if LONG else 0.5
MOVES = 4
TRIES = 20  # moved or refused
ENOUGH = "/tmp/enough"  # a file: what runs again and again ends with this round


def suite(*short, more=()):
    return list(short) + (list(more) if LONG else [])


PYTHON = suite("test_threading", more=(
    "test_list", "test_dict", "test_mmap", "test_gc", "test_zlib", "test_threadsignals", "test_queue", "test_thread", "test_re", "test_json", "test_pickle -i test_unpickle_module_race", "test_asyncio",
    "test_subprocess", "test_signal", "test_multiprocessing_fork", "test_concurrent_futures", "test_socket -i *UDPLITE*", "test_selectors", "test_epoll"))
GO = suite("sort", "sync", more=("runtime/debug", "container/heap", "bytes", "strings", "math/big", "encoding/json", "compress/flate", "time", "context"))
STRESS = suite("mremap", more=("malloc", "vm", "mmap", "brk", "stack", "madvise", "memfd", "shm", "sem", "fifo", "fork", "futex", "poll", "switch", "zlib"))
SECONDS = 60 if LONG else 8


def again(line):
    """Those that are over in a moment run again until they have been moved often enough, however long that takes."""
    return f"while :; do {line} || exit 1; [ ! -e {ENOUGH} ] || break; done" if LONG else line


class Case:
    """`before` runs in the background first, `run` is what must not notice once `ready` is there, `right` looks at what it said."""

    def __init__(self, run, right=None, before=None, files=(), ready=None, **fields):
        self.run, self.right, self.before, self.files, self.ready, self.fields = run, right or (lambda said: True), before, files, ready, fields


def go_test(package):
    def build(tmp):
        env = {**os.environ, "PATH": PATH, "CGO_ENABLED": "0"}
        subprocess.run(["go", "test", "-c", "-o", tmp / "suite", package], check=True, env=env, timeout=900, cwd=tmp)
        return tmp / "suite"
    # Examples want their sources. The tests of these packages are over in a moment, so they run often.
    # Some want files of their sources.
    where = f"cd {pathlib.Path(shutil.which('go', path=PATH) or '/go').resolve().parents[1]}/src/{package} || cd /tmp/w" if LONG else "cd /tmp/w"
    return Case(f"mkdir -p /tmp/w; {where}; " + again(f"/tmp/suite -test.run=^Test -test.short -test.count={1 if LONG else 30}"), lambda said: said.strip().endswith("PASS"), files=[build], memory="1G")


BENCHMARK = """until redis-cli ping 2>/dev/null; do sleep 0.1; done; i=0
while [ $i -lt %d ]; do redis-benchmark -q -n 20000 -c 20 -t set,get,lpush,lpop,incr,hset,mset >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
  grep -iE 'error|reset|refused' /tmp/said && exit 1; i=$((i+1)); done; redis-cli dbsize""" % (20 if LONG else 2)

POSTGRES = """set -e; export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); mkdir -p /tmp/p; cd /tmp/p
initdb -D db -A trust -N >/dev/null
exec postgres -D db -k /tmp/p -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB -c autovacuum_naptime=1s"""
# By a unix socket and by TCP at once; without -n the one would empty the other's history. Every transaction that a client was told of is there, once, and the sums agree.
PGBENCH = """export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); cd /tmp; until psql -h /tmp/p postgres -qc 'select 1' >/dev/null 2>&1; do sleep 0.1; done
pgbench -h /tmp/p -iq -s 2 postgres >/dev/null 2>&1 || exit 1; : >ready
pgbench -h /tmp/p -c 3 -j 2 -T %d -n postgres >one 2>&1 & pgbench -h 127.0.0.1 -c 2 -T %d -n postgres >two 2>&1 || { cat two; exit 1; }
wait $! || { cat one; exit 1; }
grep -h 'failed transactions' one two | grep -v ': 0 ' && exit 1
said=$(cat one two | sed -n 's/^number of transactions actually processed: //p' | paste -sd +)
psql -h 127.0.0.1 postgres -qAtc "select $said > 0, $said = (select count(*) from pgbench_history), (select sum(abalance) from pgbench_accounts) =
  all (array[(select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches), (select sum(delta) from pgbench_history)]), $said" """ % (SECONDS, SECONDS)

CASES = {
    **{f"cpython {t}": Case("mkdir -p /tmp/w; cd /tmp/w; " + again(f"python3 -m test -q {t} 2>&1"), memory="1G") for t in PYTHON},
    **{f"go {p}": go_test(p) for p in GO},
    **{f"stress-ng {s}": Case(f"cd /tmp; stress-ng --{s} 2 --verify --timeout {SECONDS}s --temp-path /tmp --oomable 2>&1", memory="1G") for s in STRESS},
    "redis-benchmark": Case(BENCHMARK, None, REDIS, memory="1G"),
    "pgbench": Case(PGBENCH, lambda said: said.startswith("t|t|t|"), POSTGRES, ready="/tmp/ready", memory="1G"),
}


def sleeps(d, box, x):
    r = d.post(f"/v1/sandboxes/{box['id']}/hibernate")
    assert r.status == 200, r
    r = d.post(f"/v1/sandboxes/{box['id']}/resume")
    assert r.status == 200, r
    return box, x


def goes_on_in_a_copy(d, box, x):
    r = d.post(f"/v1/sandboxes/{box['id']}/fork", {"count": 1, "memory": True})
    assert r.status == 201, r
    copy, = r.json["sandboxes"]
    if d.get(f"/v1/sandboxes/{copy['id']}/execs/{x}").status == 404:  # it ended before the copy was made: what it said is the source's
        assert d.delete(f"/v1/sandboxes/{copy['id']}").status in (200, 204)
        return box, x
    assert d.delete(f"/v1/sandboxes/{box['id']}").status in (200, 204)
    return copy, x


BOTH = [(name, happens) for name in CASES for happens in (sleeps, goes_on_in_a_copy)]


# Where time matters each has one of the two, in turn.
@pytest.mark.parametrize("name, happens", BOTH if LONG else [x for i, x in enumerate(BOTH) if i % 4 in (0, 3)])
def test_it_does_not_notice(d, clean, tmp_path, name, happens):
    case = CASES[name]
    box = d.create(**case.fields)
    for build in case.files:
        f = build(tmp_path)
        assert d.put(f"/v1/sandboxes/{box['id']}/files?path=/tmp/{f.name}&mode=0755", f.read_bytes()).status in (200, 201, 204)
    server = background(d, box, case.before) if case.before else None
    x = background(d, box, case.run, **({"timeout": 1800} if LONG else {}))
    until = time.monotonic() + 180
    while case.ready and d.exec(box["id"], "test", "-e", case.ready)["exit_code"]:
        assert time.monotonic() < until, "it does not get ready"
        time.sleep(0.2)
    end, refused, times, ends_itself = time.monotonic() + (1800 if LONG else 240), 0, 0, ENOUGH not in case.run
    while True:
        time.sleep(PAUSE)
        seen = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}").json
        if seen["state"] == "ended":
            break
        assert time.monotonic() < end, "it does not end"
        try:
            box, x = happens(d, box, x)
            times += 1
        except AssertionError as e:
            # What cannot be carried is refused, by name, and nothing has happened: the next try may find it gone.
            if "422" not in str(e) and "409" not in str(e):
                raise
            refused += 1
        if not ends_itself and (times >= MOVES or times + refused >= TRIES):
            assert d.put(f"/v1/sandboxes/{box['id']}/files?path={ENOUGH}", b"").status in (200, 201, 204)
            ends_itself = True
    said = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output").body.decode()
    if seen["exit_code"] or not case.right(said):
        log = d.get(f"/v1/sandboxes/{box['id']}/execs/{server}/output").body.decode() if server else ""
        raise AssertionError((times, refused, seen, said[-3000:], log[-6000:]))
    assert times >= (2 if LONG else 1), f"refused {refused} times, done {times} times"
