"""Brokers that make their own tree: leader election by heartbeats. (Amozarrain and Larrea, 4)

A leader sends a *beat* in each round. A broker that gets it from its *next hop*, its parent in the
tree, sends it on, with its own name behind those of the brokers that it came through. All that are
in reach hear it; beats are datagrams, and may get lost.

**Who is the leader.** A broker that has no way to any leader begins a reign of its own. Where two
leaders can hear of each other, the one wins that has reigned for longer by its own clock; if both
began at the same time, the one whose name comes first. A reign keeps its beginning, so this is a
total order, the same everywhere and at any time. A broker that comes later or comes back changes
no leader.

**Who is the next hop.** The first broker from which a beat of a better reign is heard, and after
that the same one as long as it works: few links change then. It works as long as it brings new
rounds. When it does not for a while, another broker takes its place that has brought a later round;
if there is none, the leader is lost.

**Why there is no ring.** A broker sends a round on only after its next hop has, and it takes no
next hop behind itself: a beat names all that it came through. A ring could bring no new rounds.

**Few changes.** When a broker loses its next hop, the brokers behind it wait a little longer, the
farther away the longer: mostly it finds another one meanwhile, and they have lost nothing. When two
partitions meet, the broker that hears of a better leader waits for a moment whether one of its
neighbours in the tree does, too: only one new link is needed, and the others just turn around.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from sterna.core.messages import Message
from sterna.core.names import NEVER, NodeId, Time
from sterna.model.ranges import Instant, Number

DEEP = 8
"""A broker that is so many hops from its leader, or more, waits longest."""

BEAT_MIN_US, BEAT_MAX_US = 10_000, 3_600_000_000
"""How often beats can be sent: within ten milliseconds and an hour."""

LEFT_MAX = 100
"""How many reigns are remembered that a broker has left."""


class Reign(msgspec.Struct, frozen=True, order=True, array_like=True):
    """That a broker is the leader. The lesser one wins."""

    since: Instant
    """When it began, by the leader's clock."""
    leader: NodeId


class Beat(Message, frozen=True, kw_only=True):
    """Leader -> all brokers in its partition, as a datagram: this is the next round."""

    is_datagram: ClassVar[bool] = True

    reign: Reign
    round: Number
    path: tuple[NodeId, ...]
    """The brokers that it came through, from the leader to the one that sends it."""

    @property
    def is_possible(self) -> bool:
        """Whether it names a way from its leader, on which no broker is twice."""
        path = self.path
        return bool(path) and path[0] == self.reign.leader and len(set(path)) == len(path)

    @property
    def sender(self) -> NodeId:
        return self.path[-1]

    @property
    def next_hop(self) -> NodeId | None:
        """The sender's next hop; None if it is the leader."""
        return self.path[-2] if len(self.path) > 1 else None


class ElectionTiming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often beats are sent, and how long a broker waits for them."""

    beat_us: Annotated[Time, msgspec.Meta(ge=BEAT_MIN_US, le=BEAT_MAX_US)] = 500_000
    """The time between two rounds."""

    @property
    def lost_us(self) -> Time:
        """A next hop that brings no new round for so long does not work."""
        return self.beat_us * 8 // 5

    @property
    def deeper_us(self) -> Time:
        """So much longer does a broker wait for each hop between it and the leader."""
        return self.beat_us // 10

    @property
    def meeting_us(self) -> Time:
        """So long a broker waits for its neighbours in the tree to hear of a better leader."""
        return self.beat_us * 3 // 10

    @property
    def forget_us(self) -> Time:
        """A broker that is not heard for so long is not in reach.

        Those that are far from a leader that is lost are silent for almost as long.
        """
        return self.beat_us * 5 // 2


class Heard(NamedTuple):
    """The last beat of a broker in reach, and when it came."""

    beat: Beat
    time: Time


class KeptElection(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of an election."""

    reign: Reign
    round: int
    path: tuple[NodeId, ...]
    renewed: Time
    beats_at: Time
    meets_at: Time
    heard: list[tuple[Beat, Time]]
    neighbours: list[NodeId]
    left: list[tuple[Reign, int]]


class Election:
    """One broker's part in the election. It is told what it hears and when time has passed.

    `beats` has what to send to all in reach, and `neighbours` the brokers that it is to be linked
    with: its next hop, and those whose next hop it is.
    """

    def __init__(self, id_: NodeId, timing: ElectionTiming, now: Time) -> None:
        self.id = id_
        self.timing = timing
        self.beats: list[Beat] = []
        self.neighbours: dict[NodeId, None] = {}
        self.heard: dict[NodeId, Heard] = {}
        """The last beats of the brokers in reach."""
        self._meets_at = NEVER
        """When it goes over to a better leader of which no neighbour in the tree has heard."""
        self._left: dict[Reign, int] = {}
        """The reigns that it has left, and the last round that it has seen of each. What others
        still say of that round is old."""
        self._reign(now)

    # ---- Where it is in the tree

    @property
    def leader(self) -> NodeId:
        return self.reign.leader

    @property
    def next_hop(self) -> NodeId | None:
        """The next broker on the way to the leader; None at the leader itself."""
        return self.path[-2] if len(self.path) > 1 else None

    @property
    def deadline(self) -> Time:
        """When time has to pass."""
        own = self._beats_at if self.next_hop is None else self._lost_at
        return min(own, self._meets_at, self._silent_at)

    @property
    def _silent_at(self) -> Time:
        """When one of its neighbours will have been silent for too long."""
        forget_us = self.timing.forget_us
        heard = [self.heard[broker] for broker in self.neighbours if broker in self.heard]
        return min((each.time + forget_us for each in heard), default=NEVER)

    @property
    def _lost_at(self) -> Time:
        hops = min(len(self.path) - 1, DEEP)
        return self._renewed + self.timing.lost_us + hops * self.timing.deeper_us

    def _reign(self, now: Time) -> None:
        """Begin to lead."""
        self.reign = Reign(now, self.id)
        self.round = 0
        self.path: tuple[NodeId, ...] = (self.id,)
        self._renewed = now
        """When the last round has come."""
        self._beats_at = now
        self._meets_at = NEVER
        self._beat(now)

    def _beat(self, now: Time) -> None:
        """Begin the next round, as the leader."""
        self.round += 1
        self._renewed = now
        self._beats_at = now + self.timing.beat_us
        self._send_on()

    def _send_on(self) -> None:
        self.beats.append(Beat(reign=self.reign, round=self.round, path=self.path))

    # ---- What it hears

    def hear(self, beat: Beat, now: Time) -> None:
        """A broker in reach has sent a beat."""
        sender = beat.sender
        if sender == self.id:
            return
        before = self.heard.get(sender)
        if before is not None and _is_older(beat, before.beat):
            return  # It was overtaken on its way.
        self.heard[sender] = Heard(beat, now)
        if beat.next_hop == self.id:
            self.neighbours[sender] = None
        elif sender != self.next_hop and beat.reign == self.reign:
            self.neighbours.pop(sender, None)  # It has another next hop.
        if sender == self.next_hop:
            self._follow(beat, now)
        elif self._is_way(beat) and beat.reign < self.reign:
            if sender in self.neighbours:
                self._go(beat, now)
            elif self._meets_at == NEVER:
                self._meets_at = now + self.timing.meeting_us

    def gone(self, broker: NodeId, now: Time) -> None:
        """A broker takes part no longer, and has said so."""
        if broker == self.next_hop:
            self.heard.pop(broker, None)
            self._look_for_way(now)
        else:
            self._drop(broker)

    def _is_way(self, beat: Beat) -> bool:
        """Whether a beat shows a way to a leader that may be alive, and not through this broker."""
        return self.id not in beat.path and beat.round > self._left.get(beat.reign, -1)

    def _follow(self, beat: Beat, now: Time) -> None:
        """The next hop has sent a beat."""
        if not self._is_way(beat):
            self._look_for_way(now)
        elif beat.reign < self.reign or (beat.reign == self.reign and beat.round > self.round):
            self._go(beat, now)
        elif beat.reign > self.reign:  # It has lost the leader.
            self._look_for_way(now)

    def _go(self, beat: Beat, now: Time) -> None:
        """The sender of a beat is the next hop from now on, if it was not before."""
        before = self.next_hop
        if beat.reign != self.reign:
            self._leave()
        self.reign, self.round, self.path = beat.reign, beat.round, (*beat.path, self.id)
        self._renewed = now
        self._forget_silent(now)
        if before != beat.sender:
            self.neighbours[beat.sender] = None
        if self._meets_at != NEVER and not any(self._better(now)):
            self._meets_at = NEVER
        self._send_on()

    def _leave(self) -> None:
        """Remember what was the last that it has seen of this reign."""
        self._left.pop(self.reign, None)
        self._left[self.reign] = self.round
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def _forget_silent(self, now: Time) -> None:
        for broker in [b for b, heard in self.heard.items() if self._is_gone(heard, now)]:
            del self.heard[broker]
            if broker != self.next_hop:
                self.neighbours.pop(broker, None)

    def retime(self, timing: ElectionTiming, now: Time) -> None:
        """Beats come more or less often from now on."""
        self.timing = timing
        self._beats_at = min(self._beats_at, now + timing.beat_us)

    def restart(self, now: Time) -> None:
        """The broker was down: others have gone on, so it begins anew, and changes no leader."""
        self.heard.clear()
        self.neighbours.clear()
        self._leave()
        self._reign(now)

    # ---- Time

    def wake(self, now: Time) -> None:
        """Time has passed."""
        self._forget_silent(now)
        if self._meets_at <= now:
            self._meets_at = NEVER
            best = min(self._better(now), key=self._preference, default=None)
            if best is not None:
                self._leave_next_hop(best.reign)
                self._go(best, now)
        if self.next_hop is None:
            if self._beats_at <= now:
                self._beat(now)
        elif self._lost_at <= now:
            self._look_for_way(now)

    def _is_gone(self, heard: Heard, now: Time) -> bool:
        return heard.time + self.timing.forget_us <= now

    def _look_for_way(self, now: Time) -> None:
        """The next hop does not work: take another one, or begin to lead."""
        lost = self.next_hop
        ways = [beat for beat in self._ways(now) if self._leads_on(beat)]
        best = min(ways, key=self._preference, default=None)
        if best is None:
            self._drop(lost)
            self._leave()
            self._reign(now)
        else:
            if best.sender != lost:
                self._drop(lost)
            self._go(best, now)

    def _leads_on(self, beat: Beat) -> bool:
        """Whether a beat shows more than this broker knows; else its sender is no better off."""
        return beat.reign != self.reign or beat.round > self.round

    def _leave_next_hop(self, reign: Reign) -> None:
        """Before it goes over to a better leader, end the links that lead there as well."""
        for broker in list(self.neighbours):
            heard = self.heard.get(broker)
            if heard is not None and heard.beat.reign == reign and broker not in self._behind():
                self._drop(broker)

    def _behind(self) -> list[NodeId]:
        """The brokers whose next hop this one is."""
        return [b for b, heard in self.heard.items() if heard.beat.next_hop == self.id]

    def _drop(self, broker: NodeId | None) -> None:
        if broker is not None:
            self.neighbours.pop(broker, None)
            self.heard.pop(broker, None)

    def _ways(self, now: Time) -> Iterator[Beat]:
        """The last beats of brokers that are in reach and not behind this one."""
        for heard in self.heard.values():
            if self._is_way(heard.beat) and not self._is_gone(heard, now):
                yield heard.beat

    def _better(self, now: Time) -> Iterator[Beat]:
        return (beat for beat in self._ways(now) if beat.reign < self.reign)

    def _preference(self, beat: Beat) -> tuple[Reign, bool, int, int, NodeId]:
        """The better leader, then a neighbour in the tree, then who is nearer to the leader."""
        is_new = beat.sender not in self.neighbours
        return beat.reign, is_new, len(beat.path), -beat.round, beat.sender

    # ---- Snapshots

    def keep(self) -> KeptElection:
        """What a snapshot has to hold."""
        return KeptElection(
            reign=self.reign,
            round=self.round,
            path=self.path,
            renewed=self._renewed,
            beats_at=self._beats_at,
            meets_at=self._meets_at,
            heard=[(heard.beat, heard.time) for heard in self.heard.values()],
            neighbours=list(self.neighbours),
            left=list(self._left.items()),
        )

    def restore(self, kept: KeptElection) -> None:
        """Go on with what a snapshot has held."""
        self.beats.clear()
        self.reign, self.round, self.path = kept.reign, kept.round, kept.path
        self._renewed, self._beats_at = kept.renewed, kept.beats_at
        self._meets_at = kept.meets_at
        self.heard = {beat.sender: Heard(beat, time) for beat, time in kept.heard}
        self.neighbours = dict.fromkeys(kept.neighbours)
        self._left = dict(kept.left)


def _is_older(beat: Beat, known: Beat) -> bool:
    """Whether a beat was sent before another one of the same broker."""
    return beat.reign == known.reign and beat.round < known.round
