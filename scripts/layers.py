#!/usr/bin/python3
"""Checks the shape of src/: an #include points down or stays, files and functions stay short.

Prints file:line for each breach and exits 1. The order is that of docs/design/0001-engine.md and of meson.build.
"""
import os
import re
import sys

BELOW = {
    'base': [],
    'linux': ['base'],
    'proto': ['base'],
    'agent': ['proto', 'linux', 'base'],
    'warden': ['vm', 'proto', 'linux', 'base'],
    'dump': ['proto', 'linux', 'base'],
    'vm': ['proto', 'linux', 'base'],
    'guest': ['agent', 'vm', 'warden', 'proto', 'linux', 'base'],
    'driver': ['vm', 'warden', 'proto', 'linux', 'base'],
    'cli': ['driver', 'vm', 'warden', 'proto', 'linux', 'base'],
    'probe': ['base'],
    'seccomp': ['base'],
    'tar': ['proto', 'base'],
    'tls': ['base'],
    'egress': ['tls', 'proto', 'linux', 'base'],
    'http': ['base'],
    'audit': ['base'],
    'store': ['base'],
    'service': ['tls', 'store', 'audit', 'driver', 'vm', 'warden', 'proto', 'linux', 'base'],
    'api': ['http', 'service', 'tls', 'store', 'audit', 'driver', 'vm', 'warden', 'proto', 'linux', 'base'],
    'daemon': ['api', 'http', 'service', 'tls', 'store', 'audit', 'driver', 'vm', 'warden', 'proto', 'linux', 'base'],
    'client': ['audit', 'base'],
}
GENERATED = {'config.h': None, 'tools/seccomp_filter.h': ['linux']}  # name: who may include it
# What others say to a program, without being built on it.
SPOKEN = {'egress/msg.h': ['driver', 'cli', 'service', 'api', 'daemon']}
FILE_MAX = 800
FUNCTION_MAX = 100

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


def check_include(src, layer, name):
    """What is wrong with layer's #include "name", or None."""
    if name in GENERATED:
        allowed = GENERATED[name]
        return None if allowed is None or layer in allowed else f'{layer} may not include {name}'
    if '/' not in name:
        return f'"{name}" needs its folder: "{layer}/{name}"'
    target = name.split('/')[0]
    if not os.path.exists(os.path.join(src, name)):
        return f'no file src/{name}'
    if target != layer and target not in BELOW[layer] and layer not in SPOKEN.get(name, []):
        return f'{layer} may not include {name}: {target} is not below it'
    return None


def check_file(src, path, say):
    rel = os.path.relpath(path, src)
    layer = rel.split(os.sep)[0]
    with open(path, encoding='utf-8') as f:
        lines = f.read().splitlines()
    if len(lines) > FILE_MAX:
        say(rel, FILE_MAX + 1, f'{len(lines)} lines, more than {FILE_MAX}')
    start = None
    for number, line in enumerate(lines, 1):
        m = INCLUDE.match(line)
        if m:
            problem = check_include(src, layer, m.group(1))
            if problem:
                say(rel, number, problem)
        # A brace in the first column opens and closes a function's body.
        if line == '{':
            start = number
        elif line == '}' and start:
            if number - start - 1 > FUNCTION_MAX:
                say(rel, start, f'a function of {number - start - 1} lines, more than {FUNCTION_MAX}')
            start = None


def check(src):
    problems = []

    def say(rel, line, text):
        problems.append(f'src/{rel}:{line}: {text}')

    files = 0
    for folder, _, names in sorted(os.walk(src)):
        rel = os.path.relpath(folder, src)
        layer = rel.split(os.sep)[0]
        for name in sorted(names):
            if not name.endswith(('.c', '.h')):
                continue
            if layer not in BELOW:
                say(os.path.join(rel, name), 1, f'no layer {layer}: add it to scripts/layers.py')
                continue
            files += 1
            check_file(src, os.path.join(folder, name), say)
    return files, problems


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files, problems = check(sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, 'src'))
    print('\n'.join(problems))
    if not files:
        print('no files found')
    return 1 if problems or not files else 0


if __name__ == '__main__':
    sys.exit(main())
