"""The benchmark of the pipeline: what it compares is the same question."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sterna.bench import bulk_matching, bulk_sql, workloads
from sterna.bench.measure import Progress
from sterna.bench.pipeline import MEASUREMENTS, Setting
from sterna.model.event import Scalar
from tests.scale import CAMPAIGN


def test_events_in_columns_are_those_of_the_workload() -> None:
    columns = workloads.standard_columns(60, 5)
    events = workloads._standard_events(60, 5)

    assert set(columns) == {f"a{number}" for number in range(workloads.ATTRIBUTES)}
    for name, values in columns.items():
        assert values.to_pylist() == [event.get(name) for event in events]


def test_predicates_as_rows_say_what_filters_say() -> None:
    """A conjunction holds for an event if as many of its rows do as it has tests."""
    filters = list(workloads._standard_filters(300, 3, 0.4))
    matched = 0
    for event in workloads._standard_events(20, 3):
        for key, filter_ in enumerate(filters):
            rows = list(bulk_sql._predicates(key, filter_))
            held = sum(_holds(row, event.get(row["attribute"])) for row in rows)
            assert (held == rows[0]["tests"]) == filter_.matches(event)
            matched += filter_.matches(event)
    assert matched > 20


def _holds(row: dict[str, Any], value: Scalar | None) -> bool:
    if isinstance(value, float) and row["low"] is not None:
        return bool(row["low"] <= value < row["high"])
    return value is not None and value == row["value"]


@pytest.mark.spec("PL-3")
def test_an_equi_join_finds_what_filters_match(spark: SparkSession) -> None:
    """Whether a filter is looked up by a string or by the bins of a range."""
    filters = list(workloads._standard_filters(200, 3, 0.4))
    events = workloads._standard_events(30, 3)
    columns = {"event": range(30), **workloads.standard_columns(30, 3)}
    join = bulk_sql.EquiJoin(spark.createDataFrame(pa.table(columns)), filters)

    found = [tuple(row) for row in join.pairs(spark.createDataFrame(pa.table(columns))).collect()]
    by_bins = join._wanted.where("cast(substr(attribute, 2) AS int) % 2 = 0").count()
    join.close()

    assert sorted(found) == [
        (place, key)
        for place, event in enumerate(events)
        for key, filter_ in enumerate(filters)
        if filter_.matches(event)
    ]
    assert len(found) > 50
    assert 0 < by_bins < join._wanted.count()


long_only = pytest.mark.skipif(CAMPAIGN == 1, reason="many Spark jobs; part of `make test-long`")


def small(spark: SparkSession, folder: Path, progress: Progress) -> Setting:
    return Setting(
        spark=spark,
        folder=folder,
        progress=progress,
        events=120,
        subscriptions=100,
        match_rate=0.05,
        rounds=1,
    )


@long_only
@pytest.mark.spec("PL-3")
def test_matching_is_measured_beside_processes_sql_and_brute_force(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with an error if they do not find the same pairs."""
    monkeypatch.setattr(bulk_sql, "SQL_EVENTS", (5, 10))
    monkeypatch.setattr(bulk_sql, "EQUI_TESTS_MAX", 6000)
    monkeypatch.setattr(bulk_sql, "COMPARED", 20)
    monkeypatch.setattr(bulk_matching, "BRUTE_EVENTS", 5)
    said: list[str] = []
    setting = small(spark, tmp_path, said.append)

    found = MEASUREMENTS["matching"](setting)

    assert set(found["contenders"]) == {"spark, events", "spark, subscriptions", "plain"}
    assert found["pairs"] > 100
    assert found["brute_force"]["equal"]
    assert found["pairs_written"]["events"] == 12
    assert set(found["ratios"]) >= {
        *("spark, events / plain", "spark, events / SQL", "spark, events / SQL equi-join")
    }
    assert found["sql_equi_join"]["events"] == 60
    assert found["sql_equi_join"]["pairs"] > 20
    assert found["contenders"]["spark, events"]["plan_again_s"] > 0
    assert set(found["ids"]["contenders"]) == {"spark, events", "SQL equi-join"}
    assert all(mb > 10 for mb in found["contenders"]["spark, events"]["worker_memory_mb"])
    assert any("plain SQL" in line for line in said)


@long_only
@pytest.mark.spec("PL-1")
def test_reading_journals_is_measured(spark: SparkSession, tmp_path: Path) -> None:
    found = MEASUREMENTS["source"](small(spark, tmp_path, lambda _: None))

    assert found["events"]["rows"] == found["events_written"]
    assert found["deliveries"]["rows_per_s"] > 0
