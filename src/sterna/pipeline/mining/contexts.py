"""How often clients went where in which contexts: the input of predictors."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.mobility import WHOLE

LEVELS = (
    ("place",),
    ("place", "previous"),
    ("place", "client"),
    ("place", "previous", "client"),
    ("place", "part"),
    ("place", "hour"),
    ("place", "quarter"),
    ("place", "previous", "part"),
    ("hour",),
)
"""The features of each kind of context."""

CHAINS = {
    "order 1": (0,),
    "order 2": (0, 1),
    "client": (0, 2),
    "client, order 2": (0, 1, 3),
    "time": (0, 4, 5, 6),
    "time, order 2": (0, 4, 7),
    "everybody": (8,),
}
"""The predictors: each goes from coarse contexts to fine ones. The last one asks where all clients
go at this hour, from wherever."""

_CLIENT_LEVELS = frozenset(n for n, features in enumerate(LEVELS) if "client" in features)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """A way of counting: which moves count, and the weight of old ones."""

    name: str
    until: str
    """The column with the time from which on moves do not count."""
    known_only: bool
    """Whether clients that are held out do not count."""
    half_life: float | None
    """The part of the time after which a move counts half; None: never."""


def with_features(moves: DataFrame) -> DataFrame:
    """MOVES whose beginning was seen, with the features of `sterna.model.mobility`.

    Their hours are those of UTC, which is the time zone of the pipeline's sessions.
    """
    hour, weekend = F.hour("time"), (F.weekday("time") >= 5).cast("int")
    part = F.when((hour < 6) | (hour >= 20), 0).when(hour < 10, 1).when(hour < 15, 2).otherwise(3)
    quarter = hour * 4 + F.floor(F.minute("time") / 15).cast("int")
    return moves.where("time IS NOT NULL").select(
        "*",
        F.col("origin").alias("place"),
        (part + 4 * weekend).alias("part"),
        (hour + 24 * weekend).alias("hour"),
        (quarter + 96 * weekend).alias("quarter"),
    )


def counted(steps: DataFrame, tallies: list[Tally], *, clients: bool) -> DataFrame:
    """How often clients went where in each context, once for each tally.

    Steps have features, `held_out` (whether their client is) and the columns that tallies name.
    Without `clients`, contexts of single clients are left out.
    """
    levels = [n for n in range(len(LEVELS)) if clients or n not in _CLIENT_LEVELS]
    weights = steps.select(
        *("place", "previous", "client", "part", "hour", "quarter", "destination"),
        *(_weight(tally).alias(tally.name) for tally in tallies),
    ).where(" OR ".join(f"`{tally.name}` > 0" for tally in tallies))
    context = F.explode(F.array(*(_context(level) for level in levels))).alias("context")
    return (
        weights.select(context, "destination", *(tally.name for tally in tallies))
        .where("context IS NOT NULL")
        .select("context.*", "destination", *(tally.name for tally in tallies))
        .groupBy("level", "place", "previous", "client", "bucket", "destination")
        .agg(*(F.sum(tally.name).alias(tally.name) for tally in tallies))
    )


def _context(level: int) -> Column:
    """The context of a level, with nothing where it has no such feature; null if one is unknown."""
    features = LEVELS[level]
    texts = ("place", "previous", "client")
    bucket = [F.col(name) for name in features if name not in texts]
    whole = F.struct(
        F.lit(level).alias("level"),
        *(
            (F.col(name) if name in features else F.lit(None).cast("string")).alias(name)
            for name in texts
        ),
        (bucket[0] if bucket else F.lit(-1)).alias("bucket"),
    )
    known = F.lit(True)  # noqa: FBT003 - a column.
    for name in features:
        known = known & F.col(name).isNotNull()
    return F.when(known, whole)


def _weight(tally: Tally) -> Column:
    """The weight of a move, in hundredths; whole numbers sum up the same in any order."""
    until = F.col(tally.until)
    weight = F.lit(WHOLE).cast("long")
    if tally.half_life is not None:
        age = (F.unix_micros(until) - F.unix_micros("known")) / (
            F.unix_micros(until) - F.unix_micros("begin")
        )
        weight = F.round(WHOLE * F.pow(F.lit(0.5), age / tally.half_life)).cast("long")
    counts = F.col("known") < until
    if tally.known_only:
        counts = counts & ~F.col("held_out")
    return F.when(counts, weight).otherwise(0)
