"""The sections of a broker's configuration: what can be set, its default and its meaning."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from sterna.core.adhoc.serving import AD_HOC
from sterna.core.handover.options import Handover
from sterna.core.history.options import Search
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.mobile.efficient import EFFICIENT
from sterna.core.mobile.modular import MODULAR
from sterna.core.mobile.phoenix import PHOENIX
from sterna.core.mobile.reversing import REVERSING
from sterna.core.mobile.simple import SIMPLE
from sterna.core.overlay.branches import BRANCHES
from sterna.core.overlay.electing import ELECTION
from sterna.core.presubscribing.replicator import PRESUBSCRIBING
from sterna.core.routing.options import Strategy
from sterna.devices.options import Face
from sterna.model.filters import Filter
from sterna.net.config.schema import (
    GIB,
    KIB,
    MIB,
    Bound,
    ConfigSection,
    Count,
    Name,
    Seconds,
    Size,
    means,
)

PacketId = Annotated[int, Meta(ge=1, le=65_535)]
Interval = Annotated[float, Meta(ge=0, le=1e9)]
Depth = Annotated[int, Meta(ge=1, le=8)]
TopicAliases = Annotated[int, Meta(ge=0, le=65_535)]
KeepAlive = Annotated[int, Meta(ge=0, le=65_535)]

ELECTING = (ELECTION.name, BRANCHES.name)
"""The protocols of brokers that make their own tree."""

ALONE = (ELECTION.name, REVERSING.name, AD_HOC.name)
"""The protocols of devices alone, each with a broker that serves while it is needed."""

NEED_A_FIXED_TREE = frozenset((Handover.RELOCATION.value, Handover.HOME.value, PHOENIX.name))
"""Handover protocols that do not work, or are not proven, on a tree that changes."""

WITHOUT_ROUTES = frozenset((SIMPLE.name, MODULAR.name, EFFICIENT.name, REVERSING.name))
"""Protocols with tables of subscribers, which take the place of our usual routing."""


class Durability(StrEnum):
    """What an acknowledgement means."""

    NONE = "none"
    """The broker has received the input. It writes nothing to disk and forgets all on a restart."""
    BATCH = "batch"
    """The input is synced to disk. All inputs that arrive during a sync share the next one."""
    SYNC = "sync"
    """The input is synced to disk, by a sync of its own."""


class SlowConsumer(StrEnum):
    """What happens to a client that reads too slowly for its queue."""

    DISCONNECT = "disconnect"
    """The client is disconnected. When it returns, it gets what was kept for it."""
    BLOCK = "block"
    """Publishers wait for the client."""


class LogLevel(StrEnum):
    """The least important messages that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How log messages are written."""

    TEXT = "text"
    """Each message is a line for people."""
    JSON = "json"
    """Each message is a line with a JSON object, for programs."""


class Overlay(StrEnum):
    """Who decides which brokers are neighbours."""

    TREE = "tree"
    """The configuration does."""
    ELECT = "elect"
    """The brokers do: they elect a leader, and link to a tree below it."""
    AD_HOC = "ad-hoc"
    """The brokers do, and each serves only while clients need it; clients find it by themselves."""


class NetworkConfig(ConfigSection, frozen=True, kw_only=True):
    """How brokers form a network. They may differ while a change rolls through the network."""

    overlay: Annotated[
        Overlay,
        means(
            "Who decides which brokers are neighbours. With `tree`, `neighbours` does. With "
            "`elect`, brokers exchange heartbeats (UDP, at the port of `listen`), elect a leader "
            "and make a tree, and another one when brokers or links fail. With `ad-hoc`, brokers "
            "do so that are needed: each device has one, which sleeps until a client finds no "
            "other. It is the same at all brokers.",
            for_start=True,
        ),
    ] = Overlay.TREE
    neighbours: Annotated[
        tuple[str, ...],
        means(
            "The brokers that this one connects to, as `sterna://host:port`. The network is a "
            "tree. Only one of two neighbours names the other. With `overlay` = `elect` or "
            "`ad-hoc`, the brokers that may be in reach: all brokers can have the same list.",
            for_start=True,
        ),
    ] = ()
    accept_brokers: Annotated[bool, means("Whether other brokers may connect to this one.")] = True
    strategy: Annotated[
        Strategy, means("Which filters brokers forward to each other for their subscriptions.")
    ] = Strategy.COVERING
    advertisements: Annotated[
        bool,
        means("Whether subscriptions are forwarded only to where matching events are advertised."),
    ] = False
    quenching: Annotated[
        bool, means("Whether publishers discard events that match no subscription.")
    ] = False
    handover: Annotated[
        str | None,
        means(
            "The protocol by which clients move from one broker to another: `none`, `naive`, "
            "`relocation`, `standard`, `logging`, `prefetching`, `home`, or one from another "
            "package, as in `protocols`. If it is not set, `relocation`; with `overlay` = "
            "`elect`, `standard`, as `relocation` and `home` need a tree that stays; with "
            "`ad-hoc`, always `phoenix`.",
            example="relocation",
        ),
    ] = None
    hierarchy: Annotated[
        bool,
        means(
            "Whether the network is a hierarchy: all events go up to its root, and down only to "
            "where they are wanted. It is the same at all brokers. Each but the root has a "
            "`parent`."
        ),
    ] = False
    parent: Annotated[
        Name | None,
        means(
            "The name of the neighbour that leads to the root of the hierarchy. The root has none.",
            example="b1",
        ),
    ] = None
    protocols: Annotated[
        tuple[str, ...],
        means(
            "More protocols that brokers take part in. Each is `presubscribing` (virtual clients), "
            "the name that an installed package announces, or `module:ATTRIBUTE` of a module on "
            "PYTHONPATH."
        ),
    ] = ()

    @property
    def handover_protocol(self) -> str:
        """The handover protocol that is set, or the one that suits the overlay."""
        if self.handover is not None:
            return self.handover
        return {
            Overlay.TREE: Handover.RELOCATION.value,
            Overlay.ELECT: Handover.STANDARD.value,
            Overlay.AD_HOC: PHOENIX.name,
        }[self.overlay]

    @property
    def elects(self) -> bool:
        """Whether brokers make their links by themselves."""
        return self.overlay is not Overlay.TREE

    @property
    def overlay_protocols(self) -> tuple[str, ...]:
        """The protocols that brokers take part in because of the overlay."""
        return {Overlay.TREE: (), Overlay.ELECT: ELECTING, Overlay.AD_HOC: ALONE}[self.overlay]

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.parent is not None and not self.hierarchy:
            yield "parent", "needs network.hierarchy = true, at this and all other brokers"
        for name in self.protocols:
            if name in ELECTING:
                yield "protocols", f'has {name!r}: set network.overlay = "elect" instead'
            if name == AD_HOC.name:
                yield "protocols", f'has {name!r}: set network.overlay = "ad-hoc" instead'
        if self.overlay is Overlay.ELECT:
            yield from self._not_with_election()
        if self.overlay is Overlay.AD_HOC:
            yield from self._not_with_devices_alone()

    def _not_with_election(self) -> Iterator[tuple[str, str]]:
        """What loses events on a tree that changes, or assumes that it does not change."""
        because = 'with network.overlay = "elect"'
        needs_a_tree = f"does not work on a tree that changes: {because}, set standard, prefetching"
        loses = "when the tree changes, routing by advertisements loses events"
        if self.handover in NEED_A_FIXED_TREE:
            yield "handover", f"is {self.handover!r}, which {needs_a_tree} or logging"
        if self.advertisements:
            yield "advertisements", f"must be false {because}: {loses}"
        if self.hierarchy:
            yield "hierarchy", f"must be false {because}: its root and parents are fixed"
        if not self.accept_brokers:
            yield "accept_brokers", f"must be true {because}: either end makes the link"
        for name in self.protocols:
            if name in WITHOUT_ROUTES or name == PRESUBSCRIBING.name:
                yield "protocols", f"must not have {name!r} {because}: leave it out"

    def _not_with_devices_alone(self) -> Iterator[tuple[str, str]]:
        """What assumes that brokers announce filters to each other, or that they stay."""
        because = 'with network.overlay = "ad-hoc"'
        if self.handover not in {None, PHOENIX.name}:
            yield "handover", f"is {self.handover!r}: {because}, it is {PHOENIX.name}; leave it out"
        for key, why in (
            ("advertisements", "brokers know all subscribers, whatever is advertised"),
            ("quenching", "a broker that has just begun to serve knows no subscriptions yet"),
            ("hierarchy", "its root and parents are fixed"),
        ):
            if getattr(self, key):
                yield key, f"must be false {because}: {why}"
        if not self.accept_brokers:
            yield "accept_brokers", f"must be true {because}: either end makes the link"
        for name in self.protocols:
            if name in WITHOUT_ROUTES or name == PRESUBSCRIBING.name:
                yield "protocols", f"must not have {name!r} {because}: leave it out"


class PlacesConfig(ConfigSection, frozen=True, kw_only=True):
    """The locations for subscriptions that follow their client. There may be none."""

    grid: Annotated[
        Annotated[int, Meta(ge=0, le=15)] | None,
        means("The resolution of the H3 grid whose hexagons are the locations."),
    ] = None
    graph: Annotated[
        str | None,
        means(
            "A file with the movement graph whose nodes are the locations: JSON, CSV or a mined "
            "model. Set either this or `grid`."
        ),
    ] = None
    rule: Annotated[
        StepRule,
        means("How many moves around a client's location a distant broker subscribes to."),
    ] = StepRule.SAFE
    dwell: Annotated[
        Dwell, means("How the time that a client stays at a location is estimated.")
    ] = Dwell.LEAST
    dwell_s: Annotated[
        Seconds | None,
        means(
            "The shortest time that clients stay at a location. If it is not set, the shortest "
            "stay in a mined model counts if the model knows all locations, or else what each "
            "client measures. Until one of these is known, a client may be anywhere."
        ),
    ] = None
    probe_s: Annotated[
        Seconds,
        means("How often the round trip of a link that carries moving subscriptions is measured."),
    ] = 1.0
    away_steps_max: Annotated[
        Bound,
        means(
            "How many moves a client may make while its link is down and still receive every "
            "event about its new location from the moment when the link is up again."
        ),
    ] = 8
    grain_us: Annotated[
        Count,
        means(
            "Measured round trips are rounded up to a multiple of this, so that clients at about "
            "the same distance can share a route."
        ),
    ] = 1_000

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if self.grid is not None and self.graph is not None:
            yield "graph", "excludes places.grid: leave one of them out"


class MobilityConfig(ConfigSection, frozen=True, kw_only=True):
    """What brokers know of where clients go. Brokers of one network may have different models."""

    model: Annotated[
        str | None,
        means(
            "A file that `sterna pipeline mine` wrote. It predicts where clients go next. Its "
            "movement graph gives the locations, unless `places` has a grid or a graph. Its "
            "shortest stay is their dwell time if it knows all of them, unless `places.dwell_s` "
            "is set."
        ),
    ] = None


class DurabilityConfig(ConfigSection, frozen=True, kw_only=True):
    """What survives a crash of the broker or its machine."""

    level: Annotated[
        Durability,
        means(
            "What an acknowledgement means. With `none`, the input is received. With `batch`, it "
            "is synced to disk together with others that arrived meanwhile. With `sync`, it is "
            "synced to disk on its own.",
            for_start=True,
        ),
    ] = Durability.BATCH
    snapshot_bytes: Annotated[
        Size,
        means(
            "The broker takes a snapshot when its log has grown by this size. If the last snapshot "
            "is larger than half of it, the log grows by twice the last snapshot, but never by "
            "more than four times this size or an eighth of `bytes_max`."
        ),
    ] = 64 * MIB
    snapshot_inputs: Annotated[
        Count, means("The broker takes a snapshot when its log has grown by this many inputs.")
    ] = 1_000_000
    segment_bytes: Annotated[Size, means("The size of one file of the log.", for_start=True)] = (
        64 * MIB
    )
    bytes_max: Annotated[
        Bound,
        means(
            "How much disk space the log and its snapshots may take. The broker stops when they "
            "need more. With 0, there is no limit."
        ),
    ] = 4 * GIB
    salvage: Annotated[
        bool,
        means(
            "Whether the broker starts despite a damaged log, from the part before the damage. "
            "What it acknowledged later is lost. The damaged files are set aside.",
            for_start=True,
        ),
    ] = False

    def contradictions(self) -> Iterator[tuple[str, str]]:
        least = self.segment_bytes + self.snapshot_bytes
        if 0 < self.bytes_max < least:
            yield (
                "bytes_max",
                f"is less than segment_bytes and snapshot_bytes together: needs at least {least}",
            )


class LimitsConfig(ConfigSection, frozen=True, kw_only=True):
    """How much peers may ask of the broker. It refuses and disconnects those that ask for more."""

    frame_bytes_max: Annotated[Size, means("The size of the largest frame.")] = MIB
    connections_max: Annotated[
        Count, means("How many clients and brokers may be connected at the same time.")
    ] = 10_000
    handshake_s: Annotated[
        Seconds, means("How long the handshake of a new connection may take.")
    ] = 5.0
    handshake_bytes_max: Annotated[
        Size, means("The size of the largest frame before the handshake is finished.")
    ] = 64 * KIB
    subscriptions_per_client_max: Annotated[
        Count, means("How many subscriptions one client may have.")
    ] = 10_000
    queue_events_per_client_max: Annotated[
        Count,
        means("How many events are kept for each subscription of a client that is away."),
    ] = 100_000
    queue_bytes_per_client_max: Annotated[
        Size, means("How many bytes may wait for one client, whether it is connected or away.")
    ] = 64 * MIB
    queue_bytes_max: Annotated[
        Size,
        means(
            "How many bytes may wait for all connected clients together. When there are more, the "
            "clients with the longest queues are disconnected."
        ),
    ] = 512 * MIB
    memory_bytes_max: Annotated[
        Size | None,
        means(
            "About how much memory all queues and unfinished frames together may take. Each kind "
            "has a share of it: three eighths for neighbours, a quarter for connected clients, a "
            "quarter for clients that are away, an eighth for unfinished frames. Unless set, it "
            "is four times `queue_bytes_max`."
        ),
    ] = None
    spill_bytes_max: Annotated[
        Bound,
        means(
            "About how much disk space queues for neighbours that are down and for clients that "
            "are away may take in `data`, beyond the memory that they have. Only then do "
            "publishers wait, and is the oldest discarded. With 0, nothing is written to disk."
        ),
    ] = 4 * GIB
    frame_s: Annotated[
        Seconds,
        means(
            "How long a frame may take to arrive completely. For each 16 KiB that have arrived, "
            "it may take a second more."
        ),
    ] = 30.0
    in_flight_bytes_max: Annotated[
        Size,
        means(
            "How many bytes may be received but not yet durable and routed. When there are more, "
            "the broker stops reading until it has caught up."
        ),
    ] = 16 * MIB
    kept_s: Annotated[
        Seconds | None,
        means("How long events are kept for a client that is away. Unless set, there is no limit."),
    ] = None
    away_s: Annotated[
        Seconds | None,
        means(
            "How long a client may stay away before it is forgotten, with all that is kept for it."
        ),
    ] = 86_400.0
    clients_away_max: Annotated[
        Count,
        means(
            "How many clients that are away the broker remembers. When there are more, it forgets "
            "those first that have no subscriptions and for which nothing is kept, then others; "
            "of both, those first that have been away for the longest time."
        ),
    ] = 50_000
    subscriptions_away_max: Annotated[
        Count,
        means(
            "How many subscriptions and advertisements clients that are away may have together. "
            "When there are more, those with the most are forgotten."
        ),
    ] = 250_000
    slow_consumer: Annotated[
        SlowConsumer,
        means(
            "What happens when the queue of a connected client is full: `disconnect` the client, "
            "or `block` the publishers until it has caught up."
        ),
    ] = SlowConsumer.DISCONNECT

    def contradictions(self) -> Iterator[tuple[str, str]]:
        for name in ("in_flight_bytes_max", "queue_bytes_per_client_max", "queue_bytes_max"):
            if getattr(self, name) < self.frame_bytes_max:
                yield name, "is less than limits.frame_bytes_max: no room for one frame"
        if self.memory_bytes_max is not None and self.memory_bytes_max < 8 * self.frame_bytes_max:
            yield "memory_bytes_max", "is less than eight times limits.frame_bytes_max"


class HeartbeatConfig(ConfigSection, frozen=True, kw_only=True):
    """How the broker detects dead connections."""

    every_s: Annotated[
        Seconds,
        means("The broker sends a ping to each peer from which it received nothing for this long."),
    ] = 5.0
    missed_max: Annotated[
        Count,
        means(
            "How many of these periods in a row a peer may stay silent. After one more, it is "
            "disconnected."
        ),
    ] = 3


class HttpConfig(ConfigSection, frozen=True, kw_only=True):
    """The HTTP server with health, readiness, metrics and status, for operators."""

    listen: Annotated[
        str,
        means(
            "The address of the server, such as `127.0.0.1:7480`. Port 0 stands for any free port. "
            "When empty, there is no server.",
            for_start=True,
        ),
    ] = ""


class JournalConfig(ConfigSection, frozen=True, kw_only=True):
    """The facts journal, which the data pipeline reads."""

    enabled: Annotated[bool, means("Whether the broker writes a journal.", for_start=True)] = True
    segment_bytes: Annotated[
        Size, means("The broker finishes a file of the journal and begins a new one at this size.")
    ] = 64 * MIB
    segment_s: Annotated[
        Seconds,
        means("The broker finishes a file of the journal and begins a new one at this age."),
    ] = 60.0
    flush_s: Annotated[
        Seconds, means("How long facts may wait in memory before they are written.")
    ] = 1.0
    bytes_max: Annotated[
        Bound,
        means(
            "How much disk space the journal may take. When it needs more, its oldest files are "
            "removed. With 0, there is no limit."
        ),
    ] = 4 * GIB

    def contradictions(self) -> Iterator[tuple[str, str]]:
        if 0 < self.bytes_max < self.segment_bytes:
            yield "bytes_max", "is less than one file: see segment_bytes"


class BufferConfig(ConfigSection, frozen=True, kw_only=True):
    """A history buffer: some events are kept however many others pass."""

    filter: str
    """It keeps events that match this filter."""
    events_max: Count = 10_000
    bytes_max: Size = 64 * MIB
    keep_s: Seconds | None = None


class HistoryConfig(ConfigSection, frozen=True, kw_only=True):
    """The past events that a subscription can begin with."""

    archive: Annotated[
        str,
        means(
            "The folder of tables that `sterna pipeline run` writes (its `--out`). The broker "
            "reads events from there that are older than its own memory. When empty, there is no "
            "archive."
        ),
    ] = ""
    events_max: Annotated[
        Count, means("How many events from the archive one subscription can begin with.")
    ] = 100_000
    memory_events_max: Annotated[
        Bound,
        means(
            "How many of the events that passed the broker remembers, the last ones. With 0, it "
            "remembers those of `buffers` and of its own publishers only."
        ),
    ] = 10_000
    memory_bytes_max: Annotated[
        Size,
        means(
            "About how much memory these events may take, and what the broker keeps of its own "
            "publishers as much again."
        ),
    ] = 64 * MIB
    keep_s: Annotated[
        Seconds | None,
        means(
            "How long the broker remembers an event. What it keeps of its own publishers goes when "
            "the publisher has been silent for so long. Unless set, there is no limit."
        ),
    ] = None
    buffers: Annotated[
        tuple[BufferConfig, ...],
        means(
            "More memory for some events, which others do not push out: a list of tables with "
            "`filter`, `events_max` (10000), `bytes_max` (64 MiB) and `keep_s` (no limit)."
        ),
    ] = ()
    publisher_events_max: Annotated[
        Bound,
        means(
            "How many events of each of its own publishers the broker keeps, however loud the "
            "others are. With 0, it keeps none for that reason."
        ),
    ] = 100
    publishers_max: Annotated[
        Count,
        means(
            "Of how many publishers. When there are more, those that have been silent for the "
            "longest time are forgotten first."
        ),
    ] = 10_000
    search: Annotated[
        Search,
        means(
            "Where the broker looks for the past of a subscription: `none` is its own memory only; "
            "`nearest` is the way to the publishers, up to the first broker that has everything; "
            "the others are all brokers on the way. `complete` sends the least and ends when it "
            "has enough."
        ),
    ] = Search.COMPLETE
    search_timeout_s: Annotated[
        Seconds,
        means("How long the broker waits for what other brokers have; then it goes on without."),
    ] = 2.0
    hold_s: Annotated[
        Seconds,
        means(
            "How long a client has new events wait for past ones; then it goes on without the rest "
            "of these."
        ),
    ] = 5.0
    prepares: Annotated[
        bool,
        means(
            "Whether subscriptions without a past also have brokers find out from when on they "
            "have everything, so that later subscriptions find their past nearer."
        ),
    ] = False

    def contradictions(self) -> Iterator[tuple[str, str]]:
        filters = [Filter(buffer.filter) for buffer in self.buffers]
        if len(set(filters)) < len(filters):
            yield "buffers", "has the same filter twice: leave one of them out"
        if self.hold_s < self.search_timeout_s and self.search is not Search.NONE:
            yield "hold_s", "is less than search_timeout_s: clients would not wait for a search"


class LiftConfig(ConfigSection, frozen=True, kw_only=True):
    """MQTT messages whose payload is a JSON object: its members become attributes."""

    topics: str
    """The topic filter of these messages."""
    bytes_max: Size = 16 * KIB
    attributes_max: Count = 64
    depth_max: Depth = 1


class MqttConfig(ConfigSection, frozen=True, kw_only=True):
    """MQTT 3.1.1 and 5.0, for devices and programs that speak it."""

    listen: Annotated[
        str,
        means(
            "The address where MQTT clients connect, such as `127.0.0.1:1883`. Port 0 stands for "
            "any free port. When empty, there is none.",
            for_start=True,
        ),
    ] = ""
    websocket: Annotated[
        str,
        means(
            "The address where MQTT clients connect over WebSockets, such as those in browsers. "
            "When empty, there is none.",
            for_start=True,
        ),
    ] = ""
    receive_maximum: Annotated[
        PacketId,
        means("How many messages with QoS 1 or 2 a client may send before they are acknowledged."),
    ] = 1_000
    inflight_max: Annotated[
        PacketId,
        means(
            "How many messages with QoS 1 or 2 are sent to a client before it acknowledges them, "
            "unless the client allows for less."
        ),
    ] = 1_000
    topic_aliases_max: Annotated[
        TopicAliases,
        means(
            "How many topic aliases a client may use on a connection, and how many it is sent at "
            "most if it takes any."
        ),
    ] = 64
    server_reference: Annotated[
        str,
        means(
            "Where MQTT clients are to connect when this broker stops, such as "
            "`b2.example.org:1883`; several places with spaces between them. They are sent it with "
            "reason code 0x9C, and their sessions may follow them until the broker ends. When "
            "empty, they are told 0x8B."
        ),
    ] = ""
    keep_alive_max_s: Annotated[
        KeepAlive,
        means(
            "For how many seconds a client may be silent at most: one that asks for a longer keep "
            "alive, or for none, is told this one. Clients of 3.1.1 cannot be told. 0: as long as "
            "they ask for."
        ),
    ] = 0
    retained_max: Annotated[
        Count, means("For how many topics messages are retained in the network.")
    ] = 100_000
    session_expiry_s: Annotated[
        Seconds | None,
        means(
            "How long a session lasts at most after its connection has ended. Unless set, it is "
            "`limits.away_s`, for nothing is kept for longer than that."
        ),
    ] = None
    sys_interval_s: Annotated[
        Interval,
        means(
            "How often those that subscribe to topics that begin with `$SYS/` are told how the "
            "broker is. 0: never."
        ),
    ] = 10.0
    journal: Annotated[
        bool,
        means(
            "Whether the broker's journal also has what MQTT clients publish, subscribe to and "
            "get, so that `sterna pipeline audit` judges it. It then has each event once more for "
            "each client that gets it."
        ),
    ] = False
    lift: Annotated[
        tuple[LiftConfig, ...],
        means(
            "Messages with a JSON object as payload whose members become attributes, to filter by: "
            "a list of tables with `topics`, a topic filter, `bytes_max` (16 KiB), "
            "`attributes_max` (64) and `depth_max` (1; with 2, members of an object `at` become "
            "`at.…`). The first that fits the topic holds. Other payloads are left alone."
        ),
    ] = ()
    topic: Annotated[
        str,
        means(
            "The topic that events without one have for MQTT subscribers, such as `vehicles/{id}`: "
            "`{id}` stands for the attribute `id`. Events without that attribute do not reach "
            "them. When empty, no event without a topic does."
        ),
    ] = ""
    payload: Annotated[
        Face,
        means(
            "What MQTT subscribers get as the payload of events that native clients published: "
            "the `event`'s own payload, or its attributes as a JSON object if there is none; or "
            "always such an object (`json`)."
        ),
    ] = Face.EVENT


class LogConfig(ConfigSection, frozen=True, kw_only=True):
    """Log messages for operators, on standard error."""

    level: Annotated[
        LogLevel, means("The broker logs messages of this level and of more important ones.")
    ] = LogLevel.INFO
    format: Annotated[
        LogFormat,
        means("`text` writes a line for people, `json` a line with a JSON object for programs."),
    ] = LogFormat.TEXT
