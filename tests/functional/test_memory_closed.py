"""What a process closes is closed, also when that is the first thing it does after a copy of it was made, or as a copy: nothing of ours
has it open any more by then."""
import base64

from api import d, eventually, nothing_is_left_behind  # noqa: F401
from test_checkpoints_memory import background, clean, output  # noqa: F401

# It holds a listening socket, a locked file and a pipe nearly all the time, and looks at once whether their ends are final.
PROGRAM = r"""
import fcntl, os, socket, time
n = 0
while True:
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(1); at = s.getsockname()
    f = os.open("/tmp/locked", os.O_RDWR | os.O_CREAT); fcntl.flock(f, fcntl.LOCK_EX)
    r, w = os.pipe(); os.set_blocking(r, False)
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
    s.close(); os.close(f); os.close(w)
    f = os.open("/tmp/locked", os.O_RDWR)
    try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: print("lock", flush=True)
    try: os.read(r, 1)
    except BlockingIOError: print("pipe", flush=True)
    c = socket.socket()
    try: c.connect(at); print("listener", flush=True)
    except ConnectionRefusedError: pass
    c.close(); os.close(r); os.close(f)
    n += 1
    open("/tmp/n.new", "w").write(str(n)); os.rename("/tmp/n.new", "/tmp/n")
"""


def goes_on(d, box, x):
    def rounds():
        assert output(d, box, x) == []
        said = d.exec(box["id"], "cat", "/tmp/n")["stdout"]
        return int(said) if said else 0
    was = rounds()
    eventually(lambda: rounds() > was + 1, seconds=60)


def test_what_is_closed_behind_a_copy_is_closed(d, clean):
    b = d.create()
    x = background(d, b, f"exec python3 -c \"import base64; exec(base64.b64decode('{base64.b64encode(PROGRAM.encode()).decode()}'))\"")
    for _ in range(2):
        goes_on(d, b, x)
        r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"memory": True})
        assert r.status == 201, r
        goes_on(d, b, x)
        r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": 1, "memory": True})
        assert r.status == 201, r
        copy, = r.json["sandboxes"]
        goes_on(d, copy, x)
        assert output(d, b, x) == []
        assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
        assert d.post(f"/v1/sandboxes/{b['id']}/resume").status == 200
        goes_on(d, b, x)
        assert d.delete(f"/v1/sandboxes/{copy['id']}").status in (200, 204)


# Accepted ones, whose peers have closed them and which are shut down: more than the sockets that a sandbox of 64M can make itself.
OVER = r"""
import os, socket, time
n = 200
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(1)
over = []
for _ in range(n):
    c = socket.create_connection(l.getsockname()); s, _ = l.accept()
    c.close(); s.recv(1); s.shutdown(socket.SHUT_WR); over.append(s)
names = [s.getsockname() for s in over]
open("/tmp/n", "w").write("1")
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
print(sum(s.recv(1) == b"" and s.getsockname() == name for s, name in zip(over, names)), flush=True)
"""


def test_more_connections_that_are_over_than_it_can_make_are_copied(d, clean):
    b = d.create(memory="64M")
    x = background(d, b, f"exec python3 -c \"import base64; exec(base64.b64decode('{base64.b64encode(OVER.encode()).decode()}'))\"")
    eventually(lambda: d.exec(b["id"], "cat", "/tmp/n")["stdout"], seconds=60)
    r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": 1, "memory": True})
    assert r.status == 201, r
    for box in (r.json["sandboxes"][0], b):
        d.exec(box["id"], "touch", "/tmp/go")
        eventually(lambda: output(d, box, x), seconds=60)
        assert output(d, box, x) == ["200"]
