"""Brokers in one process with devices that speak MQTT: packets are records, and time is a number.

A broker keeps its inputs as a log does, so it can be killed: what it has sent is not taken back.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from sterna.core.actions import Action, Disconnect, Transmit
from sterna.core.broker import Broker
from sterna.core.facts import Fact
from sterna.core.inputs import Input, LinkDown, LinkUp, Received, TimePassed
from sterna.core.link import Frame
from sterna.core.names import NEVER, Peer
from sterna.devices.filters import why_no_filter
from sterna.devices.frames import Delivery, Packets
from sterna.devices.hosting import Devices
from sterna.devices.inputs import DeviceConnected, DeviceLost, DeviceSaid, device_name
from sterna.mqtt.decoder import Decoder
from sterna.mqtt.encoder import encode
from sterna.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Role,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Version,
    Will,
)
from sterna.net.config import BrokerConfig
from sterna.net.nodes import broker_of, settings_of
from sterna.net.records import Began, decode_record, encode_record
from sterna.wire.snapshots import encode_node, restore_node

BEGIN_US = 1_790_000_000_000_000


class Line(NamedTuple):
    """One connection of a device."""

    phone: "Phone"
    number: int

    @property
    def is_current(self) -> bool:
        """Whether the device has not connected again since."""
        return bool(self.phone.broker) and self.phone.connections == self.number

    def cut_off(self) -> None:
        """The broker ends it."""
        if self.is_current:
            self.phone.broker = ""


class World:
    """Brokers in a line, and devices."""

    def __init__(
        self, brokers: int = 1, *, joined: bool = True, **config: Mapping[str, Any]
    ) -> None:
        self.now = BEGIN_US
        self.names = [f"b{number}" for number in range(1, brokers + 1)]
        self.brokers: dict[str, Broker] = {}
        self._began: dict[str, Began] = {}
        self._log: dict[str, list[tuple[Input, int]]] = {}
        self._snapshot: dict[str, bytes] = {}
        self._devices: dict[tuple[str, str], Line] = {}
        self._wires: dict[tuple[str, str], deque[Frame]] = {}
        self.down: set[str] = set()
        self.facts: list[Fact] = []
        """What brokers have stated, in order; with `mqtt.journal`, also of devices."""
        for place, name in enumerate(self.names):
            settings = settings_of(BrokerConfig.from_mapping({"name": name, **config}))
            self._began[name] = Began(node=name, incarnation=place + 1, settings=settings)
            self.brokers[name] = broker_of(self._began[name])
            self._log[name] = []
        for a, b in zip(self.names, self.names[1:], strict=False):
            if joined:
                self.join(a, b)
        self.run()

    def devices_at(self, broker: str) -> Devices:
        """The devices that a broker hosts."""
        part = self.brokers[broker].part(Devices.name)
        assert isinstance(part, Devices)
        return part

    # ---- Brokers

    def join(self, a: str, b: str) -> None:
        """Link two brokers."""
        for one, other in ((a, b), (b, a)):
            self._wires[one, other] = deque()
        for one, other in ((a, b), (b, a)):
            self._give(one, LinkUp(link=other, peer=Peer.BROKER))

    def cut(self, a: str, b: str) -> None:
        """Break the link of two brokers; what is on its way is lost."""
        for one, other in ((a, b), (b, a)):
            if self._wires.pop((one, other), None) is not None and one not in self.down:
                self._give(one, LinkDown(link=other))

    def is_linked(self, a: str, b: str) -> bool:
        """Whether two brokers have a link now."""
        return (a, b) in self._wires

    def kill(self, broker: str) -> None:
        """Kill a broker: what it had in memory is lost, and what it had written is not."""
        self.down.add(broker)
        for one, other in list(self._wires):
            if broker in (one, other):
                self.cut(one, other)
        for name, device in list(self._devices):
            if name == broker:
                self._devices.pop((name, device)).cut_off()

    def restart(self, broker: str) -> None:
        """Start it again, from its last snapshot and the log behind it."""
        node = broker_of(self._began[broker])
        if broker in self._snapshot:
            restore_node(self._snapshot[broker], node)
        for given, now in self._log[broker]:
            node.handle(given, now)
        self.brokers[broker] = node
        self.down.remove(broker)
        for link in list(node.peers):
            if node.is_connected(link):
                self._give(broker, LinkDown(link=link))
        for device in self.devices_at(broker).connected:
            self._give(broker, DeviceLost(device=device))
        place = self.names.index(broker)
        for other in self.names[max(0, place - 1) : place + 2]:
            if other != broker and other not in self.down:
                self.join(broker, other)

    def snapshot(self, broker: str) -> None:
        """Have a broker's log begin with its present state."""
        self._snapshot[broker] = encode_node(self.brokers[broker])
        self._log[broker].clear()

    # ---- Inputs and actions

    def connect(self, broker: str, phone: "Phone", connect: Connect) -> None:
        """A device connects; an earlier connection of it here is over."""
        name = device_name(connect.client_id)
        before = self._devices.pop((broker, name), None)
        if before is not None:
            before.cut_off()
        self._devices[broker, name] = Line(phone, phone.connections)
        self._give(broker, DeviceConnected(device=name, connect=connect))

    def said(self, broker: str, phone: "Phone", *packets: Packet) -> None:
        """A device sends packets; they go through bytes."""
        if self._devices.get((broker, phone.name)) != Line(phone, phone.connections):
            return
        raw = b"".join(encode(packet, phone.version) for packet in packets)
        found = tuple(Decoder(version=phone.version, check_filter=why_no_filter).feed(raw))
        self._give(broker, DeviceSaid(device=phone.name, version=phone.version, packets=found), raw)

    def hang_up(self, broker: str, phone: "Phone", *, grace_s: int = 0) -> None:
        """The connection of a device breaks."""
        if self._devices.get((broker, phone.name)) == Line(phone, phone.connections):
            del self._devices[broker, phone.name]
            self._give(broker, DeviceLost(device=phone.name, grace_s=grace_s))

    def _give(self, broker: str, given: Input, raw: bytes = b"") -> None:
        if broker in self.down:
            return
        self.now += 7
        logged: Input = given  # Frames are no bytes here.
        if not isinstance(given, Received):
            logged, _ = decode_record(encode_record(given, self.now, raw))
        self._log[broker].append((logged, self.now))
        turn = self.brokers[broker].handle(given, self.now)
        self.facts += turn.facts
        for action in turn.actions:
            self._act(broker, action)

    def _act(self, broker: str, action: Action) -> None:
        if isinstance(action, Transmit):
            if isinstance(action.frame, Packets):
                line = self._devices.get((broker, action.link))
                if line is not None and line.is_current:
                    line.phone.receive(action.frame)
            elif (broker, action.link) in self._wires:
                self._wires[broker, action.link].append(action.frame)
        elif isinstance(action, Disconnect):
            gone = self._devices.pop((broker, action.link), None)
            if gone is not None:
                gone.cut_off()

    def step(self) -> bool:
        """Let each link carry what is on it; whether there was something."""
        found = False
        for (one, other), wire in list(self._wires.items()):
            if wire and (one, other) in self._wires:
                frames = tuple(wire)
                wire.clear()
                found = True
                self._give(other, Received(link=one, frames=frames))
        for line in list(self._devices.values()):
            found = (line.is_current and line.phone.work()) or found
        return found

    def run(self) -> None:
        """Go on until nothing is on its way."""
        while self.step():
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + round(seconds * 1e6)
        while True:
            self.run()
            due = {name: node.deadline for name, node in self.brokers.items()}
            first = min((t for name, t in due.items() if name not in self.down), default=NEVER)
            if first > end:
                break
            self.now = max(self.now, first)
            for name, deadline in due.items():
                if deadline <= self.now:
                    self._give(name, TimePassed())
        self.now = max(self.now, end)


class Phone:
    """A device: the client's side of MQTT, with a memory that survives its connections."""

    def __init__(self, world: World, client_id: str, *, version: Version = Version.V5) -> None:
        self.name = device_name(client_id)
        self.version = version
        self.received: list[str] = []
        """The payloads of all messages that its application got."""
        self.messages: list[Delivery] = []
        self.packets: list[Packet | Delivery] = []
        """Everything that came, on all connections."""
        self.broker = ""
        """Where it is connected; empty if it is not."""
        self.is_present = False
        self.connections = 0
        self.answers = True
        """Whether it acknowledges what it gets."""
        self.connack: Connack | None = None
        self._world = world
        self._client_id = client_id
        self._next_id = 0
        self._sent: dict[int, Publish | Pubrel] = {}
        """What it has sent and is not acknowledged, in its order."""
        self._got: set[int] = set()
        """The packet identifiers of QoS 2 that it has received and that are not released."""
        self._to_say: list[Packet] = []
        """Its acknowledgements."""
        self._to_send: list[Packet] = []
        """What it publishes, and sends again."""

    def connect(
        self, broker: str, *, clean: bool = False, expiry_s: int = 0xFFFFFFFF,
        will: Will | None = None, **more: Any,
    ) -> "Phone":  # fmt: skip
        """Connect, and send again what is not acknowledged if the session is there."""
        if self.broker:
            self.lose()
        self.connections += 1
        if broker in self._world.down:
            return self
        self.broker, self.connack = broker, None
        self._to_say, self._to_send = [], []
        expiry = expiry_s if self.version is Version.V5 else 0
        connect = Connect(
            version=self.version, client_id=self._client_id, clean_start=clean,
            session_expiry_s=expiry, will=will, **more,
        )  # fmt: skip
        self._world.connect(broker, self, connect)
        return self

    def lose(self, *, grace_s: int = 0) -> None:
        """Lose the connection, and let the broker know; it may have sent the device elsewhere."""
        broker, self.broker = self.broker, ""
        self._world.hang_up(broker, self, grace_s=grace_s)

    def vanish(self) -> None:
        """Lose the connection; the broker does not notice."""
        self.broker = ""

    def say(self, *packets: Packet) -> None:
        """Send packets."""
        if self.broker:
            self._world.said(self.broker, self, *packets)

    def subscribe(self, *filters: str, qos: int = 2, **more: Any) -> "Phone":
        """Subscribe."""
        requests = tuple(SubscriptionRequest(each, qos) for each in filters)
        self.say(Subscribe(self._id(), requests, **more))
        return self

    def unsubscribe(self, *filters: str) -> "Phone":
        """Unsubscribe."""
        self.say(Unsubscribe(self._id(), filters))
        return self

    def publish(self, topic: str, payload: str, qos: int = 2, **more: Any) -> "Phone":
        """Publish; if it is not connected, it does when it is."""
        packet = Publish(topic, payload.encode(), qos, packet_id=self._id() if qos else 0, **more)
        if qos:
            self._sent[packet.packet_id] = packet
        if self.connack is not None:
            self._to_send.append(packet)
            if self._to_send == [packet]:
                self._send()
        return self

    def _send(self) -> None:
        packets, self._to_send = self._to_send, []
        self.say(*packets)

    @property
    def is_done(self) -> bool:
        """Whether everything that it has published is acknowledged."""
        return not self._sent

    def _id(self) -> int:
        while True:
            self._next_id = self._next_id % 65_535 + 1
            if self._next_id not in self._sent:
                return self._next_id

    def receive(self, frame: Packets) -> None:
        """Packets have come; they go through bytes as well."""
        for packet in frame.packets:
            if isinstance(packet, Delivery):
                self._receive(packet)
                continue
            raw = encode(packet, self.version)
            if raw:
                (read,) = Decoder(Role.CLIENT, self.version).feed(raw)
                self.packets.append(read)
                self._on(read)

    def _on(self, packet: Packet) -> None:
        match packet:
            case Connack():
                self._welcomed(packet)
            case Puback():
                self._sent.pop(packet.packet_id, None)
            case Pubrec():
                if packet.packet_id in self._sent:
                    self._sent[packet.packet_id] = Pubrel(packet.packet_id)
                self._to_say.append(Pubrel(packet.packet_id))
            case Pubcomp():
                self._sent.pop(packet.packet_id, None)
            case Pubrel():
                self._got.discard(packet.packet_id)
                self._to_say.append(Pubcomp(packet.packet_id))
            case _:
                pass

    def _welcomed(self, packet: Connack) -> None:
        self.connack, self.is_present = packet, packet.session_present
        if packet.reason_code.is_failure:
            self.connack = None
            return
        if not packet.session_present:
            self._got.clear()
        for packet_id, sent in list(self._sent.items()):
            if isinstance(sent, Publish):
                again = Publish(
                    sent.topic, sent.payload, sent.qos, sent.retain,
                    dup=packet.session_present, packet_id=packet_id,
                )  # fmt: skip
                self._to_send.append(again)
            else:
                self._to_send.append(sent)

    def _receive(self, packet: Delivery) -> None:
        self.packets.append(packet)
        if packet.qos < 2 or packet.packet_id not in self._got:
            self.received.append(packet.publish.payload.decode())
            self.messages.append(packet)
        if packet.qos == 1:
            self._to_say.append(Puback(packet.packet_id))
        elif packet.qos:
            self._got.add(packet.packet_id)
            self._to_say.append(Pubrec(packet.packet_id))

    def work(self) -> bool:
        """Send what answers what came; whether there was something."""
        if not self.broker:
            return False
        if self._to_send:
            self._send()
            return True
        if not (self._to_say and self.answers):
            return False
        said, self._to_say = self._to_say, []
        self.say(*said)
        return True
