"""Builds beside buildah's, from the same base image and context: twelve steps, all of them done, and all of them cached."""
import io
import pathlib
import subprocess
import tarfile

import image_archive as ia
from daemon import Daemon
from table import p50, timed

DOCKERFILE = """FROM bench:1
ENV A=1 B=2
WORKDIR /app
COPY a.txt b.txt ./
RUN echo one > one
RUN mkdir -p sub && cp a.txt sub/
COPY dir /app/dir
RUN for i in $(seq 200); do echo $i > f$i; done
RUN rm f1? && ls > list
COPY . /all
LABEL x=y
CMD ["/bin/sh"]
"""


def base():
    """busybox; each name once: buildah refuses others."""
    names = {}
    with tarfile.open(fileobj=io.BytesIO(ia.rootfs())) as t:
        for info in t:
            names[info.name] = info, t.extractfile(info).read() if info.isreg() else b""
    return ia.docker([ia.layer(*(x for name, x in names.items() if name not in ("", ".")))], "bench:1", Env=["PATH=/bin"])


class Buildah:
    def __init__(self, folder, archive):
        self.command = ["buildah", "--storage-driver", "overlay", "--root", f"{folder}/root", "--runroot", f"{folder}/run"]
        name = self("from", f"docker-archive:{archive}")
        self("commit", "--quiet", name, "localhost/bench:1")

    def __call__(self, *args):
        return subprocess.run([*self.command, *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()

    def bud(self, context, *args):
        return timed(lambda: self("bud", "--isolation", "chroot", "--quiet", *args, "--tag", "built", str(context)))[0]


def builds(table, folder, rounds):
    folder = pathlib.Path(folder)
    context, archive = folder / "context", folder / "base.tar"
    (context / "dir").mkdir(parents=True)
    (context / "Dockerfile").write_text(DOCKERFILE)
    for name in ("a.txt", "b.txt", *(f"dir/{n}" for n in range(50))):
        (context / name).write_bytes(name.encode() * 1000)
    archive.write_bytes(base())
    other = Buildah(folder, archive)
    took = {"one": [], "again": [], "b one": [], "b again": []}
    try:
        with Daemon() as d:
            assert d.request("POST", "/v1/images/import", archive.read_bytes()).status == 201
            other.bud(context, "--layers")
            for _ in range(rounds):
                took["b one"].append(other.bud(context))  # without layers of its own it is faster
                took["b again"].append(other.bud(context, "--layers"))
                took["one"].append(timed(lambda: d.cli("image", "build", "--quiet", "--no-cache", "--tag", "built", context, check=True))[0])
                took["again"].append(timed(lambda: d.cli("image", "build", "--quiet", "--tag", "built", context, check=True))[0])
    finally:
        other("rm", "--all")
        other("rmi", "--all", "--force")
    table.add("buildah bud, 12 steps", p50(took["b one"]) * 1e3)
    table.add("buildah bud --layers, all cached", p50(took["b again"]) * 1e3)
    table.add("image build, 12 steps", p50(took["one"]) * 1e3, ratio=p50(took["one"]) / p50(took["b one"]), of="buildah bud", bound=0.5)
    table.add("image build, all cached", p50(took["again"]) * 1e3, ratio=p50(took["again"]) / p50(took["b again"]), of="buildah bud", bound=0.15)
