"""The way of an event through the network, hop by hop, for each finding that is listed."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.report.gathering import ReportTables, Rows, rows_of

ARROW = " → "


class Step(NamedTuple):
    """A broker that has sent the event on."""

    time: datetime | None
    """None in tables of earlier releases, which have the order only."""
    broker: str
    to: str


@dataclass(frozen=True, kw_only=True)
class Way:
    """All that tables have of one wrong delivery."""

    number: int
    fault: str
    world: str
    client: str
    """Empty if it is wrong how the event came to a broker, whoever got it then."""
    publisher: str
    seq: int
    steps: tuple[Step, ...]
    known: frozenset[str] = frozenset()
    """All brokers of the network: one that only got the event states nothing."""
    content: dict[str, Any] = field(default_factory=dict)
    """The attributes of the event."""
    published: datetime | None = None
    accepted_by: str | None = None
    accepted: datetime | None = None
    arrivals: tuple[tuple[datetime, str], ...] = ()
    """When the event reached the client, and as what."""
    at: str | None = None
    """The broker that the client was attached to when the event was published."""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def sent_by(self) -> list[str]:
        """The brokers that state that they have sent the event to the client."""
        return [step.broker for step in self.steps if step.to == self.client]

    @property
    def brokers(self) -> set[str]:
        """The brokers that the event is known to have come to."""
        sent = {step.broker for step in self.steps}
        got = {step.to for step in self.steps} & self.known
        return sent | got | ({self.accepted_by} if self.accepted_by is not None else set())


def ways(tables: ReportTables, findings: Rows, brokers: Iterable[str] = ()) -> list[Way]:
    """The ways of these findings, in their order, in a network with these brokers."""
    known = frozenset(brokers)
    if not findings:
        return []
    events, arrivals = _events(tables, findings), _arrivals(tables, findings)
    made = []
    for number, row in enumerate(findings, 1):
        world = row["world"] or ""
        event = events.get((world, row["publisher"], row["seq"]), {})
        made.append(
            Way(
                number=number,
                fault=row["fault"],
                world=world,
                client=row["client"],
                publisher=row["publisher"],
                seq=row["seq"],
                # What came to a broker wrongly has a first step that `accepted_by` has as well.
                steps=tuple(
                    step for step in _steps(row) if row["client"] or step.broker != row["publisher"]
                ),
                known=known,
                content=_content(event.get("attributes") or ()),
                published=event.get("time"),
                accepted_by=event.get("at"),
                accepted=event.get("at_time"),
                arrivals=tuple(
                    arrivals.get((world, row["client"], row["publisher"], row["seq"]), ())
                ),
            )
        )
    return _attached(tables, made)


def _steps(row: dict[str, Any]) -> Iterable[Step]:
    if row["hops"] is not None:
        return [Step(hop["time"], hop["broker"], hop["to"]) for hop in row["hops"]]
    pairs = (hop.partition(ARROW) for hop in row["path"] or ())
    return [Step(None, broker, to) for broker, _, to in pairs]


def _content(attributes: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Attributes as people write them, of a map whose values are one of several types."""
    found = {}
    for name, value in attributes:
        given = [each for each in value.values() if each is not None]
        found[name] = given[0] if given else None
    return found


def _worlds_of(journal: str) -> tuple[str, str]:
    """A fact is of the live world, or of that of its journal, which has a simulation's facts."""
    return "", journal


def _events(tables: ReportTables, findings: Rows) -> dict[Any, dict[str, Any]]:
    table = tables.get("events")
    if table is None:
        return {}
    found = rows_of(
        table.where(_among("publisher", findings) & _among("seq", findings)).select(
            "journal", "publisher", "seq", "time", "attributes", "at", "at_time"
        )
    )
    return {
        (world, row["publisher"], row["seq"]): row
        for row in found
        for world in _worlds_of(row["journal"])
    }


def _arrivals(tables: ReportTables, findings: Rows) -> dict[Any, list[tuple[datetime, str]]]:
    table = tables.get("deliveries")
    if table is None:
        return {}
    rows = rows_of(
        table.where(
            _among("client", findings) & _among("publisher", findings) & _among("seq", findings)
        )
        .select("journal", "client", "publisher", "seq", "time", "kind")
        .orderBy("time", "position", "turn")
    )
    found: dict[Any, list[tuple[datetime, str]]] = {}
    for row in rows:
        for world in _worlds_of(row["journal"]):
            key = (world, row["client"], row["publisher"], row["seq"])
            found.setdefault(key, []).append((row["time"], row["kind"]))
    return found


def _attached(tables: ReportTables, made: list[Way]) -> list[Way]:
    """The ways with the broker of each client when the event was published."""
    table = tables.get("movements")
    dated = [way for way in made if way.published is not None]
    if table is None or not dated:
        return made
    asked = tables.spark.createDataFrame(
        pa.table(
            {
                "number": [way.number for way in dated],
                "world": [way.world for way in dated],
                "who": [way.client for way in dated],
                "moment": pa.array([way.published for way in dated], pa.timestamp("us", "UTC")),
            }
        )
    )
    found = rows_of(
        table.where("kind IN ('attached', 'detached')")
        .join(F.broadcast(asked), F.expr("client = who AND (world = '' OR journal = world)"))
        .groupBy("number")
        .agg(
            F.expr("max_by(struct(kind, broker, time), time) FILTER (WHERE time <= moment)").alias(
                "before"
            ),
            F.expr("min(time) FILTER (WHERE time > moment)").alias("until"),
        )
    )
    by_number = {row["number"]: row for row in found}
    return [_placed(way, by_number.get(way.number)) for way in made]


def _placed(way: Way, row: dict[str, Any] | None) -> Way:
    before = None if row is None else row["before"]
    if row is None or before is None or before["kind"] != "attached":
        return way
    return replace(way, at=before["broker"], since=before["time"], until=row["until"])


def _among(column: str, findings: Rows) -> Any:
    return F.col(column).isin(sorted({row[column] for row in findings}))
