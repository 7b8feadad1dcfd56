"""What goes wrong: no daemon, servers that break off or speak nonsense, cancelled tasks, threads, a daemon that is killed."""
import asyncio
import gc
import socket
import ssl
import subprocess
import threading
import time

import cloche
import pytest
from cloche import AsyncCloche, Cloche, ConnectionFailedError, ProtocolError, RequestTimeoutError
from conftest import Daemon

FORMS = ("sync", "async")


class Server:
    """A server that answers every connection with the same bytes, and then closes it, or is silent."""

    def __init__(self, answer, silent=False):
        self.answer, self.silent, self.heard, self.after = answer, silent, [], b""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.socket.getsockname()[1]
        self.kept = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                c, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        heard = b""
        while b"\r\n\r\n" not in heard:
            data = c.recv(65536)
            if not data:
                return
            heard += data
        self.heard.append(heard)
        c.sendall(self.answer(heard) if callable(self.answer) else self.answer)
        if self.silent:
            self.kept.append(c)
            return
        c.shutdown(socket.SHUT_WR)
        data = c.recv(65536)
        while data:
            self.after += data
            data = c.recv(65536)
        c.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        for c in self.kept:
            c.close()


def ask(form, url, what, **options):
    """The same question by each form of the client: `what` gets a client and gives a value or something to be awaited."""
    options = {"retries": 0, "timeout": 5.0, **options}
    if form == "sync":
        with Cloche(url, "x", **options) as c:
            return what(c)

    async def run():
        async with AsyncCloche(url, "x", **options) as c:
            return await what(c)

    return asyncio.run(run())


@pytest.mark.parametrize("form", FORMS)
def test_no_daemon_is_said_with_what_to_do(form, tmp_path):
    for url in ("http://127.0.0.1:1", f"unix:{tmp_path}/none.sock", "http://no-such-host.invalid:1"):
        begin = time.monotonic()
        with pytest.raises(ConnectionFailedError, match="cloche serve") as e:
            ask(form, url, lambda c: c.info(), retries=2, retry_delay=0.01)
        assert isinstance(e.value, ConnectionError) and e.value.status == 0 and time.monotonic() - begin < 10


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "answer",
    (
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n',
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    ),
)
def test_an_answer_that_breaks_off_is_a_connection_error(form, answer):
    with Server(answer) as s, pytest.raises(ConnectionFailedError):
        ask(form, s.url, lambda c: c.info())


@pytest.mark.parametrize("form", FORMS)
def test_calls_are_repeated_only_if_they_may_happen_twice(form):
    with Server(b"") as s:
        for what, times in ((lambda c: c.info(), 3), (lambda c: c.sandboxes.create(), 3), (lambda c: c.tokens.create(), 1)):
            del s.heard[:]
            with pytest.raises(ConnectionFailedError):
                ask(form, s.url, what, retries=2, retry_delay=0.001)
            assert len(s.heard) == times
        assert len({h.lower().split(b"idempotency-key: ")[-1] for h in s.heard}) == 1
    busy = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with Server(busy) as s:
        with pytest.raises(cloche.ExhaustedError) as e:
            ask(form, s.url, lambda c: c.tokens.create(), retries=2, retry_delay=0.001)
        assert len(s.heard) == 3 and e.value.retry_after == 0


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_json_or_of_another_kind_is_said(form):
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    with Server(head + b"<html>") as s, pytest.raises(ProtocolError, match="JSON"):
        ask(form, s.url, lambda c: c.info())
    with Server(head + b"[1]") as s, pytest.raises(ProtocolError):
        ask(form, s.url, lambda c: c.info())
    with Server(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n<html>") as s, pytest.raises(cloche.LostError, match="502"):
        ask(form, s.url, lambda c: c.info())
    with Server(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\n\r\n") as s:
        ask(form, s.url, lambda c: c.sandboxes.delete("x"))
        assert len(s.heard) == 1  # the token goes nowhere else


@pytest.mark.parametrize("form", FORMS)
def test_silence_is_a_timeout(form):
    for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"):
        with Server(answer, silent=True) as s:
            begin = time.monotonic()
            with pytest.raises(RequestTimeoutError) as e:
                ask(form, s.url, lambda c: c.info(), timeout=0.2)
            assert isinstance(e.value, TimeoutError) and time.monotonic() - begin < 3


SANDBOX = b'{"id":"s","name":"s","state":"running"}'


def stream_server(stream, silent=False):
    """Knows one sandbox, and answers all that begins a stream with `stream`."""

    def answer(heard):
        if b"/execs" in heard.split(b"\r\n")[0]:
            if b"ec-websocket-key" in heard:
                import base64
                import hashlib

                key = [x.split(b": ")[1] for x in heard.split(b"\r\n") if x.lower().startswith(b"sec-websocket-key")][0]
                accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
                return b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n" + stream
            return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + stream
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(SANDBOX) + SANDBOX

    return Server(answer, silent)


def frame(kind, data):
    return bytes([0x80 | kind, len(data)]) + data


STARTED = frame(1, b'{"type":"started","id":"x"}')


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "transport, stream, error",
    (
        ("websocket", b"", ConnectionFailedError),
        ("websocket", STARTED + frame(2, b"\1some"), ConnectionFailedError),
        ("websocket", STARTED + frame(8, b"\x03\xf0bye"), ConnectionFailedError),
        ("websocket", STARTED + b"\x82\x7e\x10", ConnectionFailedError),
        ("websocket", STARTED + b"\xff\xff\xff", ProtocolError),
        ("websocket", STARTED + frame(1, b"no json"), ProtocolError),
        ("websocket", STARTED + frame(1, b'{"type":"error","error":{"code":"lost","message":"m"}}'), cloche.LostError),
        ("sse", b"", ConnectionFailedError),
        ("sse", b'event: started\ndata: {"id":"x"}\n\nevent: stdout\ndata: {"data":"x"}\n\n', ConnectionFailedError),
        ("sse", b'event: started\ndata: {"id":"x"}\n\nevent: stdout\ndata: x\n\n', ProtocolError),
        ("sse", b"event: other\ndata: {}\n\n", ProtocolError),
        ("sse", b'event: started\ndata: {"id":"x"}\n\nevent: error\ndata: {"code":"lost","message":"m"}\n\n', cloche.LostError),
    ),
)
def test_a_stream_that_breaks_off_is_an_error_of_its_reader(form, transport, stream, error):
    def read(c):
        with c.sandboxes.get("s").start("x", transport=transport) as x:
            return [chunk.text for chunk in x]

    async def read_async(c):
        s = await c.sandboxes.get("s")
        return [chunk.text async for chunk in await s.start("x", transport=transport)]

    with stream_server(stream) as server, pytest.raises(error):
        ask(form, server.url, read if form == "sync" else read_async)


@pytest.mark.each_python
def test_a_ping_is_answered_while_the_command_is_followed():
    with stream_server(STARTED + frame(9, b"are you there") + frame(2, b"\1x"), silent=True) as server:
        with Cloche(server.url, "x", retries=0) as c:
            x = c.sandboxes.get("s").start("x")
            assert next(x).text == "x"
            heard = b""
            server.kept[-1].settimeout(10)
            while True:
                heard += server.kept[-1].recv(65536)
                # A client's frames are masked: the same bytes with the mask taken off.
                found, at = [], 0
                while at + 6 <= len(heard):
                    n = heard[at + 1] & 127
                    head = 2 if n < 126 else 4
                    n = n if n < 126 else int.from_bytes(heard[at + 2 : at + 4], "big")
                    key, body = heard[at + head : at + head + 4], heard[at + head + 4 : at + head + 4 + n]
                    found.append((heard[at] & 15, bytes(b ^ key[i % 4] for i, b in enumerate(body))))
                    at += head + 4 + n
                if (10, b"are you there") in found:
                    break


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_does_not_start_the_command_is_a_timeout(form):
    async def start(c):
        return await (await c.sandboxes.get("s")).start("x")

    with stream_server(b"", silent=True) as server, pytest.raises(RequestTimeoutError):
        ask(form, server.url, start if form == "async" else lambda c: c.sandboxes.get("s").start("x"), timeout=0.3)


@pytest.mark.parametrize("form", FORMS)
def test_a_way_without_websockets_is_said(form):
    async def start(c):
        return await (await c.sandboxes.get("s")).start("x")

    def answer(heard):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(SANDBOX) + SANDBOX

    with Server(answer) as server, pytest.raises(cloche.UnsupportedError, match="sse"):
        ask(form, server.url, start if form == "async" else lambda c: c.sandboxes.get("s").start("x"))


def test_a_client_that_is_closed_says_so(daemon):
    c = Cloche(daemon.url, daemon.token)
    c.close()
    with pytest.raises(ConnectionFailedError, match="closed"):
        c.info()


# --- the real daemon ---


def test_a_daemon_that_is_killed_breaks_the_stream_and_loses_no_output(tmp_path):
    with Daemon(None, "--stop-sandboxes") as d, Cloche(d.url, d.token, retries=8) as c:
        s = c.sandboxes.create()
        x = s.background("for i in $(seq 1 40); do echo $i; sleep 0.05; done")
        seen, killed = "", False
        follower = s.attach(x.id)
        with pytest.raises(ConnectionFailedError, match="attach"):
            for chunk in follower:
                seen += chunk.text
                if "3\n" in seen and not killed:
                    d.kill9("api")
                    killed = True
        assert "40" not in seen
        rest = s.attach(x.id, offset=follower.offset)
        seen += "".join(chunk.text for chunk in rest)
        assert seen == "".join(f"{i}\n" for i in range(1, 41))
        assert x.wait().ok
        assert s.exec("echo alive").stdout == "alive\n"


def certificate(folder):
    key, cert = folder / "key", folder / "cert"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    return key, cert


class OneCall(ssl.SSLSocket):
    """Counts calls that begin while another one is inside: OpenSSL allows one at a time on a connection."""

    overlaps = calls = 0
    inside = False

    def _alone(self, call, *args):
        OneCall.calls += 1
        OneCall.overlaps += self.inside
        self.inside = True
        try:
            return call(*args)
        finally:
            self.inside = False

    def recv(self, *args):
        return self._alone(super().recv, *args)

    def send(self, *args):
        return self._alone(super().send, *args)


@pytest.mark.each_python
def test_tls_is_verified_and_carries_websockets(tmp_path):
    key, cert = certificate(tmp_path)
    counted = ssl.create_default_context(cafile=cert)
    counted.sslsocket_class = OneCall
    config = tmp_path / "config"
    config.write_text(f"tls_cert = {cert}\ntls_key = {key}\n")
    with Daemon(None, "--stop-sandboxes", "--config", config) as d:
        assert d.url.startswith("https:")
        with pytest.raises(ConnectionFailedError, match="verify="):
            Cloche(d.url, d.token, retries=0).info()
        for verify in (str(cert), counted, False):
            with Cloche(d.url, d.token, verify=verify) as c, c.sandboxes.create() as s:
                data = bytes(range(256)) * 8192
                with s.start(["cat"], stdin=True) as x:
                    out = []
                    reader = threading.Thread(target=lambda: out.extend(chunk.data for chunk in x))
                    reader.start()
                    for at in range(0, len(data), 100000):
                        x.stdin.write(data[at : at + 100000])
                    x.stdin.close()
                    reader.join(30)
                    assert b"".join(out) == data and x.wait().ok
        assert OneCall.calls > 0 and OneCall.overlaps == 0

        async def run():
            async with AsyncCloche(d.url, d.token, verify=str(cert)) as c:
                async with await c.sandboxes.create() as s, await s.start(["wc", "-c"], stdin=True) as x:
                    return (await x.communicate(b"x" * 3000000)).stdout

        assert asyncio.run(run()).strip() == "3000000"


def test_a_silent_server_is_a_timeout_over_tls(tmp_path):
    key, cert = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with socket.create_server(("127.0.0.1", 0)) as plain, context.wrap_socket(plain, server_side=True) as server:
        kept = []
        threading.Thread(target=lambda: kept.append(server.accept()), daemon=True).start()
        with Cloche("https://127.0.0.1:%d" % server.getsockname()[1], "t", verify=str(cert), timeout=0.3, retries=0) as c:
            with pytest.raises(RequestTimeoutError):
                c.info()
        for connection, _ in kept:
            connection.close()


# --- threads ---


def readers():
    return [t for t in threading.enumerate() if t.name == "cloche-reader"]


def gone(what, seconds=10):
    end = time.monotonic() + seconds
    while what():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


@pytest.fixture
def sandbox(daemon):
    with Cloche(daemon.url, daemon.token) as c, c.sandboxes.create(memory="256M") as s:
        yield s


def test_many_threads_share_a_client(sandbox):
    out = {}

    def one(i):
        out[i] = sandbox.exec(["echo", str(i)]).stdout

    threads = [threading.Thread(target=one, args=(i,)) for i in range(30)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == {i: f"{i}\n" for i in range(30)}


def test_one_thread_reads_while_others_write_and_wait(sandbox):
    with sandbox.start(["cat"], stdin=True) as x:
        out, results = [], []
        threads = [threading.Thread(target=lambda: out.extend(chunk.data for chunk in x))]
        threads[0].start()
        x.stdin.write("begin\n")
        gone(lambda: not out)
        threads.append(threading.Thread(target=lambda: results.append(x.wait())))
        threads[1].start()
        for _ in range(100):
            x.stdin.write(b"x" * 99999 + b"\n")
        x.stdin.close()
        for t in threads:
            t.join(30)
        assert sum(map(len, out)) == 6 + 100 * 100000 and results[0].ok


def test_more_output_than_can_be_kept_while_stdin_is_written_is_an_error(sandbox, monkeypatch):
    monkeypatch.setattr(cloche._sync.channel, "MAX_AHEAD", 4 << 20)
    with sandbox.start(["cat"], stdin=True) as x:
        with pytest.raises(cloche.ClocheError, match="communicate") as e:
            for _ in range(64):
                x.stdin.write(b"x" * (1 << 20))
        assert e.value.code == "unread"


@pytest.mark.each_python
def test_a_closed_client_wakes_its_readers(daemon, sandbox):
    c = Cloche(daemon.url, daemon.token)
    x = c.sandboxes.get(sandbox.id).start("sleep 60")
    failed = []

    def read():
        try:
            x.wait()
        except cloche.ClocheError as e:
            failed.append(e)

    t = threading.Thread(target=read)
    t.start()
    gone(lambda: not readers())
    c.close()
    t.join(10)
    assert not t.is_alive() and failed
    gone(readers)


def test_an_exec_that_is_forgotten_leaves_no_thread_and_runs_on(sandbox):
    x = sandbox.start("sleep 0.5; touch /tmp/ran")
    assert readers()
    del x
    gc.collect()
    gone(readers)
    gone(lambda: not sandbox.files.exists("/tmp/ran"))


def test_a_stream_that_is_left_gives_its_connection_back(sandbox):
    for _ in range(3):
        for _ in sandbox.events(last_event_id="1"):
            break
    gc.collect()
    assert sandbox.exec("true").ok


# --- tasks ---


def in_loop(daemon, what):
    async def run():
        async with AsyncCloche(daemon.url, daemon.token) as c, await c.sandboxes.create(memory="256M") as s:
            await asyncio.wait_for(what(s), 60)

    asyncio.run(run())


async def no_sleep(s, seconds=10):
    end = time.monotonic() + seconds
    while (await s.exec("pgrep -x sleep")).ok:
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def cancelled(task, after=0.3):
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.each_python
def test_a_cancelled_exec_leaves_a_client_that_works(daemon):
    async def what(s):
        await cancelled(asyncio.ensure_future(s.exec("sleep 1")))
        assert (await s.exec("echo fine")).stdout == "fine\n"
        assert (await s.exec("pgrep -x sleep")).ok  # as documented: it continues
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(s.exec("sleep 61", kill_on_cancel=True), 0.3)
        await asyncio.sleep(1)
        await no_sleep(s)
        assert (await s.exec("echo out; exit 3", kill_on_cancel=True, stdin="x")).exit_code == 3

    in_loop(daemon, what)


@pytest.mark.each_python
def test_a_cancelled_follower_ends_its_command_with_its_block(daemon):
    async def follow(s):
        async with await s.start("echo up; sleep 61") as x:
            async for _ in x:
                pass

    async def wait(s):
        async with await s.start("sleep 61") as x:
            await x.wait()

    async def talk(s):
        async with await s.start("cat; sleep 61", stdin=True) as x:
            await x.communicate(b"x" * 5000000)

    async def what(s):
        for way in (follow, wait, talk):
            await cancelled(asyncio.ensure_future(way(s)))
            await no_sleep(s)
        assert [t for t in asyncio.all_tasks() if "_read" in repr(t.get_coro())] == []

    in_loop(daemon, what)


@pytest.mark.each_python
def test_cancelled_transfers_leave_nothing(daemon, tmp_path):
    async def forever():
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0.01)

    async def what(s):
        await cancelled(asyncio.ensure_future(s.files.write("endless", forever())))
        await s.exec("head -c 200000000 /dev/zero > big", timeout=60)
        await cancelled(asyncio.ensure_future(s.files.download("big", tmp_path / "down")), 0.05)
        events = s.events()
        await cancelled(asyncio.ensure_future(events.__anext__()))
        assert (await s.exec("ls")).stdout == "big\n"

    in_loop(daemon, what)


def test_a_hundred_at_once(daemon):
    async def what(s):
        out = await asyncio.gather(*(s.exec(["echo", str(i)]) for i in range(100)))
        assert [r.stdout for r in out] == [f"{i}\n" for i in range(100)]
        many = await asyncio.gather(*(s.start("echo x; cat", stdin=True) for _ in range(30)))
        done = await asyncio.gather(*(x.communicate("y") for x in many))
        assert {r.stdout for r in done} == {"x\ny"}

    in_loop(daemon, what)
