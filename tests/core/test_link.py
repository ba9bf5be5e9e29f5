"""Link sessions: two machines and a connection that loses, repeats, reorders and breaks."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from sterna.core.link import RELIABLE, Ack, Data, Frame, LinkSession, LinkTiming, Resume, State
from sterna.core.messages import Message
from sterna.core.names import NEVER, Time
from tests.scale import examples


class Note(Message, frozen=True, kw_only=True):
    """A message for tests."""

    number: int


class Pair:
    """Two sessions with frames on their way between them, and a clock."""

    def __init__(self, timing: LinkTiming | None = None) -> None:
        self.timing = timing or LinkTiming()
        self.ends = [LinkSession(0, self.timing), LinkSession(0, self.timing)]
        self.flying: list[list[Frame]] = [[], []]
        """Frames that each end has sent and that are not there yet."""
        self.sent: list[list[int]] = [[], []]
        self.received: list[list[int]] = [[], []]
        self.now: Time = 0
        self.transmitted = 0

    def collect(self) -> None:
        for end, flying in zip(self.ends, self.flying, strict=True):
            self.transmitted += len(end.outbox)
            flying.extend(end.outbox)
            end.outbox.clear()

    def open(self) -> None:
        """A new connection is up; nothing arrives that was sent over an earlier one."""
        for end, flying in zip(self.ends, self.flying, strict=True):
            flying.clear()
            end.open(self.now)
        self.collect()

    def close(self) -> None:
        for end, flying in zip(self.ends, self.flying, strict=True):
            end.close()
            flying.clear()

    def send(self, side: int) -> None:
        number = len(self.sent[side]) + 1
        self.sent[side].append(number)
        self.ends[side].send(Note(number=number), self.now)
        self.collect()

    def arrive(self, side: int, place: int, *, keep: bool = False) -> None:
        """A frame that one end has sent arrives; keep it to let it arrive again."""
        flying = self.flying[side]
        if flying:
            place %= len(flying)
            frame = flying[place] if keep else flying.pop(place)
            for message in self.ends[1 - side].receive(frame, self.now):
                assert isinstance(message, Note)
                self.received[1 - side].append(message.number)
            self.collect()

    def lose(self, side: int, place: int) -> None:
        if self.flying[side]:
            self.flying[side].pop(place % len(self.flying[side]))

    def wait(self, us: Time) -> None:
        self.now += us
        for end in self.ends:
            if end.wake_at <= self.now:
                end.wake(self.now)
        self.collect()

    def settle(self) -> None:
        """Let everything arrive in order, and time pass, until nothing is left to do."""
        for _ in range(1_000):
            while self.flying[0] or self.flying[1]:
                self.arrive(0, 0)
                self.arrive(1, 0)
            due = min(end.wake_at for end in self.ends)
            if due == NEVER:
                return
            self.wait(max(0, due - self.now))
        raise AssertionError("the sessions never come to rest")


moves = st.lists(
    st.tuples(
        st.sampled_from(("send", "send", "arrive", "arrive", "again", "lose", "wait", "break")),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
    max_size=60,
)


def play(pair: Pair, script: list[tuple[str, int, int]]) -> None:
    for move, side, number in script:
        match move:
            case "send":
                pair.send(side)
            case "arrive":
                pair.arrive(side, number)
            case "again":
                pair.arrive(side, number, keep=True)
            case "lose":
                pair.lose(side, number)
            case "wait":
                pair.wait(number * 30_000)
            case "break":
                pair.close()
                if number % 2:
                    pair.open()


@examples(400)
@given(moves, st.integers(1, 4))
def test_everything_arrives_once_and_in_order(
    script: list[tuple[str, int, int]], ack_every: int
) -> None:
    pair = Pair(LinkTiming(ack_every=ack_every))
    pair.open()

    play(pair, script)
    for side in (0, 1):  # At any time, what arrived is the beginning of what was sent.
        assert pair.received[1 - side] == pair.sent[side][: len(pair.received[1 - side])]
    pair.open()
    pair.settle()

    assert pair.received[1] == pair.sent[0]
    assert pair.received[0] == pair.sent[1]
    assert [end.backlog for end in pair.ends] == [0, 0]


@examples(100)
@given(moves)
def test_without_timers_a_new_connection_is_enough(script: list[tuple[str, int, int]]) -> None:
    """As over TCP: what a standing connection does not lose needs no timer to be repeated."""
    pair = Pair(RELIABLE)
    pair.open()

    play(pair, [move for move in script if move[0] != "lose"])
    pair.close()
    pair.open()
    pair.settle()

    assert pair.received[1] == pair.sent[0]
    assert pair.received[0] == pair.sent[1]


def test_a_quiet_link_needs_two_resumes_and_answers_only() -> None:
    pair = Pair()
    pair.open()

    pair.settle()

    assert pair.transmitted == 4
    assert {end.state for end in pair.ends} == {State.OPEN}


def test_acknowledgements_ride_on_messages() -> None:
    pair = Pair()
    pair.open()
    pair.settle()
    before = pair.transmitted

    for _ in range(5):
        pair.send(0)
        pair.arrive(0, 0)
        pair.send(1)
        pair.arrive(1, 0)
    pair.settle()

    assert pair.transmitted - before == 11  # Ten messages; only the last is acknowledged alone.


def test_one_acknowledgement_is_enough_for_many_messages() -> None:
    pair = Pair(LinkTiming(ack_every=8))
    pair.open()
    pair.settle()
    before = pair.transmitted

    for _ in range(24):
        pair.send(0)
    pair.settle()

    assert pair.transmitted - before == 24 + 3


def test_only_what_was_lost_delays_what_comes_after_it() -> None:
    """A receiver keeps what comes early, so that one repetition fills the gap."""
    pair = Pair()
    pair.open()
    pair.settle()
    for _ in range(3):
        pair.send(0)
    pair.lose(0, 0)
    while pair.flying[0]:
        pair.arrive(0, 0)
    assert pair.received[1] == []

    pair.wait(200_000)
    pair.arrive(0, 0)

    assert pair.received[1] == [1, 2, 3]


def test_waiting_doubles_while_nobody_answers() -> None:
    pair = Pair()
    pair.open()
    pair.settle()
    pair.send(0)

    waits = []
    for _ in range(6):
        due = pair.ends[0].wake_at
        waits.append(due - pair.now)
        pair.wait(due - pair.now)
        pair.flying[0].clear()

    assert waits == [200_000, 400_000, 800_000, 1_600_000, 3_200_000, 3_200_000]


def test_a_long_search_for_each_other_does_not_slow_down_what_comes_then() -> None:
    pair = Pair()
    pair.open()
    for _ in range(3):
        pair.flying = [[], []]
        pair.wait(min(end.wake_at for end in pair.ends) - pair.now)
    pair.settle()

    pair.send(0)

    assert pair.ends[0].wake_at - pair.now == 200_000


def test_an_end_that_lost_its_memory_is_noticed_and_gets_what_is_sent_from_then_on() -> None:
    pair = Pair()
    pair.open()
    pair.settle()
    for _ in range(3):
        pair.send(0)
    pair.settle()
    pair.send(0)
    pair.close()

    pair.ends[1] = LinkSession(1, pair.timing)
    pair.open()
    pair.settle()

    assert pair.ends[0].given_up == [Note(number=4)]
    pair.send(0)
    pair.send(1)
    pair.settle()
    assert pair.received[1] == [1, 2, 3, 5]
    assert pair.received[0] == [1]


def test_frames_before_the_two_ends_have_met_are_no_harm() -> None:
    session = LinkSession(0, LinkTiming())
    frames: Iterator[Frame] = iter(
        [Data(1, 0, Note(number=1)), Ack(5), Resume(0, None, 0, answers=True)]
    )
    for frame in frames:
        assert not session.receive(frame, 0)  # There is no connection.

    session.open(0)
    assert not session.receive(Data(1, 0, Note(number=1)), 0)
    assert session.state is State.OPENING


def test_what_came_too_early_over_an_earlier_connection_is_forgotten() -> None:
    """The other end may have come back with an older memory, and say something else by then."""
    session = LinkSession(1, LinkTiming())
    hello = Resume(2, 1, 0, True)
    session.open(0)
    session.receive(hello, 0)
    assert session.receive(Data(1, 0, Note(number=1)), 0) == (Note(number=1),)
    assert session.receive(Data(3, 0, Note(number=3)), 0) == ()

    session.close()
    session.open(1)
    session.receive(hello, 1)

    assert session.receive(Data(2, 0, Note(number=20)), 1) == (Note(number=20),)
    assert session.receive(Data(3, 0, Note(number=30)), 1) == (Note(number=30),)
