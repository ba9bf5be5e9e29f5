"""Messages to brokers by name that nobody knows (yet): they wait, but not any number of them."""

import pytest

from sterna.core.assembly import make_broker
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.transfer_messages import Discard, EventsFound, SubscriptionsAsked
from sterna.core.overlay import post as posting
from sterna.core.overlay.messages import Unicast
from sterna.core.overlay.post import Post
from sterna.core.settings import Settings
from sterna.wire.snapshots import encode_node, restore_node

SETTINGS = Settings(handover=HandoverOptions(protocol=Handover.STANDARD))


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Post:
    """The post of a broker that knows no other one."""
    monkeypatch.setattr(posting, "UNSENT_MAX", 3)
    return make_broker("B1", SETTINGS).post


def question(number: int) -> Unicast:
    return SubscriptionsAsked(to="B2", sender="B1", client="c", number=number, visit=1)


def answer(number: int) -> Unicast:
    return EventsFound(to="B2", sender="B1", client="c", number=number)


@pytest.mark.spec("PM-4")
def test_questions_are_dropped_before_what_is_sent_only_once(post: Post) -> None:
    """A broker that gets no answer asks again. Answers are not repeated, nor are discards."""
    discard = Discard(to="B2", sender="B1", client="c", visit=1)
    for message in (answer(1), question(2), discard, question(3)):
        post.send(message, 0)
    assert list(post.unsent) == [answer(1), discard, question(3)]

    post.send(answer(4), 0)
    assert list(post.unsent) == [answer(1), discard, answer(4)]

    post.send(question(5), 0)
    assert list(post.unsent) == [answer(1), discard, answer(4)]

    post.send(answer(6), 0)
    assert list(post.unsent) == [discard, answer(4), answer(6)]


@pytest.mark.spec("PM-4")
def test_messages_that_wait_keep_their_order_in_a_snapshot(post: Post) -> None:
    for message in (question(1), answer(2), question(3)):
        post.send(message, 0)

    restored = restore_node(encode_node(post.broker), make_broker("B1", SETTINGS)).post

    assert list(restored.unsent) == list(post.unsent) == [question(1), answer(2), question(3)]
    restored.send(answer(4), 0)
    assert list(restored.unsent) == [answer(2), question(3), answer(4)]
