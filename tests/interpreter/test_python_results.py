"""Results of the Python kernel: formats, plots with their numbers, tables with their data, images, and the functions of IPython
where the package is not installed."""
import base64
import glob
import struct
import subprocess

import pytest
from kernel import Kernel, PYTHON


def png(result):
    data = base64.b64decode(result['mime']['image/png'], validate=True)
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    return struct.unpack('>II', data[16:24])


# Tables

def test_a_data_frame_gives_its_data(shared):
    shared.run('import pandas as pd, numpy as np, datetime')
    r = shared.run('pd.DataFrame({"a": [1, 2], "b": [1.5, None], "c": ["x", None], "d": pd.to_datetime(["2024-01-02 03:04", None]),'
                   '"e": [True, False], "f": [float("inf"), 1]})').results[0]
    assert r['data'] == {'a': [1, 2], 'b': [1.5, None], 'c': ['x', None], 'd': ['2024-01-02T03:04:00', None], 'e': [True, False],
                         'f': [None, 1]}
    assert set(r['mime']) == {'text/plain', 'text/html'}
    assert shared.run('pd.DataFrame([[1, 2]], columns=["x", "x"])').results[0]['data'] == {'x': [1], 'x.1': [2]}
    assert shared.run('pd.DataFrame({("a", 1): [3]})').results[0]['data'] == {"('a', 1)": [3]}
    assert shared.run('pd.DataFrame()').results[0]['data'] == {}
    r = shared.run('pd.DataFrame({"o": [{"k": (1, 2)}, [datetime.date(2024, 1, 1)], 10 ** 30, b"x"]})').results[0]
    assert r['data'] == {'o': [{'k': [1, 2]}, ['2024-01-01'], str(10 ** 30), "b'x'"]}


def test_a_table_that_is_too_large_says_so(shared):
    r = shared.run('import pandas as pd\npd.DataFrame({"n": range(300000)})').results[0]
    assert 'data' not in r and r['truncated_data'] == 300000 and 'text/html' in r['mime']


@pytest.fixture(scope='module')
def polars(tmp_path_factory):
    """A folder with the package polars, which Debian does not have."""
    folder = tmp_path_factory.mktemp('polars')
    subprocess.run(['/usr/bin/python3', '-m', 'pip', 'install', '-q', '--no-cache-dir', '--disable-pip-version-check', '--target', str(folder),
                    'polars'], check=True, timeout=180)
    return str(folder)


def test_polars(polars):
    with Kernel() as k:
        k.run(f'import sys; sys.path.insert(0, {polars!r})\nimport polars as pl, datetime')
        r = k.run('pl.DataFrame({"a": [1, None], "b": ["x", "y"], "t": [datetime.datetime(2024, 1, 1), None]})').results[0]
        assert r['data'] == {'a': [1, None], 'b': ['x', 'y'], 't': ['2024-01-01T00:00:00', None]}
        assert '<table' in r['mime']['text/html'] and 'shape: (2, 3)' in r['mime']['text/plain']
        assert 'text/html' in k.run('pl.Series("s", [1, 2])').main


# Plots

@pytest.fixture(scope='module')
def plots():
    with Kernel() as k:
        k.run('import matplotlib.pyplot as plt, numpy as np, datetime')
        yield k


def chart(plots, code):
    r = plots.run(code + '\nplt.show()')
    assert r.error is None, r.error
    assert len(r.results) == 1 and png(r.results[0])
    return r.results[0].get('chart')


def test_line_chart(plots):
    c = chart(plots, 'plt.plot([1, 2, 3], [4.0, 5, 6], label="first")\nplt.plot([1, 2], [2, 1])\nplt.axhline(3)\nplt.title("T")\n'
                     'plt.xlabel("Time (s)")\nplt.ylabel("Size [kg]")')
    assert set(c) == {'type', 'title', 'elements', 'x_label', 'y_label', 'x_unit', 'y_unit', 'x_ticks', 'x_tick_labels', 'x_scale',
                      'y_ticks', 'y_tick_labels', 'y_scale'}
    assert (c['type'], c['title'], c['x_label'], c['x_unit'], c['y_unit']) == ('line', 'T', 'Time (s)', 's', 'kg')
    assert (c['x_scale'], c['y_scale']) == ('linear', 'linear')
    assert c['elements'] == [{'label': 'first', 'points': [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]},
                             {'label': 'Line 1', 'points': [[1.0, 2.0], [2.0, 1.0]]}]
    assert all(isinstance(t, float) for t in c['x_ticks']) and len(c['x_ticks']) == len(c['x_tick_labels'])


def test_line_chart_of_dates_and_logarithms(plots):
    c = chart(plots, 'days = [datetime.date(2024, 1, d) for d in (1, 2, 3)]\nplt.plot(days, [1, 10, 100])\nplt.yscale("log")\n'
                     'plt.ylabel("Y-axis (log scale)")')
    assert (c['x_scale'], c['y_scale'], c['y_unit'], c['x_label']) == ('datetime', 'log', 'log scale', None)
    assert c['elements'][0]['points'][0] == ['2024-01-01', 1.0] or c['elements'][0]['points'][0][0].startswith('2024-01-01T00:00:00')
    assert c['x_ticks'][0].startswith('2024-01-01T')
    c = chart(plots, 'plt.plot(["a", "b"], [1, 2])')
    assert c['x_scale'] == 'categorical' and c['elements'][0]['points'] == [['a', 1.0], ['b', 2.0]]


def test_scatter_chart(plots):
    c = chart(plots, 'plt.scatter([1, 2], [3, 4], label="dots")\nplt.scatter([5], [6])')
    assert c['type'] == 'scatter'
    assert [e['points'] for e in c['elements']] == [[[1.0, 3.0], [2.0, 4.0]], [[5.0, 6.0]]] and c['elements'][0]['label'] == 'dots'


def test_bar_charts(plots):
    c = chart(plots, 'plt.bar(["a", "b"], [3, 5.5])\nplt.xlabel("Name")\nplt.ylabel("Count (n)")')
    assert set(c) == {'type', 'title', 'elements', 'x_label', 'y_label', 'x_unit', 'y_unit'}
    assert (c['type'], c['x_label'], c['y_unit']) == ('bar', 'Name', 'n')
    assert c['elements'] == [{'label': 'a', 'group': 'Group 0', 'value': 3.0}, {'label': 'b', 'group': 'Group 0', 'value': 5.5}]
    c = chart(plots, 'plt.barh(["a", "b"], [3, 5])\nplt.xlabel("Count")\nplt.ylabel("Name")')
    assert [(e['label'], e['value']) for e in c['elements']] == [('a', 3.0), ('b', 5.0)]
    assert (c['x_label'], c['y_label']) == ('Name', 'Count')
    c = chart(plots, 'x = np.arange(2)\nplt.bar(x - 0.2, [1, 2], 0.4, label="m")\nplt.bar(x + 0.2, [3, 4], 0.4, label="w")\nplt.xticks(x, ["p", "q"])')
    assert [(e['label'], e['group'], e['value']) for e in c['elements']] == [
        ('p', 'm', 1.0), ('q', 'm', 2.0), ('p', 'w', 3.0), ('q', 'w', 4.0)]


def test_box_chart(plots):
    for option in ('', ', patch_artist=True'):
        c = chart(plots, f'plt.boxplot([[85, 90, 78, 92, 88, 84], [1, 2, 3, 4, 100]], labels=["A", "B"]{option})\nplt.ylabel("Score")')
        assert c['type'] == 'box_and_whisker' and c['y_label'] == 'Score'
        a, b = c['elements']
        assert a == {'label': 'A', 'min': 78.0, 'first_quartile': 84.25, 'median': 86.5, 'third_quartile': 89.5, 'max': 92.0, 'outliers': []}
        assert b == {'label': 'B', 'min': 1.0, 'first_quartile': 2.0, 'median': 3.0, 'third_quartile': 4.0, 'max': 4.0, 'outliers': [100.0]}


def test_pie_chart(plots):
    for option in ('', ', autopct="%1.0f%%"'):
        c = chart(plots, f'plt.pie([1, 3], labels=["x", "y"]{option})')
        assert set(c) == {'type', 'title', 'elements'} and c['type'] == 'pie'
        assert c['elements'] == [{'label': 'x', 'angle': 90.0, 'radius': 1.0}, {'label': 'y', 'angle': 270.0, 'radius': 1.0}]


def test_several_axes_and_others(plots):
    c = chart(plots, 'fig, ax = plt.subplots(1, 2)\nax[0].plot([1, 2])\nax[1].bar(["a"], [1])\nfig.suptitle("Both")')
    assert (c['type'], c['title']) == ('superchart', 'Both') and [e['type'] for e in c['elements']] == ['line', 'bar']
    assert chart(plots, 'plt.imshow([[1, 2], [3, 4]])')['type'] == 'unknown'
    assert chart(plots, 'plt.gca()') is None


def test_a_show_and_a_last_value_are_two_results(plots):
    r = plots.run('plt.plot([1, 2])\nplt.show()\n7')
    assert [(x['is_main'], set(x['mime'])) for x in r.results] == [(False, {'text/plain', 'image/png'}), (True, {'text/plain'})]


def test_a_picture_that_is_too_large_is_refused(plots):
    r = plots.run('plt.figure(figsize=(200, 200)); plt.plot([1]); plt.show()')
    assert r.end['status'] == 'ok' and 'too large to show' in r.stderr and 'cloche_kernel' not in r.stderr
    assert 'image/png' not in r.results[0]['mime']
    assert plots.run('plt.get_fignums()').text == '[]'


def test_savefig_draws_no_figure_for_a_window(plots, tmp_path):
    r = plots.run(f"""import matplotlib.figure
draw, times = matplotlib.figure.Figure.draw, []
matplotlib.figure.Figure.draw = lambda *a, **k: (times.append(1), draw(*a, **k))[1]
plt.plot([1, 2])
counts = []
for save in (plt.gcf().savefig, plt.savefig):
    times.clear()
    save('{tmp_path}/a.png', transparent=True)
    save('{tmp_path}/a.svg')
    counts.append(len(times))
matplotlib.figure.Figure.draw = draw
plt.gcf().canvas.draw()
shape = plt.gcf().canvas.buffer_rgba().shape
plt.close('all')
counts[0] == counts[1], shape, plt.savefig.__name__""")
    assert r.text == "(True, (480, 640, 4), 'savefig')", r.events


def test_plots_do_not_reach_child_processes(plots):
    r = plots.run('import subprocess, sys\nsubprocess.run([sys.executable, "-c", "import matplotlib.pyplot as p; p.plot([1]); print(5)"], '
                  'capture_output=True, text=True).stdout')
    assert r.text == "'5\\n'"


# Images

def test_images_show_by_value_show_and_save(shared, tmp_path):
    shared.run('from PIL import Image\nim = Image.new("RGB", (6, 4), "blue")')
    assert png(shared.run('im').results[0]) == (6, 4)
    for code in ('im.show()', f'im.save({str(tmp_path / "x.png")!r})', f'im.save({str(tmp_path / "x.jpg")!r})'):
        r = shared.run(code)
        assert len(r.results) == 1 and png(r.results[0]) == (6, 4) and not r.results[0]['is_main']
    assert (tmp_path / 'x.png').exists()
    r = shared.run('import io\ndef library():\n    pass\nexec("def f(im, b): im.save(b, \'png\')", {}, ns := {})\nns["f"](im, io.BytesIO())')
    assert r.results == []  # what a library saves is its own affair


# Without the package IPython

def without_ipython():
    """A Python that has no IPython."""
    for name in sorted(glob.glob('/root/.pyenv/versions/3.1*/bin/python3')):
        if subprocess.run([name, '-c', 'import IPython'], capture_output=True).returncode:
            return [name, PYTHON[1]]
    # Debian's, without the folder of its packages.
    return ['/usr/bin/python3', '-S', PYTHON[1]]


@pytest.fixture(scope='module')
def bare():
    with Kernel(without_ipython()) as k:
        yield k


@pytest.mark.parametrize('code, mime', [
    ('HTML("<b>")', {'text/html': '<b>'}), ('Markdown("# x")', {'text/markdown': '# x'}), ('Latex("$x$")', {'text/latex': '$x$'}),
    ('Math("x^2")', {'text/latex': '$\\displaystyle x^2$'}), ('JSON({"a": 1})', {'application/json': {'a': 1}}),
    ('SVG("<svg></svg>")', {'image/svg+xml': '<svg></svg>'}), ('Javascript("1")', {'application/javascript': '1'}),
    ('Image(data=b"\\x89PNG")', {'image/png': base64.b64encode(b'\x89PNG').decode()}),
    ('Image(url="http://x.test/a.png", width=5)', {'text/html': '<img src="http://x.test/a.png" width="5"/>'}),
    ('Image(b"\\xff\\xd8", format="jpeg")', {'image/jpeg': base64.b64encode(b'\xff\xd8').decode()}),
])
def test_the_classes_of_ipython_display(bare, code, mime):
    bare.run('from IPython.display import *')
    bare.run('from IPython.display import HTML, Markdown, Latex, Math, JSON, SVG, Javascript, Image, display, clear_output')
    r = bare.run(code)
    assert r.error is None and {k: v for k, v in r.main.items() if k != 'text/plain'} == mime
    assert bare.run(f'display({code})').results[0]['mime'] == r.main


def test_the_functions_of_ipython(bare):
    assert bare.run('import IPython; IPython.get_ipython() is get_ipython()').text == 'True'
    assert bare.run('from IPython import get_ipython\nget_ipython().run_line_magic("pwd", "")').text.startswith("'/")
    assert bare.run('from IPython.display import clear_output\nclear_output(wait=True)').of('clear')[0]['wait'] is True
    assert bare.run('%%html\n<i>').results[0]['mime']['text/html'] == '<i>\n'
    assert bare.run('from IPython.core.display import display, HTML\ndisplay(HTML("<u>"))').results[0]['mime']['text/html'] == '<u>'
    assert bare.run('import IPython.nothing').error['name'] == 'ModuleNotFoundError'
    r = bare.run('h = display("a", display_id="i"); h.update("b")').results
    assert [(x['display_id'], x.get('update')) for x in r] == [('i', None), ('i', True)]


def test_warm_modules_give_the_same(tmp_path):
    """A warm process imports before there is a context."""
    code = (f'import sys; sys.path.insert(0, {PYTHON[1].rsplit("/", 1)[0]!r})\nfrom cloche_kernel import kernel\n'
            'kernel.preload(["numpy", "pandas", "matplotlib.pyplot", "no_such_module"])\nkernel.main()')
    with Kernel(['/usr/bin/python3', '-c', code]) as k:
        r = k.run('import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()')
        assert png(r.results[0]) and r.results[0]['chart']['type'] == 'line'
        assert k.run('import pandas as pd\npd.DataFrame({"a": [1]})').results[0]['data'] == {'a': [1]}


@pytest.mark.parametrize('setting', ('', 'import sys\nif hasattr(sys, "set_int_max_str_digits"): sys.set_int_max_str_digits(0)\n'))
def test_integers_that_readers_of_json_refuse(fresh, setting):
    """Python's own reader refuses more than 4,300 digits: the whole answer would be lost."""
    r = fresh.run(setting + '[10 ** 4299, 1]')
    assert r.main['application/json'] == [10 ** 4299, 1]
    r = fresh.run(setting + '[10 ** 4300, 1]')
    assert 'application/json' not in (r.main or {}) and r.end['status'] == 'ok'
    r = fresh.run(setting + 'display({"application/json": {"a": [-(10 ** 5000)], "b": 1}}, raw=True, metadata={"n": 10 ** 6000})')
    assert r.results[0]['mime'] == {'application/json': {'a': ['an integer of about 5001 digits'], 'b': 1}}
    assert r.results[0]['metadata'] == {'n': 'an integer of about 6001 digits'}
