"""Commands: results, streams, stdin, terminals, background."""
import hashlib
import re
import signal
import time

import pytest
from cloche import AsyncCloche, ConflictError, InvalidError, NotFoundError, RefusedError, RequestTimeoutError

TRANSPORTS = ("websocket", "sse")


async def text_of(started):
    out = {"stdout": "", "stderr": "", "tty": ""}
    async for chunk in started:
        out[chunk.stream] += chunk.text
    return out


@pytest.mark.each_python
async def test_a_result_has_code_both_streams_verdict_and_usage(sandbox):
    r = await sandbox.exec("echo out; echo err >&2; exit 3")
    assert (r.exit_code, r.stdout, r.stderr, r.verdict.cause, r.ok) == (3, "out\n", "err\n", "exited", False)
    assert r.usage.wall_ms >= 0 and r.started_at <= r.ended_at and not r.truncated.stdout and not r.extra
    assert (await sandbox.exec("true")).ok


async def test_a_list_is_not_seen_by_a_shell_and_options_are_heeded(sandbox):
    assert (await sandbox.exec(["printf", "%s|", "$HOME", "a b", "ü😀"])).stdout == "$HOME|a b|ü😀|"
    r = await sandbox.exec("pwd; echo $X; cat; id -u", cwd="/tmp", env={"X": "y"}, stdin="in\n", user="root")
    assert r.stdout == "/tmp\ny\nin\n0\n"


async def test_bytes_stay_bytes(sandbox):
    r = await sandbox.exec(["printf", "\\377\\000a"], binary=True)
    assert (r.stdout_bytes, r.stderr_bytes) == (b"\xff\x00a", b"")
    assert (await sandbox.exec(["od", "-An", "-tx1"], stdin=b"\xff\x00a")).stdout == " ff 00 61\n"


async def test_a_timeout_ends_it_and_keeps_the_output(sandbox):
    r = await sandbox.exec("echo before; sleep 60", timeout=0.3)
    assert (r.exit_code, r.verdict.cause, r.stdout) == (124, "timeout", "before\n")


@pytest.mark.each_python
async def test_a_program_that_is_missing_is_refused(sandbox):
    with pytest.raises(RefusedError) as e:
        await sandbox.exec(["/no/such/program"])
    assert e.value.status == 422 and e.value.remedy and e.value.request_id
    for transport in TRANSPORTS:
        with pytest.raises(RefusedError):
            await (await sandbox.start(["/no/such/program"], transport=transport)).wait()


@pytest.mark.each_python
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_output_comes_while_it_runs(sandbox, transport):
    wait = "until rm /tmp/go 2>/dev/null; do sleep 0.02; done"
    async with await sandbox.start(f'echo one; echo two >&2; {wait}; printf "gr\\303\\274n"; exit 5', transport=transport) as x:
        out = {"stdout": "", "stderr": ""}
        first = True
        async for chunk in x:
            if first:
                await sandbox.exec(["touch", "/tmp/go"])
            first = False
            out[chunk.stream] += chunk.text
        assert out == {"stdout": "one\ngrün", "stderr": "two\n"}
        assert (await x.wait()).exit_code == 5 and x.result is await x.wait() and x.offset == 9


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_stdin_is_written_and_closed(sandbox, transport):
    async with await sandbox.start(["sort"], stdin=True, transport=transport) as x:
        await x.stdin.write("b\n")
        await x.stdin.write(b"a\n")
        await x.stdin.close()
        assert (await text_of(x))["stdout"] == "a\nb\n"
        assert (await x.wait()).exit_code == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_bytes_of_a_stream_are_exact(sandbox, transport):
    async with await sandbox.start("head -c 3000000 /dev/urandom | tee f | cat", transport=transport) as x:
        data = b"".join([chunk.data async for chunk in x])
    assert len(data) == 3000000 and data == await sandbox.files.read("f")


async def test_output_that_was_not_read_is_in_the_result(sandbox):
    for transport in TRANSPORTS:
        x = await sandbox.start("echo soon; sleep 0.05; echo later; echo bad >&2; exit 2", transport=transport)
        r = await x.wait()
        assert (r.stdout, r.stderr, r.exit_code) == ("soon\nlater\n", "bad\n", 2)
        assert await x.wait() is r
        much = await (await sandbox.start("seq 1 100000", output_limit=4096, transport=transport)).wait()
        assert much.truncated.stdout_dropped == 588895 - 4096
        assert much.stdout.startswith("1\n2\n") and much.stdout.endswith("\n100000\n")


@pytest.mark.each_python
async def test_much_stdin_goes_through_while_output_comes(sandbox):
    block = bytes(range(256)) * 4096
    for transport in TRANSPORTS:
        async with await sandbox.start(["sha256sum"], stdin=True, transport=transport) as x:
            r = await x.communicate([block] * 8)
            assert r.stdout.split()[0] == hashlib.sha256(block * 8).hexdigest()
    async with await sandbox.start("cat | tee >(sha256sum >&2) >/dev/null", stdin=True) as x:
        await x.kill()
    # More than one request may have, by one call; the output is more than what is kept.
    r = await sandbox.exec("tee /tmp/all", stdin=block * 8)
    assert r.truncated.stdout_dropped == 7 << 20 and len(r.stdout_bytes) == 1 << 20
    assert (await sandbox.files.stat("/tmp/all")).size == 8 << 20
    # Written by hand while output comes that is not read: it is kept meanwhile.
    async with await sandbox.start(["cat"], stdin=True) as x:
        await x.stdin.write(block * 6)
        await x.stdin.close()
        assert sum([len(chunk.data) async for chunk in x]) == 6 << 20


async def test_a_command_that_does_not_read_its_stdin_still_has_a_result(sandbox):
    async with await sandbox.start("exit 7", stdin=True) as x:
        assert (await x.communicate(b"x" * (4 << 20))).exit_code == 7


async def test_stdin_that_was_not_asked_for_is_an_error(sandbox):
    async with await sandbox.start(["sleep", "5"]) as x:
        with pytest.raises(InvalidError, match="stdin=True"):
            await x.stdin.write("x")
    with pytest.raises(TypeError, match="rb"):
        async with await sandbox.start(["cat"], stdin=True) as x:
            await x.communicate(["text"])


@pytest.mark.each_python
async def test_a_loop_that_is_left_may_be_continued(sandbox):
    async with await sandbox.start("for i in 1 2 3 4; do echo $i; sleep 0.05; done") as x:
        seen = ""
        async for chunk in x:
            seen += chunk.text
            if "2\n" in seen:
                break
        async for chunk in x:
            seen += chunk.text
        assert seen == "1\n2\n3\n4\n"


@pytest.mark.each_python
async def test_wait_gives_up_and_the_command_continues(sandbox):
    async with await sandbox.start("sleep 0.6; echo done") as x:
        with pytest.raises(RequestTimeoutError) as e:
            await x.wait(timeout=0.05)
        assert isinstance(e.value, TimeoutError)
        assert (await x.wait()).stdout == "done\n"
    y = await sandbox.background("sleep 0.6; echo done")
    with pytest.raises(RequestTimeoutError):
        await y.wait(timeout=0)
    assert (await y.wait(timeout=30)).stdout == "done\n"


async def test_leaving_the_block_ends_it(sandbox):
    async with await sandbox.start("echo up; sleep 73") as x:
        async for chunk in x:
            assert chunk.text == "up\n"
            break
    assert [e.exit_code for e in await sandbox.execs() if e.id == x.id] == [137]


async def test_signals_reach_it(sandbox):
    script = 'trap "echo got it; exit 9" TERM; echo ready; while :; do sleep 0.02; done'
    for number in ("SIGTERM", "TERM", 15, signal.SIGTERM):
        async with await sandbox.start(script) as x:
            out = ""
            async for chunk in x:
                out += chunk.text
                if out == "ready\n":
                    await x.signal(number, scope="process")
            assert out == "ready\ngot it\n" and (await x.wait()).exit_code == 9


@pytest.mark.each_python
async def test_background_is_listed_attached_and_has_its_output(sandbox):
    x = await sandbox.background("for i in 1 2 3 4 5; do echo line $i; sleep 0.05; done; echo bad >&2; exit 4")
    assert any(e.id == x.id and e.background for e in await sandbox.execs())
    again = await sandbox.attach(x.id)
    assert (await text_of(again))["stdout"] == "line 1\nline 2\nline 3\nline 4\nline 5\n"
    r = await x.wait()
    assert (r.exit_code, r.stderr) == (4, "bad\n")
    assert (await x.status()).exit_code == 4
    assert (await x.output(offset=7)).text == "line 2\nline 3\nline 4\nline 5\n"
    assert (await x.output(offset=7, limit=6)).data == b"line 2"
    assert (await x.output("stderr")).data == b"bad\n"
    with pytest.raises(NotFoundError):
        await sandbox.attach("nosuchexec")


async def test_attach_continues_from_an_offset(sandbox):
    x = await sandbox.background("for i in 1 2 3 4 5 6; do echo $i; sleep 0.05; done")
    first = await sandbox.attach(x.id)
    seen = ""
    async for chunk in first:
        seen += chunk.text
        if "2\n" in seen:
            break
    time.sleep(0.1)  # what comes and is not taken belongs to the next one
    await first.detach()
    rest = await sandbox.attach(x.id, offset=first.offset)
    assert seen + (await text_of(rest))["stdout"] == "1\n2\n3\n4\n5\n6\n" and rest.offset == 12


async def read_until(pty, pattern):
    seen = ""
    async for chunk in pty:
        seen += chunk.text
        if re.search(pattern, seen):
            return seen
    raise AssertionError(f"it ended after {seen!r}")


@pytest.mark.each_python
async def test_a_terminal_has_size_keyboard_and_can_be_attached_to_again(sandbox):
    async with await sandbox.pty(["/bin/sh", "-i"], rows=30, cols=100, env={"PS1": "$ "}) as pty:
        await pty.stdin.write('stty size; echo d""one\n')
        assert "30 100" in await read_until(pty, r"\bdone")
        await pty.resize(40, 120)
        await pty.stdin.write('stty size; echo a""gain\n')
        assert "40 120" in await read_until(pty, r"\bagain")
        await pty.detach()
        back = await sandbox.attach(pty.id, offset=pty.offset)
        assert back.tty
        await back.stdin.write('echo st""ill here\n')
        await read_until(back, "still here")
        await back.stdin.write("exit 6\n")
        async for _ in back:
            pass
        assert (await back.wait()).exit_code == 6
    with pytest.raises(InvalidError, match="WebSocket"):
        await sandbox.start("true", tty=True, transport="sse")


async def test_output_that_was_not_kept_is_a_gap(sandbox):
    x = await sandbox.background("seq 1 400000")
    await x.wait()
    total, half = 2688895, 512 * 1024
    whole = await x.output()
    assert len(whole.data) == 2 * half
    assert [(g.offset, g.lost) for g in whole.gaps] == [(total - half, total - 2 * half)]
    assert (await x.output(offset=total - 7)).gaps == []
    again = await sandbox.attach(x.id)
    gaps = [chunk.gap async for chunk in again if chunk.gap]
    assert [(g.offset, g.lost) for g in gaps] == [(total - half, total - 2 * half)] and again.offset == total


async def test_output_is_followed_from_the_spool(sandbox):
    x = await sandbox.background("for i in 1 2 3; do echo $i; sleep 0.05; done")
    async with x.output_stream(follow=True) as chunks:
        assert "".join([chunk.text async for chunk in chunks]) == "1\n2\n3\n"


async def test_a_slow_reader_slows_the_command(sandbox):
    size = 64 << 20
    async with await sandbox.start(f"head -c {size} /dev/zero; date +%s.%N >/tmp/end", timeout=60) as x:
        time.sleep(0.8)
        assert not await sandbox.files.exists("/tmp/end")
        assert sum([len(chunk.data) async for chunk in x]) == size


async def test_code_without_warm_python_is_a_conflict(sandbox):
    with pytest.raises(ConflictError):
        await sandbox.exec({"code": "print(1)"})


async def test_arguments_that_cannot_be_sent_are_refused_at_once(sandbox):
    with pytest.raises(InvalidError, match="bytes"):
        await sandbox.exec(b"true")
    with pytest.raises(InvalidError, match="JSON"):
        await sandbox.exec(["echo", b"x"])
    with pytest.raises(InvalidError):
        await sandbox.exec(["echo", "\udcff"])
    with pytest.raises(InvalidError):
        await sandbox.exec(["echo", "a\0b"])
    with pytest.raises(InvalidError, match="no_such_option"):
        await sandbox.exec("true", no_such_option=1)


assert AsyncCloche
