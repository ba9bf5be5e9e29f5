"""PL-2: runs that are killed with SIGKILL at random moments archive every event once."""

import os
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from sterna.core.facts import Accepted, Delivered
from sterna.journal import Journal
from sterna.model.event import Event
from sterna.pipeline.declared import place
from sterna.pipeline.declared.compacting import compact
from tests.pipeline.killing import names, run_and_kill
from tests.pipeline.test_delta import archive
from tests.pipeline.test_run import START_US, stored
from tests.scale import CAMPAIGN

pytestmark = pytest.mark.spec("PL-2")

KILLS = 20
SEED = int.from_bytes(os.urandom(4))
STEP = 50
"""Events that come between two deaths; every tenth is accepted by both brokers."""


@pytest.mark.skipif(CAMPAIGN == 1, reason="Spark starts twenty times")
def test_a_run_that_is_killed_again_and_again_archives_each_event_once(tmp_path: Path) -> None:
    """Killed while it reads, stages, commits or makes views, over journals that grow."""
    rng = Random(SEED)  # noqa: S311
    journals, tables = tmp_path / "journals", tmp_path / "tables"
    taken = 0

    def grow() -> None:
        nonlocal taken
        step, taken = taken, taken + 1
        for broker in ("B1", "B2"):
            journal = Journal(journals / broker, broker)
            events = tuple(
                Event(publisher="p", seq=seq, time_us=START_US + seq * 10**9)
                for seq in range(step * STEP + 1, (step + 1) * STEP + 1)
                if (broker == "B1") == seq % 2 or seq % 10 == 0
            )
            facts = [
                Accepted(at=broker, time=START_US, link="p", events=events),
                Delivered(at=broker, time=START_US, events=events),
            ]
            journal.record(step + 1, facts)
            journal.close()
        if step % 3 == 2 and (tables / place.MARK).exists():
            compact(tables, history=timedelta(0))

    checkpoint = tables / "_checkpoints" / "spark_catalog" / "sterna" / "events" / "events" / "0"
    grow()
    run_and_kill(
        [
            *("-c", "from sterna.cli.main import app; app()"),
            *("pipeline", "run", str(journals), "--out", str(tables)),
            *("--master", "local[2]", "--only", "events", "--only", "deliveries"),
            *("--only", "movement_graph"),
        ],
        kills=KILLS,
        moments=[
            lambda: names(checkpoint / "offsets", "*"),
            lambda: names(checkpoint / "commits", "*"),
            lambda: names(tables / "events" / "_staged", "*"),
            lambda: names(tables / "events" / "_delta_log", "*"),
            lambda: names(tables / "events" / "_known", "*"),
            lambda: names(tables / "movement_graph" / "_delta_log", "*"),
            lambda: names(tables / "events", "*/*.parquet"),
            lambda: names(tables / "deliveries", "*/*.parquet"),
            lambda: names(tables / "_run", "*"),
        ],
        rng=rng,
        between=grow,
    )
    seqs = list(range(1, taken * STEP + 1))
    assert sorted(row["seq"] for row in stored(tables, "events")) == seqs, f"seed {SEED}"
    delivered = sorted(row["seq"] for row in stored(tables, "deliveries"))
    assert delivered == sorted([*seqs, *seqs[9::10]]), f"seed {SEED}"  # What both brokers say.


@pytest.mark.skipif(CAMPAIGN == 1, reason="many processes")
def test_a_compaction_that_is_killed_again_and_again_changes_no_row(tmp_path: Path) -> None:
    """Killed while it writes files, commits or removes what was replaced."""
    rng = Random(SEED)  # noqa: S311
    events = archive(tmp_path / "tables").path
    before = sorted(row["seq"] for row in stored(tmp_path / "tables", "events"))

    run_and_kill(
        [
            *("-c", "from sterna.cli.main import app; app()"),
            *("pipeline", "compact", str(tmp_path / "tables"), "--history", "0"),
        ],
        kills=KILLS,
        moments=[lambda: names(events, "*/*.parquet"), lambda: names(events / "_delta_log", "*")],
        rng=rng,
        between=lambda: divide(events, before),
    )

    assert sorted(row["seq"] for row in stored(tmp_path / "tables", "events")) == before
    assert len(list(events.glob("day=*/*.parquet"))) == 3, f"seed {SEED}"


def divide(path: Path, wanted: list[int]) -> None:
    """Make small files again, as if there had been many runs; nothing is missing meanwhile."""
    rows = DeltaTable(path).to_pyarrow_table()
    assert sorted(rows["seq"].to_pylist()) == wanted, f"seed {SEED}"
    size = rows.num_rows // 3 + 1
    for begin in range(0, rows.num_rows, size):
        mode: Any = "append" if begin else "overwrite"
        write_deltalake(path, rows.slice(begin, size), mode=mode)
