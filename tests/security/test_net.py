"""The way out, against a sandbox that wants more than it was given. Against the real daemon and servers on loopback.

What must not be reached is a real server as well (`w.host` on 127.0.0.1, and other.test, which no rule names): it counts
who comes. Where ../shared/security (or CLOCHE_PROBES) has a set of probes written apart from this code, it is run, too.
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
from daemon import Daemon  # noqa: E402
from net_world import World  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
OTHERS = pathlib.Path(os.environ.get("CLOCHE_PROBES") or host.ROOT.parent / "shared/security")
PYTHON = "/usr/bin/python3"
A, NS, CNAME, NULL, MX, TXT, AAAA, SRV, HTTPS, AXFR, ANY = 1, 2, 5, 10, 15, 16, 28, 33, 65, 252, 255
REFUSED = re.compile(r"refused|reset|closed|no such name|HTTP/1\.[01] (400|403|404|421|501|502|503) ")


@pytest.fixture(scope="module")
def w():
    host.become_subreaper()
    with World() as one:
        one.hosts["allowed.test"] = one.web.address
        yield one


@pytest.fixture(scope="module")
def d(w):
    with Daemon(None, "--config", w.config()) as one:
        yield one


class Box:
    def __init__(self, d, w, network):
        self.d = d
        self.id = d.create(network=network)["id"]
        w.give_ca(d, self.id)
        for path in (HERE / "net_inside.py",):
            r = d.request("PUT", f"/v1/sandboxes/{self.id}/files?path=/tmp/{path.name}", path.read_bytes())
            assert r.status == 200, r

    def inside(self, *calls, user="user"):
        """Each call is (function, arguments…); what came of them."""
        r = self.d.exec(self.id, PYTHON, "/tmp/net_inside.py", stdin=json.dumps([[c[0], c[1:]] for c in calls]), user=user, timeout=120)
        assert r["exit_code"] == 0, r
        return json.loads(r["stdout"])

    def one(self, *call, user="user"):
        return self.inside(call, user=user)[0]


@pytest.fixture(scope="module")
def allow(d, w):
    """Names, by exact rules; two of them belong to addresses that no sandbox may reach."""
    port = w.host.port
    return Box(d, w, {"allow": ["web.test", "echo.test:7", f"inside.test:80,{port}", "imds.test", f"rebound.test:80,{port}", "mixed.test"]})


@pytest.fixture(scope="module")
def opened(d, w):
    return Box(d, w, "open")


@pytest.fixture(autouse=True)
def nobody_came(w):
    """To the host's own port, and to the server that no rule names."""
    before, others = w.host.connections, len(w.other.requests)
    yield
    assert w.host.connections == before, "the host's own port was reached"
    assert len(w.other.requests) == others, w.other.requests[others:]


def refused(got):
    assert isinstance(got, str) and REFUSED.match(got) and "through: " not in got and "came back" not in got, got
    assert " after " not in got, got  # at once


def test_outside_the_same_attempts_succeed(w):
    """The other half of every probe: as root of the host, in a network namespace of its own where that is wiser."""
    def go(*calls, apart=()):
        r = subprocess.run([*apart, PYTHON, str(HERE / "net_inside.py")], input=json.dumps([[c[0], c[1:]] for c in calls]), capture_output=True, text=True,
                           timeout=60, check=True)
        return json.loads(r.stdout)

    port = w.echo.port
    tail = w.echo.address.split(".", 1)[1]
    plain = int.from_bytes(socket.inet_aton(w.echo.address), "big")
    assert go(*[("knock", x, port) for x in (w.echo.address, str(plain), hex(plain), "0177." + tail, "::ffff:" + w.echo.address)]) == ["came back"] * 5
    w.names.forget()
    assert go(("ask", "data.evil.test", TXT, False, w.at(53)), ("ask", "data.evil.test", TXT, True, w.at(53))) == [[3, 0]] * 2
    assert w.names.asked("data.evil.test") == [("data.evil.test", TXT)] * 2
    w.names.forget()
    before = len(w.web.requests)
    assert go(("talk", w.web.address, 80, HELLO.format("hello", "other.test")))[0].startswith("HTTP/1.1 200") and len(w.web.requests) == before + 1
    got = go(("made", 17, 3, 0x300), ("made", 2, 3, 1), ("made", 16, 3, 12), ("option", 1, 36, 7), ("option", 0, 19, 1), ("bound", 2, 1, "0.0.0.0", 1),
             ("bound", 2, 2, "0.0.0.0", 53), apart=("unshare", "-n"))
    assert got == ["made"] * 3 + ["set"] * 2 + ["bound"] * 2


# --- names ---

def test_what_is_allowed_works_or_the_rest_of_this_file_proves_nothing(allow, w):
    got = allow.inside(("talk", "web.test", 80, "GET /hello HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n"), ("tls", "web.test", 443, "web.test"),
                       ("knock", "echo.test", 7), ("lookup", "web.test"), ("proxied", "web.test:80", "GET /hello HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n"),
                       ("socks", 3, "echo.test", 7, "x"))
    assert got[0].startswith("HTTP/1.1 200") and got[1].startswith("HTTP/1.1 200") and got[2] == "came back", got
    assert all(x.startswith(("198.18.", "198.19.", "fd63:6c6f:6368:65:")) for x in got[3]), got
    assert "HTTP/1.1 200" in got[4] and got[5] == "through: x", got


def test_no_name_but_the_allowed_ones_leaves_the_host(allow, w):
    """What a tunnel would be made of: data in labels, many queries, types that carry much."""
    w.names.forget()
    data = uuid.uuid4().hex
    names = ["evil.test", data + ".evil.test", ".".join([data] * 6) + ".evil.test", "a" * 63 + "." + "b" * 63 + ".evil.test", data + ".web.test",
             "x.y.z.web.test", "web.test.evil.test", "xweb.test", "test", "localhost", "metadata.google.internal"]
    calls = [("ask", n, t, tcp) for n in names for t in (A, AAAA, TXT, NULL, CNAME, MX, NS, SRV, HTTPS, ANY) for tcp in (False, True)]
    for call, got in zip(calls, allow.inside(*calls)):
        assert isinstance(got, str) or got[0] in (3, 5) or got[1] == 0, (call, got)
    # Other types of a name that is allowed carry nothing either.
    for kind, got in zip((TXT, NULL, CNAME, MX, NS, HTTPS, AXFR, ANY), allow.inside(*[("ask", "web.test", t, True) for t in
                                                                                      (TXT, NULL, CNAME, MX, NS, HTTPS, AXFR, ANY)])):
        assert isinstance(got, str) or got[1] == 0, (kind, got)
    assert w.names.asked() == []


def test_odd_questions_get_no_answer(allow, w):
    w.names.forget()
    labels = [["web.test"], ["web", "test\0", "evil", "test"], ["web", "test\0"], ["web\0", "test"], ["evil", "test\0web", "test"], ["web", "te st"],
              ["web", "test%00"], ["w\xe9b", "test"], ["", ], ["web", "test#evil"]]
    calls = [("ask", x, A, tcp) for x in labels for tcp in (False, True)]
    for call, got in zip(calls, allow.inside(*calls)):
        assert isinstance(got, str) or got[0] in (1, 2, 3, 4, 5) or got[1] == 0, (call, got)
    assert w.names.asked() == []
    host.wait_for(lambda: allow.one("ask", "wEb.TeSt", A) == [0, 1], 20, "an answer after so many questions")


def test_only_our_own_name_server_answers(allow):
    for got in allow.inside(*[("ask", "web.test", A, tcp, server) for server in ("8.8.8.8", "1.1.1.1", "169.254.169.253", "9.9.9.9")
                              for tcp in (False, True)]):
        assert isinstance(got, str) and " after " not in got, got


def test_many_questions_do_not_harm_the_neighbour(allow, opened):
    """Ten thousand at once, of which most may be dropped; then both still resolve."""
    script = ("import socket, sys; sys.path.insert(0, '/tmp'); import net_inside as n\n"
              "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((n.GATE, 53))\n"
              "for i in range(10000):\n"
              "    try: s.send(n.question(f'{i:x}.evil.test', 1))\n"
              "    except OSError: pass\n")
    assert allow.d.exec(allow.id, PYTHON, "-c", script)["exit_code"] == 0
    assert opened.one("lookup", "web.test") != "no such name"
    host.wait_for(lambda: allow.one("lookup", "web.test") not in ("no such name",), 20, "a name after the flood")


# --- addresses behind names ---

def test_a_name_that_is_rebound_leads_nowhere_else(allow, w):
    port = w.host.port
    for second in (["127.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"], ["10.0.0.1"], ["0.0.0.0"]):
        w.names.set("rebound.test", [w.web.address], second)
        hello = "GET /hello HTTP/1.1\r\nHost: rebound.test\r\nConnection: close\r\n\r\n"
        first = allow.one("talk", "rebound.test", 80, hello)
        assert first.startswith("HTTP/1.1 200") and '"site": "web.test"' in first, (second, first)
        refused(allow.one("knock", "rebound.test", port))
        refused(allow.one("proxied", f"rebound.test:{port}"))
        refused(allow.one("socks", 3, "rebound.test", port))


def test_of_several_addresses_only_the_permitted_are_used(allow, w):
    w.names.set("mixed.test", ["169.254.169.254", "127.0.0.1", "10.1.2.3", w.web.address])
    for _ in range(5):
        got = allow.one("talk", "mixed.test", 80, "GET /hello HTTP/1.1\r\nHost: mixed.test\r\nConnection: close\r\n\r\n")
        assert got.startswith("HTTP/1.1 200"), got


def test_an_allowed_name_of_a_forbidden_address_leads_nowhere(allow, w):
    port = w.host.port
    for got in allow.inside(("knock", "inside.test", port), ("proxied", f"inside.test:{port}"), ("socks", 3, "inside.test", port),
                            ("talk", "imds.test", 80, "GET / HTTP/1.1\r\nHost: imds.test\r\n\r\n"), ("proxied", "imds.test:80"), ("socks", 3, "imds.test", 80)):
        refused(got)


SPELLINGS = {  # of 127.0.0.1 and of the metadata service; each as something a resolver, a URL or a proxy may take for it
    "127.0.0.1": ["127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0.0.0.0", "0", "127.0.0.1.",
                  "::1", "::", "::ffff:127.0.0.1", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "localhost"],
    "169.254.169.254": ["169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.16689662", "169.254.43518", "::ffff:169.254.169.254",
                        "::ffff:a9fe:a9fe", "::a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fd00:ec2::254", "imds.test", "169.254.169.254.",
                        "169.254.170.2", "100.100.100.200", "192.0.0.192", "metadata.google.internal"],
}


@pytest.mark.parametrize("mode", ["allow", "open"])
@pytest.mark.parametrize("which", SPELLINGS)
def test_no_spelling_of_an_address_gets_through(allow, opened, w, which, mode):
    box, port = (allow if mode == "allow" else opened), (w.host.port if which == "127.0.0.1" else 80)
    calls = []
    for text in SPELLINGS[which]:
        inside = f"[{text}]" if ":" in text else text
        calls += [("proxied", f"{inside}:{port}"), ("socks", 3, text, port),
                  ("talk", "198.18.0.1", 3128, f"GET http://{inside}:{port}/ HTTP/1.1\r\nHost: {inside}:{port}\r\n\r\n")]
        calls.append(("knock", text, port) if port != 80 else ("talk", text, 80, f"GET / HTTP/1.1\r\nHost: {inside}\r\n\r\n"))
    for call, got in zip(calls, box.inside(*calls)):
        assert isinstance(got, str) and "came back" not in got and "through: " not in got and " after " not in got, (call, got)
        assert not got.startswith("HTTP/1.1 2"), (call, got)


@pytest.mark.parametrize("mode", ["allow", "open"])
def test_addresses_by_socks_are_judged_as_well(allow, opened, w, mode):
    box, port = (allow if mode == "allow" else opened), w.host.port
    for got in box.inside(*[("socks", 1, a, p) for a, p in (("7f000001", port), ("00000000", port), ("a9fea9fe", 80), ("0a000001", 80), ("c0a80001", 80),
                                                              ("64646464", 80), ("e0000001", 80), ("ffffffff", 80))],
                          *[("socks", 4, a, p) for a, p in (("0" * 31 + "1", port), ("0" * 20 + "ffff7f000001", port), ("0064ff9b" + "0" * 16 + "7f000001", port),
                                                              ("20027f000001" + "0" * 20, port), ("fd000ec2" + "0" * 20 + "0254", 80),
                                                              ("0064ff9b" + "0" * 16 + "a9fea9fe", 80), ("fe80" + "0" * 27 + "1", 80))]):
        refused(got)


def test_the_hosts_own_addresses_are_no_way_in(opened, w):
    """Not even where everything public is open: neither this host's interfaces nor the daemon's port."""
    found = subprocess.run(["ip", "-j", "address"], capture_output=True, check=True).stdout
    addresses = [a["local"] for link in json.loads(found) for a in link["addr_info"] if a.get("scope") != "link"]
    assert addresses
    api = int(opened.d.url.rsplit(":", 1)[1])
    with socket.create_server(("", 0)) as s:  # on all of them
        s.settimeout(0.1)
        port = s.getsockname()[1]
        calls = []
        for a in addresses:
            text = f"[{a}]" if ":" in a else a
            calls += [("knock", a, port), ("proxied", f"{text}:{port}"), ("knock", a, api), ("proxied", f"{text}:{api}")]
        for call, got in zip(calls, opened.inside(*calls)):
            assert "came back" not in got and "through: " not in got, (call, got)
        with pytest.raises(TimeoutError):
            s.accept()


def test_redirects_lead_nowhere_either(allow, w):
    port = w.host.port
    for to in (f"http://127.0.0.1:{port}/", f"http://inside.test:{port}/", "http://169.254.169.254/latest/meta-data/", f"http://[::ffff:127.0.0.1]:{port}/",
               "http://imds.test/", f"http://2130706433:{port}/", "http://other.test/hello", "https://other.test/hello"):
        for more in ([], ["-x", "http://198.18.0.1:3128"], ["-x", "socks5h://198.18.0.1:1080"]):
            r = allow.d.exec(allow.id, "curl", "-sSkL", "-m", "10", "-o", "/dev/null", "-w", "%{http_code} %{num_redirects} %{errormsg}", *more,
                             "http://web.test/redirect?to=" + to)
            assert not r["stdout"].startswith("200"), (to, more, r)
            assert r["exit_code"] != 28, (to, more, r)  # not by patience


# --- one name said, another one meant ---

def test_the_name_in_tls_must_be_the_one_that_was_looked_up(allow, opened, w):
    for name in ("other.test", "evil.test", "web.test.other.test", "xweb.test"):
        got = allow.one("tls", "web.test", 443, name)
        assert got.startswith("reset") or "refused" in got, (name, got)
    # Nor behind a proxy.
    script = ("import socket, ssl, sys; sys.path.insert(0, '/tmp'); import net_inside as n\n"
              "s = n.dial(*n.PROXY); s.sendall(b'CONNECT web.test:443 HTTP/1.1\\r\\nHost: web.test:443\\r\\n\\r\\n')\n"
              "assert b' 200 ' in s.recv(4096)\n"
              "c = ssl.create_default_context(cafile='/tmp/ca.pem')\n"
              "try: c.wrap_socket(s, server_hostname='other.test'); print('shaken')\n"
              "except OSError as e: print('refused')\n")
    assert allow.d.exec(allow.id, PYTHON, "-c", script)["stdout"] == "refused\n"


HELLO = "GET /{0} HTTP/1.1\r\nHost: {1}\r\n\r\n"


@pytest.mark.parametrize("way", ["direct", "proxy", "absolute"])
def test_the_host_of_every_request_must_be_the_name(allow, w, way):
    """The second on a connection that was kept open, and the first; one by one, and all at once."""
    marker = "m" + uuid.uuid4().hex
    first = HELLO.format("hello", "web.test")
    if way == "absolute":
        first = first.replace("GET /", "GET http://web.test/")
    for bad in (HELLO.format(marker, "other.test"), HELLO.format(marker, "web.test:81"), HELLO.format(marker, "127.0.0.1"),
                f"GET /{marker} HTTP/1.1\r\nHost: web.test\r\nHost: other.test\r\n\r\n", f"GET /{marker} HTTP/1.1\r\n\r\n",
                f"GET http://other.test/{marker} HTTP/1.1\r\nHost: web.test\r\n\r\n", f"GET http://web.test/{marker} HTTP/1.1\r\nHost: other.test\r\n\r\n",
                f"GET /{marker} HTTP/1.1\r\nHost: web.test, other.test\r\n\r\n", f"GET /{marker} HTTP/1.1\r\nHost: web.test\0.other.test\r\n\r\n",
                f"GET /{marker} HTTP/1.1\r\nHost : other.test\r\n\r\n", f"GET /{marker} HTTP/1.1\r\nHost:\r\n other.test\r\n\r\n",
                f"CONNECT other.test:80 HTTP/1.1\r\nHost: web.test\r\n\r\n{HELLO.format(marker, 'other.test')}",
                f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{marker}"):
        for data in (bad, first + bad, first + first + bad + first):
            if way == "proxy":
                got = allow.one("proxied", "web.test:80", data)
            else:
                got = allow.one("talk", *(("web.test", 80) if way == "direct" else ("198.18.0.1", 3128)), data)
            assert got.count("HTTP/1.1 200") <= data.count("GET /hello") + data.count("GET http://web.test/hello") + (way == "proxy"), (data, got)
    assert not [r for r in w.web.requests if marker in r[1]]


SMUGGLED = {
    "length and chunked": "POST /echo HTTP/1.1\r\nHost: web.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
    "chunked and length": "POST /echo HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{}",
    "two lengths": "POST /echo HTTP/1.1\r\nHost: web.test\r\nContent-Length: 0\r\nContent-Length: 400\r\n\r\n{}",
    "a list of lengths": "POST /echo HTTP/1.1\r\nHost: web.test\r\nContent-Length: 0, 400\r\n\r\n{}",
    "a length with a sign": "POST /echo HTTP/1.1\r\nHost: web.test\r\nContent-Length: +400\r\n\r\n{}",
    "a length in hex": "POST /echo HTTP/1.1\r\nHost: web.test\r\nContent-Length: 0x190\r\n\r\n{}",
    "a blank before the colon": "POST /echo HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding : chunked\r\nContent-Length: 400\r\n\r\n0\r\n\r\n{}",
    "a folded line": "POST /echo HTTP/1.1\r\nHost: web.test\r\nX: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 400\r\n\r\n0\r\n\r\n{}",
    "bare line feeds": "POST /echo HTTP/1.1\nHost: web.test\nContent-Length: 0\n\n{}",
    "chunked, spelt oddly": "POST /echo HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{}",
    "chunked twice": "POST /echo HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{}",
    "a tab": "POST /echo HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding:\x0bchunked\r\nContent-Length: 400\r\n\r\n0\r\n\r\n{}",
    "a chunk that lies": "POST /echo HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n{}",
    "a huge chunk": "POST /echo HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n{}",
    "HTTP/1.0, chunked": "POST /echo HTTP/1.0\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_a_request_that_can_be_read_in_two_ways_carries_nothing_past(allow, w, name):
    marker = "s" + uuid.uuid4().hex
    data = SMUGGLED[name].format(HELLO.format(marker, "other.test"))
    before = len(w.web.requests)
    got = allow.one("talk", "web.test", 80, data)
    assert "HTTP/1.1 200" not in got, got
    assert len(w.web.requests) == before and not [r for r in w.web.requests if marker in r[1]]


FORGED = ["other.test:80", "web.test:22", "web.test:0", "web.test:65536", "web.test:080x", "web.test", "web.test:", ":80", "web.test@other.test:80",
          "other.test#.web.test:80", "other.test/.web.test:80", "other.test?web.test:80", "other.test\\.web.test:80", "web.test\0.other.test:80",
          "other.test\0web.test:80", "other.test%00.web.test:80", "web.test%2eother.test:80", "web.test.other.test:80", ".web.test:80", "web..test:80",
          "web.test:80:80", "[web.test]:80", "-web.test:80", "w\xe9b.test:80", "web.test\t:80", "http://web.test:80", "//web.test:80", "*.test:80", "*:80",
          "[::1%lo]:80", "[::1", "::1:80", "1:80", "web.test:80 HTTP/1.1\r\nX: y"]


def test_a_forged_connect_is_refused(allow, w):
    calls = [("proxied", t) for t in FORGED[:-1]] + [("socks", 3, t.rsplit(":", 1)[0], 80) for t in FORGED
                                                     if t.rsplit(":", 1)[0] not in ("web.test", "http://web.test", "")]
    for call, got in zip(calls, allow.inside(*calls)):
        assert REFUSED.match(got) and " after " not in got, (call, got)
    assert allow.one("proxied", "web.test:80", HELLO.format("hello", "web.test"), "other.test:80").startswith(("HTTP/1.1 4", "closed", "reset"))


def test_absolute_addresses_must_agree_with_host(allow, w):
    for line, name in (("http://other.test/hello", "web.test"), ("http://web.test/hello", "other.test"), ("http://web.test@other.test/hello", "web.test"),
                       ("http://other.test#@web.test/hello", "web.test"), ("ftp://web.test/hello", "web.test"), ("https://web.test/hello", "web.test"),
                       ("http://web.test:81/hello", "web.test"), ("/hello", "web.test"), ("*", "web.test")):
        got = allow.one("talk", "198.18.0.1", 3128, f"GET {line} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")
        assert "HTTP/1.1 200" not in got, (line, name, got)
    got = allow.one("talk", "198.18.0.1", 3128, "GET http://web.test/hello HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n")
    assert got.startswith("HTTP/1.1 200"), got


# --- the kernel's side ---

@pytest.mark.parametrize("user", ["user", "root"])
def test_no_other_kind_of_socket_is_to_be_had(allow, user):
    vsock, packet, netlink, xdp, alg = 40, 17, 16, 44, 38
    calls = [("made", vsock, 1), ("made", vsock, 2), ("made", packet, 3, 0x300), ("made", packet, 2), ("made", 2, 3, 255), ("made", 2, 3, 1), ("made", 2, 3, 6),
             ("made", 10, 3, 58), ("made", 2, 2, 1), ("made", 10, 2, 58), ("made", netlink, 3, 12), ("made", netlink, 3, 6), ("made", xdp, 3), ("made", alg, 5),
             ("made", 2, 1, 132), ("made", 2, 5, 132), ("made", 2, 2, 136), ("made", 2, 6, 33)]
    for call, got in zip(calls, allow.inside(*calls, user=user)):
        assert got.startswith("refused"), (call, got)


@pytest.mark.parametrize("user", ["user", "root"])
def test_no_option_makes_a_socket_mightier(allow, user):
    so_mark, ip_transparent, so_priority = (1, 36, 7), (0, 19, 1), (1, 12, 7)
    calls = [("option", *x) for x in (so_mark, ip_transparent, so_priority, (41, 75, 1))]
    for call, got in zip(calls, allow.inside(*calls, user=user)):
        assert got.startswith("refused"), (call, got)


@pytest.mark.parametrize("user", ["user", "root"])
def test_the_ports_of_the_way_out_can_not_be_taken(allow, user):
    """Not even as root inside: otherwise one sandbox could answer for the names of others."""
    calls = [("bound", f, k, a, p) for f, a in ((2, "0.0.0.0"), (2, "198.18.0.1"), (10, "::"), (2, "127.0.0.1")) for k, p in ((1, 1), (1, 53), (2, 53))]
    for call, got in zip(calls, allow.inside(*calls, user=user)):
        assert got.startswith("refused"), (call, got)
    assert allow.one("knock", "echo.test", 7) == "came back"


def test_what_listens_inside_is_not_what_strangers_addresses_lead_to(allow):
    """Every address is local in there: a wildcard listener must not be taken for a server elsewhere."""
    script = ("import socket\nl = socket.create_server(('', 8080))\n"
              "for a in ('5.6.7.8', '198.18.1.200', '198.18.0.1', '10.0.0.1'):\n"
              "    s = socket.socket(); s.settimeout(2)\n"
              "    try: s.connect((a, 8080)); print(a)\n"
              "    except OSError: pass\n"
              "s = socket.socket(); s.settimeout(2); s.connect(('127.0.0.1', 8080)); print('own')\n")
    r = allow.d.exec(allow.id, PYTHON, "-c", script)
    # A synthetic address that nobody was given may be taken, and ended, by egress.
    assert r["exit_code"] == 0 and r["stdout"].replace("198.18.1.200\n", "") == "own\n", r


def test_datagrams_are_refused_at_once(allow, opened):
    for box in (allow, opened):
        got = box.inside(*[("udp", a, p) for a, p in (("1.1.1.1", 443), ("8.8.8.8", 53), ("8.8.8.8", 123), ("2606:4700:4700::1111", 443), ("198.18.0.1", 443),
                                                       ("169.254.169.254", 53))])
        assert got == ["refused"] * 6, got
        # To a group nobody is told that there is nobody.
        assert "answered" not in box.inside(("udp", "224.0.0.251", 5353, 0.5), ("udp", "ff02::fb", 5353, 0.5), ("udp", "255.255.255.255", 67, 0.5))


def test_names_of_unix_sockets_end_at_the_namespace(allow):
    name = "cloche-test-" + uuid.uuid4().hex[:8]
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0" + name)
        s.listen()
        r = allow.d.exec(allow.id, PYTHON, "-c", f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')")
        assert r["exit_code"] == 1 and "ConnectionRefusedError" in r["stderr"], r


# --- neighbours, and the end of it ---

def test_a_flood_leaves_the_neighbour_alone(allow, opened):
    """That it works; how fast is for the benchmark."""
    got = {}
    flood = threading.Thread(target=lambda: got.update(flood=opened.one("flood", "echo.test", 7, 3)))
    flood.start()
    try:
        assert allow.inside(*[("knock", "echo.test", 7)] * 50) == ["came back"] * 50
    finally:
        flood.join()
    assert got["flood"] > 100
    host.wait_for(lambda: opened.one("knock", "echo.test", 7) == "came back", 20, "the flooder's own connections afterwards")


def test_connections_that_say_nothing_leave_the_neighbour_alone(allow, opened):
    """Thousands, at every port there is, half of them in the middle of a sentence; held while the neighbour works."""
    script = ("import socket, sys, time; sys.path.insert(0, '/tmp'); import net_inside as n\n"
              "held, starts = [], {53: b'\\xff', 3128: b'CONNECT web', 1080: b'\\5', 80: b'GET / HTTP/1.1\\r\\nHost: ', 443: b'\\x16\\3\\1\\2', 7: b''}\n"
              "to = {p: (socket.gethostbyname('echo.test' if p == 7 else 'web.test') if p in (7, 80, 443) else n.GATE, p) for p in starts}\n"
              "for i in range(900):\n"
              "    port = list(starts)[i % 6]\n"
              "    try: s = socket.socket(); s.settimeout(5); s.connect(to[port]); s.send(starts[port]); held.append(s)\n"
              "    except OSError: pass\n"
              "open(f'/tmp/held-{sys.argv[1]}', 'w').write(str(len(held)))\n"
              "while not __import__('os').path.exists('/tmp/let-go'): time.sleep(0.05)\n")
    ids = []
    for i in range(4):
        r = opened.d.post(f"/v1/sandboxes/{opened.id}/execs", {"cmd": [PYTHON, "-c", script, str(i)], "background": True})
        assert r.status in (200, 201, 202), r
        ids.append(r.json["id"])
    try:
        for i in range(4):
            path = f"/v1/sandboxes/{opened.id}/files?path=/tmp/held-{i}"
            host.wait_for(lambda path=path: opened.d.get(path).body.isdigit(), 60, "its connections")
        held = sum(int(opened.d.get(f"/v1/sandboxes/{opened.id}/files?path=/tmp/held-{i}").body) for i in range(4))
        assert held > 500, held
        got = allow.inside(*[("knock", "echo.test", 7)] * 20, ("proxied", "web.test:80", HELLO.format("hello", "web.test")), ("tls", "web.test", 443, "web.test"))
        assert got[:20] == ["came back"] * 20 and "200 OK" in got[20] and "200 OK" in got[21], got
    finally:
        opened.d.request("PUT", f"/v1/sandboxes/{opened.id}/files?path=/tmp/let-go", b"")
    for one in ids:
        host.wait_for(lambda one=one: opened.d.get(f"/v1/sandboxes/{opened.id}/execs/{one}").json["state"] == "ended", 20, "its end")
    host.wait_for(lambda: opened.one("knock", "echo.test", 7) == "came back", 20, "its own connections afterwards")


def test_egress_itself_has_no_power(d, allow):  # pylint: disable=unused-argument
    pid = d.children()["egress"]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split() and not status["Groups"].split(), status
        assert {int(status[x], 16) for x in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}, status
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    files = set()
    for x in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            files.add(os.readlink(x))
    assert files and not [f for f in files if not f.startswith(("socket:", "anon_inode:", "pipe:")) and f not in ("/dev/null", "/dev/urandom")], files


def test_a_policy_taken_away_is_taken_away(d, w):
    box = Box(d, w, {"allow": ["web.test", "echo.test:7"]})
    assert box.one("knock", "echo.test", 7) == "came back"
    r = d.put(f"/v1/sandboxes/{box.id}/network", {"allow": ["web.test"]})
    assert r.status == 200, r
    refused(box.one("knock", "echo.test", 7))
    r = d.put(f"/v1/sandboxes/{box.id}/network", {"allow": []})
    assert r.status == 200, r
    refused(box.one("knock", "web.test", 80))
    assert d.delete(f"/v1/sandboxes/{box.id}").status == 204


def test_without_a_network_there_is_nothing(d, w):
    box = Box(d, w, "none")
    for got in box.inside(("knock", "echo.test", 7), ("knock", "198.18.0.1", 3128), ("knock", "198.18.0.1", 1080), ("knock", "1.1.1.1", 443), ("lookup", "web.test")):
        assert isinstance(got, str) and "came back" not in got and " after " not in got, got
    assert d.delete(f"/v1/sandboxes/{box.id}").status == 204


def test_a_stream_cut_by_the_death_of_egress_is_no_clean_end(d, w):
    """Else half a download would be taken for a whole one. Afterwards it is back, with the policy it had."""
    box = Box(d, w, {"allow": ["web.test", "echo.test:7"]})
    got = {}
    t = threading.Thread(target=lambda: got.update(text=box.one("follow", "web.test", 80, HELLO.format("forever", "web.test"), "begun", "/tmp/begun")))
    t.start()
    host.wait_for(lambda: d.get(f"/v1/sandboxes/{box.id}/files?path=/tmp/begun").status == 200, 20, "the beginning of the answer")
    os.kill(d.children()["egress"], signal.SIGKILL)
    t.join(30)
    w.web.release.set()
    assert not t.is_alive() and got["text"].endswith("begun\n[reset]"), got
    host.wait_for(lambda: box.one("knock", "echo.test", 7) == "came back", 30, "the network after egress was killed")
    w.web.release.clear()
    refused(box.one("knock", "other.test", 80))
    assert d.delete(f"/v1/sandboxes/{box.id}").status == 204


if (OTHERS / "net_p.py").exists():
    @pytest.mark.parametrize("user", ["user", "root"])
    def test_the_probes_written_apart_from_this_code_are_closed(d, w, user):
        box = Box(d, w, {"allow": ["allowed.test"]})
        r = d.request("PUT", f"/v1/sandboxes/{box.id}/files?path=/tmp/net_p.py", (OTHERS / "net_p.py").read_bytes())
        assert r.status == 200, r
        r = d.exec(box.id, PYTHON, "/tmp/net_p.py", env={"PROXY": "198.18.0.1:3128", "DNS": "198.18.0.1"}, user=user, timeout=120)
        assert r["exit_code"] == 0 and "SUMMARY open 0" in r["stdout"] and r["stdout"].count("CLOSED") >= 33, r["stdout"]
        assert d.delete(f"/v1/sandboxes/{box.id}").status == 204
