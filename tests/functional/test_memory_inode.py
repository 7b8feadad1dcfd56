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
