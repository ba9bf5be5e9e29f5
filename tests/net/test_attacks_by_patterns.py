"""A broker process under attack by patterns: others do not notice.

The attacker subscribes with patterns that almost fit everywhere, and publishes the text for them.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import product

import pytest

from sterna.core.link import Data, Resume
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.net.local import LocalNetwork
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import VERSION, Hello, Role, control, frame
from tests.net.live import SETTLE_S, connect, network_in, until

LETTERS = "abcdefghijklm"
THREE = list(product(LETTERS, repeat=3))
LATE_S = 1.0
"""How late an event of others may be."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("patterns"), 1) as network:
        asyncio.run(_use(network))
        yield network
        assert network.died() == {}


async def _use(network: LocalNetwork) -> None:
    """What a broker loads when it is first used is not an attack's doing."""
    async with connect(network.url("B1"), client="first") as client:
        for number in range(100):
            client.subscribe(f"n = {number} AND m LIKE '%a_{number}%'")
        await client.publish_all({"n": number, "m": "a"} for number in range(500))


class Attacker:
    """A client that reads nothing any more, so that it tests none of its own filters."""

    def __init__(self, name: str, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._writer = writer
        self._seq = self._published = 0

    @classmethod
    async def come_in(cls, network: LocalNetwork, name: str) -> "Attacker":
        reader, writer = await asyncio.open_connection(*network.addresses["B1"])
        writer.write(control(Hello(versions=(VERSION, VERSION), role=Role.CLIENT, node=name)))
        await reader.readexactly(1)  # A stranger may send less than a client.
        writer.write(frame(b"".join(encode(Resume(1, None, 0, True), Bodies()))))
        return cls(name, writer)

    async def say(self, message: Message) -> None:
        self._seq += 1
        self._writer.write(frame(b"".join(encode(Data(self._seq, 0, message), Bodies()))))
        await self._writer.drain()

    async def subscribe(self, filters: list[str]) -> None:
        for first in range(0, len(filters), 100):
            some = enumerate(filters[first : first + 100], first)
            added = tuple(Route(f"{self.name}/{n}", Filter(text)) for n, text in some)
            await self.say(SubscriptionChange(added=added))

    async def publish(self, **attributes: Scalar) -> None:
        self._published += 1
        event = Event(publisher=self.name, seq=self._published, time_us=0, attributes=attributes)
        await self.say(Events(events=(event,)))

    def leave(self) -> None:
        self._writer.transport.abort()


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ([f"x LIKE '%{'a_' * 500}b%'"], "a" * 900_000),
        (["x LIKE '%{}_{}%_{}%'".format(*each) for each in THREE[:2_000]], LETTERS * 70_000),
        ([f"x LIKE '%{'a_' * 40}{'_'.join(each)}%'" for each in THREE[-700:]], "a" * 900_000),
        (["x MATCHES '+/{}/+/{}{}/#'".format(*each) for each in THREE[:2_000]], "a/" * 450_000),
    ],
    ids=["one long pattern", "many patterns", "many long patterns", "topics"],
)
def test_others_are_served_meanwhile(network: LocalNetwork, filters: list[str], text: str) -> None:
    """Two witnesses exchange events all the time: none is lost, and none is late."""
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

    async def run() -> None:
        async with (
            connect(network.url("B1"), client="publisher") as publisher,
            connect(network.url("B1"), client="subscriber") as subscriber,
        ):
            subscription = subscriber.subscribe("witness = TRUE OR end = TRUE", callback=got)
            await subscription.ready(timeout=SETTLE_S)
            attacker = await Attacker.come_in(network, "attacker")
            await attacker.subscribe(filters)
            await attacker.publish(x=text)
            await attacker.publish(end=True)
            count = 0
            async with asyncio.timeout(SETTLE_S):
                while not ended.is_set() or count < 20:
                    sent[count] = time.monotonic()
                    await publisher.publish(witness=True, n=count)
                    count += 1
            await until(lambda: len(numbers) == count)
            attacker.leave()

    asyncio.run(run())

    assert numbers == list(range(len(numbers)))
    assert max(late) < LATE_S
