"""A city and its services: what people in each region subscribe to, and what is published there.

Regions are numbered from 0. Subscriptions ask for a service in a region: for all of it, up to a
cost, or along a few blocks. Services, costs and (for those who look beyond their own region)
regions are popular by Zipf's law, so equal, covering and mergeable filters come by themselves.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from sterna.model.event import Scalar
from sterna.model.filters import Filter

SERVICES = (
    *("traffic", "parking", "charging", "fuel", "bus", "weather"),
    *("taxi", "roadworks", "bicycle", "toll", "air", "events"),
)
"""The services, the most popular first."""

COSTS = (5, 2, 10, 3, 1)
"""What people are ready to pay, in round numbers, the most popular first."""

COST_MAX = 20.0
BLOCKS = 20
"""How many blocks each region has."""

T = TypeVar("T")


def popular(rng: random.Random, things: Sequence[T]) -> T:
    """One of them by Zipf's law: the second is half as likely as the first, and so on."""
    return rng.choices(things, [1 / rank for rank in range(1, len(things) + 1)])[0]


def interest(rng: random.Random, own: int, regions: int, locality: float) -> Filter:
    """A subscription from region `own`: about that region with probability `locality`."""
    region = own if rng.random() < locality else popular(rng, range(regions))
    wanted = f"service = '{popular(rng, SERVICES)}' AND region = {region}"
    form = rng.random()
    if form < 0.35:
        return _filter(wanted)
    if form < 0.7:
        return _filter(f"{wanted} AND cost <= {popular(rng, COSTS)}")
    first = rng.randint(1, BLOCKS)
    last = min(first + rng.randint(0, 4), BLOCKS)
    return _filter(f"{wanted} AND block BETWEEN {first} AND {last}")


PUBLISHERS = 2
"""How many publishers each region has; they share the services between them."""


def publisher_of(service: str) -> int:
    """Which of a region's publishers reports on a service."""
    return SERVICES.index(service) % PUBLISHERS


def offer(region: int, publisher: int) -> Filter:
    """The filter that a publisher of a region advertises."""
    services = ", ".join(f"'{name}'" for name in SERVICES if publisher_of(name) == publisher)
    return _filter(f"region = {region} AND service IN ({services})")


def report(rng: random.Random, region: int) -> dict[str, Scalar]:
    """The attributes of an event."""
    return {
        "service": popular(rng, SERVICES),
        "region": region,
        "block": rng.randint(1, BLOCKS),
        "cost": round(rng.uniform(0, COST_MAX), 1),
    }


_filter = cache(Filter)
"""Runs that are compared ask for the same; parsing it once saves a good part of their time."""
