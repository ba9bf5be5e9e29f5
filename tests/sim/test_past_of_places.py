"""The past of a place: a subscription with `myloc` begins anew wherever the client is. (Cilia, 5.1)

A car that turns into a street has the state of its traffic light at once, not at the next change.
"""

from collections import Counter, defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.actions import Action, Deliver
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.history.facts import PastHeld
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.recall import HOLD_US
from sterna.core.inputs import Attach, Detach, MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.names import NodeId, Time
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Crash, Do, Doing, Drop, Pause, Script
from sterna.sim.topology import line, random_tree
from tests.scale import examples
from tests.sim.overlay import RELOCATION, Overlay

pytestmark = pytest.mark.spec("PA-2")

STREETS = PlacesOptions(
    edges=(("north", "center"), ("center", "south")), dwell=Dwell.FIXED, dwell_us=1_000_000
)


def town(**more: object) -> Overlay:
    """The lights of the town are at B1, and the car and the policeman at B3."""
    run = Overlay(
        line(3),
        {"car": "B3", "lights": "B1", "police": "B3"},
        places=STREETS,
        locations={"car": "north"},
        protocols=("past", "search"),
        handover=RELOCATION,
        history=HistoryOptions(**more),  # type: ignore[arg-type]
    )
    for street in ("north", "center", "south"):
        for light in ("green", "red"):
            run.publish("lights", street=street, light=light).settle()
    return run


def test_each_place_begins_with_its_own_past() -> None:
    """Events 1 and 2 are about the north, 3 and 4 about the center, 5 and 6 about the south."""
    run = town().subscribe("car", "street IN myloc", past=1).settle()
    assert run.recalled("car") == ["lights#2"]

    for street, number in (("center", 4), ("south", 6), ("center", 4)):
        run.move("car", street).settle()
        assert run.recalled("car")[-1] == f"lights#{number}"
    assert len(run.recalled("car")) == 4

    run.publish("lights", street="center", light="green").publish(
        "lights", street="north", light="red"
    )
    run.settle()
    assert run.received("car") == ["lights#7"]
    assert run.outcome().findings == []


def test_what_is_published_while_the_past_is_searched_follows_it() -> None:
    run = town().subscribe("car", "street IN myloc", past=2).settle()

    run.move("car", "center").publish("lights", street="center", light="green").settle()

    events = [
        (type(fact).__name__, event.seq)
        for fact in run.facts.all
        if isinstance(fact, facts.Recalled | facts.Delivered) and fact.at == "car"
        for event in fact.events
    ]
    assert events[-2:] == [("Recalled", 4), ("Delivered", 7)]  # The latest two, in order.


def test_who_moves_on_gets_nothing_of_where_it_was() -> None:
    """The answer for the center comes when the car is in the south."""
    run = town().subscribe("car", "street IN myloc", past=1).settle()

    run.move("car", "center").wait(1_000).move("car", "south").settle()

    assert run.recalled("car") == ["lights#2", "lights#6"]


@pytest.mark.spec("PA-3")
def test_how_far_back_counts_from_each_move() -> None:
    run = town().subscribe("car", "street IN myloc", since_us=0).settle()
    assert run.recalled("car") == ["lights#1", "lights#2"]

    run.wait(1_000_000).move("car", "center").settle()
    assert run.recalled("car")[2:] == []  # As long ago as it asked for, there was nothing yet.


def test_a_car_that_comes_to_another_broker_meanwhile_gets_its_past_there() -> None:
    run = town().subscribe("car", "street IN myloc", past=1).settle()

    run.move("car", "center").detach("car").attach("car", "B2").settle()

    assert run.recalled("car") == ["lights#2", "lights#4"]
    run.publish("lights", street="center", light="green").settle()
    assert run.received("car") == ["lights#7"]


def test_where_a_car_was_its_broker_has_not_everything_any_more() -> None:
    """B3 has what the policeman wants, and the car has seen everything before."""
    run = town(publisher_events=0, search=Search.NEAREST)
    run.subscribe("car", "street IN myloc", past=1).settle().move("car", "south").settle()
    run.subscribe("police", "street = 'north' AND light = 'red'").settle()
    for light in ("red", "green", "red"):
        run.publish("lights", street="north", light=light).settle()

    run.subscribe("police", "street = 'north'", name="2", past=10).settle()

    assert run.received("police") == ["lights#7", "lights#9"]
    assert run.recalled("police") == []


def test_what_was_kept_at_the_last_place_is_no_past_of_this_one() -> None:
    run = town().subscribe("car", "street IN myloc", past=1).settle().detach("car").settle()
    run.publish("lights", street="north", light="green").settle()

    run.move("car", "center").attach("car", "B2").settle()

    assert run.received("car") == ["lights#7"]
    assert run.recalled("car") == ["lights#2", "lights#4"]


def test_a_broker_knows_where_a_car_is_before_it_is_asked_for_its_past() -> None:
    run = town().subscribe("car", "street IN myloc", past=1).settle().detach("car").settle()
    run.move("car", "center").settle()
    first = len(run.trace.lines)

    run.attach("car", "B3").settle()

    sent = [line.split()[4] for line in run.trace.lines[first:] if "car → B3" in line]
    kinds = [kind for kind in sent if kind in {"MovingChange", "PastAsked"}]
    assert kinds == ["MovingChange", "PastAsked"]


def test_a_question_waits_for_a_link_behind_where_the_car_is() -> None:
    """Else B1 would answer, and then route what follows to where the car was."""
    run = town(publisher_events=0, search=Search.MERGED)
    run.subscribe("car", "street IN myloc", past=1).settle()
    run.fault(Drop(a="B1", b="B2", us=100_000)).move("car", "south").wait(10_000)
    first = len(run.trace.lines)

    run.settle()

    sent = [line.split()[4] for line in run.trace.lines[first:] if "B2 → B1" in line]
    kinds = [kind for kind in sent if kind in {"MovingChange", "HistoryAsked"}]
    assert kinds.index("MovingChange") < kinds.index("HistoryAsked")


def test_a_subscription_that_ends_asks_for_no_more() -> None:
    run = town().subscribe("car", "street IN myloc", past=1).settle().unsubscribe("car").settle()

    run.move("car", "center").settle()

    assert run.recalled("car") == ["lights#2"]


@pytest.mark.spec("PA-2", "PA-5")
def test_what_waits_for_the_past_of_another_place_does_not_count_for_this_one() -> None:
    """Two events in the center and one in the south are not the three that are asked for."""
    run = town().subscribe("car", "street IN myloc", past=3).settle()
    run.fault(Drop(a="B1", b="B2", us=100_000)).move("car", "center").wait(10_000)
    run.publish("police", street="center").publish("police", street="center").wait(10_000)

    run.move("car", "south").publish("police", street="south").settle()

    assert run.recalled("car") == ["lights#1", "lights#2", "lights#5", "lights#6"]
    assert run.received("car") == ["police#1", "police#2", "police#3"]


@pytest.mark.spec("PA-5")
def test_what_waits_for_the_past_of_another_place_holds_up_nothing() -> None:
    """Every event in the center is wanted by another subscription as well, which has no past."""
    run = town().subscribe("car", "street IN myloc", past=3).settle()
    run.subscribe("car", "street = 'center'", name="2").settle()
    run.fault(Drop(a="B1", b="B2", us=100_000)).move("car", "center").wait(10_000)
    run.publish("police", street="center").wait(10_000)
    assert run.received("car") == []

    run.move("car", "south").wait(10_000)

    assert run.received("car") == ["police#1"]


@pytest.mark.spec("PA-5")
def test_what_has_waited_is_delivered_when_the_car_goes_on_to_another_place() -> None:
    """Without a past it would have been delivered at once; so it is no later than the move."""
    run = town().subscribe("car", "street IN myloc", past=3).settle()
    run.fault(Drop(a="B1", b="B2", us=100_000)).move("car", "center").wait(10_000)
    run.publish("police", street="center").publish("police", street="center").wait(10_000)
    assert run.received("car") == []

    run.move("car", "south").wait(10_000)
    assert run.received("car") == ["police#1", "police#2"]
    assert [fact.anywhere for fact in run.facts.all if isinstance(fact, facts.Delivered)] == [True]
    assert [fact.held for fact in run.facts.all if isinstance(fact, PastHeld)] == [2]

    run.settle()
    assert run.recalled("car")[2:] == ["lights#5", "lights#6"]
    assert run.outcome().findings == []


@pytest.mark.spec("PA-2")
def test_what_has_waited_is_not_for_a_later_subscription_with_the_same_name() -> None:
    """It still waits for another subscription, and that one gets it."""
    run = town().fault(Drop(a="B1", b="B2", us=100_000))
    run.subscribe("car", "street = 'center'", past=9).subscribe("car", "TRUE", name="2", past=9)
    run.wait(10_000).publish("police", street="center").wait(10_000)

    node = run.simulation.network.hosts["car"].node
    given: list[tuple[str, ...]] = []
    act = node.act

    def listen(action: Action) -> None:
        act(action)
        if isinstance(action, Deliver):
            given.extend(action.subscriptions)

    node.act = listen  # type: ignore[method-assign]
    run.unsubscribe("car").subscribe("car", "street = 'south'").settle()

    assert run.received("car") == ["police#1"]
    assert given[-1] == ("2",)


@pytest.mark.spec("PA-2", "PA-5")
def test_what_waits_again_after_a_return_has_not_begun_to_wait_anew() -> None:
    """It was held up meanwhile by a subscription whose past has not come, which ends then."""
    run = town().subscribe("car", "street IN myloc", past=3).settle()
    run.fault(Drop(a="B1", b="B2", us=60_000_000)).move("car", "center")
    run.subscribe("car", "street = 'north'", name="2", past=9).wait(10_000)
    run.publish("police", street="north").publish("police", street="center").wait(10_000)
    run.fault(Pause(broker="B3", us=60_000_000)).move("car", "south").wait(1_000_000)

    run.move("car", "center").unsubscribe("car", "2")
    assert run.received("car") == []
    run.wait(HOLD_US - 1_000_000)

    assert run.received("car") == ["police#2"]


HANDOVERS = [each for each in Handover if each not in {Handover.NONE, Handover.NAIVE}]

WISHES = ("street IN myloc", "street IN myloc AND kind = 'x'", "street IN myloc OR kind = 'x'")


class Drive:
    """Cars that drive through a random town, each with a subscription; what comes, and when."""

    def __init__(self, seed: int, handover: Handover, *, past: bool) -> None:
        rng = self.rng = Random(seed)  # noqa: S311 - reproducible.
        topology = random_tree(rng.randint(1, 5), seed)
        self.streets = [f"street {number}" for number in range(rng.randint(2, 4))]
        edges = tuple(
            (street, rng.choice(self.streets[:number]))
            for number, street in enumerate(self.streets)
            if number
        )
        self.places = PlacesOptions(edges=edges, dwell=Dwell.FIXED, dwell_us=1_000_000)
        self.serves = {street: rng.choice(topology.brokers) for street in self.streets}
        self.cars = ["car 1", "car 2", "car 3"]
        self.at = {car: rng.choice(self.streets) for car in self.cars}
        self.wishes = {car: Filter(rng.choice(WISHES)) for car in self.cars}
        self.counts = {car: rng.choice([1, 2, 4, 10]) for car in self.cars}
        self.past = past
        lights = {name: rng.choice(topology.brokers) for name in ("light 1", "light 2")}
        script = Script(
            topology=topology,
            clients={**lights, **{car: self.serves[at] for car, at in self.at.items()}},
            steps=tuple(Crash(broker=each, us=0) for each in topology.brokers),
            latencies=tuple((a, b, rng.randint(0, 30_000)) for a, b in topology.links),
            handover=HandoverOptions(protocol=handover),
            places=self.places,
            locations=dict(self.at),
            protocols=("overlay", "post", "past", "search"),
            seed=seed,
        )
        self.simulation = Simulation(script)
        self.stays: dict[NodeId, list[tuple[Time, str]]] = defaultdict(list)
        """When each car came where, from its subscription on."""
        self.came: dict[NodeId, dict[EventId, Time]] = {car: {} for car in self.cars}
        self.counted: dict[NodeId, list[list[Time]]] = defaultdict(list)
        """For each of these stays, when the events came that are about its place."""
        for car in self.cars:
            self._listen(car)

    def _listen(self, car: NodeId) -> None:
        node = self.simulation.network.hosts[car].node
        act = node.act

        def listen(action: Action) -> None:
            act(action)
            if isinstance(action, Deliver):
                now = self.simulation.network.kernel.now
                for event in action.events:
                    self.came[car].setdefault(event.id, now)
                    if self._here(car).matches(event.attributes):
                        self.counted[car][-1].append(now)

        node.act = listen  # type: ignore[method-assign]

    def _here(self, car: NodeId) -> Filter:
        """What a car wants where it is."""
        return self.wishes[car].bind({}, location=self.at[car], space=self.places.space())

    def _do(self, client: NodeId, what: Doing) -> None:
        self.simulation.do(Do(client=client, what=what))

    def go(self) -> None:
        rng, network = self.rng, self.simulation.network
        now: Time = 1_000_000
        network.run(now)
        for _ in range(80):
            now += rng.choice([0, 1_000, 10_000, 50_000])
            network.run(now)
            chance, car = rng.random(), rng.choice(self.cars)
            if chance < 0.7:
                attributes = {"street": rng.choice(self.streets), "kind": rng.choice("xyz")}
                self._do(rng.choice(["light 1", "light 2"]), Publish(attributes=attributes))
            elif car not in self.counted:
                self._subscribe(car)
            else:
                self._drive(car, rng.choice(self.streets), naps=rng.random() < 0.3)
        network.run(now + 120_000_000)

    def _subscribe(self, car: NodeId) -> None:
        self.counted[car].append([])
        events_max = self.counts[car] if self.past else None
        wanted = Subscribe(subscription="1", filter=self.wishes[car], past_events_max=events_max)
        self._do(car, wanted)

    def _drive(self, car: NodeId, street: str, *, naps: bool) -> None:
        if street != self.at[car]:
            if naps:
                self._do(car, Detach())
            self._do(car, MoveTo(location=street))
            self._do(car, Attach(broker=self.serves[street]))
            self.at[car] = street
            self.counted[car].append([])


@pytest.mark.spec("PA-5")
@pytest.mark.parametrize("handover", HANDOVERS)
def test_wherever_a_car_goes_nothing_is_withheld_and_the_nth_event_is_no_later(
    handover: Handover,
) -> None:
    """Than without a past; what has waited counts for the place that it is about."""
    seen: Counter[str] = Counter()

    @examples(8, long=5)
    @given(st.integers(0, 2**32))
    def runs(seed: int) -> None:
        plain, past = (Drive(seed, handover, past=each) for each in (False, True))
        plain.go()
        past.go()
        for car, came in plain.came.items():
            for event, time in came.items():
                assert event in past.came[car], (car, event)
                assert past.came[car][event] <= time + HOLD_US, (car, event)
                seen.update(held=past.came[car][event] > time)
            most = plain.counts[car]
            for stay, stay_past in zip(plain.counted[car], past.counted[car], strict=True):
                if len(stay) >= most:
                    assert stay_past[most - 1] <= stay[most - 1], (car, stay, stay_past)
                    seen.update(compared=1, earlier=stay_past[most - 1] < stay[most - 1])

    runs()
    assert min(seen["held"], seen["compared"], seen["earlier"]) > 0
