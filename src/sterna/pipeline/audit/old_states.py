"""Publishers that went back to an old state of theirs, and numbers that their clients had passed.

A publisher numbers its events upwards, and clients drop what comes with a smaller number than they
had: it was here before. If another program of its name has sent greater numbers meanwhile, and the
publisher comes back with its old state, clients drop what it sends then. Nobody has lost that.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import Fault
from sterna.pipeline.audit.ledger import identities
from sterna.pipeline.audit.stated import LIVE, Stated, moments

_NUMBERS = "publisher STRING, seq BIGINT"


def passed(
    rows: Sequence[Row], stated: Stated, odd: DataFrame, *, grace_us: int
) -> set[tuple[str, int]]:
    """Of the events that are missing, those that brokers may have accepted after a greater number.

    What a publisher's own journal has was published in the order of its numbers.
    """
    lost = {(row.publisher, row.seq) for row in rows if is_live_loss(row)}
    if not lost:
        return set()
    asked = odd.sparkSession.createDataFrame(sorted(lost), _NUMBERS)
    asked = asked.join(odd.where("NOT is_own").select("publisher", "seq"), ["publisher", "seq"])
    accepted = identities(
        stated(["Accepted"], "publishers", "seqs").where(F.col("world") == LIVE),
        *("world", "at", "moment"),
    )
    found = (
        accepted.join(asked.select("publisher").distinct(), "publisher", "left_semi")
        .join(asked.withColumn("is_asked", F.lit(col=True)), ["publisher", "seq"], "left")
        .select("publisher", "seq", "at", "moment", "is_asked")
        .repartition("publisher")
        .sortWithinPartitions("publisher", F.desc("seq"))
        .mapInArrow(_Passed(moments(grace_us)), _NUMBERS)
    )
    return {(row.publisher, row.seq) for row in found.collect()}


def is_live_loss(row: Row) -> bool:
    """Whether a finding is an event that a client of a real network has lost."""
    return bool(row.fault == Fault.LOST and row.world == LIVE)


class _Passed:
    """One partition: numbers of each publisher, the greatest first."""

    def __init__(self, grace: int) -> None:
        self._grace = grace

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whose: str | None = None
        earliest: dict[str, int] = {}
        """When each broker first accepted one of the greater numbers."""
        same: list[dict[str, Any]] = []
        """What was accepted of one number."""
        for batch in batches:
            found: list[dict[str, Any]] = []
            for row in batch.to_pylist():
                if same and (row["publisher"], row["seq"]) != (whose, same[0]["seq"]):
                    found += self._judged(same, earliest)
                    same = []
                if row["publisher"] != whose:
                    whose, earliest = row["publisher"], {}
                same.append(row)
            yield pa.RecordBatch.from_pylist(found, _SCHEMA)
        yield pa.RecordBatch.from_pylist(self._judged(same, earliest), _SCHEMA)

    def _judged(self, same: list[dict[str, Any]], earliest: dict[str, int]) -> list[dict[str, Any]]:
        """The number, if it is asked for and all its copies may have come after a greater one."""
        is_late = bool(same) and all(self._is_late(row, earliest) for row in same)
        for row in same:
            earliest[row["at"]] = min(row["moment"], earliest.get(row["at"], row["moment"]))
        if not is_late or not same[0]["is_asked"]:
            return []
        return [{"publisher": same[0]["publisher"], "seq": same[0]["seq"]}]

    def _is_late(self, row: dict[str, Any], earliest: dict[str, int]) -> bool:
        """Whether a greater number may have been accepted before: clocks of brokers differ."""
        return any(
            moment < row["moment"] + (0 if broker == row["at"] else self._grace)
            for broker, moment in earliest.items()
        )


_SCHEMA = pa.schema({"publisher": pa.string(), "seq": pa.int64()})
