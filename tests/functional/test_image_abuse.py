"""What a tenant may try against images and builds: more than its share, things that vanish meanwhile, what is left behind."""
import json
import socket
import time

import pytest

import api
import image_archive as ia
from api import as_tenant, d, error, eventually, nothing_is_left_behind  # noqa: F401
from test_checkpoints import sh  # noqa: F401
from test_image_build import build, context  # noqa: F401
from test_image_store import brought, no_images  # noqa: F401


@pytest.fixture(autouse=True)
def base(d, no_images):  # noqa: F811
    brought(d, ia.docker([ia.rootfs()], Env=["PATH=/bin", "A=1"]))
    yield
    assert d.delete("/v1/images/build/cache").status == 200


def memory(d):  # noqa: F811
    """Bytes of memory of the API process."""
    return api.rss(d.children()["api"])


def test_an_image_that_is_removed_while_a_build_of_it_waits(d):  # noqa: F811
    body = context({"a": b"a"})
    s = socket.create_connection(api.place(d))
    head = json.dumps({"dockerfile": "FROM test:1\nCOPY a /a\nRUN cat /a /etc/passwd\n", "context_bytes": len(body), "tags": ["t"]}).encode() + b"\n"
    s.sendall(b"POST /v1/images/build HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
              % (d.token.encode(), len(head) + len(body)) + head)
    time.sleep(1)
    assert d.delete("/v1/images/test:1").status == 204
    for n in range(20):
        brought(d, ia.docker([ia.rootfs()], f"other:{n}", Env=["PATH=/bin", "X=" + "y" * 100 * n]))
    s.sendall(body)
    answer = b""
    while (more := s.recv(65536)):
        answer += more
    assert b'"type":"done"' in answer and b"root:x:0" in answer, answer


def test_a_command_that_says_more_than_is_read(d):  # noqa: F811
    was = memory(d)
    s = socket.create_connection(api.place(d))
    head = json.dumps({"dockerfile": "FROM test:1\nRUN yes 0123456789012345678901234567890123456789012345678901234567890123456789\n", "context": False}).encode()
    s.sendall(b"POST /v1/images/build HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (d.token.encode(), len(head)) + head)
    time.sleep(10)
    now = memory(d)
    s.close()
    assert now - was < 64 << 20, (was, now)


def test_builds_at_once_are_bounded(d):  # noqa: F811
    open_ = []
    try:
        for _ in range(24):
            s = socket.create_connection(api.place(d))
            head = json.dumps({"dockerfile": "FROM test:1\nRUN sleep 1000\n", "context": False, "no_cache": True}).encode()
            s.sendall(b"POST /v1/images/build HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (d.token.encode(), len(head)) + head)
            open_.append(s)
        time.sleep(3)
        answers = []
        for s in open_:
            s.settimeout(1)
            answers.append(s.recv(65536).split(b"\r\n")[0])
        assert sum(b" 200 " in a for a in answers) == 16 and sum(b" 503 " in a for a in answers) == 8, answers
    finally:
        for s in open_:
            s.close()
    time.sleep(1)


@pytest.mark.parametrize("text", ["ENV A=" + "a" * 2000 + "\n" + ("ENV x=" + "${A//*a*a*a*b/}" * 2000 + "\n") * 20,
                                  "ENV A=" + "a" * 60000 + "\nENV B=" + "$A" * 16 + "\nENV C=${B#" + "*a" * 100000 + "}\n",
                                  "ENV A=" + "a" * 60000 + "\nENV B=" + "$A" * 16 + "\nENV C=" + "${x:+$B}" * 50000 + "\n",
                                  "EXPOSE " + "1-4000 " * 50000 + "\n", "LABEL " + "".join(f"l{n % 4000}=1 " for n in range(90000)) + "\n"],
                         ids=["replace", "trim", "operand", "ports", "labels"])
def test_a_small_dockerfile_that_asks_for_much_work(d, text):  # noqa: F811
    begun = time.monotonic()
    last = build(d, "FROM test:1\n" + text, tags=["x"])[-1]
    assert last["type"] == "error" and last["error"]["code"] == "too_large", last
    assert time.monotonic() - begun < 5


def test_arguments_are_compared_with_those_of_a_large_dockerfile_once(d):  # noqa: F811
    """No other request is served meanwhile. Processor time is compared, which does not depend on what else runs."""
    def spent(**kw):
        before = api.cpu(d.children()["api"])
        last = build(d, "FROM test:1\n" + ("ARG" + " a" * 120 + "\n") * 4000, {"x": b""}, **kw)[-1]
        assert last["type"] == "done", last
        return api.cpu(d.children()["api"]) - before
    assert spent(args={f"a{n}": "x" for n in range(512)}) < 3 * spent() + 0.3


def test_a_configuration_that_grows_is_refused(d):  # noqa: F811
    was = memory(d)
    r = build(d, "FROM test:1\nENV A=" + "a" * 60000 + "\nENV B=" + "$A" * 16 + "\n" + "".join(f"LABEL l{n}=$B\n" for n in range(400)), tags=["x"])
    assert r[-1]["type"] == "error"
    assert memory(d) - was < 64 << 20, (was, memory(d))


def test_images_of_a_tenant_are_bounded(d):  # noqa: F811
    big = {f"l{n}": "x" * 60000 for n in range(60)}
    brought(d, ia.docker([ia.rootfs()], "big:1", Labels=big))
    answers = [d.post("/v1/images/big:1/tag", {"name": f"big:{n}"}) for n in range(2, 40)]
    refused = [r for r in answers if r.status != 201]
    assert 10 < len(answers) - len(refused) < 20 and "64 MiB" in refused[0].json["error"]["message"], refused[:1]
    assert d.post("/v1/images/test:1/tag", {"name": "small:1"}).status == 201


def test_a_tenant_of_a_name_that_was_there_before_finds_nothing(d):  # noqa: F811
    first = as_tenant(d, "again")
    assert d.request("POST", "/v1/images/import", ia.docker([ia.rootfs(), ia.layer(ia.entry("mine", b"m"))], "mine:1"), token=first.token).status == 201
    assert d.delete("/v1/tenants/again").status == 204
    second = as_tenant(d, "again")
    assert second.get("/v1/images").json["images"] == [] and second.get("/v1/images/mine:1").status == 404
    assert second.request("POST", "/v1/sandboxes", {"image": "mine:1"}).status == 404
    assert [i["name"] for i in d.get("/v1/images?tenant=*").json["images"]] == ["test:1"]
