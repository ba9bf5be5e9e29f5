"""Queues with policies, against what the policies say of all events that have ever come."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.depot import MemoryDepot
from sterna.core.handover import spilled
from sterna.core.handover.cache import Cache, Gone, KeptCache, after, read
from sterna.core.handover.queues import KEY_CHARACTERS_MAX, STALE_MAX, Lifetimes
from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER
from sterna.model.event import Event, EventId, Scalar
from sterna.model.queue_policies import parse_policy
from tests.core.handover.test_cache import restored, spill
from tests.queueing import POLICIES, Came, kept
from tests.scale import examples

KEYS = st.sampled_from([None, 1, 1.0, 2, True, "a", "b"])
VALUES = st.sampled_from([None, 0, 1, 2.5, 3, -1, True, "high", 2**62, float(2**62)])
COMING = st.tuples(st.sets(st.sampled_from("abc"), min_size=1).map(sorted), KEYS, VALUES)
STEPS = st.lists(
    st.one_of(
        COMING,
        COMING,
        st.integers(1, 7),  # So many seconds pass.
        st.booleans(),  # Something is spilled, and maybe the cache is restored from a snapshot.
        st.just("move"),  # All is taken to another cache.
    ),
    max_size=40,
)


def event(seq: int, **attributes: Scalar) -> Event:
    return Event(publisher="p", seq=seq, time_us=0, attributes=attributes)


@dataclass
class Queues:
    """A cache that goes through what may happen to it, and all that has come to it."""

    policies: dict[str, str]
    events_max: int = 1_000
    depot: MemoryDepot = field(default_factory=MemoryDepot)
    gone: list[tuple[int, str]] = field(default_factory=list)
    came: dict[str, list[Came]] = field(default_factory=dict)
    now: int = 0

    def __post_init__(self) -> None:
        self.cache = Cache(self.events_max, None)
        self.parsed = {id_: parse_policy(text) for id_, text in self.policies.items() if text}

    def keep(self, coming: Event, ids: list[str], waited: int = 0) -> None:
        self._note(self.cache.keep(coming, ids, self.now, self.parsed, waited))

    def come(self, seq: int, ids: list[str], **attributes: Scalar) -> None:
        for id_ in ids:
            self.came.setdefault(id_, []).append(Came(seq, attributes, self.now))
        self.keep(event(seq, **attributes), ids)

    def expire(self) -> None:
        self._note(self.cache.expire(self.now))

    def restart(self) -> None:
        self.cache = restored(self.cache, Cache(self.events_max, None))

    def move(self) -> None:
        """Another broker has its events, and for how long they have waited."""
        self.expire()
        waited = self.cache.waited(self.now)
        events = read(self.cache.take(), self.depot)
        self.cache = Cache(self.events_max, None)
        self.now += 3_600_000_000  # The other broker has another clock.
        for id_, came in self.came.items():
            self.came[id_] = [c._replace(since=c.since + 3_600_000_000) for c in came]
        for each, time in zip(events, waited, strict=True):
            ids = [id_ for id_, came in self.came.items() if each.seq in {c.seq for c in came}]
            self.keep(each, ids, time)

    def _note(self, gone: list[Gone]) -> None:
        events = read([each.event for each in gone], self.depot)
        policies = [each.policy for each in gone]
        self.gone += [(e.seq, policy) for e, policy in zip(events, policies, strict=True)]

    @property
    def left(self) -> list[int]:
        return [each.seq for each in read(self.cache.events(), self.depot)]

    def should_be_left(self) -> list[int]:
        """An event is kept as long as one of its subscriptions keeps it."""
        rings = [kept(self.policies[id_], came, self.now) for id_, came in self.came.items()]
        return sorted(set().union(*rings))


@pytest.mark.spec("RE-3")
@examples(300)
@given(STEPS, st.lists(st.sampled_from(POLICIES), min_size=3, max_size=3))
def test_each_policy_keeps_what_it_says(steps: list[object], texts: list[str]) -> None:
    """Whatever is spilled, restored or moved; and each event is kept or purged, never both."""
    queues = Queues(dict(zip("abc", texts, strict=True)))
    seqs: list[int] = []
    for seq, step in enumerate(steps, 1):
        match step:
            case bool():
                spill(queues.cache, queues.depot)
                if step:
                    queues.restart()
            case int():
                queues.now += step * 1_000_000
            case "move":
                queues.move()
            case (list() as ids, key, value):
                attributes = {"k": key, "v": value}
                queues.come(seq, ids, **{n: v for n, v in attributes.items() if v is not None})  # type: ignore[arg-type]
                seqs.append(seq)
        queues.expire()
        assert queues.left == queues.should_be_left()
        assert sorted([*queues.left, *(seq for seq, _ in queues.gone)]) == seqs
        assert all(policy in texts and policy for _, policy in queues.gone)
        assert queues.cache.due().time > queues.now


@pytest.mark.spec("RE-3")
def test_who_lets_an_event_go_is_told_and_a_bound_counts_more_than_a_policy() -> None:
    queues = Queues({"a": "last_per(k)", "b": ""}, events_max=2)
    queues.come(1, ["a"], k=1)
    queues.come(2, ["a", "b"], k=1)
    assert queues.gone == [(1, "last_per(k)")]
    queues.come(3, ["b"])
    queues.come(4, ["b"])  # The second is not kept for b any more, but for a.
    queues.restart()
    queues.come(5, ["a"], k=1)
    assert queues.gone == [(1, "last_per(k)"), (2, "")]
    assert queues.left == [3, 4, 5]


@pytest.mark.spec("RE-3")
def test_many_keys_are_bounded_like_all_events() -> None:
    queues = Queues({"a": "last_per(k)"}, events_max=3)
    for seq in range(1, 6):
        queues.come(seq, ["a"], k=seq)
    assert (queues.left, queues.gone) == ([3, 4, 5], [(1, ""), (2, "")])
    queues.come(6, ["a"], k=1)
    queues.come(7, ["a"], k=4)
    assert queues.left == [5, 6, 7]


@pytest.mark.spec("RE-3")
def test_a_long_key_is_remembered_in_short() -> None:
    queues, long = Queues({"a": "last_per(k)"}), "x" * 10 * KEY_CHARACTERS_MAX
    queues.come(1, ["a"], k=long + "1")
    queues.come(2, ["a"], k=long + "2")
    queues.restart()
    queues.come(3, ["a"], k=long + "1")
    assert queues.left == [2, 3]
    values = queues.cache._rings["a"].values()
    assert all(len(str(value)) <= KEY_CHARACTERS_MAX for value in values)


@pytest.mark.spec("RE-3")
def test_keys_are_equal_as_in_filters() -> None:
    queues = Queues({"a": "last_per(k)"})
    keys: tuple[Scalar, ...] = (1, True, "1", 1.0, False, 0)
    for seq, key in enumerate(keys, 1):
        queues.come(seq, ["a"], k=key)
    assert queues.left == [2, 3, 4, 5, 6]


@pytest.mark.spec("RE-3")
def test_another_policy_holds_for_what_comes_from_now_on() -> None:
    queues = Queues({"a": "last_per(k)"})
    queues.come(1, ["a"], k=1)
    queues.come(2, ["a"], k=2)
    queues.parsed = {"a": parse_policy("max(v)")}
    queues.come(3, ["a"], v=1)
    queues.come(4, ["a"], v=2)
    assert queues.left == [1, 2, 4]
    queues.parsed = {"a": parse_policy("ttl(1s)")}
    queues.come(5, ["a"])
    queues.now += 1_000_000
    queues.expire()
    assert queues.left == []
    assert queues.cache.due().time == NEVER


@pytest.mark.spec("RE-3")
def test_an_event_that_waited_elsewhere_goes_before_a_newer_one_that_came_before_it() -> None:
    queues = Queues({"a": "ttl(10s)"})
    queues.keep(event(1), ["a"])
    queues.keep(event(2), ["a"], 9_000_000)
    queues.keep(event(3), ["a"], 10_000_000)
    assert queues.gone == [(3, "ttl(10s)")]
    queues.now = 1_000_000
    queues.expire()
    assert queues.left == [1]
    assert queues.cache.waited(queues.now) == [1_000_000]


@pytest.mark.spec("RE-3")
def test_a_time_that_is_over_does_not_begin_anew_at_another_broker() -> None:
    """One subscription has let the event go, and another keeps it."""
    queues = Queues({"a": "last_per(k)", "b": "ttl(10s)"})
    queues.come(1, ["a", "b"], k=1)
    queues.now += 10_000_000
    queues.expire()
    assert (queues.left, queues.gone) == ([1], [])
    queues.restart()
    for _ in range(2):
        queues.now += 1_000_000
        queues.move()
        assert queues.left == [1]
        assert min(queues.cache.waited(queues.now)) >= 10_000_000
    queues.come(2, ["a"], k=1)
    assert (queues.left, queues.gone) == ([2], [(1, "last_per(k)")])
    assert queues.cache._outlived == {}


@pytest.mark.spec("RE-3")
def test_times_of_events_that_have_left_are_forgotten() -> None:
    queue = Lifetimes(parse_policy("ttl(1d)"))
    for number in range(1, 20 * STALE_MAX):
        queue.enter(number, event(number), number, 0)
        if len(queue) > 2:
            queue.shift()
    assert len(queue._times) <= 2 * len(queue) + STALE_MAX + 1
    assert queue.due == list(queue)[0] + 86_400_000_000  # noqa: RUF015


@pytest.mark.spec("RE-3")
def test_places_of_purged_events_in_pages_are_forgotten() -> None:
    """The oldest stays; all others are replaced again and again."""
    queues = Queues({"a": "last_per(k)"})
    queues.come(1, ["a"], k=0)
    for seq in range(2, 5 * spilled.GONE_MAX):
        queues.come(seq, ["a"], k=1)
        spill(queues.cache, queues.depot)
    assert queues.left == [1, seq]
    assert len(queues.cache._spilled._numbers) <= 2 * spilled.GONE_MAX
    queues.restart()
    assert queues.left == [1, seq]


@pytest.mark.spec("RE-3")
def test_a_snapshot_of_an_earlier_release_has_no_policies() -> None:
    queues = Queues({"a": ""})
    queues.come(1, ["a"])
    writer = Writer()
    whole = msgspec.to_builtins(queues.cache.keep_all(writer))
    old = msgspec.convert(whole[:4], type=KeptCache)
    cache = Cache(1_000, None)
    cache.restore(old, Reader(writer.events, ()))
    assert [each.seq for each in read(cache.take(), queues.depot)] == [1]


@pytest.mark.spec("RE-3")
def test_what_a_policy_did_without_elsewhere_is_not_taken_from_here() -> None:
    """Both brokers have got the first event; the other one has a newer one of its key instead."""
    newer = Event(publisher="q", seq=1, time_us=0)
    assert after([newer], [event(1), event(2)], [EventId("p", 1)]) == [event(2)]
