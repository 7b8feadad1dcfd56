"""Output of an exec in one stream, and stdin of any size behind the request."""
import hashlib
import json
import socket
import time

from api import d, error, nothing_is_left_behind, place  # noqa: F401

WRITES = "for i in 1 2 3 4 5 6 7 8; do echo out$i; echo err$i >&2; done; sh -c 'echo last >&2'"
MERGED = "".join(f"out{i}\nerr{i}\n" for i in range(1, 9)) + "last\n"
OCTETS = {"Content-Type": "application/octet-stream"}


def test_merged_output_is_one_ordered_stream(d):
    b = d.create()["id"]
    run = f"/v1/sandboxes/{b}/execs"
    r = d.post(run, {"shell": WRITES, "output": "merged"}).json
    assert (r["stdout"], r["stderr"], r["exit_code"]) == (MERGED, "", 0), r
    r = d.post(run, {"shell": WRITES, "output": "separate"}).json
    assert (r["stdout"].count("\n"), r["stderr"].count("\n")) == (8, 9), r
    events = d.post(run, {"shell": WRITES, "output": "merged"}, headers={"Accept": "text/event-stream"}).body.decode()
    assert "event: stderr" not in events and "".join(
        json.loads(x.split("data: ")[1])["data"] for x in events.split("\n\n") if x.startswith("event: stdout")) == MERGED, events
    x = d.post(run, {"shell": WRITES, "output": "merged", "background": True}).json["id"]
    assert d.get(f"{run}/{x}/wait").json["stdout"] == MERGED
    assert d.get(f"{run}/{x}/output?stream=stderr").body == b""
    r = d.cli("exec", "--merge-output", b, "--", "sh", "-c", WRITES)
    assert (r.code, r.out, r.err) == (0, MERGED.encode(), b""), r
    assert d.post(run, {"cmd": ["ls", "/proc/self/fd"], "output": "merged"}).json["stdout"] == "0\n1\n2\n3\n"
    error(d.post(run, {"shell": "true", "output": "both"}), 400, "invalid")
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def with_stdin(d, b, body, data):
    return d.request("POST", f"/v1/sandboxes/{b}/execs", json.dumps(body).encode() + b"\n" + data, headers=OCTETS)


def test_stdin_of_any_size_in_one_call(d):
    b = d.create()["id"]
    data = bytes(range(256)) * (4096 * 50)
    assert len(data) == 50 << 20
    r = with_stdin(d, b, {"cmd": ["sha256sum"]}, data)
    assert r.status == 200 and r.json["stdout"].split()[0] == hashlib.sha256(data).hexdigest(), r
    r = with_stdin(d, b, {"shell": "head -c 3"}, data)  # it does not read all of it
    assert (r.json["stdout_base64"] if "stdout_base64" in r.json else r.json["stdout"].encode(), r.json["exit_code"]) == (b"\x00\x01\x02", 0), r
    assert with_stdin(d, b, {"cmd": ["wc", "-c"]}, b"").json["stdout"] == "0\n"
    r = d.request("POST", f"/v1/sandboxes/{b}/execs", b'{"cmd": ["wc", "-c"]}', headers=OCTETS)
    assert r.json["stdout"] == "0\n", r
    assert error(with_stdin(d, b, {"cmd": ["nosuch"]}, data), 422, "refused")["reason"] == "program_missing"
    for bad in ({"cmd": ["cat"], "background": True}, {"cmd": ["cat"], "stdin": "x"}, {"cmd": ["cat"], "tty": True, "background": True}, {}):
        error(with_stdin(d, b, bad, b"x"), 400, "invalid")
    error(d.request("POST", f"/v1/sandboxes/{b}/execs", b"x" * (5 << 20), headers=OCTETS), 413, "too_large")
    assert with_stdin(d, b, {"cmd": ["cat"]}, b"still works").json["stdout"] == "still works"
    assert d.delete(f"/v1/sandboxes/{b}").status == 204


def test_a_client_that_hangs_up_in_the_middle_kills_the_command(d):
    b = d.create()["id"]
    with socket.create_connection(place(d), timeout=20) as s:
        head = json.dumps({"shell": "cat > got; touch whole"}).encode() + b"\n"
        s.sendall(f"POST /v1/sandboxes/{b}/execs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {d.token}\r\nContent-Type: application/octet-stream\r\n"
                  f"Content-Length: {len(head) + 1000}\r\n\r\n".encode() + head + b"half")
        end = time.monotonic() + 20
        while d.post(f"/v1/sandboxes/{b}/execs", {"shell": "cat got"}).json["stdout"] != "half" and time.monotonic() < end:
            time.sleep(0.05)
    while any(x["state"] == "running" for x in d.get(f"/v1/sandboxes/{b}/execs").json["execs"]) and time.monotonic() < end:
        time.sleep(0.05)
    r = d.post(f"/v1/sandboxes/{b}/execs", {"shell": "cat got; ls"}).json
    assert r["stdout"] == "halfgot\n", r
    assert d.delete(f"/v1/sandboxes/{b}").status == 204
