"""Server-Sent Events: cuts a byte stream into events."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import List, Optional

from .errors import ProtocolError

MAX_EVENT = 16 * 1024 * 1024


@dataclass
class ServerEvent:
    event: str
    data: str
    id: Optional[str]


class EventParser:
    """Fed with bytes, returns the events that are complete. Lines end with LF, CRLF or CR. An event that the end of the
    stream cuts off is dropped, as the format demands."""

    def __init__(self, limit: Optional[int] = None) -> None:
        self._limit = limit or MAX_EVENT
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._event = ""
        self._data: List[str] = []
        self._size = 0
        self._id: Optional[str] = None

    def feed(self, piece: bytes) -> List[ServerEvent]:
        text = self._rest + self._decode(piece)
        # A CR at the very end may be half of a CRLF: it waits for the next piece.
        held = text.endswith("\r")
        lines = (text[:-1] if held else text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + ("\r" if held else "")
        out: List[ServerEvent] = []
        for line in lines:
            self._line(line, out)
        if len(self._rest) + self._size > self._limit:
            raise ProtocolError(f"an event of more than {self._limit} characters", code="protocol")
        return out

    def _line(self, line: str, out: List[ServerEvent]) -> None:
        if line == "":
            if self._data:
                out.append(ServerEvent(self._event or "message", "\n".join(self._data), self._id))
            self._event, self._data, self._size = "", [], 0
            return
        field, _, value = line.partition(":")
        if value.startswith(" "):
            value = value[1:]
        if field == "event":
            self._event = value
        elif field == "data":
            self._data.append(value)
            self._size += len(value)
            if self._size > self._limit:
                raise ProtocolError(f"an event of more than {self._limit} characters", code="protocol")
        elif field == "id" and "\0" not in value:
            self._id = value
