"""A host: one machine of the simulated network, with its node, its log and its wall clock."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sterna.core.client import Client
from sterna.core.clock import Clock
from sterna.core.facts import Fact, Unadvertised, Unsubscribed
from sterna.core.inputs import Input, Received
from sterna.core.lives import EPOCH_US, Earlier, first_seq, incarnation
from sterna.core.names import NEVER, NodeId, Peer, Time
from sterna.core.node import Node
from sterna.sim.kernel import Kernel

if TYPE_CHECKING:
    from sterna.sim.network import Pipe

Make = Callable[..., Node]
"""Makes a node from the number of its incarnation, and a client in a later life also from the
number that its events count from."""


class Host:
    """Runs a node: gives it inputs, wakes it, logs its inputs, and lets it crash."""

    def __init__(self, make: Make, peer: Peer, kernel: Kernel) -> None:
        self.make = make
        self.node = make(0)
        self.peer = peer
        self.settings = self.node.settings
        """The latest settings, even if the node has not received them yet."""
        self.pipes: dict[NodeId, Pipe] = {}
        self.waking_at: Time = NEVER
        self.woken_at: Time = -1
        self.wakes_now = 0
        """How often the node was woken at this very time."""
        self.is_down = False
        self.is_dead = False
        """Whether it is down for good."""
        self.life = 0
        """Which of its lives this is."""
        self.lives = 1
        self.waiting: list[Input] | None = None
        """Inputs that wait while the node is paused; None if it is not."""
        self.behind: Counter[NodeId] = Counter()
        """How many new connections it does not know yet: what it sends goes to an old one."""
        self.log: list[tuple[Input, Time]] | None = None
        """The inputs of the node, if it is going to crash."""
        self._twin: tuple[int, list[tuple[Input, Time]]] | None = None
        """The life and the log of another node of the same name, which is down now."""
        self._kernel = kernel
        self._ahead_us: Time = 0
        """By how much the wall clock of this host is ahead of the others."""
        self.clock: Clock | None = None
        """The clock of the node; None as long as the wall clock has never jumped."""

    # ---- Time

    def now(self) -> Time:
        """The time that the node is given."""
        return self._kernel.now if self.clock is None else self.clock.now()

    def jump(self, us: Time) -> None:
        """The wall clock of this host jumps, forward or back."""
        if self.clock is None:
            self._start_clock()
        self._ahead_us += us

    def _start_clock(self) -> None:
        kernel = self._kernel
        self.clock = Clock(lambda: kernel.now + self._ahead_us, lambda: kernel.now)

    # ---- Starting again

    def recover(self) -> None:
        """Restore the node from the log of its inputs; what it did then is done already."""
        if self.log is None:
            raise ValueError(f"{self.node.id} has no log to start from; set it before the run")
        self.node = self.make(self.life)
        for given, time in self.log:
            self.node.handle(given, time)
        self._restarted()
        if self.clock is not None and self.log:
            self.clock.not_before(self.log[-1][1])

    def change_memory(self, back_us: Time, *, twin: bool) -> None:
        """Recover from another log: an old copy, or that of another node of the same name."""
        if twin:
            before = self.life, self.log or []
            if self._twin is None:
                self._twin = self.lives, []
                self.lives += 1
            (self.life, self.log), self._twin = self._twin, before
        if back_us:
            copied = self.now() - back_us
            self.log = [(given, time) for given, time in self.log or () if time <= copied]

    def forget(self) -> None:
        """Start a broker that knows nothing."""
        self._begin(self.make(self.lives))
        self.log = [] if self.log is not None else None

    def live_again(self, earlier: Earlier) -> None:
        """Start a client that knows only what a broker says of its earlier lives."""
        wall_us = EPOCH_US + self._kernel.now + self._ahead_us
        self._begin(self.make(incarnation(wall_us, earlier), first_seq(wall_us, earlier)))

    def _begin(self, node: Node) -> None:
        self.node = node
        self.settings = node.settings
        self.life, self.lives = self.lives, self.lives + 1
        self._restarted()

    def _restarted(self) -> None:
        self.waking_at = NEVER
        if self.clock is not None:
            self._start_clock()


def ended(client: Client, now: Time) -> Iterator[Fact]:
    """What ends with a client that has lost its state."""
    for name in client.subscriptions:
        yield Unsubscribed(at=client.id, time=now, subscription=name)
    for name in client.advertisements:
        yield Unadvertised(at=client.id, time=now, advertisement=name)


def gathered(waiting: list[Input]) -> list[Input]:
    """Join consecutive inputs with frames of one link into one, as a socket gives them."""
    joined: list[Input] = []
    for given in waiting:
        last = joined[-1] if joined else None
        if isinstance(given, Received) and isinstance(last, Received) and last.link == given.link:
            joined[-1] = Received(link=given.link, frames=last.frames + given.frames)
        else:
            joined.append(given)
    return joined
