"""How events came into the network: as their publishers state them, and as brokers accepted them.

The two are compared number by number, each with when it was published and a digest of its content.
Only the numbers that look odd are looked at more closely.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import FOREVER, Fault
from sterna.pipeline.audit.conduct import name_id
from sterna.pipeline.audit.publications import decode_events
from sterna.pipeline.audit.stated import LIVE, Stated, moments

ENTRIES = """
    publisher STRING, seq BIGINT, own BOOLEAN, broker BIGINT, moment BIGINT, time BIGINT,
    content BIGINT
"""
"""An event in a fact: its publisher's `own`, or one that a `broker` accepted; by its publisher's
clock, when it was published."""


def odd(stated: Stated, *, grace_us: int) -> DataFrame:
    """The numbers whose publications do not agree, or that only brokers have.

    `is_early`: a broker accepted the event before it was published, so their clocks differ, and
    that of the publisher is at least so much `ahead`.
    """
    entries = (
        stated(["Published", "Accepted"], "events")
        .where(F.col("world") == LIVE)
        .select("kind", "at", "moment", "events")
        .mapInArrow(_entries, ENTRIES)
    )
    own, taken = F.col("own"), ~F.col("own")
    differ = {name: F.min(name) != F.max(name) for name in ("time", "content")}
    contents = F.when(own, F.col("content"))
    told_twice = F.coalesce(F.min(contents) != F.max(contents), F.lit(col=False))
    published, accepted = F.when(own, F.col("moment")), F.when(taken, F.col("moment"))
    ahead = F.coalesce(F.min(published) - F.min(accepted), F.lit(0))
    return (
        # Numbers only: such an aggregation needs no sort.
        entries.groupBy("publisher", "seq")
        .agg(
            F.max_by("broker", accepted).alias("broker"),
            F.max(accepted).alias("accepted"),
            F.max("own").alias("is_own"),
            ahead.alias("ahead"),
            (differ["time"] | told_twice).alias("is_reused"),
            (~differ["time"] & ~told_twice & differ["content"]).alias("is_altered"),
        )
        .withColumn("is_early", F.col("ahead") > moments(grace_us))
        .where("NOT is_own OR is_early OR is_reused OR is_altered")
    )


WRONG_ENTRIES = """
    world STRING, client STRING, publisher STRING, seq BIGINT, fault STRING, moment BIGINT
"""


def wrong_entries(odd: DataFrame, known: DataFrame) -> DataFrame:
    """The faults among odd numbers, one a row; no client is named, as none need have got it."""
    journals = known.where((F.col("world") == LIVE) & (F.size("sessions") > 0)).select(
        F.col("client").alias("publisher"), F.struct("sessions", "openings").alias("journal")
    )
    return (
        odd.where("NOT is_own OR is_reused OR is_altered")
        .unionByName(journals, allowMissingColumns=True)
        .repartition("publisher")
        # What is known of a publisher comes first.
        .sortWithinPartitions("publisher", "seq")
        .mapInArrow(_wrong, WRONG_ENTRIES)
    )


class Sessions:
    """The connections of a publisher in which its journal has all that it published.

    Only the program of that run sends over such a connection. It gives its events ascending
    numbers, so what has a greater number than the first event of the run was published in the run,
    and the journal has all of the run up to its last fact.
    """

    def __init__(
        self, sessions: Sequence[Mapping[str, int]], openings: Iterable[Mapping[str, int]]
    ) -> None:
        names = ("since", "until", "broker", "begun")
        self._sessions = sorted(tuple(each[name] for name in names) for each in sessions)
        self._openings = sorted((each["moment"], each["first"]) for each in openings)

    def must_have(self, seq: int, broker: int, accepted: int) -> bool:
        """Whether the journal would have an event that a broker accepted from the publisher."""
        place = bisect_right(self._sessions, (accepted, FOREVER)) - 1
        if place < 0:
            return False
        _, until, other, begun = self._sessions[place]
        if accepted > until or broker != other:
            return False
        place = bisect_right(self._openings, (begun, -FOREVER))
        if place == len(self._openings):
            return False
        moment, first = self._openings[place]
        return moment <= until and seq > first


# ---- One partition

_digest = msgspec.msgpack.Encoder(order="deterministic").encode


def _entries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            (publisher, seq, own, broker, moment, time, content_id(attributes, payload))
            for own, broker, moment, events in _facts_of(batch)
            for publisher, seq, time, attributes, payload in decode_events(events)
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(_ENTRIES)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, _ENTRIES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ENTRIES)


def _facts_of(batch: pa.RecordBatch) -> Iterator[tuple[bool, int | None, int, bytes]]:
    columns = (batch[name].to_pylist() for name in ("kind", "at", "moment", "events"))
    for kind, at, moment, events in zip(*columns, strict=True):
        own = kind == "Published"
        yield own, None if own else name_id(at), moment, events


def content_id(attributes: Mapping[str, Any], payload: bytes) -> int:
    """A number that differs if the attributes or the payload do: two in 2**64 are the same."""
    digest = blake2b(_digest(attributes), digest_size=8)
    digest.update(payload)
    return int.from_bytes(digest.digest(), signed=True)


def _wrong(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    whose: str | None = None
    journal: Sessions | None = None
    for batch in batches:
        found: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            if whose != row["publisher"]:
                whose, journal = row["publisher"], None
            if row["journal"] is not None:
                journal = Sessions(row["journal"]["sessions"], row["journal"]["openings"] or ())
                continue
            fault = _fault_of(row, journal)
            if fault is not None:
                same = {"publisher": whose, "seq": row["seq"], "moment": row["accepted"]}
                found.append({"world": LIVE, "client": "", "fault": str(fault), **same})
        yield pa.RecordBatch.from_pylist(found, _WRONG)


def _fault_of(row: Mapping[str, Any], journal: Sessions | None) -> Fault | None:
    if row["is_reused"]:
        return Fault.REUSED
    if row["is_altered"]:
        return Fault.ALTERED
    if journal is not None and journal.must_have(row["seq"], row["broker"], row["accepted"]):
        return Fault.FORGED
    return None


_LONG, _NAME, _FLAG = pa.int64(), pa.string(), pa.bool_()

_ENTRIES = pa.schema(
    {
        "publisher": _NAME,
        "seq": _LONG,
        "own": _FLAG,
        **dict.fromkeys(("broker", "moment", "time", "content"), _LONG),
    }
)
_WRONG = pa.schema(
    {
        **dict.fromkeys(("world", "client", "publisher"), _NAME),
        "seq": _LONG,
        "fault": _NAME,
        "moment": _LONG,
    }
)
