"""Servers inside sandboxes, reached from outside: by path, by host, as a connection; who may; and servers that mean harm."""
import hashlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import pytest

import api
import host
from api import As, Raw, WebSocket, as_tenant, error, eventually, nothing_is_left_behind, parallel, place, token  # noqa: F401
from daemon import Daemon

SERVER = pathlib.Path(__file__).with_name("port_server.py").read_text()
DOMAIN = "ports.test"


@pytest.fixture(scope="module")
def d(nothing_is_left_behind, tmp_path_factory):  # noqa: F811
    conf = tmp_path_factory.mktemp("conf") / "serve.conf"
    conf.write_text(f"ports_domain = {DOMAIN}\n")
    with Daemon(None, "--config", conf) as one:
        yield one


def server(d, box, port, address="127.0.0.1"):
    """Starts one inside; it listens when this returns."""
    r = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", SERVER, str(port), address], "background": True, "timeout": 0})
    assert r.status in (200, 201, 202), r
    x = r.json["id"]
    eventually(lambda: "listening" in d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body.decode(), 20)
    return x


@pytest.fixture(scope="module")
def box(d):
    b = d.create(name="web")["id"]
    server(d, b, 8000)
    return b


@pytest.fixture(scope="module")
def at(box):
    return f"/v1/sandboxes/{box}/ports/8000"


def host_of(box, port=8000):
    return f"{port}-{box}.{DOMAIN}"


def names(seen):
    return {k.lower() for k, _ in seen["headers"]}


def value(seen, name):
    return [v for k, v in seen["headers"] if k.lower() == name.lower()]


# --- what is passed on ---

def test_a_request_arrives_as_it_was_sent_and_the_answer_too(d, at):
    r = d.post(at + "/a//b/../%2f?x=%zz&y", b"body", headers={"X-Own": "yes", "Cookie": "a=1; b=2", "Connection": "X-Hop", "X-Hop": "1", "X-Forwarded-For": "6.6.6.6",
                                                            "Forwarded": "for=6.6.6.6", "Via": "evil", "X-Real-IP": "6.6.6.6", "TE": "trailers", "Content-Type": "x/y"})
    assert r.status == 200, r
    seen = r.json
    assert (seen["method"], seen["target"], seen["body"], seen["peer"]) == ("POST", "/a//b/../%2f?x=%zz&y", "body", "127.0.0.1")
    assert value(seen, "x-own") == ["yes"] and value(seen, "cookie") == ["a=1; b=2"] and value(seen, "content-type") == ["x/y"]
    assert value(seen, "host") == ["localhost:8000"] and value(seen, "x-forwarded-prefix") == [at]
    assert value(seen, "x-forwarded-for") == ["127.0.0.1"] and value(seen, "x-forwarded-proto") == ["http"] and len(value(seen, "x-forwarded-host")) == 1
    assert not names(seen) & {"x-hop", "forwarded", "via", "x-real-ip", "te", "authorization", "x-cloche-port-token"}
    assert value(seen, "connection") == ["close"]


def test_a_path_needs_its_slash_and_a_port_is_a_port(d, box, at):
    assert d.get(at).json["port"] == 8000  # the port itself, not what is behind it
    assert d.get(at + "/").json["target"] == "/"
    assert d.get(at + "/?").json["target"] == "/?"
    for bad in ("0", "65536", "x", "08000", "-1"):
        assert d.get(f"/v1/sandboxes/{box}/ports/{bad}/").status in (400, 404)
    assert d.get("/v1/sandboxes/web/ports/8000/by-name").json["target"] == "/by-name"
    error(d.get("/v1/sandboxes/nothing/ports/8000/"), 404, "not_found")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_any_method_passes(d, at, method):
    assert d.request(method, at + "/m").json["method"] == method


def test_head_has_the_length_and_no_body(d, at):
    r = d.request("HEAD", at + "/h")
    assert r.status == 200 and r.body == b"" and r.headers["X-Length"]


def test_chunks_ends_by_closing_and_empty_answers(d, at):
    assert d.get(at + "/chunked").body == b"one two three"
    assert d.get(at + "/close").body == b"until the end"
    r = d.get(at + "/empty")
    assert r.status == 204 and r.body == b""


def test_one_connection_serves_many_requests(d, at):
    c = http.client.HTTPConnection(*place(d), timeout=30)
    for i in range(20):
        c.request("POST" if i % 2 else "GET", f"{at}/{i}", b"x" * i if i % 2 else None, {"Authorization": f"Bearer {d.token}"})
        seen = json.loads(c.getresponse().read())
        assert seen["target"] == f"/{i}" and len(seen["body"]) == (i if i % 2 else 0)
    c.close()


def test_big_bodies_pass_both_ways(d, at):
    data = os.urandom(1 << 20) * 48
    r = d.post(at + "/upload", data)
    assert r.json == {"n": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    r = d.get(at + f"/download?{48 << 20}")
    assert len(r.body) == 48 << 20 and r.body[:65536] == bytes(range(256)) * 256 and r.headers["Content-Type"] == "application/x-own"


def test_a_chunked_upload_passes(d, at):
    c = http.client.HTTPConnection(*place(d), timeout=30)
    pieces = [os.urandom(n) for n in (1, 70000, 3, 200000)]
    c.request("POST", at + "/upload", iter(pieces), {"Authorization": f"Bearer {d.token}", "Expect": "100-continue"}, encode_chunked=True)
    assert json.loads(c.getresponse().read()) == {"n": sum(map(len, pieces)), "sha256": hashlib.sha256(b"".join(pieces)).hexdigest()}
    c.close()


def test_a_client_that_does_not_read_costs_little_memory(d, at):
    before = api.rss(d.children()["api"])
    with Raw(d, "GET", at + f"/download?{512 << 20}") as raw:
        assert raw.head()[0] == 200
        for _ in range(20):  # the others are served meanwhile
            assert d.get(at + "/x").status == 200
        grown = api.rss(d.children()["api"]) - before
        got = raw.f.read(8 << 20)
        assert len(got) == 8 << 20
    assert grown < 32 << 20, grown


def test_an_answer_before_the_body_was_read_arrives(d, at):
    with Raw(d, "POST", at + "/early", None, {"Content-Length": "1000000"}) as raw:
        raw.s.sendall(b"x" * 1000)
        status, head = raw.head()
        assert status == 413 and raw.f.read(int(head["content-length"])) == b"too much"


def test_a_websocket_echoes(d, at):
    with WebSocket(d, at + "/ws") as ws:
        assert ws.status == 101
        for data in (b"a", os.urandom(300), os.urandom(1 << 20)):
            ws.send(data)
            assert ws.receive() == data
        ws.frame(8, b"\x03\xe8")
        assert ws.receive() is None and ws.closed == 1000


def test_a_server_that_takes_no_upgrade_answers_as_usual(d, at):
    with WebSocket(d, at + "/no") as ws:
        assert ws.status == 200
        seen = json.loads(ws.raw.f.read(int(ws.headers["content-length"])))
        assert value(seen, "upgrade") == ["websocket"] and value(seen, "connection") == ["Upgrade"]


def test_many_at_once(d, at):
    def one(i):
        return d.post(f"{at}/{i}", b"x" * 1000 * i).json

    for i, seen in enumerate(parallel(24, one)):
        assert seen["target"] == f"/{i}" and len(seen["body"]) == 1000 * i


# --- where it listens ---

@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_wherever_it_listens_it_is_found(d, box, address):
    port = 8100 + ["127.0.0.1", "0.0.0.0", "::1", "::"].index(address)
    server(d, box, port, address)
    assert d.get(f"/v1/sandboxes/{box}/ports/{port}/").json["peer"] == ("::1" if ":" in address else "127.0.0.1")


def test_nobody_listens(d, box):
    e = error(d.get(f"/v1/sandboxes/{box}/ports/9/"), 502, "lost")
    assert "no server listens on port 9" in e["message"] and "start the server inside" in e["remedy"]


def test_servers_of_the_host_are_not_reached(d, box):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        error(d.get(f"/v1/sandboxes/{box}/ports/{outside.getsockname()[1]}/"), 502, "lost")


def test_a_sleeping_sandbox_is_woken_and_a_paused_one_is_not(d):
    b = d.create()["id"]
    server(d, b, 8000)
    at = f"/v1/sandboxes/{b}/ports/8000/"
    assert d.post(f"/v1/sandboxes/{b}/hibernate").status == 200
    assert d.get(f"/v1/sandboxes/{b}").json["state"] == "hibernated"
    assert d.get(at).json["target"] == "/"
    assert d.get(f"/v1/sandboxes/{b}").json["state"] == "running"
    assert d.post(f"/v1/sandboxes/{b}/pause").status == 200
    error(d.get(at), 409, "conflict")
    d.delete(f"/v1/sandboxes/{b}")
    error(d.get(at), 404, "not_found")


def test_a_sandbox_that_goes_takes_its_connections_along(d):
    b = d.create()["id"]
    server(d, b, 8000)
    with WebSocket(d, f"/v1/sandboxes/{b}/ports/8000/ws") as ws:
        ws.send(b"x")
        assert ws.receive() == b"x"
        assert d.delete(f"/v1/sandboxes/{b}").status == 204
        try:
            assert ws.raw.f.read(1) == b""
        except ConnectionResetError:
            pass


# --- servers that mean harm ---

@pytest.mark.parametrize("path, why", [("/silent", "closed"), ("/bad", "not HTTP/1.1"), ("/split", "head"), ("/long", "head")])
def test_what_is_no_proper_answer_is_not_passed_on(d, at, path, why):
    r = d.get(at + path)
    e = error(r, 502, "lost")
    assert why in e["message"] and "Set-Cookie" not in r.headers and "X-A" not in r.headers


def test_half_an_answer_is_no_whole_one(d, at):
    with pytest.raises(http.client.IncompleteRead):
        d.get(at + "/cut")


def test_by_path_a_page_can_not_speak_for_our_origin(d, at):
    r = d.get(at + "/tricks")
    assert r.status == 302 and r.reason == "Whatever" and r.headers["Location"] == at + "/next?x=1"
    assert r.headers.get_all("Set-Cookie") == [f"a=1; HttpOnly; Path={at}/"]
    assert r.headers["Content-Security-Policy"].startswith("sandbox allow-scripts") and "allow-same-origin" not in r.headers["Content-Security-Policy"]
    assert r.headers["Server"] == "own" and not {"Clear-Site-Data", "X-Hop", "Keep-Alive", "X-Cloche-Audit"} & set(r.headers)


def test_by_host_it_is_its_own_origin(d, box):
    r = d.get("/tricks", headers={"Host": host_of(box)})
    assert r.status == 302 and r.headers["Location"] == "/next?x=1"
    assert r.headers.get_all("Set-Cookie") == ["a=1; Path=/; HttpOnly"]
    assert not {"Content-Security-Policy", "X-Cloche-Audit"} & set(r.headers) and r.headers["Clear-Site-Data"] == "*"


def test_by_host_everything_below_it_is_the_servers(d, box):
    for path in ("/", "/v1/sandboxes", "/v1/sandboxes/x/ports/9/y", "/healthz"):
        for host in (host_of(box), host_of(box).upper() + ":7070"):
            seen = d.get(path, headers={"Host": host}).json
            assert seen["target"] == path and value(seen, "host") == [host] and value(seen, "x-forwarded-host") == [host]
            assert "x-forwarded-prefix" not in names(seen)
    for host in (DOMAIN, "x." + DOMAIN, f"8000-short.{DOMAIN}", f"0-{box}.{DOMAIN}", f"8000-{box}.{DOMAIN}.evil", f"8000-{box}.x{DOMAIN}"):
        assert d.get("/healthz", headers={"Host": host}).json.get("method") is None


# --- who may ---

def test_without_a_token_it_is_private(d, box, at):
    for headers, path in (({}, at + "/"), ({"Host": host_of(box)}, "/"), ({"X-Cloche-Port-Token": "x"}, at + "/"), ({"Cookie": "cloche_port=x"}, at + "/"), ({}, at + "/?cloche_token=x")):
        r = d.get(path, token=None, headers=headers)
        error(r, 401, "unauthorized")
        assert r.headers["WWW-Authenticate"] == "Bearer"
    # Who may not know of a sandbox does not learn of it.
    assert d.get("/v1/sandboxes/0000aaaaaaaaaaaaaaaaaaaa/ports/1/", token=None).status == 401
    other = as_tenant(d, "stranger")
    error(other.get(at + "/"), 404, "not_found")
    reader = As(d, token(d, scope="read")["token"])
    error(reader.get(at + "/"), 403, "denied")


def test_our_token_is_not_told_inside_and_others_are(d, box, at):
    b, p = d.create()["id"], {"public": True}
    server(d, b, 8000)
    path = f"/v1/sandboxes/{b}/ports/8000"
    assert d.put(path, p).json["public"] is True
    for bearer in (d.token, token(d, scope="read")["token"], as_tenant(d, "elsewhere").token, "cloche_old"):
        assert "authorization" not in names(d.get(path + "/", token=bearer).json)
    for own in ("Bearer abc", "Basic eDp5"):
        assert value(d.get(path + "/", token=None, headers={"Authorization": own}).json, "authorization") == [own]
    d.delete(f"/v1/sandboxes/{b}")


def test_what_a_token_began_ends_with_it(d, at):
    k = token(d, scope="exec")
    seen = As(d, k["token"])
    seen.url = d.url
    with Raw(seen, "GET", at + f"/download?{1 << 30}") as raw, Raw(d, "GET", at + f"/download?{64 << 20}") as other:
        assert raw.head()[0] == other.head()[0] == 200
        assert d.delete(f"/v1/tokens/{k['id']}").status == 204
        n = 0
        try:
            while (more := len(raw.f.read(1 << 20))):
                n += more
        except ConnectionResetError:
            pass
        assert n < 256 << 20
        assert len(other.f.read(64 << 20)) == 64 << 20


def test_a_public_port_is_open_until_it_is_not(d, box, at):
    assert d.get(f"/v1/sandboxes/{box}/ports").json == {"ports": []}
    r = d.put(at, {"public": True})
    assert r.status == 200 and r.json == {**r.json, "port": 8000, "public": True, "has_token": False, "path": at + "/", "host": host_of(box)} and "token" not in r.json
    assert d.get(at + "/", token=None).json["target"] == "/"
    assert d.get("/", token=None, headers={"Host": host_of(box)}).json["target"] == "/"
    assert [p["port"] for p in d.get(f"/v1/sandboxes/{box}/ports").json["ports"]] == [8000]
    assert d.get(f"/v1/sandboxes/{box}/ports/8001/", token=None).status == 401
    assert d.get("/v1/sandboxes/web/ports/8000/", token=None).status == 401  # names are a tenant's own
    fork = d.post(f"/v1/sandboxes/{box}/fork", {"memory": "auto"}).json["sandboxes"][0]["id"]
    assert d.get(f"/v1/sandboxes/{fork}/ports").json == {"ports": []}
    d.delete(f"/v1/sandboxes/{fork}")
    assert d.delete(at).status == 204 and d.delete(at).status == 204
    assert d.get(at + "/", token=None).status == 401
    records = [r for r in d.get("/v1/audit?limit=1000").json["records"] if r.get("sandbox") == box and r["kind"].startswith("port.")]
    assert {"port.set", "port.remove"} <= {r["kind"] for r in records}
    assert all(isinstance(r["token"], str) for r in records if r["kind"] == "port.set")  # whose call it was; no key stands twice


def test_who_used_a_port_is_in_the_audit_log_once_and_then_how_often(d):
    box = d.create()["id"]
    server(d, box, 8000)
    at = f"/v1/sandboxes/{box}/ports/8000"

    def uses():
        return [(r["by"], r["port"], r["requests"]) for r in d.get("/v1/audit?limit=1000").json["records"]
                if r.get("sandbox") == box and r["kind"] == "port.use"]

    assert uses() == []
    assert d.get(at + "/").status == 200 and uses() == [("api", 8000, 1)]
    for _ in range(4):
        assert d.get(at + "/").status == 200
    d.put(at, {"public": True})
    for _ in range(3):
        assert d.get(at + "/", token=None).status == 200
    assert d.get(f"/v1/sandboxes/{box}/ports/8001/", token=None).status == 401
    assert sorted(uses()) == [("api", 8000, 1), ("public", 8000, 1)]  # the others follow within a minute, or with the end
    d.delete(f"/v1/sandboxes/{box}")
    assert sorted(uses()) == [("api", 8000, 1), ("api", 8000, 4), ("public", 8000, 1), ("public", 8000, 2)]


def test_a_ports_own_token_leads_to_it_and_nowhere_else(d, box, at):
    r = d.put(at, {"token": True})
    own = r.json["token"]
    assert own.startswith("cloche_port_") and r.json["has_token"] and not r.json["public"]
    assert "token" not in d.get(at).json
    for kw in ({"token": own}, {"token": None, "headers": {"X-Cloche-Port-Token": own}}, {"token": None, "headers": {"Cookie": f"a=1; cloche_port={own}; b=2"}}):
        seen = d.get(at + "/?q=1", **kw).json
        assert own not in json.dumps(seen)
    assert value(seen, "cookie") == ["a=1; b=2"]
    seen = d.get(at + "/", token=None, headers={"X-Cloche-Port-Token": own, "Authorization": "Bearer theirs"}).json
    assert value(seen, "authorization") == ["Bearer theirs"] and "x-cloche-port-token" not in names(seen)
    for path in (f"/v1/sandboxes/{box}/ports/8001/", "/v1/sandboxes", f"/v1/sandboxes/{box}", f"/v1/sandboxes/{box}/tunnels/8000"):
        assert d.get(path, token=own).status == 401
    new = d.put(at, {"token": True}).json["token"]
    assert new != own and d.get(at + "/", token=own).status == 401 and d.get(at + "/", token=new).status == 200
    d.put(at, {"public": True})
    assert d.get(at + "/", token=new).status == 200 and d.get(at).json["has_token"]
    assert d.put(at, {"public": False, "token": False}).json["has_token"] is False
    assert d.get(at + "/", token=new).status == 401
    d.delete(at)


def test_a_browser_gets_a_cookie_for_the_token_in_its_address(d, box, at):
    own = d.put(at, {"token": True}).json["token"]
    r = d.get(at + f"/page?a=1&cloche_token={own}&b=2", token=None)
    assert r.status == 303 and r.headers["Location"] == at + "/page?a=1&b=2"
    cookie = r.headers["Set-Cookie"]
    assert cookie == f"cloche_port={own}; Path={at}/; HttpOnly; SameSite=Lax"
    assert d.get(at + "/page", token=None, headers={"Cookie": cookie.split(";")[0]}).status == 200
    r = d.get(f"//evil.example/?cloche_token={own}", token=None, headers={"Host": host_of(box)})
    assert r.status == 303 and r.headers["Location"] == "/evil.example/" and "; Path=/;" in r.headers["Set-Cookie"]
    r = d.get(f"/\\\\evil.example/?cloche_token={own}", token=None, headers={"Host": host_of(box)})
    assert r.status == 303 and r.headers["Location"] == "\\evil.example/"
    seen = d.post(at + f"/p?cloche_token={own}&x=1", b"data", token=None).json
    assert seen["target"] == "/p?x=1" and seen["body"] == "data"
    d.delete(at)


def test_bad_settings_are_refused(d, box, at):
    for body in ({"public": 1}, {"token": "x"}, {"open": True}):
        error(d.put(at, body), 400, "invalid")
    error(d.put(f"/v1/sandboxes/{box}/ports/0", {}), 400, "invalid")
    error(As(d, token(d, scope="exec")["token"]).put(at, {"public": True}), 403, "denied")
    for i in range(64):
        assert d.put(f"/v1/sandboxes/{box}/ports/{20000 + i}", {"public": True}).status == 200
    error(d.put(f"/v1/sandboxes/{box}/ports/30000", {"public": True}), 429, "quota")
    for i in range(64):
        assert d.delete(f"/v1/sandboxes/{box}/ports/{20000 + i}").status == 204


# --- a connection ---

class Tunnel:
    def __init__(self, d, box, port):
        self.raw = Raw(d, "GET", f"/v1/sandboxes/{box}/tunnels/{port}", None, {"Content-Length": None, "Connection": "Upgrade", "Upgrade": "tcp"})
        self.status, self.headers = self.raw.head()


def echo(d, box, port, code):
    r = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", f"import socket\nl = socket.create_server(('127.0.0.1', {port}))\nprint('listening', flush=True)\n{code}"], "background": True, "timeout": 0})
    eventually(lambda: "listening" in d.get(f"/v1/sandboxes/{box}/execs/{r.json['id']}/output").body.decode(), 20)
    return r.json["id"]


def test_each_half_of_a_tunnel_ends_for_itself(d, box):
    echo(d, box, 8200, "s, _ = l.accept()\ndata = b''\nwhile True:\n  p = s.recv(65536)\n  if not p: break\n  data += p\ns.sendall(b'got %d' % len(data))\ns.close()")
    t = Tunnel(d, box, 8200)
    assert t.status == 101 and t.headers["upgrade"] == "tcp"
    t.raw.s.sendall(b"x" * 3000000)
    t.raw.s.shutdown(socket.SHUT_WR)
    assert t.raw.f.read() == b"got 3000000"
    t.raw.close()
    # The other way round: the server says all it will, then listens.
    x = echo(d, box, 8201, "s, _ = l.accept()\ns.sendall(b'hello')\ns.shutdown(1)\ndata = b''\nwhile True:\n  p = s.recv(65536)\n  if not p: break\n  data += p\nprint('heard', len(data))")
    t = Tunnel(d, box, 8201)
    assert t.raw.f.read() == b"hello"
    t.raw.s.sendall(b"y" * 2000000)
    t.raw.s.shutdown(socket.SHUT_WR)
    eventually(lambda: "heard 2000000" in d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body.decode(), 20)
    t.raw.close()


def test_a_tunnel_is_for_those_who_ask_for_one_and_may(d, box):
    r = d.get(f"/v1/sandboxes/{box}/tunnels/8000")
    assert "Upgrade: tcp" in error(r, 400, "invalid")["remedy"]
    t = Tunnel(d, box, 9)
    assert t.status == 502
    t.raw.close()
    reader = As(d, token(d, scope="read")["token"])
    assert reader.get(f"/v1/sandboxes/{box}/tunnels/8000").status == 403


# --- cloche port-forward ---

class Forward:
    def __init__(self, d, *args, env=None):
        self.p = subprocess.Popen([str(host.CLOCHE), "port-forward", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**d.environment(), **(env or {})})
        self.lines = [self.p.stdout.readline().strip() for _ in args[1:]]
        self.ports = [int(x.split(" ")[0].split(":")[1]) for x in self.lines if x]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.out, self.err = self.p.communicate()


def test_forwarded_connections_reach_the_server_and_end_as_they_should(d, box):
    x = echo(d, box, 8300, "import threading\ndef one(s):\n  n = 0\n  while True:\n    p = s.recv(65536)\n    if not p: break\n    n += len(p)\n    s.sendall(p)\n  s.sendall(b'end %d' % n)\n  s.close()\n"
             "while True:\n  s, _ = l.accept()\n  threading.Thread(target=one, args=(s,), daemon=True).start()")
    with Forward(d, "web", "0:8300", "0:8000") as f:
        assert [line.split(" -> ")[1] for line in f.lines] == ["8300", "8000"]

        def one(i):
            data = os.urandom(100000 * (i + 1))
            with socket.create_connection(("127.0.0.1", f.ports[0]), timeout=30) as s:
                t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
                t.start()
                with s.makefile("rb") as got:
                    assert got.read() == data + b"end %d" % len(data)
                t.join()

        parallel(8, one)
        c = http.client.HTTPConnection("127.0.0.1", f.ports[1], timeout=30)
        c.request("GET", "/direct")
        assert json.loads(c.getresponse().read())["target"] == "/direct"
        c.close()
        assert d.delete(f"/v1/sandboxes/{box}/execs/{x}").status in (200, 202, 204)
        with pytest.raises(ConnectionResetError):  # nobody listens any more
            with socket.create_connection(("127.0.0.1", f.ports[0]), timeout=30) as s:
                assert s.recv(1) != b""
    assert "no server listens on port 8300" in f.err


def test_forwarding_says_what_is_wrong_at_once(d, box):
    for args, what in ((("web",), "LOCAL"), (("web", "0"), "invalid port"), (("web", "x:1"), "invalid port"), (("nothing", "0:80"), "nothing")):
        r = d.cli("port-forward", *args)
        assert r.code == 125 and what in r.err.decode(), r
    with socket.create_server(("127.0.0.1", 0)) as taken:
        r = d.cli("port-forward", "web", f"{taken.getsockname()[1]}:80")
        assert r.code == 125 and "Address already in use" in r.err.decode(), r


# --- over restarts ---

def test_settings_and_servers_are_there_after_a_restart(d, box, at):
    own = d.put(at, {"token": True, "public": False}).json["token"]
    d.kill9("api")
    end = time.monotonic() + 30
    while True:
        try:
            if d.get(at + "/again", token=own).status == 200:
                break
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.05)
    assert d.get(at).json["has_token"] and d.get(at + "/", token=None).status == 401
    d.kill9("warden")
    assert d.get(at + "/warden").json["target"] == "/warden"
    d.delete(at)
    d.stop()
    d.start()
    assert d.get(at + "/after").json["target"] == "/after" and d.get(at).json["has_token"] is False
