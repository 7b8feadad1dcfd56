"""A context behind Jupyter's protocol: jupyter-kernel-test's cases, and what they do not ask."""
import os
import subprocess
import sys
import time

import jupyter_kernel_test
import pytest
from jupyter_client.manager import start_new_kernel


@pytest.fixture(scope="session", autouse=True)
def kernels(environ, tmp_path_factory):
    """Kernels for all languages, found by Jupyter."""
    prefix = tmp_path_factory.mktemp("jupyter")
    for name in ("python", "shell"):
        subprocess.run([sys.executable, "-m", "cloche_jupyter", "install", "--language", name, "--prefix", prefix,
                        "--options", '{"memory": "512M"}'], check=True)
    with pytest.MonkeyPatch.context() as m:
        m.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
        yield


class Cases(jupyter_kernel_test.KernelTests):
    def execute_helper(self, code, timeout=60, **more):  # the machine may be busy
        return super().execute_helper(code, timeout, **more)


class TestPython(Cases):
    kernel_name = "cloche-python"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_generate_error = "raise ValueError('no')"
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"}]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    test_pager = None  # `name?` gives its text as a result


class TestShell(Cases):
    kernel_name = "cloche-shell"
    language_name = "bash"
    file_extension = ".sh"
    code_hello_world = "echo 'hello, world'"
    code_stderr = "echo test >&2"
    complete_code_samples = ["echo 1", "for i in 1 2; do echo $i; done"]
    incomplete_code_samples = ["for i in 1 2; do", "echo 'a"]
    code_generate_error = "false"
    # A shell has no results, and no pager.
    test_pager = test_execute_result = test_display_data = test_history = test_clear_output = test_inspect = test_completion = None


del Cases  # it has no kernel


def test_an_interrupt_keeps_variables_and_the_end_deletes_the_sandbox(client):
    before = {s.id for s in client.sandboxes.list()}
    km, kc = start_new_kernel(kernel_name="cloche-python")
    try:
        assert len({s.id for s in client.sandboxes.list()} - before) == 1
        kc.execute_interactive("kept = 7", timeout=60)
        asked = kc.execute("import time; time.sleep(300)")
        time.sleep(1)
        km.interrupt_kernel()
        while (reply := kc.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != asked:
            pass
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        seen = []
        kc.execute_interactive("kept", timeout=60, output_hook=seen.append)
        assert [m["content"]["data"]["text/plain"] for m in seen if m["msg_type"] == "execute_result"] == ["7"]
        lost = kc.execute_interactive("import os; os._exit(3)", timeout=60)["content"]
        assert lost["ename"] == "ContextEnded" and "3" in lost["evalue"]
    finally:
        kc.stop_channels()
        km.shutdown_kernel()
    assert {s.id for s in client.sandboxes.list()} == before


def install(tmp_path, *args):
    return subprocess.run([sys.executable, "-m", "cloche_jupyter", "install", "--prefix", tmp_path, *args], capture_output=True,
                          text=True, check=False)


def test_each_language_of_the_readme_can_be_installed(tmp_path):
    for language in ("python", "javascript", "typescript", "shell", "r"):
        done = install(tmp_path, "--language", language)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "share/jupyter/kernels" / f"cloche-{language}" / "kernel.json").exists()


def test_options_that_are_no_json_say_how_they_are_written(tmp_path):
    for text in ("{memory: 1G}", '["memory"]'):
        done = install(tmp_path, "--options", text)
        assert done.returncode == 2 and '{"memory": "1G"}' in done.stderr and "loads" not in done.stderr, done.stderr


def test_a_kernel_that_cannot_start_says_why_in_one_line(tmp_path, environ):
    assert install(tmp_path, "--options", '{"image": "none:1"}').returncode == 0
    done = subprocess.run([sys.executable, "-m", "cloche_jupyter", "-f", tmp_path / "c.json"], capture_output=True, text=True, check=False,
                          timeout=60, env={**os.environ, "CLOCHE_KERNEL_OPTIONS": '{"image": "none:1"}'})
    assert done.returncode == 1 and "cannot start the kernel: no image 'none:1'" in done.stderr and "Traceback" not in done.stderr
