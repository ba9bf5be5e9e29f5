"""A message with many subscriptions is given to a broker in parts first, and then as a whole."""

import pytest

from sterna.core.actions import Transmit
from sterna.core.broker import Broker
from sterna.core.inputs import Ahead, LinkUp, Received
from sterna.core.link import RELIABLE, Data, Resume
from sterna.core.messages import AdvertisementChange, Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.routing.offers import IMPLICIT
from sterna.core.routing.options import RoutingOptions
from sterna.model.filters import Filter
from sterna.net.records import decode_record, encode_record

ROUTES = tuple(Route(f"c/{number}", Filter(f"n = {number}")) for number in range(4))
WHOLE = SubscriptionChange(added=ROUTES, removed=("c/0", "c/none"))
PARTS = [
    SubscriptionChange(added=ROUTES[:3]),
    SubscriptionChange(added=ROUTES[3:], removed=("c/0",)),
    SubscriptionChange(removed=("c/none",)),
]

pytestmark = pytest.mark.spec("RT-1", "LV-6")


def broker(*, advertisements: bool = False) -> Broker:
    """A broker with a neighbour, and a client that does not know of advertisements."""
    made = Broker("B1", RoutingOptions(advertisements=advertisements), timing=RELIABLE)
    for link, peer, advertises in (("c", Peer.CLIENT, False), ("n", Peer.BROKER, None)):
        made.handle(LinkUp(link=link, peer=peer, advertises=advertises), 0)
        made.handle(Received(link=link, frames=(Resume(1, None, 0, True),)), 0)
    return made


def announced(
    broker: Broker, given: Ahead | Received
) -> list[SubscriptionChange | AdvertisementChange]:
    """What the neighbour is told because of an input."""
    frames = [
        each.frame
        for each in broker.handle(given, 1).actions
        if isinstance(each, Transmit) and each.link == "n"
    ]
    messages = [frame.message for frame in frames if isinstance(frame, Data)]
    return [m for m in messages if isinstance(m, SubscriptionChange | AdvertisementChange)]


def received(seq: int, change: SubscriptionChange | AdvertisementChange) -> Received:
    return Received(link="c", frames=(Data(seq, 0, change),))


def routes(broker: Broker) -> dict[str, Filter]:
    return {id_: route.filter for id_, route in broker.router.subscriptions.routes("c").items()}


def test_parts_and_the_whole_are_the_same_as_the_whole() -> None:
    """Neighbours are told of each part; then the whole says nothing new, and is confirmed."""
    in_parts, at_once = broker(), broker()

    told = [announced(in_parts, Ahead(link="c", seq=1, change=part)) for part in PARTS]
    assert announced(in_parts, received(1, WHOLE)) == []
    announced(at_once, received(1, WHOLE))

    assert [len(each) for each in told] == [1, 1, 0]
    assert routes(in_parts) == routes(at_once) == {r.id: r.filter for r in ROUTES[1:]}
    wanted = set(at_once.router.told_filters("n").values())
    assert set(in_parts.router.told_filters("n").values()) == wanted


@pytest.mark.spec("RT-3")
def test_advertisements_come_in_parts_too() -> None:
    """The client may publish anything until all that it advertises is known."""
    in_parts, at_once = (broker(advertisements=True) for _ in range(2))
    whole = AdvertisementChange(added=WHOLE.added, removed=WHOLE.removed)
    offers: set[Filter] = set()

    for part in PARTS:
        change = AdvertisementChange(added=part.added, removed=part.removed)
        for told in announced(in_parts, Ahead(link="c", seq=1, change=change)):
            offers |= {route.filter for route in told.added}
            assert not told.removed
        assert IMPLICIT in in_parts.router.advertisements["c"]
    told_last = announced(in_parts, received(1, whole))
    announced(at_once, received(1, whole))

    expected = {route.id: route.filter for route in ROUTES[1:]}
    for each in (in_parts, at_once):
        advertised = each.router.advertisements["c"]
        assert {id_: route.filter for id_, route in advertised.items()} == expected
    assert offers | {route.filter for told in told_last for route in told.added} == {
        route.filter for route in ROUTES[1:]
    }


def test_parts_of_a_message_that_was_taken_before_do_nothing() -> None:
    """A peer may send a message twice, when it has ended the subscription already."""
    node = broker()
    node.handle(received(1, WHOLE), 1)
    node.handle(received(2, SubscriptionChange(removed=("c/1",))), 1)

    for seq in (1, 2, 4):
        assert announced(node, Ahead(link="c", seq=seq, change=PARTS[0])) == []

    assert "c/1" not in routes(node)


def test_parts_of_an_unknown_link_do_nothing() -> None:
    assert announced(broker(), Ahead(link="x", seq=1, change=PARTS[0])) == []


@pytest.mark.parametrize("change", [PARTS[1], AdvertisementChange(added=ROUTES[3:])])
def test_a_log_keeps_parts(change: SubscriptionChange | AdvertisementChange) -> None:
    given = Ahead(link="c", seq=7, change=change)

    assert decode_record(encode_record(given, 3)) == (given, 3)
