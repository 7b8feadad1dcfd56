"""Stored images: brought as archives, listed, used, removed."""
import json
import tarfile

import pytest

import image_archive as ia
from api import as_tenant, d, error, eventually, nothing_is_left_behind  # noqa: F401
from test_checkpoints import sh  # noqa: F401


@pytest.fixture(autouse=True)
def no_images(d):  # noqa: F811
    yield
    for i in d.get("/v1/images?tenant=*").json["images"]:
        d.delete(f"/v1/images/{path(i['full_name'])}?tenant={i['tenant']}")
    for x in d.get("/v1/sandboxes?limit=1000&tenant=*").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{x['id']}")
    eventually(lambda: not d.layers(), seconds=20)


def path(name):
    return name.replace("/", "+")


def bring(d, data, query="", **kw):  # noqa: F811
    return d.request("POST", "/v1/images/import" + query, data, **kw)


def brought(d, data, query="", **kw):  # noqa: F811
    r = bring(d, data, query, **kw)
    assert r.status == 201, r
    return r.json


@pytest.fixture(scope="module")
def base():
    return ia.rootfs()


UPPER = ia.layer(ia.entry("etc/.wh.hosts"), ia.folder("srv", uid=33, gid=34), ia.entry("srv/page", b"hello", uid=33, mode=0o4755),
                 ia.hard("srv/other", "srv/page"), ia.entry("var/.wh..wh..opq"), ia.folder("var/new"))


@pytest.mark.parametrize("how", ["docker", "docker.gz", "docker.zst", "oci", "oci.gzip", "oci.zstd"])
def test_archives_of_images_are_imported_and_used(d, base, how):  # noqa: F811
    layers = [base, UPPER]
    fields = {"Env": ["PATH=/bin", "A=1"], "User": "www", "WorkingDir": "/srv", "Cmd": ["cat", "page"]}
    if how.startswith("docker"):
        data = ia.compress(ia.docker(layers, **fields), {"": "", ".gz": "gzip", ".zst": "zstd"}[how[6:]])
    else:
        data = ia.oci(layers, how[4:], **fields)
    i = brought(d, data)
    assert i["name"] == "test:1" and i["user"] == "33:34" and len(i["layers"]) == 2 and i["config"]["cmd"] == ["cat", "page"], i
    assert d.get("/v1/images").json["images"] == [i] and d.get("/v1/images/test:1").json == i
    assert d.get("/v1/images/" + i["digest"][7:19]).json == i
    s = d.create(image="test:1")
    assert s["image"] == "test:1" and s["workdir"] == "/srv" and s["user"] == "33:34" and s["env"] == {"PATH": "/bin", "A": "1"}, s
    out = sh(d, s, "id -u; pwd; cat page; stat -c '%a %u %h' page other; ls -A /var; echo $A; ls /etc/hosts; grep -c localhost /etc/hosts")
    assert out == "33\n/srv\nhello4755 33 2\n4755 33 2\nnew\n1\n/etc/hosts\n2", out


def test_a_root_filesystem_is_imported(d, base):  # noqa: F811
    for data in base, ia.compress(base, "zstd"), ia.compress(base, "gzip"):
        i = brought(d, data, "?name=local/base&config=%7B%22Cmd%22%3A%5B%22sh%22%5D%7D")
        assert i["name"] == "local/base:latest" and i["config"]["cmd"] == ["sh"] and i["user"] == "0:0"
    s = d.create(image="local/base")
    assert s["user"] == "root" and s["workdir"] == "/"
    assert sh(d, s, "id -u; pwd; ls -d /bin/busybox") == "0\n/\n/bin/busybox"
    error(bring(d, base), 400, "invalid")
    eventually(lambda: len(d.layers()) == 1)  # what was made again, before it was known to be the same, goes


def test_what_the_request_says_comes_before_the_image(d, base):  # noqa: F811
    brought(d, ia.docker([base], Env=["PATH=/bin", "A=1", "B=2"], User="www:web", WorkingDir="/srv"))
    s = d.create(image="test:1", user="root", workdir="/tmp", env={"A": "own"})
    assert sh(d, s, "id -u; pwd; echo $A $B") == "0\n/tmp\nown 2"
    s = d.create(image="test:1")
    assert sh(d, s, "id -u; id -g") == "33\n77"
    brought(d, ia.docker([base], "nobody:1", User="nobody-knows"))
    r = d.post("/v1/sandboxes", {"image": "nobody:1"})
    error(r, 422, "refused")
    assert "nobody-knows" in r.json["error"]["message"], r
    assert d.create(image="nobody:1", user="0:0")


def test_layers_are_shared_and_go_with_the_last_that_needs_them(d, base):  # noqa: F811
    brought(d, ia.docker([base]))
    eventually(lambda: len(d.layers()) == 1)  # what was made again, before it was known to be the same, goes
    brought(d, ia.oci([base, UPPER], name="two:1"))
    assert len(d.layers()) == 2
    tagged = d.post("/v1/images/two:1/tag", {"name": "r.example:5000/team/two"})
    assert tagged.status == 201 and tagged.json["name"] == "r.example:5000/team/two:latest", tagged
    s = d.create(image="r.example:5000/team/two")
    for name in "test:1", "two:1", "r.example:5000/team/two":
        assert d.delete("/v1/images/" + path(name)).status == 204
    assert d.get("/v1/images").json["images"] == []
    assert d.post("/v1/images/prune").json == {"layers": 0, "bytes": 0}
    assert sh(d, s, "cat /srv/page") == "hello"
    assert len(d.layers()) == 2
    d.delete(f"/v1/sandboxes/{s['id']}")
    eventually(lambda: not d.layers(), seconds=20)


def test_images_and_their_sandboxes_outlive_the_daemon(d, base):  # noqa: F811
    i = brought(d, ia.docker([base, UPPER]))
    s = d.create(image="test:1", storage="disk")
    d.kill9("api")
    eventually(lambda: d.get("/v1/images").status == 200)
    assert d.get("/v1/images").json["images"] == [i]
    d.restart()
    assert d.get("/v1/images").json["images"] == [i]
    assert sh(d, s, "cat /srv/page") == "hello"
    assert sh(d, d.create(image="test:1"), "cat /srv/page") == "hello"


def test_checkpoints_and_forks_of_a_sandbox_have_the_image(d, base):  # noqa: F811
    brought(d, ia.docker([base, UPPER]))
    s = d.create(image="test:1")
    sh(d, s, "echo more > /srv/more")
    c = d.post(f"/v1/sandboxes/{s['id']}/checkpoints", {}).json
    assert d.delete("/v1/images/test:1").status == 204 and d.delete(f"/v1/sandboxes/{s['id']}").status == 204
    again = d.post(f"/v1/checkpoints/{c['id']}/restore", {})
    assert again.status == 201, again
    again = again.json.get("sandboxes", [again.json])[0]
    assert again["image"] == "test:1"
    assert sh(d, again, "cat /srv/more /srv/page") == "more\nhello"
    fork = d.post(f"/v1/sandboxes/{again['id']}/fork", {}).json
    fork = fork.get("sandboxes", [fork])[0]
    assert sh(d, fork, "cat /srv/more /srv/page") == "more\nhello"
    d.delete(f"/v1/sandboxes/{again['id']}")
    d.delete(f"/v1/sandboxes/{fork['id']}")
    assert d.delete(f"/v1/checkpoints/{c['id']}").status == 204


def test_tenants_see_their_own_images_and_public_ones(d, base):  # noqa: F811
    if token := as_tenant(d, "other").token:
        brought(d, ia.docker([base]))
        error(d.get("/v1/images/test:1", token=token), 404, "not_found")
        error(d.post("/v1/sandboxes", {"image": "test:1"}, token=token), 404, "not_found")
        assert d.request("PATCH", "/v1/images/test:1?tenant=other", {"public": True}, token=token).status in (403, 404)
        assert d.request("PATCH", "/v1/images/test:1", {"public": True}).json["public"]
        assert [i["name"] for i in d.get("/v1/images", token=token).json["images"]] == ["test:1"]
        r = d.post("/v1/sandboxes", {"image": "test:1"}, token=token)
        assert r.status == 201, r
        assert d.delete(f"/v1/sandboxes/{r.json['id']}", token=token).status == 204
        error(d.delete("/v1/images/test:1", token=token), 403, "denied")
        # Its own comes before that of others.
        assert bring(d, ia.docker([UPPER]), token=token).status == 201
        assert d.get("/v1/images/test:1", token=token).json["tenant"] == "other"
        assert d.delete("/v1/images/test:1", token=token).status == 204


def operation(d, r):  # noqa: F811
    return d.get("/v1/operations/" + r.headers["X-Cloche-Operation"]).json


def events(d, o):  # noqa: F811
    r = d.get(f"/v1/operations/{o['id']}/events")
    assert r.headers["Content-Type"].startswith("text/event-stream"), r
    return [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line) for block in r.body.decode().split("\n\n") if "event" in block]


def test_an_import_is_an_operation_with_events(d, base):  # noqa: F811
    r = bring(d, ia.docker([base, UPPER]))
    o = operation(d, r)
    assert o["kind"] == "import" and o["state"] == "done" and o["result"]["image"] == "test:1", o
    assert o["progress"] == {"layer": 2, "layers": 2} and d.get("/v1/operations").json["operations"][0] == o
    assert [e["event"] for e in events(d, o)] == ["found", "progress", "end"]
    error(d.delete("/v1/operations/" + o["id"]), 409, "conflict")
    error(d.get("/v1/operations/nothing"), 404, "not_found")
    o = operation(d, bring(d, b"no archive" * 1000, "?name=x"))
    assert o["state"] == "failed" and o["error"]["code"] == "refused", o
    other = as_tenant(d, "watcher").token
    error(d.get(f"/v1/operations/{o['id']}", token=other), 404, "not_found")
    assert d.get("/v1/operations", token=other).json["operations"] == []


def cli(d, *args):  # noqa: F811
    r = d.cli(*args)
    assert r.code == 0, r
    return r.out.decode() if isinstance(r.out, bytes) else r.out


def test_the_commands_for_images(d, base, tmp_path):  # noqa: F811
    (tmp_path / "a.tar").write_bytes(ia.oci([base, UPPER], Cmd=["cat", "/srv/page"]))
    assert cli(d, "image", "import", tmp_path / "a.tar", "my/tool:2").strip() == "my/tool:2"
    folder = tmp_path / "root"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/name").write_text("folder")
    assert cli(d, "image", "import", folder, "plain").strip() == "plain:latest"
    assert cli(d, "image", "tag", "my/tool:2", "my/tool:3").strip() == "my/tool:3"
    lines = cli(d, "image", "ls").splitlines()
    assert lines[0].split() == ["NAME", "DIGEST", "LAYERS", "SIZE", "STORED", "ACCESS"] and [x.split()[0] for x in lines[1:]] == ["plain:latest", "my/tool:2", "my/tool:3"]
    assert json.loads(cli(d, "image", "inspect", "my/tool:2"))["config"]["cmd"] == ["cat", "/srv/page"]
    assert [x.split()[-2:] for x in cli(d, "image", "history", "my/tool:2").splitlines()[1:]] == [["layer", "1"], ["layer", "0"]]
    assert cli(d, "image", "df").splitlines()[1].split()[:3] == ["default", "3", "3"]
    cli(d, "image", "rm", "my/tool:2", "my/tool:3", "plain")
    assert "layers removed" in cli(d, "image", "prune")
    assert d.cli("image", "rm", "plain").code == 125
    out = tmp_path / "layout"
    with tarfile.open(tmp_path / "a.tar") as t:
        t.extractall(out)
    assert cli(d, "image", "import", out).strip() == "test:1"


def test_run_of_a_stored_image(d, base):  # noqa: F811
    brought(d, ia.docker([base], "tool:1", Env=["PATH=/bin", "WHO=image"], Entrypoint=["echo", "-n"], Cmd=["own", "words"], WorkingDir="/srv"))
    brought(d, ia.docker([base], "none:1"))
    assert d.cli("run", "--image", "tool:1").text == "own words"
    assert d.cli("run", "--image=tool:1", "--", "given").text == "given"
    assert d.cli("run", "--image", "tool:1", "--entrypoint", "pwd").text == "/srv\n"
    assert d.cli("run", "--image", "tool:1", "--entrypoint", "", "--", "sh", "-c", "echo $WHO; exit 7").code == 7
    assert d.cli("run", "--image", "tool:1", "-e", "WHO=me", "--user", "33", "--entrypoint", "", "--", "sh", "-c", "echo $WHO; id -u").text == "me\n33\n"
    assert d.cli("run", "--image", "tool:1", "--entrypoint", "cat", input=b"from outside").text == "from outside"
    r = d.cli("run", "--image", "none:1")
    assert r.code == 125 and b"no command of its own" in r.err, r
    r = d.cli("run", "--image", "nothing:1", "--", "true")
    assert r.code == 125 and b"no image 'nothing:1'" in r.err, r
    assert d.get("/v1/sandboxes").json["sandboxes"] == []
    r = d.cli("run", "--image", "tool:1", "--json", "--entrypoint", "", "--", "sh", "-c", "cat; exit 3", input=b"in")
    result = r.json
    assert (r.code, result["exit_code"], result["stdout"], result["verdict"]["cause"]) == (3, 3, "in", "exited"), r
    assert result["enforced"]["isolation"] == "container"
    assert d.get("/v1/sandboxes").json["sandboxes"] == []
    r = d.cli("run", "--image", "tool:1", env={"CLOCHE_URL": "http://127.0.0.1:9"})
    assert r.code == 125 and b"no daemon answers" in r.err, r
    r = d.cli("run", "--entrypoint", "sh", "--", "true")
    assert r.code == 125 and b"it is for stored images" in r.err, r


def test_templates_are_made_of_images(d, base):  # noqa: F811
    brought(d, ia.docker([base, UPPER], User="www", WorkingDir="/srv", Env=["A=1"]))
    assert d.put("/v1/templates/paged", {"image": "test:1", "memory": "64M"}).status == 201
    assert d.put("/v1/pools/paged", {"template": "paged", "min": 1, "max": 2}).status == 201
    eventually(lambda: d.get("/v1/pools/paged").json["ready"] == 1)
    s = d.create(template="paged")
    assert sh(d, s, "id -u; pwd; cat page; echo; echo $A") == "33\n/srv\nhello\n1"
    d.delete("/v1/pools/paged")
    d.delete("/v1/templates/paged")


def test_a_diff_says_what_was_changed_above_the_image(d, base):  # noqa: F811
    brought(d, ia.docker([base, UPPER]))
    s = d.create(image="test:1")
    sh(d, s, "echo 1 > /srv/mine; rm /srv/other")
    r = d.get(f"/v1/sandboxes/{s['id']}/diff")
    assert r.status == 200 and b"/srv/mine" in r.body and b"/srv/other" in r.body and b"busybox" not in r.body, r


def test_an_exported_checkpoint_has_the_files_of_the_image(d, base):  # noqa: F811
    brought(d, ia.docker([base, UPPER]))
    s = d.create(image="test:1")
    sh(d, s, "echo 1 > /srv/mine")
    c = d.post(f"/v1/sandboxes/{s['id']}/checkpoints", {}).json
    data = d.get(f"/v1/checkpoints/{c['id']}/export").body
    assert d.delete(f"/v1/checkpoints/{c['id']}").status == 204 and d.delete("/v1/images/test:1").status == 204
    back = d.request("POST", "/v1/checkpoints/import", data)
    assert back.status == 201, back
    again = d.post(f"/v1/checkpoints/{back.json['id']}/restore", {"count": 1}).json["sandboxes"][0]
    assert sh(d, again, "cat /srv/page /srv/mine; ls /bin/busybox") == "hello1\n/bin/busybox"
    assert d.delete(f"/v1/checkpoints/{back.json['id']}").status == 204
