"""Hostile archives: nothing is written outside of the folder, and every damage is said."""
import io
import os
import tarfile

import pytest
from cloche import ProtocolError
from cloche._tar import unpack

pytestmark = pytest.mark.each_python
GIB = 1 << 30


def member(name, kind=tarfile.REGTYPE, data=b"", target="", mode=0o644, **more):
    t = tarfile.TarInfo(name)
    t.type, t.linkname, t.mode, t.size = kind, target, mode, len(data)
    t.pax_headers = more
    return t, data


def archive(*members, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for t, data in members:
            tar.addfile(t, io.BytesIO(data))
    return out.getvalue()


def run(tmp_path, data, max_bytes=GIB, max_entries=1000):
    return unpack(io.BytesIO(data), tmp_path / "out", max_bytes, max_entries)


@pytest.mark.parametrize("format", (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
def test_all_formats_are_read(tmp_path, format):
    long = "d/" + "n" * 90 + "/" + "m" * 90
    done = run(tmp_path, archive(member("d", tarfile.DIRTYPE, mode=0o755), member("./d/a", data=b"1"), member(long, data=b"2" * 1000), format=format))
    assert (done.files, done.bytes, done.skipped) == (2, 1001, [])
    assert (tmp_path / "out" / long).read_bytes() == b"2" * 1000


@pytest.mark.parametrize("name", ("../out2", "/etc/x", "a/../../x", "..", "a/b/../../../x"))
def test_names_that_lead_elsewhere_are_skipped(tmp_path, name):
    done = run(tmp_path, archive(member(name, data=b"x"), member("fine", data=b"y")))
    assert [s.name for s in done.skipped] == [name] and done.files == 1
    assert os.listdir(tmp_path) == ["out"] and os.listdir(tmp_path / "out") == ["fine"]


@pytest.mark.parametrize("target", ("/etc/passwd", "../x", "a/../../x", "..", ""))
def test_links_that_lead_elsewhere_are_skipped(tmp_path, target):
    done = run(tmp_path, archive(member("l", tarfile.SYMTYPE, target=target)))
    assert len(done.skipped) == 1 and os.listdir(tmp_path / "out") == []


def test_a_link_is_not_followed_by_what_comes_after_it(tmp_path):
    with pytest.raises(ProtocolError, match="folder"):
        run(tmp_path, archive(member("d", tarfile.DIRTYPE), member("l", tarfile.SYMTYPE, target="d"), member("l/x", data=b"x")))
    assert not (tmp_path / "out" / "d" / "x").exists()


def test_a_link_that_is_here_already_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "out" / "l")
    os.symlink(tmp_path / "elsewhere" / "f", tmp_path / "out" / "f")
    with pytest.raises(ProtocolError):
        run(tmp_path, archive(member("l/x", data=b"x")))
    run(tmp_path, archive(member("f", data=b"y")))
    assert os.listdir(tmp_path / "elsewhere") == [] and not (tmp_path / "out" / "f").is_symlink()


def test_devices_and_set_id_bits_do_not_come(tmp_path):
    done = run(tmp_path, archive(member("dev", tarfile.CHRTYPE), member("pipe", tarfile.FIFOTYPE), member("suid", data=b"x", mode=0o4755)))
    assert [s.name for s in done.skipped] == ["dev", "pipe"] and (tmp_path / "out" / "suid").stat().st_mode & 0o7777 == 0o755


def test_hard_links_only_to_what_was_unpacked(tmp_path):
    done = run(tmp_path, archive(member("a", data=b"x"), member("b", tarfile.LNKTYPE, target="a"), member("c", tarfile.LNKTYPE, target="/etc/passwd")))
    assert done.files == 2 and [s.name for s in done.skipped] == ["c"] and (tmp_path / "out" / "b").read_bytes() == b"x"


def test_bounds_hold(tmp_path):
    with pytest.raises(ProtocolError, match="bytes"):
        run(tmp_path, archive(member("a", data=b"x" * 1000)), max_bytes=999)
    with pytest.raises(ProtocolError, match="entries"):
        run(tmp_path, archive(*(member(f"f{i}") for i in range(5))), max_entries=4)
    with pytest.raises(ProtocolError, match="too large"):
        run(tmp_path, archive(member("a", **{"comment": "x" * (2 << 20)})))


def test_every_cut_and_damage_is_an_error(tmp_path):
    good = archive(member("a", data=b"x" * 700), member("b", data=b"y"))
    for at in (0, 100, 512, 600, 1200, 1536):
        with pytest.raises(ProtocolError):
            run(tmp_path, good[:at])
    for at in (0, 130, 150, 156):
        with pytest.raises(ProtocolError):
            run(tmp_path, good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
    huge = bytearray(archive(member("a")))
    huge[124:136] = b"\x80" + b"\xff" * 11
    huge[148:156] = b"%06o\0 " % (sum(huge[:148]) + 8 * 32 + sum(huge[156:512]))
    with pytest.raises(ProtocolError):
        run(tmp_path, bytes(huge))


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path):
    with pytest.raises(ProtocolError):
        run(tmp_path, archive(member("d", tarfile.DIRTYPE), member("d", data=b"x")))
    with pytest.raises(ProtocolError):
        run(tmp_path, archive(member("f", data=b"x"), member("f/g", data=b"x")))
