"""A run of Figure 9, tick by tick, and what is counted in it."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from sterna.core import facts
from sterna.core.broker import Broker
from sterna.core.facts import Fact
from sterna.core.inputs import MoveTo, Publish, Subscribe
from sterna.core.link import Data, Frame
from sterna.core.location.messages import MovingChange
from sterna.core.messages import Events
from sterna.core.names import NodeId, Peer, Time
from sterna.experiments.fiege_figure_9.network import make_script, place, popularity
from sterna.experiments.fiege_figure_9.settings import (
    FAST_MS,
    PLACES,
    PRODUCERS,
    SLOW_MS,
    Setting,
    Skew,
)
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Simulation
from sterna.sim.script import Do

TICK_MS = 10
"""Everything happens at multiples of this."""


class Series(msgspec.Struct, frozen=True):
    """Counts up to the end of each second. Events count from when they were published."""

    published: list[int]
    charged: list[int]
    events: list[int]
    control: list[int]
    moves: list[int]
    entries: float
    owed: set[EventId]
    received: set[EventId]


class Watch(Observer):
    """Counts messages between brokers, and notes what one consumer receives."""

    def __init__(self, seconds: int) -> None:
        self.start: Time | None = None
        self.events = [0] * seconds
        self.control = [0] * seconds
        self.received: set[EventId] = set()

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del fate
        if self.start is None or type(frame) is not Data:
            return
        if pipe.source.peer is not Peer.BROKER or pipe.target.peer is not Peer.BROKER:
            return
        message = frame.message
        if isinstance(message, Events):
            for event in message.events:
                self.events[(event.time_us - self.start) // 1_000_000] += 1
        elif isinstance(message, MovingChange):
            second = (now - self.start) // 1_000_000
            self.control[min(second, len(self.control) - 1)] += 1

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.Delivered):
            self.received |= {event.id for event in fact.events}


class Run:
    """A network and what happens in it, tick by tick."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.rng = random.Random(f"figure 9 {seed}")  # noqa: S311 - reproducible, not secret.
        self.watch = Watch(setting.run_s)
        script = make_script(setting, self.rng, seed)
        self.simulation = Simulation(script, [self.watch], judged=False)
        self.at = {name: int(at[1:]) for name, at in script.locations.items()}
        self.walk: list[int] = []
        """The place of the first consumer in each tick."""
        weights = popularity(skewed=setting.skew is not Skew.NONE, seed=seed)
        self.weights = list(accumulate(weights))
        self.published = [0] * setting.run_s
        self.charged = [0] * setting.run_s
        self.moves = [0] * setting.run_s
        self.numbers: Counter[NodeId] = Counter()
        self.sent: list[tuple[int, int, EventId]] = []
        """Each event: the tick in which it was published, and its place."""

    def series(self) -> Series:
        """Run it all; moves and events stop after so many seconds, and the network settles."""
        setting, simulation = self.setting, self.simulation
        subscribe = Subscribe(subscription="here", filter=Filter("place IN myloc"))
        simulation.settle()
        for consumer in self.at:
            simulation.do(Do(client=consumer, what=subscribe))
        simulation.settle()
        network = simulation.network
        start = self.watch.start = network.kernel.now
        publishing, moving = self._phases()
        stay = setting.dwell_s * 1_000 // TICK_MS
        for tick in range(setting.run_s * 1_000 // TICK_MS):
            network.run(start + tick * TICK_MS * 1_000)
            self._move(moving.get(tick % stay, ()) if tick else (), tick)
            self.walk.append(self.at["C0"])
            self._publish(publishing.get(tick % self._period, ()), tick)
        simulation.settle()
        return Series(
            published=list(accumulate(self.published)),
            charged=list(accumulate(self.charged)),
            events=list(accumulate(self.watch.events)),
            control=list(accumulate(self.watch.control)),
            moves=list(accumulate(self.moves)),
            entries=self._entries(),
            owed=self._owed(stay),
            received=self.watch.received,
        )

    @property
    def _period(self) -> int:
        """How many ticks lie between two events of a producer."""
        return round(1_000 / TICK_MS / self.setting.rate)

    def _phases(self) -> tuple[dict[int, list[NodeId]], dict[int, list[NodeId]]]:
        """The producers that publish, and the consumers that move, by tick of period or stay."""
        publishing: dict[int, list[NodeId]] = {}
        for client in self.simulation.script.clients:
            if client not in self.at:
                for _ in range(PRODUCERS):
                    tick = self.rng.randrange(self._period)
                    publishing.setdefault(tick, []).append(client)
        moving: dict[int, list[NodeId]] = {}
        for consumer in self.at:
            stay = self.setting.dwell_s * 1_000 // TICK_MS
            tick = self.rng.randrange(stay) if self.setting.consumers > 1 else 0
            moving.setdefault(tick, []).append(consumer)
        return publishing, moving

    def _move(self, consumers: Sequence[NodeId], tick: int) -> None:
        for consumer in consumers:
            self.at[consumer] = (self.at[consumer] + self.rng.choice((-1, 1))) % PLACES
            what = MoveTo(location=place(self.at[consumer]))
            self.simulation.do(Do(client=consumer, what=what))
            self.moves[tick * TICK_MS // 1_000] += 1

    def _publish(self, producers: Sequence[NodeId], tick: int) -> None:
        second = tick * TICK_MS // 1_000
        admits = self._admits() if producers and self.setting.consumers == 1 else {}
        for producer in producers:
            (about,) = self.rng.choices(range(PLACES), cum_weights=self.weights)
            what = Publish(attributes={"place": place(about)})
            self.simulation.do(Do(client=producer, what=what))
            self.published[second] += 1
            self.numbers[producer] += 1
            self.sent.append((tick, about, EventId(producer, self.numbers[producer])))
            for filter_, links in admits.items():
                if filter_.matches(what.attributes):
                    self.charged[second] += links

    def _admits(self) -> Counter[Filter]:
        """How many links have which filter right now, on the way to the root."""
        brokers = _brokers(self.simulation)
        return Counter(
            filter_
            for upper, lower in self.simulation.script.topology.links
            for filter_ in brokers[lower].router.subscriptions.entered(upper).values()
        )

    def _entries(self) -> float:
        brokers = _brokers(self.simulation).values()
        return sum(len(each.router.subscriptions.entered()) for each in brokers) / len(brokers)

    def _owed(self, stay: int) -> set[EventId]:
        """The events that the consumer receives by flooding: those about its place on arrival."""
        delay_ms = SLOW_MS + (self.setting.levels - 2) * FAST_MS + SLOW_MS  # From any leaf.
        later = delay_ms // TICK_MS
        return {
            id_
            for tick, about, id_ in self.sent
            if self.setting.consumers == 1
            and tick + later < len(self.walk)
            and (tick + later) % stay  # At the moment of a move either place would do.
            and self.walk[tick + later] == about
        }


@lru_cache(maxsize=1)
def run(setting: Setting, seed: int) -> Series:
    """One run; the counts at several times come from the same one."""
    return Run(setting, seed).series()


def _brokers(simulation: Simulation) -> dict[NodeId, Broker]:
    hosts = simulation.network.hosts.items()
    return {id_: host.node for id_, host in hosts if isinstance(host.node, Broker)}
