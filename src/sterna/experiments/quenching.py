"""Whether quenching pays: bytes of events that are not sent, against bytes that tell publishers
what is wanted. (Huang, 3.2)
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sterna.core import facts
from sterna.core.client import ClientOptions
from sterna.core.facts import Fact
from sterna.core.inputs import Publish, Subscribe, Unsubscribe
from sterna.core.link import RELIABLE, Data, Frame
from sterna.core.messages import Events, InterestAsked, InterestKnown, Message, SubscriptionChange
from sterna.core.names import NodeId, RouteId, Time
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.experiments.experiment import (
    Claim,
    DeliveryError,
    Experiment,
    Point,
    Table,
    in_words,
)
from sterna.experiments.plot import panels
from sterna.model.event import EventId
from sterna.model.filters import Filter
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Drop, Script, Settle, Wait
from sterna.sim.topology import line

BROKER = "B1"
PUBLISHERS = ("P1", "P2")
SUBSCRIBER = "C1"
"""Holds all subscriptions; to a publisher it makes no difference who holds them."""

SEGMENTS = 2000
"""The road is divided into so many."""
STRETCH = (5, 15)
"""How many segments a subscription asks for, at least and at most."""
ADVANCE = (1, 40)
"""How many segments a publisher drives from one event to the next, at least and at most."""
PAYLOAD = bytes(64)

REST_US = 50_000
"""After the changes of a round, and after its events: longer than acknowledgements wait."""
CYCLE_ROUNDS = 50
"""With disconnections, each cycle of so many rounds ends with some without a connection."""

MATCH_RATES = (0.01, 0.1, 0.3, 0.6, 0.9)
CHANGE_RATE = 0.1
"""Where something else varies."""
MEMBERS_MAX = RoutingOptions().interest_members_max
MEMBERS_MANY = 16
"""How many subscriptions make one filter of c_all at most: as usual, and in a variation."""
BUFFER_MAX = ClientOptions().buffer_events_max


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What one pair of runs is made from: with quenching, and without."""

    match_rate: float
    """The share of the events that is wanted; it determines the number of subscriptions."""
    change_rate: float
    """Subscriptions that are replaced by others, for each event of one publisher."""
    events: int
    """Of each publisher."""
    disconnected: float = 0.0
    """The share of the time in which publishers have no connection."""
    buffer_events_max: int = BUFFER_MAX
    interest_members_max: int = MEMBERS_MAX


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair of runs gives: bytes on the publishers' links, in both directions."""

    match_rate: float
    """As it came out."""
    subscriptions: float
    filters: float
    """In c_all, at the end."""
    changes: float
    first_bytes: float
    """To tell one publisher c_all when it connects; not part of the following."""
    bytes_without: float
    bytes_with: float
    event_bytes_saved: float
    update_bytes: float
    """Spent on changes of c_all."""
    link_bytes_saved: float
    """Acknowledgements and the like; negative where quenching needs more of them."""
    saved_per_event: float
    """Bytes, net: what a publisher sends and receives less for each of its events."""
    saved_share: float
    """The same as a share of what it sends and receives without quenching."""
    quenched: float
    purged_without: float
    """Events that somebody wanted and that a full buffer discarded."""
    purged_with: float


class Quenching(Experiment[Setting, Measures]):
    name = "quenching"
    about = "Bytes of events saved by quenching, against bytes that tell publishers what is wanted."
    takes = "about a minute and a half"

    def settings(self, *, quick: bool) -> list[Setting]:
        events = 100 if quick else 300
        match_rates = (0.1, 0.6) if quick else MATCH_RATES
        change_rates = (0.0, 0.1, 1.0) if quick else (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
        plain = [
            Setting(match_rate=match_rate, change_rate=change_rate, events=events)
            for match_rate in match_rates
            for change_rate in change_rates
        ]
        much_merged = [
            Setting(
                match_rate=match_rate,
                change_rate=1.0,
                events=events,
                interest_members_max=MEMBERS_MANY,
            )
            for match_rate in match_rates
        ]
        with_disconnections = [
            Setting(
                match_rate=match_rate,
                change_rate=CHANGE_RATE,
                events=events,
                disconnected=0.4,
                buffer_events_max=buffer,
            )
            for buffer in (BUFFER_MAX, 10)
            for match_rate in match_rates
        ]
        return [*plain, *much_merged, *with_disconnections]

    def measure(self, setting: Setting, seed: int) -> Measures:
        where = f"{in_words(setting)}, seed {seed}"
        off = _run(make_script(setting, seed, quenching=False), where)
        on = _run(make_script(setting, seed, quenching=True), where)
        if not setting.disconnected:  # Else what was wanted may be wanted no more when it is sent.
            compare(off, on, where)
        published = setting.events * len(PUBLISHERS)
        without, with_ = off.bytes.total(), on.bytes.total()
        return Measures(
            match_rate=len(on.watch.wanted) / on.watch.published,
            subscriptions=subscriptions(setting.match_rate),
            filters=len(on.watch.known),
            changes=int(setting.change_rate * setting.events),
            first_bytes=_updates(on.first) / len(PUBLISHERS),
            bytes_without=without,
            bytes_with=with_,
            event_bytes_saved=off.bytes[Events] - on.bytes[Events],
            update_bytes=_updates(on.bytes),
            link_bytes_saved=off.bytes[None] - on.bytes[None],
            saved_per_event=(without - with_) / published,
            saved_share=(without - with_) / without,
            quenched=len(on.watch.quenched),
            purged_without=len(off.watch.purged & off.watch.wanted),
            purged_with=len(on.watch.purged & on.watch.wanted),
        )

    def claims(self, points: Sequence[Point[Setting, Measures]]) -> list[Claim]:
        evens = [
            f"{even:.2f} changes per event where {match_rate:.0%} is wanted"
            for match_rate, curve in _curves(points).items()
            if (even := break_even(curve)) is not None
        ]
        paper = "Whether quenching pays for a mobile publisher is not apparent (Huang, 3.2)"
        return [Claim(paper, f"it pays up to {', '.join(evens)}", holds=True)]

    def tables(self, points: Sequence[Point[Setting, Measures]]) -> list[Table]:
        return [
            _savings(points),
            _balance(points),
            _costs(points),
            _more_merging(points),
            _disconnections(points),
        ]

    def summary(self, points: Sequence[Point[Setting, Measures]]) -> dict[str, Any]:
        return {
            "break_even": [
                {"match_rate": match_rate, "changes_per_event": break_even(curve)}
                for match_rate, curve in _curves(points).items()
            ]
        }

    def draw(self, points: Sequence[Point[Setting, Measures]], path: Path) -> None:
        curves = _curves(points)
        with panels(path, 1, 2, (10, 4.2)) as (left, right):
            for (match_rate, curve), colour in zip(curves.items(), COLOURS, strict=False):
                rates = [point.setting.change_rate for point in curve]
                left.plot(rates, [100 * point.median.saved_share for point in curve], "o-",
                          color=colour, markersize=4, label=f"{match_rate:.0%} wanted")  # fmt: skip
                left.fill_between(
                    rates,
                    [100 * point.low.saved_share for point in curve],
                    [100 * point.high.saved_share for point in curve],
                    color=colour,
                    alpha=0.15,
                    linewidth=0,
                )
                left.set_xscale("symlog", linthresh=0.01)  # There is a 0, too.
                left.set_xticks(rates, [f"{rate:g}" for rate in rates])
                left.set_xticks([], minor=True)
            left.axhline(0, color="#222222", linewidth=1)
            left.set(
                xlim=(-0.001, 1.1),
                ylim=(-100, 105),
                xlabel="subscriptions replaced per event of a publisher",
                ylabel="bytes saved, %",
                title="What quenching saves on a publisher's link",
            )
            left.legend(frameon=False, fontsize=8, loc="lower left")
            evens = {rate: even for rate, curve in curves.items() if (even := break_even(curve))}
            right.plot([100 * rate for rate in evens], list(evens.values()), "o-", color=COLOURS[0],
                       label=f"c_all merged from up to {MEMBERS_MAX} subscriptions")  # fmt: skip
            evens = {point.setting.match_rate: even for point, even in _much_merged(points)}
            right.plot([100 * rate for rate in evens], list(evens.values()), "o--",
                       color=COLOURS[0], label=f"from up to {MEMBERS_MANY}")  # fmt: skip
            right.legend(frameon=False, fontsize=8)
            right.set(
                xlim=(0, 100),
                ylim=(0, None),
                xlabel="events that somebody wants, %",
                ylabel="subscriptions replaced per event",
                title="Break-even: below the line, quenching saves",
            )


COLOURS = ("#0b6e99", "#3a8f3a", "#c2571a", "#9b3a8f", "#8a8a8a")


# ---- The workload


def subscriptions(match_rate: float) -> int:
    """How many subscriptions on random stretches it takes for so many events to be wanted."""
    return max(1, round(-math.log(1 - match_rate) * SEGMENTS / (sum(STRETCH) / 2)))


def make_script(setting: Setting, seed: int, *, quenching: bool) -> Script:
    """Cars on a ring road report where they are; each subscription asks for a stretch of it.

    When all subscriptions are there, publishers publish for the first time and learn c_all. Then,
    in each round, some subscriptions are replaced by others, and each publisher publishes. The
    first `Settle` stands before the first events, the second behind them.
    """
    chance = random.Random(f"quenching {seed}")  # noqa: S311 - reproducible, not secret.
    held = list(range(subscriptions(setting.match_rate)))
    at = {publisher: chance.randrange(SEGMENTS) for publisher in PUBLISHERS}
    steps: list[Do | Drop | Wait | Settle] = [_subscribe(number, chance) for number in held]
    steps += [Settle(), *_publish(at, chance), Settle()]
    down_rounds = round(setting.disconnected * CYCLE_ROUNDS)
    changes = 0
    for round_ in range(setting.events):
        left = CYCLE_ROUNDS - round_ % CYCLE_ROUNDS
        if left == down_rounds:
            down_us = 2 * down_rounds * REST_US
            steps += [Drop(a=publisher, b=BROKER, us=down_us) for publisher in PUBLISHERS]
        # Nothing settles while a connection is missing.
        rest = [Settle(), Wait(us=REST_US)] if left > down_rounds else [Wait(us=REST_US)]
        while changes < int((round_ + 1) * setting.change_rate):
            place = chance.randrange(len(held))
            old, held[place] = held[place], len(held) + changes
            steps += [_subscribe(held[place], chance), _unsubscribe(old)]
            changes += 1
        steps += [*rest, *_publish(at, chance), *rest]
    return Script(
        topology=line(1),
        clients=dict.fromkeys([*PUBLISHERS, SUBSCRIBER], BROKER),
        steps=tuple(steps),
        routing=RoutingOptions(
            strategy=Strategy.SIMPLE, interest_members_max=setting.interest_members_max
        ),
        client=ClientOptions(quenching=quenching, buffer_events_max=setting.buffer_events_max),
        timing=RELIABLE,
        seed=seed,
    )


def _subscribe(number: int, chance: random.Random) -> Do:
    length = chance.randint(*STRETCH)
    first = chance.randrange(SEGMENTS - length + 1)
    stretch = Filter(f"segment BETWEEN {first} AND {first + length - 1}")
    return Do(client=SUBSCRIBER, what=Subscribe(subscription=str(number), filter=stretch))


def _unsubscribe(number: int) -> Do:
    return Do(client=SUBSCRIBER, what=Unsubscribe(subscription=str(number)))


def _publish(at: dict[NodeId, int], chance: random.Random) -> list[Do]:
    """Each publisher drives on and says where it is."""
    steps = []
    for publisher in PUBLISHERS:
        at[publisher] = (at[publisher] + chance.randint(*ADVANCE)) % SEGMENTS
        attributes = {"segment": at[publisher], "speed": round(chance.uniform(0, 120), 1)}
        what = Publish(attributes=attributes, payload=PAYLOAD)
        steps.append(Do(client=publisher, what=what))
    return steps


# ---- Counting


class Watch(Observer):
    """Notes which events were wanted, which were discarded, and c_all at the first publisher."""

    def __init__(self) -> None:
        self.published = 0
        self.wanted: set[EventId] = set()
        self.quenched: set[EventId] = set()
        self.purged: set[EventId] = set()
        self.known: set[RouteId] = set()
        self._filters: dict[str, Filter] = {}

    def fact(self, fact: Fact) -> None:
        match fact:
            case facts.Subscribed():
                self._filters[fact.subscription] = fact.filter
            case facts.Unsubscribed():
                del self._filters[fact.subscription]
            case facts.Published():
                self.published += len(fact.events)
                for event in fact.events:
                    if any(each.matches(event.attributes) for each in self._filters.values()):
                        self.wanted.add(event.id)
            case facts.Quenched():
                self.quenched.update(event.id for event in fact.events)
            case facts.Purged():
                self.purged.update(event.id for event in fact.events)
            case _:
                pass

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        del fate, now
        if pipe.target.node.id == PUBLISHERS[0] and isinstance(frame, Data):
            message = frame.message
            if isinstance(message, SubscriptionChange):
                self.known |= {route.id for route in message.added}
                self.known -= set(message.removed)


class Run(NamedTuple):
    """What is of interest in a run."""

    watch: Watch
    first: "Bytes"
    """On the publishers' links, to learn of all subscriptions."""
    bytes: "Bytes"
    """After that."""
    delivered: int


Bytes = Counter[type[Message] | None]


def _run(script: Script, where: str) -> Run:
    watch = Watch()
    simulation = Simulation(script, [watch], count_bytes=True)
    settled: list[Bytes] = []
    for step in script.steps:
        simulation.do(step)
        if isinstance(step, Settle) and len(settled) < 2:
            settled.append(_sent(simulation))
    simulation.settle()
    findings = simulation.oracle.findings()
    if findings:
        raise DeliveryError(where, findings)
    alone, connected = settled
    return Run(watch, connected - alone, _sent(simulation) - connected, simulation.oracle.delivered)


def compare(off: Run, on: Run, where: str) -> None:
    """Quenching must not discard what is wanted, nor change what is delivered."""
    both = sorted(on.watch.quenched & on.watch.wanted)
    wrong = [f"quenched, but wanted: {id_.publisher} #{id_.seq}" for id_ in both]
    if on.delivered != off.delivered:
        wrong.append(f"{on.delivered} events delivered, {off.delivered} without quenching")
    if wrong:
        raise DeliveryError(where, wrong)


def _sent(simulation: Simulation) -> Bytes:
    hosts = simulation.network.hosts
    counted: Bytes = Counter()
    for publisher in PUBLISHERS:
        counted += hosts[publisher].pipes[BROKER].bytes
        counted += hosts[BROKER].pipes[publisher].bytes
    return counted


def _updates(counted: Bytes) -> int:
    return counted[SubscriptionChange] + counted[InterestKnown] + counted[InterestAsked]


# ---- Showing


def break_even(curve: Sequence[Point[Setting, Measures]]) -> float | None:
    """How many changes per event use up what quenching saves; None beyond what was tried."""
    for one, next_ in pairwise(curve):
        before, after = one.median.saved_per_event, next_.median.saved_per_event
        if before > 0 >= after:
            start, end = one.setting.change_rate, next_.setting.change_rate
            return start + (end - start) * before / (before - after)
    return None


def _curves(
    points: Sequence[Point[Setting, Measures]],
) -> dict[float, list[Point[Setting, Measures]]]:
    """The points without variations, by match rate."""
    curves: dict[float, list[Point[Setting, Measures]]] = {}
    for point in points:
        setting = point.setting
        if not setting.disconnected and setting.interest_members_max == MEMBERS_MAX:
            curves.setdefault(setting.match_rate, []).append(point)
    return curves


def _savings(points: Sequence[Point[Setting, Measures]]) -> Table:
    curves = _curves(points)
    rates = [point.setting.change_rate for point in next(iter(curves.values()))]
    rows = []
    for match_rate, curve in curves.items():
        even = break_even(curve)
        rows.append(
            (
                f"{match_rate:.0%}",
                *(_percent(point.median.saved_share) for point in curve),
                f"{even:.2f}" if even is not None else f"> {rates[-1]:g}",
            )
        )
    return Table(
        "Bytes saved on publishers' links, by subscriptions replaced per event",
        ("wanted", *(f"{rate:g}" for rate in rates), "break-even"),
        rows,
        "Medians, acknowledgements included; negative: quenching costs more than it saves.",
    )


def _balance(points: Sequence[Point[Setting, Measures]]) -> Table:
    rows = []
    for match_rate, curve in _curves(points).items():
        for point in curve:
            if point.setting.change_rate == CHANGE_RATE:
                median = point.median
                sums = (
                    median.bytes_without,
                    median.event_bytes_saved,
                    median.update_bytes,
                    median.link_bytes_saved,
                    median.bytes_without - median.bytes_with,
                )
                rows.append((f"{match_rate:.0%}", *(f"{each / 1000:,.1f}" for each in sums)))
    head = ("wanted", "sent without", "events saved", "spent on c_all", "link saved", "net")
    return Table(f"Saved and spent, kB, at {CHANGE_RATE:g} changes per event", head, rows)


def _costs(points: Sequence[Point[Setting, Measures]]) -> Table:
    rows = []
    for match_rate, curve in _curves(points).items():
        still, busy = curve[0].median, curve[-1].median
        rows.append(
            (
                f"{match_rate:.0%}",
                f"{still.match_rate:.1%}",
                f"{still.subscriptions:.0f}",
                f"{still.filters:.0f}",
                f"{still.saved_per_event:.0f}",
                f"{still.first_bytes:,.0f}",
                f"{busy.update_bytes / busy.changes / len(PUBLISHERS):,.0f}",
            )
        )
    head = ("wanted", "came out", "subscriptions", "filters in c_all", "bytes saved per event",
            "bytes to learn c_all", "bytes per change")  # fmt: skip
    note = "For one publisher; a change replaces one subscription by another."
    return Table("What c_all costs", head, rows, note)


def _more_merging(points: Sequence[Point[Setting, Measures]]) -> Table:
    rows = [
        (
            f"{point.setting.match_rate:.0%}",
            f"{point.median.filters:.0f}",
            f"{point.median.first_bytes:,.0f}",
            f"{point.median.update_bytes / point.median.changes / len(PUBLISHERS):,.0f}",
            f"{even:.2f}",
        )
        for point, even in _much_merged(points)
    ]
    head = ("wanted", "filters in c_all", "bytes to learn c_all", "bytes per change", "break-even")
    title = f"The same with {MEMBERS_MANY} subscriptions merged at most, not {MEMBERS_MAX}"
    return Table(title, head, rows, "The break-even follows from the bytes saved and spent.")


def _much_merged(
    points: Sequence[Point[Setting, Measures]],
) -> list[tuple[Point[Setting, Measures], float]]:
    """The points of that variation, and where they break even if each change costs the same."""
    curves = _curves(points)
    found = []
    for point in points:
        if point.setting.interest_members_max == MEMBERS_MANY:
            still = curves[point.setting.match_rate][0].median.saved_per_event
            lost = still - point.median.saved_per_event
            found.append((point, point.setting.change_rate * still / lost))
    return found


def _disconnections(points: Sequence[Point[Setting, Measures]]) -> Table:
    rows = []
    for point in points:
        setting, median = point.setting, point.median
        if setting.disconnected:
            rows.append(
                (
                    f"{setting.match_rate:.0%}",
                    f"{setting.buffer_events_max:,}",
                    _percent(median.saved_share),
                    f"{median.quenched:.0f}",
                    f"{median.purged_without:.0f}",
                    f"{median.purged_with:.0f}",
                )
            )
    return Table(
        f"Publishers without a connection for 40 % of the time, {CHANGE_RATE:g} changes per event",
        ("wanted", "buffer, events", "bytes saved", "quenched", "wanted, purged without",
         "with it"),
        rows,
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{round(100 * share)}%"  # There is no -0 %.
