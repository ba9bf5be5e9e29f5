"""How a client asks whether its subscription is known, and how brokers ask each other."""

from typing import ClassVar

from sterna.core.messages import Message
from sterna.core.names import NodeId, RouteId
from sterna.model.filters import Filter
from sterna.model.ranges import Number

CONFIRMING = "confirming"
"""The name of the protocol, and of the feature by which nodes say that they take part in it."""


class ConfirmationAsked(Message, frozen=True, kw_only=True):
    """Client -> border broker: tell me when every broker that matters knows my subscription."""

    from_clients: ClassVar[bool] = True

    subscription: RouteId
    number: Number
    """The number by which the client recognises the answer."""


class Confirmation(Message, frozen=True, kw_only=True):
    """Border broker -> client: every broker that matters knows your subscription."""

    number: Number
    but_not: tuple[NodeId, ...] = ()
    """The nodes that could not be asked, because they do not take part in the protocol."""


class EchoAsked(Message, frozen=True, kw_only=True):
    """Broker -> neighbour, or quenching publisher: answer when all behind you know a filter.

    It follows the subscriptions that the filter is part of, or covered by, over the same link.
    """

    number: Number
    """The number by which the sender recognises the answer."""
    filter: Filter


class Echo(Message, frozen=True, kw_only=True):
    """The answer to an EchoAsked: this node and all that matter behind it know the filter."""

    from_clients: ClassVar[bool] = True

    number: Number
    but_not: tuple[NodeId, ...] = ()
    """The nodes that could not be asked, because they do not take part in the protocol."""


class EchoDropped(Message, frozen=True, kw_only=True):
    """Broker -> neighbour: nobody waits for the answer to this EchoAsked any more."""

    number: Number
