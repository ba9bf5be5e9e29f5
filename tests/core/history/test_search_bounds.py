"""What careless and hostile neighbours can ask of a broker, and what they cannot."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Transmit
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.catalogue import LIVE, LIVE_0_1
from sterna.core.facts import Fact
from sterna.core.history import recent as recents
from sterna.core.history import search as searching
from sterna.core.history.facts import PastFound
from sterna.core.history.messages import (
    HistoryAsked,
    HistoryExpected,
    HistoryFound,
    Past,
    PastAsked,
    Place,
    Run,
)
from sterna.core.history.options import BufferOptions, HistoryOptions, Search
from sterna.core.history.recent import Recent
from sterna.core.history.search import Searches
from sterna.core.inputs import (
    ArchiveChanged,
    Configured,
    LinkDown,
    LinkUp,
    LookedUp,
    Received,
    TimePassed,
)
from sterna.core.link import Data, Resume
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.ranges import INT_MAX
from sterna.net.nodes import AT_A_BROKER
from sterna.wire.codec import Bodies, decode, encode
from sterna.wire.snapshots import encode_node, restore_node
from tests.scale import examples
from tests.wire.messages import messages_of

pytestmark = pytest.mark.spec("LV-6", "PA-2")

ALL = Filter("n >= 0")


class Standing:
    """A broker B1 with neighbours B2 and B3 and some clients, whose links are up."""

    def __init__(
        self, *clients: str, neighbours: Sequence[str] = ("B2", "B3"), **history: Any
    ) -> None:
        self.settings = Settings(protocols=LIVE, history=HistoryOptions(**history))
        self.broker = make_broker("B1", self.settings, timing=AT_A_BROKER, incarnation=1)
        self._seqs: dict[str, count[int]] = {}
        self._published: dict[str, int] = {}
        self.now = 10
        self.facts: list[Fact] = []
        for link in (*neighbours, *clients):
            self.meet(link)

    def meet(self, link: str, features: tuple[str, ...] | None = None) -> None:
        """A link is up for the first time."""
        peer = Peer.BROKER if link.startswith("B") else Peer.CLIENT
        self.broker.handle(LinkUp(link=link, peer=peer, features=features), self.now)
        frames = (Resume(7, None, 0, True),)
        self.broker.handle(Received(link=link, frames=frames), self.now)
        self._seqs[link] = count(1)

    def say(self, link: str, *messages: Message) -> list[tuple[str, Any]]:
        """What the broker sends to whom when it gets some messages."""
        sent = []
        for message in messages:
            self.now += 1
            frame = Data(next(self._seqs[link]), 0, message)
            sent += self._sent(Received(link=link, frames=(frame,)))
        return sent

    def wait(self, us: int) -> list[tuple[str, Any]]:
        self.now += us
        return self._sent(TimePassed())

    def _sent(self, given: Any) -> list[tuple[str, Any]]:
        turn = self.broker.handle(given, self.now)
        actions = turn.actions
        self.facts += turn.facts
        frames = [each for each in actions if isinstance(each, Transmit)]
        for each in frames:
            decode(b"".join(encode(each.frame, Bodies())))  # Others can read it.
        return [(e.link, e.frame.message) for e in frames if isinstance(e.frame, Data)]

    def publish(self, publisher: str, many: int, payload: bytes = b"", **more: Any) -> None:
        first = self._published.get(publisher, 0)
        self._published[publisher] = first + many
        events = tuple(
            Event(
                publisher=publisher,
                seq=seq,
                time_us=self.now,
                attributes={"n": seq, **more},
                payload=payload,
            )
            for seq in range(first + 1, first + many + 1)
        )
        self.say(publisher, Events(events=events))

    @property
    def searches(self) -> Searches:
        found = self.broker.part("search")
        assert isinstance(found, Searches)
        return found

    @property
    def recent(self) -> Recent:
        found = self.broker.part("past")
        assert isinstance(found, Recent)
        return found

    def restored(self) -> Broker:
        fresh = make_broker("B1", self.settings, timing=AT_A_BROKER)
        return restore_node(encode_node(self.broker), fresh)


def asked(*path: str, number: int = 1, **more: Any) -> HistoryAsked:
    return HistoryAsked(path=path, number=number, **{"filter": ALL, **more})


def past(name: str, **more: Any) -> PastAsked:
    return PastAsked(route=Route(name, ALL), in_parts=True, **more)


def of(kind: type[Message], sent: Sequence[tuple[str, Any]], to: str | None = None) -> list[Any]:
    return [m for link, m in sent if type(m) is kind and to in {None, link}]


# ---- Forged questions and answers


@pytest.mark.parametrize(
    "path",
    [(), ("B3",), ("B2", "B9"), ("B1", "B2"), ("B2", "B1", "B2"), (*["x"] * 2_000, "B2")],
    ids=["empty", "another", "no neighbour", "own", "circle", "long"],
)
def test_a_question_whose_way_is_forged_is_dropped(path: tuple[str, ...]) -> None:
    run = Standing("pat")
    run.publish("pat", 3)

    assert run.say("B2", asked(*path)) == []


def test_a_question_from_a_client_is_dropped() -> None:
    """Its driver refuses it before; but if it did not."""
    run = Standing("pat")
    run.publish("pat", 3)

    assert run.say("pat", asked("pat")) == []


def test_answers_that_nobody_has_asked_for_are_dropped() -> None:
    run = Standing("ann")
    for path in ((), ("B3",), ("B9",), ("B3", "B2")):
        assert run.say("B2", HistoryFound(path=path, number=1)) == []
        assert run.say("B2", HistoryExpected(path=path, number=1, count=7)) == []


def test_only_who_was_asked_can_answer() -> None:
    """B3 has asked, and B2 was; B3 cannot answer for it, and B2 not with the number of another."""
    run = Standing("ann")
    (question,) = of(HistoryAsked, run.say("B3", asked("B9", "B3", number=5)), "B2")
    assert question.path == ("B9", "B3", "B1")

    assert run.say("B3", HistoryFound(path=("B9", "B3"), number=5)) == []
    assert run.say("B2", HistoryFound(path=("B9", "B3"), number=6)) == []
    assert run.say("B2", HistoryFound(path=("B3",), number=5)) == []
    (answer,) = of(HistoryFound, run.say("B2", HistoryFound(path=("B9", "B3"), number=5)), "B3")
    assert answer.path == ("B9",)
    assert run.say("B2", HistoryFound(path=("B9", "B3"), number=5)) == []


def test_a_neighbour_that_came_later_cannot_answer() -> None:
    run = Standing("ann", neighbours=("B2",))
    run.say("ann", past("ann/1", events_max=5))
    run.meet("B3")

    assert run.say("B3", HistoryFound(path=(), number=1)) == []
    assert len(of(Past, run.say("B2", HistoryFound(path=(), number=1)), "ann")) == 1


def test_one_neighbour_cannot_take_the_place_of_another() -> None:
    """Both ask in the name of B9: each gets its own answers."""
    run = Standing("ann", neighbours=("B2", "B3", "B4"))
    run.say("B2", asked("B9", "B2", number=5))
    run.say("B3", asked("B9", "B3", number=5))

    for to in ("B2", "B3"):
        sent = run.say("B4", HistoryFound(path=("B9", to), number=5))
        assert [link for link, _ in sent] == [to]


def test_counts_beyond_all_bounds_can_be_kept_and_end_with_time() -> None:
    run = Standing("ann")
    run.say("ann", past("ann/1", events_max=5))
    run.say("B3", asked("B3"))
    for _ in range(3):
        run.say("B2", HistoryExpected(path=(), number=1, count=INT_MAX))
        run.say("B2", HistoryExpected(path=("B3",), number=1, count=INT_MAX))

    assert encode_node(run.restored()) == encode_node(run.broker)
    assert len(of(Past, run.wait(3_000_000), "ann")) == 1
    run.wait(searching.PASSING_US)
    run.say("B3", asked("B3", number=2))
    assert [number for _, _, number in run.searches._passing] == [2]


def test_a_filter_that_depends_on_somebody_is_answered_with_nothing() -> None:
    run = Standing("pat")
    run.publish("pat", 3)

    sent = run.say("B2", asked("B2", filter=Filter("n IN myloc")))

    assert [(link, m.events, m.runs) for link, m in sent] == [("B2", (), ())]


def test_events_without_runs_and_runs_without_numbers_behind_them_count_for_nothing() -> None:
    run = Standing("ann")
    run.say("ann", past("ann/1", events_max=5))
    event = Event(publisher="eve", seq=INT_MAX, time_us=1, attributes={"n": 1})
    odd = Run("eve", 1, INT_MAX, Place.HERE)

    run.say("B2", HistoryFound(path=(), number=1, events=(event,)))
    found = HistoryFound(path=(), number=1, events=(event,), runs=(odd,))
    (answer,) = of(Past, run.say("B3", found), "ann")

    assert answer.events == ()


def test_a_publisher_at_the_end_of_all_numbers_spoils_nothing() -> None:
    run = Standing("pat", "eve")
    run.publish("pat", 3)
    last = Event(publisher="eve", seq=INT_MAX, time_us=0, attributes={"n": 1})
    run.say("eve", Events(events=(last,)))

    (answer,) = of(HistoryFound, run.say("B2", asked("B2", events_max=1)), "B2")

    assert [each.id for each in answer.events] == [("pat", 3)]


@pytest.mark.parametrize("search", [Search.COMPLETE, Search.LARGEST])
def test_nothing_that_neighbours_may_say_makes_a_broker_stumble(search: Search) -> None:
    kinds = (HistoryAsked, HistoryExpected, HistoryFound)

    @examples(100, long=5)
    @given(st.lists(st.tuples(st.sampled_from(["B2", "B3"]), *map(messages_of, kinds))))
    def holds(said: list[tuple[str, HistoryAsked, HistoryExpected, HistoryFound]]) -> None:
        run = Standing("c1", search=search)
        run.publish("c1", 3)
        run.say("c1", past("c1/1", events_max=5), past("c1/2", since_us=0))
        for link, question, expected, found in said:
            run.say(link, question, expected, found)
        assert encode_node(run.restored()) == encode_node(run.broker)
        run.wait(3_000_000)
        assert not run.searches._searching

    holds()


# ---- Long questions and answers


def answer_of(sent: Sequence[tuple[str, Any]]) -> tuple[list[Event], list[Run], list[bool]]:
    found = of(HistoryFound, sent)
    return (
        [event for each in found for event in each.events],
        [run for each in found for run in each.runs],
        [each.more for each in found],
    )


def test_an_answer_about_many_publishers_comes_in_parts() -> None:
    names = [f"p{number}" for number in range(2 * searching.PART_RUNS_MAX + 1)]
    run = Standing(*names)
    for name in names:
        run.publish(name, 1)

    sent = run.say("B2", asked("B2"))
    events, runs, more = answer_of(sent)

    assert [event.publisher for event in events] == names
    assert {each.publisher for each in runs} == {*names}
    assert more == [True] * (len(more) - 1) + [False]
    found = of(HistoryFound, sent)
    assert all(len(each.runs) <= searching.PART_RUNS_MAX for each in found)
    first_runs = [bool(each.runs) for each in found].index(True)
    assert not any(each.events for each in found[first_runs + 1 :])


def test_a_long_answer_has_the_latest_events_and_comes_in_parts() -> None:
    """As many as there is room for; it says from which number on they are all."""
    run = Standing("pat")
    for _ in range(100):
        run.publish("pat", 1, payload=bytes(64 << 10))

    sent = run.say("B2", asked("B2"))
    events, runs, more = answer_of(sent)

    assert 50 < len(events) < 64
    assert [event.seq for event in events] == list(range(101 - len(events), 101))
    assert runs == [Run("pat", events[0].seq, 100, Place.HERE)]
    assert len(more) == len(events)  # One of them in each.
    (question,) = of(HistoryAsked, sent, "B3")
    assert question.known == (("pat", events[0].seq, 100),)


def test_an_answer_counts_when_its_last_part_is_there() -> None:
    run = Standing("ann", neighbours=("B2",))
    run.say("ann", past("ann/1", events_max=5))
    events = [Event(publisher="pat", seq=n, time_us=n, attributes={"n": n}) for n in (1, 2, 3)]
    same: dict[str, Any] = {"path": (), "number": 1, "broker": "B2", "away": 1}

    for event in events:
        assert run.say("B2", HistoryFound(events=(event,), more=True, **same)) == []
    assert encode_node(run.restored()) == encode_node(run.broker)
    runs = (Run("pat", 1, 3, Place.HERE),)
    (answer,) = of(Past, run.say("B2", HistoryFound(runs=runs, **same)), "ann")

    assert [event.seq for event in answer.events] == [1, 2, 3]


def test_what_is_left_of_an_answer_does_not_count() -> None:
    """Its last part does not come: there might be a gap."""
    run = Standing("ann", neighbours=("B2",))
    run.say("ann", past("ann/1", events_max=5))
    event = Event(publisher="pat", seq=1, time_us=1, attributes={"n": 1})
    runs = (Run("pat", 1, 3, Place.HERE),)
    part = HistoryFound(path=(), number=1, broker="B2", events=(event,), runs=runs, more=True)

    run.say("B2", part)
    (answer,) = of(Past, run.wait(3_000_000), "ann")

    assert answer.events == ()


def test_a_question_names_a_bounded_number_of_publishers() -> None:
    names = [f"p{number}" for number in range(searching.KNOWN_MAX + 10)]
    run = Standing(*names)
    for name in names:
        run.publish(name, 1)
    known = tuple((f"q{number}", 1, 1) for number in range(3 * searching.KNOWN_MAX))

    (question,) = of(HistoryAsked, run.say("B2", asked("B2", known=known)), "B3")

    assert len(question.known) == searching.KNOWN_MAX


# ---- Many searches


def test_a_client_with_too_many_searches_gets_what_its_broker_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searching, "SEARCHES_PER_CLIENT_MAX", 2)
    monkeypatch.setattr(searching, "SEARCHES_MAX", 3)
    run = Standing("ann", "bob", "pat", neighbours=("B2",))
    run.publish("pat", 3)

    sent = [
        run.say(name, past(f"{name}/{number}", events_max=5))
        for name, number in (("ann", 1), ("ann", 2), ("ann", 3), ("bob", 1), ("bob", 2))
    ]

    answers = [[[e.seq for e in each.events] for each in of(Past, one)] for one in sent]
    assert answers == [[], [], [[1, 2, 3]], [], [[1, 2, 3]]]
    assert [len(of(HistoryAsked, one)) for one in sent] == [1, 1, 0, 1, 0]


def test_a_search_that_finds_too_much_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "FOUND_BYTES_MAX", 100_000)
    run = Standing("ann", neighbours=("B2",))
    run.say("ann", past("ann/1", events_max=5))
    sent: list[tuple[str, Any]] = []
    seq = 0
    while not sent and seq < 10:
        seq += 1
        event = Event(
            publisher="pat", seq=seq, time_us=1, attributes={"n": 1}, payload=bytes(30_000)
        )
        found = HistoryFound(path=(), number=1, broker="B2", events=(event,), more=True)
        sent += run.say("B2", found)

    assert seq == 4
    assert len(of(Past, sent, "ann")) == 1
    assert (run.searches._searching, run.searches._held_bytes) == ({}, 0)


def test_answers_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that takes nothing is to ask again later; others are answered."""
    monkeypatch.setattr(recents, "ANSWERS_PER_CLIENT_MAX", 2_000)
    run = Standing("ann", "bob", "pat", neighbours=())
    for _ in range(10):
        run.publish("pat", 100, payload=bytes(1_000))

    sent = [run.say("ann", past(f"ann/{number}", events_max=1_000)) for number in range(5)]
    assert [each.later for each in of(Past, sent[-1])] == [True]
    assert [each.later for each in of(Past, run.say("bob", past("bob/1", events_max=1)))] == [False]


def test_questions_for_a_neighbour_that_is_down_are_bounded() -> None:
    run = Standing("ann", neighbours=("B2", "B3"))
    run.broker.handle(LinkDown(link="B3"), run.now)
    for number in range(400):
        run.say("B2", asked("B2", number=number))

    assert 200_000 < run.searches._courier.held("B3").bytes < searching.WAITING_BYTES_MAX + 1_000


# ---- What is there


@pytest.mark.spec("PA-5")
@pytest.mark.parametrize("has_archive", [False, True])
def test_where_the_past_was_found_is_stated(has_archive: bool) -> None:
    run = Standing("ann", "bob", neighbours=("B2",))
    run.broker.handle(ArchiveChanged(is_there=has_archive), run.now)
    run.publish("bob", 3)
    run.say("ann", past("ann/1", events_max=9))
    far = Event(publisher="pat", seq=2, time_us=run.now, attributes={"n": 1})
    old = msgspec.structs.replace(far, seq=1, time_us=0)
    answer = HistoryFound(
        path=(), number=1, broker="B7", away=4, events=(far,), runs=(Run("pat", 2, 2, Place.HERE),)
    )

    run.say("B2", answer)
    assert encode_node(run.restored()) == encode_node(run.broker)
    if has_archive:
        assert of_facts(run) == []
        turn = run.broker.handle(LookedUp(question=1, events=(old,)), run.now)
        run.facts += turn.facts

    assert of_facts(run) == [
        PastFound(
            at="B1",
            time=run.now,
            client="ann",
            subscription="ann/1",
            here=3,
            neighbours=1,
            archived=int(has_archive),
            away=4,
            search_us=1,
        )
    ]


def of_facts(run: Standing) -> list[Fact]:
    return [fact for fact in run.facts if isinstance(fact, PastFound)]


def test_a_broker_answers_with_more_of_its_publishers_than_it_keeps_of_each() -> None:
    """As much as it remembers, as far as nothing is missing."""
    run = Standing("pat", publisher_events=2)
    run.publish("pat", 5)
    events, runs, _ = answer_of(run.say("B2", asked("B2")))

    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert runs == [Run("pat", 1, 5, Place.HERE)]


def test_what_it_remembers_of_a_publisher_that_was_elsewhere_does_not_count() -> None:
    run = Standing("pat", publisher_events=2)
    run.publish("pat", 3)
    run._published["pat"] = 5
    run.publish("pat", 4)
    events, runs, _ = answer_of(run.say("B2", asked("B2")))

    assert [event.seq for event in events] == [6, 7, 8, 9]
    assert runs == [Run("pat", 6, 9, Place.HERE)]


@pytest.mark.parametrize(("filter_", "first"), [("kind = 'a'", 1), ("n >= 0", 9)])
def test_a_buffer_counts_for_what_all_of_it_goes_there(filter_: str, first: int) -> None:
    """Of what matches another filter, it may have the first and the third, but not the second."""
    buffer = BufferOptions(filter=Filter("kind IN ('a', 'b')"))
    run = Standing("pat", publisher_events=2, events_max=2, buffers=(buffer,))
    for _ in range(5):
        run.publish("pat", 1, kind="a")
        run.publish("pat", 1, kind="c")

    events, _, _ = answer_of(run.say("B2", asked("B2", filter=Filter(filter_))))

    assert events[0].seq == first


@examples(60)
@given(st.lists(st.integers(0, 3), max_size=30), st.sampled_from([0, 2, 40]), st.integers(1, 6))
def test_what_is_found_in_slices_is_what_is_found_at_once(
    pauses: list[int], events_max: int, memory: int
) -> None:
    """Events come and go while a question waits for its turn."""
    runs = [Standing("pat", "bob", publisher_events=2, events_max=memory) for _ in range(2)]
    question = asked("B2", events_max=events_max)
    given_ = Received(link="B2", frames=(Data(1, 0, question),))
    for run in runs:
        run.publish("pat", 3)
    foresight = runs[0].broker.foresee(given_, lambda: True)
    assert foresight is not None
    for number, many in enumerate(pauses):
        if many:
            for run in runs:
                run.publish("bob" if number % 3 else "pat", many)
        foresight.is_complete()
    while not foresight.is_complete():
        pass

    runs[0].broker.foresight = foresight
    sent = [run.say("B2", question) for run in runs]

    assert sent[0] == sent[1]


def test_what_takes_most_of_the_time_is_done_before() -> None:
    """A question waits while others have their turn; then nothing is tested any more."""
    run = Standing("pat")
    run.publish("pat", 50)
    matching = Filter("n >= 0")
    given_ = Received(link="B2", frames=(Data(1, 0, asked("B2", filter=matching)),))
    foresight = run.broker.foresee(given_, lambda: True)
    assert foresight is not None
    turns = 0
    while not foresight.is_complete():
        turns += 1

    assert turns >= 100  # The events that it remembers, and those that it keeps of the publisher.


# ---- An earlier release


@pytest.mark.spec("LV-9")
@pytest.mark.parametrize("neighbours", [(), ("B2",)], ids=["alone", "with others"])
def test_what_a_broker_remembers_is_there_when_it_begins_to_search(
    neighbours: tuple[str, ...],
) -> None:
    """Its publishers are its clients; without others, also those that have left."""
    run = Standing("pat", "ann", neighbours=neighbours)
    old = Settings(protocols=LIVE_0_1)
    run.broker.handle(Configured(settings=old), run.now)
    run.publish("pat", 3)
    gone = Event(publisher="gone", seq=1, time_us=0, attributes={"n": 1})
    run.recent.events_passing((gone,), "", run.now)
    assert run.broker.part("search") is None

    run.broker.handle(Configured(settings=run.settings), run.now)
    sent = run.say("ann", past("ann/1", events_max=9))
    for neighbour in neighbours:
        sent += run.say(neighbour, HistoryFound(path=(), number=1))
    (answer,) = of(Past, sent, "ann")

    left = [] if neighbours else [("gone", 1)]
    assert sorted(e.id for e in answer.events) == [*left, *(("pat", seq) for seq in (1, 2, 3))]


@pytest.mark.spec("LV-9")
def test_a_neighbour_of_an_earlier_release_is_not_asked() -> None:
    """And what came from there does not count as if all of it had come."""
    run = Standing("ann", "bob", neighbours=("B2",))
    run.meet("B3", features=("settings",))
    run.say("B3", SubscriptionChange(added=(Route("x", ALL),)))

    sent = run.say("ann", past("ann/1", events_max=5))
    assert [link for link, message in sent if type(message) is HistoryAsked] == ["B2"]
    run.say("B2", HistoryFound(path=(), number=1))
    event = Event(publisher="pat", seq=1, time_us=run.now, attributes={"n": 1})
    run.say("B3", Events(events=(event,)))
    run.say("bob", past("bob/1", events_max=5))
    (answer,) = of(Past, run.say("B2", HistoryFound(path=(), number=2)), "bob")
    assert answer.events == ()
