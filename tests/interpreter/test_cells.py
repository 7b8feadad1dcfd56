"""Cells of the kind that models write, run in our Python kernel and in a real ipykernel, compared by format.

The cells are in cells/*.txt. `#%% name [flags]` begins a cell; those of a file share a kernel. Flags:

    differs=WHY      the two differ. docs/interpreter.md has a heading for it, and a cell that does not differ fails
    loose=numbers    numbers are not compared (times, versions)
    loose=files      the names of the cells' own files are not compared
    loose=addresses  addresses of objects are not compared
    loose=svg        drawings are compared by their size
"""
import glob
import os
import re

import pytest
from kernel import Kernel, ROOT
from reference import Reference, plain

HERE = os.path.dirname(os.path.abspath(__file__))
NUMBER = re.compile(r'\d[\d.,]*(?: ?(?:ns|[µu]s|ms|s|min|h)\b)?')
FILES = re.compile(r'/tmp/ipykernel_\d+/\d+\.py|<cell \d+(?:\.\d+)?>|<ipython-input[^>]*>|\b\d+\.py|<magic-timeit>|<unknown>')


class Cell:
    def __init__(self, head, code):
        m = re.match(r'(.*?)(?: \[(\S+)=(\S+)\])?$', head)
        self.name, kind, value = m.groups()
        self.code = code
        self.differs = value if kind == 'differs' else None
        self.loose = value if kind == 'loose' else ''
        assert kind in (None, 'differs', 'loose'), head


def cells(path):
    with open(path, encoding='utf-8') as f:
        parts = re.split(r'^#%% (.*)\n', f.read(), flags=re.M)[1:]
    return [Cell(head, code[:-1] if code.endswith('\n') else code) for head, code in zip(parts[::2], parts[1::2])]


def ours(r):
    return {'stdout': r.stdout, 'stderr': r.stderr, 'results': [(x['is_main'], x['mime']) for x in r.results],
            'error': (r.error['name'], r.error['value']) if r.error else None}


def text_of(text, cell):
    text = FILES.sub('FILE', text.replace('\r\n', '\n'))  # IPython runs !commands on a terminal
    text = re.sub(r'(FILE):\d+', r'\1', text) if cell.loose == 'files' else text
    if cell.loose == 'numbers':
        text = re.sub(r'\bN(, N)*', 'N', NUMBER.sub('N', text))
        text = re.sub(r'CPU times: .*', 'CPU times', text)
    if cell.loose == 'addresses':
        text = re.sub(r'0x[0-9a-f]+', 'ADDRESS', text)
    return text


def canonical(out, cell):
    """What is compared. A list or dict gives application/json in our kernel only."""
    results = []
    for is_main, mime in out['results']:
        mime = plain(mime)
        if set(mime) == {'text/plain', 'application/json'}:
            del mime['application/json']
        if cell.loose == 'svg' and 'image/svg+xml' in mime:
            mime['image/svg+xml'] = re.search(r'<svg [^>]*?height="[\d.]+pt"', mime['image/svg+xml'], re.S).group(0)
        results.append((is_main, {k: text_of(v, cell) if isinstance(v, str) else v for k, v in mime.items()}))
    error = out['error'] and (out['error'][0], text_of(out['error'][1], cell))
    return {'stdout': text_of(out['stdout'], cell), 'stderr': text_of(out['stderr'], cell), 'results': results, 'error': error}


ALL = {os.path.basename(p)[:-4]: cells(p) for p in sorted(glob.glob(os.path.join(HERE, 'cells', '*.txt')))}


@pytest.fixture(scope='module')
def outcomes(tmp_path_factory):
    """{(file, number): (ours, ipykernel's)}, each file run once, in order."""
    made = {}

    def of(name):
        if name not in made:
            both = []
            for one in ('ours', 'theirs'):
                folder = tmp_path_factory.mktemp(one)
                if one == 'ours':
                    with Kernel(cwd=str(folder)) as k:
                        both.append([ours(k.run(c.code)) for c in ALL[name]])
                else:
                    r = Reference(str(folder))
                    try:
                        both.append([r.run(c.code) for c in ALL[name]])
                    finally:
                        r.close()
            made[name] = list(zip(*both))
        return made[name]
    return of


def test_there_are_enough_cells():
    assert sum(map(len, ALL.values())) >= 150


@pytest.mark.parametrize('name, number', [(n, i) for n, cs in ALL.items() for i in range(len(cs))],
                         ids=[f'{n}: {c.name}' for n, cs in ALL.items() for c in cs])
def test_a_cell_gives_what_ipykernel_gives(outcomes, name, number):
    cell, (a, b) = ALL[name][number], outcomes(name)[number]
    a, b = canonical(a, cell), canonical(b, cell)
    if cell.differs:
        assert a != b, f'{cell.name} does not differ any more: remove its flag'
    else:
        assert a == b


def test_every_difference_is_argued():
    with open(os.path.join(ROOT, 'docs', 'interpreter.md'), encoding='utf-8') as f:
        headings = set(re.findall(r'^### (\S+)', f.read(), re.M))
    assert {c.differs for cs in ALL.values() for c in cs if c.differs} == headings
