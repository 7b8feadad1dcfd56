"""Runs cells: the statements, then the value of the last expression; `await` at the top level; errors with the cell's lines.

All cells share one dict, which is both their globals and their locals, and is __dict__ of the module __main__."""
import __future__
import ast
import inspect
import linecache
import os
import sys
import traceback

from . import cell, magics

AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURES = 0
for _name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, _name).compiler_flag
SOURCES_MAX = 32 << 20  # characters of source that are kept for tracebacks
VALUE_MAX, TRACEBACK_MAX = 64 << 10, 256 << 10
TASK_CALLS = ("create_task", "ensure_future", "get_running_loop")


class Sources:
    """The text of cells, for tracebacks and inspect.getsource(). The oldest go first."""

    def __init__(self):
        self.sizes = {}
        self.total = 0

    def add(self, name, code):
        linecache.cache[name] = (len(code), None, [line + "\n" for line in code.split("\n")], name)
        self.total += len(code) - self.sizes.pop(name, 0)
        self.sizes[name] = len(code)
        while self.total > SOURCES_MAX and len(self.sizes) > 1:
            oldest = next(iter(self.sizes))
            self.total -= self.sizes.pop(oldest)
            linecache.cache.pop(oldest, None)


def _makes_tasks(tree):
    """Whether the cell itself calls something that needs a running event loop."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            if name in TASK_CALLS:
                return True
        waiting.extend(ast.iter_child_nodes(node))
    return False


class Loop:
    """The event loop of the cells. It is made for the first cell that needs one, and keeps its tasks between cells."""

    def __init__(self):
        self.loop = None

    def get(self):
        import asyncio
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        return self.loop

    def run(self, coroutine):
        import asyncio
        loop = self.get()
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except KeyboardInterrupt:
            if not task.done():
                task.cancel()
                try:
                    loop.run_until_complete(asyncio.wait([task], timeout=1))
                except BaseException:
                    pass  # the interrupt is what counts
            raise

    def tasks(self):
        if self.loop is None or self.loop.is_closed():
            return False
        import asyncio
        return bool(asyncio.all_tasks(self.loop))

    def run_until_readable(self, fd):
        """Between cells: tasks that cells have left go on until there is a request."""
        self.loop.add_reader(fd, self.loop.stop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.remove_reader(fd)


class Runner:
    def __init__(self, kernel):
        self.kernel = kernel
        self.cells = kernel.cells
        self.sources = Sources()
        self.flags = 0
        self.loop = Loop()
        self.nested_count = 0

    def run(self, code, name):
        """Runs one cell and shows its value. What the cell raises comes through."""
        magic = cell.cell_magic(cell.dedent(code) if code[:1] in (" ", "\t") else code)
        if magic is not None:
            self.show(magics.cell(self.kernel, *magic))
            return
        value, shown = self.evaluate(code, name)
        if shown:
            self.show(value)

    def evaluate(self, code, name):
        """(value of the last expression, whether it is to be shown)"""
        tree, text = cell.parse(code, name, AWAIT | self.flags)
        self.sources.add(name, cell.as_written(code, text))
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
            if _is_docstring(last) and not tree.body:
                tree.body.append(ast.Pass(lineno=1, col_offset=0))
        in_loop = _makes_tasks(tree) or (last is not None and _makes_tasks(ast.Module([last.body], [])))
        if tree.body:
            done = compile(tree, name, "exec", AWAIT | self.flags, dont_inherit=True)
            self.flags |= done.co_flags & FUTURES
            self._run_code(done, in_loop)
        if last is None:
            return None, False
        value = self._run_code(compile(last, name, "eval", AWAIT | self.flags, dont_inherit=True), in_loop)
        return value, not cell.silenced(text)

    def _run_code(self, code, in_loop):
        if code.co_flags & inspect.CO_COROUTINE:
            return self.loop.run(eval(code, self.cells))
        if in_loop:
            async def inside():
                return eval(code, self.cells)
            return self.loop.run(inside())
        return eval(code, self.cells)

    def nested(self, code):
        """A cell in a cell, as %%time has it."""
        self.nested_count += 1
        self.run(code, "<cell %d.%d>" % (self.kernel.count, self.nested_count))

    def nested_value(self, code):
        self.nested_count += 1
        return self.evaluate(code, "<cell %d.%d>" % (self.kernel.count, self.nested_count))

    def show(self, value):
        if value is None:
            return
        self.kernel.remember(value)
        self.kernel.displays.show(value, is_main=True)


def _is_docstring(tree):
    return isinstance(tree.body, ast.Constant) and isinstance(tree.body.value, str)


def _is_ours(filename):
    return filename.startswith("<cloche_kernel/") or os.path.dirname(filename) == os.path.dirname(__file__)


def _their_part(tb):
    """The traceback from the first line of a cell on, without the kernel's own calls above it."""
    at = tb
    while at is not None and not at.tb_frame.f_code.co_filename.startswith("<cell "):
        at = at.tb_next
    if at is not None:
        return at
    while tb is not None and _is_ours(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    return tb


def _without_ours(trace):
    """Without the lines of the kernel: an interrupt ends in its handler, a magic in its function."""
    waiting, seen = [trace], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.stack[:] = [frame for frame in one.stack if not _is_ours(frame.filename)]
        for frame in one.stack:
            if cell.is_special(frame.line or ""):
                frame.colno = frame.end_colno = None  # of the call that the line has become
        waiting += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return trace


def _cut(text, size):
    return text if len(text) <= size else text[:size] + "\n[%d more characters]" % (len(text) - size)


def describe(e):
    """The fields of an error event."""
    kind = type(e)
    try:
        value = str(e.code) if isinstance(e, SystemExit) else str(e)
    except BaseException:
        value = "<str() of the exception failed>"
    tb = _their_part(e.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = kind, e, tb
    try:
        text = "".join(_without_ours(traceback.TracebackException(kind, e, tb)).format())
    except BaseException:
        text = "%s: %s\n" % (kind.__name__, value)
    made = {"name": kind.__name__, "value": _cut(value, VALUE_MAX), "traceback": _cut(text, TRACEBACK_MAX)}
    if isinstance(e, SyntaxError) and str(e.filename).startswith("<cell ") and e.lineno:
        made["line"], made["column"] = e.lineno, e.offset or 0
    return made
