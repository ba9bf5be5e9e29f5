"""What went over links a short while ago: a neighbour that has confirmed it may be lost with it.

It is sent again when that link is gone, over whatever way there is then. If links come and go all
the time, that must have an end: each event would be sent again and again, and the more there are,
the slower are brokers, and the more links seem to be lost.
"""

from collections.abc import Iterable, Sequence

from sterna.core.names import LinkId, Time
from sterna.core.overlay.branch_parts import Recent
from sterna.model.event import Event, EventId

RECENT_MAX = 10_000
"""How many events are remembered for each link."""

TAKEN_MAX = 50_000
"""Of how many events it is known when they were sent again."""

AGAIN = 3
"""For so many times as long as events are remembered are they sent again."""


class Recents:
    """The events that went over each link to a broker, without those that are known to be old."""

    def __init__(self) -> None:
        self._links: dict[LinkId, dict[EventId, Recent]] = {}
        """By link, the oldest first."""
        self._taken: dict[EventId, Time] = {}
        """When events were first to be sent again."""

    def remember(
        self, link: LinkId, events: Sequence[Event], now: Time, *, recent_us: Time, since: Time
    ) -> None:
        """Events go over a link; what went there before `since` may be forgotten.

        So is what was first to be sent again a longer while ago.
        """
        recent = self._links.setdefault(link, {})
        latest = now - AGAIN * recent_us
        for event in events:
            id_ = event.id
            recent.pop(id_, None)
            if self._taken.get(id_, now) >= latest:
                recent[id_] = Recent(now, event)
        surplus = len(recent) - RECENT_MAX
        while recent:
            first = next(iter(recent))
            if surplus <= 0 and recent[first].time >= since:
                break
            del recent[first]
            surplus -= 1

    def take(self, link: LinkId, now: Time) -> list[Event]:
        """What went over a link that is gone; it is to be sent again."""
        taken = self._links.pop(link, {})
        for id_ in taken:
            self._taken.setdefault(id_, now)
        while len(self._taken) > TAKEN_MAX:
            del self._taken[next(iter(self._taken))]
        return [each.event for each in taken.values()]

    # ---- Snapshots

    def keep(self) -> tuple[dict[LinkId, list[Recent]], list[tuple[EventId, Time]]]:
        """What a snapshot has to hold."""
        links = {link: list(recent.values()) for link, recent in self._links.items()}
        return links, list(self._taken.items())

    def restore(self, link: LinkId, recent: Iterable[Recent]) -> None:
        """Go on with what a snapshot has held of a link."""
        self._links[link] = {each.event.id: each for each in recent}

    def restore_taken(self, taken: Iterable[tuple[EventId, Time]]) -> None:
        """Go on with what it has held of what was sent again."""
        self._taken = dict(taken)
