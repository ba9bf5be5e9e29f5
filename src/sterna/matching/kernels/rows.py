"""Rows: how they are taken out of the index, and how their records are moved."""

from typing import Any

import numpy as np

from sterna.matching.kernels.compiling import kernel
from sterna.matching.kernels.conditions import next_test
from sterna.matching.kernels.filing import unfile_row
from sterna.matching.kernels.layout import FILED, LOOSE, POINT, POINTS, RECORD_WORDS, SET, Arrays
from sterna.matching.kernels.tiles import remove_from_tile


@kernel
def remove(t: Arrays, row: int, unused: Any) -> tuple[int, int]:
    """Take a row out. Return how long its record is, and how many values nobody uses any more.

    Those are listed, with their attributes; for parts of strings the attribute is -1.
    """
    slot = np.int64(t.row_slot[row])
    count = 0
    if slot > 0:
        if slot != LOOSE:
            remove_from_tile(t, row)
    else:
        unfile_row(t, row)
        value = FILED - slot
        if t.value_uses[value] == 0 and t.value_filed[value] == 0:
            unused[count, 0] = -1
            unused[count, 1] = value
            count += 1
    t.row_slot[row] = 0
    record = np.int64(t.row_record[row])
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        head = t.records[test]
        form = head & 255
        end = next_test(t, test)
        start = end
        if form == POINTS:
            start = test + 1
        elif form == SET:
            start = test + 4 + 4 * t.records[test + 2]
        if form == POINT:
            start = end - 1
        for i in range(start, end):
            value = head >> 32 if form == POINT else t.records[i]
            t.value_uses[value] -= 1
            if t.value_uses[value] == 0:
                unused[count, 0] = head >> 8 & 0xFFFFFF
                unused[count, 1] = value
                count += 1
        test = end
    return test - record, count


@kernel
def record_length(t: Arrays, row: int) -> int:
    """How many words the record of a row has."""
    record = np.int64(t.row_record[row])
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        test = next_test(t, test)
    return test - record


@kernel
def move_record(old: Arrays, new: Arrays, row: int, length: int) -> None:
    """Copy a row's record behind those of other tiles, where there must be room."""
    start = np.int64(old.row_record[row])
    end = new.counts[RECORD_WORDS]
    for i in range(length):
        new.records[end + i] = old.records[start + i]
    new.row_record[row] = end
    new.counts[RECORD_WORDS] = end + length
