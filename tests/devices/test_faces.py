"""Events and messages become each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.devices.faces import attributes_of, publish_of, value_of
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.mqtt.packets import Publish
from tests.scale import examples

pytestmark = pytest.mark.spec("LV-4", "LV-11")

NUMBERS = ("0", "-0", "00", "1", "1.0", "1.50", "1e3", "1E400", "-1", "NaN", "\u0663")
LONG_NUMBERS = ("9223372036854775807", "9223372036854775808")
NAMES = ("", "true", "True", "topic", "mqtt.qos", "mqtt.properties")
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
) | st.sampled_from((*NUMBERS, *LONG_NUMBERS, *NAMES))
MESSAGES = st.builds(
    Publish,
    topic=st.sampled_from(["a", "a/b", "/", "$x/y"]),
    payload=st.binary(max_size=5),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    payload_is_text=st.booleans(),
    message_expiry_s=st.none() | st.integers(0, 2**32 - 1),
    response_topic=st.none() | st.just("r/t"),
    correlation_data=st.none() | st.binary(max_size=5),
    content_type=st.none() | TEXTS,
    user_properties=st.lists(st.tuples(TEXTS, TEXTS), max_size=5).map(tuple),
)


def event_with(attributes: dict[str, Scalar], payload: bytes = b"") -> Event:
    return Event(publisher="p", seq=1, time_us=0, attributes=attributes, payload=payload)


@given(MESSAGES)
@examples(300)
def test_a_message_comes_out_as_it_went_in(message: Publish) -> None:
    """Whatever its user properties look like, and in their order."""
    event = event_with(attributes_of(message, message.topic), message.payload)

    assert publish_of(event) == message


@given(st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=5))
@examples(100)
def test_user_properties_can_be_filtered_by(properties: dict[str, str]) -> None:
    """Each is an attribute of its name, and a number is one."""
    message = Publish("a", user_properties=tuple(properties.items()))
    found = attributes_of(message, "a")
    for name, text in properties.items():
        if name != "topic" and not name.startswith("mqtt."):
            assert found[name] == value_of(text)
            quoted = name.replace('"', '""')
            if isinstance(found[name], int | float) and not isinstance(found[name], bool):
                assert Filter(f'"{quoted}" = {found[name]!r}').matches(found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("0", 0),
        ("-7", -7),
        ("01", "01"),
        ("+1", "+1"),
        ("1.", "1."),
        ("2.50", 2.5),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        ("NaN", "NaN"),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", float(2**63)),
        (" 1", " 1"),
        ("", ""),
    ],
)
def test_how_a_user_property_becomes_a_value(text: str, value: Scalar) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("attributes", "payload", "expected"),
    [
        ({"topic": "t"}, b"", {"payload": b""}),
        ({"topic": "t"}, b"x", {"payload": b"x"}),
        (
            {"topic": "t", "n": 1, "f": 0.5, "b": True, "s": "x"},
            b"",
            {
                "payload": b'{"n":1,"f":0.5,"b":true,"s":"x"}',
                "content_type": "application/json",
                "payload_is_text": True,
                "user_properties": (("n", "1"), ("f", "0.5"), ("b", "true"), ("s", "x")),
            },
        ),
        ({"topic": "t", "n": 1}, b"x", {"payload": b"x", "user_properties": (("n", "1"),)}),
    ],
)
def test_native_events_are_messages(
    attributes: dict[str, Scalar], payload: bytes, expected: dict[str, Any]
) -> None:
    assert publish_of(event_with(attributes, payload)) == Publish("t", qos=2, **expected)


@pytest.mark.parametrize("topic", [None, 1, "", "a/+", "#", "a\0", "x" * 70_000])
def test_events_without_a_topic_that_mqtt_has_are_none(topic: Any) -> None:
    attributes: dict[str, Scalar] = {"n": 1} if topic is None else {"topic": topic}
    assert publish_of(event_with(attributes)) is None


def test_what_mqtt_cannot_carry_is_left_out() -> None:
    """Native clients may write anything into these attributes."""
    attributes: dict[str, Scalar] = {
        "topic": "t",
        "mqtt.qos": 7,
        "mqtt.expiry_s": -1,
        "mqtt.correlation": "no hex",
        "mqtt.content_type": 5,
        "mqtt.response_topic": "a\0",
        "mqtt.properties": "{",
        "zero": "\0",
    }
    assert publish_of(event_with(attributes)) == Publish("t", qos=2)
