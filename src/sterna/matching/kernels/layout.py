"""What the kernels work on: the arrays of the index, and the constants that shape them."""

from typing import Any, NamedTuple

import numpy as np

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
"""Forms of a test; `sterna.matching.records` says what they consist of."""

IN, NOT_IN = 1, 2
"""What a SET says of the strings it lists."""

FLAGS = 16
"""Where the flags are in the first word of a record."""

TILES, FREE_TILES, WORDS, ORDERED, NODES, FREE_NODE, RECORD_WORDS = range(7)
"""Entries of `Arrays.counts`: tiles made so far, those of them that are free, words of chunks in
use so far, tiles in order, nodes made so far, the first free node, and words of records in use."""

CELLS, NUMBER_CELLS, SHARED_FROM, GROUPS, SUMMARY_ROW, SUMMARY_USES, TESTED = range(7)
"""Columns of `Arrays.attribute`: how many cells the attribute has, how many of them are for
numbers, from which cell on several strings share one, how many groups its cells form, where they
begin in the summary, for how many tiles it is there, and room to count tests."""

FILED = -1
"""A row's slot if it is filed under value 0; under the next one it is one less, and so on."""

LOOSE = 2**31 - 1
"""A row's slot if it waits for the next packing and is not found until then."""

CHUNK_STEP = 32
"""Chunks of words are multiples of this."""

BLOCK_ROWS_SHARE = 16
"""A tile gets a block for an attribute that one in so many of its rows tests; the tests of others
are left to their records."""

BLOCKS_MAX = 64
"""Blocks that a tile may have."""

TILES_AHEAD, BLOCKS_AHEAD, RECORDS_AHEAD = 8, 3, 12
"""How early memory is asked for that will be needed."""

ONE, NONE, ALL = np.uint64(1), np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)

# A chunk begins with one word for each block: the attribute in its upper half, then where in the
# chunk the block is.
FULL = np.uint64(1 << 63)
"""Set if all rows of the tile test the block's attribute, and so the summary knows the tile."""
HALF = np.uint64(32)
START = np.uint64(0xFFFFFFFF)
ATTRIBUTE = np.uint64(0xFFFFFF)


class Arrays(NamedTuple):
    """Every array of a set of tiles. An entry that was never written is zero."""

    counts: Any
    # For each attribute:
    attribute: Any  # what the columns say,
    bounds: Any  # where its number cells begin, all but the first,
    cell_share: Any  # which share of the events is thought to lie in each cell,
    group_of: Any  # and the group of each cell.
    # For each known value:
    value_cell: Any  # its cell if it is a string that has one to itself, else 0,
    value_number: Any  # the number it is, NaN for strings,
    value_uses: Any  # how many tests name it,
    value_filed: Any  # how many rows are filed under it,
    first_node: Any  # and the first of those, else 0.
    # For each node, which files a row under a value; node 0 stands for none:
    node_record: Any
    node_next: Any
    # For each row:
    row_record: Any  # where its record begins,
    row_slot: Any  # where it is: tile * 64 + place + 1, LOOSE, what FILED says, or 0: not here;
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
    words: Any  # Chunks.
    free_chunks: Any  # By length / CHUNK_STEP, the first free chunk + 1, or 0.
    summary: Any
    # Room to work in: a mask of cells, the rows of a tile, the blocks that it wants.
    mask: Any
    work: Any
    wanted: Any
    keys: Any  # Where the rows' keys are in memory.


class Reading(NamedTuple):
    """The arrays that matching reads; fewer, so that a call costs less."""

    counts: Any
    attribute: Any
    bounds: Any
    group_of: Any
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
