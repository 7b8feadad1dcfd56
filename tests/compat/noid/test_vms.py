"""Noid's REST API: VMs, commands, errors."""
import concurrent.futures
import re
import time

import pytest

from client import Noid, Refused, Socket


def test_server_info(d, noid):
    assert noid.call("GET", "/healthz", token=None).json == {"status": "ok"}
    v = noid.call("GET", "/version", token=None).json
    assert v["api_version"] == 1 and v["version"]
    who = noid.call("GET", "/v1/whoami").json
    assert who["user_id"] and who["name"]


def test_capabilities(noid):
    c = noid.call("GET", "/v1/capabilities").json
    flat = {"api_version": 1, "max_exec_output_bytes": 1 << 20, "exec_timeout_secs": 300, "console_timeout_secs": 0,
            "max_vm_name_length": 64, "default_cpus": 1, "default_mem_mib": 2048}
    assert {k: c[k] for k in flat} == flat
    # What the TypeScript client's type says.
    assert c["timeouts"] == {"exec_timeout_secs": 300, "console_timeout_secs": 0}
    assert c["defaults"] == {"cpus": 1, "mem_mib": 2048}
    assert c["limits"]["max_env_vars"] >= 64 and c["limits"]["max_env_value_len"] >= 32768


def test_life_of_a_vm(noid):
    made = noid.create("life", cpus=2, mem_mib=300)
    assert (made["name"], made["state"], made["cpus"], made["mem_mib"]) == ("life", "running", 2, 300)
    assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", made["created_at"])
    assert made["isolation"] == "container"
    assert noid.call("GET", "/v1/vms/life").json == made
    assert made in noid.call("GET", "/v1/vms").json
    taken = noid.call("POST", "/v1/vms", {"name": "life"})
    assert taken.status == 409 and "life" in taken.error
    gone = noid.call("DELETE", "/v1/vms/life")
    assert gone.status == 204 and gone.body == b""
    assert noid.call("DELETE", "/v1/vms/life").status == 204
    r = noid.call("GET", "/v1/vms/life")
    assert r.status == 404 and r.error == "VM 'life' not found"
    assert "life" not in [v["name"] for v in noid.call("GET", "/v1/vms").json]


def test_defaults_hold_inside(noid, vm):
    assert noid.call("GET", f"/v1/vms/{vm}").json["mem_mib"] == 2048
    r = noid.exec(vm, "sh", "-c", "id -u; pwd; echo $HOME; awk '/MemTotal/ {print $2}' /proc/meminfo")
    uid, cwd, home, memory = r["stdout"].split()
    assert (uid, cwd, home, int(memory)) == ("0", "/root", "/root", 2048 * 1024)
    # Room for a machine's worth of processes, not for a bomb.
    r = noid.exec(vm, "sh", "-c", "for i in $(seq 600); do sleep 20 & p=\"$p $!\"; done; echo $p | wc -w; kill $p")
    assert r["stdout"].split()[0] == "600" and r["exit_code"] == 0, r


@pytest.mark.parametrize("name", ["a", "_a", "A-b_c.d", "0", "x" * 64, "a.", "_", "a-"])
def test_names_that_are_taken(noid, name):
    assert noid.create(name)["name"] == name
    assert noid.exec(name, "true")["exit_code"] == 0
    assert noid.call("DELETE", f"/v1/vms/{name}").status == 204


@pytest.mark.parametrize("name", ["", ".a", "-a", "a..b", "a/b", "a b", "ä", "x" * 65, "a\n", "a\\b", None, 7, ["a"]])
def test_names_that_are_not(noid, name):
    r = noid.call("POST", "/v1/vms", {"name": name})
    assert r.status == 400 and "name" in r.error, r


@pytest.mark.parametrize("fields", [{"cpus": 0}, {"cpus": -1}, {"cpus": 1.5}, {"cpus": "2"}, {"mem_mib": 0},
                                    {"mem_mib": 1e30}, {"mem_mib": "1G"}, {"network": "bridge"}, {"network": 1}])
def test_fields_that_make_no_sense(noid, fields):
    r = noid.call("POST", "/v1/vms", {"name": "senseless", **fields})
    assert r.status == 400 and list(fields)[0] in r.error, r
    assert noid.call("GET", "/v1/vms/senseless").status == 404


def test_unknown_fields_and_null_are_passed_over(noid):
    noid.create("fields", cpus=None, mem_mib=None, kernel="x", network="isolated")
    assert noid.exec("fields", "echo", "hi", timeout=5, cwd="/nowhere")["stdout"] == "hi\n"
    # Isolated: nothing but the loopback is there.
    assert re.findall(r"(\w+):", noid.exec("fields", "cat", "/proc/net/dev")["stdout"]) == ["lo"]
    noid.call("DELETE", "/v1/vms/fields")


def test_every_error_is_one_text(d, noid, vm):
    for method, path, body, token, status in [
            ("GET", "/v1/vms", None, None, 401),
            ("GET", "/v1/vms", None, "noid_tok_" + "f" * 64, 401),
            ("GET", "/v1/capabilities", None, None, 401),
            ("POST", "/v1/vms", {"name": "x"}, "cloche_" + "x" * 43, 401),
            ("GET", "/v1/vms/none", None, "", 404),
            ("POST", "/v1/vms/none/exec", {"command": ["true"]}, "", 404),
            ("GET", "/v1/vms/none/checkpoints", None, "", 404),
            ("POST", "/v1/vms/none/restore", {"checkpoint_id": "a"}, "", 404),
            ("GET", f"/v1/vms/{vm}/nothing", None, "", 404),
            ("GET", f"/v1/vms/{vm}/exec/more/and/more", None, "", 404),
            ("PUT", "/v1/vms", None, "", 405),
            ("PATCH", f"/v1/vms/{vm}", None, "", 405),
            ("POST", "/v1/capabilities", None, "", 405),
            ("POST", "/v1/vms", b"{", "", 400),
            ("POST", "/v1/vms", b"[]", "", 400),
            ("POST", "/v1/vms", b'{"name":"a","name":"b"}', "", 400),
            ("POST", "/v1/vms", b"[" * 100, "", 400),
            ("POST", "/v1/vms", b"\xff\xfe", "", 400),
            ("POST", "/v1/vms", b"", "", 400),
            ("POST", "/v1/vms", b" " * (5 << 20), "", 413),
            ("POST", "/v1/vms", {"name": vm}, "", 409),
            ("GET", f"/v1/vms/{vm}/exec", None, "", 426),
            ("GET", f"/v1/vms/{vm}/console", None, "", 426),
            ("POST", f"/v1/vms/{vm}/exec", {}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", {"command": []}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", {"command": "ls"}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", {"command": ["ls", 1]}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", {"command": ["ls"], "env": ["A"]}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", {"command": ["ls"], "env": ["=A"]}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", {"command": ["ls"], "env": {"A": "B"}}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", {"command": ["ls"], "tty": "yes"}, "", 400),
            ("POST", f"/v1/vms/{vm}/exec", b'{"command":["a\\u0000b"]}', "", 400),
            ("POST", "/v1/vms/none/checkpoints", {"label": "a"}, "", 404),
            ("POST", f"/v1/vms/{vm}/checkpoints", {"label": 1}, "", 400),
            ("POST", f"/v1/vms/{vm}/checkpoints", {"label": "x" * 300}, "", 400),
            ("POST", f"/v1/vms/{vm}/checkpoints", {"name": "../x"}, "", 400),
            ("POST", f"/v1/vms/{vm}/checkpoints", b"[]", "", 400),
            ("POST", f"/v1/vms/{vm}/restore", {}, "", 400),
            ("POST", f"/v1/vms/{vm}/restore", {"checkpoint_id": 7}, "", 400),
            ("POST", f"/v1/vms/{vm}/restore", {"checkpoint_id": "a", "new_name": "../x"}, "", 400),
            ("POST", f"/v1/vms/{vm}/restore", {"checkpoint_id": "a"}, "", 404)]:
        r = noid.call(method, path, body, token)
        assert r.status == status and r.error, (method, path, body, r)
        if status == 405:
            assert r.headers["Allow"]
        if status == 401:
            assert r.headers["WWW-Authenticate"] == "Bearer"
    assert noid.call("GET", f"/v1/vms/{vm}/checkpoints").json == []
    # Our own dialect keeps its own.
    assert set(d.get("/v1/sandboxes/none").json["error"]) == {"code", "reason", "message", "cause", "remedy", "request_id"}
    assert set(d.get("/v1/vmsx").json["error"]) == {"code", "reason", "message", "cause", "remedy", "request_id"}
    assert d.get("/v1/sandboxes/none").headers["X-Noid-Api-Version"] is None
    # And the VM is none the worse.
    assert noid.exec(vm, "echo", "still")["stdout"] == "still\n"


# --- commands ---

def test_streams_stay_apart(noid, vm):
    r = noid.exec(vm, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert r == {"stdout": "out\n", "stderr": "err\n", "exit_code": 3, "timed_out": False, "truncated": False}


def test_environment_and_exact_arguments(noid, vm):
    script = 'printf "%s|%s|%s" "$A" "$B" "$1"'
    r = noid.exec(vm, "sh", "-c", script, "sh", "a  b'c\"d$e\n", env=["A=x=y z", "B=", "A=last"])
    assert r["stdout"] == "last||a  b'c\"d$e\n"


def test_what_is_not_there_ends_with_127(noid, vm):
    r = noid.exec(vm, "no-such-program", "arg")
    assert (r["exit_code"], r["stdout"], r["timed_out"]) == (127, "", False)
    assert "no-such-program" in r["stderr"] and "No such file" in r["stderr"]
    assert noid.exec(vm, "/etc/passwd")["exit_code"] == 126


def test_signals_and_bytes_that_are_no_text(noid, vm):
    assert noid.exec(vm, "sh", "-c", "kill -9 $$")["exit_code"] == 137
    assert noid.exec(vm, "printf", "a\\377b")["stdout"] == "a\ufffdb"


def test_a_terminal_merges_both(noid, vm):
    r = noid.exec(vm, "sh", "-c", "tty; echo out; echo err >&2; [ -t 0 ] && [ -t 2 ]", tty=True)
    assert re.fullmatch(r"/dev/pts/\d+\r\nout\r\nerr\r\n", r["stdout"]) and r["stderr"] == "" and r["exit_code"] == 0


def test_output_beyond_the_limit(noid, vm):
    r = noid.exec(vm, "sh", "-c", "echo first; yes | head -c 3000000; echo last")
    assert r["truncated"] is True and r["exit_code"] == 0
    assert r["stdout"].startswith("first\n") and r["stdout"].endswith("last\n") and len(r["stdout"]) < 1100000
    assert noid.exec(vm, "head", "-c", "1000000", "/dev/zero")["truncated"] is False


def test_a_timeout_keeps_the_output_and_leaves_no_process(d, noid):
    # The time is the VM's; with ours it can be set.
    box = d.create(name="slow", user="root", exec_timeout=1)
    start = time.monotonic()
    r = noid.exec("slow", "sh", "-c", "echo before; sleep 77 & sleep 77")
    assert time.monotonic() - start < 5
    assert r == {"stdout": "before\n", "stderr": "", "exit_code": None, "timed_out": True, "truncated": False}
    assert noid.exec("slow", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"].count("sleep 77") == 0
    got = noid.spawn("slow", "sh", "-c", "echo before; sleep 78")
    got = got.rest()
    assert got[1] == b"before\n" and got["texts"] == [{"exit_code": None, "timed_out": True, "truncated": False}]
    d.delete(f"/v1/sandboxes/{box['id']}")


def test_parallel_commands(noid, vm):
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda i: noid.exec(vm, "sh", "-c", f"sleep 1; echo {i}"), range(16)))
    assert [r["stdout"] for r in got] == [f"{i}\n" for i in range(16)]
    assert time.monotonic() - start < 8


def test_parallel_vms(noid):
    names = [f"team-{i}" for i in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: noid.create(n, mem_mib=128), names))
        got = list(pool.map(lambda n: noid.exec(n, "sh", "-c", f"echo {n} > /root/x; sleep 0.2; cat /root/x"), names))
        assert [r["stdout"].strip() for r in got] == names
        assert {r.status for r in pool.map(lambda n: noid.call("DELETE", f"/v1/vms/{n}"), names)} == {204}


# --- with the rest of the daemon ---

def test_one_world_in_two_dialects(d, noid, vm):
    box = d.get(f"/v1/sandboxes/{vm}").json
    assert (box["user"], box["memory"], box["cpus"], box["pids"], box["timeout"]) == ("root", 2048 << 20, 1, 4096, 0)
    half = d.create(name="native", cpus=0.5, memory="100M")
    v = noid.call("GET", "/v1/vms/native").json
    assert (v["cpus"], v["mem_mib"], v["state"]) == (1, 100, "running")
    assert noid.exec("native", "id", "-u")["stdout"] == "0\n"
    d.post("/v1/sandboxes/native/pause")
    assert noid.call("GET", "/v1/vms/native").json["state"] == "paused"
    assert noid.call("POST", "/v1/vms/native/exec", {"command": ["true"]}).status == 409
    with pytest.raises(Refused) as e:
        noid.console("native")
    assert e.value.status == 409 and b'{"error":"' in e.value.body
    d.post("/v1/sandboxes/native/resume")
    unnamed = d.create()
    assert unnamed["id"] in [v["name"] for v in noid.call("GET", "/v1/vms").json]
    for one in (half, unnamed):
        assert noid.call("DELETE", f"/v1/vms/{one['id']}").status == 204
        assert d.get(f"/v1/sandboxes/{one['id']}").status == 404


def test_tenants_and_scopes(d, noid, vm):
    assert d.post("/v1/tenants", {"id": "other"}).status == 201
    tokens = {scope: d.post("/v1/tokens", {"tenant": "other", "scope": scope}).json["token"]
              for scope in ("sandbox", "read", "exec")}
    other = Noid(d.url, "noid_tok_" + tokens["sandbox"])  # what a client that looks at the beginning takes
    assert other.call("GET", "/v1/vms").json == []
    assert other.call("GET", f"/v1/vms/{vm}").status == 404
    assert other.call("DELETE", f"/v1/vms/{vm}").status == 204  # as for any that is not there
    with pytest.raises(Refused) as e:
        other.spawn(vm, "true")
    assert e.value.status == 404
    assert noid.exec(vm, "true")["exit_code"] == 0
    other.create(vm)  # names are each tenant's own
    other.exec(vm, "touch", "/root/mark")
    assert noid.exec(vm, "ls", "/root/mark")["exit_code"] != 0
    own = f"/v1/vms/{vm}"
    for scope, method, path, status in [("read", "GET", own, 200), ("read", "POST", own + "/exec", 403),
                                        ("read", "DELETE", own, 403), ("exec", "POST", own + "/exec", 200),
                                        ("exec", "POST", "/v1/vms", 403), ("read", "GET", own + "/console", 403)]:
        r = other.call(method, path, {"command": ["true"]} if method == "POST" else None, token=tokens[scope])
        assert r.status == status, (scope, method, path, r)
        assert status == 200 or r.error
    with pytest.raises(Refused) as e:
        Socket(other, f"/v1/vms/{vm}/console", token=tokens["read"])
    assert e.value.status == 403
    assert other.call("DELETE", f"/v1/vms/{vm}").status == 204


def test_the_tier_is_a_setting(make_daemon, tmp_path):
    conf = tmp_path / "conf"
    conf.write_text("noid_isolation = vm\nnetwork_open = no\nmemory_max = 512M\npids_max = 100\npids = 50\n")
    d = make_daemon("--config", conf)
    noid = Noid(d.url, d.token)
    r = noid.call("POST", "/v1/vms", {"name": "a", "mem_mib": 64})
    assert r.status == 400 and "virtual machine" in r.error  # a container may be as small
    # For clients that make them by our own API.
    assert d.get("/v1/info").json["noid"] == {"isolation": "vm", "network": "none", "mem_mib": 512, "pids": 100}
    assert noid.call("GET", "/v1/vms").json == []


def test_a_restart_loses_no_vm(make_daemon):
    d = make_daemon()
    noid = Noid(d.url, d.token)
    made = noid.create("kept", mem_mib=200)
    noid.exec("kept", "sh", "-c", "echo here > /root/file")
    with noid.console("kept") as c:
        c.stdin(b"MARK=remem''bered\recho up-$((1))\r")
        c.until(b"up-1\r\n")
    d.restart()
    assert noid.call("GET", "/v1/vms").json == [made]
    assert noid.exec("kept", "cat", "/root/file")["stdout"] == "here\n"
    with noid.console("kept") as c:
        c.stdin(b"echo [$MARK]\r")
        c.until(b"[remembered]")
    assert noid.call("DELETE", "/v1/vms/kept").status == 204
