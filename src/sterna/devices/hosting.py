"""A broker's devices: each with a session of MQTT and a client of the core inside the broker.

What comes from devices are inputs of the broker, so it is in the broker's log, and what answers it
is held back until it is durable. A device that is away has a client that is away, for which the
broker keeps what comes, as for any other.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Self

import msgspec

from sterna.core.actions import Action, Disconnect, Reconnect, Transmit
from sterna.core.assembly import client_settings, make_client
from sterna.core.client import Client
from sterna.core.inputs import Configured, Input, LinkGone, Received
from sterna.core.keeping import Reader, Writer
from sterna.core.link import LinkTiming
from sterna.core.lives import NOTHING_KNOWN, first_seq, incarnation
from sterna.core.messages import Message
from sterna.core.names import NEVER, LinkId, LocalProtocolError, NodeId, Time
from sterna.core.node import Turn
from sterna.core.protocol import Protocol, register
from sterna.core.settings import Settings
from sterna.core.sizes import NO_LOAD, Load
from sterna.devices.announcing import Announcing
from sterna.devices.device import Device
from sterna.devices.frames import Delivery, Packets
from sterna.devices.group import GROUP, KeptGroup
from sterna.devices.hosted import Hosted
from sterna.devices.inputs import DeviceConnected, DeviceLost, DeviceSaid, client_id_of
from sterna.devices.kept import KeptSession
from sterna.devices.messages import (
    Place,
    RetainedNoted,
    SessionAsked,
    SessionElsewhere,
    SessionMoved,
    SessionsNoted,
    ShareEnded,
    ShareGiven,
    ShareJoined,
    ShareLeft,
)
from sterna.devices.options import NEVER_S, PROTOCOL, DeviceOptions
from sterna.devices.retained import (
    SECOND_US,
    KeptRetained,
)
from sterna.devices.search import KeptSearch, Search
from sterna.devices.sharing import GroupHost, Sharing
from sterna.model.event import EventId
from sterna.mqtt.packets import Connack, Packet, Publish, ReasonCode
from sterna.wire.snapshots import encode_node, restore_node

INSIDE = LinkTiming(resend_us=None, ack_delay_us=0)
"""Between a broker and a client inside it, nothing gets lost."""


class KeptDevice(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a device."""

    name: NodeId
    session: KeptSession
    client: bytes
    is_attached: bool
    is_over: bool
    will_at: Time
    ends_at: Time


class KeptGroupHost(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a group."""

    name: NodeId
    group: KeptGroup
    client: bytes
    is_attached: bool
    is_over: bool


class KeptDevices(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a broker's devices."""

    devices: list[KeptDevice]
    groups: list[KeptGroupHost]
    lives: dict[NodeId, int]
    search: KeptSearch
    retained: KeptRetained


class _Cut(Input, frozen=True, kw_only=True):
    """The broker has ended the link of a device's client."""

    device: NodeId


class _Ended(Input, frozen=True, kw_only=True):
    """The broker ends the connection of a device's client."""

    action: Disconnect | Reconnect


class _Displaced(Input, frozen=True, kw_only=True):
    """The session of a device is at another broker now."""

    device: NodeId


class _Regrouped(Input, frozen=True, kw_only=True):
    """A group is at another broker now."""

    group: NodeId


class _Send(Input, frozen=True, kw_only=True):
    """Other brokers are to be sent what has gathered for them."""


class _Due(Input, frozen=True, kw_only=True):
    """Something is due."""


class Devices(Announcing):
    """Hosts devices, and gives them and the broker what is for the other."""

    name = PROTOCOL
    handles = (
        *(RetainedNoted, SessionsNoted, SessionAsked, SessionMoved, SessionElsewhere),
        *(ShareJoined, ShareLeft, ShareGiven, ShareEnded),
    )
    Kept = KeptDevices
    needs_post = True

    def __init__(self, options: DeviceOptions | None = None) -> None:
        super().__init__(options or DeviceOptions())
        self.devices: dict[NodeId, Device] = {}
        self.ignored: Counter[str] = Counter()
        """How often something in a message was not used: for metrics, and no part of its state."""
        self.groups: dict[NodeId, GroupHost] = {}
        """The shared subscriptions that are here."""
        self._lives: dict[NodeId, int] = {}
        """The clients that were made within the last tick, with their incarnations."""
        self._due: list[tuple[Time, NodeId]] = []
        """A heap of the times when something of a device is due; some may be over."""
        self._given: deque[Input | Message] = deque()
        """What is left to do in this turn."""
        self._dirty: dict[NodeId, None] = {}
        """The devices for which something is left to do."""
        self._outgoing: dict[NodeId, list[Packet | Delivery]] = {}
        self._closing: dict[NodeId, None] = {}
        self._published: dict[EventId, Publish | None] = {}
        """The events of this turn as messages."""
        self._search = Search(self)
        self.sharing = Sharing(self)
        self._turn: Turn
        self._settings: tuple[Settings, Settings] | None = None
        self._do: dict[type[Input | Message], Callable[[Any, Time], None]] = {
            DeviceConnected: self._connected,
            DeviceSaid: self._said,
            DeviceLost: self._lost,
            _Cut: self._cut,
            _Ended: self._ended,
            _Due: self._look,
            _Displaced: self._displaced,
            SessionAsked: self._search.asked,
            SessionMoved: self._search.moved,
            SessionElsewhere: self._search.elsewhere,
            ShareJoined: self.sharing.joined,
            ShareLeft: self.sharing.left,
            ShareGiven: self.sharing.given,
            ShareEnded: self.sharing.settled,
            _Regrouped: lambda given, _now: self.sharing.moved(given.group),
        }

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(PROTOCOL, DeviceOptions))

    def configure(self, settings: Settings, now: Time) -> None:
        self.options = settings.options_of(PROTOCOL, DeviceOptions)
        for hosted in (*self.devices.values(), *self.groups.values()):
            hosted.machine.options = self.options
            hosted.give(Configured(settings=self.client_settings), now)
            self._dirty[hosted.name] = None

    def end(self, now: Time) -> bool:
        """Devices stay as long as there are any."""
        del now
        return not (self.devices or self.groups)

    def inputs(self) -> dict[type[Input], Callable[[Any, Time], None]]:
        return {
            DeviceConnected: self._take,
            DeviceSaid: self._take,
            DeviceLost: self._take,
            _Send: lambda _, now: self.send_mail(now),
        }

    def _take(self, given: Input, _now: Time) -> None:
        self._given.append(given)

    def wake(self, _now: Time) -> None:
        self._given.append(_Due())

    def link_down(self, link: LinkId, _now: Time) -> None:
        hosted = self._hosted(link)
        if hosted is not None and hosted.is_attached:
            self._given.append(_Cut(device=link))

    @property
    def connected(self) -> list[NodeId]:
        """The devices that are connected."""
        here = [each.name for each in self.devices.values() if each.session.is_connected]
        return [*here, *self._search.connected]

    def kept(self, link: LinkId) -> Load:
        hosted = self._hosted(link)
        return NO_LOAD if hosted is None else hosted.machine.load

    def _hosted(self, name: NodeId) -> Hosted | None:
        """A device or a group that is here."""
        return self.devices.get(name) or self.groups.get(name)

    # ---- Other brokers

    def placed(self, place: Place) -> None:
        if self._hosted(place.device) is not None and place.broker != self.broker.id:
            self._given.append(_Displaced(device=place.device))
        if place.device.startswith(GROUP):
            self._given.append(_Regrouped(group=place.device))

    def on_session_asked(self, message: SessionAsked, _link: LinkId, _now: Time) -> None:
        """Another broker wants a session."""
        self._given.append(message)

    def on_session_moved(self, message: SessionMoved, _link: LinkId, _now: Time) -> None:
        """A session has come."""
        self._given.append(message)

    def on_session_elsewhere(self, message: SessionElsewhere, _link: LinkId, _now: Time) -> None:
        """A session is not where it was looked for."""
        self._given.append(message)

    def on_share_joined(self, message: ShareJoined, _link: LinkId, _now: Time) -> None:
        """A member of a group is somewhere."""
        self._given.append(message)

    def on_share_left(self, message: ShareLeft, _link: LinkId, _now: Time) -> None:
        """A member of a group has left."""
        self._given.append(message)

    def on_share_given(self, message: ShareGiven, _link: LinkId, _now: Time) -> None:
        """A group has given messages to a member."""
        self._given.append(message)

    def on_share_ended(self, message: ShareEnded, _link: LinkId, _now: Time) -> None:
        """Members are done with messages, or give them back."""
        self._given.append(message)

    def is_member(self, broker: NodeId) -> bool:
        """Whether a broker belongs to the network, as far as this one knows."""
        return broker in self._search.members.brokers()

    def touch(self, name: NodeId) -> None:
        """Have what is left to do for a device done in this turn."""
        self._dirty[name] = None

    def new_group(self, name: NodeId, now: Time) -> GroupHost:
        """A group that the network does not know."""
        host = self.groups[name] = GroupHost(self, self._new_client(name, now), self.options)
        return host

    # ---- Turns

    def exchange(self, turn: Turn, now: Time) -> None:
        if not (self.devices or self.groups or self._given):
            return
        self._turn = turn
        try:
            self._exchange(turn, now)
        except LocalProtocolError as error:  # Nobody has asked for anything by a call.
            raise RuntimeError(f"a device of {self.broker.id} failed: {error}") from error

    def _exchange(self, turn: Turn, now: Time) -> None:
        actions, turn.actions = turn.actions, []
        self._sort(actions)
        while self._given or self._dirty or self.has_mail or self.sharing.has_news:
            while self._given:
                given = self._given.popleft()
                self._do[type(given)](given, now)
            if self._dirty:
                name = next(iter(self._dirty))
                del self._dirty[name]
                hosted = self._hosted(name)
                if hosted is not None:
                    self._work(hosted, now)
            if not (self._given or self._dirty):
                self.sharing.gather()
                if self.has_mail:
                    self.run(_Send(), now)
        self._release()
        if self._due:
            self.wake_by(self._due[0][0])

    def run(self, given: Input, now: Time) -> None:
        """Give the broker an input, as a part of the present turn."""
        part = self.broker.handle_within(given, now)
        self._turn.facts += part.facts
        self._sort(part.actions)

    def _sort(self, actions: Sequence[Action]) -> None:
        """Take out what is for devices."""
        devices, groups, outside = self.devices, self.groups, self._turn.actions
        for action in actions:
            if type(action) is Transmit or isinstance(action, Disconnect | Reconnect):
                hosted = devices.get(action.link) or groups.get(action.link)
                if hosted is not None:
                    self._dirty[hosted.name] = None
                    if type(action) is Transmit:
                        hosted.arrived(action.frame)
                    elif not isinstance(action, Transmit):
                        self._given.append(_Ended(action=action))
                    continue
            outside.append(action)

    def _work(self, hosted: Hosted, now: Time) -> None:
        """Do all that can be done for a device or a group now."""
        while True:
            hosted.work(self._published, now)
            frames = hosted.take_frames()
            if not frames:
                break
            self.run(Received(link=hosted.name, frames=frames), now)
        if isinstance(hosted, GroupHost):
            self.sharing.give(hosted)
        if hosted.has_left and not hosted.is_attached:
            self._finish(hosted, now)
        elif isinstance(hosted, Device) and (hosted.session.outbox or hosted.session.closes):
            self._take_outbox(hosted)
            if hosted.session.closes:
                self._closing[hosted.name] = None
                self._over(hosted, now)

    def _take_outbox(self, device: Device) -> None:
        session = device.session
        if session.outbox:
            self._outgoing.setdefault(device.name, []).extend(session.outbox)
            session.outbox.clear()

    def _release(self) -> None:
        """Send devices what was gathered for them."""
        actions = self._turn.actions
        for name, packets in self._outgoing.items():
            actions.append(Transmit(name, Packets(tuple(packets))))
        actions += [Disconnect(name) for name in self._closing]
        self._outgoing.clear()
        self._closing.clear()
        self._published.clear()

    # ---- Connections

    def _connected(self, given: DeviceConnected, now: Time) -> None:
        connect, device = given.connect, self.devices.get(given.device)
        if device is not None and device.session.is_connected:
            self._take_outbox(device)
            self._over(device, now)
            self._work(device, now)
            self._outgoing.pop(device.name, None)  # It was for the connection that is over.
            device = self.devices.get(given.device)
        if device is None:
            if not self._search.waits(given, now):
                self.begin_anew(given, now)
        elif connect.clean_start or device.session.is_over:
            self._publish_will(device, now)
            device.renew(self.options, now)
            self.welcome(device, given, now, is_present=False)
        else:
            self.welcome(device, given, now, is_present=True)

    def begin_anew(self, given: DeviceConnected, now: Time) -> None:
        """Welcome a device with a new session."""
        name = given.device
        self._search.forget(name)
        epoch = self.places.next_epoch(name, now)
        self.note(Place(name, self.broker.id, epoch))
        self.welcome(self._new(name, now), given, now, is_present=False)

    def turn_away(self, name: NodeId, refusal: Connack) -> None:
        """Refuse a device that has waited."""
        self._outgoing[name] = [refusal]
        self._closing[name] = None

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
        self._dirty[device.name] = None
        device.attach(now)

    def _new(self, name: NodeId, now: Time) -> Device:
        """A device that the network does not know."""
        device = self.devices[name] = Device(self, self._new_client(name, now), self.options)
        return device

    def _new_client(self, name: NodeId, now: Time) -> Client:
        """A client that begins a life, above all earlier ones that are known."""
        earlier = self.broker.earlier(name, now)
        number = max(self._lives.pop(name, 0) + 1, incarnation(now, earlier))
        self._lives[name] = number
        tick = incarnation(now, NOTHING_KNOWN)
        while self._lives[oldest := next(iter(self._lives))] < tick and oldest != name:
            del self._lives[oldest]
        return self._client(name, number, first_seq(now, earlier))

    def _client(self, name: NodeId, number: int = 0, seq: int = 0) -> Client:
        return make_client(name, self.client_settings, timing=INSIDE, incarnation=number, seq=seq)

    @property
    def client_settings(self) -> Settings:
        """The settings of clients, which are the same for all of them."""
        if self._settings is None or self._settings[0] is not self.broker.settings:
            self._settings = self.broker.settings, client_settings(self.broker.settings)
        return self._settings[1]

    def _said(self, given: DeviceSaid, now: Time) -> None:
        device = self.devices.get(given.device)
        if device is not None and device.session.is_connected:
            self._dirty[device.name] = None
            device.session.take(given.packets, now)

    def _lost(self, given: DeviceLost, now: Time) -> None:
        device = self.devices.get(given.device)
        if device is None:
            self._search.lost(given.device)
        elif device.session.is_connected:
            self._over(device, now)

    def _over(self, device: Device, now: Time) -> None:
        """The connection of a device is over."""
        session = device.session
        session.disconnected()
        will = session.will
        if will is not None:
            delay_s = min(will.delay_s, session.expiry_s)
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
        self._dirty[device.name] = None

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
            self._take_outbox(device)
            self._closing[device.name] = None
            session.disconnected()
            if not session.expiry_s:
                device.leave(now)
        self._dirty[device.name] = None
        self._pass_on(device, now)
        if not session.is_over:
            device.detach(now)

    def receive(
        self, name: NodeId, kept: KeptSession, client: bytes, settings: Settings, now: Time
    ) -> Device:
        """A session has come from another broker."""
        made = make_client(name, settings, timing=INSIDE)
        device = Device(self, restore_node(client, made), self.options)
        self.devices[name] = device
        device.session.restore(kept)
        if settings != self.client_settings:
            device.give(Configured(settings=self.client_settings), now)
        return device

    def _displaced(self, given: _Displaced, now: Time) -> None:
        """The session of a device is at another broker now, which has not got it from here."""
        device = self.devices.get(given.device)
        if device is not None:
            self.take_over(device, now)
            device.detach(now)
            self._take_outbox(device)
            del self.devices[given.device]
        group = self.groups.pop(given.device, None)
        if group is not None:
            group.detach(now)

    def _pass_on(self, device: Device, now: Time) -> None:
        """Give the broker what a client has sent."""
        while frames := device.take_frames():
            self.run(Received(link=device.name, frames=frames), now)
            device.work(self._published, now)

    def _cut(self, given: _Cut, now: Time) -> None:
        hosted = self._hosted(given.device)
        if hosted is not None:
            self._dirty[hosted.name] = None
            hosted.lost(now)
            if isinstance(hosted, GroupHost) and hosted.group.has_active:
                hosted.attach(now)  # After a restart; its members are at other brokers.

    def _ended(self, given: _Ended, now: Time) -> None:
        """The broker has ended the link of a client."""
        group = self.groups.get(given.action.link)
        if group is not None:
            group.lost(now)
            if group.group.has_active:
                group.attach(now)
        device = self.devices.get(given.action.link)
        if device is None:
            return
        device.lost(now)
        if isinstance(given.action, Disconnect) and given.action.taken_over:
            device.session.refuse(ReasonCode.SESSION_TAKEN_OVER, "the session is elsewhere now")
            self._take_outbox(device)
            if device.session.is_connected:
                self._closing[device.name] = None
            del self.devices[device.name]
        elif device.session.is_connected:
            device.attach(now)

    def _finish(self, hosted: Hosted, now: Time) -> None:
        """A session or a group is over, and its client has left."""
        name = hosted.name
        if isinstance(hosted, Device):
            self._take_outbox(hosted)
        self.devices.pop(name, None)
        self.groups.pop(name, None)
        if self._search.is_here(name):
            self.note(Place(name, "", self.places.next_epoch(name, now)))
        if name in self.broker.peers:
            self.run(LinkGone(link=name), now)

    # ---- What is due

    def look_at(self, name: NodeId, time: Time) -> None:
        """Look at a device at a time."""
        heappush(self._due, (time, name))

    def _look(self, _given: _Due, now: Time) -> None:
        while self._due and self._due[0][0] <= now:
            _, name = heappop(self._due)
            device = self.devices.get(name)
            if device is None:
                self._search.look(name, now)
                continue
            self._dirty[name] = None
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

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptDevices:
        writer.more(len(self.devices))
        return KeptDevices(
            devices=[
                KeptDevice(
                    name=device.name,
                    session=device.session.keep(),
                    client=encode_node(device.client),
                    is_attached=device.is_attached,
                    is_over=device.session.is_over,
                    will_at=device.will_at,
                    ends_at=device.ends_at,
                )
                for device in self.devices.values()
            ],
            groups=[
                KeptGroupHost(
                    name=host.name,
                    group=host.group.keep(),
                    client=encode_node(host.client),
                    is_attached=host.is_attached,
                    is_over=host.group.is_over,
                )
                for host in self.groups.values()
            ],
            lives=dict(self._lives),
            search=self._search.keep(),
            retained=self.retained_messages.keep(writer),
        )

    def restore(self, kept: KeptDevices, reader: Reader) -> None:
        self.retained_messages.restore(kept.retained, reader)
        self._lives = dict(kept.lives)
        self._search.restore(kept.search)
        for each in kept.devices:
            client = restore_node(each.client, self._client(each.name))
            device = self.devices[each.name] = Device(self, client, self.options)
            device.session.restore(each.session)
            device.session.is_over = each.is_over
            device.is_attached = each.is_attached
            device.will_at, device.ends_at = each.will_at, each.ends_at
            if each.is_attached:
                device.restore_transit(self.broker.on_its_way(each.name))
            for time in (each.will_at, each.ends_at):
                if time != NEVER:
                    self.look_at(device.name, time)
        for group in kept.groups:
            client = restore_node(group.client, self._client(group.name))
            host = self.groups[group.name] = GroupHost(self, client, self.options)
            host.group.restore(group.group)
            host.group.is_over = group.is_over
            host.is_attached = group.is_attached
            if group.is_attached:
                host.restore_transit(self.broker.on_its_way(group.name))


DEVICES = register(Protocol(name=PROTOCOL, broker=Devices))
