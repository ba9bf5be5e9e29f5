"""What brokers and clients have in common: links with their sessions, turns and deadlines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sterna.core import inputs
from sterna.core.actions import Action, Broadcast, Reconnect, Transmit
from sterna.core.arrangement import Arrangement, PartsOf, check
from sterna.core.component import Component, Handler
from sterna.core.depot import Depot, NoDepot, Stretch, Unconfirmed, count, messages_in
from sterna.core.facts import Attached, Detached, Fact, LinkReset, MemoriesDiffer
from sterna.core.inputs import Input
from sterna.core.keeping import Part, Reader, Record, Writer
from sterna.core.link import Ack, Data, Frame, KeptSession, LinkSession, LinkTiming, Mismatch, State
from sterna.core.lives import SESSIONS_MAX
from sterna.core.messages import Events, Message
from sterna.core.names import NEVER, LinkId, LocalProtocolError, NodeId, Peer, Time
from sterna.core.settings import Settings
from sterna.core.sizes import Load, load
from sterna.model.event import Event


class Turn(msgspec.Struct, gc=False):
    """The result of one input: what to do, and what happened."""

    actions: list[Action]
    facts: list[Fact]
    cause: Input

    @property
    def is_binding(self) -> bool:
        """Whether the input must be durable before anything of this turn is let out.

        Acknowledgements that come in, and time that passes, need not be: without them the node
        would only do again what it did, as long as it has sent nothing new. Nor need datagrams,
        which promise nothing.
        """
        if self.facts or not all(map(_is_harmless, self.actions)):
            return True
        if isinstance(self.cause, inputs.Received):
            return any(type(frame) is Data for frame in self.cause.frames)
        return not isinstance(self.cause, _HARMLESS)


def _is_harmless(action: Action) -> bool:
    if type(action) is Transmit:
        return type(action.frame) is Ack
    return type(action) is Broadcast


_HARMLESS = (
    inputs.TimePassed | inputs.LinkDown | inputs.QueueSpilled | inputs.KeptSpilled | inputs.Heard
)
"""Inputs that may get lost with what follows them: what was spilled is in memory again then."""


NODE = "node"
"""The name under which a snapshot holds what every node keeps."""


class KeptLink(msgspec.Struct, frozen=True):
    """What a snapshot holds of a link."""

    link: LinkId
    peer: Peer
    session: KeptSession


class KeptNode(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of every node."""

    incarnation: int
    next_session: int
    deadline: Time
    links: list[KeptLink]
    known: list[LinkId]
    up: list[LinkId]
    deadlines: dict[str, Time]
    ending: list[str]
    """The components that the settings had removed, and that were not done yet."""
    worked_by: dict[str, Settings] = {}
    """The last settings that had these components; without them, the present ones count."""
    last_page: int = 0


KEPT_NODE = Record(
    3, KeptNode, {1: (KeptNode, lambda kept: kept), 2: (KeptNode, lambda kept: kept)}
)
"""Version 1 has no settings of components that end, and version 2 no pages."""


class Node(ABC):
    """A machine that takes inputs one at a time.

    Its driver calls `handle` for each input, does the actions in their order, and comes back with
    `TimePassed` when the `deadline` has come.
    """

    def __init__(
        self,
        id_: NodeId,
        components: Sequence[Component] = (),
        *,
        settings: Settings | None = None,
        parts: PartsOf | None = None,
        lasting: int = 0,
        timing: LinkTiming | None = None,
        incarnation: int = 0,
    ) -> None:
        check(id_, components)
        self.id = id_
        self.settings = settings or Settings()
        self.arrangement = Arrangement(components, parts, self._assemble, lasting=lasting)
        self.components: tuple[Component, ...] = ()
        self.peers: dict[LinkId, Peer] = {}
        self.up: dict[LinkId, None] = {}
        """The links that are up, with the handshake finished at both ends."""
        self.known: dict[LinkId, None] = {}
        """The links that are up or have been before, and may come back."""
        self.deadline: Time = NEVER
        self._sessions: dict[LinkId, LinkSession] = {}
        self._timing = timing or LinkTiming()
        self.incarnation = incarnation
        """How often the node has lost its state."""
        self.next_session = incarnation * SESSIONS_MAX
        """The incarnation of the next session: never one that was used, whatever was forgotten."""
        self.unweighed = 0
        """How many bytes of the present input no component has counted yet."""
        self.depot: Depot = NoDepot()
        """Where what was spilled can be read; for the driver to set."""
        self.last_page = 0
        """The number of the last page that the node was told of."""
        self.awaited: dict[LinkId, None] = {}
        """The links over which components wait for the next frames, or for the end of these."""
        self._used: dict[LinkId, LinkSession] = {}
        self._facts: list[Fact] = []
        self._actions: list[Action] = []
        self._handlers: dict[type[Input], Callable[[Any, Time], None]] = {
            inputs.Received: self._received,
            inputs.TimePassed: self._time_passed,
            inputs.LinkUp: self._link_up,
            inputs.LinkDown: self._link_down,
            inputs.LinkGone: self._link_gone,
            inputs.Configured: self._configured,
        }
        self._on_message: dict[type[Message], Handler] = {}
        self._by_name: dict[str, Component] = {}
        self._assemble()

    def _assemble(self) -> None:
        """Find the components by name and by message, whenever they have changed."""
        self.components = self.arrangement.components
        self._by_name = {each.name: each for each in self.components if each.name}
        for component in self.components:
            component.node = self
        self._on_message = self.arrangement.handlers()

    def part(self, name: str) -> Component | None:
        """The component of this name, if there is one."""
        return self._by_name.get(name)

    def handle(self, given: Input, now: Time) -> Turn:
        """Take an input; return what to do about it, and what happened."""
        handler = self._handlers.get(type(given))
        if handler is None:
            raise LocalProtocolError(
                f"a {type(self).__name__.lower()} does not take {type(given).__name__}"
            )
        handler(given, now)
        if self.arrangement.ending:
            self.arrangement.end_what_is_done(now)
        actions: list[Action] = []
        ends_turns = not self._timing.ack_delay_us
        for link, session in self._used.items():
            if ends_turns:
                session.turn_ends()
            outbox = session.outbox
            if outbox:
                for frame in outbox:  # Mostly one: a comprehension costs more.
                    actions.append(Transmit(link, frame))  # noqa: PERF401
                outbox.clear()
            if session.wake_at < self.deadline:  # noqa: PLR1730 - min() costs more.
                self.deadline = session.wake_at
        self._used.clear()
        if self._actions:
            actions += self._actions
            self._actions.clear()
        facts, self._facts = self._facts, []
        return Turn(actions, facts, given)

    def arrived(self, link: LinkId, seq: int) -> bool:
        """The driver knows that the other end of a link has everything up to a number.

        Whether that was enough; if not, something waits for it, so it must come as an `Ack`.
        """
        if link in self.awaited:
            return False
        if link in self._sessions:
            self._sessions[link].arrived(seq)
        return True

    def send(self, link: LinkId, message: Message, now: Time) -> None:
        """Send a message to a neighbour, now or when the link is up again."""
        session = self._sessions[link]
        session.send(message, now)
        self._used[link] = session

    def act(self, action: Action) -> None:
        """Have the driver do something, after the frames of this turn were sent."""
        self._actions.append(action)

    def forget(self, link: LinkId, now: Time) -> None:
        """Give up a link: it will never be up again, as far as this end is concerned."""
        self._link_gone(inputs.LinkGone(link=link), now)

    def disown(self, link: LinkId, now: Time) -> None:
        """Forget a link, but not what was announced over it."""
        self._link_down(inputs.LinkDown(link=link), now)
        for each in (self._sessions, self.peers, self.known, self.awaited, self._used):
            each.pop(link, None)

    def state(self, fact: Fact) -> None:
        """Record what happened."""
        self._facts.append(fact)

    def backlog(self, link: LinkId) -> int:
        """How many messages the other end of a link has not confirmed yet."""
        return self._sessions[link].backlog

    def queued(
        self,
        link: LinkId,
        weigh: Callable[[Message], Load] = load,
        up_to: int | None = None,
    ) -> Load:
        """How much the other end of a link has not confirmed yet, of all or up to a number."""
        return self._sessions[link].queued(weigh, up_to)

    def unconfirmed(self, link: LinkId) -> Unconfirmed:
        """The messages that the other end of a link has not confirmed yet."""
        return Unconfirmed(self._sessions[link].unconfirmed(), self.depot)

    def unconfirmed_first(self, link: LinkId) -> Iterator[Message]:
        """The messages that the other end of a link has not confirmed yet, oldest first, lazily."""
        return messages_in(self._sessions[link].unconfirmed(), self.depot)

    def unconfirmed_at(self, link: LinkId, place: int) -> tuple[Message | Stretch, Load]:
        """One of the parts of what is not confirmed yet, and its size; the oldest is at 0."""
        return self._sessions[link].unconfirmed_at(place)

    def parts(self, link: LinkId) -> int:
        """How many parts of what is not confirmed yet there are; see `unconfirmed_at`."""
        return self._sessions[link].parts

    def newest(self, link: LinkId) -> int:
        """The number of the newest message for the other end of a link; 0 if there was none."""
        return self._sessions[link].last_seq

    def oldest_unconfirmed(self, link: LinkId) -> int | None:
        """The number of the oldest message that is not confirmed yet; None if there is none."""
        session = self._sessions.get(link)
        return None if session is None else session.oldest_unconfirmed

    def on_its_way(self, link: LinkId) -> list[Frame]:
        """The frames with what the other end of a link has not confirmed yet."""
        return self._sessions[link].unconfirmed_frames()

    def is_connected(self, link: LinkId) -> bool:
        """Whether a connection is up, even if the handshake is unfinished."""
        return link in self._sessions and self._sessions[link].state is not State.CLOSED

    @property
    def is_settled(self) -> bool:
        """Whether all that was sent over links that are up is confirmed, and nothing waits."""
        return not any(
            session.state is State.OPENING or (session.state is State.OPEN and session.backlog)
            for session in self._sessions.values()
        ) and all(component.is_settled for component in self.components)

    # ---- Snapshots

    def keep(self, writer: Writer) -> list[Part]:
        """All that a node made from the same settings needs to continue exactly as this one."""
        node = KeptNode(
            incarnation=self.incarnation,
            next_session=self.next_session,
            deadline=self.deadline,
            links=[
                KeptLink(
                    link=link,
                    peer=self.peers[link],
                    session=session.keep(writer),
                )
                for link, session in self._sessions.items()
            ],
            known=list(self.known),
            up=list(self.up),
            deadlines={each.name: each.deadline for each in self.components if each.name},
            ending=[each.name for each in self.arrangement.ending],
            worked_by={e.name: self.arrangement.worked_by[e.name] for e in self.arrangement.ending},
            last_page=self.last_page,
        )
        parts = [
            Part(each.name, each.version, each.keep(writer))
            for each in self.components
            if each.Kept is not None
        ]
        return [Part(NODE, KEPT_NODE.version, node), *parts]

    def records(self) -> dict[str, Record]:
        """The record that each part of a snapshot is read as, by name."""
        parts = {
            each.name: Record(each.version, each.Kept, each.older)
            for each in self.components
            if each.Kept is not None
        }
        return {NODE: KEPT_NODE, **parts}

    def restore(self, kept: Mapping[str, Any], reader: Reader) -> None:
        """Continue with what a snapshot has held, by the names of components."""
        node: KeptNode = kept[NODE]
        self.incarnation, self.next_session = node.incarnation, node.next_session
        self.deadline, self.last_page = node.deadline, node.last_page
        for each in node.links:
            session = LinkSession(each.session.incarnation, self._timing)
            session.restore(each.session, reader)
            self._sessions[each.link] = session
            self.peers[each.link] = each.peer
        self.known = dict.fromkeys(node.known)
        self.up = dict.fromkeys(node.up)
        for component in self.components:
            if component.name in node.deadlines:
                component.deadline = node.deadlines[component.name]
            if component.name in kept and component.Kept is not None:
                component.restore(kept[component.name], reader)

    # ---- What brokers and clients do, each in its way

    @abstractmethod
    def events_arrived(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        """Events have come over a link."""

    def message_arrived(self, message: Message, link: LinkId, now: Time) -> None:
        """Anything else has come over a link."""
        handler = self._on_message.get(type(message))
        if handler is not None:  # Else it is for a protocol that this node does not take part in.
            handler(message, link, now)

    def link_made(self, given: inputs.LinkUp, now: Time) -> None:
        """There is a connection over a link; the handshake is unfinished."""
        for component in self.components:
            component.link_made(given, now)

    def link_new(self, link: LinkId, now: Time) -> None:
        """A link is up for the first time, or its other end has lost its state."""
        for component in self.components:
            component.link_new(link, now)

    def frames_received(self, link: LinkId, now: Time) -> None:
        """Frames that components have waited for have come over a link, and were handled."""
        del link, now

    def link_reset(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """The other end has lost its state, or begins anew, and did not confirm these messages."""
        for component in self.components:
            component.link_reset(link, unconfirmed, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        """A link is up (again)."""
        for component in self.components:
            component.link_up(link, now)

    def link_down(self, link: LinkId, now: Time) -> None:
        """A link is lost; it may come back."""
        for component in self.components:
            component.link_down(link, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        """A link is lost for good, and with it what the other end has not confirmed."""
        for component in self.components:
            component.link_gone(link, unconfirmed, now)

    # ---- Settings

    def _configured(self, given: inputs.Configured, now: Time) -> None:
        """Work by other settings from now on, with all that is held."""
        if not self.arrangement.is_configurable:
            raise LocalProtocolError(f"{self.id} was made from components, not from settings")
        made = self.arrangement.prepare(given.settings, self.id)  # It may refuse them.
        before, self.settings = self.settings, given.settings
        self.arrangement.configure(before, given.settings, made, now)
        self.reconfigured(before, now)

    def reconfigured(self, before: Settings, now: Time) -> None:
        """The settings have changed, and all components know."""
        del before, now

    # ---- Inputs that every node takes

    def _received(self, given: inputs.Received, now: Time) -> None:
        link = given.link
        session = self._sessions.get(link)
        if session is None:
            return  # From a link that is gone.
        self._used[link] = session
        self.unweighed = given.size
        batch: list[Event] = []
        for frame in given.frames:
            for message in (
                session.receive_data(frame, now)  # One call less for most frames.
                if type(frame) is Data
                else session.receive(frame, now)
            ):
                if type(message) is Events:
                    batch += message.events
                    continue
                if batch:
                    self.events_arrived(batch, link, now)
                    batch = []
                self.message_arrived(message, link, now)
            if session.has_news:
                session.has_news = False
                if session.mismatch is not None:
                    self._begin_anew(link, session, session.mismatch, now)
                elif session.state is State.OPEN:
                    self._link_stands(link, session, now)
        if batch:
            self.events_arrived(batch, link, now)
        self.unweighed = 0
        if link in self.awaited:
            del self.awaited[link]
            self.frames_received(link, now)

    def _link_stands(self, link: LinkId, session: LinkSession, now: Time) -> None:
        self.up[link] = None
        self.state(Attached(at=self.id, time=now, link=link, peer=self.peers[link]))
        given_up, session.given_up = session.given_up, None
        again: list[Message | Stretch] = []
        if given_up is not None:
            again = self.to_send_again(link, given_up) if session.is_remembered else []
            lost = count(given_up) - count(again)
            self.state(LinkReset(at=self.id, time=now, link=link, given_up=lost))
            self.link_reset(link, Unconfirmed(given_up, self.depot), now)
        if given_up is not None or link not in self.known:
            self.known[link] = None
            self.link_new(link, now)
        for part in again:
            session.send_again(part, now)
        self.link_up(link, now)

    def _begin_anew(
        self, link: LinkId, session: LinkSession, mismatch: Mismatch, now: Time
    ) -> None:
        """The two ends of a link remember different things; the next connection begins anew."""
        session.begin_anew(self.next_session)
        self.next_session += 1
        self.state(MemoriesDiffer(at=self.id, time=now, link=link, **mismatch._asdict()))
        self.act(Reconnect(link))

    def to_send_again(
        self, link: LinkId, given_up: list[Message | Stretch]
    ) -> list[Message | Stretch]:
        """What of these has to be sent again, to another end that has kept its state otherwise.

        Components do the rest: they introduce this node again, or announce what is wanted.
        """
        del link, given_up
        return []

    def _time_passed(self, _given: inputs.TimePassed, now: Time) -> None:
        self.deadline = NEVER
        for link, session in self._sessions.items():
            if session.wake_at <= now:
                session.wake(now)
                self._used[link] = session
        for component in self.components:
            if component.deadline <= now:
                component.deadline = NEVER
                component.wake(now)
        # Only now: waking one may have set the deadline of another.
        self.deadline = min(
            *(session.wake_at for session in self._sessions.values()),
            *(component.deadline for component in self.components),
            self.deadline,
            NEVER,
        )

    def _link_up(self, given: inputs.LinkUp, now: Time) -> None:
        """A connection is up; the link is up when the other end has answered."""
        link = given.link
        self._link_down(inputs.LinkDown(link=link), now)  # The old connection, if there is one.
        if link not in self._sessions:
            self._sessions[link] = LinkSession(self.next_session, self._timing)
            self.next_session += 1
        self.peers[link] = given.peer
        self.link_made(given, now)
        if link in self._sessions:  # Else a component has refused it.
            self._sessions[link].open(now)
            self._used[link] = self._sessions[link]

    def _link_down(self, given: inputs.LinkDown, now: Time) -> None:
        link = given.link
        if link in self._sessions:
            self._sessions[link].close()
        if link in self.up:
            del self.up[link]
            self.state(Detached(at=self.id, time=now, link=link, peer=self.peers[link]))
            self.link_down(link, now)
        elif link in self._sessions and link not in self.known:  # The two ends have never met.
            del self._sessions[link], self.peers[link]
            self._used.pop(link, None)

    def _link_gone(self, given: inputs.LinkGone, now: Time) -> None:
        link = given.link
        self._link_down(inputs.LinkDown(link=link), now)
        if link in self._sessions:
            self.link_gone(link, self.unconfirmed(link), now)
            del self._sessions[link], self.peers[link]
            self.known.pop(link, None)
            self.awaited.pop(link, None)
            self._used.pop(link, None)
