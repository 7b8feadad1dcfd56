# Made from ../_async/named.py by scripts/unasync.py: change that one.
"""Things that have a name of their own and are put, listed and deleted by it: templates, pools, secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Generic, List, Optional, Type, TypeVar, Union

from .._wire import Model, base64_text, models, segment
from ..models import Pool, Secret, Template
from .transport import Transport, Call

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import TemplateOptions

N = TypeVar("N", bound=Model)


class Named(Generic[N]):
    _kind: Type[N]
    _collection: str

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _at(self, name: str) -> str:
        return f"/v1/{self._collection}/{segment(name)}"

    def _put(self, name: str, body: Any, timeout: Optional[float] = None) -> N:
        return self._kind.from_wire(self._transport.json(Call("PUT", self._at(name), json=body, timeout=timeout)))

    def get(self, name: str) -> N:
        return self._kind.from_wire(self._transport.json(Call("GET", self._at(name))))

    def list(self) -> List[N]:
        return models(self._kind, (self._transport.json(Call("GET", f"/v1/{self._collection}")))[self._collection])

    def delete(self, name: str) -> None:
        """Sandboxes that were made with it stay."""
        self._transport.json(Call("DELETE", self._at(name), gone_is_done=True))


class Templates(Named[Template]):
    """Named settings for creates, and what is made ready in advance."""

    _kind = Template
    _collection = "templates"

    def set(self, name: str, **options: Unpack[TemplateOptions]) -> Template:
        """Makes one, or replaces an older one. With `warm` it returns when that is ready."""
        return self._put(name, dict(options), timeout=0)


class Pools(Named[Pool]):
    """Sandboxes of a template that are kept ready."""

    _kind = Pool
    _collection = "pools"

    def set(self, name: str, *, template: str, min: int, max: Optional[int] = None) -> Pool:
        """`min` are kept ready; `max` may exist, those handed out included (0: no bound)."""
        body: Dict[str, Any] = {"template": template, "min": min}
        if max is not None:
            body["max"] = max
        return self._put(name, body)


class Secrets(Named[Secret]):
    """Values that only sandboxes get: no call returns one."""

    _kind = Secret
    _collection = "secrets"

    def set(self, name: str, value: Union[str, bytes], *, description: Optional[str] = None) -> Secret:
        """Sets one. One that exists is rotated, and running sandboxes get the new value."""
        body: Dict[str, Any] = {"value": value} if isinstance(value, str) else {"value_base64": base64_text(value)}
        if description is not None:
            body["description"] = description
        return self._put(name, body)
