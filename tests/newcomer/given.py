"""Files that pages take for granted: data that their readers have, small enough to be read soon."""

import csv
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_BEGINNING = datetime(2026, 5, 1, 6, tzinfo=UTC)


def write_given(directory: Path) -> None:
    """Write all of them."""
    randomness = random.Random(1)  # noqa: S311 - any numbers.
    _write_csv(
        directory / "subs.csv",
        ["id", "filter"],
        [(f"s{number}", f"price < {number} AND kind = 'taxi'") for number in range(1, 9)],
    )
    prices = [randomness.randrange(10) for _ in range(200)]
    trips: dict[str, Sequence[object]] = {
        "id": range(200),
        "kind": ["taxi", "bus"] * 100,
        "price": prices,
    }
    _write_parquet(directory / "trips.parquet", trips)
    _write_parquet(directory / "e.parquet", trips)
    _write_parquet(directory / "s.parquet", {"id": ["a", "b"], "filter": ["price < 3", "id > 7"]})
    (directory / "trips").mkdir()
    _write_csv(
        directory / "trips" / "2026-05.csv",
        ["started_at", "ended_at", "start_station_id", "end_station_id", "bike_id"],
        list(_bike_trips(randomness)),
    )
    _write_csv(
        directory / "taxis.csv",
        ["taxi", "when", "latitude", "longitude"],
        [
            (f"t{taxi}", _time(minute), 52.5 + 0.01 * ((minute // 10 + taxi) % 4), 13.4)
            for taxi in range(4)
            for minute in range(120)
        ],
    )
    steps = [(trace, minute) for trace in range(4) for minute in range(120)]
    campus: dict[str, Sequence[object]] = {
        "trace": [f"w{trace}" for trace, _ in steps],
        "t_s": [60.0 * minute for _, minute in steps],
        "x_m": [500.0 * ((minute // 10 + trace) % 4) for trace, minute in steps],
        "y_m": [0.0 for _ in steps],
    }
    _write_parquet(directory / "campus.parquet", campus)


def _bike_trips(randomness: random.Random) -> Iterable[tuple[str, str, str, str, str]]:
    for bike in range(6):
        station, minute = bike % 5, 0
        for _ in range(30):
            minute += randomness.randrange(10, 60)
            goal = (station + randomness.choice([1, 1, 1, 2])) % 5
            yield _time(minute), _time(minute + 9), f"S{station}", f"S{goal}", f"bike {bike}"
            station, minute = goal, minute + 9


def _time(minute: int) -> str:
    return (_BEGINNING + timedelta(minutes=minute)).strftime("%Y-%m-%d %H:%M:%S")


def _write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def _write_parquet(path: Path, columns: dict[str, Sequence[object]]) -> None:
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
