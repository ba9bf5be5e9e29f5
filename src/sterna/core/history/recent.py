"""The recent past: a new subscription can begin with what its border broker still has.

The broker keeps the last events that passed it. A client that asks for the past subscribes with the
same message: whatever the broker has by then is the past, and all that follows comes as usual.

Where there is an archive, what lies before that comes from there. It takes its time; what follows
meanwhile waits at the client.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, zip_longest
from operator import attrgetter
from typing import Self

import msgspec

from sterna.core import facts
from sterna.core.actions import Deliver, LookUp
from sterna.core.component import BrokerComponent, ClientComponent, Found
from sterna.core.history.messages import Past, PastAsked
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message, SubscriptionChange
from sterna.core.names import NEVER, LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.core.routing.foresight import Foresight
from sterna.core.settings import Settings
from sterna.core.sizes import weight
from sterna.model.event import Event, EventId

IN_MEMORY_BYTES = 200
"""About how many bytes more an event takes in memory than on its way."""

QUESTIONS_MAX = 100
"""With so many lookups in the archive at a time, others get only what the broker has itself."""


@dataclass(frozen=True, slots=True)
class Question:
    """A lookup in the archive, and the client that waits for it."""

    asked: PastAsked
    link: LinkId
    found: tuple[Event, ...]
    """The events that the broker had itself when it was asked."""
    look_up: LookUp


class KeptQuestion(msgspec.Struct, frozen=True):
    """What a snapshot holds of a question to the archive."""

    asked: int
    link: LinkId
    found: list[int]
    look_up: LookUp


class KeptRecent(msgspec.Struct, frozen=True):
    """What a snapshot holds of the recent past."""

    batches: list[list[int]]
    has_archive: bool
    questions: list[KeptQuestion]
    number: int
    sizes: list[int] = []
    """How many bytes each batch takes; earlier releases did not keep it."""


class Recent(BrokerComponent):
    """The broker's part: it keeps recent events and answers with them."""

    name = "past"
    handles = (PastAsked,)
    Kept = KeptRecent

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.history.events_max, settings.history.bytes_max)

    def __init__(self, events_max: int, bytes_max: int = 64 << 20) -> None:
        self._batches: deque[tuple[Sequence[Event], int]] = deque()
        """Events that passed together, with their approximate size in bytes."""
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._count = 0
        self._ever = 0
        """How many events have been added so far, since this process began."""
        self._bytes = 0
        self.has_archive = False
        self._questions: dict[int, Question] = {}
        self._number = 0

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self._events_max = settings.history.events_max
        self._bytes_max = settings.history.bytes_max

    def end(self, now: Time) -> bool:
        """Answer who waits for the archive with what the broker has itself."""
        for number in list(self._questions):
            self.looked_up(number, (), now)
        return True

    def keep(self, writer: Writer) -> KeptRecent:
        return KeptRecent(
            batches=[[writer.event(event) for event in events] for events, _ in self._batches],
            has_archive=self.has_archive,
            questions=[
                KeptQuestion(
                    writer.message(each.asked),
                    each.link,
                    [writer.event(event) for event in each.found],
                    each.look_up,
                )
                for each in self._questions.values()
            ],
            number=self._number,
            sizes=[size for _, size in self._batches],
        )

    def restore(self, kept: KeptRecent, reader: Reader) -> None:
        for numbers, size in zip_longest(kept.batches, kept.sizes):
            events = tuple([reader.event(number) for number in numbers])
            self._add(events, sum(map(weight, events)) if size is None else size)
        self.has_archive, self._number = kept.has_archive, kept.number
        for each in kept.questions:
            self._questions[each.look_up.question] = Question(
                reader.message(each.asked, PastAsked),
                each.link,
                tuple([reader.event(number) for number in each.found]),
                each.look_up,
            )

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        return not self._questions

    def unanswered(self) -> list[LookUp]:
        """The lookups that are not answered; after a restart they have to be made again."""
        return [question.look_up for question in self._questions.values()]

    def archive_changed(self, *, is_there: bool, now: Time) -> None:
        del now
        self.has_archive = is_there

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        del link, now
        self._add(events, self._size(events))
        batches = self._batches
        while batches and (
            self._bytes > self._bytes_max or self._count - len(batches[0][0]) >= self._events_max
        ):
            oldest, size = batches.popleft()
            self._count -= len(oldest)
            self._bytes -= size

    def _size(self, events: Sequence[Event]) -> int:
        """About how many bytes events take.

        If it is known how many bytes they were on their way, it does not take a look at each.
        """
        size, self.broker.unweighed = self.broker.unweighed, 0
        return size + IN_MEMORY_BYTES * len(events) if size else sum(map(weight, events))

    def _add(self, events: Sequence[Event], size: int) -> None:
        self._batches.append((events, size))
        self._count += len(events)
        self._ever += len(events)
        self._bytes += size

    def on_past_asked(self, message: PastAsked, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is not Peer.CLIENT or not message.route.filter.is_bound:
            return
        found = _in_order(self._matching(message))
        self.broker.message_arrived(SubscriptionChange(added=(message.route,)), link, now)
        if self._is_enough(message, found) or len(self._questions) >= QUESTIONS_MAX:
            self._answer(message, link, found, now)
            return
        self._number += 1
        look_up = LookUp(
            question=self._number,
            filter=message.route.filter,
            events_max=message.events_max,
            since_us=message.since_us or 0,
            until_us=now,
        )
        self._questions[self._number] = Question(message, link, tuple(found), look_up)
        self.broker.act(look_up)

    def foresees(self, message: Message, foresight: Foresight) -> Iterable[None]:
        if type(message) is PastAsked and message.route.filter.is_bound:
            yield from foresight.test_past(message.route.filter, self._passed(message))

    def _matching(self, message: PastAsked) -> Iterator[Event]:
        """The recent events that a client asks for."""
        filter_, foresight = message.route.filter, self.broker.foresight
        tested: Mapping[int, bool] = foresight.past.get(filter_, {}) if foresight else {}
        for place, event in self._passed(message).items():
            if tested[place] if place in tested else filter_.matches(event.attributes):
                yield event

    def _passed(self, message: PastAsked) -> dict[int, Event]:
        """The last events, from a time on, by their places among all that have ever passed here."""
        first, since_us = max(0, self._count - self._events_max), message.since_us or 0
        events = (event for events, _ in self._batches for event in events)
        placed = islice(enumerate(events, self._ever - self._count), first, None)
        return {place: event for place, event in placed if event.time_us >= since_us}

    def looked_up(self, question: int, events: Sequence[Event], now: Time) -> None:
        waiting = self._questions.pop(question, None)
        if waiting is not None:
            both = sorted((*events, *waiting.found), key=attrgetter("time_us"))
            found = _in_order(both)
            self._answer(waiting.asked, waiting.link, found, now)

    def link_reset(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        self.link_gone(link, unconfirmed, now)

    def link_gone(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        del unconfirmed, now
        self._questions = {
            number: each for number, each in self._questions.items() if each.link != link
        }

    def _is_enough(self, message: PastAsked, found: Sequence[Event]) -> bool:
        """Whether the archive need not be searched: it may have events that did not pass here."""
        return not self.has_archive or (
            message.events_max is not None and len(found) >= message.events_max
        )

    def _answer(self, message: PastAsked, link: LinkId, found: Sequence[Event], now: Time) -> None:
        if message.events_max is not None:
            found = found[max(0, len(found) - message.events_max) :]
        self.broker.send(
            link,
            Past(subscription=message.route.id, number=message.number, events=tuple(found)),
            now,
        )


def _in_order(events: Iterable[Event]) -> list[Event]:
    """The events of each publisher in the order of their numbers, none twice.

    They arrive in that order, except from publishers that move in a network without such a promise.
    """
    once = {event.id: event for event in events}
    places = [id_.publisher for id_ in once]
    numbers: dict[NodeId, list[int]] = defaultdict(list)
    for id_ in once:
        numbers[id_.publisher].append(id_.seq)
    turns = {publisher: iter(sorted(seqs)) for publisher, seqs in numbers.items()}
    return [once[EventId(publisher, next(turns[publisher]))] for publisher in places]


@dataclass(frozen=True, slots=True)
class Held:
    """An event that waits for earlier ones."""

    event: Event
    subscriptions: tuple[str, ...]
    anywhere: bool
    """Whether it was kept for the client, for a place where it was then."""
    is_past: bool = False


class KeptHeld(msgspec.Struct, frozen=True):
    """What a snapshot holds of an event that waits."""

    event: int
    subscriptions: tuple[str, ...]
    anywhere: bool
    is_past: bool


class KeptRecall(msgspec.Struct, frozen=True):
    """What a snapshot holds of requests for the past."""

    asked: list[PastAsked]
    sent: list[RouteId]
    held: list[KeptHeld]
    recalled: dict[str, dict[NodeId, int]]
    number: int


class Recall(ClientComponent):
    """The client's part: it asks for the past, and delivers it before later events.

    Usually the past comes first by itself. If the answer got lost with a connection, or the client
    has moved, its subscription may bring events before the past has come: they wait for it, and
    whatever follows waits with them, so that the order of each publisher holds.
    """

    name = "past"
    handles = (Past,)
    Kept = KeptRecall

    def __init__(self) -> None:
        self._asked: dict[RouteId, PastAsked] = {}
        """Requests that are not answered yet; they are sent again wherever the client goes."""
        self._requested: dict[RouteId, None] = {}
        """Requests that the present broker has; it answers as long as it knows the client."""
        self._held: list[Held] = []
        self._recalled: dict[str, dict[NodeId, int]] = {}
        """For each subscription, the last event of each publisher that its past had: a broker where
        the client has been may have kept some of them for it."""
        self._number = 0

    def end(self, now: Time) -> bool:
        """Go on without the past that has not come: deliver what waits for it.

        A broker that ignores a request does not know the subscription either, so it is announced.
        Whether no past is left that a broker may have kept for the client as well.
        """
        self.client.wants.tell_again([self._name(id_) for id_ in self._asked], now)
        self._asked.clear()
        self._requested.clear()
        self._release(now)
        return not self._recalled

    def keep(self, writer: Writer) -> KeptRecall:
        return KeptRecall(
            asked=list(self._asked.values()),
            sent=list(self._requested),
            held=[
                KeptHeld(writer.event(each.event), each.subscriptions, each.anywhere, each.is_past)
                for each in self._held
            ],
            recalled={name: dict(last) for name, last in self._recalled.items()},
            number=self._number,
        )

    def restore(self, kept: KeptRecall, reader: Reader) -> None:
        self._asked = {asked.route.id: asked for asked in kept.asked}
        self._requested = dict.fromkeys(kept.sent)
        self._held = [
            Held(reader.event(each.event), each.subscriptions, each.anywhere, is_past=each.is_past)
            for each in kept.held
        ]
        self._recalled = {name: dict(last) for name, last in kept.recalled.items()}
        self._number = kept.number

    def ask(self, asked: PastAsked, now: Time) -> None:
        """Ask for the past of a subscription that the client has just made."""
        self._number += 1
        self._asked[asked.route.id] = msgspec.structs.replace(asked, number=self._number)
        self._send_requests(now)

    def link_up(self, link: LinkId, now: Time) -> None:
        del link
        self._send_requests(now)

    def introduction_sent(self, now: Time) -> None:
        self._requested.clear()
        self._send_requests(now)

    def unsubscribed(self, name: str, now: Time) -> None:
        id_ = self.client.route(name)
        self._recalled.pop(name, None)
        if self._asked.pop(id_, None) is not None:
            self._requested.pop(id_, None)
            self._release(now)

    def delivering(
        self, events: Sequence[Event], subscriptions: Sequence[tuple[str, ...]], now: Time, *,
        anywhere: bool,
    ) -> Found | None:  # fmt: skip
        if not (self._asked or self._recalled):
            return None
        found = self._without_past(zip(events, subscriptions, strict=True), now)
        if self._held or any(
            self.client.route(name) in self._asked for _, names in found for name in names
        ):
            self._held += [Held(event, names, anywhere) for event, names in found]
            return ()
        return found

    def _without_past(
        self, found: Iterable[tuple[Event, tuple[str, ...]]], now: Time
    ) -> list[tuple[Event, tuple[str, ...]]]:
        """Drop, for a subscription, what its past had already and what comes before that."""
        left = []
        for event, names in found:
            wanting = tuple(name for name in names if not self._is_past(event, name))
            if wanting:
                left.append((event, wanting))
            else:
                repeated = facts.Repeated(at=self.client.id, time=now, events=(event,))
                self.client.state(repeated)
        return left

    def _is_past(self, event: Event, name: str) -> bool:
        last = self._recalled.get(name)
        if last is None or event.publisher not in last:
            return False
        if event.seq <= last[event.publisher]:
            return True
        del last[event.publisher]  # The rest of this publisher's events is later, too.
        if not last:
            del self._recalled[name]
        return False

    def on_past(self, message: Past, _link: LinkId, now: Time) -> None:
        """Give the past to the application, except for what follows an event that waits already.

        That happens if another subscription has brought some of the events already.
        """
        asked = self._asked.get(message.subscription)
        if asked is None or asked.number != message.number:
            return
        del self._asked[message.subscription]
        self._requested.pop(message.subscription, None)
        name = self._name(message.subscription)
        if message.events:
            self._recalled[name] = {event.publisher: event.seq for event in message.events}
        came = {held.event.id for held in self._held if name in held.subscriptions}
        first: dict[NodeId, int] = {}
        for held in self._held:
            first.setdefault(held.event.publisher, held.event.seq)
        past = [
            Held(event, (name,), anywhere=False, is_past=True)
            for event in message.events
            if event.id not in came and name in self.client.wants.wanting(event)
        ]
        early: list[Held] = []
        late: list[Held] = []
        for each in past:
            is_early = each.event.seq < first.get(each.event.publisher, NEVER)
            (early if is_early else late).append(each)
        self._deliver(early, now)
        self._held = _merged(self._held, late)
        self._release(now)

    def _release(self, now: Time) -> None:
        """Deliver what has waited, if the past of all subscriptions has arrived."""
        if not self._asked:
            held, self._held = self._held, []
            self._deliver(held, now)

    def _deliver(self, waiting: Sequence[Held], now: Time) -> None:
        """Give the application the events for subscriptions that it still has."""
        client = self.client
        for (is_past, anywhere), group in groupby(waiting, lambda e: (e.is_past, e.anywhere)):
            held = list(group)
            found = [self._wanting(each) for each in held]
            events = tuple(each.event for each, names in zip(held, found, strict=True) if names)
            subscriptions = tuple(names for names in found if names)
            if events and is_past:
                client.act(Deliver(events, subscriptions))
                client.state(facts.Recalled(at=client.id, time=now, events=events))
            elif events:
                client.wants.deliver(events, subscriptions, now, anywhere=anywhere)

    def _wanting(self, held: Held) -> tuple[str, ...]:
        wanting = (
            self.client.subscriptions if held.anywhere else self.client.wants.wanting(held.event)
        )
        return tuple(name for name in held.subscriptions if name in wanting)

    def _send_requests(self, now: Time) -> None:
        """Send the requests that were not sent yet, once the broker has sent all that it kept."""
        client = self.client
        if client.link is None or not (client.is_introduced and client.is_welcome):
            return
        for id_, asked in self._asked.items():
            if id_ not in self._requested:
                self._requested[id_] = None
                route = client.wants.told(self._name(id_))
                client.send(client.link, msgspec.structs.replace(asked, route=route), now)

    def _name(self, id_: RouteId) -> str:
        return id_.removeprefix(self.client.route(""))

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        return not self._asked or self.client.link not in self.client.up


PAST = Protocol(name="past", broker=Recent, client=Recall)


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
