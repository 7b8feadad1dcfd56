# Made from ../_async/images.py by scripts/unasync.py: change that one.
"""Stored images: what sandboxes start from."""

from __future__ import annotations

import os
from typing import Any, Iterator, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from .._tar import pack
from .._wire import base64_text, dump, load, models, segment
from ..errors import LostError, ProtocolError, error_from_wire
from ..models import BuildEvent, Checkpoint, Freed, Image, ImageOutdated, PullProgress
from ..options import BuildContext, ImageFormat, Network, Source
from .events import read_events
from .runtime import Cancelled, piece_of, shielded
from .sandbox import Sandbox, given
from .stream import ByteStream
from .transport import Answer, Transport, Call

CANCEL_SECONDS = 5.0
MAX_LINE = 64 * 1024 * 1024


def _segment(name: str) -> str:
    """In paths the slashes of a name are written as `+`, which no name has."""
    return segment(name.replace("/", "+"))


def _pieces(source: Union[bytes, bytearray, memoryview, Any]) -> Iterator[bytes]:
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield bytes(source)
    elif hasattr(source, "read"):
        while True:
            data = source.read(256 * 1024)
            if not data:
                return
            yield piece_of(data)
    else:
        for piece in source:
            yield piece_of(piece)


def _build_body(head: Mapping[str, Any], context: Optional[BuildContext]) -> Iterator[bytes]:
    yield dump(head) + b"\n"
    if isinstance(context, (str, os.PathLike)):
        yield from pack(context)
    elif context is not None:
        yield from _pieces(context)


def _lines(answer: Answer) -> Iterator[bytes]:
    rest = b""
    for piece in answer.pieces():
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_LINE:
            raise ProtocolError(f"a line of more than {MAX_LINE} bytes", code="protocol")
        for line in whole:
            if line:
                yield line


class Images:
    """Root filesystems with a name and a configuration. A name is `python:3.12-slim`, or the first 12 digits of its digest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[Image]:
        return models(Image, (self._transport.json(Call("GET", "/v1/images")))["images"])

    def get(self, image: str) -> Image:
        return Image.from_wire(self._transport.json(Call("GET", f"/v1/images/{_segment(image)}")))

    def pull(
        self,
        name: str,
        *,
        username: Optional[str] = None,
        password: Optional[str] = None,
        on_progress: Optional[Callable[[PullProgress], object]] = None,
    ) -> Image:
        """Fetches one from its registry; returns when it can be used. Without a login the daemon's own is used, if it has one.

        A task that is cancelled, or Ctrl-C, cancels the pull.
        """
        body = given(name=name, username=username, password=password, background=True)
        operation = segment((self._transport.json(Call("POST", "/v1/images/pull", json=body)))["id"])
        try:
            return self.get(self._follow(operation, on_progress))
        except Cancelled:
            shielded(lambda: self._transport.json(Call("DELETE", f"/v1/operations/{operation}")), CANCEL_SECONDS)
            raise

    def _follow(self, operation: str, on_progress: Optional[Callable[[PullProgress], object]]) -> str:
        headers = {"accept": "text/event-stream"}
        answer = self._transport.stream(Call("GET", f"/v1/operations/{operation}/events", headers=headers, timeout=0))
        try:
            for e in read_events(answer):
                data = load(e.data, "an event")
                if e.event == "progress" and on_progress is not None:
                    on_progress(PullProgress.from_wire(data))
                if e.event == "end":
                    if data.get("result"):
                        return str(data["result"]["image"])
                    raise error_from_wire(data.get("error") or {"code": "conflict", "message": "the pull was cancelled"})
        finally:
            answer.close()
        raise LostError("the server stopped saying how far the pull is", code="lost")

    def outdated(self, image: str, *, username: Optional[str] = None, password: Optional[str] = None) -> ImageOutdated:
        """Asks the registry whether the tag has moved. Without a login the daemon's own is used, if it has one."""
        path, login = f"/v1/images/{_segment(image)}/outdated", given(username=username, password=password)
        call = Call("POST", path, json=login, repeatable=True, timeout=0) if login else Call("GET", path, timeout=0)
        return ImageOutdated.from_wire(self._transport.json(call))

    def import_file(
        self,
        archive: Source,
        *,
        name: Optional[str] = None,
        ref: Optional[str] = None,
        format: Optional[ImageFormat] = None,
        config: Optional[Mapping[str, Any]] = None,
    ) -> Image:
        """An archive of `docker save`, the tar of an OCI layout, or that of a root filesystem; plain, gzip or zstd.

        name: otherwise as the archive says. ref: which image of an archive with several. config: of a root filesystem, its
        configuration as in an OCI image, such as {"Env": ["A=b"]}.
        """
        query = {"name": name, "ref": ref, "format": format, "config": dump(config) if config is not None else None}
        call = Call("POST", "/v1/images/import", query=query, body=archive, timeout=0)
        return Image.from_wire(self._transport.json(call))

    def import_folder(self, folder: Union[str, os.PathLike[str]], *, name: str, config: Optional[Mapping[str, Any]] = None) -> Image:
        """A folder with a root filesystem. Owners, devices and attributes do not travel: all files become root's."""
        return self.import_file(pack(folder), name=name, format="rootfs", config=config)

    def export(self, image: str) -> ByteStream:
        """An OCI layout as a tar, piece by piece."""
        call = Call("GET", f"/v1/images/{_segment(image)}/export", headers={"accept": "application/x-tar, */*"}, timeout=0)
        answer = self._transport.stream(call)
        return ByteStream(answer.pieces(), answer.close)

    def build(
        self,
        dockerfile: str,
        *,
        context: Optional[BuildContext] = None,
        tags: Optional[Sequence[str]] = None,
        args: Optional[Mapping[str, str]] = None,
        target: Optional[str] = None,
        network: Optional[Network] = None,
        no_cache: Optional[bool] = None,
        labels: Optional[Mapping[str, str]] = None,
        secrets: Optional[Mapping[str, Union[str, bytes]]] = None,
        on_event: Optional[Callable[[BuildEvent], object]] = None,
    ) -> Image:
        """Builds one from the text of a Dockerfile. A call that is left cancels the build.

        context: a folder of this machine, or a tar as bytes, a file or pieces. network: what RUN may reach, by default nothing.
        """
        coded: Optional[Dict[str, str]] = None
        if secrets is not None:
            coded = {k: base64_text(v.encode() if isinstance(v, str) else v) for k, v in secrets.items()}
        head = given(
            dockerfile=dockerfile, tags=list(tags) if tags is not None else None, args=args, target=target, network=network,
            no_cache=no_cache, labels=labels, secrets=coded, context=context is not None,
        )  # fmt: skip
        body: Iterable[bytes] = _build_body(head, context)
        answer = self._transport.stream(Call("POST", "/v1/images/build", body=body, timeout=0))
        try:
            for line in _lines(answer):
                event = load(line, "an event")
                if event.get("type") == "done":
                    return Image.from_wire(event["image"])
                if event.get("type") == "error":
                    raise error_from_wire(event.get("error"))
                if on_event is not None:
                    on_event(BuildEvent.from_wire(event))
        finally:
            answer.close()
        raise LostError("the server stopped saying how far the build is", code="lost")

    def commit(self, source: Union[Sandbox, Checkpoint], name: str, *, comment: Optional[str] = None) -> Image:
        """An image of the files of a sandbox, or of a checkpoint, that was made of a stored image."""
        path = f"/v1/sandboxes/{segment(source.id)}/commit"
        if isinstance(source, Checkpoint):
            path = f"/v1/checkpoints/{segment(source.id)}/commit"
        return Image.from_wire(self._transport.json(Call("POST", path, json=given(name=name, comment=comment), timeout=0)))

    def tag(self, image: str, name: str) -> Image:
        """Another name of the same image."""
        call = Call("POST", f"/v1/images/{_segment(image)}/tag", json={"name": name}, repeatable=True)
        return Image.from_wire(self._transport.json(call))

    def set_public(self, image: str, public: bool) -> Image:
        """Whether other tenants may use it. For administrators."""
        call = Call("PATCH", f"/v1/images/{_segment(image)}", json={"public": public}, repeatable=True)
        return Image.from_wire(self._transport.json(call))

    def delete(self, image: str) -> None:
        """Sandboxes and checkpoints that were made of it stay."""
        self._transport.json(Call("DELETE", f"/v1/images/{_segment(image)}", gone_is_done=True))

    def forget_builds(self) -> Freed:
        """Forgets the steps of this tenant's builds: the next ones are done anew."""
        return Freed.from_wire(self._transport.json(Call("DELETE", "/v1/images/build/cache", repeatable=True)))

    def prune(self) -> Freed:
        """Removes layers that nothing needs. For administrators."""
        return Freed.from_wire(self._transport.json(Call("POST", "/v1/images/prune", repeatable=True)))
