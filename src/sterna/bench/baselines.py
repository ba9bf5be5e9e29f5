"""What the matching index is measured against: two algorithms, compiled like its own.

Both start from the records that the index has made, and from events as it encodes them, so that
what differs is the algorithm. Patterns, which the index leaves to Python, are compiled here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from sterna.matching.checks import Checks
from sterna.matching.columns import Columns
from sterna.matching.compiled import CompiledSubscriptions
from sterna.matching.encoding import encode, encode_batch
from sterna.matching.kernels.compiling import Function
from sterna.matching.kernels.conditions import holds, in_set, next_test
from sterna.matching.kernels.layout import (
    KINDS,
    POINT,
    POINTS,
    RANGE,
    SET,
    Events,
)
from sterna.model.event import Scalar
from sterna.model.filters import patterns, values
from sterna.model.filters.tree import Attribute, Condition, Like, Matches, Not
from sterna.model.filters.values import ValueSet

Array = npt.NDArray[Any]

Event = dict[str, Scalar]

ONE_LETTER, ANY_RUN, RUN_IN_LEVEL, REST_OF_TOPIC = -1, -2, -3, -4
"""The special codes in a program, besides letters."""


def compiled(function: Function) -> Function:
    """Compile like a kernel of the index, but keep nothing on disk.

    Numba would not notice when the kernels change that these call.
    """
    made: Function = njit(nogil=True, _nrt=False)(function)
    return made


class Rows(NamedTuple):
    """The rows of a table, for the kernels."""

    records: Any
    numbers: Any
    start: Any  # Where the record of each row begins.
    subscription: Any  # The subscription that the row belongs to.
    first_program: Any  # The programs of row i are those from here to before that of row i + 1.
    program_attribute: Any
    program_wanted: Any  # Whether the pattern has to match, or must not.
    program_start: Any  # The letters of program i are those from here to before that of i + 1.
    letters: Any


class Texts(NamedTuple):
    """The strings of events as letters: those of event i and attribute a are a stretch of them."""

    start: Any
    end: Any
    letters: Any


class Baseline(ABC):
    """An algorithm that finds the subscriptions of a table that match."""

    def __init__(self, table: CompiledSubscriptions) -> None:
        self._table = table
        self._programmed: list[tuple[str, int]] = []
        self.rows = self._list_rows()
        self._found = np.empty(len(table) + 1, np.int32)
        self._seen = np.zeros(len(self.rows.start) + 1, np.int64)
        self._asked = 0
        self._spare = table.new_spare()

    def match(self, event: Event) -> list[int]:
        """The numbers of the subscriptions that match."""
        events = encode(self._table.vocabulary, event, self._spare)
        texts = self._texts(Columns({name: [event.get(name)] for name, _ in self._programmed}))
        return self._match(events, texts, 0).tolist()

    def match_batch(self, columns: Columns) -> tuple[Array, Array]:
        """Positions of events, each with the number of a subscription that matches."""
        events = encode_batch(self._table.vocabulary, columns)
        texts = self._texts(columns)
        found = [self._match(events, texts, i).copy() for i in range(len(columns))]
        positions = np.repeat(np.arange(len(found)), [len(hits) for hits in found])
        return positions, np.concatenate([self._found[:0], *found])

    @abstractmethod
    def _match(self, events: Events, texts: Texts, event: int) -> Array:
        """The numbers of the subscriptions that match one of the events."""

    def _texts(self, columns: Columns) -> Texts:
        shape = len(columns), self._table.attributes
        start, end = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        parts: list[bytes] = []
        length = 0
        data = dict(columns.items())
        for name, place in self._programmed:
            for i, value in enumerate(data[name].plain() if name in data else ()):
                text = value.encode("utf-32-le") if isinstance(value, str) else b""
                parts.append(text)
                start[i, place] = length
                length += len(text) // 4
                end[i, place] = length
        return Texts(start, end, np.frombuffer(b"".join(parts) or bytes(4), np.int32))

    def _list_rows(self) -> Rows:
        arrays = self._table.arrays
        live = np.flatnonzero(arrays.row_slot != 0)
        subscription: dict[int, int] = {}
        for row in live.tolist():
            subscription.setdefault(self._table.details(row)[0], len(subscription))
        live = live[np.argsort(arrays.row_record[live])]  # In the order in which they are stored.
        owners = np.empty(len(live), np.int64)
        programs: list[tuple[str, bool, list[int]]] = []
        first_program = [0]
        for i, row in enumerate(live.tolist()):
            first, check = self._table.details(row)
            owners[i] = subscription[first]
            if check is not None:
                programs += _programs(check)
            first_program.append(len(programs))
        names = sorted({name for name, _, _ in programs})
        self._programmed = [(name, self._table.vocabulary.attributes[name].place) for name in names]
        place = dict(self._programmed)
        lengths = [len(letters) for _, _, letters in programs]
        return Rows(
            records=arrays.records,
            numbers=arrays.numbers,
            start=arrays.row_record[live].astype(np.int64),
            subscription=owners,
            first_program=np.array(first_program),
            program_attribute=np.array([place[name] for name, _, _ in programs] or [0]),
            program_wanted=np.array([wanted for _, wanted, _ in programs] or [True]),
            program_start=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            letters=np.array([c for _, _, letters in programs for c in letters] or [0], np.int32),
        )


class BruteForce(Baseline):
    """Tests every row, and leaves it at the first test that fails."""

    def _match(self, events: Events, texts: Texts, event: int) -> Array:
        self._asked += 1
        count = _ask_all(self.rows, events, texts, event, self._asked, self._seen, self._found)
        return self._found[:count]


class Counting(Baseline):
    """The classical algorithm: count for every row how many of its tests hold.

    Equality tests are found by their values; ranges, as comparisons with one bound each, in sorted
    lists; all others are tested one by one.
    """

    def __init__(self, table: CompiledSubscriptions) -> None:
        super().__init__(table)
        self._postings = _index_tests(self.rows, table)
        self._counts = np.zeros(len(self._postings.needed), np.uint8)

    def _match(self, events: Events, texts: Texts, event: int) -> Array:
        self._asked += 1
        count = _count_all(
            self.rows,
            self._postings,
            events,
            texts,
            event,
            self._asked,
            self._counts,
            self._counts.view(np.uint64),
            self._seen,
            self._found,
        )
        return self._found[:count]


# ---- Brute force


@compiled
def _ask_all(r: Any, e: Any, texts: Any, event: int, asked: int, seen: Any, found: Any) -> int:
    kinds, numbers, rests, values = (
        e.kinds[event],
        e.numbers[event],
        e.rests[event],
        e.values[event],
    )
    count = 0
    for i in range(len(r.start)):
        if holds(r, r.start[i], kinds, numbers, rests, values):
            count = _report(r, i, texts, event, asked, seen, found, count)
    return count


@compiled
def _report(
    r: Any, i: int, texts: Any, event: int, asked: int, seen: Any, found: Any, count: int
) -> int:
    """Note the subscription of a row whose tests hold, once, if its patterns fit as well."""
    owner = r.subscription[i]
    if seen[owner] != asked and _programs_fit(r, i, texts, event):
        seen[owner] = asked
        found[count] = owner
        count += 1
    return count


@compiled
def _programs_fit(r: Any, i: int, texts: Any, event: int) -> bool:
    for p in range(r.first_program[i], r.first_program[i + 1]):
        if not _program_fits(r, p, texts, event):
            return False
    return True


@compiled
def _program_fits(r: Any, p: int, texts: Any, event: int) -> bool:
    a = r.program_attribute[p]
    fits = _fits(
        r.letters,
        r.program_start[p],
        r.program_start[p + 1],
        texts.letters,
        texts.start[event, a],
        texts.end[event, a],
    )
    return fits == r.program_wanted[p]


@compiled
def _fits(program: Any, p: int, p_end: int, text: Any, t: int, t_end: int) -> bool:
    """Whether a program fits a text. Of runs of any letters, only the last is tried again."""
    run = -1
    run_start = 0
    while t < t_end or p < p_end:
        letter = program[p] if p < p_end else 0
        if p < p_end and letter == ANY_RUN:
            run, run_start = p, t
            p += 1
            continue
        if p < p_end and letter == REST_OF_TOPIC:
            return t == t_end or text[t] == _SLASH
        if p < p_end and letter == RUN_IN_LEVEL:
            while t < t_end and text[t] != _SLASH:
                t += 1
            p += 1
            continue
        if p < p_end and t < t_end and (letter == ONE_LETTER or letter == text[t]):
            p += 1
            t += 1
            continue
        if run < 0 or run_start >= t_end:
            return False
        run_start += 1
        t = run_start
        p = run + 1
    return True


_SLASH = ord("/")


def _programs(check: Any) -> Iterable[tuple[str, bool, list[int]]]:
    if not isinstance(check, Checks):
        raise TypeError("the baselines know patterns and no other residuals")
    for name, accepted in check.open_sets():
        wanted, letters = _program_of_set(accepted)
        yield name, wanted, letters
    for residual in check.residuals():
        yield _program_of_residual(residual)


def _program_of_set(accepted: ValueSet) -> tuple[bool, list[int]]:
    """The program of strings that begin alike, or of all others."""
    for wanted, strings in ((True, accepted), (False, values.STRINGS - accepted)):
        text = strings.cuts[0][1]
        if strings == values.starting_with(text):
            return wanted, [*map(ord, text), ANY_RUN]
        if strings == values.members([text]) | values.starting_with(text + "/"):
            return wanted, [*map(ord, text), REST_OF_TOPIC]
    raise TypeError("the baselines know no other sets of strings")


def _program_of_residual(residual: Condition) -> tuple[str, bool, list[int]]:
    match residual:
        case Not(Like(Attribute(name)) | Matches(Attribute(name)) as pattern):
            return name, False, _program(pattern)
        case Like(Attribute(name)) | Matches(Attribute(name)):
            return name, True, _program(residual)
    raise TypeError("the baselines know patterns and no other residuals")


def _program(pattern: Like | Matches) -> list[int]:
    letters: list[int] = []
    if isinstance(pattern, Like):
        for segment in patterns.like_segments(pattern.pattern, pattern.escape):
            letters += [ONE_LETTER if c is None else ord(c) for c in segment]
            letters.append(ANY_RUN)
        return letters[:-1]
    for place, level in enumerate(pattern.topic.split("/")):
        if level == "#":
            return [*letters, REST_OF_TOPIC]
        letters += [_SLASH] if place else []
        letters += [RUN_IN_LEVEL] if level == "+" else map(ord, level)
    return letters


# ---- Counting

IMPOSSIBLE = 255
"""More tests than any row has."""


class Postings(NamedTuple):
    """Where tests are found: by value, by lower and by upper bound, and all others."""

    value_start: Any  # The rows that name value v are those from here to before that of v + 1.
    value_row: Any
    low_start: Any  # Where the lower bounds of attribute a begin, ascending.
    low_bound: Any
    low_row: Any
    high_start: Any  # Where the upper bounds of attribute a begin, ascending.
    high_bound: Any
    high_row: Any
    other_row: Any
    other_test: Any
    needed: Any  # How many hits make a row match.
    needed_words: Any  # The needed hits, eight rows at a time.


def _index_tests(rows: Rows, table: CompiledSubscriptions) -> Postings:
    count = _list_tests(rows, None)
    listed = np.empty((count, 5))
    _list_tests(rows, listed)
    row = listed[:, 0].astype(np.int32)
    attribute = listed[:, 1].astype(np.int64)
    form = listed[:, 2]
    low, high = listed[:, 3], listed[:, 4]
    points = form == POINT
    lows = (form == RANGE) & (low > -np.inf)
    highs = (form == RANGE) & ((high < np.inf) | ~(low > -np.inf))
    others = form >= KINDS
    needed = np.zeros(len(rows.start), np.int64)
    for chosen in (lows, highs, others):
        needed += np.bincount(row[chosen], minlength=len(needed))
    first_of_list = points & (high == 0)  # Of several values, one suffices.
    needed += np.bincount(row[first_of_list], minlength=len(needed))
    if needed.max(initial=0) >= IMPOSSIBLE:
        raise ValueError("counting has room for 254 tests in a filter")
    padded = np.full(len(needed) + 7 & ~7, IMPOSSIBLE, np.uint8)
    padded[: len(needed)] = needed
    by_value = np.flatnonzero(points)[np.argsort(low[points], kind="stable")]
    by_low = np.flatnonzero(lows)[np.lexsort((low[lows], attribute[lows]))]
    by_high = np.flatnonzero(highs)[np.lexsort((high[highs], attribute[highs]))]
    values_known = np.arange(len(table.arrays.value_cell) + 1)
    attributes = np.arange(table.attributes + 1)
    return Postings(
        value_start=np.searchsorted(low[by_value], values_known),
        value_row=row[by_value],
        low_start=np.searchsorted(attribute[by_low], attributes),
        low_bound=low[by_low],
        low_row=row[by_low],
        high_start=np.searchsorted(attribute[by_high], attributes),
        high_bound=high[by_high],
        high_row=row[by_high],
        other_row=row[others],
        other_test=low[others].astype(np.int64),
        needed=padded,
        needed_words=padded.view(np.uint64),
    )


@compiled
def _list_tests(r: Any, listed: Any) -> int:
    """Write for each test its row, attribute, form, and then: its bounds; or, for each value, that
    and its place in the list; or where the test is.
    """
    count = 0
    for i in range(len(r.start)):
        test = r.start[i] + 1
        for _ in range(r.records[r.start[i]] & 0xFFFF):
            head = r.records[test]
            form = head & 255
            end = next_test(r, test)
            for k in range(end - test - 1 if form == POINTS else 1):
                if listed is not None:
                    listed[count, 0] = i
                    listed[count, 1] = head >> 8 & 0xFFFFFF
                    listed[count, 2] = POINT if form == POINTS else form
                    listed[count, 3] = test
                    listed[count, 4] = k
                    if form == RANGE:
                        listed[count, 3] = r.numbers[test + 1]
                        listed[count, 4] = r.numbers[test + 2]
                    elif form == POINT:
                        listed[count, 3] = head >> 32
                    elif form == POINTS:
                        listed[count, 3] = r.records[test + 1 + k]
                count += 1
            test = end
    return count


@compiled
def _count_all(
    r: Any,
    p: Any,
    e: Any,
    texts: Any,
    event: int,
    asked: int,
    counts: Any,
    counts_words: Any,
    seen: Any,
    found: Any,
) -> int:
    counts[:] = 0
    one = np.uint8(1)
    for a in range(e.values.shape[1]):
        value = e.values[event, a]
        if value >= 0:
            for i in range(p.value_start[value], p.value_start[value + 1]):
                counts[p.value_row[i]] += one
        number = e.numbers[event, a]
        if not np.isnan(number):
            first = p.low_start[a]
            last = first + np.searchsorted(
                p.low_bound[first : p.low_start[a + 1]], number, side="right"
            )
            for i in range(first, last):
                counts[p.low_row[i]] += one
            above = number if e.rests[event, a] == 0 else np.nextafter(number, np.inf)
            first = p.high_start[a] + np.searchsorted(
                p.high_bound[p.high_start[a] : p.high_start[a + 1]], above
            )
            for i in range(first, p.high_start[a + 1]):
                counts[p.high_row[i]] += one
    for i in range(len(p.other_row)):
        test = p.other_test[i]
        head = r.records[test]
        a = head >> 8 & 0xFFFFFF
        kind = np.int64(e.kinds[event, a])
        if head & 255 == SET:
            hold = in_set(r, test, kind, e.numbers[event, a], e.rests[event, a], e.values[event, a])
        else:
            hold = (head >> 32 >> kind & 1) == 1
        if hold:
            counts[p.other_row[i]] += one
    count = 0
    for word in range(len(p.needed_words)):
        different = counts_words[word] ^ p.needed_words[word]
        if not (different - _LOW_BITS) & ~different & _HIGH_BITS:
            continue  # None of eight rows has just as many hits as it needs.
        for i in range(8 * word, 8 * word + 8):
            if counts[i] == p.needed[i]:
                count = _report(r, i, texts, event, asked, seen, found, count)
    return count


_LOW_BITS = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
