"""A border broker, alone: it does not confuse a client with what the same name was before."""

import pytest

from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.handover.messages import Arrival, Resubscribe
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.relocation import Relocation
from sterna.core.handover.trails import Trail
from sterna.core.messages import Route
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

    told = Arrival(visit=4, born=1, stay=2, received=4)

    assert relocation.guests.not_received(broker, "ann", told, unconfirmed) == unconfirmed


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


def with_relocation() -> tuple[Broker, Relocation]:
    settings = Settings(handover=HandoverOptions(protocol=Handover.RELOCATION))
    broker = make_broker("B1", settings)
    relocation = broker.part(Relocation.name)
    assert isinstance(relocation, Relocation)
    return broker, relocation
