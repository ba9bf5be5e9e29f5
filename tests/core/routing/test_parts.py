"""What ends together with many others is told to neighbours in several turns, and nothing is lost
in between.
"""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Transmit
from sterna.core.broker import Broker
from sterna.core.confirming.echoes import Echoes
from sterna.core.inputs import Ahead, Input, LinkDown, LinkGone, LinkUp, Received, TimePassed
from sterna.core.link import RELIABLE, Data, Frame, Resume
from sterna.core.messages import (
    AdvertisementChange,
    Events,
    InterestAsked,
    Message,
    Route,
    SubscriptionChange,
)
from sterna.core.names import NEVER, LinkId, Peer, RouteId, Time
from sterna.core.routing.announcements import Announcement
from sterna.core.routing.neighbours import STEPS_MAX
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.routing.stages import Chain, Difference, Effort
from sterna.core.routing.strategies import stages
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.wire.snapshots import encode_node, restore_node
from tests.core.routing import definitions
from tests.core.routing.test_strategies import changes, conjunctions, same
from tests.scale import examples

Change = SubscriptionChange | AdvertisementChange | InterestAsked

MANY = 3 * STEPS_MAX
NARROW = [f"n = {number}" for number in range(MANY)]
WIDE = "n >= 0"

pytestmark = pytest.mark.spec("RT-2", "LV-6")


class Standing:
    """A broker with two clients, `c` and `d`, and what its neighbours have been told so far."""

    def __init__(
        self, strategy: Strategy = Strategy.COVERING, *, advertisements: bool = False
    ) -> None:
        self.options = RoutingOptions(strategy=strategy, advertisements=advertisements)
        self.broker = self._made()
        self.told: dict[LinkId, dict[RouteId, Filter]] = {}
        self.offers: dict[LinkId, dict[RouteId, Filter]] = {}
        self.sent: list[tuple[LinkId, Message]] = []
        self.changes: list[SubscriptionChange] = []
        """What `n` was told."""
        self.events: list[LinkId] = []
        """Where events went."""
        self._seqs: dict[LinkId, Iterator[int]] = {}
        for link in ("c", "d"):
            self.connect(link, Peer.CLIENT)
        self.connect("n", Peer.BROKER)

    def _made(self) -> Broker:
        return Broker("B1", self.options, (Echoes(),), timing=RELIABLE)

    def connect(self, link: LinkId, peer: Peer, *, life: int = 1) -> None:
        """The other end of a link comes, and knows nothing."""
        self.come(link, peer)
        self.greet(link, life=life)

    def come(self, link: LinkId, peer: Peer, *, advertises: bool | None = None) -> None:
        """There is a connection; the link does not stand yet."""
        self.told[link] = {}
        self.offers[link] = {}
        self._seqs[link] = count(1)
        self.give(LinkUp(link=link, peer=peer, advertises=advertises))

    def greet(self, link: LinkId, *, life: int = 1) -> None:
        """The link stands."""
        self.give(Received(link=link, frames=(Resume(life, None, 0, True),)))

    def say(self, link: LinkId, message: Message) -> None:
        frame: Frame = Data(next(self._seqs[link]), 0, message)
        self.give(Received(link=link, frames=(frame,)))

    def subscribe(self, link: LinkId, *filters: str) -> None:
        self.say(link, SubscriptionChange(added=routes(link, *filters)))

    def unsubscribe(self, link: LinkId, *filters: str) -> None:
        self.say(link, SubscriptionChange(removed=tuple(f"{link}/{text}" for text in filters)))

    def advertise(self, link: LinkId, *filters: str) -> None:
        self.say(link, AdvertisementChange(added=routes(link, *filters)))

    def ahead(
        self, link: LinkId, change: Change, *, seq: int = 1, introduces: bool = False
    ) -> None:
        """A part of the next message has come."""
        self.give(Ahead(link=link, seq=seq, change=change, introduces=introduces))

    def publish(self, **attributes: Scalar) -> list[LinkId]:
        """An event comes from the neighbour; return where it goes."""
        self.events = []
        event = Event(publisher="p", seq=1, time_us=0, attributes=attributes)
        self.say("n", Events(events=(event,)))
        return self.events

    def give(self, given: Input, now: Time = 0) -> None:
        for action in self.broker.handle(given, now).actions:
            if isinstance(action, Transmit) and isinstance(action.frame, Data):
                self._told(action.link, action.frame.message)

    def _told(self, link: LinkId, message: Message) -> None:
        self.sent.append((link, message))
        if isinstance(message, AdvertisementChange):
            for route in message.added:
                self.offers[link][route.id] = route.filter
            for id_ in message.removed:
                del self.offers[link][id_]
        if isinstance(message, Events):
            self.events.append(link)
        if isinstance(message, SubscriptionChange):
            if link == "n":
                self.changes.append(message)
            for route in message.added:
                self.told[link][route.id] = route.filter
            for id_ in message.removed:
                del self.told[link][id_]

    def turns(self) -> Iterator[None]:
        """What the broker does as time passes: a turn after the other, until it has done all."""
        while self.broker.deadline != NEVER:
            yield
            self.give(TimePassed(), self.broker.deadline)
        assert self.broker.router.is_settled

    def restart(self) -> None:
        """Go on with a snapshot."""
        kept = encode_node(self.broker)
        self.broker = restore_node(kept, self._made())
        assert encode_node(self.broker) == kept

    def filters(self, link: LinkId = "n") -> set[str]:
        return {str(filter_) for filter_ in self.told[link].values()}

    def offered(self, link: LinkId = "n") -> set[str]:
        return {str(filter_) for filter_ in self.offers[link].values()}

    def asks_for(self, *filters: str, link: LinkId = "n") -> bool:
        """Whether events that match some filters would come from a neighbour."""
        told, known = self.told[link].values(), self.filters(link)
        return all(
            text in known or any(each.covers(Filter(text)) for each in told) for text in filters
        )


def routes(link: LinkId, *filters: str) -> tuple[Route, ...]:
    return tuple(Route(f"{link}/{text}", Filter(text)) for text in filters)


def hidden(standing: Standing) -> Standing:
    """`d` has many subscriptions, and `c` has one that covers them all."""
    standing.subscribe("c", WIDE)
    standing.subscribe("d", *NARROW)
    assert standing.filters() == {WIDE}
    standing.changes.clear()
    return standing


@pytest.mark.parametrize("gone", [True, False])
def test_a_client_with_many_subscriptions_ends(gone: bool) -> None:
    """Nothing goes to it from the first turn on; the neighbour is told bit by bit."""
    standing = Standing()
    standing.subscribe("c", *NARROW)
    standing.subscribe("d", NARROW[0])
    standing.changes.clear()

    if gone:
        standing.give(LinkGone(link="c"))
    else:
        standing.unsubscribe("c", *NARROW)

    assert not standing.broker.router.is_settled
    assert standing.publish(n=0) == ["d"]
    assert standing.publish(n=MANY - 1) == []
    assert len(list(standing.turns())) >= MANY // STEPS_MAX - 1
    assert standing.publish(n=0) == ["d"]
    assert standing.publish(n=1) == []
    assert standing.filters() == {NARROW[0]}
    assert max(len(each.removed) for each in standing.changes) <= STEPS_MAX
    assert all(not each.added for each in standing.changes)


@pytest.mark.parametrize("strategy", [Strategy.COVERING, Strategy.MERGING, Strategy.IMPERFECT])
def test_what_a_filter_has_hidden_is_told_before_it_ends(strategy: Strategy) -> None:
    standing = hidden(Standing(strategy))

    standing.unsubscribe("c", WIDE)

    for _ in standing.turns():
        assert standing.asks_for(WIDE)
    assert standing.asks_for(*NARROW)
    assert not standing.asks_for(WIDE)
    assert len(standing.changes) >= MANY // STEPS_MAX
    assert max(len(each.added) for each in standing.changes) <= STEPS_MAX


def test_few_are_told_in_the_same_turn() -> None:
    standing = Standing()
    few = NARROW[: STEPS_MAX // 2]
    standing.subscribe("c", WIDE)
    standing.subscribe("d", *few)
    standing.changes.clear()

    standing.unsubscribe("c", WIDE)

    assert standing.broker.router.is_settled
    assert len(standing.changes) == 1
    assert standing.filters() == set(few)


def test_what_is_new_does_not_wait() -> None:
    """It is told at once, and the turns for the rest take as long as without it."""
    standing = hidden(Standing())
    standing.unsubscribe("c", WIDE)
    before = len(standing.changes)

    standing.subscribe("c", "m = 1")

    assert standing.asks_for("m = 1", WIDE)
    assert [len(each.added) for each in standing.changes[before:]] == [1]
    for _ in standing.turns():
        assert standing.asks_for(WIDE)
    assert standing.filters() == {*NARROW, "m = 1"}


@pytest.mark.parametrize("after", range(4))
def test_a_snapshot_in_the_middle(after: int) -> None:
    """Whoever goes on with it does the same, to the last byte."""
    standing, restarted = (hidden(Standing()) for _ in range(2))
    for each in (standing, restarted):
        each.subscribe("c", *(f"m = {number}" for number in range(MANY)))
        each.give(LinkGone(link="c"))
    turns, others = standing.turns(), restarted.turns()
    for _ in range(after):
        next(turns)
        next(others)

    restarted.restart()
    for each in (standing, restarted):
        each.subscribe("d", "m = 1")
    for _ in turns:
        next(others)

    assert next(others, "ended") == "ended"
    assert restarted.changes == standing.changes
    assert encode_node(restarted.broker) == encode_node(standing.broker)
    assert standing.filters() == {*NARROW, "m = 1"}


def test_a_client_that_is_back_while_it_is_forgotten() -> None:
    """It gets what it has subscribed to since, and nothing else."""
    standing = Standing()
    standing.subscribe("c", *NARROW)
    standing.give(LinkGone(link="c"))

    standing.connect("c", Peer.CLIENT, life=2)
    standing.subscribe("c", NARROW[0], NARROW[-1])

    for _ in standing.turns():
        assert standing.asks_for(NARROW[0], NARROW[-1])
        assert standing.publish(n=0) == ["c"]
        assert standing.publish(n=1) == []
    assert standing.publish(n=MANY - 1) == ["c"]
    assert standing.filters() == {NARROW[0], NARROW[-1]}


@pytest.mark.parametrize("knew", [True, False])
def test_a_neighbour_that_comes_in_the_middle(knew: bool) -> None:
    """It asks for everything, too, whether it is new or has lost its memory."""
    standing = hidden(Standing())
    standing.unsubscribe("c", WIDE)
    link = "n" if knew else "m"

    standing.give(LinkDown(link="n"))
    standing.connect(link, Peer.BROKER, life=2)

    assert standing.asks_for(*NARROW, link=link)
    for _ in standing.turns():
        assert standing.asks_for(*NARROW, link=link)
    assert standing.filters(link) == set(NARROW)


def test_a_neighbour_that_was_never_told_of_what_ends() -> None:
    """Its link was down. When it is up, it has to be told what was hidden, or what hid it."""
    standing = Standing()
    standing.give(LinkDown(link="n"))
    standing.subscribe("c", WIDE)
    standing.subscribe("d", *NARROW)
    standing.unsubscribe("c", WIDE)

    standing.connect("n", Peer.BROKER, life=2)

    for _ in standing.turns():
        assert standing.asks_for(*NARROW)
    assert standing.filters() == set(NARROW)


def test_a_publisher_that_asks_in_the_middle() -> None:
    """It discards what nobody wants, so it must not know too little."""
    standing = hidden(Standing())
    standing.connect("e", Peer.CLIENT)
    standing.say("e", InterestAsked(number=1))
    standing.unsubscribe("c", WIDE)

    standing.connect("f", Peer.CLIENT)
    standing.restart()
    standing.say("f", InterestAsked(number=1))

    for link in ("e", "f"):
        assert standing.asks_for(*NARROW, link=link)
    for _ in standing.turns():
        assert standing.asks_for(*NARROW, link="e")
        assert standing.asks_for(*NARROW, link="f")
    assert standing.filters("e") == standing.filters("f")
    assert not standing.asks_for(WIDE, link="f")


@pytest.mark.parametrize("strategy", Strategy)
def test_a_neighbour_never_knows_too_little(strategy: Strategy) -> None:
    """However little is done in a turn; in the end it knows what the definition says."""

    @examples(40)
    @given(st.lists(conjunctions(), max_size=25), changes, st.integers(0, 3))
    def runs(filters: list[Filter], moves: list[tuple[bool, int]], steps: int) -> None:
        numbers = count(1)
        difference = Difference()
        chain = Chain(stages(strategy, lambda: f"#{next(numbers)}", members_max=4), difference)
        announcement = Announcement(chain, difference)
        told: dict[RouteId, Filter] = {}
        there: list[Route] = []
        fresh = iter(enumerate(filters))

        def listen(steps: int) -> None:
            chain.flush(Effort(steps))
            added, removed = announcement.take(Effort()) or ((), ())
            for route in added:
                told[route.id] = route.filter
            for id_ in removed:
                del told[id_]
            for route in there:
                wanted = route.filter
                assert any(each.covers(wanted) for each in told.values()) or not wanted.normal_form

        listen(steps)
        for adds, number in moves:
            if adds or not there:
                place, filter_ = next(fresh, (None, None))
                if place is None or filter_ is None:
                    break
                there.append(Route(f"r{place}", filter_))
                chain.add(there[-1])
            else:
                chain.many_go()
                chain.remove(there.pop(number % len(there)))
            if number % 3:
                listen(steps)
        listen(1_000)
        assert not chain.waits
        if strategy not in {Strategy.MERGING, Strategy.IMPERFECT}:
            wanted = definitions.told(strategy, [route.filter for route in there])
            assert same(list(told.values()), wanted)

    runs()


def test_what_has_ended_ends_for_a_neighbour_that_knows_it_from_before() -> None:
    route, other = Route("a", Filter("n = 1")), Route("b", Filter("n = 2"))
    before, after = Difference(), Difference()
    before.add(route)
    before.take()
    for each in (route, other):  # Both come and end, while others wait that may need them.
        after.add(each)
        after.remove(each)
    after.follow(before)

    assert after.take_added() == (other,)
    assert after.is_due(Effort())
    assert after.take() == ((), ("a", "b"))
    assert not after.told
