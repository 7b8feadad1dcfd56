"""The internet as the tests have it: some addresses of this host's loopback, with names, servers and a CA.

    with World() as w, Daemon(None, "--config", w.config()) as d:
        box = d.create(network={"allow": ["web.test"]})["id"]
        d.exec(box, "curl", "http://web.test/hello")

| name | what |
|---|---|
| web.test, other.test | two web servers (net_site.py) |
| pypi.test, npm.test, git.test | the same servers, by other names |
| six.test | one on ::1, at ports of its own (`w.six`) |
| echo.test | gives back what it gets, at port 7; ends when the client does |
| inside.test, imds.test | names of addresses that nobody may reach: 127.0.0.1 and 169.254.169.254 |

The administrator's rules let sandboxes reach our part of 127.0.0.0/8, and no other part of this host. `w.names` is a
name server (net_dns.py), which the daemon asks for all names it was not told.
"""
import contextlib
import pathlib
import random
import shutil
import socket
import socketserver
import ssl
import subprocess
import tempfile
import threading

import net_dns
import net_site

SITES = ("web.test", "other.test", "pypi.test", "npm.test", "git.test")
NAMES = (*SITES, "six.test", "*.web.test", "rebound.test", "dual.test")


class Authority:
    """A CA, and one certificate for all names there are."""

    def __init__(self, folder):
        self.cert, self.key, self.leaf = folder / "ca.pem", folder / "ca.key", folder / "leaf.pem"
        (folder / "ext").write_text("subjectAltName=" + ",".join("DNS:" + n for n in NAMES) + "\nbasicConstraints=CA:FALSE\n")

        def openssl(*args):
            subprocess.run(["openssl", *map(str, args)], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)

        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        openssl("req", "-x509", *curve, "-keyout", self.key, "-out", self.cert, "-days", 2, "-subj", "/CN=Test authority",
                "-addext", "keyUsage=critical,keyCertSign")
        openssl("req", *curve, "-keyout", folder / "leaf.key", "-out", folder / "leaf.csr", "-subj", "/CN=test")
        openssl("x509", "-req", "-in", folder / "leaf.csr", "-CA", self.cert, "-CAkey", self.key, "-set_serial", 2, "-days", 2,
                "-extfile", folder / "ext", "-out", self.leaf)
        self.cert.chmod(0o644)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.leaf, folder / "leaf.key")
        self.context.set_alpn_protocols(["http/1.1"])


class Echo:
    """Counts its connections."""

    def __init__(self, address, port=7):
        echo = self
        self.connections = 0
        self.lock = threading.Lock()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with echo.lock:
                    echo.connections += 1
                with contextlib.suppress(OSError):
                    self.request.settimeout(30)
                    while data := self.request.recv(65536):
                        self.request.sendall(data)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True
            request_queue_size = 128

        self.server = Server((address, port), Handler)
        self.address, self.port = self.server.server_address
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def done(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class World:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cloche-test-world-", dir="/var/tmp"))
        self.stack = contextlib.ExitStack()
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.sites, self.names = {}, net_dns.Names()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stack.close()
            raise

    def __exit__(self, *_):
        self.stack.close()

    def start(self):
        self.folder.chmod(0o755)
        self.ca = Authority(self.folder)
        net_site.repository(self.folder)
        for attempt in range(20):  # somebody else's world may have the same part of 127/8
            self.net = f"127.{random.randrange(64, 250)}.{random.randrange(250)}"
            try:
                self.resolver = self.own(net_dns.Server(self.names, self.at(53)))
                break
            except OSError:
                if attempt == 19:
                    raise
        for i, name in enumerate(SITES):
            self.sites[name] = self.own(net_site.Site(name, self.at(i + 1), self.ca.context, folder=self.folder))
        self.web, self.other = self.sites["web.test"], self.sites["other.test"]
        self.six = self.own(net_site.Site("six.test", "::1", self.ca.context, (0, 0), self.folder))
        self.echo = self.own(Echo(self.at(7)))
        self.host = self.own(Echo("127.0.0.1", 0))  # what no sandbox may reach
        self.hosts = {**{s.name: s.address for s in self.sites.values()}, "six.test": "::1", "echo.test": self.at(7),
                      "inside.test": "127.0.0.1", "imds.test": "169.254.169.254"}
        return self

    def own(self, server):
        self.stack.callback(server.done)
        return server

    def at(self, n):
        """The address number `n` of ours."""
        return f"{self.net}.{n}"

    def settings(self):
        """Of the daemon: what an administrator would write."""
        return [("network_resolver", f"{self.at(53)}:53"), ("network_ca", self.ca.cert), ("network_private", f"{self.net}.0/24:*"),
                ("network_private", f"[::1]:{self.six.port},{self.six.tls_port}"), *(("network_hosts", f"{n} {a}") for n, a in self.hosts.items())]

    def config(self, *more):
        """A file for `cloche serve --config`; `more`: lines."""
        path = self.folder / "serve.conf"
        path.write_text("".join(f"{k} = {v}\n" for k, v in self.settings()) + "".join(line + "\n" for line in more))
        return path

    def give_ca(self, daemon, box, path="/tmp/ca.pem"):
        """The CA as a file in a sandbox."""
        r = daemon.request("PUT", f"/v1/sandboxes/{box}/files?path={path}", self.ca.cert.read_bytes())
        assert r.status in (200, 201, 204), r
        return path


def free_port(address="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
        s.bind((address, 0))
        return s.getsockname()[1]
