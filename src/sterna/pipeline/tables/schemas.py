"""The tables of the archive, column by column."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sterna.pipeline import schemas
from sterna.pipeline.mining.tables import DWELL, TRANSITIONS

_STRING, _LONG, _DOUBLE, _TIME = StringType(), LongType(), DoubleType(), TimestampType()


def _columns(**columns: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in columns.items()])


def _with(schema: StructType, **more: DataType) -> StructType:
    """A schema with more columns. All may be null: Parquet readers take them so anyway."""
    fields = [StructField(field.name, field.dataType) for field in schema.fields]
    return StructType([*fields, *_columns(**more).fields])


@dataclass(frozen=True)
class GrowingTable:
    """A table that grows: what was archived stays as it is."""

    name: str
    schema: StructType
    comment: str
    is_daily: bool = True
    """Whether it is partitioned by `day`, and sorted by `time` within files."""
    is_unique: bool = False
    """Whether its rows are events, by publisher and number, each of which is there once."""


_PLACE = {"journal": _STRING, "position": _LONG, "turn": IntegerType()}

HANDOVERS = _columns(
    client=_STRING,
    broker=_STRING,
    kind=_STRING,
    time=_TIME,
    replayed=_LONG,
    held=_LONG,
    **_PLACE,
)
SUBSCRIPTIONS = _columns(
    client=_STRING,
    subscription=_STRING,
    kind=_STRING,
    filter=_STRING,
    time=_TIME,
    **_PLACE,
    past_events_max=_LONG,
)

_DAY = {"day": DateType()}

GROWING = {
    table.name: table
    for table in (
        GrowingTable(
            "events",
            _with(schemas.EVENTS, **_DAY),
            "Each event once, with its content.",
            is_unique=True,
        ),
        GrowingTable(
            "deliveries", _with(schemas.DELIVERIES, **_DAY), "Events that reached clients."
        ),
        GrowingTable(
            "movements", _with(schemas.MOVEMENTS, **_DAY), "Clients that came, went or moved."
        ),
        GrowingTable("handovers", _with(HANDOVERS, **_DAY), "Handovers that began, met or ended."),
        GrowingTable("subscriptions", _with(SUBSCRIPTIONS, **_DAY), "What clients asked for."),
        GrowingTable(
            "statistics", _with(schemas.STATISTICS, **_DAY), "What brokers did, in numbers."
        ),
        GrowingTable(
            "bad_records",
            _with(schemas.BAD_RECORDS),
            "What could not be read, and why.",
            is_daily=False,
        ),
    )
}

VISITS = _columns(client=_STRING, place=_STRING, arrived=_TIME, left=_TIME, dwell_s=_DOUBLE)
NEXT_BROKER = _with(TRANSITIONS, rank=IntegerType())
TRAFFIC = _columns(broker=_STRING, link=_STRING, minute=_TIME, events=_LONG, facts=_LONG)
BOOTSTRAP_LATENCY = _columns(
    client=_STRING,
    cause=_STRING,
    subscription=_STRING,
    broker=_STRING,
    started=_TIME,
    delivered=_TIME,
    latency_s=_DOUBLE,
    asked=_LONG,
    nth_delivered=_TIME,
    nth_latency_s=_DOUBLE,
    nth_past=_LONG,
)
DELIVERY_AUDIT = _columns(
    world=_STRING,
    fault=_STRING,
    client=_STRING,
    publisher=_STRING,
    seq=_LONG,
    path=ArrayType(_STRING),
    hops=ArrayType(_columns(time=_TIME, broker=_STRING, to=_STRING)),
)
AUDIT_TOTALS = _columns(
    **dict.fromkeys(("published", "subscribed", "owed", "delivered", "wrong"), _LONG),
    grace_s=_DOUBLE,
    open=_LONG,
    unknown=_LONG,
    apart=_LONG,
    early=_LONG,
)

VIEWS: Mapping[str, StructType] = {
    "visits": VISITS,
    "dwell": _with(DWELL),
    "movement_graph": _with(TRANSITIONS),
    "next_broker": NEXT_BROKER,
    "traffic": TRAFFIC,
    "bootstrap_latency": BOOTSTRAP_LATENCY,
    "delivery_audit": DELIVERY_AUDIT,
    "audit_totals": AUDIT_TOTALS,
}
"""Tables that follow from those that grow, and are made again when those have changed."""

NAMES = (*GROWING, *VIEWS)

INPUTS: Mapping[str, tuple[str, ...]] = {
    "visits": ("movements",),
    "dwell": ("visits",),
    "movement_graph": ("visits",),
    "next_broker": ("movements",),
    "traffic": ("statistics",),
    "bootstrap_latency": ("subscriptions", "movements", "deliveries"),
}
"""The tables that a view is made of, if it is not made of the journals themselves."""

AUDITED = frozenset({"delivery_audit", "audit_totals"})
"""The tables that one audit of the journals makes."""


def with_inputs(names: Iterable[str]) -> frozenset[str]:
    """Some tables and all that they are made of."""
    found: set[str] = set()
    for name in names:
        found |= {name} | with_inputs(INPUTS.get(name, ()))
    return frozenset(found | AUDITED) if found & AUDITED else frozenset(found)
