"""A client that two brokers serve at once, in a live network where one of them dies for good."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from sterna.core.replication.options import Filtering
from sterna.errors import ClosedError, NotConnectedError, TimedOutError
from sterna.model.queue_policies import PolicyError
from sterna.net.address import Address
from sterna.net.client import sessions
from sterna.net.client.sessions import LOST_S
from sterna.net.client.transport import Tcp
from sterna.net.client.watched import WatchedSubscription
from sterna.net.connection import Connection
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in, until

EVERY_S = 0.01
GAP_S = 1.0
"""The longest time without an event, when one of two brokers dies."""
BEFORE, AFTER = 30, 200
"""How many events are published before a broker dies, and after."""


class Got(NamedTuple):
    numbers: list[int]
    longest_gap_s: float


@asynccontextmanager
async def published(network: LocalNetwork) -> AsyncIterator[asyncio.Event]:
    """An event every few milliseconds at B1; every third one is unwanted. Set: a broker may die."""
    soon = asyncio.Event()

    async def publish() -> None:
        async with connect(network.url("B1"), client="p") as publisher:
            for number in range(BEFORE + AFTER):
                publisher.publish(n=number, wanted=number % 3 > 0)
                if number == BEFORE:
                    soon.set()
                await asyncio.sleep(EVERY_S)
            publisher.publish(n=-1, wanted=True)
            await publisher.drain(SETTLE_S)

    task = asyncio.create_task(publish())
    try:
        yield soon
    finally:
        await task


async def until_last(subscription: WatchedSubscription) -> Got:
    """All events up to the last one, and the longest time between two of them."""
    numbers: list[int] = []
    loop = asyncio.get_running_loop()
    before, longest = 0.0, 0.0
    async with asyncio.timeout(SETTLE_S):
        async for event in subscription:
            now, number = loop.time(), event.attributes["n"]
            assert isinstance(number, int)
            if numbers:
                longest = max(longest, now - before)
            before = now
            if number < 0:
                break
            numbers.append(number)
    return Got(numbers, longest)


def destroy(network: LocalNetwork, broker: str) -> None:
    """A broker dies, and nothing is left of it."""
    network.kill(broker)
    shutil.rmtree(network.data(broker))


def is_at(network: LocalNetwork, broker: str, client: str) -> bool:
    """Whether a broker takes a client whose name begins so to be connected."""
    queues = network.ask(broker, "queues")["queues"]
    return any(each["is_here"] for each in queues if each["name"].startswith(client))


WANTED = [number for number in range(BEFORE + AFTER) if number % 3 > 0]


@pytest.mark.spec("RE-5", "RE-1")
def test_a_broker_that_dies_for_good_leaves_no_gap(tmp_path: Path) -> None:
    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B2", "B3", "B4")]
        async with connect(*urls, client="car", watch=2) as car:
            assert car.brokers == ("B2", "B3")
            subscription = car.subscribe("wanted")
            await subscription.ready(SETTLE_S)
            async with published(network) as soon:
                reading = asyncio.create_task(until_last(subscription))
                await soon.wait()
                destroy(network, "B2")
                got = await reading
            assert got.numbers == WANTED
            assert got.longest_gap_s < GAP_S
            assert subscription.late == 0
            await until(lambda: car.brokers == ("B3", "B4"))
            assert car.sessions == ("car~2", "car~3")

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5")
def test_with_one_broker_what_follows_its_death_is_missed(tmp_path: Path) -> None:
    """The same with a plain client: its new broker waits for the one that is dead."""

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B2", "B3", "B4")]
        numbers: list[object] = []
        async with connect(*urls, client="car") as car:
            subscription = car.subscribe("wanted")
            await subscription.ready(SETTLE_S)
            async with published(network) as soon:
                await soon.wait()
                destroy(network, "B2")

            async def read() -> None:
                while len(numbers) < len(WANTED):
                    event = await subscription.get(timeout=GAP_S)
                    numbers.append(event.attributes["n"])

            with pytest.raises(TimedOutError):  # Its gap is longer, and has no end.
                await read()
        assert numbers == WANTED[: len(numbers)]
        assert BEFORE / 2 < len(numbers) < len(WANTED)

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


class Tunnel(Tcp):
    """Plain TCP, which ends for a while."""

    def __init__(self) -> None:
        self._open: list[Connection] = []
        self.is_inside = False
        self.refused = 0
        """How many connections were tried in vain."""

    async def dial(self, address: Address, make: Callable[[], Connection]) -> Connection:
        if self.is_inside:
            self.refused += 1
            raise OSError("there is no network here")
        connection = await super().dial(address, make)
        self._open.append(connection)
        return connection

    def enter(self) -> None:
        self.is_inside = True
        for connection in self._open:
            connection.abort()
        self._open.clear()

    def leave(self) -> None:
        self.is_inside = False


@pytest.mark.spec("RE-5", "LV-2")
def test_a_client_that_is_cut_off_from_all_brokers_for_a_while_misses_nothing(
    tmp_path: Path,
) -> None:
    """Its sessions are not given up for new ones, which would know nothing of what it missed."""

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B2", "B3", "B4")]
        tunnel = Tunnel()
        async with (
            connect(*urls, client="car", watch=2, transport=tunnel) as car,
            connect(network.url("B1"), client="p") as publisher,
        ):
            subscription = await car.subscribe("n >= 0").ready(SETTLE_S)
            await publisher.publish(n=0)
            assert (await subscription.get(SETTLE_S)).attributes["n"] == 0
            tunnel.enter()
            await until(lambda: not car.brokers)
            for number in range(1, 6):
                await publisher.publish(n=number)
            await asyncio.sleep(3 * LOST_S)  # For so long a session is lost that is given up.
            tunnel.leave()
            await publisher.publish(n=6)
            got = [(await subscription.get(SETTLE_S)).attributes["n"] for _ in range(6)]
            assert got == [1, 2, 3, 4, 5, 6]
            await until(lambda: len(car.brokers) == 2)
            assert subscription.late == 0

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5", "RE-1")
def test_the_sessions_roam_and_take_along_what_waits_for_them(tmp_path: Path) -> None:
    """From B2 and B3 over B3 and B4 to B1 and B4, connected or not, while events are published."""

    async def run(urls: dict[str, str]) -> None:
        async with (
            connect(urls["B2"], urls["B3"], client="car", watch=2) as car,
            connect(urls["B1"], client="p") as publisher,
        ):
            subscription = await car.subscribe("n >= 0").ready(SETTLE_S)
            last = await car.subscribe("n >= 0", name="last", keep="last_per(k)").ready(SETTLE_S)
            numbers = iter(range(1_000))

            async def publish(count: int) -> None:
                for number in (next(numbers) for _ in range(count)):
                    await publisher.publish(n=number, k=0)

            await publish(5)
            await asyncio.gather(car.attach(urls["B3"], urls["B4"]), publish(20))
            assert car.brokers == ("B4", "B3")
            assert car.sessions == ("car~1", "car~2")
            await until(lambda: subscription.waiting == last.waiting == 25)
            await car.detach()
            await publish(20)
            await car.attach(urls["B1"], urls["B4"])
            assert sorted(car.brokers) == ["B1", "B4"]
            assert car.sessions == ("car~1", "car~2"), "they roam, nothing replaces them"
            await publish(5)
            await until(lambda: subscription.waiting == 50)
            assert [event.attributes["n"] for event in subscription.take()] == [*range(50)]
            assert subscription.late == last.late == 0
            receipt = await car.publish(n=next(numbers), k=0).wait(SETTLE_S)
            assert receipt.publisher == "car"
            with pytest.raises(ValueError, match="2 brokers are to watch, and 1 addresses"):
                await car.attach(urls["B1"])
            nobody = "sterna://127.0.0.1:1"
            with pytest.raises(NotConnectedError, match="session car~1 finds no broker at"):
                await car.attach(nobody, urls["B1"], timeout=0.5)

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network.urls))


@pytest.mark.spec("RE-5", "RE-3")
def test_each_session_keeps_what_the_policy_says_while_it_is_away(tmp_path: Path) -> None:
    async def run(urls: dict[str, str]) -> None:
        async with (
            connect(*urls.values(), client="car", watch=2) as car,
            connect(urls["B1"], client="p") as publisher,
        ):
            subscription = await car.subscribe("n >= 0", keep="ring(2)").ready(SETTLE_S)
            await car.detach()
            await until(lambda: not any(is_at(network, name, "car~") for name in urls))
            for number in range(10):
                await publisher.publish(n=number)
            await asyncio.to_thread(network.wait_until_settled)
            await car.attach()
            got = [(await subscription.get(SETTLE_S)).attributes["n"] for _ in range(2)]
            assert got == [8, 9]
            with pytest.raises(PolicyError):
                car.subscribe("n >= 1", keep="ring(0)")

    with network_in(tmp_path, 2) as network:
        asyncio.run(run(network.urls))


@pytest.mark.spec("RE-5")
def test_if_all_brokers_that_watch_have_died_others_take_their_place_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody brings what they had. But they are waited for only while nobody else answers."""
    monkeypatch.setattr(sessions, "ALONE_S", 0.5)

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B3", "B4", "B1", "B2")]
        async with (
            connect(*urls, client="car", watch=2) as car,
            connect(network.url("B1"), client="p") as publisher,
        ):
            assert car.brokers == ("B3", "B4")
            subscription = await car.subscribe("n >= 0").ready(SETTLE_S)
            for broker in ("B3", "B4"):
                destroy(network, broker)
            await until(lambda: sorted(car.brokers) == ["B1", "B2"])
            number = 0
            while not subscription.waiting:  # Until the brokers know the subscription.
                number += 1
                await publisher.publish(n=number)
            first = (await subscription.get(SETTLE_S)).attributes["n"]
            assert isinstance(first, int)
            for later in range(first + 1, number + 1):  # What was published since follows.
                assert (await subscription.get(SETTLE_S)).attributes["n"] == later

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-1")
def test_several_brokers_serve_one_client(tmp_path: Path) -> None:
    """Duplicates with no filter, none with the others; it publishes under its own name."""

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B1", "B2")]
        async with (
            connect(*urls, client="raw", watch=2, filtering="none") as raw,
            connect(*urls, client="car", watch=2, filtering=Filtering.ORDER) as car,
        ):
            everything, once = raw.subscribe("n > 0"), car.subscribe("n > 0", name="mine")
            await everything.ready(SETTLE_S)
            await once.ready(SETTLE_S)
            with pytest.raises(ValueError, match="has a subscription 'mine' already"):
                car.subscribe("n > 1", name="mine")
            for number in (1, 2):
                id_ = await car.publish(n=number).wait(SETTLE_S)
                assert id_.publisher == "car"
            await car.drain(SETTLE_S)
            twice = [(await everything.get(SETTLE_S)).attributes["n"] for _ in range(4)]
            assert sorted(map(str, twice)) == ["1", "1", "2", "2"]
            assert [(await once.get(SETTLE_S)).attributes["n"] for _ in range(2)] == [1, 2]
            await until(lambda: everything.waiting == 0)
            assert once.take() == []
            await once.close()
            with pytest.raises(ClosedError):
                await once.get(SETTLE_S)
        assert [event async for event in everything] == []

    with network_in(tmp_path, 2) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-1")
def test_what_watching_cannot_do_is_refused(tmp_path: Path) -> None:
    async def run(network: LocalNetwork) -> None:
        url = network.url("B1")
        with pytest.raises(ValueError, match="2 brokers are to watch, and 1 addresses are given"):
            connect(url, url, watch=2)
        with pytest.raises(ValueError, match="at least one broker must watch"):
            connect(url, watch=0)
        with pytest.raises(ValueError, match="no state"):
            connect(url, watch=1, state=tmp_path / "state")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match=r"filtering is 'none' or .* 'holding', not 'some'"):
            connect(url, watch=1, filtering="some")
        for hold_s in (-1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="hold_s is a number of seconds from 0 to 86,400"):
                connect(url, watch=1, hold_s=hold_s)
        with pytest.raises(ValueError, match="add watch=2"):
            connect(url, filtering="order")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="add watch=2"):
            connect(url, hold_s=2)  # type: ignore[call-overload]
        for watch in (True, "2", 1.5):
            with pytest.raises(TypeError, match="watch is a number of brokers, such as 2"):
                connect(url, watch=watch)  # type: ignore[arg-type]
        nobody = "sterna://127.0.0.1:1"
        with pytest.raises(NotConnectedError, match="wants 2 brokers to watch, and 1 of 2 answer"):
            async with connect(url, nobody, client="car", watch=2, timeout=0.5):
                pass

    with network_in(tmp_path, 1) as network:
        asyncio.run(run(network))
