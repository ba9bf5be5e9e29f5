"""How fast a broker is, beside mosquitto in the same run."""

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from sterna.bench.contenders import RELAY, Contender, compared, contenders, versions
from sterna.bench.latency import percentile
from sterna.bench.load import LoadError
from sterna.bench.measure import Progress
from sterna.bench.scenarios import (
    BATCH,
    EVERYTHING,
    WINDOW,
    Scenario,
    ScenarioName,
    contents,
    scenario,
)
from sterna.bench.servers import (
    MOSQUITTO_SETTINGS,
    Server,
    SternaServer,
    find_mosquitto,
    mosquitto_version,
)
from sterna.bench.worker import (
    Connect,
    Drop,
    Expect,
    Measure,
    Prepare,
    Protocol,
    Publish,
    Return,
    Worker,
)
from sterna.errors import SternaError
from sterna.net.observer import ask

Measured = TypeVar("Measured")

WARM_UP = 0.25
"""The first round does not count, and has this share of the events."""
IDLE = (Protocol.NATIVE, Protocol.MQTT_0)
"""What idle clients speak: it makes no difference to them what QoS is."""
CLIENTS_AT_ONCE = 1_000
"""So many idle clients are connected with one order."""
QUEUED = 100_000
"""How many events wait for the client that comes back."""


@dataclass(frozen=True)
class Options:
    """What to measure, and how long."""

    scenarios: Sequence[ScenarioName] = tuple(ScenarioName)
    latency: bool = True
    drain: bool = True
    rounds: int = 5
    scale: float = 1.0
    """A factor for the number of events in a round."""
    rate: float = 2_000.0
    """How many events a second are published when latency is measured."""
    seconds: float = 5.0
    """How many seconds latency is measured in each round."""
    connections: int = 20
    """How many connections share the content filters."""
    queued: int = QUEUED
    data: Path | None = None
    """Where brokers write; None: in the system's directory for temporary files."""
    devices: bool = False
    """Whether clients speak MQTT, to Sterna as well."""
    clients: int = 10_000
    """How many idle clients are connected when memory is measured."""
    idle: bool = False
    beside: Path | None = None
    """A Python with another version of Sterna, which is measured in turns with this one."""


@dataclass(frozen=True)
class Speed:
    """The speed of one contender in one scenario: medians of rounds, with the extremes."""

    events: int
    """How many events a round has."""
    deliveries: int
    events_per_s: float
    """From the first write until all events are acknowledged and delivered."""
    events_per_s_spread: tuple[float, float]
    acknowledged_per_s: float | None
    """Until all events are acknowledged; None if the protocol has no acknowledgements."""
    deliveries_per_s: float
    cpu_us: float | None
    """Processor time of the broker for each event."""
    rounds: list[float] = field(repr=False)
    """Events a second in each round, for ratios of rounds that ran side by side."""
    cpu_rounds: list[float] = field(repr=False)
    """Processor time for each event, in each round."""


@dataclass(frozen=True)
class Latency:
    """Latencies in microseconds: medians over the rounds of each round's percentiles."""

    p50: float
    p50_spread: tuple[float, float]
    p99: float
    p999: float
    sent_late_p50: float
    """How late the generator sent; the percentiles above include it."""
    sent_late_p99: float
    rounds: list[float] = field(repr=False)


@dataclass(frozen=True)
class Drain:
    """A client comes back to many events."""

    events: int
    seconds: float
    seconds_spread: tuple[float, float]


@dataclass(frozen=True)
class Idle:
    """What clients cost that do nothing."""

    clients: int
    bytes_each: float
    """How many bytes of memory the broker has for each of them."""


@dataclass
class BrokerReport:
    """All that was measured."""

    settings: dict[str, object]
    peer: str | None
    """The version that mosquitto reports; None: it is not installed."""
    about: dict[str, str] = field(default_factory=dict)
    throughput: dict[str, dict[str, Speed]] = field(default_factory=dict)
    """The speeds by scenario and contender."""
    latency: dict[str, Latency] = field(default_factory=dict)
    drain: dict[str, Drain] = field(default_factory=dict)
    idle: dict[str, Idle] = field(default_factory=dict)
    ratios: dict[str, dict[str, float]] = field(default_factory=dict)
    """The ratios by measurement: medians over rounds that ran in turns."""
    cpu_ratios: dict[str, dict[str, float]] = field(default_factory=dict)
    """Ratios of processor time by scenario; only those to another version."""
    failed: dict[str, str] = field(default_factory=dict)
    """What could not be measured, and why."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(options: Options, progress: Progress) -> BrokerReport:
    """Measure everything that was asked for; what fails is in the report, beside the rest."""
    mosquitto = find_mosquitto()
    report = BrokerReport(
        settings={
            "rounds": options.rounds,
            "scale": options.scale,
            "rate": options.rate,
            "seconds": options.seconds,
            "payload_bytes": 100,
            "sterna": "all features on (journal, sessions, relocation, metrics); "
            "durable is durability.level = batch",
            "mosquitto": MOSQUITTO_SETTINGS
            | {"persistence": "true with QoS 1; it writes at autosave_interval, and never syncs"},
        },
        peer=None if mosquitto is None else mosquitto_version(mosquitto),
    )
    doing = ""

    def tell(text: str) -> None:
        nonlocal doing
        doing = text
        progress(text)

    @contextmanager
    def noting(name: str) -> Iterator[None]:
        """What fails in here is noted, and the next measurement follows."""
        try:
            yield
        except (SternaError, OSError) as error:
            report.failed[name] = f"{error} (at: {doing})"

    with tempfile.TemporaryDirectory(prefix="sterna-bench-", dir=options.data) as directory:
        bench = _Bench(options, tell, mosquitto, Path(directory))
        for name in options.scenarios:
            with noting(name):
                made = scenario(name, options.connections)
                report.about[name] = made.about
                speeds = bench.throughput(made)
                report.throughput[name] = _by_name(speeds)
                report.ratios[name] = _speed_ratios(speeds)
                report.cpu_ratios[name] = _cpu_ratios(speeds)
        if options.latency:
            with noting("latency"):
                latencies = bench.latency()
                report.latency = _by_name(latencies)
                report.ratios["latency p50"] = _latency_ratios(latencies)
        for contender in bench.contenders if options.drain else ():
            if contender.keeps:
                with noting(f"drain, {contender}"):
                    report.drain[str(contender)] = bench.drain(contender)
        for contender in bench.contenders if options.idle else ():
            if not contender.is_durable and contender.protocol in IDLE:
                with noting(f"idle, {contender}"):
                    report.idle[str(contender)] = bench.idle(contender)
    return report


@dataclass
class _Entry:
    """A contender at work: its broker, and the two processes that load it."""

    contender: Contender
    server: Server
    publishing: Worker
    subscribing: Worker

    @property
    def protocol(self) -> Protocol:
        return self.contender.protocol


class _Bench:
    def __init__(
        self, options: Options, progress: Progress, mosquitto: str | None, directory: Path
    ) -> None:
        self._options = options
        self._progress = progress
        self._mosquitto = mosquitto
        self._directory = directory
        self._started = 0

    # ---- Throughput

    def throughput(self, scenario: Scenario) -> dict[Contender, Speed]:
        options, rounds = self._options, self._options.rounds
        able = [each for each in self.contenders if each.protocol in scenario.events]
        if scenario.name is ScenarioName.ONE_TO_ONE and not options.devices:
            able.append(RELAY)  # It knows no filters, and only one publisher.
        with self._entries(able, scenario.name) as entries:
            for entry in entries:
                self._progress(f"{scenario.name}: {entry.contender} gets its clients")
                _connect(entry, scenario)
            measured: dict[Contender, list[_Round]] = {entry.contender: [] for entry in entries}
            for number in range(rounds + 1):
                for entry in entries:
                    self._progress(
                        f"{scenario.name}: {entry.contender}, "
                        + (f"round {number} of {rounds}" if number else "warming up")
                    )
                    scale = options.scale if number else options.scale * WARM_UP
                    events = scenario.events_of(entry.protocol, scale)
                    one = _round(entry, scenario, events)
                    while not number and _compiles(entry.server):
                        _round(entry, scenario, events)
                    if number:
                        measured[entry.contender].append(one)
        return {contender: _speed(each) for contender, each in measured.items()}

    # ---- Latency

    def latency(self) -> dict[Contender, Latency]:
        options = self._options
        known = contents()
        took: dict[Contender, list[tuple[float, ...]]] = {}
        with self._entries(self.contenders, "latency") as entries:
            for number in range(options.rounds + 1):
                for entry in entries:
                    self._progress(
                        f"latency: {entry.contender}, "
                        + (f"round {number} of {options.rounds}" if number else "warming up")
                    )
                    seconds = options.seconds if number else 1.0
                    order = Measure(
                        protocol=entry.protocol,
                        port=entry.server.client_port,
                        contents=known,
                        rate=options.rate,
                        events=max(1, round(options.rate * seconds)),
                    )
                    latencies = entry.publishing.ask(order).latencies
                    if latencies is None:
                        raise LoadError("the load generator measured nothing")
                    if number:
                        took.setdefault(entry.contender, []).append(
                            (
                                *(percentile(latencies.took_us, s) for s in (0.5, 0.99, 0.999)),
                                *(percentile(latencies.late_us, s) for s in (0.5, 0.99)),
                            )
                        )
        return {contender: _latency(rounds) for contender, rounds in took.items()}

    # ---- A client that comes back

    def drain(self, contender: Contender) -> Drain:
        queued, known = self._options.queued, contents()
        rounds = max(1, self._options.rounds // 2)
        seconds = []
        with self._entries([contender], "drain") as (entry,):
            _connect_plain(entry)
            for number in range(rounds):
                self._progress(f"drain: {contender}, round {number + 1} of {rounds}")
                entry.subscribing.ask(Drop())
                entry.publishing.ask(
                    Prepare(contents=known, events=queued, batch=BATCH, window=WINDOW)
                )
                entry.publishing.ask(Publish())
                order = Return(port=entry.server.client_port, counts=[queued])
                came = entry.subscribing.ask(order)
                if came.too_many and entry.protocol is not Protocol.MQTT_1:  # At least once.
                    raise LoadError(f"{contender} delivered {came.too_many:,} events twice")
                seconds.append(came.ended - came.began)
        return Drain(queued, statistics.median(seconds), (min(seconds), max(seconds)))

    # ---- Clients that do nothing

    def idle(self, contender: Contender) -> Idle:
        """Connect many clients, each with a subscription, and see what memory they take."""
        clients = self._options.clients
        with self._entries([contender], "idle") as (entry,):
            _connect_plain(entry)
            before = entry.server.resident_bytes
            for first in range(0, clients, CLIENTS_AT_ONCE):
                self._progress(f"idle: {contender}, {first:,} of {clients:,} clients")
                some = range(first, min(first + CLIENTS_AT_ONCE, clients))
                filters = {f"idle-{number}": [EVERYTHING] for number in some}
                port, protocol = entry.server.client_port, entry.protocol
                entry.subscribing.ask(Connect(protocol=protocol, port=port, filters=filters))
            after = entry.server.resident_bytes
        if before is None or after is None:
            raise LoadError("this system does not report the memory of a process")
        return Idle(clients, (after - before) / clients)

    # ---- Brokers and processes

    @property
    def contenders(self) -> list[Contender]:
        options = self._options
        return contenders(
            devices=options.devices,
            other=options.beside is not None,
            mosquitto=self._mosquitto is not None,
        )

    @contextmanager
    def _entries(self, contenders: Sequence[Contender], about: str) -> Iterator[list[_Entry]]:
        """Empty brokers, which all run for as long as one of them is measured."""
        with ExitStack() as stack:
            self._progress(f"{about}: starting {', '.join(map(str, contenders))}")
            servers = []
            for contender in contenders:
                self._started += 1
                server = contender.start(
                    self._directory / f"{self._started}",
                    other=self._options.beside,
                    mosquitto=self._mosquitto,
                )
                stack.callback(server.kill)
                servers.append(server)
            workers = [[stack.enter_context(Worker()) for _ in range(2)] for _ in contenders]
            yield [
                _Entry(contender, stack.enter_context(server), *pair)
                for contender, server, pair in zip(contenders, servers, workers, strict=True)
            ]


def _connect(entry: _Entry, scenario: Scenario) -> None:
    port, protocol = entry.server.client_port, entry.protocol
    publishers: dict[str, list[str]] = {
        f"publisher-{number}": [] for number in range(scenario.publishers)
    }
    entry.publishing.ask(Connect(protocol=protocol, port=port, filters=publishers))
    entry.subscribing.ask(Connect(protocol=protocol, port=port, filters=dict(scenario.filters)))


def _connect_plain(entry: _Entry) -> None:
    port, protocol = entry.server.client_port, entry.protocol
    entry.publishing.ask(Connect(protocol=protocol, port=port, filters={"publisher": []}))
    wanted = {"subscriber": [EVERYTHING]}
    entry.subscribing.ask(Connect(protocol=protocol, port=port, filters=wanted))


@dataclass(frozen=True)
class _Round:
    events: int
    deliveries: int
    acknowledged_s: float | None
    delivered_s: float
    cpu_s: float | None

    @property
    def whole_s(self) -> float:
        return max(self.acknowledged_s or 0.0, self.delivered_s)


def _compiles(server: Server) -> bool:
    """Whether a broker has just started, and has not compiled all filters."""
    return isinstance(server, SternaServer) and bool(
        ask(server.url, "status").get("filters_uncompiled")  # An older version does not say it.
    )


def _round(entry: _Entry, scenario: Scenario, events: int) -> _Round:
    entry.publishing.ask(
        Prepare(
            contents=scenario.contents,
            events=events // scenario.publishers,
            batch=scenario.batch,
            window=scenario.window,
        )
    )
    counts = scenario.deliveries(events)
    before = entry.server.cpu_s
    entry.subscribing.tell(Expect(counts=counts))
    published = entry.publishing.ask(Publish())
    arrived = entry.subscribing.hear()
    after = entry.server.cpu_s
    if arrived.too_many:
        raise LoadError(f"{entry.contender} delivered {arrived.too_many:,} events too many")
    return _Round(
        events=events,
        deliveries=sum(counts),
        acknowledged_s=published.ended - published.began
        if entry.contender.is_acknowledged
        else None,
        delivered_s=arrived.ended - published.began,
        cpu_s=None if before is None or after is None else after - before,
    )


def _by_name(measured: Mapping[Contender, Measured]) -> dict[str, Measured]:
    return {str(contender): each for contender, each in measured.items()}


def _speed(rounds: Sequence[_Round]) -> Speed:
    whole = [one.events / one.whole_s for one in rounds]
    acknowledged = [one.events / one.acknowledged_s for one in rounds if one.acknowledged_s]
    cpu = [one.cpu_s / one.events * 1e6 for one in rounds if one.cpu_s is not None]
    return Speed(
        events=rounds[0].events,
        deliveries=rounds[0].deliveries,
        events_per_s=statistics.median(whole),
        events_per_s_spread=(min(whole), max(whole)),
        acknowledged_per_s=statistics.median(acknowledged) if acknowledged else None,
        deliveries_per_s=statistics.median(one.deliveries / one.delivered_s for one in rounds),
        cpu_us=statistics.median(cpu) if cpu else None,
        rounds=whole,
        cpu_rounds=cpu,
    )


def _latency(rounds: Sequence[tuple[float, ...]]) -> Latency:
    p50, p99, p999, late_p50, late_p99 = (list(each) for each in zip(*rounds, strict=True))
    return Latency(
        p50=statistics.median(p50),
        p50_spread=(min(p50), max(p50)),
        p99=statistics.median(p99),
        p999=statistics.median(p999),
        sent_late_p50=statistics.median(late_p50),
        sent_late_p99=statistics.median(late_p99),
        rounds=p50,
    )


def _speed_ratios(speeds: Mapping[Contender, Speed]) -> dict[str, float]:
    rounds = {contender: speed.rounds for contender, speed in speeds.items()}
    return _ratios(rounds, compared(list(speeds)))


def _cpu_ratios(speeds: Mapping[Contender, Speed]) -> dict[str, float]:
    rounds = {each: speed.cpu_rounds for each, speed in speeds.items() if speed.cpu_rounds}
    return _ratios(rounds, versions(list(rounds)))


def _latency_ratios(latencies: Mapping[Contender, Latency]) -> dict[str, float]:
    rounds = {contender: latency.rounds for contender, latency in latencies.items()}
    return _ratios(rounds, compared(list(latencies)))


def _ratios(
    rounds: Mapping[Contender, Sequence[float]], pairs: Sequence[tuple[Contender, Contender]]
) -> dict[str, float]:
    """How many times as fast one is as another: the median over rounds run side by side."""
    return {
        f"{one} / {other}": statistics.median(
            a / b for a, b in zip(rounds[one], rounds[other], strict=True)
        )
        for one, other in pairs
    }
