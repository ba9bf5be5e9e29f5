"""Random scripts: overlays, clients, what they do, and what goes wrong, all from one seed."""

import random
from collections.abc import Collection, Mapping
from itertools import count
from typing import Any

import msgspec

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import (
    Advertise,
    Attach,
    Detach,
    Leave,
    Publish,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from sterna.core.link import LinkTiming
from sterna.core.mobility import MobilityOptions
from sterna.core.names import NodeId, Time
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions
from sterna.core.terms.messages import Order, Terms
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.sim.script import (
    AnyStep,
    ClockJump,
    Crash,
    Do,
    Drop,
    LinkModel,
    LiveAgain,
    Partition,
    Pause,
    Script,
    Settle,
    Wait,
)
from sterna.sim.topology import Topology

JUMP_US: Time = 3_600_000_000
"""By how much a wall clock jumps at most."""

KINDS = ("car", "bus", "tram", "bike", "truck", "ferry", "drone", "train")


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong in a generated run."""

    loss: float = 0.0
    """The share of frames that get lost, below the link sessions."""
    duplication: float = 0.0
    """The share of frames that arrive twice."""
    drops: int = 0
    """How many connections break."""
    pauses: int = 0
    """How many times a broker does nothing for a while."""
    crashes: int = 0
    """How many times a broker stops and starts again from the log of its inputs."""
    partitions: int = 0
    """How many times some brokers are cut off from the others."""
    longest_us: Time = 400_000
    """How long each of these faults takes at most."""
    jumps: int = 0
    """How many times the wall clock of a broker or a client jumps, by up to an hour."""
    losses: int = 0
    """How many times a client loses its state and begins anew, once the network has settled."""


FAULTS = {
    "none": Faults(),
    "light": Faults(loss=0.01, duplication=0.01, drops=2, pauses=1),
    "heavy": Faults(loss=0.1, duplication=0.1, drops=6, pauses=3, crashes=3, partitions=2),
    "clocks": Faults(drops=3, pauses=1, crashes=3, partitions=1, jumps=12, losses=6),
}
"""Usual combinations, by name."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a generated run is like."""

    topology: Topology
    clients: int = 10
    subscriptions: int = 20
    """How many subscriptions are made; about a third of them end before the run does."""
    available: float = 0.0
    """The share of subscriptions that let new events overtake earlier ones."""
    events: int = 50
    moves: int = 0
    """How many times a client goes to another broker (or back to the one it came from)."""
    naps: int = 0
    """How many times a client goes offline, until its next move or the end of the run."""
    leaves: int = 0
    """How many times a client leaves for good; a move brings it back, as a new client."""
    variety: int = 8
    """How many different values an attribute may have: the fewer, the more filters are alike."""
    wait_us: Time = 3_000
    """The longest pause between steps."""
    settle: float = 0.1
    """The probability that the network is given time to settle between two steps."""
    routing: RoutingOptions = RoutingOptions()
    client: ClientOptions = ClientOptions()
    link: LinkModel = LinkModel(jitter_us=500)
    latency_max_us: Time | None = None
    """If given, each link has a random latency of its own, up to this; `link` has the rest."""
    timing: LinkTiming = LinkTiming()
    faults: Faults = Faults()
    handover: HandoverOptions = HandoverOptions()
    options: dict[str, dict[str, Any]] = {}
    """The options of protocols, by name."""
    mobility: MobilityOptions | None = None
    """Where brokers predict that clients go."""


def generate(plan: Plan, seed: int) -> Script:
    """The script for a plan and a seed: the same on every machine."""
    rng = random.Random(f"script {seed}")  # noqa: S311 - reproducible, not secret.
    return _Generator(rng, plan).script(seed)


class _Generator:
    def __init__(self, rng: random.Random, plan: Plan) -> None:
        self._rng = rng
        self._plan = plan
        self._clients = {
            f"c{number}": rng.choice(plan.topology.brokers) for number in range(1, plan.clients + 1)
        }
        self._at = {client: [broker] for client, broker in self._clients.items()}
        """The brokers that each client has been at."""
        self._offline: dict[NodeId, None] = {}
        self._left: dict[NodeId, None] = {}
        self._subscriptions: list[tuple[NodeId, str]] = []
        self._advertisements: dict[NodeId, dict[str, Filter]] = {}

    def script(self, seed: int) -> Script:
        plan, rng = self._plan, self._rng
        early = plan.subscriptions // 2
        tasks = ["subscribe"] * (plan.subscriptions - early) + ["publish"] * plan.events
        tasks += ["unsubscribe"] * (plan.subscriptions // 3)
        first = ["subscribe"] * early
        if plan.client.advertisements:
            first += ["advertise"] * plan.clients
            tasks += ["advertise"] * plan.clients + ["unadvertise"] * plan.clients
        tasks += ["drop"] * plan.faults.drops + ["pause"] * plan.faults.pauses
        tasks += ["crash"] * plan.faults.crashes + ["partition"] * plan.faults.partitions
        tasks += ["jump"] * plan.faults.jumps + ["lose"] * plan.faults.losses
        first += ["move"] * (plan.moves // 4) + ["nap"] * (plan.naps // 4)
        tasks += ["move"] * (plan.moves - plan.moves // 4)
        tasks += ["nap"] * (plan.naps - plan.naps // 4) + ["leave"] * plan.leaves
        rng.shuffle(first)
        rng.shuffle(tasks)
        steps: list[AnyStep] = []
        for place, task in enumerate([*first, *tasks]):
            if place == len(first) and plan.moves:
                steps.append(Settle())  # Clients that move all the time are owed little.
            if task == "lose":
                steps.append(Settle())  # Whoever has to know the life that ends knows it.
            step = getattr(self, f"_{task}")()
            if step is not None:
                steps.append(step)
            if rng.random() < plan.settle:
                steps.append(Settle())
            elif plan.wait_us:
                steps.append(Wait(us=rng.randint(0, plan.wait_us)))
        steps += [self._go(client) for client in list(self._offline)]
        return Script(
            topology=plan.topology,
            clients=self._clients,
            steps=tuple(steps),
            routing=plan.routing,
            client=plan.client,
            handover=plan.handover,
            options=plan.options,
            mobility=plan.mobility,
            latencies=self._latencies(),
            timing=plan.timing,
            link=msgspec.structs.replace(
                plan.link, loss=plan.faults.loss, duplication=plan.faults.duplication
            ),
            seed=seed,
        )

    def _latencies(self) -> tuple[tuple[NodeId, NodeId, Time], ...]:
        longest, topology = self._plan.latency_max_us, self._plan.topology
        if longest is None:
            return ()
        links = [*topology.links, *((c, b) for c in self._clients for b in topology.brokers)]
        some = (0, longest // 10, longest)
        return tuple((a, b, self._rng.randint(0, self._rng.choice(some))) for a, b in links)

    # ---- What clients do

    def _subscribe(self) -> Do:
        client = self._some_client()
        name = self._free_name([name for c, name in self._subscriptions if c == client])
        self._subscriptions.append((client, name))
        what = Subscribe(subscription=name, filter=self.filter())
        if self._plan.available and self._rng.random() < self._plan.available:
            what = msgspec.structs.replace(what, terms=Terms(order=Order.AVAILABLE))
        return Do(client=client, what=what)

    def _unsubscribe(self) -> Do | None:
        if not self._subscriptions:
            return None
        place = self._rng.randrange(len(self._subscriptions))
        client, name = self._subscriptions.pop(place)
        return Do(client=client, what=Unsubscribe(subscription=name))

    def _advertise(self) -> Do:
        client, filter_ = self._some_client(), self.filter()
        name = self._free_name(self._advertisements.get(client, {}))
        self._advertisements.setdefault(client, {})[name] = filter_
        return Do(client=client, what=Advertise(advertisement=name, filter=filter_))

    def _unadvertise(self) -> Do | None:
        active = [(c, name) for c, names in self._advertisements.items() for name in names]
        if not active:
            return None
        client, name = self._rng.choice(active)
        del self._advertisements[client][name]
        return Do(client=client, what=Unadvertise(advertisement=name))

    def _publish(self) -> Do | None:
        event = self.event()
        clients = list(self._clients)
        if self._plan.client.advertisements:
            clients = [
                client
                for client, filters in self._advertisements.items()
                if any(filter_.matches(event) for filter_ in filters.values())
            ]
        if not clients:
            return None
        return Do(client=self._rng.choice(clients), what=Publish(attributes=event))

    def _move(self) -> Do:
        return self._go(self._some_client())

    def _go(self, client: NodeId) -> Do:
        """Go to another broker, often back to the last one, or stay at the present one."""
        been = self._at[client]
        broker = self._rng.choice(self._plan.topology.brokers)
        if len(been) > 1 and self._rng.random() < 0.3:
            broker = been[-2]
        been.append(broker)
        self._offline.pop(client, None)
        self._left.pop(client, None)
        return Do(client=client, what=Attach(broker=broker))

    def _nap(self) -> Do | None:
        online = [c for c in self._clients if c not in self._offline and c not in self._left]
        if not online:
            return None
        client = self._rng.choice(online)
        self._offline[client] = None
        return Do(client=client, what=Detach())

    def _leave(self) -> Do:
        """Leave for good; a client that is offline can do so only when it is back."""
        client = self._some_client()
        self._subscriptions = [each for each in self._subscriptions if each[0] != client]
        self._advertisements.pop(client, None)
        self._left[client] = None
        return Do(client=client, what=Leave())

    # ---- What goes wrong

    def _drop(self) -> Drop | None:
        places = [(client, been[-1]) for client, been in self._at.items()]
        links = [*self._plan.topology.links, *places]
        if not links:
            return None
        a, b = self._rng.choice(links)
        return Drop(a=a, b=b, us=self._while())

    def _pause(self) -> Pause:
        return Pause(broker=self._rng.choice(self._plan.topology.brokers), us=self._while())

    def _crash(self) -> Crash:
        return Crash(broker=self._rng.choice(self._plan.topology.brokers), us=self._while())

    def _partition(self) -> Partition:
        brokers = self._plan.topology.brokers
        size = self._rng.randint(1, max(1, len(brokers) - 1))
        return Partition(brokers=tuple(self._rng.sample(brokers, size)), us=self._while())

    def _jump(self) -> ClockJump:
        nodes = [*self._plan.topology.brokers, *self._clients]
        return ClockJump(node=self._rng.choice(nodes), us=self._rng.randint(-JUMP_US, JUMP_US))

    def _lose(self) -> LiveAgain | None:
        online = [c for c in self._clients if c not in self._offline and c not in self._left]
        if not online:
            return None
        client = self._rng.choice(online)
        if self._plan.handover.protocol != Handover.NONE:
            self._at[client].append(self._rng.choice(self._plan.topology.brokers))
        self._subscriptions = [each for each in self._subscriptions if each[0] != client]
        self._advertisements.pop(client, None)
        return LiveAgain(client=client, broker=self._at[client][-1])

    def _while(self) -> Time:
        return self._rng.randint(1_000, self._plan.faults.longest_us)

    # ---- Filters and events

    def filter(self) -> Filter:
        """A filter of one to three tests, now and then with OR or NOT."""
        rng = self._rng
        form = rng.random()
        if form < 0.03:
            return Filter("TRUE")
        text = self._conjunction()
        if form < 0.13:
            text = f"{text} OR {self._conjunction()}"
        elif form < 0.2:
            text = f"NOT ({text})"
        return Filter(text)

    def event(self) -> Mapping[str, Scalar]:
        """The event of a vehicle; now and then an attribute is missing."""
        rng = self._rng
        event: dict[str, Scalar] = {
            "kind": self._kind(),
            "line": f"{self._kind()}-{self._number()}",
            "speed": self._number(),
            "zone": self._number(),
        }
        return {name: value for name, value in event.items() if rng.random() < 0.95}

    def _conjunction(self) -> str:
        tests = (self._by_kind, self._by_speed, self._by_zone, self._by_line)
        chosen = self._rng.sample(tests, self._rng.choice((1, 2, 2, 3, 3)))
        return " AND ".join(test() for test in chosen)

    def _by_kind(self) -> str:
        if self._rng.random() < 0.7:
            return f"kind = '{self._kind()}'"
        return f"kind IN ('{self._kind()}', '{self._kind()}')"

    def _by_speed(self) -> str:
        low, high = sorted((self._number(), self._number()))
        form = self._rng.choice(("speed > {0}", "speed <= {1}", "speed BETWEEN {0} AND {1}"))
        return form.format(low, high)

    def _by_zone(self) -> str:
        return f"zone {self._rng.choice(('=', '=', '<>', '<'))} {self._number()}"

    def _by_line(self) -> str:
        form = self._rng.choice(("line LIKE '{}%'", "line LIKE '%-{}'", "line IS NOT NULL"))
        return form.format(self._kind() if "{}%" in form else self._number())

    def _kind(self) -> str:
        return self._rng.choice(KINDS[: self._plan.variety])

    def _number(self) -> int:
        return self._rng.randrange(self._plan.variety)

    def _some_client(self) -> NodeId:
        return self._rng.choice(list(self._clients))

    def _free_name(self, taken: Collection[str]) -> str:
        """A free name; names are used again."""
        return next(name for name in map(str, count(1)) if name not in taken)
