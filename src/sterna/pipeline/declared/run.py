"""One run of the pipeline: bring the tables of a folder up to date with journals."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sterna.journal.segments import FINISHED
from sterna.pipeline.declared import engine, place
from sterna.pipeline.declared.folder import TableFolder, prepared
from sterna.pipeline.declared.graph import audited
from sterna.pipeline.declared.making import Views
from sterna.pipeline.declared.narration import Narrator
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.progress import step
from sterna.pipeline.source import offsets, reason
from sterna.pipeline.source.journals import Directory
from sterna.pipeline.source.options import ReadOptions
from sterna.pipeline.source.origins import Extents
from sterna.pipeline.tables.schemas import (
    AUDITED,
    GROWING,
    NAMES,
    VIEWS,
    with_inputs,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RowCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows a table has."""

    total: int
    new: int | None = None
    """How many of the rows this run has added; None for views."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run."""

    tables: dict[str, RowCount]
    seconds: float


def run(
    spark: "SparkSession",
    journals: Path,
    root: Path,
    *,
    full_refresh: bool = False,
    fail_on_data_loss: bool = True,
    only: Collection[str] = NAMES,
) -> Summary:
    """Read what is new in journals and add it to the tables in `root`; make views that it changes.

    A full refresh reads everything, and its results replace what was there. `only` some tables, and
    those that they are made of, may be brought up to date.
    """
    began = time.monotonic()
    names = _chosen(only, full_refresh=full_refresh)
    journals, root = journals.absolute(), root.absolute()
    extents = check_journals(journals)
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
        before = prepared(tables)
        if fail_on_data_loss:
            _check_same(tables, names, extents, journals)
        folder = stack.enter_context(place.run_folder(tables.root))
        told = Narrator(names)
        growing = [name for name in GROWING if name in names]
        growing = [name for name in growing if not tables.is_current(name, extents)]
        if growing:
            spec = tables.spec(journals, growing, fail_on_data_loss=fail_on_data_loss)
            _grow(spark, spec, folder, told.hear)
        made = Views(spark, tables.root, folder, told.begin)
        made.make([name for name in VIEWS if name in names - AUDITED])
        if names >= AUDITED:
            with _told():
                judge = partial(audited, spark, journals, fail_on_data_loss=fail_on_data_loss)
                made.judge(judge, _journal_files(journals), fail_on_data_loss=fail_on_data_loss)
        made.replace()
        counts = {
            name: RowCount(total=total, new=total - before[name])
            for name, total in tables.totals().items()
            if name in names
        } | {name: RowCount(total=made.view(name).total_rows) for name in VIEWS if name in names}
    return Summary(tables=counts, seconds=round(time.monotonic() - began, 2))


def check_journals(journals: Path) -> Extents:
    """Make sure that there is something to read; the error says what to do."""
    return Directory(str(journals), live=True).extents()


def _journal_files(journals: Path) -> list[tuple[str, int]]:
    """The files of the journals below a directory, and their sizes: what an audit reads."""
    found: list[tuple[str, int]] = []
    for file in journals.rglob(f"*{FINISHED}*"):
        with suppress(FileNotFoundError):  # Brokers remove old ones, and give new ones their names.
            found.append((str(file.relative_to(journals)), file.stat().st_size))
    return sorted(found)


def _chosen(only: Collection[str], *, full_refresh: bool) -> frozenset[str]:
    unknown = sorted(set(only) - set(NAMES))
    if unknown:
        raise PipelineError(f"there is no table {unknown[0]!r}; there are {', '.join(NAMES)}")
    if full_refresh and set(only) != set(NAMES):
        raise PipelineError("a full refresh makes all tables anew: leave out --only")
    return with_inputs(only)


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


def _grow(
    spark: "SparkSession", spec: engine.Spec, folder: Path, say: Callable[[str], None]
) -> None:
    """Let Spark add what is new to the tables that grow."""
    # The catalog is in memory: the tables themselves are all that lasts.
    spark.sql(f"DROP DATABASE IF EXISTS {engine.DATABASE} CASCADE")
    spark.sql(f"CREATE DATABASE {engine.DATABASE} LOCATION {_quoted(folder / 'catalog')}")
    with place.plain_path(spec.storage) as storage, _told():
        engine.execute(spark, replace(spec, storage=storage).write(folder / "spec"), say)


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
