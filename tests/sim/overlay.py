"""A network for tests that tell a story step by step."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sterna.core.broker import Broker
from sterna.core.client import Client
from sterna.core.facts import Fact, Recalled
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.relocation import Relocation
from sterna.core.inputs import (
    Advertise,
    Attach,
    Confirm,
    Detach,
    MoveTo,
    Publish,
    SetVariable,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from sterna.core.location.options import PlacesOptions
from sterna.core.mobility import MobilityOptions
from sterna.core.names import Time
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions, HistoryOptions
from sterna.core.terms.messages import DEFAULT, Terms
from sterna.model.event import Scalar
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import MakeComponents, Outcome, Simulation
from sterna.sim.script import (
    Crash,
    Do,
    Doing,
    Drop,
    LinkModel,
    Partition,
    Pause,
    Script,
    Slow,
    Wait,
)
from sterna.sim.topology import Topology
from sterna.sim.trace import Trace

RELOCATION = HandoverOptions(protocol=Handover.RELOCATION)


class Facts(Observer):
    """Keeps all facts."""

    def __init__(self) -> None:
        self.all: list[Fact] = []

    def fact(self, fact: Fact) -> None:
        self.all.append(fact)


class Overlay:
    """Brokers and clients; every method does one thing and gives the overlay back."""

    def __init__(
        self,
        topology: Topology,
        clients: dict[str, str],
        routing: RoutingOptions | None = None,
        client: ClientOptions | None = None,
        *,
        link: LinkModel | None = None,
        handover: HandoverOptions | None = None,
        places: PlacesOptions | None = None,
        locations: dict[str, str] | None = None,
        protocols: tuple[str, ...] = (),
        latencies: Sequence[tuple[str, str, int]] = (),
        components: MakeComponents = lambda _: (),
        crashing: Sequence[str] = (),
        observers: Sequence[Observer] = (),
        mobility: MobilityOptions | None = None,
        options: dict[str, dict[str, Any]] | None = None,
        history: HistoryOptions | None = None,
        count_bytes: bool = False,
        seed: int = 0,
    ) -> None:
        script = Script(
            topology=topology,
            clients=clients,
            steps=tuple(Crash(broker=broker, us=0) for broker in crashing),  # They keep logs.
            routing=routing or RoutingOptions(),
            client=client or ClientOptions(),
            link=link or LinkModel(),
            places=places,
            locations=locations or {},
            protocols=protocols,
            latencies=tuple(latencies),
            handover=handover or HandoverOptions(),
            mobility=mobility,
            options=options or {},
            history=history or HistoryOptions(),
            seed=seed,
        )
        self.trace = Trace()
        self.facts = Facts()
        self.simulation = Simulation(
            script,
            [self.trace, self.facts, *observers],
            components=components,
            count_bytes=count_bytes,
        )
        self.settle()

    # ---- What happens

    def subscribe(
        self,
        client: str,
        text: str,
        name: str = "1",
        *,
        past: int | None = None,
        since_us: Time | None = None,
        terms: Terms = DEFAULT,
    ) -> "Overlay":
        return self._do(
            client,
            Subscribe(
                subscription=name,
                filter=Filter(text),
                past_events_max=past,
                past_since_us=since_us,
                terms=terms,
            ),
        )

    def unsubscribe(self, client: str, name: str = "1") -> "Overlay":
        return self._do(client, Unsubscribe(subscription=name))

    def confirm(self, client: str, name: str = "1") -> "Overlay":
        return self._do(client, Confirm(subscription=name))

    def advertise(self, client: str, text: str, name: str = "1") -> "Overlay":
        return self._do(client, Advertise(advertisement=name, filter=Filter(text)))

    def unadvertise(self, client: str, name: str = "1") -> "Overlay":
        return self._do(client, Unadvertise(advertisement=name))

    def publish(self, client: str, **attributes: Scalar) -> "Overlay":
        return self._do(client, Publish(attributes=attributes))

    def attach(self, client: str, broker: str) -> "Overlay":
        return self._do(client, Attach(broker=broker))

    def detach(self, client: str) -> "Overlay":
        return self._do(client, Detach())

    def move(self, client: str, location: str) -> "Overlay":
        return self._do(client, MoveTo(location=location))

    def set(
        self,
        client: str,
        name: str,
        value: Scalar,
        *,
        low: Scalar | None = None,
        high: Scalar | None = None,
    ) -> "Overlay":
        return self._do(client, SetVariable(name=name, value=value, low=low, high=high))

    def wait(self, us: int) -> "Overlay":
        self.simulation.do(Wait(us=us))
        return self

    def settle(self) -> "Overlay":
        self.simulation.settle()
        return self

    def fault(self, step: Drop | Pause | Crash | Partition | Slow) -> "Overlay":
        self.simulation.do(step)
        return self

    def _do(self, client: str, what: Doing) -> "Overlay":
        self.simulation.do(Do(client=client, what=what))
        return self

    # ---- What came of it

    @property
    def now(self) -> Time:
        return self.simulation.network.kernel.now

    def received(self, client: str) -> list[str]:
        """What a client's application was given: `pat#1`."""
        return [f"{id_.publisher}#{id_.seq}" for id_ in self.simulation.oracle.received(client)]

    def recalled(self, client: str) -> list[str]:
        """What a client's application was given of the past: `pat#1`."""
        recalled = [fact for fact in self.facts.all if isinstance(fact, Recalled)]
        events = [event for fact in recalled if fact.at == client for event in fact.events]
        return [f"{event.publisher}#{event.seq}" for event in events]

    def broker(self, name: str) -> Broker:
        node = self.simulation.network.hosts[name].node
        assert isinstance(node, Broker)
        return node

    def client(self, name: str) -> Client:
        node = self.simulation.network.hosts[name].node
        assert isinstance(node, Client)
        return node

    def table(self, broker: str) -> dict[str, list[str]]:
        """The routing table: for each link, the filters in it."""
        table = self.broker(broker).router.subscriptions
        return {
            link: [str(route.filter) for route in table.routes(link).values()]
            for link in table.links()
        }

    def relocation(self, broker: str) -> Relocation:
        """The broker's part of the handover protocol."""
        components = self.broker(broker).components
        return next(each for each in components if isinstance(each, Relocation))

    def outcome(self) -> Outcome:
        return self.simulation.outcome()

    def sent(self, kind: str, pipe: str | None = None) -> int:
        """How many messages of a type were sent, over all links or one: `B1 → B2`."""
        outcome = self.outcome()
        counts: Counter[str] = outcome.messages if pipe is None else outcome.by_link[pipe]
        return counts[kind]

    def facts_of(self, kind: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts.all if type(fact) is kind]
