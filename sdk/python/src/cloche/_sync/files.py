# Made from ../_async/files.py by scripts/unasync.py: change that one.
"""The files of one sandbox."""

from __future__ import annotations

import stat
import tempfile
from typing import Any, Iterator, Callable, Optional, Union

from .. import _tar
from .._wire import Query, load, models, sandbox_path
from ..errors import NotFoundError, ProtocolError
from ..models import Extracted, FileEvent, FileList, FileStat
from ..options import LocalPath, RemotePath, Source
from .events import read_events
from .runtime import in_thread
from .stream import ByteStream, Stream
from .transport import Answer, Transport, Call

MAX_READ = 512 * 1024 * 1024
CHANGES = ("created", "modified", "removed", "moved")


class Files:
    """Relative paths start at the sandbox's work folder. `user` is as for commands."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"{sandbox}/files"

    def _call(self, method: str, path: RemotePath, user: Optional[str], **query: Any) -> Call:
        full: Query = {"path": sandbox_path(path), "user": user, **query}
        return Call(method, self._path, query=full)

    def _open(self, path: RemotePath, offset: int, length: Optional[int], user: Optional[str]) -> Answer:
        call = self._call("GET", path, user)
        call.headers["accept"] = "application/octet-stream"
        if offset > 0 or length is not None:
            call.headers["range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        return self._transport.stream(call)

    def read(self, path: RemotePath, *, offset: int = 0, length: Optional[int] = None, user: Optional[str] = None) -> bytes:
        """A file's bytes, up to 512 MiB; `stream` has no such limit."""
        if length == 0:
            return b""
        return (self._open(path, offset, length, user)).collect(MAX_READ)

    def read_text(
        self, path: RemotePath, *, offset: int = 0, length: Optional[int] = None, user: Optional[str] = None, errors: str = "strict"
    ) -> str:
        """A file as UTF-8."""
        return (self.read(path, offset=offset, length=length, user=user)).decode("utf-8", errors)

    def stream(
        self, path: RemotePath, *, offset: int = 0, length: Optional[int] = None, user: Optional[str] = None
    ) -> ByteStream:
        """A file's bytes piece by piece: nothing is kept in memory."""
        answer = self._open(path, offset, length, user)
        return ByteStream(answer.pieces(), answer.close)

    def write(
        self,
        path: RemotePath,
        data: Source,
        *,
        mode: Union[int, str, None] = None,
        append: bool = False,
        mkdirs: bool = True,
        exclusive: bool = False,
        user: Optional[str] = None,
    ) -> FileStat:
        """Writes a whole file: readers see the old or the new one, unless `append`. Files and pieces are sent as they come.

        With `exclusive` a file that exists is a ConflictError.
        """
        octal = f"{mode:04o}" if isinstance(mode, int) else mode
        call = self._call("PUT", path, user, mode=octal, mkdirs=mkdirs, append=append or None, exclusive=exclusive or None)
        call.body = data
        # Appending twice is not appending once, and a second try would find the file of the first.
        call.repeatable = not append and not exclusive
        return FileStat.from_wire(self._transport.json(call))

    def stat(self, path: RemotePath, *, user: Optional[str] = None) -> FileStat:
        """About the path itself: a link is not followed."""
        return FileStat.from_wire(self._transport.json(self._call("GET", path, user, op="stat")))

    def exists(self, path: RemotePath, *, user: Optional[str] = None) -> bool:
        try:
            self.stat(path, user=user)
        except NotFoundError:
            return False
        return True

    def list(self, path: RemotePath = ".", *, depth: Optional[int] = None, user: Optional[str] = None) -> FileList:
        """What is in a folder, at most 10,000 entries; `truncated` says whether there are more."""
        wire = self._transport.json(self._call("GET", path, user, op="list", depth=depth))
        found = FileList(models(FileStat, wire["entries"]))
        found.truncated = bool(wire.get("truncated"))
        return found

    def mkdir(self, path: RemotePath, *, mode: Union[int, str, None] = None, user: Optional[str] = None) -> FileStat:
        """With its parents; a folder that is there already is fine."""
        octal = f"{mode:04o}" if isinstance(mode, int) else mode
        return FileStat.from_wire(self._transport.json(self._call("POST", path, user, op="mkdir", mode=octal)))

    def move(self, source: RemotePath, target: RemotePath, *, user: Optional[str] = None) -> FileStat:
        call = self._call("POST", source, user, op="move")
        call.json = {"to": sandbox_path(target)}
        return FileStat.from_wire(self._transport.json(call))

    def remove(self, path: RemotePath, *, recursive: bool = False, user: Optional[str] = None) -> None:
        call = self._call("DELETE", path, user, recursive=recursive or None)
        call.gone_is_done = True
        self._transport.json(call)

    def watch(self, path: RemotePath, *, recursive: bool = False, user: Optional[str] = None) -> Stream[FileEvent]:
        """Changes below a path, as they happen. The watch is active when this returns."""
        call = self._call("GET", path, user, op="watch", recursive=recursive or None)
        call.headers["accept"] = "text/event-stream"
        call.timeout = 0
        answer = self._transport.stream(call)
        events = read_events(answer)
        try:
            first = events.__next__()
        except StopIteration:
            raise ProtocolError("the watch ended before it was active", code="protocol") from None
        if first.event != "watching":
            answer.close()
            raise ProtocolError(f"{first.event!r} came before 'watching'", code="protocol")

        def changes() -> Iterator[FileEvent]:
            for e in events:
                if e.event in CHANGES:
                    wire = load(e.data, "an event")
                    yield FileEvent(type=e.event, path=wire["path"], kind=wire.get("type"))

        return Stream(changes(), answer.close)

    def extract(self, path: RemotePath, archive: Source, *, user: Optional[str] = None) -> Extracted:
        """Unpacks a tar (or tar.zst) below `path`."""
        call = self._call("POST", path, user, op="extract")
        call.headers["content-type"] = "application/x-tar"
        call.body, call.timeout = archive, 0
        return Extracted.from_wire(self._transport.json(call))

    def archive(self, path: RemotePath, *, format: Optional[str] = None, user: Optional[str] = None) -> ByteStream:
        """A folder (or file) as a tar, or with `format="tar.zst"` a compressed one, piece by piece."""
        call = self._call("GET", path, user, op="archive", format=format)
        call.headers["accept"] = "application/x-tar, application/zstd, */*"
        answer = self._transport.stream(call)
        return ByteStream(answer.pieces(), answer.close)

    def upload(
        self, local: LocalPath, path: RemotePath, *, keep: Optional[Callable[[str], bool]] = None, user: Optional[str] = None
    ) -> Extracted:
        """Puts what is below a local folder below `path`, or a local file at `path`. `keep` sees names such as a/b.txt."""
        s = in_thread(_tar.local_kind, local)
        if stat.S_ISDIR(s.st_mode):
            return self.extract(path, _tar.pack(local, keep), user=user)
        file = in_thread(_tar.open_file, local)
        try:
            done = self.write(path, file, mode=stat.S_IMODE(s.st_mode) & 0o777, user=user)
        finally:
            file.close()
        return Extracted(files=1, bytes=done.size)

    def download(
        self,
        path: RemotePath,
        local: LocalPath,
        *,
        max_bytes: int = 16 * 1024**3,
        max_entries: int = 1_000_000,
        user: Optional[str] = None,
    ) -> Extracted:
        """Brings a folder's content (or a file) below a local folder.

        The sandbox is not trusted: what leads out of the folder is in `skipped`, set-id bits and devices are dropped.
        """
        # Its headers have their room, too; and it is read from a file, so that unpacking does not hold up the connection.
        room = max_bytes + 4096 * min(max_entries, 1_000_000) + 1024 * 1024
        with tempfile.TemporaryFile() as spool:
            with self.archive(path, user=user) as pieces:
                for piece in pieces:
                    room -= len(piece)
                    if room < 0:
                        raise ProtocolError(f"an archive of far more than {max_bytes} bytes", code="protocol")
                    in_thread(spool.write, piece)
            spool.seek(0)
            return in_thread(_tar.unpack, spool, local, max_bytes, max_entries)
