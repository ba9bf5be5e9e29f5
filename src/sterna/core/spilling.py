"""What a broker can spill, and what it does when something was spilled.

Its driver decides what goes into a page, and when. That is an input like any other: so a replay of
the inputs, in this process or another, has the same in memory, and the rest in the same pages.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sterna.core.component import BrokerComponent
from sterna.core.depot import PageId
from sterna.core.frames import Data
from sterna.core.inputs import Input, KeptSpilled, QueueSpilled
from sterna.core.link import LinkSession
from sterna.core.names import LinkId, NodeId, Time
from sterna.model.event import Event

if TYPE_CHECKING:
    from sterna.core.broker import Broker


class QueuedPart(NamedTuple):
    """Messages for a link that can be spilled, with consecutive numbers."""

    link: LinkId
    frames: Sequence[Data]

    def first(self, count: int) -> "QueuedPart":
        """Only the first so many of them."""
        return QueuedPart(self.link, self.frames[:count])


class KeptPart(NamedTuple):
    """Events that a component keeps for a client and that can be spilled, with their numbers."""

    component: str
    link: NodeId
    events: Sequence[tuple[int, Event]]

    def first(self, count: int) -> "KeptPart":
        """Only the first so many of them."""
        return KeptPart(self.component, self.link, self.events[:count])


class Spilling:
    """The parts of a broker's queues that are in pages."""

    def __init__(self, broker: "Broker", sessions: Mapping[LinkId, LinkSession]) -> None:
        self._broker = broker
        self._sessions = sessions

    def handlers(self) -> dict[type[Input], Callable[[Any, Time], None]]:
        """What handles the inputs about pages."""
        return {QueueSpilled: self._queue_spilled, KeptSpilled: self._kept_spilled}

    def pages(self) -> set[PageId]:
        """The pages that the present state refers to: another one is never referred to again."""
        found = {page for session in self._sessions.values() for page in session.pages()}
        return found.union(*(component.pages() for component in self._components()))

    # ---- What can be spilled

    def queued(self, link: LinkId, bytes_max: int) -> QueuedPart | None:
        """The oldest messages for a link that are in memory: about so many bytes of that."""
        frames = self._sessions[link].to_spill(bytes_max)
        return QueuedPart(link, frames) if frames else None

    def kept(self, client: NodeId, bytes_max: int) -> KeptPart | None:
        """The oldest events that are kept for a client in memory: about so many bytes of that."""
        for component in self._components():
            events = component.to_spill(client, bytes_max)
            if events:
                return KeptPart(component.name, client, events)
        return None

    def input_for(self, part: QueuedPart | KeptPart, page: PageId, place: int) -> Input | None:
        """The input for a broker whose queues had a part that begins at a place of a page now.

        What has left the queues since then is left out; None if all has.
        """
        if isinstance(part, QueuedPart):
            session = self._sessions.get(part.link)
            left = () if session is None else session.holds(part.frames)
            if not left:
                return None
            first = left[0].seq
            place += first - part.frames[0].seq
            return QueueSpilled(
                link=part.link, first=first, count=len(left), page=page, place=place
            )
        component = self._component(part.component)
        still = set() if component is None else component.still_kept(part.link, part.events)
        numbers = enumerate((number for number, _ in part.events), place)
        places = [(number, at) for at, number in numbers if number in still]
        if not places:
            return None
        runs = tuple(_runs(places))
        return KeptSpilled(component=part.component, client=part.link, page=page, runs=runs)

    def _components(self) -> Iterator[BrokerComponent]:
        return (each for each in self._broker.components if isinstance(each, BrokerComponent))

    def _component(self, name: str) -> BrokerComponent | None:
        return next((each for each in self._components() if each.name == name), None)

    # ---- What was spilled

    def _queue_spilled(self, given: QueueSpilled, now: Time) -> None:
        del now
        self._broker.last_page = max(self._broker.last_page, given.page)
        session = self._sessions.get(given.link)
        if session is not None:
            session.spill(given.first, given.count, given.page, given.place)

    def _kept_spilled(self, given: KeptSpilled, now: Time) -> None:
        del now
        self._broker.last_page = max(self._broker.last_page, given.page)
        component = self._component(given.component)
        if component is not None:
            for first, place, count in given.runs:
                for n in range(count):
                    component.spilled(given.client, first + n, given.page, place + n)


def _runs(places: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """The runs of consecutive numbers at consecutive places: the first of each, and how many."""
    runs: list[tuple[int, int, int]] = []
    for number, place in places:
        if runs:
            first, at, count = runs[-1]
            if (number, place) == (first + count, at + count):
                runs[-1] = first, at, count + 1
                continue
        runs.append((number, place, 1))
    return runs
