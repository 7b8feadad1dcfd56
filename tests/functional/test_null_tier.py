"""Isolation "null", which is no isolation: only in a build with -Dnull_tier=true, which is made here.

It is the proof that a tier is one folder and one entry of an array (CONTRIBUTING.md), and it measures the daemon alone.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import pytest

import host
from api import error, nothing_is_left_behind  # noqa: F401
from daemon import Daemon

pytestmark = pytest.mark.usefixtures("build")
NULL = {"isolation": "null"}
NOTHING = "nothing is enforced: no isolation and no limits; commands run on the host as user 65534"


def option(name):
    """As the build under test has it, so that the same objects come out of the compiler's cache."""
    p = subprocess.run(["meson", "introspect", "--buildoptions", host.BUILD], stdout=subprocess.PIPE, check=True)
    return next(x["value"] for x in json.loads(p.stdout) if x["name"] == name)


@pytest.fixture(scope="session")
def build():
    """The folder of the two programs that know the tiers, with the null tier. Before all that looks for leftovers."""
    folder = host.ROOT / "build-null"
    folder.mkdir(exist_ok=True)
    with open(folder / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "build.ninja").exists():
            subprocess.run(["meson", "setup", folder, host.ROOT, "-Dnull_tier=true", f"-Dwerror={str(option('werror')).lower()}"],
                           stdout=subprocess.DEVNULL, check=True)
        subprocess.run(["ninja", "-C", folder, "--quiet", "cloche-serve", "cloche-warden"], check=True)
    return folder


@pytest.fixture(scope="module")
def d(build, nothing_is_left_behind):  # noqa: F811 pylint: disable=redefined-outer-name,unused-argument
    with tempfile.TemporaryDirectory(prefix="cloche-null-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        for program in host.BUILD.glob("cloche*"):
            if program.is_file():
                shutil.copy2(build / program.name if program.name in ("cloche-serve", "cloche-warden") else program, folder)
        with pytest.MonkeyPatch.context() as m:
            m.setattr(host, "CLOCHE", pathlib.Path(folder) / "cloche")
            with Daemon() as one:
                yield one


@pytest.fixture
def box(d):  # pylint: disable=redefined-outer-name
    a = d.post("/v1/sandboxes", {"name": "bare", **NULL})
    assert a.status == 201, a
    yield "bare"
    assert d.delete("/v1/sandboxes/bare").status == 204


def sh(d, text, **fields):  # pylint: disable=redefined-outer-name
    a = d.post("/v1/sandboxes/bare/execs", {"shell": text, **fields})
    assert a.status == 200, a
    return a.json


def ours():
    """Processes of the host that only a test of this file starts."""
    found = subprocess.run(["pgrep", "-f", "sleep 98765"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return found.split()


def none_in(seconds):
    end = time.monotonic() + seconds
    while ours() and time.monotonic() < end:
        time.sleep(0.01)
    return not ours()


def test_a_build_without_it_knows_no_such_isolation():
    with Daemon() as plain:
        e = error(plain.post("/v1/sandboxes", {"name": "a", **NULL}), 400, "invalid")
        assert e["message"] == "unknown isolation 'null'" and e["remedy"] == "use isolation container or vm", e
        assert "null" not in plain.get("/v1/info").json["isolation"]
    p = subprocess.run([host.CLOCHE, "run", "--isolation", "null", "--", "true"], capture_output=True, text=True, check=False)
    assert p.returncode == 125 and "unknown isolation 'null'" in p.stderr, p


def test_the_receipt_says_that_nothing_is_enforced_and_claims_nothing_else(d, box):
    assert "null" in d.get("/v1/info").json["isolation"]
    one = d.get(f"/v1/sandboxes/{box}").json
    assert one["isolation"] == "null"
    assert one["enforced"] == {"isolation": "null", "nothing": NOTHING}
    assert any("isolation 'null', which isolates nothing" in line for line in d.log)


def test_an_exec_runs_through_the_daemon(d, box):
    done = sh(d, 'echo "$WORD"; id -u; cat; echo no >&2; exit 3', env={"WORD": "yes"}, stdin="from stdin\n")
    assert (done["exit_code"], done["verdict"]["cause"]) == (3, "exited")
    assert (done["stdout"], done["stderr"]) == ("yes\n65534\nfrom stdin\n", "no\n")
    assert done["usage"]["memory_peak"] > 0
    # It is the host that it runs on, and its own files and names are what the host has.
    assert sh(d, "cat /proc/sys/kernel/hostname")["stdout"] == pathlib.Path("/proc/sys/kernel/hostname").read_text()
    # More than one piece of a socket, both ways.
    assert len(sh(d, "wc -c <<X\n" + "x" * 100000 + "\nX")["stdout"]) > 1
    assert len(sh(d, "head -c 300000 /dev/zero | tr '\\0' y")["stdout"]) == 300000
    assert d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["no-such-program"]}).status == 422
    assert sh(d, "kill -9 $$")["verdict"]["cause"] == "signaled"


def test_a_command_ends_by_its_timeout_with_its_session(d, box):
    done = sh(d, "sleep 98765 & sleep 98765", timeout="0.5s")
    assert done["verdict"]["cause"] == "timeout"
    assert none_in(5)
    a = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sleep", "98765"], "background": True})
    where = f"/v1/sandboxes/{box}/execs/{a.json['id']}"
    assert d.post(where + "/signal", {"signal": "TERM"}).status in (200, 204)
    assert none_in(5)


def test_many_at_once_have_their_own_output(d, box):
    ids = [d.post(f"/v1/sandboxes/{box}/execs", {"shell": f"sleep 0.2; echo {n}", "background": True}).json["id"] for n in range(40)]
    end = time.monotonic() + 20
    for n, x in enumerate(ids):
        while (one := d.get(f"/v1/sandboxes/{box}/execs/{x}").json)["state"] != "ended":
            assert time.monotonic() < end, one
            time.sleep(0.02)
        assert one["stdout"] == f"{n}\n", one


@pytest.mark.parametrize("fields, what", [
    ({"network": {"mode": "open"}}, "a network policy"),
    ({"read_only": True}, "read_only"),
    ({"storage": "disk"}, "storage 'disk'"),
    ({"tmpfs": [{"path": "/x", "size": "1M"}]}, "tmpfs"),
])
def test_what_it_cannot_do_is_refused_at_the_create(d, fields, what):
    e = error(d.post("/v1/sandboxes", {"name": "no", **NULL, **fields}), 501, "unsupported")
    assert what in e["message"], e
    assert d.get("/v1/sandboxes/no").status == 404


def test_what_it_cannot_do_is_refused_later_and_the_sandbox_goes_on(d, box):
    where = f"/v1/sandboxes/{box}"
    for answer, what in (
            (d.post(where + "/pause"), "pausing"),
            (d.post(where + "/checkpoints", {"name": "c"}), "checkpoints"),
            (d.post(where + "/fork", {"count": 1}), "checkpoints"),
            (d.request("PATCH", where, {"memory": "1G"}), "changing the limits of a sandbox"),
            (d.get(where + "/files?path=/etc/passwd"), "file operations"),
            (d.put(where + "/network", {"mode": "open"}), "networks and ports")):
        assert error(answer, 501, "unsupported")["message"] == f"isolation 'null' does not support {what}"
    assert d.post(where + "/execs", {"cmd": ["true"], "tty": True}).status >= 400
    assert sh(d, "echo there")["stdout"] == "there\n"


def test_all_that_it_started_ends_with_it_also_what_has_left_its_session(d):
    assert d.post("/v1/sandboxes", {"name": "bare", **NULL}).status == 201
    sh(d, "setsid sleep 98765 > /dev/null 2>&1 < /dev/null & setsid -f sleep 98765 > /dev/null 2>&1 < /dev/null")
    assert len(ours()) == 2
    assert d.delete("/v1/sandboxes/bare").status == 204
    assert not ours()


def test_it_ends_with_the_warden_and_is_lost(d):
    assert d.post("/v1/sandboxes", {"name": "bare", **NULL}).status == 201
    sh(d, "setsid -f sleep 98765 > /dev/null 2>&1 < /dev/null")
    assert len(ours()) == 1
    d.kill9("warden")
    assert none_in(5)
    end = time.monotonic() + 20
    while d.get("/v1/sandboxes/bare").json["state"] != "lost":
        assert time.monotonic() < end, d.output
        time.sleep(0.05)
    assert d.delete("/v1/sandboxes/bare").status == 204
    assert d.post("/v1/sandboxes", {"name": "bare", **NULL}).status == 201
    assert sh(d, "echo again")["stdout"] == "again\n"
    assert d.delete("/v1/sandboxes/bare").status == 204
