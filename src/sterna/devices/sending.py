"""The message that devices get for an event, as the settings want it."""

from sterna.devices.faces import TOPIC, publish_of
from sterna.devices.options import DeviceOptions
from sterna.devices.templates import topic_by
from sterna.model.event import Event
from sterna.mqtt.packets import Publish


def message_of(event: Event, options: DeviceOptions) -> Publish | None:
    """The message for an event; None if it has no topic by which MQTT could name it."""
    attributes = event.attributes
    topic = None if TOPIC in attributes else topic_by(options.topic, attributes)
    return publish_of(event, topic=topic, face=options.payload)
