"""`MatchIndex`: which of many filters match an event."""

import sys
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sterna.extras import require
from sterna.matching.loading import can_compile, is_loaded_in_background, kernels_are_ready
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.model.filters.effort import NO_EFFORT, Effort
from sterna.model.filters.long_texts import Interrupted, LongTexts, checked

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from sterna.matching.columns import Batch, Columns
    from sterna.matching.compiled import CompiledSubscriptions

Key = TypeVar("Key", bound=Hashable)

FEW_MAX = 32
"""Up to so many filters are tested one by one, which is faster and needs no compiled code. Measured
by `sterna bench match`."""

TESTS_SLICE = 16
"""So many tests are made before the time is looked at."""

NEAR = FEW_MAX // 2
"""From so many filters on, the kernels may be loaded in the background."""

MOVED_MIN, MOVED_SHARE, MOVED_MAX = 4, 1024, 16
"""Of the filters that came before the kernels were loaded, one in so many is compiled when events
are matched, but at least and at most so many at a time; when another filter comes, the least."""

RECENT_MIN, RECENT_MAX = 4, 256
"""From so many filters on, answers are kept for events that are alike, at most so many."""
CREDIT = 64
"""So many more answers may have been new than known before none are kept any more."""


class MatchIndex(Generic[Key]):
    """Filters under keys, and which of them match an event.

    >>> index = MatchIndex()
    >>> index.add("ann", Filter("service = 'parking' AND price <= 3"))
    >>> index.add("bob", Filter("price < 1 OR service LIKE 'park%'"))
    >>> index.match({"service": "parking", "price": 5})
    ['bob']

    The answers are exactly those of testing every filter, whatever was added and removed before.
    Their order is unspecified, but equal for equal histories. Several threads may match at the same
    time, as long as none of them adds or removes; the index has no lock.

    Many filters are compiled, which needs NumPy and numba. Without them every filter is tested, one
    by one, however many there are. In a broker they are loaded in another thread, and filters that
    came before are compiled little by little, also when something is matched.

    As long as many events are alike, the answers are kept until a filter comes or goes.
    """

    def __init__(self) -> None:
        self._few: dict[Key, Filter] = {}
        """Filters that are tested one by one."""
        self._effort = NO_EFFORT
        """What testing all of these takes."""
        self._compiled: CompiledSubscriptions | None = None
        self._recent: dict[tuple[object, ...], list[Key]] | None = {}
        """Answers by what events have; None if too few events are alike."""
        self._credit = CREDIT

    def add(self, key: Key, filter_: Filter) -> None:
        """Add a filter under a key that is not in the index yet."""
        self._require_new(key, filter_)
        if self._recent:
            self._recent.clear()
        if self._compiled is None and len(self._few) >= NEAR:
            self._compile_if_ready()
        if self._few and self._compiled is not None:
            self._move_some(MOVED_MIN)  # Many may come at once.
        if self._compiled is None:
            filter_.require_bound()
            self._few[key] = filter_
            self._effort = self._effort.plus(filter_.effort)
        else:
            self._compiled.add(key, filter_)

    def add_all(self, items: Iterable[tuple[Key, Filter]]) -> None:
        """Add many filters under keys that are not in the index yet.

        This takes less time than adding them one by one. It brings the whole index in order in one
        go, which stops the caller for seconds if there are a million: it is meant for a start.
        """
        listed = list(items)
        if len(self) + len(listed) <= FEW_MAX or len(listed) < len(self) or not can_compile():
            for key, filter_ in listed:
                self.add(key, filter_)
        else:
            if self._recent:
                self._recent.clear()
            self.compiled().add_all(self._checked(listed))

    def remove(self, key: Key) -> None:
        """Remove the filter under a key; KeyError if there is none."""
        if self._recent:
            self._recent.clear()
        if self._compiled is None or key in self._few:
            self._take_out(key)
        else:
            self._compiled.remove(key)

    @property
    def only(self) -> tuple[Key, Filter] | None:
        """The only key, with its filter, if there is just one and it is not compiled."""
        few = self._few
        return next(iter(few.items())) if len(few) == 1 and self._compiled is None else None

    def match(self, attributes: Mapping[str, Scalar | None]) -> list[Key]:
        """The keys of all filters that match an event with these attributes."""
        recent = self._recent
        if len(self._few) < RECENT_MIN and self._compiled is None:
            return [key for key, filter_ in self._few.items() if filter_.matches(attributes)]
        if recent is None or self.uncompiled:  # These are compiled while events are matched.
            return self._match(attributes)
        # The types as well: 1, 1.0 and True are equal, and not the same to a filter.
        event = (*attributes.items(), *map(type, attributes.values()))
        try:
            known = recent.get(event)
        except TypeError:  # No event can carry such a value, and matching it says so.
            return self._match(attributes)
        if known is not None:
            self._credit += 1
            return known.copy()
        found = self._match(attributes)
        self._credit -= 1
        if self._credit < 0:
            self._recent = None
        elif len(recent) < RECENT_MAX:
            recent[event] = found.copy()
        return found

    def _match(self, attributes: Mapping[str, Scalar | None]) -> list[Key]:
        if self._compiled is None and len(self._few) <= FEW_MAX:
            return [key for key, filter_ in self._few.items() if filter_.matches(attributes)]
        if self._few:
            self._match_with_kernels_if_ready()
            known = LongTexts() if len(self._few) > FEW_MAX else None  # A few need not share it.
            found = [k for k, filter_ in self._few.items() if filter_.matches(attributes, known)]
            return found if self._compiled is None else found + self._compiled.match(attributes)
        return [] if self._compiled is None else self._compiled.match(attributes)

    def match_each(self, events: Sequence[Mapping[str, Scalar | None]]) -> dict[Key, list[int]]:
        """For each key whose filter matches some of these events, their places, ascending."""
        if self._few:
            self._match_with_kernels_if_ready()
        found: dict[Key, list[int]] = (
            {} if self._compiled is None else self._compiled.match_each(events)
        )
        for key, filter_ in self._few.items():
            matches = filter_.matches
            places = [place for place, event in enumerate(events) if matches(event)]
            if places:
                found[key] = places
        return found

    def match_in_slices(
        self, events: Sequence[Mapping[str, Scalar | None]], known: LongTexts
    ) -> Generator[None, None, dict[Key, list[int]]]:
        """The same as `match_each`, a little at a time: it yields when the time of `known` is up.

        Meanwhile filters may come and go, and it is not certain whether those are part of the
        result.
        """
        found: dict[Key, list[int]] = {}
        if self._few:
            self._match_with_kernels_if_ready()
        while self._few and self._compiled is not None and not known.is_time_up:
            self._move_some(MOVED_MIN)
        few = list(self._few.items())
        if self._compiled is not None:
            found = yield from self._compiled.match_in_slices(events, known)
        for key, filter_ in few:  # Even those that are compiled meanwhile.
            matches = filter_.matches
            places: list[int] = []
            for place, event in enumerate(events):
                try:
                    is_wanted = matches(event, known)
                except Interrupted:
                    is_wanted = yield from checked(matches, event, known)
                if is_wanted:
                    places.append(place)
                if place % TESTS_SLICE == 0 and known.is_time_up:
                    yield
            if places:
                found[key] = places
        return found

    @property
    def uncompiled(self) -> int:
        """How many filters are not compiled yet, and should be for speed: see `load_in_background`.

        Few filters are never compiled.
        """
        return 0 if self._compiled is None and len(self._few) <= FEW_MAX else len(self._few)

    @property
    def effort(self) -> Effort:
        """What an event may need besides what is compiled to machine code."""
        if self._compiled is None:
            return self._effort
        unsure = self._compiled.unsure
        return self._effort.plus(Effort(tests=unsure, readings=unsure))

    def match_batch(self, events: "Batch") -> "tuple[npt.NDArray[np.int64], npt.NDArray[Any]]":
        """The positions of events in a batch, ascending, each with the key of a filter it matches.

        A batch is an Arrow `RecordBatch`, or a dict that has an array of values for each attribute.
        An array is a NumPy array (masked where values are missing), a list with None where they
        are, or a pair of an array and its validity, an array of booleans.
        """
        require("broker", "matching batches", "numba", "numpy")
        from sterna.matching.columns import Columns  # noqa: PLC0415 - few filters need no NumPy.

        columns = Columns(events)
        if self._compiled is None:
            return self._ask_few(columns)
        return self.compiled().match_batch(columns)

    def __len__(self) -> int:
        return len(self._few) + (0 if self._compiled is None else len(self._compiled))

    def __contains__(self, key: object) -> bool:
        return key in self._few or (self._compiled is not None and key in self._compiled)

    def memory(self) -> int:
        """About how many bytes the index takes, without the keys and filters it was given.

        Of filters, it holds what compiled code cannot decide: patterns, arithmetic, circles.
        """
        compiled = 0 if self._compiled is None else self._compiled.memory()
        return compiled + (sys.getsizeof(self._few) if self._few or not compiled else 0)

    def compiled(self) -> "CompiledSubscriptions":
        """Compile the filters, for good. For measurements and bulk jobs."""
        if self._compiled is None:
            require("broker", "a compiled index", "numba", "numpy")
            from sterna.matching.compilation import compile_kernels  # noqa: PLC0415 - numba is large.
            from sterna.matching.compiled import CompiledSubscriptions  # noqa: PLC0415

            compile_kernels()
            self._compiled = CompiledSubscriptions()
        while self._few:
            self._move_some(MOVED_MAX)
        return self._compiled

    def _compile_if_ready(self) -> None:
        """Begin to compile filters if there are enough of them and the kernels are there."""
        is_due = len(self._few) >= FEW_MAX
        if kernels_are_ready(now=is_due) and is_due:
            from sterna.matching.compilation import compile_kernels  # noqa: PLC0415
            from sterna.matching.compiled import CompiledSubscriptions  # noqa: PLC0415

            compile_kernels()
            self._compiled = CompiledSubscriptions()
            if not is_loaded_in_background():
                self.compiled()

    def _match_with_kernels_if_ready(self) -> None:
        """Compile some of the filters that came before the kernels were there."""
        if self._compiled is not None:
            self._move_some(min(MOVED_MAX, max(MOVED_MIN, len(self._few) // MOVED_SHARE)))
        elif len(self._few) > FEW_MAX and is_loaded_in_background():
            self._compile_if_ready()

    def _move_some(self, count: int) -> None:
        compiled = self._compiled
        assert compiled is not None  # noqa: S101 - else there is nowhere to move to.
        for key in list(islice(self._few, count)):
            compiled.add(key, self._take_out(key))

    def _take_out(self, key: Key) -> Filter:
        filter_ = self._few.pop(key)
        self._effort = self._effort.minus(filter_.effort)
        return filter_

    def _require_new(self, key: Key, filter_: Filter) -> None:
        if not isinstance(filter_, Filter):
            raise TypeError(
                f"a {type(filter_).__name__} is no filter; write Filter('…') around its text"
            )
        if key in self:
            raise ValueError(f"{key!r} is in the index already; remove it first")

    def _checked(self, items: list[tuple[Key, Filter]]) -> Iterable[tuple[Key, Filter]]:
        for key, filter_ in items:
            self._require_new(key, filter_)
            yield key, filter_

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
