"""What the merging of sessions states, beside `Delivered` and `Repeated`."""

from enum import StrEnum

from sterna.core.facts import Fact
from sterna.core.replication.inputs import SessionId
from sterna.model.event import EventId


class HeldBack(Fact, frozen=True, kw_only=True):
    """Events wait, because a session may still bring earlier ones of their publishers."""

    events: tuple[EventId, ...]


class Reason(StrEnum):
    """Why events do not wait any longer."""

    TIME = "time"
    """They have waited for as long as they may."""
    ROOM = "room"
    """Too many events wait."""


class GaveUp(Fact, frozen=True, kw_only=True):
    """Events have waited in vain: they were given to the application, and the earlier ones for
    which they waited will be dropped if they come.
    """

    events: tuple[EventId, ...]
    sessions: tuple[SessionId, ...]
    """The sessions that may still bring earlier ones. If time has run out, nothing waits for these
    until they bring something again."""
    reason: Reason


class CameLate(Fact, frozen=True, kw_only=True):
    """Events were dropped because the application already had later ones of their publishers.

    Or they are so old that nobody knows any more whether the application has them.
    """

    events: tuple[EventId, ...]
