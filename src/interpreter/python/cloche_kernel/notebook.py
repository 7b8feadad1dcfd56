"""The functions that code for notebooks expects of IPython: get_ipython(), display() and the classes of IPython.display.

Where IPython is installed, its functions are led to the kernel. Where it is not, a small package of the same name has the
parts that cells use."""
import base64
import importlib.machinery
import json
import os
import sys

from . import display, formatters, magics


class ZMQInteractiveShell:
    """What get_ipython() returns. pandas, rich and others recognize a notebook by the name of this class."""
    colors = "NoColor"  # sympy asks

    def __init__(self, kernel):
        self.kernel = kernel
        self.user_ns = kernel.cells
        self.config = {}
        self.events = _Events()
        self.display_pub = _Publisher(kernel.displays)
        self.display_formatter = formatters.SHARED

    def run_line_magic(self, name, line, _stack_depth=1):
        return magics.line(self.kernel, name, line)

    def run_cell_magic(self, name, line, cell):
        return magics.cell(self.kernel, name, line, cell)

    def magic(self, line):
        name, _, rest = line.lstrip("%").partition(" ")
        return magics.line(self.kernel, name, rest.strip())

    def run_cell(self, code, *_, **__):
        return self.kernel.runner.nested(code)

    def ex(self, code):
        exec(code, self.user_ns)

    def ev(self, code):
        return eval(code, self.user_ns)

    def push(self, variables, **_):
        self.user_ns.update(variables if isinstance(variables, dict) else {n: self.user_ns[n] for n in variables})

    def reset(self, *_, **__):
        self.kernel.reset()

    @property
    def execution_count(self):
        return self.kernel.count

    def system(self, command):
        return magics.system(self.kernel, command)

    def getoutput(self, command, split=True, depth=0):
        return magics.getoutput(self.kernel, command, split)

    def register_magic_function(self, function, magic_kind="line", magic_name=None):
        self.kernel.magics[magic_kind][magic_name or function.__name__] = function

    def set_custom_exc(self, *_):
        """Accepted: tracebacks are the kernel's."""

    def showtraceback(self, *_, **__):
        import traceback
        traceback.print_exc()

    def enable_gui(self, gui=None):
        """There is no screen."""

    def __repr__(self):
        return "<shell of this context>"


ZMQInteractiveShell.__module__ = "ipykernel.zmqshell"  # plotly takes a shell of another module for a page of HTML


class _Events:
    """get_ipython().events: libraries register what they want to do after cells."""

    def __init__(self):
        self.callbacks = {}

    def register(self, event, function):
        if function not in self.callbacks.setdefault(event, []):
            self.callbacks[event].append(function)

    def unregister(self, event, function):
        if function not in self.callbacks.get(event, []):
            raise ValueError("%r is not registered for %s" % (function, event))
        self.callbacks[event].remove(function)

    def trigger(self, event):
        for function in list(self.callbacks.get(event, ())):
            try:
                function()
            except Exception:
                display.note("a function registered for %s failed" % event)


class _Publisher:
    def __init__(self, displays):
        self.displays = displays

    def publish(self, data, metadata=None, **options):
        publish_display_data(self.displays, data, metadata, **options)

    def clear_output(self, wait=False):
        display.clear_output(self.displays, wait)


def publish_display_data(displays, data, metadata=None, *_, transient=None, update=False, **__):
    more = {}
    if transient and transient.get("display_id"):
        more["display_id"] = transient["display_id"]
        if update:
            more["update"] = True
    displays.publish(dict(data), metadata, **more)


class State:
    """One shell for the process: get_ipython() takes no argument."""
    shell = None


def get_ipython():
    """The shell of this context, as IPython's function of this name returns it."""
    return State.shell


def show(*values, **options):
    """Shows values as results, in all formats that they offer."""
    return display.display_with(State.shell.kernel.displays, *values, **options)


show.__name__ = show.__qualname__ = "display"


def update_display(value, *, display_id, **options):
    display.display_with(State.shell.kernel.displays, value, display_id=display_id, update=True, **options)


def clear(wait=False):
    """Asks whoever shows the results to remove those of this execution."""
    display.clear_output(State.shell.kernel.displays, wait)


clear.__name__ = clear.__qualname__ = "clear_output"


def publish(data, metadata=None, *rest, **options):
    publish_display_data(State.shell.kernel.displays, data, metadata, *rest, **options)


def _functions():
    return {"display": show, "update_display": update_display, "clear_output": clear, "publish_display_data": publish}


def adopt(module):
    """The real package IPython."""
    module.get_ipython = get_ipython
    core = sys.modules.get("IPython.core.getipython")
    if core is not None:
        core.get_ipython = get_ipython
    if hasattr(module, "display"):
        module.display = show
    for name in ("IPython.display", "IPython.core.display_functions"):
        if name in sys.modules:
            adopt_display(sys.modules[name])


def adopt_display(module):
    for name, function in _functions().items():
        if hasattr(module, name):
            setattr(module, name, function)


# The package where there is none

class DisplayObject:
    """Data that shows itself in one format."""
    kind, read_mode = "text/plain", "r"

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if data is not None and isinstance(data, (str, os.PathLike)) and url is None and filename is None:
            text = os.fspath(data)
            if text.startswith(("http://", "https://")):
                data, url = None, text
            elif self.from_name(text):
                data, filename = None, text
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}
        self.reload()

    def from_name(self, text):
        return False

    def reload(self):
        if self.filename is not None:
            with open(self.filename, self.read_mode, **({} if "b" in self.read_mode else {"encoding": "utf-8"})) as f:
                self.data = f.read()

    def content(self):
        return self.data

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            return {}
        return {self.kind: self.content()}, ({self.kind: self.metadata} if self.metadata else {})

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


def _text_class(name, kind):
    made = type(name, (DisplayObject,), {"kind": kind, "__doc__": "Text that shows as %s." % kind})
    made.__module__ = "IPython.core.display"
    return made


HTML = _text_class("HTML", "text/html")
Markdown = _text_class("Markdown", "text/markdown")
Latex = _text_class("Latex", "text/latex")
Pretty = _text_class("Pretty", "text/plain")
Javascript = _text_class("Javascript", "application/javascript")


class Math(Latex):
    def content(self):
        return "$\\displaystyle %s$" % self.data.strip("$")


class SVG(DisplayObject):
    kind = "image/svg+xml"

    def from_name(self, text):
        return text.endswith(".svg") and len(text) < 4096

    def content(self):
        text = self.data.decode("utf-8") if isinstance(self.data, bytes) else self.data
        start = text.find("<svg")
        return text[max(start, 0):]


class JSON(DisplayObject):
    kind = "application/json"

    def content(self):
        return json.loads(self.data) if isinstance(self.data, str) else self.data


class Image(DisplayObject):
    read_mode = "rb"

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, metadata=None,
                 **options):
        self.format, self.width, self.height = format, width, height
        super().__init__(data, url, filename, metadata)
        for name in ("width", "height"):
            if getattr(self, name) is not None:
                self.metadata[name] = getattr(self, name)

    def from_name(self, text):
        return len(text) < 4096

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            size = "".join(' %s="%d"' % (n, getattr(self, n)) for n in ("width", "height") if getattr(self, n))
            return {"text/html": '<img src="%s"%s/>' % (self.url, size)}
        kind = "image/" + ("jpeg" if self.format in ("jpg", "jpeg") else self.format) if self.format else _image_kind(self.data)
        return {kind: base64.b64encode(self.data).decode("ascii")}, ({kind: self.metadata} if self.metadata else {})


def _image_kind(data):
    for start, kind in ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp")):
        if data[:len(start)] == start:
            return kind
    return "image/png"


class Code(DisplayObject):
    def __init__(self, data=None, url=None, filename=None, language=None):
        super().__init__(data, url, filename)

    def content(self):
        return self.data

    def __repr__(self):
        return self.data or ""


class IFrame:
    def __init__(self, src, width, height, extras=None, **params):
        self.src, self.width, self.height = src, width, height

    def _repr_html_(self):
        return '<iframe width="%s" height="%s" src="%s" frameborder="0" allowfullscreen></iframe>' % (
            self.width, self.height, self.src)


class FileLink:
    def __init__(self, path, **options):
        self.path = path

    def _repr_html_(self):
        return "<a href='%s' target='_blank'>%s</a>" % (self.path, self.path)

    def __repr__(self):
        return os.path.abspath(self.path)


class _Media:
    tag = "audio"

    def __init__(self, data=None, filename=None, url=None, embed=None, rate=None, autoplay=False, **options):
        if isinstance(data, str):
            data, filename, url = None, None if "://" in data else data, data if "://" in data else None
        if data is not None and not isinstance(data, bytes):
            raise TypeError("%s() of numbers needs the package IPython; pass the bytes or the name of a file"
                            % type(self).__name__)
        if filename is not None:
            with open(filename, "rb") as f:
                data = f.read()
        import mimetypes
        self.data, self.url = data, url
        self.kind = mimetypes.guess_type(filename or url or "")[0] or self.tag + ("/wav" if self.tag == "audio" else "/mp4")

    def _repr_html_(self):
        src = self.url or "data:%s;base64,%s" % (self.kind, base64.b64encode(self.data).decode("ascii"))
        return '<%s controls="controls"><source src="%s" type="%s" /></%s>' % (self.tag, src, self.kind, self.tag)


class Audio(_Media):
    tag = "audio"


class Video(_Media):
    tag = "video"


CLASSES = (DisplayObject, HTML, Markdown, Latex, Math, Pretty, Javascript, SVG, JSON, Image, Code, IFrame, FileLink, Audio, Video)


class _Package:
    """Makes the modules IPython, IPython.display, IPython.core and IPython.core.display."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__dict__.update(_functions(), get_ipython=get_ipython, DisplayHandle=display.DisplayHandle,
                               **{c.__name__: c for c in CLASSES})
        if module.__name__ == "IPython":
            module.__path__ = []
            module.version_info, module.__version__ = (0, 0, 0), "0"  # libraries ask for features by version
            module.display = show
        elif module.__name__ == "IPython.core":
            module.__path__ = []


def spec_of(name):
    if name not in ("IPython", "IPython.display", "IPython.core", "IPython.core.display", "IPython.core.getipython",
                    "IPython.core.display_functions"):
        return None
    return importlib.machinery.ModuleSpec(name, _Package(), is_package=name in ("IPython", "IPython.core"))


