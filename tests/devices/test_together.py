"""Several events at once reach devices as they do one after the other."""

import random
from typing import Any

import pytest

from sterna.mqtt.packets import Publish, Subscribe, SubscriptionRequest, UserProperties
from tests.devices.world import Phone, World
from tests.scale import seeds

TOPICS = ("a", "a/b", "a/c", "d")
FILTERS = ("a", "a/#", "a/+", "#", "d", "+/b")
DEVICES = 8
NOBODY_WANTS_ANY = 28
"""With this seed, nobody has subscribed to what is published."""

Came = list[tuple[object, ...]]


def subscription(rng: random.Random, number: int) -> Subscribe:
    request = SubscriptionRequest(
        rng.choice(FILTERS),
        rng.randrange(3),
        no_local=rng.random() < 0.2,
        retain_as_published=rng.random() < 0.5,
    )
    identifier = rng.choice((None, 1, 2))
    where: UserProperties = (("where", "n < 3"),) if rng.random() < 0.2 else ()
    return Subscribe(number, (request,), subscription_identifier=identifier, user_properties=where)


def message(rng: random.Random, number: int) -> Publish:
    qos = rng.randrange(3)
    return Publish(
        rng.choice(TOPICS),
        b"x" * rng.choice((1, 1, 60)) + str(number).encode(),
        qos,
        rng.random() < 0.2,
        packet_id=number if qos else 0,
        message_expiry_s=rng.choice((None, None, 0, 100)),
        user_properties=(("n", str(rng.randrange(5))),),
    )


def came(seed: int, *, together: bool) -> list[Came]:
    """What each device got of the messages of one of them."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret.
    world = World(1)
    phones = []
    for number in range(DEVICES):
        more: dict[str, Any] = {"maximum_packet_size": 50} if rng.random() < 0.2 else {}
        more |= {"receive_maximum": 3} if rng.random() < 0.2 else {}
        phone = Phone(world, f"phone-{number}").connect("b1", **more)
        phones.append(phone)
        for packet_id in range(1, rng.choice((2, 2, 3))):
            phone.say(subscription(rng, packet_id))
    world.run()
    messages = [message(rng, number) for number in range(1, rng.randrange(2, 9))]
    for phone in phones:
        phone.messages.clear()
    if together:
        phones[0].say(*messages)
    else:
        for each in messages:
            phones[0].say(each)
    world.run()
    return [
        [
            (d.publish.topic, d.publish.payload, d.publish.message_expiry_s, d.qos, d.retain,
             sorted(d.identifiers))
            for d in phone.messages
        ]
        for phone in phones
    ]  # fmt: skip


@pytest.mark.spec("LV-4")
@pytest.mark.parametrize("seed", seeds(40))
def test_events_that_come_at_once_are_sent_as_if_they_came_one_after_the_other(seed: int) -> None:
    one_by_one, together = came(seed, together=False), came(seed, together=True)

    assert together == one_by_one
    assert any(one_by_one) or seed == NOBODY_WANTS_ANY


@pytest.mark.spec("LV-4")
def test_they_are_made_once_for_all_that_get_the_same() -> None:
    world = World(1)
    phones = [Phone(world, f"phone-{number}").connect("b1") for number in range(3)]
    for phone in phones:
        phone.subscribe("x", qos=0)
    world.run()

    phones[0].say(*(Publish("x", b"%d" % number) for number in range(5)))
    world.run()

    first, *others = [phone.messages for phone in phones]
    assert [each.publish.payload for each in first] == [b"0", b"1", b"2", b"3", b"4"]
    for other in others:
        assert all(a is b for a, b in zip(first, other, strict=True))
