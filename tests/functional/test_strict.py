"""Small promises of the API: each is exact or refused."""
import io
import json
import tarfile

import pytest

from api import Raw, as_tenant, d, error, nothing_is_left_behind  # noqa: F401
from daemon import Daemon


def test_two_authorization_headers_are_refused(d):
    for other in ("Bearer cloche_x", f"Bearer {d.token}", "Basic eA=="):
        raw = Raw(d, "GET", "/v1/sandboxes", headers={"authorization": other})
        assert raw.head()[0] == 400
        raw.s.close()
    assert d.get("/v1/sandboxes").status == 200


@pytest.mark.parametrize("tiny", [0.0001, 1e-9, 4e-4, "0.0001s", "0.5ms", "0.0001"])
def test_a_time_that_would_round_to_no_limit_is_refused(d, tiny):
    for body in ({"timeout": tiny}, {"exec_timeout": tiny}):
        error(d.post("/v1/sandboxes", body), 400, "invalid")
    b = d.create()["id"]
    error(d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["true"], "timeout": tiny}), 400, "invalid")
    if isinstance(tiny, str):
        r = d.cli("exec", "--timeout", tiny, b, "true")
        assert r.code == 125, r
    d.delete(f"/v1/sandboxes/{b}")


def test_the_smallest_time_is_one_and_zero_is_none(d):
    b = d.create()["id"]
    r = d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["sleep", "60"], "timeout": 0.001})
    assert r.json["verdict"]["cause"] == "timeout", r
    assert d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["true"], "timeout": 0}).json["exit_code"] == 0
    d.delete(f"/v1/sandboxes/{b}")


def test_an_archive_stops_where_the_disk_is_full(d):
    b = d.create(disk="8M")["id"]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for i in range(64):
            info = tarfile.TarInfo(f"f{i:02}")
            info.size = 1 << 20 if i < 20 else 0
            t.addfile(info, io.BytesIO(b"x" * info.size))
    r = d.request("POST", f"/v1/sandboxes/{b}/files?path=/tmp/in&op=extract", out.getvalue())
    assert r.status == 413 and "'f0" in r.json["error"]["message"], r
    there = d.exec(b, "ls", "/tmp/in")["stdout"].split()
    assert 1 <= len(there) <= 9 and there == [f"f{i:02}" for i in range(len(there))], there
    d.delete(f"/v1/sandboxes/{b}")


def test_a_folder_of_the_host_is_for_the_tenants_it_is_named_for(tmp_path):
    top = tmp_path
    for p in (top, *top.parents):
        if str(p).startswith("/tmp/pytest"):
            p.chmod(0o755)
    for name in ("all", "one", "other"):
        (top / name / "sub").mkdir(parents=True)
        (top / name / "sub" / "who").write_text(name)
    conf = top / "conf"
    conf.write_text(f"allow_mount = {top}/all\nallow_mount = one:{top}/one\nallow_mount = other:{top}/other\n")

    def made(t, source):
        return t.post("/v1/sandboxes", {"mounts": [{"source": str(source), "target": "/mnt", "read_only": True}]})

    with Daemon(None, "--config", conf) as one:
        t = as_tenant(one, "one")
        for name in ("all", "one"):
            r = made(t, top / name / "sub")
            assert r.status == 201, r
            assert t.post(f"/v1/sandboxes/{r.json['id']}/execs", {"cmd": ["cat", "/mnt/who"]}).json["stdout"] == name
        for path in (top / "other", top / "other" / "sub", f"{top}/one-more", top):
            error(made(t, path), 403, "denied")
        error(made(one, top / "one"), 403, "denied")  # of tenant `default`
        assert json.loads(one.cli("ls", "--json").text) is not None
