"""A small city: places, events at these places, and the clients that live there."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sterna.core.facts import Fact
from sterna.errors import NotConnectedError
from sterna.net.client import Client, connect
from sterna.net.client.handles import Subscription

STREETS = (
    *(("Harbour", "Market"), ("Market", "Station"), ("Station", "Park"), ("Park", "Museum")),
    *(("Museum", "Harbour"), ("Market", "Museum"), ("Station", "Stadium"), ("Stadium", "Airport")),
)
"""Which place is next to which."""

PLACES = tuple(sorted({place for street in STREETS for place in street}))

GRAPH = {
    place: sorted({other for street in STREETS if place in street for other in street} - {place})
    for place in PLACES
}

SERVICES = ("parking", "charging", "traffic")

SENSOR_EVERY_S = 0.02
"""How often a sensor publishes, in seconds."""
ROAM_EVERY_S = 0.9
"""About how many seconds a vehicle stays at a broker."""
MOVE_EVERY_S = 0.5
"""About how many seconds a vehicle stays at a place."""


@dataclass
class CityTally:
    """What the clients have done so far."""

    published: int = 0
    delivered: int = 0
    here: int = 0
    """How many of the deliveries were for the place where a vehicle was."""
    roamed: int = 0
    moved: int = 0
    at: Counter[str] = field(default_factory=Counter)
    """How many vehicles are at each place."""
    walked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a vehicle went from one place to another."""


class City:
    """Sensors that publish, and vehicles that roam between brokers and move between places."""

    def __init__(
        self,
        urls: Mapping[str, str],
        *,
        sensors: int,
        vehicles: int,
        seed: int,
        facts: Callable[[Fact], None],
        journal: Path | None = None,
    ) -> None:
        self.tally = CityTally()
        self.clients: list[Client] = []
        self._urls = urls
        self._facts = facts
        self._journal = journal
        """The directory of all clients' journals."""
        self._seed = seed
        self._sensor_count = sensors
        self._vehicle_count = vehicles
        self._places: dict[str, str] = {}
        """The place of each vehicle."""
        self._ends_at = 0.0
        self._sensors: list[Client] = []
        self._vehicles: list[Client] = []
        self._readers: list[asyncio.Task[None]] = []

    async def enter(self) -> None:
        """Connect all clients, and subscribe."""
        names = list(self._urls)
        for number in range(1, self._sensor_count + 1):
            self._sensors.append(
                await self._connect(f"sensor-{number}", names[number % len(names)])
            )
        for number in range(1, self._vehicle_count + 1):
            await self._enter_vehicle(number)

    async def live(self, seconds: float) -> None:
        """Publish, roam and move for a while; then wait until all is acknowledged."""
        self._ends_at = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for sensor in self._sensors:
                group.create_task(self._sense(sensor))
            for vehicle in self._vehicles:
                group.create_task(self._roam(vehicle))
                group.create_task(self._move(vehicle))

    async def leave(self) -> None:
        """Close all clients for good."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*(client.close() for client in self.clients))

    # ---- Sensors

    async def _sense(self, sensor: Client) -> None:
        rng = self._rng(sensor)
        place = rng.choice(PLACES)
        while self._goes_on():
            sensor.publish(service=rng.choice(SERVICES), location=place, price=rng.randint(1, 9))
            self.tally.published += 1
            await asyncio.sleep(rng.uniform(0.5, 1.5) * SENSOR_EVERY_S)
        await sensor.drain()

    # ---- Vehicles

    async def _roam(self, vehicle: Client) -> None:
        rng = self._rng(vehicle)
        await asyncio.sleep(rng.uniform(0, 2 * ROAM_EVERY_S))
        while self._goes_on():
            await vehicle.detach()
            await asyncio.sleep(rng.uniform(0, ROAM_EVERY_S / 4))  # In a tunnel.
            with suppress(
                NotConnectedError
            ):  # That broker is down: it is elsewhere, or on its way.
                await vehicle.attach(self._urls[rng.choice(list(self._urls))])
            self.tally.roamed += 1
            await asyncio.sleep(rng.uniform(0.5, 1.5) * ROAM_EVERY_S)

    async def _move(self, vehicle: Client) -> None:
        rng = self._rng(vehicle, "moves")
        place = self._places[vehicle.name]
        while self._goes_on():
            await asyncio.sleep(rng.uniform(0.5, 1.5) * MOVE_EVERY_S)
            self.tally.at[place] -= 1
            origin, place = place, rng.choice(GRAPH[place])
            self.tally.at[place] += 1
            vehicle.move(place)
            self.tally.moved += 1
            self.tally.walked[origin, place] += 1
        self._places[vehicle.name] = place

    def _goes_on(self) -> bool:
        return asyncio.get_running_loop().time() < self._ends_at

    def _rng(self, client: Client, what: str = "") -> random.Random:
        return random.Random(f"{self._seed} {client.name} {what}")  # noqa: S311 - no secret.

    # ---- The clients

    async def _connect(self, name: str, broker: str) -> Client:
        others = [url for other, url in self._urls.items() if other != broker]
        client = connect(
            self._urls[broker], *others, client=name, facts=self._facts, journal=self._journal
        )
        await client
        self.clients.append(client)
        return client

    async def _enter_vehicle(self, number: int) -> None:
        names = list(self._urls)
        vehicle = await self._connect(f"vehicle-{number}", names[number % len(names)])
        self._vehicles.append(vehicle)
        rng = self._rng(vehicle, "wishes")
        place = self._places[vehicle.name] = rng.choice(PLACES)
        vehicle.move(place)
        self.tally.at[place] += 1
        service, price = rng.choice(SERVICES), rng.randint(2, 9)
        wanted = vehicle.subscribe(f"service = '{service}' AND price <= {price}", name="wanted")
        nearby = vehicle.subscribe("service = 'traffic' AND location IN myloc(1)", name="nearby")
        self._readers += [
            asyncio.create_task(self._read(wanted)),
            asyncio.create_task(self._read(nearby, here=True)),
        ]

    async def _read(self, subscription: Subscription, *, here: bool = False) -> None:
        async for _ in subscription:
            self.tally.delivered += 1
            self.tally.here += here
