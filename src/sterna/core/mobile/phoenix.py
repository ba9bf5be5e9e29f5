"""Subscribers that move from broker to broker: Phoenix, as in Amozarrain and Larrea, 3.2 and 5.

A subscriber that comes to a broker says so (MIG), and is answered what it is known to want
(FILTERS); it corrects what has changed. The rest is in the tables: `SimpleRouting`, or one of the
protocols for brokers that move. What the subscriber's old broker had sent it, and it has not
confirmed, follows it (REP).
"""

from typing import Self

import msgspec

from sterna.core import facts
from sterna.core.component import BrokerComponent, ClientComponent
from sterna.core.handover.messages import Farewell
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import AdvertisementChange, SubscriptionChange
from sterna.core.mobile.messages import OwnFilters, SubscriberMigrated
from sterna.core.mobile.simple import VISIT, SimpleRouting
from sterna.core.names import LinkId, LocalProtocolError, NodeId, Peer, Time
from sterna.core.protocol import Kind, Protocol, named
from sterna.core.settings import Settings

NAME = "phoenix"


class KeptMigrating(msgspec.Struct, frozen=True):
    """What a snapshot holds of a client that moves."""

    time: int
    before: NodeId


class Migrating(ClientComponent):
    """The client's part: it says where it is, and corrects what it is known to want."""

    name = NAME
    handles = (OwnFilters,)
    Kept = KeptMigrating

    def __init__(self) -> None:
        self._time = 0
        self._before: NodeId = ""

    def introduces(self) -> bool:
        return True

    def link_new(self, link: LinkId, now: Time) -> None:
        self._time = next_visit(self._time)
        message = SubscriberMigrated(
            subscriber=self.client.id, before=self._before, time=self._time
        )
        self._before = link
        self.client.send(link, message, now)

    def on_own_filters(self, message: OwnFilters, link: LinkId, now: Time) -> None:
        """What the network knows; the client knows better. (Section 5)"""
        self._time = max(self._time, message.time)
        wanted, advertised, others = self.client.introduction()
        names = {route.id for route in wanted}
        added = tuple(route for route in wanted if route not in message.routes)
        removed = tuple(route.id for route in message.routes if route.id not in names)
        if added or removed:
            change = SubscriptionChange(added=added, removed=removed)
            self.client.send(link, change, now)
        if advertised:
            self.client.send(link, AdvertisementChange(added=advertised), now)
        for other in others:
            self.client.send(link, other, now)
        self.client.introduction_sent(now)
        self.client.flush(now)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether the client's broker has answered, if it has one."""
        return self.client.is_introduced or self.client.link not in self.client.up

    def keep(self, writer: Writer) -> KeptMigrating:
        del writer
        return KeptMigrating(self._time, self._before)

    def restore(self, kept: KeptMigrating, reader: Reader) -> None:
        del reader
        self._time, self._before = kept.time, kept.before


class KeptKeeping(msgspec.Struct, frozen=True):
    """What a snapshot holds of a broker's part."""

    left: list[LinkId]


class Keeping(BrokerComponent):
    """The broker's part: what a client wants is kept while it is away."""

    name = NAME
    handles = (Farewell,)
    Kept = KeptKeeping

    @classmethod
    def make(cls, settings: Settings) -> Self:
        if not any(_has_tables(name) for name in settings.protocols):
            raise LocalProtocolError(
                f"{NAME} needs tables of subscribers: list one of the protocols "
                "simple-routing, modular, efficient and reversing"
            )
        return cls()

    def __init__(self) -> None:
        self._left: dict[LinkId, None] = {}
        """Clients that have said farewell, and are still connected."""

    def keeps(self, link: LinkId) -> bool:
        return self.broker.peers.get(link) is Peer.CLIENT

    def forget_away(self, client: NodeId, now: Time) -> bool:
        self.broker.forget_early(client, now)
        return True

    def on_farewell(self, _message: Farewell, link: LinkId, now: Time) -> None:
        """A client will not come back; it closes the connection when its farewell is confirmed."""
        self.broker.state(facts.ClientForgotten(at=self.broker.id, time=now, client=link))
        self._left[link] = None

    def link_down(self, link: LinkId, now: Time) -> None:
        if link in self._left:
            del self._left[link]
            self.broker.forget(link, now)

    def keep(self, writer: Writer) -> KeptKeeping:
        del writer
        return KeptKeeping(list(self._left))

    def restore(self, kept: KeptKeeping, reader: Reader) -> None:
        del reader
        self._left = dict.fromkeys(kept.left)


PHOENIX = Protocol(name=NAME, kind=Kind.HANDOVER, broker=Keeping, client=Migrating)


def next_visit(time: int) -> int:
    """The number that the coming of a subscriber has, after another one."""
    return (time // VISIT + 1) * VISIT


def _has_tables(protocol: str) -> bool:
    broker = named(protocol).broker
    return broker is not None and issubclass(broker, SimpleRouting)
