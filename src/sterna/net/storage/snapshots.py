"""Writing a snapshot into a file that is no part of the log yet.

A log does this for itself; for a large state another process does, while the log goes on.
"""

import os
from pathlib import Path

from sterna.net.storage.disk import Disk, write_fully

SNAPSHOT_ENDING = ".snapshot"
UNFINISHED_ENDING = ".new"
"""A file with this ending never became part of the log; it is removed when the log is opened."""

PIECE_BYTES = 8 << 20
"""A snapshot is written and synced in pieces of this size, so that commits need not wait long."""


def snapshot_path(directory: Path, position: int) -> Path:
    """Where the snapshot at a position is, once it is part of the log."""
    return directory / f"{position:020d}{SNAPSHOT_ENDING}"


def unfinished_path(directory: Path, position: int) -> Path:
    """Where a snapshot can be written: a name that was not used before."""
    name = snapshot_path(directory, position).name
    return directory / f"{name}.{os.urandom(8).hex()}{UNFINISHED_ENDING}"


def write_snapshot(disk: Disk, path: Path, header: bytes, state: bytes) -> None:
    """Write a new file with a state, and make it durable; its name need not be."""
    file = disk.create(path)
    try:
        offset = write_fully(file, [header], 0)
        rest = memoryview(state)
        while rest:
            offset += write_fully(file, [rest[:PIECE_BYTES]], offset)
            file.sync_data()
            rest = rest[PIECE_BYTES:]
        file.sync()
    finally:
        file.close()
