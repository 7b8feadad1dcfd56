"""Networks of sandboxes through the API: policies, changes, counts, refusals, and what they survive."""
import json

import pytest

import host
from daemon import Daemon
from net_world import World

GET = "import sys,urllib.request as u\nprint(u.urlopen(sys.argv[1], timeout=10).read().decode())"
TRY = ("import socket,sys\ns=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET); s.settimeout(10)\n"
       "try:\n s.connect((sys.argv[1], int(sys.argv[2]))); print('connected')\nexcept OSError as e: print(type(e).__name__)\n")


@pytest.fixture(scope="module")
def w():
    with World() as one:
        yield one


@pytest.fixture(scope="module")
def d(w):
    config = w.folder / "sets.conf"
    config.write_bytes(w.config("network_set = packages: pypi.test, npm.test", "network_set = packages: other.test:443").read_bytes())
    with Daemon(None, "--config", config) as one:
        yield one


@pytest.fixture
def nothing_is_left_behind():
    """World and daemon stay for all tests of this module."""


@pytest.fixture(autouse=True)
def no_sandboxes(request):
    yield
    if "d" in request.fixturenames:
        one = request.getfixturevalue("d")
        for b in one.get("/v1/sandboxes?limit=1000").json["sandboxes"]:
            one.delete(f"/v1/sandboxes/{b['id']}")


def get(d, box, url):
    """What a site answers as JSON, or None."""
    r = d.exec(box, "python3", "-c", GET, url)
    return json.loads(r["stdout"]) if r["exit_code"] == 0 else None


def connect(d, box, address, port):
    return d.exec(box, "python3", "-c", TRY, address, str(port))["stdout"].strip()


def look(d, box, why=False):
    r = d.get(f"/v1/sandboxes/{box}/network" + ("?why" if why else ""))
    assert r.status == 200, r
    return r.json


def put(d, box, policy, status=200):
    r = d.put(f"/v1/sandboxes/{box}/network", policy)
    assert r.status == status, r
    return r.json


def audit(d, box, kind):
    return d.get(f"/v1/audit?sandbox={box}&kind={kind}&limit=10000").json["records"]


def error(r, status, code, says=""):
    assert r.status == status and r.json["error"]["code"] == code and says in r.json["error"]["message"], r
    assert r.json["error"]["remedy"] or status == 400
    return r.json["error"]


def forked(d, box):
    r = d.post(f"/v1/sandboxes/{box}/fork", {})
    assert r.status == 201, r
    return r.json["sandboxes"][0]["id"]


def restored(d, checkpoint, **fields):
    r = d.post(f"/v1/checkpoints/{checkpoint}/restore", fields)
    assert r.status == 201, r
    return r.json["sandboxes"][0]


# --- modes ---

def test_what_is_allowed_is_reached_and_the_rest_is_not(d, w):
    b = d.create(network={"allow": ["web.test", "@packages"]})
    assert b["network"] == {"mode": "allow", "allow": ["web.test", "@packages"]} and "cloche-egress" in b["enforced"]["network"]
    box = b["id"]
    assert get(d, box, "http://web.test/hello")["site"] == "web.test"
    assert get(d, box, "http://pypi.test/hello")["site"] == "pypi.test"
    assert get(d, box, "http://other.test/hello") is None  # its rule has port 443 alone
    assert get(d, box, "http://git.test/hello") is None
    assert connect(d, box, w.web.address, 80) in ("ConnectionRefusedError", "connected")  # 127/8 is the sandbox's own
    assert connect(d, box, "9.9.9.9", 443) == "ConnectionRefusedError"
    assert connect(d, box, "2001:db8::1", 443) == "ConnectionRefusedError"


def test_an_empty_list_denies_all(d):
    box = d.create(network={"allow": []})["id"]
    assert get(d, box, "http://web.test/hello") is None
    assert look(d, box)["state"] == "in force"


def test_open_reaches_what_is_public_or_named_by_the_administrator(d):
    box = d.create(network="open")["id"]
    assert get(d, box, "http://web.test/hello")["site"] == "web.test"
    assert get(d, box, "http://inside.test/") is None and get(d, box, "http://imds.test/latest/") is None
    assert connect(d, box, "169.254.169.254", 80) != "connected" or get(d, box, "http://169.254.169.254/") is None


def test_none_has_no_way_at_all(d):
    for given in ({}, {"network": "none"}, {"network": {"mode": "none"}}):
        box = d.create(**given)["id"]
        assert get(d, box, "http://web.test/hello") is None and connect(d, box, "9.9.9.9", 80) == "OSError"
        assert look(d, box)["state"] == "off"


def test_observe_tells_the_list_that_would_have_sufficed(d):
    box = d.create(network={"mode": "observe"})["id"]
    keep = "import socket\ns=socket.create_connection(('echo.test',7)); s.sendall(b'\\0'); s.recv(1); print('up', flush=True); s.recv(1)"
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", keep], "background": True}).json["id"]
    host.wait_for(lambda: b"up" in d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body, 10, "the stream")
    assert get(d, box, "http://web.test/hello") and get(d, box, "http://other.test/hello") and get(d, box, "http://web.test/hello")
    observed = host.wait_for(lambda: len((o := look(d, box)["observed"])["allow"]) == 3 and o, 10, "all, also of the stream that goes on")
    assert observed["complete"] and "echo.test:7" in observed["allow"]
    again = d.create(network={"allow": observed["allow"]})["id"]
    assert get(d, again, "http://web.test/hello") and get(d, again, "http://other.test/hello")
    assert get(d, again, "http://git.test/hello") is None
    d.kill9("api")

    def healthy():
        try:
            return d.get("/healthz", timeout=10).status == 200
        except OSError:  # the one that was killed had taken the connection
            return False

    host.wait_for(healthy, 20, "another one")
    assert host.wait_for(lambda: set(look(d, box)["observed"]["allow"]) == set(observed["allow"]), 10, "what is remembered")


def test_what_an_outer_policy_refuses_is_not_observed_either(w):
    config = w.folder / "outer.conf"
    config.write_bytes(w.config("network_set = sites: web.test", "network_outer = @sites", "network_outer = *.web.test").read_bytes())
    with Daemon(None, "--config", config) as d:
        box = d.create(network="observe")["id"]
        assert get(d, box, "http://web.test/hello") and get(d, box, "http://other.test/hello") is None
        assert get(d, box, "http://169.254.169.254/") is None
        refused = {r["to"]: (r["rule"], r["fix"]) for r in look(d, box, why=True)["refusals"]}
        assert refused["other.test"] == ("other.test", 'an administrator can add "other.test" to `network_outer`')
        assert refused["169.254.169.254"][0] is None and "network_private" in refused["169.254.169.254"][1]
        assert "--add" not in d.cli("why", box).text
        observed = host.wait_for(lambda: look(d, box)["observed"]["allow"], 10, "the name")
        assert [r.split(":")[0] for r in observed] == ["web.test"]


# --- what can be asked for ---

@pytest.mark.parametrize("network, status, code, says", [
    ("some", 400, "invalid", "some"), ("allow", 400, "invalid", "allow"), (7, 400, "invalid", ""), ({}, 400, "invalid", "allow"),
    ({"allow": ["no name"]}, 400, "invalid", ""), ({"allow": ["127.1"]}, 400, "invalid", ""), ({"allow": ["a.test:0"]}, 400, "invalid", ""),
    ({"mode": "open", "allow": ["a.test"]}, 400, "invalid", ""), ({"mode": "open", "x": 1}, 400, "invalid", "x"),
    ({"mode": "open", "budget": {"bytes": 1}}, 400, "invalid", "bytes"),
    ({"allow": ["@unknown"]}, 404, "not_found", "@unknown"), ({"allow": ["10.0.0.1:80"]}, 403, "denied", "10.0.0.1"),
    ({"allow": ["169.254.169.254:80"]}, 403, "denied", "169.254"), ({"allow": ["[fd00:ec2::254]:80"]}, 403, "denied", "fd00:ec2"),
])
def test_what_can_not_be_is_refused_everywhere(d, network, status, code, says):
    error(d.post("/v1/sandboxes", {"network": network}), status, code, says)
    error(d.put("/v1/templates/bad", {"network": network}), status, code, says)
    assert d.get("/v1/templates/bad").status == 404
    box = d.create()["id"]
    if isinstance(network, dict):
        error(d.put(f"/v1/sandboxes/{box}/network", network), status, code, says)
    c = d.post(f"/v1/sandboxes/{box}/checkpoints", {}).json["id"]
    error(d.post(f"/v1/checkpoints/{c}/restore", {"network": network}), status, code, says)
    assert look(d, box)["policy"] == {"mode": "none"}


def test_open_can_be_forbidden(w):
    config = w.folder / "other.conf"
    config.write_bytes(w.config().read_bytes())
    with Daemon(None, "--config", config) as d:
        box = d.create(name="was", network="open")["id"]
        assert get(d, box, "http://web.test/hello")
        c = d.post(f"/v1/sandboxes/{box}/checkpoints", {}).json["id"]
        assert d.put("/v1/templates/open", {"network": "open"}).status == 201
        config.write_text(config.read_text() + "network_open = no\n")
        d.restart()
        r = d.request("POST", "/v1/checkpoints/import?network=keep", d.get(f"/v1/checkpoints/{c}/export").body)
        assert r.status == 201, r
        brought = r.json["id"]
        for r in (d.post("/v1/sandboxes", {"network": "open"}), d.post("/v1/sandboxes", {"network": {"mode": "observe"}}),
                  d.put("/v1/templates/more", {"network": "open"}), d.post(f"/v1/checkpoints/{c}/restore", {}),
                  d.post("/v1/sandboxes", {"template": "open"}), d.post(f"/v1/sandboxes/{box}/fork", {}), d.post(f"/v1/checkpoints/{brought}/restore", {})):
            assert "network_open" in error(r, 403, "denied", "not allowed")["remedy"]
        # What runs already has less: nothing.
        host.wait_for(lambda: look(d, box).get("less"), 10, "egress")
        assert get(d, box, "http://web.test/hello") is None and look(d, box)["policy"] == {"mode": "open"}
        error(d.put(f"/v1/sandboxes/{box}/network", {"mode": "open"}), 403, "denied")
        put(d, box, {"allow": ["web.test"]})
        assert get(d, box, "http://web.test/hello") and "less" not in look(d, box)
        assert get(d, restored(d, c, network={"allow": ["web.test"]})["id"], "http://web.test/hello")
        vm = d.post("/v1/vms", {"name": "vm"})
        assert vm.status == 201 and d.get("/v1/sandboxes/vm").json["network"] == {"mode": "none"}


# --- changes ---

def test_a_policy_is_changed_while_it_runs(d):
    box = d.create()["id"]
    assert get(d, box, "http://web.test/hello") is None
    shown = put(d, box, {"allow": ["web.test"]})
    assert shown["state"] == "in force" and shown["policy"] == {"mode": "allow", "allow": ["web.test"]}
    assert get(d, box, "http://web.test/hello") and get(d, box, "http://other.test/hello") is None
    put(d, box, {"allow": ["other.test"]})
    assert get(d, box, "http://web.test/hello") is None and get(d, box, "http://other.test/hello")
    put(d, box, {"mode": "open"})
    assert get(d, box, "http://web.test/hello")
    put(d, box, {"mode": "none"})
    assert get(d, box, "http://web.test/hello") is None and connect(d, box, "9.9.9.9", 80) == "ConnectionRefusedError"
    put(d, box, {"allow": ["web.test"]})
    assert get(d, box, "http://web.test/hello")
    assert [r["network"]["mode"] for r in audit(d, box, "network.set")] == ["allow", "allow", "open", "none", "allow"]
    assert d.get(f"/v1/sandboxes/{box}").json["network"] == {"mode": "allow", "allow": ["web.test"]}


def test_a_stream_that_is_not_allowed_any_more_is_cut(d, w):
    box = d.create(network={"allow": ["echo.test:7"]})["id"]
    script = ("import socket,sys\ns=socket.create_connection(('echo.test',7)); s.sendall(b'\\0'); s.recv(1); print('up', flush=True)\n"
              "try: print('got', s.recv(1))\nexcept ConnectionResetError: print('reset')")
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", script], "background": True}).json["id"]
    host.wait_for(lambda: b"up" in d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body, 10, "the stream")
    put(d, box, {"allow": ["web.test"]})
    r = d.get(f"/v1/sandboxes/{box}/execs/{x}/wait?timeout=20").json
    assert r["state"] == "ended" and d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body == b"up\nreset\n"
    cut = host.wait_for(lambda: [s for s in audit(d, box, "network.stream") if s["verdict"] == "cut"], 10, "its record")
    assert cut[0]["name"] == "echo.test" and cut[0]["port"] == 7 and cut[0]["bytes_out"] == 1


# --- what is known ---

def test_refusals_say_who_and_how_to_help(d):
    box = d.create(network={"allow": ["web.test"]})["id"]
    connect(d, box, "9.9.9.9", 853)
    connect(d, box, "9.9.9.9", 853)
    connect(d, box, "10.1.2.3", 5432)
    assert get(d, box, "http://git.test/") is None
    # Whose it is can be told while it waits.
    # The reset may come before the caller has seen that it is connected.
    ask = "import socket\ns = socket.socket(); s.settimeout(20)\n" \
          "try: s.connect(('web.test', 8080)); print(s.recv(1))\nexcept OSError as e: print(type(e).__name__)"
    assert d.exec(box, "python3", "-c", ask)["stdout"] == "ConnectionResetError\n"

    # By TCP, two questions at once: in their order, the second behind the owner's word about the first.
    twice = """import socket, struct
def q(i, *name): return (lambda m: struct.pack("!H", len(m)) + m)(struct.pack("!6H", i, 256, 1, 0, 0, 0) + b"".join(bytes([len(n)]) + n for n in name) + b"\\0\\0\\1\\0\\1")
s = socket.create_connection(("198.18.0.1", 53), 20); s.sendall(q(1, b"tcp", b"test") + q(2, b"web", b"test"))
f = s.makefile("rb")
for _ in range(2):
    a = f.read(struct.unpack("!H", f.read(2))[0]); print(a[1], a[3] & 15)"""
    assert d.exec(box, "python3", "-c", twice)["stdout"] == "1 3\n2 0\n"

    def seen():
        found = {(r["to"], r["port"]): r for r in look(d, box, why=True)["refusals"]}
        return found if {("9.9.9.9", 853), ("10.1.2.3", 5432), ("git.test", None), ("tcp.test", None), ("web.test", 8080)} <= set(found) else None

    found = host.wait_for(seen, 10, "all refusals")
    assert found["9.9.9.9", 853]["times"] == 2 and found["9.9.9.9", 853]["rule"] == "9.9.9.9:853"
    assert found["10.1.2.3", 5432]["rule"] is None and "network_private" in found["10.1.2.3", 5432]["fix"]
    asked = found["web.test", 8080]
    assert asked["pid"] > 1 and asked["command"].startswith("python3 -c import socket") and asked["rule"] == "web.test:8080", asked
    name = found["git.test", None]
    assert name["pid"] > 1 and name["command"], name
    assert found["tcp.test", None]["pid"] > 1 and found["tcp.test", None]["command"].startswith("python3 -c import socket, struct"), found
    assert name["what"] == "lookup" and name["rule"].startswith("git.test") and name["rule"] in name["fix"]
    put(d, box, {"allow": ["web.test", name["rule"]]})
    assert get(d, box, "http://git.test/hello")["site"] == "git.test"
    fixes = {(r["to"], r["port"]): r["fix"] for r in look(d, box, why=True)["refusals"]}
    assert fixes["git.test", None].startswith("done") and "9.9.9.9:853" in fixes["9.9.9.9", 853] and "web.test:8080" in fixes["web.test", 8080]
    assert "refusals" not in look(d, box)


def test_streams_are_counted_and_recorded(d):
    box = d.create(network={"allow": ["web.test"]})["id"]
    assert d.exec(box, "curl", "-sS", "-o", "/dev/null", "http://web.test/bytes/300000")["exit_code"] == 0
    counts = host.wait_for(lambda: (c := look(d, box)["counts"])["bytes_in"] > 300000 and not c["concurrent"] and c, 10, "the counts")
    assert counts["connections"] == 1 and counts["dns"] >= 1 and 0 < counts["bytes_out"] < 1000
    stats = d.get(f"/v1/sandboxes/{box}/stats").json
    assert stats["net_bytes"] == counts["bytes_in"] + counts["bytes_out"] and stats["network"]["connections"] == 1
    s = host.wait_for(lambda: audit(d, box, "network.stream"), 10, "its record")[0]
    assert (s["name"], s["port"], s["verdict"], s["tenant"]) == ("web.test", 80, "ok", "default")
    assert s["bytes_in"] == counts["bytes_in"] and s["duration_ms"] >= 0 and s["rule"].startswith("web.test") and s["address"].startswith("127.")
    assert d.get(f"/v1/sandboxes/{box}/network").json["tree_counts"]["bytes_in"] == counts["bytes_in"]


def test_a_stream_of_a_sandbox_that_is_deleted_is_recorded(d):
    box = d.create(network={"allow": ["echo.test:7"]})["id"]
    script = "import socket\ns=socket.create_connection(('echo.test',7)); s.sendall(b'\\0bc'); s.recv(3); print('up', flush=True); s.recv(1)"
    x = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", script], "background": True}).json["id"]
    host.wait_for(lambda: b"up" in d.get(f"/v1/sandboxes/{box}/execs/{x}/output").body, 10, "the stream")
    assert d.delete(f"/v1/sandboxes/{box}").status == 204
    s = host.wait_for(lambda: audit(d, box, "network.stream"), 10, "its record")[0]
    assert s["name"] == "echo.test" and s["bytes_out"] == 3 and s["tenant"] == "default"


# --- budgets ---

def test_past_a_budget_streams_are_refused_with_a_reason(d):
    box = d.create(network={"allow": ["web.test"], "budget": {"connections": 2}})["id"]
    assert get(d, box, "http://web.test/hello") and get(d, box, "http://web.test/hello")
    assert get(d, box, "http://web.test/hello") is None
    r = host.wait_for(lambda: [r for r in look(d, box, why=True)["refusals"] if r["port"] == 80], 10, "the refusal")
    assert "connections" in r[0]["reason"] and "budget" in r[0]["fix"]
    put(d, box, {"allow": ["web.test"], "budget": {"connections": 5}})
    assert look(d, box, why=True)["refusals"][0]["fix"].startswith("done")
    assert get(d, box, "http://web.test/hello")


ECHO = """
import socket, sys, time
def one():
    s = socket.create_connection(("echo.test", 7), timeout=20)
    s.sendall(b"\\0hello")
    return s if s.recv(6) == b"\\0hello" else None
def there_and_back(s, times):
    for i in range(times):
        s.sendall(bytes(10000))
        got = 0
        while got < 10000:
            got += len(s.recv(10000 - got)) or 1 / 0
"""
OVER = {
    "dns": ({"dns": 3}, "for i in range(9): socket.getaddrinfo('echo.test', 7)"),
    "concurrent": ({"concurrent": 2}, "held = [one() for i in range(3)]\nassert all(held)"),
    "bytes_out": ({"bytes_out": "100K"}, "there_and_back(one(), 99)"),
    "bytes_in": ({"bytes_in": 100000}, "there_and_back(one(), 99)"),
    "requests_per_minute": ({"requests_per_minute": 2}, "for i in range(6): assert one()"),
}


@pytest.mark.parametrize("what", OVER)
def test_each_budget_bounds_what_it_names(d, what):
    budget, script = OVER[what]
    free, bound = (d.create(network={"allow": ["echo.test:7"], **b})["id"] for b in ({}, {"budget": budget}))
    assert d.exec(free, "python3", "-c", ECHO + script)["exit_code"] == 0
    assert d.exec(bound, "python3", "-c", ECHO + "assert one()")["exit_code"] == 0
    assert d.exec(bound, "python3", "-c", ECHO + script)["exit_code"] == 1
    host.wait_for(lambda: look(d, bound)["counts"]["dns_refused" if what == "dns" else "refused"] or what.startswith("bytes"), 10, "the counts")
    if what.startswith("bytes"):
        assert look(d, bound)["counts"][what] <= 2 * 100 * 1024


def test_a_bandwidth_holds_streams_back(d):
    box = d.create(network={"allow": ["echo.test:7"], "budget": {"bandwidth": 200000}})["id"]
    script = ECHO + "s = one(); t = time.monotonic(); there_and_back(s, 30); print(time.monotonic() - t)"
    r = d.exec(box, "python3", "-c", script)
    # 600 kB both ways; a second's worth may go at once.
    assert r["exit_code"] == 0 and float(r["stdout"]) > 1.5, r


def test_a_tree_of_forks_has_one_budget(d):
    policy = {"allow": ["web.test"], "tree_budget": {"connections": 3}}
    box = d.create(network=policy)["id"]
    assert get(d, box, "http://web.test/hello")
    fork = forked(d, box)
    assert d.get(f"/v1/sandboxes/{fork}").json["network"] == {"mode": "allow", **policy}
    assert get(d, fork, "http://web.test/hello")
    host.wait_for(lambda: look(d, box)["tree_counts"]["connections"] == 2, 10, "the counts")
    grandchild = forked(d, fork)
    assert get(d, grandchild, "http://web.test/hello")
    for one in (box, fork, grandchild):
        assert get(d, one, "http://web.test/hello") is None
    host.wait_for(lambda: look(d, box)["tree_counts"]["connections"] == 3, 10, "the counts")
    assert look(d, fork)["counts"]["connections"] == 1
    other = d.create(network=policy)["id"]
    assert get(d, other, "http://web.test/hello")
    # Nor does a restart of everything, or the end of who has used it, give it back.
    assert d.delete(f"/v1/sandboxes/{box}").status == 204
    d.restart()
    assert look(d, fork)["tree_counts"]["connections"] == 3
    host.wait_for(lambda: look(d, fork)["state"] == "in force", 10, "egress")
    assert get(d, fork, "http://web.test/hello") is None
    assert look(d, fork)["counts"]["connections"] == 1


# --- what it goes through ---

def addresses(d, box, *names):
    script = "import socket,sys\nprint(*[socket.gethostbyname(n) for n in sys.argv[1:]])"
    return d.exec(box, "python3", "-c", script, *names)["stdout"].split()


def test_pause_and_hibernation_keep_policy_names_and_counts(d):
    box = d.create(network={"allow": ["web.test", "other.test"]})["id"]
    before = addresses(d, box, "web.test", "other.test")
    assert all(a.startswith("198.18.") for a in before) and get(d, box, "http://web.test/hello")
    assert d.post(f"/v1/sandboxes/{box}/pause").status == 200
    put(d, box, {"allow": ["web.test", "other.test", "git.test"]})
    assert d.post(f"/v1/sandboxes/{box}/resume").status == 200
    assert get(d, box, "http://git.test/hello")
    host.wait_for(lambda: look(d, box)["counts"]["connections"] == 2, 10, "the counts")
    assert d.post(f"/v1/sandboxes/{box}/hibernate", {"memory": "auto"}).status == 200
    assert look(d, box)["state"] == "hibernated"
    assert addresses(d, box, "other.test", "web.test") == [before[1], before[0]]
    assert get(d, box, "http://web.test/hello") and look(d, box)["counts"]["connections"] >= 2


def test_a_checkpoint_has_policy_and_names(d):
    policy = {"mode": "allow", "allow": ["web.test", "other.test", "git.test"]}
    box = d.create(network=policy)["id"]
    before = addresses(d, box, "web.test", "other.test", "git.test")
    c = d.post(f"/v1/sandboxes/{box}/checkpoints", {}).json["id"]
    d.restart()
    new = restored(d, c)
    assert new["network"] == policy and get(d, new["id"], "http://git.test/hello")
    assert addresses(d, new["id"], "git.test", "web.test", "other.test") == [before[2], before[0], before[1]]
    host.wait_for(lambda: look(d, new["id"])["counts"]["connections"] == 1, 10, "the counts of a new one")
    less = restored(d, c, network="none")
    assert less["network"] == {"mode": "none"} and get(d, less["id"], "http://web.test/hello") is None
    # In place, what it was allowed last counts: an older checkpoint does not bring back more.
    put(d, box, {"allow": ["web.test"]})
    assert get(d, box, "http://web.test/hello")
    host.wait_for(lambda: look(d, box)["counts"]["connections"] == 1, 10, "the counts")
    assert d.post(f"/v1/sandboxes/{box}/restore", {"checkpoint": c}).status == 200
    assert d.get(f"/v1/sandboxes/{box}").json["network"] == {"mode": "allow", "allow": ["web.test"]}
    assert get(d, box, "http://web.test/hello") and get(d, box, "http://git.test/hello") is None
    assert addresses(d, box, "web.test") == before[:1]
    host.wait_for(lambda: look(d, box)["counts"]["connections"] == 2, 10, "the counts go on")


def test_processes_that_go_on_know_the_addresses_they_knew(d):
    """With memory: an address that was looked up before is still that name, in place, as a new one, in forks, asleep."""
    box = d.create(network={"allow": ["web.test", "other.test"]})["id"]
    script = ("import socket,time,os\na=[socket.gethostbyname(n) for n in ('other.test','web.test')]\n"
              "open('ready','w').close()\n"
              "while True:\n"
              " if os.path.exists('go'):\n"
              "  s=socket.create_connection((a[1],80),10); s.sendall(b'GET /hello HTTP/1.1\\r\\nHost: web.test\\r\\nConnection: close\\r\\n\\r\\n')\n"
              "  t=s.makefile().read(); os.unlink('go'); open('said.new','w').write(t); os.rename('said.new','said')\n"
              " time.sleep(0.02)\n")
    r = d.post(f"/v1/sandboxes/{box}/execs", {"cmd": ["python3", "-c", script], "background": True})
    assert r.status == 201, r
    host.wait_for(lambda: d.exec(box, "test", "-e", "ready")["exit_code"] == 0, 10, "its addresses")

    def goes_on(one):
        assert d.exec(one, "sh", "-c", "rm -f said; touch go")["exit_code"] == 0
        said = host.wait_for(lambda: d.exec(one, "sh", "-c", "cat said 2>/dev/null")["stdout"], 15, "an answer")
        assert '"site": "web.test"' in said, said

    goes_on(box)
    c = d.post(f"/v1/sandboxes/{box}/checkpoints", {"memory": True})
    assert c.status == 201 and c.json["memory"], c
    goes_on(restored(d, c.json["id"])["id"])
    r = d.post(f"/v1/sandboxes/{box}/fork", {"memory": True})
    assert r.status == 201, r
    goes_on(r.json["sandboxes"][0]["id"])
    assert d.post(f"/v1/sandboxes/{box}/restore", {"checkpoint": c.json["id"]}).status == 200
    goes_on(box)
    assert d.post(f"/v1/sandboxes/{box}/hibernate").status == 200
    goes_on(box)


def test_templates_and_pools_have_a_network(d):
    policy = {"mode": "allow", "allow": ["web.test"]}
    assert d.put("/v1/templates/net", {"network": policy}).json["config"]["network"] == policy
    assert d.put("/v1/pools/net", {"template": "net", "min": 1}).status == 201
    try:
        host.wait_for(lambda: d.get("/v1/pools/net").json["ready"] == 1, 20, "a ready one")
        b = d.create(template="net")
        assert b["pooled"] and b["network"] == policy
        assert get(d, b["id"], "http://web.test/hello") and get(d, b["id"], "http://git.test/hello") is None
        other = d.create(template="net", network={"allow": ["git.test"]})
        assert not other["pooled"] and get(d, other["id"], "http://git.test/hello") and get(d, other["id"], "http://web.test/hello") is None
    finally:
        assert d.delete("/v1/pools/net").status == 204
        for b in d.get("/v1/sandboxes").json["sandboxes"]:
            d.delete(f"/v1/sandboxes/{b['id']}")
        assert d.delete("/v1/templates/net").status == 204


def test_a_vm_of_noid_has_the_internet_unless_it_is_isolated(d):
    assert d.post("/v1/vms", {"name": "free"}).status == 201 and d.post("/v1/vms", {"name": "shut", "network": "isolated"}).status == 201
    assert get(d, "free", "http://web.test/hello") and get(d, "shut", "http://web.test/hello") is None


def test_a_create_does_not_wait_for_egress(d):
    """Its first exec does: what it asks the network for first must not fail."""
    for _ in range(10):
        box = d.create(network={"allow": ["web.test"]})["id"]
        assert get(d, box, "http://web.test/hello")["site"] == "web.test"


def test_another_tenant_sees_nothing_of_it(d):
    box = d.create(network={"allow": ["web.test"]})["id"]
    assert d.post("/v1/tenants", {"id": "net-t"}).status == 201
    token = d.post("/v1/tokens", {"tenant": "net-t", "scope": "sandbox"}).json["token"]
    read = d.post("/v1/tokens", {"scope": "read"}).json["token"]
    for method in ("GET", "PUT"):
        assert d.request(method, f"/v1/sandboxes/{box}/network", {"mode": "none"} if method == "PUT" else None, token=token).status == 404
    assert d.request("PUT", f"/v1/sandboxes/{box}/network", {"mode": "none"}, token=read).status == 403
    assert d.get(f"/v1/sandboxes/{box}/network", token=read).status == 200
    assert d.delete("/v1/tenants/net-t").status == 204


def test_refusals_are_events(d):
    box = d.create(network={"allow": []})["id"]
    assert get(d, box, "http://web.test/hello") is None
    r = host.wait_for(lambda: audit(d, box, "network.lookup"), 10, "the record")
    assert r[0]["name"] == "web.test" and r[0]["verdict"] == "denied" and r[0]["times"] >= 1
