"""A live network that makes its own tree, whose leaders are killed and which is split and joined.

Clients publish all the time, and roam while the network is whole. In the end all is mended, the
network settles, and the oracle of the simulator judges what clients got.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sterna.errors import NotConnectedError, SternaError
from sterna.net.client.handles import Receipt, Subscription
from sterna.sim.oracle import Oracle
from tests.net.fences import Fences
from tests.net.live import Client, connect, network_in, settle

BEAT_S = 0.5
WHOLE_S = 20.0
"""A network that is not whole after so long will not be."""
KINDS = ("car", "bus", "tram")


class ElectingCampaign:
    """Brokers behind fences, and clients. The same seed does the same, as far as processes do."""

    def __init__(self, directory: Path, seed: int, *, brokers: int = 8, clients: int = 20) -> None:
        self.seed = seed
        self.seen: Counter[str] = Counter()
        self.took: dict[str, list[float]] = {}
        """After which changes the network was whole again, each time in how many beats."""
        self.oracle = Oracle(f"c{number}" for number in range(clients))
        self._rng = random.Random(f"electing {seed}")  # noqa: S311 - reproducible, not secret.
        self.network = network_in(
            directory,
            brokers,
            network={"overlay": "elect"},
            protocols={"election": {"beat_us": int(BEAT_S * 1e6)}},
            heartbeat={"every_s": 1.0, "missed_max": 2},
            journal={"enabled": True},
        )
        self.fences = Fences(self.network.addresses, self._rng)
        self._clients: dict[str, Client] = {}
        self._subscriptions: list[Subscription] = []
        self._receipts: list[Receipt] = []
        self._names = [f"c{number}" for number in range(clients)]
        self._roams = False
        self._is_over = False
        self.kills_while_split = False
        self._log: list[str] = []

    async def run(self, kills: int, splits: int, *, period_s: float = 0.0) -> None:
        """Kill that many leaders, one in each period, and split the network between them."""
        await self._start()
        doing = [asyncio.create_task(self._publish()), asyncio.create_task(self._roam())]
        try:
            for number in range(kills):
                began = time.monotonic()
                await self.kill_leader()
                if number * splits // kills < (number + 1) * splits // kills:
                    await self.split()
                await asyncio.sleep(max(1.0, began + period_s - time.monotonic()))
            self._is_over = True
            for task in doing:
                await task
            await self.judge()
        finally:
            self._is_over = True
            for task in doing:
                task.cancel()
            await asyncio.gather(*doing, return_exceptions=True)
            await self._stop()

    # ---- Beginning and end

    async def _start(self) -> None:
        await self.fences.open()
        for name, config in self.network.configs.items():
            network = replace(config.network, neighbours=self.fences.candidates(name))
            self.network.configs[name] = replace(config, network=network)
        await asyncio.to_thread(self.network.start)
        for name in self._names:
            url = self.network.url(self._rng.choice(self.network.names))
            self._clients[name] = client = await connect(
                url, client=name, facts=self.oracle.fact, timeout=30
            )
            text = f"kind = '{self._rng.choice(KINDS)}'"
            self._subscriptions.append(client.subscribe(text, name="1"))
        await settle(self.network, self._clients.values(), self.oracle.fact)
        self._roams = True

    async def _stop(self) -> None:
        for client in self._clients.values():
            await client.close(timeout=0.5)
        await self.fences.close()
        await asyncio.to_thread(self.network.stop, patience_s=5)

    async def judge(self) -> None:
        """Raise if anything is wrong when all has settled."""
        try:
            async with asyncio.timeout(60):
                for receipt in self._receipts:
                    await receipt
            await settle(self.network, self._clients.values(), self.oracle.fact)
        except TimeoutError:
            raise AssertionError(f"it does not settle\n{self._story()}") from None
        findings, ended = self.oracle.findings(), self.network.died()
        if findings or ended:
            found = "\n".join([*map(str, findings[:10]), *ended.values()])
            raise AssertionError(f"{len(findings)} findings\n{found}\n{self._story()}")

    def _story(self) -> str:
        """What has happened, and what brokers say of it."""
        told = [f"to see it again: python -m tests.net.electing {self.seed}", *self._log[-60:]]
        for name in self.network.names:
            with suppress(SternaError):
                status, overlay = (self.network.ask(name, what) for what in ("status", "topology"))
                links = " ".join("-".join(link) for link in overlay["links"])
                told.append(f"{name}: {status['neighbours']} {status['election']} knows {links}")
            told.append(self.network.messages(name).read_text(encoding="utf-8")[-1_000:])
        return "\n".join(told)

    # ---- What clients do

    async def _publish(self) -> None:
        while not self._is_over:
            client = self._clients[self._rng.choice(self._names)]
            self._receipts.append(client.publish({"kind": self._rng.choice(KINDS)}))
            self.seen["published"] += 1
            await asyncio.sleep(self._rng.choice((0, 0.01, 0.03)))

    async def _roam(self) -> None:
        """One client after the other goes elsewhere, while all is well."""
        while not self._is_over:
            await asyncio.sleep(0.05)
            if self._roams:
                name = self._rng.choice(self._names)
                with suppress(NotConnectedError):
                    await self._clients[name].attach(
                        self.network.url(self._rng.choice(self.network.names))
                    )
                self.seen["moves"] += 1

    async def _stay(self) -> None:
        """Nobody roams, and all have arrived: a broker is about to be out of reach."""
        self._roams = False
        await asyncio.sleep(1.0)

    # ---- What goes wrong

    async def kill_leader(self) -> None:
        """Kill the leader, and start it again when the others are one network."""
        await self._stay()
        leader = await self._leader()
        self._say(f"{leader} is killed")
        began = time.monotonic()
        await asyncio.to_thread(self.network.kill, leader)
        self.seen["kills"] += 1
        await self._whole("a leader was killed", began, [set(self.network.names) - {leader}])
        self._say(f"{leader} starts again")
        await asyncio.to_thread(self.network.restart, leader)
        await self._whole("it came back", time.monotonic(), [set(self.network.names)])
        self._roams = True

    async def split(self) -> None:
        """Split the network in two, and join it again."""
        await self._stay()
        names = self.network.names
        part = set(self._rng.sample(names, self._rng.randint(2, len(names) - 2)))
        self._say(f"{sorted(part)} are cut off")
        self.fences.split(part)
        self.seen["splits"] += 1
        await self._whole("split", time.monotonic(), [part, set(names) - part])
        await asyncio.sleep(self._rng.uniform(0.5, 3))
        if self.kills_while_split:
            await self._kill_in(part)
        self._say("all are joined")
        self.fences.join()
        await self._whole("joined", time.monotonic(), [set(names)])
        self._roams = True

    async def _kill_in(self, part: set[str]) -> None:
        """Kill the leader of a part, and start it again when the others of that are one network."""
        status = await asyncio.to_thread(self.network.ask, min(part), "status")
        leader = str(status["election"]["leader"])
        self._say(f"{leader} is killed, which leads {sorted(part)}")
        began = time.monotonic()
        await asyncio.to_thread(self.network.kill, leader)
        self.seen["kills"] += 1
        await self._whole("the leader of a part was killed", began, [part - {leader}])
        await asyncio.to_thread(self.network.restart, leader)
        await self._whole("it came back", time.monotonic(), [part])

    async def _leader(self) -> str:
        status = await asyncio.to_thread(self.network.ask, self.network.names[0], "status")
        return str(status["election"]["leader"])

    async def _whole(self, what: str, began: float, parts: list[set[str]]) -> None:
        """Wait until the brokers of each part know each other, and follow one leader."""
        while True:
            now = time.monotonic()
            if all([await asyncio.to_thread(self._is_whole, part) for part in parts]):
                break
            if now > began + WHOLE_S:
                raise AssertionError(f"not whole {WHOLE_S:g} s after: {what}\n{self._story()}")
            await asyncio.sleep(0.02)
        self._took(what, began, now)

    def _is_whole(self, part: Collection[str]) -> bool:
        leaders = set()
        for name in part:
            try:
                told = self.network.ask(name, "topology")
            except SternaError:
                return False
            if set(told["brokers"]) != set(part) or len(told["links"]) != len(part) - 1:
                return False
            if not all(each["is_up"] for each in told["neighbours"]):
                return False
            leaders.add(told["leader"])
        return len(leaders) == 1 and leaders <= set(part)

    def _took(self, what: str, began: float, now: float | None = None) -> None:
        beats = ((now or time.monotonic()) - began) / BEAT_S
        self.took.setdefault(what, []).append(round(beats, 1))
        self._say(f"whole {beats:.1f} beats after: {what}")

    def _say(self, what: str) -> None:
        self._log.append(f"{time.strftime('%H:%M:%S')} {what}")


def main(seed: int, kills: int, splits: int, period_s: float) -> None:
    """From the command line: `python -m tests.net.electing SEED [KILLS SPLITS PERIOD]`."""
    with tempfile.TemporaryDirectory() as directory:

        async def run() -> ElectingCampaign:
            campaign = ElectingCampaign(Path(directory), seed)
            campaign.kills_while_split = "HARSH" in os.environ
            await campaign.run(kills, splits, period_s=period_s)
            return campaign

        campaign = asyncio.run(run())
        told: dict[str, Any] = {"seen": dict(campaign.seen), "took, in beats": campaign.took}
        told["owed"] = campaign.oracle.owed()
        sys.stdout.write(f"{told}\n")


if __name__ == "__main__":
    given = [float(each) for each in sys.argv[1:]]
    main(int(given[0]), *(int(each) for each in given[1:3] or (3, 1)), *(given[3:] or (0.0,)))
