"""Archives of images, made here: what tests bring to the daemon, right and wrong ones."""
import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile

import small_image

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def entry(name, data=b"", **kw):
    """One entry of a layer: a file, or what `type` and `linkname` say."""
    info = tarfile.TarInfo(name)
    info.mtime = 1_000_000_000
    info.mode = 0o644
    for key, value in kw.items():
        setattr(info, key, value)
    info.size = len(data)
    return info, data


def folder(name, **kw):
    return entry(name, type=tarfile.DIRTYPE, **{"mode": 0o755, **kw})


def link(name, to, **kw):
    return entry(name, type=tarfile.SYMTYPE, linkname=to, **kw)


def hard(name, to, **kw):
    return entry(name, type=tarfile.LNKTYPE, linkname=to, **kw)


def layer(*entries, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as t:
        for info, data in entries:
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def rootfs():
    """A layer with busybox, and users beside root."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        t.add(small_image.small_image(), "", filter=lambda i: None if i.name == "done" else i)
        for name, text in (("etc/passwd", "root:x:0:0::/root:/bin/sh\nwww:x:33:34::/srv:/bin/sh\n"), ("etc/group", "root:x:0:\nwww:x:34:\nweb:x:77:www\n")):
            info, data = entry(name, text.encode())
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def compress(data, how):
    if how == "gzip":
        return gzip.compress(data, 1)
    if how == "zstd":
        return subprocess.run(["zstd", "-cq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def config(layers, **fields):
    return {"architecture": ARCH, "os": "linux", "config": fields, "rootfs": {"type": "layers", "diff_ids": [sha(x) for x in layers]},
            "history": [{"created_by": f"layer {n}"} for n in range(len(layers))]}


def archive(parts):
    return layer(*(entry(name, data if isinstance(data, bytes) else json.dumps(data).encode()) for name, data in parts))


def docker(layers, tag="test:1", conf=None, manifest=None, **fields):
    """As `docker save` of old."""
    conf = json.dumps(conf or config(layers, **fields)).encode()
    name = sha(conf)[7:] + ".json"
    parts = [(f"{n}/layer.tar", data) for n, data in enumerate(layers)]
    manifest = manifest or [{"Config": name, "RepoTags": [tag] if tag else None, "Layers": [x for x, _ in parts]}]
    return archive(parts + [(name, conf), ("manifest.json", manifest)])


def oci(layers, how="gzip", name="docker.io/library/test:1", change=None, **fields):
    """An OCI layout as a tar. `change`: a function that gets the parts before they are packed."""
    conf = json.dumps(config(layers, **fields)).encode()
    blobs = [compress(x, how) for x in layers]
    kind = "application/vnd.oci.image.layer.v1.tar" + {"gzip": "+gzip", "zstd": "+zstd", "": ""}[how]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": sha(conf), "size": len(conf)},
                "layers": [{"mediaType": kind, "digest": sha(b), "size": len(b)} for b in blobs]}
    text = json.dumps(manifest).encode()
    index = {"schemaVersion": 2, "manifests": [{"mediaType": manifest["mediaType"], "digest": sha(text), "size": len(text)}]}
    if name:
        index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": name}
    parts = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    for data in [conf, text, *blobs]:
        parts["blobs/sha256/" + sha(data)[7:]] = data
    if change:
        change(parts)
    return archive(parts.items())
