"""Trips, fixes and movements as they are found: files of any kind, columns of many names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import DataType, DateType, NumericType, StringType, TimestampNTZType
from pyspark.sql.types import TimestampType as Timestamp

from sterna.delta import has_log
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.mining import visits
from sterna.pipeline.mining.cells import in_hexagons, in_squares
from sterna.pipeline.mining.sources import (
    FIX_COLUMNS,
    H3_DEFAULT,
    MARGIN_ON_GLOBE,
    SQUARE_DEFAULT_M,
    TRIP_COLUMNS,
    VEHICLES,
    Kind,
    Source,
)
from sterna.pipeline.mining.stays import stays
from sterna.pipeline.mining.tables import FIXES, LOCAL_FIXES, TRIPS
from sterna.pipeline.session import first_line
from sterna.pipeline.tables.reading import read_files

_TIME_FORMATS = ("M/d/yyyy H:mm:ss", "M/d/yyyy H:mm")
_NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
_KINDS = {"csv": "CSV", "parquet": "Parquet"}
_GLOBS = {"csv": "*.{csv,CSV,csv.gz,CSV.GZ}", "parquet": "*.{parquet,PARQUET}"}
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".csv.gz": "csv"}


@dataclass(frozen=True, kw_only=True)
class MiningInput:
    """The visits of an input, and facts about it."""

    visits: DataFrame
    grid: str
    """What kind of places these are, as in a mobility model."""
    clients: bool
    """Whether clients occur more than once."""
    places: DataFrame | None
    """The positions of the places, if they have names."""
    rows: int
    left_out: int
    """How many rows could not be read."""


def visited(spark: SparkSession, source: Source) -> MiningInput:
    """The visits of a source."""
    match source.kind:
        case Kind.TRIPS:
            return _trips_visited(file_table(spark, source.path), source)
        case Kind.FIXES:
            return _fixes_visited(file_table(spark, source.path), source)
        case Kind.JOURNAL:
            return _journal_visited(movements(spark, source.path), source)


def _trips_visited(table: DataFrame, source: Source) -> MiningInput:
    found = trips(table, source.columns)
    places = stations(table, source.columns)
    grid = ""
    if source.h3 is not None:
        if places is None:
            raise PipelineError(
                "--h3 needs to know where trips begin and end, and the columns are "
                f"{', '.join(table.columns)}: say which are start_lat, start_lon, stop_lat and "
                "stop_lon, as in --columns start_lat=COLUMN, or leave --h3 out"
            )
        cells = in_hexagons(places.withColumnRenamed("place", "station"), source.h3)
        for end in ("origin", "destination"):
            found = (
                found.withColumnRenamed(end, "station")
                .join(F.broadcast(cells), "station", "left")
                .drop("station")
                .withColumnRenamed("place", end)
            )
        grid, places = f"h3:{source.h3}", None
    complete, rows, left_out = _complete(found.to(TRIPS), source)
    known = "client" in source.columns or any(_plain(n) in VEHICLES for n in table.columns)
    return MiningInput(
        visits=visits.docked(complete),
        grid=grid,
        clients=known,
        places=places,
        rows=rows,
        left_out=left_out,
    )


def _fixes_visited(table: DataFrame, source: Source) -> MiningInput:
    found = fixes(table, source.columns)
    on_globe = "latitude" in found.columns
    if on_globe and source.square_m is not None:
        raise PipelineError("fixes with latitude and longitude have hexagons: use --h3, not --grid")
    if not on_globe and source.h3 is not None:
        raise PipelineError("fixes in metres have no hexagons: use --grid, not --h3")
    resolution = H3_DEFAULT if source.h3 is None else source.h3
    metres = source.square_m or SQUARE_DEFAULT_M
    complete, rows, left_out = _complete(found, source)
    positions = visits.recorded(complete, source.gap_s)
    if source.stay_s:
        positions = stays(positions, source.radius_m, source.stay_s)
    margin = source.margin
    if margin is None:
        margin = MARGIN_ON_GLOBE if on_globe else 0.0
    if on_globe:
        places = in_hexagons(positions, resolution, margin)
    else:
        places = in_squares(positions, metres, margin)
    return MiningInput(
        visits=visits.joined(places) if source.stay_s else visits.passed(places),
        grid=f"h3:{resolution}" if on_globe else f"square:{metres:g}",
        clients=True,
        places=None,
        rows=rows,
        left_out=left_out,
    )


def _journal_visited(found: DataFrame, source: Source) -> MiningInput:
    if source.at_locations:
        told = found.where("kind = 'moved' AND location IS NOT NULL")
        made = visits.passed(told.select("client", "time", F.col("location").alias("place")))
    else:
        made = visits.attached(found)
    return MiningInput(
        visits=made, grid="", clients=True, places=None, rows=found.count(), left_out=0
    )


def _complete(found: DataFrame, source: Source) -> tuple[DataFrame, int, int]:
    """The complete rows, how many rows there are, and how many are left out."""
    complete = found.dropna()
    all_there = F.lit(True)  # noqa: FBT003 - a column.
    for name in found.columns:
        all_there = all_there & F.col(name).isNotNull()
    row = found.agg(F.count(F.lit(1)).alias("rows"), F.count_if(all_there).alias("good")).first()
    rows, good = (0, 0) if row is None else (row.rows, row.good)
    if not good:
        raise PipelineError(
            f"{source.path} has {rows} rows, and in none all of {', '.join(found.columns)} "
            "could be read: check the columns with --columns"
        )
    return complete, rows, rows - good


def fixes(table: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """FIXES or LOCAL_FIXES from a table as it was found. What cannot be read is null."""
    found = _found(table, FIX_COLUMNS, columns)
    kind = FIXES if {"lat", "lon"} <= found.keys() else LOCAL_FIXES
    names = ("lat", "lon") if kind is FIXES else ("x", "y")
    _require(table, found, ("client", "time", *names), "fixes")
    first, second = (_number(found[name]) for name in names)
    if kind is FIXES:
        first = F.when(first.between(-90, 90), first)
        second = F.when(second.between(-180, 180), second)
    return table.select(
        found["client"].cast("string").alias(kind.names[0]),
        _moment(table, found["time"]).alias(kind.names[1]),
        first.alias(kind.names[2]),
        second.alias(kind.names[3]),
    ).to(kind)


def trips(table: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """TRIPS from a table as it was found. What cannot be read is null."""
    found = _found(table, TRIP_COLUMNS, columns)
    _require(table, found, ("client", "start", "stop", "origin", "destination"), "trips")
    return table.select(
        _name(table, found["client"]).alias("client"),
        _moment(table, found["start"]).alias("started"),
        _moment(table, found["stop"]).alias("stopped"),
        _name(table, found["origin"]).alias("origin"),
        _name(table, found["destination"]).alias("destination"),
    ).to(TRIPS)


def stations(table: DataFrame, columns: Mapping[str, str]) -> DataFrame | None:
    """The positions of the places of trips: place, latitude, longitude; None if there are none."""
    found = _found(table, TRIP_COLUMNS, columns)
    ends = (("origin", "start_lat", "start_lon"), ("destination", "stop_lat", "stop_lon"))
    if not {name for end in ends for name in end} <= found.keys():
        return None
    first, second = (
        table.select(
            _name(table, found[place]).alias("place"),
            _number(found[lat]).alias("latitude"),
            _number(found[lon]).alias("longitude"),
        )
        for place, lat, lon in ends
    )
    return (
        first.union(second)
        .where("place IS NOT NULL AND abs(latitude) <= 90 AND abs(longitude) <= 180")
        .groupBy("place")
        .agg(F.median("latitude").alias("latitude"), F.median("longitude").alias("longitude"))
    )


def file_table(spark: SparkSession, path: str) -> DataFrame:
    """A CSV or Parquet file, a directory of them, or a Delta table. CSV files have a header."""
    if has_log(Path(path)):
        return read_files(spark, Path(path))
    kind = _kind(path)
    reader = spark.read.option("recursiveFileLookup", "true")
    if Path(path).is_dir():  # Next to a README, maybe.
        reader = reader.option("pathGlobFilter", _GLOBS[kind])
    try:
        if kind == "csv":
            return reader.option("header", "true").csv(path)
        return reader.parquet(path)
    except (PySparkException, Py4JError) as error:  # One of a plan, one of a file.
        raise PipelineError(
            f"cannot read {path} as {_KINDS[kind]}, damaged as it may be: {first_line(error)}"
        ) from None


def movements(spark: SparkSession, path: str) -> DataFrame:
    """The table `movements` of the journals in a directory."""
    from sterna.pipeline.source import register  # noqa: PLC0415 - only for journals.

    register(spark)
    return spark.read.format("sterna").option("table", "movements").load(path)


def _kind(path: str) -> str:
    files = [path]
    if "://" not in path:
        place = Path(path)
        if not place.exists():
            raise PipelineError(f"there is no {path}; give a file or a directory")
        if place.is_dir():
            files = [str(file) for file in place.rglob("*") if not file.name.startswith((".", "_"))]
    kinds = {kind for file in files for end, kind in _FORMATS.items() if file.lower().endswith(end)}
    if len(kinds) == 1:
        return kinds.pop()
    if not kinds and "://" in path:
        return "parquet"
    problem = "both CSV and Parquet files" if kinds else "no CSV or Parquet file"
    raise PipelineError(f"{path} has {problem}; give a directory with files of one kind")


def _found(
    table: DataFrame, names: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> dict[str, Column]:
    """The columns that a mapping names, and those with usual names."""
    columns = {_plain(name): name for name in reversed(table.columns)}
    found: dict[str, Column] = {}
    for name, usual in names.items():
        if name in given:
            if given[name] not in table.columns:
                raise PipelineError(
                    f"there is no column {given[name]!r}; there are {', '.join(table.columns)}"
                )
            found[name] = _column(given[name])
            continue
        match = next((columns[each] for each in usual if each in columns), None)
        if match is not None:
            found[name] = _column(match)
    return found


def _require(
    table: DataFrame, found: Mapping[str, Column], names: tuple[str, ...], what: str
) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        raise PipelineError(
            f"{what} need {', '.join(missing)}, and the columns are {', '.join(table.columns)}: "
            f"say which is which, as in --columns {missing[0]}=COLUMN"
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _type_of(table: DataFrame, column: Column) -> DataType:
    return table.select(column.alias("it")).schema["it"].dataType


def _name(table: DataFrame, column: Column) -> Column:
    """A name as text: without what a spreadsheet adds to numbers, and null if it is empty."""
    text = F.trim(column.cast("string"))
    if not isinstance(_type_of(table, column), StringType):
        text = F.regexp_replace(text, r"\.0$", "")
    return F.when(text != "", text)


def _number(column: Column) -> Column:
    number = column.try_cast("double")
    return F.when(~F.isnan(number) & (F.abs(number) < float("inf")), number)


def _moment(table: DataFrame, column: Column) -> Column:
    """A time: as such, as text, or as a number since 1970 in units that its size suggests."""
    type_ = _type_of(table, column)
    if isinstance(type_, Timestamp | TimestampNTZType | DateType):
        return column.cast("timestamp")
    if isinstance(type_, NumericType):
        return _since_1970(column)
    if not isinstance(type_, StringType):
        raise PipelineError(
            f"a time is a timestamp, a number or a text, not {type_.simpleString()}: give another "
            "column with --columns"
        )
    formats = (F.try_to_timestamp(column, F.lit(each)) for each in _TIME_FORMATS)
    as_text = F.coalesce(column.try_cast("timestamp"), *formats)
    return F.when(column.rlike(_NUMBER), _since_1970(column)).otherwise(as_text)


def _since_1970(column: Column) -> Column:
    number = _number(column)
    size = F.abs(number)
    micros = (
        F.when(size < 1e11, number * 1e6)
        .when(size < 1e14, number * 1e3)
        .when(size < 1e17, number)
        .otherwise(number / 1e3)
    )
    return F.timestamp_micros(F.round(micros).try_cast("long"))
