"""A network with a subscriber at each broker, where a broker moves."""

from collections import Counter
from collections.abc import Iterable, Sequence

from sterna.core.broker import Broker
from sterna.core.inputs import Subscribe
from sterna.core.link import RELIABLE
from sterna.core.messages import Message
from sterna.core.mobile.messages import (
    BranchMoved,
    EventOnward,
    FiltersAsked,
    FiltersKnown,
    MigrationForced,
    SubscribersMoved,
    TableKnown,
)
from sterna.core.mobile.simple import SimpleRouting
from sterna.core.names import NodeId
from sterna.core.routing.options import RoutingOptions
from sterna.experiments.counting import between_brokers, bytes_between_brokers
from sterna.model.event import Event
from sterna.model.filters import Filter
from sterna.sim.network import Observer
from sterna.sim.run import Simulation
from sterna.sim.script import Do, Script
from sterna.sim.topology import Topology

Links = Sequence[tuple[NodeId, NodeId]]

PROTOCOLS = ("modular", "efficient", "reversing")
USUAL = "covering"
"""Our usual routing: brokers announce filters over each link that is made."""
COLOURS = {"modular": "#222222", "efficient": "#c2571a", "reversing": "#0b6e99", USUAL: "#3a8f3a"}

NAMES: dict[type[Message], str] = {
    SubscribersMoved: "BMIG",
    BranchMoved: "BMIG",
    TableKnown: "BTAB",
    MigrationForced: "FMIG",
    FiltersAsked: "BQUERY",
    FiltersKnown: "BSUB",
    EventOnward: "REP",
}
"""The paper's names of messages."""


def subscriber_of(broker: NodeId) -> NodeId:
    """The subscriber that is at a broker."""
    return f"s{broker[1:]}"


def begin(
    topology: Topology, protocol: str, *, seed: int = 0, observers: Iterable[Observer] = ()
) -> Simulation:
    """A network at rest: all brokers know all subscribers, or with our usual routing, filters."""
    is_usual = protocol == USUAL
    script = Script(
        topology=topology,
        clients={subscriber_of(broker): broker for broker in topology.brokers},
        steps=(),
        routing=RoutingOptions(announces=is_usual),
        protocols=() if is_usual else (protocol,),
        timing=RELIABLE,
        seed=seed,
    )
    simulation = Simulation(script, tuple(observers), count_bytes=True, judged=False)
    for number, broker in enumerate(topology.brokers):
        wanted = Subscribe(subscription="f", filter=Filter(f"f = {number}"))
        simulation.do(Do(client=subscriber_of(broker), what=wanted))
    simulation.settle()
    return simulation


class Counted:
    """How much goes between brokers from now on."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._messages = between_brokers(simulation)
        self._bytes = self._message_bytes()

    def messages(self) -> Counter[type[Message]]:
        """The messages, by type."""
        return between_brokers(self._simulation) - self._messages

    def bytes(self) -> int:
        """The bytes of these messages, without acknowledgements and handshakes."""
        return self._message_bytes() - self._bytes

    def _message_bytes(self) -> int:
        counted = bytes_between_brokers(self._simulation)
        return sum(count for kind, count in counted.items() if kind is not None)


def wrong_ways(simulation: Simulation, protocol: str, links: Links) -> int:
    """How many entries of all tables are not those of a fresh start with these links."""
    wrong = 0
    numbers = {broker: number for number, broker in enumerate(simulation.script.topology.brokers)}
    for broker in numbers:
        node = simulation.network.hosts[broker].node
        part = node.part(protocol)
        for other, next_hop in ways(links, broker).items():
            if isinstance(part, SimpleRouting):
                each = part.subscribers.get(subscriber_of(other))
                wrong += each is None or each.is_lost or each.next_hop != next_hop
            else:
                assert isinstance(node, Broker)  # noqa: S101 - for the type checker.
                event = Event(publisher="p", seq=1, time_us=0, attributes={"f": numbers[other]})
                wrong += [*node.router.subscriptions.match([event])] != [next_hop]
    return wrong


def ways(links: Links, broker: NodeId) -> dict[NodeId, NodeId]:
    """For each broker whose subscriber is known at one, the next hop to that subscriber."""
    found = {broker: subscriber_of(broker)}
    for first in near(links, broker):
        found |= dict.fromkeys(behind(links, broker, first), first)
    return found


def near(links: Links, broker: NodeId) -> list[NodeId]:
    """The neighbours of a broker."""
    return [b if a == broker else a for a, b in links if broker in (a, b)]


def behind(links: Links, broker: NodeId, neighbour: NodeId) -> list[NodeId]:
    """The brokers that are on a neighbour's side of the link to it, the nearest first."""
    found = [neighbour]
    for each in found:
        found += [n for n in near(links, each) if n not in found and n != broker]
    return found


def moved(links: Links, broker: NodeId, before: NodeId, to: NodeId) -> Links:
    """The links after a broker has moved."""
    return [*(link for link in links if set(link) != {broker, before}), (to, broker)]
