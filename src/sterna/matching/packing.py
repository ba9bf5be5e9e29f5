"""Packing: values are divided anew and rows sorted anew, into fresh tiles, a little at a time.

Tiles that rows came to and left are worse than fresh ones: cells divide values as they once were,
tiles are half empty, records lie where there was room. So now and then all rows move to new tiles.
That would take seconds for a million rows. Instead, every change of the index does a small share of
it. Meanwhile each row is in the old tiles or in the new ones, and events are matched with both.

The functions here are generators. They yield about how much work was done since, measured in rows
moved.
"""

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching import division
from sterna.matching.division import Named
from sterna.matching.growth import COPIED_MAX, zeros
from sterna.matching.kernels import packing as kernels
from sterna.matching.kernels.layout import TILE_ROWS
from sterna.matching.kernels.packing import Runs, Survey
from sterna.matching.kernels.rows import record_length
from sterna.matching.tiles import FILL_ROWS, SubscriptionTiles
from sterna.matching.vocabulary import Vocabulary

SURVEYED_ROWS, SURVEYED_VALUES, KEYED_ROWS = 1024, 4096, 512
"""How many rows or values are examined between two breaks."""

RUN_ROWS = 16 * KEYED_ROWS
"""How many rows are sorted between two breaks."""

TILES_AT_A_TIME = 2
"""How many tiles are filled between two breaks."""

FILED_AT_A_TIME = 64
"""How many filed rows are moved between two breaks."""

CONSTANTS_MIN, CONSTANTS_MAX, CONSTANTS = 512, 1 << 14, 1 << 18
"""How many numbers the cells of an attribute are made from: the least, the most, and for all
attributes together."""

PAGE_BYTES, PAGE_COST = 1 << 21, 256
"""The size of the largest pages of memory, and the cost of getting one, compared with moving a
row."""

NODES_EACH = 8
"""A row is filed under fewer values than this."""

SURVEY_COST, KEY_COST, SORT_COST, DIVIDE_COST, LATE_COST = 1 / 8, 1 / 4, 1 / 16, 16, 16
"""What it takes to survey a row or a value, to find its key, to sort it, to divide an attribute,
and to move a late row, compared with moving a row in order."""

Array = npt.NDArray[Any]
Work = Generator[float, None, None]


def provide_memory(old: SubscriptionTiles, new: SubscriptionTiles) -> Work:
    """Have the system provide memory for all that will move to new tiles, a page at a time.

    It does so when memory is written to for the first time, which would be in a few calls only.
    """
    new.make_room_like(old)
    for array in new.arrays:
        lines = max(1, PAGE_BYTES * len(array) // max(1, array.nbytes))
        for first in range(0, len(array) if array.nbytes > COPIED_MAX else 0, lines):
            array[first] = 0
            yield PAGE_COST


def divide_anew(
    old: SubscriptionTiles, new: SubscriptionTiles, vocabulary: Vocabulary, rows: int
) -> Work:
    """Divide all attributes in new tiles, by what the rows in the old ones compare them with."""
    survey = _new_survey(len(vocabulary.by_place))
    for first in range(0, rows, SURVEYED_ROWS):
        last = min(rows, first + SURVEYED_ROWS)
        kernels.survey_rows(old.arrays, survey, first, last)
        yield (last - first) * SURVEY_COST
    values = vocabulary.values
    for first in range(0, values, SURVEYED_VALUES):
        last = min(values, first + SURVEYED_VALUES)
        kernels.survey_values(vocabulary.uses, vocabulary.string_of, survey, first, last)
        yield (last - first) * SURVEY_COST
    for place in range(len(survey.seen)):
        new.make_room_for_names()
        new.divide(place, _named(survey, place, vocabulary))
        yield DIVIDE_COST


def _new_survey(attributes: int) -> Survey:
    kept = min(CONSTANTS_MAX, max(CONSTANTS_MIN, CONSTANTS // max(1, attributes)))
    listed = division.STRING_CELLS
    return Survey(
        constants=zeros((attributes, kept), np.float64),
        seen=np.zeros(attributes, np.int64),
        strings=zeros((attributes, listed), np.int64),
        uses=zeros((attributes, listed), np.int64),
        listed=np.zeros(attributes, np.int64),
        total=np.zeros(attributes, np.int64),
        rng=np.ones(1, np.uint64),
    )


def _named(survey: Survey, place: int, vocabulary: Vocabulary) -> Named:
    listed = survey.listed[place]
    strings = survey.strings[place, :listed]
    there = vocabulary.string_of[strings] == place + 1  # Others were forgotten meanwhile.
    return Named(
        constants=survey.constants[place, : survey.seen[place]],
        strings=strings[there],
        uses=survey.uses[place, :listed][there],
        total=int(survey.total[place]),
    )


def move_in_order(old: SubscriptionTiles, new: SubscriptionTiles, rows: int) -> Work:
    """Fill new tiles with the rows in old ones whose numbers are below this, in their new order.

    Rows may come to the old tiles and leave them meanwhile. Those that came late are not moved,
    nor should they go to the new tiles, where the tiles that they belong to are not there yet.
    """
    runs = yield from _sorted_runs(old, new, rows)
    made = 1
    while made:
        new.make_room_for_tiles(TILES_AT_A_TIME)
        made, words = kernels.pack_tiles(old.arrays, new.arrays, runs, TILES_AT_A_TIME, FILL_ROWS)
        while words:  # Without a break: the rows for the next tile are chosen.
            new.make_room_for_records(words)
            more, words = kernels.pack_tiles(old.arrays, new.arrays, runs, 1, FILL_ROWS)
            made += more
        yield made * FILL_ROWS


def move_late(old: SubscriptionTiles, new: SubscriptionTiles, late: Iterable[int]) -> Work:
    """Insert rows into new tiles that came to the old ones while others were moved."""
    for row in late:
        if old.arrays.row_slot[row] > 0:
            new.make_room_for_records(record_length(old.arrays, row))
            kernels.move_row(old.arrays, new.arrays, row)
            new.insert(row)
        yield LATE_COST


def move_filed(old: SubscriptionTiles, new: SubscriptionTiles, values: int) -> Work:
    """Move the rows that are filed under values with numbers below this."""
    value = 0
    while value < values:
        new.make_room_for_nodes(FILED_AT_A_TIME * NODES_EACH)
        last = min(values, value + SURVEYED_VALUES)
        value, moved, words = kernels.move_filed(
            old.arrays, new.arrays, value, last, FILED_AT_A_TIME
        )
        if words:
            new.make_room_for_records(words)
        yield moved + FILED_AT_A_TIME


def release_memory(old: SubscriptionTiles) -> Work:
    """Give the memory of tiles that all rows have left back to the system, an array at a time."""
    arrays = old.dissolve()
    while arrays:
        size = arrays.pop().nbytes
        if size > COPIED_MAX:
            yield PAGE_COST * size // PAGE_BYTES


def _sorted_runs(
    old: SubscriptionTiles, new: SubscriptionTiles, rows: int
) -> Generator[float, None, Runs]:
    """The rows in old tiles, in runs that are sorted by the keys that they have in new ones."""
    most = -(-rows // RUN_ROWS)
    runs = Runs(
        rows=zeros((rows,), np.int32),
        keys=zeros((rows,), np.int64),
        at=np.zeros(most, np.int64),
        end=np.zeros(most, np.int64),
        heap=np.zeros(most, np.int64),
        left=np.zeros(2, np.int64),
        waiting=np.zeros(TILE_ROWS, np.int64),
    )
    count = end = 0
    for start in range(0, rows, RUN_ROWS):
        begin = end
        stop = min(rows, start + RUN_ROWS)
        for first in range(start, stop, KEYED_ROWS):
            last = min(stop, first + KEYED_ROWS)
            end = kernels.list_keys(_keying(old, new), first, last, runs, end)
            yield (last - first) * KEY_COST
        if end > begin:
            order = np.argsort(runs.keys[begin:end], kind="stable")
            runs.rows[begin:end] = runs.rows[begin:end][order]
            runs.keys[begin:end] = runs.keys[begin:end][order]
            runs.at[count], runs.end[count] = begin, end
            count += 1
            yield (end - begin) * SORT_COST
    kernels.start_merging(runs, count)
    return runs


def _keying(old: SubscriptionTiles, new: SubscriptionTiles) -> Any:
    """The arrays to find keys with: the new cells, and the records where they are."""
    return new.arrays._replace(
        records=old.arrays.records,
        numbers=old.arrays.numbers,
        row_record=old.arrays.row_record,
        row_slot=old.arrays.row_slot,
    )
