"""What a matplotlib figure shows, as numbers: {type, title, elements, …}, one object for each of its axes.

The type is found by what the axes hold: lines, points, bars, boxes with whiskers, or the pieces of a pie."""
import datetime
import math
import re

import numpy
from matplotlib import axes as mpl_axes, collections, dates, lines, patches

POINTS_MAX = 100000
DIGITS = 8


def _text(text):
    return text if text else None


def _unit(label):
    """Time (s), or Time [s]: s."""
    m = re.search(r"\s\(([^()]*(?:\([^()]*\)[^()]*)*)\)", label or "") or re.search(r"\[([^\]]*)\]", label or "")
    return _text(m.group(1)) if m else None


def _number(value):
    value = float(value)
    return value if math.isfinite(value) else None


def _rounded(value):
    value = _number(value)
    return None if value is None else float("%.*g" % (DIGITS, value))


def _is_date(axis):
    return isinstance(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter, (
        dates.DateConverter, dates.ConciseDateConverter, dates._SwitchableDateConverter)) or \
        isinstance(axis.get_major_locator(), dates.DateLocator) or isinstance(axis.get_major_formatter(), dates.DateFormatter)


def _is_category(axis):
    return type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__ == "StrCategoryConverter"


def _scale(axis):
    if _is_date(axis):
        return "datetime"
    return "categorical" if _is_category(axis) else axis.get_scale()


def _iso(value):
    return dates.num2date(value).isoformat()


class Axis:
    """One direction of the axes: what its values are, and its description."""

    def __init__(self, axis):
        self.axis = axis
        self.date = _is_date(axis)
        self.names = {}
        if _is_category(axis):
            mapping = getattr(axis.units, "_mapping", {})
            self.names = {float(v): k for k, v in mapping.items()}

    def value(self, value):
        if isinstance(value, (datetime.datetime, datetime.date)):
            return value.isoformat()
        if isinstance(value, numpy.datetime64):
            value = dates.date2num(value)
        if self.date and not isinstance(value, str):
            return _iso(float(value))
        if isinstance(value, str):
            return value
        return self.names.get(float(value), _number(value))

    def describe(self, name):
        ticks = self.axis.get_majorticklocs()
        return {name + "_ticks": [_iso(t) if self.date else _number(t) for t in ticks],
                name + "_tick_labels": [label.get_text() for label in self.axis.get_majorticklabels()],
                name + "_scale": _scale(self.axis)}


def _labels(ax):
    x, y = ax.get_xlabel(), ax.get_ylabel()
    return {"x_label": _text(x), "y_label": _text(y), "x_unit": _unit(x), "y_unit": _unit(y)}


def _is_grid(line):
    """axhline() and axvline(): two points, one of whose coordinates is relative to the axes."""
    return isinstance(line, lines.Line2D) and len(line.get_xdata(orig=False)) == 2 and \
        line.get_transform() != line.axes.transData


def _points(xs, ys, ax):
    x, y = Axis(ax.xaxis), Axis(ax.yaxis)
    if len(xs) > POINTS_MAX:
        raise ValueError("more than %d points" % POINTS_MAX)
    return [[x.value(a), y.value(b)] for a, b in zip(xs, ys)]


def _own_label(artist, default):
    label = artist.get_label()
    return default if not label or str(label).startswith("_") else str(label)


def _two_axes(ax):
    return {**_labels(ax), **Axis(ax.xaxis).describe("x"), **Axis(ax.yaxis).describe("y")}


def _line(ax):
    drawn = [line for line in ax.get_lines() if not _is_grid(line)]
    return {**_two_axes(ax), "elements": [
        {"label": _own_label(line, "Line %d" % i), "points": _points(line.get_xdata(orig=False), line.get_ydata(orig=False), ax)}
        for i, line in enumerate(drawn)]}


def _scatter(ax):
    drawn = [c for c in ax.collections if isinstance(c, collections.PathCollection)]
    made = []
    for i, c in enumerate(drawn):
        offsets = numpy.ma.asarray(c.get_offsets()).filled(numpy.nan)
        made.append({"label": _own_label(c, "Group %d" % i), "points": _points(offsets[:, 0], offsets[:, 1], ax)})
    return {**_two_axes(ax), "elements": made}


def _bars(ax):
    labels, made = _labels(ax), []
    groups = [c for c in ax.containers if type(c).__name__ == "BarContainer"]
    if not groups:
        groups = [[p for p in ax.patches if isinstance(p, patches.Rectangle)]]
    for i, group in enumerate(groups):
        bars = list(group)
        flat = getattr(group, "orientation", None) == "horizontal" or (
            getattr(group, "orientation", None) is None and len(bars) > 1 and len({round(b.get_height(), 9) for b in bars}) == 1
            and len({round(b.get_width(), 9) for b in bars}) > 1)
        axis = ax.yaxis if flat else ax.xaxis
        if flat and i == 0:
            labels = {"x_label": labels["y_label"], "y_label": labels["x_label"],
                      "x_unit": labels["y_unit"], "y_unit": labels["x_unit"]}
        name = group.get_label() if hasattr(group, "get_label") else None
        name = "Group %d" % i if not name or str(name).startswith("_") else str(name)
        texts = _tick_texts(axis)
        for bar in bars:
            centre = bar.get_y() + bar.get_height() / 2 if flat else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if flat else bar.get_height()
            made.append({"label": _bar_label(Axis(axis), texts, centre), "group": name, "value": _rounded(value)})
    return {**labels, "elements": made}


def _tick_texts(axis):
    return [(float(t), label.get_text()) for t, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels())]


def _bar_label(axis, texts, centre):
    """The tick's text next to the bar; for grouped bars, the tick is beside its bars."""
    if axis.date:
        return _iso(float(centre))
    named = [(abs(at - centre), text) for at, text in texts if text]
    near = min(named, default=None)
    if near is not None and near[0] <= 0.5:
        return near[1]
    return "%g" % centre


def _boxes(ax):
    """Each box as five numbers. A box is a patch, or a closed line; whiskers, caps and medians are lines around it."""
    labels, made = _labels(ax), []
    patch = [p for p in ax.patches if isinstance(p, patches.PathPatch)]
    shapes = [p.get_path().vertices for p in patch]
    drawn = [line for line in ax.get_lines()]
    if not shapes:
        shapes = [line.get_xydata() for line in drawn if len(line.get_xdata()) in (5, 11)]
    shapes = [numpy.asarray(s, float)[~numpy.isnan(numpy.asarray(s, float)).any(axis=1)] for s in shapes]
    shapes = [s[:-1] if patch and len(s) > 4 else s for s in shapes]
    straight = [line.get_xydata() for line in drawn if len(line.get_xdata()) == 2]
    whiskers = [s for s in straight if s[0][0] == s[1][0] and s[0][1] != s[1][1]]
    flat = len(shapes) > 0 and not whiskers and any(s[0][1] == s[1][1] and s[0][0] != s[1][0] for s in straight)
    value, place = (0, 1) if flat else (1, 0)
    if flat:
        labels = {"x_label": labels["y_label"], "y_label": labels["x_label"],
                  "x_unit": labels["y_unit"], "y_unit": labels["x_unit"]}
    axis = ax.yaxis if flat else ax.xaxis
    texts = _tick_texts(axis)
    for shape in shapes:
        first, third = shape[:, value].min(), shape[:, value].max()
        left, right = shape[:, place].min(), shape[:, place].max()
        centre = (left + right) / 2
        median, low, high, outliers = None, first, third, []
        for line in drawn:
            data = line.get_xydata()
            if len(data) == 0:
                continue
            inside = (data[:, place] >= left - 1e-9).all() and (data[:, place] <= right + 1e-9).all()
            if not inside:
                continue
            if line.get_linestyle() in ("None", "", " "):
                if numpy.allclose(data[:, place], centre):
                    outliers += [float(v) for v in data[:, value]]
            elif len(data) == 2 and data[0][place] == data[1][place]:
                low, high = min(low, data[:, value].min()), max(high, data[:, value].max())
            elif len(data) == 2 and first <= data[0][value] <= third and data[0][value] == data[1][value]:
                width = abs(data[1][place] - data[0][place])
                if median is None or width > median[1]:
                    median = (data[0][value], width)
        made.append({"label": _bar_label(Axis(axis), texts, centre), "min": _rounded(low), "first_quartile": _rounded(first),
                     "median": None if median is None else _rounded(median[0]), "third_quartile": _rounded(third),
                     "max": _rounded(high), "outliers": [_rounded(v) for v in outliers]})
    return {**labels, "elements": made}


def _pie(ax):
    wedges = [p for p in ax.patches if isinstance(p, patches.Wedge)]
    texts = [t.get_text() for t in ax.texts]
    named = [w.get_label() for w in wedges]
    percents = len(texts) == 2 * len(wedges)
    made = []
    for i, w in enumerate(wedges):
        label = named[i] if named[i] and not named[i].startswith("_") else None
        if label is None and texts:
            at = 2 * i if percents else i
            label = texts[at] if at < len(texts) else None
        made.append({"label": label or "", "angle": _rounded(w.theta2 - w.theta1), "radius": _rounded(w.r)})
    return {"elements": made}


def _kind(ax):
    shapes = list(ax.patches)
    drawn = [line for line in ax.get_lines() if not _is_grid(line)]
    points = [c for c in ax.collections if isinstance(c, collections.PathCollection)]
    if any(isinstance(p, patches.Wedge) for p in shapes):
        return "pie"
    boxes = [p for p in shapes if isinstance(p, patches.PathPatch)]
    closed = [line for line in drawn if len(line.get_xdata()) in (5, 11) and
              line.get_xydata()[0].tolist() == line.get_xydata()[-1].tolist()]
    if drawn and (boxes or closed) and any(len(line.get_xdata()) == 2 for line in drawn):
        return "box_and_whisker"
    if any(isinstance(p, patches.Rectangle) for p in shapes):
        return "bar"
    if points:
        return "scatter"
    return "line" if drawn and not shapes else "unknown"


MAKERS = {"line": _line, "scatter": _scatter, "bar": _bars, "box_and_whisker": _boxes, "pie": _pie}


def _one(ax):
    kind = _kind(ax)
    base = {"type": kind, "title": _text(ax.get_title())}
    return {**base, **(MAKERS[kind](ax) if kind in MAKERS else {"elements": []})}


def chart_of(figure):
    """The figure's chart, or None if nothing is drawn in it."""
    if isinstance(figure, mpl_axes.Axes):
        figure = figure.figure
    drawn = [ax for ax in figure.axes if ax.has_data()]
    if not drawn:
        return None
    if len(drawn) == 1:
        return _one(drawn[0])
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) is not None else None
    return {"type": "superchart", "title": _text(title), "elements": [_one(ax) for ax in drawn]}
