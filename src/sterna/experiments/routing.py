"""What the routing strategies cost: table entries, control messages and needless events, over the
number of subscriptions and over their locality.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from sterna.core.broker import Broker
from sterna.core.inputs import Advertise, Publish, Subscribe, Unsubscribe
from sterna.core.link import RELIABLE
from sterna.core.messages import AdvertisementChange, Events, Message, SubscriptionChange
from sterna.core.names import NodeId, Peer
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.experiments import workload
from sterna.experiments.experiment import (
    MEDIANS,
    Claim,
    DeliveryError,
    Experiment,
    Point,
    PrintedTable,
    in_words,
)
from sterna.experiments.papers import ROUTING
from sterna.experiments.plot import Axes, error_bars, panels
from sterna.model.filters import Filter
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Script, Settle, Wait
from sterna.sim.topology import Topology, tree

LEVELS = 3
LOCALITY = 0.5
"""The locality where the number of subscriptions varies."""
WITHDRAWN = 0.5
"""The share of the subscriptions that end in the course of a run."""
ORDERED = (Strategy.SIMPLE, Strategy.IDENTITY, Strategy.COVERING, Strategy.MERGING)
"""The strategies in order: each is expected to cost at most what the one before does."""
WAYS = [
    *((strategy, False) for strategy in Strategy),
    *((strategy, True) for strategy in Strategy if strategy is not Strategy.FLOODING),
]
"""The ways to route, without and with advertisements; flooding has no use for them."""
GAP_US = 10_000
"""The time between two subscriptions: longer than a change travels."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    strategy: Strategy
    advertisements: bool
    subscriptions: int
    locality: float
    """The probability that a subscription is about the subscriber's own region."""
    degree: int
    """The degree of the tree of brokers, which has three levels."""
    events: int


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run costs. Messages and bytes are those between brokers."""

    entries: float
    """Entries in all routing tables, when all have subscribed."""
    entries_largest: float
    """Entries in the largest routing table."""
    entries_after: float
    """Entries in all routing tables, after the withdrawals."""
    advertisement_entries: float
    control_subscribing: float
    control_withdrawing: float
    control_messages: float
    """All messages that are no events, advertisements included."""
    control_bytes: float
    event_messages: float
    needless: float
    """Event messages beyond those of a network where events go only where they are wanted."""
    event_bytes: float
    delivered: float


class Routing(Experiment[Setting, Measures]):
    name = "routing"
    about = "Table entries, control messages and needless events of the routing strategies."
    takes = "five to six minutes"
    paper = ROUTING

    def settings(self, *, quick: bool) -> list[Setting]:
        counts = (50, 100) if quick else (50, 100, 200, 400, 800)
        localities = (0.0, 1.0) if quick else (0.0, 0.25, 0.75, 1.0)
        points = [(count, LOCALITY) for count in counts]
        points += [(100, locality) for locality in localities]
        return [
            Setting(
                strategy=strategy,
                advertisements=advertisements,
                subscriptions=count,
                locality=locality,
                degree=3 if quick else 4,
                events=60 if quick else 200,
            )
            for count, locality in points
            for strategy, advertisements in WAYS
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        script = make_script(setting, seed)
        simulation = Simulation(script, count_bytes=True)
        brokers = simulation.network.hosts.values()
        tables, control = [], []
        for step in script.steps:
            simulation.do(step)
            if isinstance(step, Settle):
                tables.append(simulation.tables[-1])
                control.append(_sent(simulation)[0])
        findings = simulation.oracle.findings()
        if findings:
            raise DeliveryError(f"{in_words(setting)}, seed {seed}", findings)
        messages, volume = _sent(simulation)
        advertised, subscribed, _, withdrawn, ended = map(_control, control)
        return Measures(
            entries=tables[1].total,
            entries_largest=tables[1].largest,
            entries_after=tables[3].total,
            advertisement_entries=sum(
                len(routes)
                for host in brokers
                if isinstance(host.node, Broker)
                for routes in host.node.router.advertisements.values()
            ),
            control_subscribing=subscribed - advertised,
            control_withdrawing=withdrawn - subscribed,
            control_messages=ended,
            control_bytes=_control(volume),
            event_messages=messages[Events],
            needless=messages[Events] - needed(script),
            event_bytes=volume[Events],
            delivered=simulation.oracle.delivered,
        )

    def work(self, setting: Setting) -> float:
        return setting.subscriptions

    def claims(self, points: Sequence[Point[Setting, Measures]]) -> list[Claim]:
        def claim(paper: str, measure: Callable[[Measures], float]) -> Claim:
            groups: dict[tuple[int, float, bool], list[Point[Setting, Measures]]] = {}
            for point in points:
                setting = point.setting
                if setting.strategy in ORDERED:
                    place = setting.subscriptions, setting.locality, setting.advertisements
                    groups.setdefault(place, []).append(point)
            largest = max((place for place in groups if not place[2]), key=lambda place: place[0])
            seen = " ≥ ".join(point.text(measure, ",.0f") for point in groups[largest])
            medians = [[measure(point.median) for point in group] for group in groups.values()]
            holds = all(group == sorted(group, reverse=True) for group in medians)
            return Claim(paper, f"{largest[0]:,} subscriptions: {seen}", holds)

        return [
            claim("Tables: simple ≥ identity ≥ covering ≥ merging (Mühl)", lambda m: m.entries),
            claim("Control messages: the same order", lambda m: m.control_messages),
        ]

    def tables(self, points: Sequence[Point[Setting, Measures]]) -> list[PrintedTable]:
        return [
            _table(
                f"Over the number of subscriptions (locality {LOCALITY:.0%})",
                "number",
                _by_number(points),
                lambda setting: f"{setting.subscriptions:,}",
            ),
            _table(
                f"Over locality ({_by_locality(points)[0].setting.subscriptions} subscriptions)",
                "locality",
                _by_locality(points),
                lambda setting: f"{setting.locality:.0%}",
            ),
        ]

    def draw(self, points: Sequence[Point[Setting, Measures]], path: Path) -> None:
        rows = (
            (_by_number(points), _number, "subscriptions", "log"),
            (_by_locality(points), _locality, "locality, %", "linear"),
        )
        with panels(path, 2, len(PANELS), (13, 6.4)) as axes:
            for row, (chosen, place, label, scale) in enumerate(rows):
                for column, (name, (measure, height)) in enumerate(PANELS.items()):
                    each = axes[len(PANELS) * row + column]
                    _lines(each, chosen, place, measure)
                    each.set(xscale=scale, xlabel=label, title=name)
                    if height == "symlog":
                        each.set_yscale(height, linthresh=10)
                        each.set_ylim(0, max(10, 2 * each.dataLim.ymax))
                    else:
                        each.set_yscale(height)
                    ticks = sorted({place(point.setting) for point in chosen})
                    each.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                    each.set_xticks([], minor=True)
            axes[len(PANELS) - 1].legend(
                frameon=False,
                fontsize=8,
                title="dashed: with advertisements",
                title_fontsize=8,
                loc="lower right",
            )


# ---- The workload


def make_script(setting: Setting, seed: int) -> Script:
    """All clients subscribe, events are published, some unsubscribe, events are published again.

    The steps have five parts, each with a `Settle` at its end; the first is the advertisements.
    Runs with the same seed differ in nothing but the settings.
    """
    rng = random.Random(f"routing {seed}")  # noqa: S311 - reproducible, not secret.
    topology = tree(setting.degree, LEVELS)
    borders = topology.leaves()
    publishers = {
        _publisher(region, number): (region, number)
        for region in range(len(borders))
        for number in range(workload.PUBLISHERS)
    }
    subscribers = {
        f"C{number}": rng.randrange(len(borders)) for number in range(setting.subscriptions)
    }
    steps: list[Do | Wait | Settle] = []
    if setting.advertisements:
        for client, (region, number) in publishers.items():
            what = Advertise(advertisement="offer", filter=workload.offer(region, number))
            steps += [Do(client=client, what=what), Wait(us=GAP_US)]
    steps.append(Settle())
    for client, region in subscribers.items():
        wanted = workload.interest(rng, region, len(borders), setting.locality)
        subscribe = Subscribe(subscription="interest", filter=wanted)
        steps += [Do(client=client, what=subscribe), Wait(us=GAP_US)]
    steps.append(Settle())
    steps += _publications(rng, len(borders), setting.events // 2)
    for client in rng.sample(list(subscribers), int(WITHDRAWN * len(subscribers))):
        steps += [Do(client=client, what=Unsubscribe(subscription="interest")), Wait(us=GAP_US)]
    steps.append(Settle())
    steps += _publications(rng, len(borders), setting.events // 2)
    places = {client: region for client, (region, _) in publishers.items()} | subscribers
    return Script(
        topology=topology,
        clients={client: borders[region] for client, region in places.items()},
        steps=tuple(steps),
        routing=RoutingOptions(strategy=setting.strategy, advertisements=setting.advertisements),
        client=ClientOptions(advertisements=setting.advertisements),
        timing=RELIABLE,
        seed=seed,
    )


def _publisher(region: int, number: int) -> NodeId:
    return f"P{region}-{number}"


def _publications(rng: random.Random, regions: int, count: int) -> list[Do | Wait | Settle]:
    steps: list[Do | Wait | Settle] = []
    for _ in range(count):
        region = rng.randrange(regions)
        attributes = workload.report(rng, region)
        client = _publisher(region, workload.publisher_of(str(attributes["service"])))
        publish = Publish(attributes=attributes, payload=bytes(64))
        steps += [Do(client=client, what=publish), Wait(us=GAP_US)]
    return [*steps, Settle()]


# ---- Counting


def needed(script: Script) -> int:
    """How many event messages between brokers it takes if events go only where they are wanted."""
    wanted: dict[NodeId, Filter] = {}
    total = 0
    for step in script.steps:
        if not isinstance(step, Do):
            continue
        match step.what:
            case Subscribe():
                wanted[step.client] = step.what.filter
            case Unsubscribe():
                del wanted[step.client]
            case Publish():
                attributes = step.what.attributes
                to = {script.clients[c] for c, f in wanted.items() if f.matches(attributes)}
                total += len(_links(script.topology, script.clients[step.client], to))
    return total


def _links(topology: Topology, source: NodeId, to: Iterable[NodeId]) -> set[NodeId]:
    """The links from one broker to others, each named after its lower end."""
    links: set[NodeId] = set()
    for broker in to:
        links |= _above(topology, source) ^ _above(topology, broker)
    return links


def _above(topology: Topology, broker: NodeId) -> set[NodeId]:
    above: set[NodeId] = set()
    parent = topology.parent(broker)
    while parent is not None:
        above.add(broker)
        broker, parent = parent, topology.parent(parent)
    return above


def _sent(simulation: Simulation) -> tuple[Counter[type[Message]], Counter[type[Message] | None]]:
    """Messages and bytes between brokers so far."""
    messages: Counter[type[Message]] = Counter()
    volume: Counter[type[Message] | None] = Counter()
    for connection in simulation.network.connections:
        if all(host.peer is Peer.BROKER for host in connection.ends):
            for pipe in connection.pipes:
                messages += pipe.messages
                volume += pipe.bytes
    return messages, volume


def _control(counted: Counter[type[Message]] | Counter[type[Message] | None]) -> int:
    return counted[SubscriptionChange] + counted[AdvertisementChange]


# ---- Showing


def _by_number(points: Sequence[Point[Setting, Measures]]) -> list[Point[Setting, Measures]]:
    return [point for point in points if point.setting.locality == LOCALITY]


def _by_locality(points: Sequence[Point[Setting, Measures]]) -> list[Point[Setting, Measures]]:
    (number,) = {p.setting.subscriptions for p in points if p.setting.locality != LOCALITY}
    chosen = [point for point in points if point.setting.subscriptions == number]
    return sorted(chosen, key=lambda point: point.setting.locality)


def _table(
    title: str,
    first: str,
    points: Sequence[Point[Setting, Measures]],
    place: Callable[[Setting], str],
) -> PrintedTable:
    rows = []
    for point in points:
        setting = point.setting
        name = setting.strategy.removesuffix("-merging") + " *" * setting.advertisements
        rows.append((place(setting), name, *(point.text(each, ",.0f") for each in COLUMNS)))
    head = (first, "strategy", "entries", "after", "control", "kB", "events", "needless")
    note = (
        f"All are {MEDIANS}. *: with advertisements. after: entries after half the subscriptions "
        "ended. control, events: messages between brokers; kB: of control messages."
    )
    return PrintedTable(title, head, rows, note)


COLUMNS: tuple[Callable[[Measures], float], ...] = (
    lambda measures: measures.entries,
    lambda measures: measures.entries_after,
    lambda measures: measures.control_messages,
    lambda measures: measures.control_bytes / 1000,
    lambda measures: measures.event_messages,
    lambda measures: measures.needless,
)
"""What tables show."""

PANELS: dict[str, tuple[Callable[[Measures], float], str]] = {
    "table entries": (lambda measures: measures.entries, "log"),
    "control messages": (lambda measures: measures.control_messages, "log"),
    "control kB": (lambda measures: measures.control_bytes / 1000, "log"),
    "event messages": (lambda measures: measures.event_messages, "symlog"),
}
"""What is shown, and on what scale: there may be no event messages at all."""

COLOURS = {
    Strategy.FLOODING: "#8a8a8a",
    Strategy.SIMPLE: "#222222",
    Strategy.IDENTITY: "#c2571a",
    Strategy.COVERING: "#0b6e99",
    Strategy.MERGING: "#3a8f3a",
    Strategy.IMPERFECT: "#9b3a8f",
}


def _number(setting: Setting) -> float:
    return setting.subscriptions


def _locality(setting: Setting) -> float:
    return 100 * setting.locality


def _lines(
    axes: Axes,
    points: Sequence[Point[Setting, Measures]],
    place: Callable[[Setting], float],
    measure: Callable[[Measures], float],
) -> None:
    for advertisements, style in ((False, "o-"), (True, "o--")):
        for rank, (strategy, colour) in enumerate(COLOURS.items()):
            line = [
                point
                for point in points
                if (point.setting.strategy, point.setting.advertisements)
                == (strategy, advertisements)
            ]
            if not line:
                continue
            where = [place(point.setting) for point in line]
            label = None if advertisements else str(strategy)
            width = 1 + 0.35 * (len(COLOURS) - 1 - rank)  # What coincides shows under the next.
            axes.plot(where, [measure(point.median) for point in line], style, color=colour,
                      markersize=width + 2, linewidth=width, label=label)  # fmt: skip
            error_bars(axes, where, line, measure, colour)
