"""`MatchIndex`: which of many filters match an event."""

import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sterna.model.event import Scalar
from sterna.model.filters import Filter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from sterna.matching.columns import Batch, Columns
    from sterna.matching.table import Table

Key = TypeVar("Key", bound=Hashable)

FEW_MAX = 32
"""Up to so many filters are asked one by one, which is faster and needs no compiled code. Measured
by `sterna bench match`."""


class MatchIndex(Generic[Key]):
    """Filters under keys, and which of them match an event.

    >>> index = MatchIndex()
    >>> index.add("ann", Filter("service = 'parking' AND price <= 3"))
    >>> index.add("bob", Filter("price < 1 OR service LIKE 'park%'"))
    >>> index.match({"service": "parking", "price": 5})
    ['bob']

    The answers are exactly those of asking every filter, whatever was added and removed before.
    Their order is unspecified, but equal for equal histories. Several threads may match at the same
    time, as long as none of them adds or removes; the index has no lock.
    """

    def __init__(self) -> None:
        self._few: dict[Key, Filter] = {}
        self._table: Table | None = None

    def add(self, key: Key, filter_: Filter) -> None:
        """Add a filter under a key that is not in the index yet."""
        if not isinstance(filter_, Filter):
            raise TypeError(
                f"a {type(filter_).__name__} is no filter; write Filter('…') around its text"
            )
        if key in self:
            raise ValueError(f"{key!r} is in the index already; remove it first")
        if self._table is None and len(self._few) >= FEW_MAX:
            self._use_table()
        if self._table is None:
            filter_.require_bound()
            self._few[key] = filter_
        else:
            self._table.add(key, filter_)

    def remove(self, key: Key) -> None:
        """Remove the filter under a key; KeyError if there is none."""
        if self._table is None:
            del self._few[key]
        else:
            self._table.remove(key)

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Key]:
        """The keys of all filters that match an event with these attributes."""
        if self._table is None:
            return [key for key, filter_ in self._few.items() if filter_.matches(attributes)]
        return self._table.match(attributes)

    def match_each(self, events: Sequence[Mapping[str, Scalar | None]]) -> dict[Key, list[int]]:
        """For each key whose filter matches some of these events, their places, ascending."""
        if self._table is not None:
            return self._table.match_each(events)
        found: dict[Key, list[int]] = {}
        for key, filter_ in self._few.items():
            matches = filter_.matches
            places = [place for place, event in enumerate(events) if matches(event)]
            if places:
                found[key] = places
        return found

    def match_batch(self, events: "Batch") -> "tuple[npt.NDArray[np.int64], npt.NDArray[Any]]":
        """The positions of events in a batch, ascending, each with the key of a filter it matches.

        A batch is an Arrow `RecordBatch`, or a dict that has an array of values for each attribute.
        An array is a NumPy array (masked where values are missing), a list with None where they
        are, or a pair of an array and its validity, an array of booleans.
        """
        from sterna.matching.columns import Columns  # noqa: PLC0415 - few filters need no NumPy.

        columns = Columns(events)
        if self._table is None:
            return self._ask_few(columns)
        return self._table.match_batch(columns)

    def __len__(self) -> int:
        return len(self._few) if self._table is None else len(self._table)

    def __contains__(self, key: object) -> bool:
        return key in self._few if self._table is None else key in self._table

    def memory(self) -> int:
        """About how many bytes the index takes, without the keys and filters it was given.

        Of filters, it holds what compiled code cannot decide: patterns, arithmetic, circles.
        """
        return sys.getsizeof(self._few) if self._table is None else self._table.memory()

    def table(self) -> "Table":
        """The compiled table, made now if it was not needed yet. For measurements."""
        return self._table or self._use_table()

    def _use_table(self) -> "Table":
        """Go over to the compiled table, for good."""
        from sterna.matching.compilation import compile_kernels  # noqa: PLC0415 - numba is large.
        from sterna.matching.table import Table  # noqa: PLC0415

        compile_kernels()
        table = Table()
        for key, filter_ in self._few.items():
            table.add(key, filter_)
        self._table = table
        self._few = {}
        return table

    def _ask_few(self, columns: "Columns") -> "tuple[npt.NDArray[np.int64], npt.NDArray[Any]]":
        import numpy as np  # noqa: PLC0415

        found = [
            (position, key)
            for position in range(len(columns))
            for key in self.match(columns.event(position))
        ]
        keys = np.empty(len(found), object)
        for place, (_, key) in enumerate(found):
            keys[place] = key
        return np.array([position for position, _ in found], np.int64), keys
