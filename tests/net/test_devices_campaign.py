"""Devices alone on sockets for longer: brokers are killed, networks part and meet, clients go away.

`make test` has the short version in `test_devices_alone.py`.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from sterna.model.event import EventId
from tests.net.devices import Devices
from tests.net.live import SETTLE_S, until
from tests.scale import CAMPAIGN

DEVICES = 5
ROUNDS = 30


class DevicesCampaign:
    """In each round, something goes wrong and is mended; all publish meanwhile."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.seen: Counter[str] = Counter()
        self.owed: set[EventId] = set()
        """What was accepted while all brokers knew what all clients want."""
        self._rng = Random(f"devices {seed}")  # noqa: S311 - reproducible, not secret.
        self._devices = Devices(directory, DEVICES, seed=seed)
        self._number = 0

    async def run(self, rounds: int) -> None:
        devices = self._devices
        async with devices.started():
            await devices.subscribe(*range(1, DEVICES + 1))
            for _ in range(rounds):
                brokers = await devices.whole()
                await until(lambda at=brokers: devices.are_at(at))  # type: ignore[misc]
                for id_ in await self._publish(3):
                    self.owed.add(id_)
                await self._go_wrong()
            await devices.whole()
            await self._judge()

    async def _publish(self, count: int) -> list[EventId]:
        """Some clients publish; brokers have accepted all."""
        receipts = []
        numbers = self._rng.sample(range(1, DEVICES + 1), 2)
        for number in numbers:
            client = await self._devices.client(number)
            for _ in range(count):
                self._number += 1
                receipts.append(client.publish(n=self._number))
        for number in numbers:
            await (await self._devices.client(number)).drain(timeout=SETTLE_S)
        return [receipt.id for receipt in receipts]

    async def _go_wrong(self) -> None:
        devices, rng = self._devices, self._rng
        what = rng.choice(["kill", "kill", "split", "away"])
        self.seen[what] += 1
        if what == "kill":
            broker = rng.choice(sorted(await devices.serving()))
            await devices.kill(broker)
            await self._meanwhile()
            await devices.restart(broker)
        elif what == "split":
            names = devices.network.names
            devices.fences.split({*rng.sample(names, rng.randint(1, len(names) - 1))})
            await self._meanwhile()
            devices.fences.join()
        else:
            client = await devices.client(rng.randint(1, DEVICES))
            await client.detach(timeout=SETTLE_S)
            await self._meanwhile()
            await client.attach()

    async def _meanwhile(self) -> None:
        """Go on to publish; nobody waits until that is accepted, and not all of it is owed."""
        for _ in range(self._rng.randint(1, 6)):
            self._number += 1
            client = await self._devices.client(self._rng.randint(1, DEVICES))
            client.publish(n=self._number)
            self.seen["meanwhile"] += 1
            await asyncio.sleep(self._rng.uniform(0.05, 0.8))

    async def _judge(self) -> None:
        devices = self._devices
        for number in range(1, DEVICES + 1):
            late = devices.late[f"c{number}"]
            got = await devices.get(number, self.owed - late)
            last: Counter[str] = Counter()
            for id_ in got:
                assert id_.seq > last[id_.publisher], f"c{number}: {id_} after {last}"
                last[id_.publisher] = id_.seq
            self.seen["got"] += len(got)
            self.seen["late"] += len(late)


@pytest.mark.spec("RE-4", "LV-1")
@pytest.mark.skipif(CAMPAIGN == 1, reason="for make test-long")
def test_whatever_happens_what_is_owed_comes_once_and_in_order(tmp_path: Path) -> None:
    campaign = DevicesCampaign(tmp_path, CAMPAIGN)
    asyncio.run(campaign.run(ROUNDS))
    print(f"{dict(campaign.seen)}, {len(campaign.owed)} owed to each of {DEVICES}")
    assert campaign.owed
    assert campaign.seen["got"] >= len(campaign.owed)


def main(seed: int, rounds: int) -> None:
    """From the command line: `python -m tests.net.test_devices_campaign SEED ROUNDS`."""
    with tempfile.TemporaryDirectory() as directory:
        campaign = DevicesCampaign(Path(directory), seed)
        asyncio.run(campaign.run(rounds))
        sys.stdout.write(f"{dict(campaign.seen)}, {len(campaign.owed)} owed\n")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:3]))
