"""Damaged files: noticed wherever it is, never served, and mended only when somebody says so."""

from pathlib import Path
from random import Random

import pytest

from sterna.net.storage import Log, LogDamagedError, LogOptions, Recovery
from tests.net.storage.model_disk import ModelDisk
from tests.scale import CAMPAIGN

DIRECTORY = Path("/log")
ONE_SEGMENT = LogOptions(fill_bytes=512)
SMALL_SEGMENTS = LogOptions(segment_bytes=1_000, fill_bytes=64)
SALVAGE = LogOptions(segment_bytes=1_000, fill_bytes=64, salvage=True)

STRIDE = 1 if CAMPAIGN > 1 else 7
"""`make test-long` tries each byte."""


def written(
    disk: ModelDisk, commits: int, *, options: LogOptions = ONE_SEGMENT, closed: bool = True
) -> list[list[bytes]]:
    """A log with so many commits of up to 9 records each."""
    rng = Random(7)  # noqa: S311
    log, _ = Log.open(DIRECTORY, disk=disk, options=options)
    batches = [
        [rng.randbytes(rng.choice([20, 90, 150])) for _ in range(rng.randint(1, 9))]
        for _ in range(commits)
    ]
    for batch in batches:
        for record in batch:
            log.append(record)
        log.commit()
    if closed:
        log.close()
    else:
        disk.kill()
    return batches


def reopened(disk: ModelDisk, options: LogOptions = ONE_SEGMENT) -> tuple[list[bytes], Recovery]:
    log, recovery = Log.open(DIRECTORY, disk=disk, options=options)
    records = list(recovery.records)
    log.close()
    return records, recovery


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [record for batch in batches for record in batch]


def files(disk: ModelDisk, ending: str = ".log") -> list[Path]:
    return sorted(DIRECTORY / n for n in disk.names(DIRECTORY) if n.endswith(ending))


@pytest.mark.spec("LV-1")
def test_a_flipped_byte_anywhere_in_a_closed_log_is_noticed() -> None:
    """All records, or an error: in a log that was closed, all that is there was durable."""
    disk = ModelDisk()
    records = flat(written(disk, commits=140))
    (path,) = files(disk)
    assert disk.size(path) > 64 * 1024
    refused = 0
    for offset in range(0, disk.size(path), STRIDE):
        damaged = disk.copy()
        damaged.flip(path, offset, 1 << offset % 8)
        try:
            found, recovery = reopened(damaged)
        except LogDamagedError:
            refused += 1
        else:
            assert found == records
            assert not recovery.report.closed or recovery.report.notes

    assert refused > 0.95 * disk.size(path) / STRIDE


@pytest.mark.spec("LV-1")
def test_a_flipped_byte_in_a_log_that_was_not_closed_costs_the_last_commit_at_most() -> None:
    """Whether the last commit was synced is known only by what comes after it."""
    disk = ModelDisk()
    batches = written(disk, commits=20, closed=False)
    (path,) = files(disk)
    for offset in range(0, disk.size(path), STRIDE):
        damaged = disk.copy()
        damaged.flip(path, offset, 255)
        try:
            found, recovery = reopened(damaged)
        except LogDamagedError:
            continue
        assert found in (flat(batches), flat(batches[:-1]))
        assert not recovery.report.closed
        assert found == flat(batches) or recovery.report.torn_bytes


@pytest.mark.spec("LV-1")
def test_a_log_that_is_cut_anywhere_gives_the_commits_before_the_cut() -> None:
    disk = ModelDisk()
    batches = written(disk, commits=140)
    (path,) = files(disk)
    intact = len(disk.read(path).rstrip(b"\0"))
    lengths = []
    for size in range(0, intact, STRIDE):
        damaged = disk.copy()
        damaged.cut(path, size)
        found, recovery = reopened(damaged)
        assert found == flat(batches)[: len(found)]
        assert not recovery.report.closed, "it is noticed, also where nothing is torn"
        lengths.append(len(found))

    assert lengths == sorted(lengths)
    assert set(lengths) <= {len(flat(batches[:n])) for n in range(141)}, "whole commits only"


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_missing_segment_is_damage(which: int) -> None:
    disk = ModelDisk()
    written(disk, commits=10, options=SMALL_SEGMENTS)
    disk.remove(files(disk)[which])

    with pytest.raises(LogDamagedError, match=r"salvage = true"):
        reopened(disk, SMALL_SEGMENTS)


@pytest.mark.spec("LV-1")
def test_a_segment_of_another_log_is_not_taken_for_ones_own() -> None:
    disk, other = ModelDisk(), ModelDisk()
    written(disk, commits=10, options=SMALL_SEGMENTS)
    written(other, commits=10, options=SMALL_SEGMENTS)
    path = files(disk)[1]
    foreign = other.read(path)
    disk.remove(path)
    disk.create(path).write([foreign], 0)

    with pytest.raises(LogDamagedError, match="not a part of this log"):
        reopened(disk, SMALL_SEGMENTS)


@pytest.mark.spec("LV-1")
def test_no_record_passes_for_a_group() -> None:
    """What clients send can look like a part of the log; it is none without the log's secret."""
    disk = ModelDisk()
    written(disk, commits=3)
    (path,) = files(disk)
    image = disk.read(path)
    hostile = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=hostile)
    log.append(image)
    log.commit()
    hostile.kill()
    hostile.flip(files(hostile)[0], 60, 1)

    found, recovery = reopened(hostile)

    assert found == []
    assert recovery.report.torn_bytes > len(image) - 512


@pytest.mark.spec("LV-1")
def test_salvage_keeps_what_lies_before_the_damage_and_removes_nothing() -> None:
    disk = ModelDisk()
    batches = written(disk, commits=12, options=SMALL_SEGMENTS)
    before = {path: disk.read(path) for path in files(disk)}
    path = files(disk)[2]
    disk.flip(path, 500, 4)
    with pytest.raises(LogDamagedError, match="is not intact"):
        reopened(disk, SMALL_SEGMENTS)

    found, recovery = reopened(disk, SALVAGE)

    assert 0 < len(found) < len(flat(batches))
    assert found == flat(batches)[: len(found)]
    aside = files(disk, ".damaged")
    assert recovery.report.set_aside == tuple(p.name for p in aside)
    assert [p.name for p in aside] == [f"{p.name}.damaged" for p in files_from(before, path)]
    assert all(disk.read(p) == before[p.with_suffix("")] for p in aside[1:])
    assert "Salvaged" in str(recovery.report)
    again, recovery = reopened(disk, SMALL_SEGMENTS)
    assert (again, recovery.report.closed) == (found, True), "and goes on like any other"


def files_from(paths: dict[Path, bytes], first: Path) -> list[Path]:
    return [path for path in paths if path >= first]


@pytest.mark.spec("LV-1")
def test_salvage_of_a_log_that_ends_before_its_snapshot() -> None:
    """The snapshot replaces what is lost before it, and new records come after it."""
    disk = ModelDisk()
    written(disk, commits=12, closed=False)
    log, _ = Log.open(DIRECTORY, disk=disk)
    position = log.appended
    log.snapshot(b"state", position)
    log.close()
    disk.cut(files(disk)[0], 2_000)
    with pytest.raises(LogDamagedError, match="is not intact"):
        reopened(disk)

    log, recovery = Log.open(DIRECTORY, disk=disk, options=SALVAGE)
    assert (recovery.state, list(recovery.records)) == (b"state", [])
    assert log.append(b"next") == position + 1
    log.close()

    assert reopened(disk, SMALL_SEGMENTS)[0] == [b"next"]


def with_snapshots(disk: ModelDisk, positions: list[int], end: int) -> list[bytes]:
    records = [b"%09d" % i * 20 for i in range(end)]
    log, _ = Log.open(DIRECTORY, disk=disk, options=SMALL_SEGMENTS)
    for position in [*positions, end]:
        while log.appended < position:
            log.append(records[log.appended])
            log.commit()
        if position != end:
            log.snapshot(b"state at %d" % position, position)
    log.close()
    return records


@pytest.mark.spec("LV-1")
@pytest.mark.parametrize("positions", [[20], [20, 35], [20, 30, 40, 50]])
def test_a_damaged_snapshot_is_replaced_by_the_one_before_it(positions: list[int]) -> None:
    """Each byte of it: the log still reaches back to the snapshot before, or to the beginning."""
    disk = ModelDisk()
    records = with_snapshots(disk, positions, 60)
    newest = files(disk, ".snapshot")[-1]
    before = positions[-2] if len(positions) > 1 else 0
    for offset in range(disk.size(newest)):
        damaged = disk.copy()
        damaged.flip(newest, offset, 16)

        found, recovery = reopened(damaged, SMALL_SEGMENTS)

        assert recovery.position == before
        assert recovery.state == (b"state at %d" % before if before else None)
        assert found == records[before:]
        assert recovery.report.set_aside == (f"{newest.name}.damaged",)
        assert newest.name in str(recovery.report)


@pytest.mark.spec("LV-1")
def test_without_an_intact_snapshot_that_the_log_reaches_back_to_there_is_no_recovery() -> None:
    disk = ModelDisk()
    with_snapshots(disk, [20, 30, 40, 50], 60)
    for path in files(disk, ".snapshot"):
        disk.flip(path, 50, 1)

    with pytest.raises(LogDamagedError, match=r"nothing before record .*snapshot is damaged"):
        reopened(disk, SMALL_SEGMENTS)


@pytest.mark.spec("LV-1")
def test_damage_before_the_snapshot_does_no_harm() -> None:
    """Records that the snapshot replaces are not needed."""
    disk = ModelDisk()
    records = with_snapshots(disk, [20, 33], 60)
    holding = [path for path in files(disk) if int(path.stem) < 33][-1]
    assert int(holding.stem) <= 31, "two records before the snapshot are in its segment"
    disk.flip(files(disk)[0], 100, 1)
    disk.flip(holding, 100, 1)

    found, recovery = reopened(disk, SMALL_SEGMENTS)

    assert found == records[33:]
    assert "harmlessly" in str(recovery.report)


@pytest.mark.spec("LV-1")
def test_what_is_torn_is_cut_off_also_when_later_sectors_got_through() -> None:
    """Sectors reach the disk in any order: intact groups behind a hole were never synced either."""
    disk = ModelDisk()
    log, _ = Log.open(DIRECTORY, disk=disk)
    log.append(b"durable")
    log.commit()
    for record in (b"lost", b"kept in vain", b"and this one"):
        log.append(record)
        log.commit(sync=False)
    disk.kill()
    (path,) = files(disk)
    disk.flip(path, disk.read(path).index(b"lost"), 1)

    found, recovery = reopened(disk)

    assert found == [b"durable"]
    assert recovery.report.torn_bytes > len(b"lostkept in vainand this one")
    assert "Cut off" in str(recovery.report)
    assert reopened(disk)[0] == [b"durable"]
