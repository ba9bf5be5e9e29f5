"""A batch of events in columns is matched at once, whatever the columns are made of."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sterna import Filter
from sterna.matching import MatchIndex
from tests.matching.test_index import Event, by_event, filled

pytestmark = pytest.mark.spec("MOD-7")


@pytest.fixture(params=[2, 120])
def priced(request: pytest.FixtureRequest) -> MatchIndex[int]:
    texts = ["price < 3", "service = 'parking'"] * (request.param // 2)
    return filled(dict(enumerate(map(Filter, texts))))


def first_two(found: tuple[Any, Any]) -> list[tuple[int, int]]:
    positions, keys = found
    pairs = zip(positions.tolist(), keys.tolist(), strict=True)
    return sorted((position, key) for position, key in pairs if key < 2)


EXPECTED = [(0, 0), (0, 1), (2, 1), (3, 0)]
PRICES = [1.5, None, 7.0, 2.0]
SERVICES = ["parking", None, "parking", "x"]
VALID = np.array([True, False, True, True])


@pytest.mark.parametrize(
    "batch",
    [
        {"price": PRICES, "service": SERVICES},
        {"price": (np.array([1.5, 0.0, 7.0, 2.0]), VALID), "service": np.array(SERVICES, object)},
        {
            "price": np.ma.masked_array([1, 0, 7, 2], [False, True, False, False]),
            "service": (np.array(["parking", "parking", "parking", "x"]), VALID),
        },
        {"price": np.array([1.5, np.nan, 7, 2], np.float32), "service": SERVICES, "other": [1] * 4},
        pa.RecordBatch.from_pydict({"price": PRICES, "service": SERVICES}),
        pa.RecordBatch.from_arrays(
            [
                pa.array([1, None, 7, 2], pa.uint8()),
                pa.array(SERVICES).dictionary_encode(),
                pa.array([None] * 4, pa.null()),
            ],
            names=["price", "service", "other"],
        ),
        pa.table({"price": PRICES, "service": pa.array(SERVICES, pa.large_string())}),
    ],
    ids=["lists", "validity", "masked", "nan", "arrow", "dictionary", "table"],
)
def test_columns_of_many_sorts(priced: MatchIndex[int], batch: Any) -> None:
    assert first_two(priced.match_batch(batch)) == EXPECTED


@pytest.mark.parametrize("kind", [float, int, bool])
def test_what_is_not_valid_is_missing(kind: type) -> None:
    texts = ["a IS NULL", "a IS NOT NULL", "b IS NULL"] * 40
    index = filled(dict(enumerate(map(Filter, texts))))
    values: Any = np.array([1, 0, 1, 0]).astype(kind)

    for column in (
        (values, VALID),
        np.ma.masked_array(values, ~VALID),
        pa.array(values, mask=~VALID),
    ):
        found = by_event(index.match_batch({"a": column}), 4)
        missing = [sorted(key % 3 for key in set(keys)) == [0] * 40 + [2] * 40 for keys in found]
        assert missing == [False, True, False, False]
        assert all(len(keys) == 80 for keys in found)


def test_masked_values_in_a_list_are_missing(priced: MatchIndex[int]) -> None:
    batch = {"price": [1.5, np.ma.masked, 7.0, 2.0], "service": SERVICES}

    assert first_two(priced.match_batch(batch)) == EXPECTED


def test_integers_in_an_arrow_dictionary(priced: MatchIndex[int]) -> None:
    prices = pa.array([1, None, 7, 2]).dictionary_encode()

    assert first_two(priced.match_batch({"price": prices, "service": SERVICES})) == EXPECTED


def test_booleans_and_large_integers_in_columns() -> None:
    texts = ["a", "NOT a", f"b > {2**53}", f"b = {2**53 + 1}"] * 30
    filters = dict(enumerate(map(Filter, texts)))
    flags, numbers = [True, False, None], [2**53, 2**53 + 1, None]
    arrow = pa.RecordBatch.from_pydict({"a": flags, "b": numbers})
    arrays = {"a": np.array([True, False]), "b": np.array(numbers[:2])}
    index = filled(filters)

    events_: list[Event] = [{"a": a, "b": b} for a, b in zip(flags, numbers, strict=True)]
    expected = [index.match(event) for event in events_]
    assert [len(keys) for keys in expected] == [30, 90, 0]
    assert by_event(index.match_batch(arrow), 3) == expected
    assert by_event(index.match_batch(arrays), 2) == expected[:2]


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ([{"a": 1}], "a batch is an Arrow RecordBatch or a dict of arrays, not a list"),
        ({"a": [1], "b": [1, 2]}, "equally long; here a has 1, b has 2"),
        ({"a": ([1, 2], [1, 0])}, "column 'a' is a tuple, but not of values and their validity"),
        ({"a": ([1, 2], [True])}, "column 'a' has 2 values, their validity 1"),
        ({"a": np.zeros((2, 2))}, "column 'a' has 2 dimensions"),
        ({"a": np.array(["2026-01-01"], "datetime64[D]")}, "column 'a' is of type datetime64"),
        ({"a": [[1]]}, "attribute 'a' is a list"),
        ({"a": "16"}, "column 'a' is a str instead of an array or a list"),
        ({"a": {1, 2}}, "column 'a' is a set instead"),
        ({"a": 5}, "column 'a' is a int instead"),
        ({"a": np.array([2**63], ">u8")}, "column 'a' has an integer above"),
        ({"a": np.array([2**64 - 1], np.uint64)}, "column 'a' has an integer above"),
        (
            pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
            "two are 'a'",
        ),
        (
            pa.RecordBatch.from_pydict({"a": [b"x"]}),
            "column 'a' is of type binary, but events carry",
        ),
    ],
)
def test_a_batch_that_makes_no_sense(priced: MatchIndex[int], batch: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        priced.match_batch(batch)


def test_an_empty_batch(priced: MatchIndex[int]) -> None:
    batches: list[Any] = [
        {},
        {"a": []},
        pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())}),
    ]
    for batch in batches:
        positions, keys = priced.match_batch(batch)
        assert (len(positions), len(keys)) == (0, 0)


def test_a_batch_without_columns_has_events_all_the_same() -> None:
    index = filled(dict.fromkeys(range(100), Filter("a IS NULL")))
    batch = pa.RecordBatch.from_pydict({"b": [1, 2, 3]}).select([])

    assert len(index.match_batch(batch)[0]) == 300
