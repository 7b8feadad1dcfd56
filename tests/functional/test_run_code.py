"""`cloche run --language`: code from a file or stdin, by a daemon."""
import json

import pytest

from api import d, nothing_is_left_behind  # noqa: F401


def run(d, code, *args, language="python", last=("-",)):
    p = d.cli("run", "--language", language, *args, *last, input=(code or "").encode())
    return p.code, p.out.decode(), p.err.decode()


def test_output_and_value_are_printed_and_the_exit_code_says_how_it_ended(d):
    assert run(d, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7") == (0, "out\n42\n", "err\n")
    code, out, err = run(d, "print(1)\n1 / 0")
    assert (code, out) == (1, "1\n") and "ZeroDivisionError" in err
    assert run(d, "echo a; exit 2", language="bash")[:2] == (1, "a\n")
    code, _, err = run(d, "while True: pass", "--timeout", "0.5")
    assert code == 124 and "timeout of 0.5 s" in err


def test_code_from_a_file_with_files_and_artifacts(d, tmp_path):
    (tmp_path / "main.py").write_text("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nimport os\nos.makedirs('sub')\n"
                                      "open('sub/out.txt', 'w').write(open('data.csv').read())\nNone")
    (tmp_path / "data.csv").write_text("1,2\n")
    to = tmp_path / "to"
    code, _, err = run(d, None, "--artifacts", to, "--file", tmp_path / "data.csv", last=[tmp_path / "main.py"])
    assert code == 0, err
    assert sorted(str(p.relative_to(to)) for p in to.rglob("*") if p.is_file()) == ["data.csv", "plot-1.png", "sub/out.txt"][1:]
    assert (to / "sub/out.txt").read_text() == "1,2\n" and (to / "plot-1.png").read_bytes()[:4] == b"\x89PNG"


def test_artifacts_stay_below_their_folder(d, tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "link").symlink_to(tmp_path)
    code, _, err = run(d, "import os; os.mkdir('link'); open('link/out', 'w').close()", "--artifacts", tmp_path / "to")
    assert code == 125 and "artifact" in err and not (tmp_path / "out").exists()


def test_json_and_what_is_refused(d):
    code, out, _ = run(d, "print(1)\n2", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [x["event"] for x in lines] == ["stdout", "result", "end"] and lines[-1]["verdict"]["cause"] == "ok"
    for args, says in ((("--ttl", "1m"), "has no effect"), (("--image", "none-such"), "none-such")):
        code, _, err = run(d, "1", *args)
        assert code == 125 and says in err
    assert run(d, "1", language="cobol")[0] == 125


@pytest.mark.parametrize("option", ["--memory=96M", "--env=A=b", "--only=*.txt"])
def test_options_of_the_sandbox(d, option):
    assert run(d, "import os\nprint(os.environ.get('A'))", option)[0] == 0
