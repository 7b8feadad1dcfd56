"""The test servers do what the other tests build on: a test that passes because its server is broken proves nothing."""
import json
import socket
import ssl
import subprocess
import urllib.request

import pytest

import net_dns
from net_world import World

PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def w():
    with World() as one:
        yield one


@pytest.fixture
def nothing_is_left_behind():
    """The world stays for all tests of this module."""


def fetch(w, url, name, **kw):
    """`url` by its address, with the name's certificate and Host."""
    s = w.sites[name]
    secure = url.startswith("https")
    r = subprocess.run(["curl", "-sS", "--cacert", str(w.ca.cert), "--resolve", f"{name}:{443 if secure else 80}:{s.address}", *kw.get("more", []),
                        url], capture_output=True, timeout=20, check=False)
    return r.returncode, r.stdout


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_site_says_who_it_is(w, scheme):
    code, out = fetch(w, f"{scheme}://web.test/hello", "web.test")
    assert code == 0 and json.loads(out)["site"] == "web.test" and json.loads(out)["tls"] == (scheme == "https")
    assert w.web.requests[-1] == ("GET", "/hello", "web.test")


def test_a_stranger_to_the_ca_does_not_trust_it(w):
    s = w.web
    with socket.create_connection((s.address, 443), 5) as raw, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(raw, server_hostname="web.test")


def test_bytes_echo_and_redirects(w):
    assert len(fetch(w, "http://web.test/bytes/1000000", "web.test")[1]) == 1000000
    assert fetch(w, "http://web.test/echo", "web.test", more=["-d", "abc"])[1] == b"abc"
    code, out = fetch(w, "http://web.test/redirect?to=http://inside.test/", "web.test", more=["-w", "%{redirect_url}"])
    assert code == 0 and out == b"http://inside.test/"


def test_ipv6_is_served(w):
    with urllib.request.urlopen(f"http://[::1]:{w.six.port}/hello", timeout=5) as r:
        assert json.load(r)["site"] == "six.test"


def test_echo_ends_when_the_client_does(w):
    with socket.create_connection((w.echo.address, w.echo.port), 5) as s:
        s.sendall(b"x" * 100000)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while piece := s.recv(65536):
            got += piece
    assert got == b"x" * 100000


@pytest.mark.parametrize("tcp", [False, True])
def test_names_are_rebound_query_by_query(w, tcp):
    w.names.set("rebound.test", ["192.0.2.1"], ["127.0.0.1", "169.254.169.254"])
    ask = lambda name, kind=net_dns.A: net_dns.ask(w.at(53), 53, name, kind, tcp)
    assert ask("rebound.test") == (0, ["192.0.2.1"])
    assert ask("rebound.test") == ask("REBOUND.test") == (0, ["127.0.0.1", "169.254.169.254"])
    assert ask("rebound.test", net_dns.AAAA) == (0, [])
    assert ask("never.test") == (net_dns.NXDOMAIN, [])
    assert ("never.test", net_dns.A) in w.names.asked()
    w.names.set("alias.test", ["real.test", "192.0.2.2"])
    assert ask("alias.test") == (0, ["192.0.2.2"])


def test_pip_npm_and_git_are_content_with_it(w, tmp_path):
    """On the host itself, without names: the servers speak what these programs expect."""
    where = w.sites["pypi.test"].address
    subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--trusted-host", where,
                    "--index-url", f"http://{where}/simple", "--target", str(tmp_path / "py"), "cloche-sample"], check=True, timeout=60)
    out = subprocess.run([PYTHON, "-c", "import cloche_sample; print(cloche_sample.ANSWER)"], env={"PYTHONPATH": str(tmp_path / "py")},
                         capture_output=True, check=True, timeout=20).stdout
    assert out == b"42\n"
    (tmp_path / "js").mkdir()
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--registry", f"http://{w.sites['npm.test'].address}/", "cloche-sample"],
                   cwd=tmp_path / "js", env=env, check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert (tmp_path / "js/node_modules/cloche-sample/index.js").read_text() == "module.exports = 42\n"
    subprocess.run(["git", "clone", "-q", f"http://{w.sites['git.test'].address}/git/sample.git", str(tmp_path / "clone")], env=env, check=True,
                   timeout=60)
    assert (tmp_path / "clone/README").read_text() == "version 2\n"


def test_an_unending_answer_waits_to_be_let_go(w):
    with socket.create_connection((w.web.address, 80), 5) as s:
        s.sendall(b"GET /forever HTTP/1.1\r\nHost: web.test\r\n\r\n")
        assert w.web.held.wait(5)
        w.web.release.set()
        got = b""
        while piece := s.recv(4096):
            got += piece
    assert got.endswith(b"begun\nended\n")
    w.web.held.clear()
    w.web.release.clear()
