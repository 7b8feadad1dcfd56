"""WebSocket frames (RFC 6455), without any I/O: what to send, and what received bytes mean.

The connection itself is httpx's: it upgrades a request and gives the bytes, so that TLS, unix sockets and headers are the same
as of every other call. The part of the protocol that is needed here is small enough not to ask for another dependency.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from typing import List, Mapping, Tuple, Union

from .errors import ProtocolError

MAX_MESSAGE = 64 * 1024 * 1024
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
Message = Tuple[int, bytes]


class Handshake:
    def __init__(self) -> None:
        self._key = base64.b64encode(os.urandom(16)).decode()
        self.headers = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": self._key,
        }

    def accepts(self, headers: Mapping[str, str]) -> bool:
        digest = hashlib.sha1((self._key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        return (
            headers.get("upgrade", "").lower() == "websocket"
            and headers.get("sec-websocket-accept") == base64.b64encode(digest).decode()
        )


def _masked(data: Union[bytes, memoryview], key: bytes) -> bytes:
    n = len(data)
    if n == 0:
        return b""
    # As one big number, since a loop over bytes would take a hundred times as long.
    mask = key * (n // 4) + key[: n % 4]
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(n, "little")


def frame(kind: int, data: Union[bytes, memoryview] = b"") -> bytes:
    """One whole message of a client: always masked."""
    n = len(data)
    if n < 126:
        head = struct.pack("!BB", 0x80 | kind, 0x80 | n)
    elif n < 65536:
        head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, n)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, n)
    key = os.urandom(4)
    return head + key + _masked(data, key)


class FrameParser:
    """Fed with bytes of a server, returns the messages that are complete: pieces joined, control frames as they are."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._kind = 0
        self._parts: List[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> List[Message]:
        buf = self._buffer
        buf += data
        out: List[Message] = []
        at = 0
        while len(buf) - at >= 2:
            first, second = buf[at], buf[at + 1]
            kind, final = first & 15, bool(first & 0x80)
            if first & 0x70 or second & 0x80 or kind not in (0, TEXT, BINARY, CLOSE, PING, PONG):
                raise ProtocolError("a WebSocket frame that a server may not send", code="protocol")
            n, head = second & 0x7F, 2
            if n == 126 or n == 127:
                head = 4 if n == 126 else 10
                if len(buf) - at < head:
                    break
                n = int.from_bytes(buf[at + 2 : at + head], "big")
            if kind >= CLOSE and (n > 125 or not final):
                raise ProtocolError("a WebSocket control frame that is too large", code="protocol")
            if n + self._size > MAX_MESSAGE:
                raise ProtocolError(f"a WebSocket message of more than {MAX_MESSAGE} bytes", code="protocol")
            if len(buf) - at < head + n:
                break
            body = bytes(memoryview(buf)[at + head : at + head + n])
            at += head + n
            if kind >= CLOSE:
                out.append((kind, body))
            else:
                self._data(kind, body, final, out)
        del buf[:at]
        return out

    def _data(self, kind: int, body: bytes, final: bool, out: List[Message]) -> None:
        if (kind == 0) != (self._kind != 0):
            raise ProtocolError("WebSocket pieces in the wrong order", code="protocol")
        if kind != 0:
            self._kind = kind
        self._parts.append(body)
        self._size += len(body)
        if final:
            out.append((self._kind, b"".join(self._parts)))
            self._kind, self._parts, self._size = 0, [], 0
