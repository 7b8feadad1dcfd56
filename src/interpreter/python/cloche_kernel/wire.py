"""Frames between a kernel and its daemon: four bytes of length, little-endian, then that many bytes of JSON.

Everything that leaves the kernel goes through one Wire, so that frames of several threads never mix."""
import collections
import json
import os
import struct
import threading

HEAD = struct.Struct("<I")
REQUEST_MAX = 64 << 20
READ_SIZE = 1 << 20


class Broken(Exception):
    """The peer is gone, or what it sent is no frame."""


def plain_text(text):
    """@text without lone surrogates, which UTF-8 cannot carry."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode(frame):
    try:
        body = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        body = plain_text(json.dumps(frame, ensure_ascii=False, allow_nan=False)).encode("utf-8")
    return HEAD.pack(len(body)) + body


class Wire:
    def __init__(self, requests, events, interrupts):
        self.requests, self.events = requests, events
        self.interrupts = interrupts
        self.lock = threading.RLock()
        self.waiting = collections.deque()
        self.busy = False
        self.gone = False

    def send(self, *frames):
        """Sends frames, whole and in order. A frame that a signal handler sends meanwhile follows them."""
        data = b"".join(map(encode, frames))
        with self.interrupts.held():
            with self.lock:
                self.waiting.append(data)
                if self.busy:
                    return
                self.busy = True
                try:
                    while self.waiting:
                        self._write(self.waiting.popleft())
                finally:
                    self.busy = False

    def _write(self, data):
        view = memoryview(data)
        while view and not self.gone:
            try:
                view = view[os.write(self.events, view):]
            except OSError:
                self.gone = True  # events are no longer read: the end of the requests follows

    def receive(self):
        """The next request, a dict; None at the end of the requests; Broken if the stream cannot be read on."""
        head = self._read(HEAD.size)
        if head is None:
            return None
        (size,) = HEAD.unpack(head)
        if size > REQUEST_MAX:
            raise Broken("a request has %d bytes, and at most %d are allowed" % (size, REQUEST_MAX))
        body = self._read(size)
        if body is None:
            raise Broken("the stream ended inside a request")
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as e:
            return {"type": None, "problem": "the request is not JSON: %s" % e}
        return request if isinstance(request, dict) else {"type": None, "problem": "the request is not a JSON object"}

    def _read(self, size):
        """@size bytes, or None if the stream ended before the first."""
        data = os.read(self.requests, min(size, READ_SIZE)) if size else b""
        if len(data) == size:
            return data
        if not data:
            return None
        parts, have = [data], len(data)
        while have < size:
            data = os.read(self.requests, min(size - have, READ_SIZE))
            if not data:
                raise Broken("the stream ended inside a request")
            parts.append(data)
            have += len(data)
        return b"".join(parts)
