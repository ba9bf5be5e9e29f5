"""Attacks on a broker process by a client that speaks the protocol, and witnesses of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from sterna.core.link import Frame, Resume
from sterna.core.messages import (
    AdvertisementChange,
    Events,
    InterestAsked,
    Message,
    SubscriptionChange,
)
from sterna.model.event import Event, Scalar
from sterna.net.local import LocalNetwork
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import SETTINGS, VERSION, Hello, Role, control, frame
from tests.net.live import SETTLE_S, Client, connect, until

LATE_S = 1.0
"""How late an event of others may be."""


class Attacker:
    """A client that reads nothing any more, so that it tests none of its own filters."""

    def __init__(self, name: str, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._writer = writer
        self._seq = self._published = self._subscribed = 0
        self.task: asyncio.Task[None] | None = None
        """What it does while others look."""

    @classmethod
    async def come_in(
        cls,
        address: tuple[str, int],
        name: str = "attacker",
        role: Role = Role.CLIENT,
        *,
        more_features: tuple[str, ...] = (),
    ) -> "Attacker":
        reader, writer = await asyncio.open_connection(*address)
        features = (SETTINGS, *more_features) if role is Role.BROKER else ()
        hello = Hello(versions=(VERSION, VERSION), role=role, node=name, features=features)
        writer.write(control(hello))
        await reader.readexactly(1)  # A stranger may send less than a client.
        writer.write(framed(Resume(1, None, 0, True)))
        return cls(name, writer)

    async def send(self, *pieces: bytes) -> None:
        self._writer.writelines(pieces)
        await self._writer.drain()

    def subscription(self, filters: Sequence[str]) -> Iterator[bytes]:
        for first in range(0, len(filters), 100):
            yield self.change(filters[first : first + 100])

    def change(
        self,
        filters: Sequence[str],
        kind: type[SubscriptionChange | AdvertisementChange] = SubscriptionChange,
    ) -> bytes:
        """A frame that subscribes to some filters, whose texts are not looked at here."""
        return self._framed({"type": kind.__name__, "added": self._routes(filters)})

    def arrival(self, filters: Sequence[str], kind: str = "subscriptions") -> bytes:
        """A frame with which it claims to come from another broker, with these subscriptions."""
        arrived = {"type": "Arrival", "visit": 2, "born": 1, "stay": 1, "received": 0}
        return self._framed(arrived | {kind: self._routes(filters)})

    def question(self) -> bytes:
        """A frame that asks what is wanted, as publishers do that discard the rest."""
        return self._framed({"type": InterestAsked.__name__, "number": 1})

    def _routes(self, filters: Sequence[str]) -> list[dict[str, str]]:
        numbers = range(self._subscribed, self._subscribed + len(filters))
        self._subscribed = numbers.stop
        return [
            {"id": f"{self.name}/{number}", "filter": text}
            for number, text in zip(numbers, filters, strict=True)
        ]

    def withdrawal(
        self,
        *numbers: int,
        kind: type[SubscriptionChange | AdvertisementChange] = SubscriptionChange,
    ) -> bytes:
        """A frame that ends some of the subscriptions."""
        removed = [f"{self.name}/{number}" for number in numbers]
        return self._framed({"type": kind.__name__, "removed": removed})

    def publication(self, **attributes: Scalar) -> bytes:
        self._published += 1
        event = Event(publisher=self.name, seq=self._published, time_us=0, attributes=attributes)
        return self._framed(Events(events=(event,)))

    def said(self, kind: type[Message], **fields: object) -> bytes:
        """A frame with any message, whose fields are not looked at here."""
        return self._framed({"type": kind.__name__, **fields})

    def _framed(self, message: object) -> bytes:
        self._seq += 1
        return frame(msgspec.msgpack.encode((0, self._seq, 0, message)))

    def leave(self) -> None:
        self._writer.transport.abort()


def framed(said: Frame) -> bytes:
    return frame(b"".join(encode(said, Bodies())))


class Witnesses:
    """Two clients of one broker that have nothing to do with what happens: one hears the other."""

    def __init__(self, publisher: Client) -> None:
        self._publisher = publisher
        self._sent: list[float] = []
        self._numbers: list[object] = []
        self.latest_s = 0.0
        """How many seconds the slowest of their events took."""

    def got(self, event: Event) -> None:
        number = event.attributes["count"]
        self._numbers.append(number)
        self.latest_s = max(self.latest_s, time.monotonic() - self._sent[int(number)])

    async def publish(self) -> None:
        """Publish one more event."""
        self._sent.append(time.monotonic())
        await self._publisher.publish(witness=True, count=len(self._sent) - 1)

    async def go_on(self) -> None:
        while True:
            await self.publish()
            await asyncio.sleep(0.005)

    async def got_all(self) -> None:
        """Wait for all that was published: each event comes once, and in order."""
        await until(lambda: len(self._numbers) >= len(self._sent))
        assert self._numbers == list(range(len(self._sent)))


@asynccontextmanager
async def witnesses(network: LocalNetwork, broker: str) -> AsyncIterator[Witnesses]:
    """Two clients that do not notice what happens: none of their events is lost, late or twice."""
    async with (
        connect(network.url(broker), client="publisher") as publisher,
        connect(network.url(broker), client="subscriber") as subscriber,
    ):
        pair = Witnesses(publisher)
        publisher.advertise("witness = TRUE")
        subscription = subscriber.subscribe("witness = TRUE", callback=pair.got)
        await subscription.ready(timeout=SETTLE_S)
        yield pair
        await pair.got_all()


@asynccontextmanager
async def undisturbed(network: LocalNetwork, broker: str) -> AsyncIterator[None]:
    """Have two witnesses exchange events all the time, none of which is lost, late or twice."""
    async with witnesses(network, broker) as pair:
        going_on = asyncio.create_task(pair.go_on())
        try:
            yield
        finally:
            going_on.cancel()
            await asyncio.wait([going_on])
        await pair.publish()
        await pair.got_all()
    assert pair.latest_s < LATE_S


async def witness(
    network: LocalNetwork, attack: Callable[[], Coroutine[Any, Any, Attacker]]
) -> float:
    """Have two witnesses exchange events while somebody attacks, until the event `end` comes.

    None of them is lost, and no event loop stands still. Return how many seconds the latest took.
    """
    ended = asyncio.Event()
    async with (
        connect(network.url("B1"), client="ending") as waiting,
        witnesses(network, "B1") as pair,
    ):
        ends = waiting.subscribe("end = TRUE", callback=lambda _: ended.set())
        await ends.ready(timeout=SETTLE_S)
        attacker = await attack()
        count = 0
        async with asyncio.timeout(SETTLE_S):
            while not ended.is_set() or count < 20:
                await pair.publish()
                count += 1
        await pair.got_all()
        held = await asyncio.to_thread(network.held)
        attacker.leave()
    assert held == {}, held
    return pair.latest_s
