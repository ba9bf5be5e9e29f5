"""Power cuts at any moment: what was durable is there, and nothing that never was."""

from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.net.storage import Log, LogFailedError, LogOptions, Recovery, SnapshotFailedError
from sterna.net.storage.format import GROUP_BYTES, GROUP_MAGIC, encode_snapshot
from sterna.net.storage.snapshots import write_snapshot
from tests.net.storage.model_disk import ModelDisk, PowerCut
from tests.scale import examples

DIRECTORY = Path("/log")


class Life:
    """A log through several power cuts, beside a plain list of what was appended to it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311
        self.disk = ModelDisk()
        self.options = LogOptions(
            segment_bytes=self.rng.choice([300, 3_000, 20_000]),
            fill_bytes=self.rng.choice([1, 700, 4_096]),
        )
        self.records: list[bytes] = []
        self.durable = 0
        """How many records the log has called durable."""
        self.snapshot_position = 0
        self.cuts = 0
        self.log: Log | None = None

    def record(self) -> bytes:
        size = self.rng.choice([0, 20, 20, 150, 150, 600, 3_000])
        content = self.rng.choice([bytes(size), self.rng.randbytes(size), GROUP_MAGIC * 9])
        return content[:size]

    def run(self, steps: int) -> None:
        """Work until the power is cut, the process is killed or the disk fails, at any moment."""
        end = self.disk.operations + self.rng.randrange(30)
        match self.rng.randrange(6):
            case 0:
                self.disk.fail_at = end
            case 1 | 2 | 3 | 4:
                self.disk.cut_at = end
        try:
            self.open()
            for _ in range(steps):
                self.step()
        except (PowerCut, LogFailedError):
            pass
        if self.rng.random() < 0.3:
            self.disk.kill()
        else:
            self.cut()

    def cut(self) -> None:
        self.disk.power_cut(self.rng)
        self.cuts += 1

    def open(self) -> None:
        self.log, recovery = Log.open(DIRECTORY, disk=self.disk, options=self.options)
        found = contents(recovery)

        assert found == self.records[: len(found)], "only what was appended, in order"
        assert len(found) >= self.durable, "nothing durable is lost"
        assert self.log.appended == self.log.synced == len(found)

        self.records = found
        self.durable = len(found)
        self.snapshot_position = recovery.position

    def step(self) -> None:
        log = self.log
        assert log is not None
        match self.rng.randrange(20):
            case 0:
                log.close()
                self.durable = len(self.records)
                self.open()
            case 1:
                self.disk.kill()
                self.open()
            case 2:
                self.durable = log.commit()
                sealed = log.seal()
                assert sealed.position == len(self.records)
                state = msgspec.msgpack.encode(self.records)
                header = encode_snapshot(state, sealed.position, "")
                try:
                    write_snapshot(self.disk, sealed.path, header, state)
                except OSError:  # The log is as it was, and goes on.
                    log.discard(sealed)
                    return
                self.records += [self.record() for _ in range(self.rng.randrange(3))]
                for record in self.records[sealed.position :]:
                    log.append(record)
                with suppress(SnapshotFailedError):  # As above.
                    log.adopt(sealed)
                    self.snapshot_position = sealed.position
            case 3:
                position = self.rng.randint(self.snapshot_position, len(self.records))
                with suppress(SnapshotFailedError):
                    log.snapshot(msgspec.msgpack.encode(self.records[:position]), position)
                    self.snapshot_position = position
                self.durable = max(self.durable, position)
            case 4 | 5:
                log.commit(sync=False)
            case 6 | 7 | 8 | 9 | 10:
                self.durable = log.commit()
                assert self.durable == len(self.records)
            case _:
                for _ in range(self.rng.choice([1, 1, 1, 5, 20])):
                    self.records.append(self.record())
                    assert log.append(self.records[-1]) == len(self.records)


def contents(recovery: Recovery) -> list[bytes]:
    """All records from the beginning: the states in these tests are all that led to them."""
    before: list[bytes] = []
    if recovery.state is not None:
        before = msgspec.msgpack.decode(recovery.state, type=list[bytes])
        assert len(before) == recovery.position
    found = before + list(recovery.records)
    assert recovery.report.records == len(found) - recovery.position
    return found


@pytest.mark.spec("LV-1")
@examples(500)
@given(seed=st.integers(0, 2**64))
def test_no_power_cut_loses_what_was_durable(seed: int) -> None:
    """Recovered is a prefix of what was appended, with all that was committed; and so on again."""
    life = Life(seed)
    for _ in range(5):
        life.run(steps=30)
    life.cut()
    life.open()

    assert life.cuts >= 1


def snapshot_story(disk: ModelDisk) -> list[bytes]:
    """Records in several segments, and two snapshots."""
    records = [bytes([65 + i]) * 200 for i in range(20)]
    log, _ = Log.open(DIRECTORY, disk=disk, options=LogOptions(segment_bytes=600, fill_bytes=64))
    for record in records:
        log.append(record)
        log.commit()
    disk.log.clear()
    for position in (7, 15):
        log.snapshot(msgspec.msgpack.encode(records[:position]), position)
    return records


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_each_operation_of_a_snapshot(seed: int) -> None:
    """The old snapshot or the new one is there, with all records after it."""
    whole = ModelDisk()
    records = snapshot_story(whole)
    assert {"create", "write", "sync", "rename", "sync_directory", "remove"} <= set(whole.log)
    for operation in range(whole.operations - len(whole.log), whole.operations + 1):
        disk = ModelDisk()
        disk.cut_at = operation
        if operation < whole.operations:
            with pytest.raises(PowerCut):
                snapshot_story(disk)
        else:
            snapshot_story(disk)
        disk.power_cut(Random(seed))  # noqa: S311

        log, recovery = Log.open(DIRECTORY, disk=disk)

        assert recovery.position in {0, 7, 15}
        assert contents(recovery) == records
        assert not [name for name in disk.names(DIRECTORY) if name.endswith(".new")]
        log.close()


def adoption_story(disk: ModelDisk) -> list[bytes]:
    """Records in several segments, and two snapshots that are made elsewhere."""
    records = [bytes([65 + i]) * 200 for i in range(20)]
    log, _ = Log.open(DIRECTORY, disk=disk, options=LogOptions(segment_bytes=600, fill_bytes=64))
    for number, record in enumerate(records, start=1):
        log.append(record)
        log.commit()
        if number in {7, 15}:
            if number == 7:
                disk.log.clear()
            sealed = log.seal()
            state = msgspec.msgpack.encode(records[:number])
            header = encode_snapshot(state, number, "")
            write_snapshot(disk, sealed.path, header, state)
            log.adopt(sealed)
    return records


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_each_operation_of_a_snapshot_that_is_made_elsewhere(seed: int) -> None:
    """All that was committed is there, from a snapshot that is whole, and nothing is left over."""
    whole = ModelDisk()
    records = adoption_story(whole)
    assert {"create", "write", "sync", "rename", "sync_directory", "remove"} <= set(whole.log)
    for operation in range(whole.operations - len(whole.log), whole.operations):
        disk = ModelDisk()
        disk.cut_at = operation
        with pytest.raises(PowerCut):
            adoption_story(disk)
        disk.power_cut(Random(seed))  # noqa: S311

        log, recovery = Log.open(DIRECTORY, disk=disk)

        assert recovery.position in {0, 7, 15}
        found = contents(recovery)
        assert len(found) >= 7
        assert found == records[: len(found)]
        assert not [name for name in disk.names(DIRECTORY) if name.endswith(".new")]
        log.close()


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("seed", range(30))
def test_what_a_failed_sync_left_in_memory_is_not_taken_for_durable(seed: int) -> None:
    """After EIO the system shows bytes that are not on disk: recovery writes them once more."""
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    log.append(b"first")
    log.commit()
    log.append(b"second")
    disk.fail_at = disk.operations + 1  # The write, then the sync.
    with pytest.raises(LogFailedError):
        log.commit()
    disk.kill()

    _, recovery = Log.open(DIRECTORY, disk=disk)
    seen = list(recovery.records)
    disk.power_cut(Random(seed))  # noqa: S311
    _, recovery = Log.open(DIRECTORY, disk=disk)

    assert seen == [b"first", b"second"]
    assert list(recovery.records) == seen


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("seed", range(10))
def test_what_was_cut_off_never_comes_back(seed: int) -> None:
    """A group that was torn off would fit behind new ones that take the place of the torn one."""
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    log.append(b"durable")
    log.commit()
    for record in (b"torn" * 50, b"stale" * 50):
        log.append(record)
        log.commit(sync=False)
    disk.kill()
    (name,) = disk.names(DIRECTORY)
    disk.flip(DIRECTORY / name, disk.read(DIRECTORY / name).index(b"torn"), 1)
    disk = disk.copy()
    log, recovery = Log.open(DIRECTORY, disk=disk, options=LogOptions(fill_bytes=1))
    assert list(recovery.records) == [b"durable"]
    fitting = b"n" * (len(b"torn" * 50) - GROUP_BYTES)  # The mark of opening takes its part.
    log.append(fitting)
    log.commit()
    disk.power_cut(Random(seed))  # noqa: S311

    _, recovery = Log.open(DIRECTORY, disk=disk)

    assert list(recovery.records) == [b"durable", fitting]
