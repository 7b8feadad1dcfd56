"""Runs inside a sandbox, for test_net.py: the ways that hostile code would try. Only the standard library.

Each function gives what came of it as text or a list of texts, never an exception: `refused …`, `reset`, `closed`, or
what was answered.
"""
import json
import socket
import ssl
import struct
import sys
import time

GATE = "198.18.0.1"
PROXY, SOCKS = (GATE, 3128), (GATE, 1080)
SECONDS = 20  # for what answers, on a busy machine
AT_ONCE = 10  # what is dropped silently takes longer than this; what is refused, thousandths of it


def said(e):
    if isinstance(e, socket.gaierror):
        return "no such name"
    if isinstance(e, ConnectionRefusedError):
        return "refused"
    if isinstance(e, (ConnectionResetError, BrokenPipeError)):
        return "reset"
    if isinstance(e, TimeoutError):
        return "nothing for long"
    return f"refused {type(e).__name__} {e}"


def attempt(fn, *args):
    start = time.monotonic()
    try:
        got = fn(*args)
    except (OSError, ValueError) as e:
        got = said(e)
    took = time.monotonic() - start
    return f"{got} after {took:.1f} s" if took > AT_ONCE and fn.__name__ != "patient" else got


def read_all(s, limit=65536):
    """Reads up to the end; an abrupt one is reported after the bytes before it."""
    got = b""
    try:
        while len(got) < limit:
            piece = s.recv(65536)
            if not piece:
                return got.decode("latin-1")
            got += piece
    except OSError as e:
        return got.decode("latin-1") + f"[{said(e)}]"
    return got.decode("latin-1")


def dial(host, port):
    return socket.create_connection((host, port), SECONDS)


def talk(host, port, data, end=True):
    """Sends bytes, gives all that comes back."""
    def go():
        with dial(host, port) as s:
            s.sendall(data.encode("latin-1"))
            if end:
                s.shutdown(socket.SHUT_WR)
            return read_all(s)
    return attempt(go)


def follow(host, port, data, word, path):
    """As talk(); makes a file when the word has come."""
    def go():
        with dial(host, port) as s:
            s.settimeout(60)
            s.sendall(data.encode("latin-1"))
            got = b""
            while word.encode() not in got and (piece := s.recv(1)):
                got += piece
            with open(path, "w", encoding="ascii"):
                pass
            return got.decode("latin-1") + read_all(s)
    go.__name__ = "patient"
    return attempt(go)


def knock(host, port):
    """A connection and one byte there and back: what a port that can be reached does."""
    def go():
        with dial(host, port) as s:
            s.sendall(b"x")
            return "came back" if s.recv(1) == b"x" else "closed"
    return attempt(go)


def proxied(target, data="x", host=None):
    """CONNECT, then bytes: what the proxy said, and what came through it."""
    def go():
        with dial(*PROXY) as s:
            s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {host or target}\r\n\r\n".encode("latin-1"))
            head = b""
            while b"\r\n\r\n" not in head and (piece := s.recv(1)):
                head += piece
            if b" 200 " not in head[:20]:
                return head.split(b"\r\n")[0].decode("latin-1") or "closed"
            s.sendall(data.encode("latin-1"))
            s.shutdown(socket.SHUT_WR)
            return "through: " + read_all(s)
    return attempt(go)


def socks(kind, address, port, data="x"):
    """`kind`: 1 IPv4, 3 a name, 4 IPv6. `address`: a name as text, or the address in hex."""
    def go():
        raw = address.encode("latin-1") if kind == 3 else bytes.fromhex(address)
        with dial(*SOCKS) as s:
            s.sendall(b"\5\1\0")
            if s.recv(2) != b"\5\0":
                return "refused at the greeting"
            s.sendall(bytes([5, 1, 0, kind]) + (bytes([len(raw)]) if kind == 3 else b"") + raw + struct.pack(">H", port))
            head = s.recv(4)
            if len(head) < 2 or head[1] != 0:
                return f"refused with {head[1] if len(head) > 1 else 'nothing'}"
            s.recv({1: 6, 4: 18}.get(head[3], 6))
            s.sendall(data.encode("latin-1"))
            s.shutdown(socket.SHUT_WR)
            return "through: " + read_all(s)
    return attempt(go)


def tls(host, port, name, ca="/tmp/ca.pem", request="GET /hello HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"):
    """`name`: what is said to be wanted; None says nothing."""
    def go():
        context = ssl.create_default_context(cafile=ca)
        if name is None:
            context.check_hostname = False
        with dial(host, port) as raw, context.wrap_socket(raw, server_hostname=name) as s:
            s.sendall(request.format(name or host).encode())
            return read_all(s)
    return attempt(go)


def question(labels, kind, extra=b"", count=1):
    """`labels`: a name, or a list of labels with whatever bytes."""
    parts = labels.split(".") if isinstance(labels, str) else labels
    name = b"".join(bytes([len(x)]) + x.encode("latin-1") for x in parts) + b"\0"
    return struct.pack(">HHHHHH", 99, 0x0100, count, 0, 0, 0) + (name + struct.pack(">HH", kind, 1)) * count + extra


def ask(labels, kind, tcp=False, server=GATE, **kw):
    """[response code, number of answers, the addresses], or what went wrong."""
    def go():
        data = question(labels, kind, **kw)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
            s.settimeout(SECONDS)
            s.connect((server, 53))
            s.sendall(struct.pack(">H", len(data)) + data if tcp else data)
            r = s.recv(4096)[2 if tcp else 0:]
        return [r[3] & 15, struct.unpack(">H", r[6:8])[0]] if len(r) >= 12 else "closed"
    return attempt(go)


def lookup(name):
    def go():
        return sorted({x[4][0] for x in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})
    return attempt(go)


def udp(host, port, seconds=SECONDS):
    """How soon a datagram is refused."""
    start = time.monotonic()
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(seconds)
        try:
            s.connect((host, port))
            s.send(b"\xc0" + b"\0" * 1199)
            s.recv(1)
            return "answered"
        except OSError as e:
            return "late" if time.monotonic() - start > AT_ONCE else said(e)


def made(family, kind, proto=0):
    try:
        socket.socket(family, kind, proto).close()
        return "made"
    except OSError as e:
        return f"refused {e.errno}"


def option(level, name, value):
    try:
        with socket.socket(socket.AF_INET) as s:
            s.setsockopt(level, name, value)
        return "set"
    except OSError as e:
        return f"refused {e.errno}"


def bound(family, kind, address, port):
    try:
        with socket.socket(family, kind) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            s.bind((address, port))
            if kind == socket.SOCK_STREAM:
                s.listen()
        return "bound"
    except OSError as e:
        return f"refused {e.errno}"


def flood(host, port, seconds):
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            dial(host, port).close()
        except OSError:
            pass
        n += 1
    return n


if __name__ == "__main__":  # pairs of a function and its arguments; a list of what came of them
    print(json.dumps([globals()[name](*args) for name, args in json.load(sys.stdin)]))
