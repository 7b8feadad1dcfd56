"""Registries that are odd, slow or hostile, and pulls that meet: with each other, with prune, with an end of the daemon."""
import json
import os
import re
import threading
import time

import pytest
from api import as_tenant, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from image_registry import INDEX, MANIFEST, Image, Liar, Registry, digest, index
from test_image_pull import back, begun, blobs, ended, images, pull, refusal, small


def opened(r, folder, *lines):
    conf = folder / "serve.conf"
    conf.write_text("\n".join([f"network_private = 127.0.0.1:{r.port}", *lines]) + "\n")
    return Daemon(None, "--config", conf)


def in_time(what, seconds=40):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def nothing_is_left(d):
    in_time(lambda: not blobs(d) and not d.layers() and not d.get("/v1/sandboxes").json["sandboxes"])
    assert images(d) == {}


# --- manifests ---

def changed(image, change):
    """Answers for manifests: @change gets the manifest as an object, and the text is what it makes of it."""
    text = json.dumps(change(json.loads(image.manifest))).encode()

    def lie(h, path):
        return "/manifests/" in path and h.answer(text, json.loads(text).get("mediaType", MANIFEST)) is None
    return lie


def with_digest(where, value):
    def change(m):
        (m["config"] if where == "config" else m["layers"][0])["digest"] = value
        return m
    return change


def with_size(size):
    def change(m):
        m["layers"][0]["size"] = size
        return m
    return change


SHA512 = "sha512:" + "ab" * 64
ODD = {
    "sha512 of a layer": (with_digest("layer", SHA512), "SHA-256"),
    "sha512 of the configuration": (with_digest("config", SHA512), "SHA-256"),
    "no digest": (with_digest("layer", "sha256:../../etc/passwd"), ""),
    "digest in capitals": (with_digest("layer", "sha256:" + "AB" * 32), ""),
    "negative size": (with_size(-1), ""),
    "size that overflows": (with_size(2**63), ""),
    "more than may be": (with_size(65 << 30), "64 GiB"),
    "200 layers": (lambda m: {**m, "layers": m["layers"] * 200}, "more than"),
    "schema 1": (lambda m: {"schemaVersion": 1, "name": "a/b", "tag": "1", "fsLayers": [], "history": []}, ""),
    "an artifact": (lambda m: {**m, "config": {**m["config"], "mediaType": "application/vnd.oci.empty.v1+json"}}, "not the image of a filesystem"),
    "a type that a terminal obeys": (lambda m: {**m, "config": {**m["config"], "mediaType": "\x1b[31m\x07\u009b31m\u202e"}}, "not the image of a filesystem"),
}


@pytest.fixture(scope="module")
def one_daemon(nothing_is_left_behind, tmp_path_factory):  # pylint: disable=redefined-outer-name,unused-argument  # noqa: F811
    with Liar(small()) as r, opened(r, tmp_path_factory.mktemp("odd")) as d:
        yield r, d


@pytest.mark.parametrize("name", ODD)
def test_a_manifest_that_cannot_be_used_is_refused_with_a_reason(one_daemon, name):
    r, d = one_daemon
    change, words = ODD[name]
    r.lie = changed(r.image, change)
    answer = pull(d, f"{r.host}/a/b:1")
    assert answer.status in (400, 413, 422), answer
    assert words in answer.json["error"]["message"], answer
    shown = d.cli("image", "pull", f"{r.host}/a/b:1").err.decode()
    assert shown.count("\n") == 1 and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown), shown
    nothing_is_left(d)


def test_an_index_in_an_index_is_refused(one_daemon):
    r, d = one_daemon
    inner = index([r.image])
    outer = json.loads(index([r.image]))
    outer["manifests"][0].update(mediaType=INDEX, digest=digest(inner), size=len(inner))
    texts = {digest(inner): inner}

    def lie(h, path):
        what = path.rsplit("/", 1)[1]
        return "/manifests/" in path and h.answer(texts.get(what, json.dumps(outer).encode()), INDEX) is None

    r.lie = lie
    answer = pull(d, f"{r.host}/a/b:1")
    assert answer.status == 422 and "index" in answer.json["error"]["message"], answer
    nothing_is_left(d)


@pytest.mark.parametrize("more", [-10, 10, 1 << 20])
def test_a_manifest_of_another_length_than_announced(one_daemon, more):
    r, d = one_daemon

    def lie(h, path):
        if "/manifests/" not in path:
            return False
        h.answer(r.image.manifest, MANIFEST, length=len(r.image.manifest) + more)
        h.close_connection = True
        return True

    r.lie = lie
    answer = pull(d, f"{r.host}/a/b:1")
    assert answer.status in (400, 422, 502), answer
    nothing_is_left(d)


@pytest.mark.parametrize("where", ["http://127.0.0.1:1/x", "http://localhost:1/x", "http://[::1]:1/x", "http://169.254.169.254/latest/", "http://10.0.0.1/x",
                                   "http://[::ffff:10.0.0.1]/x", "http://0x7f000001/x", "file:///etc/shadow", "gopher://10.0.0.1/", "/v2/loop"])
@pytest.mark.parametrize("what", ["/manifests/", "/blobs/"])
def test_redirects_lead_to_no_private_place(one_daemon, what, where):
    r, d = one_daemon
    r.lie = lambda h, path: (what in path or path == "/v2/loop") and h.answer(b"", status=307, Location=where) is None
    answer = pull(d, f"{r.host}/a/b:1")
    assert answer.status >= 400 and answer.json["error"]["code"] in ("denied", "lost", "refused", "not_found", "timeout"), answer
    nothing_is_left(d)


# --- a registry with one byte a second ---

def test_a_slow_pull_shows_its_progress_and_ends_when_it_is_cancelled(tmp_path):
    image = Image().layer({"a": os.urandom(3000)})
    layer, stop = image.layers[0]["digest"], threading.Event()

    def lie(h, path):
        if not path.endswith(layer):
            return False
        data = image.blobs[layer]
        h.answer(b"", length=len(data))
        for i in range(len(data)):
            if stop.wait(0.2):
                break
            h.wfile.write(data[i:i + 1])
            h.wfile.flush()
        return True

    with Liar(image, lie) as r, opened(r, tmp_path, "image_timeout = 2s") as d:
        operation = begun(d, f"{r.host}/a/b:1")
        seen = []
        # Longer than the time after which a silent registry has failed: each byte counts.
        in_time(lambda: seen.append((d.get(f"/v1/operations/{operation}").json["progress"] or {}).get("bytes", 0)) or seen[-1] >= 15)
        assert d.get(f"/v1/operations/{operation}").json["state"] == "running"
        assert d.delete(f"/v1/operations/{operation}").status == 202
        began = time.monotonic()
        assert ended(d, operation)["state"] == "canceled"
        nothing_is_left(d)
        assert time.monotonic() - began < 10
        stop.set()


# --- pulls that meet ---

def held(image):
    """A lie that keeps the last layer back until it is let go."""
    go = threading.Event()

    def lie(h, path):
        if path.endswith(image.layers[-1]["digest"]):
            go.wait(40)
        return False
    return lie, go


@pytest.mark.parametrize("which", ["first", "second", "another tenant's"])
def test_of_two_pulls_of_one_image_one_is_cancelled(tmp_path, which):
    image = Image().layer({"a": os.urandom(300000)}).layer({"b": os.urandom(300000)})
    lie, go = held(image)
    with Liar(image, lie) as r, opened(r, tmp_path) as d:
        other = as_tenant(d, "other") if which == "another tenant's" else d
        name = f"{r.host}/a/b:1"
        first = begun(d, name)
        second = begun(other, name)
        in_time(lambda: sum(path.endswith(image.layers[-1]["digest"]) for path in r.asked) >= 2)
        gone, stays, of, asked_by = (first, second, d, other) if which != "second" else (second, first, other, d)
        assert of.delete(f"/v1/operations/{gone}").status == 202
        go.set()
        assert ended(of, gone)["state"] == "canceled"
        assert ended(asked_by, stays)["state"] == "done"
        assert name in images(asked_by) and len(d.layers()) == 2
        in_time(lambda: not blobs(d))
        assert (name in images(d)) == (which != "another tenant's")


def test_pulls_go_on_while_layers_are_pruned_and_images_removed(tmp_path):
    with Registry(tmp_path) as r, Daemon(None, "--config", r.conf()) as d:
        base = os.urandom(200000)
        for n in range(4):
            r.push(Image().layer({"base": base}).layer({"own": os.urandom(100000 + n)}).config(Cmd=["/own"]), f"team/app:{n}")
        over, bad = threading.Event(), []

        def disturb():
            while not over.is_set():
                for call in lambda: d.post("/v1/images/prune"), lambda: d.delete("/v1/images/build/cache"):
                    if call().status != 200:
                        bad.append("prune")
                for name in list(images(d)):
                    d.delete("/v1/images/" + name.replace("/", "+"))

        def pull_all(n):
            for i in range(6):
                answer = pull(d, f"{r.host}/team/app:{(n + i) % 4}")
                if answer.status not in (200, 201):
                    bad.append(answer.json)

        disturber = threading.Thread(target=disturb)
        pullers = [threading.Thread(target=pull_all, args=(n,)) for n in range(3)]
        for t in (disturber, *pullers):
            t.start()
        for t in pullers:
            t.join()
        over.set()
        disturber.join()
        assert not bad, bad
        for name in images(d):
            assert d.delete("/v1/images/" + name.replace("/", "+")).status == 204
        assert d.post("/v1/images/prune").status == 200
        nothing_is_left(d)


@pytest.mark.parametrize("who", ["api", "warden", "all"])
def test_a_daemon_that_is_killed_while_two_pull_and_one_prunes(tmp_path, who):
    image = Image().layer({"a": os.urandom(300000)}).layer({"b": os.urandom(300000)})
    lie, go = held(image)
    with Liar(image, lie) as r, opened(r, tmp_path) as d:
        name = f"{r.host}/a/b:1"
        begun(d, name), begun(d, name)
        in_time(lambda: sum(path.endswith(image.layers[-1]["digest"]) for path in r.asked) >= 2)
        d.post("/v1/images/prune")
        d.kill9(who)
        if who == "all":
            d.start()
        in_time(lambda: back(d))
        go.set()
        if who != "warden":
            assert images(d) == {}

        def there():
            answer = pull(d, name)
            return answer.status in (200, 201)
        in_time(there)
        in_time(lambda: len(d.layers()) == 2 and not blobs(d))
        assert d.delete("/v1/images/" + name.replace("/", "+")).status == 204
        nothing_is_left(d)
