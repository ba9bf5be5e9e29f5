"""Clients: what an application may do, and what reaches it."""

import pytest

from sterna.core.actions import Deliver, Transmit
from sterna.core.client import Client
from sterna.core.facts import Purged, Stray
from sterna.core.inputs import (
    Advertise,
    Input,
    LinkDown,
    LinkUp,
    Publish,
    Received,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from sterna.core.link import LinkSession, LinkTiming, Resume
from sterna.core.messages import (
    AdvertisementChange,
    Events,
    InterestAsked,
    InterestKnown,
    Message,
    Route,
    SubscriptionChange,
)
from sterna.core.names import LocalProtocolError, Peer
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.script import Drop
from sterna.sim.topology import line
from tests.sim.overlay import Overlay

X = Filter("x > 1")


def test_a_subscription_has_a_name_of_its_own() -> None:
    client = Client("ann")
    client.handle(Subscribe(subscription="1", filter=X), 0)

    with pytest.raises(LocalProtocolError, match="ann has a subscription '1'; unsubscribe it"):
        client.handle(Subscribe(subscription="1", filter=X), 0)
    with pytest.raises(LocalProtocolError, match="ann has no subscription '2'"):
        client.handle(Unsubscribe(subscription="2"), 0)


def test_an_advertisement_has_a_name_of_its_own() -> None:
    client = Client("pat")
    client.handle(Advertise(advertisement="1", filter=X), 0)

    with pytest.raises(LocalProtocolError, match="pat has an advertisement '1'; unadvertise it"):
        client.handle(Advertise(advertisement="1", filter=X), 0)
    with pytest.raises(LocalProtocolError, match="pat has no advertisement '2'"):
        client.handle(Unadvertise(advertisement="2"), 0)


@pytest.mark.spec("RT-3")
def test_where_advertisements_count_an_event_needs_one() -> None:
    client = Client("pat", ClientOptions(advertisements=True))
    client.handle(Advertise(advertisement="1", filter=X), 0)

    with pytest.raises(LocalProtocolError, match="pat has advertised nothing that matches"):
        client.handle(Publish(attributes={"x": 1}), 0)
    facts = client.handle(Publish(attributes={"x": 2}), 0).facts
    assert facts[0].events[0].seq == 1  # type: ignore[attr-defined] # The refused one has no number.


def test_what_was_refused_leaves_no_trace() -> None:
    client = Client("ann")
    with pytest.raises(LocalProtocolError, match="no places"):
        client.handle(Subscribe(subscription="1", filter=Filter("x < $budget")), 0)
    with pytest.raises(TypeError):
        client.handle(Publish(attributes={"x": [1]}), 0)  # type: ignore[dict-item]

    assert client.subscriptions == {}
    client.handle(Subscribe(subscription="1", filter=X), 0)
    facts = client.handle(Publish(attributes={"x": 2}), 0).facts
    assert len(facts) == 1


def test_events_come_with_the_subscriptions_that_they_match() -> None:
    client = Client("ann")
    client.handle(LinkUp(link="B1", peer=Peer.BROKER), 0)
    client.handle(Subscribe(subscription="all", filter=Filter("TRUE")), 0)
    client.handle(Subscribe(subscription="big", filter=X), 0)
    events = [Event(publisher="pat", seq=seq, time_us=0, attributes={"x": seq}) for seq in (1, 2)]

    client.events_arrived(events, "B1", 0)
    actions = client.handle(Unsubscribe(subscription="all"), 0).actions

    (delivery,) = [action for action in actions if isinstance(action, Deliver)]
    assert delivery == Deliver(tuple(events), (("all",), ("all", "big")))


def test_an_event_for_a_subscription_that_has_ended_is_not_delivered() -> None:
    run = Overlay(line(1), {"ann": "B1", "pat": "B1"}).subscribe("ann", "x > 1").settle()

    run.publish("pat", x=2).wait(1_000).unsubscribe("ann").settle()

    assert run.received("ann") == []
    assert len(run.facts_of(Stray)) == 1
    assert run.outcome().findings == []


def test_what_a_client_does_before_it_is_connected_counts_once_it_is() -> None:
    client = Client("ann")
    client.handle(Subscribe(subscription="1", filter=X), 0)
    client.handle(Advertise(advertisement="1", filter=X), 0)
    client.handle(Publish(attributes={"x": 3}), 0)

    client.handle(LinkUp(link="B1", peer=Peer.BROKER), 0)
    assert client.backlog("B1") == 0  # First the two ends have to find each other.
    hello = Resume(incarnation=0, partner=None, acknowledged=0, answers=True)
    client.handle(Received(link="B1", frames=(hello,)), 0)

    assert client.backlog("B1") == 3


def test_events_wait_for_a_connection_up_to_a_limit() -> None:
    run = Overlay(line(1), {"ann": "B1", "pat": "B1"}, client=ClientOptions(buffer_events_max=2))
    run.subscribe("ann", "x > 0").settle()
    run.fault(Drop(a="pat", b="B1", us=100_000))

    for x in (1, 2, 3):
        run.publish("pat", x=x)
    run.settle()

    assert run.received("ann") == ["pat#2", "pat#3"]
    assert [e.seq for f in run.facts_of(Purged) if isinstance(f, Purged) for e in f.events] == [1]
    assert run.outcome().findings == []  # It was counted, not lost unnoticed.


@pytest.mark.spec("RT-3", "RT-5")
def test_the_end_of_an_advertisement_does_not_pass_events_that_wait() -> None:
    """Published and unadvertised without a connection: the events still find their way."""
    run = Overlay(
        line(2),
        {"ann": "B1", "pat": "B2"},
        RoutingOptions(advertisements=True),
        ClientOptions(advertisements=True),
    )
    run.subscribe("ann", "x > 0").advertise("pat", "x > 0").settle()

    run.fault(Drop(a="pat", b="B2", us=100_000))
    run.publish("pat", x=1).unadvertise("pat").settle()

    assert run.received("ann") == ["pat#1"]


class Wire:
    """The broker's end of a client's link: hears what the client says, and answers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.session = LinkSession(0, LinkTiming())

    def connect(self) -> list[Message]:
        """A connection is up: return what the client sends first."""
        self.session.open(0)
        return self._hear(LinkUp(link="B1", peer=Peer.BROKER))

    def break_off(self) -> None:
        self.session.close()
        self.client.handle(LinkDown(link="B1"), 0)

    def say(self, *messages: Message) -> list[Message]:
        """Say something to the client: what it answers."""
        for message in messages:
            self.session.send(message, 0)
        return self._exchange()

    def give(self, given: Input) -> list[Message]:
        return self._hear(given)

    def _hear(self, given: Input) -> list[Message]:
        heard: list[Message] = []
        for action in self.client.handle(given, 0).actions:
            if isinstance(action, Transmit):
                heard += self.session.receive(action.frame, 0)
        return heard + self._exchange()

    def _exchange(self) -> list[Message]:
        frames, self.session.outbox = tuple(self.session.outbox), []
        return self._hear(Received(link="B1", frames=frames)) if frames else []


@pytest.mark.spec("RT-3", "RT-5")
def test_messages_and_events_that_wait_keep_their_order() -> None:
    client = Client("pat", ClientOptions(advertisements=True))
    wire = Wire(client)
    client.handle(Advertise(advertisement="1", filter=X), 0)
    wire.connect()
    wire.break_off()
    client.handle(Publish(attributes={"x": 2}), 0)
    client.handle(Unadvertise(advertisement="1"), 0)

    heard = wire.connect()

    assert [type(message) for message in heard] == [Events, AdvertisementChange]


@pytest.mark.spec("QU-1", "QU-2")
def test_after_a_break_what_was_wanted_before_it_does_not_decide() -> None:
    wire = Wire(Client("pat", ClientOptions(quenching=True)))
    wire.connect()
    assert wire.give(Publish(attributes={"x": 1})) == [InterestAsked(number=1)]
    assert wire.say(InterestKnown(number=1)) == []  # Nobody wants anything.
    wire.break_off()

    assert wire.connect() == [InterestAsked(number=2)]
    assert wire.give(Publish(attributes={"x": 2})) == []  # It waits for the answer.
    wanted = SubscriptionChange(added=(Route("1", X),))
    (events,) = wire.say(wanted, InterestKnown(number=2))

    assert isinstance(events, Events)
    assert [event.seq for event in events.events] == [2]


def test_events_that_waited_go_out_as_one_batch() -> None:
    run = Overlay(line(1), {"ann": "B1", "pat": "B1"}).subscribe("ann", "x > 0").settle()
    run.fault(Drop(a="pat", b="B1", us=100_000))
    for x in (1, 2, 3):
        run.publish("pat", x=x)

    run.settle()

    assert run.received("ann") == ["pat#1", "pat#2", "pat#3"]
    assert run.sent("Events", "pat → B1") == 1
    assert run.sent(Events.__name__, "B1 → ann") == 1
