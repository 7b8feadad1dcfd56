"""Secrets: set, given to sandboxes, rotated, never shown."""
import base64
import json
import os
import time
import urllib.parse

import pytest

from api import d, error, events, nothing_is_left_behind, as_tenant, token, As  # noqa: F401
from daemon import Daemon

VALUE = "hunter22-correct/horse+battery"


@pytest.fixture(autouse=True)
def clean(d):
    yield
    for p in d.get("/v1/pools?tenant=*").json["pools"]:
        d.delete(f"/v1/pools/{p['name']}?tenant={p['tenant']}")
    for b in d.get("/v1/sandboxes?limit=1000&tenant=*").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")
    for c in d.get("/v1/checkpoints?limit=1000&tenant=*").json["checkpoints"]:
        d.delete(f"/v1/checkpoints/{c['id']}")
    for t in d.get("/v1/templates?tenant=*").json["templates"]:
        d.delete(f"/v1/templates/{t['name']}?tenant={t['tenant']}")
    for s in d.get("/v1/secrets?tenant=*").json["secrets"]:
        d.delete(f"/v1/secrets/{s['name']}?tenant={s['tenant']}")


def put(d, name, value, status=201, **fields):
    r = d.put(f"/v1/secrets/{name}", {"value": value, **fields})
    assert r.status == status, r
    return r.json


def sh(d, box, script, **fields):
    r = d.exec(box["id"], "/bin/sh", "-c", script, **fields)
    assert r["exit_code"] == 0, r
    return r["stdout"]


def spelled(d, box, script):
    """What a script says, letter by letter: nothing masks that."""
    return sh(d, box, f"({script}) | sed 's/./& /g'").replace(" ", "")


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


# --- the API ---

def test_set_rotate_list_and_delete_never_tell_the_value(d):
    assert d.get("/v1/secrets").json == {"secrets": []}
    s = put(d, "API_KEY", VALUE, description="for the test")
    assert {k: s[k] for k in ("name", "tenant", "version", "size", "description")} == {
        "name": "API_KEY", "tenant": "default", "version": 1, "size": len(VALUE), "description": "for the test"}
    assert d.get("/v1/secrets/API_KEY").json == s and d.get("/v1/secrets").json == {"secrets": [s]}
    again = put(d, "API_KEY", VALUE + "2", 200)
    assert again["version"] == 2 and again["description"] == "for the test" and again["created_at"] == s["created_at"]
    r = d.put("/v1/secrets/RAW", {"value_base64": base64.b64encode(bytes(range(256))).decode()})
    assert r.status == 201 and r.json["size"] == 256
    assert d.delete("/v1/secrets/API_KEY").status == 204
    error(d.get("/v1/secrets/API_KEY"), 404, "not_found")
    error(d.delete("/v1/secrets/API_KEY"), 404, "not_found")
    kinds = [x["kind"] for x in d.get("/v1/audit?limit=1000").json["records"] if x["kind"].startswith("secret.")]
    assert kinds[-4:] == ["secret.set", "secret.rotate", "secret.set", "secret.delete"]


def memory_has(pid, text):
    """Whether that is in any memory that a process can write to."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            at, rights = line.split()[:2]
            if not rights.startswith("rw") or "[vvar" in line:
                continue
            first, last = (int(x, 16) for x in at.split("-"))
            mem.seek(first)
            try:
                if text in mem.read(last - first):
                    return True
            except OSError:  # a guard page
                continue
    return False


def test_a_value_that_was_set_is_nowhere_in_the_daemons_memory(d):
    pid = d.children()["api"]
    for i, fields in enumerate(("value", "value_base64")):
        value = os.urandom(600).hex()
        text = base64.b64encode(value.encode()).decode() if i else value
        assert d.put(f"/v1/secrets/GONE{i}", {fields: text, "description": f"seen-{i}-in-memory"}).status == 201
        assert memory_has(pid, f"seen-{i}-in-memory".encode())  # it would be found
        for part in (value[200:240], value[-40:], text[400:440]):
            assert not memory_has(pid, part.encode())


@pytest.mark.parametrize("name,body,status,code", [
    ("K", {}, 400, "invalid"), ("K", {"value": "abc"}, 400, "invalid"), ("K", {"value": "abc\n\n"}, 400, "invalid"), ("K", {"value": 7}, 400, "invalid"),
    ("K", {"value": "x" * 65537}, 413, "too_large"), ("K", {"value_base64": "A" * 200000}, 413, "too_large"), ("K", {"value_base64": "!!"}, 400, "invalid"),
    ("K", {"value": "long enough", "value_base64": "AAAAAAAA"}, 400, "invalid"), ("K", {"value": "long enough", "what": 1}, 400, "invalid"),
    (".hidden", {"value": "long enough"}, 400, "invalid"), ("a%2Fb", {"value": "long enough"}, 400, "invalid"), ("x" * 65, {"value": "long enough"}, 400, "invalid"),
])
def test_what_is_no_secret_is_refused(d, name, body, status, code):
    error(d.put(f"/v1/secrets/{name}", body), status, code)
    assert d.get("/v1/secrets").json == {"secrets": []}


def test_a_body_that_is_no_json_is_not_quoted(d):
    r = d.request("PUT", "/v1/secrets/K", body=b'{"value": ' + VALUE.encode() + b"}", headers={"Content-Type": "application/json"})
    assert VALUE not in json.dumps(error(r, 400, "invalid")) and "hunter22" not in r.body.decode()


def test_tenants_scopes_and_quotas(d):
    mine = as_tenant(d, "mine", quotas={"secrets": 2})
    reader = As(d, token(d, tenant="mine", scope="read")["token"])
    put(d, "SHARED", VALUE)
    assert mine.get("/v1/secrets").json == {"secrets": []}
    error(mine.get("/v1/secrets/SHARED"), 404, "not_found")
    error(mine.post("/v1/sandboxes", {"secrets": [{"name": "SHARED", "as": "env"}]}), 404, "not_found")
    for name in ("A", "B"):
        assert mine.put(f"/v1/secrets/{name}", {"value": "mine-" + name}).status == 201
    error(mine.put("/v1/secrets/C", {"value": "too many"}), 429, "quota")
    assert mine.put("/v1/secrets/A", {"value": "another one"}).json["version"] == 2
    error(reader.put("/v1/secrets/A", {"value": "not mine"}), 403, "denied")
    error(reader.delete("/v1/secrets/A"), 403, "denied")
    assert [s["name"] for s in reader.get("/v1/secrets").json["secrets"]] == ["A", "B"]
    assert [s["name"] for s in d.get("/v1/secrets?tenant=mine").json["secrets"]] == ["A", "B"]
    assert d.get("/v1/tenants/mine").json["used"]["secrets"] == 2
    assert mine.delete("/v1/secrets/B").status == 204 and mine.put("/v1/secrets/C", {"value": "room again"}).status == 201
    assert d.delete("/v1/tenants/mine").status == 204


# --- given ---

def test_a_file_is_the_users_alone_on_a_tmpfs(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "file"}, {"name": "KEY", "as": "env", "env": "OTHER"}])
    assert b["secrets"] == [{"name": "KEY", "as": "file"}, {"name": "KEY", "as": "env", "env": "OTHER"}] and b["tmpfs"] == []
    assert sh(d, b, "stat -c '%a %u %F' /run/secrets/KEY; stat -f -c %T /run/secrets") == "400 1000 regular file\ntmpfs\n"
    assert spelled(d, b, "cat /run/secrets/KEY") == VALUE
    assert sh(d, b, "cat /run/secrets/KEY") == "***"
    assert d.get("/v1/sandboxes/" + b["id"]).json["secrets"] == b["secrets"]
    kinds = [(x["secret"], x["as"]) for x in d.get(f"/v1/audit?limit=1000&sandbox={b['id']}").json["records"] if x["kind"] == "secret.use"]
    assert kinds == [("KEY", "file"), ("KEY", "env")]


def test_a_path_elsewhere_leads_to_it(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "file", "path": "/etc/app/key.txt"}])
    assert sh(d, b, "readlink /etc/app/key.txt") == "/run/secrets/KEY\n"
    assert spelled(d, b, "cat /etc/app/key.txt") == VALUE
    ro = d.post("/v1/sandboxes", {"read_only": True, "secrets": [{"name": "KEY", "as": "file", "path": "/etc/app/key.txt"}]})
    assert ro.status >= 400 and "secrets" in ro.json["error"]["message"], ro
    b = d.create(read_only=True, secrets=[{"name": "KEY", "as": "file"}])
    assert spelled(d, b, "cat /run/secrets/KEY") == VALUE


def test_env_is_for_commands_and_nowhere_else(d):
    put(d, "TOKEN", VALUE)
    b = d.create(env={"TOKEN": "below", "A": "1"}, secrets=[{"name": "TOKEN", "as": "env"}])
    assert spelled(d, b, "printf %s \"$TOKEN\"") == VALUE and sh(d, b, "echo $A") == "1\n"
    assert sh(d, b, "echo $TOKEN", env={"TOKEN": "own"}) == "own\n"
    assert b["env"] == {"TOKEN": "below", "A": "1"}
    assert VALUE not in json.dumps(d.get(f"/v1/sandboxes/{b['id']}/execs").json)
    assert sh(d, d.create(), "echo \"<$TOKEN>\"") == "<>\n"


@pytest.mark.parametrize("use", [
    {"as": "file"}, {"name": "KEY"}, {"name": "KEY", "as": "what"}, {"name": "KEY", "as": "file", "path": "relative"}, {"name": "KEY", "as": "file", "path": "/a/../b"},
    {"name": "KEY", "as": "env", "env": "1X"}, {"name": "KEY", "as": "env", "env": "A=B"}, {"name": "KEY", "as": "header"}, {"name": "KEY", "as": "header", "to": "10.0.0.1"},
    {"name": "KEY", "as": "header", "to": "*.example.com"}, {"name": "KEY", "as": "header", "to": "a.example.com:0"}, {"name": "KEY", "as": "header", "to": "a.example.com", "header": "Host"},
    {"name": "KEY", "as": "header", "to": "a.example.com", "format": "none"}, {"name": "KEY", "as": "header", "to": "a.example.com", "header": "A\r\nB"},
    {"name": "KEY", "as": "basic", "to": "a.example.com"}, {"name": "KEY", "as": "basic", "to": "a.example.com", "user": "a:b"}, {"name": "KEY", "as": "query", "to": "a.example.com"},
    {"name": "KEY", "as": "file", "more": 1}, {"name": "../KEY", "as": "file"}, "KEY",
])
def test_ways_that_make_no_sense_are_refused(d, use):
    put(d, "KEY", VALUE)
    error(d.post("/v1/sandboxes", {"secrets": [use]}), 400, "invalid")


def test_one_that_is_not_there_is_named(d):
    e = error(d.post("/v1/sandboxes", {"secrets": [{"name": "NOT_SET", "as": "env"}]}), 404, "not_found")
    assert "NOT_SET" in e["message"] and "secret set NOT_SET" in e["remedy"]
    error(d.put("/v1/templates/t", {"secrets": [{"name": "NOT_SET", "as": "env"}]}), 404, "not_found")
    d.put("/v1/secrets/NUL", {"value_base64": base64.b64encode(b"with\0nul").decode()})
    assert "NUL" in error(d.post("/v1/sandboxes", {"secrets": [{"name": "NUL", "as": "env"}]}), 400, "invalid")["message"]
    b = d.create(secrets=[{"name": "NUL", "as": "file"}])
    assert sh(d, b, "od -An -c /run/secrets/NUL | tr -d ' \\n'") == "with\\0nul"


# --- masked ---

def test_output_is_masked_in_every_form_and_way(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "env"}])
    forms = [VALUE, base64.b64encode(VALUE.encode()).decode(), urllib.parse.quote(VALUE), urllib.parse.quote(VALUE, safe=""), VALUE.encode().hex()]
    r = d.exec(b["id"], "/bin/sh", "-c", "echo \"$KEY\"; echo \"$KEY\" | base64; printf %s \"$KEY\" >&2; env | grep KEY")
    assert r["stdout"] == "***\n***\nKEY=***\n" and r["stderr"] == "***"
    for form in forms:  # said by whoever knows it
        assert d.exec(b["id"], "/bin/echo", f"a{form[:3]} {form} b")["stdout"] == f"a{form[:3]} *** b\n"
    r = d.exec(b["id"], "/bin/sh", "-c", "echo \"$KEY\"", encoding="base64")
    assert base64.b64decode(r["stdout_base64"]) == b"***\n"


def test_a_value_in_pieces_is_masked_in_streams_and_spools(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "env"}])
    pieces = "i=1; while [ $i -le ${#KEY} ]; do printf %s \"$(printf %s \"$KEY\" | cut -c$i)\"; i=$((i+1)); done; echo; echo done"
    said = "".join(data["data"] for kind, data in events(d, f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/bin/sh", "-c", pieces]}) if kind == "stdout")
    assert said == "***\ndone\n"
    x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/bin/sh", "-c", pieces], "background": True}).json
    r = d.get(f"/v1/sandboxes/{b['id']}/execs/{x['id']}/wait?timeout=30").json
    assert r["stdout"] == "***\ndone\n"
    assert d.get(f"/v1/sandboxes/{b['id']}/execs/{x['id']}/output?stream=stdout").body == b"***\ndone\n"
    x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/bin/sh", "-c", "echo \"<$KEY>\"; " + pieces], "background": True, "tty": True}).json
    tty = d.get(f"/v1/sandboxes/{b['id']}/execs/{x['id']}/wait?timeout=30").json["stdout"]
    # Of a value that comes letter by letter a terminal shows the first two at most: somebody may be typing.
    assert tty.replace("\r", "") in [f"<***>\n{VALUE[:n]}***\ndone\n" for n in (0, 1, 2)], tty


def test_refusals_errors_and_records_do_not_tell_it(d):
    value = "hunter22-as-a-name-0123456789"
    put(d, "KEY", value)
    b = d.create(network={"allow": ["*.allowed.test"]}, secrets=[{"name": "KEY", "as": "env"}])
    at = f"/v1/sandboxes/{b['id']}"
    sh(d, b, "curl -sS -H \"Authorization: Bearer $KEY\" http://$KEY.denied.test/; curl -sS http://$KEY.allowed.test:81/; true")
    # So long that the command is cut inside of the value.
    sh(d, b, "curl -sS -H 'X-Long: " + "x" * 83 + "' -H \"X-Key: $KEY\" http://other.test/; true")
    why = d.get(f"{at}/network?why").body.decode()
    assert "***.denied.test" in why and "***.allowed.test" in why and "Bearer ***" in why and "X-Key: ***" in why, why
    failed = [d.post(f"{at}/execs", {"cmd": [f"/bin/{value}"]}), d.get(f"{at}/files?path=/none/{value}")]
    assert all("***" in r.json["error"]["message"] for r in failed), failed
    assert d.request("PUT", f"{at}/files?path=/tmp/{value}", b"x").status == 200
    d.delete(at)
    stream, seen = events(d, "/v1/events", method="GET", headers={"Last-Event-ID": "0"}), []
    for kind, data in stream:
        seen.append([kind, data])
        if kind == "sandbox.deleted" and data["sandbox"] == b["id"]:
            break
    stream.close()
    audit = d.get(f"/v1/audit?sandbox={b['id']}&limit=1000").body.decode()
    for text in (why, *(r.body.decode() for r in failed), json.dumps(seen), audit, "\n".join(d.log)):
        assert "hunter22-" not in text, text
    assert "/tmp/***" in json.dumps(seen) and "/tmp/***" in audit and "***.denied.test" in json.dumps(seen)


def test_output_of_others_and_much_of_it_is_left_alone(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "env"}], output_limit="8M")
    assert d.exec(b["id"], "/bin/sh", "-c", f"printf %s {VALUE[:-1]}")["stdout"] == VALUE[:-1]
    r = d.exec(b["id"], "/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' h; echo \"$KEY\"")
    assert r["stdout"] == "h" * 3000000 + "***\n"
    assert d.exec(d.create()["id"], "/bin/echo", VALUE)["stdout"] == VALUE + "\n"


def test_nothing_of_it_is_in_the_data_folder(d):
    value = "told-nowhere-2718281828"
    put(d, "KEY", value)
    b = d.create(secrets=[{"name": "KEY", "as": "env"}, {"name": "KEY", "as": "file"}])
    d.exec(b["id"], "/bin/sh", "-c", "cat /run/secrets/KEY; echo $KEY; echo $KEY | base64 >&2")
    x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/bin/sh", "-c", "cat /run/secrets/KEY; echo; yes | head -c 200000"], "background": True}).json
    d.get(f"/v1/sandboxes/{b['id']}/execs/{x['id']}/wait?timeout=30")
    told = d.exec(b["id"], "/bin/echo", value)
    kept = d.get(f"/v1/sandboxes/{b['id']}/execs/{told['id']}").json
    assert "cmd" not in told and kept["cmd"] == ["/bin/echo", "***"] and told["stdout"] == "***\n"
    r = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"name": "one"})
    assert r.status == 201, r
    assert os.stat(d.data / "secrets.key").st_mode & 0o7777 == 0o600
    for folder, _, files in os.walk(d.data):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    assert value.encode() not in f.read(), path
    assert not any(value in line for line in d.log)


def test_files_of_secrets_are_not_read_by_the_api(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "file"}])
    sh(d, b, "ln -s /run/secrets/KEY /tmp/link; echo plain > /tmp/plain")
    for path in ("/run/secrets/KEY", "/run/../run/secrets//KEY", "/tmp/link"):
        e = error(d.get(f"/v1/sandboxes/{b['id']}/files?path=" + urllib.parse.quote(path)), 403, "denied")
        assert "secret" in e["message"]
    assert d.get(f"/v1/sandboxes/{b['id']}/files?path=/tmp/plain").body == b"plain\n"
    r = d.get(f"/v1/sandboxes/{b['id']}/files?path=/run&op=archive")
    assert r.status == 200 and VALUE.encode() not in r.body


# --- rotated ---

def test_running_sandboxes_get_the_new_value(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "env"}, {"name": "KEY", "as": "file"}])
    paused = d.create(secrets=[{"name": "KEY", "as": "file"}])
    assert d.post(f"/v1/sandboxes/{paused['id']}/pause").status == 200
    assert spelled(d, b, "cat /run/secrets/KEY") == VALUE
    sh(d, b, "cp /run/secrets/KEY /tmp/old")
    put(d, "KEY", "brand-new-value", 200)
    assert spelled(d, b, "printf %s $KEY") == "brand-new-value"
    until(lambda: spelled(d, b, "cat /run/secrets/KEY") == "brand-new-value")
    assert sh(d, b, "stat -c %a /run/secrets/KEY; cat /tmp/old; echo $KEY") == "400\n***\n"
    assert d.post(f"/v1/sandboxes/{paused['id']}/resume").status == 200
    until(lambda: spelled(d, paused, "cat /run/secrets/KEY") == "brand-new-value")


def test_a_deleted_one_is_given_to_nobody_and_stays_masked(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "env"}, {"name": "KEY", "as": "file"}])
    sh(d, b, "cp /run/secrets/KEY /tmp/old")
    assert d.delete("/v1/secrets/KEY").status == 204
    assert sh(d, b, "echo \"<$KEY>\"; cat /tmp/old") == "<>\n***"
    error(d.post("/v1/sandboxes", {"secrets": [{"name": "KEY", "as": "env"}]}), 404, "not_found")
    assert put(d, "KEY", "and again one")["version"] == 2
    assert sh(d, b, "echo \"<$KEY>\"; cat /tmp/old") == "<***>\n***"


# --- templates, pools, checkpoints, forks, sleep ---

def test_templates_and_pools_hand_them_out(d):
    put(d, "KEY", VALUE)
    r = d.put("/v1/templates/t", {"secrets": [{"name": "KEY", "as": "env"}, {"name": "KEY", "as": "file"}]})
    assert r.status == 201 and r.json["config"]["secrets"][0]["name"] == "KEY"
    assert d.put("/v1/pools/p", {"template": "t", "min": 1}).status == 201
    until(lambda: d.get("/v1/pools/p").json["ready"] == 1)
    put(d, "KEY", "rotated-in-the-pool", 200)
    b = d.create(template="t")
    assert b["pooled"] is True
    until(lambda: spelled(d, b, "cat /run/secrets/KEY") == "rotated-in-the-pool")
    assert spelled(d, b, "printf %s $KEY") == "rotated-in-the-pool"
    none = d.create(template="t", secrets="drop")
    assert none["secrets"] == [] and sh(d, none, "echo \"<$KEY>\"; ls /run/secrets 2>/dev/null || true") == "<>\n"


def test_warm_code_has_them_and_its_image_has_not(d):
    put(d, "KEY", VALUE)
    r = d.put("/v1/templates/warm", {"warm": {"python": "import json"}, "secrets": [{"name": "KEY", "as": "env"}]}, timeout=60)
    assert r.status == 201, r
    put(d, "KEY", "newer-than-the-image", 200)
    b = d.create(template="warm")
    r = d.post(f"/v1/sandboxes/{b['id']}/execs", {"code": "import os; print(' '.join(os.environ['KEY'])); print(os.environ['KEY'])"}).json
    assert r["stdout"] == " ".join("newer-than-the-image") + "\n***\n", r


def test_a_checkpoint_has_none_and_a_restore_asks_again(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "file"}, {"name": "KEY", "as": "env"}])
    sh(d, b, "cp /run/secrets/KEY /home/user/copy")
    c = d.post(f"/v1/sandboxes/{b['id']}/checkpoints", {"name": "one"}).json
    put(d, "KEY", "second-value", 200)
    again = d.create(checkpoint=c["id"])
    assert again["secrets"] == b["secrets"] and spelled(d, again, "cat /run/secrets/KEY") == "second-value"
    assert sh(d, again, "cat /home/user/copy; echo; cat /run/secrets/KEY") == "***\n***"
    assert d.delete("/v1/secrets/KEY").status == 204
    e = error(d.post("/v1/sandboxes", {"checkpoint": c["id"]}), 404, "not_found")
    assert "KEY" in e["message"] and "drop" in e["remedy"]
    error(d.post(f"/v1/sandboxes/{b['id']}/fork", {}), 404, "not_found")
    error(d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": c["id"]}), 404, "not_found")
    for box in (d.create(checkpoint=c["id"], secrets="drop"), d.post(f"/v1/sandboxes/{b['id']}/fork", {"secrets": "drop"}).json["sandboxes"][0],
                d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": c["id"], "secrets": "drop"}).json):
        assert box["secrets"] == [{"name": "KEY", "as": "mask"}]
        assert sh(d, box, "cat /home/user/copy; echo \"<$KEY>\"; ls /run/secrets 2>/dev/null || true") == "***<>\n"


def test_a_fork_with_memory_masks_what_its_processes_knew(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "env"}, {"name": "KEY", "as": "file"}])
    x = d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/bin/sh", "-c", "while :; do echo \"had $KEY\"; sleep 0.2; done"], "background": True}).json
    until(lambda: "had ***" in d.get(f"/v1/sandboxes/{b['id']}/execs/{x['id']}/output?stream=stdout").body.decode())
    put(d, "KEY", "second-value", 200)
    r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"memory": True})
    assert r.status == 201, r
    fork = r.json["sandboxes"][0]
    assert fork["restored"]["memory"] is True and spelled(d, fork, "cat /run/secrets/KEY") == "second-value"
    theirs = f"/v1/sandboxes/{fork['id']}/execs/{fork['restored']['execs'][0]}"
    until(lambda: d.get(theirs + "/output?stream=stdout").body.count(b"had ***") >= 2)
    assert VALUE not in d.get(theirs + "/output?stream=stdout").body.decode()
    assert sh(d, fork, "printf %s $KEY") == "***"


def test_sleep_and_waking_up_give_them_anew(d):
    put(d, "KEY", VALUE)
    b = d.create(secrets=[{"name": "KEY", "as": "file"}])
    sh(d, b, "cp /run/secrets/KEY /home/user/copy")
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate", {"memory": "auto"}).status == 200
    put(d, "KEY", "second-value", 200)
    assert spelled(d, b, "cat /run/secrets/KEY") == "second-value"
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate", {"memory": "auto"}).status == 200
    assert d.delete("/v1/secrets/KEY").status == 204
    assert sh(d, b, "cat /home/user/copy; ls /run/secrets 2>/dev/null || true") == "***"
    assert d.get(f"/v1/sandboxes/{b['id']}").json["secrets"] == [{"name": "KEY", "as": "mask"}]


# --- the daemon ---

def test_a_restart_keeps_values_masks_and_files(d):
    with Daemon() as own:
        put(own, "KEY", VALUE)
        b = own.create(secrets=[{"name": "KEY", "as": "file"}, {"name": "KEY", "as": "env"}])
        sh(own, b, "cp /run/secrets/KEY /tmp/old")
        put(own, "KEY", "second-value", 200)
        own.stop()
        own.start()
        assert own.get("/v1/secrets/KEY").json["version"] == 2
        assert sh(own, b, "cat /tmp/old; echo \" $KEY\"") == "*** ***\n"
        until(lambda: spelled(own, b, "cat /run/secrets/KEY") == "second-value")
        assert spelled(own, b, "printf %s $KEY") == "second-value"


def test_a_key_that_is_lost_or_open_to_others_is_told(d):
    with Daemon() as own:
        put(own, "KEY", VALUE)
        own.stop()
        key = own.data / "secrets.key"
        kept = key.read_bytes()
        key.chmod(0o644)
        own.start()
        e = error(own.post("/v1/sandboxes", {"secrets": [{"name": "KEY", "as": "env"}]}), 500, "internal")
        assert "secrets.key" in e["message"] and "0600" in e["remedy"]
        own.stop()
        who = key.stat()
        key.unlink()
        own.start()
        e = error(own.put("/v1/secrets/OTHER", {"value": "another one"}), 500, "internal")
        assert "missing" in e["message"] and not key.exists()
        own.stop()
        key.write_bytes(bytes(32))
        os.chown(key, who.st_uid, who.st_gid)
        key.chmod(0o600)
        own.start()
        e = error(own.post("/v1/sandboxes", {"secrets": [{"name": "KEY", "as": "env"}]}), 500, "internal")
        assert "KEY" in e["message"] and "decrypted" in e["message"]
        own.stop()
        key.write_bytes(kept)
        own.start()
        assert spelled(own, own.create(secrets=[{"name": "KEY", "as": "env"}]), "printf %s $KEY") == VALUE


def conf(folder, text):
    path = folder / "serve.conf"
    path.write_text(text)
    return path


def test_the_key_can_come_from_a_command(tmp_path):
    ran = tmp_path / "ran"
    config = conf(tmp_path, f"secrets_key_command = echo x >> {ran}; echo correct horse battery staple\n")
    with Daemon(None, "--config", config) as own:
        put(own, "KEY", VALUE)
        b = own.create(secrets=[{"name": "KEY", "as": "env"}])
        assert not (own.data / "secrets.key").exists() and os.stat(own.data / "secrets.salt").st_mode & 0o7777 == 0o600
        own.stop()
        own.start()
        assert spelled(own, b, "printf %s $KEY") == VALUE and ran.read_text() == "x\nx\n"
        own.stop()
        conf(tmp_path, "secrets_key_command = echo another horse battery staple\n")
        own.start()
        assert "KEY" in error(own.post("/v1/sandboxes", {"secrets": [{"name": "KEY", "as": "env"}]}), 500, "internal")["message"]
        own.stop()
        conf(tmp_path, f"secrets_key_command = echo x >> {ran}; echo correct horse battery staple\n")
        own.start()
        assert spelled(own, b, "printf %s $KEY") == VALUE


def test_a_new_key_takes_the_place_of_the_old_one(tmp_path):
    """From a file to a file, to a passphrase, to another one; sandboxes keep values, masks and their CA."""
    config = conf(tmp_path, "")
    with Daemon(None, "--config", config) as own:
        put(own, "KEY", "first-value")
        put(own, "KEY", VALUE, 200)
        b = own.create(network={"allow": ["api.test"]}, secrets=[{"name": "KEY", "as": "env"}, {"name": "KEY", "as": "header", "to": "api.test"}])

        def turn_over(text, lost=False):
            own.stop()
            conf(tmp_path, text)
            own.log.clear()
            own.start()
            if lost:
                return error(own.post("/v1/sandboxes", {"secrets": [{"name": "KEY", "as": "env"}]}), 500, "internal")
            assert spelled(own, b, "printf %s $KEY") == VALUE and sh(own, b, "echo first-value") == "***\n"
            assert not any("a new CA" in line for line in own.log)
            return sum("sealed with the new key" in line for line in own.log)

        key, old = own.data / "secrets.key", own.data / "secrets.key.old"
        key.rename(old)
        assert turn_over("") == 1
        assert key.read_bytes() != old.read_bytes() and os.stat(key).st_mode & 0o7777 == 0o600
        assert turn_over("") == 0  # it was done
        old.unlink()
        # As after a death between the new key and what is sealed with it.
        key.rename(old)
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        os.chown(key, old.stat().st_uid, old.stat().st_gid)
        assert turn_over("") == 1
        old.unlink()
        assert turn_over("secrets_key_command = echo correct horse battery staple\n") == 1
        key.unlink()
        assert turn_over("secrets_key_command = echo another horse battery staple\nsecrets_old_key_command = echo correct horse battery staple\n") == 1
        assert turn_over("secrets_key_command = echo another horse battery staple\n") == 0
        assert "decrypted" in turn_over("secrets_key_command = echo correct horse battery staple\n", lost=True)["message"]
        assert turn_over("secrets_key_command = echo another horse battery staple\n") == 0
        rekeyed = [x for x in own.get("/v1/audit?limit=1000").json["records"] if x["kind"] == "secret.rekey"]
        assert [(x["values"], x["lost"]) for x in rekeyed] == [(2, 0)] * 4


@pytest.mark.parametrize("command,word", [("exit 3", "exit code 3"), ("true", "printed nothing"), ("echo short", "5 bytes")])
def test_a_key_command_that_fails_keeps_the_daemon_from_starting(tmp_path, command, word):
    own = Daemon(None, "--config", conf(tmp_path, f"secrets_key_command = {command}\n"))
    try:
        with pytest.raises(Exception):
            own.start()
        until(lambda: any(word in line for line in own.log))
    finally:
        own.__exit__(None, None, None)


# --- the client ---

def test_the_client_sets_lists_and_removes(d, tmp_path):
    def cli(*args, **kw):
        r = d.cli("secret", *args, **kw)
        assert r.code == 0, r.err
        return r.text

    file = tmp_path / "value"
    file.write_bytes(b"from\0a file\n")
    cli("set", "A", "--description", "by hand", input=b"typed-value\n")
    assert d.get("/v1/secrets/A").json["size"] == 11
    cli("set", "B", "--from-file", str(file))
    cli("set", "C", "--from-env", "HAS_IT", env={"HAS_IT": "from-env"})
    assert [x["size"] for x in d.get("/v1/secrets").json["secrets"]] == [11, 12, 8]
    cli("rotate", "A", input=b"another-value")
    assert d.get("/v1/secrets/A").json["version"] == 2
    listed = cli("ls")
    assert "by hand" in listed and "typed" not in listed and "another" not in listed
    assert json.loads(cli("inspect", "A"))["name"] == "A"
    assert d.cli("secret", "rotate", "NOT_THERE", input=b"long enough").code == 125
    assert d.cli("secret", "set", "A", "value-on-the-command-line", input=b"x").code == 125
    box = d.cli("create", "--json", "--secret", "A", "--secret", "C:env=VAR", "--secret", "A:mask").json
    assert box["secrets"] == [{"name": "A", "as": "file"}, {"name": "C", "as": "env", "env": "VAR"}, {"name": "A", "as": "mask"}]
    assert spelled(d, box, "printf %s $VAR; cat /run/secrets/A") == "from-envanother-value"
    cli("rm", "A", "B", "C")
    assert d.get("/v1/secrets").json == {"secrets": []}


def test_values_a_sandbox_may_show_are_few_enough_to_be_looked_for(d):
    """A client that sets secrets must not block the process that serves all clients, nor fill its memory."""
    def api_rss():
        with open(f"/proc/{d.children()['api']}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    def big():
        return {"value_base64": base64.b64encode(os.urandom(65536)).decode()}

    for i in range(16):
        for name in "AB":
            assert d.put(f"/v1/secrets/{name}", big()).status == (200 if i else 201)
    put(d, "C", "hunter22")
    before = api_rss()
    for _ in range(4):
        start = time.monotonic()
        d.create(secrets=[{"name": n, "as": "mask"} for n in "AB"])
        assert time.monotonic() - start < 10  # without the bound, minutes
    assert api_rss() - before < 200 << 10  # nor more with each: 0.5 GiB without
    error(d.post("/v1/sandboxes", {"secrets": [{"name": n, "as": "mask"} for n in "ABC"]}), 413, "too_large")
    box = d.create(secrets=[{"name": n, "as": "file"} for n in "AC"])
    error(d.put("/v1/secrets/C", {"value": "x" * 65537}), 413, "too_large")
    put(d, "C", "x" * 60000, 200)
    until(lambda: sh(d, box, "cat /run/secrets/C") == "***")
    put(d, "D", "hunter23")
    box = d.create(secrets=[{"name": n, "as": "file"} for n in "ACD"])
    assert "sandbox" in error(d.put("/v1/secrets/D", {"value": "x" * 8000}), 413, "too_large")["message"]
    put(d, "D", "x" * 800, 200)
    until(lambda: sh(d, box, "cat /run/secrets/D") == "***")


def test_an_imported_file_has_no_say_in_whose_secrets_go_where(d):
    """Otherwise the restore of another user's checkpoint file would give its author the secrets of the same names."""
    put(d, "K", VALUE)
    box = d.create(network={"allow": ["thief.test"]}, secrets=[{"name": "K", "as": "env"}, {"name": "K", "as": "header", "to": "thief.test"}])
    made = d.post(f"/v1/sandboxes/{box['id']}/checkpoints", {})
    assert made.status == 201, made
    data = d.get(f"/v1/checkpoints/{made.json['id']}/export").body
    v = as_tenant(d, "victim")
    assert v.put("/v1/secrets/K", {"value": "the-victims-own"}).status == 201
    brought = v.request("POST", "/v1/checkpoints/import", data)
    assert brought.status == 201, brought
    r = v.post("/v1/sandboxes", {"checkpoint": brought.json["id"]})
    assert r.status == 201, r
    assert {(s["name"], s["as"]) for s in r.json["secrets"]} == {("K", "mask")}, r
    said = v.post(f"/v1/sandboxes/{r.json['id']}/execs", {"cmd": ["/bin/sh", "-c", "env | sed 's/./& /g'"]}).json["stdout"]
    assert "the-victims-own" not in said.replace(" ", "")
    assert v.delete(f"/v1/sandboxes/{r.json['id']}").status == 204
    assert v.delete(f"/v1/checkpoints/{brought.json['id']}").status == 204
