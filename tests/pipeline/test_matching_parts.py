"""The parts of bulk matching that need no Spark: covers, maps of attributes, what workers keep."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField

from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.matching import workers
from sterna.pipeline.matching.events import Shipment
from sterna.pipeline.matching.figures import Work
from sterna.pipeline.matching.subscriptions import Parsed, SubscriptionTable, parsed_texts
from sterna.pipeline.matching.workers import Orders, counts, pairs
from tests.scale import examples
from tests.strategies import events as any_event
from tests.strategies import filter_texts

Attributes = dict[str, Scalar | None]

NO_SPARK: Any = None
"""Few subscriptions need none."""


def parsed(texts: list[str]) -> Parsed:
    ids = pa.array([f"s{number}" for number in range(len(texts))])
    part = parsed_texts(texts)
    assert not part.problems
    return Parsed(ids, StringType(), part.forms, part.attributes)


@pytest.mark.parametrize(
    ("id_", "text", "says"),
    [
        ("x7", "price <", ("'x7'", "at column 8 of 'price <'")),
        ("x7", "price < $budget", ("'x7'", "$budget", "bind")),
        ("x7", None, ("'x7'", "no filter")),
        (None, "price < 3", ("None", "no id", "price < 3")),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    id_: str | None, text: str | None, says: tuple[str, ...]
) -> None:
    """And only about that one."""
    texts = pa.chunked_array([["price > 1", text, "price > 2"]])
    table = SubscriptionTable(pa.array(["x1", id_, "x3"]), StringType(), texts)

    with pytest.raises(PipelineError) as raised:
        table.parsed(NO_SPARK)

    assert all(word in str(raised.value) for word in says)
    assert "\n" not in str(raised.value)
    assert "more" not in str(raised.value)


some_filters = st.lists(filter_texts, max_size=5)


@examples(80, long=20)
@given(some_filters, st.lists(any_event, min_size=1, max_size=5))
def test_what_is_covered_is_never_less(texts: list[str], events: list[Attributes]) -> None:
    """An event that the cover does not match is matched by nobody; it is not sent to workers."""
    cover = parsed(texts).cover()
    filters = [Filter(text) for text in texts]

    for event in events:
        if cover is not None and not cover.matches(event):
            assert not any(filter_.matches(event) for filter_ in filters)


def test_a_cover_is_short() -> None:
    """It names one attribute of each alternative, and values only if they are few."""
    services = parsed(["service = 'a' AND x > 1", "service = 'b' AND (y < 2 OR z IS NULL)"])
    either = parsed(["x > 3", "x > 5 AND y = 2 OR z = 1"])
    many = parsed([f"id = 'v{number:04}'" for number in range(0, 2000, 2)])

    assert str(services.cover()) == "service IN ('a', 'b')"
    assert str(either.cover()) == "x > 3 OR z = 1"
    assert str(many.cover()) == "id IS NOT NULL"
    assert parsed(["x > 3", "y IS NULL"]).cover() is None
    assert parsed([]).cover() is None


@examples(80, long=20)
@given(some_filters, any_event, st.sets(st.sampled_from(["a", "b", "c"])))
def test_nobody_is_left_out_who_could_match(
    texts: list[str], event: Attributes, missing: set[str]
) -> None:
    """Subscriptions that need an attribute that no event has are not compiled; others are."""
    thinned = {name: value for name, value in event.items() if name not in missing}
    expected = [f"s{n}" for n, text in enumerate(texts) if Filter(text).matches(thinned)]

    left = parsed(texts).without(missing.__contains__)

    assert matched(left, [thinned]) == [(0, id_) for id_ in sorted(expected)]


def test_those_are_left_out_who_cannot_match() -> None:
    left = parsed(["a = 1 AND b = 2", "b = 2 OR a = 1", "a IS NULL", "a < 1 AND a > 2"]).without(
        {"a"}.__contains__
    )

    assert left.ids.to_pylist() == ["s1", "s2"]
    assert left.attributes == {"b"}


# ---- Workers, in this process


@dataclass(frozen=True)
class Shelf:
    """Shares in memory."""

    data: list[bytes]
    bytes_each: int = 0

    def shares(self, version: str) -> int:
        assert not version
        return len(self.data)

    def name(self, version: str, share: int) -> str:
        return version + hashlib.sha256(self.data[share]).hexdigest()

    def size(self, version: str, share: int) -> int:
        assert not version
        assert self.data[share]
        return self.bytes_each

    def take(self, version: str, share: int) -> bytes:
        assert not version
        return self.data[share]


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    workers._held.clear()
    yield
    workers._held.clear()


VALUE = pa.struct(
    [("bool", pa.bool_()), ("int", pa.int64()), ("float", pa.float64()), ("string", pa.string())]
)
KINDS = {bool: "bool", int: "int", float: "float", str: "string"}


def batch_of(events: list[Attributes]) -> pa.RecordBatch:
    """Events as workers get them from a table with the map `attributes`."""
    maps = [
        [(name, None if v is None else {KINDS[type(v)]: v}) for name, v in event.items()]
        for event in events
    ]
    columns = [
        pa.array(range(len(events)), pa.int64()),
        pa.array(maps, pa.map_(pa.string(), VALUE)),
    ]
    return pa.RecordBatch.from_arrays(columns, ["i0", "m"])


SHIPMENT = Shipment((StructField("event", LongType()),), (), has_map=True)


def matched(subscriptions: Parsed, events: list[Attributes], shares: int = 1) -> list[Any]:
    shelf = Shelf([share.data for share in subscriptions.compiled(shares, NO_SPARK)])
    orders = Orders(SHIPMENT, shelf, memory_max=1 << 30)
    found = [row for batch in pairs(orders, [batch_of(events)]) for row in batch.to_pylist()]
    return sorted((row["event"], row["subscription"]) for row in found)


@examples(50, long=20)
@given(some_filters, st.lists(any_event, max_size=6), st.integers(1, 3), st.integers(0, 3))
def test_a_map_has_the_attributes_of_each_event(
    texts: list[str], events: list[Attributes], shares: int, cut: int
) -> None:
    """Also of a slice of a batch, with types that differ from event to event, and in shares."""
    expected = [
        (place, f"s{n}")
        for place, event in enumerate(events)
        for n, text in enumerate(texts)
        if Filter(text).matches(event)
    ]

    assert matched(parsed(texts), events, shares) == sorted(expected)
    for name, values in SHIPMENT.columns(batch_of(events).slice(cut)).items():
        if name:
            plain = values if isinstance(values, list) else values.to_pylist()
            wanted = [event.get(name) for event in events[cut:]]
            assert repr(plain) == repr(wanted)  # NaN is like NaN, and 1 is not like 1.0.


def test_few_pairs_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many subscriptions match: portions are so small that their pairs have room."""
    monkeypatch.setattr(workers, "PAIRS_MAX", 500)
    monkeypatch.setattr(workers, "PROBES", 4)
    subscriptions = parsed(["x >= 0"] * 100)
    orders = Orders(SHIPMENT, Shelf([s.data for s in subscriptions.compiled(1, NO_SPARK)]), 1 << 30)
    batches = [batch_of([{"x": 1}] * 30), batch_of([{"x": -1}] * 3000), batch_of([{"x": 1}] * 30)]

    sizes = [batch.num_rows for batch in pairs(orders, batches)]

    assert sizes == [500] * 12
    counted = pa.Table.from_batches(list(counts(orders, batches))).to_pylist()
    by_subscription = [row["matches"] for row in counted if row["subscription"] is not None]
    assert by_subscription == [60] * 100
    assert len(counted) - len(by_subscription) == 3060


def test_a_worker_holds_no_more_than_it_may() -> None:
    """A share makes room for itself before it is loaded; what is held is not loaded again."""
    data = [share.data for share in parsed([f"x = {n}" for n in range(6)]).compiled(3, NO_SPARK)]
    work = Work()
    room = Orders(SHIPMENT, Shelf(data, bytes_each=1), memory_max=1 << 30)
    tight = Orders(SHIPMENT, Shelf(data, bytes_each=1), memory_max=1)
    events = [batch_of([{"x": n}]) for n in range(3)]

    list(workers._meetings(room, events, work))
    assert (work.loaded, len(workers._held)) == (3, 3)
    most = work.index_bytes

    workers._held.clear()
    work = Work()
    list(workers._meetings(tight, events, work))
    assert (work.loaded, len(workers._held)) == (9, 1)
    assert work.index_bytes * 3 == most


def test_places_stay_with_their_subscriptions() -> None:
    """Filters with several alternatives take several rows of the index, and count once."""
    texts = ["x = 1 OR y = 2", "z LIKE '%a%b%' OR x = 1", "x + y = 3"]
    rows = np.array([[1, 2], [1, 0], [0, 3]])
    events: list[Attributes] = [{"x": int(x), "y": int(y), "z": "ab"} for x, y in rows]

    assert matched(parsed(texts), events) == [
        *((0, "s0"), (0, "s1"), (0, "s2"), (1, "s0"), (1, "s1"), (2, "s1"), (2, "s2"))
    ]
