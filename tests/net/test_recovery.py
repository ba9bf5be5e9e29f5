"""A node comes back from its log as it was, and nothing was let out that it does not remember."""

import asyncio
import pickle
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import node
from sterna.core.actions import Transmit
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.catalogue import LIVE
from sterna.core.facts import Detached, Fact
from sterna.core.handover.messages import Arrival
from sterna.core.inputs import Input, LinkDown, LinkUp, Received
from sterna.core.link import Ack, Data, Frame, Resume
from sterna.core.location.messages import Probe
from sterna.core.messages import Events, Route, SubscriptionChange
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.net.config import Durability
from sterna.net.engine import Driver, Engine, loading, recover
from sterna.net.nodes import AT_A_BROKER
from sterna.net.records import Began, encode_began, encode_record
from sterna.net.storage import Log, LogError, LogOptions
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.network import Fate, Observer, Pipe
from sterna.sim.run import Simulation
from sterna.sim.topology import random_tree
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import frame
from tests.net.live import until
from tests.net.storage.model_disk import ModelDisk, PowerCut
from tests.scale import CAMPAIGN, examples
from tests.sim.overlay import RELOCATION

WHERE = Path("log")
BEGAN = Began(node="B1", incarnation=1, settings=Settings(handover=RELOCATION, protocols=LIVE))


class Recorder(Driver):
    """Does nothing, and remembers what it was to do."""

    def __init__(self) -> None:
        self.frames: list[tuple[LinkId, Frame]] = []
        self.facts: list[tuple[int, Fact]] = []
        self.commits = 0
        self.stumbles = 0
        self.failure: Exception | None = None

    def prepare(self, turn: node.Turn) -> object:
        return [(a.link, a.frame) for a in turn.actions if isinstance(a, Transmit)]

    def release(self, prepared: object) -> None:
        self.frames += prepared  # type: ignore[arg-type]

    def stated(self, position: int, facts: Sequence[Fact], _size_bytes: int) -> None:
        self.facts += [(position, fact) for fact in facts]

    def stated_before(self, position: int, facts: Sequence[Fact], size_bytes: int) -> None:
        self.stated(position, facts, size_bytes)

    def committed(self, _seconds: float, _inputs: int) -> None:
        self.commits += 1

    def stumbled(self, _given: Input, _error: Exception) -> None:
        self.stumbles += 1

    def failed(self, error: Exception) -> None:
        self.failure = error

    def acknowledged(self, link: LinkId) -> int:
        """The number up to which the broker has acknowledged everything."""
        said = [f.acknowledged for to, f in self.frames if to == link and isinstance(f, Ack | Data)]
        return max(said, default=0)


def start(
    disk: ModelDisk,
    level: Durability = Durability.BATCH,
    options: LogOptions | None = None,
    kind: type[Broker] = Broker,
) -> tuple[Engine[Broker], Recorder, Log]:
    """A broker at work, from what is on the disk."""
    driver = Recorder()
    log, recovery = Log.open(WHERE, kind="test", load=loading(make), disk=disk, options=options)
    found = recover(log, recovery, BEGAN, make)
    found.node.__class__ = kind
    engine = Engine(found.node, driver, found.began, level=level, log=log)
    engine.recover(found)
    return engine, driver, log


def make(began: Began) -> Broker:
    return make_broker(
        began.node, began.settings, timing=AT_A_BROKER, incarnation=began.incarnation
    )


def receive(engine: Engine[Broker], link: LinkId, *frames: Frame) -> None:
    raw = b"".join(frame(b"".join(encode(each, Bodies()))) for each in frames)
    engine.give(Received(link=link, frames=frames, size=len(raw)), raw)


def stand(engine: Engine[Broker], link: LinkId) -> None:
    """A new client is there."""
    engine.give(LinkUp(link=link, peer=Peer.CLIENT))
    receive(engine, link, Resume(5, None, 0, True), ARRIVAL)


def stand_again(engine: Engine[Broker], link: LinkId, acknowledged: int) -> None:
    """A client comes back, and says what it has."""
    engine.give(LinkUp(link=link, peer=Peer.CLIENT))
    partner = engine.node._sessions[link].incarnation
    receive(engine, link, Resume(5, partner, acknowledged, True))


ARRIVAL = Data(1, 0, Arrival(visit=1, born=0, stay=0, received=0))
ALL = Data(2, 0, SubscriptionChange(added=(Route("1", Filter("TRUE")),)))


def publishing(number: int) -> Data:
    event = Event(publisher="p", seq=number, time_us=number, attributes={"n": number})
    return Data(number + 1, 0, Events(events=(event,)))


# ---- Nothing is let out too early


@pytest.mark.spec("LV-1")
def test_nothing_is_said_before_its_input_is_durable() -> None:
    """Neither the acknowledgement to the publisher nor the event to the subscriber."""

    async def run() -> None:
        engine, driver, log = start(ModelDisk())
        stand(engine, "p")
        stand(engine, "s")
        receive(engine, "s", ALL)
        await until(lambda: not engine.held)
        assert await said_late(engine, driver, log, "p", publishing(1)) == {"p", "s"}
        await engine.stop(snapshot=False)

    asyncio.run(run())


@pytest.mark.spec("LV-1")
def test_a_subscription_is_not_acknowledged_before_it_is_durable() -> None:
    """The acknowledgement is all that it brings about: there is no fact, and no neighbour."""

    async def run() -> None:
        engine, driver, log = start(ModelDisk())
        stand(engine, "s")
        await until(lambda: not engine.held)
        facts = len(driver.facts)
        assert await said_late(engine, driver, log, "s", ALL) == {"s"}
        assert len(driver.facts) == facts
        await engine.stop(snapshot=False)

    asyncio.run(run())


async def said_late(
    engine: Engine[Broker], driver: Recorder, log: Log, link: LinkId, sent: Frame
) -> set[LinkId]:
    """To whom a frame makes the broker say something, but only after the log is on the disk."""
    driver.frames.clear()
    gate = threading.Event()
    commit = log.commit

    def late(*, sync: bool = True) -> int:
        gate.wait()
        return commit(sync=sync)

    log.commit = late  # type: ignore[method-assign]
    receive(engine, link, sent)
    for _ in range(20):
        await asyncio.sleep(0)
    assert driver.frames == []
    gate.set()
    await until(lambda: not engine.held)
    return {to for to, _ in driver.frames}


@pytest.mark.spec("LV-1")
def test_no_fact_is_told_before_its_input_is_durable() -> None:
    """Not even that a link is lost, about which nothing is sent."""

    async def run() -> list[type[Fact]]:
        engine, driver, log = start(ModelDisk())
        stand(engine, "s")
        await until(lambda: not engine.held)
        driver.facts.clear()
        engine.give(LinkDown(link="s"))
        assert log.synced >= log.appended or not driver.facts
        await until(lambda: not engine.held)
        await engine.stop(snapshot=False)
        return [type(fact) for _, fact in driver.facts]

    assert asyncio.run(run()) == [Detached]


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("level", [Durability.BATCH, Durability.SYNC])
def test_what_was_said_is_remembered_after_a_power_cut(level: Durability) -> None:
    """Wherever the power is cut: what publishers were told to be safe is there, what subscribers
    got is known to have been sent, and nothing is acknowledged that was never received.
    """
    seen = {"cuts": 0, "acknowledged": 0, "snapshots": 0}

    @examples(60, long=5)
    @given(st.integers(1, 100), st.integers(0, 2**32))
    def holds(cut_at: int, seed: int) -> None:
        asyncio.run(_cut(level, cut_at, random.Random(seed), seen))  # noqa: S311

    holds()
    assert min(seen.values()) > 3


async def _cut(level: Durability, cut_at: int, rng: random.Random, seen: dict[str, int]) -> None:
    disk = ModelDisk()
    options = LogOptions(snapshot_records=10)
    engine, driver, log = start(disk, level, options)
    disk.cut_at = disk.operations + cut_at
    published = 0
    try:
        stand(engine, "p")
        stand(engine, "s")
        receive(engine, "s", ALL)
        while not disk._stopped and published < 100:
            published += 1
            receive(engine, "p", publishing(published))
            if rng.random() < 0.5:
                await asyncio.sleep(0)
        await until(lambda: not engine.held or disk._stopped)
    except PowerCut:
        pass
    is_cut = disk._stopped
    engine._is_over = True
    with suppress(PowerCut):
        await engine.stop(snapshot=False)
    seen["cuts"] += is_cut
    acknowledged = driver.acknowledged("p")
    sent = [f for link, f in driver.frames if link == "s" and isinstance(f, Data)]
    seen["acknowledged"] += acknowledged > 1
    disk.power_cut(rng)

    again, _, log = start(disk, level, options)
    seen["snapshots"] += log._snapshot_position > 0
    session = again.node._sessions.get("p")
    received = 0 if session is None else session._expected - 1
    assert acknowledged <= received <= published + 1
    to_subscriber = again.node._sessions.get("s")
    queue = () if to_subscriber is None else to_subscriber._unacknowledged
    kept = {f.seq: f.message for f in queue if isinstance(f, Data)}
    assert [(f.seq, f.message) for f in sent] == [(f.seq, kept[f.seq]) for f in sent]
    await again.stop(snapshot=False)


@pytest.mark.spec("LV-1")
def test_what_is_replayed_is_not_let_out_again() -> None:
    """It may have been sent; the session sends it again when the other end asks."""

    async def run() -> None:
        disk = ModelDisk()
        engine, driver, _ = start(disk)
        stand(engine, "p")
        stand(engine, "s")
        receive(engine, "s", ALL)
        receive(engine, "p", *map(publishing, (1, 2, 3)))
        await until(lambda: not engine.held)
        await engine.stop(snapshot=False)
        delivered = [f.seq for link, f in driver.frames if link == "s" and isinstance(f, Data)]

        again, driver, _ = start(disk)
        await until(lambda: not again.held)
        assert driver.frames == []
        stand_again(again, "s", acknowledged=delivered[0])
        await until(lambda: not again.held)
        repeated = [f.seq for link, f in driver.frames if link == "s" and isinstance(f, Data)]
        assert repeated == delivered[1:]
        await again.stop(snapshot=False)

    asyncio.run(run())


@pytest.mark.spec("LV-1")
def test_connections_of_before_a_restart_are_over() -> None:
    """Else a client that never returns would count as connected for ever."""

    async def run() -> None:
        disk = ModelDisk()
        engine, _, _ = start(disk)
        stand(engine, "p")
        stand(engine, "s")
        await until(lambda: not engine.held)
        await engine.stop(snapshot=False)

        again, driver, _ = start(disk)
        await until(lambda: not again.held)
        assert again.node.up == {}
        assert not any(again.node.is_connected(link) for link in ("p", "s"))
        detached = [fact.link for _, fact in driver.facts if isinstance(fact, Detached)]
        assert detached == ["p", "s"]
        await again.stop(snapshot=False)

    asyncio.run(run())


@pytest.mark.spec("LV-1")
def test_a_failed_sync_ends_it_and_nothing_more_is_said() -> None:
    async def run() -> None:
        disk = ModelDisk()
        engine, driver, _ = start(disk)
        stand(engine, "p")
        await until(lambda: not engine.held)
        driver.frames.clear()
        disk.fail_at = disk.operations + 1  # The write goes through, the sync does not.
        receive(engine, "p", publishing(1))
        await until(lambda: driver.failure is not None)
        receive(engine, "p", publishing(2))
        assert isinstance(driver.failure, LogError)
        assert "Check the disk, then start again" in str(driver.failure)
        assert driver.frames == []
        await engine.stop(snapshot=True)

    asyncio.run(run())


# ---- Snapshots


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("level", [Durability.BATCH, Durability.SYNC])
def test_snapshots_are_taken_under_load_and_bound_the_disk(level: Durability) -> None:
    """There is always something that waits to be durable; snapshots do not wait for that to end."""

    async def run() -> None:
        options = LogOptions(snapshot_records=100, segment_bytes=20_000, fill_bytes=1_000)
        disk = ModelDisk()
        engine, driver, log = start(disk, level, options)
        stand(engine, "p")
        sizes: dict[int, int] = {}
        number = 0
        while len(sizes) < 9 and number < 50_000:
            number += 1
            receive(engine, "p", publishing(number))
            since = log._snapshot_position
            sizes[since] = max(log.bytes_on_disk, sizes.get(since, 0))
            if number % 5 == 0:
                await asyncio.sleep(0)
        assert driver.failure is None
        _, *early, last = sizes.values()
        assert last < 3 * max(early)
        assert sum(disk.size(WHERE / name) for name in disk.names(WHERE)) <= log.bytes_on_disk + 16
        assert driver.commits > 10  # Whoever limits what is in flight hears of each.
        await engine.stop(snapshot=True)

        again, _, log = start(disk, level, options)
        assert again.node._sessions["p"]._expected == number + 2
        assert log.records_since_snapshot < 5
        await again.stop(snapshot=False)

    asyncio.run(run())


class Turn(Observer):
    """Everything that nodes say and do, and now and then a node that goes through a snapshot."""

    def __init__(self, rng: random.Random | None) -> None:
        self.all: list[object] = []
        self.simulation: Simulation | None = None
        self._rng = rng

    def fact(self, fact: Fact) -> None:
        self.all.append(fact)

    def sent(self, pipe: Pipe, frame: Frame, fate: Fate, now: Time) -> None:
        self.all.append((str(pipe), frame, fate, now))

    def given(self, _node: NodeId, _given: Input, _now: Time) -> None:
        if self._rng is not None and self.simulation is not None:
            hosts = self.simulation.network.hosts
            for name in self._rng.sample(list(hosts), 2):
                hosts[name].node = pickle.loads(pickle.dumps(hosts[name].node))  # noqa: S301


@pytest.mark.spec("LV-1")
@examples(25, long=3)
@given(st.integers(0, 2**32), st.sampled_from(("none", "heavy")))
def test_a_node_from_a_snapshot_does_the_same_as_the_one_that_was_kept(
    seed: int, faults: str
) -> None:
    """Brokers and clients, at any time of any run: byte for byte the same frames and facts."""
    plan = Plan(
        topology=random_tree(5, seed % 7), clients=4, subscriptions=8, events=20, moves=6, naps=3,
        leaves=2, faults=FAULTS[faults], handover=RELOCATION,
    )  # fmt: skip
    runs = []
    for rng in (None, random.Random(seed)):  # noqa: S311 - reproducible, not secret.
        turn = Turn(rng)
        turn.simulation = Simulation(generate(plan, seed), [turn])
        turn.simulation.run()
        runs.append(turn.all)
    assert runs[0] == runs[1]


# ---- What must not stop it


class Stumbling(Broker):
    def message_arrived(self, message: object, link: LinkId, now: Time) -> None:
        if isinstance(message, Probe):
            raise RuntimeError("a bug")
        super().message_arrived(message, link, now)  # type: ignore[arg-type]


@pytest.mark.spec("LV-1", "LV-6")
def test_an_input_that_a_node_stumbles_over_does_not_keep_it_from_starting_again() -> None:
    """The same happens to it when it is recovered: it goes on in the same state."""

    async def run() -> None:
        disk = ModelDisk()
        engine, driver, _ = start(disk, kind=Stumbling)
        stand(engine, "p")
        receive(engine, "p", publishing(1))
        receive(engine, "p", Data(3, 0, Probe(number=1)))
        receive(engine, "p", publishing(3))
        await until(lambda: not engine.held)
        assert driver.stumbles == 1
        assert driver.acknowledged("p") == 4
        await engine.stop(snapshot=False)

        again, driver, _ = start(disk, kind=Stumbling)
        assert driver.stumbles == 1
        assert again.node._sessions["p"]._expected == 5
        await again.stop(snapshot=False)

    asyncio.run(run())


# ---- How long it takes


@pytest.mark.spec("LV-1")
@pytest.mark.skipif(CAMPAIGN == 1, reason="takes a minute; `make test-long` does it")
def test_a_million_inputs_are_recovered(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """All of them, none twice; how long that took is reported, not judged."""
    make_long_log(tmp_path, 1_000_000)

    async def run() -> float:
        driver = Recorder()
        began = time.perf_counter()
        log, recovery = Log.open(tmp_path, kind="test", load=loading(make))
        found = recover(log, recovery, BEGAN, make)
        engine = Engine(found.node, driver, found.began, level=Durability.BATCH, log=log)
        engine.recover(found)
        seconds = time.perf_counter() - began
        assert engine.node._sessions["p"]._expected - 1 > 990_000
        await engine.stop(snapshot=False)
        return seconds

    record_property("recovery_s", asyncio.run(run()))


def make_long_log(directory: Path, inputs: int) -> None:
    """A log with inputs as a publisher and a subscriber make them."""
    log, _ = Log.open(directory, kind="test")
    log.append(encode_began(BEGAN))
    numbers = count(1)

    def append(given: Input, *frames: Frame) -> None:
        raw = b"".join(frame(b"".join(encode(each, Bodies()))) for each in frames)
        log.append(encode_record(given, next(numbers), raw))

    for link in ("p", "s"):
        append(LinkUp(link=link, peer=Peer.CLIENT))
        append(Received(link=link, frames=()), Resume(5, None, 0, True), ARRIVAL)
    append(Received(link="s", frames=()), ALL)
    for number in range(1, inputs // 2):
        append(Received(link="p", frames=()), publishing(2 * number - 1), publishing(2 * number))
        append(Received(link="s", frames=()), Ack(number + 1))
        if number % 1_000 == 0:
            log.commit(sync=False)
    append(LinkDown(link="p"))
    log.close()
