"""Headless Chromium behind a pipe: a page keeps a number and a list, each step adds to both."""
import json
import os

from serve import serve

there, write = os.pipe()
read, back = os.pipe()
if os.fork() == 0:
    os.close(write)
    os.close(read)
    there, back = os.dup(there), os.dup(back)  # so that 3 and 4 are free
    os.dup2(there, 3)
    os.dup2(back, 4)
    os.execv("/usr/lib/chromium/chromium", ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
                           "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
                           "--disable-breakpad", "--user-data-dir=/tmp/p/profile", "about:blank"])
os.close(there)
os.close(back)
number, rest = 0, b""


def call(method, session=None, **params):
    global number, rest
    number += 1
    os.write(write, json.dumps({"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}).encode() + b"\0")
    while True:
        while b"\0" not in rest:
            more = os.read(read, 1 << 16)
            if not more:
                raise EOFError("the browser ended")
            rest += more
        text, rest = rest.split(b"\0", 1)
        said = json.loads(text)
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
