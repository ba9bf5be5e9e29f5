"""When an engine's snapshots are made, and where: in the loop's thread, or by a second process.

A small state is encoded between two turns of the event loop. For a large one this would take too
long: a second process makes the snapshot from the log, while the loop continues.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from sterna.core.broker import Broker
from sterna.core.keeping import Writer
from sterna.core.messages import Message
from sterna.core.node import Node
from sterna.model.event import Event
from sterna.net.second_process import Compaction
from sterna.net.state import encode_state
from sterna.net.storage.errors import LogFailedError, SnapshotFailedError
from sterna.net.storage.log import Log, Seal
from sterna.net.storage.options import LogOptions

if TYPE_CHECKING:
    from sterna.net.engine import Engine

log = logging.getLogger("sterna.snapshots")

INLINE_S = 0.005
"""How many seconds the loop may stop for a snapshot."""
ITEM_S = 10e-6
"""The seconds for each subscription, client or kept event, until they are measured."""
ITEM_S_MIN = 4e-6
"""The least estimate for an item, even if less was measured: the next may be larger."""
BASE_S = 0.001
"""The most that a snapshot of an empty state takes, in seconds."""
NUMBERS = 8
"""So many small things take about as long as an event."""
LARGE_BYTES = 1 << 20
"""After a snapshot of this size, the next one is made by the second process without a try."""
INTERVALS_MAX = 4
"""However large the state is, the log never grows by more than so many times `snapshot_bytes`
before a snapshot is due."""
HURRY_INTERVALS = 8
"""Without a limit for the log, the second process hurries when the log has grown by so many times
what makes a snapshot due."""


class Snapshots:
    """Makes the snapshots of an engine, one at a time. Without `compacts`, there is no second
    process.

    A snapshot that fails, for whatever reason, does no harm, for the log has everything. It is
    logged and counted, and tried again when the log has grown. Only a log that has failed itself,
    and facts that cannot be made durable, end the engine.
    """

    def __init__(
        self,
        engine: "Engine[Any]",
        log: Log,
        *,
        compacts: bool,
        ended: Callable[[str, float], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._log = log
        self._compacts = compacts
        self._ended = ended
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "snapshot")
        self._began: float | None = None
        """When the snapshot in progress was begun."""
        self._compaction: Compaction | None = None
        self._is_to_be_repeated = False
        """Whether the second process was ended only to be started anew, with a higher priority."""
        self._state_bytes = 0
        """The size of the last snapshot in bytes."""
        self._item_s = ITEM_S
        self.failures = 0
        """How many snapshots in a row have failed."""
        self.problem: str | None = None
        """Why the last snapshot has failed; None if it was made."""
        self._retry_at = 0
        """How many inputs after the last snapshot it is tried again."""

    @property
    def is_running(self) -> bool:
        """Whether a snapshot is in progress."""
        return self._began is not None

    @property
    def compaction(self) -> Compaction | None:
        """The second process, if there is one now."""
        return self._compaction

    @property
    def is_due(self) -> bool:
        """Whether a snapshot has to be made now."""
        log = self._log
        if self.is_running or not log.snapshot_due or log.records_since_snapshot < self._retry_at:
            return False
        return log.bytes_since_snapshot >= interval_bytes(log.options, self._state_bytes)

    @property
    def is_large(self) -> bool:
        """Whether the state is known to be too large for the loop's thread."""
        if not self._compacts:
            return False
        if self._state_bytes > LARGE_BYTES:
            return True
        return _items(self._engine.node, self._items_max) > self._items_max

    # ---- In the loop's thread

    def make(self, *, limited: bool) -> "Future[None] | None":
        """Make a snapshot in this thread, and write it in another; None if that is impossible.

        With `limited`, too much state is left to the second process. Nothing may be held.
        """
        began = perf_counter()
        writer = _LimitedWriter(self._items_max) if limited and self._compacts else Writer()
        engine = self._engine
        try:
            make_safe = engine.driver.before_snapshot()
            state = encode_state(
                engine.node, engine.began, engine.clock.now(), engine.driver.memory(), writer
            )
        except _TooMuch:
            self.compact(self._log.seal())
            return None
        except Exception as error:  # noqa: BLE001 - the log has all that is needed.
            self._failed(error)
            return None
        if isinstance(writer, _LimitedWriter):
            items = _items(engine.node, self._items_max) + writer.items
            took = perf_counter() - began
            self._item_s = max(ITEM_S_MIN, (took - BASE_S) / max(1, items))
        self._state_bytes = len(state)
        position = self._log.appended
        return self._do("inline", lambda: self._write(state, position, make_safe))

    def compact(self, sealed: Seal) -> None:
        """Have the second process make a snapshot. All facts up to its position must be stated."""
        try:
            make_safe = self._engine.driver.before_snapshot()
            compaction = Compaction(self._log.directory, sealed, hurried=self._is_urgent)
        except Exception as error:  # noqa: BLE001 - as above.
            self._failed(error)
            return
        self._compaction = compaction
        self._item_s = max(ITEM_S, self._item_s / 2)  # The slow one may have been an accident.
        self._do("second process", lambda: self._compact(compaction, sealed, make_safe))

    def hurry_if_urgent(self) -> None:
        """Give the second process its share of the processor before the log is too large."""
        compaction = self._compaction
        if compaction is not None and not compaction.is_hurried and self._is_urgent:
            self._is_to_be_repeated = not compaction.hurry()

    def end_compaction(self) -> None:
        """End the second process, if there is one."""
        if self._compaction is not None:
            self._is_to_be_repeated = True
            self._compaction.end()

    def close(self) -> None:
        """End the threads."""
        self._thread.shutdown()

    @property
    def _items_max(self) -> int:
        return int(INLINE_S / self._item_s)

    @property
    def _is_urgent(self) -> bool:
        options = self._log.options
        limit = options.snapshot_bytes * HURRY_INTERVALS
        if options.bytes_max is not None:
            limit = options.bytes_max // 4
        return self._log.bytes_since_snapshot > limit

    def _do(self, how: str, work: Callable[[], None]) -> "Future[None] | None":
        try:
            future = self._thread.submit(work)
        except RuntimeError as error:  # The system allows for no more threads.
            self._thread = ThreadPoolExecutor(1, "snapshot")  # The old one would do the work later.
            self._compaction = None
            self._failed(error)
            return None
        self._began = perf_counter()
        future.add_done_callback(lambda done: self._tell_the_loop(how, done.exception()))
        return future

    def _tell_the_loop(self, how: str, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # It may be closed by now.
            self._loop.call_soon_threadsafe(self._done, how, error)

    def _done(self, how: str, error: BaseException | None) -> None:
        took = 0.0 if self._began is None else perf_counter() - self._began
        self._began = self._compaction = None
        is_to_be_repeated, self._is_to_be_repeated = self._is_to_be_repeated, False
        if error is None:
            if self.failures:
                log.info("%s makes snapshots again", self._engine.node.id)
            self.failures = self._retry_at = 0
            self.problem = None
            self._ended(how, took)
        elif not isinstance(error, SnapshotFailedError):
            self._fail(error)
        elif not is_to_be_repeated:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """After a failure, try again when the log is half as long again: it has everything."""
        level = logging.DEBUG if self.failures else logging.ERROR
        message = "%s has made no snapshot, and will try again when its log has grown: %s"
        known = isinstance(error, SnapshotFailedError)
        log.log(level, message, self._engine.node.id, error, exc_info=None if known else error)
        self.failures += 1
        self.problem = str(error) or type(error).__name__
        self._retry_at = self._log.records_since_snapshot * 3 // 2 + 1
        self._ended("failed", 0.0)

    # ---- In the thread for snapshots

    def _write(self, state: bytes, position: int, make_safe: Callable[[], None]) -> None:
        make_safe()
        with _log_continues():
            self._log.snapshot(state, position)

    def _compact(self, compaction: Compaction, sealed: Seal, make_safe: Callable[[], None]) -> None:
        make_safe()
        with _log_continues():
            try:
                self._state_bytes = compaction.run()
            except BaseException:
                self._log.discard(sealed)
                raise
            self._log.adopt(sealed)


@contextmanager
def _log_continues() -> Iterator[None]:
    """Raise a SnapshotFailedError for whatever goes wrong in here, unless the log has failed."""
    try:
        yield
    except (LogFailedError, SnapshotFailedError):
        raise
    except Exception as error:
        raise SnapshotFailedError(repr(error)) from error


def interval_bytes(options: LogOptions, state_bytes: int) -> int:
    """How many bytes the log grows by at least between two snapshots, if the last had this size.

    The more there is to keep, the less often it is kept, within limits.
    """
    return min(2 * state_bytes, options.within(INTERVALS_MAX * options.snapshot_bytes))


class _TooMuch(Exception):  # noqa: N818 - it never leaves this module.
    """There is more to keep than can be kept in the loop's thread."""


class _LimitedWriter(Writer):
    """Collects only up to so many events and messages."""

    def __init__(self, items_max: int) -> None:
        super().__init__()
        self.items = 0
        self._items_max = items_max

    def event(self, event: Event) -> int:
        self._count()
        return super().event(event)

    def message(self, message: Message) -> int:
        self._count()
        return super().message(message)

    def more(self, numbers: int) -> None:
        self._count(numbers // NUMBERS)

    def _count(self, items: int = 1) -> None:
        self.items += items
        if self.items > self._items_max:
            raise _TooMuch


def _items(node: Node, enough: int) -> int:
    """How many clients and subscriptions a node has, counted only until they are enough."""
    items = len(node.peers)
    if items <= enough and isinstance(node, Broker):
        items += len(node.router.subscriptions)
    return items
