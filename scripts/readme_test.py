#!/usr/bin/python3
"""Runs every ```sh block of README.md, in order, in a clean copy of the tree. TAP output.

Each block is one bash with -e and without a terminal; the folder it ends in is where the next one starts. `make install`
goes to a prefix inside the copy, which is on PATH.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMEOUT = 600


def blocks(text):
    """(line number, script) of each block marked sh."""
    for m in re.finditer(r'^```sh[^\S\n]*\n(.*?)^```[^\S\n]*$', text, re.M | re.S):
        yield text.count('\n', 0, m.start()) + 1, m.group(1)


def copy_tree(to):
    """The files git knows or would add, as they are now."""
    names = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=ROOT,
                           capture_output=True, check=True).stdout.decode().split('\0')
    for name in filter(None, names):
        src, dst = os.path.join(ROOT, name), os.path.join(to, name)
        if not os.path.lexists(src):
            continue
        os.makedirs(os.path.dirname(dst), exist_ok=True)
        shutil.copy2(src, dst, follow_symlinks=False)


def main():
    with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
        found = list(blocks(f.read()))
    print(f'1..{len(found)}')
    if not found:
        print('# README.md has no sh blocks')
        return 1
    failed = 0
    with tempfile.TemporaryDirectory(prefix='cloche-readme-') as tmp:
        tree = os.path.join(tmp, 'cloche')
        copy_tree(tree)
        # A copy is still a repository: what a reader got from git clone.
        subprocess.run('git init -q && git add -A && git -c user.name=t -c user.email=t@t commit -qm copy', shell=True,
                       cwd=tree, check=True)
        prefix = os.path.join(tmp, 'prefix')
        env = dict(os.environ, CLOCHE_README_TEST='1', PREFIX=prefix, PATH=f'{prefix}/bin:{os.environ["PATH"]}')
        for name in ('BUILD', 'MAKEFLAGS', 'MAKELEVEL', 'MFLAGS'):
            env.pop(name, None)
        where = tree
        for number, (line, script) in enumerate(found, 1):
            wrapped = f'trap \'pwd >"{tmp}/where"\' EXIT\n{script}'
            try:
                p = subprocess.run(['bash', '-euo', 'pipefail', '-c', wrapped], cwd=where, env=env, timeout=TIMEOUT,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                why, output = f'exit {p.returncode}', p.stdout
                ok = p.returncode == 0
            except subprocess.TimeoutExpired as e:
                ok, why, output = False, f'still running after {TIMEOUT} s', e.stdout or b''
            print(f'{"ok" if ok else "not ok"} {number} - README.md:{line}', flush=True)
            if not ok:
                failed += 1
                print(f'# {why}')
                for text in (script + output.decode(errors='replace')).splitlines()[-60:]:
                    print(f'#   {text}')
            if os.path.exists(f'{tmp}/where'):
                with open(f'{tmp}/where', encoding='utf-8') as f:
                    where = f.read().rstrip('\n')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
