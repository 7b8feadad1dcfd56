"""The package itself: one source, what it exports, that it can be checked by others, and what needs no server."""
import ast
import json
import pathlib
import pickle
import re
import subprocess
import sys

import cloche
import pytest
from cloche import _sse, _wire, _ws
from cloche._collect import Collector
from cloche.errors import KINDS, error_from_wire

pytestmark = pytest.mark.each_python
SDK = pathlib.Path(__file__).resolve().parents[1]
OPENAPI = SDK.parents[1] / "docs" / "openapi.json"


def test_sync_is_what_unasync_makes_of_async():
    assert subprocess.run([sys.executable, SDK / "scripts" / "unasync.py", "--check"], check=False).returncode == 0
    source = (SDK / "src/cloche/_sync/exec.py").read_text()
    assert not re.search(r"\basync\b|\bawait\b|\bAsync[A-Z]", source)


def test_both_forms_have_the_same_methods():
    pairs = [(name, name[5:]) for name in cloche.__all__ if name.startswith("Async")]
    assert len(pairs) >= 16
    for one, other in pairs:
        methods = [{n for n in dir(getattr(cloche, x)) if not n.startswith("_")} for x in (one, other)]
        assert {"close" if n == "aclose" else n for n in methods[0]} == methods[1]


def test_all_that_is_exported_is_there_and_the_installed_package_is_typed():
    tree = ast.parse((SDK / "src/cloche/__init__.py").read_text())
    imported = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert imported == set(cloche.__all__)
    folder = pathlib.Path(cloche.__file__).parent
    assert (folder / "py.typed").exists()
    assert f'version = "{cloche.__version__}"' in (SDK / "pyproject.toml").read_text()


def test_each_path_that_is_called_is_one_of_the_api():
    source = "".join(p.read_text() for p in (SDK / "src/cloche/_async").glob("*.py"))
    for collection in ("templates", "pools", "secrets"):
        assert f'_collection = "{collection}"' in source
        source += f' "/v1/{collection}" "/v1/{collection}/{{name}}" '
    source = re.sub(r"/v1/\{self\._collection\}[^\"]*", "", source)
    known = {re.sub(r"\{\w+\}", "{}", path) for path in json.loads(OPENAPI.read_text())["paths"]}
    called = {re.sub(r"\{[^{}]*\}", "{}", path) for path in re.findall(r'"(/v1/[^"]*|/healthz|/version|/metrics)"', source)}
    sandbox = (SDK / "src/cloche/_async/sandbox.py").read_text()
    for path in re.findall(r'"\{self\._path\}(/[^"]+)"', sandbox) + re.findall(r'_change\("(?:POST)?(?:", ")?(/[^"]+)"', sandbox):
        called.add("/v1/sandboxes/{}" + re.sub(r"\{[^{}]*\}", "{}", path))
    called = {p[:-2] if p.endswith("{}") and p[:-2] + "/{}" not in known and p not in known else p for p in called}
    assert len(called) >= 35
    assert called <= known, called - known


def test_each_error_code_of_the_api_has_a_class():
    codes = set(re.findall(r"`([a-z_]+)`(?:, `([a-z_]+)`)? \| ", (SDK.parents[1] / "docs/api.md").read_text().split("### Errors")[1].split("###")[0]))
    words = {w for pair in codes for w in pair if w}
    assert words and words <= set(KINDS)


def test_errors_carry_what_the_server_says_and_survive_pickling():
    wire = {"code": "refused", "message": "m", "cause": "c", "remedy": "r", "request_id": "q", "reason": "program_missing"}
    e = pickle.loads(pickle.dumps(error_from_wire(wire, 422, retry_after=2.0, details={"x": 1})))
    assert isinstance(e, cloche.RefusedError)
    assert (e.code, e.status, e.message, e.cause, e.remedy, e.request_id, e.reason) == ("refused", 422, "m", "c", "r", "q", "program_missing")
    assert isinstance(e, cloche.ProgramMissingError) and isinstance(e, FileNotFoundError)
    assert (e.retry_after, e.details, str(e)) == (2.0, {"x": 1}, "m: c; r [refused, request q]")
    assert isinstance(error_from_wire("<html>", 503), cloche.ExhaustedError)
    assert isinstance(error_from_wire({"code": "of_later"}, 409), cloche.ConflictError)
    assert error_from_wire(None, 599).code == "unknown"
    for name in cloche.__all__:
        kind = getattr(cloche, name)
        if isinstance(kind, type) and issubclass(kind, cloche.ClocheError):
            assert isinstance(pickle.loads(pickle.dumps(kind("m", code="c"))), kind)


def test_an_answer_keeps_what_this_version_does_not_know():
    v = cloche.Verdict.from_wire({"cause": "exited", "detail": None, "limit": 1, "new": [1]})
    assert (v.cause, v.limit, v.peak, v.extra) == ("exited", 1, None, {"new": [1]})
    with pytest.raises(cloche.ProtocolError):
        cloche.Result.from_wire({"verdict": "text"})
    with pytest.raises(cloche.ProtocolError):
        cloche.FileStat.from_wire({"mtime": 12})


def test_queries_are_encoded():
    assert _wire.query_string({"a": "b c+&=/é", "t": True, "f": False, "n": 0, "none": None}) == "?a=b%20c%2B%26%3D%2F%C3%A9&t=1&f=0&n=0"
    assert _wire.query_string({}) == "" and _wire.segment("a/b") == "a%2Fb"


@pytest.mark.parametrize("step", (1, 2, 3, 7, 1000))
def test_events_are_cut_the_same_whatever_the_pieces_are(step):
    text = "id: 1\r\nevent: a\rdata: x\ndata:  ü\n\n: comment\ndata\n\nid: 2\n\ndata: lost".encode()
    parser, out = _sse.EventParser(), []
    for at in range(0, len(text), step):
        out += parser.feed(text[at : at + step])
    assert [(e.event, e.data, e.id) for e in out] == [("a", "x\n ü", "1"), ("message", "", "1")]


def test_an_event_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(_sse, "MAX_EVENT", 1 << 20)
    parser = _sse.EventParser()
    with pytest.raises(cloche.ProtocolError):
        for _ in range(2):
            parser.feed(b"data: " + b"x" * (1 << 20))
    parser = _sse.EventParser()
    with pytest.raises(cloche.ProtocolError):
        for _ in range(2):
            parser.feed(b"data: " + b"x" * (1 << 20) + b"\n")


def unmasked(data):
    n, at = data[1] & 127, 2
    if n > 125:
        size = 2 if n == 126 else 8
        n, at = int.from_bytes(data[2 : 2 + size], "big"), 2 + size
    key, body = data[at : at + 4], data[at + 4 :]
    assert len(body) == n and data[1] & 128
    return bytes([data[0]]) + (bytes([n]) if n < 126 else data[1:2].replace(data[1:2], bytes([data[1] & 127])) + data[2:at]) + bytes(
        b ^ key[i % 4] for i, b in enumerate(body)
    )


@pytest.mark.parametrize("size", (0, 1, 125, 126, 65535, 65536, 70001))
def test_frames_are_masked_and_read_in_any_pieces(size):
    body = bytes(i * 7 & 255 for i in range(size))
    wire = unmasked(_ws.frame(_ws.BINARY, body))
    for step in (1 + size // 3, 4096):
        parser, out = _ws.FrameParser(), []
        for at in range(0, len(wire), step):
            out += parser.feed(wire[at : at + step])
        assert out == [(_ws.BINARY, body)]


def test_pieces_of_a_message_are_joined_around_control_frames():
    assert _ws.FrameParser().feed(b"\x02\x01a\x89\x02hi\x00\x01b\x80\x01c") == [(_ws.PING, b"hi"), (_ws.BINARY, b"abc")]


@pytest.mark.parametrize(
    "wire", (b"\xc2\x00", b"\x82\x80", b"\x83\x00", b"\x80\x01a", b"\x02\x01a\x02\x01b", b"\x09\x00", b"\x89\x7e\x00\x7e", b"\x82\x7f" + b"\xff" * 8)
)
def test_frames_that_a_server_may_not_send_are_refused(wire):
    with pytest.raises(cloche.ProtocolError):
        _ws.FrameParser().feed(wire)


@pytest.mark.parametrize("limit", (0, 1, 2, 7, 100))
def test_output_is_kept_at_its_beginning_and_end(limit):
    data = bytes(range(50))
    for step in (1, 3, 50):
        c = Collector(limit)
        for at in range(0, 50, step):
            c.add(data[at : at + step])
        head, tail = (limit + 1) // 2, limit // 2
        assert c.bytes() == (data if limit >= 50 else data[:head] + data[50 - tail :])
        assert c.dropped == max(0, 50 - limit)


def test_results_show_themselves_escaped():
    r = cloche.Result.from_wire(
        {"id": "x", "exit_code": 1, "verdict": {"cause": "exited"}, "usage": {"wall_ms": 2}, "truncated": {}, "stdout": "<script>", "stderr": "e" * 200000}
    )
    bundle = r._repr_mimebundle_(include=None, exclude=None)
    assert "<script>" in bundle["text/plain"] and "<script>" not in bundle["text/html"] and "&lt;script&gt;" in bundle["text/html"]
    assert len(bundle["text/html"]) < 100000


@pytest.mark.parametrize("url", ("localhost:7070", "ftp://x", "", "http://", "unix:relative", 7))
def test_a_wrong_url_is_refused_at_once(url):
    with pytest.raises((cloche.InvalidError, AttributeError)):
        cloche.Cloche(url)


def test_a_token_with_a_line_break_is_refused():
    with pytest.raises(cloche.InvalidError, match="line break"):
        cloche.Cloche("http://127.0.0.1:1", "cloche_x\n")
