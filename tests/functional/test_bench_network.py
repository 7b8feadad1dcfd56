"""The network's benchmark works: a quick run has every row that needs no other program, without an error."""
import json
import os
import subprocess

import pytest

import host

ROWS = ["create, no network", "create, allow", "one stream down, direct", "one stream down, cloche", "one stream up, cloche", "connect, direct",
        "connect, cloche", "connect and 1 byte there and back, cloche", "connect to an address that is refused, cloche",
        "connect to a metadata service that is refused, cloche", "flood: a neighbour's connect and echo, meanwhile",
        "200 streams of 10 sandboxes: all up after", "egress: memory of an idle sandbox", "egress: memory of an idle stream"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "rows.json"
    r = subprocess.run([str(host.ROOT / "tests/bench/run"), "--network", "--quick", "--json", str(path)], capture_output=True, text=True, timeout=300,
                       env={**os.environ, "BUILD": str(host.BUILD)}, check=False)
    assert r.returncode == 0, r.stdout[-2000:] + r.stderr[-2000:]
    return r.stdout, json.loads(path.read_text())


def test_every_row_is_there_and_judged_as_it_was_measured(result):
    out, rows = result
    assert set(ROWS) <= {row["what"] for row in rows}
    for row in rows:
        judged = row["value"] if row["ratio"] is None else row["ratio"]
        if row["bound"] is not None:
            assert row["met"] == (judged >= row["bound"] if row["least"] else judged <= row["bound"]), row
    assert out.count("MISSED") == sum(row["met"] is False for row in rows)


def test_no_stream_fails(result):
    assert [row["value"] for row in result[1] if row["what"].endswith("errors")] == [0]
