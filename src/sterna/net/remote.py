"""Reading the journal of a remote broker, by asking the broker."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from sterna.errors import FactsMissingError, SternaError
from sterna.journal.rows import problem_with, up_to_date
from sterna.journal.segments import between, read_batch, read_schema
from sterna.net.observer import Observer

if TYPE_CHECKING:
    import pyarrow as pa


class Extent(NamedTuple):
    """The part of its journal that a node still has."""

    node: str
    start: int
    """The first position that can be read."""
    end: int
    """The position after the last one."""
    incarnation: int | None = None
    """Tells this journal from others of the same node; None if that is not known (yet)."""
    begins: int | None = None
    """The first position of this incarnation; what is before it is of earlier ones."""

    @property
    def own_start(self) -> int:
        """The first position of this incarnation that can be read."""
        return self.start if self.begins is None else self.begins


def extent(url: str) -> Extent:
    """The facts that a broker can be asked for."""
    with Observer(url) as observer:
        return _extent(observer)


def read(url: str, start: int, end: int) -> "Iterator[pa.RecordBatch]":
    """The facts of a broker with positions from `start` to before `end`, in order.

    FactsMissingError, after the facts before them, if some cannot be read.
    """
    for batches, _ in pages(url, start, end):
        yield from batches


def pages(
    url: str, start: int, end: int, incarnation: int | None = None
) -> "Iterator[tuple[list[pa.RecordBatch], int]]":
    """The same a page at a time, each with the position that the next one starts with.

    FactsMissingError also if the broker has another `incarnation` of its journal than this one.
    """
    with Observer(url) as observer:
        there = None if incarnation is None else _extent(observer).incarnation
        if there is not None and there != incarnation:
            raise FactsMissingError(
                f"the broker at {url} lacks facts: its journal was begun anew, so it is not the "
                "one that was read before",
                end,
            )
        while start < end:
            schema, batches, following, damage = observer.ask("facts", start=start, end=end)
            found = list(_read(url, schema, batches, start, end)) if batches else []
            if damage is not None:
                yield found, start
                raise FactsMissingError(f"the broker at {url} lacks facts: {damage}", following)
            if following <= start:
                raise FactsMissingError(
                    f"the broker at {url} lacks facts: its journal ends before position {start}, "
                    "so it is not the one that was read before",
                    end,
                )
            yield found, following
            start = following


def _extent(observer: Observer) -> Extent:
    said = observer.ask("journal", details=True)
    return Extent(**{name: said[name] for name in Extent._fields if name in said})


def _read(
    url: str, schema: bytes, batches: list[Any], start: int, end: int
) -> "Iterator[pa.RecordBatch]":
    form = read_schema(schema)
    problem = problem_with(form)
    if problem is not None:
        raise SternaError(f"the journal of the broker at {url} {problem}")
    for batch in batches:
        yield between(up_to_date(read_batch(batch, form)), start, end)
