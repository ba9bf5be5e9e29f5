"""The broker's part in moving subscriptions: Fiege et al., Figs. 12 and 13.

For each link the broker has a table of the moving routes it was told, with `myloc` as it stands:
the paper's ldfTable. For each it has an instance in the routing table, for all locations where a
client may be by the time an event gets there. Neighbours are told where the clients are, not where
they may be: each makes its own instance, wider the farther away it is.

A broker that was told nothing of a move holds the same locations as if it had been, and so does
every broker behind it: ploc(x, q + r) is ploc of ploc(x, q) in r steps, so what is equal within q
steps is equal within more. Therefore a neighbour is told only if its own instance changes.
(Fiege, 5.4)
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count

import msgspec

from sterna.core.location.measuring import Measuring
from sterna.core.location.steps import StepRule
from sterna.core.messages import Message, MovingChange, MovingRoute
from sterna.core.names import NEVER, LinkId, Peer, RouteId, Time
from sterna.core.routing.options import Strategy
from sterna.model.filters import Filter, UnboundError
from sterna.model.location import LocationError, LocationSpace


class Share:
    """Moving routes that a neighbour is told as one: alike in all but where their clients are."""

    like: MovingRoute
    """One of them."""

    def __init__(self, id_: RouteId) -> None:
        self.id = id_
        self.at: Counter[str] = Counter()
        """How many of the routes have a client at each location."""
        self.told: MovingRoute | None = None
        """What the neighbour knows of it."""

    def route(self, delay_us: Time | None) -> MovingRoute:
        """The one route, for a neighbour that is so far away from here."""
        mine = self.like.delay_us
        return MovingRoute(
            id=self.id,
            filter=self.like.filter,
            at=tuple(sorted(self.at)),
            dwell_us=self.like.dwell_us,
            delay_us=None if mine is None or delay_us is None else mine + delay_us,
        )


@dataclass
class Away:
    """A client whose link is down: since when, and what it had told before."""

    since: Time
    told: dict[RouteId, MovingRoute]
    due: Time = NEVER
    """When it may be farther away than is known."""


class Moving(Measuring):
    """Routes to clients that move: the filters on the way to a publisher are ever wider."""

    handles = (*Measuring.handles, MovingChange)

    def __init__(
        self, space: LocationSpace, rule: StepRule, *, probe_us: Time, grain_us: Time,
        away_steps_max: int = 8,
    ) -> None:  # fmt: skip
        super().__init__(probe_us=probe_us, grain_us=grain_us, is_timed=rule.is_timed)
        self.space = space
        self.rule = rule
        self.table: dict[LinkId, dict[RouteId, MovingRoute]] = {}
        """What was told over each link: the ldfTable."""
        self._shares: dict[LinkId, dict[Hashable, Share]] = {}
        """For each neighbour, what it is told of the routes from everywhere else."""
        self._changed: dict[LinkId, dict[Hashable, None]] = {}
        """Of these, the ones that have changed."""
        self._admits: dict[LinkId, dict[Filter, bool]] = {}
        """Whether a neighbour has to know a filter, as far as that was asked."""
        self._names = count(1)
        self._away_steps_max = away_steps_max
        self._away: dict[LinkId, Away] = {}
        """Clients whose link is down, until they say where they are."""

    # ---- Instances

    def steps(self, route: MovingRoute) -> int | None:
        """How far clients may be from where they were said to be; None: anywhere."""
        return self.rule.steps(route.delay_us, route.dwell_us)

    def instance(self, route: MovingRoute) -> Filter:
        """The filter for all locations where clients may be by the time an event gets there."""
        steps = self.steps(route)
        return route.filter.anywhere if steps is None else self._around(route, steps)

    def exact(self, link: LinkId) -> list[tuple[RouteId, Filter]]:
        """What the client at the end of a link wants where it was last."""
        return [(id_, self._around(route, 0)) for id_, route in self.table.get(link, {}).items()]

    def _around(self, route: MovingRoute, steps: int) -> Filter:
        try:
            return route.filter.around(route.at, self.space, steps)
        except (LocationError, UnboundError):  # More than a filter can hold, or not of this space.
            return route.filter.anywhere

    # ---- Messages

    def on_moving_change(self, message: MovingChange, link: LinkId, now: Time) -> None:
        """A client or the broker nearer to it has subscribed, moved or unsubscribed. (Fig. 13)"""
        self._away.pop(link, None)
        known = self.table.get(link, {})
        said = {route.id for route in message.added}
        ended = [id_ for id_ in known if message.anew and id_ not in said]
        for route in message.added:
            self._replace(link, route.id, route)
        for id_ in (*message.removed, *ended):
            self._replace(link, id_, None)
        self.broker.router.tell(now)
        self._tell(now)

    def _replace(self, link: LinkId, id_: RouteId, new: MovingRoute | None) -> None:
        """Subscribe to the instance of a route in place of the one before, if there was one."""
        routes = self.table.setdefault(link, {})
        old = routes.pop(id_, None)
        if new is not None:
            routes[id_] = new
            self.broker.router.enter(link, id_, self.instance(new), new.filter.anywhere)
        elif old is not None:
            self.broker.router.withdraw(link, id_)
        for neighbour in self._shares:
            if neighbour != link:
                self._share(neighbour, link, old, new)

    # ---- What neighbours are told

    def _share(
        self, neighbour: LinkId, link: LinkId, old: MovingRoute | None, new: MovingRoute | None
    ) -> None:
        shares, changed = self._shares[neighbour], self._changed[neighbour]
        if old is not None:
            likeness = self._likeness(link, old)
            shares[likeness].at -= Counter(old.at)
            changed[likeness] = None
        if new is not None:
            likeness = self._likeness(link, new)
            if likeness not in shares:
                shares[likeness] = Share(f"{self.broker.id}@{next(self._names)}")
            shares[likeness].like = new
            shares[likeness].at += Counter(new.at)
            changed[likeness] = None

    def _likeness(self, link: LinkId, route: MovingRoute) -> Hashable:
        """What routes have in common that are told as one; simple routing tells each."""
        if self.broker.router.options.strategy is Strategy.SIMPLE:
            return link, route.id
        return route.filter, route.dwell_us, route.delay_us

    def _tell(self, now: Time) -> None:
        """Send each neighbour the difference, if its link stands; else it gathers until then."""
        for neighbour, changed in self._changed.items():
            if not changed or neighbour not in self.broker.up:
                continue
            added, removed = [], []
            for likeness in changed:
                share = self._shares[neighbour][likeness]
                before, share.told = share.told, self._wanted(neighbour, share)
                if share.told is None:
                    removed += [share.id] * (before is not None)
                elif share.told is not before:
                    added.append(share.told)
                if not share.at:
                    del self._shares[neighbour][likeness]
            changed.clear()
            if added or removed:
                change = MovingChange(added=tuple(added), removed=tuple(removed))
                self.broker.send(neighbour, change, now)
                self.keep_measuring(neighbour, now)

    def _wanted(self, neighbour: LinkId, share: Share) -> MovingRoute | None:
        """What a neighbour has to know of a share: what it knows, if that gives the same there."""
        if not share.at or not self._must_hear(neighbour, share.like.filter):
            return None
        new, old = share.route(self.delay_us(neighbour)), share.told
        if (
            old is not None
            and (old.dwell_us, old.delay_us) == (new.dwell_us, new.delay_us)
            and self.instance(old) == self.instance(new)
        ):
            return old
        return new

    def _must_hear(self, neighbour: LinkId, filter_: Filter) -> bool:
        known = self._admits.setdefault(neighbour, {})
        if filter_ not in known:
            known[filter_] = self.broker.router.must_hear(neighbour, filter_.anywhere)
        return known[filter_]

    # ---- Moments

    def link_new(self, link: LinkId, now: Time) -> None:
        if not any(keeps(link) for keeps in self.broker.at_keeps):
            self._forget(link)
        if self.broker.peers[link] is Peer.BROKER:
            self._shares[link], self._changed[link] = {}, {}
            for other, routes in self.table.items():
                for route in routes.values():
                    if other != link:
                        self._share(link, other, None, route)
        self.broker.router.tell(now)
        self._tell(now)

    def link_up(self, link: LinkId, now: Time) -> None:
        super().link_up(link, now)
        self._tell(now)

    def link_down(self, link: LinkId, now: Time) -> None:
        super().link_down(link, now)
        if self.broker.peers[link] is Peer.CLIENT and self._is_timed and link not in self._away:
            self._away[link] = Away(now, dict(self.table.get(link, {})))
            self._widen(link, now)

    def wake(self, now: Time) -> None:
        super().wake(now)
        for link in [link for link, away in self._away.items() if away.due <= now]:
            self._widen(link, now)
        self.wake_by(min((away.due for away in self._away.values()), default=NEVER))

    def _widen(self, link: LinkId, now: Time) -> None:
        """A client that is away can make another step with each dwell time, up to a limit.

        It is as if its messages took so much longer. So there is no blackout when it comes back.
        """
        away = self._away[link]
        away.due = NEVER
        for id_, route in away.told.items():
            steps = (now - away.since) // route.dwell_us + 1
            if steps < self._away_steps_max:
                away.due = min(away.due, away.since + steps * route.dwell_us)
            if route.delay_us is not None and steps <= self._away_steps_max:
                longer = route.delay_us + steps * route.dwell_us
                self._replace(link, id_, msgspec.structs.replace(route, delay_us=longer))
        self.wake_by(away.due)
        self.broker.router.tell(now)
        self._tell(now)

    def link_gone(self, link: LinkId, unconfirmed: list[Message], now: Time) -> None:
        super().link_gone(link, unconfirmed, now)
        self._forget(link)
        for known in (self._shares, self._changed, self._admits):
            known.pop(link, None)
        self.broker.router.tell(now)
        self._tell(now)

    def _forget(self, link: LinkId) -> None:
        """Nothing that was told over a link holds any more."""
        self._away.pop(link, None)
        for id_ in list(self.table.get(link, {})):
            self._replace(link, id_, None)

    def advertisements_changed(self, link: LinkId, now: Time) -> None:
        self._admits.pop(link, None)
        self._look_again(link, now)

    def delay_changed(self, link: LinkId, now: Time) -> None:
        self._look_again(link, now)

    def _look_again(self, link: LinkId, now: Time) -> None:
        if link in self._shares:
            self._changed[link] = dict.fromkeys(self._shares[link])
            self._tell(now)

    def measures(self, link: LinkId) -> bool:
        return self.broker.peers[link] is Peer.BROKER

    def carries(self, link: LinkId) -> bool:
        return any(share.told is not None for share in self._shares.get(link, {}).values())
