"""The text of a value: repr(), but with containers broken into lines of 79 columns, cut after 1000 members, and safe against
recursion. A class can describe itself by _repr_pretty_(p, cycle), as the libraries for notebooks do.

A document is a list of texts, breaks and groups. A group that does not fit on the rest of its line is broken: each of its own
breaks becomes a line end."""
import io
import types

WIDTH = 79
MEMBERS_MAX = 1000
DEPTH_MAX = 150


class Group:
    __slots__ = ("indent", "parts", "width")

    def __init__(self, indent):
        self.indent, self.parts, self.width = indent, [], 0


class Break:
    __slots__ = ("sep", "column")

    def __init__(self, sep, column):
        self.sep, self.column = sep, column


HARD = object()


class Printer:
    """What _repr_pretty_ is given."""

    def __init__(self):
        self.root = self.top = Group(0)
        self.open, self.column = [self.root], 0
        self.stack = []  # ids of the values that are being printed
        self.max_seq_length, self.max_width, self.verbose = MEMBERS_MAX, WIDTH, False

    # The document

    def text(self, text):
        self.open[-1].parts.append(text)

    def breakable(self, sep=" "):
        self.open[-1].parts.append(Break(sep, self.column))

    def break_(self):
        self.open[-1].parts.append((HARD, self.column))

    def begin_group(self, indent=0, open=""):
        if open:
            self.text(open)
        group = Group(indent)
        self.open[-1].parts.append(group)
        self.open.append(group)
        self.column += indent

    def end_group(self, dedent=0, close=""):
        group = self.open.pop()
        self.column -= group.indent
        if close:
            self.text(close)

    def group(self, indent=0, open="", close=""):
        return _Context(self, indent, open, close)

    def indent(self, indent):
        return _Indent(self, indent)

    # Values

    def pretty(self, value):
        if id(value) in self.stack or len(self.stack) >= DEPTH_MAX:
            again = id(value) in self.stack
            printer = _printer_of(value)
            if not again:
                self.text("...")
            elif printer is not None:
                printer(self, value, True)
            else:
                self.text(_plain(value))
            return
        self.stack.append(id(value))
        try:
            printer = _printer_of(value)
            if printer is None:
                self._lines(_plain(value))
            else:
                printer(self, value, False)
        finally:
            self.stack.pop()

    def _lines(self, text):
        lines = text.splitlines() or [""]
        if len(lines) == 1:
            self.text(lines[0])
            return
        self.begin_group()
        for i, line in enumerate(lines):
            if i:
                self.break_()
            self.text(line)
        self.end_group()

    def finish(self):
        out = io.StringIO()
        _measure(self.root)
        _emit(self.root, True, out, 0, 0)
        return out.getvalue()


class _Context:
    def __init__(self, printer, indent, open, close):
        self.printer, self.indent, self.open, self.close = printer, indent, open, close

    def __enter__(self):
        self.printer.begin_group(self.indent, self.open)

    def __exit__(self, *_):
        self.printer.end_group(self.indent, self.close)


class _Indent:
    def __init__(self, printer, indent):
        self.printer, self.by = printer, indent

    def __enter__(self):
        self.printer.column += self.by

    def __exit__(self, *_):
        self.printer.column -= self.by


def _measure(group):
    """The width of a group on one line; a hard break makes it endless."""
    width = 0
    for part in group.parts:
        if isinstance(part, str):
            width += len(part)
        elif isinstance(part, Break):
            width += len(part.sep)
        elif isinstance(part, Group):
            width += _measure(part)
        else:
            width += 1 << 30
    group.width = width
    return width


def _tail(parts, start):
    """The width of what follows until the next place for a line end."""
    width = 0
    for part in parts[start:]:
        if isinstance(part, str):
            width += len(part)
        else:
            break
    return width


def _emit(group, broken, out, at, follow):
    """@at: the column that is reached, @follow: what must fit behind the group. Returns the column."""
    parts = group.parts
    for i, part in enumerate(parts):
        if isinstance(part, str):
            out.write(part)
            at += len(part)
        elif isinstance(part, Break):
            if broken:
                out.write("\n" + " " * part.column)
                at = part.column
            else:
                out.write(part.sep)
                at += len(part.sep)
        elif isinstance(part, Group):
            behind = _tail(parts, i + 1)
            at = _emit(part, at + part.width + behind > WIDTH, out, at, behind)
        else:
            out.write("\n" + " " * part[1])
            at = part[1]
    return at


def _plain(value):
    kind = type(value)
    if kind.__repr__ is object.__repr__:
        return "<%s.%s at 0x%x>" % (kind.__module__, kind.__qualname__, id(value))
    text = repr(value)
    return text if isinstance(text, str) else object.__repr__(value)


def _sequence(start, end, base):
    def show(p, value, cycle):
        if cycle:
            return p.text(start + "..." + end)
        if type(value) is not base and type(value).__repr__ is not base.__repr__:
            return p.text(repr(value))
        p.begin_group(len(start), start)
        members = value
        if isinstance(value, (set, frozenset)):
            if len(value) <= MEMBERS_MAX:
                try:
                    members = sorted(value)
                except Exception:
                    members = value
        for i, member in enumerate(members):
            if i:
                p.text(",")
                p.breakable()
            if i == MEMBERS_MAX:
                p.text("...")
                break
            p.pretty(member)
        if len(value) == 1 and base is tuple:
            p.text(",")
        p.end_group(len(start), end)
    return show


def _set(p, value, cycle):
    if not value:
        return p.text(repr(value))
    frozen = isinstance(value, frozenset)
    _sequence("frozenset({" if frozen else "{", "})" if frozen else "}", frozenset if frozen else set)(p, value, cycle)


def _mapping(p, value, cycle):
    if cycle:
        return p.text("{...}")
    if type(value) is not dict and type(value).__repr__ is not dict.__repr__:
        return p.text(repr(value))
    p.begin_group(1, "{")
    for i, (key, member) in enumerate(value.items()):
        if i:
            p.text(",")
            p.breakable()
        if i == MEMBERS_MAX:
            p.text("...")
            break
        p.pretty(key)
        p.text(": ")
        p.pretty(member)
    p.end_group(1, "}")


def _call(name, arguments):
    """Printer of Name(argument, …)."""
    def show(p, value, cycle):
        title = name or type(value).__name__
        if cycle:
            return p.text(title + "(...)")
        with p.group(len(title) + 1, title + "(", ")"):
            for i, argument in enumerate(arguments(value)):
                if i:
                    p.text(",")
                    p.breakable()
                if isinstance(argument, str):
                    p.text(argument)
                else:
                    p.pretty(argument[0])
    return show


def _namespace(p, value, cycle):
    if cycle:
        return p.text("namespace(...)")
    with p.group(10, "namespace(", ")"):
        for i, (name, member) in enumerate(value.__dict__.items()):
            if i:
                p.text(",")
                p.breakable()
            with p.group(len(name) + 1, name + "="):
                p.pretty(member)


def _class_name(p, value, cycle):
    """int as int, others with their module."""
    if type(value).__repr__ is not type.__repr__:
        return p.text(repr(value))
    name = getattr(value, "__qualname__", value.__name__)
    module = value.__module__
    p.text(name if module in (None, "__builtin__", "builtins", "exceptions") else "%s.%s" % (module, name))


def _function(p, value, cycle):
    name = getattr(value, "__qualname__", value.__name__)
    if value.__module__ not in (None, "builtins", "__builtin__", "exceptions"):
        name = "%s.%s" % (value.__module__, name)
    import inspect  # takes long, and most cells never show a function
    try:
        text = name + str(inspect.signature(value))
    except (TypeError, ValueError):
        text = name
    p.text("<function %s>" % text)


def _exception(p, value, cycle):
    if cycle:
        return p.text("%s(...)" % type(value).__qualname__)
    name = type(value).__qualname__
    module = type(value).__module__
    if module not in ("exceptions", "builtins", "__builtin__"):
        name = "%s.%s" % (module, name)
    _call(name, lambda e: [(x,) for x in getattr(e, "args", ())])(p, value, cycle)


def _counter(p, value, cycle):
    _call("Counter", lambda c: [(dict(c.most_common()),)] if c else [])(p, value, cycle)


PRINTERS = {
    list: _sequence("[", "]", list), tuple: _sequence("(", ")", tuple), dict: _mapping, set: _set, frozenset: _set,
    type: _class_name, types.FunctionType: _function, types.BuiltinFunctionType: _function,
    types.SimpleNamespace: _namespace,
}
NAMED = {
    ("collections", "Counter"): _counter,
    ("collections", "OrderedDict"): _call("OrderedDict", lambda d: [(list(d.items()),)] if d else []),
    ("collections", "defaultdict"): _call("defaultdict", lambda d: [(d.default_factory,), (dict(d),)]),
    ("collections", "deque"): _call(None, lambda d: [(list(d),)] + ([] if d.maxlen is None else ["maxlen=%d" % d.maxlen])),
}
PLAIN = (int, float, complex, bool, str, bytes, type(None))


TYPED = None  # what code has registered for classes: formatters.py


def _registered():
    return TYPED is not None and (TYPED.type_printers or TYPED.deferred_printers)


def _printer_of(value):
    kind = type(value)
    registered = _registered()
    if kind in PLAIN and not registered:
        return None
    for base in kind.__mro__:
        found = TYPED.of_class(base) if registered else None
        if found is not None:
            return lambda p, v, cycle: found(v, p, cycle)
        if base in PRINTERS:
            return PRINTERS[base]
        named = NAMED.get((base.__module__, base.__name__))
        if named is not None:
            return named
        if "_repr_pretty_" in base.__dict__:
            own = base._repr_pretty_
            if callable(own) and not isinstance(value, type):
                return lambda p, v, cycle: own(v, p, cycle)
        if base is not object and "__repr__" in base.__dict__ and base not in (BaseException, Exception):
            if not issubclass(base, BaseException) or base.__module__ != "builtins":
                return None
    if isinstance(value, BaseException):
        return _exception
    return None


def pretty(value):
    """The text of @value. What its own code raises comes through."""
    if type(value) in PLAIN and not _registered():
        return repr(value)
    p = Printer()
    p.pretty(value)
    return p.finish()
