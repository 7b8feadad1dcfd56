# Made from ../_async/checkpoints.py by scripts/unasync.py: change that one.
"""Checkpoints of all sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Dict, List, Mapping, Optional, Sequence, Union

from .._wire import listed, segment
from ..models import Checkpoint, Diff
from ..options import DiffSource, NamedCheckpoint, Source, diff_source
from .sandbox import Sandbox, given
from .stream import ByteStream
from .transport import Transport, Call, once

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack

    from ..options import Differing

#: An id, a checkpoint, or the name of one of a sandbox's: {"sandbox": "base", "name": "golden"}.
CheckpointRef = Union[str, Checkpoint, NamedCheckpoint]


class Checkpoints:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _call(self, method: str, c: CheckpointRef, sub: str = "", **query: Any) -> Call:
        if isinstance(c, Mapping):
            return Call(method, f"/v1/checkpoints/{segment(c['name'])}{sub}", query={"sandbox": c["sandbox"], **query})
        return Call(method, f"/v1/checkpoints/{segment(c if isinstance(c, str) else c.id)}{sub}", query=query)

    def get(self, checkpoint: CheckpointRef) -> Checkpoint:
        return Checkpoint.from_wire(self._transport.json(self._call("GET", checkpoint)))

    def list(
        self,
        *,
        sandbox: Optional[str] = None,
        name: Optional[str] = None,
        label: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        page_size: Optional[int] = None,
    ) -> Iterator[Checkpoint]:
        """Newest first, page by page as the loop continues."""
        query: Dict[str, Any] = {"sandbox": sandbox, "name": name, "label": label, "limit": page_size}
        query.update({f"metadata.{k}": v for k, v in (metadata or {}).items()})
        while True:
            page = self._transport.json(Call("GET", "/v1/checkpoints", query=query))
            for wire in listed(page["checkpoints"], "checkpoints"):
                yield Checkpoint.from_wire(wire)
            query["cursor"] = page.get("next")
            if query["cursor"] is None:
                return

    def update(
        self,
        checkpoint: CheckpointRef,
        *,
        name: Optional[str] = None,
        label: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> Checkpoint:
        call = self._call("PATCH", checkpoint)
        call.json, call.repeatable = given(name=name, label=label, metadata=metadata), True
        return Checkpoint.from_wire(self._transport.json(call))

    def delete(self, checkpoint: CheckpointRef) -> None:
        """What was made from it stays as it is."""
        call = self._call("DELETE", checkpoint)
        call.gone_is_done = True
        self._transport.json(call)

    def restore(self, checkpoint: CheckpointRef, *, name: Optional[str] = None, **options: Unpack[Differing]) -> Sandbox:
        """A new sandbox of it; `sandbox.restore()` is the one that goes back in place."""
        body: Dict[str, Any] = {**options}
        if name is not None:
            body["as"] = name
        return (self._restore(checkpoint, body))[0]

    def restore_many(
        self,
        checkpoint: CheckpointRef,
        count: Optional[int] = None,
        *,
        names: Optional[Sequence[str]] = None,
        **options: Unpack[Differing],
    ) -> List[Sandbox]:
        """Many new sandboxes of it, all or none."""
        body: Dict[str, Any] = {**options, "count": count if count is not None else len(names) if names else 1}
        if names:
            body["names"] = list(names)
        return self._restore(checkpoint, body)

    def _restore(self, checkpoint: CheckpointRef, body: Any) -> List[Sandbox]:
        call = once(self._call("POST", checkpoint, "/restore"))
        call.json, call.timeout = body, 0
        return [Sandbox(self._transport, x) for x in listed((self._transport.json(call))["sandboxes"], "sandboxes")]

    def diff(self, checkpoint: CheckpointRef, source: Optional[DiffSource] = None, *, text: bool = False) -> Diff:
        """Which files it has changed."""
        call = self._call("GET", checkpoint, "/diff", **{"from": diff_source(source), "text": text or None})
        call.timeout = 0
        return Diff.from_wire(self._transport.json(call))

    def export(self, checkpoint: CheckpointRef) -> ByteStream:
        """The checkpoint as one file (tar.zst), piece by piece, to be carried to another machine."""
        call = self._call("GET", checkpoint, "/export")
        call.headers["accept"] = "application/zstd, */*"
        answer = self._transport.stream(call)
        return ByteStream(answer.pieces(), answer.close)

    def import_file(
        self,
        file: Source,
        *,
        name: Optional[str] = None,
        label: Optional[str] = None,
        isolation: Optional[Literal["container", "vm"]] = None,
        network: Optional[Literal["none", "keep"]] = None,
        mounts: Optional[Literal["none", "keep"]] = None,
        verify: Optional[bool] = None,
    ) -> Checkpoint:
        """What `export` gave. A file that is cut, altered or for another image is refused, and nothing of it is kept.

        `verify` refuses it unless it is signed by this daemon, or by a key that it trusts.
        """
        query = {"name": name, "label": label, "isolation": isolation, "network": network, "mounts": mounts, "verify": verify}
        headers = {"content-type": "application/zstd"}
        call = Call("POST", "/v1/checkpoints/import", query=query, headers=headers, body=file, timeout=0)
        return Checkpoint.from_wire(self._transport.json(call))
