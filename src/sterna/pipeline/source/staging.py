"""Events on their way from Spark's tasks to brokers, each of them published exactly once.

Tasks publish nothing: they put events into files. A process that commits a batch of them takes
these steps, each durable before the next, alone (a lock) and for one owner (a streaming query):

1. the batch goes into the *ledger*, a file that is replaced as a whole: its files in their order,
   and the number that the client, which remembers what it publishes, will give to its first event;
2. the client publishes what is left of the batch: its own last number says how much that is;
3. when a broker has all of it, the ledger says that the batch is done;
4. its files are removed.

A process that starts after a crash finishes what the ledger has, whatever rows it brings itself.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from sterna.net.storage.disk import REAL, Disk, write_fully
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.staged import Row, StagedFile, contents, rows_of

BatchId = int | str

LOCK_S = 60.0
"""How many seconds to wait for another process: that of a killed driver needs some time."""

_LEDGER, _NEW_LEDGER, _LOCK, _ENDING = "ledger.json", "ledger.json.new", "lock", ".rows"
_POLL_S = 0.05


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were committed and may not be published yet."""

    id: BatchId
    first: int
    """The sequence number of its first event, as the client counts."""
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """What was committed from a directory so far."""

    owner: str
    """The query whose batches these are."""
    client: str
    done: tuple[BatchId, ...] = ()
    """The last micro-batch of a stream, or all transactions."""
    pending: Batch | None = None


class PublishingClient(Protocol):
    """A client of the broker network that remembers what it has published."""

    @property
    def published(self) -> int:
        """The sequence number of the client's last event."""
        ...

    @property
    def event_bytes_max(self) -> int:
        """The size of the largest event that may be published, in bytes."""
        ...

    def publish_all(self, rows: Iterable[Row]) -> None:
        """Publish events, after all that is left from before; return when a broker has them."""
        ...


Connect = Callable[[str], AbstractContextManager[PublishingClient]]
"""Connects the client of this name; when it exits without an error, its state is durable."""


class Staging:
    """A directory for events that are to be published, with the ledger of what was."""

    def __init__(self, directory: Path, *, disk: Disk = REAL) -> None:
        self.directory = directory
        self._disk = disk

    # ---- In tasks

    def stage(self, rows: Iterable[Row], *, job: str) -> tuple[StagedFile, ...]:
        """Put the events of a task into files, durably."""
        self._disk.make_directory(self.directory)
        staged: list[StagedFile] = []
        try:
            for content, count, largest_bytes in contents(rows):
                name = f"{job}.{uuid4().hex}{_ENDING}"
                staged.append(StagedFile(name, count, largest_bytes))
                self._create(name, content)
            if staged:
                self._disk.sync_directory(self.directory)
        except Exception:
            self._discard(staged)
            raise
        return tuple(staged)

    # ---- In the driver

    def commit(
        self,
        batch: BatchId,
        files: Sequence[StagedFile],
        connect: Connect,
        *,
        owner: str,
        client: str | None,
        job: str,
    ) -> None:
        """Publish a batch, unless that was done before; what is pending of another one goes first.

        `owner` has to be the same each time, and so has the `client`, if it is given. What tasks
        have staged for this `job` is removed in the end.
        """
        self._disk.make_directory(self.directory)
        with self._locked():
            ledger = self._ledger(owner, client, batch)
            is_new = bool(files) and not _knows(ledger, batch)
            if ledger.pending is not None or is_new:
                self._publish(ledger, batch, files, connect)
            self._sweep(job)

    def abort(self, *, job: str) -> None:
        """Remove what tasks have staged, unless its commit has begun: then that continues later."""
        self._disk.make_directory(self.directory)
        with self._locked():
            ledger = self._read()
            pending = () if ledger is None or ledger.pending is None else ledger.pending.files
            self._sweep(job, but=[file.name for file in pending])

    def _publish(
        self, ledger: Ledger, batch: BatchId, files: Sequence[StagedFile], connect: Connect
    ) -> None:
        if not ledger.done and ledger.pending is None:
            with connect(ledger.client):  # From now on its numbers are known, whatever happens.
                pass
        with connect(ledger.client) as outbox:
            if ledger.pending is not None:
                ledger = self._finish(ledger, ledger.pending, outbox)
            if files and not _knows(ledger, batch):
                self._check(files, outbox)
                pending = Batch(id=batch, first=outbox.published + 1, files=tuple(files))
                ledger = replace(ledger, pending=pending)
                self._write(ledger)
                self._finish(ledger, pending, outbox)

    def _finish(self, ledger: Ledger, pending: Batch, outbox: PublishingClient) -> Ledger:
        published = outbox.published - pending.first + 1
        if not 0 <= published <= pending.rows:
            raise PipelineError(
                f"the client {ledger.client!r} was used by others, or its state in "
                f"{self.directory} is not the one of before, so nobody knows how much of batch "
                f"{pending.id} is published; begin with another directory (option staging) and "
                "another client"
            )
        outbox.publish_all(islice(self._rows(pending), published, None))
        if outbox.published != pending.first + pending.rows - 1:
            raise PipelineError(
                f"the client {ledger.client!r} has not taken all rows of batch {pending.id}; "
                "its messages say why"
            )
        keeps = ledger.done if isinstance(pending.id, str) else ()
        ledger = replace(ledger, done=(*keeps, pending.id), pending=None)
        self._write(ledger)
        self._discard(pending.files)
        return ledger

    def _check(self, files: Sequence[StagedFile], outbox: PublishingClient) -> None:
        """Make sure that a batch can be published as a whole; else nothing of it is."""
        here = {*self._disk.names(self.directory)}
        for file in files:
            if file.name not in here:
                raise PipelineError(
                    f"rows that a worker has put into {self.directory} are not there for the "
                    "driver; set the option staging to a directory that all machines share"
                )
            if file.largest_bytes > outbox.event_bytes_max:
                raise PipelineError(
                    f"a row makes an event of about {file.largest_bytes:,} bytes, and the brokers "
                    f"take {outbox.event_bytes_max:,}; leave it out, or configure brokers with "
                    "a larger limits.frame_bytes_max"
                )

    def _rows(self, batch: Batch) -> Iterator[Row]:
        for file in batch.files:
            path = self.directory / file.name
            try:
                rows = rows_of(self._disk.read(path))
            except (OSError, msgspec.DecodeError) as error:
                raise _unreadable(path, error) from error
            if len(rows) != file.rows:
                raise _unreadable(path, f"it has {len(rows)} rows, not {file.rows}")
            yield from rows

    # ---- The ledger

    def _ledger(self, owner: str, client: str | None, batch: BatchId) -> Ledger:
        """The ledger, new or not, if it is the right one."""
        ledger = self._read()
        if ledger is None:
            ledger = Ledger(owner=owner, client=client or f"spark-{uuid4().hex[:12]}")
            self._write(ledger)
        if ledger.owner != owner:
            raise PipelineError(
                f"{self.directory} belongs to {ledger.owner}, and this is {owner}; give each "
                "checkpoint a directory of its own (option staging)"
            )
        if client is not None and ledger.client != client:
            raise PipelineError(
                f"{self.directory} belongs to the client {ledger.client!r}, not to {client!r}; "
                "use another directory (option staging), or that client"
            )
        last = ledger.done[-1] if ledger.done else None
        if isinstance(batch, int) and isinstance(last, int) and batch < last:
            raise PipelineError(
                f"batch {batch} comes after batch {last}: the checkpoint is older than "
                f"{self.directory}; begin with a new checkpoint, staging and client"
            )
        return ledger

    def _read(self) -> Ledger | None:
        if _LEDGER not in self._disk.names(self.directory):
            return None
        # It may have been put there a moment before its writer was killed. What follows from it
        # must not be durable before it is.
        self._disk.sync_directory(self.directory)
        path = self.directory / _LEDGER
        try:
            return msgspec.json.decode(self._disk.read(path), type=Ledger)
        except (OSError, msgspec.DecodeError) as error:
            raise _unreadable(path, error) from error

    def _write(self, ledger: Ledger) -> None:
        self._remove(_NEW_LEDGER)
        self._create(_NEW_LEDGER, msgspec.json.encode(ledger))
        self._disk.rename(self.directory / _NEW_LEDGER, self.directory / _LEDGER)
        self._disk.sync_directory(self.directory)

    # ---- Files

    def _create(self, name: str, content: bytes) -> None:
        file = self._disk.create(self.directory / name)
        try:
            write_fully(file, [content], 0)
            file.sync()
        finally:
            file.close()

    def _discard(self, files: Sequence[StagedFile]) -> None:
        for file in files:
            self._remove(file.name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(self.directory / name)

    def _sweep(self, job: str, *, but: Sequence[str] = ()) -> None:
        """Remove what tasks have staged, including failed and superfluous attempts."""
        for name in {*self._disk.names(self.directory)} - {*but}:
            if name.startswith(f"{job}.") and name.endswith(_ENDING):
                self._remove(name)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        release = self._lock()
        try:
            yield
        finally:
            release()

    def _lock(self) -> Callable[[], None]:
        until = time.monotonic() + LOCK_S
        while True:
            try:
                return self._disk.lock(self.directory / _LOCK)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise PipelineError(
                        f"another process publishes from {self.directory} for more than "
                        f"{LOCK_S:.0f} s; stop the other query that uses it, or use another "
                        "directory (option staging)"
                    ) from None
            time.sleep(_POLL_S)


def _knows(ledger: Ledger, batch: BatchId) -> bool:
    return batch in ledger.done or (ledger.pending is not None and ledger.pending.id == batch)


def _unreadable(path: Path, why: object) -> PipelineError:
    return PipelineError(
        f"{path} cannot be read ({why}), so nobody knows what is published; begin with a new "
        "checkpoint, staging and client"
    )
