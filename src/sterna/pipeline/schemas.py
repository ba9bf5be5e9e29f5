"""The tables that the pipeline reads from journals, column by column."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sterna.journal import SCHEMA
from sterna.model.filters.spark import ATTRIBUTES_TYPE


def shaped(schema: StructType) -> Callable[[DataFrame], DataFrame]:
    """For `DataFrame.transform`: these columns with these types, and no others.

    In a declared pipeline `DataFrame.to` would look for tables that are not there yet.
    """
    return lambda rows: rows.select(
        *(F.col(each.name).cast(each.dataType).alias(each.name) for each in schema)
    )


def _schema(**columns: DataType | tuple[DataType, bool]) -> StructType:
    """A table; a column that may be null is a pair with True."""
    return StructType(
        [
            StructField(name, type_[0], type_[1])
            if isinstance(type_, tuple)
            else StructField(name, type_, nullable=False)
            for name, type_ in columns.items()
        ]
    )


_STRING, _LONG, _TIME = StringType(), LongType(), TimestampType()
_TEXT = (_STRING, True)
_COUNT = (_LONG, True)

_PLACE = {"journal": _STRING, "position": _LONG, "turn": IntegerType()}
"""The position of a fact: its journal, the input that caused it, and its index there."""

FACTS = StructType(
    [
        StructField("journal", _STRING, nullable=False),
        *(
            StructField("time", _TIME, field.nullable) if field.name == "time_us" else field
            for field in from_arrow_schema(SCHEMA).fields
        ),
    ]
)
"""All facts as the journal has them (docs/reference/journal.md): one row a fact and link."""

EVENTS = _schema(
    publisher=_STRING,
    seq=_LONG,
    time=_TIME,
    attributes=ATTRIBUTES_TYPE,
    payload=BinaryType(),
    at=_STRING,
    at_time=_TIME,
    **_PLACE,
)
"""Events in full: when they were published, and where and when that was recorded (`at`: the border
broker that accepted them or, from a client's journal, the publisher)."""

DELIVERIES = _schema(
    client=_STRING,
    publisher=_STRING,
    seq=_LONG,
    time=_TIME,
    kind=_STRING,
    anywhere=BooleanType(),
    place=IntegerType(),
    **_PLACE,
    subscription=_TEXT,
)
"""Events that reached clients, one a row: Delivered, Stray, Recalled, Repeated or Missed (`kind`).
`place` counts the events of one fact, from 0. `subscription` is the one whose past a Recalled is
from; for the others it is not recorded."""

MOVEMENTS = _schema(
    client=_STRING,
    kind=_STRING,
    time=_TIME,
    broker=_TEXT,
    location=_TEXT,
    **_PLACE,
)
"""Clients that came to a broker (`attached`), went (`detached`), or changed location (`moved`)."""

STATISTICS = _schema(
    broker=_STRING,
    kind=_STRING,
    time=_TIME,
    link=_TEXT,
    source=_TEXT,
    client=_TEXT,
    events=_LONG,
    replayed=_COUNT,
    held=_COUNT,
    given_up=_COUNT,
    **_PLACE,
)
"""The figures of brokers: a row a fact and link, without the identities of events."""

BAD_RECORDS = _schema(
    journal=_STRING,
    file=_TEXT,
    position=_COUNT,
    turn=(IntegerType(), True),
    kind=_TEXT,
    reason=_STRING,
    raw=(BinaryType(), True),
)
"""What could not be read, and why."""
