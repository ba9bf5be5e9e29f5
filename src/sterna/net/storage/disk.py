"""What a log asks of a disk: a handful of calls, so that tests can put a failing one under it."""

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol


class File(Protocol):
    """A file that is being written."""

    def write(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        """Write the parts one after the other in one call; return how many bytes were taken."""
        ...

    def sync_data(self) -> None:
        """Make durable what was written, and the size if it grew."""
        ...

    def sync(self) -> None:
        """Make durable what was written, and all that is known about the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """Files in directories. Names are durable only after `sync_directory`."""

    def make_directory(self, directory: Path) -> None:
        """Make a directory, and those above it, durably, if it is not there."""
        ...

    def names(self, directory: Path) -> list[str]: ...

    def size(self, path: Path) -> int: ...

    def read(self, path: Path) -> bytes: ...

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        """A part of a file; less if it ends before."""
        ...

    def create(self, path: Path) -> File:
        """A new file; an error if there is one of this name."""
        ...

    def open(self, path: Path) -> File:
        """A file that is there, to write in it."""
        ...

    def rename(self, path: Path, to: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def sync_directory(self, directory: Path) -> None: ...

    def lock(self, path: Path) -> Callable[[], None]:
        """Take an exclusive lock; the result releases it. BlockingIOError if another one has it."""
        ...


def write_fully(file: File, parts: Sequence[bytes | memoryview], offset: int) -> int:
    """Write all of it in one call and return its size; less is an error, as of a full disk."""
    size = sum(map(len, parts))
    written = file.write(parts, offset)
    if written != size:
        raise OSError(errno.ENOSPC, f"only {written:,} of {size:,} bytes were written")
    return size


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: Path, flags: int) -> None:
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def write(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        return os.pwritev(self._descriptor, parts, offset)

    def sync_data(self) -> None:
        os.fdatasync(self._descriptor)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        os.close(self._descriptor)


class RealDisk:
    """The disk of the operating system."""

    def make_directory(self, directory: Path) -> None:
        missing = [above for above in (directory, *directory.parents) if not above.exists()]
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
            self.sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        return os.listdir(directory)  # noqa: PTH208 - names, not paths.

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            return file.read(size)

    def create(self, path: Path) -> RealFile:
        return RealFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, path: Path) -> RealFile:
        return RealFile(path, os.O_RDWR)

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_directory(self, directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Callable[[], None]:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return lambda: os.close(descriptor)


REAL = RealDisk()
