"""A subscription can be awaited: then every broker that matters knows it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import sterna
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.facts import Fact
from sterna.core.inputs import Input, LinkUp
from sterna.core.names import Peer
from sterna.core.settings import Settings
from sterna.net.client import keeper
from sterna.net.local import LocalNetwork
from sterna.net.records import decode_record, encode_record
from sterna.wire.frames import FEATURES, SETTINGS, VERSION, Hello, Role, digest, known_settings
from tests.net.live import SETTLE_S, connect, network_in, until

pytestmark = pytest.mark.spec("LV-2")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """A line of three brokers: B2 - B1 - B3."""
    with network_in(tmp_path_factory.mktemp("ready"), 3) as network:
        network.wait_until_whole()
        yield network


def test_what_is_published_at_the_other_end_after_that_comes(network: LocalNetwork) -> None:
    async def run() -> None:
        async with connect(network.url("B2")) as ann, connect(network.url("B3")) as pat:
            for n in range(20):
                wanted = await ann.subscribe(f"first = {n}").ready(timeout=SETTLE_S)
                await pat.publish(first=n)
                assert (await wanted.get(timeout=SETTLE_S)).attributes["first"] == n
            several = [ann.subscribe(f"second = {n}") for n in range(20)]
            await asyncio.gather(*(each.ready(timeout=SETTLE_S) for each in several * 2))
            await pat.publish_all({"second": n} for n in range(20))
            for each in several:
                await each.get(timeout=SETTLE_S)

    asyncio.run(run())


def test_threads_can_wait_for_that_as_well(network: LocalNetwork) -> None:
    with (
        sterna.blocking.connect(network.url("B2")) as ann,
        sterna.blocking.connect(network.url("B3")) as pat,
    ):
        for n in range(20):
            wanted = ann.subscribe(f"third = {n}").ready(timeout=SETTLE_S)
            pat.publish(third=n).wait()
            assert wanted.get(timeout=SETTLE_S).attributes["third"] == n
        ended = ann.subscribe("ended = 1")
        ended.close()
        with pytest.raises(sterna.ClosedError, match="is closed"):
            ended.ready(timeout=SETTLE_S)


def test_a_broker_that_is_down_is_waited_for(tmp_path: Path) -> None:
    """The wait may end before; who waits again gets the answer when the broker is back."""

    async def run(network: LocalNetwork) -> None:
        async with connect(network.url("B2")) as ann:
            await ann.subscribe("before = 1").ready(timeout=SETTLE_S)
            network.kill("B1")
            wanted = ann.subscribe("x = 1")
            with pytest.raises(sterna.TimedOutError, match="not every broker that matters") as late:
                await wanted.ready(timeout=0.3)
            assert late.value.timeout == 0.3
            waiting = asyncio.create_task(wanted.ready(timeout=SETTLE_S))
            await asyncio.to_thread(network.restart, "B1")
            assert await waiting is wanted
            async with connect(network.url("B3")) as pat:
                await pat.publish(x=1)
                assert (await wanted.get(timeout=SETTLE_S)).attributes["x"] == 1

    with network_in(tmp_path, 3) as network:
        network.wait_until_whole()
        asyncio.run(run(network))

    with network_in(tmp_path / "blocking", 2) as network:
        network.wait_until_whole()
        with sterna.blocking.connect(network.url("B2")) as ann:
            network.kill("B1")
            with pytest.raises(sterna.TimedOutError):
                ann.subscribe("x = 1").ready(timeout=0.3)


def test_who_moves_meanwhile_gets_the_answer_elsewhere(network: LocalNetwork) -> None:
    async def run() -> None:
        async with connect(network.url("B2")) as ann, connect(network.url("B1")) as pat:
            await ann.detach()
            wanted = ann.subscribe("moving = 1")
            waiting = asyncio.create_task(wanted.ready(timeout=SETTLE_S))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await ann.attach(network.url("B3"))
            await waiting
            await pat.publish(moving=1)
            await wanted.get(timeout=SETTLE_S)

    asyncio.run(run())


def test_a_wait_ends_with_its_subscription_and_its_client(network: LocalNetwork) -> None:
    async def run() -> None:
        async with connect(network.url("B2"), client="short") as ann:
            await ann.detach()
            closed, open_ = ann.subscribe("ending = 1"), ann.subscribe("ending = 2")
            waits = [asyncio.create_task(each.ready()) for each in (closed, open_)]
            await asyncio.sleep(0.01)
            await closed.close()
            with pytest.raises(sterna.ClosedError, match="the subscription 'ending = 1' is closed"):
                await waits[0]
        with pytest.raises(sterna.ClosedError, match="short is closed"):
            await waits[1]
        with pytest.raises(sterna.ClosedError, match="short is closed"):
            await open_.ready()

    asyncio.run(run())


def test_after_a_restart_a_client_asks_again(network: LocalNetwork, tmp_path: Path) -> None:
    """Its question is part of its state, and so is the answer: a new wait asks anew."""

    async def run() -> None:
        known: list[Fact] = []

        def note(fact: Fact) -> None:
            if isinstance(fact, SubscriptionKnown):
                known.append(fact)

        where = network.url("B2")
        async with connect(where, client="again", state=tmp_path) as ann:
            await ann.detach()
            with pytest.raises(sterna.TimedOutError):
                await ann.subscribe("again = 1").ready(timeout=0.01)
        async with connect(where, client="again", state=tmp_path, facts=note) as ann:
            await until(lambda: len(known) == 1)
            await ann.subscribe("again = 1").ready(timeout=SETTLE_S)
            assert len(known) == 2

    asyncio.run(run())


@pytest.mark.spec("LV-9")
def test_an_older_broker_is_not_asked(
    network: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hang up on a message that it does not know; so the wait says what is wrong."""
    monkeypatch.setattr(keeper, "FEATURES", (SETTINGS,))  # As if the broker did not name it.

    async def run() -> None:
        async with connect(network.url("B2")) as ann:
            wanted = ann.subscribe("older = 1")
            with pytest.raises(sterna.UnconfirmedError, match="B2 cannot say whether") as error:
                await wanted.ready(timeout=SETTLE_S)
            assert error.value.nodes == ("B2",)
            assert ann.is_connected
            await ann.publish(older=1)
            await wanted.get(timeout=SETTLE_S)

    asyncio.run(run())


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("features", [(), (SETTINGS,), FEATURES], ids=["0.1", "older", "now"])
def test_a_client_can_ask_the_next_broker_whatever_the_first_one_can(
    features: tuple[str, ...],
) -> None:
    """Settings that look the same are not sent again, so the client takes part in any case."""
    told = Settings(protocols=("past",) if features else ())
    hello = Hello(
        versions=(VERSION, VERSION), role=Role.BROKER, node="B1", features=features, settings=told
    )
    assert known_settings(hello).protocols == ("past", "confirming", "terms")
    assert digest(known_settings(hello)) == digest(told)


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("features", [None, (), ("settings",), ("settings", "confirming")])
@pytest.mark.parametrize("advertises", [None, True, False])
def test_the_log_knows_what_a_neighbour_can_do(
    features: tuple[str, ...] | None, advertises: bool | None
) -> None:
    given: Input = LinkUp(link="B2", peer=Peer.BROKER, advertises=advertises, features=features)
    assert decode_record(encode_record(given, 7)) == (given, 7)
