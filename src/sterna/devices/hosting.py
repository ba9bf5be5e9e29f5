"""A broker's devices: each with a session of MQTT and a client of the core inside the broker.

What comes from devices are inputs of the broker, so it is in the broker's log, and what answers it
is held back until it is durable. A device that is away has a client that is away, for which the
broker keeps what comes, as for any other.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from sterna.core.actions import Action, Disconnect, Reconnect, Transmit
from sterna.core.inputs import Configured, Input, LinkGone, Received
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, LocalProtocolError, NodeId, Time
from sterna.core.node import Turn
from sterna.core.protocol import Protocol, register
from sterna.core.settings import Settings
from sterna.core.sizes import NO_LOAD, Load
from sterna.devices.announcing import Announcing
from sterna.devices.clients import Clients
from sterna.devices.device import Device
from sterna.devices.group import GROUP
from sterna.devices.hosted import Hosted
from sterna.devices.inputs import DeviceConnected, DeviceLost, DeviceSaid
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
from sterna.devices.options import PROTOCOL, DeviceOptions
from sterna.devices.search import Search
from sterna.devices.sending import Messages
from sterna.devices.sharing import GroupHost, Sharing
from sterna.devices.snapshots import KeptDevices, keep, restore
from sterna.devices.testimony import Testimony
from sterna.devices.visits import Visits
from sterna.mqtt.packets import ReasonCode


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
        self._given: deque[Input | Message] = deque()
        """What is left to do in this turn."""
        self._dirty: dict[NodeId, None] = {}
        """The devices for which something is left to do."""
        self.messages = Messages()
        """The events of this turn as messages."""
        self.clients = Clients(self)
        self.testimony = Testimony(is_wanted=self.options.journal)
        self.search = Search(self)
        self.sharing = Sharing(self)
        self.visits = Visits(self)
        self._turn: Turn
        self._do: dict[type[Input | Message], Callable[[Any, Time], None]] = {
            DeviceConnected: self.visits.connected,
            DeviceSaid: self.visits.said,
            DeviceLost: self.visits.lost,
            _Cut: self._cut,
            _Ended: self._ended,
            _Due: lambda _, now: self.visits.look(now),
            _Displaced: self._displaced,
            SessionAsked: self.search.asked,
            SessionMoved: self.search.moved,
            SessionElsewhere: self.search.elsewhere,
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
        was_wanted, self.testimony.is_wanted = self.testimony.is_wanted, self.options.journal
        for hosted in (*self.devices.values(), *self.groups.values()):
            hosted.machine.options = self.options
            if not was_wanted:
                hosted.begin_record(now)
            hosted.give(Configured(settings=self.clients.settings), now)
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
        return [*here, *self.search.connected]

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
        return broker in self.search.members.brokers()

    def touch(self, name: NodeId) -> None:
        """Have what is left to do for a device done in this turn."""
        self._dirty[name] = None

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
                    self.work(hosted, now)
            if not (self._given or self._dirty):
                self.sharing.gather()
                if self.has_mail:
                    self.run(_Send(), now)
        turn.actions += self.visits.release()
        turn.facts += self.testimony.take()
        self.messages.clear()
        due = self.visits.next_due
        if due is not None:
            self.wake_by(due)

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

    def work(self, hosted: Hosted, now: Time) -> None:
        """Do all that can be done for a device or a group now."""
        while True:
            hosted.work(now)
            frames = hosted.take_frames()
            if not frames:
                break
            self.run(Received(link=hosted.name, frames=frames), now)
        if isinstance(hosted, GroupHost):
            self.sharing.give(hosted)
        if hosted.has_left and not hosted.is_attached:
            self._finish(hosted, now)
        elif isinstance(hosted, Device) and (hosted.session.outbox or hosted.session.closes):
            self.visits.take_outbox(hosted)
            if hosted.session.closes:
                self.visits.close(hosted.name)
                self.visits.over(hosted, now)

    # ---- Clients inside

    def new_device(self, name: NodeId, now: Time) -> Device:
        """A device that the network does not know."""
        device = self.devices[name] = Device(self, self.clients.new(name, now), self.options)
        device.begin_record(now)
        return device

    def new_group(self, name: NodeId, now: Time) -> GroupHost:
        """A group that the network does not know."""
        host = self.groups[name] = GroupHost(self, self.clients.new(name, now), self.options)
        host.begin_record(now)
        return host

    def _displaced(self, given: _Displaced, now: Time) -> None:
        """The session of a device is at another broker now, which has not got it from here."""
        device = self.devices.get(given.device)
        if device is not None:
            self.visits.take_over(device, now)
            device.detach(now)
            self.visits.take_outbox(device)
            del self.devices[given.device]
        group = self.groups.pop(given.device, None)
        if group is not None:
            group.detach(now)

    def _cut(self, given: _Cut, now: Time) -> None:
        hosted = self._hosted(given.device)
        if hosted is not None:
            self._dirty[hosted.name] = None
            hosted.restarted(now)
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
            self.visits.take_outbox(device)
            if device.session.is_connected:
                self.visits.close(device.name)
            del self.devices[device.name]
        elif device.session.is_connected:
            device.attach(now)

    def _finish(self, hosted: Hosted, now: Time) -> None:
        """A session or a group is over, and its client has left."""
        name = hosted.name
        if isinstance(hosted, Device):
            self.visits.take_outbox(hosted)
        self.devices.pop(name, None)
        self.groups.pop(name, None)
        if self.search.is_here(name):
            self.note(Place(name, "", self.places.next_epoch(name, now)))
        if name in self.broker.peers:
            self.run(LinkGone(link=name), now)

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptDevices:
        return keep(self, writer)

    def restore(self, kept: KeptDevices, reader: Reader) -> None:
        restore(self, kept, reader)


DEVICES = register(Protocol(name=PROTOCOL, broker=Devices))
