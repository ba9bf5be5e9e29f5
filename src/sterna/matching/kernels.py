"""The compiled part of the matching index: tiles of bitmaps, and the records behind them.

A *row* is one conjunction of tests, each on one attribute, written down in a *record*. Up to 64
rows with similar tests share a *tile*. An attribute's values are divided into *cells*; for an
attribute that several of its rows test, a tile has a *block*: one word for each group of cells,
with a bit set for each row that no value there can satisfy. An event selects one word per block;
rows that none of them rules out survive, and only those are tested exactly, from their records. The
*summary* says for each cell which tiles it rules out entirely, so that most are never looked at.
docs/concepts/matching.md has the pictures.

All functions work on `Arrays`, which `Table` owns and enlarges; none of them allocates memory. They
stand in one file, with all constants that are compiled into them: numba keeps what it has compiled
until the file of a kernel changes, and would not notice a change in another file.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

TILE_ROWS = 64
"""Rows of a tile: the bits of a word."""

CELLS_MAX = 256
"""Cells that an attribute may have."""

MASK_WORDS = CELLS_MAX // 64
"""Words of a mask, which is a set of cells."""

MISSING, FALSE, TRUE, NAN, NUMBER, STRING = range(6)
"""Kinds of values, in the order of the value line (`sterna.model.filters.values`)."""

OTHER_STRING = 4
"""The cell of all strings that no row names. Cells 0 to 3 are those of the first four kinds."""

NUMBERS = 5
"""The first of an attribute's number cells; its string cells follow them."""

POINT, RANGE, POINTS, KINDS, SET = range(5)
"""Forms of a test; `records.py` says what they consist of."""

IN, NOT_IN = 1, 2
"""What a SET says of the strings it lists."""

FLAGS = 16
"""Where the flags are in the first word of a record."""

TILES, FREE_TILES, WORDS, ORDERED, NODES, FREE_NODE = range(6)
"""Entries of `Arrays.counts`: tiles made so far, those of them that are free, words of chunks in
use so far, tiles in order, nodes made so far, and the first free node + 1."""

FILED = -2
"""A row's slot if it is filed under value 0; under the next one it is one less, and so on."""

CHUNK_STEP = 32
"""Chunks of words are multiples of this."""

BLOCK_ROWS_SHARE = 16
"""A tile gets a block for an attribute that one in so many of its rows tests; the tests of others
are left to their records."""

BLOCKS_MAX = 64
"""Blocks that a tile may have."""

LIST_PENALTY = 4.0
"""How much better than its share of the events suggests another test has to be than one of several
values: rows with different lists, together in a tile, accept nearly anything."""

TILES_AHEAD, BLOCKS_AHEAD, RECORDS_AHEAD = 8, 3, 12
"""How early memory is asked for that will be needed."""


class Arrays(NamedTuple):
    """Every array of the table, as the kernels see them."""

    counts: Any
    # For each attribute:
    cells: Any  # how many cells it has,
    number_cells: Any  # how many of them are for numbers,
    shared_from: Any  # from which cell on several strings share one,
    bounds: Any  # where its number cells begin, all but the first,
    cell_share: Any  # which share of the events is thought to lie in each cell,
    groups: Any  # how many groups its cells form,
    group_of: Any  # and the group of each cell;
    summary_row: Any  # where its cells are in the summary,
    summary_uses: Any  # and for how many tiles it is there; and
    tested: Any  # room to count its tests.
    # For each known value:
    value_cell: Any  # its cell if it is a string, else -1,
    value_number: Any  # the number it is,
    value_uses: Any  # how many tests name it,
    value_filed: Any  # how many rows are filed under it,
    first_node: Any  # and the first of those, else -1.
    # For each node, which files a row under a value:
    node_record: Any
    node_next: Any
    # For each row:
    row_record: Any  # where its record begins,
    row_slot: Any  # where it is: tile * 64 + place, or what FILED says,
    row_key: Any  # and its place in the order of rows: close ones share tiles.
    # Records, and the same memory as numbers.
    records: Any
    numbers: Any
    # For each tile:
    tile_alive: Any  # which of its bits are rows,
    tile_record: Any  # their records,
    tile_chunk: Any  # where its chunk of words begins,
    tile_length: Any  # how long that is,
    tile_blocks: Any  # and how many blocks are in it.
    free_tiles: Any
    order_key: Any  # The tiles in order, each with the least key that belongs there.
    order_tile: Any
    # Chunks: for each block a word that says what it is; then the blocks.
    words: Any
    free_chunks: Any  # By length / CHUNK_STEP, the first free chunk, or -1.
    summary: Any
    # Room to work in: a mask of cells, the rows of a tile, the blocks that it wants.
    mask: Any
    work: Any
    wanted: Any
    keys: Any  # Where the rows' keys are in memory.


class Reading(NamedTuple):
    """The arrays that matching reads; fewer, so that a call costs less."""

    counts: Any
    number_cells: Any
    bounds: Any
    group_of: Any
    summary_row: Any
    summary_uses: Any
    value_cell: Any
    first_node: Any
    node_record: Any
    node_next: Any
    records: Any
    numbers: Any
    tile_alive: Any
    tile_record: Any
    tile_chunk: Any
    tile_blocks: Any
    words: Any
    summary: Any
    keys: Any


class Events(NamedTuple):
    """Events: one for each row of the arrays, with a column for each attribute."""

    numbers: Any  # The largest float up to a number, NaN if it is none,
    rests: Any  # and what is missing to the number: nothing, but for large integers.
    values: Any  # The known value that it is, else -1.
    kinds: Any
    tokens: Any  # Other things under which rows are filed, of all events,
    token_ends: Any  # and where those of each event end.
    cells: Any  # Room for the cells
    groups: Any  # and the groups of the values.


class Room(NamedTuple):
    """Room to work in, for one thread."""

    excluded: Any
    tiles: Any
    records: Any
    found: Any


Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile, and keep the result on disk if there is a place for it.

    Without `_nrt` numba does not count references to arrays, which would cost more than the work
    itself here. The price is that kernels cannot create arrays.
    """
    compiled: Function
    try:
        compiled = njit(cache=True, nogil=True, _nrt=False)(function)
    except RuntimeError:  # Neither beside the source nor at home can files be written.
        compiled = njit(nogil=True, _nrt=False)(function)
    return compiled


_ONE = np.uint64(1)
_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW = np.uint64(63)


@intrinsic
def lowest_bit(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """The place of the lowest bit that is set; there must be one."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Begin to load an entry of an array that will be needed soon."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        _prefetch(builder, place)
        return context.get_dummy_value()

    return types.void(array, index), code


@intrinsic
def prefetch_object(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    """Begin to load what is at an address."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        _prefetch(builder, place)
        return context.get_dummy_value()

    return types.void(types.int64), code


def _prefetch(builder: Any, place: Any) -> None:
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
    name = f"llvm.prefetch.p0{'' if place.type.is_opaque else 'i64'}"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [place, number(0), number(3), number(1)])


# ---- Values and cells


@kernel
def number_cell(t: Any, attribute: int, number: float) -> int:
    """The number cell in which a number lies."""
    low = 0
    high = t.number_cells[attribute] - 1
    while low < high:
        middle = (low + high) >> 1
        if t.bounds[attribute, middle] <= number:
            low = middle + 1
        else:
            high = middle
    return NUMBERS + low


@kernel
def _cell_of_value(t: Arrays, attribute: int, value: int) -> int:
    """The cell of a value that a test names."""
    cell = np.int64(t.value_cell[value])
    return cell if cell >= 0 else number_cell(t, attribute, t.value_number[value])


@kernel
def _add(mask: Any, first: int, last: int) -> None:
    """Add the cells from first to last to a mask."""
    for cell in range(first, last + 1):
        mask[cell >> 6] |= _ONE << np.uint64(cell & 63)


@kernel
def _add_kinds(t: Arrays, attribute: int, kinds: int, mask: Any) -> None:
    """Add all cells of these kinds."""
    mask[0] |= np.uint64(kinds & 15)
    strings_from = NUMBERS + t.number_cells[attribute]
    if kinds >> NUMBER & 1:
        _add(mask, NUMBERS, strings_from - 1)
    if kinds >> STRING & 1:
        _add(mask, OTHER_STRING, OTHER_STRING)
        _add(mask, strings_from, t.cells[attribute] - 1)


@kernel
def _accept(t: Arrays, test: int, mask: Any) -> None:
    """Write which cells hold values that a test may accept."""
    head = t.records[test]
    form = head & 255
    attribute = head >> 8 & 0xFFFFFF
    size = head >> 32
    for i in range(MASK_WORDS):
        mask[i] = _NONE
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
            cell = np.int64(t.value_cell[t.records[i]])
            if cell < t.shared_from[attribute]:  # No other string lies in this cell.
                mask[cell >> 6] &= ~(_ONE << np.uint64(cell & 63))


@kernel
def _next(t: Any, test: int) -> int:
    """Where the test after this one begins."""
    head = t.records[test]
    form = head & 255
    if form == RANGE:
        return test + 3
    if form in (POINTS, SET):
        return test + 1 + (head >> 32)
    return test + 1


@kernel
def _among(t: Any, value: int, start: int, end: int) -> bool:
    for i in range(start, end):  # noqa: SIM110 - no generators in kernels.
        if t.records[i] == value:
            return True
    return False


@kernel
def holds(t: Any, record: int, kinds: Any, numbers: Any, rests: Any, values: Any) -> bool:
    """Whether all tests of a record hold for an event: the exact answer."""
    test = np.uint64(record) + _ONE  # Unsigned, which spares a check for negative indices.
    for _ in range(t.records[record] & 0xFFFF):
        head = t.records[test]
        form = head & 255
        attribute = np.uint64(head >> 8 & 0xFFFFFF)
        size = head >> 32
        if form == POINT:
            if values[attribute] != size:
                return False
            test += _ONE
        elif form == RANGE:
            number = numbers[attribute]  # NaN, which lies nowhere, if it is no number.
            high = t.numbers[test + _TWO]
            if not t.numbers[test + _ONE] <= number <= high:
                return False
            if number == high and rests[attribute] > 0:
                return False
            test += _THREE
        elif form == POINTS:
            end = test + _ONE + np.uint64(size)
            if not _among(t, values[attribute], test + _ONE, end):
                return False
            test = end
        elif form == KINDS:
            if not size >> kinds[attribute] & 1:
                return False
            test += _ONE
        else:
            if not _in_set(
                t,
                np.int64(test),
                np.int64(kinds[attribute]),
                numbers[attribute],
                rests[attribute],
                values[attribute],
            ):
                return False
            test += _ONE + np.uint64(size)
    return True


_TWO, _THREE = np.uint64(2), np.uint64(3)


@kernel
def _in_set(t: Any, test: int, kind: int, number: float, rest: float, value: int) -> bool:
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
            return _among(t, value, strings, end)
        if t.records[test + 3] == NOT_IN:
            return not _among(t, value, strings, end)
    return False


# ---- The order of rows


@kernel
def write_key(t: Arrays, row: int) -> None:
    """Find a row's place in the order: its two most selective tests, and what they accept."""
    best = second = np.inf
    key = other = _KEY_LAST
    record = t.row_record[row]
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        head = t.records[test]
        attribute = head >> 8 & 0xFFFFFF
        _accept(t, test, t.mask)
        share, first, last = _extent(t, attribute, t.mask)
        if head & 255 == POINTS:
            share *= LIST_PENALTY
        place = (attribute & 0x3FFF) << 16 | first << 8 | last
        if share < best:
            best, second = share, best
            key, other = place, key
        elif share < second:
            second, other = share, place
        test = _next(t, test)
    t.row_key[row] = key << 30 | other


_KEY_LAST = 0x3FFFFFFF


@kernel
def write_keys(t: Arrays, rows: Any) -> None:
    """Find the places of many rows."""
    for row in rows:
        write_key(t, row)


@kernel
def _extent(t: Arrays, attribute: int, mask: Any) -> tuple[float, int, int]:
    """About which share of the events lies in the cells of a mask, and the first and last cell."""
    share = 0.0
    first = CELLS_MAX - 1
    last = 0
    for i in range(MASK_WORDS):
        left = mask[i]
        while left:
            cell = i * 64 + np.int64(lowest_bit(left))
            left &= left - _ONE
            share += t.cell_share[attribute, cell]
            first = min(first, cell)
            last = cell
    return share, first, last


@kernel
def _position(t: Arrays, key: int) -> int:
    """The position, among the tiles in order, of the one where a key belongs."""
    low = 0
    high = t.counts[ORDERED]
    while low < high:
        middle = (low + high) >> 1
        if t.order_key[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


@kernel
def _put_in_order(t: Arrays, position: int, tile: int, key: int) -> None:
    for i in range(t.counts[ORDERED], position, -1):
        t.order_key[i] = t.order_key[i - 1]
        t.order_tile[i] = t.order_tile[i - 1]
    t.order_key[position] = key
    t.order_tile[position] = tile
    t.counts[ORDERED] += 1


# ---- Tiles
#
# A chunk begins with one word for each block: the attribute in its upper half, then where in the
# chunk the block is. The top bit says that all rows of the tile test the attribute, and so the
# summary knows the tile by it.

_FULL = np.uint64(1 << 63)
_HALF = np.uint64(32)
_START = np.uint64(0xFFFFFFFF)
_ATTRIBUTE = np.uint64(0xFFFFFF)


@kernel
def _take_chunk(t: Arrays, length: int) -> int:
    size = length // CHUNK_STEP
    start = t.free_chunks[size]
    if start >= 0:
        t.free_chunks[size] = np.int64(t.words[start]) - 1
    else:
        start = t.counts[WORDS]
        t.counts[WORDS] += length
    for i in range(start, start + length):
        t.words[i] = _NONE
    return start


@kernel
def _clear_tile(t: Arrays, tile: int) -> None:
    """Empty a tile and give its chunk back."""
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        if block & _FULL:
            _leave_summary(t, tile, np.int64(block >> _HALF & _ATTRIBUTE))
    if t.tile_length[tile]:
        size = t.tile_length[tile] // CHUNK_STEP
        t.words[chunk] = np.uint64(t.free_chunks[size] + 1)
        t.free_chunks[size] = chunk
    t.tile_length[tile] = 0
    t.tile_blocks[tile] = 0
    t.tile_alive[tile] = _NONE


@kernel
def _leave_summary(t: Arrays, tile: int, attribute: int) -> None:
    keep = ~(_ONE << np.uint64(tile & 63))
    first = t.summary_row[attribute]
    for row in range(first, first + t.cells[attribute]):
        t.summary[row, tile >> 6] &= keep
    t.summary_uses[attribute] -= 1


@kernel
def _new_tile(t: Arrays) -> int:
    if t.counts[FREE_TILES]:
        t.counts[FREE_TILES] -= 1
        return np.int64(t.free_tiles[t.counts[FREE_TILES]])
    t.counts[TILES] += 1
    return t.counts[TILES] - 1


@kernel
def _fill(t: Arrays, tile: int, rows: Any) -> None:
    """Write rows into an empty tile."""
    _make_blocks(t, tile, rows)
    for i in range(len(rows)):
        _set_bits(t, tile, rows[i], i)
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        if block & _FULL:
            attribute = np.int64(block >> _HALF & _ATTRIBUTE)
            first = t.summary_row[attribute]
            here = _ONE << np.uint64(tile & 63)
            for row in range(first, first + t.cells[attribute]):
                t.summary[row, tile >> 6] |= here
            t.summary_uses[attribute] += 1
            for row in rows:
                _loosen(t, tile, row, attribute)


@kernel
def _make_blocks(t: Arrays, tile: int, rows: Any) -> None:
    """Give a tile the blocks that its rows need."""
    _count_tests(t, rows)
    least = max(2, len(rows) // BLOCK_ROWS_SHARE)
    blocks = 0
    length = 0
    for row in rows:
        record = t.row_record[row]
        test = record + 1
        for _ in range(t.records[record] & 0xFFFF):
            attribute = t.records[test] >> 8 & 0xFFFFFF
            if t.tested[attribute] >= least and blocks < BLOCKS_MAX:
                _list_block(t, blocks, attribute, len(rows))
                blocks += 1
                length += 1 + t.groups[attribute]
            t.tested[attribute] = 0
            test = _next(t, test)
    length = (length + CHUNK_STEP - 1) // CHUNK_STEP * CHUNK_STEP
    chunk = _take_chunk(t, length) if length else 0
    t.tile_chunk[tile] = chunk
    t.tile_length[tile] = length
    t.tile_blocks[tile] = blocks
    place = blocks
    for k in range(blocks):
        attribute = t.wanted[k, 0]
        block = np.uint64(attribute) << _HALF | np.uint64(place)
        if t.wanted[k, 1] == len(rows):
            block |= _FULL
        t.words[chunk + k] = block
        place += t.groups[attribute]


@kernel
def _count_tests(t: Arrays, rows: Any) -> None:
    for row in rows:
        record = t.row_record[row]
        test = record + 1
        for _ in range(t.records[record] & 0xFFFF):
            t.tested[t.records[test] >> 8 & 0xFFFFFF] += 1
            test = _next(t, test)


@kernel
def _list_block(t: Arrays, count: int, attribute: int, rows: int) -> None:
    """Add to the list of wanted blocks: what rules out most first, what the summary has last."""
    tested = t.tested[attribute]
    place = count
    while place and (t.wanted[place - 1, 1] == rows or (t.wanted[place - 1, 1] < tested < rows)):
        t.wanted[place, 0] = t.wanted[place - 1, 0]
        t.wanted[place, 1] = t.wanted[place - 1, 1]
        place -= 1
    t.wanted[place, 0] = attribute
    t.wanted[place, 1] = tested


@kernel
def _set_bits(t: Arrays, tile: int, row: int, slot: int) -> None:
    """Let a row take a place in a tile, ruled out where its tests say so."""
    record = t.row_record[row]
    bit = _ONE << np.uint64(slot)
    chunk = t.tile_chunk[tile]
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        attribute = np.uint64(t.records[test] >> 8 & 0xFFFFFF)
        for k in range(t.tile_blocks[tile]):
            block = t.words[chunk + k]
            if block >> _HALF & _ATTRIBUTE == attribute:
                _rule_out(t, chunk + np.int64(block & _START), test, bit)
                break
        test = _next(t, test)
    t.tile_alive[tile] |= bit
    t.tile_record[tile, slot] = record
    t.row_slot[row] = tile * TILE_ROWS + slot


@kernel
def _rule_out(t: Arrays, start: int, test: int, bit: Any) -> None:
    """Set a row's bit in each word of a block whose cells its test does not accept."""
    attribute = t.records[test] >> 8 & 0xFFFFFF
    _accept(t, test, t.mask)
    accepted = _NONE
    for i in range(MASK_WORDS):
        left = t.mask[i]
        while left:
            cell = i * 64 + np.int64(lowest_bit(left))
            left &= left - _ONE
            accepted |= _ONE << np.uint64(t.group_of[attribute, cell])
    for group in range(t.groups[attribute]):
        if not accepted >> np.uint64(group) & _ONE:
            t.words[start + group] |= bit


@kernel
def insert(t: Arrays, row: int) -> None:
    """Put a row, whose record is written, into the tile where it belongs."""
    write_key(t, row)
    key = t.row_key[row]
    if t.counts[ORDERED] == 0:
        _put_in_order(t, 0, _new_tile(t), 0)
    position = _position(t, key)
    if t.tile_alive[t.order_tile[position]] == _ALL:
        _split(t, position)
        position = _position(t, key)
    tile = np.int64(t.order_tile[position])
    _set_bits(t, tile, row, np.int64(lowest_bit(~t.tile_alive[tile])))
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        if block & _FULL:
            attribute = np.int64(block >> _HALF & _ATTRIBUTE)
            if not _loosen(t, tile, row, attribute):
                t.words[chunk + k] &= ~_FULL
                _leave_summary(t, tile, attribute)


@kernel
def _loosen(t: Arrays, tile: int, row: int, attribute: int) -> bool:
    """Let the summary no longer rule a tile out where a row accepts; False if it has no test."""
    record = t.row_record[row]
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        if t.records[test] >> 8 & 0xFFFFFF == attribute:
            _accept(t, test, t.mask)
            keep = ~(_ONE << np.uint64(tile & 63))
            for i in range(MASK_WORDS):
                left = t.mask[i]
                while left:
                    cell = i * 64 + np.int64(lowest_bit(left))
                    left &= left - _ONE
                    t.summary[t.summary_row[attribute] + cell, tile >> 6] &= keep
            return True
        test = _next(t, test)
    return False


@kernel
def _split(t: Arrays, position: int) -> None:
    """Share a full tile's rows between it and a new one behind it."""
    tile = np.int64(t.order_tile[position])
    rows = t.work
    for i in range(TILE_ROWS):  # Sorted by key as they come.
        row = t.records[t.tile_record[tile, i]] >> 32
        place = i
        while place and t.row_key[rows[place - 1]] > t.row_key[row]:
            rows[place] = rows[place - 1]
            place -= 1
        rows[place] = row
    _clear_tile(t, tile)
    half = TILE_ROWS // 2
    other = _new_tile(t)
    _fill(t, tile, rows[:half])
    _fill(t, other, rows[half:])
    _put_in_order(t, position + 1, other, t.row_key[rows[half]])


@kernel
def _remove_from_tile(t: Arrays, row: int) -> None:
    slot = np.int64(t.row_slot[row])
    tile = slot // TILE_ROWS
    keep = ~(_ONE << np.uint64(slot % TILE_ROWS))
    chunk = t.tile_chunk[tile]
    for k in range(t.tile_blocks[tile]):
        block = t.words[chunk + k]
        start = chunk + np.int64(block & _START)
        for word in range(start, start + t.groups[np.int64(block >> _HALF & _ATTRIBUTE)]):
            t.words[word] &= keep
    t.tile_alive[tile] &= keep
    if not t.tile_alive[tile]:
        _drop_tile(t, tile, t.row_key[row])


@kernel
def _drop_tile(t: Arrays, tile: int, key: int) -> None:
    _clear_tile(t, tile)
    position = _position(t, key)
    while t.order_tile[position] != tile:  # Equal keys may begin several tiles.
        position -= 1
    t.counts[ORDERED] -= 1
    for i in range(position, t.counts[ORDERED]):
        t.order_key[i] = t.order_key[i + 1]
        t.order_tile[i] = t.order_tile[i + 1]
    t.free_tiles[t.counts[FREE_TILES]] = tile
    t.counts[FREE_TILES] += 1


@kernel
def append_tile(t: Arrays, rows: Any) -> None:
    """Write rows, sorted by key, into a new tile behind all others."""
    tile = _new_tile(t)
    _fill(t, tile, rows)
    _put_in_order(t, t.counts[ORDERED], tile, t.row_key[rows[0]])


# ---- Rows under values


@kernel
def file(t: Arrays, row: int, value: int) -> None:
    """File a row under a value."""
    node = t.counts[FREE_NODE] - 1
    if node >= 0:
        t.counts[FREE_NODE] = t.node_next[node]
    else:
        node = t.counts[NODES]
        t.counts[NODES] += 1
    t.node_record[node] = t.row_record[row]
    t.node_next[node] = t.first_node[value]
    t.first_node[value] = node
    t.value_filed[value] += 1
    t.row_slot[row] = FILED - value


@kernel
def _unfile(t: Arrays, record: int, value: int) -> None:
    before = -1
    node = np.int64(t.first_node[value])
    while t.node_record[node] != record:
        before = node
        node = np.int64(t.node_next[node])
    if before < 0:
        t.first_node[value] = t.node_next[node]
    else:
        t.node_next[before] = t.node_next[node]
    t.node_record[node] = -1
    t.node_next[node] = t.counts[FREE_NODE]
    t.counts[FREE_NODE] = node + 1
    t.value_filed[value] -= 1


@kernel
def _unfile_row(t: Arrays, row: int) -> None:
    """Take a row from under the values of one test, or from under a part of a string."""
    record = np.int64(t.row_record[row])
    value = FILED - np.int64(t.row_slot[row])
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        end = _next(t, test)
        if t.records[test] & 255 == POINTS and _among(t, value, test + 1, end):
            for i in range(test + 1, end):
                _unfile(t, record, t.records[i])
            return
        test = end
    _unfile(t, record, value)


# ---- Rows


@kernel
def remove(t: Arrays, row: int, unused: Any) -> tuple[int, int]:
    """Take a row out. Return how long its record is, and how many values nobody uses any more.

    Those are listed, with their attributes; for parts of strings the attribute is -1.
    """
    slot = np.int64(t.row_slot[row])
    count = 0
    if slot >= 0:
        _remove_from_tile(t, row)
    else:
        _unfile_row(t, row)
        value = FILED - slot
        if t.value_uses[value] == 0 and t.value_filed[value] == 0:
            unused[count, 0] = -1
            unused[count, 1] = value
            count += 1
    t.row_slot[row] = -1
    record = np.int64(t.row_record[row])
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        head = t.records[test]
        form = head & 255
        end = _next(t, test)
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
        test = _next(t, test)
    return test - record


@kernel
def total_length(t: Arrays, rows: Any) -> int:
    """How many words the records of rows have."""
    total = 0
    for row in rows:
        total += record_length(t, row)
    return total


@kernel
def move_records(t: Arrays, rows: Any, records: Any) -> None:
    """Copy the records of rows, one behind the other."""
    for node in range(t.counts[NODES]):  # Nodes keep rows while their records move.
        if t.node_record[node] >= 0:
            t.node_record[node] = t.records[t.node_record[node]] >> 32
    end = 0
    for row in rows:
        start = np.int64(t.row_record[row])
        length = record_length(t, row)
        for i in range(length):
            records[end + i] = t.records[start + i]
        t.row_record[row] = end
        end += length
    for node in range(t.counts[NODES]):
        if t.node_record[node] >= 0:
            t.node_record[node] = t.row_record[t.node_record[node]]


# ---- What rows compare with


@kernel
def count_constants(t: Arrays, rows: Any) -> int:
    """How many numbers `list_constants` will write."""
    count = 0
    for row in rows:
        record = t.row_record[row]
        test = record + 1
        for _ in range(t.records[record] & 0xFFFF):
            form = t.records[test] & 255
            count += 2 if form == RANGE else form == POINT
            test = _next(t, test)
    return count


@kernel
def list_constants(t: Arrays, rows: Any, attributes: Any, constants: Any) -> None:
    """Write the numbers with which rows compare attributes."""
    at = 0
    for row in rows:
        record = t.row_record[row]
        test = record + 1
        for _ in range(t.records[record] & 0xFFFF):
            head = t.records[test]
            if head & 255 == RANGE:
                for i in range(2):
                    attributes[at] = head >> 8 & 0xFFFFFF
                    constants[at] = t.numbers[test + 1 + i]
                    at += 1
            elif head & 255 == POINT:
                attributes[at] = head >> 8 & 0xFFFFFF
                constants[at] = t.value_number[head >> 32]
                at += 1
            test = _next(t, test)


# ---- Matching


@kernel
def match_one(t: Reading, e: Events, room: Room) -> tuple[int, int]:
    """Find the rows that match the one event; return how many, and all their flags together."""
    count = 0
    flags = 0
    kinds, numbers, rests, values = e.kinds[0], e.numbers[0], e.rests[0], e.values[0]
    for i in range(e.values.shape[1] + len(e.tokens)):
        node = _first_node(t, e, 0, i)
        while node >= 0:
            record = np.int64(t.node_record[node])
            if holds(t, record, kinds, numbers, rests, values):
                room.found[count] = t.records[record] >> 32
                count += 1
                flags |= t.records[record]
            node = t.node_next[node]
    survived = 0
    if t.counts[ORDERED]:
        _find_cells(t, e, 0)
        listed = _list_tiles(t, e, 0, room.excluded, room.tiles)
        groups = e.groups[0]
        for i in range(listed):
            if i + TILES_AHEAD < listed:
                ahead = t.tile_chunk[room.tiles[i + TILES_AHEAD]]
                prefetch(t.words, ahead)
                prefetch(t.words, ahead + 8)
            if i + BLOCKS_AHEAD < listed:
                _prefetch_blocks(t, room.tiles[i + BLOCKS_AHEAD], groups)
            tile = room.tiles[i]
            alive = _survivors(t, tile, groups)
            while alive:
                room.records[survived] = t.tile_record[tile, lowest_bit(alive)]
                alive &= alive - _ONE
                survived += 1
    for i in range(survived):
        if i + RECORDS_AHEAD < survived:
            ahead = np.int64(room.records[i + RECORDS_AHEAD])
            prefetch(t.records, ahead)
            prefetch(t.records, ahead + 8)
        record = np.int64(room.records[i])
        if holds(t, record, kinds, numbers, rests, values):
            row = t.records[record] >> 32
            prefetch(t.keys, row)
            room.found[count] = row
            count += 1
            flags |= t.records[record]
    for i in range(count):
        prefetch_object(t.keys[room.found[i]])
    return count, flags >> FLAGS & 3


@kernel
def _first_node(t: Reading, e: Events, event: int, i: int) -> int:
    """The first row filed under the i-th of the event's values and tokens, or -1."""
    attributes = e.values.shape[1]
    value = np.int64(e.values[event, i] if i < attributes else e.tokens[i - attributes])
    return np.int64(t.first_node[value]) if value >= 0 else -1


@kernel
def _find_cells(t: Reading, e: Events, event: int) -> None:
    for attribute in range(e.values.shape[1]):
        kind = np.int64(e.kinds[event, attribute])
        cell = kind
        if kind == NUMBER:
            cell = number_cell(t, attribute, e.numbers[event, attribute])
        elif kind == STRING:
            value = e.values[event, attribute]
            cell = np.int64(t.value_cell[value]) if value >= 0 else OTHER_STRING
        e.cells[event, attribute] = cell
        e.groups[event, attribute] = t.group_of[attribute, cell]


@kernel
def _list_tiles(t: Reading, e: Events, event: int, excluded: Any, tiles: Any) -> int:
    """List the tiles that the event's cells do not rule out entirely."""
    made = t.counts[TILES]
    words = (made + 63) >> 6
    for i in range(words):
        excluded[i] = _NONE
    for attribute in range(e.values.shape[1]):
        if t.summary_uses[attribute]:
            row = t.summary_row[attribute] + e.cells[event, attribute]
            for i in range(words):
                excluded[i] |= t.summary[row, i]
    count = 0
    for i in range(words):
        left = ~excluded[i]
        if i == made >> 6:
            left &= (_ONE << np.uint64(made & 63)) - _ONE
        while left:
            tiles[count] = i * 64 + np.int64(lowest_bit(left))
            left &= left - _ONE
            count += 1
    return count


@kernel
def _prefetch_blocks(t: Reading, tile: int, groups: Any) -> None:
    chunk = np.uint64(t.tile_chunk[tile])
    for k in range(np.uint64(t.tile_blocks[tile])):
        block = t.words[chunk + k]
        group = np.uint64(groups[block >> _HALF & _ATTRIBUTE])
        prefetch(t.words, np.int64(chunk + (block & _START) + group))


@kernel
def _survivors(t: Reading, tile: int, groups: Any) -> Any:
    """The rows of a tile that no block rules out for an event with these groups."""
    alive = t.tile_alive[tile]
    chunk = np.uint64(t.tile_chunk[tile])
    for k in range(np.uint64(t.tile_blocks[tile])):
        block = t.words[chunk + k]
        group = np.uint64(groups[block >> _HALF & _ATTRIBUTE])
        alive &= ~t.words[chunk + (block & _START) + group]
        if not alive:
            break
    return alive


@kernel
def match_filed(t: Reading, e: Events, first: int, hits: Any) -> tuple[int, int, int]:
    """Find the rows filed under values of events, from the first on, while there is room.

    A hit is an event and a row. Return the event to go on with, how many hits there are, and the
    flags of all their rows together.
    """
    attributes = e.values.shape[1]
    count = 0
    flags = 0
    for event in range(first, len(e.values)):
        before = count
        kinds, numbers = e.kinds[event], e.numbers[event]
        rests, values = e.rests[event], e.values[event]
        start = np.int64(e.token_ends[event - 1]) if event else 0
        for i in range(attributes + np.int64(e.token_ends[event]) - start):
            node = _first_node(t, e, event, i if i < attributes else i + start)
            while node >= 0:
                record = np.int64(t.node_record[node])
                if holds(t, record, kinds, numbers, rests, values):
                    if count == len(hits):
                        return event, before, flags >> FLAGS & 3
                    hits[count, 0] = event
                    hits[count, 1] = t.records[record] >> 32
                    count += 1
                    flags |= t.records[record]
                node = t.node_next[node]
    return len(e.values), count, flags >> FLAGS & 3


@kernel
def plan_visits(
    t: Reading, e: Events, first: int, most: int, room: Room, ends: Any, visits: Any
) -> int:
    """Find for each tile which events, from the first on, it has to be asked for.

    `ends` tells for each tile where its events end in the last column of `visits`. Return the event
    to go on with: no more than `most` are planned, nor more than there is surely room for.
    """
    made = t.counts[TILES]
    for tile in range(made + 1):
        ends[tile] = 0
    count = 0
    event = first
    last = min(len(e.values), first + most)
    while event < last and (event == first or count + made <= len(visits)):
        _find_cells(t, e, event)
        listed = _list_tiles(t, e, event, room.excluded, room.tiles)
        for i in range(listed):
            tile = room.tiles[i]
            ends[tile + 1] += 1
            visits[count, 0] = tile
            visits[count, 1] = event
            count += 1
        event += 1
    for tile in range(made):
        ends[tile + 1] += ends[tile]
    for i in range(count):
        tile = visits[i, 0]
        visits[ends[tile], 2] = visits[i, 1]
        ends[tile] += 1
    return event


@kernel
def match_tiles(
    t: Reading, e: Events, first: int, ends: Any, visits: Any, hits: Any
) -> tuple[int, int, int]:
    """Find the rows of tiles, from the first on, that match events, while there is room.

    Return the tile to go on with, how many hits there are, and the flags of all their rows.
    """
    count = 0
    flags = 0
    for tile in range(first, t.counts[TILES]):
        start = ends[tile - 1] if tile else 0
        if count + (ends[tile] - start) * TILE_ROWS > len(hits):
            return tile, count, flags >> FLAGS & 3
        survived = count
        for i in range(start, ends[tile]):
            event = visits[i, 2]
            alive = _survivors(t, tile, e.groups[np.int64(event)])
            while alive:
                record = np.int64(t.tile_record[tile, lowest_bit(alive)])
                prefetch(t.records, record)
                prefetch(t.records, record + 8)
                alive &= alive - _ONE
                hits[survived, 0] = event
                hits[survived, 1] = record
                survived += 1
        for i in range(count, survived):
            event = np.int64(hits[i, 0])
            record = np.int64(hits[i, 1])
            kinds, numbers = e.kinds[event], e.numbers[event]
            if holds(t, record, kinds, numbers, e.rests[event], e.values[event]):
                hits[count, 0] = event
                hits[count, 1] = t.records[record] >> 32
                count += 1
                flags |= t.records[record]
    return t.counts[TILES], count, flags >> FLAGS & 3


@kernel
def sort_hits(hits: Any, ends: Any, positions: Any, rows: Any) -> None:
    """Sort hits by event; those of an event stay in their order. `ends` is room to count."""
    for i in range(len(ends)):
        ends[i] = 0
    for i in range(len(hits)):
        ends[hits[i, 0] + 1] += 1
    for i in range(1, len(ends)):
        ends[i] += ends[i - 1]
    for i in range(len(hits)):
        event = hits[i, 0]
        positions[ends[event]] = event
        rows[ends[event]] = hits[i, 1]
        ends[event] += 1


@kernel
def prefetch_keys(keys: Any, rows: Any) -> None:
    """Begin to load the keys of rows: as objects of Python they are spread over all memory."""
    for i in range(len(rows)):
        prefetch(keys, np.int64(rows[i]))
    for i in range(len(rows)):
        prefetch_object(keys[rows[i]])


# ---- Entries
#
# To pass arrays one by one costs half of what a tuple of them costs. The two kernels that Python
# calls most get them that way.


@kernel
def match_event(
    t_counts: Any,
    t_number_cells: Any,
    t_bounds: Any,
    t_group_of: Any,
    t_summary_row: Any,
    t_summary_uses: Any,
    t_value_cell: Any,
    t_first_node: Any,
    t_node_record: Any,
    t_node_next: Any,
    t_records: Any,
    t_numbers: Any,
    t_tile_alive: Any,
    t_tile_record: Any,
    t_tile_chunk: Any,
    t_tile_blocks: Any,
    t_words: Any,
    t_summary: Any,
    t_keys: Any,
    e_numbers: Any,
    e_rests: Any,
    e_values: Any,
    e_kinds: Any,
    e_tokens: Any,
    e_token_ends: Any,
    e_cells: Any,
    e_groups: Any,
    r_excluded: Any,
    r_tiles: Any,
    r_records: Any,
    r_found: Any,
) -> tuple[int, int]:
    """`match_one`, as Python calls it."""
    return match_one(
        Reading(
            t_counts,
            t_number_cells,
            t_bounds,
            t_group_of,
            t_summary_row,
            t_summary_uses,
            t_value_cell,
            t_first_node,
            t_node_record,
            t_node_next,
            t_records,
            t_numbers,
            t_tile_alive,
            t_tile_record,
            t_tile_chunk,
            t_tile_blocks,
            t_words,
            t_summary,
            t_keys,
        ),
        Events(e_numbers, e_rests, e_values, e_kinds, e_tokens, e_token_ends, e_cells, e_groups),
        Room(r_excluded, r_tiles, r_records, r_found),
    )


@kernel
def insert_row(
    row: int,
    counts: Any,
    cells: Any,
    number_cells: Any,
    shared_from: Any,
    bounds: Any,
    cell_share: Any,
    groups: Any,
    group_of: Any,
    summary_row: Any,
    summary_uses: Any,
    tested: Any,
    value_cell: Any,
    value_number: Any,
    value_uses: Any,
    value_filed: Any,
    first_node: Any,
    node_record: Any,
    node_next: Any,
    row_record: Any,
    row_slot: Any,
    row_key: Any,
    records: Any,
    numbers: Any,
    tile_alive: Any,
    tile_record: Any,
    tile_chunk: Any,
    tile_length: Any,
    tile_blocks: Any,
    free_tiles: Any,
    order_key: Any,
    order_tile: Any,
    words: Any,
    free_chunks: Any,
    summary: Any,
    mask: Any,
    work: Any,
    wanted: Any,
    keys: Any,
) -> None:
    """`insert`, as Python calls it."""
    insert(
        Arrays(
            counts,
            cells,
            number_cells,
            shared_from,
            bounds,
            cell_share,
            groups,
            group_of,
            summary_row,
            summary_uses,
            tested,
            value_cell,
            value_number,
            value_uses,
            value_filed,
            first_node,
            node_record,
            node_next,
            row_record,
            row_slot,
            row_key,
            records,
            numbers,
            tile_alive,
            tile_record,
            tile_chunk,
            tile_length,
            tile_blocks,
            free_tiles,
            order_key,
            order_tile,
            words,
            free_chunks,
            summary,
            mask,
            work,
            wanted,
            keys,
        ),
        row,
    )
