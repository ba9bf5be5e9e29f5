"""The machine that makes one sequence of events out of those of several sessions."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.actions import Deliver
from sterna.core.facts import Fact
from sterna.core.inputs import Input, LinkDown, TimePassed
from sterna.core.names import NEVER, LocalProtocolError, Time
from sterna.core.replication.facts import CameLate, GaveUp, HeldBack, Reason
from sterna.core.replication.inputs import (
    EventsArrived,
    SessionJoined,
    SessionLost,
    SessionReached,
)
from sterna.core.replication.merging import KeptMerging, Merging
from sterna.core.replication.options import Filtering, MergingOptions
from sterna.model.event import Event, EventId
from sterna.model.replicas import inconsistent, judge, missing, out_of_order
from tests.scale import examples

HOLD_US: Time = 100
KINDS = list(Filtering)


class Merged:
    """A machine with two sessions, what the application was given, and all facts."""

    def __init__(self, filtering: Filtering, sessions: Sequence[str] = "AB", **more: int) -> None:
        options = MergingOptions(filtering=filtering, **{"hold_us": HOLD_US, **more})
        self.machine = Merging("car", options, tuple(sessions))
        self.displayed: list[EventId] = []
        self.facts: list[Fact] = []
        self.now: Time = 0

    def give(self, given: Input) -> "Merged":
        merged = self.machine.handle(given, self.now)
        for action in merged.actions:
            assert type(action) is Deliver
            self.displayed += [event.id for event in action.events]
            assert len(action.subscriptions) == len(action.events)
        self.facts += merged.facts
        return self

    def bring(self, session: str, *numbers: int, publisher: str = "p") -> "Merged":
        events = tuple(Event(publisher=publisher, seq=seq, time_us=0) for seq in numbers)
        names = (("1",),) * len(events)
        return self.give(EventsArrived(session=session, events=events, subscriptions=names))

    def wait(self, us: Time) -> "Merged":
        """Let time pass; wake the machine when it wants to be woken."""
        end = self.now + us
        while self.machine.deadline <= end:
            self.now = max(self.now, self.machine.deadline)
            self.give(TimePassed())
        self.now = end
        return self

    @property
    def numbers(self) -> list[int]:
        return [id_.seq for id_ in self.displayed]

    def stated(self, kind: type[Fact]) -> list[int]:
        """The numbers of the events in the facts of a kind."""
        found = [fact for fact in self.facts if type(fact) is kind]
        return [event.seq for fact in found for event in fact.events]  # type: ignore[attr-defined]


# ---- What each filter does


@pytest.mark.spec("RE-1")
@pytest.mark.parametrize(
    ("filtering", "numbers"),
    [
        (Filtering.NONE, [1, 3, 1, 2, 4, 3]),
        (Filtering.DUPLICATES, [1, 3, 2, 4]),
        (Filtering.ORDER, [1, 3, 4]),
        (Filtering.HOLDING, [1, 2, 3, 4]),
    ],
)
def test_what_each_filter_makes_of_two_brokers_with_gaps(
    filtering: Filtering, numbers: list[int]
) -> None:
    """B's broker has lost nothing up to 3, A's has lost 2. 4 comes from A before 3 from B."""
    run = Merged(filtering)
    run.bring("A", 1, 3).bring("B", 1, 2).bring("A", 4).bring("B", 3)

    assert run.numbers == numbers
    dropped = run.stated(facts.Repeated) + run.stated(CameLate)
    assert sorted([*numbers, *dropped]) == [1, 1, 2, 3, 3, 4]


@pytest.mark.spec("RE-1")
def test_what_is_dropped_is_told_apart() -> None:
    run = Merged(Filtering.ORDER).bring("A", 1, 3).bring("B", 1, 2, 3)

    assert run.stated(facts.Repeated) == [1, 3]
    assert run.stated(CameLate) == [2]


def test_the_order_is_that_of_each_publisher() -> None:
    run = Merged(Filtering.ORDER).bring("A", 5).bring("B", 1, publisher="q").bring("A", 6)

    assert run.displayed == [EventId("p", 5), EventId("q", 1), EventId("p", 6)]


# ---- Holding back


@pytest.mark.spec("RE-1")
def test_an_event_without_a_gap_waits_for_nothing() -> None:
    run = Merged(Filtering.HOLDING).bring("A", 1, 2).bring("B", 1, 2, 3)

    assert run.numbers == [1, 2, 3]
    assert not run.stated(HeldBack)
    assert run.machine.deadline == NEVER


@pytest.mark.spec("RE-1")
def test_an_event_behind_a_gap_waits_until_no_session_can_bring_an_earlier_one() -> None:
    """Nobody wants 2 and 3: B says so with 4."""
    run = Merged(Filtering.HOLDING).bring("A", 1, 4)

    assert run.numbers == [1]
    assert run.stated(HeldBack) == [4]
    assert run.machine.deadline == HOLD_US

    run.wait(HOLD_US // 2).bring("B", 4)

    assert run.numbers == [1, 4]
    assert run.machine.deadline == NEVER
    assert not run.stated(GaveUp)


@pytest.mark.spec("RE-1")
def test_a_session_that_says_how_far_it_is_need_not_bring_an_event() -> None:
    run = Merged(Filtering.HOLDING).bring("A", 4)
    run.give(SessionReached(session="B", publisher="p", seq=3))
    assert run.numbers == []

    run.give(SessionReached(session="B", publisher="p", seq=4))
    assert run.numbers == [4]

    run.give(SessionReached(session="B", publisher="q", seq=7)).bring("A", 7, publisher="q")
    assert run.displayed[-1] == EventId("q", 7)


@pytest.mark.spec("RE-1")
def test_nothing_waits_for_a_session_that_is_lost() -> None:
    run = Merged(Filtering.HOLDING).bring("A", 4, 6).bring("A", 2, publisher="q")
    run.give(SessionLost(session="B"))
    assert run.displayed == [EventId("p", 4), EventId("p", 6), EventId("q", 2)]

    run.bring("A", 9)
    assert run.numbers[-1] == 9

    run.give(SessionJoined(session="C")).bring("A", 12)
    assert run.numbers[-1] == 12  # C has brought nothing yet.

    run.bring("C", 12).bring("A", 15)
    assert run.numbers[-1] == 12  # C may bring an earlier one.

    run.bring("C", 14).bring("C", 15)
    assert run.numbers[-2:] == [14, 15]
    assert not run.stated(GaveUp)


@pytest.mark.spec("RE-1")
def test_what_a_lost_session_had_sent_is_merged_as_well() -> None:
    run = Merged(Filtering.HOLDING, "ABC").bring("A", 1, 4)
    run.give(SessionLost(session="B")).bring("B", 2, 3)

    assert run.numbers == [1, 2, 3, 4]


@pytest.mark.spec("RE-1")
def test_waiting_ends_after_its_time_and_that_is_stated() -> None:
    run = Merged(Filtering.HOLDING, "ABC").bring("A", 1, 4).bring("C", 4)
    run.wait(HOLD_US // 2).bring("A", 6).wait(HOLD_US // 2)

    assert run.numbers == [1, 4]
    (given_up,) = [fact for fact in run.facts if type(fact) is GaveUp]
    assert given_up.events == (EventId("p", 4),)
    assert given_up.sessions == ("B",)
    assert given_up.reason is Reason.TIME
    assert given_up.time == HOLD_US
    assert run.machine.deadline == HOLD_US + HOLD_US // 2  # 6 waits on, for C.

    run.bring("B", 3).bring("C", 5)
    assert run.stated(CameLate) == [3]
    assert run.numbers == [1, 4, 5, 6]

    run.bring("A", 9).bring("C", 9)  # B has brought something: 9 waits for it again.
    assert run.numbers[-1] == 6


@pytest.mark.spec("RE-1")
def test_a_session_that_brings_nothing_is_waited_for_once() -> None:
    run = Merged(Filtering.HOLDING).bring("A", 1, 3).bring("A", 2, publisher="q").wait(HOLD_US)
    assert run.displayed == [EventId("p", 1), EventId("p", 3), EventId("q", 2)]

    run.bring("A", 5).bring("A", 7)
    assert run.numbers[-2:] == [5, 7]

    run.bring("B", 2, publisher="q").bring("A", 9)
    assert run.numbers[-1] == 7
    assert run.stated(GaveUp) == [3]

    run.bring("B", 9)
    assert run.numbers[-1] == 9


@pytest.mark.spec("RE-1")
def test_what_has_waited_long_enough_takes_earlier_ones_along() -> None:
    run = Merged(Filtering.HOLDING, "ABC").bring("A", 5).wait(HOLD_US // 2).bring("B", 3)
    assert run.numbers == []

    run.wait(HOLD_US // 2)

    assert run.numbers == [3, 5]
    assert run.stated(GaveUp) == [3, 5]


@pytest.mark.spec("RE-1")
def test_no_more_events_wait_than_may() -> None:
    run = Merged(Filtering.HOLDING, held_events_max=2)
    run.bring("A", 3).bring("A", 3, publisher="q").bring("A", 5)

    assert run.displayed == [EventId("p", 3)]
    (given_up,) = [fact for fact in run.facts if type(fact) is GaveUp]
    assert given_up.reason is Reason.ROOM
    assert run.machine.held == 2


def test_what_need_not_wait_takes_no_room() -> None:
    run = Merged(Filtering.HOLDING, held_events_max=0).bring("A", 1, 2, 3).bring("B", 1, 2, 3)

    assert run.numbers == [1, 2, 3]
    assert not run.stated(GaveUp)


# ---- Bounds of memory


@pytest.mark.spec("RE-1")
@pytest.mark.parametrize("filtering", [Filtering.DUPLICATES, Filtering.ORDER, Filtering.HOLDING])
def test_only_the_latest_numbers_are_remembered(filtering: Filtering) -> None:
    """What is older comes late: nobody knows whether the application has it."""
    run = Merged(filtering, remembered_max=3)
    run.bring("A", *range(1, 7)).bring("B", *range(1, 7))

    assert run.numbers == [1, 2, 3, 4, 5, 6]
    assert run.stated(CameLate) == [1, 2, 3]
    assert run.stated(facts.Repeated) == [4, 5, 6]
    assert len(run.machine.keep().sources[0].given) == 3


def test_what_merging_does_not_take_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="does not take LinkDown"):
        Merging("car").handle(LinkDown(link="B1"), 0)
    with pytest.raises(ValueError, match="hold_us is -1"):
        MergingOptions(hold_us=-1)


# ---- Whatever comes


class Script(NamedTuple):
    """What the sessions bring, in which order, and how much time passes before each."""

    steps: list[tuple[str, EventId, Time]]
    received: list[EventId]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Up to three sessions; each has some of the events of two publishers, in their order."""
    waiting = {
        (session, publisher): draw(st.lists(st.integers(1, 8), max_size=6, unique=True).map(sorted))
        for session in "ABC"
        for publisher in "pq"
    }
    received = [EventId(p, seq) for (_, p), numbers in waiting.items() for seq in numbers]
    steps = []
    while any(waiting.values()):
        session, publisher = draw(st.sampled_from([key for key in waiting if waiting[key]]))
        seq = waiting[session, publisher].pop(0)
        steps.append((session, EventId(publisher, seq), draw(st.sampled_from((0, 0, 7, 60, 130)))))
    return Script(steps, received)


@pytest.mark.spec("RE-1")
def test_each_filter_keeps_its_promises_whatever_comes() -> None:
    seen: Counter[str] = Counter()

    @examples(150)
    @given(scripts(), st.sampled_from(KINDS), st.sampled_from((2, 100)), st.sampled_from((1, 15)))
    def runs(script: Script, filtering: Filtering, room: int, hold_times: int) -> None:
        run = Merged(filtering, "ABC", held_events_max=room, hold_us=hold_times * HOLD_US)
        for session, id_, us in script.steps:
            run.wait(us).bring(session, id_.seq, publisher=id_.publisher)
        has_given_up = any(type(fact) is GaveUp for fact in run.facts)
        run.wait(20 * HOLD_US)  # Nothing comes any more.
        verdict = judge(run.displayed, script.received)
        late = [id_ for fact in run.facts if type(fact) is CameLate for id_ in fact.events]
        assert run.machine.held == 0
        if filtering is Filtering.NONE:
            assert Counter(run.displayed) == Counter(script.received)
            return
        assert verdict.consistent
        if filtering is Filtering.DUPLICATES:
            assert verdict.complete
            return
        assert verdict.ordered
        assert sorted(set(missing(run.displayed, script.received))) == sorted(set(late))
        if filtering is Filtering.HOLDING:
            assert verdict.complete or has_given_up
            seen.update(runs=1, gave_up=has_given_up, missed=not verdict.complete)

    runs()
    assert seen["runs"] > seen["gave_up"] > seen["missed"] > 0


@pytest.mark.spec("RE-1")
def test_a_machine_goes_on_with_what_another_has_kept() -> None:
    @examples(60)
    @given(scripts(), st.sampled_from(KINDS), st.integers(0, 20))
    def runs(script: Script, filtering: Filtering, place: int) -> None:
        straight, broken = Merged(filtering, "ABC"), Merged(filtering, "ABC")
        for number, (session, id_, us) in enumerate(script.steps):
            if number == place:
                kept = msgspec.msgpack.encode(broken.machine.keep())
                broken.machine = Merging("car", broken.machine.options)
                broken.machine.restore(msgspec.msgpack.decode(kept, type=KeptMerging))
            for run in (straight, broken):
                run.wait(us).bring(session, id_.seq, publisher=id_.publisher)
        for run in (straight, broken):
            run.wait(10 * HOLD_US)
        assert broken.facts == straight.facts

    runs()


# ---- The checkers


@pytest.mark.spec("RE-1")
def test_the_checkers_name_what_is_wrong() -> None:
    p1, p2, p3, p4 = (EventId("p", seq) for seq in (1, 2, 3, 4))
    q1, q2 = EventId("q", 1), EventId("q", 2)
    displayed = [p1, p3, q1, p2, p3, q1]

    assert out_of_order(displayed) == [p2]
    assert inconsistent(displayed) == [p3, q1]
    assert inconsistent(displayed, {p1, p2, p3}) == [q1, p3, q1]
    assert missing(displayed, [p1, p4, q2, p4]) == [p4, q2]
    assert judge([p1, q2, p2], [p1]) == (True, True, True)
    assert judge([p2, p2], [p1]) == (True, False, False)
    assert judge([p2, p1], [p1], {p1}) == (False, False, True)
