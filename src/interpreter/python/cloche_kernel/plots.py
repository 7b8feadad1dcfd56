"""matplotlib without a screen: figures become results at show() and at the end of a cell, and are closed then."""
import base64
import functools
import io
import sys

PIXELS_MAX = 100 << 20  # of one figure: about 400 MB while it is drawn
KINDS = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "svg": "image/svg+xml", "pdf": "application/pdf",
         "retina": "image/png"}


class State:
    """One for a process, as matplotlib itself keeps its figures for a process."""
    displays = None
    formats = ("png",)
    show_at_end = True


def _save(figure, kind):
    """@figure's bytes, or a ValueError if its picture would be too large."""
    retina = kind == "retina"
    dpi = figure.dpi * (2 if retina else 1)
    width, height = figure.get_size_inches()
    if kind in ("png", "retina", "jpeg", "jpg") and width * dpi * height * dpi > PIXELS_MAX:
        raise ValueError("a figure of %d x %d pixels is too large to show (at most %d megapixels); make it smaller, or save it "
                         "to a file with savefig()" % (width * dpi, height * dpi, PIXELS_MAX >> 20))
    out = io.BytesIO()
    if figure.canvas is None:
        from matplotlib.backend_bases import FigureCanvasBase
        FigureCanvasBase(figure)
    figure.savefig(out, format="png" if retina else kind, dpi=dpi, bbox_inches="tight", facecolor=figure.get_facecolor(),
                   edgecolor=figure.get_edgecolor())
    return out.getvalue()


def formats(value):
    """The pictures of a figure as a value. A figure without axes shows as nothing but its text."""
    from matplotlib.figure import Figure
    if not isinstance(value, Figure) or not (value.axes or value.lines):
        return
    for kind in State.formats:
        data = _save(value, kind)
        yield KINDS[kind], data.decode("utf-8") if kind == "svg" else base64.b64encode(data).decode("ascii")


def extras(value):
    from matplotlib.figure import Figure
    if not isinstance(value, Figure):
        return {}
    from . import chart
    made = chart.chart_of(value)
    return {} if made is None else {"chart": made}


def show_all():
    """Shows all open figures and closes them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or State.displays is None:
        return
    from matplotlib._pylab_helpers import Gcf
    try:
        for manager in Gcf.get_all_fig_managers():
            State.displays.show(manager.canvas.figure)
    finally:
        if Gcf.get_all_fig_managers():
            pyplot.close("all")


def end_of_cell():
    """Figures that a cell has left open. Only those of our own backend: who chose another one saves them to files."""
    if "matplotlib.pyplot" in sys.modules and State.show_at_end and _backend() == BACKEND:
        show_all()


def _backend():
    return dict.get(sys.modules["matplotlib"].rcParams, "backend")


BACKEND = "module://cloche_kernel.mpl"


def on_import(matplotlib):
    """matplotlib was imported: figures are drawn by us, unless the cells choose another backend."""
    matplotlib.rcParams["backend"] = BACKEND


def on_pyplot(pyplot):
    """plt.savefig() draws the figure once more, for a window that shows it. There is none, and drawing takes as long as saving."""
    save = pyplot.savefig

    @functools.wraps(save)
    def savefig(*args, **kwargs):
        canvas = pyplot.gcf().canvas
        if getattr(canvas, "required_interactive_framework", None) or not hasattr(canvas, "_is_idle_drawing"):
            return save(*args, **kwargs)
        before, canvas._is_idle_drawing = canvas._is_idle_drawing, True
        try:
            return save(*args, **kwargs)
        finally:
            canvas._is_idle_drawing = before
    pyplot.savefig = savefig
