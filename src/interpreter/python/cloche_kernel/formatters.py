"""Functions that code has registered for the values of a class: get_ipython().display_formatter, as IPython has it. sympy and
others set their formats up in this way."""
from . import pretty

KINDS = ("text/plain", "text/html", "text/markdown", "image/svg+xml", "image/png", "application/pdf", "image/jpeg", "text/latex",
         "application/json", "application/javascript")
_NONE = object()


class Formatter:
    """The functions for one format."""
    enabled = True

    def __init__(self, kind):
        self.format_type = kind
        self.type_printers, self.deferred_printers = {}, {}

    def for_type(self, kind, function=None):
        if isinstance(kind, str):
            module, _, name = kind.rpartition(".")
            return self.for_type_by_name(module, name, function)
        return self._put(self.type_printers, kind, function)

    def for_type_by_name(self, module, name, function=None):
        return self._put(self.deferred_printers, (module, name), function)

    @staticmethod
    def _put(printers, key, function):
        before = printers.get(key)
        if function is not None:
            printers[key] = function
        return before

    def of_class(self, base):
        found = self.type_printers.get(base)
        return found if found is not None else self.deferred_printers.get((base.__module__, base.__name__))

    def lookup_by_type(self, kind):
        for base in kind.__mro__:
            found = self.of_class(base)
            if found is not None:
                return found
        raise KeyError(kind)

    def lookup(self, value):
        return self.lookup_by_type(type(value))

    def pop(self, kind, default=_NONE):
        printers, key = self.type_printers, kind
        if isinstance(kind, str):
            module, _, name = kind.rpartition(".")
            printers, key = self.deferred_printers, (module, name)
        return printers.pop(key) if default is _NONE else printers.pop(key, default)

    def __contains__(self, kind):
        try:
            return self.lookup_by_type(kind) is not None
        except KeyError:
            return False

    def __call__(self, value):
        found = self.find(value)
        return found(value) if found else None

    def find(self, value):
        """The function for @value, or None."""
        if not self.enabled or not (self.type_printers or self.deferred_printers):
            return None
        try:
            return self.lookup(value)
        except KeyError:
            return None


class TextFormatter(Formatter):
    """Its functions write to a printer of pretty.py, also for what is in a container."""
    float_format = ""

    def set_precision(self, text):
        """As of %precision: a number of digits, a format, or nothing. Returns the format."""
        text = text.strip()
        self.float_format = "%%.%df" % int(text) if text.isdigit() else text or "%r"
        self.float_format % 3.14159
        self.type_printers[float] = lambda value, p, cycle: p.text(self.float_format % value)
        return self.float_format

    def __call__(self, value):
        return pretty.pretty(value)


class DisplayFormatter:
    def __init__(self):
        self.formatters = {kind: (TextFormatter if kind == "text/plain" else Formatter)(kind) for kind in KINDS}
        self.mimebundle_formatter, self.ipython_display_formatter = Formatter("mimebundle"), Formatter("display")
        pretty.TYPED = self.formatters["text/plain"]

    @property
    def format_types(self):
        return list(self.formatters)

    active_types = format_types

    def format(self, value, include=None, exclude=None):
        from . import display
        return display.formats(value, include, exclude)

    def find(self, kind, value):
        """The function for @value, or None. What code puts in the place of a formatter is one for all values."""
        formatter = self.formatters.get(kind)
        return formatter.find(value) if isinstance(formatter, Formatter) else formatter

    def more(self):
        """Formats that are not IPython's own."""
        return [kind for kind in self.formatters if kind not in KINDS]


SHARED = DisplayFormatter()  # one for a process, as there is one get_ipython()
