"""The benchmark works: a quick run measures every row, judges every target, and leaves nothing behind."""
import glob
import json
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get('BUILD', 'build'))

ALWAYS = [  # these need no other program
    'no sandbox (posix_spawn)', 'cloche run', 'cloche lifecycle, from the pool', 'cloche lifecycle, one after another',
    'cloche lifecycle, back to back', 'cloche create', 'cloche destroy', 'cloche exec', 'cloche exec, one sandbox alive', 'cloche exec, 40 alive',
    'http create, exec, delete', 'http create, exec, delete, back to back', 'http create', 'http first exec',
    'http delete', 'http exec', 'http GET /healthz', 'http exec, before the crowd',
    'http exec, empty daemon beside it', 'http exec, in the crowd',
]
PEERS = ['bwrap --unshare-all --ro-bind / /', 'bwrap, with its own /proc /dev /tmp', 'crun run', 'crun exec',
         'podman run', 'docker run', 'runsc run', 'bwrap --unshare-all, beside the daemon',
         'crun exec, beside the daemon']


@pytest.fixture(scope='module')
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp('bench')
    path = folder / 'bench.json'
    (folder / 'tmp').mkdir()
    before = set(glob.glob('/var/tmp/cloche-bench.*'))
    run = subprocess.Popen([os.path.join(ROOT, 'tests/bench/run'), '--quick', '--json', str(path)],
                           env={**os.environ, 'BUILD': BUILD, 'TMPDIR': str(folder / 'tmp')},
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    # The runner becomes the benchmark, so this pid is in the names of its containers.
    groups = glob.glob(f'/sys/fs/cgroup/**/cloche-bench-{run.pid}-*', recursive=True)
    left = [p for p in set(glob.glob('/var/tmp/cloche-bench.*')) - before if not in_use(p)]
    return out, json.loads(path.read_text()), os.listdir(folder / 'tmp') + groups + left


def in_use(folder):
    """Another benchmark's, which runs at the same time."""
    for path in glob.glob('/proc/[0-9]*/cmdline'):
        try:
            with open(path, 'rb') as f:
                if folder.encode() in f.read():
                    return True
        except OSError:
            pass
    return False


def test_every_contender_has_a_row(result):
    out, data, _ = result
    rows = {row['name']: row for row in data['rows']}
    assert set(rows) == set(ALWAYS + PEERS)
    for name in ALWAYS:
        assert rows[name]['n'] >= 20, name
    for name, row in rows.items():
        if row['n'] == 0:
            assert row['unusable'], name
            continue
        assert 0 < row['min_ns'] <= row['p50_ns'] <= row['p95_ns'] <= row['p99_ns'], name
        assert name in out
    assert rows['bwrap --unshare-all --ro-bind / /']['n'] >= 20, 'bwrap is a test dependency'


def test_every_target_is_judged_as_it_was_measured(result):
    out, data, _ = result
    assert len(data['targets']) == 27
    for t in data['targets']:
        if t['verdict'] == 'not measured':
            assert t['why_not']
            continue
        low = t['measured_thousandths'] <= t['limit_thousandths'] + 1
        high = t['measured_thousandths'] >= t['limit_thousandths'] - 1
        met = low if t['bound'] == 'at most' else high
        assert met or t['verdict'] == 'MISSED', t
        assert t['what'] in out
    missed = [t for t in data['targets'] if t['verdict'] == 'MISSED']
    assert out.count('MISSED') == len(missed) + bool(missed)


def test_a_quick_run_leaks_nothing(result):
    leaks = [t for t in result[1]['targets'] if t['part'] == 'leak']
    assert len(leaks) == 7
    assert [t['what'] for t in leaks if t['verdict'] != 'met'] == []


def test_the_daemon_is_measured_in_a_quick_run_too(result):
    facts = {(f['part'], f['what']): f['value_thousandths'] for f in result[1]['facts']}
    for what in ['pipe', 'pipe of text', 'stdout, WebSocket', 'stdout, background and followed', 'text, events',
                 'file, write', 'file, read']:
        assert facts['stream', what] > 0, what
    assert facts['http', 'create, exec, delete by 8 clients'] > 0
    verdicts = {t['what']: t['verdict'] for t in result[1]['targets'] if t['part'] in ('http', 'stream', 'crowd')}
    assert len(verdicts) == 9
    assert {w for w, v in verdicts.items() if v == 'not measured'} <= {
        'exec p99 in the crowd / in an empty daemon', 'daemon RSS, idle again after the crowd',
        'http exec p50 / crun exec p50'}


def test_nothing_is_left_of_the_peers_and_the_daemons(result):
    assert result[2] == []


@pytest.mark.parametrize('args', [['--only', 'nothing'], ['--seconds', 'x'], ['--what'], ['extra']])
def test_bad_options_are_one_clear_line(result, args):
    run = subprocess.run([os.path.join(BUILD, 'cloche-bench'), *args], capture_output=True, text=True, timeout=30)
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1].startswith('cloche-bench: ')
