"""Broker processes that clients connect to under ever new names, only to vanish."""

import asyncio
from pathlib import Path

import pytest

from sterna.core.handover.messages import Arrival
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in, settle
from tests.net.test_hostile import Attacker, attacker
from tests.net.test_hostile_pressure import status

MAX = 100
NAMES = 1_500
AT_ONCE = 20
LATE_S = 2.0
"""How long an event of the witness may take, on a slow machine."""
GROWTH_BYTES_MAX = 2 * 2**20
"""What a name leaves behind that is remembered takes about 3 KB: all of them take twice this."""


async def vanish(network: LocalNetwork, name: str) -> None:
    """Come in under a name, be welcomed, and vanish."""
    async with attacker(network) as peer:
        await peer.come_in(name)
        await peer.say(Arrival(visit=1, born=0, stay=0, received=0))
        await _welcomed(peer)


async def _welcomed(peer: Attacker) -> None:
    heard = b""
    async with asyncio.timeout(SETTLE_S):
        while b"Welcome" not in heard:
            heard += await peer.reader.readuntil(b"Welcome")


async def vanish_all(network: LocalNetwork, numbers: range) -> None:
    for first in numbers[::AT_ONCE]:
        names = [f"name-{n}" for n in range(first, first + AT_ONCE)]
        await asyncio.gather(*(vanish(network, name) for name in names))


def memory_bytes(network: LocalNetwork, broker: str) -> int:
    text = Path(f"/proc/{network.pid(broker)}/status").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@pytest.mark.spec("LV-6", "LV-1")
def test_names_that_vanish_are_forgotten_everywhere(tmp_path: Path) -> None:
    """An honest client that is away keeps its events, a witness is served, and memory is bounded,
    at the broker that is attacked and at its neighbour.
    """

    async def run(network: LocalNetwork) -> None:
        async with (
            connect(network.url("B1"), client="witness") as witness,
            connect(network.url("B1"), client="honest") as honest,
        ):
            own = witness.subscribe("witness = TRUE")
            events = honest.subscribe("n >= 0")
            await settle(network, [witness, honest])
            await honest.detach()
            await witness.publish(n=0)
            await vanish_all(network, range(2 * MAX))  # What is first used does not count.
            before = {broker: memory_bytes(network, broker) for broker in ("B1", "B2")}

            attack = asyncio.create_task(vanish_all(network, range(2 * MAX, NAMES)))
            while not attack.done():
                await witness.publish(witness=True)
                async with asyncio.timeout(LATE_S):
                    await anext(own)
                await asyncio.sleep(0.01)
            await attack
            await settle(network, [witness])

            for broker, size in before.items():
                assert memory_bytes(network, broker) - size < GROWTH_BYTES_MAX
            assert (await status(network, "B1"))["clients_away"] == MAX
            await honest.attach(network.url("B1"))
            async with asyncio.timeout(SETTLE_S):
                assert (await anext(events)).attributes["n"] == 0

    with network_in(tmp_path, 2, limits={"clients_away_max": MAX}) as network:
        asyncio.run(run(network))
        assert "had to be forgotten before its time" in network.messages("B1").read_text()
