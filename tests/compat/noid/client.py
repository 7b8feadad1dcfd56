"""Speaks Noid's wire, as its clients do: JSON with a bearer token, WebSockets whose binary messages name a channel."""
import base64
import hashlib
import http.client
import json
import os
import socket
import struct
import time
import urllib.parse

STDOUT, STDERR, STDIN, RESIZE = 1, 2, 3, 4
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        # Every answer carries it; a client refuses to go on with another version.
        assert headers.get_all("X-Noid-Api-Version") == ["1"], (status, headers)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The text of an error, which has nothing else around it."""
        assert self.status >= 400, self
        assert self.headers["Content-Type"] == "application/json", self
        assert list(self.json) == ["error"] and isinstance(self.json["error"], str) and self.json["error"], self
        return self.json["error"]

    def __repr__(self):
        return f"{self.status} {self.body[:1000]!r}"


class Noid:
    def __init__(self, url, token):
        self.url, self.token = urllib.parse.urlsplit(url), token

    def call(self, method, path, body=None, token="", timeout=60):
        c = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=timeout)
        head = {"Accept": "application/json"}
        if token is not None:
            head["Authorization"] = f"Bearer {token or self.token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            head["Content-Type"] = "application/json"
        try:
            c.request(method, path, body, head)
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def create(self, name, **options):
        r = self.call("POST", "/v1/vms", {"name": name, **options})
        assert r.status == 201, r
        return r.json

    def exec(self, vm, *command, **options):
        r = self.call("POST", f"/v1/vms/{vm}/exec", {"command": list(command), "tty": False, "env": [], **options})
        assert r.status == 200, r
        assert set(r.json) == {"stdout", "stderr", "exit_code", "timed_out", "truncated"}, r
        return r.json

    def spawn(self, vm, *command, **options):
        s = Socket(self, f"/v1/vms/{vm}/exec")
        s.text(json.dumps({"command": list(command), "tty": False, "env": [], **options}))
        return s

    def console(self, vm):
        return Socket(self, f"/v1/vms/{vm}/console")


class Refused(Exception):
    def __init__(self, status, head, body):
        super().__init__(f"{status} {body!r}")
        self.status, self.head, self.body = status, head, body


class Socket:
    def __init__(self, noid, path, token="", timeout=20):
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock = socket.create_connection((noid.url.hostname, noid.url.port), timeout)
        self.sock.sendall((f"GET {path} HTTP/1.1\r\nHost: {noid.url.netloc}\r\n"
                           f"Authorization: Bearer {token or noid.token}\r\n"
                           "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
                           f"Sec-WebSocket-Key: {key}\r\n\r\n").encode())
        self.file = self.sock.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.head = {}
        for line in iter(self.file.readline, b"\r\n"):
            name, _, value = line.decode().partition(":")
            self.head[name.lower()] = value.strip()
        assert self.head["x-noid-api-version"] == "1"
        if self.status != 101:
            body = self.file.read(int(self.head["content-length"]))
            self.close()
            raise Refused(self.status, self.head, body)
        want = base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        assert self.head["sec-websocket-accept"] == want
        assert "sec-websocket-extensions" not in self.head

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.sock.close()

    # --- out ---

    def frame(self, opcode, data):
        mask = os.urandom(4)
        n = len(data)
        size = struct.pack(">B", 0x80 | n) if n < 126 else struct.pack(">BH", 0xfe, n) if n < 65536 else \
            struct.pack(">BQ", 0xff, n)
        self.sock.sendall(bytes([0x80 | opcode]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def text(self, data):
        self.frame(TEXT, data.encode())

    def stdin(self, data):
        self.frame(BINARY, bytes([STDIN]) + data)

    def bye(self):
        """Closes in order, as a client that detaches."""
        self.frame(CLOSE, struct.pack(">H", 1000))
        while (f := self.next()) is not None and f[0] != CLOSE:
            pass  # who closes with something unread resets the connection, with what is still on its way
        self.close()

    # --- in ---

    def next(self):
        """(opcode, data) of the next frame; None at the end of the connection."""
        head = self.file.read(2)
        if len(head) < 2:
            return None
        assert head[0] & 0x80 and not head[0] & 0x70, "fragments and extensions were not agreed on"
        assert not head[1] & 0x80, "a server masks nothing"
        n = head[1] & 0x7f
        if n == 126:
            n = struct.unpack(">H", self.file.read(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.file.read(8))[0]
        data = self.file.read(n)
        assert len(data) == n
        return head[0] & 15, data

    def rest(self):
        """Everything to the end: what was said on each channel, the texts, the close code."""
        got = {STDOUT: b"", STDERR: b"", "texts": [], "code": None}
        while (f := self.next()) is not None:
            opcode, data = f
            if opcode == BINARY:
                assert not got["texts"], "output behind the result"
                got[data[0]] += data[1:]
            elif opcode == TEXT:
                got["texts"].append(json.loads(data))
            elif opcode == CLOSE:
                got["code"] = struct.unpack(">H", data[:2])[0]
                break
        self.close()
        return got

    def until(self, text, seconds=20):
        """Reads stdout until it holds `text`."""
        got, end = b"", time.monotonic() + seconds
        while text not in got:
            assert time.monotonic() < end, got
            try:
                f = self.next()
            except TimeoutError:
                raise AssertionError(f"no {text!r} in {got!r}") from None
            assert f is not None and f[0] != CLOSE, (f, got)
            if f[0] == BINARY and f[1][0] == STDOUT:
                got += f[1][1:]
        return got
