"""Warm templates: slow work is done once, ahead, and every sandbox continues from there."""
import os

import pytest

import host
from api import as_tenant, d, error, nothing_is_left_behind  # noqa: F401
from test_templates import clean, put, sh  # noqa: F401


def used(d, tenant="default"):
    return d.get(f"/v1/tenants/{tenant}").json["used"]


@pytest.mark.parametrize("warm,status,says", [
    ({}, 400, "{python}, {cmd, ready} or {context}"), ({"cmd": ["true"]}, 400, "{python}, {cmd, ready} or {context}"), ({"ready": "x"}, 400, "{python}, {cmd, ready} or {context}"),
    ({"python": "1", "cmd": ["a"], "ready": "b"}, 400, "{python}, {cmd, ready} or {context}"), ({"cmd": [], "ready": "x"}, 400, "cmd"), ({"cmd": [1], "ready": "x"}, 400, "cmd"),
    ({"cmd": ["true"], "ready": ""}, 400, "{python}, {cmd, ready} or {context}"), ({"python": "1", "timeout": 0}, 400, "timeout"), ({"python": "1", "timeout": 601}, 400, "timeout"),
    ({"python": "1", "more": 1}, 400, "more"), ({"python": "x" * 65537}, 400, "python"), ("python", 400, "warm"),
    ({"cmd": ["/no/such"], "ready": "x"}, 422, "/no/such"), ({"cmd": ["sh", "-c", "echo out; echo why not >&2; exit 3"], "ready": "ready"}, 422, "ended with 3 before it was ready: why not"),
    ({"cmd": ["sh", "-c", "echo alone"], "ready": "ready"}, 422, "alone"), ({"cmd": ["sleep", "1000"], "ready": "x", "timeout": 0.3}, 422, "in time"),
    ({"cmd": ["sh", "-c", "kill -9 $$"], "ready": "x"}, 422, "ended with 137"), ({"cmd": ["sh", "-c", "sleep 1000 >/dev/null 2>&1 </dev/null & echo ready"], "ready": "ready"}, 422, "ended|outside"),
    ({"python": "import nothing_of_the_sort"}, 422, "ModuleNotFoundError: No module named 'nothing_of_the_sort'"), ({"python": "1 +"}, 422, "SyntaxError"),
    ({"python": "raise SystemExit(4)"}, 422, "ended with 4"), ({"python": "import time; time.sleep(100)", "timeout": 0.5}, 422, "in time"),
])
def test_what_does_not_become_warm_is_told_why_and_leaves_nothing(d, warm, status, says):
    before = used(d)
    e = error(d.put("/v1/templates/w", {"warm": warm}), status, "invalid" if status == 400 else "refused")
    # One that ends as soon as it is ready may be met in the middle of that.
    assert any(s in e["message"] for s in says.split("|")), e
    error(d.get("/v1/templates/w"), 404, "not_found")
    assert used(d) == before and d.get("/v1/sandboxes?tenant=*").json["sandboxes"] == [] and d.get("/v1/checkpoints").json["checkpoints"] == []


@pytest.mark.parametrize("line,remedy", [("echo listening >&2; exec sleep 1000", "2>&1"), ("exec sleep 1000", "python3 -u"), ("echo starting; exec sleep 1000", "--warm-timeout")])
def test_who_waits_for_a_text_that_does_not_come_is_told_how_long_and_what_to_do(d, line, remedy):
    e = error(d.put("/v1/templates/w", {"warm": {"cmd": ["sh", "-c", line], "ready": "listening", "timeout": 1.5}}), 422, "refused")
    assert "no 'listening' on its stdout in 1.5 s" in e["message"] and remedy in e["remedy"], e


def test_a_template_that_can_not_be_made_warm_stays_what_it_was(d):
    t = put(d, "w", memory="64M")
    error(d.put("/v1/templates/w", {"warm": {"cmd": ["false"], "ready": "x"}}), 422, "refused")
    assert d.get("/v1/templates/w").json == t and d.create(template="w")["memory"] == 64 << 20


def test_quotas_hold_for_it(d):
    other = as_tenant(d, "warm-q", quotas={"memory": "64M"})
    error(other.put("/v1/templates/w", {"memory": "80M", "warm": {"python": "1"}}), 429, "quota")
    assert used(d, "warm-q")["sandboxes"] == 0


def test_code_needs_a_warm_python(d):
    b = d.create()
    e = error(d.post(f"/v1/sandboxes/{b['id']}/execs", {"code": "print(1)"}), 409, "conflict")
    assert "warm" in e["message"] and "cmd" in e["remedy"]
    for bad in ({"code": "1", "cmd": ["a"]}, {"code": "1", "shell": "a"}, {"code": 1}):
        error(d.post(f"/v1/sandboxes/{b['id']}/execs", bad), 400, "invalid")
    assert sh(d, b, "echo on") == "on\n"


# --- warm ones ---

COUNTER = """
import sys, time, threading
n = 40
print("warming", flush=True)
n += 1
print("now I am ready", flush=True)
while True:
    n += 1
    open("/tmp/n", "w").write(str(n))
    time.sleep(0.02)
"""


def code(d, box, text, **fields):
    r = d.post(f"/v1/sandboxes/{box['id']}/execs", {"code": text, **fields})
    assert r.status == 200, r
    return r.json


def image(d, template):
    """The id of its image, which only the audit log has."""
    noted = [x for x in d.get("/v1/audit?limit=10000").json["records"] if x["kind"] in ("template.create", "template.update", "template.warm") and x["template"] == template]
    return noted[-1].get("image")


def layers(d):
    return d.layers()


def test_a_warm_python_runs_code_at_once(d):
    t = put(d, "py", warm={"python": "import json, builtins\nbuiltins.FROM = 'warm-up'\nprint('said while warming')"}, env={"A": "b"})
    assert t["warm"]["ready"] is True and t["warm"]["since"] and t["warm"]["python"].startswith("import json") and t["version"] == 1
    a, b = d.create(template="py"), d.create(template="py")
    for box in (a, b):
        assert box["template"] == "py" and box["restored"]["memory"] is True and box["checkpoint"] is None and "random" in box["restored"]["done"]
        r = code(d, box, "import sys, os; print(FROM, 'json' in sys.modules, __name__, os.environ['A'], os.getcwd())")
        assert (r["exit_code"], r["stdout"], r["stderr"]) == (0, "warm-up True __main__ b /home/user\n", ""), r
    assert code(d, a, "import builtins; builtins.FROM = 'changed'")["exit_code"] == 0
    assert code(d, a, "print(FROM)")["stdout"] == "warm-up\n"  # each is a fork of its own
    assert code(d, a, "raise SystemExit(7)")["exit_code"] == 7
    assert "ZeroDivisionError" in code(d, a, "1/0")["stderr"]
    assert code(d, a, "import sys; print(sys.stdin.read())", stdin="in")["stdout"] == "in\n"
    assert code(d, a, "import time; time.sleep(100)", timeout=0.3)["verdict"]["cause"] == "timeout"
    assert sh(d, a, "echo plain execs too") == "plain execs too\n"
    assert d.get("/v1/checkpoints").json["checkpoints"] == [] and d.get("/v1/sandboxes?tenant=*").json["sandboxes"].__len__() == 2


def test_code_goes_on_where_the_warm_up_ended(d):
    """One program, cut in two: names, functions that use them, classes that can be pickled. Every run has its own copy."""
    put(d, "py", warm={"python": "import json as j, pickle\nn = 1\ndef more():\n    return n + 1\nclass C:\n    pass\n"})
    b = d.create(template="py")
    assert code(d, b, "print(j.dumps([n, more()]), __name__)")["stdout"] == "[1, 2] __main__\n"
    assert code(d, b, "n = 40; print(more())")["stdout"] == "41\n"
    assert code(d, b, "print(n, more())")["stdout"] == "1 2\n"
    r = code(d, b, "import __main__; print(type(pickle.loads(pickle.dumps(C()))) is C, __main__.n, sorted(x for x in dir() if x[0] == '_' and x[1] != '_'))")
    assert r["stdout"] == "True 1 []\n", r  # and nothing of ours


def test_sandboxes_share_no_random_numbers_and_nothing_else(d):
    put(d, "py", warm={"python": "import random, uuid, secrets\nrandom.seed(1)"})
    boxes = [d.create(template="py") for _ in range(4)]
    assert len({code(d, b, "import random; print(random.random())")["stdout"] for b in boxes}) == 4
    assert all("generators" in [x["what"] for x in b["restored"]["not_done"]] for b in boxes)  # what the warm code made for itself
    assert len({sh(d, b, "cat /run/cloche/generation") for b in boxes}) == 4
    code(d, boxes[0], "open('/tmp/mine', 'w').write('x')")
    assert code(d, boxes[1], "import os; print(os.path.exists('/tmp/mine'))")["stdout"] == "False\n"


def test_a_command_that_says_it_is_ready_goes_on_in_every_sandbox(d):
    t = put(d, "cmd", warm={"cmd": ["python3", "-c", COUNTER], "ready": "I am ready"})
    assert t["warm"] == {"cmd": ["python3", "-c", COUNTER], "says": "I am ready", "ready": True, "since": t["warm"]["since"]}
    for _ in range(2):
        b = d.create(template="cmd")
        first = host.wait_for(lambda b=b: sh(d, b, "cat /tmp/n 2>/dev/null"), 5, "a sign of life")
        assert int(first) > 41
        host.wait_for(lambda b=b, first=first: int(sh(d, b, "cat /tmp/n") or 0) > int(first) + 3, 5, "it to go on")
        runs = [x for x in d.get(f"/v1/sandboxes/{b['id']}/execs").json["execs"] if x["state"] == "running"]
        assert len(runs) == 1 and runs[0]["background"] and runs[0]["id"] in b["restored"]["execs"]
        assert d.delete(f"/v1/sandboxes/{b['id']}/execs/{runs[0]['id']}").status == 200
        e = error(d.post(f"/v1/sandboxes/{b['id']}/execs", {"code": "1"}), 409, "conflict")
        assert "warm" in e["message"]


def test_its_image_is_kept_and_goes_with_it(d):
    before = layers(d)
    t = put(d, "py", warm={"python": "import json"})
    first = image(d, "py")
    host.wait_for(lambda: layers(d) - before == {first}, 10, "its image alone, and what others left gone")
    assert used(d)["checkpoints"] == 1
    error(d.get(f"/v1/checkpoints/{first}"), 404, "not_found")
    error(d.delete(f"/v1/checkpoints/{first}"), 404, "not_found")
    assert put(d, "py", 200, warm={"python": "import json"}, description="x")["warm"]["since"] == t["warm"]["since"] and image(d, "py") == first
    d.restart()
    assert code(d, d.create(template="py"), "print(1)")["stdout"] == "1\n"
    t2 = put(d, "py", 200, warm={"python": "import json, decimal"})
    assert t2["version"] == 2 and image(d, "py") != first
    assert code(d, d.create(template="py"), "import sys; print('decimal' in sys.modules)")["stdout"] == "True\n"
    assert used(d)["checkpoints"] == 1
    for b in d.get("/v1/sandboxes").json["sandboxes"]:
        d.delete(f"/v1/sandboxes/{b['id']}")
    assert d.delete("/v1/templates/py").status == 204
    assert used(d)["checkpoints"] == 0
    host.wait_for(lambda: not layers(d) - before, 10, "the end of its images")


def test_ready_clones(d):
    put(d, "py", warm={"python": "import builtins\nbuiltins.N = 41"}, start={"shell": "echo started > /tmp/started"})
    r = d.put("/v1/pools/p", {"template": "py", "min": 3})
    assert r.status == 201, r
    host.wait_for(lambda: d.get("/v1/pools/p").json["ready"] == 3, 15, "ready clones")
    boxes = [d.create(template="py") for _ in range(3)]
    assert all(b["pooled"] for b in boxes)
    assert len({code(d, b, "import random; print(N + 1, random.random())")["stdout"] for b in boxes}) == 3
    assert all(code(d, b, "print(N + 1)")["stdout"] == "42\n" for b in boxes)
    host.wait_for(lambda: sh(d, boxes[0], "cat /tmp/started 2>/dev/null") == "started\n", 5, "the start command")
    d.restart()
    host.wait_for(lambda: d.get("/v1/pools/p").json["ready"] == 3, 15, "ready clones")
    b = d.create(template="py")
    assert b["pooled"] and code(d, b, "print(N)")["stdout"] == "41\n"
    other = d.create(template="py", env={"A": "1"})
    assert not other["pooled"] and code(d, other, "import os; print(N, os.environ['A'])")["stdout"] == "41 1\n"


def pythons(d, held=False):
    """What /proc says of each: of those that run, or of those that were made and are held before they do."""
    found, stats = [d.pid], {}
    for p in found:
        try:
            found += host.children(p)
            name, _, rest = host.lines(f"/proc/{p}/stat")[0].rpartition(")")
        except OSError:  # it has ended
            continue
        if name.endswith("(python3") and (rest.split()[0] == "t") == held:
            stats[p] = rest.split()
    return stats


def spare(d):
    """Page faults of the process that waits for code, the youngest Python; None while there is none that sleeps."""
    stats = pythons(d)
    last = stats[max(stats)] if stats else "?"
    return int(last[7]) if last[0] == "S" else None


def test_a_ready_clone_has_its_memory_before_it_is_asked(d):
    """It has gone through all that code takes: the rest is a few faults, not hundreds."""
    own = "print(open('/proc/self/stat').read().rpartition(')')[2].split()[7])"
    put(d, "py", warm={"python": "import json"})
    b = d.create(template="py")
    before = host.wait_for(lambda: spare(d), 5, "a process that waits")
    on_demand = int(code(d, b, own)["stdout"]) - before
    d.delete(f"/v1/sandboxes/{b['id']}")
    assert d.put("/v1/pools/p", {"template": "py", "min": 1}).status == 201
    host.wait_for(lambda: d.get("/v1/pools/p").json["ready"] == 1, 15, "a ready clone")
    seen = []
    before = host.wait_for(lambda: seen.append(spare(d)) or len(seen) > 30 and len(set(seen[-30:])) == 1 and seen[-1], 30, "its rehearsal's end")
    b = d.create(template="py")
    assert b["pooled"] and int(code(d, b, own)["stdout"]) - before < on_demand / 2


def test_the_next_one_is_made_before_anybody_asks_and_runs_nothing_until_then(d):
    put(d, "py", warm={"python": "import random\nrandom.seed(1)"})
    numbers, taken = [], False

    def start():
        b = d.create(template="py")
        there = set(pythons(d))
        numbers.append(code(d, b, "print(random.random())")["stdout"])
        assert d.delete(f"/v1/sandboxes/{b['id']}").status == 204
        return there

    def held():
        return host.wait_for(lambda: len(pythons(d, held=True)) == 2 and set(pythons(d, held=True)), 10, "two that are held")

    start(), start()
    for _ in range(20):  # they can be seen a moment before they are there to be had
        if held() <= start():
            taken = True
            break
    assert taken
    os.kill(min(held()), 9)  # all is begun anew, then
    start()
    assert len(set(numbers)) == len(numbers)
    held()
    assert d.delete("/v1/templates/py").status == 204
    host.wait_for(lambda: not pythons(d, held=True), 10, "nobody to wait for what is gone")


@pytest.mark.parametrize("warm", ["N = 41", "import threading, time\nN = 41\nthreading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()"])
def test_who_waits_for_code_is_replaced_when_it_is_killed(d, warm):
    """The runner watches the processes that it has forked by itself, also one that it is not the parent of."""
    own = "import os\ndef name(p):\n try: return open(f'/proc/{p}/comm').read()\n except OSError: return ''\nfound = []\n" \
          "while len(found) != 2:\n found = [int(p) for p in os.listdir('/proc') if p.isdigit() and " \
          "p != str(os.getpid()) and name(p) == 'python3\\n']\nos.kill(max(found), 9)"
    put(d, "py", warm={"python": warm})
    b = d.create(template="py")
    for _ in range(2):
        assert d.post(f"/v1/sandboxes/{b['id']}/execs", {"cmd": ["/usr/bin/python3", "-c", own]}).json["exit_code"] == 0
        assert code(d, b, "print(N)")["stdout"] == "41\n"
        assert code(d, b, "print(N + 1)")["stdout"] == "42\n"


def test_code_that_ends_at_once_is_told_as_what_it_was(d):
    """It may be over before the agent has looked which group it is in."""
    put(d, "py", warm={"python": "import os"})
    b = d.create(template="py")
    for i in range(40):
        assert d.post(f"/v1/sandboxes/{b['id']}/execs", {"code": f"os._exit({i})"}).json["exit_code"] == i
    # Whoever served it, one that waited or one forked for it: there is nothing open but what it was given.
    for i in range(20):
        assert code(d, b, "print(sorted(os.listdir('/proc/self/fd')))")["stdout"] == "['0', '1', '2', '3']\n"


def test_an_image_that_is_refused_is_made_again_once(d):
    t = put(d, "py", warm={"python": "import builtins\nbuiltins.N = 41"})
    first = image(d, "py")
    spoil(d, first)
    b = d.create(template="py")
    assert code(d, b, "print(N)")["stdout"] == "41\n" and image(d, "py") != first
    now = d.get("/v1/templates/py").json
    assert now["warm"]["since"] > t["warm"]["since"] and now["version"] == 1 and used(d)["checkpoints"] == 1
    assert len([x for x in d.get("/v1/audit?kind=template.warm").json["records"] if x["template"] == "py"]) == 1


def spoil(d, first):
    d.stop()
    meta = d.data / "layers" / first / "mem/meta"
    data = bytearray(meta.read_bytes())
    data[len(data) // 2] ^= 1
    meta.write_bytes(data)
    d.start()


def test_why_it_could_not_be_made_again_is_told(d):
    other = as_tenant(d, "warm-r")
    assert other.put("/v1/templates/py", {"warm": {"python": "1"}, "memory": "128M"}).status == 201
    assert other.put("/v1/pools/p", {"template": "py", "min": 0}).status == 201
    spoil(d, image(d, "py"))
    assert d.request("PATCH", "/v1/tenants/warm-r", {"quotas": {"memory": "64M"}}).status == 200
    e = error(other.post("/v1/sandboxes", {"template": "py", "memory": "32M"}), 429, "quota")
    assert "warmed again" in e["message"] and "damaged" in e["message"] and "quota of memory" in e["message"], e
    assert d.request("PATCH", "/v1/tenants/warm-r", {"quotas": {"memory": 0}}).status == 200
    # A pool sees to it by itself.
    assert other.put("/v1/pools/p", {"template": "py", "min": 2}).status == 200
    host.wait_for(lambda: other.get("/v1/pools/p").json["ready"] == 2, 20, "ready clones")
    b = other.create(template="py")
    assert b["pooled"] and other.post(f"/v1/sandboxes/{b['id']}/execs", {"code": "print(2)"}).json["stdout"] == "2\n"


def test_a_tenant_goes_with_its_images(d):
    other = as_tenant(d, "warm-o")
    assert other.put("/v1/templates/py", {"warm": {"python": "1"}}).status == 201
    assert used(d, "warm-o")["checkpoints"] == 1
    b = other.create(template="py")
    error(d.delete("/v1/tenants/warm-o"), 409, "conflict")
    assert other.post(f"/v1/sandboxes/{b['id']}/execs", {"code": "print(2)"}).json["stdout"] == "2\n"
    assert other.delete(f"/v1/sandboxes/{b['id']}").status == 204
    assert d.delete("/v1/tenants/warm-o").status == 204


def test_a_start_that_can_not_begin_ends_what_went_on(d):
    other = as_tenant(d, "warm-s", quotas={"execs": 3})
    assert other.put("/v1/templates/py", {"warm": {"python": "1"}, "start": {"cmd": ["sleep", "1000"]}}).status == 201
    b = other.create(template="py")  # two execs: the warm one, and the start
    error(other.post("/v1/sandboxes", {"template": "py"}), 429, "quota")
    assert used(d, "warm-s")["sandboxes"] == 1 and used(d, "warm-s")["execs"] == 2
    assert [x["id"] for x in other.get("/v1/sandboxes").json["sandboxes"]] == [b["id"]]
    assert other.delete(f"/v1/sandboxes/{b['id']}").status == 204
    assert used(d, "warm-s")["execs"] == 0


def test_any_runtime_can_be_warm(d):
    node = "const big = require('zlib'); let n = 0; setInterval(() => { require('fs').writeFileSync('/tmp/n', String(++n)) }, 20); console.log('node is ready')"
    put(d, "js", warm={"cmd": ["node", "-e", node], "ready": "node is ready"}, memory="1G")
    seen = []
    for _ in range(2):
        b = d.create(template="js")
        first = host.wait_for(lambda b=b: sh(d, b, "cat /tmp/n 2>/dev/null"), 10, "a sign of life")
        host.wait_for(lambda b=b, first=first: int(sh(d, b, "cat /tmp/n") or 0) > int(first) + 2, 10, "it to go on")
        seen.append([x for x in d.get(f"/v1/sandboxes/{b['id']}/execs").json["execs"] if x["state"] == "running"][0]["id"])
    assert len(set(seen)) == 2


def test_idle_is_idle_also_with_a_warm_process(d):
    put(d, "py", warm={"python": "1"}, idle=0.8)
    b = d.create(template="py")
    host.wait_for(lambda: d.get(f"/v1/sandboxes?name={b['name']}").json["sandboxes"] == [], 6, "its end")
