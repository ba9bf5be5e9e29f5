"""The experiment on the variants of the search: its settings, and what is measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna.core.history.options import Search
from sterna.experiments.cilia_variants.claims import claims, summary
from sterna.experiments.cilia_variants.settings import (
    BUFFER,
    DISTANCE,
    PUBLISHERS,
    Measures,
    Points,
    Setting,
)
from sterna.experiments.cilia_variants.showing import draw, tables
from sterna.experiments.cilia_variants.simulation import run
from sterna.experiments.experiment import Claim, Experiment, PrintedTable
from sterna.experiments.papers import CILIA

BUFFERS: Sequence[int] = (3, 5, 10, 20, 50, 100)
DISTANCES: Sequence[int] = (1, 2, 4, 8)
CROWDS: Sequence[int] = (1, 4, 16, 64)
PAYLOADS = (0, 512)
"""Other sizes of events than usual."""


class CiliaVariants(Experiment[Setting, Measures]):
    name = "cilia-variants"
    about = "Messages, bytes and events found by each variant of the search for the past."
    takes = "about two minutes"
    paper = CILIA

    def settings(self, *, quick: bool) -> list[Setting]:
        buffers, distances, crowds = BUFFERS, DISTANCES, CROWDS
        if quick:
            buffers, distances, crowds = (3, BUFFER), (1, DISTANCE), (1, PUBLISHERS)
        places = [{"buffer": buffer} for buffer in buffers]
        places += [{"distance": each} for each in distances if each != DISTANCE]
        places += [{"publishers": each} for each in crowds if each != PUBLISHERS]
        sized = [{"payload_bytes": each} for each in PAYLOADS if not quick]
        if not quick:  # What speaks most against the list of known events.
            sized.append({"payload_bytes": 0, "publishers": CROWDS[-1], "buffer": BUFFERS[-1]})
        subscribers = 12 if quick else 24
        return [
            Setting(search=search, prepares=prepares, subscribers=subscribers, **place)
            for some, prepared in ((places, (False, True)), (sized, (False,)))
            for place in some
            for prepares in prepared
            for search in Search
        ]

    def measure(self, setting: Setting, seed: int) -> Measures:
        return run(setting, seed)

    def work(self, setting: Setting) -> float:
        return setting.subscribers * (10 + setting.publishers + setting.distance)

    def claims(self, points: Points) -> list[Claim]:
        return claims(points)

    def tables(self, points: Points) -> list[PrintedTable]:
        return tables(points)

    def summary(self, points: Points) -> dict[str, Any]:
        return summary(points)

    def draw(self, points: Points, path: Path) -> None:
        draw(points, path)
