"""`CompiledSubscriptions`: many subscriptions, as rows that compiled code finds."""

import ctypes
import sys
from array import array
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import is_not
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching.batches import BatchRoom, by_event
from sterna.matching.checks import Check, Checks, WholeFilter
from sterna.matching.columns import Columns, Rows
from sterna.matching.encoding import Spare, encode, encode_batch
from sterna.matching.filing import token_to_file_under, values_to_file_under
from sterna.matching.generations import Generations
from sterna.matching.growth import LargeDict
from sterna.matching.kernels.entries import match_event
from sterna.matching.kernels.layout import Arrays
from sterna.matching.kernels.matching import prefetch_keys
from sterna.matching.records import SHARED, TESTS_MAX, UNSURE, EncodedTest, head, write_test
from sterna.matching.vocabulary import Attribute, Vocabulary
from sterna.model.event import Scalar
from sterna.model.filters.filter import Filter
from sterna.model.filters.long_texts import Interrupted, LongTexts, checked
from sterna.model.filters.normal_form import ANYTHING, Term

EACH_MIN = 16
"""From so many events on, it pays to put them into columns."""

EACH_SLICE = 64
"""So many events are matched in a slice, except for the checks."""

CHECKS_SLICE = 64
"""So many checks are made before the time is looked at."""

KEYS_AHEAD = 512
"""How many keys are prefetched before they are needed."""

KEYS_STEP = 1 << 16
"""For how many more keys room is made at a time, at most."""

Array = npt.NDArray[Any]


class CompiledSubscriptions:
    """Subscriptions in compiled form; `MatchIndex` is the way to use it.

    Every alternative of a filter is a row, with a number. What the row's record does not express is
    in lists here; its record is in tiles, which `Generations` replaces from time to time.
    """

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.generations = Generations(self.vocabulary)
        self._rows: LargeDict[Hashable, int | tuple[int, ...]] = LargeDict()
        self._keys = np.empty(64, object)
        self._checks: list[Check | None] = []
        self._first_row = array("i")
        self._unused = np.empty((64, 2), np.int64)
        self._named = 0, 0
        self.unsure = 0
        """How many rows need a check when their records hold."""
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
        return self.generations.current.arrays

    def details(self, row: int) -> tuple[int, Check | None]:
        """The first row of the same subscription, and what the record does not express."""
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
            self.generations.pack_anew()
            self._arrays_changed()

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
                self.unsure += self._checks[row] is not None
                rows.append(row)
        except BaseException:
            for row in rows:  # What is there of it must not match.
                self._drop(row)
            raise
        self._rows.add(key, rows[0] if len(rows) == 1 else tuple(rows))

    def _new_row(self, key: Hashable) -> int:
        row = self.generations.new_row()
        if row == len(self._checks):
            self._checks.append(None)
            self._first_row.append(row)
        if row >= len(self._keys):
            self._keys.resize(row + min(row // 4, KEYS_STEP), refcheck=False)
            self._keys_moved()
        self._keys[row] = key
        return row

    def _drop(self, row: int) -> None:
        unused = self.generations.remove(row, self._unused)
        self._keys[row] = None
        self.unsure -= self._checks[row] is not None
        self._checks[row] = None
        self._first_row[row] = row
        if unused:
            listed = self._unused[:unused].tolist()
            self.vocabulary.forget(listed)
            self.generations.forget_values([value for _, value in listed])

    def _write(self, row: int, term: Term, *, shared: bool, loose: bool) -> None:
        """Write the record of a row and put the row where it belongs."""
        tests: list[tuple[Attribute, EncodedTest]] = []
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
        under = values_to_file_under(tests, vocabulary)
        if not under and unsure:
            under = token_to_file_under(term, vocabulary)
        named = len(vocabulary.by_place), len(vocabulary.uses)
        if named != self._named:
            self._named = named
            self.generations.make_room_for_names()
            self._arrays_changed()
        if under:
            self.generations.file(row, words, under)
        elif loose:
            self.generations.leave_loose(row, words)
        else:
            self.generations.insert(row, words)

    # ---- Room

    def _keys_moved(self) -> None:
        addresses: Any = (ctypes.c_int64 * len(self._keys)).from_address(self._keys.ctypes.data)
        self.generations.use_keys(np.frombuffer(addresses, np.int64))
        self._arrays_changed()

    def _arrays_changed(self) -> None:
        """Find rows in the arrays that there are now, and make new room for what is found."""
        self._readings = self.generations.readings()
        self._spare.clear()
        self._batch_rooms.clear()

    def memory(self) -> int:
        """How many bytes are in use."""
        lists = self._checks, self._first_row
        rows = sum(map(sys.getsizeof, lists)) + self._keys.nbytes + self._rows.memory()
        numbers = len(self._rows) * sys.getsizeof(1 << 30)
        several = sum(sys.getsizeof(rows) for rows in self._rows.values() if type(rows) is tuple)
        checks = sum(check is not None for check in self._checks)
        return (
            self.generations.memory()
            + self.vocabulary.memory()
            + rows
            + numbers
            + several
            + checks * sys.getsizeof(Checks(ANYTHING, ()))
        )

    # ---- Packing

    def pack(self) -> None:
        """Bring a packing that is under way to its end, however long that takes."""
        self.generations.pack()
        self._arrays_changed()

    def _changed(self) -> None:
        self.generations.changed()
        readings = self.generations.readings()
        if len(readings) != len(self._readings) or any(map(is_not, readings, self._readings)):
            self._arrays_changed()

    # ---- Matching one event

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Any]:
        """The keys of all subscriptions that match."""
        spare = self._take_spare()
        found, flags = self._find(attributes, spare)
        if flags:
            keys = [self._keys[row] for row in self._settle(found.tolist(), attributes)]
        else:
            keys = self._keys.take(found).tolist() if len(found) else []
        self._spare.append(spare)
        return keys

    def _take_spare(self) -> Spare:
        try:
            return self._spare.pop()
        except IndexError:  # None yet, or other threads have them.
            return self.new_spare()

    def _find(self, attributes: Mapping[str, Scalar | None], spare: Spare) -> tuple[Array, int]:
        """The rows whose records hold, in the room of `spare`, and what some of them are."""
        events = encode(self.vocabulary, attributes, spare)
        count, flags = match_event(*self._readings[0], *events, *spare.room)
        found = spare.room.found[:count]
        if len(self._readings) > 1:
            before = found.copy()
            count, more = match_event(*self._readings[1], *events, *spare.room)
            found = np.concatenate([before, spare.room.found[:count]])
            flags |= more
        return found, flags

    def new_spare(self) -> Spare:
        """Room for encoding and matching an event."""
        return Spare(self.attributes, list(self.generations.matched()))

    def _settle(self, rows: list[int], attributes: Mapping[str, Scalar | None]) -> list[int]:
        """The rows that certainly match, one for each subscription."""
        known = LongTexts()
        settled: list[int] = []
        seen: set[int] = set()
        for row in rows:
            first = self._first_row[row]
            if first in seen:
                continue
            check = self._checks[row]
            if check is None or check(attributes, known):
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
        positions, keys = self.match_batch(self._columns(events))
        for place, key in zip(positions.tolist(), keys.tolist(), strict=True):
            if key in found:
                found[key].append(place)
            else:
                found[key] = [place]
        return found

    def match_in_slices(
        self, events: Sequence[Mapping[str, Scalar | None]], known: LongTexts
    ) -> Generator[None, None, dict[Any, list[int]]]:
        """The same as `match_each`; it yields whenever the time of `known` is up."""
        found: dict[Any, list[int]] = {}
        for start in range(0, len(events), EACH_SLICE):
            checks = 0
            candidates = self._candidates(events, start)
            if known.is_time_up:
                yield
            for place, key, check in candidates:
                places = found.setdefault(key, [])
                if places and places[-1] == place:
                    continue  # Another alternative of the same filter matches.
                if check is not None:
                    checks += 1
                    if checks % CHECKS_SLICE == 0 and known.is_time_up:
                        yield
                    try:  # Most often it is enough to call it.
                        matches = check(events[place], known)
                    except Interrupted:
                        matches = yield from checked(check, events[place], known)
                    if not matches:
                        continue
                places.append(place)
            if known.is_time_up:
                yield
        return {key: places for key, places in found.items() if places}

    def _candidates(
        self, events: Sequence[Mapping[str, Scalar | None]], start: int
    ) -> Iterable[tuple[int, Any, Check | None]]:
        """What may match some events, by event: the event's place, a key, and what has to hold.

        It stays as it is while subscriptions come and go.
        """
        portion = events[start : start + EACH_SLICE]
        if len(portion) < EACH_MIN:
            listed: list[tuple[int, Any, Check | None]] = []
            for place, attributes in enumerate(portion, start):
                spare = self._take_spare()
                rows = self._find(attributes, spare)[0].tolist()
                self._spare.append(spare)
                listed += [(place, self._keys[row], self._checks[row]) for row in rows]
            return listed
        positions, found, _ = self._hits(self._columns(portion))
        places = (positions + start).tolist()
        checks = [self._checks[row] for row in found.tolist()]
        return zip(places, self._keys_of(found).tolist(), checks, strict=True)

    def _columns(self, events: Sequence[Mapping[str, Scalar | None]]) -> Rows:
        names = dict.fromkeys(chain.from_iterable(events))
        known = self.vocabulary.attributes
        return Rows(events, [name for name in names if name in known])

    def match_batch(self, columns: Columns) -> tuple[Array, Array]:
        """The positions of events, ascending, each with the key of a subscription that matches."""
        positions, rows = self.match_rows(columns)
        return positions, self._keys_of(rows)

    def match_rows(self, columns: Columns) -> tuple[Array, Array]:
        """The positions of events with rows, whose keys are in `keys`: less work for counting."""
        positions, rows, flags = self._hits(columns)
        if flags:
            kept = self._settle_batch(positions, rows, columns)
            positions, rows = positions[kept], rows[kept]
        return positions, rows

    def _hits(self, columns: Columns) -> tuple[Array, Array, int]:
        """The positions of events with rows whose records hold, and what some of those are."""
        events = encode_batch(self.vocabulary, columns)
        try:
            room = self._batch_rooms.pop()
        except IndexError:
            room = BatchRoom(self.generations.matched())
        hits, flags = room.hits(self._readings, events)
        self._batch_rooms.append(room)
        positions, rows = by_event(hits, len(columns))
        return positions, rows, flags

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
        """Which hits remain when unsure rows are checked and shared subscriptions counted once."""
        kept = np.ones(len(rows), bool)
        known = LongTexts()
        seen: set[tuple[int, int]] = set()
        position = -1
        attributes: Mapping[str, Scalar | None] = {}
        for i in np.flatnonzero(self.generations.flags(rows) & (UNSURE | SHARED)).tolist():
            row = int(rows[i])
            if position != positions[i]:
                position = int(positions[i])
                attributes = columns.event(position)
            mark = position, self._first_row[row]
            check = self._checks[row]
            if mark not in seen and (check is None or check(attributes, known)):
                seen.add(mark)
            else:
                kept[i] = False
        return kept


def _form(test: tuple[Attribute, EncodedTest]) -> int:
    """Tests are sorted by form, the cheapest first, which helps branch prediction."""
    return test[1].words[0] & 255
