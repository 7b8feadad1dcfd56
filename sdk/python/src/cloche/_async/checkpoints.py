"""Checkpoints of all sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Union

from .._wire import listed, segment
from ..models import Checkpoint, Diff
from ..options import DiffSource, NamedCheckpoint, Source, diff_source
from .sandbox import AsyncSandbox, given
from .stream import AsyncByteStream
from .transport import AsyncTransport, Call, once

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack

    from ..options import Differing

#: An id, a checkpoint, or the name of one of a sandbox's: {"sandbox": "base", "name": "golden"}.
CheckpointRef = Union[str, Checkpoint, NamedCheckpoint]


class AsyncCheckpoints:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def _call(self, method: str, c: CheckpointRef, sub: str = "", **query: Any) -> Call:
        if isinstance(c, Mapping):
            return Call(method, f"/v1/checkpoints/{segment(c['name'])}{sub}", query={"sandbox": c["sandbox"], **query})
        return Call(method, f"/v1/checkpoints/{segment(c if isinstance(c, str) else c.id)}{sub}", query=query)

    async def get(self, checkpoint: CheckpointRef) -> Checkpoint:
        return Checkpoint.from_wire(await self._transport.json(self._call("GET", checkpoint)))

    async def list(
        self,
        *,
        sandbox: Optional[str] = None,
        name: Optional[str] = None,
        label: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        page_size: Optional[int] = None,
    ) -> AsyncIterator[Checkpoint]:
        """Newest first, page by page as the loop continues."""
        query: Dict[str, Any] = {"sandbox": sandbox, "name": name, "label": label, "limit": page_size}
        query.update({f"metadata.{k}": v for k, v in (metadata or {}).items()})
        while True:
            page = await self._transport.json(Call("GET", "/v1/checkpoints", query=query))
            for wire in listed(page["checkpoints"], "checkpoints"):
                yield Checkpoint.from_wire(wire)
            query["cursor"] = page.get("next")
            if query["cursor"] is None:
                return

    async def update(
        self,
        checkpoint: CheckpointRef,
        *,
        name: Optional[str] = None,
        label: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> Checkpoint:
        call = self._call("PATCH", checkpoint)
        call.json, call.repeatable = given(name=name, label=label, metadata=metadata), True
        return Checkpoint.from_wire(await self._transport.json(call))

    async def delete(self, checkpoint: CheckpointRef) -> None:
        """What was made from it stays as it is."""
        call = self._call("DELETE", checkpoint)
        call.gone_is_done = True
        await self._transport.json(call)

    async def restore(self, checkpoint: CheckpointRef, *, name: Optional[str] = None, **options: Unpack[Differing]) -> AsyncSandbox:
        """A new sandbox of it; `sandbox.restore()` is the one that goes back in place."""
        body: Dict[str, Any] = {**options}
        if name is not None:
            body["as"] = name
        return (await self._restore(checkpoint, body))[0]

    async def restore_many(
        self,
        checkpoint: CheckpointRef,
        count: Optional[int] = None,
        *,
        names: Optional[Sequence[str]] = None,
        **options: Unpack[Differing],
    ) -> List[AsyncSandbox]:
        """Many new sandboxes of it, all or none."""
        body: Dict[str, Any] = {**options, "count": count if count is not None else len(names) if names else 1}
        if names:
            body["names"] = list(names)
        return await self._restore(checkpoint, body)

    async def _restore(self, checkpoint: CheckpointRef, body: Any) -> List[AsyncSandbox]:
        call = once(self._call("POST", checkpoint, "/restore"))
        call.json, call.timeout = body, 0
        return [AsyncSandbox(self._transport, x) for x in listed((await self._transport.json(call))["sandboxes"], "sandboxes")]

    async def diff(self, checkpoint: CheckpointRef, source: Optional[DiffSource] = None, *, text: bool = False) -> Diff:
        """Which files it has changed."""
        call = self._call("GET", checkpoint, "/diff", **{"from": diff_source(source), "text": text or None})
        call.timeout = 0
        return Diff.from_wire(await self._transport.json(call))

    async def export(self, checkpoint: CheckpointRef) -> AsyncByteStream:
        """The checkpoint as one file (tar.zst), piece by piece, to be carried to another machine."""
        call = self._call("GET", checkpoint, "/export")
        call.headers["accept"] = "application/zstd, */*"
        answer = await self._transport.stream(call)
        return AsyncByteStream(answer.pieces(), answer.aclose)

    async def import_file(
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
        return Checkpoint.from_wire(await self._transport.json(call))
