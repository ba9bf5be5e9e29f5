"""The vocabulary of an index: the attributes, values and parts of strings that filters name."""

import math
import sys
from collections.abc import Iterable

import numpy as np

from sterna.matching.floats import floor
from sterna.matching.growth import LargeDict, grown, zeros
from sterna.matching.tokens import Tokens
from sterna.model.event import Scalar

FIRST_VALUES = 64


class Attribute:
    """An attribute that filters name."""

    __slots__ = ("ids", "place", "tokens")

    def __init__(self, place: int) -> None:
        self.place = place
        """The number of the attribute, and its column in encoded events."""
        self.ids: LargeDict[Scalar, int] = LargeDict()
        """The values that tests name, each with its number."""
        self.tokens = Tokens()
        """Parts of strings under which rows are filed, numbered like values."""


class Vocabulary:
    """Attributes, and values and tokens with their numbers.

    Values and tokens are forgotten when no row uses them, attributes never.
    """

    def __init__(self) -> None:
        self.attributes: dict[str, Attribute] = {}
        self.by_place: list[Attribute] = []
        self.values = 0
        """How many numbers of values there are, free ones included."""
        self.number = zeros((FIRST_VALUES,), np.float64)
        """For each value the number that it is, NaN for strings and tokens."""
        self.uses = zeros((FIRST_VALUES,), np.int32)
        """How many tests name each value."""
        self.filed = zeros((FIRST_VALUES,), np.int32)
        """How many rows are filed under each value."""
        self.string_of = zeros((FIRST_VALUES,), np.int32)
        """For a string the place of its attribute, counted from 1; otherwise 0."""
        self._words: list[Scalar] = []
        self._owners: list[Attribute] = []
        self._free: list[int] = []

    def attribute(self, name: str) -> Attribute:
        """The attribute of a name, which is new if it was not known."""
        found = self.attributes.get(name)
        if found is None:
            found = self.attributes[name] = Attribute(len(self.by_place))
            self.by_place.append(found)
        return found

    def use(self, attribute: Attribute, value: Scalar) -> int:
        """The number of a value that one more test names."""
        number: int | None = attribute.ids.get(value)
        if number is None:
            number = self._new(attribute, value)
            attribute.ids.add(value, number)
            if isinstance(value, str):
                self.string_of[number] = attribute.place + 1
            else:
                self.number[number] = floor(value)[0]
        self.uses[number] += 1
        return number

    def token(self, attribute: Attribute, token: str) -> int:
        """The number of a token."""
        number = attribute.tokens.get(token)
        if number is None:
            number = self._new(attribute, token)
            attribute.tokens.add(token, number)
        return number

    def _new(self, attribute: Attribute, word: Scalar) -> int:
        if self._free:
            number = self._free.pop()
        else:
            number = self.values
            self.values += 1
            self._words.append(word)
            self._owners.append(attribute)
            if number == len(self.uses):
                self._grow(number + number // 4)
        self._words[number] = word
        self._owners[number] = attribute
        self.number[number] = math.nan
        return number

    def _grow(self, length: int) -> None:
        self.number = grown(self.number, length)
        self.uses = grown(self.uses, length)
        self.filed = grown(self.filed, length)
        self.string_of = grown(self.string_of, length)

    def forget(self, unused: Iterable[tuple[int, int]]) -> None:
        """Forget values, given with their attributes, and tokens, given with -1."""
        for place, number in unused:
            word = self._words[number]
            if place >= 0:
                self.by_place[place].ids.pop(word)
            else:
                self._owners[number].tokens.remove(str(word))
            self.string_of[number] = 0
            self._free.append(number)

    def memory(self) -> int:
        """How many bytes are in use, without the values."""
        arrays = (self.number, self.uses, self.filed, self.string_of)
        lists = (self._words, self._owners, self._free)
        known = sum(each.ids.memory() + each.tokens.memory() for each in self.by_place)
        numbers = self.values * sys.getsizeof(1 << 30)
        return (
            sum(each.nbytes for each in arrays) + sum(map(sys.getsizeof, lists)) + known + numbers
        )
