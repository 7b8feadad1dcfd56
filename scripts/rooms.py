#!/usr/bin/python3
"""Checks who calls whom between the rooms of src/service, from the symbols of a build: no new circle. And in all of src/
that no more than six files of a folder call each other in a circle, unless a reason is given.

    scripts/rooms.py [--upside-down] [--strict] [BUILD]     # build/ when not said
    --upside-down: as if ORDER were the other way round; --strict: as if INSIDE were empty. Both must fail

A room is a folder, but for what FILES says. ORDER has the rooms, the lowest first: a room may call those before it, and none
behind it. Within a room, files that call each other in a circle are counted: more than six need a reason in INSIDE, and
in the other folders of src/, those of programs included, in ARGUED, which counts calls of functions alone. A reason is for one
circle of that many files: a second one in the folder is refused.
"""
import os
import re
import subprocess
import sys

LIBRARY = 'service'
ORDER = ['link', 'access', 'state', 'request', 'device', 'sandbox', 'file', 'network', 'secret', 'exec', 'context', 'port', 'checkpoint', 'image', 'template', 'run', 'service.c']
# What a caller can ask for, read and written: each room has its part of it, and all of it calls nothing but itself and what is below.
FILES = {'network/conf.c': 'request', 'network/request.c': 'request', 'secret/request.c': 'request', 'exec/request.c': 'request',
         'sandbox/request.c': 'request'}
INSIDE = {  # room: (files, why)
    'sandbox': (9, 'the states of one sandbox: each change of it ends, or begins again, what another began'),
    'image': (8, 'the steps of one build: each begins the next one, and any of them may end the build'),
    'exec': (8, 'the states of one exec: reading, time and limits each may end it, and its end stops them'),
}
CIRCLE_MAX = 6
ARGUED = {  # folder: (files, why)
    'agent/restore': (9, 'one restore: each process is made of a plan, by helpers that make further processes; any failure ends all'),
    'egress': (11, 'the steps of one connection: each begins the next, and each may refuse, retry or end it'),
    'http': (10, 'one connection and what it becomes (requests, WebSocket, tunnel, TLS): each writes to it, and may end it'),
    'store': (8, 'one database: a statement first settles rows that are pending, which are written by statements; a failure closes it'),
}


def objects(build, src):
    """{file in the room: its object}, of whichever flavour was built."""
    found = {}
    for flavour in ('serve', 'host'):
        folder = os.path.join(build, f'lib{LIBRARY}-{flavour}.a.p')
        if not os.path.isdir(folder):
            continue
        for root, _, names in os.walk(os.path.join(src, LIBRARY)):
            for name in names:
                path = os.path.relpath(os.path.join(root, name), os.path.join(src, LIBRARY))
                if not name.endswith('.c') or name.endswith(('_test.c', '_fuzz.c')):
                    continue
                found[path] = os.path.join(folder, f'src_{LIBRARY}_{path.replace("/", "_")}.o')
        return found
    return found


def folders(build, src):
    """{folder of src/: {file: its object}} of all programs, and all libraries but LIBRARY, of whichever flavour was built."""
    found = {}
    for folder in sorted(os.listdir(build)):
        if not re.fullmatch(r'(lib\w+-(static|serve|agent|host)\.a|cloche[a-z-]*)\.p', folder) or folder.startswith(f'lib{LIBRARY}-'):
            continue
        for name in os.listdir(os.path.join(build, folder)):
            if name.startswith('src_') and name.endswith('.c.o'):
                found.setdefault(name[4:-2], os.path.join(build, folder, name))
    out = {}
    for root, _, names in os.walk(src):
        room_ = os.path.relpath(root, src)
        for name in names:
            obj = found.get(os.path.join(room_, name).replace('/', '_'))
            if obj:
                out.setdefault(room_, {})[os.path.join(room_, name)] = obj
    return out


def symbols(path, kinds='TDBRVW'):
    """What an object defines and what it needs."""
    defined, needed = set(), set()
    for line in subprocess.run(['nm', path], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind in kinds:
            defined.add(name)
        elif kind == 'U':
            needed.add(name)
    return defined, needed


def calls(files, functions=False):
    """{(caller's file, callee's file): the functions; and, unless only these count, the data}"""
    of, needs = {}, {}
    for path, obj in files.items():
        defined, needs[path] = symbols(obj, 'TW' if functions else 'TDBRVW')
        of.update((name, path) for name in defined)
    edges = {}
    for path, names in needs.items():
        for name in names:
            if of.get(name, path) != path:
                edges.setdefault((path, of[name]), set()).add(name)
    return edges


def room(path):
    return FILES[path] if path in FILES else path.split('/')[0] if '/' in path else 'service.c'


def circles(nodes, edges):
    """Strongly connected components of more than one node (Tarjan)."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in edges.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            one = []
            while True:
                w = stack.pop()
                on.discard(w)
                one.append(w)
                if w == v:
                    break
            if len(one) > 1:
                found.append(sorted(one))

    sys.setrecursionlimit(10000)
    for v in sorted(nodes):
        if v not in index:
            visit(v)
    return found


def too_large(name, found, argued, say):
    """Circles of more than CIRCLE_MAX files but the largest, if that is no larger than what was argued."""
    found = sorted((one for one in found if len(one) > CIRCLE_MAX), key=len, reverse=True)
    if name in argued and not found:
        say(f'{name}: no circle of more than {CIRCLE_MAX} files is left: take it out of the list')
    if name in argued and found and len(found[0]) <= argued[name][0]:
        found = found[1:]
    for one in found:
        say(f'{len(one)} files of {name} call each other in a circle: {" ".join(one)}')


def check(files, order, known_circles, say):
    edges = calls(files)
    for path in files:
        if room(path) not in order:
            say(f'{LIBRARY}/{path}: no room {room(path)}: add it to ORDER')
            return
    for path in FILES:
        if path not in files:
            say(f'no file {LIBRARY}/{path}: take it out of FILES')
    for (a, b), names in sorted(edges.items()):
        if order.index(room(a)) < order.index(room(b)):
            say(f'{a} calls up into {b}: {", ".join(sorted(names))}()')
    for name in order:
        inner = {}
        for a, b in edges:
            if room(a) == room(b) == name:
                inner.setdefault(a, set()).add(b)
        too_large(name, circles([f for f in files if room(f) == name], inner), known_circles, say)


def check_folders(found, argued, say):
    for name, files in sorted(found.items()):
        edges = {}
        for a, b in calls(files, functions=True):
            edges.setdefault(a, set()).add(b)
        too_large(name, circles(files, edges), argued, say)
    for name in argued:
        if name not in found:
            say(f'no folder {name}, or not built: see ARGUED')


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    args = [a for a in sys.argv[1:] if not a.startswith('--')]
    order = ORDER[::-1] if '--upside-down' in sys.argv else ORDER
    build = args[0] if args else os.environ.get('BUILD', os.path.join(root, 'build'))
    files = objects(build, os.path.join(root, 'src'))
    problems = []
    missing = [path for path, obj in files.items() if not os.path.exists(obj)]
    if not files or missing:
        print(f'{build}: not built{": " + " ".join(missing) if missing else ""}')
        return 1
    check(files, order, {} if '--strict' in sys.argv else INSIDE, problems.append)
    check_folders(folders(build, os.path.join(root, 'src')), {} if '--strict' in sys.argv else ARGUED, problems.append)
    print('\n'.join(problems))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
