"""A protocol with a mistake: it counts further than a number can be sent."""

from typing import ClassVar

from sterna.core.component import BrokerComponent
from sterna.core.messages import Message
from sterna.core.names import LinkId, Peer, Time
from sterna.core.protocol import Protocol, register


class Counted(Message, frozen=True, kw_only=True):
    """To everybody: this is the number now."""

    from_clients: ClassVar[bool] = True

    number: int


class Counting(BrokerComponent):
    """Counts up, and has all neighbours know."""

    name = "overflowing"
    handles = (Counted,)

    def on_counted(self, message: Counted, link: LinkId, now: Time) -> None:
        for neighbour, peer in self.broker.peers.items():
            if peer is Peer.BROKER and neighbour != link:
                self.broker.send(neighbour, Counted(number=message.number + 1), now)


OVERFLOWING = register(Protocol(name="overflowing", broker=Counting))
