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

import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Self, cast

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.handover.courier import Courier
from sterna.core.history.coverage import COMPARING_MAX, Coverage, find_wider
from sterna.core.history.facts import PastFound
from sterna.core.history.messages import (
    SEARCH,
    HistoryAsked,
    HistoryExpected,
    HistoryFound,
    HistoryMessage,
    PastAsked,
    Place,
    Run,
)
from sterna.core.history.options import HistoryOptions, Search
from sterna.core.history.parts import part_of
from sterna.core.history.passed import LONG_AGO
from sterna.core.history.published import Own, Published
from sterna.core.history.runs import Runs, latest
from sterna.core.history.scan import Chain, Scan
from sterna.core.history.searching import (
    HELD_BYTES,
    OPEN_MAX,
    PAST,
    Found,
    KeptPassing,
    KeptSearch,
    KeptSearching,
    Passing,
    Searching,
    believable,
    joined,
)
from sterna.core.history.stock import Shelf, Stock
from sterna.core.history.windows import PART_BYTES_MAX
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message, Route, SubscriptionChange
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.core.routing.foresight import Foresight
from sterna.core.settings import Settings
from sterna.core.sizes import weight
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.filters.algebra import Work
from sterna.model.filters.long_texts import LongTexts

if TYPE_CHECKING:
    from sterna.core.history.recent import Recent

CROSSED_MAX = 10_000
"""Of how many clients a broker remembers when they have moved past it."""

PASSING_MAX = 10_000
"""How many searches of other brokers a broker follows, to find out from when on it has all."""

PASSING_US = 60_000_000
"""How long it follows them; answers that come later are for nobody."""

SEARCHES_MAX = 1_000
"""With so many searches in progress, others get only what the broker has itself."""

SEARCHES_PER_CLIENT_MAX = 100
"""So does a client with so many searches in progress."""

FOUND_BYTES_MAX = 64 << 20
"""When all searches together hold so many bytes, one that gets more ends with what it has."""

ANSWER_EVENTS_MAX = 10_000
"""How many events a broker answers a question with, the latest ones."""

HERE_EVENTS_MAX = 100_000
"""How many events of its own a broker has in the answer to a client."""

ANSWER_BYTES_MAX = 4 << 20
"""About how many bytes these take at most, unless a single event is longer."""

PART_RUNS_MAX = 1_000
"""How many runs one message has."""

KNOWN_MAX = 1_000
"""Of how many publishers a question says what is known; of others, it may be sent once more."""

PATH_MAX = 1_000
"""A question that has come through more brokers is not believed."""

WAITING_BYTES_MAX = 256 << 10
"""When so much waits for a link that is down, more questions are not sent there at all."""

PREPARED_MAX = 100
"""For how many subscriptions at a time a broker finds out from when on others have everything."""

PREPARING_US = 100_000
"""After so long it goes on with others."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a broker has of what a question asks for."""

    stock: Stock
    """The events of which it knows that it has all."""
    sources: list[LinkId]
    """The neighbouring brokers from which more may come."""
    began: Time | None
    """Since when it has all that matches, of what these send; None if that is not known."""


class Asker(typing.Protocol):
    """A component that has others searched."""

    def searched(self, number: int, found: Found, now: Time) -> None:
        """A search has ended."""
        ...


class Searches(BrokerComponent):
    """Searches for the past at other brokers, and answers their searches.

    What one question costs is bounded: how many events an answer has, how many searches there are
    at a time, and how much they hold. Beyond that, answers have less of the past, but no gaps.
    """

    name = SEARCH
    handles = (HistoryAsked, HistoryExpected, HistoryFound)
    facts = (PastFound,)
    Kept = KeptSearch

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.history)

    def __init__(self, options: HistoryOptions | None = None) -> None:
        self.options = options or HistoryOptions()
        self.coverage = Coverage()
        self.published = Published(
            self.options.publisher_events, self.options.publishers_max, self.options.bytes_max
        )
        self._searching: dict[int, Searching] = {}
        self._clients: Counter[LinkId] = Counter()
        """How many searches there are for each client."""
        self._held_bytes = 0
        """About how many bytes all searches hold."""
        self._passing: dict[tuple[LinkId, NodeId, int], Passing] = {}
        """Searches of others: by where they came from, who searches, and their numbers there."""
        self._number = 0
        self._courier = Courier()
        """Has questions wait for a link that is down: its subscriptions are sent before."""
        self._mute: dict[LinkId, None] = {}
        """The links to brokers that do not take part in searches."""
        self._unprepared: dict[tuple[LinkId, RouteId], Route] = {}
        """Subscriptions of clients for which nobody was asked yet."""
        self._crossed: dict[NodeId, Time] = {}
        """When clients have moved past this broker: from one side of it to another."""
        self._crossed_before: Time = LONG_AGO
        """When those did that are forgotten."""

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self.options = options = settings.history
        self.published.configure(
            options.publisher_events, options.publishers_max, options.bytes_max
        )

    def begin(self, now: Time) -> None:
        """Have what the broker has remembered so far of its own publishers.

        Those are its clients, and all others if there are no other brokers. An earlier release did
        not notice whether they had been elsewhere meanwhile: here it is assumed that they were not.
        """
        peers = self.broker.peers
        is_alone = Peer.BROKER not in peers.values()
        for batch in self._recent.memory.batches():
            for event in batch.events:
                if is_alone or peers.get(event.publisher) is Peer.CLIENT:
                    self.published.add(event.publisher, (event,), now)

    @property
    def _recent(self) -> "Recent":
        return cast("Recent", self.broker.part("past"))

    # ---- What is there

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self.published.add(link, events, now, self._recent.last_bytes)
            if self.options.age_max_us is not None:
                self.published.expire(now - self.options.age_max_us)

    def foresees(self, message: Message, foresight: Foresight) -> Iterable[None]:
        filter_ = self._looked_for(message)
        if filter_ is not None and filter_ not in foresight.scans:
            scan = foresight.scans[filter_] = self._scan(filter_)
            yield from scan.test(foresight.texts)

    def _looked_for(self, message: Message) -> Filter | None:
        """The filter that a message has this broker look for in all that it has."""
        if type(message) is HistoryAsked and message.events_max != 0:
            found = message.filter
        elif type(message) is PastAsked and self._recent.search is not Search.NONE:
            found = message.route.filter
        else:
            return None
        return found if found.is_bound else None

    def _scan(self, filter_: Filter) -> Scan:
        return Scan(filter_, self._recent.chains(filter_), self.published)

    def _scanned(self, filter_: Filter) -> Scan:
        """What matches a filter; most of it may be known already."""
        foresight = self.broker.foresight
        scan = None if foresight is None else foresight.scans.get(filter_)
        scan = scan or self._scan(filter_)
        scan.finish(LongTexts())
        return scan

    def _holding(self, asked: HistoryAsked, link: LinkId | None) -> Holding:
        sources = self._sources(asked, link)
        began = self.coverage.since(asked.filter, sources)
        stock = Stock()
        if asked.events_max != 0:
            scan = self._scanned(asked.filter)
            chains = scan.passed()
            self._add_published(stock, scan, chains)
            if began is not None:
                for chain in chains:
                    stock.add(self._passed(chain, began, link))
        return Holding(stock, sources, began)

    def _add_published(self, stock: Stock, scan: Scan, chains: Iterable[Chain]) -> None:
        """Add what this broker has of its own publishers.

        Of some, it remembers more than it keeps of each.
        """
        older: dict[NodeId, dict[int, Event]] = {}
        for chain in chains:
            for batch, event in chain:
                if batch.link == event.publisher:
                    older.setdefault(event.publisher, {})[event.seq] = event
        shelves: dict[bool, Shelf] = {False: {}, True: {}}
        for publisher, own, events in scan.published():
            remembered = older.get(publisher, {})
            before = sorted(seq for seq in remembered if own.start <= seq < own.first)
            if events or before or own.is_cut:  # What was before may have matched.
                place = self._place(publisher, own)
                run = own.run(before[0] if before else own.first, place)
                found = [*(remembered[seq] for seq in before), *events] if before else events
                shelves[place is Place.BEFORE][publisher] = found, run
        for shelf in shelves.values():
            stock.add(shelf)

    def _passed(self, chain: Chain, began: Time, link: LinkId | None) -> Shelf:
        """What has passed since all brokers before this one send everything that matches."""
        crossed, silent = self._crossed, {link, *self._mute}
        found: dict[NodeId, list[Event]] = {}
        for batch, event in chain:
            if (
                batch.time > began
                and batch.link not in silent
                and batch.time > crossed.get(event.publisher, self._crossed_before)
            ):
                found.setdefault(event.publisher, []).append(event)
        return {
            publisher: (events, Run(publisher, events[0].seq, events[-1].seq, Place.WAY))
            for publisher, events in found.items()
        }

    def _place(self, publisher: NodeId, own: Own) -> Place:
        """Whether a publisher is here, or was."""
        if not own.is_last or any(
            is_elsewhere(publisher) for is_elsewhere in self.broker.hooks.is_elsewhere
        ):
            return Place.BEFORE
        return Place.HERE if publisher in self.broker.peers else Place.LEFT

    def _answer_to(self, asked: HistoryAsked, stock: Stock) -> tuple[list[Event], list[Run]]:
        """The events to send, and from which number on they are all that match."""
        events_max = min(ANSWER_EVENTS_MAX, _or(asked.events_max, ANSWER_EVENTS_MAX))
        known = _known(asked)
        own = stock.runs(events_max, asked.since_us, known)
        chosen = latest(own.whole_with(known), events_max, asked.since_us)
        if asked.search.sends_more_only:
            had, mine = _had(asked), Counter(event.publisher for event in chosen)
            chosen = [e for e in chosen if mine[e.publisher] > had.get(e.publisher, 0)]
        chosen = _latest_of(chosen, ANSWER_BYTES_MAX)
        return chosen, own.cut(chosen)

    def _is_enough(self, asked: HistoryAsked, holding: Holding) -> bool:
        """Whether no other broker can have an event that belongs to the answer.

        What this broker has lost, or never had, came before all that it has; and if clocks agree,
        it was published before that.
        """
        if holding.began is None:
            return not holding.sources
        began = max(holding.began, self._recent.gone_us)
        if asked.since_us is not None and asked.since_us > began:
            return True
        if asked.events_max is None or asked.events_max > ANSWER_EVENTS_MAX:
            return False
        own = holding.stock.runs(asked.events_max, asked.since_us, {})
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

    def _to_ask(self, asked: HistoryAsked, holding: Holding) -> list[LinkId]:
        if asked.search.stops_at_first and holding.began is not None:
            return []
        if asked.search.stops_when_enough and self._is_enough(asked, holding):
            return []
        return holding.sources

    def _ask_on(
        self, asked: HistoryAsked, sent: Runs, had: Counter[NodeId], links: Iterable[LinkId],
        now: Time,
    ) -> None:  # fmt: skip
        """Ask other brokers for what is not known, after what this one has `sent`."""
        more_had = _had(asked)
        if asked.search.sends_more_only:
            for publisher, count in had.items():
                more_had[publisher] = max(count, more_had.get(publisher, 0))
        known = _known(asked)
        if asked.search.names_known:
            for publisher, between in sent.known().items():
                known[publisher] = joined(known.get(publisher), between)
        onward = msgspec.structs.replace(
            asked,
            path=(*asked.path, self.broker.id),
            known=tuple((p, *between) for p, between in islice(known.items(), KNOWN_MAX)),
            had=tuple(islice(more_had.items(), KNOWN_MAX)),
        )
        for link in links:
            if self._courier.held(link).bytes < WAITING_BYTES_MAX:
                self._courier.send(self.broker, link, onward, now)

    # ---- At the broker that searches

    def begin_search(
        self, asked: HistoryAsked, client: LinkId, route: RouteId, now: Time, asker: str = PAST
    ) -> int:
        """Search for the past of a subscription that this broker has just made for a client.

        The number of the search; if it has no `result` yet, who has asked for it gets it with
        `searched` when it has ended.
        """
        holding = self._holding(asked, None)
        links = self._to_ask(asked, holding)
        self._number += 1
        asked = msgspec.structs.replace(asked, number=self._number)
        events_max = min(HERE_EVENTS_MAX, _or(asked.events_max, HERE_EVENTS_MAX))
        runs = holding.stock.runs(events_max, asked.since_us, {})
        own = tuple(runs.events())
        searching = Searching(asked, client, route, now, now + self.options.search_us, own, runs)
        searching.bytes = HELD_BYTES * len(own)
        if links and not self._has_room(client):
            links, searching.is_all = [], False
        searching.open, searching.links, searching.asker = len(links), tuple(links), asker
        if links and route in self.broker.router.subscriptions.routes(client):
            searching.covered = self.coverage.begin(asked.filter, client, route)
        self._add(self._number, searching)
        if links:
            had = Counter(event.publisher for event in own)
            self._ask_on(asked, searching.runs, had, links, now)
            self.wake_by(searching.ends)
        return self._number

    def seek_elsewhere(
        self, past: PastAsked, asked: HistoryAsked, client: LinkId, now: Time
    ) -> int | None:
        """Have another broker search, if that has announced the subscription; None if not.

        Only behind its announcement does a search know what follows as usual.
        """
        number = self._number + 1
        if not self.broker.goes_elsewhere(
            msgspec.structs.replace(past, number=number), client, now
        ):
            return None
        self._number = number
        asked = msgspec.structs.replace(asked, number=number)
        searching = Searching(asked, client, past.route.id, now, now + self.options.search_us)
        searching.open = 1
        self._add(number, searching)
        self.wake_by(searching.ends)
        return number

    def brought(
        self, number: int, client: LinkId, events: Sequence[Event], now: Time, *, more: bool
    ) -> None:
        """Another broker has searched."""
        searching = self._searching.get(number)
        if searching is None or searching.client != client or searching.links:
            return
        found, _ = searching.parts.setdefault("", ([], []))
        found += events
        if not more:
            self.drop(number)
            size = sum(map(weight, found))
            self._recent.searched(number, Found(found, 0, 1, searching.began, size), now)

    def _has_room(self, client: LinkId) -> bool:
        """Whether there may be another search that others take part in."""
        return (
            len(self._searching) < SEARCHES_MAX
            and self._clients[client] < SEARCHES_PER_CLIENT_MAX
            and self._held_bytes < FOUND_BYTES_MAX
            and self._recent.has_room
        )

    def _add(self, number: int, searching: Searching) -> None:
        self._searching[number] = searching
        self._clients[searching.client] += 1
        self._held_bytes += searching.bytes

    def result(self, number: int) -> Found | None:
        """What a search has found, once it has ended; None if it goes on."""
        if self._searching[number].open:
            return None
        return self._end(number, is_all=True)

    def drop(self, number: int) -> None:
        """Nobody waits for a search any more."""
        searching = self._searching.pop(number, None)
        if searching is not None:
            self._held_bytes -= searching.bytes
            self._clients[searching.client] -= 1
            if not self._clients[searching.client]:
                del self._clients[searching.client]

    def _end(self, number: int, *, is_all: bool) -> Found:
        searching = self._searching[number]
        self.drop(number)
        return searching.found(is_all=is_all)

    def wake(self, now: Time) -> None:
        """Go on without the answers that have not come."""
        self._prepare(now)
        for number, searching in list(self._searching.items()):
            if searching.ends <= now:
                self._end_search(number, now, is_all=False)
            else:
                self.wake_by(searching.ends)

    def _answered(self, number: int, searching: Searching, now: Time) -> None:
        if not searching.open:
            if searching.covered is not None:
                self.coverage.complete(searching.covered, searching.links, now)
            self._end_search(number, now, is_all=True)

    def _end_search(self, number: int, now: Time, *, is_all: bool) -> None:
        """Tell who has asked for a search what it has found."""
        asker = self.broker.part(self._searching[number].asker)
        found = self._end(number, is_all=is_all)
        if asker is not None:
            cast("Asker", asker).searched(number, found, now)

    # ---- At the brokers that are asked

    def on_history_asked(self, message: HistoryAsked, link: LinkId, now: Time) -> None:
        """Answer a search, and ask on."""
        if not self._is_credible(message, link):
            return
        if not message.filter.is_bound:  # It means nothing here, so there is nothing to have.
            self._answer(message, [], [], now)
            return
        holding = self._holding(message, link)
        links = self._to_ask(message, holding)
        events, runs = self._answer_to(message, holding.stock)
        if links:
            self._follow(message, link, links, now)
            expected = HistoryExpected(
                path=message.path[:-1], number=message.number, count=len(links)
            )
            self.broker.send(link, expected, now)
            sent, had = Runs(), Counter(event.publisher for event in events)
            sent.add(events, runs)
            self._ask_on(message, sent, had, links, now)
        self._answer(message, events, runs, now)

    def _is_credible(self, message: HistoryAsked, link: LinkId) -> bool:
        """Whether a question has come as questions do: from a neighbour, and in no circle."""
        path = message.path
        return (
            self.broker.peers.get(link) is Peer.BROKER
            and 0 < len(path) <= PATH_MAX
            and path[-1] == link
            and self.broker.id not in path
        )

    def _answer(
        self, asked: HistoryAsked, events: Sequence[Event], runs: Sequence[Run], now: Time
    ) -> None:
        """Send what there is, in parts; the runs come last."""
        *parts, last = list(_parts(events)) or [()]
        first_runs, *more_runs = [
            tuple(runs[n : n + PART_RUNS_MAX]) for n in range(0, len(runs) or 1, PART_RUNS_MAX)
        ]
        sent: list[tuple[tuple[Event, ...], tuple[Run, ...]]] = [
            *((part, ()) for part in parts),
            (last, first_runs),
            *(((), some) for some in more_runs),
        ]
        for number, (some_events, some_runs) in enumerate(sent, 1):
            found = HistoryFound(
                path=asked.path[:-1],
                number=asked.number,
                broker=self.broker.id,
                away=len(asked.path),
                events=some_events,
                runs=some_runs,
                more=number < len(sent),
            )
            self.broker.send(asked.path[-1], found, now)

    def _follow(
        self, asked: HistoryAsked, link: LinkId, links: Sequence[LinkId], now: Time
    ) -> None:
        key = link, asked.path[0], asked.number
        self._passing.pop(key, None)
        covered = self._covering(asked, link)
        self._passing[key] = Passing(asked, link, tuple(links), len(links), now, covered)
        first = next(iter(self._passing.values()))
        while len(self._passing) > PASSING_MAX or first.began + PASSING_US < now:
            del self._passing[first.link, first.asked.path[0], first.asked.number]
            first = next(iter(self._passing.values()))

    def _covering(self, asked: HistoryAsked, link: LinkId) -> int | None:
        """The subscription that a question follows; None if it has ended already."""
        routes = self.broker.router.subscriptions.routes(link)
        wider = find_wider(reversed(routes.items()), asked.filter, Work(COMPARING_MAX))
        return None if wider is None else self.coverage.begin(asked.filter, link, wider)

    # ---- On the way back

    def on_history_expected(self, message: HistoryExpected, link: LinkId, now: Time) -> None:
        """Others were asked as well."""
        self._count(message, message.count, link, now)

    def on_history_found(self, message: HistoryFound, link: LinkId, now: Time) -> None:
        """A broker has answered."""
        if not message.path:
            searching = self._searched_at(link, message.number)
            if searching is None:
                return
            runs = believable(message.runs)
            self._held_bytes += searching.take(msgspec.structs.replace(message, runs=runs))
            if self._held_bytes > FOUND_BYTES_MAX:
                self._end_search(message.number, now, is_all=False)
                return
        self._count(message, 0 if message.more else -1, link, now)

    def _searched_at(self, link: LinkId, number: int) -> Searching | None:
        """The search of a number, if a neighbour was asked for it."""
        searching = self._searching.get(number)
        return searching if searching is not None and link in searching.links else None

    def _count(self, message: HistoryMessage, more: int, link: LinkId, now: Time) -> None:
        """Count an answer, and pass it on to who has asked; nobody else's are passed on."""
        if not message.path:
            searching = self._searched_at(link, message.number)
            if searching is not None:
                searching.open = min(searching.open + more, OPEN_MAX)
                self._answered(message.number, searching, now)
            return
        key = message.path[-1], message.path[0], message.number
        passing = self._passing.get(key)
        if passing is None or link not in passing.links:
            return
        passing.open = min(passing.open + more, OPEN_MAX)
        if not passing.open:
            del self._passing[key]
            if passing.covered is not None:
                self.coverage.complete(passing.covered, passing.links, now)
        onward = msgspec.structs.replace(message, path=message.path[:-1])
        self.broker.send(passing.link, onward, now)

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
        self._mute.pop(given.link, None)
        is_broker = given.peer is Peer.BROKER
        if is_broker and given.features is not None and SEARCH not in given.features:
            self._mute[given.link] = None

    def link_up(self, link: LinkId, now: Time) -> None:
        self._courier.link_up(self.broker, link, now)

    def link_new(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self.client_moved(link, now)
            self.published.came(link)

    def subscriptions_changed(self, change: SubscriptionChange, link: LinkId, now: Time) -> None:
        self.coverage.changed(link, change.added, change.removed)
        if self.options.prepares and self.broker.peers.get(link) is Peer.CLIENT:
            bound = {(link, route.id): route for route in change.added if route.filter.is_bound}
            self._unprepared |= bound
            self.wake_by(now)  # When neighbours have been told.
        if self._unprepared:
            added = {route.id for route in change.added}
            for id_ in change.removed:
                if id_ not in added:
                    self._unprepared.pop((link, id_), None)

    def _prepare(self, now: Time) -> None:
        """Find out from when on brokers have everything that a client has subscribed to."""
        searched = {(each.client, each.route) for each in self._searching.values()}
        for link, id_ in list(islice(self._unprepared, PREPARED_MAX)):
            if not self._has_room(link):
                break
            route = self._unprepared.pop((link, id_))
            if (link, id_) in searched or link not in self.broker.peers:
                continue
            asked = HistoryAsked(
                path=(),
                number=0,
                filter=route.filter,
                events_max=0,
                search=Search.NEAREST,
            )
            sources = self._sources(asked, None)
            if sources and self.coverage.since(route.filter, sources) is None:
                self.begin_search(asked, link, id_, now)
        if self._unprepared:
            self.wake_by(now + PREPARING_US)

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
                number: KeptSearching.of(each, writer) for number, each in self._searching.items()
            },
            passing=[
                KeptPassing(
                    asked=writer.message(each.asked),
                    link=each.link,
                    links=each.links,
                    open=each.open,
                    began=each.began,
                    covered=each.covered,
                )
                for each in self._passing.values()
            ],
            covered=self.coverage.keep(),
            published=self.published.keep(writer),
            crossed=dict(self._crossed),
            crossed_before=self._crossed_before,
            unprepared=[(link, route) for (link, _), route in self._unprepared.items()],
            mute=list(self._mute),
            held=self._courier.keep(writer),
        )

    def restore(self, kept: KeptSearch, reader: Reader) -> None:
        self._number = kept.number
        for number, each in kept.searching.items():
            self._add(number, each.restored(reader))
        for one in kept.passing:
            asked = reader.message(one.asked, HistoryAsked)
            self._passing[one.link, asked.path[0], asked.number] = Passing(
                asked, one.link, one.links, one.open, one.began, one.covered
            )
        self.coverage.restore(kept.covered)
        self.published.restore(kept.published, reader)
        self._crossed, self._crossed_before = dict(kept.crossed), kept.crossed_before
        self._unprepared = {(link, route.id): route for link, route in kept.unprepared}
        self._mute = dict.fromkeys(kept.mute)
        self._courier.restore(kept.held, reader)


PROTOCOL = Protocol(name=SEARCH, broker=Searches, is_last=True)
"""Questions that have waited for a link follow the subscriptions that have, of every kind."""


def _or(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else number


def _known(asked: HistoryAsked) -> dict[NodeId, tuple[int, int]]:
    """Of which publishers the events between two numbers are there."""
    return {publisher: (first, last) for publisher, first, last in asked.known[:KNOWN_MAX]}


def _had(asked: HistoryAsked) -> dict[NodeId, int]:
    """Of which publishers another broker has how many events."""
    return dict(asked.had[:KNOWN_MAX])


def _latest_of(events: Sequence[Event], bytes_max: int) -> list[Event]:
    """The last of some events, as many as take no more bytes; one in any case."""
    size, first = 0, len(events)
    while first and (first == len(events) or size + weight(events[first - 1]) <= bytes_max):
        first -= 1
        size += weight(events[first])
    return list(events[first:])


def _parts(events: Sequence[Event]) -> Iterator[tuple[Event, ...]]:
    """The parts of an answer."""
    first = 0
    while first < len(events):
        part, _ = part_of(events, first, PART_BYTES_MAX)
        yield part
        first += len(part)
