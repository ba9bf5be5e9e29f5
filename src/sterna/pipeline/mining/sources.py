"""What is mined and what its places are, from the user's options; without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sterna.pipeline.errors import PipelineError

FIX_COLUMNS = {
    "client": ("client", "clientid", "user", "userid", "device", "deviceid", "trace", "id"),
    "time": ("time", "timestamp", "datetime", "ts", "at", "date"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "long", "longitude"),
    "x": ("x", "xm"),
    "y": ("y", "ym"),
}
"""The usual names of the columns of fixes, in small letters and without spaces and the like."""

TRIP_COLUMNS = {
    "client": ("bikeid", "client", "vehicleid", "rideid", "tripid"),
    "start": ("starttime", "startedat", "startdate"),
    "stop": ("stoptime", "endedat", "endtime", "enddate"),
    "origin": ("startstationid", "origin", "startstationname"),
    "destination": ("endstationid", "destination", "endstationname"),
    "start_lat": ("startstationlatitude", "startlat"),
    "start_lon": ("startstationlongitude", "startlng", "startlon"),
    "stop_lat": ("endstationlatitude", "endlat"),
    "stop_lon": ("endstationlongitude", "endlng", "endlon"),
}
"""The usual names of the columns of trips, in the old and the new form of the public files."""

VEHICLES = TRIP_COLUMNS["client"][:3]
"""Columns with names that occur more than once; those of trips do not."""

H3_DEFAULT = 9
SQUARE_DEFAULT_M = 500.0
GAP_DEFAULT_S = 1800.0

MARGIN_ON_GLOBE = 0.12
"""The margin of fixes with latitude and longitude, which come from receivers; on a plane there is
none by default. (docs/decisions/0031-visits-of-fixes.md)"""


class Kind(StrEnum):
    """The kinds of data that can be mined."""

    TRIPS = "trips"
    FIXES = "fixes"
    JOURNAL = "journal"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The data to mine, and what its places are."""

    kind: Kind
    path: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each field whose column has an unusual name."""
    h3: int | None = None
    """Places are hexagons of this resolution."""
    square_m: float | None = None
    """Places are squares with sides of this length."""
    stay_s: float = 0.0
    """How long a client must be near a point for a visit; 0: places that are passed count, too."""
    radius_m: float = 100.0
    gap_s: float = GAP_DEFAULT_S
    """How long a client may have no fix before its recording counts as interrupted; 0: for ever."""
    margin: float | None = None
    """How far outside a cell a fix must be for the client to have left it, as a part of the cell's
    width; None: as usual for such fixes."""
    at_locations: bool = False
    """For journals: places are not brokers but the locations that clients announce."""


def chosen(
    paths: Mapping[Kind, str],
    *,
    columns: str = "",
    h3: int | None = None,
    square_m: float | None = None,
    stay_s: float = 0.0,
    radius_m: float = 100.0,
    gap_s: float | None = None,
    margin: float | None = None,
    at_locations: bool = False,
) -> Source:
    """The source for these options, if they go together."""
    if len(paths) != 1:
        raise PipelineError("say what to mine: one of DIR (journals), --trips and --fixes")
    ((kind, path),) = paths.items()
    problems = {
        "--h3 and --grid are two kinds of places: give one": h3 is not None
        and square_m is not None,
        "--grid is for fixes with x and y; for trips leave it out, or give --h3": (
            square_m is not None and kind is Kind.TRIPS
        ),
        "--stay is for fixes: leave it out": stay_s > 0 and kind is not Kind.FIXES,
        "--gap is for fixes: leave it out": gap_s is not None and kind is not Kind.FIXES,
        "--margin is for fixes: leave it out": margin is not None and kind is not Kind.FIXES,
        "--h3, --grid and --columns are for files, not for journals: leave them out": (
            kind is Kind.JOURNAL and (h3 is not None or square_m is not None or bool(columns))
        ),
        "--where is for journals: leave it out": at_locations and kind is not Kind.JOURNAL,
    }
    for problem, is_there in problems.items():
        if is_there:
            raise PipelineError(problem)
    names = {Kind.TRIPS: TRIP_COLUMNS, Kind.FIXES: FIX_COLUMNS, Kind.JOURNAL: {}}[kind]
    return Source(
        kind=kind,
        path=path,
        columns=_mapping(columns, list(names)),
        h3=h3,
        square_m=square_m,
        stay_s=stay_s,
        radius_m=radius_m,
        gap_s=GAP_DEFAULT_S if gap_s is None else gap_s,
        margin=margin,
        at_locations=at_locations,
    )


def _mapping(text: str, known: list[str]) -> dict[str, str]:
    """Parse `client=bike_id,time=at`: the column of each field."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    for name, separator, column in pairs:
        if not separator or not column.strip() or name.strip() not in known:
            raise PipelineError(
                f"--columns says {name + separator + column!r}; give name=column with commas "
                f"between, where name is one of {', '.join(known)}"
            )
    return {name.strip(): column.strip() for name, _, column in pairs}
