"""What a report begins with: the time that it is about, totals, and the verdict of the audit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame

from sterna.model.delivery import Fault
from sterna.pipeline.report.gathering import ReportTables, Rows, rows_of

IN_WORDS: Mapping[str, tuple[str, str]] = {
    str(Fault.LOST): ("event was lost", "events were lost"),
    str(Fault.DUPLICATED): ("event came again", "events came again"),
    str(Fault.REORDERED): ("event came out of order", "events came out of order"),
    str(Fault.UNASKED): ("event was never asked for", "events were never asked for"),
    str(Fault.UNPUBLISHED): (
        "event was never published as it arrived",
        "events were never published as they arrived",
    ),
    str(Fault.DETACHED): (
        "event came to a client without a connection",
        "events came to clients without a connection",
    ),
    str(Fault.FORGED): ("event was forged", "events were forged"),
    str(Fault.ALTERED): ("event was altered", "events were altered"),
    str(Fault.REUSED): ("number was used twice", "numbers were used twice"),
}
"""Each fault, for one event and for several."""


class Level(StrEnum):
    """What a reader should make of a verdict."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"
    """Nothing is known to be wrong, and nothing to be right."""


@dataclass(frozen=True)
class VerdictInWords:
    """The result of the audit for people."""

    level: Level
    sentence: str
    more: str = ""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """How much there was of everything; None where no table says it."""

    begin: datetime | None = None
    end: datetime | None = None
    published: int | None = None
    delivered: int | None = None
    clients: int | None = None
    brokers: tuple[str, ...] | None = None
    handovers: int | None = None
    visits: int | None = None


def totals(tables: ReportTables) -> Totals:
    """The totals of all tables, in two queries."""
    counted = {row["table"]: row for row in _counted(tables)}
    names = _names(tables)
    brokers = {row["name"] for row in names if row["role"] == "broker"}
    clients = {row["name"] for row in names if row["role"] == "client"} - brokers
    times = [row for row in counted.values() if row["begin"] is not None]

    def count(table: str) -> int | None:
        return counted[table]["count"] if table in counted else None

    return Totals(
        begin=min((row["begin"] for row in times), default=None),
        end=max((row["end"] for row in times), default=None),
        published=count("events"),
        delivered=count("deliveries"),
        clients=len(clients) if counted else None,
        brokers=tuple(sorted(brokers)) if brokers else None,
        handovers=count("handovers"),
        visits=count("visits"),
    )


def verdict(found: Mapping[str, Any] | None) -> VerdictInWords:
    """What the audit found, in a sentence or two."""
    if found is None:
        return VerdictInWords(
            Level.OPEN,
            "These tables have no audit of deliveries.",
            "`sterna pipeline run` makes one from the journals of clients and brokers.",
        )
    faults, owed, delivered = found["faults"], found["owed"], found["deliveries"]
    among = f" among {delivered:,} deliveries" if delivered else ""
    # Tables of earlier releases do not say how much could not be judged.
    open_, unknown = found.get("open") or 0, found.get("unknown") or 0
    not_wrong = f"No delivery {'that could be judged ' if unknown else ''}was wrong{among}"
    more = " ".join([*_sure(owed, delivered), *_unjudged(open_, unknown)])
    if faults:
        wrong = sum(faults.values())
        one = "1 delivery is wrong" if wrong == 1 else f"{wrong:,} deliveries are wrong"
        order = sorted(faults, key=lambda name: [*IN_WORDS, name].index(name))
        parts = [f"{faults[name]:,} {_of(name, faults[name])}" for name in order]
        return VerdictInWords(Level.BAD, f"{one}: {', '.join(parts)}.", more)
    if not delivered and not owed:
        return VerdictInWords(
            Level.OPEN,
            "Nothing is known of deliveries: no client kept a journal, or none got an event.",
            "Connect clients with journal=DIR, or `sterna sub --journal DIR`.",
        )
    if owed == 0:
        return VerdictInWords(
            Level.OPEN,
            f"{not_wrong}; but nothing is known of losses.",
            "No event was owed for sure: no subscription was settled when something was published.",
        )
    if unknown:
        return VerdictInWords(Level.OPEN, f"{not_wrong}.", more)
    if owed is None:
        return VerdictInWords(
            Level.GOOD, f"{not_wrong}: nothing is lost, repeated or out of order."
        )
    lost = "nothing that was owed for sure is lost, nothing is" if open_ else "nothing is lost,"
    return VerdictInWords(
        Level.GOOD, f"Every delivery was right: {lost} repeated or out of order.", more
    )


def _sure(owed: int | None, delivered: int | None) -> Iterator[str]:
    if delivered:
        yield f"There are {delivered:,} deliveries."
    if owed:
        yield f"{owed:,} were owed for sure, so that their loss would be noticed."


def _unjudged(open_: int, unknown: int) -> Iterator[str]:
    if unknown:
        yield (
            f"{unknown:,} could not be judged: no journal has their events, and some journals are "
            "missing or end early."
        )
    if open_:
        yield f"{open_:,} times an event did not come, and nobody knows whether it had to."


def _of(fault: str, count: int) -> str:
    one, many = IN_WORDS.get(fault, (fault, fault))
    return one if count == 1 else many


# ---- Queries

_COUNTED = {
    "events": ("time", "true"),
    "deliveries": ("time", "kind = 'Delivered'"),
    "movements": ("time", "true"),
    "handovers": ("time", "kind = 'started'"),
    "statistics": ("time", "true"),
    "visits": ("arrived", "true"),
}
"""For tables, the column of the time, and which rows count."""

_NAMES = (
    ("events", "publisher", "client"),
    ("deliveries", "client", "client"),
    ("movements", "client", "client"),
    ("subscriptions", "client", "client"),
    ("visits", "client", "client"),
    ("statistics", "broker", "broker"),
    ("movements", "broker", "broker"),
)
"""In which columns of tables clients and brokers are named."""


def _counted(tables: ReportTables) -> Rows:
    found = [
        table.selectExpr(
            f"'{name}' AS table",
            f"CAST(min({time}) AS TIMESTAMP) AS begin",
            f"CAST(max({time}) AS TIMESTAMP) AS end",
            f"count_if({which}) AS count",
        )
        for name, (time, which) in _COUNTED.items()
        if (table := tables.get(name)) is not None
    ]
    return rows_of(reduce(DataFrame.unionByName, found)) if found else []


def _names(tables: ReportTables) -> Rows:
    found = [
        table.selectExpr(f"'{role}' AS role", f"{column} AS name").where("name IS NOT NULL")
        for name, column, role in _NAMES
        if (table := tables.get(name)) is not None
    ]
    return rows_of(reduce(DataFrame.unionByName, found).distinct()) if found else []
