"""How many messages went over the links between brokers."""

from collections import Counter

from sterna.core.messages import Events, Message
from sterna.core.names import Peer
from sterna.sim.run import Simulation


def between_brokers(simulation: Simulation) -> Counter[type[Message]]:
    """Messages between brokers so far, by type."""
    counted: Counter[type[Message]] = Counter()
    for connection in simulation.network.connections:
        if all(host.peer is Peer.BROKER for host in connection.ends):
            for pipe in connection.pipes:
                counted.update(pipe.messages)
    return counted


def control(counted: Counter[type[Message]]) -> int:
    """The number of all messages but the events."""
    return counted.total() - counted[Events]
