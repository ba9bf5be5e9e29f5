"""The same question in plain Spark SQL: predicates as rows, joined with values, pairs counted."""

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sterna.bench.workloads import ATTRIBUTES
from sterna.model.filters import Filter
from sterna.model.filters.values import NUMBER
from sterna.pipeline.matching import Matching

if TYPE_CHECKING:
    from sterna.bench.pipeline import Figures, Setting

SQL_EVENTS = (100, 400)
"""The numbers of events in two runs; the difference gives the cost of each event."""

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


def run(first: Callable[[int], Matching], filters: list[Filter], setting: "Setting") -> "Figures":
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
        events = some.events.cache()
        events.createOrReplaceTempView("some_events")
        events.count()
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
