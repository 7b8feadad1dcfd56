"""Programs that people run, through everything that happens to a sandbox with memory: a checkpoint is restored as a new sandbox, that
one is forked, the fork sleeps and wakes up. After each of these the program does its next step, and says what only its whole state can
tell. The programs are in memory_programs/."""
import os
import pathlib
import shutil
import subprocess
import urllib.parse

import pytest

from api import d, eventually, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints_memory import background, clean  # noqa: F401

HERE = pathlib.Path(__file__).parent / "memory_programs"
PATH = os.environ["PATH"] + ":/usr/local/go/bin:/root/.cargo/bin"
ASK = "python3 /tmp/p/ask.py 7000"
REDIS = """exec redis-server --port 6379 --bind 127.0.0.1 --save '' --appendonly no --daemonize no --enable-debug-command local --dir /tmp"""
REDIS_STEP = """set -e
n=$(redis-cli incr steps)
redis-cli flushall async >/dev/null; redis-cli flushall >/dev/null
redis-cli set steps $n >/dev/null
redis-cli debug populate 20000 k 500 >/dev/null
redis-cli eval "for i = 0, 19999 do local v = redis.call('get', 'k:' .. i)
  if v:sub(1, 6) ~= ('value:' .. i):sub(1, 6) or #v ~= 500 then return 'failed ' .. i end end return 'right'" 0
echo $n $(redis-cli dbsize)"""
POSTGRES = """set -e; export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); cd /tmp/p
initdb -D db -A trust -N >/dev/null
exec postgres -D db -k /tmp/p -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB -c autovacuum_naptime=1s"""
# Two sessions that live on, one by a unix socket and one by TCP: their commands come by a pipe with a name, their answers go to a file.
SESSION = """cd /tmp/p; until psql -h /tmp/p -d postgres -qc 'create table t (n int)' 2>/dev/null; do sleep 0.2; done
mkfifo in; exec 9<>in; exec psql -h /tmp/p -d postgres -qAt <&9 >out 2>&1"""
TRANSACTION = """cd /tmp/p; until [ -p in ]; do sleep 0.2; done
mkfifo in2; exec 9<>in2; exec psql -h 127.0.0.1 -d postgres -qAt <&9 >out2 2>&1"""
POSTGRES_STEP = """export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); cd /tmp/p; [ -p in2 ] || exit 1; n=$(($(cat n 2>/dev/null || echo 0) + 1)); echo $n >n
say() { echo "$*" >in; }
if [ $n = 1 ]; then say 'begin; declare c cursor with hold for select generate_series(1, 1000); commit; create temp table own (n int);'
  echo 'begin; create table u (n int);' >in2; pgbench -h 127.0.0.1 -iq postgres >bench 2>&1 || { cat bench; exit 0; }; fi
say "insert into t values ($n); insert into own values ($n); begin; insert into t values (-1); rollback;"
say "fetch 1 from c; select 'end $n', (select count(*) from own);"
echo "insert into u values ($n); select 'end $n', count(*), sum(n) from u;" >in2
i=0; until grep -q "^end $n|" out && grep -q "^end $n|" out2; do sleep 0.1; i=$((i+1)); [ $i -lt 600 ] || { cat out out2; exit 1; }; done
pgbench -h /tmp/p -n -c 2 -t 20 postgres >bench 2>&1 || { cat bench; exit 0; }
tail -n 2 out | tr '\\n' ' '; tail -n 1 out2 | tr '\\n' ' '
psql -h /tmp/p -d postgres -qAtc "select count(*), sum(n), to_regclass('u') is null, (select count(*) from pgbench_history), (select sum(abalance) from pgbench_accounts) =
  all (array[(select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches), (select sum(delta) from pgbench_history)]) from t" """
TMUX = """export HOME=/tmp/p TERM=screen LC_ALL=C.UTF-8; cd /tmp/p; printf 'first\\n' >text
tmux -f /dev/null new-session -d -s a -x 80 -y 24 'PS1=: bash --norc'
tmux new-window -t a 'vim -u NONE -n text'; tmux send-keys -t a:0 'sleep 100000 &' Enter 'sleep 100001' Enter
until tmux capture-pane -p -t a:1 | grep -q first; do sleep 0.1; done
sleep 1; tmux send-keys -t a:0 C-z; : >ready; exec sleep infinity"""
TMUX_STEP = """export HOME=/tmp/p LC_ALL=C.UTF-8; cd /tmp/p; [ -e ready ] || exit 1; n=$(($(cat n 2>/dev/null || echo 0) + 1)); echo $n >n
tmux send-keys -t a:1 Escape "oline $n" Escape ':w' Enter
tmux send-keys -t a:0 "jobs > jobs.$n; : > done.$n" Enter
i=0; until [ "$(tail -n 1 text)" = "line $n" ] && [ -e done.$n ]; do sleep 0.1; i=$((i+1)); [ $i -lt 300 ] || { tmux capture-pane -p -t a:0; tmux capture-pane -p -t a:1; exit 1; }; done
echo $n $(wc -l <text) $(grep -c Running jobs.$n) $(grep -c Stopped jobs.$n)"""


def built(tmp, name):
    """The compiled form of a program: its files, by their names in the sandbox."""
    env = {**os.environ, "PATH": PATH, "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "CGO_ENABLED": "0"}
    if name == "garbage":
        subprocess.run(["go", "build", "-o", tmp / "garbage", HERE / "garbage.go"], check=True, env=env, timeout=600)
        return [tmp / "garbage"]
    if name == "Heap":
        subprocess.run(["javac", "-J-XX:-UsePerfData", "-d", tmp, HERE / "Heap.java"], check=True, env=env, timeout=600)
        return sorted(tmp.glob("*.class"))
    shutil.copytree(HERE / "tasks", tmp / "tasks")
    subprocess.run(["cargo", "build", "--quiet"], check=True, env=env, timeout=900, cwd=tmp / "tasks")
    return [tmp / "tasks/target/debug/tasks"]


class Program:
    """What starts it (one command, or several), what does a step, and what step n says."""

    def __init__(self, start, says, step=ASK, build=None, **fields):
        self.start, self.says, self.step, self.build, self.fields = [start] if isinstance(start, str) else start, says, step, build, fields


def python(name, says, **fields):
    return Program(f"cd /tmp/p; exec python3 {name}.py 2>&1", says, **fields)


PROGRAMS = {
    "pandas": python("tables", lambda n: f"{n} 4999950000", memory="1G"),
    "jupyter": python("notebook", lambda n: f"{n} {sum(range(100000, 100000 + n))}", memory="1G"),
    "node": Program("cd /tmp/p; exec node keepalive.js", lambda n: f"{n} ok", memory="1G"),
    "go": Program("exec /tmp/p/garbage", lambda n: f"{n} 199990000 {1000 * n}", build="garbage"),
    "java": Program("cd /tmp/p; exec java -Xmx200m Heap", lambda n: f"{n} {1000 * n}", build="Heap", memory="1G"),
    "tokio": Program("exec /tmp/p/tasks", lambda n: " ".join([str(n)] * 8), build="tasks"),
    "redis": Program(REDIS, lambda n: f"right\n{n} 20001", REDIS_STEP),
    "redis with libc's malloc": Program(f"export LD_PRELOAD=$(ls /lib/*/libc.so.6); {REDIS}", lambda n: f"right\n{n} 20001", REDIS_STEP),
    "tmux, vim and jobs": Program(TMUX, lambda n: f"{n} {n + 1} 1 1", TMUX_STEP),
    "sqlite": python("transaction", lambda n: f"{n} rows"),
    "postgres": Program([POSTGRES, SESSION, TRANSACTION], lambda n: f"{n} end {n}|{n} end {n}|{n}|{sum(range(n + 1))} {n}|{sum(range(n + 1))}|t|{40 * n}|t",
                        POSTGRES_STEP, memory="1G"),
    "chromium": python("browser", lambda n: f"{n} {n} {1000 * n}", memory="3G"),
}


def step(d, box, program, n):
    said = d.exec(box["id"], "bash", "-c", program.step, timeout=120)
    assert said["stdout"].strip() == program.says(n), (n, said, [d.get(f"/v1/sandboxes/{box['id']}/execs/{x['id']}/output").body[-2000:]
                                                                 for x in d.get(f"/v1/sandboxes/{box['id']}/execs").json["execs"]])


@pytest.fixture
def start(d, tmp_path):
    def start(program):
        box = d.create(**program.fields)
        files = sorted(HERE.glob("*.py")) + sorted(HERE.glob("*.js")) + (built(tmp_path, program.build) if program.build else [])
        for f in files:
            mode = "0755" if os.access(f, os.X_OK) else "0644"
            r = d.put(f"/v1/sandboxes/{box['id']}/files?path={urllib.parse.quote('/tmp/p/' + f.name)}&mode={mode}&mkdirs=1", f.read_bytes())
            assert r.status in (200, 201, 204), r
        for command in program.start:
            background(d, box, command)

        def up():
            said = d.exec(box["id"], "bash", "-c", program.step, timeout=120)
            return said["stdout"].strip() == program.says(1) or (said["exit_code"] == 0 and pytest.fail(str(said)))
        eventually(up, 120)
        return box
    return start


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_goes_on_as_a_copy_as_a_fork_and_after_sleep(d, clean, start, name):
    program = PROGRAMS[name]
    source = start(program)
    r = d.post(f"/v1/sandboxes/{source['id']}/checkpoints", {"memory": True})
    assert r.status == 201, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore", {"count": 1})
    assert r.status == 201, r
    copy, = r.json["sandboxes"]
    assert copy["restored"]["memory"] is True, copy
    step(d, copy, program, 2)
    r = d.post(f"/v1/sandboxes/{copy['id']}/fork", {"count": 1, "memory": True})
    assert r.status == 201, r
    fork, = r.json["sandboxes"]
    step(d, fork, program, 3)
    for n in 4, 5:
        r = d.post(f"/v1/sandboxes/{fork['id']}/hibernate")
        assert r.status == 200 and r.json["state"] == "hibernated", r
        step(d, fork, program, n)
    step(d, copy, program, 3)
    step(d, source, program, 2)
