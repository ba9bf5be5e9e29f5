"""Which files of a table count, for everyone who reads tables without Spark."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.extras import require

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
DAY = "day"


def open_table(path: Path, version: int | None = None) -> "DeltaTable":
    """The table in a directory as its log has it now, or had it; OSError if it cannot be read."""
    require("archive", "a table with a Delta log")
    from deltalake import DeltaTable  # noqa: PLC0415 - it is optional.
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    try:
        return DeltaTable(path, version=version)
    except DeltaError as error:
        raise OSError(f"the Delta log of {path} cannot be read: {error}") from error


def has_log(path: Path) -> bool:
    """Whether a directory is a Delta table. Those of release 0.1 are none."""
    return any((path / LOG).glob("[0-9]*.json"))


def files_of(path: Path) -> list[Path]:
    """The files of a table: those in its log or, if it has none, all that are not set aside."""
    if has_log(path):
        return listed(open_table(path), path)
    found = (file.relative_to(path) for file in path.rglob("*.parquet"))
    return sorted(path / file for file in found if not any(_is_aside(part) for part in file.parts))


def listed(table: "DeltaTable", path: Path) -> list[Path]:
    """The files that are in the log of an open table; `path` is where it is."""
    import pyarrow as pa  # noqa: PLC0415 - not all who look for files need it.

    names = pa.table(table.get_add_actions())["path"].to_pylist()
    return sorted(path / name for name in names)


def changed_days(path: Path, version: int) -> list[str] | None:
    """The days of which a table has other files than it had; None if that cannot be told."""
    try:
        before = {*listed(open_table(path, version), path)}
    except OSError:  # The log does not go back so far.
        return None
    folders = {file.parent.name for file in before ^ {*listed(open_table(path), path)}}
    days = sorted(folder.removeprefix(f"{DAY}=") for folder in folders)
    return days if all(map(is_day, days)) else None


def is_day(text: str) -> bool:
    """Whether it is a day that calendars and logs have; clocks of clients may be wrong."""
    return _DAY.fullmatch(text) is not None


_DAY = re.compile(r"(?!0000)\d{4}-\d\d-\d\d")


def _is_aside(part: str) -> bool:
    return part.startswith(("_", "."))
