"""How Python calls the two kernels that it calls most.

To pass arrays one by one costs half of what a tuple of them costs.
"""

from typing import Any

from sterna.matching.kernels.compiling import kernel
from sterna.matching.kernels.layout import Arrays, Events, Reading, Room
from sterna.matching.kernels.matching import match_one
from sterna.matching.kernels.tiles import insert


@kernel
def match_event(
    t_counts: Any,
    t_attribute: Any,
    t_bounds: Any,
    t_group_of: Any,
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
            t_attribute,
            t_bounds,
            t_group_of,
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
    attribute: Any,
    bounds: Any,
    cell_share: Any,
    group_of: Any,
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
            attribute,
            bounds,
            cell_share,
            group_of,
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
