"""A real `cloche serve` for the tests: started, spoken to, stopped, killed.

    with Daemon(tmp_path / "data") as d:
        d.post("/v1/sandboxes", {"name": "a"})
        d.cli("ls")
"""
import http.client
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

import host

STARTED = re.compile(r"^cloche \S+ serving on (\S+).* \(data (.*)\)$")


class Answer:
    def __init__(self, status, headers, body, reason=""):
        self.status, self.headers, self.body, self.reason = status, headers, body, reason

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:1000]!r}"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """`args` go to `cloche serve` behind --data, --listen and --token-file."""

    def __init__(self, data=None, *args, env=None, listen="127.0.0.1:0"):
        # The API process is another user: it needs a way into the folder, which pytest's own does not give.
        self.own = None if data else tempfile.mkdtemp(prefix="cloche-test-", dir="/var/tmp")
        if self.own:
            os.chmod(self.own, 0o755)
        self.data = pathlib.Path(data or self.own + "/data")
        self.args, self.env, self.listen = list(map(str, args)), env, listen
        self.token_file = self.data.parent / (self.data.name + ".token")
        self.process = self.url = self.token = None
        self.before = []  # a command that becomes `cloche serve`
        self.log = []

    # --- its life ---

    def start(self, seconds=20):
        command = [*map(str, self.before), str(host.CLOCHE), "serve", "--data", str(self.data), "--listen", self.listen,
                   "--token-file", str(self.token_file), *self.args]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **(self.env or {})})
        lines = queue.Queue()
        for stream, to in ((self.process.stdout, lines.put), (self.process.stderr, lambda _: None)):
            threading.Thread(target=self._collect, args=(stream, to), daemon=True).start()
        end = time.monotonic() + seconds
        while True:
            try:
                found = STARTED.match(lines.get(timeout=0.05))
            except queue.Empty:
                found = None
            if found:
                break
            assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}:\n{self.output}"
            assert time.monotonic() < end, f"the daemon did not start:\n{self.output}"
        self.url = found.group(1)
        # Its port stays, so that clients find it again after a restart.
        self.listen = urllib.parse.urlsplit(self.url).netloc or self.listen
        self.token = self.token_file.read_text().strip()
        # It serves without waiting for egress, which has no name of its own before it has become a program.
        while "egress" not in self.children() and time.monotonic() < end:
            time.sleep(0.005)
        self._note_state()
        return self

    states = set()  # the wardens' folders of all daemons of these tests

    def _note_state(self):
        words = pathlib.Path(f"/proc/{self.children()['warden']}/cmdline").read_bytes().split(b"\0")
        if b"--state" in words:
            Daemon.states.add(words[words.index(b"--state") + 1].decode().rstrip("/"))

    @staticmethod
    def ours(left):
        """Without the folders of daemons that others on this machine have meanwhile."""
        return {x for x in left if not x.startswith("file /run/cloche/w-") or x[5:] in Daemon.states}

    def _collect(self, stream, to):
        with stream:
            for line in iter(stream.readline, b""):
                line = line.decode(errors="replace").rstrip("\n")
                self.log.append(line)
                to(line)

    @property
    def output(self):
        return "\n".join(self.log[-50:])

    @property
    def pid(self):
        return self.process.pid

    def children(self):
        """{"warden": pid, "egress": pid, "api": pid}, as far as they are there."""
        found = {}
        for pid in host.children(self.pid):
            try:
                name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue
            if name.startswith("cloche-warden"):
                found["warden"] = pid
            elif name.startswith("cloche-egress"):
                found["egress"] = pid
            elif name.startswith("cloche"):
                found["api"] = pid
        return found

    def layers(self):
        """Names of what is in the store, but for its lock and what lies ready for the next layer."""
        return {p.name for p in (pathlib.Path(self.data) / "layers").iterdir() if p.name != "lock" and not p.name.startswith("ready-")}

    def kill9(self, which="api"):
        """One of api, warden, egress, supervisor, all."""
        parts = {**self.children(), "supervisor": self.pid}
        for name in parts if which == "all" else [which]:
            os.kill(parts[name], signal.SIGKILL)
        if which in ("all", "supervisor"):
            self.process.wait(10)

    def stop(self, number=signal.SIGTERM, seconds=40):
        """Ends it in order. Sandboxes go on, unless it was started with --stop-sandboxes."""
        if not self.process or self.process.poll() is not None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill9("all")
            raise AssertionError(f"the daemon did not stop within {seconds} s:\n{self.output}") from None

    def restart(self):
        self.stop()
        return self.start()

    def done(self):
        """No sandbox, no process and no file of it is left."""
        try:
            if self.process and self.process.poll() is None and self.url:
                for pool in self.get("/v1/pools?tenant=*").json.get("pools", []):
                    self.delete(f"/v1/pools/{pool['name']}?tenant={pool['tenant']}")
                for box in self.get("/v1/sandboxes?limit=1000&tenant=*").json.get("sandboxes", []):
                    self.delete(f"/v1/sandboxes/{box['id']}")
            self.stop()
        finally:
            if self.process and self.process.poll() is None:
                self.kill9("all")
            if self.own:
                shutil.rmtree(self.own, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.done()
            raise

    def __exit__(self, *_):
        self.done()

    # --- talking to it ---

    def request(self, method, path, body=None, token="", headers=None, timeout=60, unix=False):
        """`body`: bytes as they are, anything else as JSON. `token`: None for none, "" for the admin's."""
        place = urllib.parse.urlsplit(self.url)
        if unix:
            c = UnixConnection(str(self.data / "cloche.sock"), timeout)
        elif place.scheme == "https":  # its certificate is for the client under test to judge
            c = http.client.HTTPSConnection(place.hostname, place.port, timeout=timeout, context=ssl._create_unverified_context())
        else:
            c = http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)
        head = dict(headers or {})
        if token is not None and not unix:
            head.setdefault("Authorization", f"Bearer {token or self.token}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            head.setdefault("Content-Type", "application/json")
        try:
            c.request(method, path, body, head)
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read(), r.reason)
        finally:
            c.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body=None, **kw):
        return self.request("POST", path, {} if body is None else body, **kw)

    def put(self, path, body=None, **kw):
        return self.request("PUT", path, {} if body is None else body, **kw)

    def delete(self, path, **kw):
        return self.request("DELETE", path, **kw)

    def create(self, **fields):
        r = self.post("/v1/sandboxes", fields)
        assert r.status in (200, 201), r
        return r.json

    def exec(self, box, *cmd, **fields):
        r = self.post(f"/v1/sandboxes/{box}/execs", {"cmd": list(cmd), **fields})
        assert r.status == 200, r
        return r.json

    def environment(self):
        """What `cloche` needs to find it."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLOCHE_U", "CLOCHE_T", "XDG_"))}
        return {**kept, "CLOCHE_URL": self.url, "CLOCHE_TOKEN": self.token, "HOME": str(self.data.parent)}

    def cli(self, *args, input=None, timeout=60, env=None, **kw):
        """cloche ARGS as a client of this daemon."""
        start = time.monotonic()
        if input is None and "stdin" not in kw:
            kw["stdin"] = subprocess.DEVNULL
        elif input is not None:
            kw["input"] = input
        p = subprocess.run([str(host.CLOCHE), *map(str, args)], stdout=kw.pop("stdout", subprocess.PIPE),
                           stderr=kw.pop("stderr", subprocess.PIPE), timeout=timeout, env={**self.environment(), **(env or {})}, **kw)
        return host.Result(args, p.returncode, p.stdout, p.stderr, time.monotonic() - start)
