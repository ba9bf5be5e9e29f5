"""The client's part in handover: it announces where it is, and drops duplicates."""

from collections.abc import Sequence
from typing import Self

import msgspec

from sterna.core import facts
from sterna.core.component import ClientComponent
from sterna.core.handover.connection_log import AHEAD_MAX, Connection, ConnectionLog
from sterna.core.handover.messages import (
    BEFORE_MAX,
    Arrival,
    Introduction,
    Overtaking,
    Replayed,
    Welcome,
)
from sterna.core.handover.transfer_options import SubscriptionsAt, subscriptions_at
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.lives import last_visit
from sterna.core.messages import Message, Route, digest
from sterna.core.names import LinkId, NodeId, Time
from sterna.core.settings import Settings
from sterna.model.event import Event, EventId
from sterna.model.ranges import VISIT_MAX

NEWS_US: Time = 10_000_000
"""How long a broker waits for news of a client: that it was born, or that it has left."""


class KeptRoaming(msgspec.Struct, frozen=True):
    """What a snapshot holds of a roaming client."""

    seen: dict[NodeId, int]
    visit: int
    born: int
    stay: int
    received: int
    is_welcome: bool
    left_at: Time
    been: tuple[NodeId, ...] = ()
    home: NodeId = ""
    told: list[int] = []
    offered: tuple[Route, ...] | None = None
    connections: tuple[Connection, ...] = ()
    present: NodeId | None = None
    ahead: tuple[EventId, ...] = ()
    given_up: dict[NodeId, int] = {}


class Roaming(ClientComponent):
    """The client's part in all protocols that hand over what was kept."""

    name = "relocation"
    handles = (Welcome, Replayed, Overtaking)
    Kept = KeptRoaming

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(subscriptions_at(settings))

    def __init__(self, subscriptions: SubscriptionsAt = SubscriptionsAt.DEVICE) -> None:
        self._subscriptions_at = subscriptions
        self.seen: dict[NodeId, int] = {}
        """The number of the last event received from each publisher."""
        self._visit = 0
        self._born = 0
        self._stay = 0
        self._received = 0
        self._is_welcome = False
        self._left_at: Time = 0
        self._been: tuple[NodeId, ...] = ()
        """Where the client has been since it was last welcomed, the latest first."""
        self._home: NodeId = ""
        self._told: tuple[Message, ...] = ()
        """What the last arrival told beside subscriptions and advertisements."""
        self._offered: tuple[Route, ...] | None = None
        """The advertisements that it told, if these are not where the subscriptions are."""
        self._log = ConnectionLog()
        self._ahead: dict[EventId, None] = {}
        """Events that came ahead of earlier ones, which may follow; the latest one is the last."""
        self._given_up: dict[NodeId, int] = {}
        """For some publishers, the number up to which too many have come ahead to know which."""

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self._subscriptions_at = subscriptions_at(settings)

    def introduces(self) -> bool:
        return True

    def may_publish(self) -> bool:
        return self._is_welcome

    def link_made(self, given: LinkUp, now: Time) -> None:
        """Go on above another life of this client that its broker knows, if that is a later one."""
        del now
        client, earlier = self.client, given.earlier
        own = max(self._visit, client.next_session - 1)
        if own < earlier.visit < VISIT_MAX:  # It is of another life.
            latest = last_visit(earlier)
            client.next_session = latest + 1
            if self._visit:
                self._visit = latest
            client.offers.number_above(earlier.seq)

    def link_new(self, link: LinkId, now: Time) -> None:
        self._log.begin(link, now)
        if not self._visit:  # It may have roamed before, and had a session on each visit.
            self._visit = self.client.next_session - 1
        self._visit += 1
        self._is_welcome = False
        subscriptions: tuple[Route, ...] = ()
        advertisements: tuple[Route, ...] = ()
        self._told, self._offered = (), None
        brings = not self._born or self._subscriptions_at is SubscriptionsAt.DEVICE
        if not brings:
            self._told = self.client.told_by_components()
            if self._home:  # They are where the client publishes, not at home.
                advertisements = self._offered = self.client.offers.introduction()
        elif self._born:
            subscriptions, advertisements, self._told = self.client.introduction()
        is_known = self._born or now < self._left_at + NEWS_US
        arrival = Arrival(
            visit=self._visit,
            born=self._born,
            stay=self._stay if is_known else 0,
            received=self._received,
            subscriptions=subscriptions,
            advertisements=advertisements,
            others=self._told,
            numbered=self.client.published,
            brings=brings,
            before=self._been,
            home=self._home,
            connections=self._log.connections if self.client.wants.may_overtake else (),
        )
        been = (link, *(broker for broker in self._been if broker != link))
        # What was kept is with the one that welcomed it, or has come through the latest.
        self._been = been if len(been) <= BEFORE_MAX else (*been[: BEFORE_MAX - 1], been[-1])
        self.client.send(link, arrival, now)

    def begin(self, now: Time) -> None:
        self.client.next_session += 1  # Another visit, even if the link is the same as before.
        link = self.client.link
        if link is not None and link in self.client.up:
            self.link_new(link, now)

    def link_down(self, link: LinkId, now: Time) -> None:
        self._log.end(link, now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed
        self._log.end(link, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        self._log.begin(link, now)
        if not self._visit:  # The link was there before its network handed clients over.
            self.link_new(link, now)

    def on_welcome(self, message: Welcome, link: LinkId, now: Time) -> None:
        self._is_welcome = True
        if self._stay != self._visit:  # Else it is welcomed once more.
            self._stay, self._received = self._visit, 0
        self._been, self._home = (link,), message.home
        self.client.offers.arrived(message.published, now)
        before, self._born = self._born, message.born or self._born or self._visit
        if not before:
            self.client.introduce(now)
        else:
            if message.known is not None:
                self._correct(message.known, link, now)
            self.client.introduction_sent(now)
            if before != self._born:
                self.client.state(facts.Forgotten(at=self.client.id, time=now))
        self.client.flush(now)

    def _correct(self, known: int, link: LinkId, now: Time) -> None:
        """Tell the broker what has changed since others have kept it for the client."""
        subscriptions, advertisements, others = self.client.introduction()
        changed = others if others != self._told else ()
        for other in changed:
            if other.precedes_subscriptions:
                self.client.send(link, other, now)
        is_new = self._offered is not None and set(self._offered) != set(advertisements)
        if is_new or digest(subscriptions, advertisements) != known:
            introduction = Introduction(subscriptions=subscriptions, advertisements=advertisements)
            self.client.send(link, introduction, now)
        for other in changed:
            if not other.precedes_subscriptions:
                self.client.send(link, other, now)

    def left(self, now: Time) -> None:
        self._born = self._received = 0
        self._been, self._home = (), ""
        self._is_welcome = False
        self._left_at = now

    def on_replayed(self, message: Replayed, link: LinkId, now: Time) -> None:
        came = {event.id for event in message.events}
        missed = tuple(
            id_
            for id_ in dict.fromkeys(message.missed)  # Maybe discarded both here and there.
            if id_ not in came
            and id_ not in self._ahead
            and id_.seq > self.seen.get(id_.publisher, 0)
        )
        fresh = self.events_arriving(message.events, link, now)
        if fresh:
            self.client.wants.take(fresh, now, kept_for=message.moving)
        if missed:
            self.client.state(facts.Missed(at=self.client.id, time=now, events=missed))
            for id_ in missed:
                self.seen[id_.publisher] = max(id_.seq, self.seen.get(id_.publisher, 0))
        if self._ahead:  # What is in order by now is known by its number.
            self._ahead = {id_: None for id_ in self._ahead if id_.seq > self.seen.get(id_[0], 0)}

    def events_arriving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        del link
        self._received += len(events)
        fresh, repeated = [], []
        for event in events:
            if event.seq > self.seen.get(event.publisher, 0):
                self.seen[event.publisher] = event.seq
                fresh.append(event)
            else:
                repeated.append(event)
        if self._ahead:
            repeated += [event for event in fresh if event.id in self._ahead]
            fresh = [event for event in fresh if event.id not in self._ahead]
        if repeated:
            self._drop(repeated, now)
        return fresh

    def on_overtaking(self, message: Overtaking, _link: LinkId, now: Time) -> None:
        """Deliver new events at once; earlier ones are still to come."""
        fresh: list[Event] = []
        repeated: list[Event] = []
        for event in message.events:
            is_new = event.seq > self.seen.get(event.publisher, 0) and event.id not in self._ahead
            (fresh if is_new else repeated).append(event)
            if is_new:
                self._ahead[event.id] = None
        while len(self._ahead) > AHEAD_MAX:
            self._give_up(next(iter(self._ahead)))
        if repeated:
            self._drop(repeated, now)
        if fresh:
            self.client.wants.take(fresh, now, overtakes=True)

    def _give_up(self, oldest: EventId) -> None:
        """Forget the event that came ahead first: nothing before it is delivered any more."""
        del self._ahead[oldest]
        publisher, seq = oldest
        if seq > self.seen.get(publisher, 0):
            self.seen[publisher] = self._given_up[publisher] = seq

    def _drop(self, events: Sequence[Event], now: Time) -> None:
        """State that events have come again, or too late."""
        late = tuple(
            event.id for event in events if event.seq <= self._given_up.get(event.publisher, 0)
        )
        if late:
            self.client.state(facts.Missed(at=self.client.id, time=now, events=late))
        came = {*late}
        repeated = tuple(event for event in events if event.id not in came)
        if repeated:
            self.client.state(facts.Repeated(at=self.client.id, time=now, events=repeated))

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether the client's broker has welcomed it, if it has one."""
        return self._is_welcome or self.client.link not in self.client.up

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptRoaming:
        return KeptRoaming(
            seen=dict(self.seen),
            visit=self._visit,
            born=self._born,
            stay=self._stay,
            received=self._received,
            is_welcome=self._is_welcome,
            left_at=self._left_at,
            been=self._been,
            home=self._home,
            told=[writer.message(message) for message in self._told],
            offered=self._offered,
            connections=self._log.connections,
            present=self._log.present,
            ahead=tuple(self._ahead),
            given_up=dict(self._given_up),
        )

    def restore(self, kept: KeptRoaming, reader: Reader) -> None:
        self.seen = dict(kept.seen)
        self._visit, self._born, self._stay = kept.visit, kept.born, kept.stay
        self._received, self._is_welcome = kept.received, kept.is_welcome
        self._left_at, self._been, self._home = kept.left_at, kept.been, kept.home
        self._told = tuple(reader.message(number) for number in kept.told)
        self._offered = kept.offered
        self._log.restore(kept.connections, kept.present)
        self._ahead = dict.fromkeys(kept.ahead)
        self._given_up = dict(kept.given_up)
