"""Files and trees."""
import hashlib
import os
import pathlib
import stat

import pytest
from cloche import AsyncCloche, ClocheError, ConflictError, InvalidError, NotFoundError, RefusedError

BLOCK = os.urandom(1 << 20)


@pytest.mark.each_python
async def test_files_are_written_read_described_listed_moved_and_removed(sandbox):
    files = sandbox.files
    st = await files.write("a/b/hello.txt", "grüß dich\n", mode=0o640)
    assert (st.size, st.mode, st.name, st.is_dir) == (12, "0640", "hello.txt", False)
    assert await files.read_text("a/b/hello.txt") == "grüß dich\n"
    assert (await sandbox.exec("cat a/b/hello.txt")).stdout == "grüß dich\n"
    await files.write("a/b/hello.txt", bytearray(b"more"), append=True)
    assert await files.read("a/b/hello.txt", offset=12) == b"more"
    assert await files.read_text("a/b/hello.txt", offset=7, length=4) == "dich"
    assert await files.read("a/b/hello.txt", length=0) == b""
    with pytest.raises(ConflictError):
        await files.write("a/b/hello.txt", b"other", exclusive=True)
    assert (await files.write("a/b/new.txt", b"new", exclusive=True)).size == 3
    await files.remove("a/b/new.txt")
    await files.mkdir("a/c/d", mode=0o700)
    assert (await files.stat("a/c/d")).is_dir
    found = await files.list("a", depth=2)
    assert sorted(e.name for e in found) == ["b", "c", "d", "hello.txt"] and not found.truncated
    await files.move("a/b/hello.txt", pathlib.PurePosixPath("a/moved"))
    assert not await files.exists("a/b/hello.txt") and await files.exists("a/moved")
    await files.remove("a/moved")
    with pytest.raises(ClocheError):
        await files.remove("a")
    await files.remove("a", recursive=True)
    with pytest.raises(NotFoundError):
        await files.read("a/moved")
    with pytest.raises(RefusedError):
        await files.read("/tmp")


async def test_names_may_have_anything_in_them(sandbox):
    for name in ("a b+c&d=e?f#g%20", "ü😀", "quote'\"\\", "line\nbreak", b"\xc3\xa4 as bytes"):
        path = b"odd/" + name if isinstance(name, bytes) else "odd/" + name
        await sandbox.files.write(path, repr(name))
        assert await sandbox.files.read_text(path) == repr(name)
    assert len(await sandbox.files.list("odd")) == 5
    assert (await sandbox.files.stat("odd/ä as bytes")).size > 0
    for bad in (b"not-utf-8-\xff", "surrogate-\udcff", ""):
        with pytest.raises(InvalidError):
            await sandbox.files.write(bad, "x")
    with pytest.raises(ClocheError):
        await sandbox.files.read("nul\0in it")


async def test_large_files_stream_both_ways(sandbox, tmp_path):
    want = hashlib.sha256(BLOCK * 64).hexdigest()
    assert (await sandbox.files.write("large", (BLOCK for _ in range(64)))).size == 64 << 20
    back = hashlib.sha256()
    async with await sandbox.files.stream("large") as pieces:
        async for piece in pieces:
            back.update(piece)
    assert back.hexdigest() == want
    (tmp_path / "large").write_bytes(BLOCK * 8)
    with open(tmp_path / "large", "rb") as f:
        assert (await sandbox.files.write("again", f)).size == 8 << 20
    assert (await sandbox.exec("cmp -n 8388608 large again")).ok
    assert await (await sandbox.files.stream("large", offset=5, length=7)).read_all() == BLOCK[5:12]
    async with await sandbox.files.stream("large"):
        pass  # left without a look at it: the connection ends
    assert await sandbox.files.read("large", length=3) == BLOCK[:3]
    await sandbox.files.remove("large")
    await sandbox.files.remove("again")


async def test_a_source_that_fails_leaves_no_file(sandbox, tmp_path):
    def source():
        yield BLOCK
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        await sandbox.files.write("half", source())
    with pytest.raises(TypeError, match="rb"):
        await sandbox.files.write("half", ["text"])
    (tmp_path / "t").write_text("x")
    with open(tmp_path / "t") as f:
        with pytest.raises(TypeError, match="rb"):
            await sandbox.files.write("half", f)
    with pytest.raises(TypeError, match="int"):
        await sandbox.files.write("half", 7)
    assert not await sandbox.files.exists("half")
    assert (await sandbox.exec("ls -A")).stdout == ""


def tree(folder):
    found = {}
    for at, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(at, name)
            s = os.lstat(path)
            kind = stat.S_IFMT(s.st_mode)
            what = os.readlink(path) if kind == stat.S_IFLNK else open(path, "rb").read() if kind == stat.S_IFREG else None
            found[os.path.relpath(path, os.fsencode(folder))] = (kind, what)
    return found


@pytest.mark.each_python
async def test_folders_go_up_and_come_down(sandbox, tmp_path):
    up = tmp_path / "up"
    (up / "src" / "deep" / ("x" * 120)).mkdir(parents=True)
    (up / "src" / "main.py").write_text('print("hi")\n')
    (up / "src" / "deep" / "data").write_bytes(BLOCK[:300000])
    (up / "src" / "deep" / ("x" * 120) / "ü😀").write_text("long")
    with open(os.path.join(os.fsencode(up), b"bytes-\xff"), "wb") as f:
        f.write(b"no text")
    (up / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (up / "run.sh").chmod(0o755)
    os.symlink("src/main.py", up / "link")
    os.mkfifo(up / "pipe")
    (up / "secret.env").write_text("x")
    done = await sandbox.files.upload(up, "project", keep=lambda name: not name.endswith(".env"))
    assert done.skipped == []
    r = await sandbox.exec("./project/run.sh; cat project/link; ls -b project")
    assert r.stdout == 'ran\nprint("hi")\nbytes-\\377\nlink\nrun.sh\nsrc\n'
    down = await sandbox.files.download("project", tmp_path / "down")
    assert down.skipped == [] and down.files == 6
    base = tmp_path / "down" / "project"
    base = base if base.exists() else tmp_path / "down"
    want = tree(up)
    for name in (b"pipe", b"secret.env"):
        del want[name]
    assert tree(base) == want
    assert stat.S_IMODE((base / "run.sh").stat().st_mode) == 0o755
    await sandbox.files.upload(str(up / "run.sh"), "single.sh")
    assert (await sandbox.exec("./single.sh")).stdout == "ran\n"
    with pytest.raises(InvalidError):
        await sandbox.files.upload(up / "pipe", "x")
    with pytest.raises(FileNotFoundError):
        await sandbox.files.upload(up / "missing", "x")
    with pytest.raises(NotFoundError):
        await sandbox.files.download("missing", tmp_path / "none")


async def test_what_a_sandbox_plants_in_a_download_stays_in_the_folder(sandbox, tmp_path):
    await sandbox.exec("mkdir -p trap && cd trap && ln -s /etc/passwd abs && ln -s ../../.. up && echo ok > file && mkfifo pipe")
    done = await sandbox.files.download("trap", tmp_path / "out")
    assert len(done.skipped) >= 2 and done.skipped_total == len(done.skipped)
    found = tree(tmp_path / "out")
    assert not any(kind == stat.S_IFLNK for kind, _ in found.values())
    assert b"ok\n" in [what for _, what in found.values()]


async def test_archives_are_streams(sandbox):
    await sandbox.files.write("pack/one", "1")
    for format in ("tar", "tar.zst"):
        async with await sandbox.files.archive("pack", format=format) as pieces:
            data = await pieces.read_all()
        assert (await sandbox.files.extract(f"out-{format}", data)).files == 1
        r = await sandbox.exec(f"find out-{format} -type f -exec cat {{}} +")
        assert r.stdout == "1"
    with pytest.raises(ClocheError):
        await sandbox.files.extract("bad", b"this is no archive" * 100)


async def test_changes_are_seen_as_they_happen(sandbox):
    await sandbox.files.mkdir("watched")
    async with await sandbox.files.watch("watched") as events:
        await sandbox.exec("echo 1 > watched/new; mv watched/new watched/old; rm watched/old")
        seen = []
        async for e in events:
            seen.append(e.type)
            if e.type == "removed":
                break
    assert seen[0] == "created" and "moved" in seen


assert AsyncCloche
