#!/usr/bin/python3
"""Finds what is not used: functions and variables that a header in src/ declares and no .c file of src/ or tests/ names,
but for the one that defines them.

Prints file:line for each and exits 1.
"""
import os
import re
import sys

NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
# In the first column of a header: a type, then a name and "(", or "extern", a type and a name.
FUNCTION = re.compile(r'^(?!typedef|static|extern|#|struct \w+ \{|enum|union)[a-z_][\w \t*]*?[ *]([a-z_]\w*)\s*\(', re.M)
VARIABLE = re.compile(r'^extern [\w \t*]*?[ *]([a-z_]\w*)\s*(?:\[|;)', re.M)
DEFINE_AUTO = re.compile(r'\bDEFINE_AUTO\([^)]*\)')
WORD = re.compile(r'\b[a-z_]\w*\b')


def code(path):
    """A file without comments and texts, its lines where they were."""
    with open(path, encoding='utf-8') as f:
        return NO_CODE.sub(lambda m: '\n' * m.group().count('\n') or ' ', f.read())


def sources(*folders):
    for folder in folders:
        for where, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if name.endswith(('.c', '.h')):
                    yield os.path.join(where, name)


def dead(root):
    declared, used = {}, {}
    for path in sources(*(os.path.join(root, d) for d in ('src', 'tests', 'tools'))):
        text = DEFINE_AUTO.sub('', code(path))
        if path.endswith('.h'):
            names = {}
            for m in [*FUNCTION.finditer(text), *VARIABLE.finditer(text)]:
                names[m.group(1)] = text.count('\n', 0, m.start(1)) + 1
            declared.update({name: (path, line) for name, line in names.items()})
        for m in WORD.finditer(text):
            used.setdefault(m.group(), []).append(path)
    for name, (path, line) in sorted(declared.items(), key=lambda x: x[1]):
        where = used[name]
        # Once in the header, once where it is defined.
        if where.count(path) <= 1 and len(where) <= 2 and len(set(where)) == len(where):
            yield f'{os.path.relpath(path, root)}:{line}: {name} is not used'


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = list(dead(root))
    print('\n'.join(found))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
