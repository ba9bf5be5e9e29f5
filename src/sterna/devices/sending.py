"""The messages that devices get for events, as the settings want them."""

from collections.abc import Sequence
from typing import NamedTuple

from sterna.core.names import Time
from sterna.devices.faces import TOPIC, publish_of
from sterna.devices.frames import Deliveries
from sterna.devices.kept import Outgoing, Subscribed
from sterna.devices.options import DeviceOptions
from sterna.devices.outbound import delivery_of
from sterna.devices.retained import until as expiry
from sterna.devices.templates import topic_by
from sterna.model.event import Event
from sterna.mqtt.packets import Publish


def message_of(event: Event, options: DeviceOptions) -> Publish | None:
    """The message for an event; None if it has no topic by which MQTT could name it."""
    attributes = event.attributes
    topic = None if TOPIC in attributes else topic_by(options.topic, attributes)
    return publish_of(event, topic=topic, face=options.payload)


class Message(NamedTuple):
    """An event, and what devices get for it."""

    event: Event
    publish: Publish | None
    until: Time
    """When it expires."""
    has_topic: bool
    """Whether the event itself has one."""


class Together(NamedTuple):
    """What each of several devices gets for the same events."""

    outgoing: list[Outgoing]
    at_once: Deliveries | None
    """In the form in which it is sent, if no device has to acknowledge any of it."""


class Messages:
    """The events of a turn as messages: each is made once, for all devices that get it."""

    def __init__(self) -> None:
        self._known: dict[int, Message] = {}
        """By the identity of the event, which is kept with it."""
        self._together: dict[tuple[object, ...], Together] = {}

    def of(self, event: Event, options: DeviceOptions) -> Message:
        """An event as a message."""
        found = self._known.get(id(event))
        if found is None:
            publish, has_topic = message_of(event, options), TOPIC in event.attributes
            found = self._known[id(event)] = Message(event, publish, expiry(event), has_topic)
        return found

    def together(
        self, events: Sequence[Event], wanted: Subscribed, options: DeviceOptions, now: Time
    ) -> Together | None:
        """What a subscription gets for events that all have a topic; else None."""
        traits = (wanted.qos, wanted.retain_as_published, wanted.identifier)
        key = (traits, *map(id, events))
        found = self._together.get(key)
        if found is None:
            messages = [self.of(event, options) for event in events]
            if not all(message.has_topic for message in messages):
                return None
            identifiers = () if wanted.identifier is None else (wanted.identifier,)
            outgoing = [
                Outgoing(
                    publish=publish,
                    qos=min(wanted.qos, publish.qos),
                    retain=wanted.retain_as_published and publish.retain,
                    identifiers=identifiers,
                    until=until,
                )
                for _, publish, until, _ in messages
                if publish is not None and until > now
            ]
            deliveries = None
            if all(each.qos == 0 for each in outgoing):
                each = tuple([delivery_of(message, 0, now) for message in outgoing])
                deliveries = Deliveries(each)
            found = self._together[key] = Together(outgoing, deliveries)
        return found

    def clear(self) -> None:
        """The turn is over."""
        self._known.clear()
        self._together.clear()
