"""A broker: a routing table, and components that add the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from sterna.core.absence import Absence
from sterna.core.arrangement import PartsOf
from sterna.core.component import BrokerComponent, Component
from sterna.core.depot import Stretch
from sterna.core.facts import Accepted, ClientForgotten, ForgottenEarly
from sterna.core.handover.declining import Declining
from sterna.core.hooks import BrokerHooks, find
from sterna.core.inputs import (
    Ahead,
    ArchiveChanged,
    Heard,
    Input,
    LinkDown,
    LinkUp,
    LookedUp,
    MemoryShort,
    Migrated,
    Received,
    Restarted,
)
from sterna.core.keeping import Reader
from sterna.core.link import Data, LinkTiming
from sterna.core.lives import NOTHING_KNOWN, Earlier
from sterna.core.messages import AdvertisementChange, Events, Message, SubscriptionChange
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.node import Node, Turn
from sterna.core.overlay.messages import Unicast
from sterna.core.quenching import Quenching
from sterna.core.routing.foresight import Foresight
from sterna.core.routing.options import RoutingOptions
from sterna.core.routing.router import Router
from sterna.core.settings import Settings
from sterna.core.sizes import NO_LOAD, Load
from sterna.core.spilling import Spilling
from sterna.model.event import Event
from sterna.model.filters.long_texts import LongTexts
from sterna.model.prediction import Predictor

if TYPE_CHECKING:
    from sterna.core.overlay.post import Post

BYTES_READ_MAX = 250_000
TESTS_MAX = 30_000
"""Matching events takes about 5 ms with so many bytes, each counted once for every test that may
read it, or with so many tests. With more, others should have their turn meanwhile."""

EVENT_BYTES_MIN = 8
"""No event is shorter on its way."""


class Broker(Node):
    """Routes every event to where it is wanted; protocols are combined by listing components."""

    def __init__(
        self,
        id_: NodeId,
        routing: RoutingOptions | None = None,
        components: Sequence[Component] = (),
        *,
        settings: Settings | None = None,
        parts: PartsOf | None = None,
        timing: LinkTiming | None = None,
        incarnation: int = 0,
        predictor: Predictor | None = None,
    ) -> None:
        """`predictor` says where clients go next, instead of what the settings know of that."""
        self.router = Router(routing or RoutingOptions())
        self._absence = Absence()
        self._declining = Declining()
        self.foresight: Foresight | None = None
        """What is known of the present input already, if anything is."""
        super().__init__(
            id_,
            (self.router, Quenching(), self._absence, *components),
            settings=settings,
            parts=parts,
            lasting=3,
            timing=timing,
            incarnation=incarnation,
        )
        self._given_predictor = predictor
        self._predictor: tuple[Settings, Predictor] | None = None
        self.is_unsure = False
        """Whether earlier events may still come on another way, so that clients have to wait."""
        self._handlers |= {
            Ahead: self._ahead,
            ArchiveChanged: self._archive_changed,
            Heard: self._heard,
            LinkDown: self._connection_lost,
            LookedUp: self._looked_up,
            MemoryShort: self._memory_short,
            Migrated: self._migrated,
            Restarted: self._restarted,
        }
        self.spilling = Spilling(self, self._sessions)
        self._handlers |= self.spilling.handlers()

    def _assemble(self) -> None:
        super()._assemble()
        self._declining.node = self
        for message, decline in self._declining.handlers().items():
            self._on_message.setdefault(message, decline)
        self.hooks = find(BrokerHooks, self.components)
        for inputs in self.hooks.inputs:
            self._handlers |= inputs()

    def handle(self, given: Input, now: Time) -> Turn:
        turn = super().handle(given, now)
        for exchange in self.hooks.exchange:
            exchange(turn, now)
        return turn

    def handle_within(self, given: Input, now: Time) -> Turn:
        """Take an input from a client that is inside this broker: a part of the present turn."""
        return super().handle(given, now)

    @property
    def predictor(self) -> Predictor:
        """Where clients go next, as far as the settings in force say; for components to ask."""
        if self._given_predictor is not None:
            return self._given_predictor
        if self._predictor is None or self._predictor[0] is not self.settings:
            self._predictor = self.settings, self.settings.predictor()
        return self._predictor[1]

    def claimed(self, link: LinkId) -> list[tuple[str, Collection[RouteId]]]:
        """The names under which a client has announced filters, by kind; see `Claim`."""
        return [
            ("subscription", self.router.subscriptions.routes(link)),
            ("advertisement", self.router.advertised_by(link)),
            *(claim for claimed in self.hooks.claimed for claim in claimed(link)),
        ]

    def kept(self, link: LinkId) -> Load:
        """How much components keep for the other end of a link, besides what was sent there."""
        load = NO_LOAD
        for kept in self.hooks.kept:
            load = load.plus(kept(link))
        return load

    def hosted(self) -> list[NodeId]:
        """The clients without a link here that components keep something for.

        They are elsewhere and have their home here, or they are expected.
        """
        return [client for hosted in self.hooks.hosted for client in hosted()]

    def away(self) -> list[LinkId]:
        """The clients that are away."""
        return [
            link
            for link, peer in self.peers.items()
            if peer is Peer.CLIENT and not self.is_connected(link)
        ]

    def goes_elsewhere(self, message: Message, link: LinkId, now: Time) -> bool:
        """Whether a message from a client, or to it, is for another broker, and was sent there."""
        return any(each(message, link, now) for each in self.hooks.goes_elsewhere)

    def end_conversations(self, link: LinkId, now: Time) -> None:
        """A client is elsewhere, and has no link here; what it announced stays."""
        for component in self.components:
            cast("BrokerComponent", component).link_disowned(link, now)

    def disown(self, link: LinkId, now: Time) -> None:
        self.end_conversations(link, now)
        super().disown(link, now)
        self._absence.link_gone(link, (), now)

    def earlier(self, client: NodeId, now: Time) -> Earlier:
        """What this broker knows of the lives that a client had so far, for its next one."""
        session = self._sessions.get(client)
        known = NOTHING_KNOWN if session is None else Earlier(session.partner or 0)
        for earlier in self.hooks.earlier:
            known = known.join(earlier(client, now))
        return known

    @property
    def texts(self) -> LongTexts | None:
        """What is known of long texts in the present input already, if anything is."""
        return None if self.foresight is None else self.foresight.texts

    def takes_long(self, given: Received) -> bool:
        """Whether it takes long to match the events of an input."""
        tests, readings = self.router.subscriptions.effort
        if given.size * readings > BYTES_READ_MAX:
            return True
        if given.size * tests <= TESTS_MAX * EVENT_BYTES_MIN:
            return False
        messages = [frame.message for frame in given.frames if type(frame) is Data]
        events = sum(len(each.events) for each in messages if type(each) is Events)
        return events * tests > TESTS_MAX

    def foresee(self, given: Received, is_time_up: Callable[[], bool]) -> Foresight | None:
        """What is to be found out before an input can be handled quickly; None if nothing is.

        It is for `foresight`, once it is complete. Without, the same takes place, but at once.
        """
        messages = [frame.message for frame in given.frames if type(frame) is Data]
        others = [each for each in messages if type(each) is not Events]
        table, foresees = self.router.subscriptions, self.hooks.foresees
        if not (self.takes_long(given) or (others and foresees)):
            return None
        events = [e for each in messages if type(each) is Events for e in each.events]
        foresight = Foresight(events, is_time_up)
        foresight.begin(
            table.foresee(foresight),
            *(foresee(each, foresight) for each in others for foresee in foresees),
        )
        return foresight

    @property
    def post(self) -> "Post":
        """Sends messages to other brokers by name; for components of protocols that need it."""
        return cast("Post", self.part("post"))

    def message_arrived(self, message: Message, link: LinkId, now: Time) -> None:
        if message.follows_client:
            for moved in self.hooks.client_moved:
                moved(message.client, now)  # type: ignore[attr-defined] # It has one.
        if isinstance(message, Unicast) and message.to != self.id:
            if self.part("post") is not None:
                self.post.send(message, now)
            else:
                self._declining.not_passed_on(message, link, now)
        else:
            super().message_arrived(message, link, now)

    def events_arrived(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        events = tuple(events)  # The same tuple wherever all of them go: it is encoded once.
        if self.peers[link] is Peer.CLIENT:
            self.state(Accepted(at=self.id, time=now, link=link, events=events))
        for arriving in self.hooks.events_arriving:
            events = tuple(arriving(events, link, now))
        self.pass_on(events, link, now)

    def pass_on(self, events: tuple[Event, ...], link: LinkId, now: Time) -> None:
        """Route events that have come over a link, and have not been held back."""
        if not events:
            return
        for passing in self.hooks.events_passing:
            passing(events, link, now)
        self.router.route(events, link, now)

    def send_events(self, events: tuple[Event, ...], link: LinkId, now: Time) -> None:
        """Send events over a link, unless a component holds them back."""
        for leaving in self.hooks.events_leaving:
            events = tuple(leaving(events, link, now))
        if events:
            self.send(link, Events(events=events), now)

    def link_made(self, given: LinkUp, now: Time) -> None:
        self.router.advertising(given.link, is_known=given.advertises, now=now)
        super().link_made(given, now)

    def to_send_again(
        self, link: LinkId, given_up: list[Message | Stretch]
    ) -> list[Message | Stretch]:
        """Between brokers; a client says by itself what it has, when it introduces itself."""
        if self.peers[link] is Peer.CLIENT:
            return []
        return [part for part in given_up if part.is_said_once]

    def frames_received(self, link: LinkId, now: Time) -> None:
        for received in self.hooks.frames_received:
            received(link, now)

    def _connection_lost(self, given: LinkDown, now: Time) -> None:
        self._link_down(given, now)
        if given.link not in self.peers:  # The two ends have never met.
            self.router.unprepare(given.link)
        self._absence.forget_surplus(now)

    def _ahead(self, given: Ahead, now: Time) -> None:
        session = self._sessions.get(given.link)
        if session is None or not session.expects(given.seq):
            return
        change, link = given.change, given.link
        if not given.introduces:
            self.router.change_ahead(change, link, now)
        elif isinstance(change, SubscriptionChange):
            self.router.expect(change.added, link, now)
        elif isinstance(change, AdvertisementChange):
            self.router.expect_offers(change.added, link, now)

    def _heard(self, given: Heard, now: Time) -> None:
        self.message_arrived(given.message, given.sender, now)

    def _migrated(self, given: Migrated, now: Time) -> None:
        for migrated in self.hooks.migrated:
            migrated(given.before, given.to, now)

    def _restarted(self, _given: Restarted, now: Time) -> None:
        for restarted in self.hooks.restarted:
            restarted(now)

    def _archive_changed(self, given: ArchiveChanged, now: Time) -> None:
        for changed in self.hooks.archive_changed:
            changed(is_there=given.is_there, now=now)

    def _looked_up(self, given: LookedUp, now: Time) -> None:
        for looked_up in self.hooks.looked_up:
            looked_up(given.question, given.events, now)

    def _memory_short(self, given: MemoryShort, now: Time) -> None:
        bytes_max, spilled_bytes = given.away_bytes_max, given.spilled_bytes
        if spilled_bytes and any(each(spilled_bytes, now) for each in self.hooks.discard_spilled):
            return
        for keep_less in self.hooks.keep_less:
            keep_less(bytes_max, now)
        # What components keep is theirs to decide; nobody else looks after these.
        alone = [e for e in self.away() if not any(keeps(e) for keeps in self.hooks.keeps)]
        size = sum(self.queued(link).memory_bytes for link in alone)
        for link in sorted(alone, key=lambda link: self.queued(link).bytes, reverse=True):
            if size <= bytes_max:
                break
            size -= self.queued(link).memory_bytes
            self.forget_early(link, now)

    def forget_early(self, client: NodeId, now: Time) -> None:
        """Forget a client that is away and that no component looks after."""
        self.state(ForgottenEarly(at=self.id, time=now, client=client))
        self.state(ClientForgotten(at=self.id, time=now, client=client))
        self.forget(client, now)

    def restore(self, kept: Mapping[str, Any], reader: Reader) -> None:
        super().restore(kept, reader)
        if Absence.name not in kept:  # An earlier release made the snapshot.
            self._absence.find()
