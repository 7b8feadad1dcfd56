"""Restricted contexts: names of builtins and modules that cells cannot use. A guard-rail against mistakes, not a wall: code
that looks for a way around it will find one. The wall is the sandbox."""
import builtins
import types


class Restricted(Exception):
    """A cell used what its context has taken away."""


def _refuse(name):
    def refused(*_, **__):
        raise Restricted("%s() is not available in this context: its option restrict lists it under builtins" % name)
    refused.__name__ = refused.__qualname__ = name
    return refused


def apply(cells, taken_builtins=(), taken_imports=()):
    """Gives the cells builtins of their own. Libraries keep theirs."""
    own = types.ModuleType("builtins", builtins.__doc__)
    own.__dict__.update(builtins.__dict__)
    for name in taken_builtins:
        if hasattr(builtins, name):
            setattr(own, name, _refuse(name))
    taken = frozenset(taken_imports)
    original = own.__import__

    def __import__(name, globals=None, locals=None, fromlist=(), level=0):
        wanted = [name] + ["%s.%s" % (name, x) for x in fromlist or ()]
        for full in wanted if level == 0 else ():
            parts = full.split(".")
            for n in range(1, len(parts) + 1):
                if ".".join(parts[:n]) in taken:
                    raise ImportError("the module %s is not available in this context: its option restrict lists it under "
                                      "imports" % ".".join(parts[:n]), name=full)
        return original(name, globals, locals, fromlist, level)

    own.__import__ = __import__
    for name in taken:
        cells.pop(name, None)
    cells["__builtins__"] = own
