"""What an answer over HTTP/1.1 says, whole and piece by piece, and what is none."""
import asyncio
import gc
import itertools
import random
import socket
import threading
import time

import httpcore
import pytest
from cloche import AsyncCloche, Cloche, ClocheError, ConnectionFailedError, ProtocolError
from cloche._http1 import BodyParser, request_bytes, take_head
from test_bad import FORMS, Server, ask


def parse(data, size):
    """(status, headers, body, what is left) of bytes that come in pieces of that size."""
    have, head, parts = bytearray(), None, []
    for at in itertools.count(0, size):
        piece = data[at : at + size]
        if not piece and head is not None:
            body.end()
        have += piece
        while head is None:
            head = take_head(have)
            if head is None:
                break
            if head.status < 200:
                head = None
                continue
            body = BodyParser(head)
        if head is not None:
            parts += body.feed(have)
            if body.over:
                return head.status, dict(head.headers), b"".join(parts), bytes(have) + data[at + size :], head.keep
        if not piece:
            raise httpcore.RemoteProtocolError("the end")


@pytest.mark.parametrize("size", (1, 2, 7, 1000))
@pytest.mark.parametrize(
    "data, want",
    (
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A: b \r\nx-a: c\r\n\r\nabc", (200, {"content-length": "3", "x-a": "b, c"}, b"abc", b"", True)),
        (b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", (200, {"content-length": "0"}, b"", b"", True)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n", (200, {"transfer-encoding": "chunked"}, b"abc0123456789", b"", True)),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", (204, {"content-length": "5"}, b"", b"", True)),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\na", (200, {"connection": "Close", "content-length": "1"}, b"a", b"", False)),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", (200, {}, b"to the end", b"", False)),
        (b"HTTP/1.1 200\n\nto the end", (200, {}, b"to the end", b"", False)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nabEXTRA", (200, {"content-length": "2, 2"}, b"ab", b"EXTRA", True)),
    ),
)
def test_answers(data, want, size):
    assert parse(data, size) == want


@pytest.mark.parametrize("size", (1, 1000))
@pytest.mark.parametrize(
    "data",
    (
        b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20x\r\n\r\n", b"HTTP/1.1 0200 OK\r\n\r\n", b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 5000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000,
    ),
    ids=range(18),
)  # fmt: skip
def test_what_is_no_answer(data, size):
    with pytest.raises(httpcore.RemoteProtocolError):
        parse(data, size)


def test_garbage_ends_with_one_kind_of_error():
    random.seed(7)
    base = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    for _ in range(3000):
        data = bytearray(base)
        for _ in range(random.randrange(1, 6)):
            data[random.randrange(len(data))] = random.choice(b"\r\n\0:; 09aZ\xff")
        try:
            parse(bytes(data), random.choice((1, 5, 1000)))
        except httpcore.RemoteProtocolError:
            pass


def test_requests():
    assert request_bytes("POST", "/v1/x?y=1", "h:1", {"a": "b"}, b"{}") == b"POST /v1/x?y=1 HTTP/1.1\r\nHost: h:1\r\na: b\r\nContent-Length: 2\r\n\r\n{}"
    assert request_bytes("GET", "/", "h", {}, None) == b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    for target, headers in (("/\r\nX: y", {}), ("/", {"a": "b\nc: d"}), ("/", {"a\r\nb": "c"}), ("/", {"a": "\0"}), ("/\u20ac", {})):
        with pytest.raises(httpcore.LocalProtocolError):
            request_bytes("GET", target, "h", headers, None)


@pytest.mark.parametrize("form", FORMS)
def test_a_token_with_a_line_end_adds_no_header(form):
    with Server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as s:
        for token in ("a\r\nX-Injected: 1", "a\nb"):
            with pytest.raises(ClocheError):
                if form == "sync":
                    Cloche(s.url, token, retries=0).info()
                else:
                    asyncio.run(AsyncCloche(s.url, token, retries=0).info())
        assert not s.heard


OBJECTS = (b"[]", b"5", b"null", b'"x"', b"{}", b'{"id": 5}', b'{"sandboxes": 5, "tokens": {}, "contexts": "x", "execs": 7, "entries": 1}',
           b'{"sandboxes": [5], "contexts": [[]], "entries": [null]}', b"[" * 200000, b'{"a": ' + b"1" * 5000 + b"}", b"\xff\xfe", b"{", b"NaN",
           b'{"id": "s", "name": "s", "verdict": 3, "usage": "x", "state": "ended", "started_at": 8, "results": 9}')  # fmt: skip
CALLS = (
    lambda c: c.info(), lambda c: c.sandboxes.create(), lambda c: c.sandboxes.get("s"), lambda c: c.tokens.list(), lambda c: c.images.list(),
    lambda c: c.sandboxes.delete("s"), lambda c: c.run("1"), lambda c: c.templates.list(), lambda c: c.audit.verify(),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", (200, 404))
def test_objects_that_make_no_sense_are_errors_of_this_package(form, status):
    """Or values, where what came is close enough; never a KeyError or a RecursionError."""
    for body in OBJECTS:
        head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
        with Server(head + body) as s:
            for call in CALLS:
                try:
                    ask(form, s.url, call)
                except ClocheError:
                    pass


def test_an_integer_of_thousands_of_digits_does_not_lose_the_answer():
    body = b'{"version": "1", "new": ' + b"7" * 5000 + b"}"
    with Server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body) as s:
        assert ask("sync", s.url, lambda c: c.info()).extra["new"] == float("inf")


@pytest.mark.parametrize("form", FORMS)
def test_a_gigabyte_where_an_object_should_be_is_refused_with_bounded_memory(form, monkeypatch):
    import cloche._async.transport
    import cloche._sync.transport

    for module in (cloche._async.transport, cloche._sync.transport):
        monkeypatch.setattr(module, "MAX_JSON", 4 << 20)
    sent = []

    def flood(server):
        c, _ = server.accept()
        c.recv(65536)
        try:
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
            for _ in range(1024):
                c.sendall(bytes(1 << 20))
                sent.append(1)
        except OSError:
            c.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=flood, args=(server,), daemon=True).start()
        with pytest.raises(ProtocolError, match="more than"):
            ask(form, "http://127.0.0.1:%d" % server.getsockname()[1], lambda c: c.info())
    assert len(sent) < 64


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_dribbles_is_read_and_one_that_stops_is_a_timeout(form):
    def slowly(server, stop):
        c, _ = server.accept()
        c.recv(65536)
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + b'{"version": "x"}'[: 10 if stop else 16]:
            c.sendall(bytes([byte]))
            time.sleep(0.003)
        time.sleep(2 if stop else 0)
        c.close()

    for stop in (False, True):
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=slowly, args=(server, stop), daemon=True).start()
            url = "http://127.0.0.1:%d" % server.getsockname()[1]
            if stop:
                with pytest.raises(TimeoutError):
                    ask(form, url, lambda c: c.info(), timeout=0.5)
            else:
                assert ask(form, url, lambda c: c.info(), timeout=0.5).version == "x"


class Keeping:
    """A server that keeps its connections, and counts them."""

    def __init__(self):
        self.connections, self.calls, self.sockets = 0, 0, []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.server.getsockname()[1]
        self.one_answer = False
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                c, _ = self.server.accept()
            except OSError:
                return
            self.connections += 1
            self.sockets.append(c)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        data = b""
        while True:
            try:
                piece = c.recv(65536)
            except OSError:
                return
            if not piece:
                return
            data += piece
            while b"\r\n\r\n" in data:
                data = data.partition(b"\r\n\r\n")[2]
                self.calls += 1
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                if self.one_answer:
                    c.shutdown(socket.SHUT_RDWR)


def test_connections_are_used_again_and_dead_ones_are_not():
    k = Keeping()
    with Cloche(k.url, "t", retries=0) as c:
        for _ in range(5):
            c.info()
        assert (k.connections, k.calls) == (1, 5)
        k.one_answer = True
        for _ in range(3):  # POST without a key: not repeated, so none of them may meet a dead connection
            c.info()
            time.sleep(0.02)
        assert k.connections == 3

    async def run():
        async with AsyncCloche(k.url, "t", retries=0) as c:
            for _ in range(3):
                await c.info()
                time.sleep(0.02)  # the loop has not seen the end when the next call begins

    k.one_answer = True
    asyncio.run(run())
    k.server.close()


def test_a_client_works_in_one_event_loop_after_another():
    """asyncio.run() makes a new loop each time; connections of the one before would never answer."""
    k = Keeping()
    c = AsyncCloche(k.url, "t", retries=0, timeout=5)
    for _ in range(3):
        asyncio.run(c.info())
    assert (k.connections, k.calls) == (3, 3)
    asyncio.run(c.aclose())
    k.server.close()
    gc.collect()


def test_a_cancelled_call_does_not_give_its_answer_to_the_next():
    """The answer that comes late belongs to no other call."""
    def serve(server):
        for n in range(2):
            c, _ = server.accept()
            c.recv(65536)
            time.sleep(0.3 if n == 0 else 0)
            try:
                body = b'{"version": "%d"}' % n
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            except OSError:
                pass

    async def run(url):
        async with AsyncCloche(url, "t", retries=0) as c:
            task = asyncio.create_task(c.info())
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await c.info()).version == "1"

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        asyncio.run(run("http://127.0.0.1:%d" % server.getsockname()[1]))


def test_many_threads_share_connections():
    k = Keeping()
    errors = []
    with Cloche(k.url, "t", retries=0) as c:
        def work():
            try:
                for _ in range(50):
                    c.info()
            except ClocheError as e:
                errors.append(e)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not errors and k.calls == 400 and k.connections <= 16
    k.server.close()
    with pytest.raises(ConnectionFailedError):
        c.info()
