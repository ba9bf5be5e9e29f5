"""A device that serves as a broker while it is needed. (Huang and Garcia-Molina, 3.1)

Each device has a broker, which sleeps at first. It begins to serve

- when a client in reach finds no broker. All that hear it wait for a moment, each for another one,
  so mostly just one begins; if more do, they meet.
- when it hears brokers or clients of two networks, which do not reach each other: it joins them,
  if need be together with another device that does the same, and stays until they are one.

Brokers that serve are neighbours in a tree that they elect (see `election`), and route as other
brokers that move do. So **two brokers that meet cooperate**. If they are to **merge**, a broker at
the end of a branch *yields*: it asks its clients to go to another broker that they hear. What is
kept for them follows them there. A broker that is at the end of a branch, has no clients and keeps
nothing for anybody sleeps again. Clients that hear no other one stay, and so does the broker then.

Who begins to serve knows no subscriptions yet: they come when clients find that their old broker is
out of reach. So for a moment (`GRACE_BEATS`), events wait for them.

Nobody says goodbye when a device fails, or is carried away. So what a client has subscribed to is a
lease. It ends when the client has not been heard of for a while; if its broker is gone, too, then
where the way to it was lost.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, Self, cast

import msgspec

from sterna.core.actions import Broadcast, Disconnect
from sterna.core.adhoc.messages import (
    BrokerHere,
    ClientHere,
    ClientListens,
    LeaseEnded,
    LeaseRenewed,
    ServingBegan,
    ServingEnded,
)
from sterna.core.adhoc.options import NAME, AdHocOptions, Meeting
from sterna.core.adhoc.seeking import Seeking
from sterna.core.component import BrokerComponent
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.mobile.phoenix import PHOENIX
from sterna.core.mobile.reversing import Reversing
from sterna.core.names import NEVER, LinkId, LocalProtocolError, NodeId, Peer, Time
from sterna.core.overlay.electing import Electing
from sterna.core.overlay.election import Reign
from sterna.core.protocol import Protocol
from sterna.core.settings import Settings
from sterna.model.event import Event

GRACE_BEATS = 4
"""For so long a broker that has begun to serve keeps what its clients publish."""

PATIENCE_BEATS = 4
"""A device joins two networks that it hears when they have been two for so long."""


class News(NamedTuple):
    """What a device in reach has said last, and when."""

    reign: Reign | None
    time: Time


class KeptServing(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of it."""

    is_asleep: bool
    yields: bool
    beats_at: Time
    begins_at: Time
    asked_by: NodeId
    apart_since: Time | None
    idle_since: Time | None
    news: list[tuple[NodeId, Reign | None, Time]]
    leases: list[tuple[NodeId, Time]]
    began: Time
    held: list[tuple[LinkId, list[int]]]


class Serving(BrokerComponent):
    """The broker's part."""

    name = NAME
    handles = (BrokerHere, ClientHere, ClientListens, LeaseRenewed)
    facts = (ServingBegan, ServingEnded, LeaseEnded)
    Kept = KeptServing

    @classmethod
    def make(cls, settings: Settings) -> Self:
        if not {Electing.name, Reversing.name} <= {*settings.protocols}:
            raise LocalProtocolError(
                f"{NAME} needs an election and tables of subscribers: list the protocols "
                f"{Electing.name} and {Reversing.name} as well"
            )
        if settings.handover.protocol != PHOENIX.name:
            raise LocalProtocolError(
                f"with {NAME}, clients go from broker to broker: set the handover protocol "
                f"{PHOENIX.name}"
            )
        return cls(settings.options_of(cls.name, AdHocOptions))

    def __init__(self, options: AdHocOptions | None = None) -> None:
        self.options = options or AdHocOptions()
        self.is_asleep = True
        self.yields = False
        """Whether its clients should go to another broker."""
        self._beats_at: Time = NEVER
        self._begins_at: Time = NEVER
        """When it begins to serve, unless that is not needed any more."""
        self._began: Time = 0
        self._held: list[tuple[LinkId, tuple[Event, ...]]] = []
        """What clients have published since it has begun, if that is a moment ago."""
        self._asked_by: NodeId = ""
        """The client that needs a broker."""
        self._apart_since: Time | None = None
        """Since when it has heard two networks."""
        self._idle_since: Time | None = None
        """Since when nobody has needed it."""
        self._news: dict[NodeId, News] = {}
        """What the devices in reach say."""
        self._leases: dict[NodeId, Time] = {}
        """When each subscriber was heard of last, if it is at this broker; if the way to it was
        lost here, when that was found out."""

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self.options = settings.options_of(self.name, AdHocOptions)

    def sleeps(self) -> bool:
        return self.is_asleep

    @property
    def _electing(self) -> Electing:
        return cast("Electing", self.broker.part(Electing.name))

    @property
    def _tables(self) -> Reversing:
        return cast("Reversing", self.broker.part(Reversing.name))

    # ---- What it hears

    def on_broker_here(self, message: BrokerHere, link: LinkId, now: Time) -> None:
        """A broker in reach serves, or has ended."""
        if message.broker != link:
            return  # Nobody speaks for others.
        if message.is_leaving:
            self._news.pop(message.broker, None)
            self._electing.gone(message.broker, now)
        else:
            self._hear(message.broker, message.reign, now)

    def on_client_here(self, message: ClientHere, link: LinkId, now: Time) -> None:
        """A client in reach has a broker, or looks for one."""
        if message.client != link:
            return
        self._hear(message.client, message.reign, now)
        if not self.is_asleep:
            return
        if message.reign is not None:
            if message.client == self._asked_by:
                self._asked_by, self._begins_at = "", NEVER
        elif self._begins_at == NEVER:
            self._asked_by = message.client
            self._begins_at = now + self._turn(message.client)
            self.wake_by(self._begins_at)

    def on_client_listens(self, message: ClientListens, link: LinkId, now: Time) -> None:
        """A client in reach needs no broker: nothing is to be done for it."""

    def _hear(self, device: NodeId, reign: Reign | None, now: Time) -> None:
        self._news[device] = News(reign, now)
        if self.is_asleep:
            self._look_around(now)

    def _turn(self, client: NodeId) -> Time:
        """How long this broker waits whether another one serves a client: all wait differently."""
        names = f"{len(client)} {client} {self.broker.id}".encode()
        share = int.from_bytes(blake2b(names, digest_size=4).digest(), "big") / 2**32
        return int(share * self.options.beat_us)

    def _look_around(self, now: Time) -> None:
        """Find out whether there are two networks in reach that do not reach each other."""
        if len(self._reigns(now)) < 2:
            self._apart_since = None
        elif self._apart_since is None:
            self._apart_since = now
            self.wake_by(now + PATIENCE_BEATS * self.options.beat_us)

    def _reigns(self, now: Time) -> set[Reign]:
        """The networks in reach."""
        oldest = now - self.options.silent_us
        for device in [d for d, news in self._news.items() if news.time <= oldest]:
            del self._news[device]
        return {news.reign for news in self._news.values() if news.reign is not None}

    # ---- Time

    def wake(self, now: Time) -> None:
        if self.is_asleep:
            self._look_around(now)
            if self._begins_at <= now:
                self._begin(self._asked_by, now)
            elif self._apart_since is not None:
                if self._apart_since + PATIENCE_BEATS * self.options.beat_us <= now:
                    self._begin("", now)
                else:
                    self.wake_by(self._apart_since + PATIENCE_BEATS * self.options.beat_us)
            if self._begins_at != NEVER:
                self.wake_by(self._begins_at)
        elif self._beats_at <= now:
            if not self._is_new(now):
                self._release(now)
            self._end_leases(now)
            self._beat(now)
            if not self.is_asleep:
                self._beats_at = now + self.options.beat_us
                self.wake_by(self._beats_at)
        else:
            self.wake_by(self._beats_at)

    def _begin(self, client: NodeId, now: Time) -> None:
        """Serve from now on."""
        self.is_asleep = self.yields = False
        self._began = now
        self._asked_by, self._begins_at = "", NEVER
        self._apart_since = self._idle_since = None
        self._leases = dict.fromkeys(self._leases, now)
        self.broker.state(ServingBegan(at=self.broker.id, time=now, client=client))
        self._electing.wake(now)
        self._say(now)
        self._beats_at = now + self.options.beat_us
        self.wake_by(self._beats_at)

    def _beat(self, now: Time) -> None:
        """Say that it is there, or sleep if nobody needs it."""
        self._reigns(now)  # Who is silent is forgotten.
        election = self._electing.election
        is_end = election is not None and len(election.neighbours) <= 1
        is_alone = election is None or election.next_hop is None
        self.yields = is_end and not is_alone and self.options.meeting is Meeting.MERGE
        if not is_end or self._is_needed(now):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif self._idle_since + 2 * self.options.beat_us <= now:
            self._sleep(now)
            return
        self._say(now)

    def _is_needed(self, now: Time) -> bool:
        """Whether it has clients, keeps something for anybody, or is about to join networks."""
        broker, election = self.broker, self._electing.election
        return (
            bool(self._held)
            or any(election is None or reign != election.reign for reign in self._reigns(now))
            or Peer.CLIENT in broker.peers.values()
            or any(broker.backlog(link) for link in broker.peers)
            or any(each.queue for each in self._tables.subscribers.values())
        )

    def _sleep(self, now: Time) -> None:
        self._say(now, is_leaving=True)
        self.is_asleep, self._beats_at = True, NEVER
        self._news.clear()
        self._electing.rest(now)
        self.broker.state(ServingEnded(at=self.broker.id, time=now))

    def _say(self, now: Time, *, is_leaving: bool = False) -> None:
        del now
        election = self._electing.election
        if election is not None:
            here = BrokerHere(
                broker=self.broker.id,
                reign=election.reign,
                hops=len(election.path) - 1,
                yields=self.yields,
                is_leaving=is_leaving,
            )
            self.broker.act(Broadcast(here))

    # ---- Events that wait for subscriptions

    def _is_new(self, now: Time) -> bool:
        return now < self._began + GRACE_BEATS * self.options.beat_us

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        """Whether no event waits here."""
        return not self._held

    def events_arriving(self, events: Sequence[Event], link: LinkId, now: Time) -> Sequence[Event]:
        if self.broker.peers[link] is Peer.BROKER or not self._is_new(now):
            return events
        self._held.append((link, tuple(events)))
        return ()

    def _release(self, now: Time) -> None:
        held, self._held = self._held, []
        for link, events in held:
            self.broker.pass_on(events, link, now)

    def link_down(self, link: LinkId, now: Time) -> None:
        """What a client publishes at another broker now must not overtake what is held."""
        if self.broker.peers[link] is Peer.CLIENT:
            self._release(now)

    # ---- Leases

    def link_made(self, given: LinkUp, now: Time) -> None:
        """A client has come that has heard this broker before it slept."""
        if self.is_asleep and given.peer is Peer.CLIENT:
            self._begin(given.link, now)

    def link_up(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.CLIENT:
            self._leases[link] = now

    def on_lease_renewed(self, _message: LeaseRenewed, link: LinkId, now: Time) -> None:
        """A client still wants what it has subscribed to."""
        if self.broker.peers.get(link) is Peer.CLIENT:
            self._leases[link] = now

    def _end_leases(self, now: Time) -> None:
        """Forget the clients that have not been heard of, and those that nobody has."""
        broker, subscribers = self.broker, self._tables.subscribers
        clients = {link: None for link, peer in broker.peers.items() if peer is Peer.CLIENT}
        lost = {n: None for n, s in subscribers.items() if s.is_lost and (s.filters or s.queue)}
        self._leases = {n: self._leases.get(n, now) for n in (clients | lost)}
        for name in [n for n, t in self._leases.items() if t + self.options.lease_us <= now]:
            del self._leases[name]
            broker.state(LeaseEnded(at=broker.id, time=now, client=name))
            if name in clients:
                broker.act(
                    Disconnect(name)
                )  # If it is there after all, it comes back as a new one.
                broker.forget(name, now)
            else:
                self._tables.forget_subscriber(name, now)

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptServing:
        return KeptServing(
            is_asleep=self.is_asleep,
            yields=self.yields,
            beats_at=self._beats_at,
            begins_at=self._begins_at,
            asked_by=self._asked_by,
            apart_since=self._apart_since,
            idle_since=self._idle_since,
            news=[(device, *news) for device, news in self._news.items()],
            leases=list(self._leases.items()),
            began=self._began,
            held=[(link, [writer.event(e) for e in events]) for link, events in self._held],
        )

    def restore(self, kept: KeptServing, reader: Reader) -> None:
        self._began = kept.began
        self._held = [(link, tuple(map(reader.event, numbers))) for link, numbers in kept.held]
        self.is_asleep, self.yields = kept.is_asleep, kept.yields
        self._beats_at, self._begins_at = kept.beats_at, kept.begins_at
        self._asked_by, self._apart_since = kept.asked_by, kept.apart_since
        self._idle_since = kept.idle_since
        self._news = {device: News(reign, time) for device, reign, time in kept.news}
        self._leases = dict(kept.leases)


AD_HOC = Protocol(name=NAME, broker=Serving, client=Seeking)
