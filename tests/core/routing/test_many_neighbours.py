"""With many neighbours a new subscription is compared in several turns, and announced in time."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.inputs import TimePassed
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import NEVER, LinkId, Peer, RouteId
from sterna.core.routing import unions
from sterna.core.routing.announcements import Announcement
from sterna.core.routing.options import Strategy
from sterna.core.routing.stages import Chain, Effort
from sterna.core.routing.strategies import difference, stages
from sterna.model.filters import Filter, merge
from tests.core.routing.test_parts import Standing, routes
from tests.core.routing.test_strategies import changes, conjunctions
from tests.scale import examples

NEIGHBOURS = [f"n{number}" for number in range(12)]
KNOWN = [f"n = {number} AND m > {number % 7}" for number in range(40)]
NEW = "n = 1000 AND m > 3"
REDUCING = [Strategy.COVERING, Strategy.MERGING, Strategy.IMPERFECT]

pytestmark = pytest.mark.spec("RT-1", "LV-6")


def surrounded(strategy: Strategy) -> Standing:
    """A broker with many neighbours that are told of many subscriptions."""
    standing = Standing(strategy)
    for link in NEIGHBOURS:
        standing.connect(link, Peer.BROKER)
    standing.subscribe("d", *KNOWN)
    for _ in standing.turns():
        pass
    standing.sent.clear()
    return standing


def preparing(standing: Standing, link: LinkId = "c") -> Iterator[set[LinkId]]:
    """Whom the broker has told something in each turn, until it is prepared."""
    for _ in range(100):
        yield {told for told, _ in standing.sent}
        standing.sent.clear()
        if not standing.broker.router.is_preparing(link):
            return
        assert standing.broker.deadline != NEVER
        standing.give(TimePassed(), standing.broker.deadline)


@pytest.mark.parametrize("strategy", REDUCING)
def test_few_neighbours_are_told_in_a_turn_and_all_before_it_counts(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a single look at what merging changes took a whole turn."""
    monkeypatch.setattr(unions, "STEP", 1)
    standing = surrounded(strategy)
    change = SubscriptionChange(added=routes("c", NEW))

    standing.ahead("c", change)
    told = list(preparing(standing))

    if strategy is not Strategy.COVERING:  # It has little to do for each.
        assert max(map(len, told)) == 1
    assert all(standing.asks_for(NEW, link=link) for link in ("n", *NEIGHBOURS))
    standing.say("c", change)
    assert not standing.sent
    for _ in standing.turns():
        pass
    assert all(standing.asks_for(NEW, *KNOWN, link=link) for link in ("n", *NEIGHBOURS))


@pytest.mark.parametrize("strategy", REDUCING)
def test_what_somebody_relies_on_does_not_wait(strategy: Strategy) -> None:
    """As when the broker is not prepared for a message: then all are told in its turn."""
    standing = surrounded(strategy)
    standing.ahead("c", SubscriptionChange(added=routes("c", NEW)))

    standing.subscribe("d", "n = 2000 AND m > 3")

    for link in ("n", *NEIGHBOURS):
        assert standing.asks_for("n = 2000 AND m > 3", NEW, *KNOWN, link=link)


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("strategy", REDUCING)
def test_a_snapshot_while_neighbours_are_told(strategy: Strategy) -> None:
    standing = surrounded(strategy)
    standing.ahead("c", SubscriptionChange(added=routes("c", NEW)))
    for _ in preparing(standing):
        standing.restart()

    assert all(standing.asks_for(NEW, *KNOWN, link=link) for link in ("n", *NEIGHBOURS))


def test_a_neighbour_that_is_down_keeps_nobody_waiting() -> None:
    standing = surrounded(Strategy.MERGING)
    standing.broker.up.pop(NEIGHBOURS[-1])
    standing.ahead("c", SubscriptionChange(added=routes("c", NEW)))

    told = set().union(*preparing(standing))

    assert NEIGHBOURS[-1] not in told
    standing.give(TimePassed(), standing.broker.deadline)
    assert standing.broker.deadline == NEVER


@pytest.mark.parametrize("strategy", REDUCING)
def test_only_what_nobody_relies_on_waits(strategy: Strategy) -> None:
    """However little is done in a turn, a neighbour knows all that has to be known already."""

    @examples(40)
    @given(st.lists(conjunctions(), max_size=25), changes, st.integers(0, 20), st.integers(0, 2))
    def runs(
        filters: list[Filter], moves: list[tuple[bool, int]], steps: int, looking: int
    ) -> None:
        numbers = count(1)
        end = difference(strategy)
        chain = Chain(stages(strategy, lambda: f"#{next(numbers)}", members_max=4), end)
        announcement = Announcement(chain, end)
        told: dict[RouteId, Filter] = {}
        relied_on: list[Route] = []
        expected: list[Route] = []

        def listen(steps: int, looking: Effort) -> None:
            chain.flush(Effort(steps))
            added, removed = announcement.take(looking) or ((), ())
            for route in added:
                told[route.id] = route.filter
            for id_ in removed:
                del told[id_]
            if not (chain.has_new or end.is_unlooked):
                relied_on.extend(expected)
                expected.clear()
            together = merge(told.values())
            for route in relied_on:
                assert together.covers(route.filter) or not route.filter.normal_form

        for (adds, number), (place, filter_) in zip(moves, enumerate(filters), strict=False):
            if not adds and relied_on:
                chain.remove(relied_on.pop(number % len(relied_on)))
                listen(steps, Effort(looking))
            elif number % 3:
                expected.append(Route(f"r{place}", filter_))
                chain.many_come()
                chain.add(expected[-1])
                listen(steps, Effort(looking))
            else:
                relied_on.append(Route(f"r{place}", filter_))
                chain.add(relied_on[-1])
                if chain.has_new:
                    chain.flush(Effort())
                listen(steps, Effort())
                assert not expected
        while chain.waits or end.is_unlooked:
            listen(max(1, steps), Effort(1))
        listen(1, Effort(1))
        assert not expected

    runs()


def test_what_one_filter_covers_takes_one_step_each() -> None:
    """Whatever their number: the matching index grows only with what is not covered."""
    numbers = count(1)
    end = difference(Strategy.COVERING)
    names = lambda: f"#{next(numbers)}"  # noqa: E731
    chain = Chain(stages(Strategy.COVERING, names, members_max=4), end)
    chain.add(Route("wide", Filter("n >= 0")))
    chain.many_come()
    for number in range(100):
        chain.add(Route(f"r{number}", Filter(f"n = {number}")))

    chain.flush(Effort(101))

    assert not chain.waits
