"""`cloche image bootstrap`: the recipes in images/, on a Debian that mmdebstrap makes from this machine's mirrors."""
import ipaddress
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import urllib.parse

import host
import image_archive
import pytest
from api import eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon

RECIPES = pathlib.Path(__file__).resolve().parents[2] / "images"
NAMES = sorted(p.parent.name for p in RECIPES.glob("*/Dockerfile"))
FAKE_APT = b"#!/bin/sh\ncase $1 in install) shift; for x; do case $x in -*) ;; *) echo $x;; esac; done > /packages;; esac\n"


def private_mirrors():
    """What a machine whose mirrors have private addresses says in its configuration, as docs/images.md describes."""
    p = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], capture_output=True, text=True, check=True)
    for url in sorted(set(p.stdout.split())):
        at = urllib.parse.urlsplit(url)
        port = at.port or {"http": 80, "https": 443}[at.scheme]
        for one in sorted({a[4][0] for a in socket.getaddrinfo(at.hostname, port, socket.AF_INET)}):
            if not ipaddress.ip_address(one).is_global:
                yield f"network_private = {one}:{port}"


@pytest.fixture(scope="module")
def d(tmp_path_factory, nothing_is_left_behind):  # noqa: F811
    conf = tmp_path_factory.mktemp("bootstrap") / "serve.conf"
    conf.write_text("\n".join(sorted(set(private_mirrors()))) + "\n")
    with Daemon(None, "--config", conf) as one:
        yield one


@pytest.fixture
def forget(d):
    yield
    for image in d.get("/v1/images").json["images"]:
        d.delete(f"/v1/images/{image['name'].replace('/', '+')}")
    assert d.delete("/v1/images/build/cache").status == 200


@pytest.fixture
def fake(d, forget):
    """A base whose apt writes down what it is asked for."""
    layers = [image_archive.rootfs(), image_archive.layer(image_archive.entry("bin/apt-get", FAKE_APT, mode=0o755))]
    labels = {"cloche.apt": "mirror.test:80"}
    r = d.request("POST", "/v1/images/import?name=localhost/debian", image_archive.docker(layers, tag=None, Env=["PATH=/bin"], Labels=labels))
    assert r.status == 201, r


def bootstrap(d, *args, **kw):
    return d.cli("image", "bootstrap", *args, **{"timeout": 300, **kw})


def test_each_recipe_is_listed_and_offered(d):
    r = bootstrap(d)
    assert r.code == 0 and [line.split()[0] for line in r.text.splitlines()] == ["debian", *NAMES], r
    assert all(len(line.split()) > 2 for line in r.text.splitlines()), r
    source = (RECIPES.parent / "src/client/image_bootstrap.c").read_text()
    assert re.search(r'\.words = "(.*)"', source).group(1).split() == sorted(["debian", *NAMES])
    r = bootstrap(d, "pyhton")
    assert r.code == 125 and "no recipe 'pyhton'" in r.err.decode() and "base, data-science, node, python" in r.err.decode(), r
    assert bootstrap(d, "../images/base").code == 125


def test_each_recipe_builds_and_names_packages_that_debian_has(d, fake):
    for name in NAMES:
        r = bootstrap(d, "-q", name)
        assert (r.code, r.text, r.err) == (0, f"localhost/{name}:latest\n", b""), r
        packages = d.cli("run", "--image", f"localhost/{name}", "--entrypoint", "", "--", "cat", "/packages").text.split()
        p = subprocess.run(["apt-cache", "show", "--no-all-versions", *packages], capture_output=True, text=True, check=False)
        assert p.returncode == 0 and len(packages) >= 3, (name, p.stderr)
    images = {i["name"]: i for i in d.get("/v1/images").json["images"]}
    assert len(images["localhost/data-science:latest"]["layers"]) == 4, "it is built on localhost/python"
    assert images["localhost/data-science:latest"]["config"]["cmd"] == ["python3"]
    r = bootstrap(d, "data-science")
    assert r.code == 0 and r.err.decode().count("CACHED") >= 2, r
    assert json.loads(bootstrap(d, "--json", "base").text)["name"] == "localhost/base:latest"


def test_what_is_missing_is_said_before_anything_is_made(d, forget, tmp_path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("apt-get", "apt-config"):
        (bin_folder / name).symlink_to(shutil.which(name))
    r = bootstrap(d, "python", env={"PATH": str(bin_folder)})
    assert r.code == 125 and "mmdebstrap is not installed; `apt-get install mmdebstrap`" in r.err.decode(), r
    no_sources = tmp_path / "apt.conf"
    no_sources.write_text('Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";\n')
    r = bootstrap(d, "python", env={"APT_CONFIG": str(no_sources)})
    assert r.code == 125 and "no source of Debian" in r.err.decode() and "--mirror URL" in r.err.decode(), r
    r = bootstrap(d, "debian", "--mirror", "http://127.0.0.1:1/debian")
    assert r.code == 125 and "mmdebstrap could not make a Debian" in r.err.decode() and "Could not connect" in r.err.decode(), r
    r = bootstrap(d, "debian", "--mirror", "ftp://127.0.0.1:1/debian")
    assert r.code == 125 and "not http or https" in r.err.decode(), r
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9M", "none", small], check=True)
    try:
        r = bootstrap(d, "debian", env={"TMPDIR": str(small)})
    finally:
        subprocess.run(["umount", small], check=True)
    assert r.code == 125 and "small has 9 MiB left" in r.err.decode() and "set TMPDIR" in r.err.decode(), r
    r = d.cli("image", "build", str(RECIPES / "base"))
    assert r.code == 125 and "no image 'localhost/debian" in r.err.decode() and "cloche image bootstrap" in r.err.decode(), r
    token = d.post("/v1/tokens", {"name": "reader", "scope": "read"}).json["token"]
    r = bootstrap(d, "python", env={"CLOCHE_TOKEN": token})
    assert r.code == 125 and "scope read" in r.err.decode(), r
    r = bootstrap(d, "python", env={"CLOCHE_URL": "http://127.0.0.1:9"})
    assert r.code == 125 and "127.0.0.1:9" in r.err.decode(), r
    assert d.get("/v1/images").json["images"] == []


def test_an_image_of_the_same_name_is_not_replaced(d, forget):
    archive = image_archive.docker([image_archive.rootfs()], tag=None)
    assert d.request("POST", "/v1/images/import?name=localhost/debian", archive).status == 201
    r = bootstrap(d, "base")
    assert r.code == 125 and "not from `cloche image bootstrap`" in r.err.decode(), r


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_one_that_is_interrupted(d, forget, tmp_path, number):
    tmp_path.chmod(0o755)
    p = subprocess.Popen([str(host.CLOCHE), "image", "bootstrap", "debian"], env={**d.environment(), "TMPDIR": str(tmp_path)},
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: list(tmp_path.glob("*/mmdebstrap.*/var/lib")), 60)
    p.send_signal(number)
    err = p.communicate(timeout=60)[1].decode()
    assert p.returncode == (125 if number == signal.SIGINT else -signal.SIGKILL), err
    if number == signal.SIGINT:
        assert "interrupted" in err
    eventually(lambda: not list(tmp_path.iterdir()), 60)
    assert d.get("/v1/images").json["images"] == []


if os.environ.get("CLOCHE_LONG"):  # a minute of processor time; test_images.py makes a Debian each time

    def test_debian_is_made_from_this_machines_mirrors_and_apt_works_in_builds(d, forget, tmp_path):
        r = bootstrap(d, "debian")
        assert (r.code, r.text) == (0, "localhost/debian\n"), r
        image = d.get("/v1/images/localhost+debian").json
        assert image["config"]["cmd"] == ["bash"] and image["size"] < 300 << 20, image
        assert bootstrap(d, "debian", env={"PATH": str(tmp_path)}).code == 0, "it is there already: nothing is asked for"
        (tmp_path / "Dockerfile").write_text("FROM localhost/debian\nRUN apt-get update && apt-get install -y --no-install-recommends jq\nCMD jq -n 6*7\n")
        allow = [x for h in image["config"]["labels"]["cloche.apt"].split() for x in ("--allow", h)]
        r = d.cli("image", "build", "-t", "jq", *allow, str(tmp_path), timeout=300)
        assert r.code == 0, r
        assert d.cli("run", "--image", "jq").text == "42\n"
        r = d.cli("run", "--image", "localhost/debian", "--user", "root", "--", "sh", "-c", "id -u; ls /usr/share/man | wc -l; apt-get --version | head -1")
        assert r.text.startswith("0\n0\napt "), r
