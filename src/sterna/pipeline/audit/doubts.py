"""Arrivals that no subscription explains that was in force when the event was published.

They are few. Each is compared with all that its client ever asked for: a subscription may have come
or gone while the event was on its way, and brokers may send a client that moves more than it wants.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import Fault, Lifetime, is_allowed, is_explained, was_published
from sterna.model.filters import Filter
from sterna.pipeline.audit.conduct import FOLLOWING, OFFER
from sterna.pipeline.audit.ledger import EARLY, EVENT, NOT_WANTED
from sterna.pipeline.audit.publications import contents, is_recorded, published
from sterna.pipeline.audit.stated import LIVE, Stated, moments

FILTERS_MAX = 65_536

DECIDED = """
    world STRING, client STRING, publisher STRING, seq BIGINT, fault STRING, moment BIGINT
"""


def decided(doubts: DataFrame, stated: Stated, known: DataFrame, *, grace_us: int) -> DataFrame:
    """The faults among doubtful arrivals, one a row."""
    recorded = known.select("world", F.col("client").alias("publisher"), "recorded")
    events = (
        contents(published(stated, known, "events"))
        .join(doubts.select(*EVENT).distinct(), list(EVENT), "left_semi")
        .join(recorded, ["world", "publisher"], "left")
        .where((F.col("kind") == "Published") | ~is_recorded(F.col("seq"), F.col("seq")))
        .groupBy(*EVENT)
        .agg(
            F.max("published").alias("published"),
            F.collect_set("content").alias("contents"),
        )
    )
    asks = (
        known.select("world", "client", F.inline("asks"))
        .where(F.col("role") != OFFER)
        .join(doubts.select("world", "client").distinct(), ["world", "client"], "left_semi")
        .select("world", "client", F.struct("*").alias("ask"))
    )
    return (
        doubts.join(events, list(EVENT), "left")
        .unionByName(asks, allowMissingColumns=True)
        .repartition("world", "client")
        # What a client asked for comes first.
        .sortWithinPartitions("world", "client", "publisher", "seq")
        .mapInArrow(partial(_decided, slack=moments(grace_us)), DECIDED)
    )


# ---- One partition

_decode = msgspec.msgpack.Decoder(dict[str, bool | int | float | str]).decode


def _decided(batches: Iterator[pa.RecordBatch], slack: int) -> Iterator[pa.RecordBatch]:
    here: tuple[str, str] | None = None
    asks: list[dict[str, Any]] = []
    wishes: Wishes | None = None
    for batch in batches:
        found: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            if here != (row["world"], row["client"]):
                here = row["world"], row["client"]
                asks, wishes = [], None
            if row["ask"] is not None:
                asks.append(row["ask"])
                continue
            if wishes is None:
                wishes = Wishes(asks)
            fault = wishes.fault_of(row, slack if row["world"] == LIVE else 0)
            if fault is not None:
                found.append({name: row[name] for name in _SAME} | {"fault": str(fault)})
        yield pa.RecordBatch.from_pylist(found, _ARROW)


_SAME = ("world", "client", "publisher", "seq", "moment")

_ARROW = pa.schema(
    {
        **dict.fromkeys(("world", "client", "publisher"), pa.string()),
        "seq": pa.int64(),
        "fault": pa.string(),
        "moment": pa.int64(),
    }
)


class Wishes:
    """All that a client ever asked for."""

    def __init__(self, asks: Sequence[Mapping[str, Any]]) -> None:
        self._following = [ask for ask in asks if ask["role"] == FOLLOWING]
        self._exact = sorted(
            (ask for ask in asks if ask["role"] != FOLLOWING), key=lambda ask: ask["asked"]
        )
        self._asked = [ask["asked"] for ask in self._exact]

    def fault_of(self, arrival: Mapping[str, Any], slack: int) -> str | None:
        """What is wrong with an arrival, or None."""
        events = [_decode(content) for content in arrival["contents"] or ()]
        if not events:
            return NOT_WANTED
        was_in_time = was_published(arrival["published"], arrival["moment"] + slack)
        if was_in_time and any(_matches(ask, events) for ask in self._permitting(arrival, slack)):
            return None
        texts = {(ask["filter"], ask["role"] == FOLLOWING): ask for ask in self._all()}
        if not any(_matches(ask, events) for ask in texts.values()):
            return NOT_WANTED
        if was_in_time:
            return Fault.UNASKED
        return EARLY if arrival["world"] == LIVE else Fault.UNPUBLISHED

    def _permitting(self, arrival: Mapping[str, Any], slack: int) -> Iterator[Mapping[str, Any]]:
        """What would permit the arrival if it matches, the likeliest first."""
        moment, published = arrival["moment"], arrival["published"] - slack
        last = bisect_right(self._asked, moment)
        latest_first = (self._exact[place] for place in range(last - 1, -1, -1))
        asks = chain(self._following, latest_first) if arrival["is_stray"] else latest_first
        for ask in asks:
            span = Lifetime(asked=ask["asked"], ended=ask["ended"], forgotten=ask["forgotten"])
            if arrival["is_stray"]:
                permits = is_explained(span, published, moment)
            else:
                permits = is_allowed(span, moment, anywhere=arrival["anywhere"])
            if permits:
                yield ask

    def _all(self) -> Iterator[Mapping[str, Any]]:
        return chain(self._following, self._exact)


_Attributes = dict[str, bool | int | float | str]


def _matches(ask: Mapping[str, Any], events: Sequence[_Attributes]) -> bool:
    test = _filter(ask["filter"], is_following=ask["role"] == FOLLOWING).matches
    return any(test(event) for event in events)


@lru_cache(maxsize=FILTERS_MAX)
def _filter(text: str, *, is_following: bool) -> Filter:
    """A filter, or what one that depends on its client may mean anywhere."""
    filter_ = Filter(text)
    return filter_.widen({}).anywhere if is_following else filter_
