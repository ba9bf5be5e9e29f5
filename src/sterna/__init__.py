"""Sterna: publish/subscribe for things that move."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.core.depot import PageUnreadableError
    from sterna.core.names import LocalProtocolError
    from sterna.core.protocol import UnknownProtocolError
    from sterna.errors import (
        ArchiveError,
        ClosedError,
        DiscardedError,
        EventTooLargeError,
        FactsMissingError,
        FilterWarning,
        JournalFailedError,
        MissingExtraError,
        NetworkRunsError,
        NotConnectedError,
        SegmentDamagedError,
        StartError,
        SternaError,
        SubscriptionTooLargeError,
        TimedOutError,
        TooLargeError,
        UnconfirmedError,
    )
    from sterna.model.event import Event, EventId
    from sterna.model.filters import Filter, FilterError, UnboundError, merge
    from sterna.model.location import HexGrid, LocationError, LocationSpace, MovementGraph
    from sterna.model.mobility import MobilityModel, MobilityModelError
    from sterna.model.queue_policies import PolicyError
    from sterna.mqtt.packets import MqttError
    from sterna.net import blocking
    from sterna.net.address import AddressError
    from sterna.net.admission import RefusedError
    from sterna.net.client import Client, connect
    from sterna.net.client.connections import Connected, Connections, Lost, Moved
    from sterna.net.client.handles import Advertisement, Receipt, Subscription
    from sterna.net.client.transport import Transport
    from sterna.net.client.watched import WatchedSubscription
    from sterna.net.client.watching import WatchingClient
    from sterna.net.config import ConfigError
    from sterna.net.second_process import CompactionFailedError
    from sterna.net.storage.errors import (
        LogDamagedError,
        LogError,
        LogFailedError,
        LogFormatError,
        LogFullError,
        LogInUseError,
        SnapshotFailedError,
    )
    from sterna.pipeline.errors import PipelineError, SparkUnavailable
    from sterna.plugins import PluginError
    from sterna.sim.network import NeverSettlesError
    from sterna.sim.topology import TopologyError
    from sterna.wire.codec import MalformedError
    from sterna.wire.snapshots import UnreadableSnapshotError

__version__ = "0.1.0"

__all__ = [
    "AddressError",
    "Advertisement",
    "ArchiveError",
    "Client",
    "ClosedError",
    "CompactionFailedError",
    "ConfigError",
    "Connected",
    "Connections",
    "DiscardedError",
    "Event",
    "EventId",
    "EventTooLargeError",
    "FactsMissingError",
    "Filter",
    "FilterError",
    "FilterWarning",
    "HexGrid",
    "JournalFailedError",
    "LocalProtocolError",
    "LocationError",
    "LocationSpace",
    "LogDamagedError",
    "LogError",
    "LogFailedError",
    "LogFormatError",
    "LogFullError",
    "LogInUseError",
    "Lost",
    "MalformedError",
    "MissingExtraError",
    "MobilityModel",
    "MobilityModelError",
    "Moved",
    "MovementGraph",
    "MqttError",
    "NetworkRunsError",
    "NeverSettlesError",
    "NotConnectedError",
    "PageUnreadableError",
    "PipelineError",
    "PluginError",
    "PolicyError",
    "Receipt",
    "RefusedError",
    "SegmentDamagedError",
    "SnapshotFailedError",
    "SparkUnavailable",
    "StartError",
    "SternaError",
    "Subscription",
    "SubscriptionTooLargeError",
    "TimedOutError",
    "TooLargeError",
    "TopologyError",
    "Transport",
    "UnboundError",
    "UnconfirmedError",
    "UnknownProtocolError",
    "UnreadableSnapshotError",
    "WatchedSubscription",
    "WatchingClient",
    "__version__",
    "blocking",
    "connect",
    "merge",
]

_LAZY = {
    "sterna.core.names": ("LocalProtocolError",),
    "sterna.core.depot": ("PageUnreadableError",),
    "sterna.core.protocol": ("UnknownProtocolError",),
    "sterna.errors": (
        *("ArchiveError", "ClosedError", "DiscardedError", "EventTooLargeError"),
        *("FactsMissingError", "FilterWarning", "JournalFailedError", "MissingExtraError"),
        *("NetworkRunsError", "NotConnectedError"),
        *("SegmentDamagedError", "StartError", "SternaError", "SubscriptionTooLargeError"),
        *("TimedOutError", "TooLargeError", "UnconfirmedError"),
    ),
    "sterna.model.event": ("Event", "EventId"),
    "sterna.model.filters": ("Filter", "FilterError", "UnboundError", "merge"),
    "sterna.model.location": ("HexGrid", "LocationError", "LocationSpace", "MovementGraph"),
    "sterna.model.mobility": ("MobilityModel", "MobilityModelError"),
    "sterna.model.queue_policies": ("PolicyError",),
    "sterna.mqtt.packets": ("MqttError",),
    "sterna.net.address": ("AddressError",),
    "sterna.net.admission": ("RefusedError",),
    "sterna.net.client": ("Client", "connect"),
    "sterna.net.client.connections": ("Connected", "Connections", "Lost", "Moved"),
    "sterna.net.client.handles": ("Advertisement", "Receipt", "Subscription"),
    "sterna.net.client.transport": ("Transport",),
    "sterna.net.client.watched": ("WatchedSubscription",),
    "sterna.net.client.watching": ("WatchingClient",),
    "sterna.net.config": ("ConfigError",),
    "sterna.net.second_process": ("CompactionFailedError",),
    "sterna.net.storage.errors": (
        *("LogDamagedError", "LogError", "LogFailedError", "LogFormatError", "LogFullError"),
        *("LogInUseError", "SnapshotFailedError"),
    ),
    "sterna.pipeline.errors": ("PipelineError", "SparkUnavailable"),
    "sterna.plugins": ("PluginError",),
    "sterna.sim.network": ("NeverSettlesError",),
    "sterna.sim.topology": ("TopologyError",),
    "sterna.wire.codec": ("MalformedError",),
    "sterna.wire.snapshots": ("UnreadableSnapshotError",),
}
"""Where each name comes from. It is loaded on first use, so `import sterna` itself is quick."""

_MODULE_OF = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    from importlib import import_module  # noqa: PLC0415 - needed here only.

    if name == "blocking":
        return import_module("sterna.net.blocking")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return __all__
