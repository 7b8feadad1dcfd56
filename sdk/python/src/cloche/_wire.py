"""Values on their way to the server and back: queries, paths, bodies, and the objects that answers become."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from datetime import datetime
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

from .errors import ProtocolError, invalid

Query = Mapping[str, Union[str, int, float, bool, bytes, None]]
M = TypeVar("M", bound="Model")


def segment(text: str) -> str:
    """One segment of a path: a name with a slash stays one name."""
    if not isinstance(text, str) or text in ("", ".", ".."):
        invalid(f"{text!r} is no name or id")
    return _quote(text)


def _quote(v: Union[str, bytes]) -> str:
    try:
        return quote(v, safe="")
    except UnicodeEncodeError:
        invalid(f"{v!r} is not valid Unicode", "the API takes UTF-8 only")


def query_string(query: Optional[Query]) -> str:
    """Percent-encodes everything, blanks too: a `+` is a plus. Booleans become 0 and 1; None is left out."""
    if not query:
        return ""
    parts: List[str] = []
    for k, v in query.items():
        if v is None:
            continue
        if isinstance(v, bool):
            v = "1" if v else "0"
        parts.append(f"{_quote(k)}={_quote(v if isinstance(v, (str, bytes)) else str(v))}")
    return "?" + "&".join(parts) if parts else ""


def sandbox_path(path: Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]) -> str:
    """A path in a sandbox as the API takes it. Bytes must be UTF-8, which is what the API has."""
    p = os.fspath(path)
    try:
        if isinstance(p, bytes):
            p = p.decode("utf-8")
        else:
            p.encode("utf-8")
    except UnicodeError:
        invalid(f"the path {p!r} is not UTF-8", "the API names files in UTF-8; use exec(), archive() or download() for this one")
    if p == "":
        invalid("the path is empty", "use '.' for the work folder")
    return p


class WireObject(Dict[str, Any]):
    """An object that the server sent. What it should have and has not is the server's mistake, not a KeyError of the caller."""

    def __missing__(self, key: str) -> Any:
        raise ProtocolError(f"the server sent an object without {key!r}", code="protocol")


def _integer(digits: str) -> Union[int, float]:
    """int() refuses what has thousands of digits. Then it is infinite, as to JavaScript."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def load(text: Union[str, bytes], what: str = "the answer") -> WireObject:
    """An object from JSON, or a ProtocolError."""
    try:
        try:
            made = json.loads(text)
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise
        except ValueError:
            made = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError) as e:
        raise ProtocolError(f"{what} is not JSON", code="protocol", cause=str(e)) from e
    if not isinstance(made, dict):
        raise ProtocolError(f"{what} is not an object, but {type(made).__name__}", code="protocol")
    return WireObject(made)


def listed(wire: Any, what: str) -> List[Any]:
    """An array that the server sent, or a ProtocolError."""
    if not isinstance(wire, list):
        raise ProtocolError(f"the server sent {type(wire).__name__} where a list of {what} is expected", code="protocol")
    return wire


def dump(value: object) -> bytes:
    """JSON as the server reads it: bytes and other values that it has no form for are refused here."""
    try:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as e:
        invalid(f"the request cannot be written as JSON: {e}")


def time_from_wire(v: Any) -> datetime:
    """`2026-11-15T03:41:24.123Z`, always in UTC."""
    try:
        return datetime.fromisoformat(v[:-1] + "+00:00" if v.endswith("Z") else v)
    except (AttributeError, TypeError, ValueError) as e:
        raise ProtocolError(f"the server sent {v!r} where a time is expected", code="protocol") from e


Convert = Callable[[Any], Any]


def _converter(hint: Any) -> Optional[Convert]:
    """How a value becomes what the annotation says; None: it is that already."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union:
        inner = [c for c in (_converter(a) for a in args if a is not type(None)) if c]
        return _optional(inner[0]) if len(inner) == 1 and len(args) == 2 else None
    if origin is list:
        inner_one = _converter(args[0])
        return _each(inner_one) if inner_one else None
    if hint is datetime:
        return time_from_wire
    if isinstance(hint, type) and issubclass(hint, Model):
        return hint.from_wire
    return None


def _optional(convert: Convert) -> Convert:
    return lambda v: None if v is None else convert(v)


def _each(convert: Convert) -> Convert:
    return lambda v: [convert(x) for x in listed(v or [], "objects")]


MISSING: Any = object()
#: Name on the wire, name here, how it is converted, and what it is if it is not sent.
Plan = List[Tuple[str, str, Optional[Convert], Any]]
_plans: Dict[type, Plan] = {}


def _default(f: "dataclasses.Field[Any]") -> Any:
    if f.default_factory is not dataclasses.MISSING:
        return f.default_factory
    return None if f.default is dataclasses.MISSING else f.default


def _plan(cls: type) -> Plan:
    plan = _plans.get(cls)
    if plan is None:
        hints = get_type_hints(cls)
        plan = [
            (f.metadata.get("wire", f.name), f.name, _converter(hints[f.name]), _default(f))
            for f in dataclasses.fields(cls)
            if f.name != "extra"
        ]
        _plans[cls] = plan
    return plan


def renamed(wire: str) -> Any:
    """A field whose name on the wire is taken here, by a method or a keyword. None if the server does not send it."""
    return dataclasses.field(default=None, metadata={"wire": wire})


@dataclasses.dataclass(eq=False)
class Model:
    """An object in an answer. A field that the server does not send has its default, or None."""

    #: Fields that the server sent and this version does not know.
    extra: Dict[str, Any] = dataclasses.field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_wire(cls: Type[M], wire: Any) -> M:
        obj = cls.__new__(cls)
        obj._take(wire)
        return obj

    def _take(self, wire: Any) -> None:
        if not isinstance(wire, dict):
            raise ProtocolError(f"the server sent {type(wire).__name__} where {type(self).__name__} is expected", code="protocol")
        fields, known = self.__dict__, 0
        for key, name, convert, default in _plan(type(self)):
            value = wire.get(key, MISSING)
            if value is MISSING:
                fields[name] = default() if callable(default) else default
            else:
                known += 1
                fields[name] = convert(value) if convert else value
        names = {key for key, _, _, _ in _plan(type(self))} if known < len(wire) else ()
        fields["extra"] = {k: v for k, v in wire.items() if k not in names} if names else {}


def models(cls: Type[M], wire: Any) -> List[M]:
    return [cls.from_wire(x) for x in listed(wire or [], cls.__name__)]


def base64_text(data: Union[bytes, bytearray, memoryview]) -> str:
    return base64.b64encode(data).decode("ascii")


def base64_bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError) as e:
        raise ProtocolError("the server sent base64 that cannot be decoded", code="protocol") from e
