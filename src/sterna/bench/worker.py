"""A process of the load generator, and how the benchmark talks to it: a JSON line each way."""

import asyncio
import ctypes
import gc
import select
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from itertools import cycle, islice
from time import perf_counter
from typing import Self

import msgspec
import uvloop

from sterna.bench.latency import Latencies, Pair
from sterna.bench.load import LoadError, LoadGroup
from sterna.bench.mqtt import MqttSpeaker, Qos
from sterna.bench.native import NativeSpeaker
from sterna.bench.roaming import roam
from sterna.bench.speaker import Content, Speaker
from sterna.bench.stops import RoundTrips, watch_snapshot

ANSWER_S = 90.0
"""How many seconds a worker may take for an order by default."""


class Protocol(StrEnum):
    """The protocol of a client."""

    NATIVE = "native"
    MQTT_0 = "mqtt-0"
    MQTT_1 = "mqtt-1"
    MQTT_2 = "mqtt-2"


QOS = {
    Protocol.MQTT_0: Qos.AT_MOST_ONCE,
    Protocol.MQTT_1: Qos.AT_LEAST_ONCE,
    Protocol.MQTT_2: Qos.EXACTLY_ONCE,
}


class Order(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Benchmark -> worker: an order."""


class Connect(Order, frozen=True, kw_only=True):
    """Make clients, beside those that are there; those with filters subscribe."""

    protocol: Protocol
    port: int
    filters: dict[str, list[str]]
    """The filters of each client, by name."""


class Prepare(Order, frozen=True, kw_only=True):
    """Encode events: each client the same number, with these contents over and over."""

    contents: list[Content]
    events: int
    """How many events each client gets."""
    batch: int
    window: int


class Publish(Order, frozen=True, kw_only=True):
    """Publish what is prepared."""


class Expect(Order, frozen=True, kw_only=True):
    """Wait until each client has received so many more."""

    counts: list[int]


class Drop(Order, frozen=True, kw_only=True):
    """Cut the connections; the clients stay."""


class Return(Order, frozen=True, kw_only=True):
    """Connect them again, and wait until each has received so many more."""

    port: int
    counts: list[int]


class Leave(Order, frozen=True, kw_only=True):
    """Cut the connections, and forget the clients."""


class Measure(Order, frozen=True, kw_only=True):
    """Publish single events at fixed times, and note how long each takes."""

    protocol: Protocol
    port: int
    contents: list[Content]
    rate: float
    events: int


class Roam(Order, frozen=True, kw_only=True):
    """Have a client go back and forth between brokers, and note how long it waits for events."""

    ports: list[int]
    handovers: int


class Watch(Order, frozen=True, kw_only=True):
    """Ping a broker until it has taken its first snapshot, and note how long each answer takes."""

    port: int
    snapshot_inputs: int
    """The snapshot is due after so many inputs."""
    calm_s: float
    """How many seconds the broker is pinged before that."""


AnyOrder = Connect | Prepare | Publish | Expect | Drop | Return | Leave | Measure | Roam | Watch


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Worker -> benchmark: done. Times are of a clock that all processes of a machine share."""

    began: float = 0.0
    ended: float = 0.0
    too_many: int = 0
    """How many events arrived and were not expected."""
    latencies: Latencies | None = None
    gaps_ms: list[float] = []
    round_trips: RoundTrips | None = None
    problem: str = ""


class Worker:
    """The benchmark's end of a process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program.
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.terminate()
        self._process.wait()

    def tell(self, order: AnyOrder) -> None:
        """Send an order, without waiting for its end."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker.
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()

    def hear(self, within_s: float = ANSWER_S) -> WorkerAnswer:
        """Wait for the answer; LoadError if the order failed."""
        assert self._process.stdout is not None  # noqa: S101
        if not select.select([self._process.stdout], [], [], within_s + 10)[0]:
            raise LoadError("the load generator does not answer; is the machine very busy?")
        line = self._process.stdout.readline()
        if not line:
            raise LoadError("a process of the load generator has ended by itself")
        answer = msgspec.json.decode(line, type=WorkerAnswer)
        if answer.problem:
            raise LoadError(answer.problem)
        return answer

    def ask(self, order: AnyOrder, within_s: float = ANSWER_S) -> WorkerAnswer:
        """Send an order, and wait for the answer."""
        self.tell(order)
        return self.hear(within_s)


def speaker(protocol: Protocol, name: str, filters: Sequence[str]) -> Speaker:
    """A client that speaks a protocol."""
    if protocol is Protocol.NATIVE:
        return NativeSpeaker(name, filters)
    return MqttSpeaker(name, filters, QOS[protocol])


# ---- The worker's own end


class _Work:
    def __init__(self) -> None:
        self.group = LoadGroup()
        self._pair: tuple[int, Pair] | None = None

    async def obey(self, order: AnyOrder) -> WorkerAnswer:
        group = self.group
        match order:
            case Connect():
                filters = order.filters.items()
                speakers = [speaker(order.protocol, name, wanted) for name, wanted in filters]
                await group.connect("127.0.0.1", order.port, speakers)
            case Prepare():
                contents = list(islice(cycle(order.contents), order.events))
                for client in group.clients:
                    client.prepare(contents, order.batch, order.window)
                gc.collect()
            case Publish():
                began = perf_counter()
                return WorkerAnswer(began=began, ended=await group.publish())
            case Expect():
                return await self._expect(0.0, order.counts)
            case Drop():
                group.drop()
            case Return():
                began = perf_counter()
                await group.again("127.0.0.1", order.port)
                return await self._expect(began, order.counts)
            case Leave():
                group.drop()
                group.clients.clear()
                self._pair = None
            case Measure():
                contents = list(islice(cycle(order.contents), order.events))
                return WorkerAnswer(latencies=self._pair_for(order).measure(contents, order.rate))
            case Roam():
                return WorkerAnswer(gaps_ms=roam(order.ports, order.handovers))
            case Watch():
                trips = watch_snapshot(order.port, order.snapshot_inputs, order.calm_s)
                return WorkerAnswer(round_trips=trips)
        return WorkerAnswer()

    async def _expect(self, began: float, counts: Sequence[int]) -> WorkerAnswer:
        ended = await self.group.expect(counts)
        too_many = sum(client.speaker.received - client.wanted for client in self.group.clients)
        return WorkerAnswer(began=began, ended=ended, too_many=too_many)

    def _pair_for(self, order: Measure) -> Pair:
        """The two clients that measure this broker; the same for each round."""
        if self._pair is None or self._pair[0] != order.port:
            publisher = speaker(order.protocol, "publisher", ())
            subscriber = speaker(order.protocol, "subscriber", ("price >= 0",))
            self._pair = order.port, Pair(publisher, subscriber, order.port)
        return self._pair[1]


async def _main() -> None:
    gc.disable()  # All that is made for a round is freed after it, without cycles.
    _sleep_exactly()
    reader = asyncio.StreamReader(limit=2**26)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    work = _Work()
    while line := await reader.readline():
        order: AnyOrder = msgspec.json.decode(line, type=AnyOrder)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await work.obey(order)
        except TimeoutError:
            answer = WorkerAnswer(problem=f"{type(order).__name__} took too long: {work.group}")
        except (LoadError, OSError) as problem:
            answer = WorkerAnswer(problem=str(problem) or type(problem).__name__)
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        sys.stdout.flush()


def _sleep_exactly() -> None:
    """Have Linux wake this process when it asked for that, not up to 50 µs later."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


_PR_SET_TIMERSLACK = 29

if __name__ == "__main__":
    uvloop.run(_main())
