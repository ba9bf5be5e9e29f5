"""A script: everything that determines a run, as one record that can be kept and replayed."""

from functools import cached_property
from typing import Any

import msgspec

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import (
    Advertise,
    Attach,
    Confirm,
    Detach,
    Leave,
    MoveTo,
    Publish,
    SetVariable,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from sterna.core.link import LinkTiming
from sterna.core.location.options import PlacesOptions
from sterna.core.mobility import MobilityOptions
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions, HistoryOptions, Settings
from sterna.core.terms.messages import TERMS, Terms
from sterna.sim.topology import Topology


class LinkModel(msgspec.Struct, frozen=True, kw_only=True):
    """How connections carry frames. They keep the order, but for repeated frames."""

    latency_us: Time = 1_000
    jitter_us: Time = 0
    """A random extra delay of up to this."""
    bytes_per_s: int | None = None
    """The bandwidth; None means unlimited."""
    loss: float = 0.0
    """The share of frames that get lost."""
    duplication: float = 0.0
    """The share of frames that arrive twice, the second time up to `stray_us` later."""
    stray_us: Time = 50_000
    known_arrivals: bool = False
    """Whether a sender knows at once what has arrived, so that no acknowledgements go over
    connections. That saves much of the time of a large simulation. Nothing may get lost, and no
    broker may pause or crash."""

    def __post_init__(self) -> None:
        if self.known_arrivals and (self.loss or self.duplication):
            raise ValueError("what gets lost, or arrives twice, must be acknowledged")


class Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something that happens to the network from outside."""


Doing = (
    Subscribe
    | Unsubscribe
    | Confirm
    | Advertise
    | Unadvertise
    | Publish
    | Attach
    | Detach
    | Leave
    | MoveTo
    | SetVariable
)
"""What a client's application can do."""


class Do(Step, frozen=True, kw_only=True):
    """A client's application does something."""

    client: NodeId
    what: Doing


class Wait(Step, frozen=True, kw_only=True):
    """Time passes."""

    us: Time


class Settle(Step, frozen=True, kw_only=True):
    """Time passes until nothing is on its way any more."""


class Drop(Step, frozen=True, kw_only=True):
    """A connection breaks and is up again after a while; frames on their way are lost."""

    a: NodeId
    b: NodeId
    us: Time


class Pause(Step, frozen=True, kw_only=True):
    """A broker does nothing for a while; its connections stay up."""

    broker: NodeId
    us: Time


class Crash(Step, frozen=True, kw_only=True):
    """A broker stops and starts again after a while, from the log of its inputs or with nothing."""

    broker: NodeId
    us: Time
    forgets: bool = False
    back_us: Time = 0
    """It starts from a copy of its log that is so old, as from a backup; 0 for its own log."""
    twin: bool = False
    """Another broker of the same name comes in its place; the next such crash brings it back."""


class Die(Step, frozen=True, kw_only=True):
    """A broker stops for good, and what it held is lost.

    Its neighbours keep waiting for it. So a network may not settle any more; let time pass instead.
    """

    broker: NodeId


class Partition(Step, frozen=True, kw_only=True):
    """All connections between these brokers and the others break for a while."""

    brokers: tuple[NodeId, ...]
    us: Time


class Reach(Step, frozen=True, kw_only=True):
    """Two brokers come into reach of each other, or get out of it.

    This is for brokers that make their tree by themselves.
    """

    a: NodeId
    b: NodeId
    up: bool = True


class Migrate(Step, frozen=True, kw_only=True):
    """A broker moves: its link to one broker ends, and there is one to another.

    A link that has ended before can be named, too.
    """

    broker: NodeId
    before: NodeId
    to: NodeId


class EndLink(Step, frozen=True, kw_only=True):
    """A link between two brokers ends for good."""

    a: NodeId
    b: NodeId


class Slow(Step, frozen=True, kw_only=True):
    """From now on frames between two nodes take so long."""

    a: NodeId
    b: NodeId
    latency_us: Time


class Reconfigure(Step, frozen=True, kw_only=True):
    """A broker has other settings from now on.

    Its clients learn them when they connect to it next, or at once if it `tells` them.
    """

    broker: NodeId
    settings: Settings
    tells: bool = False


class ClockJump(Step, frozen=True, kw_only=True):
    """The wall clock of a broker or a client jumps forward, or back."""

    node: NodeId
    us: Time


class LiveAgain(Step, frozen=True, kw_only=True):
    """A client ends without a farewell, and one of the same name without its state begins."""

    client: NodeId
    broker: NodeId
    """Where it begins."""


AnyStep = (
    Do
    | Wait
    | Settle
    | Drop
    | Pause
    | Crash
    | Die
    | Partition
    | Reach
    | Migrate
    | EndLink
    | Slow
    | Reconfigure
    | ClockJump
    | LiveAgain
)


class Script(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All of a run: its nodes, what happens, and the seed of all randomness."""

    topology: Topology
    clients: dict[NodeId, NodeId]
    """The broker of each client, when the run begins."""
    steps: tuple[AnyStep, ...]
    routing: RoutingOptions = RoutingOptions()
    client: ClientOptions = ClientOptions()
    link: LinkModel = LinkModel()
    latencies: tuple[tuple[NodeId, NodeId, Time], ...] = ()
    """The latencies of links that are slower or faster than the model."""
    handover: HandoverOptions = HandoverOptions()
    places: PlacesOptions | None = None
    """Where clients can be; None if their subscriptions depend on no location or variable."""
    mobility: MobilityOptions | None = None
    """Where clients went before; brokers predict by it."""
    itinerary: dict[NodeId, tuple[tuple[Time, NodeId], ...]] = {}
    """When each client arrives at which broker. If it is given, all brokers know it, and predict
    perfectly; no real network can do that. Then no broker may crash."""
    history: HistoryOptions = HistoryOptions()
    locations: dict[NodeId, str] = {}
    """Where clients are when the run begins."""
    protocols: tuple[str, ...] = ()
    """Protocols beyond routing, places and handover that the nodes take part in, by name."""
    options: dict[str, dict[str, Any]] = {}
    """The options of those protocols."""
    timing: LinkTiming = LinkTiming()
    on_devices: bool = False
    """Whether each client is on the device of its broker: then it hears what that one hears,
    reaches what that one reaches, and looks for a broker by itself. For networks with `reach`."""
    seed: int = 0

    def settings(self, broker: NodeId | None = None) -> Settings:
        """The settings of the nodes; in a hierarchy, each broker has its own parent."""
        routing = self.routing
        if routing.hierarchical and broker is not None:
            parent = self.topology.parent(broker)
            routing = msgspec.structs.replace(routing, parent=parent)
        return Settings(
            routing=routing,
            client=self.client,
            handover=self.handover,
            places=self.places,
            mobility=self.mobility,
            history=self.history,
            protocols=self._needed,
            options=self.options,
        )

    @cached_property
    def _needed(self) -> tuple[str, ...]:
        """The protocols that are listed, and what the subscriptions of the script need."""
        has_terms = any(
            isinstance(step, Do) and isinstance(step.what, Subscribe) and step.what.terms != Terms()
            for step in self.steps
        )
        if not has_terms or TERMS in self.protocols:
            return self.protocols
        return (*self.protocols, TERMS)

    def __post_init__(self) -> None:
        brokers = set(self.topology.brokers)
        for client, broker in self.clients.items():
            if broker not in brokers:
                raise ValueError(f"client {client} is at {broker}, which is no broker")
            if client in brokers:
                raise ValueError(f"{client} is both a client and a broker")
        if self.on_devices and self.topology.reach is None:
            raise ValueError("clients are on devices, but nobody says who is in whose reach")
        for client in self.locations:
            if client not in self.clients or self.places is None:
                raise ValueError(
                    f"{client} is no client, or places are missing: it cannot be there"
                )
        links = {*self.topology.links, *((c, b) for c in self.clients for b in brokers)}
        for number, step in enumerate(self.steps, 1):
            problem = ""
            match step:
                case Pause() | Crash() | Die() if self.link.known_arrivals:
                    problem = "a broker that stops: its neighbours cannot know what has arrived"
                case Crash() if self.itinerary:
                    problem = "a crash: a broker that recovers would predict by another time"
                case Do() if step.client not in self.clients:
                    problem = f"no client {step.client}"
                case Do(what=Attach(broker=broker)) if broker not in brokers:
                    problem = f"no broker {broker}"
                case Do(what=Attach()) if self.handover.protocol == Handover.NONE:
                    problem = "no handover protocol, so clients cannot go from broker to broker"
                case LiveAgain() if step.client not in self.clients:
                    problem = f"no client {step.client}"
                case LiveAgain() if step.broker not in brokers:
                    problem = f"no broker {step.broker}"
                case LiveAgain() if self.handover.protocol == Handover.NONE and (
                    step.broker != self.clients[step.client]
                ):
                    problem = "no handover protocol, so clients cannot go from broker to broker"
                case ClockJump() if step.node not in brokers and step.node not in self.clients:
                    problem = f"no node {step.node}"
                case Drop() | Slow() if (step.a, step.b) not in links and (
                    step.b,
                    step.a,
                ) not in links:
                    problem = f"no link {step.a} - {step.b}"
                case EndLink() if not {step.a, step.b} <= brokers:
                    problem = f"no pair of brokers {step.a} and {step.b}"
                case Migrate() if not {step.broker, step.before, step.to} <= brokers:
                    problem = "no broker of one of these names"
                case Reach() if not {step.a, step.b} <= brokers or step.a == step.b:
                    problem = f"no pair of brokers {step.a} and {step.b}"
                case Reach() if self.topology.reach is None:
                    problem = "a tree of links, so reach makes no difference"
                case Pause() | Crash() | Die() | Reconfigure() if step.broker not in brokers:
                    problem = f"no broker {step.broker}"
                case Partition() if not brokers.issuperset(step.brokers):
                    unknown = [broker for broker in step.brokers if broker not in brokers]
                    problem = f"no broker {unknown[0]}"
            if problem:
                raise ValueError(f"step {number}: there is {problem}")
