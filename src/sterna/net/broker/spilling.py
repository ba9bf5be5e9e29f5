"""Spills long queues to disk: what waits for neighbours that are down, and clients that are away.

The oldest messages of the longest queues go into a page. Once it is durable, the core is told, as
an input; only then does it let go of what is in memory. A page goes when no snapshot that could be
loaded, and nothing in the log after it, can need it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from heapq import heapify, heappop, heappush
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from sterna.core.broker import Broker
from sterna.core.depot import PageId
from sterna.core.names import NodeId
from sterna.core.spilling import KeptPart, QueuedPart
from sterna.errors import StartError
from sterna.net.broker.configuration import Configuration
from sterna.net.config import Durability
from sterna.net.depot import SPILL, UNLOGGED, DiskDepot, entries
from sterna.net.engine import Engine
from sterna.net.storage import REAL, Disk, Log
from sterna.net.storage.pages import Pages

log = logging.getLogger("sterna.broker")

PAGE_BYTES_MIN, PAGE_BYTES_MAX = 256 * 1024, 2**20
"""A page takes about an eighth of what it relieves, within these bounds."""

PARTS_MAX = 256
"""A page has parts of no more than so many queues of a kind."""

TIDYING_S = 1.0
"""So many seconds pass until it is looked again which pages are needed."""

RETRY_S = 10.0
"""So many seconds after a failure it is tried again."""

Part = QueuedPart | KeptPart


class Spill:
    """The pages of a broker: which there are, which are needed, and what goes into the next."""

    def __init__(self, configuration: Configuration, disk: Disk = REAL) -> None:
        self.used_bytes = 0
        """The size of the pages that queues are in."""
        self._configuration = configuration
        self._is_durable = configuration.config.durability.level is not Durability.NONE
        name = SPILL if self._is_durable else UNLOGGED  # The log may still need the other pages.
        self._pages = Pages(Path(configuration.config.data) / name, disk)
        self.depot = DiskDepot(self._pages)
        self._engine: Engine[Broker]
        """Set as soon as there are pages that may be looked at."""
        self._log: Log | None = None
        self._loop = asyncio.get_running_loop()
        self._thread: ThreadPoolExecutor | None = None
        self._sizes: dict[PageId, int] = {}
        self._last: PageId = 0
        """The last page that was begun, even if it failed."""
        self._unneeded: dict[PageId, int] = {}
        """Pages that no queue is in, with a position of the log at which that was so."""
        self._tidy_at = 0.0
        self._retry_at = 0.0
        self._has_failed = False
        self._is_writing = False
        self._is_over = False
        self._wanted: list[Wanted] = []
        self._stuck: dict[NodeId, None] = {}
        """Those for whom a message waits that cannot be encoded; it will not be sent either."""
        self._spilled: Callable[[], None] = lambda: None

    @property
    def bytes_max(self) -> int:
        """How many bytes of pages queues may be in; 0: nothing is spilled."""
        return self._configuration.limits.spill_bytes_max

    @property
    def bytes_on_disk(self) -> int:
        """The size of all pages, with those that only a replay of the log may need."""
        return sum(self._sizes.values())

    def loaded(self, node: Broker, position: int) -> None:
        """The node is as the snapshot at a position has it; a replay of the log follows."""
        needed = node.spilling.pages()
        self._unneeded = {
            page: position
            for page in self._pages.sizes()
            if page not in needed and page <= node.last_page
        }

    def open(self, engine: Engine[Broker], log_: Log | None) -> None:
        """Begin with what is there. StartError if a page is missing that is needed."""
        self._engine, self._log = engine, log_
        self._sizes = self._pages.sizes()
        if log_ is None:
            self._pages.remove([*self._sizes])
            self._sizes = {}
            return
        needed = engine.node.spilling.pages()
        missing = sorted(needed - self._sizes.keys())
        if missing:
            raise StartError(
                f"{self._pages.path(missing[0])} is missing, and with it events that were "
                "acknowledged and still wait for a neighbour or a client; restore the directory "
                "`data` from a copy"
            )
        self.tidy()

    def has(self, page: PageId) -> bool:
        """Whether a page is there; one that was removed is needed by nobody."""
        return page in self._sizes

    def when_spilled(self, call: Callable[[], None]) -> None:
        """Have a function called whenever memory was relieved."""
        self._spilled = call

    def close(self) -> None:
        """Remove what the last snapshot has made superfluous, and end the thread."""
        self._is_over = True
        self.tidy()
        if self._thread is not None:
            self._thread.shutdown()

    # ---- What to spill

    @property
    def is_possible(self) -> bool:
        """Whether there is room for more, and nothing has failed just now."""
        return not self.is_full and monotonic() >= self._retry_at

    @property
    def is_full(self) -> bool:
        """Whether there is no room for more."""
        return self.used_bytes >= self.bytes_max

    def helps(self, name: str) -> bool:
        """Whether more can be spilled of the queues that were wanted under a name."""
        return self.is_possible and any(
            wanted.name == name and not wanted.is_used_up for wanted in self._wanted
        )

    def relieve(self, *wanted: "Wanted") -> None:
        """Spill from these queues, those first that are named first."""
        if not self.bytes_max and not self._sizes:
            return
        if monotonic() >= self._tidy_at:
            self.tidy()
        before = {each.name for each in self._wanted if each.is_used_up and self._is_writing}
        self._wanted = [each for each in wanted if each.left_bytes > 0]
        for each in self._wanted:
            each.is_used_up = each.name in before
        self._next()

    def _next(self) -> None:
        if self._is_writing or self._is_over or not self._wanted or not self.is_possible:
            return
        node = self._engine.node
        parts = [part for wanted in self._wanted for part in wanted.take(node, self._stuck)]
        if parts:
            self._write(parts)

    # ---- Writing

    def _write(self, parts: list[Part]) -> None:
        page = self._last = max(self._engine.node.last_page, self._last, *self._sizes) + 1
        try:
            future = self._executor().submit(self._write_page, page, parts)
        except RuntimeError as error:  # The system allows for no more threads.
            self._failed(error)
            return
        self._is_writing = True
        future.add_done_callback(lambda done: self._tell_the_loop(done, page))

    def _executor(self) -> ThreadPoolExecutor:
        self._thread = self._thread or ThreadPoolExecutor(1, "spill")
        return self._thread

    def _write_page(self, page: PageId, parts: list[Part]) -> "Written":
        """Write a page; in the thread."""
        encoded = [(part, entries(part)) for part in parts]
        every = [entry for _, found in encoded for entry in found]
        size = self._pages.write(page, every, sync=self._is_durable) if every else 0
        return Written(size, [(part.first(len(found)), len(found)) for part, found in encoded])

    def _tell_the_loop(self, done: "Future[Written]", page: PageId) -> None:
        with suppress(RuntimeError):  # It may be closed by now.
            self._loop.call_soon_threadsafe(self._written, done, page)

    def _written(self, done: "Future[Written]", page: PageId) -> None:
        self._is_writing = False
        error = done.exception()
        if error is not None:
            self._failed(error)
            return
        if self._has_failed:
            self._has_failed = False
            log.info("%s spills queues to disk again", self._configuration.name)
        written, place = done.result(), 0
        if written.size:
            self._sizes[page] = written.size
            self.used_bytes += written.size
        for part, count in written.parts:
            given = None
            if count:
                given = self._engine.node.spilling.input_for(part, page, place)
            else:
                self._stuck[part.link] = None
            if given is not None:
                self._engine.give(given)
            place += count
        self._next()
        self._spilled()

    def _failed(self, error: BaseException) -> None:
        """Go on without: everything is still in memory. It is tried again after a while."""
        self._retry_at = monotonic() + RETRY_S
        if not self._has_failed:
            self._has_failed = True
            log.error(
                "%s cannot spill queues to %s: %s. Nothing is lost; until it can, publishers wait "
                "for neighbours that are down, and the oldest of what is kept for clients that are "
                "away is discarded (memory_bytes_max)",
                *(self._configuration.name, self._pages.directory),
                (isinstance(error, OSError) and error.strerror) or repr(error),
            )

    # ---- Removing

    def tidy(self) -> None:
        """Find out which pages are needed, and remove those that nothing can ever need."""
        self._tidy_at = monotonic() + TIDYING_S
        if not self._sizes or self._engine.has_failed:
            return  # After a failure, the node may not know any more what it needs.
        needed = self._engine.node.spilling.pages()
        position, horizon = (0, 0) if self._log is None else (self._log.appended, self._log.horizon)
        for page in self._sizes.keys() - needed - self._unneeded.keys():
            self._unneeded[page] = position
        # No page is needed again: from any state since that position on, a replay does without it.
        removed = [page for page, since in self._unneeded.items() if since <= horizon]
        for page in removed:
            del self._unneeded[page], self._sizes[page]
        if removed:
            self._executor().submit(self._pages.remove, removed)
        self.used_bytes = sum(
            size for page, size in self._sizes.items() if page not in self._unneeded
        )


class Written(NamedTuple):
    """What is in a page."""

    size: int
    """How many bytes the page takes on disk."""
    parts: list[tuple[Part, int]]
    """The parts, and how many entries each has."""


class Wanted:
    """Queues of one kind that should take less memory: the longest first."""

    def __init__(self, name: str, sizes: Mapping[NodeId, int], excess: int, share: int) -> None:
        """`sizes` are the bytes that could be spilled, and `excess` of all those should be."""
        self.name = name
        self.left_bytes = excess
        self.is_used_up = False
        """Whether there is nothing left to spill."""
        self._sizes = sizes
        self._longest: list[tuple[int, NodeId]] | None = None
        """A heap with the longest queues first; made when it is needed."""
        self._page_bytes = max(PAGE_BYTES_MIN, min(PAGE_BYTES_MAX, share // 8))

    def take(self, node: Broker, left_out: Collection[NodeId]) -> list[Part]:
        """What goes into the next page, without what waits for some."""
        if self._longest is None:
            self._longest = [(-size, link) for link, size in self._sizes.items() if size > 0]
            heapify(self._longest)
        parts: list[Part] = []
        room = self._page_bytes
        while self._longest and self.left_bytes > 0 and room > 0 and len(parts) < PARTS_MAX:
            size, link = heappop(self._longest)
            part = None if link in left_out else self._part(node, link, room)
            if part is None:
                continue
            taken = min(room, -size)
            parts.append(part)
            room -= taken
            self.left_bytes -= taken
            if taken < -size:
                heappush(self._longest, (size + taken, link))
        self.is_used_up = not parts and self.left_bytes > 0
        return parts

    def _part(self, node: Broker, link: NodeId, bytes_max: int) -> Part | None:
        if link not in node.peers:
            return node.spilling.kept(link, bytes_max)
        return node.spilling.queued(link, bytes_max) or node.spilling.kept(link, bytes_max)
