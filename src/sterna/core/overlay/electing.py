"""A broker that takes part in the election, and is linked with its neighbours in the tree."""

from typing import TYPE_CHECKING, Self, cast

import msgspec

from sterna.core.actions import Broadcast, Connect, Disconnect
from sterna.core.component import BrokerComponent
from sterna.core.facts import Fact
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.names import LinkId, NodeId, Peer, Time
from sterna.core.overlay.election import (
    Beat,
    Election,
    ElectionTiming,
    KeptElection,
    Reign,
)
from sterna.core.protocol import Protocol
from sterna.core.settings import Settings

if TYPE_CHECKING:
    from sterna.core.broker import Broker


class LeaderChanged(Fact, frozen=True, kw_only=True):
    """A broker follows another leader than before."""

    leader: NodeId
    since: Time
    """When the leader began to lead, by its own clock."""


class NextHopChanged(Fact, frozen=True, kw_only=True):
    """A broker has another way to its leader than before."""

    next_hop: NodeId
    """The next broker on the way; empty at the leader itself."""
    before: NodeId
    hops: int
    """How many links there are to the leader."""


class KeptElecting(msgspec.Struct, frozen=True):
    """What a snapshot holds of it."""

    election: KeptElection | None
    linked: list[LinkId]
    before: NodeId | None = None


class Electing(BrokerComponent):
    """The broker's part in the election; what it finds out becomes links."""

    name = "election"
    handles = (Beat,)
    facts = (LeaderChanged, NextHopChanged)
    Kept = KeptElecting
    deadline = 0  # It begins as soon as the broker does.

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(cls.name, ElectionTiming))

    def __init__(self, timing: ElectionTiming | None = None) -> None:
        self.timing = timing or ElectionTiming()
        self.election: Election | None = None
        self._linked: dict[LinkId, None] = {}
        self._before: NodeId | None = None
        """The next hop before the present one, as long as there is no link to the present one."""

    def configure(self, settings: Settings, now: Time) -> None:
        self.timing = settings.options_of(self.name, ElectionTiming)
        if self.election is not None:
            self.election.retime(self.timing, now)
            self.wake_by(self.election.deadline)

    def wake(self, now: Time) -> None:
        if self._is_asleep:
            return
        election = self.election
        if election is None:
            election = self.election = Election(self.broker.id, self.timing, now)
            self._follow(election, None, None, now)
            return
        reign, next_hop = election.reign, election.next_hop
        election.wake(now)
        self._follow(election, reign, next_hop, now)

    def begin(self, now: Time) -> None:
        """Links that were there before are none of the tree; they end once all has begun."""
        broker = self.broker
        self._linked |= {link: None for link in broker.known if _is_broker(broker, link)}
        self.wake_by(now)

    def end(self, now: Time) -> bool:
        """Others decide now which links there are, and make them anew."""
        for link in list(self._linked):
            self._end(link, now)
        return True

    def restarted(self, now: Time) -> None:
        """The election begins anew, and with it all links."""
        election = self.election
        if election is None:
            self.wake(now)
            return
        reign, next_hop = election.reign, election.next_hop
        election.restart(now)
        self._follow(election, reign, next_hop, now)

    def on_beat(self, message: Beat, link: LinkId, now: Time) -> None:
        """A broker in reach has sent a beat."""
        if not message.is_possible or message.sender != link:
            return  # It is not what a broker of that name would send.
        if self._is_asleep:
            return
        if self.election is None:
            self.wake(now)
        election = cast("Election", self.election)
        reign, next_hop = election.reign, election.next_hop
        election.hear(message, now)
        self._follow(election, reign, next_hop, now)

    @property
    def _is_asleep(self) -> bool:
        """Whether the broker takes no part."""
        return any(sleeps() for sleeps in self.broker.hooks.sleeps)

    def gone(self, other: NodeId, now: Time) -> None:
        """Another broker takes part no longer, and has said so."""
        election = self.election
        if election is not None:
            reign, next_hop = election.reign, election.next_hop
            election.gone(other, now)
            self._follow(election, reign, next_hop, now)

    def rest(self, now: Time) -> None:
        """Take part no longer, until `wake`."""
        self.election = self._before = None
        for link in list(self._linked):
            self._end(link, now)

    def _follow(
        self, election: Election, reign: Reign | None, next_hop: NodeId | None, now: Time
    ) -> None:
        """Do and state what has changed."""
        here, broker = self.broker.id, self.broker
        if election.reign != reign:
            since, leader = election.reign.since, election.leader
            broker.state(LeaderChanged(at=here, time=now, leader=leader, since=since))
        if election.next_hop != next_hop:
            broker.state(
                NextHopChanged(
                    at=here,
                    time=now,
                    next_hop=election.next_hop or "",
                    before=next_hop or "",
                    hops=len(election.path) - 1,
                )
            )
            self._before = next_hop or ""
            self._migrate(election.next_hop, now)
        for link in [each for each in self._linked if each not in election.neighbours]:
            self._end(link, now)
        for link in election.neighbours:
            if link not in self._linked:
                self._linked[link] = None
                broker.act(Connect(link))
        for beat in election.beats:
            broker.act(Broadcast(beat))
        election.beats.clear()
        self.wake_by(election.deadline)

    def _end(self, link: LinkId, now: Time) -> None:
        self._linked.pop(link, None)
        self.broker.act(Disconnect(link))
        self.broker.forget(link, now)

    def _migrate(self, to: NodeId | None, now: Time) -> None:
        """The broker has moved to another next hop, if there is a link to that one."""
        if to is not None and to in self.broker.known:
            before, self._before = self._before, None
            for migrated in self.broker.hooks.migrated:
                migrated(to if before is None else before, to, now)

    # ---- Links

    def link_made(self, given: LinkUp, now: Time) -> None:
        """Links that have no place in the tree are refused: what goes over a ring comes again.

        A broker behind this one may make its link before its beat has said so. Then this one makes
        the link when the beat has come.
        """
        if given.peer is Peer.BROKER and given.link not in self._linked:
            self._end(given.link, now)

    def link_new(self, link: LinkId, now: Time) -> None:
        """If it is the next hop that knows nothing of this broker, it has to be told all."""
        if self.election is not None and link == self.election.next_hop:
            self._migrate(link, now)

    def link_down(self, link: LinkId, now: Time) -> None:
        """The other end may have given up a link that is needed."""
        del now
        if link in self._linked:
            self.broker.act(Connect(link))

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptElecting:
        del writer
        kept = None if self.election is None else self.election.keep()
        return KeptElecting(kept, list(self._linked), self._before)

    def restore(self, kept: KeptElecting, reader: Reader) -> None:
        del reader
        self._linked = dict.fromkeys(kept.linked)
        self._before = kept.before
        if kept.election is not None:
            self.election = Election(self.broker.id, self.timing, 0)
            self.election.restore(kept.election)


def _is_broker(broker: "Broker", link: LinkId) -> bool:
    return broker.peers.get(link) is Peer.BROKER


ELECTION = Protocol(name="election", broker=Electing)
