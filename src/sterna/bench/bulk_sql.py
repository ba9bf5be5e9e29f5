"""The same question in plain Spark SQL, written in two ways.

With predicates as rows, which are joined with values and counted for each pair. Or with an
equi-join: each filter is looked up by its rarest test, and the rest is tested pair by pair.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sterna.bench.workloads import ATTRIBUTES, NUMBERS_MAX
from sterna.model.filters import Filter
from sterna.model.filters.values import NUMBER
from sterna.pipeline.matching import Matching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sterna.bench.pipeline import Figures, Setting

SQL_EVENTS = (100, 400)
"""The numbers of events in two runs; the difference gives the cost of each event."""

EQUI_TESTS_MAX = 4_000_000_000
"""The equi-join gets all events, unless events times subscriptions are more than this."""

COMPARED = 1_000
"""For so many events, the pairs of the equi-join are compared one by one."""

BIN = NUMBERS_MAX / 20
"""Ranges are looked up by the bins that they touch: an equi-join needs equal values."""

_VALUES = ", ".join(
    f"'a{a}', a{a}, NULL" if a % 2 == 0 else f"'a{a}', NULL, a{a}" for a in range(ATTRIBUTES)
)
_QUESTION = """
WITH known AS (
  SELECT event, stack(%d, %s) AS (attribute, number, text) FROM some_events
), held AS (
  SELECT event, subscription, tests FROM known JOIN predicates
  ON known.attribute = predicates.attribute AND number >= low AND number < high
  UNION ALL
  SELECT event, subscription, tests FROM known JOIN predicates
  ON known.attribute = predicates.attribute AND text = value
)
SELECT event, subscription FROM held GROUP BY event, subscription, tests HAVING count(*) = tests
"""


def by_predicates(
    first: Callable[[int], Matching], filters: list[Filter], setting: "Setting"
) -> "Figures":
    """Match the first few events and then some more; the result has to be that of `first`."""
    session = setting.spark
    rows = [row for key, filter_ in enumerate(filters) for row in _predicates(key, filter_)]
    predicates = session.createDataFrame(pa.Table.from_pylist(rows)).cache()
    predicates.createOrReplaceTempView("predicates")
    predicates.count()  # Now they are in memory.
    seconds: list[float] = []
    for count in (SQL_EVENTS[0], *SQL_EVENTS):  # The first time warms up.
        setting.progress(f"plain SQL with {count} of {setting.events:,} events")
        some = first(count)
        events = _on_all_cores(some.events)
        events.createOrReplaceTempView("some_events")
        started = time.perf_counter()
        pairs = session.sql(_QUESTION % (ATTRIBUTES, _VALUES)).count()
        seconds.append(time.perf_counter() - started)
        if pairs != some.pairs().count():
            raise AssertionError(f"SQL finds {pairs} pairs in the first {count} events")
        events.unpersist()
    predicates.unpersist()
    few, many = seconds[1:]
    each = max(many - few, 0.0) / (SQL_EVENTS[1] - SQL_EVENTS[0])
    return {
        "sample_events": list(SQL_EVENTS),
        "sample_s": [round(few, 2), round(many, 2)],
        "ms_per_event": round(each * 1e3, 3),
        "extrapolated_s": round(few + each * (setting.events - SQL_EVENTS[0])),
    }


def by_equi_join(
    first: Callable[[int], Matching], filters: list[Filter], setting: "Setting"
) -> "Figures":
    """The same with an equi-join, for all events if that does not take too long."""
    setting.progress("preparing the equi-join")
    started = time.perf_counter()
    join = EquiJoin(first(setting.events).events, filters)
    prepare_s = time.perf_counter() - started
    count = min(setting.events, max(COMPARED, EQUI_TESTS_MAX // len(filters)))
    events = _on_all_cores(first(count).events)
    pairs, seconds = 0, 0.0
    for _ in range(2):  # The first time warms up.
        setting.progress(f"SQL with an equi-join, {count:,} of {setting.events:,} events")
        started = time.perf_counter()
        pairs = join.pairs(events).count()
        seconds = time.perf_counter() - started
    events.unpersist()
    if pairs != first(count).pairs().count():
        raise AssertionError(f"an equi-join finds {pairs} pairs in the first {count} events")
    some = first(min(COMPARED, count))
    require_equal(join.pairs(some.events), some.pairs())
    join.close()
    return {
        "prepare_s": round(prepare_s, 2),
        "events": count,
        "pairs": pairs,
        "seconds": round(seconds, 2),
        "all_events_s": round(seconds * setting.events / count, 1),
    }


def _on_all_cores(events: "DataFrame") -> "DataFrame":
    """The events in memory, as many on each core: the first ones may all be in one file."""
    cores = events.sparkSession.sparkContext.defaultParallelism
    divided = events.repartition(cores * 2).cache()
    divided.count()
    return divided


def require_equal(found: "DataFrame", expected: "DataFrame") -> None:
    """Make sure that two ways find the same pairs."""
    for one, other in ((found, expected), (expected, found)):
        if not one.exceptAll(other).isEmpty():
            raise AssertionError("SQL and bulk matching find different pairs")


class EquiJoin:
    """Conjunctions as rows of a table that events are joined with, on an attribute and its value.

    Each filter is looked up by the test that the fewest events pass, as far as one can tell from
    how often each value occurs. A number is looked up by its bin. Strings have to be tested with =
    or IN, and numbers to be between 0 and NUMBERS_MAX.
    """

    def __init__(self, events: "DataFrame", filters: list[Filter]) -> None:
        self._texts = {
            each.name: each.dataType.simpleString() == "string"
            for each in events.schema
            if each.name != "event"
        }
        seen = {(r.attribute, r.key): int(r["count"]) for r in self._keyed(events).collect()}
        rows = [
            row for key, filter_ in enumerate(filters) for row in self._rows(key, filter_, seen)
        ]
        table = pa.Table.from_pylist(rows, self._schema())
        self._wanted = events.sparkSession.createDataFrame(table).cache()
        self._wanted.count()  # Now they are in memory.

    def pairs(self, events: "DataFrame") -> "DataFrame":
        """Each event with each subscription that matches it."""
        left = " AND ".join(
            f"(in_{name} IS NULL OR array_contains(in_{name}, {name}))"
            if is_text
            else f"(low_{name} IS NULL OR {name} >= low_{name} AND {name} < high_{name})"
            for name, is_text in self._texts.items()
        )
        return events.sparkSession.sql(
            "SELECT /*+ BROADCAST(wanted) */ event, subscription "  # noqa: S608 - our own names.
            f"FROM (SELECT *, {self._stack()} FROM {{events}}) AS known JOIN {{wanted}} AS wanted "
            f"ON known.attribute = wanted.attribute AND known.key = wanted.key AND {left}",
            events=events,
            wanted=self._wanted,
        )

    def close(self) -> None:
        self._wanted.unpersist()

    def _stack(self) -> str:
        keys = ", ".join(
            f"'{name}', {name}" if is_text else f"'{name}', CAST(floor({name} / {BIN}) AS string)"
            for name, is_text in self._texts.items()
        )
        return f"stack({len(self._texts)}, {keys}) AS (attribute, key)"

    def _keyed(self, events: "DataFrame") -> "DataFrame":
        known = events.selectExpr(self._stack()).where("key IS NOT NULL")
        return known.groupBy("attribute", "key").count()

    def _rows(
        self, key: int, filter_: Filter, seen: dict[tuple[str, str], int]
    ) -> Iterator[dict[str, Any]]:
        """A filter once for each value under which it is looked up."""
        tests: dict[str, Any] = {}
        keys: dict[str, list[str]] = {}
        for test in _predicates(key, filter_):
            name = test["attribute"]
            if self._texts[name]:
                tests.setdefault(f"in_{name}", []).append(test["value"])
                keys.setdefault(name, []).append(test["value"])
            else:
                tests |= {f"low_{name}": test["low"], f"high_{name}": test["high"]}
                bounds = max(test["low"], 0.0), min(test["high"], NUMBERS_MAX)
                first, last = (math.floor(bound / BIN) for bound in bounds)
                keys[name] = [str(number) for number in range(first, last + 1)]
        best = min(keys, key=lambda name: sum(seen.get((name, each), 0) for each in keys[name]))
        for each in keys[best]:
            yield {"subscription": key, "attribute": best, "key": each, **tests}

    def _schema(self) -> pa.Schema:
        fields = [("subscription", pa.int64()), ("attribute", pa.string()), ("key", pa.string())]
        for name, is_text in self._texts.items():
            if is_text:
                fields.append((f"in_{name}", pa.list_(pa.string())))
            else:
                fields += [(f"low_{name}", pa.float64()), (f"high_{name}", pa.float64())]
        return pa.schema(fields)


def _predicates(key: int, filter_: Filter) -> Iterator[dict[str, Any]]:
    """A conjunction's tests as rows: from a number to before another, or a string."""
    form = filter_.normal_form
    if form is None or len(form) != 1:
        raise ValueError(f"{filter_} is no conjunction")
    constraints = form[0].constraints
    row = {"subscription": key, "tests": len(constraints)}
    for attribute, accepted in constraints.items():
        for start, end in accepted.stretches():
            test: dict[str, Any] = {"low": None, "high": None, "value": None}
            if start[0] == NUMBER[0]:
                test["low"] = float(start[1])
                test["high"] = float(end[1]) if end[0] == NUMBER[0] else math.inf
            else:
                test["value"] = start[1]
            yield {**row, "attribute": attribute, **test}
