"""The data of the kernels: the arrays of the index, and the constants that shape them."""

from typing import Any, NamedTuple

import numpy as np

TILE_ROWS = 64
"""How many rows a tile has: the bits of a word."""

CELLS_MAX = 256
"""How many cells an attribute may have."""

MASK_WORDS = CELLS_MAX // 64
"""How many words a mask has, which is a set of cells."""

MISSING, FALSE, TRUE, NAN, NUMBER, STRING = range(6)
"""Kinds of values, in the order of the value line (`sterna.model.filters.values`)."""

OTHER_STRING = 4
"""The cell of all strings that no row names. Cells 0 to 3 are those of the first four kinds."""

NUMBERS = 5
"""The first of an attribute's number cells; its string cells follow them."""

POINT, RANGE, POINTS, KINDS, SET = range(5)
"""Forms of a test; `sterna.matching.records` defines them."""

IN, NOT_IN = 1, 2
"""Whether a SET accepts the strings that it lists, or all others."""

FLAGS = 16
"""The position of the flags in the first word of a record."""

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
"""How many blocks a tile may have."""

TILES_AHEAD, BLOCKS_AHEAD, RECORDS_AHEAD = 8, 3, 12
"""How far ahead memory is prefetched."""

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
    # One entry for each attribute.
    attribute: Any  # The columns that are named above.
    bounds: Any  # Where the attribute's number cells begin, all but the first.
    cell_share: Any  # The estimated share of the events in each cell.
    group_of: Any  # The group of each cell.
    # One entry for each known value.
    value_cell: Any  # The cell of a string that has one to itself, else 0.
    value_number: Any  # The value as a number, NaN for strings.
    value_uses: Any  # How many tests name the value.
    value_filed: Any  # How many rows are filed under the value.
    first_node: Any  # The first node of the rows that are filed under the value, else 0.
    # One entry for each node, which files a row under a value; node 0 means none.
    node_record: Any
    node_next: Any
    # One entry for each row.
    row_record: Any  # Where the row's record begins.
    row_slot: Any  # Where the row is: tile * 64 + place + 1, LOOSE, FILED or less, or 0: not here.
    row_key: Any  # The row's place in the order of rows: close ones share tiles.
    # Records, and the same memory as numbers.
    records: Any
    numbers: Any
    # One entry for each tile.
    tile_alive: Any  # Which bits of the tile are rows.
    tile_record: Any  # The records of these rows.
    tile_chunk: Any  # Where the tile's chunk of words begins.
    tile_length: Any  # How long the chunk is.
    tile_blocks: Any  # How many blocks are in the chunk.
    free_tiles: Any
    order_key: Any  # The tiles in order, each with the least key that belongs there.
    order_tile: Any
    words: Any  # Chunks.
    free_chunks: Any  # By length / CHUNK_STEP, the first free chunk + 1, or 0.
    summary: Any
    # Scratch memory: a mask of cells, the rows of a tile, the blocks that it wants.
    mask: Any
    work: Any
    wanted: Any
    keys: Any  # The addresses of the rows' keys in memory.


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
    """Events as arrays: one for each row, with a column for each attribute."""

    numbers: Any  # The largest float up to the number; NaN if the value is no number.
    rests: Any  # The remainder to the number: zero, except for large integers.
    values: Any  # The known value, else -1.
    kinds: Any
    tokens: Any  # The tokens of all events, under which rows are filed.
    token_ends: Any  # Where the tokens of each event end.
    cells: Any  # Scratch memory for the cells of the values.
    groups: Any  # Scratch memory for the groups of the values.


class Room(NamedTuple):
    """Scratch memory for one thread."""

    excluded: Any
    tiles: Any
    records: Any
    found: Any
