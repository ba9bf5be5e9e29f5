"""Advertisements that many have waited for, or that come and go with many others: what they change
is told a little at a time, and all of it in the end.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.confirming.messages import ConfirmationAsked, Echo, EchoAsked
from sterna.core.inputs import LinkDown, LinkGone, TimePassed
from sterna.core.messages import AdvertisementChange, Route
from sterna.core.names import LinkId, Peer, RouteId
from sterna.core.routing.advertisements import FEW, AdvertisementGate
from sterna.core.routing.neighbours import STEPS_MAX
from sterna.core.routing.options import Strategy
from sterna.core.routing.stages import Chain, Difference, Effort
from sterna.core.routing.unions import UnionDifference
from sterna.model.filters import Filter
from sterna.wire.snapshots import encode_node
from tests.core.routing.test_parts import MANY, NARROW, WIDE, Standing, routes
from tests.core.routing.test_strategies import conjunctions
from tests.scale import examples, soon

pytestmark = pytest.mark.spec("RT-2", "LV-6")

STRATEGIES = [Strategy.SIMPLE, Strategy.COVERING, Strategy.MERGING]


def prepared(standing: Standing, link: LinkId) -> int:
    """Have the broker prepare all for the next message of a link; return how many turns it took."""
    turns = 0
    while standing.broker.router.is_preparing(link):
        standing.give(TimePassed(), standing.broker.deadline)
        turns += 1
    return turns


def wide_offer(standing: Standing) -> AdvertisementChange:
    """The neighbour is about to advertise what many subscriptions have waited for."""
    change = AdvertisementChange(added=routes("n", WIDE))
    assert standing.broker.router.takes_long(change, "n")
    standing.ahead("n", change)
    return change


def waiting(strategy: Strategy = Strategy.COVERING) -> Standing:
    """`d` has many subscriptions, and nobody advertises what they want."""
    standing = Standing(strategy, advertisements=True)
    standing.subscribe("d", *NARROW)
    assert not standing.filters()
    return standing


# ---- An advertisement that many have waited for


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_waited_for_an_advertisement_is_told_before_it_has_arrived(strategy: Strategy) -> None:
    in_parts, at_once = waiting(strategy), waiting(strategy)

    change = wide_offer(in_parts)
    assert prepared(in_parts, "n") >= MANY // STEPS_MAX // 2
    assert in_parts.asks_for(*NARROW)
    in_parts.changes.clear()
    for each in (in_parts, at_once):
        each.say("n", change)

    assert in_parts.changes == []
    assert in_parts.filters() == at_once.filters()


def test_only_a_few_are_told_in_a_turn() -> None:
    standing = waiting()
    wide_offer(standing)
    prepared(standing, "n")

    assert max(len(each.added) for each in standing.changes) <= 2 * STEPS_MAX


@pytest.mark.spec("RT-3")
def test_few_that_wait_need_no_preparation() -> None:
    standing = Standing(advertisements=True)
    standing.subscribe("d", *NARROW[:FEW])
    change = AdvertisementChange(added=routes("n", WIDE))
    assert not standing.broker.router.takes_long(change, "n")
    standing.say("n", change)

    assert standing.broker.router.is_settled
    assert standing.filters() == set(NARROW[:FEW])


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_an_advertisement_that_arrives_early_brings_all_at_once(turns: int) -> None:
    standing = waiting()
    change = wide_offer(standing)
    for _, _ in zip(range(turns), standing.turns(), strict=False):
        pass
    standing.say("n", change)

    assert standing.filters() == set(NARROW)


@pytest.mark.spec("RT-3")
def test_what_comes_and_goes_while_an_advertisement_is_expected() -> None:
    standing = waiting()
    change = wide_offer(standing)
    turns = standing.turns()
    next(turns)
    standing.unsubscribe("d", NARROW[0], NARROW[-1])
    standing.subscribe("c", "n = 1 AND m = 2", "m = 3", "k = 3 AND n < 0")
    assert standing.asks_for("n = 1 AND m = 2", "m = 3")
    prepared(standing, "n")
    standing.say("n", change)

    assert standing.filters() == {*NARROW[1:-1], "m = 3"}  # The algebra hides the first.


def test_a_confirmation_does_not_overtake_what_is_being_prepared() -> None:
    """Whoever asks while an advertisement is expected is answered as if it had not come yet, and
    whoever waits for an answer then waits for that neighbour, too.
    """
    standing = waiting()
    standing.connect("m", Peer.BROKER)
    standing.advertise("m", WIDE)
    for _ in standing.turns():
        pass
    change = wide_offer(standing)
    standing.sent.clear()
    standing.say("d", ConfirmationAsked(subscription=f"d/{NARROW[-1]}", number=1))

    asked = [link for link, each in standing.sent if isinstance(each, EchoAsked)]
    assert asked == ["m"]
    prepared(standing, "n")
    standing.say("n", change)

    kinds = [type(each) for link, each in standing.sent if link == "n"]
    assert kinds[-1] is EchoAsked
    assert standing.asks_for(NARROW[-1])
    (question,) = [e for link, e in standing.sent if link == "n" and isinstance(e, EchoAsked)]
    standing.sent.clear()
    standing.say("m", Echo(number=question.number))
    assert not standing.sent
    standing.say("n", Echo(number=question.number))
    assert [link for link, _ in standing.sent] == ["d"]


@pytest.mark.parametrize("after", range(4))
def test_a_snapshot_while_an_advertisement_is_expected(after: int) -> None:
    standing, restarted = waiting(), waiting()
    change = wide_offer(standing)
    wide_offer(restarted)
    turns, others = standing.turns(), restarted.turns()
    for _ in range(after):
        next(turns)
        next(others)
    restarted.restart()
    for each in (standing, restarted):
        prepared(each, "n")
        each.say("n", change)
        each.say("n", AdvertisementChange(removed=(f"n/{WIDE}",)))
        each.restart()
        for _ in each.turns():
            pass

    assert restarted.changes == standing.changes
    assert encode_node(restarted.broker) == encode_node(standing.broker)
    assert not standing.filters()


@pytest.mark.spec("RT-3")
def test_a_neighbour_that_is_lost_while_its_advertisement_is_expected() -> None:
    """The message comes again when it is back; until then, nothing is told."""
    standing = waiting()
    change = wide_offer(standing)
    standing.give(LinkDown(link="n"))
    for _ in standing.turns():
        pass
    standing.connect("n", Peer.BROKER, life=2)
    standing.say("n", change)

    assert standing.filters() == set(NARROW)


@pytest.mark.spec("RT-3")
def test_a_neighbour_that_is_gone_while_its_advertisement_is_expected() -> None:
    standing = waiting()
    wide_offer(standing)
    standing.give(LinkGone(link="n"))
    for _ in standing.turns():
        pass

    assert not standing.broker.router.advertisements


# ---- Its end


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_advertisement_that_has_admitted_many_ends(strategy: Strategy) -> None:
    """What another one admits stays, all the time."""
    standing = waiting(strategy)
    standing.advertise("n", WIDE, "n < 10")
    standing.changes.clear()

    standing.say("n", AdvertisementChange(removed=(f"n/{WIDE}",)))

    turns = 0
    for _ in standing.turns():
        turns += 1
        assert standing.asks_for(*NARROW[:10])
    assert turns >= MANY // STEPS_MAX - 1
    assert standing.asks_for(*NARROW[:10])
    assert not any(standing.asks_for(each) for each in NARROW[32:])
    assert standing.broker.router.is_settled


@pytest.mark.spec("RT-3")
def test_what_ends_or_comes_while_an_advertisement_ends() -> None:
    standing = waiting()
    standing.advertise("n", WIDE)
    standing.say("n", AdvertisementChange(removed=(f"n/{WIDE}",)))
    standing.unsubscribe("d", *NARROW[:5], *NARROW[-5:])
    standing.advertise("n", "n > 100")
    for _ in standing.turns():
        assert standing.asks_for(*NARROW[101:-5])

    assert standing.filters() == set(NARROW[101:-5])


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("strategy", [Strategy.SIMPLE, Strategy.COVERING])
def test_many_advertisements_end(strategy: Strategy, gone: bool) -> None:
    standing = Standing(strategy, advertisements=True)
    standing.advertise("c", *NARROW)
    standing.advertise("d", NARROW[0])
    assert standing.offered() == set(NARROW)
    standing.sent.clear()

    if gone:
        standing.give(LinkGone(link="c"))
    else:
        standing.say("c", AdvertisementChange(removed=tuple(f"c/{text}" for text in NARROW)))

    assert "c" not in standing.broker.router.advertisements
    assert not standing.broker.router.is_settled
    for _ in standing.turns():
        assert NARROW[0] in standing.offered()
    assert standing.offered() == {NARROW[0]}
    changes = [each for _, each in standing.sent if isinstance(each, AdvertisementChange)]
    assert max(len(each.removed) for each in changes) <= STEPS_MAX


@pytest.mark.spec("RT-3")
def test_many_advertisements_of_a_neighbour_end() -> None:
    """It is told no longer what only these have admitted."""
    standing = waiting()
    standing.advertise("n", *NARROW)
    assert standing.filters() == set(NARROW)
    standing.say("n", AdvertisementChange(removed=tuple(f"n/{text}" for text in NARROW[1:])))
    restarted = encode_node(standing.broker)
    standing.restart()
    assert encode_node(standing.broker) == restarted
    for _ in standing.turns():
        assert standing.asks_for(NARROW[0])

    assert standing.filters() == {NARROW[0]}


@pytest.mark.spec("RT-3")
def test_a_client_that_is_back_while_its_advertisements_end() -> None:
    standing = Standing(advertisements=True)
    standing.advertise("c", *NARROW)
    standing.give(LinkGone(link="c"))
    standing.connect("c", Peer.CLIENT, life=2)
    standing.advertise("c", NARROW[-1])
    standing.connect("m", Peer.BROKER)
    for _ in standing.turns():
        assert NARROW[-1] in standing.offered()

    assert standing.offered() == standing.offered("m") == {NARROW[-1]}


def test_advertisements_that_end_at_once_are_no_longer_counted_on() -> None:
    standing = Standing(advertisements=True)
    texts = [f"n = {number}" for number in range(MANY + 8)]
    standing.advertise("n", *texts)
    for _ in standing.turns():
        pass

    standing.say("n", AdvertisementChange(removed=tuple(f"n/{text}" for text in texts)))
    for _ in standing.turns():
        pass

    assert not standing.broker.router._neighbours.unadvertised


# ---- Clients that introduce themselves with many advertisements


@pytest.mark.spec("RT-3")
def test_advertisements_of_a_client_that_comes() -> None:
    """Neighbours know them before it has come; those that do not come leave again."""
    standing = Standing(advertisements=True)
    for part in (NARROW[:40], NARROW[40:]):
        change = AdvertisementChange(added=routes("c", *part))
        standing.ahead("c", change, introduces=True)
    assert standing.offered() == set(NARROW)
    standing.restart()

    standing.say("c", AdvertisementChange(added=routes("c", *NARROW[:3])))
    for _ in standing.turns():
        assert set(NARROW[:3]) <= standing.offered()

    assert standing.offered() == set(NARROW[:3])


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("lost", [LinkDown(link="c"), LinkGone(link="c"), None])
def test_advertisements_of_a_client_that_does_not_come(lost: LinkDown | LinkGone | None) -> None:
    standing = Standing(advertisements=True)
    standing.advertise("d", NARROW[0])
    change = AdvertisementChange(added=routes("c", *NARROW))
    standing.ahead("c", change, introduces=True)
    if lost is not None:
        standing.give(lost)
    standing.connect("c", Peer.CLIENT, life=2)
    for _ in standing.turns():
        assert NARROW[0] in standing.offered()

    assert standing.offered() == {NARROW[0]}
    assert "c" not in standing.broker.router.advertisements


# ---- The gate by itself


def test_a_gate_admits_what_overlaps_an_advertisement() -> None:
    """However little is done in a turn, it never passes on too little, and in the end exactly what
    the definition says.
    """
    moves = st.lists(st.tuples(st.sampled_from("arReEuf"), st.integers(0, 30)), max_size=40)

    @examples(150)
    @given(st.lists(conjunctions(), min_size=12, max_size=12), moves, st.integers(0, 3))
    def runs(filters: list[Filter], moves: list[tuple[str, int]], steps: int) -> None:
        gate, end = AdvertisementGate(), Difference()
        chain = Chain([gate], end)
        there: dict[RouteId, Route] = {}
        offers: dict[RouteId, Route] = {}

        def passed() -> set[RouteId]:
            return {id_ for id_ in end.added if id_ not in end.ended}

        def wanted() -> set[RouteId]:
            return {
                id_
                for id_, route in there.items()
                if any(offer.filter.overlaps(route.filter) for offer in offers.values())
            }

        for number, (move, which) in enumerate(moves):
            route = Route(f"{number}", filters[which % len(filters)])
            if move == "a":
                there[route.id] = route
                chain.add(route)
            elif move in "rR" and there:
                chain.remove(there.pop(list(there)[which % len(there)]))
            elif move in "eE":
                (gate.expect if move == "e" else gate.advertise)(route)
                if move == "E":
                    offers[route.id] = route
                else:
                    for _ in range(which):
                        chain.flush(Effort(steps))
                    gate.arrive()
                    offers[route.id] = route
            elif move == "u" and offers:
                gate.many_go()
                gate.unadvertise(offers.pop(list(offers)[which % len(offers)]))
            else:
                chain.flush(Effort(steps))
            assert wanted() <= passed()
        chain.flush(Effort())
        assert wanted() == passed()
        assert not chain.waits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sterna.core.routing.advertisements.FEW", 0)
        runs()


def test_a_turn_with_many_more_takes_no_longer() -> None:
    """What is announced in a turn does not depend on how many there are."""
    longest = []
    for times in (1, 4):
        filters = [f"n = {number}" for number in range(times * MANY)]
        standing = Standing(advertisements=True)
        standing.subscribe("d", *filters)
        standing.changes.clear()
        wide_offer(standing)
        prepared(standing, "n")
        standing.say("n", AdvertisementChange(added=routes("n", WIDE)))
        standing.say("n", AdvertisementChange(removed=(f"n/{WIDE}",)))
        for _ in standing.turns():
            pass
        longest.append(max(len(each.added) for each in standing.changes))
        assert standing.filters() == set()
    assert max(longest) <= 2 * STEPS_MAX


def test_what_is_offered_of_a_change_is_found_out_soon_or_not_at_all() -> None:
    """With thousands of advertisements, a change of what merging gives is announced as it is."""
    gate = AdvertisementGate()
    for number in range(2_000):
        gate.advertise(Route(f"a{number}", Filter(f"n = {number}")))
    difference = UnionDifference(gate)
    for number in range(2_000):
        difference.add(Route(f"r{number}", Filter(f"n > {number}.1 AND n < {number}.9")))

    with soon(4):
        assert difference.is_due(Effort())
