"""A network of nodes: hosts that run them, connections that carry their frames, and what goes
wrong.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from sterna.core.actions import Action, Broadcast, Connect, Disconnect, Reconnect, Transmit
from sterna.core.assembly import client_settings
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.facts import Fact, Settled
from sterna.core.frames import Ack, Data, Frame, Paged, Resume, sendable
from sterna.core.inputs import (
    Attach,
    Configured,
    Heard,
    Input,
    LinkDown,
    LinkGone,
    LinkUp,
    Migrated,
    Received,
    Restarted,
    TimePassed,
)
from sterna.core.lives import NOTHING_KNOWN
from sterna.core.messages import Message
from sterna.core.names import NEVER, NodeId, Peer, Time
from sterna.core.settings import Settings
from sterna.errors import SternaError
from sterna.sim.host import Host, Make, ended, gathered
from sterna.sim.kernel import Kernel
from sterna.sim.script import LinkModel
from sterna.wire.codec import size

SETTLE_MAX_US: Time = 600_000_000
"""How long a network may take to settle, in virtual time."""

RECONNECT_US: Time = 1_000
"""How soon a client is back when its broker has ended the connection."""

WAKES_MAX = 1_000
"""How often a node may ask to be woken at once; beyond that, time would never pass."""


class NeverSettlesError(SternaError):
    """Something is on its way and never arrives: a protocol has a fault."""


class Observer:
    """Watches a run; subclasses override what they want to see."""

    def fact(self, fact: Fact) -> None:
        """A node has stated a fact."""

    def given(self, node: NodeId, given: Input, now: Time) -> None:
        """A client's application has done something."""

    def sent(self, pipe: "Pipe", frame: Frame, fate: "Fate", now: Time) -> None:
        """A frame was sent."""

    def trouble(self, text: str, now: Time) -> None:
        """Something went wrong, or works again."""


class Fate(msgspec.Struct, frozen=True):
    """What happens to a frame."""

    again: bool = False
    """Whether its message was sent before."""
    lost: bool = False
    twice: bool = False
    """Whether it arrives twice."""


FIRST, AGAIN = Fate(), Fate(again=True)


class Pipe:
    """One direction of a connection."""

    def __init__(self, source: Host, target: Host, link: "Connection") -> None:
        self.source = source
        self.target = target
        self.connection = link
        self.last_arrival: Time = 0
        self.free_at: Time = 0
        self.last_seq = 0
        self.session: tuple[int, int | None] | None = None
        """The incarnations of both ends; when they change, messages are numbered anew."""
        self.messages: Counter[type[Message]] = Counter()
        self.frames = 0
        self.bytes: Counter[type[Message] | None] = Counter()
        """The bytes by type of message; None counts acknowledgements and handshakes."""

    def __str__(self) -> str:
        return f"{self.source.node.id} → {self.target.node.id}"


class Connection:
    """Two pipes that are up or down together."""

    def __init__(self, a: Host, b: Host) -> None:
        self.ends = (a, b)
        self.pipes = (Pipe(a, b, self), Pipe(b, a, self))
        self.troubles = 1
        """How many reasons there are for it to be down; a new connection begins with one."""
        self.is_wanted = True
        """Whether its client wants to be connected."""
        self.latency_us: Time = 0
        self.epoch = 0
        """Counts how often it broke: what was sent in an earlier epoch does not arrive."""


class Network:
    """Hosts and connections under one virtual time."""

    def __init__(
        self, model: LinkModel, *, seed: int = 0, observers: Sequence[Observer] = (),
        count_bytes: bool = False,
    ) -> None:  # fmt: skip
        self.kernel = Kernel()
        self.model = model
        self.hosts: dict[NodeId, Host] = {}
        self.connections: list[Connection] = []
        self._rng = random.Random(f"network {seed}")  # noqa: S311 - reproducible, not secret.
        self._fact = _hooks(observers, "fact")
        self._given = _hooks(observers, "given")
        self._sent = _hooks(observers, "sent")
        self._trouble = _hooks(observers, "trouble")
        self._latencies: dict[frozenset[NodeId], Time] = {}
        """The latencies of connections that differ from the others."""
        self._reach: dict[NodeId, dict[NodeId, None]] | None = None
        """Who is in reach of each broker, if brokers make their links by themselves."""
        self._places: dict[NodeId, NodeId] = {}
        """The brokers on whose devices clients are, if they look for brokers by themselves."""
        self._dialled: dict[tuple[NodeId, NodeId], None] = {}
        """The connections that brokers are about to make."""
        self._has_ended = False
        """Whether a link between brokers has ended for good."""
        self._wakes = 0
        """How many of the planned calls are only timers of nodes."""
        self._is_ideal = not (model.jitter_us or model.loss or model.duplication)
        self._knows_arrivals = model.known_arrivals
        self._count_bytes = count_bytes or model.bytes_per_s is not None

    # ---- Building

    def add(self, make: Make, peer: Peer) -> Host:
        """Put a node on the network."""
        host = Host(make, peer, self.kernel)
        self.hosts[host.node.id] = host
        return host

    def begin(
        self, reach: Iterable[tuple[NodeId, NodeId]], carried: Mapping[NodeId, NodeId] | None = None
    ) -> None:
        """Have brokers begin to make links by themselves, to others in their reach.

        Clients that are `carried` are each on the device of a broker, and begin as well.
        """
        self._places = dict(carried or {})
        self._reach = {host.node.id: {} for host in self.hosts.values()}
        for a, b in reach:
            self._reach[a][b] = self._reach[b][a] = None
        for host in list(self.hosts.values()):
            if host.peer is Peer.BROKER:
                self._turn(host, Restarted())
            elif host.node.id in self._places:
                self._turn(host, TimePassed())

    def set_reach(self, a: NodeId, b: NodeId, *, up: bool) -> None:
        """Two brokers come into reach of each other, or get out of it."""
        if self._reach is None or (b in self._reach[a]) == up:
            return
        self._report(f"{a} and {b} are {'in' if up else 'out of'} reach")
        between = [(a, b), *((c, b) for c in self._on(a)), *((c, a) for c in self._on(b))]
        found = [each for pair in between if (each := self.connection(*pair)) is not None]
        if up:
            self._reach[a][b] = self._reach[b][a] = None
        else:
            del self._reach[a][b], self._reach[b][a]
        for connection in found:
            (self._relieve if up else self._burden)(connection)

    def _on(self, broker: NodeId) -> list[NodeId]:
        """The clients on the device of a broker."""
        return [client for client, place in self._places.items() if place == broker]

    def _in_reach(self, a: Host, b: Host) -> bool:
        if self._reach is None:
            return True
        if Peer.CLIENT in (a.peer, b.peer) and not {a.node.id, b.node.id} & {*self._places}:
            return True
        here, there = (self._places.get(each.node.id, each.node.id) for each in (a, b))
        return here == there or there in self._reach[here]

    def connect(self, a: NodeId, b: NodeId) -> Connection:
        """Make a connection; it is up at once."""
        connection = Connection(self.hosts[a], self.hosts[b])
        connection.latency_us = self._latency_us(a, b)
        connection.troubles += sum(host.is_down for host in connection.ends)
        connection.troubles += not self._in_reach(*connection.ends)
        for pipe in connection.pipes:
            pipe.source.pipes[pipe.target.node.id] = pipe
        self.connections.append(connection)
        self._relieve(connection)
        return connection

    def attach(self, client: NodeId, broker: NodeId) -> None:
        """Have a client attach to its first broker."""
        self._turn(self.hosts[client], Attach(broker=broker))

    def migrate(self, broker: NodeId, before: NodeId, to: NodeId) -> None:
        """A broker moves from one broker to another, with all that is behind it."""
        if before in self.hosts[broker].node.peers:
            self.end(broker, before)
        self.connect(broker, to)
        self._turn(self.hosts[broker], Migrated(before=before, to=to))

    def end(self, a: NodeId, b: NodeId) -> None:
        """Remove a link; both ends know that it will not come back."""
        self._has_ended = True
        connection = self.hosts[a].pipes[b].connection
        self._burden(connection)
        for host, pipe in zip(connection.ends, connection.pipes, strict=True):
            self._turn(host, LinkGone(link=pipe.target.node.id))

    def connection(self, a: NodeId, b: NodeId) -> Connection | None:
        """The connection between two nodes, if they have ever had one."""
        pipe = self.hosts[a].pipes.get(b)
        return None if pipe is None else pipe.connection

    def _latency_us(self, a: NodeId, b: NodeId) -> Time:
        return self._latencies.get(frozenset((a, b)), self.model.latency_us)

    def slow(self, a: NodeId, b: NodeId, latency_us: Time) -> None:
        """From now on frames between two nodes take so long."""
        self._latencies[frozenset((a, b))] = latency_us
        connection = self.connection(a, b)
        if connection is not None:
            connection.latency_us = latency_us

    # ---- Running

    def give(self, node: NodeId, given: Input) -> None:
        """Give a node an input of its application."""
        for seen in self._given:
            seen(node, given, self.kernel.now)
        self._turn(self.hosts[node], given)

    def run(self, until: Time) -> None:
        """Let time pass, up to a moment."""
        self.kernel.run(until)

    def settle(self) -> None:
        """Let time pass until nothing is on its way, whatever timers are set for later."""
        latest = self.kernel.now + SETTLE_MAX_US
        while len(self.kernel) > self._wakes or not self._is_settled():
            if self.kernel.now > latest or not len(self.kernel):
                raise NeverSettlesError(self._unsettled())
            self.kernel.step()
        if self._is_whole():
            for state in self._fact:
                state(Settled(at="", time=self.kernel.now))

    def _is_whole(self) -> bool:
        """Whether links that have ended have left the brokers in one part.

        Otherwise, what is for another part is still on its way, though nothing happens.
        """
        if not self._has_ended:
            return True
        brokers = [h for h in self.hosts.values() if h.peer is Peer.BROKER and not h.is_dead]
        part, to_visit = {brokers[0].node.id}, brokers[:1]
        while to_visit:
            node = to_visit.pop().node
            for name in node.known:
                host = self.hosts[name]
                if host.peer is Peer.BROKER and name not in part and node.id in host.node.known:
                    part.add(name)
                    to_visit.append(host)
        return len(part) == len(brokers)

    def _unsettled(self) -> str:
        busy = [host.node.id for host in self.hosts.values() if not host.node.is_settled]
        return f"after ten minutes there is still something on its way at {', '.join(busy)}"

    def _is_settled(self) -> bool:
        return all(host.node.is_settled or host.is_dead for host in self.hosts.values())

    def _turn(self, host: Host, given: Input) -> None:
        if host.waiting is not None:
            host.waiting.append(given)
        else:
            self._handle(host, given)

    def _handle(self, host: Host, given: Input) -> None:
        node, now = host.node, self.kernel.now if host.clock is None else host.clock.now()
        if host.log is not None:
            host.log.append((given, now))
        turn = node.handle(given, now)
        for state in self._fact:
            for fact in turn.facts:
                state(fact)
        for action in turn.actions:
            if type(action) is Transmit:
                pipe = host.pipes[action.link]
                if type(action.frame) is Paged:
                    for frame in sendable(action.frame, node.depot):
                        self._transmit(pipe, frame)
                else:
                    self._transmit(pipe, action.frame)
            else:
                self._act(host, action)
        if node.deadline < host.waking_at:
            self._wake_in(host, node.deadline, node.deadline - now)

    def _act(self, host: Host, action: Action) -> None:
        """Do an action that is rare."""
        match action:
            case Connect(link) if host.peer is Peer.BROKER:
                self._dialled[host.node.id, link] = None
                self.kernel.at(self.kernel.now + RECONNECT_US, self._dial, host, link)
            case Connect(link):
                self._connect(host, link)
            case Disconnect(link):
                self._dialled.pop((host.node.id, link), None)
                if link not in host.pipes:
                    return
                connection = host.pipes[link].connection
                if host.peer is Peer.BROKER and host.pipes[link].target.peer is Peer.CLIENT:
                    self._reconnect(connection)  # The client comes back by itself.
                elif connection.is_wanted:
                    connection.is_wanted = False
                    self._burden(connection)
            case Broadcast(message):
                self._broadcast(host, message)
            case Reconnect(link):
                self._reconnect(host.pipes[link].connection)
            case _:
                pass

    def _connect(self, host: Host, link: NodeId) -> None:
        connection = self.connection(host.node.id, link)
        if connection is None:
            self.connect(host.node.id, link)
        elif not connection.is_wanted:
            connection.is_wanted = True
            self._relieve(connection)

    def _dial(self, host: Host, link: NodeId) -> None:
        """A broker makes a connection, unless it has changed its mind."""
        if (host.node.id, link) in self._dialled and not host.is_down:
            self._connect(host, link)
        self._dialled.pop((host.node.id, link), None)

    def _broadcast(self, host: Host, message: Message) -> None:
        """Send a datagram to all in reach; each of them may lose it."""
        source = host.node.id
        for name in self._hearing(source):
            if self.model.loss and self._rng.random() < self.model.loss:
                continue
            late_us = self._rng.randrange(self.model.jitter_us + 1) if self.model.jitter_us else 0
            arrival = self.kernel.now + self._latency_us(source, name) + late_us
            self.kernel.at(arrival, self._hear, source, self.hosts[name], message)

    def _hearing(self, source: NodeId) -> list[NodeId]:
        """All that are in reach of a node: other devices, and what is on them and on its own."""
        here = self._places.get(source, source)
        devices = (here, *(self._reach or {}).get(here, ()))
        found = [each for device in devices for each in (device, *self._on(device))]
        return [each for each in found if each != source]

    def _hear(self, source: NodeId, target: Host, message: Message) -> None:
        if not target.is_down and self._in_reach(self.hosts[source], target):
            self._turn(target, Heard(sender=source, message=message))

    def _reconnect(self, connection: Connection) -> None:
        if not connection.troubles:
            self._burden(connection)
            self.kernel.at(self.kernel.now + RECONNECT_US, self._relieve, connection)

    def _wake_in(self, host: Host, deadline: Time, us: Time) -> None:
        host.waking_at = deadline
        self._wakes += 1
        self.kernel.at(self.kernel.now + max(0, us), self._wake, host, deadline)

    def _wake(self, host: Host, deadline: Time) -> None:
        self._wakes -= 1
        if host.waking_at == deadline:  # Else an earlier one was asked for.
            host.waking_at = NEVER
            if host.is_down:
                return
            early_us = deadline - host.now()
            if early_us > 0:  # The node's time runs more slowly, after its wall clock.
                self._wake_in(host, deadline, early_us)
            else:
                host.wakes_now = host.wakes_now + 1 if host.woken_at == self.kernel.now else 1
                host.woken_at = self.kernel.now
                if host.wakes_now > WAKES_MAX:
                    raise NeverSettlesError(f"{host.node.id} wants to be woken without an end")
                self._turn(host, TimePassed())

    # ---- Frames

    def _transmit(self, pipe: Pipe, frame: Frame) -> None:
        connection = pipe.connection
        behind = pipe.source.behind
        if connection.troubles or (behind and behind[pipe.target.node.id]):
            return
        pipe.frames += 1
        fate = FIRST
        if type(frame) is Data:
            if frame.seq > pipe.last_seq:
                pipe.last_seq = frame.seq
                pipe.messages[type(frame.message)] += 1
            else:
                fate = AGAIN
        elif type(frame) is Resume and pipe.session != (frame.incarnation, frame.partner):
            pipe.session = frame.incarnation, frame.partner
            pipe.last_seq = 0
        now = self.kernel.now
        arrival = now + connection.latency_us
        if self._count_bytes:
            arrival = self._count(pipe, frame, arrival)
        if self._is_ideal:
            if arrival < pipe.last_arrival:  # noqa: PLR1730 - max() costs more.
                arrival = pipe.last_arrival
            pipe.last_arrival = arrival
            self.kernel.at(arrival, self._arrive, pipe, frame, connection.epoch)
        elif self._rng.random() < self.model.loss:
            fate = Fate(fate.again, lost=True)
        else:
            fate = self._random_fate(pipe, frame, arrival, fate)
        for seen in self._sent:
            seen(pipe, frame, fate, now)

    def _count(self, pipe: Pipe, frame: Frame, arrival: Time) -> Time:
        length = size(frame)
        pipe.bytes[type(frame.message) if type(frame) is Data else None] += length
        if self.model.bytes_per_s is None:
            return arrival
        begins = max(self.kernel.now, pipe.free_at)
        pipe.free_at = begins + length * 1_000_000 // self.model.bytes_per_s
        return pipe.free_at + pipe.connection.latency_us

    def _random_fate(self, pipe: Pipe, frame: Frame, arrival: Time, fate: Fate) -> Fate:
        rng, model = self._rng, self.model
        if model.jitter_us:
            arrival += rng.randrange(model.jitter_us + 1)
        arrival = pipe.last_arrival = max(arrival, pipe.last_arrival)
        epoch = pipe.connection.epoch
        self.kernel.at(arrival, self._arrive, pipe, frame, epoch)
        if rng.random() < model.duplication:
            late = arrival + rng.randrange(model.stray_us + 1)
            self.kernel.at(late, self._arrive, pipe, frame, epoch)
            return Fate(fate.again, twice=True)
        return fate

    def _arrive(self, pipe: Pipe, frame: Frame, epoch: int) -> None:
        if epoch == pipe.connection.epoch:
            source, target = pipe.source, pipe.target
            self._turn(target, Received(link=source.node.id, frames=(frame,)))
            if self._knows_arrivals and type(frame) is Data:
                link = target.node.id
                if not source.node.arrived(link, frame.seq):
                    self._turn(source, Received(link=link, frames=(Ack(frame.seq),)))

    # ---- What goes wrong

    def drop(self, connections: Sequence[Connection], us: Time, what: str) -> None:
        """Connections break for a while."""
        self._report(f"{what} is cut for {us / 1000:g} ms")
        for connection in connections:
            self._burden(connection)

        def stand() -> None:
            self._report(f"{what} stands again")
            for connection in connections:
                self._relieve(connection)

        self.kernel.at(self.kernel.now + us, stand)

    def pause(self, broker: NodeId, us: Time) -> None:
        """A broker does nothing for a while."""
        host = self.hosts[broker]
        if self._is_idle(host):
            return
        self._report(f"{broker} pauses for {us / 1000:g} ms")
        host.waiting = []
        self.kernel.at(self.kernel.now + us, self._go_on, host)

    def _go_on(self, host: Host) -> None:
        if host.is_dead:
            return
        self._report(f"{host.node.id} goes on")
        while host.waiting:  # What comes of these inputs comes behind those that wait.
            waiting, host.waiting = host.waiting, []
            host.behind.update(given.link for given in waiting if isinstance(given, LinkUp))
            for given in gathered(waiting):
                if isinstance(given, LinkUp):
                    host.behind[given.link] -= 1
                self._handle(host, given)
        host.waiting = None
        host.behind.clear()

    def crash(
        self, broker: NodeId, us: Time, *, forgets: bool, back_us: Time = 0, twin: bool = False
    ) -> None:
        """A broker stops, and starts again after a while; see `Crash`."""
        host = self.hosts[broker]
        if self._is_idle(host):
            return
        what = f"{broker} crashes for {us / 1000:g} ms" + " and forgets" * forgets
        what += ", and another one comes in its place" * twin
        self._report(what + f", restored to {back_us / 1000:g} ms ago" * (back_us > 0))
        host.change_memory(back_us, twin=twin)
        host.is_down = True
        for pipe in host.pipes.values():
            self._burden(pipe.connection)
        self.kernel.at(self.kernel.now + us, self._restart, host, forgets)

    def die(self, broker: NodeId) -> None:
        """A broker stops for good, even if it is down or paused already."""
        host = self.hosts[broker]
        self._report(f"{broker} dies for good")
        for each in (host, *(self.hosts[client] for client in self._on(broker))):
            each.waiting = None
            each.is_down = each.is_dead = True
            for pipe in each.pipes.values():
                self._burden(pipe.connection)

    def _restart(self, host: Host, forgets: bool) -> None:  # noqa: FBT001 - planned, not called.
        if host.is_dead:
            return
        self._report(f"{host.node.id} starts again")
        if forgets:
            host.forget()
        else:
            host.recover()
        host.is_down = False
        for link in host.pipes:
            self._turn(host, LinkDown(link=link))
        if self._reach is not None:
            self._turn(host, Restarted())
        for pipe in list(host.pipes.values()):
            self._relieve(pipe.connection)

    def jump(self, node: NodeId, us: Time) -> None:
        """The wall clock of a node jumps."""
        self._report(f"the clock of {node} jumps by {us / 1e6:g} s")
        self.hosts[node].jump(us)

    def live_again(self, client: NodeId, broker: NodeId) -> None:
        """A client ends without a farewell, and one of the same name without its state begins.

        What its application had asked for ends with it.
        """
        host, other = self.hosts[client], self.hosts[broker]
        self._report(f"{client} has lost its state, and begins anew at {broker}")
        assert isinstance(host.node, Client)  # noqa: S101 - for the type checker.
        assert isinstance(other.node, Broker)  # noqa: S101 - for the type checker.
        if host.node.link is not None:
            connection = host.pipes[host.node.link].connection
            if connection.is_wanted:
                connection.is_wanted = False
                self._burden(connection)
        for state in self._fact:
            for fact in ended(host.node, host.now()):
                state(fact)
        host.live_again(other.node.earlier(client, other.now()))
        self._turn(host, Attach(broker=broker))

    def _is_idle(self, host: Host) -> bool:
        """Whether a broker is down or paused, so that it can neither pause nor crash."""
        if host.is_down or host.waiting is not None:
            self._report(f"{host.node.id} is {'down' if host.is_down else 'pausing'} already")
            return True
        return False

    def _burden(self, connection: Connection) -> None:
        connection.troubles += 1
        if connection.troubles == 1:
            connection.epoch += 1
            for host, pipe in zip(connection.ends, connection.pipes, strict=True):
                if not host.is_down:
                    self._turn(host, LinkDown(link=pipe.target.node.id))

    def _relieve(self, connection: Connection) -> None:
        connection.troubles -= 1
        if connection.troubles == 0:
            for pipe in connection.pipes:
                pipe.last_arrival = pipe.free_at = 0
            self._greet(connection)

    def _greet(self, connection: Connection) -> None:
        """Do the handshake of a connection: the two ends announce themselves and their settings."""
        for host, pipe in zip(connection.ends, connection.pipes, strict=True):
            if host.peer is Peer.CLIENT:
                self._follow_settings(host, pipe.target)
        for host, pipe in zip(connection.ends, connection.pipes, strict=True):
            other = pipe.target
            advertises = other.settings.routing.by_advertisements
            link_up = LinkUp(
                link=other.node.id,
                peer=other.peer,
                advertises=advertises,
                features=other.settings.protocols,
                earlier=(
                    other.node.earlier(host.node.id, other.now())
                    if host.peer is Peer.CLIENT and isinstance(other.node, Broker)
                    else NOTHING_KNOWN
                ),
            )
            self._turn(host, link_up)

    def _follow_settings(self, client: Host, broker: Host) -> None:
        settings = client_settings(broker.settings)
        if client.settings != settings and client.node.arrangement.is_configurable:
            client.settings = settings
            self._turn(client, Configured(settings=settings))

    # ---- Settings

    def configure(self, broker: NodeId, settings: Settings, *, tells: bool) -> None:
        """Give a broker other settings; its clients learn them now or with the next handshake."""
        host = self.hosts[broker]
        if host.is_down:
            return
        self._report(f"{broker} is configured anew")
        host.settings = settings
        self._turn(host, Configured(settings=settings))
        for pipe in host.pipes.values():
            connected = not pipe.connection.troubles and host.waiting is None
            if tells and connected and pipe.target.peer is Peer.CLIENT:
                self._follow_settings(pipe.target, host)

    def _report(self, text: str) -> None:
        for say in self._trouble:
            say(text, self.kernel.now)


def _hooks(observers: Sequence[Observer], name: str) -> list[Callable[..., None]]:
    """The hook of each observer that overrides it."""
    return [
        getattr(observer, name)
        for observer in observers
        if getattr(type(observer), name) is not getattr(Observer, name)
    ]
