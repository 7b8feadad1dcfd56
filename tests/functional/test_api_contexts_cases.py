"""What the tests of E2B's code interpreter assert, in the words of our own API: one test for each of their files.

Their wire is another matter (tests/compat). What they ask of languages that this image lacks (R, Java) is not here.
"""
import time

import pytest

from api import d, error, nothing_is_left_behind  # noqa: F401
from net_site import WHEEL, wheel
from test_api_contexts import Stream, make, path, run, text

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label='up')\nplt.title('T')\nplt.show()\n"


@pytest.fixture(scope="module")
def box(d):
    b = d.create(memory="1G")["id"]
    yield b
    d.delete(f"/v1/sandboxes/{b}")


def shown(d, box, context, code):
    """What comes, event by event, without the end."""
    *events, (name, end) = Stream(d, box, context, code).all()
    assert name == "end" and end["execution_count"] >= 1
    return events


# basic, statefulness, reconnect
def test_a_value_after_a_statement_is_the_result_and_stays(d, box):
    c = make(d, box)
    assert text(run(d, box, c, "x =1; x")) == ["1"]
    assert text(run(d, box, c, "x += 1; x")) == ["2"]
    assert d.get(path(box, c)).json["id"] == c and text(run(d, box, c, "x")) == ["2"]


# bash, executionCount
def test_commands_are_output_and_every_cell_counts(d, box):
    c = make(d, box, cwd="/tmp")
    assert run(d, box, c, "!pwd")["stdout"] == "/tmp\n"
    assert run(d, box, c, "raise ValueError")["execution_count"] == 2
    assert run(d, box, c, "!pwd")["execution_count"] == 3


# callbacks, streaming
def test_each_print_error_and_result_is_one_event(d, box):
    assert shown(d, box, "python", 'print("hello")') == [("stdout", {"text": "hello\n"})]
    assert shown(d, box, "python", "import sys;print('This is an error message', file=sys.stderr)") == [
        ("stderr", {"text": "This is an error message\n"})]
    assert [(name, e["name"]) for name, e in shown(d, box, "python", "xyz")] == [("error", "NameError")]
    found = shown(d, box, "python", PLOT + "'last'")  # a first plot may have something to say on stderr
    assert [e["is_main"] for name, e in found if name == "result"] == [False, True]


# contexts
def test_contexts_are_made_listed_restarted_and_removed(d, box):
    assert {"python", "javascript"} <= {c["language"] for c in d.get(path(box)).json["contexts"]}
    plain = d.post(path(box), {}).json
    assert (plain["language"], d.get(path(box)).json["contexts"][-1]["id"]) == ("python", plain["id"])
    other = d.post(path(box), {"language": "js", "cwd": "/tmp"}).json
    last = d.get(path(box)).json["contexts"][-1]
    assert (last["id"], last["language"], last["cwd"]) == (other["id"], "javascript", "/tmp")
    run(d, box, plain["id"], "x = 1")
    assert d.post(path(box, plain["id"], "restart")).json["id"] == plain["id"]
    e = run(d, box, plain["id"], "x")["error"]
    assert (e["name"], e["value"]) == ("NameError", "name 'x' is not defined")
    for c in (plain["id"], other["id"]):
        assert d.delete(path(box, c)).status == 204
        assert c not in [x["id"] for x in d.get(path(box)).json["contexts"]]
        error(d.post(path(box, c, "execute"), {"code": "1"}), 404, "not_found")
        error(d.post(path(box, c, "restart")), 404, "not_found")


# cwd
@pytest.mark.parametrize("language,code", (("python", "import os; print(os.getcwd())"), ("js", "console.log(process.cwd())"),
                                           ("ts", "const p: string = process.cwd(); console.log(p)"), ("bash", "pwd")))
def test_code_begins_in_the_sandboxs_folder_or_that_of_its_context(d, box, language, code):
    folder = d.get(f"/v1/sandboxes/{box}").json["workdir"]
    assert run(d, box, language, code)["stdout"] == folder + "\n"
    assert run(d, box, make(d, box, language=language, cwd="/usr"), code)["stdout"] == "/usr\n"


# data
def test_a_table_gives_its_values_by_column(d, box):
    code = "import pandas as pd\npd.DataFrame({'when': [pd.Timestamp('2024-01-02T03:04:05')], 'n': [1], 'f': [2.5], 's': ['a']})"
    (r,) = run(d, box, "python", code)["results"]
    assert r["data"] == {"when": ["2024-01-02T03:04:05"], "n": [1], "f": [2.5], "s": ["a"]}
    assert {"text/plain", "text/html"} <= set(r["mime"])


# defaultKernels
def test_javascript_and_typescript_take_imports_promises_and_types(d, box):
    assert run(d, box, "js", 'console.log("Hello World!")')["stdout"] == "Hello World!\n"
    r = run(d, box, "js", 'import { readFileSync } from "fs"\nconsole.log(typeof readFileSync)')
    assert r["stdout"] == "function\n", r
    assert text(run(d, box, "js", 'const os = await import("os"); os.EOL.length')) == ["1"]
    assert text(run(d, box, "js", 'Promise.resolve("Hello World!")')) == ["'Hello World!'"]
    code = 'const message: string = "Hello World!"; console.log(message)'
    assert run(d, box, "ts", code)["stdout"] == "Hello World!\n"


# displayData, customRepr
def test_formats_are_those_that_were_given(d, box):
    (r,) = run(d, box, "python", "from IPython.display import display\ndisplay({'text/latex': r'$\\alpha$'}, raw=True)")["results"]
    assert r["mime"] == {"text/latex": r"$\alpha$"}
    code = "class A:\n  def _repr_latex_(self): return '$x$'\n  def __repr__(self): return 'an A'\nA()"
    (r,) = run(d, box, "python", code)["results"]
    assert r["mime"] == {"text/plain": "an A", "text/latex": "$x$"} and r["is_main"]
    for value in ("[1, 'a', None]", "{'k': [1.5, True]}"):
        (r,) = run(d, box, "python", value)["results"]
        assert set(r["mime"]) == {"text/plain", "application/json"} and r["mime"]["text/plain"] == value


def test_a_figure_gives_a_picture_a_text_and_its_numbers(d, box):
    (r,) = run(d, box, "python", PLOT)["results"]
    assert set(r["mime"]) == {"text/plain", "image/png"} and r["mime"]["image/png"].startswith("iVBOR")
    assert (r["chart"]["type"], r["chart"]["title"]) == ("line", "T")
    assert r["chart"]["elements"] == [{"label": "up", "points": [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]}]


# images
@pytest.mark.parametrize("code", ("image", "image.show()", "image.save('x.png')"))
def test_a_picture_shows_itself(d, box, code):
    made = "from PIL import Image\nimage = Image.new('RGB', (8, 8), 'red')\n"
    (r,) = run(d, box, make(d, box, cwd="/tmp"), made + code)["results"]
    assert r["mime"]["image/png"].startswith("iVBOR")


# env_vars
@pytest.mark.parametrize("language,code", (("python", "import os; print(os.environ.get('FOO', 'none'))"),
                                           ("js", "console.log(process.env.FOO ?? 'none')"), ("bash", "echo ${FOO:-none}")))
def test_variables_of_an_execution_end_with_it(d, language, code):
    for env, after in ({}, "none"), ({"FOO": "bar"}, "bar"):
        b = d.create(env=env)["id"]
        assert run(d, b, language, code)["stdout"] == after + "\n"
        assert run(d, b, language, code, env={"FOO": "baz"})["stdout"] == "baz\n"
        assert run(d, b, language, code)["stdout"] == after + "\n"
        assert d.delete(f"/v1/sandboxes/{b}").status == 204


# interrupt
def test_a_context_takes_code_again_when_its_caller_has_gone(d, box):
    c = make(d, box)
    run(d, box, c, "kept = 7")
    s = Stream(d, box, c, "import time; print('begun'); time.sleep(300)")
    s.next()
    s.close()
    began = time.monotonic()
    assert text(run(d, box, c, "1 + 1; kept")) == ["7"]
    assert time.monotonic() - began < 5


# kernels
def test_contexts_are_apart_and_code_is_a_text(d, box):
    c = make(d, box)
    run(d, box, "python", "apart = 1")
    assert run(d, box, c, "apart")["error"]["value"] == "name 'apart' is not defined"
    for code in ({"language": "python"}, 7, None, ["1"]):
        error(d.post(path(box, c, "execute"), {"code": code}), 400, "invalid")
    assert run(d, box, c, "    a = 1\n    a")["results"][0]["mime"]["text/plain"] == "1"


@pytest.mark.parametrize("user", ["user", "root"])
def test_a_package_that_pip_installs_can_be_imported_in_the_next_cell(d, user):
    b = d.create(memory="512M", user=user)["id"]
    assert d.put(f"/v1/sandboxes/{b}/files?path={WHEEL}", wheel()).status == 200
    assert run(d, b, "python", "import cloche_sample")["error"]["name"] == "ModuleNotFoundError"
    done = run(d, b, "python", f"%pip install --no-index ./{WHEEL}")
    assert "Successfully installed" in done["stdout"] and done["error"] is None, done
    assert run(d, b, "python", "import cloche_sample")["error"] is None
    assert d.delete(f"/v1/sandboxes/{b}").status == 204
