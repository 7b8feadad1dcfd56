#!/usr/bin/python3
"""The reasons of errors: src/base/reason.h is the table, and what else lists them is made from it or checked against it.

    scripts/reasons.py           writes docs/errors.md, and the lists of both SDKs
    scripts/reasons.py --check   compares them; and looks for errors without a reason, and reasons that nothing gives; exits 1

An error whose kind alone says little must name a reason (WHY_…). The kinds of FREE have one that says enough.
"""
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = 'src/base/reason.h'
LINE = re.compile(r'^\tX\((\w+), (\w+), (\d{3}), "([a-z_]+)", "([^"\\]+)"\)')
# Answers of the API come from here; what is below says kinds, and these rooms say what that means to a caller.
ROOMS = ('api', 'http', 'service', 'oci')
FREE = {'INTERNAL', 'INVALID', 'EXHAUSTED', 'UNSUPPORTED', 'TOO_LARGE'}
MADE = 'made from src/base/reason.h by scripts/reasons.py'


class Reason:
    def __init__(self, name, kind, status, word, meaning):
        self.name, self.kind, self.status, self.word, self.meaning = name, kind, int(status), word, meaning


def read(root=HERE):
    with open(os.path.join(root, TABLE), encoding='utf-8') as f:
        text = f.read()
    lines = [line for line in text.split('\n') if line.startswith('\tX(')]
    found = [LINE.match(line) for line in lines]
    bad = [line for line, m in zip(lines, found) if not m]
    if bad or not found:
        sys.exit(f'reasons.py: {TABLE}: cannot read {bad[:1] or "any line"}')
    return [Reason(*m.groups()) for m in found]


def kinds(root):
    with open(os.path.join(root, 'src/base/err.h'), encoding='utf-8') as f:
        return {k: (int(s), w) for k, s, w in re.findall(r'X\((\w+), (\d+), "(\w+)"\)', f.read())}


def document(reasons, root):
    names = kinds(root)
    out = ['# Errors', '', f'<!-- {MADE} -->', '',
           'Every error of the API has a `reason`: one word for programs, finer than `code`. It has one meaning and one status,',
           'and does not change between versions; later versions may add others, so treat a word you do not know like its `code`.',
           '`message` and `remedy` are for people, and may change.', '',
           '```json',
           '{"error": {"code": "refused", "reason": "program_missing", "message": "nosuch: start the program: No such file or directory",',
           ' "cause": null, "remedy": "the command, or the interpreter in its first line, must be in the image …", "request_id": "…"}}',
           '```', '',
           '[The API](api.md#errors) has the codes. Both SDKs have `reason` on their errors, and classes for the usual ones.', '',
           '| status | code | reason | when |', '|---|---|---|---|']
    for r in reasons:
        out.append(f'| {r.status} | `{names[r.kind][1]}` | `{r.word}` | {r.meaning} |')
    return '\n'.join(out) + '\n'


def typescript(reasons):
    out = [f'/* {MADE[0].upper() + MADE[1:]}. */', '',
           '/** What the server says about an error to programs: `reason` of a ClocheError. */', 'export const REASONS = {']
    out += [f"  /** {r.status}: {r.meaning}. */\n  {r.word}: {r.status}," for r in reasons]
    return '\n'.join(out + ['} as const;', '', 'export type Reason = keyof typeof REASONS;']) + '\n'


def python(reasons):
    out = ['"""The reasons of errors: words for programs, finer than `code`.', '', MADE[0].upper() + MADE[1:] + '.', '"""', '',
           'from __future__ import annotations', '', 'from typing import Literal, Mapping, Tuple', '', 'Reason = Literal[']
    out += [f'    "{r.word}",' for r in reasons]
    out += [']', '', '#: The status and the meaning of each.', 'REASONS: Mapping[str, Tuple[int, str]] = {']
    out += [f'    "{r.word}": ({r.status}, "{r.meaning}"),' for r in reasons]
    return '\n'.join(out + ['}']) + '\n'


def files(root):
    reasons = read(root)
    return {'docs/errors.md': document(reasons, root), 'sdk/typescript/src/reasons.ts': typescript(reasons),
            'sdk/python/src/cloche/reasons.py': python(reasons)}


def schema(root=HERE):
    """The schema Reason of the OpenAPI document."""
    reasons = read(root)
    return {'type': 'string', 'description': 'Why, for programs: finer than `code`.', 'enum': [r.word for r in reasons],
            'x-enumDescriptions': {r.word: f'{r.status}: {r.meaning}' for r in reasons}}


def sources(root, rooms):
    for room in rooms:
        for path in sorted(glob.glob(f'src/{room}/**/*.[ch]', root_dir=root, recursive=True)):
            if not re.search(r'_(test|fuzz)\.c$', path) and path != TABLE:
                with open(os.path.join(root, path), encoding='utf-8') as f:
                    yield path, f.read()


def complaints(root):
    for path, text in files(root).items():
        try:
            with open(os.path.join(root, path), encoding='utf-8') as f:
                there = f.read()
        except FileNotFoundError:
            there = ''
        if there != text:
            yield f'{path} is not what {TABLE} says: run scripts/reasons.py'
    first = {}
    for r in read(root):
        first.setdefault(r.kind, r.name)
    used = set(first.values())
    for path, text in sources(root, os.listdir(os.path.join(root, 'src'))):
        used |= set(re.findall(r'\bWHY_([A-Z_]+)\b', text))
    for r in read(root):
        if r.name not in used:
            yield f'{TABLE}: no error has the reason {r.word}'
    for path, text in sources(root, ROOMS):
        for m in re.finditer(r'\berr_(?:set|sys|because)\(([^;"]*?)(?="|;)', text):
            for kind in re.findall(r'\bERR_([A-Z_]+)\b', m.group(1)):
                if kind not in FREE and kind in first and not re.search(rf'[!=]= ERR_{kind}', m.group(1)):
                    line = text.count('\n', 0, m.start()) + 1
                    yield f'{path}:{line}: ERR_{kind} says too little to programs: name a reason of {TABLE}'
        for m in re.finditer(r'(?:->|\.)kind = ERR_', text):
            yield f'{path}:{text.count(chr(10), 0, m.start()) + 1}: use err_because(), which sets the reason, too'


def main():
    args = sys.argv[1:]
    root = args[1] if len(args) > 1 else HERE
    if args[:1] == ['--check']:
        found = list(complaints(root))
        for line in found:
            print(line, file=sys.stderr)
        sys.exit(1 if found else 0)
    for path, text in files(root).items():
        with open(os.path.join(root, path), 'w', encoding='utf-8') as f:
            f.write(text)


if __name__ == '__main__':
    main()
