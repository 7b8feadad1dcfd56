"""The backend: langchain-tests' suite, pages against the base class's own script, and an agent of deepagents."""
import base64
import time
from importlib.metadata import version

import pytest
from cloche_langchain.deepagents import ClocheBackend
from deepagents import create_deep_agent
from deepagents.backends.sandbox import BaseSandbox
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_tests.integration_tests import SandboxIntegrationTests

NEW = tuple(int(n) for n in version("deepagents").split(".")[:2]) >= (0, 7)


class TestSuite(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, client):
        with client.sandboxes.create(memory="512M") as s:
            yield ClocheBackend(s)


@pytest.fixture(scope="module")
def box(client):
    with client.sandboxes.create(memory="512M") as s:
        yield ClocheBackend(s)


def same(box, path, offset=0, limit=2000):
    mine, theirs = box.read(path, offset, limit), BaseSandbox.read(box, path, offset, limit)
    assert mine == theirs, (path, offset, limit, mine, theirs)
    return mine


def test_pages_are_those_of_the_base_class(box):
    files = {
        "plain": b"".join(b"line %d\n" % i for i in range(5000)),
        "no-newline": b"a\nb",
        "crlf": b"a\r\nb\rc\n\nd\r\n",
        "umlauts": "grüße\n世界\n".encode() * 3000,
        "cut": b"x" * 8190 + "世\nend".encode(),
        "newlines": b"\n\n\n",
        "form-feed": "a\x0cb\u2028c\nd".encode(),
        "long": b"y" * 600_000 + b"\nnext\n",
        "wide": (b"z" * 99_999 + b"\n") * 8,
        "binary": bytes(range(256)),
        "picture.png": b"text by another name",
        "empty": b"",
    }
    assert not [r for r in box.upload_files([(f"/tmp/p/{name}", data) for name, data in files.items()]) if r.error]
    windows = [(0, 2000), (0, 1), (1, 1), (1, 5), (2, 10), (3, 1), (4990, 100), (4999, 1), (5000, 1), (9999, 1)]
    if NEW:  # before, no lines were an error, and a negative offset was not looked at
        windows += [(0, 0), (-3, 2)]
    for name in files:
        for offset, limit in windows if name == "plain" else windows[:6]:
            same(box, f"/tmp/p/{name}", offset, limit)
    for path in ("/tmp/p/none", "/tmp/p", "/tmp/p/plain/x", "/root/x"):
        assert box.read(path).error and BaseSandbox.read(box, path).error


def test_listings_deletions_and_writes_are_those_of_the_base_class(box):
    box.execute("mkdir -p /tmp/l/d/e; ln -s d /tmp/l/link; echo x > /tmp/l/f; ln -s f /tmp/l/lf; mkdir /tmp/l/none")
    key = lambda e: e["path"]  # noqa: E731
    for path in ("/tmp/l", "/tmp/l/", "/tmp/l/d", "/tmp/l/link", "/tmp/l/none"):
        assert sorted(box.ls(path).entries, key=key) == sorted(BaseSandbox.ls(box, path).entries, key=key), path
    for path in ("/tmp/l/f", "/tmp/none", "/root"):
        assert box.ls(path).error and box.ls(path).entries is None
    if NEW:
        assert box.delete("/tmp/l").error is None and box.delete("/tmp/l").error == "Error: '/tmp/l' not found"
    assert "permission_denied" in box.write("/root/x", "").error
    assert box.download_files(["/root/x"])[0].error == "permission_denied"
    assert box.execute("sleep 30", timeout=1).exit_code == 124
    out = box.execute("echo 1; echo 2 >&2; echo 3; exit 4")
    assert (out.output, out.exit_code, out.truncated) == ("1\n2\n3\n", 4, False)


def test_a_page_costs_a_fifth_of_the_script_at_most(box):
    box.upload_files([("/tmp/page", b"".join(b"some words in line %d\n" % i for i in range(20000)))])

    def best(read, rounds):
        times = []
        for _ in range(rounds):
            begin = time.perf_counter()
            assert read().file_data["content"].startswith("some words in line 10000\n")
            times.append(time.perf_counter() - begin)
        return min(times)

    mine = best(lambda: box.read("/tmp/page", 10000, 200), 40)
    script = best(lambda: BaseSandbox.read(box, "/tmp/page", 10000, 200), 10)
    print(f"\n# page read: {mine * 1000:.2f} ms, by script {script * 1000:.2f} ms, ratio {mine / script:.2f}")
    assert mine <= 0.2 * script


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **_):
        return self


def test_a_deep_agent_works_in_the_sandbox(box):
    call = {"type": "tool_call"}
    agent = create_deep_agent(
        model=Scripted(messages=iter([
            AIMessage("", tool_calls=[{**call, "id": "1", "name": "write_file", "args": {"file_path": "/tmp/a.py", "content": "print(6 * 7)\n"}}]),
            AIMessage("", tool_calls=[{**call, "id": "2", "name": "execute", "args": {"command": "python3 /tmp/a.py"}}]),
            AIMessage("", tool_calls=[{**call, "id": "3", "name": "read_file", "args": {"file_path": "/tmp/a.py"}}]),
            AIMessage("42"),
        ])),
        backend=box,
    )
    messages = agent.invoke({"messages": [{"role": "user", "content": "Compute it."}]})["messages"]
    answers = [m.content for m in messages if m.type == "tool"]
    assert "42" in answers[1] and "print(6 * 7)" in answers[2] and messages[-1].content == "42"
    assert base64.b64encode(box.download_files(["/tmp/a.py"])[0].content) == b"cHJpbnQoNiAqIDcpCg=="
