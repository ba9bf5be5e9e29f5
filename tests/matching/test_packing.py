"""Packing is done a little at each change, and what is matched in between is exact (MOD-7)."""

import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from sterna import Filter
from sterna.bench.index_pause import LongestCalls, longest_calls
from sterna.bench.workloads import Workload, ids, standard, text, topics
from sterna.matching import MatchIndex, generations, packing, tiles
from sterna.matching.kernels import packing as kernels
from sterna.matching.kernels.layout import TILE_ROWS
from sterna.matching.vocabulary import Vocabulary
from tests.matching.test_index import Event, brute_force, check, make_eager, make_patient

pytestmark = pytest.mark.spec("MOD-7")


def happening(workload: Workload, count: int, seed: int) -> list[Event]:
    return [dict(event) for event in workload.events(count, seed)]


def half_done(index: MatchIndex[Any]) -> bool:
    """Whether some rows are in old tiles and some in new ones."""
    sets = list(index.compiled().generations.matched())
    return len(sets) == 2 and all(tiles.arrays.row_slot.any() for tiles in sets)


@pytest.fixture(params=["eager", "patient"])
def _slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    {"eager": make_eager, "patient": make_patient}[request.param](monkeypatch)


@pytest.mark.usefixtures("_slow")
@pytest.mark.parametrize(
    "workload", [standard(0.02), ids(), topics(), text()], ids=lambda w: w.name
)
def test_a_half_done_packing_gives_the_answers_of_brute_force(workload: Workload) -> None:
    """Also for rows that come, go, and take the numbers of others meanwhile."""
    filters: dict[int, Filter] = {}
    index: MatchIndex[int] = MatchIndex()
    events = happening(workload, 4, 9)
    halves = 0
    for key, filter_ in enumerate(workload.filters(450, 9)):
        filters[key] = filter_
        index.add(key, filter_)
        if key % 3 == 2:
            gone = key * 7919 % key
            if gone in filters:
                index.remove(gone)
                del filters[gone]
        if key > 40 and key % 10 == 0:
            halves += half_done(index)
            check(index, filters, events)

    assert halves >= 5


@pytest.mark.usefixtures("_slow")
def test_names_that_come_and_go_during_a_packing() -> None:
    """New attributes reach both sets of tiles; the number of a forgotten value is used again."""
    index: MatchIndex[int] = MatchIndex()
    filters: dict[int, Filter] = {}
    halves = 0
    for key in range(400):
        filters[key] = Filter(f"a{key // 9} = 'v{key % 13}' AND b <> 'w{key}' OR c = {key}")
        index.add(key, filters[key])
        if key >= 60:
            index.remove(key - 60)
            del filters[key - 60]
        if key > 60 and key % 7 == 0:
            halves += half_done(index)
            near: Event = {f"a{key // 9 - 1}": f"v{key % 13}", "b": f"w{key - 3}", "c": key - 5}
            check(index, filters, [near, {f"a{key // 9}": "v1", "b": "x"}, {"c": key - 59}])

    assert halves >= 5


def test_the_number_of_a_forgotten_string_becomes_that_of_another_attributes_string() -> None:
    """A cell of its own, among those of the one attribute, means nothing to the other."""
    index: MatchIndex[int] = MatchIndex()
    filters = {key: Filter(f"a = 's{key % 3}' AND n > {key}") for key in range(1000)}
    filters |= {1000 + k: Filter(f"a = 's{3 + k}'") for k in range(3)}
    index.add_all(filters.items())
    inside = index.compiled()
    number = inside.vocabulary.attributes["a"].ids.get("s5")
    assert inside.arrays.value_cell[number]
    index.remove(1002)
    del filters[1002]
    assert not inside.arrays.value_cell[number]
    more = [f"b = 'y' AND m > {k}" for k in range(130)]
    more += [f"c > {k}" + (" AND b = 'y'" if k % 4 == 0 else "") for k in range(200)]
    for key, words in enumerate(more, 2000):
        filters[key] = Filter(words)
        index.add(key, filters[key])

    assert inside.vocabulary.attributes["b"].ids.get("y") == number
    check(index, filters, [{"b": "y", "c": 500, "m": 500}, {"b": "y", "c": 100}, {"a": "s5"}])


def test_a_string_that_is_forgotten_before_cells_are_divided_gets_none() -> None:
    vocabulary = Vocabulary()
    number = vocabulary.use(vocabulary.attribute("a"), "x")
    survey = packing._new_survey(1)
    kernels.survey_values(vocabulary.uses, vocabulary.string_of, survey, 0, vocabulary.values)
    assert packing._named(survey, 0, vocabulary).strings.tolist() == [number]
    vocabulary.forget([(0, number)])
    assert vocabulary.use(vocabulary.attribute("b"), "y") == number

    assert not len(packing._named(survey, 0, vocabulary).strings)


def test_packing_ends_soon_after_it_began() -> None:
    """Each change does its share, so that events meet two sets of tiles for few changes only."""
    index: MatchIndex[int] = MatchIndex()
    under_way = []
    for key, filter_ in enumerate(standard(0.01).filters(12_000, 4)):
        index.add(key, filter_)
        if key > generations.PACK_MIN:
            under_way.append(index.compiled().generations.packing)

    assert 0 < sum(under_way) < len(under_way) / 20
    begun = sum(now and not before for before, now in pairwise(under_way))
    assert begun >= 5


def test_packing_keeps_tiles_full_and_records_together() -> None:
    index: MatchIndex[int] = MatchIndex()
    for key, filter_ in enumerate(standard(0.01).filters(4000, 4)):
        index.add(key, filter_)
    for key in range(3000):
        index.remove(key)
    inside = index.compiled()
    inside.pack()
    before = index.memory()
    inside.add_all([])

    made = int(inside.arrays.counts[0])
    assert made == -(-1000 // tiles.FILL_ROWS)
    assert index.memory() < before


def test_the_summary_is_never_copied_when_an_index_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are long enough for all tiles that come before the next packing."""
    copied = []
    widen = tiles.SubscriptionTiles._widen_summary

    def notice(self: tiles.SubscriptionTiles, count: int) -> None:
        before = self.arrays.summary
        widen(self, count)
        copied.append(self.arrays.summary is not before)

    monkeypatch.setattr(tiles.SubscriptionTiles, "_widen_summary", notice)
    index: MatchIndex[int] = MatchIndex()
    for key, filter_ in enumerate(standard(0.01).filters(30_000, 4)):
        index.add(key, filter_)

    assert copied
    assert not any(copied)


@pytest.mark.parametrize("rows", [0, 1, 1000, 40_000, 1_000_000])
@pytest.mark.parametrize("spread_over", [1, 13, 14, 100, 10_000, 1_000_000])
def test_the_summary_has_room_however_new_rows_are_spread(rows: int, spread_over: int) -> None:
    """Half as many rows come as there are, and a thirty-second while they are packed again."""
    packed = -(-rows // tiles.FILL_ROWS)
    coming, hit = rows // 2 + rows // 32, min(packed, spread_over)
    each = coming // hit if hit else 0
    first = min(1, each // (TILE_ROWS + 1 - tiles.FILL_ROWS))
    later = max(0, each - TILE_ROWS - 1 + tiles.FILL_ROWS)
    split = hit * (first + later // (TILE_ROWS - tiles.SPLIT_ROWS))

    assert packed + split <= tiles._tiles_for(rows)


RUNS_MAX = 8


@pytest.mark.parametrize("workload", [standard(0.001), ids()], ids=lambda w: w.name)
def test_no_call_takes_long(workload: Workload) -> None:
    """20 ms is asked for. A call takes its time in each run; what the machine does beside it (even
    processor time counts what a host takes from a virtual one) does not come at the same call each
    time, however busy it is.
    """
    found = [longest_calls(20_000, workload)]
    while _longest(found).cpu_ms >= 20 and len(found) < RUNS_MAX:
        found.append(longest_calls(20_000, workload))

    assert found[-1].add.calls == 20_000
    assert found[-1].replace.calls == 10_000
    assert _longest(found).cpu_ms < 20, _longest(found)


class Call(NamedTuple):
    """A call, as fast as it was in any of the runs."""

    cpu_ms: float
    kind: str
    number: int


def _longest(runs: list[LongestCalls]) -> Call:
    return max(
        Call(min(times), kind, number)
        for kind in ("add", "replace", "introduce", "match")
        for number, times in enumerate(
            zip(*(getattr(run, kind).each_cpu_ms for run in runs), strict=True)
        )
    )


# ---- Adding many


def test_many_filters_added_at_once_are_found() -> None:
    workload = text()
    filters = dict(enumerate(workload.filters(600, 3)))
    index: MatchIndex[int] = MatchIndex()
    index.add_all(list(filters.items())[:10])
    index.add_all(list(filters.items())[10:200])
    index.add_all(iter(list(filters.items())[200:]))

    assert not index.compiled().generations.packing
    check(index, filters, happening(workload, 10, 3))
    for key in range(0, 600, 2):
        index.remove(key)
        del filters[key]
    check(index, filters, happening(workload, 10, 3))


def test_what_was_added_before_a_bad_filter_is_found() -> None:
    index: MatchIndex[Any] = MatchIndex()

    def items() -> Iterator[tuple[Any, Any]]:
        yield from ((key, Filter(f"a > {key}")) for key in range(100))
        yield "x", "a = 1"
        yield "y", Filter("a = 1")

    with pytest.raises(TypeError, match="a str is no filter"):
        index.add_all(items())
    assert sorted(index.match({"a": 7.5})) == list(range(8))
    assert "y" not in index
    with pytest.raises(ValueError, match="7 is in the index already"):
        index.add_all([(key, Filter("a > 1")) for key in range(200, 400)] + [(7, Filter("a = 1"))])
    assert len(index) == 300


# ---- Pickling


def test_an_index_is_pickled_in_the_middle_of_a_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    make_patient(monkeypatch)
    filters = dict(enumerate(standard(0.02).filters(300, 2)))
    index: MatchIndex[int] = MatchIndex()
    for key, filter_ in filters.items():
        index.add(key, filter_)
    while not half_done(index):
        index.add(len(filters), Filter("a1 = 'v1'"))
        filters[len(filters)] = Filter("a1 = 'v1'")
    copy: MatchIndex[int] = pickle.loads(pickle.dumps(index))  # noqa: S301

    for each in (index, copy):
        remaining = dict(filters)
        check(each, remaining, happening(standard(0.02), 6, 2))
        for key in range(200):
            each.remove(key)
            del remaining[key]
        check(each, remaining, happening(standard(0.02), 6, 2))


def test_a_filter_without_a_normal_form_is_pickled() -> None:
    many = " OR ".join(f"a{k} = 1" for k in range(65))
    filters = {key: Filter(f"b > {key}") for key in range(40)} | {99: Filter(many)}
    index: MatchIndex[int] = MatchIndex()
    index.add_all(filters.items())
    assert filters[99].normal_form is None

    copy = pickle.loads(pickle.dumps(index))  # noqa: S301
    events: list[Event] = [{"a64": 1, "b": 2.5}, {"a64": 2}, {}]
    for event in events:
        assert sorted(copy.match(event)) == brute_force(filters, event)
