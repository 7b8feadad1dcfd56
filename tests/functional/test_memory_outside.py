"""Connections from a sandbox to the outside, when its memory is copied: the copy finds them reset, and the answer says which. The source
keeps its own. `network: "refuse"` makes them a reason not to."""
import json
import socketserver
import threading

import pytest

from api import error
from daemon import Daemon
from memory_lives import start, tells
from net_world import World
from test_checkpoints_memory import clean  # noqa: F401


class Patient:
    """Gives back what it gets, and waits for more as long as it takes."""

    def __init__(self, address, port=7):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                try:
                    while data := self.request.recv(65536):
                        self.request.sendall(data)
                except OSError:
                    pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True
            block_on_close = False

        self.server = Server((address, port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def done(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def w():
    with World() as one:
        one.own(Patient(one.at(9)))
        one.hosts["far.test"] = one.at(9)
        yield one


@pytest.fixture(scope="module")
def d(w):
    with Daemon(None, "--config", w.config()) as one:
        yield one


@pytest.fixture
def nothing_is_left_behind():
    """World and daemon stay for all tests of this module."""


FAR = """
import json
import itertools
turn = itertools.cycle([socket.AF_INET, socket.AF_INET6])
def far(wait=True):
    s = socket.socket(next(turn)); s.settimeout(30); s.connect(("far.test", 7)); s.settimeout(None)
    s.sendall(b"hello")
    if wait: assert s.recv(5, socket.MSG_WAITALL) == b"hello"
    else: select.select([s], [], [], 30)
    return s
"""

# A copy's egress may be a moment behind its processes.
REACH = """
def reach():
    for _ in range(300):
        with contextlib.suppress(OSError): return far()
        time.sleep(0.1)
"""

# One for each way in which a process may come to know of it.
PROGRAM = FAR + REACH + """
reads, writes, asks, polls, waits, edge, late, shared, inner = far(), far(), far(), far(), far(), far(), far(False), far(), far()
reads.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); reads.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1); reads.setblocking(False)
os.set_inheritable(writes.fileno(), True)
twin = os.dup(shared.fileno())
level, edges = select.epoll(), select.epoll()
level.register(waits.fileno(), select.EPOLLIN)
edges.register(edge.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
assert edges.poll(30) == [(edge.fileno(), select.EPOLLOUT)] and not level.poll(0)
r, w = os.pipe()
def blocked():
    os.write(w, str(fails(inner.recv, 9)).encode())
p = child(after=blocked); asleep(p)
open("../facts-%s" % sys.argv[1], "w").write(json.dumps({"pid": os.getpid(), "fds": [s.fileno() for s in (reads, writes, asks, polls, waits, edge, late, shared, inner)],
    "local": reads.getsockname(), "remote": reads.getpeername()}))
gate()
def flags(n): return sorted(k for k in ("POLLIN", "POLLHUP", "POLLERR", "POLLRDHUP") if n & getattr(select, k))
P = select.poll(); P.register(polls, select.POLLIN | select.POLLRDHUP)
print(flags(dict(P.poll(0)).get(polls.fileno(), 0)))
print(fails(reads.recv, 9), fails(reads.recv, 9), reads.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), reads.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), reads.getblocking())
print(fails(writes.send, b"again"), os.get_inheritable(writes.fileno()))
print(errno.errorcode.get(asks.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))
print([flags(e) for f, e in level.poll(0) if f == waits.fileno()], [flags(e) for f, e in edges.poll(0) if f == edge.fileno()])
print(late.recv(5), fails(lambda: (late.setblocking(False), late.recv(5))[1]))
fcntl.fcntl(twin, fcntl.F_SETFL, os.O_NONBLOCK); print(shared.getblocking() is False or fcntl.fcntl(shared.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK != 0, fails(os.read, twin, 9))
if len(sys.argv) > 2: end(p)
else: print(os.read(r, 99), os.waitpid(p, 0)[1])
print(type(reach()).__name__)
"""

ALL, SOME = "['POLLERR', 'POLLHUP', 'POLLIN', 'POLLRDHUP']", "['POLLERR', 'POLLHUP', 'POLLIN']"
CUT = "\n".join([ALL, "ECONNRESET b'' 1 1 False", "ECONNRESET True", "ECONNRESET", f"[{SOME}] [{SOME}]", "b'hello' ECONNRESET", "True ECONNRESET",
                 "b'ECONNRESET' 0", "socket"])
KEPT = "\n".join(["[]", "EAGAIN EAGAIN 1 1 False", "5 True", "None", "[] []", "b'hello' EAGAIN", "True EAGAIN", "socket"])


def program(d, box, name, *more):
    return start(d, box, f"sys.argv[1:] = {[name, *more]!r}\n" + PROGRAM)


def facts(d, box, name):
    return json.loads(d.exec(box["id"], "cat", f"facts-{name}")["stdout"])


def shows(cut, known):
    """Every connection of all programs, and each as its process knows it."""
    assert cut["count"] == len(cut["connections"]) == sum(len(f["fds"]) for f in known), cut
    for f in known:
        own = {c["fd"]: c for c in cut["connections"] if c["pid"] == f["pid"]}
        assert set(own) == set(f["fds"]), (cut, f)
        first = own[f["fds"][0]]
        assert (first["local"], first["remote"]) == ("%s:%d" % tuple(f["local"]), "%s:%d" % tuple(f["remote"])), (first, f)
        assert all(c["command"] == "python3" and c["protocol"] == "tcp" and c["unread"] == 0 and c["host"] == "far.test" for c in own.values()), own


def test_a_copy_finds_them_reset_and_the_source_keeps_them(d):
    b = d.create(network={"allow": ["far.test:7"]})
    kept, x = program(d, b, "kept", "source"), program(d, b, "one")
    known = [facts(d, b, "kept"), facts(d, b, "one")]
    before = d.get("/v1/audit?limit=1").json["head"]["seq"]
    c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}, timeout=120)
    assert c.status == 201 and c.json["memory"], c
    shows(c.json["cut"], known)
    assert d.get(f"/v1/checkpoints/{c.json['id']}").json["cut"] == c.json["cut"]
    record, = [a for a in d.get(f"/v1/audit?after={before}").json["records"] if a["kind"] == "checkpoint.create"]
    assert c.json["cut"] == record["cut"], record
    r = d.post(f"/v1/checkpoints/{c.json['id']}/restore", {"network": {"allow": ["far.test:7"]}}, timeout=120)
    assert r.status == 201, r
    copy, = r.json["sandboxes"]
    assert copy["cut"] == c.json["cut"]
    # Nobody in the copy has noticed yet: what comes from it finds the same, and is told of nothing new.
    r = d.post(f"/v1/sandboxes/{copy['id']}/fork", {"memory": True, "network": "refuse"}, timeout=120)
    assert r.status == 201 and r.json["sandboxes"][0]["restored"]["memory"], r
    fork, = r.json["sandboxes"]
    assert "cut" not in fork
    assert tells(d, b, kept) == (KEPT, 0, "")
    for one in (copy, fork):
        assert tells(d, one, x) == (CUT, 0, "")
    # Asleep and awake again, it is as a copy.
    r = d.post(f"/v1/sandboxes/{b['id']}/hibernate", timeout=120)
    assert r.status == 200 and r.json["state"] == "hibernated", r
    shows(r.json["cut"], known[1:])
    asleep = r.json["cut"]
    r = d.post(f"/v1/sandboxes/{b['id']}/resume", timeout=120)
    assert r.status == 200 and r.json["state"] == "running" and r.json["cut"] == asleep, r
    assert tells(d, b, x) == (CUT, 0, "")


def test_they_are_a_reason_to_refuse_where_that_is_asked_for(d):
    b = d.create(network={"allow": ["far.test:7"]})
    x = start(d, b, FAR + "s = far()\nopen('../facts-r', 'w').write(json.dumps({'pid': os.getpid(), 'fd': s.fileno(), 'remote': s.getpeername()}))\ngate()\n"
              "s.sendall(b'still'); print(s.recv(5, socket.MSG_WAITALL))\n")
    f = facts(d, b, "r")
    at = f"/v1/sandboxes/{b['id']}"
    for verb, body in ("checkpoints", {"memory": True}), ("fork", {"memory": True}), ("hibernate", {}):
        e = error(d.post(f"{at}/{verb}", {**body, "network": "refuse"}, timeout=120), 422, "refused")
        assert f"process {f['pid']} (python3)" in e["message"] and f"descriptor {f['fd']}" in e["message"], e
        assert f"{f['remote'][0]} port {f['remote'][1]}" in e["message"], e
    r = d.post(f"{at}/checkpoints", {"memory": "auto", "network": "refuse"}, timeout=120)
    assert r.status == 201 and not r.json["memory"] and "connection to the outside" in r.json["memory_refused"] and r.json["cut"] is None, r
    error(d.post(f"{at}/checkpoints", {"memory": True, "network": "keep"}), 400, "invalid")
    r = d.cli("checkpoint", "--memory", "--network", "refuse", b["id"], timeout=120)
    assert r.code != 0 and "connection to the outside" in r.err.decode(), r
    r = d.cli("checkpoint", "--memory", b["id"], timeout=120)
    assert r.code == 0 and f"note: cut: python3 (process {f['pid']}, descriptor {f['fd']}): tcp far.test " in r.err.decode(), r
    assert d.get(at).json["state"] == "running"
    assert tells(d, b, x) == ("b'still'", 0, "")


SERVER = """
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8080)); s.listen(5)
while True:
    a, _ = s.accept(); got = b""
    while not got.endswith(b"\\r\\n\\r\\n"): got += a.recv(999) or b"\\r\\n\\r\\n"
    if got.startswith(b"GET"): break
gate()
n = fails(a.send, b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\nConnection: close\\r\\n\\r\\nfine"); a.close()
c = socket.create_connection(("127.0.0.1", 8080)); a, _ = s.accept(); c.sendall(b"in"); print(n, a.recv(2, socket.MSG_WAITALL))
"""


def test_a_client_from_outside_is_cut_and_its_server_listens_on(d):
    b = d.create()
    answers = []

    def ask():
        r = None
        while r is None or r.status == 502:  # until it listens
            r = d.get(f"/v1/sandboxes/{b['id']}/ports/8080/", timeout=120)
        answers.append((r.status, r.body))

    client = threading.Thread(target=ask)
    client.start()
    x = start(d, b, SERVER)
    c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True}, timeout=120)
    assert c.status == 201 and c.json["cut"]["count"] == 1 and c.json["cut"]["connections"][0]["local"] == "127.0.0.1:8080", c
    copy, = d.post(f"/v1/checkpoints/{c.json['id']}/restore", timeout=120).json["sandboxes"]
    assert tells(d, copy, x) == ("ECONNRESET b'in'", 0, "")
    assert tells(d, b, x)[0].endswith(" b'in'")
    client.join(60)
    assert answers == [(200, b"fine")]
