"""How events and subscriptions meet in the workers: two layouts, and which of them fits.

Huang and Garcia-Molina (2001), section 4, divide the work of many brokers in two ways, and so does
this. `SUBSCRIPTIONS` is their distributed broadcast: each worker has a share of the subscriptions,
and every event goes to all shares. `EVENTS` is their distributed multicast: each worker has all
subscriptions, gets a part of the events, and events that nobody can want do not leave the reader.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import DataType, LongType, StructField, StructType

from sterna.model.filters import Filter
from sterna.model.filters.spark import attribute_column
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.matching import workers
from sterna.pipeline.matching.cache import CompiledCache, compiled_cache
from sterna.pipeline.matching.events import attribute_schema, shipped, without_map
from sterna.pipeline.matching.figures import WorkerFigures
from sterna.pipeline.matching.subscriptions import (
    Parsed,
    SubscriptionShare,
    SubscriptionTable,
    no_search_for_garbage,
)
from sterna.pipeline.matching.versions import Versions
from sterna.pipeline.matching.workers import LOADING, Broadcasts, Orders

if TYPE_CHECKING:
    from pyspark import Accumulator

WORKER_MEMORY_BYTES = 1 << 30


class Layout(StrEnum):
    """What is divided among the workers."""

    AUTO = "auto"
    SUBSCRIPTIONS = "subscriptions"
    EVENTS = "events"


def match_events(
    events: DataFrame,
    subscriptions: DataFrame | Versions,
    *,
    layout: Layout = Layout.AUTO,
    identity: Sequence[str] | None = None,
    worker_memory_bytes: int = WORKER_MEMORY_BYTES,
    cache: Path | str | None = None,
) -> DataFrame:
    """Each event with each subscription that matches it: the identity columns, and `subscription`.

    Attributes are columns of the events, or entries of their map `attributes`. Subscriptions are a
    table with the columns `id` and `filter`, which is read now, once; for a stream of events they
    can be `Versions`, which are read anew for each micro-batch. Compiled subscriptions are kept in
    the folder `cache` (see `compiled_cache`; "off": nowhere).
    """
    return Matching.plan(
        events,
        subscriptions,
        layout=layout,
        identity=identity,
        worker_memory_bytes=worker_memory_bytes,
        cache=cache,
    ).pairs()


@dataclass(frozen=True)
class Matching:
    """Events and compiled subscriptions, and how they will meet."""

    layout: Layout
    why: str
    shares: int
    subscriptions: int
    index_bytes: int
    """The size of all compiled subscriptions."""
    cover: Filter | None
    """Events that this does not match are not sent to workers when pairs are asked for."""
    id_type: DataType
    events: DataFrame
    selected: list[Column]
    """The columns of the events that go to the workers."""
    current: DataFrame | None
    """One row, read anew for each micro-batch: the version, and how many shares it has."""
    orders: Orders

    @classmethod
    def plan(
        cls,
        events: DataFrame,
        subscriptions: DataFrame | Versions,
        *,
        layout: Layout = Layout.AUTO,
        identity: Sequence[str] | None = None,
        worker_memory_bytes: int = WORKER_MEMORY_BYTES,
        cache: Path | str | None = None,
        listener: "Accumulator[WorkerFigures] | None" = None,
    ) -> "Matching":
        """Parse and compile the subscriptions, and choose a layout."""
        if isinstance(subscriptions, Versions):
            made = _versioned(events, subscriptions, layout, identity, worker_memory_bytes)
        else:
            made = _fixed(
                events, subscriptions, layout, identity, worker_memory_bytes, compiled_cache(cache)
            )
        return replace(made, orders=replace(made.orders, listener=listener))

    def pairs(self) -> DataFrame:
        """Each event with each subscription that matches it."""
        events = self.events
        if self.cover is not None:
            events = events.where(self.cover.to_spark(attribute_schema(events.schema)))
        return self._sent(events).mapInArrow(_with(self.orders, workers.pairs), self._schema())

    def counts(self) -> DataFrame:
        """Rows of two kinds, with `matches`, in one pass and without a row for each pair.

        Where `subscription` is null: how many subscriptions match this event; with several shares,
        a row for each. Where it is not, the identity is null: how many events of one part match
        this subscription. `per_event` and `per_subscription` add them up.
        """
        schema = self._schema().add("matches", LongType(), nullable=False)
        return self._sent(self.events).mapInArrow(_with(self.orders, workers.counts), schema)

    def per_event(self, counts: DataFrame) -> DataFrame:
        """How many subscriptions match each event, all events included."""
        names = [each.name for each in self.orders.shipment.identity]
        mine = counts.where("subscription IS NULL").select(*names, "matches")
        if self.shares == 1 and not self.orders.versioned:
            return mine
        return mine.groupBy(*names).agg(F.sum("matches").alias("matches"))

    def per_subscription(self, counts: DataFrame) -> DataFrame:
        """How many events match each subscription that matches any."""
        mine = counts.where("subscription IS NOT NULL")
        return mine.groupBy("subscription").agg(F.sum("matches").alias("matches"))

    def _sent(self, events: DataFrame) -> DataFrame:
        sent = events.select(*self.selected)
        shares = F.lit(self.shares)
        if self.current is not None:
            sent = sent.crossJoin(F.broadcast(self.current))
            shares = F.col("shares")
        if self.orders.split:
            sent = sent.withColumn("share", F.explode(F.sequence(F.lit(0), shares - 1)))
            cores = events.sparkSession.sparkContext.defaultParallelism
            parts = self.shares if self.current is None else max(self.shares, cores)
            sent = sent.repartitionById(parts, F.col("share"))
        return sent

    def _schema(self) -> StructType:
        subscription = StructField("subscription", self.id_type)
        return StructType([*self.orders.shipment.identity, subscription])


def _with(
    orders: Orders,
    work: Callable[[Orders, Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work as a function for Spark; the names in it are resolved and kept in the worker."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(orders, batches)

    return run


def _fixed(
    events: DataFrame,
    subscriptions: DataFrame,
    layout: Layout,
    identity: Sequence[str] | None,
    memory_max: int,
    cache: CompiledCache | None,
) -> Matching:
    if subscriptions.isStreaming:
        raise PipelineError(
            "subscriptions cannot be a stream: publish each version with Versions(folder).publish()"
        )
    spark = events.sparkSession
    context = spark.sparkContext
    table = SubscriptionTable.read(subscriptions)
    flat, has_map = without_map(attribute_schema(events.schema))
    cores = context.defaultParallelism

    def compile_() -> Compiled:
        with no_search_for_garbage():
            useful = table.parsed(spark).without(
                lambda name: not has_map and attribute_column(flat, name) is None
            )
            return _divided(useful, layout, memory_max, cores, spark)

    request = table.digest, flat.json(), has_map, str(layout), memory_max, cores
    made = compile_() if cache is None else cache.get(request, compile_)
    shares = made.shares
    selected, shipment = shipped(events, identity, made.attributes)
    shelf = Broadcasts(
        [context.broadcast(share.data) for share in shares],
        [share.digest for share in shares],
        [share.index_bytes for share in shares],
    )
    return Matching(
        layout=made.layout,
        why=made.why,
        shares=len(shares),
        subscriptions=len(table.ids),
        index_bytes=sum(share.index_bytes for share in shares),
        cover=made.cover,
        id_type=table.id_type,
        events=events,
        selected=selected,
        current=None,
        orders=Orders(shipment, shelf, memory_max, split=made.layout is Layout.SUBSCRIPTIONS),
    )


@dataclass(frozen=True)
class Compiled:
    """Subscriptions as a layout needs them."""

    layout: Layout
    why: str
    shares: list[SubscriptionShare]
    attributes: frozenset[str]
    """What filters refer to, and events have."""
    cover: Filter | None


def _divided(
    useful: Parsed, layout: Layout, memory_max: int, cores: int, spark: SparkSession
) -> Compiled:
    """The layout, why it was chosen, and the shares that it needs."""
    count = 1
    if layout is Layout.AUTO:
        fits = LOADING * useful.estimate_bytes() <= memory_max
        chosen = Layout.EVENTS if fits else Layout.SUBSCRIPTIONS
    else:
        chosen = layout
    if chosen is Layout.SUBSCRIPTIONS:
        count = max(cores, -(-LOADING * useful.estimate_bytes() // memory_max))
    shares = useful.compiled(max(1, min(count, len(useful))), spark)
    why = _why(layout, shares, memory_max)
    return Compiled(chosen, why, shares, useful.attributes, useful.cover())


def _why(layout: Layout, shares: Sequence[SubscriptionShare], memory_max: int) -> str:
    if layout is not Layout.AUTO:
        return "as asked for"
    size = sum(share.index_bytes for share in shares)
    verdict = "fit into" if len(shares) == 1 else "do not fit into"
    return (
        f"all subscriptions take {_mib(size)}, {_mib(LOADING * size)} while they are loaded, and "
        f"{verdict} the {_mib(memory_max)} that a worker may use"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _versioned(
    events: DataFrame,
    versions: Versions,
    layout: Layout,
    identity: Sequence[str] | None,
    memory_max: int,
) -> Matching:
    about = versions.about()
    selected, shipment = shipped(events, identity, None)
    if layout is Layout.AUTO:
        fits = LOADING * about.index_bytes <= memory_max
        layout, why = (
            (Layout.EVENTS, "the first version fits into a worker")
            if fits
            else (Layout.SUBSCRIPTIONS, "the first version does not fit into a worker")
        )
    else:
        why = "as asked for"
    return Matching(
        layout=layout,
        why=why,
        shares=about.shares,
        subscriptions=about.subscriptions,
        index_bytes=about.index_bytes,
        cover=None,
        id_type=about.id_type,
        events=events,
        selected=selected,
        current=versions.current(events.sparkSession),
        orders=Orders(
            shipment,
            versions.shelf(),
            memory_max,
            versioned=True,
            split=layout is Layout.SUBSCRIPTIONS,
        ),
    )
