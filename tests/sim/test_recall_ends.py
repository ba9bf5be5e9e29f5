"""The settings remove the protocol for the past while somebody waits for the past."""

import pytest

from sterna.core.facts import Recalled, Repeated
from sterna.core.history.messages import Past
from sterna.core.inputs import ArchiveChanged, Configured, Received, Subscribe
from sterna.core.link import Data
from sterna.core.messages import Events
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.script import Do, Reconfigure
from sterna.sim.topology import line
from tests.sim.overlay import Overlay

pytestmark = pytest.mark.spec("LV-2")


def network(*, has_archive: bool) -> Overlay:
    """A broker whose archive never answers, if it has one, and two clients."""
    overlay = Overlay(line(1), {"ann": "B1", "pat": "B1"}, protocols=("past",))
    overlay.broker("B1").handle(ArchiveChanged(is_there=has_archive), 0)
    return overlay.publish("pat", x=1).settle()


def subscribe(overlay: Overlay) -> Overlay:
    what = Subscribe(subscription="1", filter=Filter("x > 0"), past_events_max=5)
    overlay.simulation.do(Do(client="ann", what=what))
    return overlay


def remove(overlay: Overlay, *, tells: bool) -> Overlay:
    return overlay.fault(Reconfigure(broker="B1", settings=Settings(), tells=tells))  # type: ignore[arg-type]


def test_what_waits_for_the_past_is_delivered() -> None:
    overlay = subscribe(network(has_archive=True)).wait(10_000)
    overlay.publish("pat", x=2).wait(10_000)
    assert overlay.received("ann") == []
    remove(overlay, tells=True).publish("pat", x=3).settle()
    assert overlay.received("ann") == ["pat#2", "pat#3"]
    assert overlay.outcome().findings == []


def test_a_subscription_whose_request_was_ignored_goes_on() -> None:
    """The request would have subscribed, and was on its way when the broker took it no more."""
    overlay = remove(subscribe(network(has_archive=False)), tells=True).settle()
    overlay.publish("pat", x=2).settle()
    assert overlay.received("ann") == ["pat#2"]
    assert overlay.outcome().findings == []


def test_a_broker_answers_with_what_it_has_itself() -> None:
    overlay = subscribe(network(has_archive=True)).wait(10_000)
    remove(overlay, tells=False).settle()
    (recalled,) = overlay.facts_of(Recalled)
    assert isinstance(recalled, Recalled)
    assert [event.seq for event in recalled.events] == [1]


def test_nothing_comes_twice_that_the_past_had() -> None:
    """A broker where the client has been may have kept some of it; the next event ends that."""
    client = subscribe(network(has_archive=False)).settle().client("ann")
    link = client._sessions["B1"]
    before, after = (
        Event(publisher="pat", seq=seq, time_us=0, attributes={"x": seq}) for seq in (1, 2)
    )
    client.handle(Configured(settings=Settings()), 0)
    assert client.part("past") is not None
    seq = link._expected
    again = client.handle(Received(link="B1", frames=(Data(seq, 0, Events(events=(before,))),)), 0)
    assert [type(fact) for fact in again.facts] == [Repeated]
    client.handle(Received(link="B1", frames=(Data(seq + 1, 0, Events(events=(after,))),)), 0)
    assert client.part("past") is None


def test_an_answer_that_comes_later_is_ignored() -> None:
    overlay = subscribe(network(has_archive=True)).wait(10_000)
    client = overlay.client("ann")
    client.handle(Configured(settings=Settings()), 0)
    seq = client._sessions["B1"]._expected
    event = Event(publisher="pat", seq=1, time_us=0, attributes={"x": 1})
    late = Past(subscription="ann/1", number=1, events=(event,))
    turn = client.handle(Received(link="B1", frames=(Data(seq, 0, late),)), 0)
    assert turn.facts == []
