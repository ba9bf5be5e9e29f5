"""What a broker knows of the terms of its clients, and what it costs."""

import pytest

from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.inputs import LinkUp, Received
from sterna.core.link import Data, Resume
from sterna.core.names import Peer
from sterna.core.settings import Settings
from sterna.core.terms.agreements import Agreements
from sterna.core.terms.messages import DEFAULT, TERMS, Order, Terms, TermsChange
from tests.scale import soon

pytestmark = pytest.mark.spec("RE-2", "RE-3")

SOON = Terms(order=Order.AVAILABLE)
LAST = Terms(keep="last_per(sensor)")


class Told:
    """A broker with a client, and what the broker knows of the client's terms."""

    def __init__(self) -> None:
        self.broker: Broker = make_broker("B1", Settings(protocols=(TERMS,)))
        self.broker.handle(LinkUp(link="ann", peer=Peer.CLIENT), 1)
        self.broker.handle(Received(link="ann", frames=(Resume(7, None, 0, True),)), 2)
        self._seq = 0

    def tell(self, *changes: TermsChange) -> dict[str, Terms]:
        for change in changes:
            self._seq += 1
            frames = (Data(self._seq, 0, change),)
            self.broker.handle(Received(link="ann", frames=frames), 2 + self._seq)
        agreements = self.broker.part(TERMS)
        assert isinstance(agreements, Agreements)
        policies = agreements.policies_of("ann")
        assert {id_: each.text for id_, each in policies.items()} == {
            id_: each.keep for id_, each in agreements.of("ann").items() if each.keep
        }
        return dict(agreements.of("ann"))


def test_terms_change_one_by_one_or_all_at_once() -> None:
    told = Told()

    assert told.tell(TermsChange(added=(("a", SOON), ("b", LAST)))) == {"a": SOON, "b": LAST}
    assert told.tell(TermsChange(added=(("a", LAST),))) == {"a": LAST, "b": LAST}
    assert told.tell(TermsChange(added=(("a", DEFAULT),))) == {"b": LAST}
    assert told.tell(TermsChange(added=(("c", SOON),), removed=("b", "?"))) == {"c": SOON}
    assert told.tell(TermsChange(added=(("d", SOON),), anew=True)) == {"d": SOON}
    assert told.tell(TermsChange(removed=("d",))) == {}
    assert told.tell(TermsChange(anew=True), TermsChange(removed=("d",))) == {}


def test_a_subscription_more_does_not_cost_what_all_before_have() -> None:
    told = Told()
    changes = [TermsChange(added=((f"{number}", SOON),)) for number in range(100_000)]

    with soon(5):
        known = told.tell(*changes)

    assert len(known) == len(changes)
