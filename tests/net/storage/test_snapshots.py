"""Snapshots that fail: the log continues, for it has everything."""

from pathlib import Path

import pytest

from sterna.net.storage import Log, LogOptions, SnapshotFailedError
from sterna.net.storage.format import encode_snapshot
from sterna.net.storage.snapshots import write_snapshot
from tests.net.storage.model_disk import ModelDisk
from tests.net.storage.test_log import DIRECTORY, append


@pytest.mark.spec("LV-1", "LV-6")
@pytest.mark.parametrize("limit", ["bytes_max", "room_bytes"])
def test_a_snapshot_that_finds_no_room_leaves_the_log_as_it_was(limit: str) -> None:
    """Neither a full disk nor the limit ends the log, as long as there is room for records."""
    disk = ModelDisk()
    options = LogOptions(fill_bytes=1_000, bytes_max=100_000 if limit == "bytes_max" else None)
    log, _ = Log.open(DIRECTORY, disk=disk, options=options)
    append(log, b"before")
    if limit == "room_bytes":
        disk.room_bytes = 100_000

    with pytest.raises(SnapshotFailedError, match=r"bytes_max|were written|No space"):
        log.snapshot(bytes(200_000), 1)

    append(log, b"after")
    assert log.bytes_on_disk == disk.used_bytes()
    log.snapshot(b"small", 2)
    log.close()
    assert Log.open(DIRECTORY, disk=disk, options=options)[1].state == b"small"


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("trouble", ["rename", "gone"])
def test_a_snapshot_of_the_second_process_that_cannot_be_taken_in(trouble: str) -> None:
    """The log continues, and takes the next one."""
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    append(log, b"before")
    for is_bad in (True, False):
        sealed = log.seal()
        header = encode_snapshot(b"state", sealed.position, "")
        write_snapshot(disk, sealed.path, header, b"state")
        if not is_bad:
            log.adopt(sealed)
            break
        if trouble == "gone":
            disk.remove(sealed.path)
        else:
            disk.fail_at = disk.operations
        with pytest.raises(SnapshotFailedError, match="taking in a snapshot"):
            log.adopt(sealed)
        assert sealed.path.name not in disk.names(DIRECTORY)
        append(log, b"after")

    assert log.bytes_on_disk == disk.used_bytes()
    log.close()
    assert Log.open(DIRECTORY, disk=disk)[1].position == 2


@pytest.mark.spec("LV-1")
def test_what_cannot_be_removed_of_a_failed_snapshot_is_removed_at_the_next_start(
    tmp_path: Path,
) -> None:
    """It is no reason to end the log."""
    log, _ = Log.open(tmp_path)
    append(log, b"record")
    sealed = log.seal()
    sealed.path.mkdir()  # No file, so that it cannot be removed as one.
    log.discard(sealed)
    append(log, b"record")
    sealed.path.rmdir()
    sealed.path.write_bytes(b"half")
    log.close()

    Log.open(tmp_path)[0].close()
    assert not sealed.path.exists()
