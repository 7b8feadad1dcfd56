#!/usr/bin/python3
"""Checks the documents: links and source paths exist, table cells are short, and words are the usual ones.

Prints file:line for each breach and exits 1. With a folder as argument it checks the tree there.
"""
import glob
import os
import re
import sys

CELL_MAX = 160
# Words that a reader has to guess the meaning of; STYLE.md names the usual ones.
WORDS = re.compile(r'\b([Tt]old|[Tt]ells?|[Ss]tands?|[Ss]tood|[Ss]omebody|[Aa]nybody|[Nn]obody|goes on|go on|went on|[Hh]aste)\b')
KEEPS_ITS_WORDS = ('CHANGELOG.md',)  # what was written about a version stays as it was

LINK = re.compile(r'\[[^\]]*\]\(([^)\s]+)\)')
CODE = re.compile(r'`[^`]*`')
# A path in the tree: with one of these folders in front, or, for a source file, relative to src/.
TREE = re.compile(r'(?<![\w./~-])((?:src|tests|scripts|tools|docs|packaging|sdk)/[\w./*{},-]*[\w*}])')
SOURCE = re.compile(r'(?<![\w./-])([a-z][\w]*(?:/[\w*{},]+)+\.[ch])\b')


def braces(path):
    """a{b,c}d as abd, acd."""
    m = re.search(r'\{([^{}]*)\}', path)
    if not m:
        return [path]
    return [x for part in m.group(1).split(',') for x in braces(path[:m.start()] + part + path[m.end():])]


def anchors(text):
    """Ids of the headings, as GitHub makes them."""
    found = {}
    for line in re.sub(r'^```.*?^```', '', text, flags=re.M | re.S).splitlines():
        m = re.match(r'#+ (.*)', line)
        if m:
            name = re.sub(r'[^\w\- ]', '', re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', m.group(1)).lower()).replace(' ', '-')
            found[name + (f'-{found[name]}' if name in found else '')] = found.get(name, 0) + 1
    return found


def check_links(root, path, line, say):
    for target in LINK.findall(CODE.sub('', line)):
        if re.match(r'[a-z]+:', target):
            continue
        name, _, anchor = target.partition('#')
        other = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(os.path.join(root, other)):
            say(f'no file {other}')
        elif anchor and other.endswith('.md'):
            with open(os.path.join(root, other), encoding='utf-8') as f:
                if anchor not in anchors(f.read()):
                    say(f'no heading #{anchor} in {other}')


def check_paths(root, line, say):
    for path in sorted({*TREE.findall(line), *SOURCE.findall(line)}):
        for one in braces(path.rstrip('.')):
            if not any(glob.glob(os.path.join(root, folder, one)) for folder in ('', 'src')):
                say(f'no file {one}')


def check_file(root, path, say):
    with open(os.path.join(root, path), encoding='utf-8') as f:
        lines = f.read().splitlines()
    block = False
    for number, line in enumerate(lines, 1):
        def here(text):
            say(f'{path}:{number}: {text}')  # pylint: disable=cell-var-from-loop

        if line.startswith('```'):
            block = not block
        elif not block:
            check_links(root, path, line, here)
            if path not in KEEPS_ITS_WORDS:
                check_paths(root, line, here)
                for word in WORDS.findall(CODE.sub('', line)):
                    here(f"'{word}': use the ordinary word")
            if line.startswith('|'):
                for cell in re.split(r'(?<!\\)\|', line.strip('|')):
                    if len(cell.strip()) > CELL_MAX:
                        here(f'a table cell of {len(cell.strip())} characters, more than {CELL_MAX}')


def documents(root):
    yield from (n for n in os.listdir(root) if n.endswith('.md'))
    for top in ('docs', 'sdk', 'tests'):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [n for n in folders if n not in ('node_modules', 'dist')]
            yield from (os.path.relpath(os.path.join(folder, n), root) for n in names if n.endswith('.md'))


def main():
    root = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    problems, found = [], sorted(documents(root))
    for path in found:
        check_file(root, path, problems.append)
    print('\n'.join(problems))
    if not found:
        print('no documents found')
    return 1 if problems or not found else 0


if __name__ == '__main__':
    sys.exit(main())
