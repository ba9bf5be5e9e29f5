"""Replicators and virtual clients: Cilia et al., section 4.

Where a client is, its broker follows it on the movement graph (the *replicator*): it has
virtual clients made wherever the client may go next, each at the broker that serves the place. A
virtual client subscribes to what the client's subscription means at its place, and keeps what
comes. When the client is there and asks for the past, it gets what was kept, at once and in order;
what follows comes as usual. Only subscriptions that begin with the past at each place have virtual
clients: others do not want what they would have kept.

**Who wants what.** A replicator says all it wants of another broker for a client in one message,
which replaces the one before. A virtual client is there as long as at least one replicator wants
it: when a client changes brokers, the new one may want it before the old one has let go.

A client's home broker follows it wherever it is, for that is where its subscriptions are. So it has
the virtual clients itself, and answers for each place.

**Why nothing is missing when it is handed over.** The client's broker knows what the client wants
at its place before it is asked for the past, so whatever comes after the answer goes to the client
itself. The brokers before it may hear later that the client has moved; until then, the virtual
client, which stays for a while, has the events come.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.handover.options import Handover
from sterna.core.history.messages import HistoryAsked, PastAsked
from sterna.core.history.options import Search
from sterna.core.history.searching import Found
from sterna.core.keeping import Reader, Writer
from sterna.core.location.messages import MovingRoute
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import NEVER, LinkId, NodeId, Peer, RouteId, Time
from sterna.core.presubscribing.facts import VirtualEnded
from sterna.core.presubscribing.messages import VirtualAsked, VirtualRoute, VirtualWanted
from sterna.core.presubscribing.options import PresubscribingOptions
from sterna.core.presubscribing.virtual import KeptVirtual, Virtual, restored
from sterna.core.protocol import Protocol
from sterna.core.settings import Settings
from sterna.core.sizes import Load
from sterna.model.event import Event
from sterna.model.prediction import UniformPredictor

if TYPE_CHECKING:
    from sterna.core.history.recent import Recent
    from sterna.core.history.search import Searches
    from sterna.core.location.moving import Moving

HEARD_MAX = 10_000
"""Of how many clients and replicators it is remembered which message was the last."""

REACH_MAX = 64
"""So many of the places within reach are considered."""

AGAIN_US = 10_000_000
"""After so long a virtual client searches again, if not all have answered."""

Told = dict[NodeId, tuple[VirtualRoute, ...]]
"""What is wanted of each broker."""


@dataclass(slots=True)
class Followed:
    """A client whose subscriptions are wanted at its next places."""

    at: str
    before: str = ""
    """Where it was before; empty if that is not known."""
    told: Told = field(default_factory=dict)


class KeptFollowed(msgspec.Struct, frozen=True):
    """What a snapshot holds of such a client."""

    at: str
    before: str
    told: Told


class KeptPresubscribing(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of pre-subscriptions."""

    number: int
    followed: dict[NodeId, KeptFollowed]
    virtual: list[KeptVirtual]
    heard: list[tuple[NodeId, NodeId, int]]
    brokers: list[NodeId]


class Presubscribing(BrokerComponent):
    """Follows its own clients, and has virtual clients for those of others."""

    name = "presubscribing"
    handles = (VirtualWanted, VirtualAsked)
    facts = (VirtualEnded,)
    Kept = KeptPresubscribing

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(cls.name, PresubscribingOptions))

    def __init__(self, options: PresubscribingOptions | None = None) -> None:
        self.options = options or PresubscribingOptions()
        self._followed: dict[NodeId, Followed] = {}
        self._number = 0
        self.virtual: dict[LinkId, Virtual] = {}
        """The virtual clients that are here, by the names of their links."""
        self._of: dict[NodeId, dict[LinkId, None]] = defaultdict(dict)
        """The virtual clients of each client."""
        self._searching: dict[int, LinkId] = {}
        self._heard: dict[tuple[NodeId, NodeId], int] = {}
        self._brokers: frozenset[NodeId] = frozenset()
        """The brokers that there were when the overlay changed last."""

    def configure(self, settings: Settings, now: Time) -> None:
        self.options = settings.options_of(self.name, PresubscribingOptions)
        self.resume(now)

    def begin(self, now: Time) -> None:
        """Others may have said what they want before anybody here could hear it."""
        self._brokers = frozenset(self.broker.post.members.brokers())
        for broker in sorted(self._brokers - {self.broker.id}):
            self.broker.post.send(VirtualAsked(to=broker, sender=self.broker.id), now)
        self.resume(now)

    def resume(self, now: Time) -> None:
        """Follow the clients that are known already."""
        known = self._moving.table if self._has_places else ()
        for client in dict.fromkeys((*known, *self._followed)):
            self.moving_changed(client, now)

    def end(self, now: Time) -> bool:
        for client in list(self._followed):
            self._tell(client, self._followed.pop(client), {}, now)
        for virtual in list(self.virtual.values()):
            self._remove(virtual, now)
        return True

    # ---- The replicator: where clients are, and where they may go

    def moving_changed(self, link: LinkId, now: Time) -> None:
        if self.broker.peers.get(link) is not Peer.BROKER and not self.is_ending:
            self._follow(link, now)

    def _follow(self, client: NodeId, now: Time) -> None:
        """Have virtual clients wherever a client may go next, and nowhere else."""
        table = self._moving.table.get(client, {}) if self._has_places else {}
        routes = [route for route in table.values() if route.past is not None and route.at]
        followed = self._followed.get(client)
        if not routes:
            if followed is not None:
                self._tell(client, self._followed.pop(client), {}, now)
            return
        at = routes[-1].at
        if followed is None:
            followed = self._followed[client] = Followed(at)
        elif followed.at != at:
            followed.at, followed.before = at, followed.at
        self._tell(client, followed, self._wanted(client, followed, routes), now)

    def _wanted(
        self, client: NodeId, followed: Followed, routes: Sequence[MovingRoute]
    ) -> dict[NodeId, tuple[VirtualRoute, ...]]:
        """What is wanted of each broker that serves a place where a client may go."""
        wanted: dict[NodeId, list[VirtualRoute]] = defaultdict(list)
        here = self.broker.id
        is_home = self.broker.settings.handover.protocol == Handover.HOME
        for place in self._next_places(client, followed):
            # What follows comes from its home broker, wherever the client is.
            broker = here if is_home else self.options.serving(place, here)
            wanted[broker] += [self._at(route, place) for route in routes]
        return {broker: tuple(each) for broker, each in wanted.items()}

    def _at(self, route: MovingRoute, place: str) -> VirtualRoute:
        """What a subscription means at a place."""
        events_max, ago_us = route.past or (None, None)
        exact = self._moving.instance_at(route.filter, place)
        return VirtualRoute(route.id, place, exact, events_max, ago_us)

    def _next_places(self, client: NodeId, followed: Followed) -> list[str]:
        """The most probable of the places within reach, as far as a model knows any."""
        at, most = followed.at, self.options.places_max
        within_reach = UniformPredictor(self._moving.space).next(at, count=REACH_MAX)
        reached = {each.place for each in within_reach}
        history = (followed.before,) if followed.before else ()
        found = self.broker.predictor.next(at, history, client=client, count=REACH_MAX)
        known = [each for each in found if each.place in reached] or within_reach
        least = self.options.probability_min * sum(each.probability for each in known)
        return [each.place for each in known[:most] if each.probability >= least]

    def _tell(self, client: NodeId, followed: Followed, wanted: Told, now: Time) -> None:
        before, followed.told = followed.told, wanted
        for broker in dict.fromkeys((*before, *wanted)):
            routes = wanted.get(broker, ())
            if routes != before.get(broker, ()):
                self._say(client, broker, routes, now)

    def _say(
        self, client: NodeId, broker: NodeId, routes: tuple[VirtualRoute, ...], now: Time
    ) -> None:
        self._number = max(self._number + 1, now)  # Greater also if this broker has lost its state.
        wanted = VirtualWanted(
            to=broker, sender=self.broker.id, client=client, number=self._number, routes=routes
        )
        self.broker.post.send(wanted, now)

    # ---- Virtual clients

    def on_virtual_wanted(self, message: VirtualWanted, _link: LinkId, now: Time) -> None:
        """Make the virtual clients that are wanted here; the others of the client end."""
        client, owner = message.client, message.sender
        if message.number <= self._heard.get((client, owner), -1) or self.is_ending:
            return
        self._heard.pop((client, owner), None)
        self._heard[client, owner] = message.number
        if len(self._heard) > HEARD_MAX:
            del self._heard[next(iter(self._heard))]
        made = {each.link: each for each in (Virtual(client, route) for route in message.routes)}
        for virtual in list(self._virtual_of(client)):
            new = made.get(virtual.link)
            if new is None:
                self._disown(virtual, owner, now)
            elif new.route.filter != virtual.route.filter:
                self._remove(virtual, now)
            else:
                virtual.route, virtual.ends = new.route, NEVER
                virtual.owners[owner] = None
        for link, virtual in made.items():
            if link not in self.virtual and self._has_room(virtual):
                virtual.owners[owner] = None
                self._make(virtual, now)

    def _has_room(self, virtual: Virtual) -> bool:
        mine = len(self._of.get(virtual.client, ()))
        is_bound = virtual.route.filter.is_bound  # Else it means nothing here.
        options = self.options
        return is_bound and mine < options.client_max and len(self.virtual) < options.virtual_max

    def _make(self, virtual: Virtual, now: Time) -> None:
        """Subscribe, and search for what was before."""
        link, route = virtual.link, virtual.route
        self.virtual[link] = virtual
        self._of[virtual.client][link] = None
        added = SubscriptionChange(added=(Route(route.id, route.filter),))
        self.broker.message_arrived(added, link, now)
        self._search(virtual, now)

    def _search(self, virtual: Virtual, now: Time) -> None:
        """Search for the past; if that is not wanted, find out from when on everything comes."""
        route, search = virtual.route, self._recent.search
        since_us = None if route.ago_us is None else max(0, now - route.ago_us)
        asked = HistoryAsked(
            path=(),
            number=0,
            filter=route.filter,
            events_max=self._events_max(route),
            since_us=since_us,
            search=search,
        )
        if search is Search.NONE:
            asked = msgspec.structs.replace(asked, events_max=0, search=Search.NEAREST)
        number = self._searches.begin_search(asked, virtual.link, route.id, now, asker=self.name)
        found = self._searches.result(number)
        if found is not None:
            self._begin(virtual, found, now)
        else:
            virtual.search = number
            self._searching[number] = virtual.link

    def searched(self, number: int, found: Found, now: Time) -> None:
        virtual = self.virtual.get(self._searching.pop(number, ""))
        if virtual is not None:
            self._begin(virtual, found, now)

    def _begin(self, virtual: Virtual, found: Found, now: Time) -> None:
        """A search has ended; if not all have answered, it is made again later."""
        if found.is_all:
            virtual.begin(found.events, *self._bounds(virtual))
        else:
            virtual.search, virtual.again = None, now + AGAIN_US
            self.wake_by(virtual.again)

    def _events_max(self, route: VirtualRoute) -> int:
        most = self.options.events_max
        return most if route.events_max is None else min(most, route.events_max)

    def _bounds(self, virtual: Virtual) -> tuple[int, int]:
        return self._events_max(virtual.route), self.options.bytes_max

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        """Keep what is for a virtual client."""
        del now
        virtual = self.virtual.get(link)
        if virtual is None:
            return events
        virtual.add(events, *self._bounds(virtual))
        return ()

    def _disown(self, virtual: Virtual, owner: NodeId, now: Time) -> None:
        """A replicator does not want a virtual client any more."""
        if virtual.owners.pop(owner, owner) is None and not virtual.owners:
            virtual.ends = now + self.options.linger_us
            self.wake_by(virtual.ends)

    def _remove(self, virtual: Virtual, now: Time) -> None:
        link = virtual.link
        del self.virtual[link], self._of[virtual.client][link]
        self.broker.state(virtual.ended(self.broker.id, now))
        if not self._of[virtual.client]:
            del self._of[virtual.client]
        if virtual.search is not None:
            self._searches.drop(virtual.search)
            del self._searching[virtual.search]
        self.broker.message_arrived(SubscriptionChange(removed=(virtual.route.id,)), link, now)

    def hosted(self) -> Iterator[NodeId]:
        return (client for client in self._of if client not in self.broker.peers)

    def kept(self, link: LinkId) -> Load:
        mine = list(self._virtual_of(link))
        return Load(sum(len(each.events) for each in mine), sum(each.bytes for each in mine))

    def keep_less(self, bytes_max: int, now: Time) -> None:
        """Those that keep most give up what they have; a search finds it again."""
        del now
        left = sum(each.bytes for each in self.virtual.values())
        for virtual in sorted(self.virtual.values(), key=lambda each: each.bytes, reverse=True):
            if left <= bytes_max:
                break
            left -= virtual.bytes
            virtual.add((), 0, 0)

    def _virtual_of(self, client: NodeId) -> Iterator[Virtual]:
        for link in self._of.get(client, ()):
            yield self.virtual[link]

    def wake(self, now: Time) -> None:
        """End those that nobody wants, and search again where not all had answered."""
        for virtual in list(self.virtual.values()):
            if virtual.ends <= now:
                self._remove(virtual, now)
            elif virtual.again <= now:
                virtual.again = NEVER
                self._search(virtual, now)
        for virtual in self.virtual.values():
            self.wake_by(min(virtual.ends, virtual.again))

    # ---- The client is there

    def answer(self, asked: PastAsked, client: LinkId) -> list[Event] | None:
        """What the virtual client has of a subscription at the place where its client is.

        None if there is no such virtual client, or if a search may find more.
        """
        if not self._has_places:
            return None
        moving = self._moving.announced_by(client).get(asked.route.id)
        virtual = None if moving is None else self.virtual.get(_link(moving.id, moving.at))
        if virtual is None or virtual.client != client:
            return None
        found = virtual.answer(asked.route.filter, asked.events_max, asked.since_us)
        if found is None:
            return None
        if self._recent.search is Search.NONE and len(found) != asked.events_max:
            return None  # The broker may remember more, and nobody else is asked.
        virtual.hand_over(found)
        return found

    # ---- The overlay

    def overlay_changed(self, now: Time) -> None:
        """Brokers that are gone want nothing; those that are back may not know what is wanted."""
        before, self._brokers = self._brokers, frozenset(self.broker.post.members.brokers())
        for virtual in self.virtual.values():
            for owner in [each for each in virtual.owners if each not in self._brokers]:
                self._disown(virtual, owner, now)
        for broker in sorted(self._brokers - before - {self.broker.id}):
            self._say_again(broker, now)

    def on_virtual_asked(self, message: VirtualAsked, _link: LinkId, now: Time) -> None:
        self._say_again(message.sender, now)

    def _say_again(self, broker: NodeId, now: Time) -> None:
        """Say all that is wanted of a broker, which may not know it."""
        for client, followed in self._followed.items():
            if broker in followed.told:
                self._say(client, broker, followed.told[broker], now)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        return all(each.ends == NEVER for each in self.virtual.values())

    # ---- Other components

    @property
    def _has_places(self) -> bool:
        return self.broker.part("moving") is not None

    @property
    def _moving(self) -> "Moving":
        return cast("Moving", self.broker.part("moving"))

    @property
    def _recent(self) -> "Recent":
        return cast("Recent", self.broker.part("past"))

    @property
    def _searches(self) -> "Searches":
        return cast("Searches", self.broker.part("search"))

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptPresubscribing:
        return KeptPresubscribing(
            number=self._number,
            followed={
                client: KeptFollowed(each.at, each.before, dict(each.told))
                for client, each in self._followed.items()
            },
            virtual=[each.keep(writer) for each in self.virtual.values()],
            heard=[(client, owner, number) for (client, owner), number in self._heard.items()],
            brokers=sorted(self._brokers),
        )

    def restore(self, kept: KeptPresubscribing, reader: Reader) -> None:
        self._number = kept.number
        for client, one in kept.followed.items():
            self._followed[client] = Followed(one.at, one.before, dict(one.told))
        for each in kept.virtual:
            virtual = restored(each, reader)
            self.virtual[virtual.link] = virtual
            self._of[virtual.client][virtual.link] = None
            if virtual.search is not None:
                self._searching[virtual.search] = virtual.link
        self._heard = {(client, owner): number for client, owner, number in kept.heard}
        self._brokers = frozenset(kept.brokers)


def _link(id_: RouteId, place: str) -> LinkId:
    """The name under which a virtual client stands in the routing table."""
    return f"~{id_}@{place}"


PRESUBSCRIBING = Protocol(
    name="presubscribing", broker=Presubscribing, needs=("overlay", "post", "past", "search")
)
