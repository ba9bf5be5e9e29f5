"""How long a client waits for its events when it comes to another broker of a live network."""

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from sterna.bench.latency import percentile
from sterna.bench.measure import Progress
from sterna.bench.scenarios import ranges
from sterna.bench.servers import SternaServer
from sterna.bench.worker import Connect, Protocol, Roam, Worker
from sterna.net.config import Durability

FILTERS_EACH = 100
"""How many subscriptions each idle client has."""
WARM_UP = 10
"""How many handovers do not count."""


@dataclass(frozen=True)
class Gap:
    """Milliseconds from when the client begins to connect to when it has what it missed."""

    p50: float
    p99: float
    worst: float


@dataclass(frozen=True)
class HandoverReport:
    """All that was measured."""

    brokers: int
    subscriptions: int
    handovers: int
    gaps_ms: dict[str, Gap]
    """The gaps by level of durability."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(
    progress: Progress, *, brokers: int, subscriptions: int, handovers: int, data: Path | None
) -> HandoverReport:
    """Measure with and without durability; LoadError says what went wrong."""
    gaps = {}
    for level in (Durability.NONE, Durability.BATCH):
        with tempfile.TemporaryDirectory(prefix="sterna-bench-", dir=data) as directory:
            gaps[str(level)] = _measure(
                progress, level, Path(directory), brokers, subscriptions, handovers
            )
    return HandoverReport(brokers, subscriptions, handovers, gaps)


def _measure(
    progress: Progress, level: Durability, directory: Path, brokers: int, subscriptions: int,
    handovers: int,
) -> Gap:  # fmt: skip
    with ExitStack() as stack:
        line: list[SternaServer] = []
        for number in range(brokers):
            progress(f"{level}: starting broker {number + 1} of {brokers}")
            neighbours = [line[-1].url] if line else []
            name = f"B{number + 1}"
            server = SternaServer(directory / name, level, name=name, neighbours=neighbours)
            line.append(stack.enter_context(server))
        others, roaming = (stack.enter_context(Worker()) for _ in range(2))
        progress(f"{level}: {subscriptions:,} other subscriptions")
        filters = [str(each) for each in ranges(subscriptions, symbol="other")]
        for number, server in enumerate(line):
            mine = filters[number::brokers]
            clients = {
                f"other-{number}-{start}": mine[start : start + FILTERS_EACH]
                for start in range(0, len(mine), FILTERS_EACH)
            }
            others.ask(Connect(protocol=Protocol.NATIVE, port=server.port, filters=clients))
        progress(f"{level}: {handovers:,} handovers")
        ports = [line[0].port, line[-1].port]
        gaps_ms = roaming.ask(Roam(ports=ports, handovers=WARM_UP + handovers)).gaps_ms[WARM_UP:]
        return Gap(
            p50=statistics.median(gaps_ms), p99=percentile(gaps_ms, 0.99), worst=max(gaps_ms)
        )
