"""What a neighbour, or a publisher, is told for the first time is prepared a little at a time."""

import pytest

from sterna.core.inputs import LinkDown, LinkGone
from sterna.core.messages import AdvertisementChange, InterestAsked, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.routing.announcements import FEW_TOLD, ROUTES_MAX
from sterna.core.routing.neighbours import STEPS_MAX
from sterna.core.routing.options import Strategy
from sterna.wire.snapshots import encode_node
from tests.core.routing.test_parts import MANY, NARROW, WIDE, Standing, routes
from tests.core.routing.test_preparing import STRATEGIES, prepared

pytestmark = pytest.mark.spec("RT-2", "LV-6")

# ---- A neighbour that comes


def crowded(strategy: Strategy = Strategy.COVERING, *, advertisements: bool = False) -> Standing:
    standing = Standing(strategy, advertisements=advertisements)
    standing.subscribe("d", *NARROW)
    standing.advertise("d", *NARROW)
    return standing


@pytest.mark.parametrize("advertisements", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_new_neighbour_is_told_is_prepared(strategy: Strategy, advertisements: bool) -> None:
    in_parts, at_once = (crowded(strategy, advertisements=advertisements) for _ in range(2))
    for each in (in_parts, at_once):
        each.come("m", Peer.BROKER, advertises=False)
        assert each.broker.router.takes_long(None, "m")
    assert prepared(in_parts, "m") >= MANY // STEPS_MAX
    assert not in_parts.told["m"]
    for each in (in_parts, at_once):
        each.greet("m")
        assert each.asks_for(*NARROW, link="m")
        for _ in each.turns():
            assert each.asks_for(*NARROW, link="m")

    assert in_parts.filters("m") == at_once.filters("m")
    assert in_parts.offered("m") == at_once.offered("m")
    assert in_parts.offered("m") or not advertisements


@pytest.mark.parametrize("strategy", [Strategy.SIMPLE, Strategy.COVERING])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_what_comes_and_goes_before_the_link_stands(strategy: Strategy, turns: int) -> None:
    standing = crowded(strategy, advertisements=True)
    standing.come("m", Peer.BROKER, advertises=False)
    for _, _ in zip(range(turns), standing.turns(), strict=False):
        pass
    standing.unsubscribe("d", NARROW[0], NARROW[-1])
    standing.subscribe("c", "m = 1")
    standing.say("d", AdvertisementChange(removed=(f"d/{NARROW[0]}", f"d/{NARROW[-1]}")))
    standing.advertise("c", "m = 1")
    standing.greet("m")

    assert standing.asks_for(*NARROW[1:-1], "m = 1", link="m")
    for _ in standing.turns():
        pass
    assert standing.filters("m") == standing.offered("m") == {*NARROW[1:-1], "m = 1"}


def test_a_client_that_is_forgotten_before_the_link_stands() -> None:
    standing = crowded(advertisements=True)
    standing.subscribe("c", NARROW[0])
    standing.come("m", Peer.BROKER, advertises=False)
    next(standing.turns())
    standing.give(LinkGone(link="d"))
    standing.greet("m")
    for _ in standing.turns():
        assert standing.asks_for(NARROW[0], link="m")

    assert standing.filters("m") == {NARROW[0]}
    assert not standing.offered("m")


@pytest.mark.parametrize("after", range(4))
def test_a_snapshot_before_the_link_stands(after: int) -> None:
    pair = [crowded(advertisements=True) for _ in range(2)]
    for each in pair:
        each.come("m", Peer.BROKER, advertises=False)
        for _, _ in zip(range(after), each.turns(), strict=False):
            pass
    pair[1].restart()
    for each in pair:
        each.subscribe("c", "m = 1")
        prepared(each, "m")
        each.greet("m")
        for _ in each.turns():
            pass

    assert pair[0].sent == pair[1].sent
    assert encode_node(pair[0].broker) == encode_node(pair[1].broker)
    assert pair[0].filters("m") == {*NARROW, "m = 1"}


def test_a_snapshot_before_a_link_stands_that_is_told_everything() -> None:
    """The names of later routes are those that the broker gives without the snapshot, too."""
    pair = [Standing(Strategy.FLOODING) for _ in range(2)]
    for each in pair:
        each.subscribe("d", *NARROW[: MANY + 1])
        for _ in each.turns():
            pass
        each.come("m", Peer.BROKER)
    pair[1].restart()
    assert encode_node(pair[0].broker) == encode_node(pair[1].broker)
    for each in pair:
        each.subscribe("c", "m = 1")
        each.greet("m")

    assert pair[0].sent == pair[1].sent


@pytest.mark.parametrize("strategy", [Strategy.COVERING, Strategy.MERGING])
def test_who_subscribes_to_what_another_was_expected_to_is_known_at_once(
    strategy: Strategy,
) -> None:
    """Many neighbours hear of what is expected later; but somebody relies on it now."""
    standing = Standing(strategy)
    for number in range(FEW_TOLD):
        standing.connect(f"n{number}", Peer.BROKER)
    for _ in standing.turns():
        pass
    standing.ahead("c", SubscriptionChange(added=routes("c", *NARROW)), introduces=True)
    last = NARROW[-1]
    assert not standing.asks_for(last)

    standing.subscribe("d", last)

    assert all(standing.asks_for(last, link=link) for link in ("n", "n0", f"n{FEW_TOLD - 1}"))


def test_a_link_that_never_stands() -> None:
    standing = crowded()
    before = encode_node(standing.broker)
    standing.come("m", Peer.BROKER)
    next(standing.turns())
    standing.give(LinkDown(link="m"))
    standing.subscribe("c", "m = 1")
    standing.unsubscribe("c", "m = 1")

    assert standing.broker.router.is_settled
    assert len(encode_node(standing.broker)) < 1.1 * len(before)


def test_much_is_told_in_several_messages_and_what_ends_comes_last() -> None:
    standing = Standing(Strategy.SIMPLE)
    filters = [f"n = {number}" for number in range(2 * ROUTES_MAX + 1)]
    standing.subscribe("d", *filters)

    assert [len(each.added) for each in standing.changes] == [ROUTES_MAX, ROUTES_MAX, 1]
    assert standing.filters() == set(filters)


# ---- A publisher that discards what nobody wants


def test_what_the_first_publisher_is_told_is_prepared() -> None:
    in_parts, at_once = crowded(), crowded()
    question = InterestAsked(number=1)
    for each in (in_parts, at_once):
        each.connect("e", Peer.CLIENT)
        assert each.broker.router.takes_long(question, "e")
    in_parts.ahead("e", question)
    assert prepared(in_parts, "e") >= MANY // STEPS_MAX
    in_parts.unsubscribe("d", NARROW[0])
    at_once.unsubscribe("d", NARROW[0])
    in_parts.restart()
    assert not in_parts.told["e"]
    for each in (in_parts, at_once):
        each.say("e", question)
        assert each.asks_for(*NARROW[1:], link="e")
        for _ in each.turns():
            assert each.asks_for(*NARROW[1:], link="e")
        assert not each.asks_for(NARROW[0], link="e")
        assert not each.broker.router.takes_long(question, "e")


# ---- Many neighbours


@pytest.mark.parametrize("strategy", [Strategy.SIMPLE, Strategy.COVERING, Strategy.MERGING])
def test_many_neighbours_hear_of_many_subscriptions_in_several_turns(strategy: Strategy) -> None:
    """None of them knows too little once the message is handled, however early it comes."""
    links = ["n", *(f"n{number}" for number in range(2 * FEW_TOLD))]
    in_parts, early = Standing(strategy), Standing(strategy)
    change = SubscriptionChange(added=routes("c", *NARROW[:40]))
    for each in (in_parts, early):
        for link in links[1:]:
            each.connect(link, Peer.BROKER)
        assert each.broker.router.takes_long(change, "c")
        each.ahead("c", change)
        each.restart()
    prepared(in_parts, "c")
    for each in (in_parts, early):
        each.say("c", change)
        for link in links:
            assert each.asks_for(*NARROW[:40], link=link)
        for _ in each.turns():
            pass
        assert each.filters("n") == each.filters(links[-1])
    if strategy is not Strategy.MERGING:
        assert in_parts.filters() == early.filters() == set(NARROW[:40])


def test_a_filter_that_covers_many_hides_them_in_several_turns() -> None:
    standing, restarted = Standing(), Standing()
    for each in (standing, restarted):
        each.subscribe("d", *NARROW)
        each.changes.clear()
        each.subscribe("c", WIDE)
        assert each.asks_for(WIDE)
        assert not each.broker.router.is_settled
    restarted.restart()
    for each in (standing, restarted):
        each.subscribe("c", "m = 1")
        each.unsubscribe("d", NARROW[3])
        for _ in each.turns():
            assert each.asks_for(WIDE, "m = 1")
        assert each.filters() == {WIDE, "m = 1"}
    assert encode_node(restarted.broker) == encode_node(standing.broker)


def test_what_hides_many_may_end_before_all_are_hidden() -> None:
    standing = Standing()
    standing.subscribe("d", *NARROW)
    standing.subscribe("c", WIDE)
    standing.unsubscribe("c", WIDE)
    for _ in standing.turns():
        assert standing.asks_for(*NARROW)

    assert standing.filters() == set(NARROW)
