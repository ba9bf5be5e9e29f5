"""Names that two have: a broker and a client, or two clients at different brokers."""

import asyncio
from pathlib import Path
from random import Random

import pytest

import sterna
from sterna.core.actions import Disconnect
from sterna.core.assembly import make_broker
from sterna.core.catalogue import LIVE
from sterna.core.facts import ClientForgotten
from sterna.core.handover.messages import Arrival, Departed, Located, Resubscribe
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import LinkDown, LinkGone, LinkUp, Received, TimePassed
from sterna.core.link import Data, Resume
from sterna.core.names import Peer
from sterna.core.settings import Settings
from tests.net.live import SETTLE_S, connect, gather_events, network_in, until
from tests.net.proxy import Proxy
from tests.net.test_hostile import arrival, attacker

REASON = "B2 is the name of a broker; choose another one"


@pytest.mark.spec("LV-1", "LV-6")
@pytest.mark.parametrize("is_away", [False, True], ids=["connected", "away"])
def test_a_broker_gets_in_although_a_client_has_its_name(tmp_path: Path, is_away: bool) -> None:
    """Whether the client is there or only remembered; what others publish goes both ways."""
    network = network_in(tmp_path, 2)

    async def come() -> None:
        """A client called like the other broker, which is not there yet."""
        if is_away:
            async with attacker(network) as peer:
                await peer.come_in("B2")
                await peer.say(arrival())
                await until(lambda: network.ask("B1", "status")["clients_here"] == 1)
            await until(lambda: network.ask("B1", "status")["clients_away"] == 1)
            await asyncio.to_thread(network.restart, "B2")
            return
        async with asyncio.timeout(SETTLE_S), connect(network.url("B1"), client="B2") as client:
            wanted = client.subscribe("n >= 0")
            await client.publish(n=0)
            await gather_events(wanted, 1)
            await asyncio.to_thread(network.restart, "B2")
            with pytest.raises(sterna.ClosedError, match=REASON):
                await anext(wanted)

    async def exchange() -> None:
        async with (
            connect(network.url("B1"), client="one") as one,
            connect(network.url("B2"), client="two") as two,
        ):
            for publisher, subscriber in ((one, two), (two, one)):
                wanted = subscriber.subscribe("m >= 0", name=publisher.name)
                await wanted.ready(timeout=10)
                await publisher.publish(m=1)
                await gather_events(wanted, 1)

    async def refused() -> None:
        with pytest.raises(sterna.ClosedError, match=REASON):
            async with connect(network.url("B1"), client="B2"):
                pass

    try:
        network.restart("B1")
        asyncio.run(come())
        network.wait_until_whole()
        asyncio.run(exchange())
        asyncio.run(refused())
        network.kill("B2")
        network.restart("B1")
        asyncio.run(refused())  # It is away, and known.
        network.restart("B2")
        network.wait_until_whole()
        asyncio.run(exchange())
    finally:
        network.stop()


@pytest.mark.spec("LV-1", "LV-6")
def test_a_connection_that_a_client_has_left_does_not_take_over_from_its_next_one(
    tmp_path: Path,
) -> None:
    """The way of the first one is longer: its handshake arrives when the second one works."""
    network = network_in(tmp_path, 1)

    async def run() -> None:
        rng = Random(1)  # noqa: S311 - reproducible, not secret.
        door = await Proxy(network.addresses["B1"], rng).start()
        async with asyncio.timeout(SETTLE_S), connect(door.url, client="late") as client:
            await client.detach()
            gate = door.gate = asyncio.Event()
            first = asyncio.create_task(client.attach())
            await until(lambda: door.waiting == 1)
            door.gate = None
            await client.detach()
            first.cancel()
            await client.attach()
            gate.set()
            await until(lambda: (door.waiting, door.count) == (0, 1))
            await client.publish(n=1)
        await door.stop()

    try:
        network.start()
        asyncio.run(run())
    finally:
        network.stop()


@pytest.mark.spec("PM-4")
def test_nothing_is_left_of_a_client_that_is_sent_away() -> None:
    """What is kept for a client must never be taken for something of the broker of its name."""
    settings = Settings(
        handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=1_000_000),
        protocols=LIVE,
    )
    broker = make_broker("B1", settings)
    hello = Resume(7, None, 0, True)
    broker.handle(LinkUp(link="B3", peer=Peer.BROKER), 1)
    broker.handle(Received(link="B3", frames=(hello,)), 2)
    broker.handle(LinkUp(link="B2", peer=Peer.CLIENT), 3)
    new = Data(1, 0, Arrival(visit=1, born=0, stay=0, received=0))
    broker.handle(Received(link="B2", frames=(hello, new)), 4)

    turn = broker.handle(LinkGone(link="B2"), 5)

    assert ClientForgotten(at="B1", time=5, client="B2") in turn.facts
    assert Departed(client="B2", visit=1, published=0) in broker.unconfirmed("B3")
    broker.handle(LinkUp(link="B2", peer=Peer.BROKER), 6)
    broker.handle(Received(link="B2", frames=(hello,)), 7)
    broker.handle(LinkDown(link="B2"), 8)
    for now in range(1, 10):
        broker.handle(TimePassed(), now * 1_000_000)
    assert broker.peers == {"B3": Peer.BROKER, "B2": Peer.BROKER}


@pytest.mark.spec("PM-4")
@pytest.mark.parametrize("protocol", [Handover.RELOCATION, Handover.NONE])
def test_a_request_for_a_client_does_not_end_the_link_to_a_broker_of_its_name(
    protocol: Handover,
) -> None:
    """The link is down, and comes back."""
    broker = make_broker("B1", Settings(handover=HandoverOptions(protocol=protocol)))
    for link in ("B2", "B3"):
        broker.handle(LinkUp(link=link, peer=Peer.BROKER), 1)
        broker.handle(Received(link=link, frames=(Resume(7, None, 0, True),)), 2)
    broker.handle(LinkDown(link="B2"), 3)

    asked = Resubscribe(client="B2", number=1, born=1, stay=1, received=0, filters=(), path=("B3",))
    broker.handle(Received(link="B3", frames=(Data(1, 0, asked),)), 4)

    assert broker.peers == {"B2": Peer.BROKER, "B3": Peer.BROKER}


@pytest.mark.spec("PM-4")
@pytest.mark.parametrize(
    ("stay", "is_told"), [(1, True), (0, False)], ids=["a later visit", "an earlier one"]
)
def test_only_the_connection_of_an_earlier_visit_is_told_that_it_was_taken_over(
    stay: int, is_told: bool
) -> None:
    """A client that is back before the request from where it was must be let in again."""
    broker = make_broker("B1", Settings(handover=HandoverOptions(protocol=Handover.RELOCATION)))
    hello = Resume(7, None, 0, True)
    broker.handle(LinkUp(link="B3", peer=Peer.BROKER), 1)
    broker.handle(Received(link="B3", frames=(hello,)), 2)
    broker.handle(LinkUp(link="C", peer=Peer.CLIENT), 3)
    new = Data(1, 0, Arrival(visit=1, born=0, stay=0, received=0))
    broker.handle(Received(link="C", frames=(hello, new)), 4)

    asked = Resubscribe(
        client="C", number=1, born=1, stay=stay, received=0, filters=(), path=("B3",)
    )
    turn = broker.handle(Received(link="B3", frames=(Data(1, 0, asked),)), 5)

    assert Disconnect("C", taken_over=is_told) in turn.actions


@pytest.mark.spec("PM-4")
def test_a_client_that_has_not_introduced_itself_yet_is_not_told() -> None:
    """The name was born elsewhere; who connects now may be that client, on a later visit."""
    broker = make_broker("B1", Settings(handover=HandoverOptions(protocol=Handover.RELOCATION)))
    broker.handle(LinkUp(link="B3", peer=Peer.BROKER), 1)
    broker.handle(Received(link="B3", frames=(Resume(7, None, 0, True),)), 2)
    broker.handle(LinkUp(link="C", peer=Peer.CLIENT), 3)
    new = Data(1, 0, Arrival(visit=1, born=0, stay=0, received=0))
    broker.handle(Received(link="C", frames=(Resume(7, None, 0, True), new)), 4)
    broker.handle(LinkUp(link="C", peer=Peer.CLIENT), 5)

    located = Data(1, 0, Located(client="C", born=2))
    turn = broker.handle(Received(link="B3", frames=(located,)), 6)

    assert Disconnect("C") in turn.actions
