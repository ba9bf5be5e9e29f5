"""A client: what the papers call the local broker, between an application and its border broker."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from sterna.core import facts, inputs
from sterna.core.actions import Connect, Disconnect
from sterna.core.arrangement import PartsOf
from sterna.core.component import Component
from sterna.core.facts import Fact
from sterna.core.handover.messages import Farewell, Replayed
from sterna.core.hooks import ClientHooks, find
from sterna.core.keeping import Part, Reader, Record, Writer
from sterna.core.link import LinkTiming
from sterna.core.messages import (
    AdvertisementChange,
    InterestKnown,
    Message,
    Route,
    SubscriptionChange,
)
from sterna.core.names import LinkId, LocalProtocolError, NodeId, RouteId, Time
from sterna.core.node import Node
from sterna.core.publishing import KeptPublishing, Publishing
from sterna.core.settings import ClientOptions, Settings
from sterna.core.subscribing import Subscribing
from sterna.model.event import Event
from sterna.model.filters import Filter

CLIENT = "client"
"""The name under which a snapshot holds what every client keeps."""


class Leaving(Enum):
    """How far a client is with leaving for good."""

    STAYING = "staying"
    LEAVING = "leaving"
    """The application wants to be forgotten, and the broker does not know yet."""
    FAREWELL_SENT = "farewell sent"


class KeptClient(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of every client."""

    subscriptions: dict[str, Filter]
    publishing: KeptPublishing
    link: LinkId | None
    is_introduced: bool
    leaving: Leaving
    comes_back: bool


KEPT_CLIENT = Record(1, KeptClient)


class Client(Node):
    """Publishes and subscribes for one application, over a link to one broker."""

    def __init__(
        self,
        id_: NodeId,
        options: ClientOptions | None = None,
        components: Sequence[Component] = (),
        *,
        settings: Settings | None = None,
        parts: PartsOf | None = None,
        timing: LinkTiming | None = None,
        incarnation: int = 0,
        seq: int = 0,
    ) -> None:
        """`seq` is the number of the last event that the client published in an earlier life."""
        self.wants = Subscribing(self)
        self.offers = Publishing(self, options or ClientOptions(), seq)
        super().__init__(
            id_, components, settings=settings, parts=parts, timing=timing, incarnation=incarnation
        )
        self.link: LinkId | None = None
        """The broker that the client works through, or wants to."""
        self.is_introduced = False
        """Whether that broker knows the client's subscriptions and advertisements."""
        self._leaving = Leaving.STAYING
        self._comes_back = False
        """Whether the client comes back as a new client after it has left."""
        self._handlers |= {
            inputs.Subscribe: self.wants.subscribe,
            inputs.Unsubscribe: self.wants.unsubscribe,
            inputs.Confirm: self.wants.confirm,
            inputs.Advertise: self.offers.advertise,
            inputs.Unadvertise: self.offers.unadvertise,
            inputs.Publish: self.offers.publish,
            inputs.PublishMany: self.offers.publish_many,
            inputs.Leave: self._leave,
            inputs.Attach: self._attach,
            inputs.Detach: self._detach,
            inputs.MoveTo: self.wants.move,
            inputs.SetVariable: self.wants.set_variable,
            inputs.Heard: self._heard,
        }

    def _assemble(self) -> None:
        super()._assemble()
        self._on_message.setdefault(SubscriptionChange, self.on_subscription_change)
        self._on_message.setdefault(InterestKnown, self.on_interest_known)
        self._on_message.setdefault(Replayed, self.on_replayed)
        self.hooks = find(ClientHooks, self.components)

    # ---- Subscriptions and advertisements

    @property
    def options(self) -> ClientOptions:
        """The options that the client works with."""
        return self.offers.options

    @property
    def subscriptions(self) -> dict[str, Filter]:
        """The filters of the client's subscriptions, by name."""
        return self.wants.filters

    @property
    def advertisements(self) -> dict[str, Filter]:
        """The filters of the client's advertisements, by name."""
        return self.offers.advertisements

    @property
    def published(self) -> int:
        """The number of the last event that the client has published."""
        return self.offers.seq

    @property
    def accepted(self) -> int:
        """The number up to which the broker has all of the client's events."""
        return self.offers.accepted

    @property
    def is_welcome(self) -> bool:
        """Whether the broker accepts the client's events, and delivers to it."""
        return self.link in self.up and all(may() for may in self.hooks.may_publish)

    @property
    def may_publish(self) -> bool:
        """Whether the broker accepts events, and knows the client's advertisements."""
        return self.is_introduced and self.is_welcome

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way, no event waits that could be sent, and no farewell."""
        waits = self.offers.waits or self._leaving is not Leaving.STAYING
        return super().is_settled and not (self.link in self.up and waits)

    def in_force(self, now: Time) -> list[Fact]:
        """The subscriptions and advertisements, as facts of now: a journal may begin with them."""
        offers = (
            facts.Advertised(at=self.id, time=now, advertisement=name, filter=filter_)
            for name, filter_ in self.advertisements.items()
        )
        return [*self.wants.in_force(now), *offers]

    def route(self, name: str) -> RouteId:
        """The name under which the broker knows a subscription or an advertisement."""
        return f"{self.id}/{name}"

    def tell(self, message: Message, now: Time) -> None:
        """Send a message to the broker if it knows the client; else the introduction covers it."""
        if self.is_introduced and self.link is not None:
            self.send(self.link, message, now)

    def flush(self, now: Time) -> None:
        """Send everything that waited, if it can be sent now."""
        self.offers.flush(now)
        self._send_farewell(now)

    def unsubscribed(self, name: str, now: Time) -> None:
        """The application has ended a subscription."""
        for unsubscribed in self.hooks.unsubscribed:
            unsubscribed(name, now)

    # ---- From the broker

    def events_arrived(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        for arriving in self.hooks.events_arriving:
            events = arriving(events, link, now)
        self.wants.take(events, now)

    def on_subscription_change(
        self, message: SubscriptionChange, _link: LinkId, _now: Time
    ) -> None:
        """The broker announces what others want."""
        self.offers.interest_changed(message)

    def on_interest_known(self, message: InterestKnown, _link: LinkId, now: Time) -> None:
        """The broker has announced everything that is wanted."""
        self.offers.interest_known(message, now)
        self._send_farewell(now)

    def on_replayed(self, message: Replayed, _link: LinkId, now: Time) -> None:
        """The broker has kept something since before the settings said that clients do not move."""
        if message.events:
            self.wants.take(message.events, now, kept_for=message.moving)
        if message.missed:
            self.state(facts.Missed(at=self.id, time=now, events=message.missed))

    # ---- Links

    def _attach(self, given: inputs.Attach, now: Time) -> None:
        self._comes_back = self._leaving is not Leaving.STAYING
        if self.link is not None and self.link != given.broker:
            self.act(Disconnect(self.link))
            self.forget(self.link, now)
        self.link = given.broker
        self.act(Connect(given.broker))

    def come_to(self, broker: NodeId, now: Time) -> None:
        """Work through a broker from now on, as if the application had asked for it."""
        self._attach(inputs.Attach(broker=broker), now)

    def _heard(self, given: inputs.Heard, now: Time) -> None:
        self.message_arrived(given.message, given.sender, now)

    def _detach(self, _given: inputs.Detach, _now: Time) -> None:
        self._comes_back = False
        self.act(Disconnect(self._broker()))

    def _broker(self) -> LinkId:
        if self.link is None:
            raise LocalProtocolError(f"{self.id} is attached to no broker; attach it first")
        return self.link

    def _link_up(self, given: inputs.LinkUp, now: Time) -> None:
        if self.link is None:
            self.link = given.link
        if self.link == given.link:  # Else it has attached elsewhere since.
            super()._link_up(given, now)

    def link_new(self, link: LinkId, now: Time) -> None:
        """The broker knows nothing of this client: introduce it."""
        self._unknown()
        self.offers.link_new()
        self._introduce_itself(now)
        super().link_new(link, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        if not self.is_introduced:  # The component that would have done it may be gone.
            self._introduce_itself(now)
        super().link_up(link, now)
        self.offers.link_up(now)
        self._send_farewell(now)

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        self.offers.take_back(unconfirmed)
        super().link_reset(link, unconfirmed, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        if self.link == link:
            self.link = None
            self._unknown()
            self.offers.take_back(unconfirmed)
        super().link_gone(link, unconfirmed, now)

    def _unknown(self) -> None:
        """No broker knows this client, nor that it wants to leave."""
        self.is_introduced = False
        if self._leaving is Leaving.FAREWELL_SENT:
            self._leaving = Leaving.LEAVING

    # ---- Introduction

    def _introduce_itself(self, now: Time) -> None:
        """Introduce the client, unless a component does that in its own way."""
        if not any(introduces() for introduces in self.hooks.introduces):
            self.introduce(now)

    def introduce(self, now: Time) -> None:
        """Send a new broker all that it has to know."""
        subscriptions, advertisements, others = self.introduction()
        messages: list[Message] = [each for each in others if each.precedes_subscriptions]
        if subscriptions:
            messages.append(SubscriptionChange(added=subscriptions))
        if advertisements:
            messages.append(AdvertisementChange(added=advertisements))
        messages += [each for each in others if not each.precedes_subscriptions]
        for message in messages:
            self.send(self._broker(), message, now)
        self.introduction_sent(now)

    def introduction(self) -> tuple[tuple[Route, ...], tuple[Route, ...], tuple[Message, ...]]:
        """All that a new broker has to know; from now on only changes are sent."""
        self.is_introduced = True
        return self.wants.introduction(), self.offers.introduction(), self.told_by_components()

    def told_by_components(self) -> tuple[Message, ...]:
        """What a new broker has to know besides subscriptions and advertisements."""
        return tuple(
            message for introduction in self.hooks.introduction for message in introduction()
        )

    def introduction_sent(self, now: Time) -> None:
        """The broker knows the client's subscriptions and advertisements, and has welcomed it."""
        for sent in self.hooks.introduction_sent:
            sent(now)

    # ---- Leaving for good

    @property
    def is_leaving(self) -> bool:
        """Whether the client wants to be forgotten, and its broker does not know yet."""
        return self._leaving is not Leaving.STAYING

    @property
    def has_sent_farewell(self) -> bool:
        """Whether the broker was asked to forget the client."""
        return self._leaving is Leaving.FAREWELL_SENT

    def _leave(self, _given: inputs.Leave, now: Time) -> None:
        for subscription in list(self.subscriptions):
            self.wants.unsubscribe(inputs.Unsubscribe(subscription=subscription), now)
        for advertisement in list(self.advertisements):
            self.offers.unadvertise(inputs.Unadvertise(advertisement=advertisement), now)
        if self._leaving is Leaving.STAYING:
            self._leaving = Leaving.LEAVING
        self._comes_back = False
        self._send_farewell(now)

    def _send_farewell(self, now: Time) -> None:
        """Ask to be forgotten, after everything else is sent."""
        is_heard = self.is_introduced and self.link in self.up
        if self._leaving is not Leaving.STAYING and is_heard and not self.offers.waits:
            self.tell(Farewell(), now)
            self.is_introduced = False
            self._leaving = Leaving.FAREWELL_SENT

    def _received(self, given: inputs.Received, now: Time) -> None:
        super()._received(given, now)
        if self._leaving is Leaving.FAREWELL_SENT and not self.backlog(self._broker()):
            self._left(now)

    def arrived(self, link: LinkId, seq: int) -> bool:
        return self._leaving is not Leaving.FAREWELL_SENT and super().arrived(link, seq)

    def _left(self, now: Time) -> None:
        """The broker knows that the client has left."""
        broker, comes_back = self._broker(), self._comes_back
        self._leaving, self._comes_back = Leaving.STAYING, False
        self.act(Disconnect(broker))
        self.forget(broker, now)
        for left in self.hooks.left:
            left(now)
        self.state(facts.Left(at=self.id, time=now, published=self.accepted))
        if comes_back:
            self._attach(inputs.Attach(broker=broker), now)

    # ---- Settings and snapshots

    def reconfigured(self, before: Settings, now: Time) -> None:
        del before
        if self.link in self.up and not (self.is_introduced or self.has_sent_farewell):
            self._introduce_itself(now)  # The component that would have done it may be gone.
        self.offers.configure(self.settings.client, now)
        self._send_farewell(now)

    def keep(self, writer: Writer) -> list[Part]:
        kept = KeptClient(
            subscriptions=self.subscriptions,
            publishing=self.offers.keep(writer),
            link=self.link,
            is_introduced=self.is_introduced,
            leaving=self._leaving,
            comes_back=self._comes_back,
        )
        return [*super().keep(writer), Part(CLIENT, KEPT_CLIENT.version, kept)]

    def records(self) -> dict[str, Record]:
        return {**super().records(), CLIENT: KEPT_CLIENT}

    def restore(self, kept: Mapping[str, Any], reader: Reader) -> None:
        super().restore(kept, reader)
        mine: KeptClient = kept[CLIENT]
        self.link, self.is_introduced = mine.link, mine.is_introduced
        self._leaving, self._comes_back = mine.leaving, mine.comes_back
        self.wants.restore(mine.subscriptions)
        self.offers.restore(mine.publishing, reader)
