"""What the tests of the API share: a daemon per module, a WebSocket client, server-sent events, other tenants."""
import base64
import hashlib
import json
import os
import pathlib
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse

import pytest

import host
from daemon import Daemon

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import reasons  # noqa: E402 pylint: disable=wrong-import-position

REASONS = {r.word: r for r in reasons.read()}
HASH = re.compile(r"^\d+:[0-9a-f]{64}$")


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind():
    """Instead of after each test: the daemon, and what it keeps ready, stays for all tests of a module that imports this."""
    watch = host.Watch()
    yield
    # The folders of other daemons on this machine come and go; test_serve_start.py looks after our own.
    left = {x for x in watch.left() if not x.startswith(("file /run/cloche/w-", "file /var/tmp/cloche-test-world-"))}
    assert not left, "left behind:\n" + "\n".join(sorted(left))


@pytest.fixture(scope="module")
def d(nothing_is_left_behind):  # pylint: disable=redefined-outer-name,unused-argument
    with Daemon() as one:
        yield one


def error(answer, status, code):
    """Checks the shape of an error, gives it."""
    assert answer.status == status, answer
    assert set(answer.json) == {"error"}, answer
    e = answer.json["error"]
    assert set(e) == {"code", "reason", "message", "cause", "remedy", "request_id"}, answer
    assert e["code"] == code and e["message"], answer
    assert REASONS[e["reason"]].status == status, answer
    assert e["request_id"] == answer.headers["X-Request-Id"], answer
    return e


class As:
    """The same daemon, seen by another token."""

    def __init__(self, d, token):
        self.d, self.token = d, token

    def request(self, method, path, body=None, **kw):
        return self.d.request(method, path, body, token=self.token, **kw)

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
        assert r.status == 201, r
        return r.json


def tenant(d, name, **fields):
    r = d.post("/v1/tenants", {"id": name, **fields})
    assert r.status == 201, r
    return r.json


def token(d, **fields):
    r = d.post("/v1/tokens", fields)
    assert r.status == 201, r
    return r.json


def as_tenant(d, name, scope="sandbox", **fields):
    """A new tenant with one token."""
    tenant(d, name, **fields)
    return As(d, token(d, tenant=name, scope=scope)["token"])


def place(d):
    p = urllib.parse.urlsplit(d.url)
    return p.hostname, p.port


def rss(pid):
    """Resident memory in bytes."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) * 1024


def cpu(pid):
    """Seconds of the processor that it has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Raw:
    """A connection on which a request was sent and whose answer is read by hand, or not at all."""

    def __init__(self, d, method, path, body=None, headers=None, timeout=30):
        self.s = socket.create_connection(place(d), timeout=timeout)
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = {"Host": "x", "Authorization": f"Bearer {d.token}", "Content-Length": str(len(data)), **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in head.items() if v is not None), "", ""]
        self.s.sendall("\r\n".join(lines).encode() + data)
        self.f = self.s.makefile("rb")

    def head(self):
        status = int(self.f.readline().split()[1])
        headers = {}
        while (line := self.f.readline().strip()):
            k, v = line.decode().split(":", 1)
            headers[k.lower()] = v.strip()
        return status, headers

    def chunks(self):
        while (n := int(self.f.readline(), 16)):
            yield self.f.read(n)
            self.f.readline()

    def close(self):
        self.f.close()
        self.s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def events(d, path, body=None, method="POST", headers=None):
    """Yields (event, data) of a stream of server-sent events."""
    with Raw(d, method, path, body, {"Accept": "text/event-stream", **(headers or {})}) as raw:
        status, head = raw.head()
        assert status == 200 and head["content-type"].startswith("text/event-stream"), (status, head)
        text = b""
        for piece in raw.chunks():
            text += piece
            while b"\n\n" in text:
                one, text = text.split(b"\n\n", 1)
                fields = dict(line.split(b": ", 1) for line in one.split(b"\n") if line and not line.startswith(b":"))
                if fields:
                    yield fields[b"event"].decode(), json.loads(fields[b"data"])


class WebSocket:
    """Just enough of RFC 6455 for a client."""

    def __init__(self, d, path, timeout=30):
        key = base64.b64encode(os.urandom(16)).decode()
        self.raw = Raw(d, "GET", path, None, {"Content-Length": None, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                                              "Sec-WebSocket-Key": key}, timeout)
        self.status, self.headers = self.raw.head()
        if self.status == 101:
            want = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            assert self.headers["sec-websocket-accept"] == want
        self.closed = None

    def send(self, data):
        kind = 1 if isinstance(data, str) else 2
        self.frame(kind, data.encode() if isinstance(data, str) else data)

    def frame(self, kind, data):
        n, mask = len(data), os.urandom(4)
        size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
        masked = bytes(b ^ mask[i & 3] for i, b in enumerate(data)) if n < 65536 else self._mask(data, mask)
        self.raw.s.sendall(bytes([0x80 | kind]) + size + mask + masked)

    @staticmethod
    def _mask(data, mask):
        whole = int.from_bytes((mask * (len(data) // 4 + 1))[:len(data)], "big")
        return (int.from_bytes(data, "big") ^ whole).to_bytes(len(data), "big")

    def receive(self):
        """A text as a dict, bytes as they are; None when it was closed, with the code in `closed`."""
        while True:
            first, size = self.raw.f.read(2)
            n = size & 127
            if n == 126:
                n, = struct.unpack(">H", self.raw.f.read(2))
            elif n == 127:
                n, = struct.unpack(">Q", self.raw.f.read(8))
            data, kind = self.raw.f.read(n), first & 15
            assert first & 0x80, "no fragments are sent"
            if kind == 9:
                self.frame(10, data)
            elif kind == 8:
                self.closed = struct.unpack(">H", data[:2])[0]
                return None
            elif kind == 1:
                return json.loads(data)
            elif kind == 2:
                return data

    def until(self, condition):
        """(stdout, stderr, texts) until `condition(out, err, texts)` or the end."""
        out, err, texts, end = b"", b"", [], time.monotonic() + 20
        while not condition(out, err, texts):
            assert time.monotonic() < end, (out[-1000:], err[-1000:], texts)  # pings would keep us here for ever
            m = self.receive()
            if m is None:
                break
            if isinstance(m, dict):
                texts.append(m)
            elif m[0] == 1:
                out += m[1:]
            else:
                assert m[0] == 2
                err += m[1:]
        return out, err, texts

    def all(self):
        return self.until(lambda *_: False)

    def close(self):
        self.raw.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def parallel(n, fn):
    """fn(0) … fn(n-1) at once; their values in order."""
    values, start = [None] * n, threading.Barrier(n)

    def one(i):
        start.wait()
        try:
            values[i] = fn(i)
        except Exception as e:  # pylint: disable=broad-except
            values[i] = e

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for v in values:
        if isinstance(v, Exception):
            raise v
    return values


def agent_of(d, box):
    """The first process of a sandbox, whatever its parent is by now."""
    mark = f"{30000 + int.from_bytes(os.urandom(4), 'big')}"
    r = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["sleep", mark], "background": True})
    assert r.status in (200, 201, 202), r

    def parent():
        for p in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (p / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode():
                    return int((p / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
        return None

    return eventually(parent, 60)


def eventually(fn, seconds=10):
    end = time.monotonic() + seconds
    while True:
        v = fn()
        if v:
            return v
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.05)
