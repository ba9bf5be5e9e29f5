"""The sessions of a client that several brokers serve: opened, lost, replaced, and taken along."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sterna.errors import ClosedError, NotConnectedError, TimedOutError
from sterna.net.client import outlet, sessions
from sterna.net.client.connections import Change, Connected
from sterna.net.client.sessions import LOST_S
from sterna.net.client.watched import WatchedSubscription
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in, until
from tests.net.test_watching import Tunnel, destroy


async def numbers(subscription: WatchedSubscription, count: int) -> list[object]:
    return [(await subscription.get(SETTLE_S)).attributes["n"] for _ in range(count)]


@pytest.mark.spec("RE-5", "LV-2")
def test_a_client_that_detaches_in_a_tunnel_misses_nothing(tmp_path: Path) -> None:
    """Its sessions are lost already then, and are not given up for that."""

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B2", "B3", "B4")]
        tunnel = Tunnel()
        async with (
            connect(*urls, client="car", watch=2, transport=tunnel) as car,
            connect(network.url("B1"), client="p") as publisher,
        ):
            subscription = await car.subscribe("n >= 0").ready(SETTLE_S)
            tunnel.enter()
            await until(lambda: not car.brokers)
            await car.detach()
            for number in range(5):
                await publisher.publish(n=number)
            await asyncio.sleep(3 * LOST_S)  # For so long a session is lost that is given up.
            tunnel.leave()
            await car.attach()
            await publisher.publish(n=5)
            assert await numbers(subscription, 6) == [0, 1, 2, 3, 4, 5]
            assert car.sessions == ("car~1", "car~2")

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5")
def test_brokers_that_do_not_answer_cost_no_time(tmp_path: Path) -> None:
    """The first address has nobody; later the one that is left for a lost session hangs."""

    async def run(network: LocalNetwork) -> None:
        loop = asyncio.get_running_loop()
        urls = ["sterna://127.0.0.1:1", *(network.url(name) for name in ("B2", "B3", "B4"))]
        begun = loop.time()
        async with (
            connect(*urls, client="car", watch=2, timeout=2 * SETTLE_S) as car,
            connect(network.url("B1"), client="p") as publisher,
        ):
            assert loop.time() - begun < SETTLE_S
            assert car.brokers == ("B2", "B3")
            os.kill(network.pid("B4"), signal.SIGSTOP)
            network.kill("B3")
            await until(lambda: car.sessions == ("car~1",))
            subscription = car.subscribe("n >= 0")  # Its other session will be opened later.
            await asyncio.to_thread(network.restart, "B3")
            await until(lambda: car.brokers == ("B2", "B3"))
            assert car.sessions == ("car~1", "car~3")
            os.kill(network.pid("B4"), signal.SIGCONT)
            await subscription.ready(SETTLE_S)
            await publisher.publish(n=1)
            assert await numbers(subscription, 1) == [1]

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5")
def test_two_addresses_of_one_broker_are_one_broker(tmp_path: Path) -> None:
    async def run(network: LocalNetwork) -> None:
        url = network.url("B1")
        again = url.replace("127.0.0.1", "localhost")
        with pytest.raises(
            NotConnectedError, match=r"1 of 2 answer; sterna://.* is B1 again: give"
        ):
            async with connect(url, again, client="car", watch=2, timeout=2 * SETTLE_S):
                pass
        async with connect(url, again, network.url("B2"), client="car", watch=2) as car:
            assert car.brokers == ("B1", "B2")

    with network_in(tmp_path, 2) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5")
def test_a_subscription_is_known_although_a_session_is_replaced_meanwhile(tmp_path: Path) -> None:
    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B3", "B4", "B2")]
        async with connect(*urls, client="car", watch=2) as car:
            assert car.brokers == ("B3", "B4")
            network.kill("B3")
            subscription = car.subscribe("n >= 0")
            waiting = asyncio.create_task(subscription.ready(SETTLE_S))
            await until(lambda: car.sessions == ("car~2", "car~3"))
            assert not waiting.done()
            await asyncio.to_thread(network.restart, "B3")
            assert await waiting is subscription
            closed = asyncio.create_task(subscription.ready(SETTLE_S))
            await subscription.close()
            with pytest.raises(ClosedError):
                await closed

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-2")
def test_a_program_whose_name_is_taken_ends(tmp_path: Path) -> None:
    """As with one broker. The other program gets everything, once."""

    async def run(urls: list[str]) -> None:
        first = await connect(*urls, client="car", watch=2)
        assert await first is first
        subscription = first.subscribe("n >= 0")
        async with connect(*urls, client="car", watch=2) as second:
            mine = await second.subscribe("n >= 0").ready(SETTLE_S)
            with pytest.raises(ClosedError, match="another connection of the same name"):
                await subscription.get(SETTLE_S)
            with pytest.raises(ClosedError, match="another connection of the same name"):
                first.subscribe("n >= 1")
            for number in range(3):
                await second.publish(n=number)
            assert await numbers(mine, 3) == [0, 1, 2]
            assert second.sessions == ("car~1", "car~2")
            await first.close()
            await second.publish(n=3)
            assert await numbers(mine, 1) == [3]

    with network_in(tmp_path, 2) as network:
        asyncio.run(run([*network.urls.values()]))


@pytest.mark.spec("RE-5", "LV-2")
def test_a_broker_that_has_died_while_the_client_was_away_is_replaced(tmp_path: Path) -> None:
    """What it had is at the other one, too."""

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B3", "B4", "B2")]
        async with (
            connect(*urls, client="car", watch=2, timeout=SETTLE_S) as car,
            connect(network.url("B1"), client="p") as publisher,
        ):
            subscription = await car.subscribe("n >= 0").ready(SETTLE_S)
            assert car.brokers == ("B3", "B4")
            await car.detach()
            await publisher.publish(n=0)
            destroy(network, "B3")
            await car.attach()
            assert sorted(car.brokers) == ["B2", "B4"]
            assert car.sessions == ("car~2", "car~3")
            await publisher.publish(n=1)
            assert await numbers(subscription, 2) == [0, 1]

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5")
def test_a_session_that_was_given_up_is_forgotten_when_its_broker_is_back(tmp_path: Path) -> None:
    """Else the broker would keep events for it for a day."""

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B3", "B4", "B2")]

        def known(broker: str) -> list[str]:
            queues = network.ask(broker, "queues")["queues"]
            return [each["name"] for each in queues if each["role"] == "client"]

        async with connect(*urls, client="car", watch=2) as car:
            await car.subscribe("n >= 0").ready(SETTLE_S)
            network.kill("B3")
            await until(lambda: car.brokers == ("B4", "B2"))
            await asyncio.to_thread(network.restart, "B3")
            await until(lambda: "car~1" not in known("B3"))
            await car.publish(n=1).wait(SETTLE_S)  # It is where it publishes.
        assert [known(name) for name in network.urls] == [[], [], [], []]

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5", "LV-2")
def test_publishing_goes_on_when_the_broker_for_it_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscribers take what follows for new; what was not confirmed is said to be uncertain."""
    monkeypatch.setattr(outlet, "ALONE_S", 0.5)

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B3", "B4", "B2")]
        async with (
            connect(*urls, client="car", watch=2, journal=tmp_path / "journal") as car,
            connect(network.url("B1"), client="q") as other,
        ):
            offer = car.advertise("n >= 0")
            subscription = await other.subscribe("n >= 0").ready(SETTLE_S)
            for number in (0, 1):
                await car.publish(n=number)
            destroy(network, "B3")
            await until(lambda: "B3" not in car.brokers)
            with pytest.raises(NotConnectedError, match="publish it again"):
                await car.publish(n=2).wait(SETTLE_S)
            await car.publish(n=3).wait(SETTLE_S)
            with pytest.raises(NotConnectedError, match="published or not"):
                await car.drain(SETTLE_S)
            assert await car.publish_all([{"n": 4}, {"n": 5}]) == 2
            await car.drain(SETTLE_S)
            got = [await subscription.get(SETTLE_S) for _ in range(5)]
            assert [event.attributes["n"] for event in got] == [0, 1, 3, 4, 5]
            assert {event.publisher for event in got} == {"car"}
            assert subscription.take() == []
            assert [*car._outlet.client._driver.node.advertisements] == ["n >= 0"]
            await offer.close()
            assert [*car._outlet.client._driver.node.advertisements] == []

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))


@pytest.mark.spec("LV-2")
def test_callbacks_are_called_once_until_they_are_removed(tmp_path: Path) -> None:
    async def run(network: LocalNetwork) -> None:
        car = connect(*network.urls.values(), client="car", watch=2)
        seen: list[Change] = []
        remove = car.on_connection(seen.append)
        async with car:
            at = [change.broker for change in seen if isinstance(change, Connected)]
            assert tuple(at) == car.brokers
            later: list[Change] = []
            car.on_connection(later.append)
            assert [change.broker for change in later if isinstance(change, Connected)] == at
            remove()
            await car.detach()
            assert len(seen) == 2
            assert len(later) == 4
            with pytest.raises(TimedOutError):
                await car.subscribe("n >= 0").ready(0.01)

    with network_in(tmp_path, 2) as network:
        asyncio.run(run(network))


@pytest.mark.spec("RE-5")
def test_not_more_sessions_wait_for_their_brokers_than_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FAREWELLS_MAX", 1)

    async def run(network: LocalNetwork) -> None:
        urls = [network.url(name) for name in ("B3", "B4", "B1", "B2")]
        async with connect(*urls, client="car", watch=2) as car:
            network.kill("B3")
            await until(lambda: "B3" not in car.brokers and len(car.brokers) == 2)
            network.kill("B4")
            await until(lambda: sorted(car.brokers) == ["B1", "B2"])
            await until(lambda: len(car._sessions._farewells) == 1)

    with network_in(tmp_path, 4) as network:
        asyncio.run(run(network))
