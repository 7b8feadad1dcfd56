"""Images built from Dockerfiles."""
import http.server
import io
import json
import os
import socket
import subprocess
import tarfile
import threading
import time
import urllib.parse

import pytest

import image_archive as ia
from api import d, eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from test_checkpoints import sh  # noqa: F401
from test_image_store import brought, no_images, path  # noqa: F401


def context(files):
    """name: bytes, or (bytes, {mode, …}); a name with a slash at its end is a folder; a text is a link's target."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, what in files.items():
            data, more = what if isinstance(what, tuple) else (what, {})
            info = tarfile.TarInfo(name.rstrip("/"))
            info.mode = 0o755 if name.endswith("/") else 0o644
            info.mtime = 1_000_000_000
            if name.endswith("/"):
                info.type, data = tarfile.DIRTYPE, b""
            elif isinstance(data, str):
                info.type, info.linkname, data = tarfile.SYMTYPE, data, b""
            for key, value in more.items():
                setattr(info, key, value)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def build(d, dockerfile, files=None, **kw):  # noqa: F811
    """What the daemon says, as a list of objects; the last one is done or error."""
    head = {"dockerfile": dockerfile, **kw}
    body = b""
    if files is None:
        head["context"] = False
    else:
        body = context(files)
        head["context_bytes"] = len(body)
    r = d.request("POST", "/v1/images/build", json.dumps(head).encode() + b"\n" + body)
    if r.status != 200:
        return [{"type": "error", "error": r.json["error"]}]
    return [json.loads(line) for line in r.body.decode().splitlines() if line]


def built(d, *args, **kw):  # noqa: F811
    events = build(d, *args, **kw)
    assert events[-1]["type"] == "done", events[-5:]
    return events


def output(events):
    return "".join(e["text"] for e in events if e["type"] == "output")


def cached(events):
    return [e["state"] == "cached" for e in events if e["type"] == "step" and e["state"] != "begun"]


@pytest.fixture(autouse=True)
def base(d, no_images):  # noqa: F811
    brought(d, ia.docker([ia.rootfs()], Env=["PATH=/bin", "A=1"]))
    yield
    assert d.delete("/v1/images/build/cache").status == 200


def test_steps_make_an_image(d):  # noqa: F811
    dockerfile = """
FROM test:1 AS first
WORKDIR /w
RUN echo made > file && id -u && pwd
COPY --chmod=640 a.txt sub/ /data/
ENV B="two words" C=$A
FROM test:1
ARG NAME=nobody
COPY --from=first /w/file /from-first
COPY <<end /here
text $NAME
end
RUN ["/bin/sh", "-c", "cat /here; echo $B"]
LABEL x=y
USER 5:6
ENTRYPOINT ["/bin/sh"]
CMD -c pwd
"""
    events = built(d, dockerfile, {"a.txt": b"a", "sub/": b"", "sub/b": (b"b", {"mode": 0o4755})}, tags=["mine", "mine:2"], args={"NAME": "me"})
    assert output(events) == "0\n/w\ntext me\n\n", output(events)
    i = d.get("/v1/images/mine").json
    assert i["digest"] == d.get("/v1/images/mine:2").json["digest"]
    assert i["config"]["entrypoint"] == ["/bin/sh"] and i["config"]["labels"] == {"x": "y"} and i["user"] == "5:6", i
    assert len(i["layers"]) == 4, i
    s = d.create(image="mine")
    assert sh(d, s, "cat /from-first; ls /; id -u").startswith("made\n")


def test_steps_that_were_done_are_cached(d):  # noqa: F811
    dockerfile = "FROM test:1\nRUN echo one > /one\nCOPY a /a\nRUN cat /a > /two\n"
    files = {"a": b"1", "b": b"x"}
    assert not any(cached(built(d, dockerfile, files)))
    assert cached(built(d, dockerfile, files)) == [False, True, True, True]
    assert cached(built(d, dockerfile, {**files, "b": b"other"})) == [False, True, True, True]
    assert cached(built(d, dockerfile, {**files, "a": b"2"})) == [False, True, False, False]
    assert cached(built(d, dockerfile.replace("one >", "ONE >"), files)) == [False, False, False, False]
    assert not any(cached(built(d, dockerfile, files, no_cache=True)))


# Two builds that differ in one thing that the step behind it can see: the step must not come from the cache of the other.
HERE = "FROM test:1\nRUN cat <<a && cat <<b\n%s\na\n%s\nb\n"
SEES = {
    "the first here-document": (HERE % (1, 2), HERE % (3, 2)),
    "the second here-document": (HERE % (1, 2), HERE % (1, 3)),
    "the user": ("FROM test:1\nUSER 5\nRUN id", "FROM test:1\nUSER 6\nRUN id"),
    "the folder": ("FROM test:1\nWORKDIR /a\nWORKDIR /b\nWORKDIR /a\nRUN pwd", "FROM test:1\nWORKDIR /a\nWORKDIR /b\nRUN pwd"),
    "a variable": ("FROM test:1\nENV X=1\nRUN echo $X", "FROM test:1\nENV X=2\nRUN echo $X"),
    "another variable": ("FROM test:1\nENV X=1 Y=2\nRUN env", "FROM test:1\nENV X='1 Y=2'\nRUN env"),
    "an argument": ("FROM test:1\nARG X=1\nRUN echo $X", "FROM test:1\nARG X=2\nRUN echo $X"),
    "an argument of the build": ("FROM test:1\nARG X\nRUN echo $X", "FROM test:1\nARG X\nRUN echo $X", {"args": {"X": "1"}}, {"args": {"X": "2"}}),
    "an argument of a step before": ("FROM test:1\nARG X=1\nRUN echo $X >/x\nRUN cat /x", "FROM test:1\nARG X=2\nRUN echo $X >/x\nRUN cat /x"),
    "the shell": ('FROM test:1\nSHELL ["/bin/sh", "-c"]\nRUN :', 'FROM test:1\nSHELL ["/bin/sh", "-ec"]\nRUN :'),
    "the form": ('FROM test:1\nRUN ["sh", "-c", "echo 1"]', 'FROM test:1\nRUN [ "sh", "-c", "echo 1" ] || :'),
    "the network": ("FROM test:1\nRUN --network=none true", "FROM test:1\nRUN true"),
    "the mounted stage": ("FROM test:1 AS a\nRUN echo 1 >/x\nFROM test:1\nRUN --mount=type=bind,from=a,target=/m cat /m/x",
                          "FROM test:1 AS a\nRUN echo 2 >/x\nFROM test:1\nRUN --mount=type=bind,from=a,target=/m cat /m/x"),
    "the mounted file": ("FROM test:1\nRUN --mount=type=bind,source=f,target=/m cat /m", "FROM test:1\nRUN --mount=type=bind,source=g,target=/m cat /m"),
    "the cache's id": ("FROM test:1\nRUN --mount=type=cache,id=1,target=/c ls /c", "FROM test:1\nRUN --mount=type=cache,id=2,target=/c ls /c"),
    "the copied owner": ("FROM test:1\nCOPY --chown=1 f /\n", "FROM test:1\nCOPY --chown=2 f /\n"),
    "the copied mode": ("FROM test:1\nCOPY --chmod=600 f /\n", "FROM test:1\nCOPY --chmod=644 f /\n"),
    "the copied place": ("FROM test:1\nCOPY f /a\n", "FROM test:1\nCOPY f /b\n"),
    "what is left out": ("FROM test:1\nCOPY --exclude=f . /\n", "FROM test:1\nCOPY --exclude=g . /\n"),
    "the copied here-document": ("FROM test:1\nCOPY <<f <<g /\n1\nf\n2\ng\n", "FROM test:1\nCOPY <<f <<g /\n1\nf\n3\ng\n"),
}


@pytest.mark.parametrize("what", SEES)
def test_what_a_step_can_see_is_in_its_key(d, what):  # noqa: F811
    one, other, *more = SEES[what]
    more = more or [{}, {}]
    files = {"f": b"f", "g": b"g"}
    built(d, one, files, **more[0])
    assert cached(built(d, one, files, **more[0]))[-1] is True
    assert cached(built(d, other, files, **more[1]))[-1] is False


@pytest.mark.parametrize("settings", [{"Env": ["PATH=/bin", "A=2"]}, {"Env": ["PATH=/bin", "A=1"], "User": "5"}, {"Env": ["PATH=/bin", "A=1"], "WorkingDir": "/etc"},
                                      {"Env": ["PATH=/bin", "A=1"], "Shell": ["/bin/busybox", "sh", "-c"]}], ids=lambda s: list(s)[-1])
def test_the_same_layers_with_another_configuration_are_another_base(d, settings):  # noqa: F811
    brought(d, ia.docker([ia.rootfs()], "test:2", **settings))
    built(d, "FROM test:1\nRUN id; pwd; env\n")
    assert cached(built(d, "FROM test:1\nRUN id; pwd; env\n"))[-1] is True
    assert cached(built(d, "FROM test:2\nRUN id; pwd; env\n"))[-1] is False


@pytest.mark.parametrize("dockerfile, want", [
    ("FROM test:1\nRUN exit 3", "line 2: RUN: the command failed with exit code 3"),
    ("FROM test:1\nCOPY nothing /x", "line 2: COPY: 'nothing' is not there"),
    ("FROM nowhere:1\n", "line 1: FROM: no image 'nowhere:1'"),
    ("FROM test:1\n\nADD https://example.com/x /x", "line 3: ADD: 'https://example.com/x': ADD does not take URLs"),
    ("FROM test:1\nFOO", "line 2: unknown instruction 'FOO'"),
    ("FROM test:1\nRUN --security=insecure true", "line 2: RUN --security is not supported"),
    ("FROM --platform=linux/mips test:1", "line 1: FROM: --platform=linux/mips is not supported"),
    ("FROM test:1\nCOPY --chown=stranger a /x", "line 2: COPY: --chown=stranger: the image has no such user"),
])
def test_what_is_wrong_is_said_with_its_line(d, dockerfile, want):  # noqa: F811
    last = build(d, dockerfile, {"a": b""})[-1]
    assert last["type"] == "error" and want in last["error"]["message"], last
    assert "RUN exit 3" not in dockerfile or "--allow HOST or --network open" in last["error"]["remedy"], last


@pytest.mark.parametrize("line", ["ADD https://example.com/x /x", "ADD git@example.com:a/b.git /x", "ADD a https://$WHERE/x /x/", "RUN --security=insecure true",
                                  "RUN --network=host true", "RUN --device=nvidia.com/gpu true", "RUN --mount=type=ssh true", "RUN --mount=type=cache,target=/c,from=test:1 true",
                                  "ONBUILD FROM x", "FOO"])
def test_what_is_not_supported_is_said_before_anything_is_made(d, line):  # noqa: F811
    layers = d.layers()
    for dockerfile in f"FROM test:1\nRUN echo {os.urandom(4).hex()} > /made\n{line}\n", f"FROM test:1 AS a\nRUN echo {os.urandom(4).hex()} > /made\n{line}\nFROM a\n":
        said = build(d, dockerfile, {"a": b""})
        assert said[-1]["type"] == "error" and "line 3: " in said[-1]["error"]["message"], said
        assert not [x for x in said if x.get("state") in ("begun", "done") and x.get("text", "").startswith("RUN")], said
    assert d.layers() == layers


def test_many_files_are_copied(d):  # noqa: F811
    files = {"many/": b"", **{f"many/{n:04}": str(n).encode() for n in range(2000)}}
    dockerfile = "FROM test:1\nCOPY many /m\nCOPY many/0* many/1??[0-4] /n/\nRUN ls /m | wc -l; ls /n | wc -l; cat /n/1234\n"
    assert output(built(d, dockerfile, files)) == "2000\n1500\n1234"
    assert cached(built(d, dockerfile, dict(reversed(files.items())))) == [False, True, True, True]


def test_the_resolver_of_a_step_is_not_in_the_image(d):  # noqa: F811
    net = {"mode": "allow", "allow": ["example.com"]}
    dockerfile = "FROM test:1\nRUN cat /etc/resolv.conf; echo mine > /etc/resolv.conf\nRUN --network=none ls /etc/resolv.conf; true\n"
    said = output(built(d, dockerfile, network=net))
    assert said.startswith("nameserver 198.18.0.1\n") and "ls: /etc/resolv.conf: No such file" in said, said
    dockerfile = "FROM test:1\nCOPY --chmod=640 r /etc/resolv.conf\nRUN cat /etc/resolv.conf\nRUN --network=none cat /etc/resolv.conf; stat -c %a /etc/resolv.conf\n"
    said = output(built(d, dockerfile, {"r": b"theirs\n"}, network=net))
    assert said.startswith("nameserver") and said.endswith("theirs\n640\n"), said


def test_mounts_of_a_step_are_in_no_layer(d):  # noqa: F811
    dockerfile = """
FROM test:1 AS other
RUN echo from-other > /there
FROM test:1
RUN --mount=type=bind,source=list,target=/list --mount=type=bind,source=sub,target=/sub \\
    --mount=type=bind,from=other,source=/there,target=/deep/er/there \\
    --mount=type=secret,id=s --mount=type=secret,id=e,env=E --mount=type=tmpfs,target=/scratch \\
    cat /list /sub/x /deep/er/there /run/secrets/s; stat -Lc %a /run/secrets/s; echo " $E"; echo x > /scratch/x; echo kept > /kept
RUN --mount=type=cache,target=/var/cache/x echo run >> /var/cache/x/log; cat /var/cache/x/log
RUN ls /list /deep /run/secrets/s /scratch/x /var/cache/x/log 2>&1 | wc -l; cat /kept
"""
    import base64
    files = {"list": b"list\n", "sub/": b"", "sub/x": b"sub\n"}
    secrets = {"s": base64.b64encode(b"geheim").decode(), "e": base64.b64encode(b"env").decode()}
    events = built(d, dockerfile, files, secrets=secrets, tags=["mounts"])
    assert output(events) == "list\nsub\nfrom-other\ngeheim400\n env\nrun\n5\nkept\n", output(events)
    assert b"geheim" not in json.dumps(d.get("/v1/images/mounts").json).encode()
    # Secrets are no part of a step's key, what is mounted is; a cache keeps what was in it.
    assert cached(built(d, dockerfile, files, secrets={**secrets, "s": "eA=="}))[4:6] == [True, True]
    events = built(d, dockerfile, {**files, "sub/x": b"new\n"}, secrets=secrets)
    assert cached(events)[3:] == [False, False, False] and "run\nrun\n" in output(events), events
    last = build(d, "FROM test:1\nRUN --mount=type=secret,id=no,required=true true\n")[-1]
    assert "line 2: RUN: --mount=type=secret: the build was not given the secret 'no'" in last["error"]["message"], last
    last = build(d, "FROM test:1\nRUN --mount=type=bind,source=list,target=/etc/passwd true\n", files)[-1]
    assert "exists already" in last["error"]["message"], last


def test_what_a_command_does_to_mounts_of_files(d):  # noqa: F811
    """It may remove one, and put files beside one, into a folder that was made for it."""
    import base64
    dockerfile = """
FROM test:1
RUN --mount=type=secret,id=s,target=/made/for/it/token cat /made/for/it/token; echo kept > /made/for/it/mine
RUN --mount=type=secret,id=s,target=/gone/token rm /gone/token
RUN find /made | sort; test -e /gone || echo none
"""
    events = built(d, dockerfile, secrets={"s": base64.b64encode(b"geheim\n").decode()})
    assert output(events) == "geheim\n/made\n/made/for\n/made/for/it\n/made/for/it/mine\nnone\n", output(events)


def test_an_image_has_at_most_128_layers(d):  # noqa: F811
    steps = "".join(f"COPY <<E /{n}\n{n}\nE\n" for n in range(128))
    i = built(d, "FROM scratch\n" + steps, tags=["deep"])[-1]["image"]
    assert len(i["layers"]) == 128
    events = build(d, "FROM deep\nENV A=1\nCOPY <<E /more\nmore\nE\nCOPY <<E /never\nE\n", tags=["deeper"])
    assert events[-1]["error"]["code"] == "too_large", events[-1]
    assert "line 3: COPY: the image would have 129 layers, and at most 128 are allowed" in events[-1]["error"]["message"], events[-1]
    assert not [e for e in events if e.get("line") == 6]
    assert len(built(d, "FROM deep\nENV A=1\n", tags=["deeper"])[-1]["image"]["layers"]) == 128
    s = d.create(image="deep", user="root")
    r = d.post(f"/v1/sandboxes/{s['id']}/commit", {"name": "deepest"})
    assert r.status == 413 and "129 layers" in r.json["error"]["message"], r


def test_the_client_builds_a_folder(d, tmp_path):  # noqa: F811
    (tmp_path / "Dockerfile").write_text("FROM test:1\nARG W\nCOPY . /c/\nRUN echo hello $W; find /c -type f | sort\nLABEL z=y\n")
    (tmp_path / ".dockerignore").write_text("*.o\nsub\n!sub/keep\n")
    (tmp_path / "a.o").write_bytes(b"no")
    (tmp_path / "s").write_bytes(b"suid")
    (tmp_path / "s").chmod(0o4711)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/keep").write_bytes(b"kept")
    (tmp_path / "sub/drop").write_bytes(b"no")
    p = d.cli("image", "build", "-t", "mine:3", "--build-arg", "W", "--label", "x=y", tmp_path, env={"W": "world"})
    said = p.err.decode()
    assert p.code == 0 and p.out == b"mine:3\n", p
    assert "hello world\n/c/.dockerignore\n/c/Dockerfile\n/c/s\n/c/sub/keep\n" in said and "[3/5] COPY . /c/" in said, said
    i = d.get("/v1/images/mine:3").json
    assert i["config"]["labels"] == {"x": "y", "z": "y"}
    p = d.cli("image", "build", "-t", "mine:3", "--build-arg", "W=world", tmp_path)
    assert p.err.decode().count("CACHED") == 2, p
    assert sh(d, d.create(image="mine:3"), "stat -c '%a %u' /c/s") == "4711 0"
    (tmp_path / "Dockerfile").write_text("FROM test:1\nRUN echo fine; exit 4\n")
    p = d.cli("image", "build", tmp_path)
    assert p.code == 125 and b"line 2: RUN: the command failed with exit code 4" in p.err and b"fine" in p.err, p
    p = d.cli("image", "build", "-", input=b"FROM test:1\nRUN true\n")
    assert p.code == 0 and p.out.startswith(b"build:"), p


def started(d, dockerfile, said):  # noqa: F811
    """A build whose client reads until that was said; then it is the caller's to end."""
    at = urllib.parse.urlsplit(d.url)
    s = socket.create_connection((at.hostname, at.port), timeout=60)
    body = json.dumps({"dockerfile": dockerfile, "context": False}).encode()
    s.sendall(b"POST /v1/images/build HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + d.token.encode() +
              b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    seen = b""
    while said not in seen:
        seen += s.recv(65536)
    return s


def sandboxes_inside(d):  # noqa: F811
    return [x for x in subprocess.run(["pgrep", "-f", "sleep 3[2]1"], capture_output=True, text=True).stdout.split()]


@pytest.mark.parametrize("parent", ["stage", "image"])
def test_triggers_copy_from_stages_that_nothing_else_needs(d, parent):  # noqa: F811
    trigger = "ONBUILD COPY --from=other /o /o\nONBUILD RUN cat /o > /ran\n"
    if parent == "image":
        built(d, "FROM test:1\n" + trigger, tags=["parent"])
    stage = f"FROM test:1 AS parent\n{trigger}" if parent == "stage" else ""
    assert output(built(d, f"FROM test:1 AS other\nRUN echo o > /o\n{stage}FROM parent AS child\nRUN cat /ran\nFROM child\nRUN rm /ran\n")) == "o\n"


def test_what_builds_may_reach_is_the_administrators_to_say(tmp_path):
    class Hello(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"from the mirror\n")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    conf = tmp_path / "serve.conf"
    conf.write_text(f"network_private = 127.0.0.1:{port}\nnetwork_hosts = mirror.test 127.0.0.1\nnetwork_set = builds: mirror.test:{port}\n")
    dockerfile = f"FROM test:1\nRUN wget -q -O - http://mirror.test:{port}/x > /got; cat /got\n"
    with Daemon(None, "--config", conf) as own:
        brought(own, ia.docker([ia.rootfs()], Env=["PATH=/bin", "A=1"]))
        assert output(built(own, dockerfile)) == "from the mirror\n"
        for refused in ({"network": "none"}, {"dockerfile": dockerfile.replace("RUN", "RUN --network=none")}):
            text = output(built(own, **{"dockerfile": dockerfile, "no_cache": True, **refused}))
            assert "mirror\n" not in text and "wget" in text, text
    conf.write_text(f"network_private = 127.0.0.1:{port}\nnetwork_hosts = mirror.test 127.0.0.1\n")
    with Daemon(None, "--config", conf) as own:  # without that set: nothing
        brought(own, ia.docker([ia.rootfs()], Env=["PATH=/bin", "A=1"]))
        assert "from the mirror" not in output(built(own, dockerfile))
    server.shutdown()
    server.server_close()


def test_a_build_whose_client_goes_leaves_nothing(d):  # noqa: F811
    s = started(d, "FROM test:1\nRUN echo ready; sleep 321\n", b"ready\\n")
    assert sandboxes_inside(d)
    s.close()
    eventually(lambda: not sandboxes_inside(d))
    assert not d.get("/v1/sandboxes?tenant=*").json["sandboxes"]
    assert [i["name"] for i in d.get("/v1/images").json["images"]] == ["test:1"]


def test_a_daemon_that_is_killed_in_a_build_leaves_nothing(d):  # noqa: F811
    s = started(d, "FROM test:1\nRUN echo one > /one\nRUN echo ready; sleep 321\n", b"ready\\n")
    d.kill9("api")
    s.close()
    eventually(lambda: d.request("GET", "/healthz").status == 200, seconds=30)
    eventually(lambda: not sandboxes_inside(d), seconds=30)
    assert not d.get("/v1/sandboxes?tenant=*").json["sandboxes"]
    # The step that was done is not done again.
    assert cached(built(d, "FROM test:1\nRUN echo one > /one\nRUN cat /one\n")) == [False, True, False]


def test_a_build_is_an_operation(d, base):  # noqa: F811
    events = built(d, "FROM test:1\nRUN echo a >/a\n", tags=["op:1"])
    newest = d.get("/v1/operations").json["operations"][0]
    assert (newest["kind"], newest["what"], newest["state"]) == ("build", "op:1", "done"), newest
    assert newest["result"] == {"image": "op:1", "digest": events[-1]["image"]["digest"]}
    ended = []
    t = threading.Thread(target=lambda: ended.extend(build(d, "FROM test:1\nRUN sleep 60\n", tags=["op:2"])), daemon=True)
    t.start()
    end = time.monotonic() + 30
    while not [o for o in d.get("/v1/operations").json["operations"] if o["what"] == "op:2" and o["progress"]]:
        assert time.monotonic() < end
        time.sleep(0.05)
    newest = d.get("/v1/operations").json["operations"][0]
    assert d.delete(f"/v1/operations/{newest['id']}").status == 202
    t.join(20)
    assert ended and ended[-1]["type"] == "error" and "canceled" in ended[-1]["error"]["message"], ended[-1:]
    assert d.get(f"/v1/operations/{newest['id']}").json["state"] == "canceled"
