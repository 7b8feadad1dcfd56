"""A file that a process has open has the same inode number in every copy of the process as in its source: programs compare it with what
the file's name leads to."""
import pytest

from api import d, eventually, nothing_is_left_behind  # noqa: F401
from test_checkpoints_memory import background, clean  # noqa: F401
from test_memory_real import ASK, start, step, Program  # noqa: F401


def python(name, says):
    return Program(f"cd /tmp/p; exec python3 {name}.py 2>&1", says)


PROGRAMS = {
    "open_files": python("open_files", lambda n: f"{n} same"),
    "databases": python("databases", lambda n: f"{n} right"),
}


def kept(box):
    """None of its open files got another number."""
    assert box["restored"]["memory"] is True, box
    assert not [x for x in box["restored"]["not_done"] if x["what"] == "inode-numbers"], box


@pytest.mark.parametrize("name", PROGRAMS)
def test_open_files_keep_their_numbers(d, clean, start, name):
    program = PROGRAMS[name]
    source = start(program)
    r = d.post(f"/v1/sandboxes/{source['id']}/checkpoints", {"memory": True})
    assert r.status == 201, r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore", {"count": 1})
    assert r.status == 201, r
    copy, = r.json["sandboxes"]
    kept(copy)
    step(d, copy, program, 2)
    step(d, source, program, 2)
    r = d.post(f"/v1/sandboxes/{copy['id']}/fork", {"count": 2, "memory": True})
    assert r.status == 201, r
    for fork in r.json["sandboxes"]:
        kept(fork)
        step(d, fork, program, 3)
    for n in 4, 5:
        r = d.post(f"/v1/sandboxes/{fork['id']}/hibernate")
        assert r.status == 200 and r.json["state"] == "hibernated", r
        step(d, fork, program, n)
    assert d.exec(fork["id"], "sh", "-c", "ls -a / | grep -c cloche-inode")["stdout"].strip() == "0"


LARGE = "open('large', 'wb').write(bytes(9 << 20)); f = open('large', 'rb')"
LINKED = "open('first', 'w').close(); os.link('first', 'second'); f = open('first')"


@pytest.mark.parametrize("code, storage, least", [(LARGE, "memory", 8 << 20), (LARGE, "disk", 8 << 20), (LINKED, "memory", 0)])
def test_a_number_that_is_not_kept_is_told(d, clean, code, storage, least):
    box = d.create(storage=storage)
    x = background(d, box, f"""cd /tmp; exec python3 -c "import os, time; {code}; print('up', flush=True); time.sleep(1e6)" """)
    eventually(lambda: d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output").body == b"up\n", 60)
    used = d.get(f"/v1/sandboxes/{box['id']}/stats").json["disk"]
    r = d.post(f"/v1/sandboxes/{box['id']}/fork", {"count": 1, "memory": True})
    assert r.status == 201, r
    fork, = r.json["sandboxes"]
    assert "inode-numbers" in [x["what"] for x in fork["restored"]["not_done"]], fork
    # What is only read is not copied for its number, either.
    assert not least or d.get(f"/v1/sandboxes/{fork['id']}/stats").json["disk"] < used - least
    assert d.exec(fork["id"], "sh", "-c", "ls -a / | grep -c cloche-inode")["stdout"].strip() == "0"
