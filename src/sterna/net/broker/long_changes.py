"""Messages with many subscriptions or advertisements: the core is given them in parts first."""

from typing import cast

from sterna.core.handover.messages import Arrival
from sterna.core.inputs import Ahead
from sterna.core.link import Data, Frame
from sterna.core.messages import AdvertisementChange, Route, SubscriptionChange
from sterna.core.names import LinkId, RouteId

ROUTES_MAX = 3
"""How many subscriptions or advertisements may begin or end at once. Each may be compared with many
others."""

COUNT_MAX = 16
"""How many are in a part at most: the next ones may take much longer than those before, as when the
matching index has just been loaded."""

PART_S = 0.005
"""How many seconds the core should take for a part."""


def routes_in(frame: Frame) -> int:
    """How many subscriptions or advertisements begin or end with a frame."""
    if type(frame) is not Data:
        return 0
    message = frame.message
    if isinstance(message, SubscriptionChange | AdvertisementChange):
        return len(message.added) + len(message.removed)
    return len(message.subscriptions) if isinstance(message, Arrival) else 0


class LongChange:
    """What is left of a frame with more than that. It is true as long as something is."""

    def __init__(self, frame: Frame) -> None:
        data = cast("Data", frame)
        message = data.message
        self._seq = data.seq
        self._introduces = isinstance(message, Arrival)
        self._kind: type[SubscriptionChange | AdvertisementChange] = SubscriptionChange
        self._added: tuple[Route, ...] = ()
        self._removed: tuple[RouteId, ...] = ()
        if isinstance(message, Arrival):
            self._added = message.subscriptions
        elif isinstance(message, SubscriptionChange | AdvertisementChange):
            self._kind = type(message)
            self._added, self._removed = message.added, message.removed
        self._next = 0
        self._count = 1

    def __bool__(self) -> bool:
        return self._next < len(self._added) + len(self._removed)

    def next(self, link: LinkId) -> Ahead:
        """The next part: what begins comes before what ends, as in the whole."""
        first, last = self._next, self._next + self._count
        self._next = last
        among = len(self._added)
        change = self._kind(
            added=self._added[first:last],
            removed=self._removed[max(0, first - among) : max(0, last - among)],
        )
        return Ahead(link=link, seq=self._seq, change=change, introduces=self._introduces)

    def took(self, seconds: float) -> None:
        """The core took so long for the last part; the next one should take as long as it may."""
        if seconds > PART_S:
            self._count = max(1, self._count // 2)
        elif seconds < PART_S / 2:
            self._count = min(COUNT_MAX, 2 * self._count)
