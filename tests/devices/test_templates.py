"""Events without a topic reach devices by a template for topics."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sterna.core.inputs import Configured
from sterna.devices.filters import Wish
from sterna.devices.frames import Delivery
from sterna.devices.options import DeviceOptions, Face
from sterna.devices.sending import Messages, message_of
from sterna.devices.templates import topic_by, where, why_no_template
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.model.filters.patterns import topic_test
from sterna.mqtt.packets import Publish
from sterna.net.config import BrokerConfig
from sterna.net.nodes import settings_of
from tests.devices.test_faces import event_with
from tests.devices.world import Phone, World
from tests.scale import examples

pytestmark = pytest.mark.spec("LV-4", "LV-11")

TEXTS = ("a", "it's", "1", "01", "2.0", "2.5", "true", "True", "$x", "a/b", "+", "", "nan")
NUMBERS = (1, 2, -1, 2.0, 2.5, -0.0, 1e-7, 1e300, 2.0**60, 2**60, 2**63 - 1, float(2**63))
VALUES = st.sampled_from((*TEXTS, *NUMBERS, True, False, float("nan"))) | st.integers(0, 2)
LEVELS = st.sampled_from(("+", "v", "w", "", *TEXTS[:9], "1e-07", "1152921504606846976", "-1"))
TEMPLATES = ("v/{id}", "{id}", "{id}/v/{n}", "v/{id}/{n}", "{id}/{id}", "/{odd \"one'}")


@given(
    st.sampled_from(TEMPLATES),
    st.lists(LEVELS, min_size=1, max_size=4),
    st.booleans(),
    st.dictionaries(st.sampled_from(["id", "n", "odd \"one'"]), VALUES),
)
@examples(500)
def test_an_event_comes_if_its_topic_matches(
    template: str, levels: list[str], is_open: bool, attributes: dict[str, Scalar]
) -> None:
    """What is subscribed to at other brokers agrees with the topic that the event has in the end.

    Only an attribute that no topic can hold makes an event come that is not sent on.
    """
    topics = "/".join([*levels, *(["#"] if is_open else [])])
    assume(topics)
    topic = topic_by(template, attributes)
    is_wanted = Wish(topics, template=template).filter.matches(attributes)

    if topic is not None:
        assert is_wanted == topic_test(topics)(topic)
    elif is_wanted:
        unfit = ("/", "+", "$")
        assert any(
            not str(v) or str(v).startswith("$") or any(u in str(v) for u in unfit)
            for v in attributes.values()
        )


@pytest.mark.parametrize(
    ("template", "topics", "attributes", "expected"),
    [
        ("v/{id}", "v/+", {"id": 7}, True),
        ("v/{id}", "v/7", {"id": 7}, True),
        ("v/{id}", "v/7", {"id": "7"}, True),
        ("v/{id}", "v/8", {"id": 7}, False),
        ("v/{id}", "v/+", {}, False),
        ("v/{id}", "#", {"id": 7}, True),
        ("v/{id}", "v/#", {"id": 7}, True),
        ("v/{id}", "v/+/#", {"id": 7}, True),
        ("v/{id}", "w/#", {"id": 7}, False),
        ("v/{id}", "v", {"id": 7}, False),
        ("v/{id}", "v/7", {"id": 7, "topic": "other"}, False),
        ("v/{id}", "other", {"id": 7, "topic": "other"}, True),
    ],
)
def test_what_a_topic_filter_wants(
    template: str, topics: str, attributes: dict[str, Scalar], *, expected: bool
) -> None:
    assert Wish(topics, template=template).filter.matches(attributes) is expected


def test_other_events_are_not_carried() -> None:
    """A filter whose topics no template can make is the same as without one."""
    assert where("v/{id}", "w/#") is None
    assert Wish("w/#", template="v/{id}").filter == Filter("topic MATCHES 'w/#'")


@pytest.mark.parametrize(
    ("attributes", "payload", "options", "expected"),
    [
        ({"id": 7}, b"", {"topic": "v/{id}"}, ("v/7", b'{"id":7}')),
        ({"id": 7}, b"x", {"topic": "v/{id}"}, ("v/7", b"x")),
        ({"id": 7}, b"x", {"topic": "v/{id}", "payload": Face.JSON}, ("v/7", b'{"id":7}')),
        ({"topic": "t", "n": 1}, b"x", {"payload": Face.JSON}, ("t", b'{"n":1}')),
        ({"topic": "t"}, b"x", {"payload": Face.JSON}, ("t", b"{}")),
        ({"topic": "t", "mqtt.qos": 1}, b"x", {"payload": Face.JSON}, ("t", b"x")),
        ({"n": 7}, b"x", {"topic": "v/{id}"}, None),
        ({"id": "a/b"}, b"x", {"topic": "v/{id}"}, None),
        ({"id": 7}, b"x", {}, None),
        ({"topic": 5, "id": 7}, b"x", {"topic": "v/{id}"}, None),
    ],
)
def test_the_message_for_a_native_event(
    attributes: dict[str, Scalar], payload: bytes, options: dict[str, Any], expected: Any
) -> None:
    found = message_of(event_with(attributes, payload), DeviceOptions(**options))
    if expected is None:
        assert found is None
    else:
        assert isinstance(found, Publish)
        assert (found.topic, found.payload, found.qos) == (*expected, attributes.get("mqtt.qos", 2))


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("v/{id}", None),
        ("{a}/b/{c d}", None),
        ("v", "no placeholder"),
        ("v-{id}", "no placeholder"),
        ("{id}/x{y}", "stands alone"),
        ("{id}/+", "which no topic has"),
        ("{topic}", "only events with a topic"),
        ("{mqtt.qos}", "only events with a topic"),
        ("$v/{id}", "of brokers"),
    ],
)
def test_templates(template: str, problem: str | None) -> None:
    found = why_no_template(template)
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_after_a_change_of_the_template() -> None:
    """What was subscribed to by another one gets no topics that it did not ask for."""
    world = World(1, mqtt={"topic": "v/{id}"})
    ann = Phone(world, "ann").connect("b1").subscribe("v/+")
    world.run()
    event = event_with({"id": 7}, b"seven")
    session = world.devices_at("b1").devices["mqtt:ann"].session

    def come() -> list[str]:
        session.deliver([event], [["1"]], Messages(), world.now)
        session.flush(world.now)
        return [each.publish.topic for each in session.outbox if isinstance(each, Delivery)]

    assert come() == ["v/7"]
    config = {"name": "b1", "mqtt": {"topic": "w/{id}"}}
    settings = settings_of(BrokerConfig.from_mapping(config))
    world.brokers["b1"].handle(Configured(settings=settings), world.now)
    session.outbox.clear()
    assert come() == []
    ann.subscribe("v/+", "w/+")
    world.run()
    device = world.devices_at("b1").devices["mqtt:ann"]
    wanted = [str(each) for each in device.client.subscriptions.values()]
    assert len(wanted) == 2
    assert ["IS NOT NULL" in each for each in wanted] == [False, True]
