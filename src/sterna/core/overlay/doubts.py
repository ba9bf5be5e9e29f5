"""Whether earlier events may still come on another way than the one that later ones have taken.

An event went by the tree of its time. If a link of that tree is gone, the event may be kept at one
of its ends, and come when that end has *served* the branch behind the link; see `branches`. While
that end is in reach, what is published now may come first. The same holds while there is a ring:
then a link is gone, and nobody has said yet which.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from sterna.core.names import NodeId, Time
from sterna.core.overlay.messages import OverlayLink
from sterna.model.event import Event

LONGEST = 3
"""Clients wait so many times as long at most, if other links are lost meanwhile."""


@dataclass(slots=True)
class Lost:
    """A link that is gone, and one end of it that may have kept something for this broker."""

    way: dict[NodeId, None]
    """The brokers from the other end to this one. The first of them that is reached is served."""
    since: Time
    waits_since: Time | None = None
    """Since when clients wait for it."""


class KeptLost(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of such a link."""

    link: OverlayLink
    far: NodeId
    way: list[NodeId]
    since: Time
    waits_since: Time | None


class KeptDoubts(msgspec.Struct, frozen=True, kw_only=True):
    """What it holds of all of them."""

    lost: list[KeptLost]
    links: list[OverlayLink]
    ring_since: Time | None
    waits_since: Time | None


class Doubts:
    """The links that are gone, as one broker sees it, and whether its clients wait for them."""

    def __init__(self, here: NodeId) -> None:
        self.here = here
        self.lost: dict[tuple[OverlayLink, NodeId], Lost] = {}
        """By link and far end."""
        self.waits_since: Time | None = None
        """Since when clients wait, if they do."""
        self._links: dict[OverlayLink, None] = {}
        """The overlay as it was last seen."""
        self._ring_since: Time | None = None

    def compare(self, links: Iterable[OverlayLink], brokers: Collection[NodeId], now: Time) -> bool:
        """Find the links that are gone since the overlay was last seen; whether it has changed."""
        before, self._links = self._links, dict.fromkeys(links)
        for link in [each for each in before if each not in self._links]:
            self._note(link, before, now)
        if len(self._links) < len(brokers):
            self._ring_since = None
        elif self._ring_since is None:
            self._ring_since = now
        return self._links != before

    def _note(self, link: OverlayLink, before: Iterable[OverlayLink], now: Time) -> None:
        """Links count that were lost before, and have not been made up for.

        So it may be unknown which end is the far one; then either may have kept something.
        """
        known = dict.fromkeys((*before, *(lost for lost, _ in self.lost)))
        nearer = tree([each for each in known if each != link], self.here)
        # What clients wait for already may be what is missing now.
        waits_since = None if self.waits_since is None else now
        for near, far in ((link.a, link.b), (link.b, link.a)):
            if near in nearer and far != self.here:
                way, broker = {near: None}, near
                while broker != self.here:
                    broker = nearer[broker]
                    way[broker] = None
                self.lost[link, far] = Lost(way, now, waits_since)

    def served(self, link: OverlayLink, end: NodeId, by: NodeId) -> None:
        """One end of a link has sent a broker what it had kept for its branch, and that is here."""
        lost = self.lost.get((link, end))
        if lost is not None and by in lost.way:
            del self.lost[link, end]

    def expects_from_others(self, behind: Collection[NodeId]) -> bool:
        """Whether something is expected of brokers other than these."""
        return any(
            lost.waits_since is not None and far not in behind
            for (_, far), lost in self.lost.items()
        )

    def look(
        self, is_in_reach: Callable[[NodeId], bool], now: Time, *, patience_us: Time, keep_us: Time
    ) -> tuple[Time | None, bool]:
        """Until when clients wait, None if they do not; and whether nothing was given up."""
        has_all, begun = True, self.waits_since
        is_enough = begun is not None and begun + LONGEST * patience_us <= now
        for key, lost in list(self.lost.items()):
            _, far = key
            in_reach = is_in_reach(far)
            if in_reach and lost.waits_since is None:
                lost.waits_since = now
            is_over = lost.waits_since is not None and (
                is_enough or lost.waits_since + patience_us <= now
            )
            if (in_reach and is_over) or lost.since + keep_us <= now:
                del self.lost[key]
                has_all = False
            elif is_over:
                lost.waits_since = None  # It is waited for again when that end is in reach.
                has_all = False
        since = [each.waits_since for each in self.lost.values() if each.waits_since is not None]
        ring_since = self._ring_since
        if ring_since is not None and not is_enough and now < ring_since + patience_us:
            since.append(ring_since)
        return (min(since) + patience_us if since else None), has_all

    def clear(self) -> None:
        """Nothing is expected any more."""
        self.lost.clear()
        self._ring_since = None

    def keep(self) -> KeptDoubts:
        """What a snapshot has to hold."""
        return KeptDoubts(
            lost=[
                KeptLost(
                    link=link,
                    far=far,
                    way=list(lost.way),
                    since=lost.since,
                    waits_since=lost.waits_since,
                )
                for (link, far), lost in self.lost.items()
            ],
            links=list(self._links),
            ring_since=self._ring_since,
            waits_since=self.waits_since,
        )

    def restore(self, kept: KeptDoubts) -> None:
        """Go on with what a snapshot has held."""
        self.lost = {
            (each.link, each.far): Lost(dict.fromkeys(each.way), each.since, each.waits_since)
            for each in kept.lost
        }
        self._links = dict.fromkeys(kept.links)
        self._ring_since, self.waits_since = kept.ring_since, kept.waits_since


def tree(links: Iterable[OverlayLink], root: NodeId) -> dict[NodeId, NodeId]:
    """For each broker, the next one on the way to the root; the root itself for the root."""
    beside: dict[NodeId, list[NodeId]] = {}
    for link in links:
        beside.setdefault(link.a, []).append(link.b)
        beside.setdefault(link.b, []).append(link.a)
    nearer, to_visit = {root: root}, deque([root])
    while to_visit:
        broker = to_visit.popleft()
        for other in beside.get(broker, ()):
            if other not in nearer:
                nearer[other] = broker
                to_visit.append(other)
    return nearer


def in_order(events: Sequence[Event]) -> list[Event]:
    """Events in the same order, but for those of one publisher, which are in that of numbers."""
    places: dict[NodeId, list[int]] = {}
    for place, event in enumerate(events):
        places.setdefault(event.publisher, []).append(place)
    found = list(events)
    for mine in places.values():
        ordered = sorted((events[place] for place in mine), key=lambda event: event.seq)
        for place, event in zip(mine, ordered, strict=True):
            found[place] = event
    return found
