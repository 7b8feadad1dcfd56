"""Processes, threads and their settings in memory checkpoints: a short program for each. It sets one thing up; the source, a fork of
a copy and a copy that was hibernated and woken tell the same of it. What cannot be made again is refused with the process and the reason."""
import re

import pytest

from api import d, error, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints_memory import clean  # noqa: F401
from test_memory_objects import start, tells

# Helpers beside those of test_memory_objects.PRELUDE.
MORE = """
def field(pid, key):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith(key + ":"): return line.split(":", 1)[1].strip()
def stat(pid): return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
def until(fn):
    end = time.monotonic() + 60
    while not fn():
        assert time.monotonic() < end
        time.sleep(0.005)
def family(pids): return [(int(s[1]), int(s[2]), int(s[3])) for s in map(stat, pids)]
def prctl(*a): return libc.prctl(*[ctypes.c_ulong(x) for x in a + (0,) * (5 - len(a))])
"""

# A leader that had children before it made its session; sessions and groups whose first process has ended.
SESSIONS = ("""
r, w = os.pipe()
def stays():
    "Until it is init's, or a child of this program's: then it is counted."
    os.write(w, b"%d " % os.getpid()); signal.pause()
def left_by(first):
    "A child that has ended, and left one of its own."
    p = os.fork()
    if not p:
        first()
        if not os.fork(): until(lambda: os.getppid() == 1); stays()
        os._exit(0)
    os.waitpid(p, 0)
def work():
    if not os.fork(): stays()
    os.setsid()
    left_by(os.setsid)
    left_by(lambda: os.setpgid(0, 0))
p, pids = child(work), []
while len(pids) < 3: pids += map(int, os.read(r, 99).split())
pids.append(p)
was = family(pids)
assert len({s for _, _, s in was}) == 3 and len({g for _, g, _ in was}) == 4, was
gate()
print(family(pids) == was)
for x in pids: os.kill(x, 9)
os.waitpid(p, 0)
""", "True")

# Stopped by another signal than SIGSTOP, with signals that wait; stopped and continued, the parent knows of neither.
STOPS = ("""
a, b, c, e = child(lambda: os.setpgid(0, 0)), child(), child(), child() # in a group of its own: no other one is stopped by SIGTTOU
os.kill(a, signal.SIGTTOU)
for p in (b, c, e): os.kill(p, signal.SIGSTOP)
for p in (a, b, c, e): os.waitid(os.P_PID, p, os.WSTOPPED | os.WNOWAIT)
assert os.waitpid(c, os.WUNTRACED)[0] == c
os.kill(c, signal.SIGTERM); os.kill(e, signal.SIGSTOP)
os.kill(b, signal.SIGCONT)
os.waitid(os.P_PID, b, os.WCONTINUED | os.WNOWAIT)
gate()
print(os.WSTOPSIG(os.waitpid(a, os.WUNTRACED)[1]), os.WIFCONTINUED(os.waitpid(b, os.WCONTINUED | os.WUNTRACED)[1]), stat(c)[0],
      os.waitpid(c, os.WUNTRACED | os.WNOHANG), field(c, "ShdPnd")[-4:], os.WSTOPSIG(os.waitpid(e, os.WUNTRACED)[1]))
for p in (a, c, e): os.kill(p, signal.SIGCONT)
print(os.WTERMSIG(os.waitpid(c, 0)[1]), signal.sigpending())
end(a, b, e)
""", "22 True T (0, 0) 4000 19\n15 set()")

# A whole tree that was stopped, its first process, too.
STOPPED_TREE = ("""
r, w = os.pipe()
def work():
    p = child()
    os.write(w, b"%d" % p)
a = child(work)
b = int(os.read(r, 9))
for p in (b, a): os.kill(p, signal.SIGSTOP)
until(lambda: stat(a)[0] == stat(b)[0] == "T")
gate()
print(stat(a)[0], stat(b)[0], stat(b)[1] == str(a))
os.kill(b, 9); os.kill(a, 9); os.waitpid(a, 0)
""", "T T True")

ENDED = ("""
libc.prctl(15, b"a ) b", 0, 0, 0)
a = os.fork()
if not a: os._exit(200)
b = os.fork()
if not b: signal.pause()
os.kill(b, signal.SIGQUIT)
info = [os.waitid(os.P_PID, p, os.WEXITED | os.WNOWAIT) for p in (a, b)]
def tell(i): return i.si_uid == os.getuid(), i.si_status, i.si_code
assert [tell(i)[0] for i in info] == [True, True]
gate()
print(open(f"/proc/{a}/comm").read().strip(), [tell(os.waitid(os.P_PID, p, os.WEXITED)) for p in (a, b)])
""", "a ) b [(True, 200, 1), (True, 3, 2)]")

# By clone, with no signal at its end, and one of another kind: who waits has to know.
EXIT_SIGNAL = ("""
def clone(sig):
    p = libc.syscall(%s, sig, 0, 0, 0, 0)
    if not p: signal.pause(); os._exit(1)
    return p
signal.signal(signal.SIGUSR2, lambda *a: said.append("usr2"))
said = []
a, b = clone(0), clone(signal.SIGUSR2)
gate()
os.kill(a, 9); os.kill(b, 9)
print(fails(os.waitpid, a, 0), os.WTERMSIG(os.waitpid(a, 0x40000000)[1]), os.WTERMSIG(os.waitpid(b, 0x80000000 - (1 << 32))[1]), said)
""" % ("56 if os.uname().machine == 'x86_64' else 220"), "ChildProcessError 9 9 ['usr2']")

SETTINGS = ("""
def look():
    sig = ctypes.c_int(); libc.prctl(2, ctypes.byref(sig), 0, 0, 0)
    return [prctl(30), sig.value, prctl(7), prctl(34), libc.syscall(io[0], 1, 0), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)]
io = (252, 251) if os.uname().machine == "x86_64" else (31, 30)
def change(n):
    assert prctl(29, 70000 + n) == prctl(1, 10 + n) == prctl(8, n & 1) == prctl(33, 1, n & 1) == libc.syscall(io[1], 1, 0, 2 << 13 | n) == 0
    os.sched_setscheduler(0, os.SCHED_BATCH | (os.SCHED_RESET_ON_FORK if n & 1 else 0), os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, n)
go, here, said = threading.Event(), threading.Barrier(3), {}
def run(n):
    change(n); here.wait(); go.wait(); said[n] = look()
all = [threading.Thread(target=run, args=(n,)) for n in (1, 2)]
for t in all: t.start()
here.wait(); change(3)
gate()
go.set()
for t in all: t.join()
print(look()); print(said[1]); print(said[2])
""", "\n".join(str([70000 + n, 10 + n, n & 1, n & 1, 2 << 13 | n, 3 | (0x40000000 if n & 1 else 0), n]) for n in (3, 1, 2)))

REGISTERED = ("""
def calls(*cmds): return [libc.syscall(324 if os.uname().machine == "x86_64" else 283, c, 0, 0) for c in cmds]
assert calls(4, 16) == [0, 0]
was = calls(512)
gate()
print(calls(512) == was, calls(2, 8))
""", "True [0, 0]")

# As another user in part: the ids of files, groups, capabilities that were given up.
RIGHTS = ("""
def look(): return [field("self", k) for k in ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapInh", "CapBnd")]
os.setgroups([7, 1000, 42])
libc.setfsgid(1234); os.setresgid(-1, -1, 1000); libc.setfsgid(1234); libc.setfsuid(1000)
was = look()
assert was[1].split()[3] == "1234" and was[0].split()[3] == "1000", was
gate()
print(look() == was)
""", "True")

GROUPS = {
    "trees": {"sessions": SESSIONS, "stops": STOPS, "stopped tree": STOPPED_TREE, "ended": ENDED, "exit signal": EXIT_SIGNAL},
    "settings": {"settings": SETTINGS, "registered": REGISTERED},
}
AS_ROOT = {"rights": RIGHTS}


def everywhere(d, programs, **spec):
    b = d.create(**spec)
    xs = parallel(len(programs), lambda i: start(d, b, MORE + programs[i][1][0]))
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"] is True, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore")
    assert r.status == 201, r
    copy = r.json["sandboxes"][0]
    r = d.post(f"/v1/sandboxes/{copy['id']}/fork")
    assert r.status == 201 and r.json["sandboxes"][0]["restored"]["memory"] is True, r
    fork = r.json["sandboxes"][0]
    r = d.post(f"/v1/sandboxes/{copy['id']}/hibernate")
    assert r.status == 200 and r.json["state"] == "hibernated", r
    boxes = [b, fork, copy]
    found = parallel(len(boxes), lambda i: [tells(d, boxes[i], x) for x in xs])
    told = {name: [f[i] for f in found] for i, (name, _) in enumerate(programs)}
    assert told == {name: [(want, 0, "")] * 3 for name, (_, want) in programs}


@pytest.mark.parametrize("group", GROUPS)
def test_the_source_a_fork_and_a_woken_copy_tell_the_same(d, clean, group):
    everywhere(d, list(GROUPS[group].items()))


def test_rights_that_were_given_up_in_part(d, clean):
    everywhere(d, list(AS_ROOT.items()), user="root")


REFUSED = {
    "group without its first": ("p = child(lambda: os.setpgid(0, 0)); q = child(); os.setpgid(q, p); os.setpgid(p, os.getpgid(0))",
                                "process group that its first process has left"),
    "thread of its own": ("t = threading.Thread(target=lambda: (libc.unshare(0x200), signal.pause()), daemon=True); t.start(); until(lambda: len(os.listdir('/proc/self/task')) > 1 and stat(t.native_id)[0] == 'S')",
                          "has a thread with its own folders"),
    "siblings that share": ("child(lambda: libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x8000 | 0x400 | 17, 0, 0, 0, 0) or signal.pause())",
                            "shares its descriptors .* with a process that is not its parent"),
}

def test_what_can_not_be_made_again_is_refused_and_runs_on(d, clean):
    b = d.create()
    for name, (text, reason) in REFUSED.items():
        x = start(d, b, MORE + text + "\ngate()\nprint('on'); sys.stdout.flush(); os._exit(0)\n")
        e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}), 422, "refused")
        assert re.search(rf"process \d+ \(.*\).*({reason})", e["message"]), (name, e)
        assert tells(d, b, x) == ("on", 0, ""), name
        d.post(f"/v1/sandboxes/{b['id']}/execs", {"shell": "kill -9 -1"})
