"""Registries for the tests of images: Debian's docker-registry, and one that lies.

    with Registry(tmp_path, login="anna:hush-4711", tls=True) as r:
        image = Image().layer({"hello": b"hi"}).config(Cmd=["/hello"])
        r.push(image, "team/app:1")
"""
import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import platform
import socket
import ssl
import subprocess
import tarfile
import threading
import time

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar(files):
    """{"path": bytes, "folder/": None, ("link", "target"): …} as the bytes of an archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for path, data in files.items():
            one = tarfile.TarInfo(path.rstrip("/"))
            one.mode = 0o755
            one.mtime = 1700000000
            if data is None:
                one.type = tarfile.DIRTYPE
            else:
                one.size = len(data)
            t.addfile(one, None if data is None else io.BytesIO(data))
    return out.getvalue()


class Image:
    """An image in memory: its blobs by digest, its manifest."""

    def __init__(self, architecture=ARCHITECTURE):
        self.blobs, self.layers, self.diffs, self.settings = {}, [], [], {}
        self.architecture = architecture

    def layer(self, files, level=1):
        data = files if isinstance(files, bytes) else tar(files)
        packed = gzip.compress(data, level, mtime=0)
        self.diffs.append(digest(data))
        self.layers.append({"mediaType": LAYER, "digest": digest(packed), "size": len(packed)})
        self.blobs[digest(packed)] = packed
        return self

    def config(self, **settings):
        self.settings.update(settings)
        return self

    @property
    def manifest(self):
        config = json.dumps({"architecture": self.architecture, "os": "linux", "config": self.settings,
                             "rootfs": {"type": "layers", "diff_ids": self.diffs}}).encode()
        self.blobs[digest(config)] = config
        return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST,
                           "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
                           "layers": self.layers}).encode()


def index(images):
    """The index of several, one for each architecture."""
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        {"mediaType": MANIFEST, "digest": digest(one.manifest), "size": len(one.manifest),
         "platform": {"os": "linux", "architecture": one.architecture}} for one in images]}).encode()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def authority(folder, name):
    """An authority of our own and a certificate for @name: ca.pem, cert.pem, key.pem."""
    def openssl(*args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, cwd=folder)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-days", "2", "-subj", "/CN=test authority")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "cert.csr",
            "-subj", f"/CN={name}")
    (folder / "ext").write_text(f"subjectAltName=DNS:{name}\n")
    openssl("x509", "-req", "-in", "cert.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext",
            "-out", "cert.pem")


class Registry:
    """Debian's docker-registry on loopback. With @name it is reached by that name, over TLS of an authority of its own."""

    def __init__(self, folder, login=None, name=None):
        self.folder = pathlib.Path(folder) / "registry"
        self.folder.mkdir()
        self.login, self.name, self.port = login, name, free_port()
        self.host = f"{name or '127.0.0.1'}:{self.port}"

    def __enter__(self):
        config = {"version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": str(self.folder / "data")}},
                  "http": {"addr": f"127.0.0.1:{self.port}"}}
        if self.name:
            authority(self.folder, self.name)
            config["http"]["tls"] = {"certificate": str(self.folder / "cert.pem"), "key": str(self.folder / "key.pem")}
        if self.login:
            import crypt  # pylint: disable=import-outside-toplevel,deprecated-module  # newer Pythons have none
            user, password = self.login.split(":")
            (self.folder / "htpasswd").write_text(f"{user}:{crypt.crypt(password, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))}\n")
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(self.folder / "htpasswd")}}
        (self.folder / "config.yml").write_text(json.dumps(config))
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", str(self.folder / "config.yml")], stdout=self.log, stderr=self.log)
        end = time.monotonic() + 20
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert self.process.poll() is None and time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def conf(self, *lines):
        """A configuration of the daemon that may reach it."""
        path = self.folder / "serve.conf"
        own = [f"network_hosts = {self.name} 127.0.0.1"] if self.name else []
        path.write_text("\n".join([f"network_private = 127.0.0.1:{self.port}", *own, *lines]) + "\n")
        return path

    @property
    def basic(self):
        return base64.b64encode(self.login.encode()).decode()

    def ask(self, method, path, data=None, headers=()):
        c = http.client.HTTPSConnection("127.0.0.1", self.port, context=ssl._create_unverified_context(), timeout=60) if self.name \
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = dict(headers)
        if self.login:
            headers["Authorization"] = "Basic " + self.basic
        c.request(method, path, body=data, headers=headers)
        answer = c.getresponse()
        body = answer.read()
        assert answer.status < 300, (method, path, answer.status, body)
        return answer

    def push_blob(self, repository, data):
        at = self.ask("POST", f"/v2/{repository}/blobs/uploads/").headers["Location"].split(str(self.port), 1)[1]
        self.ask("PUT", f"{at}&digest={digest(data)}", data, {"Content-Type": "application/octet-stream"})

    def push(self, image, name):
        """The image, or the index that is given as (bytes, images). Returns the digest that the name now has."""
        repository, tag = name.rsplit(":", 1)
        text, images, kind = (image.manifest, [image], MANIFEST) if isinstance(image, Image) else (image[0], image[1], INDEX)
        for one in images:
            manifest = one.manifest
            for blob in one.blobs.values():
                self.push_blob(repository, blob)
            if kind == INDEX:
                self.ask("PUT", f"/v2/{repository}/manifests/{digest(manifest)}", manifest, {"Content-Type": MANIFEST})
        self.ask("PUT", f"/v2/{repository}/manifests/{tag}", text, {"Content-Type": kind})
        return digest(text)


class Liar:
    """A registry that serves one image, and does not keep to the rules: @lie(handler, path) may answer in place of it (True)."""

    def __init__(self, image, lie=lambda handler, path: False):
        self.image, self.lie, self.asked = image, lie, []

    def __enter__(self):
        liar = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, data, kind="application/octet-stream", status=200, length=None, **headers):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data) if length is None else length))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def do_GET(self):
                liar.asked.append(self.path)
                try:
                    if not liar.lie(self, self.path):
                        self.rightly()
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_HEAD = do_GET

            def rightly(self):
                what = self.path.rsplit("/", 1)[1]
                if self.path == "/v2/":
                    self.answer(b"{}")
                elif "/manifests/" in self.path:
                    self.answer(liar.image.manifest, MANIFEST)
                elif what in liar.image.blobs:
                    self.answer(liar.image.blobs[what])
                else:
                    self.answer(b'{"errors":[{"code":"BLOB_UNKNOWN"}]}', "application/json", 404)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def write_auth(path, host, login):
    path.write_text(json.dumps({"auths": {host: {"auth": base64.b64encode(login.encode()).decode()}}}))
    os.chmod(path, 0o600)
    return path
