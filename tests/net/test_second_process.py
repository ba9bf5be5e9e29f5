"""The second process: when it is not started, and what it finds."""

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from sterna.core.catalogue import LIVE
from sterna.net.nodes import STATE_KIND
from sterna.net.records import encode_began
from sterna.net.second_process import Compaction
from sterna.net.storage import Log
from tests.net.live import until
from tests.net.test_compaction import (
    MANY,
    OFTEN,
    compaction_of,
    keep_events,
    pid_of,
    snapshots_of,
    start,
)
from tests.net.test_recovery import BEGAN


@pytest.mark.spec("LV-1")
def test_none_is_started_while_the_broker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is still due when what is held becomes durable, and the last one is enough."""

    async def run() -> None:
        engine, driver, log = start(tmp_path, OFTEN)
        commit = log.commit

        def commit_after_the_second_process(*, sync: bool = True) -> int:
            while compaction_of(engine) is not None:
                time.sleep(0.001)
            return commit(sync=sync)

        keep_events(engine, MANY)
        await until(lambda: pid_of(engine) is not None and not engine.held)
        monkeypatch.setattr(log, "commit", commit_after_the_second_process)
        keep_events(engine, 1, first=MANY + 1)
        await engine.stop(snapshot=True)
        await until(lambda: bool(snapshots_of(driver)))
        assert snapshots_of(driver) == ["inline"]

    asyncio.run(run())


PLUG_IN = """
from sterna.core.component import BrokerComponent
from sterna.core.protocol import Protocol


class Part(BrokerComponent):
    name = "found"


FOUND = Protocol(name="found", broker=Part)
"""


@pytest.mark.spec("LV-1", "LV-10")
@pytest.mark.parametrize("is_named", [True, False], ids=["on the path", "where the broker works"])
def test_it_finds_the_modules_that_the_broker_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    """Also those that it does not find by PYTHONPATH."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "found_here.py").write_text(PLUG_IN, encoding="utf-8")
    monkeypatch.chdir(tmp_path if is_named else modules)
    monkeypatch.syspath_prepend(str(modules) if is_named else "")
    settings = replace(
        BEGAN.settings, protocols=(*LIVE, "found"), modules={"found": "found_here:FOUND"}
    )
    log, _ = Log.open(tmp_path / "log", kind=STATE_KIND)
    log.append(encode_began(replace(BEGAN, settings=settings)))
    log.commit()

    assert Compaction(log.directory, log.seal(), hurried=True).run() > 0
    log.close()
