"""Sterna: publish/subscribe for things that move."""

from typing import TYPE_CHECKING, Any

from sterna.model.event import Event, EventId
from sterna.model.filters import Filter, FilterError, UnboundError, merge
from sterna.model.location import HexGrid, LocationError, LocationSpace, MovementGraph
from sterna.model.mobility import MobilityModel, MobilityModelError
from sterna.net.errors import ClosedError, DiscardedError, NotConnectedError, SternaError

if TYPE_CHECKING:
    from sterna.net import blocking
    from sterna.net.client import Client, connect
    from sterna.net.handles import Advertisement, Receipt, Subscription

__version__ = "0.1.0"

__all__ = [
    "Advertisement",
    "Client",
    "ClosedError",
    "DiscardedError",
    "Event",
    "EventId",
    "Filter",
    "FilterError",
    "HexGrid",
    "LocationError",
    "LocationSpace",
    "MobilityModel",
    "MobilityModelError",
    "MovementGraph",
    "NotConnectedError",
    "Receipt",
    "SternaError",
    "Subscription",
    "UnboundError",
    "__version__",
    "blocking",
    "connect",
    "merge",
]


def __getattr__(name: str) -> Any:
    """The client library, loaded when it is used: who only has filters does not wait for it."""
    from importlib import import_module  # noqa: PLC0415 - needed here only.

    if name == "blocking":
        return import_module("sterna.net.blocking")
    if name in {"Client", "connect"}:
        return getattr(import_module("sterna.net.client"), name)
    if name in __all__:
        return getattr(import_module("sterna.net.handles"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
