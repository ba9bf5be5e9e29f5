"""A disk in memory that knows what is durable, loses the rest in a power cut, and can fail."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

SECTOR_BYTES = 512

Write = tuple[int, bytes]
"""Bytes and where they belong."""


class PowerCut(BaseException):
    """The machine has stopped in the middle of this call."""


class ModelDisk:
    """Files whose content and names are durable only after a sync, as POSIX promises no more."""

    def __init__(self) -> None:
        self.room_bytes: int | None = None
        """How much fits on the disk."""
        self.operations = 0
        """How many calls there were that change something."""
        self.cut_at: int | None = None
        """The power is cut before the call of this number."""
        self.fail_at: int | None = None
        """The call of this number fails with EIO; a sync that fails forgets what it should sync."""
        self.short_at: int | None = None
        """From this call on, the next write takes only a part."""
        self.log: list[str] = []
        """The names of these calls."""
        self._names: dict[Path, Inode] = {}
        self._durable_names: dict[Path, Inode] = {}
        self._renames: list[tuple[Path | None, Path | None, Inode]] = []
        """Changes of names that are not durable: from where, to where."""
        self._locked: set[Path] = set()
        self._stopped = False

    def make_directory(self, directory: Path) -> None:
        pass

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in self._names if path.parent == directory]

    def size(self, path: Path) -> int:
        return len(self._names[path].content)

    def read(self, path: Path) -> bytes:
        return bytes(self._names[path].content)

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        return self.read(path)[offset : offset + size]

    def create(self, path: Path) -> "ModelFile":
        self.step("create")
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        inode = Inode()
        self._names[path] = inode
        self._renames.append((None, path, inode))
        return ModelFile(self, inode)

    def open(self, path: Path) -> "ModelFile":
        return ModelFile(self, self._names[path])

    def rename(self, path: Path, to: Path) -> None:
        self.step("rename")
        inode = self._names.pop(path)
        self._names[to] = inode
        self._renames.append((path, to, inode))

    def remove(self, path: Path) -> None:
        self.step("remove")
        self._renames.append((path, None, self._names.pop(path)))

    def sync_directory(self, directory: Path) -> None:
        self.step("sync_directory")
        assert all(path.parent == directory for path in self._names)
        self._durable_names = dict(self._names)
        self._renames.clear()

    def lock(self, path: Path) -> Callable[[], None]:
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "Resource temporarily unavailable")
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    def step(self, name: str) -> None:
        """Count a call, and let it fail if it is its turn."""
        if self._stopped or self.operations == self.cut_at:
            self._stopped = True
            raise PowerCut
        self.operations += 1
        self.log.append(name)
        if self.operations - 1 == self.fail_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def used_bytes(self) -> int:
        return sum(len(inode.content) for inode in self._names.values())

    def kill(self) -> None:
        """The process is gone; what it wrote is still there, synced or not."""
        self._locked.clear()
        self._stopped = False
        self.cut_at = self.fail_at = None

    def power_cut(self, rng: Random) -> None:
        """Start again with what is durable, and with a random part of the rest."""
        self.kill()
        for path, to, inode in self._renames:
            if rng.random() < 0.5:
                continue
            if path is not None and self._durable_names.get(path) is inode:
                del self._durable_names[path]
                if to is not None:
                    self._durable_names[to] = inode
            elif path is None and to is not None:
                self._durable_names[to] = inode
        self._renames.clear()
        self._names = dict(self._durable_names)
        for inode in self._names.values():
            inode.power_cut(rng)

    def flip(self, path: Path, offset: int, mask: int) -> None:
        """Damage a byte behind everybody's back."""
        inode = self._names[path]
        inode.content[offset] ^= mask
        inode.durable[offset] ^= mask

    def cut(self, path: Path, size: int) -> None:
        """Lose the end of a file behind everybody's back."""
        inode = self._names[path]
        del inode.content[size:]
        del inode.durable[size:]

    def copy(self) -> "ModelDisk":
        """The same files, all durable, with a future of their own."""
        twin = ModelDisk()
        twin._names = {path: Inode(inode.content) for path, inode in self._names.items()}
        twin._durable_names = dict(twin._names)
        return twin


class Inode:
    """A file's content as the system shows it, and as it is on the disk."""

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.writes: list[Write] = []
        """What was written since the last sync."""
        self.shrunk_to: int | None = None
        """The size it was cut to since the last full sync."""

    def sync(self) -> None:
        if self.shrunk_to is not None:
            del self.durable[self.shrunk_to :]
            self.shrunk_to = None
        self.sync_data()

    def sync_data(self) -> None:
        for offset, data in self.writes:
            put(self.durable, offset, data)
        self.writes.clear()
        if self.shrunk_to is not None:  # The data is safe; the smaller size need not be.
            self.shrunk_to = len(self.content)

    def forget(self) -> None:
        """A sync has failed: the system takes the pages for clean, and will not write them."""
        self.writes.clear()
        self.shrunk_to = None

    def power_cut(self, rng: Random) -> None:
        if self.shrunk_to is not None and rng.random() < 0.5:
            del self.durable[self.shrunk_to :]
        for offset, data in self.writes:
            for part_offset, part in survivors(offset, data, rng):
                put(self.durable, part_offset, part)
            if rng.random() < 0.3:  # The new size got through, with or without the data.
                put(self.durable, max(len(self.durable), offset + len(data)), b"")
        self.writes.clear()
        self.shrunk_to = None
        self.content[:] = self.durable


class ModelFile:
    """A file that is being written."""

    def __init__(self, disk: ModelDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        self._disk.step("write")
        data = b"".join(parts)
        if self._disk.short_at is not None and self._disk.operations > self._disk.short_at:
            data = data[: len(data) // 2]
        if self._disk.room_bytes is not None:
            room = self._disk.room_bytes - self._disk.used_bytes()
            grown = offset + len(data) - len(self._inode.content)
            if grown > room:
                data = data[: max(0, len(data) - grown + room)]
                if not data:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(self._inode.content, offset, data)
        self._inode.writes.append((offset, data))
        return len(data)

    def sync_data(self) -> None:
        self._sync("sync_data", self._inode.sync_data)

    def sync(self) -> None:
        self._sync("sync", self._inode.sync)

    def truncate(self, size: int) -> None:
        self._disk.step("truncate")
        assert size <= len(self._inode.content), "files are never made longer this way"
        del self._inode.content[size:]
        self._inode.shrunk_to = size
        kept = [(at, data[: max(0, size - at)]) for at, data in self._inode.writes]
        self._inode.writes = [(at, data) for at, data in kept if data]

    def close(self) -> None:
        pass

    def _sync(self, name: str, sync: Callable[[], None]) -> None:
        try:
            self._disk.step(name)
        except OSError:
            self._inode.forget()
            raise
        sync()


def put(content: bytearray, offset: int, data: bytes) -> None:
    """Write into a content, with zeros in a gap before it."""
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def survivors(offset: int, data: bytes, rng: Random) -> list[Write]:
    """What is left of a write that was not synced: all, nothing, a beginning, or some sectors."""
    match rng.randrange(4):
        case 0:
            return [(offset, data)]
        case 1:
            return []
        case 2:
            return [(offset, data[: rng.randrange(len(data) + 1)])]
        case _:
            cuts = [0]
            cuts += range(SECTOR_BYTES - offset % SECTOR_BYTES, len(data), SECTOR_BYTES)
            sectors = [
                (offset + begin, data[begin:end])
                for begin, end in zip(cuts, [*cuts[1:], len(data)], strict=True)
            ]
            return [sector for sector in sectors if rng.random() < 0.5]
