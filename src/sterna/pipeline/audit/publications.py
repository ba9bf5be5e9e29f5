"""What was published: in the journals of publishers, or else of their brokers."""

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.pipeline.audit.stated import LIVE, STARTS, Stated

PARTS_MAX = 16
"""Of a publisher that has recorded its numbers in more parts, workers look at each event."""


def published(stated: Stated, conducts: DataFrame, *columns: str) -> DataFrame:
    """The facts that state what was published, with these columns.

    What a publisher's journal lacks is in its broker's, among the events it has accepted: all of
    them if there is no such journal, some if the publisher was killed or ran without it.
    """
    # A client with more parts than a few is not looked up here, fact by fact; `is_recorded` is.
    few = F.when(F.size("recorded") <= PARTS_MAX, F.col("recorded"))
    speakers = conducts.select("world", F.col("client").alias("whose"), few.alias("recorded"))
    is_news = (F.col("world") == LIVE) & ~is_recorded(F.array_min("seqs"), F.array_max("seqs"))
    return (
        stated(["Published", "Accepted"], "link", *dict.fromkeys(("seqs", *columns)))
        # What publishers state has no link; that of a client is not in one place with all others'.
        .withColumn("whose", F.coalesce("link", "at"))
        .join(speakers, ["world", "whose"], "left")
        .where((F.col("kind") == "Published") | is_news)
        .drop("recorded", "whose")
    )


def is_recorded(first: Column, last: Column) -> Column:
    """Whether a publisher has recorded these numbers, by the column `recorded`."""
    parts = F.col("recorded")
    is_in = F.exists(parts, lambda part: (part["first"] <= first) & (last <= part["last"]))
    return F.coalesce(is_in, F.lit(col=False))


def recorded(stated: Stated) -> DataFrame:
    """Of each client, the numbers of the events that it has recorded, as ranges without a gap.

    And the first event of each run of its program: its moment and its number (`openings`).
    """
    by_time = Window.partitionBy("world", "client").orderBy("moment", "position", "turn")
    facts = (
        stated(["Published", *STARTS], "seqs")
        .select(
            *("world", "kind", "moment", "position", "turn"),
            F.col("at").alias("client"),
            F.array_min("seqs").alias("first"),
            F.array_max("seqs").alias("last"),
        )
        .withColumn("before", F.lag("kind").over(by_time))
        .where(F.col("kind") == "Published")
        .withColumn("opening", F.when(F.col("before").isin(*STARTS), F.struct("moment", "first")))
    )
    in_order = Window.partitionBy("world", "client").orderBy("first")
    before = F.max("last").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    is_apart = F.coalesce(F.col("first") > before + 1, F.lit(col=True))
    return (
        facts.withColumn("is_apart", is_apart)
        .withColumn("part", F.count_if("is_apart").over(in_order))
        .groupBy("world", "client", "part")
        .agg(
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.collect_list("opening").alias("openings"),
        )
        .groupBy("world", "client")
        .agg(
            F.sort_array(F.collect_list(F.struct("first", "last"))).alias("recorded"),
            F.flatten(F.collect_list("openings")).alias("openings"),
        )
    )


Event = tuple[str, int, int, dict[str, bool | int | float | str], bytes]
"""Publisher, number, time, attributes and payload, as journals have them."""

decode_events = msgspec.msgpack.Decoder(list[Event]).decode


CONTENTS = (
    "world STRING, publisher STRING, seq BIGINT, kind STRING, published BIGINT, content BINARY"
)


def contents(facts: DataFrame) -> DataFrame:
    """A row for each event of facts with the column `events`: its attributes are the `content`."""
    return facts.select("world", "kind", "moment", "events").mapInArrow(_contents, CONTENTS)


def _contents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    encode = msgspec.msgpack.Encoder().encode
    for batch in batches:
        names = ("world", "kind", "moment", "events")
        rows = [
            (world, event[0], event[1], kind, moment, encode(event[3]))
            for world, kind, moment, events in zip(
                *(batch[name].to_pylist() for name in names), strict=True
            )
            for event in decode_events(events)
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(_CONTENTS)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column, field.type)
                for column, field in zip(columns, _CONTENTS, strict=True)
            ],
            schema=_CONTENTS,
        )


_CONTENTS = pa.schema(
    {
        **dict.fromkeys(("world", "publisher"), pa.string()),
        "seq": pa.int64(),
        "kind": pa.string(),
        "published": pa.int64(),
        "content": pa.binary(),
    }
)
