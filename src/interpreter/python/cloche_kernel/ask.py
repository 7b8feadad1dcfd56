"""What an editor asks about code without running it: complete, is_complete, inspect."""
import builtins
import keyword
import os
import re
import sys
import warnings

from . import cell, magics

MATCHES_MAX = 1000
TEXT_MAX = 64 << 10
_DOTTED = re.compile(r"(?:[^\W\d]\w*\.)*(?:[^\W\d]\w*)?$")
_IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]*)$|^\s*import\s+(?:[\w.]+\s*,\s*)+([\w.]*)$")
_FROM = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+(?:[\w]+\s*,\s*)*(\w*)$")
_KEY = re.compile(r"((?:[^\W\d]\w*\.)*[^\W\d]\w*)\[(['\"])([^'\"]*)$")
_PATH = re.compile(r"['\"]([^'\"]*/[^'\"]*)$")


def _resolve(cells, dotted):
    """The value of a.b.c, without running code of properties."""
    parts = dotted.split(".")
    if parts[0] in cells:
        value = cells[parts[0]]
    elif hasattr(builtins, parts[0]):
        value = getattr(builtins, parts[0])
    else:
        raise LookupError(dotted)
    for part in parts[1:]:
        for holder in type(value).__mro__:
            if isinstance(holder.__dict__.get(part), property):
                raise LookupError(dotted)
        value = getattr(value, part)
    return value


def _modules(prefix):
    import pkgutil
    package, _, last = prefix.rpartition(".")
    if package:
        module = sys.modules.get(package)
        names = [m.name for m in pkgutil.iter_modules(getattr(module, "__path__", []))] if module else []
        return [package + "." + n for n in names if n.startswith(last)]
    names = set(sys.builtin_module_names) | {m.name for m in pkgutil.iter_modules()}
    return [n for n in names if n.startswith(last)]


def complete(kernel, code, cursor):
    """{"matches", "start", "end"}; positions count characters."""
    cursor = len(code) if cursor is None else max(0, min(cursor, len(code)))
    line = code[:cursor].rpartition("\n")[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            matches, size = _matches(kernel, line)
        except Exception:
            matches, size = [], 0
    return {"matches": sorted(set(matches))[:MATCHES_MAX], "start": cursor - size, "end": cursor}


def _matches(kernel, line):
    cells = kernel.cells
    stripped = line.lstrip()
    if stripped.startswith("%") and re.match(r"%{1,2}\w*$", stripped):
        kinds = ("cell",) if stripped.startswith("%%") else ("line",)
        prefix = stripped.lstrip("%")
        sign = stripped[:len(stripped) - len(prefix)]
        return [sign + n for n in magics.names(kernel, kinds) if n.startswith(prefix)], len(stripped)
    m = _FROM.match(line)
    if m:
        module = sys.modules.get(m.group(1))
        names = [n for n in dir(module) if not n.startswith("_")] if module else []
        names += [n.rpartition(".")[2] for n in _modules(m.group(1) + ".")]
        return [n for n in names if n.startswith(m.group(2))], len(m.group(2))
    m = _IMPORT.match(line)
    if m:
        prefix = m.group(1) if m.group(1) is not None else m.group(2)
        return _modules(prefix), len(prefix)
    m = _KEY.search(line)
    if m:
        value = _resolve(cells, m.group(1))
        keys = value.keys() if isinstance(value, dict) else getattr(value, "columns", ())
        return [k for k in keys if isinstance(k, str) and k.startswith(m.group(3))], len(m.group(3))
    m = _PATH.search(line)
    if m:
        folder, _, prefix = m.group(1).rpartition("/")
        names = os.listdir(os.path.expanduser(folder) or "/")
        return [n + ("/" if os.path.isdir(os.path.join(os.path.expanduser(folder) or "/", n)) else "")
                for n in names if n.startswith(prefix)], len(prefix)
    word = _DOTTED.search(line).group(0)
    owner, dot, prefix = word.rpartition(".")
    if dot:
        if not owner:
            return [], 0
        names = dir(_resolve(cells, owner))
        hidden = prefix.startswith("_")
        return ["%s.%s" % (owner, n) for n in names if n.startswith(prefix) and (hidden or not n.startswith("_"))], len(word)
    names = [n for n in cells if not n.startswith("_") or prefix.startswith("_")] + keyword.kwlist + dir(builtins)
    return [n for n in names if n.startswith(prefix) and (prefix or not hasattr(builtins, n))], len(word)


def is_complete(code):
    """{"status": "complete", "incomplete" or "invalid", "indent"}, for an editor that sends at the end of a line."""
    import codeop
    text = cell.dedent(code)
    if cell.cell_magic(text):
        return {"status": "complete" if text.endswith("\n\n") or "\n" not in text else "incomplete", "indent": ""} \
            if not text.endswith("\n") else {"status": "complete", "indent": ""}
    compiler = codeop.Compile()
    compiler.flags |= 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    lines = text.split("\n")
    try:
        made = _compiled(compiler, text)
        if made is None:
            made = _compiled(compiler, cell.transform(text))
    except (SyntaxError, ValueError, OverflowError):
        return {"status": "invalid", "indent": ""}
    if made is None:
        return {"status": "incomplete", "indent": _indent_after(lines)}
    last = lines[-1]
    if len([x for x in lines if x.strip()]) > 1 and last.strip() and last[:1] in (" ", "\t"):
        return {"status": "incomplete", "indent": last[:len(last) - len(last.lstrip())]}  # the block may go further
    return {"status": "complete", "indent": ""}


def _compiled(compiler, text):
    """Code, None if more has to follow; or the error."""
    import codeop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return codeop._maybe_compile(_quiet(compiler), text, "<cell>", "exec") or \
                (True if not text.strip() else None)
        except SyntaxError:
            changed = cell.transform(text)
            if changed == text:
                raise
            return codeop._maybe_compile(_quiet(compiler), changed, "<cell>", "exec")


def _quiet(compiler):
    def compile_one(source, filename, symbol, *flags):
        return compiler(source, filename, symbol, *flags)
    return compile_one


def _indent_after(lines):
    last = next((x for x in reversed(lines) if x.strip()), "")
    indent = last[:len(last) - len(last.lstrip())]
    return indent + "    " if last.rstrip().endswith(":") else indent


def inspect(kernel, code, cursor, detail):
    """{"found", "mime"} of the name at the cursor."""
    cursor = len(code) if cursor is None else max(0, min(cursor, len(code)))
    start = _DOTTED.search(code[:cursor].rpartition("\n")[2]).group(0)
    rest = re.match(r"\w*", code[cursor:]).group(0)
    name = (start + rest).strip(".")
    if not name:
        before = re.search(r"((?:[^\W\d]\w*\.)*[^\W\d]\w*)\([^()]*$", code[:cursor])
        name = before.group(1) if before else ""
    text = describe(kernel, name, detail) if name else None
    return {"found": text is not None, "mime": {} if text is None else {"text/plain": text}}


def describe(kernel, name, detail=0):
    """A text about what a name is, or None."""
    import inspect as looker
    magic = magics.find(kernel, name.lstrip("%")) if name.startswith("%") else None
    try:
        value = magic if magic is not None else _resolve(kernel.cells, name)
    except Exception:
        return None
    lines = []
    if callable(value):
        try:
            lines.append(("Signature", "%s%s" % (name, looker.signature(value))))
        except (TypeError, ValueError):
            pass
    lines.append(("Type", type(value).__name__))
    if not callable(value) and not looker.ismodule(value):
        try:
            lines.append(("String form", str(value)[:1000]))
        except Exception:
            pass
        try:
            lines.append(("Length", str(len(value))))
        except Exception:
            pass
    try:
        lines.append(("File", looker.getsourcefile(value) or ""))
    except Exception:
        pass
    source = None
    if detail:
        try:
            source = looker.getsource(value)
        except Exception:
            pass
    if source:
        lines.append(("Source", "\n" + source))
    else:
        doc = looker.getdoc(value)
        lines.append(("Docstring", doc if doc else "<no docstring>"))
    return "\n".join("%-12s %s" % (k + ":", v) for k, v in lines if v)[:TEXT_MAX]
