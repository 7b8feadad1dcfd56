"""Processes that are in the way of a memory checkpoint, on purpose or not: it is made, or refused, and they go on unharmed."""
import platform
import textwrap
import time

import pytest

import host
from api import d, nothing_is_left_behind  # noqa: F401  pylint: disable=unused-import

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="a flag of this CPU family")
C = "import ctypes, os, signal, threading, time\nlibc = ctypes.CDLL(None)\n"


@pytest.fixture
def box(d):  # noqa: F811  pylint: disable=redefined-outer-name
    made = []

    def make(script, **fields):
        b = d.create(**fields)["id"]
        made.append(b)
        cmd = {"shell": script[1:]} if script.startswith("$") else {"cmd": ["python3", "-c", C + textwrap.dedent(script)]}
        r = d.post(f"/v1/sandboxes/{b}/execs", {**cmd, "background": True})
        assert r.status == 201, r
        x = r.json["id"]
        host.wait_for(lambda: b"up" in d.get(f"/v1/sandboxes/{b}/execs/{x}/output").body, 30, "the program")
        return b, x

    yield make
    for b in made + [b["id"] for b in d.get("/v1/sandboxes").json["sandboxes"]]:
        d.delete(f"/v1/sandboxes/{b}")


def checkpoint(d, b):  # noqa: F811
    return d.post(f"/v1/sandboxes/{b}/checkpoints", {"memory": True})


def running(d, b, x):  # noqa: F811
    return d.get(f"/v1/sandboxes/{b}/execs/{x}").json["state"] == "running"


def refused(d, box, script, why):  # noqa: F811  pylint: disable=redefined-outer-name
    b, x = box(script)
    r = checkpoint(d, b)
    assert r.status == 422 and why in r.json["error"]["message"], r
    time.sleep(0.2)
    assert running(d, b, x)


def test_a_job_that_is_stopped(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    """Its children run: they are held before anything is thawed."""
    b, x = box("$sh -c 'while :; do echo x >> /tmp/n; sleep 0.01; done & kill -STOP $$; wait' & sleep 0.3; echo up; wait")
    begun = time.monotonic()
    r = checkpoint(d, b)
    assert r.status == 201 and r.json["memory"], r
    assert time.monotonic() - begun < 8 and running(d, b, x)
    n = d.post(f"/v1/checkpoints/{r.json['id']}/restore", {}).json["sandboxes"][0]["id"]
    for one in (b, n):
        assert "T" in d.exec(one, "sh", "-c", "cat /proc/[0-9]*/stat | grep '(sh)' | cut -d' ' -f3")["stdout"].split()
        before = len(d.exec(one, "cat", "/tmp/n")["stdout"])
        host.wait_for(lambda one=one, before=before: len(d.exec(one, "cat", "/tmp/n")["stdout"]) > before, 5, "the other one")


def test_a_first_thread_that_has_ended(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    refused(d, box, f"""
        threading.Thread(target=libc.pause).start()
        os.write(1, b"up")
        libc.syscall({93 if platform.machine() == "aarch64" else 60}, 0)
        """, "its first thread has ended")


def test_a_vdso_that_can_not_be_run(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    refused(d, box, """
        at, end = [int(n, 16) for n in [l for l in open("/proc/self/maps") if "[vdso]" in l][0].split()[0].split("-")]
        if libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(end - at), 1) == 0:
            libc.write(1, b"up", 2)
        libc.pause()
        """, "vdso")


@pytest.mark.parametrize("call, why", [("65, 1", "MDWE"), ("53, 0, 4", "SPECULATION")])
def test_what_a_process_has_taken_from_itself(d, box, call, why):  # noqa: F811  pylint: disable=redefined-outer-name
    """It would have it back in a clone."""
    b = d.create()["id"]
    can = d.exec(b, "python3", "-c", f"import ctypes; print(ctypes.CDLL(None).prctl({call}, 0, 0, 0))")["stdout"].strip() == "0"
    d.delete(f"/v1/sandboxes/{b}")
    if not can:
        pytest.skip("this kernel or CPU does not have it")
    refused(d, box, f"""
        libc.prctl({call}, 0, 0, 0)
        os.write(1, b"up")
        libc.pause()
        """, why)


@x86
def test_a_process_that_steps_through_itself(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    """In the handler of its traps it can be carried."""
    b, x = box("""
        import mmap
        m = mmap.mmap(-1, 4096, prot=7)
        m.write(bytes.fromhex("9c810c2400010000") + bytes.fromhex("9d") + b"\\x90" * 200 + bytes.fromhex("e92affffff"))
        signal.signal(signal.SIGTRAP, lambda *_: None)
        os.write(1, b"up")
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
        """)
    for _ in range(8):
        r = checkpoint(d, b)
        assert r.status == 201 and r.json["memory"] or r.status == 422 and "single-steps" in r.json["error"]["message"], r
        assert running(d, b, x)


def test_a_big_heap_costs_its_sandbox_nothing(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    b, x = box("""
        heap = os.urandom(1 << 20) * 200
        os.write(1, b"up")
        libc.pause()
        """, memory="288M")
    r = checkpoint(d, b)
    assert r.status == 201 and r.json["memory_size"] > 200 << 20, r
    stats = d.get(f"/v1/sandboxes/{b}/stats").json
    assert running(d, b, x) and not stats["oom_kills"] and stats["memory_peak"] < 260 << 20, stats


def test_a_heap_that_is_written_to_meanwhile(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    """Twice of it is more than there is: then it is not there twice."""
    b, x = box("""
        import threading
        heap = bytearray(os.urandom(1 << 20)) * 200
        def write():
            while True:
                for i in range(0, len(heap), 4096): heap[i] = (heap[i] + 1) % 256
        threading.Thread(target=write, daemon=True).start()
        os.write(1, b"up")
        libc.pause()
        """, memory="340M")
    r = checkpoint(d, b)
    assert r.status == 201 and r.json["memory_size"] > 200 << 20, r
    assert running(d, b, x) and not d.get(f"/v1/sandboxes/{b}/stats").json["oom_kills"]


FAMILY = """
        heap = os.urandom(1 << 20) * 60
        for i in range(5):
            if not os.fork():
                libc.pause()
        os.write(1, b"up")
        libc.pause()
        """


def test_what_processes_share_since_a_fork_stays_shared(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    b, x = box(FAMILY, memory="480M")
    r = checkpoint(d, b)
    assert r.status == 201 and r.json["memory"], r
    stats = d.get(f"/v1/sandboxes/{b}/stats").json
    assert running(d, b, x) and not stats["oom_kills"] and stats["memory_peak"] < 100 << 20, stats


def test_what_would_not_fit_into_its_limit_again_is_refused(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    b, x = box(FAMILY, memory="160M")
    r = checkpoint(d, b)
    assert r.status == 422 and "MiB of memory when they are restored, but the limit is 160 MiB" in r.json["error"]["message"], r
    stats = d.get(f"/v1/sandboxes/{b}/stats").json
    assert running(d, b, x) and not stats["oom_kills"] and stats["memory_peak"] < 100 << 20, stats


def test_more_mappings_than_could_be_made_again(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    refused(d, box, """
        import mmap
        m = mmap.mmap(-1, 60000 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        at = ctypes.addressof(ctypes.c_char.from_buffer(m))
        for i in range(0, 60000, 2):
            libc.mprotect(ctypes.c_void_p(at + i * 4096), ctypes.c_size_t(4096), 1)
        os.write(1, b"up")
        libc.pause()
        """, "too many mappings")


def test_an_epoll_with_many_descriptors(d, box):  # noqa: F811  pylint: disable=redefined-outer-name
    b, x = box("""
        import select
        e = select.epoll()
        fds = [os.eventfd(0) for _ in range(900)]
        for f in fds:
            e.register(f, select.EPOLLIN)
        os.write(1, b"up")
        libc.pause()
        """)
    r = checkpoint(d, b)
    assert r.status == 201 and r.json["memory"] and r.json["pause_ms"] < 10000, r  # minutes, if each were compared with each
    assert running(d, b, x)
