"""Tables that the pipeline made of journals, a mined mobility model, and movement graphs."""

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sterna.model.filters import Filter
from sterna.model.location import MovementGraph
from sterna.model.mobility import MobilityModel
from sterna.net.archive import Archive
from tests.data.kept import ARCHIVE, TablesManifest, kept_event, pack, sample, save
from tests.data.making_0_1 import archive, journals
from tests.data.making_0_1.moving import EDGES

SAMPLES = {
    "deliveries": ["client", "publisher", "seq", "kind", "anywhere", "place"],
    "movements": ["client", "kind", "broker", "location"],
    "handovers": ["client", "broker", "kind", "replayed", "held"],
    "subscriptions": ["client", "subscription", "kind", "filter"],
    "next_broker": ["origin", "destination", "count", "rank"],
    "traffic": ["broker", "link", "events", "facts"],
}
"""Of which tables which columns are kept in the manifest."""


async def make(directory: Path, case: Path) -> None:
    kept = directory / "kept"
    await journals.run(directory / "network", kept / "journals")
    summary = await archive.archive(kept / "journals", kept / "tables")
    await _mine(directory, kept)
    _draw(kept)
    manifest = TablesManifest(
        case="tables",
        about="What `sterna pipeline run` made of the journals in journals/: the tables in tables/ "
        "with its own checkpoints. What `sterna pipeline mine` made of trips: "
        "mobility.sterna-model. Movement graphs that somebody wrote: places.json, places.csv.",
        must_hold=[
            "Each table has as many rows as `rows` says, and holds those in `samples`.",
            "An archive of a broker in tables/ answers with `events`.",
            "Another run over the same journals, in whatever directory, adds nothing.",
            "The model predicts what `predictions` says; each graph leads where `graphs` says.",
        ],
        rows={name: rows["total"] for name, rows in summary["tables"].items()},
        events=[kept_event(event) for event in Archive(kept / "tables").past(Filter("TRUE"))],
        samples={
            name: sample(pq.read_table(kept / "tables" / name).to_pylist(), columns)
            for name, columns in SAMPLES.items()
        },
        predictions=_predictions(kept / "mobility.sterna-model"),
        graphs={
            name: _steps(kept / name)
            for name in ("places.json", "places.csv", "mobility.sterna-model")
        },
    )
    assert manifest.events
    assert all(manifest.samples.values()), manifest.samples
    pack(kept, case / ARCHIVE)
    save(manifest, case)


async def _mine(directory: Path, kept: Path) -> None:
    """Bikes that go round: from each of three stations to the next one."""
    rows: list[list[Any]] = [
        ["starttime", "stoptime", "start station id", "end station id", "bikeid"]
    ]
    for bike in range(3):
        for trip in range(12):
            start = datetime(2026, 1, 5, 8, tzinfo=UTC) + timedelta(hours=3 * trip, minutes=bike)
            stop = start + timedelta(minutes=20)
            times = [f"{time:%Y-%m-%d %H:%M:%S}" for time in (start, stop)]
            rows.append([*times, 100 + (bike + trip) % 3, 100 + (bike + trip + 1) % 3, bike])
    with (directory / "trips.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    out = directory / "mined"
    await archive.pipeline("mine", "--trips", directory / "trips.csv", "--out", out)
    (out / "mobility.sterna-model").rename(kept / "mobility.sterna-model")


def _draw(kept: Path) -> None:
    document = {"edges": [*EDGES, ["Küche", "hall"]], "locations": ["cellar"]}
    (kept / "places.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    (kept / "places.csv").write_text(
        "from,to\nkitchen,hall\nhall,Küche\ncellar\n", encoding="utf-8"
    )


def _predictions(path: Path) -> dict[str, str]:
    model = MobilityModel.load(path)
    return {place: model.next(place)[0].place for place in model.places}


def _steps(path: Path) -> dict[str, list[str]]:
    graph = MovementGraph.load(path)
    return {place: sorted(graph.neighbours(place)) for place in graph.locations}
