"""The names of things: ids of nodes and links, and time."""

from enum import StrEnum

from sterna.errors import SternaError

NodeId = str
"""The name of a broker or a client, unique in the system."""

LinkId = str
"""The name of a link: that of the node at its other end."""

RouteId = str
"""The name that a filter announced over a link has there."""

Time = int
"""Microseconds from an origin that the driver chooses; the core only compares them."""

HOSTED = "mqtt:"
"""How the names of clients begin that live inside a broker; no other node is called so."""

NEVER: Time = 2**63 - 1
"""A deadline that never comes."""


class Peer(StrEnum):
    """What kind of node is at the other end of a link."""

    BROKER = "broker"
    CLIENT = "client"


class LocalProtocolError(SternaError):
    """The application asked for something impossible; the message says what to do instead."""
