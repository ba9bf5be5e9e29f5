"""Devices that come and go: connections, wills, and sessions that outlast connections."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from sterna.core.actions import Action, Disconnect, Transmit
from sterna.core.inputs import Configured, Received
from sterna.core.names import NEVER, NodeId, Time
from sterna.core.settings import Settings
from sterna.devices.device import Device
from sterna.devices.frames import Deliveries, Delivery, Packets
from sterna.devices.inputs import DeviceConnected, DeviceLost, DeviceSaid, client_id_of
from sterna.devices.messages import Place
from sterna.devices.options import NEVER_S
from sterna.devices.retained import SECOND_US
from sterna.mqtt.packets import Connack, Packet, ReasonCode

if TYPE_CHECKING:
    from sterna.devices.hosting import Devices
    from sterna.devices.search import MovingDevice


class Visits:
    """What a broker does when devices come and go."""

    def __init__(self, devices: "Devices") -> None:
        self._devices = devices
        self._due: list[tuple[Time, NodeId]] = []
        """A heap of the times when something of a device is due; some may be over."""
        self._outgoing: dict[NodeId, list[Packet | Delivery | Deliveries]] = {}
        self._closing: dict[NodeId, None] = {}

    # ---- What goes out

    def take_outbox(self, device: Device) -> None:
        """Have what a session wants to send sent at the end of the turn."""
        session = device.session
        if session.outbox:
            self._outgoing.setdefault(device.name, []).extend(session.outbox)
            session.outbox.clear()

    def close(self, device: NodeId) -> None:
        """Have the connection of a device closed behind that."""
        self._closing[device] = None

    def release(self) -> Iterator[Action]:
        """What is to be sent and closed at the end of the turn."""
        outgoing, self._outgoing = self._outgoing, {}
        closing, self._closing = self._closing, {}
        for name, packets in outgoing.items():
            yield Transmit(name, Packets(tuple(packets)))
        for name in closing:
            yield Disconnect(name)

    # ---- Connections

    def connected(self, given: DeviceConnected, now: Time) -> None:
        """A device has connected."""
        connect, device = given.connect, self._devices.devices.get(given.device)
        if device is not None and device.session.is_connected:
            self.take_outbox(device)
            self.over(device, now)
            self._devices.work(device, now)
            self._outgoing.pop(device.name, None)  # It was for the connection that is over.
            device = self._devices.devices.get(given.device)
        if device is None:
            if not self._devices.search.waits(given, now):
                self.begin_anew(given, now)
        elif connect.clean_start or device.session.is_over:
            self._publish_will(device, now)
            device.renew(self._devices.options, now)
            self.welcome(device, given, now, is_present=False)
        else:
            self.welcome(device, given, now, is_present=True)

    def begin_anew(self, given: DeviceConnected, now: Time) -> None:
        """Welcome a device with a new session."""
        name = given.device
        self._devices.search.forget(name)
        epoch = self._devices.places.next_epoch(name, now)
        self._devices.note(Place(name, self._devices.broker.id, epoch))
        self.welcome(self._devices.new_device(name, now), given, now, is_present=False)

    def turn_away(self, name: NodeId, refusal: Connack) -> None:
        """Refuse a device that has waited."""
        self._outgoing[name] = [refusal]
        self.close(name)

    def welcome(
        self, device: Device, given: DeviceConnected, now: Time, *, is_present: bool
    ) -> None:
        """Welcome a device."""
        session = device.session
        device.will_at = device.ends_at = NEVER
        session.connect(given.connect)
        assigned = client_id_of(given.device) if given.is_assigned else None
        session.welcome(given.connect, is_present=is_present, assigned=assigned)
        if is_present:
            session.send_again(now)
            session.subscriptions.be_active(is_active=True)
        self._devices.touch(device.name)
        device.attach(now)

    def said(self, given: DeviceSaid, now: Time) -> None:
        """A device has sent packets."""
        device = self._devices.devices.get(given.device)
        if device is not None and device.session.is_connected:
            self._devices.touch(device.name)
            device.session.take(given.packets, now)

    def lost(self, given: DeviceLost, now: Time) -> None:
        """A connection has broken."""
        device = self._devices.devices.get(given.device)
        if device is None:
            self._devices.search.lost(given.device)
        elif device.session.is_connected:
            self.over(device, now, grace_s=given.grace_s)

    def over(self, device: Device, now: Time, *, grace_s: int = 0) -> None:
        """The connection of a device is over; its will waits for `grace_s` at least."""
        session = device.session
        session.disconnected()
        will = session.will
        if will is not None:
            delay_s = min(max(will.delay_s, grace_s), session.expiry_s)
            if delay_s:
                device.will_at = now + delay_s * SECOND_US
                self.look_at(device.name, device.will_at)
            else:
                self._publish_will(device, now)
        if not session.expiry_s:
            device.leave(now)
        else:
            self._pass_on(device, now)
            self.leave_away(device, now)
        self._devices.touch(device.name)

    def leave_away(self, device: Device, now: Time) -> None:
        """Keep the session of a device that is not connected."""
        device.detach(now)
        if device.session.expiry_s != NEVER_S:
            device.ends_at = now + device.session.expiry_s * SECOND_US
            self.look_at(device.name, device.ends_at)

    # ---- Sessions that move

    def take_over(self, device: Device, now: Time) -> None:
        """The device is at another broker now. It is not gone, so its will is not published."""
        session = device.session
        device.will_at = device.ends_at = NEVER
        session.take_will()
        if session.is_connected:
            session.refuse(ReasonCode.SESSION_TAKEN_OVER, "the session is at another broker now")
            self.take_outbox(device)
            self.close(device.name)
            session.disconnected()
            if not session.expiry_s:
                device.leave(now)
        self._devices.touch(device.name)
        self._pass_on(device, now)
        if not session.is_over:
            device.detach(now)

    def receive(
        self, name: NodeId, moving: "MovingDevice", settings: Settings, now: Time
    ) -> Device:
        """A session has come from another broker."""
        clients = self._devices.clients
        made = clients.restored(name, moving.client, settings)
        device = Device(self._devices, made, self._devices.options)
        self._devices.devices[name] = device
        device.session.restore(moving.session)
        device.time = moving.time
        if settings != clients.settings:
            device.give(Configured(settings=clients.settings), now)
        return device

    def _pass_on(self, device: Device, now: Time) -> None:
        """Give the broker what a client has sent."""
        while frames := device.take_frames():
            self._devices.run(Received(link=device.name, frames=frames), now)
            device.work(now)

    # ---- What is due

    def look_at(self, name: NodeId, time: Time) -> None:
        """Look at a device at a time."""
        heappush(self._due, (time, name))

    @property
    def next_due(self) -> Time | None:
        """When something is due next, if anything is."""
        return self._due[0][0] if self._due else None

    def look(self, now: Time) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= now:
            _, name = heappop(self._due)
            device = self._devices.devices.get(name)
            if device is None:
                self._devices.search.look(name, now)
                continue
            self._devices.touch(name)
            if device.will_at <= now:
                self._publish_will(device, now)
            if device.ends_at <= now:
                device.ends_at = NEVER
                self._publish_will(device, now)
                device.attach(now)
                device.leave(now)

    def _publish_will(self, device: Device, now: Time) -> None:
        """Publish the will of a device, if it is due or the session ends."""
        device.will_at = NEVER
        will = device.session.take_will()
        if will is None:
            return
        was_attached = device.is_attached
        device.attach(now)
        self._pass_on(device, now)
        device.session.publish_will(will, now)
        self._pass_on(device, now)
        if not was_attached:
            device.detach(now)
