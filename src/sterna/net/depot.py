"""What was spilled, as the core reads it: messages and events from the pages of a broker."""

from collections.abc import Iterable
from pathlib import Path

from sterna.core.depot import PageId, PageUnreadableError
from sterna.core.frames import Data
from sterna.core.messages import Events, Message
from sterna.core.spilling import KeptPart, QueuedPart
from sterna.model.event import Event
from sterna.net.storage.pages import Pages
from sterna.wire.codec import Bodies, MalformedError, decode_stored, encode

SPILL = "spill"
"""The directory of the pages, in that of the broker."""

UNLOGGED = "spill-unlogged"
"""The directory of pages of a broker without a log; they are worth nothing after its end."""


class DiskDepot:
    """Reads messages and events from pages."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def message(self, page: PageId, place: int) -> Message:
        try:
            frame = decode_stored(self._pages.entry(page, place))
        except MalformedError as error:
            raise self._not_expected(page, place) from error
        if not isinstance(frame, Data):
            raise self._not_expected(page, place)
        return frame.message

    def event(self, page: PageId, place: int) -> Event:
        message = self.message(page, place)
        if not isinstance(message, Events) or len(message.events) != 1:
            raise self._not_expected(page, place)
        return message.events[0]

    def _not_expected(self, page: PageId, place: int) -> PageUnreadableError:
        return PageUnreadableError(
            f"{self._pages.path(page)} holds something else at {place} than was spilled there; "
            "start the release that wrote it, or restore the directory `data` from a copy"
        )


def beside(log: Path) -> DiskDepot:
    """The depot of the broker whose log is in a directory."""
    return DiskDepot(Pages(log.parent / SPILL))


def entries(part: QueuedPart | KeptPart) -> list[bytes]:
    """What a page holds of a part of a queue: a frame for each message or event.

    A message that cannot be encoded, and what follows it, is left out.
    """
    messages: Iterable[Message]
    if isinstance(part, QueuedPart):
        messages = (frame.message for frame in part.frames)
    else:
        messages = (Events(events=(event,)) for _, event in part.events)
    found: list[bytes] = []
    for message in messages:
        try:
            found.append(b"".join(encode(Data(0, 0, message), Bodies())))
        except Exception:  # noqa: BLE001 - the driver reports it when the message is to be sent.
            break
    return found
