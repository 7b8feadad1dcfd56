"""Values as results: the formats that a value offers, with their sizes bounded, and the functions display() and its kin.

A value offers a format by a method: _repr_html_() and others, or _repr_mimebundle_() for several. A method that fails costs its
own format only, with a note on stderr."""
import base64
import json
import os
import sys
import traceback

from . import formatters, pretty, wire

METHODS = (
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"), ("_repr_javascript_", "application/javascript"), ("_repr_pdf_", "application/pdf"),
)
BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
RESULT_MAX = 10 << 20
RESULTS_MAX = 1000
JSON_MAX = 1 << 20
DIGITS_MAX = 4300  # of an integer: Python's own readers of JSON refuse more


class TooManyResults(Exception):
    """Raised in the cell that shows too much."""
    __module__ = "builtins"


def note(what):
    """A format's failure, for the one who wrote the class."""
    kind, value, tb = sys.exc_info()
    while tb is not None and tb.tb_frame.f_globals.get("__package__") == __package__:
        tb = tb.tb_next
    sys.stderr.write("%s:\n%s" % (what, "".join(traceback.format_exception(kind, value, tb, limit=-8))))


def _own_method(value, name):
    """@value's method. A class as a value has those of its instances, which are none of its own; and things that answer any
    name, as mocks do, offer nothing."""
    if isinstance(value, type):
        return None
    try:
        if callable(getattr(value, "_a_name_that_nothing_has_", None)):
            return None
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def _attempt(value, name, *args, **kwargs):
    method = _own_method(value, name)
    if method is None:
        return None
    try:
        return method(*args, **kwargs)
    except NotImplementedError:
        return None
    except Exception:
        note("%s.%s() failed" % (type(value).__name__, name))
        return None


def _shows_itself(value):
    """Calls its _ipython_display_(). If that fails, its formats are shown."""
    own = formatters.SHARED.ipython_display_formatter.find(value)
    method = _own_method(value, "_ipython_display_") if own is None else lambda: own(value)
    if method is None:
        return False
    try:
        method()
        return True
    except NotImplementedError:
        return False
    except Exception:
        note("%s._ipython_display_() failed" % type(value).__name__)
        return False


def _called(function, value):
    """What a function gives that code has registered for @value's class."""
    try:
        return function(value)
    except NotImplementedError:
        return None
    except Exception:
        note("the formatter for values of class %s failed" % type(value).__name__)
        return None


def _offered(value, name, kind):
    own = formatters.SHARED.find(kind, value)
    return _called(own, value) if own else _attempt(value, name) if name else None


def text_of(value):
    try:
        return formatters.SHARED.formatters.get("text/plain", pretty.pretty)(value)
    except Exception:
        note("repr() of a value of class %s failed" % type(value).__name__)
        return None


def _json_of(value):
    """Lists and dicts as JSON, if they are small and JSON can say what they hold."""
    if type(value) not in (list, dict):
        return None
    try:
        return value if _count(value, 0, [100000]) and len(json.dumps(value, allow_nan=False)) <= JSON_MAX else None
    except (TypeError, ValueError, RecursionError):
        return None


def _count(value, depth, budget):
    """Whether only types that JSON has are in there, and not too many."""
    budget[0] -= 1
    if budget[0] < 0 or depth > 50:
        return False
    if type(value) is dict:
        return all(type(k) is str and _count(v, depth + 1, budget) for k, v in value.items())
    if type(value) is list:
        return all(_count(v, depth + 1, budget) for v in value)
    return value is None or type(value) in (str, float, bool) or type(value) is int and not _long(value)


def _long(number):
    """Whether an integer has more digits than JSON's readers take."""
    return number.bit_length() > 3 * DIGITS_MAX and abs(number) >= 10 ** DIGITS_MAX


def dump(value, **options):
    """JSON, with a text in place of an integer that is too long."""
    known = getattr(sys, "get_int_max_str_digits", lambda: 0)()
    if 0 < known <= DIGITS_MAX:
        try:
            return json.dumps(value, allow_nan=False, **options)
        except ValueError:
            pass  # one is too long for this limit, or JSON cannot say what is there
    return json.dumps(_shortened(value), allow_nan=False, **options)


def _shortened(value):
    if type(value) is int and _long(value):
        return "an integer of about %d digits" % (value.bit_length() * 0.30103 + 1)
    if type(value) in (list, tuple):
        return [_shortened(v) for v in value]
    if type(value) is dict:
        return {k: _shortened(v) for k, v in value.items()}
    return value


def formats(value, include=None, exclude=None):
    """({MIME type: value}, metadata)."""
    mime, metadata = {}, {}
    own = formatters.SHARED.mimebundle_formatter.find(value)
    bundle = _called(own, value) if own else _attempt(value, "_repr_mimebundle_", include=include, exclude=exclude)
    if isinstance(bundle, tuple) and len(bundle) == 2:
        bundle, metadata = bundle[0], dict(bundle[1] or {})
    if isinstance(bundle, dict):
        mime.update(bundle)
    for name, kind in METHODS + tuple((None, kind) for kind in formatters.SHARED.more()):
        if kind in mime:
            continue
        made = _offered(value, name, kind)
        if isinstance(made, tuple) and len(made) == 2:
            made, metadata[kind] = made
        if made is not None:
            mime[kind] = made
    try:
        for kind, made in special(value):
            mime.setdefault(kind, made)
    except Exception:
        note("a value of class %s cannot be shown as a picture" % type(value).__name__)
    if "text/plain" not in mime:
        text = text_of(value)
        if text is not None:
            mime["text/plain"] = text
    found = _json_of(value)
    if found is not None:
        mime.setdefault("application/json", found)
    if include:
        mime = {k: v for k, v in mime.items() if k in include}
    if exclude:
        mime = {k: v for k, v in mime.items() if k not in exclude}
    return mime, metadata


def special(value):
    """Formats of classes that do not offer them by a method."""
    module = type(value).__module__ or ""
    if module.startswith("matplotlib.") and "matplotlib.figure" in sys.modules:
        from . import plots
        return plots.formats(value)
    return ()


def extras(value):
    """What a result has beside its formats: the data of a table, the chart of a figure."""
    module = (type(value).__module__ or "").partition(".")[0]
    try:
        if module in ("pandas", "polars"):
            from . import tables
            return tables.extras(value)
        if module == "matplotlib":
            from . import plots
            return plots.extras(value)
    except Exception:
        note("the data of a value of class %s cannot be had" % type(value).__name__)
    return {}


def _checked(kind, made):
    """One format as JSON can carry it, and its size."""
    if isinstance(made, (bytes, bytearray, memoryview)):
        made = bytes(made)
        if kind in BINARY or not kind.startswith(("text/", "application/javascript", "image/svg")):
            made = base64.b64encode(made).decode("ascii")
        else:
            made = made.decode("utf-8", "replace")
    if isinstance(made, str):
        if kind in BINARY:
            made = made.replace("\n", "")
        return wire.plain_text(made), len(made)
    text = dump(made, default=str)
    return json.loads(text), len(text)


class Displays:
    """The results of one context."""

    def __init__(self, send, output, limit=RESULT_MAX):
        self.wire_send, self.output, self.limit = send, output, limit
        self.count = self.bytes = 0
        self.capture = None

    def begin(self):
        self.count = self.bytes = 0

    def show(self, value, is_main=False):
        """One value, as the result of a cell or by display()."""
        if _shows_itself(value):
            return
        mime, metadata = formats(value)
        if mime:
            self.publish(mime, metadata, is_main=is_main, **extras(value))

    def publish(self, mime, metadata=None, is_main=False, **more):
        """Sends one result. A format over the limit is left out and named in "truncated"."""
        sent, truncated, room = {}, {}, self.limit
        for kind in sorted(mime, key=lambda k: k != "text/plain"):
            try:
                made, size = _checked(str(kind), mime[kind])
            except (TypeError, ValueError, RecursionError):
                note("the format %s of a result cannot be sent" % kind)
                continue
            if kind == "text/plain" and isinstance(made, str) and size > self.limit // 10:
                made, truncated[kind], size = made[:self.limit // 10], size, self.limit // 10
            if size > room:
                truncated[str(kind)] = size
                continue
            sent[str(kind)] = made
            room -= size
        event = {"type": "result", "id": self.output.id, "mime": sent, "is_main": is_main}
        if metadata:
            try:
                event["metadata"] = json.loads(dump(metadata, default=str))
            except (TypeError, ValueError, RecursionError):
                note("the metadata of a result cannot be sent")
        for key, made in more.items():
            if key in ("data", "chart"):
                text = dump(made)
                if len(text) > room:
                    truncated[key] = len(text)
                    continue
                room -= len(text)
                made = json.loads(text)
            event[key] = made
        if truncated:
            event["truncated"] = truncated
        if self.capture is not None:
            self.capture.append(event)
            return
        self.count += 1
        self.bytes += self.limit - room
        if self.count > RESULTS_MAX or self.bytes > 4 * self.limit:
            raise TooManyResults("one execution may show %d results with %d MiB; display fewer, or write them to files"
                          % (RESULTS_MAX, 4 * self.limit >> 20))
        self.output.flush()
        self.wire_send(event)


class DisplayHandle:
    def __init__(self, displays, display_id):
        self.displays, self.display_id = displays, display_id

    def display(self, value, **options):
        display_with(self.displays, value, display_id=self.display_id, **options)

    def update(self, value, **options):
        display_with(self.displays, value, display_id=self.display_id, update=True, **options)

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id


def display_with(displays, *values, raw=False, include=None, exclude=None, metadata=None, transient=None, display_id=None,
                 update=False, clear=False, **_):
    """display(), as IPython has it."""
    if clear:
        clear_output(displays, wait=True)
    more = {}
    if display_id is not None:
        if display_id is True:
            display_id = os.urandom(16).hex()
        more = {"display_id": str(display_id)}
        if update:
            more["update"] = True
    for value in values:
        if raw:
            displays.publish(dict(value), metadata, **more)
            continue
        if not more and not include and not exclude and not metadata:
            displays.show(value)
            continue
        if _shows_itself(value):
            continue
        mime, own_metadata = formats(value, include, exclude)
        if mime:
            displays.publish(mime, {**own_metadata, **(metadata or {})}, **more, **extras(value))
    return DisplayHandle(displays, more["display_id"]) if more and not update else None


def clear_output(displays, wait=False):
    displays.output.flush()
    displays.wire_send({"type": "clear", "id": displays.output.id, "wait": bool(wait)})
