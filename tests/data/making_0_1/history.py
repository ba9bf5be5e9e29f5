"""Brokers with a past: their own memory of recent events, and an archive of what was before."""

import os
import shutil
from pathlib import Path

from sterna.model.filters import Filter
from tests.data.kept import KeptEvent, KeptSubscription, value_of
from tests.data.making_0_1.archive import archive
from tests.data.making_0_1.content import AFTERWARDS, publications
from tests.data.making_0_1.recording import Recording
from tests.net.live import until


async def recent(directory: Path, case: Path) -> None:
    """The past is in the brokers' memory, which is in snapshots and logs."""
    about = (
        "Two brokers that remember recent events: B1 all of them, B2 those that a client there has "
        "subscribed to. B1 was stopped in good order, B2 was killed."
    )
    recording = Recording(directory, "history/recent", about, brokers=2)
    async with recording:
        await recording.join("p1", "B1")
        await recording.join("cars", "B2")
        await recording.subscribe("cars", "kind = 'car'")
        await recording.settle()
        await recording.publish("p1", publications(60))
        await recording.settle()
        await recording.take("cars", "kind = 'car'", 15)
        await recording.settle()
        for at, where, past in (
            ("B1", "n >= 0", 10),
            ("B1", "city = 'Zürich' OR flag = TRUE", 10),
            ("B1", "n >= 55", 10),
            ("B2", "n >= 0 AND kind = 'car'", 10),
            ("B2", "n >= 40 AND kind = 'car'", 10),
        ):
            recording.ask(at, where, past, matching(recording.manifest.events, where)[-past:])
        recording.goes_on("p1")
        recording.afterwards(AFTERWARDS)
        recording.guests()
        recording.kill_broker("B2")
        await recording.end(killed=False)
    recording.keep(case, "A new client that makes a subscription of `questions` gets that past.")


async def archived(directory: Path, case: Path) -> None:
    """The past is partly in an archive, and one client waits for it."""
    tables = directory / "tables"
    before = await _old_events(directory.with_name(directory.name + "-before"), tables)
    about = (
        "A broker with an archive, in tables/, of events that it has never seen itself. `asker` "
        "has asked for the past, and the broker was killed before the archive had answered."
    )
    recording = Recording(
        directory, "history/archive", about, brokers=1, history={"archive": str(tables)}
    )
    recording.manifest.events = before
    async with recording:
        await recording.join("p1", "B1")
        await recording.publish("p1", publications(6, first=100))
        asker = await recording.join("asker", "B1")
        await recording.settle()
        events, where = recording.manifest.events, "n >= 0 AND kind <> 'walk'"
        recording.ask("B1", "n >= 0", 100, events)
        recording.ask("B1", "n >= 0", 10, events[-10:])
        recording.ask("B1", "kind = 'car'", 5, matching(events, "kind = 'car'")[-5:])
        set_aside = _block(tables, directory.with_name(directory.name + "-aside"))
        asker.subscribe(where, past=100, name="the past")
        await until(lambda: not recording.network.ask("B1", "status")["is_settled"])
        wanted = [events.index(event) for event in matching(events, where)]
        recording.manifest.clients["asker"].subscriptions.append(
            KeptSubscription(name="the past", where=where, receives=wanted)
        )
        recording.goes_on("p1")
        recording.afterwards(AFTERWARDS)
        await recording.end(killed=True)
        _unblock(tables, set_aside)
    recording.keep(
        case,
        "A new client that makes a subscription of `questions` gets that past, first from the "
        "archive, then from the broker.",
        "`asker` gets the past that it had asked for.",
    )


def matching(events: list[KeptEvent], where: str) -> list[KeptEvent]:
    """The events that a filter matches."""
    return [
        event
        for event in events
        if Filter(where).matches({k: value_of(v) for k, v in event.attributes.items()})
    ]


async def _old_events(directory: Path, tables: Path) -> list[KeptEvent]:
    """Have the events of another network archived."""
    recording = Recording(directory, "", "", brokers=1)
    async with recording:
        await recording.join("old", "B1")
        await recording.publish("old", publications(25))
        await recording.end(killed=False)
    await archive(directory, tables, "events")
    shutil.rmtree(directory)
    shutil.rmtree(tables / "_checkpoints")
    return recording.manifest.events


def _block(tables: Path, aside: Path) -> Path:
    """Have the reader of the archive wait for ever."""
    shutil.move(tables, aside)
    for file in aside.glob("events/day=*/*.parquet"):
        pipe = tables / file.relative_to(aside)
        pipe.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)
    return aside


def _unblock(tables: Path, aside: Path) -> None:
    shutil.rmtree(tables)
    shutil.move(aside, tables)
