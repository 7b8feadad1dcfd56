"""The network of machines: what is let out and what is not, what is told of it, changes, copies, and servers inside."""
import hashlib
import http.client
import json
import os
import platform
import socket
import ssl
import subprocess
import threading
import time

import jsonschema
import pytest

import host
from api import error, eventually, nothing_is_left_behind, parallel  # noqa: F401
from daemon import Daemon
from net_site import PIECE
from net_world import World
from small_image import machine_image
from tier_suite import LONG, Tier

ALLOW = ["web.test", "echo.test:7"]
REFUSAL = json.loads((host.ROOT / "docs/openapi.json").read_text())["components"]["schemas"]["NetworkRefusal"]
AT_ONCE = 15  # seconds, emulated on a busy machine: what waits for an answer that never comes takes minutes


@pytest.fixture(scope="module")
def w(nothing_is_left_behind):  # noqa: F811
    with World() as one:
        yield one


@pytest.fixture(scope="module")
def tier(w):
    with Daemon(None, "--images", machine_image().parent, "--config", w.config("vm_ready = 0")) as d:
        yield Tier("vm", d, network={"allow": ALLOW})


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """net_peer.c: what is in the image has no resolver to trust (static glibc) and does not tell a reset from an end."""
    to = tmp_path_factory.mktemp("peer") / "peer"
    subprocess.run([f"{platform.machine()}-linux-musl-gcc", "-O2", "-static", "-o", to, host.ROOT / "tests/functional/net_peer.c"], check=True)
    return to.read_bytes()


@pytest.fixture(scope="module")
def box(tier, peer):
    """One for all: its policy is ALLOW again after each test."""
    b = tier.create()
    tier.call("PUT", b, "/files?path=/tmp/peer&mode=0755", peer)
    return b


@pytest.fixture(autouse=True)
def as_it_was(tier, box):
    yield
    tier.call("PUT", box, "/network", {"allow": ALLOW})
    for b in tier.d.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
        if b["id"] != box["id"]:
            tier.delete(b)


def dial(tier, box, to, port, ask=""):
    """What came, or the word for why nothing did; and that is known at once."""
    start = time.monotonic()
    r = tier.sh(box, f"printf '{ask}' | /tmp/peer {to} {port}", timeout=LONG)
    assert r["exit_code"] in (0, 1) and time.monotonic() - start < AT_ONCE, r
    return r["stdout"] if r["exit_code"] == 0 else r["stderr"].strip()


def get(tier, box, name):
    return '"site": "' + name in dial(tier, box, name, 80, f"GET /hello HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n")


def network(tier, box):
    return tier.call("GET", box, "/network?why").json


def whose(tier, box, tries):
    """The first refusal whose process the machine told in time: it has half a second, emulated on a busy machine."""
    for to, port in tries:
        key = to, None if dial(tier, box, to, port) == "lookup" else port
        r = host.wait_for(lambda: next((r for r in network(tier, box)["refusals"] if (r["to"], r["port"]) == key), None), LONG, "the refusal")
        if r["command"]:
            assert r["command"] == f"/tmp/peer {to} {port}" and r["pid"] and r["claimed"], r
            return r
    raise AssertionError("it never said")


def audit(tier, box, kind):
    return tier.d.get(f"/v1/audit?sandbox={box['id']}&kind={kind}&limit=1000").json["records"]


def held(tier, box, pipe):
    """A stream to echo.test, up; what is written into the pipe goes there."""
    x = tier.start(box, f"mkfifo {pipe}; sleep 1000 > {pipe} 2> /dev/null & echo first > {pipe} & exec /tmp/peer echo.test 7 < {pipe}")
    eventually(lambda: tier.output(box, x) == ["first"], LONG)
    return x


def with_nobody_yet(ask):
    try:
        return ask()
    except (ConnectionError, ssl.SSLEOFError):
        return None


def is_cut(tier, box, x):
    r = tier.call("GET", box, f"/execs/{x}/wait?timeout={LONG}").json
    assert r["state"] == "ended" and r["exit_code"] == 1 and "ECONNRESET" in r["stderr"], r


def test_what_a_name_leads_to_arrives_whole_both_ways(tier, box):
    size = 4 << 20
    r = tier.sh(box, f"""
        printf 'GET /bytes/{size} HTTP/1.1\\r\\nHost: web.test\\r\\nConnection: close\\r\\n\\r\\n' | /tmp/peer web.test 80 | tail -c {size} | sha256sum
        head -c 3000000 /dev/urandom > /tmp/blob
        (printf 'POST /echo HTTP/1.1\\r\\nHost: web.test\\r\\nContent-Length: 3000000\\r\\nConnection: close\\r\\n\\r\\n'; cat /tmp/blob) |
            /tmp/peer web.test 80 | tail -c 3000000 | cmp - /tmp/blob && echo same
        /tmp/peer echo.test 7 < /tmp/blob | cmp - /tmp/blob && echo same""", timeout=LONG)
    want = hashlib.sha256(PIECE * (size // len(PIECE))).hexdigest()
    assert r["stdout"].split() == [want, "-", "same", "same"] and not r["stderr"], r
    counts = host.wait_for(lambda: (c := network(tier, box)["counts"])["bytes_in"] > size + 6000000 and not c["concurrent"] and c, LONG, "the counts")
    assert counts["connections"] == 3 and counts["bytes_out"] > 6000000 and counts["dns"] >= 3 and not counts["refused"], counts
    streams = host.wait_for(lambda: len(s := audit(tier, box, "network.stream")) == 3 and s, LONG, "the records")
    assert {(s["name"], s["port"], s["verdict"]) for s in streams} == {("web.test", 80, "ok"), ("echo.test", 7, "ok")}, streams


def test_no_question_is_lost_when_there_are_many_at_once(tier, box):
    assert tier.sh(box, "/tmp/peer -q 100", timeout=LONG)["stdout"] == "100\n"


def test_what_is_refused_is_refused_at_once_and_told(tier, box, w):
    before = w.web.requests[:], w.host.connections
    assert dial(tier, box, "git.test", 80) == "lookup"
    assert dial(tier, box, "web.test", 8080) == "ECONNRESET"
    for address, port in (("10.1.2.3", 5432), ("9.9.9.9", 853), ("169.254.169.254", 80), ("2001:db8::1", 443)):
        assert dial(tier, box, address, port) == "ECONNREFUSED", address  # at connect(), as in a container
        assert (address, port) in {(r["to"], r["port"]) for r in network(tier, box)["refusals"]}, address  # as soon as the command has ended
    assert dial(tier, box, "127.0.0.1", w.host.port) == "ECONNREFUSED"  # its own, where nobody listens

    def seen():
        found = {(r["to"], r["port"]): r for r in network(tier, box)["refusals"]}
        return found if {("git.test", None), ("web.test", 8080), ("10.1.2.3", 5432), ("9.9.9.9", 853), ("2001:db8::1", 443)} <= set(found) else None

    found = host.wait_for(seen, LONG, "all refusals")
    assert found["9.9.9.9", 853]["pid"] is None, found  # its own kernel refused that
    assert found["9.9.9.9", 853]["rule"] == "9.9.9.9:853" and found["10.1.2.3", 5432]["rule"] is None and found["git.test", None]["what"] == "lookup"
    counts = host.wait_for(lambda: (c := network(tier, box)["counts"])["refused"] and c["dns_refused"] and c, LONG, "the counts")
    assert not counts["concurrent"], counts
    assert host.wait_for(lambda: {r["name"] for r in audit(tier, box, "network.lookup")}, LONG, "its record") == {"git.test"}
    refused = host.wait_for(lambda: audit(tier, box, "network.refused"), LONG, "its record")
    assert [(r["name"], r["port"]) for r in refused] == [("web.test", 8080)], refused
    # Whose it was is known inside alone, and the machine says it.
    told = whose(tier, box, [("web.test", 8080 + n) for n in range(20)]), whose(tier, box, [(f"git{n}.test", 80) for n in range(20)])
    for one in (*told, *found.values()):
        jsonschema.validate(one, REFUSAL)
    assert (w.web.requests, w.host.connections) == before


def test_other_rules_are_in_force_while_it_runs(tier, box, w):
    x = held(tier, box, "/tmp/a")
    tier.call("PUT", box, "/network", {"allow": ["other.test"]})
    is_cut(tier, box, x)
    assert get(tier, box, "other.test") and not get(tier, box, "web.test")
    tier.call("PUT", box, "/network", {"mode": "none"})
    asked = len(w.other.requests)
    assert not get(tier, box, "other.test") and not get(tier, box, "web.test") and dial(tier, box, "9.9.9.9", 53) == "ECONNREFUSED"
    tier.call("PUT", box, "/network", {"mode": "open"})
    assert get(tier, box, "other.test") and len(w.other.requests) == asked + 1
    assert not get(tier, box, "inside.test")  # nobody may, in any mode


def test_a_copy_has_the_policy_and_none_of_the_connections(tier, box):
    x = held(tier, box, "/tmp/b")
    n, = tier.restore(tier.checkpoint(box, memory=True))
    own, = n["restored"]["execs"]
    is_cut(tier, n, own)
    assert network(tier, n)["state"] == "in force" and n["network"] == {"mode": "allow", "allow": ALLOW}
    assert get(tier, n, "web.test") and not get(tier, n, "other.test")
    assert dial(tier, n, "9.9.9.9", 853) == "ECONNREFUSED"
    tier.sh(box, "echo second > /tmp/b")  # what it is a copy of goes on
    eventually(lambda: tier.output(box, x) == ["first", "second"], LONG)
    tier.call("DELETE", box, f"/execs/{x}")
    assert get(tier, box, "web.test")


def test_secrets_are_given_masked_and_added_outside_of_it(tier, peer):
    value = "hunter22-of-a-machine"
    assert tier.d.put("/v1/secrets/KEY", {"value": value}).status == 201
    ways = [{"name": "KEY", "as": "env"}, {"name": "KEY", "as": "file"}, {"name": "KEY", "as": "header", "to": "other.test"}]
    n = tier.create(secrets=ways, network={"allow": ["other.test"]})
    assert tier.sh(n, "echo $KEY; cat /run/secrets/KEY; stat -c %a /run/secrets/KEY", timeout=LONG)["stdout"] == "***\n***400\n"
    spelled = tier.sh(n, "(echo $KEY; cat /run/secrets/KEY) | sed 's/./& /g'", timeout=LONG)["stdout"].replace(" ", "")
    assert spelled.split() == [value, value]
    # Nothing in the image speaks TLS: we do, through the machine.
    tier.call("PUT", n, "/files?path=/tmp/peer&mode=0755", peer)
    tier.start(n, "exec nc -ll -p 8003 -e /tmp/peer other.test 443")
    trust = ssl.create_default_context(cadata=tier.sh(n, "cat $SSL_CERT_FILE", timeout=LONG, output_limit=1 << 20)["stdout"])
    with subprocess.Popen([str(host.CLOCHE), "port-forward", n["id"], "0:8003"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env=tier.d.environment()) as p:
        try:
            port = int(p.stdout.readline().split(" ")[0].split(":")[1])

            def ask():
                with socket.create_connection(("127.0.0.1", port), timeout=LONG) as s, trust.wrap_socket(s, server_hostname="other.test") as tls:
                    tls.sendall(b"GET /hello HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n")
                    answer = http.client.HTTPResponse(tls)
                    answer.begin()
                    return json.loads(answer.read())

            got = host.wait_for(lambda: with_nobody_yet(ask), LONG, "the answer")
        finally:
            p.kill()
    assert got["site"] == "other.test" and got["headers"]["Authorization"] == "Bearer " + "*" * len(value), got  # it was sent, and masked in the answer
    assert any("KEY" in r.get("secrets", "") for r in host.wait_for(lambda: audit(tier, n, "network.stream"), LONG, "the record"))


def test_a_machine_made_without_a_network_has_no_way_out_until_it_is_given_one(tier, peer, w):
    n = tier.create(network="none")
    tier.call("PUT", n, "/files?path=/tmp/peer&mode=0755", peer)
    before = w.web.requests[:], w.host.connections
    assert dial(tier, n, "web.test", 80) == "lookup" and dial(tier, n, "9.9.9.9", 853) == "ENETUNREACH" == dial(tier, n, "2001:db8::1", 443)
    c = tier.checkpoint(n, memory=True)
    tier.call("PUT", n, "/network", {"allow": ALLOW})
    assert get(tier, n, "web.test") and not get(tier, n, "other.test") and dial(tier, n, "9.9.9.9", 853) == "ECONNREFUSED"
    host.wait_for(lambda: ("9.9.9.9", 853) in {(r["to"], r["port"]) for r in network(tier, n)["refusals"]}, LONG, "what it was refused")
    # With one it is copied with one; what was made of it before has none, or what is asked for.
    x = held(tier, n, "/tmp/c")
    copy, = tier.restore(tier.checkpoint(n, memory=True))
    is_cut(tier, copy, copy["restored"]["execs"][0])
    assert get(tier, copy, "web.test") and tier.output(n, x) == ["first"]
    requests = len(w.web.requests)
    none, = tier.restore(c)
    assert dial(tier, none, "web.test", 80) == "lookup" and dial(tier, none, "9.9.9.9", 853) == "ENETUNREACH"
    assert len(w.web.requests) == requests and w.host.connections == before[1]
    tier.call("PUT", none, "/network", {"mode": "open"})
    assert get(tier, none, "other.test")


def test_servers_inside_are_reached_by_the_proxy_and_by_forwarding(tier, box):
    at = f"/v1/sandboxes/{box['id']}/ports"
    e = error(tier.d.get(f"{at}/8001/x"), 502, "lost")
    assert "no server listens on port 8001" in e["message"], e
    data = os.urandom(2 << 20)
    tier.call("PUT", box, "/files?path=/tmp/www/blob&mkdirs=1", data)
    web = tier.start(box, "httpd -f -p 8001 -h /tmp/www")
    eventually(lambda: tier.d.get(f"{at}/8001/blob").status == 200, LONG)
    assert tier.d.get(f"{at}/8001/blob").body == data and tier.d.get(f"{at}/8001/none").status == 404
    echo = tier.start(box, "/tmp/peer -l 8002")
    eventually(lambda: tier.output(box, echo) == ["listening"], LONG)
    with subprocess.Popen([str(host.CLOCHE), "port-forward", box["id"], "0:8002"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=tier.d.environment()) as p:
        try:
            port = int(p.stdout.readline().split(" ")[0].split(":")[1])

            def one(i):
                mine = data[i:200000 * (i + 1)]
                with socket.create_connection(("127.0.0.1", port), timeout=LONG) as s, s.makefile("rb") as got:
                    t = threading.Thread(target=lambda: (s.sendall(mine), s.shutdown(socket.SHUT_WR)))
                    t.start()
                    assert got.read() == mine + b"end\n"
                    t.join()

            parallel(6, one)
            # A copy has the server, and serves those who come to it; who was connected stays with the first.
            with socket.create_connection(("127.0.0.1", port), timeout=LONG) as s:
                s.sendall(b"before")
                assert s.recv(6, socket.MSG_WAITALL) == b"before"
                n, = tier.restore(tier.checkpoint(box, memory=True))
                assert tier.d.get(f"/v1/sandboxes/{n['id']}/ports/8001/blob").body == data
                s.sendall(b"after")
                assert s.recv(5, socket.MSG_WAITALL) == b"after"
            for x in (web, echo):
                tier.call("DELETE", box, f"/execs/{x}")
            with pytest.raises(ConnectionResetError):
                with socket.create_connection(("127.0.0.1", port), timeout=LONG) as s:
                    assert s.recv(1) != b""
        finally:
            p.kill()
