"""kill -9 of the daemon, of cloche-tar and of skopeo in the middle of every call on images: what they make is there as a whole or not
at all, nothing is left behind, and the next try works."""
import http.client
import io
import json
import os
import pathlib
import signal
import tarfile
import threading
import time

import pytest

import host
import image_archive as ia
from crash import Crashing
from image_registry import Image, Registry

LONG = bool(os.environ.get("CLOCHE_LONG"))
NAME = "made:1"
PROGRAMS = {"pull": ("skopeo", "cloche-tar", "cloche-layers"), "bring": ("cloche-tar",), "build": ("cloche-tar", "cloche-layers"), "commit": ("cloche-tar",),
            "export": ("cloche-tar",)}
BASE = ia.rootfs()
MANY = {f"many/{n}": os.urandom(3000) for n in range(400)}
MARK = {"mark": b"whole"}
IMPORT = ia.docker([BASE, ia.layer(*(ia.entry(name, data) for name, data in MANY.items())), ia.layer(ia.entry("mark", MARK["mark"]))], NAME)


def context():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in {**MANY, **MARK}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


CONTEXT = context()
HEAD = json.dumps({"dockerfile": "FROM base:1\nRUN mkdir /x && echo x > /x/y\nCOPY many /many\nRUN ls /many | wc -l > /count\nCOPY mark /mark\n",
                   "tags": [NAME], "context_bytes": len(CONTEXT)}).encode() + b"\n"


class Calls:
    """What is interrupted. Each gives whether it says that it is done."""

    def __init__(self, d, registry):
        self.d, self.pulled = d, f"{registry.host}/crash/{NAME}"
        image = Image()
        for files in (BASE, MANY, MARK):
            image.layer(files)
        registry.push(image, f"crash/{NAME}")

    def pull(self):
        return self.d.post("/v1/images/pull", {"name": self.pulled}).status in (200, 201)

    def bring(self):
        return self.d.request("POST", "/v1/images/import", IMPORT).status == 201

    def build(self):
        r = self.d.request("POST", "/v1/images/build", HEAD + CONTEXT)
        return r.status == 200 and json.loads(r.body.decode().splitlines()[-1])["type"] == "done"

    def commit(self):
        return self.d.post(f"/v1/sandboxes/{self.box}/commit", {"name": NAME}).status == 201

    def export(self):
        r = self.d.get("/v1/images/base:1/export")
        return r.status == 200 and r.body.endswith(bytes(1024))

    def remove(self):
        """Of an image, and of what nothing needs any more."""
        return self.d.delete(f"/v1/images/{NAME}").status == 204 and self.d.post("/v1/images/prune").status == 200

    def before(self, call):
        if call == "commit":
            self.box = self.d.create(image="base:1")["id"]
            self.d.exec(self.box, "/bin/sh", "-c", "mkdir -p /many; for i in $(seq 0 399); do echo $i > /many/$i; done; printf whole > /mark", user="root")
        if call == "remove":
            assert self.bring()

    def after(self, call):
        """As before, so that what is left can be seen."""
        if call == "commit":
            assert self.d.delete(f"/v1/sandboxes/{self.box}").status == 204
        for i in self.d.get("/v1/images").json["images"]:
            if i["name"] != "base:1":
                assert self.d.delete("/v1/images/" + i["full_name"].replace("/", "+")).status == 204
        assert self.d.delete("/v1/images/build/cache").status == 200


def look(d):
    """Each image that has a name is whole; no sandbox, spooled file or half of a blob is there that nobody asked for."""
    made = [i for i in d.get("/v1/images").json["images"] if i["name"] != "base:1"]
    for i in made:
        s = d.create(image=i["full_name"])
        assert d.exec(s["id"], "/bin/sh", "-c", "cat /mark; ls /many | wc -l")["stdout"].split() == ["whole400"], i
        d.delete(f"/v1/sandboxes/{s['id']}")
    return made


def clean(d, boxes):
    host.wait_for(lambda: os.listdir(d.data / "spool") == [], 20, "an empty spool")
    host.wait_for(lambda: [p.name for p in (d.data / "blobs").iterdir() if p.name.endswith(".part")] == [], 20, "no part of a blob")
    host.wait_for(lambda: len(d.get("/v1/sandboxes?tenant=*").json["sandboxes"]) == boxes, 20, "no sandbox that is left")


def is_of(pid, top):
    while pid > 1 and pid != top:
        try:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            return False
    return pid == top


def processes(d, program):
    found = []
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and os.readlink(p / "exe").split("/")[-1].split(" ")[0] == program and is_of(int(p.name), d.pid):
                found.append(int(p.name))
        except OSError:
            pass
    return sorted(found)


def kill_when_it_runs(d, program, skip, over):
    """SIGKILL to the process of that program that is the number *skip* to come. False: there was none."""
    seen = []
    while not over.is_set():
        for pid in processes(d, program):
            if pid in seen:
                continue
            seen.append(pid)
            if len(seen) > skip:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                return True
        time.sleep(0.001)
    return False


def interrupted(calls, call, kill):
    """Does *call*, and *kill* meanwhile. What the call said: True, False, or None when nobody answered."""
    said, over = [], threading.Event()

    def work():
        try:
            said.append(getattr(calls, call)())
        except (OSError, ValueError, IndexError, http.client.HTTPException):
            said.append(None)
        over.set()

    t = threading.Thread(target=work, daemon=True)
    t.start()
    kill(over)
    t.join(90)
    assert said
    return said[0]


def once(calls, call, kill, what):
    d = calls.d
    calls.before(call)
    layers = d.layers()
    boxes = len(d.get("/v1/sandboxes?tenant=*").json["sandboxes"])
    said = interrupted(calls, call, kill)
    host.wait_for(lambda: d.request("GET", "/healthz").status == 200, 20, "the daemon")
    made = look(d)
    if said and call not in ("remove", "export"):
        assert made, (call, what, "was answered, and is not there")
    clean(d, boxes)
    if call == "remove":
        assert not (said and made)
        getattr(calls, call)()
        assert not look(d)
    else:
        assert getattr(calls, call)(), (call, what, "the next try")
        assert call == "export" or look(d)
    calls.after(call)
    if call in ("remove", "commit"):
        layers = set()
    host.wait_for(lambda: len(d.layers() - layers) <= 1, 40, f"{call}, {what}: no layers but those of the base: {d.layers()} {layers}")
    clean(d, 0)


def crash_after(d, which, seconds):
    def kill(over):
        over.wait(seconds)
        d.crash(which)
    return kill


@pytest.fixture(name="calls")
def _calls(nothing_is_left_behind, tmp_path):  # pylint: disable=unused-argument
    with Registry(tmp_path) as r, Crashing(None, "--config", r.conf()) as d:
        assert d.request("POST", "/v1/images/import?name=base:1", ia.docker([BASE])).status == 201
        yield Calls(d, r)
        assert d.delete("/v1/images/base:1").status == 204
        host.wait_for(lambda: not d.layers(), 40, "no layers")
        log = "\n".join(d.log)
        assert "AddressSanitizer" not in log and "runtime error" not in log and "Assertion" not in log, log[-8000:]


@pytest.mark.parametrize("call", ["pull", "bring", "build", "commit", "export", "remove"])
def test_a_call_on_images_that_is_interrupted_leaves_all_or_nothing(calls, call):
    d = calls.d
    points = [("api", 0.3), ("api", 0.7), ("all", 0.5)]
    if LONG:
        points += [("api", n / 20) for n in range(20)] + [(which, n / 4) for which in ("warden", "all") for n in range(4)]
    calls.before(call)
    begun = time.monotonic()
    assert getattr(calls, call)()
    took = time.monotonic() - begun
    calls.after(call)
    for which, share in points:
        once(calls, call, crash_after(d, which, took * share), f"{which} at {share} of {took:.2f} s")
    for program in PROGRAMS.get(call, ()):
        killed = []
        for nth in range(8 if LONG else 2):
            once(calls, call, lambda over, p=program, n=nth: killed.append(kill_when_it_runs(d, p, n, over)), f"{program} {nth}")
        assert any(killed), f"no {program} was met"
