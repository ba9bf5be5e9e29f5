"""Whatever goes wrong about a snapshot is logged and tried again, and the broker ends as usual."""

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.core.broker import Broker
from sterna.net import second_process
from sterna.net.engine import Engine
from sterna.net.second_process import Compaction, CompactionFailedError
from sterna.net.storage import Log, LogOptions
from sterna.net.storage.log import Seal
from tests.net.live import until
from tests.net.storage.model_disk import ModelDisk
from tests.net.test_compaction import (
    MANY,
    OFTEN,
    keep_events,
    snapshots_of,
    start,
)
from tests.net.test_recovery import publishing, receive, stand
from tests.net.test_recovery import start as start_in_memory

pytestmark = pytest.mark.spec("LV-1")


async def make_it_due(engine: Engine[Broker], log: Log, number: int) -> int:
    """Give a broker inputs until the next snapshot is due; the number of the next input."""
    snapshots = engine.snapshots
    assert snapshots is not None
    failures, position = snapshots.failures, log._snapshot_position
    while snapshots.failures == failures and log._snapshot_position == position:
        receive(engine, "p", publishing(number))
        number += 1
        await until(lambda: not engine.held and not snapshots.is_running)
    return number


@pytest.mark.parametrize("trouble", ["full", "create", "sync"])
def test_a_disk_without_room_for_a_snapshot(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, seen from outside, and tried again ever later, until it succeeds."""
    tries: list[int] = []

    async def run() -> None:
        disk = ModelDisk()
        options = LogOptions(snapshot_records=40, fill_bytes=1)
        engine, driver, log = start_in_memory(disk, options=options)
        snapshots, snapshot = engine.snapshots, log.snapshot
        assert snapshots is not None

        def snapshot_without_room(state: bytes, position: int) -> None:
            tries.append(log.records_since_snapshot)
            disk.fail_at = disk.operations + (2 if trouble == "sync" else 0)
            if trouble == "full":
                disk.fail_at, disk.room_bytes = None, disk.used_bytes() + 100
            try:
                snapshot(state, position)
            finally:
                disk.fail_at = disk.room_bytes = None

        log.snapshot = snapshot_without_room  # type: ignore[method-assign]
        stand(engine, "p")
        number = 1
        for failures in (1, 2, 3):
            number = await make_it_due(engine, log, number)
            assert snapshots.failures == failures
            assert "failed" in (snapshots.problem or "")
        log.snapshot = snapshot  # type: ignore[method-assign]
        number = await make_it_due(engine, log, number)
        assert (snapshots.failures, snapshots.problem) == (0, None)
        assert log.bytes_on_disk == disk.used_bytes()

        log.snapshot = snapshot_without_room  # type: ignore[method-assign]
        receive(engine, "p", publishing(number))
        await ends(engine)
        assert driver.failure is None
        assert snapshots.failures == 1, "the last one"
        again, _, _ = start_in_memory(disk, options=options)
        assert again.node._sessions["p"]._expected == number + 2
        await ends(again)

    with caplog.at_level(logging.INFO, logger="sterna.snapshots"):
        asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]
    assert 3 * tries[0] <= 2 * tries[1] < 2 * 2 * tries[0]
    assert 3 * tries[1] <= 2 * tries[2] < 2 * 2 * tries[1]


async def ends(engine: Engine[Broker]) -> None:
    """It ends at once, with a snapshot or without."""
    async with asyncio.timeout(5):
        await engine.stop(snapshot=True)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_system_without_threads(tmp_path: Path, is_large: bool) -> None:
    """The thread for snapshots cannot be started: it is tried again, and never waited for."""

    async def run() -> None:
        engine, driver, _ = start(tmp_path, OFTEN)
        snapshots = engine.snapshots
        assert snapshots is not None
        snapshots._thread.shutdown()
        if is_large:
            keep_events(engine, MANY + 10)
        else:
            stand(engine, "p")
            receive(engine, "p", *map(publishing, range(1, 11)))
            engine._snapshot_if_due()
            assert snapshots.make(limited=True) is None
        await until(lambda: snapshots_of(driver) == ["failed"])
        assert not snapshots.is_running
        assert snapshots.compaction is None
        await ends(engine)
        await until(lambda: snapshots_of(driver) == ["failed", "inline"])

    asyncio.run(run())


def test_without_a_thread_for_the_log_the_broker_stops(tmp_path: Path) -> None:
    """Nothing can become durable, so nobody waits for it."""

    async def run() -> None:
        engine, driver, _ = start(tmp_path)
        assert engine._thread is not None
        engine._thread.shutdown()
        stand(engine, "p")
        await until(lambda: driver.failure is not None)
        await ends(engine)

    asyncio.run(run())


def test_facts_that_cannot_be_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in what reports them ends neither the broker nor its snapshots."""

    def fail() -> Callable[[], None]:
        raise RuntimeError("a bug in a report")

    async def run() -> None:
        engine, driver, _ = start(tmp_path, OFTEN)
        with monkeypatch.context() as patch:
            patch.setattr(driver, "before_snapshot", fail)
            keep_events(engine, MANY + 10)
            await until(lambda: "failed" in snapshots_of(driver))
            await until(lambda: not engine.held)
        await ends(engine)
        assert driver.failure is None

    asyncio.run(run())
    assert "a bug in a report" in caplog.text


# ---- The second process


def odd_program(directory: Path, body: str) -> str:
    """A module that is run instead of the second process."""
    (directory / "odd_compaction.py").write_text(body, encoding="utf-8")
    return "odd_compaction"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "ended by signal 40"),
        ("raise SystemExit(3)", "status 3"),
        ("raise RuntimeError('no such thing')", "no such thing"),
        ("", "without the size"),
        ("print('a warning')", "without the size"),
        ("print(17)", "taking in a snapshot"),  # It says that it has made one.
    ],
    ids=["killed", "unnamed signal", "status", "bug", "nothing", "something", "liar"],
)
def test_a_second_process_that_ends_oddly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    body: str, problem: str,
) -> None:  # fmt: skip
    """The broker continues, whatever it says or does not say."""
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setattr(second_process, "PROGRAM", odd_program(modules, body))

    async def run() -> None:
        engine, driver, _ = start(tmp_path / "log", OFTEN)
        snapshots = engine.snapshots
        assert snapshots is not None
        keep_events(engine, MANY + 10)
        await until(lambda: "failed" in snapshots_of(driver))
        assert problem in (snapshots.problem or "")
        assert driver.failure is None
        receive(engine, "p", publishing(MANY + 11))
        await ends(engine)
        assert driver.failure is None

        again, _, _ = start(tmp_path / "log", OFTEN)
        assert again.node.kept("away").events == MANY + 11
        await ends(again)

    asyncio.run(run())
    assert problem in caplog.text


def test_a_second_process_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    compaction = Compaction(tmp_path, Seal(1, tmp_path / "1", 1), hurried=False)

    with pytest.raises(CompactionFailedError, match="cannot be started"):
        compaction.run()
