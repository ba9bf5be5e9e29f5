"""What it costs to make records durable: the log's plain files beside embedded stores.

    python -m benchmarks.log_stores [--json] [--directory DIR]

All of them sync each commit to disk. Stores that are not installed are left out; to have them all
without adding them to the project:

    pip install --target DIR lmdb rocksdict
    PYTHONPATH=DIR python -m benchmarks.log_stores
"""

import argparse
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from sterna.bench.measure import Timing, compare
from sterna.net.storage import Log

RECORD_BYTES = 150
BATCHES = (1, 10, 100, 1_000)
COMMITS = 50
"""How many commits one figure is made of."""
SCANNED = 200_000


class Store(Protocol):
    """Something that keeps records in order."""

    def commit(self, records: list[bytes]) -> None:
        """Append the records, and make them durable together."""
        ...

    def close(self) -> None: ...


class Limit:
    """What the hardware allows: bytes into a file that has its size, and a sync."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "file", os.O_RDWR | os.O_CREAT)
        self._offset = 0
        self._filled = 0

    def commit(self, records: list[bytes]) -> None:
        size = sum(map(len, records))
        if self._offset + size > self._filled:
            os.pwrite(self._file, bytes(size + (1 << 20)), self._offset)
            self._filled = self._offset + size + (1 << 20)
        os.pwrite(self._file, b"".join(records), self._offset)
        os.fdatasync(self._file)
        self._offset += size

    def close(self) -> None:
        os.close(self._file)


class PlainFiles:
    """The log as it is."""

    def __init__(self, directory: Path) -> None:
        self._log, self.recovery = Log.open(directory)

    def commit(self, records: list[bytes]) -> None:
        append = self._log.append
        for record in records:
            append(record)
        self._log.commit()

    def records(self) -> Iterator[bytes]:
        return self.recovery.records

    def close(self) -> None:
        self._log.close()


class Sqlite:
    """The standard library's database, with a write-ahead log that each commit syncs."""

    def __init__(self, directory: Path) -> None:
        self._database = sqlite3.connect(directory / "log.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS log (position INTEGER PRIMARY KEY, record BLOB)"
        )

    def commit(self, records: list[bytes]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO log (record) VALUES (?)", ((record,) for record in records)
        )
        self._database.execute("COMMIT")

    def records(self) -> Iterator[bytes]:
        for (record,) in self._database.execute("SELECT record FROM log ORDER BY position"):
            yield record

    def close(self) -> None:
        self._database.close()


class Lmdb:
    """A memory-mapped tree."""

    def __init__(self, directory: Path) -> None:
        library: Any = import_module("lmdb")
        self._environment = library.open(str(directory), map_size=1 << 32)
        self._position = 0

    def commit(self, records: list[bytes]) -> None:
        with self._environment.begin(write=True) as transaction:
            for record in records:
                transaction.put(self._position.to_bytes(8, "big"), record, append=True)
                self._position += 1

    def records(self) -> Iterator[bytes]:
        with self._environment.begin() as transaction:
            yield from transaction.cursor().iternext(keys=False, values=True)

    def close(self) -> None:
        self._environment.close()


class Rocks:
    """A log-structured merge tree (RocksDB)."""

    def __init__(self, directory: Path) -> None:
        self._library: Any = import_module("rocksdict")
        options = self._library.Options(raw_mode=True)
        self._database = self._library.Rdict(str(directory / "rocks"), options)
        self._durably = self._library.WriteOptions()
        self._durably.sync = True
        self._position = 0

    def commit(self, records: list[bytes]) -> None:
        batch = self._library.WriteBatch(raw_mode=True)
        for record in records:
            batch.put(self._position.to_bytes(8, "big"), record)
            self._position += 1
        self._database.write(batch, self._durably)

    def records(self) -> Iterator[bytes]:
        yield from self._database.values()

    def close(self) -> None:
        self._database.close()


NAMES: dict[str, Callable[[Path], Any]] = {
    "plain files": PlainFiles,
    "sqlite3": Sqlite,
    "lmdb": Lmdb,
    "rocksdict": Rocks,
}


def installed() -> dict[str, Callable[[Path], Any]]:
    """The stores that can be measured here; says which cannot."""
    stores = dict(NAMES)
    for name in ("lmdb", "rocksdict"):
        try:
            import_module(name)
        except ImportError:
            sys.stderr.write(f"{name} is not installed and is left out.\n")
            del stores[name]
    return stores


def commits(directory: Path, batch: int) -> dict[str, Timing]:
    """The cost of a record in commits of this many."""
    records = [os.urandom(RECORD_BYTES) for _ in range(batch)]
    open_stores: dict[str, Store] = {}
    for name, make in {"limit": Limit, **installed()}.items():
        (directory / name).mkdir()
        open_stores[name] = make(directory / name)

    def work(store: Store) -> Callable[[], None]:
        def run() -> None:
            for _ in range(COMMITS):
                store.commit(records)

        return run

    timings = compare({n: (work(s), COMMITS * batch) for n, s in open_stores.items()})
    for store in open_stores.values():
        store.close()
    return timings


def scans(directory: Path) -> dict[str, Timing]:
    """The cost of a record when a store is opened and read from the beginning."""
    records = [os.urandom(RECORD_BYTES) for _ in range(1_000)]
    for name, store in installed().items():
        (directory / name).mkdir()
        filled = store(directory / name)
        for _ in range(SCANNED // len(records)):
            filled.commit(records)
        filled.close()

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            store = NAMES[name](directory / name)
            count = sum(1 for _ in store.records())
            assert count == SCANNED, (name, count)  # noqa: S101
            store.close()

        return run

    return compare({name: (work(name), SCANNED) for name in installed()})


def main() -> None:
    parser = argparse.ArgumentParser(description="The log beside embedded stores.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--directory", type=Path, help="on the disk to measure (default: temporary)"
    )
    arguments = parser.parse_args()
    results: dict[str, dict[str, Timing]] = {}
    for batch in BATCHES:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            results[f"commit of {batch:,}"] = commits(Path(directory), batch)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        results["open and read all"] = scans(Path(directory))
    if arguments.json:
        document = {
            row: {name: vars(timing) for name, timing in timings.items()}
            for row, timings in results.items()
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    columns = list(results["commit of 1"])
    table = Table("µs per record (best to worst; x plain files)", *columns)
    for row, timings in results.items():
        table.add_row(row, *(cell(timings, name) for name in columns))
    Console().print(table)


def cell(timings: dict[str, Timing], name: str) -> str:
    if name not in timings:
        return ""
    timing = timings[name]
    ratio = timing / timings["plain files"]
    spread = f"{timing.best_us:.2f} to {timing.worst_us:.2f}"
    return f"{timing.median_us:.2f} ({spread}; {ratio:.1f} x)"


if __name__ == "__main__":
    main()
