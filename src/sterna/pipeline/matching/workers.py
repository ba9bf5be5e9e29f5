"""What runs in the workers: the index, loaded once in each process, and matching batch by batch."""

import pickle
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, Broadcast

from sterna.matching import MatchIndex
from sterna.matching.columns import Columns
from sterna.matching.compilation import compile_kernels
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.matching.events import Shipment
from sterna.pipeline.matching.figures import Work, WorkerFigures

PAIRS_MAX = 1 << 20
"""About how many pairs of events and subscriptions are found at a time."""

PROBES = 64
"""How many events of a batch are matched first, to estimate the pairs of the others."""

LOADING = 2
"""While a share is loaded, it takes its size so many times: pickled, and in its final form."""

Array = npt.NDArray[Any]


class Shelf(Protocol):
    """Where workers find shares of compiled subscriptions."""

    def shares(self, version: str) -> int:
        """How many shares a version has."""

    def name(self, version: str, share: int) -> str:
        """A name that is unique to the content of a share."""

    def size(self, version: str, share: int) -> int:
        """About how many bytes a share takes."""

    def take(self, version: str, share: int) -> bytes:
        """A pickled share."""


@dataclass(frozen=True)
class Broadcasts:
    """Shares that Spark has brought to the workers."""

    data: "list[Broadcast[bytes]]"
    digests: list[str]
    sizes: list[int]

    def shares(self, version: str) -> int:  # noqa: ARG002
        return len(self.data)

    def name(self, version: str, share: int) -> str:  # noqa: ARG002
        return self.digests[share]

    def size(self, version: str, share: int) -> int:  # noqa: ARG002
        return self.sizes[share]

    def take(self, version: str, share: int) -> bytes:  # noqa: ARG002
        taken = self.data[share]
        data = taken.value
        vars(taken).pop("_value", None)  # Otherwise Spark holds on to what is never needed again.
        return data


@dataclass(frozen=True)
class Orders:
    """The parameters of the work."""

    shipment: Shipment
    shelf: Shelf
    memory_max: int
    """How many bytes subscriptions may take in a worker, as far as single shares allow it."""
    versioned: bool = False
    """Whether batches have a column with the version, after the shipment."""
    split: bool = False
    """Whether batches have a column, the last one, with the share."""
    listener: "Accumulator[WorkerFigures] | None" = None


def pairs(orders: Orders, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For each event and each subscription that matches it: the event's identity, and the id."""
    work = Work()
    names = [*(each.name for each in orders.shipment.identity), "subscription"]
    for batch, loaded in _meetings(orders, batches, work):
        for portion, positions, places in loaded.matches(orders.shipment, batch, work):
            if not len(positions):
                continue
            started = time.perf_counter()
            at = pa.array(positions)
            identity = [each.take(at) for each in orders.shipment.identities(portion)]
            ids = loaded.ids.take(pa.array(places))
            found = pa.RecordBatch.from_arrays([*identity, ids], names)
            work.encode_s += time.perf_counter() - started
            yield found
    work.tell(orders.listener)


def counts(orders: Orders, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For each event how many subscriptions match, then for each of those how many events."""
    work = Work()
    identity = orders.shipment.identity
    names = [*(each.name for each in identity), "subscription", "matches"]
    of_subscription: dict[str, tuple[pa.Array, Array]] = {}
    types: list[pa.DataType] = []
    for batch, loaded in _meetings(orders, batches, work):
        if loaded.name not in of_subscription:
            of_subscription[loaded.name] = loaded.ids, np.zeros(len(loaded.ids), np.int64)
        _, totals = of_subscription[loaded.name]
        for portion, positions, places in loaded.matches(orders.shipment, batch, work):
            started = time.perf_counter()
            totals += np.bincount(places, minlength=len(totals))
            each = np.bincount(positions, minlength=portion.num_rows)
            events = orders.shipment.identities(portion)
            types = [column.type for column in events]
            nobody = pa.nulls(portion.num_rows, loaded.ids.type)
            found = pa.RecordBatch.from_arrays([*events, nobody, pa.array(each)], names)
            work.encode_s += time.perf_counter() - started
            yield found
    for ids, totals in of_subscription.values():
        places = np.flatnonzero(totals)
        nothing = [pa.nulls(len(places), kind) for kind in types]
        matched = ids.take(pa.array(places))
        yield pa.RecordBatch.from_arrays([*nothing, matched, pa.array(totals[places])], names)
    work.tell(orders.listener)


class LoadedShare:
    """A share of the subscriptions, ready to match."""

    def __init__(self, name: str, data: bytes) -> None:
        compile_kernels()
        index: MatchIndex[int]
        index, self.ids, attributes = pickle.loads(data)  # noqa: S301 - our own driver's.
        self.attributes: list[str] = attributes
        self.name = name
        self.bytes = index.memory() + self.ids.nbytes
        self._table = index.compiled()
        self._place_of = np.array(
            [-1 if key is None else key for key in self._table.keys], np.int32
        )

    def matches(
        self, shipment: Shipment, batch: pa.RecordBatch, work: Work
    ) -> Iterator[tuple[pa.RecordBatch, Array, Array]]:
        """Portions of a batch, each with positions in it and the places of their subscriptions."""
        started = time.perf_counter()
        size = self._portion(shipment, batch)
        work.match_s += time.perf_counter() - started
        for start in range(0, batch.num_rows, size):
            portion = batch.slice(start, size)
            started = time.perf_counter()
            columns = Columns(shipment.columns(portion))
            decoded = time.perf_counter()
            positions, rows = self._table.match_rows(columns)
            places = self._place_of[rows]
            work.decode_s += decoded - started
            work.match_s += time.perf_counter() - decoded
            work.pairs += len(positions)
            yield portion, positions, places

    def _portion(self, shipment: Shipment, batch: pa.RecordBatch) -> int:
        """How many events to match at a time, so that the pairs have room."""
        rows: int = batch.num_rows
        if rows <= PROBES or rows * len(self.ids) <= PAIRS_MAX:
            return rows
        probes = batch.take(pa.array(np.arange(PROBES) * rows // PROBES))
        positions, _ = self._table.match_rows(Columns(shipment.columns(probes)))
        return max(1, PROBES * PAIRS_MAX // max(1, len(positions)))


_held: OrderedDict[str, LoadedShare] = OrderedDict()
"""The shares that this process has loaded; they outlive tasks and micro-batches."""


def _meetings(
    orders: Orders, batches: Iterable[pa.RecordBatch], work: Work
) -> Iterator[tuple[pa.RecordBatch, LoadedShare]]:
    """Each batch with each share that it has to be matched with."""
    for batch in batches:
        if not batch.num_rows:
            continue
        version = batch.column("version")[0].as_py() if orders.versioned else ""
        if not orders.split:
            work.events += batch.num_rows
            for share in range(orders.shelf.shares(version)):
                yield batch, _loaded(orders, version, share, work)
            continue
        column = batch.column("share")
        for share in pc.unique(column).to_pylist():
            part = batch.filter(pc.equal(column, share))
            work.events += part.num_rows
            yield part, _loaded(orders, version, share, work)


def _loaded(orders: Orders, version: str, share: int, work: Work) -> LoadedShare:
    name = orders.shelf.name(version, share)
    found = _held.get(name)
    if found is None:
        started = time.perf_counter()
        room = orders.memory_max - LOADING * orders.shelf.size(version, share)
        while _held and _bytes_held() > room:
            _held.popitem(last=False)
        found = _held[name] = LoadedShare(name, orders.shelf.take(version, share))
        work.loaded += 1
        work.load_s += time.perf_counter() - started
    _held.move_to_end(name)
    work.index_bytes = max(work.index_bytes, _bytes_held())
    for attribute in found.attributes:
        if attribute in orders.shipment.refused:
            raise PipelineError(orders.shipment.refused[attribute])
    return found


def _bytes_held() -> int:
    return sum(each.bytes for each in _held.values())
