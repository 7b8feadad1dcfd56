"""Images that strangers have made to do harm: what is refused, what is confined, and that nothing of it is left."""
import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile
import tempfile

import pytest

import host
import image_archive as ia
from api import d, error, eventually, nothing_is_left_behind  # noqa: F401
from test_checkpoints import sh  # noqa: F401
from test_image_build import build, built
from test_image_store import bring, brought, no_images  # noqa: F401


@pytest.fixture(scope="module")
def base():
    return ia.rootfs()


def upper(d, base, *entries, **kw):  # noqa: F811
    """A sandbox of an image with one more layer, or the answer that refused it."""
    r = bring(d, ia.docker([base, ia.layer(*entries, **kw)]))
    return d.create(image="test:1") if r.status == 201 else r


def refused(d, r, *words, status=422, code="refused"):  # noqa: F811
    error(r, status, code)
    message = r.json["error"]["message"]
    assert all(w in message for w in words), message
    nothing(d)


def nothing(d):  # noqa: F811
    assert d.get("/v1/images").json["images"] == []
    eventually(lambda: not d.layers(), seconds=20)
    assert os.listdir(d.data / "spool") == []


def test_names_stay_inside(d, base):  # noqa: F811
    s = upper(d, base, ia.entry("/abs", b"1"), ia.entry("./a//b/./c", b"2"), ia.link("l", "/etc"), ia.entry("l/through", b"3"),
              ia.link("up", "../../../../../.."), ia.entry("up/over", b"4"), ia.link("loop", "loop"), ia.link("to", "/etc/passwd"),
              ia.entry("to", b"5"), ia.entry("proc/x", b"6"), ia.entry("dev/null2", b"7"), ia.entry("sys/y", b"8"))
    assert sh(d, s, "cat /abs /a/b/c /etc/through /over /to; head -c 4 /etc/passwd; ls /proc/x /dev/null2 /sys/y 2>/dev/null; readlink /loop") == "12345rootloop"


@pytest.mark.parametrize("entry", [ia.entry("../x"), ia.entry("a/../../x"), ia.hard("x", "../../etc/shadow"), ia.hard("x", "etc/../../x"), ia.entry("etc/.wh.."),
                                   ia.entry("etc/.wh...")], ids=str)
def test_names_that_lead_out_are_refused(d, base, entry):  # noqa: F811
    refused(d, upper(d, base, ia.entry("fine"), entry))


@pytest.mark.parametrize("name", ["x" * 256, "/".join(["d"] * 300), "/".join(["x" * 200] * 21)], ids=["long", "deep", "path"])
def test_names_have_bounds(d, base, name):  # noqa: F811
    refused(d, upper(d, base, ia.entry(name)), "too long or too deep")


def test_long_names_and_strange_ones_are_kept(d, base):  # noqa: F811
    names = ["x" * 255, "/".join(["y" * 100] * 20), "\u00e4\u00f6/\u4e2d", "a\nb", "-rf", " "]
    for form in tarfile.PAX_FORMAT, tarfile.GNU_FORMAT:
        s = upper(d, base, *(ia.entry("n/" + n, b"%d" % i) for i, n in enumerate(names)), format=form)
        for i, n in enumerate(names):
            r = d.exec(s["id"], "cat", "/n/" + n)
            assert r["stdout"] == str(i), (n, r)


def test_devices_are_left_out_and_set_id_bits_kept(d, base):  # noqa: F811
    s = upper(d, base, ia.entry("disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0), ia.entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
              ia.entry("white", type=tarfile.CHRTYPE, devmajor=0, devminor=0), ia.entry("pipe", type=tarfile.FIFOTYPE, mode=0o620),
              ia.entry("bin/su", b"#!", mode=0o6755, uid=33, gid=34), ia.folder("sticky", mode=0o3777))
    assert sh(d, s, "ls /disk /null /white 2>/dev/null; stat -c '%F %a %u %g' /pipe /bin/su /sticky") == \
        "fifo 620 0 0\nregular file 6755 33 34\ndirectory 3777 0 0"


def test_owners_that_no_sandbox_has_are_refused(d, base):  # noqa: F811
    refused(d, upper(d, base, ia.entry("x", uid=70000)), "owner")
    refused(d, upper(d, base, ia.entry("x", gid=2**32)), "owner")


def test_whiteouts_remove_what_is_below_and_nothing_else(d, base):  # noqa: F811
    middle = ia.layer(ia.folder("d"), ia.entry("d/a", b"a"), ia.folder("d/sub"), ia.entry("d/sub/b", b"b"), ia.entry("f", b"f"), ia.folder("g"), ia.entry("g/x", b"x"),
                      ia.entry("h", b"h"), ia.folder("i"), ia.entry("i/old", b""), ia.link("s", "d"))
    top = ia.layer(ia.entry(".wh.f"), ia.entry("d/new", b"n"), ia.folder("d/sub"), ia.entry("d/sub/mine", b"m"), ia.entry("d/.wh..wh..opq"),  # behind what it does not remove
                   ia.entry("g", b"a file now"), ia.entry(".wh.nothing"), ia.folder("h"), ia.entry("h/in", b"i"), ia.entry("kept", b"k"), ia.entry(".wh.kept"),
                   ia.entry("i/.wh.old"), ia.entry("i/old/again", b"o"), ia.entry("etc/.wh..wh.plnk", b""), ia.folder("s"), ia.entry("s/own", b"s"))
    brought(d, ia.docker([base, middle, top]))
    s = d.create(image="test:1")
    assert sh(d, s, "cd /; find d g h i s f kept 2>/dev/null | sort; cat g h/in i/old/again kept") == \
        "d\nd/new\nd/sub\nd/sub/mine\ng\nh\nh/in\ni\ni/old\ni/old/again\nkept\ns\ns/own\na file nowiok"


def test_hard_links_reach_into_earlier_layers(d, base):  # noqa: F811
    s = upper(d, base, ia.hard("etc/passwd2", "etc/passwd"), ia.hard("etc/passwd3", "./etc/passwd2"), ia.hard("bin/box2", "/bin/busybox"))
    assert sh(d, s, "stat -c '%h %i' /etc/passwd /etc/passwd2 /etc/passwd3 | sort -u | wc -l; cmp /bin/busybox /bin/box2 && echo same") == "1\nsame"
    r = bring(d, ia.docker([base, ia.layer(ia.hard("x", "nothing"))], "bad:1"))
    error(r, 422, "refused") if r.json["error"]["code"] == "refused" else error(r, 400, "invalid")


def test_attributes_capabilities_and_holes_arrive(d, base, tmp_path):  # noqa: F811
    cap = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_bind_service+ep
    attrs = {"SCHILY.xattr.user.k": "v", "SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.security.selinux": "x"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        info, data = ia.entry("attrs", b"x")
        info.pax_headers = attrs
        t.addfile(info, io.BytesIO(data))
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "capable").write_bytes(b"#!")
    os.setxattr(folder / "capable", "security.capability", cap)
    with open(folder / "holes", "wb") as f:
        f.write(b"start")
        f.truncate(64 << 20)
    packed = subprocess.run(["tar", "-C", folder, "--xattrs", "--xattrs-include=*", "--sparse", "--format=posix", "-cf", "-", "capable", "holes"], stdout=subprocess.PIPE, check=True).stdout
    gnu = subprocess.run(["tar", "-C", folder, "--sparse", "--format=gnu", "--transform=s/holes/gnu/", "-cf", "-", "holes"], stdout=subprocess.PIPE, check=True).stdout
    brought(d, ia.docker([base, out.getvalue(), packed, gnu]))
    found = {}
    for top, _, names in os.walk(d.data / "layers"):
        for n in names:
            if n in ("attrs", "capable", "holes", "gnu"):
                p = os.path.join(top, n)
                found[n] = ({x: os.getxattr(p, x) for x in os.listxattr(p)}, os.stat(p).st_blocks * 512, os.stat(p).st_size)
    assert found["attrs"][0] == {"user.k": b"v"}, found
    assert found["capable"][0] == {"security.capability": cap}, found
    assert all(found[n][1] < 1 << 20 and found[n][2] == 64 << 20 for n in ("holes", "gnu")), found


def test_a_layer_bomb_is_refused(d, base):  # noqa: F811
    bomb = ia.layer(ia.entry("zeros", bytes(400 << 20)))
    refused(d, bring(d, ia.oci([base, bomb], "zstd")), "times its size")


def change(parts, what):
    manifest = next(k for k, v in parts.items() if k.startswith("blobs/") and b'"layers"' in v and b'"schemaVersion"' in v)
    m = json.loads(parts[manifest])
    layer = "blobs/sha256/" + m["layers"][-1]["digest"][7:]
    conf = "blobs/sha256/" + m["config"]["digest"][7:]

    def rewrite(new):
        text = json.dumps(new).encode()
        index = json.loads(parts["index.json"])
        index["manifests"][0].update(digest=ia.sha(text), size=len(text))
        parts["blobs/sha256/" + ia.sha(text)[7:]] = text
        parts["index.json"] = json.dumps(index).encode()

    if what == "layer changed":
        data = bytearray(gzip.decompress(parts[layer]))
        data[512] ^= 1
        parts[layer] = gzip.compress(bytes(data), 1)
        m["layers"][-1]["size"] = len(parts[layer])
        rewrite(m)
    elif what == "layer longer":
        parts[layer] += b"more"
    elif what == "layer cut":
        parts[layer] = parts[layer][:-100]
        m["layers"][-1]["size"] = len(parts[layer])
        rewrite(m)
    elif what == "layer missing":
        del parts[layer]
    elif what == "size":
        m["layers"][-1]["size"] += 1
        rewrite(m)
    elif what == "other layer":  # right by its own digest, but not what the configuration says
        data = gzip.compress(ia.layer(ia.entry("evil")), 1)
        m["layers"][-1].update(digest=ia.sha(data), size=len(data))
        parts["blobs/sha256/" + ia.sha(data)[7:]] = data
        rewrite(m)
    elif what == "configuration changed":
        parts[conf] = parts[conf].replace(b"linux", b"linuy")
    elif what == "manifest changed":
        parts[manifest] = parts[manifest].replace(b"schemaVersion", b"schemaVersioN")
    elif what == "fewer layers":
        m["layers"].pop()
        rewrite(m)
    elif what == "other machine":
        parts["index.json"] = parts["index.json"].replace(b'"manifests": [{', b'"manifests": [{"platform":{"os":"linux","architecture":"s390x"},')
    elif what == "twice compressed":
        data = gzip.compress(parts[layer], 1)
        m["layers"][-1].update(digest=ia.sha(data), size=len(data))
        parts["blobs/sha256/" + ia.sha(data)[7:]] = data
        rewrite(m)


@pytest.mark.parametrize("what", ["layer changed", "layer longer", "layer cut", "layer missing", "size", "other layer", "configuration changed", "manifest changed",
                                  "fewer layers", "other machine", "twice compressed"])
def test_what_lies_is_refused_and_nothing_is_kept(d, base, what):  # noqa: F811
    data = ia.oci([base, ia.layer(ia.entry("x", os.urandom(100000)))], change=lambda parts: change(parts, what))
    refused(d, bring(d, data))


def test_what_is_cut_or_no_archive_is_refused(d, base):  # noqa: F811
    whole = ia.docker([base])
    for data in b"", b"x" * 100000, whole[:1000000], gzip.compress(whole, 1)[:500000], ia.archive([("manifest.json", b"[]")]), ia.archive([("manifest.json", b"{")]), \
            ia.docker([base], manifest=[{"Config": "../../x", "RepoTags": ["t:1"], "Layers": []}]), ia.docker([base], manifest=[{"Config": 1}]):
        r = bring(d, data, "?name=bad&format=image")
        assert r.status in (400, 422), r
    nothing(d)


def test_a_client_that_leaves_leaves_nothing(d, base):  # noqa: F811
    import socket
    import api
    for part in 100, 1000000:
        s = socket.create_connection(api.place(d))
        s.sendall(b"POST /v1/images/import?name=x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 9999999\r\n\r\n" % d.token.encode() + ia.docker([base])[:part])
        eventually(lambda: any(o["state"] == "running" for o in d.get("/v1/operations").json["operations"]))
        s.close()
        eventually(lambda: not any(o["state"] == "running" for o in d.get("/v1/operations").json["operations"]))
    nothing(d)


def test_an_import_is_canceled(d, base):  # noqa: F811
    import socket
    import api
    s = socket.create_connection(api.place(d))
    s.sendall(b"POST /v1/images/import?name=x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 9999999\r\n\r\n" % d.token.encode() + base[:100_000])
    running = []
    eventually(lambda: running.extend(o for o in d.get("/v1/operations").json["operations"] if o["state"] == "running") or running)
    assert d.delete("/v1/operations/" + running[0]["id"]).status == 202
    eventually(lambda: d.get("/v1/operations/" + running[0]["id"]).json["state"] == "canceled")
    s.close()
    nothing(d)


def test_an_import_is_canceled_while_its_layers_are_made(d, base):  # noqa: F811
    import threading
    data = ia.docker([base] + [ia.layer(ia.entry(f"layer-{n}", str(n).encode())) for n in range(60)])
    answer = []
    t = threading.Thread(target=lambda: answer.append(bring(d, data)), daemon=True)
    t.start()
    found = []
    eventually(lambda: found.extend(o for o in d.get("/v1/operations").json["operations"] if o["state"] == "running" and o["progress"]) or found)
    assert found[0]["progress"]["layers"] == 61
    assert d.delete("/v1/operations/" + found[0]["id"]).status == 202
    t.join(20)
    assert answer and answer[0].status == 409 and answer[0].json["error"]["reason"] == "canceled", answer
    assert d.get("/v1/operations/" + found[0]["id"]).json["state"] == "canceled"
    nothing(d)


def test_whiteouts_of_folders_that_are_the_sandboxs_own(d, base):  # noqa: F811
    for entries in ([ia.entry(".wh.proc"), ia.entry(".wh.dev"), ia.entry("new", b"1")], [ia.entry(".wh..wh..opq"), ia.entry("bin/new", b"1")]):
        r = bring(d, ia.docker([base, ia.layer(ia.folder("old"), *entries)], "white:1"))
        assert r.status == 201, r
        assert d.delete("/v1/images/white:1").status == 204


def hole(size):
    """An entry without data that says to be a file of @size."""
    info, data = ia.entry("hole", f"1\n{size}\n0\n".encode().ljust(512, b"\0"))
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "hole", "GNU.sparse.realsize": str(size)}
    return info, data


def test_a_file_that_is_nothing_but_a_hole(d, base):  # noqa: F811
    for size, *answer in ((1 << 59, 413, "too_large", "more than 68719476736 bytes"), ((64 << 30) + 1, 413, "too_large", "more than 68719476736 bytes"),
                          (63 << 30, 422, "refused", "more than 1000 times its size")):
        status, code, words = answer
        refused(d, bring(d, ia.docker([base, ia.layer(hole(size))])), words, status=status, code=code)


def test_attributes_have_bounds(d, base):  # noqa: F811
    def with_attributes(**attributes):
        info, data = ia.entry("attrs", b"x")
        info.pax_headers = {f"SCHILY.xattr.user.{k}": v for k, v in attributes.items()}
        return upper(d, base, (info, data))

    s = with_attributes(a="x" * 2000, b="y" * 504)
    assert isinstance(s, dict), s
    d.delete("/v1/sandboxes/" + s["id"])
    assert d.delete("/v1/images/test:1").status == 204
    refused(d, with_attributes(a="x" * 70000), "more extended attributes than fit")
    refused(d, with_attributes(**{f"n{i}": "x" * 1000 for i in range(70)}), "more extended attributes than fit")
    refused(d, with_attributes(**{"n" * 300: "x"}), "more extended attributes than fit")


def layer_program(data, most):
    """What cloche-tar says of a layer of which nothing is made: a list of exit code and answer. The daemon gives it @most = 4 Mi."""
    ours, files = socket.socketpair()
    with ours, files, tempfile.TemporaryFile() as f:
        f.write(data)
        f.seek(0)
        p = subprocess.run([host.BUILD / "cloche-tar", "layer", "--files", str(files.fileno()), "--stream", str(f.fileno()), "--lowest", "yes",
                            "--max-entries", str(most)],
                           pass_fds=(files.fileno(), f.fileno()), stdout=subprocess.PIPE, timeout=60, check=False)
    return json.loads(p.stdout)


def test_entries_have_a_bound_whatever_they_are():
    """Also those that make nothing: devices, and what sandboxes have of their own."""
    for one in ia.entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), ia.entry("proc/x", b"x"), ia.entry(".wh.x"):
        assert "error" not in layer_program(ia.layer(*[one] * 100), 100)
        answer = layer_program(ia.layer(*[one] * 101), 100)
        assert "more than 100 entries" in answer["error"]["message"] and answer["error"]["reason"] == "too_large", answer


def test_a_layer_that_does_not_fit_into_memory_is_unpacked_on_a_disk(d, base):  # noqa: F811
    """64 MiB of an archive of less than 3: the first attempt, in memory, has 16 MiB and 8 times that."""
    info, _ = ia.entry("big")
    info.size = 64 << 20
    some = os.urandom(8192) * 128
    head, end = info.tobuf(tarfile.USTAR_FORMAT), bytes(1024)
    diff = hashlib.sha256(head)
    for _ in range(64):
        diff.update(some)
    diff.update(end)
    blob = gzip.compress(head) + gzip.compress(some, 1) * 64 + gzip.compress(end)
    assert len(blob) < 3 << 20

    def exchange(parts):
        index = json.loads(parts["index.json"])
        m = json.loads(parts["blobs/sha256/" + index["manifests"][0]["digest"][7:]])
        conf = json.loads(parts["blobs/sha256/" + m["config"]["digest"][7:]])
        conf["rootfs"]["diff_ids"][-1] = "sha256:" + diff.hexdigest()
        for what, data in ((m["layers"][-1], blob), (m["config"], json.dumps(conf).encode())):
            what.update(digest=ia.sha(data), size=len(data))
            parts["blobs/sha256/" + what["digest"][7:]] = data
        text = json.dumps(m).encode()
        index["manifests"][0].update(digest=ia.sha(text), size=len(text))
        parts["blobs/sha256/" + ia.sha(text)[7:]] = text
        parts["index.json"] = json.dumps(index).encode()

    brought(d, ia.oci([base, ia.layer(ia.entry("x"))], change=exchange))
    s = d.create(image="test:1")
    assert sh(d, s, "stat -c %s /big; tail -c 8192 /big | sha256sum | cut -c1-64") == f"{64 << 20}\n{hashlib.sha256(some[:8192]).hexdigest()}"


def test_users_that_no_sandbox_has(d, base):  # noqa: F811
    for user, why in (("99999", "65535"), ("99999:5", "65535"), ("nobody2", "/etc/passwd"), ("www:nogroup", "/etc/passwd"), ("x" * 5000, "/etc/passwd")):
        brought(d, ia.docker([base], User=user))
        r = d.post("/v1/sandboxes", {"image": "test:1"})
        error(r, 422, "refused")
        assert why in r.json["error"]["message"], r
        assert sh(d, d.create(image="test:1", user="33"), "id -u") == "33"
        last = build(d, "FROM test:1\nRUN id\n", tags=["u"])[-1]
        assert "line 2: RUN" in last["error"]["message"], last
        built(d, "FROM test:1\nUSER root\nRUN id\n", tags=["u"])
    last = build(d, "FROM test:1\nUSER 99999\nRUN id\n")[-1]
    assert "line 3: RUN" in last["error"]["message"] and "65535" in last["error"]["message"], last
    d.delete("/v1/images/build/cache")


def test_variables_that_are_none(d, base):  # noqa: F811
    """Left out are those that no request may set; what is left is the same for commands, builds, and after a restart."""
    odd = ["PATH=/nowhere", "PATH=/bin", "A B=odd-one", "=empty", "alone", "T\tB=tab", "N" * 300 + "=long", "OK=1", "OK=2", "V=" + "x" * 60000, "\u00e4=umlaut", "E="]
    brought(d, ia.docker([base], Env=odd))
    want = {"PATH": "/bin", "OK": "2", "V": "x" * 60000, "\u00e4": "umlaut", "E": ""}
    s = d.create(image="test:1", storage="disk")
    assert s["env"] == want, {**s["env"], "V": len(s["env"]["V"])}
    said = d.exec(s["id"], "env")["stdout"]  # a shell drops names that it cannot set
    assert "OK=2\n" in said and "odd-one" not in said and "\u00e4=umlaut" in said
    built(d, "FROM test:1\nRUN [ \"$OK$PATH\" = 2/bin ] && ! env | grep -q odd-one\n", tags=["e"])
    d.kill9("api")
    eventually(lambda: d.get("/v1/images").status == 200)
    assert d.get(f"/v1/sandboxes/{s['id']}").json["env"] == want and sh(d, s, "echo $OK") == "2"
    error(bring(d, ia.docker([base], "nul:1", Env=["A=\0"])), 400, "invalid")
    r = bring(d, ia.docker([base], "long:1", Env=["V=" + "x" * 70000]))
    error(r, 422, "refused")
    assert "'Env'" in r.json["error"]["message"] and "65536" in r.json["error"]["message"], r
    d.delete("/v1/images/build/cache")


def test_a_secret_of_a_step_gets_no_other_name_in_its_layer(d, base):  # noqa: F811
    import base64
    brought(d, ia.docker([base], Env=["PATH=/bin"]))
    dockerfile = """FROM test:1
RUN --mount=type=secret,id=s --mount=type=secret,id=s,target=/root/deep/token,mode=0444,uid=33 cat /run/secrets/s /root/deep/token; \\
    ln -L /run/secrets/s /leak1; ln /root/deep/token /leak2; cp -al /run/secrets /leak3; stat -Lc '%a %u' /run/secrets/s /root/deep/token; true
RUN cat /leak1 /leak2 /leak3/s /root/deep/token; ls /root/deep /run/secrets; true
"""
    events = build(d, dockerfile, secrets={"s": base64.b64encode(b"geheim").decode()}, tags=["s"])
    text = "".join(e["text"] for e in events if e["type"] == "output" and e["step"] == 2)
    assert events[-1]["type"] == "done" and text.startswith("geheimgeheim") and "400 0\n444 33\n" in text, events
    assert "geheim" not in "".join(e["text"] for e in events if e["type"] == "output" and e["step"] == 3), events
    found = subprocess.run(["grep", "-rl", "geheim", d.data / "layers"], stdout=subprocess.PIPE, check=False).stdout
    assert found == b"", found
    d.delete("/v1/images/build/cache")


def test_many_whiteouts_of_one_folder_take_no_longer_than_as_many_files(d, base):  # noqa: F811
    many = [ia.entry(f"d/{n}") for n in range(3000)]
    lower = ia.layer(ia.folder("d"), ia.entry("d/old"))
    again = [ia.entry("d/.wh..wh..opq"), ia.entry(".wh.d")] * 15000
    deep = [ia.entry("/".join(["e"] * n) + "/.wh..wh..opq") for n in range(250, 0, -1)]
    brought(d, ia.docker([base, lower, ia.layer(*many, *again, *deep, ia.entry("d/last"))]))
    assert sh(d, d.create(image="test:1"), "ls /d | wc -l; ls /d/old 2>/dev/null") == "3001"


def test_what_is_copied_from_an_image_keeps_its_attributes(d, base, tmp_path):  # noqa: F811
    cap = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_bind_service+ep
    things = [ia.folder("a"), ia.folder("a/in"), ia.entry("a/in/x", b"#!", mode=0o755)]
    for info, _ in things[1:]:
        info.pax_headers = {"SCHILY.xattr.user.k": "v"}
    (tmp_path / "a/in").mkdir(parents=True)
    (tmp_path / "a/in/capable").write_bytes(b"#!")
    os.setxattr(tmp_path / "a/in/capable", "security.capability", cap)
    packed = subprocess.run(["tar", "-C", tmp_path, "--xattrs", "--xattrs-include=*", "--format=posix", "-cf", "-", "a/in/capable"], stdout=subprocess.PIPE, check=True).stdout
    brought(d, ia.docker([base, ia.layer(*things), packed], "attrs:1", Env=["PATH=/bin"]))
    brought(d, ia.docker([base]))
    built(d, "FROM test:1\nCOPY --from=attrs:1 /a /copied\nCOPY --from=attrs:1 /a/in/capable /a/in/x /single/\n", tags=["c"])
    found = {}
    for top, folders, names in os.walk(d.data / "layers"):
        at = top.partition("/fs/u/")[2]
        for n in [*folders, *names] if at.startswith(("copied", "single")) else []:
            found[f"{at}/{n}"] = {x: os.getxattr(os.path.join(top, n), x) for x in os.listxattr(os.path.join(top, n)) if x.startswith(("user.", "security."))}
    assert found == {"copied/in": {"user.k": b"v"}, "copied/in/x": {"user.k": b"v"}, "copied/in/capable": {"security.capability": cap},
                     "single/x": {"user.k": b"v"}, "single/capable": {"security.capability": cap}}, found
    d.delete("/v1/images/build/cache")
