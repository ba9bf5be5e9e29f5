"""Whether each subscriber got each event once and in order, and how long that took after a move."""

from dataclasses import dataclass, field

from sterna.core.facts import Delivered, Fact, HandoverFinished, HandoverStarted
from sterna.core.inputs import Attach, Detach, Input
from sterna.core.names import NodeId, Time
from sterna.experiments.burcea.city import WANTED
from sterna.experiments.burcea.journeys import People
from sterna.experiments.burcea.script import START_US
from sterna.experiments.burcea.settings import Setting
from sterna.sim.network import Observer

PROBLEMS_MAX = 10
"""After so many, there is no need to look for more."""


@dataclass(slots=True)
class Stay:
    """A subscriber's stay at a broker, from its arrival on."""

    since: Time
    replayed_us: Time | None = None
    """How long it took until the first event that was published before the arrival."""
    complete_us: Time | None = None
    """How long it took until the last of these."""
    replayed: int = 0
    live_us: Time | None = None
    """How long it took until the first event that was published since."""
    delay_us: Time | None = None
    """How long that event took from its publisher."""


@dataclass(slots=True)
class Reader:
    """What a subscriber has got so far."""

    last: dict[NodeId, int] = field(default_factory=dict)
    """The number of the last event of each publisher."""
    stay: Stay | None = None
    """Its present stay, as long as something is to be noted about it."""


class Deliveries(Observer):
    """Checks each delivery, and notes when the first ones come after a move."""

    def __init__(self, setting: Setting, everybody: People) -> None:
        self.problems: list[str] = []
        self.stays: list[Stay] = []
        """All stays but the first of each subscriber, as far as they began in the run."""
        self.in_transfer_max = 0
        """How many subscribers were in transfer at once, at most."""
        self.delivered = 0
        self._readers = {each.client: Reader() for each in everybody.subscribers}
        self._everybody = everybody
        self._length_us = setting.length_us
        self._in_transfer: dict[NodeId, None] = {}

    def given(self, node: NodeId, given: Input, now: Time) -> None:
        if type(given) is Attach:
            stay = self._readers[node].stay = Stay(now)
            if now < START_US + self._length_us:
                self.stays.append(stay)
        elif type(given) is Detach:
            self._readers[node].stay = None

    def fact(self, fact: Fact) -> None:
        kind = type(fact)
        if kind is Delivered:
            reader = self._readers[fact.at]
            last = reader.last
            for event in fact.events:  # type: ignore[attr-defined] # It has them.
                publisher = event.publisher
                if event.seq != last.get(publisher, 0) + 1:
                    self._wrong(fact, publisher, last.get(publisher, 0), event.seq)
                last[publisher] = event.seq
            if reader.stay is not None:
                self._note(reader, reader.stay, fact)  # type: ignore[arg-type]
        elif kind is HandoverStarted:
            self._in_transfer[fact.client] = None  # type: ignore[attr-defined]
            if fact.time < START_US + self._length_us:
                self.in_transfer_max = max(self.in_transfer_max, len(self._in_transfer))
        elif kind is HandoverFinished:
            self._in_transfer.pop(fact.client, None)  # type: ignore[attr-defined]

    def _note(self, reader: Reader, stay: Stay, fact: Delivered) -> None:
        after_us = fact.time - stay.since
        for event in fact.events:
            if event.time_us < stay.since:
                stay.replayed += 1
                stay.complete_us = after_us
                if stay.replayed_us is None:
                    stay.replayed_us = after_us
            elif stay.live_us is None:
                stay.live_us = after_us
                stay.delay_us = fact.time - event.time_us
                reader.stay = None  # All earlier ones have come; later ones are of no interest.

    def _wrong(self, fact: Fact, publisher: NodeId, last: int, seq: int) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(
                f"at {fact.time / 1e6:.3f} s, {fact.at} got #{seq} of {publisher} after #{last}"
            )

    def check(self) -> list[str]:
        """All that was delivered wrongly in the run, or not at all."""
        owed = {
            publisher.client: (publisher.kind, len(publisher.times(self._length_us)))
            for publisher in self._everybody.publishers
        }
        for subscriber in self._everybody.subscribers:
            last = self._readers[subscriber.client].last
            wanted = WANTED[subscriber.subscription]
            for publisher, (kind, count) in owed.items():
                expected = count if kind in wanted else 0
                got = last.get(publisher, 0)
                self.delivered += got
                if got != expected and len(self.problems) < PROBLEMS_MAX:
                    self.problems.append(
                        f"{subscriber.client} got up to #{got} of {publisher}, not #{expected}"
                    )
        return self.problems
