"""Arrays and dicts that grow without stopping their user for long, however large they are."""

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

COPIED_MAX = 1 << 20
"""Up to so many bytes, an array is copied when it grows, which takes under 1 ms."""

RESERVED = 1 << 30
"""The address space of a larger array in bytes. The system provides memory when it is used."""

SMALL_DICT_MAX = 8192
"""With so many entries, a `LargeDict` is divided into parts."""

PARTS = 509
"""The number of parts: a prime, so that hashes with zeros at their ends are spread as well."""

Array = npt.NDArray[Any]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of zeros that can grow along its first axis."""
    return grown(np.zeros((0, *shape[1:]), dtype), shape[0])


def grown(array: Array, length: int) -> Array:
    """An array made by `zeros`, at least as long as before, with zeros after its content."""
    owner = array.base if isinstance(array.base, np.ndarray) else array
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
    """A dict of any size, in small parts as soon as it is large.

    A dict that grows copies all its entries. Here that happens to one part at a time.
    """

    __slots__ = ("_length", "_parts", "get")

    get: Callable[..., Any]
    """Get the value of a key, or else the second argument or None. A single part's own `get`."""

    def __init__(self) -> None:
        self._parts: list[dict[Key, Value]] = [{}]
        self._length = 0
        self.get = self._parts[0].get

    def __getstate__(self) -> list[dict[Key, Value]]:
        return self._parts

    def __setstate__(self, parts: list[dict[Key, Value]]) -> None:
        self._parts = parts
        self._length = sum(map(len, parts))
        self.get = parts[0].get
        if len(parts) > 1:
            self._divide()  # In another process, strings have other hashes.

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: Key) -> bool:
        return key in self._parts[hash(key) % len(self._parts)]

    def __iter__(self) -> Iterator[Key]:
        return (key for part in self._parts for key in part)

    def get_each(self, keys: Iterable[Any], default: Value) -> list[Value]:
        """The values of many keys, each or else the default."""
        parts = self._parts
        if len(parts) == 1:
            get = parts[0].get
            return [get(key, default) for key in keys]
        return [parts[hash(key) % PARTS].get(key, default) for key in keys]

    def values(self) -> Iterator[Value]:
        return (value for part in self._parts for value in part.values())

    def add(self, key: Key, value: Value) -> None:
        """Add an entry under a key that is new."""
        self._parts[hash(key) % len(self._parts)][key] = value
        self._length += 1
        if self._length == SMALL_DICT_MAX and len(self._parts) == 1:
            self._divide()

    def pop(self, key: Key) -> Value:
        """Remove an entry; KeyError if there is none."""
        value = self._parts[hash(key) % len(self._parts)].pop(key)
        self._length -= 1
        return value

    def memory(self) -> int:
        """How many bytes are in use, without keys and values."""
        return sum(map(sys.getsizeof, self._parts))

    def _divide(self) -> None:
        parts: list[dict[Key, Value]] = [{} for _ in range(PARTS)]
        for part in self._parts:
            for key, value in part.items():
                parts[hash(key) % PARTS][key] = value
        self._parts = parts
        self.get = _finder(parts)


def _finder(parts: list[dict[Key, Value]]) -> Callable[..., Any]:
    def get(key: Key, default: Any = None) -> Any:
        return parts[hash(key) % PARTS].get(key, default)

    return get
