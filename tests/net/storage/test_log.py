"""The log: what it keeps, when it fails, how much it takes, who may use it."""

import errno
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.net.storage import (
    Log,
    LogDamagedError,
    LogError,
    LogFailedError,
    LogFormatError,
    LogFullError,
    LogInUseError,
    LogOptions,
    Recovery,
    SnapshotFailedError,
)
from sterna.net.storage import format as storage_format
from sterna.net.storage.format import RECORD_BYTES_MAX
from sterna.net.storage.recovery import read
from tests.net.storage.model_disk import ModelDisk
from tests.scale import examples

DIRECTORY = Path("/log")
SMALL = LogOptions(segment_bytes=2_000, fill_bytes=256)


def append(log: Log, *records: bytes) -> int:
    for record in records:
        log.append(record)
    return log.commit()


def reopened(directory: Path, kind: str = "") -> tuple[list[bytes], Recovery]:
    log, recovery = Log.open(directory, kind=kind)
    records = list(recovery.records)
    log.close()
    return records, recovery


# What it keeps


@pytest.mark.spec("LV-1")
@examples(30)
@given(
    commits=st.lists(st.lists(st.binary(max_size=3_000)), max_size=8),
    segment_bytes=st.integers(1, 9_000),
    fill_bytes=st.integers(1, 9_000),
)
def test_what_was_committed_is_there_after_opening_again(
    commits: list[list[bytes]], segment_bytes: int, fill_bytes: int
) -> None:
    disk = ModelDisk()
    options = LogOptions(segment_bytes=segment_bytes, fill_bytes=fill_bytes)
    log, recovery = Log.open(DIRECTORY, disk=disk, options=options)
    assert (recovery.state, recovery.position, list(recovery.records)) == (None, 0, [])
    count = 0
    for commit in commits:
        count += len(commit)
        assert append(log, *commit) == log.synced == log.written == log.appended == count
        assert log.bytes_on_disk == disk.used_bytes()
    log.close()

    log, recovery = Log.open(DIRECTORY, disk=disk, options=options)

    assert list(recovery.records) == [record for commit in commits for record in commit]
    assert recovery.report.closed
    assert log.bytes_on_disk == disk.used_bytes()


@pytest.mark.spec("LV-1")
def test_a_real_disk(tmp_path: Path) -> None:
    """Segments, a large commit, a snapshot, and what is left after it."""
    directory = tmp_path / "not" / "there"
    records = [os.urandom(size) for size in (0, 1, 150, 1 << 20, 3 << 20)] * 3
    log, _ = Log.open(directory, kind="k", options=LogOptions(segment_bytes=1 << 20))
    append(log, *records)
    assert log.bytes_on_disk == sum(path.stat().st_size for path in directory.iterdir())
    log.snapshot(b"one", 10)
    log.snapshot(b"two" * 5_000_000, 12)
    append(log, b"last")
    assert log.bytes_on_disk == sum(path.stat().st_size for path in directory.iterdir())
    log.close()

    found, recovery = reopened(directory, "k")

    assert recovery.state == b"two" * 5_000_000
    assert recovery.position == 12
    assert found == [*records[12:], b"last"]
    assert str(recovery.report).startswith("Recovered the snapshot at record 12 and 4 records (")
    assert min(int(path.stem) for path in directory.glob("*.log")) > 0, "the beginning is gone"


@pytest.mark.spec("LV-1")
def test_a_log_in_use_is_read_up_to_a_position_and_not_changed() -> None:
    """What is written meanwhile, torn or whole, is none of the reader's business."""
    disk = ModelDisk()
    records = [b"%d" % number * 50 for number in range(40)]
    log, _ = Log.open(DIRECTORY, disk=disk, options=LogOptions(segment_bytes=500, fill_bytes=64))
    append(log, *records[:10])
    log.snapshot(b"ten", 10)
    for record in records[10:30]:
        append(log, record)
    sealed = log.seal()
    for record in records[30:]:
        append(log, record)
    last = max(name for name in disk.names(DIRECTORY) if name.endswith(".log"))
    disk.flip(DIRECTORY / last, disk.size(DIRECTORY / last) - 70, 0xFF)
    before = {name: disk.read(DIRECTORY / name) for name in disk.names(DIRECTORY)}

    recovery = read(disk, DIRECTORY, [""], lambda _, state: state, sealed.position)

    assert (recovery.state, recovery.position) == (b"ten", 10)
    assert list(recovery.records) == records[10:30]
    assert before == {name: disk.read(DIRECTORY / name) for name in disk.names(DIRECTORY)}


@pytest.mark.spec("LV-1")
def test_a_reader_reads_no_further_than_its_position() -> None:
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    append(log, b"first", b"second")
    append(log, b"third")

    found = [read(disk, DIRECTORY, [""], lambda _, state: state, up_to) for up_to in (2, 3)]

    assert [each.report.records for each in found] == [2, 3]
    assert found[0].report.bytes < found[1].report.bytes


@pytest.mark.spec("LV-1")
def test_a_reader_does_not_take_less_for_all_there_is() -> None:
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    append(log, b"first", b"second")
    append(log, b"third")
    (name,) = disk.names(DIRECTORY)
    disk.flip(DIRECTORY / name, disk.read(DIRECTORY / name).index(b"third"), 0xFF)

    assert list(read(disk, DIRECTORY, [""], lambda _, state: state, 2).records) == [
        b"first",
        b"second",
    ]
    with pytest.raises(LogDamagedError, match="record 2 is not intact"):
        read(disk, DIRECTORY, [""], lambda _, state: state, 3)


@pytest.mark.spec("LV-1")
def test_one_write_and_one_sync_for_all_that_was_appended() -> None:
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    disk.log.clear()

    append(log, *[b"x" * 150] * 5_000)
    log.commit()

    assert disk.log == ["write", "sync_data"], "and nothing when there is nothing to do"


@pytest.mark.spec("LV-1")
def test_written_is_not_synced() -> None:
    log, _ = Log.open(DIRECTORY, disk=ModelDisk())
    log.append(b"x")

    assert log.commit(sync=False) == 0
    assert (log.appended, log.written, log.synced) == (1, 1, 0)
    assert log.commit() == 1


@pytest.mark.spec("LV-1")
def test_records_are_appended_while_others_are_written_and_snapshots_made(tmp_path: Path) -> None:
    """Three threads: nothing is lost between them, and the order stays."""
    log, _ = Log.open(tmp_path, options=LogOptions(segment_bytes=100_000, fill_bytes=10_000))
    count = 60_000
    done = threading.Event()

    def commit() -> None:
        while not done.is_set():
            log.commit(sync=False)

    def snapshot() -> None:
        while not done.is_set():
            position = log.written
            log.snapshot(b"%d" % position, position)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work) for work in (commit, snapshot)]
    try:
        for thread in threads:
            thread.start()
        for number in range(count):
            assert log.append(b"%d" % number) == number + 1
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switch)
    log.close()
    log, recovery = Log.open(tmp_path)

    assert log.appended == count
    assert list(recovery.records) == [b"%d" % n for n in range(recovery.position, count)]
    assert log.bytes_on_disk == sum(path.stat().st_size for path in tmp_path.iterdir())
    log.close()


@pytest.mark.spec("LV-6")
def test_wrong_use_is_refused_and_does_no_harm() -> None:
    log, _ = Log.open(DIRECTORY, disk=ModelDisk())
    append(log, b"1", b"2", b"3")
    log.snapshot(b"state", 2)

    with pytest.raises(ValueError, match="at most"):
        log.append(bytes(RECORD_BYTES_MAX + 1))
    for position in (1, 4):
        with pytest.raises(ValueError, match="not between the last one at 2 and the end at 3"):
            log.snapshot(b"state", position)
    assert append(log, b"4") == 4


# Failing


def life(disk: ModelDisk) -> tuple[int, LogError | None]:
    """Commits and snapshots across segments; how much was durable in the end, and what ended it.

    A snapshot that fails does not.
    """
    log: Log | None = None
    try:
        log, _ = Log.open(DIRECTORY, disk=disk, options=SMALL)
        for number in range(30):
            append(log, bytes([number]) * 300)
            if number % 10 == 9:
                with suppress(SnapshotFailedError):
                    log.snapshot(bytes(3_000), number)
                assert log.bytes_on_disk == disk.used_bytes(), "nothing is left of a failed one"
        log.close()
    except LogError as error:
        if log is not None:
            assert_dead(log, error, disk)
            log.close()
            return log.synced, error
        return 0, error
    return log.synced, None


def assert_dead(log: Log, error: LogError, disk: ModelDisk) -> None:
    operations, synced = disk.operations, log.synced
    for call in (log.commit, lambda: log.append(b""), lambda: log.snapshot(b"", log.synced)):
        with pytest.raises(type(error), match=re.escape(str(error))):
            call()
    assert disk.operations == operations, "nothing is tried again"
    assert log.synced == synced


@pytest.mark.spec("LV-1")
def test_each_operation_that_fails_is_the_last_one() -> None:
    """EIO at each: one clear error, nothing more written, nothing lost. Only the file of a new
    snapshot, which is no part of the log yet, is given up.
    """
    whole = ModelDisk()
    assert life(whole) == (30, None)
    kinds, harmless = set(), set()
    for operation in range(whole.operations):
        disk = ModelDisk()
        disk.fail_at = operation
        synced, error = life(disk)
        if error is None:
            assert synced == 30
            harmless.add(disk.log[operation])
        else:
            assert isinstance(error, LogFailedError)
            assert re.search(r"Input/output error.* start again", str(error))
            assert disk.operations == operation + 1, "the failed one is the last"
            kinds.add(disk.log[-1])
        disk.kill()
        _, recovery = Log.open(DIRECTORY, disk=disk, options=SMALL)
        numbers = [record[0] for record in recovery.records]
        end = recovery.position + len(numbers)
        assert numbers == list(range(recovery.position, end))
        assert end >= synced

    assert kinds == {"create", "write", "sync", "sync_data", "sync_directory", "remove"}
    assert harmless == {"create", "write", "sync", "sync_data", "rename"}


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("room_bytes", range(100, 14_700, 331))
def test_a_full_disk_ends_the_log_and_says_so(room_bytes: int) -> None:
    disk = ModelDisk()
    disk.room_bytes = room_bytes
    synced, error = life(disk)
    assert isinstance(error, LogFullError)
    assert "Make room on the disk, then start again" in str(error)
    disk.kill()
    disk.room_bytes = None

    log, recovery = Log.open(DIRECTORY, disk=disk, options=SMALL)

    assert log.synced >= synced
    assert [record[0] for record in recovery.records] == list(range(recovery.position, log.synced))


@pytest.mark.spec("LV-1")
def test_a_short_write_ends_the_log() -> None:
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    append(log, b"whole")
    disk.short_at = disk.operations

    with pytest.raises(LogFailedError, match="bytes were written"):
        append(log, b"half" * 100)
    with pytest.raises(LogFailedError, match="bytes were written"):
        log.commit()

    assert log.synced == 1
    disk.kill()
    disk.short_at = None
    assert list(Log.open(DIRECTORY, disk=disk)[1].records) == [b"whole"]


@pytest.mark.spec("LV-1")
def test_a_failed_sync_on_a_real_file_is_reported(tmp_path: Path) -> None:
    """Closing the descriptor under it simulates a disk that is gone."""
    log, _ = Log.open(tmp_path)
    log._file.close()
    log.append(b"x")

    with pytest.raises(LogFailedError, match=os.strerror(errno.EBADF)):
        log.commit()
    with pytest.raises(LogFailedError, match=os.strerror(errno.EBADF)):
        log.append(b"y")


@pytest.mark.spec("LV-1")
def test_after_closing_nothing_is_taken(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path)
    log.append(b"x")
    log.close()
    log.close()

    with pytest.raises(LogFailedError, match="is closed"):
        log.append(b"y")
    assert reopened(tmp_path)[0] == [b"x"], "closing commits"


# How much it takes


@pytest.mark.spec("LV-6")
def test_a_snapshot_is_due_after_so_many_bytes_or_records() -> None:
    disk = ModelDisk()
    options = LogOptions(snapshot_bytes=10_000, snapshot_records=100)
    log, _ = Log.open(DIRECTORY, disk=disk, options=options)
    due = []
    for batch in ([b"x"] * 100, [b"x"], [], [bytes(9_900)], [bytes(100)]):
        if not batch:
            log.snapshot(b"", log.appended)
        append(log, *batch)
        due.append(log.snapshot_due)
    assert due == [False, True, False, False, True]
    log.close()

    log, _ = Log.open(DIRECTORY, disk=disk, options=options)

    assert log.snapshot_due, "also after a restart"
    assert log.records_since_snapshot == 2


@pytest.mark.spec("LV-6")
def test_the_disk_is_bounded_when_snapshots_are_made_as_they_fall_due() -> None:
    disk = ModelDisk()
    options = LogOptions(bytes_max=200_000, fill_bytes=2_000)
    log, _ = Log.open(DIRECTORY, disk=disk, options=options)
    for _ in range(3_000):
        append(log, bytes(1_000))
        if log.snapshot_due:
            log.snapshot(bytes(20_000), log.appended)
        assert log.bytes_on_disk == disk.used_bytes() <= 200_000

    assert len(disk.names(DIRECTORY)) < 10


@pytest.mark.spec("LV-6")
def test_the_limit_ends_the_log_with_a_clear_error() -> None:
    disk = ModelDisk()
    options = LogOptions(bytes_max=100_000)
    log, _ = Log.open(DIRECTORY, disk=disk, options=options)
    for _ in range(95):
        append(log, bytes(1_000))  # The zeros ahead give way.

    with pytest.raises(LogFullError, match=r"bytes_max = 100,000 bytes. Raise the limit"):
        append(log, bytes(10_000))

    assert disk.used_bytes() <= 100_000
    synced = log.synced
    log.close()

    log, _ = Log.open(DIRECTORY, disk=disk, options=LogOptions(bytes_max=1_000_000))

    assert log.synced == synced
    assert append(log, bytes(1_000)) == synced + 1


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("name", ["segment_bytes", "snapshot_records", "bytes_max"])
def test_impossible_limits_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        msgspec.convert({name: 0}, LogOptions)


# Who may use it


@pytest.mark.spec("LV-1")
def test_a_second_process_is_refused(tmp_path: Path) -> None:
    log, _ = Log.open(tmp_path)
    program = (
        "import sys; from pathlib import Path; from sterna.net.storage import Log\n"
        "Log.open(Path(sys.argv[1]))"
    )
    second = [sys.executable, "-c", program, str(tmp_path)]

    refused = subprocess.run(second, capture_output=True, text=True, check=False)
    with pytest.raises(LogInUseError):
        Log.open(tmp_path)
    log.close()
    taken = subprocess.run(second, capture_output=True, text=True, check=False)

    assert "LogInUseError" in refused.stderr
    assert "is in use by another process. Stop that" in refused.stderr
    assert taken.returncode == 0, taken.stderr
    assert not reopened(tmp_path)[1].report.closed, "the second did not close it"


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("ending", [".log", ".snapshot"])
def test_another_format_is_recognised(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by its number, without a change to any file; salvage does not touch it either."""
    disk = ModelDisk()
    with monkeypatch.context() as later_version:
        later_version.setattr(storage_format, "FORMAT", 7)
        log, _ = Log.open(DIRECTORY, disk=disk)
        append(log, b"x")
        if ending == ".snapshot":
            log.snapshot(b"state", 1)
        log.close()
    if ending == ".snapshot":
        for name in disk.names(DIRECTORY):
            if name.endswith(".log"):
                disk.remove(DIRECTORY / name)
    operations = disk.operations

    for salvage in (False, True):
        with pytest.raises(LogFormatError, match=rf"{ending} has format 7; this version reads"):
            Log.open(DIRECTORY, disk=disk, options=LogOptions(salvage=salvage))

    assert disk.operations == operations


@pytest.mark.spec("LV-1")
def test_a_flipped_format_number_is_damage_and_not_another_format() -> None:
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    append(log, b"x")
    log.close()
    (name,) = disk.names(DIRECTORY)
    disk.flip(DIRECTORY / name, len(storage_format.SEGMENT_MAGIC), 1)

    with pytest.raises(LogDamagedError):
        Log.open(DIRECTORY, disk=disk)


@pytest.mark.spec("LV-1")
def test_a_state_of_another_kind_is_refused() -> None:
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, kind="covering, 3 neighbours", disk=disk)
    log.snapshot(b"state", append(log, b"x"))
    log.close()
    operations = disk.operations

    with pytest.raises(LogFormatError, match="kind 'covering, 3 neighbours', but 'other' is"):
        Log.open(DIRECTORY, kind="other", disk=disk)

    assert disk.operations == operations
    assert Log.open(DIRECTORY, kind="covering, 3 neighbours", disk=disk)[1].state == b"state"
