"""What a broker does, in numbers, as Prometheus reads them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sterna.core.facts import Fact, HandoverFinished, HandoverStarted
from sterna.core.history.facts import PastFound
from sterna.core.names import NodeId, Time
from sterna.core.presubscribing.facts import VirtualEnded
from sterna.journal.rows import events_in, is_about_events

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

UNFINISHED_MAX = 100_000
"""How many unfinished handovers are remembered: those that never end must not fill the memory."""

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The upper bounds of the histograms: about three for each power of ten."""


LINKS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32)
"""The upper bounds of histograms of how far away something is."""


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a broker right now; the driver makes one for each scrape."""

    connections: Mapping[str, int] = {}
    """How many, by the other side: `client`, `mqtt`, `broker`, or `unknown` at first."""
    clients_away: int = 0
    clients_elsewhere: int = 0
    subscriptions: int = 0
    queue_events: int = 0
    queue_bytes: int = 0
    unfinished_bytes: int = 0
    memory_bytes: int = 0
    memory_bytes_max: int = 0
    spilled_bytes: int = 0
    peers_waiting: int = 0
    in_flight_bytes: int = 0
    log_bytes: int = 0
    log_inputs: int = 0
    snapshots_failed: int = 0
    journal_bytes: int = 0
    links_stalled: int = 0
    loop_holds: int = 0
    loop_held_s_max: float = 0.0
    is_ready: bool = False
    datagrams: Mapping[str, int] = {}
    """How many heartbeats were sent and heard, and how many datagrams were ignored and why."""
    mqtt_ignored: Mapping[str, int] = {}
    """What in messages of MQTT clients was not used, by what it was."""
    election: "ElectionGauges | None" = None
    serves: bool | None = None
    """Whether this device serves, among devices alone; None elsewhere."""


class ElectionGauges(msgspec.Struct, frozen=True, kw_only=True):
    """Where a broker is in a tree that brokers make by themselves."""

    is_leader: bool
    hops: int
    round: int
    brokers: int
    in_reach: int
    cut_off: int
    kept_events: int


class Histogram:
    """Counts how many durations fell between which bounds."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, meaning: str) -> HistogramMetricFamily:
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return HistogramMetricFamily(name, meaning, buckets=buckets, sum_value=self._sum)


class Metrics(Collector):
    """Counts what the driver reports; for the loop's thread alone, so that counting is cheap.

    The library's own counters take a lock each time; these are plain numbers that become the
    library's with each scrape.
    """

    def __init__(self, node: NodeId, gauges: Callable[[], Gauges]) -> None:
        self._node = node
        self._gauges = gauges
        self._facts: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._handovers: dict[NodeId, Time] = {}
        self._handover_seconds = Histogram()
        self._replayed = self._held = 0
        self._past: Counter[str] = Counter()
        self._virtual: Counter[str] = Counter()
        self._past_seconds = Histogram()
        self._past_away = Histogram(LINKS)
        self._received_bytes = self._received_frames = 0
        self._sent_bytes = self._sent_frames = 0
        self._commit_seconds = Histogram()
        self._committed = 0
        self._release_seconds = Histogram()
        self._snapshots: Counter[str] = Counter()
        self._snapshot_seconds = Histogram()
        self._closed: Counter[str] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def facts(self, facts: Sequence[Fact]) -> None:
        """Count facts that the broker has stated."""
        for fact in facts:
            kind = type(fact)
            name = kind.__name__
            self._facts[name] += 1
            if is_about_events(kind):
                self._events[name] += events_in(fact)
            elif isinstance(fact, PastFound):
                self._past_found(fact)
            elif isinstance(fact, VirtualEnded):
                self._virtual.update(handed=fact.handed, dropped=fact.dropped, unused=fact.unused)
            elif isinstance(fact, HandoverStarted):
                self._handovers[fact.client] = fact.time
                if len(self._handovers) > UNFINISHED_MAX:
                    del self._handovers[next(iter(self._handovers))]
            elif isinstance(fact, HandoverFinished):
                self._replayed += fact.replayed
                self._held += fact.held
                started = self._handovers.pop(fact.client, None)
                if started is not None:
                    self._handover_seconds.observe((fact.time - started) / 1e6)

    def _past_found(self, fact: PastFound) -> None:
        self._past.update(
            here=fact.here,
            virtual=fact.virtual,
            neighbours=fact.neighbours,
            archive=fact.archived,
        )
        if fact.search_us is not None:
            self._past_seconds.observe(fact.search_us / 1e6)
            self._past_away.observe(fact.away)

    @property
    def events(self) -> int:
        """How many events the facts so far were about."""
        return sum(self._events.values())

    def received(self, size_bytes: int, frames: int) -> None:
        """Count what came from a peer."""
        self._received_bytes += size_bytes
        self._received_frames += frames

    def sent(self, size_bytes: int, frames: int) -> None:
        """Count what went to a peer."""
        self._sent_bytes += size_bytes
        self._sent_frames += frames

    def commit(self, seconds: float, records: int) -> None:
        """Count a sync, which made so many inputs durable and took so long."""
        self._commit_seconds.observe(seconds)
        self._committed += records

    def released(self, seconds: float) -> None:
        """Count the time from an input to the sending of what it caused."""
        self._release_seconds.observe(seconds)

    def snapshot(self, how: str, seconds: float) -> None:
        """Count a snapshot, or a failed one; `how` is one of a fixed set of words."""
        self._snapshots[how] += 1
        if seconds:
            self._snapshot_seconds.observe(seconds)

    def closed(self, reason: str) -> None:
        """Count a connection that ended; `reason` is one of a few, never a peer's own text."""
        self._closed[reason] += 1

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics as the library wants them."""
        yield InfoMetricFamily(
            "sterna", "Which broker this is.", {"node": self._node, "version": version("sterna")}
        )
        yield from self._counters()
        yield self._handover_seconds.family(
            "sterna_handover_seconds",
            "From a client's arrival, or the news that it is expected, until all that it missed is "
            "here.",
        )
        yield self._past_seconds.family(
            "sterna_past_search_seconds",
            "How long searches for the past at other brokers took, one for each subscription.",
        )
        yield self._past_away.family(
            "sterna_past_search_links",
            "How many links away the farthest broker was that had some of it; 0 if none had.",
        )
        yield self._commit_seconds.family(
            "sterna_commit_seconds", "How long it took to make inputs durable."
        )
        yield self._release_seconds.family(
            "sterna_release_seconds", "From an input's arrival until what it caused is sent."
        )
        yield self._snapshot_seconds.family(
            "sterna_snapshot_seconds", "From the beginning of a snapshot until it is on disk."
        )
        gauges = self._gauges()
        ignored = "Things in messages of MQTT clients that were not used, by what they were."
        yield _labelled("sterna_mqtt_ignored", ignored, "what", gauges.mqtt_ignored)
        if gauges.election is not None or gauges.serves is not None:
            datagrams = "Datagrams of the election: sent, heard, or ignored for a reason."
            yield _labelled("sterna_datagrams", datagrams, "what", gauges.datagrams)
        if gauges.serves is not None:
            meaning = "1 while this device serves, among devices alone; 0 while it sleeps."
            yield GaugeMetricFamily("sterna_ad_hoc_serves", meaning, int(gauges.serves))
        if gauges.election is not None:
            yield from _election_families(gauges.election)
        holds = "How often the event loop stood still for more than 100 ms."
        yield CounterMetricFamily("sterna_loop_holds", holds, gauges.loop_holds)
        yield from _gauge_families(gauges)

    def _counters(self) -> Iterator[Metric]:
        facts = "Facts that the broker stated, by kind."
        yield _labelled("sterna_facts", facts, "kind", self._facts)
        events = "Events that those facts are about, by kind; Forwarded counts each link."
        yield _labelled("sterna_events", events, "kind", self._events)
        past = (
            "Past events that subscriptions began with: had here, by a virtual client, by "
            "neighbours, by the archive."
        )
        yield _labelled("sterna_past_events", past, "where", self._past)
        virtual = (
            "Events of virtual clients that have ended: their clients got them, they were dropped, "
            "or nobody came for them."
        )
        yield _labelled("sterna_virtual_events", virtual, "end", self._virtual)
        closed = "Connections that ended, by reason."
        yield _labelled("sterna_connections_closed", closed, "reason", self._closed)
        snapshots = "Snapshots of the state: made inline, by the second process, or failed."
        yield _labelled("sterna_snapshots", snapshots, "how", self._snapshots)
        for name, meaning, value in (
            ("received_bytes", "Bytes that came from peers.", self._received_bytes),
            ("received_frames", "Frames that came from peers.", self._received_frames),
            ("sent_bytes", "Bytes that went to peers.", self._sent_bytes),
            ("sent_frames", "Frames that went to peers.", self._sent_frames),
            ("committed_inputs", "Inputs that were made durable.", self._committed),
            (
                "handover_replayed_events",
                "Events fetched for clients that arrived.",
                self._replayed,
            ),
            ("handover_held_events", "Events held back until those were delivered.", self._held),
        ):
            yield CounterMetricFamily(f"sterna_{name}", meaning, value)


def _labelled(
    name: str, meaning: str, label: str, counts: Mapping[str, int]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _election_families(gauges: ElectionGauges) -> Iterator[Metric]:
    for name, meaning, value in (
        ("leader", "1 when this broker leads its part of the network.", int(gauges.is_leader)),
        ("hops", "How many links there are to the leader.", gauges.hops),
        ("round", "The last round of heartbeats of this leader.", gauges.round),
        ("brokers", "How many brokers this part of the network has.", gauges.brokers),
        ("in_reach", "How many brokers are heard.", gauges.in_reach),
        (
            "cut_off",
            "Neighbours that were lost, and for what was behind them events are kept.",
            gauges.cut_off,
        ),
        ("kept_events", "How many events are kept for those.", gauges.kept_events),
    ):
        yield GaugeMetricFamily(f"sterna_election_{name}", meaning, value)


def _gauge_families(gauges: Gauges) -> Iterator[Metric]:
    connections = GaugeMetricFamily("sterna_connections", "Connections now.", labels=["peer"])
    for peer, count in gauges.connections.items():
        connections.add_metric([peer], count)
    yield connections
    for name, meaning, value in (
        (
            "clients_away",
            "Clients that are away and for which events are kept.",
            gauges.clients_away,
        ),
        (
            "clients_elsewhere",
            "Clients that have their home here and are elsewhere, or that are expected here.",
            gauges.clients_elsewhere,
        ),
        ("subscriptions", "Subscriptions of clients at this broker.", gauges.subscriptions),
        (
            "queue_events",
            "Events that wait for clients and neighbours, connected or not.",
            gauges.queue_events,
        ),
        ("queue_bytes", "About how many bytes these are.", gauges.queue_bytes),
        (
            "unfinished_bytes",
            "Bytes received of frames that are not complete.",
            gauges.unfinished_bytes,
        ),
        (
            "memory_bytes",
            "About how much memory all that takes that counts against memory_bytes_max.",
            gauges.memory_bytes,
        ),
        ("memory_bytes_max", "How much it may take.", gauges.memory_bytes_max),
        (
            "spilled_bytes",
            "Bytes of queues that are on disk instead of in memory; spill_bytes_max limits them.",
            gauges.spilled_bytes,
        ),
        (
            "peers_waiting",
            "Peers that are not read because the targets of their events take no more.",
            gauges.peers_waiting,
        ),
        (
            "in_flight_bytes",
            "Bytes received but not yet durable and routed.",
            gauges.in_flight_bytes,
        ),
        ("log_bytes", "What log and snapshots take on disk.", gauges.log_bytes),
        ("log_inputs", "Inputs in the log since the last snapshot.", gauges.log_inputs),
        (
            "snapshots_failed_in_a_row",
            "Snapshots that failed since the last one that was made.",
            gauges.snapshots_failed,
        ),
        ("journal_bytes", "What the facts journal takes on disk.", gauges.journal_bytes),
        (
            "links_stalled",
            "Links to neighbours that are connected and make no progress.",
            gauges.links_stalled,
        ),
        (
            "loop_held_seconds_max",
            "The longest time for which the event loop stood still; 0 if none was over 100 ms.",
            gauges.loop_held_s_max,
        ),
        ("ready", "1 when the broker accepts clients.", int(gauges.is_ready)),
    ):
        yield GaugeMetricFamily(f"sterna_{name}", meaning, value)
