# Made from ../_async/events.py by scripts/unasync.py: change that one.
"""Server-Sent Events of an answer, as objects."""

from __future__ import annotations

from typing import Iterator, Optional

from .._sse import EventParser, ServerEvent
from .._wire import load
from ..models import Event
from .stream import Stream
from .transport import Answer, Transport, Call


def read_events(answer: Answer, limit: Optional[int] = None) -> Iterator[ServerEvent]:
    parser = EventParser(limit)
    for piece in answer.pieces():
        for event in parser.feed(piece):
            yield event


def follow_events(transport: Transport, path: str, last_event_id: Optional[str]) -> Stream[Event]:
    """Events from now on, or from the one after `last_event_id`."""
    headers = {"accept": "text/event-stream"}
    if last_event_id is not None:
        headers["last-event-id"] = last_event_id

    def pieces() -> Iterator[Event]:
        # How long nothing happens is not a matter of the timeout.
        answer = transport.stream(Call("GET", path, headers=headers, timeout=0))
        try:
            for e in read_events(answer):
                yield Event(id=e.id, type=e.event, data=load(e.data, "an event"))
        finally:
            answer.close()

    return Stream(pieces())
