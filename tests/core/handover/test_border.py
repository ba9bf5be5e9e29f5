"""A border broker, alone: it does not confuse a client with what the same name was before."""

import pytest

from sterna.core.actions import Transmit
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.handover.guests import events_in
from sterna.core.handover.messages import Arrival, Located, Request, Resubscribe, Welcome
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.relocation import Relocation
from sterna.core.handover.trails import Trail
from sterna.core.inputs import LinkUp, Received
from sterna.core.link import Data, Resume
from sterna.core.lives import SESSIONS_MAX
from sterna.core.messages import Route
from sterna.core.names import Peer
from sterna.core.settings import Settings
from sterna.model.event import Event
from sterna.model.filters import Filter

pytestmark = pytest.mark.spec("PM-4")


def test_a_count_of_another_stay_means_nothing_for_this_one() -> None:
    """Of four events that were sent, three are not confirmed: all three are lost."""
    broker, relocation = with_relocation()
    broker.router.subscriptions.add("ann", "1", Route("1", Filter("TRUE")))
    guest = relocation.guests.admit("ann", visit=3, born=1)
    guest.stay, guest.sent = 3, 4
    unconfirmed = [Event(publisher="pat", seq=seq, time_us=0) for seq in (2, 3, 4)]

    lost = relocation.guests.not_received(broker, "ann", 2, 4, unconfirmed)
    assert lost == unconfirmed


@pytest.mark.parametrize("born", [3, 7], ids=["an earlier life", "a later life"])
def test_a_request_does_not_turn_the_trail_of_another_life(born: int) -> None:
    _, relocation = with_relocation()
    relocation.trails.lay("ann", "B2", 5)

    relocation.on_resubscribe(
        Resubscribe(
            client="ann", number=1, born=born, stay=born, received=0, filters=(), path=("B3",)
        ),
        *("B3", 0),
    )

    assert relocation.trails["ann"] == Trail("B2", 5)


def test_a_guest_that_waits_for_its_earlier_life_asks_again_for_the_later_one() -> None:
    """Nobody answers for the earlier one any more, so it would wait for ever."""
    broker, relocation = waiting_for_ann()

    located = Data(1, 0, Located(client="ann", born=5))

    assert requests(broker, Received(link="B2", frames=(located,))) == [5]
    assert relocation.guests["ann"].born == 5


def test_a_client_that_was_born_anew_elsewhere_does_not_wait_for_its_earlier_life() -> None:
    """It arrives here before the news of its birth does."""
    broker, relocation = waiting_for_ann()
    relocation.trails.lay("ann", "B2", 10)

    anew = Arrival(visit=12, born=10, stay=11, received=0)

    assert requests(broker, Received(link="ann", frames=(Data(2, 0, anew),))) == [10]
    assert relocation.guests["ann"].born == 10


@pytest.mark.parametrize(
    ("visit", "replayed"),
    [(6, [1]), (SESSIONS_MAX + 1, [])],
    ids=["the same life", "an earlier life"],
)
def test_who_does_not_know_of_a_birth_gets_what_was_kept_since_if_it_was_its_own(
    visit: int, replayed: list[int]
) -> None:
    """The `Welcome` may be lost; one that has met a later life counts its visits above that."""
    broker, relocation = with_relocation()
    hello = Resume(incarnation=1, partner=None, acknowledged=0, answers=True)
    broker.handle(LinkUp(link="ann", peer=Peer.CLIENT), 0)
    broker.handle(Received(link="ann", frames=(hello,)), 0)
    relocation.trails.lay("ann", None, 5)
    guest = relocation.guests.admit("ann", visit=5, born=5, is_here=False)
    guest.cache.keep(Event(publisher="pat", seq=1, time_us=0), ("1",), 0)

    arrival = Arrival(visit=visit, born=1, stay=4, received=0)
    turn = broker.handle(Received(link="ann", frames=(Data(1, 0, arrival),)), 1)

    frames = [each.frame for each in turn.actions if isinstance(each, Transmit)]
    sent = [frame.message for frame in frames if isinstance(frame, Data)]
    assert [event.seq for event in events_in(sent)] == replayed
    assert any(isinstance(message, Welcome) for message in sent)


def waiting_for_ann() -> tuple[Broker, Relocation]:
    """A broker that has asked its neighbour for what ann left there, born on her first visit."""
    broker, relocation = with_relocation()
    hello = Resume(incarnation=1, partner=None, acknowledged=0, answers=True)
    for link, peer in (("B2", Peer.BROKER), ("ann", Peer.CLIENT)):
        broker.handle(LinkUp(link=link, peer=peer), 0)
        broker.handle(Received(link=link, frames=(hello,)), 0)
    relocation.trails.lay("ann", "B2", 1)
    arrival = Arrival(visit=9, born=1, stay=8, received=0)
    assert requests(broker, Received(link="ann", frames=(Data(1, 0, arrival),))) == [1]
    return broker, relocation


def requests(broker: Broker, given: Received) -> list[int]:
    """For which lives of a client a broker asks its neighbour because of an input."""
    frames = [each.frame for each in broker.handle(given, 1).actions if isinstance(each, Transmit)]
    messages = [frame.message for frame in frames if isinstance(frame, Data)]
    return [message.born for message in messages if isinstance(message, Request)]


def with_relocation() -> tuple[Broker, Relocation]:
    settings = Settings(handover=HandoverOptions(protocol=Handover.RELOCATION))
    broker = make_broker("B1", settings)
    relocation = broker.part(Relocation.name)
    assert isinstance(relocation, Relocation)
    return broker, relocation
