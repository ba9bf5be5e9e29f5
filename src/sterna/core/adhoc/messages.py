"""What devices say about who serves, and what they state."""

from typing import ClassVar

from sterna.core.facts import Fact
from sterna.core.messages import Message
from sterna.core.names import NodeId
from sterna.core.overlay.election import Reign
from sterna.model.ranges import Number


class BrokerHere(Message, frozen=True, kw_only=True):
    """Broker -> all devices in reach, as a datagram: clients may come to me."""

    is_datagram: ClassVar[bool] = True

    broker: NodeId
    reign: Reign
    """The reign that it follows: brokers with the same one are one network."""
    hops: Number = 0
    """How many links there are from it to its leader."""
    yields: bool = False
    """Whether its clients should go to another broker, if they hear one."""
    is_leaving: bool = False
    """Whether it serves no longer."""


class ClientHere(Message, frozen=True, kw_only=True):
    """Client -> all devices in reach, as a datagram: this is the network that I am in, or none."""

    from_clients: ClassVar[bool] = True
    is_datagram: ClassVar[bool] = True

    client: NodeId
    reign: Reign | None = None
    """The reign that its broker follows; None if it looks for a broker and finds none."""


class ClientListens(Message, frozen=True, kw_only=True):
    """Client -> all devices in reach, as a datagram: I hear you, and need nothing for now.

    On sockets, a device sends its datagrams to those that it has heard.
    """

    from_clients: ClassVar[bool] = True
    is_datagram: ClassVar[bool] = True

    client: NodeId


class LeaseRenewed(Message, frozen=True, kw_only=True):
    """Client -> its broker: what I have subscribed to is still wanted."""

    from_clients: ClassVar[bool] = True


class ServingBegan(Fact, frozen=True, kw_only=True):
    """A device serves as a broker from now on."""

    client: NodeId
    """The client that has found no other broker, or has come already; empty if the device joins
    two networks."""


class ServingEnded(Fact, frozen=True, kw_only=True):
    """A device serves as a broker no longer: others do."""


class LeaseEnded(Fact, frozen=True, kw_only=True):
    """Nothing was heard of a subscriber for too long, and its subscriptions have ended."""

    client: NodeId
