"""The facts that an audit needs, kind by kind, each with the time when it happened.

That is one number, its moment, and moments compare as the order of the facts does. A *world* is all
that can be compared. The journals of brokers and clients are one world, named "": their clocks
compare, and the moment of a fact is twice its microseconds. A journal whose facts are about other
nodes than the one that keeps it is a simulation's: it is a world of its own, named after the
journal, and the place in the journal gives the order exactly.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import StructType

from sterna.pipeline.schemas import FACTS

LIVE = ""
"""The world of brokers and clients, by their clocks."""

BEGUN = "RecordBegun"
STARTS = (BEGUN, "Restarted")
"""The facts with which a client's program begins."""

TURN_BITS = 20
"""In a world of its own, a moment is a position and so many bits for the turn."""

PLACE = ("journal", "position", "turn", "kind", "at", "time")


class Stated(Protocol):
    """A source of facts."""

    def __call__(self, kinds: Sequence[str] | None, *columns: str) -> DataFrame:
        """The facts of these kinds, or all: `PLACE`, `world`, `moment`, and these columns."""


def in_table(facts: DataFrame) -> Stated:
    """Facts of an existing table."""

    def stated(kinds: Sequence[str] | None, *columns: str) -> DataFrame:
        chosen = facts if kinds is None else facts.where(F.col("kind").isin(*kinds))
        return _placed(chosen.select(*PLACE, *columns))

    return stated


def in_journals(spark: SparkSession, directory: Path, **options: str) -> Stated:
    """Facts of all journals below a directory; only what is asked for is read.

    The options are those of `format("sterna")`.
    """

    def stated(kinds: Sequence[str] | None, *columns: str) -> DataFrame:
        wanted = StructType([FACTS[name] for name in (*PLACE, *columns)])
        facts = (
            spark.read.format("sterna")
            .options(table="facts", pushDown="true", **options)
            .schema(wanted)
            .load(str(directory))
        )
        return _placed(facts if kinds is None else facts.where(F.col("kind").isin(*kinds)))

    return stated


def _placed(facts: DataFrame) -> DataFrame:
    is_live = F.col("at") == F.col("journal")
    by_place = F.shiftleft("position", TURN_BITS) + F.col("turn")
    # An observer that sees nothing on its way does so after all else of the same microsecond.
    by_clock = F.unix_micros("time") * 2 + (F.col("kind") == "Settled").cast("long")
    return facts.withColumns(
        {
            "world": F.when(is_live, LIVE).otherwise(F.col("journal")),
            "moment": F.when(is_live, by_clock).otherwise(by_place),
        }
    )


def moments(microseconds: int) -> int:
    """A length of time as a difference between moments of the live world."""
    return 2 * microseconds


def slack(grace_us: int) -> Column:
    """By how much moments of different nodes may differ: clocks do, those of simulations do not."""
    return F.when(F.col("world") == LIVE, moments(grace_us)).otherwise(0).cast("long")
