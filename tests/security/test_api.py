"""The HTTP side against somebody who means harm: framing, JSON, paths, slowness, log lines. Against the real daemon.

Where ../shared/security (or CLOCHE_PROBES) has a set of probes written apart from this code, it is run as well.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.parse

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
from daemon import Daemon  # noqa: E402

OTHERS = pathlib.Path(os.environ.get("CLOCHE_PROBES") or host.ROOT.parent / "shared/security")
PATH = "/v1/sandboxes"


@pytest.fixture(scope="module")
def daemon():
    host.become_subreaper()
    with Daemon() as d:
        yield d


def talk(daemon, data, wait=3.0):
    """All that comes back for these bytes, until the daemon closes or says nothing more."""
    place = urllib.parse.urlsplit(daemon.url)
    got = b""
    with socket.create_connection((place.hostname, place.port), 3) as s:
        s.settimeout(wait)
        try:
            s.sendall(data)
            while len(got) < 1 << 20:
                piece = s.recv(65536)
                if not piece:
                    return got, True
                got += piece
        except (socket.timeout, ConnectionError):
            pass
    return got, False


def head(daemon, *lines, method="POST", path=PATH):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {daemon.token}", *lines, "", ""])


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


FRAMINGS = {
    "length and chunked": lambda d, s: head(d, f"Content-Length: {5 + len(s)}", "Transfer-Encoding: chunked") + "0\r\n\r\n" + s,
    "two lengths": lambda d, s: head(d, "Content-Length: 0", f"Content-Length: {len(s)}") + s,
    "a length with a sign": lambda d, s: head(d, "Content-Length: +0") + s,
    "a length that is none": lambda d, s: head(d, "Content-Length: 0x10") + s,
    "a blank before the colon": lambda d, s: head(d, f"Content-Length : {len(s)}") + s,
    "bare line feeds": lambda d, s: head(d, "Content-Length: 0").replace("\r", "") + s,
    "a folded line": lambda d, s: head(d, "X: a", f" Content-Length: {len(s)}", "Content-Length: 0") + s,
    "chunked, spelt oddly": lambda d, s: head(d, "Transfer-Encoding: xchunked") + "0\r\n\r\n" + s,
    "a chunk that lies": lambda d, s: head(d, "Transfer-Encoding: chunked") + "-1\r\n\r\n" + s,
}


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_body_that_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_served(daemon, name):
    smuggled = head(daemon, method="GET")
    answer, closed = talk(daemon, FRAMINGS[name](daemon, smuggled).encode())
    assert status(answer) in (400, 411, 413, 431, 501, 505) and answer.count(b"HTTP/1.") == 1 and closed, answer[:400]


@pytest.mark.parametrize("token", [None, "", "x", "half", "more"])
def test_only_the_whole_token_is_a_token(daemon, token):
    text = {"half": daemon.token[:-1], "more": daemon.token + "A"}.get(token, token)
    lines = ["GET " + PATH + " HTTP/1.1", "Host: x", "Connection: close"] + ([] if text is None else [f"Authorization: Bearer {text}"])
    answer, _ = talk(daemon, ("\r\n".join(lines) + "\r\n\r\n").encode())
    assert status(answer) == 401 and b"sandboxes" not in answer


BODIES = {
    "deep": b"[" * 100000 + b"]" * 100000,
    "deep objects": b'{"a":' * 50000 + b"1" + b"}" * 50000,
    "a number beyond numbers": b'{"timeout":1e999}',
    "a key twice": b'{"name":"a","name":"b"}',
    "an unknown key": b'{"tier":"wasm"}',
    "bad UTF-8": b'{"name":"\xff"}',
    "half a surrogate": b'{"name":"\\ud800"}',
    "something behind": b"{} x",
    "a NUL": b'{"name":"a\\u0000b"}',
    "an array": b"[]",
    "a negative size": b'{"memory":-1}',
    "a huge size": b'{"memory":18446744073709551616}',
}


@pytest.mark.parametrize("name", BODIES)
def test_bad_json_is_refused_at_once(daemon, name):
    begun = time.monotonic()
    answer, _ = talk(daemon, head(daemon, f"Content-Length: {len(BODIES[name])}", "Connection: close").encode() + BODIES[name])
    assert 400 <= status(answer) < 500 and time.monotonic() - begun < 2, answer[:400]
    assert daemon.get(PATH).json["sandboxes"] == []


@pytest.mark.parametrize("lines", [["X-A: " + "a" * 200000], ["X-B: b"] * 5000], ids=["large", "many"])
def test_heads_have_an_end(daemon, lines):
    answer, closed = talk(daemon, head(daemon, *lines, method="GET").encode())
    assert status(answer) in (0, 400, 413, 431) and closed


@pytest.mark.parametrize("path", ["/v1/sandboxes/../../etc/passwd", "/v1/sandboxes/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "//v1//sandboxes",
                                  "/v1/sandboxes/a%00b", "/v1/sandboxes/" + "A" * 9000, "/v1/./sandboxes;x=1", "/v1/sandboxes/%zz",
                                  "/v1/sandboxes/%ff", "http://x/etc/passwd", "*"])
def test_paths_lead_nowhere(daemon, path):
    answer, _ = talk(daemon, head(daemon, "Connection: close", method="GET", path=path).encode())
    assert 400 <= status(answer) < 500 and b"root:" not in answer, answer[:400]


def test_the_slow_do_not_hold_up_the_others_and_are_cut(daemon):
    place = urllib.parse.urlsplit(daemon.url)
    slow = []
    for _ in range(300):
        s = socket.create_connection((place.hostname, place.port), 2)
        s.sendall(b"GET / HTTP/1.1\r\nX: ")
        slow.append(s)
    begun = time.monotonic()
    assert daemon.get("/healthz").status == 200 and time.monotonic() - begun < 1
    end = begun + 31
    while slow and time.monotonic() < end:
        time.sleep(0.5)
        for s in slow[:]:
            try:
                s.sendall(b"a")
            except OSError:
                slow.remove(s)
                s.close()
    assert not slow, f"{len(slow)} are still held"


def test_nobody_writes_lines_into_the_log(daemon):
    seen = len((daemon.data / "audit.log").read_bytes().splitlines())
    evil = 'x\n{"evil":1}\x1b[2J\u202e'
    assert daemon.post(PATH, {"name": evil}).status == 400
    assert daemon.post(PATH, {"metadata": {"k": evil}}, headers={"X-Request-Id": "a\x0bb"}).status in (201, 400)
    r = daemon.post(PATH, {"metadata": {"k": evil}, "env": {"A": evil}})
    assert r.status == 201, r
    daemon.exec(r.json["id"], "echo", evil)
    daemon.delete(f"{PATH}/{r.json['id']}")
    lines = (daemon.data / "audit.log").read_bytes().split(b"\n")[seen:-1]
    assert lines and all(isinstance(json.loads(line), dict) and "evil" not in json.loads(line) for line in lines)
    for text in [*lines, *(line.encode() for line in daemon.log)]:
        assert b"\x1b" not in text and "\u202e".encode() not in text


if (OTHERS / "api_p.py").exists():
    def test_the_probes_written_apart_from_this_code_are_closed(daemon):
        place = urllib.parse.urlsplit(daemon.url)
        r = subprocess.run([sys.executable, str(OTHERS / "api_p.py"), place.hostname, str(place.port), daemon.token],
                           capture_output=True, timeout=120, check=False)
        text = r.stdout.decode(errors="replace") + r.stderr.decode(errors="replace")
        assert r.returncode == 0 and "SUMMARY open 0" in text and text.count("CLOSED") >= 24, text
