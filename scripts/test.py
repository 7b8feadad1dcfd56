#!/usr/bin/python3
"""make test: runs every part, goes on after a failure, adds up.

    scripts/test.py [PART...]

The last line is "N passed, N failed". With CLOCHE_NO_SKIP=1 a skip counts as a failure. Each part's output is in
build/test-logs/<part>.log; of a failed part, the lines that say why are shown. What has failed in the end is listed last.

When the programs are built, parts run beside each other (LANES). What looks for things that were left behind has a /tmp,
/run/cloche and cgroups of its own, or asks only for its own.

A few tests that failed get a second look when nothing else runs: what then passes was held up by the machine's load. It
counts as passed, and is listed as unsteady, so that it is mended. More than a few are failures, without a second look.
"""
import concurrent.futures
import glob
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
FUZZ_SECONDS = int(os.environ.get('CLOCHE_FUZZ_SECONDS', '1'))
# Storms are shorter here than when run by hand.
os.environ.setdefault('CLOCHE_STORMS', '50')
os.environ.setdefault('CLOCHE_SOAK', '8')
os.environ.setdefault('CLOCHE_CHAIN', '26')
# The copies of the tree that tests build have the same objects, wherever they are: see also scripts/readme_test.py.
os.environ.setdefault('CCACHE_NOHASHDIR', '1')
os.environ.setdefault('CCACHE_BASEDIR', ROOT)
os.environ.setdefault('CCACHE_DEPEND', '1')
# `make test` as a block of the README: show that it works, without running all of this inside itself.
IN_README = os.environ.get('CLOCHE_README_TEST') == '1'
MESON = '/usr/bin/meson'
AGENT_MAX = 1 << 20
ELF_AARCH64 = 183
RUNNING = set()
SECOND_LOOKS = 6  # failures of one part, or programs that failed


class Part:
    """One part's tests, counted, and its log."""

    def __init__(self, name, low=False):
        self.name = name
        self.low = low  # others are at work and must not be held up
        self.start, self.seconds, self.cpu = time.monotonic(), 0, 0
        self.passed = self.failed = self.skipped = 0
        self.same = 0  # of the failed ones: those of a program that is counted already
        self.notes = []
        self.second = []  # functions that run failed tests again: the names of those that pass now
        os.makedirs(LOGS, exist_ok=True)
        self.path = os.path.join(LOGS, name + '.log')
        self.log = open(self.path, 'w', encoding='utf-8')

    def run(self, *argv, timeout=1800, **kw):
        """Runs a command into the log. Returns its exit code; a program that hangs is killed with its children."""
        self.log.write(f'$ {" ".join(argv)}\n')
        self.log.flush()
        if self.low:
            # Sessions share the processors evenly, however nice their processes are: the session has to be, too.
            argv = ('sh', '-c', 'echo 19 2>&- >/proc/self/autogroup; exec nice -n 19 "$@"', 'sh', *argv)
        p = subprocess.Popen(argv, cwd=kw.get('cwd', ROOT), env=dict(os.environ, **kw.get('env', {})),
                             stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
                             start_new_session=True)
        RUNNING.add(p)
        killed = []
        late = threading.Timer(timeout, lambda: killed.append(os.killpg(p.pid, 9)))
        late.start()
        try:
            _, status, used = os.wait4(p.pid, 0)
            self.cpu += used.ru_utime + used.ru_stime
            p.returncode = os.waitstatus_to_exitcode(status)
        finally:
            late.cancel()
            RUNNING.discard(p)
        if killed:
            self.log.write(f'killed after {timeout} s\n')
        return 124 if killed else p.returncode

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
        if not 0 < self.failed <= SECOND_LOOKS + self.same or not self.second:
            return
        self.log = open(self.path, 'a', encoding='utf-8')
        self.low = False
        for name in {name for fn in self.second for name in fn()}:
            if name in self.notes:
                self.notes[self.notes.index(name)] = f'unsteady: {name} passed when run again, alone'
                if self.failed:  # a suite may name more than it counts: no other part's failure is made up for by that
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
        for entry in glob.glob(os.path.join(folder, '*')):
            if entry != LOGS:  # this run's own
                shutil.rmtree(entry) if os.path.isdir(entry) and not os.path.islink(entry) else os.unlink(entry)
        return self.run(MESON, 'setup', folder, *args, env=env or {}) == 0

    def meson_test(self, folder, *suites):
        """Builds and runs the unit tests of a build folder, and counts each."""
        result = os.path.join(folder, 'meson-logs/testlog.json')
        if os.path.exists(result):
            os.unlink(result)
        args = [x for s in suites for x in ('--suite', s)] + ['-t', '10' if self.low else '3']
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
            # The first test that fails leaves things for the others of its program to fall over.
            self.same += max(len(notes) - len(bad), 0)
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
    targets = ('programs',) if IN_README else ('programs', 'faulty', 'cloche-bench', 'cloche-net-load')
    p.check('build', ok and p.run('ninja', '-C', BUILD, *targets) == 0)
    if not IN_README:
        # For tests/functional/test_null_tier.py, which would build it by itself, but without the compiler's cache.
        null = os.path.join(ROOT, 'build-null')
        ok = p.meson_setup(null, '-Dnull_tier=true', *setup_args())
        p.check('build with the null tier', ok and p.run('ninja', '-C', null, 'cloche-serve', 'cloche-warden') == 0)
        p.check('no circle of calls between the rooms of service, no large one within a folder', p.run('scripts/rooms.py', BUILD) == 0)
        p.check('a call upwards is refused', p.run('scripts/rooms.py', '--upside-down', BUILD) == 1)
        p.check('a large circle within a room is refused', p.run('scripts/rooms.py', '--strict', BUILD) == 1)
    agent = os.path.join(BUILD, 'cloche-agent')
    if os.path.exists(agent):
        p.check('the agent stays below 1 MB', os.path.getsize(agent) < AGENT_MAX)
    p.check('what stays root keeps to its budget of lines', p.run('scripts/root_lines.py', BUILD) == 0)


def part_layers(p):
    p.check('src/ keeps to its layers', p.run('scripts/layers.py') == 0)
    with tempfile.TemporaryDirectory() as tmp:
        for name, text in (('base/a.c', '#include "linux/b.h"\n'), ('linux/b.h', ''),
                           ('layers.txt', 'base:\nlinux: base\n')):
            os.makedirs(os.path.dirname(os.path.join(tmp, name)), exist_ok=True)
            with open(os.path.join(tmp, name), 'w', encoding='utf-8') as f:
                f.write(text)
        p.check('an include that points up is refused', p.run('scripts/layers.py', tmp) == 1)
    for text in ('int a = SPEC_VM;', 'int *a = &b_tier;'):
        with tempfile.TemporaryDirectory() as tmp:
            for name, content in (('tier/b/b.c', 'const struct tier_ops b_tier = {\n};\n'), ('service/a.c', text + '\n'),
                                  ('layers.txt', 'tier:\nservice: tier\n')):
                os.makedirs(os.path.dirname(os.path.join(tmp, name)), exist_ok=True)
                with open(os.path.join(tmp, name), 'w', encoding='utf-8') as f:
                    f.write(content)
            p.check(f'code that asks for a tier by name ({text}) is refused', p.run('scripts/layers.py', tmp) == 1)
    header = 'struct sandbox {\n\tchar id[8];\n\tunsigned refs;\n};\n'
    for where in ('service/struct.h', 'service/sandbox.h'):
        with tempfile.TemporaryDirectory() as tmp:
            for name, text in (('api/a.c', '#include "api/a.h"\n'), ('api/a.h', '#include "service/service.h"\n'),
                               ('service/service.h', f'#include "{where}"\n'), (where, header),
                               ('layers.txt', 'service:\napi: service\n')):
                os.makedirs(os.path.dirname(os.path.join(tmp, name)), exist_ok=True)
                with open(os.path.join(tmp, name), 'w', encoding='utf-8') as f:
                    f.write(text)
            p.check(f'members of a struct in {where} that api could use are refused', p.run('scripts/layers.py', tmp) == 1)
    p.check('C is written as clang-format writes it', p.run('scripts/format.sh') == 0)
    with tempfile.TemporaryDirectory(dir=LOGS) as tmp:  # below the checkout, whose .clang-format it takes
        with open(os.path.join(tmp, 'a.c'), 'w', encoding='utf-8') as f:
            f.write('int a(void) { return 1; }\n')
        if shutil.which('clang-format-14'):
            p.check('C that is written otherwise is refused', p.run('scripts/format.sh', os.path.join(tmp, 'a.c')) != 0)
    p.check('links, paths, cells and words of the documents', p.run('scripts/docs.py') == 0)
    for text in ('[a](b.md)', '`src/no/such.c`', '|' + 'x' * 200 + '|', 'it stands'):
        with tempfile.TemporaryDirectory() as tmp:
            with open(os.path.join(tmp, 'a.md'), 'w', encoding='utf-8') as f:
                f.write(text + '\n')
            p.check(f'a document with {text[:15]} is refused', p.run('scripts/docs.py', tmp) == 1)
    p.check('every refusal has a reason, and the lists of reasons are those of the table', p.run('scripts/reasons.py', '--check') == 0)
    p.check('nothing that headers declare is unused', p.run('scripts/dead.py') == 0)
    with tempfile.TemporaryDirectory() as tmp:
        os.mkdir(os.path.join(tmp, 'src'))
        for name, text in (('a.h', 'int a_used(int x);\nint a_dead(int x); /* like a_used() */\n'),
                           ('a.c', 'int a_used(int x)\n{\n}\n\nint a_dead(int x)\n{\n}\n'),
                           ('b.c', 'int f = a_used(1); /* and a_dead(1) */\n')):
            with open(os.path.join(tmp, 'src', name), 'w', encoding='utf-8') as f:
                f.write(text)
        p.check('a function that is not called is found', p.run('scripts/dead.py', tmp) == 1)
    p.check('messages are plain and listed in tests/messages.txt', p.run('scripts/messages.py', '--check') == 0)
    with tempfile.TemporaryDirectory() as tmp:
        for folder in ('src/base', 'tests'):
            os.makedirs(os.path.join(tmp, folder))
        with open(os.path.join(tmp, 'src/base/a.c'), 'w', encoding='utf-8') as f:
            f.write('int f(struct err *e)\n{\n\treturn err_set(e, ERR_INVALID, -EINVAL, "a list "\n\t\t"is wanted");\n}\n')
        p.check('a message that is not listed is refused', p.run('scripts/messages.py', '--check', tmp) == 1)
        p.run('scripts/messages.py', '--update', tmp)
        p.check('a message that is not plain is refused', p.run('scripts/messages.py', '--check', tmp) == 1)
        with open(os.path.join(tmp, 'src/base/a.c'), 'w', encoding='utf-8') as f:
            f.write('int f(struct err *e)\n{\n\treturn err_set(e, ERR_INVALID, -EINVAL, "must be an array");\n}\n')
        p.run('scripts/messages.py', '--update', tmp)
        p.check('a plain message that is listed passes', p.run('scripts/messages.py', '--check', tmp) == 0)


def part_tidy(p):
    """clang-tidy: all checks but the static analyzer on every file; the analyzer takes half an hour of CPU, so only with CLOCHE_LONG=1."""
    long = ['--analyze'] if os.environ.get('CLOCHE_LONG') == '1' else []
    # With an empty cache, behind all others' work: more than half an hour.
    p.check('nothing that clang-tidy finds', p.run('scripts/tidy.py', BUILD, *long, '--jobs', '1', timeout=3600) == 0)
    if not shutil.which('clang-tidy-14'):
        return
    with tempfile.TemporaryDirectory(dir=LOGS) as tmp:  # a tree of one file with a finding, and its cache
        for folder in ('src/base', 'scripts', 'build', 'cache'):
            os.makedirs(os.path.join(tmp, folder))
        for name in ('.clang-tidy', 'scripts/tidy.py'):
            shutil.copy(os.path.join(ROOT, name), os.path.join(tmp, name))
        with open(os.path.join(tmp, 'build/compile_commands.json'), 'w', encoding='utf-8') as f:
            json.dump([{'directory': os.path.join(tmp, 'build'), 'command': 'cc -c ../src/base/a.c -o a.o',
                        'file': '../src/base/a.c', 'output': 'a.o'}], f)
        for what, body, code in (('a finding is refused', 'return a == a;', 1), ('a file without one passes', 'return a;', 0)):
            with open(os.path.join(tmp, 'src/base/a.c'), 'w', encoding='utf-8') as f:
                f.write('int f(int a);\nint f(int a)\n{\n\t' + body + '\n}\n')
            p.check(what, p.run(os.path.join(tmp, 'scripts/tidy.py'), os.path.join(tmp, 'build'),
                                env={'CLOCHE_TIDY_CACHE': os.path.join(tmp, 'cache')}) == code)


def part_unit(p):
    """With gcc and musl. Part asan runs all with clang and glibc; a third time would tell nothing new."""
    p.meson_test(BUILD, *(('base', 'proto') if IN_README else ('musl',)))


def build_asan(p):
    """With clang: the tests, and the fuzz targets on the same libraries."""
    folder = os.path.join(ROOT, 'build-asan')
    args = ('-Db_sanitize=address,undefined', '-Db_lundef=false', '-Doptimization=0', '-Dprograms=false', '-Dfuzz=true',
            '-Dwerror=true', '-Ddebug=false', '-Dc_args=-gline-tables-only')  # a third of the time that -O1 -g takes
    if not (p.check('setup', p.meson_setup(folder, *args, env={'CC': 'clang'})) and
            p.check('build', p.run('ninja', '-C', folder) == 0)):
        return False
    for name in ('cloche-files', 'cloche-vm-files'):  # looked for beside the test itself
        place = os.path.join(folder, name)
        if not os.path.lexists(place):
            os.symlink(os.path.join(BUILD, name), place)
    return True


def part_asan(p):
    if build_asan(p):
        p.meson_test(os.path.join(ROOT, 'build-asan'))


def part_clang(p):
    """The programs that are built with musl; what the daemon is made of, and all tests, is what asan builds."""
    folder = os.path.join(ROOT, 'build-clang')
    if p.check('setup', p.meson_setup(folder, '-Doptimization=0', '-Ddebug=false', '-Ddaemon=false', '-Dwerror=true',
                                      env={'CC': 'clang'})):
        p.check('programs', p.run('ninja', '-C', folder, 'programs') == 0)


def part_aarch64(p):
    """All programs; the tests that need no kernel feature beyond what the emulator has are run."""
    folder, sysroot = os.path.join(ROOT, 'build-aarch64'), os.path.join(ROOT, 'build-sysroot-arm64')
    if not p.check('sysroot', p.run('scripts/sysroot.sh', sysroot) == 0):
        return
    if not p.check('setup', p.meson_setup(folder, '--cross-file', sysroot + '/cross.ini', '-Ddaemon=false',
                                           '-Dwerror=true', '-Doptimization=1', '-Ddebug=false')):
        return
    p.check('build', p.run('ninja', '-C', folder, 'programs') == 0)
    p.check('kernel', p.run('scripts/vm_kernel.py', '--arch', 'arm64', '--unpacked', sysroot, folder + '/vm') == 0)
    agent = os.path.join(folder, 'cloche-agent')
    if os.path.exists(agent):
        with open(agent, 'rb') as f:
            machine = struct.unpack('<H', f.read(20)[18:])[0]
        p.check('the agent is an aarch64 program', machine == ELF_AARCH64)
        p.check('the agent stays below 1 MB', os.path.getsize(agent) < AGENT_MAX)
    p.meson_test(folder, 'base', 'proto')


def part_fuzz(p):
    folder = os.path.join(ROOT, 'build-asan')
    if not build_asan(p):
        return
    targets = sorted(os.path.relpath(f, folder) for where in ('', 'src/*')
                     for f in glob.glob(os.path.join(folder, where, 'fuzz-*')) if os.path.isfile(f))
    if not targets:
        p.fail('no fuzz targets')
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, ok in zip(targets, pool.map(lambda name: fuzz_one(p, folder, name), targets)):
            p.check(name, ok)


def fuzz_one(p, folder, name):
    """One target, for a moment; several run at once, so each has a log of its own."""
    corpus = os.path.join(folder, 'corpus', os.path.basename(name))
    os.makedirs(corpus, exist_ok=True)
    apart = Part(os.path.basename(name))
    ok = apart.run(os.path.join(folder, name), corpus, f'-max_total_time={FUZZ_SECONDS}', '-timeout=10',
                   '-rss_limit_mb=1024', '-print_final_stats=1', f'-artifact_prefix={corpus}-',
                   timeout=FUZZ_SECONDS + 60) == 0
    apart.log.close()
    p.cpu += apart.cpu
    if not ok:
        with open(apart.path, encoding='utf-8', errors='replace') as f:
            p.log.write(f.read())
    return ok


def part_demo(p):
    p.check('make demo', p.run('scripts/demo.sh', env={'BUILD': BUILD}) == 0)


class Shared:
    """Tests that several pytest processes run at once; see scripts/share.py."""

    def __init__(self, p, args, lanes):
        self.p, self.args, self.lanes = p, args, lanes
        self.workers = []
        self.lock = threading.Lock()
        self.claims = tempfile.TemporaryDirectory(prefix=p.name + '-taken-', dir=LOGS)  # /tmp is another one there

    def work(self):
        """One process's share: all that nobody else has taken. Whether it was the last process."""
        with self.lock:
            worker = Worker(self, len(self.workers))
            self.workers.append(worker)
        worker.run()
        with self.lock:
            self.lanes -= 1
            return self.lanes == 0

    def count(self):
        p, cases = self.p, [c for w in self.workers for c in junit(w.result)]
        for name, bad, skipped in cases:
            if bad:
                p.fail(name)
            elif skipped is not None:
                p.skip(f'{name}: {skipped}')
            else:
                p.passed += 1
        if not cases:
            p.fail(f'{p.name}: no tests')
        for w in self.workers:
            if w.code not in (0, NO_TESTS) and not any(bad for _, bad, _ in junit(w.result)):
                p.fail(f'pytest {p.name}: exit {w.code}')
            p.second.append(w.again)
        collected = [int(n.split('.')[0]) for n in os.listdir(self.claims.name) if n.endswith('.collected')]
        if collected != [len(cases)] and not p.failed:
            p.fail(f'{collected} tests were found, {len(cases)} have run')
        self.claims.cleanup()


NO_TESTS = 5  # pytest's exit code


class Worker:
    def __init__(self, shared, number):
        self.p, self.shared = shared.p, shared
        base = os.path.join(LOGS, f'{shared.p.name}-{number}')
        self.result, self.cache, self.code = base + '.xml', base + '.cache', None
        shutil.rmtree(self.cache, ignore_errors=True)
        self.argv = ('/usr/bin/python3', '-m', 'pytest', '-q', '-o', 'cache_dir=' + self.cache, '--junitxml', self.result)
        self.env = {'CLOCHE_BUILD': BUILD, 'PYTHONDONTWRITEBYTECODE': '1'}

    def forget(self):
        if os.path.exists(self.result):
            os.unlink(self.result)

    def run(self):
        self.forget()
        apart = Part(os.path.basename(self.result)[:-len('.xml')])  # a log of its own
        env = {**self.env, 'CLOCHE_SHARE': self.shared.claims.name, 'PYTHONPATH': os.path.join(ROOT, 'scripts'),
               'PYTHONHASHSEED': '0'}  # all must collect the same
        self.code = apart.run(*self.argv, '-p', 'share', *self.shared.args, env=env, timeout=1500)
        apart.log.close()
        with open(apart.path, encoding='utf-8', errors='replace') as f, self.shared.lock:
            self.p.cpu += apart.cpu
            self.p.log.write(f.read())

    def again(self):
        cases = list(junit(self.result))
        if not any(bad for _, bad, _ in cases):
            return []
        self.forget()
        self.p.run(*self.argv, '--lf', '--lfnf=none', *self.shared.args, env=self.env)
        return [name for name, bad, skipped in junit(self.result) if not bad and skipped is None]


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


VM_ARM64 = 'tests/functional/test_vm_arm64.py'  # of what part aarch64 has built


def vm_tests():
    return sorted(os.path.relpath(f, ROOT) for f in glob.glob(os.path.join(ROOT, 'tests/functional/test_vm*.py')))


# Parts that are pytest's: where their tests are. Machines are emulated, which takes a processor each: they are a part.
PYTEST = {
    'functional': lambda: ['tests/functional', *('--ignore=' + f for f in vm_tests())],
    'security': lambda: ['tests/security'],
    'crash': lambda: ['tests/crash'],
    'compat': lambda: ['tests/compat/noid'],
    'interpreter': lambda: ['tests/interpreter'],
    'vm': lambda: [f for f in vm_tests() if f != VM_ARM64],
    'vm-arm64': lambda: [VM_ARM64],
}


def part_sdk_python(p):
    """The Python SDK, installed as users do, on all Pythons that are here: its own tests start the daemon of this build."""
    counted(p, os.path.join(ROOT, 'sdk', 'python', 'scripts', 'run_tests.py'))


def part_frameworks(p):
    """The adapters for agent frameworks, with the published packages, and the examples."""
    counted(p, os.path.join(ROOT, 'scripts', 'frameworks.py'))


def counted(p, *command):
    """A program that runs tests by itself and ends with how many passed, failed and were skipped."""
    code = p.run(*command, env={'CLOCHE_BUILD': BUILD})
    p.log.flush()
    with open(p.path, encoding='utf-8', errors='replace') as f:
        text = f.read()
    counts = [int(n) for n in re.findall(r'^# (?:pass|fail|skipped) (\d+)$', text, re.M)]
    if len(counts) != 3:
        return p.fail(f'{os.path.relpath(command[0], ROOT)}: exit {code}, no counts')
    p.passed, p.failed, p.skipped = counts
    bad = re.findall(r'^not ok - (.*)$', text, re.M)
    p.notes += bad
    p.second.append(lambda: bad if p.run(*command, env={'CLOCHE_BUILD': BUILD}) == 0 else [])


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
    if not p.passed or (code and not p.failed):  # one that took too long is neither passed nor failed
        bad = [f'npm test: exit {code}, {p.passed} passed']
        p.fail(bad[0])
    p.second.append(lambda: bad if p.run('npm', 'test', cwd=folder, env={'CLOCHE_BUILD': BUILD}) == 0 else [])


def part_v2(p):
    """The suite on a kernel with cgroup version 2, in a virtual machine; it counts for itself."""
    if not os.path.exists(os.path.join(ROOT, 'tests/v2/run')):
        return p.skip('no tests/v2/run')
    if os.environ.get('CLOCHE_LONG') == '1' and p.run('tests/v2/reboot', env={'CLOCHE_BUILD': BUILD}) != 0:
        p.fail('tests/v2/reboot')
    if os.environ.get('CLOCHE_LONG') == '1' and p.run('tests/v2/limits', env={'CLOCHE_BUILD': BUILD}) != 0:
        p.fail('tests/v2/limits')
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


PARTS = {
    'layers': part_layers,
    'build': part_build,
    'tidy': part_tidy,
    'unit': part_unit,
    'demo': part_demo,
    'sdk': part_sdk,
    'sdk-python': part_sdk_python,
    'frameworks': part_frameworks,
    'asan': part_asan,
    'clang': part_clang,
    'fuzz': part_fuzz,
    'aarch64': part_aarch64,
    'readme': part_readme,
    'v2': part_v2,
}
# What comes first: the rest depends on it.
FIRST = ('layers', 'build')
NEED_BUILD = ('tidy', 'unit', 'demo', 'sdk', 'sdk-python', 'frameworks', 'v2', *PYTEST)  # the other parts build for themselves
# Then lanes, all at once: each does its parts one after the other. Most tests wait more than they work, so there are
# more lanes than processors; what only compiles fills the gaps, with the lowest priority. A part of pytest's that is in
# several lanes is shared by them. "build x" is x's build, ahead of it; "after x" waits.
TESTS = ('functional', 'security', 'crash', 'compat')
LANES = (
    TESTS, TESTS, TESTS,
    ('unit', 'demo', 'sdk', 'sdk-python', 'frameworks', 'readme', 'interpreter'),
    ('clang', 'aarch64'),
    ('tidy',),
    ('build asan', 'after crash', 'asan', 'fuzz'),
    # Emulated machines take processors and measure time: not beside all the others.
    ('after functional', 'after unit', 'v2', 'after aarch64', 'vm-arm64', 'after crash', 'vm'),
    ('after crash', 'vm'),
)
BUILDS = {'asan': build_asan}
LOW = ('clang', 'aarch64', 'tidy')


class Run:
    """The parts that were asked for."""

    def __init__(self, names):
        self.names, self.parts, self.shares = names, [], {}
        self.over = {name: threading.Event() for name in names}
        self.lock = threading.Lock()

    def all(self):
        for name in FIRST:
            self.step(name)
        lanes = [threading.Thread(target=self.lane, args=(lane,), daemon=True) for lane in LANES]
        for t in lanes:
            t.start()
        for t in lanes:
            t.join()
        for name in self.names:
            if not self.over[name].is_set():
                lost = Part(name)
                lost.fail(f'{name} did not run to its end')
                self.end(lost)
        for p in self.parts:
            before = p.failed
            p.look_again()
            if p.failed < before:
                print('second look:')
                show(p)
        return tuple(sum(getattr(p, x) for p in self.parts) for x in ('passed', 'failed', 'skipped'))

    def lane(self, steps):
        for step in steps:
            self.step(step)

    def step(self, step):
        kind, name = step.split() if ' ' in step else ('', step)
        if name not in self.names:
            return
        if kind == 'after':
            self.over[name].wait()
        elif kind == 'build':
            run_part(Part(name + '-build', low=True), BUILDS[name])
        elif name in PYTEST:
            self.share(name)
        else:
            self.end(run_part(Part(name, low=name in LOW), PARTS[name]))

    def share(self, name):
        with self.lock:
            if name not in self.shares:
                self.shares[name] = Shared(Part(name), PYTEST[name](), sum(name in lane for lane in LANES))
            shared = self.shares[name]
        if shared.work():  # the last
            self.end(run_part(shared.p, lambda p: shared.count()))

    def end(self, p):
        with self.lock:
            self.parts.append(p)
            show(p)
        self.over[p.name].set()


def with_build(names):
    """The parts that were asked for, and the programs that they run: a fresh checkout has none, and older ones would be tested instead."""
    return names if 'build' in names or not set(names) & set(NEED_BUILD) else ['build', *names]


def run_part(p, fn):
    try:
        fn(p)
    except Exception as e:  # the runner's own mistakes must not hide the other parts
        p.fail(f'{type(e).__name__}: {e}')
    p.log.close()
    p.seconds = time.monotonic() - p.start
    return p


def show(p):
    bad = p.failed + (p.skipped if NO_SKIP else 0)
    print(f'{"FAIL" if bad else "ok":4}  {p.name:12} {p.passed:4} passed {p.failed:3} failed {p.skipped:3} skipped '
          f'{p.seconds:6.1f} s, {p.cpu:5.0f} s of CPU', flush=True)
    for note in p.notes:
        print(f'      {note}')
    if p.failed:
        with open(p.path, encoding='utf-8', errors='replace') as f:
            lines = f.read().splitlines()
        told = [x for x in lines if re.match(r'E  |not ok|.*\berror: ', x)]
        for line in told[-12:] or lines[-30:]:
            print(f'      | {line[:240]}')


def heed_signals():
    """What runs here must not be told to ignore signals, only because who started us was (nohup, a background job)."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with what it started


def main():
    heed_signals()
    names = sys.argv[1:] or (os.environ.get('PARTS') or '').split() or [*PARTS, *PYTEST]
    if IN_README:
        names = ['layers', 'build', 'unit']
    unknown = [n for n in names if n not in PARTS and n not in PYTEST]
    if unknown:
        sys.exit(f'test.py: no part {unknown[0]}; there are: {" ".join([*PARTS, *PYTEST])}')
    try:
        run = Run(with_build(names))
        passed, failed, skipped = run.all()
    finally:
        for p in list(RUNNING):
            os.killpg(p.pid, 9)
    if skipped:
        print(f'{skipped} skipped' + (', which counts as failed here' if NO_SKIP else ''))
    failed += skipped if NO_SKIP else 0
    for p in run.parts:
        for note in p.notes if p.failed else ():
            print(f'{p.name}: {note}')
    print(f'{passed} passed, {failed} failed', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
