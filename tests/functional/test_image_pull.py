"""Pulling images: from Debian's docker-registry, and from a registry that lies."""
import base64
import http.client
import json
import re
import signal
import subprocess
import os
import threading
import time

import host
import image_archive as ia
import pytest
from api import as_tenant
from daemon import Daemon
from test_image_build import build, built
from image_registry import MANIFEST, Image, Liar, Registry, digest, index, write_auth

BUSYBOX = open("/bin/busybox", "rb").read()
BASE = {"bin/": None, "bin/busybox": BUSYBOX}


def small(text=b"hello\n", more=b""):
    return Image().layer(BASE).layer({"text": text, "more": more}).config(
        Cmd=["/bin/busybox", "cat", "/text"], Env=["PATH=/bin", "WORD=there"])


def pull(d, name, **more):
    return d.post("/v1/images/pull", {"name": name, **more})


def refusal(d, name, **more):
    answer = pull(d, name, **more)
    assert answer.status >= 400, answer
    return answer.json["error"]


def images(d):
    return {i["name"]: i for i in d.get("/v1/images").json["images"]}


def blobs(d):
    return sorted(p.name.split(".")[0] for p in (d.data / "blobs").iterdir())


def says(d, image, *command):
    made = d.post("/v1/sandboxes", {"image": image})
    assert made.status == 201, made
    try:
        return d.post(f"/v1/sandboxes/{made.json['id']}/execs", {"cmd": list(command)}).json["stdout"]
    finally:
        d.delete(f"/v1/sandboxes/{made.json['id']}")


def begun(d, name):
    """The id of a pull in the background."""
    answer = d.post("/v1/images/pull", {"name": name, "background": True})
    assert answer.status == 202 and answer.json["kind"] == "pull", answer
    return answer.json["id"]


def ended(d, operation):
    end = time.monotonic() + 40
    while (now := d.get(f"/v1/operations/{operation}").json)["state"] == "running":
        assert time.monotonic() < end, now
        time.sleep(0.02)
    return now


def events(d, operation):
    """[(event, data)] of an operation, up to its end."""
    found, event = [], None
    for line in d.get(f"/v1/operations/{operation}/events").body.decode().split("\n"):
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: "):
            found.append((event, json.loads(line[6:])))
    return found


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with Registry(tmp_path_factory.mktemp("pull")) as r:
        yield r


@pytest.fixture
def daemon(registry):
    with Daemon(None, "--config", registry.conf()) as d:
        yield d


def test_an_image_is_pulled_by_its_tag_and_used(daemon, registry):
    image, name = small(), f"{registry.host}/team/app:1"
    top = registry.push(image, "team/app:1")
    first = pull(daemon, name)
    assert first.status == 201, first
    assert first.json["digest"] == top and [x["digest"] for x in first.json["layers"]] == [x["digest"] for x in image.layers]
    assert pull(daemon, name).status == 200
    assert says(daemon, name, "/bin/busybox", "cat", "/text") == "hello\n"
    assert blobs(daemon) == [] and daemon.get("/v1/sandboxes").json["sandboxes"] == []
    # By its digest: the same image, and another one is not taken for it.
    assert pull(daemon, f"{registry.host}/team/app@{top}").status == 200
    assert refusal(daemon, f"{registry.host}/team/app@sha256:{'0' * 64}")["code"] == "not_found"


def test_layers_that_are_here_are_not_fetched_again(daemon, registry):
    registry.push(small(b"one"), "team/shared:1")
    registry.push(small(b"two", os.urandom(3000)), "team/shared:2")
    assert pull(daemon, f"{registry.host}/team/shared:1").status == 201
    operation = begun(daemon, f"{registry.host}/team/shared:2")
    assert events(daemon, operation)[-1][0] == "end"
    assert ended(daemon, operation)["state"] == "done"
    one, two = (images(daemon)[f"{registry.host}/team/shared:{n}"] for n in (1, 2))
    assert one["layers"][0] == two["layers"][0] and one["layers"][1] != two["layers"][1]


def test_progress_is_told_to_those_who_come_late(daemon, registry):
    """A small pull ends before anybody can listen: the events still tell how far it came."""
    registry.push(small(b"late\n"), "team/late:1")
    operation = begun(daemon, f"{registry.host}/team/late:1")
    assert ended(daemon, operation)["state"] == "done"
    (first, progress), (last, end) = events(daemon, operation)
    assert (first, last) == ("progress", "end") and end["state"] == "done"
    assert (progress["layers"], progress["ready"]) == (2, 2) and progress["total"] >= progress["bytes"] > 0


def test_the_image_of_this_machine_is_chosen_from_an_index(daemon, registry):
    other = Image("s390x").layer({"text": b"other"})
    mine = small(b"mine\n")
    top = registry.push((index([other, mine]), [other, mine]), "team/many:1")
    got = pull(daemon, f"{registry.host}/team/many:1")
    assert got.status == 201 and got.json["digest"] == top
    assert says(daemon, got.json["name"], "/bin/busybox", "cat", "/text") == "mine\n"
    registry.push((index([other]), [other]), "team/many:2")
    e = refusal(daemon, f"{registry.host}/team/many:2")
    assert e["code"] == "refused" and "s390x" in e["message"]


def test_a_tag_that_moved_is_outdated_until_it_is_pulled_again(daemon, registry):
    name = f"{registry.host}/team/moves:1"
    path = "/v1/images/" + name.replace("/", "+")
    old = registry.push(small(b"old\n"), "team/moves:1")
    pull(daemon, name)
    assert daemon.get(path + "/outdated").json["outdated"] is False
    kept = daemon.post("/v1/sandboxes", {"image": name}).json["id"]
    new = registry.push(small(b"new\n"), "team/moves:1")
    assert daemon.get(path + "/outdated").json == {"name": name, "digest": old, "registry_digest": new, "outdated": True}
    assert pull(daemon, name).status == 201
    assert says(daemon, name, "/bin/busybox", "cat", "/text") == "new\n"
    # What was made before goes on with what it was made from.
    assert daemon.post(f"/v1/sandboxes/{kept}/execs", {"cmd": ["/bin/busybox", "cat", "/text"]}).json["stdout"] == "old\n"


def test_names_and_requests_that_are_wrong(daemon, registry):
    for body, code in (({"name": "UPPER/case"}, "invalid"), ({"name": ""}, "invalid"), ({}, "invalid"), ({"name": 7}, "invalid"),
                       ({"name": "a", "username": "u"}, "invalid"), ({"name": "a", "username": "u:v", "password": "p"}, "invalid"),
                       ({"name": "a", "x": 1}, "invalid")):
        answer = daemon.post("/v1/images/pull", body)
        assert answer.status == 400 and answer.json["error"]["code"] == code, (body, answer)
    assert refusal(daemon, f"{registry.host}/team/none:1")["code"] == "not_found"


def test_a_registry_with_logins(tmp_path):
    with Registry(tmp_path, login="anna:hush-4711") as r:
        r.push(small(), "team/app:1")
        name = f"{r.host}/team/app:1"
        with Daemon(None, "--config", r.conf()) as d:
            assert refusal(d, name)["code"] == "denied"
            assert refusal(d, name, username="anna", password="wrong")["code"] == "denied"
            assert images(d) == {} and blobs(d) == []
            assert pull(d, name, username="anna", password="hush-4711").status == 201
            log = (d.data / "audit.log").read_text() + d.output
            assert "hush-4711" not in log and base64.b64encode(b"anna:hush-4711").decode() not in log
        auth = write_auth(tmp_path / "auth.json", r.host, "anna:hush-4711")
        with Daemon(None, "--config", r.conf(f"image_auth = {auth}")) as d:
            assert pull(d, name).status == 201


def test_a_registry_with_a_certificate_of_its_own(tmp_path):
    with Registry(tmp_path, name="registry.test") as r:
        r.push(small(), "team/app:1")
        name = f"{r.host}/team/app:1"
        with Daemon(None, "--config", r.conf()) as d:
            e = refusal(d, name)
            assert e["code"] == "refused" and "certificate" in e["message"] and "image_ca" in e["remedy"]
        with Daemon(None, "--config", r.conf(f"image_ca = {r.folder / 'ca.pem'}")) as d:
            assert pull(d, name).status == 201
            assert says(d, name, "/bin/busybox", "cat", "/text") == "hello\n"


def test_what_the_network_policy_does_not_allow(tmp_path, registry):
    registry.push(small(), "team/app:1")
    name = f"{registry.host}/team/app:1"
    conf = tmp_path / "serve.conf"
    conf.write_text("")  # private, and not allowed
    with Daemon(None, "--config", conf) as d:
        e = refusal(d, name)
        assert "network_private" in e["remedy"], e
    conf.write_text(f"network_open = no\nnetwork_private = 127.0.0.1:{registry.port}\n")
    with Daemon(None, "--config", conf) as d:
        assert refusal(d, name)["code"] == "denied"
    conf.write_text(f"network_open = no\nnetwork_private = 127.0.0.1:{registry.port}\n"
                    f"network_set = images: registry.loopback.internal:{registry.port}\n")
    with Daemon(None, "--config", conf) as d:
        assert pull(d, name).status == 201


# --- a registry that does not keep to the rules ---

def blob_of(path, image):
    return path.rsplit("/", 1)[1] == image.layers[0]["digest"]


def short(h, path, image):
    return blob_of(path, image) and h.answer(image.blobs[image.layers[0]["digest"]][:1000]) is None


def long(h, path, image):
    return blob_of(path, image) and h.answer(image.blobs[image.layers[0]["digest"]] + b"x" * 100000) is None


def other_bytes(h, path, image):
    return blob_of(path, image) and h.answer(bytes(image.layers[0]["size"])) is None


def cut(h, path, image):
    if blob_of(path, image):
        h.answer(image.blobs[image.layers[0]["digest"]][:1000], length=image.layers[0]["size"])
        h.close_connection = True
        h.connection.shutdown(2)
    return blob_of(path, image)


def stall(h, path, image):
    if blob_of(path, image):
        h.answer(image.blobs[image.layers[0]["digest"]][:1000], length=image.layers[0]["size"])
        time.sleep(20)
    return blob_of(path, image)


def to_a_private_address(h, path, image):
    return blob_of(path, image) and h.answer(b"", status=307, Location="http://169.254.169.254/latest/") is None


def to_our_loopback(h, path, image):
    return blob_of(path, image) and h.answer(b"", status=307, Location="http://registry.loopback.internal:1/") is None


def garbage(h, path, image):
    return "/manifests/" in path and h.answer(b"\x00\xff{{{" * 100, MANIFEST) is None


def huge(h, path, image):
    return "/manifests/" in path and h.answer(b'{"a":"' + b"x" * (20 << 20) + b'"}', MANIFEST) is None


def config(h, path, image):
    what = path.rsplit("/", 1)[1]
    return what in image.blobs and what != image.layers[0]["digest"] and h.answer(b"x" * len(image.blobs[what])) is None


LIES = [(short, "lost refused"), (long, "refused"), (other_bytes, "refused"), (cut, "lost"), (stall, "timeout"),
        (to_a_private_address, "denied"), (to_our_loopback, "lost"), (garbage, "invalid"), (huge, "lost"), (config, "refused")]


def pulled_in_time(d, name, retry):
    end = time.monotonic() + 60
    while (answer := pull(d, name)).status != 201:
        assert answer.json["error"]["code"] == retry and time.monotonic() < end, answer.json
    return True


@pytest.mark.parametrize("lie, code", LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_registry_that_lies_leaves_nothing(lie, code, tmp_path):
    image = Image().layer({"text": os.urandom(300000)})
    with Liar(image, lambda h, path: lie(h, path, image)) as r:
        conf = tmp_path / "serve.conf"
        silence = "image_timeout = 3s\n" if lie is stall else ""  # a loaded machine is silent too
        conf.write_text(f"network_private = 127.0.0.1:{r.port}\n{silence}")
        with Daemon(None, "--config", conf) as d:
            e = refusal(d, f"{r.host}/a/b:1")
            assert e["code"] in code.split(), e
            assert images(d) == {} and d.get("/v1/sandboxes").json["sandboxes"] == [] and blobs(d) == []
            assert not d.layers()
            r.lie = lambda h, path: False  # and when it stops lying, nothing of that is in the way
            assert pulled_in_time(d, f"{r.host}/a/b:1", retry="timeout" if lie is stall else None)


def test_manifests_that_lie_about_layers(tmp_path):
    image = Image().layer({"a": b"1"}).layer({"b": b"2"})
    for change, code in ((lambda: image.diffs.reverse(), "refused"), (lambda: image.diffs.append(image.diffs[0]), "refused")):
        diffs = list(image.diffs)
        change()
        with Liar(image) as r:
            conf = tmp_path / "serve.conf"
            conf.write_text(f"network_private = 127.0.0.1:{r.port}\n")
            with Daemon(None, "--config", conf) as d:
                assert refusal(d, f"{r.host}/a/b:1")["code"] == code
                assert images(d) == {} and not d.layers()
        image.diffs = diffs


# --- a build that names them ---

def test_a_build_pulls_what_its_dockerfile_names(daemon, registry):
    registry.push(small(b"base\n"), "team/base:1")
    registry.push(small(b"other\n"), "team/other:1")
    dockerfile = (f"FROM {registry.host}/team/base:1\nCOPY --from={registry.host}/team/other:1 /text /copied\n"
                  "COPY own /own\nRUN [\"/bin/busybox\", \"cp\", \"/text\", \"/ran\"]\n")
    events = built(daemon, dockerfile, {"own": b"x" * 2_000_000}, tags=["mine"])
    assert [e["image"] for e in events if e["type"] == "pull"] == [f"{registry.host}/team/base:1", f"{registry.host}/team/other:1"]
    assert says(daemon, "mine", "/bin/busybox", "cat", "/ran", "/copied") == "base\nother\n"
    assert not [e for e in built(daemon, dockerfile, {"own": b"x" * 2_000_000}, tags=["mine"]) if e["type"] == "pull"]
    failed = build(daemon, f"FROM {registry.host}/team/none:1\n")
    assert failed[-1]["error"]["code"] == "not_found" and "no such image" in failed[-1]["error"]["message"]


# --- what a tenant may have ---

def test_a_digest_alone_does_not_give_the_files_of_another_tenant(tmp_path):
    """A configuration names layers by their diff ids: who names one must bring its bytes, unless the image is public."""
    image = small(b"secret of the first\n")
    second = image.layers[1]["digest"]
    absent = threading.Event()

    def lie(h, path):
        if path.endswith(second) and absent.is_set():
            h.answer(b'{"errors":[{"code":"BLOB_UNKNOWN"}]}', "application/json", 404)
            return True
        return False

    with Liar(image, lie) as r:
        conf = tmp_path / "serve.conf"
        conf.write_text(f"network_private = 127.0.0.1:{r.port}\n")
        with Daemon(None, "--config", conf) as d:
            name = f"{r.host}/a/b:1"
            other = as_tenant(d, "other")
            assert pull(d, name).status == 201
            absent.set()
            assert other.post("/v1/images/pull", {"name": name}).status == 502
            assert other.get("/v1/images").json["images"] == [] and d.get("/v1/images/usage?tenant=*").json["disk"]["layers"] == 2
            # An archive that has the configuration, and other bytes.
            config = json.loads(next(b for b in image.blobs.values() if b.startswith(b"{")))
            false = ia.docker([ia.layer(ia.entry("a", b"")), ia.layer(ia.entry("b", b""))], "forged:1", conf=config)
            answer = other.request("POST", "/v1/images/import", false)
            assert answer.status == 422 and "configuration says" in answer.json["error"]["message"], answer
            # With the bytes it is the same layer; the files are made once.
            absent.clear()
            assert other.post("/v1/images/pull", {"name": name}).status == 201
            assert d.get("/v1/images/usage?tenant=*").json["disk"]["layers"] == 2
            assert second in "".join(r.asked)
            assert other.delete("/v1/images/" + name.replace("/", "+")).status == 204
            # What is public needs no proof.
            absent.set()
            assert d.request("PATCH", "/v1/images/" + name.replace("/", "+"), {"public": True}).status == 200
            assert other.post("/v1/images/pull", {"name": name}).status == 201


def test_a_public_image_stays_public_when_it_is_pulled_again(daemon, registry):
    name = f"{registry.host}/team/everyone:1"
    path = "/v1/images/" + name.replace("/", "+")
    registry.push(small(b"old\n"), "team/everyone:1")
    assert pull(daemon, name).status == 201 and daemon.request("PATCH", path, {"public": True}).status == 200
    registry.push(small(b"new\n"), "team/everyone:1")
    assert pull(daemon, name).json["public"] is True
    assert as_tenant(daemon, "reader").get(path).json["public"] is True


def test_a_login_for_a_part_of_a_registry_is_for_that_part(tmp_path):
    with Registry(tmp_path, login="anna:hush-4711") as r:
        for repository in "team/app", "team/other", "teams/app":
            r.push(small(), f"{repository}:1")
        auth = write_auth(tmp_path / "auth.json", r.host + "/team", "anna:hush-4711")
        auth.write_text(json.dumps({"auths": {**json.loads(auth.read_text())["auths"],
                                              f"{r.host}/team/other": {"auth": base64.b64encode(b"anna:wrong").decode()}}}))
        with Daemon(None, "--config", r.conf(f"image_auth = {auth}")) as d:
            assert pull(d, f"{r.host}/team/app:1").status == 201
            for repository in "team/other", "teams/app":
                assert refusal(d, f"{r.host}/{repository}:1")["code"] == "denied", repository


def test_a_mirror_is_asked_first(tmp_path):
    """registries.conf goes to skopeo: a name of a registry that is nowhere comes from its mirror."""
    (tmp_path / "mirror").mkdir()
    with Registry(tmp_path / "mirror") as r:
        r.push(small(b"mirrored\n"), "copies/app:1")
        conf = tmp_path / "registries.conf"
        conf.write_text(f'[[registry]]\nprefix = "registry.example/team"\nlocation = "registry.example/team"\n'
                        f'[[registry.mirror]]\nlocation = "registry.loopback.internal:{r.port}/copies"\ninsecure = true\n')
        with Daemon(None, "--config", r.conf(f"image_registries = {conf}", "network_open = no",
                                             f"network_set = images: registry.loopback.internal:{r.port}")) as d:
            assert pull(d, "registry.example/team/app:1").status == 201
            assert says(d, "registry.example/team/app:1", "/bin/busybox", "cat", "/text") == "mirrored\n"
            assert [i["name"] for i in d.get("/v1/images").json["images"]] == ["registry.example/team/app:1"]
            assert refusal(d, "registry.example/elsewhere/app:1")["code"] == "not_found"


def test_a_mirror_gets_its_own_login_and_nobody_elses(tmp_path):
    """`image_auth` has logins of several mirrors: skopeo gets those that `image_registries` names for the image."""
    for name in "mirror", "plain":
        (tmp_path / name).mkdir()
    with Registry(tmp_path / "mirror", login="anna:hush-4711") as r, Registry(tmp_path / "plain") as plain:
        r.push(small(b"mirrored\n"), "copies/app:1")
        conf = tmp_path / "registries.conf"
        # A place on this machine is written as everywhere.
        conf.write_text(f'[[registry]]\nlocation = "registry.example/team"\n'
                        f'[[registry.mirror]]\nlocation = "127.0.0.1:{plain.port}/none"\ninsecure = true\n'
                        f'[[registry.mirror]]\nlocation = "localhost:{r.port}/copies"\ninsecure = true\n')
        auth = tmp_path / "auth.json"
        lines = (f"image_registries = {conf}", f"image_auth = {auth}", f"network_private = 127.0.0.1:{plain.port}", "network_open = no",
                 f"network_set = images: registry.loopback.internal:{r.port}, registry.loopback.internal:{plain.port}")

        def answer(logins, **caller):
            auth.write_text(json.dumps({"auths": {k: {"auth": base64.b64encode(v.encode()).decode()} for k, v in logins.items()}}))
            with Daemon(None, "--config", r.conf(*lines)) as d:
                got = pull(d, "registry.example/team/app:1", **caller)
                assert got.status != 201 or says(d, "registry.example/team/app:1", "/bin/busybox", "cat", "/text") == "mirrored\n"
                return got.status

        right = f"127.0.0.1:{r.port}"
        assert answer({right: "anna:hush-4711"}) == 201
        assert answer({f"{right}/copies/app": "anna:hush-4711", right: "anna:wrong"}) == 201
        # A login that the caller sends is for the registry that is named; the mirror has the administrator's.
        assert answer({right: "anna:hush-4711"}, username="bert", password="other") == 201
        for logins in {}, {right: "anna:wrong"}, {f"{right}/copies/other": "anna:hush-4711"}, {"registry.example": "anna:hush-4711"}:
            assert answer(logins) >= 400, logins


def test_what_a_registry_sends_back_has_no_logins_and_nothing_that_a_terminal_obeys(tmp_path):
    """An error's text is the registry's: it may be long, repeat the login, and contain anything."""
    login = base64.b64encode(b"anna:hush-4711").decode()
    image = small()

    def lie(h, path):
        sent = h.headers.get("Authorization", "")
        if not sent:
            h.answer(b"{}", "application/json", 401, **{"WWW-Authenticate": 'Basic realm="x"'})
            return True
        if "/manifests/" not in path:
            return False
        text = text_of[0].replace("LOGIN", sent).replace("PASSWORD", "hush-4711")
        h.answer(text.encode(), kind[0], 403 if "html" in kind[0] else 400)
        return True

    text_of, kind, said = [""], ["application/json"], []
    with Liar(image, lie) as r:
        conf = tmp_path / "serve.conf"
        auth = write_auth(tmp_path / "auth.json", r.host, "anna:hush-4711")
        conf.write_text(f"network_private = 127.0.0.1:{r.port}\nimage_auth = {auth}\n")
        with Daemon(None, "--config", conf) as d:
            body = json.dumps({"errors": [{"code": "ODD", "message": "you sent LOGIN PASSWORD \x1b[31m \x07 \u009b31m \u202e \r\n" + "x" * 5000}]})
            for text_of[0], kind[0] in (  # the first one is shown, so it is what the others could be
                    (body, "application/json"), ("<html><body>LOGIN PASSWORD</body></html>" * 30000, "text/html"),
                                        ("LOGIN \x1b]0;title\x07", "text/plain"), (body[:-3], "application/json")):
                e = refusal(d, f"{r.host}/a/b:1")
                assert "html" not in kind[0] or e["code"] == "denied", e
                said.append(e["message"])
                shown = json.dumps(e, ensure_ascii=False) + d.cli("image", "pull", f"{r.host}/a/b:1").err.decode()
                assert "hush-4711" not in shown and login not in shown, shown
                assert len(e["message"]) < 300 and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown), shown
            assert "you sent Basic ****" in said[0] and "*** x1" in said[0], said
            for place in d.data / "audit.log", d.data / "events":
                if place.is_file():
                    assert "hush-4711" not in place.read_text()
            assert "hush-4711" not in d.output and login not in d.output


# --- interruptions ---

def test_a_pull_that_was_interrupted_goes_on(tmp_path):
    image = Image().layer({"a": os.urandom(200000)}).layer({"b": os.urandom(200000)})
    second = image.layers[1]["digest"]
    waits = threading.Event()

    def lie(h, path):
        if path.endswith(second) and not waits.is_set():
            h.answer(image.blobs[second][:1000], length=image.layers[1]["size"])
            waits.wait(20)
            return True
        return False

    with Liar(image, lie) as r:
        conf = tmp_path / "serve.conf"
        conf.write_text(f"network_private = 127.0.0.1:{r.port}\n")
        with Daemon(None, "--config", conf) as d:
            threading.Thread(target=lambda: _quiet(lambda: pull(d, f"{r.host}/a/b:1")), daemon=True).start()
            end = time.monotonic() + 20
            # Complete: one that is being fetched has a longer name.
            while not list((d.data / "blobs").glob(image.layers[0]["digest"][7:] + ".[0-9]")) and time.monotonic() < end:
                time.sleep(0.02)
            d.kill9("api")
            while not back(d):
                assert time.monotonic() < end + 20
                time.sleep(0.05)
            assert images(d) == {}
            assert blobs(d) == [image.layers[0]["digest"][7:]]
            waits.set()
            r.asked.clear()
            assert pull(d, f"{r.host}/a/b:1").status == 201
            assert not [p for p in r.asked if p.endswith(image.layers[0]["digest"])], r.asked
            assert blobs(d) == [] and d.get("/v1/sandboxes").json["sandboxes"] == []


def back(d):
    try:
        return d.get("/healthz").status == 200
    except OSError:
        return False


def _quiet(call):
    try:
        call()
    except OSError:
        pass


def test_a_pull_that_is_cancelled_leaves_nothing(tmp_path):
    image = Image().layer({"a": os.urandom(200000)})
    with Liar(image, lambda h, path: stall(h, path, image)) as r:
        conf = tmp_path / "serve.conf"
        conf.write_text(f"network_private = 127.0.0.1:{r.port}\n")
        with Daemon(None, "--config", conf) as d:
            operation = begun(d, f"{r.host}/a/b:1")
            end = time.monotonic() + 20
            while not blobs(d) and time.monotonic() < end:
                time.sleep(0.02)
            assert blobs(d)
            assert d.delete(f"/v1/operations/{operation}").status == 202
            assert ended(d, operation)["state"] == "canceled"
            while blobs(d) and time.monotonic() < end:
                time.sleep(0.02)
            assert blobs(d) == [] and images(d) == {}


def test_a_pull_goes_on_when_its_caller_has_gone(daemon, registry):
    registry.push(small(os.urandom(100)), "team/alone:1")
    host, port = daemon.listen.rsplit(":", 1)
    c = http.client.HTTPConnection(host, int(port), timeout=60)
    c.request("POST", "/v1/images/pull", json.dumps({"name": f"{registry.host}/team/alone:1"}), {"Authorization": "Bearer " + daemon.token})
    time.sleep(0.02)
    c.close()
    end = time.monotonic() + 20
    while f"{registry.host}/team/alone:1" not in images(daemon):
        assert time.monotonic() < end
        time.sleep(0.02)


# --- the client ---

def test_the_client_pulls_updates_and_says_what_is_outdated(daemon, registry, tmp_path):
    name = f"{registry.host}/team/client:1"
    old = registry.push(small(b"old\n"), "team/client:1")
    first = daemon.cli("image", "pull", name, check=True)
    assert first.text == f"{name} {old}\n"
    assert daemon.cli("image", "pull", name, check=True).text == f"{name} {old} (was here)\n"
    assert daemon.cli("image", "outdated", check=True).text == ""
    new = registry.push(small(b"new\n"), "team/client:1")
    asked = daemon.cli("image", "outdated")
    assert asked.code == 1 and asked.text == f"{name} has moved from {old[:19]} to {new[:19]}\n"
    assert daemon.cli("image", "update", check=True).text == f"{name} {new}\n"
    assert daemon.cli("image", "update", check=True).text == ""
    # A registry that does not answer does not keep the others from being asked.
    (gone := Liar(small())).__enter__()
    conf = registry.conf(f"network_private = 127.0.0.1:{gone.port}")
    with Daemon(None, "--config", conf) as d:
        for one in f"{gone.host}/a/b:1", name:
            d.cli("image", "pull", one, check=True)
        gone.__exit__()
        newest = registry.push(small(b"newest\n"), "team/client:1")
        asked = d.cli("image", "outdated")
        assert asked.code == 125 and name in asked.text and gone.host in asked.err.decode(), asked
        asked = d.cli("image", "update")
        assert asked.code == 125 and asked.text == f"{name} {newest}\n", asked
    none = daemon.cli("image", "pull", f"{registry.host}/team/none:1")
    assert none.code == 125 and none.err.decode().count("\n") == 1 and "no such image" in none.err.decode()


def test_the_client_sends_the_login_of_that_registry_alone(tmp_path):
    with Registry(tmp_path, login="anna:hush-4711") as r:
        r.push(small(), "team/app:1")
        name = f"{r.host}/team/app:1"
        with Daemon(None, "--config", r.conf()) as d:
            other = write_auth(tmp_path / "other.json", "other.example", "anna:hush-4711")
            assert d.cli("image", "pull", "--auth-file", other, name).code == 125
            mine = write_auth(tmp_path / "mine.json", r.host + "/team", "anna:hush-4711")
            d.cli("image", "pull", "--auth-file", mine, name, check=True)
            # What was pulled with a login is asked about, and pulled again, with one.
            asked = d.cli("image", "outdated")
            assert asked.code == 125 and "refuses access" in asked.err.decode()
            assert d.cli("image", "outdated", "--auth-file", mine, check=True).text == ""
            new = r.push(small(b"new\n"), "team/app:1")
            asked = d.cli("image", "outdated", "-u", "anna", "--password-stdin", input=b"hush-4711")
            assert asked.code == 1 and f"has moved from" in asked.text and new[:19] in asked.text
            assert d.cli("image", "update", "--auth-file", mine, check=True).text == f"{name} {new}\n"
            path = "/v1/images/" + name.replace("/", "+") + "/outdated"
            assert d.post(path, {"username": "anna", "password": "hush-4711"}).json["outdated"] is False
            assert d.post(path, {"username": "anna", "password": "wrong"}).json["error"]["code"] == "denied"
            assert d.post(path, {"username": "anna"}).status == 400
            d.delete("/v1/images/" + name.replace("/", "+"))
            d.cli("image", "pull", "--username", "anna", "--password-stdin", name, input=b"hush-4711\n", check=True)


def test_the_client_shows_bytes_and_layers_on_a_terminal(tmp_path):
    image = Image().layer({"a": os.urandom(100000)}).layer({"b": os.urandom(300000)})
    second, goes_on = image.layers[1]["digest"], threading.Event()

    def lie(h, path):
        if not path.endswith(second):
            return False
        data = image.blobs[second]
        h.answer(data[:200000], length=len(data))
        goes_on.wait(20)
        h.wfile.write(data[200000:])
        return True

    with Liar(image, lie) as r:
        conf = tmp_path / "serve.conf"
        conf.write_text(f"network_private = 127.0.0.1:{r.port}\n")
        with Daemon(None, "--config", conf) as d:
            outside, terminal = os.openpty()
            p = subprocess.Popen([str(host.CLOCHE), "image", "pull", f"{r.host}/a/b:1"], stderr=terminal, stdout=subprocess.PIPE,
                                 env={**os.environ, "CLOCHE_URL": d.url, "CLOCHE_TOKEN": d.token})
            os.close(terminal)
            shown, end = b"", time.monotonic() + 20
            while b"of 2 layers" not in shown or b"%" not in shown:
                assert time.monotonic() < end, shown
                shown += os.read(outside, 4096)
                if time.monotonic() > end - 19:  # it draws after half a second, when something has changed
                    goes_on.set()
            goes_on.set()
            text = p.stdout.read().decode()
            assert p.wait(20) == 0 and text.startswith(f"{r.host}/a/b:1 sha256:"), text
            try:
                while more := os.read(outside, 4096):
                    shown += more
            except OSError:
                pass
            os.close(outside)
            assert re.search(rb"\r *\d+% \[=*>? *\] \S+ of 391K, \S+/s  [12] of 2 layers  127", shown), shown
            assert shown.endswith(b"\r\x1b[K"), shown  # nothing of it stays
            quiet = subprocess.run([str(host.CLOCHE), "image", "pull", f"{r.host}/a/b:1"], capture_output=True, check=True,
                                   env={**os.environ, "CLOCHE_URL": d.url, "CLOCHE_TOKEN": d.token})
            assert quiet.stderr == b""  # and nothing is drawn into a pipe


def test_an_interrupt_of_the_client_cancels_the_pull(tmp_path):
    image = Image().layer({"a": os.urandom(200000)})
    with Liar(image, lambda h, path: stall(h, path, image)) as r:
        conf = tmp_path / "serve.conf"
        conf.write_text(f"network_private = 127.0.0.1:{r.port}\n")
        with Daemon(None, "--config", conf) as d:
            p = subprocess.Popen([str(host.CLOCHE), "image", "pull", f"{r.host}/a/b:1"], stderr=subprocess.PIPE,
                                 env={**os.environ, "CLOCHE_URL": d.url, "CLOCHE_TOKEN": d.token})
            end = time.monotonic() + 20
            while not blobs(d) and time.monotonic() < end:
                time.sleep(0.02)
            p.send_signal(signal.SIGINT)
            assert p.wait(10) == 125 and b"cancelled" in p.stderr.read()
            assert [o["state"] for o in d.get("/v1/operations").json["operations"]] == ["canceled"]
