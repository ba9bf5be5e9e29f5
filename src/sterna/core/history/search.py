"""The search for the past: Cilia et al., sections 5.3 and 5.4.

A client subscribes and asks for the past. Its broker subscribes, too, and behind that it sends a
question over each link from which matching events may come: `HistoryAsked`, the paper's
*fetchHistory*. Each broker answers with what it has (`HistoryFound`, *replay*), and asks on; how
many it has asked it says before its own answer (`HistoryExpected`, *expect*). The broker that
searches counts the answers, waits no longer than the settings say, and delivers what it has.

**Why nothing is missing between the past and what follows.** A question follows its subscription on
the same way. So whatever a broker routes after it has answered arrives as usual, and whatever it
had routed before is in its answer, as far as it still has it. A broker answers only with events of
which it knows that it has all that match: those of its own publishers, and those that came since an
earlier search has shown that all brokers before it send everything that matches (`Coverage`).

**Errata.** The timeout of Fig. 4 leaves the consumer on hold; here a client goes on when it has
waited long enough, whatever its broker does. `replay` of Fig. 5 sends nothing if there is nothing;
then nobody would know when to end, so here every question is answered. `propagate` of Fig. 5 goes
to local clients; it means neighbouring brokers. In 5.4 the order of *expect* and *replay* is left
open; *expect* has to come first, or the count reaches zero while others still search.

**What the lists cost.** The paper names events by border broker and number; ours carry publisher
and number, so the list of what is known already has an entry for each publisher and not for each
border broker.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.handover.courier import Courier
from sterna.core.history.coverage import Coverage, KeptCovered
from sterna.core.history.messages import (
    HistoryAsked,
    HistoryExpected,
    HistoryFound,
    HistoryMessage,
    Place,
    Run,
)
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.passed import LONG_AGO
from sterna.core.history.published import KeptOwn, Own, Published
from sterna.core.history.runs import Runs, latest, without
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message, Route, SubscriptionChange
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.core.settings import Settings
from sterna.model.event import Event

if TYPE_CHECKING:
    from sterna.core.history.recent import Recent

CROSSED_MAX = 10_000
"""Of how many clients a broker remembers when they have moved past it."""

PASSING_MAX = 10_000
"""How many searches of other brokers a broker follows, to find out from when on it has all."""


@dataclass(slots=True)
class Searching:
    """A search of this broker, for one of its clients or to prepare for others."""

    asked: HistoryAsked
    client: LinkId
    route: RouteId
    ends: Time
    runs: Runs = field(default_factory=Runs)
    open: int = 0
    """How many answers are missing. (The counter r.)"""
    links: tuple[LinkId, ...] = ()
    """The neighbours that were asked."""


@dataclass(slots=True)
class Passing:
    """A search of another broker, of which a part goes through here."""

    asked: HistoryAsked
    link: LinkId
    """Where it came from."""
    links: tuple[LinkId, ...]
    """Where it went on."""
    open: int


class KeptSearching(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a search of this broker."""

    asked: int
    client: LinkId
    route: RouteId
    ends: Time
    events: list[int]
    runs: list[Run]
    open: int
    links: tuple[LinkId, ...]


class KeptPassing(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a search of another broker."""

    asked: int
    link: LinkId
    links: tuple[LinkId, ...]
    open: int


class KeptSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of searches, and of what they found out."""

    number: int
    searching: dict[int, KeptSearching]
    passing: list[KeptPassing]
    covered: list[KeptCovered]
    published: list[KeptOwn]
    crossed: dict[NodeId, Time]
    crossed_before: Time
    unprepared: list[tuple[LinkId, Route]]
    mute: list[LinkId]
    held: dict[LinkId, list[int]]


class Searches(BrokerComponent):
    """Searches for the past at other brokers, and answers their searches."""

    name = "search"
    handles = (HistoryAsked, HistoryExpected, HistoryFound)
    Kept = KeptSearch

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.history)

    def __init__(self, options: HistoryOptions | None = None) -> None:
        self.options = options or HistoryOptions()
        self.coverage = Coverage()
        self.published = Published(self.options.publisher_events, self.options.publishers_max)
        self._searching: dict[int, Searching] = {}
        self._passing: dict[tuple[NodeId, int], Passing] = {}
        self._number = 0
        self._courier = Courier()
        """Has questions wait for a link that is down: its subscriptions are sent before."""
        self._mute: dict[LinkId, None] = {}
        """The links whose other end does not take part in searches."""
        self._unprepared: list[tuple[LinkId, Route]] = []
        """Subscriptions of clients for which nobody was asked yet."""
        self._crossed: dict[NodeId, Time] = {}
        """When clients have moved past this broker: from one side of it to another."""
        self._crossed_before: Time = LONG_AGO
        """When those did that are forgotten."""

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self.options = settings.history
        self.published.configure(self.options.publisher_events, self.options.publishers_max)

    @property
    def _recent(self) -> "Recent":
        return cast("Recent", self.broker.part("past"))

    # ---- What is there

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self.published.add(link, events, now)
            if self.options.age_max_us is not None:
                self.published.expire(now - self.options.age_max_us)

    def _own(self, asked: HistoryAsked, link: LinkId | None) -> Runs:
        """What this broker has of which it knows that it has all, but for what is known already."""
        matches = asked.filter.matches
        runs = Runs()
        for publisher, own in self.published.items():
            events = [event for event in own.events if matches(event.attributes)]
            if events or own.is_cut:  # What was before may have matched.
                runs.add(events, [own.run(self._place(publisher, own))])
        began = self._began(asked, link)
        if began is not None:
            crossed = self._crossed
            found = [
                event
                for batch in self._recent.batches()
                if batch.time > began
                for event in batch.events
                if matches(event.attributes)
                and batch.time > crossed.get(event.publisher, self._crossed_before)
            ]
            firsts: dict[NodeId, int] = {}
            for event in found:
                firsts.setdefault(event.publisher, event.seq)
            lasts = {event.publisher: event.seq for event in found}
            runs.add(found, (Run(p, first, lasts[p], Place.WAY) for p, first in firsts.items()))
        return runs

    def _began(self, asked: HistoryAsked, link: LinkId | None) -> Time | None:
        """Since when this broker has all that matches, of what others send to it."""
        return self.coverage.since(asked.filter, self._sources(asked, link))

    def _place(self, publisher: NodeId, own: Own) -> Place:
        """Whether a publisher is here, or was."""
        if not own.is_last or any(
            is_elsewhere(publisher) for is_elsewhere in self.broker.hooks.is_elsewhere
        ):
            return Place.BEFORE
        return Place.HERE if publisher in self.broker.peers else Place.LEFT

    def _answer_to(self, asked: HistoryAsked, own: Runs) -> tuple[tuple[Event, ...], list[Run]]:
        """The events to send, and from which number on they are all that match."""
        known = {publisher: (first, last) for publisher, first, last in asked.known}
        left = {
            publisher: without(run, known.get(publisher)) for publisher, run in own.whole().items()
        }
        chosen = latest(left, asked.events_max, asked.since_us)
        if asked.search.sends_more_only:
            had, mine = dict(asked.had), Counter(event.publisher for event in chosen)
            chosen = [e for e in chosen if mine[e.publisher] > had.get(e.publisher, 0)]
        return tuple(chosen), own.cut(chosen)

    def _is_enough(self, asked: HistoryAsked, own: Runs, link: LinkId | None) -> bool:
        """Whether no other broker can have an event that belongs to the answer.

        What this broker has lost, or never had, came before all that it has; and if clocks agree,
        it was published before that.
        """
        began = self._began(asked, link)
        if began is None:
            return not self._sources(asked, link)
        began = max(began, self._recent.gone_us)
        if asked.since_us is not None and asked.since_us > began:
            return True
        if asked.events_max is None:
            return False
        found = latest(own.without_gap(), asked.events_max, asked.since_us)
        return len(found) >= asked.events_max and (not found or found[0].time_us > began)

    def _sources(self, asked: HistoryAsked, link: LinkId | None) -> list[LinkId]:
        """The neighbouring brokers from which matching events may come."""
        peers = self.broker.peers
        return [
            source
            for source in self.broker.router.sources(asked.filter)
            if source != link and peers[source] is Peer.BROKER and source not in self._mute
        ]

    def _to_ask(self, asked: HistoryAsked, own: Runs, link: LinkId | None) -> list[LinkId]:
        if asked.search.stops_at_first and self._began(asked, link) is not None:
            return []
        if asked.search.stops_when_enough and self._is_enough(asked, own, link):
            return []
        return self._sources(asked, link)

    def _ask_on(self, asked: HistoryAsked, own: Runs, links: Iterable[LinkId], now: Time) -> None:
        had = dict(asked.had)
        if asked.search.sends_more_only:
            found = latest(own.without_gap(), asked.events_max, asked.since_us)
            for publisher, count in Counter(event.publisher for event in found).items():
                had[publisher] = max(count, had.get(publisher, 0))
        known = {publisher: (first, last) for publisher, first, last in asked.known}
        if asked.search.names_known:
            known |= own.known()
        onward = msgspec.structs.replace(
            asked,
            path=(*asked.path, self.broker.id),
            known=tuple((publisher, *between) for publisher, between in known.items()),
            had=tuple(had.items()),
        )
        for link in links:
            self._courier.send(self.broker, link, onward, now)

    # ---- At the broker that searches

    def begin_search(self, asked: HistoryAsked, client: LinkId, route: RouteId, now: Time) -> int:
        """Search for the past of a subscription that this broker has just made for a client.

        The number of the search; if it has no `result` yet, `Recent` gets it when it has ended.
        """
        own = self._own(asked, None)
        links = self._to_ask(asked, own, None)
        self._number += 1
        asked = msgspec.structs.replace(asked, number=self._number)
        searching = Searching(asked, client, route, now + self.options.search_us, own)
        searching.open, searching.links = len(links), tuple(links)
        self._searching[self._number] = searching
        self._ask_on(asked, own, links, now)
        if links:
            self.wake_by(searching.ends)
        return self._number

    def result(self, number: int) -> list[Event] | None:
        """What a search has found, once it has ended; None if it goes on."""
        searching = self._searching[number]
        if searching.open:
            return None
        return self._end(number, is_all=True)

    def drop(self, number: int) -> None:
        """Nobody waits for a search any more."""
        self._searching.pop(number, None)

    def _end(self, number: int, *, is_all: bool) -> list[Event]:
        searching = self._searching.pop(number)
        asked = searching.asked
        return latest(searching.runs.without_gap(is_all=is_all), asked.events_max, asked.since_us)

    def wake(self, now: Time) -> None:
        """Go on without the answers that have not come."""
        self._prepare(now)
        for number, searching in list(self._searching.items()):
            if searching.ends <= now:
                self._recent.searched(number, self._end(number, is_all=False), now)
            else:
                self.wake_by(searching.ends)

    def _answered(self, number: int, searching: Searching, now: Time) -> None:
        if not searching.open:
            asked, route = searching.asked, searching.route
            self.coverage.note(asked.filter, searching.client, route, searching.links, now)
            self._recent.searched(number, self._end(number, is_all=True), now)

    # ---- At the brokers that are asked

    def on_history_asked(self, message: HistoryAsked, link: LinkId, now: Time) -> None:
        """Answer a search, and ask on."""
        own = self._own(message, link)
        links = self._to_ask(message, own, link)
        back = message.path[:-1]
        to = message.path[-1]
        if links:
            self._follow(message, link, links)
            expected = HistoryExpected(path=back, number=message.number, count=len(links))
            self.broker.send(to, expected, now)
            self._ask_on(message, own, links, now)
        else:
            self._all_answered(message, link, (), now)
        events, runs = self._answer_to(message, own)
        found = HistoryFound(path=back, number=message.number, events=events, runs=tuple(runs))
        self.broker.send(to, found, now)

    def _follow(self, asked: HistoryAsked, link: LinkId, links: Sequence[LinkId]) -> None:
        self._passing[asked.path[0], asked.number] = Passing(asked, link, tuple(links), len(links))
        if len(self._passing) > PASSING_MAX:
            del self._passing[next(iter(self._passing))]

    def _all_answered(
        self, asked: HistoryAsked, link: LinkId, links: Sequence[LinkId], now: Time
    ) -> None:
        """All that lies before this broker knows what the search is about."""
        routes = self.broker.router.subscriptions.routes(link)
        for id_, route in routes.items():
            if route.filter == asked.filter or route.filter.covers(asked.filter):
                self.coverage.note(asked.filter, link, id_, links, now)
                return

    # ---- On the way back

    def on_history_expected(self, message: HistoryExpected, _link: LinkId, now: Time) -> None:
        """Others were asked as well."""
        self._count(message, message.count, now)

    def on_history_found(self, message: HistoryFound, _link: LinkId, now: Time) -> None:
        """A broker has answered."""
        searching = self._searching.get(message.number) if not message.path else None
        if searching is not None:
            if searching.asked.search.sends_more_only:
                searching.runs.take_longest(message.events, message.runs)
            else:
                searching.runs.add(message.events, message.runs)
        self._count(message, -1, now)

    def _count(self, message: HistoryMessage, more: int, now: Time) -> None:
        if not message.path:
            searching = self._searching.get(message.number)
            if searching is not None:
                searching.open += more
                self._answered(message.number, searching, now)
            return
        key = message.path[0], message.number
        passing = self._passing.get(key)
        if passing is not None:
            passing.open += more
            if not passing.open:
                del self._passing[key]
                self._all_answered(passing.asked, passing.link, passing.links, now)
        onward = msgspec.structs.replace(message, path=message.path[:-1])
        self.broker.send(message.path[-1], onward, now)

    # ---- Links, clients and subscriptions

    def client_moved(self, client: NodeId, now: Time) -> None:
        """What it has published on another side may not have passed here."""
        self._crossed.pop(client, None)
        self._crossed[client] = now
        if len(self._crossed) > CROSSED_MAX:
            first = next(iter(self._crossed))
            self._crossed_before = self._crossed.pop(first)

    def link_made(self, given: LinkUp, now: Time) -> None:
        del now
        if given.features is not None and self.name not in given.features:
            self._mute[given.link] = None
        else:
            self._mute.pop(given.link, None)

    def link_up(self, link: LinkId, now: Time) -> None:
        self._courier.link_up(self.broker, link, now)

    def link_new(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self.client_moved(link, now)
            self.published.came(link)

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        self.coverage.changed(link, change.added, change.removed)
        if self.options.prepares and self.broker.peers.get(link) is Peer.CLIENT:
            self._unprepared += [(link, route) for route in change.added if route.filter.is_bound]
            self.wake_by(now)  # When neighbours have been told.

    def _prepare(self, now: Time) -> None:
        """Find out from when on brokers have everything that a client has subscribed to."""
        unprepared, self._unprepared = self._unprepared, []
        searched = {(each.client, each.route) for each in self._searching.values()}
        for link, route in unprepared:
            if (link, route.id) in searched:
                continue
            asked = HistoryAsked(
                path=(),
                number=0,
                filter=route.filter,
                events_max=0,
                search=Search.NEAREST,
            )
            if self._began(asked, None) is None and self._sources(asked, None):
                self.begin_search(asked, link, route.id, now)

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed, now
        self.coverage.link_gone(link)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed, now
        self._mute.pop(link, None)
        self._courier.take(link)
        self.coverage.link_gone(link)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        return not self._searching

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptSearch:
        return KeptSearch(
            number=self._number,
            searching={
                number: KeptSearching(
                    asked=writer.message(each.asked),
                    client=each.client,
                    route=each.route,
                    ends=each.ends,
                    events=[writer.event(event) for event in each.runs.events()],
                    runs=each.runs.all(),
                    open=each.open,
                    links=each.links,
                )
                for number, each in self._searching.items()
            },
            passing=[
                KeptPassing(
                    asked=writer.message(each.asked),
                    link=each.link,
                    links=each.links,
                    open=each.open,
                )
                for each in self._passing.values()
            ],
            covered=self.coverage.keep(),
            published=self.published.keep(writer),
            crossed=dict(self._crossed),
            crossed_before=self._crossed_before,
            unprepared=list(self._unprepared),
            mute=list(self._mute),
            held=self._courier.keep(writer),
        )

    def restore(self, kept: KeptSearch, reader: Reader) -> None:
        self._number = kept.number
        for number, each in kept.searching.items():
            runs = Runs()
            runs.add([reader.event(event) for event in each.events], each.runs)
            asked = reader.message(each.asked, HistoryAsked)
            self._searching[number] = Searching(
                asked, each.client, each.route, each.ends, runs, each.open, each.links
            )
        for one in kept.passing:
            asked = reader.message(one.asked, HistoryAsked)
            self._passing[asked.path[0], asked.number] = Passing(
                asked, one.link, one.links, one.open
            )
        self.coverage.restore(kept.covered)
        self.published.restore(kept.published, reader)
        self._crossed, self._crossed_before = dict(kept.crossed), kept.crossed_before
        self._unprepared = list(kept.unprepared)
        self._mute = dict.fromkeys(kept.mute)
        self._courier.restore(kept.held, reader)


SEARCH = Protocol(name="search", broker=Searches)
