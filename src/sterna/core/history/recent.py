"""The recent past: a new subscription can begin with what its border broker still has.

The broker keeps the last events that passed it. A client that asks for the past subscribes with the
same message: whatever the broker has by then is the past, and all that follows comes as usual.

An answer goes out in parts: the next one when the client has confirmed enough of those before. A
client that asks often gets one answer after the other, and clients take turns; so what waits in the
broker is bounded for each client and for all together.

Where there is an archive, what lies before that comes from there. It takes its time; what follows
meanwhile waits at the client.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Self, TypeVar, cast

import msgspec

from sterna.core.actions import LookUp
from sterna.core.component import BrokerComponent
from sterna.core.history.buffer import Buffer, KeptBatch
from sterna.core.history.coverage import COMPARING_MAX, covers
from sterna.core.history.facts import PastFound
from sterna.core.history.messages import SEARCH, HistoryAsked, Past, PastAsked
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.parts import part_of
from sterna.core.history.passed import LONG_AGO, Batch, Marked, Passed, Request, in_order
from sterna.core.history.recall import Recall
from sterna.core.history.searching import Found
from sterna.core.history.windows import KeptWindow, Windows
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message, SubscriptionChange
from sterna.core.names import LinkId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.core.routing.foresight import Foresight, PastVerdicts
from sterna.core.settings import Settings
from sterna.core.sizes import weight
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.model.filters.algebra import Work

if TYPE_CHECKING:
    from sterna.core.history.search import Searches
    from sterna.core.presubscribing.replicator import Presubscribing

T = TypeVar("T")

__all__ = ["PAST", "QUESTIONS_MAX", "Recall", "Recent"]

IN_MEMORY_BYTES = 200
"""About how many bytes more an event takes in memory than on its way."""

QUESTIONS_MAX = 100
"""With so many lookups in the archive at a time, others get only what the broker has itself."""

ARCHIVED_BYTES_MAX = 64 << 20
"""When answers hold so many bytes from the archive and from other brokers, more lookups wait until
these are sent, and no other broker is asked."""

OPEN_PER_CLIENT_MAX = 1_000
"""A client with so many requests that are not answered is to ask again later."""

OPEN_MAX = 10_000
"""With so many requests of all clients, others are to ask again later."""

ANSWERS_PER_CLIENT_MAX = 100_000
"""So is a client whose answers have so many events, until it has taken some of them."""

ANSWERS_MAX = 2_000_000
"""With so many events in the answers to all clients, others are to ask again later."""

WORK_EVENTS_MAX = 20_000
"""After answers have gone through so many events, other inputs have their turn."""


BUFFERS = "~buffers"
"""The name under which what buffers keep is in the routing table; no node has such a name."""

NOTHING = Filter("FALSE")
"""Events go to buffers when they pass, and not because of that."""

ROOM_US = 50_000
"""After so long it is tried again whether there is room for an answer that takes much."""


class KeptQuestion(msgspec.Struct, frozen=True):
    """What a snapshot holds of a question to the archive, in version 1."""

    asked: int
    link: LinkId
    found: list[int]
    look_up: LookUp


class KeptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a request for the past."""

    asked: int
    link: LinkId
    first: int = 0
    """How many events the snapshot has before the first one that is marked or not."""
    count: int = 0
    marks: bytes | None = None
    answer: list[int] | None = None
    sent: int = 0
    gone_bytes: int = 0
    look_up: LookUp | None = None
    archived_bytes: int = 0
    missed: tuple[EventId, ...] = ()
    search: int | None = None
    found: PastFound | None = None


class KeptRecent(msgspec.Struct, frozen=True):
    """What a snapshot holds of the recent past."""

    batches: list[list[int]]
    has_archive: bool
    questions: list[KeptQuestion]
    """Only in version 1; later ones have requests."""
    number: int
    sizes: list[int] = []
    """How many bytes each batch takes; earlier releases did not keep it."""
    older: int = 0
    """How many of the batches are there for requests only."""
    gone_bytes: int = 0
    looked_bytes: int = 0
    requests: list[KeptRequest] = []
    put_back: list[int] = []
    windows: dict[LinkId, KeptWindow] = {}
    turns: list[LinkId] = []
    links: list[LinkId] = []
    """Where each batch came from, and when; earlier releases did not keep it."""
    times: list[Time] = []
    gone_us: Time = LONG_AGO
    buffers: list[list[KeptBatch]] = []
    """What is in other buffers, in the order of the settings."""


class Recent(BrokerComponent):
    """The broker's part: it keeps recent events and answers with them."""

    name = "past"
    handles = (PastAsked,)
    version = 2
    Kept = KeptRecent
    older = {1: (KeptRecent, lambda kept: kept)}  # noqa: RUF012 - a class variable of its base.

    @classmethod
    def make(cls, settings: Settings) -> Self:
        made = cls(settings.history.events_max, settings.history.bytes_max)
        made._set(settings.history)
        return made

    def __init__(self, events_max: int, bytes_max: int = 64 << 20) -> None:
        self.memory = Passed(events_max, bytes_max)
        self.buffers: list[Buffer] = []
        """More buffers, for some events only."""
        self.search = Search.COMPLETE
        self._age_max_us: Time | None = None
        self._searching: dict[int, Request] = {}
        """The requests that wait for other brokers, by the numbers of the searches."""
        self.has_archive = False
        self._open: dict[LinkId, dict[RouteId, Request]] = {}
        """The requests of each client that are not answered, in the order of their answers."""
        self._open_count = 0
        self._questions: dict[int, Request] = {}
        """The requests that wait for the archive, by the numbers of their lookups."""
        self._put_back: dict[int, None] = {}
        """The lookups that are made again when there is room for what they find."""
        self._archived_bytes = 0
        self._number = 0
        self._windows = Windows()
        self._turns: dict[LinkId, None] = {}
        """The clients whose answers go on after others have had their turn."""
        self._work = 0
        """How many events answers have gone through since the present input came."""
        self._looked_bytes = 0
        """How many bytes had been dropped when requests were last looked through."""
        self._has_shown = False
        """Whether publishers know what buffers keep."""
        self.last_bytes = 0
        """About how many bytes the events take that have passed last."""

    def configure(self, settings: Settings, now: Time) -> None:
        self.memory.events_max = settings.history.events_max
        self.memory.bytes_max = settings.history.bytes_max
        self.memory.trim()
        self._set(settings.history)
        self._show_interest(now)

    def link_new(self, link: LinkId, now: Time) -> None:
        del link
        if not self._has_shown:
            self._show_interest(now)

    def _show_interest(self, now: Time) -> None:
        """Have publishers here not discard what buffers keep, though nobody wants it now."""
        self._has_shown = True
        router = self.broker.router
        wanted = {str(each.options.filter): each.options.filter for each in self.buffers}
        shown = {id_ for _, id_ in router.subscriptions.entered(BUFFERS)}
        if shown == wanted.keys():
            return
        for id_ in shown - wanted.keys():
            router.withdraw(BUFFERS, id_)
        for id_, filter_ in wanted.items():
            if id_ not in shown:
                router.enter(BUFFERS, id_, NOTHING, filter_)
        router.tell(now)

    def _set(self, options: HistoryOptions) -> None:
        """Have the buffers that the settings ask for; what the others hold is given up."""
        self.search, self._age_max_us = options.search, options.age_max_us
        before = {each.options.filter: each for each in self.buffers}
        self.buffers = [
            before[each.filter].configured(each) if each.filter in before else Buffer(each)
            for each in options.buffers
        ]

    def end(self, now: Time) -> bool:
        """Answer who waits for the archive with what the broker has itself, and all others."""
        for number in list(self._searching):
            self.searched(number, Found(), now)
        for number in list(self._questions):
            self.looked_up(number, (), now)
        return not self._open

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptRecent:
        every = [request for requests in self._open.values() for request in requests.values()]
        firsts = [request.marked.first for request in every if request.marked is not None]
        first = min([self.memory.first, *firsts], key=attrgetter("place"))
        batches = list(self.memory.batches(first))
        return KeptRecent(
            batches=[[writer.event(event) for event in batch.events] for batch in batches],
            has_archive=self.has_archive,
            questions=[],
            number=self._number,
            sizes=[batch.size for batch in batches],
            links=_unless_empty([batch.link for batch in batches]),
            times=_unless_empty([batch.time for batch in batches]),
            gone_us=self.memory.gone_us,
            buffers=[each.keep(writer) for each in self.buffers],
            older=sum(batch.place < self.memory.first.place for batch in batches),
            gone_bytes=self.memory.gone_bytes,
            looked_bytes=self._looked_bytes,
            requests=[_kept(request, first.place, writer) for request in every],
            put_back=list(self._put_back),
            windows=self._windows.keep(),
            turns=list(self._turns),
        )

    def restore(self, kept: KeptRecent, reader: Reader) -> None:
        whole = zip_longest(kept.batches, kept.sizes, kept.links, kept.times)
        for numbers, size, link, time in whole:
            events = tuple([reader.event(number) for number in numbers])
            bytes_ = sum(map(weight, events)) if size is None else size
            self.memory.add(events, bytes_, link or "", time or 0)
        for buffer, batches in zip(self.buffers, kept.buffers, strict=False):
            buffer.restore(batches, reader)
        by_place = {batch.place: batch for batch in (*self.memory.batches(), self.memory.end)}
        self.memory.restore(kept.older, kept.gone_bytes)
        self.memory.gone_us = kept.gone_us
        self.has_archive, self._number = kept.has_archive, kept.number
        for each in kept.requests:
            request = Request(
                reader.message(each.asked, PastAsked),
                each.link,
                None,
                None if each.answer is None else [reader.event(number) for number in each.answer],
                each.sent,
                each.gone_bytes,
                each.look_up,
                each.archived_bytes,
                each.missed,
                each.search,
                each.found,
            )
            if each.marks is not None:
                marks = int.from_bytes(each.marks, "big")
                request.marked = Marked(by_place[each.first], each.count, marks, each.gone_bytes)
            self._add(request)
        for old in kept.questions:
            found = [reader.event(number) for number in old.found]
            asked = reader.message(old.asked, PastAsked)
            self._add(Request(asked, old.link, None, found, look_up=old.look_up))
        self._put_back = dict.fromkeys(kept.put_back)
        self._windows.restore(kept.windows)
        self.broker.awaited |= dict.fromkeys(kept.windows)
        self._turns = dict.fromkeys(kept.turns)
        self._looked_bytes = kept.looked_bytes

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        return not (self._questions or self._searching) and not any(
            link in self.broker.up for link in self._open
        )

    # ---- Events that pass

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        passed = self.memory
        for buffer in self.buffers:
            buffer.add(events, link, now)
        self.last_bytes = self._size(events)
        is_full = passed.add(events, self.last_bytes, link, now)
        if self._age_max_us is not None:
            passed.expire(now - self._age_max_us)
        if not is_full:
            return
        passed.trim()
        if passed.gone_bytes - self._looked_bytes > passed.bytes_max // 16:
            self._looked_bytes = passed.gone_bytes
            for requests in self._open.values():
                for request in requests.values():
                    request.let_go(passed)

    def _size(self, events: Sequence[Event]) -> int:
        """About how many bytes events take.

        If it is known how many bytes they were on their way, it does not take a look at each.
        """
        size, self.broker.unweighed = self.broker.unweighed, 0
        return size + IN_MEMORY_BYTES * len(events) if size else sum(map(weight, events))

    # ---- Requests

    def on_past_asked(self, message: PastAsked, link: LinkId, now: Time) -> None:
        is_client = self.broker.peers[link] is Peer.CLIENT
        if not is_client or not message.route.filter.is_bound or self.is_ending:
            return
        id_, number = message.route.id, message.number
        self._drop(link, id_)
        is_too_much = (
            self._open_count >= OPEN_MAX
            or len(self._open.get(link, ())) >= OPEN_PER_CLIENT_MAX
            or _events_in([self._open.get(link, {})]) >= ANSWERS_PER_CLIENT_MAX
            or _events_in(self._open.values()) >= ANSWERS_MAX
        )
        searches = self._searches
        marked = None
        if searches is None and not is_too_much:
            marked = self.memory.marked(message, self._known(message))
        if not message.is_here:
            self.broker.message_arrived(SubscriptionChange(added=(message.route,)), link, now)
        if is_too_much:
            later = Past(subscription=id_, number=number, events=(), later=True)
            self.broker.send(link, later, now)
            return
        request = Request(message, link, marked)
        found = self._expected(message, link)
        if found is not None:
            self._take_expected(request, found, now)
        elif searches is not None:
            self._search(request, searches, now)
        elif marked is not None:
            self._note_found(request, Found(here=marked.marks.bit_count()), now)
        if request.search is None:
            self._look_up(request, now)
            self._tell_found(request, now)
        self._add(request)
        self._serve(link, now)

    def _look_up(self, request: Request, now: Time) -> None:
        """Have the archive searched, if it may have more."""
        if self._is_enough(request) or len(self._questions) >= QUESTIONS_MAX:
            return
        self._number += 1
        request.look_up = LookUp(
            question=self._number,
            filter=request.asked.route.filter,
            events_max=request.asked.events_max,
            since_us=request.asked.since_us or 0,
            until_us=now,
        )
        self.broker.act(request.look_up)

    def _expected(self, message: PastAsked, link: LinkId) -> list[Event] | None:
        """What was kept for a client that was expected; None if there is nothing to begin with."""
        part = self.broker.part("presubscribing") if message.is_here else None
        return None if part is None else cast("Presubscribing", part).answer(message, link)

    # ---- Other brokers

    @property
    def _searches(self) -> "Searches | None":
        if self.search is Search.NONE:
            return None
        return cast("Searches | None", self.broker.part(SEARCH))

    def _search(self, request: Request, searches: "Searches", now: Time) -> None:
        """Have other brokers searched."""
        asked = request.asked
        question = HistoryAsked(
            path=(),
            number=0,
            filter=asked.route.filter,
            events_max=asked.events_max,
            since_us=asked.since_us,
            search=self.search,
        )
        number = searches.seek_elsewhere(asked, question, request.link, now)
        if number is None:
            number = searches.begin_search(question, request.link, asked.route.id, now)
        found = searches.result(number)
        if found is None:
            request.search = number
            self._searching[number] = request
        else:
            self._take(request, found, now)

    def _take(self, request: Request, found: Found, now: Time) -> None:
        """Answer with what was found."""
        request.answer, request.gone_bytes = found.events, self.memory.gone_bytes
        request.archived_bytes = found.bytes
        self._note_found(request, found, now)

    def _take_expected(self, request: Request, found: list[Event], now: Time) -> None:
        """Answer with what was kept for a client that was expected."""
        request.marked, request.answer = None, found
        self._note_found(request, Found(), now)
        if request.found is not None:
            request.found = msgspec.structs.replace(request.found, virtual=len(found))

    def _note_found(self, request: Request, found: Found, now: Time) -> None:
        request.found = PastFound(
            at=self.broker.id,
            time=now,
            client=request.link,
            subscription=request.asked.route.id,
            here=found.here,
            neighbours=max(0, len(found.events) - found.here),
            away=found.away,
            search_us=None if found.asked_us is None else now - found.asked_us,
        )

    def _tell_found(self, request: Request, now: Time, archived: int = 0) -> None:
        """State what was found, unless the archive is searched as well."""
        if request.found is None or request.waits or self.broker.part(SEARCH) is None:
            return
        self.broker.state(msgspec.structs.replace(request.found, time=now, archived=archived))
        request.found = None

    def searched(self, number: int, found: Found, now: Time) -> None:
        """A search has ended."""
        request = self._searching.pop(number, None)
        if request is None:
            return
        request.search = None
        self._take(request, found, now)
        self._archived_bytes += request.archived_bytes
        self._look_up(request, now)
        self._tell_found(request, now)
        if request.look_up is not None:
            self._questions[request.look_up.question] = request
        self._serve(request.link, now)
        self._work = 0

    def batches(self) -> Iterable[Batch]:
        """The batches of all buffers."""
        return chain(self.memory.batches(), *(each.passed.batches() for each in self.buffers))

    @property
    def has_room(self) -> bool:
        """Whether answers may hold more events that other brokers have sent."""
        return self._archived_bytes < ARCHIVED_BYTES_MAX

    def chains(self, filter_: Filter) -> list[Passed]:
        """The buffers that have all events that match a filter, from their first one on."""
        work = Work(COMPARING_MAX)
        return [
            self.memory,
            *(each.passed for each in self.buffers if covers(each.options.filter, filter_, work)),
        ]

    @property
    def gone_us(self) -> Time:
        """When the last of the events had come that are not kept any more."""
        return self.memory.gone_us

    def foresees(self, message: Message, foresight: Foresight) -> Iterable[None]:
        if type(message) is not PastAsked or self._searches is not None:
            return
        if message.route.filter.is_bound:
            filter_, since_us = message.route.filter, message.since_us or 0
            untested, events = self.memory.untested(), self.memory.events_left()
            yield from foresight.test_past(filter_, since_us, untested, events)

    def _known(self, message: PastAsked) -> PastVerdicts | None:
        foresight = self.broker.foresight
        key = message.route.filter, message.since_us or 0
        return None if foresight is None else foresight.past.get(key)

    def _is_enough(self, request: Request) -> bool:
        """Whether the archive need not be searched: it may have events that did not pass here."""
        events_max, marked = request.asked.events_max, request.marked
        if not self.has_archive or events_max is None:
            return not self.has_archive
        if marked is None:
            return len(request.answer or ()) >= events_max
        return marked.marks.bit_count() >= events_max and len(marked.events()) >= events_max

    def _add(self, request: Request) -> None:
        self._open.setdefault(request.link, {})[request.asked.route.id] = request
        self._open_count += 1
        self._archived_bytes += request.archived_bytes
        if request.look_up is not None:
            self._questions[request.look_up.question] = request
        if request.search is not None:
            self._searching[request.search] = request

    def _drop(self, link: LinkId, id_: RouteId) -> None:
        """Forget a request that is answered, or that nobody waits for any more."""
        requests = self._open.get(link, {})
        request = requests.pop(id_, None)
        if request is None:
            return
        self._open_count -= 1
        self._archived_bytes -= request.archived_bytes
        if request.look_up is not None:
            self._questions.pop(request.look_up.question, None)
            self._put_back.pop(request.look_up.question, None)
        if request.search is not None:
            self._searching.pop(request.search, None)
            searches = self.broker.part(SEARCH)
            if searches is not None:
                cast("Searches", searches).drop(request.search)
        if not requests:
            del self._open[link]
            self._turns.pop(link, None)
        if self._put_back and self._archived_bytes < ARCHIVED_BYTES_MAX:
            question = next(iter(self._put_back))
            del self._put_back[question]
            self._look_up_again(self._questions[question])

    # ---- The archive

    def unanswered(self) -> list[LookUp]:
        """The lookups that are not answered; after a restart they have to be made again."""
        return [each.look_up for each in self._questions.values() if each.look_up is not None]

    def archive_changed(self, *, is_there: bool, now: Time) -> None:
        del now
        self.has_archive = is_there

    def looked_up(self, question: int, events: Sequence[Event], now: Time) -> None:
        waiting = self._questions.get(question)
        if waiting is None:
            return
        if events and self._archived_bytes >= ARCHIVED_BYTES_MAX:
            self._put_back[question] = None
            return
        del self._questions[question]
        self._put_back.pop(question, None)
        size = sum(map(weight, events))
        waiting.archived_bytes += size
        self._archived_bytes += size
        own = waiting.own()
        both = sorted((*events, *own), key=attrgetter("time_us"))
        waiting.begin(in_order(both), self.memory)
        self._tell_found(waiting, now, max(0, len(waiting.answer or ()) - len(own)))
        self._serve(waiting.link, now)
        self._work = 0

    def _look_up_again(self, request: Request) -> None:
        if request.look_up is not None:
            self.broker.act(request.look_up)

    # ---- Answers

    def frames_received(self, link: LinkId, now: Time) -> None:
        """Go on with answers to a client that has confirmed something."""
        if link in self._windows and self._windows.confirmed(
            link, self.broker.oldest_unconfirmed(link)
        ):
            self._serve(link, now)
        self._work = 0
        if link in self._windows:
            self.broker.awaited[link] = None

    def wake(self, now: Time) -> None:
        """Go on with answers that others had their turn before."""
        for link in list(self._turns):
            if self._work >= WORK_EVENTS_MAX:
                self.wake_by(now)
                break
            del self._turns[link]
            self._serve(link, now)
        self._work = 0

    def _serve(self, link: LinkId, now: Time) -> None:
        """Send a client what it may get now of its answers, one after the other."""
        if link not in self.broker.up or link in self._turns:
            return
        self.broker.awaited[link] = None
        ready = [each for each in self._open.get(link, {}).values() if not each.waits]
        for request in ready:
            if self._work >= WORK_EVENTS_MAX:
                self._serve_later(link, now)
                return
            if request.marked is not None:
                self._work += 1 + request.marked.count
                request.begin(request.marked.events(), self.memory)
            if not self._send_parts(request, now):
                if link not in self._windows:  # Too much is on its way to others.
                    self._serve_later(link, now + ROOM_US)
                return
            self._drop(link, request.asked.route.id)

    def _serve_later(self, link: LinkId, time: Time) -> None:
        self._turns[link] = None
        self.wake_by(time)

    def _send_parts(self, request: Request, now: Time) -> bool:
        """Send as many parts of an answer as there is room for; whether that was all of it."""
        link, asked, answer = request.link, request.asked, request.answer or []
        while room := self._windows.room(link, in_parts=asked.in_parts):
            events, size = part_of(answer, request.sent, room)
            request.sent += len(events)
            more = request.sent < len(answer)
            self._work += len(events)
            past = Past(
                subscription=asked.route.id,
                number=asked.number,
                events=events,
                more=more,
                missed=() if more else request.missed,
            )
            self.broker.send(link, past, now)
            last = (self.broker.oldest_unconfirmed(link) or 0) + self.broker.backlog(link) - 1
            self._windows.sent(link, last, size)
            if not more:
                return True
        return False

    # ---- Links and subscriptions

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        """Nobody waits for the past of a subscription that has ended."""
        del now
        if link in self._open:
            added = {route.id for route in change.added}
            for id_ in change.removed:
                if id_ not in added:
                    self._drop(link, id_)

    def link_up(self, link: LinkId, now: Time) -> None:
        self._serve(link, now)

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        self.link_gone(link, unconfirmed, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed, now
        self._windows.forget(link)
        for id_ in list(self._open.get(link, ())):
            self._drop(link, id_)

    def link_disowned(self, link: LinkId, now: Time) -> None:
        self.link_gone(link, (), now)


PAST = Protocol(name="past", broker=Recent, client=Recall)


def _events_in(open_: Iterable[Mapping[RouteId, Request]]) -> int:
    """How many events the answers to some requests have."""
    return sum(len(each.answer or ()) for requests in open_ for each in requests.values())


def _unless_empty(known: list[T]) -> list[T]:
    """Nothing, if nothing of it is known."""
    return known if any(known) else []


def _kept(request: Request, first: int, writer: Writer) -> KeptRequest:
    """What a snapshot holds of a request; `first` is the place of the first event in it."""
    marked, answer = request.marked, request.answer
    return KeptRequest(
        asked=writer.message(request.asked),
        link=request.link,
        first=0 if marked is None else marked.first.place - first,
        count=0 if marked is None else marked.count,
        marks=None if marked is None else marked.marks.to_bytes(marked.count // 8 + 1, "big"),
        answer=None if answer is None else [writer.event(event) for event in answer],
        sent=request.sent,
        gone_bytes=request.gone_bytes if marked is None else marked.gone_bytes,
        look_up=request.look_up,
        archived_bytes=request.archived_bytes,
        missed=request.missed,
        search=request.search,
        found=request.found,
    )
