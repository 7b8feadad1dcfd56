"""Unix sockets in memory checkpoints: a program for each kind sets it up; the source, a fork of a copy, and the copy after it
was hibernated and woken tell the same of it (test_memory_sockets.py)."""
import re

import pytest

from api import d, error, nothing_is_left_behind  # noqa: F401
from test_checkpoints_memory import clean  # noqa: F401
from test_memory_objects import start
from test_memory_sockets import all_tell_the_same, checked

UNIX = """
U, STREAM, DGRAM, SEQ = socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET
def server(at, type=STREAM):
    s = socket.socket(U, type); s.bind(at)
    if type != DGRAM: s.listen(4)
    return s
def client(at, type=STREAM):
    c = socket.socket(U, type); c.connect(at); return c
def takes(s, n=99):
    s.settimeout(30); return s.recv(n)
def cred(s): return struct.unpack("iII", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
"""

# Queues with borders: several messages, an empty one; senders with names, without, and gone.
QUEUES = ("""
a, b = socket.socketpair(U, DGRAM); q, r = socket.socketpair(U, SEQ)
for m in (b"", b"two", b"three"): a.send(m); q.send(m or b"-")
box = server("\\0box", DGRAM); named = server("\\0sender", DGRAM); gone = server("\\0gone", DGRAM); none = socket.socket(U, DGRAM)
for s, m in (named, b"n"), (gone, b"g"), (none, b"u"): s.sendto(m, "\\0box")
gone.close()
gate()
for s in (a, b, q, r, box): s.settimeout(30)
print(b.recv(9), b.recv(9), b.recv(9), r.recv(9), r.recv(9), r.recv(9), [box.recvfrom(9) for _ in range(3)])
b.send(b"back"); named.sendto(b"more", "\\0box"); print(a.recv(9), box.recvfrom(9))
""", "b'' b'two' b'three' b'-' b'two' b'three' [(b'n', b'\\x00sender'), (b'g', b'\\x00gone'), (b'u', None)]\nb'back' (b'more', b'\\x00sender')")

NAMES = ("""
os.makedirs("deep", exist_ok=True); os.chdir("deep")
rel = server("here"); c = client("here"); a, _ = rel.accept(); c.sendall(b"queued")
gone = server("gone"); g = client("gone"); h, _ = gone.accept(); os.unlink("gone")
old = server("twice", DGRAM); os.unlink("twice"); new = server("twice", DGRAM); os.chmod("twice", 0o620)
os.chdir("..")
said = [s.getsockname() for s in (rel, a, gone, h, old, new)] + [s.getpeername() for s in (c, g)]
gate()
print(said == [s.getsockname() for s in (rel, a, gone, h, old, new)] + [s.getpeername() for s in (c, g)], said)
print(takes(a), os.path.exists("deep/gone"), oct(os.stat("deep/twice").st_mode))
g.sendall(b"g"); print(takes(h)); n = client("deep/here"); m, _ = rel.accept(); n.sendall(b"new"); print(takes(m))
socket.socket(U, DGRAM).sendto(b"to new", "deep/twice"); print(takes(new), sorted(os.listdir("deep")))
""", """True ['here', 'here', 'gone', 'gone', 'twice', 'twice', 'here', 'gone']
b'queued' False 0o140620\nb'g'\nb'new'\nb'to new' ['here', 'twice']""")

HALVES = ("""
a, b = socket.socketpair(); a.sendall(b"left"); a.close()
c, e = socket.socketpair(); c.sendall(b"x"); e.send(b"unheard"); c.close()
s = server("\\0pending"); p = [client("\\0pending") for _ in range(3)]
f, g = socket.socketpair(U, SEQ); f.send(b"m"); f.shutdown(socket.SHUT_WR)
gate()
print(takes(b), takes(b), fails(b.send, b"x"))
print(takes(e), fails(takes, e))
for i, x in enumerate(p): x.sendall(b"%d" % i)
print([takes(s.accept()[0]) for _ in p], takes(g), takes(g), g.send(b"back"), takes(f))
""", "b'left' b'' BrokenPipeError\nb'x' ConnectionResetError\n[b'0', b'1', b'2'] b'm' b'' 4 b'back'")

# Descriptors on their way: of a pipe, a file and a socket that nobody has open any more, and one that somebody has.
RIGHTS = ("""
a, b = socket.socketpair(); x, y = socket.socketpair(U, DGRAM)
r, w = os.pipe(); f = os.open("sent", os.O_RDWR | os.O_CREAT); os.write(f, b"content"); os.lseek(f, 3, 0); u, v = socket.socketpair()
u.sendall(b"inside"); os.write(w, b"piped")
socket.send_fds(a, [b"one"], [r, f]); socket.send_fds(x, [b"two"], [v.fileno(), w])
os.close(r); os.close(f); v.close()
gate()
m, fds, *_ = socket.recv_fds(b, 9, 4); print(m, os.read(fds[0], 9), os.read(fds[1], 9))
m, more, *_ = socket.recv_fds(y, 9, 4); os.write(w, b"again"); os.write(more[1], b"!"); print(m, os.read(more[0], 9), os.read(fds[0], 9)); u.sendall(b"on"); print(os.read(more[0], 9))
""", "b'one' b'piped' b'tent'\nb'two' b'inside' b'again!'\nb'on'")

CREDENTIALS = ("""
me = (os.getpid(), os.getuid(), os.getgid())
a, b = socket.socketpair(); s = server("\\0creds"); k, l = os.pipe()
def connect():
    global c
    c = client("\\0creds")
p = child(connect)
x, _ = s.accept(); y = client("\\0creds"); z, _ = s.accept()
z.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
gate()
print([cred(k) == me or (cred(k), me) for k in (a, b, s, y, z)], cred(x) == (p, *me[1:]) or cred(x), z.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED))
y.send(b"m"); print(struct.unpack("iII", z.recvmsg(9, 99)[1][0][2]) == me); end(p)
""", "[True, True, True, True, True] True 1\nTrue")

CONNECTED = ("""
s = server("\\0one way", DGRAM); c = client("\\0one way", DGRAM); c.send(b"before")
at = os.path.abspath("named"); p = server(at, DGRAM); q = server(at + "2", DGRAM); q.connect(at); p.connect(at + "2"); q.send(b"early")
gate()
c.send(b"after"); print(takes(s), takes(s), fails(c.getpeername) == b"\\0one way", takes(p)); p.send(b"reply"); print(takes(q), q.getpeername() == at)
""", "b'before' b'after' True b'early'\nb'reply' True")

UDP = ("""
def udp(family=socket.AF_INET, at="127.0.0.1"):
    s = socket.socket(family, DGRAM); s.bind((at, 0)); return s
a, b, gone = udp(), udp(), udp()
for s, m in (gone, b""), (b, b"two"), (b, b"three"): s.sendto(m, a.getsockname())
want = [(b"", gone.getsockname()), (b"two", b.getsockname()), (b"three", b.getsockname())]; gone.close()
c = udp(); c.connect(a.getsockname()); a6 = udp(socket.AF_INET6, "::1"); b6 = udp(socket.AF_INET6, "::1"); b6.connect(a6.getsockname()[:2]); b6.send(b"six")
shut = udp(); shut.connect(a.getsockname()); shut.shutdown(socket.SHUT_WR)
gate()
for s in (a, b, c): s.settimeout(30)
print([a.recvfrom(9) for _ in range(3)] == want, takes(a6), fails(shut.send, b"x"))
c.send(b"on"); print(a.recvfrom(9) == (b"on", c.getsockname()), c.getpeername() == a.getsockname())
""", "True b'six' BrokenPipeError\nTrue True")

# Each datagram comes from the address that sent it, also where another socket has that one's port, or all addresses.
SENDERS = ("""
def udp(at, port=0, family=socket.AF_INET): s = socket.socket(family, DGRAM); s.bind((at, port)); s.settimeout(30); return s
r = udp("127.0.0.1"); six = udp("::", 0, socket.AF_INET6); mine, mine6 = r.getsockname()[1], six.getsockname()[1]
one = udp("127.0.0.1"); port = one.getsockname()[1]; two = udp("127.0.0.2", port); own = udp("127.0.0.2", mine); every = udp("0.0.0.0"); e = every.getsockname()[1]
for s in (two, own, every): s.sendto(b"x", r.getsockname())
every.sendmsg([b"x"], [(socket.IPPROTO_IP, 8, struct.pack("I4s4s", 0, socket.inet_aton("127.0.0.3"), bytes(4)))], 0, r.getsockname())
two.sendto(b"x", ("127.0.0.1", mine6)); six.sendto(b"x", ("::1", mine6))
gate()
print([r.recvfrom(9)[1] for _ in range(4)] == [("127.0.0.2", port), ("127.0.0.2", mine), ("127.0.0.1", e), ("127.0.0.3", e)])
print([six.recvfrom(9)[1][:2] for _ in range(2)] == [("::ffff:127.0.0.2", port), ("::1", mine6)])
""", "True\nTrue")

GROUPS = {"messages": {"queues": QUEUES, "rights": RIGHTS, "connected": CONNECTED, "udp": UDP, "senders": SENDERS}, "streams": {"names": NAMES, "halves": HALVES, "credentials": CREDENTIALS}}


@pytest.mark.parametrize("group", GROUPS)
def test_unix_sockets_are_the_same_in_copies_forks_and_after_waking(d, clean, group):
    all_tell_the_same(d, list(GROUPS[group].items()), UNIX)


REFUSED = {
    "credentials": ("a, b = socket.socketpair(); b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1); a.send(b'x')", "messages with credentials"),
    "pending with data": ("s = server('\\0p'); c = client('\\0p'); c.send(b'x')", "sent data over a unix connection"),
    "peer gone": ("s = server('\\0g', DGRAM); c = client('\\0g', DGRAM); s.close()", "connected to one that was closed"),
    "corked": ("s = socket.socket(socket.AF_INET, DGRAM); s.connect(('127.0.0.1', 9)); s.send(b'x', socket.MSG_MORE)", "UDP_CORK"),
    "udp error": ("s = socket.socket(socket.AF_INET, DGRAM); s.connect(('127.0.0.1', 9)); s.send(b'x'); select.select([s], [], [], 30)", "an unread error"),
    "eventfd on its way": ("a, b = socket.socketpair(); f = os.eventfd(1); socket.send_fds(a, [b'x'], [f]); os.close(f)", "in transit"),
}


def test_what_can_not_be_carried_is_refused_and_runs_on(d, clean):
    b = d.create()
    for name, (text, reason) in REFUSED.items():
        x = start(d, b, UNIX + text + "\ngate()\nprint('on')\n")
        e = error(d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}), 422, "refused")
        assert re.search(rf"process \d+ \(python3\).*({reason})", e["message"]), (name, e)
        assert checked(d, b, [x]) == [("on", 0, "")], name


def test_a_relative_name_in_the_root_folder_is_carried(d, clean):
    b = d.create(user="root")
    x = start(d, b, UNIX + "os.chdir('/'); s = server('top')\ngate()\nc = client('/top'); a, _ = s.accept(); c.sendall(b'x'); print(takes(a), s.getsockname())\n")
    r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"memory": True})
    assert r.status == 201, r
    assert checked(d, r.json["sandboxes"][0], [x]) == checked(d, b, [x]) == [("b'x' top", 0, "")]
