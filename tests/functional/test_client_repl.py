"""cloche repl: a terminal for a context, with history, completion, interrupts and pictures; and code in a pipe."""
import base64
import subprocess
import time

import pytest

import host
from cli import Terminal, nothing_is_left_behind  # noqa: F401
from daemon import Daemon

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture(scope="module")
def d(nothing_is_left_behind):
    with Daemon(None, "--stop-sandboxes") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def box(d):
    return d.create(memory="512M")["id"]


def repl(d, *args, **kw):
    t = Terminal(d, "repl", *args, **kw)
    return t


def piped(d, code, *args, cwd=None):
    return subprocess.run([str(host.CLOCHE), "repl", *args], input=code, env=d.environment(), cwd=cwd, capture_output=True, text=True, timeout=120,
                          check=False)


def test_python_on_a_terminal(d, box, tmp_path):
    with repl(d, "--plots", tmp_path, "python", box) as t:
        t.expect(r">>> \x1b\[K", 60)
        t.type("6 * 7\r")
        t.expect(r"42\r\n")
        t.expect(">>> ")
        t.type("for i in range(2):\r")
        t.expect(r"\.\.\.     ")  # indented for the block
        t.type("print('line', i)\r\x15\r")
        t.expect("line 0\r\nline 1\r\n")
        t.type("name_of_mine = 5\rname_o\t + 1\r")
        t.expect(r"\n6\r\n")
        t.type("6 *\x1b[D\x1b[D5\x05 2\r")  # edited in the middle
        t.expect(r"\n130\r\n")
        t.type("\x1b[A\x1b[A\r")
        t.expect(r"\n6\r\n")
        t.type("\x1b[200~def f():\r    a = 1\r\r    return a + 8\r\x1b[201~")
        t.type("\r")
        t.type("f()\r")
        t.expect(r"\n9\r\n")
        t.expect(">>> ")  # until then Ctrl-C is for the code
        t.type("half of a line\x03")
        t.expect(r"\^C\r\n")
        t.type("import time; print('begun'); time.sleep(300)\r")
        t.expect(r"begun\r\n")
        t.type("\x03")
        t.expect("KeyboardInterrupt")
        t.expect(">>> ")
        t.type(f"import base64; display({{'image/png': '{base64.b64encode(PIXEL).decode()}', 'text/plain': 'pix'}}, raw=True)\r")
        t.expect(r"saved .*plot-1\.png\]")
        t.type("exit()\r")
        assert t.wait() == 0 and t.restored, t.seen
    assert (tmp_path / "plot-1.png").read_bytes() == PIXEL
    # Its context is there, and remembers: variables, and lines of before.
    with repl(d, "python", box) as t:
        t.expect(r">>> \x1b\[K", 60)
        t.type("\x1b[A\x1b[A\x1b[A\x03name_of_mine\r")
        t.expect(r"\n5\r\n")
        t.type("\x04")
        assert t.wait() == 0 and t.restored, t.seen


def test_a_sandbox_of_its_own_is_deleted(d):
    before = {s["id"] for s in d.get("/v1/sandboxes").json["sandboxes"]}
    with repl(d, "js", "--memory", "256M") as t:
        t.expect(r"> \x1b\[K", 60)
        made, = [s for s in d.get("/v1/sandboxes").json["sandboxes"] if s["id"] not in before]
        assert made["memory"] == 256 << 20 and made["idle"] == 600
        t.type("const a = [1, 2].map(x => {\r")
        t.expect(r"\| ")
        t.type("return x + 1 }); a\r")
        t.expect(r"\[ 2, 3 \]")
        t.type("while (true) {}\r")
        t.expect(r"\{\}\x1b\[K\r\x1b\[17C\r\n")
        t.type("typed meanwhile \x03")
        t.expect("> typed meanwhile")
        t.type("\x15\x04")
        assert t.wait(30) == 0
    assert {s["id"] for s in d.get("/v1/sandboxes").json["sandboxes"]} == before


def test_code_in_a_pipe(d, box, tmp_path):
    r = piped(d, "def f(x):\n    return x * 2\n\nprint(f(4))\nf(3)\n1/0\nprint('on')\n'end'", "python", box, cwd=tmp_path)
    assert r.stdout == "8\n6\non\n'end'\n" and "ZeroDivisionError" in r.stderr and r.returncode == 1, r
    r = piped(d, "x=3\ncd /usr\nfor i in 1 2; do\necho $i $x\ndone\npwd\n", "sh", box)
    assert (r.stdout, r.stderr, r.returncode) == ("1 3\n2 3\n/usr\n", "", 0)
    r = piped(d, "display({'image/svg+xml': '<svg/>'}, raw=True)\nimport os; os._exit(3)\n1\n", "python", box, cwd=tmp_path)
    assert r.stdout == "[saved ./plot-1.svg]\n1\n" and "variables are lost" in r.stderr and r.returncode == 1, r
    assert (tmp_path / "plot-1.svg").read_text() == "<svg/>"
    assert piped(d, "exit()\nprint(1)\n", "python", box).stdout == ""
    r = piped(d, "import time; time.sleep(60)\n", "--run-timeout", "500ms", "python", box)
    assert "timeout" in r.stderr and r.returncode == 1


def test_what_is_wrong_is_said(d, box):
    for args, word in ((["cobol"], "no language 'cobol'"), (["python", "no-such-box"], "no-such-box"), (["--context", "x"], "needs a sandbox"),
                       (["--memory", "1G", "python", box], "cannot be used"), (["--context", "nonsense", "python", box], "nonsense")):
        r = piped(d, "1\n", *args)
        assert r.returncode == 125 and word in r.stderr, (args, r)
    assert "usage: cloche repl" in subprocess.run([str(host.CLOCHE), "repl", "--help"], capture_output=True, text=True, check=True).stdout


def test_bad_input_in_a_pipe(d, box):
    """Each line is run or named, whatever it holds, and what follows runs."""
    r = piped(d, f"n = len('{'x' * 10_000_000}')\nprint(n)\n", "python", box)
    assert (r.stdout, r.stderr, r.returncode) == ("10000000\n", "", 0)
    r = subprocess.run([str(host.CLOCHE), "repl", "python", box], input=b"a = '\xff\xfe'\nprint('b\0c')\nprint('after')\n",
                       env=d.environment(), capture_output=True, timeout=120, check=False)
    assert r.stdout == b"after\n" and r.returncode == 1 and b"UTF-8" in r.stderr and b"NUL" in r.stderr, r
    begin = time.monotonic()
    lines = "".join(f"    x{i} = {i}\n" for i in range(3000))
    assert piped(d, f"def f():\n{lines}    return x7\n\nprint(f())\n", "python", box).stdout == "7\n" and time.monotonic() - begin < 30
    r = piped(d, "x = '" + "y" * (33 << 20) + "'\nprint(1)\n", "python", box)
    assert r.returncode == 1 and r.stdout == "" and "a line of more than 33554432 bytes" in r.stderr


def test_bad_input_on_a_terminal(d, box):
    with repl(d, "python", box) as t:
        t.expect(r">>> \x1b\[K", 60)
        t.send(b"\0\x1b\x1b[999;999;999;999;999;999;9~\xff\xc3\x80\x07\x0e\x10\x1d\x15")  # keys that mean nothing, and half characters
        begin = time.monotonic()
        t.type(f"\x1b[200~len('{'z' * 200_000}')\x1b[201~\r")
        t.expect(r"200000\r\n", 60)
        assert time.monotonic() - begin < 40
        for rows, columns in ((1, 1), (3, 2), (500, 1000), (24, 80)):
            t.resize(rows, columns)
            t.type("1+")
            time.sleep(0.05)
        t.type("1\r")
        t.expect(r"5\r\n")
        t.expect(r">>> \x1b\[K")  # before that, Ctrl-C is the running line's
        t.type("\x03\x03")
        t.expect(r"\^C\r\n")
        t.type("'still ' + 'here'\r")
        t.expect("still here")
        t.send(b"\xff\r")  # no UTF-8: named, and the next line runs
        t.expect("UTF-8")
        t.type("2 ** 5\r")
        t.expect(r"32\r\n")
        t.type("\x04")
        assert t.wait() == 0 and t.restored


def test_a_server_that_goes_away_is_named(nothing_is_left_behind):  # noqa: F811
    with Daemon(None, "--stop-sandboxes") as own:
        box = own.create()["id"]
        with repl(own, "python", box) as t:
            t.expect(r">>> \x1b\[K", 60)
            t.type("import time; print('begun'); time.sleep(100)\r")
            t.expect(r"begun\r\n")
            own.stop()
            t.expect("connection was lost", 60)
            t.type("1 + 1\r")
            t.expect("no connection|connect|cannot reach", 30)
            t.type("\x04")
            assert t.wait(60) == 0 and t.restored
