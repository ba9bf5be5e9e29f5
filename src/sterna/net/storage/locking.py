"""One process at a time uses a directory."""

from collections.abc import Callable
from pathlib import Path

from sterna.net.storage.disk import REAL, Disk
from sterna.net.storage.errors import LogInUseError

LOCK_NAME = "lock"


def lock_directory(directory: Path, disk: Disk = REAL) -> Callable[[], None]:
    """Make a directory if it is not there, and keep others out; the result lets them in again.

    LogInUseError if another process uses it, OSError if it cannot be made or written.
    """
    try:
        disk.make_directory(directory)
        return disk.lock(directory / LOCK_NAME)
    except BlockingIOError:
        raise LogInUseError(
            f"{directory} is in use by another process. Stop that, or use another directory."
        ) from None
