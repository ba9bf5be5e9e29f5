"""The whole configuration of a broker, and the options of the core that follow from it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import field
from msgspec.structs import replace

from sterna import plugins
from sterna.core.handover.options import HandoverOptions
from sterna.core.history.options import BufferOptions, HistoryOptions
from sterna.core.location.options import PlacesOptions
from sterna.core.mobility import MobilityOptions
from sterna.core.names import Time
from sterna.core.protocol import named
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import Settings
from sterna.core.terms.messages import TERMS
from sterna.devices.options import NEVER_S, DeviceOptions, Lift
from sterna.model.filters import Filter
from sterna.model.location import LocationSpace, MovementGraph
from sterna.model.mobility import mined_dwell_us
from sterna.net.address import PORT
from sterna.net.config.mobility import mobility_in
from sterna.net.config.reading import document_in, read
from sterna.net.config.schema import ConfigSection, Name, means
from sterna.net.config.sections import (
    DurabilityConfig,
    HeartbeatConfig,
    HistoryConfig,
    HttpConfig,
    JournalConfig,
    LimitsConfig,
    LogConfig,
    MobilityConfig,
    MqttConfig,
    NetworkConfig,
    Overlay,
    PlacesConfig,
)
from sterna.net.config.writing import as_toml

_DATA = "data"


class BrokerConfig(ConfigSection, frozen=True, kw_only=True):
    """The broker itself."""

    name: Annotated[
        Name,
        means(
            "The name of the broker, unique in the network. It consists of letters, digits, `-`, "
            "`_` and `.`.",
            example="b1",
            for_start=True,
        ),
    ]
    listen: Annotated[
        str,
        means(
            "The address where clients and brokers connect. Port 0 stands for any free port.",
            for_start=True,
        ),
    ] = f"127.0.0.1:{PORT}"
    advertised_address: Annotated[
        str | None,
        means(
            "The address (`host:port`) where others reach this broker, if it is not `listen`.",
            for_start=True,
        ),
    ] = None
    data: Annotated[
        str, means("The directory of the broker's log, snapshots and journal.", for_start=True)
    ] = _DATA
    protocols: Annotated[
        dict[str, dict[str, Any]],
        means(
            "The options of protocols by their names: write those of `standard` below "
            "`[protocols.standard]`, and those of a protocol from another package likewise."
        ),
    ] = field(default_factory=dict)

    network: NetworkConfig = field(default_factory=NetworkConfig)
    places: PlacesConfig = field(default_factory=PlacesConfig)
    mobility: MobilityConfig = field(default_factory=MobilityConfig)
    durability: DurabilityConfig = field(default_factory=DurabilityConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    heartbeat: HeartbeatConfig = field(default_factory=HeartbeatConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    mqtt: MqttConfig = field(default_factory=MqttConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @classmethod
    def load(
        cls, path: Path | None, environment: Mapping[str, str] | None = None
    ) -> "BrokerConfig":
        """Read a file, if one is given, and let environment variables override it.

        Relative paths start at the directory of the file, or at the working directory if there is
        no file. A ConfigError names everything that is wrong.
        """
        if path is None:
            return cls.from_mapping({}, environment)
        return cls.from_mapping(
            document_in(path), environment, source=str(path), directory=path.parent
        )

    @classmethod
    def from_mapping(
        cls,
        document: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
        *,
        source: str = "configuration",
        directory: Path = Path(),
    ) -> "BrokerConfig":
        """Read a configuration that was parsed already.

        `source` names it in error messages, and relative paths start at `directory`.
        """
        # The default is a relative path, so it is treated as if the file named it.
        document = {"data": _DATA, **document}
        return read(cls, document, environment or {}, source=source, directory=directory)

    def to_toml(self) -> str:
        """Write a file that explains each key. Reading it gives an equal configuration."""
        return as_toml(self)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.network.parent == self.name:
            yield "network.parent", "is this broker itself: name a neighbour, or leave it out"
        yield from self._not_with_devices_alone()
        network = self.network
        names = (*network.protocols, *network.overlay_protocols, network.handover_protocol, TERMS)
        asked = [plugins.find(name) for name in names]
        needed = [named(need) for found in asked for need in found.needs]
        used = {found.name: found for found in (*asked, *needed)}
        for name in self.protocols:
            if name not in used:
                yield f"protocols.{name}", f"is not used here; there are {', '.join(used)}"
        settings = Settings(
            handover=self.handover_options, protocols=tuple(used), options=self.protocols
        )
        for name, protocol in used.items():
            try:
                for part in protocol.parts:
                    part.make(settings).handlers()  # It reads its options.
            except msgspec.ValidationError as error:
                yield f"protocols.{name}", str(error)
            except Exception as error:  # noqa: BLE001 - it is code of another package.
                yield f"protocols.{name}", f"cannot be used: {type(error).__name__} ({error})"

    def _not_with_devices_alone(self) -> Iterator[tuple[str, str]]:
        """What a network of devices alone cannot do, besides what `network` says of it."""
        if self.network.overlay is not Overlay.AD_HOC:
            return
        because = 'with network.overlay = "ad-hoc"'
        stays = f"must not be set {because}: MQTT clients cannot look for another broker"
        for key in ("listen", "websocket"):
            if getattr(self.mqtt, key):
                yield f"mqtt.{key}", stays
        unannounced = f"must not be set {because}: subscriptions with places are not passed on"
        for key in ("grid", "graph"):
            if getattr(self.places, key) is not None:
                yield f"places.{key}", unannounced
        if self.mobility.model is not None:
            yield "mobility.model", unannounced

    @property
    def routing_options(self) -> RoutingOptions:
        """How the broker routes."""
        return RoutingOptions(
            strategy=self.network.strategy,
            advertisements=self.network.advertisements,
            hierarchical=self.network.hierarchy,
            parent=self.network.parent,
            announces=self.network.overlay is not Overlay.AD_HOC,
        )

    @property
    def handover_options(self) -> HandoverOptions:
        """How the network hands clients over, and what it keeps for them."""
        return HandoverOptions(
            protocol=plugins.find(self.network.handover_protocol).name,
            cache_events_max=self.limits.queue_events_per_client_max,
            cache_bytes_max=self.limits.queue_bytes_per_client_max,
            cache_ttl_us=_microseconds_or_none(self.limits.kept_s),
            away_max_us=_microseconds_or_none(self.limits.away_s),
            away_clients_max=self.limits.clients_away_max,
            away_filters_max=self.limits.subscriptions_away_max,
            filters_max=self.limits.subscriptions_per_client_max,
        )

    @property
    def device_options(self) -> DeviceOptions:
        """How the broker hosts MQTT clients."""
        mqtt = self.mqtt
        limits_s = [
            each for each in (mqtt.session_expiry_s, self.limits.away_s) if each is not None
        ]
        return DeviceOptions(
            receive_maximum=mqtt.receive_maximum,
            inflight_max=mqtt.inflight_max,
            maximum_packet_size=self.limits.frame_bytes_max,
            topic_aliases=mqtt.topic_aliases_max,
            keep_alive_max_s=mqtt.keep_alive_max_s,
            retained_max=mqtt.retained_max,
            session_expiry_max_s=min(NEVER_S, *(max(1, int(each)) for each in limits_s)),
            journal=mqtt.journal,
            lift=tuple(
                Lift(
                    topics=each.topics,
                    bytes_max=each.bytes_max,
                    attributes_max=each.attributes_max,
                    depth_max=each.depth_max,
                )
                for each in mqtt.lift
            ),
            topic=mqtt.topic,
            payload=mqtt.payload,
        )

    @property
    def history_options(self) -> HistoryOptions:
        """What the broker remembers of the events that passed it, and where it looks for more."""
        history = self.history
        return HistoryOptions(
            events_max=history.memory_events_max,
            bytes_max=history.memory_bytes_max,
            age_max_us=_microseconds_or_none(history.keep_s),
            buffers=tuple(
                BufferOptions(
                    filter=Filter(each.filter),
                    events_max=each.events_max,
                    bytes_max=each.bytes_max,
                    age_max_us=_microseconds_or_none(each.keep_s),
                )
                for each in history.buffers
            ),
            publisher_events=history.publisher_events_max,
            publishers_max=history.publishers_max,
            search=history.search,
            search_us=_microseconds(history.search_timeout_s),
            hold_us=_microseconds(history.hold_s),
            prepares=history.prepares,
        )

    def mobility_options(self) -> MobilityOptions | None:
        """Where clients went before, if there is a model. Reads its file."""
        return None if self.mobility.model is None else mobility_in(self.mobility.model)

    def places_options(self, mobility: MobilityOptions | None) -> PlacesOptions | None:
        """The locations of the network, if it has any. Reads the file of the movement graph.

        Without a grid or a graph, they are those of the mobility model.
        """
        places = self.places
        if places.grid is not None:
            edges: _Edges = ()
        elif places.graph is not None:
            edges = _edges(MovementGraph.load(places.graph))
        elif mobility is not None:
            edges = _edges(mobility.mined().graph())
        else:
            return None
        options = PlacesOptions(
            edges=edges,
            directed=True,
            h3_resolution=places.grid,
            rule=places.rule,
            dwell=places.dwell,
            probe_us=_microseconds(places.probe_s),
            away_steps_max=places.away_steps_max,
            grain_us=places.grain_us,
        )
        return replace(options, dwell_us=self._dwell_us(options.space(), mobility))

    def _dwell_us(self, space: LocationSpace, mobility: MobilityOptions | None) -> Time | None:
        """The dwell time that is configured, or mined at exactly the locations of the network."""
        places = self.places
        if places.dwell_s is not None:
            return _microseconds(places.dwell_s)
        mined_us = None if mobility is None else mobility.dwell_us_in(space)
        if mined_us is None and places.graph is not None:
            return mined_dwell_us(places.graph)
        return mined_us


_Edges = tuple[tuple[str, str], ...]


def _microseconds(seconds: float) -> Time:
    return max(1, round(seconds * 1e6))


def _microseconds_or_none(seconds: float | None) -> Time | None:
    return None if seconds is None else _microseconds(seconds)


def _edges(graph: MovementGraph) -> _Edges:
    """All edges, each in its direction. A location that leads nowhere gets an edge to itself.

    That edge adds nothing, as a client can always stay; it only names the location.
    """
    return tuple(
        (location, other)
        for location in graph.locations
        for other in graph.neighbours(location) or (location,)
    )
