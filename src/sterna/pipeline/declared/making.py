"""Makes those views again whose tables have changed, and puts them in place when all are made."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name.

from sterna import __version__
from sterna.delta import DAY, changed_days, open_table
from sterna.pipeline.declared.views import Versions, View, write
from sterna.pipeline.tables.definitions import DEFINITIONS
from sterna.pipeline.tables.reading import read
from sterna.pipeline.tables.schemas import AUDITED, INPUTS, VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_DAY = {"traffic": "minute"}
"""Views whose rows of a day follow from one table's rows of that day, and their time."""

DAY_S = 86_400

_PROGRAM = "sterna"
"""Another release may make other views of the same tables."""


class Views:
    """The views of a folder of tables, in one run."""

    def __init__(
        self, spark: "SparkSession", root: Path, folder: Path, begin: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._root = root
        self._folder = folder
        self._begin = begin
        self._made: dict[str, Versions] = {}
        """The views that were made in this run, and of which versions."""

    def view(self, name: str) -> View:
        """A view, as it is now."""
        return View(self._root / name, VIEWS[name])

    def make(self, names: Iterable[str]) -> None:
        """Make the views that are not what their tables say."""
        for name in names:
            versions = self._versions(name)
            if self.view(name).made_of() != versions:
                self._write(name, self._rows(name), versions)

    def judge(
        self,
        audited: "Callable[[], dict[str, DataFrame]]",
        files: Sequence[tuple[str, int]],
        *,
        fail_on_data_loss: bool,
    ) -> None:
        """Audit the journals, if their `files` have changed."""
        seen = hashlib.sha256(repr(files).encode()).hexdigest()
        lossy = str(not fail_on_data_loss)
        versions = {_PROGRAM: __version__, "journals": seen, "lossy": lossy}
        if all(self.view(name).made_of() == versions for name in AUDITED):
            return
        for name, rows in audited().items():
            self._write(name, rows, versions)

    def replace(self) -> None:
        """Put what was made in place of what was there."""
        for name, versions in self._made.items():
            self.view(name).replace(self._folder / name, versions)

    def _write(self, name: str, rows: "DataFrame", versions: Versions) -> None:
        self._begin(name)
        write(rows, self._folder / name)
        self._made[name] = versions

    def _versions(self, name: str) -> Versions:
        """What a view would be made of now."""
        versions: dict[str, int | str] = {_PROGRAM: __version__}
        for table in INPUTS[name]:
            if table in self._made:
                versions |= {f"{table}.{key}": each for key, each in self._made[table].items()}
            elif table in VIEWS:
                before = self.view(table).made_of() or {}
                versions |= {f"{table}.{key}": each for key, each in before.items()}
            else:
                versions[table] = open_table(self._root / table).version()
        return versions

    def _rows(self, name: str) -> "DataFrame":
        inputs = [self._table(table) for table in INPUTS[name]]
        days = self._changed_days(name) if name in BY_DAY else None
        if days is None:
            return DEFINITIONS[name](*inputs)
        day = F.date_from_unix_date(F.floor(F.unix_seconds(BY_DAY[name]) / DAY_S).cast("int"))
        before = read(self._spark, self._root, name).where(~day.isin(days))
        new = (table.where(F.col(DAY).isin(days)) for table in inputs)
        return before.unionByName(DEFINITIONS[name](*new)).coalesce(1)

    def _changed_days(self, name: str) -> list[str] | None:
        """The days in which rows have changed since a view was made; None if nobody knows."""
        before = self.view(name).made_of() or {}
        if before.get(_PROGRAM) != __version__:
            return None
        (table,) = INPUTS[name]
        then = before.get(table)
        return changed_days(self._root / table, then) if isinstance(then, int) else None

    def _table(self, name: str) -> "DataFrame":
        if name in self._made:
            return self._spark.read.schema(VIEWS[name]).parquet(str(self._folder / name))
        return read(self._spark, self._root, name)
