"""Routing step by step: who is told what, and where events go."""

import pytest

from sterna.core.inputs import LinkGone, LinkUp, Received
from sterna.core.link import Resume
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.filters import Filter
from sterna.sim.script import Pause
from sterna.sim.topology import from_edges, line, star, tree
from tests.sim.overlay import Overlay

PEOPLE = {"ann": "B1", "bob": "B1", "pat": "B3"}


def overlay(strategy: Strategy, *, advertisements: bool = False) -> Overlay:
    return Overlay(
        line(3),
        PEOPLE,
        RoutingOptions(strategy=strategy, advertisements=advertisements),
        ClientOptions(advertisements=advertisements),
    )


@pytest.mark.spec("RT-1")
def test_simple_tells_every_subscription_and_identity_every_filter() -> None:
    for strategy, told in ((Strategy.SIMPLE, 2), (Strategy.IDENTITY, 1)):
        run = overlay(strategy).subscribe("ann", "x > 1").subscribe("bob", "x > 1").settle()

        assert run.table("B3") == {"B2": ["x > 1"] * told}


@pytest.mark.spec("RT-1", "RT-2")
def test_covering_hides_and_restores() -> None:
    run = overlay(Strategy.COVERING).subscribe("ann", "x > 1").subscribe("bob", "x > 5").settle()
    assert run.table("B3") == {"B2": ["x > 1"]}

    run.unsubscribe("ann").settle()

    assert run.table("B3") == {"B2": ["x > 5"]}
    assert run.publish("pat", x=3).publish("pat", x=7).settle().received("bob") == ["pat#2"]


@pytest.mark.spec("RT-1", "RT-2")
def test_merging_joins_and_takes_apart() -> None:
    run = overlay(Strategy.MERGING).subscribe("ann", "x = 1").subscribe("bob", "x = 2").settle()
    assert run.table("B3") == {"B2": ["x IN (1, 2)"]}

    run.unsubscribe("bob").settle()

    assert run.table("B3") == {"B2": ["x = 1"]}
    assert run.publish("pat", x=2).settle().sent("Events") == 1  # It went to B3 and no further.


@pytest.mark.spec("RT-1")
def test_flooding_needs_no_word_about_subscriptions() -> None:
    run = overlay(Strategy.FLOODING)
    before = run.sent("SubscriptionChange")

    run.subscribe("ann", "x > 1").settle()

    assert run.sent("SubscriptionChange") == before + 1  # From ann to her broker.
    assert run.publish("pat", x=0).settle().sent("Events", "B2 → B1") == 1
    assert run.received("ann") == []


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("strategy", [s for s in Strategy if s is not Strategy.FLOODING])
def test_a_late_advertisement_pulls_in_subscriptions_and_its_end_prunes_them(
    strategy: Strategy,
) -> None:
    run = overlay(strategy, advertisements=True).subscribe("ann", "x > 1").settle()
    assert run.table("B3") == {}

    run.advertise("pat", "x BETWEEN 0 AND 9").settle()
    assert run.table("B3") == {"B2": ["x > 1"]}
    assert run.publish("pat", x=2).settle().received("ann") == ["pat#1"]

    run.unadvertise("pat").settle()
    assert run.table("B3") == {}
    assert run.table("B1") == {"ann": ["x > 1"]}


@pytest.mark.spec("RT-3")
def test_subscriptions_do_not_go_where_nothing_overlapping_is_advertised() -> None:
    run = Overlay(
        star(3),
        {"ann": "B1", "pat": "B2", "tim": "B3"},
        RoutingOptions(advertisements=True),
        ClientOptions(advertisements=True),
    )

    run.advertise("pat", "x > 5").advertise("tim", "x < 0").subscribe("ann", "x > 7").settle()

    assert run.table("B2") == {"B1": ["x > 7"]}
    assert run.table("B3") == {}


@pytest.mark.spec("RT-4")
def test_in_a_hierarchy_events_always_go_up_and_down_only_to_interest() -> None:
    """Burcea, Fig. 1."""
    run = Overlay(
        tree(2, 3),
        {"pat": "B4", "ann": "B6"},
        RoutingOptions(hierarchical=True),
    )
    run.subscribe("ann", "x = 1").settle()
    assert run.table("B1") == {"B3": ["x = 1"]}  # Subscriptions go up only.
    assert "B6" not in run.table("B7")

    run.publish("pat", x=1).publish("pat", x=2).settle()

    assert run.received("ann") == ["pat#1"]
    events = {pipe: n["Events"] for pipe, n in run.outcome().by_link.items() if n["Events"]}
    up, down = ("pat → B4", "B4 → B2", "B2 → B1"), ("B1 → B3", "B3 → B6", "B6 → ann")
    assert events == dict.fromkeys(up, 2) | dict.fromkeys(down, 1)


@pytest.mark.spec("RT-4")
def test_in_a_hierarchy_with_advertisements_nothing_goes_up_needlessly() -> None:
    run = Overlay(
        tree(2, 3),
        {"pat": "B4", "ann": "B5", "eve": "B7"},
        RoutingOptions(hierarchical=True, advertisements=True),
        ClientOptions(advertisements=True),
    )
    run.advertise("pat", "x >= 0").subscribe("ann", "x = 1").subscribe("eve", "x = 2").settle()

    run.publish("pat", x=1).settle()

    assert run.received("ann") == ["pat#1"]
    assert run.sent("Events", "B2 → B1") == 0
    assert run.sent("AdvertisementChange", "B2 → B1") == 1  # Advertisements go up only.
    assert run.sent("AdvertisementChange", "B1 → B3") == 0
    assert run.publish("pat", x=2).settle().received("eve") == ["pat#2"]


@pytest.mark.spec("RT-1")
def test_clients_get_their_own_events_if_they_want_them() -> None:
    run = overlay(Strategy.COVERING).subscribe("ann", "x > 1").settle()

    assert run.publish("ann", x=2).publish("ann", x=0).settle().received("ann") == ["ann#1"]


@pytest.mark.spec("RT-1")
def test_an_event_that_several_subscriptions_match_comes_once() -> None:
    run = overlay(Strategy.SIMPLE).subscribe("ann", "x > 1", "a").subscribe("ann", "x > 2", "b")

    assert run.settle().publish("pat", x=3).settle().received("ann") == ["pat#1"]


@pytest.mark.spec("RT-5")
@pytest.mark.parametrize("strategy", Strategy)
def test_events_of_a_publisher_keep_their_order_in_batches_too(strategy: Strategy) -> None:
    """While a broker pauses, events gather and then go on as one batch."""
    run = overlay(strategy).subscribe("ann", "x >= 0").subscribe("bob", "x >= 5").settle()
    run.fault(Pause(broker="B2", us=50_000))
    for number in range(10):
        run.publish("pat", x=number).wait(100)

    run.settle()

    assert run.sent("Events", "B2 → B1") < 10  # It went on in batches.
    assert run.received("ann") == [f"pat#{n}" for n in range(1, 11)]
    assert run.received("bob") == [f"pat#{n}" for n in range(6, 11)]


def test_a_new_neighbour_is_told_what_is_there_already() -> None:
    run = overlay(Strategy.COVERING).subscribe("ann", "x > 1").settle()
    broker = run.broker("B2")

    broker.handle(LinkUp(link="B9", peer=Peer.BROKER), now=10**9)
    hello = Resume(incarnation=0, partner=None, acknowledged=0, answers=True)
    broker.handle(Received(link="B9", frames=(hello,)), now=10**9)

    assert broker.router.told("B9") == 1


def test_what_is_said_twice_counts_once_and_the_last_word_counts() -> None:
    """Duplicates are normal when clients move; another filter under the same name replaces it."""
    for strategy in (Strategy.SIMPLE, Strategy.COVERING):
        run = overlay(strategy).subscribe("ann", "x > 1").settle()
        router = run.broker("B1").router
        again = SubscriptionChange(added=(Route("ann/1", Filter("x > 1")),))

        router.on_subscription_change(again, "ann", 10**6)
        assert run.table("B1")["ann"] == ["x > 1"]
        assert run.settle().table("B2") == {"B1": ["x > 1"]}

        other = SubscriptionChange(added=(Route("ann/1", Filter("x > 9")),))
        router.on_subscription_change(other, "ann", 10**6)
        run.subscribe("bob", "y = 1").settle()  # The next turn sends what was to be told.
        assert run.table("B2") == {"B1": ["x > 9", "y = 1"]}


def test_the_end_of_an_unknown_route_is_no_harm() -> None:
    run = overlay(Strategy.COVERING).subscribe("ann", "x > 1").settle()

    run.broker("B1").router.on_subscription_change(SubscriptionChange(removed=("?",)), "ann", 10**6)

    assert run.table("B1") == {"ann": ["x > 1"]}


def test_a_link_that_is_gone_leaves_nothing_behind() -> None:
    run = Overlay(
        from_edges([("B1", "B2"), ("B2", "B3")]),
        {"ann": "B1", "pat": "B3"},
        RoutingOptions(advertisements=True),
        ClientOptions(advertisements=True),
    )
    run.advertise("pat", "x > 0").subscribe("ann", "x > 1").settle()
    broker = run.broker("B2")

    broker.handle(LinkGone(link="B1"), now=10**9)

    assert broker.router.subscriptions.links() == []
    assert "B1" not in broker.peers
    assert broker.router.told("B3") == 0
