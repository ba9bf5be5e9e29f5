"""A subscriber moves on a tree that stands: Phoenix beside our other handover protocols."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sterna.core import facts
from sterna.core.facts import Fact
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Attach, Detach, Publish, Subscribe
from sterna.core.link import RELIABLE
from sterna.core.messages import Events
from sterna.core.mobile.phoenix import NAME as PHOENIX
from sterna.core.routing.options import RoutingOptions
from sterna.experiments.experiment import Claim, DeliveryError, Experiment, Point, PrintedTable
from sterna.experiments.experiment import in_words as words
from sterna.experiments.papers import AMOZARRAIN
from sterna.experiments.plot import panels
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import AnyStep, Do, Script, Settle
from sterna.sim.topology import line

PROTOCOLS = (
    *(PHOENIX, Handover.RELOCATION, Handover.STANDARD),
    *(Handover.LOGGING, Handover.PREFETCHING, Handover.HOME),
)
COLOURS = ("#0b6e99", "#222222", "#8a8a8a", "#c2571a", "#3a8f3a", "#7a4fa0")
BROKERS = 10
CLIENT, PUBLISHER = "mover", "source"
DISTANCES = (1, 2, 4, 8)
EVENTS = (0, 10, 100)
_BACK = 2
"""How many marks there are when the subscriber is back."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run."""

    protocol: str
    distance: int
    """How many hops the new broker is from the old one."""
    events: int
    """How many events come while the subscriber is away."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run, from when the subscriber has left until all is quiet."""

    messages: float
    """All messages but those that carry the events to the old broker."""
    message_bytes: float
    """The bytes of these messages."""
    delivered: float


Points = Sequence[Point[Setting, Measures]]


class MftClients(Experiment[Setting, Measures]):
    name = "mft-clients"
    about = "A subscriber moves on a tree that stands: Phoenix beside the other handover protocols."
    takes = "a few seconds"
    paper = AMOZARRAIN
    seeds = 1

    def settings(self, *, quick: bool) -> list[Setting]:
        distances, events = ((1, 4), (0, 10)) if quick else (DISTANCES, EVENTS)
        return [
            Setting(protocol=name, distance=distance, events=count)
            for count in events
            for distance in distances
            for name in PROTOCOLS
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        watch = Watch()
        script = make_script(setting, seed)
        simulation = Simulation(script, [watch], count_bytes=True)
        marks: list[Mark] = []
        for step in script.steps:
            if isinstance(step, Do) and isinstance(step.what, Attach):
                marks.append(Mark.of(simulation))
            simulation.do(step)
            is_back = len(marks) == _BACK and isinstance(step, Settle)
            if is_back or (isinstance(step, Do) and isinstance(step.what, Detach)):
                marks.append(Mark.of(simulation))
        if wrong := check(watch, simulation):
            raise DeliveryError(f"{words(setting)}, seed {seed}", wrong)
        left, comes, is_there = marks
        coming, coming_bytes = comes.events(left)
        return Measures(
            messages=(is_there.messages - left.messages).total() - coming,
            message_bytes=(is_there.bytes - left.bytes).total() - coming_bytes,
            delivered=len(watch.delivered),
        )

    def claims(self, points: Points) -> list[Claim]:
        found = {_key(point): point.median for point in points}
        none = {key: m for key, m in found.items() if key[2] == 0}
        longest = max(distance for _, distance, _ in none)
        mine = {key[0]: m.messages for key, m in none.items() if key[1] == longest}
        text = ", ".join(f"{name} {count:.0f}" for name, count in mine.items())
        most = max(events for *_, events in found)
        all_ = {key[0]: m for key, m in found.items() if key[1:] == (longest, most)}
        many = ", ".join(f"{name} {m.message_bytes / 1_000:,.1f}" for name, m in all_.items())
        return [
            Claim(
                "Phoenix is communication-efficient: it does not flood the network (1)",
                f"messages of a move over {longest} hops without events: {text}",
                holds=mine[PHOENIX] <= min(mine.values()),
            ),
            Claim(
                "The same when events have waited for the subscriber (3.2)",
                f"kB of a move over {longest} hops when {most} events have waited: {many}",
                holds=all_[PHOENIX].message_bytes <= min(m.message_bytes for m in all_.values()),
                why="each event is a message of its own at each hop; the others send many at once",
            ),
        ]

    def tables(self, points: Points) -> list[PrintedTable]:
        note = f"A line of {BROKERS} brokers with a subscriber at each; from the subscriber's "
        note += "leaving on, without the events on their way to the old broker."
        return [
            _table(points, "Messages of a move", lambda m: f"{m.messages:,.0f}", note),
            _table(points, "kB of these messages", lambda m: f"{m.message_bytes / 1_000:,.1f}"),
        ]

    def summary(self, points: Points) -> dict[str, Any]:
        return {
            f"{name} {distance} {events}": measures.messages
            for (name, distance, events), measures in (
                (_key(point), point.median) for point in points
            )
        }

    def draw(self, points: Points, path: Path) -> None:
        counts = sorted({point.setting.events for point in points})
        with panels(path, 1, len(counts), (3.4 * len(counts), 3.6)) as axes:
            for each, count in zip(axes, counts, strict=True):
                for protocol, colour in zip(PROTOCOLS, COLOURS, strict=True):
                    curve = [
                        point
                        for point in points
                        if (point.setting.protocol, point.setting.events) == (protocol, count)
                    ]
                    each.plot([point.setting.distance for point in curve],
                              [point.median.messages for point in curve], "o-",
                              color=colour, markersize=4, label=protocol)  # fmt: skip
                each.set(xlabel="hops", ylabel="messages", title=f"{count} events while away")
            axes[0].legend(frameon=False, fontsize=7)


def make_script(setting: Setting, seed: int) -> Script:
    """A subscriber leaves a broker, misses some events, and comes to another one."""
    is_phoenix = setting.protocol == PHOENIX
    settled = Settle()
    others = {f"other{number}": f"B{number}" for number in range(1, BROKERS + 1)}
    steps: list[AnyStep] = [
        Do(client=name, what=Subscribe(subscription="f", filter=Filter(f"other = '{name}'")))
        for name in others
    ]
    steps += [Do(client=CLIENT, what=Subscribe(subscription="f", filter=Filter("n > 0"))), settled]
    steps += [_published(1), settled, Do(client=CLIENT, what=Detach()), settled]
    steps += [_published(number + 2) for number in range(setting.events)]
    back = Attach(broker=f"B{1 + setting.distance}")
    steps += [settled, Do(client=CLIENT, what=back), settled, _published(2 + setting.events)]
    steps += [settled]
    return Script(
        topology=line(BROKERS),
        clients={CLIENT: "B1", PUBLISHER: f"B{BROKERS}", **others},
        steps=tuple(steps),
        handover=HandoverOptions(protocol=setting.protocol),
        routing=RoutingOptions(announces=not is_phoenix),
        protocols=("simple-routing",) if is_phoenix else (),
        timing=RELIABLE,
        seed=seed,
    )


def _published(number: int) -> Do:
    return Do(client=PUBLISHER, what=Publish(attributes={"n": number}))


class Watch(Observer):
    """Notes what the subscriber got."""

    def __init__(self) -> None:
        self.published: list[EventId] = []
        self.delivered: list[EventId] = []

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, facts.Published):
            self.published += [event.id for event in fact.events]
        elif isinstance(fact, facts.Delivered) and fact.at == CLIENT:
            self.delivered += [event.id for event in fact.events]


def check(watch: Watch, simulation: Simulation) -> list[str]:
    """What is wrong: the subscriber has to get all events, once and in order."""
    wrong = [str(finding) for finding in simulation.oracle.findings()]
    if watch.delivered != watch.published:
        wrong.append(f"got {len(watch.delivered)} of {len(watch.published)} events, or in disorder")
    return wrong


class Mark(NamedTuple):
    """What has been sent until some time, by type of message."""

    messages: Counter[str]
    bytes: Counter[str]

    @classmethod
    def of(cls, simulation: Simulation) -> "Mark":
        """Until now; without acknowledgements and handshakes."""
        outcome = simulation.outcome()
        bytes_ = Counter({k: count for k, count in outcome.bytes.items() if k != "link"})
        return cls(outcome.messages, bytes_)

    def events(self, since: "Mark") -> tuple[int, int]:
        """The messages with events since an earlier mark, and their bytes."""
        name = Events.__name__
        return (
            self.messages[name] - since.messages[name],
            self.bytes[name] - since.bytes[name],
        )


def _key(point: Point[Setting, Measures]) -> tuple[str, int, int]:
    setting = point.setting
    return setting.protocol, setting.distance, setting.events


def _table(points: Points, title: str, shown: Any, note: str = "") -> PrintedTable:
    found = {_key(point): point.median for point in points}
    where = dict.fromkeys((p.setting.events, p.setting.distance) for p in points)
    rows = [
        (str(events), str(distance), *(shown(found[name, distance, events]) for name in PROTOCOLS))
        for events, distance in where
    ]
    return PrintedTable(title, ("events", "hops", *map(str, PROTOCOLS)), rows, note)
