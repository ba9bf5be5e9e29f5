"""An audit from beginning to end: read once, judged once, reported in numbers and findings."""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna.model.delivery import Fault
from sterna.pipeline.audit.accounts import Accounts, accounts, summed, suspects
from sterna.pipeline.audit.applications import wrong_displays
from sterna.pipeline.audit.before import nothing_to_judge
from sterna.pipeline.audit.conduct import WATCHES, conducts, controls, hearings, signs_of_life
from sterna.pipeline.audit.doubts import decided
from sterna.pipeline.audit.entries import odd, wrong_entries
from sterna.pipeline.audit.findings import UNKNOWN, explained, in_doubt, reach, wrong
from sterna.pipeline.audit.kept import PARTITIONS, Kept, planned_for_little
from sterna.pipeline.audit.ledger import (
    BY_ORDER,
    EARLY,
    GRACE_US,
    NOT_WANTED,
    lines,
    set_apart,
)
from sterna.pipeline.audit.old_states import is_live_loss, passed
from sterna.pipeline.audit.publications import recorded
from sterna.pipeline.audit.stated import LIVE, Stated, in_journals, moments
from sterna.pipeline.audit.wanted import wanted
from sterna.pipeline.audit.witnesses import ALL_TELL, Witnesses, witnesses
from sterna.pipeline.progress import step
from sterna.pipeline.source.journals import Directory

FIRST = 1
"""The position with which a journal begins, at the latest."""

FINDINGS_MAX = 100_000
"""So many wrong deliveries are reported one by one; beyond that, only their number is."""

ORDER = ("world", "client", "publisher", "seq")
WRONG = "world STRING, client STRING, publisher STRING, seq BIGINT, fault STRING, moment BIGINT"


class Hop(NamedTuple):
    """A broker that states that it has sent an event to a neighbour or a client."""

    time_us: int
    """The broker's clock then or, in a simulation, the simulated time."""
    broker: str
    to: str


class Finding(NamedTuple):
    """One wrong delivery, as a row of the findings."""

    world: str
    client: str
    """Who got it or should have got it; empty if it is wrong how the event came to a broker."""
    publisher: str
    seq: int
    fault: Fault
    path: tuple[str, ...]
    hops: tuple[Hop, ...] = ()
    """The same as `path`, with the time of each step."""

    def __str__(self) -> str:
        way = ", ".join(self.path) or "no broker states that it passed"
        whose = f" in {self.world}" if self.world else ""
        to = f" for {self.client}" if self.client else ""
        return f"{self.fault}: event {self.publisher} #{self.seq}{to}{whose} ({way})"


@dataclass(frozen=True)
class Unjudged:
    """What an audit could not judge."""

    open: int = 0
    """How many times an event did not come to a client that had subscribed to it, and nobody knows
    whether it had to: it was published soon after one of them began, or before the facts of one of
    them end."""
    unknown: int = 0
    """How many times an event came that no journal has, and it may have been published."""
    ends: tuple[str, ...] = ()
    """The brokers whose journals end before that, or are missing."""
    unattached: tuple[str, ...] = ()
    """The clients that got such events, and of which no broker is known."""
    lacks_beginning: bool = False
    """Whether some journals have lost their beginning, which may have had such events."""
    apart: int = 0
    """How many deliveries were between clients of which one has a clock that differs too much."""
    early: tuple[tuple[str, str], ...] = ()
    """Clients that got events before these were published, and the publishers: one clock of the two
    is wrong, so neither of them is judged by it."""
    witnesses: Witnesses = ALL_TELL
    """Whose clocks those are, and who has no journal."""


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
    unjudged: "Unjudged"
    accounts: Accounts
    compared: int = 0
    """How many pairs of an event and a subscription were looked at: what the work grows with."""

    @property
    def missed(self) -> int:
        """How many events did not arrive and were declared as discarded."""
        return self.accounts.total.missed

    @property
    def has_judged(self) -> bool:
        """Whether anything could be judged."""
        return bool(self.faults or self.accounts.total.judged)

    @property
    def is_clean(self) -> bool:
        """Whether something was judged, and nothing is wrong."""
        return self.has_judged and not self.faults


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
    partitions: int | None = None,
) -> Verdict:
    """Judge every delivery in some facts.

    `advertisements` says whether the network needs them; None: if there are any. Unless the facts
    are complete, what clients without a journal have published may be unknown. The work is divided
    in so many `partitions`, by default as the cluster is configured.
    """
    step("reading what clients and brokers did")
    control = controls(stated)
    spark, is_little = control.sparkSession, stated.is_little
    with (
        planned_for_little(spark) if is_little else nullcontext(),
        Kept(is_little=is_little) as kept,
    ):
        return _audited(
            stated,
            # It is used more than once, and Spark would mix up what it asks the source for.
            kept.keep(control),
            kept,
            grace_us=grace_us,
            advertisements=advertisements,
            is_complete=is_complete,
            partitions=partitions or (PARTITIONS if is_little else parallelism(spark)),
        )


def _audited(
    stated: Stated,
    control: DataFrame,
    kept: Kept,
    *,
    grace_us: int,
    advertisements: bool | None,
    is_complete: bool,
    partitions: int,
) -> Verdict:
    world, kind = F.col("world"), F.col("kind")
    (told,) = control.agg(
        F.count_if(kind == "Subscribed").alias("subscribed"),
        F.count_if(kind == "Advertised").alias("advertised"),
        F.count_if((world == LIVE) & (kind == "Settled")).alias("settled"),
        F.count_if((world == LIVE) & (kind == "Attached")).alias("attached"),
        F.count_if(kind == WATCHES).alias("watching"),
    ).collect()
    control = control.where(kind != WATCHES)
    needs_offers = bool(told.advertised) if advertisements is None else advertisements
    by_clocks = told.attached and not told.settled
    known = conducts(
        control,
        signs_of_life(stated) if by_clocks else None,
        hearings(stated) if needs_offers else None,
        grace_us=grace_us,
        partitions=partitions,
    )
    known = kept.keep(known.join(recorded(stated), ["world", "client"], "left"))
    if not stated.is_little:
        known.count()  # Spark knows how large it is then, and joins it accordingly.
    strange = kept.keep(odd(stated, grace_us=grace_us))
    told_by = witnesses(control, known, strange, grace_us=grace_us) if by_clocks else ALL_TELL
    seen_events, seen_faults = Observation(), Observation()
    who_wanted = wanted(
        *(stated, known), grace_us=grace_us, advertisements=advertisements, partitions=partitions
    ).observe(seen_events, *(F.sum(name).alias(name) for name in ("events", "pairs")))
    judged = set_apart(lines(stated, who_wanted, grace_us=grace_us), told_by.unfit)
    step("judging deliveries")
    book = kept.keep(accounts(judged))
    summary = summed(book)
    suspect = suspects(book)
    found = wrong(suspect)
    if suspect.where(F.size("doubts") > 0).count():
        step("judging what came unexpectedly")
        doubts = in_doubt(suspect)
        found = found.unionByName(decided(doubts, stated, known, grace_us=grace_us))
    found = found.unionByName(wrong_entries(strange, known))
    fault = F.col("fault")
    found = found.observe(
        seen_faults,
        *(F.count_if(fault == each).alias(each) for each in (*map(str, Fault), NOT_WANTED)),
    )
    rows = found.orderBy(fault == NOT_WANTED, *ORDER).limit(FINDINGS_MAX).collect()
    listed = Counter(row.fault for row in rows)
    rows, early = _without_wrong_clocks(rows, told_by.unfit)
    rows = _without_consequences(rows)
    dropped = passed(rows, stated, strange, grace_us=grace_us) if by_clocks else set()
    left = [row for row in rows if not is_live_loss(row) or _event(row) not in dropped]
    gone, rows = len(rows) - len(left), left
    looked_at = _seen(seen_events)
    if not looked_at:
        (counted,) = who_wanted.agg(F.sum("events").alias("events")).collect()
        looked_at = {"events": counted.events or 0, "pairs": 0}
    findings, unjudged = _explained(
        rows, stated, control, known, grace_us=grace_us, is_complete=is_complete
    )
    if told.watching:
        displays = wrong_displays(stated, grace_us=grace_us)
        findings = sorted([*findings, *_at_applications(displays)])
    beyond = _seen(seen_faults) if listed.total() == FINDINGS_MAX else {}
    dropped_faults = listed - Counter(row.fault for row in rows)
    beyond = {fault: count - dropped_faults[fault] for fault, count in beyond.items()}
    if unjudged.unknown:
        beyond.pop(NOT_WANTED, None)  # Nobody knows how many of these are wrong.
    return Verdict(
        published=looked_at["events"],
        subscribed=told.subscribed,
        owed=summary.total.owed,
        delivered=summary.total.delivered,
        faults=_counted(findings, beyond),
        findings=findings,
        unjudged=replace(
            unjudged,
            open=summary.total.open + gone,
            apart=summary.total.apart,
            early=early,
            witnesses=told_by,
        ),
        accounts=summary,
        compared=looked_at["pairs"],
    )


def _at_applications(displays: DataFrame) -> list[Finding]:
    """What applications with several sessions were given wrongly."""
    return [
        Finding(
            *(row.world, row.client, row.publisher, row.seq),
            fault=Fault(row.fault),
            path=() if row.session is None else (f"{row.session} → {row.client}",),
        )
        for row in displays.orderBy(*ORDER).limit(FINDINGS_MAX).collect()
    ]


def parallelism(spark: SparkSession) -> int:
    """In how many partitions work is divided: as configured, and no fewer than there are cores."""
    configured = spark.conf.get("spark.sql.shuffle.partitions") or "1"
    return max(int(configured), spark.sparkContext.defaultParallelism)


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


def _without_wrong_clocks(
    rows: list[Row], unfit: Sequence[str]
) -> tuple[list[Row], tuple[tuple[str, str], ...]]:
    """The faults that no wrong clock can explain, and who got events before they were published.

    The `unfit` clients are known to have such clocks.
    """
    early = {(row.client, row.publisher) for row in rows if row.fault == EARLY}
    doubtful = {*unfit, *(name for pair in early for name in pair)}
    kept = [
        row
        for row in rows
        if row.fault in _WITHOUT_CLOCKS
        or row.world != LIVE
        or doubtful.isdisjoint((row.client, row.publisher))
    ]
    return kept, tuple(sorted(early))


_WITHOUT_CLOCKS = (*BY_ORDER, str(Fault.ALTERED), str(Fault.REUSED))


def _event(row: Row) -> tuple[str, int]:
    return row.publisher, row.seq


def _without_consequences(rows: list[Row]) -> list[Row]:
    """The faults, without those of events that were forged: nobody has lost them."""
    forged = {(row.publisher, row.seq) for row in rows if row.fault == Fault.FORGED}
    return [
        row
        for row in rows
        if row.fault != Fault.LOST or row.world != LIVE or (row.publisher, row.seq) not in forged
    ]


def _explained(
    rows: list[Row],
    stated: Stated,
    control: DataFrame,
    known: DataFrame,
    *,
    grace_us: int,
    is_complete: bool,
) -> tuple[list[Finding], Unjudged]:
    """The findings, and which of the rows are none, as it is not known what was published."""
    if not rows:
        return [], Unjudged()
    step("tracing wrong deliveries")
    doubtful = [row for row in rows if row.world == LIVE and row.fault == NOT_WANTED]
    short: dict[tuple[str, int], list[str]] = {}
    unattached: set[str] = set()
    if doubtful:
        known_until = reach(stated, control, sorted({row.client for row in doubtful}))
        for row in doubtful:
            names = known_until.short_of(row.client, row.moment + moments(grace_us))
            if not known_until.is_known(row.client):
                unattached.add(row.client)
            if names or row.client in unattached or not is_complete:
                short[row.client, row.moment] = names
    told = [(*row, (row.client, row.moment) in short) for row in rows]
    found = known.sparkSession.createDataFrame(told, f"{WRONG}, is_beyond BOOLEAN")
    answers = explained(found, stated, known).collect()
    unknown = [row for row in answers if row.fault == UNKNOWN]
    ends = {name for row in unknown for name in short[row.client, row.moment]}
    findings = sorted(
        Finding(
            *(row.world, row.client, row.publisher, row.seq),
            fault=Fault(row.fault),
            path=tuple(row.path),
            hops=tuple(Hop(*hop) for hop in row.hops),
        )
        for row in answers
        if row.fault != UNKNOWN
    )
    return findings, Unjudged(
        unknown=len(unknown),
        ends=tuple(sorted(ends)),
        unattached=tuple(sorted(unattached & {row.client for row in unknown})),
        lacks_beginning=bool(unknown) and not is_complete,
    )
