"""Where clients stayed long enough, found in their fixes."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from sterna.model.geo import EARTH_RADIUS_M

_CHUNK = 256
"""How many distances between fixes are computed at once."""

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


def stays(fixes: DataFrame, radius_m: float, least_s: float) -> DataFrame:
    """Positions with `arrived` and `left` from FIXES or LOCAL_FIXES.

    A stay is a run of fixes that are all near the first of them and lasts long enough; its position
    is their mean. (Li et al., Mining user similarity based on location history, 2008) If fixes have
    `recording`, stays have it, too, and are within one.
    """
    first, second = _position(fixes.columns)
    table = StructType().add("client", "string").add(first, "double").add(second, "double")
    table = table.add("arrived", "timestamp").add("left", "timestamp")
    if "recording" in fixes.columns:
        table = table.add("recording", "long")

    def find(fixes: pa.Table) -> pa.Table:
        return _stays_of_client(fixes, radius_m=radius_m, least_us=round(least_s * 1e6))

    return fixes.groupBy("client").applyInArrow(find, table)


def _stays_of_client(fixes: pa.Table, *, radius_m: float, least_us: int) -> pa.Table:
    fixes = fixes.sort_by("time")
    first, second = _position(fixes.column_names)
    times = fixes["time"].cast(pa.int64()).to_numpy()
    positions = fixes[first].to_numpy(), fixes[second].to_numpy()
    ends = _ends_of_recordings(fixes)
    found: list[tuple[float, float, int, int | None]] = []
    begins: list[int] = []
    begin = 0
    while begin < len(times):
        until = int(ends[begin])
        own = positions[0][:until], positions[1][:until]
        end = _first_far(*own, begin, radius_m, on_globe=first == "latitude")
        if times[end - 1] - times[begin] >= least_us:
            left = int(times[end - 1]) if end < len(times) else None  # The departure was not seen.
            middle = (float(each[begin:end].mean()) for each in positions)
            found.append((*middle, int(times[begin]), left))  # type: ignore[arg-type]
            begins.append(begin)
            begin = end
        else:
            begin += 1
    columns = list(zip(*found, strict=True)) if found else [()] * 4
    time = fixes.schema.field("time").type
    stays = {
        "client": pa.array([fixes["client"][0].as_py()] * len(found), pa.string()),
        first: pa.array(columns[0], pa.float64()),
        second: pa.array(columns[1], pa.float64()),
        "arrived": pa.array(columns[2], pa.int64()).cast(time),
        "left": pa.array(columns[3], pa.int64()).cast(time),
    }
    if "recording" in fixes.column_names:
        stays["recording"] = fixes["recording"].take(pa.array(begins, pa.int64()))
    return pa.table(stays)


def _ends_of_recordings(fixes: pa.Table) -> npt.NDArray[np.int64]:
    """For each fix, the number of fixes up to the end of its recording."""
    if "recording" not in fixes.column_names:
        return np.full(fixes.num_rows, fixes.num_rows)
    recordings = fixes["recording"].to_numpy()
    ends: npt.NDArray[np.int64] = np.searchsorted(recordings, recordings, side="right")
    return ends


def _first_far(a: Numbers, b: Numbers, begin: int, radius_m: float, *, on_globe: bool) -> int:
    """The first fix after `begin` that is not near it."""
    distance = _on_globe if on_globe else _on_plane
    for start in range(begin, len(a), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        far = np.flatnonzero(distance(a[chunk], b[chunk], a[begin], b[begin]) > radius_m)
        if len(far):
            return start + int(far[0])
    return len(a)


def _on_plane(x: Numbers, y: Numbers, x0: float, y0: float) -> Numbers:
    return np.hypot(x - x0, y - y0)


def _on_globe(
    latitude: Numbers, longitude: Numbers, latitude0: float, longitude0: float
) -> Numbers:
    half_lat = np.radians(latitude - latitude0) / 2
    half_lon = np.radians(longitude - longitude0) / 2
    scale = np.cos(np.radians(latitude)) * np.cos(np.radians(latitude0))
    measure = np.sin(half_lat) ** 2 + scale * np.sin(half_lon) ** 2
    angle: Numbers = 2 * np.arcsin(np.sqrt(np.minimum(measure, 1)))
    return angle * EARTH_RADIUS_M


def _position(columns: list[str]) -> tuple[str, str]:
    return ("latitude", "longitude") if "latitude" in columns else ("x", "y")
