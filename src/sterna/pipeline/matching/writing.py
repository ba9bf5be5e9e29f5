"""Results of matching as Parquet: all of them, or nothing."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.matching.layouts import Matching
from sterna.pipeline.progress import step

PAIRS, PER_EVENT, PER_SUBSCRIPTION = "pairs", "events", "subscriptions"
"""The names of the folders of results."""

_MATCHING = "matching events with subscriptions"


@contextmanager
def folder_for(out: Path | None) -> Iterator[Path]:
    """A folder to write to, which becomes `out` when complete; with None, it is removed."""
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PipelineError(f"{out} is there already: remove it, or choose another folder")
    try:
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
        beside = None if out is None else out.parent
        new = Path(tempfile.mkdtemp(prefix=".sterna-", dir=beside))
    except OSError as error:
        raise PipelineError(f"{out} cannot be written: {error.strerror}") from None
    try:
        yield new
        if out is not None:
            new.chmod(0o755)
            new.replace(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_pairs(matching: Matching, folder: Path) -> DataFrame:
    """Write each event with each subscription that matches it; return the written table."""
    step(_MATCHING)
    matching.pairs().write.parquet(str(folder / PAIRS))
    return matching.events.sparkSession.read.parquet(str(folder / PAIRS))


def write_counts(matching: Matching, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Write how often each event and each subscription matches; matching is done once."""
    spark = matching.events.sparkSession
    raw = folder / "raw"
    step(_MATCHING)
    matching.counts().write.parquet(str(raw))
    counts = spark.read.parquet(str(raw))
    step("adding up matches")
    matching.per_event(counts).write.parquet(str(folder / PER_EVENT))
    matching.per_subscription(counts).coalesce(1).write.parquet(str(folder / PER_SUBSCRIPTION))
    shutil.rmtree(raw)
    return (
        spark.read.parquet(str(folder / PER_EVENT)),
        spark.read.parquet(str(folder / PER_SUBSCRIPTION)),
    )
