"""Rounds in the city: clients are busy, a broker dies and comes back, and an audit follows."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Any

from sterna.core.facts import Settled
from sterna.core.handover.options import Handover
from sterna.demo.city import STREETS, City
from sterna.demo.pipeline import Pipeline, Review
from sterna.errors import SternaError
from sterna.journal import Journal
from sterna.model.delivery import Fault
from sterna.net.local import LocalNetwork
from sterna.net.quiescence import quiesce
from sterna.net.remote import extent
from sterna.sim.oracle import Oracle

DOWN_S = 1.0
"""How many seconds a broker that was killed stays down."""

SETTLE_MAX_S = 60.0


@dataclass
class Audit:
    """The result of a round."""

    published: int
    owed: int
    delivered: int
    faults: Counter[Fault]
    findings: list[str]
    roamed: int
    moved: int
    kills: int
    holds: list[str] = field(default_factory=list)
    """Brokers whose event loop stood still for too long, each with the calls that held it."""
    review: Review | None = None
    """The verdict of the data pipeline."""

    @property
    def is_clean(self) -> bool:
        return not (self.findings or self.holds) and (self.review is None or self.review.is_clean)


@dataclass
class Scene:
    """Everything that the screen shows."""

    network: LocalNetwork
    round: int = 0
    phase: str = "starting"
    city: City | None = None
    news: list[str] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    statuses: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """The status of each broker; None if it is dead."""


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
        pipeline: bool = True,
        handover: str = Handover.RELOCATION,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        streets = directory / "streets.csv"
        streets.write_text("\n".join(",".join(street) for street in STREETS), encoding="utf-8")
        self.network = LocalNetwork(
            brokers,
            directory=directory,
            config={
                "network": {"handover": str(handover)},
                "places": {"graph": str(streets), "dwell_s": 0.25},
            },
        )
        self.scene = Scene(self.network)
        self._sensors, self._vehicles = sensors, vehicles
        self._seconds = seconds
        self._seed = seed
        self._rng = random.Random(seed)  # noqa: S311 - no secret.
        self._pipeline = Pipeline() if pipeline else None
        self._held: set[str] = set()
        """What was reported about event loops."""

    async def start(self) -> None:
        """Start the brokers."""
        if self._pipeline is not None:
            self._pipeline.start()
        await asyncio.to_thread(self.network.start)

    async def rounds(self, count: int | None = None) -> AsyncIterator[Audit]:
        """Play so many rounds, or go on for ever."""
        while count is None or self.scene.round < count:
            self.scene.round += 1
            yield await self._play()

    async def stop(self) -> None:
        """Stop the brokers."""
        self.scene.phase = "stopping"
        if self._pipeline is not None:
            self._pipeline.stop()
        await asyncio.to_thread(self.network.stop)

    async def _play(self) -> Audit:
        scene = self.scene
        oracle = Oracle()
        journals = self._journals(scene.round)
        city = scene.city = City(
            self.network.urls,
            sensors=self._sensors,
            vehicles=self._vehicles,
            seed=self._seed + scene.round,
            facts=oracle.fact,
            journal=journals / "clients",
        )
        witness = Witness(oracle, Journal(journals / "demo", "demo"))
        scene.phase = "clients connect and subscribe"
        await city.enter()
        await self._settle(city, witness)
        scene.phase = "clients publish, roam and move"
        async with asyncio.TaskGroup() as group:
            group.create_task(city.live(self._seconds))
            kills = group.create_task(self._trouble())
        scene.phase = "waiting until nothing is on its way"
        await self._settle(city, witness)
        audit = judge(oracle, city, kills.result())
        audit.holds = await asyncio.to_thread(self._holds)
        scene.phase = "clients leave"
        await city.leave()
        witness.close()
        if self._pipeline is not None:
            scene.phase = "the pipeline reads the journals"
            for url in self.network.urls.values():
                await asyncio.to_thread(extent, url)  # All that brokers know is on disk then.
            audit.review = await self._pipeline.review(journals, city.tally.walked)
        scene.audits.append(audit)
        return audit

    def _holds(self) -> list[str]:
        """What has held the event loops of brokers and was not reported in an earlier round."""
        holds = [f"{name} was {how}" for name, how in self.network.held().items()]
        news = [hold for hold in holds if hold not in self._held]
        self._held.update(news)
        return news

    def _journals(self, round_: int) -> Path:
        """A directory with the journals of a round's clients and of all brokers."""
        journals = self._directory / "rounds" / str(round_)
        journals.mkdir(parents=True, exist_ok=True)
        for name in self.network.names:
            link = journals / name
            if not link.is_symlink():
                link.symlink_to(self.network.data(name) / "journal", target_is_directory=True)
        return journals

    async def _trouble(self) -> int:
        """Kill a broker in the middle of a round, and start it again."""
        await asyncio.sleep(self._seconds / 3)
        victim = self._rng.choice(self.network.names)
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
        """Ask the brokers for their status."""
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

    async def _settle(self, city: City, witness: "Witness") -> None:
        await quiesce(self.network, city.clients, limit_s=SETTLE_MAX_S)
        witness.settled()


class Witness:
    """Knows when nothing was on its way, and states it to the oracle."""

    def __init__(self, oracle: Oracle, journal: Journal) -> None:
        self._oracle = oracle
        self._journal = journal

    def settled(self) -> None:
        fact = Settled(at="demo", time=time_ns() // 1000)
        self._oracle.fact(fact)
        self._journal.record(self._journal.last_position.position + 1, [fact])

    def close(self) -> None:
        self._journal.close()


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
