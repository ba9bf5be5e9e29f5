"""Merging: filters that are nearly the same are passed on as one.

Filters that agree in all attributes but one have a union that is again one conjunction, so joining
them is exact (perfect merging). Imperfect merging also joins filters that differ in two attributes,
as long as they agree in another: the result then accepts combinations of the two that nobody asked
for, and only those.
"""

from itertools import combinations
from typing import NamedTuple

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.stages import NameRoute, Stage
from sterna.model.filters import Filter, merge
from sterna.model.filters.normal_form import Term
from sterna.model.filters.tree import Condition
from sterna.model.filters.values import ValueSet

ATTRIBUTES_MAX = 12
"""Filters on more attributes are passed on as they are; they have too many ways to be joined."""


class MergeGroup:
    """Routes that are passed on as one."""

    def __init__(self, id_: RouteId, key: "Key", first: Route) -> None:
        self.id = id_
        self.key = key
        self.first = first
        """The first route that ever joined; the group's key is that of this route."""
        self.members: dict[RouteId, Route] = {}
        self.merged: Route | None = None
        """The route that was passed on for them."""


class Merged(Stage):
    """Joins each route with others that agree with it in all attributes but one (or two).

    Groups are merged when all changes of a turn are known, each once.
    """

    def __init__(self, name: NameRoute, *, exact: bool, members_max: int) -> None:
        self._name = name
        self._exact = exact
        self._members_max = members_max
        self._alone: dict[RouteId, tuple[Route, tuple[Key, ...]]] = {}
        """Routes that are passed on as they are, with the keys under which others may join them."""
        self._joinable: dict[Key, dict[RouteId, Route]] = {}
        self._open: dict[Key, dict[RouteId, MergeGroup]] = {}
        """Groups with room, by key."""
        self._group_of: dict[RouteId, MergeGroup] = {}
        self._changed: dict[RouteId, MergeGroup] = {}

    def add(self, route: Route) -> None:
        keys = self._keys(route.filter)
        for key in keys:
            if key in self._open:
                self._join(next(iter(self._open[key].values())), route)
                return
        for key in keys:
            if key in self._joinable:
                first = next(iter(self._joinable[key].values()))
                self._no_longer_alone(first)
                group = MergeGroup(self._name(), key, first)
                self._join(group, first)
                self._join(group, route)
                return
        self._stand_alone(route, keys)
        self.onward.add(route)

    def _stand_alone(self, route: Route, keys: "tuple[Key, ...]") -> None:
        self._alone[route.id] = route, keys
        for key in keys:
            self._joinable.setdefault(key, {})[route.id] = route

    def remove(self, route: Route) -> None:
        if route.id in self._alone:
            self._no_longer_alone(route)
        else:
            self._leave(self._group_of[route.id], route)

    def flush(self) -> None:
        while self._changed:
            _, group = self._changed.popitem()
            members = list(group.members.values())
            before, group.merged = group.merged, None
            if len(members) > 1:
                group.merged = self._merge(members)
                self.onward.add(group.merged)
            else:  # A single route is no group; it may join another.
                self._close(group)
                for last in members:
                    del self._group_of[last.id]
                    self.add(last)
            if before is not None:
                self.onward.remove(before)

    def keep(self) -> "KeptMerged":
        groups = {group.id: group for group in self._group_of.values()} | self._changed
        return KeptMerged(
            alone=[route for route, _ in self._alone.values()],
            groups=[
                KeptGroup(
                    group.id,
                    group.key.differing,
                    group.first,
                    list(group.members.values()),
                    group.merged,
                )
                for group in groups.values()
            ],
            open=[id_ for groups_of_key in self._open.values() for id_ in groups_of_key],
            changed=list(self._changed),
        )

    def restore(self, kept: "KeptMerged") -> None:
        for route in kept.alone:
            self._stand_alone(route, self._keys(route.filter))
        groups = {}
        for each in kept.groups:
            (term,) = each.first.filter.normal_form or ()
            group = groups[each.id] = MergeGroup(each.id, _key(term, each.differing), each.first)
            group.members = {route.id: route for route in each.members}
            group.merged = each.merged
            self._group_of |= dict.fromkeys(group.members, group)
        for id_ in kept.open:
            self._open.setdefault(groups[id_].key, {})[id_] = groups[id_]
        self._changed = {id_: groups[id_] for id_ in kept.changed}

    def _join(self, group: MergeGroup, route: Route) -> None:
        group.members[route.id] = route
        self._group_of[route.id] = group
        self._changed[group.id] = group
        if len(group.members) < self._members_max:
            self._open.setdefault(group.key, {})[group.id] = group
        else:
            self._close(group)

    def _leave(self, group: MergeGroup, route: Route) -> None:
        del group.members[route.id], self._group_of[route.id]
        self._changed[group.id] = group
        self._open.setdefault(group.key, {})[group.id] = group

    def _close(self, group: MergeGroup) -> None:
        groups = self._open.get(group.key, {})
        if groups.pop(group.id, None) is not None and not groups:
            del self._open[group.key]

    def _merge(self, members: list[Route]) -> Route:
        return Route(self._name(), merge((m.filter for m in members), exact=self._exact))

    def _no_longer_alone(self, route: Route) -> None:
        for key in self._alone.pop(route.id)[1]:
            routes = self._joinable[key]
            del routes[route.id]
            if not routes:
                del self._joinable[key]
        self.onward.remove(route)

    def _keys(self, filter_: Filter) -> "tuple[Key, ...]":
        """Filters that may be joined have a key in common; the keys of exact joins come first."""
        form = filter_.normal_form
        if form is None or len(form) != 1 or len(form[0].constraints) > ATTRIBUTES_MAX:
            return ()
        (term,) = form
        names = sorted(term.constraints)
        keys = [_key(term, (name,)) for name in names]
        if not self._exact and len(names) > 2:
            keys += [_key(term, pair) for pair in combinations(names, 2)]
        return tuple(keys)


class KeptGroup(msgspec.Struct, frozen=True):
    """What a snapshot holds of a group."""

    id: RouteId
    differing: tuple[str, ...]
    first: Route
    members: list[Route]
    merged: Route | None


class KeptMerged(msgspec.Struct, frozen=True, tag=True):
    """What a snapshot holds of merging."""

    alone: list[Route]
    groups: list[KeptGroup]
    open: list[RouteId]
    """The groups with room, the first to be joined first."""
    changed: list[RouteId]
    """The groups that are to be merged anew."""


class Key(NamedTuple):
    """What filters agree in; filters with equal keys may be joined."""

    differing: tuple[str, ...]
    """The attributes in which they may differ."""
    others: frozenset[tuple[str, ValueSet]]
    residuals: frozenset[Condition]


def _key(term: Term, differing: tuple[str, ...]) -> Key:
    """A key that is equal for terms that agree in all attributes but these."""
    others = frozenset(item for item in term.constraints.items() if item[0] not in differing)
    return Key(differing, others, frozenset(term.residuals))
