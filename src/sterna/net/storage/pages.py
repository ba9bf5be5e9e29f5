"""Pages on disk: parts of long queues, each written once and never changed.

    magic, format, number of the page, number of entries | sizes of the entries | entries | checksum

A page is durable before anything refers to it. So a page that is referred to is whole, or damaged.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from sterna.core.depot import PageId, PageUnreadableError
from sterna.net.storage.disk import REAL, Disk, write_fully

FORMAT = 1
"""The number of the format that is written and read."""

MAGIC = b"sternpag"
PAGE_ENDING = ".page"

HELD_BYTES_MAX = 8 << 20
"""About how many bytes of pages that were read last are held in memory."""

ENDS_MAX = 1_000_000
"""Of about so many entries it is remembered where they are; eight bytes each."""

_HEAD = struct.Struct("<8sIQI")
_SUM = struct.Struct("<I")
_SIZE = "I"


class _Page:
    """A page in memory."""

    def __init__(self, data: bytes, page: PageId) -> None:
        """Check that the bytes are this page; ValueError says in what way they are not."""
        end = len(data) - _SUM.size
        if end < _HEAD.size:
            raise ValueError("it is cut off")
        if _SUM.unpack_from(data, end) != (crc32(memoryview(data)[:end]),):
            raise ValueError("its checksum is wrong")
        magic, format_, number, count = _HEAD.unpack_from(data)
        if (magic, format_, number) != (MAGIC, FORMAT, page):
            raise ValueError(f"it is page {number} in format {format_}")
        sizes = array(_SIZE, data[_HEAD.size : _HEAD.size + 4 * count])
        if sys.byteorder == "big":
            sizes.byteswap()
        self.size = len(data)
        self.ends = array("Q", [_HEAD.size + 4 * count])
        """Where the first entry begins, and where each ends."""
        for size in sizes:
            self.ends.append(self.ends[-1] + size)
        self._data = data

    def entry(self, place: int) -> bytes:
        return self._data[self.ends[place] : self.ends[place + 1]]


class Pages:
    """The pages in a directory, for one thread that reads and one that writes."""

    def __init__(self, directory: Path, disk: Disk = REAL) -> None:
        self.directory = directory
        self._disk = disk
        self._held: dict[PageId, _Page] = {}
        """The pages that were read last, the latest at the end."""
        self._ends: dict[PageId, array[int]] = {}
        """Where the entries are in pages that were found to be whole."""

    # ---- Reading

    def entry(self, page: PageId, place: int) -> bytes:
        """What is at a place of a page; PageUnreadableError if the page is not as it was."""
        found = self._held.pop(page, None)
        if found is None:
            with self._readable(page):
                if page in self._ends:  # Whoever discards one event of each client takes few.
                    return self._read_entry(page, place)
                found = _Page(self._disk.read(self.path(page)), page)
            self._ends[page] = found.ends
            while sum(map(len, self._ends.values())) > ENDS_MAX and len(self._ends) > 1:
                del self._ends[next(iter(self._ends))]
        self._held[page] = found
        while sum(each.size for each in self._held.values()) > HELD_BYTES_MAX:
            del self._held[next(iter(self._held))]
        return found.entry(place)

    def _read_entry(self, page: PageId, place: int) -> bytes:
        begin, end = self._ends[page][place : place + 2]
        entry = self._disk.read_at(self.path(page), begin, end - begin)
        if len(entry) < end - begin:
            raise ValueError("it is cut off")
        return entry

    @contextmanager
    def _readable(self, page: PageId) -> Iterator[None]:
        """What is wrong with a page is a PageUnreadableError."""
        path = self.path(page)
        try:
            yield
        except ValueError as problem:
            reason = f"{path} is damaged: {problem}"
        except OSError as error:
            reason = f"{path} cannot be read: {error.strerror or error}"
        else:
            return
        raise PageUnreadableError(
            f"{reason}. It holds events that were acknowledged and still wait for a neighbour or a "
            "client. Check the disk and start again; if the page stays damaged, restore the "
            "directory `data` from a copy."
        )

    def sizes(self) -> dict[PageId, int]:
        """The pages that are there, and how many bytes they take."""
        try:
            names = self._disk.names(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        numbers = [
            int(name.removesuffix(PAGE_ENDING))
            for name in names
            if name.endswith(PAGE_ENDING) and name.removesuffix(PAGE_ENDING).isdecimal()
        ]
        return {number: self._disk.size(self.path(number)) for number in sorted(numbers)}

    def path(self, page: PageId) -> Path:
        """Where a page is."""
        return self.directory / f"{page:020d}{PAGE_ENDING}"

    # ---- Writing

    def write(self, page: PageId, entries: Sequence[bytes], *, sync: bool) -> int:
        """Write a new page, durably with `sync`; return its size. On an error it is not there."""
        self._disk.make_directory(self.directory)
        sizes = array(_SIZE, map(len, entries))
        if sys.byteorder == "big":
            sizes.byteswap()
        head = _HEAD.pack(MAGIC, FORMAT, page, len(entries)) + sizes.tobytes()
        body = b"".join(entries)
        parts = [head, body, _SUM.pack(crc32(body, crc32(head)))]
        file = self._disk.create(self.path(page))
        try:
            size = write_fully(file, parts, 0)
            if sync:
                file.sync()
        except BaseException:
            file.close()
            with suppress(OSError):
                self._disk.remove(self.path(page))
            raise
        file.close()
        if sync:
            self._disk.sync_directory(self.directory)
        return size

    def remove(self, pages: Sequence[PageId]) -> None:
        """Remove pages that nobody needs; one that cannot be is left to the next start."""
        for page in pages:
            with suppress(OSError):
                self._disk.remove(self.path(page))
