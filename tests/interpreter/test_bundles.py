"""The kernels as single programs, as they travel into a sandbox."""
import os
import subprocess

import pytest
from kernel import Kernel, ROOT, node

BUNDLE = os.path.join(ROOT, 'scripts', 'kernel_bundle.py')


def bundle(*args):
    return subprocess.run([BUNDLE, *args], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize('how', ['file', 'argument'])
def test_python(tmp_path, how):
    text = bundle('python')
    file = tmp_path / 'kernel.py'
    file.write_text(text)
    assert how == 'file' or len(text) < 120 << 10  # what one argument may have
    with Kernel(['/usr/bin/python3', str(file)] if how == 'file' else ['/usr/bin/python3', '-c', text]) as k:
        assert k.run('%pwd').text == "'/tmp'"
        e = k.run('def f():\n    return 1 / 0\nf()').error
        assert 'return 1 / 0' in e['traceback'] and 'cloche' not in e['traceback']
        assert 'image/png' in k.run('import matplotlib.pyplot as plt\nplt.plot([1]);').results[0]['mime']
        assert k.run('class B:\n    def _repr_html_(self): raise ValueError("v")\nB()').stderr.count('cloche_kernel') == 0
        names = k.run('[n for n in globals() if "kernel" in n.lower() or "bundle" in n.lower()]').text
        assert names == '[]'


def test_node(tmp_path):
    (tmp_path / 'kernel.js').write_text(bundle('node'))
    argv = node()
    argv[3] = str(tmp_path / 'kernel.js')
    with Kernel(argv) as k:
        assert k.run('import os from "os"; const x = 1; await x + 1').text == '2'
        e = k.run('function f() { throw new Error("bad") }\nf()').error
        assert 'cell-2:1:' in e['traceback'] and 'kernel.js' not in e['traceback']


def test_python_preloads_and_becomes_a_context_later():
    code = bundle('python', '--preload', 'json', 'no_such_module') + '\n_kernel.main()\n'
    with Kernel(['/usr/bin/python3', '-c', code]) as k:
        assert k.run('1 + 1').text == '2'
