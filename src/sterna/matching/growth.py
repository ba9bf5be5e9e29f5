"""Arrays and dicts that grow without stopping their user for long, however large they are."""

import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

COPIED_MAX = 1 << 20
"""Bytes up to which an array is copied into a larger one when it grows, which takes under 1 ms."""

RESERVED = 1 << 30
"""Bytes of address space that a larger array gets. The system provides memory when it is used."""

PART_MAX = 4096
"""How many entries a part of a `LargeDict` has on average, at most."""

Array = npt.NDArray[Any]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of zeros that can grow along its first axis."""
    return grown(np.zeros((0, *shape[1:]), dtype), shape[0])


def grown(array: Array, length: int) -> Array:
    """An array made by `zeros`, at least as long as it was, with zeros behind what was in it."""
    owner = array if array.base is None else array.base
    if length <= len(owner):
        return owner[:length]
    each = max(1, int(np.prod(array.shape[1:]))) * array.itemsize
    larger = _reserve(length, RESERVED // each if length * each > COPIED_MAX else 0, array)
    larger[: len(array)] = array
    return larger[:length]


def _reserve(length: int, reserved: int, like: Array) -> Array:
    if reserved > length:
        try:
            return np.zeros((reserved, *like.shape[1:]), like.dtype)
        except MemoryError:  # The system does not promise memory that it may not have.
            pass
    return np.zeros((length, *like.shape[1:]), like.dtype)


class LargeDict(Generic[Key, Value]):
    """A dict of any size in small parts: they grow and are split one at a time.

    A dict that grows copies all its entries. Here that happens to a part only. The parts are found
    by linear hashing: with n parts, where 2^k <= n < 2^(k+1), those before n - 2^k have been split
    already, and one more bit of the hash tells their entries apart.
    """

    __slots__ = ("_length", "_parts", "get")

    get: "Callable[..., Any]"
    """The value of a key, or else the second argument or None. Of a single part, its own `get`."""

    def __init__(self) -> None:
        self._parts: list[dict[Key, Value]] = [{}]
        self._length = 0
        self.get = self._parts[0].get

    def __getstate__(self) -> list[dict[Key, Value]]:
        return self._parts

    def __setstate__(self, parts: list[dict[Key, Value]]) -> None:
        self._parts = parts
        self._length = sum(map(len, parts))
        self.get = parts[0].get if len(parts) == 1 else self._get

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: Key) -> bool:
        return key in self._part(key)

    def __iter__(self) -> Iterator[Key]:
        return (key for part in self._parts for key in part)

    def values(self) -> Iterator[Value]:
        return (value for part in self._parts for value in part.values())

    def add(self, key: Key, value: Value) -> None:
        """Add an entry under a key that is new."""
        self._part(key)[key] = value
        self._length += 1
        if self._length > PART_MAX * len(self._parts):
            self._split()

    def pop(self, key: Key) -> Value:
        """Remove an entry; KeyError if there is none."""
        value = self._part(key).pop(key)
        self._length -= 1
        return value

    def memory(self) -> int:
        """Bytes in use, without keys and values."""
        return sum(map(sys.getsizeof, self._parts))

    def _get(self, key: Key, default: Any = None) -> Any:
        return self._part(key).get(key, default)

    def _part(self, key: Key) -> dict[Key, Value]:
        parts = self._parts
        count = len(parts)
        return parts[0] if count == 1 else parts[_place(key, count)]

    def _split(self) -> None:
        parts = self._parts
        count = len(parts)
        place = count - (1 << count.bit_length() - 1)
        old, stay, go = parts[place], {}, {}  # type: ignore[var-annotated]
        for key, value in old.items():
            (stay if _place(key, count + 1) == place else go)[key] = value
        parts[place] = stay
        parts.append(go)
        self.get = self._get


def _place(key: Hashable, count: int) -> int:
    """The part of so many in which a key is."""
    mixed = hash(key) * 0x9E3779B97F4A7C15 >> 20
    half = 1 << count.bit_length() - 1
    place = mixed & 2 * half - 1
    return place if place < count else place - half
