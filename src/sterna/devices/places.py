"""Where the sessions of devices are, as far as a broker knows."""

from collections.abc import Iterable, Iterator

from sterna.core.names import NodeId, Time
from sterna.devices.messages import Place

ENDED_US: Time = 3_600_000_000
"""How long it is remembered that a session has ended."""

ENDED_MAX = 10_000
"""So many of them are remembered however long ago that was."""


class Places:
    """The latest place of each session. All brokers come to know the same."""

    def __init__(self) -> None:
        self._places: dict[NodeId, Place] = {}
        self._ended: dict[NodeId, None] = {}
        """The sessions that have ended; the first that was noted is the first."""

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    def get(self, device: NodeId) -> Place | None:
        """The place of a session; None if nothing is known."""
        return self._places.get(device)

    def next_epoch(self, device: NodeId, now: Time) -> int:
        """The number of the next place of a session: greater than all that are known.

        It is not less than the time, so that it is also greater than those that were forgotten.
        """
        known = self._places.get(device)
        return max(now, 1 if known is None else known.epoch + 1)

    def note(self, place: Place) -> bool:
        """Note a place; whether it is later than what was known."""
        device, known = place.device, self._places.get(place.device)
        if known is not None and (known.epoch, known.broker) >= (place.epoch, place.broker):
            return False
        self._places[device] = place
        self._ended.pop(device, None)
        if not place.broker:
            self._ended[device] = None
            self._forget(place.epoch)
        return True

    def _forget(self, now: Time) -> None:
        while len(self._ended) > ENDED_MAX:
            oldest = next(iter(self._ended))
            if self._places[oldest].epoch + ENDED_US > now:
                break
            del self._ended[oldest], self._places[oldest]

    def restore(self, places: Iterable[Place]) -> None:
        """Go on with what a snapshot has held."""
        for place in places:
            self.note(place)
