"""Who publishes and subscribes what, and who is where when: the scenarios as data.

The same seed gives the same people and journeys, whatever the strategy (common random numbers), and
more subscribers are the same ones and some more.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from sterna.core.names import NodeId, Time
from sterna.experiments.burcea.city import (
    KINDS,
    LEAVES,
    RANGE_KM,
    WANTED,
    WIDTH_KM,
    Ends,
    broker,
    downtown,
    leaf_at,
    position,
)
from sterna.experiments.burcea.settings import (
    HOUR_US,
    MINUTE_US,
    PERIOD_US,
    Places,
    Scenario,
    Setting,
)

PUBLISHERS_DOWNTOWN, OFFICES_DOWNTOWN, HOMES_DOWNTOWN = 10, 20, 30
"""Table 3: how many of the inner brokers have publishers, offices, and homes of 40 % of people."""
HOMES_DOWNTOWN_SHARE = 0.4
LEAVES_WORK_H = (16.0, 18.0)
DRIVES_DOWNTOWN_MIN, DRIVES_OUT_MIN = (15, 45), (45, 90)
PERIODS_MIN = (10, 30)
"""How long subscribers are connected, and under way, in the random scenario."""
SPEEDS_KM_H = (5, 50, 100)


class Publisher(msgspec.Struct, frozen=True):
    """Somebody who stays, and publishes the same event once a minute."""

    client: NodeId
    leaf: int
    kind: int
    first_us: Time
    """When it publishes for the first time."""

    def times(self, length_us: Time) -> range:
        """When it publishes."""
        return range(self.first_us, length_us, PERIOD_US)


class Move(msgspec.Struct, frozen=True):
    """A subscriber goes from the leaf where it is to another one, or comes back to it."""

    leaves_us: Time
    arrives_us: Time
    leaf: int


class Subscriber(msgspec.Struct, frozen=True):
    """Somebody who moves."""

    client: NodeId
    subscription: int
    """One of the 40 subscriptions, from 0."""
    leaf: int
    """Where it is when the run begins."""
    moves: tuple[Move, ...]
    """In their order. The last one may end after the run."""


class People(msgspec.Struct, frozen=True):
    """Everybody in a run."""

    publishers: tuple[Publisher, ...]
    subscribers: tuple[Subscriber, ...]

    def itineraries(self) -> dict[NodeId, tuple[tuple[Time, NodeId], ...]]:
        """For each subscriber, when it arrives at which broker."""
        return {
            each.client: tuple((move.arrives_us, broker(move.leaf)) for move in each.moves)
            for each in self.subscribers
        }


def people(setting: Setting, seed: int) -> People:
    """Everybody in a run, for one seed."""
    return People(
        tuple(_publisher(setting, seed, number) for number in range(setting.publishers)),
        tuple(_subscriber(setting, seed, number) for number in range(setting.subscribers)),
    )


def _rng(seed: int, *what: object) -> random.Random:
    return random.Random(f"burcea {seed} {what}")  # noqa: S311 - reproducible, not secret.


def _publisher(setting: Setting, seed: int, number: int) -> Publisher:
    rng = _rng(seed, "publisher", number)
    kind, first_us = rng.randint(1, KINDS), rng.randrange(PERIOD_US)
    is_downtown = setting.scenario is Scenario.COMMUTE or setting.publishers_at is Places.DOWNTOWN
    leaf = rng.choice(downtown(PUBLISHERS_DOWNTOWN) if is_downtown else range(LEAVES))
    return Publisher(f"p{number}", leaf, kind, first_us)


def _subscriber(setting: Setting, seed: int, number: int) -> Subscriber:
    client, wanted = f"s{number}", _wanted(setting, seed, number)
    rng = _rng(seed, "subscriber", number)
    if setting.scenario is Scenario.COMMUTE:
        leaf = rng.choice(downtown(OFFICES_DOWNTOWN))
        return Subscriber(client, wanted, leaf, (_way_home(setting, rng),))
    is_downtown = setting.subscribers_at is Places.DOWNTOWN
    leaf = rng.choice(downtown(OFFICES_DOWNTOWN) if is_downtown else range(LEAVES))
    drives = list(_drives(setting, rng, (leaf + rng.random()) * RANGE_KM))
    if setting.scenario is Scenario.RANDOM:
        moves = [Move(each.leaves_us, each.arrives_us, each.leaf(setting.ends)) for each in drives]
    else:
        handoff_us = setting.handoff_ms * 1_000
        moves = [
            Move(at, at + handoff_us, to)
            for each in drives
            for at, to in each.crossings(setting.ends)
        ]
    return Subscriber(client, wanted, leaf, tuple(moves))


def _wanted(setting: Setting, seed: int, number: int) -> int:
    """What a subscriber wants: one of 40, of 27, or by locality."""
    rng = _rng(seed, "subscription", number)
    if setting.scenario is Scenario.COMMUTE:
        return rng.randrange(len(WANTED))
    if setting.locality is None:
        return rng.randrange(KINDS)
    common = _usual(setting, seed)
    if number < round(setting.locality * setting.subscribers):
        return common
    return rng.choice([kind for kind in range(KINDS) if kind != common])


@lru_cache(maxsize=8)
def _usual(setting: Setting, seed: int) -> int:
    """The subscription of those that want the same: about as many publishers have such events as
    have others, so that it costs as much to bring them to a subscriber.
    """
    counts = Counter(_publisher(setting, seed, number).kind for number in range(setting.publishers))
    mean = setting.publishers / KINDS
    return min(range(KINDS), key=lambda number: abs(counts[number + 1] - mean))


def _way_home(setting: Setting, rng: random.Random) -> Move:
    leaves_us = setting.at(rng.uniform(*LEAVES_WORK_H))
    homes = downtown(HOMES_DOWNTOWN)
    if rng.random() < HOMES_DOWNTOWN_SHARE:
        leaf, minutes = rng.choice(homes), rng.uniform(*DRIVES_DOWNTOWN_MIN)
    else:
        leaf = rng.choice([leaf for leaf in range(LEAVES) if leaf not in homes])
        minutes = rng.uniform(*DRIVES_OUT_MIN)
    return Move(leaves_us, leaves_us + round(minutes * MINUTE_US), leaf)


class Drive(msgspec.Struct, frozen=True):
    """A journey of the random scenario, at a steady speed."""

    leaves_us: Time
    arrives_us: Time
    from_km: float
    km_h: float
    """The speed; negative towards the west."""

    @property
    def to_km(self) -> float:
        """Where it would end if the city had no ends."""
        return self.from_km + self.km_h * (self.arrives_us - self.leaves_us) / HOUR_US

    def leaf(self, ends: Ends) -> int:
        """The leaf where it ends."""
        return leaf_at(position(self.to_km, ends))

    def crossings(self, ends: Ends) -> Iterator[tuple[Time, int]]:
        """When it comes to another leaf, and which."""
        east = self.km_h > 0
        first = self.from_km / RANGE_KM
        last = self.to_km / RANGE_KM
        here = leaf_at(self.from_km)
        borders = (
            range(math.floor(first) + 1, math.floor(last) + 1)
            if east
            else range(math.ceil(first) - 1, math.ceil(last) - 1, -1)
        )
        for border in borders:
            km = (border + (0.5 if east else -0.5)) * RANGE_KM
            to = leaf_at(position(km, ends))
            if to == here:  # At an end of the city one stays, or turns back.
                continue
            here = to
            us = abs(border - first) * RANGE_KM / abs(self.km_h) * HOUR_US
            yield self.leaves_us + round(us), to


def _drives(setting: Setting, rng: random.Random, km: float) -> Iterator[Drive]:
    """Periods of connection and journeys in turn, until the run is over."""
    now = _period(rng)
    while now < setting.length_us:
        arrives_us = now + _period(rng)
        km_h = rng.choice(SPEEDS_KM_H) * rng.choice((-1, 1))
        drive = Drive(now, arrives_us, km, km_h)
        yield drive
        km = min(position(drive.to_km, setting.ends), math.nextafter(WIDTH_KM, 0))
        now = arrives_us + _period(rng)


def _period(rng: random.Random) -> Time:
    return round(rng.uniform(*PERIODS_MIN) * MINUTE_US)
