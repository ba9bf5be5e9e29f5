"""Packing: how rows get from old tiles into new ones, in a new order, some at a time."""

from typing import Any, NamedTuple

import numpy as np

from sterna.matching.kernels.compiling import kernel
from sterna.matching.kernels.conditions import next_test
from sterna.matching.kernels.filing import file, unfile_row, values_filed_under
from sterna.matching.kernels.layout import (
    FILED,
    LOOSE,
    ONE,
    POINT,
    RANGE,
    RECORD_WORDS,
    Arrays,
)
from sterna.matching.kernels.order import write_key
from sterna.matching.kernels.rows import move_record, record_length
from sterna.matching.kernels.tiles import append_tile, remove_from_tile


class Survey(NamedTuple):
    """The constants that rows compare attributes with; one line for each attribute."""

    constants: Any  # The numbers: all of them, or a random sample if they are many.
    seen: Any  # How many numbers there were.
    strings: Any  # The strings that most tests name, most first.
    uses: Any  # How many tests name each of these strings.
    listed: Any  # How many strings are listed.
    total: Any  # How often any string is named.
    rng: Any  # The state of the random number generator of the sample.


class Runs(NamedTuple):
    """Rows in runs, each sorted by key, which are merged into one order."""

    rows: Any
    keys: Any
    at: Any  # Where each run goes on.
    end: Any  # Where each run ends.
    heap: Any  # The runs that go on, as a heap by their next keys.
    left: Any  # How many runs go on, and how many rows wait for the next tile.
    waiting: Any  # The rows that wait.


# ---- Surveying


@kernel
def survey_rows(t: Arrays, survey: Survey, first: int, last: int) -> None:
    """Sample the numbers with which the rows in tiles compare attributes."""
    for row in range(first, last):
        if t.row_slot[row] <= 0:
            continue
        record = np.int64(t.row_record[row])
        test = record + 1
        for _ in range(t.records[record] & 0xFFFF):
            head = t.records[test]
            attribute = head >> 8 & 0xFFFFFF
            if attribute < len(survey.seen):
                if head & 255 == RANGE:
                    _choose(survey, attribute, t.numbers[test + 1])
                    _choose(survey, attribute, t.numbers[test + 2])
                elif head & 255 == POINT:
                    _choose(survey, attribute, t.value_number[head >> 32])
            test = next_test(t, test)


@kernel
def _choose(survey: Survey, attribute: int, number: float) -> None:
    """Take a number into the sample: each has the same probability to be kept."""
    if not np.isfinite(number):
        return
    seen = survey.seen[attribute]
    survey.seen[attribute] = seen + 1
    place = seen
    if seen >= survey.constants.shape[1]:
        state = survey.rng[0]
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        survey.rng[0] = state
        place = np.int64((state >> ONE) % np.uint64(seen + 1))
        if place >= survey.constants.shape[1]:
            return
    survey.constants[attribute, place] = number


@kernel
def survey_values(uses: Any, string_of: Any, survey: Survey, first: int, last: int) -> None:
    """List the strings that most tests name; `string_of` has their attributes, counted from 1."""
    most = survey.strings.shape[1]
    for value in range(first, last):
        attribute = string_of[value] - 1
        if attribute < 0 or attribute >= len(survey.seen):
            continue
        survey.total[attribute] += uses[value]
        place = survey.listed[attribute]
        if place < most:
            survey.listed[attribute] += 1
        elif uses[value] <= survey.uses[attribute, most - 1]:
            continue
        else:
            place -= 1
        while place and survey.uses[attribute, place - 1] < uses[value]:
            survey.uses[attribute, place] = survey.uses[attribute, place - 1]
            survey.strings[attribute, place] = survey.strings[attribute, place - 1]
            place -= 1
        survey.uses[attribute, place] = uses[value]
        survey.strings[attribute, place] = value


# ---- Sorting


@kernel
def list_keys(t: Arrays, first: int, last: int, runs: Runs, count: int) -> int:
    """List the rows in tiles with their keys, behind so many others; return how many there are."""
    for row in range(first, last):
        if t.row_slot[row] > 0:
            write_key(t, row)
            runs.rows[count] = row
            runs.keys[count] = t.row_key[row]
            count += 1
    return count


@kernel
def start_merging(runs: Runs, count: int) -> None:
    """Begin with the first row of each of so many runs, none of which is empty."""
    for run in range(count):
        runs.heap[run] = run
    runs.left[0] = count
    runs.left[1] = 0
    for place in range(count // 2 - 1, -1, -1):
        _sift(runs, place)


@kernel
def _sift(runs: Runs, place: int) -> None:
    """Let the run at a place of the heap sink to where it belongs."""
    run = runs.heap[place]
    while 2 * place + 1 < runs.left[0]:
        child = 2 * place + 1
        if child + 1 < runs.left[0] and _before(runs, runs.heap[child + 1], runs.heap[child]):
            child += 1
        if not _before(runs, runs.heap[child], run):
            break
        runs.heap[place] = runs.heap[child]
        place = child
    runs.heap[place] = run


@kernel
def _before(runs: Runs, one: int, other: int) -> bool:
    mine, theirs = runs.keys[runs.at[one]], runs.keys[runs.at[other]]
    return mine < theirs or (mine == theirs and one < other)


@kernel
def _next_row(runs: Runs) -> tuple[int, int]:
    """The next row in order, and its key; -1 if there is none."""
    if not runs.left[0]:
        return -1, 0
    run = runs.heap[0]
    row, key = np.int64(runs.rows[runs.at[run]]), runs.keys[runs.at[run]]
    runs.at[run] += 1
    if runs.at[run] == runs.end[run]:
        runs.left[0] -= 1
        runs.heap[0] = runs.heap[runs.left[0]]
    if runs.left[0]:
        _sift(runs, 0)
    return row, key


# ---- Moving


@kernel
def pack_tiles(old: Arrays, new: Arrays, runs: Runs, tiles: int, rows: int) -> tuple[int, int]:
    """Move rows into so many new tiles, so many each, in order.

    Return how many tiles were made, fewer if no rows are left; and for how many words of records
    there has to be room first, or 0.
    """
    for made in range(tiles):
        while runs.left[1] < rows:
            row, key = _next_row(runs)
            if row < 0:
                break
            if old.row_slot[row] > 0 and new.row_key[row] == key:  # Still there, and the same.
                runs.waiting[runs.left[1]] = row
                runs.left[1] += 1
        moved = runs.waiting[: runs.left[1]]
        if not len(moved):
            return made, 0
        words = 0
        for row in moved:
            words += record_length(old, row)
        if new.counts[RECORD_WORDS] + words > len(new.records):
            return made, words
        for row in moved:
            move_row(old, new, row)
        append_tile(new, moved)
        runs.left[1] = 0
    return tiles, 0


@kernel
def move_row(old: Arrays, new: Arrays, row: int) -> None:
    """Take a row out of its tile, and its record along."""
    move_record(old, new, row, record_length(old, row))
    if old.row_slot[row] != LOOSE:
        remove_from_tile(old, row)
    old.row_slot[row] = 0


@kernel
def move_filed(old: Arrays, new: Arrays, first: int, last: int, most: int) -> tuple[int, int, int]:
    """Move rows filed under values, from the first to before the last, so many rows at most.

    Return the value to go on with, how many rows were moved, and for how many words of records
    there has to be room first, or 0. There must be room for all their nodes.
    """
    moved = 0
    for value in range(first, last):
        while old.first_node[value]:
            if moved == most:
                return value, moved, 0
            record = np.int64(old.node_record[old.first_node[value]])
            row = old.records[record] >> 32
            length = record_length(old, row)
            if new.counts[RECORD_WORDS] + length > len(new.records):
                return value, moved, length
            named = FILED - np.int64(old.row_slot[row])
            start, end = values_filed_under(old, record, named)
            unfile_row(old, row)
            move_record(old, new, row, length)
            if start == end:
                file(new, row, named)
            for i in range(start, end):
                file(new, row, old.records[i])
            old.row_slot[row] = 0
            moved += 1
    return last, moved, 0
