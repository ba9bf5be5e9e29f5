"""Runs a node: gives it inputs, keeps them in a log, and releases what they caused once it may.

A node is deterministic, so it is durable if its inputs are. What an input makes it send is held
back until the input is durable; what arrives meanwhile shares the next sync.
"""

import asyncio
import gc
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from sterna import plugins
from sterna.core.actions import Action, Broadcast
from sterna.core.depot import PageUnreadableError
from sterna.core.facts import Fact
from sterna.core.inputs import Configured, Heard, Input, LinkDown, TimePassed
from sterna.core.link import Data, Frame
from sterna.core.messages import Events
from sterna.core.names import NEVER, LocalProtocolError, Time
from sterna.core.node import Node, Turn
from sterna.net.clock import node_clock
from sterna.net.config import Durability
from sterna.net.records import (
    Began,
    decode_began,
    decode_note,
    decode_record,
    encode_began,
    encode_note,
    encode_record,
)
from sterna.net.release_0_1 import converted
from sterna.net.snapshots import Snapshots
from sterna.net.state import State, decode_state
from sterna.net.storage.errors import LogError, LogFormatError, SnapshotFailedError
from sterna.net.storage.log import Log
from sterna.net.storage.recovery import Recovery
from sterna.wire.snapshots import UnreadableSnapshotError, restore_node

N = TypeVar("N", bound=Node)


NO_EVENTS = Events(events=())
"""A message without any effect."""

UNSAFE_MAX = 1_000
"""Inputs that need not be durable are made so beyond this number, for they take memory."""


_IDLE = frozenset((Heard, TimePassed))
"""Inputs that come from time to time even if nothing happens."""


class Listener:
    """Events of an engine that only some drivers care about; they override these methods."""

    def done_before(self, given: Input, actions: Sequence[Action]) -> None:
        """Actions from before a restart, which may or may not have been done."""

    def noted(self, note: bytes) -> None:
        """A note from before a restart."""

    def memory(self) -> bytes:
        """What a snapshot has to keep besides the node."""
        return b""

    def remember(self, memory: bytes) -> None:
        """Restore what a snapshot has kept besides the node."""

    def stated_before(self, position: int, facts: Sequence[Fact], size_bytes: int) -> None:
        """Facts from before a restart, which may have been reported then; see `stated`."""

    def recovered(self) -> None:
        """Everything from before the restart is known; what happens from now on is new."""

    def stumbled(self, given: Input, error: Exception) -> None:
        """A node failed at an input. It continues, for the same would happen again when it is
        recovered from its log.
        """

    def before_snapshot(self) -> Callable[[], None]:
        """Collect all facts so far: the inputs that led to them will not be replayed.

        The result makes them durable, in another thread. If that raises, there is no snapshot, and
        the engine fails.
        """
        return _nothing

    def snapshot_ended(self, how: str, seconds: float) -> None:
        """A snapshot was made (`inline`, by the `second process`), or was not (`failed`)."""

    def committed(self, seconds: float, inputs: int) -> None:
        """So many inputs became durable together."""


class Driver(Listener, ABC):
    """Does the actions of a node, and takes its facts: for a broker, or for a client."""

    @abstractmethod
    def prepare(self, turn: Turn) -> object:
        """Prepare the actions of a turn; they happen when `release` is called with the result.

        It contains what goes wrong, for the node has made the turn and will remember it. A message
        that cannot be sent is replaced by an empty one with the same number (`without_message`): so
        its link goes on, nothing waits behind it, and once the other end has acknowledged the
        number, the node drops the message from its queue. As nothing of the node changes, this is
        the same before and after a restart.
        """

    @abstractmethod
    def release(self, prepared: object) -> None:
        """Do what was prepared."""

    @abstractmethod
    def stated(self, position: int, facts: Sequence[Fact], size_bytes: int) -> None:
        """Take facts that are final. The input that caused them had so many bytes, which they may
        keep in memory.
        """

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """The engine cannot continue."""


class HeldOutput(NamedTuple):
    """What is held back until an input is durable."""

    position: int
    prepared: object
    stated_at: int
    facts: Sequence[Fact]
    size_bytes: int


class Recovered(NamedTuple, Generic[N]):
    """A node as its log has it."""

    began: Began
    node: N
    time: Time
    memory: bytes
    position: int
    records: Iterator[bytes]
    """The records that follow the state of the node."""


class Loaded(NamedTuple, Generic[N]):
    """The content of a snapshot, and the node that continues from it."""

    state: State
    node: N


def loading(make: Callable[[Began], N]) -> Callable[[str, bytes], Loaded[N]]:
    """A function that reads the state of a snapshot; for `Log.open`."""

    def load(kind: str, data: bytes) -> Loaded[N]:
        state = decode_state(converted(kind, data))
        plugins.require(state.settings)
        try:
            new = make(replace(state.began, settings=state.settings))
            node = restore_node(state.node, new, plugins.require)
        except UnreadableSnapshotError as error:
            raise LogFormatError(str(error)) from None
        return Loaded(state, node)

    return load


def recover(log: Log, recovery: Recovery, new: Began, make: Callable[[Began], N]) -> Recovered[N]:
    """The node whose log this is; with an empty log, a new one."""
    found = recover_old(log.directory, recovery, make)
    if found is not None:
        return found
    log.append(encode_began(new))
    return Recovered(new, make(new), 0, b"", 1, iter(()))


def recover_old(
    directory: Path, recovery: Recovery, make: Callable[[Began], N]
) -> Recovered[N] | None:
    """The node whose log this is; None if the log is empty."""
    if recovery.state is not None:
        loaded: Loaded[N] = recovery.state
        state = loaded.state
        return Recovered(
            state.began, loaded.node, state.time, state.memory, recovery.position, recovery.records
        )
    first = next(recovery.records, None)
    if first is None:
        return None
    old = decode_began(first)
    if old is None:
        raise LogError(f"{directory} does not begin as the log of a broker or client does")
    plugins.require(old.settings)
    return Recovered(old, make(old), 0, b"", 1, recovery.records)


def replay(recovered: Recovered[N], listener: Listener) -> tuple[int, Time]:
    """Replay a log; return the position and the time at its end."""
    node, time = recovered.node, recovered.time
    if recovered.memory:
        listener.remember(recovered.memory)
    position = recovered.position
    for record in recovered.records:
        position += 1
        note = decode_note(record)
        if note is not None:
            listener.noted(note)
            continue
        given, now = decode_record(record)
        time = max(time, now)
        if type(given) is Configured:
            plugins.require(given.settings)
        try:
            turn = handle(node, given, now, listener)
        except LocalProtocolError:
            continue  # The application received the error then.
        listener.done_before(given, turn.actions)
        if turn.facts:
            listener.stated_before(position, turn.facts, len(record))
    return position, time


def handle(node: Node, given: Input, now: Time, listener: Listener) -> Turn:
    """Give a node an input; one that it fails at has no effect."""
    try:
        return node.handle(given, now)
    except LocalProtocolError:
        raise  # The application receives the error.
    except PageUnreadableError:
        raise  # What was acknowledged is not there: nothing may go on as if it had never been.
    except Exception as error:  # noqa: BLE001 - whatever it is, others must not suffer.
        listener.stumbled(given, error)
        return Turn([], [], given)


def without_message(frame: Frame) -> Frame | None:
    """A frame that takes the place of one that cannot be sent: all nodes take it for no events.

    None if the frame has no message.
    """
    return replace(frame, message=NO_EVENTS) if isinstance(frame, Data) else None


class Engine(Generic[N]):
    """Runs a node."""

    def __init__(
        self,
        node: N,
        driver: Driver,
        began: Began,
        *,
        level: Durability = Durability.NONE,
        log: Log | None = None,
        compacts: bool = False,
    ) -> None:
        """Run a node. With `compacts`, which is for brokers, a second process makes the snapshots
        that would stop the loop for too long.
        """
        self.node = node
        self.began = began
        self.clock = node_clock()
        self.inputs = 0
        """How many inputs the node was given."""
        self.idle_inputs = 0
        """How many of them were heartbeats, or time that passed, and changed nothing else."""
        self.driver = driver
        self._level = level
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waking_at: Time = NEVER
        self._held: deque[HeldOutput] = deque()
        self._binding = 0
        """The position that has to be durable before anything more is released."""
        self._is_committing = False
        self._thread = None if log is None else ThreadPoolExecutor(1, "log")
        self._snapshots: Snapshots | None = None
        if log is not None:
            self._snapshots = Snapshots(
                self, log, compacts=compacts, ended=driver.snapshot_ended, fail=self.fail
            )
        self._is_stopping = False
        """Whether no more snapshots are begun, except for the last one."""
        self._is_over = False
        self.has_failed = False
        """Whether it has ended because of an error: then nobody knows the state of the node."""

    @property
    def snapshots(self) -> Snapshots | None:
        """What makes the snapshots; None without a log."""
        return self._snapshots

    @property
    def held(self) -> int:
        """How many inputs wait to be durable."""
        return len(self._held)

    def give(self, given: Input, raw: bytes = b"") -> None:
        """Give the node an input; what it causes happens once it may."""
        if self._is_over:
            return
        now = self.clock.now()
        position = self.inputs = self.inputs + 1
        if self._log is not None:
            try:
                position = self._log.append(encode_record(given, now, raw))
            except LogError as error:
                self.fail(error)
                return
        try:
            turn = handle(self.node, given, now, self.driver)
        except PageUnreadableError as error:
            self.fail(error)
            return
        if type(given) in _IDLE and not turn.facts:
            self.idle_inputs += all(type(action) is Broadcast for action in turn.actions)
        prepared = self.driver.prepare(turn)
        self._wake_in_time()
        if self._log is None:
            self.driver.release(prepared)
            self.driver.stated(position, turn.facts, len(raw))
            return
        if turn.is_binding:
            self._binding = position
        self._held.append(HeldOutput(self._binding, prepared, position, turn.facts, len(raw)))
        if self._level is Durability.SYNC and turn.is_binding:
            if self._commit_now(self._log):
                self._snapshot_if_due()
        elif self._log.synced >= self._binding:
            self._let_out(self._log)
            if self._log.appended - self._log.synced > UNSAFE_MAX and not self._is_committing:
                self._is_committing = True
                self._loop.call_soon(self._commit)
        elif not self._is_committing:
            # Whatever else arrives in this turn of the loop is part of it.
            self._is_committing = True
            self._loop.call_soon(self._commit)

    def note(self, note: bytes) -> None:
        """Keep a note for `noted`; it survives the end of this process at once."""
        if self._log is not None and not self._is_over:
            try:
                self._log.append(encode_note(note))
                self._log.commit(sync=False)
            except LogError as error:
                self.fail(error)

    # ---- Waking

    def _wake_in_time(self) -> None:
        deadline = self.node.deadline
        if deadline >= self._waking_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._waking_at = deadline
        delay = max(0, deadline - self.clock.now()) / 1e6
        self._timer = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer, self._waking_at = None, NEVER
        if self.node.deadline <= self.clock.now():
            self.give(TimePassed())
        else:
            self._wake_in_time()

    # ---- Becoming durable

    def _commit(self) -> None:
        if self._thread is None or self._log is None or self._is_over:
            return
        began, before = perf_counter(), self._log.synced
        try:
            future = self._thread.submit(self._log.commit)
        except RuntimeError as error:  # The system allows for no more threads.
            self.fail(error)
            return
        future.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._committed, done, began, before)
        )

    def _committed(self, done: "Future[int]", began: float, before: int) -> None:
        self._is_committing = False
        error = done.exception()
        if error is not None:
            self.fail(error)
            return
        self.driver.committed(perf_counter() - began, done.result() - before)
        if self._log is not None:
            self._let_out(self._log)
        if self._held and not self._is_over:
            self._is_committing = True
            self._commit()
        self._snapshot_if_due()

    def _commit_now(self, log: Log) -> bool:
        began, before = perf_counter(), log.synced
        try:
            log.commit()
        except LogError as error:
            self.fail(error)
            return False
        self.driver.committed(perf_counter() - began, log.synced - before)
        self._let_out(log)
        return not self._is_over

    def _let_out(self, log: Log) -> None:
        synced, held, driver = log.synced, self._held, self.driver
        while held and held[0].position <= synced:
            each = held.popleft()
            driver.release(each.prepared)
            if each.facts:
                driver.stated(each.stated_at, each.facts, each.size_bytes)

    # ---- Snapshots and recovery

    def _snapshot_if_due(self) -> None:
        log, snapshots = self._log, self._snapshots
        if log is None or snapshots is None or self._is_over or self._is_stopping:
            return
        snapshots.hurry_if_urgent()
        if not snapshots.is_due:
            return
        if snapshots.is_large:
            sealed = log.seal()
            self._let_out(log)  # All facts up to there are stated now.
            snapshots.compact(sealed)
            return
        # Under load there is always something held: it is made durable now, or there would never be
        # a snapshot. What is held is in no snapshot.
        if not self._held or self._commit_now(log):
            snapshots.make(limited=True)

    def recover(self, recovered: "Recovered[N]") -> None:
        """Continue where the log ends: replay it, without releasing anything again."""
        collects = gc.isenabled()
        gc.disable()  # A replay makes no cycles, and much that stays.
        try:
            position, time = replay(recovered, self.driver)
        finally:
            if collects:
                gc.enable()
        self._binding = self.inputs = position
        self.clock.not_before(time)
        self.driver.recovered()
        for link in [*self.node.peers]:  # Whatever connection there was, it is gone.
            if self.node.is_connected(link):
                self.give(LinkDown(link=link))
        self._wake_in_time()

    async def stop(self, *, snapshot: bool) -> None:
        """Release what is left, keep the state, and end."""
        if self._log is None or self._snapshots is None or self._thread is None:
            self._end()
            return
        self._is_stopping = True
        self._snapshots.end_compaction()
        while not self._is_over and (
            self._is_committing or self._held or self._snapshots.is_running
        ):
            if self._held and not self._is_committing:
                self._is_committing = True
                self._commit()
            await asyncio.sleep(0.001)
        try:
            if snapshot and not self._is_over:
                kept = self._snapshots.make(limited=False)
                while self._snapshots.is_running:  # Until its end is reported, too.
                    await asyncio.sleep(0.001)
                with suppress(SnapshotFailedError):  # It is logged, and the log has everything.
                    if kept is not None:
                        kept.result()
        finally:  # What was acknowledged is in the log, with or without a snapshot.
            self._end()
            self._thread.shutdown()
            self._snapshots.close()
            self._log.close()

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._snapshots is not None:
            self._snapshots.end_compaction()

    def fail(self, error: BaseException) -> None:
        """Stop for good after an error: nothing more is released."""
        if not self._is_over:
            self.has_failed = True
            self._end()
            self.driver.failed(error if isinstance(error, Exception) else RuntimeError(error))


def _nothing() -> None:
    pass
