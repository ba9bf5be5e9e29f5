"""Clients whose connection is lost, or whose program ends: what they promise holds."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from sterna.core import facts
from sterna.core import protocol as protocols
from sterna.core.component import ClientComponent
from sterna.core.inputs import Configured
from sterna.core.names import LocalProtocolError
from sterna.core.protocol import Protocol, UnknownProtocolError
from sterna.errors import ClosedError, DiscardedError, NotConnectedError
from sterna.net.client import search
from sterna.net.client.deliveries import QUEUE_EVENTS_MAX
from sterna.net.client.handles import Receipt, Subscription
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, Client, connect, gather_events, network_in, settle, until
from tests.net.proxy import Proxy


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("clients"), 2) as network:
        yield network


async def proxy_of(network: LocalNetwork, name: str = "B1") -> Proxy:
    rng = random.Random("proxy")  # noqa: S311 - reproducible, not secret.
    return await Proxy(network.addresses[name], rng).start()


# ---- Receipts


@pytest.mark.spec("LV-2")
def test_a_receipt_of_an_event_that_was_given_up_says_so(network: LocalNetwork) -> None:
    """Whether it is awaited before or after; `drain` says it once; others are not affected."""

    async def run() -> None:
        async with connect(network.url("B1"), client="full") as client:
            early = client.publish(n=-1)
            await early
            room = client._driver.node.options.buffer_events_max
            await client.detach()
            receipts = [client.publish(n=number) for number in range(room + 5)]
            waiting = asyncio.create_task(_outcome(receipts[2]))
            await asyncio.sleep(0)
            await client.attach()
            assert await waiting is DiscardedError
            outcomes = [await _outcome(each) for each in (early, *receipts)]
            assert outcomes == [None, *[DiscardedError] * 5, *[None] * room]
            with pytest.raises(DiscardedError):
                await client.drain()
            await client.drain()

    asyncio.run(run())


async def _outcome(receipt: Receipt) -> type[Exception] | None:
    try:
        await receipt
    except DiscardedError as error:
        return type(error)
    return None


@pytest.mark.spec("LV-2")
def test_publishing_many_loses_nothing_when_the_connection_breaks(network: LocalNetwork) -> None:
    """There is never more on its way than the client can keep while it is away."""

    async def run() -> None:
        proxy = await proxy_of(network)
        count = 30_000
        async with (
            connect(proxy.url, client="many") as publisher,
            connect(network.url("B2"), client="all") as subscriber,
        ):
            got: list[object] = []
            subscriber.subscribe("many >= 0", callback=lambda e: got.append(e.attributes["many"]))
            await settle(network, [publisher, subscriber])
            task = asyncio.create_task(publisher.publish_all({"many": n} for n in range(count)))
            await until(lambda: len(got) > 2_000)
            proxy.is_shut = True
            proxy.drop()
            await until(lambda: not publisher.is_connected)
            node = publisher._driver.node
            window = node.options.buffer_events_max
            await until(lambda: node.published - node.accepted >= window - 2_000)
            proxy.heal()
            assert await task == count
            await until(lambda: len(got) >= count)
            assert got == list(range(count))
        await proxy.stop()

    asyncio.run(run())


# ---- Connections


@pytest.mark.spec("LV-2")
def test_a_connection_that_has_fallen_silent_is_given_up(network: LocalNetwork) -> None:
    """Nobody says that it is broken; the client asks, hears nothing, and connects anew."""

    async def run() -> None:
        proxy = await proxy_of(network)
        async with connect(proxy.url, client="silent") as client:
            await client.publish(n=1)
            proxy.silence()
            async with asyncio.timeout(30):
                await client.publish(n=2)
        await proxy.stop()

    with patch.object(search, "HEARTBEAT_S", 0.1):
        asyncio.run(run())


@pytest.mark.spec("LV-2", "LV-3")
def test_a_client_goes_where_it_is_told_even_while_it_looks_for_its_broker(
    network: LocalNetwork,
) -> None:
    async def run() -> None:
        proxy = await proxy_of(network)
        async with connect(proxy.url, client="mover") as client:
            proxy.is_shut = True
            proxy.drop()
            await until(lambda: not client.is_connected)
            await client.attach(network.url("B2"))
            assert client.broker == "B2"
            await client.publish(n=1)
        await proxy.stop()

    asyncio.run(run())


@pytest.mark.spec("LV-2")
def test_a_slow_application_makes_its_client_wait_also_after_a_reconnect(
    network: LocalNetwork,
) -> None:
    """Only so many events wait in the client; when they are taken, the rest comes."""

    async def run() -> None:
        proxy = await proxy_of(network)
        count = 40_000
        async with (
            connect(network.url("B1"), client="fast") as publisher,
            connect(proxy.url, client="slow") as subscriber,
        ):
            subscription = subscriber.subscribe("slow >= 0")
            await settle(network, [publisher, subscriber])
            await publisher.publish_all({"slow": n} for n in range(count // 2))
            await until(lambda: subscriber._keeper.is_paused)
            before = subscriber._keeper.connection
            proxy.drop()
            await publisher.publish_all({"slow": n} for n in range(count // 2, count))
            await until(lambda: subscriber._keeper.connection not in {before, None})
            await until(lambda: subscriber.is_connected)
            await until(lambda: subscription.waiting == count or not _reads(subscriber))
            assert subscription.waiting < 3 * QUEUE_EVENTS_MAX
            events = await gather_events(subscription, count)
            assert [event.attributes["slow"] for event in events] == list(range(count))
        await proxy.stop()

    with patch.object(search, "HEARTBEAT_S", 0.1):  # It has to notice without reading.
        asyncio.run(run())


def _reads(client: Client) -> bool:
    connection = client._keeper.connection
    return connection is not None and (
        connection._transport is None or connection._transport.is_reading()
    )


# ---- States


@pytest.mark.spec("LV-2")
def test_what_a_subscription_of_the_same_name_had_taken_is_not_mixed_up(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """Closed and made anew, it is another one, also after a restart."""

    async def run() -> None:
        url, state = network.url("B1"), tmp_path / "state"
        async with connect(url, client="other") as publisher:
            async with connect(url, client="again", state=state) as client:
                first = client.subscribe("again >= 0", name="same")
                await settle(network, [client, publisher])
                await publisher.publish_all({"again": n} for n in range(5))
                await gather_events(first, 3)
                await until(lambda: first.waiting == 2)
                await first.close()
                assert len(first.take()) == 2  # What is here can be taken; nobody has to know.
                second = client.subscribe("again >= 0", name="same")
                await settle(network, [client, publisher])
                await publisher.publish_all({"again": n} for n in range(5, 9))
                assert _numbers(await gather_events(second, 2)) == [5, 6]
                await _crash(client)
            async with connect(url, client="again", state=state) as client:
                third = client.subscribe("again >= 0", name="same")
                assert _numbers(await gather_events(third, 3)) == [6, 7, 8]  # It was at 6.

    asyncio.run(run())


async def _crash(client: Client) -> None:
    """End like a program that is killed: nothing more is written or sent."""
    engine, log = client._driver.engine, client._driver.log
    assert engine is not None
    assert log is not None
    await until(lambda: not engine.held)
    engine._end()
    log._release()
    log._closed = True
    client._life.is_closed = True
    client._keeper._search.stop()
    if client._keeper.connection is not None:
        client._keeper.connection.abort()


def _numbers(events: list[object]) -> list[object]:
    return [event.attributes["again"] for event in events]  # type: ignore[attr-defined]


@pytest.mark.spec("LV-2")
def test_a_state_survives_what_an_application_did_wrong(
    network: LocalNetwork, tmp_path: Path
) -> None:
    """What was refused then is refused again when the state is read, and does no harm."""

    async def run() -> None:
        url, state = network.url("B1"), tmp_path / "state"
        async with connect(url, client="wrong", state=state) as client:
            offer = client.advertise("n > 1")
            await offer.close()
            with pytest.raises(LocalProtocolError):
                await offer.close()
            await client.publish(n=1)
            await _crash(client)
        async with connect(url, client="wrong", state=state) as client:
            await client.publish(n=2)

    asyncio.run(run())


@pytest.mark.spec("LV-2")
def test_a_state_can_be_used_again_after_no_broker_was_there(
    network: LocalNetwork, tmp_path: Path
) -> None:
    async def run() -> None:
        with pytest.raises(NotConnectedError):
            await connect("sterna://127.0.0.1:1", client="early", state=tmp_path, timeout=0.2)
        async with connect(network.url("B1"), client="early", state=tmp_path) as client:
            await client.publish(n=1)

    asyncio.run(run())


class Added(ClientComponent):
    """What a protocol of another package adds to a client: nothing."""

    name = "added"


ADDED = Protocol(name="added", client=Added)


@pytest.mark.spec("LV-2", "LV-10")
def test_a_state_that_cannot_be_read_to_its_end_stays_as_it_is(
    network: LocalNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that starts without a package that it needs has lost nothing with it."""
    url, state = network.url("B1"), tmp_path / "state"
    without, known = protocols._protocols, {**protocols._protocols, ADDED.name: ADDED}

    async def run() -> None:
        monkeypatch.setattr(protocols, "_protocols", known)
        async with connect(url, client="half", state=state) as client:
            await client.publish(half=0)
            await client.detach()
            settings = client._driver.node.settings
            more = replace(settings, protocols=(*settings.protocols, ADDED.name))
            client._driver.give(Configured(settings=more))
            for number in range(1, 6):
                client.publish(half=number)
            published = client.published
            await until(lambda: client._publications.is_settled)
            await _crash(client)

        monkeypatch.setattr(protocols, "_protocols", without)
        for _ in range(2):
            with pytest.raises(UnknownProtocolError, match="'added'"):
                await connect(url, client="half", state=state)

        monkeypatch.setattr(protocols, "_protocols", known)
        async with connect(url, client="half-s") as subscriber:
            wanted = subscriber.subscribe("half >= 0")
            await settle(network, [subscriber])
            async with connect(url, client="half", state=state) as client:
                assert client.published == published
                events = await gather_events(wanted, 5)
        assert [event.attributes["half"] for event in events] == [1, 2, 3, 4, 5]

    asyncio.run(run())


# ---- Programs of the same name


@pytest.mark.spec("LV-2", "LV-3")
@pytest.mark.parametrize("end", ["closed", "killed", "running"])
@pytest.mark.parametrize("way", ["B1 B1", "B1 B2", "B2 B1", "B2 B2", "B1 B2 B1", "B2 B1 B2 B2"])
def test_a_client_with_a_state_continues_after_a_program_of_its_name_without_one(
    network: LocalNetwork, tmp_path: Path, way: str, end: str
) -> None:
    """The program without a state goes this way; at the last broker, the one with a state is back.

    It is welcome at once, and the other one is told if it still runs. From then on all events
    arrive, once and in order. Of those before, some may be missing, and that is told.
    """
    *others, last = way.split()
    elsewhere = "B1" if last == "B2" else "B2"
    name = "-".join([end, *others, last])
    told: list[facts.Fact] = []

    async def run() -> None:
        async with connect(network.url("B1"), client=f"p-{name}") as publisher:

            async def publish(*numbers: int) -> None:
                await publisher.publish_all({"of": name, "again": number} for number in numbers)

            async with connect(network.url("B1"), client=name, state=tmp_path) as client:
                wanted = await _subscribe(client)
                await publish(1, 2)
                assert _numbers(await gather_events(wanted, 2)) == [1, 2]
            await publish(3)

            proxies = [await proxy_of(network, broker) for broker in others]
            other = await connect(proxies[0].url, client=name)
            wanted_there = await _subscribe(other)
            for proxy in proxies[1:]:
                await other.attach(proxy.url)
            await publish(4, 5)
            assert _numbers(await gather_events(wanted_there, 2)) == [4, 5]
            if end == "killed":
                for proxy in proxies:
                    proxy.is_shut = True
                    proxy.drop()
            if end != "running":
                await other.close(timeout=0 if end == "killed" else SETTLE_S)
            await publish(6)

            url = network.url(last)
            async with connect(url, client=name, state=tmp_path, facts=told.append) as client:
                wanted = await _subscribe(client)
                await publish(7, 8)
                if end == "running":
                    with pytest.raises(ClosedError, match="same name"):
                        await gather_events(wanted_there, 2)
                await client.detach()
                await publish(9)
                await client.attach(network.url(elsewhere))
                await publish(10)
                got: list[object] = []
                while 10 not in got:
                    got += _numbers(await gather_events(wanted, 1))
            assert got in ([*range(first, 11)] for first in (4, 5, 6, 7))
            assert [type(fact) for fact in told].count(facts.Forgotten) == 1
            for proxy in proxies:
                await proxy.stop()

    asyncio.run(run())


async def _subscribe(client: Client) -> Subscription:
    return await client.subscribe(f"of = '{client.name}'", name="all").ready(SETTLE_S)
