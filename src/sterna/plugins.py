"""Protocols from other packages, found by the entry point group `sterna.protocols`."""

from importlib.metadata import entry_points

from sterna.core import catalogue as _catalogue  # noqa: F401 - registers Sterna's own protocols.
from sterna.core.protocol import Protocol, UnknownProtocolError, named, register
from sterna.core.settings import Settings

GROUP = "sterna.protocols"


def require(settings: Settings) -> None:
    """Load the protocols that settings name; UnknownProtocolError if one is not installed."""
    for name in (*settings.protocols, settings.handover.protocol):
        find(name)


def find(name: str) -> Protocol:
    """The protocol of this name, loaded from its package if need be."""
    try:
        return named(name)
    except UnknownProtocolError:
        for point in entry_points(group=GROUP, name=name):
            protocol = point.load()
            if not isinstance(protocol, Protocol) or protocol.name != name:
                raise TypeError(
                    f"the entry point {name!r} of {GROUP} gives {protocol!r}, not that protocol"
                ) from None
            return register(protocol)
        raise
