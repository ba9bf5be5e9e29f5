"""A client inside its broker, and the link between the two.

The link is like one over a connection, with the same frames. What the broker has sent over it and
whoever the client works for cannot use yet is `in transit`: the broker counts it as not
acknowledged, so it keeps it for the client as it does for any other one that reads slowly.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sterna.core.actions import Connect, Deliver, Disconnect, Reconnect, Transmit
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.depot import Depot
from sterna.core.facts import Fact, RecordBegun, Restarted
from sterna.core.frames import Ack, Data, Frame, Paged
from sterna.core.handover.messages import Overtaking, Replayed
from sterna.core.inputs import (
    Attach,
    Input,
    Leave,
    LinkDown,
    LinkUp,
    Received,
    Subscribe,
)
from sterna.core.messages import Events
from sterna.core.names import LocalProtocolError, Peer, Time
from sterna.core.sizes import Load
from sterna.core.terms.messages import Terms
from sterna.devices.filters import Wish
from sterna.devices.locating import LOCATION
from sterna.devices.options import DeviceOptions
from sterna.devices.sending import Messages
from sterna.devices.testimony import Testimony
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.mqtt.packets import MqttError, ReasonCode

if TYPE_CHECKING:
    from sterna.devices.sharing import Sharing

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

    @property
    def ignored(self) -> Counter[str]:
        """How often something in a message was not used, by what it was."""
        ...

    @property
    def messages(self) -> Messages:
        """The events of this turn as messages."""
        ...

    @property
    def sharing(self) -> "Sharing":
        """What it does for members of shared subscriptions."""
        ...

    @property
    def testimony(self) -> Testimony:
        """Takes what happens at the clients."""
        ...

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for a retained message of a topic."""
        ...

    def retained(self, topics: str, filter_: Filter, now: Time) -> Sequence[Event]:
        """The retained messages of the topics of a topic filter that match a filter."""
        ...


class Machine(Protocol):
    """What a client inside the broker works for: the session of a device, or a group."""

    options: DeviceOptions
    is_over: bool
    closes: bool

    @property
    def wants_more(self) -> bool:
        """Whether it takes more events; else they wait where they are."""
        ...

    @property
    def load(self) -> Load:
        """How much it holds."""
        ...

    def deliver(
        self,
        events: Sequence[Event],
        subscriptions: Sequence[Sequence[str]],
        messages: Messages,
        now: Time,
    ) -> None:
        """Events have come, each for subscriptions."""
        ...

    def known(self, subscription: str, now: Time) -> None:
        """All brokers know a subscription about which the client has asked."""
        ...

    def flush(self, now: Time) -> None:
        """Send what can be sent now."""
        ...


class Hosted(ABC):
    """A client inside the broker, and what it works for."""

    def __init__(self, inside: Inside, client: Client) -> None:
        self.name = client.id
        self.client = client
        self.is_attached = False
        """Whether the link between the client and the broker is up."""
        self.time: Time = 0
        """When anything was stated of it last, here or elsewhere."""
        self._inside = inside
        self._transit: deque[Frame] = deque()
        self._frames: list[Frame] = []
        """What the client has sent."""
        self._reattaches = False

    @property
    @abstractmethod
    def machine(self) -> Machine:
        """What the client works for."""

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

    def work(self, now: Time) -> None:
        """Do what can be done now with what is in transit."""
        while True:
            frames = self._takeable()
            if not frames:
                break
            self.give(Received(link=self._inside.broker.id, frames=frames), now)
            self.machine.flush(now)
        self.machine.flush(now)
        if self._reattaches:
            self._reattaches = False
            self.detach(now)
            self.attach(now)

    def _takeable(self) -> tuple[Frame, ...]:
        """The next frames, as far as the session can use them."""
        transit, found = self._transit, []
        wants_more = self.machine.wants_more
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
        turn = self.client.handle(given, now)
        for action in turn.actions:
            if type(action) is Transmit:
                if action.link == here and self.is_attached:
                    self._frames.append(action.frame)
            elif type(action) is Deliver:
                messages = self._inside.messages
                self.machine.deliver(action.events, action.subscriptions, messages, now)
            elif type(action) is Reconnect:
                self._reattaches = True
            elif type(action) is Disconnect:
                if action.link == here and self.has_left:
                    self.detach(now)
            elif type(action) is Connect and self.is_attached:
                self._reattaches = True  # It has left, and comes back as a new one.
        if turn.facts:
            self._state(turn.facts, now)
            for fact in turn.facts:
                if type(fact) is SubscriptionKnown:
                    self.machine.known(fact.subscription, now)

    def _state(self, facts: Sequence[Fact], now: Time) -> None:
        """Have facts at the client stated, all with a time behind those before."""
        self.time = max(now, self.time + 1)
        self._inside.testimony.add(facts, self.time)

    def begin_record(self, now: Time) -> None:
        """A life begins, or nothing was stated of it so far: state that, and what is in force."""
        begun = RecordBegun(at=self.name, time=now)
        self._state((begun, *self.client.in_force(now)), now)

    def restarted(self, now: Time) -> None:
        """The broker was down, and its client with it."""
        self._state((Restarted(at=self.name, time=now),), now)
        self.lost(now)

    def leave(self, now: Time) -> None:
        """Have the broker forget the client."""
        self.machine.is_over = True
        self.give(Leave(), now)

    @property
    def has_left(self) -> bool:
        """Whether the client has left, and the broker knows."""
        return self.machine.is_over and not self.client.is_leaving

    def subscribe(self, name: str, wish: Wish, now: Time) -> None:
        """Subscribe; MqttError if that is not possible here and now."""
        past_us = wish.past_us
        subscribe = Subscribe(
            subscription=name,
            filter=wish.filter,
            past_events_max=wish.past_events_max,
            past_since_us=None if past_us is None else max(0, now - past_us),
            terms=Terms(keep=wish.keep),
        )
        if wish.filter.uses_myloc:
            self._check(wish.filter)
        self.give(subscribe, now)

    def _check(self, filter_: Filter) -> None:
        """See to it that a filter means something where the client is."""
        try:
            context = self.client.wants.whereabouts.context
            if context.location is None:
                raise LocalProtocolError(f"publish where you are to {LOCATION} first")
            context.exact(filter_)
        except LocalProtocolError as error:
            raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, str(error)) from None
