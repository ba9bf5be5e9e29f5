"""How fast the simulator is, beside a bare loop over a heap."""

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from pathlib import Path
from statistics import median

from sterna.bench.measure import Progress
from sterna.core.inputs import Publish, Subscribe
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.filters import Filter
from sterna.sim.network import Network
from sterna.sim.run import Outcome, Simulation
from sterna.sim.script import Do, Script, Settle, Wait
from sterna.sim.topology import tree

PUBLISHERS, SUBSCRIBERS, KINDS = 100, 200, 27
ROUNDS = 5


@dataclass(frozen=True)
class SimReport:
    """Messages over links a second; each figure is the median of rounds run in turns."""

    brokers: int
    messages: int
    """How many messages each round has."""
    simulator: float
    simulator_spread: tuple[float, float]
    judged: float
    """Messages a second with the oracle, which keeps every fact."""
    bare: float
    """A heap that takes and gives as many entries, with a call for each, a second."""
    bare_times: float
    """How many times as long the simulator takes as the bare heap."""
    long_messages: int
    """How many messages the long run has, without a pause."""
    early_mib: float | None
    """Memory of the process after a tenth of the long run."""
    late_mib: float | None
    """Memory of the process at the end of the long run."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class Flood:
    """Burcea's tree of 85 brokers under flooding: the events of 100 publishers go everywhere."""

    def __init__(self, *, judged: bool) -> None:
        topology = tree(4, 4)
        rng = random.Random("flood")  # noqa: S311 - reproducible, not secret.
        leaves = topology.leaves()
        publishers = {f"p{n}": rng.choice(leaves) for n in range(PUBLISHERS)}
        subscribers = {f"s{n}": rng.choice(leaves) for n in range(SUBSCRIBERS)}
        script = Script(
            topology=topology,
            clients=publishers | subscribers,
            steps=(),
            routing=RoutingOptions(strategy=Strategy.FLOODING),
        )
        self._simulation = Simulation(script, judged=judged)
        for subscriber in subscribers:
            filter_ = Filter(f"kind = {rng.randrange(KINDS)}")
            what = Subscribe(subscription="1", filter=filter_)
            self._simulation.do(Do(client=subscriber, what=what))
        self._simulation.do(Settle())

    @property
    def messages(self) -> int:
        """All messages that went over links so far, acknowledgements not counted."""
        return _messages(self._simulation.network)

    def settle(self) -> None:
        self._simulation.settle()

    def outcome(self) -> Outcome:
        return self._simulation.outcome()

    def publish(self, rounds: int) -> None:
        """Each publisher publishes so many events, one after the other."""
        for _ in range(rounds):
            for number in range(PUBLISHERS):
                event = Publish(attributes={"kind": number % KINDS})
                self._simulation.do(Do(client=f"p{number}", what=event))
                self._simulation.do(Wait(us=600))


def run(progress: Progress, *, rounds: int = ROUNDS, long: int = 100) -> SimReport:
    """Measure; `long` is how many rounds of 100 events the long run has."""
    progress("building the network")
    plain = Flood(judged=False)
    plain.publish(1)
    simulator: list[float] = []
    bare: list[float] = []
    messages = 0
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        speed, messages = _speed(plain)
        simulator.append(speed)
        started = time.perf_counter()
        _bare_heap(messages)
        bare.append(messages / (time.perf_counter() - started))
    before = plain.messages
    early = None
    for part in range(10):
        progress(f"a long run: {part * 10} %")
        plain.publish(long // 10)
        early = early if part else _memory_mib()
    late, long_messages = _memory_mib(), plain.messages - before
    progress("with the oracle")
    judged = Flood(judged=True)  # Its memory of all facts would slow the others down.
    judged.publish(1)
    return SimReport(
        brokers=85,
        messages=messages,
        simulator=median(simulator),
        simulator_spread=(min(simulator), max(simulator)),
        judged=median(_speed(judged)[0] for _ in range(rounds)),
        bare=median(bare),
        bare_times=median(b / s for b, s in zip(bare, simulator, strict=True)),
        long_messages=long_messages,
        early_mib=early,
        late_mib=late,
    )


def _speed(flood: Flood) -> tuple[float, int]:
    """Messages a second in one round, and how many there were."""
    before, started = flood.messages, time.perf_counter()
    flood.publish(4)
    messages = flood.messages - before
    return messages / (time.perf_counter() - started), messages


def _bare_heap(messages: int) -> None:
    """The least cost of any simulation of so many messages: each enters and leaves a heap."""
    planned: list[tuple[int, int, Callable[[int], None], tuple[int]]] = []
    arrived = 0

    def arrive(_message: int) -> None:
        nonlocal arrived
        arrived += 1

    for number in range(84):  # As many are on their way at a time.
        heappush(planned, (number, number, arrive, (number,)))
    for number in range(84, messages + 84):
        now, _, act, details = heappop(planned)
        act(*details)
        heappush(planned, (now + 1000 + number % 7, number, arrive, (number,)))


def _messages(network: Network) -> int:
    return sum(sum(p.messages.values()) for c in network.connections for p in c.pipes)


def _memory_mib() -> float | None:
    """The memory of the process right now; None if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * 4096 / 2**20
