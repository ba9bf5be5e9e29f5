"""What a node is configured with.

Settings reach a node as an input, so they may change while it works; brokers of one network may
differ for a while.
"""

from typing import Any, TypeVar

import msgspec

from sterna.core.handover.options import HandoverOptions
from sterna.core.history.options import HistoryOptions
from sterna.core.location.options import PlacesOptions
from sterna.core.mobility import MobilityOptions
from sterna.core.routing.options import RoutingOptions
from sterna.model.prediction import Predictor, predictor

T = TypeVar("T")

__all__ = ["ClientOptions", "HistoryOptions", "Settings"]


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a client works."""

    advertisements: bool = False
    """The network routes by advertisements: what is published must be advertised before."""
    quenching: bool = False
    """Discard events at the source that nobody wants."""
    buffer_events_max: int = 10_000
    """How many published events are kept while there is no connection."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a node works: all that can be configured about it."""

    routing: RoutingOptions = RoutingOptions()
    client: ClientOptions = ClientOptions()
    handover: HandoverOptions = HandoverOptions()
    places: PlacesOptions | None = None
    mobility: MobilityOptions | None = None
    """Where clients went before, for brokers; clients need none of it but the dwell time."""
    history: HistoryOptions = HistoryOptions()
    protocols: tuple[str, ...] = ()
    """Protocols beyond routing, places and handover, by name."""
    options: dict[str, dict[str, Any]] = {}
    """The options of those protocols, by name; see `options_of`."""
    modules: dict[str, str] = {}
    """Where protocols are that no package announces, by name: `module:ATTRIBUTE`."""

    def predictor(self) -> Predictor:
        """Predict by the mobility model; without one, by the places; without those, nothing."""
        if self.mobility is not None:
            return predictor(self.mobility.mined())
        return predictor(None if self.places is None else self.places.space())

    def options_of(self, protocol: str, kind: type[T]) -> T:
        """A protocol's own options as the record that it declares."""
        return msgspec.convert(self.options.get(protocol, {}), kind)
