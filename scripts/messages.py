#!/usr/bin/python3
"""Lists the texts in src/ that a user can see: usage, errors, remedies, notes, warnings, logs, doctor, audit, verdicts.

    scripts/messages.py           prints the list
    scripts/messages.py --check   compares it with tests/messages.txt and looks for words that STYLE does not want; exits 1
    scripts/messages.py --update  writes tests/messages.txt

Without a list of the functions that carry text, nothing would be found that passes through a table or a variable.
So a literal is a message when a function of SAYS gets it, or when it reads like a phrase and no function of SILENT gets
it. Literals that the compiler joins are one message; a macro between them is written as {MACRO}.
"""
import difflib
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = 'tests/messages.txt'

SAYS = {
    'err_set', 'err_sys', 'err_wrap', 'err_remedy', 'err_advise', 'log_error', 'log_warn', 'log_info', 'show_warn', 'proc_refuse',
    'proc_refuse_now',
    'json_read_bad', 'probe_say', 'probe_end', 'bad', 'refuse', 'tar_skip', 'say', 'advise', 'NEED', 'damaged', 'odd',
    'give_up', 'lost', 'sandbox_lose', 'sandbox_discard', 'plan_refuse', 'broken', 'invalid', 'too_large', 'check_one',
}
# Kernel files, SQL, header lines, programs: texts that are read by programs, or by us.
SILENT = {
    'strcmp', 'strncmp', 'strstr', 'strcasecmp', 'strncasecmp', 'strlen', 'memcmp', 'sscanf', 'volatile', 'asm',
    'static_assert', '_Static_assert', 'assert', 'sqlite3_exec', 'q_begin', 'q_prepare', 'q_each', 'memfd_create',
    'log_debug', 'proc_number', 'put_file', 'TEST_FAIL', 'format', 'starts_with', '__attribute__',
}
PROGRAM = re.compile(
    r'^(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|BEGIN|COMMIT|WITH|FROM|WHERE)\b|\b(FROM|WHERE|VALUES) '
    r'|^[A-Z][A-Za-z-]+: .*\\r\\n|^\\r\\n|%[*0-9]*\[|HTTP/1|^(text|application)/|^[^a-z]*(%[-+*.0-9]*[a-z]+[^a-z]*)+$')
PHRASE = re.compile(r'[A-Za-z]{2}.* .*[a-z]{2}|%[a-z0-9.*]+ .*[a-z]{2}|[a-z]{2}.* %')
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|\n[ \t]*#[ \t]*define\s+\w+(?:\([^)\n]*\))?|\n[ \t]*#(?:\\\n|[^\n])*'
                   r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|[A-Za-z_]\w*|\n|\\\n|\S', re.S)
MACRO = re.compile(r'PRI[a-zA-Z]+\d*$|[A-Z][A-Z0-9_]+$')

# What a message does not say, and what it says instead.
PLAIN = (
    (r'\bcan not\b', 'cannot'),
    (r'\b(is|are) wanted\b', 'expected …'),
    (r'\b(is|are|was|were) told\b|\btells?\b', 'says, prints, describes'),
    (r'(?<!as )\b(some|no|any|every)body\b', 'the process, the owner, the caller …'),
    (r'\bwho (may|is|has|can)\b', 'the caller, the owner …'),
    (r'\bstands?\b|\bstood\b', 'is ready, is based on, is in'),
    (r'\bgo(es)? on\b', 'continues'),
    (r'\bsuch an?\b', 'name the thing'),
    (r'\bnonsense\b|\bmakes? no sense\b', 'invalid'),
    (r'(?<!there )\bis no (?!longer)|\bis none\b', 'is not a …, has no …'),
    (r'\b(is|are) gone\b', 'has ended, does not exist, was removed'),
    (r'\bmeanwhile\b', 'in the meantime'),
    (r'\bgarbled\b', 'malformed'),
)


class Text:
    """One message: where it is in its file, which function gets it, its text as the source has it."""

    def __init__(self, path, start, call):
        self.path, self.start, self.end, self.call, self.text = path, start, start, call, ''
        self.parts = 0


def texts(path, source):
    """All literals of a file, joined as the compiler joins them."""
    stack, before, now, held = [], '', None, []
    for m in TOKEN.finditer('\n' + source):
        token, at = m.group(), m.start() - 1
        if token.startswith(('//', '/*')) or token in ('\n', '\\\n'):
            continue
        if token[0] == '"':
            if now is None:
                now = Text(path, at, stack[-1] if stack else '')
            now.text += ''.join('{%s}' % h for h in held) + token[1:-1]
            now.end, held = at + len(token), []
            now.parts += 1
        elif now is not None and MACRO.match(token):
            held.append(token)
        else:
            if now is not None:
                now.text += ''.join('{%s}' % h for h in held)
                yield now
            now, held = None, []
            if token == '(':
                stack.append(before)
            elif token == ')' and stack:
                stack.pop()
            elif token in ';{' or token[0] == '\n':
                stack = stack if token == '{' else []
        before = token


def is_message(t):
    if not re.search('[a-z]{2}', re.sub(r'%[-+#*.0-9]*(?:hh|h|ll|l|z|j)?[a-z]', '', re.sub(r'\{[A-Z]\w*\}', '', t.text))):
        return False
    if t.call in SAYS:
        return True
    return t.call not in SILENT and not PROGRAM.search(t.text) and bool(PHRASE.search(t.text))


def messages(root):
    for path in sorted(glob.glob('src/**/*.[ch]', root_dir=root, recursive=True)):
        if re.search(r'_(test|fuzz)\.[ch]$|/test\w*\.h$', path):
            continue
        with open(os.path.join(root, path), encoding='utf-8') as f:
            source = f.read()
        yield from (t for t in texts(path, source) if is_message(t))


def listing(root):
    lines, last = [], None
    for t in messages(root):
        if t.path != last:
            lines += ['', t.path]
        last = t.path
        lines.append('  ' + t.text)
    return lines[1:]


def check(root):
    lines, ok = listing(root), True
    for line in lines:
        for pattern, instead in PLAIN:
            m = line.startswith('  ') and re.search(pattern, line)
            if m:
                ok = False
                print(f'not plain: "{m.group()}" (better: {instead}) in: {line.strip()[:200]}')
    try:
        with open(os.path.join(root, LIST), encoding='utf-8') as f:
            known = f.read().splitlines()
    except FileNotFoundError:
        known = []
    diff = list(difflib.unified_diff(known, lines, LIST, 'src/', lineterm='', n=1))
    if diff:
        print(*diff, sep='\n')
        print(f'The messages of src/ differ from {LIST}. Read the new ones as a user would; then: scripts/messages.py --update')
    return ok and not diff


def main(argv):
    mode = argv[1] if len(argv) > 1 else ''
    root = argv[2] if len(argv) > 2 else ROOT
    if mode == '--check':
        return 0 if check(root) else 1
    text = '\n'.join(listing(root)) + '\n'
    if mode == '--update':
        with open(os.path.join(root, LIST), 'w', encoding='utf-8') as f:
            f.write(text)
    elif mode:
        print(__doc__, file=sys.stderr)
        return 2
    else:
        sys.stdout.write(text)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
