"""Events in columns: an Arrow record batch, or arrays by name, with what is missing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import NoneType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sterna.matching.floats import EXACT_MAX, floor
from sterna.model.event import INT_MAX, Scalar, plain_scalar

FALSE, TRUE, NAN, NUMBER, STRING = range(1, 6)
"""Kinds of values, in the order of the value line."""

Array = npt.NDArray[Any]

Batch = Any
"""An Arrow RecordBatch (or Table), or a mapping from attributes to arrays."""


class Column(Protocol):
    """The values of one attribute, one for each event of a batch."""

    def __len__(self) -> int: ...

    def plain(self) -> list[Scalar | None]:
        """The values as Python has them, None where one is missing."""

    def encode(self, kinds: Array, numbers: Array, rests: Array) -> None:
        """Write the kinds of the values, and the numbers as `floor` gives them."""


class Columns:
    """A batch of events."""

    def __init__(self, events: Batch) -> None:
        pairs = list(_pairs(events))
        self._columns = {name: _column(name, data) for name, data in pairs}
        names = [name for name, _ in pairs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"a batch has one column for each attribute, but two are {twice!r}")
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise ValueError(f"the columns of a batch are equally long; here {shown}")
        rows = getattr(events, "num_rows", 0)
        self._length = next(iter(lengths.values())) if lengths else int(rows)

    def __len__(self) -> int:
        return self._length

    def items(self) -> Iterator[tuple[str, Column]]:
        return iter(self._columns.items())

    def event(self, place: int) -> Mapping[str, Scalar | None]:
        """The attributes of one event."""
        return {name: column.plain()[place] for name, column in self.items()}


class Rows(Columns):
    """Events one by one, with some of their attributes in columns as well."""

    def __init__(
        self, events: Sequence[Mapping[str, Scalar | None]], attributes: Iterable[str]
    ) -> None:
        self._events = events
        self._length = len(events)
        self._columns = {
            name: _column(name, [event.get(name) for event in events]) for name in attributes
        }

    def event(self, place: int) -> Mapping[str, Scalar | None]:
        return self._events[place]


class _Numbers:
    """Floats or integers."""

    def __init__(self, data: Array, valid: Array) -> None:
        self._data = data
        self._valid = valid
        self._plain: list[Scalar | None] | None = None

    def __len__(self) -> int:
        return len(self._data)

    def plain(self) -> list[Scalar | None]:
        if self._plain is None:
            values = self._data.tolist()
            self._plain = [
                v if there else None for v, there in zip(values, self._valid, strict=True)
            ]
        return self._plain

    def encode(self, kinds: Array, numbers: Array, rests: Array) -> None:
        floats = self._data.astype(np.float64)
        kinds[self._valid] = NUMBER
        numbers[self._valid] = floats[self._valid]
        if self._data.dtype == np.float64:
            kinds[self._valid & np.isnan(floats)] = NAN
        else:
            for i in np.flatnonzero(self._valid & (np.abs(floats) >= EXACT_MAX)).tolist():
                numbers[i], rests[i] = floor(int(self._data[i]))


class _Booleans(_Numbers):
    def encode(self, kinds: Array, numbers: Array, rests: Array) -> None:
        del numbers, rests
        kinds[self._valid] = np.where(self._data, TRUE, FALSE)[self._valid]


class _Plain:
    """Values of any kind."""

    def __init__(self, data: list[Scalar | None]) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def plain(self) -> list[Scalar | None]:
        return self._data

    def encode(self, kinds: Array, numbers: Array, rests: Array) -> None:
        for i, value in enumerate(self._data):
            if value is None:
                continue
            if isinstance(value, str):
                kinds[i] = STRING
            elif isinstance(value, bool):
                kinds[i] = TRUE if value else FALSE
            elif value != value:  # noqa: PLR0124 - this is how NaN shows.
                kinds[i] = NAN
            else:
                kinds[i] = NUMBER
                numbers[i], rests[i] = floor(value)


class _Strings(_Plain):
    def encode(self, kinds: Array, numbers: Array, rests: Array) -> None:
        del numbers, rests
        kinds[np.array([value is not None for value in self._data], bool)] = STRING


def _pairs(events: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(events, Mapping):
        return iter(events.items())
    names = getattr(getattr(events, "schema", None), "names", None)
    if names is not None and callable(getattr(events, "column", None)):
        return ((name, events.column(place)) for place, name in enumerate(names))
    raise TypeError(
        f"a batch is an Arrow RecordBatch or a dict of arrays, not a {type(events).__name__}"
    )


def _column(name: str, data: Any) -> Column:
    if callable(getattr(data, "to_pylist", None)):
        return _from_arrow(name, data)
    valid = None
    if isinstance(data, tuple):
        data, valid = _with_validity(name, data)
    if isinstance(data, np.ma.MaskedArray):
        there = ~np.ma.getmaskarray(data)
        valid = there if valid is None else valid & there
        data = data.data
    if isinstance(data, np.ndarray):
        if data.ndim != 1:
            raise TypeError(f"column {name!r} has {data.ndim} dimensions instead of one")
        if data.dtype.kind in "fiub":
            return _from_numbers(name, data, valid)
        if data.dtype.kind not in "OU":
            raise TypeError(f"column {name!r} is of type {data.dtype}, {_CARRIED}")
    elif isinstance(data, str | bytes | Mapping | AbstractSet) or not isinstance(data, Iterable):
        raise TypeError(f"column {name!r} is a {type(data).__name__} instead of an array or a list")
    values = data.tolist() if isinstance(data, np.ndarray) else list(data)
    if valid is not None:
        values = [value if there else None for value, there in zip(values, valid, strict=True)]
    if set(map(type, values)) <= {str, NoneType}:
        return _Strings(values)
    return _Plain([_plain(name, value) for value in values])


def _with_validity(name: str, pair: tuple[Any, ...]) -> tuple[Any, Array]:
    """A pair of values and an array that says which of them are there."""
    problem = f"column {name!r} is a tuple, but not of values and their validity"
    if len(pair) != 2 or isinstance(pair[1], np.ma.MaskedArray):
        raise TypeError(problem)
    values, valid = pair[0], np.asarray(pair[1])
    if valid.dtype != bool or valid.ndim != 1 or not hasattr(values, "__len__"):
        raise TypeError(problem)
    if len(valid) != len(values):
        raise ValueError(f"column {name!r} has {len(values)} values, their validity {len(valid)}")
    return values, valid


def _plain(name: str, value: Any) -> Scalar | None:
    if value is np.ma.masked:
        return None
    return value if type(value) in _PLAIN else plain_scalar(name, value)


_PLAIN = {str, int, float, bool, NoneType}


_CARRIED = "but events carry bool, int, float and str"


def _from_numbers(name: str, data: Array, valid: Array | None) -> Column:
    if valid is None:
        valid = np.ones(len(data), bool)
    if data.dtype == bool:
        return _Booleans(data, valid)
    if data.dtype.kind == "f":
        if data.dtype.itemsize > 8:
            raise TypeError(f"column {name!r} is of type {data.dtype}; floats have 64 bits at most")
        return _Numbers(data.astype(np.float64), valid)
    if data.dtype.kind == "u" and np.any(data[valid] > INT_MAX):
        raise ValueError(f"column {name!r} has an integer above {INT_MAX}")
    return _Numbers(data.astype(np.int64), valid)


def _from_arrow(name: str, data: Any) -> Column:
    import pyarrow as pa  # noqa: PLC0415 - whoever passes Arrow data has it.

    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
    if pa.types.is_dictionary(data.type):
        data = data.dictionary_decode()
    kind = data.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        valid = np.asarray(data.is_valid())
        filled = data.fill_null(pa.scalar(0, pa.int8()).cast(kind))
        return _from_numbers(name, filled.to_numpy(zero_copy_only=False), valid)
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not pa.types.is_null(kind) and not any(fits(kind) for fits in strings):
        raise TypeError(f"column {name!r} is of type {kind}, {_CARRIED}")
    return _Strings(data.to_pylist())
