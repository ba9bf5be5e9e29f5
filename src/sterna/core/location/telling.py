"""What one neighbour is told of moving routes: of those that are the same to it, one."""

from collections.abc import Callable, Hashable

import msgspec

from sterna.core.messages import MovingRoute
from sterna.core.names import LinkId, RouteId
from sterna.model.filters import Filter

Source = tuple[LinkId, RouteId]
"""Where a route comes from, and its name there."""


class Share:
    """Routes that are the same to a neighbour, so that it is told of the first for all of them."""

    def __init__(self, first: MovingRoute) -> None:
        self.first = first
        self.sources: dict[Source, None] = {}
        self.told_as: RouteId | None = None
        """The name by which the neighbour knows it, if it does."""


class Telling:
    """The shares that concern one neighbour, and which of them it knows."""

    def __init__(self, name: Callable[[], RouteId]) -> None:
        self.shares: dict[Hashable, Share] = {}
        self.likeness_of: dict[Source, Hashable] = {}
        self._name = name
        self._changed: dict[Hashable, None] = {}

    def put(self, source: Source, route: MovingRoute, likeness: Hashable) -> None:
        """A route has come, or has changed; routes of the same likeness are told as one."""
        self.drop(source)
        share = self.shares.setdefault(likeness, Share(route))
        share.sources[source] = None
        self.likeness_of[source] = likeness
        self._changed[likeness] = None

    def drop(self, source: Source) -> None:
        """A route has gone, if it was there."""
        likeness = self.likeness_of.pop(source, None)
        if likeness is not None:
            del self.shares[likeness].sources[source]
            self._changed[likeness] = None

    def look_again(self) -> None:
        """What the neighbour has to hear has changed."""
        self._changed = dict.fromkeys(self.shares)

    def difference(
        self, must_hear: Callable[[Filter], bool]
    ) -> tuple[list[MovingRoute], list[RouteId]]:
        """What has come and gone since the neighbour was told; from now on it knows that."""
        begun, ended = [], []
        for likeness in self._changed:
            share = self.shares[likeness]
            is_wanted = bool(share.sources) and must_hear(share.first.filter)
            if is_wanted and share.told_as is None:
                begun.append(share)
            elif share.told_as is not None and not is_wanted:
                ended.append(share.told_as)
                share.told_as = None
            if not share.sources:
                del self.shares[likeness]
        self._changed.clear()
        for share in begun:  # Under the name of one that has ended: its clients have moved.
            share.told_as = ended.pop(0) if ended else self._name()
        return [_named(share.first, share.told_as) for share in begun], ended

    @property
    def is_empty(self) -> bool:
        """Whether the neighbour knows none."""
        return not any(share.told_as is not None for share in self.shares.values())


def _named(route: MovingRoute, name: RouteId | None) -> MovingRoute:
    assert name is not None
    return msgspec.structs.replace(route, id=name)
