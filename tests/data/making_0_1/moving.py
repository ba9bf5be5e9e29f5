"""Subscriptions that follow their clients: with `myloc`, on a graph and on a grid; variables."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna.model.location import HexGrid
from tests.data.making_0_1.recording import Publication, Recording

EDGES = [["kitchen", "hall"], ["hall", "salon"], ["hall", "stairs"], ["stairs", "attic"]]
GRID = 8
HERE = (52.52, 13.405)


async def graph(directory: Path, case: Path) -> None:
    """Places of a movement graph."""
    file = directory / "places.json"
    file.write_text(json.dumps({"edges": EDGES, "locations": ["cellar"]}), encoding="utf-8")
    about = "Three brokers of a network whose places are those of a graph, in places.json."
    recording = Recording(directory, "moving/graph", about, places={"graph": str(file)})
    places = ["kitchen", "hall", "salon", "stairs", "attic", "cellar"]
    await _make(recording, case, places, around=["kitchen", "hall", "salon", "stairs"])


async def grid(directory: Path, case: Path) -> None:
    """Places that are hexagons of a grid."""
    about = f"Three brokers of a network whose places are H3 cells of resolution {GRID}."
    recording = Recording(directory, "moving/grid", about, places={"grid": GRID})
    space = HexGrid(GRID)
    middle = space.locate(*HERE)
    near = sorted(space.ploc(middle, 1) - {middle})
    far = sorted(space.ploc(middle, 3) - space.ploc(middle, 2))
    await _make(recording, case, [near[0], middle, *near[1:3], *far[:2]], around=[middle, *near])


async def _make(
    recording: Recording, case: Path, places: Sequence[str], *, around: Sequence[str]
) -> None:
    """Clients are at the second place; those `around` it are one step away, and itself."""
    at = places[1]
    async with recording:
        await recording.join("p1", "B1")
        await recording.join("p3", "B3")
        for name, broker in (("here", "B1"), ("away", "B2"), ("still", "B3")):
            client = await recording.join(name, broker)
            client.move(places[0])
            client.set("limit", 7, low=0, high=10)
            client.set("kind", "tram")
            exactly, near = f"'{at}'", ", ".join(f"'{place}'" for place in around)
            for called, where, means in (
                ("where I am", "place IN myloc", f"place IN ({exactly})"),
                ("nearby", "place IN myloc(1) AND n >= 0", f"place IN ({near}) AND n >= 0"),
                ("cheap", "n < $limit", "n < 7"),
                ("mine", "kind = $kind AND place IN myloc", f"kind = 'bus' AND place = {exactly}"),
                ("all", "n >= 0", None),
            ):
                await recording.subscribe(name, where, means=means, called=called)
            client.move(at)
            client.set("kind", "bus")
        await recording.settle()
        await recording.publish("p1", _everywhere(places, 0))
        await recording.settle()
        await recording.take("away", "all", 3)
        await recording.leave("away")
        await recording.settle()
        await recording.publish("p1", _everywhere(places, 12))
        await recording.publish("p3", _everywhere(places, 24))
        await recording.settle()
        recording.afterwards([attributes for attributes, _ in _everywhere(places, 2)])
        for name in ("p1", "p3"):
            recording.goes_on(name)
        await recording.end(killed=False)
    recording.keep(
        case,
        f"`here`, `away` and `still` are at {at}; `$limit` is 7 (between 0 and 10), `$kind` 'bus'.",
        "`means` says what each of their subscriptions means there.",
        "What was kept for `away` about the place where it was is delivered.",
    )


def _everywhere(places: Sequence[str], first: int) -> list[Publication]:
    """Two events about each place."""
    events: list[tuple[dict[str, Any], bytes]] = [
        ({"place": place, "kind": kind}, place.encode())
        for place in places
        for kind in ("bus", "tram")
    ]
    return [({**each, "n": n}, payload) for n, (each, payload) in enumerate(events, first)]
