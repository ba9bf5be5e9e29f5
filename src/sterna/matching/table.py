"""Many subscriptions: rows in tiles and under values, in arrays that the kernels work on."""

import ctypes
import math
import sys
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching import kernels
from sterna.matching.checks import Check, Checks
from sterna.matching.columns import Columns, Rows
from sterna.matching.floats import EXACT_MAX, floor
from sterna.matching.kernels import (
    BLOCKS_MAX,
    CELLS_MAX,
    CHUNK_STEP,
    FALSE,
    FLAGS,
    MASK_WORDS,
    NAN,
    NODES,
    NUMBERS,
    TILE_ROWS,
    TILES,
    TRUE,
    WORDS,
    Arrays,
    Events,
    Reading,
    Room,
)
from sterna.matching.records import (
    NUMBER,
    SHARED,
    STRING,
    TESTS_MAX,
    UNSURE,
    Written,
    head,
    write_test,
)
from sterna.matching.tokens import Tokens, required
from sterna.model.event import Scalar, plain_scalar
from sterna.model.filters.filter import Filter
from sterna.model.filters.normal_form import ANYTHING, Term

NUMBER_CELLS, STRING_CELLS, SHARED_CELLS = 64, 120, 8
"""How finely an attribute's values are divided: into so many cells for numbers, for strings that
have one to themselves, and for all other strings."""

NUMBER_GROUPS, STRING_GROUPS = 16, 16
"""How finely tiles divide them: into so many groups of number cells, and of single strings."""

GROUPS_MAX = NUMBERS + NUMBER_GROUPS + STRING_GROUPS + SHARED_CELLS
"""The most groups that come of that; a word has a bit for each."""

FILL_ROWS = 52
"""Rows in a tile that is packed afresh: room for some more, without wasting much."""

FILED_VALUES_MIN = 1000
"""An attribute with so many known values is like an identifier: rows are filed under them."""

FILED_ROWS_MAX = 64
"""Rows that may be filed under a value; tiles handle more of them faster."""

FILED_TOKEN_ROWS_MAX = 2048
"""The same for parts of strings, where tiles help less."""

FILED_POINTS_MAX = 4
"""A row may be filed under so many values, if its test accepts any of them."""

EACH_MIN = 16
"""From so many events on, it pays to put them into columns."""

REPACK_MIN, REPACK_SHARE = 64, 2
"""Everything is packed afresh after so many changes, and at least one for so many rows."""

VISITS_MIN = 1 << 19
"""How many visits of events to tiles are planned at a time, at least."""

HITS_MIN = 1 << 18
"""How many hits of a batch are found at a time, at least."""

KEYS_AHEAD = 512
"""How many keys are asked for before they are needed."""

Array = npt.NDArray[Any]


class Attribute:
    """What the table knows of an attribute."""

    __slots__ = ("ids", "place", "tokens")

    def __init__(self, place: int) -> None:
        self.place = place
        self.ids: dict[Scalar, int] = {}
        """The values that tests name, each with its number."""
        self.tokens = Tokens()
        """Parts of strings under which rows are filed, numbered like values."""


class Table:
    """Subscriptions in compiled form; `MatchIndex` is the way to use it."""

    def __init__(self) -> None:
        self._attributes: dict[str, Attribute] = {}
        self._by_place: list[Attribute] = []
        self._rows: dict[Hashable, int | tuple[int, ...]] = {}
        self._checks: dict[int, Check] = {}
        self._first_row: dict[int, int] = {}
        self._value_of: list[Scalar] = []
        self._token_of: dict[int, tuple[Attribute, str]] = {}
        self._free: dict[tuple[str, int], list[int]] = {}
        self._used = {"row": 0, "record": 0, "value": 0}
        self._changes_left = REPACK_MIN
        self._summary_rows = 0
        self._chunk_bound = CHUNK_STEP
        self._unused = np.empty((64, 2), np.int64)
        self._spare: list[Spare] = []
        self._batch_buffers: list[_BatchBuffers] = []
        self._keys = np.empty(64, object)
        self.arrays = _first_arrays()
        self._arrays_changed()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what can be made again, so that a copy goes on exactly as this one."""
        made_again: dict[str, Any] = {
            "_spare": [],
            "_batch_buffers": [],
            "_records": None,
            "reading": None,
        }
        return self.__dict__ | made_again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._arrays_changed()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._rows

    @property
    def attributes(self) -> int:
        """How many attributes its tests name."""
        return len(self._by_place)

    @property
    def keys(self) -> Array:
        """The key of each row; None where there is none."""
        return self._keys

    def place_of(self, name: str) -> int:
        """Which column of encoded events an attribute has."""
        return self._attributes[name].place

    def details(self, row: int) -> tuple[int, Check | None]:
        """The first row of the same subscription, and what the record does not say."""
        return self._first_row.get(row, row), self._checks.get(row)

    # ---- Adding and removing

    def add(self, key: Hashable, filter_: Filter) -> None:
        """Add a subscription; its key must be new."""
        form = filter_.normal_form
        terms = (ANYTHING,) if form is None else form
        rows: list[int] = []
        try:
            for term in terms:
                row = self._take("row", 1)
                self._keys[row] = key
                if form is None:
                    self._checks[row] = filter_.matches
                if len(terms) > 1:
                    self._first_row[row] = rows[0] if rows else row
                self._write(row, term)
                rows.append(row)
        except BaseException:
            for row in rows:  # What is there of it must not match.
                self._drop(row)
            raise
        self._rows[key] = rows[0] if len(rows) == 1 else tuple(rows)

    def remove(self, key: Hashable) -> None:
        """Remove a subscription; KeyError if there is none."""
        rows = self._rows.pop(key)
        for row in rows if isinstance(rows, tuple) else (rows,):
            self._drop(row)

    def _drop(self, row: int) -> None:
        arrays = self.arrays
        length, unused = kernels.remove(arrays, row, self._unused)
        self._give("record", length, int(arrays.row_record[row]))
        self._give("row", 1, row)
        self._keys[row] = None
        self._checks.pop(row, None)
        self._first_row.pop(row, None)
        if unused:
            self._forget(self._unused[:unused].tolist())
        self._changed()

    def _write(self, row: int, term: Term) -> None:
        """Write the record of a row and put the row where it belongs."""
        tests: list[tuple[Attribute, Written]] = []
        left_open = tuple(islice(term.constraints, TESTS_MAX, None))
        for name, accepted in islice(term.constraints.items(), TESTS_MAX):
            attribute = self._attributes.get(name) or self._new_attribute(name)
            test = write_test(accepted, attribute.place, self._namer(attribute))
            tests.append((attribute, test))
            if not test.exact:
                left_open += (name,)
        if left_open or term.residuals:
            self._checks[row] = Checks(term, left_open)
        unsure = row in self._checks
        flags = (UNSURE if unsure else 0) | (SHARED if row in self._first_row else 0)
        words = [head(row, flags, len(tests))]
        tests.sort(key=_form)
        for _, test in tests:
            words += test.words
        if len(words) > len(self._unused):
            self._unused = np.empty((2 * len(words), 2), np.int64)
        record = self._take("record", len(words))
        self._records[record : record + len(words)] = array("q", words)
        self.arrays.row_record[row] = record
        under = self._values_to_file_under(tests)
        if not under and unsure:
            under = self._token_to_file_under(term)
        if under:
            for value in under:
                self._make_room_for_nodes()
                kernels.file(self.arrays, row, value)
        else:
            self._make_room_for_tiles()
            kernels.insert_row(row, *self.arrays)
        self._changed()

    def _changed(self) -> None:
        self._changes_left -= 1
        if self._changes_left <= 0:
            self._repack()

    def _values_to_file_under(self, tests: list[tuple[Attribute, Written]]) -> list[int]:
        """The values of the test that few other rows name, if there is such a test."""
        filed = self.arrays.value_filed
        best: list[int] = []
        fewest = FILED_ROWS_MAX
        for attribute, test in tests:
            if (
                test.selects
                and len(attribute.ids) >= FILED_VALUES_MIN
                and len(test.named) <= FILED_POINTS_MAX
            ):
                most = max(int(filed[value]) for value in test.named)
                if most < fewest:
                    fewest = most
                    best = list(test.named)
        return best

    def _token_to_file_under(self, term: Term) -> list[int]:
        """A part of a string that every match has and few other rows ask for, if there is one."""
        choices = [
            (*self._attributes[name].tokens.rarest(tokens), name)
            for name, tokens in required(term)
            if name in self._attributes  # Not if it has more tests than a record.
        ]
        if not choices:
            return []
        *_, token, name = min(choices)
        attribute = self._attributes[name]
        number = attribute.tokens.get(token)
        if number is None:
            number = self._new_value(token)
            attribute.tokens.add(token, number)
            self._token_of[number] = attribute, token
        elif self.arrays.value_filed[number] >= FILED_TOKEN_ROWS_MAX:
            return []
        return [number]

    # ---- Attributes and values

    def _new_attribute(self, name: str) -> Attribute:
        attribute = self._attributes[name] = Attribute(len(self._attributes))
        self._by_place.append(attribute)
        have = len(self.arrays.cells)
        if attribute.place >= have:
            self._enlarge("attribute", 2 * have)
        self._divide(attribute, np.empty(0), np.empty(0, np.int64))
        self._arrays_changed()
        return attribute

    def _namer(self, attribute: Attribute) -> Callable[[Scalar], int]:
        def known(value: Scalar) -> int:
            number = attribute.ids.get(value)
            if number is None:
                number = attribute.ids[value] = self._new_value(value)
                arrays, a = self.arrays, attribute.place
                if isinstance(value, str):
                    shared = arrays.shared_from[a]
                    arrays.value_cell[number] = shared + number % (arrays.cells[a] - shared)
                else:
                    arrays.value_number[number] = floor(value)[0]
            self.arrays.value_uses[number] += 1
            return number

        return known

    def _new_value(self, value: Scalar) -> int:
        number = self._take("value", 1)
        if number == len(self._value_of):
            self._value_of.append(value)
        self._value_of[number] = value
        arrays = self.arrays
        arrays.value_cell[number] = -1
        arrays.value_number[number] = math.nan
        arrays.first_node[number] = -1
        return number

    def _forget(self, unused: Iterable[tuple[int, int]]) -> None:
        for place, value in unused:
            if place < 0:
                attribute, token = self._token_of.pop(value)
                attribute.tokens.remove(token)
            else:
                del self._by_place[place].ids[self._value_of[value]]
            self._give("value", 1, value)

    def _divide(self, attribute: Attribute, bounds: Array, strings: Array) -> None:
        """Divide an attribute's values into cells, and those into groups.

        Numbers are cut at the bounds; the first strings have cells of their own.
        """
        arrays, a = self.arrays, attribute.place
        numbers = len(bounds) + 1
        own = min(len(strings), STRING_CELLS)
        shared = SHARED_CELLS if len(strings) else 1
        first = NUMBERS + numbers
        cells = first + own + shared
        arrays.bounds[a, : len(bounds)] = bounds
        arrays.number_cells[a] = numbers
        arrays.shared_from[a] = first + own
        arrays.cells[a] = cells
        arrays.value_cell[strings[:own]] = np.arange(first, first + own)
        arrays.value_cell[strings[own:]] = first + own + strings[own:] % shared

        group_of = arrays.group_of[a]
        group_of[:NUMBERS] = np.arange(NUMBERS)
        groups = min(numbers, NUMBER_GROUPS)
        group_of[NUMBERS:first] = NUMBERS + np.arange(numbers) * groups // numbers
        groups += NUMBERS
        single = min(own, STRING_GROUPS)
        group_of[first : first + single] = groups + np.arange(single)
        groups += single
        group_of[first + single : cells] = groups + np.arange(own - single + shared) % shared
        arrays.groups[a] = groups + shared

        share = arrays.cell_share[a]
        share[:NUMBERS] = 1 / cells
        share[NUMBERS:first] = 1 / numbers
        share[first:cells] = 1 / cells
        if len(strings):
            uses = arrays.value_uses[strings]
            np.add.at(share, arrays.value_cell[strings], uses / uses.sum())

        arrays.summary_row[a] = self._summary_rows
        self._summary_rows += cells
        self._chunk_bound += int(arrays.groups[a]) + 1
        if self._summary_rows > len(arrays.summary):
            self._grow({"summary": 0}, self._summary_rows + self._summary_rows // 4)

    # ---- Packing

    def _repack(self) -> None:
        """Divide all values anew, sort all rows anew, and fill the tiles one after the other."""
        arrays = self.arrays
        rows = np.flatnonzero(arrays.row_slot >= 0)
        filed = np.flatnonzero(arrays.row_slot <= kernels.FILED)
        self._summary_rows = 0
        self._chunk_bound = CHUNK_STEP
        constants = self._constants(rows)
        for attribute, mine in zip(self._by_place, constants, strict=True):
            bounds = np.empty(0)
            if len(mine):
                steps = np.arange(1, NUMBER_CELLS) / NUMBER_CELLS
                bounds = np.unique(np.quantile(mine, steps, method="nearest"))
            ids = np.fromiter(attribute.ids.values(), np.int64, len(attribute.ids))
            strings = ids[arrays.value_cell[ids] >= 0]
            most_used = np.argsort(-arrays.value_uses[strings], kind="stable")
            self._divide(attribute, bounds, strings[most_used])
        arrays = self.arrays
        arrays.summary[:] = 0
        arrays.summary_uses[:] = 0
        arrays.counts[:NODES] = 0
        arrays.free_chunks[:] = -1
        arrays.tile_length[:] = 0
        arrays.tile_blocks[:] = 0
        arrays.tile_alive[:] = 0
        kernels.write_keys(arrays, rows)
        rows = rows[np.argsort(arrays.row_key[rows], kind="stable")]
        self._move_records(np.concatenate([rows, filed]))
        for first in range(0, len(rows), FILL_ROWS):
            self._make_room_for_tiles()
            kernels.append_tile(self.arrays, rows[first : first + FILL_ROWS])
        self._changes_left = max(REPACK_MIN, (len(rows) + len(filed)) // REPACK_SHARE)

    def _constants(self, rows: Array) -> list[Array]:
        """For each attribute, the numbers that rows compare it with."""
        count = kernels.count_constants(self.arrays, rows)
        attributes = np.empty(count, np.int32)
        constants = np.empty(count)
        kernels.list_constants(self.arrays, rows, attributes, constants)
        finite = np.isfinite(constants)
        attributes, constants = attributes[finite], constants[finite]
        order = np.argsort(attributes, kind="stable")
        ends = np.searchsorted(attributes[order], np.arange(1, len(self._by_place)))
        return np.split(constants[order], ends) if self._by_place else []

    def _move_records(self, rows: Array) -> None:
        """Write the records of rows one after the other: those of a tile are close together."""
        length = kernels.total_length(self.arrays, rows)
        records = np.empty(max(64, length), np.int64)
        kernels.move_records(self.arrays, rows, records)
        self.arrays = self.arrays._replace(records=records)
        self._used["record"] = length
        self._free = {what: free for what, free in self._free.items() if what[0] != "record"}
        self._arrays_changed()

    # ---- Room

    def _take(self, group: str, count: int) -> int:
        free = self._free.get((group, count))
        if free:
            return free.pop()
        first = self._used[group]
        self._used[group] = end = first + count
        have = len(getattr(self.arrays, _FIRST_OF[group]))
        if end > have:
            self._enlarge(group, max(end, have + have // 4))
        return first

    def _give(self, group: str, count: int, first: int) -> None:
        self._free.setdefault((group, count), []).append(first)

    def _make_room_for_nodes(self) -> None:
        have = len(self.arrays.node_record)
        if self.arrays.counts[NODES] == have:
            self._enlarge("node", have + have // 4)

    def _make_room_for_tiles(self) -> None:
        """Let there be room for two more tiles, whatever is in them."""
        arrays = self.arrays
        have = len(arrays.tile_alive)
        if arrays.counts[TILES] + 2 > have:
            self._enlarge("tile", have + have // 4 + 63 & ~63)
        words = 2 * (min(self._chunk_bound, BLOCKS_MAX * (GROUPS_MAX + 1)) + CHUNK_STEP)
        have = len(arrays.words)
        if arrays.counts[WORDS] + words > have:
            self._grow({"words": 0}, have + max(words, have // 4))
        if words // CHUNK_STEP > len(arrays.free_chunks):
            self._grow({"free_chunks": -1}, words // CHUNK_STEP * 2)

    def _enlarge(self, group: str, size: int) -> None:
        self._grow(_GROUPS[group], size)
        if group == "row":
            keys = np.empty(size, object)
            keys[: len(self._keys)] = self._keys
            self._keys = keys
        elif group == "tile":
            self._grow({"summary": 0}, size // 64, axis=1)
        self._arrays_changed()

    def _grow(self, names: Mapping[str, int], size: int, axis: int = 0) -> None:
        larger = {}
        for name, empty in names.items():
            old = getattr(self.arrays, name)
            shape = list(old.shape)
            shape[axis] = size
            new = np.full(shape, empty, old.dtype)
            new[tuple(slice(0, length) for length in old.shape)] = old
            larger[name] = new
        self.arrays = self.arrays._replace(**larger)
        self._arrays_changed()

    def _arrays_changed(self) -> None:
        addresses: Any = (ctypes.c_int64 * len(self._keys)).from_address(self._keys.ctypes.data)
        self.arrays = self.arrays._replace(
            numbers=self.arrays.records.view(np.float64), keys=np.frombuffer(addresses, np.int64)
        )
        self._records = memoryview(self.arrays.records).cast("B").cast("q")  # Faster to write to.
        self.reading = Reading(*(getattr(self.arrays, name) for name in Reading._fields))
        self._spare.clear()
        self._batch_buffers.clear()

    def memory(self) -> int:
        """Bytes in use."""
        arrays = sum(
            each.nbytes
            for name, each in self.arrays._asdict().items()
            if name not in {"numbers", "keys"}
        )
        tables: list[Any] = [self._rows, self._checks, self._first_row, self._value_of]
        tables += [self._token_of, *(known.ids for known in self._by_place)]
        tables += self._free.values()
        numbers = sum(len(table) for table in tables) * sys.getsizeof(1 << 30)
        tokens = sum(known.tokens.memory() for known in self._by_place)
        checks = len(self._checks) * sys.getsizeof(Checks(ANYTHING, ()))
        several = sum(sys.getsizeof(rows) for rows in self._rows.values() if type(rows) is tuple)
        measured = sum(map(sys.getsizeof, tables)) + numbers + tokens + checks + several
        return int(arrays + self._keys.nbytes + measured)

    # ---- Matching one event

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Any]:
        """The keys of all subscriptions that match."""
        try:
            spare = self._spare.pop()
        except IndexError:  # None yet, or other threads have them.
            spare = Spare(len(self._by_place), self.arrays)
        events = self.encode(attributes, spare)
        count, flags = kernels.match_event(*self.reading, *events, *spare.room)
        found = spare.room.found[:count]
        if flags:
            keys = [self._keys[row] for row in self._settle(found.tolist(), attributes)]
        else:
            keys = self._keys.take(found).tolist()
        self._spare.append(spare)
        return keys

    def encode(self, attributes: Mapping[str, Scalar | None], spare: "Spare") -> Events:
        """Write an event into the spare arrays."""
        numbers, rests, values, kinds = spare.views
        value: Any
        spare.clear()
        tokens: dict[int, None] = {}
        known = self._attributes
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

    def _settle(self, rows: list[int], attributes: Mapping[str, Scalar | None]) -> list[int]:
        """The rows that match for sure, one for each subscription."""
        settled: list[int] = []
        seen: set[int] = set()
        for row in rows:
            first = self._first_row.get(row, row)
            if first in seen:
                continue
            check = self._checks.get(row)
            if check is None or check(attributes):
                seen.add(first)
                settled.append(row)
        return settled

    # ---- Matching many events

    def match_each(self, events: Sequence[Mapping[str, Scalar | None]]) -> dict[Any, list[int]]:
        """For each key that some events match, their places, ascending."""
        found: dict[Any, list[int]] = {}
        if len(events) < EACH_MIN:
            for place, attributes in enumerate(events):
                for key in self.match(attributes):
                    found.setdefault(key, []).append(place)
            return found
        names = dict.fromkeys(chain.from_iterable(events))
        rows = Rows(events, [name for name in names if name in self._attributes])
        positions, keys = self.match_batch(rows)
        for place, key in zip(positions.tolist(), keys.tolist(), strict=True):
            if key in found:
                found[key].append(place)
            else:
                found[key] = [place]
        return found

    def match_batch(self, columns: Columns) -> tuple[Array, Array]:
        """The positions of events, ascending, each with the key of a subscription that matches."""
        positions, rows = self.match_rows(columns)
        return positions, self._keys_of(rows)

    def match_rows(self, columns: Columns) -> tuple[Array, Array]:
        """The same with rows, whose keys are in `keys`: less work when keys are only counted."""
        events = self.encode_batch(columns)
        hits, flags = self._hits(events)
        positions = np.empty(len(hits), np.int64)
        rows = np.empty(len(hits), np.int32)
        kernels.sort_hits(hits, np.empty(len(columns) + 1, np.int64), positions, rows)
        if flags:
            kept = self._settle_batch(positions, rows, columns)
            positions, rows = positions[kept], rows[kept]
        return positions, rows

    def _keys_of(self, rows: Array) -> Array:
        keys = np.empty(len(rows), object)
        for first in range(0, len(rows), KEYS_AHEAD):
            portion = rows[first : first + KEYS_AHEAD]
            kernels.prefetch_keys(self.reading.keys, portion)
            self._keys.take(portion, out=keys[first : first + KEYS_AHEAD], mode="clip")
        return keys

    def _hits(self, events: Events) -> tuple[Array, int]:
        """All pairs of an event and a row that hold, and the flags of those rows."""
        portions: list[Array] = []
        flags = event = 0
        tiles = int(self.arrays.counts[TILES])
        try:
            buffers = self._batch_buffers.pop()
        except IndexError:
            buffers = _BatchBuffers(self.arrays)
        hits = buffers.hits
        while event < len(events.values):
            event, count, more = kernels.match_filed(self.reading, events, event, hits)
            portions.append(hits[:count].copy())
            flags |= more
        event = 0 if tiles else len(events.values)
        while event < len(events.values):
            event = kernels.plan_visits(
                self.reading,
                events,
                event,
                len(hits) // TILE_ROWS,
                buffers.room,
                buffers.ends,
                buffers.visits,
            )
            tile = 0
            while tile < tiles:
                tile, count, more = kernels.match_tiles(
                    self.reading, events, tile, buffers.ends, buffers.visits, hits
                )
                portions.append(hits[:count].copy())
                flags |= more
        self._batch_buffers.append(buffers)
        return np.concatenate([hits[:0], *portions]), flags

    def encode_batch(self, columns: Columns) -> Events:
        shape = len(columns), len(self._by_place)
        events = _new_events(*shape)
        tokens: list[dict[int, None]] | None = None
        for name, column in columns.items():
            attribute = self._attributes.get(name)
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
                number: Any = attribute.ids.get
                numbers = np.array([number(value, -1) for value in column.plain()], np.int32)
                identified = events.kinds[:, place] >= NUMBER
                events.values[identified, place] = numbers[identified]
        if tokens is None:
            return events
        flat = [token for found in tokens for token in sorted(found)]
        ends = np.cumsum([len(found) for found in tokens])
        return events._replace(tokens=np.array(flat, np.int32), token_ends=ends)

    def _settle_batch(
        self, positions: Array, rows: Array, columns: Columns
    ) -> npt.NDArray[np.bool_]:
        """Which hits remain when unsure rows are asked and shared subscriptions counted once."""
        flags = self.arrays.records[self.arrays.row_record[rows]] >> FLAGS & (UNSURE | SHARED)
        kept = np.ones(len(rows), bool)
        seen: set[tuple[int, int]] = set()
        position = -1
        attributes: Mapping[str, Scalar | None] = {}
        for i in np.flatnonzero(flags).tolist():
            row = int(rows[i])
            if position != positions[i]:
                position = int(positions[i])
                attributes = columns.event(position)
            mark = position, self._first_row.get(row, row)
            check = self._checks.get(row)
            if mark not in seen and (check is None or check(attributes)):
                seen.add(mark)
            else:
                kept[i] = False
        return kept


def _form(test: tuple[Attribute, Written]) -> int:
    """Tests are sorted by form, the cheapest first: the processor can then guess what comes."""
    return test[1].words[0] & 255


# ---- Arrays

_GROUPS: dict[str, dict[str, int]] = {
    "attribute": {
        **dict.fromkeys(("cells", "number_cells", "shared_from", "bounds", "cell_share"), 0),
        **dict.fromkeys(("groups", "group_of", "summary_row", "summary_uses", "tested"), 0),
    },
    "value": {
        "value_cell": -1,
        "value_number": 0,
        "value_uses": 0,
        "value_filed": 0,
        "first_node": -1,
    },
    "node": {"node_record": -1, "node_next": 0},
    "row": {"row_record": 0, "row_slot": -1, "row_key": 0},
    "record": {"records": 0},
    "tile": {
        **dict.fromkeys(("tile_alive", "tile_record", "tile_chunk", "tile_length"), 0),
        **dict.fromkeys(("tile_blocks", "free_tiles", "order_key", "order_tile"), 0),
    },
}
"""What grows together, and what new entries hold."""

_FIRST_OF = {group: next(iter(names)) for group, names in _GROUPS.items()}


def _first_arrays() -> Arrays:
    """Arrays for an empty table."""
    few, some = 8, 64
    small, wide, word = np.int32, np.int64, np.uint64
    records = np.zeros(some, wide)
    return Arrays(
        counts=np.zeros(8, wide),
        cells=np.zeros(few, small),
        number_cells=np.zeros(few, small),
        shared_from=np.zeros(few, small),
        bounds=np.zeros((few, NUMBER_CELLS - 1)),
        cell_share=np.zeros((few, CELLS_MAX)),
        groups=np.zeros(few, small),
        group_of=np.zeros((few, CELLS_MAX), np.uint8),
        summary_row=np.zeros(few, small),
        summary_uses=np.zeros(few, small),
        tested=np.zeros(few, small),
        value_cell=np.full(some, -1, np.int16),
        value_number=np.zeros(some),
        value_uses=np.zeros(some, small),
        value_filed=np.zeros(some, small),
        first_node=np.full(some, -1, small),
        node_record=np.full(some, -1, small),
        node_next=np.zeros(some, small),
        row_record=np.zeros(some, small),
        row_slot=np.full(some, -1, small),
        row_key=np.zeros(some, wide),
        records=records,
        numbers=records.view(np.float64),
        tile_alive=np.zeros(some, word),
        tile_record=np.zeros((some, TILE_ROWS), small),
        tile_chunk=np.zeros(some, wide),
        tile_length=np.zeros(some, small),
        tile_blocks=np.zeros(some, small),
        free_tiles=np.zeros(some, small),
        order_key=np.zeros(some, wide),
        order_tile=np.zeros(some, small),
        words=np.zeros(some, word),
        free_chunks=np.full(some, -1, wide),
        summary=np.zeros((some, 1), word),
        mask=np.zeros(MASK_WORDS, word),
        work=np.zeros(TILE_ROWS, wide),
        wanted=np.zeros((BLOCKS_MAX, 2), small),
        keys=np.zeros(0, wide),
    )


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


class Spare:
    """Room for matching one event; each thread uses its own."""

    def __init__(self, attributes: int, arrays: Arrays) -> None:
        tiles, rows = len(arrays.tile_alive), len(arrays.row_record)
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
        self.room = Room(
            excluded=np.empty(tiles // 64, np.uint64),
            tiles=np.empty(tiles, np.int32),
            records=np.empty(rows, np.int32),
            found=np.empty(rows, np.int32),
        )

    def clear(self) -> None:
        """Forget the last event: everything that is written lies side by side."""
        self._buffer[:] = self._blank


_WRITTEN = Events._fields[:4]
"""The arrays into which an event is written."""


class _BatchBuffers:
    """Room for matching a batch; each thread uses its own."""

    def __init__(self, arrays: Arrays) -> None:
        tiles = len(arrays.tile_alive)
        visits = max(VISITS_MIN, tiles)
        self.room = Spare(0, arrays).room
        self.ends = np.empty(tiles + 1, np.int64)
        self.visits = np.empty((visits, 3), np.int32)
        hits = max(HITS_MIN, TILE_ROWS, len(arrays.node_record))  # An event's hits have room.
        self.hits = np.empty((hits, 2), np.int32)
