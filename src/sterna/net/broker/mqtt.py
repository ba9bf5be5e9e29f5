"""The door for clients that speak MQTT: each becomes a device that the broker hosts."""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Self

from sterna.core.inputs import Input
from sterna.core.link import Frame
from sterna.core.names import NodeId
from sterna.devices.filters import why_no_filter
from sterna.devices.frames import Deliveries, Delivery, Packets
from sterna.devices.hosting import Devices
from sterna.devices.inputs import DeviceConnected, DeviceLost, DeviceSaid, device_name
from sterna.devices.options import PROTOCOL
from sterna.devices.reserved import why_reserved
from sterna.mqtt.aliases import TopicAliases
from sterna.mqtt.decoder import Decoder, end_of
from sterna.mqtt.encoder import EncodedPublish, encode, encode_within
from sterna.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    MqttError,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Version,
)
from sterna.net.address import Address
from sterna.net.admission import NAME_CHARACTERS_MAX
from sterna.net.broker.doors import Change, Parts
from sterna.net.broker.sessions import TAKEN_OVER, Session
from sterna.net.broker.system_topics import SystemTopics
from sterna.net.broker.transport import Listening, Tcp
from sterna.net.stream import Stream
from sterna.net.websocket import WebSockets
from sterna.wire.codec import Bodies
from sterna.wire.frames import Role

log = logging.getLogger("sterna.broker")

LOOK_S = 1.0
"""How often it is looked for clients that are silent for longer than they said."""

PATIENCE = 1.5
"""A client may be silent for so many times its keep alive. (MQTT 5.0, 3.1.2.10)"""

ENCODED_BYTES_MAX = 4 * 2**20
"""About so many bytes of messages are kept in their encoded form, for they may go to many."""

ENCODED_BYTES = 500
"""What one takes besides its payload."""

GRACE_S = 10
"""So long the will of a client waits for it to get to the broker that it was sent to."""

SUBPROTOCOLS = ("mqtt", "mqttv3.1")
"""What clients call MQTT in the handshake of a WebSocket; the second one is an old name."""

PINGRESP = encode(Pingresp(), Version.V5)


class Naming(bytes):
    """Stands behind packets, with no bytes: they say for which topics aliases stand."""

    topics: Sequence[str]

    def __new__(cls, topics: Sequence[str]) -> Self:
        made = super().__new__(cls)
        made.topics = topics
        return made


class MqttSession(Stream):
    """The connection of an MQTT client, as a session of the broker."""

    def __init__(self, door: "MqttDoor", packet_bytes_max: int, *, write_bytes_max: int) -> None:
        super().__init__(write_bytes_max=write_bytes_max)
        self.peer: NodeId = ""
        """The name of the device; empty until CONNECT has come."""
        self.decoder = Decoder(maximum_packet_size=packet_bytes_max, check_filter=why_no_filter)
        self._is_answering = False
        self._is_subscribing = False
        """Whether a SUBACK was encoded and is not on its way."""
        self.is_answered = False
        """Whether CONNACK is on its way; before, nothing that follows CONNECT is read."""
        self.early: list[Packet] = []
        """What came behind CONNECT, before that was answered."""
        self.early_raw = b""
        self.keep_alive_s = 0
        self.maximum_packet_size: int | None = None
        """What the client takes."""
        self.heard_at = 0.0
        self.grace_s = 0
        """For how long the will of a client waits that was sent elsewhere."""
        self.aliases: TopicAliases | None = None
        """The topic aliases that the client is sent, if it takes any."""
        self._door = door

    @property
    def version(self) -> Version:
        """The version that the client speaks."""
        return self.decoder.version or Version.V5

    @property
    def heard(self) -> bool:
        """Whether anything was received: an MQTT client says itself how long it may be silent."""
        return True

    @heard.setter
    def heard(self, heard: bool) -> None:
        pass

    # ---- Called by the broker

    def down(self) -> Input:
        """What the core is given when the session is over."""
        return DeviceLost(device=self.peer, grace_s=self.grace_s)

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes have come of a packet that is not complete."""
        return self.decoder.unfinished_bytes

    def unconfirmed_bytes(self, oldest: int | None) -> int:
        """About how many bytes wait until the client has acknowledged others."""
        del oldest
        return self._door.queued_bytes(self.peer)

    def encode(self, frame: Frame, bodies: Bodies) -> tuple[bytes, ...]:
        """Make what goes to the client ready for `put`."""
        del bodies
        if not isinstance(frame, Packets):
            raise TypeError(f"an MQTT client is sent no {type(frame).__name__}")
        naming: list[str] = []
        parts = [self._encode(part, naming) for part in frame.parts]
        if naming:
            parts.append(Naming(naming))
        return tuple(parts)

    def _encode(self, packet: Packet | Delivery | Deliveries, naming: list[str]) -> bytes:
        """A packet as bytes; `naming` gets its topic if it has that and an alias."""
        if isinstance(packet, Delivery):
            return self._publish(packet, naming)
        if isinstance(packet, Deliveries):
            self._door.system.sent += len(packet.each) - 1
            if self.aliases is None:
                return self._door.encoded_together(packet, self.version)
            return b"".join([self._publish(each, naming) for each in packet.each])
        data = encode_within(packet, self.version, self.maximum_packet_size)
        if data is None:
            self._door.too_large(self)
            return b""
        if type(packet) is Connack:
            self._is_answering = True
        if type(packet) is Suback:
            self._is_subscribing = True
        return data

    def _publish(self, delivery: Delivery, naming: list[str]) -> bytes:
        publish, limit = delivery.publish, self.maximum_packet_size
        encoded = self._door.encoded(publish, self.version)
        alias, with_topic = (0, True) if self.aliases is None else self.aliases.of(publish.topic)
        if publish.topic in naming:  # In front of this one, in the same frame.
            with_topic = False
        while True:
            data = encoded.to(
                delivery.qos,
                delivery.packet_id,
                retain=delivery.retain,
                dup=delivery.dup,
                subscription_identifiers=delivery.identifiers,
                topic_alias=alias,
                with_topic=with_topic,
            )
            if limit is None or not alias or len(data) <= limit:
                break
            alias, with_topic = 0, True  # The session has seen to it that it fits without.
        if alias and with_topic:
            naming.append(publish.topic)
        return data

    def put(self, parts: Sequence[bytes]) -> int:
        """Have packets sent with the next `flush`; once CONNACK is, what follows is read."""
        if self._is_answering and not self.is_answered:
            self.is_answered = True
            self._door.answered(self)
        if self._is_subscribing:
            self._is_subscribing = False
            self._door.subscribed(self)
        if self.aliases is not None and parts and type(parts[-1]) is Naming:
            self.aliases.sent(parts[-1].topics)
            parts = parts[:-1]
        self._door.system.sent += len(parts)
        return super().put(parts)

    def probe(self) -> None:
        """Do nothing: a server cannot ping."""

    def refuse(self, reason: str, *, final: bool = False) -> None:
        """Send the reason for which the broker ends the connection, and close it."""
        del final
        code = self._door.reason_code(reason)
        self.say_why(code, reason)

    def say_why(self, code: ReasonCode, reason: str) -> None:
        """Send a reason code, in the packet that fits, and close the connection."""
        if self.is_over:
            return
        if self.decoder.version is not None:
            where = self._door.reference if code is ReasonCode.USE_ANOTHER_SERVER else None
            last: Packet = Connack(reason_code=code, reason_string=reason, server_reference=where)
            if self.is_answered:
                last = Disconnect(code, reason_string=reason, server_reference=where)
            self.write(encode_within(last, self.version, self.maximum_packet_size) or b"")
        self.close()

    # ---- Called by the event loop

    def begun(self) -> None:
        self._door.connected(self)

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self.received_bytes += len(data)
        self.heard_at = self._door.now
        decoder = self.decoder
        try:
            packets = decoder.feed(data)
        except MqttError as error:
            self._door.arrived(self, error.before, decoder.taken)
            self._door.malformed(self, error)
            return
        if packets:
            self._door.arrived(self, packets, decoder.taken)
        else:
            self._door.unfinished(len(data))

    def congested(self, *, is_full: bool) -> None:
        self._door.congested(self, is_full=is_full)

    def ended(self) -> None:
        self._door.lost(self)


class MqttDoor:
    """Owns the connections of MQTT clients, from the first byte to the last."""

    def __init__(self, parts: Parts) -> None:
        self.address: Address | None = None
        """Where it listens for TCP, if it does."""
        self.websocket_address: Address | None = None
        """Where it listens for WebSockets, if it does."""
        self._configuration = parts.configuration
        self._driver = parts.driver
        self._sessions = parts.sessions
        self._pausing = parts.pausing
        self._limits = parts.limits
        self._budget = parts.budget
        self._metrics = parts.metrics
        self._loop = asyncio.get_running_loop()
        self._listening: list[Listening] = []
        self._is_closed = False
        self._leaving: dict[NodeId, None] = {}
        """The devices that were sent elsewhere, and whose sessions are here."""
        self._strangers: dict[MqttSession, asyncio.TimerHandle] = {}
        """Connections without CONNECT, with their deadlines."""
        self._encoded: dict[tuple[int, Version], tuple[Publish, EncodedPublish]] = {}
        self._together: dict[tuple[int, Version], tuple[Deliveries, bytes]] = {}
        self._encoded_bytes = 0
        self._looking: asyncio.TimerHandle | None = None
        self.system = SystemTopics(lambda: self._devices, self._loop.time)
        """What clients are told about the broker."""
        self._sessions.when_over(self._forget)

    # ---- Opening and closing

    @property
    def strangers(self) -> int:
        """How many connections have an unfinished handshake."""
        return len(self._strangers)

    @property
    def strangers_bytes(self) -> int:
        """How many bytes these have sent that are not complete packets."""
        return sum(stranger.unfinished_bytes for stranger in self._strangers)

    async def open(self) -> None:
        """Listen, if the configuration says where."""
        for device in self._devices.connected:  # Before a restart.
            self._driver.give(DeviceLost(device=device))
        mqtt, limits = self._configuration.config.mqtt, self._configuration.limits
        if mqtt.listen:
            self.address = await self._listen(Tcp(), mqtt.listen)
        if mqtt.websocket:
            web_sockets = WebSockets(SUBPROTOCOLS, limits.frame_bytes_max)
            self.websocket_address = await self._listen(web_sockets, mqtt.websocket)
        if self._listening:
            self._look_later()

    async def _listen(self, transport: Tcp | WebSockets, listen: str) -> Address:
        listening = await transport.listen(Address.parse(listen), self.session)
        self._listening.append(listening)
        return listening.address

    def close(self) -> None:
        """Accept no more connections."""
        self._is_closed = True
        for listening in self._listening:
            listening.close()
        if self._looking is not None:
            self._looking.cancel()
        if self.reference is not None:
            self._send_elsewhere()

    def _send_elsewhere(self) -> None:
        """Have clients connect to other brokers, which fetch their sessions as long as this works.

        Those that do not outlast their connections are not waited for.
        """
        for session in self._mqtt_sessions():
            if session.is_over:
                continue
            device = self._devices.devices.get(session.peer)
            if device is not None and device.session.expiry_s:
                self._leaving[session.peer] = None
            session.grace_s = GRACE_S
            session.refuse("the broker is shutting down")

    @property
    def is_drained(self) -> bool:
        """Whether the sessions of all clients that were sent elsewhere are there."""
        here = self._driver.node.peers
        self._leaving = {device: None for device in self._leaving if device in here}
        return not self._leaving

    @property
    def reference(self) -> str | None:
        """Where clients are to connect when this broker stops."""
        return self._configuration.config.mqtt.server_reference or None

    def turn_away(self, reason: str) -> None:
        """End the connections without CONNECT."""
        del reason
        for stranger in list(self._strangers):
            stranger.close()

    def abort(self) -> None:
        """End the connections without CONNECT, now."""
        for stranger in list(self._strangers):
            stranger.abort()

    def session(self) -> MqttSession:
        """Make the session of a connection that a client opens to this broker."""
        limits = self._configuration.limits
        return MqttSession(
            self,
            limits.handshake_bytes_max,
            write_bytes_max=limits.queue_bytes_per_client_max // 4,
        )

    def configure(self, change: Change) -> None:
        """Work by another configuration."""
        if "limits.queue_bytes_per_client_max" in change.keys:
            bytes_max = self._configuration.limits.queue_bytes_per_client_max // 4
            for session in self._mqtt_sessions():
                session.limit_writing(bytes_max)

    def _mqtt_sessions(self) -> list[MqttSession]:
        return [each for each in self._sessions.roles if isinstance(each, MqttSession)]

    @property
    def _devices(self) -> Devices:
        part = self._driver.node.part(PROTOCOL)
        assert isinstance(part, Devices)  # noqa: S101 - for the type checker.
        return part

    # ---- For sessions and observers

    @property
    def ignored(self) -> Mapping[str, int]:
        """How often something in a message was not used, by what it was."""
        return self._devices.ignored

    @property
    def now(self) -> float:
        """The time of the event loop."""
        return self._loop.time()

    def encoded(self, publish: Publish, version: Version) -> EncodedPublish:
        """A message in its encoded form, which is made once for all that it goes to."""
        key = id(publish), version
        found = self._encoded.get(key)
        if found is None:  # Kept with the message itself, so that its id is not reused.
            self._make_room(len(publish.payload))
            found = self._encoded[key] = publish, EncodedPublish(publish, version)
        return found[1]

    def encoded_together(self, deliveries: Deliveries, version: Version) -> bytes:
        """Messages in their encoded form, which is made once for all that they go to."""
        key = id(deliveries), version
        found = self._together.get(key)
        if found is None:
            data = b"".join(
                [
                    self.encoded(each.publish, version).to(
                        retain=each.retain, subscription_identifiers=each.identifiers
                    )
                    for each in deliveries.each
                ]
            )
            self._make_room(len(data))
            found = self._together[key] = deliveries, data
        return found[1]

    def _make_room(self, size_bytes: int) -> None:
        """Forget what was encoded if it is too much."""
        self._encoded_bytes += size_bytes + ENCODED_BYTES
        if self._encoded_bytes > ENCODED_BYTES_MAX:
            self._encoded.clear()
            self._together.clear()
            self._encoded_bytes = size_bytes + ENCODED_BYTES

    def queued_bytes(self, device: NodeId) -> int:
        """How many bytes wait for a device in the core."""
        node = self._driver.node
        return node.queued(device).bytes if device in node.peers else 0

    def reason_code(self, reason: str) -> ReasonCode:
        """The reason code for which the broker ends a connection."""
        if reason == TAKEN_OVER:
            return ReasonCode.SESSION_TAKEN_OVER
        if self._is_closed:
            is_known = self.reference is not None
            return ReasonCode.USE_ANOTHER_SERVER if is_known else ReasonCode.SERVER_SHUTTING_DOWN
        return ReasonCode.QUOTA_EXCEEDED

    # ---- Called by sessions

    def connected(self, session: MqttSession) -> None:
        """Give a new client time for CONNECT."""
        if self.strangers + len(self._sessions.roles) >= self._limits.connections_max:
            session.close()
            return
        if self._is_closed:
            session.close()
            return
        handshake_s = self._configuration.limits.handshake_s
        self._strangers[session] = self._loop.call_later(handshake_s, session.close)

    def arrived(self, session: MqttSession, packets: Sequence[Packet], raw: bytes) -> None:
        """Packets have come."""
        self.system.received += len(packets)
        if not session.peer:
            if packets:
                connect, *rest = packets
                assert isinstance(connect, Connect)  # noqa: S101 - the decoder sees to it.
                session.early, session.early_raw = rest, raw[end_of(raw, 1) :]
                self._connect(session, connect)
            return
        if not session.is_answered:
            session.early += packets
            session.early_raw += raw
            return
        if not self._sessions.is_linked(session):
            return
        if len(raw) == 2 and type(packets[0]) is Pingreq:
            session.write(PINGRESP)
            self.system.sent += 1
            return
        self._take(session, tuple(packets), raw)

    def _take(self, session: MqttSession, packets: tuple[Packet, ...], raw: bytes) -> None:
        pings = others = 0
        for packet in packets:
            if type(packet) is Pingreq:
                pings += 1
            else:
                others += 1
                if type(packet) is Disconnect:
                    break
                if type(packet) is Subscribe and self._is_too_many(session.peer, packet):
                    limit = "too many subscriptions (subscriptions_per_client_max)"
                    session.say_why(ReasonCode.QUOTA_EXCEEDED, limit)
                    return
        for _ in range(pings):
            session.write(PINGRESP)
        self.system.sent += pings
        if others:
            said = DeviceSaid(device=session.peer, version=session.version, packets=packets)
            self._metrics.received(len(raw), others)
            self._driver.give(said, raw)
            if self._driver.engine.held:
                self._pausing.received(len(raw))

    def _is_too_many(self, device: NodeId, packet: Subscribe) -> bool:
        """Whether a client would have more subscriptions than it may."""
        claimed = sum(len(names) for _, names in self._driver.node.claimed(device))
        limit = self._configuration.limits.subscriptions_per_client_max
        return claimed + len(packet.requests) > limit

    def unfinished(self, size_bytes: int) -> None:
        """Count bytes of packets that are not complete."""
        self._budget.unfinished(size_bytes)

    def malformed(self, session: MqttSession, error: MqttError) -> None:
        """End the connection of a client that does not speak the protocol."""
        if session.is_over:
            return
        who, extra = session.peer or session.address, {"host": session.host}
        log.warning("refused %s: %s", who, error, extra=extra)
        self._metrics.closed("refused")
        session.say_why(error.reason_code, str(error))

    def too_large(self, session: MqttSession) -> None:
        """End the connection of a client that does not take an answer of the size that it has."""
        what = "an answer is larger than the maximum packet size of the client"
        self._loop.call_soon(session.say_why, ReasonCode.PACKET_TOO_LARGE, what)

    def congested(self, session: MqttSession, *, is_full: bool) -> None:
        """Have the limits checked."""
        self._limits.congested(session, is_full=is_full)

    def lost(self, session: MqttSession) -> None:
        """Forget a connection that is over."""
        self._forget(session)
        self._sessions.lost(session)

    # ---- CONNECT

    def _connect(self, session: MqttSession, connect: Connect) -> None:
        self._forget(session)
        session.maximum_packet_size = connect.maximum_packet_size
        aliases = min(
            connect.topic_alias_maximum, self._configuration.config.mqtt.topic_aliases_max
        )
        if aliases:
            session.aliases = TopicAliases(aliases)
        refusal = self._refusal(connect)
        if refusal is not None:
            self._metrics.closed("refused")
            session.say_why(*refusal)
            return
        is_assigned = not connect.client_id
        client_id = connect.client_id or f"sterna-{secrets.token_hex(8)}"
        session.peer = device_name(client_id)
        session.keep_alive_s = self._devices.options.keep_alive_s(connect)
        session.heard_at = self.now
        session.decoder.maximum_packet_size = self._configuration.limits.frame_bytes_max
        session.pause_reading()  # Until CONNACK is on its way.
        self._sessions.add(session, Role.CLIENT)
        connected = DeviceConnected(device=session.peer, connect=connect, is_assigned=is_assigned)
        self._sessions.link(session, connected)

    def _refusal(self, connect: Connect) -> tuple[ReasonCode, str] | None:
        """Why a client cannot connect, if it cannot."""
        client_id = connect.client_id
        if connect.authentication_method is not None:
            return ReasonCode.BAD_AUTHENTICATION_METHOD, "there is no enhanced authentication"
        if not client_id and connect.version is Version.V311 and not connect.clean_start:
            why = "a session that lasts needs a client identifier"
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, why
        if len(client_id) > NAME_CHARACTERS_MAX or not client_id.isprintable():
            why = f"a client identifier has up to {NAME_CHARACTERS_MAX} printable characters"
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, why
        reserved = None if connect.will is None else why_reserved(connect.will.topic)
        if reserved is not None:
            return ReasonCode.NOT_AUTHORIZED, reserved
        if self._budget.is_used_up and device_name(client_id) not in self._driver.node.peers:
            return ReasonCode.QUOTA_EXCEEDED, "no memory for more clients (memory_bytes_max)"
        return None

    def answered(self, session: MqttSession) -> None:
        """CONNACK is on its way: read on."""
        self._loop.call_soon(self._read_on, session)

    def _read_on(self, session: MqttSession) -> None:
        if session.is_over or not self._sessions.is_linked(session):
            return
        early, raw = tuple(session.early), session.early_raw
        session.early, session.early_raw = [], b""
        if early:
            self._take(session, early, raw)
        self._pausing.linked(session)

    def subscribed(self, session: MqttSession) -> None:
        """SUBACK is on its way: tell what is to be told about the broker behind it."""
        if self._configuration.config.mqtt.sys_interval_s:
            self._loop.call_soon(self.system.tell, session)

    # ---- Keep alive

    def _look_later(self) -> None:
        self._looking = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """End the connections of clients that are silent for too long."""
        now = self.now
        for session in self._mqtt_sessions():
            limit_s = PATIENCE * session.keep_alive_s
            is_read = session.is_answered and self._pausing.reads(session)
            if limit_s and is_read and now - session.heard_at > limit_s:
                log.warning("%s is silent; disconnected", session.peer)
                session.say_why(ReasonCode.KEEP_ALIVE_TIMEOUT, "no sign of life")
        self.system.tell_all(self._mqtt_sessions(), self._configuration.config.mqtt.sys_interval_s)
        self._look_later()

    def _forget(self, session: Session) -> None:
        timer = self._strangers.pop(session, None)  # type: ignore[call-overload]
        if timer is not None:
            timer.cancel()
