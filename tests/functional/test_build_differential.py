"""The same Dockerfiles, built by buildah and by us: the files and the configuration must be the same, or the difference is named here."""
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import tarfile

import pytest

import image_archive as ia
from api import d, nothing_is_left_behind  # noqa: F401
from test_image_build import base, built, context  # noqa: F401
from test_image_store import brought, no_images  # noqa: F401

# A pax header for all that follows, whose name is as GNU tar makes it.
GLOBAL = ia.layer(ia.entry("elsewhere/GlobalHead.1", b"22 comment=0123456789\n", type=tarfile.XGLTYPE), ia.entry("content", b"c"), format=tarfile.USTAR_FORMAT)
FILES = {"a.txt": b"a\n", "b.txt": b"b\n", "suid": (b"s", {"mode": 0o4755}), "dir/": (b"", {"mode": 0o750}), "dir/x": b"x", "dir/sub/": b"",
         "dir/sub/y": (b"y", {"mode": 0o600}), "dir/link": "x", "dir/.hidden": b"h", "empty/": b"", "tolink": "a.txt", "todir": "dir",
         "arch.tar.gz": ia.compress(ia.layer(ia.folder("top", mode=0o711), ia.entry("top/f", b"f", uid=7, gid=8, mode=0o4750), ia.hard("top/g", "top/f", uid=7, gid=8, mode=0o4750),
                                             ia.link("top/l", "f")), "gzip"),
         "out.tar": ia.layer(ia.link("up", ".."), ia.entry("up/f", b"f")), "over/": b"", "over/x": "y", "over/y/": b"", "over/z": b"z",
         "dir3/": b"", "dir3/sub/": b"", "dir3/sub/kept": b"k", "dir3/sub/no": b"n", "dir4/": b"", "dir4/kept": b"k", "dir4/no": b"n",
         "global.tar": GLOBAL,
         ".dockerignore": b"ignored\ndir2/*\n!dir2/keep\ndir3/sub\n!dir3/*/kept\ndir4/*\n!dir4/kept\n", "ignored": b"no", "dir2/": b"", "dir2/no": b"no", "dir2/keep": b"keep"}

# What differs in every case, and why.
KNOWN = {
    **dict.fromkeys(["/dev", "/proc", "/sys"], "where a sandbox mounts these; buildah makes them with the first RUN, we with the first layer"),
    **dict.fromkeys(["/etc/hostname", "/etc/resolv.conf"], "what buildah mounts its own files over during RUN, left behind empty"),
}
VOLUMES = "buildah 1.28 drops what a RUN changes below a VOLUME; here it stays"
BACK = "buildah skips a folder that is left out, unless the exception begins with its name; with BuildKit the exception holds"
SUID = "buildah drops set-id bits of the context; as with BuildKit, a file has the mode that it has there"

# Name: the Dockerfile, and what of it is known to differ: paths or fields of the configuration, each with the reason.
CASES = {
    "copy_files": ("FROM test:1\nCOPY a.txt /one\nCOPY a.txt b.txt /many/\nCOPY *.txt /glob/\nCOPY suid /bin/\nCOPY a.txt /bin\n", {"/bin/suid": SUID}),
    "copy_folders": ("FROM test:1\nCOPY dir /d\nCOPY dir /e/\nCOPY dir/ /f\nCOPY . /all\nCOPY empty /empty\nCOPY dir/sub dir/x /g/\n",
                     {"/all/suid": SUID, "/all/dir3/sub": BACK, "/all/dir3/sub/kept": BACK}),
    "copy_links": ("FROM test:1\nRUN ln -s /srv2 /tosrv; mkdir /srv2\nCOPY a.txt /tosrv/\nCOPY tolink /fromlink\nCOPY dir/link /fromlink2\n", {}),
    "copy_chown": ("FROM test:1\nCOPY --chown=33:34 dir /a\nCOPY --chown=www a.txt /b/\nCOPY --chown=www:web a.txt /c\nCOPY --chmod=640 a.txt /d\n", {}),
    "copy_from": ("FROM test:1 AS one\nRUN mkdir -p /o/p && echo x > /o/p/f && chown 5:6 /o/p/f && ln /o/p/f /o/hard && ln -s f /o/p/s\n"
                  "FROM test:1\nCOPY --from=one /o /copied\nCOPY --from=one /o/p/f /single\nCOPY --from=0 /o/hard /o/p/f /two/\n", {}),
    "copy_over": ("FROM test:1\nRUN mkdir -p /over/sub && echo old > /over/x && chmod 700 /over && echo keep > /over/keep\nCOPY dir /over\n", {}),
    "add": ("FROM test:1\nADD arch.tar.gz /t/\nADD a.txt /plain\nADD dir /d\n", {}),
    "run": ("FROM test:1\nRUN echo a > /a && rm /etc/machine-id && mkdir -p /x/y\nRUN [\"/bin/sh\", \"-c\", \"echo b > /b; rm -r /x\"]\nRUN ln /a /hard; "
            "chmod 2755 /b; mkfifo /fifo\n", {}),
    "users": ("FROM test:1\nRUN adduser -D -u 1234 me || echo me:x:1234:1234::/:/bin/sh >> /etc/passwd\nRUN mkdir /m && chmod 777 /m\nUSER 1234\n"
              "WORKDIR /m/w\nRUN id -u > /m/id; echo $HOME > /m/home; pwd > /m/pwd; touch new\n", {}),
    "workdir": ("FROM test:1\nWORKDIR /a/b\nWORKDIR c\nENV D=/dd\nWORKDIR $D/e\nRUN pwd > /pwd\nCOPY a.txt .\nCOPY a.txt sub/\nWORKDIR /etc\n", {}),
    "env": ("FROM test:1\nENV B=1 C=\"two words\" D=$A\nENV E $A and more\nARG F=f\nARG G\nENV H=${F}-${G:-none} I=${C:+set}\n"
            "RUN env | grep -E '^[A-I]=' | sort > /env\nENV A=new PATH=/bin:/x\nRUN echo $A $PATH > /after\n", {}),
    "args": ("ARG V=1\nARG W=test\nFROM $W:$V\nARG V\nARG X=x\nRUN echo $V $X $W > /args\n", {}),
    "config": ("FROM test:1\nLABEL a=b \"c d\"=\"e f\"\nEXPOSE 80 53/udp\nVOLUME /v /w\nUSER www:web\nSTOPSIGNAL SIGINT\n"
               "ENTRYPOINT [\"/bin/sh\", \"-c\"]\nCMD [\"echo\", \"hi\"]\n", {}),
    "commands": ("FROM test:1\nCMD echo $A\nENTRYPOINT exec x\nSHELL [\"/bin/sh\", \"-ec\"]\nRUN false || true\n", {}),
    "entrypoint_drops_cmd": ("FROM test:1\nCMD [\"a\"]\nFROM test:1\nENTRYPOINT [\"b\"]\n", {}),
    "scratch": ("FROM scratch\nCOPY a.txt /\nCOPY dir /dir\nWORKDIR /w\nCMD [\"/x\"]\n", {}),
    "ignored": ("FROM test:1\nCOPY . /c/\nCOPY dir2 /d/\n", {"/c/suid": SUID, "/c/dir3/sub": BACK, "/c/dir3/sub/kept": BACK}),
    "copy_replaces": ("FROM test:1\nRUN mkdir -p /r/x/sub /r/z; ln -s /srv /r/y; touch /r/x/f\nCOPY over /r/\n", {}),
    "copy_up": ("FROM test:1\nRUN mkdir -p /a/b; ln -s /a/b /l\nWORKDIR /l\nCOPY a.txt ../z/\nCOPY a.txt /l/../y\n", {}),
    "copy_root": ("FROM test:1 AS one\nRUN echo x > /x\nFROM scratch\nCOPY --from=one / /\nCOPY --from=one / /deep\n",
                  dict.fromkeys(["/deep/etc/hostname", "/deep/etc/resolv.conf", "/deep/dev", "/deep/proc", "/deep/sys"], "as above")),
    "add_confined": ("FROM scratch\nADD out.tar /in/side\nADD out.tar /\n", {}),
    "environment": ("FROM test:1\nRUN env | grep -v ^HOSTNAME= | sort > /env\nUSER 33\nRUN env | grep -v ^HOSTNAME= | sort > /tmp/env || true\n", {}),
    "stages": ("FROM test:1 AS a\nENV FROM_A=1\nRUN echo a > /a\nFROM a AS b\nRUN echo b > /b\nFROM a\nCOPY --from=b /b /b2\n", {}),
    "onbuild": ("FROM test:1\nONBUILD RUN echo x\nONBUILD COPY a.txt /\n", {}),
    "onbuild_stage": ("FROM test:1 AS parent\nONBUILD COPY a.txt /from-onbuild\nONBUILD RUN cat /from-onbuild > /ran\n"
                      "FROM parent AS child\nRUN cat /from-onbuild /ran > /all\nFROM child\nRUN rm /ran\n", {}),
    "service": ("ARG VERSION=3\nFROM test:1 AS build\nARG VERSION\nWORKDIR /src\nCOPY dir/ ./\nRUN set -eu; \\\n# a comment inside\n  for f in a b; do \\\n"
                "    echo \"$f $VERSION\" > $f.out; \\\n  done; \\\n  \\\n  chmod 6755 a.out\nFROM test:1\nLABEL maintainer=\"a b\" \\\n      version=1\n"
                "COPY --from=build --chown=33:34 /src/*.out /srv/\nCOPY --chmod=750 a.txt /srv/run\nWORKDIR /srv\nUSER 33\nENTRYPOINT [\"./run\"]\nCMD [\"--serve\"]\n", {}),
    "volume_run": ("FROM test:1\nCOPY a.txt /v/w/\nVOLUME /v/w\nCOPY b.txt /v/w/\nRUN echo c > /v/w/c\nCOPY a.txt /v/w/last\n", {"/v/w/c": VOLUMES}),
    "volume_chown": ("FROM test:1 AS one\nRUN mkdir /va /vb\nVOLUME /va\nVOLUME /vb\nFROM one\nRUN chown 1000:1000 /va /vb\n", dict.fromkeys(["/va", "/vb"], VOLUMES)),
    "exceptions": ("FROM test:1\nCOPY dir3 /d/\nCOPY dir4 /e/\n", dict.fromkeys(["/d/sub", "/d/sub/kept"], BACK)),
    "bind_written": ("FROM test:1 AS one\nRUN touch /1.txt\nFROM test:1 AS between\nRUN --mount=type=bind,from=one,source=/,destination=/mnt,rw touch /mnt/2.txt\n"
                     "FROM between\nRUN --mount=type=bind,from=one,source=/,destination=/mnt mkdir /b && cp /mnt/*.txt /b\n",
                     {"/b/2.txt": "buildah 1.28 writes into the stage that is mounted; later ones and BuildKit drop it", "/mnt": "the mount's folder stays"}),
    "global_header": ("FROM scratch\nADD global.tar /\nCOPY a.txt /b.txt\n", {"/elsewhere": "buildah 1.28 makes the folder of the name that a global pax header has"}),
    "delete": ("FROM test:1\nRUN mkdir -p /d/e && touch /d/e/f /d/g\nRUN rm -r /d/e && rm /etc/group\nRUN mkdir /d/e && touch /d/e/new\n", {}),
}


def root():
    """The base image's layer, each name once: buildah refuses others."""
    names = {}
    with tarfile.open(fileobj=io.BytesIO(ia.rootfs())) as t:
        for info in t:
            names[info.name] = info, t.extractfile(info).read() if info.isreg() else b""
    return ia.layer(*((info, data) for info, data in names.values() if info.name not in ("", ".")))


@pytest.fixture(autouse=True)
def same_base(d, base):  # noqa: F811
    brought(d, ia.docker([root()], Env=["PATH=/bin", "A=1"]))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """buildah, with a store of its own, and the same base image in it."""
    if not shutil.which("buildah"):
        pytest.fail("buildah is not installed")
    folder = tmp_path_factory.mktemp("buildah")
    common = ["buildah", "--storage-driver", "vfs", "--root", str(folder / "root"), "--runroot", str(folder / "run")]

    def run(*args, **kw):
        p = subprocess.run([*common, *map(str, args)], capture_output=True, timeout=300, cwd=folder, **kw)
        assert p.returncode == 0, (args, p.stderr.decode())
        return p.stdout.decode()

    (folder / "base.tar").write_bytes(ia.docker([root()], Env=["PATH=/bin", "A=1"]))
    name = run("from", "--pull=always", f"docker-archive:{folder}/base.tar").strip()
    run("commit", "-q", name, "localhost/test:1")
    yield run, folder
    run("rm", "-a")
    run("rmi", "-a", "-f")


def tree(top):
    found, names = {}, {}
    for folder, dirs, files in os.walk(top):
        for name in [*dirs, *files]:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            what = {"mode": oct(st.st_mode), "owner": f"{st.st_uid}:{st.st_gid}"}
            if stat.S_ISLNK(st.st_mode):
                what["to"] = os.readlink(path)
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    what["content"] = hashlib.sha256(f.read()).hexdigest()
                what["names"] = st.st_nlink
                names.setdefault(st.st_ino, []).append(path[len(top):])
            what["xattrs"] = sorted((k, os.getxattr(path, k, follow_symlinks=False)) for k in os.listxattr(path, follow_symlinks=False)
                                    if not k.startswith("trusted.overlay"))
            found[path[len(top):]] = what
    for same in names.values():
        for path in same:
            found[path]["same"] = sorted(same) if len(same) > 1 else []
    return found


def ours(d, name, folder):  # noqa: F811
    """The layers of the store, as overlay puts them together."""
    db = sqlite3.connect(f"file:{d.data}/state.db?mode=ro", uri=True)
    row = db.execute("SELECT l.layers FROM images i JOIN image_layers l ON l.chain = i.chain WHERE i.name = ?", (name,)).fetchone()
    db.close()
    at, empty = folder / "ours", folder / "empty"
    at.mkdir(exist_ok=True)
    empty.mkdir(exist_ok=True)
    lower = [f"{d.data}/layers/{i}/fs/u" for i in reversed(row[0].split())] + [str(empty)]
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", "ro,lowerdir=" + ":".join(lower), str(at)], check=True)
    try:
        return tree(str(at))
    finally:
        subprocess.run(["umount", str(at)], check=True)


def pairs(env):
    return dict(x.split("=", 1) for x in env or [])


def configuration(c):
    """Of an OCI image."""
    return {"env": pairs(c.get("Env")), "user": c.get("User", ""), "workdir": c.get("WorkingDir", "") or "/", "entrypoint": c.get("Entrypoint") or [],
            "cmd": c.get("Cmd") or [], "labels": {k: v for k, v in (c.get("Labels") or {}).items() if not k.startswith("io.buildah")},
            "ports": sorted(c.get("ExposedPorts") or {}), "volumes": sorted(c.get("Volumes") or {}), "stop_signal": c.get("StopSignal", "")}


def our_configuration(c):
    return {"env": dict(c["env"]) if isinstance(c["env"], dict) else pairs(c["env"]), "user": c.get("user") or "", "workdir": c.get("workdir") or "/",
            "entrypoint": c.get("entrypoint") or [], "cmd": c.get("cmd") or [], "labels": c.get("labels") or {}, "ports": sorted(c.get("ports") or []),
            "volumes": sorted(c.get("volumes") or []), "stop_signal": c.get("stop_signal") or ""}


@pytest.mark.parametrize("case", CASES)
def test_the_same_dockerfile_gives_the_same_image(d, other, case, tmp_path):  # noqa: F811
    run, _ = other
    dockerfile, known = CASES[case]
    known = {**KNOWN, **known}
    (tmp_path / "context").mkdir()
    subprocess.run(["tar", "-x", "-C", str(tmp_path / "context")], input=context(FILES), check=True)
    (tmp_path / "Dockerfile").write_text(dockerfile)
    name = f"localhost/{case}:theirs"
    # In the format oci buildah drops ONBUILD.
    run("bud", "--isolation", "chroot", "--format", "docker" if case == "onbuild_stage" else "oci", "-q", "-t", name, "-f", tmp_path / "Dockerfile", tmp_path / "context")
    built(d, dockerfile, FILES, tags=[case])
    container = run("from", "--pull=never", name).strip()
    theirs = tree(run("mount", container).strip())
    run("umount", container)
    mine = ours(d, f"docker.io/library/{case}:latest", tmp_path)
    differ = {}
    for path in sorted(set(theirs) | set(mine)):
        if theirs.get(path) != mine.get(path) and path not in known:
            differ[path] = (theirs.get(path), mine.get(path))
    want = configuration(json.loads(run("inspect", "--type", "image", name))["OCIv1"]["config"])
    got = our_configuration(d.get(f"/v1/images/{case}").json["config"])
    for key, value in want.items():
        if value != got[key] and key not in known:
            differ[key] = (value, got[key])
    for path, why in CASES[case][1].items():
        if why != "as above" and theirs.get(path) == mine.get(path):
            differ[path] = "they", "the same, so it is not to be named any more"
    assert not differ, "\n".join(f"{k}: theirs {a}, ours {b}" for k, (a, b) in differ.items())
