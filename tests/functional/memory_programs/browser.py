"""Headless Chromium and a client of its debugging port, over TCP inside: a page keeps a number and a list, each step adds to both."""
import base64
import json
import os
import pathlib
import socket
import struct
import time

from serve import serve

PROFILE = pathlib.Path("/tmp/p/profile")
if os.fork() == 0:
    os.execv("/usr/lib/chromium/chromium", ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0",
                           "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
                           "--disable-breakpad", f"--user-data-dir={PROFILE}", "about:blank"])


def connect():
    """A WebSocket to the browser, as soon as it says where."""
    for _ in range(1200):
        said = (PROFILE / "DevToolsActivePort").read_text().split("\n") if (PROFILE / "DevToolsActivePort").exists() else []
        if len(said) > 1 and said[1]:
            break
        time.sleep(0.1)
    s = socket.create_connection(("127.0.0.1", int(said[0])))
    s.sendall(f"GET {said[1]} HTTP/1.1\r\nHost: 127.0.0.1:{said[0]}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
              f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += s.recv(1) or exit("the browser hung up")
    assert b" 101 " in head, head
    return s


number, browser = 0, connect()


def take(n):
    data = browser.recv(n, socket.MSG_WAITALL)
    if len(data) < n:
        raise EOFError("the browser ended")
    return data


def call(method, session=None, **params):
    global number
    number += 1
    text = json.dumps({"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}).encode()
    browser.sendall(struct.pack("!BBH4x", 0x81, 0x80 | 126, len(text)) + text)  # masked with zeros
    while True:
        said, more = b"", True
        while more:
            first, n = take(2)
            n = struct.unpack("!H", take(2))[0] if n == 126 else struct.unpack("!Q", take(8))[0] if n == 127 else n
            said, more = said + take(n), not first & 0x80
        said = json.loads(said)
        if said.get("id") == number:
            if "error" in said:
                raise RuntimeError(said["error"])
            return said["result"]


target = call("Target.createTarget", url="data:text/html,<p id=p>page</p>")["targetId"]
page = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]


def step(_n):
    script = """window.n = (window.n || 0) + 1; window.list = (window.list || []).concat([new Array(1000).fill(window.n)]);
        document.getElementById('p').textContent = 'page ' + window.n;
        window.n + ' ' + window.list.length + ' ' + window.list.flat().length + ' ' + document.getElementById('p').offsetHeight"""
    result = call("Runtime.evaluate", page, expression=script)["result"]["value"]
    picture = call("Page.captureScreenshot", page)["data"]
    assert len(picture) > 500
    return result.rsplit(" ", 1)[0]


serve(step)
