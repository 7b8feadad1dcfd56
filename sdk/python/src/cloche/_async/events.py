"""Server-Sent Events of an answer, as objects."""

from __future__ import annotations

from typing import AsyncIterator, Optional

from .._sse import EventParser, ServerEvent
from .._wire import load
from ..models import Event
from .stream import AsyncStream
from .transport import AsyncAnswer, AsyncTransport, Call


async def read_events(answer: AsyncAnswer, limit: Optional[int] = None) -> AsyncIterator[ServerEvent]:
    parser = EventParser(limit)
    async for piece in answer.pieces():
        for event in parser.feed(piece):
            yield event


def follow_events(transport: AsyncTransport, path: str, last_event_id: Optional[str]) -> AsyncStream[Event]:
    """Events from now on, or from the one after `last_event_id`."""
    headers = {"accept": "text/event-stream"}
    if last_event_id is not None:
        headers["last-event-id"] = last_event_id

    async def pieces() -> AsyncIterator[Event]:
        # How long nothing happens is not a matter of the timeout.
        answer = await transport.stream(Call("GET", path, headers=headers, timeout=0))
        try:
            async for e in read_events(answer):
                yield Event(id=e.id, type=e.event, data=load(e.data, "an event"))
        finally:
            await answer.aclose()

    return AsyncStream(pieces())
