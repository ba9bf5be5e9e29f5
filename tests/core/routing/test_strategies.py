"""The chains of stages against the plain definitions, change by change."""

from collections.abc import Callable
from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.advertisements import AdvertisementGate
from sterna.core.routing.merging import CHARACTERS_MAX, Merged
from sterna.core.routing.neighbours import STEPS_MAX
from sterna.core.routing.options import Strategy
from sterna.core.routing.stages import Chain, Difference, Effort, Stage
from sterna.core.routing.strategies import stages
from sterna.model.event import Scalar
from sterna.model.filters import Filter, merge
from sterna.model.filters.algebra import Work
from tests import strategies as general
from tests.core.routing import definitions
from tests.poison import long_filters, rather_long_filters, unreadable_together
from tests.scale import examples

EXACT = [s for s in Strategy if s not in {Strategy.MERGING, Strategy.IMPERFECT}]
MERGING = [Strategy.MERGING, Strategy.IMPERFECT]


class Told:
    """A neighbour at the end of a chain: knows what it was told, and nothing else."""

    def __init__(self, strategy: Strategy, head: list[Stage] | None = None) -> None:
        numbers = count(1)
        chain = stages(strategy, lambda: f"#{next(numbers)}", members_max=4)
        self.difference = Difference()
        self.chain = Chain([*(head or []), *chain], self.difference)
        self.routes: dict[RouteId, Route] = {}
        self.listen()

    def listen(self) -> None:
        """Take the difference, as a broker does at the end of a turn."""
        self.chain.flush(Effort(STEPS_MAX))
        added, removed = self.difference.take()
        for route in added:
            assert route.id not in self.routes, "told twice"
            self.routes[route.id] = route
        for id_ in removed:
            del self.routes[id_]

    @property
    def filters(self) -> list[Filter]:
        return [route.filter for route in self.routes.values()]


# ---- Filters that often equal, cover or nearly equal each other. All within the algebra's exact
# fragment, so that the plain definition knows as much as the stages do.

numbers = st.integers(0, 3)
tests_on = {
    "a": st.builds("a = {}".format, numbers) | st.builds("a <> {}".format, numbers),
    "b": st.builds("b < {}".format, numbers) | st.builds("b >= {}".format, numbers),
    "c": st.builds("c BETWEEN {} AND {}".format, numbers, numbers)
    | st.sampled_from(("c LIKE 'x%'", "c IN ('x', 'xy')", "c IS NULL", "c = 'x'")),
}


@st.composite
def conjunctions(draw: st.DrawFn) -> Filter:
    names = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
    return Filter(" AND ".join(draw(tests_on[name]) for name in names) or "TRUE")


events = st.fixed_dictionaries(
    {},
    optional={
        "a": numbers,
        "b": numbers,
        "c": numbers | st.sampled_from(("x", "xy", "y")),
    },
)

changes = st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=40)
"""Add the next filter, or remove one of those that are there; then whether to listen."""


def play(
    told: Told,
    filters: list[Filter],
    moves: list[tuple[bool, int]],
    check: Callable[[list[Filter]], None],
) -> None:
    """Add and remove filters; check what is told, given all that are there, at every listening."""
    there: list[Route] = []
    fresh = iter(enumerate(filters))
    for adds, number in moves:
        if adds or not there:
            place, filter_ = next(fresh, (None, None))
            if place is None or filter_ is None:
                return
            there.append(Route(f"r{place}", filter_))
            told.chain.add(there[-1])
        else:
            told.chain.remove(there.pop(number % len(there)))
        if number % 3:
            told.listen()
            check([route.filter for route in there])


def same(some: list[Filter], others: list[Filter]) -> bool:
    """Whether each has its equivalent among the others, one to one."""
    rest = list(others)
    for filter_ in some:
        equal = next((o for o in rest if o == filter_), None) or next(
            (o for o in rest if o.covers(filter_) and filter_.covers(o)), None
        )
        if equal is None:
            return False
        rest.remove(equal)
    return not rest


@pytest.mark.spec("RT-1", "RT-2")
@pytest.mark.parametrize("strategy", EXACT)
def test_what_is_told_is_what_the_definition_says(strategy: Strategy) -> None:
    @examples(150)
    @given(st.lists(conjunctions(), max_size=25), changes)
    def runs(filters: list[Filter], moves: list[tuple[bool, int]]) -> None:
        told = Told(strategy)

        def check(there: list[Filter]) -> None:
            expected = definitions.told(strategy, there)
            assert same(told.filters, expected), (told.filters, expected)

        play(told, filters, moves, check)

    runs()


@pytest.mark.spec("RT-1", "RT-2")
@pytest.mark.parametrize("strategy", MERGING)
def test_merging_tells_no_more_than_covering(strategy: Strategy) -> None:
    """And nothing that another covers; and what it tells covers everything it was given."""

    @examples(150)
    @given(st.lists(conjunctions(), max_size=25), changes)
    def runs(filters: list[Filter], moves: list[tuple[bool, int]]) -> None:
        told = Told(strategy)

        def check(there: list[Filter]) -> None:
            assert len(told.filters) <= len(definitions.told(Strategy.COVERING, there))
            assert definitions.maximal(told.filters) == told.filters
            for filter_ in there:
                assert any(one.covers(filter_) for one in told.filters) or not filter_.normal_form

        play(told, filters, moves, check)

    runs()


@pytest.mark.spec("RT-1")
@pytest.mark.parametrize("strategy", Strategy)
def test_what_is_told_matches_the_same_events(strategy: Strategy) -> None:
    """Any filters whatever: exactly the same events, but for strategies that may let more pass."""
    may_pass_more = {Strategy.FLOODING, Strategy.IMPERFECT}

    @examples(60)
    @given(
        st.lists(general.filter_texts.map(Filter) | conjunctions(), max_size=15),
        changes,
        st.lists(general.events | events, min_size=1, max_size=5),
    )
    def runs(
        filters: list[Filter],
        moves: list[tuple[bool, int]],
        samples: list[dict[str, Scalar]],
    ) -> None:
        told = Told(strategy)

        def check(there: list[Filter]) -> None:
            for event in samples:
                wanted = any(filter_.matches(event) for filter_ in there)
                passes = any(filter_.matches(event) for filter_ in told.filters)
                assert passes or not wanted
                assert passes == wanted or strategy in may_pass_more

        play(told, filters, moves, check)

    runs()


@pytest.mark.spec("RT-1")
def test_imperfect_merging_passes_only_new_combinations() -> None:
    """Of filters that differ in two attributes, values of both stay within what was asked for."""
    told = Told(Strategy.IMPERFECT)
    for number, text in enumerate(["a = 1 AND b = 1 AND c = 'x'", "a = 2 AND b = 2 AND c = 'x'"]):
        told.chain.add(Route(str(number), Filter(text)))
    told.listen()

    (merged,) = told.filters
    apart = Told(Strategy.IMPERFECT)
    for number, text in enumerate(["a = 1 AND b = 1", "a = 2 AND b = 2"]):
        apart.chain.add(Route(str(number), Filter(text)))  # They agree in nothing.
    apart.listen()
    assert len(apart.filters) == 2
    assert merged.matches({"a": 1, "b": 2, "c": "x"})
    assert not merged.matches({"a": 3, "b": 1, "c": "x"})
    assert not merged.matches({"a": 1, "b": 1, "c": "y"})


@pytest.mark.spec("RT-1")
def test_perfect_merging_joins_only_what_differs_in_one_attribute() -> None:
    told = Told(Strategy.MERGING)
    for number, text in enumerate(["a = 1 AND b = 1", "a = 2 AND b = 2", "a = 1 AND b = 2"]):
        told.chain.add(Route(str(number), Filter(text)))
    told.listen()

    assert len(told.filters) == 2
    assert not any(filter_.matches({"a": 2, "b": 1}) for filter_ in told.filters)

    told = Told(Strategy.MERGING)
    for number, text in enumerate(["a = 1 AND b = 1 AND c = 1", "a = 2 AND b = 2 AND c = 1"]):
        told.chain.add(Route(str(number), Filter(text)))
    told.listen()

    assert len(told.filters) == 2


@pytest.mark.spec("RT-2")
def test_withdrawing_a_covering_filter_tells_what_it_hid_in_the_same_breath() -> None:
    told = Told(Strategy.COVERING)
    hidden = [Route(f"h{n}", Filter(f"a = {n}")) for n in range(3)]
    wide = Route("wide", Filter("a >= 0"))
    for route in (*hidden, wide):
        told.chain.add(route)
    told.listen()
    assert told.filters == [wide.filter]

    told.chain.remove(wide)
    added, removed = told.difference.take()

    assert [route.filter for route in added] == [route.filter for route in hidden]
    assert len(removed) == 1


@pytest.mark.spec("RT-2")
def test_what_goes_with_its_cover_is_not_announced_first() -> None:
    """A client that leaves takes all its filters along: none of them looks for another cover."""
    told = Told(Strategy.COVERING)
    routes = [Route(f"r{n}", Filter(f"a > {n}")) for n in range(50)]
    for route in routes:
        told.chain.add(route)
    told.listen()

    told.chain.many_go()
    for route in routes[:-1]:
        told.chain.remove(route)
        assert not told.difference.added
    told.listen()

    assert told.filters == [routes[-1].filter]


@pytest.mark.spec("RT-1")
@pytest.mark.parametrize("wide_first", [True, False])
@pytest.mark.parametrize(
    "wide",
    [
        "c IS NULL",  # Events without c are inside; so no value of c finds them.
        "c IS NULL OR c > 3",
        "x LIKE '%a%' AND x LIKE '%b%'",  # No event is known that it matches.
        "x LIKE 'a!%%b' ESCAPE '!'",
        "x MATCHES 'a/+/c'",
        "x + y > 3",
    ],
)
def test_unusual_filters_cover_too(wide: str, wide_first: bool) -> None:
    told = Told(Strategy.COVERING)
    narrow = f"({wide}) AND z = 1"
    for number, text in enumerate([wide, narrow] if wide_first else [narrow, wide]):
        told.chain.add(Route(str(number), Filter(text)))
    told.listen()

    assert told.filters == [Filter(wide)]


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("strategy", EXACT[1:])
def test_only_what_overlaps_an_advertisement_is_told(strategy: Strategy) -> None:
    @examples(150)
    @given(
        st.lists(conjunctions(), max_size=15),
        st.lists(conjunctions(), max_size=6),
        st.lists(st.tuples(st.sampled_from("sSaA"), st.integers(0, 99)), max_size=40),
    )
    def runs(filters: list[Filter], offers: list[Filter], moves: list[tuple[str, int]]) -> None:
        gate = AdvertisementGate()
        told = Told(strategy, [gate])
        subscribed: list[Route] = []
        advertised: list[Route] = []
        fresh, fresh_offers = iter(filters), iter(offers)
        for place, (move, number) in enumerate(moves):
            if move == "s" and (filter_ := next(fresh, None)):
                subscribed.append(Route(f"s{place}", filter_))
                told.chain.add(subscribed[-1])
            elif move == "S" and subscribed:
                told.chain.remove(subscribed.pop(number % len(subscribed)))
            elif move == "a" and (filter_ := next(fresh_offers, None)):
                advertised.append(Route(f"a{place}", filter_))
                gate.advertise(advertised[-1])
            elif move == "A" and advertised:
                gate.unadvertise(advertised.pop(number % len(advertised)))
            told.listen()
            overlapping = [
                s.filter for s in subscribed if any(s.filter.overlaps(a.filter) for a in advertised)
            ]
            assert same(told.filters, definitions.told(strategy, overlapping))

    runs()


def test_a_change_asks_few_of_many_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change among 5,000 filters compares it with a handful, not with all of them."""
    told = Told(Strategy.MERGING)
    routes = [
        Route(f"r{n}", Filter(f"kind = 'k{n % 50}' AND cell = {n} AND price < {n % 7}"))
        for n in range(5_000)
    ]
    for route in routes:
        told.chain.add(route)
    told.listen()
    asked = 0
    covers = Filter.covers

    def counting(self: Filter, other: Filter, work: Work | None = None) -> bool:
        nonlocal asked
        asked += 1
        return covers(self, other, work)

    monkeypatch.setattr(Filter, "covers", counting)
    for route in routes[::50]:
        told.chain.remove(route)
        told.chain.add(Route(route.id + "'", Filter(f"{route.filter} AND lane = 1")))
    told.listen()

    assert asked < 100 * 20
    assert len(told.routes) < 5_000


# ---- What is told can be read


@pytest.mark.spec("RT-1", "LV-6")
@pytest.mark.parametrize("strategy", MERGING)
@pytest.mark.parametrize("made", [long_filters, rather_long_filters, unreadable_together])
def test_no_join_is_longer_than_a_neighbour_can_read(
    strategy: Strategy, made: Callable[[], list[Filter]]
) -> None:
    """Its parts are told instead; what comes and goes later is told, too, also after a restart."""
    told = Told(strategy)
    routes = [Route(f"r{place}", filter_) for place, filter_ in enumerate(made())]

    def check(there: list[Route]) -> None:
        told.listen()
        assert all(filter_.is_readable for filter_ in told.filters)
        assert all(len(str(filter_)) <= CHARACTERS_MAX for filter_ in told.filters)
        if there:  # A neighbour that forgets nothing wants exactly what is wanted.
            assert all(any(f.covers(route.filter) for f in told.filters) for route in there)
        assert bool(told.filters) == bool(there)

    for place, route in enumerate(routes, 1):
        told.chain.add(route)
        if place % 5 == 0 or place == len(routes):
            check(routes[:place])
    assert (len(told.filters) < len(routes)) is (made is rather_long_filters)
    kept = told.chain.keep()
    again = stages(strategy, lambda: "new", members_max=4)
    for stage, each in zip(again, kept, strict=True):
        stage.restore(each)
        assert stage.keep() == each
    for place, route in enumerate(routes, 1):
        told.chain.remove(route)
        if place % 5 == 0 or place == len(routes):
            check(routes[place:])


@pytest.mark.spec("RT-1", "LV-6")
def test_what_an_older_release_has_joined_and_nobody_can_read_is_taken_apart() -> None:
    told = Told(Strategy.MERGING)
    first, second = unreadable_together()
    told.chain.add(Route("r0", Filter("a = 1 AND c = 1")))
    told.chain.add(Route("r1", Filter("a = 1 AND c = 2")))
    told.listen()
    merged = next(stage for stage in told.chain._stages if isinstance(stage, Merged))
    kept = merged.keep()
    (group,) = kept.groups
    members = [Route(m.id, f) for m, f in zip(group.members, (first, second), strict=True)]
    assert group.merged is not None
    poison = Route(group.merged.id, merge([first, second]))
    assert not poison.filter.is_readable
    differing = tuple(name for name in first.attributes if name != "a")
    old = msgspec.structs.replace(
        group, first=members[0], members=members, merged=poison, differing=differing
    )

    again = Merged(lambda: "new", exact=True, members_max=4)
    again.onward = Difference()
    again.onward.told = {poison.id: poison}
    again.restore(msgspec.structs.replace(kept, groups=[old]))
    again.flush(Effort(STEPS_MAX))

    added, removed = again.onward.take()
    assert removed == (poison.id,)
    assert {route.filter for route in added} == {first, second}
