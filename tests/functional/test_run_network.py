"""`cloche run` with a network: allowed hosts are reached, refusals are reported, and nothing of it stays."""
import contextlib
import http.server
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import pytest

import host
from host import run
from test_rootless import LIFTED, place, user  # noqa: F401


@contextlib.contextmanager
def web(address="127.0.0.1"):
    """A server on this host: gives its port."""
    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer((address, 0), Hello) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        try:
            yield one.server_port
        finally:
            one.shutdown()


FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
TRY = "import socket, sys\ntry:\n  socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10).close()\n  print('connected')\nexcept OSError as e:\n  print(e)"


def egresses():
    """Those that belong to a `cloche run`."""
    found = set()
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = p.read_bytes().split(b"\0")
            if words[0].endswith(b"cloche-egress") and b"--owner-fd" in words:
                found.add(int(p.parent.name))
    return found


@pytest.fixture(autouse=True)
def no_egress_stays():
    before = egresses()
    yield
    end = time.monotonic() + 10
    while egresses() - before and time.monotonic() < end:
        time.sleep(0.02)
    assert not egresses() - before


def test_a_name_that_is_allowed_is_reached_and_others_are_told():
    with web() as port:
        r = run("--allow", f"web.test:{port}", "--host", "web.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}", "--", "python3", "-c", FETCH, f"http://web.test:{port}/")
        assert r.code == 0 and r.text == "hello\n" and r.err == b"", r
        r = run("--allow", f"web.test:{port}", "--host", "web.test=127.0.0.1", "--host", "evil.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}", "--",
                "python3", "-c", TRY, "evil.test", port)
        assert r.code == 0 and "not known" in r.text, r
        assert "cloche: refused evil.test" in r.err.decode() and "allow with --allow evil.test" in r.err.decode(), r


def test_the_fix_that_is_told_is_one():
    with web() as port:
        args = ["--host", "web.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}"]
        r = run(*args, "--network", "allow", "--", "python3", "-c", TRY, "127.0.0.2", port)
        assert r.code == 0  # its own loopback: nobody is there, and that is no matter of policy
        r = run(*args, "--network", "allow", "--", "python3", "-c", TRY, "192.0.2.7", port)
        assert f"cloche: refused 192.0.2.7:{port}: no rule for this address; allow with --allow 192.0.2.7:{port} --allow-private 192.0.2.7:{port}\n" == r.err.decode(), r


def test_a_private_address_needs_to_be_named_also_when_all_is_open():
    with web() as port:
        args = ["--network", "open", "--host", "web.test=127.0.0.1"]
        r = run(*args, "--", "python3", "-c", FETCH, f"http://web.test:{port}/")
        assert r.code != 0 and "cloche: refused web.test" in r.err.decode(), r
        r = run(*args, "--allow-private", f"127.0.0.1:{port}", "--", "python3", "-c", FETCH, f"http://web.test:{port}/")
        assert r.code == 0 and r.text == "hello\n", r


def test_an_empty_list_allows_nothing_and_none_has_no_way_at_all():
    r = run("--network", "allow", "--", "python3", "-c", TRY, "a.test", 80)
    assert r.code == 0 and "connected" not in r.text and "refused a.test" in r.err.decode(), r
    r = run("--", "python3", "-c", TRY, "a.test", 80)
    assert r.code == 0 and "connected" not in r.text and r.err == b"", r


def test_the_refusal_says_who_asked():
    with web() as port:
        # The name is allowed on another port, so the connection itself is what is refused.
        r = run("--allow", "web.test:1", "--host", "web.test=127.0.0.1", "--allow-private", "127.0.0.1", "--", "python3", "-c",
                "import socket\ns = socket.socket()\nip = socket.gethostbyname('web.test')\ns.settimeout(10)\ntry:\n  s.connect((ip, %d))\n  print(s.recv(1))\nexcept OSError as e: print(e)" % port)
        err = r.err.decode()
        assert f"refused web.test:{port}" in err and "python3" in err and "pid " in err, r


def test_the_result_as_json_counts_bytes():
    with web() as port:
        r = run("--json", "--allow", f"web.test:{port}", "--host", "web.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}", "--", "python3", "-c", FETCH, f"http://web.test:{port}/")
        assert r.json["exit_code"] == 0 and r.json["stdout"] == "hello\n" and r.json["usage"]["net_bytes"] > 50, r
        assert "cloche-egress" in r.json["enforced"]["network"]


def test_observing_tells_what_would_have_sufficed_and_refusals_are_in_the_result():
    with web() as port:
        to = ("--host", "web.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}")
        fetch = ("--", "python3", "-c", FETCH, f"http://web.test:{port}/")
        r = run("--json", "--network", "observe", *to, *fetch)
        assert r.json["stdout"] == "hello\n" and r.json["network"] == {
            "refusals": [], "refusals_left_out": 0, "observed": {"allow": [f"web.test:{port}"], "complete": True}}, r
        assert f"--allow 'web.test:{port}'" in r.err.decode()
        assert run(*(f"--allow={x}" for x in r.json["network"]["observed"]["allow"]), *to, *fetch).code == 0
        r = run("--json", "--allow", "other.test", *to, *fetch)
        (no,) = r.json["network"]["refusals"]
        assert no["to"] == "web.test" and no["fix"] == "--allow web.test" and no["times"] >= 1 and no["pid"] > 1 and "python3" in no["command"], no
    assert "network" not in run("--json", "--", "true").json


def test_what_is_allowed_and_can_not_be_reached_is_told_as_that():
    with web() as port:
        pass  # nobody listens there any more
    r = run("--json", "--network", "open", "--host", "web.test=127.0.0.1", "--allow-private", "127.0.0.1:*", "--", "curl", "-sS", f"https://web.test:{port}/")
    (one,) = r.json["network"]["refusals"]
    assert one["to"] == f"web.test:{port}" and one["unreachable"] is True and one["fix"] is None and one["reason"], one
    assert r.json["exit_code"] and f"cloche: could not reach web.test:{port}" in r.err.decode() and "allow with" not in r.err.decode(), r


def test_a_resolver_that_is_none_is_refused():
    r = run("--network", "open", "--resolver", "foo", "--", "true")
    assert r.code == 125 and b"--resolver 'foo' is not an address" in r.err, r


def test_big_and_half_closed_streams_pass():
    with socket.create_server(("127.0.0.1", 0)) as l:
        port = l.getsockname()[1]

        def serve():
            s, _ = l.accept()
            with s:
                n = 0
                while (p := s.recv(1 << 16)):
                    n += len(p)
                s.sendall(b"x" * n)

        threading.Thread(target=serve, daemon=True).start()
        r = run("--allow", f"e.test:{port}", "--host", "e.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}", "--", "python3", "-c",
                f"import socket\ns = socket.create_connection(('e.test', {port}))\ns.sendall(bytes(8000000))\ns.shutdown(1)\nn = 0\nwhile True:\n  p = s.recv(1 << 16)\n  if not p: break\n  n += len(p)\nprint(n)")
        assert r.code == 0 and r.text == "8000000\n", r


def test_without_root_it_works_too(user):  # noqa: F811
    with web() as port:
        r = user(*LIFTED, "--allow", f"web.test:{port}", "--host", "web.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}", "--", "python3", "-c", FETCH, f"http://web.test:{port}/")
        assert r.code == 0 and r.text == "hello\n", r


def test_egress_ends_with_us_also_when_we_are_killed():
    before = egresses()
    with subprocess.Popen([str(host.CLOCHE), "run", "--allow", "a.test", "--", "sh", "-c", "echo ready; exec sleep 60"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"ready\n"  # its policy is in force by now, so it has confined itself
        one, = egresses() - before
        status = pathlib.Path(f"/proc/{one}/status").read_text()
        os.kill(p.pid, signal.SIGKILL)
    assert "\nCapEff:\t0000000000000000\n" in status and "\nUid:\t61988\t61988" in status and "\nNoNewPrivs:\t1\n" in status, status


def test_when_egress_dies_the_sandbox_has_no_network():
    with web() as port:
        before = egresses()
        p = subprocess.Popen([str(host.CLOCHE), "run", "--allow", f"web.test:{port}", "--host", "web.test=127.0.0.1", "--allow-private", f"127.0.0.1:{port}", "--", "python3", "-uc",
                              f"import socket\nip = socket.gethostbyname('web.test')\nprint('ready')\ninput()\ntry:\n  socket.create_connection((ip, {port}), timeout=10)\n  print('connected')\nexcept OSError as e:\n  print(e)"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert p.stdout.readline() == "ready\n"
        one, = egresses() - before
        os.kill(one, signal.SIGKILL)
        end = time.monotonic() + 20
        while ") Z " not in pathlib.Path(f"/proc/{one}/stat").read_text():  # before that its sockets may be open still
            assert time.monotonic() < end
            time.sleep(0.01)
        out, _ = p.communicate("go\n", timeout=30)
        assert "refused" in out and "connected" not in out, out
        assert p.returncode == 0
