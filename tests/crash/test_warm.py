"""Warm templates whose daemon dies: an image is there whole or not at all, and warm processes go on."""
import http.client
import random
import threading
import time

import pytest

import host
from crash import PARTS

ALL = PARTS + ["term"]
WARM = {"python": "import time, builtins\nbuiltins.N = 41\ntime.sleep(0.2)"}


def code(daemon, box, text):
    r = daemon.post(f"/v1/sandboxes/{box}/execs", {"code": text})
    assert r.status == 200, r
    return r.json["stdout"]


def layers(daemon):
    return daemon.layers()


@pytest.mark.parametrize("part", ALL)
def test_warm_processes_go_on(daemon, part):
    r = daemon.put("/v1/templates/py", {"warm": WARM, "memory": "128M"})
    assert r.status == 201, r
    assert daemon.put("/v1/pools/p", {"template": "py", "min": 2}).status == 201
    host.wait_for(lambda: daemon.get("/v1/pools/p").json["ready"] == 2, 20, "ready clones")
    a, b = (daemon.create(template="py", memory=m)["id"] for m in ("128M", "160M"))
    assert code(daemon, a, "print(N)") == code(daemon, b, "print(N)") == "41\n"
    daemon.crash(part)
    assert code(daemon, a, "print(N + 1)") == code(daemon, b, "print(N + 1)") == "42\n"
    host.wait_for(lambda: daemon.get("/v1/pools/p").json["ready"] == 2, 20, "ready clones")
    c = daemon.create(template="py")
    assert c["pooled"] and code(daemon, c["id"], "print(N + 2)") == "43\n"
    assert code(daemon, daemon.create(template="py", env={"A": "b"})["id"], "import os; print(N, os.environ['A'])") == "41 b\n"
    assert daemon.get("/v1/templates/py").json["warm"]["since"] == r.json["warm"]["since"]


@pytest.mark.parametrize("part", ALL)
def test_an_image_is_whole_or_not_there(daemon, part):
    made = []

    def put(i):
        try:
            r = daemon.put("/v1/templates/py", {"warm": WARM, "env": {"I": str(i)}}, timeout=30)
            made.append((i, r.status))
        except (OSError, http.client.HTTPException):
            pass

    for i in range(3):
        t = threading.Thread(target=put, args=(i,))
        t.start()
        time.sleep(random.uniform(0.02, 0.6))
        daemon.crash(part)
        t.join(40)
    put(9)
    assert made[-1] == (9, 200) or made[-1] == (9, 201), made
    used = daemon.get("/v1/tenants/default").json["used"]
    assert used["checkpoints"] == 1 and used["sandboxes"] == 0, used
    b = daemon.create(template="py")
    assert b["env"] == {"I": "9"} and code(daemon, b["id"], "import os; print(N, os.environ['I'])") == "41 9\n"
    assert set(daemon.states()) == {b["id"]}
    daemon.delete(f"/v1/sandboxes/{b['id']}")
    assert daemon.delete("/v1/templates/py").status == 204
    host.wait_for(lambda: not layers(daemon), 20, "the end of all images")
    assert daemon.get("/v1/tenants/default").json["used"]["checkpoints"] == 0
