#!/usr/bin/python3
"""Images: pulls beside podman, builds beside buildah, creates from images with many layers beside those from the host. See README.md here.

    tests/bench/run --images [--only pull|build|create] [--quick]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
from builds import builds  # noqa: E402
from daemon import Daemon  # noqa: E402
from image_registry import Image, Registry, tar  # noqa: E402
from table import Table, p50, timed  # noqa: E402

LAYERS = 6
DEPTHS = 1, 10, 30  # layers of the images that sandboxes are made from


def files_of_the_host(layers, size):
    """As much of /usr/lib as fills so many layers of that size: what images are made of."""
    here, taken = {}, 0
    for folder, _, names in os.walk("/usr/lib"):
        for name in names:
            path = pathlib.Path(folder, name)
            if path.is_symlink() or not path.is_file():
                continue
            here[str(path).lstrip("/")] = path.read_bytes()
            taken += path.stat().st_size
            if taken >= size:
                yield here
                here, taken, layers = {}, 0, layers - 1
            if not layers:
                return


class Podman:
    def __init__(self, folder):
        self.command = ["podman", "--root", f"{folder}/root", "--runroot", f"{folder}/run", "--storage-driver", "overlay"]

    def __call__(self, *args):
        subprocess.run([*self.command, *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def pull(self, name):
        return timed(lambda: self("pull", "--tls-verify=false", name))[0]


def our_pull(d, name):
    return timed(lambda: d.cli("image", "pull", "--quiet", name, check=True))[0]


def pulls(table, folder, rounds, size):
    with Registry(folder) as r, Daemon(None, "--config", r.conf()) as d:
        image = Image()
        for files in files_of_the_host(LAYERS, size // LAYERS):
            image.layer(tar(files), level=6)
        r.push(image, "bench/six:1")
        name, podman, took = f"{r.host}/bench/six:1", Podman(folder), {"first": [], "again": [], "p first": [], "p again": []}
        for _ in range(rounds):
            took["p first"].append(podman.pull(name))
            took["p again"].append(podman.pull(name))
            podman("rmi", "--force", name)
            took["first"].append(our_pull(d, name))
            took["again"].append(our_pull(d, name))
            d.cli("image", "rm", name, check=True)
        podman("rmi", "--all", "--force")
    table.add(f"podman pull, {size >> 20} MiB in {LAYERS} layers", p50(took["p first"]) * 1e3)
    table.add("podman pull again", p50(took["p again"]) * 1e3)
    table.add("image pull", p50(took["first"]) * 1e3, ratio=p50(took["first"]) / p50(took["p first"]), of="podman pull", bound=0.8)
    table.add("image pull again", p50(took["again"]) * 1e3, ratio=p50(took["again"]) / p50(took["p first"]), of="podman pull", bound=0.1)


def create(d, image):
    took, answer = timed(lambda: d.post("/v1/sandboxes", {"image": image}))
    d.delete(f"/v1/sandboxes/{answer.json['id']}")
    return took


def creates(table, folder, rounds):
    with Registry(folder) as r, Daemon(None, "--config", r.conf()) as d:
        for n in DEPTHS:
            image = Image()
            for i in range(n):
                image.layer({f"file{i}": b"x" * 1000})
            r.push(image, f"bench/layers:{n}")
            our_pull(d, f"{r.host}/bench/layers:{n}")
        took = {what: [] for what in ("host", *DEPTHS)}
        for _ in range(rounds):
            for what in took:
                took[what].append(create(d, "host" if what == "host" else f"{r.host}/bench/layers:{what}"))
    host = p50(took["host"])
    table.add("create from host", host * 1e3)
    for n in DEPTHS:
        table.add(f"create from an image of {n} layer{'s' if n > 1 else ''}", p50(took[n]) * 1e3, ratio=p50(took[n]) / host, of="from host", bound=1.15)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--quick", action="store_true", help="one round, small images")
    a.add_argument("--only", choices=("pull", "build", "create"))
    a.add_argument("--json", help="also write the rows to this file")
    o = a.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="cloche-bench-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        if o.only in (None, "pull"):
            (pulls_in := pathlib.Path(folder, "pull")).mkdir()
            pulls(table, pulls_in, 1 if o.quick else 5, (6 if o.quick else 300) << 20)
        if o.only in (None, "build"):
            (builds_in := pathlib.Path(folder, "build")).mkdir()
            builds(table, builds_in, 1 if o.quick else 5)
        if o.only in (None, "create"):
            (creates_in := pathlib.Path(folder, "create")).mkdir()
            creates(table, creates_in, 3 if o.quick else 200)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(table.rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
