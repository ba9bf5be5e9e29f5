"""`CompiledSubscriptions`: many subscriptions, as rows that compiled code finds."""

import ctypes
import sys
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import is_not
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching import packing
from sterna.matching.batches import BatchRoom, by_event
from sterna.matching.checks import Check, Checks, WholeFilter
from sterna.matching.columns import Columns, Rows
from sterna.matching.encoding import Spare, encode, encode_batch
from sterna.matching.growth import LargeDict
from sterna.matching.kernels.entries import match_event
from sterna.matching.kernels.layout import FLAGS, Arrays
from sterna.matching.kernels.matching import prefetch_keys
from sterna.matching.records import SHARED, TESTS_MAX, UNSURE, Written, head, write_test
from sterna.matching.tiles import SubscriptionTiles
from sterna.matching.tokens import required
from sterna.matching.vocabulary import Attribute, Vocabulary
from sterna.model.event import Scalar
from sterna.model.filters.filter import Filter
from sterna.model.filters.normal_form import ANYTHING, Term

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

PACK_MIN, PACK_SHARE = 64, 2
"""A packing begins after so many changes, and at least one for so many rows."""

PACKED_AT_A_CHANGE = 256
"""About how many rows each change moves while a packing is under way."""

KEYS_AHEAD = 512
"""How many keys are asked for before they are needed."""

KEYS_STEP = 1 << 16
"""For how many more keys room is made at a time, at most."""

Array = npt.NDArray[Any]


class CompiledSubscriptions:
    """Subscriptions in compiled form; `MatchIndex` is the way to use it.

    Every alternative of a filter is a row. Rows are in `SubscriptionTiles`. While those are packed
    there are two sets of them, and each row is in one: rows leave the old tiles for fresh ones.
    """

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self._tiles = SubscriptionTiles(self.vocabulary)
        self._fresh: SubscriptionTiles | None = None
        """Tiles whose cells are being divided; no row is in them yet."""
        self._leaving: SubscriptionTiles | None = None
        """Tiles that rows leave for `_tiles`."""
        self._late: list[int] | None = None
        """Rows that come to the tiles that others leave, as long as those are moved in order."""
        self._packing: Iterator[float] | None = None
        self._changes_left = PACK_MIN
        self._rows: LargeDict[Hashable, int | tuple[int, ...]] = LargeDict()
        self._row_count = 0
        self._free_rows: list[int] = []
        self._keys = np.empty(64, object)
        self._checks: list[Check | None] = []
        self._first_row = array("i")
        self._unused = np.empty((64, 2), np.int64)
        self._named = 0, 0
        self._spare: list[Spare] = []
        self._batch_rooms: list[BatchRoom] = []
        self._keys_moved()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what can be made again; a packing is brought to its end first."""
        self.pack()
        made_again: dict[str, Any] = {"_spare": [], "_batch_rooms": [], "_readings": None}
        return self.__dict__ | made_again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._keys_moved()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._rows

    @property
    def attributes(self) -> int:
        """How many attributes its tests name."""
        return len(self.vocabulary.by_place)

    @property
    def keys(self) -> Array:
        """The key of each row; None where there is none."""
        return self._keys

    @property
    def arrays(self) -> Arrays:
        """The arrays of all rows; a packing is brought to its end first. For measurements."""
        self.pack()
        return self._tiles.arrays

    @property
    def packing(self) -> bool:
        """Whether a packing is under way."""
        return self._packing is not None

    def details(self, row: int) -> tuple[int, Check | None]:
        """The first row of the same subscription, and what the record does not say."""
        return self._first_row[row], self._checks[row]

    # ---- Adding and removing

    def add(self, key: Hashable, filter_: Filter) -> None:
        """Add a subscription; its key must be new."""
        self._add(key, filter_)
        self._changed()

    def add_all(self, items: Iterable[tuple[Hashable, Filter]]) -> None:
        """Add subscriptions, whose keys must be new, and pack all afterwards."""
        self.pack()
        try:
            for key, filter_ in items:
                self._add(key, filter_, loose=True)
        finally:
            self._packing = self._pack()
            self.pack()

    def remove(self, key: Hashable) -> None:
        """Remove a subscription; KeyError if there is none."""
        rows = self._rows.pop(key)
        for row in rows if isinstance(rows, tuple) else (rows,):
            self._drop(row)
        self._changed()

    def _add(self, key: Hashable, filter_: Filter, *, loose: bool = False) -> None:
        form = filter_.normal_form
        terms = (ANYTHING,) if form is None else form
        rows: list[int] = []
        try:
            for term in terms:
                row = self._new_row(key)
                if rows:
                    self._first_row[row] = rows[0]
                if form is None:
                    self._checks[row] = WholeFilter(filter_)
                self._write(row, term, shared=len(terms) > 1, loose=loose)
                rows.append(row)
        except BaseException:
            for row in rows:  # What is there of it must not match.
                self._drop(row)
            raise
        self._rows.add(key, rows[0] if len(rows) == 1 else tuple(rows))

    def _new_row(self, key: Hashable) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
        else:
            row = self._row_count
            self._row_count += 1
            self._checks.append(None)
            self._first_row.append(row)
            self._make_room_for_rows()
        self._keys[row] = key
        return row

    def _drop(self, row: int) -> None:
        tiles = self._tiles
        if self._leaving is not None and row in self._leaving:
            tiles = self._leaving
        unused = tiles.remove(row, self._unused)
        self._free_rows.append(row)
        self._keys[row] = None
        self._checks[row] = None
        self._first_row[row] = row
        if unused:
            listed = self._unused[:unused].tolist()
            self.vocabulary.forget(listed)
            for each in self._all_tiles():
                each.forget_values(value for _, value in listed)

    def _write(self, row: int, term: Term, *, shared: bool, loose: bool) -> None:
        """Write the record of a row and put the row where it belongs."""
        tests: list[tuple[Attribute, Written]] = []
        left_open = tuple(islice(term.constraints, TESTS_MAX, None))
        vocabulary = self.vocabulary
        for name, accepted in islice(term.constraints.items(), TESTS_MAX):
            attribute = vocabulary.attribute(name)
            test = write_test(accepted, attribute.place, partial(vocabulary.use, attribute))
            tests.append((attribute, test))
            if not test.exact:
                left_open += (name,)
        if left_open or term.residuals:
            self._checks[row] = Checks(term, left_open)
        unsure = self._checks[row] is not None
        flags = (UNSURE if unsure else 0) | (SHARED if shared else 0)
        words = [head(row, flags, len(tests))]
        tests.sort(key=_form)
        for _, test in tests:
            words += test.words
        if len(words) > len(self._unused):
            self._unused = np.empty((2 * len(words), 2), np.int64)
        under = self._values_to_file_under(tests)
        if not under and unsure:
            under = self._token_to_file_under(term)
        self._make_room_for_names()
        if under:
            self._tiles.write(row, words)
            self._tiles.file(row, under)
        elif loose:
            self._tiles.write(row, words)
            self._tiles.leave_loose(row)
        else:
            tiles = self._tiles_for_new(row)
            tiles.write(row, words)
            tiles.insert(row)

    def _tiles_for_new(self, row: int) -> SubscriptionTiles:
        """The tiles that a new row goes to."""
        if self._leaving is None or self._late is None:
            return self._tiles
        self._late.append(row)
        self._tiles.forget_key(row)  # That of a row that had its number.
        return self._leaving

    def _values_to_file_under(self, tests: list[tuple[Attribute, Written]]) -> list[int]:
        """The values of the test that few other rows name, if there is such a test."""
        filed = self.vocabulary.filed
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
        known = self.vocabulary.attributes
        choices = [
            (*known[name].tokens.rarest(tokens), name)
            for name, tokens in required(term)
            if name in known  # Not if it has more tests than a record.
        ]
        if not choices:
            return []
        *_, token, name = min(choices)
        number = self.vocabulary.token(known[name], token)
        return [] if self.vocabulary.filed[number] >= FILED_TOKEN_ROWS_MAX else [number]

    # ---- Room

    def _all_tiles(self) -> Iterator[SubscriptionTiles]:
        yield from self._matched()
        if self._fresh is not None:
            yield self._fresh

    def _matched(self) -> Iterator[SubscriptionTiles]:
        """The tiles that rows are in."""
        yield self._tiles
        if self._leaving is not None:
            yield self._leaving

    def _make_room_for_rows(self) -> None:
        have = len(self._keys)
        if self._row_count > have:
            self._keys.resize(have + min(have // 4, KEYS_STEP), refcheck=False)
            self._keys_moved()
        for tiles in self._matched():
            tiles.make_room_for_rows(len(self._keys))

    def _make_room_for_names(self) -> None:
        named = len(self.vocabulary.by_place), len(self.vocabulary.uses)
        if named != self._named:
            self._named = named
            for tiles in self._all_tiles():
                tiles.make_room_for_names()
            for tiles in self._matched():
                tiles.divide_new_attributes()
            self._arrays_changed()

    def _keys_moved(self) -> None:
        addresses: Any = (ctypes.c_int64 * len(self._keys)).from_address(self._keys.ctypes.data)
        for tiles in self._matched():
            tiles.use_keys(np.frombuffer(addresses, np.int64))
        self._arrays_changed()

    def _arrays_changed(self) -> None:
        """Find rows in the arrays that there are now, and make new room for what is found."""
        self._readings = tuple(tiles.reading for tiles in self._matched())
        self._spare.clear()
        self._batch_rooms.clear()

    def memory(self) -> int:
        """Bytes in use."""
        lists = self._checks, self._first_row, self._free_rows
        rows = sum(map(sys.getsizeof, lists)) + self._keys.nbytes + self._rows.memory()
        numbers = (len(self._rows) + len(self._free_rows)) * sys.getsizeof(1 << 30)
        several = sum(sys.getsizeof(rows) for rows in self._rows.values() if type(rows) is tuple)
        checks = sum(check is not None for check in self._checks)
        return (
            sum(tiles.memory() for tiles in self._all_tiles())
            + self.vocabulary.memory()
            + rows
            + numbers
            + several
            + checks * sys.getsizeof(Checks(ANYTHING, ()))
        )

    # ---- Packing

    def pack(self) -> None:
        """Bring a packing that is under way to its end, however long that takes."""
        if self._packing is not None:
            packing.finish(self._packing)
            self._end_packing()

    def _changed(self) -> None:
        """Go on with a packing after a change, or begin one if there were many changes."""
        self._changes_left -= 1
        if self._packing is None and self._changes_left <= 0:
            self._packing = self._pack()
        if self._packing is not None:
            self._pack_some()
        if any(map(is_not, self._readings, (tiles.reading for tiles in self._matched()))):
            self._arrays_changed()

    def _pack_some(self) -> None:
        left: float = PACKED_AT_A_CHANGE
        for work in self._packing or ():
            left -= work
            if left <= 0:
                return
        self._end_packing()

    def _pack(self) -> Iterator[float]:
        """Divide all values anew, and move all rows to fresh tiles."""
        rows = self._row_count - len(self._free_rows)
        self._changes_left = max(PACK_MIN, rows // PACK_SHARE)
        old = self._tiles
        fresh = self._fresh = SubscriptionTiles(self.vocabulary, rows)
        yield from packing.divide_anew(old, fresh, self.vocabulary, self._row_count)
        fresh.make_room_for_names()
        fresh.divide_new_attributes()
        fresh.make_room_for_rows(len(self._keys))
        self._tiles, self._leaving, self._fresh = fresh, old, None
        self._keys_moved()
        late = self._late = []
        yield from packing.move_in_order(old, fresh, self._row_count)
        self._late = None
        yield from packing.move_late(old, fresh, late)
        yield from packing.move_filed(old, fresh, self.vocabulary.values)

    def _end_packing(self) -> None:
        self._packing = self._leaving = None
        self._arrays_changed()

    # ---- Matching one event

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Any]:
        """The keys of all subscriptions that match."""
        try:
            spare = self._spare.pop()
        except IndexError:  # None yet, or other threads have them.
            spare = self.new_spare()
        events = encode(self.vocabulary, attributes, spare)
        count, flags = match_event(*self._readings[0], *events, *spare.room)
        found = spare.room.found[:count]
        if self._leaving is not None:
            before = found.copy()
            count, more = match_event(*self._readings[1], *events, *spare.room)
            found = np.concatenate([before, spare.room.found[:count]])
            flags |= more
        if flags:
            keys = [self._keys[row] for row in self._settle(found.tolist(), attributes)]
        else:
            keys = self._keys.take(found).tolist()
        self._spare.append(spare)
        return keys

    def new_spare(self) -> Spare:
        """Room for encoding and matching an event."""
        return Spare(self.attributes, list(self._matched()))

    def _settle(self, rows: list[int], attributes: Mapping[str, Scalar | None]) -> list[int]:
        """The rows that match for sure, one for each subscription."""
        settled: list[int] = []
        seen: set[int] = set()
        for row in rows:
            first = self._first_row[row]
            if first in seen:
                continue
            check = self._checks[row]
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
        known = self.vocabulary.attributes
        rows = Rows(events, [name for name in names if name in known])
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
        events = encode_batch(self.vocabulary, columns)
        try:
            room = self._batch_rooms.pop()
        except IndexError:
            room = BatchRoom(self._matched())
        hits, flags = room.hits(self._readings, events)
        self._batch_rooms.append(room)
        positions, rows = by_event(hits, len(columns))
        if flags:
            kept = self._settle_batch(positions, rows, columns)
            positions, rows = positions[kept], rows[kept]
        return positions, rows

    def _keys_of(self, rows: Array) -> Array:
        keys = np.empty(len(rows), object)
        addresses = self._readings[0].keys
        for first in range(0, len(rows), KEYS_AHEAD):
            portion = rows[first : first + KEYS_AHEAD]
            prefetch_keys(addresses, portion)
            self._keys.take(portion, out=keys[first : first + KEYS_AHEAD], mode="clip")
        return keys

    def _settle_batch(
        self, positions: Array, rows: Array, columns: Columns
    ) -> npt.NDArray[np.bool_]:
        """Which hits remain when unsure rows are asked and shared subscriptions counted once."""
        kept = np.ones(len(rows), bool)
        seen: set[tuple[int, int]] = set()
        position = -1
        attributes: Mapping[str, Scalar | None] = {}
        for i in np.flatnonzero(self._flags(rows)).tolist():
            row = int(rows[i])
            if position != positions[i]:
                position = int(positions[i])
                attributes = columns.event(position)
            mark = position, self._first_row[row]
            check = self._checks[row]
            if mark not in seen and (check is None or check(attributes)):
                seen.add(mark)
            else:
                kept[i] = False
        return kept

    def _flags(self, rows: Array) -> Array:
        """The flags of rows, in whichever tiles they are."""
        flags = np.zeros(len(rows), np.int64)
        for tiles in self._matched():
            arrays = tiles.arrays
            here = arrays.row_slot[rows] != 0
            flags[here] = arrays.records[arrays.row_record[rows[here]]] >> FLAGS
        return flags & (UNSURE | SHARED)


def _form(test: tuple[Attribute, Written]) -> int:
    """Tests are sorted by form, the cheapest first: the processor can then guess what comes."""
    return test[1].words[0] & 255
