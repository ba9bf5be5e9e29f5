"""A client that introduces itself with many subscriptions: the broker is given them in parts first,
neighbours know them from then on, and the client gets nothing before it has come.
"""

import pytest

from sterna.core.handover.messages import Arrival
from sterna.core.inputs import Ahead, LinkDown, LinkGone
from sterna.core.link import Data
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.routing.options import Strategy
from sterna.model.filters import Filter
from sterna.net.broker.long_changes import LongChange, routes_in
from sterna.net.records import decode_record, encode_record
from sterna.wire.snapshots import encode_node
from tests.core.routing.test_parts import NARROW, WIDE, Standing

FILTERS = [*NARROW, WIDE, "m = 1"]
ROUTES = tuple(Route(f"c/{text}", Filter(text)) for text in FILTERS)
ARRIVAL = Arrival(visit=1, born=1, stay=0, received=0, subscriptions=ROUTES)

pytestmark = pytest.mark.spec("RT-1", "LV-6")


def expecting(standing: Standing, routes: tuple[Route, ...] = ROUTES) -> Standing:
    """The parts have come, in two inputs."""
    for part in (routes[:7], routes[7:]):
        change = SubscriptionChange(added=part)
        standing.give(Ahead(link="c", seq=1, change=change, introduces=True))
    return standing


@pytest.mark.parametrize("strategy", [Strategy.SIMPLE, Strategy.COVERING, Strategy.MERGING])
def test_parts_and_the_whole_are_the_same_as_the_whole(strategy: Strategy) -> None:
    in_parts, at_once = Standing(strategy), Standing(strategy)

    expecting(in_parts)
    told = in_parts.filters()
    assert in_parts.asks_for(*FILTERS)
    assert in_parts.publish(n=1) == []
    in_parts.changes.clear()
    for each in (in_parts, at_once):
        each.say("c", ARRIVAL)

    assert in_parts.changes == []  # Neighbours know everything.
    assert told == in_parts.filters()
    for each in (in_parts, at_once):
        for _ in each.turns():
            assert each.asks_for(*FILTERS)
    assert in_parts.filters() == at_once.filters() == {WIDE, "m = 1"} or strategy is Strategy.SIMPLE
    assert in_parts.publish(n=1) == at_once.publish(n=1) == ["c"]
    routes = [each.broker.router.subscriptions.routes("c") for each in (in_parts, at_once)]
    assert [{id_: r.filter for id_, r in known.items()} for known in routes] == [
        {route.id: route.filter for route in ROUTES}
    ] * 2


def test_a_client_that_does_not_come() -> None:
    """Its connection is lost in between: neighbours forget what was expected of it."""
    standing = Standing()
    standing.subscribe("d", NARROW[0])
    expecting(standing)

    standing.give(LinkDown(link="c"))
    for _ in standing.turns():
        assert standing.asks_for(NARROW[0])

    assert standing.filters() == {NARROW[0]}
    assert standing.publish(n=0) == ["d"]
    assert standing.publish(n=1) == []
    assert not standing.broker.router.subscriptions.expected


@pytest.mark.parametrize("lost", [LinkGone(link="c"), None])
def test_a_client_that_is_forgotten_or_new(lost: LinkGone | None) -> None:
    standing = expecting(Standing())
    if lost is not None:
        standing.give(lost)
    standing.connect("c", Peer.CLIENT, life=2)
    for _ in standing.turns():
        pass

    assert standing.filters() == set()
    assert not standing.broker.router.subscriptions.expected


def test_what_was_expected_and_does_not_come_ends() -> None:
    """Only some of it comes, and one under the same name with another filter."""
    standing = expecting(Standing())
    few = (*ROUTES[:3], Route(ROUTES[3].id, Filter("k = 1")))
    standing.say("c", Arrival(visit=1, born=1, stay=0, received=0, subscriptions=few))
    for _ in standing.turns():
        assert standing.asks_for(*FILTERS[:3], "k = 1")

    assert standing.filters() == {*FILTERS[:3], "k = 1"}
    assert standing.publish(n=3) == []
    assert standing.publish(k=1) == ["c"]


def test_what_the_client_had_before_stays() -> None:
    standing = Standing()
    standing.subscribe("c", *FILTERS[:5])
    standing.changes.clear()
    for part in (ROUTES[:5], ROUTES[5:8]):
        change = SubscriptionChange(added=part)
        standing.give(Ahead(link="c", seq=2, change=change, introduces=True))
        assert standing.publish(n=1) == ["c"]
    standing.say("c", Arrival(visit=1, born=1, stay=0, received=0, subscriptions=ROUTES[3:8]))

    assert standing.filters() == set(FILTERS[3:8])
    assert standing.publish(n=1) == []
    assert [standing.publish(n=n) for n in range(3, 8)] == [["c"]] * 5
    added = [route for change in standing.changes for route in change.added]
    assert len(added) == 3  # None of them was announced anew.


def test_a_neighbour_that_comes_in_the_middle_knows_them_too() -> None:
    standing = expecting(Standing())
    standing.connect("n2", Peer.BROKER)
    assert standing.asks_for(*FILTERS, link="n2")

    standing.give(LinkDown(link="c"))
    for _ in standing.turns():
        pass

    assert standing.filters("n2") == set()


def test_a_snapshot_in_the_middle() -> None:
    standing, restarted = (expecting(Standing()) for _ in range(2))
    restarted.restart()
    for each in (standing, restarted):
        each.say("c", ARRIVAL)
        each.say("c", Arrival(visit=1, born=1, stay=0, received=0, subscriptions=ROUTES[:2]))
        for _ in each.turns():
            pass

    assert restarted.filters() == standing.filters() == set(FILTERS[:2])
    assert encode_node(restarted.broker) == encode_node(standing.broker)


def test_parts_of_another_message_do_nothing() -> None:
    standing = Standing()
    change = SubscriptionChange(added=ROUTES)
    standing.give(Ahead(link="c", seq=2, change=change, introduces=True))

    assert standing.filters() == set()


def test_an_arrival_comes_in_parts() -> None:
    """All its subscriptions do, and a log keeps them."""
    frame = Data(7, 0, ARRIVAL)
    parts = LongChange(frame)
    added: list[Route] = []
    assert routes_in(frame) == len(ROUTES)
    while parts:
        given = parts.next("c")
        assert decode_record(encode_record(given, 3)) == (given, 3)
        assert (given.link, given.seq, given.introduces) == ("c", 7, True)
        assert isinstance(given.change, SubscriptionChange)
        added += given.change.added
        parts.took(0.0)
    assert tuple(added) == ROUTES
