"""Makes `tests/data/release-0.1`: directories as release 0.1 wrote them, and what is true of them.

To be run with the sources of commit 201ced1 only: what any other version writes is not what that
release wrote. It has been run; the data is kept, and no later version has to be able to run this.

    python -m tests.data.make_release_0_1 [CASE …]

All that it starts has a clock that is set back to the beginning of 2026. A node whose log is from
the future stands still until then, because its own clock never goes back; so the data must be old
wherever it is opened.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.data.making_0_1 import (
    brokers,
    client_state,
    handover,
    history,
    journals,
    moving,
    nodes,
    strategies,
    tables,
)

Maker = Callable[[Path, Path], Coroutine[Any, Any, None]]

RELEASE = Path(__file__).with_name("release-0.1")

CLOCK = Path(__file__).parent / "making_0_1" / "clock"
BEGINNING = datetime(2026, 1, 15, 12, tzinfo=UTC)
"""When the data is made, by the clock of those who make it."""

CASES: dict[str, Maker] = {
    "broker-snapshot": brokers.snapshot,
    "broker-log": brokers.log,
    "broker-snapshot-and-log": brokers.snapshot_and_log,
    "handover-half-done/killed": handover.killed,
    "handover-half-done/stopped": handover.stopped,
    **{f"strategies/{name}": strategies.make for name in strategies.VARIANTS},
    "moving/graph": moving.graph,
    "moving/grid": moving.grid,
    "history/recent": history.recent,
    "history/archive": history.archived,
    "client-state": client_state.make,
    "nodes": nodes.make,
    "journal": journals.make,
    "tables": tables.make,
}


def main(names: list[str]) -> None:
    """Make the cases with these names, or all."""
    if "CLOCK_BACK_S" not in os.environ:
        os.environ["CLOCK_BACK_S"] = str(time.time() - BEGINNING.timestamp())
        os.environ["PYTHONPATH"] = os.pathsep.join([str(CLOCK), *sys.path])
        os.execv(sys.executable, [sys.executable, "-m", "tests.data.make_release_0_1", *names])  # noqa: S606
    for name in names or CASES:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sterna-") as directory:
            asyncio.run(CASES[name](Path(directory), RELEASE / name))
        size = sum(file.stat().st_size for file in (RELEASE / name).rglob("*"))
        sys.stderr.write(f"{name}: {size:,} bytes, {time.monotonic() - began:.1f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
