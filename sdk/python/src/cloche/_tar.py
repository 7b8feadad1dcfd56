"""Folders as tar streams, both ways.

Written is what Python's tarfile writes for a header (ustar, with pax headers where ustar has no room). Read is ustar, pax and
GNU's long names, by a reader of its own: what is read comes out of a sandbox, so it is hostile. Nothing is written outside of
the target folder, through a link, or with a set-id bit; devices are skipped; headers and totals have bounds.
"""

from __future__ import annotations

import os
import posixpath
import stat
import tarfile
from dataclasses import dataclass
from typing import BinaryIO, Callable, Dict, Iterator, List, Optional, Set, Tuple, Union

from .errors import ProtocolError, invalid
from .models import Extracted, Skipped
from .options import LocalPath

BLOCK = 512
PIECE = 256 * 1024
MAX_META = 1024 * 1024
MAX_SKIPPED = 1000
Filter = Callable[[str], bool]


def padding(n: int) -> bytes:
    return bytes(-n % BLOCK)


def _header(name: str, s: os.stat_result, target: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = s.st_mode & 0o777, int(s.st_mtime)
    if stat.S_ISDIR(s.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(s.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, target
    else:
        info.size = s.st_size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _file(path: str, size: int) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with open(fd, "rb", buffering=0) as f:
        left = size
        while left > 0:
            data = f.read(min(left, PIECE))
            if not data:
                break
            left -= len(data)
            yield data
    # The header has promised a size; a file that has become shorter meanwhile is filled up.
    while left > 0:
        yield bytes(min(left, PIECE))
        left -= PIECE
    yield padding(size)


def _walk(root: str, name: str, keep: Filter) -> Iterator[bytes]:
    path = os.path.join(root, name) if name else root
    s = os.lstat(path)
    kind = stat.S_IFMT(s.st_mode)
    if name:
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK) or not keep(name):
            return
        yield _header(name, s, os.readlink(path) if kind == stat.S_IFLNK else "")
        if kind == stat.S_IFREG:
            yield from _file(path, s.st_size)
    if kind == stat.S_IFDIR:
        for child in sorted(os.listdir(path)):
            yield from _walk(root, f"{name}/{child}" if name else child, keep)


def pack(folder: LocalPath, keep: Optional[Filter] = None) -> Iterator[bytes]:
    """What is below a local folder. Sockets, devices and FIFOs are left out. Names that are not UTF-8 are kept."""
    yield from _walk(os.fsdecode(folder), "", keep or (lambda _: True))
    yield bytes(2 * BLOCK)


@dataclass
class Entry:
    name: bytes
    #: file, dir, link, hardlink or other.
    kind: str
    mode: int
    size: int
    mtime: float
    target: bytes


def _bad(why: str) -> ProtocolError:
    return ProtocolError(f"the archive is damaged: {why}", code="protocol")


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    text = field.split(b"\0", 1)[0].strip()
    try:
        return int(text, 8) if text else 0
    except ValueError:
        raise _bad("a number that is none") from None


def _pax(body: bytes) -> Dict[bytes, bytes]:
    out: Dict[bytes, bytes] = {}
    at = 0
    while at < len(body):
        blank = body.find(b" ", at, at + 12)
        try:
            size = int(body[at:blank]) if blank > 0 else 0
        except ValueError:
            size = 0
        if size < 5 or at + size > len(body):
            raise _bad("a wrong pax record")
        key, _, value = body[blank + 1 : at + size - 1].partition(b"=")
        out[key] = value
        at += size
    return out


KINDS = {b"0": "file", b"\0": "file", b"7": "file", b"1": "hardlink", b"2": "link", b"5": "dir"}


class Reader:
    """The entries of a tar file, one after the other; what is not read of a body is skipped."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = 0
        self._pad = 0

    def _exactly(self, n: int) -> bytes:
        data = self._file.read(n)
        if len(data) != n:
            raise _bad("it ends in the middle")
        return data

    def read(self, n: int) -> bytes:
        data = self._exactly(min(n, self._left))
        self._left -= len(data)
        return data

    def _skip(self) -> None:
        while self._left > 0:
            self.read(PIECE)
        self._exactly(self._pad)
        self._pad = 0

    def _body(self, size: int) -> bytes:
        if size > MAX_META:
            raise _bad("a header that is too large")
        data = self._exactly(size)
        self._exactly(-size % BLOCK)
        return data

    def __iter__(self) -> Iterator[Entry]:
        more: Dict[bytes, bytes] = {}
        while True:
            self._skip()
            head = self._exactly(BLOCK)
            if head == bytes(BLOCK):
                return
            if sum(head) - sum(head[148:156]) + 8 * 32 != _number(head[148:156]):
                raise _bad("a header whose sum is wrong")
            kind, size = head[156:157], _number(head[124:136])
            if kind in b"xgLK":
                body = self._body(size)
                if kind == b"x":
                    more.update(_pax(body))
                elif kind in b"LK":
                    more[b"path" if kind == b"L" else b"linkpath"] = body.split(b"\0", 1)[0]
                continue
            yield self._entry(head, kind, size, more)
            more = {}

    def _entry(self, head: bytes, kind: bytes, size: int, more: Dict[bytes, bytes]) -> Entry:
        try:
            real = int(more.get(b"size", size))
            mtime = float(more[b"mtime"]) if b"mtime" in more else _number(head[136:148])
        except ValueError:
            raise _bad("a size or time that is none") from None
        if real < 0 or not -(2**40) < mtime < 2**40:
            raise _bad("a size or time out of range")
        what = KINDS.get(kind, "other")
        self._left = real if what in ("file", "other") else 0
        self._pad = -self._left % BLOCK
        name = head[:100].split(b"\0", 1)[0]
        prefix = head[345:500].split(b"\0", 1)[0] if head[257:263] == b"ustar\0" else b""
        return Entry(
            more.get(b"path", prefix + b"/" + name if prefix else name),
            what,
            _number(head[100:108]) & 0o777,
            self._left,
            mtime,
            more.get(b"linkpath", head[157:257].split(b"\0", 1)[0]),
        )


def _safe(name: bytes) -> Optional[str]:
    """The name as a relative path without `.` and `..`; None if it leads elsewhere."""
    parts = [p for p in os.fsdecode(name).split("/") if p not in ("", ".")]
    if b"\0" in name or name.startswith(b"/") or ".." in parts:
        return None
    if os.sep != "/" and any(c in p for p in parts for c in (os.sep, ":")):
        return None
    return os.path.join(*parts) if parts else ""


class Unpacker:
    def __init__(self, folder: LocalPath, max_bytes: int, max_entries: int) -> None:
        self._root = os.path.abspath(os.fsdecode(folder))
        self._max_bytes, self._max_entries = max_bytes, max_entries
        self._known: Set[str] = set()
        self._files: Set[str] = set()
        self._links: List[Tuple[str, bytes]] = []
        self._folders: List[Tuple[str, Entry]] = []
        self._done = Extracted(files=0, bytes=0)

    def _skip(self, e: Entry, why: str) -> None:
        self._done.skipped_total += 1
        if len(self._done.skipped) < MAX_SKIPPED:
            self._done.skipped.append(Skipped(name=e.name.decode("utf-8", "replace"), why=why))

    def _parents(self, name: str) -> None:
        """Makes the folders down to `name`, none of which may be a link."""
        if name in ("", ".") or name in self._known:
            return
        self._parents(os.path.dirname(name))
        path = os.path.join(self._root, name)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise _bad(f"{name!r} is not a folder here") from None
        self._known.add(name)

    def _path(self, name: str) -> str:
        """Where a file or link is put: what is there already makes room, unless it is a folder."""
        path = os.path.join(self._root, name)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        self._files.discard(name)
        return path

    def _file(self, reader: Reader, name: str, e: Entry) -> None:
        self._done.bytes += e.size
        if self._done.bytes > self._max_bytes:
            raise _bad(f"more than {self._max_bytes} bytes")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        path = self._path(name)
        with open(os.open(path, flags, 0o600), "wb", buffering=0) as f:
            left = e.size
            while left > 0:
                data: Union[bytes, memoryview] = memoryview(reader.read(min(left, PIECE)))
                left -= len(data)
                while data:
                    data = data[f.write(data) :]
            if hasattr(os, "fchmod"):
                os.fchmod(f.fileno(), e.mode)
        os.utime(path, (e.mtime, e.mtime))
        self._files.add(name)
        self._done.files += 1

    def _one(self, reader: Reader, e: Entry) -> None:
        name = _safe(e.name)
        if name is None:
            return self._skip(e, "its name leads elsewhere")
        if name == "":
            return None
        if e.kind == "other":
            return self._skip(e, "not a file, folder or link")
        self._parents(os.path.dirname(name))
        if e.kind == "dir":
            self._parents(name)
            self._folders.append((name, e))
        elif e.kind == "file":
            self._file(reader, name, e)
        elif e.kind == "link":
            at = os.fsencode(os.path.dirname(name).replace(os.sep, "/"))
            to = posixpath.normpath(posixpath.join(at, e.target))
            if e.target.startswith(b"/") or to == b".." or to.startswith(b"../") or not e.target:
                return self._skip(e, "a link that leads elsewhere")
            self._links.append((name, e.target))
        else:
            to_name = _safe(e.target)
            if to_name is None or to_name not in self._files or to_name == name:
                return self._skip(e, "a hard link to nothing that was unpacked")
            os.link(os.path.join(self._root, to_name), self._path(name))
            self._files.add(name)
            self._done.files += 1
        return None

    def run(self, file: BinaryIO) -> Extracted:
        os.makedirs(self._root, exist_ok=True)
        reader = Reader(file)
        for count, e in enumerate(reader, 1):
            if count > self._max_entries:
                raise _bad(f"more than {self._max_entries} entries")
            self._one(reader, e)
        # Links last: none of them is there to be followed while files are written. Modes of folders after that.
        for name, target in self._links:
            os.symlink(os.fsdecode(target), self._path(name))
            self._done.files += 1
        for name, e in reversed(self._folders):
            path = os.path.join(self._root, name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chmod(path, e.mode | 0o700)
                os.utime(path, (e.mtime, e.mtime))
        return self._done


def unpack(file: BinaryIO, folder: LocalPath, max_bytes: int, max_entries: int) -> Extracted:
    """Unpacks a hostile tar file below a local folder, which is made if it is missing."""
    try:
        return Unpacker(folder, max_bytes, max_entries).run(file)
    except IsADirectoryError as e:
        raise _bad(f"a file where {e.filename!r} is a folder") from e


def local_kind(path: LocalPath) -> os.stat_result:
    s = os.lstat(path)
    if not stat.S_ISREG(s.st_mode) and not stat.S_ISDIR(s.st_mode):
        invalid(f"{os.fsdecode(path)!r} is neither a file nor a folder")
    return s


def open_file(path: LocalPath) -> BinaryIO:
    return open(path, "rb")
