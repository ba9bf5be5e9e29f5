"""What is kept for a client that is away, against a plain model of rings with times."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.depot import Depot, MemoryDepot, NoDepot
from sterna.core.handover.cache import Cache, Gone, KeptCache, after, read
from sterna.core.handover.spilled import InPage
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER
from sterna.core.sizes import weight
from sterna.model.event import Event, EventId
from tests.scale import examples


def event(seq: int, publisher: str = "p") -> Event:
    return Event(publisher=publisher, seq=seq, time_us=0, attributes={})


def seqs(events: list[Event | InPage], depot: Depot) -> list[int]:
    return [each.seq for each in read(events, depot)]


def gone_seqs(gone: list[Gone], depot: Depot) -> list[int]:
    assert not any(each.policy for each in gone)
    return seqs([each.event for each in gone], depot)


def spill(cache: Cache, depot: MemoryDepot) -> None:
    """The two oldest events in memory go to a page."""
    page, chosen = len(depot.pages) + 1, cache.to_spill(10**6)[:2]
    depot.pages[page] = [each for _, each in chosen]
    for place, (number, _) in enumerate(chosen):
        cache.spill(number, page, place)


def restored(cache: Cache, new: Cache) -> Cache:
    writer = Writer()
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(cache.keep_all(writer)), type=KeptCache)
    new.restore(kept, Reader(writer.events, ()))
    return new


STEPS = st.lists(
    st.one_of(
        st.sets(st.sampled_from("abc"), min_size=1).map(sorted),
        st.integers(1, 7),  # So much time passes.
        st.booleans(),  # Something is spilled, and maybe the cache is restored from a snapshot.
    ),
    max_size=30,
)


@pytest.mark.spec("PM-3")
@examples(200)
@given(STEPS, st.integers(1, 4), st.one_of(st.none(), st.integers(1, 20)))
def test_rings_and_times(
    steps: list[list[str] | int | bool], events_max: int, ttl_us: int | None
) -> None:
    cache, depot = Cache(events_max, ttl_us), MemoryDepot()
    rings: dict[str, list[tuple[int, int]]] = {name: [] for name in "abc"}
    gone: list[int] = []
    kept: set[int] = set()
    now = 0
    for seq, step in enumerate(steps, 1):
        if isinstance(step, bool):
            spill(cache, depot)
            cache = restored(cache, Cache(events_max, ttl_us)) if step else cache
        elif isinstance(step, int):
            now += step
            gone += gone_seqs(cache.expire(now), depot)
            for ring in rings.values():
                ring[:] = [each for each in ring if ttl_us is None or each[1] + ttl_us > now]
        else:
            gone += gone_seqs(cache.keep(event(seq), step, now), depot)
            kept.add(seq)
            for name in step:
                rings[name] = [*rings[name], (seq, now)][-events_max:]
        alive = {seq for ring in rings.values() for seq, _ in ring}
        assert sorted(gone) == sorted(kept - alive)  # Each is said to be gone, once.
        assert len(cache) == len(alive)
        oldest = min((since for ring in rings.values() for _, since in ring), default=None)
        due = cache.expires_at
        if ttl_us is None:
            assert due == NEVER
        elif oldest is not None:
            assert due == oldest + ttl_us
    expected = sorted({seq for ring in rings.values() for seq, _ in ring})
    assert seqs(cache.take(), depot) == expected
    assert len(cache) == 0
    assert cache.take() == []


def test_what_came_over_another_path_is_taken_where_each_publisher_goes_on() -> None:
    earlier = [event(1), event(7, "q"), event(3)]
    later = [event(2), event(3), event(7, "q"), event(4), event(8, "q"), event(1, "r")]

    assert [each.id for each in after(earlier, later)] == [
        EventId("p", 4),
        EventId("q", 8),
        EventId("r", 1),
    ]


@pytest.mark.spec("PM-3")
@examples(200)
@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abc"), min_size=1), st.integers(0, 300)), max_size=30
    ),
    st.integers(200, 2_000),
)
def test_so_many_bytes(kept_for: list[tuple[set[str], int]], bytes_max: int) -> None:
    """The oldest goes first, whatever it was kept for; what is left is what fits."""
    cache = Cache(1_000, None, bytes_max)
    gone, left = [], []
    for seq, (names, size) in enumerate(kept_for, 1):
        kept = Event(publisher="p", seq=seq, time_us=0, payload=b"x" * size)
        gone += gone_seqs(cache.keep(kept, sorted(names), 0), NoDepot())
        left.append(kept)
        while sum(map(weight, left)) > bytes_max:
            left.pop(0)
        assert cache.bytes == sum(map(weight, left)) <= bytes_max

    assert gone == list(range(1, len(kept_for) - len(left) + 1))
    assert cache.take() == left
    assert cache.bytes == 0
