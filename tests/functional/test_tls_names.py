"""TLS must say the name it was let through by: with real clients, through the API."""
import json

import pytest

from daemon import Daemon
from net_world import World

PYTHON = "/usr/bin/python3"
SHAKE = ("import socket,ssl,sys\nc = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE\n"
         "s = socket.create_connection((sys.argv[1], 443), 30)\n"
         "try: c.wrap_socket(s, server_hostname=sys.argv[2] if len(sys.argv) > 2 else None); print('shaken')\n"
         "except OSError as e: print(type(e).__name__)\n")
# A ClientHello by OpenSSL, with an extension that could be ECH put in: nothing that OpenSSL 3.0 makes by itself.
ECH = """
import socket, ssl, struct, sys
out, c = ssl.MemoryBIO(), ssl.create_default_context()
try: c.wrap_bio(ssl.MemoryBIO(), out, server_hostname=sys.argv[1]).do_handshake()
except ssl.SSLWantReadError: pass
b = out.read()[9:]
at = 34; at += 1 + b[at]; at += 2 + struct.unpack_from("!H", b, at)[0]; at += 1 + b[at]
more = bytes.fromhex("fe0d") + struct.pack("!H", 0xba) + b"\\0\\0\\1\\0\\1\\x2a\\0\\x20" + bytes(32) + b"\\0\\x90" + bytes(144)
b = b[:at] + struct.pack("!H", len(b) - at - 2 + len(more)) + b[at + 2:] + more
m = b"\\1\\0" + struct.pack("!H", len(b)) + b
s = socket.create_connection((sys.argv[1], 443), 30)
s.sendall(b"\\x16\\3\\1" + struct.pack("!H", len(m)) + m)
try: print("answered" if s.recv(1) == b"\\x16" else "ended")
except OSError as e: print(type(e).__name__)
"""


@pytest.fixture(scope="module")
def w():
    with World() as one:
        yield one


@pytest.fixture(scope="module")
def d(w):
    with Daemon(None, "--config", w.config()) as one:
        yield one


@pytest.fixture
def nothing_is_left_behind():
    """World and daemon stay for all tests of this module."""


def sh(d, box, script):
    r = d.exec(box, "/bin/sh", "-c", script)
    return r["stdout"] + r["stderr"]


def refusals(d, box):
    return d.get(f"/v1/sandboxes/{box}/network?why").json["refusals"]


def test_tls_without_a_name_is_refused_where_a_name_is_allowed_and_not_where_an_address_is(d, w):
    box = d.create(network={"allow": ["web.test", w.other.address]})["id"]
    assert json.loads(sh(d, box, "curl -sS -k https://web.test/hello"))["host"] == "web.test"
    said = sh(d, box, "openssl s_client -connect web.test:443 -servername web.test </dev/null 2>&1")
    assert "Test authority" in said, said
    said = sh(d, box, "openssl s_client -connect web.test:443 -noservername </dev/null 2>&1")
    assert "Test authority" not in said and "no peer certificate" in said, said
    assert d.exec(box, PYTHON, "-c", SHAKE, "web.test")["stdout"] == "ConnectionResetError\n"
    assert d.exec(box, PYTHON, "-c", SHAKE, "web.test", "web.test")["stdout"] == "shaken\n"
    # By address there is no name to say: curl sends none.
    assert json.loads(sh(d, box, f"curl -sS -k -x http://198.18.0.1:3128 https://{w.other.address}/hello"))["tls"]
    last = refusals(d, box)[0]
    assert last["to"] == "web.test" and last["rule"] is None and "without a server name" in last["reason"], last
    kept = d.get(f"/v1/audit?sandbox={box}&kind=network.refused&limit=10").json["records"]
    assert [k for k in kept if "without a server name" in k["reason"]], kept


def test_ech_is_refused_unless_the_rule_lets_it_through(d):
    box = d.create(network={"allow": ["web.test", "other.test+ech"]})["id"]
    assert d.exec(box, PYTHON, "-c", ECH, "web.test")["stdout"] == "ConnectionResetError\n"
    assert d.exec(box, PYTHON, "-c", ECH, "other.test")["stdout"] == "answered\n"
    last = refusals(d, box)[0]
    assert "ECH" in last["reason"] and "+terminate" in last["fix"], last
    assert d.get(f"/v1/sandboxes/{box}/network").json["policy"]["allow"] == ["web.test", "other.test+ech"]


def test_nothing_that_could_make_ech_is_learnt_by_dns(d):
    """HTTPS and SVCB records are where clients get the keys from: there are none."""
    ask = ("import socket,struct,sys\nfor t in (64, 65):\n s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(30)\n"
           " s.sendto(struct.pack('!6H', 7, 256, 1, 0, 0, 0) + b'\\3web\\4test\\0' + struct.pack('!2H', t, 1), ('198.18.0.1', 53))\n"
           " print(struct.unpack('!6H', s.recv(512)[:12])[3])")
    box = d.create(network={"allow": ["web.test"]})["id"]
    assert d.exec(box, PYTHON, "-c", ask)["stdout"] == "0\n0\n"


# --- TLS that is terminated by a rule ---

def test_a_rule_that_terminates_lets_no_other_host_through(d, w):
    plain = d.create(network={"allow": ["web.test"]})["id"]
    box = d.create(network={"allow": ["web.test+terminate"]})["id"]
    front = "curl -sS %s -H 'Host: other.test' -w '%%{http_code}' https://web.test/hello"
    assert sh(d, plain, front % "-k").endswith("200")  # what nobody on the way can see
    w.web.requests.clear()
    assert json.loads(sh(d, box, "curl -sS https://web.test/hello"))["host"] == "web.test"
    assert [r[2] for r in w.web.requests] == ["web.test"]
    assert sh(d, box, front % "").endswith("421")
    assert [r[2] for r in w.web.requests] == ["web.test"]
    assert json.loads(sh(d, box, "curl -sS http://web.test/hello"))["host"] == "web.test"
    # Neither a ClientHello without a name nor one that may hide one gets further than egress.
    assert d.exec(box, PYTHON, "-c", SHAKE, "web.test")["stdout"] == "shaken\n"
    assert d.exec(box, PYTHON, "-c", ECH, "web.test")["stdout"] == "answered\n"
    # Nor does what is neither TLS nor HTTP.
    talk = ("import socket; s = socket.create_connection(('web.test', 443), 30); s.sendall(b'\\1\\2\\3\\4 hello\\r\\n')\n"
            "try: print(s.recv(9))\nexcept OSError as e: print(type(e).__name__)")
    assert d.exec(box, PYTHON, "-c", talk)["stdout"] == "ConnectionResetError\n"
    assert "+terminate" in refusals(d, box)[0]["reason"]


def test_a_ca_is_made_with_the_sandbox_and_forks_have_their_own(d):
    plain = d.create(network={"allow": ["web.test"]})["id"]
    r = d.put(f"/v1/sandboxes/{plain}/network", {"allow": ["web.test+terminate"]})
    assert r.status == 409 and "+terminate" in r.json["error"]["message"], r
    box = d.create(network={"allow": ["web.test+terminate"]})["id"]
    assert d.put(f"/v1/sandboxes/{box}/network", {"allow": ["web.test"]}).status == 200
    assert d.put(f"/v1/sandboxes/{box}/network", {"allow": ["web.test:443+terminate"]}).status == 200
    r = d.post(f"/v1/sandboxes/{box}/fork", {})
    assert r.status == 201, r
    for one in (box, r.json["sandboxes"][0]["id"]):
        assert json.loads(sh(d, one, "curl -sS https://web.test/hello"))["host"] == "web.test"
