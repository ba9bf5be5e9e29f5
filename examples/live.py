"""Four brokers on this machine, and a car that takes its subscription from one to another."""

import asyncio
import itertools
import tempfile
from pathlib import Path

import sterna
from sterna.net.local import LocalNetwork


async def offer(url: str) -> None:
    """A car park with an offer every 10 ms."""
    async with sterna.connect(url, client="car park") as park:
        for number in itertools.count():
            await park.publish(service="parking", number=number, price=number % 5)
            await asyncio.sleep(0.01)


async def drive(network: LocalNetwork) -> None:
    """Offers reach the car wherever it is; while it drives, the network keeps them for it."""
    async with sterna.connect(network.url("B1"), client="car-7") as car:
        offers = car.subscribe("service = 'parking' AND price < 3")
        numbers = []
        for broker in ("B1", "B2", "B4", "B3"):
            await car.attach(network.url(broker))
            numbers += [(await anext(offers)).attributes["number"] for _ in range(6)]
            await car.detach()
            print(f"at {broker}: offers {numbers[-6:]}")
            await asyncio.sleep(0.05)
        print("missed:", car.missed)


async def run(network: LocalNetwork) -> None:
    """Drive, with the car park at work."""
    offering = asyncio.create_task(offer(network.url("B3")))
    await drive(network)
    offering.cancel()


with tempfile.TemporaryDirectory() as directory, LocalNetwork(4, directory=Path(directory)) as four:
    asyncio.run(run(four))
