"""Clients that were on their way from one broker to another when everything ended."""

import asyncio
from pathlib import Path

from sterna.net.client import Client
from tests.data.making_0_1.content import AFTERWARDS, publications
from tests.data.making_0_1.recording import Recording
from tests.net.live import until

LINKS = {"B2": "B1", "B3": "B1", "B4": "B3"}
"""B1 is between B2 and the other two: while it is down, no handover gets done."""

MOVERS = ("walker", "wanderer", "returner")


async def killed(directory: Path, case: Path) -> None:
    """The waiting is in the logs."""
    await _make(directory, case, is_killed=True)


async def stopped(directory: Path, case: Path) -> None:
    """The waiting is in snapshots, but for B1, which was killed before."""
    await _make(directory, case, is_killed=False)


async def _make(directory: Path, case: Path, *, is_killed: bool) -> None:
    about = (
        "Clients of B2 went elsewhere while B1, which is between, was down. `walker` went to B3, "
        "which waits for what B2 has kept for it. `wanderer` went to B3 and on to B4: B3 has "
        "promised B4 to pass on what it waits for itself. `returner` went to B3 and comes back to "
        "B2. Then B2, B3 and B4 were " + ("killed." if is_killed else "stopped in good order.")
    )
    recording = Recording(
        directory, f"handover-half-done/{case.name}", about, brokers=4, links=LINKS
    )
    async with recording:
        for name, at in (("p2", "B2"), ("p3", "B3"), ("p4", "B4")):
            await recording.join(name, at)
        for name in MOVERS:
            await recording.join(name, "B2", connect_s=60)
            await recording.subscribe(name, "n >= 0", called="all")
            await recording.subscribe(name, "kind = 'car' OR city = '東京'", called="some")
        await recording.settle()
        await recording.publish("p4", publications(5))
        await recording.settle()
        for name in MOVERS:
            await recording.take(name, "all", 2)
            await recording.detach(name)
        await recording.settle()
        await recording.publish("p3", publications(6, first=5))
        await recording.publish("p2", publications(6, first=11))
        await recording.settle()
        recording.guests(is_changing=True)
        recording.kill_broker("B1")
        for name in MOVERS:
            await _go(recording, name, "B3")
        await recording.publish("p3", publications(4, first=17))
        await _wait_until_kept(recording, "B3", {"walker": 4, "wanderer": 4, "returner": 4})
        await _go(recording, "wanderer", "B4")
        await _wait_until_kept(recording, "B3", {"walker": 4, "returner": 4})
        recording.members["returner"].kept.comes_back_at = "B2"
        for name, first in (("p3", 21), ("p4", 25), ("p2", 29)):
            await recording.publish(name, publications(4, first))
        kept = {"walker": 12, "returner": 12}
        await _wait_until_kept(recording, "B3", kept)
        await _wait_until_kept(recording, "B4", {"wanderer": 8})
        await _wait_until_kept(recording, "B2", {"walker": 16, "wanderer": 16, "returner": 16})
        recording.afterwards(AFTERWARDS)
        recording.guests()
        recording.manifest.is_at_rest = False
        await recording.end(killed=is_killed)
    recording.keep(
        case,
        "B2 still has all three clients, and what it kept for them.",
        "B3 waits for `walker` and `returner`, B4 for `wanderer`; their handovers end as soon as "
        "all brokers are there.",
    )


async def _go(recording: Recording, name: str, to: str) -> None:
    """Arrive at a broker that cannot welcome a client yet, and lose the connection again."""
    member = recording.members[name]
    client = member.client
    assert client is not None
    arriving = asyncio.create_task(client.attach(recording.network.url(to)))
    await until(lambda: _is_guest(recording, client, to))
    assert not client.is_connected, "nobody has waited"
    arriving.cancel()
    await asyncio.wait([arriving])
    await client.detach()
    member.kept.was_at = member.kept.comes_back_at = to
    await until(lambda: not _is_here(recording, name, to))


def _is_guest(recording: Recording, client: Client, at: str) -> bool:
    return client.broker == at and any(
        queue["name"] == client.name and queue["subscriptions"] == 2
        for queue in recording.network.ask(at, "queues")["queues"]
    )


def _is_here(recording: Recording, name: str, at: str) -> bool:
    return any(
        queue["name"] == name and queue["is_here"]
        for queue in recording.network.ask(at, "queues")["queues"]
    )


async def _wait_until_kept(recording: Recording, at: str, wanted: dict[str, int]) -> None:
    """Wait until a broker keeps so many events for these movers, and has none of the others."""

    def kept() -> dict[str, int]:
        queues = recording.network.ask(at, "queues")["queues"]
        return {q["name"]: q["kept_events"] for q in queues if q["name"] in MOVERS}

    try:
        await until(lambda: kept() == wanted, limit_s=10)
    except TimeoutError:
        raise AssertionError(f"{at} keeps {kept()}, not {wanted}") from None
