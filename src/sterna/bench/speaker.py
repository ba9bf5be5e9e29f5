"""One client as its socket sees it, written for speed: bytes come in, bytes to send go out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from sterna.errors import SternaError

Content = tuple[str, float]
"""The content of an event: a symbol and a price."""

PAYLOAD_BYTES = 100
CHUNK_BYTES = 64 * 1024
"""About how many bytes are written at once."""


class Chunk(NamedTuple):
    """Encoded events that are written together."""

    data: bytes
    events: int


class SpeakerError(SternaError):
    """The other side breaks the protocol; the message says how."""


class Speaker(ABC):
    """A client of a broker: speaks one protocol over one connection.

    The owner of the socket calls `begin` when it is connected, `feed` with what arrives, and writes
    what `take` gives.
    """

    acknowledges = True
    """Whether the broker acknowledges events."""

    def __init__(self, name: str, filters: Sequence[str]) -> None:
        self.name = name
        self.filters = tuple(filters)
        """The filters that it subscribes to; a publisher has none."""
        self.is_ready = False
        """Whether the broker has accepted the client and its subscriptions."""
        self.received = 0
        """How many events have arrived."""
        self.acknowledged = 0
        """How many of its own events the broker has acknowledged."""
        self.unconfirmed = 0
        """How much has arrived that it has not confirmed yet."""
        self.numbers: list[int] | None = None
        """If this is a list, the numbers of arriving events are added to it."""
        self._outgoing: list[bytes] = []

    def take(self) -> bytes:
        """Take the bytes that are to be written now."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    @abstractmethod
    def begin(self) -> None:
        """The connection is up (again)."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""

    @abstractmethod
    def confirm(self) -> None:
        """Acknowledge what has arrived, if the protocol has acknowledgements."""

    @abstractmethod
    def encode(self, contents: Sequence[Content], batch: int) -> list[Chunk]:
        """Encode events for publishing, `batch` in a frame if the protocol has frames."""


def payload(number: int) -> bytes:
    """The payload of an event, with its number in front."""
    return number.to_bytes(8, "big") + _REST


def together(frames: Sequence[tuple[bytes, int]]) -> list[Chunk]:
    """Frames, each with its number of events, joined to chunks."""
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
