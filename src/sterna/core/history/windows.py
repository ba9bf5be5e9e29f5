"""How much of the past may be on its way: to each client, and to all of them together."""

from collections import deque

from sterna.core.names import LinkId

PART_BYTES_MAX = 64 << 10
"""About how long a message of past events gets, unless a single event is longer."""

WINDOW_BYTES_MAX = 256 << 10
"""So many bytes a client gets before it has to confirm some."""

ALL_BYTES_MAX = 32 << 20
"""With so many bytes on their way to all clients together, each gets little at a time."""

LEAST_BYTES = 8 << 10
"""A client that has confirmed everything gets so many bytes in any case; less is not sent."""

KeptWindow = list[tuple[int, int]]
"""The number of each message on its link, and about how many bytes of events it has."""


class Windows:
    """What is on its way to each client, and not confirmed."""

    def __init__(self) -> None:
        self._sent: dict[LinkId, deque[tuple[int, int]]] = {}
        self._bytes: dict[LinkId, int] = {}
        self._all_bytes = 0

    def __contains__(self, link: LinkId) -> bool:
        return link in self._sent

    def room(self, link: LinkId, *, in_parts: bool) -> int:
        """How many bytes may be sent to a client now; 0 if others have to be confirmed before.

        A client that takes no parts gets all of an answer at once, one answer after the other.
        """
        mine = self._bytes.get(link, 0)
        room = min(WINDOW_BYTES_MAX - mine, ALL_BYTES_MAX - self._all_bytes)
        if not in_parts:
            return 0 if mine or room < 1 else 1 << 62
        if not mine:
            room = max(room, LEAST_BYTES)
        return min(room, PART_BYTES_MAX) if room >= LEAST_BYTES else 0

    def sent(self, link: LinkId, number: int, size: int) -> None:
        """A message was sent, the one with this number."""
        self._sent.setdefault(link, deque()).append((number, size))
        self._bytes[link] = self._bytes.get(link, 0) + size
        self._all_bytes += size

    def confirmed(self, link: LinkId, oldest_unconfirmed: int | None) -> bool:
        """The client has confirmed all messages before this one; whether it had not before."""
        waiting = self._sent[link]
        before = len(waiting)
        while waiting and (oldest_unconfirmed is None or waiting[0][0] < oldest_unconfirmed):
            _, size = waiting.popleft()
            self._bytes[link] -= size
            self._all_bytes -= size
        is_new = len(waiting) < before
        if not waiting:
            self.forget(link)
        return is_new

    def forget(self, link: LinkId) -> None:
        """Nothing is on its way to a client any more."""
        self._sent.pop(link, None)
        self._all_bytes -= self._bytes.pop(link, 0)

    def keep(self) -> dict[LinkId, KeptWindow]:
        """What a snapshot has to hold."""
        return {link: list(sent) for link, sent in self._sent.items()}

    def restore(self, kept: dict[LinkId, KeptWindow]) -> None:
        """Go on with what a snapshot has held."""
        for link, sent in kept.items():
            for number, size in sent:
                self.sent(link, number, size)
