"""The journal of an application that several brokers watch for: what it was given of all sessions.

The sessions are clients with journals of their own, which say what each of them has brought.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from sterna.core.facts import Displayed, Fact, SessionWatches, WatchBegun, WatchEnded, Withheld
from sterna.core.names import NodeId
from sterna.model.event import EventId
from sterna.net.client.record import Record
from sterna.net.clock import node_clock

SUFFIX = "~merged"
"""Behind the name of an application: the name by which its facts call it."""


class Displays:
    """What an application was given, in its journal, if it keeps one."""

    def __init__(self, directory: Path | None, application: str) -> None:
        self._name: NodeId = application + SUFFIX
        self._record = Record(directory, self._name)
        self._clock = node_clock()
        self._position = 0

    def open(self, failed: Callable[[Exception], None]) -> None:
        """Begin; `failed` is called if the journal cannot be written any more."""
        self._record.open(None, failed)
        self._position = self._record.begin_alone(self._clock)
        self._record.start()

    async def close(self) -> None:
        """Write the rest."""
        await self._record.stop()

    def began(self, subscription: str, filtering: str) -> None:
        """The application has subscribed."""
        self._add(
            WatchBegun(
                at=self._name, time=self._clock.now(), subscription=subscription,
                filtering=filtering,
            )
        )  # fmt: skip

    def ended(self, subscription: str) -> None:
        """The application has ended a subscription."""
        self._add(WatchEnded(at=self._name, time=self._clock.now(), subscription=subscription))

    def watches(self, session: NodeId) -> None:
        """Another session watches for the application."""
        self._add(SessionWatches(at=self._name, time=self._clock.now(), client=session))

    def displayed(self, subscription: str, events: Sequence[EventId]) -> None:
        """The application was given events."""
        self._about(Displayed, subscription, events)

    def withheld(self, subscription: str, events: Sequence[EventId]) -> None:
        """Events were not given to it."""
        self._about(Withheld, subscription, events)

    def _about(
        self, kind: type[Displayed | Withheld], subscription: str, events: Sequence[EventId]
    ) -> None:
        if events:
            now = self._clock.now()
            self._add(kind(at=self._name, time=now, subscription=subscription, events=(*events,)))

    def _add(self, fact: Fact) -> None:
        self._position += 1
        self._record.add(self._position, [fact], 0)
