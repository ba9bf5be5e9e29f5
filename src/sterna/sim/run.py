"""Runs a script and reports the outcome."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sterna import plugins
from sterna.core.assembly import make_broker, make_client
from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.component import Component
from sterna.core.inputs import MoveTo
from sterna.core.link import SILENT
from sterna.core.names import NodeId, Peer, Time
from sterna.sim.host import Make
from sterna.sim.itinerary import Itinerary
from sterna.sim.network import Network, Observer
from sterna.sim.oracle import Finding, Oracle
from sterna.sim.script import (
    AnyStep,
    ClockJump,
    Crash,
    Die,
    Do,
    Drop,
    EndLink,
    LiveAgain,
    Migrate,
    Partition,
    Pause,
    Reach,
    Reconfigure,
    Script,
    Settle,
    Slow,
    Wait,
)

MakeComponents = Callable[[NodeId], Sequence[Component]]
"""Makes additional components of a broker or client, anew for each incarnation."""


@dataclass(frozen=True)
class TableSizes:
    """How many routing entries the brokers had at one time."""

    time: Time
    total: int
    largest: int


@dataclass
class Outcome:
    """The outcome of a run."""

    findings: list[Finding]
    published: int
    owed: int
    """How many deliveries had to be made; others may be, while subscriptions come and go."""
    delivered: int
    quenched: int
    """Events that were discarded at their source because nobody wants them."""
    missed: int
    """Events that clients never got: discarded by a bounded cache while they were away."""
    ended_us: Time
    messages: Counter[str]
    """Messages by type: each once, however often it was repeated."""
    by_link: dict[str, Counter[str]]
    by_broker: dict[NodeId, Counter[str]]
    """The messages that each broker has sent, by type."""
    frames: int
    """All frames that went over connections, acknowledgements and repetitions included."""
    bytes: Counter[str]
    tables: list[TableSizes] = field(default_factory=list)
    """The sizes of routing tables, each time that the network had settled."""

    @property
    def control_messages(self) -> int:
        """Subscription and advertisement changes, and moves."""
        kinds = ("SubscriptionChange", "AdvertisementChange", "MovingChange")
        return sum(self.messages[kind] for kind in kinds)


class Simulation:
    """A network built from a script, ready to do its steps."""

    def __init__(
        self,
        script: Script,
        observers: Sequence[Observer] = (),
        *,
        components: MakeComponents = lambda _: (),
        client_components: MakeComponents = lambda _: (),
        count_bytes: bool = False,
        judged: bool = True,
    ) -> None:
        self.script = script
        self.oracle = Oracle(script.clients, advertisements=script.client.advertisements)
        self.network = Network(
            script.link,
            seed=script.seed,
            observers=[*([self.oracle] if judged else []), *observers],
            count_bytes=count_bytes,
        )
        self.tables: list[TableSizes] = []
        kernel = self.network.kernel
        self._predictor = (
            Itinerary(script.itinerary, lambda: kernel.now) if script.itinerary else None
        )
        self._timing = SILENT if script.link.known_arrivals else script.timing
        self._components = components
        self._client_components = client_components
        plugins.require(script.settings())
        crashing = {step.broker for step in script.steps if isinstance(step, Crash)}
        for broker in script.topology.brokers:
            host = self.network.add(self._broker(broker), Peer.BROKER)
            if broker in crashing:
                host.log = []
        for client in script.clients:
            self.network.add(self._client(client), Peer.CLIENT)
        for client, location in script.locations.items():
            self.network.give(client, MoveTo(location=location))
        for a, b, latency_us in script.latencies:
            self.network.slow(a, b, latency_us)
        for a, b in script.topology.links:
            self.network.connect(a, b)
        if script.topology.reach is not None:
            carried = script.clients if script.on_devices else {}
            self.network.begin(script.topology.reach, carried)
        if not script.on_devices:
            for client, broker in script.clients.items():
                self.network.attach(client, broker)

    def run(self) -> Outcome:
        """Do all steps, let the network settle, and judge."""
        steps = self.script.steps
        for step in steps:
            self.do(step)
        if not steps or not isinstance(steps[-1], Settle):
            self.settle()
        return self.outcome()

    def do(self, step: AnyStep) -> None:
        """Do one step."""
        network = self.network
        match step:
            case Do():
                network.give(step.client, step.what)
            case Wait():
                network.run(network.kernel.now + step.us)
            case Settle():
                self.settle()
            case Drop():
                connection = network.connection(step.a, step.b)
                if connection is not None:
                    network.drop([connection], step.us, f"{step.a} - {step.b}")
            case Reach():
                network.set_reach(step.a, step.b, up=step.up)
            case EndLink():
                network.end(step.a, step.b)
            case Migrate():
                network.migrate(step.broker, step.before, step.to)
            case Slow():
                network.slow(step.a, step.b, step.latency_us)
            case Pause():
                network.pause(step.broker, step.us)
            case Crash():
                network.crash(
                    step.broker,
                    step.us,
                    forgets=step.forgets,
                    back_us=step.back_us,
                    twin=step.twin,
                )
            case Die():
                network.die(step.broker)
            case ClockJump():
                network.jump(step.node, step.us)
            case LiveAgain():
                network.live_again(step.client, step.broker)
            case Reconfigure():
                network.configure(step.broker, step.settings, tells=step.tells)
            case Partition():
                inside = set(step.brokers)
                cut = [
                    connection
                    for a, b in self.script.topology.links
                    if (a in inside) != (b in inside)
                    and (connection := network.connection(a, b)) is not None
                ]
                network.drop(cut, step.us, f"the way to {', '.join(step.brokers)}")

    def settle(self) -> None:
        """Let time pass until nothing is on its way."""
        self.network.settle()
        sizes = [
            len(host.node.router.subscriptions)
            for host in self.network.hosts.values()
            if isinstance(host.node, Broker)
        ]
        self.tables.append(TableSizes(self.network.kernel.now, sum(sizes), max(sizes)))

    def outcome(self) -> Outcome:
        """The outcome so far."""
        messages: Counter[str] = Counter()
        volume: Counter[str] = Counter()
        by_link: dict[str, Counter[str]] = {}
        by_broker: dict[NodeId, Counter[str]] = {}
        frames = 0
        for connection in self.network.connections:
            for pipe in connection.pipes:
                sent = Counter({kind.__name__: n for kind, n in pipe.messages.items()})
                messages += sent
                by_link[str(pipe)] = sent
                if pipe.source.peer is Peer.BROKER:
                    by_broker.setdefault(pipe.source.node.id, Counter()).update(sent)
                frames += pipe.frames
                for kind, length in pipe.bytes.items():
                    volume[kind.__name__ if kind is not None else "link"] += length
        return Outcome(
            findings=self.oracle.findings(),
            published=self.oracle.published,
            owed=self.oracle.owed(),
            delivered=self.oracle.delivered,
            quenched=self.oracle.quenched,
            missed=self.oracle.missed,
            ended_us=self.network.kernel.now,
            messages=messages,
            by_link=by_link,
            by_broker=by_broker,
            frames=frames,
            bytes=volume,
            tables=self.tables,
        )

    def _broker(self, id_: NodeId) -> Make:
        settings, timing = self.script.settings(id_), self._timing

        def make(incarnation: int) -> Broker:
            return make_broker(
                id_,
                settings,
                timing=timing,
                incarnation=incarnation,
                more=self._components(id_),
                predictor=self._predictor,
            )

        return make

    def _client(self, id_: NodeId) -> Make:
        settings, timing = self.script.settings(), self._timing

        def make(incarnation: int, seq: int = 0) -> Client:
            more = self._client_components(id_)
            return make_client(
                id_, settings, timing=timing, incarnation=incarnation, seq=seq, more=more
            )

        return make


def run(
    script: Script, observers: Sequence[Observer] = (), *, count_bytes: bool = False
) -> Outcome:
    """Run a script."""
    return Simulation(script, observers, count_bytes=count_bytes).run()
