"""The tables of mobility mining, column by column."""

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_STRING, _LONG, _DOUBLE, _TIME = StringType(), LongType(), DoubleType(), TimestampType()


def _table(**columns: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in columns.items()])


FIXES = _table(client=_STRING, time=_TIME, latitude=_DOUBLE, longitude=_DOUBLE)
"""Where a client was, in degrees on the globe."""

LOCAL_FIXES = _table(client=_STRING, time=_TIME, x=_DOUBLE, y=_DOUBLE)
"""Where a client was, in metres from some origin."""

TRIPS = _table(
    client=_STRING,
    started=_TIME,
    stopped=_TIME,
    origin=_STRING,
    destination=_STRING,
)
"""A client went from one place to another."""

VISITS = _table(client=_STRING, place=_STRING, arrived=_TIME, left=_TIME)
"""A client was at a place. `left` is null where the departure was not seen, as at the end of a
trace; a visit of which only the end was seen has `arrived` equal to `left`."""

RECORDED_VISITS = StructType([*VISITS, StructField("recording", _LONG)])
"""VISITS of fixes, with the number of the client's recording, counting from 0. A recording ends at
a gap; what follows it is not known to be the next place."""

MOVES = _table(
    client=_STRING,
    previous=_STRING,
    origin=_STRING,
    destination=_STRING,
    time=_TIME,
    known=_TIME,
)
"""A client went from `origin`, where it came to from `previous`, to `destination`: `time` is when
it left, null if that was not seen; `known` is when it was seen again."""

TRANSITIONS = _table(origin=_STRING, destination=_STRING, count=_LONG, probability=_DOUBLE)
"""How often a visit to one place was followed by a visit to the other, and what part this is of all
that followed."""

QUANTILES = {"p10_s": 0.1, "p25_s": 0.25, "p50_s": 0.5, "p75_s": 0.75, "p90_s": 0.9, "p99_s": 0.99}

DWELL = _table(
    place=_STRING,
    count=_LONG,
    mean_s=_DOUBLE,
    min_s=_DOUBLE,
    **dict.fromkeys(QUANTILES, _DOUBLE),
    max_s=_DOUBLE,
)
"""How long visits to a place were, over those whose beginning and end were both seen."""

PLOC = _table(place=_STRING, steps=IntegerType(), places=ArrayType(_STRING))
"""The places that can be reached in at most so many steps, in order; staying is always possible."""

EVALUATION = _table(
    held_out=_STRING,
    predictor=_STRING,
    bin=IntegerType(),
    steps=_LONG,
    hits_at_1=_LONG,
    hits_at_3=_LONG,
    probability=_DOUBLE,
)
"""How often predictors were right, by the probability of their first guess, in tenths."""

PLACES = _table(place=_STRING, latitude=_DOUBLE, longitude=_DOUBLE)
"""The positions of places, if they have names."""
