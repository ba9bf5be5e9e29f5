"""MOD-7: the matching index answers as brute force does, after any adds and removes."""

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sterna import Filter
from sterna.bench.workloads import standard
from sterna.matching import (
    MatchIndex,
    batches,
    compiled,
    division,
    filing,
    generations,
    packing,
    tokens,
)
from sterna.matching import index as index_module
from sterna.matching.compiled import CompiledSubscriptions
from sterna.model.event import INT_MAX, INT_MIN, Scalar
from sterna.model.filters import patterns
from sterna.model.filters.long_texts import LongTexts
from tests.scale import CAMPAIGN, examples, soon
from tests.strategies import filter_text, filter_texts, seeded, several, some_event

pytestmark = pytest.mark.spec("MOD-7")

Event = dict[str, Scalar | None]

STEPS = {"taken": 0, "matched while packing": 0}
EXAMPLES, STEPS_EACH = 80, 50


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits: everything that happens to large tables happens to small ones as well."""
    make_eager(monkeypatch)


def make_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "FEW_MAX", 2)
    monkeypatch.setattr(generations, "PACK_MIN", 5)
    monkeypatch.setattr(filing, "FILED_VALUES_MIN", 4)
    monkeypatch.setattr(filing, "FILED_ROWS_MAX", 3)
    monkeypatch.setattr(filing, "FILED_TOKEN_ROWS_MAX", 5)
    monkeypatch.setattr(batches, "VISITS_MIN", 1)
    monkeypatch.setattr(batches, "HITS_MIN", 1)
    monkeypatch.setattr(division, "NUMBER_GROUPS", 3)
    monkeypatch.setattr(division, "STRING_CELLS", 6)
    monkeypatch.setattr(division, "STRING_GROUPS", 2)
    monkeypatch.setattr(division, "SHARED_CELLS", 2)
    monkeypatch.setattr(tokens, "LONG", 4)
    monkeypatch.setattr(tokens, "HASHING_COST", 0)
    monkeypatch.setattr(patterns, "LONG", 1)
    monkeypatch.setattr(patterns, "TRIES_MAX", 0)
    monkeypatch.setattr(compiled, "EACH_SLICE", 20)
    monkeypatch.setattr(compiled, "CHECKS_SLICE", 2)
    make_patient(monkeypatch)


def make_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a packing take as many changes as it can: each does one small piece of work."""
    monkeypatch.setattr(generations, "PACKED_AT_A_CHANGE", 0)
    monkeypatch.setattr(packing, "SURVEYED_ROWS", 7)
    monkeypatch.setattr(packing, "SURVEYED_VALUES", 5)
    monkeypatch.setattr(packing, "KEYED_ROWS", 4)
    monkeypatch.setattr(packing, "RUN_ROWS", 8)
    monkeypatch.setattr(packing, "TILES_AT_A_TIME", 1)
    monkeypatch.setattr(packing, "FILL_ROWS", 6)
    monkeypatch.setattr(packing, "FILED_AT_A_TIME", 2)


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
    often = [*batch, *batch, *batch]  # Enough of them to be put into columns.
    each = index.match_each(often)
    found = [
        sorted((key for key in each if place in each[key]), key=repr) for place in range(len(often))
    ]
    assert found == [sorted(keys, key=repr) for keys in single] * 3
    assert all(places == sorted(set(places)) for places in each.values())
    assert in_slices(index, batch) == {
        key: here for key in each if (here := [place for place in each[key] if place < len(batch)])
    }
    assert in_slices(index, often) == each


def in_slices(index: MatchIndex[Any], batch: list[Event]) -> dict[Any, list[int]]:
    """What matching finds that is interrupted wherever it can be."""
    work = index.match_in_slices(batch, LongTexts(lambda: True))
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return dict(ended.value)


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

    @rule(texts=seeded(several(filter_text, 5, 15)), times=st.integers(1, 12))
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

    @rule(batch=seeded(several(some_event, 1, 8)))
    def match(self, batch: list[Event]) -> None:
        inside = self.index._compiled
        STEPS["matched while packing"] += inside is not None and inside.generations.moving
        check(self.index, self.filters, batch)

    @invariant()
    def counts(self) -> None:
        STEPS["taken"] += 1


Histories.TestCase.settings = settings(
    max_examples=EXAMPLES * CAMPAIGN, stateful_step_count=STEPS_EACH
)


def test_any_history_gives_the_answers_of_brute_force() -> None:
    STEPS.update(dict.fromkeys(STEPS, 0))
    Histories.TestCase("runTest").runTest()

    assert STEPS["taken"] >= 2000
    assert STEPS["matched while packing"] >= 20


@given(texts=seeded(several(filter_text, 1, 40)), batch=seeded(several(some_event, 0, 10)))
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


# ---- Long texts and slices


def test_filters_may_come_and_go_between_slices() -> None:
    """Whoever is there from the beginning to the end is found, and nobody for the wrong events."""
    filters = {key: Filter(f"name LIKE '%a_{key % 10}%' AND n >= {key}") for key in range(200)}
    index = filled(filters)
    batch: list[Event] = [{"name": "xa-" + str(n % 10), "n": n} for n in range(0, 200, 2)]
    expected = index.match_each(batch)
    lasting = set(range(0, 200, 2))
    work = index.match_in_slices(batch, LongTexts(lambda: True))

    slices = 0
    found: dict[int, list[int]] = {}
    while not found:
        try:
            next(work)
        except StopIteration as ended:
            found = ended.value
        slices += 1
        if slices < 100:
            index.remove(2 * slices - 1)
            index.add(1000 + slices, Filter("n = 0 OR name = 'nobody'"))

    assert slices > 100
    assert {key: found.get(key, []) for key in lasting} == {
        key: expected.get(key, []) for key in lasting
    }
    assert all(found[key] == expected[key] for key in found if key < 1000)


def test_a_long_text_is_matched_exactly() -> None:
    """It has all letters in all orders, and every filter is filed under some of its own."""
    words = ["".join(word) for word in product("abcde", repeat=4)]
    filters = {key: Filter(f"name LIKE '%{word}%'") for key, word in enumerate(words)}
    index = filled(filters)
    rng = random.Random("long")  # noqa: S311 - reproducible, not secret.
    for length in (100, 600, 5_000):
        event: Event = {"name": "".join(rng.choices("abcdefg", k=length))}
        assert sorted(index.match(event)) == brute_force(filters, event)
    for key in range(0, len(words), 2):  # What was known of the parts of texts is no longer true.
        index.remove(key)
        filters.pop(key)
    event = {"name": "ffff" + "abcde" * 2_000}
    assert sorted(index.match(event)) == brute_force(filters, event)
    filters[-1] = Filter("name LIKE '%ffff%'")
    index.add(-1, filters[-1])
    assert sorted(index.match(event)) == brute_force(filters, event)


@pytest.mark.parametrize("pattern", ["%{}_{}%_{}%", "%{}_{}{}%", "%{}{}{}%", "%{}%{}_%{}"])
def test_a_large_event_against_many_patterns_is_soon_done(pattern: str) -> None:
    """Each of them costs a look at the whole text, and none the product of text and pattern."""
    letters = product("abcdefghijklm", repeat=3)
    index = filled(
        {key: Filter(f"x LIKE '{pattern.format(*next(letters))}'") for key in range(500)}
    )
    text = "aab" * 300_000
    with soon(5):
        assert index.match({"x": text}) is not None


# ---- Size and shape


def filled(filters: dict[Any, Filter]) -> MatchIndex[Any]:
    index: MatchIndex[Any] = MatchIndex()
    for key, filter_ in filters.items():
        index.add(key, filter_)
    return index


def test_hundreds_of_attributes() -> None:
    filters = {
        key: Filter(f"a{key % 300} > {key % 7} AND a{(key * 7) % 300} IN ('x', 'y{key % 5}')")
        for key in range(3000)
    }
    batch: list[Event] = [
        {f"a{k}": ("x" if (k + i) % 2 else k % 9) for k in range(i, 300, 1 + i % 4)}
        for i in range(12)
    ]

    check(filled(filters), filters, batch)


def test_values_of_all_kinds_under_one_name() -> None:
    texts = ["a = 1", "a = '1'", "a", "NOT a", "a <> 1", "a <> 'x'", "a IS NULL", "a IS NOT NULL"]
    texts += ["a < 2 OR a LIKE 'x%'", "a IN (1, 2.5)", "a NOT IN ('x', 'y')", "a = FALSE"]
    filters = {key: Filter(texts[key % len(texts)]) for key in range(200)}
    values: list[Scalar | None] = [1, 1.0, "1", True, False, None, "x", "xx", 2.5, float("nan"), -1]

    check(filled(filters), filters, [{"a": value} for value in values] + [{}])


def test_dictionaries_that_grow_while_running() -> None:
    """Far more values than cells, named one after the other, and filed when they are many."""
    filters: dict[int, Filter] = {}
    index: MatchIndex[int] = MatchIndex()
    for key in range(5000):
        filters[key] = Filter(f"car = 'c{key}' AND speed > {key % 10}")
        index.add(key, filters[key])
        if key % 700 == 0:
            chosen = {k: filters[k] for k in range(max(0, key - 5), key + 1)}
            for k in (key, key // 2, key + 1):
                assert index.match({"car": f"c{k}", "speed": 9.5}) == ([k] if k in filters else [])
            assert brute_force(chosen, {"car": f"c{key}", "speed": 9.5}) == [key]
    for key in range(0, 5000, 2):
        index.remove(key)
    assert index.match({"car": "c4998", "speed": 99}) == []
    assert index.match({"car": "c4999", "speed": 99}) == [4999]


@pytest.mark.usefixtures("eager")
def test_strings_that_share_a_cell_are_told_apart() -> None:
    """Strings that few filters name share cells; to exclude one is not to exclude the others."""
    texts = [f"a = 'often{k % 8}'" for k in range(800)] + [f"a = 'rarely{k}'" for k in range(12)]
    texts += ["a <> 'rarely0'"] * 90
    filters = dict(enumerate(map(Filter, texts)))

    batch: list[Event] = [{"a": f"rarely{k}"} for k in range(14)]
    check(filled(filters), filters, [*batch, {"a": "often1"}])


def test_integers_beyond_the_floats() -> None:
    edges = [2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, INT_MAX, INT_MAX - 1, INT_MIN, INT_MIN + 1]
    texts = [f"a {sign} {edge}" for edge in edges for sign in ("=", "<>", "<", "<=", ">", ">=")]
    texts += [f"a BETWEEN {a} AND {b}" for a in edges for b in edges]
    texts += [f"a IN ({a}, {b})" for a in edges for b in edges]
    filters = dict(enumerate(map(Filter, texts)))
    near = [edge + step for edge in edges for step in (-2, -1, 0, 1, 2)]
    values: list[Scalar] = [value for value in near if INT_MIN <= value <= INT_MAX]
    values += [float(value) for value in near]

    check(filled(filters), filters, [{"a": value} for value in values])


def test_a_filter_too_complex_for_a_normal_form() -> None:
    clauses = " AND ".join(f"(a{k} = 1 OR b{k} = 1)" for k in range(10))
    filters = {key: Filter(clauses if key % 2 else f"a{key % 10} = 1") for key in range(120)}
    batch: list[Event] = [{f"{'ab'[k % 2]}{k}": 1 for k in range(10)}, {"a0": 1}, {}]

    assert filters[1].normal_form is None
    check(filled(filters), filters, batch)


def test_a_filter_with_more_tests_than_a_record_holds() -> None:
    long = Filter(" AND ".join(f"a{k} = {k}" for k in range(1100)))
    filters = {0: long} | {key: Filter(f"a{key} >= {key}") for key in range(1, 80)}
    fits: Event = {f"a{k}": k for k in range(1100)}

    check(filled(filters), filters, [fits, fits | {"a1099": 0}, fits | {"a5": 0}])


def test_an_event_with_more_hits_than_a_batch_finds_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "HITS_MIN", 1)
    filters = {key: Filter(f"a LIKE '%abcdef%' AND b <> {key}") for key in range(300)}

    check(filled(filters), filters, [{"a": "xabcdefx", "b": -1}, {"a": "abcdef", "b": 7}, {}])


def test_a_pattern_behind_more_tests_than_a_record_holds() -> None:
    tests = " AND ".join(f"a{k} > 1" for k in range(1005))
    filters = {key: Filter(f"z = {key}") for key in range(40)}
    filters[99] = Filter(f"a1 = 1 OR ({tests} AND q LIKE '%abcdef%g')")
    fits: Event = {f"a{k}": 2 for k in range(1005)} | {"q": "abcdefg"}

    check(filled(filters), filters, [fits, fits | {"q": "abcdef"}, {"a1": 1}])


def test_an_add_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled({key: Filter(f"z = {key}") for key in range(40)})
    write, written = CompiledSubscriptions._write, []

    def fail_at_the_second(self: CompiledSubscriptions, row: int, term: Any, **how: bool) -> None:
        written.append(row)
        if len(written) == 2:
            raise MemoryError
        write(self, row, term, **how)

    monkeypatch.setattr(CompiledSubscriptions, "_write", fail_at_the_second)
    with pytest.raises(MemoryError):
        index.add("x", Filter("a = 1 OR b = 1"))
    monkeypatch.undo()

    assert "x" not in index
    assert index.match({"a": 1, "b": 1, "z": 7}) == [7]
    index.add("x", Filter("a = 1 OR b = 1"))
    assert index.match({"a": 1, "b": 1}) == ["x"]


def test_the_order_of_an_events_attributes_does_not_matter() -> None:
    texts = ["a LIKE '%ghi%'", "b LIKE '%ghi%'", "a LIKE '%ghi%' OR b LIKE '%hij%'"]
    index = filled({key: Filter(texts[key % 3]) for key in range(60)})
    one: Event = {"a": "ghij", "b": "ghij"}
    other: Event = {"b": "ghij", "a": "ghij"}

    assert index.match(one) == index.match(other)
    for event in (one, other):
        batch = {name: [value] for name, value in event.items()}
        assert index.match_batch(batch)[1].tolist() == index.match(one)


def test_integers_of_any_size() -> None:
    texts = ["a > 5", "a < 5", f"a > {INT_MAX}", "a <= 1.7976931348623157e308", "a >= -1e308"]
    filters = {key: Filter(texts[key % 5]) for key in range(60)}
    values = [2**70, -(2**70), 10**400, -(10**400)]

    check(filled(filters), filters, [{"a": value} for value in values])


def test_a_filter_that_matches_nothing_takes_its_key() -> None:
    filters: dict[int, Filter] = {key: Filter("a < 1 AND a > 2") for key in range(60)}
    index = filled(filters)

    check(index, filters, [{"a": 1}])
    with pytest.raises(ValueError, match="already"):
        index.add(5, Filter("a = 1"))
    for key in filters:
        index.remove(key)
    assert len(index) == 0


@pytest.mark.usefixtures("eager")
def test_removed_subscriptions_leave_nothing_behind() -> None:
    """Ever new values, patterns and attributes' values do not make the index grow."""
    index: MatchIndex[int] = MatchIndex()

    def history(first: int) -> None:
        for key in range(first, first + 300):
            index.add(
                key, Filter(f"a = 'v{key}' AND b LIKE '%x{key}y%' OR c IN ({key}, {key + 1})")
            )
        for key in range(first, first + 300):
            index.remove(key)

    history(0)
    history(1000)
    before = index.memory()
    for round_ in range(2, 6):
        history(round_ * 1000)

    assert index.memory() <= before * 1.1
    assert len(index) == 0
    assert index.match({"a": "v1", "b": "x1y", "c": 1}) == []


def test_memory_is_reported_and_small() -> None:
    filters = dict(enumerate(standard(0.001).filters(20_000, 1)))
    index = filled(filters)

    assert 100 < index.memory() / len(filters) <= 400


@pytest.mark.parametrize("few_max", [2, 32])
def test_events_that_are_alike_are_answered_from_memory(
    few_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1, 1.0 and TRUE are equal to Python, and not the same to a filter."""
    monkeypatch.setattr(index_module, "FEW_MAX", few_max)
    texts = ["a = 1", "a = TRUE", "a >= 1", "a = 'x'", "b = 2", "NOT a = 1"]
    events: list[Event] = [{"a": 1}, {"a": True}, {"a": 1.0}, {"a": "x"}, {"b": 2, "a": 1}, {}]
    index: MatchIndex[int] = MatchIndex()
    present: dict[int, Filter] = {}

    def agrees() -> bool:
        return all(
            sorted(index.match(event)) == [k for k, f in present.items() if f.matches(event)]
            for event in (*events, *reversed(events))
        )

    for number, text in enumerate(texts):
        present[number] = Filter(text)
        index.add(number, present[number])
        assert agrees()
    for number in range(len(texts) - 1):
        del present[number]
        index.remove(number)
        assert agrees()


def test_an_answer_from_memory_belongs_to_its_caller() -> None:
    index: MatchIndex[int] = MatchIndex()
    for number in range(5):
        index.add(number, Filter("a = 1"))

    for _ in range(3):
        found = index.match({"a": 1})
        assert sorted(found) == list(range(5))
        found.clear()


def test_no_answers_are_kept_where_no_events_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Event] = []
    index: MatchIndex[int] = MatchIndex()
    for number in range(5):
        index.add(number, Filter(f"a > {number}"))
    for number in range(2 * index_module.CREDIT):
        index.match({"a": number})
    match = MatchIndex._match

    def counted(self: MatchIndex[int], event: Event) -> list[int]:
        asked.append(event)
        return match(self, event)

    monkeypatch.setattr(MatchIndex, "_match", counted)
    for _ in range(2):
        assert index.match({"a": 3}) == [0, 1, 2]

    assert len(asked) == 2
