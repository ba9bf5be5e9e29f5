"""Random networks whose clients ask for the past, and what must hold of all that they get."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sterna.core import facts
from sterna.core.actions import Action, Deliver
from sterna.core.client import Client
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history.messages import HistoryAsked
from sterna.core.history.options import BufferOptions, HistoryOptions, Search
from sterna.core.history.recent import Recent
from sterna.core.history.runs import latest
from sterna.core.history.search import Searches
from sterna.core.inputs import Advertise, Attach, Detach, PublishMany, Subscribe, Unsubscribe
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, LinkModel, Script
from sterna.sim.topology import random_tree
from tests.sim.holds import Holds
from tests.sim.overlay import Facts
from tests.sim.strategies import random_combination, random_predictor
from tests.sim.troubles import random_trouble

FILTERS = [
    Filter("kind = 'x'"),
    Filter("kind IN ('x', 'y')"),
    Filter("zone <= 1"),
    Filter("kind = 'x' AND zone = 1"),
    Filter("TRUE"),
]
HANDOVERS = [each for each in Handover if each not in {Handover.NONE, Handover.NAIVE}]
HOLDS = [5_000_000, 50_000, 1_000]
SEARCHES = [each for each in Search if each is not Search.NONE]


@dataclass
class Wish:
    """A subscription with a past, and what was delivered for it, in order."""

    filter: Filter
    events_max: int | None
    since_us: Time | None
    asked_at: Time
    past: list[Event] = field(default_factory=list)
    all: list[Event] = field(default_factory=list)
    ended: bool = False


class Searched:
    """A random network whose clients ask for the past, and what came of it."""

    jitters_us: tuple[Time, ...] = (0, 500)

    def __init__(
        self,
        seed: int,
        search: Search,
        *,
        faults: bool,
        moves: bool = False,
        clocks_differ_us: Time = 0,
    ) -> None:
        rng = self.rng = Random(seed)  # noqa: S311 - reproducible.
        self.faults, self.moves = faults, moves
        self.clocks_differ_us, self.ahead_us = clocks_differ_us, dict[NodeId, Time]()
        topology = random_tree(rng.randint(1, 6), seed)
        self.brokers = topology.brokers
        self.publishers = [f"p{number}" for number in range(1, rng.randint(1, 4) + 1)]
        self.subscribers = [f"s{number}" for number in range(1, rng.randint(1, 4) + 1)]
        advertises = rng.random() < 0.5
        handover = HANDOVERS[seed % len(HANDOVERS)] if moves else Handover.NONE
        by_strategy = Random(seed)  # noqa: S311 - reproducible.
        self.advertises = advertises
        script = Script(
            topology=topology,
            clients={c: rng.choice(self.brokers) for c in (*self.publishers, *self.subscribers)},
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers if faults),
            routing=RoutingOptions(strategy=rng.choice([*Strategy]), advertisements=advertises),
            client=ClientOptions(advertisements=advertises),
            handover=HandoverOptions(protocol=handover),
            options=random_combination(by_strategy, handover),
            mobility=random_predictor(by_strategy, handover, self.brokers),
            link=LinkModel(jitter_us=rng.choice(self.jitters_us)),
            protocols=("past", "search"),
            history=HistoryOptions(
                events_max=rng.choice([0, 3, 10, 100]),
                publisher_events=rng.choice([0, 1, 5, 100]),
                search=search,
                hold_us=HOLDS[seed // 7 % len(HOLDS)],
                prepares=rng.random() < 0.5,
                buffers=tuple(
                    BufferOptions(filter=each, events_max=3 + seed % 50)
                    for each in FILTERS[: seed % 3]
                    if faults or moves
                ),
            ),
            seed=seed,
        )
        self.facts, self.holds = Facts(), Holds()
        self.simulation = Simulation(script, [self.facts, self.holds])
        self.holds.network = self.simulation.network
        self.wishes: dict[tuple[NodeId, str], Wish] = {}
        self.names = 0
        for client in self.subscribers:
            self._listen(client)

    def _listen(self, client: NodeId) -> None:
        node = self.simulation.network.hosts[client].node
        act, state = node.act, node.state
        given: list[Deliver] = []

        def listen(action: Action) -> None:
            act(action)
            if isinstance(action, Deliver):
                given.append(action)

        def stated(fact: facts.Fact) -> None:
            state(fact)
            if isinstance(fact, facts.Delivered | facts.Recalled):
                self._deliver(client, given.pop(), is_past=isinstance(fact, facts.Recalled))

        node.act, node.state = listen, stated  # type: ignore[method-assign]

    def _deliver(self, client: NodeId, action: Deliver, *, is_past: bool) -> None:
        for event, names in zip(action.events, action.subscriptions, strict=True):
            for name in names:
                wish = self.wishes.get((client, name))
                if wish is not None:
                    wish.all.append(event)
                    if is_past:
                        wish.past.append(event)

    def do(self, client: NodeId, what: object) -> None:
        self.simulation.do(Do(client=client, what=what))  # type: ignore[arg-type]

    @property
    def now(self) -> Time:
        return self.simulation.network.kernel.now

    def rest(self) -> None:
        """Let time pass until nothing is on its way."""
        self.simulation.settle()

    def start(self) -> None:
        self.rest()
        if self.advertises:
            for client in self.publishers:
                self.do(client, Advertise(advertisement="1", filter=Filter("TRUE")))
            self.rest()
        self.set_clocks()

    def set_clocks(self) -> None:
        """Have the clocks of all publishers differ; they may be set back."""
        for publisher in self.publishers:
            self.ahead_us[publisher] = self.rng.randint(0, 2 * self.clocks_differ_us)

    def publish(self) -> None:
        attributes: dict[str, Any] = {
            "kind": self.rng.choice("xyz"),
            "zone": self.rng.randint(0, 2),
        }
        publisher = self.rng.choice(self.publishers)
        time_us = self.now + self.ahead_us.get(publisher, 0)
        self.do(publisher, PublishMany(events=((attributes, b""),), time_us=time_us))

    def subscribe(self, *, past: bool = True) -> Wish | None:
        rng, client = self.rng, self.rng.choice(self.subscribers)
        self.names += 1
        name, filter_ = str(self.names), rng.choice(FILTERS)
        if not past:
            self.do(client, Subscribe(subscription=name, filter=filter_))
            return None
        ago_us = rng.randint(-2 * self.clocks_differ_us, 100_000)
        since_us = rng.choice([None, max(0, self.now - ago_us)])
        events_max = rng.choice([1, 2, 4, 10, 1000, 1000 if since_us is None else None])
        wish = self.wishes[client, name] = Wish(filter_, events_max, since_us, self.now)
        self.do(
            client,
            Subscribe(
                subscription=name,
                filter=filter_,
                past_events_max=events_max,
                past_since_us=since_us,
            ),
        )
        return wish

    def unsubscribe(self) -> None:
        known = [key for key, wish in self.wishes.items() if not wish.ended]
        if known:
            client, name = self.rng.choice(known)
            self.wishes[client, name].ended = True
            self.do(client, Unsubscribe(subscription=name))

    def walk(self, steps: int) -> None:
        rng, network = self.rng, self.simulation.network
        faults, moves = self.faults, self.moves
        for _ in range(steps):
            chance = rng.random()
            if chance < 0.6:
                self.publish()
            elif chance < 0.75:
                self.subscribe(past=rng.random() < 0.7)
            elif chance < 0.8:
                self.unsubscribe()
            elif chance < 0.9 and faults:
                links = self.simulation.script.topology.links
                self.simulation.do(random_trouble(rng, self.brokers, links))
            elif chance < 0.95 and moves:
                client = rng.choice([*self.subscribers, *self.publishers])
                if rng.random() < 0.3:
                    self.do(client, Detach())
                else:
                    self.do(client, Attach(broker=rng.choice(self.brokers)))
            if rng.random() < 0.2:
                self.rest()
            else:
                network.run(self.now + rng.choice([0, 300, 1_000, 5_000]))
        if moves:
            for client in (*self.subscribers, *self.publishers):
                self.do(client, Attach(broker=rng.choice(self.brokers)))
        self.rest()

    def ask(self, search: Search, filter_: Filter, events_max: int) -> list[Event]:
        """Have another client ask for the past, when the network has settled."""
        for broker in self.brokers:
            self._parts_of(broker)[0].search = search
        client = self.subscribers[0]
        wish = self.wishes[client, "last"] = Wish(filter_, events_max, None, self.now)
        wanted = Subscribe(subscription="last", filter=filter_, past_events_max=events_max)
        self.do(client, wanted)
        self.simulation.settle()
        return wish.past

    def held(self, filter_: Filter, events_max: int) -> list[Event]:
        """The latest events that any broker has, as far as nothing is missing between them."""
        ids = set()
        for broker in self.brokers:
            recent, searches = self._parts_of(broker)
            buffers = (buffer.passed for buffer in recent.buffers)
            batches = (batch for passed in buffers for batch in passed.batches())
            ids |= {event.id for event in recent.memory.events()}
            ids |= {event.id for batch in batches for event in batch.events}
            ids |= {event.id for _, own in searches.published.items() for event in own.events}
        return self._latest(filter_, events_max, ids)

    def known(self, filter_: Filter, events_max: int) -> list[Event]:
        """The same, of what each broker on the way to publishers knows to have all of."""
        asked = HistoryAsked(
            path=(),
            number=0,
            filter=filter_,
            events_max=None,
            since_us=None,
            search=Search.COMPLETE,
        )
        asker = self.simulation.network.hosts[self.subscribers[0]].node
        assert isinstance(asker, Client)
        assert asker.link is not None
        todo: list[tuple[NodeId, NodeId | None]] = [(asker.link, None)]
        ids = set()
        for broker, back in todo:
            holding = self._parts_of(broker)[1]._holding(asked, back)
            ids |= {event.id for event in holding.stock.runs(None, None, {}).events()}
            todo += [(link, broker) for link in holding.sources]
        return self._latest(filter_, events_max, ids)

    def _parts_of(self, broker: NodeId) -> tuple[Recent, Searches]:
        node = self.simulation.network.hosts[broker].node
        recent, searches = node.part("past"), node.part("search")
        assert isinstance(recent, Recent)
        assert isinstance(searches, Searches)
        return recent, searches

    def _latest(self, filter_: Filter, events_max: int, ids: Collection[EventId]) -> list[Event]:
        """The latest of these events, as far as nothing is missing between them."""
        runs = {}
        for publisher, events in self.published().items():
            matching = [event for event in events if filter_.matches(event.attributes)]
            lost = [place for place, event in enumerate(matching) if event.id not in ids]
            runs[publisher] = matching[lost[-1] + 1 if lost else 0 :]
        return latest(runs, events_max, None)

    # ---- What must hold

    def published(self) -> dict[NodeId, list[Event]]:
        found: dict[NodeId, list[Event]] = defaultdict(list)
        for fact in self.facts.all:
            if isinstance(fact, facts.Published):
                for event in fact.events:
                    found[event.publisher].append(event)
        return found

    def check(self) -> None:
        self.holds.check()
        truth = self.published()
        for key, wish in self.wishes.items():
            past = wish.past
            assert wish.events_max is None or len(past) <= wish.events_max, key
            assert all(wish.filter.matches(event.attributes) for event in past), key
            assert all(event.time_us >= (wish.since_us or 0) for event in past), key
            last: dict[NodeId, int] = {}
            for event in wish.all:
                assert event.seq > last.get(event.publisher, 0), (key, wish.all)
                last[event.publisher] = event.seq
            if not wish.ended:
                self._check_gaps(key, wish, truth)

    def _check_gaps(
        self, key: tuple[NodeId, str], wish: Wish, truth: dict[NodeId, list[Event]]
    ) -> None:
        firsts: dict[NodeId, int] = {}
        for event in wish.past:
            firsts.setdefault(event.publisher, event.seq)
        got = {event.id for event in wish.all}
        for publisher, first in firsts.items():
            for event in truth[publisher]:
                if event.seq >= first and wish.filter.matches(event.attributes):
                    assert event.id in got, f"{key} lacks {event.id}: {sorted(got)}"
