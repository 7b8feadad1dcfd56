"""Secrets of a daemon that dies: values, masks and files are what was answered."""
import time

import pytest

from crash import PARTS

VALUE = "kept-through-crashes-31415"
ALL = PARTS + ["term"]


def put(daemon, value, status):
    r = daemon.put("/v1/secrets/KEY", {"value": value})
    assert r.status == status, r
    return r.json


def spelled(daemon, box, script):
    """Letter by letter: nothing masks that."""
    return daemon.sh(box, f"({script}) | sed 's/./& /g'")["stdout"].replace(" ", "")


def until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize("part", ALL)
def test_sandboxes_go_on_with_theirs(daemon, part):
    put(daemon, VALUE, 201)
    box = daemon.create(secrets=[{"name": "KEY", "as": "file"}, {"name": "KEY", "as": "env"}])["id"]
    x = daemon.background(box, "while :; do echo \"say $KEY.\"; sleep 0.05; done")
    until(lambda: b"say ***." in daemon.output_of(box, x))
    daemon.sh(box, "cp /run/secrets/KEY /tmp/old")
    put(daemon, "second-" + VALUE, 200)
    daemon.crash(part)  # perhaps before the file was written
    assert daemon.get("/v1/secrets/KEY").json["version"] == 2
    assert spelled(daemon, box, "printf %s $KEY") == "second-" + VALUE
    until(lambda: spelled(daemon, box, "cat /run/secrets/KEY") == "second-" + VALUE)
    assert daemon.sh(box, "cat /tmp/old /run/secrets/KEY; echo \" $KEY\"")["stdout"] == "*** ***\n"
    seen = daemon.output_of(box, x).count(b"say ***.")
    until(lambda: daemon.output_of(box, x).count(b"say ***.") > seen)
    assert VALUE.encode() not in daemon.output_of(box, x)
    put(daemon, "third-" + VALUE, 200)
    until(lambda: spelled(daemon, box, "cat /run/secrets/KEY") == "third-" + VALUE)
    assert daemon.delete("/v1/secrets/KEY").status == 204
    daemon.crash(part)
    assert daemon.get("/v1/secrets").json == {"secrets": []}
    assert daemon.sh(box, "cat /tmp/old; echo \"<$KEY>\"")["stdout"] == "***<>\n"


def test_a_daemon_that_dies_while_values_change_has_one_of_them(daemon):
    put(daemon, "value-number-0", 201)
    box = daemon.create(secrets=[{"name": "KEY", "as": "env"}])["id"]
    for n in range(1, 6):
        put(daemon, f"value-number-{n}", 200)
        daemon.kill9("api")
        until(lambda: healthy(daemon))
        assert daemon.get("/v1/secrets/KEY").json["version"] == n + 1
        assert spelled(daemon, box, "printf %s $KEY") == f"value-number-{n}"


def healthy(daemon):
    try:
        return daemon.get("/healthz", timeout=5).status == 200
    except OSError:
        return False
