"""Clients whose process ended in the middle of something; one broker, which was stopped."""

from pathlib import Path

from tests.data.making_0_1.content import AFTERWARDS, publications
from tests.data.making_0_1.recording import Recording


async def make(directory: Path, case: Path) -> None:
    """All kinds of ends."""
    about = (
        "Clients of one broker that ended in many ways: `killed` while its application had an "
        "event in hand and others were waiting; `closed` in good order with events that nobody "
        "had taken; `unsent` in good order with events published while it was disconnected; "
        "`unsent-killed` the same, but killed; `idle` without any subscription."
    )
    recording = Recording(directory, "client-state", about, brokers=1)
    async with recording:
        await recording.join("p", "B1")
        await recording.join("closed", "B1")
        await recording.join("unsent", "B1")
        await recording.join("idle", "B1")
        await recording.join_as_process("killed", "B1")
        await recording.join_as_process("unsent-killed", "B1")
        for name in ("closed", "killed", "unsent", "unsent-killed"):
            await recording.subscribe(name, "n >= 0", called="all")
            await recording.subscribe(name, "kind = 'car' OR kind = 'bus'", called="some")
        await recording.settle()
        await recording.publish("p", publications(20))
        await recording.settle()
        await recording.take("killed", "all", 7, in_hand=True)
        await recording.take("killed", "some", 3, in_hand=True)
        await recording.wait("killed", "all", 13)
        await recording.take("closed", "all", 6)
        recording.kill("killed")
        await recording.leave("closed")
        await recording.detach("unsent")
        await recording.detach("unsent-killed")
        await recording.publish("p", publications(10, first=20))
        await recording.publish("unsent", publications(8, first=30))
        await recording.publish("unsent-killed", publications(8, first=40))
        await recording.leave("unsent")
        recording.kill("unsent-killed")
        await recording.leave("idle")
        await recording.settle()
        recording.afterwards(AFTERWARDS)
        for name in ("p", "unsent", "unsent-killed", "idle"):
            recording.goes_on(name)
        await recording.end(killed=False)
    recording.keep(
        case,
        "The event that the application of `killed` had in hand comes again, the ones before it "
        "do not; those that were waiting in its state come without the broker.",
        "What `unsent` and `unsent-killed` have published without a connection goes out.",
    )
