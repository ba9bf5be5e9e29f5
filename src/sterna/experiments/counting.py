"""How many messages and bytes went over the links between brokers."""

from collections import Counter
from collections.abc import Iterator

from sterna.core.messages import Events, Message
from sterna.core.names import Peer
from sterna.sim.network import Pipe
from sterna.sim.run import Simulation


def between_brokers(simulation: Simulation) -> Counter[type[Message]]:
    """Messages between brokers so far, by type."""
    counted: Counter[type[Message]] = Counter()
    for pipe in _pipes_between_brokers(simulation):
        counted.update(pipe.messages)
    return counted


def bytes_between_brokers(simulation: Simulation) -> Counter[type[Message] | None]:
    """Bytes between brokers so far, by type of message; None counts all that is no message."""
    counted: Counter[type[Message] | None] = Counter()
    for pipe in _pipes_between_brokers(simulation):
        counted.update(pipe.bytes)
    return counted


def control(counted: Counter[type[Message]]) -> int:
    """The number of all messages but the events."""
    return counted.total() - counted[Events]


def _pipes_between_brokers(simulation: Simulation) -> Iterator[Pipe]:
    for connection in simulation.network.connections:
        if all(host.peer is Peer.BROKER for host in connection.ends):
            yield from connection.pipes
