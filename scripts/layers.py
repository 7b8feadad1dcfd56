#!/usr/bin/python3
"""Checks the shape of src/: an #include points down or stays, files and functions stay short.

Prints file:line for each breach and exits 1. src/layers.txt says what is below what.
"""
import os
import re
import sys

GENERATED = {'config.h': None, 'tools/seccomp_filter.h': ['linux']}  # name: who may include it
# What others say to a program, without being built on it.
SPOKEN = {'egress/msg.h': ['driver', 'cli', 'service', 'api', 'daemon']}
# Files that use what is above them, until that is turned round. Each must still be so.
UPWARD = {}
FILE_MAX = 800
FUNCTION_MAX = 100

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


class Layers:
    """What layers.txt says: a layer is a folder, with the folders in it that are no layers of their own."""

    def __init__(self, path):
        self.below, self.tests = {}, {}
        section = ''
        with open(path, encoding='utf-8') as f:
            lines = [line.split('#')[0].strip() for line in f]
        for line in filter(None, lines):
            if line.startswith('['):
                section = line
                continue
            layer, direct = line.split(':')
            deps = [x for d in direct.split() for x in [d, *self.below[d]]]
            if section == '[tests]':
                self.tests[layer] = deps
            elif section == '[hidden]':
                self.below[layer] = [x for x in self.below[layer] if x not in direct.split()]
            elif section != '[linked]':
                self.below[layer] = deps

    def of(self, path):
        """The layer of a file below src/, or None."""
        while path := os.path.dirname(path):
            if path in self.below:
                return path
        return None

    def may(self, rel, target):
        layer = self.of(rel)
        test = re.search(r'_test\.[ch]$', rel)
        return target == layer or target in self.below[layer] or test and target in self.tests.get(layer, [])


def check_include(src, layers, rel, name):
    """What is wrong with @rel's #include "name", or None."""
    layer = layers.of(rel)
    if name in GENERATED:
        allowed = GENERATED[name]
        return None if allowed is None or layer in allowed else f'{layer} may not include {name}'
    if '/' not in name:
        return f'"{name}" needs its folder: "{os.path.dirname(rel)}/{name}"'
    if not os.path.exists(os.path.join(src, name)):
        return f'no file src/{name}'
    target = layers.of(name)
    if layers.may(rel, target) or layer in SPOKEN.get(name, []):
        return None
    return f'{layer} may not include {name}: {target} is not below it'


def check_file(src, layers, path, say, upward):
    rel = os.path.relpath(path, src)
    with open(path, encoding='utf-8') as f:
        lines = f.read().splitlines()
    if len(lines) > FILE_MAX:
        say(rel, FILE_MAX + 1, f'{len(lines)} lines, more than {FILE_MAX}')
    start = None
    for number, line in enumerate(lines, 1):
        m = INCLUDE.match(line)
        if m:
            problem = check_include(src, layers, rel, m.group(1))
            if problem and m.group(1) in UPWARD.get(rel, []):
                upward.add((rel, m.group(1)))
            elif problem:
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

    layers = Layers(os.path.join(src, 'layers.txt'))
    files, upward = 0, set()
    for folder, _, names in sorted(os.walk(src)):
        rel = os.path.relpath(folder, src)
        for name in sorted(names):
            if not name.endswith(('.c', '.h')):
                continue
            if not layers.of(os.path.join(rel, name)):
                say(os.path.join(rel, name), 1, f'no layer {rel}: add it to src/layers.txt')
                continue
            files += 1
            check_file(src, layers, os.path.join(folder, name), say, upward)
    for rel, names in UPWARD.items():
        for name in names:
            if os.path.exists(os.path.join(src, rel)) and (rel, name) not in upward:
                say(rel, 1, f'uses {name} no more: take it out of UPWARD in scripts/layers.py')
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
