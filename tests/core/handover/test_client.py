"""A client that goes from broker to broker, alone: what it asks its driver for, what it says."""

import pytest

from sterna.core.actions import Action, Connect, Disconnect, Transmit
from sterna.core.client import Client
from sterna.core.handover.messages import BEFORE_MAX, Arrival, Farewell, Welcome
from sterna.core.handover.roaming import Roaming
from sterna.core.inputs import (
    Advertise,
    Attach,
    Detach,
    Leave,
    LinkGone,
    LinkUp,
    Publish,
    Received,
    Subscribe,
    Unadvertise,
)
from sterna.core.link import Ack, Data, Resume
from sterna.core.messages import AdvertisementChange, Events, Message
from sterna.core.names import LocalProtocolError, Peer
from sterna.core.settings import ClientOptions
from sterna.model.filters import Filter


class Driver:
    """Connects a client to brokers that answer just enough."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._incarnation = 0
        self._seq: dict[str, int] = {}

    def connect(self, broker: str, *, anew: bool = True) -> list[Message]:
        """The connection is up; return what the client sends on it."""
        self._incarnation += anew
        self._seq.setdefault(broker, 0)
        if anew:
            self._seq[broker] = 0
        actions = self.client.handle(LinkUp(link=broker, peer=Peer.BROKER), 0).actions
        (resume,) = [each.frame for each in actions if isinstance(each, Transmit)]
        assert isinstance(resume, Resume)
        answer = Resume(self._incarnation, resume.incarnation, 0, answers=True)
        return said(self.client.handle(Received(link=broker, frames=(answer,)), 0).actions)

    def hear(self, broker: str, message: Message, acknowledged: int = 0) -> list[Message]:
        """The broker says something; what the client says then."""
        self._seq[broker] += 1
        frame = Data(self._seq[broker], acknowledged, message)
        return said(self.client.handle(Received(link=broker, frames=(frame,)), 0).actions)


def said(actions: list[Action]) -> list[Message]:
    frames = [each.frame for each in actions if isinstance(each, Transmit)]
    return [frame.message for frame in frames if isinstance(frame, Data)]


def roaming() -> tuple[Client, Driver]:
    client = Client("C", ClientOptions(), [Roaming()])
    client.handle(Attach(broker="B1"), 0)
    return client, Driver(client)


def test_attaching_elsewhere_ends_the_old_connection() -> None:
    client = Client("C")
    assert client.handle(Attach(broker="B1"), 0).actions == [Connect("B1")]
    assert client.handle(Attach(broker="B2"), 0).actions == [Disconnect("B1"), Connect("B2")]
    assert client.handle(Detach(), 0).actions == [Disconnect("B2")]
    assert client.handle(Attach(broker="B2"), 0).actions == [Connect("B2")]


def test_who_is_nowhere_cannot_detach() -> None:
    with pytest.raises(LocalProtocolError, match="attach it first"):
        Client("C").handle(Detach(), 0)


def test_a_connection_that_nobody_asked_for_any_more_is_ignored() -> None:
    client = Client("C")
    client.handle(Attach(broker="B1"), 0)
    client.handle(Attach(broker="B2"), 0)

    assert client.handle(LinkUp(link="B1", peer=Peer.BROKER), 0).actions == []
    assert client.link == "B2"


@pytest.mark.spec("PM-3")
def test_a_new_client_says_nothing_but_that_it_is_there() -> None:
    """Else a broker that it leaves at once would keep something that nobody fetches."""
    client, driver = roaming()
    client.handle(Subscribe(subscription="1", filter=Filter("a = 1")), 0)
    assert driver.connect("B1") == [Arrival(visit=1, born=0, stay=0, received=0, numbered=0)]


@pytest.mark.spec("PM-2")
def test_it_says_how_many_events_it_has() -> None:
    client, driver = roaming()
    driver.connect("B1")
    driver.hear("B1", Welcome(published=0))
    client.handle(Subscribe(subscription="1", filter=Filter("a = 1")), 0)
    publisher = Client("P")
    publisher.handle(Publish(attributes={"a": 1}), 0)
    stated = publisher.handle(Publish(attributes={"a": 1}), 0).facts
    driver.hear("B1", Events(events=stated[0].events))  # type: ignore[attr-defined]

    client.handle(Attach(broker="B2"), 0)
    (arrival,) = driver.connect("B2")

    assert isinstance(arrival, Arrival)
    assert (arrival.visit, arrival.born, arrival.stay, arrival.received) == (2, 1, 1, 1)
    assert [route.id for route in arrival.subscriptions] == ["C/1"]


@pytest.mark.spec("PM-4")
def test_what_may_not_have_arrived_is_said_again_after_the_welcome() -> None:
    """An event, and the end of the advertisement under which it was published, in this order."""
    client, driver = roaming()
    driver.connect("B1")
    driver.hear("B1", Welcome(published=0))
    client.handle(Advertise(advertisement="1", filter=Filter("a = 1")), 0)
    for _ in range(2):
        client.handle(Publish(attributes={"a": 1}), 0)
    client.handle(Unadvertise(advertisement="1"), 0)

    client.handle(Attach(broker="B2"), 0)
    (arrival,) = driver.connect("B2")
    assert isinstance(arrival, Arrival)
    before = driver.hear("B2", Welcome(published=1))  # The old broker had the first one.

    assert [route.id for route in arrival.advertisements] == []
    assert [type(message) for message in before] == [
        AdvertisementChange,
        Events,
        AdvertisementChange,
    ]
    assert isinstance(before[1], Events)
    assert [event.seq for event in before[1].events] == [2]


@pytest.mark.spec("LV-6")
def test_it_leaves_when_its_broker_has_heard_the_farewell() -> None:
    client, driver = roaming()
    driver.connect("B1")
    driver.hear("B1", Welcome(published=0, born=1))
    client.handle(Subscribe(subscription="1", filter=Filter("a = 1")), 0)
    *_, farewell = said(client.handle(Leave(), 0).actions)
    assert farewell == Farewell()
    assert client.subscriptions == {}

    actions = client.handle(Received(link="B1", frames=(Ack(3),)), 0).actions
    assert [each for each in actions if isinstance(each, Disconnect)] == []
    actions = client.handle(Received(link="B1", frames=(Ack(4),)), 0).actions
    assert actions == [Disconnect("B1")]
    assert client.link is None


@pytest.mark.spec("LV-6")
def test_a_farewell_is_said_anew_to_a_broker_that_has_forgotten_it() -> None:
    client, driver = roaming()
    driver.connect("B1")
    driver.hear("B1", Welcome(published=0, born=1))
    client.handle(Leave(), 0)
    client.handle(LinkGone(link="B1"), 0)
    client.handle(Received(link="B1", frames=(Ack(2),)), 0)  # Too late: nobody is meant.

    client.handle(Attach(broker="B2"), 0)
    assert [type(message) for message in driver.connect("B2")] == [Arrival, Farewell]


@pytest.mark.spec("LV-6")
def test_after_it_has_left_it_is_a_new_client() -> None:
    client, driver = roaming()
    driver.connect("B1")
    driver.hear("B1", Welcome(published=0, born=1))
    client.handle(Leave(), 0)
    client.handle(Received(link="B1", frames=(Ack(2),)), 0)

    client.handle(Attach(broker="B2"), 0)
    assert driver.connect("B2") == [Arrival(visit=2, born=0, stay=1, received=0, numbered=0)]


@pytest.mark.spec("LV-6")
def test_it_goes_on_with_the_number_that_its_broker_gave_it() -> None:
    """It had been forgotten, and was born anew."""
    client, driver = roaming()
    driver.connect("B1")
    driver.hear("B1", Welcome(published=0, born=1))
    client.handle(Attach(broker="B2"), 0)
    driver.connect("B2")
    driver.hear("B2", Welcome(published=0, born=2))
    client.handle(Attach(broker="B3"), 0)
    (arrival,) = driver.connect("B3")
    assert isinstance(arrival, Arrival)
    assert (arrival.visit, arrival.born, arrival.stay) == (3, 2, 2)


@pytest.mark.spec("PM-4", "DO-1")
def test_a_client_names_the_latest_brokers_and_the_one_that_welcomed_it() -> None:
    """What was kept for it is with the latter, or has come through the former."""
    client, driver = roaming()
    driver.connect("B1")
    driver.hear("B1", Welcome(published=0))
    for number in range(2, 100):
        client.handle(Attach(broker=f"B{number}"), 0)
        driver.connect(f"B{number}")

    client.handle(Attach(broker="B100"), 0)
    (arrival,) = driver.connect("B100")

    assert isinstance(arrival, Arrival)
    assert len(arrival.before) == BEFORE_MAX
    assert arrival.before[:3] == ("B99", "B98", "B97")
    assert arrival.before[-2:] == ("B69", "B1")
