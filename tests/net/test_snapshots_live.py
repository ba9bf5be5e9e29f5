"""Broker processes whose snapshots are attacked, or fail: others do not notice, and all is kept."""

import asyncio
import resource
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from sterna.net.local import LocalNetwork
from tests.net.live import Client, connect, gather_events, network_in, settle, until

ALTERNATIVES = " OR ".join(f"a{number} = 1" for number in range(65))
"""More than the index takes apart: it compiles a function for it."""

WAIT_S = 1.0
"""So long an innocent client may wait for an acknowledged event."""

REMEMBERED = 200
"""So many large events, which a broker remembers, make a state of 2 MB."""

STOP_S = 5.0
"""So long a broker may take to end, on a slow machine."""


async def witnessed(
    publisher: Client, subscriber: Client, attack: Callable[[], Coroutine[None, None, None]]
) -> None:
    """During an attack, all events of others arrive, in order, and none takes long."""
    subscription = subscriber.subscribe("good >= 0")
    await subscription.ready(timeout=10)
    task = asyncio.create_task(attack())
    number, longest_s = 0, 0.0
    while not task.done() or number < 20:
        began = time.perf_counter()
        await publisher.publish(good=number)
        (event,) = await gather_events(subscription, 1)
        longest_s = max(longest_s, time.perf_counter() - began)
        assert event.attributes["good"] == number
        number += 1
    await task
    assert longest_s < WAIT_S


async def use(network: LocalNetwork) -> None:
    """What brokers and this process load when they are first used is not an attack's doing."""
    for name in network.names:
        async with connect(network.url(name), client=f"first-{name}") as client:
            for number in range(100):
                client.subscribe(f"n = {number} AND m > {number}")
            await client.publish_all({"n": number, "m": 2 * number} for number in range(100))


def positions(network: LocalNetwork, name: str) -> list[str]:
    return sorted(path.name for path in network.data(name).glob("log/*.snapshot"))


def ends_well(network: LocalNetwork, name: str) -> None:
    began = time.monotonic()
    assert network.end(name) == 0
    assert time.monotonic() - began < STOP_S
    said = network.messages(name).read_text(encoding="utf-8")
    assert "Traceback" not in said
    assert "no snapshot" not in said


@pytest.mark.spec("LV-1", "LV-6")
def test_a_subscription_with_many_alternatives_among_many(tmp_path: Path) -> None:
    """Snapshots are made; brokers and a client with a state end as usual, and continue."""
    network = network_in(tmp_path, 2, durability={"snapshot_inputs": 100})
    state = tmp_path / "state"

    async def attack() -> None:
        async with connect(network.url("B1"), client="odd", state=state) as odd:
            odd.subscribe(ALTERNATIVES, name="alternatives")
            for number in range(40):
                odd.subscribe(f"n = {number}")
            before = [positions(network, name) for name in network.names]
            while [positions(network, name) for name in network.names] == before:
                await odd.publish(a3=1)
            for number in range(40, 300):
                odd.subscribe(f"n = {number}")
                await asyncio.sleep(0)  # The witnesses are in the same process.
            await odd.drain()
            made = positions(network, "B1")
            while positions(network, "B1") == made:
                await odd.publish(a3=1)

    async def run() -> None:
        await use(network)
        async with (
            connect(network.url("B1"), client="p") as publisher,
            connect(network.url("B2"), client="s") as subscriber,
        ):
            await witnessed(publisher, subscriber, attack)
            await settle(network, [publisher, subscriber])
            known = {name: network.ask(name, "status") for name in network.names}
            assert {each["log"]["snapshots_failed"] for each in known.values()} == {0}
            for name in network.names:
                await asyncio.to_thread(ends_well, network, name)
            for name in network.names:
                await asyncio.to_thread(network.restart, name)
            await asyncio.to_thread(network.wait_until_whole)
            await settle(network, [publisher, subscriber])
            for name in network.names:
                subscriptions = network.ask(name, "status")["subscriptions"]
                assert subscriptions == known[name]["subscriptions"] >= 300

            async with connect(network.url("B2"), client="odd", state=state) as odd:
                again = odd.subscribe(ALTERNATIVES, name="alternatives")
                again.take()
                await again.ready(timeout=10)
                await publisher.publish(a64=1)
                assert [dict(e.attributes) for e in await gather_events(again, 1)] == [{"a64": 1}]

    with network:
        asyncio.run(run())


@pytest.mark.spec("LV-1", "LV-6")
def test_a_disk_that_has_no_room_for_the_snapshot(tmp_path: Path) -> None:
    """The system refuses files of its size: that is told, and the broker serves on and ends well.
    With more room, snapshots are made again.
    """
    small = {"snapshot_inputs": 50, "segment_bytes": 200_000, "snapshot_bytes": 10_000}
    network = network_in(tmp_path, 1, durability=small, history={"events_max": 1_000_000})

    def limit(size: int) -> None:
        """Limit files to a size: enough for those of the log, with the zeros ahead."""
        resource.prlimit(network.pid("B1"), resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def log_status() -> dict[str, object]:
        found: dict[str, object] = network.ask("B1", "status")["log"]
        return found

    async def attack() -> None:
        async with connect(network.url("B1"), client="large") as large:
            while log_status()["snapshots_failed"] != 2:
                for _ in range(10):
                    await large.publish(n=1)

    async def run() -> None:
        async with (
            connect(network.url("B1"), client="p") as publisher,
            connect(network.url("B1"), client="s") as subscriber,
        ):
            limit(1_400_000)
            await publisher.publish_all(({"large": n}, bytes(10_000)) for n in range(REMEMBERED))
            await witnessed(publisher, subscriber, attack)
            assert "bytes were written" in str(log_status()["snapshot_problem"])
            limit(resource.RLIM_INFINITY)
            for _ in range(int(str(log_status()["inputs_since_snapshot"]))):  # Enough for a try.
                await publisher.publish(n=1)
            await until(lambda: not log_status()["snapshots_failed"])
            limit(1_400_000)
            await publisher.publish(n=1)
            began = time.monotonic()
            assert await asyncio.to_thread(network.end, "B1") == 0
            assert time.monotonic() - began < STOP_S
            said = network.messages("B1").read_text(encoding="utf-8")
            assert said.count("has made no snapshot") == 2
            assert "Traceback" not in said
            await asyncio.to_thread(network.restart, "B1")
            past = subscriber.subscribe("large >= 0", past=REMEMBERED)
            events = await gather_events(past, REMEMBERED)
            assert [event.attributes["large"] for event in events] == list(range(REMEMBERED))

    with network:
        asyncio.run(run())


@pytest.mark.spec("LV-2")
def test_a_client_whose_last_snapshot_fails_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has everything."""
    state = tmp_path / "state"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("sterna.net.storage.log.write_snapshot", full)
            async with connect(network.url("B1"), client="c", state=state) as client:
                client.subscribe("n = 1", name="one")
                await client.drain()
        async with (
            connect(network.url("B1"), client="c", state=state) as client,
            connect(network.url("B1"), client="p") as publisher,
        ):
            one = client.subscribe("n = 1", name="one")
            await one.ready(timeout=10)
            await publisher.publish(n=1)
            assert len(await gather_events(one, 1)) == 1

    with network_in(tmp_path / "network", 1) as network:
        asyncio.run(run())
