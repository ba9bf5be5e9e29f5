"""The watchdog of the event loop: it says how long the loop stood still, and what held it."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from sterna.net import watchdog as module
from sterna.net.broker import BrokerServer
from sterna.net.loop import new_event_loop
from sterna.net.watchdog import NO_HOLD, TURN_S, Watchdog
from tests.net.live import until
from tests.net.test_server import config_in

pytestmark = pytest.mark.spec("LV-6")

LONG_S = 0.4


def busy_with_something(seconds: float) -> None:
    """Use so much processor time."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


async def watched(hold: object, *, turns: int = 3) -> Watchdog:
    """Watch the loop while something is called, and for some turns before and after."""
    watchdog = Watchdog("B1")
    watchdog.start()
    await asyncio.sleep(turns * TURN_S)
    hold()  # type: ignore[operator]
    await asyncio.sleep(turns * TURN_S)
    watchdog.stop()
    return watchdog


@pytest.mark.parametrize("make", [new_event_loop, asyncio.new_event_loop])
def test_what_holds_the_loop_is_seen(make: object, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "sterna"),
        asyncio.Runner(loop_factory=make) as runner,  # type: ignore[arg-type]
    ):
        watchdog = runner.run(watched(lambda: busy_with_something(LONG_S)))

    assert watchdog.holds >= 1
    assert watchdog.longest.seconds >= watchdog.busiest.busy_s > LONG_S - 2 * TURN_S
    assert "busy_with_something" in watchdog.busiest.stack
    assert "busy_with_something" in caplog.text


def test_a_loop_that_waits_is_held_without_being_at_work() -> None:
    """As for a disk, or for a core on a busy machine."""
    watchdog = asyncio.run(watched(lambda: time.sleep(LONG_S)))

    assert watchdog.longest.seconds > LONG_S - 2 * TURN_S
    assert watchdog.longest.busy_s < LONG_S / 2


def test_a_loop_that_turns_is_not_held() -> None:
    """However much it does, as long as it does a little at a time; by processor time, so that a
    busy machine fails no test.
    """

    async def run() -> Watchdog:
        watchdog = Watchdog("B1")
        watchdog.start()
        for _ in range(50):
            busy_with_something(0.01)
            await asyncio.sleep(0)
        watchdog.stop()
        return watchdog

    assert asyncio.run(run()).busiest.busy_s <= module.HELD_S


def test_a_loop_that_never_turns_again_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread does it, while it lasts."""
    monkeypatch.setattr(module, "STUCK_S", LONG_S / 4)

    def hold() -> None:
        deadline = time.monotonic() + 30
        while "stands still" not in caplog.text and time.monotonic() < deadline:
            pass

    with caplog.at_level(logging.ERROR, "sterna"):
        asyncio.run(watched(hold))

    assert "the event loop of B1 stands still" in caplog.text
    assert " hold" in caplog.text


def test_a_broker_counts_holds_until_it_stops(tmp_path: Path) -> None:

    async def run() -> None:
        server = BrokerServer(config_in(tmp_path))
        await server.start()
        server.watchdog.holds, server.watchdog.longest = 0, NO_HOLD
        busy_with_something(LONG_S)
        await until(lambda: server.watchdog.holds > 0)
        text = server.metrics.text().decode()
        assert "sterna_loop_holds_total 1.0" in text
        (longest,) = [line for line in text.splitlines() if line.startswith("sterna_loop_held")]
        assert float(longest.split()[1]) > LONG_S - 2 * TURN_S
        await server.stop(drain_s=0)
        holds = server.watchdog.holds
        busy_with_something(LONG_S)
        await asyncio.sleep(2 * TURN_S)
        assert server.watchdog.holds == holds

    asyncio.run(run())
