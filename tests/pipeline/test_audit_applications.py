"""The audit judges what applications with several sessions were given, by the same checkers."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sterna.core.facts import (
    Delivered,
    Displayed,
    Fact,
    SessionWatches,
    WatchBegun,
    WatchEnded,
    Withheld,
)
from sterna.core.replication.options import PROMISES, Filtering
from sterna.journal import Journal
from sterna.model.delivery import Fault
from sterna.model.event import Event, EventId
from sterna.model.replicas import inconsistent, missing, out_of_order
from sterna.pipeline.audit import audit_journals, in_journals
from sterna.pipeline.audit.applications import wrong_displays
from tests.net.live import SETTLE_S, connect, network_in, until
from tests.net.test_watching import destroy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRACE_US = 500
Wrong = tuple[str, str, int, Fault]


def write(directory: Path, node: str, facts: Sequence[Fact]) -> None:
    journal = Journal(directory, node)
    for position, fact in enumerate(facts, 1):
        journal.record(position, [fact])
    journal.close()


def random_ids(rng: random.Random) -> list[EventId]:
    """Some events of two publishers, some of them twice, in any order."""
    ids = [EventId(rng.choice("pq"), rng.randrange(1, 8)) for _ in range(rng.randrange(12))]
    return sorted(ids) if rng.random() < 0.3 else ids


def application(
    directory: Path, name: str, filtering: Filtering, rng: random.Random
) -> Iterator[Wrong]:
    """Write the journals of an application with two sessions; what the checkers say of it.

    Its program ends its subscription, or is killed. Another one is given the same once more.
    """
    at, sessions = f"{name}~merged", (f"{name}~1", f"{name}~2")
    told: list[Fact] = [WatchBegun(at=at, time=1, subscription="s", filtering=filtering)]
    told += [SessionWatches(at=at, time=2, client=session) for session in sessions]
    shown, withheld = random_ids(rng), random_ids(rng)[:2]
    told += [Displayed(at=at, time=100, subscription="s", events=(id_,)) for id_ in shown]
    told.append(Withheld(at=at, time=100, subscription="s", events=tuple(withheld)))
    if rng.random() < 0.5:
        told.append(WatchEnded(at=at, time=200, subscription="s"))
    told.append(WatchBegun(at=at, time=900, subscription="s", filtering=filtering))
    again = [id_ for id_ in sorted(set(shown)) if id_ not in withheld]
    told += [Displayed(at=at, time=1_000, subscription="s", events=tuple(again))]
    write(directory, at, told)
    brought: list[EventId] = []
    for session in sessions:
        ids = random_ids(rng)
        brought += ids
        late = EventId("late", 1)  # The application has ended before it comes, or was killed.
        missed = EventId("missed", 1)
        write(
            directory,
            session,
            [
                Delivered(
                    at=session,
                    time=time,
                    events=(Event(publisher=id_.publisher, seq=id_.seq, time_us=0),),
                )
                for time, id_ in [*((10, id_) for id_ in ids), (201, late), (950, missed)]
            ],
        )
    promised = PROMISES[filtering]
    if promised.ordered:
        yield from ((at, *id_, Fault.REORDERED) for id_ in out_of_order(shown))
    if promised.consistent:
        yield from ((at, *id_, Fault.DUPLICATED) for id_ in inconsistent(shown))
    yield from ((at, *id_, Fault.LOST) for id_ in missing([*shown, *withheld], brought))
    yield at, "missed", 1, Fault.LOST


@pytest.mark.spec("RE-1", "PL-5")
def test_the_audit_finds_what_the_checkers_find(tmp_path: Path, spark: "SparkSession") -> None:
    rng = random.Random(7)  # noqa: S311 - reproducible.
    expected = [
        wrong
        for number in range(40)
        for wrong in application(tmp_path, f"car-{number}", [*Filtering][number % 4], rng)
    ]

    found = wrong_displays(in_journals(spark, tmp_path), grace_us=GRACE_US).collect()

    told = [(row.client, row.publisher, row.seq, Fault(row.fault)) for row in found]
    assert sorted(told) == sorted(expected)
    assert {wrong[-1] for wrong in expected} == {Fault.REORDERED, Fault.DUPLICATED, Fault.LOST}


@pytest.mark.spec("RE-1", "RE-5", "PL-5")
def test_an_audit_of_an_application_whose_broker_dies_is_clean_and_names_what_is_forged(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """A live network; afterwards, an event is taken out of the application's journal."""
    journals, clients = tmp_path / "journals", tmp_path / "journals" / "clients"

    async def run() -> list[EventId]:
        async with (
            connect(
                *(network.url(name) for name in ("B2", "B3", "B4")),
                client="car", watch=2, journal=clients,
            ) as car,
            connect(network.url("B1"), client="p", journal=clients) as publisher,
        ):  # fmt: skip
            subscription = await car.subscribe("n > 0").ready(SETTLE_S)
            for number in range(1, 61):
                await publisher.publish(n=number % 3)
                if number == 20:
                    destroy(network, "B2")
            await until(lambda: subscription.waiting == 40)
            await until(lambda: car.sessions == ("car~2", "car~3") and len(car.brokers) == 2)
            return [event.id for event in subscription.take()]

    with network_in(tmp_path / "network", 4, journal={"enabled": True}) as network:
        *ids, left_out, last = asyncio.run(run())
    for name in ("B1", "B3", "B4"):
        (journals / name).symlink_to(network.data(name) / "journal", target_is_directory=True)

    verdict = audit_journals(spark, journals)

    assert verdict.faults == {}, verdict.findings
    assert verdict.published == 60
    assert {each.name for each in verdict.accounts.clients} >= {"car~1", "car~2"}

    for segment in [*clients.glob("car~merged*")]:
        segment.unlink()
    at = "car~merged"
    told: list[Fact] = [WatchBegun(at=at, time=1, subscription="s", filtering="holding")]
    told += [SessionWatches(at=at, time=2, client="car~2")]
    told += [Displayed(at=at, time=2**52, subscription="s", events=(*ids, last))]
    write(clients, at, told)

    forged = audit_journals(spark, journals)

    (finding,) = forged.findings
    assert (finding.client, finding.publisher, finding.seq) == (at, *left_out)
    assert (finding.fault, finding.path) == (Fault.LOST, (f"car~2 → {at}",))
    assert forged.faults == {Fault.LOST: 1}
