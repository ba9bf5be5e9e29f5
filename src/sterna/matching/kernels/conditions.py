"""What tests accept: as a mask of cells, and exactly, for the values of an event."""

from typing import Any

import numpy as np

from sterna.matching.kernels.compiling import kernel
from sterna.matching.kernels.layout import (
    CELLS,
    IN,
    KINDS,
    MASK_WORDS,
    NONE,
    NOT_IN,
    NUMBER,
    NUMBER_CELLS,
    NUMBERS,
    ONE,
    OTHER_STRING,
    POINT,
    POINTS,
    RANGE,
    SET,
    SHARED_FROM,
    STRING,
    Arrays,
)


@kernel
def number_cell(t: Any, attribute: int, number: float) -> int:
    """The number cell in which a number lies."""
    low = 0
    high = t.attribute[attribute, NUMBER_CELLS] - 1
    while low < high:
        middle = (low + high) >> 1
        if t.bounds[attribute, middle] <= number:
            low = middle + 1
        else:
            high = middle
    return NUMBERS + low


@kernel
def string_cell(t: Any, attribute: int, value: int) -> int:
    """The cell of a known string: its own, or one of those that strings share by their numbers."""
    cell = np.int64(t.value_cell[value])
    if cell:
        return cell
    shared = np.int64(t.attribute[attribute, SHARED_FROM])
    return shared + (value & (t.attribute[attribute, CELLS] - shared - 1))  # A power of two.


@kernel
def _cell_of_value(t: Arrays, attribute: int, value: int) -> int:
    """The cell of a value that a test names."""
    number = t.value_number[value]
    return (
        string_cell(t, attribute, value) if np.isnan(number) else number_cell(t, attribute, number)
    )


@kernel
def _add(mask: Any, first: int, last: int) -> None:
    """Add the cells from first to last to a mask."""
    for cell in range(first, last + 1):
        mask[cell >> 6] |= ONE << np.uint64(cell & 63)


@kernel
def _add_kinds(t: Arrays, attribute: int, kinds: int, mask: Any) -> None:
    """Add all cells of these kinds."""
    mask[0] |= np.uint64(kinds & 15)
    strings_from = NUMBERS + t.attribute[attribute, NUMBER_CELLS]
    if kinds >> NUMBER & 1:
        _add(mask, NUMBERS, strings_from - 1)
    if kinds >> STRING & 1:
        _add(mask, OTHER_STRING, OTHER_STRING)
        _add(mask, strings_from, t.attribute[attribute, CELLS] - 1)


@kernel
def accept(t: Arrays, test: int, mask: Any) -> None:
    """Write which cells hold values that a test may accept."""
    head = t.records[test]
    form = head & 255
    attribute = head >> 8 & 0xFFFFFF
    size = head >> 32
    for i in range(MASK_WORDS):
        mask[i] = NONE
    if form == RANGE:
        first = number_cell(t, attribute, t.numbers[test + 1])
        _add(mask, first, number_cell(t, attribute, t.numbers[test + 2]))
    elif form == POINT:
        cell = _cell_of_value(t, attribute, size)
        _add(mask, cell, cell)
    elif form == POINTS:
        for i in range(test + 1, test + 1 + size):
            cell = _cell_of_value(t, attribute, t.records[i])
            _add(mask, cell, cell)
    elif form == KINDS:
        _add_kinds(t, attribute, size, mask)
    else:
        _accept_set(t, test, attribute, mask)


@kernel
def _accept_set(t: Arrays, test: int, attribute: int, mask: Any) -> None:
    _add_kinds(t, attribute, t.records[test + 1], mask)
    strings = test + 4 + 4 * t.records[test + 2]
    for i in range(test + 4, strings, 4):
        first = number_cell(t, attribute, t.numbers[i])
        _add(mask, first, number_cell(t, attribute, t.numbers[i + 2]))
    end = test + 1 + (t.records[test] >> 32)
    if t.records[test + 3] == IN:
        for i in range(strings, end):
            cell = _cell_of_value(t, attribute, t.records[i])
            _add(mask, cell, cell)
    elif t.records[test + 3] == NOT_IN:
        _add_kinds(t, attribute, 1 << STRING, mask)
        for i in range(strings, end):
            cell = string_cell(t, attribute, t.records[i])
            if cell < t.attribute[attribute, SHARED_FROM]:  # No other string lies in this cell.
                mask[cell >> 6] &= ~(ONE << np.uint64(cell & 63))


@kernel
def next_test(t: Any, test: int) -> int:
    """Where the test after this one begins."""
    head = t.records[test]
    form = head & 255
    if form == RANGE:
        return test + 3
    if form in (POINTS, SET):
        return test + 1 + (head >> 32)
    return test + 1


@kernel
def among(t: Any, value: int, start: int, end: int) -> bool:
    for i in range(start, end):  # noqa: SIM110 - no generators in kernels.
        if t.records[i] == value:
            return True
    return False


@kernel
def holds(t: Any, record: int, kinds: Any, numbers: Any, rests: Any, values: Any) -> bool:
    """Whether all tests of a record hold for an event: the exact answer."""
    test = np.uint64(record) + ONE  # Unsigned, which spares a check for negative indices.
    for _ in range(t.records[record] & 0xFFFF):
        head = t.records[test]
        form = head & 255
        attribute = np.uint64(head >> 8 & 0xFFFFFF)
        size = head >> 32
        if form == POINT:
            if values[attribute] != size:
                return False
            test += ONE
        elif form == RANGE:
            number = numbers[attribute]  # NaN, which lies nowhere, if it is no number.
            high = t.numbers[test + _TWO]
            if not t.numbers[test + ONE] <= number <= high:
                return False
            if number == high and rests[attribute] > 0:
                return False
            test += _THREE
        elif form == POINTS:
            end = test + ONE + np.uint64(size)
            if not among(t, values[attribute], test + ONE, end):
                return False
            test = end
        elif form == KINDS:
            if not size >> kinds[attribute] & 1:
                return False
            test += ONE
        else:
            if not in_set(
                t,
                np.int64(test),
                np.int64(kinds[attribute]),
                numbers[attribute],
                rests[attribute],
                values[attribute],
            ):
                return False
            test += ONE + np.uint64(size)
    return True


_TWO, _THREE = np.uint64(2), np.uint64(3)


@kernel
def in_set(t: Any, test: int, kind: int, number: float, rest: float, value: int) -> bool:
    if t.records[test + 1] >> kind & 1:
        return True
    strings = test + 4 + 4 * t.records[test + 2]
    if kind == NUMBER:
        for i in range(test + 4, strings, 4):
            low, high = t.numbers[i], t.numbers[i + 2]
            if (number > low or (number == low and rest >= t.numbers[i + 1])) and (
                number < high or (number == high and rest <= t.numbers[i + 3])
            ):
                return True
    elif kind == STRING:
        end = test + 1 + (t.records[test] >> 32)
        if t.records[test + 3] == IN:
            return among(t, value, strings, end)
        if t.records[test + 3] == NOT_IN:
            return not among(t, value, strings, end)
    return False
