"""TCP and UDP sockets in memory checkpoints. A program for each kind of socket sets it up; the source, a copy, a fork of the
copy, and the copy after it was hibernated and woken tell the same of it. What cannot be carried is refused with the reason."""
import os
import pathlib
import re
import subprocess

import pytest

from api import d, error, eventually, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints_memory import clean  # noqa: F401
from test_memory_objects import said, start

PAIR = """
def pair(family=socket.AF_INET, at="127.0.0.1"):
    s = socket.socket(family); s.bind((at, 0)); s.listen(1)
    c = socket.socket(family); c.connect(s.getsockname()[:2])
    a, _ = s.accept(); s.close()
    return c, a
def all(s, n):
    s.settimeout(30); got = b""
    while len(got) < n: got += s.recv(n - len(got)) or b"(end)"
    return got
def eof(s): return s.recv(9)
def opt(s, level, name, n=4): return struct.unpack("i", s.getsockopt(level, name, n))[0] if n == 4 else s.getsockopt(level, name, n)
"""

TCP = ("""
for family, at in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
    globals()["x%d" % family] = pair(family, at)
big = bytes(range(256)) * 120
for c, a in (x2, x10): c.sendall(big); a.sendall(b"back")
names = [(s.getsockname(), s.getpeername()) for c, a in (x2, x10) for s in (c, a)]
gate()
for c, a in (x2, x10):
    a.sendall(b" again"); print(all(a, len(big)) == big, all(c, 10)); c.sendall(b"more"); print(all(a, 4))
print(names == [(s.getsockname(), s.getpeername()) for c, a in (x2, x10) for s in (c, a)])
c.close(); print(eof(a))
""", "True b'back again'\nb'more'\nTrue b'back again'\nb'more'\nTrue\nb''")

# A server and its clients: one waits in a read in another process, one was never accepted.
SERVER = ("""
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(5); s.setblocking(False)
where = s.getsockname()
r, w = os.pipe()
def client():
    c = socket.create_connection(where); c.sendall(b"hello")
    os.write(w, b"got " + all(c, 5) + b" " + eof(c))
p = child(after=client)
select.select([s], [], [], 30); a, _ = s.accept(); a.setblocking(True); assert all(a, 5) == b"hello"
late = socket.create_connection(where)
assert select.select([s], [], [], 30)[0]
gate()
b, _ = s.accept(); late.sendall(b"late"); print(all(b, 4), fails(s.accept))
a.sendall(b"reply"); a.close(); print(os.read(r, 99), os.waitpid(p, 0)[1])
n = socket.create_connection(where); select.select([s], [], [], 30); m, _ = s.accept(); n.sendall(b"new"); print(all(m, 3), s.getsockname() == where)
""", "b'late' BlockingIOError\nb'got reply ' 0\nb'new' True")

# Each state that a close leaves: half closed with data, closed by the other process, closed by both.
HALVES = ("""
c, a = pair(); c.sendall(b"last words"); c.shutdown(socket.SHUT_WR)
x, y = pair(); x.sendall(b"gone"); x.close()
u, v = pair(); u.sendall(b"over"); u.shutdown(socket.SHUT_WR); v.shutdown(socket.SHUT_WR)
names = [u.getsockopt(socket.SOL_SOCKET, 28, 16), v.getsockopt(socket.SOL_SOCKET, 28, 16), u.getsockname(), v.getsockname()]
i, j = pair(); i.shutdown(socket.SHUT_RD)
never = socket.socket(); bound = socket.socket(); bound.bind(("127.0.0.1", 0)); place = bound.getsockname()
gate()
print(all(a, 10), eof(a), a.send(b"still"), all(c, 5), fails(c.send, b"x"))
print(all(y, 4), eof(y))
print(all(v, 4), eof(v), eof(u), fails(u.send, b"x"), fails(u.getpeername), names == [u.getsockopt(socket.SOL_SOCKET, 28, 16), v.getsockopt(socket.SOL_SOCKET, 28, 16), u.getsockname(), v.getsockname()])
print(eof(i), i.send(b"out"), all(j, 3))
print(fails(never.recv, 1), fails(bound.recv, 1), bound.getsockname() == place); bound.listen(); print(socket.create_connection(place).getpeername() == place)
""", "b'last words' b'' 5 b'still' BrokenPipeError\nb'gone' b''\nb'over' b'' b'' BrokenPipeError OSError True\nb'' 3 b'out'\nOSError OSError True\nTrue")

# Its program is about to ask once more whether it is connected, or is inside of connect(): it gets that answer once.
CONNECTING = ("""
s = socket.create_server(("127.0.0.1", 0))
def begin():
    c = socket.socket(); c.setblocking(False); assert c.connect_ex(s.getsockname()) == 115 and select.select([], [c], [], 30)[1]; return c
accepted = begin(); a, _ = s.accept(); answered = begin(); b, _ = s.accept(); b.sendall(b"first"); ended = begin(); s.accept()[0].close(); used = begin(); u, _ = s.accept(); used.send(b"x"); all(u, 1)
assert select.select([answered], [], [], 30)[0] and select.select([ended], [], [], 30)[0]
waits = begin()
gate()
print([[c.connect_ex(s.getsockname()) for _ in range(2)] for c in (accepted, waits, answered, ended)], [c.getblocking() for c in (accepted, waits)])
w, _ = s.accept()
for c, x in (accepted, a), (waits, w), (answered, b): c.setblocking(True); c.sendall(b"ping"); print(all(x, 4), x.send(b"pong"), all(c, 4))
print(eof(ended))
""", "[[0, 106], [0, 106], [0, 106], [0, 106]] [False, False]\nb'ping' 4 b'pong'\nb'ping' 4 b'pong'\nb'ping' 4 b'firs'\nb''")

OPTIONS = ("""
S, T, I = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP
want = [(S, socket.SO_KEEPALIVE, 1), (S, socket.SO_OOBINLINE, 1), (S, 12, 5), (S, 18, 3), (S, socket.SO_SNDBUF, 65536), (S, socket.SO_RCVBUF, 131072),
        (T, socket.TCP_NODELAY, 1), (T, socket.TCP_KEEPIDLE, 77), (T, socket.TCP_KEEPINTVL, 7), (T, socket.TCP_KEEPCNT, 4), (T, socket.TCP_USER_TIMEOUT, 12345),
        (T, socket.TCP_LINGER2, 11), (I, socket.IP_TOS, 16), (I, socket.IP_TTL, 55), (I, 10, 0)]
c, a = pair(); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for o in want: c.setsockopt(*o)
c.setsockopt(S, socket.SO_LINGER, struct.pack("ii", 1, 4)); c.setsockopt(S, socket.SO_RCVTIMEO, struct.pack("ll", 3, 0)); c.setsockopt(S, 25, b"lo\\0")
for o in (S, socket.SO_BROADCAST, 1), (S, socket.SO_REUSEADDR, 1), (S, 35, 1), (S, 11, 1), (I, socket.IP_TTL, 9), (I, 8, 1), (I, 11, 1), (I, socket.IP_MULTICAST_TTL, 6): u.setsockopt(*o)
l = socket.socket(); l.setsockopt(I, 15, 1); l.setsockopt(S, 15, 1); l.bind(("10.9.8.7", 1234)); l.setsockopt(T, socket.TCP_DEFER_ACCEPT, 3); l.listen(7)
six = socket.socket(socket.AF_INET6); six.setsockopt(41, 26, 1); six.bind(("::", 0)); six.listen()
def state():
    return ([opt(c, *o[:2]) for o in want], [c.getsockopt(S, socket.SO_LINGER, 8), c.getsockopt(S, socket.SO_RCVTIMEO, 16), c.getsockopt(S, 25, 16)],
            [opt(u, *o) for o in ((S, socket.SO_BROADCAST), (S, socket.SO_REUSEADDR), (S, 35), (S, 11), (I, socket.IP_TTL), (I, 8), (I, 11), (I, socket.IP_MULTICAST_TTL))],
            [opt(l, *o) for o in ((I, 15), (S, 15), (S, 2), (T, socket.TCP_DEFER_ACCEPT))], l.getsockname(), opt(six, 41, 26), opt(a, S, 9), opt(a, S, 2))
before = state()
gate()
print(before == state() or (before, state()))
""", "True")

REUSED = ("""
def server():
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); return s
a, b = server(), server(); a.bind(("127.0.0.1", 0)); b.bind(a.getsockname()); a.listen(); b.listen()
a.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
c = socket.create_connection(a.getsockname()); x = (a if select.select([a, b], [], [], 30)[0] == [a] else b).accept()[0]
gate()
c.sendall(b"on"); print(all(x, 2), opt(a, socket.SOL_SOCKET, socket.SO_REUSEPORT), opt(b, socket.SOL_SOCKET, socket.SO_REUSEPORT), a.getsockname() == b.getsockname() == c.getpeername())
""", "b'on' 0 1 True")

# Of several sockets at one address the kernel picks one by the sender: what each has not read is its own.
REUSED_UDP = ("""
def udp(where=None):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False)
    if where: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(where)
    return s
def group(where):
    first = udp((where, 0)); return [first, udp(first.getsockname()), udp(first.getsockname())]
def drain(s):
    got = []
    while (m := fails(s.recv, 99)) != "BlockingIOError": got.append(m)
    return got
def send(g, senders):
    for i, c in enumerate(senders): c.sendto(b"%d" % i, ("127.0.0.1", g[0].getsockname()[1]))
groups = group("127.0.0.1"), group("0.0.0.0")
senders = [udp() for _ in range(12)]; expected = []
for g in groups:
    send(g, senders); expected.append([drain(s) for s in g]); assert sum(map(len, expected[-1])) == 12
    send(g, senders)
gate()
print([[drain(s) for s in g] for g in groups] == expected)
others = [udp() for _ in range(24)]
for g in groups:
    send(g, others); n = [len(drain(s)) for s in g]; print(sum(n), sum(map(bool, n)) > 1)
""", "True\n24 True\n24 True")

# What was sent and did not find room: both ways, to a reader that chose its buffer, by one that shut down, by one that closed.
UNSENT = ("""
def fill(s):
    s.setblocking(False); n = 0
    while (m := fails(s.send, blob[n % 65536:][:30000])) != "BlockingIOError": n += m
    s.setblocking(True); return n
def same(s, n, step=65536):
    s.settimeout(30); got = 0
    while got < n:
        piece = s.recv(min(step, n - got))
        if not piece or piece != (blob * 2)[got % 65536:][:len(piece)]: return got
        got += len(piece)
    return True
blob = bytes(range(255)) * 257 + bytes(1)
def outq(s): return struct.unpack("i", fcntl.ioctl(s, 0x5411, bytes(4)))[0]
assert len(blob) == 65536
c, a = pair(); there, back = fill(c), fill(a)
small, b = pair(); b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000); size = b.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF); some = fill(small)
h, i = pair(); half = fill(h); h.shutdown(socket.SHUT_WR)
j, k = pair(); last = fill(j); j.close()
m, n = pair(); to, fro = fill(m), fill(n); m.shutdown(socket.SHUT_WR); n.shutdown(socket.SHUT_WR)
assert outq(c) and outq(a) and outq(small) and outq(h)
gate()
print(same(a, there), same(c, back), a.send(b"on"), all(c, 2), c.send(b"back"), all(a, 4))
print(same(b, some), b.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == size, small.send(b"x"), all(b, 1))
print(same(i, half), eof(i), i.send(b"still"), all(h, 5))
print(same(k, last), eof(k))
print(same(n, to), eof(n), same(m, fro), eof(m), fails(m.send, b'x'), fails(n.send, b'x'))
""".replace("blob[n % 65536:][:30000]", "(blob * 2)[n % 65536:][:30000]"), "True True 2 b'on' 4 b'back'\nTrue True 1 b'x'\nTrue b'' 5 b'still'\nTrue b''\nTrue b'' True b'' BrokenPipeError BrokenPipeError")

NETLINK = ("""
def route(family=0, pid=0, groups=0):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family); s.bind((pid, groups)); return s
def links(s):
    "The names of all interfaces, as the kernel tells them."
    s.send(struct.pack("=IHHII", 32, 18, 0x301, 7, 0) + bytes(16)); s.settimeout(30); names = []
    while True:
        data = s.recv(65536)
        while data:
            n, kind = struct.unpack_from("=IH", data); at = 32
            if kind == 3: return names
            while at + 4 <= n:
                size, what = struct.unpack_from("=HH", data, at)
                if what == 3: names.append(data[at + 4:at + size].rstrip(b"\\0"))
                at += (size + 3) & ~3
            data = data[(n + 3) & ~3:]
a, b, never = route(groups=0x111), route(pid=77), socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
b.setsockopt(270, 11, 1); b.setsockopt(270, 12, 1); a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 40000); b.setblocking(False)
names = [s.getsockname() for s in (a, b, never)]; sizes = a.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF); assert names[0][1] == 0x111 and names[1] == (77, 0)
E = select.epoll(); E.register(b.fileno(), select.EPOLLIN)
gate()
print(names == [s.getsockname() for s in (a, b, never)], a.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == sizes, b.getsockopt(270, 11), b.getsockopt(270, 12), b.getblocking(), E.poll(0))
print(links(a) == links(b) != [], b"lo" in links(never), never.getsockname()[0] != 0)
""", "True True 1 1 False []\nTrue True True")

GROUPS = {"unsent": {"unsent": UNSENT}, "netlink": {"netlink": NETLINK}, "tcp": {"tcp": TCP, "server": SERVER, "halves": HALVES, "connecting": CONNECTING}, "options": {"options": OPTIONS, "reuseport": REUSED, "reuseport of datagrams": REUSED_UDP}}


def checked(d, box, xs):
    """Lets all of them go on: what each says until it ends, and by what it ended."""
    def one(i):
        assert d.post(f"/v1/sandboxes/{box['id']}/execs/{xs[i]}/stdin", b"\n").status in (200, 204)
        end = d.get(f"/v1/sandboxes/{box['id']}/execs/{xs[i]}/wait?timeout=60").json
        return said(d, box, xs[i]).removeprefix("ready\n").strip(), end.get("exit_code"), said(d, box, xs[i], "stderr")
    return parallel(len(xs), one)


def all_tell_the_same(d, programs, prelude=PAIR):
    """The source, a copy, a fork of the copy, and the copy after hibernate and wake."""
    b = d.create()
    xs = parallel(len(programs), lambda i: start(d, b, prelude + programs[i][1][0]))
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"] is True, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore")
    assert r.status == 201, r
    copy = r.json["sandboxes"][0]
    r = d.post(f"/v1/sandboxes/{copy['id']}/fork", {"memory": True})
    assert r.status == 201 and r.json["sandboxes"][0]["restored"]["memory"] is True, r
    forked = r.json["sandboxes"][0]
    assert d.post(f"/v1/sandboxes/{copy['id']}/hibernate", {"memory": True}).status == 200  # the next call wakes it
    want = [(want, 0, "") for _, (_, want) in programs]
    for name, box in (("source", b), ("fork", forked), ("woken", copy)):
        found = checked(d, box, xs)
        assert {n: f for (n, _), f in zip(programs, found)} == {n: w for (n, _), w in zip(programs, want)}, name


@pytest.mark.parametrize("group", GROUPS)
def test_sockets_are_the_same_in_copies_forks_and_after_waking(d, clean, group):
    all_tell_the_same(d, list(GROUPS[group].items()))


REFUSED = {
    "pending with data": ("s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); c.send(b'x')", "has not accepted yet|has unaccepted connections"),
    "pending and gone": ("s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()).close()", "has not accepted yet|has unaccepted connections"),
    "not in its listener's queue": ("s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60); s.bind(('127.0.0.1', 0)); s.listen(7); "
                                    "c = socket.create_connection(s.getsockname())", "cannot accept yet"),
    "error": ("s = socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1', 1)); select.select([], [s], [], 30)", "with an unread error"),
    "netlink": ("s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.send(struct.pack('=IHHII', 32, 18, 0x301, 7, 0) + bytes(16)); select.select([s], [], [], 30)",
                r"netlink socket \(descriptor \d+\) with unread messages"),
    "urgent": ("c, a = pair(); c.send(b'x', socket.MSG_OOB); select.select([], [], [a], 30)", "urgent data"),
}


def test_what_can_not_be_carried_is_refused_and_runs_on(d, clean):
    b = d.create()
    for name, (text, reason) in REFUSED.items():
        x = start(d, b, PAIR + text + "\ngate()\nprint('on')\n")
        e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}), 422, "refused")
        assert re.search(rf"process \d+ \(python3\).*({reason})", e["message"]), (name, e)
        assert checked(d, b, [x]) == [("on", 0, "")], name


# A server that is slow to accept, as one on a busy machine is: the client has connected and sent, and is accepted 0.1 s later.
SLOW_TO_ACCEPT = """
l = socket.socket(socket.AF_INET); l.bind(("127.0.0.1", 0)); l.listen(5); u = socket.socket(socket.AF_UNIX); u.bind("/tmp/slow%d" % os.getpid()); u.listen(5)
print("ready"); sys.stdin.readline()
for s in l, u:
    c = socket.socket(s.family); c.connect(s.getsockname()); c.sendall(b"sent")
    print("connected"); time.sleep(0.1); a, _ = s.accept(); print(all(a, 4)); sys.stdin.readline()
"""


def test_a_connection_that_is_not_accepted_yet_is_waited_for(d, clean):
    b = d.create()
    x = start(d, b, PAIR + SLOW_TO_ACCEPT)
    for n in 1, 2:
        assert d.post(f"/v1/sandboxes/{b['id']}/execs/{x}/stdin", b"\n").status in (200, 204)
        eventually(lambda: said(d, b, x).count("connected") == n, 20)  # noqa: B023
        r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
        assert r.status == 201 and r.json["memory"] is True, r
        eventually(lambda: said(d, b, x).count("b'sent'") == n, 20)  # noqa: B023


# Loopback lets 100 bytes a second pass, and has tokens left for one packet: the answer to the second shutdown's is under way for 0.3 s.
SLOW = """
c, a = pair(); c.sendall(b"over"); c.shutdown(socket.SHUT_WR); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0))
print("ready"); sys.stdin.readline()
u.sendto(bytes(1600 - 100 - 42), u.getsockname()); a.shutdown(socket.SHUT_WR); print("ready"); sys.stdin.readline()
print(all(a, 4), eof(a), eof(c), fails(a.send, b"x"))
"""


def test_a_connection_that_is_just_ending_is_not_cut(d, clean):
    """One end has ended, and the packet that ends the other is under way when all processes are stopped."""
    b = d.create()
    for _ in range(3):
        x = start(d, b, PAIR + SLOW)
        pid = next(p for p in os.listdir("/proc") if p.isdigit() and b"bytes(1600 - 100 - 42)" in cmdline(p))
        slow = ["nsenter", "-t", pid, "-n", "tc", "qdisc"]
        if subprocess.run([*slow, "replace", "dev", "lo", "root", "tbf", "rate", "800bit", "burst", "1600", "limit", "100000"]).returncode:
            pytest.skip("this kernel has no TBF")
        assert d.post(f"/v1/sandboxes/{b['id']}/execs/{x}/stdin", b"\n").status in (200, 204)
        eventually(lambda: said(d, b, x) == "ready\nready\n", 20)  # noqa: B023
        r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"memory": True})
        assert r.status == 201 and r.json["sandboxes"][0]["restored"]["memory"] is True, r
        subprocess.run([*slow, "del", "dev", "lo", "root"], check=True)
        for box in b, r.json["sandboxes"][0]:
            (text, *end), = checked(d, box, [x])
            assert (text.removeprefix("ready\n"), *end) == ("b'over' b'' b'' BrokenPipeError", 0, "")
        assert d.delete(f"/v1/sandboxes/{r.json['sandboxes'][0]['id']}").status in (200, 204)


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
