"""The paper's analytical model: how many messages it takes to hand subscribers over (Eqs. 1-5).

It counts messages, not hops. What it does not know: the requests and acknowledgements of a
protocol, what a covering subscription uncovers when it leaves, and how large a log must be.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from sterna.core.names import NodeId, Time
from sterna.experiments.burcea.city import KINDS, WANTED, hops
from sterna.experiments.burcea.journeys import People, Subscriber
from sterna.experiments.burcea.settings import PERIOD_US, Setting

KIND = range(1, KINDS + 1)

Stay = tuple[NodeId, float, float, range]
"""Who is registered at a broker, since when and until when, and for which kinds of events."""


class Change(msgspec.Struct, frozen=True):
    """A subscriber comes to another broker than the one that it has left."""

    subscriber: Subscriber
    old: int
    new: int
    leaves_us: Time
    arrives_us: Time

    @property
    def t3_us(self) -> Time:
        """How long it is without connection."""
        return self.arrives_us - self.leaves_us


def total_cost(subscriptions: float, events: float) -> float:
    """Eq. 1: the messages that it takes to hand subscribers over."""
    return subscriptions + events


def subscription_cost(coverages: Iterable[tuple[int, int]]) -> int:
    """Eq. 2: the messages for subscriptions, by coverage at the old and at the new broker.

    By the paper's own text both terms are added: the old broker sends the subscription to the new
    one, the new one subscribes and the old one unsubscribes. (A minus is printed.)
    """
    return sum(1 + old + new for old, new in coverages)


def event_cost(rate: float, disconnection_us: float, logged: float = 0.0) -> float:
    """Eqs. 3 and 5: the messages for events, by their rate for each microsecond."""
    return rate * disconnection_us - logged


def t2_us(change: Change, setting: Setting) -> Time:
    """How long the old broker keeps events if it knows where the subscriber goes: it sends the
    subscription there, and gets the request to unsubscribe.
    """
    return 2 * hops(change.old, change.new) * setting.latency_ms * 1_000


def t4_us(change: Change, setting: Setting) -> Time:
    """How long it goes on keeping events after the arrival: the subscriber introduces itself after
    a handshake, the new broker asks for its subscription, and then to unsubscribe.
    """
    return (3 + 3 * hops(change.old, change.new)) * setting.latency_ms * 1_000


def disconnection_us(strategy: str, change: Change, setting: Setting) -> Time:
    """Eq. 4: for how long the network takes a subscriber for disconnected, by strategy (4.1)."""
    if strategy == "prefetching":
        return t2_us(change, setting)
    return change.t3_us + t4_us(change, setting)


def changes(everybody: People, setting: Setting) -> Iterator[Change]:
    """All changes of a run; with prefetching those that begin in it, else those that end in it."""
    for each in everybody.subscribers:
        leaf = each.leaf
        for move in each.moves:
            at = move.leaves_us if setting.strategy == "prefetching" else move.arrives_us
            if at >= setting.length_us:
                break
            if move.leaf != leaf:
                yield Change(each, leaf, move.leaf, move.leaves_us, move.arrives_us)
            leaf = move.leaf


class Model:
    """What the model says of a run."""

    def __init__(self, setting: Setting, everybody: People) -> None:
        self.setting = setting
        self.everybody = everybody
        kinds = [publisher.kind for publisher in everybody.publishers]
        self._rates = {kind: kinds.count(kind) / PERIOD_US for kind in KIND}
        self.changes = list(changes(everybody, setting))

    def rate(self, subscriber: Subscriber) -> float:
        """How many events a subscriber wants in a microsecond."""
        return sum(self._rates[kind] for kind in WANTED[subscriber.subscription])

    def events(self) -> float:
        """Eqs. 3 to 5: the events that are sent from broker to broker for subscribers."""
        setting = self.setting
        if setting.strategy == "home":
            return sum(map(self._forwarded, self.everybody.subscribers))
        logged = self.logged() if setting.strategy == "logging" else {}
        return sum(
            event_cost(
                self.rate(change.subscriber),
                disconnection_us(setting.strategy, change, setting),
                logged.get(place, 0.0),
            )
            for place, change in enumerate(self.changes)
        )

    def _forwarded(self, subscriber: Subscriber) -> float:
        """What a home broker forwards: all that happens while the subscriber is elsewhere, and
        what it kept before, unless the subscriber comes back home for it.
        """
        elsewhere_us = 0
        ends = [*(move.leaves_us for move in subscriber.moves[1:]), self.setting.length_us]
        for move, end_us in zip(subscriber.moves, ends, strict=False):
            if move.arrives_us < self.setting.length_us and move.leaf != subscriber.leaf:
                elsewhere_us += min(end_us, self.setting.length_us) - move.leaves_us
        return event_cost(self.rate(subscriber), elsewhere_us)

    # ---- What the logs of brokers hold

    def logged(self) -> dict[int, float]:
        """The events that the new broker has in its log, for each change by its place.

        It has those that somebody else there wanted at the time, or that were published there, as
        far back as its log goes. That is estimated: as if events had come at a steady rate.
        """
        stays = self._stays()
        return {
            place: self._logged_for(change, stays[change.new])
            for place, change in enumerate(self.changes)
        }

    def _logged_for(self, change: Change, stays: Sequence[Stay]) -> float:
        others = [stay for stay in stays if stay[0] != change.subscriber.client]
        ends_us, log_events = change.arrives_us, self.setting.log_events
        since_us: float = change.leaves_us
        total = sum(self._passed(change.new, kind, since_us, ends_us, others) for kind in KIND)
        if total > log_events:
            since_us = ends_us - change.t3_us * log_events / total
        return sum(
            self._passed(change.new, kind, since_us, ends_us, others)
            for kind in WANTED[change.subscriber.subscription]
        )

    def _passed(
        self, leaf: int, kind: int, since_us: float, ends_us: float, stays: Sequence[Stay]
    ) -> float:
        """How many events of a kind came to a leaf: all that were published there, and the others
        as long as somebody there wanted them.
        """
        local = [
            each for each in self.everybody.publishers if (each.leaf, each.kind) == (leaf, kind)
        ]
        here = len(local) / PERIOD_US
        covered_us = _covered(since_us, ends_us, kind, stays)
        return here * (ends_us - since_us) + (self._rates[kind] - here) * covered_us

    def _stays(self) -> dict[int, list[Stay]]:
        """For each leaf, who is registered there, since when and until when, and for what."""
        found: dict[int, list[Stay]] = {}
        for each in self.everybody.subscribers:
            ways = [(0.0, each.leaf), *((float(m.arrives_us), m.leaf) for m in each.moves)]
            for (since, leaf), (until, _) in pairwise([*ways, (float("inf"), -1)]):
                kinds = WANTED[each.subscription]
                found.setdefault(leaf, []).append((each.client, since, until, kinds))
        return {leaf: found.get(leaf, []) for leaf in {*found, *(c.new for c in self.changes)}}


def _covered(begins_us: float, ends_us: float, kind: int, stays: Iterable[Stay]) -> float:
    """How long somebody of several wanted a kind of event, of a stretch of time."""
    covered, reached = 0.0, begins_us
    for _, since, until, kinds in sorted(stays, key=lambda stay: stay[1]):
        if kind in kinds:
            first, last = max(since, reached), min(until, ends_us)
            if first < last:
                covered += last - first
                reached = last
    return covered
