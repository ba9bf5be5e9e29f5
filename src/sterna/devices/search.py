"""Sessions follow their devices from broker to broker.

All brokers know where the session of each device is. A broker to which a device comes asks there
for it. The old broker ends the connection that the device may still have there, and hands over all
that the session consists of: then nothing of it is left there. What the old broker keeps for the
client inside follows by the handover protocol of the network, as for any client that roams.

If the old broker does not answer, the device is refused after a while, and tries again. Once it has
tried for long enough, it gets a new session. Whoever finds out that there is a later place of a
session than its own gives it up.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from sterna.core.names import NodeId, Time
from sterna.core.overlay.members import Members
from sterna.core.overlay.messages import Unicast
from sterna.core.settings import Settings
from sterna.devices.device import Device
from sterna.devices.inputs import DeviceConnected
from sterna.devices.kept import KeptSession
from sterna.devices.messages import Place, SessionAsked, SessionElsewhere, SessionMoved
from sterna.devices.retained import SECOND_US
from sterna.mqtt.packets import Connack, ReasonCode
from sterna.wire.codec import from_msgpack, to_msgpack
from sterna.wire.frames import digest
from sterna.wire.snapshots import encode_node

if TYPE_CHECKING:
    from sterna.devices.hosting import Devices

FIRST_TRIES_MAX = 10_000
"""So many devices whose sessions cannot be reached are remembered."""


class MovingDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A session on its way to another broker."""

    session: KeptSession
    client: bytes
    settings: Settings | None
    """The settings of the client, if those of the new broker are others."""
    time: Time = 0
    """When anything was stated of the client last."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A device that waits for its session."""

    given: DeviceConnected
    asked: NodeId
    until: Time


class KeptSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of the search for sessions."""

    places: list[Place]
    waiting: list[Waiting]
    coming: dict[NodeId, NodeId]
    questions: list[tuple[NodeId, NodeId, str]]
    tries: dict[NodeId, Time]


class Question(NamedTuple):
    """Another broker wants a session."""

    sender: NodeId
    digest: str


class Search:
    """Finds sessions at other brokers, and hands over those that others ask for."""

    def __init__(self, devices: "Devices") -> None:
        self.places = devices.places
        self._devices = devices
        self._waiting: dict[NodeId, Waiting] = {}
        self._coming: dict[NodeId, NodeId] = {}
        """Sessions that were asked for and have not come, with the broker that was asked."""
        self._questions: dict[NodeId, Question] = {}
        """Who has asked for sessions that have not come."""
        self._tries: dict[NodeId, Time] = {}
        """When devices first tried whose sessions cannot be reached."""

    # ---- At the new broker

    @property
    def _here(self) -> NodeId:
        return self._devices.broker.id

    @property
    def connected(self) -> list[NodeId]:
        """The devices that wait."""
        return list(self._waiting)

    def waits(self, given: DeviceConnected, now: Time) -> bool:
        """Whether a device that is not here has to wait for its session; then it was asked for."""
        device = given.device
        if given.connect.clean_start:
            return False
        asked = self._coming.get(device)
        if asked is None:
            place = self.places.get(device)
            if place is None or not place.broker or place.broker == self._here:
                return False
            if place.broker not in self.members.brokers():
                return False  # It has left the network for good.
            asked = place.broker
            if self._has_tried_enough(device, now):
                return False
            self._ask(device, asked)
        elif self._has_tried_enough(device, now):
            return False
        until = now + round(self._devices.options.search_s * SECOND_US)
        self._waiting[device] = Waiting(given=given, asked=asked, until=until)
        self._devices.visits.look_at(device, until)
        return True

    def is_here(self, device: NodeId) -> bool:
        """Whether this broker is the latest place of a session."""
        place = self.places.get(device)
        return place is not None and place.broker == self._here

    @property
    def members(self) -> Members:
        """The network as the broker knows it."""
        return cast("Members", self._devices.broker.part(Members.name))

    def _has_tried_enough(self, device: NodeId, now: Time) -> bool:
        give_up_us = round(self._devices.options.give_up_s * SECOND_US)
        if len(self._tries) >= FIRST_TRIES_MAX and device not in self._tries:
            del self._tries[next(iter(self._tries))]
        first = self._tries.setdefault(device, now)
        return now >= first + give_up_us

    def _ask(self, device: NodeId, broker: NodeId) -> None:
        self._coming[device] = broker
        asked = SessionAsked(
            to=broker,
            sender=self._here,
            device=device,
            digest=digest(self._devices.clients.settings),
        )
        self._devices.send(asked)

    def lost(self, device: NodeId) -> None:
        """A device that waits has gone; what was asked for may come nevertheless."""
        self._waiting.pop(device, None)

    def forget(self, device: NodeId) -> None:
        """A device has a new session: what was asked for is of no use."""
        self._waiting.pop(device, None)
        self._coming.pop(device, None)
        self._tries.pop(device, None)

    def look(self, device: NodeId, now: Time) -> None:
        """Refuse a device that has waited long enough."""
        waiting = self._waiting.get(device)
        if waiting is None or waiting.until > now:
            return
        if self._has_tried_enough(device, now):
            self._devices.visits.begin_anew(waiting.given, now)
            return
        del self._waiting[device]
        what = f"the session is at {waiting.asked}, which does not answer"
        refusal = Connack(reason_code=ReasonCode.SERVER_UNAVAILABLE, reason_string=what)
        self._devices.visits.turn_away(device, refusal)

    def moved(self, message: SessionMoved, now: Time) -> None:
        """A session has come."""
        device, epoch = message.device, message.epoch
        self._coming.pop(device, None)
        self._tries.pop(device, None)
        place = self.places.get(device)
        is_old = place is not None and (place.epoch, place.broker) > (epoch, self._here)
        if is_old or device in self._devices.devices:
            self._answer_question(device, now)
            return  # The device has got another one meanwhile.
        self._devices.note(Place(device, self._here, epoch))
        moving = from_msgpack(message.state, MovingDevice)
        settings = moving.settings or self._devices.clients.settings
        session = self._devices.visits.receive(device, moving, settings, now)
        waiting = self._waiting.pop(device, None)
        if waiting is not None:
            self._devices.visits.welcome(session, waiting.given, now, is_present=True)
        else:
            self._devices.visits.leave_away(session, now)
        self._answer_question(device, now)

    def elsewhere(self, message: SessionElsewhere, now: Time) -> None:
        """A session is not where it was looked for."""
        place = message.place
        device = place.device
        if self._coming.get(device) != message.sender:
            return
        del self._coming[device]
        self._devices.note(place)
        known = self.places.get(device) or place
        if known.broker and known.broker not in (self._here, message.sender):
            self._ask(device, known.broker)
            return
        waiting = self._waiting.get(device)
        if waiting is not None:
            self._devices.visits.begin_anew(waiting.given, now)
        self._answer_question(device, now)

    # ---- At the old broker

    def asked(self, message: SessionAsked, now: Time) -> None:
        """Another broker wants a session."""
        self._answer(message.device, Question(message.sender, message.digest), now)

    def _answer_question(self, device: NodeId, now: Time) -> None:
        """Answer who has asked for a session before it came."""
        question = self._questions.pop(device, None)
        if question is not None:
            self._answer(device, question, now)

    def _answer(self, name: NodeId, question: Question, now: Time) -> None:
        device = self._devices.devices.get(name)
        if device is not None and not device.session.is_over:
            self._devices.visits.take_over(device, now)
            device = self._devices.devices.get(name)
        if device is not None and not device.session.is_over:
            self._devices.send(self._hand_over(device, question, now))
        elif name in self._coming:
            self._questions[name] = question
        else:
            place = self.places.get(name)
            if place is None or place.broker == self._here:
                place = Place(name, "", self.places.next_epoch(name, now))
            answer = SessionElsewhere(to=question.sender, sender=self._here, place=place)
            self._devices.send(answer)

    def _hand_over(self, device: Device, question: Question, now: Time) -> Unicast:
        """Give up a session: it is what this says, and no more."""
        name, settings = device.name, self._devices.clients.settings
        moving = MovingDevice(
            session=device.session.keep(),
            client=encode_node(device.client),
            settings=None if digest(settings) == question.digest else settings,
            time=device.time,
        )
        epoch = self.places.next_epoch(name, now)
        del self._devices.devices[name]
        self._devices.note(Place(name, question.sender, epoch))
        return SessionMoved(
            to=question.sender,
            sender=self._here,
            device=name,
            epoch=epoch,
            state=to_msgpack(moving),
        )

    # ---- Snapshots

    def keep(self) -> KeptSearch:
        """What a snapshot has to hold."""
        return KeptSearch(
            places=list(self.places),
            waiting=list(self._waiting.values()),
            coming=dict(self._coming),
            questions=[(device, *question) for device, question in self._questions.items()],
            tries=dict(self._tries),
        )

    def restore(self, kept: KeptSearch) -> None:
        """Go on with what a snapshot has held."""
        self.places.restore(kept.places)
        self._waiting = {each.given.device: each for each in kept.waiting}
        self._coming = dict(kept.coming)
        self._questions = {device: Question(*question) for device, *question in kept.questions}
        self._tries = dict(kept.tries)
        for device, each in self._waiting.items():
            self._devices.visits.look_at(device, each.until)
