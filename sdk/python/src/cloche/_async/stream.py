"""What comes piece by piece: iterate over it; leave the `with` block, or close it, to end it early."""

from __future__ import annotations

from types import TracebackType
from typing import AsyncIterator, Generic, Optional, Type, TypeVar

from .runtime import Closer

T = TypeVar("T")


class AsyncStream(Generic[T]):
    """An iterator that holds a connection.

    The connection is opened by the first piece that is asked for, unless it is open already, and ends with the loop. A loop
    that is left early leaves it open until the stream is closed or collected.
    """

    def __init__(self, pieces: AsyncIterator[T], on_close: Optional[Closer] = None) -> None:
        self._pieces = pieces
        self._on_close = on_close

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return await self._pieces.__anext__()

    async def aclose(self) -> None:
        aclose = getattr(self._pieces, "aclose", None)
        if aclose is not None:
            await aclose()
        # A generator that has not begun does not run to its end when it is closed.
        if self._on_close is not None:
            await self._on_close()

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()


class AsyncByteStream(AsyncStream[bytes]):
    """Pieces of bytes; `read_all()` gives all that is left at once."""

    async def read_all(self) -> bytes:
        return b"".join([piece async for piece in self])
