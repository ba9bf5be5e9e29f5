"""The client's part in moving subscriptions: where it is, and what it wants there.

The client is the paper's local broker: it filters exactly by its location (F_0), and announces
every move to its border broker. (Fiege, Fig. 12) What depends only on variables is announced as an
ordinary subscription, for the ranges of the variables. (Fiege, 6)
"""

from typing import Self, cast

import msgspec

from sterna.core import facts
from sterna.core.component import ClientComponent
from sterna.core.differences import difference
from sterna.core.history.recall import Recall
from sterna.core.inputs import MoveTo, SetVariable
from sterna.core.keeping import Reader, Writer
from sterna.core.location.context import Context, Variable, variable
from sterna.core.location.measuring import KeptMeasuring, Measuring
from sterna.core.location.messages import MovingChange, MovingRoute
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell, Stays
from sterna.core.location.steps import StepRule
from sterna.core.messages import Message
from sterna.core.names import LinkId, LocalProtocolError, RouteId, Time
from sterna.core.settings import Settings
from sterna.model.location import LocationError, LocationSpace


class KeptWhereabouts(msgspec.Struct, frozen=True):
    """What a snapshot holds of a client's location and variables."""

    measured: KeptMeasuring
    location: str | None
    variables: dict[str, Variable]
    stays: list[Time]
    since: Time
    told: list[MovingRoute]
    has_told: bool
    was_away: bool


class Whereabouts(Measuring, ClientComponent):
    """Knows what a client's subscriptions depend on, and what its broker knows of that."""

    name = "moving"
    handles = (*Measuring.handles, MovingChange)
    Kept = KeptWhereabouts

    @classmethod
    def make(cls, settings: Settings) -> Self:
        places = settings.places or PlacesOptions()
        how = places.dwell if places.rule.is_timed else Dwell.FIXED
        return cls(
            places.space(),
            places.rule,
            Stays(how, places.dwell_us),
            digest=places.digest(),
            probe_us=places.probe_us,
            grain_us=places.grain_us,
        )

    def __init__(
        self,
        space: LocationSpace,
        rule: StepRule,
        stays: Stays,
        *,
        digest: int,
        probe_us: Time,
        grain_us: Time,
    ) -> None:
        super().__init__(probe_us=probe_us, grain_us=grain_us, is_timed=rule.is_timed)
        self.context = Context(space=space)
        self._places = digest
        """The digest of the places that the client uses."""
        self._stays = stays
        self._since: Time = 0
        """When the client came to its location."""
        self._told: dict[RouteId, MovingRoute] = {}
        """What the broker knows of moving subscriptions."""
        self._has_told = False
        """Whether one was ever announced to a broker."""
        self._was_away = False
        """Whether to announce the location to the broker even if it is unchanged."""

    # ---- Settings and snapshots

    def configure(self, settings: Settings, now: Time) -> None:
        """Use other locations or another rule."""
        places = settings.places
        if places is None:
            return
        self._stays.configure(
            places.dwell if places.rule.is_timed else Dwell.FIXED, places.dwell_us
        )
        self.measure(places.probe_us, places.grain_us, is_timed=places.rule.is_timed, now=now)
        self.context = msgspec.structs.replace(self.context, space=places.space())
        self._places = places.digest()
        for name, filter_ in self.client.subscriptions.items():
            if not filter_.is_bound:
                self.client.wants.adapt(name, self.context.exact_or_anywhere(filter_), now)
        self.tell(now)

    def end(self, now: Time) -> bool:
        """Whether no subscription depends on a location or variable."""
        del now
        return all(filter_.is_bound for filter_ in self.client.subscriptions.values())

    def keep(self, writer: Writer) -> KeptWhereabouts:
        del writer
        return KeptWhereabouts(
            measured=self.keep_measured(),
            location=self.context.location,
            variables=dict(self.context.variables),
            stays=self._stays.keep(),
            since=self._since,
            told=list(self._told.values()),
            has_told=self._has_told,
            was_away=self._was_away,
        )

    def restore(self, kept: KeptWhereabouts, reader: Reader) -> None:
        del reader
        self.restore_measured(kept.measured)
        self.context = msgspec.structs.replace(
            self.context, location=kept.location, variables=kept.variables
        )
        self._stays.restore(kept.stays)
        self._since, self._has_told, self._was_away = kept.since, kept.has_told, kept.was_away
        self._told = {route.id: route for route in kept.told}

    # ---- From the application

    def move(self, given: MoveTo, now: Time) -> None:
        """Set the location of the client."""
        before, space = self.context.location, self.context.space
        if given.location == before:
            return
        if given.location not in space:
            raise LocalProtocolError(_nowhere(given.location, space))
        moved = facts.Moved(at=self.client.id, time=now, location=given.location)
        self._adapt(msgspec.structs.replace(self.context, location=given.location), moved)
        if before is not None:
            self._stays.ended(now - self._since)
        self._since = now
        self.tell(now)
        for follow in self.client.hooks.moved:
            follow(now)

    def set(self, given: SetVariable, now: Time) -> None:
        """Set a variable of the client."""
        before = self.context
        old = before.variables.get(given.name)
        new = variable(given) if old is None else old.changed(given)
        changed = facts.VariableSet(at=self.client.id, time=now, name=given.name, value=given.value)
        variables = {**before.variables, given.name: new}
        self._adapt(msgspec.structs.replace(before, variables=variables), changed)
        self.tell(now)
        if old is None or old[1:] != new[1:]:
            still = [
                name
                for name, filter_ in self.client.subscriptions.items()
                if given.name in filter_.variables and not filter_.uses_myloc
            ]
            self.client.wants.tell_again(still, now)

    def _adapt(self, context: Context, why: facts.Moved | facts.VariableSet) -> None:
        """Filter exactly for another context, or change nothing if that is not possible."""
        stays = context.location == self.context.location
        meaning = context.exact_or_anywhere if stays else context.exact
        exact = {
            name: meaning(filter_)
            for name, filter_ in self.client.subscriptions.items()
            if not filter_.is_bound
        }
        self.context = context
        self.client.state(why)
        for name, filter_ in exact.items():
            self.client.wants.adapt(name, filter_, why.time)

    # ---- To the broker

    def tell(self, now: Time) -> None:
        """Announce to the broker what has changed since the last time, if the link is up."""
        client = self.client
        link = client.link
        if link is None or link not in client.up or not client.is_introduced:
            return  # Later, or with the introduction.
        routes = self._routes(link)
        changed, removed = difference(self._told, routes)
        if self._was_away and self._has_told:
            change = MovingChange(added=tuple(routes.values()), anew=True)
        elif changed or removed:
            change = MovingChange(added=tuple(routes[id_] for id_ in changed), removed=removed)
        else:
            return
        self._told, self._has_told, self._was_away = routes, True, False
        self.node.send(link, change, now)
        self.keep_measuring(link, now)

    def on_moving_change(self, message: MovingChange, link: LinkId, now: Time) -> None:
        """The broker has begun to route moving subscriptions, and knows none of the client's."""
        if message.anew and link == self.client.link:
            self._was_away = True
            self.tell(now)
            self.answers_now(link, now)

    def introduction(self) -> tuple[Message, ...]:
        self._was_away = False
        link = self.client.link
        self._told = {} if link is None else self._routes(link)
        self._has_told |= bool(self._told)
        if not self._has_told:
            return ()
        return (MovingChange(added=tuple(self._told.values()), anew=True),)

    def _routes(self, link: LinkId) -> dict[RouteId, MovingRoute]:
        at = self.context.location
        routes = {}
        for name, filter_ in self.client.subscriptions.items():
            if filter_.uses_myloc and at is not None:
                id_ = self.client.route(name)
                routes[id_] = MovingRoute(
                    id=id_,
                    filter=self.context.told(filter_),
                    at=at,
                    dwell_us=self._stays.dwell_us,
                    delay_us=self.delay_us(link),
                    places=self._places,
                    past=self._past_of(name),
                )
        return routes

    def _past_of(self, name: str) -> tuple[int | None, Time | None] | None:
        """What a subscription begins with wherever the client comes; None if with nothing."""
        recall = self.client.part(Recall.name)
        return None if recall is None else cast("Recall", recall).bounds_here(name)

    # ---- Moments

    def link_up(self, link: LinkId, now: Time) -> None:
        super().link_up(link, now)
        self.tell(now)

    def link_down(self, link: LinkId, now: Time) -> None:
        super().link_down(link, now)
        self._was_away = True

    def delay_changed(self, link: LinkId, now: Time) -> None:
        if link == self.client.link:
            self.tell(now)

    def carries(self, link: LinkId) -> bool:
        return link == self.client.link and bool(self._told)


def _nowhere(location: str, space: LocationSpace) -> str:
    """Why a client cannot be there, in the words of the space."""
    try:
        space.ploc(location, 0)
    except LocationError as error:
        return str(error)
    return f"{location!r} is not a location of {space!r}: use one"
