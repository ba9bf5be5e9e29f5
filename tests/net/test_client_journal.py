"""A client's journal: every run of a program goes on with it, and it is written in time."""

import asyncio
from pathlib import Path

import pytest

from sterna.core.facts import Delivered, Fact, Published, RecordBegun, Restarted, Subscribed
from sterna.model.event import Event
from sterna.net import clock
from sterna.net.client import record
from sterna.net.clock import wall_us
from sterna.net.local import LocalNetwork
from tests.journal.made import contents
from tests.net.live import connect, gather_events, network_in, until


def events_in(facts: list[Fact], kind: type[Published | Delivered]) -> list[Event]:
    return [event for fact in facts if isinstance(fact, kind) for event in fact.events]


async def run_program(
    network: LocalNetwork, directory: Path, first: int, state: Path | None
) -> None:
    """Publish five events to oneself."""
    async with connect(
        network.url("B1"), client="car", journal=directory, state=state, timeout=30
    ) as client:
        subscription = client.subscribe("n >= 0", name="all")
        await subscription.ready(timeout=30)
        await client.publish_all({"n": number} for number in range(first, first + 5))
        await gather_events(subscription, 5)


@pytest.mark.spec("PL-2")
@pytest.mark.parametrize("states", [(False, False), (True, True), (False, True), (True, False)])
def test_no_run_of_a_program_is_missing(tmp_path: Path, states: tuple[bool, bool]) -> None:
    """With a state or without: whatever happened is in the journal, in its order."""
    journal = tmp_path / "journal"

    async def run(network: LocalNetwork) -> None:
        for number, has_state in enumerate(states):
            state = tmp_path / "state" if has_state else None
            await run_program(network, journal, 5 * number, state)

    with network_in(tmp_path / "brokers", 1) as network:
        asyncio.run(run(network))

    facts = [fact for _, fact in contents(journal)]
    published, delivered = (events_in(facts, kind) for kind in (Published, Delivered))
    assert [event.attributes["n"] for event in published] == list(range(10))
    assert [event.id for event in delivered] == [event.id for event in published]


def publish_until_it_is_written(directory: Path) -> None:
    """Publish an event, and read the journal until it is there; the client goes on meanwhile."""
    journal = directory / "journal"

    async def run(network: LocalNetwork) -> None:
        async with connect(network.url("B1"), client="car", journal=journal) as client:
            await client.publish(n=1)
            await until(
                lambda: len(events_in([fact for _, fact in contents(journal)], Published)) == 1,
                limit_s=20,
            )

    with network_in(directory / "brokers", 1) as network:
        asyncio.run(run(network))


@pytest.mark.spec("PL-2")
def test_what_happened_is_written_while_the_program_runs(tmp_path: Path) -> None:
    """Somebody else reads it soon after, as an audit of a running network does."""
    publish_until_it_is_written(tmp_path)


@pytest.mark.spec("PL-2")
def test_a_subscription_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit that starts right after it finds a client that subscribes."""
    monkeypatch.setattr(record, "LOOK_S", 3600)
    monkeypatch.setattr(record, "PACE_S", 3600)
    journal = tmp_path / "journal"

    async def run(network: LocalNetwork) -> None:
        async with connect(network.url("B1"), client="car", journal=journal) as client:
            client.subscribe("n >= 0")
            await until(
                lambda: kinds_in([fact for _, fact in contents(journal)], Subscribed) != [],
                limit_s=20,
            )

    with network_in(tmp_path / "brokers", 1) as network:
        asyncio.run(run(network))


@pytest.mark.spec("PL-2")
def test_what_follows_a_quiet_time_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit that starts right after an event finds it, as with the commands of the README."""
    monkeypatch.setattr(record, "LOOK_S", 3600)
    monkeypatch.setattr(record, "PACE_S", 0.0)
    publish_until_it_is_written(tmp_path)


@pytest.mark.parametrize("turns", range(6))
def test_a_journal_ends_although_something_happens_at_that_moment(
    tmp_path: Path, turns: int
) -> None:
    """What is recorded wakes the task that writes, which is told to end in the same turns."""

    async def run() -> None:
        journal = record.Record(tmp_path, "car")
        journal.open(None, lambda error: pytest.fail(str(error)))
        journal.start()
        await asyncio.sleep(0)
        journal.add(1, [RecordBegun(at="car", time=1)], 0)
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await journal.stop()

    asyncio.run(run())

    assert [fact for _, fact in contents(tmp_path)] == [RecordBegun(at="car", time=1)]


def kinds_in(facts: list[Fact], *kinds: type[Fact]) -> list[str]:
    return [type(fact).__name__ for fact in facts if isinstance(fact, kinds)]


@pytest.mark.spec("PL-2", "PL-5")
def test_a_journal_says_where_runs_begin_and_what_it_lacks(tmp_path: Path) -> None:
    """Runs: recorded, recorded, not recorded, recorded, another life, recorded."""
    journal, state = tmp_path / "journal", tmp_path / "state"
    journals = (journal, journal, None, journal, journal, journal)
    states = (state, state, state, state, None, state)

    async def run(network: LocalNetwork) -> None:
        for number, (directory, memory) in enumerate(zip(journals, states, strict=True)):
            async with connect(
                network.url("B1"), client="car", journal=directory, state=memory, timeout=30
            ) as client:
                client.subscribe("n >= 0", name="all")
                await client.publish(n=number)

    with network_in(tmp_path / "brokers", 1) as network:
        asyncio.run(run(network))

    facts = [fact for _, fact in contents(journal)]
    assert facts == sorted(facts, key=lambda fact: fact.time)
    starts = kinds_in(facts, RecordBegun, Restarted, Subscribed)
    assert starts == [
        *("RecordBegun", "Subscribed"),
        "Restarted",
        *("RecordBegun", "Subscribed"),
        *("RecordBegun", "Subscribed"),
        *("RecordBegun", "Subscribed"),
    ]
    published = [event.attributes["n"] for event in events_in(facts, Published)]
    assert published == [0, 1, 3, 4, 5], "the order is that of the runs"


@pytest.mark.spec("PL-2")
def test_the_times_in_a_journal_never_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine was set back by an hour between two runs."""
    journal = tmp_path / "journal"

    async def run(network: LocalNetwork) -> None:
        await run_program(network, journal, 0, None)
        back_us = wall_us() - 3_600_000_000
        monkeypatch.setattr(clock, "wall_us", lambda: back_us)
        await run_program(network, journal, 5, None)

    with network_in(tmp_path / "brokers", 1) as network:
        asyncio.run(run(network))

    times = [fact.time for _, fact in contents(journal)]
    assert times == sorted(times)
