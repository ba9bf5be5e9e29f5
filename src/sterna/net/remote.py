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
    """The part of its journal that a broker still has."""

    node: str
    start: int
    """The first position that it can answer."""
    end: int
    """The position after the last one."""


def extent(url: str) -> Extent:
    """The facts that a broker can be asked for."""
    with Observer(url) as observer:
        return Extent(**observer.ask("journal"))


def read(url: str, start: int, end: int) -> "Iterator[pa.RecordBatch]":
    """The facts of a broker with positions from `start` to before `end`, in order.

    FactsMissingError, after the facts before them, if some cannot be read.
    """
    with Observer(url) as observer:
        while start < end:
            schema, batches, following, damage = observer.ask("facts", start=start, end=end)
            if batches:
                yield from _read(url, schema, batches, start, end)
            if damage is not None:
                raise FactsMissingError(f"the broker at {url} lacks facts: {damage}", following)
            if following <= start:
                raise FactsMissingError(
                    f"the broker at {url} lacks facts: its journal ends before position {start}, "
                    "so it is not the one that was read before",
                    end,
                )
            start = following


def _read(
    url: str, schema: bytes, batches: list[Any], start: int, end: int
) -> "Iterator[pa.RecordBatch]":
    form = read_schema(schema)
    problem = problem_with(form)
    if problem is not None:
        raise SternaError(f"the journal of the broker at {url} {problem}")
    for batch in batches:
        yield between(up_to_date(read_batch(batch, form)), start, end)
