"""An audit from beginning to end: read once, judged once, reported in numbers and findings."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import Fault
from sterna.pipeline.audit.before import nothing_to_judge
from sterna.pipeline.audit.conduct import PARTITIONS, conducts, controls, hearings, signs_of_life
from sterna.pipeline.audit.findings import explained, wrong
from sterna.pipeline.audit.ledger import GRACE_US, NOT_WANTED, lines
from sterna.pipeline.audit.publications import publications
from sterna.pipeline.audit.stated import LIVE, Stated, in_journals
from sterna.pipeline.source.journals import Directory

FIRST = 1
"""The position with which a journal begins, at the latest."""

FINDINGS_MAX = 100_000
"""So many wrong deliveries are reported one by one; beyond that, only their number is."""

ORDER = ("world", "client", "publisher", "seq")
WRONG = "world STRING, client STRING, publisher STRING, seq BIGINT, fault STRING, moment BIGINT"


class Finding(NamedTuple):
    """One wrong delivery, as a row of the findings."""

    world: str
    client: str
    publisher: str
    seq: int
    fault: Fault
    path: tuple[str, ...]

    def __str__(self) -> str:
        way = ", ".join(self.path) or "no broker states that it passed"
        whose = f" in {self.world}" if self.world else ""
        return f"{self.fault}: event {self.publisher} #{self.seq} for {self.client}{whose} ({way})"


@dataclass(frozen=True)
class Verdict:
    """The result of an audit."""

    published: int
    subscribed: int
    """How many subscriptions were made."""
    owed: int
    """How many deliveries had to be made; others may be, while subscriptions come and go."""
    delivered: int
    faults: Counter[Fault]
    findings: list[Finding]
    """The wrong deliveries in a fixed order, `FINDINGS_MAX` of them at most."""

    @property
    def is_clean(self) -> bool:
        return not self.faults


def audit_journals(
    spark: SparkSession,
    directory: Path,
    *,
    grace_us: int = GRACE_US,
    advertisements: bool | None = None,
) -> Verdict:
    """Judge every delivery in the journals below a directory."""
    verdict = audit(
        in_journals(spark, directory),
        grace_us=grace_us,
        advertisements=advertisements,
        is_complete=is_complete(directory),
    )
    if not verdict.subscribed and not verdict.delivered:
        raise nothing_to_judge(directory)
    return verdict


def is_complete(directory: Path) -> bool:
    """Whether all journals below a directory have their beginning; brokers remove it one day."""
    extents = Directory(str(directory), live=False).extents()
    return all(span.start <= FIRST for span in extents.values())


def audit(
    stated: Stated,
    *,
    grace_us: int = GRACE_US,
    advertisements: bool | None = None,
    is_complete: bool = True,
    partitions: int = PARTITIONS,
) -> Verdict:
    """Judge every delivery in some facts.

    `advertisements` says whether the network needs them; None: if there are any. Unless the facts
    are complete, what clients without a journal have published may be unknown.
    """
    # Cached, as it is used more than once; Spark would also mix up what it asks the source for.
    control = controls(stated).persist()
    world, kind = F.col("world"), F.col("kind")
    (told,) = control.agg(
        F.count_if(kind == "Subscribed").alias("subscribed"),
        F.count_if(kind == "Advertised").alias("advertised"),
        F.count_if((world == LIVE) & (kind == "Settled")).alias("settled"),
        F.count_if((world == LIVE) & (kind == "Attached")).alias("attached"),
    ).collect()
    needs_offers = bool(told.advertised) if advertisements is None else advertisements
    by_clocks = told.attached and not told.settled
    known = conducts(
        control,
        signs_of_life(stated) if by_clocks else None,
        hearings(stated) if needs_offers else None,
        grace_us=grace_us,
        partitions=partitions,
    ).persist()
    seen_events, seen_lines, seen_faults = Observation(), Observation(), Observation()
    events = publications(
        *(stated, known),
        grace_us=grace_us,
        advertisements=advertisements,
        partitions=partitions,
    ).observe(seen_events, F.count(F.lit(1)).alias("published"))
    judged = lines(stated, known, events, grace_us=grace_us).observe(
        seen_lines,
        F.count_if("is_owed").alias("owed"),
        F.sum("delivered").alias("delivered"),
    )
    fault = F.col("fault")
    found = wrong(judged).observe(
        seen_faults,
        *(F.count_if(fault == each).alias(each) for each in (*map(str, Fault), NOT_WANTED)),
    )
    rows = found.orderBy(*ORDER).limit(FINDINGS_MAX).collect()
    published = _seen(seen_events).get("published")
    if published is None:
        published = events.count()
    findings = _explained(rows, stated, known, grace_us) if rows else []
    if not is_complete:
        speakers = {row.client for row in known.select("client").distinct().collect()}
        findings = [
            each
            for each in findings
            if each.fault is not Fault.UNPUBLISHED or each.publisher in speakers
        ]
    known.unpersist()
    control.unpersist()
    return Verdict(
        published=published,
        subscribed=told.subscribed,
        owed=_seen(seen_lines).get("owed", 0),
        delivered=_seen(seen_lines).get("delivered", 0),
        faults=_counted(findings, _seen(seen_faults) if len(rows) == FINDINGS_MAX else {}),
        findings=findings,
    )


def _seen(observation: Observation) -> dict[str, int]:
    """The figures that Spark has counted; nothing, if it saw that there was nothing to do."""
    try:
        return {name: count or 0 for name, count in observation.get.items()}
    except Py4JJavaError:
        return {}


def _counted(findings: list[Finding], seen: dict[str, int]) -> Counter[Fault]:
    """How often each fault was found; the count of those not listed one by one is less exact."""
    told = Counter(finding.fault for finding in findings)
    faults = Counter({each: max(told[each], seen.get(each, 0)) for each in Fault})
    faults[Fault.UNASKED] += max(0, sum(seen.values()) - faults.total())
    return +faults


def _explained(rows: list[Row], stated: Stated, known: DataFrame, grace_us: int) -> list[Finding]:
    found = known.sparkSession.createDataFrame(rows, WRONG)
    told = explained(found, stated, known, grace_us=grace_us).collect()
    return sorted(
        Finding(
            *(row.world, row.client, row.publisher, row.seq),
            fault=Fault(row.fault),
            path=tuple(row.path),
        )
        for row in told
    )
