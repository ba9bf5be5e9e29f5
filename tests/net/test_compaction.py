"""A second process makes snapshots of large states: the same ones, whatever happens to it."""

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sterna.core.broker import Broker
from sterna.core.inputs import Input, LinkDown, Received
from sterna.core.link import Data
from sterna.core.messages import Events
from sterna.core.names import Time
from sterna.core.node import Turn
from sterna.core.settings import HistoryOptions
from sterna.model.event import Event
from sterna.net import snapshots
from sterna.net.compaction import compact
from sterna.net.config import Durability
from sterna.net.engine import Engine, loading, recover
from sterna.net.nodes import STATE_KIND, broker_of
from sterna.net.records import Began, decode_began, encode_began, encode_record
from sterna.net.second_process import PATIENT, PROGRAM, Compaction, CompactionFailedError
from sterna.net.state import encode_state
from sterna.net.storage import Log, LogOptions
from sterna.net.storage.format import decode_snapshot
from sterna.net.storage.log import Seal
from sterna.net.storage.snapshots import snapshot_path
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.run import Simulation
from sterna.sim.topology import random_tree
from sterna.wire.codec import Bodies, encode
from sterna.wire.frames import frame
from tests.net.live import until
from tests.net.test_recovery import ALL, BEGAN, Recorder, publishing, receive, stand
from tests.scale import examples
from tests.sim.overlay import RELOCATION

MANY = 1_500
"""So many events that are kept make a state large."""


# ---- It makes the snapshot that the broker would make


class Inputs:
    """What one broker of a simulated run is given."""

    def __init__(self, seed: int, faults: str) -> None:
        plan = Plan(
            topology=random_tree(4, seed % 7), clients=5, subscriptions=10, events=40, moves=6,
            naps=4, leaves=2, faults=FAULTS[faults], handover=RELOCATION,
        )  # fmt: skip
        simulation = Simulation(generate(plan, seed), [])
        node = simulation.network.hosts["B1"].node
        self.settings = node.settings
        self.all: list[tuple[Input, Time]] = []
        self._handle = node.handle
        node.handle = self._write_down  # type: ignore[method-assign]
        simulation.run()

    def _write_down(self, given: Input, now: Time) -> Turn:
        self.all.append((given, now))
        return self._handle(given, now)


@pytest.mark.spec("LV-1")
def test_a_snapshot_from_the_log_is_the_one_that_the_broker_would_make() -> None:
    """Byte for byte, at any position; each is made from the one before and the log since then."""
    compared = 0

    @examples(25, long=3)
    @given(st.integers(0, 2**32), st.sampled_from(("none", "heavy")))
    def holds(seed: int, faults: str) -> None:
        nonlocal compared
        compared += compare_snapshots(Inputs(seed, faults), random.Random(seed))  # noqa: S311

    holds()
    assert compared > 50


def compare_snapshots(inputs: Inputs, rng: random.Random) -> int:
    """Give a broker these inputs, and have snapshots made now and then; how many there were."""
    first = encode_began(Began(node="B1", incarnation=1, settings=inputs.settings))
    began = decode_began(first)
    assert began is not None
    node = broker_of(began)
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        log, _ = Log.open(Path(folder), kind=STATE_KIND, options=LogOptions(segment_bytes=5_000))
        log.append(first)
        making: tuple[Seal, bytes] | None = None
        for each, now in inputs.all:
            log.append(encode_record(each, now, raw_of(each)))
            node.handle(each, now)
            log.commit(sync=rng.random() < 0.5)
            if making is None and rng.random() < 0.1:
                log.commit()
                making = log.seal(), encode_state(node, began, now)
            elif making is not None and rng.random() < 0.2:
                sealed, expected = making
                compact(log.directory, sealed.position, sealed.path)
                log.adopt(sealed)
                found = decode_snapshot(snapshot_path(log.directory, sealed.position).read_bytes())
                assert found == (sealed.position, STATE_KIND, expected)
                making = None
                compared += 1
        log.close()
    return compared


def raw_of(given: Input) -> bytes:
    if not isinstance(given, Received):
        return b""
    return b"".join(frame(b"".join(encode(each, Bodies()))) for each in given.frames)


# ---- The engine leaves large states to it


def start(
    directory: Path,
    options: LogOptions | None = None,
    level: Durability = Durability.BATCH,
    began: Began = BEGAN,
) -> tuple[Engine[Broker], Recorder, Log]:
    """A broker at work on a real disk, without sockets."""
    driver = Telling()
    log, recovery = Log.open(directory, kind=STATE_KIND, load=loading(broker_of), options=options)
    found = recover(log, recovery, began, broker_of)
    engine = Engine(found.node, driver, found.began, level=level, log=log, compacts=True)
    engine.recover(found)
    return engine, driver, log


class Telling(Recorder):
    """Remembers how snapshots were made, too."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[str] = []

    def snapshot_ended(self, how: str, seconds: float) -> None:
        assert (seconds > 0) == (how != "failed")
        self.snapshots.append(how)


def snapshots_of(driver: Recorder) -> list[str]:
    assert isinstance(driver, Telling)
    return driver.snapshots


def keep_events(engine: Engine[Broker], events: int, first: int = 1) -> None:
    """Events are kept for a client that is away."""
    if first == 1:
        stand(engine, "p")
        stand(engine, "away")
        receive(engine, "away", ALL)
        engine.give(LinkDown(link="away"))
    for number in range(first, first + events):
        receive(engine, "p", publishing(number))


OFTEN = LogOptions(snapshot_records=MANY, segment_bytes=100_000, fill_bytes=10_000)


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("level", [Durability.BATCH, Durability.SYNC])
def test_a_large_state_is_left_to_the_second_process(tmp_path: Path, level: Durability) -> None:
    """The loop goes on meanwhile, and what comes meanwhile is behind the snapshot."""

    async def run() -> None:
        engine, driver, log = start(tmp_path, OFTEN, level)
        keep_events(engine, MANY)
        await until(lambda: compaction_of(engine) is not None)
        turns = 0
        while not snapshots_of(driver):
            turns += 1
            keep_events(engine, 1, first=MANY + turns)
            await asyncio.sleep(0.001)
        assert turns > 20
        assert snapshots_of(driver) == ["second process"]
        assert turns - 5 < log.records_since_snapshot
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == log.bytes_on_disk
        await until(lambda: not engine.held)
        await engine.stop(snapshot=False)
        expected = engine.node.kept("away").events

        again, _, log = start(tmp_path, OFTEN, level)
        assert again.node.kept("away").events == expected == MANY + turns
        await again.stop(snapshot=False)

    asyncio.run(run())


@pytest.mark.spec("LV-1")
def test_a_small_state_needs_no_second_process(tmp_path: Path) -> None:
    """However much has passed since the last snapshot."""

    async def run() -> None:
        settings = replace(BEGAN.settings, history=HistoryOptions(events_max=10))
        engine, driver, _ = start(tmp_path, OFTEN, began=replace(BEGAN, settings=settings))
        stand(engine, "p")
        for number in range(1, 2 * MANY + 1):  # Nobody wants them.
            receive(engine, "p", publishing(number))
            if number % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: bool(snapshots_of(driver)))
        assert set(snapshots_of(driver)) == {"inline"}
        await engine.stop(snapshot=False)

    asyncio.run(run())


@pytest.mark.spec("LV-1")
def test_a_second_process_that_fails_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker goes on, and so does its log; the more it has failed, the later it is tried."""
    tries: list[int] = []

    async def run() -> None:
        engine, driver, log = start(tmp_path, OFTEN)

        def fail(compaction: Compaction) -> int:
            tries.append(log.records_since_snapshot)
            Path(compaction._command[-2]).write_bytes(b"half of a snapshot")
            raise CompactionFailedError("no memory is left")

        with monkeypatch.context() as patch:
            patch.setattr(Compaction, "run", fail)
            for first in range(1, 6 * MANY, 50):
                keep_events(engine, 50, first=first)
                await asyncio.sleep(0.001)
            await until(lambda: not engine.held)
        assert 2 <= len(tries) <= 5
        assert all(3 * early <= 2 * late + 300 for early, late in zip(tries, tries[1:]))  # noqa: B905, RUF007
        assert driver.failure is None
        await until(lambda: snapshots_of(driver).count("failed") == len(tries))
        assert not [path for path in tmp_path.iterdir() if path.read_bytes()[:4] == b"half"]
        keep_events(engine, 3 * tries[-1], first=6 * MANY + 1)
        await until(lambda: "second process" in snapshots_of(driver))
        await engine.stop(snapshot=True)

    with caplog.at_level(logging.INFO, logger="sterna.snapshots"):
        asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "no memory is left" in caplog.text


@pytest.mark.spec("LV-1")
def test_a_state_that_cannot_be_made_does_not_end_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in between nor at its end: the log has everything."""

    def fail(*_: object) -> bytes:
        raise RuntimeError("a bug in a component")

    async def run() -> None:
        engine, driver, log = start(tmp_path, OFTEN)
        monkeypatch.setattr(snapshots, "encode_state", fail)
        stand(engine, "p")
        for number in range(1, 2 * MANY):
            receive(engine, "p", publishing(number))
        await until(lambda: "failed" in snapshots_of(driver))
        await until(lambda: not engine.held)
        await engine.stop(snapshot=True)
        assert driver.failure is None

        again, _, log = start(tmp_path, OFTEN)
        assert again.node._sessions["p"]._expected == 2 * MANY + 1
        assert log.records_since_snapshot > 2 * MANY
        await again.stop(snapshot=False)

    asyncio.run(run())
    assert "a bug in a component" in caplog.text


@pytest.mark.spec("LV-1")
def test_without_room_for_a_snapshot_the_log_goes_on_as_long_as_there_is_room_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed: list[Seal] = []
    take = Log.seal

    def seal(log: Log) -> Seal:
        sealed.append(take(log))
        return sealed[-1]

    def make_too_much(_: Compaction) -> int:
        return sealed[-1].path.write_bytes(bytes(1_000_001))

    async def run() -> None:
        options = LogOptions(snapshot_records=MANY, segment_bytes=100_000, bytes_max=1_000_000)
        engine, driver, _ = start(tmp_path, options)
        keep_events(engine, MANY + 10)
        await until(lambda: "failed" in snapshots_of(driver))
        assert driver.failure is None
        keep_events(engine, 10, first=MANY + 11)
        await until(lambda: not engine.held)
        assert not list(tmp_path.glob("*.new"))
        assert driver.failure is None
        await engine.stop(snapshot=False)

    monkeypatch.setattr(Log, "seal", seal)
    monkeypatch.setattr(Compaction, "run", make_too_much)
    asyncio.run(run())
    assert "would take more than bytes_max" in caplog.text


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("is_allowed", [True, False])
def test_it_hurries_before_the_log_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_allowed: bool
) -> None:
    """Where a process may not be given more of the processor, another one is started."""
    set_to: list[int] = []

    def set_priority(_which: int, _process: int, niceness: int) -> None:
        if not is_allowed:
            raise PermissionError
        set_to.append(niceness)

    async def see_it_hurry(
        engine: Engine[Broker], driver: Recorder, log: Log, patient: int
    ) -> None:
        monkeypatch.setattr(os, "setpriority", set_priority)
        number = MANY
        while log.bytes_since_snapshot <= snapshots.HURRY_INTERVALS * log.options.snapshot_bytes:
            number += 1
            receive(engine, "p", large(number))
            await asyncio.sleep(0)
        await until(lambda: not engine.held)
        if is_allowed:
            assert set_to == [os.getpriority(os.PRIO_PROCESS, 0)]
        else:
            await until(lambda: not is_alive(patient))
            while not snapshots_of(driver):
                if compaction_of(engine) is None:  # The next input starts it anew.
                    number += 1
                    receive(engine, "p", large(number))
                await asyncio.sleep(0.01)

    async def run() -> None:
        options = LogOptions(snapshot_records=MANY, snapshot_bytes=400_000)
        engine, driver, log = start(tmp_path, options)
        keep_events(engine, MANY)
        await until(lambda: pid_of(engine) is not None)
        patient = pid_of(engine)
        assert patient is not None
        os.kill(patient, signal.SIGSTOP)  # It does not get the processor.
        try:
            await see_it_hurry(engine, driver, log, patient)
        finally:
            with suppress(ProcessLookupError):
                os.kill(patient, signal.SIGCONT)
        await until(lambda: bool(snapshots_of(driver)))
        assert snapshots_of(driver) == ["second process"]
        await engine.stop(snapshot=False)

    asyncio.run(run())


def large(number: int) -> Data:
    event = Event(publisher="p", seq=number, time_us=number, attributes={"n": "x" * 5_000})
    return Data(number + 1, 0, Events(events=(event,)))


@pytest.mark.spec("LV-1")
def test_it_is_ended_when_the_broker_stops(tmp_path: Path) -> None:
    """Nobody waits for it, and the broker makes the last snapshot by itself."""

    async def run() -> None:
        engine, _, _ = start(tmp_path, OFTEN)
        keep_events(engine, MANY)
        await until(lambda: pid_of(engine) is not None)
        pid = pid_of(engine)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: not engine.held)
        async with asyncio.timeout(30):
            await engine.stop(snapshot=True)
        assert not is_alive(pid)
        assert not list(tmp_path.glob("*.new"))

        again, _, log = start(tmp_path, OFTEN)
        assert again.node.kept("away").events == MANY
        assert log.records_since_snapshot < 5
        await again.stop(snapshot=False)

    asyncio.run(run())


@pytest.mark.spec("LV-1")
def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """And leaves nothing that the next broker takes for a part of its log."""
    log, _ = Log.open(tmp_path, kind=STATE_KIND)
    log.append(encode_began(BEGAN))
    log.commit()
    sealed = log.seal()
    arguments = map(str, (tmp_path, sealed.position, sealed.path, PATIENT))
    process = subprocess.Popen(  # It would wait for ever to be told that all is well.
        [sys.executable, "-c", WAITING, *arguments], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 1
    log.close()


WAITING = f"""
import sys, time, {PROGRAM} as program
program.compact = lambda *_: time.sleep(600)
program.main(sys.argv[1:])
"""


def compaction_of(engine: Engine[Broker]) -> Compaction | None:
    assert engine._snapshots is not None
    return engine._snapshots.compaction


def pid_of(engine: Engine[Broker]) -> int | None:
    compaction = compaction_of(engine)
    return None if compaction is None else compaction.pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
