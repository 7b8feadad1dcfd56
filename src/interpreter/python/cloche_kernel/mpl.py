"""The matplotlib backend module://cloche_kernel.mpl: Agg, with show() as a result."""
from matplotlib import _api
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from . import plots


class FigureManager(FigureManagerBase):
    def show(self):
        """figure.show() shows one figure and leaves it open, as matplotlib documents it."""
        plots.State.displays.show(self.canvas.figure)

    @classmethod
    def pyplot_show(cls, *, block=None):
        plots.show_all()


class FigureCanvas(FigureCanvasAgg):
    manager_class = _api.classproperty(lambda cls: FigureManager) if hasattr(_api, "classproperty") else FigureManager


def new_figure_manager(number, *args, FigureClass=None, **kwargs):
    from matplotlib.figure import Figure
    return new_figure_manager_given_figure(number, (FigureClass or Figure)(*args, **kwargs))


def new_figure_manager_given_figure(number, figure):
    import matplotlib
    manager = FigureManager(FigureCanvas(figure), number)
    if matplotlib.is_interactive():
        figure.canvas.draw_idle()
    return manager


def show(*args, **kwargs):
    plots.show_all()


def draw_if_interactive():
    manager = Gcf.get_active()
    if manager is not None:
        manager.canvas.draw_idle()
