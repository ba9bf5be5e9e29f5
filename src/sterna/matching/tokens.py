"""Tokens: parts of strings under which rows that ask for a pattern are filed.

A token is how a string begins, or letters that occur somewhere in it.
A row is filed under one token that every matching string has; an event looks up all tokens of its
strings. Tokens come in few lengths, so that those are not many.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.matching.growth import LargeDict
from sterna.model.filters import patterns, values
from sterna.model.filters.long_texts import Segment
from sterna.model.filters.normal_form import Term
from sterna.model.filters.tree import Attribute, Like, Matches
from sterna.model.filters.values import STRINGS_RANK, ValueSet

BEGINNING_MIN, BEGINNING_MAX = 3, 64
"""How long a token for the beginning of a string may be."""

PARTS = (6, 3)
"""How long the other tokens may be; the longest that fits is taken."""

_BEGINS = "\ud800"
"""Marks a beginning; no string has this letter, which is half of one."""

COUNTED_MAX = 40_000
"""So many different tokens are counted before counting begins anew."""

LONG = 512
"""In strings with so many letters, all tokens of a length are looked up together."""

HASHING_COST = 4
"""Hashing all tokens takes so many times as long as looking up as many parts of a string. Whenever
a filter comes or goes, they have to be hashed again."""

CELLS_PER_LETTER, CELLS_MAX_BITS = 4, 22
"""How many cells there are for the hashes of a string's parts, which keep most of them apart."""

Array = npt.NDArray[Any]


class Tokens:
    """The tokens of one attribute under which rows are filed, each with its number."""

    __slots__ = ("_counts", "_counts_before", "_hashed", "_lengths", "_numbers")

    def __init__(self) -> None:
        self._numbers: LargeDict[str, int] = LargeDict()
        self._lengths: Counter[int] = Counter()
        self._counts: dict[str, int] = {}
        self._counts_before: dict[str, int] = {}
        self._hashed: dict[int, tuple[Array, Array]] = {}
        """By length, the hashes of tokens and their numbers, if a long string needed them."""

    def __len__(self) -> int:
        return len(self._numbers)

    def __bool__(self) -> bool:
        return bool(self._lengths)  # Called for every string of an event.

    def get(self, token: str) -> int | None:
        number: int | None = self._numbers.get(token)
        return number

    def add(self, token: str, number: int) -> None:
        self._numbers.add(token, number)
        length = _length(token)
        self._lengths[length] += 1
        self._hashed.pop(length, None)

    def remove(self, token: str) -> None:
        self._numbers.pop(token)
        length = _length(token)
        self._lengths[length] -= 1
        self._hashed.pop(length, None)
        if not self._lengths[length]:
            del self._lengths[length]

    def rarest(self, tokens: list[str]) -> tuple[int, int, str]:
        """Of the tokens that a row could be filed under, the one that fewest rows have had.

        What many filters need, many events will have. Return how many it was, then what makes a
        longer token the better one, then the token.
        """
        counts, before = self._counts, self._counts_before
        for token in tokens:
            counts[token] = counts.get(token, 0) + 1
        found = min((counts[token] + before.get(token, 0), -len(token), token) for token in tokens)
        if len(counts) > COUNTED_MAX:  # What is no longer needed is forgotten.
            self._counts, self._counts_before = {}, counts
        return found

    def memory(self) -> int:
        """How many bytes are in use."""
        counts = self._counts, self._counts_before
        strings = {*self._numbers, *self._counts, *self._counts_before}
        return (
            self._numbers.memory()
            + sum(map(sys.getsizeof, counts))
            + sum(map(sys.getsizeof, strings))
            + sys.getsizeof(1 << 30) * len(self._numbers)
            + sum(each.nbytes for hashed in self._hashed.values() for each in hashed)
        )

    def of(self, text: str) -> dict[int, None]:
        """The numbers of all tokens of a string, and with a long one of a few others."""
        found: dict[int, None] = {}
        number = self._numbers.get
        for length in self._lengths:
            if length < 0:
                known = number(_BEGINS + text[:-length])
                if known is not None:
                    found[known] = None
            elif len(text) >= LONG and self._has_hashes(length, len(text)):
                found.update(dict.fromkeys(self._of_long(text, length)))
            else:
                for start in range(len(text) - length + 1):
                    known = number(text[start : start + length])
                    if known is not None:
                        found[known] = None
        return found

    def _has_hashes(self, length: int, letters: int) -> bool:
        """Whether the hashes of tokens are known, or made for a string of so many letters."""
        if length not in self._hashed:
            if len(self._numbers) * HASHING_COST > letters:
                return False
            tokens = [token for token in self._numbers if _length(token) == length]
            numbers = np.array([self.get(token) for token in tokens], np.int32)
            # One after the other they are a string, of which only each whole token counts.
            self._hashed[length] = _hashes("".join(tokens), length)[::length], numbers
        return True

    def _of_long(self, text: str, length: int) -> list[int]:
        """The numbers of the tokens of a length whose hashes some part of the string has."""
        bits = min((CELLS_PER_LETTER * len(text)).bit_length(), CELLS_MAX_BITS)
        shift = np.uint32(32 - bits)
        cells = np.zeros(1 << bits, bool)
        cells[_hashes(text, length) >> shift] = True
        hashes, numbers = self._hashed[length]
        found: list[int] = numbers[cells[hashes >> shift]].tolist()
        return found


def _hashes(text: str, length: int) -> Array:
    """Hashes of all parts of a string that have a length, in their order."""
    letters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    count = len(letters) - length + 1
    hashes = letters[:count].copy()
    for place in range(1, length + 1):
        hashes *= np.uint32(0x9E3779B1)
        if place < length:
            hashes += letters[place : place + count]
    return hashes


def _length(token: str) -> int:
    """The length of a token, negative for beginnings."""
    return 1 - len(token) if token.startswith(_BEGINS) else len(token)


def required(term: Term) -> Iterator[tuple[str, list[str]]]:
    """Attributes, each with tokens that its value has in every event that the term accepts."""
    for name, accepted in term.constraints.items():
        beginning = _common_beginning(accepted)
        tokens = _tokens(beginning, beginning)
        if tokens:
            yield name, tokens
    for residual in term.residuals:
        match residual:
            case Like(Attribute(name)):
                segments = patterns.like_segments(residual.pattern, residual.escape)
                runs = list(_runs_of_segments(segments))
                beginning = runs[0]
            case Matches(Attribute(name)):
                runs = list(_runs_of_topic(residual.topic))
                beginning = runs[0]
            case _:
                continue
        tokens = [token for run in runs for token in _tokens("", run)] + _tokens(beginning, "")
        if tokens:
            yield name, tokens


def _tokens(beginning: str, run: str) -> list[str]:
    """Tokens of a string that begins so and has this run of letters somewhere."""
    found = []
    if len(beginning) >= BEGINNING_MIN:
        found.append(_BEGINS + beginning[:BEGINNING_MAX])
    length = next((length for length in PARTS if length <= len(run)), len(run) + 1)
    return found + [run[start : start + length] for start in range(len(run) - length + 1)]


def _common_beginning(accepted: ValueSet) -> str:
    """What all accepted values begin with, if those are strings given by their beginnings."""
    cuts = accepted.cuts
    if not cuts or cuts[0][0] != STRINGS_RANK:
        return ""
    common: str = cuts[0][1]
    listed = True
    for start, end in accepted.stretches():
        text: str = start[1]
        if ValueSet((start, end)) == values.starting_with(text):
            listed = False
        elif end != values.cut_after(text):
            return ""
        while not text.startswith(common):
            common = common[:-1]
    return "" if listed else common


def _runs_of_segments(segments: list[Segment]) -> Iterator[str]:
    """The runs of plain letters in the segments of a LIKE pattern, where None is any letter."""
    for segment in segments:
        run = ""
        for letter in (*segment, None):
            if letter is None:
                yield run
                run = ""
            else:
                run += letter


def _runs_of_topic(topic: str) -> Iterator[str]:
    """The runs of plain levels in a topic filter; what `#` matches may be missing."""
    run = ""
    for place, level in enumerate(topic.removesuffix("/#").split("/")):
        slash = "/" if place else ""
        if level == "+":
            yield run + slash
            run = ""
        elif level == "#":
            break
        else:
            run += slash + level
    yield run
