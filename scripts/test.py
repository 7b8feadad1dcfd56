#!/usr/bin/python3
"""make test: runs every part, goes on after a failure, adds up.

    scripts/test.py [PART...]

The last line is "N passed, N failed". With CLOCHE_NO_SKIP=1 a skip counts as a failure. Each part's output is in
build/test-logs/<part>.log; a failed part's end is shown.

Parts that run sandboxes on this host run one after the other, since they look for what is left behind. What only
compiles, or has a machine of its own, goes on beside them and is counted at its place.

A few tests that failed get a second look when nothing else runs: what then passes was held up by the machine's load. It
counts as passed, and is listed as unsteady, so that it is mended. More than a few are failures, without a second look.
"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get('BUILD') or 'build'))
LOGS = os.path.join(BUILD, 'test-logs')
NO_SKIP = os.environ.get('CLOCHE_NO_SKIP') == '1'
FUZZ_SECONDS = int(os.environ.get('CLOCHE_FUZZ_SECONDS', '3'))
# Storms are shorter here than when run by hand.
os.environ.setdefault('CLOCHE_STORMS', '50')
os.environ.setdefault('CLOCHE_SOAK', '8')
MESON = '/usr/bin/meson'
AGENT_MAX = 1 << 20
ELF_AARCH64 = 183
RUNNING = set()
SECOND_LOOKS = 6  # failures of one part


class Part:
    """One part's tests, counted, and its log."""

    def __init__(self, name, beside=False, low=False):
        self.name = name
        self.beside = beside  # others are at work,
        self.low = low  # and must not be held up
        self.seconds = 0
        self.passed = self.failed = self.skipped = 0
        self.notes = []
        self.second = []  # functions that run failed tests again: the names of those that pass now
        os.makedirs(LOGS, exist_ok=True)
        self.path = os.path.join(LOGS, name + '.log')
        self.log = open(self.path, 'w', encoding='utf-8')

    def run(self, *argv, timeout=900, **kw):
        """Runs a command into the log. Returns its exit code; a program that hangs is killed with its children."""
        self.log.write(f'$ {" ".join(argv)}\n')
        self.log.flush()
        if self.low:
            # Sessions share the processors evenly, however nice their processes are: the session has to be, too.
            argv = ('sh', '-c', 'echo 19 2>&- >/proc/self/autogroup; exec nice -n 19 "$@"', 'sh', *argv)
            timeout *= 4  # of the time that is left over
        p = subprocess.Popen(argv, cwd=kw.get('cwd', ROOT), env=dict(os.environ, **kw.get('env', {})),
                             stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
                             start_new_session=True)
        RUNNING.add(p)
        try:
            return p.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
            p.wait()
            self.log.write(f'killed after {timeout} s\n')
            return 124
        finally:
            RUNNING.discard(p)

    def check(self, what, ok):
        """Counts one thing as a test."""
        if ok:
            self.passed += 1
        else:
            self.fail(what)
        return ok

    def fail(self, what):
        self.failed += 1
        self.notes.append(what)

    def look_again(self):
        """What failed once more, alone."""
        if not 0 < self.failed <= SECOND_LOOKS or not self.second:
            return
        self.log = open(self.path, 'a', encoding='utf-8')
        self.low = False
        for name in {name for fn in self.second for name in fn()}:
            if name in self.notes:
                self.notes[self.notes.index(name)] = f'unsteady: {name} passed when run again, alone'
                self.failed -= 1
                self.passed += 1
        self.log.close()

    def skip(self, what):
        self.skipped += 1
        self.notes.append('skipped: ' + what)

    def tap(self, source, text, ok):
        """Counts the lines of a TAP stream; a program that died or fell short is one more failure."""
        seen = bad = planned = 0
        for line in text.splitlines():
            m = re.match(r'(not )?ok\b[ \d]*-? ?(.*)', line)
            plan = re.match(r'1\.\.(\d+)', line)
            if plan:
                planned = int(plan.group(1))
            if not m:
                continue
            seen += 1
            if m.group(1):
                bad += 1
                self.fail(f'{source}: {m.group(2)}')
            elif '# SKIP' in m.group(2).upper():
                self.skip(f'{source}: {m.group(2)}')
            else:
                self.passed += 1
        if seen < planned or (not ok and not bad) or not seen:
            self.fail(f'{source}: ended early' if seen < planned else f'{source}: failed')

    def meson_setup(self, folder, *args, env=None):
        if os.path.exists(os.path.join(folder, 'build.ninja')):
            return True
        shutil.rmtree(folder, ignore_errors=True)
        return self.run(MESON, 'setup', folder, *args, env=env or {}) == 0

    def meson_test(self, folder, *suites):
        """Builds and runs the unit tests of a build folder, and counts each."""
        result = os.path.join(folder, 'meson-logs/testlog.json')
        if os.path.exists(result):
            os.unlink(result)
        args = [x for s in suites for x in ('--suite', s)] + (['-t', '10'] if self.low else [])
        self.run(MESON, 'test', '-C', folder, '--print-errorlogs', *args)
        if not os.path.exists(result):
            return self.fail('the unit tests did not build')
        before = len(self.notes)
        with open(result, encoding='utf-8') as f:
            tests = [json.loads(line) for line in f]
            for t in tests:
                name, text, ok = t['name'].split(' / ')[-1], t.get('stdout') or '', t['result'] == 'OK'
                if re.search(r'^1\.\.\d', text, re.M):
                    self.tap(name, text, ok)
                elif t['result'] == 'SKIP':
                    self.skip(name)
                else:
                    self.check(name, ok)  # its exit code is all it says
        bad = [t['name'].split(' / ')[-1] for t in tests if t['result'] not in ('OK', 'SKIP')]
        notes = self.notes[before:]
        if bad:
            self.second.append(lambda: self.meson_again(folder, bad, notes))

    def meson_again(self, folder, programs, notes):
        """A program that passes as a whole clears all that was said of it."""
        good = [n for n in programs if self.run(MESON, 'test', '-C', folder, '--print-errorlogs', n) == 0]
        return [x for x in notes if x in good or any(x.startswith(n + ': ') for n in good)]


def setup_args():
    return ['-Dwerror=true'] if os.environ.get('WERROR') == '1' else []


def part_build(p):
    """The programs as they ship, and the ones with injected faults."""
    ok = p.meson_setup(BUILD, '-Dprefix=' + (os.environ.get('PREFIX') or '/usr/local'), *setup_args())
    p.check('build', ok and p.run('ninja', '-C', BUILD, 'programs', 'faulty') == 0)
    agent = os.path.join(BUILD, 'cloche-agent')
    if os.path.exists(agent):
        p.check('the agent stays below 1 MB', os.path.getsize(agent) < AGENT_MAX)


def part_layers(p):
    p.check('src/ keeps to its layers', p.run('scripts/layers.py') == 0)
    with tempfile.TemporaryDirectory() as tmp:
        for name, text in (('base/a.c', '#include "linux/b.h"\n'), ('linux/b.h', '')):
            os.makedirs(os.path.dirname(os.path.join(tmp, name)), exist_ok=True)
            with open(os.path.join(tmp, name), 'w', encoding='utf-8') as f:
                f.write(text)
        p.check('an include that points up is refused', p.run('scripts/layers.py', tmp) == 1)


def part_unit(p):
    """gcc: with glibc, and with musl."""
    p.meson_test(BUILD)


def build_asan(p):
    folder = os.path.join(ROOT, 'build-asan')
    args = ('-Db_sanitize=address,undefined', '-Doptimization=1', '-Dprograms=false', '-Dwerror=true')
    return p.check('setup', p.meson_setup(folder, *args)) and p.run('ninja', '-C', folder) == 0


def part_asan(p):
    if build_asan(p):
        p.meson_test(os.path.join(ROOT, 'build-asan'))
    else:
        p.fail('build')


def part_clang(p):
    folder = os.path.join(ROOT, 'build-clang')
    if p.check('setup', p.meson_setup(folder, '-Doptimization=1', '-Dwerror=true', env={'CC': 'clang'})):
        p.check('programs', p.run('ninja', '-C', folder, 'programs') == 0)
        p.check('tests', p.run('ninja', '-C', folder) == 0)


def part_aarch64(p):
    """All programs; the tests that need no kernel feature beyond what the emulator has are run."""
    folder, sysroot = os.path.join(ROOT, 'build-aarch64'), os.path.join(ROOT, 'build-sysroot-arm64')
    if not p.check('sysroot', p.run('scripts/sysroot.sh', sysroot) == 0):
        return
    if not p.check('setup', p.meson_setup(folder, '--cross-file', sysroot + '/cross.ini', '-Ddaemon=false',
                                           '-Dwerror=true')):
        return
    p.check('build', p.run('ninja', '-C', folder, 'programs') == 0)
    agent = os.path.join(folder, 'cloche-agent')
    if os.path.exists(agent):
        with open(agent, 'rb') as f:
            machine = struct.unpack('<H', f.read(20)[18:])[0]
        p.check('the agent is an aarch64 program', machine == ELF_AARCH64)
        p.check('the agent stays below 1 MB', os.path.getsize(agent) < AGENT_MAX)
    p.meson_test(folder, 'base', 'proto')


def build_fuzz(p):
    folder = os.path.join(ROOT, 'build-fuzz')
    args = ('-Dprograms=false', '-Dfuzz=true', '-Dwerror=true')
    return (p.check('setup', p.meson_setup(folder, *args, env={'CC': 'clang'})) and
            p.check('build', p.run('ninja', '-C', folder, 'fuzzers') == 0))


def part_fuzz(p):
    folder = os.path.join(ROOT, 'build-fuzz')
    if not build_fuzz(p):
        return
    targets = sorted(n for n in os.listdir(folder) if n.startswith('fuzz-') and not n.endswith('.p'))
    if not targets:
        p.fail('no fuzz targets')
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, ok in zip(targets, pool.map(lambda name: fuzz_one(p, folder, name), targets)):
            p.check(name, ok)


def fuzz_one(p, folder, name):
    """One target, for a moment; several run at once, so each has a log of its own."""
    corpus = os.path.join(folder, 'corpus', name)
    os.makedirs(corpus, exist_ok=True)
    apart = Part(name)
    ok = apart.run(os.path.join(folder, name), corpus, f'-max_total_time={FUZZ_SECONDS}', '-timeout=10',
                   '-rss_limit_mb=1024', '-print_final_stats=1', f'-artifact_prefix={corpus}-',
                   timeout=FUZZ_SECONDS + 60) == 0
    apart.log.close()
    if not ok:
        with open(apart.path, encoding='utf-8', errors='replace') as f:
            p.log.write(f.read())
    return ok


def part_demo(p):
    p.check('make demo', p.run('scripts/demo.sh', env={'BUILD': BUILD}) == 0)


def run_pytest(p, folder):
    path = os.path.join(ROOT, folder)
    if not os.path.isdir(path) or not any(n.startswith('test_') for n in os.listdir(path)):
        return p.skip(f'no tests in {folder}')
    result = os.path.join(LOGS, p.name + '.xml')
    if os.path.exists(result):
        os.unlink(result)
    cache = os.path.join(LOGS, p.name + '.cache')
    shutil.rmtree(cache, ignore_errors=True)
    argv = ('/usr/bin/python3', '-m', 'pytest', '-q', '-o', 'cache_dir=' + cache, '--junitxml', result)
    env = {'CLOCHE_BUILD': BUILD, 'PYTHONDONTWRITEBYTECODE': '1'}
    code = p.run(*argv, folder, env=env, timeout=1500)
    cases = list(junit(result))
    for name, bad, skipped in cases:
        if bad:
            p.fail(name)
        elif skipped is not None:
            p.skip(f'{name}: {skipped}')
        else:
            p.passed += 1
    if code != 0 and not any(bad for _, bad, _ in cases):
        p.fail(f'pytest {folder}: exit {code}')

    def again():
        if os.path.exists(result):
            os.unlink(result)
        p.run(*argv, '--lf', '--lfnf=none', folder, env=env)
        return [name for name, bad, skipped in junit(result) if not bad and skipped is None]
    p.second.append(again)


def junit(path):
    """(name, whether it failed, why it was skipped or None) of each test. A test with two entries failed at its end."""
    cases = {}
    if os.path.exists(path):
        for case in xml.etree.ElementTree.parse(path).iter('testcase'):
            name = f'{case.get("classname")}::{case.get("name")}'
            skipped = case.find('skipped')
            bad = case.find('failure') is not None or case.find('error') is not None
            old = cases.get(name, (False, None))
            cases[name] = (bad or old[0], skipped.get('message') if skipped is not None else old[1])
    return [(name, bad, skipped) for name, (bad, skipped) in cases.items()]


def part_functional(p):
    run_pytest(p, 'tests/functional')


def part_security(p):
    run_pytest(p, 'tests/security')


def part_crash(p):
    run_pytest(p, 'tests/crash')


def part_compat(p):
    run_pytest(p, 'tests/compat/noid')


def part_sdk(p):
    """The TypeScript SDK from a clean checkout: its own tests start the daemon of this build."""
    folder = os.path.join(ROOT, 'sdk', 'typescript')
    if p.run('npm', 'ci', '--no-audit', '--no-fund', cwd=folder) or p.run('npm', 'run', 'build', cwd=folder):
        p.fail('npm ci, npm run build')
        return
    code = p.run('npm', 'test', cwd=folder, env={'CLOCHE_BUILD': BUILD})
    p.log.flush()
    with open(p.path, encoding='utf-8', errors='replace') as f:
        text = f.read()
    for word, field in (('pass', 'passed'), ('fail', 'failed'), ('skipped', 'skipped')):
        setattr(p, field, getattr(p, field) + sum(int(n) for n in re.findall(rf'^# {word} (\d+)$', text, re.M)))
    bad = [f'npm test: failure {n + 1}' for n in range(p.failed)]
    p.notes += bad
    if not p.passed or (code and not p.failed):
        p.fail(f'npm test: exit {code}, {p.passed} passed')
    p.second.append(lambda: bad if p.run('npm', 'test', cwd=folder, env={'CLOCHE_BUILD': BUILD}) == 0 else [])


def part_v2(p):
    """The suite on a kernel with cgroup version 2, in a virtual machine; it counts for itself."""
    if not os.path.exists(os.path.join(ROOT, 'tests/v2/run')):
        return p.skip('no tests/v2/run')
    code = p.run('tests/v2/run', env={'CLOCHE_BUILD': BUILD})
    with open(p.path, encoding='utf-8', errors='replace') as f:
        text = f.read()
    counts = re.findall(r'^(\d+) passed, (\d+) failed', text, re.M)
    if counts:
        p.passed, p.failed = map(int, counts[-1])
    if not counts or (code != 0 and not p.failed):
        p.fail(f'tests/v2/run: exit {code}')
    bad = re.findall(r'not ok \d+ - (.*)', text)
    p.notes += bad
    p.second.append(lambda: bad if p.run('tests/v2/run', env={'CLOCHE_BUILD': BUILD}) == 0 else [])


def part_readme(p):
    if not os.path.exists(os.path.join(ROOT, 'README.md')):
        return p.skip('no README.md')
    code = p.run('scripts/readme_test.py')
    with open(p.path, encoding='utf-8', errors='replace') as f:
        p.tap('README', f.read(), code == 0)


# What is quick and what the rest depends on comes first.
PARTS = {
    'layers': part_layers,
    'build': part_build,
    'unit': part_unit,
    'demo': part_demo,
    'functional': part_functional,
    'security': part_security,
    'crash': part_crash,
    'compat': part_compat,
    'sdk': part_sdk,
    'asan': part_asan,
    'clang': part_clang,
    'fuzz': part_fuzz,
    'aarch64': part_aarch64,
    'readme': part_readme,
    'v2': part_v2,
}
# What goes on beside others: from when a part is over (or at once, if it is not asked for), one after the other. Whole
# parts, or only the builds of some that have to run alone. All but the machine, which measures time, with the lowest
# priority.
BESIDE = (
    ('build', (('fuzz', build_fuzz, False), ('asan', build_asan, False), ('clang', part_clang, True),
               ('aarch64', part_aarch64, True))),
    ('sdk', (('v2', part_v2, True),)),
)


class Beside(threading.Thread):
    """Jobs that run while the parts do."""

    def __init__(self, jobs):
        super().__init__(daemon=True)
        self.jobs, self.parts = jobs, {}
        self.over = {name: threading.Event() for name, _, _ in jobs}
        self.start()

    def run(self):
        for name, fn, whole in self.jobs:
            p = Part(name if whole else name + '-build', beside=True, low=fn is not part_v2)
            run_part(p, fn)
            if whole:
                self.parts[name] = p
            self.over[name].set()


def run_part(p, fn):
    start = time.monotonic()
    try:
        fn(p)
    except Exception as e:  # the runner's own mistakes must not hide the other parts
        p.fail(f'{type(e).__name__}: {e}')
    p.log.close()
    p.seconds = time.monotonic() - start
    return p


def show(p):
    bad = p.failed + (p.skipped if NO_SKIP else 0)
    print(f'{"FAIL" if bad else "ok":4}  {p.name:12} {p.passed:4} passed {p.failed:3} failed {p.skipped:3} skipped '
          f'{p.seconds:6.1f} s{" beside others" if p.beside else ""}', flush=True)
    for note in p.notes:
        print(f'      {note}')
    if p.failed:
        with open(p.path, encoding='utf-8', errors='replace') as f:
            for line in f.read().splitlines()[-60:]:
                print(f'      | {line}')


def run_all(names):
    """Every part, in order: (passed, failed, skipped)."""
    waiting, beside, done = list(BESIDE), {}, []
    for name in [None] + names:
        if name:
            if name in beside:
                beside[name].over[name].wait()
            done.append(beside[name].parts.get(name) if name in beside else None)
            done[-1] = done[-1] or run_part(Part(name), PARTS[name])
            show(done[-1])
        for entry in waiting[:]:
            after, jobs = entry
            jobs = [j for j in jobs if j[0] in names]
            if after == name or (name is None and after not in names):
                waiting.remove(entry)
                thread = Beside(jobs) if len(names) > 1 else None
                beside.update({j[0]: thread for j in jobs if thread})
    for p in done:
        if p.failed:
            before = p.failed
            p.look_again()
            if p.failed < before:
                print('second look:')
                show(p)
    return tuple(sum(getattr(p, x) for p in done) for x in ('passed', 'failed', 'skipped'))


def heed_signals():
    """What runs here must not be told to ignore signals, only because who started us was (nohup, a background job)."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with what it started


def main():
    heed_signals()
    names = sys.argv[1:] or (os.environ.get('PARTS') or '').split() or list(PARTS)
    if os.environ.get('CLOCHE_README_TEST') == '1':
        # `make test` in the README: show that it works, without running all of this inside itself.
        names = ['layers', 'build', 'unit']
    unknown = [n for n in names if n not in PARTS]
    if unknown:
        sys.exit(f'test.py: no part {unknown[0]}; there are: {" ".join(PARTS)}')
    try:
        passed, failed, skipped = run_all(names)
    finally:
        for p in list(RUNNING):
            os.killpg(p.pid, 9)
    if skipped:
        print(f'{skipped} skipped' + (', which counts as failed here' if NO_SKIP else ''))
    failed += skipped if NO_SKIP else 0
    print(f'{passed} passed, {failed} failed', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
