"""The events that an application publishes: batches to send, and receipts for them."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from sterna.core.inputs import PublishMany
from sterna.core.sizes import BATCH_BYTES_MAX
from sterna.errors import DiscardedError, EventTooLargeError
from sterna.model.event import Event, EventId, Scalar, plain_attributes
from sterna.net import clock
from sterna.net.client.driver import ClientDriver
from sterna.net.client.handles import Receipt
from sterna.net.client.keeper import Keeper
from sterna.net.client.life import Life
from sterna.net.client.window import BATCH_EVENTS, Window

FRAME_BYTES = 1024
"""The most bytes that a frame needs besides its events."""


class Publications:
    """Publishes events in batches, and knows which of them a broker has accepted."""

    def __init__(self, life: Life, driver: ClientDriver, keeper: Keeper) -> None:
        self._life = life
        self._driver = driver
        self._keeper = keeper
        self._pending: list[tuple[Mapping[str, Scalar], bytes]] = []
        self._pending_bytes = 0
        self._is_flushing = False
        self._receipts: deque[tuple[int, asyncio.Future[None]]] = deque()
        """The calls that wait for an event, with its sequence number, in order of the numbers."""
        self._discarded = Discarded()

    @property
    def is_settled(self) -> bool:
        """Whether the core has all events that were published."""
        return not self._pending

    @property
    def last(self) -> int:
        """The sequence number of the last event."""
        return self._driver.node.published + len(self._pending)

    @property
    def event_bytes_max(self) -> int:
        """The size of the largest event that the broker accepts."""
        return self._keeper.frame_bytes_max - FRAME_BYTES

    # ---- Publishing

    def publish(self, attributes: Mapping[str, Scalar], payload: bytes) -> Receipt:
        """Publish an event, together with others that follow in this turn of the event loop."""
        size = event_size(attributes, payload)
        if size > self.event_bytes_max:
            limit = self._keeper.frame_bytes_max
            raise EventTooLargeError(
                f"the event has about {size:,} bytes, and the broker accepts {limit:,} "
                "(frame_bytes_max); send large data another way",
                size=size,
                limit=self.event_bytes_max,
            )
        node = self._driver.node
        if node.options.advertisements:  # The core raises at once if it may not be published.
            self.flush()
            self._driver.give(PublishMany(events=((attributes, payload),), time_us=clock.wall_us()))
            return Receipt(self, EventId(self._life.name, node.published))
        self._pending.append((attributes, payload))
        self._pending_bytes += size
        receipt = Receipt(self, EventId(self._life.name, node.published + len(self._pending)))
        if len(self._pending) >= BATCH_EVENTS or self._pending_bytes >= BATCH_BYTES_MAX:
            self.flush()
        elif not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush_and_send)
        return receipt

    async def publish_all(
        self,
        events: Iterable[Mapping[str, object] | tuple[Mapping[str, object], bytes]],
        window: int,
    ) -> int:
        """Publish many events with at most `window` in flight; return how many they were."""
        # Without a connection, no more can wait than the client keeps.
        kept = self._driver.node.options.buffer_events_max
        under_way: Window[Receipt] = Window(max(0, min(window, kept - BATCH_EVENTS)))
        for each in events:
            if under_way.put(self.publish(*checked_item(each))):
                await asyncio.sleep(0)
                if (mark := under_way.next()) is not None:
                    await self.accepted(mark.receipt.id.seq)
                    under_way.arrived()
        await self.drain()
        return under_way.published

    def flush(self) -> None:
        """Have the core publish the events that wait here."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._pending_bytes = 0
            self._driver.give(PublishMany(events=tuple(pending), time_us=clock.wall_us()))

    def _flush_and_send(self) -> None:
        self._is_flushing = False
        self.flush()
        self._keeper.flush()

    # ---- Receipts

    def state_of(self, seq: int) -> str:
        """What has become of an event, for people to read."""
        if seq in self._discarded:
            return "discarded"
        if seq <= self._driver.accepted:
            return "accepted"
        return "not accepted before the end" if self._life.is_over else "waits for a broker"

    def unaccepted(self, what: str) -> Callable[[], str]:
        """What to tell those who have waited too long for a broker to accept something."""
        return lambda: f"{self._keeper.whereabouts}, and no broker has accepted {what}"

    async def drain(self) -> None:
        """Wait until all are accepted; DiscardedError if some were discarded since last time."""
        self.flush()
        await self.accepted(self._driver.node.published)
        if self._discarded.is_news():
            raise self._discarded_error()

    async def accepted(self, seq: int) -> None:
        """Wait until a broker has accepted the events up to a sequence number."""
        if seq > self._driver.accepted:
            self._life.check()
            waiting = seq, asyncio.get_running_loop().create_future()
            if self._receipts and self._receipts[-1][0] > seq:
                self._receipts = deque(sorted([*self._receipts, waiting], key=lambda r: r[0]))
            else:
                self._receipts.append(waiting)
            try:
                await waiting[1]
            except asyncio.CancelledError:
                with suppress(ValueError):  # It may have been accepted at the same moment.
                    self._receipts.remove(waiting)
                raise
        if seq in self._discarded:
            raise self._discarded_error()
        if seq > self._driver.accepted:
            self._life.check()

    def node_changed(self) -> None:
        """Wake the calls whose events are accepted, or all calls if the client has ended."""
        receipts = self._receipts
        if not receipts:
            return
        is_over = self._life.is_over
        accepted = self._driver.accepted
        while receipts and (is_over or receipts[0][0] <= accepted):
            future = receipts.popleft()[1]
            if not future.done():
                future.set_result(None)

    def discard(self, events: Sequence[Event]) -> None:
        """The core has discarded events that waited for a connection."""
        for event in events:
            self._discarded.add(event.seq)

    def _discarded_error(self) -> DiscardedError:
        limit = self._driver.node.options.buffer_events_max
        return DiscardedError(
            f"an event was discarded: more than {limit:,} waited for a connection, "
            "or another program has published under this name meanwhile",
            limit=limit,
        )


class Discarded:
    """The sequence numbers of discarded events, as ranges, for most are consecutive."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        self._is_news = False

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self._first, seq) - 1
        return place >= 0 and seq <= self._last[place]

    def add(self, seq: int) -> None:
        """Add the sequence number of a discarded event."""
        self._is_news = True
        place = bisect_right(self._first, seq)
        if place and self._last[place - 1] >= seq - 1:
            self._last[place - 1] = max(seq, self._last[place - 1])
        else:
            self._last.insert(place, seq)  # First, as another thread may be asking.
            self._first.insert(place, seq)

    def is_news(self) -> bool:
        """Whether some were discarded since the last call."""
        is_news, self._is_news = self._is_news, False
        return is_news


def checked_event(
    attributes: Mapping[str, object] | None,
    payload: bytes,
    more: Mapping[str, object] | None = None,
) -> tuple[dict[str, Scalar], bytes]:
    """Return attributes and payload as they are published; TypeError or ValueError if invalid."""
    if attributes is not None and not isinstance(attributes, Mapping):
        raise TypeError(f"an event cannot be {_shown(attributes)}; {_right_call(attributes)}")
    if type(payload) is not bytes:
        raise TypeError(
            f"the payload is bytes, not {type(payload).__name__}: publish({{'price': 2}}, b'…'); "
            "an attribute that is called 'payload' goes into the mapping: publish({'payload': …})"
        )
    return plain_attributes({**(attributes or {}), **(more or {})}), payload


def checked_item(
    item: Mapping[str, object] | tuple[Mapping[str, object], bytes],
) -> tuple[dict[str, Scalar], bytes]:
    """Return an item of `publish_all` as it is published; TypeError or ValueError if invalid."""
    if isinstance(item, tuple) and len(item) == 2:
        return checked_event(*item)
    if isinstance(item, Mapping):
        return checked_event(item, b"")
    raise TypeError(
        f"an event cannot be {_shown(item)}; publish_all takes a list of mappings, or of pairs "
        "with a payload: publish_all([{'price': 2}, ({'price': 3}, b'…')])"
    )


def _right_call(given: object) -> str:
    """How to publish what was given as if it were attributes."""
    if isinstance(given, Event):
        return "write publish(event.attributes, event.payload)"
    if isinstance(given, bytes | bytearray | memoryview):
        return "a payload follows the attributes: publish({'service': 'parking'}, b'…')"
    return (
        "write publish(service='parking', price=2) or publish({'service': 'parking', 'price': 2}); "
        "an attribute that is called 'attributes' goes into the mapping: "
        "publish({'attributes': …})"
    )


def _shown(given: object) -> str:
    """A value in an error, not too long."""
    text = repr(given)
    return text if len(text) <= 60 else f"{type(given).__name__} {text[:50]}…"


def event_size(attributes: Mapping[str, Scalar], payload: bytes) -> int:
    """About how many bytes an event takes on the wire."""
    return len(payload) + sum(
        text_size(name) + (text_size(value) if type(value) is str else 9)
        for name, value in attributes.items()
    )


def text_size(text: str) -> int:
    """How many bytes a text takes on the wire."""
    return len(text) if text.isascii() else len(text.encode())
