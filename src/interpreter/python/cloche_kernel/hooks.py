"""What is done when a cell imports certain libraries: matplotlib draws into results, PIL's images show there, and IPython's
functions are the kernel's. Nothing is imported ahead."""
import sys

from . import display, notebook, plots

CELLS = None  # the globals of the cells


def _pil(module):
    """show() and save() of an image, called by a cell, also show it. Other libraries save images all the time."""
    image = module.Image
    original_save = image.save

    def show(self, title=None, **options):
        plots.State.displays.show(self)

    def save(self, fp, format=None, **params):
        original_save(self, fp, format, **params)
        if sys._getframe(1).f_globals is CELLS:
            plots.State.displays.show(self)
    save.__doc__, show.__doc__ = original_save.__doc__, image.show.__doc__
    image.show, image.save = show, save


def _ipython(module):
    notebook.adopt(module)


AFTER = {"matplotlib": plots.on_import, "matplotlib.pyplot": plots.on_pyplot, "PIL.Image": _pil, "IPython": _ipython,
         "IPython.display": notebook.adopt_display, "IPython.core.display_functions": notebook.adopt_display}


class _Loader:
    """A module's own loader, with something to do after it."""

    def __init__(self, loader, after):
        self.loader, self.after = loader, after

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        try:
            self.after(module)
        except Exception:
            display.note("%s was imported, but it will not show its results here" % module.__name__)

    def __getattr__(self, name):
        return getattr(self.loader, name)


class Finder:
    def __init__(self):
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        if name not in AFTER and not name.startswith("IPython"):
            return None
        if name in self.busy:
            return None
        self.busy.add(name)
        try:
            for finder in sys.meta_path:
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
            else:
                return notebook.spec_of(name)
        finally:
            self.busy.discard(name)
        if name in AFTER and spec.loader is not None:
            spec.loader = _Loader(spec.loader, AFTER[name])
        return spec


def install(cells):
    global CELLS
    CELLS = cells
    sys.meta_path.insert(0, Finder())
    for name, after in AFTER.items():  # what the warm process has imported before
        if name in sys.modules:
            after(sys.modules[name])


