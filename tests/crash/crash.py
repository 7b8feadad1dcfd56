"""A daemon whose processes die, and what can be said of it afterwards."""
import hashlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

import host
from daemon import Daemon

ADAPTER = pathlib.Path(__file__).resolve().parent / "adapter.py"
SHARED = pathlib.Path(os.environ.get("CLOCHE_PROBES") or host.ROOT.parent / "shared/security")
PARTS = ["api", "warden", "supervisor", "all"]


def end_agent(pid):
    """Kills it. It is dead when all in its sandbox are, which takes a moment on a busy machine."""
    with os.fdopen(os.pidfd_open(pid), "rb") as pidfd:
        os.kill(pid, signal.SIGKILL)
        assert select.select([pidfd], [], [], 30)[0]


class Crashing(Daemon):
    def crash(self, which):
        """kill -9 (or "term": an orderly restart), and the daemon is there again."""
        if which == "term":
            self.restart()
            return
        before = host.wait_for(lambda: len(self.children()) == 3 and self.children(), 10, "all children")
        self.kill9(which)
        if which in ("supervisor", "all"):
            for pid in before.values():
                host.wait_for(lambda p=pid: not running(p), 5, f"the end of {pid}")
            self.start()
            return
        host.wait_for(lambda: self.children().get(which) not in (None, before[which]), 10, f"a new {which}")
        assert self.get("/healthz", timeout=10).status == 200

    def state_folder(self):
        """Where the warden keeps its records: its own argument says."""
        args = pathlib.Path(f"/proc/{self.children()['warden']}/cmdline").read_bytes().decode().split("\0")
        return pathlib.Path(args[args.index("--state") + 1])

    def background(self, box, script, **fields):
        r = self.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sh", "-c", script], "background": True, **fields})
        assert r.status == 201, r
        return r.json["id"]

    def sh(self, box, script, **fields):
        return self.exec(box, "sh", "-c", script, **fields)

    def output_of(self, box, x, stream="stdout"):
        r = self.get(f"/v1/sandboxes/{box}/execs/{x}/output?stream={stream}")
        assert r.status == 200, r
        return r.body

    def end_of(self, box, x, seconds=30):
        r = self.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout={seconds}", timeout=seconds + 10)
        assert r.status == 200 and r.json["state"] == "ended", (r, self.output)
        return r.json

    def records(self):
        lines = (self.data / "audit.log").read_bytes().split(b"\n")
        assert lines[-1] == b"", "a record that is cut"
        return [(json.loads(line), line) for line in lines[:-1]]

    def verify(self):
        """Every record in its place, none changed, none missing."""
        prev, seq = "0" * 64, 0
        for record, line in self.records():
            text, _, _ = line.rpartition(b',"hash":"')
            assert record["seq"] == seq + 1 and record["prev"] == prev, record
            assert hashlib.sha256(text).hexdigest() == record["hash"], record
            prev, seq = record["hash"], record["seq"]

    def requests(self):
        """How often each request id was noted."""
        count = {}
        for record, _ in self.records():
            if record.get("request_id"):
                count[record["request_id"]] = count.get(record["request_id"], 0) + 1
        return count

    def states(self):
        found, cursor = {}, ""
        while cursor is not None:
            page = self.get("/v1/sandboxes?limit=1000&tenant=*" + (f"&cursor={cursor}" if cursor else "")).json
            found.update({b["id"]: b["state"] for b in page["sandboxes"]})
            cursor = page["next"]
        return found


def running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class ByCommands:
    """The same daemon, for probes that are programs: see adapter.py."""

    def __init__(self, folder, target="supervisor"):
        self.folder = folder
        os.chmod(folder, 0o755)
        self.env = {**os.environ, "ADAPTER": str(ADAPTER), "CRASH_DIR": str(folder), "CRASH_TARGET": target,
                    "CLOCHE_BUILD": str(host.BUILD)}

    def __call__(self, *args, timeout=60):
        return subprocess.run([str(ADAPTER), *args], env=self.env, capture_output=True, timeout=timeout, check=False)

    def run(self, script, *args, timeout=280, **env):
        r = subprocess.run([sys.executable, str(script), *args], env={**self.env, **env}, capture_output=True, timeout=timeout,
                           check=False)
        return r.returncode, r.stdout.decode(errors="replace") + r.stderr.decode(errors="replace")

    def done(self):
        self("start")
        for box in self("ls").stdout.decode().split():
            self("rm", box, "end")
        pid = int((self.folder / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + 20
        while running(pid) and time.monotonic() < end:
            time.sleep(0.02)
