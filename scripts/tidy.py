#!/usr/bin/python3
"""tidy.py BUILD [--analyze] [--jobs N] [FILE...]: clang-tidy over our sources, each file once. Every finding is a failure.

What is checked is in .clang-tidy. Without --analyze all of it but the static analyzer, which takes thirty times as long as
the rest: some 0.2 s of CPU for each file against 7 s. BUILD's compile_commands.json names each file for every library it
is part of, so `clang-tidy -p BUILD` would check it three to eight times; here the command of one of them is used, with
glibc where there is one.

What passed is remembered in ~/.cache/cloche-tidy (or CLOCHE_TIDY_CACHE), by the file, all of our headers that it includes,
.clang-tidy and clang-tidy's version. The next run checks what has changed.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOL = 'clang-tidy-14'  # that of Debian 12: each release has other checks
CACHE = os.environ.get('CLOCHE_TIDY_CACHE') or os.path.expanduser('~/.cache/cloche-tidy')
OLD_SECONDS = 30 * 24 * 3600  # what was not asked for in that time is removed
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)
DROPPED = re.compile(r'^(-fstack-clash-protection|-W.*|-M[DP]|-g\d?)$')  # unknown to clang, or for the compiler only


def chosen(build):
    """File: (folder, arguments) of one command for each source of ours."""
    found = {}
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as f:
        for c in json.load(f):
            path = os.path.normpath(os.path.join(c['directory'], c['file']))
            rel = os.path.relpath(path, ROOT)
            if not rel.startswith('src' + os.sep) or rel.endswith('_fuzz.c'):
                continue
            rank = ('-nostdinc' in c['command'], 'CLOCHE_FAULTS' in c['command'], c['output'])
            if rel not in found or rank < found[rel][0]:
                found[rel] = (rank, c['directory'], c['command'])
    return {rel: (folder, arguments(command, rel)) for rel, (_, folder, command) in sorted(found.items())}


def arguments(command, rel):
    words, out = shlex.split(command), []
    words = words[words.index('cc') + 1 if 'cc' in words else 1:]
    skip = False
    for w in words:
        if skip or DROPPED.match(w) or w in ('-c', '-MQ', '-MF', '-o') or w.endswith(rel):
            skip = not skip and w in ('-MQ', '-MF', '-o')
            continue
        out.append(w)
    return out


class Sums:
    """Sum of a file and all of ours that it includes. Those of the system are the version's business."""

    def __init__(self, build):
        self.folders = (os.path.join(ROOT, 'src'), build)
        self.read = {}

    def one(self, path):
        if path not in self.read:
            try:
                with open(path, 'rb') as f:
                    text = f.read()
            except OSError:
                text = b''
            near = os.path.dirname(path)
            names = [m.decode() for m in INCLUDE.findall(text)] if path.endswith(('.c', '.h')) else []
            below = [next((p for p in (os.path.normpath(os.path.join(d, n)) for d in (near, *self.folders)) if os.path.exists(p)), n)
                     for n in names]
            self.read[path] = (hashlib.sha256(text).digest(), below)
        return self.read[path]

    def all(self, path, facts):
        seen, todo, whole = {path}, [path], hashlib.sha256(facts)
        while todo:
            at = todo.pop()
            sum_, below = self.one(at)
            whole.update(sum_)
            for p in below:
                if p not in seen:
                    seen.add(p)
                    todo.append(p)
        return whole.hexdigest()[:40]


FINDING = re.compile(r'^(?=\S+:\d+:\d+: (?:error|warning): )', re.M)
LEAK = re.compile(r"\S+: error: Potential leak of memory pointed to by '(\w+)'")


def without_cleaned(text, source):
    """Without the leaks of variables that are freed by an attribute (AUTO_FREE, AUTO(...)): the analyzer of this release ignores it."""
    with open(source, encoding='utf-8') as f:
        cleaned = set(re.findall(r'\b(\w+)\s*(?:=|;|,)', ' '.join(re.findall(r'^\s*AUTO[A-Z_]*\b[^;]*;', f.read(), re.M))))
    kept = [one for one in FINDING.split(text) if not ((m := LEAK.match(one)) and m.group(1) in cleaned)]
    return ''.join(kept) if any(FINDING.match(one) for one in kept) else ''


def check(rel, folder, args, analyze):
    """What clang-tidy finds in it, as text; empty: nothing."""
    checks = [] if analyze else ['--checks=-clang-analyzer-*']
    with tempfile.TemporaryDirectory() as tmp:  # given by a list of its own: with `--` clang-tidy searches for .clang-tidy elsewhere
        with open(os.path.join(tmp, 'compile_commands.json'), 'w', encoding='utf-8') as f:
            path = os.path.join(ROOT, rel)
            json.dump([{'directory': folder, 'file': path, 'arguments': ['cc', *args, '-c', path]}], f)
        p = subprocess.run([TOOL, '--quiet', '--warnings-as-errors=*', '-p', tmp, *checks, path],
                           capture_output=True, text=True)
    if p.returncode == 0:
        return ''
    if FINDING.search(p.stdout):
        return without_cleaned(p.stdout.replace(ROOT + os.sep, ''), path)
    return p.stdout.replace(ROOT + os.sep, '') or p.stderr or f'exit {p.returncode}\n'


def sweep():
    for name in os.listdir(CACHE):
        path = os.path.join(CACHE, name)
        if os.stat(path).st_mtime < time.time() - OLD_SECONDS:
            os.unlink(path)


def main():
    a = argparse.ArgumentParser()
    a.add_argument('build')
    a.add_argument('files', nargs='*', help='only these')
    a.add_argument('--analyze', action='store_true', help='with the static analyzer')
    a.add_argument('--jobs', type=int, default=os.cpu_count())
    o = a.parse_intermixed_args()
    if not shutil.which(TOOL):
        print(f'tidy.py: no {TOOL} (package clang-tidy of Debian 12): nothing is checked')
        return 0
    build = os.path.abspath(o.build)
    sources = chosen(build)
    only = {os.path.relpath(f, ROOT) for f in o.files}
    if only - set(sources):
        sys.exit(f'tidy.py: {build} does not compile {sorted(only - set(sources))[0]}')
    os.makedirs(CACHE, exist_ok=True)
    sweep()
    with open(os.path.join(ROOT, '.clang-tidy'), 'rb') as f:
        facts = f.read() + subprocess.run([TOOL, '--version'], capture_output=True, check=True).stdout
    sums, known, bad = Sums(build), 0, []

    def work(rel):
        folder, args = sources[rel]
        marks = [os.path.join(CACHE, sums.all(os.path.join(ROOT, rel), facts + ' '.join(args).replace(ROOT, '').encode()) + kind)
                 for kind in ('.all', '.quick')]
        for mark in marks if not o.analyze else marks[:1]:
            if os.path.exists(mark):
                os.utime(mark)
                return None
        found = check(rel, folder, args, o.analyze)
        if not found:
            with open(marks[not o.analyze], 'w', encoding='utf-8'):
                pass
        return found

    todo = sorted(only or sources)
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for rel, found in zip(todo, pool.map(work, todo)):
            known += found is None
            if found:
                bad.append(rel)
                print(found, end='', flush=True)
    print(f'{len(todo)} files, {known} unchanged, {len(bad)} with findings')
    if not todo:
        print(f'{build} has no sources')
    return 1 if bad or not todo else 0


if __name__ == '__main__':
    sys.exit(main())
