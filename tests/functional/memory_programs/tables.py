"""A table in pandas over arrays of numpy, which grows by one column a step."""
import numpy
import pandas

from serve import serve

table = pandas.DataFrame({"a": numpy.arange(100_000, dtype="int64")})


def step(n):
    table[f"c{n}"] = table["a"] * n
    big = numpy.zeros(4_000_000)  # large enough for a mapping of its own, which must be zero
    assert not big.any()
    big[:] = n
    assert len(table.columns) == n + 1 and all((table[f"c{i}"] == table["a"] * i).all() for i in range(1, n + 1))
    return f"{n} {int(table[f'c{n}'].sum() // n)}"


serve(step)
