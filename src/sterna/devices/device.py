"""A device at its broker: its session, the client that the broker hosts for it, and their link.

The link is like one over a connection, with the same frames. What the broker has sent over it and
the session cannot use yet is `in transit`: the broker counts it as not acknowledged, so it keeps
it for the client as it does for any other one that reads slowly.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from sterna.core.actions import Connect, Deliver, Disconnect, Reconnect, Transmit
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.depot import Depot
from sterna.core.frames import Ack, Data, Frame, Paged
from sterna.core.handover.messages import Overtaking, Replayed
from sterna.core.handover.roaming import Roaming
from sterna.core.inputs import (
    Advertise,
    Attach,
    Input,
    Leave,
    LinkDown,
    LinkUp,
    PublishMany,
    Received,
    Subscribe,
    Unsubscribe,
)
from sterna.core.messages import Events
from sterna.core.names import NEVER, Peer, Time
from sterna.core.terms.messages import Terms
from sterna.devices.faces import publish_of
from sterna.devices.filters import Wish
from sterna.devices.options import DeviceOptions
from sterna.devices.session import Publication, Session
from sterna.model.event import Event, EventId
from sterna.model.filters import Filter
from sterna.mqtt.packets import Publish

AT_ONCE = 16
"""So many messages with events are taken at once."""

BRINGING = (Events, Replayed, Overtaking)
"""The messages that bring events."""

ANYTHING = Filter("TRUE")


class Inside(Protocol):
    """What a device needs of the component that looks after it."""

    @property
    def broker(self) -> Broker:
        """The broker that hosts it."""
        ...

    def run(self, given: Input, now: Time) -> None:
        """Give the broker an input, as a part of the present turn."""
        ...

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for a retained message of a topic."""
        ...

    def retained(self, wish: Wish, now: Time) -> Sequence[Event]:
        """The retained messages that match a filter."""
        ...


class Device:
    """One device."""

    def __init__(self, inside: Inside, client: Client, options: DeviceOptions) -> None:
        self.name = client.id
        self.client = client
        self.session = Session(client.id, options, self)
        self.is_attached = False
        """Whether the link between the client and the broker is up."""
        self.will_at: Time = NEVER
        """When the will is published unless the device comes back."""
        self.ends_at: Time = NEVER
        """When the session expires unless the device comes back."""
        self.epoch = 0
        """Which of the places of this session this is; a greater number is a later one."""
        self._inside = inside
        self._transit: deque[Frame] = deque()
        self._frames: list[Frame] = []
        """What the client has sent."""
        self._reattaches = False
        self._published: dict[EventId, Publish | None] = {}

    # ---- The link

    def attach(self, now: Time) -> None:
        """Connect the client to the broker."""
        if self.is_attached:
            return
        broker, client = self._inside.broker, self.client
        if client.link != broker.id:
            self.give(Attach(broker=broker.id), now)
        earlier = broker.earlier(self.name, now)
        self.is_attached = True
        self._transit.clear()
        self._frames.clear()
        advertises = broker.settings.routing.by_advertisements
        self._inside.run(LinkUp(link=self.name, peer=Peer.CLIENT, advertises=advertises), now)
        self.give(LinkUp(link=broker.id, peer=Peer.BROKER, earlier=earlier), now)

    def detach(self, now: Time) -> None:
        """End the connection of the client: the broker keeps for it what comes."""
        if not self.is_attached:
            return
        self.is_attached = False
        self._transit.clear()
        self._frames.clear()
        broker = self._inside.broker
        self._inside.run(LinkDown(link=self.name), now)
        self.give(LinkDown(link=broker.id), now)

    def arrived(self, frame: Frame) -> None:
        """The broker has sent something to the client."""
        if not self.is_attached:
            return
        if type(frame) is Ack:  # It says nothing about what is before it.
            self._transit.appendleft(frame)
        else:
            self._transit.append(frame)

    def lost(self, now: Time) -> None:
        """The broker has ended the link."""
        if self.is_attached:
            self.is_attached = False
            self._transit.clear()
            self._frames.clear()
            self.give(LinkDown(link=self._inside.broker.id), now)

    def restore_transit(self, frames: Sequence[Frame]) -> None:
        """Go on with what the broker has sent and the client has not taken."""
        self._transit = deque(frames)

    def take_frames(self) -> tuple[Frame, ...]:
        """Take what the client has sent."""
        frames, self._frames = tuple(self._frames), []
        return frames

    def work(self, published: dict[EventId, Publish | None], now: Time) -> None:
        """Do what can be done now with what is in transit; `published` are events as messages."""
        self._published = published
        while True:
            frames = self._takeable()
            if not frames:
                break
            self.give(Received(link=self._inside.broker.id, frames=frames), now)
            self.session.flush(now)
        self.session.publish_waiting(now)
        self.session.flush(now)
        if self._reattaches:
            self._reattaches = False
            self.detach(now)
            self.attach(now)

    def _takeable(self) -> tuple[Frame, ...]:
        """The next frames, as far as the session can use them."""
        transit, found = self._transit, []
        wants_more = self.session.wants_more
        left = AT_ONCE
        while transit:
            frame = transit[0]
            if type(frame) is Paged:
                frame = self._from_page(frame)
            if type(frame) is Data and type(frame.message) in BRINGING:
                if not wants_more or not left:
                    break
                left -= 1
            transit.popleft()
            found.append(frame)
        return tuple(found)

    def _from_page(self, paged: Paged) -> Frame:
        """Put the first message of a page in front of the others; return it."""
        depot: Depot = self._inside.broker.depot
        stretch = paged.stretch
        frame = Data(paged.seq, 0, depot.message(stretch.page, stretch.place))
        self._transit.popleft()
        if stretch.count > 1:
            self._transit.appendleft(paged.without(1))
        self._transit.appendleft(frame)
        return frame

    # ---- The client

    def give(self, given: Input, now: Time) -> None:
        """Give the client an input, and do what it asks for."""
        here = self._inside.broker.id
        for action in self.client.handle(given, now).actions:
            if type(action) is Transmit:
                if action.link == here and self.is_attached:
                    self._frames.append(action.frame)
            elif type(action) is Deliver:
                self._deliver(action, now)
            elif type(action) is Reconnect:
                self._reattaches = True
            elif type(action) is Disconnect:
                if action.link == here and self.has_left:
                    self.detach(now)
            elif type(action) is Connect and self.is_attached:
                self._reattaches = True  # It has left, and comes back as a new one.

    def _deliver(self, action: Deliver, now: Time) -> None:
        published, session = self._published, self.session
        for event, names in zip(action.events, action.subscriptions, strict=True):
            id_ = event.id
            if id_ not in published:
                published[id_] = publish_of(event)
            session.deliver(event, published[id_], names, now)

    def leave(self, now: Time) -> None:
        """Have the broker forget the client."""
        self.session.is_over = True
        self.give(Leave(), now)

    def renew(self, options: DeviceOptions, now: Time) -> None:
        """Begin another session with the same client, also if that was about to leave."""
        if self.client.is_leaving:
            self.give(Attach(broker=self._inside.broker.id), now)
        else:
            self.session.end_subscriptions(now)
        roaming = self.client.part(Roaming.name)
        if isinstance(roaming, Roaming):
            roaming.seen.clear()  # The new session has seen nothing.
        self.session = Session(self.name, options, self)

    @property
    def has_left(self) -> bool:
        """Whether the client has left, and the broker knows."""
        return self.session.is_over and not self.client.is_leaving

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

    def subscribe(self, name: str, wish: Wish, now: Time) -> None:
        """Subscribe."""
        past_us = wish.past_us
        subscribe = Subscribe(
            subscription=name,
            filter=wish.filter,
            past_events_max=wish.past_events_max,
            past_since_us=None if past_us is None else max(0, now - past_us),
            terms=Terms(keep=wish.keep),
        )
        self.give(subscribe, now)

    def unsubscribe(self, name: str, now: Time) -> None:
        """End a subscription."""
        self.give(Unsubscribe(subscription=name), now)

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for a retained message of a topic."""
        return self._inside.may_retain(topic)

    def retained(self, wish: Wish, now: Time) -> Sequence[Event]:
        """The retained messages that match a filter."""
        return self._inside.retained(wish, now)
