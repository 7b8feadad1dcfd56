#!/usr/bin/python3
"""Checks the shape of src/: an #include points down or stays, members of structs stay behind walls, files and functions stay
short, and a .c opens with a comment on what it is for.

Prints file:line for each breach and exits 1. src/layers.txt says what is below what.
"""
import os
import re
import sys

GENERATED = {'config.h': None, 'tools/seccomp_filter.h': ['linux']}  # name: who may include it
# What others say to a program, without being built on it.
SPOKEN = {'egress/msg.h': ['cli', 'service', 'api', 'daemon']}
# Files that use what is above them, until that is turned round. Each must still be so.
UPWARD = {}
FILE_MAX = 800
FUNCTION_MAX = 100

# Flags of tiers: named only where a tier is declared. Everybody else asks the tier's table (engine/tier.h). The tables
# themselves are found by TIER, and named only in their own folder and in the array.
TIER_FLAGS = {'SPEC_VM': ['engine/spec.h', 'vm/host/tier.c']}
TIER = re.compile(r'^const struct tier_ops (\w+) = \{', re.M)
TIER_ARRAY = ['tier/tiers.c', 'engine/tier.h']

# Folders that others know by functions only: these headers are for the files in it, also when another header includes them.
WALLED = ('service',)
PRIVATE = ('internal.h', 'struct.h')
# What is counted, or belongs to the service, is an object: others get a pointer and functions, not its members.
OBJECT = re.compile(r'^struct (\w+) \{\n(?:[^}].*\n)*?\t(?:unsigned refs|struct service \*service)\b', re.M)

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
INCLUDE_LINE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


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


def top(rel):
    return rel.split('/')[0]


class Walls:
    """Which headers a file includes, directly or not, and what is behind the walls of their folders."""

    def __init__(self, src):
        self.src, self.known = src, {}

    def includes(self, rel):
        if rel not in self.known:
            path = os.path.join(self.src, rel)
            text = open(path, encoding='utf-8').read() if os.path.exists(path) else ''
            self.known[rel] = INCLUDE_LINE.findall(text), OBJECT.findall(text)
        return self.known[rel]

    def check(self, rel, say):
        """Follows the includes of @rel into other folders."""
        todo, seen = [(rel, None)], set()
        while todo:
            name, via = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            found, objects = self.includes(name)
            outside = top(name) in WALLED and top(name) != top(rel)
            if outside and os.path.basename(name) in PRIVATE:
                say(rel, 1, f'includes {name}{f" by {via}" if via != rel else ""}: it is for {top(name)}/ only')
                continue
            for struct in objects if outside else []:
                say(name, 1, f'{rel} sees the members of struct {struct}: move them to a {PRIVATE[1]}')
            todo += [(x, name) for x in found if '/' in x]


def check_file(src, layers, path, say, upward, kept):
    rel = os.path.relpath(path, src)
    with open(path, encoding='utf-8') as f:
        lines = f.read().splitlines()
    if len(lines) > FILE_MAX:
        say(rel, FILE_MAX + 1, f'{len(lines)} lines, more than {FILE_MAX}')
    if not rel.endswith(('.h', '_test.c', '_fuzz.c')) and not lines[0].startswith('/*'):
        say(rel, 1, 'opens without a comment on what it is for')
    start = None
    kept = [name for name, places in kept.items() if not rel.endswith('_test.c') and not rel.startswith(tuple(places))]
    for number, line in enumerate(lines, 1):
        for name in kept:
            if re.search(rf'\b{name}\b', line):
                say(rel, number, f'names {name}: ask the tier (tier/tiers.h)')
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


def tiers(src):
    """What names a tier, and where it may: see TIER_FLAGS."""
    found = dict(TIER_FLAGS)
    for folder, _, names in os.walk(src):
        for name in names:
            if name.endswith('.c') and not name.endswith('_test.c'):
                with open(os.path.join(folder, name), encoding='utf-8') as f:
                    for m in TIER.finditer(f.read()):
                        found[m.group(1)] = [os.path.relpath(folder, src) + '/', *TIER_ARRAY]
    return found


def check(src):
    problems = []

    def say(rel, line, text):
        problems.append(f'src/{rel}:{line}: {text}')

    layers, walls = Layers(os.path.join(src, 'layers.txt')), Walls(src)
    files, upward, kept = 0, set(), tiers(src)
    for folder, _, names in sorted(os.walk(src)):
        rel = os.path.relpath(folder, src)
        for name in sorted(names):
            if not name.endswith(('.c', '.h')):
                continue
            if not layers.of(os.path.join(rel, name)):
                say(os.path.join(rel, name), 1, f'no layer {rel}: add it to src/layers.txt')
                continue
            files += 1
            check_file(src, layers, os.path.join(folder, name), say, upward, kept)
            if not name.endswith('_test.c'):
                walls.check(os.path.normpath(os.path.join(rel, name)), say)
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
