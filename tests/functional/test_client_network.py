"""`cloche create --network`, `cloche network`, `cloche why`."""
import pytest

import host
from api import eventually, nothing_is_left_behind  # noqa: F401
from daemon import Daemon
from test_run_network import TRY, web


@pytest.fixture(scope="module")
def d(nothing_is_left_behind, tmp_path_factory):  # noqa: F811
    conf = tmp_path_factory.mktemp("conf") / "serve.conf"
    conf.write_text("network_hosts = web.test 127.0.0.1\nnetwork_hosts = other.test 127.0.0.1\nnetwork_private = 127.0.0.0/8:*\nnetwork_set = pages: web.test:*\n")
    with Daemon(None, "--config", conf) as one:
        yield one


def ok(r):
    assert r.code == 0, r
    return r.out.decode()


def test_what_is_refused_is_told_with_the_command_that_allows_it(d):
    with web() as port:
        ok(d.cli("create", "--name", "n", "--allow", "@pages", "--budget", "bytes_out=10M"))
        assert d.exec("n", "python3", "-c", TRY, "web.test", str(port))["stdout"] == "connected\n"
        assert "connected" not in d.exec("n", "python3", "-c", TRY, "other.test", str(port))["stdout"]
        why = ok(d.cli("why", "n"))
        assert "other.test" in why and "cloche network --add 'other.test' n" in why, why
        assert "mode      allow\nallow     @pages\nbudget    bytes_out=10485760\n" in ok(d.cli("network", "n"))
        eventually(lambda: "1 connections" in ok(d.cli("network", "n")))
        ok(d.cli("network", "--add", f"other.test:{port}", "n"))
        assert d.exec("n", "python3", "-c", TRY, "other.test", str(port))["stdout"] == "connected\n"
        assert f"allow     @pages other.test:{port}\n" in ok(d.cli("network", "n"))
        ok(d.cli("network", "--remove", "@pages", "n"))
        assert "connected" not in d.exec("n", "python3", "-c", TRY, "web.test", str(port))["stdout"]
        ok(d.cli("network", "--allow", f"web.test:{port}", "n"))  # takes the place of what was there
        assert f"allow     web.test:{port}\n" in ok(d.cli("network", "n"))
        ok(d.cli("network", "--mode", "none", "n"))
        assert "connected" not in d.exec("n", "python3", "-c", TRY, "web.test", str(port))["stdout"]
        assert "the sandbox has no network: `cloche network --add RULE n`" in ok(d.cli("why", "n"))
        assert d.cli("network", "--json", "n").json["policy"]["mode"] == "none"
        assert d.cli("inspect", "n").json["network"]["mode"] == "none"


def test_what_is_allowed_and_can_not_be_reached_is_told_as_that(d):
    with web() as port:
        pass  # nobody listens there any more
    ok(d.cli("create", "--name", "far", "--allow", "@pages"))
    assert "nothing was refused" in ok(d.cli("why", "far"))
    assert "connected" not in d.exec("far", "curl", "-sS", f"https://web.test:{port}/")["stdout"]
    why = eventually(lambda: (lambda text: f"web.test:{port}" in text and text)(ok(d.cli("why", "far"))))
    assert "it is allowed, but unreachable" in why, why
    (one,) = d.get("/v1/sandboxes/far/network?why=1").json["refusals"]
    assert one["what"] == "unreachable" and one["rule"] is None and one["times"] >= 1, one  # curl tries another address when the first is slow
    assert d.get("/v1/sandboxes/far/network").json["counts"]["refused"] == 0


def test_what_was_observed_is_shown(d):
    with web() as port:
        ok(d.cli("create", "--name", "o", "--network", "observe"))
        assert d.exec("o", "python3", "-c", TRY, "web.test", str(port))["stdout"] == "connected\n"
        eventually(lambda: f"web.test:{port}" in ok(d.cli("why", "o")).split("observed")[1])


@pytest.mark.parametrize("args", [("create", "--allow", "not a name"), ("create", "--allow", "@nothing"), ("create", "--network", "some"), ("create", "--network", "open", "--allow", "a.test"),
                                  ("create", "--budget", "bytes_out"), ("create", "--budget", "bananas=1", "--network", "open"), ("network",), ("network", "a", "b"), ("why",), ("why", "nothing"),
                                  ("network", "--mode", "some", "n"), ("network", "--remove", "x.test", "n")])
def test_what_makes_no_sense_is_one_line(d, args):
    host.one_line(d.cli(*args))
