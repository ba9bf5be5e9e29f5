"""What is in the payload of a message becomes attributes, and the message stays as it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.inputs import Configured
from sterna.devices.faces import PROPERTIES, attributes_of, publish_of
from sterna.devices.lifting import lift
from sterna.devices.options import Lift
from sterna.model.event import Scalar
from sterna.mqtt.packets import Publish, Will
from sterna.net.config import BrokerConfig
from sterna.net.nodes import settings_of
from tests.devices.test_faces import MESSAGES, event_with
from tests.devices.world import Phone, World
from tests.scale import examples

pytestmark = pytest.mark.spec("LV-4", "LV-11")

SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NAMES = st.text(max_size=4) | st.sampled_from(["topic", "mqtt.qos", "mqtt.x", "n"])
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5).map(lambda each: json.dumps(each).encode())


def lifted(payload: bytes, *rules: Lift, **more: Any) -> dict[str, Scalar]:
    """What is lifted from a payload, without the rest."""
    message = Publish("t", payload, **more)
    before = attributes_of(message, "t")
    found = dict(before)
    lift(found, message, rules or (Lift(topics="#"),))
    return {name: found[name] for name in found if name not in before and name != PROPERTIES}


@given(MESSAGES, OBJECTS | st.binary(max_size=8), st.integers(1, 3))
@examples(300)
def test_a_lifted_message_comes_out_as_it_went_in(
    message: Publish, payload: bytes, depth: int
) -> None:
    """With its payload and its own user properties, and no others."""
    message = Publish(
        "a", payload, message.qos, retain=message.retain, user_properties=message.user_properties
    )
    found = attributes_of(message, "a")
    before = dict(found)
    lift(found, message, (Lift(topics="#", depth_max=depth),))

    assert publish_of(event_with(found, payload)) == message
    assert {name: found[name] for name in before} == before


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=4),
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(-1e9, 1e9),
        min_size=1,
        max_size=5,
    )
)
@examples(200)
def test_a_native_event_comes_back_with_its_attributes(attributes: dict[str, Scalar]) -> None:
    """It goes out as JSON, and a device publishes the same payload."""
    attributes = {"topic": "t", **attributes} | {"topic": "t"}
    publish = publish_of(event_with(attributes))
    assert publish is not None
    back = {"topic": "t", **lifted(publish.payload)}

    assert back == {n: v for n, v in attributes.items() if not n.startswith("mqtt.")}
    assert {n: type(v) for n, v in back.items()} == {n: type(attributes[n]) for n in back}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"n": 1, "f": 1.0, "b": true, "s": "1"}', {"n": 1, "f": 1.0, "b": True, "s": "1"}),
        (b'{"n": 9223372036854775808}', {"n": float(2**63)}),
        (b'{"n": 1' + b"0" * 400 + b"}", {}),
        (b'{"a": null, "b": [1], "c": {"d": 1}, "": 2}', {}),
        (b'{"topic": "x", "mqtt.retain": true, "n": 1}', {"n": 1}),
        (b"[1]", {}),
        (b"1", {}),
        (b'{"n": 1', {}),
        (b'{"n": "\xff"}', {}),
        (b"[" * 10_000, {}),
        (b'{"n": 1, "a": ' + b"[" * 63 + b"]" * 63 + b"}", {"n": 1}),
        (b'{"n": 1, "a": ' + b"[" * 64 + b"]" * 64 + b"}", {}),
        (b'{"n": 1, "a": "\\"' + b"[" * 64 + b'"}', {"n": 1, "a": '"' + "[" * 64}),
        (b'{"n": 1, "a": "' + b"]" * 64 + b'", "b": ' + b"[" * 99 + b"]" * 99 + b"}", {}),
        (b'{"n": 1, "a": [' + b"{}," * 99 + b"{}]}", {"n": 1}),
        (b'{"n": 1, "a": 1' + b"0" * 5000 + b"}", {}),
        (b"", {}),
    ],
)
def test_what_is_lifted(payload: bytes, expected: dict[str, Scalar]) -> None:
    found = lifted(payload)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(each) for each in expected.values()]


def test_limits() -> None:
    payload = b'{"at": {"lat": 1, "x": {"y": 2}}, "n": 3}'
    assert lifted(payload) == {"n": 3}
    assert lifted(payload, Lift(topics="#", depth_max=2)) == {"at.lat": 1, "n": 3}
    assert lifted(payload, Lift(topics="#", depth_max=3)) == {"at.lat": 1, "at.x.y": 2, "n": 3}
    assert lifted(payload, Lift(topics="#", bytes_max=len(payload))) == {"n": 3}
    assert lifted(payload, Lift(topics="#", bytes_max=len(payload) - 1)) == {}
    assert lifted(payload, Lift(topics="#", depth_max=2, attributes_max=2)) != {}
    assert lifted(payload, Lift(topics="#", depth_max=2, attributes_max=1)) == {}


def test_the_first_rule_that_fits_the_topic_holds() -> None:
    """And a user property holds against the payload."""
    assert lifted(b'{"n": 1}', Lift(topics="other/#")) == {}
    rules = Lift(topics="t", bytes_max=3), Lift(topics="#")
    assert lifted(b'{"n": 1}', *rules) == {}
    assert lifted(b'{"n": 1, "m": 2}', user_properties=(("n", "5"),)) == {"m": 2}


def test_devices_filter_by_what_is_in_payloads() -> None:
    """Also those at other brokers; and what cannot be lifted comes as it is, and is counted."""
    world = World(2, mqtt={"lift": [{"topics": "cars/#"}]})
    ann = Phone(world, "ann").connect("b2").subscribe("$where(price < 3)/cars/+", "all/#")
    bob = Phone(world, "bob").connect("b1")
    world.run()
    for payload in ('{"price": 2.5}', '{"price": 3}', '{"price": 1'):
        bob.publish("cars/x", payload)
        bob.publish("all/x", payload)
    world.run()

    assert ann.received == ['{"price": 2.5}', '{"price": 2.5}', '{"price": 3}', '{"price": 1']
    assert bob.is_done
    assert world.devices_at("b1").ignored == {"payload": 1}


def test_a_reload_changes_what_is_lifted() -> None:
    world = World(1)
    ann = Phone(world, "ann").connect("b1").subscribe("$where(n = 1)/t")
    bob = Phone(world, "bob").connect("b1")
    world.run()
    bob.publish("t", '{"n": 1, "s": "not yet"}')
    world.run()
    config = {"name": "b1", "mqtt": {"lift": [{"topics": "#"}]}}
    settings = settings_of(BrokerConfig.from_mapping(config))
    world.brokers["b1"].handle(Configured(settings=settings), world.now)
    bob.publish("t", '{"n": 1, "s": "now"}')
    world.run()

    assert ann.received == ['{"n": 1, "s": "now"}']


def test_a_will_is_lifted() -> None:
    world = World(1, mqtt={"lift": [{"topics": "#"}]})
    ann = Phone(world, "ann").connect("b1").subscribe("$where(gone)/t")
    bob = Phone(world, "bob").connect("b1", will=Will("t", b'{"gone": true}'))
    world.run()
    bob.lose()
    world.run()

    assert ann.received == ['{"gone": true}']
