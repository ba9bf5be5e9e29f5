"""One client as its socket sees it, written for speed: bytes come in, bytes to send go out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from sterna.errors import SternaError

Content = tuple[str, float]
"""What an event is about: a symbol and a price."""

PAYLOAD_BYTES = 100
CHUNK_BYTES = 64 * 1024
"""About how much is written at once."""


class Chunk(NamedTuple):
    """Encoded events that are written together."""

    data: bytes
    events: int


class SpeakerError(SternaError):
    """The other side does not do what it should; the message says what it did."""


class Speaker(ABC):
    """A client of a broker: speaks one protocol over one connection.

    Whoever has the socket calls `begin` when it stands, `feed` with what arrives, and writes what
    `take` gives.
    """

    acknowledges = True
    """Whether the broker says that it has an event."""

    def __init__(self, name: str, filters: Sequence[str]) -> None:
        self.name = name
        self.filters = tuple(filters)
        """What it subscribes to; a publisher to nothing."""
        self.is_ready = False
        """Whether the broker has taken it and its subscriptions."""
        self.received = 0
        """How many events have come."""
        self.acknowledged = 0
        """How many of its own events the broker has."""
        self.unconfirmed = 0
        """How much has come that it has not confirmed yet."""
        self.numbers: list[int] | None = None
        """If it is a list, the numbers of the events that come are added to it."""
        self._outgoing: list[bytes] = []

    def take(self) -> bytes:
        """What is to be written now."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    @abstractmethod
    def begin(self) -> None:
        """The connection stands (again)."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Something has come."""

    @abstractmethod
    def confirm(self) -> None:
        """Say what has come, if the protocol has a word for it."""

    @abstractmethod
    def encode(self, contents: Sequence[Content], batch: int) -> list[Chunk]:
        """Get ready to publish events, `batch` in a frame if the protocol has frames."""


def payload(number: int) -> bytes:
    """The payload of an event, with its number in front."""
    return number.to_bytes(8, "big") + _REST


def together(frames: Sequence[tuple[bytes, int]]) -> list[Chunk]:
    """Frames, each with how many events it has, as chunks."""
    chunks = []
    parts: list[bytes] = []
    size = events = 0
    for frame, count in frames:
        if parts and size + len(frame) > CHUNK_BYTES:
            chunks.append(Chunk(b"".join(parts), events))
            parts, size, events = [], 0, 0
        parts.append(frame)
        size += len(frame)
        events += count
    if parts:
        chunks.append(Chunk(b"".join(parts), events))
    return chunks


_REST = b"x" * (PAYLOAD_BYTES - 8)
