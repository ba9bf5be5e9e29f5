"""What a message costs does not depend on how many questions about subscriptions are open."""

from collections.abc import Iterable

import pytest

from sterna.core.assembly import make_broker, make_client
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.confirming.echoes import Echoes
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.confirming.messages import (
    CONFIRMING,
    Confirmation,
    ConfirmationAsked,
    EchoAsked,
    EchoDropped,
)
from sterna.core.facts import Fact
from sterna.core.inputs import (
    Attach,
    Confirm,
    LinkGone,
    LinkUp,
    Received,
    Subscribe,
)
from sterna.core.link import Data, Resume
from sterna.core.location.messages import MovingChange, MovingRoute
from sterna.core.location.options import PlacesOptions
from sterna.core.messages import Message, Route, SubscriptionChange
from sterna.core.names import LinkId, Peer
from sterna.core.node import Node
from sterna.core.settings import Settings
from sterna.model.filters import Filter
from tests.scale import soon

pytestmark = pytest.mark.spec("LV-2", "LV-6")

MANY = 10_000
SETTINGS = Settings(
    protocols=(CONFIRMING,), places=PlacesOptions(edges=(("r0", "r1"), ("r1", "r2")))
)
FILTER = Filter("x = 1")
NAMES = [f"ann/{number}" for number in range(MANY)]


def connect(node: Node, link: LinkId, peer: Peer) -> None:
    node.handle(LinkUp(link=link, peer=peer), 0)
    node.handle(Received(link=link, frames=(Resume(7, None, 0, True),)), 0)


def broker_between(neighbour: LinkId, client: LinkId) -> Broker:
    """A broker with a neighbour that never answers, and a client."""
    broker = make_broker("B1", SETTINGS)
    connect(broker, neighbour, Peer.BROKER)
    connect(broker, client, Peer.CLIENT)
    return broker


def say(node: Node, link: LinkId, messages: Iterable[Message]) -> None:
    """Everything that comes over a link, from its first message on."""
    for seq, message in enumerate(messages, 1):
        node.handle(Received(link=link, frames=(Data(seq, 0, message),)), 0)


def part(broker: Broker) -> Echoes:
    found = broker.part(CONFIRMING)
    assert isinstance(found, Echoes)
    return found


def asking_about(names: Iterable[str]) -> list[Message]:
    """A client subscribes, and asks about each of its subscriptions twice."""
    said: list[Message] = [SubscriptionChange(added=tuple(Route(name, FILTER) for name in names))]
    said += [ConfirmationAsked(subscription=name, number=n) for n, name in enumerate(names)]
    said += [ConfirmationAsked(subscription=name, number=MANY + n) for n, name in enumerate(names)]
    return said


def test_a_broker_takes_a_question_among_many() -> None:
    broker = broker_between("B2", "ann")
    with soon(10):
        say(broker, "ann", asking_about(NAMES))
    assert [each.subscription for each in part(broker)._questions.values()] == NAMES
    sent = [type(message) for message in broker.unconfirmed("B2")]
    assert (sent.count(EchoAsked), sent.count(EchoDropped)) == (2 * MANY, MANY)


def test_a_neighbour_withdraws_one_among_many() -> None:
    broker = broker_between("B2", "ann")
    connect(broker, "B3", Peer.BROKER)
    said: list[Message] = [EchoAsked(number=n, filter=FILTER) for n in range(MANY)]
    said += [EchoDropped(number=n) for n in reversed(range(MANY))]
    with soon(10):
        say(broker, "B3", said)
    assert not part(broker)._questions
    assert not part(broker)._askers
    assert not part(broker)._concerned


def test_clients_that_others_do_not_wait_for_come_and_go_at_no_cost() -> None:
    broker = broker_between("B2", "ann")
    say(broker, "ann", asking_about(NAMES))
    with soon(5):
        for number in range(500):
            connect(broker, f"bob{number}", Peer.CLIENT)
            broker.handle(LinkGone(link=f"bob{number}"), 0)
    connect(broker, "cid", Peer.CLIENT)
    with soon(5):
        for _ in range(5 * MANY):
            part(broker).link_down("cid", 0)
    assert len(part(broker)._questions) == MANY


def asking_client() -> Client:
    """A client that has asked its broker about many subscriptions."""
    client = make_client("ann", SETTINGS)
    client.handle(Attach(broker="B1"), 0)
    connect(client, "B1", Peer.BROKER)
    for number in range(MANY):
        client.handle(Subscribe(subscription=str(number), filter=FILTER), 0)
        client.handle(Confirm(subscription=str(number)), 0)
    return client


def test_a_client_that_waits_for_many_answers_asks_again() -> None:
    """And about one more, which is asked at once."""
    client = asking_client()
    with soon(5):
        for number in range(10 * MANY):
            client.handle(Confirm(subscription=str(number % MANY)), 0)
        client.handle(Subscribe(subscription="more", filter=FILTER), 0)
        client.handle(Confirm(subscription="more"), 0)
    asked = [m for m in client.unconfirmed("B1") if isinstance(m, ConfirmationAsked)]
    assert [message.number for message in asked] == list(range(1, MANY + 2))


def test_a_client_gets_one_answer_among_many() -> None:
    client = asking_client()
    known: list[Fact] = []
    late = [Confirmation(number=MANY + number) for number in range(1, 3 * MANY + 1)]
    right = [Confirmation(number=number) for number in range(1, MANY + 1)]
    with soon(5):
        for seq, answer in enumerate((*late, *right), 1):
            known += client.handle(Received(link="B1", frames=(Data(seq, 0, answer),)), 0).facts
    assert len([fact for fact in known if isinstance(fact, SubscriptionKnown)]) == MANY


def test_questions_about_moving_subscriptions_that_ended_are_bounded() -> None:
    """No message says that these have ended, other than the one that the places handle."""
    broker = broker_between("B2", "ann")
    said: list[Message] = []
    for number in range(100):
        route = MovingRoute(
            id=f"ann/{number}",
            filter=Filter("room IN myloc"),
            at="r0",
            dwell_us=None,
            delay_us=None,
        )
        said += [
            MovingChange(added=(route,)),
            ConfirmationAsked(subscription=route.id, number=number),
            MovingChange(removed=(route.id,)),
        ]
    say(broker, "ann", said[:-1])
    subscriptions = [each.subscription for each in part(broker)._questions.values()]
    assert subscriptions[-1] == "ann/99"
    assert len(subscriptions) <= 3
