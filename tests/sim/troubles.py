"""What may go wrong at random in a network of brokers."""

from collections.abc import Sequence
from random import Random

from sterna.core.names import NodeId
from sterna.sim.script import Crash, Drop, Partition, Pause


def random_trouble(
    rng: Random, brokers: Sequence[NodeId], links: Sequence[tuple[NodeId, NodeId]]
) -> Crash | Pause | Partition | Drop:
    """A broker that crashes, stands still or is cut off, or a link that breaks."""
    broker, us = rng.choice(brokers), rng.choice([500, 5_000, 50_000, 3_000_000])
    kind = rng.choice([Crash, Crash, Pause, Pause, Partition, Drop] if links else [Crash, Pause])
    if kind is Partition:
        return Partition(brokers=(broker,), us=us)
    if kind is Drop:
        a, b = rng.choice(links)
        return Drop(a=a, b=b, us=us)
    return Crash(broker=broker, us=us) if kind is Crash else Pause(broker=broker, us=us)
