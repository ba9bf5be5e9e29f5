"""An MQTT session: what a server does with the packets of one device, and sends to it.

(MQTT 5.0, 4.1 and 4.3 to 4.9.) It is a machine: packets and events go in, packets come out. What it
publishes and subscribes to goes to its client, through a `Port`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from sterna.core.names import NodeId, Time
from sterna.core.sizes import Load
from sterna.devices.faces import attributes_of
from sterna.devices.filters import Wish, wish_of
from sterna.devices.frames import Deliveries, Delivery
from sterna.devices.group import group_of
from sterna.devices.kept import (
    MESSAGE_BYTES,
    KeptSession,
    Outgoing,
    Share,
    Shared,
    Subscribed,
)
from sterna.devices.lifting import lift
from sterna.devices.locating import TOPICS
from sterna.devices.options import NEVER_S, DeviceOptions
from sterna.devices.outbound import Outbound
from sterna.devices.retained import until
from sterna.devices.sending import Message, Messages, message_of
from sterna.model.event import Event, EventId, Scalar
from sterna.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    MqttError,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from sterna.mqtt.topics import shared

RETAINED_REMEMBERED = 1_000
"""So many of the retained messages that a device got are remembered."""

Publication = tuple[dict[str, Scalar], bytes]
"""The attributes and the payload of an event."""

REASON_PACKET_BYTES = 32
"""What a packet with a reason string has besides, and its reason codes, at most."""

WAITING_BYTES_MAX = 8 * 2**20
"""So many bytes of what a device publishes may wait until its client may publish."""


class Port(Protocol):
    """What a session wants of its client."""

    @property
    def may_publish(self) -> bool:
        """Whether events go out at once."""
        ...

    def publish(self, events: Sequence[Publication], now: Time) -> None:
        """Publish events."""
        ...

    def subscribe(self, name: str, wish: Wish, now: Time) -> None:
        """Subscribe; MqttError if that is not possible here and now."""
        ...

    def unsubscribe(self, name: str, now: Time) -> None:
        """End a subscription."""
        ...

    def join(self, group: NodeId, wish: Wish, *, is_active: bool) -> None:
        """Be a member of a group, connected or not."""
        ...

    def leave_group(self, group: NodeId) -> None:
        """Be no member any more."""
        ...

    def ended(self, share: Share, *, is_done: bool) -> None:
        """Be done with a message of a group, or give it back."""
        ...

    def move(self, message: Publish, now: Time) -> str:
        """Be where a message tells that the device is; why it is refused, if it is."""
        ...

    def ignored(self, what: str) -> None:
        """Count something in a message that is not used; the device gets no error."""
        ...

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for a retained message of a topic."""
        ...

    def retained(self, wish: Wish, now: Time) -> Sequence[Event]:
        """The retained messages that match a filter."""
        ...


class Session:
    """The session of one device."""

    def __init__(self, device: NodeId, options: DeviceOptions, port: Port) -> None:
        self.options = options
        self.is_connected = False
        self.is_over = False
        """Whether nothing of it is needed any more; its client is about to leave."""
        self.closes: bool = False
        """Whether the connection is to be closed behind what is in the `outbox`."""
        self.expiry_s = 0
        """For how long it outlasts its connection."""
        self.will: Will | None = None
        """What is published if the connection ends without DISCONNECT."""
        self.outbox: list[Packet | Delivery | Deliveries] = []
        self.version = Version.V5
        self._device = device
        self._port = port
        self._subscriptions: dict[str, Subscribed] = {}
        self._by_name: dict[str, Subscribed] = {}
        self._shared: dict[str, Shared] = {}
        self._names = 0
        self._received: dict[int, None] = {}
        self._outbound = Outbound(self._ended)
        self._waiting: list[Publish] = []
        """What the device has published while its client may not publish."""
        self._waiting_bytes = 0
        self._waiting_ids: set[int] = set()
        """The packet identifiers of those with QoS 1 or 2, but of those that were received."""
        self._wants_problem_information = True
        self._aliases: dict[int, str] = {}
        self._publications: list[Publication] = []
        self._had_retained: dict[EventId, None] = {}
        """The last retained messages that it got because of a subscription: if the events come as
        well, it has them."""

    # ---- Connections

    def connect(self, connect: Connect) -> None:
        """A connection begins; what it asks for holds from now on."""
        options = self.options
        self.version = connect.version
        self.is_connected = True
        self.closes = False
        self.outbox.clear()
        self.will = connect.will
        asked_s = connect.session_expiry_s
        if connect.version is Version.V311:
            asked_s = 0 if connect.clean_start else NEVER_S
        self.expiry_s = min(asked_s, options.session_expiry_max_s)
        self._outbound.receive_maximum = min(connect.receive_maximum, options.inflight_max)
        self._outbound.maximum_packet_size = connect.maximum_packet_size
        self._wants_problem_information = connect.wants_problem_information
        self._aliases.clear()

    def welcome(self, connect: Connect, *, is_present: bool, assigned: str | None) -> None:
        """Answer CONNECT, and send again what was not acknowledged."""
        options = self.options
        is_shorter = self.expiry_s != connect.session_expiry_s
        self.outbox.append(
            Connack(
                session_present=is_present,
                session_expiry_s=self.expiry_s if is_shorter else None,
                receive_maximum=options.receive_maximum,
                maximum_packet_size=options.maximum_packet_size,
                assigned_client_id=assigned,
                topic_alias_maximum=options.topic_aliases,
            )
        )

    def send_again(self, now: Time) -> None:
        """Send what was sent over an earlier connection and not acknowledged, in its order."""
        self._outbound.send_again(self.outbox, now)

    def disconnected(self) -> None:
        """The connection is over."""
        self.is_connected = False
        self.closes = False
        self.outbox.clear()
        self._aliases.clear()
        for each in self._shared.values():
            self._port.join(each.group, each.wish, is_active=False)
        self._outbound.give_back()

    def join_groups(self) -> None:
        """The device is connected: other members share with it."""
        for each in self._shared.values():
            self._port.join(each.group, each.wish, is_active=True)

    def join_again(self, group: NodeId) -> None:
        """A group is elsewhere."""
        for each in self._shared.values():
            if each.group == group:
                self._port.join(group, each.wish, is_active=self.is_connected)

    def refuse(self, reason_code: ReasonCode, what: str) -> None:
        """End the connection and give the reason."""
        if self.is_connected and not self.closes:
            if self.version is Version.V5:
                self.outbox.append(Disconnect(reason_code, reason_string=self._reason(what)))
            self.closes = True

    def _ended(self, share: Share, is_done: bool) -> None:  # noqa: FBT001 - of one who calls it.
        self._port.ended(share, is_done=is_done)

    def take_will(self) -> Will | None:
        """Take the will, to publish it or to discard it."""
        will, self.will = self.will, None
        return will

    # ---- From the device

    def take(self, packets: Sequence[Packet], now: Time) -> None:
        """Packets have come from the device."""
        for packet in packets:
            if self.closes:
                break
            if type(packet) is Publish:
                self._on_publish(packet, now)
            else:
                if self._publications:
                    self._publish(now)
                handler = self._HANDLERS.get(type(packet))
                if handler is not None:
                    handler(self, packet, now)
        self._publish(now)

    def _on_publish(self, packet: Publish, now: Time) -> None:
        named = self._with_topic(packet)
        if named is None:
            return
        if not self._port.may_publish or self._waiting:
            self._wait(named)
        else:
            self._accept(named, now)
        exceeds = self._received_count > self.options.receive_maximum
        if exceeds and self.version is Version.V5:
            what = f"more than {self.options.receive_maximum} messages are not acknowledged"
            self.refuse(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, what)

    def _wait(self, packet: Publish) -> None:
        """Have a message wait until the client may publish; it is not acknowledged before."""
        size = len(packet.topic) + len(packet.payload) + MESSAGE_BYTES
        if self._waiting_bytes + size <= WAITING_BYTES_MAX:
            self._waiting.append(packet)
            self._waiting_bytes += size
            if packet.qos and packet.packet_id not in self._received:
                self._waiting_ids.add(packet.packet_id)
        elif packet.qos:
            why = "too much waits to be published while the session is on its way"
            self.refuse(ReasonCode.QUOTA_EXCEEDED, why)

    @property
    def _received_count(self) -> int:
        """How many messages with QoS 1 or 2 the device counts as not acknowledged, at least."""
        return len(self._received) + len(self._waiting_ids)

    def _with_topic(self, packet: Publish) -> Publish | None:
        """A message with its topic instead of the alias; None if there is none."""
        alias = packet.topic_alias
        if alias is None:
            return packet
        if not 0 < alias <= self.options.topic_aliases:
            self.refuse(ReasonCode.TOPIC_ALIAS_INVALID, f"there is no topic alias {alias}")
            return None
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet
        topic = self._aliases.get(alias)
        if topic is None:
            self.refuse(ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was not set")
            return None
        return replace(packet, topic=topic)

    def _accept(self, packet: Publish, now: Time) -> None:
        """Publish a message, unless it was received already, and acknowledge it."""
        packet_id = packet.packet_id
        is_known = packet.qos == 2 and packet_id in self._received
        refusal = None if is_known else self._why_not(packet, now)
        if refusal is not None:
            if packet.qos:
                kind = Pubrec if packet.qos == 2 else Puback
                self.outbox.append(kind(packet_id, refusal[0], self._reason(refusal[1])))
            return
        if packet.qos == 2:
            self.outbox.append(Pubrec(packet_id))
            if packet_id in self._received:
                return
            self._received[packet_id] = None
        elif packet.qos:
            self.outbox.append(Puback(packet_id))
        self._publications.append(self._publication(packet))

    def _why_not(self, packet: Publish, now: Time) -> tuple[ReasonCode, str] | None:
        """Why a message is refused, if it is; if it tells where the device is, it is there now."""
        if packet.retain and packet.payload and not self._port.may_retain(packet.topic):
            why = "too many retained messages (mqtt.retained_max)"
            return ReasonCode.QUOTA_EXCEEDED, why
        if packet.topic.startswith(TOPICS):
            why = self._port.move(packet, now)
            if why:
                return ReasonCode.PAYLOAD_FORMAT_INVALID, why
        return None

    def _publication(self, message: Publish | Will) -> Publication:
        attributes = attributes_of(message, message.topic)
        rules = self.options.lift
        if rules and not lift(attributes, message, rules):
            self._port.ignored("payload")
        return attributes, message.payload

    def _publish(self, now: Time) -> None:
        """Publish what has gathered, in its order."""
        if self._publications:
            publications, self._publications = self._publications, []
            self._port.publish(publications, now)

    @property
    def is_waiting(self) -> bool:
        """Whether something is to be published once its client may."""
        return bool(self._waiting)

    def publish_waiting(self, now: Time) -> None:
        """Publish what has waited, if the client may now."""
        if self._waiting and self._port.may_publish:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._waiting_ids.clear()
            for packet in waiting:
                self._accept(packet, now)
            self._publish(now)

    def publish_will(self, will: Will, now: Time) -> None:
        """Publish the will."""
        self._port.publish([self._publication(will)], now)

    def _on_puback(self, packet: Puback, _now: Time) -> None:
        self._outbound.on_puback(packet)

    def _on_pubrec(self, packet: Pubrec, _now: Time) -> None:
        answer = self._outbound.on_pubrec(packet)
        if isinstance(answer, str):
            self.refuse(ReasonCode.PROTOCOL_ERROR, answer)
        elif answer is not None:
            self.outbox.append(answer)

    def _on_pubrel(self, packet: Pubrel, _now: Time) -> None:
        packet_id = packet.packet_id
        is_known = self._received.pop(packet_id, self) is None
        code = ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self.outbox.append(Pubcomp(packet_id, code))

    def _on_pubcomp(self, packet: Pubcomp, _now: Time) -> None:
        self._outbound.on_pubcomp(packet)

    def _on_subscribe(self, packet: Subscribe, now: Time) -> None:
        codes = tuple([self._code(request, packet, now) for request in packet.requests])
        self.outbox.append(Suback(packet.packet_id, codes, self._reason(self._refusal, len(codes))))
        self._refusal = ""

    _refusal = ""
    """Why a subscription of the present SUBSCRIBE was refused."""

    def _reason(self, what: str, codes: int = 1) -> str | None:
        """A reason string, if the device wants one, and its packet does not get too large."""
        if not what or not self._wants_problem_information:
            return None
        size_max = self._outbound.maximum_packet_size
        fits = size_max is None or len(what.encode()) + codes + REASON_PACKET_BYTES <= size_max
        return what if fits else None

    def _code(self, request: SubscriptionRequest, packet: Subscribe, now: Time) -> ReasonCode:
        """Subscribe: the reason code."""
        try:
            return self._subscribe(request, packet, now)
        except MqttError as error:
            self._refusal = str(error)
            return error.reason_code

    def _subscribe(self, request: SubscriptionRequest, packet: Subscribe, now: Time) -> ReasonCode:
        topic_filter = request.topic_filter
        share = shared(topic_filter) if self.version is Version.V5 else None
        properties = dict(packet.user_properties)
        topics = topic_filter if share is None else share[1]
        wish = wish_of(topics, properties, self.options.topic, self.version)
        if share is not None:
            if wish.filter.uses_myloc:
                what = "a shared subscription is nowhere: its filter cannot use myloc"
                raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, what)
            self._share(topic_filter, share[0], wish, request.qos, packet.subscription_identifier)
            return ReasonCode(request.qos)
        before = self._subscriptions.get(topic_filter)
        name = before.name if before is not None else ""
        if before is None or not wish.is_like(before.wish):
            self._names += 1
            name = str(self._names)
            self._port.subscribe(name, wish, now)
        if before is not None and before.name != name:
            self._end(before, now)
        found = Subscribed(
            name,
            request.qos,
            request.no_local,
            request.retain_as_published,
            packet.subscription_identifier,
            wish,
        )
        self._subscriptions[topic_filter] = self._by_name[name] = found
        if request.retain_handling == 0 or (request.retain_handling == 1 and before is None):
            for event in self._port.retained(wish, now):
                self._deliver_retained(event, found)
        return ReasonCode(request.qos)

    def _share(
        self, topic_filter: str, name: str, wish: Wish, qos: int, identifier: int | None
    ) -> None:
        """Share a subscription with others."""
        before, group = self._shared.get(topic_filter), group_of(name, wish)
        if before is not None and before.group != group:
            self._port.leave_group(before.group)
        self._shared[topic_filter] = Shared(group, qos, identifier, wish)
        self._port.join(group, wish, is_active=True)

    def deliver_shared(self, event: Event, share: Share, now: Time) -> None:
        """A message of a group, for this member."""
        group, _ = share
        found = [each for each in self._shared.values() if each.group == group]
        publish = message_of(event, self.options)
        if not found or not self.is_connected or publish is None:
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

    def _deliver_retained(self, event: Event, subscription: Subscribed) -> None:
        """A retained message for a subscription that has just begun."""
        publish = message_of(event, self.options)
        if publish is None or (subscription.no_local and event.publisher == self._device):
            return
        identifier = subscription.identifier
        identifiers = () if identifier is None else (identifier,)
        qos = min(subscription.qos, publish.qos)
        self._outbound.pending.append(Outgoing(publish, qos, True, identifiers, until(event)))  # noqa: FBT003
        self._had_retained[event.id] = None
        if len(self._had_retained) > RETAINED_REMEMBERED:
            del self._had_retained[next(iter(self._had_retained))]

    def _on_unsubscribe(self, packet: Unsubscribe, now: Time) -> None:
        codes = tuple([self._unsubscribe(each, now) for each in packet.topic_filters])
        self.outbox.append(Unsuback(packet.packet_id, codes))

    def _unsubscribe(self, topic_filter: str, now: Time) -> ReasonCode:
        member = self._shared.pop(topic_filter, None)
        if member is not None:
            self._port.leave_group(member.group)
            return ReasonCode.SUCCESS
        found = self._subscriptions.pop(topic_filter, None)
        if found is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self._end(found, now)
        return ReasonCode.SUCCESS

    def _end(self, subscription: Subscribed, now: Time) -> None:
        del self._by_name[subscription.name]
        self._port.unsubscribe(subscription.name, now)

    def end_subscriptions(self, now: Time) -> None:
        """End all subscriptions."""
        for topic_filter in list(self._subscriptions):
            self._unsubscribe(topic_filter, now)
        self.end_sharing()

    def end_sharing(self) -> None:
        """Leave all groups."""
        for each in self._shared.values():
            self._port.leave_group(each.group)
        self._shared.clear()
        self._outbound.give_up()

    def _on_disconnect(self, packet: Disconnect, _now: Time) -> None:
        expiry_s = packet.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not self.expiry_s:
                self.refuse(ReasonCode.PROTOCOL_ERROR, "a session that was to end cannot go on")
                return
            self.expiry_s = min(expiry_s, self.options.session_expiry_max_s)
        if packet.reason_code == ReasonCode.NORMAL_DISCONNECTION:
            self.will = None
        self.closes = True

    def _on_auth(self, _packet: Auth, _now: Time) -> None:
        self.refuse(ReasonCode.PROTOCOL_ERROR, "there was no authentication method")

    _HANDLERS: dict[type[Packet], Callable[["Session", Any, Time], None]] = {  # noqa: RUF012
        Puback: _on_puback,
        Pubrec: _on_pubrec,
        Pubrel: _on_pubrel,
        Pubcomp: _on_pubcomp,
        Subscribe: _on_subscribe,
        Unsubscribe: _on_unsubscribe,
        Disconnect: _on_disconnect,
        Auth: _on_auth,
    }

    # ---- To the device

    @property
    def wants_more(self) -> bool:
        """Whether it takes more events; else they wait where they are."""
        return (self.is_connected and not self._outbound.pending) or self.is_over

    def deliver(
        self,
        events: Sequence[Event],
        subscriptions: Sequence[Sequence[str]],
        messages: Messages,
        now: Time,
    ) -> None:
        """Events have come, each for subscriptions of the device."""
        together = None
        wanted = self._wanting_all(subscriptions)
        if wanted is not None:
            together = messages.together(events, wanted, self.options, now)
        if together is None:
            for event, names in zip(events, subscriptions, strict=True):
                self._deliver(messages.of(event, self.options), names, now)
        elif together.at_once is not None and self._takes_at_once:
            self.outbox.append(together.at_once)
        else:
            self._outbound.pending.extend(together.outgoing)

    def _wanting_all(self, subscriptions: Sequence[Sequence[str]]) -> Subscribed | None:
        """The subscription that all of several events are for, if the device gets them just as
        others with such a subscription do.
        """
        names = subscriptions[0]
        if len(names) != 1 or len(subscriptions) == 1 or self._had_retained:
            return None
        wanted = self._by_name.get(names[0])
        if wanted is None or wanted.no_local or subscriptions.count(names) < len(subscriptions):
            return None
        return wanted

    @property
    def _takes_at_once(self) -> bool:
        """Whether it can be sent now what needs no acknowledgement, whatever its size is."""
        outbound, is_open = self._outbound, self.is_connected and not self.closes
        return is_open and not outbound.pending and outbound.maximum_packet_size is None

    def _deliver(self, message: Message, names: Sequence[str], now: Time) -> None:
        event, publish, expires_at, has_topic = message
        if publish is None:
            return
        if self._had_retained and event.id in self._had_retained:
            return
        is_own = event.publisher == self._device
        wanting = [
            found
            for name in names
            if (found := self._by_name.get(name)) is not None
            and not (is_own and found.no_local)
            and (has_topic or found.wish.template == self.options.topic)
        ]
        if not wanting:
            return
        if expires_at <= now:
            return
        found = wanting[0]
        if len(wanting) == 1:
            qos, as_published = found.qos, found.retain_as_published
            identifiers: tuple[int, ...] = ()
            if found.identifier is not None:
                identifiers = (found.identifier,)
        else:
            qos = max(each.qos for each in wanting)
            as_published = any(each.retain_as_published for each in wanting)
            identifiers = tuple(
                [each.identifier for each in wanting if each.identifier is not None]
            )
        retain = as_published and publish.retain
        self._outbound.pending.append(
            Outgoing(publish, min(qos, publish.qos), retain, identifiers, expires_at)
        )

    def flush(self, now: Time) -> None:
        """Send and publish what can be sent and published now."""
        self.publish_waiting(now)
        if self.is_connected and not self.closes:
            self._outbound.flush(self.outbox, self.version, now)

    @property
    def subscriptions(self) -> Iterable[Subscribed]:
        """The subscriptions that are not shared."""
        return self._subscriptions.values()

    @property
    def subscription_count(self) -> int:
        """How many subscriptions there are, with the shared ones."""
        return len(self._subscriptions) + len(self._shared)

    @property
    def load(self) -> Load:
        """How much it holds for the device, and from it."""
        return self._outbound.load.plus(Load(len(self._waiting), self._waiting_bytes))

    # ---- Snapshots

    def keep(self) -> KeptSession:
        """What a snapshot has to hold, between turns; or another broker, if it moves there."""
        return KeptSession(
            version=self.version,
            expiry_s=self.expiry_s,
            subscriptions=dict(self._subscriptions),
            shared=dict(self._shared),
            names=self._names,
            received=list(self._received),
            inflight=list(self._outbound.inflight.items()),
            pending=list(self._outbound.pending),
            next_id=self._outbound.next_id,
            waiting=list(self._waiting),
            will=self.will,
            is_connected=self.is_connected,
            receive_maximum=self._outbound.receive_maximum,
            maximum_packet_size=self._outbound.maximum_packet_size,
            wants_problem_information=self._wants_problem_information,
            aliases=dict(self._aliases),
            had_retained=list(self._had_retained),
        )

    def restore(self, kept: KeptSession) -> None:
        """Go on with what was kept."""
        self.version, self.expiry_s, self.will = kept.version, kept.expiry_s, kept.will
        self.is_connected = kept.is_connected
        self._subscriptions = dict(kept.subscriptions)
        self._by_name = {each.name: each for each in kept.subscriptions.values()}
        self._shared = dict(kept.shared)
        self._names = kept.names
        self._received = dict.fromkeys(kept.received)
        self._outbound.restore(kept.inflight, kept.pending, kept.next_id)
        self._waiting_bytes = sum(
            len(each.topic) + len(each.payload) + MESSAGE_BYTES for each in kept.waiting
        )
        ids = {each.packet_id for each in kept.waiting if each.qos}
        self._waiting_ids = ids.difference(self._received)
        self._waiting = list(kept.waiting)
        self._outbound.receive_maximum = kept.receive_maximum
        self._outbound.maximum_packet_size = kept.maximum_packet_size
        self._wants_problem_information = kept.wants_problem_information
        self._aliases = dict(kept.aliases)
        self._had_retained = dict.fromkeys(kept.had_retained)
