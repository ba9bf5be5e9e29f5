"""The town: crossings with lights, cars on their way, and who tells them what."""

import random
from itertools import pairwise

import msgspec

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Advertise, Attach, MoveTo, Publish, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.experiments.cilia_bootstrapping.settings import (
    CHANGE_S,
    JUMPS,
    LINK_MS,
    SIDE,
    Setting,
    Way,
)
from sterna.experiments.experiment import DeliveryError, in_words
from sterna.experiments.timeline import Plan, timed
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import Do, LinkModel, Script, Settle
from sterna.sim.topology import tree

DIRECTORY = "directory"
BEGIN_US = 10_000_000
"""When cars begin to drive, and lights to change."""
STATES = ("green", "amber", "red")

Route = list[tuple[Time, str]]
"""When a car comes to which crossing."""


class Town:
    """What happens in a town, whatever the way in which cars get to know it."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        rng = random.Random(f"town {seed}")  # noqa: S311 - reproducible, not secret.
        places = [(row, column) for row in range(SIDE) for column in range(SIDE)]
        self.topology = tree(SIDE, 3)
        self.serves = dict(zip(map(_name, places), self.topology.leaves(), strict=True))
        self.edges = tuple(
            (_name(here), _name(there))
            for here in places
            for there in ((here[0] + 1, here[1]), (here[0], here[1] + 1))
            if there in places
        )
        self.next_to: dict[str, list[str]] = {place: [] for place in self.serves}
        for here, there in self.edges:
            self.next_to[here].append(there)
            self.next_to[there].append(here)
        self.end_us = BEGIN_US + setting.minutes * 60_000_000
        self.routes = {f"car {n}": self._route(rng) for n in range(1, setting.cars + 1)}
        leaves = self.topology.leaves()
        self.lights = {_light(place): rng.choice(leaves) for place in self.serves}
        """Where the lights are connected: at some broker, mostly not that of their crossing."""
        self.changes = {place: self._changes(rng) for place in self.serves}
        self.expected = {car: self._expected(rng, route) for car, route in self.routes.items()}

    def _route(self, rng: random.Random) -> Route:
        place = rng.choice(list(self.serves))
        route, now = [(0, place)], BEGIN_US + rng.randrange(self.setting.stay_us)
        while now < self.end_us:
            is_jump = rng.random() < JUMPS
            place = rng.choice([e for e in self.serves if e != place] if is_jump
                               else self.next_to[place])  # fmt: skip
            route.append((now, place))
            now += self.setting.stay_us
        return route

    def _changes(self, rng: random.Random) -> list[Time]:
        times, now = [], rng.randrange(BEGIN_US // 2)
        while now < self.end_us:
            times.append(now)
            now += round(rng.uniform(*CHANGE_S) * 1e6)
        return times

    def _expected(self, rng: random.Random, route: Route) -> Route:
        """Where a car is expected; as often right as the settings say."""
        expected = []
        for (_, here), (time, there) in pairwise(route):
            others = [place for place in self.next_to[here] if place != there]
            expected.append((time, there if rng.random() < (self.setting.quality or 0)
                             else rng.choice(others)))  # fmt: skip
        return expected

    def script(self) -> Script:
        """The script of a run."""
        setting, way = self.setting, self.setting.way
        places = PlacesOptions(edges=self.edges, dwell=Dwell.FIXED, dwell_us=setting.stay_us)
        is_one = way.is_ahead and setting.quality is not None
        ahead = {"serves": self.serves, "places_max": 1 if is_one else 8}
        protocols = ("overlay", "post", "past", "search")
        return Script(
            topology=self.topology,
            clients={
                **self.lights,
                **{car: self.serves[route[0][1]] for car, route in self.routes.items()},
                DIRECTORY: self.topology.brokers[0],
            },
            steps=(*self._beginning(), Settle(), *timed(self._plan()), Settle()),
            routing=RoutingOptions(strategy=Strategy.COVERING, advertisements=True),
            client=ClientOptions(advertisements=True),
            link=LinkModel(latency_us=LINK_MS * 1_000, known_arrivals=True),
            handover=HandoverOptions(protocol=Handover.RELOCATION),
            places=places,
            locations={car: route[0][1] for car, route in self.routes.items()},
            protocols=(*protocols, "presubscribing") if way.is_ahead else protocols,
            options={"presubscribing": ahead} if way.is_ahead else {},
            history=way.history,
            itinerary={c: tuple(e) for c, e in self.expected.items()} if is_one else {},
        )

    def _beginning(self) -> list[Do]:
        way = self.setting.way
        steps = []
        for place in self.serves:
            offers = [f"crossing = '{place}'"]
            if way is Way.REQUEST:
                offers.append("reply_to IS NOT NULL")
                steps.append(_subscribe(_light(place), f"ask = '{place}'"))
            if way is Way.EVENT:
                steps.append(_subscribe(_light(place), f"state_of = '{place}'"))
            steps += [_advertise(_light(place), n, text) for n, text in enumerate(offers)]
        if way is Way.REQUEST:
            steps.append(_advertise(DIRECTORY, 0, "reply_to IS NOT NULL"))
            steps.append(_subscribe(DIRECTORY, "look_up IS NOT NULL"))
        for car in self.routes:
            if way is Way.REQUEST:
                steps.append(_advertise(car, 0, "look_up IS NOT NULL"))
                steps.append(_advertise(car, 1, "ask IS NOT NULL"))
                steps.append(_subscribe(car, f"reply_to = '{car}'", "replies"))
            if way is Way.EVENT:
                steps.append(_advertise(car, 0, "state_of IS NOT NULL"))
            steps.append(_subscribe(car, "crossing IN myloc", past=1 if way.wants_past else None))
        return steps

    def _plan(self) -> Plan:
        plan: Plan = []
        for place, times in self.changes.items():
            for number, time in enumerate(times):
                plan.append((time, _publish(_light(place), crossing=place, state=state(number))))
            period_s = self.setting.way.period_s
            if period_s is not None:
                plan += self._statuses(place, period_s * 1_000_000)
        for car, route in self.routes.items():
            for time, place in route[1:]:
                plan.append((time, Do(client=car, what=MoveTo(location=place))))
                plan.append((time, Do(client=car, what=Attach(broker=self.serves[place]))))
        return plan

    def _statuses(self, place: str, period_us: Time) -> Plan:
        """A light's state again and again; not all lights at the same time."""
        plan: Plan = []
        times = self.changes[place]
        for time in range(times[0] % period_us + period_us, self.end_us, period_us):
            number = sum(change <= time for change in times) - 1
            if number >= 0 and time not in times:
                plan.append((time, _publish(_light(place), crossing=place, state=state(number))))
        return plan

    def state_at(self, place: str, time: Time) -> int:
        """How often a light has changed by a time."""
        return sum(change <= time for change in self.changes[place])


def state(number: int) -> str:
    """The state of a light after so many changes, with the number of the change."""
    return f"{STATES[number % len(STATES)]} {number + 1}"


class Drive(Observer):
    """A run: notes when each car came where, and what it knew when; answers requests."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.knew: dict[tuple[NodeId, str, Time], list[tuple[Time, int]]] = {}
        """For each visit, when the car heard of which change of the light."""
        self._visit: dict[NodeId, tuple[NodeId, str, Time]] = {}
        self.simulation = Simulation(town.script(), [self], count_bytes=True)

    def run(self) -> None:
        """Do all steps; `DeliveryError` if something was delivered wrong."""
        for step in self.simulation.script.steps:
            self.simulation.do(step)
        findings = self.simulation.oracle.findings()
        if findings:
            raise DeliveryError(in_words(self.town.setting), findings)

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Moved() if fact.time:
                visit = fact.at, fact.location, fact.time
                self._visit[fact.at] = visit
                self.knew[visit] = []
                self._ask(fact.at, fact.location)
            case facts.Delivered() | facts.Recalled():
                for event in fact.events:
                    self._deliver(fact.at, event, fact.time)

    def _ask(self, car: NodeId, place: str) -> None:
        way = self.town.setting.way
        if way is Way.REQUEST:
            self._publish(car, look_up=place, car=car)
        elif way is Way.EVENT:
            self._publish(car, state_of=place)

    def _deliver(self, client: NodeId, event: Event, now: Time) -> None:
        said = event.attributes
        if client == DIRECTORY:
            self._publish(client, reply_to=said["car"], there=said["look_up"])
        elif "there" in said:
            self._publish(client, ask=said["there"], car=client)
        elif "ask" in said:
            place = str(said["ask"])
            self._publish(client, reply_to=said["car"], about=place, state=self._state(place, now))
        elif "state_of" in said:
            place = str(said["state_of"])
            self._publish(client, crossing=place, state=self._state(place, now))
        elif client in self._visit:
            visit = self._visit[client]
            if said.get("crossing", said.get("about")) == visit[1]:
                number = int(str(said["state"]).rsplit(" ", 1)[1])
                self.knew[visit].append((now, number))

    def _state(self, place: str, now: Time) -> str:
        return state(self.town.state_at(place, now) - 1)

    def _publish(self, client: NodeId, **attributes: Scalar) -> None:
        network = self.simulation.network
        network.kernel.at(network.kernel.now, network.give, client, Publish(attributes=attributes))

    def times(self) -> list[Time | None]:
        """For each visit in the order of cars and times, how long it took until the car knew the
        state of the light; None if it never did.
        """
        found: list[Time | None] = []
        for (_, place, came), heard in sorted(self.knew.items(), key=lambda each: each[0][::2]):
            if came < self.town.end_us - self.town.setting.stay_us:
                right = (
                    time - came
                    for time, number in heard
                    if number == self.town.state_at(place, time)
                )
                found.append(next(right, None))
        return found

    def stale(self) -> int:
        """In how many visits the first state that a car heard of was not the present one."""
        return sum(
            heard[0][1] != self.town.state_at(place, heard[0][0])
            for (_, place, _), heard in self.knew.items()
            if heard
        )

    def repeated(self) -> int:
        """How often a car heard what it knew already."""
        return sum(
            len(heard) - len({number for _, number in heard}) for heard in self.knew.values()
        )


def _name(place: tuple[int, int]) -> str:
    return f"{'ABCDEFGH'[place[0]]}{place[1] + 1}"


def _light(place: str) -> NodeId:
    return f"light {place}"


def _publish(client: NodeId, **attributes: Scalar) -> Do:
    return Do(client=client, what=Publish(attributes=attributes))


def _advertise(client: NodeId, number: int, text: str) -> Do:
    return Do(client=client, what=Advertise(advertisement=f"a{number}", filter=Filter(text)))


def _subscribe(client: NodeId, text: str, name: str = "s", past: int | None = None) -> Do:
    wanted = Subscribe(subscription=name, filter=Filter(text), past_events_max=past)
    return Do(client=client, what=wanted)


def with_way(setting: Setting, way: Way) -> Setting:
    """The same town, and another way."""
    return msgspec.structs.replace(setting, way=way)
