"""The strategies for disconnected operation in all their combinations. (Burcea et al., 3)"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from sterna.core.handover.options import Handover
from sterna.core.mobility import MobilityOptions
from sterna.core.names import NodeId
from tests.mobility import model_of

BROKER: dict[str, Any] = {"subscriptions": "broker"}
DEVICE: dict[str, Any] = {"subscriptions": "device"}
BROKERS: dict[str, Any] = {**BROKER, "brokers_max": 3}
"""Prefetching to a set of brokers."""

COMBINATIONS: Mapping[Handover, Sequence[dict[str, Any]]] = {
    Handover.STANDARD: (BROKER, DEVICE),
    Handover.LOGGING: (BROKER, DEVICE),
    Handover.PREFETCHING: (BROKER, DEVICE, BROKERS),
}


def random_combination(rng: Random, handover: Handover) -> dict[str, dict[str, Any]]:
    """The options of one of the combinations of a strategy, if it has any."""
    found = COMBINATIONS.get(handover)
    return {handover: rng.choice(found)} if found else {}


def random_predictor(
    rng: Random, handover: Handover, brokers: Sequence[NodeId]
) -> MobilityOptions | None:
    """What brokers predict by, if their strategy does; they are right by chance only."""
    moves = {
        (a, b): rng.randint(1, 9) for a in brokers for b in brokers if a != b and rng.random() < 0.7
    }
    if handover is not Handover.PREFETCHING or not moves:
        return None
    return MobilityOptions(model=model_of(moves).to_bytes())
