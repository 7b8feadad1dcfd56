"""Lines that begin with % or !, and cells that begin with %%: those that cells use most. The others are refused by name."""
import os
import re
import shlex
import signal
import subprocess
import sys
import time

LINE, CELL = {}, {}
IGNORED = {
    "load_ext": "extensions of IPython are not loaded here", "reload_ext": "extensions of IPython are not loaded here",
    "unload_ext": "extensions of IPython are not loaded here", "autoreload": "modules are not reloaded; use importlib.reload()",
    "xmode": "tracebacks have one format here",
    "colors": "output has no colours here", "gui": "there is no screen", "autosave": "there is no notebook to save",
    "automagic": "magics need their %", "pdb": "there is no debugger; errors come with a traceback",
    "pprint": "values always show in this way; use print(repr(value))", "logstart": "the history request gives the cells",
}


class UsageError(Exception):
    """A magic that does not exist, or that was used wrongly."""
    __module__ = "builtins"  # the name alone is what tracebacks show


def magic(*names, kind=LINE):
    def add(function):
        for name in names:
            kind[name] = function
        return function
    return add


def names(kernel, kinds):
    found = []
    for kind in kinds:
        found += (LINE if kind == "line" else CELL).keys()
        found += kernel.magics[kind].keys()
    return found + (list(IGNORED) if "line" in kinds else [])


def find(kernel, name):
    return kernel.magics["line"].get(name) or LINE.get(name) or kernel.magics["cell"].get(name) or CELL.get(name)


def line(kernel, name, rest):
    own = kernel.magics["line"].get(name)
    if own is not None:
        return own(expand(kernel, rest))
    if name in LINE:
        return LINE[name](kernel, rest)
    if name in IGNORED:
        sys.stderr.write("%%%s is ignored: %s\n" % (name, IGNORED[name]))
        return None
    if name in CELL:
        raise UsageError("%%%s works on a whole cell only: write %%%%%s in its first line" % (name, name))
    raise UsageError("there is no line magic %%%s here" % name)


def cell(kernel, name, rest, body):
    own = kernel.magics["cell"].get(name)
    if own is not None:
        return own(expand(kernel, rest), body)
    if name in CELL:
        return CELL[name](kernel, rest, body)
    if name in LINE:
        raise UsageError("%%%%%s is no cell magic: write %%%s before a line" % (name, name))
    raise UsageError("there is no cell magic %%%%%s here" % name)


# Commands

_VARIABLE = re.compile(r"\$\$|\$([^\W\d]\w*(?:\.[^\W\d]\w*)*)|\{\{|\}\}|\{([^{}]+)\}")


def expand(kernel, text):
    """{expression} and $name of a command, by the variables of the cells and of the function that runs it. What is no
    expression stays as it is."""
    names = kernel.helper.names()

    def put(m):
        found = m.group(0)
        if found in ("{{", "}}", "$$"):
            return found[0]
        try:
            if m.group(2) is not None:
                return str(eval(m.group(2), kernel.cells, names))
            first = m.group(1).split(".")[0]
            return str(eval(m.group(1), kernel.cells, names)) if first in names or first in kernel.cells else found
        except Exception:
            return found
    return _VARIABLE.sub(put, text)


def _shell():
    shell = "/bin/bash"
    return shell if os.path.exists(shell) else "/bin/sh"


def run(kernel, argv, write, input=None, merged=True, env=None):
    """Runs a program and passes on what it prints while it prints it. Its exit code. An interrupt ends its processes."""
    import codecs
    import select
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL if input is None else subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT if merged else None, start_new_session=True, env=env)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    data = memoryview(input.encode("utf-8")) if input is not None else None
    try:
        fd = process.stdout.fileno()
        os.set_blocking(fd, False)
        if data is not None:
            os.set_blocking(process.stdin.fileno(), False)
        while True:
            over = process.poll() is not None
            wait = [process.stdin] if data is not None else []
            readable, writable, _ = select.select([fd], wait, [], 0 if over else 0.1)
            if writable:
                try:
                    data = data[os.write(process.stdin.fileno(), data):]
                except BrokenPipeError:
                    data = data[:0]
                if not data:
                    process.stdin.close()
                    data = None
            if readable:
                piece = os.read(fd, 65536)
                if not piece:
                    break
                text = decoder.decode(piece)
                if text:
                    write(text)
            elif over:
                break  # what runs on in the background keeps the pipe
        return process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        process.stdout.close()
        if process.stdin is not None and not process.stdin.closed:
            try:
                process.stdin.close()
            except OSError:
                pass


def _end(process):
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(1)
            if number == signal.SIGINT:
                continue
        except subprocess.TimeoutExpired:
            pass


def _to_stdout(text):
    put = getattr(sys.stdout, "put", None)
    if put is not None:
        put(text, True)
    else:
        sys.stdout.write(text)


def system(kernel, command):
    code = run(kernel, [_shell(), "-c", expand(kernel, command)], _to_stdout)
    kernel.cells["_exit_code"] = code
    return None


class SList(list):
    """The lines of a command's output: x = !command."""

    @property
    def n(self):
        return "\n".join(self)

    nlstr = n
    l = list_ = property(lambda self: self)

    @property
    def s(self):
        return " ".join(self)

    spstr = s

    def grep(self, pattern):
        return SList(x for x in self if re.search(pattern, x))


def getoutput(kernel, command, split=True):
    parts = []
    kernel.cells["_exit_code"] = run(kernel, [_shell(), "-c", expand(kernel, command)], parts.append)
    text = "".join(parts)
    return SList(text.splitlines()) if split else text


@magic("system", "sx")
def _sx(kernel, rest):
    return getoutput(kernel, rest)


@magic("pip")
def _pip(kernel, rest):
    words = shlex.split(expand(kernel, rest))
    if words[:1] == ["uninstall"] and not {"-y", "--yes"} & set(words):
        words.append("-y")  # there is no one to ask
    # Debian's pip refuses to install beside Debian's packages, which is for machines that apt upgrades.
    env = {"PIP_BREAK_SYSTEM_PACKAGES": "1", **os.environ}
    code = run(kernel, [sys.executable, "-m", "pip", "--disable-pip-version-check"] + words, _to_stdout, env=env)
    kernel.cells["_exit_code"] = code
    import importlib
    import site
    folder = site.getusersitepackages()
    if site.ENABLE_USER_SITE and folder not in sys.path and os.path.isdir(folder):
        site.addsitedir(folder)  # it did not exist when the interpreter started
    importlib.invalidate_caches()
    if code:
        sys.stderr.write("%%pip %s failed with exit code %d\n" % (words[0] if words else "", code))


@magic("conda", "mamba", "micromamba")
def _conda(kernel, rest):
    return system(kernel, "conda " + rest)


def _program(*argv):
    def call(kernel, rest, body):
        kernel.cells["_exit_code"] = code = run(kernel, list(argv) + shlex.split(rest), _to_stdout, body, merged=False)
        if code:
            raise subprocess.CalledProcessError(code, " ".join(argv))
    return call


CELL["sh"] = _program("/bin/sh")
CELL["bash"] = lambda kernel, rest, body: _program(_shell())(kernel, rest, body)
CELL["python"] = CELL["python3"] = lambda kernel, rest, body: _program(sys.executable)(kernel, rest, body)
CELL["perl"], CELL["ruby"] = _program("perl"), _program("ruby")
CELL["script"] = lambda kernel, rest, body: _program(*shlex.split(rest))(kernel, "", body)


def _shell_word(name):
    LINE[name] = lambda kernel, rest: system(kernel, "%s %s" % (name, rest))


for _word in ("ls", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "head", "tail"):
    _shell_word(_word)
LINE["ll"] = lambda kernel, rest: system(kernel, "ls -l " + rest)
CELL["!"] = CELL["system"] = CELL["sx"] = lambda kernel, rest, body: getoutput(kernel, body)


# The process

@magic("cd")
def _cd(kernel, rest):
    words = shlex.split(expand(kernel, rest)) if rest else []
    quiet = "-q" in words
    words = [w for w in words if w != "-q"]
    place = os.path.expanduser(words[0] if words else "~")
    if place == "-":
        if kernel.last_folder is None:
            raise UsageError("%cd -: there was no folder before")
        place = kernel.last_folder
    before = os.getcwd()
    os.chdir(place)
    kernel.last_folder = before
    if not quiet:
        print(os.getcwd())


@magic("pwd")
def _pwd(kernel, rest):
    return os.getcwd()


@magic("env")
def _env(kernel, rest):
    rest = rest.strip()
    if not rest:
        return dict(os.environ)
    if "=" not in rest and " " not in rest:
        if rest not in os.environ:
            raise UsageError("the environment has no variable %s" % rest)
        return os.environ[rest]
    return _set_env(kernel, rest)


@magic("set_env")
def _set_env(kernel, rest):
    name, _, value = rest.partition("=") if "=" in rest else rest.partition(" ")
    name, value = name.strip(), expand(kernel, value.strip())
    if not name or " " in name:
        raise UsageError("%env: write %env NAME=value")
    os.environ[name] = value
    print("env: %s=%s" % (name, value))


# Time

def _span(seconds, digits=3):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("\u00b5s", 1e-6)):
        if seconds >= size:
            break
    else:
        unit, size = "ns", 1e-9
    if unit == "s" and seconds >= 60:
        whole = int(seconds)
        parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
        return " ".join("%d%s" % p for p in parts if p[0])
    return "%.*g %s" % (digits, seconds / size, unit)


class TimeitResult:
    """%timeit -o: the times of one loop."""

    def __init__(self, loops, repeat, runs):
        self.loops, self.repeat, self.all_runs = loops, repeat, runs
        self.timings = [t / loops for t in runs]
        self.best, self.worst = min(self.timings), max(self.timings)
        self.average = sum(self.timings) / len(self.timings)
        self.stdev = (sum((t - self.average) ** 2 for t in self.timings) / len(self.timings)) ** 0.5

    def __str__(self):
        return "%s \u00b1 %s per loop (mean \u00b1 std. dev. of %d run%s, %s loop%s each)" % (
            _span(self.average), _span(self.stdev), self.repeat, "" if self.repeat == 1 else "s", format(self.loops, ","),
            "" if self.loops == 1 else "s")

    def __repr__(self):
        return "<TimeitResult : %s>" % self


def _options(rest, letters):
    """({letter: value}, what follows them). A letter with : has a value."""
    found, takes = {}, {c for c, after in zip(letters, letters[1:] + " ") if after == ":"}
    while True:
        m = re.match(r"-([A-Za-z])(?:\s*(\d+|\S+))?(?:\s+|$)" if rest[1:2] in takes else r"-([A-Za-z])()(?:\s+|$)", rest)
        if not m or m.group(1) not in letters:
            return found, rest
        found[m.group(1)] = m.group(2)
        rest = rest[m.end():]


def _timeit_of(kernel, statement, setup, options):
    import timeit
    timer = timeit.Timer(statement or "pass", setup or "pass", globals=kernel.cells)
    loops = int(options.get("n") or 0)
    repeat = int(options.get("r") or 7)
    if not loops:
        loops = timer.autorange()[0]
        loops = max(1, loops)
    result = TimeitResult(loops, repeat, timer.repeat(repeat, loops))
    if "q" not in options:
        print(result)
    return result if "o" in options else None


@magic("timeit")
def _timeit(kernel, rest):
    options, statement = _options(rest, "n:r:tcp:qo")
    return _timeit_of(kernel, statement, None, options)


@magic("timeit", kind=CELL)
def _timeit_cell(kernel, rest, body):
    options, setup = _options(rest, "n:r:tcp:qo")
    return _timeit_of(kernel, body, setup, options)


def _timed(kernel, code):
    wall, cpu = time.perf_counter(), os.times()
    try:
        return kernel.runner.nested_value(code)
    finally:
        wall, after = time.perf_counter() - wall, os.times()
        user, system_time = after.user - cpu.user, after.system - cpu.system
        print("CPU times: user %s, sys: %s, total: %s\nWall time: %s" % (
            _span(user), _span(system_time), _span(user + system_time), _span(wall)))


@magic("time")
def _time(kernel, rest):
    value, shown = _timed(kernel, rest)
    return value if shown else None


@magic("time", kind=CELL)
def _time_cell(kernel, rest, body):
    value, shown = _timed(kernel, (rest + "\n" if rest else "") + body)
    return value if shown else None


@magic("prun")
def _prun(kernel, rest):
    import cProfile
    _, statement = _options(rest, "s:l:qr")
    cProfile.runctx(statement, kernel.cells, kernel.cells, sort="tottime")


# Output

@magic("precision")
def _precision(kernel, rest):
    from . import formatters
    try:
        made = formatters.SHARED.formatters["text/plain"].set_precision(rest)
    except (TypeError, ValueError):
        raise UsageError("%precision: write a number of digits, as in %precision 3, or a format") from None
    if rest.strip().isdigit() and "numpy" in sys.modules:
        sys.modules["numpy"].set_printoptions(precision=int(rest))
    return made


@magic("matplotlib")
def _matplotlib(kernel, rest):
    from . import plots
    if rest.strip() in ("", "inline", "auto", "agg", "notebook", "widget", "ipympl", "qt", "tk", "gtk", "osx"):
        if rest.strip() not in ("", "inline"):
            sys.stderr.write("%%matplotlib %s: there is no screen here; plots are pictures, as with inline\n" % rest.strip())
    elif rest.strip() in ("-l", "--list"):
        print("Available matplotlib backends: ['inline']")
        return
    else:
        raise UsageError("%%matplotlib %s: use %%matplotlib inline" % rest.strip())
    try:
        import matplotlib
    except ImportError:
        raise UsageError("%matplotlib: matplotlib is not installed here; try %pip install matplotlib") from None
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].switch_backend(plots.BACKEND)
    matplotlib.rcParams["backend"] = plots.BACKEND


@magic("pylab")
def _pylab(kernel, rest):
    _matplotlib(kernel, "inline")
    exec("import numpy\nimport matplotlib\nfrom matplotlib import pylab, mlab, pyplot\nnp = numpy\nplt = pyplot\n"
         "from pylab import *\nfrom numpy import *", kernel.cells)


@magic("config")
def _config(kernel, rest):
    """%config InlineBackend.figure_format = 'retina' is the one setting that cells use."""
    from . import plots
    m = re.match(r"InlineBackend\.figure_formats?\s*=\s*(.*)$", rest.strip())
    if not m:
        sys.stderr.write("%config is ignored: IPython's settings have no meaning here\n")
        return
    value = eval(m.group(1), kernel.cells)
    chosen = tuple(sorted(value)) if isinstance(value, (set, list, tuple)) else (value,)
    if not set(chosen) <= set(plots.KINDS):
        raise UsageError("%%config InlineBackend.figure_format: %s; there are %s" % (rest, ", ".join(sorted(plots.KINDS))))
    plots.State.formats = chosen


class Captured:
    """What %%capture has caught: stdout, stderr and the results."""

    def __init__(self, displays):
        self.stdout = self.stderr = ""
        self.outputs, self._displays = [], displays

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for event in self.outputs:
            self._displays.publish(event["mime"], event.get("metadata"))

    __call__ = show

    def __str__(self):
        return self.stdout


@magic("capture", kind=CELL)
def _capture(kernel, rest, body):
    import contextlib
    import io
    words = [w for w in rest.split() if not w.startswith("--")]
    made, out, err = Captured(kernel.displays), io.StringIO(), io.StringIO()
    before, kernel.displays.capture = kernel.displays.capture, made.outputs
    try:
        with contextlib.redirect_stdout(out if "--no-stdout" not in rest else sys.stdout), \
                contextlib.redirect_stderr(err if "--no-stderr" not in rest else sys.stderr):
            kernel.runner.nested(body)
            kernel.end_of_cell()
    finally:
        kernel.displays.capture = before
        made.stdout, made.stderr = out.getvalue(), err.getvalue()
        if words:
            kernel.cells[words[0]] = made


@magic("writefile", "file", kind=CELL)
def _writefile(kernel, rest, body):
    options, name = _options(rest, "a")
    name = os.path.expanduser(expand(kernel, name.strip().strip("\"'")))
    if not name:
        raise UsageError("%%writefile: name the file, as in %%writefile notes.txt")
    there = os.path.exists(name)
    with open(name, "a" if "a" in options else "w", encoding="utf-8") as f:
        f.write(body if body.endswith("\n") or not body else body + "\n")
    print("%s %s" % ("Appending to" if "a" in options else "Overwriting" if there else "Writing", name))


def _format(name):
    def show(kernel, rest, body):
        import importlib
        made = getattr(importlib.import_module("IPython.display"), name)  # the package's, or notebook.py's
        kernel.displays.show(made(body if body.endswith("\n") else body + "\n"))
    return show


CELL["html"] = CELL["HTML"] = _format("HTML")
CELL["markdown"], CELL["latex"] = _format("Markdown"), _format("Latex")
CELL["javascript"] = CELL["js"] = _format("Javascript")
CELL["svg"] = CELL["SVG"] = _format("SVG")


# Variables and code

def _user_names(kernel):
    return sorted(n for n in kernel.cells if not n.startswith("_") and n not in kernel.own_names)


@magic("who", "who_ls")
def _who(kernel, rest):
    wanted = rest.split()
    return_list = [n for n in _user_names(kernel) if not wanted or type(kernel.cells[n]).__name__ in wanted]
    print("".join(n + "\t " for n in return_list) if return_list else "Interactive namespace is empty.")


@magic("whos")
def _whos(kernel, rest):
    found = [(n, type(kernel.cells[n]).__name__, repr(kernel.cells[n]).replace("\n", " ")[:40]) for n in _user_names(kernel)]
    if not found:
        print("Interactive namespace is empty.")
        return
    wide = [max([len(x[i]) for x in found] + [8]) for i in range(2)]
    head = ("Variable", "Type", "Data/Info")
    lines = ["%-*s   %-*s   %s" % (wide[0], a, wide[1], b, c) for a, b, c in [head] + found]
    print("\n".join([lines[0], "-" * len(lines[0])] + lines[1:]))


@magic("reset")
def _reset(kernel, rest):
    kernel.reset()


@magic("run")
def _run(kernel, rest):
    words = shlex.split(expand(kernel, rest))
    own = "-i" in words[:1]
    words = words[1:] if own else words
    if not words:
        raise UsageError("%run: name the file, as in %run script.py")
    import runpy
    name = words[0] if os.path.exists(words[0]) or words[0].endswith(".py") else words[0] + ".py"
    argv, sys.argv = sys.argv, [name] + words[1:]
    main = sys.modules["__main__"]
    try:
        made = runpy.run_path(name, dict(kernel.cells) if own else None, run_name="__main__")
    finally:
        sys.argv = argv
        sys.modules["__main__"] = main
    kernel.cells.update({k: v for k, v in made.items() if not (k.startswith("__") and k.endswith("__"))})


@magic("load")
def _load(kernel, rest):
    with open(rest.strip(), encoding="utf-8") as f:
        print(f.read())


@magic("history", "hist")
def _history(kernel, rest):
    options, _ = _options(rest, "nl:g:")
    for number, code in kernel.history:
        print("%d: %s" % (number, code) if "n" in options else code)


@magic("tb")
def _tb(kernel, rest):
    import traceback
    if getattr(sys, "last_value", None) is not None:
        traceback.print_exception(sys.last_type, sys.last_value, sys.last_traceback)


@magic("pinfo")
def _pinfo(kernel, rest):
    kernel.helper.help(rest, 1)


@magic("lsmagic")
def _lsmagic(kernel, rest):
    print("Available line magics:\n%s\n\nAvailable cell magics:\n%s" % (
        "  ".join("%" + n for n in sorted(LINE)), "  ".join("%%" + n for n in sorted(CELL))))


@magic("debug")
def _debug(kernel, rest):
    raise UsageError("%debug needs a terminal, which this context does not have; %tb prints the last traceback")


class Helper:
    """What the calls in transformed cells are led to (cell.CALL)."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.frame = None

    def names(self):
        """The local names of the function whose line runs."""
        return self.frame.f_locals if self.frame is not None else {}

    def _in_frame(self, call, *args):
        before, self.frame = self.frame, sys._getframe(2)
        try:
            return call(self.kernel, *args)
        finally:
            self.frame = before

    def line_magic(self, text):
        name, _, rest = text.partition(" ")
        return self._in_frame(line, name, rest.strip())

    def system(self, command):
        return self._in_frame(system, command)

    def getoutput(self, command):
        return self._in_frame(getoutput, command)

    def help(self, name, detail):
        from . import ask
        text = ask.describe(self.kernel, name.strip(), detail - 1)
        if text is None:
            print("Object `%s` not found." % name)
        else:
            self.kernel.displays.publish({"text/plain": text})
