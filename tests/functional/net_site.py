"""Web servers for the tests: HTTP and HTTPS, an index of Python packages, a registry of Node packages, git repositories.

Each is an address of this host's loopback, with one thread per connection. What was asked is remembered.
"""
import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import socket
import socketserver
import subprocess
import tarfile
import threading
import urllib.parse
import zipfile

BODY_MAX = 64 << 20
PIECE = bytes(range(256)) * 256
WHEEL = "cloche_sample-1.0-py3-none-any.whl"
PACKAGE = "cloche-sample"


def wheel():
    out = io.BytesIO()
    info = "cloche_sample-1.0.dist-info/"
    files = {"cloche_sample.py": "ANSWER = 42\n",
             info + "METADATA": "Metadata-Version: 2.1\nName: cloche-sample\nVersion: 1.0\n",
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(out, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
        z.writestr(info + "RECORD", "".join(f"{n},,\n" for n in [*files, info + "RECORD"]))
    return out.getvalue()


def tarball():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in (("package.json", json.dumps({"name": PACKAGE, "version": "1.0.0", "main": "index.js"})),
                           ("index.js", "module.exports = 42\n")):
            m = tarfile.TarInfo("package/" + name)
            m.size, m.mode = len(text), 0o644
            t.addfile(m, io.BytesIO(text.encode()))
    return out.getvalue()


def repository(folder):
    """A bare repository of two commits."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@test",
           "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@test"}

    def git(*args, cwd):
        subprocess.run(["git", *args], cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    work = folder / "work"
    work.mkdir()
    git("init", "-q", "-b", "main", ".", cwd=work)
    for i in range(2):
        (work / "README").write_text(f"version {i + 1}\n")
        git("add", ".", cwd=work)
        git("commit", "-q", "-m", f"number {i + 1}", cwd=work)
    git("clone", "-q", "--bare", str(work), str(folder / "sample.git"), cwd=folder)
    git("config", "http.receivepack", "false", cwd=folder / "sample.git")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    site = None  # the subclass's

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:  # a client that went away, or whose TLS came to nothing
            pass

    def end_headers(self):
        if self.close_connection:  # else a client that looks too soon sends its next request into a connection that ends
            self.send_header("Connection", "close")
        super().end_headers()

    def give(self, status, body=b"", kind="text/plain", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for k, v in headers.items():
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        n = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(n) if 0 <= n <= BODY_MAX else b""

    def serve(self):
        where = urllib.parse.urlsplit(self.path)
        self.site.requests.append((self.command, self.path, self.headers.get("Host")))
        self.site.heads.append(self.headers.items())
        first = where.path.strip("/").split("/")[0]
        way = getattr(self, "at_" + first.replace("-", "_"), None)
        if way:
            way(where)
        else:
            self.give(404, b"nothing here\n")

    do_GET = do_HEAD = do_POST = do_PUT = serve

    # --- plain things ---

    def at_hello(self, where):
        self.body()
        self.give(200, json.dumps({"site": self.site.name, "host": self.headers.get("Host"), "path": where.path, "tls": self.server.tls,
                                   "headers": dict(self.headers)}).encode(), "application/json")

    def at_echo(self, _):
        self.give(200, self.body(), "application/octet-stream")

    def at_bytes(self, where):
        left = int(where.path.rsplit("/", 1)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(left))
        self.end_headers()
        while left:
            n = min(left, len(PIECE))
            self.wfile.write(PIECE[:n])
            left -= n

    def at_reflect(self, where):
        """What came as Authorization, as a server may give it back: /reflect/chunks, /reflect/gzip, /reflect/events."""
        value, way = self.headers.get("Authorization", "").encode(), where.path.rsplit("/", 1)[1]
        if way == "gzip":
            return self.give(200, gzip.compress(value), **{"Content-Encoding": "gzip"})
        self.send_response(200)
        self.send_header("X-Reflected", value.decode())
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in [b"data: one\n\n"] if way == "events" else [value[i:i + 1] for i in range(len(value))]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if way == "events":
            self.site.held.set()
            self.site.release.wait(30)
        return self.wfile.write(b"3\r\nend\r\n0\r\n\r\n")

    def at_release(self, _):
        self.site.release.set()
        self.give(200)

    def at_redirect(self, where):
        self.give(302, Location=urllib.parse.parse_qs(where.query)["to"][0])

    def at_forever(self, _):
        """Ends with the connection and has no length, so that only a reset distinguishes a cut from an end."""
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"begun\n")
        self.wfile.flush()
        self.site.held.set()
        self.site.release.wait(20)
        self.wfile.write(b"ended\n")

    # --- packages ---

    def at_simple(self, where):
        if where.path.rstrip("/").endswith("cloche-sample"):
            digest = hashlib.sha256(self.site.wheel).hexdigest()
            self.give(200, f'<!DOCTYPE html><a href="/files/{WHEEL}#sha256={digest}">{WHEEL}</a>'.encode(), "text/html")
        else:
            self.give(404)

    def at_files(self, where):
        self.give(200 if where.path.endswith(WHEEL) else 404, self.site.wheel, "application/octet-stream")

    def at_cloche_sample(self, where):
        """What `npm install` asks for: a description, then the file it names."""
        if where.path.endswith(".tgz"):
            return self.give(200, self.site.tarball, "application/octet-stream")
        origin = f"{'https' if self.server.tls else 'http'}://{self.headers.get('Host')}"
        dist = {"tarball": f"{origin}/{PACKAGE}/-/{PACKAGE}-1.0.0.tgz", "shasum": hashlib.sha1(self.site.tarball).hexdigest(),
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(self.site.tarball).digest()).decode()}
        one = {"name": PACKAGE, "version": "1.0.0", "main": "index.js", "dist": dist}
        return self.give(200, json.dumps({"name": PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": one}}).encode(),
                         "application/json")

    def at_git(self, where):
        """/git/sample.git/…, by git's own program."""
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.site.folder), "GIT_HTTP_EXPORT_ALL": "1", "GIT_CONFIG_NOSYSTEM": "1",
               "HOME": str(self.site.folder), "PATH_INFO": where.path[len("/git"):], "QUERY_STRING": where.query,
               "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_ADDR": "127.0.0.1",
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", "")}
        p = subprocess.run(["git", "-c", "safe.directory=*", "http-backend"], input=self.body(), env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, timeout=30, check=False)
        head, _, body = p.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
        status = int(fields.pop("Status", "200").split()[0])
        self.give(status if p.returncode == 0 else 500, body, fields.get("Content-Type", "text/plain"))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address, handler, tls):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.tls = bool(tls)
        self.context = tls
        super().__init__(address, handler)

    def server_bind(self):  # the parent's asks for names of addresses
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def get_request(self):
        s, peer = super().get_request()
        if self.context:  # the handshake is for the connection's own thread
            s.settimeout(30)
            s = self.context.wrap_socket(s, server_side=True, do_handshake_on_connect=False)
        return s, peer

    def handle_error(self, *_):
        pass


class Site:
    """One name on one address: plain on one port, TLS on the other."""

    def __init__(self, name, address, tls, ports=(80, 443), folder=None):
        self.name, self.address, self.folder = name, address, folder
        self.requests = []
        self.heads = []  # their headers
        self.held, self.release = threading.Event(), threading.Event()
        self.wheel, self.tarball = wheel(), tarball()
        handler = type("Of" + name.replace(".", "_"), (Handler,), {"site": self})
        self.servers = []
        try:
            self.servers.append(Server((address, ports[0]), handler, None))
            self.servers.append(Server((address, ports[1]), handler, tls))
        except OSError:
            for s in self.servers:
                s.server_close()
            raise
        self.port, self.tls_port = (s.server_address[1] for s in self.servers)
        self.threads = [threading.Thread(target=s.serve_forever, args=(0.05,), daemon=True) for s in self.servers]
        for t in self.threads:
            t.start()

    def done(self):
        self.release.set()
        for s in self.servers:
            s.shutdown()
            s.server_close()
        for t in self.threads:
            t.join()
