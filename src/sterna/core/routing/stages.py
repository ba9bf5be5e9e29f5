"""A strategy is a chain of stages: filters come and go at its head, and what has to be announced to
a neighbour comes out at its end.

Each stage passes on fewer routes than it is given and does, for one change, work for that change
only. `tests/core/routing/definitions.py` defines what each strategy must give in the end; the
stages are tested against it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from sterna.core.differences import difference
from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.model.filters import Filter
from sterna.model.filters.tree import Always

EVERYTHING = Filter.from_condition(Always(verdict=True))  # Needs no parser.

NameRoute = Callable[[], RouteId]
"""Gives a name that was not used before."""


class Effort:
    """How much may be done in one turn, in steps of about a tenth of a millisecond.

    What is left is done in later turns, so that a broker has time for others in between. Without a
    number, nothing is left.
    """

    def __init__(self, steps: int = 2**62) -> None:
        self.steps = steps

    def __bool__(self) -> bool:
        return self.steps > 0


class Stage:
    """Passes on what it is given; the base of those that do more."""

    onward: "Stage"

    @property
    def waits(self) -> bool:
        """Whether something is left to do. What comes out is too much until then, never too little,
        if only what is added is announced.
        """
        return False

    @property
    def has_new(self) -> bool:
        """Whether something that has come waits, so that too little comes out."""
        return False

    def add(self, route: Route) -> None:
        """A route has come."""
        self.onward.add(route)

    def remove(self, route: Route) -> None:
        """A route has gone: the very one that was added."""
        self.onward.remove(route)

    def many_go(self) -> None:
        """Many routes are about to go in this turn."""
        self.onward.many_go()

    def many_come(self) -> None:
        """Many routes are about to come in this turn; those after it may wait for other turns.

        Until they have come out, too little does. So nobody may rely on them before.
        """
        self.onward.many_come()

    def flush(self, effort: Effort) -> None:
        """All changes of a turn are known: pass on what waited for that, as far as there is time.

        What was added in this turn does not wait any longer.
        """

    def keep(self) -> Any:
        """What a snapshot has to hold, as plain data, filters and routes."""

    def restore(self, kept: Any) -> None:
        """Go on with what a snapshot has held."""


class KeptDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of what was and will be announced to a neighbour."""

    told: list[Route]
    added: list[Route]
    removed: list[Route]
    looked_at: bool = True
    withheld: bool = False
    """Whether something may end that was not announced; earlier releases have none."""


class Difference(Stage):
    """The end of a chain: what changed since the last announcement to the neighbour."""

    def __init__(self) -> None:
        self.told: dict[RouteId, Route] = {}
        self.added: dict[RouteId, Route] = {}
        self.removed: dict[RouteId, Route] = {}
        """What was announced and has ended."""
        self.ended: dict[RouteId, Route] = {}
        """What has ended before it was announced. It may be needed for what waits in the chain;
        see `take_added`."""

    def add(self, route: Route) -> None:
        self.removed.pop(route.id, None)
        self.ended.pop(route.id, None)
        if self.told.get(route.id) != route:
            self.added[route.id] = route  # A known name: it replaces the earlier announcement.

    def remove(self, route: Route) -> None:
        if route.id in self.told:
            self.added.pop(route.id, None)
            self.removed[route.id] = route
        elif route.id in self.added:
            self.ended[route.id] = route

    def many_go(self) -> None:
        pass  # There is little to do for each.

    def many_come(self) -> None:
        pass

    @property
    def is_unlooked(self) -> bool:
        """Whether `is_due` takes long, because the difference was not looked at closely yet."""
        return False

    def is_due(self, looking: Effort) -> bool:
        """Whether there is something to announce to the neighbour, if nothing waits."""
        del looking
        self.forget_unannounced()
        return bool(self.added or self.removed)

    def look_again(self) -> None:
        """Something else has changed that may make it due."""

    def take(self) -> tuple[tuple[Route, ...], tuple[RouteId, ...]]:
        """Take the difference; it counts as announced from now on."""
        self.forget_unannounced()
        added, removed = tuple(self.added.values()), tuple(self.removed)
        for id_ in removed:
            del self.told[id_]
        self.told |= self.added
        self.added.clear()
        self.removed.clear()
        return added, removed

    def take_added(self) -> tuple[Route, ...]:
        """Take only what was added, even if it has ended: something waits that may need it."""
        added = tuple(self.added.values())
        self.told |= self.added
        self.removed |= self.ended
        self.added.clear()
        self.ended.clear()
        return added

    def forget(self) -> None:
        """The neighbour has lost its state."""
        self.added = self.told | self.added
        self.ended |= self.removed
        self.told, self.removed = {}, {}

    def forget_unannounced(self) -> None:
        """Drop what has ended before it was announced; nothing may wait that needs it."""
        for id_ in self.ended:
            del self.added[id_]
        self.ended.clear()

    def follow(self, before: "Difference") -> None:
        """Take over from another difference: the neighbour knows what that one announced."""
        wanted = self.added
        self.told = before.told
        added, removed = difference(self.told, wanted)
        self.added = {id_: wanted[id_] for id_ in added}
        self.removed = {id_: self.told[id_] for id_ in removed}
        self.removed |= {id_: route for id_, route in self.ended.items() if id_ not in self.added}
        self.ended = {id_: route for id_, route in self.ended.items() if id_ in self.added}
        self.look_again()

    def keep(self) -> KeptDifference:
        return KeptDifference(
            told=list(self.told.values()),
            added=list(self.added.values()),
            removed=[*self.removed.values(), *self.ended.values()],
        )

    def restore(self, kept: KeptDifference) -> None:
        self.told = {route.id: route for route in kept.told}
        self.added = {route.id: route for route in kept.added}
        self.removed = {route.id: route for route in kept.removed if route.id in self.told}
        self.ended = {route.id: route for route in kept.removed if route.id not in self.told}


class Nothing(Stage):
    """Nothing is announced, whatever comes and goes."""

    def add(self, route: Route) -> None:
        pass

    def remove(self, route: Route) -> None:
        pass

    def keep(self) -> "KeptNothing":
        return KeptNothing()

    def restore(self, kept: "KeptNothing") -> None:
        pass


class KeptNothing(msgspec.Struct, frozen=True, tag=True):
    """What a snapshot holds where nothing is announced."""


class Everything(Stage):
    """Flooding: one filter that matches all, whatever comes and goes."""

    def __init__(self, name: NameRoute) -> None:
        self._route = Route(name(), EVERYTHING)

    def begin(self) -> None:
        """Announce that everything is wanted, once."""
        self.onward.add(self._route)

    def add(self, route: Route) -> None:
        pass

    def remove(self, route: Route) -> None:
        pass

    def keep(self) -> "KeptEverything":
        return KeptEverything(self._route)

    def restore(self, kept: "KeptEverything") -> None:
        self._route = kept.route


class KeptEverything(msgspec.Struct, frozen=True, tag=True):
    """What a snapshot holds of flooding."""

    route: Route


class Distinct(Stage):
    """Identity: equal filters count as one."""

    def __init__(self, name: NameRoute) -> None:
        self._name = name
        self._routes: dict[Filter, Route] = {}
        self._counts: dict[Filter, int] = {}

    def add(self, route: Route) -> None:
        count = self._counts.get(route.filter, 0)
        self._counts[route.filter] = count + 1
        if count == 0:
            self._routes[route.filter] = Route(self._name(), route.filter)
            self.onward.add(self._routes[route.filter])

    def remove(self, route: Route) -> None:
        self._counts[route.filter] -= 1
        if self._counts[route.filter] == 0:
            del self._counts[route.filter]
            self.onward.remove(self._routes.pop(route.filter))

    def keep(self) -> "KeptDistinct":
        routes = [(route, self._counts[filter_]) for filter_, route in self._routes.items()]
        return KeptDistinct(routes)

    def restore(self, kept: "KeptDistinct") -> None:
        for route, count in kept.routes:
            self._routes[route.filter] = route
            self._counts[route.filter] = count


class KeptDistinct(msgspec.Struct, frozen=True, tag=True):
    """What a snapshot holds of equal filters that count as one: each with how many there are."""

    routes: list[tuple[Route, int]]


class Fan(Stage):
    """The end of a chain that several listen to."""

    def __init__(self) -> None:
        self._current: dict[RouteId, Route] = {}
        self._ended: dict[RouteId, Route] = {}
        """What has ended and may be needed for what waits in the chain."""
        self._listeners: list[Difference] = []

    def join(self, listener: Difference) -> None:
        """One more listener, who knows nothing yet."""
        for route in self._current.values():
            listener.add(route)
        listener.added |= self._ended
        listener.ended |= self._ended
        self._listeners.append(listener)

    def forget_ended(self) -> None:
        """Nothing waits: what has ended is not needed any more."""
        self._ended.clear()

    def leave(self, listener: Difference) -> None:
        self._listeners.remove(listener)

    def add(self, route: Route) -> None:
        self._current[route.id] = route
        self._ended.pop(route.id, None)
        for listener in self._listeners:
            listener.add(route)

    def remove(self, route: Route) -> None:
        self._ended[route.id] = self._current.pop(route.id)
        for listener in self._listeners:
            listener.remove(route)

    def many_go(self) -> None:
        pass

    def many_come(self) -> None:
        pass

    def keep(self) -> tuple[list[Route], list[Route]]:
        return list(self._current.values()), list(self._ended.values())

    def restore(self, kept: tuple[list[Route], list[Route]]) -> None:
        """Go on with what a snapshot has held; listeners come back by `rejoin`."""
        current, ended = kept
        self._current = {route.id: route for route in current}
        self._ended = {route.id: route for route in ended}

    def rejoin(self, listener: Difference) -> None:
        """A listener is back that knows already what it has to."""
        self._listeners.append(listener)


class Chain:
    """Stages one after the other, to an end where the routes come out."""

    def __init__(self, stages: list[Stage], end: Stage, *, begins: bool = True) -> None:
        """Join stages; one that is restored does not begin."""
        chain = [*stages, end]
        for stage, onward in pairwise(chain):
            stage.onward = onward
        self.add = chain[0].add
        self.remove = chain[0].remove
        self.many_go = chain[0].many_go
        self.many_come = chain[0].many_come
        self._stages = stages
        for stage in stages:
            if begins and isinstance(stage, Everything):
                stage.begin()

    def flush(self, effort: Effort) -> None:
        """All changes of a turn are known."""
        for stage in self._stages:
            stage.flush(effort)

    @property
    def waits(self) -> bool:
        """Whether something is left to do in later turns."""
        for stage in self._stages:  # noqa: SIM110 - a generator costs more, and this is asked often.
            if stage.waits:
                return True
        return False

    @property
    def has_new(self) -> bool:
        """Whether something that has come waits."""
        return any(stage.has_new for stage in self._stages)

    def keep(self) -> list[Any]:
        """What a snapshot has to hold of each stage."""
        return [stage.keep() for stage in self._stages]

    def restore(self, kept: Sequence[Any]) -> None:
        """Go on with what a snapshot has held."""
        for stage, each in zip(self._stages, kept, strict=True):
            stage.restore(each)
