"""Lines of a file, read by ranges: as many bytes as the page needs, whatever the size of the file or of its lines.

The results are those of deepagents' own script.
"""

from __future__ import annotations

import base64
import codecs
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Callable, Dict, Optional

#: Bytes of a path from an offset on; fewer than asked for only at the end of the file.
Ranges = Callable[[int, int], bytes]

MAX_BYTES = 500 * 1024
COUNTED = 1024 * 1024  # the lines of larger files are not counted to the end
PIECE = 512 * 1024
PREFIX = 8192
EMPTY = "System reminder: File exists but has empty contents"
TRUNCATED = (
    "\n\n[Output was truncated due to size limits. This paginated read result exceeded the sandbox stdout limit. "
    "Continue reading with a larger offset or smaller limit to inspect the rest of the file.]"
)
# What models take as images, video, sound or documents: never text, whatever is in it.
BINARY = frozenset(
    ".png .jpeg .jpg .webp .gif .heic .heif .mp4 .mpeg .mov .avi .flv .mpg .webm .wmv .3gpp .mkv .wav .mp3 .aiff .aac .ogg .flac "
    ".pdf .ppt .pptx".split()
)


@dataclass
class Page:
    content: str = ""
    encoding: str = "utf-8"
    error: Optional[str] = None
    total_lines: Optional[int] = None
    start_line: Optional[int] = None
    end_line: Optional[int] = None
    next_offset: Optional[int] = None
    no_lines_requested: bool = False

    def window(self) -> Dict[str, Any]:
        names = ("total_lines", "start_line", "end_line", "next_offset", "no_lines_requested")
        return {name: getattr(self, name) for name in names}


class _Pieces:
    """A file's bytes in pieces, with one kind of line end, and how many lines they were."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self.read = self.newlines = 0
        self.ended = False
        self._last = b"\n"

    def first(self) -> bytes:
        """The first piece as it is."""
        self._raw = self._ranges(0, PIECE)
        return self._raw

    def next(self) -> bytes:
        data = self._ranges(self.read, PIECE) if self.read else self._raw
        self.read += len(data)
        self.ended = len(data) < PIECE
        if b"\r" in data:
            if data.endswith(b"\r") and not self.ended and self._ranges(self.read, 1) == b"\n":
                self.read += 1  # the two bytes of this line end are in two pieces
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.newlines += data.count(b"\n")
        self._last = data[-1:] or self._last
        return data

    @property
    def lines(self) -> int:
        """Of what was read."""
        return self.newlines + (self._last != b"\n")


def read_page(ranges: Ranges, path: str, offset: int, limit: int) -> Page:
    pieces = _Pieces(ranges)
    first = pieces.first()
    if not first:
        return Page(EMPTY)
    if PurePosixPath(path).suffix.lower() in BINARY or not _is_text(first[:PREFIX]):
        data = first if len(first) > MAX_BYTES or len(first) < PIECE else ranges(0, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return Page(error=f"Binary file exceeds maximum preview size of {MAX_BYTES} bytes")
        return Page(base64.b64encode(data).decode("ascii"), "base64")
    if limit <= 0:
        return Page(no_lines_requested=True)
    try:
        return _lines(pieces, offset, limit)
    except UnicodeDecodeError:
        return Page(error="not_a_text_file")


def _is_text(prefix: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(prefix)  # a character that is cut at the end is none that is wrong
    except UnicodeDecodeError:
        return False
    return True


def _lines(pieces: _Pieces, offset: int, limit: int) -> Page:
    rest, before = pieces.next(), 0
    while pieces.newlines < offset and not pieces.ended:
        before = pieces.newlines
        rest = pieces.next()
    if pieces.newlines >= offset:
        rest = rest.split(b"\n", offset - before)[-1]
    room = MAX_BYTES - len(TRUNCATED)
    taken = rest.count(b"\n")
    page = bytearray(rest)
    while taken < limit and len(page) <= room and not pieces.ended:
        piece = pieces.next()
        page += piece
        taken += piece.count(b"\n")
    if pieces.lines <= offset and pieces.ended:
        return Page(error=f"Line offset {offset} exceeds file length ({pieces.lines} lines)")
    if taken > limit or (taken == limit and not page.endswith(b"\n")):
        del page[len(page) - len(page.split(b"\n", limit)[-1]) :]
        taken = limit
    else:
        taken += not page.endswith(b"\n")
    if page.endswith(b"\n"):
        del page[-1:]
    truncated = len(page) > room
    if truncated:
        taken = page.count(b"\n", 0, room) + page.startswith(b"\n", room)
        del page[room:]
    content = codecs.getincrementaldecoder("utf-8")().decode(bytes(page), final=not truncated)
    while not pieces.ended and pieces.read < COUNTED:
        pieces.next()
    total = pieces.lines if pieces.ended else None
    # A line that is cut is read again by the next page, unless it alone is too long for any.
    end = offset + (taken or 1)
    done = total is not None and end >= total
    if truncated:
        content += TRUNCATED
    return Page(content, total_lines=total, start_line=offset + 1, end_line=end, next_offset=None if done else end)
