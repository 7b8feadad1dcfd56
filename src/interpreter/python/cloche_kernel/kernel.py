"""The context itself: takes requests one after the other, and answers each with events.

One process, two descriptors. The main thread reads requests and runs cells, so that SIGINT reaches the cell. A second thread
passes on what is written to descriptors 1 and 2. A request that comes while a cell runs waits."""
import atexit
import builtins
import faulthandler
import os
import platform
import resource
import select
import sys
import time
import types

from . import ask, cell, display, guard, hooks, interrupts, magics, notebook, output, plots, run, wire

PROTOCOL = 1
OUTPUT_MAX = 16 << 20
HISTORY_MAX = 1000
HISTORY_BYTES = 16 << 20
OUT_MAX = 1000


class StdinNotImplementedError(NotImplementedError):
    """A cell asked for input."""
    __module__ = "builtins"


class NoStdin:
    """sys.stdin: at its end, as for a program without one."""

    encoding, errors, name, mode, closed = "utf-8", "strict", "<stdin>", "r", False

    def read(self, *_):
        return ""

    readline = read

    def readlines(self, *_):
        return []

    def __iter__(self):
        return iter(())

    def isatty(self):
        return False

    def readable(self):
        return True

    def fileno(self):
        return 0

    def close(self):
        """The next cell may ask again."""


def _no_input(prompt=""):
    """input() has no one to ask."""
    raise StdinNotImplementedError("input() is not available: this context has no terminal; put the value into a variable")


def _no_debugger(*_, **__):
    """breakpoint() would ask for input."""
    sys.stderr.write("breakpoint() is ignored: there is no debugger\n")


def _leave(code=None):
    """exit() and quit() end the cell. The context lives on."""
    raise SystemExit(code)


class Kernel:
    def __init__(self, requests, events):
        self.pid = os.getpid()
        self.interrupts = interrupts.Interrupts()
        self.wire = wire.Wire(requests, events, self.interrupts)
        self.output = output.Output(self.wire, OUTPUT_MAX)
        self.displays = display.Displays(self.wire.send, self.output)
        self.module = types.ModuleType("__main__")
        self.cells = self.module.__dict__
        self.magics = {"line": {}, "cell": {}}
        self.count, self.history, self.history_bytes = 0, [], 0
        self.last_folder = None
        self.helper = magics.Helper(self)
        self.runner = run.Runner(self)
        self.shell = notebook.ZMQInteractiveShell(self)
        self.own_names = ()

    # Before the first request

    def settle(self):
        """Makes this process the context: its module __main__, its streams, its functions."""
        sys.modules["__main__"] = self.module
        sys.argv = [""]
        if sys.path[:1] != [""]:
            sys.path.insert(0, "")
        plots.State.displays = self.displays
        notebook.State.shell = self.shell
        self._fill()
        sys.stdin, (sys.stdout, sys.stderr) = NoStdin(), self.output.streams
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        output.install_print(self.output)
        builtins.input = _no_input
        sys.breakpointhook = _no_debugger
        builtins.exit = builtins.quit = _leave
        builtins.display, builtins.get_ipython = notebook.show, notebook.get_ipython
        _no_input.__name__ = _no_input.__qualname__ = "input"
        hooks.install(self.cells)
        os.register_at_fork(after_in_child=self._forked)
        self._exit = os._exit
        os._exit = self._end_at_once
        self.interrupts.arm()
        self.output.start()

    def _fill(self):
        """The names that cells find."""
        self.cells.update({
            "__name__": "__main__", "__doc__": None, "__builtins__": builtins, "__annotations__": {}, cell.CALL: self.helper,
            "In": [""], "Out": {}, "_": "", "__": "", "___": "", "_oh": {}, "_ih": [""], "_i": "", "_ii": "",
            "get_ipython": notebook.get_ipython, "exit": _leave, "quit": _leave,
        })
        self.cells["_oh"], self.cells["_ih"] = self.cells["Out"], self.cells["In"]
        self.own_names = frozenset(self.cells)

    def reset(self):
        """%reset: the variables go, settings stay."""
        builtins_of_cells = self.cells.get("__builtins__")
        self.cells.clear()
        self._fill()
        self.cells["__builtins__"] = builtins_of_cells
        self.cells["In"] += [code for _, code in self.history]

    def _forked(self):
        """In a child that a cell has forked: it is a program like any other, and says nothing on the kernel's descriptors."""
        self.wire.gone = True
        for fd in (self.wire.requests, self.wire.events):
            try:
                os.close(fd)
            except OSError:
                pass
        self.output.forked()

    def _end_at_once(self, status):
        """os._exit(): what was printed before it is sent."""
        if os.getpid() == self.pid:
            self.output.flush()
        self._exit(status)

    # Requests

    def serve(self):
        version = platform.python_version()
        self.wire.send({"type": "ready", "protocol": PROTOCOL, "language": "python", "version": version, "pid": self.pid})
        while True:
            self._wait()
            request = self.wire.receive()
            if request is None or self.wire.gone:
                return
            self._answer(request)

    def _wait(self):
        """Tasks that cells have left run until the next request comes."""
        while self.runner.loop.tasks() and not select.select([self.wire.requests], [], [], 0)[0]:
            try:
                self.runner.loop.run_until_readable(self.wire.requests)
            except BaseException:
                display.note("a task failed between two cells")
            self.output.flush()

    def _answer(self, request):
        kind, number = request.get("type"), request.get("id")
        calls = {"execute": self._execute, "start": self._start, "complete": self._complete, "inspect": self._inspect,
                 "is_complete": self._is_complete, "history": self._history}
        if kind not in calls:
            problem = request.get("problem") or "there is no request %r" % (kind,)
            self.wire.send({"type": "refused", "id": number, "message": problem})
            return
        try:
            calls[kind](number, request)
        except Refusal as e:
            self.wire.send({"type": "refused", "id": number, "message": str(e)})

    def _reply(self, number, **fields):
        self.wire.send({"type": "reply", "id": number, **fields})

    def _start(self, number, request):
        """Settings of the context, before its first cell."""
        environment = _environment(request)
        folder = _field(request, "cwd", str, None)
        restrict = _field(request, "restrict", dict, {})
        for name in ("builtins", "imports"):
            if not all(isinstance(x, str) for x in restrict.get(name, ())) or not isinstance(restrict.get(name, []), list):
                raise Refusal("restrict.%s must be an array of strings" % name)
        unknown = set(restrict) - {"builtins", "imports"}
        if unknown:
            raise Refusal("restrict has no member %s" % sorted(unknown)[0])
        limits = [_field(request, name, int, default) for name, default in
                  (("output_max", self.output.limit), ("result_max", self.displays.limit))]
        if any(isinstance(x, bool) or not 0 < x <= 1 << 30 for x in limits):
            raise Refusal("output_max and result_max must be from 1 to %d" % (1 << 30))
        if folder is not None:
            try:
                os.chdir(folder)
            except (OSError, ValueError) as e:
                raise Refusal("cwd: %s: %s" % (folder, getattr(e, "strerror", None) or e)) from None
        _set_environment(environment)
        if request.get("reseed"):
            reseed()
        self.output.limit, self.displays.limit = limits
        if restrict:
            guard.apply(self.cells, restrict.get("builtins", ()), restrict.get("imports", ()))
        self._reply(number)

    def _execute(self, number, request):
        code = request.get("code")
        if not isinstance(code, str):
            raise Refusal("code must be a string")
        environment = _environment(request)
        self.count += 1
        used = _cpu_seconds()
        name = "<cell %d>" % self.count
        self._note(code)
        self.output.begin(number)
        self.displays.begin()
        self.interrupts.arm()
        problem, before, score = None, _set_environment(environment), _set_score(b"1000")
        try:
            self.interrupts.begin()
            try:
                self.wire.send({"type": "begun", "id": number})
                self.runner.run(code, name)
                self.end_of_cell()
            finally:
                self.interrupts.end()
        except BaseException as e:
            problem = e
        _set_environment(before)
        if os.getpid() != self.pid:
            self._end_of_child(problem)
        frames = []
        if problem is not None:
            if not isinstance(problem, KeyboardInterrupt):
                self._end_plots()
            problem = run.describe(problem)
            frames.append({"type": "error", "id": number, **problem})
        dropped = self.output.end()
        _set_score(score)
        frames.append({"type": "end", "id": number, "status": "ok" if problem is None else "error",
                       "execution_count": self.count, "dropped": dropped,
                       "usage": {"cpu_ms": round((_cpu_seconds() - used) * 1000),
                                 "memory_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}})
        self.wire.send(*frames)

    def end_of_cell(self):
        plots.end_of_cell()
        if self.shell.events.callbacks:
            self.shell.events.trigger("post_execute")
            self.shell.events.trigger("post_run_cell")

    def _end_plots(self):
        """Figures of a cell that has failed are shown as well."""
        try:
            plots.end_of_cell()
        except BaseException:
            display.note("the figures of this cell cannot be shown")

    def _end_of_child(self, problem):
        """A forked child has run to the end of the cell: it must not become a second kernel."""
        status = 0
        if isinstance(problem, SystemExit):
            status = problem.code if isinstance(problem.code, int) else 0 if problem.code is None else 1
        elif problem is not None:
            sys.stderr.write(run.describe(problem)["traceback"])
            status = 1
        self._exit(status & 0xFF)

    def _note(self, code):
        self.history.append((self.count, code))
        self.history_bytes += len(code)
        while self.history and (len(self.history) > HISTORY_MAX or self.history_bytes > HISTORY_BYTES):
            self.history_bytes -= len(self.history.pop(0)[1])
        cells = self.cells
        lines = cells.get("In")
        if type(lines) is list:
            lines.append(code if len(code) <= HISTORY_BYTES >> 4 else "")
        cells["_ii"], cells["_i"] = cells.get("_i", ""), code

    def remember(self, value):
        """Out[n], _, __ and ___. A variable _ of the cells' own is left alone."""
        cells = self.cells
        kept = cells.get("Out")
        if type(kept) is not dict:
            return
        if value is not kept:
            if cells.get("_") is cells.get("_last_shown", ""):
                cells["___"], cells["__"], cells["_"] = cells.get("__"), cells.get("_"), value
            cells["_last_shown"] = value
            cells["_%d" % self.count] = value
            kept[self.count] = value
        while len(kept) > OUT_MAX:
            oldest = next(iter(kept))
            del kept[oldest]
            cells.pop("_%d" % oldest, None)

    def _complete(self, number, request):
        code, cursor = _code(request)
        self._reply(number, **ask.complete(self, code, cursor))

    def _inspect(self, number, request):
        code, cursor = _code(request)
        self._reply(number, **ask.inspect(self, code, cursor, 1 if request.get("detail") else 0))

    def _is_complete(self, number, request):
        self._reply(number, **ask.is_complete(_code(request)[0]))

    def _history(self, number, request):
        last = _field(request, "last", int, HISTORY_MAX)
        found = self.history[max(len(self.history) - max(last, 0), 0):] if last > 0 else []
        self._reply(number, cells=[{"execution_count": n, "code": code} for n, code in found])


class Refusal(Exception):
    """A request that is not carried out."""


def _field(request, name, kind, default):
    value = request.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise Refusal("%s must be %s" % (name, {str: "a string", int: "a number", dict: "an object"}[kind]))
    return value


def _code(request):
    code = request.get("code")
    if not isinstance(code, str):
        raise Refusal("code must be a string")
    return code, _field(request, "cursor", int, None)


def _set_score(value):
    """When the memory of the sandbox is full, a context that runs code is ended rather than one that waits. Returns what it was."""
    if value is None:
        return None
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        before = os.read(fd, 16)
        os.write(fd, value)
        return before
    except OSError:
        return None
    finally:
        os.close(fd)


def _cpu_seconds():
    """Of this process, and of the children that have ended."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def _environment(request):
    made = _field(request, "env", dict, {})
    for name, value in made.items():
        if not name or "=" in name or "\0" in name or not (value is None or isinstance(value, str)) or "\0" in (value or ""):
            raise Refusal("env: %r must be a name with a string or null" % name)
    return made


def _set_environment(changes):
    """Sets variables, or removes those that are None. Returns what undoes it."""
    before = {name: os.environ.get(name) for name in changes}
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


def reseed():
    """In a copy of a warm process: what was drawn before the copy was made would be the same in all of them."""
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(int.from_bytes(os.urandom(4), "little"))
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(48), 48.0)
    if "tempfile" in sys.modules:
        sys.modules["tempfile"]._name_sequence = None


def preload(modules):
    """For a warm process: imports what is there, and draws one figure, whose fonts are then found."""
    import importlib
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            continue
    if "matplotlib.pyplot" in sys.modules:
        import io
        from matplotlib.backends import backend_agg
        from matplotlib.figure import Figure
        figure = Figure()
        backend_agg.FigureCanvasAgg(figure)
        figure.subplots().plot([0, 1])
        figure.savefig(io.BytesIO(), format="png")
        from . import chart
        chart.chart_of(figure)


def main():
    """Requests come from descriptor 0 and events go to descriptor 1. Both move away before a cell can see them."""
    requests = output.high_copy(0)
    events = output.high_copy(1)
    errors = output.high_copy(2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    faulthandler.enable(errors, all_threads=False)
    modules = sys.argv[1:]
    kernel = Kernel(requests, events)
    kernel.settle()
    if modules:
        preload(modules)
    try:
        kernel.serve()
    except wire.Broken as e:
        os.write(errors, ("cloche kernel: %s\n" % e).encode("utf-8", "replace"))
        kernel._exit(65)
    except OSError as e:
        os.write(errors, ("cloche kernel: the requests cannot be read: %s\n" % e).encode("utf-8", "replace"))
        kernel._exit(74)
    kernel.interrupts.running = False
    atexit._run_exitfuncs()
    kernel.output.flush()
    kernel._exit(0)
