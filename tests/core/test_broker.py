"""Brokers and their components: who handles what, hooks, timers, replay."""

from collections.abc import Callable, Sequence
from functools import cached_property

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Transmit
from sterna.core.broker import Broker
from sterna.core.component import Component, handler_name
from sterna.core.inputs import Input, LinkDown, LinkGone, LinkUp, Publish, Received, TimePassed
from sterna.core.link import Data, Resume
from sterna.core.messages import Events, Message, Route, SubscriptionChange
from sterna.core.names import NEVER, LinkId, LocalProtocolError, NodeId, Peer, Time
from sterna.core.node import Node, Turn
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.network import NeverSettlesError
from sterna.sim.run import Simulation
from sterna.sim.topology import line, random_tree
from tests.scale import examples
from tests.sim.overlay import Overlay


class Ping(Message, frozen=True, kw_only=True):
    """Broker -> neighbour: are you there?"""

    number: int


class Watch(Component):
    """Notes everything it hears of, and pings new links after a while."""

    handles = (Ping,)

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def on_ping(self, message: Ping, link: LinkId, now: Time) -> None:
        self.heard.append(("ping", message.number, link, now))

    def link_new(self, link: LinkId, now: Time) -> None:
        self.heard.append(("new", link))
        self.wake_by(now + 5_000)

    def link_up(self, link: LinkId, now: Time) -> None:
        self.heard.append(("up", link, now > -1))

    def link_down(self, link: LinkId, now: Time) -> None:
        self.heard.append(("down", link, now > -1))

    def link_gone(self, link: LinkId, _unconfirmed: Sequence[Message], now: Time) -> None:
        self.heard.append(("gone", link, now > -1))

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        self.heard.append(("passing", [e.seq for e in events], link, now > -1))

    def events_leaving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        self.heard.append(("leaving", [e.seq for e in events], link, now > -1))
        return [event for event in events if event.attributes.get("secret") is None]

    def wake(self, now: Time) -> None:
        self.heard.append(("awake", now))
        for link, peer in self.broker.peers.items():
            if peer is Peer.BROKER:
                self.broker.send(link, Ping(number=1), now)


def watched(brokers: int = 2) -> tuple[Overlay, list[Watch]]:
    watches: list[Watch] = []

    def components(_: NodeId) -> list[Component]:
        watches.append(Watch())
        return [watches[-1]]

    run = Overlay(line(brokers), {"ann": "B1", "pat": f"B{brokers}"}, components=components)
    return run, watches


def test_a_component_hears_of_links_messages_events_and_time() -> None:
    run, (first, second) = watched()
    run.wait(10_000)
    assert ("new", "B2") in first.heard
    assert ("up", "ann", True) in first.heard
    assert ("awake", 6_000) in first.heard
    pings = [heard for heard in second.heard if heard[0] == "ping"]
    assert [ping[:3] for ping in pings] == [("ping", 1, "B1")]

    run.subscribe("ann", "x > 1").settle().publish("pat", x=2).settle()

    assert ("passing", [1], "pat", True) in second.heard
    assert ("leaving", [1], "B1", True) in second.heard


def test_a_component_may_hold_events_back() -> None:
    run, _ = watched()
    run.subscribe("ann", "x > 1").settle()

    run.publish("pat", x=2, secret=1).publish("pat", x=3).settle()

    assert run.received("ann") == ["pat#2"]


def test_two_components_cannot_handle_the_same_message() -> None:
    with pytest.raises(ValueError, match="two components of B1 handle Ping: list only one"):
        Broker("B1", components=[Watch(), Watch()])


def test_a_component_without_its_handler_is_refused() -> None:
    class Deaf(Component):
        handles = (Ping,)

    with pytest.raises(TypeError, match=r"Deaf handles Ping but has no method on_ping"):
        Broker("B1", components=[Deaf()])


def test_handlers_are_named_after_their_messages() -> None:
    assert handler_name(SubscriptionChange) == "on_subscription_change"
    assert handler_name(Ping) == "on_ping"


def test_a_message_for_a_protocol_that_a_broker_lacks_is_no_harm() -> None:
    """Brokers of a network may be upgraded one after the other."""
    run = Overlay(line(1), {"pat": "B1"})

    run.client("pat").send("B1", Ping(number=1), 10**6)
    run.subscribe("pat", "x > 1").settle()

    assert run.table("B1") == {"pat": ["x > 1"]}


def test_a_broker_does_not_publish() -> None:
    with pytest.raises(LocalProtocolError, match="a broker does not take Publish"):
        Broker("B1").handle(Publish(attributes={"x": 1}), 0)


def test_frames_of_a_link_that_is_not_there_are_no_harm() -> None:
    broker = Broker("B1")
    frame = Data(1, 0, Events(events=()))

    for said in (Received(link="?", frames=(frame,)), LinkDown(link="?")):
        assert broker.handle(said, 0) == Turn([], [], said)


def test_what_comes_in_one_batch_is_handled_in_its_order() -> None:
    """Events before a withdrawal still find the filter, those after it do not."""
    broker = Broker("B1")
    hello = Resume(incarnation=0, partner=None, acknowledged=0, answers=True)
    events = [Event(publisher="ann", seq=n, time_us=0, attributes={"x": 1}) for n in (1, 2, 3)]
    messages: list[Message] = [
        SubscriptionChange(added=(Route("1", Filter("x = 1")),)),
        Events(events=(events[0],)),
        Events(events=(events[1],)),
        SubscriptionChange(removed=("1",)),
        Events(events=(events[2],)),
    ]
    frames = (hello, *(Data(n, 0, message) for n, message in enumerate(messages, 1)))
    broker.handle(LinkUp(link="ann", peer=Peer.CLIENT), 0)

    actions = broker.handle(Received(link="ann", frames=frames), 0).actions

    sent = [action.frame for action in actions if isinstance(action, Transmit)]
    assert [frame.message for frame in sent if isinstance(frame, Data)] == [
        Events(events=(events[0], events[1]))  # Together, and back to ann, who wants them.
    ]


def sent_to(broker: Broker, link: LinkId, *messages: Message) -> list[tuple[LinkId, Message]]:
    """What a broker with the neighbours B2 and B3 sends when one of them has sent something."""
    hello = Resume(incarnation=0, partner=None, acknowledged=0, answers=True)
    for neighbour in ("B2", "B3"):
        broker.handle(LinkUp(link=neighbour, peer=Peer.BROKER), 0)
        broker.handle(Received(link=neighbour, frames=(hello,)), 0)
    frames = tuple(Data(n, 0, message) for n, message in enumerate(messages, 1))
    actions = broker.handle(Received(link=link, frames=frames), 0).actions
    return [
        (action.link, action.frame.message)
        for action in actions
        if isinstance(action, Transmit) and isinstance(action.frame, Data)
    ]


@pytest.mark.spec("RT-1")
def test_a_broker_tells_the_others_what_one_wants_and_sends_nothing_back() -> None:
    wish = SubscriptionChange(added=(Route("1", Filter("x = 1")),))
    event = Event(publisher="pat", seq=1, time_us=0, attributes={"x": 1})

    said = sent_to(Broker("B1"), "B2", wish, Events(events=(event,)))

    assert [(link, type(message)) for link, message in said] == [("B3", SubscriptionChange)]


def test_the_deadline_is_when_something_is_due() -> None:
    broker = Broker("B1", components=[Watch()])
    assert broker.deadline == NEVER

    broker.handle(LinkUp(link="B2", peer=Peer.BROKER), now=1_000)
    assert broker.deadline == 201_000  # The session's: if nobody answers, it asks again.
    hello = Resume(incarnation=0, partner=None, acknowledged=0, answers=True)
    broker.handle(Received(link="B2", frames=(hello,)), now=2_000)
    assert broker.deadline == 7_000  # The component's.

    broker.handle(TimePassed(), now=7_000)
    assert 7_000 < broker.deadline <= 207_000  # The session may ask to look earlier than needed.


class Restless(Component):
    """Always wants to be woken at once."""

    def link_up(self, _link: LinkId, now: Time) -> None:
        self.wake_by(now)

    def wake(self, now: Time) -> None:
        self.wake_by(now)


def test_a_component_that_stops_time_is_found() -> None:
    with pytest.raises(NeverSettlesError, match="B1 wants to be woken without an end"):
        Overlay(line(1), {"ann": "B1"}, components=lambda _: [Restless()])


class Chained(Component):
    """Wakes another component when it is woken itself."""

    other: Component

    def wake(self, now: Time) -> None:
        self.other.wake_by(now + 5)


def test_a_deadline_that_is_set_while_waking_is_kept() -> None:
    first, second = Watch(), Chained()
    second.other = first
    broker = Broker("B1", components=[first, second])
    second.wake_by(10)

    broker.handle(TimePassed(), now=10)

    assert broker.deadline == 15


class Logged(Simulation):
    """Keeps every input of each broker and what came of it."""

    def _broker(self, id_: NodeId) -> Callable[[int], Node]:
        make = super()._broker(id_)

        def make_logged(lives: int) -> Node:
            node = make(lives)
            handle, log = node.handle, self.logs.setdefault(id_, [])

            def logged(given: Input, now: Time) -> Turn:
                turn = handle(given, now)
                log.append((given, now, Turn(list(turn.actions), list(turn.facts), given)))
                return turn

            node.handle = logged  # type: ignore[method-assign]
            return node

        return make_logged

    @cached_property
    def logs(self) -> dict[NodeId, list[tuple[Input, Time, Turn]]]:
        return {}


@examples(40)
@given(st.sampled_from(Strategy), st.booleans(), st.integers(0, 2**32))
def test_the_same_inputs_give_the_same_outputs(
    strategy: Strategy, advertisements: bool, seed: int
) -> None:
    """What makes a broker durable by the log of its inputs, whatever those were."""
    plan = Plan(
        topology=random_tree(4, seed),
        clients=5,
        routing=RoutingOptions(strategy=strategy, advertisements=advertisements),
        faults=FAULTS["light"],
    )
    simulation = Logged(generate(plan, seed))
    simulation.run()

    assert list(simulation.logs) == list(plan.topology.brokers)
    for broker, log in simulation.logs.items():
        again = Broker(broker, plan.routing)
        for given_, now, turn in log:
            assert again.handle(given_, now) == turn


def test_quenching_answers_only_who_asks() -> None:
    run = Overlay(line(1), {"pat": "B1"})

    run.subscribe("pat", "x > 1").settle()

    assert run.sent("SubscriptionChange", "B1 → pat") == 0


def test_a_link_that_was_given_up_begins_with_another_incarnation() -> None:
    """The other end must not take it for the session that it remembers, nor for another link's."""
    broker = Broker("B1")

    def incarnation(link: str) -> int:
        turn = broker.handle(LinkUp(link=link, peer=Peer.BROKER), 0)
        (frame,) = [each.frame for each in turn.actions if isinstance(each, Transmit)]
        assert isinstance(frame, Resume)
        return frame.incarnation

    first, other = incarnation("B2"), incarnation("B3")
    broker.handle(LinkGone(link="B2"), 0)

    assert len({first, other, incarnation("B2")}) == 3
