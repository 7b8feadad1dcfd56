"""Output that is kept within a bound: the beginning and the end, as the server does it."""

from __future__ import annotations

from collections import deque
from typing import Deque, List


class Collector:
    def __init__(self, limit: int) -> None:
        self._head_room = (limit + 1) // 2
        self._tail_max = limit // 2
        self._head: List[bytes] = []
        self._tail: Deque[bytes] = deque()
        self._tail_size = 0
        #: Bytes between beginning and end that are not kept.
        self.dropped = 0

    def add(self, data: bytes) -> None:
        if self._head_room > 0:
            part = data[: self._head_room]
            self._head.append(part)
            self._head_room -= len(part)
            data = data[len(part) :]
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size > self._tail_max:
            first = self._tail.popleft()
            over = min(self._tail_size - self._tail_max, len(first))
            self._tail_size -= over
            self.dropped += over
            if over < len(first):
                self._tail.appendleft(first[over:])

    def bytes(self) -> bytes:
        return b"".join([*self._head, *self._tail])
