"""HTTP/1.1 as this client needs it: the bytes of a request, and what an answer says. Reads and writes nothing itself."""

from __future__ import annotations

import re
from typing import Dict, Iterator, Mapping, Optional, Tuple

import httpcore

HEAD_MAX = 100 * 1024
LINE_MAX = 4 * 1024
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: |\r?\n|$)")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE = re.compile(r"[\0\r\n]")


def broken(what: str) -> Exception:
    return httpcore.RemoteProtocolError(what)


#: Of an answer, by names in small letters. A header that came several times is one, with commas.
Headers = Dict[str, str]


def request_bytes(method: str, target: str, host: str, headers: Mapping[str, str], body: Optional[bytes]) -> bytes:
    """One whole request. httpx refuses what would end a line of a header; so does this."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    for line in lines:
        if _UNSAFE.search(line):
            raise httpcore.LocalProtocolError("a header, or the path, has a line end or a NUL")
    try:
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")
    except UnicodeEncodeError as e:
        raise httpcore.LocalProtocolError("a header, or the path, is not ASCII") from e


class Head:
    """Status and headers of an answer, and how its body ends."""

    def __init__(self, version: int, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        self.chunked, self.length = False, -1
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if coding.strip().lower() != "chunked":
                raise broken(f"the transfer encoding {coding!r} is not known")
            self.chunked = True
        elif "content-length" in headers:
            said = {x.strip() for x in headers["content-length"].split(",")}
            length = said.pop()
            if said or not length.isascii() or not length.isdigit() or len(length) > 18:
                raise broken("the length of the answer makes no sense")
            self.length = int(length)
        if status in (204, 304) or status < 200:
            self.chunked, self.length = False, 0
        connection = {x.strip().lower() for x in headers.get("connection", "").split(",")}
        self.keep = "close" not in connection and (version == 1 or "keep-alive" in connection) and (self.chunked or self.length >= 0)


def take_head(data: bytearray) -> Optional[Head]:
    """Takes a whole head from the start of `data`; None: more has to come."""
    end, skip = data.find(b"\r\n\r\n", 0, HEAD_MAX), 4
    if end < 0:
        end, skip = data.find(b"\n\n", 0, HEAD_MAX), 2
    if end < 0:
        if len(data) >= HEAD_MAX:
            raise broken(f"the head of the answer has more than {HEAD_MAX} bytes")
        if len(data) >= 8 and not data.startswith(b"HTTP/1."):
            raise broken("the answer is not HTTP/1.1")
        return None
    lines = bytes(data[:end]).split(b"\n")
    del data[: end + skip]
    first = _STATUS.match(lines[0])
    if first is None:
        raise broken("the answer is not HTTP/1.1")
    headers: Headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name):
            raise broken("a header of the answer makes no sense")
        key, text = name.decode("ascii").lower(), value.strip(b" \t\r").decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return Head(int(first.group(1)), int(first.group(2)), headers)


class BodyParser:
    """Cuts a body out of what comes. `left` is what the next part of it lacks; `over` that it is complete."""

    def __init__(self, head: Head) -> None:
        self._chunked, self._left = head.chunked, head.length
        self.over = not head.chunked and head.length == 0
        self._state = "size" if head.chunked else "data"

    def feed(self, data: bytearray) -> Iterator[bytes]:
        """Takes from the start of `data`."""
        while data and not self.over:
            if self._state == "data":
                n = len(data) if self._left < 0 else min(self._left, len(data))
                piece = bytes(memoryview(data)[:n])
                del data[:n]
                if self._left >= 0:
                    self._left -= n
                if self._left == 0:
                    self.over, self._state = not self._chunked, "end"
                yield piece
                continue
            line = self._line(data)
            if line is None:
                return
            self._take(line)

    def _line(self, data: bytearray) -> Optional[bytes]:
        end = data.find(b"\n", 0, LINE_MAX)
        if end < 0:
            if len(data) >= LINE_MAX:
                raise broken("a chunk of the answer has no length")
            return None
        line = bytes(data[:end])
        del data[: end + 1]
        return line[:-1] if line.endswith(b"\r") else line

    def _take(self, line: bytes) -> None:
        if self._state == "end":
            if line:
                raise broken("a chunk of the answer is longer than its length")
            self._state = "size"
        elif self._state == "size":
            text = line.split(b";")[0].strip()
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", text):
                raise broken("a chunk of the answer has no length")
            self._left = int(text, 16)
            self._state = "data" if self._left else "trailer"
        elif not line:
            self.over = True

    def end(self) -> None:
        """The connection has ended."""
        if not self.over and (self._chunked or self._left >= 0):
            raise broken("the server closed the connection in the middle of its answer")
        self.over = True


Times = Tuple[Optional[float], Optional[float]]
