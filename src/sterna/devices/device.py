"""A device at its broker: its session, and the client that the broker hosts for it."""

from collections.abc import Sequence

from sterna.core.client import Client
from sterna.core.handover.roaming import Roaming
from sterna.core.inputs import Advertise, Attach, Confirm, MoveTo, PublishMany, Unsubscribe
from sterna.core.names import NEVER, LocalProtocolError, NodeId, Time
from sterna.devices.filters import Wish
from sterna.devices.hosted import Hosted, Inside
from sterna.devices.kept import Share
from sterna.devices.locating import LOCATION, place_in
from sterna.devices.options import DeviceOptions
from sterna.devices.port import Publication
from sterna.devices.session import Session
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.model.location import LocationError
from sterna.mqtt.packets import Publish

ANYTHING = Filter("TRUE")


class Device(Hosted):
    """One device."""

    def __init__(self, inside: Inside, client: Client, options: DeviceOptions) -> None:
        super().__init__(inside, client)
        self.session = Session(client.id, options, self)
        self.will_at: Time = NEVER
        """When the will is published unless the device comes back."""
        self.ends_at: Time = NEVER
        """When the session expires unless the device comes back."""

    @property
    def machine(self) -> Session:
        return self.session

    def leave(self, now: Time) -> None:
        self.session.subscriptions.end_sharing()
        super().leave(now)

    def renew(self, options: DeviceOptions, now: Time) -> None:
        """Begin another session with the same client, also if that was about to leave."""
        if self.client.is_leaving:
            self.give(Attach(broker=self._inside.broker.id), now)
        else:
            self.session.subscriptions.end_all(now)
        roaming = self.client.part(Roaming.name)
        if isinstance(roaming, Roaming):
            roaming.seen.clear()  # The new session has seen nothing.
        self.begin_record(now)
        self.session = Session(self.name, options, self)

    # ---- What the session wants of the client

    @property
    def may_publish(self) -> bool:
        """Whether events go out at once."""
        return self.is_attached and self.client.may_publish

    def publish(self, events: Sequence[Publication], now: Time) -> None:
        """Publish events."""
        if self.client.options.advertisements and not self.client.advertisements:
            self.give(Advertise(advertisement="mqtt", filter=ANYTHING), now)
        self.give(PublishMany(events=tuple(events)), now)

    def unsubscribe(self, name: str, now: Time) -> None:
        """End a subscription."""
        self.give(Unsubscribe(subscription=name), now)

    def confirm(self, name: str, now: Time) -> None:
        """Ask whether all brokers know a subscription: the session is told when they do."""
        self.give(Confirm(subscription=name), now)

    def join(self, group: NodeId, wish: Wish, *, is_active: bool) -> None:
        """Be a member of a group, connected or not."""
        self._inside.sharing.join(self.name, group, wish, is_active=is_active)

    def leave_group(self, group: NodeId) -> None:
        """Be no member any more."""
        self._inside.sharing.leave(self.name, group)

    def ended(self, share: Share, *, is_done: bool) -> None:
        """Be done with a message of a group, or give it back."""
        self._inside.sharing.ended(*share, is_done=is_done)

    def move(self, message: Publish, now: Time) -> str:
        """Be where a message tells that the device is; why it is refused, if it is."""
        places = self._inside.broker.settings.places
        space = None if places is None else places.space()
        try:
            location = place_in(message.topic, message.payload, space)
            if location is not None:
                self.give(MoveTo(location=location), now)
        except (LocationError, LocalProtocolError) as error:
            self.ignored("place")
            return str(error) if message.topic == LOCATION else ""
        return ""

    def ignored(self, what: str) -> None:
        """Count something in a message that is not used; the device gets no error."""
        self._inside.ignored[what] += 1

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for a retained message of a topic."""
        return self._inside.may_retain(topic)

    def retained(self, wish: Wish, now: Time) -> Sequence[Event]:
        """The retained messages that match a filter."""
        filter_ = wish.filter
        if filter_.uses_myloc:
            filter_ = self.client.wants.whereabouts.context.exact_or_anywhere(filter_)
        return self._inside.retained(wish.topics, filter_, now)
