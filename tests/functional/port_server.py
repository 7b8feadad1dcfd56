"""Runs inside a sandbox: a web server by hand, with answers a polite one would not give. `python3 - PORT [ADDRESS]`."""
import base64
import hashlib
import json
import socket
import sys
import threading

BIG = bytes(range(256)) * 256  # 64 KiB


def head(f):
    line = f.readline().decode("latin1").rstrip("\r\n")
    fields = []
    while (text := f.readline().decode("latin1").rstrip("\r\n")):
        k, v = text.split(":", 1)
        fields.append([k, v.strip()])
    return line, fields


def body(f, fields):
    low = {k.lower(): v for k, v in fields}
    if low.get("transfer-encoding") == "chunked":
        while (n := int(f.readline(), 16)):
            left = n
            while left:
                piece = f.read(min(left, 65536))
                left -= len(piece)
                yield piece
            f.readline()
        f.readline()
    else:
        left = int(low.get("content-length", 0))
        while left:
            piece = f.read(min(left, 65536))
            if not piece:
                return
            left -= len(piece)
            yield piece


def answer(s, status, data=b"", *headers):
    text = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(data)}\r\n" + "".join(h + "\r\n" for h in headers) + "\r\n"
    s.sendall(text.encode() + data)


def websocket(s, f, fields):
    key = {k.lower(): v for k, v in fields}["sec-websocket-key"]
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    s.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
    while True:
        two = f.read(2)
        if len(two) < 2:
            return
        n = two[1] & 127
        size = f.read(2 if n == 126 else 8) if n > 125 else b""
        n = int.from_bytes(size, "big") if size else n
        mask, data = f.read(4), f.read(n)
        plain = (int.from_bytes(data, "big") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "big")).to_bytes(n, "big")
        length = bytes([n]) if n < 126 else b"\x7e" + n.to_bytes(2, "big") if n < 65536 else b"\x7f" + n.to_bytes(8, "big")
        s.sendall(two[:1] + length + plain)
        if two[0] & 15 == 8:
            return


def serve(s):
    with s, s.makefile("rb") as f:
        line, fields = head(f)
        method, target, _ = line.split(" ")
        path, _, query = target.partition("?")
        if path == "/ws":
            websocket(s, f, fields)
        elif path == "/upload":
            digest, n = hashlib.sha256(), 0
            for piece in body(f, fields):
                digest.update(piece)
                n += len(piece)
            answer(s, 200, json.dumps({"n": n, "sha256": digest.hexdigest()}).encode())
        elif path == "/download":
            n = int(query)
            s.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {n}\r\nContent-Type: application/x-own\r\n\r\n".encode())
            while n:
                s.sendall(BIG[:min(n, len(BIG))])
                n -= min(n, len(BIG))
        elif path == "/chunked":
            s.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in (b"one ", b"two ", b"three"):
                s.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            s.sendall(b"0\r\n\r\n")
        elif path == "/close":
            s.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
        elif path == "/cut":
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        elif path == "/silent":
            pass
        elif path == "/bad":
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx")
        elif path == "/split":
            s.sendall(b"HTTP/1.1 200 OK\r\nX-A: b\nSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n")
        elif path == "/long":
            s.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
            try:
                while True:
                    s.sendall(BIG.replace(b"\r", b"x").replace(b"\n", b"x").translate(bytes(max(33, i) if i != 127 else 33 for i in range(256))))
            except OSError:
                pass
        elif path == "/early":
            answer(s, 413, b"too much")
        elif path == "/empty":
            s.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        elif path == "/tricks":
            answer(s, 302, b"", "Location: /next?x=1", "Set-Cookie: a=1; Domain=.example; Path=/; HttpOnly", "Set-Cookie: cloche_port=x", "Clear-Site-Data: *", "Server: own", "X-Cloche-Audit: 9:forged",
                   "Connection: X-Hop", "X-Hop: 1", "Keep-Alive: timeout=5")
        else:
            data = json.dumps({"method": method, "target": target, "headers": fields, "body": b"".join(body(f, fields)).decode("latin1"), "peer": s.getpeername()[0]}).encode()
            answer(s, 200, b"" if method == "HEAD" else data, *(["X-Length: %d" % len(data)]))


def main():
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if address == "::":
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind((address, int(sys.argv[1])))
    one.listen(64)
    print("listening", flush=True)
    while True:
        s, _ = one.accept()
        threading.Thread(target=serve, args=(s,), daemon=True).start()


main()
