"""The memory of a broker: what counts against it, and what happens when it is used up."""

import logging
from collections.abc import Callable, Mapping
from random import randrange
from sys import getrefcount
from time import monotonic, thread_time
from typing import NamedTuple

from sterna.core.broker import Broker
from sterna.core.depot import Stretch
from sterna.core.inputs import MemoryShort
from sterna.core.messages import Events, Message
from sterna.core.names import NodeId, Peer
from sterna.core.sizes import Load, load
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.driver import BrokerDriver
from sterna.net.broker.pausing import Pausing
from sterna.net.broker.sessions import Session, Sessions
from sterna.net.broker.spilling import Wanted
from sterna.wire.frames import Role

log = logging.getLogger("sterna.broker")

SLOWEST_BYTES_S = 16 * 1024
"""A frame has a second more for each so many bytes of it that have arrived."""

COUNTING_SHARE = 50
"""Counting takes no more than one part in so many of the time, however many peers there are."""

UNCHECKED_S_MAX = 1.0
"""But there is a check at least once in so many seconds."""

DOWN, AWAY = "down", "away"
"""The kinds of queues that are spilled: for neighbours that are down, for clients that are away."""

SAMPLES = 16
"""So many messages for a client tell how much of what it was sent is for it alone."""

SAMPLES_MAX = 20_000
"""With many clients, there are fewer messages for each, and so many for all of them."""


class Shares(NamedTuple):
    """How many bytes of memory each kind of queue may take; together, that is all there is."""

    neighbours: int
    """Queues for neighbours, connected or not: three eighths."""
    here: int
    """Queues for connected clients: a quarter."""
    away: int
    """What waits for clients that are away: a quarter."""
    unfinished: int
    """Frames that have not arrived completely: an eighth."""

    @classmethod
    def of(cls, memory_bytes_max: int) -> "Shares":
        """The shares of so much memory."""
        eighth = memory_bytes_max // 8
        return cls(3 * eighth, 2 * eighth, 2 * eighth, eighth)


class Memory(NamedTuple):
    """About how many bytes of memory are in use, and for what."""

    queued: Load
    """All that waits for neighbours and clients, wherever they are."""
    neighbours: Mapping[NodeId, int]
    here: Mapping[NodeId, int]
    """By connected client."""
    absent: Mapping[NodeId, int]
    """By client that is away."""
    unfinished: int
    in_flight: int

    @property
    def away(self) -> int:
        """What waits for clients that are away."""
        return sum(self.absent.values())

    @property
    def total(self) -> int:
        """All of it."""
        queues = sum(self.neighbours.values()) + sum(self.here.values())
        return queues + self.away + self.unfinished + self.in_flight


class Unfinished(NamedTuple):
    """A frame that has not arrived completely."""

    place: int
    """How many bytes its connection had received before it."""
    since: float
    size: int
    """How many bytes of it have arrived."""


class Budget:
    """Counts what is queued, and sees to it that each kind of queue keeps to its share."""

    def __init__(
        self,
        configuration: Configuration,
        driver: BrokerDriver,
        sessions: Sessions,
        pausing: Pausing,
        strangers_bytes: Callable[[], int],
    ) -> None:
        self.is_used_up = False
        """Whether there is no memory for more clients."""
        self._configuration = configuration
        self._driver = driver
        self._sessions = sessions
        self._pausing = pausing
        self._strangers_bytes = strangers_bytes
        self._unfinished: dict[Session, Unfinished] = {}
        self._arrived_bytes = 0
        """How many bytes of unfinished frames have arrived since these were last counted."""
        self._overdue: frozenset[NodeId] = frozenset()
        """Those for whom sources wait."""
        self._hopeless: frozenset[NodeId] = frozenset()
        """The neighbours among them of whose queues nothing more can be spilled."""
        self._left_bytes = 0
        """What still waited for clients that are away when the core was last asked for less."""
        self._not_before = 0.0
        self._newest: Mapping[NodeId, int] = {}
        """The number of the newest message for each peer when there was the last check."""
        self._spill = driver.spill

    @property
    def bytes_max(self) -> int:
        """How much memory there is."""
        limits = self._configuration.limits
        return limits.memory_bytes_max or 4 * limits.queue_bytes_max

    @property
    def shares(self) -> Shares:
        """How much of it there is for what."""
        return Shares.of(self.bytes_max)

    @property
    def grain_bytes(self) -> int:
        """Whenever so many bytes were received, it is time for a check."""
        return self.bytes_max // 64

    @property
    def next_check_s(self) -> float | None:
        """In how many seconds there should be a check; None if nobody waits for one."""
        return max(0.0, self._not_before - monotonic()) if self._overdue else None

    # ---- Counting

    def count(self) -> Memory:
        """How much memory is in use now."""
        node, weigh = self._driver.node, Weighing().load
        for link in node.peers:
            node.queued(link, weigh)
        return self._count({})

    def _count(self, newest: Mapping[NodeId, int]) -> Memory:
        """How much memory is in use; of some queues, only what is not newer than a number."""
        node, links = self._driver.node, self._sessions.links
        events = size = 0
        neighbours: dict[NodeId, int] = {}
        here: dict[NodeId, int] = {}
        absent: dict[NodeId, int] = {}
        sent: dict[NodeId, int] = {}
        for link, peer in node.peers.items():
            queued, session = node.queued(link, up_to=newest.get(link)), links.get(link)
            memory = queued.memory_bytes + (0 if session is None else session.waiting_bytes)
            kept = node.kept(link)
            events += queued.events + kept.events
            size += queued.bytes + kept.bytes
            if peer is Peer.BROKER:
                neighbours[link] = memory + kept.memory_bytes
            elif session is None:
                absent[link] = memory + kept.memory_bytes
            else:
                here[link] = session.waiting_bytes + kept.memory_bytes
                sent[link] = queued.memory_bytes
        for client in node.hosted():
            kept = node.kept(client)
            events += kept.events
            size += kept.bytes
            absent[client] = kept.memory_bytes
        if sum(sent.values()) > self.shares.here // 2:  # It is mostly the same for many.
            samples = max(1, min(SAMPLES, SAMPLES_MAX // len(sent)))
            sent = {
                link: round(each * own_part(node, link, samples))
                for link, each in sent.items()
                if each
            }
        for link, each in sent.items():
            here[link] += each
        return Memory(
            queued=Load(events, size),
            neighbours=neighbours,
            here=here,
            absent=absent,
            unfinished=self._unfinished_bytes(),
            in_flight=self._pausing.in_flight_bytes,
        )

    def _weigh(self) -> Mapping[NodeId, int]:
        """Weigh what was in the queues at the last check already, and is not weighed yet.

        Most of what is newer will be gone before the next check. It is not much: checks follow each
        other whenever `grain_bytes` have been received. The result says how far this goes.
        """
        node, weigh = self._driver.node, Weighing().load
        before, self._newest = self._newest, {link: node.newest(link) for link in node.peers}
        for link, newest in before.items():
            if link in node.peers:
                node.queued(link, weigh, newest)
        return {link: before.get(link, 0) for link in node.peers}

    # ---- Keeping to it

    def check(self) -> Memory | None:
        """Count, and do something about what takes too much; None if it is too early for that."""
        if monotonic() < self._not_before:
            return None
        newest = self._weigh()
        now, began_s = monotonic(), thread_time()
        memory, shares = self._count(newest), self.shares
        counting_s = thread_time() - began_s
        self._not_before = now + min(UNCHECKED_S_MAX, COUNTING_SHARE * counting_s)
        self._check_frames(memory.unfinished - shares.unfinished, now)
        self._relieve(memory, shares)
        self._check_neighbours(memory, shares)
        self._check_away(memory.away, shares.away)
        was_used_up, self.is_used_up = self.is_used_up, memory.total > self.bytes_max * 9 // 10
        if self.is_used_up and not was_used_up:
            log.warning("memory is used up (memory_bytes_max): new clients are refused")
        return memory

    def unfinished(self, size_bytes: int) -> None:
        """Bytes of an unfinished frame have arrived: there may be too many of them by now."""
        self._arrived_bytes += size_bytes
        share = self.shares.unfinished
        if self._arrived_bytes > share // 2:
            total = self._unfinished_bytes()
            self._check_frames(total - share, monotonic())

    def _unfinished_bytes(self) -> int:
        self._arrived_bytes = 0
        sessions = sum(session.unfinished_bytes for session in self._sessions.roles)
        return sessions + self._strangers_bytes()

    def _check_frames(self, excess: int, now: float) -> None:
        """End connections that do not finish their frames, in time or when memory is needed."""
        before, self._unfinished = self._unfinished, {}
        frame_s = self._configuration.limits.frame_s
        roles = self._sessions.roles
        for session in list(roles):
            size = session.unfinished_bytes
            if not size:
                continue
            found = before.get(session)
            place = session.received_bytes - size
            if found is None or found.place != place or not self._pausing.reads(session):
                found = Unfinished(place, now, size)
            if now - found.since > frame_s + size / SLOWEST_BYTES_S:
                excess -= size
                self._sessions.refuse(session, "a frame was not finished in time (frame_s)")
            else:
                self._unfinished[session] = found._replace(size=size)
        oldest = sorted(self._unfinished.items(), key=lambda each: (each[1].since, -each[1].size))
        for session, unfinished in oldest:
            if excess <= 0:
                break
            if roles.get(session) is not Role.BROKER:  # Its frames may be longer than the share.
                excess -= unfinished.size
                reason = "too much memory is taken by unfinished frames (memory_bytes_max)"
                self._sessions.refuse(session, reason)

    def _relieve(self, memory: Memory, shares: Shares) -> None:
        """Spill what waits for neighbours and clients that are not there, from half a share on."""
        links = self._sessions.links
        down = {link: size for link, size in memory.neighbours.items() if link not in links}
        neighbours = sum(memory.neighbours.values())
        self._spill.relieve(
            Wanted(AWAY, memory.absent, _excess(memory.away, shares.away), shares.away),
            Wanted(DOWN, down, _excess(neighbours, shares.neighbours), shares.neighbours),
        )

    def _check_neighbours(self, memory: Memory, shares: Shares) -> None:
        """Have sources wait for the neighbours with the longest queues, if all take too much.

        As long as what is kept for clients that are away can be spilled, but has not been yet,
        sources wait for those as well.
        """
        overdue = _longest(memory.neighbours, shares.neighbours)
        hopeless = frozenset() if self._spill.helps(DOWN) else overdue
        for link in sorted(hopeless - self._hopeless):
            log.warning(
                "%d bytes wait for %s (memory_bytes_max, spill_bytes_max): whoever publishes what "
                "goes there waits",
                *(memory.neighbours[link], link),
            )
        self._hopeless = hopeless
        if self._spill.helps(AWAY):
            overdue |= _longest(memory.absent, shares.away)
        self._overdue = overdue
        self._pausing.queued(overdue)

    def _check_away(self, size: int, share: int) -> None:
        """Have the core keep less for clients that are away."""
        if size > max(share, self._left_bytes + share // 16) and not self._spill.helps(AWAY):
            room_bytes = share // 2 if self._spill.is_full else 0
            short = MemoryShort(away_bytes_max=share - share // 16, spilled_bytes=room_bytes)
            self._driver.give(short)
            self._spill.tidy()
            self._left_bytes = self.count().away
            log.warning(
                "what waits for clients that are away took %d bytes (memory_bytes_max, "
                "spill_bytes_max): the oldest was discarded, and clients with too much were "
                "forgotten",
                size,
            )


def _excess(size: int, share: int) -> int:
    """How much should be spilled: nothing up to half a share, then down to a quarter of it."""
    return size - share // 4 if size > share // 2 else 0


def _longest(queues: Mapping[NodeId, int], share: int) -> frozenset[NodeId]:
    """Those that have more than a fair part, if all together take more than their share."""
    if sum(queues.values()) <= share:
        return frozenset()
    fair = share // sum(1 for size in queues.values() if size)
    return frozenset(link for link, size in queues.items() if size > fair)


class Weighing:
    """Weighs messages. Events that go to many are weighed once, while it is kept."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, Load]] = {}

    def load(self, message: Message) -> Load:
        """How much a message adds to a queue."""
        if type(message) is not Events:
            return load(message)
        found = self._known.get(id(message.events))
        if found is None:  # Kept with the events themselves, so that their id is not reused.
            found = self._known[id(message.events)] = message.events, load(message)
        return found[1]


def own_part(node: Broker, link: NodeId, samples: int) -> float:
    """About which part of what a client was sent, and has not confirmed, is kept for it alone.

    The same event may be queued for many clients, and is in memory once. Python counts by how many
    it is referred to. A few messages are looked at, others each time.
    """
    count = node.parts(link)
    own = total = 0.0
    for _ in range(min(samples, count)):
        message, size = node.unconfirmed_at(link, randrange(count))  # noqa: S311 - it keeps no secret.
        own += size.memory_bytes / _holders(message)
        total += size.memory_bytes
    return own / total if total else 1.0


def _holders(message: Message | Stretch) -> int:
    """About how many queues hold the events of a message."""
    events = () if isinstance(message, Stretch) else getattr(message, "events", ())
    if not events:
        return 1
    event = events[0]
    # Neither the variables here nor the memory of recent events: rather too few than too many.
    return max(1, getrefcount(events) - 3, getrefcount(event) - 3)
