#!/usr/bin/python3
"""Prints a kernel of src/interpreter as one program, which needs no files beside it.

    scripts/kernel_bundle.py python >kernel.py     python3 kernel.py, or python3 -c "$(cat kernel.py)"
    scripts/kernel_bundle.py node >kernel.js

With --preload the Python one imports and settles nothing: it is the warm-up code of a process that becomes a context later,
by `from cloche_kernel import kernel; kernel.main()`.
"""
import argparse
import base64
import glob
import json
import os
import sys
import zlib

SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'src', 'interpreter')

# Packed: one argument of a program has at most 128 KiB.
PYTHON = '''import base64, importlib.util as _util, json, sys as _sys, zlib
_SOURCES = json.loads(zlib.decompress(base64.b64decode("{sources}")))
class _Bundle:
    """Finds the modules of the kernel in this text."""
    def find_spec(self, name, path=None, target=None):
        if name not in _SOURCES:
            return None
        return _util.spec_from_loader(name, self, is_package=name == "cloche_kernel")
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        file = module.__file__ = "<cloche_kernel/%s.py>" % module.__name__
        exec(compile(_SOURCES[module.__name__], file, "exec", dont_inherit=True), module.__dict__)
_sys.meta_path.insert(0, _Bundle())
from cloche_kernel import kernel as _kernel
{start}
'''

NODE = '''\'use strict\';
const bundled = {{
{modules}
}};
const loaded = {{}};
function load(name) {{
  if (!loaded[name]) {{
    const module = loaded[name] = {{ exports: {{}} }};
    bundled[name](module, module.exports, other => other.startsWith('./') ? load(other.slice(2)) : require(other));
  }}
  return loaded[name].exports;
}}
load('kernel.js');
'''


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def python(preload):
    sources = {}
    for path in sorted(glob.glob(os.path.join(SOURCE, 'python', 'cloche_kernel', '*.py'))):
        name = os.path.basename(path)[:-3]
        if name != '__main__':
            sources['cloche_kernel' if name == '__init__' else 'cloche_kernel.' + name] = read(path)
    packed = base64.b64encode(zlib.compress(json.dumps(sources).encode(), 9)).decode()
    start = '_kernel.preload(%r)' % (preload,) if preload is not None else '_kernel.main()'
    return PYTHON.format(sources=packed, start=start)


def node():
    modules = []
    for path in sorted(glob.glob(os.path.join(SOURCE, 'node', '*.js'))):
        modules.append(f'{json.dumps(os.path.basename(path))}: (module, exports, require) => {{\n{read(path)}}},')
    return NODE.format(modules='\n'.join(modules))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('kernel', choices=('python', 'node'))
    parser.add_argument('--preload', nargs='*', metavar='MODULE')
    args = parser.parse_args()
    sys.stdout.write(python(args.preload) if args.kernel == 'python' else node())


if __name__ == '__main__':
    main()
