"""Messages that take long, as with many subscriptions: the core is given them in parts first."""

from collections.abc import Iterator

from sterna.core.broker import Broker
from sterna.core.handover.messages import Arrival, Introduction
from sterna.core.history.messages import HistoryAsked, HistoryFound, PastAsked
from sterna.core.inputs import Ahead
from sterna.core.link import Data, Frame, Resume
from sterna.core.messages import AdvertisementChange, InterestAsked, SubscriptionChange
from sterna.core.names import LinkId

ROUTES_MAX = 3
"""How many subscriptions or advertisements may begin or end at once. Each may be compared with many
others."""

COUNT_MAX = 16
"""How many are in a part at most: the next ones may take much longer than those before, as when the
matching index has just been loaded."""

PART_S = 0.005
"""How many seconds the core should take for a part."""

SEARCHING = (PastAsked, HistoryAsked, HistoryFound)
"""Messages for which a broker goes through many events."""

INTRODUCTIONS = (Arrival, Introduction)
"""Messages that replace all that a client has announced before."""

Change = SubscriptionChange | AdvertisementChange | InterestAsked


def routes_in(frame: Frame) -> int:
    """How many subscriptions or advertisements begin or end with a frame."""
    if type(frame) is not Data:
        return 0
    message = frame.message
    if isinstance(message, SubscriptionChange | AdvertisementChange):
        return len(message.added) + len(message.removed)
    if isinstance(message, INTRODUCTIONS):
        return len(message.subscriptions) + len(message.advertisements)
    return 0


def takes_long(frame: Frame, node: Broker, link: LinkId) -> bool:
    """Whether the core should prepare for a frame before it is given it."""
    if type(frame) is Resume:
        return node.router.takes_long(None, link)
    if routes_in(frame) > ROUTES_MAX:
        return True
    if type(frame) is not Data:
        return False
    message = frame.message
    changes = _changes(message) if isinstance(message, INTRODUCTIONS) else (message,)
    return any(node.router.takes_long(change, link) for change in changes)


class LongChange:
    """What is left of such a frame. It is true as long as something is."""

    def __init__(self, frame: Frame) -> None:
        self._seq = 0
        self._changes: list[Change] = []
        """What the frame changes, each alone: what begins comes before what ends."""
        self._introduces = False
        if type(frame) is Data:
            message = frame.message
            self._seq = frame.seq
            self._introduces = isinstance(message, INTRODUCTIONS)
            self._changes = list(_changes(message))
        self._next = 0
        self._count = 1

    def __bool__(self) -> bool:
        return bool(self._changes)

    def next(self, link: LinkId) -> Ahead:
        """The next part."""
        change = self._changes[0]
        first, last = self._next, self._next + self._count
        self._next = last
        length = 1
        if not isinstance(change, InterestAsked):
            length = len(change.added) + len(change.removed)
            change = type(change)(
                added=change.added[first:last], removed=change.removed[first:last]
            )
        if last >= length:
            self._next = 0
            del self._changes[0]
        return Ahead(link=link, seq=self._seq, change=change, introduces=self._introduces)

    def took(self, seconds: float) -> None:
        """The core took so long for the last part; the next one should take as long as it may."""
        if seconds > PART_S:
            self._count = max(1, self._count // 2)
        elif seconds < PART_S / 2:
            self._count = min(COUNT_MAX, 2 * self._count)


def _changes(message: object) -> Iterator[Change]:
    if isinstance(message, INTRODUCTIONS):
        if message.subscriptions:
            yield SubscriptionChange(added=message.subscriptions)
        if message.advertisements:
            yield AdvertisementChange(added=message.advertisements)
    elif isinstance(message, SubscriptionChange | AdvertisementChange):
        if message.added:
            yield type(message)(added=message.added)
        if message.removed:
            yield type(message)(removed=message.removed)
    elif isinstance(message, InterestAsked):
        yield message
