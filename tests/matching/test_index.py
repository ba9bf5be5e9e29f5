"""MOD-7: the matching index answers as brute force does, after any adds and removes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sterna import Filter
from sterna.matching import MatchIndex, table
from sterna.matching import index as index_module
from sterna.model.event import Scalar
from tests.scale import CAMPAIGN, examples
from tests.strategies import events, filter_texts

pytestmark = pytest.mark.spec("MOD-7")

Event = dict[str, Scalar | None]

STEPS = {"taken": 0}
EXAMPLES, STEPS_EACH = 80, 50


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits: everything that happens to large tables happens to small ones as well."""
    make_eager(monkeypatch)


def make_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "FEW_MAX", 2)
    monkeypatch.setattr(table, "REPACK_MIN", 5)
    monkeypatch.setattr(table, "FILED_VALUES_MIN", 4)
    monkeypatch.setattr(table, "FILED_ROWS_MAX", 3)
    monkeypatch.setattr(table, "FILED_TOKEN_ROWS_MAX", 5)
    monkeypatch.setattr(table, "VISITS_MIN", 1)
    monkeypatch.setattr(table, "HITS_MAX", 1)
    monkeypatch.setattr(table, "NUMBER_GROUPS", 3)
    monkeypatch.setattr(table, "STRING_CELLS", 6)
    monkeypatch.setattr(table, "STRING_GROUPS", 2)
    monkeypatch.setattr(table, "SHARED_CELLS", 2)


def brute_force(filters: dict[Any, Filter], event: Event) -> list[Any]:
    return sorted(key for key, filter_ in filters.items() if filter_.matches(event))


def in_columns(batch: list[Event]) -> dict[str, list[Scalar | None]]:
    names = dict.fromkeys(name for event in batch for name in event)
    return {name: [event.get(name) for event in batch] for name in names}


def by_event(found: tuple[Any, Any], count: int) -> list[list[Any]]:
    answers: list[list[Any]] = [[] for _ in range(count)]
    positions, keys = found
    assert list(positions) == sorted(positions)
    for position, key in zip(positions.tolist(), keys.tolist(), strict=True):
        answers[position].append(key)
    return answers


def check(index: MatchIndex[Any], filters: dict[Any, Filter], batch: list[Event]) -> None:
    """One by one and all at once, the index gives the answers of brute force, each key once."""
    assert len(index) == len(filters)
    single = [index.match(event) for event in batch]
    assert [sorted(keys) for keys in single] == [brute_force(filters, event) for event in batch]
    columns = in_columns(batch)
    if columns:
        assert by_event(index.match_batch(columns), len(batch)) == single


class Histories(RuleBasedStateMachine):
    """Any sequence of adds and removes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.filters: dict[int, Filter] = {}
        self.next_key = 0

    @initialize(eager=st.booleans())
    def begin(self, eager: bool) -> None:
        if eager:
            make_eager(self.patch)
        self.index: MatchIndex[int] = MatchIndex()

    def teardown(self) -> None:
        self.patch.undo()

    def _add(self, filter_: Filter) -> None:
        self.index.add(self.next_key, filter_)
        self.filters[self.next_key] = filter_
        self.next_key += 1

    @rule(text=filter_texts)
    def add(self, text: str) -> None:
        self._add(Filter(text))

    @rule(texts=st.lists(filter_texts, min_size=5, max_size=15), times=st.integers(1, 12))
    def add_many(self, texts: list[str], times: int) -> None:
        for filter_ in [Filter(text) for text in texts]:
            for _ in range(times):
                self._add(filter_)

    @precondition(lambda self: self.filters)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.filters)))
        self.index.remove(key)
        del self.filters[key]

    @precondition(lambda self: len(self.filters) > 20)
    @rule(keep=st.integers(2, 9), offset=st.integers(0, 8))
    def remove_many(self, keep: int, offset: int) -> None:
        for key in [key for key in self.filters if (key + offset) % keep]:
            self.index.remove(key)
            del self.filters[key]

    @rule(batch=st.lists(events, min_size=1, max_size=8))
    def match(self, batch: list[Event]) -> None:
        check(self.index, self.filters, batch)

    @invariant()
    def counts(self) -> None:
        STEPS["taken"] += 1


Histories.TestCase.settings = settings(
    max_examples=EXAMPLES * CAMPAIGN, stateful_step_count=STEPS_EACH
)


def test_any_history_gives_the_answers_of_brute_force() -> None:
    STEPS["taken"] = 0
    Histories.TestCase("runTest").runTest()

    assert STEPS["taken"] >= 2000


@given(texts=st.lists(filter_texts, min_size=1, max_size=40), batch=st.lists(events, max_size=10))
@examples(60)
def test_many_different_filters(texts: list[str], batch: list[Event]) -> None:
    """Every kind of filter in one table, matched with every kind of event."""
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch)
        index: MatchIndex[int] = MatchIndex()
        filters = {}
        for key, text in enumerate(texts * 3):
            filters[key] = Filter(text)
            index.add(key, filters[key])
        check(index, filters, batch)
        for key in list(filters)[::2]:
            index.remove(key)
            del filters[key]
        check(index, filters, batch)
