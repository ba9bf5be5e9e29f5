"""The union of merged filters: a change that leaves it as it was need not be announced.

A neighbour that joins filters passes on a new one when a filter is added that was covered here all
the time; the join as a whole is not covered, so it would be announced on and on through the
network. But together with what was announced already it matches the same events, so it can wait.
"""

from collections.abc import Iterable

import msgspec

from sterna.core.messages import Route
from sterna.core.names import RouteId
from sterna.core.routing.advertisements import AdvertisementGate
from sterna.core.routing.stages import Difference, Effort, KeptDifference
from sterna.model.filters import Filter, algebra
from sterna.model.filters.algebra import Work
from sterna.model.filters.normal_form import NormalForm

UNION_MAX = 8_000
"""How many cuts may be examined to find out whether a change leaves the union as it was; this
bounds it to some 10 milliseconds. Beyond, the change is announced, which is always safe."""

OFFERED_MAX = 8_000
"""How many cuts may be examined to find out which part of it is offered; the same holds beyond."""

STEP = UNION_MAX // 100
"""How many cuts are examined in a step of an `Effort`."""


class UnionDifference(Difference):
    """A difference that is due only when it changes which events are wanted.

    Until then it accumulates, and goes along with the next change that does.
    """

    def __init__(self, gate: AdvertisementGate | None = None) -> None:
        super().__init__()
        self._gate = gate
        self._looked_at = True
        self._withheld = False
        """Whether only what was added was announced the last time. What has ended meanwhile would
        have been announced with it, so it is due although it changes nothing."""

    def add(self, route: Route) -> None:
        super().add(route)
        self._looked_at = False

    def remove(self, route: Route) -> None:
        super().remove(route)
        self._looked_at = False

    def forget(self) -> None:
        super().forget()
        self._looked_at = False

    def look_again(self) -> None:
        self._looked_at = False

    def take(self) -> tuple[tuple[Route, ...], tuple[RouteId, ...]]:
        self._withheld = False
        return super().take()

    def take_added(self) -> tuple[Route, ...]:
        added = super().take_added()
        self._withheld |= bool(added)
        return added

    def keep(self) -> KeptDifference:
        kept = super().keep()
        return msgspec.structs.replace(kept, looked_at=self._looked_at, withheld=self._withheld)

    def restore(self, kept: KeptDifference) -> None:
        super().restore(kept)
        self._looked_at, self._withheld = kept.looked_at, kept.withheld

    @property
    def is_unlooked(self) -> bool:
        return not self._looked_at and bool(self.added or self.removed)

    def is_due(self, looking: Effort) -> bool:
        if self._looked_at or not super().is_due(looking):
            return False
        self._looked_at = True
        if self._withheld:
            return True
        work, meeting = Work(UNION_MAX), Work(OFFERED_MAX)
        changes = self._changes_union(work, meeting)
        looking.steps -= 1 + (work.work + meeting.work) // STEP
        return changes

    def _changes_union(self, work: Work, meeting: Work) -> bool:
        offers = None if self._gate is None else self._gate.form()
        before = _together(self.told.values())
        for route in self.added.values():
            form = _offered(route.filter, offers, meeting)
            if form is None or algebra.covers(before, form, work) is not True:
                return True
        if not self.removed:
            return False
        staying = (route for id_, route in self.told.items() if id_ not in self.removed)
        after = _together([*staying, *self.added.values()])
        for route in self.removed.values():
            form = _offered(route.filter, offers, meeting)
            if not form or algebra.covers(after, form, work) is not True:
                return True  # Also what is not offered any more has to go.
        return False


def _together(routes: Iterable[Route]) -> NormalForm:
    """The union of filters; those beyond the limits of the algebra are left out."""
    return tuple(term for route in routes for term in route.filter.normal_form or ())


def _offered(filter_: Filter, offers: NormalForm | None, work: Work) -> NormalForm | None:
    """The part of a filter that may be offered; None beyond the limits of the algebra and work."""
    form = filter_.normal_form
    if form is None or offers is None:
        return form
    meetings = []
    for term in form:
        for offer in offers:
            work.work += 1 + term.size + offer.size
            if work.spent:
                return None
            meetings.append(term.meet(offer))
    return tuple(meeting for meeting in meetings if meeting is not None)
