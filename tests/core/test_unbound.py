"""Filters that depend on a place or a variable which nobody has filled in mean nothing to others.

Whoever gets one ignores it, whatever message it comes in, and nobody waits for an answer.
"""

from collections.abc import Callable

import pytest
from msgspec import structs

from sterna.core.actions import Transmit
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.catalogue import LIVE
from sterna.core.confirming.messages import Echo, EchoAsked
from sterna.core.handover.messages import Arrival, Fetch, Located, Resubscribe
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history.messages import PastAsked
from sterna.core.inputs import LinkUp, Received
from sterna.core.link import Data, Resume
from sterna.core.location.messages import MovingChange, MovingRoute
from sterna.core.location.options import PlacesOptions
from sterna.core.messages import (
    AdvertisementChange,
    Message,
    Route,
    SubscriptionChange,
)
from sterna.core.names import LinkId, Peer
from sterna.core.node import Node
from sterna.core.quenching import Interest
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import Settings
from sterna.model.filters import Filter
from sterna.wire.snapshots import encode_node, restore_node

UNBOUND = [Filter("room IN myloc"), Filter("price < $budget")]
BOUND = Filter("n > 3")
SETTINGS = Settings(
    routing=RoutingOptions(advertisements=True),
    handover=HandoverOptions(protocol=Handover.RELOCATION),
    places=PlacesOptions(edges=(("r1", "r2"),)),
    protocols=LIVE,
)


def resubscribe(*filters: Filter) -> Resubscribe:
    return Resubscribe(
        client="ann", number=1, born=1, stay=1, received=0, filters=filters, path=("B2",)
    )


def fetch(*filters: Filter) -> Fetch:
    return Fetch(**structs.asdict(resubscribe(*filters)), junction="B2")


def route(filter_: Filter) -> Route:
    return Route("1", filter_)


def moving(filter_: Filter) -> MovingRoute:
    return MovingRoute(id="1", filter=filter_, at="nowhere", dwell_us=None, delay_us=None)


MESSAGES: dict[str, tuple[LinkId, Callable[[Filter], Message]]] = {
    "Fetch": ("B2", lambda filter_: fetch(filter_, BOUND)),
    "Resubscribe": ("B2", lambda filter_: resubscribe(filter_, BOUND)),
    "EchoAsked": ("B2", lambda filter_: EchoAsked(number=1, filter=filter_)),
    "SubscriptionChange": ("B2", lambda filter_: SubscriptionChange(added=(route(filter_),))),
    "AdvertisementChange": ("B2", lambda filter_: AdvertisementChange(added=(route(filter_),))),
    "MovingChange": ("B2", lambda filter_: MovingChange(added=(moving(filter_),))),
    "PastAsked": ("c", lambda filter_: PastAsked(route=route(filter_))),
    "Arrival": (
        "c",
        lambda filter_: Arrival(
            visit=2, born=1, stay=1, received=0,
            subscriptions=(route(filter_),),
            advertisements=(route(filter_),),
            others=(MovingChange(added=(moving(filter_),)),),
        ),
    ),
}  # fmt: skip


class Standing:
    """A broker with two neighbours and a client. A client that was behind B3 is known here."""

    def __init__(self) -> None:
        self.broker = make_broker("B1", SETTINGS, incarnation=1)
        self._sent = {"B2": 0, "B3": 0, "c": 0}
        self._now = 0
        for link in self._sent:
            peer = Peer.CLIENT if link == "c" else Peer.BROKER
            self.broker.handle(LinkUp(link=link, peer=peer, advertises=True), self._tick())
            self.broker.handle(
                Received(link=link, frames=(Resume(7, None, 0, True),)), self._tick()
            )
        self.say("B3", Located(client="ann", born=1))
        for link in ("B2", "B3", "c"):
            self.say(link, AdvertisementChange(added=(Route("0", Filter("room = 'r1' OR n > 0")),)))

    def say(self, link: LinkId, message: Message) -> list[tuple[LinkId, Message]]:
        """Have a peer say something; what the broker says because of it."""
        self._sent[link] += 1
        frame = Data(self._sent[link], 0, message)
        return said(self.broker, Received(link=link, frames=(frame,)), self._tick())

    def _tick(self) -> int:
        self._now += 1
        return self._now


def said(node: Node, given: Received, now: int) -> list[tuple[LinkId, Message]]:
    return [
        (action.link, action.frame.message)
        for action in node.handle(given, now).actions
        if isinstance(action, Transmit) and isinstance(action.frame, Data)
    ]


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("filter_", UNBOUND, ids=str)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_broker_ignores_it(name: str, filter_: Filter) -> None:
    """It does not stumble, passes nothing of it on, and goes on, also from a snapshot."""
    standing = Standing()
    link, make = MESSAGES[name]
    for _, message in standing.say(link, make(filter_)):
        if isinstance(message, Fetch | Resubscribe):
            assert message.filters == (BOUND,)
        else:
            assert str(filter_) not in str(message) or isinstance(message, MovingChange)
    standing.broker.handle(LinkUp(link="B3", peer=Peer.BROKER, advertises=True), 100)
    restored: Broker = restore_node(encode_node(standing.broker), make_broker("B1", SETTINGS))
    assert encode_node(restored) == encode_node(standing.broker)


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("filter_", UNBOUND, ids=str)
def test_whoever_asks_about_it_gets_an_answer(filter_: Filter) -> None:
    """The question is not passed on, and not kept."""
    standing = Standing()

    assert standing.say("B2", EchoAsked(number=5, filter=filter_)) == [("B2", Echo(number=5))]


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("filter_", UNBOUND, ids=str)
def test_a_publisher_that_discards_what_nobody_wants_ignores_it(filter_: Filter) -> None:
    interest = Interest()

    interest.change(SubscriptionChange(added=(route(filter_), Route("2", BOUND))))

    assert [each.id for each in interest.keep().known] == ["2"]
