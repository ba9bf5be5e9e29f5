"""When a client states the terms of its subscriptions."""

import pytest

from sterna.core.assembly import make_client
from sterna.core.client import Client
from sterna.core.inputs import Attach, Input, LinkDown, LinkUp, Received, Subscribe, Unsubscribe
from sterna.core.link import Ack, Data, Resume
from sterna.core.messages import Message, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.settings import Settings
from sterna.core.terms.messages import TERMS, Terms, TermsChange
from sterna.model.filters import Filter

pytestmark = pytest.mark.spec("RE-3")

LAST = Terms(keep="last_per(sensor)")
SUBSCRIBE = Subscribe(subscription="a", filter=Filter("TRUE"), terms=LAST)


class Talk:
    """A client, and what it sends to its broker."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.client: Client = make_client("ann", settings or Settings(protocols=(TERMS,)))
        self.time = 0
        self.taken = 0
        self.give(Attach(broker="B1"))

    def give(self, *inputs: Input) -> list[Message]:
        """What it sends when it is given these."""
        said = []
        for given in inputs:
            self.time += 1
            frames = [
                each.frame
                for each in self.client.handle(given, self.time).actions
                if hasattr(each, "frame")
            ]
            data = [frame for frame in frames if isinstance(frame, Data)]
            said += [frame.message for frame in data]
            if data:
                self.taken = data[-1].seq
                acks = (Ack(acknowledged=self.taken),)
                self.client.handle(Received(link="B1", frames=acks), self.time)
        return said

    def connect(self, *features: str, partner: int | None = None) -> list[Message]:
        """What it sends when a broker with these features is connected."""
        up = LinkUp(link="B1", peer=Peer.BROKER, features=features)
        resume = Resume(incarnation=7, partner=partner, acknowledged=self.taken, answers=True)
        return self.give(up, Received(link="B1", frames=(resume,)))


def test_terms_go_before_the_subscription() -> None:
    talk = Talk()
    talk.connect(TERMS)
    terms, subscription = talk.give(SUBSCRIBE)
    assert terms == TermsChange(added=(("ann/a", LAST),))
    assert isinstance(subscription, SubscriptionChange)


def test_terms_go_before_the_subscriptions_of_a_client_that_introduces_itself() -> None:
    talk = Talk()
    talk.give(SUBSCRIBE)
    terms, subscription = talk.connect(TERMS)
    assert terms == TermsChange(added=(("ann/a", LAST),), anew=True)
    assert isinstance(subscription, SubscriptionChange)


def test_what_has_no_terms_of_its_own_is_not_mentioned() -> None:
    talk = Talk()
    talk.connect(TERMS)
    said = talk.give(Subscribe(subscription="b", filter=Filter("TRUE")))
    said += talk.give(Unsubscribe(subscription="b"))
    assert [type(each) for each in said] == [SubscriptionChange, SubscriptionChange]


def test_a_subscription_that_ends_has_no_terms() -> None:
    talk = Talk()
    talk.connect(TERMS)
    talk.give(SUBSCRIBE)
    said = talk.give(Unsubscribe(subscription="a"))
    assert TermsChange(removed=("ann/a",)) in said


def test_a_broker_of_an_older_release_is_not_told() -> None:
    """It would refuse the client."""
    talk = Talk()
    said = talk.connect("confirming")
    said += talk.give(SUBSCRIBE)
    assert [type(each) for each in said] == [SubscriptionChange]


def test_a_broker_of_a_later_release_than_before_is_told_all() -> None:
    talk = Talk()
    talk.connect("confirming")
    talk.give(SUBSCRIBE, LinkDown(link="B1"))
    said = talk.connect(TERMS, partner=0)
    assert said == [TermsChange(added=(("ann/a", LAST),), anew=True)]
    talk.give(LinkDown(link="B1"))
    assert talk.connect(TERMS, partner=0) == []
