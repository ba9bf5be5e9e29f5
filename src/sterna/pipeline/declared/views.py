"""Views: tables that follow from others, made again when those have changed.

Each is a Delta table, whose last commit says of which versions of the others it was made. It is
replaced by one entry in its log, so its readers see the old one or the new one; only if its columns
have changed, it is empty for a moment.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sterna.delta import files_of, has_log, open_table
from sterna.pipeline.declared.files import CONFIGURATION

OUTDATED_S = 3600.0
"""For so many seconds the files of a view that was replaced are there, for who still reads it."""

_MADE_OF = "sterna.made_of"

Versions = Mapping[str, int | str]
"""The tables that a view was made of, and their versions."""


@dataclass(frozen=True)
class View:
    """A view in a directory."""

    path: Path
    schema: StructType

    @property
    def total_rows(self) -> int:
        """How many rows it has."""
        return sum(pq.read_metadata(file).num_rows for file in files_of(self.path))

    def made_of(self) -> Versions | None:
        """What it was made of, as far as that is known."""
        if not has_log(self.path):
            return None
        (last,) = open_table(self.path).history(1)
        said = last.get(_MADE_OF)
        return json.loads(said) if isinstance(said, str) else None

    def replace(self, folder: Path, versions: Versions) -> None:
        """Let the files that Spark has written to a folder be the view."""
        is_first = not has_log(self.path)
        before = [] if is_first else files_of(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        entries = [self._move(file) for file in sorted(folder.glob("*.parquet"))]
        schema = Schema.from_arrow(to_arrow_schema(self.schema, timezone="UTC"))
        if is_first or open_table(self.path).schema() != schema:
            DeltaTable.create(
                self.path, schema, "overwrite", name=self.path.name, configuration=CONFIGURATION
            )
        open_table(self.path).create_write_transaction(
            [*entries],
            "overwrite",
            schema,
            commit_properties=CommitProperties({_MADE_OF: json.dumps(versions, sort_keys=True)}),
        )
        self._remove_outdated(before, 0 if is_first else OUTDATED_S)

    def _move(self, file: Path) -> AddAction:
        target = self.path / file.name  # Spark gives names that nobody has given before.
        file.rename(target)
        return AddAction(
            path=file.name,
            size=target.stat().st_size,
            partition_values={},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps({"numRecords": pq.read_metadata(target).num_rows}),
        )

    def _remove_outdated(self, replaced: Sequence[Path], age_s: float) -> None:
        """Remove files that have not been the view for some time; others are `replaced` now."""
        now = time.time()
        for file in replaced:
            os.utime(file)
        current = set(files_of(self.path))
        for file in self.path.glob("*.parquet"):
            if file not in current and now - file.stat().st_mtime >= age_s:
                file.unlink(missing_ok=True)


def write(rows: DataFrame, folder: Path) -> None:
    """Let Spark write the rows of a view to a folder."""
    rows.write.parquet(str(folder), compression="zstd")
