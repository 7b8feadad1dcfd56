"""Secrets that egress adds to requests: the server sees them, the sandbox never does. Real clients, real TLS."""
import base64
import json
import urllib.parse

import pytest

from api import events, eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from net_world import World

VALUE = "s3cret-value/with+signs"
TO = {"name": "KEY", "as": "header", "header": "Authorization", "format": "Bearer {}", "to": "web.test"}
PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def w():
    with World() as one:
        yield one


@pytest.fixture(scope="module")
def d(nothing_is_left_behind, w):  # pylint: disable=redefined-outer-name,unused-argument
    with Daemon(None, "--config", w.config()) as one:
        assert one.put("/v1/secrets/KEY", {"value": VALUE}).status == 201
        yield one


@pytest.fixture(autouse=True)
def clean(d, w):
    yield
    for b in d.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")
    for s in (w.web, w.other):
        s.heads.clear()
        s.requests.clear()


def box(d, *uses, allow=("web.test", "other.test")):
    return d.create(network={"allow": list(allow)}, secrets=list(uses))["id"]


def sh(d, b, script):
    r = d.exec(b, "/bin/sh", "-c", script)
    return r["exit_code"], r["stdout"], r["stderr"]


def sent(site, name):
    """What the last request to `site` had of that header: a list."""
    return [v for k, v in site.heads[-1] if k.lower() == name.lower()]


# --- clients as people have them: none of them knows of this ---

CLIENTS = {
    "curl": "curl -sS https://web.test/hello",
    "urllib": f"{PYTHON} -c 'import urllib.request as u; print(u.urlopen(\"https://web.test/hello\").read().decode())'",
    "requests": f"{PYTHON} -c 'import pip._vendor.requests as r; print(r.get(\"https://web.test/hello\").text)'",
    "node": "node -e 'fetch(\"https://web.test/hello\").then(r => r.text()).then(console.log, e => { console.log(e.cause); process.exit(1) })'",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_header_reaches_the_server_and_no_one_else(d, w, client):
    b = box(d, TO)
    code, out, err = sh(d, b, CLIENTS[client])
    assert code == 0, (out, err)
    assert json.loads(out)["tls"] and sent(w.web, "Authorization") == ["Bearer " + VALUE]
    assert VALUE not in out and VALUE not in err
    code, out, _ = sh(d, b, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    assert VALUE not in out and "***" not in out


def test_git_uses_it_too(d, w):
    b = box(d, {"name": "KEY", "as": "basic", "user": "me", "to": "git.test"}, allow=("git.test",))
    code, out, err = sh(d, b, "cd /tmp && git clone -q https://git.test/git/sample.git one && git -C one log --oneline | wc -l")
    assert code == 0 and out.strip() == "2", (out, err)
    want = "Basic " + base64.b64encode(f"me:{VALUE}".encode()).decode()
    site = w.sites["git.test"]
    assert site.heads and all(dict(h)["Authorization"] == want for h in site.heads)


def test_what_the_sandbox_sends_itself_is_replaced(d, w):
    b = box(d, TO)
    code, _, err = sh(d, b, "curl -sS -H 'Authorization: Bearer mine' -H 'authorization: again' https://web.test/hello")
    assert code == 0, err
    assert sent(w.web, "Authorization") == ["Bearer " + VALUE]


def test_a_query_parameter_is_encoded_and_replaced(d, w):
    b = box(d, {"name": "KEY", "as": "query", "parameter": "key", "to": "web.test"})
    code, _, err = sh(d, b, "curl -sS 'https://web.test/hello?a=1&key=mine&k%65y=too'")
    assert code == 0, err
    query = urllib.parse.urlsplit(w.web.requests[-1][1]).query
    assert urllib.parse.parse_qs(query) == {"a": ["1"], "key": [VALUE]}


def test_every_request_of_a_connection_has_it(d, w):
    b = box(d, TO)
    code, out, err = sh(d, b, "curl -sS -w '%{num_connects}' -d x https://web.test/echo https://web.test/hello https://web.test/bytes/100000 | tail -c1")
    assert code == 0 and out == "0", (out, err)
    assert len(w.web.heads) == 3 and all(("Authorization", "Bearer " + VALUE) in h for h in w.web.heads)


def test_large_bodies_pass_both_ways(d, w):
    b = box(d, TO)
    code, out, err = sh(d, b, "head -c 8000000 /dev/urandom > /tmp/a && curl -sS --data-binary @/tmp/a https://web.test/echo -o /tmp/b && cmp /tmp/a /tmp/b && "
                        "curl -sS https://web.test/bytes/30000000 | wc -c")
    assert code == 0 and out.strip() == "30000000", (out, err)
    assert sent(w.web, "Authorization") == ["Bearer " + VALUE]


def test_many_at_once(d, w):
    b = box(d, TO)
    code, out, err = sh(d, b, "seq 40 | xargs -P 10 -I{} curl -sS -o /dev/null -w '%{http_code}\\n' https://web.test/hello?{} | sort | uniq -c")
    assert code == 0 and out.split() == ["40", "200"], (out, err)
    assert len(w.web.heads) == 40 and all(("Authorization", "Bearer " + VALUE) in h for h in w.web.heads)


@pytest.mark.parametrize("proxy", ["http://198.18.0.1:3128", "socks5h://198.18.0.1:1080", "socks5://198.18.0.1:1080"])
def test_through_a_proxy_it_is_the_same(d, w, proxy):
    b = box(d, TO)
    code, out, err = sh(d, b, f"curl -sS -x {proxy} https://web.test/hello")
    assert code == 0, (out, err)
    assert sent(w.web, "Authorization") == ["Bearer " + VALUE]


PLAIN = {"name": "KEY", "as": "header", "header": "X-Key", "format": "{}", "to": "web.test:80", "plain": True}


@pytest.mark.parametrize("how", ["", "-x http://198.18.0.1:3128", "-p -x http://198.18.0.1:3128", "-x socks5h://198.18.0.1:1080"])
def test_without_tls_when_an_admin_wants_it_so(d, w, how):
    b = box(d, PLAIN)
    code, out, err = sh(d, b, f"curl -sS {how} -d abc http://web.test/hello")
    assert code == 0, (out, err)
    assert w.web.requests[-1] == ("POST", "/hello", "web.test") and sent(w.web, "X-Key") == [VALUE]
    w_ca = w.give_ca(d, b)
    assert sh(d, b, f"curl -sS {how} --cacert {w_ca} https://web.test/hello")[0] == 0
    assert not sent(w.web, "X-Key")


# --- for that server only ---


def test_other_servers_and_plain_http_do_not_get_it(d, w):
    b = box(d, TO)
    w_ca = w.give_ca(d, b)
    code, out, err = sh(d, b, f"curl -sS --cacert {w_ca} https://other.test/hello && curl -sS http://other.test/hello && curl -sS http://web.test/hello")
    assert code == 0, (out, err)
    assert not [h for h in w.other.heads + w.web.heads if "Authorization" in dict(h)]
    assert len(w.other.heads) == 2 and len(w.web.heads) == 1


def test_streams_that_need_nothing_are_not_terminated(d, w):
    b = box(d, TO)
    w_ca = w.give_ca(d, b)
    code, out, _ = sh(d, b, f"curl -sS -v --cacert {w_ca} https://other.test/hello 2>&1 | grep -i 'issuer:'")
    assert code == 0 and "Test authority" in out
    code, out, _ = sh(d, b, "curl -sS -v https://web.test/hello 2>&1 | grep -i 'issuer:'")
    assert code == 0 and "sandbox" in out and "Test authority" not in out


def test_a_redirect_elsewhere_does_not_take_it_along(d, w):
    b = box(d, TO)
    code, out, err = sh(d, b, "curl -sSL 'https://web.test/redirect?to=http://other.test/hello'")
    assert code == 0 and json.loads(out)["site"] == "other.test", (out, err)
    assert sent(w.web, "Authorization") and not sent(w.other, "Authorization")


def test_another_host_on_the_same_connection_is_refused(d, w):
    b = box(d, TO)
    code, out, _ = sh(d, b, "curl -sS -H 'Host: other.test' -w '%{http_code}' https://web.test/hello")
    assert code == 0 and out.endswith("421") and json.loads(out[:-3])["code"] == "denied"
    assert not w.web.requests and not w.other.requests


def test_by_address_or_with_another_name_nothing_is_added(d, w):
    b = box(d, TO, allow=("web.test", "other.test", w.web.address))
    code, out, _ = sh(d, b, f"curl -sS -k --resolve web.test:443:{w.web.address} https://web.test/hello; curl -sS -k https://{w.web.address}/hello")
    assert VALUE not in out
    assert not [h for h in w.web.heads if "Authorization" in dict(h)], code


def test_two_sandboxes_have_a_ca_each(d):
    a, b = box(d, TO), box(d, TO)
    one, other = (d.request("GET", f"/v1/sandboxes/{x}/files?path=" + sh(d, x, "printf %s $SSL_CERT_FILE")[1]).body for x in (a, b))
    assert one and other and one != other
    r = d.request("PUT", f"/v1/sandboxes/{b}/files?path=/tmp/stranger.pem", one)
    assert r.status in (200, 201, 204)
    code, _, err = sh(d, b, "curl -sS --cacert /tmp/stranger.pem https://web.test/hello")
    assert code != 0 and "certificate" in err


# --- what comes back ---

SECRETS = [VALUE, base64.b64encode(VALUE.encode()).decode().rstrip("="), VALUE.encode().hex()]


def test_a_value_that_the_server_gives_back_is_masked(d, w):
    b = box(d, TO)
    code, out, _ = sh(d, b, "curl -sS -i https://web.test/hello; curl -sS -i https://web.test/reflect/chunks")
    assert code == 0 and not [s for s in SECRETS if s in out], out
    assert out.count("Bearer " + "*" * len(VALUE)) == 3 and out.endswith("end"), out  # a body, a header, a body of many chunks
    assert sent(w.web, "Authorization") == ["Bearer " + VALUE] and sent(w.web, "Accept-Encoding") == ["identity"]


def test_a_compressed_answer_is_refused_where_a_value_was_sent(d, w):
    b = box(d, TO)
    code, out, _ = sh(d, b, "curl -sS --compressed -w '%{http_code}' https://web.test/reflect/gzip")
    assert code == 0 and out.endswith("502") and "compressed" in out, out
    # Elsewhere nobody looks.
    code, out, _ = sh(d, b, "curl -sS -k --compressed -w '%{http_code}' -H 'Authorization: mine' https://other.test/reflect/gzip")
    assert out == "mine200", out


def test_events_are_not_held_back(d, w):
    b = box(d, TO)
    w.web.held.clear()
    w.web.release.clear()
    script = ("import urllib.request as u\nr = u.urlopen('https://web.test/reflect/events', timeout=60); print(r.readline(), r.readline())\n"
              "u.urlopen('https://web.test/release', timeout=60).read(); print(r.read())")
    code, out, err = sh(d, b, f"{PYTHON} -c \"{script}\"")
    assert code == 0 and out == "b'data: one\\n' b'\\n'\nb'end'\n", (out, err)


# --- the server's identity ---


def test_a_server_whose_certificate_is_not_trusted_gets_nothing(w):
    config = w.folder / "stranger.conf"
    config.write_text("".join(f"{k} = {v}\n" for k, v in w.settings() if k != "network_ca") + "network_ca = /etc/ssl/certs/ca-certificates.crt\n")
    with Daemon(None, "--config", config) as one:
        assert one.put("/v1/secrets/KEY", {"value": VALUE}).status == 201
        b = box(one, TO)
        before = len(w.web.requests)
        code, out, _ = sh(one, b, "curl -sS -w '%{http_code}' https://web.test/hello")
        assert code == 0 and out.endswith("502"), out
        e = json.loads(out[:-3])
        assert e["code"] == "unreachable" and "not trusted" in e["message"] and "network_ca" in e["remedy"]
        assert len(w.web.requests) == before


def test_a_new_value_is_used_at_once(d, w):
    b = box(d, TO)
    assert sh(d, b, "curl -sS https://web.test/hello")[0] == 0
    try:
        assert d.put("/v1/secrets/KEY", {"value": "another-value"}).status in (200, 201)
        assert sh(d, b, "curl -sS https://web.test/hello")[0] == 0
        assert sent(w.web, "Authorization") == ["Bearer another-value"]
    finally:
        d.put("/v1/secrets/KEY", {"value": VALUE})


def test_a_value_that_can_not_stand_in_a_request_takes_nothing_else_along(d, w):
    b = box(d, TO)
    try:
        for value in ("two\nlines of it", "blank at its end "):
            assert d.put("/v1/secrets/KEY", {"value": value}).status == 200
            assert sh(d, b, "curl -sS https://web.test/hello --cacert /etc/ssl/certs/ca-certificates.crt; curl -sS http://other.test/hello")[0] == 0
            assert not [x for site in (w.web, w.other) for h in site.heads for k, x in h if value[:3] in x]
            r = d.post("/v1/sandboxes", {"network": {"allow": ["web.test"]}, "secrets": [TO]})
            assert r.status == 400 and "KEY" in r.json["error"]["message"], r
            assert d.get(f"/v1/sandboxes/{b}/network").json["state"] == "in force"
    finally:
        d.put("/v1/secrets/KEY", {"value": VALUE})
    assert sh(d, b, "curl -sS https://web.test/hello")[0] == 0
    assert sent(w.web, "Authorization") == ["Bearer " + VALUE]


def test_its_use_is_in_the_audit_and_the_value_is_not(d):
    b = box(d, TO)
    assert sh(d, b, "curl -sS https://web.test/hello")[0] == 0

    def told():
        r = d.get(f"/v1/audit?sandbox={b}&limit=100")
        assert r.status == 200 and VALUE not in r.body.decode()
        return [x for x in r.json["records"] if "KEY" in json.dumps(x.get("detail", x)) and "web.test" in json.dumps(x)]
    assert eventually(told, 30)
