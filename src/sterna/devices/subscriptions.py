"""The subscriptions of a device: what it asks for, and for which of them a message is.

(MQTT 5.0, 3.8, 3.10 and 4.8.)
"""

from collections.abc import Sequence

from sterna.core.names import NodeId, Time
from sterna.devices.connection import Connection
from sterna.devices.filters import Wish, wish_of
from sterna.devices.group import group_of
from sterna.devices.kept import Outgoing, Share, Shared, Subscribed
from sterna.devices.outbound import Outbound
from sterna.devices.port import Port
from sterna.devices.retained import until
from sterna.devices.sending import Message, message_of
from sterna.model.event import Event, EventId
from sterna.mqtt.packets import (
    MqttError,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Version,
)
from sterna.mqtt.topics import shared

RETAINED_REMEMBERED = 1_000
"""So many of the retained messages that a device got are remembered."""


class Subscriptions:
    """The subscriptions of one device.

    A SUBSCRIBE that gives a topic filter another filter for the content makes a new subscription
    of the client. The one before ends once all brokers know the new one, and what they had sent
    before that has come: so nothing is lost. (MQTT-3.8.4-4)
    """

    def __init__(
        self, device: NodeId, connection: Connection, port: Port, outbound: Outbound
    ) -> None:
        self.own: dict[str, Subscribed] = {}
        """Those that are not shared, by topic filter."""
        self.shared: dict[str, Shared] = {}
        """Those that are, by topic filter with the share name in front."""
        self.names = 0
        """How many names were given to subscriptions of the client."""
        self.had_retained: dict[EventId, None] = {}
        """The last retained messages that it got because of a subscription: if the events come as
        well, it has them."""
        self._device = device
        self._connection = connection
        self._port = port
        self._outbound = outbound
        self._by_name: dict[str, Subscribed] = {}
        """By the names of the client's subscriptions, also of those that are about to end."""
        self.replaced: dict[str, str] = {}
        """The names of those that are about to end, with their topic filters."""
        self._refusal = ""
        """Why a subscription of the present SUBSCRIBE was refused."""

    # ---- SUBSCRIBE

    def on_subscribe(self, packet: Subscribe, now: Time) -> None:
        """The device subscribes."""
        codes = tuple([self._code(request, packet, now) for request in packet.requests])
        reason = self._connection.reason(self._refusal)
        self._connection.outbox.append(Suback(packet.packet_id, codes, reason))
        self._refusal = ""

    def _code(self, request: SubscriptionRequest, packet: Subscribe, now: Time) -> ReasonCode:
        """Subscribe: the reason code."""
        try:
            return self._subscribe(request, packet, now)
        except MqttError as error:
            self._refusal = str(error)
            return error.reason_code

    def _subscribe(self, request: SubscriptionRequest, packet: Subscribe, now: Time) -> ReasonCode:
        topic_filter, connection = request.topic_filter, self._connection
        share = shared(topic_filter) if connection.version is Version.V5 else None
        properties = dict(packet.user_properties)
        topics = topic_filter if share is None else share[1]
        wish = wish_of(topics, properties, connection.options.topic, connection.version)
        if share is not None:
            if wish.filter.uses_myloc:
                what = "a shared subscription is nowhere: its filter cannot use myloc"
                raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, what)
            self._share(topic_filter, share[0], wish, request.qos, packet.subscription_identifier)
            return ReasonCode(request.qos)
        before = self.own.get(topic_filter)
        name = before.name if before is not None else ""
        if before is None or not wish.is_like(before.wish):
            self.names += 1
            name = str(self.names)
            self._port.subscribe(name, wish, now)
        found = Subscribed(
            name,
            request.qos,
            request.no_local,
            request.retain_as_published,
            packet.subscription_identifier,
            wish,
        )
        self.own[topic_filter] = self._by_name[name] = found
        if before is not None and before.name != name:
            self.replaced[before.name] = topic_filter
            self._point_replaced(topic_filter, found)
            self._port.confirm(name, now)
        if request.retain_handling == 0 or (request.retain_handling == 1 and before is None):
            for event in self._port.retained(wish, now):
                self._deliver_retained(event, found)
        return ReasonCode(request.qos)

    def _point_replaced(self, topic_filter: str, by: Subscribed) -> None:
        """What still comes for earlier ones of a topic filter is sent as the present one wants."""
        for name, its in self.replaced.items():
            if its == topic_filter:
                self._by_name[name] = by

    def known(self, name: str, now: Time) -> None:
        """All brokers know a subscription of the client: those that it has replaced can end."""
        found = self._by_name.get(name)
        if found is not None:
            for topic_filter, each in self.own.items():
                if each is found:
                    self._end_replaced(topic_filter, now)
                    break

    def _end_replaced(self, topic_filter: str, now: Time) -> None:
        ended = [name for name, its in self.replaced.items() if its == topic_filter]
        for name in ended:
            del self.replaced[name]
            self._end(name, now)

    def _deliver_retained(self, event: Event, subscription: Subscribed) -> None:
        """A retained message for a subscription that has just begun."""
        publish = message_of(event, self._connection.options)
        if publish is None or (subscription.no_local and event.publisher == self._device):
            return
        identifier = subscription.identifier
        identifiers = () if identifier is None else (identifier,)
        qos = min(subscription.qos, publish.qos)
        self._outbound.pending.append(Outgoing(publish, qos, True, identifiers, until(event)))  # noqa: FBT003
        self.had_retained[event.id] = None
        if len(self.had_retained) > RETAINED_REMEMBERED:
            del self.had_retained[next(iter(self.had_retained))]

    # ---- UNSUBSCRIBE

    def on_unsubscribe(self, packet: Unsubscribe, now: Time) -> None:
        """The device unsubscribes."""
        codes = tuple([self._unsubscribe(each, now) for each in packet.topic_filters])
        self._connection.outbox.append(Unsuback(packet.packet_id, codes))

    def _unsubscribe(self, topic_filter: str, now: Time) -> ReasonCode:
        member = self.shared.pop(topic_filter, None)
        if member is not None:
            self._port.leave_group(member.group)
            return ReasonCode.SUCCESS
        found = self.own.pop(topic_filter, None)
        if found is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self._end_replaced(topic_filter, now)
        self._end(found.name, now)
        return ReasonCode.SUCCESS

    def _end(self, name: str, now: Time) -> None:
        del self._by_name[name]
        self._port.unsubscribe(name, now)

    def end_all(self, now: Time) -> None:
        """End all subscriptions."""
        for topic_filter in list(self.own):
            self._unsubscribe(topic_filter, now)
        self.end_sharing()

    # ---- Shared subscriptions

    def _share(
        self, topic_filter: str, name: str, wish: Wish, qos: int, identifier: int | None
    ) -> None:
        """Share a subscription with others."""
        before, group = self.shared.get(topic_filter), group_of(name, wish)
        if before is not None and before.group != group:
            self._port.leave_group(before.group)
        self.shared[topic_filter] = Shared(group, qos, identifier, wish)
        self._port.join(group, wish, is_active=True)

    def be_active(self, *, is_active: bool) -> None:
        """Be there for all groups, or not; others get what comes while the device is away."""
        for each in self.shared.values():
            self._port.join(each.group, each.wish, is_active=is_active)

    def join_again(self, group: NodeId) -> None:
        """A group is elsewhere."""
        for each in self.shared.values():
            if each.group == group:
                self._port.join(group, each.wish, is_active=self._connection.is_connected)

    def end_sharing(self) -> None:
        """Leave all groups."""
        for each in self.shared.values():
            self._port.leave_group(each.group)
        self.shared.clear()
        self._outbound.give_up()

    def deliver_shared(self, event: Event, share: Share, now: Time) -> None:
        """A message of a group, for this member."""
        group, _ = share
        found = [each for each in self.shared.values() if each.group == group]
        publish = message_of(event, self._connection.options)
        if not found or not self._connection.is_connected or publish is None:
            self._port.ended(share, is_done=False)
            return
        (member,) = found
        expires_at = until(event)
        if expires_at <= now:
            self._port.ended(share, is_done=True)
            return
        identifiers = () if member.identifier is None else (member.identifier,)
        qos = min(member.qos, publish.qos)
        self._outbound.pending.append(Outgoing(publish, qos, False, identifiers, expires_at, share))  # noqa: FBT003

    # ---- For messages

    def wanting(self, message: Message, names: Sequence[str]) -> list[Subscribed]:
        """The subscriptions that want a message, of those of the client that match its event."""
        is_own, has_topic = message.event.publisher == self._device, message.has_topic
        template = self._connection.options.topic
        found = [
            found
            for name in names
            if (found := self._by_name.get(name)) is not None
            and not (is_own and found.no_local)
            and (has_topic or found.wish.template == template)
        ]
        if len(found) > 1 and self.replaced:  # One may be there under an earlier name as well.
            return list({each.name: each for each in found}.values())
        return found

    def wanting_all(self, subscriptions: Sequence[Sequence[str]]) -> Subscribed | None:
        """The subscription that all of several events are for, if the device gets them just as
        others with such a subscription do.
        """
        names = subscriptions[0]
        if len(names) != 1 or len(subscriptions) == 1 or self.had_retained:
            return None
        wanted = self._by_name.get(names[0])
        if wanted is None or wanted.no_local or subscriptions.count(names) < len(subscriptions):
            return None
        return wanted

    @property
    def count(self) -> int:
        """How many there are, with the shared ones."""
        return len(self.own) + len(self.shared)

    # ---- Snapshots

    def restore(
        self,
        own: dict[str, Subscribed],
        shared: dict[str, Shared],
        names: int,
        replaced: dict[str, str],
    ) -> None:
        """Go on with what was kept."""
        self.own, self.shared, self.names = dict(own), dict(shared), names
        self._by_name = {each.name: each for each in own.values()}
        self.replaced = dict(replaced)
        for topic_filter, each in own.items():
            self._point_replaced(topic_filter, each)
