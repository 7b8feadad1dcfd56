# Made from ../_async/stream.py by scripts/unasync.py: change that one.
"""What comes piece by piece: iterate over it; leave the `with` block, or close it, to end it early."""

from __future__ import annotations

from types import TracebackType
from typing import Iterator, Generic, Optional, Type, TypeVar

from .runtime import Closer

T = TypeVar("T")


class Stream(Generic[T]):
    """An iterator that holds a connection.

    The connection is opened by the first piece that is asked for, unless it is open already, and ends with the loop. A loop
    that is left early leaves it open until the stream is closed or collected.
    """

    def __init__(self, pieces: Iterator[T], on_close: Optional[Closer] = None) -> None:
        self._pieces = pieces
        self._on_close = on_close

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._pieces.__next__()

    def close(self) -> None:
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        # A generator that has not begun does not run to its end when it is closed.
        if self._on_close is not None:
            self._on_close()

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


class ByteStream(Stream[bytes]):
    """Pieces of bytes; `read_all()` gives all that is left at once."""

    def read_all(self) -> bytes:
        return b"".join([piece for piece in self])
