"""Measures the round trips to neighbours, while they matter."""

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from sterna.core.component import Component
from sterna.core.location.messages import Probe, Probed
from sterna.core.messages import Message
from sterna.core.names import NEVER, LinkId, Time

TRIPS_MAX = 8
"""How many of the last round trips count."""

CALM = 8
"""The period of the probes on a link is at least this many round trips."""


class KeptMeasuring(msgspec.Struct, frozen=True):
    """What a snapshot holds of round trips."""

    number: int
    sent: dict[int, tuple[LinkId, Time]]
    due: dict[LinkId, Time]
    trips: dict[LinkId, list[Time]]
    delays: dict[LinkId, Time]


class Measuring(Component):
    """Measures the round trip of a link when it comes up, and then as long as it carries routes.

    The longest of the last few counts. So the delay rises at once and falls soon after.
    """

    handles: ClassVar[tuple[type[Message], ...]] = (Probe, Probed)

    def __init__(self, *, probe_us: Time, grain_us: Time, is_timed: bool) -> None:
        self._probe_us = probe_us
        self._grain_us = grain_us
        self._is_timed = is_timed
        self._number = 0
        self._sent: dict[LinkId, dict[int, Time]] = {}
        """For each link the probes without an answer yet, and when they were sent."""
        self._due: dict[LinkId, Time] = {}
        self._trips: dict[LinkId, deque[Time]] = {}
        self._delays: dict[LinkId, Time] = {}

    @abstractmethod
    def carries(self, link: LinkId) -> bool:
        """Whether the delay of a link matters now."""

    @abstractmethod
    def delay_changed(self, link: LinkId, now: Time) -> None:
        """The delay of a link has changed."""

    def delay_us(self, link: LinkId) -> Time | None:
        """The round trip of a link; None if it is not known yet."""
        return self._delays.get(link) if self._is_timed else 0

    def measure(self, probe_us: Time, grain_us: Time, *, is_timed: bool, now: Time) -> None:
        """Measure in another way from now on."""
        begins = is_timed and not self._is_timed
        self._probe_us, self._grain_us, self._is_timed = probe_us, grain_us, is_timed
        if begins:
            for link in self.node.up:
                if self.measures(link):
                    self._probe(link, now)

    def keep_measured(self) -> KeptMeasuring:
        """What a snapshot has to hold."""
        return KeptMeasuring(
            self._number,
            {
                number: (link, at)
                for link, sent in self._sent.items()
                for number, at in sent.items()
            },
            dict(self._due),
            {link: list(trips) for link, trips in self._trips.items()},
            dict(self._delays),
        )

    def restore_measured(self, kept: KeptMeasuring) -> None:
        """Go on with what a snapshot has held."""
        self._number = kept.number
        for number, (link, at) in kept.sent.items():
            self._sent.setdefault(link, {})[number] = at
        self._due = dict(kept.due)
        self._trips = {link: deque(trips, maxlen=TRIPS_MAX) for link, trips in kept.trips.items()}
        self._delays = dict(kept.delays)

    # ---- Measuring

    def link_up(self, link: LinkId, now: Time) -> None:
        if self._is_timed and self.measures(link):
            self._probe(link, now)

    def measures(self, link: LinkId) -> bool:
        """Whether the delay of a link can ever matter."""
        del link
        return True

    def link_down(self, link: LinkId, now: Time) -> None:
        del now
        self._due.pop(link, None)
        self._sent.pop(link, None)  # An answer after the break would measure the break.

    def answers_now(self, link: LinkId, now: Time) -> None:
        """The other end has begun to answer probes: earlier ones are lost."""
        Measuring.link_down(self, link, now)
        Measuring.link_up(self, link, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed, now
        self._trips.pop(link, None)
        self._delays.pop(link, None)

    def keep_measuring(self, link: LinkId, now: Time) -> None:
        """A link carries routes now: measure it from time to time."""
        if self._is_timed and link in self.node.up and link not in self._due:
            self._probe(link, now)

    def on_probe(self, message: Probe, link: LinkId, now: Time) -> None:
        self.node.send(link, Probed(number=message.number), now)

    def on_probed(self, message: Probed, link: LinkId, now: Time) -> None:
        sent = self._sent.get(link, {})
        since = sent.get(message.number)
        if since is None:
            return  # It does not answer a probe over this link.
        # Answers come in order: those to earlier probes will not come any more.
        self._sent[link] = {number: at for number, at in sent.items() if number > message.number}
        trips = self._trips.setdefault(link, deque(maxlen=TRIPS_MAX))
        trips.append(-(-(now - since) // self._grain_us) * self._grain_us)
        before, longest = self._delays.get(link), max(trips)
        if before is None or longest > before or longest < before - before // 8:
            self._delays[link] = longest
            self.delay_changed(link, now)

    def wake(self, now: Time) -> None:
        for link in [link for link, due in self._due.items() if due <= now]:
            del self._due[link]
            if self.carries(link):
                self._probe(link, now)
        self.wake_by(min(self._due.values(), default=NEVER))

    def _probe(self, link: LinkId, now: Time) -> None:
        self._number += 1
        sent = self._sent.setdefault(link, {})
        sent[self._number] = now
        # Wait only for the last few answers, which will count, and for the next one: a neighbour
        # without places never answers, and one that is slow answers the first probe first.
        for number in list(sent)[1:-TRIPS_MAX]:
            del sent[number]
        self.node.send(link, Probe(number=self._number), now)
        every_us = self._probe_us
        while every_us < CALM * self._delays.get(link, 0):
            every_us *= 2
        # All links are measured at the same times: it is quiet in between.
        self._due[link] = (now // every_us + 1) * every_us
        self.wake_by(self._due[link])
