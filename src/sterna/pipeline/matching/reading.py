"""Events and subscriptions from files: journals, Parquet, CSV, JSON, or a filter a line."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from sterna.pipeline.errors import PipelineError

JOURNAL_SUFFIXES = (".arrows", ".open")
_ARCHIVE = ("events", "deliveries")
Readers = dict[str, Callable[[str], DataFrame]]

_LINES = StructType().add("id", LongType()).add("filter", StringType())


def read_events(spark: SparkSession, path: Path) -> DataFrame:
    """A table of events: what a journal, an archive, or a file with attributes as columns has."""
    if all((path / name).is_dir() for name in _ARCHIVE):
        path /= "events"
    suffix = _suffix(path, "events")
    if suffix in JOURNAL_SUFFIXES:
        return spark.read.format("sterna").option("table", "events").load(str(path))
    read: Readers = {
        ".parquet": spark.read.parquet,
        ".csv": spark.read.option("header", "true").option("inferSchema", "true").csv,
        ".json": spark.read.json,
        ".jsonl": spark.read.json,
        ".ndjson": spark.read.json,
    }
    return _read(read, suffix, path, "events")


def read_subscriptions(spark: SparkSession, path: Path) -> DataFrame:
    """A table of subscriptions; in a text file, the numbers of lines are the ids."""
    suffix = _suffix(path, "subscriptions")
    if suffix == ".txt":
        return _lines(spark, path)
    read: Readers = {
        ".parquet": spark.read.parquet,
        ".csv": spark.read.option("header", "true").option("escape", '"').csv,
        ".json": spark.read.json,
        ".jsonl": spark.read.json,
        ".ndjson": spark.read.json,
    }
    return _read(read, suffix, path, "subscriptions", ".txt")


def _suffix(path: Path, what: str) -> str:
    """The ending of a file, or of the first one in a folder; a journal's, if there is one."""
    if path.is_file():
        return path.suffix
    if not path.is_dir():
        raise PipelineError(f"there is nothing at {path} to read {what} from")
    suffixes = [
        file.suffix
        for file in sorted(path.rglob("*"))
        if file.is_file()
        and file.suffix
        and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    if suffixes:  # A broker keeps other files beside its journal.
        return next((each for each in suffixes if each in JOURNAL_SUFFIXES), suffixes[0])
    raise PipelineError(f"{path} has no file to read {what} from")


def _read(read: Readers, suffix: str, path: Path, what: str, *also: str) -> DataFrame:
    if suffix not in read:
        known = ", ".join([*read, *also])
        raise PipelineError(
            f"{what} cannot be read from {suffix or 'files without a suffix'} ({path}): convert "
            f"them to one of {known}"
        )
    return read[suffix](str(path))


def _lines(spark: SparkSession, path: Path) -> DataFrame:
    if path.is_dir():
        raise PipelineError(f"{path} is a folder; give one text file with a filter a line")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise PipelineError(f"{path} is not text in UTF-8: convert it") from None
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    return spark.createDataFrame(rows, _LINES)
