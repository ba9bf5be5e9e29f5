"""What things are called: ids of nodes and links, and time."""

from enum import StrEnum

from sterna.errors import SternaError

NodeId = str
"""A broker or a client. Unique in the system."""

LinkId = str
"""A link, called after the node at its other end."""

RouteId = str
"""What a filter that was announced over a link is called there."""

Time = int
"""Microseconds. Where they count from is the driver's business; the core only compares them."""

NEVER: Time = 2**63 - 1
"""A deadline that does not come."""


class Peer(StrEnum):
    """What is at the other end of a link."""

    BROKER = "broker"
    CLIENT = "client"


class LocalProtocolError(SternaError):
    """The application asked for something that cannot be; the message says what to do instead."""
