"""Calls that change a sandbox as a whole, all at once: they wait for each other, and a delete waits for none of them."""
import concurrent.futures

from api import d, nothing_is_left_behind, token  # noqa: F401

PATH = "/v1/sandboxes"


def at_once(*calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(c) for c in calls]]


def sh(d, box, text):
    r = d.post(f"{PATH}/{box}/execs", {"shell": text})
    assert r.status == 200 and r.json["exit_code"] == 0, r
    return r.json["stdout"].strip()


def checkpoints(d, box, names, **more):
    for name in names:
        sh(d, box, f"echo {name} > which")
        r = d.post(f"{PATH}/{box}/checkpoints", {"name": name, **more}, timeout=60)
        assert r.status == 201, r


def test_restores_in_place_wait_for_each_other(d):
    box = d.create()["id"]
    checkpoints(d, box, "abc")
    got = at_once(*[lambda name=name: d.post(f"{PATH}/{box}/restore", {"checkpoint": name}, timeout=90) for name in "abcabc"])
    assert [r.status for r in got] == [200] * 6, got
    assert sh(d, box, "cat which") in "abc"
    assert d.delete(f"{PATH}/{box}").status == 204


def test_checkpoint_fork_hibernate_and_restore_wait_for_each_other(d):
    box = d.create()["id"]
    checkpoints(d, box, "a", memory=True)
    at = f"{PATH}/{box}"
    got = at_once(*[lambda path=path, body=body: d.post(at + path, body, timeout=90) for path, body in 2 * [
        ("/restore", {"checkpoint": "a"}), ("/checkpoints", {}), ("/fork", {"count": 1}), ("/hibernate", {}), ("/execs", {"cmd": ["true"]})]])
    # A command may begin before a restore ends it; everything else is done, in whatever order.
    assert [r.status for i, r in enumerate(got) if i % 5 != 4] == [200, 201, 201, 200] * 2, got
    assert sh(d, box, "cat which") == "a"
    for r in got:
        for fork in r.json.get("sandboxes", []):
            assert sh(d, fork["id"], "cat which") == "a"
            d.delete(f"{PATH}/{fork['id']}")
    assert d.delete(at).status == 204


def test_a_delete_does_not_wait(d):
    box = d.create()["id"]
    checkpoints(d, box, "a")
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        waiting = [pool.submit(d.post, f"{PATH}/{box}/restore", {"checkpoint": "a"}, timeout=90) for _ in range(8)]
        waiting[0].result()
        assert d.delete(f"{PATH}/{box}").status == 204
        status = [f.result().status for f in waiting]
    assert set(status) <= {200, 404, 409}, status
    assert d.get(f"{PATH}/{box}").status == 404
