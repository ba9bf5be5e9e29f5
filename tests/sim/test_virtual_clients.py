"""Cars that drive through random towns, and virtual clients ahead of them. (Cilia et al., 4)

Wherever a car comes, its subscription begins with the past of that place. What is delivered there
has no gap; after settling, the places within reach have a virtual client each, and no others have.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.actions import Action, Deliver
from sterna.core.handover.home import Home
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history.messages import PastAsked
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.searching import Found
from sterna.core.inputs import (
    Attach,
    Detach,
    Leave,
    MemoryShort,
    MoveTo,
    Publish,
    Subscribe,
    Unsubscribe,
)
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.presubscribing.facts import VirtualEnded
from sterna.core.presubscribing.replicator import AGAIN_US, Presubscribing
from sterna.core.presubscribing.virtual import Virtual
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, Doing, LinkModel, Script
from sterna.sim.topology import random_tree
from tests.scale import examples
from tests.sim.holds import Holds
from tests.sim.overlay import Facts
from tests.sim.strategies import random_combination, random_predictor
from tests.sim.troubles import random_trouble

HANDOVERS = [each for each in Handover if each not in {Handover.NONE, Handover.NAIVE}]

COUNTS = ("came", "repeated", "handed", "dropped", "unused")
AWAY_MAX_US: Time = 20_000_000
"""Longer than any fault."""
HOLDS = [5_000_000, 50_000, 1_000]


@dataclass
class Stay:
    """What a car got about the place where it was, from when it came until it went on."""

    place: str
    past: list[Event] = field(default_factory=list)
    all: list[Event] = field(default_factory=list)


class Town:
    """A random town, brokers that serve its streets, lights that publish, and cars."""

    def __init__(
        self,
        seed: int,
        *,
        handover: Handover = Handover.RELOCATION,
        search: Search = Search.COMPLETE,
        faults: bool = False,
        ahead: bool = True,
        bounds: dict[str, int] | None = None,
        away_max_us: Time | None = None,
    ) -> None:
        rng = self.rng = Random(seed)  # noqa: S311 - reproducible.
        self.faults = faults
        topology = random_tree(rng.randint(1, 5), seed)
        self.brokers = topology.brokers
        self.streets = [f"street {number}" for number in range(rng.randint(2, 6))]
        edges = [
            (street, rng.choice(self.streets[:number]))
            for number, street in enumerate(self.streets)
            if number
        ]
        self.places = PlacesOptions(
            edges=tuple(edges), dwell=Dwell.FIXED, dwell_us=rng.choice([1_000, 1_000_000])
        )
        self.serves = {street: rng.choice(self.brokers) for street in self.streets}
        self.lights = [f"light {number}" for number in range(rng.randint(1, 3))]
        self.cars = [f"car {number}" for number in range(rng.randint(1, 2))]
        at = {car: rng.choice(self.streets) for car in self.cars}
        protocols = ("overlay", "post", "past", "search", *(("presubscribing",) if ahead else ()))
        self.events_max = rng.choice([1, 2, 5])
        by_strategy = Random(seed)  # noqa: S311 - reproducible.
        script = Script(
            topology=topology,
            clients={
                **{light: rng.choice(self.brokers) for light in self.lights},
                **{car: self.serves[street] for car, street in at.items()},
            },
            steps=tuple(Crash(broker=broker, us=0) for broker in self.brokers if faults),
            routing=RoutingOptions(strategy=rng.choice([*Strategy])),
            handover=HandoverOptions(protocol=handover, away_max_us=away_max_us),
            places=self.places,
            locations=at,
            link=LinkModel(jitter_us=rng.choice([0, 500])),
            protocols=protocols,
            options={
                **random_combination(by_strategy, handover),
                "presubscribing": {"serves": self.serves, "linger_us": 100_000, **(bounds or {})},
            },
            mobility=random_predictor(by_strategy, handover, self.brokers),
            history=HistoryOptions(search=search, hold_us=HOLDS[seed // 7 % len(HOLDS)]),
            seed=seed,
        )
        self.facts, self.holds = Facts(), Holds()
        self.simulation = Simulation(script, [self.facts, self.holds])
        self.holds.network = self.simulation.network
        self.is_at_home = handover is Handover.HOME
        self.at = dict(at)
        self.wants: set[NodeId] = set()
        self.there = set(self.cars)
        self.stays: dict[NodeId, list[Stay]] = defaultdict(list)
        for car in self.cars:
            self._listen(car)

    def _listen(self, car: NodeId) -> None:
        node = self.simulation.network.hosts[car].node
        act, state = node.act, node.state

        def listen(action: Action) -> None:
            act(action)
            if isinstance(action, Deliver) and self.stays[car]:
                stay = self.stays[car][-1]
                stay.all += [e for e in action.events if e.attributes["street"] == stay.place]

        def stated(fact: facts.Fact) -> None:
            state(fact)
            if isinstance(fact, facts.Recalled) and self.stays[car]:
                stay = self.stays[car][-1]
                stay.past += [e for e in fact.events if e.attributes["street"] == stay.place]

        node.act, node.state = listen, stated  # type: ignore[method-assign]

    def do(self, client: NodeId, what: Doing) -> None:
        self.simulation.do(Do(client=client, what=what))

    def settle(self) -> None:
        self.simulation.settle()

    # ---- What happens

    def publish(self) -> None:
        attributes: dict[str, Any] = {"street": self.rng.choice(self.streets)}
        self.do(self.rng.choice(self.lights), Publish(attributes=attributes))

    def subscribe(self, car: NodeId) -> None:
        if car in self.there and car not in self.wants:
            self.wants.add(car)
            self.stays[car].append(Stay(self.at[car]))
            wanted = Subscribe(
                subscription="1",
                filter=Filter("street IN myloc"),
                past_events_max=self.events_max,
            )
            self.do(car, wanted)

    def unsubscribe(self, car: NodeId) -> None:
        if car in self.wants:
            self.wants.remove(car)
            self.stays[car].append(Stay(""))
            self.do(car, Unsubscribe(subscription="1"))

    def drive(self, car: NodeId, street: str) -> None:
        """Go to a street, and to the broker that serves it."""
        if car not in self.there or street == self.at[car]:
            return
        self.at[car] = street
        if car in self.wants:
            self.stays[car].append(Stay(street))
        if self.rng.random() < 0.3:
            self.do(car, Detach())
        self.do(car, MoveTo(location=street))
        self.do(car, Attach(broker=self.serves[street]))

    def leave(self, car: NodeId) -> None:
        if car in self.there:
            self.there.remove(car)
            self.wants.discard(car)
            self.stays[car].append(Stay(""))
            self.do(car, Leave())

    def walk(self, steps: int, *, leaves: bool = True) -> None:
        rng, network = self.rng, self.simulation.network
        for _ in range(steps):
            chance, car = rng.random(), rng.choice(self.cars)
            if chance < 0.5:
                self.publish()
            elif chance < 0.6:
                self.subscribe(car)
            elif chance < 0.63:
                self.unsubscribe(car)
            elif chance < 0.8:
                self.drive(car, rng.choice(self.next_to(car)))
            elif chance < 0.85:
                self.drive(car, rng.choice(self.streets))  # Nobody has foreseen that.
            elif chance < 0.87 and leaves:
                self.leave(car)
            elif self.faults:
                links = self.simulation.script.topology.links
                self.simulation.do(random_trouble(rng, self.brokers, links))
            if rng.random() < 0.2:
                self.settle()
            else:
                network.run(network.kernel.now + rng.choice([0, 300, 1_000, 5_000, 200_000]))
        self.settle()
        if self.faults:  # Virtual clients search again if a broker has not answered.
            network.run(network.kernel.now + AGAIN_US)
            self.settle()

    def next_to(self, car: NodeId) -> list[str]:
        at = self.at[car]
        return sorted(self.places.space().ploc(at, 1) - {at})

    # ---- What must hold

    def virtual(self) -> dict[NodeId, list[str]]:
        """The virtual clients of each broker."""
        found = {}
        for broker in self.brokers:
            part = self.simulation.network.hosts[broker].node.part("presubscribing")
            assert isinstance(part, Presubscribing)
            assert all(each.is_ready for each in part.virtual.values())
            found[broker] = sorted(part.virtual)
        return found

    def home_of(self, car: NodeId) -> NodeId:
        """The broker that routes for a car, wherever it is."""
        for broker in self.brokers:
            part = self.simulation.network.hosts[broker].node.part("home")
            assert isinstance(part, Home)
            guest = part.guests.get(car)
            if guest is not None and not guest.home:
                return broker
        raise AssertionError(f"{car} has no home")

    def within_reach(self) -> dict[NodeId, list[str]]:
        """The same, as it should be."""
        wanted: dict[NodeId, list[str]] = {broker: [] for broker in self.brokers}
        for car in self.wants:
            for street in self.next_to(car):
                broker = self.home_of(car) if self.is_at_home else self.serves[street]
                wanted[broker].append(f"~{car}/1@{street}")
        return {broker: sorted(names) for broker, names in wanted.items()}

    def about(self, street: str) -> dict[NodeId, list[Event]]:
        """What each light has published about a street."""
        found: dict[NodeId, list[Event]] = defaultdict(list)
        for fact in self.facts.all:
            if isinstance(fact, facts.Published):
                for event in fact.events:
                    if event.attributes["street"] == street:
                        found[event.publisher].append(event)
        return found

    def latest(self, street: str) -> list[Event]:
        """The last events about a street, as many as a car asks for."""
        every = [event for events in self.about(street).values() for event in events]
        return sorted(every, key=lambda event: (event.time_us, event.publisher))[-self.events_max :]

    def check(self) -> None:
        self.holds.check()
        for car, stays in self.stays.items():
            for stay in stays:
                self._check(car, stay, is_over=stay is not stays[-1])

    def _check(self, car: NodeId, stay: Stay, *, is_over: bool) -> None:
        assert len(stay.past) <= self.events_max, (car, stay)
        last: dict[NodeId, int] = {}
        for event in stay.all:
            assert event.seq > last.get(event.publisher, 0), (car, stay)
            last[event.publisher] = event.seq
        firsts: dict[NodeId, int] = {}
        for event in stay.past:
            firsts.setdefault(event.publisher, event.seq)
        got = {event.id for event in stay.all}
        truth = self.about(stay.place)
        for light, first in firsts.items():
            for event in truth[light]:
                if event.seq >= first and not (is_over and event.seq > last[light]):
                    assert event.id in got, f"{car} at {stay.place} lacks {event.id}: {sorted(got)}"


@pytest.mark.spec("PA-1", "PA-2", "PA-4", "PM-4")
@pytest.mark.parametrize("faults", [False, True], ids=["", "faults"])
@pytest.mark.parametrize("handover", HANDOVERS)
def test_the_places_within_reach_have_a_virtual_client(handover: Handover, faults: bool) -> None:
    seen: Counter[str] = Counter()

    @examples(40, long=5)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        town = Town(seed, handover=handover, faults=faults)
        town.walk(40)
        town.check()
        assert town.virtual() == town.within_reach()
        seen.update(runs=1, virtual=sum(map(len, town.virtual().values())))
        seen.update(past=sum(len(stay.past) for stays in town.stays.values() for stay in stays))

    runs()
    assert min(seen["virtual"], seen["past"]) > seen["runs"] / 2


@pytest.mark.spec("PA-1")
@pytest.mark.parametrize("faults", [False, True], ids=["", "faults"])
@pytest.mark.parametrize("handover", HANDOVERS)
def test_nobody_is_expected_who_has_been_forgotten(handover: Handover, faults: bool) -> None:
    """Until the car is back: then it is expected wherever it may go from there."""
    seen: Counter[str] = Counter()

    @examples(15, long=5)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        town = Town(seed, handover=handover, faults=faults, away_max_us=AWAY_MAX_US)
        town.walk(20, leaves=False)
        for car in town.cars:
            town.subscribe(car)
        town.settle()
        seen.update(virtual=sum(map(len, town.virtual().values())))
        gone = town.cars[0]
        town.do(gone, Detach())
        town.wants.remove(gone)
        town.simulation.network.run(town.simulation.network.kernel.now + 4 * AWAY_MAX_US)
        town.settle()
        assert town.virtual() == town.within_reach()
        town.wants.add(gone)
        town.do(gone, Attach(broker=town.serves[town.at[gone]]))
        town.settle()
        assert town.virtual() == town.within_reach()
        seen.update(runs=1)

    runs()
    assert seen["virtual"] > seen["runs"]


@pytest.mark.spec("PA-1", "PA-4")
@pytest.mark.parametrize("search", [Search.NONE, Search.NEAREST, Search.COMPLETE])
def test_a_virtual_client_has_what_the_client_would_have_got(search: Search) -> None:
    """Since it began; with a search, what that has found before as well."""
    seen: Counter[str] = Counter()
    # Without a search, no visitor's question goes home, where its virtual clients are.
    handovers = [h for h in HANDOVERS if search is not Search.NONE or h is not Handover.HOME]

    @examples(40)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        town = Town(
            seed, search=search, handover=handovers[seed % len(handovers)], faults=seed % 3 == 0
        )
        town.walk(20, leaves=False)
        car = town.cars[0]
        town.subscribe(car)
        town.settle()
        began = town.simulation.network.kernel.now
        for _ in range(10):
            town.publish()
            town.settle()  # So that they arrive in the order of their times.
        street = town.rng.choice(town.next_to(car))
        town.drive(car, street)
        town.settle()
        expected = town.latest(street)
        if search is not Search.COMPLETE:  # It may not have found what was before.
            expected = [event for event in expected if event.time_us >= began]
            assert [e for e in town.stays[car][-1].past if e.time_us >= began] == expected
        else:
            past = town.stays[car][-1].past  # Of two with the same time, any may be there.
            assert [event.time_us for event in past] == [event.time_us for event in expected]
        seen.update(runs=1, past=len(expected))

    runs()
    assert seen["past"] > seen["runs"] / 2


class Ledger:
    """Counts on its own what comes to virtual clients, and what of it goes to their clients."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.came: dict[tuple[NodeId, LinkId], list[EventId]] = defaultdict(list)
        self.handed: dict[tuple[NodeId, LinkId], set[EventId]] = defaultdict(set)
        self.ended: list[VirtualEnded] = []
        leaving, begin = Presubscribing.events_leaving, Presubscribing._begin
        answer, remove = Presubscribing.answer, Presubscribing._remove

        def count_leaving(
            part: Presubscribing, events: Sequence[Event], link: LinkId, now: Time
        ) -> Sequence[Event]:
            if link in part.virtual:
                self.came[part.broker.id, link] += [event.id for event in events]
            return leaving(part, events, link, now)

        def count_begin(part: Presubscribing, virtual: Virtual, found: Found, now: Time) -> None:
            if found.is_all:
                ids = [event.id for event in found.events]
                self.came[part.broker.id, virtual.link] += ids
            begin(part, virtual, found, now)

        def count_answer(
            part: Presubscribing, asked: PastAsked, client: LinkId
        ) -> list[Event] | None:
            found = answer(part, asked, client)
            if found is not None:
                at = part._moving.announced_by(client)[asked.route.id].at
                ids = {event.id for event in found}
                self.handed[part.broker.id, f"~{asked.route.id}@{at}"] |= ids
            return found

        def count_remove(part: Presubscribing, virtual: Virtual, now: Time) -> None:
            self.end(part, virtual, now)
            remove(part, virtual, now)

        monkeypatch.setattr(Presubscribing, "events_leaving", count_leaving)
        monkeypatch.setattr(Presubscribing, "_begin", count_begin)
        monkeypatch.setattr(Presubscribing, "answer", count_answer)
        monkeypatch.setattr(Presubscribing, "_remove", count_remove)

    def forget(self) -> None:
        """Begin anew, in another town."""
        self.came.clear()
        self.handed.clear()
        self.ended.clear()

    def end(self, part: Presubscribing, virtual: Virtual, now: Time) -> VirtualEnded:
        """Compare with what the virtual client states."""
        key = part.broker.id, virtual.link
        came, handed = self.came.pop(key, []), self.handed.pop(key, set())
        unused = {event.id for event in virtual.events} - handed
        ended = virtual.ended(part.broker.id, now)
        assert (ended.came, ended.handed, ended.unused) == (len(came), len(handed), len(unused))
        assert ended.came == ended.repeated + ended.handed + ended.dropped + ended.unused
        assert ended.repeated <= len(came) - len(set(came))
        self.ended.append(ended)
        return ended


@pytest.mark.spec("PA-1", "LV-6")
def test_each_event_that_comes_to_a_virtual_client_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client got it, it was dropped, or nobody came for it."""
    seen: Counter[str] = Counter()
    ledger = Ledger(monkeypatch)

    @examples(30, long=5)
    @given(
        st.integers(0, 2**32),
        st.sampled_from([1, 3, 100]),
        st.sampled_from([300, 10_000]),
        st.sampled_from([Search.NONE, Search.COMPLETE]),
    )
    def runs(seed: int, events_max: int, bytes_max: int, search: Search) -> None:
        ledger.forget()
        town = Town(seed, search=search, bounds={"events_max": events_max, "bytes_max": bytes_max})
        nodes = {broker: town.simulation.network.hosts[broker].node for broker in town.brokers}
        for _ in range(4):
            town.walk(12)
            if town.rng.random() < 0.3:
                for node in nodes.values():
                    now = town.simulation.network.kernel.now
                    node.handle(MemoryShort(away_bytes_max=100, spilled_bytes=0), now)
        stated = [fact for fact in town.facts.all if isinstance(fact, VirtualEnded)]
        assert stated == ledger.ended
        for node in nodes.values():
            part = node.part("presubscribing")
            assert isinstance(part, Presubscribing)
            for virtual in part.virtual.values():
                ledger.end(part, virtual, town.simulation.network.kernel.now)
        for ended in ledger.ended:
            seen.update({each: getattr(ended, each) for each in COUNTS})

    runs()
    assert min(seen[each] for each in COUNTS) > 0


@pytest.mark.spec("PA-2", "PM-4")
@pytest.mark.parametrize("faults", [False, True], ids=["", "faults"])
@pytest.mark.parametrize("handover", HANDOVERS)
def test_the_past_of_a_place_has_no_gap(handover: Handover, faults: bool) -> None:
    """Also without virtual clients; and no event waits for a past for longer than it may."""
    seen: Counter[str] = Counter()

    @examples(20, long=10)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        town = Town(seed, handover=handover, faults=faults, ahead=False)
        town.walk(40)
        town.check()
        seen.update(held=town.holds.held)

    runs()
    assert seen["held"] > 0
