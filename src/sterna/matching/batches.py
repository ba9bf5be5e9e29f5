"""Matching of batches, as many events at a time as there is room for."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching.encoding import room_for
from sterna.matching.kernels import matching as kernels
from sterna.matching.kernels.layout import TILE_ROWS, TILES, Events, Reading
from sterna.matching.tiles import SubscriptionTiles

VISITS_MIN = 1 << 19
"""How many visits of events to tiles are planned at a time, at least."""

HITS_MIN = 1 << 18
"""How many hits of a batch are found at a time, at least."""

Array = npt.NDArray[Any]


class BatchRoom:
    """Room for matching a batch; each thread uses its own."""

    def __init__(self, matched: Iterable[SubscriptionTiles]) -> None:
        matched = list(matched)
        tiles = max(len(each.arrays.tile_alive) for each in matched)
        nodes = max(len(each.arrays.node_record) for each in matched)
        self._room = room_for(matched)
        self._ends = np.empty(tiles + 1, np.int64)
        self._visits = np.empty((max(VISITS_MIN, tiles), 3), np.int32)
        hits = max(HITS_MIN, TILE_ROWS, nodes)  # An event's hits have room.
        self._hits = np.empty((hits, 2), np.int32)

    def hits(self, readings: Iterable[Reading], events: Events) -> tuple[Array, int]:
        """All pairs of an event and a row that hold, and the flags of those rows."""
        portions = [self._hits[:0]]
        flags = 0
        for reading in readings:
            flags |= self._filed(reading, events, portions)
            if reading.counts[TILES]:
                flags |= self._in_tiles(reading, events, portions)
        return np.concatenate(portions), flags

    def _filed(self, reading: Reading, events: Events, portions: list[Array]) -> int:
        hits = self._hits
        flags = event = 0
        while event < len(events.values):
            event, count, more = kernels.match_filed(reading, events, event, hits)
            portions.append(hits[:count].copy())
            flags |= more
        return flags

    def _in_tiles(self, reading: Reading, events: Events, portions: list[Array]) -> int:
        hits, ends, visits = self._hits, self._ends, self._visits
        tiles = int(reading.counts[TILES])
        most = len(hits) // TILE_ROWS
        flags = event = 0
        while event < len(events.values):
            event = kernels.plan_visits(reading, events, event, most, self._room, ends, visits)
            tile = 0
            while tile < tiles:
                tile, count, more = kernels.match_tiles(reading, events, tile, ends, visits, hits)
                portions.append(hits[:count].copy())
                flags |= more
        return flags


def by_event(hits: Array, events: int) -> tuple[Array, Array]:
    """The events and rows of hits, sorted by event; those of an event stay in their order."""
    positions = np.empty(len(hits), np.int64)
    rows = np.empty(len(hits), np.int32)
    kernels.sort_hits(hits, np.empty(events + 1, np.int64), positions, rows)
    return positions, rows
