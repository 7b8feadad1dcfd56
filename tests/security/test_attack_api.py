"""A hostile tenant, and hostile code in its sandbox, against the daemon: what they may take is bounded, and no other request waits for them for ever."""
import ctypes
import fcntl
import http.client
import io
import os
import pathlib
import socket
import sys
import tarfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
from api import Raw, as_tenant, error, eventually, parallel, place, rss  # noqa: E402
from daemon import Daemon  # noqa: E402

PATH = "/v1/sandboxes"
MIB = 1 << 20
SETTINGS = "spool_max = 16M\nspool_total = 32M\nconnections_max = 64\n"


@pytest.fixture(scope="module")
def d(tmp_path_factory):
    host.become_subreaper()
    config = tmp_path_factory.mktemp("attack") / "serve.conf"
    config.write_text(SETTINGS)
    with Daemon(None, "--config", config) as one:
        yield one


@pytest.fixture(scope="module")
def mallory(d):
    m = as_tenant(d, "mallory")
    m.url = d.url
    return m


@pytest.fixture(scope="module")
def victim(d):
    return as_tenant(d, "victim")


@pytest.fixture
def box(mallory):
    b = mallory.create(memory="256M")["id"]
    yield b
    mallory.delete(f"{PATH}/{b}")


def background(who, box, shell, **fields):
    r = who.post(f"{PATH}/{box}/execs", {"shell": shell, "background": True, **fields})
    assert r.status == 201, r
    return f"{PATH}/{box}/execs/{r.json['id']}"


def ended(who, x):
    return eventually(lambda: who.get(x).json["state"] == "ended", 30)


def spooled(d):
    """On the disk: files have holes where output was let go of."""
    return sum(f.stat().st_blocks * 512 for f in (d.data / "spool").iterdir())


def test_output_kept_in_files_has_a_bound_for_all_and_one_for_each_tenant(d, mallory, victim, box):
    # Each alone may have 16M: the bound must be looked at while they grow, not when they begin.
    # All at once, or the first has taken all before the others are there.
    runs = [background(mallory, box, "until [ -e /tmp/go ]; do sleep 0.02; done; yes " + "a" * 60, timeout=4) for _ in range(8)]
    mallory.post(f"{PATH}/{box}/execs", {"cmd": ["touch", "/tmp/go"]})
    most = 0
    while any(mallory.get(x).json["state"] == "running" for x in runs):
        most = max(most, spooled(d))
        time.sleep(0.05)
    assert 8 * MIB < most <= 16 * MIB, most
    # What came before is there, in order, and a reader does not wait for what is lost.
    r = mallory.get(runs[0] + "/output?follow=1", timeout=20)
    line = b"a" * 60 + b"\n"
    assert r.body and r.body == (line * (len(r.body) // len(line) + 1))[:len(r.body)]
    assert int(r.headers["X-Cloche-Total"]) > len(r.body)
    # The other half is still there for somebody else.
    other = victim.create()["id"]
    x = background(victim, other, "head -c 4000000 /dev/zero")
    assert ended(victim, x) and len(victim.get(x + "/output").body) == 4000000
    victim.delete(f"{PATH}/{other}")


def test_processes_that_work_on_archives_are_few(mallory, box):
    path = f"{PATH}/{box}/files?path=/tmp/big&op=archive"
    mallory.post(f"{PATH}/{box}/execs", {"shell": "mkdir /tmp/big && head -c 30M /dev/zero >/tmp/big/a"})
    slow = [Raw(mallory, "GET", path) for _ in range(4)]  # nobody reads
    assert [s.head()[0] for s in slow] == [200] * 4
    r = mallory.get(path)
    error(r, 503, "exhausted")
    assert r.headers["Retry-After"]
    for s in slow:
        s.close()
    assert eventually(lambda: mallory.get(path).status == 200)


STOP_OTHERS = "for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n != 1 ] && [ $n != $$ ] && kill -STOP $n 2>/dev/null; done; true"


def test_a_file_worker_that_was_stopped_from_inside_is_not_waited_for_for_ever(mallory, box):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        entry = tarfile.TarInfo("a")
        entry.size = 3 * MIB
        t.addfile(entry, io.BytesIO(bytes(entry.size)))
    calls = [("GET", "path=/etc/passwd", None), ("PUT", "path=/tmp/x", bytes(3 * MIB)), ("GET", "path=/etc&op=archive", None),
             ("POST", "path=/tmp/y&op=extract", tar.getvalue())]
    # A worker stays for a moment after its work: this one gets the first of the calls, if it was stopped in time. Any may be quicker than who stops them.
    assert mallory.get(f"{PATH}/{box}/files?path=/etc/passwd").status == 200
    assert mallory.post(f"{PATH}/{box}/execs", {"shell": STOP_OTHERS}).status == 200
    background(mallory, box, f"while :; do {STOP_OTHERS}; done", timeout=200)

    def one(i):
        method, query, body = calls[i]
        time.sleep(0.05 * i)
        try:
            return mallory.request(method, f"{PATH}/{box}/files?{query}", body, timeout=100)
        except http.client.IncompleteRead:
            return None  # stopped in the middle of its answer, which is then cut

    found = parallel(len(calls), one)
    assert all(r is None or r.status in (200, 504) for r in found), found
    late = [r for r in found if r is not None and r.status == 504]
    assert late or None in found, found
    for r in late:
        error(r, 504, "timeout")


def test_answers_nobody_reads_do_not_pile_up(d, mallory, victim, box):
    x = background(mallory, box, "head -c 8M /dev/zero; head -c 8M /dev/zero >&2", output_limit="16M")
    assert ended(mallory, x)
    before = rss(d.children()["api"])
    unread = [Raw(mallory, "GET", x) for _ in range(20)]
    states = [u.head()[0] for u in unread]
    assert states.count(200) <= 2 and states.count(503) >= 18, states
    assert rss(d.children()["api"]) - before < 400 * MIB
    error(mallory.get(PATH), 503, "exhausted")
    assert victim.get(PATH).status == 200
    for u in unread:
        u.close()
    assert eventually(lambda: mallory.get(PATH).status == 200)
    error(mallory.post(f"{PATH}/{box}/execs", {"shell": "true", "output_limit": "17M"}), 400, "invalid")
    error(mallory.post(PATH, {"output_limit": "1T"}), 400, "invalid")


def test_one_tenant_leaves_connections_to_the_others(d, mallory, victim):
    held = [Raw(mallory, "GET", "/v1/events") for _ in range(40)]
    states = [h.head()[0] for h in held]
    assert states == [200] * 32 + [503] * 8
    assert victim.get(PATH).status == 200
    # Who is nobody can hold idle ones only, and those make room.
    idle = [socket.create_connection(place(d), 5) for _ in range(80)]
    for s in idle:
        try:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            s.recv(1000)
        except OSError:
            pass
    begun = time.monotonic()
    assert victim.get(PATH, timeout=10).status == 200 and time.monotonic() - begun < 5
    for h in held:
        h.close()
    for s in idle:
        s.close()
    assert eventually(lambda: mallory.get(PATH).status == 200)


def test_a_tenant_lifts_no_limit_and_sees_no_counts_of_others(d, mallory, victim, box):
    for fields in ({"nofile": 0}, {"pids": 0}, {"memory": 0}, {"cpus": 0}, {"disk": 0}, {"tmpfs": [{"path": "/x", "size": 0}]}):
        error(mallory.post(PATH, fields), 400, "invalid")
    error(mallory.post(f"{PATH}/{box}/execs", {"shell": "true", "nofile": 0}), 400, "invalid")
    error(victim.get("/metrics"), 403, "denied")
    assert victim.get("/v1/info").json["counts"]["sandboxes"] == 0
    assert d.get("/metrics").status == 200 and d.get("/v1/info").json["counts"]["sandboxes"] >= 1


def agents_copies(pid):
    """Descriptors of this process for the pipes that process @pid and an agent both hold: what an attacker in the
    agent has."""
    libc = ctypes.CDLL(None, use_errno=True)
    theirs = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    for proc in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            agent = "cloche-agent" in os.readlink(proc / "exe")
            shared = [int(f.name) for f in (proc / "fd").iterdir() if agent and os.readlink(f) in theirs and "pipe:" in os.readlink(f)]
        except OSError:
            continue
        for fd in shared:
            pidfd = os.pidfd_open(int(proc.name))
            copy = libc.syscall(438, pidfd, fd, 0)  # pidfd_getfd
            os.close(pidfd)
            if copy >= 0:
                yield copy


def test_an_agent_that_makes_its_pipes_wait_does_not_make_the_daemon_wait(d, mallory, box):
    with Raw(mallory, "POST", f"{PATH}/{box}/execs", {"shell": "sleep 1; echo one; sleep 8", "timeout": 20}, {"Accept": "text/event-stream"}) as raw:
        assert raw.head()[0] == 200
        time.sleep(0.3)
        changed = 0
        for fd in agents_copies(d.children()["api"]):
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            changed += bool(flags & os.O_NONBLOCK)
            fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
            os.close(fd)
        assert changed >= 2
        time.sleep(1.5)
        assert d.get("/healthz", timeout=3).status == 200


def test_bodies_that_do_not_come_whole_take_a_bounded_part_of_the_daemons_memory(d, mallory, victim):
    size = 60 * MIB
    was, held = rss(d.children()["api"]), []
    try:
        for _ in range(10):
            s = socket.create_connection(place(d), timeout=20)
            held.append(s)
            try:
                s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
                          % (b"/v1/run", mallory.token.encode(), size) + b"x" * (size - 1))
            except OSError:  # refused before all of it was sent
                pass
        refused = 0
        for s in held:
            s.settimeout(1)
            try:
                refused += s.recv(12).endswith(b"503")
            except OSError:
                pass
        assert rss(d.children()["api"]) - was < 320 * MIB and victim.get(PATH).status == 200
        assert refused >= 4, refused
    finally:
        for s in held:
            s.close()
