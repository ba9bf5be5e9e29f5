"""Merging: filters that are nearly the same are passed on as one.

Filters that agree in all attributes but one have a union that is again one conjunction, so joining
them is exact (perfect merging). Imperfect merging also joins filters that differ in two attributes,
as long as they agree in another: the result then accepts combinations of the two that nobody asked
for, and only those.

What is passed on is always a filter that the neighbour can read. Filters that are long together are
not joined: each change of one would send all of them. If a join turns out to be more than a parser
accepts all the same, its parts are passed on instead, and do not join others any more.
"""

from itertools import combinations
from typing import NamedTuple

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.stages import Effort, NameRoute, Stage
from sterna.model.filters import Filter, merge
from sterna.model.filters.normal_form import Term
from sterna.model.filters.tree import Condition
from sterna.model.filters.values import ValueSet

ATTRIBUTES_MAX = 12
"""Filters on more attributes are passed on as they are; they have too many ways to be joined."""

CHARACTERS_MAX = 32_768
"""How many characters the filters of a group have together, at most. Reading more than this takes a
neighbour a noticeable part of a second, and it is far below what the parser accepts."""


class MergeGroup:
    """Routes that are passed on as one."""

    def __init__(self, id_: RouteId, key: "Key", first: Route) -> None:
        self.id = id_
        self.key = key
        self.first = first
        """The first route that ever joined; the group's key is that of this route."""
        self.members: dict[RouteId, Route] = {}
        self.characters = 0
        """How long the filters of the members are together."""
        self.merged: Route | None = None
        """The route that was passed on for them."""

    def put(self, route: Route) -> None:
        """Add a member."""
        self.members[route.id] = route
        self.characters += _length(route)

    def drop(self, route: Route) -> None:
        """Remove a member."""
        del self.members[route.id]
        self.characters -= _length(route)


class Merged(Stage):
    """Joins each route with others that agree with it in all attributes but one (or two).

    Groups are merged when all changes of a turn are known, each once. Those that have only become
    smaller may wait for another turn.
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
        self._apart: dict[RouteId, None] = {}
        """Routes that stand alone for good: their join could not be read."""
        self._group_of: dict[RouteId, MergeGroup] = {}
        self._changed: dict[RouteId, MergeGroup] = {}
        self._joined: dict[RouteId, None] = {}
        """The groups that have new members in this turn."""

    @property
    def waits(self) -> bool:
        return bool(self._changed)

    def add(self, route: Route) -> None:
        keys = self._keys(route)
        room = CHARACTERS_MAX - _length(route) if keys else 0
        for key in keys:
            for group in self._open.get(key, {}).values():
                if group.characters <= room:
                    self._join(group, route)
                    return
        for key in keys:
            for first in self._joinable.get(key, {}).values():
                if _length(first) <= room:
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
            self._apart.pop(route.id, None)
        else:
            self._leave(self._group_of[route.id], route)

    def flush(self, effort: Effort) -> None:
        later: list[MergeGroup] = []
        while self._changed:
            id_, group = self._changed.popitem()
            if not effort and id_ not in self._joined:
                later.append(group)
                continue
            members = list(group.members.values())
            effort.steps -= 1 + len(members)
            before, group.merged = group.merged, None
            merged = self._merge(members) if len(members) > 1 else None
            if merged is not None and merged.is_readable:
                group.merged = Route(self._name(), merged)
                self.onward.add(group.merged)
            else:  # A single route is no group; it may join another.
                self._close(group)
                for each in members:
                    del self._group_of[each.id]
                    if merged is not None:
                        self._apart[each.id] = None
                    self.add(each)
            if before is not None:
                self.onward.remove(before)
        self._changed = {each.id: each for each in reversed(later) if each.id not in self._joined}
        self._joined.clear()

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
            apart=list(self._apart),
            joined=list(self._joined),
        )

    def restore(self, kept: "KeptMerged") -> None:
        self._apart = dict.fromkeys(kept.apart)
        for route in kept.alone:
            self._stand_alone(route, self._keys(route))
        groups = {}
        for each in kept.groups:
            (term,) = each.first.filter.normal_form or ()
            group = groups[each.id] = MergeGroup(each.id, _key(term, each.differing), each.first)
            for route in each.members:
                group.put(route)
            group.merged = each.merged
            self._group_of |= dict.fromkeys(group.members, group)
        for id_ in kept.open:
            self._open.setdefault(groups[id_].key, {})[id_] = groups[id_]
        self._changed = {id_: groups[id_] for id_ in kept.changed}
        self._joined = dict.fromkeys(kept.joined)
        for id_, group in groups.items():  # An older release has passed on what nobody can read.
            if group.merged is not None and not group.merged.filter.is_readable:
                self._changed[id_] = group

    def _join(self, group: MergeGroup, route: Route) -> None:
        group.put(route)
        self._group_of[route.id] = group
        self._changed[group.id] = group
        self._joined[group.id] = None
        if len(group.members) < self._members_max:
            self._open.setdefault(group.key, {})[group.id] = group
        else:
            self._close(group)

    def _leave(self, group: MergeGroup, route: Route) -> None:
        group.drop(route)
        del self._group_of[route.id]
        self._changed[group.id] = group
        self._open.setdefault(group.key, {})[group.id] = group

    def _close(self, group: MergeGroup) -> None:
        groups = self._open.get(group.key, {})
        if groups.pop(group.id, None) is not None and not groups:
            del self._open[group.key]

    def _merge(self, members: list[Route]) -> Filter:
        return merge((m.filter for m in members), exact=self._exact)

    def _no_longer_alone(self, route: Route) -> None:
        for key in self._alone.pop(route.id)[1]:
            routes = self._joinable[key]
            del routes[route.id]
            if not routes:
                del self._joinable[key]
        self.onward.remove(route)

    def _keys(self, route: Route) -> "tuple[Key, ...]":
        """Filters that may be joined have a key in common; the keys of exact joins come first."""
        form = route.filter.normal_form
        if form is None or len(form) != 1 or len(form[0].constraints) > ATTRIBUTES_MAX:
            return ()
        if route.id in self._apart or _length(route) > CHARACTERS_MAX:
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
    apart: list[RouteId] = []
    """The routes that stand alone for good; earlier releases have none."""
    joined: list[RouteId] = []
    """The groups among the changed ones that have new members; earlier releases have none."""


class Key(NamedTuple):
    """What filters agree in; filters with equal keys may be joined."""

    differing: tuple[str, ...]
    """The attributes in which they may differ."""
    others: frozenset[tuple[str, ValueSet]]
    residuals: frozenset[Condition]


def _length(route: Route) -> int:
    """How many characters a filter has. Its text is kept: whoever announces it needs it."""
    return len(str(route.filter))


def _key(term: Term, differing: tuple[str, ...]) -> Key:
    """A key that is equal for terms that agree in all attributes but these."""
    others = frozenset(item for item in term.constraints.items() if item[0] not in differing)
    return Key(differing, others, frozenset(term.residuals))
