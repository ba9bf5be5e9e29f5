"""How events are written into arrays for the kernels, one by one or in columns."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sterna.matching.columns import Columns
from sterna.matching.floats import EXACT_MAX, floor
from sterna.matching.kernels.layout import FALSE, NAN, NUMBER, STRING, TRUE, Events, Room
from sterna.matching.tiles import SubscriptionTiles
from sterna.matching.vocabulary import Vocabulary
from sterna.model.event import Scalar, plain_scalar

_WRITTEN = Events._fields[:4]
"""The arrays into which an event is written."""


class Spare:
    """Room for matching one event; each thread uses its own."""

    def __init__(self, attributes: int, matched: Iterable[SubscriptionTiles]) -> None:
        blank = _new_events(1, attributes)
        self._blank = np.concatenate(
            [np.frombuffer(each, np.uint8) for each in blank[: len(_WRITTEN)]]
        )
        self._buffer = self._blank.copy()
        written = {}
        start = 0
        for name in _WRITTEN:
            like = getattr(blank, name)
            part = self._buffer[start : start + like.nbytes]
            written[name] = part.view(like.dtype).reshape(like.shape)
            start += like.nbytes
        self.events = blank._replace(**written)
        self.views: tuple[Any, ...] = tuple(memoryview(each[0]) for each in written.values())
        self.room = room_for(matched)

    def clear(self) -> None:
        """Forget the last event: everything that is written lies side by side."""
        self._buffer[:] = self._blank


def room_for(matched: Iterable[SubscriptionTiles]) -> Room:
    """Room to find rows in one of these tiles after the other."""
    tiles = max(len(each.arrays.tile_alive) for each in matched)
    rows = max(len(each.arrays.row_slot) for each in matched)
    return Room(
        excluded=np.empty(tiles // 64, np.uint64),
        tiles=np.empty(tiles, np.int32),
        records=np.empty(rows, np.int32),
        found=np.empty(rows, np.int32),
    )


def encode(vocabulary: Vocabulary, attributes: Mapping[str, Scalar | None], spare: Spare) -> Events:
    """Write an event into the spare arrays."""
    numbers, rests, values, kinds = spare.views
    value: Any
    spare.clear()
    tokens: dict[int, None] = {}
    known = vocabulary.attributes
    for name, value in attributes.items():
        attribute = known.get(name)
        if attribute is None:
            continue
        kind = type(value)
        if kind is not float and kind is not str and kind is not int:
            value = plain_scalar(name, value)  # noqa: PLW2901
            if value is None:
                continue
            kind = type(value)
        place = attribute.place
        if kind is float or kind is int:
            if value != value:  # noqa: PLR0124 - this is how NaN shows.
                kinds[place] = NAN
                continue
            kinds[place] = NUMBER
            if kind is float or -EXACT_MAX <= value <= EXACT_MAX:
                numbers[place] = value
            else:
                numbers[place], rests[place] = floor(value)
        elif kind is str:
            kinds[place] = STRING
            if attribute.tokens:
                tokens.update(attribute.tokens.of(value))
        else:
            kinds[place] = TRUE if value else FALSE
            continue
        number = attribute.ids.get(value)
        if number is not None:
            values[place] = number
    if not tokens:
        return spare.events
    return spare.events._replace(tokens=np.array(sorted(tokens), np.int32))


def encode_batch(vocabulary: Vocabulary, columns: Columns) -> Events:
    """Write the events of a batch into new arrays."""
    events = _new_events(len(columns), len(vocabulary.by_place))
    tokens: list[dict[int, None]] | None = None
    for name, column in columns.items():
        attribute = vocabulary.attributes.get(name)
        if attribute is None:
            continue
        place = attribute.place
        column.encode(events.kinds[:, place], events.numbers[:, place], events.rests[:, place])
        if attribute.tokens:
            tokens = tokens or [{} for _ in range(len(columns))]
            for found, value in zip(tokens, column.plain(), strict=True):
                if type(value) is str:
                    found.update(attribute.tokens.of(value))
        if attribute.ids:
            numbers = np.array(attribute.ids.get_each(column.plain(), -1), np.int32)
            identified = events.kinds[:, place] >= NUMBER
            events.values[identified, place] = numbers[identified]
    if tokens is None:
        return events
    flat = [token for found in tokens for token in sorted(found)]
    ends = np.cumsum([len(found) for found in tokens])
    return events._replace(tokens=np.array(flat, np.int32), token_ends=ends)


def _new_events(count: int, attributes: int) -> Events:
    shape = count, attributes
    return Events(
        numbers=np.full(shape, math.nan),
        rests=np.zeros(shape),
        values=np.full(shape, -1, np.int32),
        kinds=np.zeros(shape, np.uint8),
        tokens=np.empty(0, np.int32),
        token_ends=np.zeros(count, np.int64),
        cells=np.zeros(shape, np.int32),
        groups=np.zeros(shape, np.uint8),
    )
