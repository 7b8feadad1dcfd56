#!/usr/bin/python3
"""Checks who calls whom between the rooms of src/service, from the symbols of a build: no new circle.

    scripts/rooms.py [--strict] [BUILD]     # build/ when not said; strict: as if UPWARDS and INSIDE were empty

A room is a folder. ORDER has the rooms, the lowest first: a room may call those before it. A call upwards makes a circle
possible, so each that there is stands in UPWARDS, by room and function, with the reason. One that is not there is refused,
and so is one that is there and not called any more. Within a room, files that call each other in a circle are counted: more
than six need a reason in INSIDE.
"""
import os
import re
import subprocess
import sys

LIBRARY = 'service'
ORDER = ['link', 'access', 'state', 'sandbox', 'file', 'network', 'secret', 'exec', 'port', 'checkpoint', 'template', 'service.c']
UPWARDS = {  # (caller, callee): (functions, why)
    ('state', 'sandbox'): ('sandbox_store', 'when the clock was set, all times are stored again'),
    ('state', 'exec'): ('exec_store', 'likewise'),
    ('sandbox', 'exec'): (
        'exec_any_between exec_any_read exec_clock exec_expect exec_frame exec_group_came exec_let_go exec_new exec_read_all '
        'exec_request_parse exec_revive exec_revived exec_sync exec_synced exec_system_came exec_take_up exec_unref',
        'the agent\'s frames, groups and memory images are a sandbox\'s, and what they say is about its execs'),
    ('sandbox', 'file'): ('file_worker_give file_workers_drop', 'workers that waited for /usr; idle ones before hibernation'),
    ('sandbox', 'network'): ('net_request_copy net_request_free net_request_parse net_request_same net_request_write',
                             'a part of what a create asks for'),
    ('sandbox', 'secret'): ('secret_uses_done secret_uses_parse secret_uses_same secret_uses_write', 'likewise'),
    ('sandbox', 'checkpoint'): ('checkpoint_make_hidden', 'hibernation is a checkpoint that is not listed'),
    ('sandbox', 'template'): ('pool_yield sandbox_from_pool', 'a create takes one that is ready, or its room'),
    ('network', 'exec'): ('exec_start_waiting', 'the first exec waits for egress'),
    ('checkpoint', 'template'): ('template_on', 'a checkpoint that a template is based on cannot be deleted'),
}
INSIDE = {  # room: (files, why)
    'sandbox': (9, 'the states of one sandbox: each change of it ends, or begins again, what another began'),
    'exec': (8, 'the states of one exec: reading, time and limits each may end it, and its end stops them'),
}
CIRCLE_MAX = 6


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


def symbols(path):
    """What an object defines and what it needs."""
    defined, needed = set(), set()
    for line in subprocess.run(['nm', path], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind in 'TDBRVW':
            defined.add(name)
        elif kind == 'U':
            needed.add(name)
    return defined, needed


def calls(files):
    """{(caller's file, callee's file): the functions}"""
    of, needs = {}, {}
    for path, obj in files.items():
        defined, needs[path] = symbols(obj)
        of.update((name, path) for name in defined)
    edges = {}
    for path, names in needs.items():
        for name in names:
            if of.get(name, path) != path:
                edges.setdefault((path, of[name]), set()).add(name)
    return edges


def room(path):
    return path.split('/')[0] if '/' in path else 'service.c'


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


def upwards(edges):
    """{(caller's room, callee's room): functions} of calls against ORDER."""
    up = {}
    for (a, b), names in edges.items():
        a, b = room(a), room(b)
        if a != b and ORDER.index(a) < ORDER.index(b):
            up.setdefault((a, b), set()).update(names)
    return up


def check(files, known_calls, known_circles, say):
    edges = calls(files)
    for path in files:
        if room(path) not in ORDER:
            say(f'{LIBRARY}/{path}: no room {room(path)}: add it to ORDER')
            return
    found = upwards(edges)
    for pair in sorted(set(found) | set(known_calls)):
        known = set(known_calls.get(pair, ('', ''))[0].split())
        for name in sorted(found.get(pair, set()) - known):
            callers = sorted(a for (a, b), names in edges.items() if name in names and room(a) == pair[0])
            say(f'{pair[0]} calls up into {pair[1]}: {name}() in {", ".join(callers)}')
        for name in sorted(known - found.get(pair, set())):
            say(f'{pair[0]} does not call {name}() of {pair[1]} any more: take it out of UPWARDS')
    for name in ORDER:
        inner = {}
        for a, b in edges:
            if room(a) == room(b) == name:
                inner.setdefault(a, set()).add(b)
        for one in circles([f for f in files if room(f) == name], inner):
            if len(one) > known_circles.get(name, (CIRCLE_MAX, ''))[0]:
                say(f'{len(one)} files of {name} call each other in a circle: {" ".join(one)}')


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    strict = '--strict' in sys.argv[1:]
    args = [a for a in sys.argv[1:] if a != '--strict']
    build = args[0] if args else os.environ.get('BUILD', os.path.join(root, 'build'))
    files = objects(build, os.path.join(root, 'src'))
    problems = []
    missing = [path for path, obj in files.items() if not os.path.exists(obj)]
    if not files or missing:
        print(f'{build}: not built{": " + " ".join(missing) if missing else ""}')
        return 1
    check(files, {} if strict else UPWARDS, {} if strict else INSIDE, problems.append)
    print('\n'.join(problems))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
