"""What is in pages is as if it were in memory: two brokers, one of which spills now and then."""

from collections.abc import Iterable, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Action, Transmit
from sterna.core.assembly import make_broker
from sterna.core.depot import MemoryDepot, NoDepot, PageUnreadableError
from sterna.core.frames import Ack, Data, Paged, Resume, sendable
from sterna.core.handover.cache import Cache, read
from sterna.core.handover.messages import Arrival, Resubscribe
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.spilled import InPage
from sterna.core.inputs import Input, LinkDown, LinkGone, LinkUp, Received, TimePassed
from sterna.core.link import LinkTiming
from sterna.core.messages import AnnouncementAsked, Events, Message, Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.settings import Settings
from sterna.core.sizes import weight
from sterna.core.spilling import KeptPart, QueuedPart
from sterna.core.unacknowledged import Unacknowledged
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.wire.snapshots import encode_node, restore_node
from tests.scale import examples

SETTINGS = Settings(
    handover=HandoverOptions(
        protocol=Handover.RELOCATION,
        cache_events_max=12,
        cache_ttl_us=40_000,
        cache_bytes_max=4_000,
    )
)
TIMING = LinkTiming(resend_us=None, ack_delay_us=0)
WANTS = SubscriptionChange(added=(Route("r", Filter("n >= 0")),))


def event(seq: int) -> Event:
    return Event(publisher="p", seq=seq, time_us=0, attributes={"n": seq}, payload=b"x" * 100)


class Run:
    """A broker with a neighbour `B2`, a publisher `p`, and a client `g` that comes and goes."""

    def __init__(self) -> None:
        self.plain = make_broker("B1", SETTINGS, timing=TIMING)
        self.spilling = make_broker("B1", SETTINGS, timing=TIMING)
        self.depot = MemoryDepot()
        self.spilling.depot = self.depot
        self.pending: list[QueuedPart | KeptPart] = []
        self.now = 0
        self.published = 0
        self.sent: dict[str, int] = {}
        """How many messages each peer has sent on its link."""
        self.lives = count(1)
        self.incarnation: dict[str, int] = {}
        self.visit = 0
        self.requests = count(1)
        for peer in ("p", "B2", "g"):
            self.begin(peer)
        self.say("B2", WANTS)
        self.arrive(received=0)
        self.say("g", WANTS)

    # ---- Inputs

    def give(self, given: Input) -> None:
        """Both do and state the same."""
        turns = [node.handle(given, self.now) for node in (self.plain, self.spilling)]
        plain = list(seen(turns[0].actions, NoDepot()))
        assert list(seen(turns[1].actions, self.depot)) == plain
        assert turns[1].facts == turns[0].facts
        assert self.spilling.deadline == self.plain.deadline
        for link in self.plain.peers:
            assert self.spilling.backlog(link) == self.plain.backlog(link)
            assert self.spilling.oldest_unconfirmed(link) == self.plain.oldest_unconfirmed(link)
            assert [*self.spilling.unconfirmed(link)] == [*self.plain.unconfirmed(link)]
            assert self.spilling.kept(link)[:2] == self.plain.kept(link)[:2]

    def begin(self, peer: str) -> None:
        """A peer that remembers nothing connects."""
        self.incarnation[peer] = next(self.lives)
        self.sent[peer] = 0
        self.up(peer, knows=False)

    def up(self, peer: str, *, knows: bool = True, acknowledged: int = 0) -> None:
        self.give(LinkUp(link=peer, peer=Peer.BROKER if peer == "B2" else Peer.CLIENT))
        session = self.plain._sessions[peer]
        if knows and session.partner is None:
            knows = False
        resume = Resume(
            self.incarnation[peer], session.incarnation if knows else None, acknowledged, True
        )
        self.give(Received(link=peer, frames=(resume,), size=0))

    def say(self, peer: str, message: Message) -> None:
        self.sent[peer] += 1
        self.give(Received(link=peer, frames=(Data(self.sent[peer], 0, message),), size=0))

    def arrive(self, received: int) -> None:
        self.visit += 1
        guest = self.plain.part("relocation").guests.get("g")  # type: ignore[union-attr]
        born, stay = (0, 0) if guest is None else (guest.born, guest.stay)
        arrival = Arrival(visit=self.visit, born=born, stay=stay, received=received)
        self.say("g", arrival)

    def do(self, step: str, much: int) -> None:
        """One step; what makes no sense now is left out."""
        self.now += 1_000
        peer = "B2" if much % 2 else "g"
        is_up = self.plain.is_connected(peer)
        match step:
            case "publish":
                events = [event(self.published + n) for n in range(1, much + 1)]
                self.published += much
                for each in events:
                    self.say("p", Events(events=(each,)))
            case "announce" if peer in self.plain.peers:
                self.plain.send(peer, AnnouncementAsked(), self.now)
                self.spilling.send(peer, AnnouncementAsked(), self.now)
                self.give(TimePassed())
            case "down" if is_up:
                self.give(LinkDown(link=peer))
            case "up" if not is_up and peer in self.plain.peers:
                oldest = self.plain.oldest_unconfirmed(peer)
                session = self.plain._sessions[peer]
                first = session._next_seq - 1 if oldest is None else oldest - 1
                self.up(peer, acknowledged=min(first + much // 3, session._transmitted))
            case "confirm" if is_up:
                session = self.plain._sessions[peer]
                oldest = self.plain.oldest_unconfirmed(peer) or session._next_seq
                last = min(oldest - 1 + much, session._next_seq - 1)
                self.give(Received(link=peer, frames=(Ack(last),), size=0))
            case "move" if self.plain.is_connected("B2"):
                guest = self.plain.part("relocation").guests.get("g")  # type: ignore[union-attr]
                if guest is not None:
                    self.say("B2", moved(guest.born, guest.stay, much, next(self.requests)))
            case "wait":
                self.now += much * 4_000
                self.give(TimePassed())
            case _:
                self.begin_anew(step, peer, much)

    def begin_anew(self, step: str, peer: str, much: int) -> None:
        """Steps in which one of the two ends of a link has forgotten something."""
        is_up = self.plain.is_connected(peer)
        match step:
            case "forget" if not is_up:  # The other end has lost its memory.
                self.begin(peer)
                if peer == "g":
                    self.arrive(received=much)
                    self.say("g", WANTS)
                else:
                    self.say("B2", WANTS)
            case "differ" if not is_up and peer in self.plain.peers:  # It has an old memory.
                self.up(peer, acknowledged=self.plain._sessions[peer]._next_seq + 5)
                self.give(LinkDown(link=peer))
            case "anew" if not is_up and peer in self.plain.peers:  # It has noticed that first.
                self.incarnation[peer] = next(self.lives)
                self.sent[peer] = 0
                self.up(peer)
                if peer == "g":
                    self.arrive(received=much)
            case "gone" if not is_up and peer in self.plain.peers and much > 8:
                self.give(LinkGone(link=peer))
                self.begin(peer)
                if peer == "g":
                    self.arrive(received=0)
                self.say(peer, WANTS)
            case _:
                self.do_by_itself(step, much)

    def do_by_itself(self, step: str, much: int) -> None:
        """Steps that nobody notices."""
        match step:
            case "choose" if not self.pending:  # It is written while others go on.
                self.choose(much * 700)
            case "spill":
                if not self.pending:
                    self.choose(much * 700)
                self.spill()
            case "restore":
                self.spilling = restore_node(
                    encode_node(self.spilling), make_broker("B1", SETTINGS, timing=TIMING)
                )
                self.spilling.depot = self.depot
                self.pending.clear()  # Whoever wrote it has ended.

    def choose(self, bytes_max: int) -> None:
        """The oldest of each queue is going to be written."""
        spilling = self.spilling.spilling
        for peer in self.spilling.peers:
            parts = spilling.queued(peer, bytes_max), spilling.kept(peer, bytes_max)
            self.pending += [part for part in parts if part is not None]

    def spill(self) -> None:
        """All that was chosen goes into one page."""
        page, place = self.spilling.last_page + 1, 0
        parts, self.pending = self.pending, []
        self.depot.pages[page] = [each for part in parts for each in contents(part)]
        for part in parts:
            given = self.spilling.spilling.input_for(part, page, place)
            if given is not None:
                turn = self.spilling.handle(given, self.now)
                assert (turn.actions, turn.facts, turn.is_binding) == ([], [], False)
            place += len(contents(part))
        assert self.spilling.spilling.pages() <= self.depot.pages.keys()
        for page in self.depot.pages.keys() - self.spilling.spilling.pages():
            self.depot.pages[page] = ()  # Nothing may look into it any more.


def moved(born: int, stay: int, received: int, number: int) -> Resubscribe:
    return Resubscribe(
        client="g", number=number, born=born, stay=stay, received=received,
        filters=(Filter("n >= 0"),), path=("B2",),
    )  # fmt: skip


def contents(part: QueuedPart | KeptPart) -> Sequence[Message | Event]:
    if isinstance(part, QueuedPart):
        return [frame.message for frame in part.frames]
    return [event for _, event in part.events]


def seen(actions: Iterable[Action], depot: MemoryDepot | NoDepot) -> Iterable[object]:
    """What others notice of actions; acknowledgements may come earlier or later."""
    for action in actions:
        if not isinstance(action, Transmit):
            yield action
            continue
        for frame in sendable(action.frame, depot):
            assert not isinstance(frame, Paged)
            if isinstance(frame, Data):
                yield action.link, frame.seq, frame.message
            elif not isinstance(frame, Ack):
                yield action.link, frame


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(
                    "publish",
                    "publish",
                    "publish",
                    "choose",
                    "spill",
                    "spill",
                    "up",
                    "down",
                    "down",
                ),
                *("confirm", "forget", "differ", "anew", "move", "gone", "wait", "restore"),
                "announce",
            ]
        ),
        st.integers(1, 10),
    ),
    min_size=20,
    max_size=60,
)


@pytest.mark.spec("LV-6", "LV-1")
@examples(300)
@given(STEPS)
def test_what_is_spilled_is_as_if_it_were_not(steps: list[tuple[str, int]]) -> None:
    run = Run()
    run.do("down", 1)
    run.do("down", 2)
    run.do("publish", 9)
    for step, much in steps:
        run.do(step, much)
    for peer in (1, 2):
        run.do("up", peer)


# ---- Parts


def queue_of(count: int) -> Unacknowledged:
    return Unacknowledged(Data(seq, 0, Events(events=(event(seq),))) for seq in range(1, count + 1))


@pytest.mark.spec("LV-6")
@examples(200)
@given(
    st.lists(
        st.one_of(st.tuples(st.integers(1, 20), st.integers(1, 20)), st.integers(0, 21)),
        max_size=8,
    )
)
def test_a_queue_counts_what_waits_wherever_it_is(steps: list[tuple[int, int] | int]) -> None:
    """Messages and their order are exact. After a part of a page has left, sizes are estimated."""
    queue, confirmed, is_exact = queue_of(20), 0, True
    depot = MemoryDepot()
    for page, step in enumerate(steps, 1):
        if isinstance(step, int):
            confirmed = max(confirmed, min(step, 20))
            queue.confirm(step)
            is_exact = is_exact and not any(type(frame) is Paged for frame in list(queue)[:1])
        else:
            first, size = step
            depot.pages[page] = [Events(events=(event(first + n),)) for n in range(size)]
            queue.spill(first, size, page, 0)
        assert queue.backlog == 20 - confirmed
        left = [
            message.events[0].seq
            for frame in queue
            for each in sendable(frame, depot)
            if isinstance(each, Data) and isinstance(message := each.message, Events)
        ]
        assert left == list(range(confirmed + 1, 21))
        load = queue.load()
        assert load.events == 20 - confirmed
        exact = sum(weight(event(seq)) for seq in left)
        assert exact <= load.bytes <= exact + len(queue) if left else load.bytes == 0
        assert 0 <= load.memory_bytes <= load.bytes + 500 * load.events
    queue.confirm(20)
    assert queue.load() == (0, 0, 0)
    assert not list(queue.pages())


@pytest.mark.spec("LV-6")
def test_a_cache_counts_what_it_keeps_wherever_it_is() -> None:
    cache, depot = Cache(100, None), MemoryDepot()
    for seq in range(1, 11):
        cache.keep(event(seq), ["a"], 0)
    whole = cache.load
    chosen = cache.to_spill(3 * whole.memory_bytes // 10)
    assert [number for number, _ in chosen] == [1, 2, 3]
    depot.pages[7] = [each for _, each in chosen]
    for place, (number, _) in enumerate(chosen):
        cache.spill(number, 7, place)
    assert cache.load[:2] == whole[:2]
    assert cache.load.memory_bytes < whole.memory_bytes
    assert [number for number, _ in cache.to_spill(1)] == [4]
    assert list(cache.pages()) == [7]
    assert cache.still_in_memory(chosen) == set()
    gone = cache.shrink(cache.load.memory_bytes - 1)
    assert read([each.event for each in gone], depot) == [event(1)]
    assert [each.seq for each in read(cache.take(), depot)] == list(range(2, 11))
    assert cache.load == (0, 0, 0)
    assert not list(cache.pages())


@pytest.mark.spec("LV-6")
def test_a_page_that_is_not_there_is_no_empty_one() -> None:
    with pytest.raises(PageUnreadableError):
        read([InPage(1, 0)], NoDepot())


@pytest.mark.spec("LV-6")
def test_what_a_neighbour_will_not_have_again_stays_in_memory() -> None:
    """After a link begins anew, announcements are made anew; pages hold only what is not."""
    broker = make_broker("B1", SETTINGS, timing=TIMING)
    broker.handle(LinkUp(link="B2", peer=Peer.BROKER), 0)
    broker.handle(Received(link="B2", frames=(Resume(1, None, 0, True),), size=0), 0)
    broker.send("B2", AnnouncementAsked(), 0)
    broker.send("B2", Events(events=(event(1),)), 0)
    broker.send("B2", AnnouncementAsked(), 0)
    part = broker.spilling.queued("B2", 10**6)
    assert part is not None
    assert [type(frame.message) for frame in part.frames] == [Events]
