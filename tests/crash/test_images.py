"""kill -9 while images are imported and removed: each is whole or not there, and what nothing needs is gone."""
import http.client
import os
import threading
import time

import pytest

import host
import image_archive as ia
from crash import PARTS

PARALLEL = 3


def importing(d, archives, names):
    """Imports side by side, again and again; *names* gets those that were answered."""
    stop = threading.Event()

    def work(k):
        n = 0
        while not stop.is_set():
            name = f"i{k}:{n}"
            n += 1
            try:
                r = d.request("POST", f"/v1/images/import?name={name}", archives[n % len(archives)], timeout=60)
                if r.status == 201:
                    names.add(name)
                if r.status == 201 and n % 3 == 0 and d.delete(f"/v1/images/{name}", timeout=60).status != 204:
                    names.discard(name)
                elif n % 3 == 0:
                    names.discard(name)
            except (OSError, ValueError, http.client.HTTPException):
                if n % 3 == 0:
                    names.discard(name)  # it may be there, or removed
                time.sleep(0.05)

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(PARALLEL)]
    for t in threads:
        t.start()
    return threads, stop


def check(d, names):
    """What was answered is there and can be used; there is no layer but those of images."""
    images = {i["name"]: i for i in d.get("/v1/images").json["images"]}
    assert names <= set(images), (names, set(images))
    for name in list(images)[:2]:
        s = d.create(image=name)
        assert d.exec(s["id"], "/bin/cat", "/mark")["stdout"] == images[name]["config"]["labels"]["mark"]
        d.delete(f"/v1/sandboxes/{s['id']}")
    chains = {tuple(x["diff_id"] for x in i["layers"][:n + 1]) for i in images.values() for n in range(len(i["layers"]))}
    host.wait_for(lambda: len(d.layers()) == len(chains), 40, f"{len(chains)} layers of {d.layers()}")
    assert os.listdir(d.data / "spool") == []
    assert not [x for x in d.get("/v1/sandboxes").json["sandboxes"]]


@pytest.mark.parametrize("which", PARTS)
def test_images_are_whole_or_not_there_after_kill_9(daemon, which):
    d = daemon
    base = ia.rootfs()
    archives = []
    for n in range(3):
        layers = [base, ia.layer(ia.entry("mark", b"%d" % n)), ia.layer(*(ia.entry(f"many/{n}-{k}", os.urandom(2000)) for k in range(300)))]
        archives.append(ia.docker(layers, conf=ia.config(layers, Labels={"mark": str(n)})))
    names = set()
    for delay in 0.15, 0.4, 0.9, 1.7:
        threads, stop = importing(d, archives, names)
        time.sleep(delay)
        d.crash(which)
        stop.set()
        for t in threads:
            t.join(90)
        check(d, names)
    for i in d.get("/v1/images").json["images"]:
        assert d.delete(f"/v1/images/{i['name']}").status == 204
    host.wait_for(lambda: not d.layers(), 40, "no layers")
