"""Searches for the past in random networks: whatever is delivered as past has no gap up to what
follows, none twice, in order, no more than was asked for; and each variant finds what it promises.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.actions import Action, Deliver
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history import search as module
from sterna.core.history.options import BufferOptions, HistoryOptions, Search
from sterna.core.history.recent import Recent
from sterna.core.history.runs import latest
from sterna.core.history.search import Searches
from sterna.core.inputs import (
    Advertise,
    Attach,
    Detach,
    Publish,
    PublishMany,
    Subscribe,
    Unsubscribe,
)
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import (
    Crash,
    Do,
    Doing,
    Drop,
    LinkModel,
    Partition,
    Pause,
    Script,
)
from sterna.sim.topology import random_tree
from tests.scale import examples
from tests.sim.holds import Holds
from tests.sim.overlay import Facts

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
        self.advertises = advertises
        script = Script(
            topology=topology,
            clients={c: rng.choice(self.brokers) for c in (*self.publishers, *self.subscribers)},
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers if faults),
            routing=RoutingOptions(strategy=rng.choice([*Strategy]), advertisements=advertises),
            client=ClientOptions(advertisements=advertises),
            handover=HandoverOptions(protocol=handover),
            link=LinkModel(jitter_us=rng.choice([0, 500])),
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

    def start(self) -> None:
        self.simulation.settle()
        if self.advertises:
            for client in self.publishers:
                self.do(client, Advertise(advertisement="1", filter=Filter("TRUE")))
            self.simulation.settle()
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
                self.simulation.do(self.fault())
            elif chance < 0.95 and moves:
                client = rng.choice([*self.subscribers, *self.publishers])
                if rng.random() < 0.3:
                    self.do(client, Detach())
                else:
                    self.do(client, Attach(broker=rng.choice(self.brokers)))
            if rng.random() < 0.2:
                self.simulation.settle()
            else:
                network.run(self.now + rng.choice([0, 300, 1_000, 5_000]))
        if moves:
            for client in (*self.subscribers, *self.publishers):
                self.do(client, Attach(broker=rng.choice(self.brokers)))
        self.simulation.settle()

    def fault(self) -> Crash | Pause | Partition | Drop:
        """A broker that crashes, stands still or is cut off, or a link that breaks."""
        rng = self.rng
        broker, us = rng.choice(self.brokers), rng.choice([500, 5_000, 50_000, 3_000_000])
        links = self.simulation.script.topology.links
        kind = rng.choice(
            [Crash, Crash, Pause, Pause, Partition, Drop] if links else [Crash, Pause]
        )
        if kind is Partition:
            return Partition(brokers=(broker,), us=us)
        if kind is Drop:
            a, b = rng.choice(links)
            return Drop(a=a, b=b, us=us)
        return Crash(broker=broker, us=us) if kind is Crash else Pause(broker=broker, us=us)

    def ask(self, search: Search, filter_: Filter, events_max: int) -> list[Event]:
        """Have another client ask for the past, when the network has settled."""
        for broker in self.brokers:
            recent = self.simulation.network.hosts[broker].node.part("past")
            assert isinstance(recent, Recent)
            recent.search = search
        client = self.subscribers[0]
        wish = self.wishes[client, "last"] = Wish(filter_, events_max, None, self.now)
        wanted = Subscribe(subscription="last", filter=filter_, past_events_max=events_max)
        self.do(client, wanted)
        self.simulation.settle()
        return wish.past

    def held(self, filter_: Filter, events_max: int, *, own_only: bool = False) -> list[Event]:
        """The latest events that any broker has, as far as nothing is missing between them; or
        only those of publishers that it keeps as their broker.
        """
        ids = set()
        for broker in self.brokers:
            node = self.simulation.network.hosts[broker].node
            recent, searches = node.part("past"), node.part("search")
            assert isinstance(recent, Recent)
            assert isinstance(searches, Searches)
            if not own_only:
                buffers = (buffer.passed for buffer in recent.buffers)
                batches = (batch for passed in buffers for batch in passed.batches())
                ids |= {event.id for event in recent.memory.events()}
                ids |= {event.id for batch in batches for event in batch.events}
            ids |= {event.id for _, own in searches.published.items() for event in own.events}
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


@pytest.mark.spec("PA-2", "PA-3", "PM-4")
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("faults", [False, True], ids=["", "faults"])
@pytest.mark.parametrize("moves", [False, True], ids=["", "moves"])
def test_the_past_has_no_gap(search: Search, faults: bool, moves: bool) -> None:
    """Subscribers and publishers may move to other brokers, also before their past has come."""
    seen: Counter[str] = Counter()

    @examples(42, long=3)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        run = Searched(seed, search, faults=faults, moves=moves)
        run.start()
        run.walk(40)
        run.check()
        seen.update(runs=1, past=sum(len(wish.past) for wish in run.wishes.values()))
        seen.update(held=run.holds.held)

    runs()
    assert seen["past"] > seen["runs"]
    assert seen["held"] > 0


@pytest.mark.spec("PA-2", "PA-3")
@pytest.mark.parametrize("search", SEARCHES)
def test_clocks_that_differ_make_no_gap(search: Search) -> None:
    """Clocks decide which events are the last ones, and how far back a time goes."""
    seen: Counter[str] = Counter()

    @examples(15)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        run = Searched(
            seed, search, faults=seed % 3 == 0, moves=seed % 2 == 0, clocks_differ_us=10_000_000
        )
        run.start()
        run.walk(20)
        run.set_clocks()  # They are set again meanwhile, some of them back.
        run.walk(20)
        run.check()
        seen.update(runs=1, past=sum(len(wish.past) for wish in run.wishes.values()))

    runs()
    assert seen["past"] > seen["runs"]


@pytest.mark.spec("PA-2", "LV-6")
@pytest.mark.parametrize("search", SEARCHES)
def test_limits_make_no_gaps(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that are cut and come in parts, questions that say less, searches that end early."""
    limits = {
        "ANSWER_EVENTS_MAX": 6,
        "ANSWER_BYTES_MAX": 300,
        "FOUND_BYTES_MAX": 20_000,
        "KNOWN_MAX": 1,
        "PART_BYTES_MAX": 100,
        "PART_RUNS_MAX": 1,
        "PASSING_MAX": 3,
        "PREPARED_MAX": 1,
        "SEARCHES_MAX": 5,
        "SEARCHES_PER_CLIENT_MAX": 2,
    }
    for name, limit in limits.items():
        monkeypatch.setattr(module, name, limit)
    seen: Counter[str] = Counter()

    @examples(42, long=3)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        run = Searched(seed, search, faults=seed % 2 == 0, moves=seed % 3 == 0)
        run.start()
        run.walk(40)
        run.check()
        seen.update(runs=1, past=sum(len(wish.past) for wish in run.wishes.values()))

    runs()
    assert seen["past"] > seen["runs"] / 2


@pytest.mark.spec("PA-5")
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("trouble", ["", "a broker is down", "an archive never answers"])
def test_the_nth_event_is_there_no_later_than_without_a_past(search: Search, trouble: str) -> None:
    seen: Counter[str] = Counter()

    @examples(25)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        plain, past = (times_of(seed, search, trouble, past=past) for past in (False, True))
        for name, (events_max, came) in past.items():
            _, came_plainly = plain[name]
            if len(came_plainly) >= events_max:
                assert came[events_max - 1] <= came_plainly[events_max - 1]
                seen.update(compared=1, earlier=came[events_max - 1] < came_plainly[events_max - 1])
        seen.update(runs=1)

    runs()
    assert seen["compared"] > seen["runs"] / 2
    assert seen["earlier"] > 0


def times_of(
    seed: int, search: Search, trouble: str, *, past: bool
) -> dict[str, tuple[int, list[Time]]]:
    """How many events each subscriber asks for, and when each of its events came."""
    rng = Random(seed)  # noqa: S311 - reproducible.
    topology = random_tree(rng.randint(2, 6), seed)
    subscribers = [f"s{number}" for number in range(8)]
    clients = {name: rng.choice(topology.brokers) for name in ("p1", "p2", *subscribers)}
    down = rng.choice(topology.brokers) if trouble == "a broker is down" else None
    script = Script(
        topology=topology,
        clients=clients,
        steps=tuple(Crash(broker=each, us=0) for each in topology.brokers),
        latencies=tuple((a, b, rng.randint(0, 30_000)) for a, b in topology.links),
        protocols=("past", "search"),
        history=HistoryOptions(search=search, events_max=rng.choice([0, 10])),
        seed=seed,
    )
    simulation = Simulation(script)
    network, came = simulation.network, defaultdict[str, list[Time]](list)
    for host in network.hosts.values():
        recent = host.node.part("past")
        if isinstance(recent, Recent):
            recent.has_archive = trouble == "an archive never answers"
    wanted: dict[str, int] = {}
    for client in subscribers:
        node = network.hosts[client].node

        def listen(
            action: Action, act: Callable[[Action], None] = node.act, name: str = client
        ) -> None:
            act(action)
            if isinstance(action, Deliver):
                came[name] += [network.kernel.now] * len(action.events)

        node.act = listen  # type: ignore[method-assign]
    now: Time = 1_000_000
    network.run(now)
    for number in range(60):
        now += rng.choice([0, 1_000, 10_000, 50_000])
        network.run(now)
        if rng.random() < 0.8 or len(wanted) == len(subscribers):
            attributes: dict[str, Any] = {"kind": rng.choice("xyz"), "zone": rng.randint(0, 2)}
            what: Doing = Publish(attributes=attributes)
            simulation.do(Do(client=rng.choice(["p1", "p2"]), what=what))
        else:
            client, events_max = subscribers[len(wanted)], rng.choice([1, 2, 4, 10])
            wanted[client] = events_max
            what = Subscribe(
                subscription="1",
                filter=rng.choice(FILTERS),
                past_events_max=events_max if past else None,
            )
            simulation.do(Do(client=client, what=what))
        if number == 30 and down is not None:
            simulation.do(Crash(broker=down, us=60_000_000))
    network.run(now + 120_000_000)
    return {name: (events_max, came[name]) for name, events_max in wanted.items()}


@pytest.mark.spec("PA-2")
@pytest.mark.parametrize("trouble", ["", "faults", "moves"])
def test_each_variant_finds_at_least_as_much_as_the_one_before(trouble: str) -> None:
    """The last one finds at least the latest that any publisher's broker has of its own publishers;
    of what others have, what they know to be all there is.

    Where publishers have moved, those that send less because of what others have may find less; or
    more, for what is not sent again leaves room in an answer for earlier events.
    """
    seen: Counter[str] = Counter()

    @examples(30, long=10)
    @example(304, 10)
    @example(302, 3)
    @example(368782, 3)
    @given(st.integers(0, 2**32), st.sampled_from([1, 3, 10, 1000]))
    def runs(seed: int, events_max: int) -> None:
        filter_ = FILTERS[seed % len(FILTERS)]
        faults, moves = trouble == "faults", trouble == "moves"
        walked = {
            each: Searched(seed, Search.COMPLETE, faults=faults, moves=moves) for each in SEARCHES
        }
        for run in walked.values():
            run.start()
            run.walk(30)
        complete = walked[Search.COMPLETE]
        held = complete.held(filter_, events_max)
        own = complete.held(filter_, events_max, own_only=True)
        found = {each: run.ask(each, filter_, events_max) for each, run in walked.items()}
        counts = {search: len(found[search]) for search in SEARCHES}
        most = max(counts.values())
        assert counts[Search.MERGED] == counts[Search.JUNCTIONS], found
        assert most <= len(held), found
        if not moves:
            assert counts[Search.MERGED] == most, found
            assert [*counts.values()] == sorted(counts.values()), found
            assert most >= len(own)
            assert own != held or found[Search.COMPLETE] == held
            seen.update(exact=own == held)
        seen.update(runs=1, nearest=counts[Search.NEAREST], complete=counts[Search.COMPLETE])

    runs()
    assert seen["complete"] >= seen["nearest"] > 0
    assert seen["exact"] > seen["runs"] / 4 or trouble == "moves"


@pytest.mark.spec("PA-2")
@pytest.mark.parametrize(("seed", "filter_"), [(455, FILTERS[0]), (478, FILTERS[3])])
def test_what_the_asker_has_joins_what_a_publisher_left_behind(seed: int, filter_: Filter) -> None:
    """A broker has events of before a move; those after it are known to who asks."""
    found = []
    for search in (Search.JUNCTIONS, Search.COMPLETE):
        run = Searched(seed * 7919 + 13, Search.COMPLETE, faults=False, moves=True)
        run.start()
        run.walk(30)
        found.append(run.ask(search, filter_, 1000))

    assert found[0] == found[1] != []
