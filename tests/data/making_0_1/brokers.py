"""Brokers that were stopped or killed while clients with many subscriptions were away."""

import asyncio
from pathlib import Path

from sterna.net.storage.format import GROUP_MAGIC
from tests.data.making_0_1.content import AFTERWARDS, FILTERS, publications
from tests.data.making_0_1.recording import Recording

MANY = 40
"""More subscriptions than a broker looks at one by one: it compiles an index."""


async def snapshot(directory: Path, case: Path) -> None:
    """Stopped in good order: all of the state is in snapshots."""
    about = "Three brokers that were stopped in good order, so that each has written a snapshot."
    recording = Recording(directory, "broker-snapshot", about)
    async with recording:
        await _work(recording)
        await recording.end(killed=False)
        _check(recording, snapshots=1)
    recording.keep(case, *MUST_HOLD)


async def log(directory: Path, case: Path) -> None:
    """Killed: all of the state is in logs, one of which has a torn end."""
    about = (
        "Three brokers that were killed before any snapshot: everything is in their logs. That of "
        "B3 ends with half a group, as a power cut leaves it. The publisher p3 went on while B3 "
        "was killed, so some of its events are only in its own state."
    )
    recording = Recording(directory, "broker-log", about)
    async with recording:
        await _work(recording)
        recording.guests(is_changing=True)
        for first in range(200, 260, 6):  # A few of them get through before B3 is dead.
            await recording.publish("p3", publications(6, first), waits=False)
            await asyncio.sleep(0)
        recording.kill_broker("B3")
        await recording.end(killed=True)
        _check(recording, snapshots=0)
        _tear(recording.network.data("B3") / "log")
    recording.keep(case, *MUST_HOLD, "The torn end of B3's log is cut off without a complaint.")


async def snapshot_and_log(directory: Path, case: Path) -> None:
    """Killed with both: the newest snapshot, and what came after it."""
    about = (
        "Three brokers that were killed some time after a snapshot: their state is the snapshot "
        "and the log since, which has several segments."
    )
    durability = {"snapshot_inputs": 25, "segment_bytes": 32_768}
    recording = Recording(directory, "broker-snapshot-and-log", about, durability=durability)
    async with recording:
        await _work(recording)
        await recording.end(killed=True)
        _check(recording, snapshots=1)
    recording.keep(case, *MUST_HOLD)


MUST_HOLD = (
    "B2 has more than 32 subscriptions, so it matches with its compiled index.",
    (
        "The events hold all types of attributes: also NaN, infinities, negative zero, the largest "
        "and smallest integers, strings in many scripts, and payloads."
    ),
)


async def _work(recording: Recording) -> None:
    """Some are here, one is away and one was killed while two publishers went on."""
    for name, at in (("p1", "B1"), ("p3", "B3"), ("here", "B1"), ("away", "B2"), ("far", "B3")):
        await recording.join(name, at)
    await recording.join_as_process("dead", "B2")
    for where in FILTERS:
        await recording.subscribe("away", where)
        await recording.subscribe("far", where, called=f"{where} from afar")
    for number in range(MANY):
        where = f"n >= {number} AND n < {number + 3} AND kind = '{('car', 'tram')[number % 2]}'"
        await recording.subscribe("away", where, called=f"window {number}")
    await recording.subscribe("here", "n >= 0", called="all of them")
    await recording.subscribe("dead", "n >= 0 AND flag = TRUE", called="flagged")
    await recording.subscribe("dead", "city = '東京'", called="東京")
    await recording.settle()
    await recording.publish("p1", publications(12))
    await recording.settle()
    await recording.take("here", "all of them", 5)
    await recording.take("dead", "flagged", 2, in_hand=True)
    await recording.leave("away")
    recording.kill("dead")
    await recording.leave("far")
    await recording.settle()
    for first in range(12, 48, 12):
        await recording.publish("p1", publications(6, first))
        await recording.publish("p3", publications(6, first + 6))
        await recording.settle()
    recording.afterwards(AFTERWARDS)


def _check(recording: Recording, *, snapshots: int) -> None:
    for name in recording.network.names:
        found = list((recording.network.data(name) / "log").glob("*.snapshot"))
        assert len(found) >= snapshots, name
        assert snapshots or not found, name


def _tear(log: Path) -> None:
    """Put the beginning of a group behind the last one."""
    (*_, segment) = sorted(log.glob("*.log"))
    data = segment.read_bytes()
    end = len(data.rstrip(b"\0")) + 8  # A group may end with zeros.
    segment.write_bytes((data[:end] + GROUP_MAGIC + b"torn").ljust(len(data), b"\0"))
