"""The tables in a folder, and what has to be done before something is added to them."""

import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from sterna.pipeline.declared import engine, place
from sterna.pipeline.declared.adopting import adopt, last_commit
from sterna.pipeline.declared.files import TableFiles
from sterna.pipeline.declared.graph import (
    DECLARED,
    JOURNALS,
    LOSSY,
    ONLY,
    TABLES,
    declare,
    table_files,
)
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.progress import step
from sterna.pipeline.source.journals import Directory
from sterna.pipeline.source.options import Offset, Offsets, decoded
from sterna.pipeline.source.origins import Extents
from sterna.pipeline.tables.definitions import DEFINITIONS
from sterna.pipeline.tables.schemas import GROWING, GrowingTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.pipelines.execution.maxConcurrentFlows": "2",
    "spark.sql.pipelines.maxFlowRetryAttempts": "3",
    "spark.sql.pipelines.execution.watchdog.minRetryTime": "1s",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""A table that is read starts processes, so few are read at once; on a busy machine one that does
not start in time is tried again."""


@dataclass(frozen=True)
class TableFolder:
    """The tables in a folder."""

    root: Path

    def files(self, name: str) -> TableFiles:
        """The files of a table that grows."""
        return table_files(self.root, name)

    def totals(self) -> dict[str, int]:
        """How many rows each table has."""
        return {name: self.files(name).total_rows for name in GROWING}

    def spec(self, journals: Path, names: Sequence[str], *, fail_on_data_loss: bool) -> engine.Spec:
        """The pipeline that adds to some of the tables what is new in journals."""
        return engine.Spec(
            definitions=DECLARED,
            storage=self.root,
            configuration={
                **SETTINGS,
                JOURNALS: str(journals),
                TABLES: str(self.root),
                ONLY: ",".join(names),
                LOSSY: str(not fail_on_data_loss).lower(),
            },
        )

    def checkpoint(self, name: str) -> Path:
        """Where Spark keeps what it has read for a table."""
        return self.checkpoints / engine.DATABASE / name / name / "0"

    def reached(self, name: str) -> Offsets:
        """How far a table has come in each journal; empty if nobody knows."""
        last = self._last(name, "offsets")
        if last is None:
            return {}
        # Whatever Spark wrote, the source will read it.
        with suppress(OSError, ValueError, IndexError):
            log = self.checkpoint(name) / "offsets" / str(last)
            lines = log.read_text(encoding="utf-8").splitlines()
            return decoded(json.loads(lines[-1]))  # It is the only source of its query.
        return {}

    def is_current(self, name: str, extents: Extents) -> bool:
        """Whether a table has all that is in the journals."""
        is_done = self._last(name, "offsets") == self._last(name, "commits")
        ends = {node: Offset(there.end, there.incarnation) for node, there in extents.items()}
        return is_done and self.reached(name) == ends

    def check_checkpoint(self, name: str, last: int | None) -> None:
        """Make sure that Spark knows of the last batch that a table has; it forgets old ones."""
        newest = self._last(name, "offsets")
        if last is not None and (newest is None or newest < last):
            raise PipelineError(
                f"{self.root} has lost the checkpoint of {name}, which says what is archived: make "
                "the tables anew with --full-refresh, or give another --out"
            )
        others = [each.name for each in self.checkpoint(name).parent.glob("[1-9]*")]
        if others:
            raise PipelineError(
                f"{name} in {self.root} was begun anew by spark-pipelines run --full-refresh, and "
                "batches have other numbers now: make the tables anew with sterna pipeline run "
                "--full-refresh"
            )

    @property
    def checkpoints(self) -> Path:
        """Where Spark keeps what it has read, by database."""
        return self.root / place.CHECKPOINTS / engine.CATALOG

    def _last(self, name: str, log: str) -> int | None:
        """The number of the last batch in one of Spark's logs."""
        logs = (self.checkpoint(name) / log).glob("*")
        return max((int(each.name) for each in logs if each.name.isdecimal()), default=None)


ALONE = '''"""The tables that Sterna makes of journals, for `spark-pipelines run`."""

from sterna.pipeline.declared.folder import declare_alone

declare_alone(spark)  # Spark gives it.
'''
"""A program for those who run it themselves: nobody has prepared the tables."""


def write_spec(
    journals: Path,
    root: Path,
    folder: Path,
    *,
    views: bool = False,
    fail_on_data_loss: bool = True,
) -> None:
    """Write the spec of the tables that grow, and of views, for those who run it themselves."""
    Directory(str(journals), live=True).extents()  # The error says what to do.
    if quote(str(root.absolute())) != str(root.absolute()):
        raise PipelineError(
            f"Spark keeps no checkpoints below {root}: give --tables a path of plain letters"
        )
    names = [*GROWING, *(DEFINITIONS if views else ())]
    tables = TableFolder(root.absolute())
    spec = tables.spec(journals.absolute(), names, fail_on_data_loss=fail_on_data_loss)
    replace(spec, definitions=ALONE, database=engine.EVERYBODYS).write(folder)


def declare_alone(spark: "SparkSession") -> None:
    """Prepare the tables of a spec and declare them; they are held while this process lives."""
    root = Path(spark.conf.get(TABLES) or "")
    _held.enter_context(place.held(root))
    place.check_version(root)
    tables = TableFolder(root)
    prepared(tables)
    # Whoever runs it, in this database or in that of a run: Spark goes on where it was.
    (tables.checkpoints / engine.DATABASE).mkdir(parents=True, exist_ok=True)
    if not (tables.checkpoints / engine.EVERYBODYS).exists():
        (tables.checkpoints / engine.EVERYBODYS).symlink_to(engine.DATABASE)
    declare(spark)


_held = ExitStack()


def prepared(tables: TableFolder) -> dict[str, int]:
    """The rows of each table, when it is as this program wants it and nothing is half done."""
    if place.version(tables.root) == place.WITHOUT_DELTA:
        _adopt(tables)
    for name, table in GROWING.items():
        files = tables.files(name)
        files.recover()
        last = files.last_batch()
        tables.check_checkpoint(name, last)
        files.create(_arrow(table), comment=table.comment)
        if table.is_unique and last is not None and not files.known.is_there:
            files.known.rebuild(files.parts())
    return tables.totals()


def _adopt(tables: TableFolder) -> None:
    """Make Delta tables of those of release 0.1."""
    for name in GROWING:
        last = last_commit(tables.root / name)
        tables.check_checkpoint(name, last.batch if last else None)
    step("making Delta tables of the tables of an earlier release")
    for name, table in GROWING.items():
        adopt(tables.files(name), _arrow(table), comment=table.comment)
        # What Spark knew of each event is known in another way now.
        shutil.rmtree(tables.checkpoint(name) / "state", ignore_errors=True)
    place.mark(tables.root)


def _arrow(table: GrowingTable) -> pa.Schema:
    return to_arrow_schema(table.schema, timezone="UTC")
