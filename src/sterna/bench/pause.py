"""How long a live broker stops for all clients while it takes a snapshot or packs its index.

A broker is filled over its own protocol: clients that are away, for which it keeps events, or
clients with many subscriptions. Then it is pinged until it has taken a snapshot.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic

from sterna.bench.index_pause import longest_calls
from sterna.bench.latency import percentile
from sterna.bench.load import LoadError
from sterna.bench.measure import Progress
from sterna.bench.scenarios import BATCH, WINDOW, ranges
from sterna.bench.servers import SternaServer
from sterna.bench.speaker import Content
from sterna.bench.stops import SNAPSHOT_S, spare_inputs
from sterna.bench.worker import Connect, Drop, Leave, Prepare, Protocol, Publish, Watch, Worker
from sterna.errors import SternaError
from sterna.net.config import Durability
from sterna.net.observer import ask

EVENTS_EACH = 10_000
"""How many events are kept for each client that is away."""
SUBSCRIPTIONS_EACH = 1_000
"""How many subscriptions each subscribing client has."""
CLIENTS_AT_ONCE = 10
EVENTS_AT_ONCE = 100_000
"""How many events the load generator sends before the time is checked."""

INPUTS_MIN = 1_000
INPUTS_PER_ITEM = 1 / 50
"""How many inputs it may take to fill a broker: a read of its socket brings many items."""

SNAPSHOT_BYTES = 2**40
"""The log never grows by so much: the number of inputs decides when a snapshot is due."""
QUEUE_BYTES = 2**36
"""As much may wait for all clients together, and nothing is refused."""
ASKING_S = 60.0
WATCHING_S = SNAPSHOT_S + 120.0
"""How many seconds the load generator may take for the inputs and the snapshot."""


@dataclass(frozen=True)
class Options:
    """What to measure."""

    events: Sequence[int]
    """How many events a broker keeps; each is measured on its own."""
    subscriptions: Sequence[int]
    """How many subscriptions a broker has, or an index."""
    calm_s: float = 3.0
    """How many seconds the broker is pinged before the snapshot, for comparison."""
    at_most_s: float = 1_200.0
    """After so many seconds nothing more is begun, and a broker that is not full is given up."""
    data: Path | None = None
    """Where brokers write; None: in the system's directory for temporary files."""


@dataclass(frozen=True)
class Row:
    """One measurement; the times are round trips of pings, or calls of the index."""

    what: str
    size: int
    longest_ms: float
    baseline_ms: float
    """The longest round trip without a snapshot, in the same run; for the index, the processor time
    of the longest call."""
    p999_ms: float | None = None
    """The 99.9th percentile; None if only the longest call of the index is known."""


@dataclass(frozen=True)
class Skipped:
    """What was not measured."""

    what: str
    size: int
    why: str


@dataclass
class PauseReport:
    """All that was measured."""

    rows: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class SkippedError(SternaError):
    """Something cannot be measured, here or in time; the message says why."""


def run(options: Options, progress: Progress) -> PauseReport:
    """Measure every size for which there is time; LoadError says what went wrong."""
    report = PauseReport()
    deadline = monotonic() + options.at_most_s
    series: tuple[tuple[str, Sequence[int], Measure], ...] = (
        ("snapshot, kept events", options.events, _KeptEvents(options, progress).rows),
        ("snapshot, subscriptions", options.subscriptions, _Subscribed(options, progress).rows),
        ("index", options.subscriptions, index_rows),
    )
    for what, sizes, measure in series:
        for size in sizes:
            progress(f"{what}: {size:,}")
            try:
                if monotonic() > deadline:
                    raise SkippedError("the time was over before it began")
                report.rows += measure(what, size, deadline)
            except SkippedError as skipped:
                report.skipped.append(Skipped(what, size, str(skipped)))
    return report


Measure = Callable[[str, int, float], list[Row]]
"""Takes the kind of things, how many there are of it, and the deadline."""


# ---- Snapshots


class _Snapshots(ABC):
    """Fills a broker and pings it while it takes a snapshot."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self._options = options
        self._progress = progress

    def rows(self, what: str, size: int, deadline: float) -> list[Row]:
        calm_s = self._options.calm_s
        inputs = INPUTS_MIN + round(size * INPUTS_PER_ITEM) + spare_inputs(calm_s)
        with ExitStack() as stack:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="sterna-bench-", dir=self._options.data)
            )
            settings = {
                "durability": {
                    "snapshot_inputs": inputs,
                    "snapshot_bytes": SNAPSHOT_BYTES,
                    "bytes_max": 0,
                },
                "limits": {"queue_bytes_max": QUEUE_BYTES},
            }
            server = SternaServer(Path(folder), Durability.BATCH, settings=settings)
            stack.enter_context(server)
            stack.callback(server.kill)  # It would take another snapshot before it ends.
            first, second = (stack.enter_context(Worker()) for _ in range(2))
            for done in self.fill(server, first, second, size):
                self._progress(f"{what}: {done:,} of {size:,}")
                if monotonic() > deadline:
                    raise SkippedError(f"the broker had only {done:,} when the time was over")
            self.check(server, size)
            self._progress(f"{what}: {size:,}, waiting for the snapshot")
            order = Watch(port=server.port, snapshot_inputs=inputs, calm_s=calm_s)
            trips = first.ask(order, within_s=WATCHING_S).round_trips
        if trips is None:
            raise LoadError("the load generator measured nothing")
        row = Row(
            what,
            size,
            longest_ms=max(trips.snapshot_ms),
            p999_ms=percentile(trips.snapshot_ms, 0.999),
            baseline_ms=max(trips.calm_ms),
        )
        return [row]

    @abstractmethod
    def fill(self, server: SternaServer, first: Worker, second: Worker, size: int) -> Iterator[int]:
        """Give the broker that many; yield how many it has from time to time."""

    @abstractmethod
    def check(self, server: SternaServer, size: int) -> None:
        """LoadError if the broker does not have that many."""


class _KeptEvents(_Snapshots):
    """Clients are away, and each event is kept for one of them."""

    def fill(self, server: SternaServer, first: Worker, second: Worker, size: int) -> Iterator[int]:
        clients = -(-size // EVENTS_EACH)
        filters = {f"away-{number}": [f"sym = 'kept-{number}'"] for number in range(clients)}
        contents: list[Content] = [(f"kept-{number}", 1.0) for number in range(clients)]
        first.ask(Connect(protocol=Protocol.NATIVE, port=server.port, filters=filters))
        first.ask(Drop())
        second.ask(Connect(protocol=Protocol.NATIVE, port=server.port, filters={"publisher": []}))
        for done in range(0, size, EVENTS_AT_ONCE):
            yield done
            events = min(EVENTS_AT_ONCE, size - done)
            second.ask(Prepare(contents=contents, events=events, batch=BATCH, window=WINDOW))
            second.ask(Publish())

    def check(self, server: SternaServer, size: int) -> None:
        waiting = ask(server.url, "queues", timeout_s=ASKING_S)["queues"]
        kept = sum(each["kept_events"] for each in waiting)
        if kept != size:
            raise LoadError(f"the broker keeps {kept:,} events, not {size:,}")


class _Subscribed(_Snapshots):
    """Clients subscribe and go away; nothing matches."""

    def fill(self, server: SternaServer, first: Worker, second: Worker, size: int) -> Iterator[int]:
        del second
        filters = [str(each) for each in ranges(size, symbol="other")]
        for done in range(0, size, CLIENTS_AT_ONCE * SUBSCRIPTIONS_EACH):
            yield done
            some = filters[done : done + CLIENTS_AT_ONCE * SUBSCRIPTIONS_EACH]
            clients = {
                f"subscriber-{done + start}": some[start : start + SUBSCRIPTIONS_EACH]
                for start in range(0, len(some), SUBSCRIPTIONS_EACH)
            }
            first.ask(Connect(protocol=Protocol.NATIVE, port=server.port, filters=clients))
            first.ask(Leave())

    def check(self, server: SternaServer, size: int) -> None:
        held = ask(server.url, "status", timeout_s=ASKING_S)["subscriptions"]
        if held != size:
            raise LoadError(f"the broker has {held:,} subscriptions, not {size:,}")


# ---- The index


def index_rows(what: str, size: int, deadline: float) -> list[Row]:
    """The longest calls of an index with so many subscriptions, a row for each kind of call."""
    del deadline
    found = longest_calls(size)
    kinds = {"add": found.add, "replace": found.replace, "match": found.match}
    kinds["new attribute"] = found.introduce
    return [
        Row(f"{what}, {kind}", size, longest_ms=longest.wall_ms, baseline_ms=longest.cpu_ms)
        for kind, longest in kinds.items()
    ]
