"""What a change of one subscription costs a broker that has many."""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice

from sterna.bench.measure import Progress, Timing, compare
from sterna.core.broker import Broker
from sterna.core.inputs import LinkUp, Received
from sterna.core.link import Resume
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.filters import Filter

CHANGES = 200
"""In each round, so many subscriptions come, and as many go."""


@dataclass(frozen=True)
class Row:
    """One strategy with so many entries."""

    strategy: str
    entries: int
    change_us: float
    """The cost of a subscription that comes or goes: the table, and what is announced."""
    rebuild_us: float
    """The cost of reducing all entries anew instead, at this size."""
    told: int
    """How many filters the neighbour knows in the end."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class LoadedBroker:
    """A broker with a neighbour, and a client that has many subscriptions."""

    def __init__(self, strategy: Strategy, filters: list[Filter]) -> None:
        self.broker = Broker("B1", RoutingOptions(strategy=strategy))
        hello = Resume(incarnation=0, partner=None, acknowledged=0, answers=True)
        for link, peer in (("B2", Peer.BROKER), ("ann", Peer.CLIENT)):
            self.broker.handle(LinkUp(link=link, peer=peer), 0)
            self.broker.handle(Received(link=link, frames=(hello,)), 0)
        self._names = count(1)
        self._there: list[str] = []
        for filter_ in filters:
            self._add(filter_)

    def change(self, filters: list[Filter]) -> None:
        """Add each filter, and remove an old one for it."""
        for filter_ in filters:
            self._add(filter_)
            self._tell(SubscriptionChange(removed=(self._there.pop(0),)))

    @property
    def told(self) -> int:
        """How many filters the neighbour knows."""
        return self.broker.router.told("B2")

    def _add(self, filter_: Filter) -> None:
        name = f"ann/{next(self._names)}"
        self._there.append(name)
        self._tell(SubscriptionChange(added=(Route(name, filter_),)))

    def _tell(self, change: SubscriptionChange) -> None:
        self.broker.router.on_subscription_change(change, "ann", 0)


def run(sizes: list[int], progress: Progress, *, rounds: int = 3) -> Iterator[Row]:
    """Measure every strategy at every size."""
    for size in sizes:
        for strategy in Strategy:
            progress(f"{strategy}, {size:,} subscriptions")
            yield _measure(strategy, size, _filters(size + (rounds + 1) * CHANGES), rounds)


def _filters(count_: int) -> list[Filter]:
    """Vehicles of a kind, in a cell, slower than so much: alike, covered by others, mergeable."""
    rng = random.Random("route")  # noqa: S311 - reproducible, not secret.
    filters = []
    for _ in range(count_):
        tests = [f"kind = 'k{int(20 * rng.random() ** 2)}'", f"cell = {rng.randrange(1000)}"]
        if rng.random() < 0.7:
            tests.append(f"speed < {10 * rng.randint(1, 12)}")
        if rng.random() < 0.1:
            tests.pop(rng.randrange(2))  # Anywhere, or of any kind.
        filters.append(Filter(" AND ".join(tests)))
    return filters


def _measure(strategy: Strategy, size: int, filters: list[Filter], rounds: int) -> Row:
    for filter_ in filters:
        _ = filter_.normal_form  # Made once for each filter, whatever the strategy.
    loaded = LoadedBroker(strategy, filters[:size])
    fresh = iter(filters[size:])

    def change() -> None:
        loaded.change(list(islice(fresh, CHANGES)))  # New ones in every round.

    def rebuild() -> None:
        LoadedBroker(strategy, filters[:size])

    times: dict[str, Timing] = compare(
        {"change": (change, 2 * CHANGES), "rebuild": (rebuild, 1)}, rounds
    )
    return Row(
        strategy=strategy.value,
        entries=size,
        change_us=times["change"].median_us,
        rebuild_us=times["rebuild"].median_us,
        told=loaded.told,
    )
