"""Programs as they are, inside a sandbox with a network: by themselves, and with the proxies that environments name."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import pytest

import host
from api import nothing_is_left_behind  # noqa: F401  pylint: disable=unused-import
from daemon import Daemon
from net_site import PIECE
from net_world import World

PYTHON = "/usr/bin/python3"
GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
JAVA = shutil.which("java") and shutil.which("javac")
HTTP_PROXY, SOCKS_PROXY = "http://198.18.0.1:3128", "socks5h://198.18.0.1:1080"
CA = "/tmp/ca.pem"
TRUST = {"SSL_CERT_FILE": CA, "CURL_CA_BUNDLE": CA, "REQUESTS_CA_BUNDLE": CA, "NODE_EXTRA_CA_CERTS": CA, "GIT_SSL_CAINFO": CA, "PIP_CERT": CA,
         "npm_config_cafile": CA, "HOME": "/tmp"}
WAYS = {
    "direct": {},
    "proxy": {"HTTP_PROXY": HTTP_PROXY, "http_proxy": HTTP_PROXY, "HTTPS_PROXY": HTTP_PROXY, "https_proxy": HTTP_PROXY},
    "socks": {"ALL_PROXY": SOCKS_PROXY, "all_proxy": SOCKS_PROXY, "HTTP_PROXY": SOCKS_PROXY, "http_proxy": SOCKS_PROXY, "HTTPS_PROXY": SOCKS_PROXY,
              "https_proxy": SOCKS_PROXY},
}


@pytest.fixture(scope="module")
def w():
    with World() as one:
        one.names.set("dual.test", [one.at(200), "::1"])  # nobody listens on the first
        yield one


@pytest.fixture(scope="module")
def d(nothing_is_left_behind, w):  # noqa: F811  pylint: disable=redefined-outer-name,unused-argument
    with Daemon(None, "--config", w.config()) as one:
        yield one


@pytest.fixture(scope="module")
def box(d, w):
    six = f"{w.six.port},{w.six.tls_port}"
    made = d.create(memory="1G", cpus=0, network={"allow": [*w.sites, "echo.test:7", f"six.test:{six}", f"dual.test:{six}"]})["id"]
    w.give_ca(d, made)
    return made


def run(d, box, *cmd, way="direct", **fields):
    r = d.exec(box, *cmd, env={**TRUST, **WAYS[way]}, timeout=60, **fields)
    assert r["exit_code"] == 0, r
    return r["stdout"]


def give(d, box, path, data, mode="0755"):
    r = d.request("PUT", f"/v1/sandboxes/{box}/files?path={path}&mode={mode}", data)
    assert r.status == 200, r


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_curl(d, box, scheme, way):
    got = json.loads(run(d, box, "curl", "-sS", f"{scheme}://web.test/hello", way=way))
    assert got["site"] == "web.test" and got["tls"] == (scheme == "https") and got["host"] == "web.test"


@pytest.mark.parametrize("way", WAYS)
def test_large_things_arrive_whole(d, box, way):
    size = 40_000_000
    want = hashlib.sha256((PIECE * (size // len(PIECE) + 1))[:size]).hexdigest()
    for scheme in ("http", "https"):
        got = run(d, box, "sh", "-c", f"curl -sS {scheme}://web.test/bytes/{size} | sha256sum", way=way)
        assert got.split()[0] == want
    got = run(d, box, "sh", "-c", "head -c 10000000 /dev/zero | curl -sS -H Expect: --data-binary @- http://web.test/echo | sha256sum", way=way)
    assert got.split()[0] == hashlib.sha256(bytes(10_000_000)).hexdigest()


@pytest.mark.parametrize("way", ["direct", "proxy"])
def test_python(d, box, way):
    script = ("import json, urllib.request as u\n"
              "from pip._vendor import requests\n"
              "for s in ('http', 'https'):\n"
              "    print(json.load(u.urlopen(s + '://web.test/hello', timeout=20))['site'], requests.get(s + '://web.test/hello', timeout=20).json()['site'])\n"
              "s = requests.Session()\n"
              "print([s.post('http://web.test/echo', data=b'x' * n, timeout=20).content == b'x' * n for n in (0, 1, 100000, 1000000)])\n"
              "print(s.post('http://web.test/redirect?to=http://web.test/hello', timeout=20).json()['path'])\n")
    assert run(d, box, PYTHON, "-c", script, way=way) == "web.test web.test\n" * 2 + "[True, True, True, True]\n/hello\n"


@pytest.mark.parametrize("way", ["direct", "proxy"])
def test_pip_install(d, box, way):
    script = (f"rm -rf /tmp/py && {PYTHON} -m pip install -q --no-cache-dir --disable-pip-version-check --index-url https://pypi.test/simple "
              f"--target /tmp/py cloche-sample && PYTHONPATH=/tmp/py {PYTHON} -c 'import cloche_sample; print(cloche_sample.ANSWER)'")
    assert run(d, box, "sh", "-c", script, way=way) == "42\n"


@pytest.mark.parametrize("way", ["direct", "proxy"])
def test_npm_install(d, box, way):
    script = ("rm -rf /tmp/js && mkdir /tmp/js && cd /tmp/js && npm install --no-audit --no-fund --no-update-notifier --registry https://npm.test/ "
              "--cache /tmp/npm cloche-sample >&2 && node -p 'require(\"cloche-sample\")'; rm -rf /tmp/npm")
    assert run(d, box, "sh", "-c", script, way=way) == "42\n"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_git_clone(d, box, scheme, way):
    script = f"rm -rf /tmp/clone && git clone -q {scheme}://git.test/git/sample.git /tmp/clone && cat /tmp/clone/README && git -C /tmp/clone log --oneline | wc -l"
    assert run(d, box, "sh", "-c", script, way=way) == "version 2\n2\n"


def test_node(d, box):
    script = ("const f = async (u) => (await (await fetch(u)).json()).site;"
              "(async () => { console.log(await f('http://web.test/hello'), await f('https://web.test/hello'));"
              " console.log((await Promise.all(Array.from({length: 20}, () => f('https://web.test/hello')))).length);"
              " require('https').get('https://web.test/hello', (r) => { r.resume(); console.log(r.statusCode) }) })()")
    assert run(d, box, "node", "-e", script) == "web.test web.test\n20\n200\n"


def test_busybox_wget(d, box):
    """A static program with a resolver of its own."""
    assert json.loads(run(d, box, "busybox", "wget", "-q", "-O", "-", "http://web.test/hello"))["site"] == "web.test"


if JAVA:
    JAVA_SOURCE = """import java.net.*; import java.net.http.*; import java.net.http.HttpResponse.BodyHandlers;
public class Get {
	public static void main(String[] a) throws Exception {
		HttpClient c = HttpClient.newBuilder().proxy(ProxySelector.getDefault()).build();
		for (String u : a) System.out.println(c.send(HttpRequest.newBuilder(URI.create(u)).build(), BodyHandlers.ofString()).statusCode());
		System.out.println(((HttpURLConnection) new URL(a[0]).openConnection()).getResponseCode());
	}
}
"""

    @pytest.fixture(scope="module")
    def java_class(d, box, w, tmp_path_factory):
        place = tmp_path_factory.mktemp("java")
        (place / "Get.java").write_text(JAVA_SOURCE)
        subprocess.run(["javac", "-J-XX:-UsePerfData", "-Xlint:none", "-nowarn", "--release", "11", "-d", str(place), str(place / "Get.java")], check=True, timeout=120,
                       stderr=subprocess.DEVNULL)
        subprocess.run(["keytool", "-J-XX:-UsePerfData", "-importcert", "-noprompt", "-alias", "test", "-file", str(w.ca.cert), "-keystore", str(place / "trust"), "-storepass",
                        "changeit"], check=True, timeout=120, stderr=subprocess.DEVNULL)
        for name in ("Get.class", "trust"):
            give(d, box, "/tmp/" + name, (place / name).read_bytes(), "0644")

    @pytest.mark.parametrize("way", ["direct", "proxy"])
    def test_java(d, box, java_class, way):  # pylint: disable=unused-argument
        more = [] if way == "direct" else [f"-D{s}.proxy{k}={v}" for s in ("http", "https") for k, v in (("Host", "198.18.0.1"), ("Port", 3128))]
        out = run(d, box, "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", *more, "-Djavax.net.ssl.trustStore=/tmp/trust",
                  "-Djavax.net.ssl.trustStorePassword=changeit", "-cp", "/tmp", "Get", "http://web.test/hello", "https://web.test/hello")
        assert out == "200\n200\n200\n"


# --- IPv6 ---

@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_has_only_ipv6(d, box, w, scheme, way):
    port = w.six.port if scheme == "http" else w.six.tls_port
    assert json.loads(run(d, box, "curl", "-sS", f"{scheme}://six.test:{port}/hello", way=way))["site"] == "six.test"


def test_a_program_that_wants_ipv6_has_it(d, box, w):
    script = ("import socket\n"
              "a = socket.getaddrinfo('{0}', {1}, socket.AF_INET6, socket.SOCK_STREAM)[0]\n"
              "s = socket.socket(socket.AF_INET6); s.settimeout(10); s.connect(a[4])\n"
              "s.sendall(b'GET /hello HTTP/1.1\\r\\nHost: {0}:{1}\\r\\nConnection: close\\r\\n\\r\\n')\n"
              "print(a[4][0], b''.join(iter(lambda: s.recv(4096), b'')).decode().split()[1])\n")
    for name, port in (("six.test", w.six.port), ("web.test", 80)):
        out = run(d, box, PYTHON, "-c", script.format(name, port)).split()
        assert out[0].startswith("fd63:6c6f:6368:65:") and out[1] == "200", out


def test_the_address_that_answers_is_the_one_that_is_used(d, box, w):
    assert json.loads(run(d, box, "curl", "-sS", "-m", "20", f"http://dual.test:{w.six.port}/hello"))["site"] == "six.test"


# --- ends ---

def test_half_a_connection_is_one(d, box):
    """What is sent before one side says it is done, arrives; and what comes back afterwards, too."""
    script = ("import socket\n"
              "s = socket.create_connection(('echo.test', 7), 20); s.settimeout(20)\n"
              "import threading; t = threading.Thread(target=lambda: (s.sendall(b'y' * 3000000), s.shutdown(socket.SHUT_WR))); t.start()\n"
              "n = 0\n"
              "while (p := s.recv(65536)): n += len(p)\n"
              "print(n)\n")
    assert run(d, box, PYTHON, "-c", script) == "3000000\n"


def test_many_at_once(d, box):
    script = "for i in $(seq 40); do curl -sS https://web.test/hello -o /tmp/o.$i & done; wait; cat /tmp/o.* | grep -o '\"site\": \"web.test\"' | wc -l; rm /tmp/o.*"
    assert run(d, box, "sh", "-c", script) == "40\n"


def test_what_is_refused_is_refused_at_once_and_says_why(d, box, w):
    """By the codes that curl has for it: no such name, and no connection."""
    for url, code in (("https://evil.test/", 6), ("http://web.test:8080/", 7), ("http://203.0.113.9/", 7), ("http://10.0.0.1/", 7)):
        r = d.exec(box, "curl", "-sS", "-m", "20", url, timeout=30)
        assert r["exit_code"] == code or (code == 7 and r["exit_code"] in (52, 56)), (url, r)
    r = d.exec(box, "curl", "-sS", "-m", "20", "-x", HTTP_PROXY, "http://evil.test/", timeout=30)
    said = json.loads(r["stdout"])
    assert "evil.test" in json.dumps(said), r
    assert not [x for x in w.names.asked() if x[0] == "evil.test"]


# --- last, since it is built meanwhile ---

if GO:
    SOURCE = """package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
	for _, u := range os.Args[1:] {
		r, e := http.Get(u)
		if e != nil { fmt.Println(e); os.Exit(1) }
		b, _ := io.ReadAll(r.Body)
		fmt.Println(r.StatusCode, len(b) > 0)
	}
}
"""

    @pytest.fixture(scope="module", autouse=True)
    def go_build():
        """Go's own resolver and TLS. Built once for a build folder, beside the other tests: its libraries take a while."""
        place = pathlib.Path(host.BUILD) / "test-go"
        program = place / ("get-" + hashlib.sha256(SOURCE.encode()).hexdigest()[:12])
        build = None
        if not program.exists():
            place.mkdir(exist_ok=True)
            (place / "get.go").write_text(SOURCE)
            build = subprocess.Popen([GO, "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", str(program), str(place / "get.go")], cwd=place,
                                     env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "", "GOCACHE": str(place / "cache"), "HOME": str(place),
                                          "GOTOOLCHAIN": "local", "GOTMPDIR": str(place)})
        yield program, build
        if build:
            build.kill()
            build.wait()

    @pytest.fixture(scope="module")
    def go_program(go_build):
        program, build = go_build
        assert not build or build.wait(300) == 0
        return program.read_bytes()

    @pytest.mark.parametrize("way", WAYS)
    def test_go(d, box, go_program, way):
        give(d, box, "/tmp/get", go_program)
        env = {k: v.replace("socks5h", "socks5") for k, v in WAYS[way].items()}  # which it takes for the same
        r = d.exec(box, "/tmp/get", "http://web.test/hello", "https://web.test/hello", env={**TRUST, **env}, timeout=60)
        assert (r["exit_code"], r["stdout"]) == (0, "200 true\n200 true\n"), r
