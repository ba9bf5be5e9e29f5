"""The network of Figure 9: its tree, its slow links, and its ring of places."""

import random

from sterna.core.link import RELIABLE
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.routing.options import RoutingOptions
from sterna.experiments.fiege_figure_9.settings import (
    DEGREE,
    FACTOR,
    FAST_MS,
    PLACES,
    SLOW_MS,
    Setting,
    Skew,
)
from sterna.model.location import LocationSpace
from sterna.sim.script import LinkModel, Script
from sterna.sim.topology import tree

CALM_US = 10_000_000_000
"""Links are measured once, before anything is counted: their delays are fixed here."""


class Ring:
    """Places in a ring, of which four times as many are possible with each step.

    From a place one can really go to its neighbours only. What the paper assumes is more: it has
    |ploc| multiplied by 4 with each step, which no movement graph of this size does.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], frozenset[str]] = {}

    def __contains__(self, location: object) -> bool:
        return isinstance(location, str) and location in _PLACES

    def __repr__(self) -> str:
        return f"<ring of {PLACES} places>"

    def ploc(self, location: str, steps: int) -> frozenset[str]:
        key = location, steps
        if key not in self._known:
            count = min(FACTOR**steps, PLACES)
            first = int(location[1:]) - (count - 1) // 2
            self._known[key] = frozenset(place(first + number) for number in range(count))
        return self._known[key]


def place(number: int) -> str:
    return f"p{number % PLACES}"


_PLACES = {place(number): number for number in range(PLACES)}


class RingOptions(PlacesOptions, frozen=True, kw_only=True):
    """The places are those of the ring."""

    def space(self) -> LocationSpace:
        return Ring()


def make_script(setting: Setting, rng: random.Random, seed: int) -> Script:
    """The network; what happens in it is done tick by tick."""
    topology = tree(DEGREE, setting.levels)
    leaves = set(topology.leaves())
    inner = [broker for broker in topology.brokers if broker not in leaves]
    producers = {f"P{broker}": broker for broker in topology.leaves()}
    consumers = {
        f"C{number}": rng.choice(inner) if setting.consumers > 1 else inner[0]
        for number in range(setting.consumers)
    }
    weights = popularity(skewed=setting.skew is Skew.BOTH, seed=seed)
    at = rng.choices(range(PLACES), weights, k=setting.consumers)
    slow = [*consumers.items(), *(link for link in topology.links if link[1] in leaves)]
    return Script(
        topology=topology,
        clients=producers | consumers,
        steps=(),
        routing=RoutingOptions(strategy=setting.strategy),
        link=LinkModel(latency_us=FAST_MS * 1_000),
        latencies=(
            *((a, b, SLOW_MS * 1_000) for a, b in slow),
            *((producer, broker, 0) for producer, broker in producers.items()),
        ),
        places=RingOptions(
            rule=setting.rule,
            dwell=Dwell.FIXED,
            dwell_us=setting.dwell_s * 1_000_000,
            probe_us=CALM_US,
        ),
        locations={name: place(number) for name, number in zip(consumers, at, strict=True)},
        timing=RELIABLE,
    )


def popularity(*, skewed: bool, seed: int) -> list[float]:
    """How popular each place is, to events and consumers alike."""
    weights = [1 / rank if skewed else 1.0 for rank in range(1, PLACES + 1)]
    random.Random(f"places {seed}").shuffle(weights)  # noqa: S311 - reproducible, not secret.
    return weights
