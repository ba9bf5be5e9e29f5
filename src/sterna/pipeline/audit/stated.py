"""The facts that an audit needs, kind by kind, each with the time when it happened.

That is one number, its moment, and moments compare as the order of the facts does. A *world* is all
that can be compared. The journals of brokers and clients are one world, named "": their clocks
compare, and the moment of a fact is twice its microseconds. Clients inside brokers belong to it. A
journal whose facts are about other nodes than these and the one that keeps it is a simulation's: it
is a world of its own, named after the journal, and the place in the journal gives the order
exactly.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sterna.core.names import HOSTED
from sterna.pipeline.schemas import FACTS
from sterna.pipeline.session import is_local
from sterna.pipeline.source.connector import SternaSource
from sterna.pipeline.source.journals import files_below

LIVE = ""
"""The world of brokers and clients, by their clocks."""

BEGUN = "RecordBegun"
STARTS = (BEGUN, "Restarted")
"""The facts with which a client's program begins."""

TURN_BITS = 20
"""In a world of its own, a moment is a position and so many bits for the turn."""

PLACE = ("journal", "position", "turn", "kind", "at", "time")


LITTLE_BYTES = 4 * 2**20
"""Of journals with fewer bytes, reading and planning in parallel takes longer than reading."""


class Stated(Protocol):
    """A source of facts."""

    @property
    def is_little(self) -> bool:
        """Whether the facts are so few that planning takes longer than the work itself."""

    def __call__(self, kinds: Sequence[str] | None, *columns: str) -> DataFrame:
        """The facts of these kinds, or all: `PLACE`, `world`, `moment`, and these columns."""


@dataclass(frozen=True)
class _InTable:
    facts: DataFrame
    is_little: bool

    def __call__(self, kinds: Sequence[str] | None, *columns: str) -> DataFrame:
        return _placed(_of(kinds, self.facts).select(*PLACE, *columns))


@dataclass(frozen=True)
class _InJournals:
    spark: SparkSession
    directory: Path
    options: Mapping[str, str]
    is_little: bool = False

    def __call__(self, kinds: Sequence[str] | None, *columns: str) -> DataFrame:
        facts = (
            self.spark.read.format("sterna")
            .options(table="facts", pushDown="true", **self.options)
            .schema(StructType([FACTS[name] for name in (*PLACE, *columns)]))
            .load(str(self.directory))
        )
        return _placed(_of(kinds, facts))


def in_table(facts: DataFrame, *, is_little: bool = False) -> Stated:
    """Facts of an existing table."""
    return _InTable(facts, is_little)


def in_journals(spark: SparkSession, directory: Path, **options: str) -> Stated:
    """Facts of all journals below a directory; only what is asked for is read.

    The options are those of `format("sterna")`. Small journals are read at once, by this process.
    """
    if is_local(spark.sparkContext.master or "") and _bytes_below(directory) < LITTLE_BYTES:
        return in_table(_read(spark, directory, options), is_little=True)
    return _InJournals(spark, directory, options)


def _bytes_below(directory: Path) -> int:
    found = 0
    for segment in files_below(directory):
        with suppress(FileNotFoundError):  # A broker has removed it meanwhile.
            found += segment.path.stat().st_size
    return found


def _read(spark: SparkSession, directory: Path, options: Mapping[str, str]) -> DataFrame:
    """All facts, as the data source would read them in processes of their own."""
    source = SternaSource(
        CaseInsensitiveDict({**options, "table": "facts", "path": str(directory)})
    )
    reader = source.reader(FACTS)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    schema = to_arrow_schema(FACTS, timezone="UTC")
    return spark.createDataFrame(pa.Table.from_batches(batches, schema), FACTS)


def _of(kinds: Sequence[str] | None, facts: DataFrame) -> DataFrame:
    return facts if kinds is None else facts.where(F.col("kind").isin(*kinds))


def _placed(facts: DataFrame) -> DataFrame:
    is_hosted = F.col("at").startswith(HOSTED)
    is_live = (F.col("at") == F.col("journal")) | is_hosted
    by_place = F.shiftleft("position", TURN_BITS) + F.col("turn")
    # An observer that sees nothing on its way does so after all else of the same microsecond.
    by_clock = F.unix_micros("time") * 2 + (F.col("kind") == "Settled").cast("long")
    return facts.withColumns(
        {
            "world": F.when(is_live, LIVE).otherwise(F.col("journal")),
            "moment": F.when(is_live, by_clock).otherwise(by_place),
            # A client inside brokers goes on in the journal of another one: its times ascend.
            "position": F.when(is_hosted, F.unix_micros("time")).otherwise(F.col("position")),
        }
    )


def moments(microseconds: int) -> int:
    """A length of time as a difference between moments of the live world."""
    return 2 * microseconds


def slack(grace_us: int) -> Column:
    """By how much moments of different nodes may differ: clocks do, those of simulations do not."""
    return F.when(F.col("world") == LIVE, moments(grace_us)).otherwise(0).cast("long")
