"""The broker's part in moving subscriptions: Fiege et al., Figs. 12 and 13.

For each link the broker has a table of the moving routes that were announced over it, with `myloc`
unresolved: the paper's ldfTable. For each route it has an instance in the routing table, for all
locations where a client may be by the time an event gets there. Announcements say where the clients
are, not where they may be: each broker makes its own instance, wider the farther away it is.

A broker that receives nothing about a move holds the same locations as if it had, and so does every
broker behind it: ploc(x, q + r) is ploc of ploc(x, q) in r steps, so what is equal within q steps
is equal within more. Therefore a move is announced to a neighbour only if the neighbour's own
instance changes (Fiege, 5.4). For the same reason, routes of many clients with the same filter can
represent each other, as long as they cover the same locations together.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Self

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.keeping import Reader, Writer
from sterna.core.location.context import space_at
from sterna.core.location.measuring import KeptMeasuring, Measuring
from sterna.core.location.messages import MovingChange, MovingRoute
from sterna.core.location.options import PlacesOptions
from sterna.core.location.telling import KeptTelling, Likeness, Telling
from sterna.core.location.whereabouts import Whereabouts
from sterna.core.messages import Message
from sterna.core.names import NEVER, LinkId, Peer, RouteId, Time
from sterna.core.protocol import Kind, Protocol
from sterna.core.routing.options import Strategy
from sterna.core.routing.stages import EVERYTHING
from sterna.core.settings import Settings
from sterna.model.filters import Filter, UnboundError
from sterna.model.location import LocationError, LocationSpace
from sterna.model.ranges import DURATION_MAX_US

ANYWHERE = frozenset(("",))
"""Represents all locations if they are too many or not known. No location has this name."""

OTHER_PLACES = 1
"""A digest that no broker has, for routes of clients that use other places."""

FORMER_MAX = 4
"""How many former places a broker remembers, even if no client is known to use them."""

INSTANCES_MAX = 1_000
"""How many instances a broker caches."""

LOCATIONS_MAX = 1_000
"""Instances with more locations than this are not cached."""

ADMITS_MAX = 1_000
"""For how many filters it remembers whether a neighbour has to know them."""


@dataclass
class Away:
    """A client whose link is down: since when, and the routes that it had announced."""

    since: Time
    told: dict[RouteId, MovingRoute]
    due: Time = NEVER
    """When it may be farther away than its routes allow for."""


class KeptAway(msgspec.Struct, frozen=True):
    """What a snapshot holds of a client whose link is down."""

    since: Time
    told: list[MovingRoute]
    due: Time


class KeptMoving(msgspec.Struct, frozen=True):
    """What a snapshot holds of moving subscriptions."""

    measured: KeptMeasuring
    table: dict[LinkId, list[MovingRoute]]
    told: dict[LinkId, KeptTelling]
    away: dict[LinkId, KeptAway]
    names: int
    former: list[PlacesOptions] = []
    elsewhere: dict[LinkId, list[MovingRoute]] = {}


class Moving(Measuring, BrokerComponent):
    """Routes events to clients that move, by filters that widen towards the publishers."""

    name = "moving"
    handles = (*Measuring.handles, MovingChange)
    Kept = KeptMoving

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.places or PlacesOptions())

    def __init__(self, places: PlacesOptions) -> None:
        super().__init__(
            probe_us=places.probe_us, grain_us=places.grain_us, is_timed=places.rule.is_timed
        )
        self.places = places
        self.space = places.space()
        self._digest = places.digest()
        self.rule = places.rule
        self._around = _Around(self.space)
        self.table: dict[LinkId, dict[RouteId, MovingRoute]] = {}
        """The routes that were announced over each link: the ldfTable."""
        self._told: dict[LinkId, Telling] = {}
        """What each neighbour gets of the routes from all other links."""
        self._admits: dict[LinkId, dict[Filter, bool]] = {}
        """Whether a neighbour has to know a filter: a cache."""
        self._named = 0
        self._away: dict[LinkId, Away] = {}
        """Clients whose link is down, until they announce where they are."""
        self._elsewhere: dict[LinkId, dict[RouteId, MovingRoute]] = {}
        """The routes of clients that another broker routes for; here they only tell what is wanted
        of the events that are kept."""
        self._former: dict[int, PlacesOptions] = {}
        """Former places by digest, for clients that do not know the present ones yet."""

    # ---- Instances

    def steps(self, route: MovingRoute) -> int | None:
        """How many steps clients may be from their announced location; None if anywhere."""
        if not self._uses_places_of(route):
            return None
        return self.rule.steps(route.delay_us, route.dwell_us)

    def _uses_places_of(self, route: MovingRoute) -> bool:
        """Whether the sender of a route uses the same places and rule as this broker.

        If not, it may mean other locations, and may not announce moves that matter here.
        """
        return route.places in (0, self._digest)

    def instance(self, route: MovingRoute) -> Filter:
        """The filter for all locations where clients may be by the time an event gets there."""
        steps = self.steps(route)
        if len(self._reach(route)) > LOCATIONS_MAX:
            return _around(self.space, route.filter, route.at, steps)
        return self._around(route.filter, route.at, steps)

    def instance_at(self, filter_: Filter, place: str) -> Filter:
        """What a filter means to a client at a place."""
        return self._around(filter_, place, 0)

    def _reach(self, route: MovingRoute) -> frozenset[str]:
        """The locations of the instance."""
        steps = self.steps(route)
        try:
            return ANYWHERE if steps is None else self.space.ploc(route.at, steps)
        except LocationError:
            return ANYWHERE

    def exact(self, link: LinkId) -> list[tuple[RouteId, Filter]]:
        """What the client of a link wants at its last location, by the places that it knows."""
        return [(id_, self._exact(route)) for id_, route in self.announced_by(link).items()]

    def announced_by(self, link: LinkId) -> dict[RouteId, MovingRoute]:
        """The moving routes of a client, even if another broker routes for it."""
        return self._elsewhere.get(link) or self.table.get(link, {})

    def _exact(self, route: MovingRoute) -> Filter:
        if not route.at:  # That is no location; a client that says so may be anywhere.
            return route.filter.anywhere
        before = None if self._uses_places_of(route) else self._former.get(route.places)
        space = self.space if before is None else before.space()
        if space is self.space and route.at in space:
            return self._around(route.filter, route.at, 0)
        return _around(space_at(space, route.at), route.filter, route.at, 0)

    def claimed(self, link: LinkId) -> list[tuple[str, Collection[RouteId]]]:
        return [("moving", self.announced_by(link))]

    # ---- Messages

    def on_moving_change(self, message: MovingChange, link: LinkId, now: Time) -> None:
        """A client or the broker nearer to it has subscribed, moved or unsubscribed. (Fig. 13)"""
        said = [route for route in message.added if _is_valid(route)]
        if self._is_elsewhere(message, said, link, now):
            return
        self._away.pop(link, None)
        known = self.table.get(link, {})
        names = {route.id for route in said}
        ended = [id_ for id_ in known if message.anew and id_ not in names]
        for route in said:
            self._replace(link, route.id, route)
        for id_ in (*message.removed, *ended):
            self._replace(link, id_, None)
        self.broker.router.tell(now)
        if message.anew and link in self._told:
            self._tell_again(link, now)
        self._tell(now)
        self._changed(link, now)

    def _changed(self, link: LinkId, now: Time) -> None:
        for changed in self.broker.hooks.moving_changed:
            changed(link, now)

    def _is_elsewhere(
        self, message: MovingChange, said: Sequence[MovingRoute], link: LinkId, now: Time
    ) -> bool:
        """Whether another broker routes for a client; it hears of all routes, not of changes."""
        before = self._elsewhere.pop(link, {})
        if not self.broker.hooks.goes_elsewhere:
            return False  # So it is for nearly all messages.
        routes = {**({} if message.anew else before), **_by_id(said)}
        for id_ in message.removed:
            routes.pop(id_, None)
        change = MovingChange(added=tuple(routes.values()), anew=True)
        if self.broker.goes_elsewhere(change, link, now):
            self._elsewhere[link] = routes
            return True
        return False

    def _replace(self, link: LinkId, id_: RouteId, new: MovingRoute | None) -> None:
        """Subscribe to the instance of a route in place of the one before, if there was one."""
        routes = self.table.setdefault(link, {})
        old = routes.pop(id_, None)
        if new is not None:
            routes[id_] = new
            self.broker.router.enter(link, id_, self.instance(new), _widest(new.filter))
        elif old is not None:
            self.broker.router.withdraw(link, id_)
        if not routes:
            del self.table[link]
        for neighbour in self._told:
            if neighbour != link:
                self._share(neighbour, link, id_, new)

    # ---- What neighbours get

    def _share(
        self, neighbour: LinkId, link: LinkId, id_: RouteId, new: MovingRoute | None
    ) -> None:
        """Update what a neighbour gets, after a route has begun, changed or ended.

        Routes that differ only in the location share announcements; with simple routing, none do.
        """
        telling = self._told[neighbour]
        if new is None:
            telling.drop((link, id_))
            return
        # Without a dwell time, the delay is useless.
        mine = None if new.dwell_us is None else new.delay_us
        between = self.delay_us(neighbour)
        delay_us = None if mine is None or between is None else _known(mine + between)
        places = new.places if self._uses_places_of(new) else OTHER_PLACES
        route = msgspec.structs.replace(new, delay_us=delay_us, places=places, past=None)
        is_simple = self.broker.router.options.strategy is Strategy.SIMPLE
        source = (link, id_) if is_simple else None
        likeness = Likeness(route.filter, route.dwell_us, delay_us, source, places)
        telling.put((link, id_), route, likeness, self._reach(route))

    def _share_all(self, neighbour: LinkId) -> None:
        for link, routes in self.table.items():
            for id_, route in routes.items():
                if link != neighbour:
                    self._share(neighbour, link, id_, route)

    def _tell(self, now: Time) -> None:
        """Send each neighbour the difference, if its link is up; else it gathers until then."""
        for neighbour, telling in self._told.items():
            if neighbour not in self.broker.up:
                continue
            added, removed = telling.difference(partial(self._must_hear, neighbour))
            if added or removed:
                change = MovingChange(added=tuple(added), removed=tuple(removed))
                self.broker.send(neighbour, change, now)
                self.keep_measuring(neighbour, now)

    def _tell_again(self, neighbour: LinkId, now: Time) -> None:
        """A neighbour has begun to route moving subscriptions, and ignored what it was sent before.

        Names stay the same: it may know some of them, from messages that were on their way.
        """
        known = self.announced(neighbour)
        if known:
            self.broker.send(neighbour, MovingChange(added=tuple(known.values())), now)
        self.answers_now(neighbour, now)

    def announced(self, neighbour: LinkId) -> dict[RouteId, MovingRoute]:
        """The routes that a neighbour was sent, by the names that they have there."""
        return _by_id(self._told[neighbour].announced())

    def _must_hear(self, neighbour: LinkId, filter_: Filter) -> bool:
        known = self._admits.setdefault(neighbour, {})
        if filter_ not in known:
            if len(known) >= ADMITS_MAX:
                known.clear()
            known[filter_] = self.broker.router.must_hear(neighbour, filter_.anywhere)
        return known[filter_]

    # ---- Moments

    def link_new(self, link: LinkId, now: Time) -> None:
        if not any(keeps(link) for keeps in self.broker.hooks.keeps):
            self._forget(link)
        if self.broker.peers[link] is Peer.BROKER:  # It knows no names that were announced before.
            self._told[link] = Telling(self._name)
            self._share_all(link)
        self.broker.router.tell(now)
        self._tell(now)
        self._changed(link, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        super().link_up(link, now)
        self._tell(now)

    def link_down(self, link: LinkId, now: Time) -> None:
        super().link_down(link, now)
        if self._is_timed and link in self.table and self.broker.peers[link] is Peer.CLIENT:
            self._away.setdefault(link, Away(now, dict(self.table[link])))
            self._widen(link, now)

    def wake(self, now: Time) -> None:
        super().wake(now)
        for link in [link for link, away in self._away.items() if away.due <= now]:
            self._widen(link, now)
        self.wake_by(min((away.due for away in self._away.values()), default=NEVER))

    def _widen(self, link: LinkId, now: Time) -> None:
        """Let a client that is away make another step with each dwell time, up to a limit.

        This is as if its messages took that much longer. So there is no blackout when it returns.
        """
        away = self._away[link]
        away.due = NEVER
        for id_, route in away.told.items():
            if route.dwell_us is None or route.delay_us is None:
                continue  # It may be anywhere, as before.
            steps = (now - away.since) // route.dwell_us + 1
            if steps < self.places.away_steps_max:
                away.due = min(away.due, away.since + steps * route.dwell_us)
            if steps <= self.places.away_steps_max:
                longer = _known(route.delay_us + steps * route.dwell_us)
                self._replace(link, id_, msgspec.structs.replace(route, delay_us=longer))
        self.wake_by(away.due)
        self.broker.router.tell(now)
        self._tell(now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        super().link_gone(link, unconfirmed, now)
        self._forget(link)
        self._told.pop(link, None)
        self._admits.pop(link, None)
        self.broker.router.tell(now)
        self._tell(now)
        self._changed(link, now)

    def _forget(self, link: LinkId) -> None:
        """Drop all routes that were announced over a link."""
        self._away.pop(link, None)
        self._elsewhere.pop(link, None)
        for id_ in list(self.table.get(link, {})):
            self._replace(link, id_, None)

    def advertisements_changed(self, link: LinkId, now: Time) -> None:
        self._admits.pop(link, None)
        if link in self._told:
            self._told[link].look_again()
            self._tell(now)

    def delay_changed(self, link: LinkId, now: Time) -> None:
        if link in self._told:
            self._share_all(link)
            self._tell(now)

    def measures(self, link: LinkId) -> bool:
        return self.broker.peers[link] is Peer.BROKER

    def carries(self, link: LinkId) -> bool:
        return link in self._told and not self._told[link].is_empty

    def _name(self) -> RouteId:
        self._named += 1
        return f"{self.broker.id}@{self._named}"

    # ---- Settings and snapshots

    def configure(self, settings: Settings, now: Time) -> None:
        """Use other locations or another rule: make all instances again.

        What is kept for a client is still what it wants by the places that it knows.
        """
        places = settings.places
        if places is None:
            return
        if places.digest() != self._digest:
            self._remember_former()
            self._former.pop(places.digest(), None)
        self.places, self.space, self.rule = places, places.space(), places.rule
        self._digest = places.digest()
        self._admits.clear()  # With another strategy, neighbours have to know other filters.
        self._around = _Around(self.space)
        self.measure(places.probe_us, places.grain_us, is_timed=places.rule.is_timed, now=now)
        for link, routes in list(self.table.items()):
            for id_, route in list(routes.items()):
                self._replace(link, id_, route)
        self.broker.router.tell(now)
        self._tell(now)

    def _remember_former(self) -> None:
        """Remember the present places among the last few, and all that clients still use."""
        self._former.pop(self._digest, None)
        self._former[self._digest] = self.places
        last = list(self._former)[-FORMER_MAX:]
        named = {route.places for routes in self.table.values() for route in routes.values()}
        self._former = {
            digest: places
            for digest, places in self._former.items()
            if digest in last or digest in named
        }

    def begin(self, now: Time) -> None:
        """Have neighbours and clients announce what they know: it was ignored until now."""
        for link in self.broker.known:  # One that is down comes back as a link that is known.
            self.link_new(link, now)
            self.broker.send(link, MovingChange(anew=True), now)
        for link in self.broker.up:
            self.link_up(link, now)

    def end(self, now: Time) -> bool:
        """Whether no moving subscription is left."""
        del now
        return not self.table

    def keep(self, writer: Writer) -> KeptMoving:
        del writer
        return KeptMoving(
            measured=self.keep_measured(),
            table={link: list(routes.values()) for link, routes in self.table.items()},
            told={link: telling.keep() for link, telling in self._told.items()},
            away={
                link: KeptAway(away.since, list(away.told.values()), away.due)
                for link, away in self._away.items()
            },
            names=self._named,
            former=list(self._former.values()),
            elsewhere={link: list(each.values()) for link, each in self._elsewhere.items()},
        )

    def restore(self, kept: KeptMoving, reader: Reader) -> None:
        del reader
        self.restore_measured(kept.measured)
        self.table = {link: _by_id(routes) for link, routes in kept.table.items()}
        for link, told in kept.told.items():
            self._told[link] = Telling(self._name)
            self._told[link].restore(told, self._reach)
        for link, away in kept.away.items():
            self._away[link] = Away(away.since, _by_id(away.told), away.due)
        self._named = kept.names
        self._former = {places.digest(): places for places in kept.former}
        self._elsewhere = {link: _by_id(routes) for link, routes in kept.elsewhere.items()}


MOVING = Protocol(name="moving", kind=Kind.PLACES, broker=Moving, client=Whereabouts)


def _by_id(routes: Iterable[MovingRoute]) -> dict[RouteId, MovingRoute]:
    return {route.id: route for route in routes}


def _is_valid(route: MovingRoute) -> bool:
    """Whether a broker can use a route; others are ignored."""
    return (
        (route.dwell_us is None or 0 < route.dwell_us <= DURATION_MAX_US)
        and (route.delay_us is None or 0 <= route.delay_us <= DURATION_MAX_US)
        and not route.filter.variables
    )


def _known(delay_us: Time) -> Time | None:
    """A delay that can be sent; a longer one counts as not known, so its client may be anywhere."""
    return delay_us if delay_us <= DURATION_MAX_US else None


def _widest(filter_: Filter) -> Filter:
    """What publishers are told: a filter for all locations, or for all events if it is too long."""
    return filter_.anywhere if filter_.anywhere.is_readable else EVERYTHING


class _Around:
    """A cache of instances of filters; clients at the same location share them."""

    def __init__(self, space: LocationSpace) -> None:
        self._remembered = lru_cache(maxsize=INSTANCES_MAX)(partial(_around, space))

    def __call__(self, filter_: Filter, at: str, steps: int | None) -> Filter:
        return self._remembered(filter_, at, steps)


def _around(space: LocationSpace, filter_: Filter, at: str, steps: int | None) -> Filter:
    if steps is None:
        return filter_.anywhere
    try:
        return filter_.around(at, space, steps)
    except (LocationError, UnboundError):  # More than a filter can hold, or not of this space.
        return filter_.anywhere
