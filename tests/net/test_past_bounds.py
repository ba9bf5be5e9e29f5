"""A broker process that many ask for the past: it stays small, and all are served.

The bounds stand far above what it takes now, and far below what it took when answers had none:
gigabytes of memory, and seconds in which nobody was served.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from sterna.core.history.messages import PastAsked
from sterna.core.history.windows import WINDOW_BYTES_MAX
from sterna.core.messages import Events, Route
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, Client, connect, network_in, until
from tests.net.test_hostile import attacker, memory_bytes

EVENTS = 10_000
REQUESTS = 1_000
GROWTH_BYTES_MAX = 64 << 20
LATE_S = 1.0
"""How late an event of others may be, on a machine that does nothing else."""

pytestmark = pytest.mark.spec("LV-2", "LV-6")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """A broker that has seen all the events that it remembers."""
    with network_in(tmp_path_factory.mktemp("past"), 1) as network:
        asyncio.run(_use(network))
        yield network
        assert network.died() == {}
        assert "honest" not in network.messages("B1").read_text()


async def _use(network: LocalNetwork) -> None:
    """What a broker loads when it is first used counts for no attack."""
    async with connect(network.url("B1"), client="first") as client:
        for number in range(100):
            client.subscribe(f"n = -{number} AND m LIKE '%a_{number}%'")
        await client.publish_all({"n": n, "kind": "car", "m": "a"} for n in range(EVENTS))


class Witnesses:
    """Two that exchange events all the time, and what the broker needs meanwhile."""

    def __init__(self, network: LocalNetwork) -> None:
        self._network = network
        self._sent: list[float] = []
        self._numbers: list[object] = []
        self._late = 0.0
        self._stolen = 0.0
        """For how long this process itself was kept from working."""
        self._before = self._most = memory_bytes(network)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        url = self._network.url("B1")
        async with (
            connect(url, client="publisher") as publisher,
            connect(url, client="subscriber") as subscriber,
        ):
            subscription = subscriber.subscribe("witness = TRUE", callback=self._got)
            await subscription.ready(timeout=SETTLE_S)
            task = asyncio.create_task(self._publish(publisher))
            yield
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: len(self._numbers) == len(self._sent))

    async def _publish(self, publisher: Client) -> None:
        while True:
            self._sent.append(time.monotonic())
            await asyncio.shield(publisher.publish(witness=True, number=len(self._sent) - 1))
            self._most = max(self._most, memory_bytes(self._network))
            began = time.monotonic()
            await asyncio.sleep(0.02)
            self._stolen = max(self._stolen, time.monotonic() - began)

    def _got(self, event: Event) -> None:
        number = event.attributes["number"]
        assert isinstance(number, int)
        self._numbers.append(number)
        self._late = max(self._late, time.monotonic() - self._sent[number])

    def check(self) -> None:
        assert self._numbers == list(range(len(self._sent)))
        assert self._late < LATE_S + 5 * self._stolen
        assert self._most - self._before < GROWTH_BYTES_MAX


@pytest.mark.parametrize(
    ("in_parts", "taken_max"), [(True, WINDOW_BYTES_MAX), (False, 2 * WINDOW_BYTES_MAX)]
)
def test_a_flood_of_requests(network: LocalNetwork, in_parts: bool, taken_max: int) -> None:
    """The attacker takes all it can get and confirms nothing; others who ask are answered."""
    witnesses = Witnesses(network)
    asked = [
        PastAsked(
            route=Route(f"eve/{number}", Filter(f"n >= -{number % 10}")),
            events_max=EVENTS if in_parts else 2_000,
            in_parts=in_parts,
        )
        for number in range(REQUESTS)
    ]
    end = Event(publisher="eve", seq=1, time_us=0, attributes={"end": True})

    async def run() -> None:
        async with (
            witnesses.watching(),
            connect(network.url("B1"), client="honest") as client,
            attacker(network) as eve,
        ):
            ended = client.subscribe("end = TRUE")
            await ended.ready(timeout=SETTLE_S)
            await eve.come_in("eve")
            await eve.reader.readexactly(1)  # A stranger may send less than a client.
            await eve.say(*asked, Events(events=(end,)))
            taken = 0
            async with asyncio.TaskGroup() as tasks:

                async def take() -> None:
                    nonlocal taken
                    while True:
                        taken += len(await eve.reader.read(65_536))

                taking = tasks.create_task(take())
                await all_of(client, 3, 1_000)
                await ended.get(timeout=SETTLE_S)  # The broker has got all requests.
                await all_of(client, 3, 1_000)
                taking.cancel()
            assert 0 < taken < taken_max

    asyncio.run(run())
    witnesses.check()


def test_many_honest_subscriptions(network: LocalNetwork) -> None:
    """They get everything, and nobody is disconnected for it."""
    witnesses = Witnesses(network)

    async def run() -> None:
        async with witnesses.watching():
            await asyncio.gather(*(one(number) for number in range(5)))

    async def one(number: int) -> None:
        async with connect(network.url("B1"), client=f"honest-{number}") as client:
            await all_of(client, 20, 1_000)

    asyncio.run(run())
    witnesses.check()


async def all_of(client: Client, subscriptions: int, count: int) -> None:
    """Subscriptions that begin with the last events get all of these, in order."""
    made = [
        client.subscribe("n >= 0", name=str(number), past=count) for number in range(subscriptions)
    ]
    for each in made:
        numbers = [(await each.get(timeout=SETTLE_S)).attributes["n"] for _ in range(count)]
        assert numbers == list(range(EVENTS - count, EVENTS))
        await each.close()
