"""Attacks on a broker process by a client that speaks the protocol, and witnesses of them."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import msgspec

from sterna.core.link import Frame, Resume
from sterna.core.messages import AdvertisementChange, Events, InterestAsked, SubscriptionChange
from sterna.model.event import Event, Scalar
from sterna.net.local import LocalNetwork
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import SETTINGS, VERSION, Hello, Role, control, frame
from tests.net.live import SETTLE_S, connect, until

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
        cls, address: tuple[str, int], name: str = "attacker", role: Role = Role.CLIENT
    ) -> "Attacker":
        reader, writer = await asyncio.open_connection(*address)
        features = (SETTINGS,) if role is Role.BROKER else ()
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

    def _framed(self, message: object) -> bytes:
        self._seq += 1
        return frame(msgspec.msgpack.encode((0, self._seq, 0, message)))

    def leave(self) -> None:
        self._writer.transport.abort()


def framed(said: Frame) -> bytes:
    return frame(b"".join(encode(said, Bodies())))


async def witness(
    network: LocalNetwork, attack: Callable[[], Coroutine[Any, Any, Attacker]]
) -> float:
    """Have two witnesses exchange events while somebody attacks, until the event `end` comes.

    None of them is lost, and no event loop stands still. Return how many seconds the latest took.
    """
    numbers: list[object] = []
    late: list[float] = []
    sent: dict[object, float] = {}
    ended = asyncio.Event()

    def got(event: Event) -> None:
        if "end" in event.attributes:
            ended.set()
            return
        number = event.attributes["n"]
        numbers.append(number)
        late.append(time.monotonic() - sent[number])

    async with (
        connect(network.url("B1"), client="publisher") as publisher,
        connect(network.url("B1"), client="subscriber") as subscriber,
    ):
        publisher.advertise("witness = TRUE")
        subscription = subscriber.subscribe("witness = TRUE OR end = TRUE", callback=got)
        await subscription.ready(timeout=SETTLE_S)
        attacker = await attack()
        count = 0
        async with asyncio.timeout(SETTLE_S):
            while not ended.is_set() or count < 20:
                sent[count] = time.monotonic()
                await publisher.publish(witness=True, n=count)
                count += 1
        await until(lambda: len(numbers) == count)
        held = await asyncio.to_thread(network.held)
        attacker.leave()
    assert held == {}, held
    assert numbers == list(range(len(numbers)))
    return max(late)
