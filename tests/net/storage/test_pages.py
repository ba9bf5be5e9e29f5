"""Pages on disk: what was written is read, and nothing else."""

from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.depot import PageUnreadableError
from sterna.core.frames import Data
from sterna.core.inputs import Input, TimePassed
from sterna.core.messages import Events
from sterna.core.names import Time
from sterna.core.node import Node, Turn
from sterna.core.spilling import KeptPart, QueuedPart
from sterna.model.event import Event
from sterna.net.depot import DiskDepot, entries
from sterna.net.engine import Listener, handle
from sterna.net.storage.pages import HELD_BYTES_MAX, Pages
from tests.net.storage.model_disk import ModelDisk
from tests.scale import examples

WHERE = Path("/spill")


@pytest.mark.spec("LV-1")
@examples(100)
@given(st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=6), min_size=1, max_size=5))
def test_pages_are_read_as_they_were_written(contents: list[list[bytes]]) -> None:
    disk = ModelDisk()
    pages = Pages(WHERE, disk)
    sizes = {n: pages.write(n, each, sync=True) for n, each in enumerate(contents, 1)}
    disk.power_cut(Random(1))  # noqa: S311
    again = Pages(WHERE, disk)
    assert again.sizes() == sizes
    for number, each in enumerate(contents, 1):
        assert [again.entry(number, place) for place in range(len(each))] == each
    again.remove([1])
    assert again.sizes().keys() == sizes.keys() - {1}


@pytest.mark.spec("LV-6")
def test_single_entries_of_many_pages_are_read_without_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the oldest event of each client is discarded: each is in another page."""
    disk = ModelDisk()
    pages = Pages(WHERE, disk)
    content = [bytes([number]) * 1_000_000 for number in range(3)]
    for page in range(1, 21):
        pages.write(page, content, sync=True)
        assert pages.entry(page, 0) == content[0]
    read: list[int] = []

    def noticed(path: Path, offset: int, size: int) -> bytes:
        read.append(size)
        return disk.read(path)[offset : offset + size]

    monkeypatch.setattr(disk, "read_at", noticed)

    assert [pages.entry(page, 1) for page in range(1, 11)] == [content[1]] * 10
    assert read == [1_000_000] * 10
    monkeypatch.setattr(disk, "read_at", lambda *_: b"less")
    with pytest.raises(PageUnreadableError, match="cut off"):
        pages.entry(2, 2)


@pytest.mark.spec("LV-1")
@examples(200)
@given(st.integers(0, 10**6), st.integers(1, 255), st.booleans())
def test_damage_is_noticed(place: int, change: int, is_cut: bool) -> None:
    """A byte that is not as it was, or an end that is missing: an error that names the page."""
    disk = ModelDisk()
    pages = Pages(WHERE, disk)
    pages.write(3, [b"one", b"two"], sync=True)
    data = bytearray(disk.read(pages.path(3)))
    place %= len(data)
    if is_cut:
        del data[place:]
    else:
        data[place] ^= change
    disk.remove(pages.path(3))
    file = disk.create(pages.path(3))
    file.write([bytes(data)], 0)
    file.close()
    with pytest.raises(PageUnreadableError, match=r"00003\.page is damaged.*restore"):
        Pages(WHERE, disk).entry(3, 0)


@pytest.mark.spec("LV-1")
def test_a_page_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    pages = Pages(tmp_path / "spill")
    pages.write(1, [b"one"], sync=False)
    pages.path(1).rename(pages.path(2))
    with pytest.raises(PageUnreadableError, match="it is page 1"):
        pages.entry(2, 0)
    with pytest.raises(PageUnreadableError, match="cannot be read: No such file"):
        pages.entry(1, 0)


@pytest.mark.spec("LV-1")
def test_a_page_that_cannot_be_written_is_not_there() -> None:
    disk = ModelDisk()
    pages = Pages(WHERE, disk)
    pages.write(1, [b"one"], sync=True)
    disk.fail_at = disk.operations + 1
    with pytest.raises(OSError):  # noqa: PT011 - whatever the disk says.
        pages.write(2, [b"two"], sync=True)
    assert 2 not in Pages(WHERE, disk).sizes()


@pytest.mark.spec("LV-6")
def test_few_pages_are_held_in_memory(tmp_path: Path) -> None:
    pages = Pages(tmp_path / "spill")
    for number in range(1, 6):
        pages.write(number, [bytes(HELD_BYTES_MAX // 3)], sync=False)
    for number in range(1, 6):
        pages.entry(number, 0)
    assert sum(each.size for each in pages._held.values()) <= HELD_BYTES_MAX
    pages.write(9, [bytes(2 * HELD_BYTES_MAX)], sync=False)
    assert len(pages.entry(9, 0)) == 2 * HELD_BYTES_MAX
    assert not pages._held


@pytest.mark.spec("LV-1")
def test_messages_and_events_are_read_as_they_were(tmp_path: Path) -> None:
    events = [
        Event(publisher="p", seq=seq, time_us=5, attributes={"n": seq, "s": "ü"}, payload=b"\0x")
        for seq in (1, 2, 3)
    ]
    queued = QueuedPart("B2", [Data(4, 2, Events(events=(events[0], events[1])))])
    kept = KeptPart("relocation", "g", [(8, events[2])])
    pages = Pages(tmp_path / "spill")
    pages.write(1, [*entries(queued), *entries(kept)], sync=False)
    depot = DiskDepot(pages)
    assert depot.message(1, 0) == queued.frames[0].message
    assert depot.event(1, 1) == events[2]
    with pytest.raises(PageUnreadableError, match="something else"):
        depot.event(1, 0)


@pytest.mark.spec("LV-1")
def test_a_page_that_cannot_be_read_is_no_input_to_skip() -> None:
    class Broken:
        def handle(self, given: Input, now: Time) -> Turn:
            raise PageUnreadableError(f"{given} at {now}")

    with pytest.raises(PageUnreadableError):
        handle(cast("Node", Broken()), TimePassed(), 0, Listener())
