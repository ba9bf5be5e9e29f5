"""Processes whose wall clock is wrong, or set between two runs."""

import asyncio
import os
import sys
from pathlib import Path
from time import monotonic

import pytest

from sterna.core.inputs import LinkUp
from sterna.core.lives import Earlier
from sterna.core.names import Peer
from sterna.net.local import LocalNetwork
from sterna.net.records import decode_record, encode_record
from tests.net.attacks import undisturbed
from tests.net.live import connect, gather_events, network_in, settle, until

CLOCK = Path(__file__).parents[1] / "data" / "making_0_1" / "clock"
"""Sets the clock of each process that finds it, by as many seconds as `CLOCK_BACK_S` has."""

HOUR_S = 3_600

PUBLISHING = """
import asyncio, os, sys, sterna

async def publish(url, first, ends):
    async with sterna.connect(url, client="pat", timeout=30) as client:
        for number in range(int(first), int(first) + 20):
            await client.publish(n=number)
        if ends == "killed":
            os._exit(0)

asyncio.run(publish(*sys.argv[1:]))
"""


def with_clock(back_s: float) -> dict[str, str]:
    """The environment of a process whose clock is set back."""
    path = os.pathsep.join([str(CLOCK), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "CLOCK_BACK_S": str(back_s)}


async def publish(url: str, first: int, ends: str, *, back_s: float) -> None:
    """Have 20 events published by a process of its own, without a state; all are acknowledged."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PUBLISHING, url, str(first), ends), env=with_clock(back_s)
    )
    assert await process.wait() == 0


@pytest.mark.spec("LV-2", "PM-1")
@pytest.mark.parametrize(
    ("ends", "then"),
    [("closed", "B1"), ("killed", "B2")],
    ids=["the same broker after a farewell", "another broker after a crash"],
)
def test_a_client_whose_clock_was_ahead_is_heard_again(
    tmp_path: Path, ends: str, then: str
) -> None:
    """In its next life the clock is right, or even behind; what is acknowledged is delivered.

    Two other clients of its broker notice nothing.
    """

    async def run(network: LocalNetwork) -> list[object]:
        async with connect(network.url("B2"), client="ann", timeout=30) as subscriber:
            subscription = subscriber.subscribe("n >= 0")
            await subscription.ready(timeout=30)
            lives = (("B1", -HOUR_S), (then, 0), ("B1", HOUR_S))
            for number, (broker, back_s) in enumerate(lives):
                async with undisturbed(network, broker):
                    await publish(network.url(broker), 20 * number, ends, back_s=back_s)
                await settle(network, [subscriber])
            return [event.attributes["n"] for event in await gather_events(subscription, 60)]

    with network_in(tmp_path, 2) as network:
        assert asyncio.run(run(network)) == list(range(60))


@pytest.mark.spec("LV-1", "PM-3")
def test_an_absence_ends_in_time_although_the_brokers_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two clients that are away, one is back in time and has missed nothing."""
    away_s = 3.0
    for name, value in with_clock(0).items():
        monkeypatch.setenv(name, value)

    async def run(network: LocalNetwork) -> float:
        url = network.url("B1")
        for name in ("late", "early"):
            client = await connect(url, client=name, state=tmp_path / name, timeout=30)
            client.subscribe("n >= 0", name="all")
            await settle(network, [client])
            await client.close()
        async with connect(url, client="pat", timeout=30) as publisher:
            await publisher.publish(n=1)

        network.end("B1")
        monkeypatch.setenv("CLOCK_BACK_S", str(HOUR_S))
        network.restart("B1")
        began = monotonic()
        async with connect(url, client="early", state=tmp_path / "early", timeout=30) as early:
            (event,) = await gather_events(early.subscribe("n >= 0", name="all"), 1)
            assert event.attributes["n"] == 1
            await until(lambda: not network.ask("B1", "status")["clients_away"], limit_s=20)
            assert network.ask("B1", "status")["clients_here"] == 1
        return monotonic() - began

    with network_in(tmp_path, 1, limits={"away_s": away_s}) as network:
        assert asyncio.run(run(network)) < 20


def test_the_log_keeps_what_a_broker_knew_of_earlier_lives() -> None:
    for features in ((), ("settings",), ("settings", "confirming")):
        for earlier in (Earlier(), Earlier(7, 0), Earlier(2**63, 2**62)):
            given = LinkUp(link="B1", peer=Peer.BROKER, features=features, earlier=earlier)
            assert decode_record(encode_record(given, 5)) == (given, 5)
