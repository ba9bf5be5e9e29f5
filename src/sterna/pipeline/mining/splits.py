"""Which data is for training, which for tuning, and which is held out for testing."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.errors import PipelineError

VALIDATION = 0.3
"""The last part of the training time, which the predictors are tuned on."""

HELD_OUT_CLIENTS = 0.3


@dataclass(frozen=True, kw_only=True)
class ObservedPeriod:
    """The time of the first observation, and of the last departure, in microseconds."""

    begin_us: int
    end_us: int
    own_clocks: bool
    """Whether each client's own time is cut, from its first observation to its last departure."""
    visits: int
    clients: int
    places: int
    median_dwell_s: float | None


def span(visits: DataFrame) -> ObservedPeriod:
    """The time that visits cover."""
    row = (
        clients(visits)
        .agg(
            F.unix_micros(F.min("begin")).alias("begin_us"),
            F.unix_micros(F.max("end")).alias("end_us"),
            (F.min("begin") == F.max("begin")).alias("own_clocks"),
            F.sum("visits").alias("visits"),
            F.count(F.lit(1)).alias("clients"),
        )
        .first()
    )
    stayed_us = F.unix_micros("left") - F.unix_micros("arrived")
    places = visits.agg(
        F.count_distinct("place").alias("places"),
        # Exact but for one rank in 10,000, from sketches that all tasks make.
        F.percentile_approx(F.when(stayed_us > 0, stayed_us / 1e6), 0.5).alias("median_dwell_s"),
    ).first()
    if row is None or places is None or not row.clients:
        raise PipelineError("the input has no visits: give more data")
    found = {**row.asDict(), **places.asDict()}
    return ObservedPeriod(**{**found, "own_clocks": bool(row.own_clocks) and row.clients > 1})


def clients(visits: DataFrame) -> DataFrame:
    """For each client, the time of its first observation and of its last departure."""
    return visits.groupBy("client").agg(
        F.min("arrived").alias("begin"),
        F.coalesce(F.max("left"), F.max("arrived")).alias("end"),
        F.count(F.lit(1)).alias("visits"),
    )


def last_cut_us(visits: DataFrame, whole: ObservedPeriod, holdout: float) -> int:
    """The time of the cut; of many, of the last one."""
    if not whole.own_clocks:
        return whole.begin_us + round((whole.end_us - whole.begin_us) * (1 - holdout))
    begin, end = F.unix_micros("begin"), F.unix_micros("end")
    row = clients(visits).agg(F.max(begin + (end - begin) * (1 - holdout)).alias("cut")).first()
    return whole.end_us if row is None else round(row.cut)


def with_cuts(
    rows: DataFrame, visits: DataFrame, whole: ObservedPeriod, holdout: float
) -> DataFrame:
    """Rows of clients, with the beginning and the cuts of their time.

    What is known before `validation` is for training, what happens between it and `cut` is for
    tuning, what happens from `cut` on is for testing. `held_out` is whether the client is.
    """
    part = F.pmod(F.xxhash64("client"), F.lit(1000)) < round(HELD_OUT_CLIENTS * 1000)
    rows = rows.withColumn("held_out", part)
    begin, end = F.lit(whole.begin_us), F.lit(whole.end_us)
    if whole.own_clocks:
        own = (F.unix_micros(name).alias(f"{name}_us") for name in ("begin", "end"))
        rows = rows.join(clients(visits).select("client", *own), "client")
        begin, end = F.col("begin_us"), F.col("end_us")
    learnt = 1 - holdout
    cuts = {"begin": 0.0, "validation": learnt * (1 - VALIDATION), "cut": learnt}
    for name, at in cuts.items():
        moment = begin + ((end - begin) * at).cast("long")
        if at == 1.0:  # Nothing is held out, and the last moment counts, too.
            moment = end + 1
        rows = rows.withColumn(name, F.timestamp_micros(moment))
    return rows.drop("begin_us", "end_us")
