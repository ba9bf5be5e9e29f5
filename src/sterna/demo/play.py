"""Rounds in the city: everybody lives, a broker dies and comes back, and the books are checked."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.core.facts import Fact, Settled
from sterna.demo.city import STREETS, City
from sterna.model.delivery import Fault
from sterna.net.errors import SternaError
from sterna.net.local import LocalNetwork
from sterna.net.rest import rest
from sterna.sim.oracle import Oracle

DOWN_S = 1.0
"""How long a broker that was killed stays away."""

SETTLE_MAX_S = 60.0


@dataclass
class Audit:
    """What came of a round."""

    published: int
    owed: int
    delivered: int
    faults: Counter[Fault]
    findings: list[str]
    roamed: int
    moved: int
    kills: int

    @property
    def is_clean(self) -> bool:
        return not self.findings


@dataclass
class Scene:
    """What there is to see."""

    network: LocalNetwork
    round: int = 0
    phase: str = "starting"
    city: City | None = None
    news: list[str] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    statuses: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """What each broker says of itself; None if it is dead."""


class Play:
    """The network, the clients, and what happens to them."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 4,
        sensors: int = 8,
        vehicles: int = 24,
        seconds: float = 10.0,
        seed: int = 0,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        streets = directory / "streets.csv"
        streets.write_text("\n".join(",".join(street) for street in STREETS), encoding="utf-8")
        self.network = LocalNetwork(
            brokers,
            directory=directory,
            config={"places": {"graph": str(streets), "dwell_s": 0.25}},
        )
        self.scene = Scene(self.network)
        self._sensors, self._vehicles = sensors, vehicles
        self._seconds = seconds
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311 - no secret.

    async def start(self) -> None:
        """Start the brokers."""
        await asyncio.to_thread(self.network.start)

    async def rounds(self, count: int | None = None) -> AsyncIterator[Audit]:
        """Play so many rounds, or go on for ever."""
        while count is None or self.scene.round < count:
            self.scene.round += 1
            yield await self._play()

    async def stop(self) -> None:
        """Stop the brokers."""
        self.scene.phase = "stopping"
        await asyncio.to_thread(self.network.stop)

    async def _play(self) -> Audit:
        scene = self.scene
        oracle = Oracle()
        city = scene.city = City(
            self.network.urls,
            sensors=self._sensors,
            vehicles=self._vehicles,
            seed=self._seed + scene.round,
            facts=oracle.fact,
        )
        scene.phase = "clients connect and subscribe"
        await city.enter()
        await self._settle(city, oracle.fact)
        scene.phase = "clients publish, roam and move"
        async with asyncio.TaskGroup() as group:
            group.create_task(city.live(self._seconds))
            kills = group.create_task(self._trouble())
        scene.phase = "waiting until nothing is on its way"
        await self._settle(city, oracle.fact)
        audit = judge(oracle, city, kills.result())
        scene.audits.append(audit)
        scene.phase = "clients say goodbye"
        await city.leave()
        return audit

    async def _trouble(self) -> int:
        """Kill a broker in the middle of it all, and start it again."""
        await asyncio.sleep(self._seconds / 3)
        victim = self._chance.choice(self.network.names)
        self._say(f"kill -9 {victim} (pid {self.network.pid(victim)})")
        await asyncio.to_thread(self.network.kill, victim)
        self.scene.statuses[victim] = None
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(self.network.restart, victim)
        self._say(f"{victim} is back, with all it had acknowledged")
        return 1

    def _say(self, news: str) -> None:
        self.scene.news.append(news)

    async def look(self) -> None:
        """Ask the brokers how they are."""
        for name in self.network.names:
            self.scene.statuses[name] = await asyncio.to_thread(self._status, name)

    def _status(self, name: str) -> dict[str, Any] | None:
        if not self.network.is_running(name):
            return None
        try:
            answer: dict[str, Any] = self.network.ask(name, "status")
        except SternaError:
            return None
        return answer

    async def _settle(self, city: City, state: Callable[[Fact], None]) -> None:
        await rest(self.network, city.clients, limit_s=SETTLE_MAX_S)
        state(Settled(at="", time=0))


def judge(oracle: Oracle, city: City, kills: int) -> Audit:
    """Compare what was published with what arrived."""
    findings = oracle.findings()
    return Audit(
        published=oracle.published,
        owed=oracle.owed(),
        delivered=oracle.delivered,
        faults=Counter(finding.fault for finding in findings),
        findings=[str(finding) for finding in findings],
        roamed=city.tally.roamed,
        moved=city.tally.moved,
        kills=kills,
    )
