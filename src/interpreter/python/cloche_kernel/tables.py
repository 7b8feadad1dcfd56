"""The data of pandas' and polars' tables: {column: [values]}, exact, or left out when there are too many."""
import datetime
import decimal
import math

CELLS_MAX = 200000


def cell(value):
    """A value as JSON has it: times as ISO 8601 text, what is missing as null."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        made = value.item()
        return cell(made) if type(made) is not type(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [cell(x) for x in value]
    if isinstance(value, dict):
        return {str(k): cell(x) for k, x in value.items()}
    return str(value)


def _pandas(frame):
    for i, name in enumerate(frame.columns):
        yield name, frame.iloc[:, i].tolist()


def _polars(frame):
    for column in frame.get_columns():
        yield column.name, column.to_list()


def extras(value):
    """{"data": …} for a DataFrame, {} for anything else."""
    kind = type(value)
    if not any(c.__name__ == "DataFrame" and (c.__module__ or "").split(".")[0] in ("pandas", "polars") for c in kind.__mro__):
        return {}
    if len(value) * max(len(value.columns), 1) > CELLS_MAX:
        return {"truncated_data": len(value)}
    columns = _polars if any((c.__module__ or "").startswith("polars") for c in kind.__mro__) else _pandas
    data = {}
    for name, values in columns(value):
        key, again = str(name), 1
        while key in data:  # columns may share a name
            key, again = "%s.%d" % (name, again), again + 1
        data[key] = [cell(x) for x in values]
    return {"data": data}
