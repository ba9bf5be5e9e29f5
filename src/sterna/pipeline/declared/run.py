"""One run of the pipeline: bring the tables of a folder up to date with journals."""

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from sterna.pipeline.declared import engine, place
from sterna.pipeline.declared.files import TableFiles
from sterna.pipeline.declared.format import table_format
from sterna.pipeline.declared.graph import audited, define
from sterna.pipeline.declared.narration import Narrator
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.progress import step
from sterna.pipeline.source import offsets, reason, register
from sterna.pipeline.source.journals import Directory
from sterna.pipeline.source.options import Offsets, ReadOptions, decoded
from sterna.pipeline.source.origins import Extents
from sterna.pipeline.tables.schemas import AUDITED, GROWING, NAMES, VIEWS, with_inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.pipelines.execution.maxConcurrentFlows": "2",
    "spark.sql.pipelines.maxFlowRetryAttempts": "3",
    "spark.sql.pipelines.execution.watchdog.minRetryTime": "1s",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""A table that is read starts processes, so few are read at once; on a busy machine one that does
not start in time is tried again. The identities of known events are kept on disk, not in memory."""


class RowCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows a table has."""

    total: int
    new: int | None = None
    """How many of the rows this run has added; views are always new."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run."""

    tables: dict[str, RowCount]
    seconds: float


@dataclass(frozen=True)
class TableFolder:
    """The tables in a folder."""

    root: Path

    def files(self, name: str) -> TableFiles:
        """The files of a table that grows."""
        return TableFiles(self.root / name, GROWING[name].is_daily)

    def totals(self) -> dict[str, int]:
        """How many rows each table has."""
        return {name: self.files(name).total_rows for name in GROWING}

    def checkpoint(self, name: str) -> Path:
        """Where Spark keeps what it has read for a table."""
        return self.root / place.CHECKPOINTS / engine.CATALOG / engine.DATABASE / name / name / "0"

    def reached(self, name: str) -> Offsets:
        """How far a table has come in each journal; empty if nobody knows."""
        logs = self.checkpoint(name) / "offsets"
        numbers = [int(log.name) for log in logs.glob("*") if log.name.isdecimal()]
        if not numbers:
            return {}
        # Whatever Spark wrote, the source will read it.
        with suppress(OSError, ValueError, IndexError):
            lines = (logs / str(max(numbers))).read_text(encoding="utf-8").splitlines()
            return decoded(json.loads(lines[-1]))  # It is the only source of its query.
        return {}


def run(
    spark: "SparkSession",
    journals: Path,
    root: Path,
    *,
    full_refresh: bool = False,
    fail_on_data_loss: bool = True,
    only: Collection[str] = NAMES,
) -> Summary:
    """Read what is new in journals and add it to the tables in `root`; make the views anew.

    A full refresh reads everything, and its results replace what was there. `only` some tables, and
    those that they are made of, may be brought up to date.
    """
    began = time.monotonic()
    names = _chosen(only, full_refresh=full_refresh)
    journals, root = journals.absolute(), root.absolute()
    extents = check_journals(journals)
    made = [name for name in VIEWS if name in names]
    with ExitStack() as stack:
        stack.enter_context(place.held(root))
        if full_refresh:
            fresh = stack.enter_context(place.replacing(root))
            stack.enter_context(place.held(fresh))
            tables = TableFolder(fresh)
        else:
            place.check_version(root)
            tables = TableFolder(root)
        step("looking for what is new")
        before = _recovered(tables)
        if fail_on_data_loss:
            _check_same(tables, names, extents, journals)
        views = stack.enter_context(place.views_folder(tables.root, made))
        definition = partial(define, names=names, fail_on_data_loss=fail_on_data_loss)
        told = Narrator(names)
        _update(spark, tables, views, partial(definition, journals=journals), told.hear)
        if names >= AUDITED:
            with _told():
                found = audited(spark, journals, fail_on_data_loss=fail_on_data_loss)
                for name, rows in found.items():
                    rows.write.parquet(str(views / name))
        counts = {
            name: RowCount(total=total, new=total - before[name])
            for name, total in tables.totals().items()
            if name in names
        } | {name: RowCount(total=_rows_in(views / name)) for name in made}
    return Summary(tables=counts, seconds=round(time.monotonic() - began, 2))


def check_journals(journals: Path) -> Extents:
    """Make sure that there is something to read; the error says what to do."""
    return Directory(str(journals), live=True).extents()


def _chosen(only: Collection[str], *, full_refresh: bool) -> frozenset[str]:
    unknown = sorted(set(only) - set(NAMES))
    if unknown:
        raise PipelineError(f"there is no table {unknown[0]!r}; there are {', '.join(NAMES)}")
    if full_refresh and set(only) != set(NAMES):
        raise PipelineError("a full refresh makes all tables anew: leave out --only")
    return with_inputs(only)


def _recovered(tables: TableFolder) -> dict[str, int]:
    """The rows of each table after what a killed run left is finished."""
    for name in GROWING:
        files = tables.files(name)
        files.recover()
        files.path.mkdir(exist_ok=True)
        last = files.last_commit()
        if (
            last is not None
            and not (tables.checkpoint(name) / "offsets" / str(last.batch)).exists()
        ):
            raise PipelineError(
                f"{tables.root} has lost the checkpoint of {name}, which says what is archived: "
                "make the tables anew with --full-refresh, or give another --out"
            )
    return tables.totals()


def _check_same(
    tables: TableFolder, names: Collection[str], extents: Extents, journals: Path
) -> None:
    """Make sure that these are the journals that were archived before.

    The source does that, too, but Spark would try again and again, and finish some of the tables.
    """
    options = ReadOptions(path=str(journals))
    with _told():
        for name in GROWING:
            if name in names:
                offsets.check_same(tables.reached(name), extents, options)


def _update(
    spark: "SparkSession",
    tables: TableFolder,
    views: Path,
    definition: "Callable[[SparkSession], None]",
    say: Callable[[str], None],
) -> None:
    """Let Spark run the pipeline; tables and checkpoints are in one folder, views in another."""
    with place.plain_path(tables.root) as storage, engine.connected(spark) as session:
        register(session)
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        for name, table in GROWING.items():
            session.dataSource.register(table_format(table, tables.files(name)))
        # The catalog is in memory: the tables themselves are all that lasts.
        session.sql(f"DROP DATABASE IF EXISTS {engine.DATABASE} CASCADE")
        session.sql(f"CREATE DATABASE {engine.DATABASE} LOCATION {_quoted(views)}")
        with _told():
            engine.execute(
                session,
                partial(definition, session),
                storage=storage,
                settings=SETTINGS,
                say=say,
            )


_OURS = {
    "set failOnDataLoss=false": "use --lossy",
    "start with another checkpoint": "archive it in another folder with --out",
}
"""What the source advises, and how users of this command do it."""


@contextmanager
def _told() -> Iterator[None]:
    """Report errors of the source in the words of this command."""
    try:
        yield
    except Exception as error:
        sentence = reason(error)
        if sentence is None:
            raise
        for words, here in _OURS.items():
            sentence = sentence.replace(words, here)
        raise PipelineError(sentence) from error


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
