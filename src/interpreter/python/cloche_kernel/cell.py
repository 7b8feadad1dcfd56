"""A cell's text as Python: magics, shell commands and help become calls, prompts and common indentation go.

Code that compiles is never touched. Only when it does not, lines at the start of a statement are looked at."""
import ast
import re

CALL = "__cloche__"  # the name of the kernel's functions among the globals of the cells
_ASSIGN = re.compile(r"^(\s*)((?:[^\W\d][\w.]*(?:\[[^\]]*\])*\s*,\s*)*[^\W\d][\w.]*(?:\[[^\]]*\])*)\s*=\s*([!%])(?!=)\s*(.*)$", re.S)
_MAGIC = re.compile(r"^(\s*)%([A-Za-z_][\w.]*)\s*(.*)$", re.S)
_SHELL = re.compile(r"^(\s*)(!!?)(.*)$", re.S)
_HELP = re.compile(r"^(\s*)(\?{1,2})\s*(%{0,2}[\w.*]+)\s*$|^(\s*)(%{0,2}[^\W\d][\w.]*)\s*(\?{1,2})\s*;?\s*$")
_PROMPT = re.compile(r"^\s*(>>> ?|\.\.\. ?|In \[\d+\]: |\s*\.\.\.: )")
_CELL_MAGIC = re.compile(r"^%%([A-Za-z_][\w.]*)([^\n]*)(?:\n(.*))?$", re.S)


def dedent(code):
    """A cell that is indented as a whole."""
    lines = code.split("\n")
    first = next((x for x in lines if x.strip() and not x.strip().startswith("#")), "")
    indent = first[:len(first) - len(first.lstrip(" \t"))]
    if not indent:
        return code
    return "\n".join(x[len(indent):] if x.startswith(indent) else x.lstrip(" \t") if not x.strip() else x for x in lines)


def prompts(code):
    """Code that was copied from a terminal, without the prompts."""
    lines = code.split("\n")
    first = next((x for x in lines if x.strip()), "")
    if not _PROMPT.match(first):
        return code
    return "\n".join(_PROMPT.sub("", x, 1) for x in lines)


def cell_magic(code):
    """(name, rest of the line, body) if the cell begins with %%name."""
    m = _CELL_MAGIC.match(code.lstrip("\n")) if "%%" in code[:200] else None
    return (m.group(1), m.group(2).strip(), m.group(3) or "") if m else None


def statements(code):
    """The logical lines of @code as (first, last) numbers of lines. Strings, brackets and backslashes join lines."""
    lines = code.split("\n")
    quote, depth, start, joined = None, 0, 0, False
    for number, line in enumerate(lines):
        if quote is None and not depth and not joined:
            start = number
            if line.lstrip().startswith(("!", "%", "?")) or _ASSIGN.match(line):
                joined = line.endswith("\\")  # the shell's quotes are not Python's
                if not joined:
                    yield start, number
                continue
        elif joined and quote is None and not depth and (lines[start].lstrip().startswith(("!", "%")) or _ASSIGN.match(lines[start])):
            joined = line.endswith("\\")
            if not joined:
                yield start, number
            continue
        quote, depth, joined = _scan(line, quote, depth)
        if quote is None and not depth and not joined:
            yield start, number


def _scan(line, quote, depth):
    """The state after a line: the quote of an open string, the number of open brackets, whether the line is continued."""
    i, n = 0, len(line)
    while i < n:
        c = line[i]
        if quote is not None:
            if c == "\\":
                i += 2
                continue
            if line.startswith(quote, i):
                i += len(quote)
                quote = None
                continue
        elif c == "#":
            return None, depth, False
        elif c in "\"'":
            quote = c * 3 if line.startswith(c * 3, i) else c
            i += len(quote)
            continue
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth = max(depth - 1, 0)
        elif c == "\\" and i == n - 1:
            return None, depth, True
        i += 1
    if quote is not None and len(quote) == 1:
        return (quote if line.endswith("\\") else None), depth, False
    return quote, depth, False


def transform(code):
    """@code with its magics as calls, line by line. Lines keep their numbers."""
    lines = code.split("\n")
    for first, last in list(statements(code)):
        text = "\n".join(lines[first:last + 1])
        made = _one(text)
        if made is not None:
            lines[first:last + 1] = [made] + [""] * (last - first)
    return "\n".join(lines)


def _join(text):
    return text.replace("\\\n", " ")


def _one(text):
    m = _ASSIGN.match(text)
    if m:
        kind, rest = ("getoutput", _join(m.group(4))) if m.group(3) == "!" else ("line_magic", _join(m.group(4)))
        return "%s%s = %s.%s(%r)" % (m.group(1), m.group(2), CALL, kind, rest)
    m = _MAGIC.match(text)
    if m:
        return "%s%s.line_magic(%r)" % (m.group(1), CALL, _join(m.group(2) + " " + m.group(3)).strip())
    m = _SHELL.match(text)
    if m:
        return "%s%s.%s(%r)" % (m.group(1), CALL, "getoutput" if m.group(2) == "!!" else "system", _join(m.group(3)).strip())
    m = _HELP.match(text)
    if m:
        indent, name = m.group(1) or m.group(4) or "", m.group(3) or m.group(5)
        return "%s%s.help(%r, %d)" % (indent, CALL, name, len(m.group(2) or m.group(6)))
    return None


def parse(code, name, flags=0):
    """The cell's syntax tree. What SyntaxError the last attempt raises is about the cell as it was sent."""
    code = code.replace("\r\n", "\n")
    try:
        return compile(code, name, "exec", ast.PyCF_ONLY_AST | flags, dont_inherit=True), code
    except SyntaxError as e:
        problem = e
    for change in (dedent, prompts, transform):
        code = change(code)
        try:
            return compile(code, name, "exec", ast.PyCF_ONLY_AST | flags, dont_inherit=True), code
        except SyntaxError as e:
            problem = e
    raise problem


def is_special(line):
    """Whether a line is no Python: a magic, a command, or a question."""
    return line.lstrip()[:1] in ("!", "%", "?") or _ASSIGN.match(line) is not None


def as_written(code, made):
    """What tracebacks show of a cell: @made, but with the lines of @code that have become calls."""
    before, after = code.replace("\r\n", "\n").split("\n"), made.split("\n")
    if CALL not in made or len(before) != len(after):
        return made
    return "\n".join(old if CALL in new else new for old, new in zip(before, after))


def silenced(code):
    """Whether the last statement ends with a semicolon: its value is not to be shown."""
    last = code.rstrip().rsplit("\n", 1)[-1]
    at = _comment(last)
    return last[:at].rstrip().endswith(";")


def _comment(line):
    """Where the comment of a line begins."""
    quote, i = None, 0
    while i < len(line):
        c = line[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = None
        elif c in "\"'":
            quote = c
        elif c == "#":
            return i
        i += 1
    return None
