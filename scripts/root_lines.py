#!/usr/bin/python3
"""root_lines.py BUILD [-v]: the lines of our own code in the program that stays root, cloche-warden, against a budget.

Counts lines with code (no blank ones, no comments, nothing of test builds) of the .c files whose objects the linker takes: those that main needs,
and what these need. src/base, src/linux and src/proto are apart: everything is built on them. docs/design/0017-root.md
says what could leave the process. -v: every file.
"""
import json
import os
import re
import subprocess
import sys

from layers import Layers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = 'cloche-warden'
APART = ('base', 'linux', 'proto')
BUDGET = 15000  # what there is today; it may only go down

COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)


FAULTS = re.compile(r'^#ifdef CLOCHE_FAULTS\n.*?(?:^#else\n(.*?))?^#endif\n', re.S | re.M)  # not in what is shipped


def code_lines(path):
    with open(path, encoding='utf-8') as f:
        text = COMMENT.sub(lambda m: m.group() if m.group()[0] in '"\'' else '\n' * m.group().count('\n'), f.read())
    text = FAULTS.sub(lambda m: m.group(1) or '', text)
    return sum(1 for line in text.splitlines() if line.strip())


def objects(build):
    """Source of each object that the program may be linked with, and of its main file, as the linker meets them."""
    layers = ['warden', *dict.fromkeys(Layers(os.path.join(ROOT, 'src/layers.txt')).below['warden'])]
    place = {f'lib{layer.replace("/", "_")}-static.a.p': i for i, layer in enumerate(layers)} | {PROGRAM + '.p': -1}
    found = []
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as f:
        for c in json.load(f):
            at = place.get(c['output'].split('/')[0])
            if at is not None:
                found.append((at, os.path.join(build, c['output']), os.path.normpath(os.path.join(c['directory'], c['file']))))
    return [x[1:] for x in sorted(found)]


def symbols(path):
    defined, needed = set(), set()
    for line in subprocess.run(['nm', path], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind == 'U':
            needed.add(name)
        elif kind in 'TDRBC':
            defined.add(name)
    return defined, needed


def linked(build):
    """What the linker takes: the main file, and for each symbol that is missing the object that has it."""
    source, need, owner = {}, {}, {}
    start = []
    for path, src in objects(build):
        if not os.path.exists(path):
            continue
        defined, need[path] = symbols(path)
        source[path] = src
        if path.split(os.sep)[-2] == PROGRAM + '.p':
            start.append(path)
        else:
            for name in defined:
                if owner.setdefault(name, path) != path:
                    sys.exit(f'{name} is in {source[owner[name]]} and in {src}')
    taken, todo = set(start), list(start)
    while todo:
        for name in need[todo.pop()]:
            path = owner.get(name)
            if path and path not in taken:
                taken.add(path)
                todo.append(path)
    return sorted(source[p] for p in taken)


def main():
    build = os.path.abspath(sys.argv[1])
    rooms, total = {}, 0
    for path in linked(build):
        rel = os.path.relpath(path, os.path.join(ROOT, 'src'))
        if rel.startswith('..') or rel.split(os.sep)[0] in APART:
            continue
        n = code_lines(path)
        room = os.path.dirname(rel)
        rooms[room] = rooms.get(room, 0) + n
        total += n
        if '-v' in sys.argv:
            print(f'{n:6} {rel}')
    for room, n in sorted(rooms.items()):
        print(f'{n:6} {room}')
    print(f'{total:6} in {PROGRAM}, of {BUDGET}')
    if not total:
        print(f'{build} has no {PROGRAM}')
    return 1 if not total or total > BUDGET else 0


if __name__ == '__main__':
    sys.exit(main())
