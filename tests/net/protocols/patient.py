"""A toy handover: a broker waits a little for a client that is gone, then forgets it.

A client that is back in time, at the same broker, has lost nothing. One that comes later or goes
elsewhere subscribes anew and has lost what was published meanwhile.
"""

from typing import Self

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.facts import Fact
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, LinkId, NodeId, Peer, Time
from sterna.core.protocol import Kind, Protocol, register
from sterna.core.settings import Settings


class Options(msgspec.Struct, frozen=True):
    """What can be configured."""

    patience_us: Time = 1_000_000


class Abandoned(Fact, frozen=True, kw_only=True):
    """A broker has waited for a client in vain."""

    client: NodeId
    patience_us: Time


class Patient(BrokerComponent):
    """The border broker's part."""

    name = "patient"
    facts = (Abandoned,)
    Kept = dict[LinkId, Time]

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(cls.name, Options))

    def __init__(self, options: Options) -> None:
        self._options = options
        self._until: dict[LinkId, Time] = {}
        """Until when it waits for clients that are gone."""

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self._options = settings.options_of(self.name, Options)

    def keep(self, writer: Writer) -> dict[LinkId, Time]:
        del writer
        return self._until

    def restore(self, kept: dict[LinkId, Time], reader: Reader) -> None:
        del reader
        self._until = kept

    def link_up(self, link: LinkId, now: Time) -> None:
        del now
        self._until.pop(link, None)

    def link_down(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self._until[link] = now + self._options.patience_us
            self.wake_by(self._until[link])

    def wake(self, now: Time) -> None:
        for link, until in list(self._until.items()):
            if until <= now:
                del self._until[link]
                self.broker.state(
                    Abandoned(
                        at=self.broker.id,
                        time=now,
                        client=link,
                        patience_us=self._options.patience_us,
                    )
                )
                self.broker.forget(link, now)
        self.wake_by(min(self._until.values(), default=NEVER))


PATIENT = register(Protocol(name="patient", kind=Kind.HANDOVER, broker=Patient))
