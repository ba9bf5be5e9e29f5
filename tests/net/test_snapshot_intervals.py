"""How much a log grows by before the next snapshot: more for a larger state, within limits."""

from itertools import pairwise
from pathlib import Path

import pytest

from sterna.net.snapshots import interval_bytes
from sterna.net.storage import LogOptions
from tests.net.live import until
from tests.net.test_compaction import snapshots_of, start
from tests.net.test_recovery import publishing, receive, stand
from tests.net.test_server import run

pytestmark = pytest.mark.spec("LV-1")

MIB = 2**20


def test_the_larger_the_state_the_rarer_the_snapshots() -> None:
    """There is no size beyond which they become frequent again."""
    options = LogOptions(snapshot_bytes=64 * MIB)
    intervals = [interval_bytes(options, size * MIB) for size in (1, 10, 100, 200, 255, 257, 1000)]

    assert all(before <= after for before, after in pairwise(intervals))
    assert intervals[2] == 200 * MIB
    assert intervals[-1] == 256 * MIB


def test_a_limit_of_the_log_leaves_room_for_the_snapshot() -> None:
    options = LogOptions(snapshot_bytes=64 * MIB, bytes_max=400 * MIB)

    assert interval_bytes(options, 1000 * MIB) == 50 * MIB


@pytest.mark.parametrize("state_bytes", [7_500, 100_000_000])
def test_a_large_state_waits_for_as_much_log(tmp_path: Path, state_bytes: int) -> None:
    """Once so much is written, a snapshot is made."""
    options = LogOptions(snapshot_bytes=2_500)

    async def write() -> None:
        engine, driver, log = start(tmp_path, options)
        snapshots = engine._snapshots
        assert snapshots is not None
        snapshots._state_bytes = state_bytes
        stand(engine, "p")
        number = written = 0
        while not snapshots.is_running and not snapshots_of(driver):
            written = log.bytes_since_snapshot
            number += 1
            receive(engine, "p", publishing(number))
            await until(lambda: not engine.held)
        assert 9_500 < written < 10_000
        await engine.stop(snapshot=False)

    run(write())
