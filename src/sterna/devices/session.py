"""An MQTT session: what a server does with the packets of one device, and sends to it.

(MQTT 5.0, 4.1 and 4.3 to 4.9.) It is a machine: packets and events go in, packets come out. What it
publishes and subscribes to goes to its client, through a `Port`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sterna.core.names import NodeId, Time
from sterna.core.sizes import Load
from sterna.devices.connection import Connection
from sterna.devices.inbound import Inbound
from sterna.devices.kept import KeptSession, Outgoing, Share
from sterna.devices.options import NEVER_S, DeviceOptions
from sterna.devices.outbound import Outbound
from sterna.devices.port import Port
from sterna.devices.sending import Message, Messages
from sterna.devices.subscriptions import Subscriptions
from sterna.model.event import Event
from sterna.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Subscribe,
    Unsubscribe,
    Version,
    Will,
)


class Session(Connection):
    """The session of one device."""

    def __init__(self, device: NodeId, options: DeviceOptions, port: Port) -> None:
        super().__init__(options)
        self.is_over = False
        """Whether nothing of it is needed any more; its client is about to leave."""
        self.expiry_s = 0
        """For how long it outlasts its connection."""
        self.will: Will | None = None
        """What is published if the connection ends without DISCONNECT."""
        self._port = port
        self._outbound = Outbound(self._ended)
        self._inbound = Inbound(self, port)
        self.subscriptions = Subscriptions(device, self, port, self._outbound)

    # ---- Connections

    def connect(self, connect: Connect) -> None:
        """A connection begins; what it asks for holds from now on."""
        self.begin(connect)
        options = self.options
        self.will = connect.will
        asked_s = connect.session_expiry_s
        if connect.version is Version.V311:
            asked_s = 0 if connect.clean_start else NEVER_S
        self.expiry_s = min(asked_s, options.session_expiry_max_s)
        self._outbound.receive_maximum = min(connect.receive_maximum, options.inflight_max)
        self._outbound.maximum_packet_size = connect.maximum_packet_size
        self._inbound.aliases.clear()

    def welcome(self, connect: Connect, *, is_present: bool, assigned: str | None) -> None:
        """Answer CONNECT, and send again what was not acknowledged."""
        options = self.options
        is_shorter = self.expiry_s != connect.session_expiry_s
        keep_alive_s = options.keep_alive_s(connect)
        self.outbox.append(
            Connack(
                session_present=is_present,
                session_expiry_s=self.expiry_s if is_shorter else None,
                receive_maximum=options.receive_maximum,
                maximum_packet_size=options.maximum_packet_size,
                assigned_client_id=assigned,
                topic_alias_maximum=options.topic_aliases,
                server_keep_alive_s=keep_alive_s if keep_alive_s != connect.keep_alive_s else None,
            )
        )

    def send_again(self, now: Time) -> None:
        """Send what was sent over an earlier connection and not acknowledged, in its order."""
        self._outbound.send_again(self.outbox, now)

    def disconnected(self) -> None:
        """The connection is over."""
        self.end()
        self._inbound.aliases.clear()
        self.subscriptions.be_active(is_active=False)
        self._outbound.give_back()

    def _ended(self, share: Share, is_done: bool) -> None:  # noqa: FBT001 - of one who calls it.
        self._port.ended(share, is_done=is_done)

    def take_will(self) -> Will | None:
        """Take the will, to publish it or to discard it."""
        will, self.will = self.will, None
        return will

    # ---- From the device

    def take(self, packets: Sequence[Packet], now: Time) -> None:
        """Packets have come from the device."""
        inbound = self._inbound
        for packet in packets:
            if self.closes:
                break
            if type(packet) is Publish:
                inbound.on_publish(packet, now)
            else:
                inbound.publish(now)
                handler = self._HANDLERS.get(type(packet))
                if handler is not None:
                    handler(self, packet, now)
        inbound.publish(now)

    def publish_will(self, will: Will, now: Time) -> None:
        """Publish the will."""
        self._inbound.publish_will(will, now)

    def _on_puback(self, packet: Puback, _now: Time) -> None:
        self._outbound.on_puback(packet)

    def _on_pubrec(self, packet: Pubrec, _now: Time) -> None:
        answer = self._outbound.on_pubrec(packet)
        if isinstance(answer, str):
            self.refuse(ReasonCode.PROTOCOL_ERROR, answer)
        elif answer is not None:
            self.outbox.append(answer)

    def _on_pubrel(self, packet: Pubrel, now: Time) -> None:
        self._inbound.on_pubrel(packet, now)

    def _on_pubcomp(self, packet: Pubcomp, _now: Time) -> None:
        self._outbound.on_pubcomp(packet)

    def _on_subscribe(self, packet: Subscribe, now: Time) -> None:
        self.subscriptions.on_subscribe(packet, now)

    def _on_unsubscribe(self, packet: Unsubscribe, now: Time) -> None:
        self.subscriptions.on_unsubscribe(packet, now)

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

    def known(self, subscription: str, now: Time) -> None:
        """All brokers know a subscription of the client, and what they had sent before has come."""
        self.subscriptions.known(subscription, now)

    def deliver(
        self,
        events: Sequence[Event],
        subscriptions: Sequence[Sequence[str]],
        messages: Messages,
        now: Time,
    ) -> None:
        """Events have come, each for subscriptions of the device."""
        together = None
        wanted = self.subscriptions.wanting_all(subscriptions)
        if wanted is not None:
            together = messages.together(events, wanted, self.options, now)
        if together is None:
            for event, names in zip(events, subscriptions, strict=True):
                self._deliver(messages.of(event, self.options), names, now)
        elif together.at_once is not None and self._takes_at_once:
            self.outbox.append(together.at_once)
        else:
            self._outbound.pending.extend(together.outgoing)

    @property
    def _takes_at_once(self) -> bool:
        """Whether it can be sent now what needs no acknowledgement, whatever its size is."""
        outbound, is_open = self._outbound, self.is_connected and not self.closes
        return is_open and not outbound.pending and outbound.maximum_packet_size is None

    def _deliver(self, message: Message, names: Sequence[str], now: Time) -> None:
        publish, expires_at = message.publish, message.until
        if publish is None:
            return
        had_retained = self.subscriptions.had_retained
        if had_retained and message.event.id in had_retained:
            return
        wanting = self.subscriptions.wanting(message, names)
        if not wanting or expires_at <= now:
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
        self._inbound.publish_waiting(now)
        if self.is_connected and not self.closes:
            self._outbound.flush(self.outbox, self.version, now)

    @property
    def load(self) -> Load:
        """How much it holds for the device, and from it."""
        return self._outbound.load.plus(self._inbound.load)

    # ---- Snapshots

    def keep(self) -> KeptSession:
        """What a snapshot has to hold, between turns; or another broker, if it moves there."""
        subscriptions, inbound, outbound = self.subscriptions, self._inbound, self._outbound
        return KeptSession(
            version=self.version,
            expiry_s=self.expiry_s,
            subscriptions=dict(subscriptions.own),
            shared=dict(subscriptions.shared),
            names=subscriptions.names,
            received=list(inbound.received),
            inflight=list(outbound.inflight.items()),
            pending=list(outbound.pending),
            next_id=outbound.next_id,
            waiting=list(inbound.waiting),
            will=self.will,
            is_connected=self.is_connected,
            receive_maximum=outbound.receive_maximum,
            maximum_packet_size=outbound.maximum_packet_size,
            wants_problem_information=self.wants_problem_information,
            aliases=dict(inbound.aliases),
            had_retained=list(subscriptions.had_retained),
            replaced=dict(subscriptions.replaced),
        )

    def restore(self, kept: KeptSession) -> None:
        """Go on with what was kept."""
        self.version, self.expiry_s, self.will = kept.version, kept.expiry_s, kept.will
        self.is_connected = kept.is_connected
        self.wants_problem_information = kept.wants_problem_information
        subscriptions, inbound, outbound = self.subscriptions, self._inbound, self._outbound
        subscriptions.restore(kept.subscriptions, kept.shared, kept.names, kept.replaced)
        subscriptions.had_retained = dict.fromkeys(kept.had_retained)
        inbound.restore(kept.received, kept.waiting)
        inbound.aliases = dict(kept.aliases)
        outbound.restore(kept.inflight, kept.pending, kept.next_id)
        outbound.receive_maximum = kept.receive_maximum
        outbound.maximum_packet_size = kept.maximum_packet_size
