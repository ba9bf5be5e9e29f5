"""How a client asks for the past, and delivers it before later events."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Self

import msgspec

from sterna.core import facts
from sterna.core.actions import Deliver
from sterna.core.component import ClientComponent, Found
from sterna.core.history.facts import PastHeld
from sterna.core.history.messages import Past, PastAsked
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, LinkId, NodeId, RouteId, Time
from sterna.core.settings import Settings
from sterna.model.event import Event

HELD_MAX = 100_000
"""With more events that wait for the past, the client goes on without the rest of the past."""

HOLD_US = 5_000_000
"""How long events wait for earlier ones at most."""

LATER_US = 1_000_000
"""A client asks again after so long if the broker has too many requests."""


@dataclass(slots=True)
class Waiting:
    """Events of a subscription that wait for its past: since when, and how many."""

    since: Time
    count: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """An event that waits for earlier ones."""

    event: Event
    subscriptions: tuple[str, ...]
    anywhere: bool
    """Whether it was kept for the client, for a place where it was then."""
    is_past: bool = False
    overtakes: bool = False
    """Whether earlier ones of its publisher may follow."""
    since: Time = 0
    """When it came."""

    @property
    def past_of(self) -> str | None:
        """The subscription whose past it belongs to; None if it came as usual."""
        return self.subscriptions[0] if self.is_past else None


class KeptHeld(msgspec.Struct, frozen=True):
    """What a snapshot holds of an event that waits."""

    event: int
    subscriptions: tuple[str, ...]
    anywhere: bool
    is_past: bool
    overtakes: bool = False
    since: Time = 0


class KeptRecall(msgspec.Struct, frozen=True):
    """What a snapshot holds of requests for the past."""

    asked: list[PastAsked]
    sent: list[RouteId]
    held: list[KeptHeld]
    recalled: dict[str, dict[NodeId, int]]
    number: int
    begun: dict[str, dict[NodeId, int]] = {}
    given_up: dict[str, int] = {}
    waiting: dict[str, tuple[Time, int]] = {}
    here: dict[str, tuple[int | None, Time | None]] = {}


class Recall(ClientComponent):
    """The client's part: it asks for the past, and delivers it before later events.

    Its subscription may bring events before the past has come: they wait for it, and later ones of
    the same publishers wait with them, so that their order holds. They wait until as many are there
    as the application has asked for, past ones and others, and never longer than the settings say:
    so the application has as many at least as early as without a past. (Cilia et al., 5.4) If the
    client goes on to another place meanwhile, they wait no longer, and are delivered as what was
    kept for the place where it was.

    An answer may come in parts, and each goes to the application at once.
    """

    name = "past"
    handles = (Past,)
    facts = (PastHeld,)
    version = 2
    Kept = KeptRecall
    older = {1: (KeptRecall, lambda kept: kept)}  # noqa: RUF012 - a class variable of its base.

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.history.hold_us)

    def __init__(self, hold_us: Time = HOLD_US) -> None:
        self._hold_us = hold_us
        self._waiting: dict[str, Waiting] = {}
        """For each subscription whose past has not come, which of its events wait."""
        self._asked: dict[RouteId, PastAsked] = {}
        """Requests that are not answered yet; they are sent again wherever the client goes."""
        self._requested: dict[RouteId, None] = {}
        """Requests that the present broker has; it answers as long as it knows the client."""
        self._held: list[Held] = []
        self._first_held: dict[NodeId, int] = {}
        """The first event of each publisher that waits."""
        self._begun: dict[str, dict[NodeId, int]] = {}
        """For each subscription whose past has come in part, the last event of each publisher: if
        the client has to ask again, it drops what it had."""
        self._given_up: dict[str, int] = {}
        """The subscriptions that go on without the rest of their past, and their requests."""
        self._recalled: dict[str, dict[NodeId, int]] = {}
        """For each subscription, the last event of each publisher that its past had: a broker where
        the client has been may have kept some of them for it."""
        self._number = 0
        self._here: dict[str, tuple[int | None, Time | None]] = {}
        """The subscriptions that begin anew wherever the client is: how many past events each
        wants, and how far back."""

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self._hold_us = settings.history.hold_us

    def end(self, now: Time) -> bool:
        """Go on without the past that has not come: deliver what waits for it.

        A broker that ignores a request does not know the subscription either, so it is announced.
        Whether no past is left that a broker may have kept for the client as well.
        """
        self._go_on_without(now)
        return not self._recalled

    def _go_on_without(self, now: Time, names: Iterable[str] | None = None) -> None:
        """Go on without the past of some subscriptions, or of all."""
        asked = {self._name(id_): id_ for id_ in self._asked}
        going = [name for name in (asked if names is None else names) if name in asked]
        still = [name for name in going if name not in self._here]
        self.client.wants.tell_again(still, now)
        for name in going:
            begun = self._begun.pop(name, None)
            if begun:
                self._recalled[name] = begun
            self._wait_no_more(name, now)
            del self._asked[asked[name]]
            self._requested.pop(asked[name], None)
        self._release(now)

    def keep(self, writer: Writer) -> KeptRecall:
        return KeptRecall(
            asked=list(self._asked.values()),
            sent=list(self._requested),
            held=[
                KeptHeld(
                    writer.event(each.event),
                    each.subscriptions,
                    each.anywhere,
                    each.is_past,
                    each.overtakes,
                    each.since,
                )
                for each in self._held
            ],
            recalled={name: dict(last) for name, last in self._recalled.items()},
            number=self._number,
            begun={name: dict(last) for name, last in self._begun.items()},
            given_up=dict(self._given_up),
            waiting={name: (each.since, each.count) for name, each in self._waiting.items()},
            here=dict(self._here),
        )

    def restore(self, kept: KeptRecall, reader: Reader) -> None:
        self._asked = {asked.route.id: asked for asked in kept.asked}
        self._requested = dict.fromkeys(kept.sent)
        self._held = [
            Held(
                reader.event(each.event),
                each.subscriptions,
                each.anywhere,
                is_past=each.is_past,
                overtakes=each.overtakes,
                since=each.since,
            )
            for each in kept.held
        ]
        self._recalled = {name: dict(last) for name, last in kept.recalled.items()}
        self._begun = {name: dict(last) for name, last in kept.begun.items()}
        self._given_up = dict(kept.given_up)
        self._number = kept.number
        for held in self._held:
            self._note_first(held.event)
        self._here = dict(kept.here)
        self._waiting = {
            name: Waiting(since, count) for name, (since, count) in kept.waiting.items()
        }

    def begin_here(
        self, name: str, events_max: int | None, since_us: Time | None, now: Time
    ) -> None:
        """A subscription depends on where the client is: it begins anew whenever that changes."""
        self._here[name] = events_max, None if since_us is None else max(0, now - since_us)

    def bounds_here(self, name: str) -> tuple[int | None, Time | None] | None:
        """How many events such a subscription begins with, and how old at most."""
        return self._here.get(name)

    def ask(self, asked: PastAsked, now: Time) -> None:
        """Ask for the past of a subscription."""
        self._number += 1
        self._asked[asked.route.id] = msgspec.structs.replace(asked, number=self._number)
        self._send_requests(now)

    def moved(self, now: Time) -> None:
        """Begin anew with the past of the place where the client is."""
        for name, (events_max, ago_us) in self._here.items():
            self._begun.pop(name, None)
            self._recalled.pop(name, None)
            self._given_up.pop(name, None)
            route = self.client.wants.told_past(name)
            self._requested.pop(route.id, None)
            since_us = None if ago_us is None else now - ago_us
            asked = PastAsked(route=route, events_max=events_max, since_us=since_us, is_here=True)
            self.ask(asked, now)
            self._held = [held for held in self._held if held.past_of != name]
            self._count_anew(name, now)
        self._release(now)

    def _count_anew(self, name: str, now: Time) -> None:
        """Of what has waited for the past of another place, what is wanted here still waits."""
        still = [
            held.since
            for held in self._held
            if name in held.subscriptions and self._waits(held.event, name)
        ]
        if still:
            self._waiting[name] = Waiting(min(still), len(still))
            self.wake_by(min(still) + self._hold_us)
        else:
            self._wait_no_more(name, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        del link
        self._send_requests(now)

    def introduction_sent(self, now: Time) -> None:
        self._requested.clear()
        self._send_requests(now)

    def wake(self, now: Time) -> None:
        """Ask again if the broker had too many requests; go on without a past that takes long."""
        self._send_requests(now)
        late = [n for n, each in self._waiting.items() if each.since + self._hold_us <= now]
        if late:
            self._give_up(late, now)
        for each in self._waiting.values():
            self.wake_by(each.since + self._hold_us)

    def unsubscribed(self, name: str, now: Time) -> None:
        id_ = self.client.route(name)
        self._recalled.pop(name, None)
        self._begun.pop(name, None)
        self._given_up.pop(name, None)
        self._waiting.pop(name, None)
        self._here.pop(name, None)
        self._asked.pop(id_, None)
        self._requested.pop(id_, None)
        self._held = [  # A later one with this name is another subscription.
            replace(held, subscriptions=left)
            for held in self._held
            if (left := tuple(each for each in held.subscriptions if each != name))
        ]
        self._release(now)

    def delivering(
        self, events: Sequence[Event], subscriptions: Sequence[tuple[str, ...]], now: Time, *,
        anywhere: bool, overtakes: bool,
    ) -> Found | None:  # fmt: skip
        if not (self._asked or self._recalled):
            return None
        pairs = zip(events, subscriptions, strict=True)
        found = self._without_past(pairs, now, overtakes=overtakes)
        going = []
        for event, names in found:
            asked = [name for name in names if self._waits(event, name)]
            if asked or event.publisher in self._first_held:
                held = Held(event, names, anywhere, overtakes=overtakes, since=now)
                self._held.append(held)
                self._note_first(event)
                for name in asked:
                    self._waiting.setdefault(name, Waiting(now)).count += 1
            else:
                going.append((event, names))
        if self._waiting:
            self.wake_by(min(each.since for each in self._waiting.values()) + self._hold_us)
        enough = self._with_enough()
        if not enough and len(self._held) <= HELD_MAX:
            return going
        if going:  # They come before those that have waited.
            events_, names_ = zip(*going, strict=True)
            self.client.wants.deliver(events_, names_, now, anywhere=anywhere, overtakes=overtakes)
        if enough:
            self._go_on_without(now, self._with_blocking(enough))
        else:
            self._give_up(list(self._waiting), now)
        return ()

    def _wait_no_more(self, name: str, now: Time) -> None:
        """The past of a subscription is there, or given up."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            client, held_us = self.client, now - waiting.since
            self.client.state(
                PastHeld(
                    at=client.id, time=now, subscription=name, held=waiting.count, held_us=held_us
                )
            )

    def _waits(self, event: Event, name: str) -> bool:
        """Whether an event has to wait for the past of a subscription.

        What is about another place, where the client was, need not.
        """
        if self.client.route(name) not in self._asked:
            return False
        return name not in self._here or self.client.wants.is_wanted(event, name)

    def _with_enough(self) -> list[str]:
        """The subscriptions of which as many events are there as were asked for.

        Not those whose past has begun to come: there would be a gap behind it.
        """
        return [
            name
            for name, waiting in self._waiting.items()
            if (events_max := self._asked[self.client.route(name)].events_max) is not None
            and waiting.count >= events_max
            and not self._begun.get(name)
        ]

    def _with_blocking(self, names: Sequence[str]) -> set[str]:
        """These subscriptions, and those whose past others of their publishers wait for."""
        chosen = set(names)
        while True:
            publishers = {
                held.event.publisher for held in self._held if chosen & {*held.subscriptions}
            }
            more = {
                name
                for held in self._held
                if held.event.publisher in publishers
                for name in held.subscriptions
                if self.client.route(name) in self._asked
            }
            if more <= chosen:
                return chosen
            chosen |= more

    def _note_first(self, event: Event) -> None:
        first = self._first_held.get(event.publisher, NEVER)
        self._first_held[event.publisher] = min(first, event.seq)

    def _give_up(self, names: Sequence[str], now: Time) -> None:
        """Go on without the rest of a past, which may never come."""
        chosen = self._with_blocking(names)
        for name in chosen:
            asked = self._asked.get(self.client.route(name))
            if asked is not None:
                self._given_up[name] = asked.number
        self._go_on_without(now, chosen)

    def _without_past(
        self, found: Iterable[tuple[Event, tuple[str, ...]]], now: Time, *, overtakes: bool
    ) -> list[tuple[Event, tuple[str, ...]]]:
        """Drop, for a subscription, what its past had already and what comes before that."""
        left = []
        for event, names in found:
            wanting = tuple(
                name for name in names if not self._is_past(event, name, overtakes=overtakes)
            )
            if wanting:
                left.append((event, wanting))
            else:
                repeated = facts.Repeated(at=self.client.id, time=now, events=(event,))
                self.client.state(repeated)
        return left

    def _is_past(self, event: Event, name: str, *, overtakes: bool) -> bool:
        begun = self._begun.get(name)
        if begun is not None:
            return event.seq <= begun.get(event.publisher, -1)
        last = self._recalled.get(name)
        if last is None or event.publisher not in last:
            return False
        if event.seq <= last[event.publisher]:
            return True
        if not overtakes:
            del last[event.publisher]  # The rest of this publisher's events is later, too.
            if not last:
                del self._recalled[name]
        return False

    def on_past(self, message: Past, _link: LinkId, now: Time) -> None:
        """Give the past to the application, except for what follows an event that waits already.

        That happens if another subscription has brought some of the events already.
        """
        asked, name = self._asked.get(message.subscription), self._name(message.subscription)
        if asked is None or asked.number != message.number:
            if self._given_up.get(name) == message.number:
                self._missed(message, name, now)
            return
        if message.later:
            self._requested.pop(message.subscription, None)
            self.wake_by(now + LATER_US)
            return
        begun = self._begun.setdefault(name, {})
        new = [each for each in message.events if each.seq > begun.get(each.publisher, -1)]
        begun |= {event.publisher: event.seq for event in new}
        if message.missed:
            self.client.state(facts.Missed(at=self.client.id, time=now, events=message.missed))
        if not message.more:
            del self._asked[message.subscription], self._begun[name]
            self._requested.pop(message.subscription, None)
            self._wait_no_more(name, now)
            if begun:
                self._recalled[name] = begun
        early: list[Held] = []
        late: list[Held] = []
        for event in new:
            if self.client.wants.is_wanted(event, name):
                is_early = event.seq < self._first_held.get(event.publisher, NEVER)
                past = Held(event, (name,), anywhere=False, is_past=True, since=now)
                (early if is_early else late).append(past)
        self._deliver(early, now)
        if late:
            came = {held.event.id for held in self._held if name in held.subscriptions}
            late = [each for each in late if each.event.id not in came]
            self._held = _merged(self._held, late)
        self._release(now)

    def _missed(self, message: Past, name: str, now: Time) -> None:
        """Past events have come after all, too late."""
        missed = (*message.missed, *(event.id for event in message.events))
        if missed:
            self.client.state(facts.Missed(at=self.client.id, time=now, events=missed))
        if not message.more:
            del self._given_up[name]

    def _release(self, now: Time) -> None:
        """Deliver what has waited for a past that has come, or that nobody waits for any more."""
        held, self._held = self._held, []
        self._first_held.clear()
        going = []
        for each in held:
            waits = any(self._waits(each.event, name) for name in each.subscriptions)
            if waits or each.event.publisher in self._first_held:
                self._held.append(each)
                self._note_first(each.event)
            else:
                going.append(each)
        self._deliver(going, now)

    def _deliver(self, waiting: Sequence[Held], now: Time) -> None:
        """Give the application the events for subscriptions that it still has."""
        client = self.client
        going = [(each, names) for each in waiting if (names := self._wanting(each))]
        for (name, anywhere, overtakes), group in groupby(
            going, lambda pair: (pair[0].past_of, self._is_elsewhere(*pair), pair[0].overtakes)
        ):
            held, subscriptions = zip(*group, strict=True)
            events = tuple(each.event for each in held)
            if name is not None:
                client.act(Deliver(events, subscriptions))
                recalled = facts.Recalled(at=client.id, time=now, events=events, subscription=name)
                client.state(recalled)
            else:
                client.wants.deliver(
                    events, subscriptions, now, anywhere=anywhere, overtakes=overtakes
                )

    def _wanting(self, held: Held) -> tuple[str, ...]:
        """The subscriptions that get an event.

        What came as usual was wanted then, and without a past it would have been delivered then.
        """
        if held.is_past:
            (name,) = held.subscriptions
            return held.subscriptions if self.client.wants.is_wanted(held.event, name) else ()
        return tuple(name for name in held.subscriptions if name in self.client.subscriptions)

    def _is_elsewhere(self, held: Held, names: Sequence[str]) -> bool:
        """Whether an event counts as kept for a place where the client was."""
        return held.anywhere or not any(
            self.client.wants.is_wanted(held.event, name) for name in names
        )

    def _send_requests(self, now: Time) -> None:
        """Send the requests that were not sent yet, once the broker has sent all that it kept."""
        client = self.client
        if client.link is None or not (client.is_introduced and client.is_welcome):
            return
        if self._here:  # The broker has to know where the client is before it is asked for that.
            client.wants.whereabouts.tell(now)
        for id_, asked in self._asked.items():
            if id_ not in self._requested:
                self._requested[id_] = None
                route = client.wants.told_past(self._name(id_))
                client.send(
                    client.link, msgspec.structs.replace(asked, route=route, in_parts=True), now
                )

    def _name(self, id_: RouteId) -> str:
        return id_.removeprefix(self.client.route(""))

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        return not self._asked or self.client.link not in self.client.up


def _merged(held: Sequence[Held], late: Sequence[Held]) -> list[Held]:
    """Each publisher's events in order, and otherwise what is late at the end."""
    waiting: dict[NodeId, deque[Held]] = defaultdict(deque)
    for each in late:
        waiting[each.event.publisher].append(each)
    merged = []
    for each in held:
        before = waiting[each.event.publisher]
        while before and before[0].event.seq < each.event.seq:
            merged.append(before.popleft())
        merged.append(each)
    return [*merged, *(each for rest in waiting.values() for each in rest)]
