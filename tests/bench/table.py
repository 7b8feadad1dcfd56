"""What was measured, as lines and as JSON."""
import statistics
import time


def p50(values):
    return statistics.median(values)


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, value, unit="ms", bound=None, ratio=None, of=None, least=False):
        """The bound is for the ratio, where there is one: at most, or at least."""
        judged = value if ratio is None else ratio
        met = None if bound is None else judged >= bound if least else judged <= bound
        self.rows.append({"what": what, "value": value, "unit": unit, "ratio": ratio, "of": of, "bound": bound, "least": least, "met": met})
        line = f"{what:<58} {value:>10.2f} {unit:<4}"
        if ratio is not None:
            line += f"  {ratio:>7.3f} x {of}"
        if bound is not None:
            line += f"  ({'at least' if least else 'bound'} {bound}{'' if ratio is not None else ' ' + unit}) " + ("ok" if met else "MISSED")
        print(line, flush=True)
