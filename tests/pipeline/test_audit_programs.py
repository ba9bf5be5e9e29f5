"""Programs that stop and start are never accused by the audit, and faults among them are found.

Random programs in simulated networks write journals with the code that real clients use, and a
fleet of real clients writes some in a real network. One job of Spark judges all of them.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.net.client import Client
from sterna.net.local import LocalNetwork
from sterna.pipeline.audit import Verdict, audit, in_journals
from tests.net.live import connect, network_in, settle
from tests.pipeline.planting import FAULTS, plant
from tests.pipeline.programs import DOORS, GRACE_US, ROOMS, Planted, Run
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = 10
"""Of each kind: with a planted fault, and without. A campaign of ten makes 200 of them."""
CARS = 20


@dataclass
class Audited:
    """What was written, and what the audit made of it."""

    seeds: dict[str, int] = field(default_factory=dict)
    """The seed of each simulated run."""
    planted: Counter[Planted] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """How often each fault was planted."""
    delivered: int = 0
    """How many deliveries the simulated clients have recorded, or lost in a kill."""
    verdict: Verdict | None = None

    def found(self, *, live: bool) -> Counter[Planted]:
        assert self.verdict is not None
        return Counter(
            (each.fault, each.client, each.publisher, each.seq)
            for each in self.verdict.findings
            if (each.client or each.publisher).startswith("car-") == live
        )


@pytest.fixture(scope="module")
def audited(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """One job for all of them."""
    audited = Audited()
    journals = tmp_path_factory.mktemp("journals")

    @given(st.integers(0, 2**32))
    @examples(RUNS)
    def play_rightly(seed: int) -> None:
        run = Run(seed, f"right-{len(audited.seeds)}", journals).play()
        audited.seeds[run.name] = seed
        audited.delivered += len(run.delivered)

    @given(st.integers(0, 2**32))
    @examples(RUNS)
    def play_wrongly(seed: int) -> None:
        name, rng = f"wrong-{len(audited.seeds)}", Random(seed)  # noqa: S311 - no secret.
        rehearsed = Run(seed, name, tmp_path_factory.mktemp("rehearsed")).play()
        tamper = None
        for what in sorted(FAULTS, key=lambda each: audited.kinds[each]):  # The rarest first.
            planted = plant(what, rehearsed, rng)
            if planted is not None:
                tamper, wrong = planted
                audited.planted[wrong] += 1
                audited.kinds[what] += 1
                break
        run = Run(seed, name, journals, tamper).play()
        audited.seeds[run.name] = seed
        audited.delivered += len(run.delivered)

    asyncio.run(drive(journals))  # First: programs that were killed leave files open.
    play_rightly()
    play_wrongly()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sterna.pipeline.audit.stated.LITTLE_BYTES", 0)  # As if there was much more.
        audited.verdict = audit(in_journals(spark, journals), grace_us=GRACE_US, partitions=2)
    return audited


@pytest.mark.spec("PL-5")
def test_programs_that_stop_and_start_are_accused_of_nothing_but_what_was_planted(
    audited: Audited,
) -> None:
    """With and without `state` and `journal`, closed or killed, roaming and moving."""
    assert audited.found(live=False) == audited.planted, audited.seeds
    assert all(audited.kinds[what] >= 1 for what in FAULTS), audited.kinds


@pytest.mark.spec("PL-5")
def test_most_is_judged_and_the_rest_is_told(audited: Audited) -> None:
    """An audit that judges nothing would accuse nobody, too."""
    verdict = audited.verdict
    assert verdict is not None
    assert verdict.owed > audited.delivered / 4
    assert verdict.unjudged.open > 0
    assert verdict.unjudged.early == ()
    wrong = verdict.unjudged.witnesses.unfit
    assert len(wrong) <= len(audited.seeds) / 20, (
        wrong
    )  # Two killed ends look like one wrong clock.


@pytest.mark.spec("PL-5")
def test_a_real_fleet_that_runs_twice_is_not_accused(audited: Audited) -> None:
    """With restarts of programs and of a broker, kills, roaming, `near` and `myloc`."""
    assert audited.found(live=True) == Counter()


# ---- Real clients

WISHES = ("n >= 0", "near(lat, lon, $lat, $lon, 900)", "room IN myloc(1)", "n < 3")


async def drive(journals: Path) -> None:
    """A fleet of real clients, whose program runs twice; some have a state, some are killed."""
    rooms = journals.parent / "rooms.csv"
    rooms.write_text("".join(f"{a},{b}\n" for a, b in DOORS), encoding="utf-8")
    with network_in(
        journals / "brokers-live", 3, journal={"enabled": True}, places={"graph": str(rooms)}
    ) as network:
        for lap in range(2):
            cars = await asyncio.gather(*(start(network, journals, n) for n in range(CARS)))
            await settle(network, cars)
            await asyncio.gather(*(use(network, car, n + lap) for n, car in enumerate(cars)))
            if lap:
                network.kill("B2")
                network.restart("B2")
                await asyncio.gather(*(car.publish(n=1, lap=lap).wait(60) for car in cars))
            await asyncio.gather(*(end(car, n) for n, car in enumerate(cars)))


async def start(network: LocalNetwork, journals: Path, number: int) -> Client:
    state = journals / "states-live" / f"{number}" if number % 3 == 0 else None
    name, url = f"car-{number}", network.url(f"B{number % 3 + 1}")
    car = await connect(
        url, client=name, state=state, journal=journals / "clients-live", timeout=60
    )
    car.move(ROOMS[number % len(ROOMS)])
    car.set("lat", 52.52)
    car.set("lon", 13.4)
    car.subscribe(WISHES[number % len(WISHES)], callback=lambda _: None)
    return car


async def use(network: LocalNetwork, car: Client, number: int) -> None:
    """Publish, move, roam, publish."""
    for n in range(3):
        await car.publish(n=n, room=ROOMS[n], lat=52.52 + n / 1000, lon=13.4)
    car.move(ROOMS[(number + 1) % len(ROOMS)])
    car.set("lat", 52.53)
    if number % 2:
        await car.attach(network.url(f"B{(number + 1) % 3 + 1}"), timeout=60)
    for n in range(3):
        await car.publish(n=n, room=ROOMS[n], lat=52.52 + n / 1000, lon=13.4)


async def end(car: Client, number: int) -> None:
    """Close, or be gone as with `kill -9`: nothing more is said, sent or written."""
    if number % 5 != 4 or number % 3 == 0:
        await car.close()
        return
    flushing = car._driver._record._flushing
    assert flushing is not None
    flushing.cancel()
    car._life.close()
