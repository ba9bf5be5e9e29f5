"""What went over links a short while ago, for as long as it may have to be sent again."""

import pytest

from sterna.core.overlay.branch_parts import Recent
from sterna.core.overlay.recents import AGAIN, RECENT_MAX, Recents
from sterna.model.event import Event

pytestmark = pytest.mark.spec("MB-7")

RECENT_US = 1_000


def event(seq: int) -> Event:
    return Event(publisher="p", seq=seq, attributes={}, time_us=0)


def remember(recents: Recents, seq: int, now: int, *, since: int = 0) -> None:
    recents.remember("B2", [event(seq)], now, recent_us=RECENT_US, since=since)


def taken(recents: Recents, now: int) -> list[int]:
    return [event.seq for event in recents.take("B2", now)]


def test_what_went_over_a_link_is_taken_once_and_in_order() -> None:
    recents = Recents()
    for seq in (1, 2, 1, 3):
        remember(recents, seq, 10 + seq)
    assert taken(recents, 20) == [2, 1, 3]
    assert taken(recents, 20) == []


def test_what_is_old_is_forgotten() -> None:
    recents = Recents()
    for seq, now in ((1, 10), (2, 20), (3, 30)):
        remember(recents, seq, now, since=now - 10)
    assert taken(recents, 30) == [2, 3]


def test_it_is_bounded() -> None:
    recents = Recents()
    for seq in range(1, RECENT_MAX + 6):
        remember(recents, seq, 1)
    assert taken(recents, 1) == list(range(6, RECENT_MAX + 6))


def test_nothing_is_sent_again_without_end() -> None:
    """However often links are lost: some time after an event was taken first, it is no more."""
    recents = Recents()
    now, found = 0, []
    while now < 10 * AGAIN * RECENT_US:
        remember(recents, 1, now)
        found += taken(recents, now)
        now += RECENT_US
    assert len(found) == AGAIN + 1
    remember(recents, 2, now)
    assert taken(recents, now) == [2]


def test_a_snapshot_holds_it() -> None:
    recents, again = Recents(), Recents()
    remember(recents, 1, 5)
    assert taken(recents, 7) == [1]
    remember(recents, 1, 8)
    remember(recents, 2, 9)
    links, known = recents.keep()
    assert links == {"B2": [Recent(8, event(1)), Recent(9, event(2))]}
    for link, recent in links.items():
        again.restore(link, recent)
    again.restore_taken(known)
    assert again.keep() == recents.keep()
    remember(again, 1, 7 + AGAIN * RECENT_US + 1)
    assert taken(again, 0) == [2]
