"""Sterna: publish/subscribe for things that move."""

from sterna.model.event import Event, EventId
from sterna.model.filters import Filter, FilterError, UnboundError, merge
from sterna.model.location import HexGrid, LocationError, LocationSpace, MovementGraph

__version__ = "0.1.0"

__all__ = [
    "Event",
    "EventId",
    "Filter",
    "FilterError",
    "HexGrid",
    "LocationError",
    "LocationSpace",
    "MovementGraph",
    "UnboundError",
    "__version__",
    "merge",
]
