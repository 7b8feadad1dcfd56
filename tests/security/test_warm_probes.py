"""The probes in sandboxes that go on from an image: as a new command, as a child of the warm process, and as that process itself."""
import pathlib
import re
import socket
import sys
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
from daemon import Daemon  # noqa: E402
from test_warm import pythons  # noqa: E402

PROBE = host.BUILD / "cloche-probe"
# It waits for a word that comes after the restore, and then becomes the probe itself.
WAITS = "echo waiting; while [ ! -s /home/user/go ]; do sleep 0.02; done; exec $(cat /home/user/go) > /home/user/said"


@pytest.fixture(scope="module")
def shared():
    folder = pathlib.Path("/var/tmp") / ("cloche-ro-" + uuid.uuid4().hex)
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "file").write_text("x")
    (folder / "file").chmod(0o666)
    yield folder
    (folder / "file").unlink()
    folder.rmdir()


@pytest.fixture(scope="module")
def d(shared):
    host.become_subreaper()
    with Daemon(None, "--allow-mount", shared) as one:
        yield one


@pytest.fixture(scope="module")
def probe():
    """Its arguments: a file that only the host has, readable for all, and what listens there."""
    text, name = "canary-" + uuid.uuid4().hex, "cloche-test-" + uuid.uuid4().hex[:8]
    canary = pathlib.Path("/var/tmp") / ("cloche-" + text)
    canary.write_text(text)
    canary.chmod(0o644)
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        abstract.bind("\0" + name)
        abstract.listen()
        yield ["/home/user/probe", "--canary", str(canary), text, "--ro", "/ro", "--port", str(tcp.getsockname()[1]), "--abstract", name]
    canary.unlink()


def put(d, shared, name, user, **fields):
    r = d.put(f"/v1/templates/{name}", {"user": user, "memory": "128M", "pids": 64, "output_limit": "4M", "workdir": "/home/user",
                                        "mounts": [{"source": str(shared), "target": "/ro", "read_only": True}], **fields})
    assert r.status in (200, 201), r


def bring(d, box):
    r = d.request("PUT", f"/v1/sandboxes/{box}/files?path=/home/user/probe&mode=0755", PROBE.read_bytes())
    assert r.status == 200, r


def closed(text):
    rows = {x[0]: x[1:] for x in (line.split("\t") for line in text.splitlines())}
    assert len(rows) >= 80, text[-2000:]
    # An exec of the daemon's is in a group of its own, /x1 and on, of which it sees no more than that.
    assert re.fullmatch(r"/x\d+", rows.pop("F10")[2])
    # The agent's socket to a warm process has such a name, in the sandbox's own network namespace: nobody can connect to it.
    if rows["N15"][0] == "open" and re.fullmatch(r"@[0-9a-f]{5}", rows["N15"][2]):
        del rows["N15"]
    assert {i: x for i, x in rows.items() if x[0] not in ("closed", "info")} == {}


@pytest.fixture(autouse=True)
def clean(d):
    yield
    for p in d.get("/v1/pools").json["pools"]:
        d.delete(f"/v1/pools/{p['name']}")
    for b in d.get("/v1/sandboxes").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")


@pytest.mark.parametrize("ready", [False, True], ids=["on demand", "ready clone"])
@pytest.mark.parametrize("user", ["user", "root"])
def test_in_a_sandbox_with_a_warm_python(d, shared, probe, user, ready):
    put(d, shared, f"py-{user}", user, warm={"python": "import os, json"})
    if ready:
        assert d.put("/v1/pools/p", {"template": f"py-{user}", "min": 1}).status == 201
        host.wait_for(lambda: d.get("/v1/pools/p").json["ready"] == 1, 20, "a ready clone")
    b = d.create(template=f"py-{user}")
    assert b["pooled"] == ready
    bring(d, b["id"])
    r = d.exec(b["id"], *probe)
    closed(r["stdout"])
    b = d.create(template=f"py-{user}")
    bring(d, b["id"])
    r = d.post(f"/v1/sandboxes/{b['id']}/execs", {"code": f"import os\nos.execv({probe[0]!r}, {probe!r})"}).json
    closed(r["stdout"])


def made_ahead(d, template):
    """One whose processes were there, and held, before it was asked for. They can be seen a moment before they are to be had."""
    for _ in range(20):
        held = host.wait_for(lambda: len(pythons(d, held=True)) == 2 and set(pythons(d, held=True)), 10, "two that are held")
        b = d.create(template=template)["id"]
        if held <= set(pythons(d)):
            return b
        d.delete(f"/v1/sandboxes/{b}")
    raise AssertionError("nobody got what was held")


@pytest.mark.parametrize("user", ["user", "root"])
def test_in_one_whose_processes_were_held(d, probe, user):
    r = d.put(f"/v1/templates/held-{user}", {"user": user, "memory": "128M", "pids": 64, "output_limit": "4M", "workdir": "/home/user", "warm": {"python": "import os"}})
    assert r.status == 201, r
    for _ in range(2):
        d.delete(f"/v1/sandboxes/{d.create(template=f'held-{user}')['id']}")
    b = made_ahead(d, f"held-{user}")
    bring(d, b)
    own = [x for x in probe if x not in ("--ro", "/ro")]  # who has a folder of the host's does not stand ahead
    said = d.post(f"/v1/sandboxes/{b}/execs", {"code": f"import os\nos.execv({own[0]!r}, {own!r})"}).json["stdout"]
    closed("".join(x for x in said.splitlines(True) if not x.startswith("F14\t")))
    assert d.delete(f"/v1/templates/held-{user}").status == 204


@pytest.mark.parametrize("user", ["user", "root"])
def test_the_restored_process_itself(d, shared, probe, user):
    put(d, shared, f"sh-{user}", user, warm={"cmd": ["sh", "-c", WAITS], "ready": "waiting"})
    b = d.create(template=f"sh-{user}")
    bring(d, b["id"])
    x = b["restored"]["execs"][0]
    assert d.request("PUT", f"/v1/sandboxes/{b['id']}/files?path=/home/user/go", " ".join(probe).encode()).status == 200
    r = d.get(f"/v1/sandboxes/{b['id']}/execs/{x}/wait?timeout=60", timeout=70).json
    assert r["state"] == "ended", r
    closed(d.get(f"/v1/sandboxes/{b['id']}/files?path=/home/user/said").body.decode())


def test_the_socket_to_a_warm_process_lets_nobody_in(d, shared):
    put(d, shared, "py-sock", "user", warm={"python": "1"})
    b = d.create(template="py-sock")["id"]
    script = ("import socket\nnames = [l.split()[-1] for l in open('/proc/net/unix').read().splitlines()[1:] if l.split()[-1].startswith('@')]\n"
              "for n in names:\n for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):\n"
              "  s = socket.socket(socket.AF_UNIX, kind)\n  try:\n   s.connect('\\0' + n[1:])\n   print('in', n, kind)\n  except OSError as e: print('no', e.errno)")
    said = d.exec(b, "python3", "-c", script)["stdout"]
    assert "in" not in said.split(), said
    assert d.post(f"/v1/sandboxes/{b}/execs", {"code": "print(1)"}).json["stdout"] == "1\n"


def test_nobody_else_can_be_met_in_a_clone(d, shared):
    """What one clone has done is in no other: no file, no process, no number drawn ahead."""
    put(d, shared, "py-alone", "user", warm={"python": "import random, secrets, uuid, tempfile\nrandom.random()"})
    boxes = [d.create(template="py-alone")["id"] for _ in range(6)]
    script = ("import random, secrets, uuid, tempfile, os; print(random.random(), secrets.token_hex(8), uuid.uuid4(), next(tempfile._get_candidate_names()), "
              "os.urandom(8).hex(), open('/proc/sys/kernel/random/boot_id').read() and open('/run/cloche/generation').read().strip())")
    seen = [d.post(f"/v1/sandboxes/{b}/execs", {"code": script}).json["stdout"].split() for b in boxes]
    assert all(len(s) == 6 for s in seen), seen
    for column in zip(*seen):
        assert len(set(column)) == len(boxes), column
